"""Policy diff: choices as the coordinator itself would make them, transcripts read again, the page and the command."""

from __future__ import annotations

import json
import re

import pytest

from core.checkpoint import Checkpoint
from core.coordinator.coordinator import Coordinator
from core.episode import ROLE_ORDER
from core.errors import ConfigError, StoreError
from core.play.session import recorded_requests
from storage.analysis import second_opinions
from storage.analysis.policy_diff import PolicyDiff, Source, read_diff
from storage.analysis.second_opinions import (
    EpisodeScope,
    Opinion,
    add_opinions,
    read_judged,
    rereading_progress,
)
from storage.filters.episode_filter import EpisodeFilter
from storage.reads import forks
from storage.rows.engine import writing
from storage.rows.mapping import flag_bits
from storage.rows.schema import episode
from storage.rows.summaries import RunStatus
from storage.upkeep.retention import last_removed, prune
from tests.builders.diffed import DIFFED, Diffed
from tests.ui.pages import command, opened, plainly, press, shown, waiting
from ui.answers import plain, policy
from ui.answers.asked import Asked
from ui.answers.blocks import Bars, Grid
from ui.runs import reading
from ui.runs.lease import owner
from ui.runs.plans import plan_of
from ui.runs.play import Stopped
from ui.runs.queue import Ticket, enqueue
from ui.runs.worker import play_claimed

pytestmark = pytest.mark.integration
EVERYTHING = EpisodeScope()


def picked(diff: PolicyDiff, place: int) -> dict[tuple[str, int], tuple[str, str]]:
    """What a checkpoint of a diff picks, where that is sure."""
    found, models = diff.picks[place], diff.checkpoints[0].models
    return {
        (turn.episode_id, turn.idx): (models[found.slots[row]], ROLE_ORDER[found.roles[row]].value)
        for row, turn in enumerate(diff.turns)
        if not found.unsure[row]
    }


@pytest.mark.parametrize("by_draw", [False, True])
def test_stored_states_tell_what_the_coordinator_would_have_chosen(diffed: Diffed, by_draw: bool) -> None:
    ids = [diffed.a.id, diffed.b.id, diffed.barred.id]
    diff = read_diff(diffed.store, EVERYTHING, ids, by_draw=by_draw)
    assert set(diff.skipped()) == {Source.NO_STATE}
    assert (diff.unrepeated > 0) is by_draw  # chance has dice of its own here
    own = [one for one in diff.judged.episodes.values() if one.policy == diffed.a.id]
    assert len(diff.turns) == sum(turn.episode_id in {one.id for one in own} for turn in diff.judged.turns)
    episodes = forks.parents(diffed.store, [one.id for one in own]).values()
    for place, checkpoint in enumerate((diffed.a, diffed.b, diffed.barred)):
        sure = picked(diff, place)
        assert len(sure) > 0.8 * len(diff.turns)
        coordinator = Coordinator(checkpoint, diffed.encoder, argmax=not by_draw)
        asked = [request for episode in episodes for request in recorded_requests(episode)]
        for request, decision in zip(asked, coordinator.decide(asked), strict=True):
            told = sure.get((request.episode_id, request.index))
            assert told in (None, (decision.model, decision.role.value))
    if by_draw:  # the recorder repeats itself
        recorded = {(turn.episode_id, turn.idx): (turn.model, turn.role) for turn in diff.turns}
        assert picked(diff, 0) == recorded
    proof = diff.judgements[0].head_proof
    assert (proof.n, proof.beyond) == (len(diff.turns), 0)
    assert {model for model, _ in picked(diff, 2).values()}.isdisjoint({diffed.barred.models[0]})


def test_what_cannot_be_compared_is_said(diffed: Diffed) -> None:
    with pytest.raises(ConfigError, match="compare checkpoints of one pool"):
        read_diff(diffed.store, EVERYTHING, [diffed.a.id, diffed.stranger.id])
    for wrong in ([diffed.a.id], [diffed.a.id] * 2):
        with pytest.raises(ConfigError, match="2 to 8 different checkpoints"):
            read_diff(diffed.store, EVERYTHING, wrong)
    with pytest.raises(StoreError, match="no checkpoint cgone"):
        read_diff(diffed.store, EVERYTHING, [diffed.a.id, "cgone"])


