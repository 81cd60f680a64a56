"""A second look at decisions: logits recomputed, choices that rounding leaves open, masks, neighbours, forks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, get_args
from urllib.parse import parse_qs

import numpy as np
import pytest
from sqlalchemy import insert, select, update
from streamlit.testing.v1 import AppTest

from core.analysis.agreement import Situations, agreement, picks
from core.analysis.head_lens import (
    alternative_decision,
    compare_logits,
    decision_without,
    lens_of,
    likeliest_choices,
    recorded_draws,
    rounding,
    sampled_choices,
)
from core.changes import Fork
from core.checkpoint import Checkpoint, EncoderIdentity
from core.draws import uniform
from core.episode import ROLE_ORDER, Decide, Decision, Episode, Role, Transcript, TranscriptEntry
from core.errors import CheckpointError
from core.heads import HeadKind, softmax, split
from core.play.session import request_at
from core.tokens.files import prompt_tokens
from storage.analysis.hidden_states import PastDecisions, StateTurn
from storage.analysis.policy_diff import read_diff
from storage.analysis.second_opinions import EpisodeScope, Opinion, add_opinions
from storage.analysis.standings import PolicySide, figures
from storage.filters.episode_filter import EpisodeFilter
from storage.reads.episode_steps import find_in_texts, read_family
from storage.recorder import record
from storage.rows.mapping import floats
from storage.rows.schema import episode as stored
from storage.rows.schema import state, text, turn
from storage.store import Store
from tests.builders.checkpoints import checkpoint
from tests.builders.recorded import MODELS, episode, events_of
from tests.builders.sample_store import EVOLVED
from tests.builders.stores import new_store
from tests.ui.pages import asked_of_stores, opened, press, shown
from ui.presentation.odds import apart_words
from ui.web.pickers.checkpoints import most_telling, playable, policy_label
from ui.web.turns.bar import FORKS, REPEATS
from ui.web.turns.decision import DecisionContext, tokenize_again, tolerance_words
from ui.web.turns.panels import has_no_preference, nearest
from ui.web.turns.recording import open_recording
from ui.web.views.pair import choice_kls

pytestmark = pytest.mark.integration
WIDTH = 64


def made(kind: HeadKind = "linear", seed: int = 0, **fields: object) -> Checkpoint:
    """A checkpoint of random numbers over the recorded models."""
    return checkpoint(MODELS, WIDTH, kind, seed=seed, spread=0.3, **fields)


def decided(checkpoint: Checkpoint, state: np.ndarray, index: int, key: str) -> Decision:
    """What this checkpoint chooses on a float32 state, as the coordinator records it."""
    z = checkpoint.head.logits(state[None], checkpoint.head_vector, [index])[0]
    model_z, role_z = split(z, len(MODELS))
    probs = softmax(model_z), softmax(role_z)
    u = uniform(key, 2)
    picks = [int(np.searchsorted(np.cumsum(p), x, side="right")) for p, x in zip(probs, u, strict=True)]
    return Decision(
        MODELS[picks[0]],
        ROLE_ORDER[picks[1]],
        tuple(model_z.tolist()),
        tuple(role_z.tolist()),
        tuple(probs[0].tolist()),
        tuple(probs[1].tolist()),
        MODELS[int(model_z.argmax())],
        ROLE_ORDER[int(role_z.argmax())],
        hidden_state=state.astype("<f2").tobytes(),
        prompt_digest="ab" * 16,
        prompt_tokens=40 + index,
    )


@pytest.mark.parametrize("kind", get_args(HeadKind))
def test_recorded_logits_are_within_the_tolerance_of_the_head_that_made_them_and_of_no_other(
    kind: HeadKind,
) -> None:
    checkpoint = made(kind)
    states = np.random.default_rng(1).normal(size=(2, WIDTH)).astype(np.float32) * 3
    recorded = decided(checkpoint, states[1], 1, "k")
    lens = lens_of(checkpoint, recorded.hidden_state, 1)
    assert lens is not None
    assert compare_logits(lens, recorded).matches
    wrong = lens_of(made(kind, seed=9), recorded.hidden_state, 1)
    assert wrong is not None
    assert not compare_logits(wrong, recorded).matches
    assert lens_of(checkpoint, b"", 1) is None
    assert lens_of(checkpoint, np.full(WIDTH, np.inf).astype("<f2").tobytes(), 1) is None


def test_nothing_that_rounding_leaves_open_is_claimed() -> None:
    checkpoint = made()
    vector = checkpoint.head_vector.astype(np.float64)
    source, unsure, every = np.random.default_rng(2), 0, np.ones((1, len(MODELS)), bool)
    for _ in range(300):
        exact = source.normal(size=WIDTH)
        kept = exact.astype("<f2").astype(np.float64)
        z, near = (checkpoint.head.logits(one[None], vector, [0])[0][: len(MODELS)] for one in (exact, kept))
        error = rounding(checkpoint.head, kept[None], vector)[0][: len(MODELS)]
        near[1] = near[0] + (z[1] - z[0]) * 1e-3  # two that are nearly level
        z[1] = z[0] + (z[1] - z[0]) * 1e-3
        u = source.uniform(size=1)
        drawn, truly = (
            sampled_choices(of[None], e[None], u, every).first for of, e in ((near, error), (z, error * 0))
        )
        likeliest = likeliest_choices(near[None], error[None], every).first
        for told, truth in ((likeliest, int(z.argmax())), (drawn, truly.place)):
            assert told.unsure or told.place == truth
            unsure += told.unsure
    assert 10 < unsure < 500


def test_leaving_a_model_out_draws_by_the_same_numbers() -> None:
    played = episode("e-mask")
    state = np.random.default_rng(3).normal(size=WIDTH).astype(np.float32)
    decision = decided(made(), state, 2, f"{played.seed}/{played.task.id}/2")
    us = recorded_draws(decision, MODELS, played, 2)
    assert us is not None
    assert recorded_draws(decision, MODELS, replace(played, seed=99_991), 2) != us
    same = decision_without(decision, MODELS, played, 2, frozenset())
    assert same is not None
    assert (MODELS[same.pair[0]], same.pair[1]) == (decision.model, decision.role)
    found = decision_without(decision, MODELS, played, 2, frozenset({decision.model, decision.role.value}))
    assert found is not None
    assert found.decision.model_probs[MODELS.index(decision.model)] == 0
    assert sum(found.decision.model_probs) == pytest.approx(1)
    assert MODELS[found.pair[0]] != decision.model
    assert found.pair[1] is not decision.role
    assert not found.unsure
    assert decision_without(decision, MODELS, played, 2, frozenset(MODELS)) is None


def test_the_nearest_are_those_of_other_episodes_by_cosine() -> None:
    hidden = np.array([[1, 0], [2, 0.1], [0, 1], [1, 0]], np.float32)
    names = ("own", "a", "b", "c")
    turns = tuple(
        StateTurn(name, 0, "f", "q", "alpha", Role.WORKER, name == "a", f"digest-{name}") for name in names
    )
    found = nearest(PastDecisions(turns, hidden, 4), np.array([1.0, 0.0]), "own", "digest-c")
    assert [one.turn.episode_id for one in found.near] == ["c", "a", "b"]
    assert [one.same_text for one in found.near] == [True, False, False]
    [(_, chosen)] = found.choices
    assert sorted(bool(one.correct) for one in chosen) == [False, False, True]


@pytest.fixture
def headed(_headed: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store whose episodes were decided by stored heads; one was forked, one has 2,000 turns."""
    monkeypatch.setenv("TRINITY_STORE", _headed.url)
    return _headed


