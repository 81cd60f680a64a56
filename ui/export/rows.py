"""Blocks of an answer as rows of cells, for doors that draw tables alone: the terminal and saved pages."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core.episode import Role
from ui.answers.blocks import (
    Areas,
    Bars,
    Cloud,
    Code,
    Column,
    Curve,
    Drawn,
    Estimate,
    Estimates,
    Flow,
    Grid,
    Point,
    Points,
    Strip,
    Table,
    Tree,
    Trend,
)
from ui.presentation.comparison import difference_words, p_words
from ui.presentation.theme import percent, signed_points
from ui.presentation.words import ago, cost_words, role_word, score_words, share_words


@dataclass(frozen=True, slots=True)
class Shown:
    """A cell: its text, whether it is a number, where a bar or an interval with its mark stands (0 to 1), and how
    strongly it is tinted (0 to 1)."""

    text: str
    number: bool = False
    bar: float | None = None
    interval: tuple[float, float, float] | None = None
    heat: float | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """What a block is without its picture: headings (a number's begins with `>`) and rows of cells."""

    title: str = ""
    headings: Sequence[str] = ()
    rows: Sequence[Sequence[Shown]] = ()


def rows_of(block: Drawn, *, ids: bool = False) -> Rows:
    """A block as rows, with `ids` for whoever has no links; none of a flow, a tree or a strip, whose numbers stand in
    the table beside them."""
    match block:
        case Table():
            return _table(block, ids)
        case Estimates():
            return _estimates(block)
        case Grid():
            return _grid(block)
        case Bars():
            return _bars(block)
        case Curve(places=places):
            found = [(name, point) for name, points in block.lines.items() for point in points]
            rows = [_point(name, one, ".4g", places) for name, one in found]
            return Rows(block.title, _along(block.axes), rows)
        case Trend():
            return _trend(block)
        case Areas(x, areas, axes):
            rows = [
                [Shown(f"{at:,.6g}", True), *(Shown(percent(one.shares[i]), True) for one in areas)]
                for i, at in enumerate(x)
            ]
            return Rows(block.title, [f">{axes[0]}", *(f">{one.name}" for one in areas)], rows)
        case Cloud():
            classes = Counter(one.name for one in block.dots).most_common()
            return Rows(
                block.title, ["", ">points"], [[Shown(name), Shown(f"{n:,}", True)] for name, n in classes]
            )
        case Points():
            named = [(_with_side(one.mark.side, one.detail or one.name), one) for one in block.points]
            named.sort(key=lambda one: one[1].x)
            return Rows(block.title, _along(block.axes), [_point(name, one, ",.4g") for name, one in named])
        case Code():
            return Rows("", ("",), [[Shown(block.text)]])
        case Flow() | Tree() | Strip():
            return Rows()


def _table(block: Table, ids: bool) -> Rows:
    hidden = ("link", "data") if ids else ("link", "data", "id")
    kept = [
        (i, column)
        for i, column in enumerate(block.columns)
        if column.kind not in hidden and any(row[i] not in ("", None) for row in block.rows)
    ]
    words = ("words", "role", "way", "part", "id")
    headings = [("" if column.kind in words else ">") + column.words for _, column in kept]
    return Rows(block.title, headings, [[_cell(column, row[i]) for i, column in kept] for row in block.rows])


def _estimates(block: Estimates) -> Rows:
    ends = [end for one in block.lines for end in one.estimate.ci95 or ()]
    scale = (min([0.0, *ends]), max([0.0, *ends]) or 1.0) if block.signed else (0.0, 1.0)
    rows = [
        [Shown(_with_side(one.mark.side, one.name)), *_estimate(one.estimate, block.signed, scale)]
        for one in block.lines
    ]
    return Rows(block.title, ["", "", f">{block.along}", ">of"], rows)


def _grid(block: Grid) -> Rows:
    values = (abs(cell.value or 0.0) for of in block.cells for cell in of)
    most = block.top or max(values, default=0.0) or 1.0

    def shown(value: float | None, sign: str) -> Shown:
        if value is None:
            return Shown("", number=True)
        words = _share(value, block.signed) if block.places is None else block.words(value)
        return Shown(words + sign, True, heat=abs(value) / most)

    return Rows(
        block.title,
        [f"{block.axes[0]} \\ {block.axes[1]}", *(f">{name}" for name in block.columns)],
        [
            [Shown(name), *(shown(cell.value, cell.sign) for cell in of)]
            for name, of in zip(block.rows, block.cells, strict=True)
        ],
    )


def _bars(block: Bars) -> Rows:
    most = max((n for one in block.series for n in one.counts), default=0) or 1
    counts = zip(*(one.counts for one in block.series), strict=True)
    rows = [
        [Shown(group), *(Shown(f"{n:,}", bar=n / most) for n in of)]
        for group, of in zip(block.groups, counts, strict=True)
    ]
    return Rows(block.title, [block.axes[0], *(one.name for one in block.series)], rows)


def _trend(block: Trend) -> Rows:
    """A row for every update, a column for every line."""
    lines = [{point.x: point.estimate for point in one.points} for one in block.traces]
    rows = [
        [
            Shown(f"{x:,.6g}", True),
            *(_estimate(one[x], places=block.places)[1] if x in one else Shown("") for one in lines),
        ]
        for x in sorted({x for one in lines for x in one})
    ]
    return Rows(block.title, [f">{block.axes[0]}", *(f">{one.name}" for one in block.traces)], rows)


def _along(axes: tuple[str, str]) -> list[str]:
    return ["", f">{axes[0]}", "", f">{axes[1]}", ">of"]


def _point(name: str, one: Point, form: str, places: int | None = None) -> list[Shown]:
    return [Shown(name), Shown(format(one.x, form), True), *_estimate(one.estimate, places=places)]


def _with_side(letter: str, name: str) -> str:
    return f"{letter} · {name}" if letter else name


def _share(value: float, signed: bool) -> str:
    return signed_points(value) if signed else percent(value)


def _estimate(
    one: Estimate, signed: bool = False, scale: tuple[float, float] = (0.0, 1.0), places: int | None = None
) -> list[Shown]:
    """A picture, the value with its interval, and of how many; `places`: decimals of a value that is no share."""
    said = _words(one, signed) if places is None or one.value is None else f"{one.value:,.{places}f}"
    words, of = Shown(said, True), Shown("" if one.n is None else f"{one.n:,}", number=True)
    if one.value is None or one.ci95 is None:
        return [Shown(""), words, of]
    low, high = scale
    begin, mark, end = ((at - low) / (high - low) for at in (one.ci95[0], one.value, one.ci95[1]))
    return [Shown("", interval=(begin, mark, end)), words, of]


def _words(one: Estimate, signed: bool = False) -> str:
    if one.value is None or one.ci95 is None:
        return "–" if one.value is None else _share(one.value, signed)
    return difference_words(one.value, one.ci95) if signed else share_words(one.value, one.ci95)


def cell_words(column: Column, value: Any) -> str:
    """A value of a column in words."""
    return _cell(column, value).text


def _cell(column: Column, value: Any) -> Shown:
    if value is None:
        return Shown("–", number=column.kind != "words")
    match column.kind:
        case "words" | "link" | "id" | "data":
            return Shown(str(value))
        case "way":
            return Shown(value.words)
        case "role":
            return Shown(role_word(Role(value)))
        case "part":
            return Shown(percent(value), bar=value)
        case _:
            return Shown(_number(column, value), number=True)


def _number(column: Column, value: Any) -> str:
    match column.kind:
        case "estimate" | "difference":
            return _words(value, signed=column.kind == "difference")
        case "p":
            return p_words(value)
        case "count":
            return f"{value:,}"
        case "number":
            return f"{value:,.{column.places}f}"
        case "usd":
            return cost_words(value)
        case "score":
            return score_words(value)
        case "time":
            return ago(value, time.time())
    return _share(value, signed=column.kind == "points")
