"""The nouns of a coordinated episode: task, decision, reply, turn, episode; what `play()` asks of its driver, and the
events that a driver yields, in this order per episode.

All values are frozen and comparable. Text, numbers and enums only: no tensors, no clocks, no database rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal, get_args

from core.changes import Fork
from core.finish import Finish, finish_of
from core.grader import Grader
from core.workflow import PlanFault, Workflow


class Role(StrEnum):
    """What a model is asked to be for one turn (paper section 3.2)."""

    WORKER = "worker"
    THINKER = "thinker"
    VERIFIER = "verifier"


#: Order of the role logits in every head, as in the authors' code: solver, thinker, verifier.
ROLE_ORDER: tuple[Role, ...] = (Role.WORKER, Role.THINKER, Role.VERIFIER)


class Verdict(StrEnum):
    """A Verifier's judgement of the latest answer."""

    ACCEPT = "ACCEPT"
    REVISE = "REVISE"


class Protocol(StrEnum):
    """Which rules an episode is played by (trinity.md 1.9, 1.10)."""

    PAPER = "paper"
    RELEASED = "released"


class EndReason(StrEnum):
    """Why an episode stopped."""

    ACCEPTED = "accepted"
    BUDGET = "budget"
    VERIFIER_FIRST = "verifier_first"  # released protocol: a Verifier before any answer ends with reward 0
    COMPLETED = "completed"  # a workflow ran to its end
    UNREADABLE_PLAN = "unreadable_plan"  # a planner wrote no workflow that could be run: reward 0
    CANCELLED = "cancelled"
    ERROR = "error"
    DEADLINE = "deadline"
    COST_CEILING = "cost_ceiling"
    TOOL_CALLS = "tool_calls"  # a Worker asks for tools to be called, and waits for their results
    NOT_RECORDED = "not_recorded"  # the outcome table has no reply to this task of anybody it could ask


class Status(StrEnum):
    """Where an episode stands."""

    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"  # its process died; every committed turn is readable, it can be resumed
    MISSING = "missing"  # ended by an infrastructure failure: never counted as reward 0


class Flag(StrEnum):
    """Something about a turn that a reader should notice."""

    VERDICT_UNREADABLE = "verdict_unreadable"  # none, several or contradictory verdicts: counted as REVISE
    NOTHING_TO_JUDGE = "nothing_to_judge"  # a Verifier turn before any answer
    NO_ANSWER = "no_answer"  # a Worker reply without a readable answer
    NO_SUGGESTION = "no_suggestion"  # a Thinker reply without a readable suggestion
    TRUNCATED = "truncated"  # the reply hit its token limit
    PROMPT_OVERFLOW = "prompt_overflow"  # the transcript did not fit the encoder and was cut
    PROMPT_SHORTENED = "prompt_shortened"  # the transcript did not fit the model's window and was cut
    SELF_VERIFIED = "self_verified"  # the Verifier judged its own model's answer
    MODEL_ERROR = "model_error"  # the model failed; see Reply.error
    REFUSED = "refused"  # the model, or its provider's content filter, would not answer
    UNKNOWN_FINISH = "unknown_finish"  # the server gave a reason to stop that nobody knows
    UNASKED_TOOL_CALL = "unasked_tool_call"  # the model called a tool that nobody offered: nobody answers it
    FAILED_OVER = "failed_over"  # its model could not be asked, or broke off; the turn does not count
    CONTINUED = "continued"  # its reply goes on where the one before broke off, which a person was reading
    REPAIRED = "repaired"  # the answer, written again in the form that was asked for; the turn does not count
    REUSED = "reused"  # the reply was there already: nobody was asked, and nothing was paid
    RECORDED = "recorded"  # the reply is a row of an outcome table: the model had given it before, to the bare question
    BY_AGREEMENT = "by_agreement"  # the verdict was made by comparing two recorded answers: no model wrote it


#: By which rule a Worker's answer was found in its reply (`core.play.answers.find_answer`).
AnswerRule = Literal[
    "pattern", "tag", "open tag", "fence", "box", "json", "hashes", "sentence", "letter", "bare", "conclusion", "whole"
]  # fmt: skip
ANSWER_RULES: tuple[AnswerRule, ...] = get_args(AnswerRule)


