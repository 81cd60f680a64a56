"""What is counted over episodes and turns agrees with a count by hand, costs few queries and reads no text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from core.episode import EndReason, Episode, Flag, Reply, Role, Usage, Verdict
from core.play.session import NOT_ASKED
from storage.analysis import routing
from storage.analysis.costs import frontier, policy_costs, spending_by
from storage.analysis.counterfactual import without_each_model, without_models
from storage.analysis.regret import regret, replicated_tasks, replicates
from storage.analysis.routing import ModelInRole, Traffic, pool_order, traffic_of, turns_with_move
from storage.analysis.verdicts import (
    VerdictOutcome,
    by_author,
    ledgers,
    role_compliance,
    turn_groups,
    turn_rates,
    turns_with_verdict,
)
from storage.filters.episode_filter import EpisodeFilter
from storage.recorder import record
from storage.rows.progress import strip_cell, strip_moves
from storage.store import Store
from tests.builders.play import MODELS, HashPolicy, births, ends, events, tasks
from tests.builders.recorded import episode
from tests.builders.recorded import events_of as recorded
from tests.builders.stores import new_store, record_finished_run
from tests.storage.filters.test_lists import statements

ALL = EpisodeFilter()
N = 16


@pytest.fixture(autouse=True)
def every_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """All turns behind a number, not the newest alone."""
    monkeypatch.setattr(routing, "NEWEST", 1000)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, list[Episode]]]:
    """Three policies on the same tasks, one of them twice, and a fork's run that counts only when named."""
    store = new_store(tmp_path_factory.mktemp("counts") / "trinity.db")
    whole: list[Episode] = []
    for run, policy, seed in (
        ("r1", "hash", 0),
        ("r2", "hash", 1),
        ("r3", "single:ada", 0),
        ("r4", "single:bo", 0),
        ("rfork", "hash", 7),
    ):
        over = ends(events(births(run, tasks(N), policy, seed=seed), HashPolicy(f"{policy}/{seed}")))
        record_finished_run(store, run, "fork" if run == "rfork" else "run", {}, [*over.values()])
        whole += over.values() if run != "rfork" else ()
    yield store, whole
    store.close()


def moves(one: Episode) -> tuple[ModelInRole, ...]:
    return tuple(ModelInRole(turn.decision.model, turn.decision.role) for turn in one.turns)


def test_paths_are_what_was_played(played: tuple[Store, list[Episode]]) -> None:
    store, whole = played
    found = traffic_of(store, ALL)[""]
    assert found.episodes == len(whole)
    assert found.right == sum(one.correct is True for one in whole)
    assert found.turns == Counter(move for one in whole for move in moves(one))
    steps = Counter(
        step for one in whole for step in zip((None, *moves(one)), (*moves(one), None), strict=True)
    )
    assert found.steps() == steps
    assert found.first() == Counter(moves(one)[0] for one in whole)
    groups = traffic_of(store, ALL, "family")
    assert Traffic.over(groups.values()) == found
    assert {name: of.episodes for name, of in groups.items()} == Counter(one.task.family for one in whole)
    assert sum(of.total for of in groups.values()) == found.total
    assert pool_order(store, ALL) == list(MODELS)
    forked = traffic_of(store, EpisodeFilter(run="rfork"))[""]
    assert forked.episodes == N  # a run that is named is taken as it is


def test_a_strip_says_its_moves_whatever_the_models_are_called() -> None:
    models = [f"m {i}·W" for i in range(30)]
    told = [(models[i], role) for i, role in ((0, Role.WORKER), (29, Role.VERIFIER), (25, Role.THINKER))]
    strip = " ".join(
        strip_cell(models, model, role, Verdict.REVISE if role is Role.VERIFIER else None)
        for model, role in told
    )
    assert strip_moves(models, strip) == tuple(told)


