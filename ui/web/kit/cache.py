"""Caches of what was read from a store: until anything is written to it, or for good."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import streamlit as st

from core.pool.spec import ModelSpec
from storage.store import Store
from ui.presentation import runs
from ui.runs import wiring

P = ParamSpec("P")
T = TypeVar("T")


def cached(read: Callable[Concatenate[Store, P], T]) -> Callable[Concatenate[Store, P], T]:
    """A function that reads a store, called once for each version of the store and each set of arguments. Its result is
    shared between sessions: nobody may change it."""
    name = f"{read.__module__}.{read.__qualname__}"

    def lookup(store: Store, /, *arguments: P.args, **options: P.kwargs) -> T:
        found: T = _cached(
            name, store.version(), arguments, options, _read=lambda: read(store, *arguments, **options)
        )
        return found

    return lookup


@st.cache_resource(max_entries=256, show_spinner=False)
def _cached(name: str, version: str, arguments: Any, options: Any, *, _read: Callable[[], Any]) -> Any:
    return _read()


def remembered(*, most: int, seconds: float | None = None) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A decorator that keeps the results of a function for its `most` last sets of arguments, each for so many
    `seconds` (None: for good). Stores with one address are one argument, and sessions share what is found."""
    keep: Callable[[Callable[P, T]], Callable[P, T]] = st.cache_resource(
        max_entries=most, ttl=seconds, show_spinner=False, hash_funcs={Store: lambda store: store.url}
    )
    return keep


#: The names of runs, by their ids.
run_names = remembered(most=64, seconds=60)(runs.run_names)


def forget() -> None:
    """Read everything anew."""
    _cached.clear()


@st.cache_data(max_entries=4, ttl=60, show_spinner=False)
def pool_specs(pool: str) -> tuple[ModelSpec, ...]:
    """A pool's slots as the pages show them; its file is read again after a minute."""
    return wiring.pool_specs(pool)
