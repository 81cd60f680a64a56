"""From pool.toml to a Pool: every mistake in the file is one sentence that names the entry and the field."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from core.errors import ConfigError
from core.pocket.specs import MAX_TOKENS, pocket_spec
from core.pool.costs import listed_prices
from core.pool.mixed import MixedPool
from core.pool.pool import Pool
from core.pool.spec import Dialect, ModelSpec
from core.pool.throttle import Service
from core.pool.wire import OWN_FIELDS
from core.processes import Processes
from core.texts import read_text


def pool_template() -> str:
    """A commented pool.toml to begin with, itself valid."""
    return files("core.pool").joinpath("example.toml").read_text("utf-8")


def load_pool(path: Path, env: Mapping[str, str], processes: Processes | None = None) -> Pool:
    """The pool that the file describes, with keys looked up in `env`; `processes` share its pocket models' work. Raises
    ConfigError for a mistake in the file, PoolError for a key variable that is not set or an unknown pocket model."""
    return build_pool(load_specs(path), env, processes)


def build_pool(
    specs: Sequence[ModelSpec], env: Mapping[str, str], processes: Processes | None = None
) -> Pool:
    """A pool that asks each model where its entry says. Raises PoolError, see `load_pool`."""
    pools: dict[str, Pool] = {}
    if hosted := [spec for spec in specs if spec.provider == "openai"]:
        from core.pool.hosted import HttpPool

        pools["openai"] = HttpPool(hosted, env)
    if pocket := [spec for spec in specs if spec.provider == "pocket"]:
        from core.pocket.pool import PocketPool

        pools["pocket"] = PocketPool([spec.name for spec in pocket], specs=pocket, processes=processes)
    return next(iter(pools.values())) if len(pools) == 1 else MixedPool(specs, pools)


def load_specs(path: Path) -> tuple[ModelSpec, ...]:
    """The entries of a pool.toml in order, checked, with list prices where the file gives none."""
    try:
        document = tomllib.loads(read_text(path))
    except FileNotFoundError:
        raise ConfigError(f"There is no pool file {path}; write one with trinity pool init.") from None
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"The pool file {path} cannot be read: {error}.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"The pool file {path} is not valid TOML: {error}.") from None
    entries, defaults = document.pop("model", None), document.pop("defaults", {})
    providers = _providers(path, document.pop("provider", []))
    if not isinstance(defaults, dict) or "name" in defaults:
        raise ConfigError(
            f"{path}: defaults must be a [defaults] table of fields that models share, without a name."
        )
    if document:
        raise ConfigError(
            f"{path}: '{next(iter(document))}' is not a key of a pool file; models stand in [[model]] "
            "tables, shared fields in [defaults] or [[provider]] tables."
        )
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise ConfigError(f"{path} names no models; add a [[model]] table for each (see trinity pool init).")
    specs = tuple(
        _spec(path, number, _with_defaults(entry, defaults), providers)
        for number, entry in enumerate(entries, start=1)
    )
    names = [spec.name for spec in specs]
    for number, name in enumerate(names, start=1):
        if name in names[: number - 1]:
            raise ConfigError(f"{path}, model {number} ('{name}'): name is already taken; give each its own.")
    return specs


def _with_defaults(entry: dict[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The entry with what it does not say itself; a pocket model has fewer fields."""
    if entry.get("provider", defaults.get("provider")) == "pocket":
        defaults = {name: value for name, value in defaults.items() if name in _Pocket.model_fields}
    return {**defaults, **entry}


def _providers(path: Path, tables: Any) -> dict[str, tuple[Service, dict[str, Any]]]:
    """What a file's [[provider]] tables say: the limits of each, and what its models share besides."""
    found: dict[str, tuple[Service, dict[str, Any]]] = {}
    for number, table in enumerate(tables if isinstance(tables, list) else [tables], start=1):
        limits = (
            {k: v for k, v in table.items() if k in _Limits.model_fields} if isinstance(table, dict) else {}
        )
        try:
            service = Service(**_Limits.model_validate(limits).model_dump())
        except ValidationError as error:
            named = f" ('{limits['name']}')" if isinstance(limits.get("name"), str) else ""
            raise ConfigError(
                f"{path}, provider {number}{named}: {next(_mistakes(error, _Limits))}."
            ) from None
        if service.name in found or service.name in ("openai", "pocket"):
            raise ConfigError(
                f"{path}, provider {number} ('{service.name}'): name is already taken; give each its own."
            )
        found[service.name] = service, {k: v for k, v in table.items() if k not in limits}
    return found


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


def _extra(value: dict[str, Any]) -> dict[str, Any]:
    for field in value:
        if field in OWN_FIELDS:
            raise ValueError(f"cannot set '{field}', which the program sets itself (see trinity pool init)")
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


