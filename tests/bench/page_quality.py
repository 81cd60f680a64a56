"""How far pages move while they load, the contrast of their text, and how small what can be tapped is.

Prints a line per page, theme and width of an app that runs, and writes what it found as JSON.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from storage.store import open_store
from tests.bench._frame import run
from tests.bench._in_browser import browser
from tests.ui.page_quality import PHONE, WIDE, addresses, load, measure, window


def measure_pages(
    address: Annotated[str, "where the app runs, such as http://127.0.0.1:8501"],
    store: Annotated[str, "the store that it shows: a SQLite file or the address of a database"],
    file: Annotated[Path, "what was found is written here, as JSON"],
    pages: Annotated[list[str], "only these pages, by name; else all"],
) -> None:
    """Measure every page, or those named, in both themes and at both widths."""
    found = []
    with browser() as opened:
        for size in (WIDE, PHONE):
            for theme in ("light", "dark"):
                page = window(opened, theme, size)
                load(page, address)
                for name, path in addresses(open_store(store)).items():
                    if not pages or name in pages:
                        one = measure(page, name, address + path, theme, size)
                        found.append(asdict(one))
                        print(
                            f"{one.page:13} {one.theme:5} {one.width:4}  shift {one.shift:.3f}  "
                            f"faint {len(one.faint):3} of {one.texts:4}  small {len(one.small):3} of {one.taps:3}  "
                            f"covered {len(one.covered):3}",
                            flush=True,
                        )
                page.context.close()
    file.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    run(measure_pages)
