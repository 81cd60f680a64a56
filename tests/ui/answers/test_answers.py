"""Every question's answer: its page, its command and its saved page give the same numbers, and each has a sentence."""

from __future__ import annotations

import html
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from core.errors import ConfigError
from core.outcomes.table import Card, load_table
from storage.analysis.second_opinions import EpisodeScope
from storage.analysis.standings import PolicySide
from storage.filters.episode_filter import EpisodeFilter
from storage.store import Store
from tests.builders.sample_store import EVOLVED, PLAYED, checkpoint
from tests.core.outcomes.tables import small_table
from tests.ui.pages import assert_literal, command, opened
from tests.ui.web.evolutions import asked_of_learned
from ui.answers import plain, policy
from ui.answers.asked import Asked, asked_of, asked_of_policies
from ui.answers.blocks import Answer
from ui.answers.outcomes.subject import asked_of_table
from ui.answers.pages import ANALYSES, analysis, answers
from ui.answers.requests.subject import asked_of_requests
from ui.answers.results import answers_of, came_with_the_program
from ui.cli.console import print_json
from ui.export.page import analysis_page
from ui.presentation.theme import percent, signed_points
from ui.presentation.words import share_words
from ui.runs.paper.tables import TABLES
from ui.web.analysis import draw as drawing
from ui.web.analysis import page

A, B, C = (checkpoint(generation).id for generation in (0, 30, 8))
#: What is asked, as the command line and as an address have it.
SELECTIONS: tuple[tuple[list[str], dict[str, str]], ...] = (
    (["--policy", B], {"policy": B}),
    (["--policy", A, "--against", B], {"a": A, "b": B}),
)
#: The same of those that ask in their own way.
OWN_SELECTIONS = {
    "checkpoints": (
        ([A, B, "--run", PLAYED], {"c": f"{A},{B}"}),
        ([A, "random", B, "--run", PLAYED], {"c": f"{A},random,{B}", "b": "random"}),
    ),
    "policy": (
        ([C, B, "--run", PLAYED, "--by-draw"], {"c": f"{C},{B}", "run": PLAYED, "by": "draw"}),
        ([B, A, C, "--by-draw", "--choose", f"with={C}"], {"c": f"{B},{A},{C}", "by": "draw", "with": C}),
    ),
    "evolution": (([EVOLVED, "--update", "8"], {"run": EVOLVED, "gen": "8"}),),
    "outcomes": (
        (["small", "--fold", "2"], {"table": "small", "fold": "2"}),
        (
            ["small", "--split", "validation", "--choose", "first=bob", "--choose", "case=nobody"],
            {"table": "small", "on": "validation", "first": "bob", "case": "nobody"},
        ),
    ),
    "separability": (
        ([PLAYED, "--policy", B, "--turns", "first"], {"run": PLAYED, "policy": B, "turns": "first"}),
    ),
}
#: What `trinity outcomes show --json` has beside answers, and beside the table's card.
BESIDE = (
    "table",
    "best_single",
    "best_single_model",
    "best_per_domain",
    "majority",
    "weighted_vote",
    "oracle",
) + (
    "coverage",
    "measured_on",
    "on_all_tasks",
)
#: What names the part in an address, where that is not `part`.
PART_NAMES = {"evolution": "panel"}
#: Of requests to the endpoint `test_requests` asks: the samples have none.
ASKED = [
    (name, *one) for name in ANALYSES if name != "requests" for one in OWN_SELECTIONS.get(name, SELECTIONS)
]


@pytest.fixture(scope="session")
def _tabled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tabled")
    small_table(folder / "trinity-inspector", costs={"ann": 0.02, "bob": 0.01, "cyd": 0.01})
    return folder


