"""Two episodes: the same task played twice, aligned turn by turn, opened at the first divergence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from urllib.parse import quote

import pandas as pd
import streamlit as st

from core.analysis.comparison import RULE, RULE_IN_SHORT, TEXT_CUT, Alignment, AlignmentRow, align
from core.analysis.metrics import kl_divergence
from core.episode import Decision, Status
from storage.reads.episode_steps import read_decisions
from storage.rows.summaries import EpisodeSummary
from storage.store import Store
from ui.presentation.comparison import ALIGNMENT_WORDS, MOST_ALIGNED, mirror, moves, totals
from ui.presentation.course import CellMark, Lane, StripCell, cells, turn_words, verdict_of
from ui.presentation.glossary import define
from ui.presentation.odds import apart_words
from ui.presentation.rules import ended_words
from ui.presentation.theme import ROLE_STYLES, correct_mark, label, one_line, outcome_mark
from ui.presentation.words import Generations, decider_words
from ui.web.components.transport import autoplay, by_hand, keys_of, step_buttons, stop, transport, turn_strip
from ui.web.kit import state
from ui.web.kit.cache import remembered
from ui.web.kit.figures import plot
from ui.web.kit.tables import height_of
from ui.web.kit.text import diff_block, markdown_table
from ui.web.kit.widgets import outcome_badge, tool
from ui.web.pickers.checkpoints import generation_of
from ui.web.progress import luck_line
from ui.web.turns.bar import save_button
from ui.web.turns.figures import two_choices
from ui.web.turns.recording import Recording, open_recording
from ui.web.turns.turn_card import question_heading, turn_card

#: Which rows are shown, as the address says it -> its words.
MODES = {"all": "All rows", "differences": "Differences only", "after": "After divergence"}
KEYS = keys_of("row", ("A  or  D", "swap the sides"), ("F", "first divergence"))
#: A table of more rows than this is cut, and says so; the strip holds them all.
MOST_ROWS = 100
#: So many rows are seen without scrolling.
IN_SIGHT = 7
_FLAG = CellMark("⚑", "first divergence", "info")


def show() -> None:
    """The page: who played, how it ended, the aligned strips, one row in full, all rows as a table."""
    a_id, b_id = state.param("a"), state.param("b")
    if a_id is None:
        _choose()
        return
    store = state.store()
    a = open_recording(store, a_id)
    if b_id is None:
        _header(a, None)
        return
    b = open_recording(store, b_id)
    _header(a, b)
    if a.episode.task != b.episode.task:
        st.warning(
            "These episodes played different tasks: rows that agree mean little.", icon=":material/warning:"
        )
    alignment = aligned(a, b)
    if not alignment.rows:
        _outcomes(a, b)
        st.info("Neither episode has a turn yet.")
        return
    mode = _mode(a, b, alignment)
    rows = visible(alignment, mode)
    if not rows:
        st.info("Both sides made the same choice in every row.", icon=":material/equal:")
        _outcomes(a, b)
        return
    start = alignment.first_divergence or 0
    row = state.int_param("t", 1, len(alignment.rows), start + 1) - 1
    column = min(range(len(rows)), key=lambda i: abs(rows[i] - row))

    def go(to: int) -> None:
        state.set_params(t=rows[to] + 1)

    _strips(a, b, alignment, rows, column, by_hand(go))
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="tools_steps"):
        step_buttons(column, len(rows), go, KEYS)
        # A button has one key, and either hand should reach one: hence a second pair next to the steps.
        tool("A ⇄ B", "swap_again", _swap, shortcut="D", help="Swap the sides")
    _row(a, b, alignment, rows[column])
    rows_panel(a, b, alignment, rows, column, by_hand(go))
    _outcomes(a, b)
    pair = f"{a_id} {b_id}"
    transport(pair, column, len(rows), go, "Row")
    autoplay(pair, column, len(rows), 400, go)


def aligned(a: Recording, b: Recording) -> Alignment:
    """The alignment of two recordings, remembered once both are finished. Its rows are the same whichever
    side is A, so that swapping keeps the row."""
    if a.episode.id > b.episode.id:
        return mirror(aligned(b, a))
    over = all(one.episode.status is Status.FINISHED for one in (a, b))
    return (_remembered_alignment if over else _alignment)(a.store, a.episode.id, b.episode.id)


def _alignment(store: Store, a: str, b: str) -> Alignment:
    episodes = store.episodes
    return align(*(moves(episodes.outline(one), episodes.replies(one, TEXT_CUT)) for one in (a, b)))


_remembered_alignment = remembered(most=64)(_alignment)


def visible(alignment: Alignment, mode: str) -> list[int]:
    """Indices of the rows that a mode shows."""
    rows = range(len(alignment.rows))
    if mode == "differences":
        return [i for i in rows if not alignment.rows[i].same_choice]
    if mode == "after":
        start = alignment.first_divergence
        return [] if start is None else [i for i in rows if i >= start]
    return list(rows)


def _choose() -> None:
    st.header("Two episodes")
    st.write("Tick two episodes in the list, or press Compare in a replay, to lay them side by side.")
    state.page_link("episodes", "Choose episodes", icon=":material/table_rows:")


def _header(a: Recording, b: Recording | None) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="tools_head"):
        if tool("Episodes", "back_to_list", icon="arrow_back"):
            state.back_to_list()
        tool("Swap sides", "swap", _swap, icon="swap_horiz", shortcut="A", disabled=b is None)
        if b is not None:
            tool("First divergence", "to_divergence", _to_divergence, icon="flag", shortcut="F")
            save_button(a.store, a.summary.id, b.summary.id)
    question_heading(a.episode)
    others = a.store.episodes.same_task(a.summary.id, limit=50)
    if not others and b is None:
        st.info("No other episode has played this task: run it under another policy to compare.")
        return
    chosen_b = None if b is None else b.summary
    left, right = st.columns(2)
    with left:
        rest = [one for one in others if b is None or one.id != b.summary.id]
        _picker(a.store, "a", a.summary, [a.summary, *rest])
    with right:
        _picker(a.store, "b", chosen_b, others)


def _picker(
    store: Store, name: str, current: EpisodeSummary | None, options: Sequence[EpisodeSummary]
) -> None:
    """A choice among the episodes of the task; the address stays the one owner of what is chosen."""
    known = {one.id: one for one in options} | ({current.id: current} if current else {})
    names = generation_of(store)

    def write(episode_id: str | None) -> None:
        stop()
        state.set_params(**{name: episode_id, "t": None})

    state.select(
        f"Episode {name.upper()}",
        {episode_id: _option(one, names) for episode_id, one in known.items()},
        None if current is None else current.id,
        write,
        key=f"pick_{name}",
        index=None,
        placeholder="Choose an episode of the same task",
    )


def _option(summary: EpisodeSummary, names: Generations) -> str:
    word = outcome_mark(summary.status, summary.correct).word
    return one_line(f"{decider_words(summary, names)} · {word} · {summary.turns} turns · {summary.id}", 120)


def _swap() -> None:
    stop()
    state.set_params(a=state.param("b"), b=state.param("a"))


def _to_divergence() -> None:
    stop()
    state.set_params(t=None)


def _outcomes(a: Recording, b: Recording) -> None:
    ours, theirs = _end(a), _end(b)
    told = [(name, words, theirs[name], "") for name, words in ours.items()]
    used = [tuple(map(label, line)) for line in totals(a.summary, b.summary)]
    markdown_table(("", "A", "B", "B minus A"), [*told, *used], "llll")
    sides = {side.summary.id: side.summary for side in (a, b)}  # they may be one and the same
    for column, summary in zip(st.columns(2), sides.values(), strict=False):
        with column:
            luck_line(a.store, summary)


def _end(recording: Recording) -> dict[str, str]:
    """Who decided an episode, the answer it gave, the one expected, and why it ended, as markdown."""
    summary = recording.summary
    ended = ended_words(summary)
    given = f"{label(summary.answer, 40)} " if summary.answer else ""
    return {
        "Policy": label(decider_words(summary, generation_of(recording.store)), 90),
        "Answer": f"{given}{outcome_badge(summary)}",
        "Expected": label(recording.episode.task.answer, 40),
        "Ended": ended if summary.status is Status.FINISHED else summary.status.value,
    }


def first_other_answer(a: Recording, b: Recording, alignment: Alignment) -> int | None:
    """The first row after which the answers in force differ; None when none does."""
    for i, row in enumerate(alignment.rows):
        if row.a is not None and row.b is not None:
            ours, theirs = a.outlines[row.a], b.outlines[row.b]
            if ours.answer_after != theirs.answer_after:
                return i
    return None


def _mode(a: Recording, b: Recording, alignment: Alignment) -> str:
    first, other = alignment.first_divergence, first_other_answer(a, b, alignment)
    words = " ".join(
        f"The {what} never differ." if row is None else f"The {what} first differ in **row {row + 1}**."
        for what, row in (("choices", first), ("answers", other))
    )
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        chosen = state.address_select("Rows", MODES, name="rows", key="pair_mode")
        st.markdown(f":material/flag: {words}")
    st.caption(RULE_IN_SHORT, help=RULE)
    return chosen


def _strips(
    a: Recording,
    b: Recording,
    alignment: Alignment,
    rows: Sequence[int],
    column: int,
    go: Callable[[int], None],
) -> None:
    shown = [alignment.rows[i] for i in rows]
    flags = [i == alignment.first_divergence for i in rows]
    turn_strip(
        [_lane("A", a, [row.a for row in shown], flags), _lane("B", b, [row.b for row in shown], flags)],
        column,
        go,
        key="pair_strip",
        name="Aligned turns of both episodes",
        said=_said(a, b, alignment, rows[column]),
        plain=bool(st.session_state.get("plain_strip", False)),
    )
    if max(len(a.outlines), len(b.outlines)) > MOST_ALIGNED:
        st.caption(f"Only the first {MOST_ALIGNED} turns of each side are aligned.")


def _lane(name: str, side: Recording, turns: Sequence[int | None], flags: Sequence[bool]) -> Lane:
    """A side's turns in their columns, flagged where `flags` says so."""
    drawn = cells(side.outlines, side.models, running=side.running)
    placed: list[StripCell | None] = []
    for turn, flagged in zip(turns, flags, strict=True):
        cell = None if turn is None else drawn[turn]
        if flagged and cell is not None:
            cell = replace(cell, marks=(_FLAG, *cell.marks), label=f"first divergence, {cell.label}")
        placed.append(cell)
    return Lane(tuple(placed), name)


