"""Keys in what servers and models say: a text does without them, a quotation that repeats a part of one is withheld."""

from __future__ import annotations

from dataclasses import dataclass

from core.texts import well_formed

QUOTE_CHARS = 200  # as much of a server's own words as is shown
WITHHELD = "(its words are withheld: they repeat the key)"
KEY_FRAGMENT = 8  # this many characters of a key in a row give it away


@dataclass(frozen=True, slots=True)
class Secrets:
    """Keys that may appear in no text."""

    keys: tuple[str, ...]

    def without(self, text: str) -> str:
        """The text with "(key)" in place of each key."""
        for key in self.keys:
            text = text.replace(key, "(key)")
        return text

    def quoted(self, text: str) -> str:
        """Words from outside, cut short, on one line, and withheld where they repeat a part of a key."""
        for key in map(str.lower, self.keys):
            starts = range(max(1, len(key) - KEY_FRAGMENT + 1))
            if any(key[start : start + KEY_FRAGMENT] in text.lower() for start in starts):
                return WITHHELD
        line = " ".join("".join(c if c.isprintable() else " " for c in well_formed(text)).split())
        return line if len(line) <= QUOTE_CHARS else line[: QUOTE_CHARS - 1] + "…"


@dataclass(slots=True)
class RedactedPieces:
    """A text without its keys, piece by piece: what may be the beginning of a key waits for the next piece."""

    secrets: Secrets
    _waiting: str = ""

    def feed(self, piece: str) -> str:
        """As much of the text as can be told now."""
        text = self.secrets.without(self._waiting + piece)
        begun = max((_begun(key, text) for key in self.secrets.keys), default=0)
        self._waiting = text[len(text) - begun :]
        return text[: len(text) - begun]

    def rest(self) -> str:
        """What waited when the text was over."""
        return self._waiting


def _begun(key: str, text: str) -> int:
    """How many characters of the key stand at the end of the text, less than the whole key."""
    return next((n for n in range(len(key) - 1, 0, -1) if text.endswith(key[:n])), 0)
