"""The options that say which episodes are meant, and their values checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from storage.filters import EpisodeFilter

PolicyOption = Annotated[
    str | None, typer.Option("--policy", help="Only of this policy, e.g. random or a checkpoint's id.")
]
CheckpointOption = Annotated[str | None, typer.Option("--checkpoint", help="Only of this checkpoint.")]
FamilyOption = Annotated[str | None, typer.Option("--family", help="Only tasks of this family.")]
TaskOption = Annotated[str | None, typer.Option("--task", help="Only this task's.")]
CorrectOption = Annotated[
    str | None, typer.Option("--correct", help="right, wrong or none (not yet, or missing).")
]
StatusOption = Annotated[
    str | None, typer.Option("--status", help="running, finished, interrupted or missing.")
]
EndOption = Annotated[str | None, typer.Option("--end", help="accepted, budget, cancelled, ...")]
FlagOption = Annotated[
    str | None, typer.Option("--flag", help="false_accept, answer_broke, self_verified, ...")
]
ModelOption = Annotated[str | None, typer.Option("--model", help="With a turn of this model.")]
RoleOption = Annotated[
    str | None, typer.Option("--role", help="With a turn in this role (of that model, when given).")
]
MinTurnsOption = Annotated[int | None, typer.Option("--min-turns", min=0, help="At least so many turns.")]
MaxTurnsOption = Annotated[int | None, typer.Option("--max-turns", min=0, help="At most so many turns.")]
TextOption = Annotated[str | None, typer.Option("--text", help="Words in the question or a reply.")]
WhereOption = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="EXPR",
        help="A condition in the filter language of the Episodes page, such as "
        "'turns > 4 and \"false_accept\" in flags'.",
    ),
]
ForksOption = Annotated[
    str | None,
    typer.Option(
        "--forks",
        help="with or only: forks are left out unless a run, an id or they are asked for; without: live plays too.",
    ),
]
GenerationOption = Annotated[
    int | None, typer.Option("--generation", min=0, help="Only of this generation's checkpoint.")
]
RunOption = Annotated[str | None, typer.Option("--run", help="Only this run's.")]


def checked(where: EpisodeFilter) -> EpisodeFilter:
    """The filter, when every value is one that its field can have; ConfigError names the option otherwise."""
    from core.errors import ConfigError
    from storage.filters import CHOICES
    from ui.export.formats import OPTIONS

    for name, choices in CHOICES.items():
        if (value := getattr(where, name)) not in (None, *choices):
            option = OPTIONS.get(name, name)
            raise ConfigError(f"--{option} cannot be '{value}': choose one of {', '.join(choices)}.")
    return where
