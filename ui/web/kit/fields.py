"""A setting as its widget, and those of a run as a table: names, help, bounds and defaults as they are declared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.episode import Protocol
from core.fields import Field, Group, settings_of, values_of
from ui.presentation.glossary import define
from ui.presentation.theme import label
from ui.presentation.words import PROTOCOL_WORDS
from ui.web.kit.text import markdown_table

#: The largest whole number that a browser keeps exactly.
_MOST = 2**53 - 1
#: Choices of so many letters in all stand side by side in a third of a form.
_LETTERS = 24
#: What groups of settings are called.
GROUPS: Mapping[Group, str] = {
    "tasks": "Tasks and validation",
    "size": "Size",
    "search": "Search",
    "reward": "Rewards",
    "models": "Models and replies",
}
_WORDS: Mapping[Any, Mapping[Any, str]] = {Protocol: PROTOCOL_WORDS}


def draw(column: DeltaGenerator, field: Field, key: str, letters: int = _LETTERS, **look: Any) -> Any:
    """The widget, and what is chosen in it. `look`: further arguments of it, `options` of one of several values;
    `letters`: how many of its choices have room side by side."""
    setting = field.setting
    term = f"\n\n{define(setting.term)}" if setting.term else ""
    look = {"label": field.title, "key": key, "help": field.help + term, **look}
    if field.kind is bool:
        return column.toggle(value=field.default, **look)
    if field.choices:
        words = {None: field.left_out or "left out", **_WORDS.get(field.kind, {})}
        usual = (None, *field.choices) if field.optional and field.default is None else field.choices
        options = look.get("options", usual)
        look = {"options": options, "format_func": lambda value: words.get(value, value), **look}
        first = field.default if field.default in options else options[0]
        if sum(len(look["format_func"](one)) for one in options) > letters:
            return column.selectbox(index=options.index(first), **look)
        return column.segmented_control(default=first, required=True, **look)
    if "options" in look:
        return tuple(column.multiselect(**look))
    if field.kind in (int, float):
        if setting.open and field.default is None:
            look["placeholder"] = field.left_out or "left out"
        return column.number_input(**_bounds(field), **{"value": field.default, **look})
    return column.text_input(value=field.default, **look).strip()


def draw_all(
    fields: Sequence[Field],
    form: str,
    looks: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    **look: Any,
) -> dict[str, Any]:
    """Settings in rows of three, switches last, and what is chosen, by their keys. `form` begins the widgets' keys;
    `looks`: see `draw`, `look` is that of all."""
    chosen: dict[str, Any] = {}
    fields = sorted(fields, key=lambda one: one.kind is bool)
    for first in range(0, len(fields), 3):
        for column, field in zip(st.columns(3), fields[first : first + 3], strict=False):
            chosen[field.key] = draw(column, field, f"{form}_{field.key}", **look, **looks.get(field.key, {}))
    return chosen


def draw_groups(
    fields: Sequence[Field], form: str, looks: Mapping[str, Mapping[str, Any]] = MappingProxyType({})
) -> dict[str, Any]:
    """Settings as `draw_all` draws them, those of a group under its name."""
    chosen: dict[str, Any] = {}
    for group, some in groupby(fields, key=lambda one: one.setting.group):
        st.markdown(f"**{GROUPS[group]}**")
        chosen |= draw_all([*some], form, looks)
    return chosen


def settings_table(plan: object, usual: Mapping[str, Any] = MappingProxyType({})) -> None:
    """All settings of a run's plan, in a fold: each with what it is usually, where it is not. `usual`: what those are
    usually that follow from others, by key."""
    chosen = values_of(plan)
    with st.expander("Settings", icon=":material/tune:", key="settings", on_change="rerun") as fold:
        if fold.open:
            rows = [
                (
                    label(one.title, 60),
                    _words(one, chosen[key]),
                    "" if chosen[key] == (default := usual.get(key, one.default)) else _words(one, default),
                )
                for key, one in settings_of(type(plan)).items()
                if not one.setting.learners or chosen["learner"] in one.setting.learners
            ]
            markdown_table(("Setting", "Value", "Usually"), rows, "lll")


def _words(field: Field, value: object) -> str:
    if value is None:
        return label(field.setting.word or (field.setting.open and field.left_out) or "none", 60)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        value = ", ".join(value)
    return label(
        _WORDS.get(field.kind, {}).get(value, f"{value:,}" if isinstance(value, int) else str(value)), 60
    )


def _bounds(field: Field) -> dict[str, Any]:
    setting, kind = field.setting, field.kind
    least = setting.gt if setting.ge is None else setting.ge
    most = setting.lt if setting.le is None else setting.le
    most = min(most, _MOST) if kind is int and most is not None else most
    found = {
        "min_value": None if least is None else kind(least),
        "max_value": None if most is None else kind(most),
    }
    return found if kind is int else {**found, "format": "%.6g"}