def _said(a: Recording, b: Recording, alignment: Alignment, row: int) -> str:
    at = alignment.rows[row]
    ours, theirs = (
        "no turn" if turn is None else turn_words(side.outlines[turn], len(side.outlines))
        for side, turn in ((a, at.a), (b, at.b))
    )
    return f"Row {row + 1} of {len(alignment.rows)}, {ALIGNMENT_WORDS[at.cost]}. A: {ours}. B: {theirs}"


def _row(a: Recording, b: Recording, alignment: Alignment, row: int) -> None:
    at = alignment.rows[row]
    flag = " :blue-badge[:material/flag: first divergence]" if row == alignment.first_divergence else ""
    st.markdown(f"**Row {row + 1} of {len(alignment.rows)}** · {ALIGNMENT_WORDS[at.cost]}{flag}")
    if at.a is not None and at.b is not None:
        left, right = st.columns(2)
        with left, st.container(border=True):
            _both_decisions(a, at.a, b, at.b)
        with right, st.container(border=True):
            st.markdown("**From A's words to B's**")
            _reply_diff(a.text(at.a).said, b.text(at.b).said, row)
    for column, (side, recording, turn) in zip(st.columns(2), (("A", a, at.a), ("B", b, at.b)), strict=True):
        with column, st.container(border=True):
            _card(side, recording, turn)


