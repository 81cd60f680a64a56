"""Checkpoints: an evolved vector and everything that must fit it, as a value and as a folder on disk."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, get_args, get_type_hints

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_safetensors
from safetensors.numpy import save as save_safetensors

from core.episode import ROLE_ORDER, Protocol
from core.errors import CheckpointError, ConfigError
from core.fields import model_of
from core.heads import Head, head_of
from core.ids import checkpoint_id
from core.settings import DeviceKind
from core.settings import Dtype as Dtype

if TYPE_CHECKING:
    from pydantic import BaseModel

InputFormat = Literal["segments", "turns", "plain", "chat"]
Float32Vector = NDArray[np.float32]

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
_FORMAT = "trinity-checkpoint"
_VERSION = 1


@dataclass(frozen=True, slots=True)
class EncoderIdentity:
    """Which encoder a head belongs to. `digest` is over weights and tokenizer ("" when unknown), so that the
    same weights under another name are recognised; `revision` is a hub commit ("" for a local folder)."""

    name: str
    hidden_size: int
    digest: str = ""
    revision: str = ""


#: In the place of a recipe's attention: the machines that read compute other last digits each.
MIXED = "mixed"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How hidden states are computed: on which kind of device, in which numbers, by which implementation of attention.
    Another one rounds otherwise, so that a choice near a tie may fall the other way."""

    device: DeviceKind = "cpu"
    dtype: Dtype = "float32"
    attention: str = "sdpa"

    def __str__(self) -> str:
        kinds = {"sdpa": "", MIXED: " of machines that differ"}
        attention = kinds.get(self.attention, f" with {self.attention} attention")
        return f"{self.dtype} on {'the CPU' if self.device == 'cpu' else self.device}{attention}"

    @property
    def key(self) -> str:
        """As a decision keeps it, such as cuda/bfloat16/sdpa; empty for float32 on the CPU."""
        return "" if self == Recipe() else f"{self.device}/{self.dtype}/{self.attention}"

    @classmethod
    def of(cls, key: str) -> Recipe:
        """The recipe of a `key`."""
        return cls(*key.split("/")) if key else cls()  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """A coordinator's evolved numbers and all that they presuppose; equal when their ids are.

    `vector` float32 [n] = SVF offsets in `svf_layout` order, then the arrays of the `head_kind` over the models
    in `models` and the roles in `roles`, in that order (trinity.md 1.3, 1.4).
    `barred` names models and roles that are never chosen, as in an ablation.
    `dtype`, `device` and `attention` are the recipe of the states that it was made on.
    `svf_layout` is ((matrix name, number of singular values), ...), empty without SVF; `svf_dead` names the
    blocks among them that change nothing on this encoder."""

    vector: Float32Vector
    models: tuple[str, ...]
    encoder: EncoderIdentity
    roles: tuple[str, ...] = tuple(role.value for role in ROLE_ORDER)
    head_kind: str = "linear"
    input_format: InputFormat = "segments"
    token_position: int = -2
    svf_layout: tuple[tuple[str, int], ...] = ()
    svf_dead: tuple[str, ...] = ()
    barred: tuple[str, ...] = ()
    dtype: Dtype = "float32"
    device: DeviceKind = "cpu"
    attention: str = "sdpa"
    protocol: Protocol = Protocol.PAPER
    generation: int | None = None
    parent_run: str = ""
    kind: str = "evolved"
    notes: str = ""
    id: str = field(init=False)

    def __post_init__(self) -> None:
        vector = np.array(self.vector, dtype="<f4")  # a copy: nobody else may change it
        vector.setflags(write=False)
        object.__setattr__(self, "vector", vector)
        _check(self)
        object.__setattr__(self, "id", checkpoint_id(json.dumps(self._described(), sort_keys=True)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checkpoint) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    @classmethod
    def begin(
        cls, models: Sequence[str], encoder: EncoderIdentity, *, neutral: bool = False, **fields: Any
    ) -> Checkpoint:
        """Generation 0, where its head begins: for most at zeros, so every model and role is equally likely; with
        `neutral` for all that can be.

        `fields` as in the class; the input is a chat where the protocol is the released one, as its authors' is."""
        offsets = np.zeros(sum(count for _, count in fields.get("svf_layout", ())))
        head = head_of(fields.get("head_kind", "linear"), len(models), encoder.hidden_size)
        released = fields.get("protocol") is Protocol.RELEASED
        settings: dict[str, Any] = {
            "generation": 0, "kind": "start", "input_format": "chat" if released else "segments", **fields
        }  # fmt: skip
        return cls(
            np.concatenate([offsets, head.neutral() if neutral else head.initial()]),
            tuple(models),
            encoder,
            **settings,
        )

    def with_vector(self, vector: NDArray[Any], **fields: Any) -> Checkpoint:
        """A copy with another vector (and other `fields`, such as generation)."""
        return replace(self, vector=np.asarray(vector, dtype=np.float32), **fields)

    @property
    def recipe(self) -> Recipe:
        """How the states were computed that it was made on."""
        return Recipe(self.device, self.dtype, self.attention)

    @property
    def head(self) -> Head:
        return _head(self.head_kind, len(self.models), self.encoder.hidden_size)

    @property
    def head_vector(self) -> Float32Vector:
        """The head's numbers, float32 [head.size]."""
        return self.vector[self.svf_size :]

    @property
    def model_mask(self) -> tuple[bool, ...]:
        """True for every model that may be chosen; empty when all may."""
        return _mask(self.models, self.barred)

    @property
    def role_mask(self) -> tuple[bool, ...]:
        """True for every role that may be chosen; empty when all may."""
        return _mask(self.roles, self.barred)

    @property
    def parts(self) -> str:
        """What the vector holds: "head" or "head+svf"."""
        return "head+svf" if self.svf_layout else "head"

    @property
    def svf_offsets(self) -> Float32Vector:
        """SVF offsets, float32 [svf_size]; 0 leaves the encoder as it is."""
        return self.vector[: self.svf_size]

    @property
    def svf_size(self) -> int:
        """How many numbers of the vector are SVF offsets."""
        return sum(count for _, count in self.svf_layout)

    def to_config(self) -> dict[str, Any]:
        """Everything but the numbers, ready for JSON, with the id and the weights' digest."""
        return {"format": _FORMAT, "version": _VERSION, "id": self.id, **self._described()}

    def to_bytes(self) -> bytes:
        """The numbers as safetensors: the head's arrays as `head.NAME`, `svf.offsets` if there are any."""
        arrays = self.head.arrays(self.head_vector)
        tensors = {f"head.{name}": np.ascontiguousarray(array) for name, array in arrays.items()}
        if self.svf_layout:
            tensors["svf.offsets"] = np.ascontiguousarray(self.svf_offsets)
        return save_safetensors(cast("dict[str, np.ndarray[Any, Any]]", tensors))

    @classmethod
    def from_bytes(cls, config: Mapping[str, Any], weights: bytes) -> Checkpoint:
        """Inverse of `to_config` and `to_bytes`. Raises CheckpointError for anything damaged."""
        if config.get("format") != _FORMAT:
            raise CheckpointError("This is not a Trinity checkpoint: its config does not say so.")
        if config.get("version") != _VERSION:
            raise CheckpointError(
                f"This checkpoint has format version {config.get('version')!r} and only {_VERSION} can be read: "
                "install the version of Trinity Inspector that wrote it."
            )
        if hashlib.sha256(weights).hexdigest() != config.get("weights_sha256"):
            raise CheckpointError(
                "The checkpoint's weights do not match the digest in its config: a file is damaged."
            )
        from pydantic import ValidationError

        try:
            found = dict(_config_model().model_validate(config))
            checkpoint = cls(_join(load_safetensors(weights), found), **found)
        except SafetensorError as error:
            raise CheckpointError(
                f"The checkpoint's weights are no readable safetensors: {error}."
            ) from error
        except ValidationError as error:
            mistake = error.errors(include_url=False)[0]
            entry = ".".join(map(str, mistake["loc"]))
            raise CheckpointError(
                f"The checkpoint's config is damaged: {entry}, {mistake['msg']}."
            ) from error
        if checkpoint.id != config.get("id"):
            raise CheckpointError(
                f"The checkpoint calls itself {config.get('id')!r} but its content is {checkpoint.id}: "
                "its config was changed."
            )
        return checkpoint

    def _described(self) -> dict[str, Any]:
        described = {
            "models": list(self.models),
            "roles": list(self.roles),
            "encoder": asdict(self.encoder),
            "input_format": self.input_format,
            "token_position": self.token_position,
            "head": self.head_kind,
            "svf_layout": [list(block) for block in self.svf_layout],
            "svf_dead": list(self.svf_dead),
            "dtype": self.dtype,
            "protocol": self.protocol.value,
            "generation": self.generation,
            "parent_run": self.parent_run,
            "kind": self.kind,
            "notes": self.notes,
            "weights_sha256": hashlib.sha256(self.to_bytes()).hexdigest(),
        }
        optional = {"barred": list(self.barred), "device": self.device, "attention": self.attention}
        usual = {"barred": [], "device": "cpu", "attention": "sdpa"}
        return described | {key: value for key, value in optional.items() if value != usual[key]}


def save_checkpoint(checkpoint: Checkpoint, folder: str | Path) -> Path:
    """Write the folder so that a crash leaves either nothing or the whole checkpoint; returns the folder.

    Saving the same checkpoint again changes nothing; anything else in its place is refused."""
    folder = Path(folder).absolute()  # so that "." has a name

    def write(draft: Path) -> None:
        (draft / CONFIG_FILE).write_text(json.dumps(checkpoint.to_config(), indent=2) + "\n", "utf-8")
        (draft / WEIGHTS_FILE).write_bytes(checkpoint.to_bytes())

    return write_folder(folder, "checkpoint", write, lambda: load_checkpoint(folder) == checkpoint)


def write_folder(
    folder: Path, what: str, write: Callable[[Path], None], is_written: Callable[[], bool]
) -> Path:
    """Have a folder's files written into a draft, which then takes its place, so that a crash leaves either nothing or
    all of it. Where `is_written` says so it is there already; anything else in its place is refused. `what` is written
    is said in a CheckpointError."""
    draft = folder.with_name(f".{folder.name}.draft")
    try:
        if folder.is_file():
            raise CheckpointError(f"{folder} is a file; name a new folder.")
        if folder.exists() and any(folder.iterdir()):
            with suppress(CheckpointError):
                if is_written():
                    return folder
            raise CheckpointError(f"{folder} holds another {what} or other files; name a new folder.")
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(draft, ignore_errors=True)  # left behind by a crash
        draft.mkdir()
        try:
            write(draft)
            for path in (*draft.iterdir(), draft):
                _sync(path)
            draft.rename(folder)
        except BaseException:  # Ctrl-C too
            shutil.rmtree(draft, ignore_errors=True)
            raise
        _sync(folder.parent)
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        raise CheckpointError(
            f"The {what} cannot be written to {folder}: {error.strerror or error}{where}."
        ) from error
    return folder


def load_checkpoint(folder: str | Path) -> Checkpoint:
    """Read a checkpoint folder. Raises CheckpointError naming what is missing, damaged or contradictory."""
    folder = Path(folder)
    if not folder.is_dir():
        raise CheckpointError(f"There is no checkpoint folder at {folder}.")
    try:
        text = (folder / CONFIG_FILE).read_bytes()
        weights = (folder / WEIGHTS_FILE).read_bytes()
    except FileNotFoundError as error:
        raise CheckpointError(f"The checkpoint {folder} has no {Path(str(error.filename)).name}.") from error
    except OSError as error:
        raise CheckpointError(f"The checkpoint {folder} cannot be read: {error.strerror}.") from error
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"The {CONFIG_FILE} of {folder} is damaged: it is no readable JSON.") from error
    if not isinstance(config, dict) or not text.endswith(b"}\n"):
        raise CheckpointError(
            f"The {CONFIG_FILE} of {folder} is damaged: it ends too early or is not a JSON object."
        )
    return Checkpoint.from_bytes(config, weights)


