"""The command line `trinity`: the entry point `main`, and the one place where its errors become one sentence.

`commands` is the tree of commands; most stand in a module of their name, `evolve` and `train` in `learning`,
`compare`, `policy`, `requests`, `evolution`, `separability`, `routing` and `verifier` in `analysis`, `import` and
`export` in `exchange`, `label` in `labels`. All share `options` (typer options made from settings), `console` (tables,
JSON, progress), `play` (a run in this process: price, pilot, progress, resume) and `replies` (what replies lacked,
retries).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. A user's mistake is one sentence on stderr and exit code 1, never a traceback."""

    if sentence := foreign_package():
        print(f"trinity: {sentence}", file=sys.stderr)
        return 1
    # Loading a model takes a moment; a bar for each of its files says nothing to a user.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    from core.errors import TrinityError
    from ui.cli.commands import app
    from ui.program import interruptible

    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        "\n".join(arguments).encode()
    except UnicodeEncodeError:
        print("trinity: An argument is not text: write it in UTF-8.", file=sys.stderr)
        return 1
    try:
        with interruptible():
            app(args=arguments, prog_name="trinity")
    except TrinityError as error:
        print(f"trinity: {error}", file=sys.stderr)
        if pointer := getattr(error, "pointer", ""):  # an expression, and a caret under the mistake
            print(pointer, file=sys.stderr)
        return 1
    return 0


ROOT = Path(__file__).resolve().parents[2]


def foreign_package() -> str | None:
    """One sentence when `core` or `storage` would be imported from anywhere but beside this package, else None.

    Both are common names; a package in site-packages wins over an editable install."""
    for name in ("core", "storage"):
        spec = find_spec(name)
        origin = Path(spec.origin).resolve().parent if spec is not None and spec.origin else None
        if origin != ROOT / name:
            return (
                f"Another package named '{name}' ({origin or 'not found'}) stands in the way of our own "
                f"({ROOT / name}): install Trinity Inspector in a virtual environment of its own."
            )
    return None
