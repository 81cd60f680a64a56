"""Episodes: every recorded episode, filtered, searched and paged in SQL; peek at one, tick two to compare.

The whole view is in the address bar: filters under the names of EpisodeFilter, `order`, the cursor (`after`,
`before` or `last`) and `peek`. No turn text is read but that of the peeked episode.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import pandas as pd
import streamlit as st

from core.episode import EndReason, Flag, Role, Status
from storage.filters import EpisodeFilter
from storage.store import Store
from storage.summaries import CheckpointSummary, EpisodeSummary, Facets, FacetValue, Order, Page
from ui import state
from ui.components.turn_strip import turn_strip
from ui.course import lane
from ui.glossary import define
from ui.neighbours import order_of
from ui.panels import text_block
from ui.recording import open_recording
from ui.spending import dollars
from ui.theme import END_WORDS, FLAG_WORDS, ROLE_LOOKS, STATUS_MARKS, correct_mark, label, one_line
from ui.transport import Keys
from ui.widgets import ago, generations, nothing_here, outcome, strip_text, who

PAGE_SIZE = 50
KEYS: Keys = (("J / K", "next / previous episode, while one is peeked at"),)
ORDERS: dict[Order, str] = {
    "newest": "newest first",
    "oldest": "oldest first",
    "turns": "most turns",
    "tokens": "most tokens",
    "cost": "dearest",
    "latency": "slowest",
    "margin": "smallest margin",
    "entropy": "most undecided",
}
_CURSORS = ("after", "before", "last")
_SHORT_FLAGS = {
    "false_accept": "false accept",
    "answer_broke": "right answer lost",
    "low_margin": "low margin",
    "override": "decision taken over",
    Flag.VERDICT_UNREADABLE.value: "verdict unreadable",
    Flag.SELF_VERIFIED.value: "self-verified",
    Flag.PROMPT_OVERFLOW.value: "transcript cut",
    Flag.TRUNCATED.value: "reply cut",
}
_OUTCOMES = {"right": "● right", "wrong": "✕ wrong", "none": "· not judged"}
_FIELD_WORDS = {"end_reason": "ended", "min_turns": "turns ≥", "max_turns": "turns ≤", "correct": "answer"}


def show() -> None:
    """Render the page."""
    store = state.store()
    query = st.query_params.to_dict()
    where = EpisodeFilter.from_query(query)
    state.remember_list({name: value for name, value in query.items() if name != "peek"})
    checkpoints = store.checkpoints.list()
    facets = store.episodes.facets(where)
    with st.sidebar:
        _facets(where, facets, checkpoints)
    st.title("Episodes")
    _search_line(where)
    _chips(where, checkpoints)
    page = store.episodes.page(where, order=_order(), limit=PAGE_SIZE, **_cursor())
    if not page.items:
        _empty(where)
        return
    _pager(page)
    peeked = state.param("peek")
    if peeked is None:
        _table(page.items, checkpoints)
        return
    left, right = st.columns([3, 2], gap="medium")
    with left:
        _table(page.items, checkpoints)
    with right, st.container(border=True):
        _peek(store, peeked, [one.id for one in page.items])


def _order() -> Order:
    return order_of(st.query_params.to_dict())


def _cursor() -> dict[str, Any]:
    if state.param("last"):
        return {"last": True}
    return {name: value for name in ("after", "before") if (value := state.param(name))}


def _change(**values: str | int | None) -> None:
    """Change the filter or the order; the cursor and the ticks belong to the old list."""
    state.set_params(**{**dict.fromkeys(_CURSORS), **values})
    st.session_state["ticked"] = []
    st.session_state["episodes_list"] = st.session_state.get("episodes_list", 0) + 1


# Filters


def _facets(where: EpisodeFilter, facets: Facets, checkpoints: Sequence[CheckpointSummary]) -> None:
    born = generations(checkpoints)
    st.markdown("**Filters**")
    _pills("correct", "Answer", where.correct, facets.correct, lambda value: _OUTCOMES.get(value, value))
    _pills("family", "Family", where.family, facets.family, lambda value: label(value, 30))
    _choice("policy", "Policy", where.policy, facets.policy, lambda value: who(value, born.get(value)))
    _choice("run", "Run", where.run, facets.run, lambda value: one_line(value, 30))
    _pills("end_reason", "Ended", where.end_reason, facets.end_reason, _end_word)
    _pills("flag", "Flags", where.flag, facets.flag, flag_word)
    if len(facets.status) > 1 or where.status:
        _pills(
            "status", "Status", where.status, facets.status, lambda value: STATUS_MARKS[Status(value)].word
        )
    _turn_filters(where)


def _end_word(value: str) -> str:
    return END_WORDS[EndReason(value)]


def flag_word(value: str) -> str:
    """A flag of a turn or of a whole episode, in a few words."""
    return _SHORT_FLAGS.get(value) or FLAG_WORDS[Flag(value)]


def _set_from(key: str, name: str) -> None:
    _change(**{name: st.session_state[key]})


def _counted(values: Sequence[FacetValue], chosen: str | None) -> dict[str, int]:
    counts = {one.value: one.n for one in values}
    return counts if chosen is None or chosen in counts else {chosen: 0, **counts}


def _pills(
    name: str, words: str, chosen: str | None, values: Sequence[FacetValue], say: Callable[[str], str]
) -> None:
    """A facet with few values: all in view with their counts; a second click lets go."""
    counts = _counted(values, chosen)
    if not counts:
        return
    key = f"facet_{name}"
    st.session_state[key] = chosen
    st.pills(
        words,
        list(counts),
        key=key,
        format_func=lambda value: f"{say(value)} {counts[value]:,}",
        on_change=_set_from,
        args=(key, name),
    )


def _choice(
    name: str, words: str, chosen: str | None, values: Sequence[FacetValue], say: Callable[[str], str]
) -> None:
    """A facet with many values: a list to search in."""
    counts = _counted(values, chosen)
    if len(counts) < 2 and chosen is None:
        return
    key = f"facet_{name}"
    st.session_state[key] = chosen
    st.selectbox(
        words,
        list(counts),
        key=key,
        placeholder="any",
        format_func=lambda value: f"{say(value)} · {counts[value]:,}",
        on_change=_set_from,
        args=(key, name),
    )


def _turn_filters(where: EpisodeFilter) -> None:
    """Conditions on single turns: they are few, and hidden until wanted."""
    in_use = any((where.model, where.role, where.min_turns, where.max_turns))
    with st.expander("Turns", expanded=in_use):
        st.session_state["facet_role"] = where.role
        st.pills(
            "Has a turn in the role",
            [role.value for role in ROLE_LOOKS],
            key="facet_role",
            format_func=lambda value: f"{ROLE_LOOKS[Role(value)].shape} {ROLE_LOOKS[Role(value)].word}",
            on_change=_set_from,
            args=("facet_role", "role"),
        )
        st.session_state["facet_model"] = where.model or ""
        st.text_input(
            "… by the model",
            key="facet_model",
            placeholder="model name",
            on_change=_set_from,
            args=("facet_model", "model"),
        )
        for name, words in (("min_turns", "At least"), ("max_turns", "At most")):
            key = f"facet_{name}"
            st.session_state[key] = getattr(where, name)
            st.number_input(
                f"{words} so many turns",
                min_value=0,
                max_value=999_999,
                step=1,
                key=key,
                placeholder="any",
                on_change=_set_from,
                args=(key, name),
            )


def _search_line(where: EpisodeFilter) -> None:
    search, order = st.columns([4, 1], vertical_alignment="bottom")
    st.session_state["search_text"] = where.text or ""
    search.text_input(
        "Search",
        key="search_text",
        label_visibility="collapsed",
        icon=":material/search:",
        max_chars=200,
        placeholder="Search questions and replies …",
        on_change=_set_from,
        args=("search_text", "text"),
    )
    st.session_state["list_order"] = _order()
    order.selectbox(
        "Order",
        list(ORDERS),
        key="list_order",
        label_visibility="collapsed",
        format_func=lambda value: ORDERS[value],
        on_change=_set_from,
        args=("list_order", "order"),
    )


def _chips(where: EpisodeFilter, checkpoints: Sequence[CheckpointSummary]) -> None:
    """Every condition in force, each let go with one click."""
    active = where.to_query()
    if not active:
        return
    born = generations(checkpoints)
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        for name, value in active.items():
            said = who(value, born.get(value)) if name == "policy" else _value_word(name, value)
            st.button(
                f"{_FIELD_WORDS.get(name, name)} {label(said, 40)}",
                key=f"chip_{name}",
                icon=":material/close:",
                type="secondary",
                on_click=_change,
                kwargs={name: None},
                help="Let this condition go",
            )
        if len(active) > 1:
            st.button("Clear all", key="chip_all", type="tertiary", on_click=_clear)


def _value_word(name: str, value: str) -> str:
    match name:
        case "flag":
            return flag_word(value)
        case "end_reason":
            return _end_word(value)
        case "text":
            return f"“{value}”"
        case _:
            return value


def _clear() -> None:
    _change(**{field.name: None for field in fields(EpisodeFilter)})


def _empty(where: EpisodeFilter) -> None:
    if where.to_query() or _cursor():
        nothing_here("No episode matches these filters.", ":material/filter_alt_off:")
        st.button("Clear the filters", key="clear_filters", type="primary", on_click=_clear)
    else:
        nothing_here("No episode is recorded yet.")
        state.page_link("home", "See how to record or load some", icon=":material/home:")


# The list


def _pager(page: Page[EpisodeSummary]) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f"**{page.total}** episodes", width="stretch")
        ticked = st.session_state.get("ticked", [])
        if len(ticked) == 2:
            if st.button("Compare the two", key="compare_two", type="primary", icon=":material/compare:"):
                state.go("pair", a=ticked[0], b=ticked[1])
        else:
            st.caption("Tick one row to peek, two to compare.", width="content")
        steps: tuple[tuple[str, str, dict[str, str | None], bool], ...] = (
            ("First", "first_page", {}, page.previous is None),
            ("Previous", "chevron_left", {"before": page.previous}, page.previous is None),
            ("Next", "chevron_right", {"after": page.next}, page.next is None),
            ("Last", "last_page", {"last": "1"}, page.next is None),
        )
        for words, icon, params, off in steps:
            st.button(
                "",
                key=f"page_{words.lower()}",
                icon=f":material/{icon}:",
                help=f"{words} page",
                disabled=off,
                on_click=_change,
                kwargs=params,
            )


def rows(items: Sequence[EpisodeSummary], born: dict[str, int | None], now: float) -> pd.DataFrame:
    """The page's episodes as a table of plain values; texts are shown by the grid as text."""
    return pd.DataFrame(
        {
            "answer": [_answer_mark(one) for one in items],
            "question": [one_line(one.question, 90) for one in items],
            "turns": [strip_text(one.strip) for one in items],
            "policy": [who(one.policy, one.generation or born.get(one.policy)) for one in items],
            "n": [one.turns for one in items],
            "tokens": [one.tokens_in + one.tokens_out for one in items],
            "margin": [one.min_margin for one in items],
            "entropy": [one.mean_entropy for one in items],
            "cost": [dollars(one.cost_usd) if one.cost_usd else "" for one in items],
            "flags": [", ".join(flag_word(flag) for flag in one.flags) for one in items],
            "when": [ago(one.started, now) for one in items],
            "open": [state.href("replay", ep=one.id) for one in items],
        }
    )


