"""Tiny planners with random weights, and a pool that is good at one thing: enough to learn something in seconds."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from core.episode import Ask, Role, Task
from core.planner.card import PlannerCard
from core.planner.forms import Shown
from core.planner.planner import LanguagePlanner, weights_digest
from core.pocket import WEIGHTS
from core.pool.spec import Dialect
from tests.builders.pools import Line, ScriptedPool, specs

MODELS = ("ann", "bob", "cid")
TASKS = [
    Task(f"t{number}", f"What is {number} plus {number}?", str(2 * number), "number") for number in range(8)
]


@lru_cache(maxsize=1)
def tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer of the pocket models."""
    found: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(WEIGHTS / "jack")
    return found


def _tiny(config: Any, kind: Any, **sizes: Any) -> Any:
    words = tokenizer()
    marks = {"eos_token_id": words.eos_token_id, "pad_token_id": words.pad_token_id}
    known = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    return kind(config(vocab_size=len(words), **known, **marks, **sizes))


def tiny_planner(*, constrained: bool = True, seed: int = 0, most_tokens: int = 96) -> LanguagePlanner:
    """A Qwen3 of 16 numbers with random weights that writes the short form."""
    torch.manual_seed(seed)
    sizes: dict[str, int] = {"intermediate_size": 32, "head_dim": 8, "max_position_embeddings": 512}
    model, words = _tiny(Qwen3Config, Qwen3ForCausalLM, tie_word_embeddings=True, **sizes), tokenizer()
    card = PlannerCard(MODELS, weights_digest(model, words), most_tokens=most_tokens, constrained=constrained)
    return LanguagePlanner(card, model, words)


def tiny_qwen2() -> LanguagePlanner:
    """A Qwen2, as the published planner is, that is shown the whole instruction."""
    torch.manual_seed(0)
    model = _tiny(Qwen2Config, Qwen2ForCausalLM, intermediate_size=16, max_position_embeddings=4096)
    digest = weights_digest(model, tokenizer())
    card = PlannerCard(MODELS, digest, shown=Shown.IDS, most_tokens=160, most_steps=2)
    return LanguagePlanner(card, model, tokenizer())


def right_by_ann(ask: Ask) -> Line:
    """Ann's answers are right, those of others are not; whoever plans says nothing of use, whoever judges agrees."""
    numbers = [word.strip("?") for word in ask.messages[-1].content.split() if word.strip("?").isdigit()]
    answer = str(2 * int(numbers[0])) if ask.model == "ann" and numbers else "-1"
    if "<answer>" in ask.messages[-1].content:
        return f"<answer>{answer}</answer>"
    return {Role.THINKER: "add them", Role.WORKER: f"answer {answer}", Role.VERIFIER: "so ACCEPT"}[ask.role]


def tiny_pool(dialect: Dialect = "terse") -> ScriptedPool:
    return ScriptedPool(specs(MODELS, dialect), right_by_ann)
