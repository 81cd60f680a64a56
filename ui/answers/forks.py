"""What a run of forks came to: whether the change mattered, and in which episodes; which turn mattered; whether an
ending was luck; and every play."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from types import MappingProxyType

from core.analysis.power import MOST_PLAYS
from storage.reads.forks import Child
from storage.store import Store
from ui.answers.blocks import (
    Address,
    Answer,
    Block,
    Column,
    Curve,
    Estimate,
    Estimates,
    Line,
    Mark,
    Point,
    Table,
)
from ui.presentation.steps import change_words
from ui.presentation.theme import STATUS_MARKS, correct_mark
from ui.presentation.words import Generations, decider_words, strip_text
from ui.runs.forks.results import (
    PAIR_WORDS,
    RULE,
    ForkSide,
    Grown,
    Luck,
    Results,
    by_turn,
    decisive_words,
    luck_words,
    read_luck,
)
from ui.runs.plans import ForkPlan

#: So many different endings of plays are told in a sentence, the most frequent ones.
_ENDS = 8
NO_NAMES: Generations = MappingProxyType({})


def findings(
    store: Store, run: str, plan: ForkPlan, results: Results, names: Generations = NO_NAMES
) -> list[Answer]:
    """What a run came to, by what it asks; `names` are the generations by which policies are named."""
    if plan.asks_luck:
        return [luck(read_luck(store, run, plan))]
    if plan.every_turn:
        return [turns(plan, results, recorded_right=store.episodes.get(plan.every_turn).correct is True)]
    found = matters(plan, results)
    return [found, episodes(store, run, results, names)] if len(plan.branches) > 1 else [found]


def matters(plan: ForkPlan, results: Results) -> Answer:
    """Whether a change mattered: both sides with their intervals, and the verdict."""
    wanted = results.baseline.wanted + results.fork.wanted
    both = Estimates(
        [
            Line("Baseline, unchanged", _estimate(results.baseline), plain=True),
            Line(f"Fork, {change_words(plan.change)}", _estimate(results.fork)),
        ],
        "end right",
    )
    blocks: list[Block] = [both] if results.baseline.n or results.fork.n else []  # none of none is no share
    if results.fork.certain:
        blocks.append("The fork is certain: nothing is left to chance, so one play of it is enough.")
    if results.open:
        blocks.append(f"So far: {results.open} of {wanted} plays are not over.")
    clustered = f" The intervals are clustered over {len(results.grown)} episodes." * (len(results.grown) > 1)
    measured = [f"The difference is taken pair by pair. {PAIR_WORDS}{clustered}"]
    return Answer("fork", "Did the change matter?", results.verdict, blocks, measured, "Fork")


def turns(plan: ForkPlan, results: Results, *, recorded_right: bool) -> Answer:
    """How an episode ends from each of its turns on, as it was and changed."""
    outcomes, other = by_turn(plan, results), plan.other_words

    def line(side: str) -> list[Point]:
        points = [(one, one.unchanged if side == "unchanged" else one.other) for one in outcomes]
        return [
            Point(
                one.turn + 1,
                _estimate(found),
                detail="" if side == "unchanged" else change_words(one.change),
                mark=Mark(to=Address("replay", {"ep": plan.every_turn, "t": str(one.turn + 1)})),
            )
            for one, found in points
            if found.share is not None
        ]

    sentences = (
        luck_words(outcomes, recorded_right=recorded_right),
        decisive_words(outcomes, recorded_right=recorded_right, other=other),
    )
    changed = "a right reply in that turn" if plan.right_replies else "the runner-up of that turn's decision"
    return Answer(
        "turns",
        "Which turn mattered?",
        "\n".join(sentence for sentence in sentences if sentence),
        [Curve({"unchanged": line("unchanged"), other: line(other)}, ("from turn", "end right"))],
        [
            f"Share of right plays from each turn on, with 95 % intervals: unchanged, and with {changed}. A turn "
            "decided it where the change reverses what more than half of the plays come to. With few plays most "
            "intervals overlap."
        ],
    )


def luck(found: Luck) -> Answer:
    """Whether a recorded ending was luck."""
    kind = "good" if found.recorded_right else "bad"
    measured: list[Block] = [RULE]
    if later := len(found.outcomes) - len(found.plays):
        measured.append(
            f"It could be told after {len(found.plays)} plays. {later} more were under way; they are listed and do not "
            "count."
        )
    return Answer("luck", f"Was it {kind} luck?", found.sentence, (), measured)


def plays(grown: Grown, *, pairs: bool) -> Answer:
    """Every play of a forked turn, `pairs` of baseline and fork one below the other; of an episode that is replayed
    unchanged, every one."""
    sides = (("baseline", grown.baseline), ("fork", grown.forks))
    every = [(number, side, child) for side, children in sides for number, child in children.items()]
    parent, turn = grown.branch.parent, str(grown.branch.turn + 1)
    table = Table.of(
        sorted(every, key=lambda one: one[:2]),
        Column("number", "pair" if pairs else "play", "count", lambda one: one[0] + 1),
        Column("side", "side", get=lambda one: one[1] if pairs else ""),
        Column("outcome", "outcome", get=lambda one: _outcome(one[2])),
        Column("answer", "answer", get=lambda one: one[2].summary.answer or ""),
        Column("moves", "turns", get=lambda one: strip_text(one[2].summary.strip)),
        Column(
            "replay", "", "link", lambda one: Address("replay", {"ep": one[2].id, "t": turn}), link="Replay"
        ),
        Column(
            "compare",
            "",
            "link",
            lambda one: Address("pair", {"a": parent, "b": one[2].id, "t": turn}),
            link="Compare with the recorded play",
        ),
    )
    ends = Counter((side, _outcome(child), child.summary.answer or "no answer") for _, side, child in every)
    said = "; ".join(
        f"{n} {side} {outcome}, {answer}" for (side, outcome, answer), n in ends.most_common(_ENDS)
    )
    measured = [] if pairs else [f"At most {MOST_PLAYS} plays, each with random draws of its own."]
    begun = [table] if every else []
    return Answer("plays", "How did every play end?", said or "No play has begun yet.", begun, measured)


def episodes(store: Store, run: str, results: Results, names: Generations) -> Answer:
    """A batch's episodes, those that the change moved most first."""
    parents = {one.id: one for one in store.episodes.summaries([one.branch.parent for one in results.grown])}

    def parent_words(one: Grown) -> str:
        parent = parents.get(one.branch.parent)
        return (parent.question or "(no question)") if parent else "deleted since"

    def policy_words(one: Grown) -> str:
        parent = parents.get(one.branch.parent)
        return decider_words(parent, names) if parent else ""

    changes = [_mean(one) or 0.0 for one in results.grown]
    more, less = sum(one > 0 for one in changes), sum(one < 0 for one in changes)
    said = f"Of {len(changes)} episodes {more} ended right more often with the change, {less} less often."
    table = Table.of(
        sorted(results.grown, key=lambda one: -abs(_mean(one) or 0.0)),
        Column("question", "question", get=parent_words),
        Column("points", "change, points", "points", _mean),
        Column("baseline", "baseline right", get=lambda one: _right(one.baseline.values())),
        Column("fork", "fork right", get=lambda one: _right(one.forks.values())),
        Column("turn", "turn", "count", lambda one: one.branch.turn + 1),
        Column("policy", "by", get=policy_words),
        Column(
            "plays",
            "",
            "link",
            lambda one: Address("forks", {"run": run, "ep": one.branch.parent}),
            link="Its plays",
        ),
    )
    return Answer("episodes", "In which episodes did it matter?", said, [table])


def _estimate(side: ForkSide) -> Estimate:
    return Estimate(side.share, None if side.share is None else (side.low, side.high), side.right, side.n)


def _outcome(child: Child) -> str:
    mark = STATUS_MARKS[child.summary.status] if child.correct is None else correct_mark(child.correct)
    return f"{mark.glyph} {mark.word}"


def _right(children: Iterable[Child]) -> str:
    known = [bool(one.correct) for one in children]
    return f"{sum(known)} of {len(known)}"


def _mean(one: Grown) -> float | None:
    """Fork minus baseline over its pairs."""
    return sum(fork - baseline for baseline, fork in one.pairs) / len(one.pairs) if one.pairs else None