def test_the_turns_behind_a_number_are_the_ones_counted(played: tuple[Store, list[Episode]]) -> None:
    store, whole = played
    found = traffic_of(store, ALL)[""]
    (at, here, there), n = next(
        one for one in found.links.most_common() if one[0][1] is not None and one[0][2] is not None
    )
    turns = turns_with_move(store, ALL, here, there, at=at)
    assert len(turns) == n
    by_id = {one.id: one for one in whole}
    assert all(moves(by_id[turn.episode_id])[turn.index : turn.index + 2] == (here, there) for turn in turns)
    (_, last, _), n = next(one for one in found.links.most_common() if one[0][2] is None)
    ended = sum(k for (_, move, to), k in found.links.items() if move == last and to is None)
    assert len(turns_with_move(store, ALL, last, ends=True)) == ended
    move, opened = found.first().most_common(1)[0]
    assert len(turns_with_move(store, ALL, move, at=0)) == opened


def _judged(whole: list[Episode]) -> Iterator[tuple[str, str, VerdictOutcome]]:
    """(verifier, author, what) of every Verifier turn, by hand."""
    for one in whole:
        author = ""
        for turn in one.turns:
            model, flags = turn.decision.model, turn.flags
            if turn.decision.role is Role.WORKER and Flag.NO_ANSWER not in flags:
                author = model
            if turn.decision.role is not Role.VERIFIER:
                continue
            if Flag.NOTHING_TO_JUDGE in flags:
                yield model, author, VerdictOutcome.NOTHING
            elif Flag.VERDICT_UNREADABLE in flags:
                yield model, author, VerdictOutcome.UNREADABLE
            else:
                verdict = "accepted" if turn.verdict is Verdict.ACCEPT else "revised"
                yield model, author, VerdictOutcome(f"{verdict}_{'right' if turn.correct_after else 'wrong'}")


def test_the_ledger_sets_every_verdict_against_the_truth(played: tuple[Store, list[Episode]]) -> None:
    store, whole = played
    by_hand = list(_judged(whole))
    books = {one.model: one for one in ledgers(turn_groups(store, ALL), turn_rates(store, ALL))}
    for model, one in books.items():
        assert one.counts == Counter(what for who, _, what in by_hand if who == model)
        k, n = one.counts[VerdictOutcome.ACCEPTED_WRONG], one.counts[VerdictOutcome.REVISED_WRONG]
        assert (one.false_accept.k, one.false_accept.n) == (k, k + n)
        low, high = one.false_accept.ci95
        assert 0 <= low <= k / (k + n) <= high <= 1
    assert {what for _, _, what in by_hand} == set(VerdictOutcome) - {
        VerdictOutcome.FAILED
    }  # the script plays all of them
    judged = by_author(store, ALL)
    for pair, share in judged.pairs.items():
        of = Counter(what for who, wrote, what in by_hand if (who, wrote) == pair)
        wrong = of[VerdictOutcome.ACCEPTED_WRONG] + of[VerdictOutcome.REVISED_WRONG]
        assert (share.k, share.n) == (of[VerdictOutcome.ACCEPTED_WRONG], wrong)
    for share, is_own in ((judged.own, True), (judged.others, False)):
        assert share.n == sum(one.n for (who, wrote), one in judged.pairs.items() if (who == wrote) is is_own)
        assert share.clusters <= N
    own = sum(one.self_verified for one in books.values())
    assert own == sum(Flag.SELF_VERIFIED in turn.flags for one in whole for turn in one.turns)
    for what in VerdictOutcome:
        expected = sum(who == "bo" and did is what for who, _, did in by_hand)
        assert len(turns_with_verdict(store, ALL, "bo", what)) == expected
    own_wrong = sum(one == ("bo", "bo", VerdictOutcome.ACCEPTED_WRONG) for one in by_hand)
    assert len(turns_with_verdict(store, ALL, "bo", VerdictOutcome.ACCEPTED_WRONG, "bo")) == own_wrong


