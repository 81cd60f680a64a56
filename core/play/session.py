"""The role loop as a generator without input or output: it asks, a driver answers (trinity.md 1.6, 1.10).

    Decide(...) -> Decision   Ask(...) -> Reply   Grade(...) -> bool or Failure   everything else -> None

The order within a turn: Decide, TurnStarted, Ask, Replied, Grade (for an answer not seen before; where a model judges,
Ask and Judgement), Turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace

from core.draws import reply_seed, turn_key
from core.episode import (
    ROLE_ORDER,
    Ask,
    Decide,
    Decision,
    EndReason,
    Episode,
    Failure,
    Flag,
    Grade,
    Judgement,
    Message,
    Protocol,
    Replied,
    Reply,
    Role,
    Status,
    Transcript,
    TranscriptEntry,
    Turn,
    TurnStarted,
    Usage,
    Verdict,
)
from core.errors import CheckpointError, ConfigError
from core.finish import ONLY_UNASKED_CALLS, TOO_LONG, UNASKED_CALLS, Finish
from core.images import image_count
from core.play import chat, reading, roles
from core.play.judging import graded
from core.play.marks import without_marks
from core.pool.spec import ModelSpec

Request = Decide | Ask | Grade | TurnStarted | Replied | Judgement | Turn
Response = Decision | Reply | bool | Failure | None
Play = Generator[Request, Response, Episode]

#: Who broke off so often in an episode is not asked to go on any more.
MOST_BROKEN_OFF = 3
#: The reply of a Verifier's turn before any answer: the turn is spent, but no model is asked.
NOT_ASKED = Reply(text="", finish_reason="not_asked", usage=Usage(0, 0, 0.0))


def play(
    episode: Episode,
    specs: Mapping[str, ModelSpec],
    *,
    model_mask: Sequence[bool] = (),
    role_mask: Sequence[bool] = (),
    served: bool = False,
) -> Play:
    """Play an episode to its end and return it. Recorded turns are taken as they are and played on from.

    Masks are True where a slot of `episode.models` or of ROLE_ORDER may be chosen; empty allows all. Models that the
    episode leaves out, and roles that none of the others can play, are masked besides. An infrastructure
    failure, of a model or of the grader, returns the episode as missing, without the turn it fell in. Where somebody
    waits for the answer (`served`), the turn of a model that could not be asked is kept, counts for no turn of the
    budget, and the others play on; where none is left the episode is missing. A reply that a person had begun to read
    when it broke off is gone on with, also by its own model. An answer that has not the form that was
    asked for is then written again, once, by the same model. Raises ConfigError for an episode that cannot be
    played."""
    _check(episode, specs, model_mask, role_mask)
    model_mask, role_mask = masks_of(episode, specs, model_mask, role_mask)
    _check(episode, specs, model_mask, role_mask)
    state = _EpisodeState(episode, episode.turns, tuple(model_mask), tuple(role_mask))
    answer = state.situation.answer
    can_grade, images = bool(episode.task.answer), image_count(episode.task.conversation)
    if answer is not None and answer not in state.grades and can_grade:  # recorded, but never graded
        correct = yield from graded(episode, len(state.turns) - 1, answer, specs, state.judgements)
        if isinstance(correct, Failure):
            return state.missing(correct)
        state.grades[answer] = bool(correct)
        state.turns[-1] = replace(state.turns[-1], correct_after=bool(correct))
    end, fault = state.ending(), ""
    while end is None or not fault:
        if end is None:
            choice = yield state.decide()
            assert isinstance(choice, Decision)
            decision = state.heed_suggested_role(choice)
        elif served and state.can_repair(end, specs):
            form = yield Grade(episode.task, state.situation.answer or "", episode.id)
            if not isinstance(form, Failure):
                break
            decision, fault = state.repair(), form.message
        else:
            break
        index, spec = len(state.turns), specs[decision.model]
        # What a Verifier would judge: the authors' code any Worker reply, the paper an answer.
        judged = state.situation.response if state.released else state.situation.answer
        nothing_to_judge = decision.role is Role.VERIFIER and judged is None
        messages: tuple[Message, ...] = ()
        if not nothing_to_judge:  # nothing either where its window cannot hold it
            situation = replace(state.situation, fault=fault, begun=state.begun)
            room = spec.text_tokens(images)
            messages = roles.messages_for(spec.dialect, decision.role, situation, key=state.key, room=room)
        yield TurnStarted(episode.id, index, decision, messages)
        reply: Response
        if images and messages and not spec.images:
            reply = cannot_see(spec)
        elif messages:
            reply = yield state.ask(decision, messages, spec)
        else:
            reply = NOT_ASKED if nothing_to_judge else too_long_for(spec)
        assert isinstance(reply, Reply)
        reply = as_served(reply) if served else reply
        failed = reply.error is not None and reply.error.kind == "infrastructure"
        if failed and not served:
            assert reply.error is not None
            if reply.usage.charged_usd:  # of tries that came to nothing: it is stored, but not used again
                yield Replied(episode.id, index, reply)
            return state.missing(reply.error)
        yield Replied(episode.id, index, reply)
        turn = state.read(decision, messages, reply)
        if turn.answer_after is not None and turn.answer_after not in state.grades and can_grade:
            correct = yield from graded(episode, index, turn.answer_after, specs, state.judgements)
            if isinstance(correct, Failure):
                return state.missing(correct)
            turn = replace(turn, correct_after=bool(correct))
        state.add(turn)
        yield turn
        if failed and state.model_mask and not any(state.model_mask):  # nobody is left
            assert reply.error is not None
            return state.missing(reply.error)
        end = end or state.ending()
    assert end is not None
    over = state.ended(Status.FINISHED, end)
    right = over.answer is not None and state.grades.get(over.answer, False)
    return replace(over, correct=right if can_grade else None)


def masks_of(
    episode: Episode,
    specs: Mapping[str, ModelSpec],
    model_mask: Sequence[bool] = (),
    role_mask: Sequence[bool] = (),
) -> tuple[tuple[bool, ...], tuple[bool, ...]]:
    """Both masks of an episode: those that are given, without the models that it leaves out, and without the roles that
    none of the others can play. Empty where all is allowed."""
    models = tuple(
        (not model_mask or model_mask[slot]) and name not in episode.left_out
        for slot, name in enumerate(episode.models)
    )
    able = {role for name, may in zip(episode.models, models, strict=True) if may and name in specs
            for role in specs[name].roles}  # fmt: skip
    roles_allowed = tuple(
        (not role_mask or role_mask[place]) and role in able for place, role in enumerate(ROLE_ORDER)
    )
    return (() if all(models) else models), (() if all(roles_allowed) else roles_allowed)


def request_at(episode: Episode, index: int) -> Decide:
    """What the coordinator is asked before turn `index` of an episode; CheckpointError when it ended before."""
    state = _EpisodeState(replace(episode, turn_budget=index + 1), episode.turns[:index])
    if state.ending():
        raise CheckpointError(f"This episode was over before turn {index + 1}.")
    return state.decide()


def propose(
    episode: Episode, decide: Callable[[Decide], Decision], *, model_mask: Sequence[bool] = ()
) -> Decision | None:
    """What would be decided for the turn that an episode goes on with; None when it is over. Nobody is asked but
    `decide`."""
    state = _EpisodeState(episode, episode.turns, tuple(model_mask))
    return None if state.ending() else state.heed_suggested_role(decide(state.decide()))


def reread_turn(episode: Episode, index: int, reply: Reply) -> Turn:
    """Recorded turn `index` with another reply of its model, read by the rules that read the recorded one.

    The grade of an answer that no turn before it had is left open (None). Only for a turn whose model was asked."""
    state, turn = _EpisodeState(episode, episode.turns[:index]), episode.turns[index]
    return state.read(turn.decision, turn.messages, reply)


def recorded_requests(episode: Episode) -> list[Decide]:
    """What the policy was asked before each recorded turn; masks, which turns do not record, are left open."""
    state, decides = _EpisodeState(episode), []
    for turn in episode.turns:
        decides.append(state.decide())
        state.add(turn)
    return decides


def _check(
    episode: Episode, specs: Mapping[str, ModelSpec], model_mask: Sequence[bool], role_mask: Sequence[bool]
) -> None:
    absent = [name for name in episode.models if name not in specs]
    if absent:
        raise ConfigError(
            f"The pool has no model named '{absent[0]}', which policy '{episode.policy}' chooses from: "
            "use the pool it was made for, or add the model."
        )
    if episode.turn_budget < 1:
        raise ConfigError(f"A turn budget of {episode.turn_budget} leaves nothing to play: give at least 1.")
    for what, mask, size in (
        ("model", model_mask, len(episode.models)),
        ("role", role_mask, len(ROLE_ORDER)),
    ):
        if mask and (len(mask) != size or not any(mask)):
            raise ConfigError(f"A {what} mask needs {size} entries of which at least one is allowed.")


@dataclass(slots=True)
class _EpisodeState:
    """The state of an episode after its turns so far, recorded and played alike."""

    episode: Episode
    recorded: InitVar[Sequence[Turn]] = ()
    model_mask: tuple[bool, ...] = ()
    role_mask: tuple[bool, ...] = ()
    turns: list[Turn] = field(default_factory=list)
    situation: roles.Situation = field(init=False)
    released: bool = field(init=False)
    suggested_role: Role | None = None
    answered_by: str = ""
    grades: dict[str, bool] = field(default_factory=dict)
    judgements: list[Judgement] = field(init=False)
    asked: Counter[tuple[str, tuple[Message, ...]]] = field(default_factory=Counter)
    uncounted: int = 0  # turns that are none of the budget's
    begun: str = ""  # what there is of an answer that a person reads already, and that broke off

    def __post_init__(self, recorded: Sequence[Turn]) -> None:
        self.situation = roles.Situation(self.episode.task, self.episode.protocol)
        self.released = self.episode.protocol is Protocol.RELEASED
        self.judgements = [*self.episode.judgements]
        for turn in recorded:
            self.add(turn)

    @property
    def counted(self) -> int:
        """How many turns of the budget were played."""
        return len(self.turns) - self.uncounted

    @property
    def key(self) -> str:
        """Keys every random choice of the next turn; the policy is no part of it (common random numbers)."""
        return turn_key(self.episode.seed, self.episode.task.id, self.counted)

    def add(self, turn: Turn) -> None:
        role, model = turn.decision.role, turn.decision.model
        self.uncounted += not turn.counts
        if Flag.FAILED_OVER in turn.flags:
            # As if it had not been: the decision is taken again, without the model, unless it wrote a part of it.
            self.turns.append(turn)
            failed = [
                one for one in self.turns if Flag.FAILED_OVER in one.flags and one.decision.model == model
            ]
            self.begun = chat.joined(self.begun, chat.shown_of(turn.reply.text))
            if len(failed) >= MOST_BROKEN_OFF or not turn.reply.text:
                self.model_mask = tuple(
                    name != model and (not self.model_mask or self.model_mask[slot])
                    for slot, name in enumerate(self.episode.models)
                )
            return
        said = [one.reply.text for one in self.turns if one.decision.model == model]
        text = transcript_text(turn.reply, said)
        self.turns.append(turn)
        own = turn.reply.recorded.answer if turn.reply.recorded else None
        entries = (*self.situation.entries, TranscriptEntry(role, model, text, own))
        self.situation = replace(self.situation, entries=entries, answer=turn.answer_after)
        self.suggested_role = turn.suggested_role
        if turn.messages:
            self.asked[model, turn.messages] += 1
        if turn.suggestion or self.released:
            # Released: used up by the Worker or Verifier that followed it.
            self.situation = replace(self.situation, suggestion=turn.suggestion)
        if role is Role.WORKER:
            self.situation = replace(self.situation, response=text, thoughts=(*self.situation.thoughts, text))
            if self.released or Flag.NO_ANSWER not in turn.flags:
                self.answered_by = model
        if turn.answer_after is not None and turn.correct_after is not None:
            self.grades[turn.answer_after] = turn.correct_after

    def ending(self) -> EndReason | None:
        """Why the episode is over; None while it goes on."""
        if self.turns and self.turns[-1].verdict is Verdict.ACCEPT:
            return EndReason.ACCEPTED
        if self.turns and self.turns[-1].reply.tool_calls:
            return EndReason.TOOL_CALLS
        if self.turns and self.released and Flag.NOTHING_TO_JUDGE in self.turns[-1].flags:
            return EndReason.VERIFIER_FIRST
        return EndReason.BUDGET if self.counted >= self.episode.turn_budget else None

    def can_repair(self, end: EndReason, specs: Mapping[str, ModelSpec]) -> bool:
        """Whether an answer is there that its model can write again: of a conversation that is over, and not yet."""
        spec = specs.get(self.answered_by) if self.situation.answer is not None else None
        over = end in (EndReason.ACCEPTED, EndReason.BUDGET) and bool(self.episode.task.conversation)
        return (
            spec is not None
            and spec.dialect == "general"
            and over
            and Flag.REPAIRED not in self.turns[-1].flags
        )

    def repair(self) -> Decision:
        """Whose answer it is writes it again."""
        return Decision(self.answered_by, Role.WORKER, sampled=False, origin="repair")

    def decide(self) -> Decide:
        episode = self.episode
        return Decide(
            transcript=Transcript(episode.task.question, self.situation.entries),
            index=self.counted,
            key=self.key,
            episode_id=episode.id,
            model_mask=self.model_mask,
            role_mask=tuple(role is Role.WORKER for role in ROLE_ORDER) if self.begun else self.role_mask,
            messages=roles.router_messages(self.situation, len(episode.models)) if self.released else (),
        )

    def heed_suggested_role(self, decision: Decision) -> Decision:
        """A Thinker's suggested role overrides the head's on the very next turn; the model stays as drawn.

        It overrides neither a person's choice nor the role mask."""
        role = self.suggested_role
        if role is None or self.begun or decision.origin == "override":
            return decision
        place = ROLE_ORDER.index(role)
        for mask in (self.role_mask, decision.role_mask):  # what was asked for, and the policy's own
            if mask and not mask[place]:
                return decision
        return replace(decision, role=role, origin="suggested_role")

    def ask(self, decision: Decision, messages: tuple[Message, ...], spec: ModelSpec) -> Ask:
        return Ask(
            model=decision.model,
            role=decision.role,
            messages=messages,
            seed=reply_seed(self.episode.seed, self.episode.task.id),
            sample=self.asked[decision.model, messages],
            judged=self.situation.answer if decision.role is Role.VERIFIER else None,
            temperature=spec.role_temperature.get(decision.role),
            episode=self.episode.id,
        )

    def read(self, decision: Decision, messages: tuple[Message, ...], reply: Reply) -> Turn:
        """The finished turn, all but the grade of an answer not seen before."""
        role, task, found = decision.role, self.episode.task, reading.NOTHING_TO_JUDGE
        unasked = reply.error is not None and reply.error.kind == "infrastructure"
        if unasked:
            found = reading.Reading()
        elif reply.recorded is not None:
            found = reading.read_recorded(role, reply)
        elif reply != NOT_ASKED:
            dialect, tag = roles.dialect_and_tag(messages, task)
            # A verdict stands at the end (of `paper` replies): one that was cut off has none.
            cut = (
                role is Role.VERIFIER and reply.finish in (Finish.CUT, Finish.FILTERED) and not self.released
            )
            called = reply.tool_calls or reply.finish_reason == ONLY_UNASKED_CALLS  # which is no answer
            text = "" if cut or called or reply.error else reply.text
            if self.begun and dialect != "terse" and not (called or reply.error):
                text = chat.joined(self.begun, without_marks(text))
            found = reading.read_reply(
                self.episode.protocol,
                dialect,
                role,
                text,
                tag,
                grader=task.grader,
                pattern=task.answer_pattern,
                conversation=task.conversation,
            )
        answer = self.situation.answer
        if role is Role.WORKER and (found.answer is not None or self.released):
            answer = found.answer
        is_judge = bool(messages) and role is Role.VERIFIER
        marks = {
            Flag.FAILED_OVER: unasked,
            Flag.REPAIRED: decision.origin == "repair",
            Flag.CONTINUED: bool(self.begun),
            Flag.PROMPT_OVERFLOW: decision.prompt_overflow,
            Flag.PROMPT_SHORTENED: roles.is_shortened(messages),
            Flag.SELF_VERIFIED: is_judge and decision.model == self.answered_by,
        }
        return Turn(
            episode_id=self.episode.id,
            index=len(self.turns),
            decision=decision,
            messages=messages,
            reply=reply,
            suggestion=found.suggestion,
            suggested_role=found.suggested_role,
            verdict=found.verdict,
            verdict_raw=found.verdict_raw,
            answer_rule=found.answer_rule,
            answer_after=answer,
            correct_after=None if answer is None else self.grades.get(answer),
            flags=(*found.flags, *reply_flags(reply), *(flag for flag, holds in marks.items() if holds)),
        )

    def ended(self, status: Status, reason: EndReason) -> Episode:
        return replace(
            self.episode,
            turns=tuple(self.turns),
            judgements=tuple(self.judgements),
            status=status,
            end_reason=reason,
            answer=self.situation.answer,
        )

    def missing(self, failure: Failure) -> Episode:
        return replace(self.ended(Status.MISSING, EndReason.ERROR), error=failure.message)


