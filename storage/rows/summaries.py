"""Light read types: what lists, facets and comparisons show, without any turn text.

Every value is frozen and plain: no database rows, no tensors. Times are Unix seconds (UTC).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Generic, Literal, TypeVar

from core.analysis.metrics import ClusteredShare
from core.conduct.planners import CONDUCTOR
from core.episode import (
    AnswerRule,
    Decision,
    EndReason,
    Flag,
    Judgement,
    Message,
    Recorded,
    Role,
    Status,
    Verdict,
)
from core.play.marks import without_marks

T = TypeVar("T")

RunKind = Literal["run", "reproduction", "evolve", "train", "live", "fork", "reencode", "attribute", "serve"]
#: What the episodes of a run are for. Totals count what is measured, and samples, which came with the program, until
#: there is anything of one's own.
Purpose = Literal["measured", "learning", "live", "fork", "served", "reading", "sample"]
GroupBy = Literal["run", "policy", "task", "family"]
Order = Literal["newest", "oldest", "turns", "tokens", "cost", "margin", "entropy", "latency"]

#: Counts stop here: "1,000+" is enough for a reader and spares the store a full scan.
COUNT_CAP = 1000
#: Questions are cut to this many characters in lists.
QUESTION_CUT = 120
#: A decision whose logit margin is below this is flagged `low_margin`.
LOW_MARGIN = 0.1


#: The purpose of each kind of run that is one's own.
PURPOSES: dict[RunKind, Purpose] = {
    "run": "measured",
    "reproduction": "measured",
    "evolve": "learning",
    "train": "learning",
    "live": "live",
    "fork": "fork",
    "reencode": "reading",
    "attribute": "reading",
    "serve": "served",
}


class RunStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"
    FAILED = "failed"


#: Flags an episode can carry: those of its turns, then those of its course. Append only (stored by position).
EPISODE_FLAGS: tuple[str, ...] = (
    "verdict_unreadable",
    "nothing_to_judge",
    "no_answer",
    "no_suggestion",
    "truncated",
    "prompt_overflow",
    "self_verified",
    "model_error",
    "false_accept",  # ended by an ACCEPT although the answer is wrong
    "answer_broke",  # a right answer was later replaced by a wrong one
    "low_margin",  # some decision had a logit margin below LOW_MARGIN
    "override",  # a person took over a decision
    "swapped",  # a person let another policy decide from some turn on
    "prompt_shortened",
    "reused",  # a reply was there already: nobody was asked
    "refused",
    "unknown_finish",
    "unasked_tool_call",
    "recorded",
    "by_agreement",  # a verdict was made by comparing two recorded answers
    "failed_over",  # a model could not be asked, and others played on
    "repaired",  # an answer was written again, in the form that was asked for
    "continued",  # a reply that broke off was gone on with
)


@dataclass(frozen=True, slots=True)
class CappedCount:
    """How many rows match, counted up to COUNT_CAP; `capped` means there are more."""

    n: int
    capped: bool = False

    def __str__(self) -> str:
        return f"{self.n:,}+" if self.capped else f"{self.n:,}"


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a keyset-paged list. `next` and `previous` are opaque cursors, None at the ends."""

    items: tuple[T, ...]
    total: CappedCount
    next: str | None = None
    previous: str | None = None


@dataclass(frozen=True, slots=True)
class EpisodeSummary:
    id: str
    run_id: str
    task_id: str
    family: str
    question: str  # cut to QUESTION_CUT characters
    policy: str
    checkpoint_id: str | None  # set when the policy is a stored checkpoint
    generation: int | None
    status: Status
    correct: bool | None
    end_reason: EndReason | None
    turns: int
    strip: str  # e.g. "T·a W·c V·b✗ W·c V·b✓": role letter, slot letter, verdict
    tokens_in: int
    tokens_out: int
    cost_usd: float | None
    latency_s: float
    min_margin: float | None  # smallest logit margin of any decision
    mean_entropy: float | None  # nats, of the joint choice, mean over turns
    flags: tuple[str, ...]  # out of EPISODE_FLAGS
    started: float
    finished: float | None
    answer: str | None = None  # cut to QUESTION_CUT characters
    models: tuple[str, ...] = ()  # its pool in slot order: what the slot letters of `strip` stand for


