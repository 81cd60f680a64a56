"""The house itself: what a module says and imports, start-up cost, forbidden calls, README's promises.

The directions of import are import-linter's (`lint-imports`, in the check line), not this file's.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ui.cli import foreign_package

ROOT = Path(__file__).resolve().parents[1]
FLOORS = ("core", "storage", "ui")
MODULES = sorted(path for floor in FLOORS for path in (ROOT / floor).rglob("*.py"))
BIN = Path(sys.executable).parent
START_COMMAND = "python3 -m venv .venv && .venv/bin/pip install -e . && .venv/bin/trinity ui"
TEST_COMMAND = "python3 -m venv .venv && .venv/bin/pip install -e '.[dev]' && .venv/bin/pytest"
CHECK_LINE = "ruff format --check . && ruff check . && mypy && lint-imports"

#: The rooms that know torch: the coordinator, evolution on top of it, planners that are language models, and the pocket
#: models.
TORCH_ROOMS = (
    "core.coordinator.",
    "core.planner.",
    "core.evolution.",
    "core.pocket.",
    "ui.runs.evolution",
    "ui.runs.training",
    "ui.runs.paper.reproduction",
)


def module_name(path: Path) -> str:
    """Dotted name of a module file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(tree: ast.AST) -> Iterator[str]:
    """Every module that a tree imports anywhere, by its dotted name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def names_in(path: Path) -> Iterator[str]:
    """Every name that a module imports from another."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)


TESTS = sorted((ROOT / "tests").rglob("*.py"))


@cache
def trees() -> dict[Path, ast.Module]:
    """What is written in each of our modules."""
    return {path: ast.parse(path.read_text("utf-8")) for path in MODULES}


