"""Times the decisions of one conversation on Qwen3-0.6B's shape, or by an encoder that is here, beside peers that read
all of it again each time."""

from __future__ import annotations

import json
import logging
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

from core.checkpoint import EncoderIdentity
from core.coordinator.encoder import Encoder
from core.coordinator.prefixes import PREFIX_BYTES
from core.episode import Decide, Role, Transcript, TranscriptEntry
from core.heads import head_of
from core.processes import cores
from tests.bench import _accelerated
from tests.bench._frame import Figures, apart, percentile, run, say
from tests.builders.encoder import tiny_tokenizer
from ui.runs import wiring

#: The shape of Qwen3-0.6B, the paper's encoder; its weights here are random.
SHAPE = {
    "vocab_size": 151_936,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40_960,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
    "tie_word_embeddings": True,
}
READERS = ("ours", "naive", "automodel")
MODELS = 7
_SHORT = 64  # questions over which the agreement of number formats is counted too
_AROUND = 8  # tokens of a turn's marks and name
_MARGIN = 1e-3  # in logits: nearer than this a choice may fall either way

State = Callable[[Decide], NDArray[np.float32]]


def measure(
    turns: Annotated[
        int, "replies of the conversation; a decision follows the question and each reply but the last"
    ] = 5,
    tokens: Annotated[int, "tokens of the question and of each reply"] = 400,
    threads: Annotated[int, "of torch"] = 2,
    device: Annotated[str, "cpu, cuda or mps"] = "cpu",
    dtype: Annotated[str, "float32, bfloat16 or float16; left out: bfloat16 on cuda, else float32"] = "",
    conversations: Annotated[int, "so many more at once, under the budget for remembered parts"] = 32,
    shape: Annotated[str, "JSON that takes the place of some of the shape's numbers"] = "{}",
    encoder: Annotated[str, "an encoder that is here takes the place of the shape: a name or a folder"] = "",
    times: Annotated[
        int, "rounds in which all readers take their turn; of each decision the median counts"
    ] = 3,
    share: Annotated[
        float, "of the paper's evolution that is decided for; 0: a twentieth on cuda, else one candidate"
    ] = 0.0,
    limit: Annotated[float, "seconds after which a reader is given up"] = 3600.0,
    only: Annotated[
        str, "one of ours, naive, automodel, many, bfloat16, deep, batches, evolution: in this process"
    ] = "",
) -> Figures:
    """Every reader in a process of its own, so that each has its own peak of memory. On an accelerator also decisions
    deep in a conversation, batches, an evolution's share and the agreement with float32 on the CPU; what fails there is
    told, and the others go on."""
    dtype = dtype or ("bfloat16" if device == "cuda" else "float32")
    settings: dict[str, Any] = {
        "turns": turns,
        "tokens": tokens,
        "threads": threads,
        "device": device,
        "dtype": dtype,
        "conversations": conversations,
        "shape": shape,
        "share": share,
        "encoder": encoder,
    }
    if encoder and json.loads(shape):
        raise ValueError("An encoder that is here has its own shape: give --encoder or --shape.")
    if only:
        return _alone(only, name=settings.pop("encoder"), **settings)
    runs: dict[str, list[Figures]] = {}
    for reader in _order(device, dtype, times, bool(conversations)):
        say(f"{reader} ...")
        own = {"device": "cpu", "dtype": "float32", "threads": cores()} if reader == "cpu" else {}
        options = [word for name, value in {**settings, **own}.items() for word in (f"--{name}", str(value))]
        answer = apart("tests.bench.decision", [*options, "--only", "ours" if own else reader], limit)
        say(f"{reader}: {json.dumps({name: one for name, one in answer.items() if name != 'logits'})}")
        runs.setdefault(reader, []).append(answer)
    found = {reader: _median(of_reader) for reader, of_reader in runs.items()}
    if device == "cpu" and (failed := [reader for reader, one in found.items() if "failed" in one]):
        raise ValueError(f"{failed[0]}: {found[failed[0]]['failed']}")
    return {**_compared(found), **({} if device == "cpu" else {"wanted": _wanted(found)})}


def _order(device: str, dtype: str, times: int, many: bool) -> Sequence[str]:
    """The readers in their order; on an accelerator what it is for comes first, and each once."""
    last = ("many",) if many else ()
    if device == "cpu":
        return (*READERS * times, "bfloat16", *last)
    halves = () if dtype == "bfloat16" else ("bfloat16",)
    return ("ours", "deep", "batches", "evolution", "cpu", *READERS[1:], *halves, *last)


