"""The Separability page and command: figures of the run beside the paper's, and every point leads to its turn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest

from core.analysis import curvature
from core.analysis.curvature import block_separability
from core.analysis.separability import Target, accuracy, separability_index, within_families
from core.play.drive import drive_many
from core.play.policies import RandomPolicy
from storage.analysis.hidden_states import policies_with_states, read_choices, read_states
from storage.recorder import record
from storage.store import Store
from tests.builders.checkpoints import checkpoint as tiny_checkpoint
from tests.builders.play import MODELS, HashPolicy, births, events, grade, pool, tasks
from tests.builders.sample_store import PLAYED, checkpoint
from tests.builders.stores import new_store
from tests.ui.pages import assert_literal, command, opened, shown
from ui.answers import evolution, separability
from ui.answers.asked import Asked, asked_of_states
from ui.answers.blocks import Answer, Cloud, Dot, Grid, Table
from ui.presentation.theme import model_colour
from ui.web.analysis.figures import MOST_CLASSES, class_styles, cloud


@pytest.fixture(scope="module")
def _played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """30 tasks of three families by a checkpoint's policy, one task by another, and chance in a newer run."""
    store = new_store(tmp_path_factory.mktemp("states") / "trinity.db")
    made = tiny_checkpoint(MODELS, generation=7)
    for run in ("r1", "r2"):
        store.runs.create(run, "run", {})
    store.checkpoints.add(made.id, made.to_config(), made.to_bytes(), run_id="r1", generation=7)
    list(record(store, events(births("r1", tasks(30), made.id), HashPolicy(made.id))))
    list(record(store, events(births("r1", tasks(2), "few", first=50), HashPolicy("few"))))
    chance = births("r2", tasks(4), "random", first=80)
    list(record(store, drive_many(chance, RandomPolicy(MODELS), pool(), grade)))
    yield store
    store.close()