@dataclass(frozen=True, slots=True)
class Message:
    """One chat message as a provider receives it. `beside`: what stands beside its content in OpenAI's form, a JSON
    object with a name, `tool_calls` or a `tool_call_id`, and `images` (`core.images`); empty for nothing."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    beside: str = ""

    @property
    def parts(self) -> tuple[str, ...]:
        """All of it, without what is not there."""
        return (self.role, self.content, self.beside) if self.beside else (self.role, self.content)

    @property
    def text(self) -> str:
        """Its content, and below it what stands beside."""
        return "\n\n".join(filter(None, self.parts[1:]))


@dataclass(frozen=True, slots=True)
class Task:
    """One problem. `answer` is the right one, for a `program` the JSON list of its tests; empty: nobody knows it, and
    nothing is judged. `answer_pattern` is a regular expression that finds an answer in a reply before all other rules
    do; empty for none. `conversation`: the messages of a person's conversation, whose next reply is what is asked for;
    `question` then tells them as one text."""

    id: str
    question: str
    answer: str
    grader: Grader = "exact"
    family: str = "user"
    split: str = "test"
    answer_pattern: str = field(default="", repr=False)
    conversation: tuple[Message, ...] = field(default=(), repr=False)

    @property
    def content(self) -> dict[str, str]:
        """All of it by name and as text, but for a pattern and a conversation that are not there: older digests know of
        none."""
        own = {
            name: getattr(self, name) for name in ("id", "question", "answer", "grader", "family", "split")
        }
        own |= {"answer_pattern": self.answer_pattern} if self.answer_pattern else {}
        told = json.dumps([one.parts for one in self.conversation])
        return own | ({"conversation": told} if self.conversation else {})


@dataclass(frozen=True, slots=True)
class Usage:
    """What a call consumed, the tries of it that came to nothing included. `cost_usd` is None when its tokens or its
    price are not known (never a made-up 0); `at_most_usd` is then the most that it can have cost, where prices are
    known. `tokens_cached`: of those sent, what the provider had read before and bills at its cached price.
    `unread_usd`: of the cost, that of answers that could not be read or broke off, by the tokens told or at most."""

    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float | None = None
    tokens_cached: int = 0
    at_most_usd: float | None = None
    unread_usd: float = 0.0

    @property
    def charged_usd(self) -> float | None:
        """What it counts as below a ceiling; None where neither tokens nor prices are known."""
        return self.at_most_usd if self.cost_usd is None else self.cost_usd


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a call gave no usable reply, or a grader no verdict. `model`: its own fault, played on as an empty reply.
    `infrastructure`: network, limits, deadline, the grader; the episode becomes missing, never reward 0."""

    kind: Literal["model", "infrastructure"]
    message: str


#: Whether an answer is right, or why nobody can tell, once somebody has worked it out.
PendingVerdict = Future[bool | Failure]


@dataclass(frozen=True, slots=True)
class Recorded:
    """Which row of an outcome table a reply is, and what was read from it when the table was made. `table` is its name
    and edition (mmlu-pro@1f2e3d4c); `answer` is None where it has none. `verdict`, of a Verifier's turn alone, was
    written by the model, or made `by_agreement` of its answer with the standing one."""

    table: str
    sample: int = 0
    answer: str | None = None
    verdict: Verdict | None = None
    by_agreement: bool = False


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's answer to one Ask, or its failure as data."""

    text: str
    reasoning: str = ""
    finish_reason: str = "stop"  # in the server's word
    usage: Usage = Usage()
    latency_s: float = 0.0
    tool_calls: str = ""  # JSON list of the offered calls it asks for; `text` tells them in words too
    error: Failure | None = None
    reused: bool = False  # it was there already: nobody was asked, and nothing was paid
    recorded: Recorded | None = None  # the row of an outcome table that it is

    @property
    def finish(self) -> Finish:
        """What the finish reason means."""
        return finish_of(self.finish_reason)

    def as_reused(self) -> Reply:
        """The reply as another episode holds it, for which nobody was asked."""
        usage = Usage(self.usage.tokens_in, self.usage.tokens_out, 0.0, self.usage.tokens_cached)
        return replace(self, usage=usage, latency_s=0.0, reused=True)


