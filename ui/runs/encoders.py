"""Where the folders of one's own encoders lie on this machine: a checkpoint names its encoder, and no place of it."""

from __future__ import annotations

import json
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from core.checkpoint import Checkpoint
from core.errors import CheckpointError, StoreError
from core.settings import POCKET_POOL
from storage.files.atomic import atomic_file
from storage.store import Store

if TYPE_CHECKING:
    from core.coordinator.encoder import Encoder

log = logging.getLogger(__name__)

#: Beside the user's store: the folder of each encoder by the digest of its weights.
FILE = "encoders.json"


def remember_encoder(encoder: Encoder, data_folder: Path) -> Encoder:
    """The encoder; where its folder lies is kept for checkpoints of it, if the data folder can be written."""
    known, identity = _known(data_folder), encoder.identity
    own = encoder.folder is not None and not identity.revision and identity.name != POCKET_POOL
    if own and known.get(identity.digest) != (place := str(Path(str(encoder.folder)).resolve())):
        try:
            data_folder.mkdir(parents=True, exist_ok=True)
            with atomic_file(data_folder / FILE) as draft:
                draft.write_text(json.dumps({**known, identity.digest: place}, indent=1), "utf-8")
        except (OSError, StoreError) as error:
            log.warning("Where the encoder lies will be asked for again: %s", error)
    return encoder


def encoder_place(checkpoint: Checkpoint, store: Store | None, data_folder: Path) -> str:
    """By what a checkpoint's encoder is loaded here: "pocket", a hub id, or the folder from which it was loaded before
    or which its evolution names. CheckpointError where a folder is not known."""
    encoder = checkpoint.encoder
    if encoder.revision or encoder.name == POCKET_POOL:
        return encoder.name
    places: list[object] = [_known(data_folder).get(encoder.digest)]
    if store is not None:
        with suppress(StoreError):  # it may have come without its evolution
            places.append(store.runs.get(checkpoint.parent_run).config.get("encoder"))
    for place in (*places, encoder.name):
        if isinstance(place, str) and os.path.isdir(place):
            return place
    raise CheckpointError(
        f"The encoder '{encoder.name}' of checkpoint {checkpoint.id} is a folder that is not known on "
        "this machine: give its path by --encoder or TRINITY_ENCODER."
    )


def _known(data_folder: Path) -> dict[str, str]:
    try:
        found = json.loads((data_folder / FILE).read_text("utf-8"))
    except (OSError, ValueError):  # never written, or damaged: the next load mends it
        return {}
    return found if isinstance(found, dict) else {}
