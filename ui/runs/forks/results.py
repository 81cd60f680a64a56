"""What a run of forks came to: each side's outcomes with intervals, their paired difference, and what it cost; whether
a recorded ending was luck, and which turn mattered."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.analysis.metrics import PairedDifference, clustered_difference, clustered_share
from core.analysis.power import ERROR, MOST_PLAYS, LuckVerdict, difference_seen, luck_verdict
from core.changes import BASELINE, FORK, Change
from core.episode import Status
from storage.reads import forks
from storage.reads.forks import Child
from storage.rows.summaries import RunStatus, RunSummary
from storage.store import Store
from ui.presentation.steps import change_words
from ui.runs.plans import Branch, ForkPlan, runs_of


def seen_words(pairs: int) -> str:
    """What so many pairs can show, a sentence."""
    smallest = difference_seen(pairs)
    many = _pairs_words(pairs)
    verb = "detects" if pairs == 1 else "detect"
    if smallest >= 1:
        return f"{many} {verb} no difference reliably: play more."
    return f"{many} {verb} a difference of {100 * smallest:.0f} points (80 % power)."


#: What a pair is, in a sentence.
PAIR_WORDS = "A pair is one baseline and one fork that make the same random draws: they share a seed."


@dataclass(frozen=True, slots=True)
class ForkSide:
    """The forks or the baseline: `right` of `n` that are over, `share` with its 95 % interval (over several episodes
    the mean of their shares), how many are `wanted`; `certain`: nothing was left to chance."""

    right: int
    n: int
    wanted: int
    share: float | None
    low: float
    high: float
    certain: bool
    ids: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """For scripts."""
        ci95 = None if self.certain else (self.low, self.high)
        return {"right": self.right, "n": self.n, "share": self.share, "ci95": ci95, "episodes": self.ids}


@dataclass(frozen=True, slots=True)
class Grown:
    """One forked turn with its children by number, as far as they have begun."""

    branch: Branch
    baseline: Mapping[int, Child]
    forks: Mapping[int, Child]

    @property
    def children(self) -> tuple[Child, ...]:
        """Of both sides."""
        return *self.baseline.values(), *self.forks.values()

    def holds(self, episode_id: str | None) -> bool:
        """Whether an episode is this branch's parent or one of its children."""
        return episode_id in (self.branch.parent, *(one.id for one in self.children))

    @property
    def pairs(self) -> list[tuple[bool, bool]]:
        """(baseline right, fork right) of each seed that both have finished. A fork that is certain stands beside
        every seed."""
        certain = self.forks.get(0) if self.branch.certain else None
        both = ((one, certain or self.forks.get(number)) for number, one in sorted(self.baseline.items()))
        return [
            (a.correct, b.correct)
            for a, b in both
            if b is not None and a.correct is not None and b.correct is not None
        ]


@dataclass(frozen=True, slots=True)
class Results:
    """A run's forks beside their baseline. `recorded` is how each forked episode ended when it was recorded, None where
    nobody knows its answer; `difference` is fork minus baseline over pairs of one seed, clustered by episode;
    `spent_usd` is None when a price is unknown; `gone` are reused children that were deleted since."""

    grown: tuple[Grown, ...]
    recorded: tuple[bool | None, ...]
    baseline: ForkSide
    fork: ForkSide
    difference: PairedDifference
    spent_usd: float | None
    parents_unchanged: bool
    gone: int = 0

    @property
    def open(self) -> int:
        """Children that are not over."""
        return self.baseline.wanted - self.baseline.n + self.fork.wanted - self.fork.n

    @property
    def verdict(self) -> str:
        """The finding in sentences a reader can quote: as recorded, as it ends unchanged, and what the change does."""
        found = self.difference
        if not found.n:
            return "Nothing to compare yet: no pair has both a finished baseline and a finished fork."
        points = f"{100 * found.difference:+.0f} points"
        between = f"95 % interval {100 * found.low:+.0f} to {100 * found.high:+.0f}"
        if found.low > 0 or found.high < 0:
            does = "helps" if found.low > 0 else "hurts"
            means = f"The change {does}: {points} ({between}), more than chance explains."
        else:
            most = 100 * max(-found.low, found.high)
            # A bound of half of all plays or more excludes nothing that anybody would have expected.
            bound = f"An effect beyond {most:.0f} points is unlikely ({_pairs_words(found.n)})."
            unclear = f"The difference may be chance: {points} ({between})."
            means = f"{unclear} {bound if most < 50 else seen_words(found.n)}"
        return f"{self._endings} {means}"

    @property
    def _endings(self) -> str:
        unchanged, changed = (f"{side.right} of {side.n}" for side in (self.baseline, self.fork))
        if len(self.recorded) == 1 and self.recorded[0] is not None:
            right = self.recorded[0]
            recorded = f"The recorded play was {'right' if right else 'wrong'}."
            found = luck(self.baseline, right)
            return f"{recorded} Replayed unchanged, {unchanged} were right: {found}. Changed, {changed} were right."
        known = [right for right in self.recorded if right is not None]
        recorded = f"Of the recorded plays {sum(known)} of {len(known)} were right. " if known else ""
        return f"{recorded}Replayed unchanged, {unchanged} were right. Changed, {changed} were right."


