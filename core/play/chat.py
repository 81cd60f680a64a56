"""How each role, and each step of a workflow, is prompted where a person's conversation asks for the next reply: the
conversation is sent as it is, and what coordination needs stands behind it.

A Worker that is asked first gets the person's own messages and nothing else. Later prompts go on where earlier ones
ended: what a model wrote is an assistant's message, and a note that says what comes next a user's, so that a server
that remembers what it has read reads only what is new, and so that users and assistants take turns, as many chat
templates demand. A conversation is never shortened: where a window is too small, notes of earlier turns are left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial

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
_BARE_REPLY = "Now write the next reply to the person, whole and as the conversation asks for it."
_LONG_REPLY = (
    f"Use what is right in the notes above, mend what is wrong, and mention none of them. {_BARE_REPLY}"
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
_GO_ON = (
    "Your reply above broke off. Write what is missing of it, from exactly where it ends: repeat nothing of it, and "
    "mention no break."
)
#: Before what a step of a workflow is asked to do. Whoever wrote the workflow speaks of a problem.
_STEP = (
    "Other models will read what you write now, and the person will not. Where the next words speak of a problem, they "
    "mean what the conversation asks for. Do this step of the work on the next reply, and no other:"
)
_LAST_STEP = (
    "The person will read what you write now. Where the next words speak of a problem, they mean what the conversation "
    "asks for. Do this last step of the work on the next reply:"
)
_DUTY = {Role.THINKER: _PLAN, Role.VERIFIER: _REVIEW}
#: Stands in a note where earlier turns were left out.
SHORTENED = "So that this fits your context window, earlier notes are left out:"
_EVERY = (_PLAN, _REPLY, _LONG_REPLY, _REVIEW, _REPAIR, _GO_ON, _STEP, _LAST_STEP)
#: A sentence of the notes with more characters than these is known as an echo: nobody else writes the same words.
_SHORTEST_ECHO = 30


def _sentences(duty: str) -> list[str]:
    return [one for one in re.split(r"(?<=[.?:]) ", duty) if len(one) > _SHORTEST_ECHO]


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


def step_messages(
    conversation: tuple[Message, ...],
    subtask: str,
    seen: Sequence[tuple[str, str]],
    fits: Callable[[Sequence[Message]], bool],
    *,
    last: bool,
    alone: bool = False,
) -> tuple[Message, ...]:
    """The messages for a step of a workflow: the conversation, what each earlier step that it may read was asked and
    wrote (`seen`, in order), and its own `subtask`, which stand on one line. The `last` step writes the reply itself;
    where it is the only one (`alone`), it is sent the conversation as it is. Where the messages would not fit, the
    earliest of what it may read is left out, but for the latest; empty where even these do not."""
    duty = f"{_STEP} {subtask}"
    if last:
        duty = f"{_LAST_STEP} {subtask}\n{_duty(Role.WORKER, conversation) if seen else _BARE_REPLY}"
    told = [(f"{_STEP} {asked}", text) for asked, text in seen]
    for left_out in range(max(1, len(told))):
        messages = [*conversation]
        if not alone:
            _add_earlier(messages, told[left_out:])
            _add_note(messages, f"{SHORTENED} {left_out}. {duty}" if left_out else duty)
        if fits(messages):
            return tuple(messages)
    return ()


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
    told = [(_duty(one.role, conversation), without_marks(one.text).strip()) for one in entries]
    told = [one for one in told if one[1]]
    if told and messages[-1].role != "assistant":
        # The duty of the first turn stood in the person's message; what it brought tells enough of it.
        told[0] = "", told[0][1]
    _add_earlier(messages, told)
    duty = f"{_REPAIR} {fault}" if fault else _duty(role, conversation)
    duty = f"{SHORTENED} {left_out}. {duty}" if left_out else duty
    if role is Role.VERIFIER:
        duty += f" {_VERDICT.format(tag=tag(''.join(part for one in messages for part in one.parts)))}"
    _add_note(messages, duty)
    return tuple(messages)


def _add_earlier(messages: list[Message], told: Sequence[tuple[str, str]]) -> None:
    """Add what others wrote, each text behind the duty that asked for it where one is given."""
    for duty, text in told:
        if duty:
            _add_note(messages, duty)
        messages.append(Message("assistant", text))


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
    return any(f"{NOTE} {SHORTENED}" in message.content for message in messages)


#: What a reply begins with that may be thinking or a mark of its template, which is no part of the answer.
_UNSAID = "<[\u25c1\ufeff\u200b\u200c\u200d\u2060"
#: A word that more letters may belong to. Chinese, Japanese and Thai put no blanks between words.
_UNFINISHED = re.compile(r"(?:(?![\u0e00-\u0eff\u2e80-\u9fff\uff00-\uffef])\S)+\Z")
#: A longer word is an address or a table, which nobody waits for, in characters.
LONGEST_WORD = 30
#: Of the beginning of a reply that goes on, so much is compared with the end of what it goes on from, in characters;
#: shorter repetitions than the least may be meant.
MOST_REPEATED, LEAST_REPEATED = 200, 8


def shown_of(text: str) -> str:
    """What a person can be shown of a reply that is not whole: its finished words, with the blanks behind them; nothing
    while it may be thinking."""
    text = text.lstrip()
    if text[:1] in _UNSAID:  # also while there is nothing
        return ""
    # Of a text that grows, only the end is looked at: it is asked for again with every piece.
    unfinished = _UNFINISHED.search(text, max(0, len(text) - LONGEST_WORD - 1))
    return text[: unfinished.start()] if unfinished and len(unfinished[0]) <= LONGEST_WORD else text


def going_on(begun: str) -> tuple[Message, ...]:
    """What stands behind a prompt whose reply broke off after `begun`: asks for the rest of it."""
    return (Message("assistant", begun.rstrip()), Message("user", f"{NOTE} {_GO_ON}"))


def joined(begun: str, more: str) -> str:
    """A reply that broke off, with what was written to go on from there, without what that repeats of it."""
    if not begun:
        return more
    said, more_said = begun.rstrip(), more.lstrip()
    if more_said.startswith(said):
        return more_said
    for repeated in range(min(MOST_REPEATED, len(said), len(more_said)), LEAST_REPEATED - 1, -1):
        if said.endswith(more_said[:repeated]):
            return said + more_said[repeated:]
    # A new line stands for itself; else the blanks are those that the reply had before it broke off.
    return said + more if more[:1] == "\n" or said == begun else begun + more_said


def without_echo(text: str, conversation: Sequence[Message], subtask: str = "") -> str:
    """A reply without sentences of the notes that a model repeats, in whatever brackets, emphasis or quotation marks,
    and without the person's words, or the `subtask` of a workflow's step, that it repeats behind them. What the person
    wrote too is no echo. Empty where a reply is nothing but an echo."""
    notes = [*_PIECES, *(re.compile(_words(one), re.IGNORECASE) for one in _sentences(subtask))]
    if not any(one.search(text) for one in notes):
        return text
    said = "\n".join(message.content for message in conversation)
    pieces = [one.pattern for one in notes if not one.search(said)]
    if not pieces:
        return text
    asked = _asked(conversation)
    repeated = {_REPLY: asked if len(asked) <= LONGEST_REPEATED else "", _LAST_STEP: subtask}
    behind = [(note, _words(one)) for note, one in repeated.items() if one.strip()]
    pieces += [rf"(?<={re.escape(note[-9:])})[\s>*_]*{words}" for note, words in behind]
    own = re.compile("|".join(words for _, words in behind) or r"(?!)")
    text = _echo(tuple(pieces)).sub(partial(_closed, own), text)
    lines = [line.strip(" ") if not line.strip() else line for line in text.split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _words(text: str) -> str:
    """The pattern of these words, wherever their lines are broken, without the mark at their end."""
    return r"[\s>]+".join(map(re.escape, text.rstrip(".?: \n").split())) + "[.?:]?"


#: How every note begins: in brackets of any kind, or at the beginning of a line.
_LABEL = (
    r"(?:[(\[{][*_ ]*Coordinator['\u2019]s note[.:]?[*_ ]*[)\]}][.:]?"
    r"|(?<![^\n>#*_ ])(?<![^\n>#*_] )Coordinator['\u2019]s note(?:[.:]|(?=[*_ ]*(?:\n|$))))"
)
_KNOWN = dict.fromkeys(one for duty in _EVERY for one in _sentences(duty))
_PIECES = [re.compile(one, re.IGNORECASE) for one in (_LABEL, *map(_words, _KNOWN))]
#: Marks of emphasis, of which there are as many before as behind what they stand around.
_EMPHASIS = re.compile("[*_]{1,3}")


@lru_cache(maxsize=64)
def _echo(pieces: tuple[str, ...]) -> re.Pattern[str]:
    """What is taken off a reply: these pieces one behind the other, with the marks around them."""
    one = "|".join(pieces)
    quoted = r"(?:^[ \t]{0,3}(?:>|\#{1,6})[ \t>]{0,3})?"
    return re.compile(
        rf"{quoted}(?P<before>[ \t]{{0,3}})[*_]{{0,3}}(?:{one})(?:[\s>*_]*(?:{one}))*[*_]{{0,3}}(?P<behind>[ \t]*)",
        re.IGNORECASE | re.MULTILINE,
    )


def _closed(own: re.Pattern[str], echo: re.Match[str]) -> str:
    """What stands in the place of an echo: a mark of emphasis that it opened or closed for the text around it. Marks in
    the words of others (`own`) are none of it."""
    marks: list[str] = _EMPHASIS.findall(own.sub("", echo[0]))
    before, behind = str(echo["before"]), str(echo["behind"])
    if len(marks) % 2 == 0:
        return " " if before and behind else ""
    opens = echo[0].strip(" \t>#").startswith(marks[0])
    return before + marks[0] if opens else marks[-1] + behind
