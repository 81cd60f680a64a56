"""Workers in actors, which answer jobs of small models and encoders, and this process's hold on each."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from core.cluster.joining import START_S, reason_of, this_program
from core.cluster.logs import Collected, Said, tell
from core.processes import PATIENCE_S

log = logging.getLogger(__name__)


class Worker:
    """In an actor: answers jobs, as `core.processes.serve_jobs` does in a process."""

    def __init__(self, preload: Sequence[str]) -> None:
        self._logged = Collected.installed()
        for module in preload:
            importlib.import_module(module)

    def about(self) -> tuple[int, tuple[str, str], str]:
        """Its process, what it runs, and how its machine computes."""
        from core.pocket.devices import fingerprint

        return os.getpid(), this_program(), fingerprint()

    def answer(self, function: str, job: Any) -> tuple[Any, list[Said]]:
        """What a function, named "module:function", answers to a job, and what was logged since the last answer."""
        module, _, name = function.partition(":")
        return getattr(importlib.import_module(module), name)(job), self._logged.taken()


class FarHelper:
    """This process's hold on a `Worker`."""

    def __init__(self, ray: Any, actor: Any, note_lost: Callable[[], None]) -> None:
        self._ray, self._actor, self._note_lost = ray, actor, note_lost
        self.pid, self._ended = 0, False
        self._failed = False  # which is told once

    def ready(self) -> bool:
        from core.pocket.devices import fingerprint

        try:
            self.pid, program, numbers = self._ray.get(self._actor.about.remote(), timeout=START_S)
        except Exception as error:
            if not self._ended:
                log.warning("A helper of the cluster cannot be started: %s", reason_of(error))
            return False
        if program != this_program():
            log.warning(
                "A helper of the cluster runs Python %s and version %s: it is given no work.", *program
            )
            return False
        if numbers != fingerprint():
            log.warning(
                "A machine of the cluster computes other last digits than this one (another processor or torch): its "
                "helper is given no work, as a run would not come to the same."
            )
            return False
        return True

    def answer(self, function: str, job: Any) -> dict[str, Any] | None:
        try:
            answer, said = self._ray.get(self._actor.answer.remote(function, job), timeout=PATIENCE_S)
        except (
            self._ray.exceptions.RayTaskError
        ) as error:  # the asking process meets it too, or is the better one
            if not self._failed:
                log.warning(
                    "A helper of the cluster failed, what it worked on is worked out here: %s",
                    reason_of(error),
                )
            self._failed = True
            return {"answer": None}
        except self._ray.exceptions.RayError as error:  # it is lost, and is started again
            if not self._ended:
                log.warning("A helper of the cluster was lost: %s", reason_of(error))
                self._note_lost()
            return {"answer": None} if self.ready() else None
        tell(said)
        return {"answer": answer}

    def end(self) -> None:
        self._ended = True
        with suppress(Exception):
            self._ray.kill(self._actor)

    def tidy(self) -> None:
        """Ray keeps what there is to close."""
