"""The pages of several episodes as one zip: a list that leads to them, and a file each. Opens from disk."""

from __future__ import annotations

import zipfile
from pathlib import Path

from core.errors import StoreError
from storage.drafts import drafted
from storage.engine import reading
from storage.selection import Selection, count, ids_of, summaries
from storage.store import Store
from ui.export.page import episode_page, index_page, pair_page
from ui.export.played import read_played

#: More pages than this in one zip are refused: nobody opens them, and JSON Lines holds more in less room.
MOST_PAGES = 1000


def export_page(store: Store, episode_id: str, path: str | Path) -> None:
    """Write one episode's page; StoreError when there is no such episode or the place cannot be written."""
    page = episode_page(read_played(store, episode_id))
    with drafted(Path(path)) as draft:
        draft.write_text(page, encoding="utf-8")


def export_pair(store: Store, a: str, b: str, path: str | Path) -> None:
    """Write the page of two episodes side by side; StoreError as above."""
    page = pair_page(read_played(store, a), read_played(store, b))
    with drafted(Path(path)) as draft:
        draft.write_text(page, encoding="utf-8")


def export_pages(store: Store, selection: Selection, path: str | Path) -> int:
    """Write a zip with `index.html` and a page per episode, one episode in memory at a time; returns how
    many. The same store gives the same bytes."""
    if count(store, selection, MOST_PAGES).capped:
        raise StoreError(
            f"These are more than {MOST_PAGES:,} pages: narrow the selection, or use JSON Lines."
        )
    with reading(store.engine) as connection:
        ids_of(connection, selection)
    listed = list(summaries(store, selection))
    with drafted(Path(path)) as draft, zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as bundle:
        words = f"{len(listed):,} {'episode' if len(listed) == 1 else 'episodes'}"
        _add(bundle, "index.html", index_page(listed, words))
        for one in listed:
            _add(bundle, f"{one.id}.html", episode_page(read_played(store, one.id)))
    return len(listed)


def _add(bundle: zipfile.ZipFile, name: str, page: str) -> None:
    entry = zipfile.ZipInfo(name)  # no clock in it
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    bundle.writestr(entry, page.encode())
