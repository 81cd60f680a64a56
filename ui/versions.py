"""Which version of this program and of what it stands on is installed."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed

PACKAGES = ("streamlit", "torch", "transformers", "sqlalchemy", "httpx", "numpy")


def version() -> str:
    """This program's version."""
    try:
        return installed("trinity-inspector")
    except PackageNotFoundError:
        return "unknown (run from a folder that was not installed)"


def packages() -> dict[str, str]:
    """Python and the packages that matter most, by name. Imports none of them."""
    return {"python": sys.version.split()[0], **{name: installed(name) for name in PACKAGES}}
