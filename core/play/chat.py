"""How each role is prompted where a person's conversation asks for the next reply: the conversation is sent as it is,
and what coordination needs stands behind it.

A Worker that is asked first gets the person's own messages and nothing else. Later prompts go on where earlier ones
ended: what a model wrote is an assistant's message, and a note that says what comes next a user's, so that a server
that remembers what it has read reads only what is new, and so that users and assistants take turns, as many chat
templates demand. A conversation is never shortened: where a window is too small, notes of earlier turns are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

from core.episode import Message, Role, TranscriptEntry
from core.play.marks import without_marks

#: How every note begins, so that a model can tell it from the person's words, and an echo of it can be found.
NOTE = "(Coordinator's note.)"
_PLAN = (
    "Plan the next reply to the person: what it has to hold, how to find it out, and which mistakes to avoid. A few "
    "short lines are enough. Do not write the reply itself."
)
#: The person's own words stand last: a small model answers what it read last.
_REPLY = (
    "Use what is right in the notes above, mend what is wrong, and mention none of them. The message to reply to, once "
    "more:"
)
_LONG_REPLY = (
    "Use what is right in the notes above, mend what is wrong, and mention none of them. Now write the next reply to "
    "the person, whole and as the conversation asks for it."
)
#: A message of so many characters is repeated at most.
LONGEST_REPEATED = 2_000
_REVIEW = (
    "Judge the latest reply to the person: is it right and complete, and is it what the conversation asks for, the "
    "system's rules included? Check it step by step and be critical. If it falls short, say where. Do not write "
    "another reply."
)
_VERDICT = (
    "Your very last line must be exactly one of these two, and must stand nowhere else:\n"
    "VERDICT-{tag}: ACCEPT\nVERDICT-{tag}: REVISE"
)
_REPAIR = (
    "The latest reply to the person has not the form that was asked for. Write it again: the JSON object alone, and "
    "nothing around it. What is wrong with it:"
)
_DUTY = {Role.THINKER: _PLAN, Role.VERIFIER: _REVIEW}
#: Stands in a note where earlier turns were left out.
SHORTENED = "So that this fits your context window, earlier notes are left out:"
_EVERY = (_PLAN, _REPLY, _LONG_REPLY, _REVIEW, _REPAIR)
#: Of the notes, by which an echo is known: nobody else writes so much in the same words.
_SENTENCES = [
    *dict.fromkeys(one for duty in _EVERY for one in re.split(r"(?<=[.?:]) ", duty) if len(one) > 30)
]
#: The person's words stand behind it.
_LAST = _REPLY[_REPLY.index("The message") :]


def chat_messages(
    role: Role,
    conversation: tuple[Message, ...],
    entries: Sequence[TranscriptEntry],
    tag: Callable[[str], str],
    fits: Callable[[Sequence[Message]], bool],
    fault: str = "",
) -> tuple[Message, ...]:
    """The messages that put a model into a role: the conversation, what was written since, and the role's duty. `tag`
    makes the tag of a verdict from all that stands before it; `fault` is what is wrong with the form of the latest
    reply, which is to be written again. Of the turns, only the latest plan and the latest reply with what stands behind
    it are kept where the messages would not fit; empty where even these do not."""
    needed = _needed(entries)
    for first_left_out in range(len(entries) + 1):
        kept = [one for place, one in enumerate(entries) if place >= first_left_out or place in needed]
        left_out = len(entries) - len(kept)
        messages = _composed(role, conversation, kept, left_out, tag, fault)
        if fits(messages):
            return messages
    return ()


def _needed(entries: Sequence[TranscriptEntry]) -> set[int]:
    """Places of the turns that every prompt tells of: the latest plan, the latest reply and what came after it."""
    plans, replies = (
        [place for place, one in enumerate(entries) if one.role is role]
        for role in (Role.THINKER, Role.WORKER)
    )
    since = range(replies[-1], len(entries)) if replies else ()
    return {*plans[-1:], *since}


def _composed(
    role: Role,
    conversation: tuple[Message, ...],
    entries: Sequence[TranscriptEntry],
    left_out: int,
    tag: Callable[[str], str],
    fault: str,
) -> tuple[Message, ...]:
    if not entries and role is Role.WORKER:
        return conversation
    messages = [*conversation]
    for entry in entries:
        if not (text := without_marks(entry.text).strip()):
            continue
        # The duty of the first turn stood in the person's message; what it brought tells enough of it.
        if len(messages) > len(conversation) or messages[-1].role == "assistant":
            _add_note(messages, _duty(entry.role, conversation))
        messages.append(Message("assistant", text))
    duty = f"{_REPAIR} {fault}" if fault else _duty(role, conversation)
    duty = f"{SHORTENED} {left_out}. {duty}" if left_out else duty
    if role is Role.VERIFIER:
        duty += f" {_VERDICT.format(tag=tag(''.join(part for one in messages for part in one.parts)))}"
    _add_note(messages, duty)
    return tuple(messages)


def _duty(role: Role, conversation: Sequence[Message]) -> str:
    """What a model is asked to do in a role."""
    if role is not Role.WORKER:
        return _DUTY[role]
    asked = _asked(conversation)
    return f"{_REPLY}\n\n{asked}" if 0 < len(asked) <= LONGEST_REPEATED else _LONG_REPLY


def _asked(conversation: Sequence[Message]) -> str:
    """What the person wrote last."""
    return next((one.content for one in reversed(conversation) if one.role == "user"), "")


def _add_note(messages: list[Message], duty: str) -> None:
    """Add a note behind the messages; into the last one where that is a user's, as two in a row are often refused."""
    note = f"{NOTE} {duty}"
    if messages[-1].role == "user":
        messages[-1] = replace(messages[-1], content=f"{messages[-1].content}\n\n{note}")
    else:
        messages.append(Message("user", note))


