"""Settings, built once at a door: arguments before environment before file before defaults."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import platformdirs

from core.errors import ConfigError
from core.fields import Setting, build_settings, read, settings_of
from core.texts import read_text

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


#: Number formats of an encoder's weights.
Dtype = Literal["float32", "bfloat16", "float16"]
#: Kinds of devices that an encoder can read on.
DeviceKind = Literal["cpu", "cuda", "mps"]

STORE = Setting(
    group="models",
    option="--store",
    metavar="URL",
    open=True,
    help="Database URL or SQLite file. Else TRINITY_STORE, else the user's data folder.",
)
POOL = Setting(
    group="models",
    option="--pool",
    metavar="FILE",
    open=True,
    help="A pool.toml, 'pocket', or 'outcomes:NAME': models that reply from an outcome table. Else TRINITY_POOL, else "
    "pocket.",
)
ENCODER = Setting(
    "Encoder",
    group="models",
    option="--encoder",
    open=True,
    help="Encoder: 'pocket', a name of trinity encoders, a Hugging Face folder or hub id. Else TRINITY_ENCODER, else "
    "pocket where all models are.",
)
MAX_COST = Setting(
    "Spend at most (USD)",
    group="models",
    ge=0,
    option="--max-cost",
    metavar="USD",
    free=True,
    open=True,
    help="Stop before spending more. Else TRINITY_MAX_COST.",
)
DEVICE = Setting(
    "Device",
    group="models",
    option="--device",
    free=True,
    open=True,
    help="Where the encoder reads: cuda, mps or cpu; auto takes the first of them that is here, and the CPU for small "
    "encoders. Else TRINITY_DEVICE, else auto.",
)
DTYPE = Setting(
    "Numbers",
    group="models",
    option="--dtype",
    open=True,
    help="Number format of the encoder's weights. Else TRINITY_DTYPE. Left out: the checkpoint's own; of a new one "
    "float32, bfloat16 on cuda.",
)
ENGINE = Setting(
    "Engine",
    group="models",
    option="--engine",
    metavar="local|ray[=ADDRESS]",
    free=True,
    help="Where calls are made, small models run and programs are graded: 'local', or 'ray' for helpers on a Ray "
    "cluster, at 'ray=HOST:6379' or of this machine alone. The results are the same: machines that compute other last "
    "digits are refused, except by 'ray-mixed=HOST:6379'. Else TRINITY_ENGINE, else local.",
)
#: The settings of an app that a command's options may replace, by key.
DOORS = ("pool", "encoder", "device", "dtype", "engine", "max_cost_usd")
Engine = Annotated[str, ENGINE]
LOCAL_ENGINE, RAY_ENGINE, MIXED_ENGINE = "local", "ray", "ray-mixed"
Pool = Annotated[str, POOL]
MaxCost = Annotated[float | None, MAX_COST]


@dataclass(frozen=True, slots=True)
class Computing:
    """On which device an encoder shall read, and in what numbers; None: in those of the checkpoint."""

    device: Annotated[Literal["auto", "cpu", "cuda", "mps"], DEVICE] = "auto"
    dtype: Annotated[Dtype | None, DTYPE] = None


def data_folder() -> Path:
    """Where this user's store, settings file, encoders and outcome tables are."""
    return platformdirs.user_data_path("trinity-inspector", appauthor=False)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a process, each with a variable TRINITY_* and a key of `config.toml` in the data folder."""

    data_folder: Path
    store: Annotated[str, STORE]
    pool: Pool = POCKET_POOL
    encoder: Annotated[str | None, ENCODER] = None
    port: Annotated[int, Setting(ge=1, le=65535, option="--port", open=True)] = 8501
    """Port on 127.0.0.1. Else TRINITY_PORT, else 8501."""
    max_cost_usd: MaxCost = None
    labels: Annotated[tuple[tuple[str, str], ...], Setting()] = DEFAULT_LABELS
    """Labels that reviewers have at hand."""
    workers: Annotated[int, Setting(ge=0, le=MOST_WORKERS)] = DEFAULT_WORKERS
    """How many runs the app plays at a time; 0: none, somebody starts trinity worker."""
    processes: Annotated[int | None, Setting(ge=1, open=True)] = None
    """How many processes the small models of one run work in, one of them its own. Left out: one for each core,
    which is also the most."""
    computing: Computing = Computing()
    engine: Engine = LOCAL_ENGINE

    def __post_init__(self) -> None:
        ray_address(self.engine)


def ray_address(engine: str) -> str | None:
    """Where the Ray cluster of an engine is, empty for one of this machine alone; None for the local engine.
    ConfigError for another one."""
    name, _, address = engine.partition("=")
    if name in (RAY_ENGINE, MIXED_ENGINE):
        host, _, port = address.removeprefix("ray://").rpartition(":")
        if address and not (host and port.isdigit()):
            raise ConfigError(
                f"--engine {name}={address} names no address: write {name}=HOST:6379, or {name}=ray://HOST:10001."
            )
        return address
    if engine == LOCAL_ENGINE:
        return None
    raise ConfigError(f"The engine must be local, ray or ray=ADDRESS, not '{engine}'.")


def is_mixed(engine: str) -> bool:
    """Whether machines of a cluster may work together whose last digits differ, so that a run need not come to the same
    again."""
    return engine.partition("=")[0] == MIXED_ENGINE


def read_settings(
    arguments: Mapping[str, object], environment: Mapping[str, str], data_folder: Path
) -> Settings:
    """Settings from a door's arguments (None means not given), its environment and `data_folder`/config.toml.

    Raises ConfigError for a file that is not TOML, an unknown key or a value of the wrong kind."""
    file = data_folder / "config.toml"
    try:
        written = tomllib.loads(read_text(file))
    except FileNotFoundError:
        written = {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"The settings file {file} cannot be read: {error}.") from error
    if unknown := sorted(set(written) - set(settings_of(Settings))):
        raise ConfigError(
            f"The settings file {file} has an unknown key '{unknown[0]}': use {', '.join(settings_of(Settings))}."
        )
    given: dict[str, Any] = {"store": str(data_folder / "trinity.db")}
    for key, field in settings_of(Settings).items():
        name = key.removesuffix("_usd")
        variable, option = f"TRINITY_{name.upper()}", f"--{name.replace('_', '-')}"
        sources = {option: arguments.get(key), variable: environment.get(variable) or None}
        sources[f"{key} in {file}"] = written.get(key)
        for where, value in sources.items():
            if value is not None:
                given[key] = _labels(value, where) if key == "labels" else read(field, value, where)
                break
    return build_settings(Settings, given, data_folder=data_folder)


def _labels(value: object, where: str) -> tuple[tuple[str, str], ...]:
    """`quality=good, quality=bad` as pairs, each once."""
    pairs = [part.partition("=") for part in str(value).split(",") if part.strip()]
    labels = tuple(dict.fromkeys((" ".join(a.split()), " ".join(b.split())) for a, _, b in pairs))
    if not 0 < len(labels) <= MOST_LABELS or not all(name and word for name, word in labels):
        raise ConfigError(
            f"{where} must list 1 to {MOST_LABELS} labels such as quality=good, quality=bad, not '{value}'."
        )
    return labels
