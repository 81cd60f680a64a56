"""`trinity engine`: a file to start a Ray cluster from, and what the machines of a cluster have."""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from core.errors import ConfigError
from core.settings import ENGINE, POCKET_POOL, ray_address
from ui.cli.console import making_ready, print_json, print_table, say, write_new
from ui.cli.options import JsonOption, PoolOption, option
from ui.program import DISTRIBUTION, version

if TYPE_CHECKING:
    from core.cluster.cluster import Cluster

log = logging.getLogger(__name__)

app = typer.Typer(
    no_args_is_help=True,
    help="Ray clusters, whose machines call models and compute for --engine ray. Results are the same as without one, "
    "and every machine uses the keys of its own environment.\n\n"
    "[dim]$[/] trinity engine example ray-up --out cluster.yaml\n\n"
    "[dim]$[/] trinity engine show --engine ray=10.0.0.5:6379 --pool pool.toml",
)


class Launcher(StrEnum):
    """Who starts a cluster from a file."""

    RAY_UP = "ray-up"
    KUBERNETES = "kubernetes"


@app.command()
def example(
    launcher: Annotated[
        Launcher,
        typer.Argument(help="Who starts the cluster: the command 'ray up', or KubeRay on Kubernetes."),
    ] = Launcher.RAY_UP,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write it to a new file instead.")
    ] = None,
) -> None:
    """Print a commented file to start a Ray cluster from. It names the versions that are installed here, which every
    machine of the cluster must have too, and holds no key.

    [dim]$[/] trinity engine example ray-up --out cluster.yaml

    [dim]$[/] trinity engine example kubernetes --out cluster.yaml
    """
    text = cluster_file(launcher)
    if out is None:
        typer.echo(text, nl=False)
        return
    write_new(out, text)
    start = "ray up" if launcher is Launcher.RAY_UP else "kubectl apply -f"
    say(f"Wrote {out}. Its first lines say what to put beside it; then: {start} {out}")


def cluster_file(launcher: Launcher) -> str:
    """A commented YAML file that starts a cluster, with the versions that are installed here. ConfigError where Ray or
    this program is not installed."""
    try:
        ray, trinity = installed("ray"), installed(DISTRIBUTION)
    except PackageNotFoundError as missing:
        raise ConfigError(
            f"The file names the versions that every machine must have, and {missing.name} is not installed here: "
            "install Trinity Inspector with its extra 'ray' first."
        ) from None
    text = files("ui.cli").joinpath(f"{launcher}.yaml").read_text("utf-8")
    names = {"ray": ray, "trinity": trinity, "python": platform.python_version()}
    names["wheel"] = f"{DISTRIBUTION.replace('-', '_')}-{trinity}-py3-none-any.whl"
    for name, value in names.items():
        text = text.replace(f"{{{name}}}", value)
    return text


@dataclass(slots=True)
class Machine:
    """A machine of a cluster: its cores and GPUs as Ray counts them, its versions (empty: it did not say), whether it
    computes to the same last digit as this one, without which it calls models and runs none, whether programs can be
    run in a sandbox there, as tasks whose answers are programs need, whether each key variable is set there, and what
    is wrong with it (empty: nothing)."""

    host: str
    address: str
    cores: float
    gpus: float
    python: str = ""
    trinity: str = ""
    same_digits: bool | None = None
    sandbox: bool | None = None
    keys: dict[str, bool] = field(default_factory=dict)
    problem: str = ""

    def __str__(self) -> str:
        return f"The machine {self.host} ({self.address}) of the cluster"


