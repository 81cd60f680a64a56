"""What a reply means to the role it was written in, in both protocols and both dialects; pure text, no models.

What a role means is read from that role's own message and nowhere else. Replies of models that follow the asked form to
the letter and of those that take liberties with it are both read; what could mean two things means nothing.
"""

from __future__ import annotations

import ast
import json
import re
import textwrap
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from core.episode import AnswerRule, Flag, Grader, Protocol, Role, Verdict
from core.play import terse
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
) -> Reading:
    """What the reply means. `tag` is the one that the prompt asked a Verifier to use; `grader` and `pattern` are the
    task's, whose answer a Worker gives."""
    if dialect == "general":
        text = without_thinking(text)
    terse_reply, released = dialect == "terse", dialect == "general" and protocol is Protocol.RELEASED
    match role:
        case Role.THINKER:
            suggestion = text.strip() if terse_reply else last_tagged("suggestion", text)
            suggested_role = None
            if released:  # both, or neither counts
                suggested_role = _SUGGESTED_ROLES.get(last_tagged("suggested_role", text).lower())
                suggestion = suggestion if suggested_role else ""
            if not suggestion:
                return Reading(flags=(Flag.NO_SUGGESTION,))
            return Reading(suggestion=suggestion, suggested_role=suggested_role)
        case Role.WORKER:
            if terse_reply:
                answer, rule = terse.read_answer(text), None
            elif released:  # as its authors' code does
                answer, rule = last_tagged("answer", text), None
            else:
                answer, rule = find_answer(text, grader, pattern) or ("", None)
            if not answer:
                return Reading(flags=(Flag.NO_ANSWER,))
            return Reading(answer=answer, answer_rule=rule)
        case Role.VERIFIER:
            if terse_reply:
                raw = terse.read_verdict(text)
            else:
                raw = _first_verdict(text) if released else _tagged_verdict(text, tag)
            verdict = Verdict.ACCEPT if raw.upper() == "ACCEPT" else Verdict.REVISE
            return Reading(verdict=verdict, verdict_raw=raw, flags=() if raw else (Flag.VERDICT_UNREADABLE,))


def without_thinking(text: str) -> str:
    """A reply without the thinking that some models write into it, before </think>."""
    thinking, closed, answer = text.partition("</think>")
    opened = thinking.lstrip().startswith("<think>")
    if closed and (opened or "<think>" not in thinking):
        return answer.lstrip()
    return "" if opened else text


def output_of_other_role(text: str) -> Literal["answer", "verdict"] | None:
    """What a Thinker's reply gave that only another role is asked for, in either dialect; None when it only planned."""
    if last_tagged("answer", without_thinking(text)) or terse.read_answer(text):
        return "answer"
    return "verdict" if terse.read_verdict(text) else None


def with_verdict(protocol: Protocol, dialect: Dialect, text: str, tag: str, verdict: Verdict) -> str:
    """A Verifier's reply with its verdict changed and, where that can be read so, nothing else."""
    first = protocol is Protocol.RELEASED and dialect == "general"
    word = "REJECT" if first and verdict is Verdict.REVISE else verdict.value
    line = f"VERDICT-{tag}: {word}" if dialect == "general" and not first else word
    raw = read_reply(protocol, dialect, Role.VERIFIER, text, tag).verdict_raw
    tries = [f"{word}. {text}" if first else f"{text.rstrip()}\n{line}", line]
    if raw:
        before, _, after = without_thinking(text).partition(raw) if first else text.rpartition(raw)
        tries.insert(0, f"{before}{word}{after}")
    for changed in tries:
        reading = read_reply(protocol, dialect, Role.VERIFIER, changed, tag)
        if reading.verdict is verdict and not reading.flags:
            return changed
    raise AssertionError("unreachable: the bare verdict can be read")


def reply_with_answer(dialect: Dialect, answer: str) -> str:
    """The shortest reply of a Worker that gives this answer in the asked form."""
    return terse.answer_reply(answer) if dialect == "terse" else f"<answer>{answer}</answer>"


def last_tagged(name: str, text: str) -> str:
    """The content of the last complete <name>..</name> pair, stripped; empty when there is none."""
    pair = rf"<{name}>((?:(?!</?{name}>).)*)</{name}>"
    found = re.findall(pair, text, re.IGNORECASE | re.DOTALL | re.ASCII)
    return str(found[-1]).strip() if found else ""


# Answers

#: Marks of Markdown and of mathematics around a short text.
_DRESS = "*_`$ \t\n"
#: What stands for an answer where the asked form is repeated and not followed.
_PLACEHOLDERS = frozenset(("your answer", "answer", "your final answer", "..."))
_LONGEST = 2000  # characters of an answer found without its closing tag
_MOST_BOXES = 50  # that are looked into, from the last one on

