"""`trinity import` and `trinity export`: runs and episodes as files, for another store, a sheet or a reader."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from ui.cli.console import JsonOption, StoreOption, counted, print_json, say, tell
from ui.cli.narrowing import (
    CheckpointOption,
    CorrectOption,
    EndOption,
    FamilyOption,
    FlagOption,
    ForksOption,
    GenerationOption,
    MaxTurnsOption,
    MinTurnsOption,
    ModelOption,
    PolicyOption,
    RoleOption,
    RunOption,
    StatusOption,
    TaskOption,
    TextOption,
    WhereOption,
    checked,
)

if TYPE_CHECKING:
    from storage.columns import Rowed
    from storage.filters import EpisodeFilter
    from storage.selection import Selection
    from storage.store import Store


#: The formats, and what a file's name ends in unless it is given.
_ENDS = {
    "jsonl": ".jsonl.gz",
    "csv": ".csv",
    "parquet": ".parquet",
    "labels": ".labels.parquet",
    "opinions": ".opinions.parquet",
    "html": ".zip",
}


def import_(
    paths: Annotated[list[Path], typer.Argument(help="Files (.jsonl or .jsonl.gz), or folders of them.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring exported runs into the store: a file at a time, each whole or not at all.

    Importing twice changes nothing; the same id with other content is refused.

    [dim]$[/] trinity import colleague.jsonl.gz
    """
    from storage.interchange import import_runs
    from storage.store import open_store
    from ui import wiring

    opened = open_store(wiring.settings(store=store).store)
    reports = [report for path in paths for report in import_runs(opened, path)]
    opened.close()
    if as_json:
        print_json(reports)
        return
    for report in reports:
        tell(str(report))


def export(
    runs: Annotated[
        list[str] | None, typer.Argument(help="Ids of runs; whole runs go into one JSON Lines file.")
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="jsonl, csv, parquet, labels, opinions or html. Else what --out ends in, else jsonl.",
        ),
    ] = None,
    path: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="Else a name in this folder; .gz means gzipped."),
    ] = None,
    episode: Annotated[list[str] | None, typer.Option(help="Only this episode; may be repeated.")] = None,
    pair: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="A B", help="Two episodes side by side on one page."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All episodes of the store.")] = False,
    run: RunOption = None,
    policy: PolicyOption = None,
    checkpoint: CheckpointOption = None,
    family: FamilyOption = None,
    task: TaskOption = None,
    correct: CorrectOption = None,
    status: StatusOption = None,
    end: EndOption = None,
    flag: FlagOption = None,
    model: ModelOption = None,
    role: RoleOption = None,
    min_turns: MinTurnsOption = None,
    max_turns: MaxTurnsOption = None,
    text: TextOption = None,
    forks: ForksOption = None,
    where: WhereOption = None,
    generation: GenerationOption = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write runs, or the episodes that are named or that a filter lets through, to a file.

    jsonl holds everything and can be imported again; csv is a line per episode; parquet is two files, a row
    per episode and a row per turn; labels and opinions are Parquet too, a row per label that counts and a row per
    turn that another checkpoint read again; html is a page per episode that opens from disk.

    [dim]$[/] trinity export rp12ab --out for-my-colleague.jsonl.gz

    [dim]$[/] trinity export --correct wrong --flag false_accept --format csv

    [dim]$[/] trinity export --episode ep12ab --format html
    """
    from core.errors import ConfigError
    from storage.filters import EpisodeFilter
    from storage.store import open_store
    from ui import wiring

    narrowed = checked(
        EpisodeFilter(
            run=run,
            policy=policy,
            checkpoint=checkpoint,
            family=family,
            task=task,
            correct=correct,
            status=status,
            end_reason=end,
            flag=flag,
            model=model,
            role=role,
            min_turns=min_turns,
            max_turns=max_turns,
            text=text,
            forks=forks,
            q=where,
            generation=generation,
        )
    )
    ways = [bool(runs), bool(episode), pair is not None, narrowed != EpisodeFilter(), everything]
    if sum(ways) != 1:
        raise ConfigError("Say what to export in one way: runs, --episode, --pair, filters, or --all.")
    narrowed = EpisodeFilter(forks="with") if everything else narrowed
    wanted = Wanted(tuple(runs or ()), tuple(dict.fromkeys(episode or ())), pair, narrowed)
    chosen = _format(form, path, wanted)
    targets = _targets(chosen, path, wanted)
    if not force and (there := next((target for target in targets if target.exists()), None)):
        raise ConfigError(
            f"{there} exists already: name another file with --out, or write over it with --force."
        )
    opened = open_store(wiring.settings(store=store).store)
    counts = _write(opened, chosen, wanted, targets)
    opened.close()
    for target in targets:
        say(f"Wrote {target}: {counted(counts[target])}")
    if as_json:
        files = [{"file": str(target), "lines": counts[target]} for target in targets]
        print_json(files[0] if len(files) == 1 else files)


@dataclass(frozen=True)
class Wanted:
    """What is to be exported; exactly one of its parts says it."""

    runs: tuple[str, ...]
    episodes: tuple[str, ...]
    pair: tuple[str, str] | None
    where: EpisodeFilter

    def selection(self) -> Selection:
        """The episodes meant."""
        if self.episodes:
            return self.episodes
        return replace(self.where, run=self.runs[0]) if self.runs else self.where


def _format(asked: str | None, path: Path | None, wanted: Wanted) -> str:
    """The format asked for, or the one that the file's name tells; ConfigError where it does not fit."""
    from core.errors import ConfigError

    endings = {".csv": "csv", ".parquet": "parquet", ".html": "html", ".zip": "html"}
    told = endings.get(path.suffix) if path else None
    chosen = asked or told or ("html" if wanted.pair else "jsonl")
    if chosen not in _ENDS:
        raise ConfigError(f"--format cannot be '{chosen}': choose one of {', '.join(_ENDS)}.")
    if wanted.pair and chosen != "html":
        raise ConfigError(f"A pair is a page: leave --format {chosen} out, or name episodes with --episode.")
    if len(wanted.runs) > 1 and chosen != "jsonl":
        raise ConfigError(f"Name one run at a time with --format {chosen}; jsonl takes several.")
    return chosen


