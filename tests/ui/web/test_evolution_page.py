"""The page of an evolution: every panel, two side by side, and links to what is gone."""

from __future__ import annotations

import os

import pytest

from core.episode import ROLE_ORDER, Role, Task
from storage.filters.episode_filter import EpisodeFilter
from storage.reads.episode_steps import read_decisions
from storage.store import Store
from tests.ui.pages import assert_literal, opened, press, shown
from tests.ui.sums import Sums
from tests.ui.web.evolutions import asked_of_learned, plan
from ui.answers.habits import computed_on, offered, read_learned, rescore
from ui.presentation.learning import Habit, learned_words
from ui.presentation.theme import label
from ui.runs.plans import LivePlan
from ui.runs.queue import Ticket, enqueue
from ui.runs.worker import play_claimed

PANELS = ["progress", "pinned", "choices", "population", "weights"]

pytestmark = pytest.mark.integration


@pytest.fixture
def world(evolving: Sums) -> Sums:
    """There are tasks to evolve on, and a tiny encoder."""
    return evolving


def test_every_panel_of_a_finished_evolution(world: Sums, store: Store, evolved: str) -> None:
    run = evolved
    last = store.learning.updates(run)[-1].checkpoint_id
    assert "No recorded episode has hidden states" in shown(opened("evolution", run=run, panel="pinned"))
    assert world.run("--policy", last, "--n", 4).code == 0
    said = {
        "progress": "Is it getting better, beyond chance?",
        "pinned": "Pinned tasks: when did each choice come about?",
        "choices": "Who is chosen, in which role?",
        "population": "Which candidates of generation 2 did well",
        "weights": "Which logits of generation 2 ask for the same?",
    }
    for panel, words in said.items():
        page = opened("evolution", run=run, panel=panel, gen="2")
        assert words in shown(page)
        assert "**Generation 2**" in shown(page)
        assert_literal(page)
    found = rescore(store, run, tuple(one.id for one in offered(store, run)))
    assert found.generations == (0, 1, 2, 3)
    assert found.deviation is not None
    assert found.deviation <= found.tolerance
    assert found.unsure[:, 0].all()  # a head of zeros prefers nothing
    for row, line in enumerate(found.lines):
        recorded = read_decisions(store, line.episode.id)[line.index]
        now = found.models[found.slots[row, 3]], ROLE_ORDER[found.roles[row, 3]]
        assert found.unsure[row, 3] or now == (recorded.argmax_model, recorded.argmax_role)


def test_the_page_opens_on_when_it_learned_what(world: Sums, store: Store, evolved: str) -> None:
    """Every generation's head reads the same recorded turns: what the last of them recorded is what it would choose."""
    last = store.learning.updates(evolved)[-1].checkpoint_id
    assert world.run("--policy", last, "--n", 12).code == 0
    found = read_learned(store, evolved, evolved)
    assert found is not None
    assert found.own
    assert found.turns.policies == (last,)
    for curve in found.curves.values():
        assert curve.generations == (0, 1, 2, 3)
    opening = found.curves[Habit.THINKER_FIRST]
    assert opening.turns == 12
    assert opening.means[0].mean == pytest.approx(1 / 3)
    recorded = [
        read_decisions(store, one.id)[0].role_probs[ROLE_ORDER.index(Role.THINKER)]
        for one in store.episodes.page(EpisodeFilter(policy=last)).items
    ]
    assert opening.means[3].mean == pytest.approx(sum(recorded) / 12, abs=0.01)
    page = opened("evolution", run=evolved, gen="2", panel="pinned")
    text = shown(page)
    for habit, curve in found.curves.items():
        assert label(learned_words(habit, curve), 900) in text
    says = computed_on(found, asked_of_learned(store, evolved))
    assert says.startswith(
        f"Computed on {len(found.turns)} recorded turns of 12 tasks, played by its own generation 3:"
    )
    assert label(says, 900) in text
    assert text.index("What did it learn, and since when?") < text.index("Pinned tasks")
    assert_literal(page)


