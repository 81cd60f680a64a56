"""Workers in actors, which answer jobs of small models and encoders, and this process's hold on each."""

from __future__ import annotations

import importlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from core.cluster.joining import START_S, reason_of, this_program
from core.cluster.logs import Collected, Said, tell
from core.errors import PoolError
from core.processes import PATIENCE_S, set_aside

log = logging.getLogger(__name__)

#: So long an answer is waited for before it is looked whether the cluster is still there, and so long after one try a
#: helper that was lost is asked again, in seconds.
ASK_S, AGAIN_S = 5.0, 0.5


def other_program(program: tuple[str, str]) -> str:
    """What is wrong with a machine that runs another Python or version of this program; empty where it does not."""
    python, own = this_program()
    if program == (python, own):
        return ""
    return (
        f"A machine of the cluster runs Python {program[0]} and Trinity Inspector {program[1]}: install Python "
        f"{python} and Trinity Inspector {own} there, as here."
    )


class Worker:
    """In an actor: answers jobs, as `core.processes.serve_jobs` does in a process."""

    def __init__(self, preload: Sequence[str]) -> None:
        self._logged = Collected.installed()
        for module in preload:
            importlib.import_module(module)
        set_aside()

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

    def __init__(
        self,
        ray: Any,
        actor: Any,
        note_lost: Callable[[], None],
        check: Callable[[], None],
        *,
        mixed: bool = False,
    ) -> None:
        self._ray, self._actor, self._note_lost, self._check = ray, actor, note_lost, check
        self._mixed = mixed
        self.pid, self._ended = 0, False
        self._failed = False  # which is told once

    def ready(self) -> bool:
        from core.pocket.devices import fingerprint

        until = time.monotonic() + START_S
        while True:
            try:
                self.pid, program, numbers = self._got(self._actor.about.remote(), START_S)
                break
            except Exception as error:
                # Ray starts it again, or does not know yet that it has to.
                comes = isinstance(error, self._ray.exceptions.ActorUnavailableError) and not self._ended
                if comes and time.monotonic() < until:
                    time.sleep(AGAIN_S)
                    continue
                if not self._ended:
                    log.warning("A helper of the cluster cannot be started: %s", reason_of(error))
                return False
        if fault := other_program(program):
            log.warning("%s Its helper is given no work.", fault)
            return False
        if numbers != fingerprint() and not self._mixed:
            log.warning(
                "A machine of the cluster computes other last digits than this one (another processor or torch): its "
                "helper is given no work, as a run would not come to the same. --engine ray-mixed lets it work."
            )
            return False
        return True

    def answer(self, function: str, job: Any) -> dict[str, Any] | None:
        try:
            answer, said = self._got(self._actor.answer.remote(function, job), PATIENCE_S)
        except self._ray.exceptions.RayTaskError as error:  # the asking process meets it too, or it does not
            if not self._failed:
                words = "A helper of the cluster failed, and what it worked on is worked out here: %s"
                log.warning(words, reason_of(error))
            self._failed = True
            return {"answer": None}
        except PoolError:  # the cluster is gone
            return None
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

    def _got(self, asked: Any, patience_s: float) -> Any:
        """What was asked for; PoolError where the cluster is gone, and will never say it."""
        until = time.monotonic() + patience_s
        while True:
            try:
                return self._ray.get(asked, timeout=min(ASK_S, patience_s))
            except self._ray.exceptions.GetTimeoutError:
                self._check()
                if time.monotonic() > until:
                    raise

    def tidy(self) -> None:
        """Ray keeps what there is to close."""
