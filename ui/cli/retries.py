"""Calls that had to be repeated, counted while a command runs and told once at its end."""

from __future__ import annotations

import logging
import re
from collections import Counter

from ui.cli.console import printable, say

#: What a failed try says of itself -> how the summary calls it.
_REASONS = (
    (re.compile(r"answered (\d{3} [A-Za-z ]+)"), None),
    (re.compile("cannot be reached"), "could not be reached"),
    (re.compile("cannot be read"), "gave an answer that is none"),
)
_MODEL = re.compile(r"Model \\?'([^'\\]+)")


class RetrySummary(logging.Handler):
    """Hears of each retry (stamina's records) and says nothing until `tell`."""

    def __init__(self) -> None:
        super().__init__()
        self._counted: Counter[tuple[str, str]] = Counter()

    def __enter__(self) -> RetrySummary:
        logger = logging.getLogger("stamina")
        logger.addHandler(self)
        logger.propagate = False
        return self

    def __exit__(self, *_: object) -> None:
        logger = logging.getLogger("stamina")
        logger.removeHandler(self)
        logger.propagate = True
        self.tell()

    def emit(self, record: logging.LogRecord) -> None:
        """Count one retry."""
        cause = str(record.__dict__.get("stamina.caused_by", ""))
        model = _MODEL.search(cause)
        self._counted[model[1] if model else "a model", _reason(cause)] += 1

    def tell(self) -> None:
        """One line for each model that was asked again; nothing where none was."""
        for model in dict.fromkeys(name for name, _ in sorted(self._counted)):
            reasons = {reason: n for (name, reason), n in self._counted.items() if name == model}
            told = ", ".join(
                f"{n} after {reason}" for reason, n in sorted(reasons.items(), key=lambda one: -one[1])
            )
            say(f"{printable(model)} was asked again {sum(reasons.values())} times: {told}.")


def _reason(cause: str) -> str:
    for pattern, words in _REASONS:
        if found := pattern.search(cause):
            return words or found[1].strip()
    return "another fault"
