"""The words of the app and what they mean, for the Glossary page and for every tooltip: read from `glossary.toml`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from ui.presentation.theme import strip_legend


@dataclass(frozen=True, slots=True)
class Term:
    """A word, one sentence that a tooltip can hold, and what more the Glossary says (may be empty)."""

    word: str
    short: str
    more: str = ""


def _read() -> dict[str, tuple[Term, ...]]:
    text = Path(__file__).with_suffix(".toml").read_text("utf-8")
    sections = tomllib.loads(text.replace("{strip_legend}", strip_legend()))
    return {name: tuple(Term(**term) for term in terms) for name, terms in sections.items()}


#: The terms by section, both in the order of the page.
SECTIONS = _read()
_BY_WORD = {term.word: term for terms in SECTIONS.values() for term in terms}


def is_word(word: str) -> bool:
    """Whether the glossary has it."""
    return word in _BY_WORD


def define(word: str) -> str:
    """A term's one sentence, for a tooltip. KeyError for a word the glossary does not have."""
    return _BY_WORD[word].short


def explain(*words: str) -> str:
    """Several terms for one tooltip, each with its name, as markdown."""
    return "\n\n".join(f"**{word}**: {define(word)}" for word in words)
