"""Episodes of rules on recorded models: what their pages say of votes, of orders, and of what cannot be asked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from core.episode import Flag
from core.errors import ConfigError
from core.outcomes.matrix import outcomes
from core.outcomes.table import load_table
from storage.filters.episode_filter import EpisodeFilter
from storage.rows.summaries import EpisodeSummary, TurnOutline
from storage.store import Store
from tests.core.outcomes.tables import small_answers, small_table
from tests.ui.pages import opened, plainly, shown
from tests.ui.sums import Sums
from ui.export.page import page_of
from ui.presentation.comparison import totals
from ui.presentation.theme import code, percent
from ui.runs import wiring
from ui.runs.forks.planning import plan_luck, why_no_fork
from ui.runs.plans import plan_of
from ui.runs.settings.batch import BatchPlan
from ui.web.turns.figures import is_counted
from ui.web.turns.turn_card import turn_heading

RULES = ("agree:family", "weighted-vote:3", "single:ann", "random")


@pytest.fixture
def played(world: Sums, store: Store) -> dict[str, list[EpisodeSummary]]:
    """Episodes of each of the RULES by its name, on a table that knows neither tokens nor costs nor seconds."""
    answers = {name.replace("cyd", "c-d"): own for name, own in small_answers().items()}
    small_table(wiring.data_folder(), answers, tokens=False)
    asked = [word for name in RULES for word in ("--policy", name)]
    world.done("run", "--pool", "outcomes:small", *asked)
    found: dict[str, list[EpisodeSummary]] = {}
    for one in store.episodes.page(EpisodeFilter(), limit=200).items:
        found.setdefault(one.policy, []).append(one)
    return found


def recorded_turns(store: Store, episode_id: str, **changes: float) -> list[TurnOutline]:
    return [replace(one, **changes) for one in store.episodes.outline(episode_id)]  # type: ignore[arg-type]


@pytest.mark.integration
@pytest.mark.usefixtures("no_workers")
def test_a_rule_says_why_it_asked_whom(played: dict[str, list[EpisodeSummary]], store: Store) -> None:
    one = next(one for one in played["agree:family"] if one.family == "physics")
    plan = plan_of(store.runs.get(one.run_id), BatchPlan)
    order = plan.order_of("agree:family", "physics")
    assert [name for name, _ in order] == ["bob", "c-d", "ann"]
    assert order[0][1] == 1.0
    assert plan.order_of("agree:family", "unseen") == plan.order_of("random", "law") == ()
    said = shown(opened("replay", ep=one.id, t="1", panel="near")).replace("\\", "")
    assert "agree:family asks " in said
    assert "It was asked first: the strongest model by this rule's order." in said
    assert "The order for questions of the family physics." in said
    assert "100.0 %" in said
    page = opened("replay", ep=one.id, t="2")
    assert "number 2 in this rule's order" in shown(page).replace("\\", "")
    assert not [button for button in page.button if str(button.key).startswith("panel_")], (
        "no tab has a word to say"
    )
    assert "bring it in" not in shown(page)


@pytest.mark.integration
@pytest.mark.usefixtures("no_workers")
def test_it_is_said_how_the_model_that_was_chosen_stands_on_such_questions(
    played: dict[str, list[EpisodeSummary]], store: Store
) -> None:
    of = outcomes(load_table("small", wiring.data_folder()))
    for one in played["random"][:3]:
        rates = {
            name: of.accuracy(of.domain == of.domains.index(one.family), i).value or 0.0
            for i, name in enumerate(of.models)
        }
        first, second, _ = sorted(rates, key=lambda name: -rates[name])
        model = store.episodes.outline(one.id)[0].model
        page = plainly(opened("replay", ep=one.id))
        assert f"On the {one.family} questions of its table {first} is right most often" in page
        assert (f"next is {second}, {percent(rates[second])}" in page) == (model == first)
        assert (f"{model} is number" in page) == (model != first)


@pytest.mark.integration
@pytest.mark.usefixtures("no_workers")
def test_a_vote_is_told_on_its_page(played: dict[str, list[EpisodeSummary]]) -> None:
    one = next(one for one in played["weighted-vote:3"] if one.turns == 3)
    said = shown(opened("replay", ep=one.id, t="1")).replace("\\", "")
    assert "by a weighted vote: " in said
    assert "decided by a vote" in said
    assert "turn budget" not in said
    assert "Weight" in said


@pytest.mark.integration
@pytest.mark.usefixtures("no_workers")
def test_what_nobody_counted_is_no_zero(played: dict[str, list[EpisodeSummary]], store: Store) -> None:
    one = played["weighted-vote:3"][0]
    page = opened("replay", ep=one.id, t="1")
    said = shown(page).replace("\\", "")
    assert "0 tokens" not in said
    assert "0.00 s" not in said
    assert "by a fixed rule" in said
    assert "seed 0" not in said
    assert [one.options for one in page.button_group if one.key == "spend"] == [["Time"]], (
        "seconds are in the table"
    )
    assert not is_counted(recorded_turns(store, one.id, latency_s=0.0), "time")
    nobody = [replace(turn, recorded=None) for turn in recorded_turns(store, one.id, latency_s=0.0)]
    assert is_counted(nobody, "time"), "a model that was asked took no time at all"
    unasked = [replace(turn, flags=(Flag.NOTHING_TO_JUDGE,)) for turn in nobody]
    assert not is_counted(unasked, "time")
    assert "tokens" not in turn_heading(unasked[0], 3)
    assert "0 tokens" in turn_heading(nobody[0], 3)
    exported = page_of(store, (one.id,))
    assert "0 tokens" not in exported
    assert exported.count("not recorded") == 2
    rows = totals(one, one)
    assert [name for name, *_ in rows] == ["Turns", "Time"]


@pytest.mark.integration
@pytest.mark.usefixtures("no_workers")
def test_what_cannot_come_out_otherwise_has_no_button(
    played: dict[str, list[EpisodeSummary]], store: Store
) -> None:
    wrong = next(one for one in played["weighted-vote:3"] if not one.correct)
    page = opened("replay", ep=wrong.id, t="1")
    assert "Recorded replies do not change, and weighted-vote:3 would ask the same models again" in plainly(
        page
    )
    assert not {"fork_here", f"luck_{wrong.id}"} & {one.key for one in page.button}
    form = opened("forks", ep=wrong.id, t="1")
    assert "so there is no fork to play" in plainly(form)
    assert "checkpoints import" not in plainly(form)
    assert "fork_start" not in {one.key for one in form.button}
    assert why_no_fork("weighted-vote:3", wrong.models, recorded=False).endswith("another --seed.")
    assert why_no_fork("random", wrong.models, recorded=True) == ""
    assert why_no_fork("vote:99", wrong.models, recorded=True) == "", "a name that means nothing here"
    alone = next(one for one in played["single:ann"] if not one.correct)
    with pytest.raises(ConfigError, match="no choice was drawn: it would come out the same again"):
        plan_luck(store, alone.id)


@pytest.mark.integration
@pytest.mark.usefixtures("no_workers")
def test_how_a_runs_policies_were_chosen_is_kept_and_shown(
    played: dict[str, list[EpisodeSummary]], store: Store
) -> None:
    home = shown(opened("home"))
    assert "A wrong ACCEPT" not in home
    assert "answered the same" in home, "how strips are read"
    one = played["agree:family"][0]
    assert "agree:family asks " in plainly(opened("episodes", run=one.run_id))
    assert "agree:family asks " in page_of(store, (one.id,))


@pytest.mark.integration
@pytest.mark.usefixtures("no_workers")
def test_lists_show_names_as_they_are(played: dict[str, list[EpisodeSummary]]) -> None:
    page = opened("replay", ep=played["agree:family"][0].id, t="1")
    assert "Policy `agree:family`" in [one.help for one in page.markdown]
    form = opened("forks", ep=played["random"][0].id, t="1")
    press_kind = form.button_group(key="fork_kind").set_value("model").run()
    options = press_kind.selectbox(key="fork_to_Played by").options
    assert {"c-d"} | set(options) <= {"ann", "bob", "c-d"}
    assert len(options) == 2
    assert code("a`b-c") == "``a`b-c``"
