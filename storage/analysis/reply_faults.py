"""What a run's replies lacked, model by model: answers, plans and verdicts that nobody could read, and what failed."""

from __future__ import annotations

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


def _counted(groups: Iterable[FlaggedTurns], could: _Test | None, did: _Test) -> dict[str, Share]:
    """By model, in how many of the turns in which it could be (None: in all) something is."""
    found: dict[str, Share] = {}
    for group in filter(could, groups):
        before = found.get(group.model, Share())
        found[group.model] = Share(before.k + group.n * did(group), before.n + group.n)
    return dict(sorted(found.items()))


def reply_faults(groups: Iterable[FlaggedTurns]) -> list[ReplyFaults]:
    """The faults of each model that spoke in these turns, by its name."""
    turns = list(groups)
    found = {name: _counted(turns, *tests) for name, tests in KINDS.items()}
    models = sorted({model for of in found.values() for model in of})
    return [ReplyFaults(one, {name: of.get(one, Share()) for name, of in found.items()}) for one in models]


def cut_transcripts(groups: Iterable[FlaggedTurns]) -> Share:
    """In how many of these turns the coordinator's encoder could not hold the whole transcript."""
    found = _counted(groups, None, _flagged(Flag.PROMPT_OVERFLOW)).values()
    return Share(sum(one.k for one in found), sum(one.n for one in found))


def shortened_prompts(groups: Iterable[FlaggedTurns]) -> dict[str, Share]:
    """In how many of its turns each model was sent a shortened transcript, for those that ever were."""
    found = _counted(groups, None, _flagged(Flag.PROMPT_SHORTENED))
    return {model: share for model, share in found.items() if share.k}
