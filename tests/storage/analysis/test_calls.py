"""Calls are counted once: not again in forks that carry them, nor where a reply was reused or written by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from core.changes import Change, Fork
from core.episode import EndReason, Episode, Flag, Reply, Role, Turn, Usage, Verdict
from core.finish import EDITED
from storage.analysis.costs import pool_means, spending_by, sum_spending
from storage.analysis.health import model_health
from storage.analysis.verdicts import (
    VerdictOutcome,
    by_author,
    ledgers,
    turn_groups,
    turn_rates,
    with_judgement,
    wrong_accepts,
)
from storage.filters.episode_filter import EpisodeFilter
from storage.recorder import record
from storage.rows.engine import writing
from storage.rows.schema import run
from storage.store import Store
from tests.builders.recorded import MODELS, RUN, episode, events_of
from tests.builders.stores import begin_run, filled_store
from ui.presentation.words import wrong_accepts_words

EVERY = EpisodeFilter(forks="with")
COST_USD = 0.25
FORKS = "rforks"


def priced(turn: Turn, index: int) -> Turn:
    return replace(turn, reply=replace(turn.reply, usage=Usage(30, 12, COST_USD), latency_s=1.0 + index))


def played(name: str) -> Episode:
    """Five turns, all for money; the third is a Verifier's that sends a wrong answer back."""
    made = episode(name, ("35", "35"), said=None)
    return replace(made, turns=tuple(priced(turn, i) for i, turn in enumerate(made.turns)), correct=False)


def forked(parent: Episode, name: str, at: int, turns: tuple[Turn, ...]) -> Episode:
    kept = tuple(replace(turn, episode_id=name) for turn in parent.turns[:at])
    own = tuple(replace(turn, episode_id=name) for turn in turns)
    fork = Fork(parent.id, at, Change("model", "m"), 0)
    return replace(parent, id=name, fork=fork, turns=(*kept, *own), run_id=FORKS)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """One episode of five turns; a fork that carries three and plays two; one of which the fourth turn is written by
    hand and the fifth a reply that stood already, as of a workflow's step."""
    opened = filled_store(tmp_path / "calls.db", _calls)
    yield opened
    opened.close()


def _calls(opened: Store, _: int) -> None:
    begin_run(opened, RUN, "run", {})
    begin_run(opened, FORKS, "fork", {})
    parent = played("e1")
    first = forked(parent, "f1", 3, parent.turns[3:])
    by_hand = replace(parent.turns[3], reply=Reply("36", "", EDITED, Usage(0, 0, 0.0)))
    stood = replace(parent.turns[4], reply=parent.turns[4].reply.as_reused(), flags=(Flag.REUSED,))
    second = forked(parent, "f2", 3, (by_hand, stood))
    for one in (parent, first, second):
        list(record(opened, events_of(one)))


def test_turns_that_a_fork_carries_are_no_calls(store: Store) -> None:
    calls = {one.model: one.calls for one in model_health(store, EVERY)}
    asked = [*played("e1").turns, *played("e1").turns[3:]]
    assert calls == Counter(turn.decision.model for turn in asked)
    assert {one.model: one.calls for one in model_health(store, EpisodeFilter())} == Counter(
        turn.decision.model for turn in played("e1").turns
    )
    only = model_health(store, EpisodeFilter(forks="only"))
    assert sum(one.calls for one in only) == 2, "the forks' own"


def test_money_is_counted_once(store: Store) -> None:
    whole = sum_spending(spending_by(turn_groups(store, EVERY), lambda one: one.model).values())
    assert whole is not None
    assert whole.cost_usd == pytest.approx(7 * COST_USD)
    assert whole.tokens == 7 * 42
    assert store.runs.spent_usd(RUN) + store.runs.spent_usd(FORKS) == pytest.approx(7 * COST_USD)