def is_shortened(messages: Sequence[Message]) -> bool:
    """Whether earlier turns were left out of a prompt."""
    return bool(messages) and f"{NOTE} {SHORTENED}" in messages[-1].content


def without_echo(text: str, conversation: Sequence[Message]) -> str:
    """A reply without sentences of the notes that a model repeats, in whatever brackets, emphasis or quotation marks,
    nor the person's words that it repeats behind them. What the person wrote too is no echo. Empty where a reply is
    nothing but an echo."""
    if not any(one.search(text) for one in _PIECES):
        return text
    said = "\n".join(message.content for message in conversation)
    pieces = tuple(one.pattern for one in _PIECES if not one.search(said))
    if not pieces:
        return text
    asked = _asked(conversation)
    text = _echo(pieces, asked if len(asked) <= LONGEST_REPEATED else "").sub(_closed, text)
    lines = [line.strip(" ") if not line.strip() else line for line in text.split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _piece(sentence: str) -> str:
    """The pattern of a sentence of the notes, wherever its lines are broken and without the mark at its end."""
    return r"[\s>]+".join(map(re.escape, sentence.rstrip(".?:").split())) + "[.?:]?"


#: How every note begins: in brackets of any kind, or at the beginning of a line.
_LABEL = (
    r"(?:[(\[{][*_ ]*Coordinator['\u2019]s note[.:]?[*_ ]*[)\]}][.:]?"
    r"|(?<![^\n>#*_ ])(?<![^\n>#*_] )Coordinator['\u2019]s note(?:[.:]|(?=[*_ ]*(?:\n|$))))"
)
_PIECES = [re.compile(one, re.IGNORECASE) for one in (_LABEL, *map(_piece, _SENTENCES))]
#: Marks of emphasis, of which there are as many before as behind what they stand around.
_EMPHASIS = re.compile("[*_]{1,3}")


@lru_cache(maxsize=64)
def _echo(pieces: tuple[str, ...], asked: str) -> re.Pattern[str]:
    """What is taken off a reply: these pieces one behind the other, with the marks around them."""
    one = "|".join(pieces)
    words = r"[\s>]+".join(map(re.escape, asked.split()))
    person = rf"(?:(?<={re.escape(_LAST[-9:])})[\s>*_]*(?P<asked>{words}))?" if words else "(?P<asked>)?"
    quoted = r"(?:^[ \t]{0,3}(?:>|\#{1,6})[ \t>]{0,3})?"
    run = rf"(?:{one})(?:[\s>*_]*(?:{one}))*{person}"
    return re.compile(
        rf"{quoted}(?P<before>[ \t]{{0,3}})[*_]{{0,3}}{run}[*_]{{0,3}}(?P<behind>[ \t]*)",
        re.IGNORECASE | re.MULTILINE,
    )


def _closed(echo: re.Match[str]) -> str:
    """What stands in the place of an echo: a mark of emphasis that it opened or closed for the text around it."""
    marks: list[str] = _EMPHASIS.findall(echo[0].replace(echo["asked"] or "", ""))
    before, behind = str(echo["before"]), str(echo["behind"])
    if len(marks) % 2 == 0:
        return " " if before and behind else ""
    opens = echo[0].strip(" \t>#").startswith(marks[0])
    return before + marks[0] if opens else marks[-1] + behind
