"""The sidebar of the Episodes page, its facets with their counts, and the chips of what is chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

import streamlit as st

from core.episode import EndReason, Flag, Role, Status
from storage.filters.episode_filter import WHOLE_STORE, EpisodeFilter, is_silent
from storage.filters.expression import Every, ExpressionError, Node, join_nodes, write_expression
from storage.filters.parser import parse_expression
from storage.rows.summaries import EpisodeSummary, Facets, FacetValue, SavedView
from storage.store import Store
from ui.presentation.theme import END_WORDS, FLAG_WORDS, ROLE_STYLES, STATUS_MARKS, label, one_line
from ui.presentation.words import policy_name, several
from ui.web.kit import state
from ui.web.kit.cache import cached, run_names
from ui.web.kit.widgets import button, tool
from ui.web.pickers.checkpoints import generation_of

#: Where a page of the list begins; gone as soon as it becomes another list.
CURSORS = ("after", "before", "last")
_SHORT_FLAGS = {
    "false_accept": "false accept",
    "answer_broke": "right answer lost",
    "low_margin": "low margin",
    "override": "decision taken over",
    "swapped": "coordinator swapped",
    Flag.VERDICT_UNREADABLE.value: "verdict unreadable",
    Flag.SELF_VERIFIED.value: "self-verified",
    Flag.PROMPT_OVERFLOW.value: "transcript cut",
    Flag.PROMPT_SHORTENED.value: "prompt shortened",
    Flag.TRUNCATED.value: "reply cut",
    Flag.REUSED.value: "reply reused",
    Flag.REFUSED.value: "refused",
    Flag.UNKNOWN_FINISH.value: "unknown end",
    Flag.UNASKED_TOOL_CALL.value: "unasked tool call",
    Flag.RECORDED.value: "recorded reply",
    Flag.BY_AGREEMENT.value: "verdict by comparison",
    Flag.FAILED_OVER.value: "another model asked",
    Flag.REPAIRED.value: "form repaired",
    Flag.CONTINUED.value: "reply continued",
}
#: Of ends that mean something else for a rule, or where recorded answers are compared, what all have in common.
_ENDS = {EndReason.ACCEPTED: "accepted", EndReason.BUDGET: "no more turns"}
_OUTCOMES = {"right": "● right", "wrong": "✕ wrong", "none": "· not judged"}
_BY_HAND = (
    " A live play, or one with a decision taken by hand, is no measurement: a person chose the problem, the settings "
    "or a turn. Nor are an evolution's own episodes, which share their replies."
)
#: The option of a switch that leaves forks, or samples, out; the address then says nothing of them.
_HIDDEN = "hidden"
_FORKS_LEFT_OUT = "and live plays, requests and evolutions left out"
#: What totals leave out beside forks: one, and several.
_BESIDE = ("live play, request or episode of an evolution", "live plays, requests or episodes of evolutions")
#: The facets in their order: a field of the filter -> its heading, and whether it has too many values to show all.
_FACETS = {
    "correct": ("Answer", False),
    "family": ("Family", False),
    "policy": ("Policy", True),
    "run": ("Run", True),
    "end_reason": ("Ended", False),
    "flag": ("Flags", False),
    "status": ("Status", False),
    "generation": ("Generation", True),
}
FIELD_WORDS = {"end_reason": "ended", "min_turns": "turns ≥", "max_turns": "turns ≤", "correct": "answer"}


@cached
def facets_of(store: Store, where: EpisodeFilter) -> Facets:
    """Counts by field over the filtered episodes, each field without its own condition."""
    return store.episodes.facets(where)


def change(**values: str | int | None) -> None:
    """Change the filter or the order; the cursor belongs to the old list, the basket does not."""
    state.set_params(**{**dict.fromkeys(CURSORS), **values})
    st.session_state["episodes_list"] = st.session_state.get("episodes_list", 0) + 1


def show_facets(
    store: Store, where: EpisodeFilter, facets: Facets, in_force: EpisodeFilter, *, totals: bool = False
) -> None:
    """Render the sidebar. `where` is what the address asks for; `in_force` says what becomes of forks and samples, by
    the address, its view, or the rule of a page that adds up (`totals`)."""
    for name, (words, is_list) in _FACETS.items():
        value, values = getattr(where, name), getattr(facets, name)
        chosen = None if value is None else str(value)
        if is_list:
            facet(store, name, words, chosen, values, change, least=2, placeholder="any")
        elif name != "status" or len(values) > 1 or chosen:
            facet(store, name, words, chosen, values, change, widget="pills")
    exact = str(where.min_turns) if _is_exact(where) else None

    def exactly(turns: str | None) -> None:
        change(min_turns=turns, max_turns=turns)

    facet(store, "turns", "Turns played", exact, facets.turns[:12], exactly, widget="pills")
    fork_switch(in_force, facets, change, totals=totals)
    sample_switch(in_force, facets, change)
    _turn_filters(where)


def left_out_words(where: EpisodeFilter, facets: Facets) -> str:
    """What the filter leaves out of a total unless it asks for it, plain text: `10 forks left out`; empty: nothing."""
    measured = where.forks == "without"
    forks, samples = (
        measured or is_silent(where, "forks"),
        where.samples == "without" or is_silent(where, "samples"),
    )
    aside = aside_words(facets, forks=forks, by_hand=measured, samples=samples)
    return f"{aside} left out" if aside else ""


def aside_words(facets: Facets, *, forks: bool = True, by_hand: bool = True, samples: bool = False) -> str:
    """How many episodes of these kinds there are beside those that totals count, plain text; empty for none."""
    counts = (
        (forks, facets.forks, ("fork",)),
        (by_hand, facets.by_hand, _BESIDE),
        (samples, facets.samples, ("sample episode",)),
    )
    return " and ".join(several(n, *words) for wanted, n, words in counts if wanted and n)


def uncounted_words(store: Store) -> str:
    """How many of all episodes of a store no total counts, in brackets after a space, plain text; empty for none."""
    aside = aside_words(facets_of(store, WHOLE_STORE))
    return f" (among them {aside}, which no total counts)" if aside else ""


def fork_switch(
    where: EpisodeFilter, facets: Facets, change: Callable[..., None], *, totals: bool = False
) -> None:
    """Whether forks count, and live plays where totals leave them out (`forks` is "without"); nothing where there are
    none. `totals`: the page adds up. `change` sets parameters of the address."""
    both = facets.by_hand > 0 and (where.forks == "without" or (totals and where.forks is not None))
    n = facets.forks + facets.by_hand * both
    if not n and where.forks in (None, "without"):
        return
    what = " and ".join(
        ["Forks"] * (not both or facets.forks > 0) + ["live plays, requests, evolutions"] * both
    ).capitalize()
    words = {_HIDDEN: "hidden", "with": "included"}
    if facets.forks or where.forks == "only":
        words["only"] = "only forks" if both else "only"
    hidden = _HIDDEN if where.forks == "without" or is_silent(where, "forks") else None
    state.select(
        f"{what} ({n:,})",
        words,
        where.forks if where.forks in words else hidden,
        lambda value: change(forks=None if value == _HIDDEN else value),
        key="facet_forks",
        widget="pills",
        help="A fork carries turns of another episode, so it is not counted as a play of its own unless you say so."
        + _BY_HAND * both,
    )


def sample_switch(where: EpisodeFilter, facets: Facets, change: Callable[..., None]) -> None:
    """Whether the sample runs count beside one's own; nothing where there are none, or nothing else. `change` sets
    parameters of the address."""
    if not facets.samples and where.samples in (None, "without"):
        return
    words = {_HIDDEN: "hidden", "with": "included", "only": "only"}
    state.select(
        f"Samples ({facets.samples:,})",
        words,
        where.samples if where.samples in ("with", "only") else _HIDDEN,
        lambda value: change(samples=None if value == _HIDDEN else value),
        key="facet_samples",
        widget="pills",
        help="Runs that came with the program. They are never counted among your own unless you say so.",
    )


def _is_exact(where: EpisodeFilter) -> bool:
    return where.min_turns is not None and where.min_turns == where.max_turns


def flags_of(one: EpisodeSummary) -> list[str]:
    """An episode's flags in a few words each; where answers were compared, nobody has accepted one or judged it."""
    compared = {
        "false_accept": "same wrong answer",
        Flag.SELF_VERIFIED.value: "own answer sure enough",
    }
    known = compared if Flag.BY_AGREEMENT.value in one.flags else {}
    return [known.get(flag) or flag_word(flag) for flag in one.flags]