def test_transcripts_are_read_again_stopped_resumed_and_proven(diffed: Diffed) -> None:
    store, ids = diffed.store, [diffed.a.id, diffed.svf.id]
    before = read_diff(store, EVERYTHING, ids)
    assert not before.turns
    total = len(before.judged.turns)
    assert before.readable()[diffed.svf.id] == total
    plan = reading.plan_for(before, EVERYTHING, store.now())
    assert plan is not None
    run, fresh = enqueue(store, plan, Ticket())
    assert (fresh, enqueue(store, plan, Ticket())) == (True, (run, False))
    assert store.runs.claim(run, owner())
    batches = reading.RereadParts(plan).play(store, run)
    first = next(batches)
    assert isinstance(first, int)
    store.runs.cancel(run)
    with pytest.raises(Stopped):
        next(batches)
    assert rereading_progress(store, run).done == first < plan.turns
    store.runs.finish(run, RunStatus.INTERRUPTED, owner=owner())
    assert play_claimed(store, run) == 0
    assert store.runs.get(run).status is RunStatus.FINISHED
    assert (rereading_progress(store, run).done, rereading_progress(store, run).devices) == (
        plan.turns,
        ("cpu",),
    )
    after = read_diff(store, EVERYTHING, ids)
    assert len(after.turns) == total
    assert reading.plan_for(after, EVERYTHING, store.now()) is None
    # What was read again is what the checkpoint's own coordinator finds, and the recorder meets itself.
    episodes = forks.parents(store, list(after.judged.episodes)).values()
    asked = [request for episode in episodes for request in recorded_requests(episode)]
    svf = Coordinator(diffed.svf, diffed.encoder, argmax=True).decide(asked)
    told = {(r.episode_id, r.index): (d.model, d.role.value) for r, d in zip(asked, svf, strict=True)}
    assert picked(after, 1) == told
    assert 0 < (after.agreements[0].rate or 0.0) < 1
    proof = after.judgements[0].reread_proof
    assert proof.n == min(reading.PROVEN, int(after.judgements[0].with_source(Source.RECORDED).sum()))
    assert proof.same == proof.n
    assert proof.largest < 1e-4


def test_a_text_that_is_not_the_recorded_one_is_not_believed(diffed: Diffed) -> None:
    store, width = diffed.store, len(diffed.a.models)
    judged = read_judged(store, EVERYTHING)
    turns = [turn for turn in judged.turns if judged.episodes[turn.episode_id].policy == diffed.a.id]
    store.runs.create("rreread1", "reencode", {}, owner="me")
    kept = [
        Opinion(diffed.svf.id, turn.episode_id, turn.idx, bytes(8 * width), bytes(8 * 3), digest, "cpu")
        for turn, digest in ((turns[0], turns[0].prompt_digest), (turns[1], "another text"))
    ]
    for _ in range(2):  # the second time all are there
        add_opinions(store, "rreread1", kept, "me")
    gone = kept[0]._replace(episode_id="edeleted")
    add_opinions(store, "rreread1", [gone], "me")
    with pytest.raises(StoreError, match="taken run rreread1 over"):
        add_opinions(store, "rreread1", kept, "another")
    diff = read_diff(store, EVERYTHING, [diffed.a.id, diffed.svf.id])
    assert [(turn.episode_id, turn.idx) for turn in diff.turns] == [(turns[0].episode_id, turns[0].idx)]
    assert diff.skipped()[Source.OTHER_TEXT] == 1
    store.episodes.delete([turns[0].episode_id])
    assert rereading_progress(store, "rreread1").done == (turns[0].episode_id != turns[1].episode_id)