def _reply_diff(reply_a: str, reply_b: str, row: int) -> None:
    """What only one of two replies says, marked in the text of both."""
    if reply_a == reply_b:
        st.caption("Both say the same." if reply_a else "Both say nothing.")
        return
    st.caption("One text for both: what only one of them says is marked.")
    diff_block(reply_a, reply_b, key=f"words_{row}", sides=("only A", "only B"))


def _card(side: str, recording: Recording, turn: int | None) -> None:
    if turn is None:
        st.markdown(f"**{side}**")
        st.caption("No turn here.")
        return
    state.page_link(
        "replay",
        f"**{side}** · open in Replay",
        icon=":material/smart_display:",
        ep=recording.summary.id,
        t=turn + 1,
    )
    turn_card(
        recording.outlines,
        turn,
        recording.text,
        recording.decision(turn),
        key=f"pair_{side.lower()}",
        tab=f"show_{side.lower()}",
        running=recording.running,
    )


def _both_decisions(a: Recording, turn_a: int, b: Recording, turn_b: int) -> None:
    st.markdown("**Both decisions**")
    da, db = a.decision(turn_a), b.decision(turn_b)
    if da is None or db is None or not (da.model_probs or db.model_probs):
        st.caption("Neither policy has a head here: there are no probabilities to compare.")
        return
    figure = two_choices(da, a.models, db, b.models)
    figure.update_xaxes(range=[0, 1.7])  # beside a full bar its words have room on a phone, too
    alt = "Probability of each model and role under A and under B."
    plot(figure, key="both_decisions", small=True, alt=alt)
    found = choice_kls(da, a.models, db, b.models)
    if found is None:
        st.caption("The decisions cannot be compared: one side has no head, or its pool has other slots.")
        return
    models, roles = found
    st.caption(
        f"B compared with A: {apart_words(da, a.models, db, b.models, models + roles)}",
        help=f"Models {models:.3f}, roles {roles:.3f}. D_KL(A ‖ B). {define('KL divergence')}",
    )