_OWN_HEADERS = frozenset(
    ("authorization", "content-type", "content-length", "host", "accept-encoding", "connection")
)
ModelName = Annotated[str, AfterValidator(_name)]
Temperature = Annotated[float, Field(ge=0, le=2, allow_inf_nan=False)]
RoleTemperature = dict[Literal["thinker", "worker", "verifier"], Temperature]
TokenLimit = Annotated[int, Field(ge=1, le=1_000_000)]
Strength = Annotated[int, Field(ge=0, le=1_000_000)]
Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Hosted(_Entry):
    name: ModelName
    provider: Literal["openai", "pocket"] = "openai"
    model: str = Field(default="", max_length=200)
    base_url: Annotated[str, AfterValidator(_url)]
    api_key_env: Annotated[str, AfterValidator(_variable)] = ""
    dialect: Dialect = "general"
    temperature: Temperature = 0.7
    role_temperature: RoleTemperature = Field(default_factory=dict)
    max_tokens: TokenLimit = 4096
    context_window: Annotated[int, Field(ge=1, le=100_000_000)] | None = None
    timeout_s: Annotated[float, Field(gt=0, le=3600)] = 120.0
    concurrency: Annotated[int, Field(ge=1, le=256)] = 8
    attempts: Annotated[int, Field(ge=1, le=10)] = 4
    price_in: Price | None = None
    price_cached: Price | None = None
    price_out: Price | None = None
    strength: Strength | None = None
    allow_private: bool = False
    token_limit_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    send_temperature: bool = True
    send_seed: bool = False
    system_role: bool = True
    stream: bool = True
    stream_usage: bool = True
    stream_done: bool = True
    extra: Annotated[dict[str, Any], AfterValidator(_extra)] = Field(default_factory=dict)
    query: dict[str, str] = Field(default_factory=dict)
    headers_env: Annotated[dict[str, str], AfterValidator(_header)] = Field(default_factory=dict)
    proxy: Annotated[str, AfterValidator(lambda value: _url(value) if value else "")] = ""
    ca_file: Annotated[str, AfterValidator(_file)] = ""


class _Limits(_Entry):
    name: ModelName
    concurrency: Annotated[int, Field(ge=1, le=1024)] | None = None
    requests_per_minute: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] | None = None
    tokens_per_minute: Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)] | None = None


class _Pocket(_Entry):
    name: ModelName
    provider: Literal["pocket"]
    temperature: Temperature | None = None
    role_temperature: RoleTemperature | None = None
    max_tokens: Annotated[int, Field(ge=1, le=MAX_TOKENS)] | None = None
    strength: Strength | None = None


def _spec(
    path: Path, number: int, entry: dict[str, Any], providers: Mapping[str, tuple[Service, dict[str, Any]]]
) -> ModelSpec:
    service = None
    if (named := entry.get("provider")) in providers:
        service, shared = providers[str(named)]
        entry = {**shared, **entry, "provider": "openai"}
    elif providers and named not in (None, "openai", "pocket"):
        raise ConfigError(
            f"{path}, model {number}: there is no provider '{named}'; it has {', '.join(providers)}."
        )
    kind = _Pocket if entry.get("provider") == "pocket" else _Hosted  # which also says what else it may be
    try:
        checked = kind.model_validate(entry)
    except ValidationError as error:
        named = f" ('{entry['name']}')" if isinstance(entry.get("name"), str) else ""
        raise ConfigError(f"{path}, model {number}{named}: {next(_mistakes(error, kind))}.") from None
    if isinstance(checked, _Pocket):
        given = checked.model_dump(exclude={"name", "provider"}, exclude_none=True)
        return replace(pocket_spec(checked.name), **given)
    spec = ModelSpec(**checked.model_dump(), service=service)
    if spec.price_in is not None and spec.price_cached is not None and spec.price_cached > spec.price_in:
        raise ConfigError(
            f"{path}, model {number} ('{spec.name}'): price_cached must not be higher than price_in, which bounds what "
            "a call may cost."
        )
    if spec.prompt_tokens == 0:
        raise ConfigError(
            f"{path}, model {number} ('{spec.name}'): context_window must be larger than max_tokens, which is "
            f"{spec.max_tokens}: a prompt and its reply share the window."
        )
    return _priced(spec)


def _priced(spec: ModelSpec) -> ModelSpec:
    """The entry with list prices where it gives none."""
    if None not in (spec.price_in, spec.price_cached, spec.price_out):
        return spec
    listed = listed_prices(spec.model or spec.name, spec.base_url)
    price_in = listed.sent if spec.price_in is None else spec.price_in
    cached = listed.cached
    if cached is not None and price_in is not None:
        cached = min(
            cached, price_in
        )  # who pays less than the listed price pays no more for what was read before
    return replace(
        spec,
        price_in=price_in,
        price_cached=cached if spec.price_cached is None else spec.price_cached,
        price_out=listed.written if spec.price_out is None else spec.price_out,
    )


def _mistakes(error: ValidationError, kind: type[_Entry]) -> Iterator[str]:
    """One sentence per mistake, never repeating a value: it may be a key."""
    for mistake in error.errors(include_url=False, include_context=False, include_input=False):
        field = str(mistake["loc"][0])
        match mistake["type"]:
            case "extra_forbidden":
                near = difflib.get_close_matches(field, kind.model_fields, n=1)
                yield f"'{field}' is not a known field" + (f", did you mean '{near[0]}'" if near else "")
            case "missing":
                yield f"{field} is missing"
            case _:
                message = mistake["msg"].removeprefix("Value error, ").removeprefix("Input ")
                yield f"{field} {message[:1].lower()}{message[1:]}"