@app.command()
def show(
    engine: Annotated[str | None, option(ENGINE, show_default=False)] = None,
    pool: PoolOption = None,
    as_json: JsonOption = False,
) -> None:
    """Join a cluster, list its machines with their cores, GPUs, versions and whether they have a sandbox for programs
    and the keys that a pool.toml names, and leave it. No model is asked. Exit code 1 when a machine cannot do its part.

    [dim]$[/] trinity engine show --engine ray=10.0.0.5:6379 --pool pool.toml
    """
    from core.cluster.cluster import Cluster, Machines
    from ui.runs import wiring

    settings = wiring.settings(engine=engine, pool=pool)
    if (address := ray_address(settings.engine)) is None:
        raise ConfigError("The engine is local: name a cluster, for example --engine ray=10.0.0.5:6379.")
    keys = _keys_of(settings.pool)
    with making_ready("Joining the cluster"):
        cluster = Cluster(Machines(address), None)
        try:
            found = machines(cluster, keys)
        finally:
            cluster.leave()
    if as_json:
        print_json([asdict(one) for one in found])
    else:
        print_table(
            [
                "machine",
                "address",
                ">cores",
                ">GPUs",
                "Python",
                "Trinity Inspector",
                "same digits",
                "sandbox",
                *keys,
            ],
            [
                (one.host, one.address, f"{one.cores:g}", f"{one.gpus:g}", one.python, one.trinity)
                + tuple(_YES_NO[told] for told in (one.same_digits, one.sandbox, *map(one.keys.get, keys)))
                for one in found
            ],
        )
    if wrong := [one.problem for one in found if one.problem]:
        more = f" {len(wrong)} of {len(found)} machines cannot do their part." if len(wrong) > 1 else ""
        raise ConfigError(wrong[0] + more)


_YES_NO = {True: "yes", False: "no", None: ""}


def _keys_of(pool: str) -> list[str]:
    """The environment variables that the models of a pool need, in the order of its file."""
    from core.pool_file import load_specs
    from ui.runs import wiring
    from ui.runs.settings import is_recorded

    if pool == POCKET_POOL or is_recorded(pool):
        return []
    specs = load_specs(Path(pool), wiring.data_folder())
    return [
        *dict.fromkeys(name for one in specs for name in (one.api_key_env, *one.headers_env.values()) if name)
    ]


def machines(cluster: Cluster, keys: Sequence[str]) -> list[Machine]:
    """Every machine of a cluster that is up, each asked by a worker of its own; `keys` are names of environment
    variables. A machine that does not answer says so in its `problem`."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from core.cluster.joining import START_S
    from core.cluster.workers import Worker
    from core.pocket.devices import fingerprint

    ray, asked = cluster.ray, []
    for node in ray.nodes():
        if node["Alive"]:
            here = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            worker = ray.remote(num_cpus=0, scheduling_strategy=here)(Worker).remote(())
            asked.append((_machine(node), worker, worker.about.remote()))
    until = time.monotonic() + START_S
    for machine, worker, about in asked:
        try:
            _, runs, digits = ray.get(about, timeout=max(0.1, until - time.monotonic()))
            (machine.python, machine.trinity), machine.same_digits = runs, digits == fingerprint()
            machine.problem = _other_versions(machine)
            if not machine.problem:
                told, _ = ray.get(worker.answer.remote("ui.program:have_values", [*keys]), timeout=START_S)
                machine.keys = dict(zip(keys, told, strict=True))
                machine.sandbox, _ = ray.get(
                    worker.answer.remote("ui.program:has_sandbox", None), timeout=START_S
                )
                machine.problem = _missing_keys(machine)
        except ray.exceptions.GetTimeoutError:
            machine.problem = (
                f"{machine} did not answer within {START_S:g} seconds: is it up, and can it be reached?"
            )
        except ray.exceptions.RayError as error:
            log.info("%s: %s", machine, error)
            machine.problem = (
                f"{machine} cannot start Trinity Inspector: install {version()} there for Python "
                f"{platform.python_version()}, as here. trinity --verbose engine show says what Ray reports."
            )
    return [machine for machine, *_ in asked]


def _machine(node: Mapping[str, Any]) -> Machine:
    resources = node["Resources"]
    return Machine(
        node["NodeManagerHostname"],
        node["NodeManagerAddress"],
        resources.get("CPU", 0.0),
        resources.get("GPU", 0.0),
    )


def _other_versions(machine: Machine) -> str:
    """A sentence where it does not run what this machine runs."""
    python, own = platform.python_version(), version()
    if (machine.python, machine.trinity) == (python, own):
        return ""
    return (
        f"{machine} runs Python {machine.python} and Trinity Inspector {machine.trinity}: install Python {python} and "
        f"Trinity Inspector {own} there, as here."
    )


def _missing_keys(machine: Machine) -> str:
    """A sentence where it lacks a key."""
    missing = ", ".join(name for name, is_set in machine.keys.items() if not is_set)
    return f"{machine} has no value for {missing}: set it there before Ray is started." if missing else ""
