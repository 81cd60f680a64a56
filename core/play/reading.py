"""What a reply means to the role it was written in, in both protocols and both dialects; pure text, no models.

What a role means is read from that role's own message and nowhere else. Replies of models that follow the asked form to
the letter and of those that take liberties with it are both read; what could mean two things means nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from core.episode import AnswerRule, Flag, Message, Protocol, Reply, Role, Verdict
from core.grader import Grader
from core.play.answers import find_answer, last_tagged
from core.play.chat import without_echo
from core.play.marks import own_turn, without_marks, without_thinking
from core.play.roles import is_negated, terse_answer, terse_verdict
from core.pool.spec import Dialect


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reply means. Only the fields of the replying role are set; `answer_rule` says by which rule its answer was
    found, where there is more than one."""

    suggestion: str = ""
    suggested_role: Role | None = None
    answer: str | None = None
    answer_rule: AnswerRule | None = None
    verdict: Verdict | None = None
    verdict_raw: str = ""
    flags: tuple[Flag, ...] = ()


#: A Verifier's turn before any answer.
NOTHING_TO_JUDGE = Reading(verdict=Verdict.REVISE, flags=(Flag.NOTHING_TO_JUDGE,))

_SUGGESTED_ROLES = {"solver": Role.WORKER, "verifier": Role.VERIFIER}


def read_reply(
    protocol: Protocol,
    dialect: Dialect,
    role: Role,
    text: str,
    tag: str = "",
    *,
    grader: Grader = "exact",
    pattern: str = "",
    conversation: Sequence[Message] = (),
) -> Reading:
    """What the reply means. `tag` is the one that the prompt asked a Verifier to use; `grader`, `pattern` and
    `conversation` are the task's, whose answer a Worker gives."""
    whole = without_thinking(text)
    text = own_turn(whole)
    terse_reply, released = dialect == "terse", dialect == "general" and protocol is Protocol.RELEASED
    match role:
        case Role.THINKER:
            whole_plan = terse_reply or dialect == "chat"
            suggestion = text.strip() if whole_plan else last_tagged("suggestion", text)
            suggested_role = None
            if released:  # both, or neither counts
                suggested_role = _SUGGESTED_ROLES.get(last_tagged("suggested_role", text).lower())
                suggestion = suggestion if suggested_role else ""
            if not suggestion:
                return Reading(flags=(Flag.NO_SUGGESTION,))
            return Reading(suggestion=suggestion, suggested_role=suggested_role)
        case Role.WORKER:
            rule: AnswerRule | None = None
            if dialect == "chat":
                answer, rule = without_echo(text.strip(), conversation), "whole"
            elif terse_reply:
                answer = terse_answer(text)
            elif released:  # as its authors' code does
                answer = last_tagged("answer", text)
            else:
                answer, rule = find_answer(text, grader, pattern) or ("", None)
            if not answer:
                return Reading(flags=(Flag.NO_ANSWER,))
            return Reading(answer=answer, answer_rule=rule)
        case Role.VERIFIER:
            if terse_reply:
                raw = terse_verdict(text)
            else:
                raw = _first_verdict(text) if released else _tagged_verdict(text, tag, whole)
            verdict = Verdict.ACCEPT if raw.upper() == "ACCEPT" else Verdict.REVISE
            return Reading(verdict=verdict, verdict_raw=raw, flags=() if raw else (Flag.VERDICT_UNREADABLE,))


def read_recorded(role: Role, reply: Reply) -> Reading:
    """What a row of an outcome table means: what was read from it when the table was made."""
    row = reply.recorded
    assert row is not None
    match role:
        case Role.THINKER:
            return Reading(suggestion=reply.text, flags=() if reply.text else (Flag.NO_SUGGESTION,))
        case Role.WORKER:
            return Reading(answer=row.answer, flags=() if row.answer is not None else (Flag.NO_ANSWER,))
        case Role.VERIFIER:
            verdict = row.verdict or Verdict.REVISE
            return Reading(
                verdict=verdict,
                verdict_raw=verdict.value if row.verdict else "",
                flags=() if row.verdict else (Flag.VERDICT_UNREADABLE,),
            )


def output_of_other_role(text: str) -> Literal["answer", "verdict"] | None:
    """What a Thinker's reply gave that only another role is asked for, in either dialect; None when it only planned."""
    text = without_marks(text)
    if last_tagged("answer", text) or terse_answer(text):
        return "answer"
    return "verdict" if terse_verdict(text) else None


def with_verdict(protocol: Protocol, dialect: Dialect, text: str, tag: str, verdict: Verdict) -> str:
    """A Verifier's reply with its verdict changed and, where that can be read so, nothing else."""
    first = protocol is Protocol.RELEASED and dialect == "general"
    word = "REJECT" if first and verdict is Verdict.REVISE else verdict.value
    tagged = dialect in ("general", "chat") and not first
    line = f"VERDICT-{tag}: {word}" if tagged else word
    raw = read_reply(protocol, dialect, Role.VERIFIER, text, tag).verdict_raw
    tries = [f"{word}. {text}" if first else f"{text.rstrip()}\n{line}", line]
    if raw:
        before, _, after = without_marks(text).partition(raw) if first else text.rpartition(raw)
        tries.insert(0, f"{before}{word}{after}")
    for changed in tries:
        reading = read_reply(protocol, dialect, Role.VERIFIER, changed, tag)
        if reading.verdict is verdict and not reading.flags:
            return changed
    raise AssertionError("unreachable: the bare verdict can be read")


