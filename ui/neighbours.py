"""The episodes before and after one in the list its reader came from, or else in its own run and policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import streamlit as st

from storage.filters import EpisodeFilter
from storage.store import Store
from storage.summaries import EpisodeSummary, Order

#: Lists are remembered this far and this long; beyond, stepping falls back to the run.
_REACH, _PAGE, _KEEP_S = 400, 100, 60


def neighbours(
    store: Store, summary: EpisodeSummary, query: Mapping[str, str]
) -> tuple[str | None, str | None]:
    """(previous, next) episode ids; None at an end. `query` is the list's address, empty for all of them."""
    listed = _listed(store, store.url, tuple(sorted(query.items())))
    if summary.id not in listed:
        listed = _of_run(store, store.url, summary.run_id, summary.policy)
    if summary.id not in listed:
        return None, None
    at = listed.index(summary.id)
    return (listed[at - 1] if at else None), (listed[at + 1] if at + 1 < len(listed) else None)


@st.cache_resource(max_entries=32, ttl=_KEEP_S, show_spinner=False)
def _listed(_store: Store, url: str, query: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """The ids of a filtered list from its top, as far as _REACH."""
    wanted = dict(query)
    where = EpisodeFilter.from_query(wanted)
    order: Order = next((known for known in get_args(Order) if known == wanted.get("order")), "newest")
    ids: list[str] = []
    after: str | None = None
    while len(ids) < _REACH:
        page = _store.episodes.page(where, order=order, after=after, limit=_PAGE)
        ids += [item.id for item in page.items]
        after = page.next
        if after is None:
            break
    return tuple(ids)


@st.cache_resource(max_entries=32, ttl=_KEEP_S, show_spinner=False)
def _of_run(_store: Store, url: str, run_id: str, policy: str) -> tuple[str, ...]:
    return tuple(item.id for item in _store.episodes.of_run(run_id, policy))
