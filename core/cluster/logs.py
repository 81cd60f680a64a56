"""What a helper logs as a warning or an error: it is carried to the process that it helps, and logged there too."""

from __future__ import annotations

import logging
import os
import socket
import traceback
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace

#: Whose work is being done, as in "episode e1-00003", which a record then says.
WHOSE: ContextVar[str] = ContextVar("whose", default="")
#: So many records are kept until they are taken; of those beyond it is only said how many they were.
MOST = 100


@dataclass(frozen=True, slots=True)
class Said:
    """One record of a log: who logged it, how grave it is, and its text, which begins with where it was logged."""

    logger: str
    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Fault:
    """What failed in a helper, as it is sent: the name of an exception, its words, and where in the program it was."""

    name: str
    words: str
    where: str

    @classmethod
    def of(cls, error: Exception) -> Fault:
        where = "".join(traceback.format_exception(error)).rstrip()
        return cls(type(error).__name__, str(error), f"{_place()}:\n{where}")

    def error(self) -> Exception:
        """To be raised in the process that is helped; its note says where it happened."""
        found: Exception = type(self.name, (Exception,), {})(self.words)
        found.add_note(self.where)
        return found


class Collected(logging.Handler):
    """In a helper: the warnings and errors of its process since they were last taken, but Ray's own. They stay in the
    process's own log too, which Ray keeps on its machine."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._kept: list[Said] = []
        self._beyond = 0

    @classmethod
    def installed(cls) -> Collected:
        """One that hears all loggers from here on."""
        found = cls()
        logging.getLogger().addHandler(found)
        return found

    def emit(self, record: logging.LogRecord) -> None:
        if logging.lastResort is not None:
            logging.lastResort.handle(record)
        if record.name.partition(".")[0] == "ray":
            return
        if len(self._kept) >= MOST:
            self._beyond += 1
            return
        text = f"{_place()}: {record.getMessage()}"
        if record.exc_info and record.exc_info[1] is not None:
            text += "\n" + "".join(traceback.format_exception(record.exc_info[1])).rstrip()
        self._kept.append(Said(record.name, record.levelno, text))

    def taken(self) -> list[Said]:
        """What there is, which is forgotten here."""
        self.acquire()
        try:
            (kept, self._kept), (beyond, self._beyond) = (self._kept, []), (self._beyond, 0)
        finally:
            self.release()
        if beyond:
            kept.append(
                replace(kept[-1], text=f"{_place()}: {beyond:,} more of its warnings are in Ray's log there.")
            )
        return kept


def tell(said: Sequence[Said]) -> None:
    """Log in this process what helpers said."""
    for one in said:
        logging.getLogger(one.logger).log(one.level, "%s", one.text)


def _place() -> str:
    whose = WHOSE.get()
    return f"Process {os.getpid()} on {socket.gethostname()} of the cluster{whose and f', {whose}'}"
