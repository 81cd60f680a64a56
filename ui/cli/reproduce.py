"""`trinity reproduce`: the paper's tables on a pool of one's own, beside what the paper published."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from core.errors import ConfigError
from core.fields import build_settings, validate_settings
from core.settings import DOORS
from ui.cli.analysis import tell_answers
from ui.cli.console import making_ready, print_json, print_table, progress, say, tell
from ui.cli.options import Given, JsonOption, MaxCostOption, StoreOption, opened_store, with_options
from ui.cli.play import agree, follow, tell_encoder, tell_what_came_back, tell_what_is_cut, tell_what_plays
from ui.runs.settings.batch import Suite

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.progress import Progress

    from storage.store import Store
    from ui.runs.paper.reproduction import Reproduction
    from ui.runs.paper.results import Checked
    from ui.runs.paper.tables import PlayedRow, Table, TableRow


@with_options(Suite)
def reproduce(
    context: typer.Context,
    *,
    table: Annotated[
        list[str] | None,
        typer.Argument(
            help="all (the rows of 2, 3 and 4 and the other ways to combine, in one list), 1, 2, 3, 4, 5, 6, 7, 9, "
            "12, parts, unseen, turns, selection, combinations, conductor, grids, grid-finals, label-grids or "
            "conductor-grids (settings tried). Left out: every table but the four of settings tried."
        ),
    ] = None,
    row: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ROW", help="Only this row of the tables, such as labels or evolved:svf; repeatable."
        ),
    ] = None,
    seeds: Annotated[
        str, typer.Option(help="Seeds, such as 0,1,2: every row is played once under each.")
    ] = "0,1,2",
    given: Given,
    max_cost: MaxCostOption = None,
    show: Annotated[
        bool, typer.Option("--show", help="Play nothing: print what the store holds of these tables.")
    ] = False,
    save: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Also write rows, intervals and digests, without episodes, to this JSON file; rows of the file that "
            "the store lacks are kept.",
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Also compare every row, seed by seed, with the results shipped with the program."
        ),
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Evolve, play and print the paper's tables, each row beside the paper's own.

    Every complete row is stored as a run: stop the command at any time and give it again to resume. A longer list of
    seeds adds to what is there.

    [dim]$[/] trinity reproduce 4 --seeds 0,1,2

    [dim]$[/] trinity reproduce --show --save results.json

    [dim]$[/] trinity reproduce 4 --row labels --seeds 0 --check
    """
    from ui.runs import wiring
    from ui.runs.grading import name_task_file
    from ui.runs.paper.tables import needed, read_rows, rows_of
    from ui.runs.settings import absolute_pool, absolute_tasks

    doors = {key: given.get(key) for key in DOORS if key not in ("max_cost_usd", "engine")}
    settings = wiring.settings(store=store, max_cost_usd=max_cost, **doors)
    wanted = _keep_rows(_tables(table), row)
    asked = build_settings(Suite, validate_settings(Suite, given))
    suite = replace(
        asked,
        pool=absolute_pool(settings.pool),
        encoder=wiring.encoder_for(settings.pool, settings.encoder),
        computing=settings.computing,
        tasks=absolute_tasks(asked.tasks),
        held_out=absolute_tasks(asked.held_out),
    )
    with opened_store(settings.store) as opened:
        if not show:
            for one in (suite.tasks, suite.held_out):
                name_task_file(opened, one)
            _play(opened, suite, needed(wanted), _seeds(seeds), settings.max_cost_usd)
        played = read_rows(opened, rows_of(opened, suite), {row.key for row in needed(wanted)})
        beside = _compare_with_shipped(opened, suite, wanted, played) if check else None
        _report(opened, suite, wanted, played, save, as_json, beside)
    if any(one.same_config and not one.same_outcomes for one in beside or ()):
        raise typer.Exit(1)


def _report(
    store: Store,
    suite: Suite,
    wanted: list[Table],
    played: Mapping[str, Sequence[PlayedRow]],
    save: str | None,
    as_json: bool,
    beside: list[Checked] | None,
) -> None:
    """Print what the store holds of these tables, and how it stands `beside` the shipped results; write it to the file
    `save`."""
    from ui.answers import plain
    from ui.answers.results import answers_of, played_here
    from ui.runs.paper import results

    if save is not None:
        say(f"{results.save(store, suite, wanted, played, Path(save)):,} rows in {save}")
    found = played_here(store, suite, wanted, played)
    answers = {one.table.id: answers_of(one) for one in found}
    differences = next((one.differences for one in found), None)
    if as_json:
        checked = (
            {"check": [{**asdict(one), "words": one.words} for one in beside]} if beside is not None else {}
        )
        print_json(
            {
                "suite": suite,
                "tables": {
                    one.table.id: {
                        "title": one.table.title,
                        "columns": one.table.published.columns,
                        "rows": [],
                        **plain.answer(answers[one.table.id][0]),
                        **({"cells": one.counted} if one.counted else {}),
                        **{answer.key: plain.answer(answer) for answer in answers[one.table.id][1:]},
                    }
                    for one in found
                },
                "differences": differences and {"n": len(differences.ps), "hold": len(differences.held)},
                **checked,
            }
        )
        return
    if not any(one.found or one.counted for one in found):
        tell("The store holds nothing of these tables for this suite: leave --show out to play them.")
    else:
        for one in found:
            if one.found or one.counted:
                tell(f"\n{one.table.published.name}: {one.table.title}", "bold")
                tell_answers(answers[one.table.id])
        if differences and (words := differences.words("these tables")):
            tell(f"\n{words}")
    if beside is not None:
        _print_checked(beside)


