"""The three roles: how each is prompted, in both protocols and both dialects.

A dialect is how a model is prompted: `general` gives full instructions, `terse` is the short form that the
pocket models were trained on; each has a module of its own. A protocol is the rules of the episode (trinity.md 1.10).
How replies are read is in `core.play.reading`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from core.episode import Message, Protocol, Role, Task, TranscriptEntry
from core.play import general, terse
from core.play.answers import last_tagged
from core.play.marks import without_marks
from core.pool.spec import Dialect


@dataclass(frozen=True, slots=True)
class Situation:
    """What a role's prompt may contain. `suggestion` and `answer` are the latest of the episode;
    `response` is the latest Worker reply whole and `thoughts` are all of them (released protocol only)."""

    task: Task
    protocol: Protocol = Protocol.PAPER
    entries: tuple[TranscriptEntry, ...] = ()
    suggestion: str = ""
    answer: str | None = None
    response: str | None = None
    thoughts: tuple[str, ...] = ()


def dialect_and_tag(messages: Sequence[Message]) -> tuple[Dialect, str]:
    """How a model was prompted, read back from the messages: dialect, and tag of the verdict (empty without one)."""
    if messages and messages[0].role != "system":
        return "terse", ""
    return "general", general.asked_tag(messages)


def messages_for(
    dialect: Dialect, role: Role, situation: Situation, *, key: str = "", room: int | None = None
) -> tuple[Message, ...]:
    """The messages that put a model into a role; `key` is the call's own.

    The paper's protocol in full instructions keeps to `room` tokens where it is given, and there are no messages where
    it cannot; nothing else is ever shortened."""
    if dialect == "terse":
        return _terse(role, situation)
    if situation.protocol is Protocol.RELEASED:
        return _released(role, situation)
    now = situation
    return general.prompt(role, now.task, now.entries, now.suggestion, now.answer, key=key, room=room)


def _terse(role: Role, situation: Situation) -> tuple[Message, ...]:
    """One user message and no system message."""
    question = situation.task.question
    match role:
        case Role.THINKER:
            content = terse.think_prompt(question)
        case Role.WORKER:
            content = terse.work_prompt(question, situation.suggestion)
        case Role.VERIFIER:
            content = terse.check_prompt(question, situation.answer or "")
    return (Message("user", content),)


# Protocol `released`: the authors' code as trinity.md 1.5 describes it. One shared system prompt, the role in
# the user message, which grows by one reference thought per Worker reply.

_SYSTEM = (
    "You are a helpful assistant. First think about the reasoning in mind, then give the user the answer. "
    "Put your final answer inside <answer></answer> tags: {answer_format}."
)
_COLLABORATION = (
    "You may see other agents' reference thoughts in <reference_thought> tags. Analyse them, then respond."
)
_COORDINATE = (
    "You coordinate a pool of agents that solve the problem below.\n<info>\n{info}\n</info>\n"
    "Do not answer the problem directly. Give a step-by-step analysis, then your advice to the next agent in "
    "the form <suggestion>your advice</suggestion> and the role that should come next in the form "
    "<suggested_role>solver</suggested_role> or <suggested_role>verifier</suggested_role>."
)
_JUDGE = (
    "<query>\n{query}\n</query>\n<response>\n{response}\n</response>\n"
    "Analyse the response to the query step by step. Start with ACCEPT or REJECT, then a brief explanation. "
    "Be critical."
)
_ROUTER = (
    "You are a message dispatcher coordinating {agents} agents. Check the problem and the discussion "
    "history, then decide who responds next. The hidden state of your first generated token is the signal."
)


def router_messages(situation: Situation, agents: int) -> tuple[Message, ...]:
    """The coordinator's own chat under `released`: [router system prompt, the growing user message]."""
    return (Message("system", _ROUTER.format(agents=agents)), Message("user", _discussion(situation)))


def _discussion(situation: Situation) -> str:
    """The task, the hint and one <reference_thought_k> per Worker reply so far."""
    thoughts = [
        f"<reference_thought_{k}>{_idea(without_marks(text))}</reference_thought_{k}>"
        for k, text in enumerate(situation.thoughts)
    ]
    return "\n".join([situation.task.question, _COLLABORATION, *thoughts])


def _idea(text: str) -> str:
    """What a Worker passes on: its last <idea>, or else its whole text, tags stripped."""
    return last_tagged("idea", text) or re.sub(r"</?[A-Za-z_][A-Za-z0-9_]*>", "", text).strip()


def _released(role: Role, situation: Situation) -> tuple[Message, ...]:
    discussion = _discussion(situation)
    match role:
        case Role.WORKER:
            content = discussion
        case Role.THINKER:
            if situation.response is not None:
                discussion += f"\nCurrent response: {without_marks(situation.response)}"
            content = _COORDINATE.format(info=discussion)
        case Role.VERIFIER:
            content = _JUDGE.format(query=discussion, response=without_marks(situation.response or ""))
    if situation.suggestion and role is not Role.THINKER:
        advice = f"<suggestion>{situation.suggestion}</suggestion>"
        content += f"\nWhen drafting your response, think of the following: {advice}"
    system = _SYSTEM.format(answer_format=general.answer_format(situation.task.grader))
    return (Message("system", system), Message("user", content))