def _targets(chosen: str, path: Path | None, wanted: Wanted) -> list[Path]:
    """The files that will be written."""
    if chosen == "html" and (wanted.pair or len(wanted.episodes) == 1):
        return [path or Path(f"{'-and-'.join(wanted.pair or wanted.episodes)}.html")]
    stem = wanted.runs[0] if wanted.runs else wanted.episodes[0] if len(wanted.episodes) == 1 else "episodes"
    if chosen == "parquet":
        first = path or Path(f"{stem}.parquet")
        return [first, first.with_name(f"{first.name.removesuffix('.parquet')}.turns.parquet")]
    return [path or Path(stem + _ENDS[chosen])]


def _write(store: Store, chosen: str, wanted: Wanted, targets: list[Path]) -> dict[Path, dict[str, int]]:
    """Write the files; returns how many of what is in each."""
    if chosen == "jsonl":
        from storage.interchange import export_episodes, export_runs

        if wanted.runs:
            return {targets[0]: export_runs(store, wanted.runs, targets[0])}
        return {targets[0]: export_episodes(store, wanted.selection(), targets[0])}
    if chosen == "parquet":
        from storage.columns import export_parquet

        first, second = targets
        return {
            first: {"episode": export_parquet(store, wanted.selection(), first, "episodes")},
            second: {"turn": export_parquet(store, wanted.selection(), second, "turns")},
        }
    if chosen in ("labels", "opinions"):
        from storage.columns import export_parquet

        rows = export_parquet(store, wanted.selection(), targets[0], cast("Rowed", chosen))
        return {targets[0]: {chosen.removesuffix("s"): rows}}
    if chosen == "csv":
        from ui.export.sheet import export_csv

        return {targets[0]: {"episode": export_csv(store, wanted.selection(), targets[0])}}
    return {targets[0]: {"page": _pages(store, wanted, targets[0])}}


def _pages(store: Store, wanted: Wanted, target: Path) -> int:
    from ui.export.bundle import export_page, export_pages, export_pair

    if wanted.pair:
        export_pair(store, *wanted.pair, target)
    elif len(wanted.episodes) == 1:
        export_page(store, wanted.episodes[0], target)
    else:
        return export_pages(store, wanted.selection(), target)
    return 1
