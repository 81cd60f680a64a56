"""From a request to the token ids that the encoder reads; untrusted text never becomes a control token. And an encoder
by its files alone, without its weights and without torch: the very token ids that it reads, and how large it is."""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from core.checkpoint import InputFormat
from core.episode import Decide, Message, Transcript
from core.errors import CheckpointError

TURN_START, TURN_END = "<|im_start|>", "<|im_end|>"
THINK_START, THINK_END = "<think>", "</think>"

T = TypeVar("T")

#: Qwen3's generation prompt with thinking off; </think> stands at its penultimate position (trinity.md 1.2).
GENERATION_SUFFIX = f"{TURN_START}assistant\n{THINK_START}\n\n{THINK_END}\n\n"

#: The embedded encoder's name, as in a checkpoint, and its folder.
POCKET_ENCODER = "pocket"
POCKET_FOLDER = Path(__file__).parent / "pocket" / "weights" / "encoder"

#: Fewer tokens than this cannot hold a question, a turn and the suffix.
SMALLEST_WINDOW = 64


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids as the encoder reads them; `overflow` when something was cut out to fit its window."""

    ids: tuple[int, ...]
    overflow: bool

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


class PromptTokens:
    """Writes prompts of at most `max_tokens` ids with a Hugging Face fast tokenizer.

    Control tokens are all added tokens that are not blank, special or not: Qwen3's think and tool marks are
    not special, so `split_special_tokens` would let them through. Text goes through a second tokenizer that
    has none of them, in the stretches between the control tokens that we write ourselves."""

    def __init__(self, tokenizer: Any, max_tokens: int) -> None:
        if not getattr(tokenizer, "is_fast", False):
            raise CheckpointError(
                "The encoder's tokenizer is not a fast one; add its tokenizer.json to the folder."
            )
        if max_tokens < SMALLEST_WINDOW:
            raise CheckpointError(
                f"The encoder needs a window of at least {SMALLEST_WINDOW} tokens, not {max_tokens}."
            )
        self._tokenizer = tokenizer
        self.max_tokens = max_tokens
        added = {token.content: int(index) for index, token in tokenizer.added_tokens_decoder.items()}
        #: Control token text -> id.
        self.controls = {text: index for text, index in added.items() if not text.isspace()}
        self._control_ids = frozenset(self.controls.values())
        self._blanks = {text: index for text, index in added.items() if text.isspace()}
        self._control_pattern, self._blank_pattern = _alternatives(self.controls), _alternatives(self._blanks)
        description = json.loads(tokenizer.backend_tokenizer.to_str())
        description.update(added_tokens=[], truncation=None, padding=None, post_processor=None)
        self._bare = Tokenizer.from_str(json.dumps(description))  # cuts nothing and pads nothing
        for mark in (TURN_START, TURN_END, THINK_START, THINK_END):
            if mark not in self.controls:
                raise CheckpointError(
                    f"The encoder's tokenizer has no control token {mark}; it cannot read segments."
                )
        self._suffix = self.literal(GENERATION_SUFFIX)
        self._close = self.literal(f"{TURN_END}\n")
        self._segment = lru_cache(maxsize=8192)(self._new_segment)  # turns come back at every later decision

    def prompt(self, request: Decide, input_format: InputFormat) -> Prompt:
        """The ids for one request; `chat` reads its messages, or else its transcript as one user message."""
        if input_format == "segments":
            return self._segments(request.transcript)
        return self._chat(request.messages or (Message("user", _as_text(request.transcript)),))

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
                    # Vocabularies that hold a control token as an ordinary word could still give it away: drop it.
                    if index not in self._control_ids:
                        yield index, begin + start, begin + end
            begin += len(piece)

    def literal(self, text: str) -> list[int]:
        """Ids of our own text, in which control tokens are meant."""
        pieces = self._control_pattern.split(text) if self._control_pattern else [text]
        return [
            index
            for piece in pieces
            for index in ([self.controls[piece]] if piece in self.controls else self.plain(piece))
        ]

    def _new_segment(self, name: str, text: str) -> tuple[int, ...]:
        return (self.controls[TURN_START], *self.plain(f"{name}\n{text}"), *self._close)

    def placed(self, transcript: Transcript) -> list[PlacedToken]:
        """The tokens of a transcript's segments, the ids of its `prompt`, each with its place in the texts."""
        parts = [("user", transcript.question), *_names(transcript)]
        question, *turns = [
            self._placed_segment(part, name, text) for part, (name, text) in enumerate(parts, -1)
        ]
        found, _ = self._fit(question, turns, [name for name, _ in parts[1:]])
        return [*found, *map(PlacedToken, self._suffix)]

    def _placed_segment(self, part: int, name: str, text: str) -> tuple[PlacedToken, ...]:
        before = len(name) + 1
        told = [
            PlacedToken(index, part, max(start - before, 0), end - before)
            if end > before
            else PlacedToken(index)
            for index, start, end in self._locate(f"{name}\n{text}")
        ]
        return (PlacedToken(self.controls[TURN_START]), *told, *map(PlacedToken, self._close))

    def _segments(self, transcript: Transcript) -> Prompt:
        """Append-only: the ids of a transcript without the suffix are a prefix of the ids one turn later."""
        named = _names(transcript)
        question = self._segment("user", transcript.question)
        turns = [self._segment(name, text) for name, text in named]
        ids, cut = self._fit(question, turns, [name for name, _ in named])
        return Prompt((*ids, *self._suffix), cut)

    def _fit(
        self, question: tuple[T, ...], turns: Sequence[tuple[T, ...]], names: Sequence[str]
    ) -> tuple[list[T], bool]:
        """The segments one after the other, cut to leave room for the suffix, and whether anything was cut."""
        room = self.max_tokens - len(self._suffix)
        wanted = sum(map(len, turns))
        if len(question) + wanted <= room:
            return [*question, *(one for turn in turns for one in turn)], False
        # Keep the question's head, at least half the window of it, and the newest turns.
        question = self._cut(question, max(room // 2, room - wanted), keep_end=False)
        left = room - len(question)
        newest: list[tuple[T, ...]] = []
        for name, turn in zip(reversed(names), reversed(turns), strict=True):
            if len(turn) > left and not newest:
                turn = self._cut(turn, left, keep_end=True, head=1 + len(self.plain(f"{name}\n")))
            if len(turn) > left:
                break
            newest.insert(0, turn)
            left -= len(turn)
        return [*question, *(one for turn in newest for one in turn)], True

    def _cut(self, segment: tuple[T, ...], room: int, *, keep_end: bool, head: int = 1) -> tuple[T, ...]:
        """A segment of at most `room` ids with its marks kept, the text's head or end dropped."""
        if len(segment) <= room:
            return segment
        text, close = segment[: -len(self._close)], segment[-len(self._close) :]
        left = room - len(close)
        if not keep_end:
            return (*text[:left], *close)
        head = min(head, left)
        return (*text[:head], *text[len(text) - (left - head) :], *close)

    def _chat(self, messages: Sequence[Message]) -> Prompt:
        """The tokenizer's own chat template around the messages, thinking off (trinity.md 1.2)."""
        stretches = self._render(messages)
        parts = [self.plain(one) if i % 2 == 0 else [self.controls[one]] for i, one in enumerate(stretches)]
        excess = sum(map(len, parts)) - self.max_tokens
        if excess > 0:
            # Drop the middle of the longest text: a growing message keeps its question and newest thoughts.
            longest = max(parts, key=len)
            start = max(0, (len(longest) - excess) // 2)
            del longest[start : start + excess]
        return Prompt(tuple(index for part in parts for index in part)[-self.max_tokens :], excess > 0)

    def _render(self, messages: Sequence[Message]) -> list[str]:
        """The chat as text and control tokens in turn, beginning with text.

        The template only ever sees place holders; the messages are put in afterwards, as text."""
        rows = [{"role": one.role, "content": f"\ue000{i}\ue001"} for i, one in enumerate(messages)]
        try:
            rendered = self._tokenizer.apply_chat_template(
                rows, tokenize=False, add_generation_prompt=True, enable_thinking=False
            )
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


def _names(transcript: Transcript) -> list[tuple[str, str]]:
    """The earlier replies, each with the name that its segment begins with."""
    return [(f"{entry.role} {entry.model}", entry.text) for entry in transcript.entries]


def _as_text(transcript: Transcript) -> str:
    return "\n\n".join(
        [transcript.question, *(f"{one.role} {one.model}:\n{one.text}" for one in transcript.entries)]
    )


def _alternatives(texts: dict[str, int]) -> re.Pattern[str] | None:
    """A capturing pattern of the given texts, the longest first; None for none."""
    longest_first = sorted(texts, key=len, reverse=True)
    return re.compile(f"({'|'.join(map(re.escape, longest_first))})") if texts else None


_WINDOW = 32_768  # where a config names none, as the encoder does
_FILES = ("tokenizer.json", "tokenizer_config.json", "config.json", "chat_template.jinja")


class TokenizerFile:
    """A tokenizer.json with a chat template, as far as `PromptTokens` asks a Hugging Face tokenizer."""

    is_fast = True

    def __init__(self, backend: Tokenizer, template: str) -> None:
        self.backend_tokenizer = backend
        self.added_tokens_decoder: Mapping[int, Any] = backend.get_added_tokens_decoder()
        self._template = template

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        """The ids as text, control tokens spelled out."""
        return str(self.backend_tokenizer.decode(list(ids), skip_special_tokens=False))

    def apply_chat_template(self, messages: Sequence[Mapping[str, str]], **settings: Any) -> str:
        """The chat as text; ValueError for a template that refuses it."""
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _refuse
        settings.pop("tokenize", None)
        return environment.from_string(self._template).render(messages=messages, **settings)


@lru_cache(maxsize=8)
def prompt_tokens(encoder: str, revision: str = "", *, uncut: bool = False) -> PromptTokens:
    """The prompts of an encoder: "pocket", a Hugging Face folder, or a hub id whose files are on this machine; nothing
    is fetched. `uncut` leaves nothing out, however small the encoder's window. CheckpointError when the files are not
    here or cannot be read."""
    files = {name: _file(encoder, revision, name) for name in _FILES}
    path = files["tokenizer.json"]
    if path is None:
        raise CheckpointError(
            f"The tokenizer of the encoder {encoder} is not on this machine: run an episode with it once, or put its "
            "tokenizer.json into the encoder's folder."
        )
    try:
        config, settings = _json(files["config.json"]), _json(files["tokenizer_config.json"])
        template = files["chat_template.jinja"]
        chat = template.read_text("utf-8") if template else settings.get("chat_template")
        backend = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises bare Exception for a damaged file
        raise CheckpointError(f"The tokenizer at {path.parent} cannot be read: {error}") from error
    window = int(config.get("max_position_embeddings") or 0) or _WINDOW
    return PromptTokens(
        TokenizerFile(backend, chat if isinstance(chat, str) else ""), 2**30 if uncut else window
    )


def encoder_size(encoder: str, revision: str = "") -> int:
    """How many parameters an encoder's files hold, by their headers; nothing is fetched. CheckpointError, which says
    what folder is missing, when they are not on this machine."""
    shards = [name for name in ("model.safetensors",) if _file(encoder, revision, name)]
    if (index := _file(encoder, revision, "model.safetensors.index.json")) is not None:
        shards = sorted({str(name) for name in _json(index).get("weight_map", {}).values()})
    files = [_file(encoder, revision, name) for name in shards]
    if not files or None in files or _file(encoder, revision, "config.json") is None:
        raise CheckpointError(
            f"The encoder {encoder} is not on this machine: its files are missing in the folder "
            f"{_folder_words(encoder)}."
        )
    try:
        return sum(_numbers(file) for file in files if file is not None)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise CheckpointError(
            f"The weights in the folder {_folder_words(encoder)} cannot be read ({type(error).__name__})."
        ) from error


def _numbers(file: Path) -> int:
    """How many numbers a safetensors file holds."""
    with file.open("rb") as content:
        (length,) = struct.unpack("<Q", content.read(8))
        header = json.loads(content.read(min(length, 100_000_000)))
    return sum(math.prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__")


def _folder_words(encoder: str) -> str:
    """Where an encoder's files are, or should be."""
    if encoder == POCKET_ENCODER:
        return str(POCKET_FOLDER)
    if encoder.count("/") > 1 or encoder.startswith((".", "/")) or Path(encoder).is_dir():
        return encoder
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.file_download import repo_folder_name

    return str(Path(HF_HUB_CACHE) / repo_folder_name(repo_id=encoder, repo_type="model"))


def _file(encoder: str, revision: str, name: str) -> Path | None:
    folder = POCKET_FOLDER if encoder == POCKET_ENCODER else Path(encoder)
    if encoder == POCKET_ENCODER or folder.is_dir():
        found = folder / name
        return found if found.is_file() else None
    from huggingface_hub import try_to_load_from_cache  # only a hub encoder needs it

    try:
        cached = try_to_load_from_cache(encoder, name, revision=revision or None)
    except ValueError:  # no name of a repository
        return None
    return Path(cached) if isinstance(cached, str) else None


def _json(path: Path | None) -> dict[str, Any]:
    found = json.loads(path.read_text("utf-8")) if path else {}
    return found if isinstance(found, dict) else {}


def _refuse(message: str) -> None:
    raise TemplateError(message)
