"""`trinity engine`: files that Ray itself accepts, and what the machines of a real cluster of two nodes have."""

from __future__ import annotations

import json
import os
import platform
import shutil
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from tests.bench._cluster import cluster
from tests.ui.sums import Sums
from ui.cli.engine import Launcher, Machine, _other_versions

#: What only the machines of the cluster have, and what nobody has.
THERE, NOWHERE = "TRINITY_TEST_KEY_OF_THE_CLUSTER", "TRINITY_TEST_KEY_OF_NOBODY"


def _printed(world: Sums, launcher: Launcher) -> dict[str, Any]:
    import yaml  # type: ignore[import-untyped]  # which Ray brings

    found: dict[str, Any] = yaml.safe_load(world.done("engine", "example", launcher.value).out)
    return found


@pytest.mark.usefixtures("ray")
def test_ray_takes_the_file_of_ray_up(world: Sums) -> None:
    config = _printed(world, Launcher.RAY_UP)
    from ray.autoscaler._private.util import prepare_config, validate_config

    whole = prepare_config(config)
    validate_config(whole)  # against Ray's own schema
    # What it adds for each machine does not belong to the others.
    head, worker = (whole["available_node_types"][name]["node_config"] for name in ("head", "worker"))
    assert head == worker
    assert head is not worker
    setup = "\n".join(whole["setup_commands"])
    wheel = f"trinity_inspector-{version('trinity-inspector')}-py3-none-any.whl"
    assert config["file_mounts"][f"~/{wheel}"] == wheel
    assert f"{wheel}[ray]" in setup
    assert f"ray[default]=={version('ray')}" in setup
    assert f"--python {platform.python_version()} " in setup
    assert "RAY_USAGE_STATS_ENABLED=0" in setup
    assert any("ray start --head" in one for one in whole["head_start_ray_commands"])

    with pytest.raises(Exception, match="worker_kinds"):  # the check can fail
        validate_config({**whole, "worker_kinds": {}})


@pytest.mark.usefixtures("ray")
def test_ray_reads_the_file_for_kubernetes(world: Sums) -> None:
    resource = _printed(world, Launcher.KUBERNETES)
    assert (resource["apiVersion"], resource["kind"]) == ("ray.io/v1", "RayCluster")
    from ray.autoscaler._private.kuberay.autoscaling_config import _derive_autoscaling_config_from_ray_cr

    resource["metadata"]["namespace"] = "default"  # which Kubernetes adds
    read = _derive_autoscaling_config_from_ray_cr(resource)
    assert read["available_node_types"]["headgroup"]["resources"]["CPU"] == 2
    assert read["available_node_types"]["workers"].items() >= {"min_workers": 2, "max_workers": 2}.items()
    spec = resource["spec"]
    assert spec["rayVersion"] == version("ray")
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        assert all(isinstance(one, str) for pair in group["rayStartParams"].items() for one in pair)
        (container,) = group["template"]["spec"]["containers"]
        assert container["image"].endswith(f":{version('trinity-inspector')}")
        assert container["envFrom"] == [{"secretRef": {"name": "trinity-keys"}}]
        assert container["env"] == [{"name": "RAY_USAGE_STATS_ENABLED", "value": "0"}]


#: A worker that plays one run after the other joins a cluster for each.
AGAIN = """
import sys
from ui.runs import wiring
first = wiring.processes(sys.argv[1])
assert wiring.processes(sys.argv[1]) is first
wiring.leave_cluster()
second = wiring.processes(sys.argv[1])
assert wiring.pocket_pool(sys.argv[1]) is wiring.pocket_pool(sys.argv[1])
print(len(second.nodes), second.state().machines)
wiring.leave_cluster()
"""


@pytest.mark.usefixtures("ray")
@pytest.mark.parametrize("launcher", Launcher)
def test_a_file_is_short_and_never_written_over(world: Sums, launcher: Launcher) -> None:
    file = world.folder / f"{launcher}.yaml"
    said = world.done("engine", "example", launcher.value, "--out", file).err
    assert str(file) in said
    text = file.read_text("utf-8")
    assert text == world.done("engine", "example", launcher.value).out
    assert len(text.splitlines()) <= 30
    assert max(map(len, text.splitlines())) <= 150
    assert "exists already" in world.refused("engine", "example", launcher.value, "--out", file)


