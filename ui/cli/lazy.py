"""A group of commands that are listed by name and imported only when one of them is called."""

from __future__ import annotations

from dataclasses import dataclass, field
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Listed:
    """A command as the list of commands needs it: its help in one line, and its function, or its own group of commands,
    as `module:name` where that is not `ui.cli.COMMAND:COMMAND`. `made`: the target makes the function of a command from
    its name and its help."""

    help: str
    target: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    made: bool = False

    def load(self, name: str) -> Any:
        """The command itself; its module is imported."""
        found = resolve_name(self.target or f"ui.cli.{name}:{name}")
        found = found(name, self.help) if self.made else found
        around = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)
        if isinstance(found, typer.Typer):
            around.add_typer(found, name=name)
        else:
            around.command(name, context_settings=dict(self.settings))(found)
        return get_group(around).commands[name]


class LazyGroup(TyperGroup):
    """Shows its commands by their one line, as `--help` and the shell's completion ask for them; `resolve_command`
    imports the one that is called."""

    listed: ClassVar[Mapping[str, Listed]] = {}

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, one in self.listed.items():
            self.add_command(TyperCommand(name, help=one.help, rich_markup_mode=self.rich_markup_mode), name)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and name in self.listed:
            command = self.listed[name].load(name)
        return name, command, rest
