"""The file of `--config`: every key with its default, its bounds and what it does."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.errors import ConfigError
from core.texts import read_text
from ui.cli.console import write_new

Count = Annotated[int, Field(ge=1)]
Size = Annotated[float, Field(ge=1e-9)]

_HEAD = (
    "# For: trinity {command} --config {name}\n"
    "# Options on the command line win over this file. A key with # before it is left to what its comment says.\n"
)


class ConfigFile(BaseModel):
    """The keys of a file for `trinity COMMAND --config`; what each does is its docstring."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    command: ClassVar[str]


F = TypeVar("F", bound=ConfigFile)


def read_file(path: Path, kind: type[ConfigFile]) -> dict[str, Any]:
    """The keys of a file, their values not yet checked. ConfigError for an unknown key, or a file that is none."""
    written_by = f"trinity {kind.command} --write-config FILE"
    try:
        found = tomllib.loads(read_text(path))
    except UnicodeError as error:
        raise ConfigError(f"{path} cannot be read: {error}.") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: write a file with every key by {written_by}.") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}.") from None
    for key in found:
        if key not in kind.model_fields:
            near = difflib.get_close_matches(key, kind.model_fields, 1, 0.5)
            meant = f"did you mean {near[0]}?" if near else f"{written_by} writes them all."
            raise ConfigError(f"{path} has a key '{key}', which there is not: {meant}")
    return found


def checked(values: Mapping[str, Any], path: Path | None, kind: type[F]) -> F:
    """The values with defaults for all others; ConfigError, one sentence, for one that its key cannot have."""
    try:
        return kind(**values)
    except ValidationError as error:
        first = error.errors()[0]
        key = str(first["loc"][0])
        why = "; ".join(dict.fromkeys(one["msg"] for one in error.errors() if one["loc"][0] == key))
        where = f"{path}: " if path else ""
        raise ConfigError(f"{where}{key} cannot be {values[key]!r}: {why[0].lower()}{why[1:]}.") from None


def write_file(path: Path, chosen: ConfigFile) -> None:
    """A file that says what is chosen, with a comment for every key. ConfigError when there is one already."""
    lines = [_HEAD.format(command=chosen.command, name=path.name)]
    for key, field in type(chosen).model_fields.items():
        value = getattr(chosen, key)
        line = f"# {key} =" if value is None else f"{key} = {json.dumps(value, ensure_ascii=False)}"
        lines += [f"# {field.description}", line, ""]
    write_new(path, "\n".join(lines))
