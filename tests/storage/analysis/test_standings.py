"""Policies side by side: SQL counts what Python counts, repeats, forks, missing judgements and budgets included."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from core.analysis.comparison import compare, is_solved
from core.episode import EndReason, Episode, Protocol, Status
from core.errors import StoreError
from core.ids import episode_id
from storage.analysis.costs import policy_costs
from storage.analysis.counterfactual import accuracy_by_budget
from storage.analysis.regret import regret
from storage.analysis.routing import Traffic, traffic_of
from storage.analysis.standings import (
    CELLS,
    ENTROPY_BIN,
    PolicySide,
    courses,
    figures,
    find_side,
    matched_tasks,
    policies_with_episodes,
    read_shared_tasks,
    side_conditions,
)
from storage.analysis.verdicts import turn_groups
from storage.filters.episode_filter import EpisodeFilter, for_totals
from storage.filters.listing import MIXED, TWO_DECIDED
from storage.rows.engine import writing
from storage.rows.full_episodes import TimedEpisode, insert_episodes
from storage.rows.summaries import RunKind
from storage.store import Store
from tests.builders.play import births, end, ends, events, tasks
from tests.builders.stores import POOL, begin_run, mark_samples, new_store, record_finished_run

A, B, C = PolicySide("base"), PolicySide("b"), PolicySide("c")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, list[Episode]]]:
    """Three policies over overlapping tasks: A twice to thrice a task over two runs, B up to twice, C once and on
    other tasks; some episodes without a judgement, some missing, and what must not count: forks, live plays, and one
    with a decision taken by hand."""
    store = new_store(tmp_path_factory.mktemp("sides") / "trinity.db")
    kinds: dict[str, RunKind] = {"r1": "run", "r2": "run", "f1": "fork", "l1": "live"}
    for run, kind in kinds.items():
        begin_run(store, run, kind, {})
    sources = [*ends(events(births("r1", tasks(30)))).values()]
    draws = random.Random(5)
    whole: list[Episode] = []
    plays = [("base", "r1", range(20)), ("base", "r2", range(20)), ("base", "r2", range(7))]
    plays += [("b", "r1", range(4, 24)), ("b", "r1", range(4, 9)), ("c", "r2", range(12, 30))]
    plays += [("b", "f1", range(20)), ("b", "l1", range(5)), ("c", "r1", range(1))]
    for policy, run, chosen in plays:
        for i in chosen:
            source, id_ = sources[i], episode_id(run, len(whole))
            origin: Literal["policy", "override"] = "override" if (policy, run) == ("c", "r1") else "policy"
            whole.append(
                replace(
                    source,
                    id=id_,
                    run_id=run,
                    policy=policy,
                    seed=draws.randrange(2),
                    correct=draws.choice((True, True, False, None)),
                    status=Status.MISSING if draws.random() < 0.05 else Status.FINISHED,
                    turns=tuple(
                        replace(turn, episode_id=id_, decision=replace(turn.decision, origin=origin))
                        for turn in source.turns
                    ),
                )
            )
    with writing(store.engine) as connection:
        insert_episodes(connection, [TimedEpisode(one, 1.0, 2.0, [1.0] * len(one.turns)) for one in whole])
    yield store, whole
    store.close()


def of(side: PolicySide, whole: list[Episode]) -> dict[str, list[Episode]]:
    """A side's finished episodes by task, said in Python."""
    found: dict[str, list[Episode]] = defaultdict(list)
    for one in whole:
        ours = one.run_id == side.run if side.run else counts(one)
        if one.policy == side.policy and ours and one.status is Status.FINISHED:
            found[one.task.id].append(one)
    return found


def counts(one: Episode) -> bool:
    """Whether totals count it."""
    return one.run_id in ("r1", "r2") and one.turns[0].decision.origin == "policy"


def right(episodes: list[Episode]) -> int:
    return sum(one.correct is True for one in episodes)


