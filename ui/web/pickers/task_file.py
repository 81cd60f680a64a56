"""Choosing tasks: a set of the pocket world, a published one that was added, or a task file of one's own; of recorded
models those of their outcome table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from core.pocket import FAMILIES
from core.settings import POCKET_POOL
from core.tasks.sets import FOLDS, added_file, added_sets
from ui.runs.settings import is_recorded
from ui.web.kit import state

#: The sets of the pocket world that something can be learned on.
LEARNED_SETS = (POCKET_POOL, *(f"{POCKET_POOL}/{family}" for family in FAMILIES))
#: What is offered beside the pocket world's sets.
_FILE = "a file of my own (.jsonl)"


def task_file(key: str, **look: Any) -> str | None:
    """The whole path of the file that the reader names, None until one is named. `look`: further arguments of the
    field."""
    path = st.text_input(
        "Path of the file on this machine",
        key=key,
        max_chars=1000,
        placeholder="/home/me/tasks.jsonl",
        help="One JSON object per line, with question, answer and grader; `trinity tasks --help` says what else. The "
        "name of a set that `trinity tasks add` made will do too.",
        **look,
    ).strip()
    return str(Path(added_file(path)).expanduser().resolve()) if path else None


def choose_tasks(
    form: str,
    usual: int,
    help: str | None = None,
    *,
    pool: str = POCKET_POOL,
    offered: Sequence[str] = LEARNED_SETS,
    sets: str = "Tasks of the evolve split; tests never see them.",
    address: bool = False,
    **look: Any,
) -> tuple[str | None, int | None]:
    """Task set, of those `offered`, those that were added or a file, None until a file is named, and how many of it,
    None for all; `form` begins the keys, `usual` is how many of the pocket's tasks are offered, `help` says what is
    done with them and `sets` what they are. Where `pool` replies from an outcome table, its own tasks are offered
    alone, by fold. `address`: both stand in the address. `look`: further arguments of the fields."""
    known = (state.param("tasks") or "") if address else ""
    count = state.param("n") if address else None
    file = known if known.endswith(".jsonl") else ""
    options = [*offered, *added_sets(), _FILE]
    if is_recorded(pool):
        options = [pool, *(f"{pool}@{fold}" for fold in range(1, FOLDS))]
    left, right = st.columns([3, 2], vertical_alignment="bottom")
    listed = _FILE if file else known
    first = options.index(listed) if listed in options else 0
    tasks = left.selectbox("Tasks", options, first, key=f"{form}_tasks", help=sets, **look)
    own = tasks not in offered
    n = right.number_input(
        "How many of them",
        1,
        None,
        int(count) if count and count.isdecimal() and int(count[:9]) > 0 else None if own else usual,
        key=f"{form}_n_file" if own else f"{form}_n",
        placeholder="all",
        help=help,
        **look,
    )
    chosen = task_file(f"{form}_file", value=file, **look) if tasks == _FILE else tasks
    if address:
        state.set_params(tasks=chosen, n=n)
    return chosen, n
