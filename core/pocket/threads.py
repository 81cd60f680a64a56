"""Around a model of torch and transformers: how many of torch's threads it runs on, and that one is loaded at a time.

A small model runs on a single thread, a large one on torch's own number. A forward of a small model is hundreds of
operations of microseconds. Threads that meet after each of them gain nothing on an idle machine, and wait for each
other's turn on a busy one: the same work then takes several times as long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers.utils import logging as transformers_logging

#: Parameters up to which one thread is quicker. Pocket models have under a million, the paper's encoder 600 million.
SMALL = 10_000_000


class _TorchThreads:
    """Torch's own number of threads, while some model runs on one.

    `torch.set_num_threads` sets the number of the calling thread and the one that threads new to torch begin with. So
    a thread that begins while a small model runs has to be given the former number."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.inside = 0
        self.threads = 1


_torch_threads = _TorchThreads()


def is_small(model: Any) -> bool:
    """Whether the model is quickest on one thread."""
    return sum(int(weight.numel()) for weight in model.parameters()) <= SMALL


@contextmanager
def suited_threads(small: bool) -> Iterator[None]:
    """Inside, this thread runs a small model on one of torch's threads and any other on the usual number."""
    with _torch_threads.lock:
        if not _torch_threads.inside:
            _torch_threads.threads = torch.get_num_threads()
        _torch_threads.inside += 1
        wanted = 1 if small else _torch_threads.threads
        if torch.get_num_threads() != wanted:
            torch.set_num_threads(wanted)
    try:
        yield
    finally:
        with _torch_threads.lock:
            _torch_threads.inside -= 1
            if torch.get_num_threads() != _torch_threads.threads:
                torch.set_num_threads(_torch_threads.threads)


#: Held by the thread that loads a model.
_loading = threading.RLock()


@contextmanager
def quiet_loading() -> Iterator[None]:
    """Inside, transformers loads or saves a model for this thread alone, and shows no bar.

    While it loads, it changes for the whole process how models are made: of two that are loaded at the same time, both
    may keep random numbers for the weights that they share between their parts, and write nonsense."""
    with _loading:
        shown = transformers_logging.is_progress_bar_enabled()
        if shown:
            transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        try:
            yield
        finally:
            if shown:
                transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]
