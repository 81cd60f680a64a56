"""One model's entry in a pool: its name, how it is reached, how it is spoken to and what it costs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

Dialect = Literal["general", "terse", "recorded", "chat"]
Provider = Literal["openai", "pocket", "local", "scripted", "recorded"]

#: Body fields that are ours: an entry of pool.toml has settings for them or may not change them at all.
OWN_FIELDS = frozenset(
    ("max_completion_tokens", "max_tokens", "messages", "model", "n", "response_format", "seed", "stream")
    + ("stream_options", "temperature", "tool_choice", "tools")
)
_OWN_HEADERS = frozenset(
    ("authorization", "content-type", "content-length", "host", "accept-encoding", "connection")
)


def _name(value: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", value):
        raise ValueError("must be 1 to 64 letters, digits, dots, dashes or underscores")
    return value


def _variable(value: str) -> str:
    # Not repeated in the sentence: what stands here by mistake is most likely a key.
    if value and not re.fullmatch(r"[A-Z_][A-Z0-9_]*", value):
        raise ValueError("must be the name of an environment variable in capitals, never the key itself")
    return value


def _url(value: str) -> str:
    try:
        url = urlsplit(value)
        fits = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        fits = False
    if not fits or not value.isprintable() or " " in value or "\\" in value:
        raise ValueError("must be an http or https address such as https://api.example.com/v1")
    if "@" in url.netloc or "?" in value or "#" in value:
        raise ValueError("must carry no user, password, query or fragment; a key is named by api_key_env")
    return value


def _proxy(value: str) -> str:
    return _url(value) if value else ""


def _extra(value: dict[str, Any]) -> dict[str, Any]:
    for name in value:
        if name in OWN_FIELDS:
            raise ValueError(f"cannot set '{name}', which the program sets itself (see trinity pool init)")
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        raise ValueError("holds a date or a number that JSON cannot carry") from None
    return value


def _header(value: dict[str, str]) -> dict[str, str]:
    for name, variable in value.items():
        if not re.fullmatch(r"[A-Za-z0-9-]{1,64}", name) or name.lower() in _OWN_HEADERS:
            raise ValueError("must name headers such as api-key; those of the request itself cannot be set")
        _variable(variable)
    return value


def _file(value: str) -> str:
    if value and not Path(value).expanduser().is_file():
        raise ValueError("must be a file with certificates (PEM)")
    return str(Path(value).expanduser()) if value else ""


Name = Annotated[str, AfterValidator(_name)]
Temperature = Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)]
Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True)
class Service:
    """A provider whose models share limits: calls in flight at once, requests and tokens a minute; None: unknown."""

    name: Name
    concurrency: Annotated[int, Field(ge=1, le=1024)] | None = None
    requests_per_minute: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = None
    tokens_per_minute: Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)] | None = None


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A pool slot, with what a pool.toml may say of it (see `core.pool_file`).

    `dialect` picks the role prompts and verdict format: `general` gives full instructions and asks for a final verdict
    line with a per-call tag; `terse` is the pocket models' short form with the bare word; `recorded` is the bare
    question, as a model was given it that replies from an outcome table. `roles` are those that it can be asked to
    play; a role that no model of a pool can play is masked. `tasks` are the ids of those that it can be asked about
    (None: any); of an episode of another task it is left out. `repeats`: whatever it is asked, it has one answer to a
    task. Prices are USD per million tokens, None when unknown. A
    spec names the variable its key is in and never holds the key. `strength` puts models in an order, a larger number
    for a stronger one; nothing that a model says depends on it."""

    name: Name
    model: Annotated[str, Field(max_length=200)] = ""
    provider: Provider = "openai"
    base_url: Annotated[str, AfterValidator(_url)] = ""
    #: Of a model that writes in this process: its name among those that were added, or its folder.
    local: Annotated[str, Field(min_length=1)] = ""
    #: Of such a model, the digest of its weights: another under the same name is another model.
    weights: str = field(default="", repr=False)
    api_key_env: Annotated[str, AfterValidator(_variable)] = ""
    dialect: Dialect = "general"
    roles: tuple[str, ...] = ("worker", "thinker", "verifier")
    tasks: Set[str] | None = field(default=None, repr=False, compare=False)
    repeats: bool = False
    temperature: Temperature = 0.7
    role_temperature: Mapping[str, Temperature] = field(default_factory=dict, hash=False)  # by role
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 4096
    #: Tokens of prompt and reply together; None: not known, nothing is shortened.
    context_window: Annotated[int, Field(ge=1, le=100_000_000)] | None = None
    timeout_s: Annotated[float, Field(gt=0, le=3600)] = 120.0  # of one call, its retries and waits included
    concurrency: Annotated[int, Field(ge=1, le=256)] = 8  # calls in flight at once
    price_in: Price | None = None
    price_out: Price | None = None
    price_cached: Price | None = None  # of tokens sent that its server had read before; None: as price_in
    strength: Annotated[int, Field(ge=0, le=1_000_000)] | None = field(default=None, repr=False)
    judge: bool = field(
        default=False, repr=False
    )  # it rates answers (`core.play.judging`), and is in no slot
    attempts: Annotated[int, Field(ge=1, le=10)] = 4  # tries per call, the first included
    allow_private: bool = False  # may a host *name* lead to a private or loopback address
    token_limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    send_temperature: bool = True
    send_seed: bool = False
    #: False: the model knows none, and what stands in one is put before the user's words.
    system_role: bool = True
    #: What its server takes as `response_format`: "" nothing, json_object, or json_schema too.
    response_format: Literal["", "json_object", "json_schema"] = ""
    #: Whether it reads images (`image_url` parts of a user's message), and the most tokens that it counts one as.
    images: bool = False
    image_tokens: Annotated[int, Field(ge=1, le=1_000_000)] = 5_000
    stream: bool = True  # False: the server cannot stream, `Pool.stream` then yields the whole reply
    #: Ask for usage in a stream; a server that refuses the request is not asked again.
    stream_usage: bool = True
    stream_done: bool = True  # a stream ends with [DONE]; False: with its finish reason alone
    #: Further fields of the body.
    extra: Annotated[Mapping[str, Any], AfterValidator(_extra)] = field(default_factory=dict, hash=False)
    query: Mapping[str, str] = field(default_factory=dict, hash=False)  # of the address: Azure's api-version
    #: Header -> variable with its value.
    headers_env: Annotated[Mapping[str, str], AfterValidator(_header)] = field(
        default_factory=dict, hash=False
    )
    #: Address of an http proxy; none is taken from the environment.
    proxy: Annotated[str, AfterValidator(_proxy)] = ""
    ca_file: Annotated[str, AfterValidator(_file)] = ""  # certificates to trust instead of the usual ones
    service: Service | None = None  # whose limits it shares with other models
    #: Of a model that writes in this process: on which device and in what numbers, as `core.settings.Computing` says.
    device: str = "auto"
    dtype: str | None = None

    def can_answer(self, task_id: str) -> bool:
        """Whether it can be asked about this task."""
        return self.tasks is None or task_id in self.tasks

    @property
    def prompt_tokens(self) -> int | None:
        """How many tokens a prompt may have beside the longest reply; None where that is not known."""
        return None if self.context_window is None else max(0, self.context_window - self.max_tokens)

    def text_tokens(self, images: int) -> int | None:
        """How many tokens the text of a prompt may have beside so many images; None where that is not known."""
        room = self.prompt_tokens
        return None if room is None else room - self.image_tokens * images

    def temperature_in(self, role: str) -> float:
        return self.role_temperature.get(role, self.temperature)