@dataclass(frozen=True, slots=True)
class TurnOutline:
    """One turn without its texts: what a turn strip needs. `stage` tells running turns from finished ones."""

    episode_id: str
    index: int
    model: str
    role: Role
    stage: Literal["asked", "replied", "finished"]
    verdict: Verdict | None
    answer_after: str | None  # cut to QUESTION_CUT characters
    correct_after: bool | None
    flags: tuple[Flag, ...]
    margin: float | None
    entropy: float | None  # nats
    tokens_in: int
    tokens_out: int
    cost_usd: float | None
    latency_s: float
    error: str | None
    started: float
    sampled: bool
    argmax_model: str
    argmax_role: Role | None
    origin: str
    answer_rule: AnswerRule | None = None  # how a Worker's answer was found, where there are several ways
    finish_reason: str | None = None
    recorded: Recorded | None = None  # the row of an outcome table that its reply is
    judgements: tuple[Judgement, ...] = ()  # of its answer, where a model judges and a reader asks for them


def with_judgements(outlines: Iterable[TurnOutline], said: Sequence[Judgement]) -> tuple[TurnOutline, ...]:
    """The outlines of an episode's turns, each with what a judge said of its answer."""
    return tuple(
        replace(one, judgements=tuple(each for each in said if each.index == one.index)) for one in outlines
    )


@dataclass(frozen=True, slots=True)
class TurnText:
    """The texts of one turn. While the model writes, `partial` is True and `reply` what there is so far."""

    messages: tuple[Message, ...]
    reply: str
    reasoning: str
    partial: bool
    reply_removed: str | None = None  # the day on which it was removed from the store
    prompt_removed: str | None = None

    @property
    def said(self) -> str:
        """The reply as everybody but its writer reads it: without thinking and the marks of a chat template."""
        return without_marks(self.reply)


@dataclass(frozen=True, slots=True)
class RunSummary:
    id: str
    kind: RunKind
    purpose: Purpose
    name: str | None  # that a person gave it
    status: RunStatus
    config: Mapping[str, Any]
    created: float
    started: float | None
    finished: float | None
    heartbeat: float | None
    owner: str | None
    error: str | None  # one sentence, when failed
    episodes: int
    finished_episodes: int
    correct: int
    generations: int  # of a training, its iterations
    notes: str = ""  # what has to be known of how it is played, a sentence a line

    @property
    def is_sample(self) -> bool:
        return self.purpose == "sample"

    @property
    def accuracy(self) -> float | None:
        return self.correct / self.finished_episodes if self.finished_episodes else None


@dataclass(frozen=True, slots=True)
class RunControl:
    """What a person asks of a running worker. While `paused`, the worker plays up to its turn number
    `steps`, counted from 1 over all of its episodes."""

    cancel: bool
    paused: bool
    steps: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """What `policy` would decide for a turn that waits for a person; the decision has no hidden state. None: it cannot
    decide, and `cannot` says why."""

    policy: str
    decision: Decision | None
    cannot: str = ""


@dataclass(frozen=True, slots=True)
class PolicySummary:
    """How one policy did, over its finished episodes of one run, or of all (`run_id` None)."""

    run_id: str | None
    policy: str
    checkpoint_id: str | None
    generation: int | None
    n: int  # finished episodes
    correct: int
    missing: int  # ended by infrastructure: neither right nor wrong
    running: int
    mean_turns: float | None
    accepted: int
    false_accepts: int
    tokens: int
    cost_usd: float | None
    latency_s: float  # mean per episode

    @property
    def accuracy(self) -> float | None:
        return self.correct / self.n if self.n else None


