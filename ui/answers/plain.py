"""Answers as JSON has them: every number as it is, no number as words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from core.episode import ROLE_ORDER
from storage.analysis.counterfactual import Rescored
from ui.answers.blocks import (
    Answer,
    Areas,
    Bars,
    Cell,
    Cloud,
    Code,
    Curve,
    Drawn,
    Estimate,
    Estimates,
    Flow,
    Grid,
    Kind,
    Point,
    Points,
    Strip,
    Table,
    Tree,
    Trend,
    Way,
)
from ui.presentation.words import move_key


def answer(one: Answer) -> dict[str, Any]:
    """An answer by the names of its parts: what was chosen, the sentence, each block under its own key."""
    blocks = [block for block in (*one.blocks, *one.measured) if not isinstance(block, str)]
    return {
        "question": one.question,
        "answer": one.sentence,
        **{choice.name: choice.value for choice in one.choices},
        **{block.key: values(block) for block in blocks},
        "measured": [note for note in one.measured if isinstance(note, str)],
    }


def values(block: Drawn) -> Any:
    """What a block holds."""
    match block:
        case Table(columns, rows):
            kept = [
                (i, column)
                for i, column in enumerate(columns)
                if column.kind != "link" and any(row[i] != "" for row in rows)
            ]
            return [{column.key: _value(row[i], column.kind) for i, column in kept} for row in rows]
        case Estimates(lines):
            return [{"name": one.name, **_side(one.mark.side), **estimate(one.estimate)} for one in lines]
        case Grid(rows, columns, axes, cells, places=places):
            return [
                {axes[0]: row, axes[1]: column, **_cell(cell, places)}
                for row, of in zip(rows, cells, strict=True)
                for column, cell in zip(columns, of, strict=True)
                if cell.value is not None
            ]
        case Bars(groups, series):
            return {one.name: dict(zip(groups, one.counts, strict=True)) for one in series}
        case Curve(lines, places=places):
            return {name: [_point(point, places) for point in points] for name, points in lines.items()}
        case Trend(traces, bands=bands, places=places):
            named = {one.name: [_point(point, places) for point in one.points] for one in traces}
            ends = {
                name: [{"x": x, "low": low, "high": high} for x, low, high in band]
                for name, band in bands.items()
            }
            return named | ends
        case Areas(x, areas, axes):
            return [
                {axes[0]: at, **{one.name: one.shares[place] for one in areas}} for place, at in enumerate(x)
            ]
        case Strip(found):
            return _choices(found)
        case Points(points):
            return [_point(point) for point in points]
        case Cloud(dots):
            return [{"name": one.name, "x": one.x, "y": one.y} for one in dots]
        case Flow(_, arrows):
            return [{"step": one.name, "n": one.n, "share": one.share} for one in arrows]
        case Tree(paths):
            return [{"moves": [move_key(move) for move in one.moves], "right": one.right} for one in paths]
        case Code(text):
            return text


def _choices(found: Rescored) -> list[dict[str, Any]]:
    """What the head of every generation would choose at every recorded turn."""
    return [
        {
            "episode": line.episode.id,
            "turn": line.index + 1,
            "generation": generation,
            "model": found.models[found.slots[row, column]],
            "role": ROLE_ORDER[found.roles[row, column]],
            "p": float(found.chances[row, column]),
            "unsure": bool(found.unsure[row, column]),
        }
        for row, line in enumerate(found.lines)
        for column, generation in enumerate(found.generations)
    ]


def estimate(one: Estimate) -> dict[str, Any]:
    """`k` of `n` where it counts something, the share (or difference) and its interval."""
    counts = {} if one.n is None else {"k": one.k, "n": one.n}
    return {**counts, "share": one.value, "ci95": one.ci95}


def _value(value: Any, kind: Kind) -> Any:
    if isinstance(value, float):  # two databases add up in different orders
        return float(f"{value:.12g}")
    if isinstance(value, Estimate):
        found = estimate(value)
        return {"difference": found.pop("share"), **found} if kind == "difference" else found
    return value.words if isinstance(value, Way) else value


def _side(letter: str) -> Mapping[str, str]:
    return {"side": letter} if letter else {}


def _cell(cell: Cell, places: int | None) -> dict[str, Any]:
    if places is not None:
        return {"value": cell.value}
    return {"share": cell.value, **({"ci95": cell.ci95} if cell.ci95 else {})}


def _point(one: Point, places: int | None = None) -> dict[str, Any]:
    named, found = {"name": one.name} if one.name else {}, estimate(one.estimate)
    value = found if places is None else {"n": one.estimate.n, "value": one.estimate.value}
    return {**named, **_side(one.mark.side), "x": one.x, **value}


def page(parts: Mapping[str, Sequence[Answer]]) -> dict[str, Any]:
    """All answers by their keys, whatever part they are of."""
    return {one.key: answer(one) for of in parts.values() for one in of}
