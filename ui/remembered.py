"""What was read over many episodes, kept until anything is written to the store: never a stale figure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import streamlit as st

from storage.store import Store

P = ParamSpec("P")
T = TypeVar("T")


def remembered(read: Callable[Concatenate[Store, P], T]) -> Callable[Concatenate[Store, P], T]:
    """The same reading, done once for every version of the store and every question. What it gives is shared
    between sessions: nobody may change it."""
    name = f"{read.__module__}.{read.__qualname__}"

    def told(store: Store, /, *asked: P.args, **named: P.kwargs) -> T:
        found: T = _kept(name, store.version(), asked, named, _read=lambda: read(store, *asked, **named))
        return found

    return told


@st.cache_resource(max_entries=256, show_spinner=False)
def _kept(name: str, version: str, asked: Any, named: Any, *, _read: Callable[[], Any]) -> Any:
    return _read()


def forget() -> None:
    """Read everything anew."""
    _kept.clear()
