"""The one filter of the command line: --where, and --run, --policy and --flag as its shorthands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from core.errors import ConfigError

if TYPE_CHECKING:
    from storage.filters.episode_filter import EpisodeFilter


WhereOption = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="EXPR",
        help="A condition in the filter language of the Episodes page, such as "
        "'family == \"logic\" and turns > 4'. Forks are left out unless it asks for them "
        "(fork in (True, False)), a run or an id.",
    ),
]
RunOption = Annotated[str | None, typer.Option("--run", help="Only this run's.")]
PolicyOption = Annotated[
    str | None, typer.Option("--policy", help="Only of this policy, e.g. random or a checkpoint's id.")
]
FlagOption = Annotated[
    str | None, typer.Option("--flag", help="false_accept, answer_broke, self_verified, ...")
]


def filter_of(where: str | None, run: str | None, policy: str | None, flag: str | None) -> EpisodeFilter:
    """The filter that these options ask for; all of them must hold. ConfigError for a flag that there is not."""
    from storage.filters.episode_filter import CHOICES, EpisodeFilter

    if flag not in (None, *CHOICES["flag"]):
        raise ConfigError(f"--flag cannot be '{flag}': choose one of {', '.join(CHOICES['flag'])}.")
    return EpisodeFilter(run=run, policy=policy, flag=flag, q=where)
