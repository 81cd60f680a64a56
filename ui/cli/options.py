"""Options of commands, made from settings: one for each that has an option, with its help, bounds and default."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Annotated, Any, get_origin

from core.fields import MOST_TASKS, Field, settings_of
from ui.cli.console import given as is_given
from ui.cli.console import option

Command = Callable[..., None]
#: The settings that stand on a command line, by key.
Given = Mapping[str, Any]


def with_options(kind: type) -> Callable[[Command], Command]:
    """The command with the options of `kind`'s settings in the place of its parameter `given`, which is handed those
    that stand on the command line, by the settings' keys."""
    options = {key: one for key, one in settings_of(kind).items() if one.setting.option}

    def decorate(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True).parameters
        parameters = []
        for name, parameter in own.items():
            parameters += [_parameter(one) for one in options.values()] if name == "given" else [parameter]

        @functools.wraps(command)
        def called(**arguments: Any) -> None:
            values = {key: arguments.pop(key) for key in options}
            given = {key: value for key, value in values.items() if is_given(arguments["context"], key)}
            command(**arguments, given={key: _read(options[key], value) for key, value in given.items()})

        keyword = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
        called.__signature__ = inspect.Signature(keyword)  # type: ignore[attr-defined]
        called.__annotations__ = {one.name: one.annotation for one in keyword}
        return called

    return decorate


def _parameter(field: Field) -> inspect.Parameter:
    """The parameter of a setting's option."""
    setting, kind, name = field.setting, field.kind, ""
    more: dict[str, Any] = {}
    if kind is bool and field.usual:
        name = f"{setting.option}/--no-{setting.option[2:]}"
    elif kind is int and not setting.word:
        more = {"min": setting.ge, "max": setting.le}
    elif get_origin(kind) is tuple:
        kind = list[str]
    elif kind not in (bool, float) and not (isinstance(kind, type) and issubclass(kind, Enum)):
        more = {"metavar": "|".join(field.choices) or None}
        kind = str  # which may be a word; checked beside all other settings
    if field.usual is None:
        kind = kind | None
    annotation: Any = Annotated[kind, option(setting, name, field.help, **more)]
    return inspect.Parameter(
        field.key, inspect.Parameter.KEYWORD_ONLY, default=field.usual, annotation=annotation
    )


def _read(field: Field, value: Any) -> Any:
    """A number that came as text, as its setting may be a word too."""
    # By its length first: a number of thousands of digits cannot be read at all.
    is_number = field.kind is int and isinstance(value, str) and value.isascii() and value.isdigit()
    return int(value) if is_number and len(value) <= len(str(MOST_TASKS)) else value
