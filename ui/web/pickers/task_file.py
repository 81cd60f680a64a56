"""Naming a task file of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import streamlit as st


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