def test_only_the_newest_turns_are_judged_and_whole_episodes_of_them(
    diffed: Diffed, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = read_judged(diffed.store, EVERYTHING)
    with monkeypatch.context() as patched:
        patched.setattr(second_opinions, "MOST_JUDGED_TURNS", 7)
        few = read_judged(diffed.store, EVERYTHING)
    assert list(few.episodes) == list(everything.episodes)[: len(few.episodes)]
    assert 0 < len(few.turns) <= 7
    assert few.matching == len(everything.episodes) == 8
    family = next(iter(everything.episodes.values())).family
    some = read_judged(diffed.store, EpisodeScope(EpisodeFilter(q=f'family == "{family}"')))
    assert {one.family for one in some.episodes.values()} == {family}


def test_the_page_in_its_other_states(diffed: Diffed) -> None:
    a, b = diffed.a.id, diffed.b.id
    stale = opened("policy", c=f"{a},{b},cgone", ep="egone")
    assert "cgone" in stale.info[0].value
    assert "no episode egone" in stale.warning[0].value.replace("\\", "")
    press(stale, "all_episodes")
    assert "How often would they choose alike?" in shown(stale)
    assert "compare checkpoints of one pool" in shown(opened("policy", c=f"{a},{diffed.stranger.id}"))
    assert "Column 8" in opened("policy", c=f"{a},{b}", q="turns >").error[0].value.replace("\\", "")
    assert "No recorded turn matches" in shown(opened("policy", c=f"{a},{b}", family="none"))
    assert "second checkpoint" in shown(opened("policy", c=a))
    kept = diffed.store.views.add("Wrong ones", {"correct": "wrong"})
    wrong = read_diff(diffed.store, EpisodeScope(EpisodeFilter(correct="wrong")), [a, b])
    seen = opened("policy", c=f"{a},{b}", view=kept.id)
    assert f"Used: {len(wrong.turns)} of" in plainly(seen)
    assert "Wrong ones" in shown(seen)


def test_what_a_person_took_a_hand_in_is_left_out_and_can_be_counted(diffed: Diffed) -> None:
    c = f"{diffed.a.id},{diffed.b.id}"
    every = read_diff(diffed.store, EVERYTHING, c.split(","))
    taken = every.turns[0].episode_id
    with writing(diffed.store.engine) as connection:
        connection.execute(
            episode.update().where(episode.c.id == taken).values(flags=flag_bits(["override"]))
        )
    left = len([turn for turn in every.turns if turn.episode_id != taken])
    page = opened("policy", c=c)
    assert f"Used: {left:,} of" in plainly(page)
    switch = page.button_group(key="facet_forks")
    assert (switch.label, switch.options) == ("Live plays, requests, evolutions (1)", ["hidden", "included"])
    switch.set_value("with").run()
    assert page.query_params["forks"] == "with"
    assert f"Used: {len(every.turns):,} of" in plainly(page)


def test_the_page_says_when_hidden_states_were_removed(diffed: Diffed) -> None:
    a, b = diffed.a.id, diffed.b.id
    assert "were removed" not in shown(opened("policy", c=f"{a},{b}"))
    one = next(iter(read_diff(diffed.store, EVERYTHING, [a, b]).turns)).episode_id
    task = diffed.store.episodes.summary(one).task_id
    prune(diffed.store, "states", EpisodeFilter(task=task))
    day = last_removed(diffed.store, "states", EpisodeFilter())
    assert day is not None
    assert f"hidden states were removed, last on {day}" in shown(opened("policy", c=f"{a},{b}")).replace(
        "\\", ""
    )


@pytest.mark.usefixtures("no_workers")
def test_the_page_begins_stops_and_resumes_a_reading(diffed: Diffed) -> None:
    store = diffed.store
    c = f"{diffed.a.id},{diffed.svf.id}"
    page = opened("policy", c=c)
    assert "read again first" in shown(page)
    button = page.button(key="reencode").label
    n = int(button.replace(",", "").split()[1])
    told = next(one.value for one in page.markdown if "To be read" in one.value).replace("\\", "")
    told = told.split("To be read: ")[1]
    *parts, whole = (int(one) for one in re.findall(r"(\d+) (?:turns by|that were|in all)", told))
    assert len(parts) > 1  # turns to judge, and turns as a proof
    assert sum(parts) == whole == n
    press(page, "reencode")
    (run,) = waiting(store)
    assert store.runs.get(run).status is RunStatus.QUEUED
    assert "Stop" in shown(page)
    with writing(store.engine) as connection:  # its process died
        connection.exec_driver_sql("UPDATE run SET status = 'running', heartbeat = 0 WHERE kind = 'reencode'")
    page.run()
    assert "Resume" in shown(page)
    assert play_claimed(store, run) == 0
    page = opened("policy", c=c)
    assert "would choose as A does" in shown(page)
    assert "reencode" not in [button.key for button in page.button]
    assert "read again on cpu" in shown(page)


def asked(diffed: Diffed, *checkpoints: Checkpoint, **choices: str) -> Asked:
    """What the page asks of these checkpoints at all turns."""
    names = {one.id: f"the {place + 1}." for place, one in enumerate(checkpoints)}
    return policy.asked_of_checkpoints(diffed.store, EVERYTHING, names, choices=choices)


def test_the_answers_count_what_the_diff_counts(diffed: Diffed) -> None:
    found = {
        one.key: plain.answer(one)
        for one in policy.ANALYSIS.parts[0].answers(asked(diffed, diffed.a, diffed.b))
    }
    diff = read_diff(diffed.store, EVERYTHING, [diffed.a.id, diffed.b.id])
    overall = found["agreement"]["estimates"][0]
    called = int(diff.agreements[0].called.sum())
    assert (overall["share"], overall["n"]) == (diff.agreements[0].rate, called)
    assert f"of {called:,} turns" in found["agreement"]["answer"]
    assert sum(one["n"] for one in found["agreement"]["estimates"][1:]) == called
    assert sum(one["turns"] for one in found["picks"]["pairs"]) == called
    assert sum(sum(of.values()) for of in found["parting"]["bars"].values()) == 6
    assert sum(one["turns"] for one in found["agreement"]["skipped"]) == len(diff.judged.turns) - len(
        diff.turns
    )
    assert len(found["turns"]["rows"]) == int(diff.agreements[0].differs.sum())


def test_a_bar_and_a_cell_narrow_the_list_of_turns(diffed: Diffed) -> None:
    diff = read_diff(diffed.store, EVERYTHING, [diffed.a.id, diffed.b.id, diffed.barred.id])
    of_barred = {"with": diffed.barred.id}
    three = diffed.a, diffed.b, diffed.barred
    parting = policy.parting(asked(diffed, *three, **of_barred))
    assert parting is not None
    bars = parting.blocks[0]
    assert isinstance(bars, Bars)
    first = bars.groups[0]
    rows = policy.turns(asked(diffed, *three, **of_barred, first=first))
    assert rows is not None
    assert f"at which they first part, turn {first}" in rows.sentence
    assert len(rows.blocks[0].rows) == sum(one.counts[0] for one in bars.series)  # type: ignore[union-attr]
    picks = policy.picks(asked(diffed, *three, **of_barred))
    assert picks is not None
    grid = picks.blocks[0]
    assert isinstance(grid, Grid)
    cell = next(cell for of in grid.cells for cell in of if cell.mark.to)
    assert cell.mark.to is not None
    listed = policy.turns(asked(diffed, *three, **of_barred, cell=cell.mark.to.params["cell"] or ""))
    assert listed is not None
    a, b = (int(one) for one in (cell.mark.to.params["cell"] or "").split("-"))
    both = (diff.picks[0].pairs == a) & (diff.picks[2].pairs == b) & diff.agreements[1].called
    assert len(listed.blocks[0].rows) == int(both.sum())  # type: ignore[union-attr]


def test_the_command_reads_again_and_says_what_cannot_be_compared(
    diffed: Diffed, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b, svf = diffed.a.id, diffed.b.id, diffed.svf.id
    assert command(["policy", a, b, "--by-draw", "--run", DIFFED]) == 0
    assert "would choose as A does at" in capsys.readouterr().out
    assert command(["policy", a, svf, "--reencode", "--where", "not correct", "--json"]) == 0
    [_, again] = json.loads(capsys.readouterr().out)["agreement"]["logits"]
    assert (again["checkpoint"], again["to_read_again"]) == (svf, 0)
    assert again["reread"] > 0
    assert diffed.store.runs.list(kind="reencode")[0].status is RunStatus.FINISHED
    assert command(["policy", a, diffed.stranger.id]) == 1
    assert "compare checkpoints of one pool" in capsys.readouterr().err


def test_a_reading_that_stands_still_leads_back_to_its_page(diffed: Diffed) -> None:
    store = diffed.store
    scope = EpisodeScope(EpisodeFilter(correct="wrong"))
    plan = reading.plan_for(read_diff(store, scope, [diffed.a.id, diffed.svf.id]), scope, store.now())
    assert plan is not None
    run, _ = enqueue(store, plan, Ticket())
    assert plan_of(store.runs.get(run)) == plan
    assert plan.address() == {"c": f"{diffed.a.id},{diffed.svf.id}", "correct": "wrong"}
    links = [str(link.proto) for link in opened("settings", part="work").page_link]
    assert any(diffed.svf.id in link and "policy" in link for link in links)
