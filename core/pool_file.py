"""From pool.toml to a Pool: every mistake in the file is one sentence that names the entry and the field."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.cluster.cluster import Cluster
from core.errors import CheckpointError, ConfigError
from core.fields import model_of
from core.pocket.models import MAX_TOKENS, pocket_spec
from core.pool.costs import listed_prices
from core.pool.pool import MixedPool, Pool
from core.pool.spec import ModelSpec, Service, Temperature
from core.processes import Processes
from core.settings import Computing
from core.texts import read_text
from core.tokens.files import speaking_window
from core.tokens.shelf import model_folder, model_weights


def pool_template() -> str:
    """A commented pool.toml to begin with, itself valid."""
    return files("core.pool").joinpath("example.toml").read_text("utf-8")


def load_pool(
    path: Path, env: Mapping[str, str], processes: Processes | None = None, data_folder: Path | None = None
) -> Pool:
    """The pool that the file describes, with keys looked up in `env`; `processes` share its pocket models' work, and
    `data_folder` holds the language models that were added by name. Raises ConfigError for a mistake in the file,
    PoolError for a key variable that is not set or an unknown pocket model."""
    return build_pool(load_specs(path, data_folder), env, processes)


def build_pool(
    specs: Sequence[ModelSpec], env: Mapping[str, str], processes: Processes | None = None
) -> Pool:
    """A pool that asks each model where its entry says. Raises PoolError, see `load_pool`."""
    pools: dict[str, Pool] = {}
    if hosted := [spec for spec in specs if spec.provider == "openai"]:
        from core.pool.hosted import HttpPool

        clients = processes.clients if isinstance(processes, Cluster) else None
        pools["openai"] = HttpPool(hosted, env, clients=clients)
    if pocket := [spec for spec in specs if spec.provider == "pocket"]:
        from core.pocket.pool import PocketPool

        pools["pocket"] = PocketPool([spec.name for spec in pocket], specs=pocket, processes=processes)
    if local := [spec for spec in specs if spec.provider == "local"]:
        from core.pocket.local import LocalPool

        pools["local"] = LocalPool(local)
    return next(iter(pools.values())) if len(pools) == 1 else MixedPool(specs, pools)


def load_specs(path: Path, data_folder: Path | None = None) -> tuple[ModelSpec, ...]:
    """The entries of a pool.toml in order, checked, with list prices where the file gives none. `data_folder`: see
    `load_pool`."""
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
        _local_spec(path, number, _with_defaults(entry, defaults), data_folder)
        if "local" in entry
        else _spec(path, number, _with_defaults(entry, defaults), providers)
        for number, entry in enumerate(entries, start=1)
    )
    names = [spec.name for spec in specs]
    for number, name in enumerate(names, start=1):
        if name in names[: number - 1]:
            raise ConfigError(f"{path}, model {number} ('{name}'): name is already taken; give each its own.")
    judges = [spec.name for spec in specs if spec.judge]
    if len(judges) > 1 or len(judges) == len(specs):
        raise ConfigError(
            f"{path}: {', '.join(judges)} {'have' if len(judges) > 1 else 'has'} judge = true: one model may have it, "
            "beside those that are coordinated."
        )
    return tuple(replace(spec, roles=()) if spec.judge else spec for spec in specs)


def _with_defaults(entry: dict[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """The entry with what it does not say itself; a model in this process has fewer fields."""
    if "local" in entry:
        defaults = {name: value for name, value in defaults.items() if name in _SHARED}
    elif entry.get("provider", defaults.get("provider")) == "pocket":
        defaults = {name: value for name, value in defaults.items() if name in _POCKET.model_fields}
    return {**defaults, **entry}


def _providers(path: Path, tables: Any) -> dict[str, tuple[Service, dict[str, Any]]]:
    """What a file's [[provider]] tables say: the limits of each, and what its models share besides."""
    found: dict[str, tuple[Service, dict[str, Any]]] = {}
    for number, table in enumerate(tables if isinstance(tables, list) else [tables], start=1):
        table = table if isinstance(table, dict) else {}
        limits = {k: v for k, v in table.items() if k in _LIMITS.model_fields}
        service = Service(**_check(f"{path}, provider {number}", _LIMITS, limits).model_dump())
        if service.name in found or service.name in ("openai", "pocket", "local"):
            raise ConfigError(
                f"{path}, provider {number} ('{service.name}'): name is already taken; give each its own."
            )
        found[service.name] = service, {k: v for k, v in table.items() if k not in limits}
    return found


#: Tokens of a local model's reply, where an entry says nothing: it writes them one after the other on this machine.
LOCAL_TOKENS = 512


class _Sampling(BaseModel):
    """What can be said of a local model's sampling besides its temperature."""

    model_config = ConfigDict(extra="forbid", strict=True)

    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0


