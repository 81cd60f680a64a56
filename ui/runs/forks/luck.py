"""Whether a recorded ending was luck, by plays of the same episode with nothing changed: what they came to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from core.analysis.power import ERROR, MOST_PLAYS, LuckVerdict, luck_verdict
from core.episode import BASELINE, Status
from storage.reads import forks
from storage.reads.forks import Child
from storage.rows.summaries import RunStatus, RunSummary
from storage.store import Store
from ui.runs.plans import ForkPlan, known_plan

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
    reused = [name for branch in plan.branches for name in branch.reused.values()]
    children = [*forks.of_runs(store, [run])[run], *forks.by_id(store, reused)]
    parent = next(iter(store.episodes.summaries([plan.branches[0].parent])), None)
    outcomes = ended(children)
    return Luck(outcomes, luck_verdict(outcomes), parent is not None and parent.correct is True)


def is_told(store: Store, run: str, plan: ForkPlan) -> bool:
    """Whether the plays of a run that asks for luck tell it already; False for any other."""
    return plan.asks_luck and read_luck(store, run, plan).told is not None


def ended(children: Iterable[Child]) -> tuple[bool, ...]:
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
    for run in store.runs.list(kind="fork", limit=_LOOKED_AT):
        plan = known_plan(run)
        if isinstance(plan, ForkPlan) and plan.asks_luck and not _never_begun(run):
            found.setdefault(plan.branches[0].parent, (run, plan))
    return found


def _never_begun(run: RunSummary) -> bool:
    return run.status is RunStatus.CANCELLED and not run.episodes
