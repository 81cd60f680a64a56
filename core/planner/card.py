"""What a planner's checkpoint says about itself, the file `conductor.json` beside its weights; and its folder as one
zip archive, as a store keeps it (no torch).

format, version   "trinity-conductor", 2; in version 1 the short form named the models first
id                `c` and ten characters, fixed by everything below
models            names of the pool's models in order: what the numbers that it writes stand for
mode              the form of its access lists: binary, choose_id, choose_position, auto
most_steps        the most steps that it writes
most_tokens       the most tokens of a reply
shown             what it is shown: short, ids, names
temperature       at which it samples; 0: always the most likely token
constrained       whether it can write nothing but lists that can be read
kind              start, warm-up or trained
parent_run        the run that made it; empty where none is known
iteration         after how many iterations of reinforcement learning
notes             free text
weights_sha256    over every tensor and the tokenizer
"""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.errors import CheckpointError
from core.ids import checkpoint_id
from core.planner.forms import Shown
from core.workflow import MOST_STEPS, AccessMode

CARD_FILE = "conductor.json"
FORMAT = "trinity-conductor"
VERSION = 2

#: The largest planner that is kept in a row, in bytes; a larger one stays a folder.
MOST_BYTES = 64 * 2**20
_MOST_FILES = 50
#: The earliest time that an archive can tell: the same folder gives the same bytes.
_TIME = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class PlannerCard:
    """The fields of `conductor.json`; equal where their ids are."""

    models: tuple[str, ...]
    weights_sha256: str
    mode: AccessMode = AccessMode.CHOOSE_POSITION
    most_steps: int = MOST_STEPS
    most_tokens: int = 96
    shown: Shown = Shown.SHORT
    temperature: float = 1.0
    constrained: bool = False
    kind: str = "start"
    parent_run: str = ""
    iteration: int = 0
    notes: str = ""
    id: str = field(init=False)

    def __post_init__(self) -> None:
        _check(self)
        object.__setattr__(self, "id", checkpoint_id(json.dumps(self._described(), sort_keys=True)))

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON, with format, version and id."""
        return {"format": FORMAT, "version": VERSION, "id": self.id, **self._described()}

    @classmethod
    def of(cls, stored: object) -> PlannerCard:
        """Inverse of `to_json`. CheckpointError for anything damaged or foreign."""
        if not isinstance(stored, Mapping) or stored.get("format") != FORMAT:
            raise CheckpointError(f"This is not a planner's checkpoint: its {CARD_FILE} does not say so.")
        if (version := stored.get("version")) != VERSION:
            raise CheckpointError(f"This planner has format version {version!r}; only {VERSION} can be read.")
        try:
            card = cls(**{name: kind(stored[name]) for name, kind in _KINDS.items()})
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"The planner's {CARD_FILE} is damaged: {type(error).__name__} {error}."
            ) from error
        if card.id != stored.get("id"):
            raise CheckpointError(
                f"The planner calls itself {stored.get('id')!r} but its content is {card.id}: its {CARD_FILE} was "
                "changed."
            )
        return card

    def check_pool(self, models: tuple[str, ...]) -> None:
        """CheckpointError where a pool has other models, or the same ones in another order: the numbers that the
        planner writes stand for its own list. A pool with some of them left out is told to it at every request."""
        if models != self.models:
            raise CheckpointError(
                f"Planner {self.id} was made for the models {', '.join(self.models)} in this order, and this pool has "
                f"{', '.join(models) or 'none'}: use the pool that it was made for, and leave models out of it instead."
            )

    def _described(self) -> dict[str, Any]:
        found = {name: getattr(self, name) for name in self.__slots__ if name not in ("id", "weights_sha256")}
        return {**found, "models": list(self.models), "weights_sha256": self.weights_sha256}


#: What the fields of a card are read as.
_KINDS: Mapping[str, Callable[[Any], Any]] = {
    "models": lambda names: tuple(map(str, names)),
    "mode": AccessMode,
    "shown": Shown,
    **dict.fromkeys(("most_steps", "most_tokens", "iteration"), int),
    **dict.fromkeys(("kind", "parent_run", "notes", "weights_sha256"), str),
    "temperature": float,
    "constrained": bool,
}


def read_card(folder: Path) -> PlannerCard:
    """The card in a planner's folder. CheckpointError where there is none that can be read."""
    if not folder.is_dir():
        raise CheckpointError(f"There is no planner's folder at {folder}.")
    try:
        stored = json.loads((folder / CARD_FILE).read_text("utf-8"))
    except OSError as error:
        raise CheckpointError(f"The planner at {folder} has no {CARD_FILE} that can be read.") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"The {CARD_FILE} of {folder} is damaged: it is no readable JSON.") from error
    return PlannerCard.of(stored)


def _check(card: PlannerCard) -> None:
    """Refuse a card whose parts cannot be used, in one sentence."""
    if not card.models or len(set(card.models)) != len(card.models) or not all(card.models):
        raise CheckpointError(f"A planner needs named, distinct models; this one has {list(card.models)}.")
    if not 1 <= card.most_steps <= MOST_STEPS:
        raise CheckpointError(f"A planner writes 1 to {MOST_STEPS} steps, not {card.most_steps}.")
    if card.most_tokens < 1 or card.iteration < 0:
        raise CheckpointError("A planner writes at least 1 token, and its iteration is not below 0.")
    if not 0 <= card.temperature < float("inf"):
        raise CheckpointError(f"A planner's temperature is 0 or more, not {card.temperature}.")
    if card.shown is Shown.SHORT and card.mode is not AccessMode.CHOOSE_POSITION:
        raise CheckpointError("A planner of the short form writes positions: its mode is choose_position.")


def pack(folder: Path) -> bytes:
    """The files of a folder, without folders in it; the same files give the same bytes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.iterdir()):
            archive.writestr(zipfile.ZipInfo(path.name, _TIME), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def check_archive(packed: bytes) -> None:
    """CheckpointError for what is no archive of a planner's files, or unpacks to more than one has."""
    with _opened(packed):
        pass


@contextmanager
def unpacked(packed: bytes) -> Iterator[Path]:
    """A folder with the archive's files, for as long as it is needed. CheckpointError as in `check_archive`."""
    with _opened(packed) as archive, tempfile.TemporaryDirectory() as place:
        for info in archive.infolist():
            (Path(place) / info.filename).write_bytes(archive.read(info))
        yield Path(place)


@contextmanager
def _opened(packed: bytes) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            infos = archive.infolist()
            plain = all(Path(info.filename).name == info.filename and not info.is_dir() for info in infos)
            if (
                not plain
                or len(infos) > _MOST_FILES
                or sum(info.file_size for info in infos) > 2 * MOST_BYTES
            ):
                raise CheckpointError(
                    "The planner's archive holds files that are not a planner's, so it cannot be used."
                )
            yield archive
    except (zipfile.BadZipFile, NotImplementedError, ValueError, EOFError) as error:
        raise CheckpointError(f"A planner's archive is damaged: {type(error).__name__}.") from error