@cache
def imports() -> dict[Path, frozenset[str]]:
    """Every module that each of our modules imports anywhere."""
    return {path: frozenset(imported(tree)) for path, tree in trees().items()}


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter."""
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        cwd=ROOT,
    )


def test_every_module_says_its_one_job() -> None:
    silent = [module_name(path) for path, tree in trees().items() if not ast.get_docstring(tree)]
    assert silent == []


def test_every_room_says_a_job_that_no_other_has() -> None:
    jobs = {
        module_name(path): str(ast.get_docstring(tree)).splitlines()[0]
        for path, tree in trees().items()
        if path.name == "__init__.py"
    }
    assert jobs.keys() >= {*FLOORS, "core.play", "storage.shelves", "ui.runs", "ui.web.kit"}
    assert {room: job for room, job in jobs.items() if len(job.split()) < 4} == {}, "a name is no job"
    assert [job for job, rooms in Counter(jobs.values()).items() if rooms > 1] == []


def test_no_module_is_longer_than_a_reader_can_hold() -> None:
    long = [module_name(path) for path in MODULES if len(path.read_text("utf-8").splitlines()) > 500]
    assert long == []


def test_no_module_of_ui_hides_one_of_the_standard_library() -> None:
    # `streamlit run ui/app.py` puts ui/ first on sys.path.
    names = {path.stem if path.is_file() else path.name for path in (ROOT / "ui").iterdir()}
    assert names & sys.stdlib_module_names == set()


def test_streamlit_finds_no_pages_on_its_own() -> None:
    assert not (ROOT / "ui" / "pages").exists()


def test_only_one_module_speaks_httpx() -> None:
    speakers = [module_name(path) for path, names in imports().items() if "httpx" in names]
    assert speakers == ["core.pool.client"]


def test_every_figure_reaches_its_page_by_one_door() -> None:
    told = [path for path in MODULES if "st.plotly_chart(" in path.read_text("utf-8")]
    assert [module_name(path) for path in told] == ["ui.web.kit.figures"]


def test_only_the_torch_rooms_name_torch() -> None:
    heavy = {"torch", "transformers"}
    speakers = [
        module_name(path)
        for path, names in imports().items()
        if heavy & {name.partition(".")[0] for name in names}
    ]
    assert [
        name
        for name in speakers
        if not name.startswith(("core.coordinator.", "core.planner.", "core.pocket."))
    ] == []


def test_nothing_unpickles_or_trusts_foreign_code() -> None:
    found = []
    for path, tree in trees().items():
        found += [(path.name, name) for name in imports()[path] if name.partition(".")[0] in BANNED_MODULES]
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in ("load", "read_pickle"):
                found += [(path.name, ast.unparse(node))] * (ast.unparse(node) in BANNED_FUNCTIONS)
            if (
                isinstance(node, ast.keyword)
                and node.arg in BANNED_ARGUMENTS
                and ast.unparse(node.value) != "False"
            ):
                found.append((path.name, ast.unparse(node)))
    assert found == []


def test_only_the_suites_fixture_starts_a_browser() -> None:
    # Whoever asks for the fixture is marked by it; the benchmarks are no tests.
    starters = [
        path
        for path in TESTS
        if path.parent.name != "bench"
        and "sync_playwright" in path.read_text("utf-8")
        and "sync_playwright" in names_in(path)
    ]
    assert [path.relative_to(ROOT).as_posix() for path in starters] == ["tests/conftest.py"]


def test_no_test_patches_what_it_only_knows_by_a_string() -> None:
    # `monkeypatch.setattr("a.b.c", ...)`: no type checker sees it, and a move of c is found by chance.
    patched = [
        f"{path.name}:{node.lineno}"
        for path in TESTS
        if re.search(r"setattr\(\s*\w?[\"']", text := path.read_text("utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "setattr"
        and isinstance(node.args[0], ast.Constant)
    ]
    assert patched == []


BANNED_FUNCTIONS = ("torch.load", "pandas.read_pickle")
BANNED_MODULES = {"pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "litellm"}
BANNED_ARGUMENTS = {"unsafe_allow_html", "unsafe_allow_javascript", "trust_remote_code", "allow_pickle"}


#: What only a page, or a statistics over hidden states, needs.
SCREEN = (
    "streamlit",
    "plotly",
    "pandas",
    "pyarrow",
    "ui.web.kit.state",
    "ui.web.kit.widgets",
    "ui.web.views",
    "ui.web.kit.figures",
)
HEAVY = ("torch", "transformers", "scipy", "sklearn", *SCREEN)

#: Commands that look something up, in an empty store; each with what it may import of HEAVY for its work.
LIGHT = (
    *(
        "--help",
        "pool init pool.toml",
        "bench",
        "doctor",
        "episodes",
        "checkpoints",
        "labels",
        "label e1 a=b",
    ),
    *("compare single:jack random", "routing", "verifier", "policy c1 c2", "fork e1 --turn 1 --stop"),
    *("prune --what states --all --dry-run", "import nothing.jsonl", "export --all", "separability"),
    *("pool list", "pocket cards", "reproduce --show", "worker --drain"),
)


#: What a fresh interpreter does one after the other, the lightest first, and what it says of each as a line: what is
#: imported stays so, and a step is only held to what those before it were held to as well.
STEPS = """
import importlib, json, os, sys
from ui.cli import main

def say(found):
    print(); print("FOUND", json.dumps(found), flush=True)

def imported(names):
    return [name for name in names if name in sys.modules]

def called(arguments):
    try: main(arguments)
    except SystemExit: pass

for arguments in (["--help"], ["doctor", "--help"], ["run", "--help"]):
    ours = sorted(name for name in sys.modules if name.startswith("ui."))
    called(arguments)
say([ours, imported(["numpy", "sqlalchemy", "streamlit", "torch", "httpx"])])

import ui.runs.worker
say(imported({HEAVY!r}))

os.chdir({folder!r})
heavy = dict()
for command in {LIGHT!r}:
    called(command.split())
    heavy[command] = imported({HEAVY!r})
say(heavy)

for name in {light!r}: importlib.import_module(name)
say(imported(["torch", "transformers", "scipy"]))

