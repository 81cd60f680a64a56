"""The list of episodes: its table and columns, its groups, the preview beside it, and the basket of ticked rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from core.episode import Flag
from storage.filters.episode_filter import EpisodeFilter
from storage.filters.listing import MIXED, TWO_DECIDED
from storage.rows.summaries import EpisodeGroup, EpisodeSummary, GroupBy
from storage.store import Store
from ui.presentation.course import lane
from ui.presentation.glossary import define
from ui.presentation.rules import ended_words
from ui.presentation.theme import ROLE_STYLES, label, one_line, outcome_mark, percent
from ui.presentation.words import ago, decider_words, dollars, missing_reply_words, strip_key, strip_text
from ui.web.components.transport import turn_strip
from ui.web.kit import state
from ui.web.kit.cache import cached, run_names
from ui.web.kit.tables import column_table
from ui.web.kit.text import choose_look, text_block
from ui.web.kit.widgets import outcome_badge, tool
from ui.web.pickers.checkpoints import generation_of
from ui.web.pickers.facets import flags_of, value_words
from ui.web.pickers.lists import held, hold
from ui.web.progress import luck_line
from ui.web.turns.recording import Recording, open_recording

#: Widths that a reader can give the two columns of text, pixels.
WIDTHS = {"narrow": (180, 130), "normal": (300, 215), "wide": (620, 420)}
#: A cell is cut where its column ends, without a word: a question is cut before that, with an ellipsis. So many pixels
#: are there for a character of it.
_CHARACTER = 6
#: So many pixels are there for a turn of a strip.
_TURN = 27
#: In a list of fewer episodes a column that says the same of all of them is shown too.
_FEW = 5
_PEEKING = ("open", "answer", "question", "turns")


def _answer_mark(one: EpisodeSummary) -> str:
    mark = outcome_mark(one.status, one.correct)
    return f"{mark.glyph} {mark.word}"


def _counted(one: EpisodeSummary, n: float) -> float | None:
    """A number of an episode's calls; None of recorded ones where nobody counted."""
    return n if n or Flag.RECORDED.value not in one.flags else None


_text, _number = st.column_config.TextColumn, st.column_config.NumberColumn
_localized = partial(_number, format="localized")
#: Column -> how it is called and drawn, and what it says of an episode, texts as text. The first ones are shown until
#: others are chosen.
_COLUMNS: dict[str, tuple[ColumnConfig, Callable[[EpisodeSummary], object]]] = {
    "open": (
        st.column_config.LinkColumn("Open", width=70, display_text="Replay"),
        lambda one: state.href("replay", **state.replay_of_list(one.id)),
    ),
    "answer": (_text("Answer", width=95), _answer_mark),
    "question": (_text("Question"), lambda one: one.question),
    "turns": (_text("Turns"), lambda one: strip_text(one.strip)),
    "policy": (_text("Policy", width=190), lambda one: one.policy),
    "n": (_number("n", width=40, help="Turns played"), lambda one: one.turns),
    "tokens": (_localized("Tokens", width=75), lambda one: _counted(one, one.tokens_in + one.tokens_out)),
    "margin": (_number("Margin", width=70, format="%.2f", help=define("Margin")), lambda one: one.min_margin),
    "entropy": (
        _number("Entropy", width=70, format="%.2f", help=define("Entropy")),
        lambda one: one.mean_entropy,
    ),
    "cost": (_text("Cost", width=75), lambda one: dollars(one.cost_usd) if one.cost_usd else ""),
    "flags": (_text("Flags", width=180), lambda one: ", ".join(flags_of(one))),
    "when": (_text("When", width=95), lambda one: ago(one.started, time.time())),
    "ended": (_text("Ended"), ended_words),
    "given": (_text("Answer given"), lambda one: one_line(one.answer or "", 60)),
    "family": (_text("Family"), lambda one: one_line(one.family, 30)),
    "latency": (
        _number("Seconds", width=75, format="%.1f", help="Of all calls together"),
        lambda one: _counted(one, one.latency_s),
    ),
    "read": (_localized("Tokens read", width=90), lambda one: _counted(one, one.tokens_in)),
    "written": (_localized("Tokens written", width=100), lambda one: _counted(one, one.tokens_out)),
    "task": (_text("Task"), lambda one: one_line(one.task_id, 40)),
    "run": (_text("Run"), lambda one: one.run_id),
    "id": (_text("Episode"), lambda one: one.id),
    "decided": (_text("Id of the policy"), lambda one: one.policy),
}
_DEFAULT_COLUMNS = tuple(_COLUMNS)[:12]


