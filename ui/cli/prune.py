"""`trinity prune`: remove hidden states, texts, episodes or whole runs from a store."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from typing import Annotated

import typer

from core.errors import ConfigError
from ui.cli.console import print_json, say, tell
from ui.cli.options import Filter, JsonOption, StoreOption, opened_store, with_options

#: What is kept beside the store.
_READINGS = "readings"


@with_options()
def prune(
    *,
    what: Annotated[str, typer.Option("--what", help="states, prompts, texts, episodes, runs or readings.")],
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than", metavar="AGE", help="Only what began before: 90d (days ago), 12w or 2026-08-01."
        ),
    ] = None,
    filter: Filter,
    everything: Annotated[bool, typer.Option("--all", help="All episodes, instead of a filter.")] = False,
    referenced: Annotated[
        bool, typer.Option("--referenced", help="Include what labels, forks and other runs refer to.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    vacuum: Annotated[
        bool, typer.Option("--vacuum", help="Then shrink the file; needs as much free disk space again.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remove hidden states, prompts, all texts, whole episodes or whole runs. This cannot be undone.

    Episodes that have labels, were forked or are running are kept, and counted. Everything else is removed in one
    step, or nothing is. What large encoders have read is in a file beside the store: --what readings removes it whole.

    [dim]$[/] trinity prune --what states --older-than 90d --dry-run

    [dim]$[/] trinity prune --what runs --run rp12ab --yes --vacuum

    [dim]$[/] trinity prune --what readings
    """
    from storage.filters.episode_filter import EpisodeFilter
    from storage.upkeep import retention
    from ui.presentation.runs import retention_words
    from ui.presentation.words import size_words

    kind = next((one for one in retention.WORDS if one == what), None)
    if kind is None and what != _READINGS:
        raise ConfigError(
            f"--what cannot be '{what}': choose one of {', '.join((*retention.WORDS, _READINGS))}."
        )
    conditions = [f"({filter.where})"] if filter.where else []
    conditions += [retention.began_before(older_than, time.time())] if older_than else []
    chosen = replace(filter, where=" and ".join(conditions) or None).chosen()
    if kind is None:
        if chosen != EpisodeFilter():
            raise ConfigError(
                "What encoders have read belongs to no episode: leave filters and --older-than out."
            )
        _prune_readings(dry_run=dry_run, yes=yes, as_json=as_json)
        return
    if (chosen == EpisodeFilter()) is not everything:
        raise ConfigError("Say which with --older-than, --where, --run, --policy or --flag, or else --all.")
    with opened_store(store, mark_dead=True) as opened:
        found = retention.preview(opened, kind, chosen, everything=referenced)
        for line in retention_words(found):
            (say if as_json else tell)(line)
        pruned = bool(found.rows) and not dry_run
        if pruned:
            if not yes:
                typer.confirm(f"Remove {retention.WORDS[kind]}?", abort=True, err=True)
            found = retention.prune(opened, kind, chosen, everything=referenced)
            say(
                "Removed."
                if vacuum
                else "Removed. The file keeps its size until `--vacuum` makes it smaller."
            )
        if vacuum and not dry_run:
            retention.compact(opened)
            say(f"The store is now {size_words(opened.health().size_bytes)} large.")
    if as_json:
        print_json({"removed": pruned, **asdict(found)})


def _prune_readings(*, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Remove what large encoders have read; it is read again where it is needed."""
    from storage.shelves.states import MOST_BYTES
    from ui.presentation.words import size_words
    from ui.runs import wiring

    file = wiring.state_file(wiring.data_folder())
    size = file.size_bytes
    (say if as_json else tell)(
        f"{size_words(size)} (of at most {size_words(MOST_BYTES)}) of what encoders have read, in {file.path}. Nothing "
        "is lost: it is read again where it is needed, which takes time."
        if size
        else "Nothing that encoders have read is kept."
    )
    pruned = bool(size) and not dry_run
    if pruned:
        if not yes:
            typer.confirm("Remove it?", abort=True, err=True)
        file.remove()
        say("Removed.")
    if as_json:
        print_json({"removed": pruned, "what": _READINGS, "size_bytes": size})
