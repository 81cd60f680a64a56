"""The file of `--config`: every setting with its default and what it does."""

from __future__ import annotations

import difflib
import json
import textwrap
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.errors import ConfigError
from core.fields import settings_of
from core.texts import read_text
from ui.cli.console import write_new

_HEAD = (
    "# For: trinity {command} --config {name}\n"
    "# Options on the command line win over this file. A key with # before it is left to what its comment says.\n"
)


def read_file(path: Path, kind: type, command: str) -> dict[str, Any]:
    """The settings of a file, not yet checked. ConfigError for an unknown key, or a file that is none."""
    written_by = f"trinity {command} --write-config FILE"
    try:
        found = tomllib.loads(read_text(path))
    except UnicodeError as error:
        raise ConfigError(f"{path} cannot be read: {error}.") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: write a file with every key by {written_by}.") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.") from None
    known = settings_of(kind)
    for key in found:
        if key not in known:
            near = difflib.get_close_matches(key, known, 1, 0.5)
            meant = f"did you mean {near[0]}?" if near else f"{written_by} writes them all."
            raise ConfigError(f"{path} has a key '{key}', which there is not: {meant}")
    return found


def write_file(path: Path, kind: type, chosen: Mapping[str, Any], command: str) -> None:
    """A file that says what is chosen, with a comment for every key. ConfigError when there is one already."""
    lines = [_HEAD.format(command=command, name=path.name)]
    for key, field in settings_of(kind).items():
        value = chosen[key]
        line = f"# {key} =" if value is None else f"{key} = {json.dumps(value, ensure_ascii=False)}"
        words = field.help + (f" One of {', '.join(field.choices)}." if field.choices else "")
        lines += [*textwrap.wrap(words, 110, initial_indent="# ", subsequent_indent="# "), line, ""]
    write_new(path, "\n".join(lines))
