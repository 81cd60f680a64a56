"""Settings, built once at a door: arguments before environment before file before defaults."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from core.errors import ConfigError
from core.texts import read_text

#: Environment variable and file key of each setting. The file is `config.toml` in the data folder.
VARIABLES: dict[str, str] = {
    "store": "TRINITY_STORE",
    "pool": "TRINITY_POOL",
    "encoder": "TRINITY_ENCODER",
    "port": "TRINITY_PORT",
    "max_cost_usd": "TRINITY_MAX_COST",
    "labels": "TRINITY_LABELS",
    "workers": "TRINITY_WORKERS",
    "processes": "TRINITY_PROCESSES",
}

#: The labels that reviewers set with one key, unless configured otherwise.
DEFAULT_LABELS = (
    ("quality", "good"),
    ("quality", "bad"),
    ("verdict", "wrong"),
    ("cause", "prompt bug"),
    ("outcome", "lucky"),
)
#: One for each digit key.
MOST_LABELS = 9

#: How many runs are played at a time by default: one more than is being looked at.
DEFAULT_WORKERS = 2
MOST_WORKERS = 64

#: The name of the embedded pool, where a path of a pool.toml is expected otherwise.
POCKET_POOL = "pocket"


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a process. `store` is a database URL or a path, `pool` is "pocket" or a pool.toml's path,
    `encoder` is "pocket", a Hugging Face folder or a hub id (None: the one a checkpoint names),
    `max_cost_usd` is the spend ceiling of one run (None: paid models must be confirmed), `labels` the (name, value)
    pairs that reviewers have at hand, `workers` how many runs the app plays at a time (0: none, somebody starts
    `trinity worker`), `processes` how many processes the small models of one run work in, one of them its own (None:
    one for each core, which is also the most)."""

    data_folder: Path
    store: str
    pool: str = POCKET_POOL
    encoder: str | None = None
    port: int = 8501
    max_cost_usd: float | None = None
    labels: tuple[tuple[str, str], ...] = DEFAULT_LABELS
    workers: int = DEFAULT_WORKERS
    processes: int | None = None


def read_settings(
    arguments: Mapping[str, object], environment: Mapping[str, str], data_folder: Path
) -> Settings:
    """Settings from a door's arguments (None means not given), its environment and `data_folder`/config.toml.

    Raises ConfigError for a file that is not TOML, an unknown key or a value of the wrong kind."""
    file = data_folder / "config.toml"
    written = _read_file(file)
    values: dict[str, tuple[object, str]] = {}
    for name, variable in VARIABLES.items():
        if arguments.get(name) is not None:
            values[name] = arguments[name], f"--{name.removesuffix('_usd').replace('_', '-')}"
        elif environment.get(variable):
            values[name] = environment[variable], variable
        elif name in written:
            values[name] = written[name], f"{name} in {file}"
    read: dict[str, Callable[..., Any]] = {
        "port": partial(_count, least=1, most=65535, allowed="a port between 1 and 65535"),
        "max_cost_usd": _number,
        "labels": _labels,
        "workers": partial(_count, most=MOST_WORKERS, allowed=f"a whole number from 0 to {MOST_WORKERS}"),
        "processes": partial(_count, least=1, allowed="a whole number of at least 1"),
    }
    given: dict[str, Any] = {"store": str(data_folder / "trinity.db")}
    for name, (value, where) in values.items():
        given[name] = read[name](value, where) if name in read else str(value)
    return Settings(data_folder, **given)


def _read_file(file: Path) -> dict[str, object]:
    """The settings file's table, empty when there is no such file."""
    try:
        table = tomllib.loads(read_text(file))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"The settings file {file} cannot be read: {error}.") from error
    if unknown := sorted(set(table) - set(VARIABLES)):
        raise ConfigError(
            f"The settings file {file} has an unknown key '{unknown[0]}': use {', '.join(VARIABLES)}."
        )
    return table


def _labels(value: object, where: str) -> tuple[tuple[str, str], ...]:
    """`quality=good, quality=bad` as pairs, each once."""
    pairs = [part.partition("=") for part in str(value).split(",") if part.strip()]
    labels = tuple(dict.fromkeys((" ".join(a.split()), " ".join(b.split())) for a, _, b in pairs))
    if not 0 < len(labels) <= MOST_LABELS or not all(name and word for name, word in labels):
        raise ConfigError(
            f"{where} must list 1 to {MOST_LABELS} labels such as quality=good, quality=bad, not '{value}'."
        )
    return labels


def _count(value: object, where: str, *, allowed: str, least: float = 0, most: float = math.inf) -> int:
    """The value as a whole number from `least` to `most`; `allowed` says in words what it may be."""
    number = _number(value, where)
    if number != int(number) or not least <= number <= most:
        raise ConfigError(f"{where} must be {allowed}, not {value}.")
    return int(number)


def _number(value: object, where: str) -> float:
    """The value as a finite number of at least 0."""
    try:
        number = float(str(value))
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise ConfigError(f"{where} must be a number of at least 0, not '{value}'.")
    return number