def luck(unchanged: ForkSide, recorded_right: bool) -> str:
    """Whether a recorded ending was luck, by how often the episode ends so when it is played on `unchanged`: the end of
    a sentence. Nothing is claimed that the 95 % interval leaves open."""
    lucky = "the success was good luck" if recorded_right else "the miss was bad luck"
    if unchanged.low <= 0.5 <= unchanged.high:
        interval = f"95 % interval {100 * unchanged.low:.0f} to {100 * unchanged.high:.0f} %"
        return f"too few plays to say if {lucky} ({interval})"
    if recorded_right is (unchanged.low > 0.5):
        return f"a {'right' if recorded_right else 'wrong'} answer is the usual outcome"
    return lucky


def read_results(store: Store, run_id: str, plan: ForkPlan) -> Results:
    """The results of a run as they stand now: no texts are read but to see that the parents are as they were."""
    played = forks.of_runs(store, [run_id])[run_id]
    reused = forks.by_id(store, _reused(plan))
    grown = _all_grown(plan, [*played, *reused])
    baseline, fork = _sides(grown)
    known = all(one.spent_usd is not None for one in played)
    parents = [branch.parent for branch in plan.branches]
    digests = forks.episode_digests(store, parents)
    ended = {one.id: one.correct for one in store.episodes.summaries(parents)}
    return Results(
        grown,
        tuple(ended.get(parent) for parent in parents),
        baseline,
        fork,
        _difference(grown, baseline, fork),
        store.runs.spent_usd(run_id) if known else None,
        all(digests.get(branch.parent) == branch.digest for branch in plan.branches),
        len(_reused(plan)) - len(reused),
    )


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """How an episode ends from one of its turns on (from 0): as it was, and with its runner-up or
    a right reply."""

    turn: int
    change: Change
    unchanged: ForkSide
    other: ForkSide

    @property
    def turns_it(self) -> int:
        """1 where the change ends right more often than not and the unchanged choice does not, -1 the other way
        round, else 0."""
        likely = [side.share is not None and side.share > 0.5 for side in (self.unchanged, self.other)]
        return likely[1] - likely[0]


def by_turn(plan: ForkPlan, results: Results) -> tuple[TurnOutcome, ...]:
    """The outcomes of a plan for every turn, first to last."""
    return tuple(
        TurnOutcome(
            one.branch.turn,
            change,
            _side([one.baseline], one.branch.baseline, False),
            _side([one.forks], one.branch.n, one.branch.certain),
        )
        for one in results.grown
        if (change := plan.change_at(one.branch)) is not None
    )


def decisive(outcomes: Sequence[TurnOutcome], *, recorded_right: bool) -> TurnOutcome | None:
    """The earliest turn at which the change turns the recorded ending round; None where none does. For a failure
    that is the definition of failure attribution in arXiv 2505.00212."""
    return next((one for one in outcomes if one.turns_it == (-1 if recorded_right else 1)), None)