def test_without_ray_there_is_no_file(world: Sums, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import PackageNotFoundError

    from ui.cli import engine

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(engine, "installed", missing)
    assert "ray is not installed here" in world.refused("engine", "example")


@pytest.mark.usefixtures("ray")
def test_doctor_says_whether_ray_is_installed(world: Sums, monkeypatch: pytest.MonkeyPatch) -> None:
    from ui import program

    assert world.done("doctor", "--json").json["packages"]["ray"] == version("ray")
    monkeypatch.setattr(program, "OPTIONAL", ("no-such-distribution",))
    assert "no-such-distribution not installed" in world.done("doctor").out


def test_the_local_engine_has_no_machines_to_show(world: Sums) -> None:
    assert "name a cluster, for example --engine ray=" in world.refused("engine", "show", "--engine", "local")
    assert "No Ray cluster listens" in world.refused("engine", "show", "--engine", "ray=127.0.0.1:1")


def test_a_machine_of_another_version_is_told_what_to_install() -> None:
    own = version("trinity-inspector")
    assert _other_versions(Machine("here", "10.0.0.5", 1, 0, platform.python_version(), own)) == ""
    said = _other_versions(Machine("here", "10.0.0.5", 1, 0, platform.python_version(), "0.0.1"))
    assert "The machine here (10.0.0.5) of the cluster runs" in said
    assert f"install Python {platform.python_version()} and Trinity Inspector {own} there" in said


@pytest.mark.process
@pytest.mark.usefixtures("ray")
def test_the_machines_of_a_cluster_are_shown_with_the_keys_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = '[[model]]\nname = "m{0}"\nbase_url = "http://127.0.0.1:9/v1"\napi_key_env = "{1}"\n'
    pool = tmp_path / "pool.toml"
    monkeypatch.setenv(THERE, "sesame")
    with cluster(2) as nodes:
        monkeypatch.delenv(THERE)
        monkeypatch.setenv(NOWHERE, "sesame")  # here, which helps nobody there

        def shown(*keys: str) -> subprocess.CompletedProcess[str]:
            pool.write_text("".join(entry.format(i, key) for i, key in enumerate(keys)))
            words = ["engine", "show", "--engine", f"ray={nodes.address}", "--pool", pool, "--json"]
            return subprocess.run(
                [sys.executable, "-m", "ui.cli", *map(str, words)],
                capture_output=True,
                text=True,
                check=False,
            )

        well = shown(THERE)
        assert (well.returncode, well.stderr) == (0, "")
        machines = json.loads(well.stdout)
        assert len(machines) == 2
        for one in machines:
            assert (one["cores"], one["gpus"], one["keys"], one["problem"]) == (1, 0, {THERE: True}, "")
            assert one["same_digits"] is True
            assert one["sandbox"] is (shutil.which("bwrap") is not None)
            assert (one["python"], one["trinity"]) == (
                platform.python_version(),
                version("trinity-inspector"),
            )
        short = shown(THERE, NOWHERE)
        again = subprocess.run(
            [sys.executable, "-c", AGAIN, f"ray={nodes.address}"], capture_output=True, text=True, check=False
        )
    assert (again.returncode, again.stdout.strip()) == (0, "2 2"), again.stderr
    assert short.returncode == 1
    assert [one["keys"] for one in json.loads(short.stdout)] == [{THERE: True, NOWHERE: False}] * 2
    assert short.stderr.count("\n") == 1
    assert f"of the cluster has no value for {NOWHERE}: " in short.stderr
    assert "2 of 2 machines" in short.stderr
    assert "sesame" not in short.stdout + short.stderr + well.stdout


@pytest.mark.process
@pytest.mark.usefixtures("ray")
def test_a_cluster_that_ray_start_made_is_joined_by_whoever_has_its_token(tmp_path: Path) -> None:
    homes = {name: tmp_path / name for name in ("same", "other", "none")}
    for name, home in homes.items():
        (home / ".ray").mkdir(parents=True)
        if name != "none":
            (home / ".ray" / "auth_token").write_text((name * 64)[:64])
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        port, clients = one.getsockname()[1], other.getsockname()[1]

    def begun(*words: object, home: str) -> subprocess.Popen[str]:
        env = {**os.environ, "HOME": str(homes[home]), "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
        env.pop("RAY_AUTH_MODE", None)
        return subprocess.Popen(
            [sys.executable, "-m", *map(str, words)],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    head = ("ray.scripts.scripts", "start", "--head", "--block", "--port", port, "--num-cpus", 1)
    show = ("ui.cli", "engine", "show", "--engine", f"ray=127.0.0.1:{port}")
    with begun(*head, "--include-dashboard=false", "--ray-client-server-port", clients, home="same") as ray:
        try:
            assert ray.stdout
            assert any("Ray runtime started" in line for line in ray.stdout)
            said = {home: begun(*show, home=home).communicate()[0] for home in homes}
        finally:
            ray.terminate()
    assert version("trinity-inspector") in said["same"]
    assert "asks for a token: copy ~/.ray/auth_token from the cluster's head" in said["none"]
    assert "asks for a token, and this machine has another one: copy" in said["other"]
