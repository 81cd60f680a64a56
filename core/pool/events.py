"""Server-sent events as their standard has it (https://html.spec.whatwg.org/multipage/server-sent-events.html)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event: its name, empty where it has none, and its data."""

    name: str
    data: bytes


class EventReader:
    """Reads events from bytes, however these are cut. `done`: a line of data said [DONE]; what follows is not read."""

    def __init__(self) -> None:
        self._line: list[bytes] = []  # parts of a line that has not ended
        self._start: bytes | None = b""  # as long as it may be a byte order mark
        self._after_return = False  # a line feed that comes next belongs to the line end before it
        self._data: list[bytes] = []
        self._name = ""
        self.done = False

    def feed(self, data: bytes) -> Iterator[ServerEvent]:
        """Take more bytes, give the events that they complete."""
        if self._start is not None:
            self._start += data
            if len(self._start) < len(_BOM) and _BOM.startswith(self._start):
                return
            data, self._start = self._start.removeprefix(_BOM), None
        if self._after_return:
            data = data.removeprefix(b"\n")
        if not data:
            return
        self._after_return = data.endswith(b"\r")
        first, *rest = _LINE_END.split(data) if b"\r" in data else data.split(b"\n")
        self._line.append(first)
        if not rest:
            return
        *whole, begun = rest
        for line in (b"".join(self._line), *whole):
            if not line.startswith(b":"):  # a comment, such as keeps a connection alive
                yield from self._end_line(line)
        self._line[:] = [begun]

    def end(self) -> None:
        """Nothing more will come: the last line needs no end, but an event without its blank line is none."""
        if self._start:
            self._line.append(self._start)
        line, self._line = b"".join(self._line), []
        for _ in self._end_line(line):
            pass

    def _end_line(self, line: bytes) -> Iterator[ServerEvent]:
        if self.done:
            return
        if not line:
            if self._data:
                yield ServerEvent(self._name, b"\n".join(self._data))
            self._data, self._name = [], ""
            return
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            if value.strip() == b"[DONE]":
                self.done = True
            else:
                self._data.append(value)
        elif field == b"event":
            self._name = value.decode(errors="replace").strip()