def test_what_a_person_plays_changes_nothing_of_what_is_pinned(
    world: Sums, store: Store, evolved: str
) -> None:
    run = evolved
    first, last = (store.learning.updates(run)[i].checkpoint_id for i in (1, -1))
    assert first is not None
    assert last is not None
    assert world.run("--policy", last, "--n", 4).code == 0
    pinned = opened("evolution", run=run, panel="pinned").multiselect(key="choose_ep").value
    assert len(pinned) == 1
    own = []
    for policy in (last, first):  # also of a checkpoint that has played nothing else
        task = Task("mine", "What is 1 + 1?", "2", "number", "a family of mine")
        pool = str(world.folder / "pool.toml")
        plan = LivePlan(task, policy, ("adder", "guesser"), pool, os.environ["TRINITY_ENCODER"])
        own.append(enqueue(store, plan, Ticket())[0])
        assert play_claimed(store, own[-1]) == 0
    page = opened("evolution", run=run, panel="pinned")
    assert page.multiselect(key="choose_ep").value == pinned
    assert len(page.multiselect(key="choose_ep").options) == 6  # theirs can be pinned by hand
    (episode,) = store.episodes.of_run(own[0])
    page = opened("evolution", run=run, panel="pinned", ep=episode.id)
    assert page.multiselect(key="choose_ep").value == [episode.id]


def test_the_generation_is_in_the_address_and_steps_by_button(evolved: str) -> None:
    page = opened("evolution", run=evolved, gen="1")
    press(page, "step_next")
    assert "**Generation 2**" in shown(page)
    assert page.query_params["gen"] in ("2", ["2"])
    press(page, "go_first")
    assert "**Generation 0**" in shown(page)
    assert "**Generation 3**" in shown(opened("evolution", run=evolved, gen="77"))


def test_two_evolutions_stand_side_by_side(world: Sums, store: Store, evolved: str) -> None:
    one = evolved
    other, _ = enqueue(store, plan(world, "second", seed=4), Ticket())
    page = opened("evolution", run=one, panel="choices", **{"with": other})
    assert not page.exception  # the other has no generation yet
    store.runs.delete(other)
    other, _ = enqueue(store, plan(world, "second", seed=4), Ticket())
    assert play_claimed(store, other) == 0
    text = shown(opened("evolution", run=one, panel="choices", **{"with": other}))
    assert "**second" in text


def test_without_any_evolution_the_page_offers_to_begin_one(store: Store) -> None:
    page = opened("evolution")
    assert "No evolution yet" in shown(page)
    assert "No training yet" in shown(page)
    press(page, "begin_form")
    assert "Begin an evolution" in page.title[0].value


def test_a_stale_link_says_so_and_the_newest_stands_in(samples: Store) -> None:
    page = opened("evolution", run="rgone")
    assert "holds no evolution or training rgone" in page.info[0].value
    assert "**Generation 30**" in shown(page)


def test_singular_values_cannot_be_scored_again_and_the_page_says_so(world: Sums, store: Store) -> None:
    run, _ = enqueue(store, plan(world, svf="1"), Ticket())
    assert play_claimed(store, run) == 0
    page = opened("evolution", run=run, panel="pinned")
    assert "changed the encoder too" in shown(page)
    assert not opened("evolution", run=run, panel="weights").exception


def test_a_checkpoint_is_played_live_from_its_link(store: Store, evolved: str) -> None:
    first = store.learning.updates(evolved)[1].checkpoint_id
    assert first is not None
    page = opened("live", play=first)
    assert page.selectbox(key="policy_choice").value == first
    page.selectbox(key="policy_choice").select("random").run()
    assert page.selectbox(key="policy_choice").value == "random"
    assert "does not fit" in opened("live", play="cgone").info[0].value
