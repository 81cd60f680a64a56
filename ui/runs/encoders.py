"""Which encoders there are: the pocket one, those that were added, those of checkpoints, and those that can be added;
and what one of them is like on this machine."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from core.analysis.separability import Accuracy, accuracy, separability_index
from core.checkpoint import EncoderIdentity, InputFormat
from core.episode import Decide, Transcript
from core.errors import CheckpointError
from core.settings import POCKET_POOL
from core.tokens.shelf import OFFERS, Shelved, on_shelf, shelved
from storage.store import Store
from ui.runs import wiring
from ui.runs.questions import Questions, as_states, read

if TYPE_CHECKING:
    from core.coordinator.encoder import Encoder

State = Literal["here", "missing", "can be added"]

_POCKET = Shelved(POCKET_POOL, "comes with Trinity Inspector", "", "MIT", POCKET_POOL)


@dataclass(frozen=True, slots=True)
class Listed:
    """An encoder as a list shows it. `name` is what --encoder takes, `place` where it lies or what it is loaded by;
    `checkpoints` are those of the store that read with it. `megabytes` are those of its files, or of its download;
    unknown: None."""

    name: str
    state: State
    origin: str
    place: str = ""
    licence: str = ""
    parameters: int | None = None
    megabytes: float | None = None
    checkpoints: tuple[str, ...] = ()


def listed(store: Store, data_folder: Path) -> list[Listed]:
    """All encoders that are known here: that of the pocket world first, then those added, those of checkpoints, and
    what can be added. Nothing is loaded or fetched."""
    used = _used(store)

    def here(one: Shelved) -> Listed:
        pocket = one.name == POCKET_POOL
        theirs = [own for own in used if (own.name == POCKET_POOL if pocket else own.digest == one.digest)]
        checkpoints = tuple(checkpoint for own in theirs for checkpoint in used.pop(own))
        parameters, megabytes = _size(one.source)
        state: State = "missing" if parameters is None else "here"
        return Listed(
            one.name, state, one.origin, one.source, one.licence, parameters, megabytes, checkpoints
        )

    found = [here(one) for one in (_POCKET, *shelved(data_folder))]
    found += [_of_checkpoints(store, *one, data_folder) for one in used.items()]
    taken = {one.name for one in found if one.origin}
    found += [
        Listed(one.name, "can be added", one.title, "", one.licence, None, float(one.megabytes))
        for one in OFFERS.values()
        if one.name not in taken
    ]
    return found


def used_by(store: Store, one: Shelved) -> list[str]:
    """The store's checkpoints that read with an encoder that was added."""
    return [
        checkpoint
        for identity, checkpoints in _used(store).items()
        if identity.digest == one.digest
        for checkpoint in checkpoints
    ]


def _used(store: Store) -> dict[EncoderIdentity, list[str]]:
    """The encoders of the store's coordinators, each with their ids."""
    used: dict[EncoderIdentity, list[str]] = {}
    for one in store.checkpoints.list():
        encoder = one.config.get("encoder")
        if isinstance(encoder, dict):
            identity = EncoderIdentity(
                **{key: encoder[key] for key in EncoderIdentity.__slots__ if key in encoder}
            )
            used.setdefault(identity, []).append(one.id)
    return used


def _of_checkpoints(
    store: Store, identity: EncoderIdentity, checkpoints: Sequence[str], data_folder: Path
) -> Listed:
    origin = f"checkpoints read with it, such as {checkpoints[0]}"
    try:
        place = wiring.encoder_place(store.checkpoints.load(checkpoints[0]), store, data_folder)
    except CheckpointError:
        return Listed(identity.name, "missing", origin, checkpoints=tuple(checkpoints))
    parameters, megabytes = _size(place, identity.revision)
    state: State = "missing" if parameters is None else "here"
    return Listed(place, state, origin, place, "", parameters, megabytes, tuple(checkpoints))


def _size(place: str, revision: str = "") -> tuple[int | None, float | None]:
    """Numbers and megabytes of an encoder's weights, by their files alone; None where these are not here."""
    from core.tokens.files import encoder_bytes, encoder_size

    try:
        return encoder_size(place, revision), encoder_bytes(place, revision) / 1e6
    except CheckpointError:
        return None, None


# What one is like


@dataclass(frozen=True, slots=True)
class Measured:
    """What an encoder is like on this machine. `reads` says how it reads and why, `kept_dtype` in which format its
    files hold their numbers, `dtype` in which it computes. The `tasks` questions have `tokens` in all; `accuracy` is
    how well an SVM reads their families off their hidden states, `index` the share of the variance that lies between
    families, both None where there are no two families."""

    name: str
    origin: str
    place: str
    licence: str
    parameters: int
    megabytes: float
    kept_dtype: str
    dtype: str
    device: str
    hidden_size: int
    layers: int
    window: int
    input_format: InputFormat
    in_parts: bool
    reads: str
    load_s: float
    tasks: int
    tokens: int
    tokens_per_s: float
    accuracy: Accuracy | None
    index: float | None


def measure(data_folder: Path, name: str, questions: Questions) -> Iterator[int | Measured]:
    """Load an encoder and have it read these questions: how many are read, and last what was found.

    CheckpointError where it cannot be loaded."""
    import core.coordinator.encoder  # noqa: F401 - its libraries are no part of the time that loading takes
    from core.tokens.files import encoder_bytes, encoder_size

    began = time.monotonic()
    encoder = wiring.loaded_encoder(name)
    load_s = time.monotonic() - began
    states = list[NDArray[np.float32]]()
    for state in read(encoder, questions):
        states.append(state)
        yield len(states)
    points = as_states(questions, states).points
    asked = [Decide(Transcript(text), 0, "") for text in questions.texts]
    place = wiring.encoder_source(name)
    known = _POCKET if name == POCKET_POOL else on_shelf(data_folder, name)
    revision = encoder.identity.revision
    yield Measured(
        name=name,
        origin=known.origin if known else "",
        place=str(encoder.folder or place),
        licence=known.licence if known else "",
        parameters=encoder_size(place, revision),
        megabytes=encoder_bytes(place, revision) / 1e6,
        kept_dtype=_kept_dtype(encoder.folder),
        dtype=encoder.dtype,
        device=encoder.device,
        hidden_size=encoder.hidden_size,
        layers=int(encoder.model.config.num_hidden_layers),
        window=encoder.tokens.max_tokens,
        input_format=encoder.input_format,
        in_parts=encoder.in_parts,
        reads=_reading_words(encoder),
        load_s=load_s,
        tasks=len(asked),
        tokens=sum(len(encoder.tokens.prompt(one, encoder.input_format).ids) for one in asked),
        tokens_per_s=encoder.tokens_per_s(),
        accuracy=accuracy(points, "task", "hidden"),
        index=separability_index(points, "task", "hidden"),
    )


def _reading_words(encoder: Encoder) -> str:
    """How it reads a conversation that goes on, and why."""
    if encoder.in_parts:
        return "part by part: what was read once is remembered"
    if encoder.device != "cpu":
        return f"whole, in batches: it is on the {encoder.device.upper()}"
    if not encoder.keeps_states:
        return "whole, in batches: it is small, and quicker so"
    return "whole: its layers remember more of what was read than its keys and values"


def _kept_dtype(folder: Path | None) -> str:
    """The number format of a folder's weights, as its config says; "" where it does not."""
    try:
        config = json.loads((Path(str(folder)) / "config.json").read_text("utf-8"))
        return str(config.get("dtype") or config.get("torch_dtype") or "")
    except (OSError, ValueError, AttributeError):
        return ""
