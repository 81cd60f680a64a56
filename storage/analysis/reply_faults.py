"""What a run's replies lacked, model by model: answers, plans and verdicts that nobody could read, and what failed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from core.episode import Flag, Role

#: From this share on a fault is worth a warning: it costs accuracy, and often a setting mends it.
LOUD = 0.05


@dataclass(frozen=True, slots=True)
class Share:
    """`k` of `n` turns."""

    k: int = 0
    n: int = 0

    @property
    def value(self) -> float:
        return self.k / self.n if self.n else 0.0


@dataclass(frozen=True, slots=True)
class ReplyFaults:
    """How often a model's replies lacked something, by what, over the turns in which it could have."""

    model: str
    shares: Mapping[str, Share] = field(default_factory=dict)

    @property
    def any(self) -> bool:
        return any(share.k for share in self.shares.values())

    @property
    def loud(self) -> list[str]:
        return [name for name, share in self.shares.items() if share.value > LOUD]


class FlaggedTurns(Protocol):
    """`n` turns of one model in one role that were noticed alike."""

    @property
    def model(self) -> str: ...
    @property
    def role(self) -> Role: ...
    @property
    def flags(self) -> tuple[Flag, ...]: ...
    @property
    def n(self) -> int: ...


_Test = Callable[[FlaggedTurns], bool]


def _flagged(flag: Flag) -> _Test:
    return lambda group: flag in group.flags


def _as(role: Role) -> _Test:
    return lambda group: (
        group.role is role and not {Flag.NOTHING_TO_JUDGE, Flag.MODEL_ERROR, Flag.REFUSED} & set(group.flags)
    )


def _asked(group: FlaggedTurns) -> bool:
    return Flag.NOTHING_TO_JUDGE not in group.flags


#: The kinds of faults: their name, in which turns they can be, and in which they are.
KINDS: Mapping[str, tuple[_Test, _Test]] = {
    "no answer": (_as(Role.WORKER), _flagged(Flag.NO_ANSWER)),
    "no plan": (_as(Role.THINKER), _flagged(Flag.NO_SUGGESTION)),
    "no verdict": (_as(Role.VERIFIER), _flagged(Flag.VERDICT_UNREADABLE)),
    "cut": (_asked, _flagged(Flag.TRUNCATED)),
    "unknown end": (_asked, _flagged(Flag.UNKNOWN_FINISH)),
    "unasked tool": (_asked, _flagged(Flag.UNASKED_TOOL_CALL)),
    "refused": (_asked, _flagged(Flag.REFUSED)),
    "failed": (_asked, lambda group: Flag.MODEL_ERROR in group.flags and Flag.REFUSED not in group.flags),
}


def reply_faults(groups: Iterable[FlaggedTurns]) -> list[ReplyFaults]:
    """The faults of each model that spoke in these turns, by its name."""
    counted: dict[str, dict[str, list[int]]] = defaultdict(lambda: {name: [0, 0] for name in KINDS})
    for group in groups:
        for name, (could, did) in KINDS.items():
            if could(group):
                counts = counted[group.model][name]
                counts[0] += group.n if did(group) else 0
                counts[1] += group.n
    return [
        ReplyFaults(model, {name: Share(*counts) for name, counts in of.items()})
        for model, of in sorted(counted.items())
    ]


def cut_transcripts(groups: Iterable[FlaggedTurns]) -> Share:
    """In how many of these turns the coordinator's encoder could not hold the whole transcript."""
    counts = [(group.n if Flag.PROMPT_OVERFLOW in group.flags else 0, group.n) for group in groups]
    return Share(sum(k for k, _ in counts), sum(n for _, n in counts))


def shortened_prompts(groups: Iterable[FlaggedTurns]) -> dict[str, Share]:
    """In how many of its turns each model was sent a shortened transcript, for those that ever were."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for group in groups:
        counts[group.model][0] += group.n if Flag.PROMPT_SHORTENED in group.flags else 0
        counts[group.model][1] += group.n
    return {model: Share(k, n) for model, (k, n) in sorted(counts.items()) if k}
