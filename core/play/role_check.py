"""Each role played once by each model of a pool: can its plan, its answer and its verdict be read?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from core.episode import ROLE_ORDER, Ask, Flag, Protocol, Reply, Role, Task
from core.finish import ONLY_UNASKED_CALLS, UNASKED_CALLS, Finish
from core.play.reading import Reading, read_reply
from core.play.roles import Situation, dialect_and_tag, messages_for
from core.pool.pool import Pool, closing
from core.pool.spec import ModelSpec, slots_of

#: Small enough for every model, and with an answer that a Verifier can judge.
TASK = Task("role-check", "How much is 17 + 25?", "42", "number")
#: What a reply lacks, in words.
LACKS: dict[Flag, str] = {
    Flag.NO_SUGGESTION: "no readable plan",
    Flag.NO_ANSWER: "no readable answer",
    Flag.VERDICT_UNREADABLE: "no readable verdict",
}


@dataclass(frozen=True, slots=True)
class RoleCheck:
    """One call: a model in a role, its reply whole or streamed, and what was read from it."""

    model: str
    role: Role
    streamed: bool
    reply: Reply
    reading: Reading

    @property
    def problem(self) -> str:
        """What is wrong with it, in a few words; empty where nothing is."""
        if self.reply.error is not None:
            return self.reply.error.message
        if self.reply.finish is Finish.CUT:
            return "cut at its token limit: raise max_tokens"
        if self.reply.finish is Finish.FILTERED:
            return f"would not answer ({self.reply.finish_reason})"
        if self.reply.finish is Finish.UNKNOWN:
            return f"stopped for a reason that is not known ({self.reply.finish_reason})"
        unasked = self.reply.finish_reason in (UNASKED_CALLS, ONLY_UNASKED_CALLS)
        found = [LACKS[flag] for flag in self.reading.flags if flag in LACKS]
        return ", ".join([*found, *["called a tool that nobody offered"] * unasked])


def call_count(specs: Sequence[ModelSpec]) -> int:
    return len(ROLE_ORDER) * sum(1 + _is_streamed(spec) for spec in slots_of(specs))


def check_roles(pool: Pool) -> Iterator[RoleCheck]:
    """Every model in every role, as the calls are answered: all of them whole, then, of servers, streamed."""
    calls = [(spec, role, _ask(spec, role)) for spec in slots_of(pool.specs) for role in ROLE_ORDER]
    with closing(pool.ask([ask for *_, ask in calls])) as replies:
        for index, reply in replies:
            _, role, ask = calls[index]
            yield _checked(role, ask, reply, streamed=False)
    for spec, role, ask in calls:
        if _is_streamed(spec):
            with closing(pool.stream(ask)) as pieces:
                for piece in pieces:
                    if isinstance(piece, Reply):
                        yield _checked(role, ask, piece, streamed=True)


def _is_streamed(spec: ModelSpec) -> bool:
    return spec.provider == "openai" and spec.stream


def _ask(spec: ModelSpec, role: Role) -> Ask:
    situation = Situation(
        TASK,
        suggestion="Add the tens, then the ones." if role is Role.WORKER else "",
        answer=TASK.answer if role is Role.VERIFIER else None,
    )
    messages = messages_for(spec.dialect, role, situation, key=f"role-check/{role}")
    return Ask(spec.name, role, messages, temperature=spec.role_temperature.get(role))


def _checked(role: Role, ask: Ask, reply: Reply, *, streamed: bool) -> RoleCheck:
    unread = reply.error is not None or reply.finish_reason == ONLY_UNASKED_CALLS
    text = "" if unread else reply.text
    dialect, tag = dialect_and_tag(ask.messages)
    reading = read_reply(Protocol.PAPER, dialect, role, text, tag, grader=TASK.grader)
    return RoleCheck(ask.model, role, streamed, reply, reading)