def _check(checkpoint: Checkpoint) -> None:
    """Refuse a checkpoint whose parts contradict each other, in one sentence."""
    slots, roles, width = checkpoint.models, checkpoint.roles, checkpoint.encoder.hidden_size
    if not slots or len(set(slots)) != len(slots) or not all(slots):
        raise CheckpointError(f"A checkpoint needs named, distinct pool slots; this one has {list(slots)}.")
    if roles != tuple(role.value for role in ROLE_ORDER):
        raise CheckpointError(
            f"This version knows the role order {', '.join(ROLE_ORDER)} only, not {', '.join(roles)}."
        )
    if checkpoint.input_format not in get_args(InputFormat):
        raise CheckpointError(
            f"The input format must be one of {', '.join(get_args(InputFormat))}, not {checkpoint.input_format!r}."
        )
    if checkpoint.dtype not in get_args(Dtype):
        raise CheckpointError(
            f"The dtype must be one of {', '.join(get_args(Dtype))}, not {checkpoint.dtype!r}."
        )
    if checkpoint.token_position >= 0:
        raise CheckpointError(
            f"The token position counts from the end (-1, -2, ...); it cannot be {checkpoint.token_position}."
        )
    unknown = [name for name in checkpoint.barred if name not in (*slots, *roles)]
    if unknown:
        raise CheckpointError(
            f"There is no model or role '{unknown[0]}' to leave out: choose among {', '.join((*slots, *roles))}."
        )
    if not all(any(mask) for mask in (checkpoint.model_mask, checkpoint.role_mask) if mask):
        raise CheckpointError("Every model or every role is left out: keep at least one of each.")
    if width < 1 or any(count < 1 for _, count in checkpoint.svf_layout):
        raise CheckpointError("The hidden size and every SVF block must be at least 1 number wide.")
    head = checkpoint.head
    expected = checkpoint.svf_size + head.size
    if checkpoint.vector.shape != (expected,):
        raise CheckpointError(
            f"The vector has shape {checkpoint.vector.shape} but {checkpoint.svf_size} SVF offsets and a "
            f"{checkpoint.head_kind} head of {head.rows} logits over {width} numbers need ({expected},)."
        )
    if not np.isfinite(checkpoint.vector).all():
        raise CheckpointError("The vector holds numbers that are not finite.")