def _compare_with_shipped(
    store: Store, suite: Suite, wanted: list[Table], played: Mapping[str, Sequence[PlayedRow]]
) -> list[Checked]:
    """What the store holds of these tables beside the shipped results."""
    from ui.runs.paper import results

    found = []
    for name in dict.fromkeys(results.file_of(table) for table in wanted):
        shipped = results.shipped(name)
        if shipped is None:
            raise ConfigError("No results came with this program, so there is nothing to check against.")
        own = [table for table in wanted if results.file_of(table) == name]
        found += results.check(store, suite, own, played, shipped)
    return found


def _print_checked(found: list[Checked]) -> None:
    tell()
    if not found:
        tell("The shipped results have none of these rows and seeds, so there is nothing to compare.")
        return
    tell("Compared with the results that came with the program:", "bold")
    print_table(
        ["row", ">seed", ">shipped", ">here", "compared"],
        [(one.label, one.seed, f"{one.there:.4g}", f"{one.here:.4g}", one.words) for one in found],
    )


def _tables(names: list[str] | None) -> list[Table]:
    from ui.runs.paper.results import GRID_NAMES
    from ui.runs.paper.tables import TABLES

    unknown = [name for name in names or () if name not in TABLES]
    if unknown:
        raise ConfigError(f"There is no table '{unknown[0]}' to reproduce: choose {', '.join(TABLES)}.")
    return [TABLES[name] for name in dict.fromkeys(names or [one for one in TABLES if one not in GRID_NAMES])]


def _keep_rows(tables: list[Table], rows: list[str] | None) -> list[Table]:
    """The tables with these rows alone; all of theirs where none is named."""
    if not rows:
        return tables
    known = dict.fromkeys(row.key for table in tables for row in table.rows)
    unknown = [name for name in rows if name not in known]
    if unknown:
        raise ConfigError(f"These tables have no row '{unknown[0]}': choose {', '.join(known)}.")
    chosen = [replace(one, rows=tuple(row for row in one.rows if row.key in rows)) for one in tables]
    return [one for one in chosen if one.rows]


def _seeds(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) < 2**63 for part in parts):
        raise ConfigError(f"Seeds '{text}' are not understood: give numbers such as 0,1,2.")
    return list(dict.fromkeys(int(part) for part in parts))


def _play(store: Store, suite: Suite, rows: list[TableRow], seeds: list[int], ceiling: float | None) -> None:
    """Play what the store lacks, seed after seed."""
    from core.pool.spec import slots_of
    from ui.runs import wiring
    from ui.runs.paper.reproduction import Reproduction, episodes_at_most, possible
    from ui.runs.spending import MeteredPool, Price, estimate

    pool = wiring.resolve_pool(suite.pool)
    tell_what_plays(suite.pool, pool.specs)
    n = len(slots_of(pool.specs))
    played = list(possible(rows, n, suite))
    episodes = episodes_at_most(played, suite, n) * len(seeds)
    most = estimate(pool.specs, episodes, suite.turns)
    agree(Price(most, pool.specs, ceiling), may_ask=False)
    metered = MeteredPool(pool, ceiling)
    game = Reproduction(store, suite, metered)
    wanted = [(seed, row) for seed in seeds for row in played]
    missing = game.missing(wanted)
    if missing:
        tell_encoder(game.encoder)
        tell_what_is_cut(store, game.encoder, pool.specs, game.tasks(missing[0][1]))
    with progress() as bar:
        line = bar.add_task("rows", total=len(missing), note="")
        for place, (seed, row) in enumerate(missing, start=1):
            say(f"{place} of {len(missing)}: {row.label}, seed {seed}")
            _learn(store, game, row, seed, bar)
            _measure(store, game, row, seed, bar)
            bar.update(line, advance=1)
    tell_what_came_back(metered.reckoned)


def _measure(store: Store, game: Reproduction, row: TableRow, seed: int, bar: Progress) -> None:
    """Play the row's tasks, or go on with them."""
    parts, begun = game.ready(row, seed)
    follow(
        store,
        parts,
        "episodes",
        len(parts.tasks),
        resume=begun,
        again="The same command goes on.",
        bar=bar,
        note=row.label,
    ).finished()


def _learn(store: Store, game: Reproduction, row: TableRow, seed: int, bar: Progress) -> None:
    """Evolve or train what the row needs, unless that is done, or go on with it."""
    from storage.rows.summaries import RunStatus
    from ui.runs.plans import plan_of
    from ui.runs.play import prepare

    plan = game.learning_plan(row, seed)
    if plan is None:
        return
    known = store.runs.find(plan.name, plan.kind)
    if known and store.runs.get(known).status is RunStatus.FINISHED:
        return
    if known:
        plan = plan_of(store.runs.get(known), type(plan))
    with making_ready():
        ready: Any = prepare(store, plan)
    parts = replace(ready, pool=game.metered)  # one ceiling over everything that this command plays

    def shows(event: object) -> dict[str, int]:
        return {"completed": getattr(event, "index", 0)}  # the warm-up of a planner has none

    follow(store, parts, "learning", parts.updates, shows, known, bar=bar, note=row.label).finished()
