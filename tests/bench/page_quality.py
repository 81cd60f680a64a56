"""How far pages move while they load, the contrast of their text, and how small what can be tapped is.

    trinity bench page_quality ADDRESS STORE FILE [PAGE ...]

prints a table for an app that runs at ADDRESS over the store STORE, and writes what it found into FILE as JSON.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from playwright.sync_api import sync_playwright

from storage.store import open_store
from tests.ui.page_quality import PHONE, WIDE, Quality, addresses, load, measure, window


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every page, or those named, in both themes and at both widths, and print a table."""
    parser = argparse.ArgumentParser(
        prog="trinity bench page_quality",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("address", help="where the app runs, such as http://127.0.0.1:8501")
    parser.add_argument("store", help="the store that it shows: a SQLite file or the address of a database")
    parser.add_argument("file", type=Path, help="what was found is written here, as JSON")
    parser.add_argument("pages", nargs="*", help="only these pages, by name; else all")
    chosen = parser.parse_args(arguments)
    _measure(chosen.address, chosen.store, chosen.file, chosen.pages)


def _measure(address: str, url: str, out: Path, only: Sequence[str]) -> None:
    pages: Mapping[str, str] = addresses(open_store(url))
    found = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for size in (WIDE, PHONE):
            for theme in ("light", "dark"):
                page = window(browser, theme, size)
                load(page, address)
                for name, path in pages.items():
                    if not only or name in only:
                        found.append(measure(page, name, address + path, theme, size))
                        one = found[-1]
                        print(
                            f"{one.page:13} {one.theme:5} {one.width:4}  shift {one.shift:.3f}  "
                            f"faint {len(one.faint):3} of {one.texts:4}  small {len(one.small):3} of {one.taps:3}  "
                            f"covered {len(one.covered):3}",
                            flush=True,
                        )
                page.context.close()
    out.write_text(
        json.dumps([{name: getattr(one, name) for name in Quality.__slots__} for one in found], indent=1)
    )


if __name__ == "__main__":
    main()
