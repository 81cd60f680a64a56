"""Runs workflows as a generator without input or output: it asks, a driver answers.

    WritePlan or Ask -> Reply   AskSteps -> (turn, Reply)   Grade -> bool or Failure   everything else -> None

A round: a plan (asked for again while it cannot be read), then every step as soon as what it reads is there, then, in
the order of the steps, what each reply gave and its grade. The reply of a step is reported when it comes. Where
somebody waits for the answer, a step whose model cannot be asked is given to another one: the call in vain becomes a
turn of its own behind the steps of its round, which counts for none of the budget.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import ClassVar, Unpack

from core.conduct.reading import read_workflow
from core.conduct.rounds import Conducted, Round, cannot_plan
from core.draws import reply_seed, turn_key
from core.episode import (
    Ask,
    AskSteps,
    Decide,
    Decision,
    EndReason,
    Episode,
    Failure,
    Grade,
    Judgement,
    Plan,
    Replied,
    Reply,
    Role,
    Turn,
    TurnStarted,
    WritePlan,
)
from core.errors import ConfigError
from core.play.judging import graded
from core.play.policies import Policy, StepMasks
from core.play.session import as_served
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
    `heeds_masks`: whether it names no model that is masked; of one that may, others do such steps where somebody waits
    for the answer. `iteration`: after how many iterations of training; None without."""

    mode: AccessMode = AccessMode.CHOOSE_POSITION
    asked_model: str = ""
    decides_turns = False
    rounds: int = 1
    show_names: bool = False
    heeds_masks: ClassVar[bool] = True
    iteration: int | None = None

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        """ConfigError: it writes whole workflows."""
        raise ConfigError(
            f"Policy '{self.id}' writes whole workflows, not single turns: compare its episodes instead."
        )

    def conduct(
        self, episode: Episode, specs: Mapping[str, ModelSpec], **masks: Unpack[StepMasks]
    ) -> Conduct:
        """The episode, run by its workflows of the models that it does not leave out; a step has no role to mask."""
        mask = masks.get("model_mask") or (True,) * len(episode.models)
        kept = [own and name not in episode.left_out for own, name in zip(mask, episode.models, strict=True)]
        served, resting = masks.get("served", False), masks.get("resting", _nobody)
        return conduct(episode, specs, self, model_mask=kept, served=served, resting=resting)


def _nobody(model: str) -> bool:
    return False


def conduct(
    episode: Episode,
    specs: Mapping[str, ModelSpec],
    planner: Planner,
    *,
    model_mask: Sequence[bool] = (),
    carried: Mapping[int, Turn] | None = None,
    served: bool = False,
    resting: Callable[[str], bool] = _nobody,
) -> Conduct:
    """Run an episode's workflows to its end and return it; recorded plans and turns are taken as they are.

    `model_mask` is True where a slot of `episode.models` may be named; empty allows all. `carried` are turns of another
    episode, by number, that are done as they were there, decision, messages and reply: nobody is asked, and they are
    read where they now stand. An infrastructure failure, of a model or of the grader, returns the episode as
    missing. Where somebody waits for the answer (`served`), a step whose model cannot be asked, or is masked, is given
    to the next one of `episode.models` that can be, and so is the planning; where none is left the episode is
    missing. Those of which `resting` is true then come last."""
    absent = [name for name in (*episode.models, *filter(None, [planner.asked_model])) if name not in specs]
    if absent:
        raise ConfigError(
            f"The pool has no model named '{absent[0]}', which policy '{episode.policy}' needs: use the pool it was "
            "made for, or add the model."
        )
    allowed = tuple(slot for slot in range(len(episode.models)) if not model_mask or model_mask[slot])
    state = Conducted(episode, specs, planner, allowed, carried or {}, served, resting)
    for round_ in range(planner.rounds):
        plan = yield from _planned(state, round_)
        if isinstance(plan, Failure):
            return state.missing(plan)
        if plan.workflow is None:
            if plan.keeps:
                break
            return state.ended(EndReason.UNREADABLE_PLAN)
        if state.steps_before(round_) + len(plan.workflow) > episode.turn_budget:
            return state.ended(EndReason.BUDGET)
        failure = yield from _run(state, plan.workflow, round_)
        if failure is not None:
            return state.missing(failure)
    return state.ended(EndReason.COMPLETED)