def _compared(found: dict[str, Figures]) -> Figures:
    """All figures, the ratios between readers first, as far as there are any."""
    there = {reader: one for reader, one in found.items() if "failed" not in one}
    ratios, exact = {}, {}
    if ours := there.get("ours"):
        for name, other, figure in (
            ("total_vs_naive", "naive", "total_s"),
            ("last_vs_naive", "naive", "last_s"),
            ("total_vs_automodel", "automodel", "total_s"),
        ):
            if other in there:
                ratios[name] = there[other][figure] / ours[figure]
        for name, other in (("total_cpu_vs_naive", "naive"), ("total_cpu_vs_automodel", "automodel")):
            if other in there:  # the same where others use the machine at the same time
                ratios[name] = sum(there[other]["cpu_s"]) / sum(ours["cpu_s"])
        ratios["limit"] = ours["total_s"] / ours["limit_s"]
        for name, other in (("automodel", "automodel"), ("bfloat16", "bfloat16"), ("cpu_float32", "cpu")):
            if other in there:
                exact[name] = _agreement(ours["logits"], there[other]["logits"])
    for one in found.values():
        one.pop("logits", None)
        one.pop("limit_s", None)
    return {"ratios": ratios, **found, "logits_against": exact}


def _wanted(found: dict[str, Figures]) -> Figures:
    """What an accelerator is to reach, and whether it does; what was not measured is left out."""
    limits = {
        "deep p50_ms at most 8": ("deep", "p50_ms", 8.0, 1),
        "batches decisions_per_s at least 600": ("batches", "decisions_per_s", 600.0, -1),
        "evolution whole_s at most 300": ("evolution", "whole_s", 300.0, 1),
    }
    return {
        said: "reached" if found[part][figure] * sign <= limit * sign else "NOT reached"
        for said, (part, figure, limit, sign) in limits.items()
        if figure in found.get(part, {})
    }


