"""`trinity import` and `trinity export`: runs and episodes as files, for another store, a sheet or a reader."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from core.errors import ConfigError
from ui.cli.console import JsonOption, StoreOption, counted, opened_store, print_json, say, tell
from ui.cli.narrowing import FlagOption, PolicyOption, RunOption, WhereOption, narrowed

if TYPE_CHECKING:
    from storage.files.selection import Selection
    from storage.filters.episode_filter import EpisodeFilter
    from storage.store import Store


#: The formats, and what a file's name ends in unless it is given.
_ENDS = {"jsonl": ".jsonl.gz", "csv": ".csv", "parquet": ".parquet", "html": ".html.zip"}


def import_(
    paths: Annotated[list[Path], typer.Argument(help="Files (.jsonl or .jsonl.gz), or folders of them.")],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Bring exported runs into the store: a file at a time, each whole or not at all.

    Importing twice changes nothing; the same id with other content is refused.

    [dim]$[/] trinity import colleague.jsonl.gz
    """
    from storage.files.interchange import import_runs

    with opened_store(store) as opened:
        reports = [report for path in paths for report in import_runs(opened, path)]
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
        typer.Option("--format", help="jsonl, csv, parquet or html. Else what --out ends in, else jsonl."),
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
    where: WhereOption = None,
    run: RunOption = None,
    policy: PolicyOption = None,
    flag: FlagOption = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write runs, or the episodes that are named or that a filter lets through, to a file.

    jsonl holds everything and can be imported again; csv is a line per episode; parquet is four files, with a row
    per episode, turn, label that counts, and turn that another checkpoint read again; html is one page that opens
    from disk, or a zip of a page per episode.

    [dim]$[/] trinity export rp12ab --out for-my-colleague.jsonl.gz

    [dim]$[/] trinity export --where 'turns > 4' --flag false_accept --format csv

    [dim]$[/] trinity export --episode ep12ab --format html
    """
    from storage.filters.episode_filter import WHOLE_STORE, EpisodeFilter

    chosen_by = narrowed(where, run, policy, flag)
    ways = [bool(runs), bool(episode), pair is not None, chosen_by != EpisodeFilter(), everything]
    if sum(ways) != 1:
        raise ConfigError("Say what to export in one way: runs, --episode, --pair, filters, or --all.")
    chosen_by = WHOLE_STORE if everything else chosen_by
    wanted = Wanted(tuple(runs or ()), tuple(dict.fromkeys(episode or ())), pair, chosen_by)
    chosen = _format(form, path, wanted)
    targets = _targets(chosen, path, wanted)
    if not force and (there := next((target for target in targets if target.exists()), None)):
        raise ConfigError(
            f"{there} exists already: name another file with --out, or write over it with --force."
        )
    with opened_store(store) as opened:
        counts = _write(opened, chosen, wanted, targets)
    files = [{"file": str(target), "lines": lines} for target, lines in zip(targets, counts, strict=True)]
    for target, lines in zip(targets, counts, strict=True):
        say(f"Wrote {target}: {counted(lines) or 'no row'}")
    if as_json:
        print_json(files[0] if len(files) == 1 else files)


@dataclass(frozen=True)
class Wanted:
    """What is to be exported; exactly one of its parts says it."""

    runs: tuple[str, ...]
    episodes: tuple[str, ...]
    pair: tuple[str, str] | None
    where: EpisodeFilter

    @property
    def one_page(self) -> bool:
        """Whether as HTML it is one page: a pair, or a single episode that is named."""
        return self.pair is not None or len(self.episodes) == 1

    def selection(self) -> Selection:
        """The episodes meant."""
        if self.episodes:
            return self.episodes
        return replace(self.where, run=self.runs[0]) if self.runs else self.where


def _format(named: str | None, path: Path | None, wanted: Wanted) -> str:
    """The format asked for, or the one that the file's name tells; ConfigError where it does not fit."""
    from ui.export.formats import replacement_words

    endings = {".csv": "csv", ".parquet": "parquet", ".html": "html", ".zip": "html"}
    by_name = endings.get(path.suffix) if path else None
    chosen = named or by_name or ("html" if wanted.pair else "jsonl")
    if chosen not in _ENDS:
        why = replacement_words(chosen) or f"cannot be '{chosen}': choose one of {', '.join(_ENDS)}."
        raise ConfigError(f"--format {why}")
    if wanted.pair and chosen != "html":
        raise ConfigError(f"A pair is a page: leave --format {chosen} out, or name episodes with --episode.")
    if len(wanted.runs) > 1 and chosen != "jsonl":
        raise ConfigError(f"Name one run at a time with --format {chosen}; jsonl takes several.")
    if chosen == "html" and path is not None:
        if wanted.one_page and path.suffix == ".zip":
            raise ConfigError(f"This is one page and no zip: name it {path.with_suffix('.html').name}.")
        if not wanted.one_page and path.suffix != ".zip":
            raise ConfigError(
                f"The pages of several episodes are a zip: name it {path.with_suffix('.zip').name}."
            )
    return chosen


def _targets(chosen: str, path: Path | None, wanted: Wanted) -> list[Path]:
    """The files that will be written."""
    if chosen == "html" and wanted.one_page:
        return [path or Path(f"{'-and-'.join(wanted.pair or wanted.episodes)}.html")]
    stem = wanted.runs[0] if wanted.runs else wanted.episodes[0] if len(wanted.episodes) == 1 else "episodes"
    if chosen == "parquet":
        from storage.files.parquet import ROW_KINDS

        first = path or Path(f"{stem}.parquet")
        bare = first.name.removesuffix(".parquet")
        return [first, *(first.with_name(f"{bare}.{rowed}.parquet") for rowed in ROW_KINDS[1:])]
    return [path or Path(stem + _ENDS[chosen])]


def _write(store: Store, chosen: str, wanted: Wanted, targets: list[Path]) -> list[dict[str, int]]:
    """Write the files; returns how many of what is in each. Each format's module is imported for itself alone."""
    target, selection = targets[0], wanted.selection()
    if chosen == "jsonl":
        from storage.files.interchange import export_episodes, export_runs

        if wanted.runs:
            return [export_runs(store, wanted.runs, target)]
        return [export_episodes(store, selection, target)]
    if chosen == "parquet":
        from storage.files.parquet import ROW_KINDS, export_parquet

        return [
            {kind.removesuffix("s"): export_parquet(store, selection, path, kind)}
            for path, kind in zip(targets, ROW_KINDS, strict=True)
        ]
    if chosen == "csv":
        from ui.export.spreadsheet import export_csv

        return [{"episode": export_csv(store, selection, target)}]
    from ui.export import bundle

    if wanted.pair:
        bundle.export_pair(store, *wanted.pair, target)
    elif wanted.one_page:
        bundle.export_page(store, wanted.episodes[0], target)
    else:
        return [{"page": bundle.export_pages(store, selection, target)}]
    return [{"page": 1}]
