"""Keeps transformers from drawing progress bars over the terminal while it reads a local folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from transformers.utils import logging as transformers_logging


@contextmanager
def no_progress_bar() -> Iterator[None]:
    """No bars inside; outside as before."""
    shown = transformers_logging.is_progress_bar_enabled()
    if shown:
        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]