def test_spend_and_roles_add_up(played: tuple[Store, list[Episode]]) -> None:
    store, whole = played
    groups = turn_groups(store, ALL)
    turns = [turn for one in whole for turn in one.turns]
    by_role = spending_by(groups, lambda one: one.role.value)
    assert sum(one.tokens for one in by_role.values()) == sum(
        turn.reply.usage.tokens_in + turn.reply.usage.tokens_out for turn in turns
    )
    assert sum(one.cost_usd or 0.0 for one in by_role.values()) == pytest.approx(
        sum(turn.reply.usage.cost_usd or 0.0 for turn in turns)
    )
    kept = {(one.model, one.role): one.compliant for one in role_compliance(groups, turn_rates(store, ALL))}
    for (model, role), share in kept.items():
        asked = [turn for turn in turns if (turn.decision.model, turn.decision.role) == (model, role)]
        asked = [turn for turn in asked if turn.messages]
        assert share.n == len(asked)
        assert share.k == sum(Flag.VERDICT_UNREADABLE not in turn.flags for turn in asked)
    assert {role for _, role in kept} == set(Role)
    for name, of in by_role.items():
        assert of.n == sum(turn.decision.role == name and bool(turn.messages) for turn in turns)
    costs = {one.policy: one for one in policy_costs(store, ALL)}
    mine = [one for one in whole if one.policy == "hash"]
    assert (costs["hash"].n, costs["hash"].right) == (2 * N, sum(one.correct is True for one in mine))
    accepted = [one for one in mine if one.end_reason is EndReason.ACCEPTED]
    assert (costs["hash"].false_accept.k, costs["hash"].false_accept.n) == (
        sum(not one.correct for one in accepted),
        len(accepted),
    )
    assert costs["hash"].per_solved(10.0) == pytest.approx(10 / costs["hash"].right)
    assert costs["hash"].per_solved(None) is None  # an unknown price is never a number
    assert frontier([("dear", 3, 0.5), ("cheap", 1, 0.4), ("worse", 2, 0.3), ("best", 3, 0.6)]) == [
        "cheap",
        "best",
    ]


def test_regret_is_over_the_tasks_that_all_have_played(played: tuple[Store, list[Episode]]) -> None:
    store, whole = played
    shares: dict[str, list[float]] = {}
    for policy in ("hash", "single:ada", "single:bo"):
        of = [
            [one.correct is True for one in whole if (one.policy, one.task.id) == (policy, task.id)]
            for task in tasks(N)
        ]
        shares[policy] = [sum(each) / len(each) for each in of]
    found = regret(store, ALL, "hash")
    assert (found.tasks, found.left_out) == (N, {})
    assert found.accuracy.mean == pytest.approx(np.mean(shares["hash"]))
    best = np.maximum(shares["single:ada"], shares["single:bo"])
    told = {one.name: one for one in found.contestants}
    assert told[None].accuracy.mean == pytest.approx(best.mean())
    ahead = told["single:ada"].ahead
    assert ahead.mean == pytest.approx(np.mean(np.subtract(shares["hash"], shares["single:ada"])))
    assert ahead.low < ahead.mean < ahead.high
    assert len(found.missed) == sum(a < b for a, b in zip(shares["hash"], best, strict=True))
    assert regret(store, EpisodeFilter(family="none"), "hash").tasks == 0
    several = replicated_tasks(store, ALL)
    assert {(one.policy, one.n) for one in several} == {("hash", 2)}
    assert [one.right * (one.n - one.right) for one in several] == sorted(
        (one.right * (one.n - one.right) for one in several), reverse=True
    )
    twice = replicates(store, ALL, "hash", several[0].task_id)
    assert sum(one.correct is True for one in twice) == several[0].right
    assert [one.moves for one in twice] == [
        moves(one) for one in whole if one.id in {x.episode_id for x in twice}
    ]


def test_without_a_model_exactly_its_own_picks_change(played: tuple[Store, list[Episode]]) -> None:
    store, whole = played
    turns = [turn for one in whole for turn in one.turns]
    found = without_models(store, ALL, ["ada"])
    gone = [turn for turn in turns if turn.decision.model == "ada"]
    assert (found.turns, found.changed, found.read) == (len(turns), len(gone), len(gone))
    assert found.touched == len({turn.episode_id for turn in gone})
    by_hand = sum(turn.decision.model_probs[1] / (1 - turn.decision.model_probs[0]) for turn in gone)
    assert found.takers["bo"] == pytest.approx(by_hand)
    assert set(found.takers) == {"bo", "cy"}


