"""What a notebook takes from a store, and what a coordinator says to it."""

from __future__ import annotations

import inspect
import re
from contextlib import closing
from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd
import pytest

import ui.notebook
from core.checkpoint import Checkpoint, save_checkpoint
from core.coordinator.coordinator import Coordinator
from core.episode import ROLE_ORDER, Episode, EpisodeFinished, Protocol
from core.errors import CheckpointError, ConfigError, StoreError
from core.play.drive import drive_many
from core.play.session import visible_text
from core.tasks.graders import grade_many
from core.tasks.sets import load_tasks
from storage.analysis.counterfactual import RecordedTurn, Rescored
from storage.filters.episode_filter import EpisodeFilter
from storage.store import Store
from tests.builders.sample_store import MODELS, scripted
from ui.answers import pages, plain
from ui.answers.asked import asked_of
from ui.answers.blocks import (
    Area,
    Areas,
    Arrow,
    Bars,
    Cell,
    Cloud,
    Code,
    Column,
    Curve,
    Dot,
    Drawn,
    Estimate,
    Estimates,
    Flow,
    Grid,
    Line,
    Point,
    Points,
    Series,
    Strip,
    Table,
    Trace,
    Tree,
    Trend,
)
from ui.answers.blocks import Path as Played
from ui.notebook import _table, answers, coordinator, decide, episodes, open_store, turns
from ui.runs.wiring import keep_checkpoint, loaded_encoder

HALF = Estimate(0.5, (0.1, 0.9), 1, 2)
EXAMPLES: list[Drawn] = [
    Table((Column("who", "Who"), Column("right", "Right", "estimate")), [("jack", HALF)]),
    Estimates([Line("jack", HALF)], "share"),
    Grid(["jack"], ["logic"], ("row", "column"), [[Cell(0.5)]]),
    Bars(["1"], [Series("right", [2]), Series("wrong", [0])], ("turn", "episodes")),
    Curve({"random": [Point(1, HALF)]}, ("turns", "share")),
    Trend([Trace("validation", [Point(1, HALF)])], ("generation", "share"), 1),
    Areas([1], [Area("jack", [1.0], "grey")], ("generation", "share"), 1, (0, 1)),
    Points([Point(1, HALF, "jack")], ("tokens", "share")),
    Cloud([Dot(1.0, 2.0, "jack", "a turn")], ("x", "y")),
    Flow([], [Arrow(None, (0, 0), "to jack", 2, 1.0)], [], [], MODELS),
    Tree([Played([], True, MODELS)]),
]


def test_episodes_are_a_row_each_with_types_that_know_what_is_missing(samples: Store) -> None:
    found = episodes(samples)
    assert len(found) == found["id"].nunique() == samples.health().episodes
    assert found.dtypes[["turns", "correct", "cost_usd"]].astype(str).tolist() == [
        "Int64",
        "boolean",
        "float64",
    ]
    assert isinstance(found["started"].dtype, pd.DatetimeTZDtype)


def test_a_filter_is_the_one_after_where(samples: Store) -> None:
    wrong = episodes(samples, "correct == False and turns > 3")
    every = episodes(samples)
    assert 0 < len(wrong) == len(every[(every["correct"] == False) & (every["turns"] > 3)])  # noqa: E712
    assert set(turns(samples, "correct == False and turns > 3")["episode_id"]) == set(wrong["id"])
    assert len(episodes(samples, "turns > 99")) == 0
    with pytest.raises(ConfigError, match="right"):
        episodes(samples, "right == True")


def test_a_turns_numbers_are_arrays(samples: Store) -> None:
    first = turns(samples).iloc[0]
    assert (first["turn"], len(first["model_probs"]), len(first["role_logits"])) == (1, len(MODELS), 3)
    assert first["model_probs"].sum() == pytest.approx(1)


def test_an_answers_tables_hold_the_numbers_of_the_commands_json(samples: Store) -> None:
    found = answers(samples, "verifier", "turns > 1", policy="random", plans="read")
    where = EpisodeFilter(policy="random", q="turns > 1")
    expected = plain.page(pages.answers("verifier", asked_of(samples, where, None, {"plans": "read"})))
    assert found.keys() == expected.keys()
    for key, one in found.items():
        assert (one.question, one.sentence) == (expected[key]["question"], expected[key]["answer"])
    estimates = found["false_accept"].tables["estimates"]
    assert estimates.to_dict("records") == expected["false_accept"]["estimates"]
    rows = expected["verifiers"]["rows"]
    assert found["verifiers"].tables["rows"]["false_accept.share"].tolist() == pytest.approx(
        [float("nan") if (share := row["false_accept"]["share"]) is None else share for row in rows],
        nan_ok=True,
    )
    with pytest.raises(ConfigError, match="verifier"):
        answers(samples, "weather")


