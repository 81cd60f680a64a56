"""Forks: what if exactly one thing had gone otherwise at turn t of a recorded episode?

A child carries turns 0 to t-1 as they were. For a fork one thing is changed at turn t; for its baseline nothing
is: turn t is played anew just as it was decided, so that the fork is set against chance and not against the one
outcome that happened to be recorded. Fork and baseline of the same number share their seed. The parent is only read.

A fork of a workflow's step keeps the recorded plan but for that one thing. Steps that do not read the changed one,
directly or through others, keep their recorded replies; the changed step and all that read it are asked anew. Fork and
baseline end with the round of the step: no planner is asked again, whatever it would have written in later rounds."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from core.changes import CHANGE_KINDS, FORK, Change, ChangeKind, Fork
from core.draws import derive_seed
from core.episode import (
    Ask,
    Decide,
    Decision,
    Episode,
    Flag,
    Grade,
    Reply,
    Role,
    Status,
    Turn,
    Usage,
    Verdict,
)
from core.errors import ConfigError
from core.finish import EDITED
from core.grader import WHOLE_REPLIES
from core.images import image_count, unkept_images
from core.play import reading, roles
from core.play.drive import GradeMany, Terms
from core.play.forked_steps import forked_step, why_in_vain
from core.play.judging import final_verdicts
from core.play.policies import WrappedPolicy, decider_at, deciders_of_fork
from core.play.session import reread_turn
from core.pool.spec import ModelSpec

_LONGEST_TEXT = 100_000
_HOTTEST = 2.0


def possible_changes(parent: Episode, index: int) -> tuple[ChangeKind, ...]:
    """The kinds of change that make sense at this turn. ConfigError when the episode has no such turn."""
    return tuple(kind for kind in CHANGE_KINDS if not _why_not(kind, parent, index))


def forked_turn(parent: Episode, index: int) -> Turn:
    """The turn that is forked. ConfigError when it was never finished, or the episode is still being played."""
    if parent.status is Status.RUNNING:
        raise ConfigError(f"Episode {parent.id} is still being played: fork it when it is over.")
    if not 0 <= index < len(parent.turns):
        raise ConfigError(
            f"Episode {parent.id} has no turn {index + 1}: give a turn between 1 and {len(parent.turns)}."
            if parent.turns
            else f"Episode {parent.id} has no finished turn: there is nothing to fork."
        )
    return parent.turns[index]


def decider_of_turn(parent: Episode, index: int) -> str:
    """The policy that decided turn `index`, and goes on with its children."""
    return decider_at(parent.policy, parent.deciders, index)


def check_change(change: Change, parent: Episode, index: int) -> None:
    """ConfigError, one sentence, unless the change makes sense at this turn and really changes something."""
    turn, value = forked_turn(parent, index), change.value
    if why := _why_not(change.kind, parent, index):
        raise ConfigError(f"Turn {index + 1} of episode {parent.id} {why}")
    step = forked_step(parent, index)
    problem = ""
    match change.kind:
        case "model" if value not in parent.models:
            problem = f"There is no model '{value}' in the pool: choose one of {', '.join(parent.models)}."
        case "role" if value not in tuple(Role):
            problem = f"There is no role '{value}': choose one of {', '.join(Role)}."
        case "verdict" if value not in tuple(Verdict):
            problem = f"There is no verdict '{value}': choose ACCEPT or REVISE."
        case "temperature" if not 0 <= _number(value) <= _HOTTEST:
            problem = f"A temperature is a number between 0 and {_HOTTEST:g}: '{value}' is none."
        case "reply" | "subtask" if not value.strip() or len(value) > _LONGEST_TEXT:
            what = "edited reply" if change.kind == "reply" else "subtask"
            problem = f"The {what} must have between 1 and {_LONGEST_TEXT:,} characters."
    as_it_was: dict[ChangeKind, str | None] = {
        "model": turn.decision.model,
        "role": turn.decision.role,
        "policy": decider_of_turn(parent, index),
        "reply": turn.reply.text,
        "verdict": None if Flag.VERDICT_UNREADABLE in turn.flags else turn.verdict,
    }
    same = change.kind in as_it_was and value == as_it_was[change.kind]
    if not problem and step is not None and change.kind in ("subtask", "access"):
        same = step.changed(change) == step.workflow
    if not problem and same:
        problem = f"That changes nothing: turn {index + 1} already has this {change.kind}."
    if problem:
        raise ConfigError(problem)


def check_kept(parent: Episode, model: ModelSpec | None) -> None:
    """ConfigError, one sentence, where the texts or the images of an episode cannot be sent again, or not to this model
    (None: to those that were sent them)."""
    if day := parent.removed.get("prompts", parent.removed.get("texts")):
        raise ConfigError(
            f"The texts of episode {parent.id} were removed on {day}, so it cannot be continued."
        )
    if unkept_images(parent.task.conversation):
        raise ConfigError(
            f"Episode {parent.id} was sent images, whose bytes are not kept, so it cannot be continued: ask its "
            "question again, with the images."
        )
    if model is not None and not model.images and image_count(parent.task.conversation):
        raise ConfigError(
            f"Episode {parent.id} was sent images, which {model.name} does not read: choose a model whose entry in the "
            "pool file says images = true."
        )


def right_reply(parent: Episode, index: int) -> Change | None:
    """The change that makes the reply of this turn right: a Worker gives the known answer, a Verifier the verdict that
    the answer it judges deserves. None where it was right as it is, and where nobody knows a right one: of a Thinker,
    and of a task whose answer is no reply, such as the tests of a program."""
    turn, possible = forked_turn(parent, index), possible_changes(parent, index)
    role, task = turn.decision.role, parent.task
    if role is Role.VERIFIER and "verdict" in possible and turn.correct_after is not None:
        right = Verdict.ACCEPT if turn.correct_after else Verdict.REVISE
        return None if turn.verdict is right else Change("verdict", right)
    if role is not Role.WORKER or "reply" not in possible or turn.correct_after is True:
        return None
    if not task.answer or task.grader in ("program", *WHOLE_REPLIES, "recorded"):
        return None
    dialect, _ = roles.dialect_and_tag(turn.messages, task)
    text = reading.reply_with_answer(dialect, task.answer)
    found = reading.read_reply(
        parent.protocol, dialect, role, text, grader=task.grader, pattern=task.answer_pattern
    )
    return Change("reply", text) if found.answer == task.answer else None


def _why_not(kind: ChangeKind, parent: Episode, index: int) -> str:
    """Why a kind of change makes no sense at this turn; empty where it does. ConfigError where no such turn is."""
    turn = forked_turn(parent, index)
    if why := why_in_vain(parent, index):
        return why
    step = forked_step(parent, index)
    asked = bool(turn.messages) and (kind != "model" or len(parent.models) > 1)
    nothing = "asked no model, so there is nothing of that kind to change: change its"
    if step is not None:
        match kind:
            case "model" | "reply":
                return "" if asked else f"{nothing} subtask or its access."
            case "access" if step.place == 0:
                return "is the first step of its workflow, which reads nothing but the problem."
            case "subtask" | "access":
                return ""
        return "is a step of a workflow: change its model, its subtask, its access or its reply."
    match kind:
        case "subtask" | "access":
            return "is no step of a workflow: only such a step has a subtask and an access list."
        case "verdict" if not asked or turn.decision.role is not Role.VERIFIER:
            return "is not a Verifier's that judged an answer: no verdict can be forced there."
        case "stop" if index == 0:
            return "is the first: there is nothing to stop at before it."
        case "model" | "temperature" | "reply" if not asked:
            return f"{nothing} role."
        case "temperature" if turn.reply.recorded is not None:
            return (
                "has a recorded reply, which was written at another time: no temperature can be given to it."
            )
    return ""


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return float("nan")


# What a child carries


def prefix_digest(parent: Episode, index: int) -> str:
    """SHA-256 over the task and all decisions, messages, replies and what was read from them in the turns that a child
    carries: 0 to index-1, of a workflow also later ones, and the workflow itself."""
    task, step = parent.task, forked_step(parent, index) if index < len(parent.turns) else None
    content: list[object] = [task.id, task.question, task.answer, task.grader, parent.protocol]
    content += [message.parts for message in task.conversation]
    content += [
        [
            turn.decision.model,
            turn.decision.role,
            [[*message.parts] for message in turn.messages],
            [turn.reply.text, turn.reply.reasoning, turn.reply.finish_reason],
            [turn.suggestion, turn.suggested_role, turn.verdict, turn.answer_after, turn.correct_after],
        ]
        for turn in (parent.turns[:index] if step is None else step.kept)
    ]
    if step is not None:
        content.append([step.workflow.models, step.workflow.subtasks, step.workflow.reads])
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def child_seed(parent: Episode, index: int, number: int) -> int:
    """The seed of child `number`, of fork and baseline alike; the same wherever the same turns are carried."""
    return derive_seed(("fork", parent.seed, prefix_digest(parent, index), number))


# Children


def new_child(
    parent: Episode,
    index: int,
    change: Change | None,
    number: int,
    *,
    id: str,
    run_id: str,
    grade: GradeMany,
    pool: str = "",
    held: bool = True,
    left_out: Sequence[str] = (),
) -> Episode:
    """A child before it is played, with the turns before `index`, and a coordinator's turn that the change writes by
    hand: one with the change, or the unchanged baseline (None). `grade` judges the answer of an edited reply; `pool`
    and `held` as in `Fork`. What else it takes over says `carried_turns`."""
    policy = change.value if change and change.kind == "policy" else decider_of_turn(parent, index)
    step = forked_step(parent, index)
    plans = step.plans(change) if step else ()
    turns = (*parent.turns[:index], *_by_hand(parent, index, change, grade))
    kept = {turn.index for turn in (step.kept if step else parent.turns[:index])}
    return Episode(
        id=id,
        run_id=run_id,
        task=parent.task,
        policy=policy,
        models=parent.models,
        protocol=parent.protocol,
        turn_budget=index if change and change.kind == "stop" else parent.turn_budget,
        seed=child_seed(parent, index, number),
        argmax=parent.argmax,
        generation=parent.generation if policy == parent.policy else None,
        left_out=tuple(left_out),
        deciders=deciders_of_fork(parent.policy, parent.deciders, index, policy),
        fork=Fork(parent.id, index, change, number, prefix_digest(parent, index), pool, held),
        turns=tuple(replace(turn, episode_id=id) for turn in turns),
        plans=tuple(replace(plan, episode_id=id) for plan in plans),
        judgements=tuple(
            replace(one, episode_id=id, reply=one.reply.as_reused())
            for one in parent.judgements
            if one.index in kept
        ),
    )


def carried_turns(parent: Episode, index: int, change: Change | None) -> dict[int, Turn]:
    """The turns from `index` on that a child takes over as they are recorded, by number: of a workflow, the steps that
    do not read the changed one, and that one where its reply is written by hand."""
    step = forked_step(parent, index)
    return {} if step is None else step.carried(change)


def replayed_turns(parent: Episode, index: int) -> tuple[int, ...]:
    """The turns that a child plays anew, where these are not all from `index` on: the steps of a workflow that read the
    changed one, and that one."""
    step = forked_step(parent, index)
    return () if step is None else step.anew


def _by_hand(parent: Episode, index: int, change: Change | None, grade: GradeMany) -> tuple[Turn, ...]:
    """Turn `index` with its reply or verdict as the change has it, read and graded as if it had come so."""
    if change is None or not change.by_hand or parent.plans:
        return ()
    was = parent.turns[index]
    text, reasoning = change.value, ""
    row = None
    if change.kind == "verdict":
        verdict, reasoning = Verdict(change.value), was.reply.reasoning
        if was.reply.recorded is not None:  # its verdict stands beside its text
            text, row = was.reply.text, replace(was.reply.recorded, verdict=verdict, by_agreement=False)
        else:
            dialect, tag = roles.dialect_and_tag(was.messages, parent.task)
            text = reading.with_verdict(parent.protocol, dialect, was.reply.text, tag, verdict)
    turn = reread_turn(parent, index, Reply(text, reasoning, EDITED, Usage(0, 0, 0.0), recorded=row))
    can_grade = parent.task.answer and parent.task.grader != "judge"  # it is asked as the child is played
    if can_grade and turn.answer_after is not None and turn.correct_after is None:
        turn = replace(turn, correct_after=final_verdicts(grade([Grade(parent.task, turn.answer_after)]))[0])
    return (turn,)


def turns_left(parent: Episode, index: int, change: Change | None) -> int:
    """The most turns that a child can still play; 0 when its outcome is certain."""
    if anew := replayed_turns(parent, index):
        return len(anew) - bool(change and change.by_hand)
    if change is None or not change.by_hand:
        return 0 if change and change.kind == "stop" else parent.turn_budget - index
    if change == Change("verdict", Verdict.ACCEPT):
        return 0
    if parent.turns[index].decision.role is Role.VERIFIER and change.kind == "reply":
        (turn,) = _by_hand(parent, index, change, lambda asked: [False] * len(asked))
        if turn.verdict is Verdict.ACCEPT:
            return 0
    return parent.turn_budget - index - 1


def keeps_answer(parent: Episode, index: int, change: Change) -> bool:
    """Whether an episode with this change of a coordinator's turn is certain to end with the recorded answer: nothing
    follows that could give another. False for a step of a workflow, and for an episode that is not finished."""
    if parent.status is not Status.FINISHED or parent.plans:
        return False
    turn, before = forked_turn(parent, index), parent.turns[index - 1].answer_after if index else None
    if change.kind == "stop":
        return before == parent.answer
    if change.by_hand:
        if turns_left(parent, index, change):
            return False
        (turn,) = _by_hand(parent, index, change, lambda asked: [False] * len(asked))
        return turn.answer_after == parent.answer
    if index + 1 < parent.turn_budget or change.kind == "policy":
        return False
    role = Role(change.value) if change.kind == "role" else turn.decision.role
    return role is not Role.WORKER and before == parent.answer


# How turn t is decided


def decision_at(parent: Episode, index: int, change: Change | None) -> Decision | None:
    """The decision that is held fast at turn `index`: the recorded one, but for a changed model or role. None
    where the policy decides that turn anew, or it is not decided at all, as in a workflow."""
    if parent.plans:
        return None
    recorded = parent.turns[index].decision
    match change:
        case Change("policy" | "reply" | "verdict" | "stop"):
            return None
        case Change("model", model):
            return replace(recorded, model=model, origin="override")
        case Change("role", role):
            return replace(recorded, role=Role(role), origin="override")
    return recorded


def is_held(change: Change | None, part: str) -> bool:
    """Whether turn t of a child of this part is not decided anew: `Fork.held`. Set against another policy, or against
    nothing but itself, the baseline's decides that turn anew as well: its recorded choice may have been a lucky or an
    unlucky draw."""
    return part == FORK or (change is not None and change.kind != "policy")


def at_temperatures(temperatures: Mapping[tuple[str, int], float]) -> Terms:
    """The terms by which the models of these turns, by episode id and index, are asked at these temperatures."""

    def terms(episode: Episode, ask: Ask) -> Ask:
        return replace(ask, temperature=temperatures.get((episode.id, len(episode.turns)), ask.temperature))

    return terms


@dataclass(eq=False)
class HeldDecisions(WrappedPolicy):
    """A policy whose decisions at some turns, by episode id and index, stand already; it is not asked there."""

    decisions: Mapping[tuple[str, int], Decision]

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        """What stands already, and the inner policy's decisions for all others at once."""
        standing = [self.decisions.get((one.episode_id, one.index)) for one in requests]
        open_ = [one for one, held in zip(requests, standing, strict=True) if held is None]
        fresh = iter(self.inner.decide(open_) if open_ else ())
        return [held or next(fresh) for held in standing]