def test_what_a_call_takes_is_not_told_by_what_forks_carry(fresh: Store) -> None:
    begin_run(fresh, RUN, "run", {})
    begin_run(fresh, FORKS, "fork", {})
    parent = played("e1")
    long = replace(parent.turns[4], reply=replace(parent.turns[4].reply, usage=Usage(30, 120, COST_USD)))
    by_hand = replace(parent.turns[4], reply=Reply("36", "", EDITED, Usage(0, 0, 0.0)))
    for one in (parent, forked(parent, "f1", 4, (long,)), forked(parent, "f2", 4, (by_hand,))):
        list(record(fresh, events_of(one)))
    with writing(fresh.engine) as connection:
        connection.execute(run.update().values(pool="digest"))
    means = pool_means(fresh, "digest")
    assert means is not None
    assert means.n == 6, "five of the parent, and the one call of a fork"
    assert means.calls_per_episode == 5
    model = parent.turns[4].decision.model
    own = [turn for turn in parent.turns if turn.decision.model == model]
    assert means.models[model].tokens_out == pytest.approx((12 * len(own) + 120) / (len(own) + 1))


def test_a_verdict_that_forks_carry_is_one_verdict(store: Store) -> None:
    verdicts = [turn.index for turn in played("e1").turns if turn.decision.role is Role.VERIFIER]
    assert verdicts == [2, 4], "the second one a fork plays again; in the other fork it stood already"
    books = ledgers(turn_groups(store, EVERY), turn_rates(store, EVERY))
    assert sum(one.turns for one in books) == 3
    assert sum(one.false_accept.n for one in books) == 3
    assert sum(one.counts.get(VerdictOutcome.REVISED_WRONG, 0) for one in books) == 1
    on = by_author(store, EVERY)
    assert sum(one.n for one in on.pairs.values()) == 3


def accepted(name: str, *, answer: str, ends: bool) -> Episode:
    """An episode with an ACCEPT of `answer` in its third turn, which ends it, or does not, as in a workflow: there a
    second one follows."""
    made = episode(name, (answer, answer))
    turns = [turn if i != 2 else replace(turn, verdict=Verdict.ACCEPT) for i, turn in enumerate(made.turns)]
    if ends:
        return replace(made, turns=tuple(turns[:3]), correct=answer == "32", end_reason=EndReason.ACCEPTED)
    return replace(made, turns=tuple(turns), correct=answer == "32", end_reason=EndReason.BUDGET)


def test_wrong_answers_accepted_are_told_by_verdict_by_episode_and_by_what_they_ended(fresh: Store) -> None:
    begin_run(fresh, RUN, "run", {})
    for one in (
        accepted("e1", answer="31", ends=True),
        accepted("e2", answer="31", ends=False),
        accepted("e3", answer="32", ends=True),
    ):
        list(record(fresh, events_of(one)))
    found = wrong_accepts(fresh, EpisodeFilter())
    assert found == (3, 2, 1)
    assert fresh.episodes.page(EpisodeFilter(flag="false_accept")).total.n == found.ended
    behind = with_judgement(MODELS[0], VerdictOutcome.ACCEPTED_WRONG)
    assert found.episodes == len(
        {
            one.id
            for name in MODELS
            for one in fresh.episodes.page(EpisodeFilter(q=behind.replace(MODELS[0], name))).items
        }
    )


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ((0, 0, 0), ""),
        (
            (1, 1, 1),
            "1 verdict accepted a wrong answer, in 1 episode. It ended with that verdict: a false accept.",
        ),
        (
            (3, 3, 3),
            "3 verdicts accepted a wrong answer, in 3 episodes. Each ended with that verdict: a false accept.",
        ),
        (
            (40, 38, 30),
            "40 verdicts accepted a wrong answer, in 38 episodes. 30 of these ended with that verdict (false "
            "accepts); the other 8 are of workflows, where an ACCEPT ends nothing.",
        ),
        (
            (2, 1, 0),
            "2 verdicts accepted a wrong answer, in 1 episode. 0 of these ended with that verdict (false accepts); "
            "the other one is of workflows, where an ACCEPT ends nothing.",
        ),
    ],
)
def test_counts_of_wrong_accepts_in_words(counts: tuple[int, int, int], said: str) -> None:
    assert wrong_accepts_words(*counts) == said
