"""From a request to the token ids that the encoder reads; untrusted text never becomes a control token."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
from jinja2 import TemplateError
from tokenizers import Tokenizer

from core.checkpoint import InputFormat
from core.episode import Decide, Message, Transcript
from core.errors import CheckpointError
from core.tokens.formats import Marks, chat_text, plain_marks, segment_marks, turn_marks

T = TypeVar("T")

#: Fewer tokens than this cannot hold a question, a turn and the suffix.
SMALLEST_WINDOW = 64

#: A chat has no ends of its own: after so many tokens another one may go on otherwise.
_CHAT_PART = 256


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids as the encoder reads them; `overflow` when something was cut out to fit its window.

    `ends` are the places after which other prompts may go on otherwise, the last of them before the `suffix`: so many
    ids that every prompt of the format ends with."""

    ids: tuple[int, ...]
    overflow: bool
    ends: tuple[int, ...]
    suffix: int = 0

    @property
    def digest(self) -> str:
        """128 bits of SHA-256 over the ids as little-endian int32, in hex."""
        return hashlib.sha256(np.asarray(self.ids, "<i4").tobytes()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class PlacedToken:
    """A token of a prompt and the characters that it stands for: of the question (`part` -1) or of an earlier reply,
    from 0; `part` is None for a name or a mark that the prompt adds."""

    id: int
    part: int | None = None
    start: int = 0
    end: int = 0


def check_fast(tokenizer: Any) -> None:
    """Raise CheckpointError for a tokenizer that cannot say what stands where in a text."""
    if not getattr(tokenizer, "is_fast", False):
        raise CheckpointError(
            "The encoder's tokenizer is not a fast one: add its tokenizer.json to the folder, which transformers "
            "writes where it can make a fast one of it."
        )


class PromptTokens:
    """Writes prompts of at most `max_tokens` ids with a Hugging Face fast tokenizer.

    Control tokens are all added tokens that are not blank, special or not: Qwen3's think and tool marks are
    not special, so `split_special_tokens` would let them through. Text goes through a second tokenizer that
    has none of them, in the stretches between the control tokens that we write ourselves."""

    def __init__(self, tokenizer: Any, max_tokens: int) -> None:
        check_fast(tokenizer)
        if max_tokens < SMALLEST_WINDOW:
            raise CheckpointError(
                f"The encoder needs a window of at least {SMALLEST_WINDOW} tokens, not {max_tokens}."
            )
        self._tokenizer = tokenizer
        self.max_tokens = max_tokens
        added = {token.content: int(index) for index, token in tokenizer.added_tokens_decoder.items()}
        #: Control token text -> id.
        self.controls = {text: index for text, index in added.items() if not _is_blank(text)}
        self._control_ids = frozenset(self.controls.values())
        self._blanks = {text: index for text, index in added.items() if _is_blank(text)}
        self._control_pattern, self._blank_pattern = _alternatives(self.controls), _alternatives(self._blanks)
        description = json.loads(tokenizer.backend_tokenizer.to_str())
        description.update(added_tokens=[], truncation=None, padding=None, post_processor=None)
        self._bare = Tokenizer.from_str(json.dumps(description))  # cuts nothing and pads nothing
        self._marks: dict[InputFormat, _Cut] = {}
        self._segment = lru_cache(maxsize=8192)(self._new_segment)  # turns come back at every later decision

    @cached_property
    def input_format(self) -> InputFormat:
        """The format that suits the tokenizer best: ChatML segments, else its family's own turns, else plain lines."""
        formats: tuple[InputFormat, ...] = ("segments", "turns", "plain")
        return next(one for one in formats if one == "plain" or self._found(one))

    def check(self, input_format: InputFormat) -> None:
        """Raise CheckpointError where this tokenizer lacks what the format needs."""
        if input_format != "chat":
            self._of(input_format)

    def _found(self, input_format: InputFormat) -> Marks | None:
        if input_format == "segments":
            return segment_marks(self.controls)
        if input_format == "turns":
            return turn_marks(self._rendered, lambda text: len(self.literal(text)))
        first = self._tokenizer.backend_tokenizer.encode("a", add_special_tokens=True).ids[:1]
        return plain_marks(next((text for text, index in self.controls.items() if [index] == first), ""))

    def _of(self, input_format: InputFormat) -> _Cut:
        if input_format not in self._marks:
            marks = self._found(input_format)
            if marks is None:
                lacks = "control tokens <|im_start|> and <|im_end|>"
                raise CheckpointError(
                    "The encoder's tokenizer has no "
                    f"{lacks if input_format == 'segments' else 'chat template that only appends'}; it cannot read "
                    f"{input_format}. It reads {self.input_format}."
                )
            pieces = (*marks.question, *marks.reply, marks.suffix)
            before, after, opening, closing, suffix = (tuple(self.literal(piece)) for piece in pieces)
            self._marks[input_format] = _Cut(marks, (before, after), (opening, closing), suffix)
        return self._marks[input_format]

    def prompt(self, request: Decide, input_format: InputFormat) -> Prompt:
        """The ids for one request; `chat` reads its messages, or else its transcript as one user message."""
        if input_format == "chat":
            return self.chat(request.messages or (Message("user", _as_text(request.transcript)),))
        return self._turns(request.transcript, self._of(input_format))

    def text(self, ids: Sequence[int]) -> str:
        """The ids as text, control tokens spelled out."""
        options = {"skip_special_tokens": False, "clean_up_tokenization_spaces": False}
        return str(self._tokenizer.decode(list(ids), **options))

    def plain(self, text: str) -> list[int]:
        """Ids of untrusted text: no control token, whatever it says."""
        return [index for index, _, _ in self._locate(text)]

    def _locate(self, text: str) -> Iterator[tuple[int, int, int]]:
        """The ids of untrusted text, each with the characters that it stands for: from, to."""
        text = text.encode("utf-8", "replace").decode()  # a lone surrogate cannot be tokenised
        pieces = self._blank_pattern.split(text) if self._blank_pattern else [text]
        begin = 0
        for piece in pieces:
            if piece in self._blanks:
                yield self._blanks[piece], begin, begin + len(piece)
            elif piece:
                found = self._bare.encode(piece, add_special_tokens=False)
                for index, (start, end) in zip(found.ids, found.offsets, strict=True):
                    if index not in self._control_ids:
                        yield index, begin + start, begin + end
                    else:  # a vocabulary that holds a control token as an ordinary word: it is spelled out
                        yield from self._spelled(piece[start:end], begin + start)
            begin += len(piece)

    def _spelled(self, word: str, begin: int) -> Iterator[tuple[int, int, int]]:
        for place, character in enumerate(word, begin):
            for index in self._bare.encode(character, add_special_tokens=False).ids:
                if index not in self._control_ids:
                    yield index, place, place + 1

    def literal(self, text: str) -> list[int]:
        """Ids of our own text, in which control tokens are meant."""
        pieces = self._control_pattern.split(text) if self._control_pattern else [text]
        return [
            index
            for piece in pieces
            for index in ([self.controls[piece]] if piece in self.controls else self.plain(piece))
        ]

    def _new_segment(self, opening: tuple[int, ...], text: str, closing: tuple[int, ...]) -> tuple[int, ...]:
        return (*opening, *self.plain(text), *closing)

    def placed(self, transcript: Transcript, input_format: InputFormat) -> list[PlacedToken]:
        """The tokens of a transcript, the ids of its `prompt`, each with its place in the texts."""
        cut = self._of(input_format)
        question, *turns = [
            self._placed_segment(part, opening, name, text, closing)
            for part, (opening, name, text, closing) in enumerate(cut.parts(transcript), -1)
        ]
        found, _, _ = self._fit(question, turns, transcript, cut)
        return [*found, *map(PlacedToken, cut.suffix)]

    def _placed_segment(
        self, part: int, opening: tuple[int, ...], name: str, text: str, closing: tuple[int, ...]
    ) -> tuple[PlacedToken, ...]:
        told = [
            PlacedToken(index, part, max(start - len(name), 0), end - len(name))
            if end > len(name)
            else PlacedToken(index)
            for index, start, end in self._locate(name + text)
        ]
        return (*map(PlacedToken, opening), *told, *map(PlacedToken, closing))

    def _turns(self, transcript: Transcript, cut: _Cut) -> Prompt:
        """Append-only: the ids of a transcript without the suffix are a prefix of the ids one turn later."""
        question, *turns = [
            self._segment(opening, name + text, closing)
            for opening, name, text, closing in cut.parts(transcript)
        ]
        ids, ends, overflow = self._fit(question, turns, transcript, cut)
        return Prompt((*ids, *cut.suffix), overflow, ends, len(cut.suffix))

    def _fit(
        self, question: tuple[T, ...], turns: Sequence[tuple[T, ...]], transcript: Transcript, cut: _Cut
    ) -> tuple[list[T], tuple[int, ...], bool]:
        """The segments one after the other, cut to leave room for the suffix, where each ends, and whether anything
        was cut."""
        room = self.max_tokens - len(cut.suffix)
        wanted = sum(map(len, turns))
        kept, overflow = [question, *turns], len(question) + wanted > room
        if overflow:
            # Keep the question's head, at least half the window of it, and the newest turns.
            closing = len(cut.question[1])
            question = _shortened(question, max(room // 2, room - wanted), closing, keep_end=False)
            left = room - len(question)
            newest: list[tuple[T, ...]] = []
            for (opening, name, _, end), turn in zip(
                reversed(cut.parts(transcript)[1:]), reversed(turns), strict=True
            ):
                if len(turn) > left and not newest:
                    head = len(opening) + len(self.plain(name))
                    turn = _shortened(turn, left, len(end), keep_end=True, head=head)
                if len(turn) > left:
                    break
                newest.insert(0, turn)
                left -= len(turn)
            kept = [question, *newest]
        return [one for segment in kept for one in segment], tuple(accumulate(map(len, kept))), overflow

    @cached_property
    def has_system_role(self) -> bool:
        """Whether the chat template writes what a system message says, and not as the assistant's words."""
        system, user, said = "\ue000", {"role": "user", "content": "\ue001"}, []
        for role in ("system", "assistant"):
            try:
                said.append(self._rendered([{"role": role, "content": system}, user]))
            except (ValueError, TypeError, TemplateError):
                said.append("")
        return system in said[0] and said[0] != said[1]

    @cached_property
    def turn_end(self) -> int | None:
        """The control token that the chat template writes after what the assistant says; None where there is none."""
        said = "\ue002"
        try:
            stretches = self._render([Message("user", "?"), Message("assistant", said)])
        except CheckpointError:
            return None
        for stretch, control in zip(stretches[::2], stretches[1::2], strict=False):
            if said in stretch:
                return self.controls[control] if not stretch.rpartition(said)[2].strip() else None
        return None

    def chat(self, messages: Sequence[Message]) -> Prompt:
        """The tokenizer's own chat template around the messages, thinking off (trinity.md 1.2). CheckpointError where
        there is none, or it refuses them."""
        stretches = self._render(messages)
        parts = [self.plain(one) if i % 2 == 0 else [self.controls[one]] for i, one in enumerate(stretches)]
        excess = sum(map(len, parts)) - self.max_tokens
        if excess > 0:
            # Drop the middle of the longest text: a growing message keeps its question and newest thoughts.
            longest = max(parts, key=len)
            start = max(0, (len(longest) - excess) // 2)
            del longest[start : start + excess]
        ids = tuple(index for part in parts for index in part)[-self.max_tokens :]
        return Prompt(ids, excess > 0, (*range(_CHAT_PART, len(ids), _CHAT_PART), len(ids)))

    def _rendered(self, rows: Sequence[Mapping[str, str]]) -> str:
        template = self._tokenizer.chat_template
        if not isinstance(template, str) or not template:
            raise ValueError("it has no chat template")
        return chat_text(template, self._tokenizer.special_tokens_map, rows)

    def _render(self, messages: Sequence[Message]) -> list[str]:
        """The chat as text and control tokens in turn, beginning with text.

        The template only ever sees place holders; the messages are put in afterwards, as text."""
        rows = [{"role": one.role, "content": f"\ue000{i}\ue001"} for i, one in enumerate(messages)]
        try:
            rendered = self._rendered(rows)
        except (ValueError, TypeError, TemplateError) as error:
            raise CheckpointError(f"The encoder's chat template cannot be used: {error}") from error
        stretches = [""]
        for place, piece in enumerate(re.split("\ue000(\\d+)\ue001", rendered)):
            if place % 2:
                stretches[-1] += messages[int(piece)].content
            else:
                first, *rest = self._control_pattern.split(piece) if self._control_pattern else [piece]
                stretches[-1] += first
                stretches.extend(rest)
        return stretches


@dataclass(frozen=True, slots=True)
class _Cut:
    """Marks as token ids: before and after the question, before and after a reply, and the suffix."""

    marks: Marks
    question: tuple[tuple[int, ...], tuple[int, ...]]
    reply: tuple[tuple[int, ...], tuple[int, ...]]
    suffix: tuple[int, ...]

    def parts(self, transcript: Transcript) -> list[tuple[tuple[int, ...], str, str, tuple[int, ...]]]:
        """The question and the replies, each as what stands before it, its name, its text and what stands after it."""
        opening, closing = self.reply
        replies = [
            (opening, f"{entry.role} {entry.model}{self.marks.name_end}", entry.text, closing)
            for entry in transcript.entries
        ]
        return [(self.question[0], self.marks.question_name, transcript.question, self.question[1]), *replies]


def _shortened(
    segment: tuple[T, ...], room: int, closing: int, *, keep_end: bool, head: int = 1
) -> tuple[T, ...]:
    """A segment of at most `room` ids with the last `closing` kept, the text's head or end dropped."""
    if len(segment) <= room:
        return segment
    text, close = segment[: len(segment) - closing], segment[len(segment) - closing :]
    left = room - closing
    if not keep_end:
        return (*text[:left], *close)
    head = min(head, left)
    return (*text[:head], *text[len(text) - (left - head) :], *close)


def _is_blank(token: str) -> bool:
    """Whether an added token stands for blanks, which texts may hold; a word's mark for a space, as Gemma's, is one."""
    return bool(token) and not token.replace("\u2581", "").strip()


def _as_text(transcript: Transcript) -> str:
    return "\n\n".join(
        [transcript.question, *(f"{one.role} {one.model}:\n{one.text}" for one in transcript.entries)]
    )


def _alternatives(texts: dict[str, int]) -> re.Pattern[str] | None:
    """A capturing pattern of the given texts, the longest first; None for none."""
    longest_first = sorted(texts, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest_first))})") if texts else None
