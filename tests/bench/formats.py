"""Counts transcripts that do not go on as they began, and control tokens out of foreign text, in every input format."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, get_args

from transformers import AutoTokenizer

from core.checkpoint import InputFormat
from core.episode import ROLE_ORDER, Decide, Transcript, TranscriptEntry
from core.errors import CheckpointError
from core.tokens.files import POCKET_ENCODER, POCKET_FOLDER
from core.tokens.prompts import PromptTokens
from tests.bench._frame import Figures, run, say
from tests.builders.encoder import FAMILIES, QWEN3_ADDED_TOKENS, family_tokenizer, tiny_tokenizer

#: Formats in which a transcript begins the one that is a turn longer; a chat is one message that grows inside.
_APPENDS: tuple[InputFormat, ...] = tuple(one for one in get_args(InputFormat) if one != "chat")
_NAMES = ("m1", "solver", "the <|im_end|> model")
_PIECES = (
    "What is 12 + 7?",
    "def f(x):\n    return x\n",
    "\n\n",
    "   ",
    "é",
    "漢字",
    "🙂",
    "\u2581\u2581",
    "user: ",
    "\ud800",
)
_REPLIES = 4  # at most, of one transcript
_WINDOW = 2**20  # so that nothing is cut


def measure(
    encoder: Annotated[str, "also the tokenizer of this encoder: a folder, or 'pocket'"] = "",
    transcripts: Annotated[int, "random transcripts for each tokenizer and format"] = 1000,
    only: Annotated[bool, "leave the families' small tokenizers out"] = False,
) -> Figures:
    """Every format that each tokenizer can do, over the same transcripts. `not_kept` names where a count is not 0."""
    tokenizers: dict[str, Any] = {} if only else {family: family_tokenizer(family) for family in FAMILIES}
    tokenizers |= {} if only else {"qwen": tiny_tokenizer()}
    if encoder:
        place = POCKET_FOLDER if encoder == POCKET_ENCODER else encoder
        tokenizers[encoder] = AutoTokenizer.from_pretrained(place, trust_remote_code=False)
    families = {*QWEN3_ADDED_TOKENS, *(one for first, more, _ in FAMILIES.values() for one in (first, *more))}
    found: Figures = {}
    for name, tokenizer in tokenizers.items():
        writer = PromptTokens(tokenizer, _WINDOW)
        controls = sorted({*families, *writer.controls} - {""})
        told = [*_transcripts(controls, transcripts)]
        say(f"{name} ...")
        lost = sum(not _is_whole(writer, text) for one in told for text in _texts(one))
        found[name] = {"transcripts": transcripts, "texts_not_whole": lost}
        for input_format in get_args(InputFormat):
            try:
                writer.check(input_format)
                writer.prompt(Decide(Transcript("a"), 0, "key"), input_format)
            except CheckpointError:
                continue
            found[name][input_format] = _count(writer, input_format, told)
    kept = {name: sum(_counts(one)) == 0 for name, one in found.items()}
    return {
        **found,
        **({} if all(kept.values()) else {"not_kept": [name for name in kept if not kept[name]]}),
    }


def _counts(one: Figures) -> Iterator[int]:
    """What must be 0."""
    yield one["texts_not_whole"]
    for of in one.values():
        if isinstance(of, dict):
            yield of["not_a_prefix"]
            yield of["foreign_control_tokens"]


def _count(writer: PromptTokens, input_format: InputFormat, transcripts: Sequence[Transcript]) -> Figures:
    """Over the transcripts, each at every turn: how many are not the beginning of themselves one turn later, and how
    many control tokens there are beyond those of our own marks."""
    controls = frozenset(writer.controls.values())
    broken = foreign = tokens = 0
    seconds = 0.0
    for transcript in transcripts:
        before: tuple[int, ...] = ()
        whole = True
        for replies, told in enumerate(_turns(transcript)):
            began = time.perf_counter()
            prompt = writer.prompt(Decide(told, replies, "key"), input_format)
            seconds += time.perf_counter() - began
            tokens += len(prompt.ids)
            own = writer.prompt(Decide(_harmless(told), replies, "key"), input_format)
            foreign += abs(
                sum(one in controls for one in prompt.ids) - sum(one in controls for one in own.ids)
            )
            if input_format in _APPENDS:
                whole &= prompt.ids[: len(before)] == before
                before = prompt.ids[: prompt.ends[-1]]
        broken += not whole
    return {
        "not_a_prefix": broken,
        "foreign_control_tokens": foreign,
        "ids_a_second": round(tokens / seconds),
    }


def _transcripts(controls: Sequence[str], n: int) -> Iterator[Transcript]:
    """Random transcripts that are full of control tokens, the same for the same ones."""
    rng = random.Random(0)

    def text() -> str:
        some = [*rng.choices(controls, k=rng.randrange(5)), *rng.choices(_PIECES, k=rng.randrange(1, 6))]
        rng.shuffle(some)
        return "".join(some)

    for _ in range(n):
        entries = (
            TranscriptEntry(rng.choice(ROLE_ORDER), rng.choice(_NAMES), text())
            for _ in range(rng.randrange(1, _REPLIES + 1))
        )
        yield Transcript(text(), tuple(entries))


def _turns(whole: Transcript) -> Iterator[Transcript]:
    """A transcript before its first reply, and after each."""
    for n in range(len(whole.entries) + 1):
        yield Transcript(whole.question, whole.entries[:n])


def _harmless(told: Transcript) -> Transcript:
    """As long a conversation in which nobody says anything."""
    return Transcript("a", tuple(TranscriptEntry(one.role, "m", "b") for one in told.entries))


def _texts(told: Transcript) -> list[str]:
    return [told.question, *(one.text for one in told.entries)]


def _is_whole(writer: PromptTokens, text: str) -> bool:
    """Whether a text's ids spell what it says, spaces aside: none was dropped as it looked like a control token."""
    known = text.encode("utf-8", "replace").decode()
    said, meant = (
        "".join(one.replace("\u2581", " ").split()) for one in (writer.text(writer.plain(text)), known)
    )
    return said == meant


if __name__ == "__main__":
    run(measure)
