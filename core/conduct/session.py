"""Runs workflows as a generator without input or output: it asks, a driver answers.

    WritePlan or Ask -> Reply   AskSteps -> (turn, Reply)   Grade -> bool or Failure   everything else -> None

A round: a plan (asked for again while it cannot be read), then every step as soon as what it reads is there, then, in
the order of the steps, what each reply gave and its grade. The reply of a step is reported when it comes.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Unpack

from core.conduct.prompts import (
    Done,
    answer_to_judge,
    planner_messages,
    step_messages,
    terse_role,
    words_of,
)
from core.conduct.reading import read_workflow, write_workflow
from core.draws import reply_seed, turn_key
from core.episode import (
    Ask,
    AskSteps,
    Decide,
    Decision,
    EndReason,
    Episode,
    Failure,
    Flag,
    Grade,
    Judgement,
    Message,
    Plan,
    Replied,
    Reply,
    Role,
    Status,
    Step,
    Turn,
    TurnStarted,
    WritePlan,
)
from core.errors import ConfigError
from core.finish import ONLY_UNASKED_CALLS
from core.play import reading
from core.play.answers import find_answer
from core.play.judging import graded
from core.play.policies import Masks, Policy
from core.play.session import NOT_ASKED, reply_flags, visible_text
from core.pool.spec import ModelSpec
from core.workflow import AccessMode, PlanFault, Workflow

#: How often a planner of the pool is asked again for a plan that cannot be read.
MOST_ATTEMPTS = 5

Request = WritePlan | Ask | AskSteps | Grade | Plan | TurnStarted | Replied | Judgement | Turn
Response = Reply | tuple[int, Reply] | bool | Failure | None
Conduct = Generator[Request, Response, Episode]


class Planner(Policy):
    """Base of a policy that writes whole workflows, which stands beside every other; `id` and `models` as in `Policy`.

    `mode`: the form in which its access lists are written. `asked_model`: the model of the pool that is asked for
    plans; empty where `write` gives them. `show_names`: whether it is told the models' names, and not their ids alone.
    `iteration`: after how many iterations of training; None without."""

    mode: AccessMode = AccessMode.CHOOSE_POSITION
    asked_model: str = ""
    decides_turns = False
    rounds: int = 1
    show_names: bool = False
    iteration: int | None = None

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        """ConfigError: it writes whole workflows."""
        raise ConfigError(
            f"Policy '{self.id}' writes whole workflows, not single turns: compare its episodes instead."
        )

    def conduct(self, episode: Episode, specs: Mapping[str, ModelSpec], **masks: Unpack[Masks]) -> Conduct:
        """The episode, run by its workflows of the models that it does not leave out; a step has no role to mask."""
        mask = masks.get("model_mask") or (True,) * len(episode.models)
        kept = [own and name not in episode.left_out for own, name in zip(mask, episode.models, strict=True)]
        return conduct(episode, specs, self, model_mask=kept)


def conduct(
    episode: Episode,
    specs: Mapping[str, ModelSpec],
    planner: Planner,
    *,
    model_mask: Sequence[bool] = (),
    carried: Mapping[int, Turn] | None = None,
) -> Conduct:
    """Run an episode's workflows to its end and return it; recorded plans and turns are taken as they are.

    `model_mask` is True where a slot of `episode.models` may be named; empty allows all. `carried` are turns of another
    episode, by number, that are done as they were there, decision, messages and reply: nobody is asked, and they are
    read where they now stand. An infrastructure failure, of a model or of the grader, returns the episode as
    missing."""
    absent = [name for name in (*episode.models, *filter(None, [planner.asked_model])) if name not in specs]
    if absent:
        raise ConfigError(
            f"The pool has no model named '{absent[0]}', which policy '{episode.policy}' needs: use the pool it was "
            "made for, or add the model."
        )
    allowed = tuple(slot for slot in range(len(episode.models)) if not model_mask or model_mask[slot])
    state = _Conducted(episode, specs, planner, allowed, carried or {})
    for round_ in range(planner.rounds):
        plan = yield from _planned(state, round_)
        if isinstance(plan, Failure):
            return state.missing(plan)
        if plan.workflow is None:
            if plan.keeps:
                break
            return state.ended(EndReason.UNREADABLE_PLAN)
        first = state.first_turn(round_)
        if first + len(plan.workflow) > episode.turn_budget:
            return state.ended(EndReason.BUDGET)
        failure = yield from _run(state, plan.workflow, round_, first)
        if failure is not None:
            return state.missing(failure)
    return state.ended(EndReason.COMPLETED)


def _planned(state: _Conducted, round_: int) -> Generator[Request, Response, Plan | Failure]:
    """The last plan of a round: the first that can be read, or the last one tried."""
    planner, episode = state.planner, state.episode
    plans = [plan for plan in episode.plans if plan.round == round_]
    attempts = MOST_ATTEMPTS if planner.asked_model else 1
    while not plans or (plans[-1].workflow is None and not plans[-1].keeps and len(plans) < attempts):
        messages = state.planner_messages(round_)
        key = (
            f"{turn_key(episode.seed, episode.task.id, state.first_turn(round_))}/plan/{round_}/{len(plans)}"
        )
        question, words = episode.task.question, state.words
        request: Request = WritePlan(messages, question, state.allowed, key, round_, episode.id, words)
        if planner.asked_model:
            request = Ask(
                planner.asked_model,
                Role.THINKER,
                messages,
                seed=reply_seed(episode.seed, episode.task.id),
                sample=len(plans),
                episode=episode.id,
            )
        reply = yield request
        assert isinstance(reply, Reply)
        if reply.error is not None and reply.error.kind == "infrastructure":
            return reply.error
        read: Workflow | PlanFault = PlanFault.NO_LISTS
        if reply.error is None:
            read = read_workflow(reply.text, allowed=state.allowed, mode=planner.mode)
        workflow = read if isinstance(read, Workflow) else None
        keeps = round_ > 0 and read is PlanFault.NO_LISTS and reply.error is None
        plan = Plan(
            episode.id,
            round_,
            len(plans),
            planner.asked_model or planner.id,
            messages,
            reply,
            workflow,
            None if isinstance(read, Workflow) or keeps else read,
            keeps,
        )
        yield plan
        plans.append(plan)
        state.plans.append(plan)
    return plans[-1]


def _run(
    state: _Conducted, workflow: Workflow, round_: int, first: int
) -> Generator[Request, Response, Failure | None]:
    """All steps of a round, whose turns begin at number `first`."""
    round_state = _Round(state, workflow, round_, first)
    while len(round_state.replies) < len(workflow):
        for place in round_state.ready():
            decision, messages, known = round_state.begin(place)
            yield TurnStarted(state.episode.id, first + place, decision, messages)
            if known is not None:
                yield Replied(state.episode.id, first + place, known)
                round_state.replies[place] = known
        if round_state.asked:
            answered = yield AskSteps(dict(round_state.asked))
            assert isinstance(answered, tuple)
            index, reply = answered
            if reply.error is not None and reply.error.kind == "infrastructure":
                return reply.error
            yield Replied(state.episode.id, index, reply)
            del round_state.asked[index]
            round_state.replies[index - first] = reply
    for place in range(len(workflow)):
        turn = round_state.turn(place)
        if turn.answer_after is not None and turn.answer_after not in state.grades and state.can_grade:
            correct = yield from graded(
                state.episode, turn.index, turn.answer_after, state.specs, state.judgements
            )
            if isinstance(correct, Failure):
                return correct
            state.grades[turn.answer_after] = bool(correct)
        if turn.answer_after is not None and state.can_grade:
            turn = replace(turn, correct_after=state.grades[turn.answer_after])
        state.turns.append(turn)
        if first + place >= len(state.episode.turns):
            yield turn
    return None


@dataclass(slots=True)
class _Conducted:
    """An episode after its plans and turns so far."""

    episode: Episode
    specs: Mapping[str, ModelSpec]
    planner: Planner
    allowed: tuple[int, ...]  # slots of the pool that a workflow may name
    carried: Mapping[int, Turn]
    plans: list[Plan] = field(init=False)
    turns: list[Turn] = field(default_factory=list)
    grades: dict[str, bool] = field(default_factory=dict)
    judgements: list[Judgement] = field(init=False)
    can_grade: bool = field(init=False)

    def __post_init__(self) -> None:
        self.plans, self.can_grade = [*self.episode.plans], bool(self.episode.task.answer)
        self.judgements = [*self.episode.judgements]
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

    def first_turn(self, round_: int) -> int:
        run = (plan.workflow for plan in self.plans if plan.round < round_)
        return sum(len(workflow) for workflow in run if workflow is not None)

    def planner_messages(self, round_: int) -> tuple[Message, ...]:
        """What the planner is asked in this round."""
        before = None
        if round_:
            workflow = next(plan.workflow for plan in reversed(self.plans) if plan.workflow is not None)
            before = (write_workflow(workflow), visible_text(self.turns[-1].reply))
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
class _Round:
    """One workflow that is being run: what was asked, and what has come."""

    state: _Conducted
    workflow: Workflow
    round: int
    first: int
    asked: dict[int, Ask] = field(default_factory=dict)  # by turn, no reply yet
    begun: dict[int, tuple[Decision, tuple[Message, ...]]] = field(default_factory=dict)  # by place
    replies: dict[int, Reply] = field(default_factory=dict)  # by place

    def __post_init__(self) -> None:
        for turn in self.state.episode.turns[self.first : self.first + len(self.workflow)]:  # recorded
            place = turn.index - self.first
            self.begun[place] = turn.decision, turn.messages
            self.replies[place] = turn.reply

    def ready(self) -> list[int]:
        """Steps that can begin: what they read is there. Until all of these are begun none of them is asked."""
        return [
            place
            for place, seen in enumerate(self.workflow.reads)
            if place not in self.begun and all(earlier in self.replies for earlier in seen)
        ]

    def begin(self, place: int) -> tuple[Decision, tuple[Message, ...], Reply | None]:
        """Who does a step, what it is sent, and its reply where nobody is asked for it."""
        state, model = self.state, self._model(place)
        if (carried := state.carried.get(self.first + place)) is not None:
            self.begun[place] = carried.decision, carried.messages
            return carried.decision, carried.messages, carried.reply
        spec, subtask, seen = state.specs[model], self.workflow.subtasks[place], self.seen(place)
        role = terse_role(subtask) if spec.dialect != "general" else Role.WORKER
        messages: tuple[Message, ...] = ()
        judged = answer_to_judge(subtask, seen) if role is Role.VERIFIER else ""
        if spec.dialect == "recorded" and role is Role.VERIFIER and not judged:
            role = Role.WORKER  # it has an answer of its own
        if role is not Role.VERIFIER or judged:
            last = place == len(self.workflow) - 1
            messages = step_messages(spec, state.episode.task, subtask, seen, last=last)
        decision = Decision(model, role, sampled=False)
        self.begun[place] = decision, messages
        if messages:
            self.asked[self.first + place] = Ask(
                model,
                role,
                messages,
                seed=reply_seed(state.episode.seed, state.episode.task.id),
                sample=self._sample(place),
                judged=judged or None,
                temperature=spec.role_temperature.get(role),
                episode=state.episode.id,
            )
        return decision, messages, None if messages else NOT_ASKED

    def _sample(self, place: int) -> int:
        """Which draw of its model a step is, whatever order replies come in. Of a recorded model each row is drawn
        once in an episode."""
        spec = self.state.specs[self._model(place)]
        if spec.dialect != "recorded":
            return self.first + place
        workflows = [plan.workflow for plan in self.state.plans if plan.round <= self.round]
        steps = [
            (slot, terse_role(subtask) in spec.roles)
            for workflow in workflows
            if workflow is not None
            for slot, subtask in zip(workflow.models, workflow.subtasks, strict=True)
        ]
        return steps[: self.first + place].count((self.workflow.models[place], True))

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
        model = self._model(place)
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
            rule = find_answer(done.text, task.grader, task.answer_pattern) if says else None
            answer, last = (rule[0] if rule else ""), place == len(self.workflow) - 1
            found = reading.Reading(answer_rule=rule[1] if rule else None)
            if last and not answer:
                flags.append(Flag.NO_ANSWER)
        visible = (*self._turns_before(place), *(self.first + one for one in self.workflow.reads[place]))
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
            step=Step(self.round, place, self.workflow.subtasks[place], visible),
        )

    def _model(self, place: int) -> str:
        return self.state.episode.models[self.workflow.models[place]]

    def _turns_before(self, place: int) -> tuple[int, ...]:
        """Turns of earlier rounds that a step may read: those of the round before, where its access is complete."""
        complete = place > 0 and self.workflow.reads[place] == tuple(range(place))
        if not (self.round and complete):
            return ()
        return tuple(range(self.state.first_turn(self.round - 1), self.first))