@cache
def _config_model() -> type[BaseModel]:
    """All of a config that a checkpoint is made from, as it is read; what must fit together is checked later."""
    from pydantic import Field

    names = [one.name for one in fields(Checkpoint) if one.name not in ("vector", "id", "head_kind")]
    own = {"head_kind": (str, Field(alias="head")), "input_format": (str, ...), "dtype": (str, ...)}
    required = {name: (hint, ...) for name, hint in get_type_hints(Checkpoint).items() if name in names}
    for name in ("barred", "device", "attention"):  # left out of a file where they are the usual
        del required[name]
    return model_of(Checkpoint, names, strict=False, extra="ignore", **{**required, **own})


def _join(tensors: Mapping[str, NDArray[Any]], config: Mapping[str, Any]) -> Float32Vector:
    """The flat vector from the named tensors, shapes checked against the config's fields."""
    head = _head(config["head_kind"], len(config["models"]), config["encoder"].hidden_size)
    expected = {f"head.{name}": shape for name, shape in head.shapes.items()}
    if config["svf_layout"]:
        expected = {"svf.offsets": (sum(count for _, count in config["svf_layout"]),), **expected}
    found = {name: tensor.shape for name, tensor in tensors.items()}
    if found != expected or any(tensor.dtype != np.float32 for tensor in tensors.values()):
        raise CheckpointError(
            f"The checkpoint's weights are {found} but its config needs float32 tensors {expected}."
        )
    return np.concatenate([tensors[name].reshape(-1) for name in expected])