@pytest.mark.parametrize(
    ("a", "b"), [(A, B), (A, C), (PolicySide("base", "r1"), B), (B, PolicySide("b", "f1"))]
)
def test_pairs_are_what_python_pairs(
    filled: tuple[Store, list[Episode]], a: PolicySide, b: PolicySide
) -> None:
    store, whole = filled
    one, other = of(a, whole), of(b, whole)
    shared = sorted(one.keys() & other.keys())
    counted = Counter(
        (one[t][0].task.family, len(one[t]), right(one[t]), len(other[t]), right(other[t])) for t in shared
    )
    families = matched_tasks(store, a, [b])[0]
    assert {
        (family, m.n_a, m.right_a, m.n_b, m.right_b): m.tasks
        for family, told in families.items()
        for m in told
    } == counted
    compared = compare([m for told in families.values() for m in told], key="k")
    rates = [right(other[t]) / len(other[t]) - right(one[t]) / len(one[t]) for t in shared]
    assert compared.difference.difference == pytest.approx(sum(rates) / len(rates))
    cells = {"both_right": compared.both, "only_a": compared.a_only, "only_b": compared.b_only}
    cells["both_wrong"] = compared.neither
    listed = []
    for cell in CELLS:
        rows = read_shared_tasks(store, a, b, (a, b, C), cell=cell)
        assert len(rows) == cells[cell]
        listed += rows
        for row in rows:
            for side, outcome in zip((one, other, of(C, whole)), row.outcomes, strict=True):
                mine = side.get(row.task_id, [])
                assert (outcome is None) == (not mine)
                if outcome is not None:
                    assert (outcome.n, outcome.right) == (len(mine), right(mine))
                    assert outcome.solved is is_solved(right(mine), len(mine))
                    shown = next(each for each in mine if each.id == outcome.episode)
                    assert (shown.correct is True) is outcome.solved
    assert sorted(row.task_id for row in listed) == shared
    paged = [read_shared_tasks(store, a, b, (), offset=at, limit=3) for at in range(0, len(shared), 3)]
    assert [row.task_id for page in paged for row in page] == [row.task_id for row in listed]
    family = next(iter(families))
    assert {row.family for row in read_shared_tasks(store, a, b, (), family=family)} == {family}


def test_figures_and_courses_are_what_python_counts(filled: tuple[Store, list[Episode]]) -> None:
    store, whole = filled
    sides = (A, B, C, PolicySide("base", "r2"))
    for side, did, went in zip(sides, figures(store, sides), courses(store, sides), strict=True):
        mine = [one for several in of(side, whole).values() for one in several]
        assert (did.summary.n, did.summary.correct) == (len(mine), right(mine))
        assert did.tasks == len(of(side, whole))
        assert did.by_task == tuple(
            sorted((*k, n) for k, n in Counter((len(v), right(v)) for v in of(side, whole).values()).items())
        )
        assert did.seeds <= 2
        assert went.turns == Counter(len(one.turns) for one in mine)
        choices = [turn.decision for one in mine for turn in one.turns]
        assert went.routed == Counter((each.model, each.role) for each in choices)
        assert went.entropy.total() == len(choices)
        assert max(went.entropy) * ENTROPY_BIN < 4


def test_what_a_person_took_a_hand_in_changes_no_total(filled: tuple[Store, list[Episode]]) -> None:
    """Nor do forks; lists show live plays, and whoever asks for them has them counted."""
    store, whole = filled
    done = [one for one in whole if one.status is Status.FINISHED]
    mine = [one for one in done if counts(one)]
    theirs = [one for one in done if one.run_id in ("l1", "r1") and not counts(one)]
    assert min(len(theirs), len(done) - len(mine)) > 3

    def total(**where: str) -> tuple[int, int, int]:
        asked = EpisodeFilter.from_query(where)
        return (
            sum(one.n for one in policy_costs(store, asked)),
            Traffic.over(traffic_of(store, asked).values()).episodes,
            sum(one.n for one in turn_groups(store, asked)),
        )

    def told(these: list[Episode]) -> tuple[int, int, int]:
        return len(these), len(these), sum(len(one.turns) for one in these)

    assert total() == total(forks="without") == told(mine)
    assert total(forks="with") == told(done)
    assert total(run="l1") == told([one for one in done if one.run_id == "l1"])
    assert total(flag="override") == told([one for one in theirs if one.run_id == "r1"])
    listed = EpisodeFilter(status="finished")
    for asked, shown in ((listed, mine + theirs), (for_totals(listed), mine)):
        page = store.episodes.page(asked, limit=100)
        assert {one.id for one in page.items} == {one.id for one in shown}
    facets = store.episodes.facets(for_totals(listed))
    assert (facets.by_hand, facets.forks) == (len(theirs), len(done) - len(mine) - len(theirs))
    assert sum(one.n for one in facets.policy) == len(mine)


