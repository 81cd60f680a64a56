"""One model's entry in a pool: its name, how it is reached, how it is spoken to and what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Dialect = Literal["general", "terse"]


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A pool slot. `dialect` picks the role prompts and verdict format: `general` gives full instructions and asks
    for a final verdict line with a per-call tag; `terse` is the pocket models' short form with the bare word.
    Prices are USD per million tokens, None when unknown."""

    name: str
    model: str = ""
    provider: Literal["openai", "pocket", "scripted"] = "openai"
    base_url: str = ""
    api_key_env: str = ""
    dialect: Dialect = "general"
    temperature: float = 0.7
    max_tokens: int = 4096
    timeout_s: float = 120.0
    concurrency: int = 8
    price_in: float | None = None
    price_out: float | None = None