_BY_ROLE: Any = (dict[Literal["thinker", "worker", "verifier"], Temperature], Field(default_factory=dict))
#: Recorded models alone, which no file names, are prompted otherwise.
_DIALECT: Any = (Literal["general", "terse"], "general")
_SPEC_HINTS = get_type_hints(ModelSpec, include_extras=True)
_COMPUTING_HINTS = get_type_hints(Computing, include_extras=True)
_HOSTED = model_of(
    ModelSpec,
    [
        name
        for name in _SPEC_HINTS
        if name not in ("service", "local", "weights", "device", "dtype", "roles", "tasks", "repeats")
    ],
    provider=(Literal["openai", "pocket"], "openai"),
    base_url=(_SPEC_HINTS["base_url"], ...),
    role_temperature=_BY_ROLE,
    dialect=_DIALECT,
)
_POCKET = model_of(
    ModelSpec,
    ["name", "temperature", "strength"],
    provider=(Literal["pocket"], ...),
    role_temperature=_BY_ROLE,
    max_tokens=(Annotated[int, Field(ge=1, le=MAX_TOKENS)], 1),
)
_SHARED = ("dialect", "temperature", "role_temperature", "max_tokens")
_LOCAL = model_of(
    ModelSpec,
    ["name", "strength", "judge", "context_window", "system_role", "extra", *_SHARED],
    local=(_SPEC_HINTS["local"], ...),
    device=(_COMPUTING_HINTS["device"], "auto"),
    dtype=(_COMPUTING_HINTS["dtype"], None),
    provider=(Literal["local"], "local"),
    role_temperature=_BY_ROLE,
    dialect=_DIALECT,
)
_LIMITS = model_of(Service, [one.name for one in fields(Service)])


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
    kind = _POCKET if entry.get("provider") == "pocket" else _HOSTED  # which also says what else it may be
    checked = _check(f"{path}, model {number}", kind, entry)
    if kind is _POCKET:
        given = checked.model_dump(exclude={"provider"}, exclude_unset=True)
        return replace(pocket_spec(given.pop("name")), **given)
    spec = ModelSpec(**checked.model_dump(), service=service)
    if spec.price_in is not None and spec.price_cached is not None and spec.price_cached > spec.price_in:
        raise ConfigError(
            f"{path}, model {number} ('{spec.name}'): price_cached must not be higher than price_in, which bounds what "
            "a call may cost."
        )
    if spec.images and spec.dialect == "terse":
        raise ConfigError(
            f"{path}, model {number} ('{spec.name}'): images = true needs the dialect general: terse prompts hold the "
            "text of a question alone."
        )
    return _with_prices(_with_room(path, number, spec))


def _local_spec(path: Path, number: int, entry: dict[str, Any], data_folder: Path | None) -> ModelSpec:
    """The entry of a language model that writes in this process, with what its own files say."""
    where = f"{path}, model {number}"
    given = _check(where, _LOCAL, entry).model_dump(exclude_unset=True)
    where = f"{where} ('{given['name']}')"
    _check(f"{where}, extra", _Sampling, given.get("extra", {}))
    try:
        folder = model_folder(named := given.pop("local"), data_folder, path.parent)
        window = speaking_window(folder)
    except CheckpointError as error:
        raise ConfigError(f"{where}: {error}") from None
    given["context_window"] = window = min(window, given.get("context_window", window))
    given.setdefault("max_tokens", min(LOCAL_TOKENS, window // 2))
    fixed = {"provider": "local", "price_in": 0.0, "price_out": 0.0, "price_cached": 0.0}
    fixed["weights"] = model_weights(named, data_folder, folder)
    return _with_room(
        path, number, ModelSpec(**{**given, **fixed}, local=str(folder), model=f"local/{folder.name}")
    )


def _with_room(path: Path, number: int, spec: ModelSpec) -> ModelSpec:
    """The entry, whose window has room for a prompt."""
    if spec.prompt_tokens == 0:
        raise ConfigError(
            f"{path}, model {number} ('{spec.name}'): context_window must be larger than max_tokens, which is "
            f"{spec.max_tokens}: a prompt and its reply share the window."
        )
    return spec


def _with_prices(spec: ModelSpec) -> ModelSpec:
    """The entry with list prices where it gives none."""
    if None not in (spec.price_in, spec.price_cached, spec.price_out):
        return spec
    listed = listed_prices(spec.model or spec.name, spec.base_url)
    price_in = listed.sent if spec.price_in is None else spec.price_in
    cached = listed.cached
    if cached is not None and price_in is not None:
        # Who pays less than the listed price pays no more for what was read before.
        cached = min(cached, price_in)
    return replace(
        spec,
        price_in=price_in,
        price_cached=cached if spec.price_cached is None else spec.price_cached,
        price_out=listed.written if spec.price_out is None else spec.price_out,
    )


def _check(where: str, kind: type[BaseModel], entry: Mapping[str, Any]) -> BaseModel:
    """What stands in a table. ConfigError for its first mistake, which never repeats a value: it may be a key."""
    try:
        return kind.model_validate(entry)
    except ValidationError as error:
        mistake = error.errors(include_url=False, include_context=False, include_input=False)[0]
    field = str(mistake["loc"][0])
    named = f" ('{entry['name']}')" if isinstance(entry.get("name"), str) else ""
    match mistake["type"]:
        case "extra_forbidden":
            near = difflib.get_close_matches(field, kind.model_fields, n=1)
            said = f"'{field}' is not a known field" + (f", did you mean '{near[0]}'" if near else "")
        case "missing":
            said = f"{field} is missing"
        case _:
            message = mistake["msg"].removeprefix("Value error, ").removeprefix("Input ")
            said = f"{field} {message[:1].lower()}{message[1:]}"
    raise ConfigError(f"{where}{named}: {said}.")
