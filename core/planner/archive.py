"""A planner's folder as one zip archive, as a store keeps it (no torch)."""

from __future__ import annotations

import io
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from core.errors import CheckpointError

#: The largest planner that is kept in a row, in bytes; a larger one stays a folder.
MOST_BYTES = 64 * 2**20
_MOST_FILES = 50
#: The earliest time that an archive can tell: the same folder gives the same bytes.
_TIME = (1980, 1, 1, 0, 0, 0)


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