_TAG_PAIR = re.compile(
    r"<answer\b[^<>]{0,80}>((?:(?!</?answer\b).)*)</answer\s*>", re.IGNORECASE | re.DOTALL | re.ASCII
)
_OPEN_TAG = re.compile(r"<answer\b[^<>]{0,80}>((?:(?!<answer\b).)*)\Z", re.IGNORECASE | re.DOTALL | re.ASCII)
_ESCAPED_TAG = re.compile(r"&lt;(/?answer)&gt;", re.IGNORECASE)
#: A block of code, also one that is never closed.
_CODE_BLOCK = re.compile(
    r"^[ \t]*(?P<fence>```+|~~~+)[^\n`]*\n(?P<code>.*?)(?:^[ \t]*(?P=fence)[ \t]*$|\Z)",
    re.MULTILINE | re.DOTALL,
)
_BOX = re.compile(r"\\(?:boxed|fbox|answer)\s*\{")
#: Words that introduce an answer, in the languages that models fall into most.
_INTRODUCED = re.compile(
    r"""(?:
      \b(?:final|correct|right|my|the)\ (?:answer|option|choice)(?:\ to\ [^.:\n]{1,80})?
        (?:\ (?:is|would\ be|equals)\b|\s*=)
    | ^\#{1,6}\s*(?:the\ )?(?:final\ )?answer\s*$
    | (?:^|(?<=[.!?]\ )|(?<=[*_#>]))\s*(?:the\ )?(?:final\ |correct\ )?answer\s*[*_]*\s*:
    | \b(?:respuesta|resposta|risposta)(?:\ (?:final|correcta|finale|corretta))?\ (?:es|é|è)\b
    | \b(?:antwort|lösung)\ (?:ist|lautet)\b
    | \bréponse(?:\ (?:finale|correcte))?\ est\b
    | (?:^|(?<=\s)|(?<=[*_]))(?:respuesta|resposta|risposta|antwort|lösung|réponse)(?:\ final[e]?)?\s*[*_]*\s*:
    | (?:答案|答え|答)(?:是|为|為|は)?\s*[:：]?
    )\s*[:：]?\s*""",
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
_SENTENCE_END = re.compile(
    r"[.!?](?=[*_`$)\"'\]]*(?:\s|$))|[。！？]|\n|,?\s(?:because|since|as we|weil|porque|car)\s"
)
_NO_ANSWER = re.compile(
    r"^(?:not|no|never|unknown|unclear|unsure|wrong|incorrect|correct|right|nicht|nein|pas|non|不是|not\b.*)\b|^$",
    re.IGNORECASE,
)
_BARE_NUMBER = re.compile(r"[-+\u2212]?\d[\d,. ]*(?:/\d+)?\s*%?")
_LONE_LETTER = re.compile(r"[(\[]?([A-Za-z])[)\].:]{0,2}")


def find_answer(text: str, grader: Grader, pattern: str = "") -> tuple[str, AnswerRule] | None:
    """A Worker's answer in its reply and the rule that found it: by the task file's own `pattern` (its first group, or
    all of it, where it matches last), else by the first of the rules that finds one."""
    if pattern:
        found = list(re.finditer(pattern, text))
        own = found[-1][1 if found[-1].re.groups else 0] if found else ""
        if own and own.strip():
            return own.strip(), "pattern"
    if grader == "open":
        return _whole(text)
    if grader == "program":
        return _program(text)
    for rule, find in _RULES.items():
        answer = find(text, grader).strip()
        if answer and answer.casefold() not in _PLACEHOLDERS:
            return answer, rule
    return None


def _whole(text: str) -> tuple[str, AnswerRule] | None:
    """A reply to somebody: what stands in its tag, also one that is never closed, else all of it."""
    if tagged := _in_tag(text, "open"):
        return tagged, "tag"
    opened = _OPEN_TAG.search(_ESCAPED_TAG.sub(r"<\1>", text))
    if opened and (rest := opened[1].strip()):
        return rest, "open tag"
    return (text.strip(), "whole") if text.strip() else None


def _program(text: str) -> tuple[str, AnswerRule] | None:
    """A program: what stands in its tag, also one that is never closed; else the last block of code; else all of the
    reply, where it is one."""
    bare = _ESCAPED_TAG.sub(r"<\1>", text)
    rules: dict[AnswerRule, list[str]] = {
        "tag": _TAG_PAIR.findall(bare),
        "open tag": _OPEN_TAG.findall(bare),
        "fence": [text] if _CODE_BLOCK.search(text) else [],
        "whole": [text] if _is_program(text) else [],
    }
    for rule, found in rules.items():
        programs = [unfenced(one) for one in found]
        if given := [one for one in programs if one and one.casefold() not in _PLACEHOLDERS]:
            return given[-1], rule
    return None


def unfenced(text: str) -> str:
    """A program without the code fence around it, with its lines as they are; of several blocks, the last program."""
    blocks = [found["code"] for found in _CODE_BLOCK.finditer(text)] or [text]
    program = next((one for one in reversed(blocks) if _is_program(one)), blocks[-1])
    return textwrap.dedent(program.strip("\n")).rstrip()


def _is_program(text: str) -> bool:
    """Whether a text is a program that does something, and no words that happen to be one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(textwrap.dedent(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(isinstance(node, ast.Call | ast.FunctionDef | ast.ClassDef) for node in ast.walk(tree))


def _in_tag(text: str, _: Grader) -> str:
    """The last complete pair that holds something."""
    found = [one.strip() for one in _TAG_PAIR.findall(_ESCAPED_TAG.sub(r"<\1>", text))]
    return next((one for one in reversed(found) if one and one.casefold() not in _PLACEHOLDERS), "")


def _in_open_tag(text: str, _: Grader) -> str:
    """What follows a last tag that is never closed, up to an empty line."""
    found = _OPEN_TAG.search(_ESCAPED_TAG.sub(r"<\1>", text))
    if not found or "</answer" in found[1].lower():
        return ""
    rest = re.split(r"\n\s*\n|</?\w", found[1].strip(), maxsplit=1)[0].strip()
    return rest if len(rest) <= _LONGEST else ""


def _in_box(text: str, _: Grader) -> str:
    """What stands in the last \\boxed{} whose braces balance."""
    for box in reversed(list(_BOX.finditer(text))[-_MOST_BOXES:]):
        depth = 1
        for end in range(box.end(), min(len(text), box.end() + _LONGEST)):
            depth += {"{": 1, "}": -1}.get(text[end], 0) if text[end - 1] != "\\" else 0
            if not depth:
                break
        if not depth and (inside := text[box.end() : end].strip()):
            return inside
    return ""


def _in_json(text: str, _: Grader) -> str:
    """The only answer of a reply that is one JSON object."""
    bare = re.sub(r"\A\s*```\w*\n|\n```\s*\Z", "", text).strip()
    if not (bare.startswith("{") and bare.endswith("}") and len(bare) <= _LONGEST):
        return ""
    try:
        found = json.loads(bare)
    except (ValueError, RecursionError):
        return ""
    said = [value for key, value in found.items() if key.casefold() in ("answer", "final_answer")]
    return str(said[0]) if len(said) == 1 and isinstance(said[0], str | int | float) else ""


def _after_hashes(text: str, _: Grader) -> str:
    """The last line, where it begins with ####, as in GSM8K."""
    last = text.strip().rsplit("\n", 1)[-1].strip()
    return last.removeprefix("####").strip(_DRESS) if re.match(r"####\s*[^#\s]", last) else ""


def _in_sentence(text: str, _: Grader) -> str:
    """What follows the last words that introduce an answer, up to the end of that sentence."""
    for found in reversed(list(_INTRODUCED.finditer(text))):
        rest = text[found.end() :].lstrip(_DRESS + ":")
        end = _SENTENCE_END.search(rest)
        said = _undressed(rest[: end.start()] if end else rest)
        if not said and end:
            continue
        if not _NO_ANSWER.match(said):
            return re.split(r",? (?:no,? wait|wait,|sorry|actually)", said, maxsplit=1)[0].strip(" ,")
        return ""
    return ""


def _undressed(text: str) -> str:
    """Without emphasis around it, and without a mark of mathematics that has no partner."""
    bare = text.strip().strip("*_`").strip()
    for mark in ("**", "__", "$$", "$", "`"):
        if bare.count(mark) % 2 and (bare.endswith(mark) or (mark != "$" and bare.startswith(mark))):
            bare = bare.removesuffix(mark).strip() if bare.endswith(mark) else bare.removeprefix(mark).strip()
    return bare.strip("*_` ").strip()


def _lone_letter(text: str, grader: Grader) -> str:
    """The letter of a choice that stands alone on the last line."""
    last = text.strip().rsplit("\n", 1)[-1].strip(_DRESS)
    found = _LONE_LETTER.fullmatch(last) if grader == "choice" else None
    return found[1].upper() if found else ""


def _bare_number(text: str, _: Grader) -> str:
    """The whole reply, where it is a number and nothing else."""
    bare = text.strip().strip(_DRESS)
    return bare if _BARE_NUMBER.fullmatch(bare) else ""


_RULES: dict[AnswerRule, Callable[[str, Grader], str]] = {
    "tag": _in_tag,
    "open tag": _in_open_tag,
    "box": _in_box,
    "json": _in_json,
    "hashes": _after_hashes,
    "letter": _lone_letter,
    "sentence": _in_sentence,
    "bare": _bare_number,
}


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


def _tagged_verdict(text: str, tag: str) -> str:
    """ACCEPT or REVISE as the last line `VERDICT-<tag>: ...` gives it; else empty.

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
    for line in (*lines[:-1], (final["reason"] or "")):
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
        terse.is_negated(text[: match.start()]) for match in found
    ):
        return ""
    return found[0][0]
