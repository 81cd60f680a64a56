"""Each role played once by each model of a pool, and its judge asked once: can plan, answer, verdict and rating be
read?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from core.episode import ROLE_ORDER, Ask, Flag, Protocol, Reply, Role, Task
from core.finish import ONLY_UNASKED_CALLS, UNASKED_CALLS, Finish
from core.play.judging import judge_messages, read_rating
from core.play.reading import Reading, read_reply
from core.play.roles import Situation, dialect_and_tag, messages_for
from core.pool.pool import Pool, closing
from core.pool.spec import ModelSpec, judge_of, slots_of

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
    """One call: a model in a role, or the judge, its reply whole or streamed, and what was read from it."""

    model: str
    role: Role
    streamed: bool
    reply: Reply
    reading: Reading
    rates: bool = False

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
        found += ["no readable rating"] * (self.rates and read_rating(self.reply) is None)
        return ", ".join([*found, *["called a tool that nobody offered"] * unasked])


def call_count(specs: Sequence[ModelSpec]) -> int:
    return sum((1 if spec.judge else len(ROLE_ORDER)) * (1 + _is_streamed(spec)) for spec in specs)


def check_roles(pool: Pool) -> Iterator[RoleCheck]:
    """Every model in every role, as the calls are answered: all of them whole, then, of servers, streamed."""
    calls = [(spec, role, _ask(spec, role)) for spec in slots_of(pool.specs) for role in ROLE_ORDER]
    if (judge := judge_of(pool.specs)) is not None:
        asked = judge_messages(replace(TASK, grader="judge"), TASK.answer)
        calls.append((judge, Role.VERIFIER, Ask(judge.name, Role.VERIFIER, asked, temperature=0.0)))
    with closing(pool.ask([ask for *_, ask in calls])) as replies:
        for index, reply in replies:
            yield _checked(*calls[index], reply, streamed=False)
    for call in calls:
        if _is_streamed(call[0]):
            with closing(pool.stream(call[2])) as pieces:
                for piece in pieces:
                    if isinstance(piece, Reply):
                        yield _checked(*call, piece, streamed=True)


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


def _checked(spec: ModelSpec, role: Role, ask: Ask, reply: Reply, *, streamed: bool) -> RoleCheck:
    if spec.judge:
        return RoleCheck(ask.model, role, streamed, reply, Reading(), rates=True)
    unread = reply.error is not None or reply.finish_reason == ONLY_UNASKED_CALLS
    text = "" if unread else reply.text
    dialect, tag = dialect_and_tag(ask.messages, TASK)
    reading = read_reply(Protocol.PAPER, dialect, role, text, tag, grader=TASK.grader)
    return RoleCheck(ask.model, role, streamed, reply, reading)