def _answer_mark(one: EpisodeSummary) -> str:
    if one.status is not Status.FINISHED:
        mark = STATUS_MARKS[one.status]
        return f"{mark.glyph} {mark.word}"
    mark = correct_mark(one.correct)
    return f"{mark.glyph} {mark.word}"


_COLUMNS: dict[str, Any] = {
    "open": st.column_config.LinkColumn("Open", width=70, display_text="Replay"),
    "answer": st.column_config.TextColumn("Answer", width=95),
    "question": st.column_config.TextColumn("Question", width=300),
    "turns": st.column_config.TextColumn("Turns", width=215, help=define("Turn strip")),
    "policy": st.column_config.TextColumn("Policy", width=190),
    "n": st.column_config.NumberColumn("n", width=40, help="Turns played"),
    "tokens": st.column_config.NumberColumn("Tokens", width=75, format="localized"),
    "margin": st.column_config.NumberColumn("Margin", width=70, format="%.2f", help=define("Margin")),
    "entropy": st.column_config.NumberColumn("Entropy", width=70, format="%.2f", help=define("Entropy")),
    "cost": st.column_config.TextColumn("Cost", width=75),
    "flags": st.column_config.TextColumn("Flags", width=180),
    "when": st.column_config.TextColumn("When", width=95),
}


