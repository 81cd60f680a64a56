"""What a model said, without what its template, its server or its thinking left in the text.

Three things are taken off, before a reply is read and before anybody else reads it: channels (of which only the final
one is the reply), blocks of thinking, and the control marks of chat templates. Marks in a block of code or between
quotation marks are what somebody writes about, and stay.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right

_THOUGHTS = "think|thinking|thoughts?|reasoning|reflection|scratchpad|seed:think"
_OPENS = (
    rf"<\s*(?:{_THOUGHTS})\s*>|\[THINK\]|\u25c1think\u25b7|<\|begin_of_thought\|>|<\|START_THINKING\|>"
    r"|<\|channel>thought"
)
_CLOSES = (
    rf"<\s*/\s*(?:{_THOUGHTS})\s*>|\[/THINK\]|\u25c1/think\u25b7|<\|end_of_thought\|>|<\|END_THINKING\|>"
    r"|<channel\|>"
)
_OPENING = re.compile(_OPENS, re.IGNORECASE)
_THINKING = re.compile(rf"(?P<open>{_OPENS})|(?P<close>{_CLOSES})", re.IGNORECASE)

#: Whose turn begins: in the templates of ChatML, harmony, Llama, Gemma, Phi, DeepSeek and Mistral.
_TURN = re.compile(
    r"""(?:<\|im_start\|>|<\|start\|>|<start_of_turn>|<\|turn>)[ \t]*(?P<role>\w*)[ \t]*(?:<\|(?:im_sep|message)\|>)?\n?
    | <\|start_header_id\|>\s*(?:(?P<header>\w+)\s*)?<\|end_header_id\|>\s*
    | <[|\uff5c](?P<name>user|assistant|system|human|observation|tool)[|\uff5c]>[ \t]*\n?
    | (?P<inst>\[INST\])""",
    re.IGNORECASE | re.VERBOSE,
)
_OWN_ROLES = frozenset(("", "assistant", "model", "ai", "bot"))
#: A prompt in Mistral's template, repeated before the reply.
_ECHO = re.compile(r"\s*(?:<s>\s*)?\[INST\].*?\[/INST\]", re.DOTALL)

_NAMES = (
    "im_start|im_end|im_sep|return|end|start|message|call|channel|constrain|endoftext|eos|bos|pad|eot|"
    r"[A-Za-z]+(?:_[A-Za-z]+)+"
)
#: A mark wherever it stands, and one that is a mark only at an end of the text.
_MARK = (
    rf"<\|(?:{_NAMES})\|>|<\uff5c[^<>\uff5c\n]{{2,40}}\uff5c>|<(?:start|end)_of_(?:turn|utterance|text)>|<turn\|>"
    r"|<(?:eos|bos|pad)>|\[/?INST\]|<</?SYS>>"
)
_INSIDE = re.compile(_MARK, re.IGNORECASE)
_AT_END = rf"{_MARK}|<\|\w{{2,40}}\|>|\[(?:EOS|BOS)\]|[\ufeff\u200b-\u200d\u2060]"
_FIRST = re.compile(rf"\A(?:\s*(?:{_AT_END}|<s>))+[ \t]*", re.IGNORECASE)
_LAST = re.compile(rf"(?:{_AT_END}|</s>(?:<s>)?)\Z", re.IGNORECASE)
_LONGEST_MARK = 64

#: Where a message of a channel begins.
_CHANNEL = re.compile(
    r"(?P<structure>(?:<\|(?:end|call)\|>\s*)?<\|start\|>\s*[\w.]*[^<\n]{0,80})?"
    r"<\|channel\|>\s*(?P<name>\w+)(?P<more>[^<\n]{0,80}(?:<\|constrain\|>[^<\n]{0,40})?)<\|message\|>",
    re.IGNORECASE,
)
#: The same where a server took the marks themselves out, and nothing else.
_CHANNELS_RUN_TOGETHER = re.compile(r"\A\s*analysis(?=[A-Z\W]).*assistantfinal", re.DOTALL)
_MESSAGE_END = re.compile(r"<\|(?:end|return|call)\|>")

#: A line that opens or closes a block of code; a mark may stand behind it.
_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})((?:(?!<[|/])[^\n`])*)", re.MULTILINE)
_LONGEST_SPAN = 400
_CODE_SPAN = re.compile(rf"(?<!`)(`{{1,3}})(?!`)[^`\n]{{1,{_LONGEST_SPAN}}}\1(?!`)")
_QUOTES = frozenset("\"'`\u201c\u201d\u2018\u2019")
#: Whether a text can hold any mark at all.
_SOME = re.compile(r"[<\[\u25c1\ufeff\u200b-\u200d\u2060]|assistantfinal")


def without_marks(text: str) -> str:
    """A reply as everybody but its writer reads it. A text that holds no mark is returned as it is."""
    return own_turn(without_thinking(text))


def without_thinking(text: str) -> str:
    """A reply without its channels and its thinking, but with the control marks in and behind it."""
    if not _SOME.search(text):
        return text
    return _without_blocks(_final_channel(text))


def own_turn(text: str) -> str:
    """What a text without thinking says up to the first turn of somebody else, without control marks."""
    if not _SOME.search(text):
        return text
    text = text[echo.end() :] if (echo := _ECHO.match(text)) else text
    code, kept, at = _Code(text), list[str](), 0
    for found in _TURN.finditer(text):
        if code.mentions(found):
            continue
        kept.append(text[at : found.start()])
        at = found.end()
        role = found["role"] or found["header"] or found["name"] or ""
        if found["inst"] or role.casefold() not in _OWN_ROLES:
            at = len(text)
            break
    return _unmarked("".join([*kept, text[at:]]))


def stripped(text: str) -> str:
    """Without the control marks and the space around a short text, such as an answer."""
    return (_ends_off(text) if _SOME.search(text) else text).strip()


def _unmarked(text: str) -> str:
    """Without control marks: none is left at an end, and a space stands for each one inside."""
    text = _ends_off(text)
    code, kept, at = _Code(text), list[str](), 0
    for found in _INSIDE.finditer(text):
        if not code.mentions(found):
            kept.append(text[at : found.start()])
            at = found.end()
    return " ".join([*kept, text[at:]]) if kept else text


def _ends_off(text: str) -> str:
    """Without control marks at its ends; one that closes what the text has opened is none."""
    struck = re.search(r"</s>\s*[^<\s]", text, re.IGNORECASE)  # what HTML strikes out
    text = text if struck and text.lstrip()[:3].lower() == "<s>" else _FIRST.sub("", text)
    end, shown = len(text), text.rstrip()
    while found := _LAST.search(shown, max(0, len(shown) - _LONGEST_MARK)):
        if found[0].lower().startswith("</s>") and "<s>" in text[: found.start()].lower():
            break
        end, shown = found.start(), text[: found.start()].rstrip()
    return text[:end]


# Channels


def _final_channel(text: str) -> str:
    """What stands in the final channel; without one, what was said beside thinking, which may be nothing."""
    found = list(_CHANNEL.finditer(text))
    if not found:
        together = _CHANNELS_RUN_TOGETHER.match(text)
        return text[together.end() :] if together else text
    if _FIRST.sub("", text[: found[0].start()]).strip():
        code = _Code(text)
        found = [one for one in found if one["structure"] or not code.mentions(one)]
        if not found:
            return text
    said = dict[str, str]()
    for place, one in enumerate(found):
        after = found[place + 1].start() if place + 1 < len(found) else len(text)
        content = text[one.end() : after]
        end = _MESSAGE_END.search(content) if after < len(text) else None
        if not re.search(r"\bto=", one["more"] + (one["structure"] or "")):
            said[one["name"].casefold()] = content[: end.start()] if end else content
    return said.get("final", said.get("commentary", ""))


# Thinking


def _without_blocks(text: str) -> str:
    """Without blocks of thinking. One that never closes goes to the end, and one whose opening mark is missing began
    with the text."""
    if not _THINKING.search(text):
        return text
    if unopened := _unopened(text):
        text = text[next((end for end in reversed(unopened) if _says(text[end:])), unopened[0]) :].lstrip()
    kept, at, closes = "", 0, True
    code = _Code(text)
    while (opened := code.next_outside(_OPENING, at)) is not None:
        kept += text[at : opened.start()]
        end = _closing(text, opened.end()) if closes else None
        closes = end is not None
        if end is None and re.search(r"[a-z,] \Z", kept[-2:]):  # somebody writes about the mark
            kept += opened[0]
            at = opened.end()
            continue
        at = len(text) if end is None else end
        if not kept.strip():
            kept, at = "", _past(text, at, " \t\r\n")
        elif kept[-1].isalnum() and text[at : at + 1].isalnum():
            kept += " "
        elif kept.endswith((" ", "\n")):
            at = _past(text, at, " ")
            at += kept.endswith("\n") and text.startswith("\n", at)
    return kept + text[at:]


def _says(text: str) -> bool:
    """Whether a text holds more than marks."""
    return bool(_ends_off(text).strip())


def _unopened(text: str) -> list[int]:
    """Where marks end that close thinking which began before the text."""
    code, depth, found, block = _Code(text), 0, list[int](), -1
    for mark in _THINKING.finditer(text):
        inside = code.block(mark.start())
        if mark["open"]:
            block = inside if inside >= 0 else block
            depth += not code.mentions(mark)
        elif not code.mentions(mark) or (inside not in (-1, block) and _is_alone(text, mark)):
            if depth:
                depth -= 1
            else:
                found.append(mark.end())
    return found


def _is_alone(text: str, mark: re.Match[str]) -> bool:
    """Whether a mark has its line for itself."""
    begin, end = text.rfind("\n", 0, mark.start()) + 1, text.find("\n", mark.end())
    return not (text[begin : mark.start()] + text[mark.end() : end if end >= 0 else len(text)]).strip()


def _closing(text: str, at: int) -> int | None:
    """Where a block that opened before `at` ends: where as many have closed as opened, or at the last that closes."""
    depth, last = 1, None
    for found in _THINKING.finditer(text, at):
        if found["open"]:
            depth += 1
            continue
        depth, last = depth - 1, found.end()
        if not depth:
            break
    return last


def _past(text: str, at: int, signs: str) -> int:
    while at < len(text) and text[at] in signs:
        at += 1
    return at


# Code


class _Code:
    """Where a text holds code: blocks that are closed, and code within a line."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._fences = [
            (line.start(), line.end(), line[1], bool(line[2].strip())) for line in _FENCE.finditer(text)
        ]
        self._starts = [start for start, *_ in self._fences]
        self._never_closed = set[str]()
        self._has_spans = "`" in text
        self._next: tuple[int, int] | None = (-1, -1)
        self._blocks = list[tuple[int, int]]()
        at = 0
        while (block := self._block_from(at)) is not None:
            self._blocks.append(block)
            at = block[1]
        self._block_starts = [start for start, _ in self._blocks]
        self._next = (-1, -1)

    def block(self, at: int) -> int:
        """The number of the block that a place is in; -1 for none."""
        number = bisect_right(self._block_starts, at) - 1
        return number if number >= 0 and at < self._blocks[number][1] else -1

    def mentions(self, mark: re.Match[str]) -> bool:
        """Whether a mark stands in code or between quotation marks."""
        return self.block(mark.start()) >= 0 or self._in_line(mark)

    def next_outside(self, pattern: re.Pattern[str], at: int) -> re.Match[str] | None:
        """The next mark that stands in no code, where all before `at` is left out of account."""
        while mark := pattern.search(self.text, at):
            block = self._block_from(at)
            if block is not None and block[0] <= mark.start():
                at = block[1]
            elif self._in_line(mark):
                at = mark.end()
            else:
                return mark
        return None

    def _in_line(self, mark: re.Match[str]) -> bool:
        text, start, end = self.text, mark.start(), mark.end()
        if start and text[start - 1] in _QUOTES and text[end : end + 1] in _QUOTES:
            return True
        if not self._has_spans:
            return False
        begin = max(text.rfind("\n", max(0, start - _LONGEST_SPAN), start) + 1, start - _LONGEST_SPAN, 0)
        spans = _CODE_SPAN.finditer(text, begin, min(len(text), end + _LONGEST_SPAN))
        return any(one.start() < start < one.end() for one in spans)

    def _block_from(self, at: int) -> tuple[int, int] | None:
        """The first closed block that begins at or behind `at`."""
        if self._next is None or self._next[0] >= at:
            return self._next
        for place in range(bisect_left(self._starts, at), len(self._fences)):
            start, _, fence, _ = self._fences[place]
            if fence in self._never_closed:
                continue
            for _, end, closing, informed in self._fences[place + 1 :]:
                if closing.startswith(fence) and not informed:
                    self._next = (start, end)
                    return self._next
            self._never_closed.add(fence)
        self._next = None
        return None