def slots_of(specs: Iterable[ModelSpec]) -> tuple[ModelSpec, ...]:
    """The models among which a policy chooses, in slot order: all but the judge."""
    return tuple(spec for spec in specs if not spec.judge)


def judge_of(specs: Iterable[ModelSpec]) -> ModelSpec | None:
    """The model that rates answers; None where none is named."""
    return next((spec for spec in specs if spec.judge), None)


def digest_of_specs(specs: Sequence[ModelSpec]) -> str:
    """What a pool's models hash to: replies of pools that differ in it cannot stand for each other."""
    described = [
        (one.name, one.model, one.provider, one.base_url, one.dialect, one.temperature, one.max_tokens)
        + (sorted(one.role_temperature.items()), sorted(one.extra.items()))
        # What is not there was once not known of.
        + (*filter(None, (sorted(one.query.items()), one.context_window)),)
        + (() if one.system_role else ("no system role",))
        + (() if (one.device, one.dtype) == ("auto", None) else (f"{one.dtype} on {one.device}",))
        + ((f"weights {one.weights}",) if one.weights else ())
        + (() if len(one.roles) == 3 else (one.roles,))
        + (("reads images",) if one.images else ())
        for one in sorted(specs, key=lambda one: one.judge)  # it stands last, wherever its entry does
    ]
    return hashlib.sha256(json.dumps(described, default=str).encode()).hexdigest()[:16]