def reply_flags(reply: Reply) -> list[Flag]:
    """What is noticed of a reply, whoever wrote it: its failure, and why the model stopped writing."""
    noticed = {
        Flag.MODEL_ERROR: reply.error is not None,
        Flag.REFUSED: reply.finish is Finish.FILTERED,
        Flag.TRUNCATED: reply.finish is Finish.CUT,
        Flag.UNKNOWN_FINISH: reply.finish is Finish.UNKNOWN,
        Flag.UNASKED_TOOL_CALL: reply.finish_reason in (UNASKED_CALLS, ONLY_UNASKED_CALLS),
        Flag.REUSED: reply.reused,
        Flag.RECORDED: reply.recorded is not None,
        Flag.BY_AGREEMENT: reply.recorded is not None and reply.recorded.by_agreement,
    }
    return [flag for flag, holds in noticed.items() if holds]


def too_long_for(spec: ModelSpec) -> Reply:
    """The failure of a call that is not made."""
    message = (
        f"Model '{spec.name}' was not asked: question, latest answer and duty alone need more tokens than its window "
        f"of {spec.context_window} leaves beside a reply of {spec.max_tokens}; leave it out, or lower its max_tokens."
    )
    return replace(NOT_ASKED, finish_reason=TOO_LONG, error=Failure("model", message))


