"""Where an episode of workflows stands: its plans and turns so far, and the workflow that is being run."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from core.conduct.prompts import (
    Done,
    answer_in_chat,
    answer_to_judge,
    is_chat,
    planner_messages,
    step_messages,
    terse_role,
    words_of,
)
from core.conduct.reading import write_workflow
from core.draws import reply_seed
from core.episode import (
    AnswerRule,
    Ask,
    Decision,
    EndReason,
    Episode,
    Failure,
    Flag,
    Judgement,
    Message,
    Plan,
    Reply,
    Role,
    Status,
    Step,
    Turn,
)
from core.finish import ONLY_UNASKED_CALLS, TOO_LONG
from core.images import image_count
from core.play import reading
from core.play.answers import find_answer
from core.play.session import NOT_ASKED, cannot_see, reply_flags, too_long_for, visible_text
from core.pool.spec import ModelSpec
from core.workflow import Workflow

if TYPE_CHECKING:
    from core.conduct.session import Planner


@dataclass(slots=True)
class Conducted:
    """An episode after its plans and turns so far."""

    episode: Episode
    specs: Mapping[str, ModelSpec]
    planner: Planner
    allowed: tuple[int, ...]  # slots of the pool that a workflow may name
    carried: Mapping[int, Turn]
    served: bool
    resting: Callable[[str], bool]
    cannot_plan: set[str] = field(default_factory=set)  # models that could not be asked to
    cannot_work: set[str] = field(default_factory=set)  # models that could not be asked for a step
    plans: list[Plan] = field(init=False)
    turns: list[Turn] = field(default_factory=list)
    grades: dict[str, bool] = field(default_factory=dict)
    judgements: list[Judgement] = field(init=False)
    can_grade: bool = field(init=False)

    def __post_init__(self) -> None:
        self.plans, self.can_grade = [*self.episode.plans], bool(self.episode.task.answer)
        self.judgements = [*self.episode.judgements]
        self.cannot_plan |= {plan.planner for plan in self.plans if cannot_plan(plan)}
        for turn in (*self.episode.turns, *self.carried.values()):
            if turn.answer_after is not None and turn.correct_after is not None:
                self.grades[turn.answer_after] = turn.correct_after

    @property
    def answer(self) -> str | None:
        return self.turns[-1].answer_after if self.turns else None

    @property
    def words(self) -> tuple[str, ...]:
        """One of these is each subtask; empty for any text."""
        return words_of(self.specs[self.episode.models[slot]] for slot in self.allowed)

    @property
    def readable(self) -> tuple[int, ...]:
        """Slots that a plan may name: where somebody waits, a workflow that is always the same names masked ones too,
        whose steps others do."""
        if self.served and not self.planner.heeds_masks:
            return tuple(range(len(self.episode.models)))
        return self.allowed

    @property
    def asked_to_plan(self) -> str:
        """The model of the pool that is asked for a plan, empty where the planner is none, and where somebody waits
        also where none is left."""
        own, models = self.planner.asked_model, self.episode.models
        if not self.served or not own:
            return own
        at = models.index(own) if own in models else 0
        order = [slot for slot in cycle_from(at, len(models)) if slot in self.allowed]
        able = [models[slot] for slot in order if self.specs[models[slot]].dialect == "general"]
        left = sorted((name for name in able if name not in self.cannot_plan), key=self.resting)
        return left[0] if left else ""

    def add(self, turn: Turn) -> Generator[Turn, None, None]:
        """Add a finished turn with its grade, and tell of it where it is not recorded."""
        if turn.answer_after is not None and self.can_grade:
            turn = replace(turn, correct_after=self.grades.get(turn.answer_after))
        self.turns.append(turn)
        if turn.index >= len(self.episode.turns):
            yield turn

    def steps_before(self, round_: int) -> int:
        """How many steps the rounds before this one have."""
        run = (plan.workflow for plan in self.plans if plan.round < round_)
        return sum(len(workflow) for workflow in run if workflow is not None)

    def planner_messages(self, round_: int) -> tuple[Message, ...]:
        """What the planner is asked in this round."""
        before = None
        if round_:
            workflow = next(plan.workflow for plan in reversed(self.plans) if plan.workflow is not None)
            last = next(turn for turn in reversed(self.turns) if turn.counts)
            before = (write_workflow(workflow), visible_text(last.reply))
        models = {slot: self.episode.models[slot] for slot in self.allowed}
        planner = self.planner
        return planner_messages(
            self.episode.task.question,
            models,
            planner.mode,
            show_names=planner.show_names,
            before=before,
            words=self.words,
        )

    def ended(self, reason: EndReason, status: Status = Status.FINISHED) -> Episode:
        right = self.answer is not None and self.grades.get(self.answer, False)
        return replace(
            self.episode,
            plans=tuple(self.plans),
            turns=tuple(self.turns),
            judgements=tuple(self.judgements),
            status=status,
            end_reason=reason,
            answer=self.answer,
            correct=right if self.can_grade and status is Status.FINISHED else None,
        )

    def missing(self, failure: Failure) -> Episode:
        return replace(self.ended(EndReason.ERROR, Status.MISSING), error=failure.message)


@dataclass(slots=True)
class Round:
    """One workflow that is being run: what was asked, and what has come."""

    state: Conducted
    workflow: Workflow
    round: int
    first: int
    asked: dict[int, Ask] = field(default_factory=dict)  # by turn, no reply yet
    begun: dict[int, tuple[Decision, tuple[Message, ...]]] = field(default_factory=dict)  # by place
    replies: dict[int, Reply] = field(default_factory=dict)  # by place
    in_vain: list[tuple[int, Decision, tuple[Message, ...], Reply]] = field(
        default_factory=list
    )  # with its place

    def __post_init__(self) -> None:
        for turn in self.state.episode.turns[self.first : self.first + len(self.workflow)]:  # recorded
            place = turn.index - self.first
            self.begun[place] = turn.decision, turn.messages
            self.replies[place] = turn.reply
        for turn in self.state.episode.turns[self.first + len(self.workflow) :]:
            if turn.step is not None and turn.step.round == self.round and not turn.counts:
                self.in_vain.append((turn.step.place, turn.decision, turn.messages, turn.reply))
                self.state.cannot_work.add(turn.decision.model)

    def ready(self) -> list[int]:
        """Steps that can begin: what they read is there. Until all of these are begun none of them is asked."""
        return [
            place
            for place, seen in enumerate(self.workflow.reads)
            if place not in self.begun and all(earlier in self.replies for earlier in seen)
        ]

    def begin(self, place: int) -> tuple[Decision, tuple[Message, ...], Reply | None]:
        """Who does a step, what it is sent, and its reply where nobody is asked for it."""
        state = self.state
        if (carried := state.carried.get(self.first + place)) is not None:
            self.begun[place] = carried.decision, carried.messages
            return carried.decision, carried.messages, carried.reply
        model = self._chosen(place)
        spec, subtask, seen = state.specs[model], self.workflow.subtasks[place], self.seen(place)
        task, chat = state.episode.task, bool(state.episode.task.conversation)
        role = terse_role(subtask) if spec.dialect != "general" else Role.WORKER
        messages: tuple[Message, ...] = ()
        judged = answer_to_judge(subtask, seen) if role is Role.VERIFIER else ""
        if spec.dialect == "recorded" and role is Role.VERIFIER and not judged:
            role = Role.WORKER  # it has an answer of its own
        if role is not Role.VERIFIER or judged:
            last, alone = place == len(self.workflow) - 1, len(self.workflow) == 1
            messages = step_messages(spec, task, subtask, seen, last=last, alone=alone)
        decision = Decision(model, role, sampled=False)
        self.begun[place] = decision, messages
        if not messages:
            return decision, messages, too_long_for(spec) if chat and role is not Role.VERIFIER else NOT_ASKED
        if image_count(task.conversation) and not spec.images:
            return decision, messages, cannot_see(spec)
        self.asked[self.first + place] = Ask(
            model,
            role,
            messages,
            seed=reply_seed(state.episode.seed, task.id),
            sample=self._sample(place),
            judged=judged or None,
            temperature=spec.role_temperature.get(role),
            episode=state.episode.id,
        )
        return decision, messages, None

    def _chosen(self, place: int) -> str:
        """The model that is asked for a step: the one that the plan names; where somebody waits and that one cannot be
        asked, the next one that can."""
        named = self.state.episode.models[self.workflow.models[place]]
        return (self._able(place) or [named])[0] if self.state.served else named

    def _able(self, place: int) -> list[str]:
        """The models that can be asked for a step: the one that the plan names, then by their slots, and at last those
        that are better left alone."""
        state, subtask, models = self.state, self.workflow.subtasks[place], self.state.episode.models
        task, images = state.episode.task, image_count(state.episode.task.conversation)
        tried = {decision.model for at, decision, _, _ in self.in_vain if at == place} | state.cannot_work

        def can(name: str) -> bool:
            spec = state.specs[name]
            role = terse_role(subtask) if spec.dialect != "general" else Role.WORKER
            return spec.can_answer(task.id) and role in spec.roles and (spec.images or not images)

        order = [
            slot for slot in cycle_from(self.workflow.models[place], len(models)) if slot in state.allowed
        ]
        left = [models[slot] for slot in order if models[slot] not in tried and can(models[slot])]
        return sorted(left, key=state.resting)

    def fail(self, place: int, reply: Reply) -> int | None:
        """Note that the model of a step could not be asked. The number of the turn that keeps the call, and None where
        nobody is left to be asked in its place. That a prompt is too long for a model says nothing of other steps."""
        decision, messages = self.begun[place]
        self.in_vain.append((place, decision, messages, reply))
        if reply.finish_reason != TOO_LONG:
            self.state.cannot_work.add(decision.model)
        return self.first + len(self.workflow) + len(self.in_vain) - 1 if self._able(place) else None

    def turn_in_vain(self, number: int) -> Turn:
        """A call in vain for a step that another model did, as a turn."""
        place, decision, messages, reply = self.in_vain[number]
        state = self.state
        return Turn(
            episode_id=state.episode.id,
            index=self.first + len(self.workflow) + number,
            decision=decision,
            messages=messages,
            reply=reply,
            answer_after=state.answer,
            flags=(*reply_flags(reply), Flag.FAILED_OVER),
            step=Step(self.round, place, self.workflow.subtasks[place], self.visible(place)),
        )

    def _sample(self, place: int) -> int:
        """Which draw of its model a step is, whatever order replies come in. Of a recorded model each row is drawn
        once in an episode."""
        spec = self.state.specs[self._chosen(place)]
        if spec.dialect != "recorded":
            return self.first + place
        workflows = [plan.workflow for plan in self.state.plans if plan.round <= self.round]
        steps = [
            (slot, terse_role(subtask) in spec.roles)
            for workflow in workflows
            if workflow is not None
            for slot, subtask in zip(workflow.models, workflow.subtasks, strict=True)
        ]
        return steps[: self.state.steps_before(self.round) + place].count((self.workflow.models[place], True))

    def seen(self, place: int) -> list[Done]:
        """What a step may read: the steps that its access list names, and where these are all earlier ones, in a later
        round also the round before."""
        found = []
        for number in self._turns_before(place):
            turn = self.state.turns[number]
            assert turn.step is not None  # every turn of a workflow has one
            slot = self.state.episode.models.index(turn.decision.model)
            answer = (turn.answer_after or "") if turn.decision.role is not Role.THINKER else ""
            text = visible_text(turn.reply).strip()
            found.append(Done(slot, turn.step.subtask, text, turn.suggestion, answer))
        return [*found, *(self.done(earlier) for earlier in self.workflow.reads[place])]

    def done(self, place: int) -> Done:
        model = self.begun[place][0].model
        return Done.of(
            self.state.episode.models.index(model),
            self.workflow.subtasks[place],
            self.replies[place],
            self.seen(place) if self.state.specs[model].dialect != "general" else None,
        )

    def turn(self, place: int) -> Turn:
        """A finished step as a turn, all but the grade of its answer."""
        state = self.state
        decision, messages = self.begun[place]
        reply, spec, done = self.replies[place], state.specs[decision.model], self.done(place)
        found, flags = reading.Reading(), list[Flag]()
        if spec.dialect != "general":
            answer = done.answer
            if reply.recorded is not None:
                found = reading.read_recorded(decision.role, reply)
                flags += found.flags
            elif reply != NOT_ASKED:
                found = reading.read_reply(state.episode.protocol, spec.dialect, decision.role, done.text)
                flags += found.flags
            else:
                flags.append(Flag.NOTHING_TO_JUDGE)
        else:
            task = state.episode.task
            says = done.text and reply.finish_reason != ONLY_UNASKED_CALLS
            rule: tuple[str, AnswerRule] | None = None
            if says and is_chat(messages, task):
                text = answer_in_chat(done.text, task, self.workflow.subtasks[place])
                # What others read is not for the person, whatever becomes of the last step.
                rule = (text, "whole") if text and place == len(self.workflow) - 1 else None
            elif says:
                rule = find_answer(done.text, task.grader, task.answer_pattern)
            answer, last = (rule[0] if rule else ""), place == len(self.workflow) - 1
            found = reading.Reading(answer_rule=rule[1] if rule else None)
            if last and not answer:
                flags.append(Flag.NO_ANSWER)
        return Turn(
            episode_id=state.episode.id,
            index=self.first + place,
            decision=decision,
            messages=messages,
            reply=reply,
            suggestion=found.suggestion,
            verdict=found.verdict,
            verdict_raw=found.verdict_raw,
            answer_rule=found.answer_rule,
            answer_after=answer or state.answer,
            flags=(*flags, *reply_flags(reply)),
            step=Step(self.round, place, self.workflow.subtasks[place], self.visible(place)),
        )

    def visible(self, place: int) -> tuple[int, ...]:
        """The turns that a step may read."""
        return (*self._turns_before(place), *(self.first + one for one in self.workflow.reads[place]))

    def _turns_before(self, place: int) -> tuple[int, ...]:
        """Turns of earlier rounds that a step may read: those of the round before, where its access is complete."""
        complete = place > 0 and self.workflow.reads[place] == tuple(range(place))
        if not (self.round and complete):
            return ()
        before = (turn for turn in self.state.turns if turn.step and turn.step.round == self.round - 1)
        return tuple(turn.index for turn in before if turn.counts)


def cannot_plan(plan: Plan) -> bool:
    """Whether its planner could not be asked."""
    return plan.reply.error is not None and plan.reply.error.kind == "infrastructure"


def cycle_from(first: int, n: int) -> list[int]:
    """All of n numbers in order, from the first on and round again."""
    return [(first + step) % n for step in range(n)]
