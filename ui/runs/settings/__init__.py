"""What a person chooses of a run, each setting declared once as a field: of a batch (`batch`), of forks (`forks`), of
evolutions and trainings (`learning`), where plans also follow from options, a file or a form. Here: pools, task files
and encoders by their whole paths, by which they are found from any folder."""

from __future__ import annotations

import os
from pathlib import Path

from core.settings import POCKET_POOL
from core.tasks.sets import OUTCOMES_PREFIX, added_file


def is_recorded(pool: str) -> bool:
    """Whether the models of a pool of this name reply from an outcome table."""
    return pool.startswith(OUTCOMES_PREFIX)


def usual_tasks(pool: str) -> str:
    """The tasks that a run plays with a pool where none are named."""
    return pool if is_recorded(pool) else POCKET_POOL


def absolute_pool(pool: str) -> str:
    """A pool.toml by its whole path, by which it is found from any folder; the embedded pool and recorded ones as they
    are, without a fold, which tasks alone have."""
    if is_recorded(pool):
        return pool.partition("@")[0]
    return pool if pool == POCKET_POOL else str(Path(pool).resolve())


def absolute_tasks(tasks: str) -> str:
    """A task file, also that of a set that was added, by its whole path, by which it is found from any folder; the
    program's own sets as they are."""
    path = added_file(tasks)
    return str(Path(path).resolve()) if path.endswith(".jsonl") else tasks


def absolute_encoder(encoder: str) -> str:
    """An encoder's folder by its whole path, by which it is found from any folder; other names as they are."""
    from ui.runs import wiring

    own = encoder != POCKET_POOL and os.path.isdir(encoder) and wiring.encoder_source(encoder) == encoder
    return str(Path(encoder).resolve()) if own else encoder