@pytest.fixture(autouse=True)
def tabled(_tabled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data folder with an outcome table."""
    monkeypatch.setenv("XDG_DATA_HOME", str(_tabled))


@pytest.mark.integration
@pytest.mark.parametrize(("name", "selection", "address"), ASKED)
def test_page_command_and_saved_page_give_the_same_numbers(
    samples: Store,
    made_up: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    selection: list[str],
    address: dict[str, str],
) -> None:
    parts = [word for part in analysis(name).parts for word in ("--part", part.key) if part.asked_for]
    parts = parts and [word for part in analysis(name).parts for word in ("--part", part.key)]
    options = [*(ANALYSES[name].own_command or name).split(), *selection, *parts]
    assert command([*options, "--json"]) == 0
    expected = json.loads(capsys.readouterr().out)
    given: dict[str, Answer] = {}

    def keep(one: Answer, *rest: Any, **look: Any) -> None:
        given[one.key] = one
        drawing.draw(one, *rest, **look)

    monkeypatch.setattr(page, "draw", keep)
    for part in analysis(name).parts:
        assert_literal(opened(name, **{PART_NAMES.get(name, "part"): part.key}, **address))
    print_json({key: plain.answer(one) for key, one in given.items()})
    shown = json.loads(capsys.readouterr().out)
    beside = "episodes" if name != "outcomes" else (*BESIDE, *(one.name for one in fields(Card)))
    assert shown == {key: value for key, value in expected.items() if key not in beside}
    assert command([*options, "--html", str(tmp_path / "saved.html")]) == 0
    saved = html.unescape((tmp_path / "saved.html").read_text("utf-8"))
    assert numbers(expected), "there is something to compare"
    assert [words for words in numbers(expected) if not any(one in saved for one in words)] == []
    assert [one["answer"] for key, one in shown.items() if one["answer"].splitlines()[0] not in saved] == []


def numbers(value: Any) -> list[tuple[str, ...]]:
    """The words of every share in what JSON holds, as a share and as a difference."""
    return list(_numbers(value))


def _numbers(value: Any) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict):
        share, ends = value.get("share"), value.get("ci95")
        if isinstance(share, float):
            if ends is not None and "k" in value:
                yield (share_words(share, ends),)
            else:
                yield percent(share), signed_points(share)
        if isinstance(value.get("difference"), float):
            yield (signed_points(value["difference"]),)
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _numbers(one)


def _asked(store: Store, name: str) -> Asked:
    if name == "checkpoints":
        return asked_of_policies(store, [PolicySide(A), PolicySide(B), PolicySide("random")], str)
    if name == "policy":
        return policy.asked_of_checkpoints(store, EpisodeScope(), {A: "first", B: "last"})
    if name == "outcomes":
        return asked_of_table(store, load_table("small"))
    if name == "requests":
        return asked_of_requests(store, EpisodeFilter(), now=store.now())
    if name == "evolution":
        return asked_of_learned(store, EVOLVED)
    if name == "separability":
        return asked_of(store, EpisodeFilter(run=PLAYED, policy=B))
    return asked_of(store, EpisodeFilter())


@pytest.mark.parametrize("name", ANALYSES)
def test_every_answer_has_a_sentence_and_a_name_of_its_own(samples: Store, made_up: None, name: str) -> None:
    found = [one for of in answers(name, _asked(samples, name)).values() for one in of]
    assert [one.key for one in found if not one.sentence.strip() or not one.question.endswith("?")] == []
    assert [key for key, n in Counter(one.key for one in found).items() if n > 1] == []
    for one in found:
        blocks = [block.key for block in (*one.blocks, *one.measured) if not isinstance(block, str)]
        assert len(set(blocks)) == len(blocks), one.key


def test_a_choice_or_part_that_is_not_there_is_refused_in_a_sentence(
    samples: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(
        ConfigError, match="There is no part 'x': choose one of verdicts, cost, budget, roles"
    ):
        answers("verifier", asked_of(samples, EpisodeFilter()), ["x"])
    for written, said in (
        ("plans=maybe", "plans cannot be 'maybe': choose one of read."),
        ("verdict=all", "'verdict' is no choice here: there is plans."),
        ("plans", "--choose 'plans' lacks its value: write NAME=VALUE."),
    ):
        assert command(["verifier", "--choose", written]) == 1
        assert said in capsys.readouterr().err
    with pytest.raises(ConfigError, match="No finished episode matches"):
        answers("verifier", asked_of(samples, EpisodeFilter(policy="nobody")))
    with pytest.raises(ConfigError, match="name the first by --policy"):
        asked_of(samples, EpisodeFilter(), A)


@pytest.mark.integration
@pytest.mark.parametrize("table", ["4", "5", "9", "selection"])
def test_a_table_of_results_is_the_same_on_its_page_in_json_and_saved(
    samples: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], table: str
) -> None:
    expected = answers_of(came_with_the_program(TABLES[table]))
    given: list[Answer] = []
    monkeypatch.setattr(drawing, "draw", lambda one, *_, **__: given.append(one))
    opened("results", table=table)
    as_json = [[plain.answer(one) for one in of] for of in (expected, given)]
    assert as_json[0] == as_json[1]
    saved = html.unescape(analysis_page("Results", {}, {table: expected}))
    print_json(as_json[0])
    found = numbers(json.loads(capsys.readouterr().out))
    assert bool(found) == (table in ("4", "selection"))
    assert [words for words in found if not any(one in saved for one in words)] == []
    assert all(one.question.endswith("?") and one.sentence.endswith(".") for one in expected)
