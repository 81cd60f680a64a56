"""Several files as one zip: the pages of episodes with a list that leads to them, or the tables of a Parquet export."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from core.errors import StoreError
from storage.files.atomic import atomic_file
from storage.files.parquet import ROW_KINDS, export_parquet
from storage.files.selection import Selection, count_episodes, last_count, selected_ids, stream_summaries
from storage.rows.engine import reading
from storage.store import Store
from ui.export.page import episode_page, index_page, pair_page
from ui.export.played import read_played

#: More pages than this in one zip are refused: nobody opens them, and JSON Lines holds more in less room.
MOST_PAGES = 1000


def export_page(store: Store, episode_id: str, path: str | Path) -> None:
    """Write one episode's page; StoreError when there is no such episode or the place cannot be written."""
    page = episode_page(read_played(store, episode_id))
    with atomic_file(Path(path)) as draft:
        draft.write_text(page, encoding="utf-8")


def export_pair(store: Store, a: str, b: str, path: str | Path) -> None:
    """Write the page of two episodes side by side; StoreError as for one."""
    page = pair_page(read_played(store, a), read_played(store, b))
    with atomic_file(Path(path)) as draft:
        draft.write_text(page, encoding="utf-8")


def export_pages(store: Store, selection: Selection, path: str | Path) -> int:
    """Write a zip with `index.html` and a page per episode, one episode in memory at a time; returns how
    many. The same store gives the same bytes."""
    return last_count(write_pages(store, selection, path), 0)


def write_pages(store: Store, selection: Selection, path: str | Path) -> Iterator[int]:
    """`export_pages` step by step: how many pages are written, after each of them."""
    if count_episodes(store, selection, MOST_PAGES).capped:
        raise StoreError(
            f"These are more than {MOST_PAGES:,} pages: narrow the selection, or use JSON Lines."
        )
    with reading(store.engine) as connection:
        selected_ids(connection, selection)
    listed = list(stream_summaries(store, selection))
    with atomic_file(Path(path)) as draft, zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as bundle:
        words = f"{len(listed):,} {'episode' if len(listed) == 1 else 'episodes'}"
        _add(bundle, "index.html", index_page(listed, words))
        for total, one in enumerate(listed, start=1):
            _add(bundle, f"{one.id}.html", episode_page(read_played(store, one.id)))
            yield total


def export_tables(store: Store, selection: Selection, path: str | Path) -> int:
    """Write a zip with a Parquet file for each kind of row; returns how many. StoreError when it cannot be written."""
    with atomic_file(Path(path)) as draft, zipfile.ZipFile(draft, "w", zipfile.ZIP_STORED) as bundle:
        for name in ROW_KINDS:
            with TemporaryDirectory() as folder:
                table = Path(folder) / f"{name}.parquet"
                export_parquet(store, selection, table, name)
                with (
                    table.open("rb") as source,
                    bundle.open(_entry(table.name), "w", force_zip64=True) as target,
                ):
                    shutil.copyfileobj(source, target)
    return len(ROW_KINDS)


def _add(bundle: zipfile.ZipFile, name: str, page: str) -> None:
    entry = _entry(name)
    entry.compress_type = zipfile.ZIP_DEFLATED
    bundle.writestr(entry, page.encode())


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name)  # no clock in it
    entry.external_attr = 0o644 << 16
    return entry
