"""README's commands, run as a reader pastes them: each block in a fresh folder, with `trinity` on the path."""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.browsing import PATIENCE_S, environment
from tests.core.pool.faulty_server import faulty_server
from tests.journeys.newcomer import TRINITY
from tests.ui.endpoint.server import team
from ui.runs.paper.results import NAME, read
from ui.runs.wiring import SAMPLE_RUNS

README = (Path(__file__).resolve().parents[2] / "README.md").read_text("utf-8")
#: The models that a reader is told to put into the file: here one that a server of this machine plays.
POOL = '[[model]]\nname = "{name}"\nbase_url = "{url}"\nprice_in = 0.1\nprice_out = 0.2\n'
#: What every evolution of this test is told.
FEW = "--generations 1 --population 6 --replicates 2 --validation 4 --no-controls"
#: How a command begins that would play long -> what it is told in place of README's numbers.
FEWER = {"trinity run": "--n 30 --validate 4", "trinity evolve": FEW}


def commands(heading: str) -> list[str]:
    """The commands of the last block below a heading, one each, however many lines it has."""
    section = README.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    found, begun = [], ""
    for line in re.findall(r"```sh\n(.*?)```", section, re.DOTALL)[-1].splitlines():
        begun += line + "\n"
        whole = subprocess.run(["bash", "-n", "-c", begun], capture_output=True).returncode == 0
        if whole and not line.endswith("\\"):
            found.append(begun)
            begun = ""
    assert not begun, "the last command does not end"
    return found


def paste(folder: Path, command: str) -> str:
    """What a shell prints for the command, which must succeed."""
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=_environment(folder),
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, f"{command}{done.stdout}{done.stderr}"
    return done.stdout


def shortened(command: str) -> str:
    """The command with few episodes and generations, where it would play long."""
    few = next((few for begun, few in FEWER.items() if command.startswith(begun)), None)
    if few is None:
        return command
    shown = re.sub(r"--(n|generations) \d+", "", command.partition("#")[0]).strip()
    return f"{shown} {few}\n"


@pytest.mark.process
def test_the_first_commands_play_evolve_compare_and_fork(tmp_path: Path) -> None:
    """With one generation of few candidates and with few episodes, as the rest is the same again."""
    output = ""
    for command in commands("Begin"):
        output += paste(tmp_path, shortened(command))
    for said in ("single:jack", "random", "minus A", "pairs)"):
        assert said in output
    [lines] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    said = "print(len(wrong), decision.role.value, len(accepts))"
    told = paste(tmp_path, f"{shlex.quote(sys.executable)} -c {shlex.quote(lines + said)}")
    assert re.fullmatch(r"\d+ (worker|thinker|verifier) \d+\n", told)


@pytest.mark.process
def test_own_models_are_checked_played_and_evolved_for_and_then_served_as_one(tmp_path: Path) -> None:
    """With the pocket encoder, as this machine may be offline, few candidates, and a free port."""
    with (
        faulty_server(team("<answer>42</answer>")) as models,
        socket.create_server(("127.0.0.1", 0)) as probe,
    ):
        port = str(probe.getsockname()[1])
        probe.close()
        for command in commands("Use your own models"):
            command = command.replace("Qwen/Qwen3-0.6B", "pocket").replace("--generations 5", FEW)
            paste(tmp_path, command)
            if command.startswith("trinity pool init"):
                tables = [POOL.format(name=name, url=models.url) for name in ("first", "second")]
                (tmp_path / "pool.toml").write_text("\n".join(tables))
        serve, *asked = commands("Use it as one model")
        with served(tmp_path, f"{serve.partition('#')[0].strip()} --port {port}", port):
            answers = [paste(tmp_path, command.replace("8080", port)) for command in asked]
    assert '"content":"42"' in answers[0].replace(" ", "")
    assert answers[1].startswith("trinity-")


@contextmanager
def served(folder: Path, command: str, port: str) -> Iterator[None]:
    """While the endpoint that the command starts answers."""
    server = subprocess.Popen(
        [str(TRINITY), *shlex.split(command)[1:]],
        cwd=folder,
        env=_environment(folder),
        stderr=subprocess.PIPE,
    )
    try:
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2):
                    break
            except OSError:
                assert server.poll() is None
                assert time.monotonic() < until
                time.sleep(0.1)
        yield
    finally:
        server.terminate()
        server.communicate(timeout=PATIENCE_S)


def _environment(folder: Path) -> dict[str, str]:
    own = environment(folder)
    return {**own, "PATH": f"{TRINITY.parent}:{own['PATH']}"}


def test_the_figures_are_those_of_the_results_that_ship() -> None:
    """Each percentage of the section is a mean, or the end of an interval, of some row."""
    section = README.split("\n## What came out\n", 1)[1].split("\n## ", 1)[0]
    shipped = read(SAMPLE_RUNS / NAME)
    known: set[str] = set()
    for row in shipped.rows:
        if row.measure == "accuracy":
            ends = [row.value, *row.against.values()]
            values = [value for one in ends for value in (one.mean, one.low, one.high) if value is not None]
            values += [*(row.by_seed or {}).values()]
            known |= {f"{abs(100 * value):.{digits}f}" for value in values for digits in (0, 1)}
    figures = re.findall(
        r"(?<![\w.,])\d+(?:\.\d)?(?=,(?!\d)|[\]%]| %| points| ahead)", re.sub(r"95 % interval", "", section)
    )
    assert len(figures) > 18
    assert not [figure for figure in figures if figure not in known]