@dataclass(frozen=True, slots=True)
class Decision:
    """The coordinator's choice for one turn, with everything needed to see why. `model_logits` has one entry per pool
    slot in `Episode.models` order and `role_logits` one per ROLE_ORDER; both are empty for policies without a head.
    Probabilities are after the mask. `mask` is True where a slot may be chosen, over slots then roles. `hidden_state`
    is the encoder's penultimate-token state as little-endian float16 bytes (2 bytes x hidden size), or empty. `recipe`
    says how it was computed, such as cuda/bfloat16/sdpa; empty for float32 on the CPU, and where nothing was."""

    model: str
    role: Role
    model_logits: tuple[float, ...] = ()
    role_logits: tuple[float, ...] = ()
    model_probs: tuple[float, ...] = ()
    role_probs: tuple[float, ...] = ()
    argmax_model: str = ""
    argmax_role: Role | None = None
    sampled: bool = True
    model_mask: tuple[bool, ...] = ()
    role_mask: tuple[bool, ...] = ()
    hidden_state: bytes = b""
    prompt_digest: str = ""
    prompt_tokens: int = 0
    prompt_overflow: bool = False
    recipe: str = ""
    origin: Literal["policy", "override", "suggested_role", "repair"] = "policy"


@dataclass(frozen=True, slots=True)
class Step:
    """Which step of a workflow a turn is: its round and place, its duty, the turns it could read; counted from 0."""

    round: int
    place: int
    subtask: str
    visible: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """One reply of a planner and what was read from it: a workflow, or why it is none. In a later round `keeps` says
    that the planner wrote no lists, which leaves the answer as it is. Numbers are from 0. In a fork the workflow has
    the change, and the reply is what the planner wrote."""

    episode_id: str
    round: int
    attempt: int
    planner: str
    messages: tuple[Message, ...]
    reply: Reply
    workflow: Workflow | None = None
    fault: PlanFault | None = None
    keeps: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    """One reply of the judge about the answer of turn `index`, and the rating from 1 to 10 that was read from it; None
    where none can be. `number` counts those of an episode, from 0. No model reads it."""

    episode_id: str
    index: int
    number: int
    judge: str
    answer: str
    messages: tuple[Message, ...]
    reply: Reply
    rating: float | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """A finished turn: decision, messages, reply and what was read from it."""

    episode_id: str
    index: int  # 0-based
    decision: Decision
    messages: tuple[Message, ...]
    reply: Reply
    suggestion: str = ""  # Thinker only
    suggested_role: Role | None = None  # released protocol, Thinker only
    verdict: Verdict | None = None  # Verifier only
    verdict_raw: str = ""  # the words the verdict was read from
    answer_rule: AnswerRule | None = None  # Worker only: how its answer was found
    answer_after: str | None = None  # the latest Worker answer once this turn is over
    correct_after: bool | None = None  # its grade; None while there is no answer
    flags: tuple[Flag, ...] = ()
    step: Step | None = None  # of a workflow's turn; None for a coordinator's

    @property
    def counts(self) -> bool:
        """Whether it is one of the turn budget's: no failure that others made good, and no answer written again."""
        return Flag.FAILED_OVER not in self.flags and Flag.REPAIRED not in self.flags


#: What can be removed from a recording later: hidden states, prompts, or all texts.
Removable = Literal["states", "prompts", "texts"]


@dataclass(frozen=True, slots=True)
class Episode:
    """One task played by one policy; `turns` grows by one per turn, everything else is fixed from the start
    except the outcome fields, which are set once. `meta` holds notes of other programs: nothing here reads it."""

    id: str
    run_id: str
    task: Task
    policy: str  # checkpoint id, "single:NAME", "random", ...
    models: tuple[str, ...]  # pool slots in head order
    protocol: Protocol = Protocol.PAPER
    turn_budget: int = 5
    seed: int = 0
    argmax: bool = False
    generation: int | None = None  # of the checkpoint that plays; the iteration of a planner that was trained
    left_out: tuple[str, ...] = ()  # models that may not be chosen
    deciders: Mapping[int, str] = field(default_factory=dict)  # turn -> the policy that decides from it on
    fork: Fork | None = None
    turns: tuple[Turn, ...] = ()
    plans: tuple[Plan, ...] = ()  # of a workflow's episode, in order
    judgements: tuple[Judgement, ...] = ()  # of a task that a model judges, in order
    status: Status = Status.RUNNING
    end_reason: EndReason | None = None
    answer: str | None = None
    correct: bool | None = None
    error: str | None = None  # why it is missing
    removed: Mapping[Removable, str] = field(default_factory=dict)  # -> day (UTC, 2026-11-05) of removal
    meta: Mapping[str, str] = field(default_factory=dict)

    @property
    def reward(self) -> float | None:
        """Binary terminal reward (paper section 2); None while running or missing, and where nobody knows the right
        answer."""
        if self.status is not Status.FINISHED or not self.task.answer:
            return None
        return 1.0 if self.correct else 0.0