def _head(kind: str, n_models: int, hidden_size: int) -> Head:
    try:
        return head_of(kind, n_models, hidden_size)
    except ConfigError as error:
        raise CheckpointError(str(error)) from error


def _mask(names: Sequence[str], barred: Sequence[str]) -> tuple[bool, ...]:
    mask = tuple(name not in barred for name in names)
    return () if all(mask) else mask


def _sync(path: Path) -> None:
    """Make a file, or a folder's entries, durable; only POSIX has a call for folders."""
    if path.is_dir() and os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


#: What must be the same for two checkpoints to read the same state from a transcript.
_READING = ("input_format", "token_position", "dtype", "device", "attention", "protocol")


def same_reading(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """Whether two checkpoints' configs name one encoder, read in one way; what SVF changes in it is not looked at."""
    one, other = ours.get("encoder", {}), theirs.get("encoder", {})
    name = "digest" if one.get("digest") and other.get("digest") else "name"
    same = one.get(name) == other.get(name) and one.get("hidden_size") == other.get("hidden_size")
    return same and all(ours.get(key) == theirs.get(key) for key in _READING)


def same_slots(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """Whether two checkpoints choose among the same models in the same order."""
    return list(ours.get("models", [])) == list(theirs.get("models", []))


def reads_alike(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> bool:
    """Whether a state that was read under one checkpoint's config is the one that the other's head would get."""
    plain = not ours.get("svf_layout") and not theirs.get("svf_layout")
    return plain and same_reading(ours, theirs) and same_slots(ours, theirs)
