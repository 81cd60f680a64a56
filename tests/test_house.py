"""The house itself: directions of import, start-up cost, forbidden calls, packaging, README's promises."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ui.guard import foreign_package

ROOT = Path(__file__).resolve().parents[1]
FLOORS = ("core", "storage", "ui")
MODULES = sorted(path for floor in FLOORS for path in (ROOT / floor).rglob("*.py"))
BIN = Path(sys.executable).parent
START_COMMAND = "python3 -m venv .venv && .venv/bin/pip install -e . && .venv/bin/trinity ui"
TEST_COMMAND = "python3 -m venv .venv && .venv/bin/pip install -e '.[dev]' && .venv/bin/pytest"
CHECK_LINE = "ruff format --check . && ruff check . && mypy && lint-imports"

#: The rooms that know torch: the coordinator, evolution on top of it, and the pocket models.
TORCH_ROOMS = ("core.coordinator.", "core.evolution.", "core.pocket.", "ui.evolution", "ui.reproduce")


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


TREES = {path: ast.parse(path.read_text("utf-8")) for path in MODULES}


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter."""
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        cwd=ROOT,
    )


def test_imports_point_down_only() -> None:
    result = subprocess.run([BIN / "lint-imports", "--no-cache"], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stdout


def test_every_module_says_its_one_job() -> None:
    silent = [module_name(path) for path, tree in TREES.items() if not ast.get_docstring(tree)]
    assert silent == []


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
    speakers = [module_name(path) for path, tree in TREES.items() if "httpx" in set(imported(tree))]
    assert speakers == ["core.pool.client"]


def test_every_figure_reaches_its_page_by_one_door() -> None:
    told = [path for path in MODULES if "st.plotly_chart(" in path.read_text("utf-8")]
    assert [module_name(path) for path in told] == ["ui.chart"]


def test_only_the_torch_rooms_name_torch() -> None:
    heavy = {"torch", "transformers"}
    speakers = [
        module_name(path)
        for path, tree in TREES.items()
        if heavy & {name.partition(".")[0] for name in imported(tree)}
    ]
    assert [name for name in speakers if not name.startswith(("core.coordinator.", "core.pocket."))] == []


def test_nothing_unpickles_or_trusts_foreign_code() -> None:
    found = []
    for path, tree in TREES.items():
        found += [(path.name, name) for name in imported(tree) if name.partition(".")[0] in BANNED_MODULES]
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and ast.unparse(node) in ("torch.load", "pandas.read_pickle"):
                found.append((path.name, ast.unparse(node)))
            if (
                isinstance(node, ast.keyword)
                and node.arg in BANNED_ARGUMENTS
                and ast.unparse(node.value) != "False"
            ):
                found.append((path.name, ast.unparse(node)))
    assert found == []


BANNED_MODULES = {"pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "litellm"}
BANNED_ARGUMENTS = {"unsafe_allow_html", "unsafe_allow_javascript", "trust_remote_code", "allow_pickle"}


def test_importing_anything_but_the_torch_rooms_is_light() -> None:
    # The app itself runs when it is imported, so the next test opens it instead.
    names = [module_name(path) for path in MODULES]
    light = [n for n in names if not n.startswith(TORCH_ROOMS) and ".migrations" not in n and n != "ui.app"]
    code = f"import importlib, sys\nfor name in {light!r}: importlib.import_module(name)\n"
    result = run_python(code + "print([n for n in ('torch', 'transformers', 'scipy') if n in sys.modules])")
    assert result.stdout.strip() == "[]", result.stdout + result.stderr


def test_opening_the_app_does_not_import_torch(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom streamlit.testing.v1 import AppTest\n"
        f"app = AppTest.from_file({str(ROOT / 'ui' / 'app.py')!r}, default_timeout=60).run()\n"
        "assert not app.exception, app.exception\nsys.exit('torch' in sys.modules)"
    )
    result = run_python(code, TRINITY_STORE=str(tmp_path / "store.db"), XDG_DATA_HOME=str(tmp_path))
    assert result.returncode == 0, result.stderr


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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of the files in a wheel built from this tree."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
        return set(archive.namelist())


def test_the_wheel_carries_everything_a_newcomer_needs(wheel: set[str]) -> None:
    from core.pocket import MODELS

    needed = {f"core/pocket/weights/{name}/{file}" for name in (*MODELS, "encoder") for file in WEIGHT_FILES}
    needed |= {
        "ui/app.py",
        "ui/.streamlit/config.toml",
        "core/py.typed",
        "ui/components/turn_strip.js",
        "ui/components/drawing.js",
    }
    assert needed - wheel == set()
    assert any(name.startswith("sample_runs/") and ".jsonl" in name for name in wheel)
    assert any(name.startswith("storage/migrations/versions/") for name in wheel)


WEIGHT_FILES = ("config.json", "model.safetensors", "tokenizer.json")


def test_the_wheel_carries_nothing_else_at_the_top(wheel: set[str]) -> None:
    assert {name.split("/")[0] for name in wheel if ".dist-info" not in name} == {*FLOORS, "sample_runs"}


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


def test_readme_shows_every_module() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    shown = [path for path in MODULES if path.name != "__init__.py" and "versions" not in path.parts]
    assert [module_name(path) for path in shown if path.name not in readme] == []