def columns_shown() -> list[str]:
    """The columns the address asks for, in its order; else those last chosen in this tab, else the default ones."""
    asked = (state.param("cols") or str(st.session_state.get("list_cols") or "")).split(",")
    return [name for name in dict.fromkeys(asked) if name in _COLUMNS] or list(_DEFAULT_COLUMNS)


def width_shown() -> str:
    """How wide the columns of text are: the address, else what was last chosen in this tab."""
    asked = state.param("width") or st.session_state.get("list_width")
    return asked if asked in WIDTHS else "normal"


def column_chooser() -> None:
    """Which columns, in which order, how wide: kept in the address, and for this tab."""

    def chosen() -> None:
        columns = state.entered("choose_columns", _COLUMNS) or []
        spelt = "" if tuple(columns) in ((), _DEFAULT_COLUMNS) else ",".join(columns)
        width = state.entered("choose_width", WIDTHS) or "normal"
        st.session_state["list_cols"], st.session_state["list_width"] = spelt, width
        state.set_params(cols=spelt, width=None if width == "normal" else width)

    st.session_state["choose_columns"] = columns_shown()
    st.session_state["choose_width"] = width_shown()
    with st.popover("Columns", icon=":material/view_column:", type="tertiary"):
        st.multiselect(
            "Columns, in this order",
            list(_COLUMNS),
            key="choose_columns",
            format_func=lambda name: "Turns played" if name == "n" else str(_COLUMNS[name][0]["label"]),
            on_change=chosen,
            help="Take one out and choose it again to put it last.",
        )
        st.segmented_control(
            "Question and turns", list(WIDTHS), key="choose_width", required=True, on_change=chosen
        )
        st.caption("Kept in the address: a link or a saved view shows the same columns.")


def legend(items: Sequence[EpisodeSummary]) -> None:
    """How the strips of a page's rows are read: above the table and the peek beside it, so that it keeps its height."""
    if "turns" in columns_shown():
        st.caption(strip_key(items))


