"""Two episodes row by row, as a table: the choice and the answer of either side, and how far their decisions differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from urllib.parse import quote

import pandas as pd
import streamlit as st

from core.analysis.comparison import Alignment, AlignmentRow
from core.analysis.metrics import kl_divergence
from core.episode import Decision, Status
from storage.reads.episode_steps import read_decisions
from ui.presentation.comparison import ALIGNMENT_WORDS
from ui.presentation.course import verdict_of
from ui.presentation.glossary import define
from ui.presentation.theme import ROLE_STYLES, correct_mark, one_line
from ui.web.kit import state
from ui.web.kit.cache import remembered
from ui.web.kit.tables import height_of
from ui.web.turns.recording import Recording

#: A table of more rows than this is cut, and says so; the strip holds them all.
MOST_ROWS = 100
#: So many rows are seen without scrolling.
IN_SIGHT = 7


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


def aligned_rows(
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
                "A": _choice(a, row.a),
                "Answer of A": _answer(a, row.a),
                "B": _choice(b, row.b),
                "Answer of B": _answer(b, row.b),
                "B minus A": None if x is None or y is None else y - x,
                "KL": kl,
                "What differs": "first divergence: " * bool(flag) + ALIGNMENT_WORDS[row.cost],
            }
        )
    return pd.DataFrame(lines)


def _choice(side: Recording, turn: int | None) -> str | None:
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
