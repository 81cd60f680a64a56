"""The encoder: append-only input, no control tokens from text, states that do not depend on their batch."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, BertConfig, BertModel, PreTrainedTokenizerFast

from core.coordinator import batches
from core.coordinator import encoder as encoders
from core.coordinator.encoder import Encoder, kept_encoder, load_encoder
from core.coordinator.memory import Memory
from core.episode import ROLE_ORDER, Decide, Message, Role, Transcript, TranscriptEntry
from core.errors import CheckpointError
from core.processes import Processes
from core.tokens.formats import GENERATION_SUFFIX
from core.tokens.prompts import PromptTokens
from tests.builders.encoder import QWEN3_ADDED_TOKENS, tiny_qwen3, tiny_tokenizer

MODELS = ("ada", "bob")
TEXT = st.text(max_size=30) | st.lists(
    st.sampled_from(
        [*QWEN3_ADDED_TOKENS, "ACCEPT", "\n", "\n\n", " ", "<|", "im_start", "|>", "é", "☃", "\ud800"]
    ),
    max_size=6,
).map("".join)
ENTRIES = st.lists(
    st.builds(TranscriptEntry, st.sampled_from(ROLE_ORDER), st.sampled_from(MODELS), TEXT), max_size=5
).map(tuple)
EASY = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Watched:
    """A model whose calls are seen."""

    def __init__(self, model: Any, call: Callable[..., object]) -> None:
        self._model, self._call = model, call

    def __call__(self, **given: Any) -> object:
        return self._call(**given)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return tiny_qwen3(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def encoder(folder: Path) -> Encoder:
    return load_encoder(folder)


def decide(transcript: Transcript, messages: tuple[Message, ...] = ()) -> Decide:
    return Decide(transcript, len(transcript.entries), "key", messages=messages)


def random_transcripts(n: int, seed: int) -> list[Transcript]:
    rng = random.Random(seed)

    def words(most: int) -> str:
        return " ".join(rng.choice(("answer", "4", "plan", "not", "is")) for _ in range(rng.randint(1, most)))

    def entry() -> TranscriptEntry:
        return TranscriptEntry(rng.choice(ROLE_ORDER), rng.choice(MODELS), words(15))

    return [Transcript(words(20), tuple(entry() for _ in range(rng.randint(0, 4)))) for _ in range(n)]


def ids(encoder: Encoder, request: Decide, input_format: str = "segments") -> tuple[int, ...]:
    return encoder.tokens.prompt(request, "chat" if input_format == "chat" else "segments").ids


def test_a_segments_prompt_reads_as_the_whole_string_would(encoder: Encoder, folder: Path) -> None:
    transcript = Transcript("What is 2+2?", (TranscriptEntry(Role.WORKER, "ada", "The answer\n\nis 4."),))
    text = (
        "<|im_start|>user\nWhat is 2+2?<|im_end|>\n<|im_start|>worker ada\nThe answer\n\nis 4.<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
    assert encoder.tokens.text(ids(encoder, decide(transcript))) == text
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    assert list(ids(encoder, decide(transcript))) == tokenizer.encode(text, add_special_tokens=False)


def test_a_chat_prompt_is_the_template_of_the_tokenizer(encoder: Encoder, folder: Path) -> None:
    messages = (Message("system", "You dispatch."), Message("user", "  2+2?\n<reference_thought_0>4"))
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    expected = tokenizer.apply_chat_template(
        [{"role": one.role, "content": one.content} for one in messages],
        add_generation_prompt=True,
        enable_thinking=False,
        return_dict=False,
    )
    assert list(ids(encoder, decide(Transcript("2+2?"), messages), "chat")) == expected


def test_the_penultimate_token_closes_the_empty_thought(encoder: Encoder) -> None:
    for input_format in ("segments", "chat"):
        prompt = ids(encoder, decide(Transcript("2+2?"), (Message("user", "2+2?"),)), input_format)
        assert prompt[-2] == encoder.tokens.controls["</think>"]


@EASY
@given(question=TEXT, entries=ENTRIES)
def test_one_turn_more_only_appends(
    encoder: Encoder, question: str, entries: tuple[TranscriptEntry, ...]
) -> None:
    suffix = len(encoder.tokens.literal(GENERATION_SUFFIX))
    for turns in range(len(entries)):
        now = ids(encoder, decide(Transcript(question, entries[:turns])))
        later = ids(encoder, decide(Transcript(question, entries[: turns + 1])))
        assert later[: len(now) - suffix] == now[:-suffix]


def count_controls(encoder: Encoder, prompt: Sequence[int]) -> int:
    controls = set(encoder.tokens.controls.values())
    return sum(index in controls for index in prompt)


@pytest.mark.parametrize("token", QWEN3_ADDED_TOKENS)
def test_no_added_token_can_be_written_by_text(encoder: Encoder, token: str) -> None:
    assert token in encoder.tokens.controls
    for text in (token, f"a{token}b", f" {token}\n", token * 3, f"<|im_{token}end|>"):
        assert count_controls(encoder, encoder.tokens.plain(text)) == 0
        assert encoder.tokens.text(encoder.tokens.plain(text)) == text  # and yet nothing of it is lost


@EASY
@given(question=TEXT, entries=ENTRIES)
def test_texts_cannot_change_the_number_of_segments(
    encoder: Encoder, question: str, entries: tuple[TranscriptEntry, ...]
) -> None:
    prompt = ids(encoder, decide(Transcript(question, entries)))
    assert count_controls(encoder, prompt) == 2 * (1 + len(entries)) + 3  # the suffix has three


@EASY
@given(system=TEXT, user=TEXT)
def test_messages_cannot_change_the_chat(encoder: Encoder, system: str, user: str) -> None:
    prompt = ids(encoder, decide(Transcript("q"), (Message("system", system), Message("user", user))), "chat")
    assert count_controls(encoder, prompt) == 2 * 2 + 3


def test_a_vocabulary_with_control_words_in_it_gives_none_away() -> None:
    words = ["<|im_start|>", "<|im_end|>", "<think>", "</think>", "hello", "?"]
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="?"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    core.add_tokens(words[:4])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core)  # type: ignore[no-untyped-call]
    tokens = PromptTokens(tokenizer, 64)
    read = tokens.plain("hello <|im_end|> hello </think>")
    assert {*read} == {4, 5}, "what spells a control token is spelled out"
    assert [read[0], read.count(4)] == [4, 2]


def test_states_are_the_last_hidden_states_at_the_penultimate_token(encoder: Encoder, folder: Path) -> None:
    request = decide(random_transcripts(1, 3)[0])
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        outputs = model(input_ids=torch.tensor([ids(encoder, request)]), output_hidden_states=True)
    last = outputs.hidden_states[-1][0].numpy()
    np.testing.assert_allclose(encoder.encode([request]).states[0], last[-2], atol=2e-5)
    np.testing.assert_allclose(encoder.encode([request], token_position=-1).states[0], last[-1], atol=2e-5)


def test_a_state_does_not_depend_on_its_batch(folder: Path) -> None:
    requests = [decide(one) for one in random_transcripts(12, 1)]
    together = load_encoder(folder).encode(requests).states
    alone = load_encoder(folder)
    np.testing.assert_array_equal(np.stack([alone.encode([one]).states[0] for one in requests]), together)
    order = np.random.default_rng(0).permutation(len(requests))[:7]
    np.testing.assert_array_equal(
        load_encoder(folder).encode([requests[i] for i in order]).states, together[order]
    )


@pytest.mark.parametrize("same", [True, False])
def test_a_lone_prompt_is_padded_to_few_rows_where_these_give_the_same_bits(
    folder: Path, monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    """The bits are compared once for each shape; a machine on which they differ pads as ever."""
    requests = [decide(one) for one in random_transcripts(12, 3)]
    together = load_encoder(folder).encode(requests).states
    encoder = load_encoder(folder)
    monkeypatch.setattr(batches, "_same_bits", {})  # as in a fresh process
    if not same:
        monkeypatch.setattr(torch, "equal", lambda one, other: False)
    encoder.encode(requests[:6])
    rows: list[int] = []
    reader = encoder._reader
    assert isinstance(reader, batches.BatchReader)
    model = reader._model

    def watched(**given: torch.Tensor) -> object:
        rows.append(len(given["input_ids"]))
        return model(**given)

    for request in requests[6:]:
        encoder.encode([request])  # the shapes are known
    encoder.forget()
    watching = Watched(model, watched)
    monkeypatch.setattr(reader.forward, "model", watching)
    alone = np.stack([encoder.encode([request]).states[0] for request in requests[6:]])
    np.testing.assert_array_equal(alone, together[6:])
    if same:
        np.testing.assert_array_equal(alone, load_encoder(folder).encode(requests[6:]).states)
    assert len(rows) == 6  # no shape was tried again
    assert all(one > 1 for one in rows) if not same else {*rows} <= {1, max(rows)}


def test_equal_inputs_are_read_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = load_encoder(folder)
    requests = [decide(one) for one in random_transcripts(5, 2)]
    first = encoder.encode(requests * 3)
    assert len(first.states) == len(first.digests) == len(first.token_counts) == 15
    monkeypatch.setattr(encoder._reader, "_model", None)  # whoever reads again, fails
    again = encoder.encode(requests[::-1])
    np.testing.assert_array_equal(again.states, first.states[4::-1])
    assert again.digests == first.digests[4::-1]
    assert encoder.encode([]).states.shape == (0, 32)


def test_the_cache_is_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = load_encoder(folder)
    monkeypatch.setattr(encoder._cache, "budget", 4 * (4 * 32 + 400))
    requests = [decide(one) for one in random_transcripts(9, 4)]
    assert len(encoder.encode(requests).states) == 9
    assert len(encoder._cache) == 4


def test_what_was_not_used_for_the_longest_time_is_forgotten() -> None:
    memory = Memory[NDArray[np.float32]](40)
    for name in "abc":
        memory.keep(name, np.zeros(3, np.float32))
    assert memory.get("a") is not None
    memory.keep("d", np.zeros(3, np.float32))
    assert [name for name in "abcd" if name in memory] == ["a", "c", "d"]
    memory.keep("d", np.zeros(5, np.float32))
    assert ("c" in memory, memory.bytes, len(memory)) == (False, 32, 2)
    memory.keep("e", np.zeros(9, np.float32), trim=False)
    assert memory.bytes == 68
    assert memory.forget(("a", "e"))
    assert not memory.forget(("a", "e"))
    memory.trim()
    assert ("e" in memory, memory.bytes, len(memory)) == (True, 36, 1)


def test_one_transcript_has_a_state_of_its_own_in_each_format(encoder: Encoder) -> None:
    request = decide(Transcript("2+2?", (TranscriptEntry(Role.WORKER, "ada", "4"),)))
    chat, turns = (encoder.encode([request], input_format=one) for one in ("chat", "segments"))
    assert chat.digests != turns.digests
    assert np.abs(chat.states - turns.states).max() > 1e-3


def test_states_that_cannot_be_are_refused(folder: Path) -> None:
    encoder, request = load_encoder(folder), decide(Transcript("2+2?"))
    with pytest.raises(CheckpointError, match="Token position -99 lies before"):
        encoder.encode([request], token_position=-99)
    encoder.model.norm.weight.data[3] = torch.nan
    with pytest.raises(CheckpointError, match="hidden state that is not finite"):
        encoder.encode([request])


@pytest.mark.parametrize("question", ["short", "long question " * 200])
def test_overflow_keeps_the_questions_head_and_the_newest_turns(folder: Path, question: str) -> None:
    encoder = load_encoder(folder, max_tokens=128)
    entries = tuple(TranscriptEntry(Role.THINKER, "ada", f"turn {i} " + "plan " * 6) for i in range(30))
    request = decide(Transcript(question, entries))
    encoded = encoder.encode([request])
    assert encoded.overflows == (True,)
    assert 100 < encoded.token_counts[0] <= 128
    seen = encoder.tokens.text(ids(encoder, request))
    assert seen.startswith(f"<|im_start|>user\n{question[:5]}")
    assert "turn 29 " in seen
    assert "turn 1 " not in seen
    assert seen.endswith(GENERATION_SUFFIX)
    assert seen.count("<|im_start|>") == seen.count("<|im_end|>") + 1


def test_a_newest_turn_that_is_too_long_keeps_its_name_and_its_end(folder: Path) -> None:
    encoder = load_encoder(folder, max_tokens=128)
    entry = TranscriptEntry(Role.WORKER, "ada", "blah " * 500 + "answer 42")
    prompt = encoder.tokens.prompt(decide(Transcript("2+2?", (entry,))), "segments")
    assert prompt.overflow
    assert len(prompt.ids) == 128
    seen = encoder.tokens.text(prompt.ids)
    assert "<|im_start|>worker ada\n" in seen
    assert "answer 42<|im_end|>" in seen


def test_a_chat_that_is_too_long_loses_the_middle_of_its_longest_message(folder: Path) -> None:
    encoder = load_encoder(folder, max_tokens=128)
    request = decide(
        Transcript("q"), (Message("system", "Dispatch."), Message("user", "start " + "x y " * 300 + "stop"))
    )
    prompt = encoder.tokens.prompt(request, "chat")
    assert (prompt.overflow, len(prompt.ids)) == (True, 128)
    seen = encoder.tokens.text(prompt.ids)
    assert "Dispatch." in seen
    assert "user\nstart" in seen
    assert "stop<|im_end|>" in seen
    several = decide(Transcript("q"), tuple(Message("user", "x y " * 100) for _ in range(4)))
    assert len(encoder.tokens.prompt(several, "chat").ids) == 128
    wide = load_encoder(folder, max_tokens=512).tokens.prompt(request, "chat")
    assert wide.ends == (256, 512), "a chat that goes on is not read as a whole again"


def test_identity_is_of_the_weights_and_not_of_the_place(folder: Path, tmp_path: Path) -> None:
    same, other = tiny_qwen3(tmp_path / "same"), tiny_qwen3(tmp_path / "other", seed=1)
    first = load_encoder(folder).identity
    elsewhere = shutil.copytree(folder, tmp_path / "another place" / folder.name)
    assert load_encoder(elsewhere).identity == first, "checkpoints of it are the same on every machine"
    assert first.name == folder.name
    assert load_encoder(shutil.copytree(folder, tmp_path / "pocket")).identity.name == "own-pocket"
    assert first.hidden_size == 32
    assert load_encoder(same).identity.digest == first.digest
    assert load_encoder(other).identity.digest != first.digest


def test_what_is_no_encoder_is_refused(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, words in (
        (tmp_path, "no encoder at"),
        ("/no/such/folder", "no encoder '/no/such/folder'"),
        ("a" * 300, "There is no encoder 'aaa"),
    ):
        with pytest.raises(CheckpointError, match=words):
            load_encoder(name)
    with pytest.raises(CheckpointError, match="dtype must be one of"):
        load_encoder(folder, dtype="int8")  # type: ignore[arg-type]
    (tmp_path / "config.json").write_text('{"model_type": "no-such-model"}')
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        load_encoder(tmp_path)


def test_a_model_whose_tokens_see_those_after_them_is_refused(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    model: Any = BertModel(
        BertConfig(
            vocab_size=512, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64
        )
    )
    model.save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="its tokens see those that come after them. Name another"):
        load_encoder(tmp_path)


class HelpersAlone:
    """Processes of which only the helpers work, and this process where they fail (in the place of `Processes`)."""

    failed = 0

    def answers(self, function: str, jobs: Sequence[Any], here: Callable[[Any], Any]) -> Iterator[Any]:
        assert function == "core.coordinator.encoder:read_batch"
        for job in jobs:
            try:
                yield encoders.read_batch(json.loads(json.dumps(job)))
            except CheckpointError:
                self.failed += 1
                yield here(job)


def test_helpers_read_with_the_weights_of_whoever_asks(tmp_path: Path) -> None:
    helpers, requests = HelpersAlone(), [decide(Transcript("2+2?"))]
    for seed in range(3):  # a folder whose model is trained on while the app runs
        folder = tiny_qwen3(tmp_path, seed=seed)
        expected = load_encoder(folder).encode(requests).states
        encoder = load_encoder(folder, processes=cast("Processes", helpers))
        if seed == 1:
            tiny_qwen3(tmp_path, seed=9)
        np.testing.assert_array_equal(encoder.encode(requests).states, expected)
        assert helpers.failed == (seed > 0), "what is no longer in the files is read by whoever has it"


def test_threads_that_ask_for_an_encoder_at_once_share_it(folder: Path) -> None:
    processes = Processes(1)
    with ThreadPoolExecutor(2) as threads:
        one, other = threads.map(
            lambda _: kept_encoder(str(folder), dtype=None, device="cpu", processes=processes), range(2)
        )
    assert one is other


@pytest.mark.parametrize(
    ("file", "entry"),
    [
        ("config.json", {"hidden_size": "96"}),
        ("config.json", {"num_attention_heads": 0}),
        ("tokenizer_config.json", {"tokenizer_class": 5}),
        ("tokenizer_config.json", {"pad_token": [5]}),
        ("tokenizer.json", {"added_tokens": 5}),
    ],
)
def test_a_damaged_encoder_folder_is_refused_in_one_line(
    tmp_path: Path, file: str, entry: dict[str, object]
) -> None:
    damaged = tiny_qwen3(tmp_path / "damaged") / file
    damaged.write_text(json.dumps({**json.loads(damaged.read_text()), **entry}))
    with pytest.raises(CheckpointError, match="cannot be loaded: .{5}") as refused:
        load_encoder(damaged.parent)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"), "are pickled"),
        (lambda folder: (folder / "model.safetensors").unlink(), "are missing. Put its model.safetensors"),
        (
            lambda folder: (folder / "config.json").write_text('{"model_type": "t5"}'),
            "has an encoder and a decoder. Name another",
        ),
        (lambda folder: (folder / "tokenizer.json").write_text("{"), "cannot be loaded"),
    ],
)
def test_what_cannot_be_used_is_refused_before_weights_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object], words: str
) -> None:
    monkeypatch.setattr(encoders, "AutoModel", None)  # whoever reads weights fails in other words
    folder = tiny_qwen3(tmp_path)
    change(folder)
    with pytest.raises(CheckpointError, match=words) as refused:
        load_encoder(folder)
    assert "NoneType" not in str(refused.value)


def test_code_in_a_model_folder_is_never_run(tmp_path: Path) -> None:
    marker = tmp_path / "was_run"
    (tmp_path / "evil.py").write_text(f"open({str(marker)!r}, 'w')")
    reference = {
        "AutoConfig": "evil.Config",
        "AutoModel": "evil.Model",
        "AutoTokenizer": ["evil.Tokens", None],
    }
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "evil", "auto_map": reference}))
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        load_encoder(tmp_path)
    assert not marker.exists()


def test_a_device_that_is_not_there_is_refused(folder: Path) -> None:
    if torch.cuda.is_available():
        assert load_encoder(folder, device="cuda").device == "cuda"
    else:
        with pytest.raises(CheckpointError, match="no device cuda here"):
            load_encoder(folder, device="cuda")


@pytest.mark.parametrize("template", [None, "{{ raise_exception('no system role') }}", "{% for %}"])
def test_a_chat_template_that_cannot_be_used_is_refused(folder: Path, template: str | None) -> None:
    encoder = load_encoder(folder)
    encoder.tokens._tokenizer.chat_template = template
    with pytest.raises(CheckpointError, match="chat template cannot be used"):
        encoder.encode([decide(Transcript("q"))], input_format="chat")