def row_kl(a: Recording, b: Recording, rows: Sequence[AlignmentRow]) -> list[float | None]:
    """For each row D_KL(A || B) of the joint choice, in nats; None as `choice_kls` has it, and where a side has no
    turn. Model and role are drawn independently, so it is the sum of both softmaxes'."""
    ours, theirs = _decisions(a), _decisions(b)
    found: list[float | None] = []
    for row in rows:
        kls = None
        if row.a is not None and row.b is not None and row.a < len(ours) and row.b < len(theirs):
            kls = choice_kls(ours[row.a], a.models, theirs[row.b], b.models)
        found.append(None if kls is None else sum(kls))
    return found


def choice_kls(
    a: Decision, a_models: Sequence[str], b: Decision, b_models: Sequence[str]
) -> tuple[float, float] | None:
    """D_KL(A || B) of both softmaxes, models' and roles', in nats; None where a side has no head, or the pools
    differ."""
    both = (a.model_probs, b.model_probs, a.role_probs, b.role_probs)
    if not all(both) or set(a_models) != set(b_models):
        return None
    theirs = [b.model_probs[list(b_models).index(name)] for name in a_models]
    return kl_divergence(a.model_probs, theirs), kl_divergence(a.role_probs, b.role_probs)


def _decisions(side: Recording) -> list[Decision]:
    """All decisions of a side in one query, cached once it is finished."""
    finished = side.episode.status is Status.FINISHED
    return (_remembered_decisions if finished else read_decisions)(side.store, side.episode.id)


_remembered_decisions = remembered(most=32)(read_decisions)


