"""Requests: what the endpoint has served, how fast, at what cost, and what its tiers are worth.

The address holds the time (`since`), the filter, of which `tier` and `key` are chosen here, and the part."""

from __future__ import annotations

from functools import partial

import streamlit as st

from core.errors import ConfigError
from storage.filters.episode_filter import EpisodeFilter
from storage.filters.expression import write_expression
from storage.store import Store
from storage.upkeep.retention import moment_of
from ui.answers.pages import ANALYSES
from ui.answers.requests.subject import ALL, PAGE, TODAY, asked_of_requests, equals
from ui.presentation.theme import label
from ui.web.analysis.page import show_answers
from ui.web.kit import state
from ui.web.kit.cache import cached
from ui.web.pickers.facets import condition_chip

#: Ages that are offered -> their words.
_SINCE = {
    TODAY: "Last 24 hours",
    "1h": "Last hour",
    "7d": "Last 7 days",
    "30d": "Last 30 days",
    ALL: "All there are",
}
#: What the page itself lets choose; other conditions come with a link and are listed.
_OWN = ("tier", "key")


def show() -> None:
    """Render the page."""
    store = state.store()
    st.title(ANALYSES[PAGE].title)
    st.caption(ANALYSES[PAGE].about)
    where = EpisodeFilter.from_query(st.query_params.to_dict())
    since, tier, key = _choose(store)
    for name, value in (("tier", tier), ("key", key)):
        if value:
            where = where.narrow(write_expression(equals(name, value)))
    _others(EpisodeFilter.from_query(st.query_params.to_dict()))
    asked = asked_of_requests(
        store, where, since, now=store.now(), choices=st.query_params.to_dict(), remember=cached
    )
    show_answers(PAGE, asked)


def _choose(store: Store) -> tuple[str, str, str]:
    """The time, the tier and the key of the address; empty for all."""
    ages, own = dict(_SINCE), state.param("since")
    if own and own not in ages:
        try:
            moment_of(own, store.now())
            ages[own] = f"Since {own}"
        except ConfigError as error:
            st.info(label(str(error), 200), icon=":material/info:")
    use = cached(tiers_and_keys)(store)
    columns = st.columns([2, 2, 2])
    with columns[0]:
        since = state.address_select(
            "Time", ages, name="since", key="requests_since", forgets=("into",), widget="list"
        )
    chosen = []
    for column, name, words, found in zip(columns[1:], _OWN, ("Model asked for", "Key"), use, strict=True):
        with column:
            options = {"": "all", **{one: one for one in found}}
            chosen.append(
                state.address_select(
                    words, options, name=name, key=f"requests_{name}", forgets=("into",), widget="list"
                )
            )
    return since, chosen[0], chosen[1]


def tiers_and_keys(store: Store) -> tuple[list[str], list[str]]:
    """The models that were asked for, and the names of the keys that were asked with."""
    keys = store.endpoint.keys()
    return store.endpoint.tiers(), sorted({one.name for one in keys if one.requests})


def _others(where: EpisodeFilter) -> None:
    found = where.to_query()
    if not found:
        return
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.caption("Only requests with", width="content")
        for name, value in found.items():
            words = f"{name.replace('_', ' ')}: {label(value, 40)}"
            condition_chip(f"requests_drop_{name}", words, partial(state.set_params, **{name: None}))


if __name__ == "__main__":
    state.run(show)
