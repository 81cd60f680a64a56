"""What a form asks about tasks: a set of the pocket world or a file of one's own, and the rules they are played by."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from core.episode import Protocol
from core.pocket import FAMILIES
from core.settings import POCKET_POOL
from ui.presentation.glossary import define
from ui.presentation.words import PROTOCOL_WORDS

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
        help="One JSON object per line, with question, answer and grader; `trinity tasks --help` says what else.",
        **look,
    ).strip()
    return str(Path(path).expanduser().resolve()) if path else None


def choose_tasks(
    form: str,
    usual: int,
    help: str | None = None,
    *,
    offered: Sequence[str] = LEARNED_SETS,
    sets: str = "Tasks of the evolve split; tests never see them.",
    **look: Any,
) -> tuple[str | None, int | None]:
    """Task set, of those `offered` or a file, None until a file is named, and how many of it, None for all; `form`
    begins the keys, `usual` is how many of the pocket's tasks are offered, `help` says what is done with them and
    `sets` what they are. `look`: further arguments of the fields."""
    left, right = st.columns([3, 2], vertical_alignment="bottom")
    tasks = left.selectbox("Tasks", [*offered, _FILE], key=f"{form}_tasks", help=sets, **look)
    own = tasks == _FILE
    n = right.number_input(
        "How many of them",
        1,
        None,
        None if own else usual,
        key=f"{form}_n_file" if own else f"{form}_n",
        placeholder="all",
        help=help,
        **look,
    )
    return (task_file(f"{form}_file", **look) if own else tasks), n


def choose_rules(key: str, **look: Any) -> Protocol:
    """The protocol that is chosen, at first the paper's. `look`: further arguments of the control."""
    chosen: Protocol = st.segmented_control(
        "Rules",
        list(PROTOCOL_WORDS),
        default=Protocol.PAPER,
        required=True,
        key=key,
        format_func=PROTOCOL_WORDS.__getitem__,
        help=define("Protocol"),
        **look,
    )
    return chosen
