"""An answer on a page: its question, its sentence, its picture, what it rests on, and how it was measured."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any
from urllib.parse import quote

import plotly.graph_objects as go
import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.elements.lib.column_types import ColumnConfig

from ui.answers.blocks import (
    Answer,
    Areas,
    Bars,
    Block,
    Choice,
    Cloud,
    Code,
    Column,
    Curve,
    Drawn,
    Estimates,
    Flow,
    Grid,
    Mark,
    Points,
    Strip,
    Table,
    Tree,
    Trend,
)
from ui.export.rows import cell_words
from ui.presentation.glossary import define, is_word
from ui.presentation.theme import label
from ui.presentation.words import distinct
from ui.web.analysis import figures, flows, updates
from ui.web.kit import state
from ui.web.kit.figures import clickable, picked, plot
from ui.web.kit.tables import link, number, row_table, text
from ui.web.kit.widgets import ink, nothing_here, tool

#: A table of more rows than this scrolls.
_ROWS = 12
#: Words of more letters than this need more room in a table than others: so much a letter, and at most, in pixels.
_SHORT, _LETTER_PX, _MOST_PX = 60, 7, 1100
#: A grid of more columns than this scrolls sideways on a phone.
_ACROSS = 9
#: What `figure_of` draws.
_Pictured = Estimates | Grid | Bars | Curve | Trend | Areas | Strip | Points | Cloud | Flow | Tree
#: Of a sentence, so many characters are shown.
_SENTENCE = 900


def draw(one: Answer, page: str, *, first: bool = False) -> None:
    """Draw it; `page` begins the keys of what can be clicked. The first of a page says that this can be."""
    st.subheader(one.question, anchor=one.key, help=define(one.term) if one.term else None)
    for line in one.sentence.splitlines():
        st.markdown(label(line, _SENTENCE))
    if choices := [choice for choice in one.choices if len(choice.options) > 1]:
        with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
            for choice in choices:
                _choose(choice)
    for i, (block, place) in enumerate(zip(one.blocks, _places(one.blocks), strict=True)):
        with place:
            _block(block, one, page, f"{page}_{one.key}{i or ''}")
        if first and not i and any(mark.into or mark.to for mark in marks(one)):
            st.caption("Click a mark for what is behind it.")
    if one.ways:
        with st.container(horizontal=True):
            for way in one.ways:
                state.page_link(way.to.page, label(way.words), icon=":material/table_rows:", **way.to.params)


def _places(blocks: Sequence[Block]) -> Iterator[DeltaGenerator]:
    """Where each block is drawn: small ones, such as clouds, beside the next, all else one below the other."""
    for small, alike in groupby(blocks, _is_small):
        n = len(list(alike))
        across = 1 if not small else 4 if n == 4 else min(n, 3)
        for begin in range(0, n, across):
            yield from st.columns(across)[: n - begin] if small else [st.container()]


def _is_small(block: Block) -> bool:
    return isinstance(block, Cloud) or (isinstance(block, Trend | Areas | Grid) and block.small)


def draw_measured(answers: Sequence[Answer], page: str, further: Callable[[], None] = lambda: None) -> None:
    """How the answers of a part were measured, in one fold, and what a page has `further` to say."""
    if not any(one.measured for one in answers):
        return
    with st.expander("How this is measured", icon=":material/straighten:", key=f"{page}_measured"):
        for one in answers:
            if one.measured and len(answers) > 1:
                st.markdown(f"**{label(one.question)}**")
            for i, block in enumerate(one.measured):
                _block(block, one, page, f"{page}_{one.key}_measured{i}")
        further()


def marks(one: Answer) -> Iterator[Mark]:
    """What of an answer can be clicked."""
    for block in (*one.blocks, *one.measured):
        if not isinstance(block, str):
            yield from _marks(block)


def _marks(block: Drawn) -> list[Mark]:
    match block:
        case Estimates(lines):
            return [one.mark for one in lines]
        case Grid():
            return [cell.mark for of in block.cells for cell in of]
        case Bars():
            return list(block.marks)
        case Flow(nodes, arrows):
            return [*(one.mark for one in nodes), *(one.mark for one in arrows)]
        case Points(points):
            return [one.mark for one in points]
        case Cloud(dots):
            return [one.mark for one in dots]
        case Curve(lines):
            return [one.mark for line in lines.values() for one in line]
    return []


def _choose(choice: Choice) -> None:
    """What can be chosen within a question; a new choice is about other turns than those that were looked into."""

    def write(value: str | None) -> None:
        unsaid = choice.look == "segments" and value == next(iter(choice.options))
        state.set_params(**{**choice.also, choice.name: None if unsaid else value, "into": None})

    key = f"choose_{choice.name}"
    if choice.look == "several":
        st.session_state[key] = choice.value.split(",") if choice.value else []
        chosen = partial(_several, write, key, choice.options)
        options, names = list(choice.options), distinct(choice.options)
        if choice.most is None:
            st.pills(
                choice.words, options, key=key, selection_mode="multi", format_func=label, on_change=chosen
            )
        else:
            st.multiselect(
                choice.words,
                options,
                key=key,
                max_selections=choice.most,
                format_func=names.__getitem__,
                on_change=chosen,
            )
    elif choice.look == "list":
        state.select(choice.words, choice.options, choice.value, write, key=key, width=280)
    elif choice.look == "flip":
        other, words = next(
            (value, words) for value, words in choice.options.items() if value != choice.value
        )
        tool(words, key, partial(write, other), icon="swap_horiz")
    else:
        look = {"required": True, "label_visibility": "collapsed"}
        state.select(choice.words, choice.options, choice.value, write, key=key, widget="segments", **look)


def _several(write: Callable[[str], object], key: str, options: Collection[str]) -> None:
    write(",".join(state.entered(key, options) or ()))


def _block(block: Block, one: Answer, page: str, key: str) -> None:
    if isinstance(block, str):
        st.caption(label(block, _SENTENCE))
        return
    if block.title:
        help = define(block.term) if isinstance(block, Trend) and block.term else None
        st.markdown(f"**{label(block.title, 80)}**", help=help)
    if isinstance(block, Table):
        draw_table(block, key)
        return
    if isinstance(block, Code):
        st.code(block.text, language=None, wrap_lines=True)
        return
    if isinstance(block, Estimates | Points | Grid) and not _marks(block):
        nothing_here("Nothing of this kind is recorded here.")
        return
    if isinstance(block, Grid) and len(block.columns) > _ACROSS:
        with st.container(key=f"wide_{key}"):
            _figure(block, one, page, key)
        return
    _figure(block, one, page, key)


def _figure(block: _Pictured, one: Answer, page: str, key: str) -> None:
    """A picture, whose marks can be clicked where they lead anywhere."""
    found = _marks(block)
    figure, alt = figure_of(block), f"{one.question} {one.sentence}"
    to = {figures.key_of(mark): mark.to for mark in found if mark.to is not None}
    if to and all(address.page == page for address in to.values()):
        clickable(figure, lambda chosen: state.set_params(**to[chosen].params), key=key, alt=alt)
    elif to:
        chosen = picked(figure, key=key, alt=alt)
        if chosen and (address := to.get(str(chosen[0]))) is not None:
            state.go(address.page, **address.params)
    elif any(mark.into for mark in found):
        clickable(figure, _look_into, key=key, alt=alt)
    else:
        plot(figure, key=key, small=True, alt=alt)


def _look_into(into: str) -> None:
    state.set_params(into=into)


def figure_of(block: _Pictured) -> go.Figure:
    """The picture of a block."""
    match block:
        case Trend():
            return updates.trend(block)
        case Areas():
            return updates.areas(block, ink())
        case Strip():
            return updates.strip(block, ink())
        case Flow():
            return flows.flow(block)
        case Tree():
            return flows.tree(block)
        case Estimates():
            return figures.estimates(block)
        case Grid():
            return figures.grid(block, ink())
        case Bars():
            return figures.bars(block)
        case Curve():
            return figures.curve(block)
        case Points():
            return figures.marks(block)
        case Cloud():
            return figures.cloud(block)


def draw_table(block: Table, key: str) -> None:
    """A table; a column that says the same in every row is left out. A click on a row goes where the row leads."""
    way = {"on_select": partial(_lead, block, key), "selection_mode": "single-cell"} if block.leads else {}
    shown = [
        (i, column)
        for i, column in enumerate(block.columns)
        if column.kind not in ("id", "data") and any(row[i] not in ("", None) for row in block.rows)
    ]
    row_table(
        {column.key: _heading(column, _room(block, i)) for i, column in shown},
        [[_value(column, row[i]) for i, column in shown] for row in block.rows],
        key=key,
        at_most=_ROWS,
        height=390,
        placeholder="–",
        **way,
    )


def _lead(block: Table, key: str) -> None:
    rows = state.cell_rows(key)
    if rows and rows[0] < len(block.leads):
        state.set_params(**block.leads[rows[0]].params)


def _room(block: Table, column: int) -> int | None:
    """The width that long words need, in pixels; None where the table's own is enough."""
    longest = max((len(row[column]) for row in block.rows if isinstance(row[column], str)), default=0)
    return min(_LETTER_PX * longest, _MOST_PX) if longest > _SHORT else None


