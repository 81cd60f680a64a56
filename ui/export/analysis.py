"""A self-contained HTML page of an analysis: its questions, their answers, and every picture as a table with bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.episode import Role
from ui.answers.blocks import (
    Answer,
    Bars,
    Block,
    Code,
    Column,
    Curve,
    Drawn,
    Estimate,
    Estimates,
    Flow,
    Grid,
    Points,
    Table,
    Tree,
)
from ui.answers.pages import ANALYSES
from ui.export.page import environment
from ui.presentation.comparison import difference_words, p_words
from ui.presentation.theme import percent
from ui.presentation.words import cost_words, role_word, share_words


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
    """What a block is on a saved page: headings (a number's begins with `>`) and rows of cells."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Shown]]


def analysis_page(name: str, counts: Mapping[str, int], found: Mapping[str, Sequence[Answer]]) -> str:
    """The page of an analysis. `counts`: how many episodes each selection has; `found`: answers by part."""
    shown = {
        part: [
            (one, [_shown(block) for block in one.blocks], [_shown(block) for block in one.measured])
            for one in of
        ]
        for part, of in found.items()
    }
    template = environment().get_template("analysis.html")
    return template.render(title=ANALYSES[name].title, counts=counts, parts=shown)


def _shown(block: Block) -> str | Rows:
    return block if isinstance(block, str) else rows_of(block)


def rows_of(block: Drawn) -> Rows:
    """A block as rows."""
    match block:
        case Table():
            return _table(block)
        case Flow() | Tree():  # their numbers stand in the table beside them
            return Rows("", (), ())
        case Code(text):
            return Rows("", ("",), [[Shown(text)]])
        case Estimates(lines, along, signed, title):
            ends = [end for one in lines for end in one.estimate.ci95 or ()]
            scale = (min([0.0, *ends]), max([0.0, *ends]) or 1.0) if signed else (0.0, 1.0)
            return Rows(
                title,
                ["", along, ">", ">of"],
                [
                    [Shown(_with_side(one.mark.side, one.name)), *_estimate(one.estimate, signed, scale)]
                    for one in lines
                    if one.name
                ],
            )
        case Grid(rows, columns, axes, cells, signed, top, title):
            most = top or max((abs(cell.value or 0.0) for of in cells for cell in of), default=0.0) or 1.0
            return Rows(
                title,
                [f"{axes[0]} \\ {axes[1]}", *(f">{name}" for name in columns)],
                [
                    [
                        Shown(name),
                        *(
                            Shown("", number=True)
                            if cell.value is None
                            else Shown(
                                _share(cell.value, signed) + cell.sign, True, heat=abs(cell.value) / most
                            )
                            for cell in of
                        ),
                    ]
                    for name, of in zip(rows, cells, strict=True)
                ],
            )
        case Bars(groups, series, axes, _, title):
            most = max((n for one in series for n in one.counts), default=0) or 1
            return Rows(
                title,
                [axes[0], *(one.name for one in series)],
                [
                    [Shown(group), *(Shown(f"{one.counts[i]:,}", bar=one.counts[i] / most) for one in series)]
                    for i, group in enumerate(groups)
                ],
            )
        case Curve(lines, axes, title):
            return Rows(
                title,
                ["", f">{axes[0]}", axes[1], ">", ">of"],
                [
                    [Shown(name), Shown(f"{one.x:g}", True), *_estimate(one.estimate)]
                    for name, points in lines.items()
                    for one in points
                ],
            )
        case Points(points, axes, title):
            return Rows(
                title,
                ["", f">{axes[0]}", axes[1], ">", ">of"],
                [
                    [
                        Shown(_with_side(one.mark.side, one.detail or one.name)),
                        Shown(f"{one.x:,.4g}", True),
                        *_estimate(one.estimate),
                    ]
                    for one in sorted(points, key=lambda one: one.x)
                ],
            )


def _with_side(letter: str, name: str) -> str:
    return f"{letter} · {name}" if letter else name


def _share(value: float, signed: bool) -> str:
    return f"{100 * value:+.1f}" if signed else percent(value)


def _estimate(one: Estimate, signed: bool = False, scale: tuple[float, float] = (0.0, 1.0)) -> list[Shown]:
    """A picture, the value with its interval, and of how many."""
    of = Shown("" if one.n is None else f"{one.n:,}", number=True)
    if one.value is None or one.ci95 is None:
        return [Shown(""), Shown(_words(one), number=True), of]
    low, high = scale
    places = [(end - low) / (high - low) for end in (one.ci95[0], one.value, one.ci95[1])]
    return [
        Shown("", interval=(places[0], places[1], places[2])),
        Shown(_words(one, signed), number=True),
        of,
    ]


def _words(one: Estimate, signed: bool = False) -> str:
    if one.value is None or one.ci95 is None:
        return "–" if one.value is None else _share(one.value, signed)
    if signed:
        return difference_words(one.value, one.ci95)
    return share_words(one.value, one.ci95)


def _table(block: Table) -> Rows:
    kept = [
        (i, column)
        for i, column in enumerate(block.columns)
        if column.kind not in ("link", "id", "data") and any(row[i] not in ("", None) for row in block.rows)
    ]
    return Rows(
        block.title,
        [
            ("" if column.kind in ("words", "role", "way", "part") else ">") + column.words
            for _, column in kept
        ],
        [[_cell(column, row[i]) for i, column in kept] for row in block.rows],
    )


def _cell(column: Column, value: Any) -> Shown:
    if value is None:
        return Shown("–", number=column.kind != "words")
    match column.kind:
        case "estimate":
            return Shown(_words(value), number=True)
        case "difference":
            return Shown(_words(value, signed=True), number=True)
        case "p":
            return Shown(p_words(value), number=True)
        case "way":
            return Shown(value.words)
        case "count":
            return Shown(f"{value:,}", number=True)
        case "number":
            return Shown(f"{value:,.{column.places}f}", number=True)
        case "part":
            return Shown(percent(value), bar=value)
        case "share":
            return Shown(percent(value), number=True)
        case "points":
            return Shown(f"{100 * value:+.1f}", number=True)
        case "role":
            return Shown(role_word(Role(value)))
        case "usd":
            return Shown(cost_words(value), number=True)
    return Shown(str(value))