def _planned(state: Conducted, round_: int) -> Generator[Request, Response, Plan | Failure]:
    """The last plan of a round: the first that can be read, or the last one tried."""
    planner, episode = state.planner, state.episode
    plans = [plan for plan in episode.plans if plan.round == round_]
    attempts = MOST_ATTEMPTS if planner.asked_model else 1
    while (
        not plans
        or cannot_plan(plans[-1])
        or (plans[-1].workflow is None and not plans[-1].keeps and len(plans) < attempts)
    ):
        messages = state.planner_messages(round_)
        key = f"{turn_key(episode.seed, episode.task.id, state.steps_before(round_))}/plan/{round_}/{len(plans)}"
        question, words = episode.task.question, state.words
        request: Request = WritePlan(messages, question, state.allowed, key, round_, episode.id, words)
        asked = state.asked_to_plan
        if asked:
            request = Ask(
                asked,
                Role.THINKER,
                messages,
                seed=reply_seed(episode.seed, episode.task.id),
                sample=len(plans),
                episode=episode.id,
            )
        reply = yield request
        assert isinstance(reply, Reply)
        reply = as_served(reply) if state.served and asked else reply
        failed = reply.error is not None and reply.error.kind == "infrastructure"
        if reply.error is not None and failed and not (state.served and asked):
            return reply.error
        read: Workflow | PlanFault = PlanFault.NO_LISTS
        if reply.error is None:
            read = read_workflow(reply.text, allowed=state.readable, mode=planner.mode)
        workflow = read if isinstance(read, Workflow) else None
        keeps = round_ > 0 and read is PlanFault.NO_LISTS and reply.error is None
        plan = Plan(
            episode.id,
            round_,
            len(plans),
            asked or planner.id,
            messages,
            reply,
            workflow,
            None if isinstance(read, Workflow) or keeps else read,
            keeps,
        )
        yield plan
        plans.append(plan)
        state.plans.append(plan)
        if reply.error is not None and failed:
            state.cannot_plan.add(asked)
            attempts += 1  # which says nothing of what the others write
            if not state.asked_to_plan:
                return reply.error
    return plans[-1]


def _run(state: Conducted, workflow: Workflow, round_: int) -> Generator[Request, Response, Failure | None]:
    """All steps of a round, whose turns begin behind those there are."""
    first = len(state.turns)
    round_state = Round(state, workflow, round_, first)
    while len(round_state.replies) < len(workflow):
        for place in round_state.ready():
            if (failure := (yield from _begin(round_state, place))) is not None:
                return failure
        if round_state.asked:
            answered = yield AskSteps(dict(round_state.asked))
            assert isinstance(answered, tuple)
            index, reply = answered
            if (failure := (yield from _take(round_state, index - first, reply))) is not None:
                return failure
    for place in range(len(workflow)):
        turn = round_state.turn(place)
        if turn.answer_after is not None and turn.answer_after not in state.grades and state.can_grade:
            correct = yield from graded(
                state.episode, turn.index, turn.answer_after, state.specs, state.judgements
            )
            if isinstance(correct, Failure):
                return correct
            state.grades[turn.answer_after] = bool(correct)
        yield from state.add(turn)
    for number in range(len(round_state.in_vain)):
        yield from state.add(round_state.turn_in_vain(number))
    return None


def _begin(
    round_state: Round, place: int, kept_as: int | None = None
) -> Generator[Request, Response, Failure | None]:
    """Begin a step, by another model where the call that was made for it is `kept_as` a turn of its own."""
    decision, messages, known = round_state.begin(place)
    index = round_state.first + place
    yield TurnStarted(round_state.state.episode.id, index, decision, messages, kept_as)
    return None if known is None else (yield from _take(round_state, place, known))


def _take(round_state: Round, place: int, reply: Reply) -> Generator[Request, Response, Failure | None]:
    """Take up the reply of a step; give it to another model where this one could not be asked. The failure where that
    cannot be."""
    state, index = round_state.state, round_state.first + place
    reply = as_served(reply) if state.served else reply
    failed = reply.error is not None and reply.error.kind == "infrastructure"
    if failed and not state.served:
        if reply.usage.charged_usd:  # of tries that came to nothing: it is stored, but not used again
            yield Replied(state.episode.id, index, reply)
        return reply.error
    yield Replied(state.episode.id, index, reply)
    round_state.asked.pop(index, None)
    if not failed:
        round_state.replies[place] = reply
        return None
    kept_as = round_state.fail(place, reply)
    return reply.error if kept_as is None else (yield from _begin(round_state, place, kept_as))