def flag_word(value: str) -> str:
    """A flag of a turn or of a whole episode, in a few words."""
    return _SHORT_FLAGS.get(value) or FLAG_WORDS[Flag(value)]


#: How the values of a field are said, where not by themselves.
_SAID: dict[str, Callable[[str], str]] = {
    "correct": lambda value: _OUTCOMES.get(value, value),
    "end_reason": lambda value: _ENDS.get(EndReason(value)) or END_WORDS[EndReason(value)],
    "flag": flag_word,
    "status": lambda value: STATUS_MARKS[Status(value)].word,
    "turns": lambda value: f"{value} turn{'' if value == '1' else 's'} ·",
    "text": lambda value: f"“{value}”",
    "forks": lambda value: _FORKS_LEFT_OUT if value == "without" else value,
}


def _set_from(name: str) -> None:
    change(**{name: state.entered(f"facet_{name}")})


def counted(values: Sequence[FacetValue], chosen: str | None) -> dict[str, int]:
    """How many episodes have each value; a chosen value that none has counts 0."""
    counts = {one.value: one.n for one in values}
    return counts if chosen is None or chosen in counts else {chosen: 0, **counts}


def facet(
    store: Store,
    name: str,
    words: str,
    chosen: str | None,
    values: Sequence[FacetValue],
    change: Callable[..., None],
    *,
    key: str = "facet",
    least: int = 1,
    **look: Any,
) -> None:
    """A choice among the values of a field of the filter, each with its count; a second click lets go. Nothing where
    there are fewer than `least` values and none is chosen. `change` sets the field; `look`: further arguments of
    `state.select`."""
    counts = counted(values, chosen)
    if len(counts) < least and chosen is None:
        return
    said = value_words(store, name, list(counts))
    if look.get("widget") == "pills":  # their words are markdown
        offered = {value: f"{label(said[value], 40)} {n:,}" for value, n in counts.items()}
    else:
        offered = {value: f"{one_line(said[value], 60)} · {n:,}" for value, n in counts.items()}
    state.select(words, offered, chosen, lambda value: change(**{name: value}), key=f"{key}_{name}", **look)