def _heading(column: Column, room: int | None) -> ColumnConfig:
    help = (define(column.help) if is_word(column.help) else column.help) or None
    match column.kind:
        case "estimate" | "difference":
            return text(column.words, help=f"{help or ''} With 95 % interval".strip())
        case "way":
            return link(column.words, r"#(.*)$", help=help, width=130)
        case "count":
            return number(column.words, "localized", help=help)
        case "number":
            return number(column.words, f"%.{column.places}f", help=help)
        case "share":
            return number(column.words, "%.1f %%", help=help)
        case "points":
            return number(column.words, "%+.1f", help=help)
        case "part":
            return st.column_config.ProgressColumn(
                column.words, format="%.1f %%", min_value=0, max_value=100, help=help
            )
        case "link":
            return link(column.words, column.link, help=help)
    return text(column.words, help=help, width=room)


def _value(column: Column, value: Any) -> Any:
    """What a cell holds: a number that the table writes, a link, else the words that every door has."""
    if value is None:
        return None
    match column.kind:
        case "count" | "number":
            return value
        case "points" | "part" | "share":
            return 100 * value
        case "way":
            return f"{state.href(value.to.page, **value.to.params)}#{quote(value.words)}"
        case "link":
            return state.href(value.page, **value.params)
    return cell_words(column, value)
