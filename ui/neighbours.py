"""The episodes before and after one in the list its reader came from, or else in its own run and policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import streamlit as st

from core.errors import StoreError
from storage.expression import ExpressionError
from storage.filters import EpisodeFilter
from storage.store import Store
from storage.summaries import EpisodeSummary, Order
from ui.saved_views import asked, named_view


def order_of(query: Mapping[str, str]) -> Order:
    """The order that a list's address asks for, newest first unless it is a known one."""
    return next((known for known in get_args(Order) if known == query.get("order")), "newest")


def neighbours(
    store: Store, summary: EpisodeSummary, query: Mapping[str, str]
) -> tuple[str | None, str | None]:
    """(previous, next) episode ids; None at an end. `query` is the list's address, empty for all of them."""
    return _around(store, store.url, summary.id, summary.run_id, summary.policy, tuple(sorted(query.items())))


@st.cache_resource(max_entries=256, ttl=60, show_spinner=False)
def _around(
    _store: Store, url: str, episode_id: str, run_id: str, policy: str, query: tuple[tuple[str, str], ...]
) -> tuple[str | None, str | None]:
    """Looked up once for all the steps through an episode."""
    own, listed = EpisodeFilter(run=run_id, policy=policy), dict(query)
    try:
        where = asked(listed, named_view(_store, listed))
    except (ExpressionError, StoreError):  # the list said so; the reader is here for the episode
        where = own
    return (
        _store.episodes.neighbours(episode_id, where, order=order_of(listed))
        or _store.episodes.neighbours(episode_id, own, order="oldest")
        or (None, None)
    )
