"""Saved views: lists of episodes kept under a name, each as the address of its page."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlalchemy import Engine, delete, insert, select, update

from core.errors import StoreError
from core.ids import view_id
from storage.rows.engine import fetch_mapping, fetch_mappings, writing
from storage.rows.mapping import Rows
from storage.rows.schema import view
from storage.rows.summaries import SavedView

LONGEST_NAME = 80
_LONGEST_QUERY = 200_000  # characters: some thousands of episode ids


@dataclass(frozen=True)
class Views:
    """The saved views of a store (`store.views`)."""

    engine: Engine
    now: Callable[[], float]

    def add(self, name: str, query: Mapping[str, str]) -> SavedView:
        """Keep a page's query parameters under a name. StoreError for an empty or overlong name."""
        named, at = _named(name), self.now()
        body = json.dumps(dict(query), ensure_ascii=False)
        if len(body) > _LONGEST_QUERY:
            raise StoreError("This list is too long to be kept: choose fewer episodes.")
        saved = SavedView(view_id(int(at), secrets.token_bytes(8)), named, dict(query), at)
        with writing(self.engine) as connection:
            connection.execute(insert(view).values(id=saved.id, name=named, query=body, created=at))
        return saved

    def list(self, limit: int | None = None) -> list[SavedView]:
        """The views, newest first."""
        query = select(view).order_by(view.c.created.desc(), view.c.id.desc()).limit(limit)
        return [_saved(row) for row in fetch_mappings(self.engine, query)]

    def get(self, view_id: str) -> SavedView:
        """One view; StoreError when there is none of this id."""
        row = fetch_mapping(self.engine, select(view).where(view.c.id == view_id))
        if row is None:
            raise _unknown(view_id)
        return _saved(row)

    def rename(self, view_id: str, name: str) -> None:
        """Give a view another name. StoreError when there is none of this id, or the name cannot be one."""
        change = update(view).where(view.c.id == view_id).values(name=_named(name))
        with writing(self.engine) as connection:
            if not connection.execute(change).rowcount:
                raise _unknown(view_id)

    def delete(self, view_id: str) -> None:
        """Forget a view; its episodes stay. StoreError when there is none of this id."""
        with writing(self.engine) as connection:
            if not connection.execute(delete(view).where(view.c.id == view_id)).rowcount:
                raise _unknown(view_id)


def _named(name: str) -> str:
    words = " ".join(name.split())
    if not words or len(words) > LONGEST_NAME or not words.isprintable():
        raise StoreError(f"A view needs a name of 1 to {LONGEST_NAME} visible characters.")
    return words


def _unknown(view_id: str) -> StoreError:
    return StoreError(f"The store holds no saved view {view_id[:40]}: it may have been deleted.")


def _saved(row: Rows) -> SavedView:
    query = {str(name): str(value) for name, value in json.loads(row["query"]).items()}
    return SavedView(row["id"], row["name"], query, row["created"])