def cannot_see(spec: ModelSpec) -> Reply:
    """The failure of a call that is not made, as the model would not see what it is asked about."""
    message = (
        f"Model '{spec.name}' was not asked: the conversation holds images, which it does not read; leave it out, or "
        "set images = true in its entry of the pool file where it does."
    )
    return replace(NOT_ASKED, finish_reason="error", error=Failure("infrastructure", message))


def as_served(reply: Reply) -> Reply:
    """A reply where somebody waits for the answer: nobody measures a model by a prompt that is too long for it, and one
    with a larger window is asked in its place."""
    if reply.error is None or reply.finish_reason != TOO_LONG:
        return reply
    return replace(reply, error=replace(reply.error, kind="infrastructure"))


#: So many characters of a recorded reply stand in a transcript, its last ones: there its conclusion is.
RECORDED_CHARACTERS = 200


def transcript_text(reply: Reply, before: Sequence[str] = ()) -> str:
    """What later decisions read of a reply: what is visible of it. Of a recorded one it is its end, where its model has
    not said the same `before` in this episode, and in a line each the answer and the verdict that it stands for."""
    text = visible_text(reply)
    if (row := reply.recorded) is None:
        return text
    text = "" if reply.text in before else text
    said = [" ".join(text.split())[-RECORDED_CHARACTERS:]] if text else []
    said += [f"Answer: {row.answer}"] if row.answer is not None else []
    return "\n".join([*said, *([row.verdict.value] if row.verdict else [])])


def visible_text(reply: Reply) -> str:
    """The reply's text as others may read it, without marks and thinking: nothing at all when the model failed."""
    return "" if reply.error is not None else without_marks(reply.text)
