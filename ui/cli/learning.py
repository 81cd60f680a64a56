"""What `trinity evolve` and `trinity train` have in common: what is asked for, and a name to resume it by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from core.errors import ConfigError
from core.fields import checked, settings_of, values_of
from core.settings import Settings
from ui.cli.config_file import read_file, write_file
from ui.cli.console import opened_store, say
from ui.cli.options import Given
from ui.cli.pilot import refuse_pilot
from ui.cli.play import with_ceiling
from ui.runs.settings.learning import EvolutionPlan, TrainingPlan

if TYPE_CHECKING:
    from storage.rows.summaries import RunKind
    from storage.store import Store

P = TypeVar("P", EvolutionPlan, TrainingPlan)

ConfigFileOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE.toml", help="Every other setting; options given here win over the file."),
]
WriteConfigOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE.toml", help="Write such a file, a comment for every key, and stop."),
]
ResumeByNameOption = Annotated[
    bool, typer.Option("--resume", help="Go on with the one of this --name where it was interrupted.")
]

#: What a reader calls them, with the article.
_WORDS = {"evolve": "an evolution", "train": "a training"}


@dataclass(frozen=True, slots=True)
class How:
    """Options that say nothing of what is learned; `preset` is where settings begin."""

    preset: str
    config: Path | None
    write_config: Path | None
    pilot: bool
    resume: bool
    store: str | None


def learn(
    kind: type[P],
    given: Given,
    play: Callable[[Store, P, str | None, Given], None],
    how: How,
) -> None:
    """Play what a preset, a file and the options that are `given` ask for, each winning over those before it; or write
    all of it into a file. `play` is handed the open store, the plan, the run that goes on (None for a new
    one) and all settings."""
    from ui.runs import wiring
    from ui.runs.grading import name_task_file
    from ui.runs.settings.learning import plan_from, preset_values

    command: RunKind = "evolve" if kind is EvolutionPlan else "train"
    asked = preset_values(kind, how.preset)
    asked |= (read_file(how.config, kind, command) if how.config else {}) | dict(given)
    chosen = checked(kind, asked, f"{how.config}: " if how.config else "")
    if how.write_config:
        write_file(how.write_config, kind, chosen, command)
        say(f"Wrote {how.write_config}. Edit it, then: trinity {command} --config {how.write_config}")
        return
    refuse_pilot(how.resume, how.pilot)
    doors = {key: chosen.get(key) for key in ("pool", "encoder", "max_cost_usd")}
    settings = wiring.settings(store=how.store, **doors)
    with opened_store(settings.store) as opened:
        known = known_run(opened, command, chosen["name"], resume=how.resume, may_begin="tasks" in asked)
        if kind is EvolutionPlan and not known:
            settings = replace(settings, encoder=wiring.encoder_for(settings.pool, settings.encoder))
        plan = plan_from(kind, chosen, settings)
        if known:
            names = {key: settings_of(kind)[key].setting.option if key in given else key for key in asked}
            plan = stored_plan(opened, known, plan, settings, asked, names)
        else:
            name_task_file(opened, plan.tasks)
        play(opened, plan, known, chosen)


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


def stored_plan(
    store: Store, run_id: str, plan: P, settings: Settings, asked: Given, names: Mapping[str, str]
) -> P:
    """The plan that a run keeps; ConfigError for a setting among those `asked` for that would make it another one, by
    its name."""
    from ui.runs.plans import plan_of

    kind = type(plan)
    stored = with_ceiling(plan_of(store.runs.get(run_id), kind), settings)
    before, now = values_of(stored), values_of(plan)
    for key, field in settings_of(kind).items():
        found_out = (
            not field.optional and asked.get(key) == field.setting.word
        )  # its word stands for no value
        if key in asked and not field.setting.free and not found_out and before[key] != now[key]:
            raise ConfigError(
                f"This {_WORDS[plan.kind].split()[1]} was begun with another {names[key]}: it goes on as it was "
                "begun, leave it out."
            )
    return stored