from streamlit.testing.v1 import AppTest
app = AppTest.from_file({frame!r}, default_timeout=240).run()
assert not app.exception, app.exception
say(imported(["torch"]))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What each of STEPS was found to import."""
    folder = tmp_path_factory.mktemp("steps")
    # The app's frame runs when it is imported: the last step opens it instead.
    names = [module_name(path) for path in MODULES]
    light = [
        n for n in names if not n.startswith(TORCH_ROOMS) and ".migrations" not in n and n != "ui.web.frame"
    ]
    code = STEPS.format(
        HEAVY=HEAVY, LIGHT=LIGHT, folder=str(folder), light=light, frame=str(ROOT / "ui" / "web" / "frame.py")
    )
    result = run_python(code, TRINITY_STORE=str(folder / "store.db"), XDG_DATA_HOME=str(folder))
    said = [line.removeprefix("FOUND ") for line in result.stdout.splitlines() if line.startswith("FOUND ")]
    assert len(said) == 5, result.stdout[-2000:] + result.stderr
    return [json.loads(line) for line in said]


@pytest.mark.process
def test_a_command_imports_no_other_command_and_help_nothing_heavy(found: list[Any]) -> None:
    ours, heavy = found[0]
    assert ours == [
        "ui.answers",
        "ui.answers.pages",  # what analyses there are, none of them imported
        *(f"ui.cli{name}" for name in ("", ".commands", ".console", ".doctor", ".options", ".replies")),
        "ui.program",
    ]
    assert heavy == []


@pytest.mark.process
def test_the_worker_imports_nothing_of_a_screen(found: list[Any]) -> None:
    assert found[1] == []


@pytest.mark.process
def test_a_light_command_imports_nothing_heavy(found: list[Any]) -> None:
    assert found[2] == {command: [] for command in LIGHT}


@pytest.mark.process
def test_importing_anything_but_the_torch_rooms_is_light(found: list[Any]) -> None:
    assert found[3] == []


@pytest.mark.process
def test_opening_the_app_does_not_import_torch(found: list[Any]) -> None:
    assert found[4] == []


def test_every_listed_command_is_there_and_helps() -> None:
    from ui.cli.commands import Commands

    found = {name: one.load(name) for name, one in Commands.listed.items()}
    assert [name for name, command in found.items() if command.name != name or not command.help] == []


@pytest.mark.process
def test_a_foreign_core_is_reported_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "__init__.py").write_text("raise RuntimeError('the wrong core')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    result = subprocess.run(
        [BIN / "trinity", "doctor"], capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert f"Another package named 'core' ({tmp_path / 'core'})" in result.stderr


def test_our_own_core_is_not_foreign() -> None:
    assert foreign_package() is None


def test_the_top_level_is_the_one_agreed() -> None:
    allowed = {*FLOORS, "tests", "sample_runs", "pyproject.toml", "README.md", "LICENSE"}
    leftovers = {"build", "dist"}
    found = {path.name for path in ROOT.iterdir() if not path.name.startswith(".")}
    assert {name for name in found - allowed - leftovers if not name.endswith(".egg-info")} == set()


def test_readme_and_ci_promise_the_same_commands() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    ci = (ROOT / ".ci" / "run").read_text("utf-8")
    assert START_COMMAND in readme
    assert TEST_COMMAND in readme
    assert TEST_COMMAND in ci
    assert CHECK_LINE in readme
    assert CHECK_LINE in ci


#: The command line has a module per command.
WIDE_ROOMS = {"ui/cli"}


def test_a_folder_holds_no_more_modules_than_a_reader_can_scan() -> None:
    rooms = Counter(str(path.parent.relative_to(ROOT)) for path in MODULES if path.name != "__init__.py")
    assert {room: n for room, n in rooms.items() if n > 20 and room not in WIDE_ROOMS} == {}


def test_the_readme_is_one_page_and_shows_every_folder() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert len(readme.splitlines()) <= 110
    assert len(readme.split()) <= 900
    folders = {path.parent.name for path in MODULES} - {"versions"}
    assert [name for name in sorted(folders) if f"{name}/" not in readme] == []
