"""What a release holds: the sdist, the wheel that is built from it as `python -m build` does, and what they say."""

from __future__ import annotations

import email
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.message import Message
from pathlib import Path

import pytest

from core.pocket import MODELS

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
FOLDERS = ("core", "storage", "ui", "sample_runs")
NAME = f"trinity_inspector-{PROJECT['version']}"
#: What a newcomer's first minutes need, whatever else there is.
NEEDED = {
    "ui/web/frame.py",
    "ui/.streamlit/config.toml",
    "ui/assets/replay.png",
    "ui/CHANGELOG.md",
    "sample_runs/results.json",
    "sample_runs/recorded.json",
    "sample_runs/pocket.jsonl.gz",
    *(f"{floor}/py.typed" for floor in ("core", "storage", "ui")),
    *(f"core/pocket/weights/{name}/model.safetensors" for name in (*MODELS, "encoder")),
}


def _build(source: Path, kind: str, target: Path) -> Path:
    """The sdist or wheel of a source tree."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(target)]
    subprocess.run(command, check=True, capture_output=True, cwd=source)
    (made,) = target.iterdir()
    return made


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked sdist of this tree."""
    folder = tmp_path_factory.mktemp("sdist")
    made = _build(ROOT, "sdist", folder / "made")
    assert made.stat().st_size < 40e6, "40 MB at most"
    with tarfile.open(made) as archive:
        archive.extractall(folder, filter="data")
    return folder / NAME


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel that is built from the sdist alone."""
    made = _build(source, "wheel", tmp_path_factory.mktemp("wheel"))
    assert made.stat().st_size < 40e6, "40 MB at most"
    shutil.rmtree(source.parent / "made")
    return zipfile.ZipFile(made)


@pytest.mark.process
def test_the_sdist_holds_the_tests_too(source: Path) -> None:
    top = {path.name for path in source.iterdir()}
    assert top >= {*FOLDERS, "tests", "pyproject.toml", "README.md", "LICENSE"}


@pytest.mark.process
def test_the_wheel_holds_the_three_floors_and_the_samples_whole_and_nothing_else(
    wheel: zipfile.ZipFile,
) -> None:
    tree = {
        path.relative_to(ROOT).as_posix()
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    held = {name for name in wheel.namelist() if not name.startswith(f"{NAME}.dist-info/")}
    assert held == tree
    assert held >= NEEDED


@pytest.mark.process
def test_the_wheel_says_what_it_is_and_cannot_be_uploaded_by_mistake(wheel: zipfile.ZipFile) -> None:
    said: Message = email.message_from_bytes(wheel.read(f"{NAME}.dist-info/METADATA"))
    assert said["License-Expression"] == "MIT"
    assert {"Private :: Do Not Upload", "Typing :: Typed"} <= {*said.get_all("Classifier", ())}
    assert {*said.get_all("Provides-Extra", ())} >= {"conductor", "attribution", "postgres"}
    assert said.get_all("Project-URL")


def test_a_plain_install_brings_nothing_that_only_training_a_planner_needs() -> None:
    plain = {re.split(r"[\[<>=]", one)[0] for one in PROJECT["dependencies"]}
    assert plain & {"trl", "datasets", "accelerate", "captum", "psycopg"} == set()


def test_the_changelog_is_one_screen_and_begins_with_this_version() -> None:
    lines = (ROOT / "ui" / "CHANGELOG.md").read_text("utf-8").splitlines()
    versions = [line.split()[1] for line in lines if line.startswith("## ")]
    assert versions[0] == PROJECT["version"]
    assert len(lines) <= 40