def test_every_kind_of_block_but_a_command_is_a_table(samples: Store) -> None:
    [first, *_] = episodes(samples)["id"]
    recorded = RecordedTurn(samples.episodes.summary(first), 0, MODELS[0], ROLE_ORDER[0])
    place, chance = np.zeros((1, 1), np.int64), np.full((1, 1), 0.5)
    never = np.zeros((1, 1), bool)
    found = Rescored(MODELS, (1,), (recorded,), place, place, chance, chance, never, 0.0, None)
    tables = {type(block): _table(block) for block in [*EXAMPLES, Strip(found, 1)]}
    assert tables.keys() == {*get_args(Drawn)} - {Code}
    assert {kind.__name__: list(one.columns) for kind, one in tables.items()} == {
        "Table": ["who", "right.k", "right.n", "right.share", "right.ci95"],
        "Estimates": ["name", "k", "n", "share", "ci95"],
        "Grid": ["row", "column", "share"],
        "Bars": ["right", "wrong"],
        "Curve": ["line", "x", "k", "n", "share", "ci95"],
        "Trend": ["line", "x", "k", "n", "share", "ci95"],
        "Areas": ["generation", "jack"],
        "Strip": ["episode", "turn", "generation", "model", "role", "p", "unsure"],
        "Points": ["name", "x", "k", "n", "share", "ci95"],
        "Cloud": ["name", "x", "y"],
        "Flow": ["step", "n", "share"],
        "Tree": ["moves", "right"],
    }
    assert {len(one) for one in tables.values()} == {1}


@pytest.mark.parametrize("protocol", Protocol)
def test_a_coordinator_decides_on_a_text_as_it_does_in_an_episode(protocol: Protocol, tmp_path: Path) -> None:
    encoder = loaded_encoder("pocket")
    start = Checkpoint.begin(MODELS, encoder.identity, protocol=protocol)
    made = start.with_vector(start.vector + 0.02)
    task = load_tasks("pocket/all", "test", 1, 3)[0]
    born = Episode("e1", "r1", task, made.id, MODELS, protocol=protocol, seed=5, turn_budget=4)
    events = drive_many([born], Coordinator(made, encoder), scripted([task]), grade_many)
    (played,) = [one.episode for one in events if isinstance(one, EpisodeFinished)]
    with closing(open_store(tmp_path / "store.db")) as store:
        keep_checkpoint(store, made)
        learned = coordinator(store, made.id)
    assert learned.models == MODELS
    said = [(one.decision.role, one.decision.model, visible_text(one.reply)) for one in played.turns]
    for index, turn in enumerate(played.turns):
        found = decide(learned, task.question, said[:index])
        assert found.prompt_digest == turn.decision.prompt_digest
        assert found.model_logits == pytest.approx(turn.decision.model_logits, abs=1e-5)
        assert found.role_probs == pytest.approx(turn.decision.role_probs, abs=1e-5)
        assert found.role in ROLE_ORDER
    assert decide(learned, task.question, seed=3) == decide(learned, task.question, seed=3)


def test_what_is_not_there_is_said_in_a_sentence(tmp_path: Path) -> None:
    made = Checkpoint.begin(MODELS, loaded_encoder("pocket").identity)
    with closing(open_store(tmp_path / "store.db")) as store:
        with pytest.raises(CheckpointError, match="trinity evolve"):
            coordinator(store)
        with pytest.raises(StoreError, match="c1"):
            coordinator(store, "c1")
        save_checkpoint(made, tmp_path / "folder")
        of_folder = coordinator(store, str(tmp_path / "folder"), argmax=True)
    assert decide(of_folder, "What is 6 * 7?").sampled is False
    with pytest.raises(ConfigError, match="worker, thinker, verifier"):
        decide(of_folder, "What is 6 * 7?", [("judge", "jack", "42")])


def test_the_readme_shows_the_five_lines_of_the_modules_first_words() -> None:
    shown = re.findall(r"```python\n(.*?)```", Path("README.md").read_text("utf-8"), re.DOTALL)
    assert len(shown) == 1
    lines = [
        line.strip() for line in str(inspect.getdoc(ui.notebook)).splitlines() if line.startswith("    ")
    ]
    assert [line for line in shown[0].splitlines() if line] == lines