@dataclass(frozen=True, slots=True)
class TranscriptEntry:
    """One past turn as the coordinator reads it. `answer`: the one in its text, of a recorded reply."""

    role: Role
    model: str
    text: str
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Transcript:
    """The coordinator's state: the question and every turn so far."""

    question: str
    entries: tuple[TranscriptEntry, ...] = ()


@dataclass(frozen=True, slots=True)
class Decide:
    """Choose model and role for turn `index`; turns whose model could not be asked are not counted. `key` seeds the
    sampling: the same key draws the same choice. `messages` is set by the released protocol, whose encoder input is a
    chat and not a transcript."""

    transcript: Transcript
    index: int
    key: str
    episode_id: str = ""
    model_mask: tuple[bool, ...] = ()  # empty: every slot allowed
    role_mask: tuple[bool, ...] = ()
    messages: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask a pool model for one reply. `seed` and `sample` key the model's own sampling: the same
    (model, messages, limits, seed, sample) is the same reply; `sample` counts repeats within an episode."""

    model: str
    role: Role
    messages: tuple[Message, ...]
    seed: int = 0
    sample: int = 0
    max_tokens: int | None = None  # None: the model entry's own limit
    temperature: float | None = None
    top_p: float | None = None  # None: as the server does without
    tools: str = ""  # JSON list of the tools that the model may ask to be called
    must_call: bool = False  # one of them has to be called
    #: The bytes of the messages' images as data: addresses, by SHA-256; whose digests the messages hold.
    images: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    answer_format: str = ""  # JSON of the form that the answer shall have, as OpenAI's `response_format`
    may_call: bool = True  # False: they only explain the calls that the messages hold
    live: bool = field(default=False, compare=False)  # a person reads it as it comes: it is not begun again
    judged: str | None = field(default=None, compare=False)  # the answer that a Verifier judges
    episode: str = field(default="", compare=False)  # whose turn it is: no part of what is asked
    budget_usd: float | None = field(default=None, compare=False)  # what its tries may cost; None: no limit


@dataclass(frozen=True, slots=True)
class WritePlan:
    """Write a workflow, where the planner is no model of the pool; answered with its reply. `key` seeds sampling; the
    messages say the rest: `allowed` slots of models, `words` of which each subtask is one (empty: any)."""

    messages: tuple[Message, ...]
    question: str
    allowed: tuple[int, ...]
    key: str
    round: int = 0
    episode_id: str = ""
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AskSteps:
    """Everything that is asked and not answered yet, by the number of its turn: the driver begins what is new, and
    answers with the number and the reply of whichever comes first."""

    asks: Mapping[int, Ask]


@dataclass(frozen=True, slots=True)
class Grade:
    """Is this answer right? Answered with a bool, or with why nobody can tell. `form_of`: whether it has the form that
    whoever waits for this episode asked for, answered with True, or with what is wrong with it; empty: whether it is
    right."""

    task: Task
    answer: str
    form_of: str = ""


@dataclass(frozen=True, slots=True)
class EpisodeStarted:
    """A new episode without turns."""

    episode: Episode


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """The coordinator has decided and the prompt is built; the model has not been asked yet. `kept_as`: of a step that
    another model was asked for in vain, the number of the turn that this call becomes; None for no such call."""

    episode_id: str
    index: int
    decision: Decision
    messages: tuple[Message, ...]
    kept_as: int | None = None


@dataclass(frozen=True, slots=True)
class Delta:
    """A piece of a reply that is still being written."""

    episode_id: str
    index: int
    text: str
    live: bool = False  # it is the answer's, whatever follows


@dataclass(frozen=True, slots=True)
class Replied:
    """The model's reply, reported before it is acted on, so that a paid reply is never lost."""

    episode_id: str
    index: int
    reply: Reply


@dataclass(frozen=True, slots=True)
class EpisodeFinished:
    """The episode with all its turns and its outcome."""

    episode: Episode


Event = EpisodeStarted | Plan | TurnStarted | Delta | Replied | Judgement | Turn | EpisodeFinished


def episode_of(event: Event) -> str:
    """The id of the episode that an event belongs to."""
    return event.episode.id if isinstance(event, EpisodeStarted | EpisodeFinished) else event.episode_id
