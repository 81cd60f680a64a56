"""`trinity import` and `trinity export`: runs and episodes as files, for another store, a sheet or a reader."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from io import BufferedReader, FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from core.errors import ConfigError
from ui.cli.console import counted, print_json, printable, progress, say, tell
from ui.cli.options import Filter, JsonOption, StoreOption, opened_store, with_options

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

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
    """Import exported runs file by file, each whole or not at all.

    Importing twice changes nothing; the same id with other content is refused.

    [dim]$[/] trinity import colleague.jsonl.gz
    """
    from storage.files.interchange import files_to_import, import_file

    files = [file for path in paths for file in files_to_import(path)]
    megabytes = sum(file.stat().st_size for file in files if file.is_file()) / 1e6
    with opened_store(store) as opened, progress() as bar:
        line = bar.add_task("megabytes read", total=math.ceil(megabytes), note="")

        def watched(path: Path) -> BinaryIO:
            bar.update(line, note=printable(path.name))
            return BufferedReader(_Watched(path, lambda n: bar.update(line, advance=n / 1e6)))

        reports = [import_file(opened, file, watched) for file in files]
    if as_json:
        print_json(reports)
        return
    for report in reports:
        tell(str(report))


class _Watched(FileIO):
    """A file that tells how many bytes of it are read, as they are."""

    def __init__(self, path: Path, tell: Callable[[int], object]) -> None:
        super().__init__(path)
        self._tell = tell

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        read = super().readinto(buffer) or 0
        self._tell(read)
        return read


@with_options()
def export(
    *,
    runs: Annotated[
        list[str] | None, typer.Argument(help="Ids of runs; whole runs go into one JSON Lines file.")
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format", help="jsonl, csv, parquet or html. Else by the ending of --out, else jsonl."
        ),
    ] = None,
    path: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", help="The file to write. Else a name in this folder; .gz means gzipped."
        ),
    ] = None,
    episode: Annotated[list[str] | None, typer.Option(help="Only this episode; repeatable.")] = None,
    pair: Annotated[
        tuple[str, str] | None, typer.Option(metavar="A B", help="Two episodes side by side on one page.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All episodes of the store.")] = False,
    filter: Filter,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write runs, named episodes, or those that match a filter, to a file.

    jsonl holds everything and can be imported again; csv has a line per episode; parquet is four files: a row per
    episode, per turn, per label that counts, and per turn that another checkpoint read again; html is one page that
    opens from disk, or a zip with a page per episode.

    [dim]$[/] trinity export rp12ab --out for-my-colleague.jsonl.gz

    [dim]$[/] trinity export --where 'turns > 4' --flag false_accept --format csv

    [dim]$[/] trinity export --episode ep12ab --format html
    """
    from storage.filters.episode_filter import WHOLE_STORE, EpisodeFilter

    chosen_by = filter.chosen()
    ways = [bool(runs), bool(episode), pair is not None, chosen_by != EpisodeFilter(), everything]
    if sum(ways) != 1:
        raise ConfigError("Choose one way to say what to export: runs, --episode, --pair, filters, or --all.")
    chosen_by = WHOLE_STORE if everything else chosen_by
    wanted = Wanted(tuple(runs or ()), tuple(dict.fromkeys(episode or ())), pair, chosen_by)
    chosen = _format(form, path, wanted)
    targets = _targets(chosen, path, wanted)
    if not force and (there := next((target for target in targets if target.exists()), None)):
        raise ConfigError(
            f"{there} exists already: name another file with --out, or overwrite it with --force."
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
    endings = {".csv": "csv", ".parquet": "parquet", ".html": "html", ".zip": "html"}
    by_name = endings.get(path.suffix) if path else None
    chosen = named or by_name or ("html" if wanted.pair else "jsonl")
    if chosen not in _ENDS:
        raise ConfigError(f"--format cannot be '{chosen}': choose one of {', '.join(_ENDS)}.")
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


#: What is written, how much of it (None: not known before), and how many lines by kind are written, as they are.
Written = tuple[str, int | None, Iterator[dict[str, int]]]


def _write(store: Store, chosen: str, wanted: Wanted, targets: list[Path]) -> list[dict[str, int]]:
    """Write the files; returns how many of what is in each."""
    found = []
    with progress() as bar:
        for noun, total, counts in _files(store, chosen, wanted, targets):
            line, last = bar.add_task(f"{noun}s", total=total, note=""), {noun: 0}
            for last in counts:
                bar.update(line, completed=last.get(noun, 0))
            bar.update(line, total=last.get(noun, 0))
            found.append(last)
    return found


def _files(store: Store, chosen: str, wanted: Wanted, targets: list[Path]) -> Iterator[Written]:
    """The files, written as they are gone through. Each format's module is imported for itself alone."""
    from storage.files.selection import count_episodes, count_turns
    from ui.export import formats
    from ui.export.page import page_of

    target, selection = targets[0], wanted.selection()
    if chosen == "html" and wanted.one_page:
        formats.write_page(page_of(store, wanted.pair or wanted.episodes), target)
        yield "page", 1, iter([{"page": 1}])
        return
    selections: list[Selection] = [replace(wanted.where, run=run) for run in wanted.runs] or [selection]
    episodes = sum(count_episodes(store, one, 2**31).n for one in selections)
    if chosen == "html":
        yield "page", episodes, ({"page": n} for n in formats.write_pages(store, selection, target))
    elif chosen == "csv":
        yield "episode", episodes, ({"episode": n} for n in formats.write_csv(store, selection, target))
    elif chosen == "parquet":
        from storage.files.parquet import ROW_KINDS, write_parquet

        totals = {"episodes": episodes, "turns": count_turns(store, selection)}
        for kind, path in zip(ROW_KINDS, targets, strict=True):
            noun = kind.removesuffix("s")
            rows = write_parquet(store, selection, path, kind)
            yield noun, totals.get(kind), ({noun: n} for n in rows)
    else:
        from storage.files.interchange import write_episodes, write_runs

        runs = wanted.runs
        lines = write_runs(store, runs, target) if runs else write_episodes(store, selection, target)
        yield "episode", episodes, lines
