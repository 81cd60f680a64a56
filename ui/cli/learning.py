"""What `trinity evolve` and `trinity train` have in common: what is asked for, its file, and a name to resume it by."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from core.errors import ConfigError
from core.fields import Setting, settings_of, validate_settings, values_of
from core.settings import Settings
from core.texts import read_text
from ui.cli.console import percent, say, tell, write_new
from ui.cli.options import OWN_STORE, Given, opened_store, setting_lines
from ui.cli.play import PILOT, refuse_pilot, with_ceiling
from ui.runs.settings.learning import EvolutionPlan, TrainingPlan

if TYPE_CHECKING:
    from storage.rows.summaries import RunKind, UpdateSummary
    from storage.store import Store

P = TypeVar("P", EvolutionPlan, TrainingPlan)

_HEAD = (
    "# For: trinity {command} --config {name}\n"
    "# Options on the command line win over this file. A key with # before it is left to what its comment says.\n"
)
#: What a reader calls them, with the article.
_WORDS = {"evolve": "an evolution", "train": "a training"}


@dataclass(frozen=True, slots=True)
class How:
    """Options that say nothing of what is learned."""

    pilot: Annotated[bool, PILOT] = False
    config: Annotated[str | None, Setting(option="--config", metavar="FILE.toml")] = None
    """Every other setting; options given here win over the file."""
    write_config: Annotated[str | None, Setting(option="--write-config", metavar="FILE.toml")] = None
    """Write such a file, a comment for every key, and stop."""
    resume: Annotated[bool, Setting(option="--resume")] = False
    """Go on with the one of this --name where it was interrupted."""
    store: Annotated[str | None, OWN_STORE] = None


def learn(
    kind: type[P],
    given: Given,
    play: Callable[[Store, P, str | None, Given], None],
    preset: str,
    how: How,
) -> None:
    """Play what a preset, a file and the options that are `given` ask for, each winning over those before it; or write
    all of it into a file. `play` is handed the open store, the plan, the run that goes on (None for a new
    one) and all settings."""
    from ui.runs import wiring
    from ui.runs.grading import name_task_file
    from ui.runs.settings.learning import plan_from, preset_values

    command: RunKind = "evolve" if kind is EvolutionPlan else "train"
    asked = preset_values(kind, preset)
    asked |= (read_file(Path(how.config), kind, command) if how.config else {}) | dict(given)
    chosen = validate_settings(kind, asked, f"{how.config}: " if how.config else "")
    if how.write_config:
        write_file(Path(how.write_config), kind, chosen, command)
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
    lines = [_HEAD.format(command=command, name=path.name), *setting_lines(kind, chosen)]
    write_new(path, "\n".join(lines))


def best_of(updates: Sequence[UpdateSummary], noun: str) -> dict[str, Any] | None:
    """The update that did best on validation tasks; None where none was validated."""
    validated: list[dict[str, Any]] = [
        {noun: one.index, "checkpoint": one.checkpoint_id, "validation": one.validated}
        for one in updates
        if one.validated is not None
    ]
    return max(validated, key=itemgetter("validation"), default=None)


def tell_best(best: Mapping[str, Any] | None, noun: str) -> None:
    """Say which update did best, if one did."""
    if best is not None:
        where = f"{noun} {best[noun]}, checkpoint {best['checkpoint']}"
        tell(f"Best on validation tasks: {where}, {percent(best['validation'])}.")