def show_table(store: Store, items: Sequence[EpisodeSummary]) -> None:
    """Render one page of the list; ticked rows go into the basket."""
    ids = [one.id for one in items]
    key = f"episodes_{st.session_state.get('episodes_list', 0)}_{ids[0]}"
    if key not in st.session_state:  # a page that comes anew shows which of its rows are in the basket
        st.session_state["ticked_at_first"] = [at for at, one in enumerate(ids) if one in held()]
    generations = generation_of(store)
    runs = run_names(store, sorted({one.run_id for one in items}))
    question_px, turns_px = WIDTHS[width_shown()]
    columns = _COLUMNS | {
        "question": (
            _text("Question", width=question_px),
            lambda one: one_line(one.question, question_px // _CHARACTER),
        ),
        "turns": (
            _text("Turns", width=turns_px, help=strip_key(items)),
            lambda one: strip_text(one.strip, turns_px // _TURN),
        ),
        "policy": (_COLUMNS["policy"][0], lambda one: decider_words(one, generations)),
        "run": (_COLUMNS["run"][0], lambda one: runs[one.run_id]),
    }
    chosen = columns_shown()
    if state.param("peek"):
        chosen = [name for name in chosen if name in _PEEKING] or list(_PEEKING)
    column_table(
        {name: (columns[name][0], [columns[name][1](one) for one in items]) for name in chosen},
        key=key,
        all_columns=chosen != list(_DEFAULT_COLUMNS),  # what a reader asked for is there, whatever it says
        kept=("question", "turns"),
        few=_FEW,
        at_most=18,
        height=640,
        row_height=35,
        selection_mode="multi-row",
        selection_default={"selection": {"rows": st.session_state.get("ticked_at_first", [])}},
        on_select=lambda: tick(ids, state.rows(key)),
        alt="Episodes, one row each",
    )


def tick(ids: Sequence[str], positions: Sequence[int]) -> None:
    """Put the ticked rows of a page into the basket, with those of other pages, and peek at the one ticked last."""
    before = held()
    ticked = [ids[position] for position in positions if 0 <= position < len(ids)]
    remaining = [one for one in before if one in ticked or one not in ids]
    added = [one for one in ticked if one not in before]
    hold([*remaining, *added])
    state.set_params(peek=next(reversed(added or ticked), None))


def empty_basket() -> None:
    hold([])
    st.session_state["episodes_list"] = st.session_state.get("episodes_list", 0) + 1
    state.set_params(peek=None)


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


def show_groups(store: Store, by: GroupBy, where: EpisodeFilter, query: Mapping[str, str], aside: str) -> int:
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
    names = value_words(store, by, [one.value for one in groups])
    shares = [None if one.right.value is None else 100 * one.right.value for one in groups]
    costs = [dollars(one.cost_usd) if one.cost_usd else "" for one in groups]
    text, number = st.column_config.TextColumn, partial(st.column_config.NumberColumn, format="localized")
    accuracy = st.column_config.ProgressColumn(
        "Accuracy", width=130, format="%.1f %%", min_value=0, max_value=100, help="Of the judged episodes"
    )
    columns: dict[str, tuple[ColumnConfig, Sequence[object]]] = {
        "open": (st.column_config.LinkColumn("Open", width=80, display_text="Episodes"), links),
        "group": (
            text(GROUPS[by].removeprefix("by ").capitalize(), width=300),
            [one_line(names[one.value], 60) for one in groups],
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


def _conditions(by: GroupBy, value: str, query: Mapping[str, str]) -> dict[str, str]:
    """What an address adds to the `query` it came from to list a group's episodes."""
    if by == "policy" and value == MIXED:
        return {"q": EpisodeFilter(q=query.get("q")).narrow(TWO_DECIDED).q or ""}
    return {by: value}


def _interval(one: EpisodeGroup) -> str:
    if not one.right.n:
        return ""
    low, high = one.right.ci95
    return f"{percent(low)} to {percent(high)}"


def show_preview(store: Store, episode_id: str, ids: Sequence[str]) -> None:
    """The episode with its turns and outcome; J and K step through `ids`. StoreError for an unknown episode."""
    recording = open_recording(store, episode_id)
    replay = state.replay_of_list(episode_id)
    _ways_on(episode_id, ids, replay)
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
            state.go("replay", **replay, t=turn)
    _outcome(recording)


def _ways_on(episode_id: str, ids: Sequence[str], replay: Mapping[str, str]) -> None:
    here = ids.index(episode_id) if episode_id in ids else None
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        state.page_link("replay", "**Replay**", icon=":material/smart_display:", **replay)
        st.space("stretch")
        for words, key, shortcut, step in (("Previous", "up", "K", -1), ("Next", "down", "J", 1)):
            to = None if here is None or not 0 <= here + step < len(ids) else ids[here + step]
            show = partial(state.set_params, peek=to)
            tool(words, f"peek_{key}", show, shortcut=shortcut, disabled=to is None)
        tool("", "peek_close", partial(state.set_params, peek=None), icon="close", help="Close the peek")


def _outcome(recording: Recording) -> None:
    summary = recording.summary
    st.markdown(f"{outcome_badge(summary)} · {ended_words(summary) or summary.status}")
    luck_line(recording.store, summary)
    st.caption(
        f"Answer given: {label(summary.answer or '–')} · expected: "
        f"{label(recording.episode.task.answer or 'unknown')}"
    )
    st.caption(f"{label(decider_words(summary, generation_of(recording.store)))} · {label(summary.id)}")
    if summary.flags:
        st.caption(":material/flag: " + ", ".join(flags_of(summary)))
    if recording.outlines:
        last = recording.outlines[-1]
        st.caption(f"Last turn, {ROLE_STYLES[last.role].word} on {label(last.model, 40)}")
        said = recording.reply_text(last.index)
        look = choose_look("peek_look")
        text_block(
            said.said, key=f"peek_{summary.id}_last_{look}", empty=missing_reply_words(said), look=look
        )