def _table(items: Sequence[EpisodeSummary], checkpoints: Sequence[CheckpointSummary]) -> None:
    ids = [one.id for one in items]
    key = f"episodes_{st.session_state.get('episodes_list', 0)}_{ids[0]}"
    table = rows(items, generations(checkpoints), time.time())
    columns = [name for name in _COLUMNS if name != "cost" or table["cost"].any()]
    if state.param("peek"):
        columns = ["open", "answer", "question", "turns"]
    st.dataframe(
        table[columns],
        key=key,
        column_config=_COLUMNS,
        hide_index=True,
        height="content" if len(ids) < 18 else 640,
        row_height=35,
        selection_mode="multi-row",
        on_select=lambda: tick(ids, list(st.session_state[key].selection.rows)),
        alt="Episodes, one row each",
    )


def tick(ids: Sequence[str], positions: Sequence[int]) -> None:
    """Take note of the ticked rows: their ids are the basket, the one ticked last is peeked at."""
    before = st.session_state.get("ticked", [])
    now = [ids[position] for position in positions if 0 <= position < len(ids)]
    st.session_state["ticked"] = now
    fresh = [one for one in now if one not in before]
    state.set_params(peek=fresh[-1] if fresh else now[-1] if now else None)


# The peek


def _peek(store: Store, episode_id: str, ids: Sequence[str]) -> None:
    recording = open_recording(store, episode_id)
    summary = recording.summary
    here = ids.index(episode_id) if episode_id in ids else None
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        state.page_link("replay", "**Replay**", icon=":material/smart_display:", ep=episode_id)
        st.space("stretch")
        for words, key, shortcut, step in (("Previous", "up", "K", -1), ("Next", "down", "J", 1)):
            to = None if here is None or not 0 <= here + step < len(ids) else ids[here + step]
            st.button(
                words,
                key=f"peek_{key}",
                shortcut=shortcut,
                type="tertiary",
                disabled=to is None,
                on_click=state.set_params,
                kwargs={"peek": to},
            )
        st.button(
            "",
            key="peek_close",
            icon=":material/close:",
            type="tertiary",
            help="Close the peek",
            on_click=state.set_params,
            kwargs={"peek": None},
        )
    text_block(recording.episode.task.question, key=f"peek_{episode_id}_question")
    if recording.outlines:
        turn_strip(
            [lane(recording.outlines, recording.models, running=recording.running)],
            len(recording.outlines) - 1,
            lambda turn: st.session_state.update(peek_to=turn + 1),
            key="peek_strip",
            name="Turns; a click opens the replay",
        )
        if turn := st.session_state.pop("peek_to", None):
            state.go("replay", ep=episode_id, t=turn)
    st.markdown(
        f"{outcome(summary)} · {END_WORDS[summary.end_reason] if summary.end_reason else summary.status}"
    )
    st.caption(
        f"Answer given: {label(summary.answer or '–')} · expected: {label(recording.episode.task.answer)}"
    )
    st.caption(f"{label(who(summary.policy, summary.generation))} · {label(summary.id)}")
    if summary.flags:
        st.caption(":material/flag: " + ", ".join(flag_word(flag) for flag in summary.flags))
    if recording.outlines:
        last = recording.outlines[-1]
        st.caption(f"Last turn, {ROLE_LOOKS[last.role].word} on {label(last.model, 40)}")
        text_block(recording.text(last.index).reply, key=f"peek_{episode_id}_last")


if __name__ == "__main__":
    state.run(show)