def read_tallies(store: Store, plans: Mapping[str, ForkPlan]) -> dict[str, tuple[ForkSide, ForkSide]]:
    """Baseline and fork of many runs, by run: two queries."""
    played = forks.of_runs(store, list(plans))
    names = dict.fromkeys(name for plan in plans.values() for name in _reused(plan))
    reused = {one.id: one for one in forks.by_id(store, list(names))}
    return {
        run: _sides(
            _all_grown(plan, [*played[run], *(reused[one] for one in _reused(plan) if one in reused)])
        )
        for run, plan in plans.items()
    }


def _reused(plan: ForkPlan) -> list[str]:
    return [name for branch in plan.branches for name in branch.reused.values()]


def _all_grown(plan: ForkPlan, children: Iterable[Child]) -> tuple[Grown, ...]:
    by_turn: dict[tuple[str, int], list[Child]] = defaultdict(list)
    for child in children:
        by_turn[child.fork.parent, child.fork.turn].append(child)
    grown = []
    for branch in plan.branches:
        parts: dict[str, dict[int, Child]] = {BASELINE: {}, FORK: {}}
        for child in by_turn[branch.parent, branch.turn]:
            if child.fork.number is not None:
                parts[child.fork.part][child.fork.number] = child
        grown.append(Grown(branch, parts[BASELINE], parts[FORK]))
    return tuple(grown)


def _sides(grown: Sequence[Grown]) -> tuple[ForkSide, ForkSide]:
    certain = all(one.branch.certain for one in grown)
    return (
        _side([one.baseline for one in grown], sum(one.branch.baseline for one in grown), False),
        _side([one.forks for one in grown], sum(one.branch.n for one in grown), certain),
    )


def _difference(grown: Sequence[Grown], baseline: ForkSide, fork: ForkSide) -> PairedDifference:
    """Fork minus baseline, paired by seed. A certain fork of one turn has no spread: the baseline's is all there is."""
    pairs = [one.pairs for one in grown]
    if len(grown) > 1 or not fork.certain or not pairs[0]:
        return clustered_difference(pairs)
    end, share = float(fork.right), baseline.share or 0.0
    return PairedDifference(end - share, end - baseline.high, end - baseline.low, len(pairs[0]))


def _side(sides: Sequence[Mapping[int, Child]], wanted: int, certain: bool) -> ForkSide:
    over = [[bool(one.correct) for one in side.values() if one.correct is not None] for side in sides]
    right, n = sum(map(sum, over)), sum(map(len, over))
    share, low, high = clustered_share(over)
    ids = tuple(one.id for side in sides for one in side.values())
    return ForkSide(right, n, wanted, share if n else None, low, high, certain and bool(n), ids)


def _pairs_words(pairs: int) -> str:
    return f"{pairs} pair{'' if pairs == 1 else 's'}"


#: How long plays go on, and how sure what is told is.
RULE = (
    "It is replayed from its first turn with new random draws, until it can be told whether it would end right more "
    f"often than wrong, or {MOST_PLAYS} times. This is looked at after every play, so each look asks for more than a "
    f"single test would: over all looks together it is told wrongly in less than {100 * ERROR:.0f} of 100 cases."
)
#: Among so many newest runs of forks one is looked for that is of an episode.
_LOOKED_AT = 200


@dataclass(frozen=True, slots=True)
class Luck:
    """Plays of an episode that are over, in their order: how each ended; what they tell, None as long as that is
    nothing; and how it ended when it was recorded."""

    outcomes: tuple[bool, ...]
    told: LuckVerdict | None
    recorded_right: bool

    @property
    def plays(self) -> tuple[bool, ...]:
        """Those that count: until it could be told."""
        return self.outcomes[: self.told.n] if self.told else self.outcomes

    @property
    def sentence(self) -> str:
        """What they came to, plain text."""
        n, right = len(self.plays), sum(self.plays)
        what, kind = ("success", "good") if self.recorded_right else ("miss", "bad")
        if not n:
            return "Not replayed to its end yet."
        times = f"{right} time{'' if right == 1 else 's'} in {n}"
        if later := len(self.outcomes) - n:  # side by side with the one that told it
            times += f" ({later} more play{'' if later == 1 else 's'} ended after it could be told)"
        if self.told is None:
            few = "too few plays to say" if n < MOST_PLAYS else f"even {n} plays do not say"
            return f"Replayed unchanged it was right {times}: {few} if the {what} was {kind} luck."
        if self.told.right is self.recorded_right:
            return f"Replayed unchanged it was right {times}: the {what} was no {kind} luck, it is the rule."
        return f"Replayed unchanged it was right {times}: the {what} was {kind} luck."


