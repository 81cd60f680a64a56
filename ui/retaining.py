"""What a store is to forget, in words: an age as a filter, what would go and what stays, sizes in bytes."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from core.errors import ConfigError
from storage.retention import LOST, WORDS, Pruning

_DAYS = {"d": 1, "w": 7}
_LONGEST_DAYS = 36_500


def began_before(age: str, now: float) -> str:
    """The condition that an episode began before an age (`90d`, `12w`) or a date (`2026-08-01`), in the filter
    language; ConfigError for what is neither. `now` in Unix seconds."""
    if found := re.fullmatch(r"(\d{1,5})([dw])", age.strip()):
        days = int(found[1]) * _DAYS[found[2]]
        at = datetime.fromtimestamp(now, UTC) - timedelta(days=min(days, _LONGEST_DAYS))
    else:
        try:
            at = datetime.fromisoformat(age.strip())
        except ValueError:
            raise ConfigError(f"'{age}' is no age: write 90d or 12w, or a date such as 2026-08-01.") from None
    return f'started < "{(at if at.tzinfo else at.replace(tzinfo=UTC)).isoformat(timespec="seconds")}"'


def told(found: Pruning) -> list[str]:
    """What goes, what is lost with it and what stays, a sentence each."""
    if not found.rows:
        lines = [f"Nothing to remove: there are no {WORDS[found.what]} that may go."]
    elif found.what == "runs":
        lines = [f"{_many(len(found.runs), 'run')} with {_many(found.episodes, 'episode')} would go"]
    else:
        words = WORDS[found.what]
        lines = [f"{words[:1].upper()}{words[1:]} in {_many(found.episodes, 'episode')} would go"]
    if found.rows:
        lines[0] += f", about {size_words(found.size_bytes)}."
        lines.append(LOST[found.what])
    noun = "run" if found.what == "runs" else "episode"
    return [*lines, *(f"Kept: {_many(n, noun)} {reason}." for reason, n in found.kept.items())]


def size_words(size_bytes: int | None) -> str:
    """`1.2 MB`, `340 GB`; a dash when it is not known."""
    if size_bytes is None:
        return "–"
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= size:
            return f"{size_bytes / size:,.1f} {unit}"
    return f"{size_bytes:,} bytes"


def _many(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"