def reply_with_answer(dialect: Dialect, answer: str) -> str:
    """The shortest reply of a Worker that gives this answer in the asked form."""
    if dialect == "chat":
        return answer
    return f"answer {answer}" if dialect == "terse" else f"<answer>{answer}</answer>"


# Verdicts

#: Full-width forms of ASCII, and hyphens of other widths, as some keyboards and models write them.
_NARROW: dict[int, int | str] = {
    **{code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)},
    **dict.fromkeys(range(0x2010, 0x2016), "-"),
    **dict.fromkeys((0x3000, 0xA0), " "),
}
_FENCE = re.compile(r"\s*(?:```|~~~)\w*\s*")
#: Words behind a verdict that make it conditional, doubtful or two.
_DOUBT = re.compile(
    r"\b(?:accept|reject|revise|if|unless|but|however|although|though|or|not|no|wait|provided|once|after|when|"
    r"except|pending|reservations?|assuming|maybe|perhaps|correction|actually)\b|n['\u2019]t\b|\?",
    re.IGNORECASE,
)
_OTHER = re.compile(r"\b(?:accept|if|unless|or)\b", re.IGNORECASE)
_MARKS = r"[*_`\"'\u201c\u201d\u2018\u2019 \t]*"
_VERDICT_LINE = re.compile(
    rf"(?:[-*+\u2022]\s+|\d+[.)]\s+|\#{{1,6}}\s+)?{_MARKS}VERDICT-?(?P<tag>[a-z0-9]{{4,12}}){_MARKS}:{_MARKS}"
    rf"(?P<verdict>ACCEPT|REVISE){_MARKS}[.!]?{_MARKS}"
    r"(?:(?:[.!:;,(\u2013\u2014-]|\bbecause\b|\bsince\b|\bas\b)(?P<reason>.*))?",
    re.IGNORECASE | re.ASCII,
)
_MENTION = re.compile(r"VERDICT-?\s*([a-z0-9]*)\W{0,6}(ACCEPT|REVISE)?", re.IGNORECASE | re.ASCII)
#: A tag that differs from the asked one in at most so many letters was mistyped; nobody can guess one so near.
_MISTYPED = 2


def _tagged_verdict(text: str, tag: str, whole: str) -> str:
    """ACCEPT or REVISE as the last line `VERDICT-<tag>: ...` gives it; else empty. `whole` is the text with its control
    marks, and with what was written behind the model's own turn.

    Forgiven are marks of Markdown, quotes around the line, a fence around it, a reason behind it, full-width signs, the
    same verdict given before, and a mistyped tag. Quoted lines do not count, and two verdicts that differ are none."""
    own = _unquoted(text.translate(_NARROW), tag)
    lines = [line.strip() for line in own if line.strip() and not _FENCE.fullmatch(line)]
    final = _VERDICT_LINE.fullmatch(lines[-1]) if tag and lines else None
    if final is None or _distance(final["tag"].lower(), tag.lower()) > _MISTYPED:
        return ""
    raw, said = final["verdict"], final["verdict"].upper()
    # Why it is to be revised is told in words of doubt.
    if (_DOUBT if said == "ACCEPT" else _OTHER).search(final["reason"] or ""):
        return ""
    for line in _unquoted(whole.translate(_NARROW), tag):
        for named, other in _MENTION.findall(line):
            near = _distance(named.lower(), tag.lower()) <= _MISTYPED
            if near and other.upper() != said:
                return ""
    return raw


def _unquoted(text: str, tag: str) -> list[str]:
    """The lines that are the writer's own: none between `BEGIN tag` and `END tag`, none behind `>`."""
    own, quoted = [], False
    for line in text.split("\n"):
        bare = line.strip()
        if re.fullmatch(r"BEGIN \w+", bare):
            quoted = True
        elif re.fullmatch(r"END \w+", bare):
            quoted = False
        elif not quoted and not bare.startswith(">"):
            own.append(line)
    return own


def _distance(a: str, b: str) -> int:
    """In how many letters two words differ: Levenshtein's distance."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        row, before = [i], row
        for j, y in enumerate(b, start=1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (x != y)))
    return row[-1]


def _first_verdict(text: str) -> str:
    """ACCEPT or REJECT: first, as the authors' code finds it, or the only one of the two; else empty.

    Their code takes "I do not accept" and "unacceptable" for ACCEPT; here neither says anything."""
    if match := re.match(r"\s*(accept|reject)", text, re.IGNORECASE | re.ASCII):
        return match[1]
    found = list(re.finditer(r"\b(?:accept|reject)", text, re.IGNORECASE | re.ASCII))
    if len({match[0].lower() for match in found}) != 1 or any(
        is_negated(text[: match.start()]) for match in found
    ):
        return ""
    return found[0][0]
