"""One model's entry in a pool: its name, how it is reached, how it is spoken to and what it costs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from core.pool.throttle import Service

Dialect = Literal["general", "terse"]
Provider = Literal["openai", "pocket", "scripted"]


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A pool slot. `dialect` picks the role prompts and verdict format: `general` gives full instructions and asks for
    a final verdict line with a per-call tag; `terse` is the pocket models' short form with the bare word. Prices are
    USD per million tokens, None when unknown. A spec names the variable its key is in and never holds the key.
    `strength` puts models in an order, a larger number for a stronger one; nothing that a model says depends on it."""

    name: str
    model: str = ""
    provider: Provider = "openai"
    base_url: str = ""
    api_key_env: str = ""
    dialect: Dialect = "general"
    temperature: float = 0.7
    role_temperature: Mapping[str, float] = field(default_factory=dict, hash=False)  # by role
    max_tokens: int = 4096
    context_window: int | None = (
        None  # tokens of prompt and reply together; None: not known, nothing is shortened
    )
    timeout_s: float = 120.0  # wall clock of one call, its retries and waits included
    concurrency: int = 8  # calls in flight at once
    price_in: float | None = None
    price_out: float | None = None
    price_cached: float | None = None  # of tokens sent that its server had read before; None: as price_in
    strength: int | None = field(default=None, repr=False)  # None: not told
    attempts: int = 4  # tries per call, the first included
    allow_private: bool = False  # may a host *name* lead to a private or loopback address
    token_limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    send_temperature: bool = True
    send_seed: bool = False
    system_role: bool = (
        True  # False: the model knows none, and what stands in one is put before the user's words
    )
    stream: bool = True  # False: the server cannot stream, `Pool.stream` then yields the whole reply
    stream_usage: bool = (
        True  # ask for usage in a stream; a server that refuses the request is not asked again
    )
    stream_done: bool = True  # a stream ends with [DONE]; False: with its finish reason alone
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)  # further fields of the body
    query: Mapping[str, str] = field(default_factory=dict, hash=False)  # of the address: Azure's api-version
    headers_env: Mapping[str, str] = field(
        default_factory=dict, hash=False
    )  # header -> variable with its value
    proxy: str = ""  # address of an http proxy; none is taken from the environment
    ca_file: str = ""  # certificates to trust instead of the usual ones
    service: Service | None = None  # whose limits it shares with other models

    @property
    def prompt_tokens(self) -> int | None:
        """How many tokens a prompt may have beside the longest reply; None where that is not known."""
        return None if self.context_window is None else max(0, self.context_window - self.max_tokens)

    def temperature_in(self, role: str) -> float:
        return self.role_temperature.get(role, self.temperature)


def _further(spec: ModelSpec) -> list[object]:
    """What else decides who answers and what it reads; nothing where there is nothing, as there once was not."""
    system_role = "" if spec.system_role else "no system role"
    return [one for one in (sorted(spec.query.items()), spec.context_window, system_role) if one]


def digest_of_specs(specs: Sequence[ModelSpec]) -> str:
    """What a pool's models hash to: replies of pools that differ in it cannot stand for each other."""
    described = [
        (one.name, one.model, one.provider, one.base_url, one.dialect, one.temperature, one.max_tokens)
        + (sorted(one.role_temperature.items()), sorted(one.extra.items()), *_further(one))
        for one in specs
    ]
    return hashlib.sha256(json.dumps(described, default=str).encode()).hexdigest()[:16]