def value_words(store: Store, name: str, values: Sequence[str]) -> dict[str, str]:
    """Values of a field of the filter as a reader knows them, plain text."""
    match name:
        case "policy":
            generations = generation_of(store)
            return {value: policy_name(value, generations.get(value)) for value in values}
        case "run":
            return run_names(store, values)
    say = _SAID.get(name, str)
    return {value: say(value) for value in values}


def _first_is(role: str) -> Node:
    return parse_expression(f'any(turn.number == 1 and turn.role == "{ROLE_STYLES[Role(role)].letter}")')


def _conditions(q: str | None) -> list[Node]:
    """The conditions of the filter line that must all hold; none where it cannot be read."""
    try:
        node = parse_expression(q) if q else None
    except ExpressionError:
        return []
    return list(node.parts) if isinstance(node, Every) else [node] if node else []


def _first_role(q: str | None) -> str | None:
    held = _conditions(q)
    return next((role.value for role in Role if _first_is(role.value) in held), None)


def _with_first_role(q: str | None, role: str | None) -> str | None:
    """The filter line, asking this of the first turn and nothing else."""
    others = [_first_is(one.value) for one in Role]
    parts = [one for one in _conditions(q) if one not in others]
    parts += [_first_is(role)] if role else []
    return write_expression(join_nodes(Every, parts)) if parts else None


def _turn_filters(where: EpisodeFilter) -> None:
    """Conditions on single turns: they are few, and hidden until wanted."""
    in_use = any((where.model, where.role, where.min_turns, where.max_turns))
    first = _first_role(where.q)
    with st.expander("Turns", expanded=in_use or first is not None):
        state.select(
            "Turn 1 is, on any model",
            {role.value: f"{look.shape} {look.word}" for role, look in ROLE_STYLES.items()},
            first,
            lambda role: change(q=_with_first_role(where.q, role)),
            key="facet_first",
            widget="pills",
        )
        state.select(
            "Has a turn in the role",
            {role.value: f"{look.shape} {look.word}" for role, look in ROLE_STYLES.items()},
            where.role,
            lambda role: change(role=role),
            key="facet_role",
            widget="pills",
        )
        st.session_state["facet_model"] = where.model or ""
        st.text_input(
            "… by the model",
            key="facet_model",
            placeholder="model name",
            on_change=partial(_set_from, "model"),
        )
        for name, words in (("min_turns", "At least"), ("max_turns", "At most")):
            st.session_state[f"facet_{name}"] = getattr(where, name)
            st.number_input(
                f"{words} so many turns",
                min_value=0,
                max_value=999_999,
                step=1,
                key=f"facet_{name}",
                placeholder="any",
                on_change=partial(_set_from, name),
            )


def show_chips(store: Store, where: EpisodeFilter, saved: SavedView | None = None) -> None:
    """Every condition in force, each let go with one click; the expression stands in its own line."""
    active = where.without("q").to_query()
    exact = _is_exact(where)
    if exact:
        del active["max_turns"]
    if not active and saved is None:
        return
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        if saved is not None:
            condition_chip(
                "chip_view",
                f"view: {label(saved.name, 60)}",
                partial(change, view=None),
                "Leave this saved view",
            )
        for name, value in active.items():
            field, names = FIELD_WORDS.get(name, name), [name]
            if exact and name == "min_turns":
                field, names = "turns =", ["min_turns", "max_turns"]
            words = value_words(store, name, [value])[value]
            let_go = partial(change, **dict.fromkeys(names))
            condition_chip(f"chip_{name}", f"{field} {label(words, 40)}", let_go)
        if len(active) + (saved is not None) + (where.q is not None) > 1:
            tool("Clear all", "chip_all", clear)


def condition_chip(
    key: str, words: str, let_go: Callable[[], None], help: str = "Remove this condition"
) -> None:
    """A condition in force, let go with a click."""
    button(words, key, let_go, icon="close", help=help)


def clear() -> None:
    """Let every condition go, the saved view too."""
    change(view=None, **{field.name: None for field in fields(EpisodeFilter)})
