"""What learns has a name, and goes on under it as it was begun: evolutions and trainings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from core.errors import ConfigError
from core.settings import Settings
from ui.cli.playing import with_ceiling

if TYPE_CHECKING:
    from storage.rows.summaries import RunKind
    from storage.store import Store
    from ui.runs.plans import EvolutionPlan, TrainingPlan

P = TypeVar("P", "EvolutionPlan", "TrainingPlan")

LearnerSeedOption = Annotated[
    int, typer.Option(min=0, max=2**63 - 1, help="The same seed learns the same again, bit for bit.")
]
ConfigFileOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE.toml", help="Every other setting; options given here win over the file."),
]
WriteConfigOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE.toml", help="Write such a file, a comment for every key, and stop."),
]
NameOption = Annotated[
    str, typer.Option(help="What to call it; with --resume, which one goes on (or a run's id).")
]
ResumeByNameOption = Annotated[
    bool, typer.Option("--resume", help="Go on with the one of this --name where it was interrupted.")
]

#: What a reader calls them, with the article.
_WORDS = {"evolve": "an evolution", "train": "a training"}
#: Keys that may differ when one is resumed: they change nothing about what it is.
_FREE = ("max_cost_usd", "name")


def known_run(store: Store, kind: RunKind, name: str, *, resume: bool, may_begin: bool) -> str | None:
    """The run of this kind and name; None where a new one is to begin. ConfigError when it is there and shall not go
    on, or the other way, or a resumed one has no name."""
    article, what = _WORDS[kind].split()
    if resume and not name:
        raise ConfigError(
            f"Say which {what} to resume: --resume needs --name NAME, or a run's id as its name."
        )
    known = store.runs.find(name, kind) if name else None
    if known and not resume:
        raise ConfigError(
            f"There is {article} {what} named '{name}': go on with it by --resume, or choose another name."
        )
    if resume and not known and not may_begin:
        raise ConfigError(f"The store holds no {what} named '{name}': begin it without --resume.")
    return known


def as_begun(store: Store, run_id: str, asked: P, settings: Settings, fixed: Mapping[str, str | None]) -> P:
    """The stored plan; ConfigError for a key of `fixed` that would make it another one, by its option where it is
    one."""
    from ui.runs.plans import plan_of

    begun = with_ceiling(plan_of(store.runs.get(run_id), type(asked)), settings)
    for key, option in fixed.items():
        if key not in _FREE and _value(begun, key) != _value(asked, key):
            what = f"--{option.replace('_', '-')}" if option else key
            raise ConfigError(
                f"This {_WORDS[asked.kind].split()[1]} was begun with another {what}: it goes on as it was begun, "
                "leave it out."
            )
    return begun


def _value(plan: EvolutionPlan | TrainingPlan, key: str) -> object:
    """What a plan says of a key of its own, or of what it learns by."""
    if hasattr(plan, key):
        return getattr(plan, key)
    return getattr(plan.evolution if plan.kind == "evolve" else plan.learning, key)
