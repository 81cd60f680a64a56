"""A run that belongs to this process while it works, and that says how to go on when it is left early."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import typer

from ui.cli.console import resume_command, say

if TYPE_CHECKING:
    from storage.store import Store


@contextmanager
def leased(
    store: Store, kind: Literal["run", "evolve", "fork"], resume: str | None, config: Mapping[str, Any]
) -> Iterator[str]:
    """The id of a new run with this config, or of the resumed one. What ends it early interrupts it."""
    from core.errors import TrinityError
    from core.ids import run_id as mint
    from storage.summaries import RunStatus
    from ui.lease import finish, owner, take_over

    if resume is not None:
        take_over(store, resume, kind)
        run_id = resume
    else:
        run_id = mint(int(time.time()), os.urandom(16))
        store.runs.create(run_id, kind, config, owner=owner())
    say(f"Run {run_id}")
    try:
        yield run_id
    except KeyboardInterrupt:
        finish(store, run_id, RunStatus.INTERRUPTED)
        say(f"Interrupted; everything so far is kept. Go on with: {resume_command(kind, run_id)}")
        raise typer.Exit(130) from None
    except TrinityError as error:
        finish(store, run_id, RunStatus.INTERRUPTED, str(error))
        say(f"Stopped; everything so far is kept. Go on with: {resume_command(kind, run_id)}")
        raise
    except Exception as error:  # a broken house: at least the run does not look alive for ever
        finish(store, run_id, RunStatus.INTERRUPTED, f"It broke off: {type(error).__name__}.")
        raise
