"""Who labels, and where quoted words stand in a reply: for the page and the command line alike (no Streamlit)."""

from __future__ import annotations

import getpass
import re

from core.errors import ConfigError
from storage.labels import LONGEST_AUTHOR


def login() -> str:
    """The name one is logged in with on this machine."""
    try:
        return getpass.getuser()[:LONGEST_AUTHOR]
    except (OSError, KeyError):  # a user id without a name, as in containers
        return "reviewer"


def find_span(reply: str, quote: str) -> tuple[int, int]:
    """Where the quoted words stand in a reply, as [start, end); line breaks and spaces may differ. ConfigError when
    they do not stand there, or more than once."""
    words = [re.escape(word) for word in quote.split()]
    found = list(re.finditer(r"\s+".join(words), reply)) if words else []
    if len(found) == 1:
        return found[0].span()
    if found:
        raise ConfigError(f"These words stand {len(found)} times in the reply: quote a few more around them.")
    raise ConfigError("These words do not stand in this turn's reply: copy them from it as they are.")
