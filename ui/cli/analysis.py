"""An analysis as a command: its answers as tables, as JSON, or as a page of its own; `trinity compare` is one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from core.errors import ConfigError
from ui.answers.pages import ANALYSES
from ui.cli.console import print_json, print_table, tell, write_new
from ui.cli.options import Filter, JsonOption, StoreOption, opened_store, with_options

if TYPE_CHECKING:
    from storage.analysis.standings import PolicyInRun, PolicySide
    from ui.answers.asked import Asked
    from ui.answers.blocks import Answer
    from ui.export.rows import Rows

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
        "--choose", metavar="NAME=VALUE", help="A choice within a question, as in the page's address."
    ),
]
HtmlOption = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Write the answers as a web page that needs no network."),
]


def command(name: str, about: str) -> Callable[..., None]:
    """The command that answers the questions of the analysis of this name."""

    @with_options()
    def run(
        filter: Filter,
        against: AgainstOption = None,
        part: PartOption = None,
        choose: ChoiceOption = None,
        store: StoreOption = None,
        as_json: JsonOption = False,
        html: HtmlOption = None,
    ) -> None:
        from ui.answers.asked import asked_of

        with opened_store(store) as opened:
            give(name, asked_of(opened, filter.chosen(), against, choices_of(choose)), part, as_json, html)

    run.__doc__ = f"{about}\n\n[dim]$[/] trinity {ANALYSES[name].own_command or name} --policy random"
    return run


def give(name: str, asked: Asked, part: Sequence[str] | None, as_json: bool, html: Path | None) -> None:
    """Print the answers of an analysis, or write them as a page."""
    from ui.answers import pages, plain

    found = pages.answers(name, asked, part or ())
    asked.refuse_unknown(one for of in found.values() for one in of)
    if html is not None:
        from ui.export.page import analysis_page

        write_new(html, analysis_page(ANALYSES[name].title, asked.counts(), found))
    elif as_json:
        print_json({"episodes": asked.counts(), **plain.page(found)})
    else:
        tell_answers(one for of in found.values() for one in of)


def choices_of(written: Sequence[str] | None) -> dict[str, str]:
    """What --choose says, by name."""
    found = {}
    for one in written or ():
        name, equals, value = one.partition("=")
        if not equals:
            raise ConfigError(f"--choose '{one}' lacks its value: write NAME=VALUE.")
        found[name] = value
    return found


def compare(
    policies: Annotated[
        list[str],
        typer.Argument(
            metavar="A B [C ...]",
            help="Each a policy, a run, or RUN/POLICY. A is the baseline; flips, tasks and families are of B.",
        ),
    ],
    run: Annotated[str | None, typer.Option(help="Look for all policies in this run only.")] = None,
    part: PartOption = None,
    choose: ChoiceOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    html: HtmlOption = None,
) -> None:
    """Compare policies with a baseline over the tasks both finished: accuracies, flips, difference, p.

    The difference is theirs minus the baseline's with its paired interval of 95 % over tasks. p is McNemar's, exact;
    where tasks were played more than once it is that of sign flips by task. Forks and live plays never count.

    [dim]$[/] trinity compare single:jack cabc123 --run rp12

    [dim]$[/] trinity compare single:jack random cabc123 cdef456

    [dim]$[/] trinity compare rp12/random rp34/random --choose cell=only_b --choose page=all
    """
    from storage.analysis.standings import policies_with_episodes
    from ui.answers.asked import asked_of_policies, memory
    from ui.answers.policies import side_words
    from ui.presentation.words import generations_of

    with opened_store(store) as opened:
        if run is not None:
            opened.runs.get(run)
        played = policies_with_episodes(opened)
        sides = _sides(played, policies, run)
        say = side_words(played, generations_of(opened))
        asked = asked_of_policies(opened, sides, say, choices=choices_of(choose), remember=memory())
        give("checkpoints", asked, part, as_json, html)


def _sides(played: Sequence[PolicyInRun], names: Sequence[str], run: str | None) -> list[PolicySide]:
    """What the arguments name, in order. ConfigError or StoreError when they cannot be compared."""
    from storage.analysis.standings import find_side
    from ui.presentation.comparison import MOST_SIDES

    if not 2 <= len(names) <= MOST_SIDES:
        raise ConfigError(f"Name two to {MOST_SIDES} policies, the baseline first; these are {len(names)}.")
    sides: dict[PolicySide, str] = {}
    for name in names:
        found = find_side(played, name, run)
        if len(found) > 1:
            raise ConfigError(
                f"'{name}' was played under {len(found)} settings, which are not to be averaged: name "
                f"{' or '.join(side.token for side in found)}."
            )
        if found[0] in sides:
            raise ConfigError(
                f"'{sides[found[0]]}' and '{name}' are the same: name two policies, or one policy in two runs as "
                "RUN/POLICY."
            )
        sides[found[0]] = name
    return list(sides)


def tell_answers(found: Iterable[Answer]) -> None:
    """Print answers as tables."""
    from ui.answers.blocks import Code
    from ui.export.rows import rows_of

    for i, one in enumerate(found):
        if i:
            tell()
        tell(one.question, "bold")
        tell(one.sentence)
        for block in (*one.blocks, *(block for block in one.measured if not isinstance(block, str))):
            match block:
                case str():
                    tell(block, "dim")
                case Code():
                    tell(block.text)  # as it is, so that it can be copied
                case _:
                    _table(rows_of(block, ids=True))


def _table(found: Rows) -> None:
    """The cells that have words: a terminal draws no bars."""
    if not found.rows:
        return
    if found.title:
        tell(found.title, "dim")
    kept = [i for i in range(len(found.headings)) if any(row[i].text for row in found.rows)]
    rows = [[row[i].text for i in kept] for row in found.rows[:_MOST_ROWS]]
    print_table([found.headings[i] for i in kept], rows)
    if len(found.rows) > _MOST_ROWS:
        tell(f"{len(found.rows) - _MOST_ROWS:,} more: --json has all.", "dim")