def rows_panel(
    a: Recording,
    b: Recording,
    alignment: Alignment,
    rows: Sequence[int],
    column: int,
    go: Callable[[int], None],
) -> None:
    """One line per row that is shown, the first divergence pinned above what must be scrolled. Selecting a line goes
    there, and either side's cell opens its turn in Replay."""
    first = alignment.first_divergence
    listed = list(rows[:MOST_ROWS])
    if first is not None and first in rows and len(listed) > IN_SIGHT:
        listed.insert(0, first)
    table = row_lines(a, b, alignment, listed, rows[column])
    config = {
        "A": st.column_config.LinkColumn("A, opens Replay", display_text=r"#(.*)$", width=190),
        "B": st.column_config.LinkColumn("B, opens Replay", display_text=r"#(.*)$", width=190),
        "Row": st.column_config.TextColumn("Row", width=90, pinned=True),
        "B minus A": st.column_config.NumberColumn("Tokens, B minus A", format="%+d", width=130),
        "KL": st.column_config.NumberColumn(
            "KL divergence",
            format="%.3f",
            width=110,
            help=f"0 means the same decision. D_KL(A ‖ B): {define('KL divergence')}",
        ),
    }
    key = "pair_rows"

    def chosen() -> None:
        picked = state.rows(key)
        # Choosing the chosen line again takes the choice back: it is meant all the same.
        line = picked[0] if picked else st.session_state.get("pair_row_last", 0)
        st.session_state["pair_row_last"] = line
        if line < len(listed):
            go(rows.index(listed[line]))

    st.dataframe(
        table,
        key=key,
        hide_index=True,
        height=height_of(min(len(listed), IN_SIGHT)),
        placeholder="–",
        column_config=config,
        on_select=chosen,
        selection_mode="single-row",
        alt="Aligned turns of both episodes, one row per pair",
    )
    if len(rows) > MOST_ROWS:
        st.caption(f"The first {MOST_ROWS} of {len(rows):,} rows.")


def row_lines(a: Recording, b: Recording, alignment: Alignment, rows: Sequence[int], at: int) -> pd.DataFrame:
    """The table of `rows`: choice and verdict of either side as a link to its turn, the answers after it, tokens B
    minus A, divergence, and what pairs the two turns. `at` is the row that the page shows in full."""
    pairs = [alignment.rows[i] for i in rows]
    lines = []
    for i, row, kl in zip(rows, pairs, row_kl(a, b, pairs), strict=True):
        flag = "⚑" if i == alignment.first_divergence else ""
        x, y = _tokens(a, row.a), _tokens(b, row.b)
        lines.append(
            {
                "Row": " ".join(part for part in (flag, str(i + 1), "◀" if i == at else "") if part),
                "A": _choice_link(a, row.a),
                "Answer of A": _answer(a, row.a),
                "B": _choice_link(b, row.b),
                "Answer of B": _answer(b, row.b),
                "B minus A": None if x is None or y is None else y - x,
                "KL": kl,
                "What differs": "first divergence: " * bool(flag) + ALIGNMENT_WORDS[row.cost],
            }
        )
    return pd.DataFrame(lines)


def _choice_link(side: Recording, turn: int | None) -> str | None:
    """Role, model and verdict, as the part of a link that its cell shows."""
    if turn is None:
        return None
    outline = side.outlines[turn]
    look = ROLE_STYLES[outline.role]
    mark = verdict_of(outline)
    words = f"{look.shape} {look.letter} {one_line(outline.model, 24)}"
    words += f" {mark.glyph} {mark.word}" if mark else ""
    return f"{state.href('replay', ep=side.summary.id, t=turn + 1)}#{quote(words)}"


def _answer(side: Recording, turn: int | None) -> str:
    if turn is None:
        return "–"
    outline = side.outlines[turn]
    if outline.answer_after is None:
        return "no answer yet"
    mark = correct_mark(outline.correct_after)
    return f"{mark.glyph} {one_line(outline.answer_after, 30)} {mark.word}"


def _tokens(side: Recording, turn: int | None) -> int | None:
    return None if turn is None else side.outlines[turn].tokens_in + side.outlines[turn].tokens_out


if __name__ == "__main__":
    state.run(show)
