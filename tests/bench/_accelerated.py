"""What an accelerator is for: decisions deep in a conversation, batches of them, an evolution's whole share of them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator

import numpy as np
import torch

from core.checkpoint import Checkpoint
from core.coordinator.coordinator import Population
from core.coordinator.encoder import Encoder
from core.coordinator.graphs import AcceleratedReader, FixedPrefixReader
from core.coordinator.svf import dead_blocks, svf_layout
from core.episode import Decide
from tests.bench._frame import Figures, percentile, say

#: The paper's evolution: generations of candidates that play so many episodes each, of four decisions.
GENERATIONS, CANDIDATES, EPISODES, DECISIONS = 60, 32, 16, 4
_BATCH, _BATCH_TOKENS, _BATCH_TIMES = 64, 512, 20
_DEEP = 32  # conversations
_SETTLING_S = 90.0  # until it is chosen how batches are read
_MODELS = 7

Requests = Callable[[int, int, int], Iterator[Decide]]


def deep(encoder: Encoder, requests: Requests, turns: int, tokens: int) -> Figures:
    """The last decision of each of some conversations, after the first two: these record all shapes."""
    first, last = list[float](), list[float]()
    for conversation in range(_DEEP + 2):
        times = []
        for request in requests(turns, tokens, 2_000 + conversation):
            began = time.perf_counter()
            encoder.encode([request])
            times.append(1000 * (time.perf_counter() - began))
        first.append(times[0])
        last.append(times[-1])
    prompt_ms = []
    for request in requests(turns, tokens, 9_000):  # a new reply has to be cut into tokens
        began = time.perf_counter()
        prompt = encoder.tokens.prompt(request, encoder.input_format)
        prompt_ms.append(1000 * (time.perf_counter() - began))
    return {
        "conversations": _DEEP,
        "prompt_tokens": len(prompt.ids),
        "new_tokens": len(prompt.ids) - prompt.ends[-2] if len(prompt.ends) > 1 else len(prompt.ids),
        "p50_ms": percentile(50, last[2:], 2),
        "p95_ms": percentile(95, last[2:], 2),
        "first_decision_p50_ms": percentile(50, first[2:], 2),
        "of_which_tokenizing_ms": percentile(50, prompt_ms, 2),
        "attention": encoder.model.config._attn_implementation,
        "recorded_shapes": _recorded(encoder),
    }


def _recorded(encoder: Encoder) -> int:
    """How many shapes stand as graphs: none where an operation could not be recorded."""
    reader = encoder._reader
    prefixes = reader._parts.prefixes if isinstance(reader, AcceleratedReader) else None
    return len(prefixes._forward._graphs) if isinstance(prefixes, FixedPrefixReader) else 0


def _settle(encoder: Encoder, read: Callable[[], object]) -> float:
    """Read until it is chosen how batches are read, once at least; seconds."""
    began = time.perf_counter()
    while True:
        read()
        seconds = time.perf_counter() - began
        reader = encoder._reader
        batches = reader._batches if isinstance(reader, AcceleratedReader) else reader
        if getattr(batches, "is_settled", True) or seconds > _SETTLING_S:
            return seconds


def batches(encoder: Encoder, requests: Requests) -> Figures:
    """Decisions of as many conversations that begin, read together."""
    begun = iter(range(1_000, 10**9))

    def some() -> list[Decide]:
        return [next(requests(1, _BATCH_TOKENS, next(begun))) for _ in range(_BATCH)]

    settling_s = _settle(encoder, lambda: encoder.encode(some()))
    say(f"batches: settled after {settling_s:.0f} s")
    seconds = []
    for _ in range(_BATCH_TIMES):
        together = some()
        began = time.perf_counter()
        encoder.encode(together)
        seconds.append(time.perf_counter() - began)
    median = float(np.median(seconds))
    return {
        "at_once": _BATCH,
        "prompt_tokens": len(encoder.tokens.prompt(together[0], encoder.input_format).ids),
        "batch_ms": round(1000 * median, 2),
        "decisions_per_s": _BATCH / median,
        "settling_s": round(settling_s, 2),
    }


def evolution(encoder: Encoder, requests: Requests, tokens: int, share: float) -> Figures:
    """The coordinator's part of the paper's whole evolution, singular values of layer 26 and of the embedding among its
    numbers, from a share of it: whole candidates, decided for as `Population` does in `evolve`.

    All candidates of a generation, 32 or as many as the share has, are at the same turn together, as where replies come
    at once; their episodes have questions and replies of their own, from half to one and a half times `tokens` each. So
    no candidate shares with another what was read: each reads for itself, under its own weights, sixteen together."""
    model = encoder.model
    layer = max(0, int(model.config.num_hidden_layers) - 2)
    layout = svf_layout(model, [layer], lm_head=True)
    template = Checkpoint.begin(
        [f"m{n}" for n in range(_MODELS)],
        encoder.identity,
        svf_layout=layout,
        svf_dead=dead_blocks(model, layout),
        input_format=encoder.input_format,
    )
    began = time.perf_counter()
    for step in encoder.decompose(layout):
        say(f"evolution: {step.done} of {step.of} matrices decomposed")
    decomposing_s = time.perf_counter() - began
    played = _Evolution(encoder, requests, template, tokens)
    settling_s = _settle(encoder, lambda: played.generation(1))
    began = time.perf_counter()
    played.generation(1)  # all shapes, in the way that was chosen
    settling_s += time.perf_counter() - began
    say(f"evolution: settled after {settling_s:.1f} s")
    played.forget()
    candidates = max(1, math.ceil(share * GENERATIONS * CANDIDATES))
    for start in range(0, candidates, CANDIDATES):
        played.generation(min(CANDIDATES, candidates - start))
        say(f"evolution: {played.decisions:,} decisions in {played.seconds:.1f} s")
    all_decisions = GENERATIONS * CANDIDATES * EPISODES * DECISIONS
    measured = played.decisions / all_decisions
    return {
        "layer": layer,
        "candidates": candidates,
        "decisions": played.decisions,
        "of_decisions": all_decisions,
        "share": measured,
        "prompt_tokens_mean": played.tokens / played.decisions,
        "seconds": played.seconds,
        "of_which_applying_s": played.applying_s,
        "of_which_reading_s": played.reading_s,
        "decisions_per_s": played.decisions / played.seconds,
        "forwards_per_decision": played.forwards / played.decisions,
        "decomposing_s": decomposing_s,
        "settling_s": settling_s,
        "whole_s": decomposing_s + settling_s + played.seconds / measured,
    }


class _Evolution:
    """Generations as far as the coordinator has to do with them, and what that took."""

    def __init__(self, encoder: Encoder, requests: Requests, template: Checkpoint, tokens: int) -> None:
        self._encoder, self._requests, self._template = encoder, requests, template
        self._tokens, self._rng, self._begun = tokens, np.random.default_rng(7), 0
        singular = encoder._singular_of(template.svf_layout)
        self._apply, singular.apply = singular.apply, self._applied  # type: ignore[method-assign]
        self.forget()

    def forget(self) -> None:
        """What was counted."""
        self.decisions = self.tokens = 0
        self.seconds = self.applying_s = self.reading_s = self.forwards = 0.0

    def generation(self, candidates: int) -> None:
        """Decide for all episodes of so many candidates, turn by turn."""
        vectors = self._rng.normal(0, 0.1, (candidates, len(self._template.vector))).astype(np.float32)
        turns, candidate_of = list[list[Decide]](), dict[str, int]()
        for episode in range(candidates * EPISODES):
            self._begun += 1
            tokens = int(self._rng.integers(self._tokens // 2, self._tokens * 3 // 2 + 1))
            turns.append(list(self._requests(DECISIONS, tokens, 100_000 + self._begun)))
            candidate_of[turns[-1][0].episode_id] = episode // EPISODES
        policy = Population(self._template, vectors, self._encoder, candidate_of)
        reading, forwards = self._encoder.seconds, self._encoder.forwards
        for together in zip(*turns, strict=True):
            began = time.perf_counter()
            decided = policy.decide(together)
            self.seconds += time.perf_counter() - began
            self.decisions += len(decided)
            self.tokens += sum(one.prompt_tokens for one in decided)
        self.reading_s += self._encoder.seconds - reading
        self.forwards += self._encoder.forwards - forwards

    def _applied(self, offsets: np.ndarray) -> None:
        began = time.perf_counter()
        self._apply(offsets)
        if self._encoder.device == "cuda":
            torch.cuda.synchronize()
        self.applying_s += time.perf_counter() - began