def _alone(
    reader: str,
    turns: int,
    tokens: int,
    threads: int,
    device: str,
    dtype: str,
    conversations: int,
    shape: str,
    share: float,
    name: str,
) -> Figures:
    logging.basicConfig(format="%(message)s")
    logging.getLogger("core").setLevel(logging.INFO)  # what was chosen, and why
    torch.set_num_threads(threads)
    model, encoder = _encoder(name, device, "bfloat16" if reader == "bfloat16" else dtype, json.loads(shape))
    if reader == "many":
        return _many(encoder, conversations, turns, max(1, tokens // 4))
    if reader == "deep":
        return _accelerated.deep(encoder, _requests, turns, tokens)
    if reader == "batches":
        return _accelerated.batches(encoder, _requests)
    if reader == "evolution":
        share = share or (0.05 if device == "cuda" else 1e-9)
        return _accelerated.evolution(encoder, _requests, tokens, share)
    requests = list(_requests(turns, tokens, 0))
    state = _peer(reader, model, encoder) if reader in READERS[1:] else _ours(encoder)
    # What a first forward sets up is nobody's; on an accelerator each shape has its own.
    for request in _requests(*((1, 16) if device == "cpu" else (turns, tokens)), 1):
        state(request)
    before = _peak()
    seconds, cpu_s, states = [], [], []
    for request in requests:
        began, used = time.perf_counter(), time.process_time()
        states.append(state(request))
        seconds.append(time.perf_counter() - began)
        cpu_s.append(time.process_time() - used)
    found = {
        **_times(seconds),
        "cpu_s": cpu_s,
        "peak_mb": _peak(),
        "peak_of_weights_mb": before,
        **({"peak_device_mb": torch.cuda.max_memory_allocated() / 2**20} if device == "cuda" else {}),
    }
    if reader in ("ours", "bfloat16"):  # the agreement of number formats is counted over more of them
        short = [next(_requests(1, max(_AROUND + 1, tokens // 8), 100 + seed)) for seed in range(_SHORT)]
        states += list(encoder.encode(short).states)
    head = head_of("linear", MODELS, states[0].size)
    vector = np.random.default_rng(0).normal(0, 0.1, head.size).astype(np.float32)
    logits = head.logits(np.stack(states), vector, range(len(states)))
    found["logits"] = logits.tolist()
    if reader == "ours":
        lengths = [len(encoder.tokens.prompt(request, encoder.input_format).ids) for request in requests]
        found |= {"prompt_tokens": lengths[-1], "limit_s": _limit(model, lengths)}
    return found


def _times(seconds: list[float]) -> Figures:
    milliseconds = [1000 * one for one in seconds]
    return {
        "seconds": seconds,
        "total_s": sum(seconds),
        "last_s": seconds[-1],
        "p50_ms": percentile(50, milliseconds),
        "p95_ms": percentile(95, milliseconds),
    }


def _median(runs: list[Figures]) -> Figures:
    """Of each decision, and of the limit, the median of the rounds; all else is the first's."""
    found = dict(runs[0])
    if "seconds" in found:
        found |= _times(np.median([one["seconds"] for one in runs], axis=0).tolist())
        found["cpu_s"] = np.median([one["cpu_s"] for one in runs], axis=0).tolist()
    if "limit_s" in found:
        found["limit_s"] = float(np.median([one["limit_s"] for one in runs]))
    return found


def _encoder(name: str, device: str, dtype: str, shape: dict[str, Any]) -> tuple[Any, Encoder]:
    """A causal language model, and the encoder of its layers: the one of this name, else random and of the shape."""
    if not name:
        model = _model(device, dtype, shape)
        return model, Encoder(
            model.model, tiny_tokenizer(), EncoderIdentity("random", model.config.hidden_size)
        )
    folder = wiring.encoder_source(name)
    causal: Any = AutoModelForCausalLM.from_pretrained(
        folder, dtype=getattr(torch, dtype), local_files_only=True
    )
    causal.eval().to(device)
    identity = EncoderIdentity(name, causal.config.hidden_size)
    return causal, Encoder(
        causal.model, AutoTokenizer.from_pretrained(folder, local_files_only=True), identity
    )


def _model(device: str, dtype: str, other: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    config = Qwen3Config(**{**SHAPE, **other})
    model: Any = Qwen3ForCausalLM(config)  # float32 first: every dtype has the same weights
    return model.eval().to(device=device, dtype=getattr(torch, dtype))


def _requests(turns: int, tokens: int, seed: int) -> Iterator[Decide]:
    """The decisions of one conversation: after the question and after each reply but the last."""
    rng = np.random.default_rng(seed)

    def text() -> str:
        return "".join(rng.choice(list("0123456789"), max(1, tokens - _AROUND)))  # a token each

    question, entries = text(), list[TranscriptEntry]()
    for turn in range(turns):
        yield Decide(Transcript(question, tuple(entries)), turn, f"{seed}-{turn}", f"{seed}")
        entries.append(TranscriptEntry(Role.WORKER, "m1", text()))


def _ours(encoder: Encoder) -> State:
    return lambda request: encoder.encode([request]).states[0]


def _peer(reader: str, model: Any, encoder: Encoder) -> State:
    """Reads the whole prompt again: the causal model with every hidden state, or the model without its LM head."""

    def state(request: Decide) -> NDArray[np.float32]:
        ids = torch.tensor([encoder.tokens.prompt(request, encoder.input_format).ids], device=model.device)
        with torch.inference_mode():
            if reader == "naive":
                hidden = model(input_ids=ids, output_hidden_states=True, use_cache=False).hidden_states[-1]
            else:
                hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
        return np.asarray(hidden[0, -2].float().cpu().numpy())

    return state


def _limit(model: Any, lengths: list[int]) -> float:
    """Seconds of the arithmetic alone that reading each token once needs: multiplications of matrices of the model's
    own shapes at the speed that they have here."""
    config = model.config
    rows, wide, high = max(lengths) // len(lengths), config.hidden_size, config.intermediate_size
    a = torch.randn(rows, wide, device=model.device, dtype=model.dtype)
    b = torch.randn(wide, high, device=model.device, dtype=model.dtype)
    times = []
    for _ in range(30):
        began = time.perf_counter()
        torch.mm(a, b).sum().item()
        times.append(time.perf_counter() - began)
    speed = 2 * rows * wide * high / float(np.median(times))
    linear = 2 * sum(one.numel() for one in model.model.layers.parameters())
    attention = 4 * config.num_attention_heads * config.head_dim * config.num_hidden_layers
    tokens = max(lengths)
    return float((linear * tokens + attention * tokens * tokens / 2) / speed)


def _many(encoder: Encoder, conversations: int, turns: int, tokens: int) -> Figures:
    """Conversations that go on together, in bytes more than the budget has room for."""
    steps = list(zip(*(_requests(turns, tokens, seed) for seed in range(conversations)), strict=True))
    began = time.perf_counter()
    for step in steps:
        encoder.encode(step)
    return {
        "conversations": conversations,
        "tokens_a_turn": tokens,
        "total_s": time.perf_counter() - began,
        "forwards_per_decision": encoder.forwards / (conversations * turns),
        "budget_mb": PREFIX_BYTES / 2**20,
        "peak_mb": _peak(),
    }


def _agreement(ours: list[list[float]], others: list[list[float]]) -> Figures:
    """How far logits lie apart, and whether the choices are the same where they are not near a tie."""
    n = min(len(ours), len(others))
    a, b = np.array(ours[:n]), np.array(others[:n])
    same, clear = 0, 0
    for row, other in zip(a, b, strict=True):
        for part in (slice(0, MODELS), slice(MODELS, None)):
            best = np.sort(row[part])
            if best[-1] - best[-2] > _MARGIN:
                clear += 1
                same += int(np.argmax(row[part]) == np.argmax(other[part]))
    return {"largest_difference": float(np.abs(a - b).max()), "same_choices": same, "of_clear_choices": clear}


def _peak() -> float:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)


if __name__ == "__main__":
    run(measure)
