"""What commands take: options made from settings, those that many share, the store, and the one filter of episodes."""

from __future__ import annotations

import functools
import inspect
import json
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, is_dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, get_origin

import typer

from core.errors import ConfigError
from core.fields import MOST_TASKS, Field, Setting, build_settings, settings_of
from core.settings import DEVICE, DTYPE, ENCODER, MAX_COST, POOL, STORE

if TYPE_CHECKING:
    from storage.filters.episode_filter import EpisodeFilter
    from storage.store import Store

Command = Callable[..., None]
#: The settings that stand on a command line, by key.
Given = Mapping[str, Any]


def option(setting: Setting, name: str = "", help: str = "", **more: Any) -> Any:
    """The option of a setting, for the annotation of a parameter; `name` and `help` in the place of its own."""
    more["metavar"] = setting.metavar or more.get("metavar")
    return typer.Option(name or setting.option, help=help or setting.help, **more)


#: The store as an option stands among others in the order in which they are declared.
OWN_STORE = replace(STORE, group="size")
StoreOption = Annotated[str | None, option(STORE, show_default=False)]
PoolOption = Annotated[str | None, option(POOL, show_default=False)]
EncoderOption = Annotated[str | None, option(ENCODER)]
DeviceOption = Annotated[str | None, option(DEVICE, metavar="auto|cpu|cuda|mps")]
DtypeOption = Annotated[str | None, option(DTYPE, metavar="float32|bfloat16|float16")]
MaxCostOption = Annotated[float | None, option(MAX_COST)]
JSON = Setting(option="--json", help="Print JSON for scripts instead of a table.")
JsonOption = Annotated[bool, option(JSON)]


WHERE = Setting(
    option="--where",
    metavar="EXPR",
    help="A condition in the filter language of the Episodes page, such as 'family == \"logic\" and turns > 4'. Forks "
    "are left out unless it asks for forks (fork in (True, False)), a run or an id.",
)
RUN = Setting(option="--run", help="Only episodes of this run.")
POLICY = Setting(option="--policy", help="Only episodes of this policy, e.g. random or a checkpoint's id.")
FLAG = Setting(
    option="--flag", help="Only episodes with this flag: false_accept, answer_broke, self_verified, ..."
)
WhereOption = Annotated[str | None, option(WHERE)]
RunOption = Annotated[str | None, option(RUN)]
FlagOption = Annotated[str | None, option(FLAG)]


@dataclass(frozen=True, slots=True)
class Filter:
    """Which episodes a command is about; all that is given must hold."""

    where: Annotated[str | None, WHERE] = None
    run: Annotated[str | None, RUN] = None
    policy: Annotated[str | None, POLICY] = None
    flag: Annotated[str | None, FLAG] = None

    def chosen(self) -> EpisodeFilter:
        """The filter of the store; ConfigError for a flag that there is not."""
        from storage.filters.episode_filter import CHOICES, EpisodeFilter

        if self.flag not in (None, *CHOICES["flag"]):
            raise ConfigError(f"--flag cannot be '{self.flag}': choose one of {', '.join(CHOICES['flag'])}.")
        return EpisodeFilter(run=self.run, policy=self.policy, flag=self.flag, q=self.where)


@contextmanager
def opened_store(url: str | None, *, mark_dead: bool = False) -> Iterator[Store]:
    """The store that --store names, else that of the settings. `mark_dead`: see `lease.mark_dead`."""
    from storage.store import open_store
    from ui.runs import lease, wiring

    with closing(open_store(wiring.settings(store=url).store)) as store:
        if mark_dead:
            lease.mark_dead(store)
        yield store


def with_options(kind: type | None = None) -> Callable[[Command], Command]:
    """The command with options in the place of settings: those of `kind` in the place of its parameter `given`, which
    is handed what stands on the command line, by the settings' keys; and a parameter that is a dataclass of settings is
    made from its options."""

    def decorate(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True).parameters
        kinds: dict[str, type] = {
            name: one.annotation
            for name, one in own.items()
            if isinstance(one.annotation, type) and is_dataclass(one.annotation)
        }
        kinds |= {"given": kind} if kind else {}
        options = {
            name: {key: field for key, field in settings_of(of).items() if field.setting.option}
            for name, of in kinds.items()
        }
        parameters = []
        for name, parameter in own.items():
            parameters += [*map(_parameter, options[name].values())] if name in options else [parameter]

        @functools.wraps(command)
        def called(**arguments: Any) -> None:
            for name, fields in options.items():
                values = {key: _read(field, arguments.pop(key)) for key, field in fields.items()}
                if name == "given":
                    arguments[name] = {
                        key: value for key, value in values.items() if given_by(arguments["context"], key)
                    }
                else:
                    arguments[name] = build_settings(kinds[name], values)
            command(**arguments)

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


def setting_lines(kind: type, chosen: Mapping[str, Any]) -> list[str]:
    """What a file says that is chosen: a line for every key, below what it does."""
    lines = []
    for key, field in settings_of(kind).items():
        value = chosen[key]
        line = f"# {key} =" if value is None else f"{key} = {json.dumps(value, ensure_ascii=False)}"
        words = field.help + (f" One of {', '.join(field.choices)}." if field.choices else "")
        lines += [*textwrap.wrap(words, 110, initial_indent="# ", subsequent_indent="# "), line, ""]
    return lines


def given_by(context: typer.Context, option: str) -> bool:
    """Whether an option stands on the command line."""
    source = context.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"


def refuse_beside(context: typer.Context, option: str, *allowed: str) -> None:
    """ConfigError for options that would go unheard beside this one."""
    if unheard := _others(context, allowed):
        raise ConfigError(f"{option} cannot be combined with {', '.join(unheard)}: leave that out.")


def _others(context: typer.Context, allowed: Sequence[str]) -> list[str]:
    """The options that are given besides those that are allowed."""
    names = {one.name: one.opts[0] for one in context.command.params if one.name}
    return sorted(names[name] for name in context.params if name not in allowed and given_by(context, name))


def refuse_with_resume(context: typer.Context, *allowed: str) -> None:
    """ConfigError for options that would change what a resumed run is; they would go unheard."""
    if changed := _others(context, allowed):
        raise ConfigError(f"--resume keeps the settings of the run: leave {', '.join(changed)} out.")
