"""README's commands, run as a reader pastes them: each block in a fresh folder, with `trinity` on the path."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from core.episode import Role
from tests.browsing import PATIENCE_S, environment, serving
from tests.core.pool.faulty_server import faulty_server
from tests.ui.endpoint.server import team
from tests.zygote import forked
from ui.runs.paper.folds import shipped_folds
from ui.runs.paper.results import NAME, read
from ui.runs.wiring import SAMPLE_RUNS

README = (Path(__file__).resolve().parents[2] / "README.md").read_text("utf-8")
#: The models that a reader is told to put into the file: here one that a server of this machine plays.
POOL = '[[model]]\nname = "{name}"\nbase_url = "{url}"\nprice_in = 0.1\nprice_out = 0.2\n'
#: What plays long -> what it is told in place of README's numbers.
FEWER = {
    "trinity run --pool": "--n 2 --validate 1",
    "trinity run": "--n 20 --validate 1",
    # An encoder of 135 million weights reads every turn of the second one.
    "trinity evolve --pool": "--generations 1 --population 4 --replicates 1 --validation 1 --turns 2 --no-controls",
    "trinity evolve": "--generations 1 --population 4 --replicates 2 --validation 2 --turns 2 --no-controls",
    "trinity fork": "--most 2 --n 2 --baseline 2",
}


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
    """What a shell prints for the command, which must succeed; few episodes and generations, where it would play long,
    and the pocket encoder, as this machine may be offline."""
    if few := next((few for begun, few in FEWER.items() if command.startswith(begun)), ""):
        command = re.sub(r"--(n|generations|most) \d+", "", command.partition("#")[0]).strip() + f" {few}"
    own = environment(folder)
    done = subprocess.run(
        ["bash", "-c", command.replace("Qwen/Qwen3-0.6B", "pocket")],
        cwd=folder,
        env={**own, "PATH": f"{forked('trinity').parent}:{own['PATH']}"},
        capture_output=True,
        encoding="utf-8",
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, f"{command}{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.process
def test_the_first_commands_play_evolve_compare_and_fork(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = "".join(paste(tmp_path, command) for command in commands("Begin"))
    for said in ("single:jack", "random", "minus A", " pairs "):
        assert said in output
    [lines] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    monkeypatch.delenv("TRINITY_STORE", raising=False)
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    named: dict[str, Any] = {}
    exec(lines, named)
    named["store"].close()
    assert (len(named["wrong"]) > 0, len(named["accepts"]) > 0) == (True, True)
    assert named["decision"].role in Role


@pytest.mark.process
def test_own_models_are_checked_played_and_evolved_for_and_then_served_as_one(tmp_path: Path) -> None:
    with faulty_server(team("42")) as models:
        for command in commands("Use your own models"):
            paste(tmp_path, command)
            if command.startswith("trinity pool init"):
                tables = [POOL.format(name=name, url=models.url) for name in ("first", "second")]
                (tmp_path / "pool.toml").write_text("\n".join(tables))
        serve, *asked = commands("Use it as one model")
        options = shlex.split(serve, comments=True)[1:]
        with serving([forked("trinity"), *options, "--port"], tmp_path, health="/healthz") as address:
            answers = [paste(tmp_path, one.replace("http://127.0.0.1:8080", address)) for one in asked]
    assert '"content":"42"' in answers[0].replace(" ", "")
    assert answers[1].startswith("trinity-")


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
    for of_table in shipped_folds():
        for one in of_table.rows:
            values = [
                end for mean in (one.solved, *one.less.values()) for end in (mean.mean, mean.low, mean.high)
            ]
            known |= {f"{abs(100 * value):.{digits}f}" for value in values for digits in (0, 1)}
    figures = re.findall(
        r"(?<![\w.,])\d+(?:\.\d)?(?=,(?!\d)|[\]%]| %| points| ahead)", re.sub(r"95 % interval", "", section)
    )
    assert len(figures) >= 18
    assert not [figure for figure in figures if figure not in known]
