"""`trinity worker`: a process that plays the runs which pages have queued, for as long as it is left running."""

from __future__ import annotations

from typing import Annotated

import typer

from core.settings import MOST_WORKERS
from ui.cli.console import say
from ui.cli.options import StoreOption, opened_store


def worker(
    store: StoreOption = None,
    drain: Annotated[bool, typer.Option("--drain", help="Stop once no run is queued.")] = False,
) -> None:
    """Play queued runs one by one: live problems, forks, evolutions. Several workers play several at once.

    The app starts TRINITY_WORKERS of them (2 by default); with 0 it leaves the work to those that you start. Ctrl-C
    stops a worker: its run is kept and can be resumed.

    [dim]$[/] trinity worker --store ./experiments.db
    """
    import os

    from ui.runs import wiring
    from ui.runs.worker import serve

    settings = wiring.settings(store=store)
    os.environ["TRINITY_STORE"] = settings.store  # a worker's slot is one of its store
    with opened_store(settings.store) as opened:
        say(f"Playing what waits in {opened.url}  (Ctrl-C stops)")
        try:
            code = serve(opened, MOST_WORKERS, lambda run: say(f"Run {run}"), stay=not drain)
        except KeyboardInterrupt:
            code = 130
    if code:
        raise typer.Exit(code)