#: The kinds of checkpoints that are planners: as it began, after its warm-up, after iterations of its training.
PLANNER_KINDS = ("start", "warm-up", "trained")


@dataclass(frozen=True, slots=True)
class CheckpointSummary:
    """One stored checkpoint without its weights, of a coordinator or of a planner; of a planner, `config` is its card,
    and its files are in `folder` where that is not None."""

    id: str
    run_id: str | None
    generation: int | None  # of a planner, its iteration
    kind: str  # "head" or "head+svf", or one of PLANNER_KINDS
    digest: str
    created: float
    config: Mapping[str, Any]
    size_bytes: int
    folder: str | None = None

    @property
    def is_planner(self) -> bool:
        return self.kind in PLANNER_KINDS

    @property
    def policy(self) -> str:
        return f"{CONDUCTOR}{self.id}" if self.is_planner else self.id

    @property
    def models(self) -> tuple[str, ...]:
        """The pool's models that it chooses among, in order."""
        return tuple(self.config.get("models", ()))


@dataclass(frozen=True, slots=True)
class UpdateSummary:
    """A generation of an evolution or an iteration of a training: its episodes, seconds and USD are sums from the
    beginning. `stats` is what `GenerationStats` or `IterationStats` has."""

    run_id: str
    index: int
    episodes: int
    wall_s: float
    spent_usd: float = 0.0
    unread_usd: float = 0.0
    checkpoint_id: str | None = None
    stats: Mapping[str, Any] = field(default_factory=dict)

    @property
    def validated(self) -> float | None:
        """The share of validation tasks that what it had learned by then solved; None where that was not measured."""
        found = self.stats.get("validation") or {}
        share: float | None = found.get("accuracy", found.get("right"))
        return share


@dataclass(frozen=True, slots=True)
class CandidateSummary:
    """One candidate of a generation; `fitness` is None when all of its rollouts are missing."""

    index: int
    fitness: float | None
    rollouts: int
    missing: int = 0


@dataclass(frozen=True, slots=True)
class FacetValue:
    value: str
    n: int


@dataclass(frozen=True, slots=True)
class Facets:
    """Counts by field over the filtered episodes, largest first; runs newest first, numbers in order."""

    run: tuple[FacetValue, ...]
    policy: tuple[FacetValue, ...]
    generation: tuple[FacetValue, ...]
    family: tuple[FacetValue, ...]
    correct: tuple[FacetValue, ...]  # values "right", "wrong", "none"
    end_reason: tuple[FacetValue, ...]
    status: tuple[FacetValue, ...]
    flag: tuple[FacetValue, ...]
    turns: tuple[FacetValue, ...]
    forks: int = 0  # those among the episodes, or those left out of them
    by_hand: int = 0  # likewise: no forks, yet not measured
    samples: int = 0  # likewise; none where samples are all there is


@dataclass(frozen=True, slots=True)
class EpisodeGroup:
    """The episodes of a list that share a value, counted. Values as `EpisodeFilter` takes them; of policies an empty
    one stands for the plays that two decided."""

    value: str
    n: int
    right: ClusteredShare  # of judged episodes; those of one task fall together
    missing: int
    turns: float | None  # mean over finished episodes
    tokens: int
    cost_usd: float | None  # None when some price is unknown
    newest: float
    settings: int = 1  # of a policy: under how many its episodes were played, which this line averages


@dataclass(frozen=True, slots=True)
class SavedView:
    """A list of episodes kept under a name: the query parameters of its page."""

    id: str
    name: str
    query: Mapping[str, str]
    created: float


@dataclass(frozen=True, slots=True)
class Health:
    """What `doctor` and the health line say about the store."""

    url: str
    schema: str
    database: str  # e.g. "SQLite 3.40.1"
    warning: str | None
    runs: int
    running: int
    stalled: int
    episodes: int
    turns: int
    checkpoints: int
    size_bytes: int | None
    free_bytes: int | None
    backup_hint: str