def test_a_play_that_two_decided_is_nobodys(filled: tuple[Store, list[Episode]]) -> None:
    """Asked for by the policy it began with, it is in no list, facet, group or total of that policy; it is listed and
    counted all the same, under its own name."""
    store, whole = filled
    (by_hand,) = [one for one in whole if one.turns[0].decision.origin == "override"]
    its, all_of_it = EpisodeFilter(policy="c", forks="with"), EpisodeFilter(forks="with")
    alone = [one for one in whole if one.policy == "c" and one is not by_hand]
    assert {one.id for one in store.episodes.page(its, limit=100).items} == {one.id for one in alone}
    assert by_hand.id in {one.id for one in store.episodes.page(all_of_it, limit=200).items}
    for where in (its, all_of_it, EpisodeFilter(forks="with", family=by_hand.task.family)):
        counts = {one.value: one.n for one in store.episodes.facets(where).policy}
        theirs = [one for one in alone if where.family in (None, one.task.family)]
        assert counts["c"] == len(theirs)
    groups, _ = store.episodes.groups("policy", all_of_it)
    assert {one.value: one.n for one in groups} == {
        **Counter(one.policy for one in whole if one is not by_hand),
        MIXED: 1,
    }
    assert [one.id for one in store.episodes.page(EpisodeFilter(q=TWO_DECIDED)).items] == [by_hand.id]
    # Whoever asks for such plays of a policy finds them.
    for asked in (EpisodeFilter(policy="c", flag="override"), EpisodeFilter(policy="c", q=TWO_DECIDED)):
        assert [one.id for one in store.episodes.page(asked).items] == [by_hand.id]
    done = [one for one in whole if one.status is Status.FINISHED]
    assert by_hand in done
    costs = {one.policy: one.n for one in policy_costs(store, EpisodeFilter(forks="with"))}
    assert costs[MIXED] == 1
    assert sum(costs.values()) == len(done)
    assert {name: one.episodes for name, one in traffic_of(store, all_of_it, "policy").items()} == costs
    by_policy = {one.policy: one.n for one in store.runs.policies("r1")}
    assert "c" not in by_policy  # all that it played there was taken over
    assert figures(store, [PolicySide("c", "r1")])[0].summary.n == 0


def test_one_that_two_decided_does_not_take_the_samples_place(fresh: Store) -> None:
    """Samples of a policy are set aside for one's own plays of it, and such a one is none."""
    sample, own = (end(events(births(run, tasks(1)))) for run in ("r1", "r2"))
    first = replace(own.turns[0], decision=replace(own.turns[0].decision, origin="override"))
    own = replace(own, turns=(first, *own.turns[1:]))
    for one in (sample, own):
        record_finished_run(fresh, one.run_id, "run", {}, [one])
    mark_samples(fresh, "r1")
    assert [one.id for one in fresh.episodes.page(EpisodeFilter(policy="hash")).items] == [sample.id]


def test_a_budget_cuts_episodes_where_they_would_have_been_cut(filled: tuple[Store, list[Episode]]) -> None:
    store, whole = filled
    mine = [one for several in of(A, whole).values() for one in several]
    found = accuracy_by_budget(store, *side_conditions(A))
    assert [at.budget for at in found] == list(range(1, max(len(one.turns) for one in mine) + 1))
    for at in found:
        k = at.budget
        telling = [one for one in mine if len(one.turns) >= k or one.end_reason is not EndReason.BUDGET]
        outcomes = [one.correct if len(one.turns) <= k else one.turns[k - 1].correct_after for one in telling]
        spent = [turn for one in telling for turn in one.turns[:k]]
        assert (at.n, at.right.k) == (len(telling), sum(outcome is True for outcome in outcomes))
        assert at.right.clusters == len({one.task.id for one in telling})
        assert at.turns == len(spent)
        assert at.tokens == sum(t.reply.usage.tokens_in + t.reply.usage.tokens_out for t in spent)
        assert (at.cost_usd is None) == any(t.reply.usage.cost_usd is None for t in spent)
        assert at.ci95[0] <= at.accuracy <= at.ci95[1]
    assert accuracy_by_budget(store, *side_conditions(PolicySide("nobody"))) == []