@pytest.fixture(scope="module")
def _headed(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = new_store(tmp_path_factory.mktemp("headed") / "trinity.db")
    store.runs.create("rtest", "run", {})
    ours, next_one = made(generation=1), made(seed=5, generation=2)
    svf = made(seed=7, generation=3).with_vector(
        np.concatenate([np.zeros(4), made(seed=7).vector]), svf_layout=(("w", 4),)
    )
    for one in (ours, next_one, svf):
        store.checkpoints.add(
            one.id, one.to_config(), one.to_bytes(), run_id="rtest", generation=one.generation
        )
    for name, seed, turns in (("e-head", 1, 5), ("e-more", 2, 5), ("e-long", 3, 5)):
        list(record(store, events_of(_decided(ours, name, seed, turns))))
    _lengthen(store, "e-long", 2000)
    fork = _decided(ours, "e-fork", 1, 4)
    list(record(store, events_of(replace(fork, fork=Fork("e-head", 2)))))
    again = replace(_decided(ours, "e-fork-2", 1, 3), fork=Fork("e-fork", 1))
    list(record(store, events_of(again)))
    logits = [float(i == 1) * 5 for i in range(len(MODELS))], [0.0, 0.0, 5.0]
    add_opinions(
        store, "rtest", [Opinion(svf.id, "e-head", 2, floats(logits[0]), floats(logits[1]), "ab" * 16, "cpu")]
    )
    return store


def _lengthen(store: Store, name: str, turns: int) -> None:
    """Repeat an episode's last turn until it has so many: played one by one they would take a minute."""
    with store.engine.begin() as connection:
        for table in (turn, text, state):
            here = select(table).where(table.c.episode_id == name, table.c.idx == 4)
            for row in connection.execute(here).mappings().all():
                kept = {key: value for key, value in row.items() if key != "id"}
                connection.execute(insert(table), [kept | {"idx": i} for i in range(5, turns)])
        connection.execute(update(stored).where(stored.c.id == name).values(turns=turns))


def _decided(checkpoint: Checkpoint, name: str, seed: int, turns: int) -> Episode:
    played = episode(name, seed=seed, turns=turns, policy=checkpoint.id)
    source = np.random.default_rng(seed)
    told = []
    for one in played.turns:
        read = source.normal(size=WIDTH).astype(np.float32)
        chosen = decided(checkpoint, read, one.index, f"{played.seed}/{played.task.id}/{one.index}")
        told.append(replace(one, decision=chosen))
    return replace(played, turns=tuple(told))


def test_the_panels_of_a_decision(headed: Store) -> None:
    page = opened("replay", ep="e-head", t="3")
    assert "Recomputed: matches" in [block.proto.popover.label for block in page.get("popover")]
    press(page, "panel_why")
    assert page.query_params["panel"] == "why"
    missing = shown(page).replace("\\", "")
    assert "The encoder 'tiny' of checkpoint" in missing
    assert "is a folder that is not known on this machine" in missing
    press(page, "panel_other")  # the newest has SVF, and has read this turn again
    assert "would have drawn" in shown(page)
    press(page, "go_next")
    assert "SVF changes the encoder itself" in shown(page)
    page.selectbox(key="other_checkpoint").select_index(1).run()
    kept = {one.id: one.generation for one in headed.checkpoints.list()}
    assert kept[page.query_params["other"]] == 2
    assert "would have drawn" in shown(page)
    press(page, "panel_without")
    chosen = open_recording(headed, "e-head").decision(3)
    assert chosen is not None
    left = [str(i + 1) for i, name in enumerate(MODELS) if name != chosen.model]
    page.pills(key="mask_models").set_value(left).run()
    assert page.query_params["without"] == str(MODELS.index(chosen.model) + 1)
    assert "choices would have changed" in shown(page)
    press(page, "panel_near")
    assert "nearest decisions choose" in shown(page)
    assert not page.exception


def test_links_keep_an_address_whatever_names_it_holds(headed: Store) -> None:
    page = opened("replay", ep="e-head", find="multiply", label="x", icon="y", help="z")
    assert "1 text in 1 turn says multiply" in shown(page)
    page.switch_page("views/home.py").run()
    assert not page.exception
    assert [link for link in page.get("page_link") if "Go on with the replay" in link.proto.label]


def test_compare_tells_forks_from_repeats_and_says_where_each_fork_begins(headed: Store) -> None:
    assert {one.id for one in headed.episodes.same_task("e-head")} >= {"e-more", "e-fork", "e-fork-2"}
    found = compared_with("e-head")
    assert found[REPEATS].keys() == {"e-more", "e-long"}
    assert not [words for words in found[REPEATS].values() if "from turn" in words]
    assert found[FORKS].keys() == {"e-fork", "e-fork-2"}
    assert "from turn 3" in found[FORKS]["e-fork"]
    assert "from turn 2" in found[FORKS]["e-fork-2"]
    found = compared_with("e-fork")
    assert "the first recording" in found[FORKS]["e-head"]
    assert found[REPEATS].keys() == {"e-more", "e-long"}


def compared_with(episode: str) -> dict[str, dict[str, str]]:
    """What a replay's Compare offers: heading -> the other episode -> its words."""
    page = opened("replay", ep=episode)
    page.session_state["compare_with"] = True  # as the browser opens it
    found: dict[str, dict[str, str]] = {}
    heading = ""
    for one in _drawn(page.run()):
        if getattr(one, "value", None) in (REPEATS, FORKS):
            heading = one.value
            found[heading] = {}
        elif one.type == "page_link" and heading and "b=" in one.proto.query_string:
            found[heading][parse_qs(one.proto.query_string)["b"][0]] = one.proto.label
    return found


def _drawn(page: AppTest) -> Iterator[Any]:
    """The elements of a page in their order."""
    waiting: list[Any] = [page._tree]
    while waiting:
        one = waiting.pop()
        if hasattr(one, "children"):
            waiting += reversed(one.children.values())
        else:
            yield one


def test_judging_before_looking_the_basket_and_the_forks(headed: Store) -> None:
    page = opened("replay", ep="e-head", t="3", find="multiply")
    said = shown(page)
    assert "1 text in 1 turn says multiply" in said
    assert "**turn 3** unchanged, played once" in said
    assert "**turn 2** unchanged, played once" in said
    family = read_family(headed, "e-fork-2")
    assert [(one.summary.id, one.depth) for one in family] == [("e-head", 0), ("e-fork", 1), ("e-fork-2", 2)]
    assert find_in_texts(headed, "e-head", "MULTIPLY 12")[0].index == 0
    press(page, "to_basket")
    press(page, "next_episode") if not page.button(key="next_episode").disabled else press(
        page, "previous_episode"
    )
    press(page, "to_basket")
    assert "Compare the 2 in the basket" in shown(page)
    press(page, "zen")
    assert page.query_params["zen"] == "1"
    hidden = shown(page)
    for word in ("expected", "Softmax", "Grid: joint probability", "wrong", "right", "How sure"):
        assert word not in hidden
    press(page, "zen")
    assert "Grid: joint probability" in shown(page)


def test_a_turn_of_two_thousand_is_a_window_and_takes_few_queries(headed: Store) -> None:
    page = opened("replay", ep="e-long", t="1000")
    assert "Turns 851 to 1,050 of 2,000." in shown(page)
    with asked_of_stores() as queries:
        page.number_input(key="go_to").set_value(1500).run()
    assert page.query_params["t"] == "1500"
    assert len(queries) <= 7, queries  # none of them for each turn


@pytest.mark.usefixtures("samples")
def test_a_slider_that_has_not_heard_of_the_newest_step_neither_stops_the_playing_nor_takes_it_back() -> None:
    page = opened("evolution", run=EVOLVED, gen="0")
    press(page, "go_play")
    page.session_state["replay_due"] = (0, time.monotonic() - 1)
    page.run()
    at = page.query_params["gen"]
    assert at != "0"
    page.select_slider(key="generation").set_value(0).run()  # the browser's last word, sent too late
    assert int(page.query_params["gen"]) >= int(at), "it may play on, and does not go back"
    assert page.session_state["replay_playing"]
    press(page, "go_play")
    assert not page.session_state["replay_playing"]
    last = page.select_slider(key="generation").options[-1]
    page.select_slider(key="generation").set_value(int(last)).run()  # where playing has not been
    assert page.query_params["gen"] == last


def test_the_very_tokens_that_were_read_are_written_again_without_torch() -> None:
    asked = Decide(Transcript("What is 2 + 3?", (TranscriptEntry(Role.WORKER, "jack", "answer 5"),)), 1, "k")
    checkpoint = Checkpoint.begin(("jack",), EncoderIdentity("pocket", 96))
    exact = "<|im_start|>user\nWhat is 2 + 3?<|im_end|>\n<|im_start|>worker jack\nanswer 5<|im_end|>\n"
    prompt = prompt_tokens("pocket").prompt(asked, "segments")
    read = tokenize_again(checkpoint, asked, Decision("jack", Role.WORKER, prompt_digest=prompt.digest))
    assert read.text == f"{exact}<|im_start|>assistant\n<think>\n\n⟦</think>⟧\n\n"
    assert read.matches
    assert (read.position, read.cut_at, read.uncut) == (read.tokens - 2, None, read.tokens)
    long = Decide(Transcript("word " * 40_000), 0, "k")
    cut = tokenize_again(checkpoint, long, Decision("jack", Role.WORKER, prompt_digest="other"))
    assert not cut.matches
    assert cut.cut_at is not None
    assert cut.tokens < cut.uncut
    played = episode("e-said")
    assert request_at(played, 2).transcript.entries[1].text == played.turns[1].reply.text
    with pytest.raises(CheckpointError, match="not on this machine"):
        prompt_tokens("nobody/nothing")


def test_beside_a_checkpoint_stands_the_one_before_it_and_beside_the_oldest_the_best(samples: Store) -> None:
    played = samples.checkpoints.policies_with_episodes()
    kept = sorted(samples.checkpoints.list(), key=lambda one: one.generation or 0)
    oldest, before, newest = [one.id for one in kept if one.id in played]
    names = playable(samples, kept[0].config["models"])
    assert most_telling(samples, [one for one in names if one != newest], newest) == before
    right = {one: figures(samples, [PolicySide(one)])[0].summary.correct for one in (before, newest)}
    assert right[before] != right[newest]
    for own in (oldest, "random"):  # the oldest of a run, and what is no checkpoint
        assert most_telling(samples, [one for one in names if one != own], own) == max(right, key=right.get)  # type: ignore[arg-type]
    assert most_telling(samples, ["random"], newest) == "random"
    episode = samples.episodes.page(EpisodeFilter(policy=newest)).items[0].id
    page = opened("replay", ep=episode, panel="other")
    assert page.selectbox(key="other_checkpoint").value == before
    said = shown(page)
    assert "likeliest choice" in said
    assert "D_KL" not in said  # the term is in the tooltip
    assert any("D_KL(recorded ‖ other)" in one.help for one in page.markdown if one.help)


def test_checkpoints_that_never_played_come_last_and_say_so(headed: Store) -> None:
    kept = {one.id: one for one in headed.checkpoints.list()}
    played = headed.checkpoints.policies_with_episodes() & set(kept)
    assert 0 < len(played) < len(kept)
    names = [one for one in playable(headed, MODELS) if one in kept]
    ran = [one in played for one in names]
    assert ran == sorted(ran, reverse=True)
    told = policy_label(headed)
    assert ["played nothing yet" in told(one) for one in names] == [not one for one in ran]
    assert "yet" not in told("random")


def test_a_distance_and_no_preference_in_words() -> None:
    even = Decision("a", Role.WORKER, model_probs=(0.5, 0.5, 0.0), role_probs=(1 / 3,) * 3)
    assert has_no_preference(replace(even, model_mask=(True, True, False)))
    assert not has_no_preference(even)


@pytest.mark.parametrize(
    ("first", "second", "choice", "divergence"),
    [
        (0.5, 0.5, "Same likeliest choice, and about as certain** (50.0 % instead of 50.0 %)", "0.000;"),
        (0.6, 0.99, "Same likeliest choice, but far more certain** (99.0 % instead of 60.0 %)", "1.2;"),
        (0.6, 0.8, "Same likeliest choice, but more certain** (80.0 % instead of 60.0 %)", "0.105;"),
        (0.8, 0.6, "Same likeliest choice, but less certain** (60.0 % instead of 80.0 %)", "0.092;"),
        (0.99, 0.6, "Same likeliest choice, but far less certain** (60.0 % instead of 99.0 %)", "0.459;"),
        (0.6, 0.4, "Another likeliest choice**, from similar probabilities", "0.081; 0 means the same."),
        (0.9, 0.01, "Another likeliest choice**, from very different probabilities", "3.8;"),
        (
            0.5,
            1.0,
            "Same likeliest choice, but far more certain** (100.0 % instead of 50.0 %); some choices",
            "",
        ),
    ],
)
def test_how_far_another_decision_is_from_the_first_is_told_by_its_choice(
    first: float, second: float, choice: str, divergence: str
) -> None:
    ours, theirs = (
        Decision("a", Role.WORKER, model_probs=(p, 1 - p), role_probs=(0.0, 1.0, 0.0))
        for p in (first, second)
    )
    kls = choice_kls(ours, ("a", "b"), theirs, ("a", "b"))
    assert kls is not None
    said = f"**{choice}. KL divergence {divergence}" if divergence else f"**{choice}"
    assert apart_words(ours, ("a", "b"), theirs, ("a", "b"), sum(kls)).startswith(said)


def test_panel_pair_and_policy_diff_tell_the_same_divergence() -> None:
    played, shape = episode("e-kl"), (len(MODELS), len(ROLE_ORDER))
    state = np.random.default_rng(4).normal(size=WIDTH).astype(np.float32)
    ours, theirs = (decided(made(seed=seed), state, 2, "k") for seed in (0, 5))
    z, masks = np.array([*theirs.model_logits, *theirs.role_logits]), [(True,) * n for n in shape]
    panel = alternative_decision(ours, MODELS, played, 2, z, np.zeros(len(z)), masks).kl
    pair, other = (choice_kls(a, MODELS, b, MODELS) for a, b in ((ours, theirs), (theirs, ours)))
    assert pair is not None
    assert other is not None
    none, every = np.zeros(1, np.int64), [np.ones((1, n), bool) for n in shape]
    at = Situations(none, none, none, every[0], every[1], np.full((1, 2), np.nan))
    first, second = (
        picks(np.array([[*one.model_logits, *one.role_logits]]), np.zeros((1, sum(shape))), at)
        for one in (ours, theirs)
    )
    assert panel == pytest.approx(sum(pair))
    assert panel == pytest.approx(agreement(first, second, at).divergence[0])
    assert panel != pytest.approx(sum(other))


def test_each_tolerance_says_what_it_is_of(headed: Store) -> None:
    recording = open_recording(headed, "e-head")
    seen = DecisionContext(recording, 2, recording.decision(2), made(generation=1))  # type: ignore[arg-type]
    assert seen.lens is not None
    assert tolerance_words(seen.lens.tolerance.max(), "this").endswith(
        f"at most {seen.lens.tolerance.max():#.2g}."
    )
    page = opened("replay", ep="e-head", t="3", panel="other", other=made(seed=5, generation=2).id)
    theirs = lens_of(made(seed=5, generation=2), seen.decision.hidden_state, 2)
    assert theirs is not None
    words = tolerance_words(theirs.tolerance.max(), "the other")
    assert [one for one in page.caption if one.help and words in one.help], "in a tooltip"


def test_another_checkpoint_is_told_where_it_would_have_left_and_what_it_played(samples: Store) -> None:
    """Its way, by Policy diff, which reads the same states in another way."""
    ids = [one.id for one in sorted(samples.checkpoints.list(), key=lambda one: one.generation or 0)]
    played = samples.checkpoints.policies_with_episodes()
    *_, other, newest = (one for one in ids if one in played)
    told = 0
    for one in samples.episodes.page(EpisodeFilter(policy=newest, min_turns=3), limit=6).items:
        diff = read_diff(samples, EpisodeScope(episode=one.id), [newest, other], by_draw=True)
        parted = [
            turn.idx
            for row, turn in enumerate(diff.turns)
            if not diff.picks[1].unsure[row]
            and (diff.checkpoints[1].models[diff.picks[1].slots[row]], ROLE_ORDER[diff.picks[1].roles[row]])
            != (turn.model, turn.role)
        ]
        page = opened("replay", ep=one.id, t=str(one.turns), panel="other", other=other)
        links = [link.label for link in page.page_link]
        left = [link for link in links if "would have diverged" in link]
        before = [index for index in parted if index < one.turns - 1]
        assert [left[0].endswith(f"at turn {index + 1}") for index in before[:1]] == [True] * len(left)
        assert bool(left) is bool(before)
        told += len(left)
        assert any(link.startswith("What gen ") and "played on this task" in link for link in links)
    assert told
