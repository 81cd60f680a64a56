"""The input formats: with which marks a transcript is written for an encoder, by what its tokenizer has."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

from jinja2 import Template, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

TURN_START, TURN_END = "<|im_start|>", "<|im_end|>"
THINK_START, THINK_END = "<think>", "</think>"
_SEPARATOR = "<|im_sep|>"  # of Phi 4, whose turns begin like ChatML's and go on otherwise

#: Qwen3's generation prompt with thinking off; </think> stands at its penultimate position (trinity.md 1.2).
GENERATION_SUFFIX = f"{TURN_START}assistant\n{THINK_START}\n\n{THINK_END}\n\n"

#: Asks for the next reply where a chat template has no words of its own for it, as Mistral's: the penultimate token is
#: then the same one after every transcript.
_CUE = "Next:"

#: Marks which part of a chat the assistant wrote, for training: nothing that is read.
_GENERATION = re.compile(r"\{%-?\s*(?:end)?generation\s*-?%\}")

#: A chat template: the text of messages with what asks for the next reply.
Render = Callable[[Sequence[Mapping[str, str]]], str]


@dataclass(frozen=True, slots=True)
class Marks:
    """How the parts of a transcript are written, in our own words: control tokens are meant where they stand here.

    A prompt is the question between its marks, each reply between its own with its name before it, and the suffix.
    Without the suffix it begins the prompt one turn later."""

    question: tuple[str, str]
    reply: tuple[str, str]
    suffix: str
    question_name: str = ""
    name_end: str = "\n"


def segment_marks(controls: Container[str]) -> Marks | None:
    """ChatML, in which the name of a reply stands where the name of the speaker does; None without its marks."""
    if TURN_START not in controls or TURN_END not in controls or _SEPARATOR in controls:
        return None
    thinks = THINK_START in controls and THINK_END in controls
    around = (TURN_START, f"{TURN_END}\n")
    return Marks(around, around, GENERATION_SUFFIX if thinks else f"{TURN_START}assistant\n", "user\n")


def plain_marks(begin: str) -> Marks:
    """Lines "name: text", as the authors' copies read them where there is no chat; `begin` is the tokenizer's first
    token, if it has one. No mark tells where a reply ends: a reply can look like two."""
    return Marks((begin, "\n"), ("", "\n"), "assistant:", "user: ", ": ")


def turn_marks(render: Render, length: Callable[[str], int]) -> Marks | None:
    """The marks of a family's chat template (Llama 3, Gemma, Mistral, Phi) with the question as the user's message and
    every reply as the assistant's; None where the template does more than append.

    It only appends when each further message leaves what stands before it as it was, and when what asks for an answer
    is how the answer begins. `length` counts the tokens of such marks."""
    texts = [f"\ue000{i}\ue001" for i in range(4)]
    speakers = ("user", "assistant", "user", "assistant")
    rows = [{"role": role, "content": text} for role, text in zip(speakers, texts, strict=True)]
    try:
        rendered = [render(rows[: n + 1]) for n in range(4)]
    except (ValueError, TypeError, TemplateError):
        return None
    begin, found, asks = rendered[0].partition(texts[0])
    first = begin + texts[0] + asks
    before, written, after = rendered[1].removeprefix(first).partition(texts[1])
    if not (found and asks and written and after) or before.strip():
        return None
    answered = first + before + texts[1]
    again = rendered[2].removeprefix(answered).partition(texts[2])[0]
    second = answered + again + texts[2] + asks
    if rendered[1:] != [answered + after, second, second + before + texts[3] + after]:
        return None
    cue = _CUE if min(length(asks), length(after)) < 2 else ""
    return Marks((begin, asks), (before, after), cue)


def chat_text(template: str, special: Mapping[str, str], messages: Sequence[Mapping[str, str]]) -> str:
    """A chat as the template writes it, with what asks for the next reply and without thinking (trinity.md 1.2).

    `special` are the names and texts of special tokens. A template that tells today's date tells the same day always:
    the same transcript must be read alike tomorrow. Raises jinja2.TemplateError, TypeError or ValueError for a template
    that cannot be used, or refuses these messages."""
    return _compiled(template).render(
        **special, messages=messages, add_generation_prompt=True, enable_thinking=False
    )


@lru_cache(maxsize=16)  # compiling takes ten times as long as writing a chat
def _compiled(template: str) -> Template:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals |= {"raise_exception": _refuse, "strftime_now": _always_the_same_day}
    environment.filters["tojson"] = lambda one, **options: json.dumps(one, ensure_ascii=False, **options)
    return environment.from_string(_GENERATION.sub("", template))


def _refuse(message: str) -> None:
    raise TemplateError(message)


def _always_the_same_day(form: str) -> str:
    return date(2024, 7, 26).strftime(form)