def test_episodes_under_another_setting_are_another_side(fresh: Store) -> None:
    """Of another turn budget, by argmax, by other rules, or answered by another pool: each counted by itself."""
    base = end(events(births("r1", tasks(1))))
    others: dict[str, dict[str, Any]] = {
        "r1": {}, "r2": {"turn_budget": 1}, "r3": {"argmax": True}, "r4": {"protocol": Protocol.RELEASED}, "r5": {},
    }  # fmt: skip
    for run_id, change in others.items():
        played = replace(base, id=f"e-{run_id}", run_id=run_id, turns=(), correct=run_id == "r1", **change)
        alone = replace(played, id=f"s-{run_id}", policy="single:ada", correct=run_id == "r2")
        record_finished_run(fresh, run_id, "run", {}, [played, alone])
    fresh.runs.note_pool("r5", "77aa00bb11")
    who = policies_with_episodes(fresh)
    sides = find_side(who, base.policy)
    assert len(sides) == 5
    for side in sides:
        (did,) = figures(fresh, [side])
        assert did.summary.n == 1
        assert [find_side(who, side.token)] == [[side]]
        assert side.setting is not None
        listed = fresh.episodes.page(
            EpisodeFilter(policy=base.policy, q=side.setting.expression), limit=9
        ).items
        assert len(listed) == 1
    with pytest.raises(StoreError, match="was not played with the setting"):
        find_side(who, f"{base.policy}@9")
    costs = [one for one in policy_costs(fresh, EpisodeFilter()) if one.policy == base.policy]
    assert {one.token for one in costs} == {side.token for side in sides}
    groups, _ = fresh.episodes.groups("policy")
    assert {one.value: one.settings for one in groups} == {base.policy: 5, "single:ada": 5}
    assert {one.token: one.right for one in costs if one.right} == {f"{base.policy}@5-{POOL[:6]}": 1}
    for budget, mine, theirs in ((5, 1.0, 0.0), (1, 0.0, 1.0)):
        asked = EpisodeFilter(
            q=f"budget == {budget} and pool == '{POOL}' and not argmax and protocol == 'paper'"
        )
        found = regret(fresh, asked, base.policy)
        assert [one.turn_budget for one in found.settings] == [budget]
        assert (found.accuracy.mean, found.contestants[0].accuracy.mean) == (mine, theirs)
    assert len(regret(fresh, EpisodeFilter(), base.policy).settings) == 5


def test_names_lead_to_sides(filled: tuple[Store, list[Episode]], tmp_path: Path) -> None:
    who = policies_with_episodes(filled[0])
    assert {(one.run, one.policy) for one in who} == {
        ("r1", "base"),
        ("r2", "base"),
        ("r1", "b"),
        ("r2", "c"),
    }
    assert find_side(who, "base") == [A]
    assert find_side(who, "r2/base") == [PolicySide("base", "r2")]
    assert find_side(who, "base", "r1") == [PolicySide("base", "r1")]
    for token, words in (("r1", "2 policies"), ("nobody", "no run or policy 'nobody'"), ("r1/c", "Run r1")):
        with pytest.raises(StoreError, match=words):
            find_side(who, token)
    with pytest.raises(StoreError, match="no kind of flip"):
        read_shared_tasks(filled[0], A, B, (), cell="nonsense")
    empty = new_store(tmp_path / "empty.db")
    assert policies_with_episodes(empty) == []
    assert figures(empty, [A])[0].summary.n == 0
    assert matched_tasks(empty, A, [B]) == [{}]
    empty.close()
