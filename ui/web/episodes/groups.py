"""Episodes in groups: how many share a run, a policy, a task or a family, and how they did."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import pandas as pd
import streamlit as st

from core.analysis.metrics import wilson_interval
from storage.filters.episode_filter import EpisodeFilter
from storage.rows.summaries import CheckpointSummary, EpisodeGroup, GroupBy
from storage.store import Store
from ui.presentation.theme import one_line, percent
from ui.presentation.words import ago, dollars, generations, policy_name
from ui.web.kit import state
from ui.web.kit.cache import cached

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
    checkpoints: Sequence[CheckpointSummary],
) -> int:
    """Render the table and return how many groups there are; each line leads to its episodes."""
    groups, more = _groups(store, by, where)
    if not groups:
        return 0
    words = (
        f"the {_MOST} largest groups"
        if more
        else f"{len(groups)} {'group' if len(groups) == 1 else 'groups'}"
    )
    st.markdown(f"**{words}** · {sum(one.n for one in groups):,} episodes")
    st.dataframe(
        _rows(groups, by, query, generations(checkpoints)),
        key=f"groups_{by}",
        column_config={
            "open": st.column_config.LinkColumn("Open", width=80, display_text="Episodes"),
            "group": st.column_config.TextColumn(GROUPS[by].removeprefix("by ").capitalize(), width=300),
            "accuracy": st.column_config.ProgressColumn(
                "Accuracy",
                width=130,
                format="%.1f %%",
                min_value=0,
                max_value=100,
                help="Of finished episodes",
            ),
            "interval": st.column_config.TextColumn("95 % interval", width=130),
            "n": st.column_config.NumberColumn("Episodes", width=80, format="localized"),
            "right": st.column_config.NumberColumn("Right", width=70, format="localized"),
            "finished": st.column_config.NumberColumn("Finished", width=80, format="localized"),
            "turns": st.column_config.NumberColumn("Mean turns", width=90, format="%.1f"),
            "tokens": st.column_config.NumberColumn("Tokens", width=100, format="localized"),
            "cost": st.column_config.TextColumn("Cost", width=80),
            "newest": st.column_config.TextColumn("Newest", width=95),
        },
        hide_index=True,
        height="content" if len(groups) < 18 else 640,
        row_height=35,
        alt=f"Groups of episodes {GROUPS[by]}, one row each",
    )
    return len(groups)


def _rows(
    groups: Sequence[EpisodeGroup],
    by: GroupBy,
    query: Mapping[str, str],
    generation_of: Mapping[str, int | None],
) -> pd.DataFrame:
    now = time.time()
    gone = ("group", "after", "before", "last", "peek", by)
    rest = {name: value for name, value in query.items() if name not in gone}
    table = pd.DataFrame(
        {
            "open": [state.href("episodes", **rest, **{by: one.value}) for one in groups],
            "group": [_name(by, one.value, generation_of) for one in groups],
            "accuracy": [None if one.accuracy is None else 100 * one.accuracy for one in groups],
            "interval": [_interval(one) for one in groups],
            "right": [one.correct for one in groups],
            "finished": [one.finished for one in groups],
            "n": [one.n for one in groups],
            "turns": [one.turns for one in groups],
            "tokens": [one.tokens for one in groups],
            "cost": [dollars(one.cost_usd) if one.cost_usd else "" for one in groups],
            "newest": [ago(one.newest, now) for one in groups],
        }
    )
    return table if table["cost"].any() else table.drop(columns="cost")


def _name(by: GroupBy, value: str, generation_of: Mapping[str, int | None]) -> str:
    return policy_name(value, generation_of.get(value)) if by == "policy" else one_line(value, 60)


def _interval(one: EpisodeGroup) -> str:
    if not one.finished:
        return ""
    low, high = wilson_interval(one.correct, one.finished)
    return f"{percent(low)} to {percent(high)}"
