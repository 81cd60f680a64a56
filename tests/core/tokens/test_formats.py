"""Input formats: a family's own turns are found in its chat template, replies only append, no text is a control."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers

from core.checkpoint import InputFormat
from core.episode import ROLE_ORDER, Decide, Role, Transcript, TranscriptEntry
from core.errors import CheckpointError
from core.tokens.files import TokenizerFile
from core.tokens.prompts import PromptTokens
from tests.builders.encoder import FAMILIES, QWEN3_ADDED_TOKENS, family_tokenizer, tiny_tokenizer

FORMATS: dict[str, InputFormat] = {
    "llama": "turns",
    "gemma": "turns",
    "mistral": "turns",
    "phi": "turns",
    "smollm": "segments",
    "qwen": "segments",
    "forgetful": "plain",
    "without a template": "plain",
}
FOREIGN = sorted(
    {*QWEN3_ADDED_TOKENS, *(token for first, more, _ in FAMILIES.values() for token in (first, *more))}
)
TEXT = st.lists(
    st.one_of(
        st.sampled_from([*FOREIGN, "user: ", "\n", " ", "Worker m1\n", "\ue0001\ue001"]), st.text(max_size=8)
    ),
    max_size=6,
).map("".join)
ENTRIES = st.lists(
    st.builds(TranscriptEntry, st.sampled_from(ROLE_ORDER), st.sampled_from(("m1", "m2")), TEXT), max_size=4
)
QUESTION, REPLY = "What is 4?", TranscriptEntry(Role.WORKER, "m1", "It is 4.")


@cache
def tokens(family: str, window: int = 4096) -> PromptTokens:
    return PromptTokens(tiny_tokenizer() if family == "qwen" else family_tokenizer(family), window)


def written(family: str, *replies: TranscriptEntry) -> str:
    writer = tokens(family)
    return writer.text(
        writer.prompt(Decide(Transcript(QUESTION, replies), 0, "key"), writer.input_format).ids
    )


@pytest.mark.parametrize("family", FORMATS)
def test_each_family_is_read_in_its_own_marks(family: str) -> None:
    assert tokens(family).input_format == FORMATS[family]


def test_a_transcript_reads_as_the_family_writes_a_chat() -> None:
    assert written("gemma", REPLY, REPLY) == (
        "<bos><start_of_turn>user\nWhat is 4?<end_of_turn>\n<start_of_turn>model\nworker m1\nIt is 4.<end_of_turn>\n"
        "<start_of_turn>model\nworker m1\nIt is 4.<end_of_turn>\n<start_of_turn>model\n"
    )
    assert written("phi", REPLY) == (
        "<|user|>\nWhat is 4?<|end|>\n<|assistant|>\nworker m1\nIt is 4.<|end|>\n<|assistant|>\n"
    )
    assert written("mistral") == "<s>[INST] What is 4?[/INST]Next:"  # its template asks for nothing by itself
    assert written("mistral", REPLY) == "<s>[INST] What is 4?[/INST] worker m1\nIt is 4.</s>Next:"
    assert written("smollm", REPLY) == (
        "<|im_start|>user\nWhat is 4?<|im_end|>\n<|im_start|>worker m1\nIt is 4.<|im_end|>\n<|im_start|>assistant\n"
    )
    assert written("without a template", REPLY) == "<s>user: What is 4?\nworker m1: It is 4.\nassistant:"
    assert "Today Date: 26 Jul 2024" in written("llama"), "a prompt must not change with the day"


@pytest.mark.parametrize("family", FORMATS)
@settings(max_examples=40, deadline=None)
@given(question=TEXT, entries=ENTRIES)
def test_replies_only_append_and_no_text_is_a_control_token(
    family: str, question: str, entries: list[TranscriptEntry]
) -> None:
    writer = tokens(family)
    controls = set(writer.controls.values())
    marks = FORMATS[family]
    before: tuple[int, ...] = ()
    for n in range(len(entries) + 1):
        told = Transcript(question, tuple(entries[:n]))
        harmless = Transcript("a", tuple(TranscriptEntry(one.role, one.model, "b") for one in entries[:n]))
        prompt, other = (writer.prompt(Decide(one, n, "key"), marks) for one in (told, harmless))
        assert prompt.ids[: len(before)] == before
        assert sum(one in controls for one in prompt.ids) == sum(one in controls for one in other.ids)
        before = prompt.ids[: prompt.ends[-1]]
        assert prompt.ends[-1] + prompt.suffix == len(prompt.ids)
        assert prompt.ids[-2:] == other.ids[-2:]
        assert len(prompt.ends) == n + 1
        assert [one.id for one in writer.placed(told, marks)] == list(prompt.ids)


@pytest.mark.parametrize("family", FORMATS)
def test_the_files_alone_give_the_same_ids(family: str) -> None:
    tokenizer = tiny_tokenizer() if family == "qwen" else family_tokenizer(family)
    special = {"bos_token": tokenizer.bos_token} if tokenizer.bos_token else {}
    alone = PromptTokens(
        TokenizerFile(tokenizer.backend_tokenizer, tokenizer.chat_template or "", special), 4096
    )
    request = Decide(Transcript(QUESTION, (REPLY,)), 1, "key")
    assert alone.input_format == FORMATS[family]
    assert alone.prompt(request, FORMATS[family]) == tokens(family).prompt(request, FORMATS[family])


@pytest.mark.parametrize("family", FORMATS)
def test_what_does_not_fit_keeps_its_marks(family: str) -> None:
    long = TranscriptEntry(Role.WORKER, "m1", "so " * 300)
    prompt = tokens(family, 128).prompt(
        Decide(Transcript("why " * 300, (long, REPLY)), 2, "key"), FORMATS[family]
    )
    assert prompt.overflow
    assert len(prompt.ids) <= 128
    if FORMATS[family] == "plain":
        return
    short = tokens(family).prompt(
        Decide(Transcript("w", (REPLY,) * (len(prompt.ends) - 1)), 1, "k"), FORMATS[family]
    )
    controls = set(tokens(family).controls.values())
    assert [one for one in prompt.ids if one in controls] == [one for one in short.ids if one in controls]


def test_blanks_that_are_added_tokens_stay_and_a_control_that_is_a_word_is_spelled_out() -> None:
    words = {word: i for i, word in enumerate((*"user:\n<h>a", "\u2581", "\u2581\u2581", "<h", "<h>"))}
    merges = [("\u2581", "\u2581"), ("<", "h"), ("<h", ">")]
    core = Tokenizer(models.BPE(words, merges))
    core.normalizer = normalizers.Replace(" ", "\u2581")
    core.add_tokens([AddedToken(word, normalized=False) for word in ("\u2581\u2581", "<h>")])
    writer = PromptTokens(TokenizerFile(core, "", {}), 4096)
    assert set(writer.controls) == {"<h>"}
    assert writer.plain("a  a") == [words["a"], words["\u2581\u2581"], words["a"]]
    assert writer.plain("a<h>") == [words[one] for one in "a<h>"]
    assert writer.literal("a<h>") == [words["a"], words["<h>"]]
    told = Transcript("a<h>")
    spelled = [(one.part, one.start, one.end) for one in writer.placed(told, "plain") if one.part is not None]
    assert spelled == [(-1, i, i + 1) for i in range(4)]


def test_a_format_without_its_marks_is_refused_and_the_right_one_named() -> None:
    request = Decide(Transcript("q"), 0, "key")
    with pytest.raises(CheckpointError, match=r"cannot read segments\. It reads turns\."):
        tokens("llama").prompt(request, "segments")
    with pytest.raises(CheckpointError, match=r"chat template that only appends; .*It reads plain\."):
        tokens("forgetful").prompt(request, "turns")
