"""Episodes in groups: how many share a run, a policy, a task or a family, and how they did."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial

import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from storage.filters.episode_filter import EpisodeFilter
from storage.filters.listing import MIXED, TWO_DECIDED
from storage.rows.summaries import EpisodeGroup, GroupBy
from storage.store import Store
from ui.presentation.theme import one_line, percent
from ui.presentation.words import ago, dollars, policy_name
from ui.web.kit import state
from ui.web.kit.cache import cached, run_names
from ui.web.kit.tables import column_table
from ui.web.pickers.checkpoints import generation_of

#: What a list can be grouped by.
GROUPS: dict[GroupBy, str] = {
    "run": "by run",
    "policy": "by policy or checkpoint",
    "task": "by task",
    "family": "by family of tasks",
}
_MOST = 200


def group_asked() -> GroupBy | None:
    """What the address groups by; None for a plain list."""
    return next((by for by in GROUPS if by == state.param("group")), None)


@cached
def _groups(store: Store, by: GroupBy, where: EpisodeFilter) -> tuple[list[EpisodeGroup], bool]:
    return store.episodes.groups(by, where, limit=_MOST)


def show_groups(
    store: Store,
    by: GroupBy,
    where: EpisodeFilter,
    query: Mapping[str, str],
    aside: str,
) -> int:
    """Render the table and return how many groups there are; each line leads to its episodes. `aside`: what is left
    out of all of them."""
    groups, more = _groups(store, by, where)
    if not groups:
        return 0
    words = f"{len(groups)} {'group' if len(groups) == 1 else 'groups'}"
    if more:
        words = f"the {_MOST} largest groups"
    total = f"**{words}** · {sum(one.n for one in groups):,} episodes"
    st.markdown(total + f" · :gray[{aside}]" * bool(aside))
    if several := sum(one.settings > 1 for one in groups):
        st.caption(
            f":material/warning: {several} of these policies {'was' if several == 1 else 'were'} played under several "
            "settings (turn budget, sampled or argmax, rules, models with their temperatures), and the line averages "
            "over them. Checkpoints keeps them apart."
        )
    column_table(
        _columns(store, groups, by, query),
        key=f"groups_{by}",
        at_most=18,
        height=640,
        row_height=35,
        alt=f"Groups of episodes {GROUPS[by]}, one row each",
    )
    return len(groups)


def _columns(
    store: Store, groups: Sequence[EpisodeGroup], by: GroupBy, query: Mapping[str, str]
) -> dict[str, tuple[ColumnConfig, Sequence[object]]]:
    now = time.time()
    gone = ("group", "after", "before", "last", "peek", by)
    rest = {name: value for name, value in query.items() if name not in gone}
    links = [state.href("episodes", **{**rest, **_conditions(by, one.value, rest)}) for one in groups]
    shares = [None if one.right.value is None else 100 * one.right.value for one in groups]
    costs = [dollars(one.cost_usd) if one.cost_usd else "" for one in groups]
    text, number = st.column_config.TextColumn, partial(st.column_config.NumberColumn, format="localized")
    accuracy = st.column_config.ProgressColumn(
        "Accuracy",
        width=130,
        format="%.1f %%",
        min_value=0,
        max_value=100,
        help="Of the judged episodes",
    )
    columns: dict[str, tuple[ColumnConfig, Sequence[object]]] = {
        "open": (st.column_config.LinkColumn("Open", width=80, display_text="Episodes"), links),
        "group": (
            text(GROUPS[by].removeprefix("by ").capitalize(), width=300),
            _names(store, by, [one.value for one in groups]),
        ),
        "accuracy": (accuracy, shares),
        "interval": (text("95 % interval", width=130), [_interval(one) for one in groups]),
        "right": (number("Right", width=70), [one.right.k for one in groups]),
        "judged": (number("Judged", width=80), [one.right.n for one in groups]),
        "n": (number("Episodes", width=80), [one.n for one in groups]),
        "settings": (number("Settings", width=80), [one.settings for one in groups]),
        "turns": (number("Mean turns", width=90, format="%.1f"), [one.turns for one in groups]),
        "tokens": (number("Tokens", width=100), [one.tokens for one in groups]),
        "cost": (text("Cost", width=80), costs),
        "newest": (text("Newest", width=95), [ago(one.newest, now) for one in groups]),
    }
    if not any(costs):
        del columns["cost"]
    if not any(one.settings > 1 for one in groups):
        del columns["settings"]
    return columns


def _names(store: Store, by: GroupBy, values: Sequence[str]) -> list[str]:
    generations = generation_of(store) if by == "policy" else {}
    runs = run_names(store, values) if by == "run" else {}
    return [
        policy_name(one, generations.get(one)) if by == "policy" else one_line(runs.get(one, one), 60)
        for one in values
    ]


def _conditions(by: GroupBy, value: str, query: Mapping[str, str]) -> dict[str, str]:
    """What an address adds to the `query` it came from to list a group's episodes."""
    if by == "policy" and value == MIXED:
        return {"q": EpisodeFilter(q=query.get("q")).narrowed(TWO_DECIDED).q or ""}
    return {by: value}


def _interval(one: EpisodeGroup) -> str:
    if not one.right.n:
        return ""
    low, high = one.right.ci95
    return f"{percent(low)} to {percent(high)}"
