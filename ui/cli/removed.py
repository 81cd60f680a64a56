"""Options of earlier versions: what to write in the place of each, in one sentence."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Sequence

from core.errors import ConfigError

#: Options that narrowed a list, and the filter's fields that they set.
FILTERS = {
    f"--{field.replace('_', '-')}": field
    for field in ("checkpoint", "generation", "family", "task", "correct", "status", "model", "role")
    + ("min_turns", "max_turns", "text", "forks")
} | {"--end": "end_reason"}
#: Options of `trinity evolve`, and the line of its --config file that says the same; `{}` is the option's value.
KNOBS = {
    "--adaptive": "adaptive = true",
    "--draw": "common = false",
    "--without": "barred = [{}]",
    "--token-position": "token_position = {}",
    "--rates": "rates = {}",
    "--spread": "logit_spread = {}",
    "--constant-spread": "constant_spread = {}",
    "--step-size": "step_size = {}",
    "--svf-spread": "svf_spread = {}",
    "--svf-step-size": "svf_step_size = {}",
    "--learning-rate": "learning_rate = {}",
    "--box": "box = {}",
    "--diversity": "diversity = {}",
    "--turn-cost": "turn_cost = {}",
}


def instead_of(
    option: str, command: str | None, options: Collection[str], arguments: Sequence[str]
) -> ConfigError | None:
    """What to write instead of an option that a command no longer has; None for one that it never had. `options` are
    the command's own, by name, and `arguments` all that stands on the command line."""
    if command == "evolve" and option in KNOBS:
        values = [value for name, value in _pairs(arguments) if name == option]
        line = KNOBS[option].format(", ".join(map(_toml, values)))
        line = "common = true" if option == "--draw" and values == ["common"] else line
        return ConfigError(
            f"No such option: {option}. Write {line} into a file and name it by --config FILE; "
            "trinity evolve --write-config FILE writes one with every key."
        )
    if option in FILTERS and "where" in options:
        return _as_where(option, options, arguments)
    return None


def _as_where(option: str, options: Collection[str], arguments: Sequence[str]) -> ConfigError:
    """The --where that says all of the removed options that were given, with the --where that stands there."""
    from storage.filters.episode_filter import CHOICES, EpisodeFilter, as_expression

    values: dict[str, str] = {}
    for name, value in _pairs(arguments):
        if name in FILTERS and name.removeprefix("--").replace("-", "_") not in options and value:
            values[FILTERS[name]] = value
        elif name == "--where" and value:
            values["q"] = value
    for field, value in values.items():
        if value not in CHOICES.get(field, (value,)):
            name = next(name for name, one in FILTERS.items() if one == field)
            return ConfigError(
                f"No such option: {name}, and '{value}' is none of {', '.join(CHOICES[field])}: "
                f"write --where {shlex.quote(_example(field))}."
            )
    where = as_expression(EpisodeFilter.from_query(values)) or _example(FILTERS[option])
    return ConfigError(f"No such option: {option}. Write --where {shlex.quote(where)}")


def _example(field: str) -> str:
    """What a --where with this field of a filter looks like."""
    from storage.filters.episode_filter import CHOICES, EpisodeFilter, as_expression

    value = "3" if "turns" in field or field == "generation" else "logic"
    value = CHOICES.get(field, (value,))[0]
    return as_expression(EpisodeFilter.from_query({field: value}))


def _pairs(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each option with the value that follows it."""
    for place, argument in enumerate(arguments):
        name, sign, value = argument.partition("=")
        if name.startswith("--"):
            yield name, value if sign else next(iter(arguments[place + 1 :]), "")


def _toml(value: str) -> str:
    """The value as TOML writes it."""
    try:
        float(value)
    except ValueError:
        return f'"{value}"'
    return value
