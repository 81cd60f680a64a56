"""An analysis as a command: its answers as tables, as JSON, or as a page of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from core.episode import Role
from core.errors import ConfigError
from ui.cli.console import (
    JsonOption,
    StoreOption,
    interval,
    opened_store,
    percent,
    print_json,
    print_table,
    tell,
    write_new,
)
from ui.cli.filters import FlagOption, PolicyOption, RunOption, WhereOption, filter_of

if TYPE_CHECKING:
    from ui.answers.asked import Asked
    from ui.answers.blocks import Answer, Block, Column, Estimate

#: Of a table, so many rows are printed.
_MOST_ROWS = 30
PartOption = Annotated[
    list[str] | None,
    typer.Option("--part", metavar="PART", help="Only this part of the answers; repeatable."),
]
AgainstOption = Annotated[
    str | None, typer.Option("--against", metavar="POLICY", help="Set --policy (A) against this one (B).")
]
ChoiceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--choose", metavar="NAME=VALUE", help="A choice within a question, as the page's address has it."
    ),
]
HtmlOption = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Write the answers as a web page that needs no network."),
]


def command(name: str, about: str) -> Callable[..., None]:
    """The command that answers the questions of the analysis of this name."""

    def run(
        where: WhereOption = None,
        run: RunOption = None,
        policy: PolicyOption = None,
        flag: FlagOption = None,
        against: AgainstOption = None,
        part: PartOption = None,
        choose: ChoiceOption = None,
        store: StoreOption = None,
        as_json: JsonOption = False,
        html: HtmlOption = None,
    ) -> None:
        from ui.answers.asked import asked_of

        chosen = filter_of(where, run, policy, flag)
        with opened_store(store) as opened:
            give(name, asked_of(opened, chosen, against, choices_of(choose)), part, as_json, html)

    run.__doc__ = f"{about}\n\n[dim]$[/] trinity {name} --policy random"
    return run


def give(name: str, asked: Asked, part: Sequence[str] | None, as_json: bool, html: Path | None) -> None:
    """Print the answers of an analysis, or write them as a page."""
    from ui.answers import pages, plain

    found = pages.answers(name, asked, part or ())
    asked.refuse_unknown(one for of in found.values() for one in of)
    if html is not None:
        from ui.export.analysis import analysis_page

        write_new(html, analysis_page(name, asked.counts(), found))
    elif as_json:
        print_json({"episodes": asked.counts(), **plain.page(found)})
    else:
        tell_answers(one for of in found.values() for one in of)


def choices_of(written: Sequence[str] | None) -> dict[str, str]:
    """What --choose says, by name."""
    return dict(_chosen(one) for one in written or ())


def _chosen(written: str) -> tuple[str, str]:
    name, equals, value = written.partition("=")
    if not equals:
        raise ConfigError(f"--choose '{written}' lacks its value: write NAME=VALUE.")
    return name, value


def tell_answers(found: Iterable[Answer]) -> None:
    """Print answers, each with its question and all that it rests on."""
    for i, one in enumerate(found):
        if i:
            tell()
        tell(one.question, "bold")
        tell(one.sentence)
        for block in (*one.blocks, *(block for block in one.measured if not isinstance(block, str))):
            _tell_block(block)


def _tell_block(block: Block) -> None:
    from ui.answers.blocks import Bars, Code, Curve, Estimates, Grid, Points, Table

    match block:
        case str():
            tell(block, "dim")
        case Table(columns, rows, title):
            kept = [
                (i, column)
                for i, column in enumerate(columns)
                if column.kind not in ("link", "data") and any(row[i] not in ("", None) for row in rows)
            ]
            _table(
                [
                    ("" if column.kind in ("words", "role", "way", "id") else ">") + column.words
                    for _, column in kept
                ],
                [[_cell(column, row[i]) for i, column in kept] for row in rows],
                title,
            )
        case Estimates(lines, along, signed, title):
            _table(
                ["", ">share" if not signed else ">points", "95 %", ">of"],
                [
                    (f"{one.mark.side} {one.name}".strip(), *_estimate(one.estimate, signed), one.estimate.n)
                    for one in lines
                    if one.name
                ],
                title or along,
            )
        case Grid(rows, columns, axes, cells, signed, _, title):
            show = _points if signed else percent
            _table(
                [f"{axes[0]} \\ {axes[1]}", *(f">{name}" for name in columns)],
                [
                    (
                        name,
                        *(f"{show(cell.value)}{cell.sign}" if cell.value is not None else "" for cell in of),
                    )
                    for name, of in zip(rows, cells, strict=True)
                ],
                title,
            )
        case Bars(groups, series, axes, _, title):
            counts = zip(*(one.counts for one in series), strict=True)
            _table(
                [axes[0], *(f">{one.name}" for one in series)],
                [(group, *of) for group, of in zip(groups, counts, strict=True)],
                title,
            )
        case Curve(lines, axes, title):
            _table(
                ["", f">{axes[0]}", f">{axes[1]}", "95 %", ">of"],
                [
                    (name, f"{one.x:g}", *_estimate(one.estimate), one.estimate.n)
                    for name, points in lines.items()
                    for one in points
                ],
                title,
            )
        case Code(text):
            tell(text)
        case Points(points, axes, title):
            _table(
                ["", f">{axes[0]}", f">{axes[1]}", "95 %"],
                [
                    (f"{one.mark.side} {one.name}".strip(), f"{one.x:,.4g}", *_estimate(one.estimate))
                    for one in points
                ],
                title,
            )


def _table(headings: Sequence[str], rows: Sequence[Sequence[object]], title: str) -> None:
    if rows:
        if title:
            tell(title, "dim")
        print_table(headings, rows[:_MOST_ROWS])
        if len(rows) > _MOST_ROWS:
            tell(f"{len(rows) - _MOST_ROWS:,} more: --json has all.", "dim")


def _estimate(one: Estimate, signed: bool = False) -> tuple[str, str]:
    value = _points(one.value) if signed else percent(one.value)
    return value, interval(one.ci95) if one.ci95 else "-"


def _points(change: float | None) -> str:
    return "-" if change is None else f"{100 * change:+.1f}"


def _cell(column: Column, value: Any) -> object:
    if value is None:
        return "-"
    match column.kind:
        case "estimate":
            share, ends = _estimate(value)
            return f"{share} ({ends})" if value.ci95 else share
        case "count":
            return f"{value:,}"
        case "number":
            return f"{value:,.{column.places}f}"
        case "part" | "share":
            return percent(value)
        case "points":
            return _points(value)
        case "difference":
            from ui.presentation.comparison import difference_words

            return difference_words(value.value, value.ci95)
        case "p":
            from ui.presentation.comparison import p_words

            return p_words(value)
        case "way":
            return value.words
        case "usd" | "role":
            from ui.presentation.words import cost_words, role_word

            return cost_words(value) if column.kind == "usd" else role_word(Role(value))
    return value