@pytest.fixture
def played(_played: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The same, and pages and commands open it."""
    monkeypatch.setenv("TRINITY_STORE", _played.url)
    return _played


def first_policy(store: Store) -> str:
    """The checkpoint of the played store."""
    return store.checkpoints.list()[0].id


def asked(store: Store, policy: str, run: str = PLAYED, **choices: str) -> Asked:
    """What the page asks of a policy in a run."""
    chosen = next(one for one in policies_with_states(store) if (one.run_id, one.policy) == (run, policy))
    return asked_of_states(store, chosen, policy, choices=choices)


def rows_of(answer: Answer, key: str) -> list[dict[str, object]]:
    """A table of an answer by the keys of its columns."""
    blocks = (*answer.blocks, *answer.measured)
    table = next(one for one in blocks if isinstance(one, Table) and one.key == key)
    return [dict(zip([one.key for one in table.columns], row, strict=True)) for row in table.rows]


@pytest.mark.integration
def test_it_opens_on_the_last_generation_of_the_newest_run_with_states(samples: Store) -> None:
    page = opened("separability")
    assert page.selectbox(key="stated_run").value == PLAYED
    assert page.selectbox(key="stated_policy").value == checkpoint(30).id
    assert page.selectbox(key="stated_policy").options == ["gen 30", "gen 8", "start"] + [
        "random model and role"
    ]  # here played by a head
    total = read_states(samples, PLAYED, checkpoint(30).id).total
    assert f"{total} turns of 22 tasks" in shown(page)
    assert not page.info
    assert_literal(page)


def test_the_numbers_are_those_measured_with_the_papers_beside_them(played: Store) -> None:
    policy = first_policy(played)
    points = read_states(played, "r1", policy).points
    found = separability.readings(asked(played, policy, "r1"))
    for row in rows_of(found, "results"):
        target: Target = "task" if row["target"] == "task family" else "model"
        measured = accuracy(points, target, "logits" if row["space"] == "logits" else "hidden")
        assert measured is not None
        assert (row["linear"], row["rbf"], row["n"]) == (measured.linear, measured.rbf, measured.n)
    grid = found.blocks[0]
    assert isinstance(grid, Grid)
    assert [of[4].detail for of in grid.cells] == ["100.0 %", "95.5 %", "77.6 ± 2.0 %", "78.3 %"]
    assert "All turns of a task stay in one fold" in str(found.measured)
    within = separability.within(asked(played, policy, "r1"))
    assert within is not None
    families = [family for family, one in within_families(points, "hidden").items() if one is not None]
    assert [row["family"] for row in rows_of(within, "families")] == families
    assert "LCB 84.4 %" in str(within.measured)


def test_rare_classes_are_named_and_a_single_class_is_one_sentence(samples: Store) -> None:
    # 22 tasks of nine families: no family has five.
    of_all = asked(samples, checkpoint(30).id, projection="lda")
    found = separability.readings(of_all)
    assert "Fewer than two classes of task family" in found.sentence
    assert {row["target"] for row in rows_of(found, "results")} == {"chosen model"}
    assert "left out, with fewer than 5 tasks" in str(found.measured)
    drawn = separability.clouds(of_all)
    assert "with shuffled labels" in drawn.sentence
    assert [isinstance(one, Cloud) for one in drawn.blocks] == [False, False, True, True]


@pytest.mark.integration
def test_turns_policy_and_projection_stand_in_the_address(samples: Store) -> None:
    page = opened("separability", policy=checkpoint(8).id, turns="first", projection="tsne", run="rgone")
    assert [one.value.split()[1] for one in page.info] == ["rgone"]
    assert page.selectbox(key="stated_policy").value == checkpoint(8).id
    assert "22 turns of 22 tasks" in shown(page)
    assert "Perplexity 7" in shown(page)
    page.selectbox(key="stated_policy").select(checkpoint(0).id).run()
    assert page.query_params["policy"] == checkpoint(0).id
    page.button_group(key="choose_projection").set_value("pca").run()
    assert "projection" not in page.query_params
    assert not page.exception


@pytest.mark.integration
def test_a_run_of_chance_is_not_offered_and_unknown_words_are_the_defaults(played: Store) -> None:
    page = opened("separability", run="r2", policy="random", turns="third", projection="<b>")
    assert (page.selectbox(key="stated_run").value, len(page.selectbox(key="stated_run").options)) == (
        "r1",
        1,
    )
    assert page.selectbox(key="stated_policy").options[0] == "gen 7"
    assert [one.value.split()[1] for one in page.info] == ["r2", "random"]
    assert "directions in which the points vary most" in shown(page)


@pytest.mark.integration
def test_too_few_points_are_one_sentence(played: Store) -> None:
    page = opened("separability", policy="few", turns="first")
    assert "few in run r1 has 2 turns with a hidden state" in shown(page)
    assert not page.subheader


@pytest.mark.integration
def test_chance_alone_leaves_no_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = new_store(tmp_path / "trinity.db")
    store.runs.create("r2", "run", {})
    list(record(store, drive_many(births("r2", tasks(4), "random"), RandomPolicy(MODELS), pool(), grade)))
    store.close()
    monkeypatch.setenv("TRINITY_STORE", store.url)
    page = opened("separability")
    assert "No run here has hidden states" in shown(page)
    assert not page.selectbox


def test_made_up_states_stand_beside_the_index_of_the_run(played: Store, made_up: None) -> None:
    policy = first_policy(played)
    found = separability.made_up(asked(played, policy, "r1"))
    index = separability_index(read_states(played, "r1", policy).points, "model", "hidden")
    assert found.sentence.startswith("A separability index of 0.500 is enough")
    assert f"chosen model in hidden states {index:.3f}" in found.sentence


def test_the_curvature_stands_beside_shuffled_rewards_and_says_when_it_is_chance(
    played: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = first_policy(played)
    choices = read_choices(played, "r1", policy)
    assert choices is not None
    assert block_separability(choices) is None  # 30 episodes
    assert "It takes at least 40 whole episodes" in evolution.curvature(asked(played, policy, "r1")).sentence
    monkeypatch.setattr(curvature, "FEWEST_EPISODES", 20)
    found = block_separability(choices)
    assert found is not None
    answer = evolution.curvature(asked(played, policy, "r1"))
    assert ("too few to tell" in answer.sentence) == (not found.found)
    assert rows_of(answer, "coupling")[-1]["by_chance"] == found.by_chance.row


def test_choices_are_read_whole_and_as_they_were_drawn(samples: Store) -> None:
    found = read_choices(samples, PLAYED, checkpoint(30).id)
    assert found is not None
    episodes = [one for one in samples.episodes.of_run(PLAYED) if one.policy == checkpoint(30).id]
    assert len(found.rewards) == len(episodes)
    assert found.rewards.sum() == sum(bool(one.correct) for one in episodes)
    assert np.bincount(found.episodes).sum() == sum(one.turns for one in episodes)
    assert found.model_probs.sum(axis=1) == pytest.approx(1)
    assert found.role_probs.sum(axis=1) == pytest.approx(1)


def test_every_point_and_row_leads_to_its_turn(samples: Store) -> None:
    of_all = asked(samples, checkpoint(30).id)
    found = read_states(samples, PLAYED, checkpoint(30).id)
    [table] = separability.turns(of_all).blocks
    assert isinstance(table, Table)
    assert [row[0].params for row in table.rows] == [
        {"ep": one.episode_id, "t": str(one.index + 1)} for one in found.turns
    ]
    drawn = [one for one in separability.clouds(of_all).blocks if isinstance(one, Cloud)]
    assert [one.name for one in drawn[-1].dots] == list(found.points.models)
    behind = separability.behind(of_all, drawn[-1].dots[5].mark.into, False)
    assert behind is not None
    assert behind.way.to.params == table.rows[5][0].params
    assert separability.behind(of_all, "hidden.model:gone:1", False) is None


def test_clouds_hold_every_point_once_under_its_class() -> None:
    labels = ["b", "a", "b", "<i>c</i>", "a", "b"]
    figure = cloud(Cloud([Dot(2.0 * i, 0.0, name, f"<{i}>") for i, name in enumerate(labels)], ("x", "y")))
    assert go.Figure(figure.to_dict())  # valid
    assert {trace.name: tuple(trace.x) for trace in figure.data} == {
        "&lt;i&gt;c&lt;/i&gt; (1)": (6.0,),
        "a (2)": (2.0, 8.0),
        "b (3)": (0.0, 4.0, 10.0),
    }
    assert [words for trace in figure.data if trace.name == "a (2)" for _, words in trace.customdata] == [
        "&lt;1&gt;",
        "&lt;4&gt;",
    ]


def test_models_keep_their_slot_colour_and_small_classes_share_one() -> None:
    drawn = class_styles(["pip", "jack", "pip"], ("atlas", "jack", "pip"))
    assert drawn["pip"].colour == model_colour("pip", ("atlas", "jack", "pip"))
    assert drawn["pip"] == class_styles(["atlas", "pip"], ("atlas", "jack", "pip"))["pip"]
    many = [f"f{i:02d}" for i in range(30) for _ in range(30 - i)]
    shared = class_styles(many)
    assert len({look.name for look in shared.values()}) == MOST_CLASSES + 1
    assert shared["f29"].name == "all others"
    assert len({(look.colour, look.symbol) for look in shared.values()}) == MOST_CLASSES + 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rgone"], "No hidden states are kept of a run 'rgone'; there are some of: r1."),
        (["r2"], "No hidden states are kept of a run 'r2'"),
        (["--policy", "random"], "No hidden states are kept of a policy 'random'"),
        (["--policy", "few", "--turns", "first"], "few in run r1 has 2 turns with a hidden state"),
        (["--encoder", "pocket", "--turns", "first"], "--encoder cannot be combined with --turns"),
        (["--tasks", "nowhere.jsonl"], "There is no task file nowhere.jsonl"),
        (["--tasks", "pocket", "--n", "4"], "pocket has 4 questions with a field 'family': fewer than 10"),
        (["--by", "colour"], "No task of pocket has a field 'colour': choose one of family, grader, split."),
        (["--encoder", "/nowhere/at all", "--n", "20"], "There is no encoder '/nowhere/at all'"),
    ],
)
def test_a_mistake_is_one_sentence(
    played: Store, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert command(["separability", *arguments]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert words in said.err
    assert said.err.count("\n") == 1


@pytest.fixture(scope="module")
def question_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty questions of two kinds, and three of a rare one."""
    path = tmp_path_factory.mktemp("questions") / "own.jsonl"
    kinds = [("sum", f"What is {i} + {i}?") for i in range(20)]
    kinds += [("town", f"Which town lies {i} miles north of <b>Ulm</b>, my friend?") for i in range(20)]
    kinds += [("rare", f"Why {i}?") for i in range(3)]
    lines = [{"question": text, "answer": "1", "grader": "exact", "kind": kind} for kind, text in kinds]
    path.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    return path


@pytest.mark.integration
def test_questions_are_read_without_a_run_alike_on_the_page_and_by_the_command(
    question_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = new_store(tmp_path / "trinity.db")
    store.close()
    monkeypatch.setenv("TRINITY_STORE", store.url)
    named = ["separability", "--encoder", "pocket", "--tasks", str(question_file), "--by", "kind"]
    assert command([*named, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["questions"] == {"own.jsonl, read by pocket": 43}
    assert [one["n"] for one in found["readings"]["readers"]] == [40] * 4
    page = opened("separability", of="questions", tasks=str(question_file), by="kind")
    said = shown(page).replace("\\", "")  # as it is meant, without the marks that keep it from being markdown
    assert found["readings"]["answer"].splitlines()[0] in said
    assert "Kind: 2 classes in 40 questions; rare left out, with fewer than 5 questions." in said
    assert_literal(page)
    saved = tmp_path / "saved.html"
    assert command([*named, "--part", "turns", "--html", str(saved)]) == 0
    assert "own.jsonl, read by pocket</bdi>: 43 questions." in saved.read_text("utf-8")
    assert "Which town lies 3 miles north of &lt;b&gt;Ulm" in saved.read_text("utf-8")
    page.text_input(key="separability_by").set_value("colour").run()
    assert [one.value for one in page.error][0].startswith("No task of")
    page.text_input(key="separability_by").set_value("kind").run()
    assert not page.error
    page.button_group(key="separability_of").set_value("run").run()
    assert "No run here has hidden states" in shown(page)


def test_an_empty_store_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["separability", "--store", str(tmp_path / "new.db")]) == 1
    assert "No run has hidden states" in capsys.readouterr().err