def test_of_each_model_left_out_alone_the_same_is_counted(played: tuple[Store, list[Episode]]) -> None:
    store, _ = played
    models = ["ada", "bo", "cy", "nobody"]
    found = without_each_model(store, ALL, models)
    for name, one in found.items():
        alone = without_models(store, ALL, [name])
        assert replace(one, read=alone.read, takers=alone.takers) == alone
    assert sorted(found) == sorted(models)
    assert [one.changed for one in found.values()] == sorted(one.changed for one in found.values())


def test_counting_takes_few_queries_and_reads_no_text(played: tuple[Store, list[Episode]]) -> None:
    store, _ = played
    for count, most in (
        (traffic_of, 1), (turn_groups, 1), (turn_rates, 1), (by_author, 2), (policy_costs, 2), (replicated_tasks, 1)
    ):  # fmt: skip
        with statements(store) as said:
            count(store, ALL)
        assert len(said) == most, count
        assert not any("FROM text" in one or "JOIN text" in one for one in said)
    with store.engine.connect() as connection:
        plan = connection.exec_driver_sql(
            "EXPLAIN QUERY PLAN SELECT model, role, verdict, flags, sum(tokens_in) FROM turn "
            "WHERE stage = 'finished' AND episode_id IN (SELECT id FROM episode) GROUP BY 1, 2, 3, 4"
        ).all()
    assert any("COVERING INDEX ix_turn_counts" in row[3] for row in plan), json.dumps(
        [row[3] for row in plan]
    )


def test_an_unknown_price_stays_unknown(fresh: Store) -> None:
    fresh.runs.create("r-1", "run", {})
    one = replace(episode("e-1", seed=1), run_id="r-1")
    turn = one.turns[0]
    unpriced = replace(turn, reply=replace(turn.reply, usage=replace(turn.reply.usage, cost_usd=None)))
    list(record(fresh, recorded(replace(one, turns=(unpriced, *one.turns[1:])))))
    assert policy_costs(fresh, ALL)[0].cost_usd is None
    assert None in [
        of.cost_usd for of in spending_by(turn_groups(fresh, ALL), lambda group: group.model).values()
    ]


def test_a_turn_in_which_nobody_was_asked_keeps_to_no_role_and_takes_no_time(fresh: Store) -> None:
    fresh.runs.create("r-1", "run", {})
    verdict = next(turn for turn in episode("e-1", seed=1).turns if turn.decision.role is Role.VERIFIER)
    verifier = replace(verdict.decision, model="ada", role=Role.VERIFIER)
    waited = Reply("?", usage=Usage(10, 2, 0.0), latency_s=4.0)
    silent = replace(
        verdict, decision=verifier, reply=NOT_ASKED, flags=(Flag.NOTHING_TO_JUDGE,), verdict=Verdict.REVISE
    )
    unreadable = replace(
        verdict, decision=verifier, reply=waited, flags=(Flag.VERDICT_UNREADABLE,), verdict=Verdict.REVISE
    )
    again = replace(
        unreadable, reply=waited.as_reused(), flags=(Flag.VERDICT_UNREADABLE, Flag.REUSED)
    )  # the time was another's
    never = replace(silent, decision=replace(verifier, model="bo"))
    turns = (silent, never, silent, unreadable, again, silent)
    played = [replace(turn, index=i) for i, turn in enumerate(turns)]
    list(record(fresh, recorded(replace(episode("e-1", seed=1), run_id="r-1", turns=tuple(played)))))
    groups, rates = turn_groups(fresh, ALL), turn_rates(fresh, ALL)
    (kept,) = role_compliance(groups, rates)  # of a Verifier that never was asked nothing is said
    assert (kept.model, kept.compliant.k, kept.compliant.n) == ("ada", 0, 2)
    spent = spending_by(groups, lambda one: one.model)
    assert (spent["ada"].n, spent["ada"].tokens_per_reply, spent["ada"].seconds_per_reply) == (2, 12.0, 4.0)
    assert (spent["bo"].n, spent["bo"].tokens_per_reply, spent["bo"].seconds_per_reply) == (0, None, None)