def read_luck(store: Store, run: str, plan: ForkPlan) -> Luck:
    """What the plays of a run came to so far."""
    children = [*forks.of_runs(store, [run])[run], *forks.by_id(store, _reused(plan))]
    parent = next(iter(store.episodes.summaries([plan.branches[0].parent])), None)
    outcomes = endings(children)
    return Luck(outcomes, luck_verdict(outcomes), parent is not None and parent.correct is True)


def is_told(store: Store, run: str, plan: ForkPlan) -> bool:
    """Whether the plays of a run that asks for luck tell it already; False for any other."""
    return plan.asks_luck and read_luck(store, run, plan).told is not None


def endings(children: Iterable[Child]) -> tuple[bool, ...]:
    """How plays ended, by their numbers, as far as all before them are over: quick ones are not counted first, which
    are right more often or less often than slow ones. What was lost by a failure of the infrastructure counts as never
    played."""
    by_number = {one.fork.number: one for one in children if one.fork.part == BASELINE}
    found: list[bool] = []
    for number in range(MOST_PLAYS):
        one = by_number.get(number)
        if one is None or (one.correct is None and one.summary.status is not Status.MISSING):
            break
        if one.correct is not None:
            found.append(one.correct)
    return tuple(found)


def luck_runs(store: Store) -> dict[str, tuple[RunSummary, ForkPlan]]:
    """By episode, the newest run that asks whether its ending was luck; of those that were taken out before they began
    none."""
    found: dict[str, tuple[RunSummary, ForkPlan]] = {}
    for run, plan in runs_of(store, "fork", ForkPlan, limit=_LOOKED_AT):
        never_begun = run.status is RunStatus.CANCELLED and not run.episodes
        if plan.asks_luck and not never_begun:
            found.setdefault(plan.branches[0].parent, (run, plan))
    return found


def luck_words(outcomes: Sequence[TurnOutcome], *, recorded_right: bool) -> str:
    """Whether the recorded ending was luck, by what the unchanged first turn comes to; plain text, empty before that
    is known."""
    first = outcomes[0].unchanged if outcomes else None
    if first is None or first.share is None:
        return ""
    from_turn = f"Replayed unchanged from turn {outcomes[0].turn + 1}"
    return f"{from_turn} it was right {_times(first)}: {luck(first, recorded_right)}."


def decisive_words(outcomes: Sequence[TurnOutcome], *, recorded_right: bool, other: str = "runner-up") -> str:
    """The decisive turn, where each was changed to its `other`; plain text, empty before anything is known."""
    if any(one.unchanged.share is None or one.other.share is None for one in outcomes) or not outcomes:
        return ""
    found = decisive(outcomes, recorded_right=recorded_right)
    if found is None:
        return _none_decisive(outcomes, recorded_right, other)
    return f"Turn {found.turn + 1} decided it: {_effect(found)}."


def _none_decisive(outcomes: Sequence[TurnOutcome], recorded_right: bool, other: str) -> str:
    def gained(one: TurnOutcome) -> float:
        more = (one.other.share or 0.0) - (one.unchanged.share or 0.0)
        return -more if recorded_right else more

    best, turned = max(outcomes, key=gained), "wrong" if recorded_right else "right"
    if gained(best) <= 0:
        return (
            f"No single turn decided it: {_ARTICLES[other]} {other} made it {turned} more often at no turn."
        )
    return f"No single turn decided it. The largest effect is at turn {best.turn + 1}: {_effect(best)}."


_ARTICLES = {"runner-up": "the", "right reply": "a"}


def _effect(one: TurnOutcome) -> str:
    return f"{change_words(one.change)}, it was right {_times(one.other)}, unchanged {_times(one.unchanged)}"


def _times(side: ForkSide) -> str:
    return f"{side.right} time{'' if side.right == 1 else 's'} in {side.n}"
