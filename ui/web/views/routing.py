"""Routing: which model is called in which role, in which order, what that depends on, and whether it pays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from core.episode import Role
from storage.analysis.routing import (
    ModelInRole,
    Traffic,
    TrafficSplit,
    pool_order,
    traffic_of,
    turns_with_move,
)
from storage.store import Store
from ui.presentation.glossary import define
from ui.presentation.theme import label, one_line, percent
from ui.presentation.words import move_key, move_words, parse_move, role_word
from ui.web.kit import state
from ui.web.kit.cache import cached
from ui.web.kit.clicks import clickable, picked
from ui.web.kit.figures import literal
from ui.web.kit.matrix import ROLES, MatrixCell, matrix
from ui.web.kit.tables import link, number, row_table
from ui.web.kit.widgets import ink, nothing_here
from ui.web.pickers.scope import Scope, ScopeSide, behind, scope_bar
from ui.web.routing.figures import first_moves, move_graph, moves_by_turn, role_rows, step_key
from ui.web.routing.workflows import has_workflows, workflows_panel
from ui.web.routing.worth import compared_with_models, replicated_tasks_panel, without_model

#: Part of the page -> its words; one part at a time keeps the page quick.
PARTS = {
    "who": "Who does what",
    "order": "Who follows whom",
    "tasks": "What it depends on",
    "pays": "Does it pay?",
    "luck": "Where luck enters",
    "without": "Without a model",
    "workflows": "Workflows",
}
#: Parts that read for themselves what they show.
OWN_PARTS = {
    "pays": compared_with_models,
    "luck": replicated_tasks_panel,
    "without": without_model,
    "workflows": workflows_panel,
}
_traffic = cached(traffic_of)
_pool_order = cached(pool_order)
#: Families or policies in one matrix.
MOST_GROUPS = 12


def show() -> None:
    """Render the page."""
    store = state.store()
    st.title("Routing")
    st.caption("Which model is called in which role, in which order, and whether it pays.")
    scope = scope_bar(store, apart=state.param("part") == "workflows")
    parts = {
        name: words for name, words in PARTS.items() if name != "workflows" or has_workflows(store, scope)
    }
    part = state.address_select("Part", parts, name="part", key="routing_part")
    if part in OWN_PARTS:
        OWN_PARTS[part](store, scope)
        return
    by: TrafficSplit | None = _by() if part == "tasks" else None
    found = [_traffic(store, side.where, by) for side in scope.sides]
    traffic = [Traffic.over(of.values()) for of in found]
    if not all(one.episodes for one in traffic):
        _nothing(scope, traffic)
        return
    models = list(dict.fromkeys(model for side in scope.sides for model in _pool_order(store, side.where)))
    _standing(scope, traffic)
    if part == "who":
        _who(scope, traffic, models)
        _into(store, scope)
        _first(scope, traffic, models)
    elif part == "order":
        _order(scope, traffic, models)
        _into(store, scope)
    else:
        _groups(scope, found, models)


def _nothing(scope: Scope, traffic: Sequence[Traffic]) -> None:
    empty = [side.name for side, one in zip(scope.sides, traffic, strict=True) if not one.episodes]
    nothing_here(f"No finished episode here: {label(', '.join(empty), 120)}.", ":material/filter_alt_off:")
    with st.container(horizontal=True):
        state.page_link("routing", "Without these conditions", icon=":material/route:")
        state.page_link("home", "See how to record or load some", icon=":material/home:")


def _standing(scope: Scope, traffic: Sequence[Traffic]) -> None:
    for side, one in zip(scope.sides, traffic, strict=True):
        right = percent(one.right / one.episodes)
        with st.container(
            horizontal=True, vertical_alignment="center", gap="small", key=f"totals{side.letter}"
        ):
            st.markdown(
                f"**{side.title}**: {one.episodes:,} finished episodes, {one.total:,} turns, {right} right",
                width="content",
            )
            side.link("List them")


# Who does what


def _who(scope: Scope, traffic: Sequence[Traffic], models: Sequence[str]) -> None:
    st.subheader("Who does what?", help=define("Routing"))
    if scope.compared:
        st.caption(
            "B minus A, in points of the share of turns. Blue: more often under B. Click a cell for its turns."
        )
    else:
        st.caption("Share of all turns, in percent. Click a cell for the turns behind it.")
    moves = role_rows(models)
    _clickable(
        matrix(
            [[_who_cell(scope, traffic, move) for move in row] for row in moves],
            [role_word(role) for role in ROLES],
            [literal(model, 14) for model in models],
            ink(),
            axes=("role", "model"),
            signed=scope.compared,
        ),
        "who",
        f"Share of turns by model and role: {_alt(scope, traffic)}",
    )
    with st.expander("The same as a table", icon=":material/table_rows:"):
        _who_table(scope, traffic, [move for row in moves for move in row])


def _who_cell(scope: Scope, traffic: Sequence[Traffic], move: ModelInRole) -> MatrixCell:
    shares = [one.share(move) for one in traffic]
    lines = [
        f"{side.letter or 'here'}: {one.turns[move]:,} turns, {percent(share)}"
        for side, one, share in zip(scope.sides, traffic, shares, strict=True)
    ]
    hover = "<br>".join([literal(move_words(move), 40), *lines])
    if not scope.compared:
        return MatrixCell(shares[0], _whole_percent(shares[0]), hover, move_key(move))
    if not any(shares):
        return MatrixCell(None, "", hover, move_key(move))
    change = shares[1] - shares[0]
    return MatrixCell(change, _points(change), hover, move_key(move))


def _whole_percent(share: float) -> str:
    return f"{100 * share:.0f}" if share else ""


def _points(change: float) -> str:
    rounded = round(100 * change)
    return f"{rounded:+d}" if rounded else "0"


def _alt(scope: Scope, traffic: Sequence[Traffic]) -> str:
    return "; ".join(
        f"{side.name}: "
        + ", ".join(f"{move_words(move)} {percent(one.share(move))}" for move, _ in one.turns.most_common(4))
        for side, one in zip(scope.sides, traffic, strict=True)
    )


def _who_table(scope: Scope, traffic: Sequence[Traffic], moves: Sequence[ModelInRole]) -> None:
    shown = sorted(
        (move for move in moves if any(one.turns[move] for one in traffic)),
        key=lambda m: -traffic[-1].turns[m],
    )
    headings: dict[str, str | ColumnConfig] = {"move": "Model and role"}
    won = "Share of the episodes with such a turn that ended right"
    for side in scope.sides:
        mark = f" {side.letter}" if side.letter else ""
        headings[f"turns{mark}"] = number(f"Turns{mark}", "localized")
        headings[f"share{mark}"] = number(f"Share of turns{mark}", "%.1f %%")
        headings[f"right{mark}"] = number(f"Right{mark}", "%.1f %%", help=won)
        headings[f"open{mark}"] = link(f"Episodes{mark}", "List")
    rows: list[list[Any]] = [[one_line(move_words(move), 60)] for move in shown]
    for row, move in zip(rows, shown, strict=True):
        for side, one in zip(scope.sides, traffic, strict=True):
            right = 100 * one.solved[move] / one.seen[move] if one.seen[move] else None
            row += [one.turns[move], 100 * one.share(move), right]
            row.append(side.episodes(model=move.model, role=move.role))
    row_table(headings, rows, key="who_table", at_most=10_000)


def _first(scope: Scope, traffic: Sequence[Traffic], models: Sequence[str]) -> None:
    st.subheader("Who opens?")
    st.caption("Episodes by their first turn, and how many of them ended right. Click a bar for its turns.")
    for column, side, one in zip(st.columns(len(scope.sides)), scope.sides, traffic, strict=True):
        with column:
            if scope.compared:
                st.markdown(f"**{side.title}**")
            first = "; ".join(f"{move_words(move)} {n}" for move, n in one.first().most_common(4))
            _clickable(first_moves(one, models), f"first{side.letter}", f"First moves: {first}", side)


# Who follows whom


def _order(scope: Scope, traffic: Sequence[Traffic], models: Sequence[str]) -> None:
    st.subheader("Who follows whom?")
    how = state.address_select(
        "Turns",
        {"together": "All turns together", "unrolled": "Turn by turn"},
        name="turns",
        key="routing_turns",
    )
    draw, stubs = moves_by_turn, ""
    if how == "together":
        draw = move_graph
        stubs = " Grey arrows from the left: episodes begin there; to the right: they end."
    st.caption(
        f"Colour is the model, shape the role (● Thinker, ■ Worker, ▲ Verifier), width how often.{stubs} Click an "
        "arrow head or a mark for the turns behind it; only the most frequent steps are drawn."
    )
    for side, one in zip(scope.sides, traffic, strict=True):
        if scope.compared:
            st.markdown(f"**{side.title}**")
        most = "; ".join(
            f"{move_words(here, 'the beginning')} to {move_words(there)} {n}"
            for (here, there), n in one.steps().most_common(5)
        )
        _clickable(draw(one, models), f"{how}{side.letter}", f"Most frequent steps: {most}", side)
    with st.expander("All steps as a table", icon=":material/table_rows:"):
        _steps_table(scope, traffic)


def _steps_table(scope: Scope, traffic: Sequence[Traffic]) -> None:
    steps = [one.steps() for one in traffic]
    totals = [sum(of.values()) or 1 for of in steps]
    every = {step for of in steps for step in of}
    shown = sorted(every, key=lambda step: -max(of[step] for of in steps))[:500]
    headings: dict[str, str | ColumnConfig] = {"from": "From", "to": "To"}
    for side in scope.sides:
        mark = f" {side.letter}" if side.letter else ""
        headings[f"n{mark}"] = number(f"Times{mark}", "localized")
        headings[f"share{mark}"] = number(f"Share{mark}", "%.1f %%")
    if scope.compared:
        headings["change"] = number("B minus A", "%+.1f", help="Points of the share")
    headings["open"] = link("Turns", "Show")
    address = st.query_params.to_dict()
    rows = []
    for here, there in shown:
        counts = [of[here, there] for of in steps]
        shares = [100 * n / total for n, total in zip(counts, totals, strict=True)]
        row: list[Any] = [
            one_line(move_words(here, "(beginning)"), 50),
            one_line(move_words(there, "(end)"), 50),
        ]
        for n, share in zip(counts, shares, strict=True):
            row += [n, share]
        if scope.compared:
            row.append(shares[1] - shares[0])
        rows.append([*row, state.href("routing", **{**address, "into": step_key(here, there)})])
    row_table(headings, rows, key="steps_table", at_most=0, height=390)


# What it depends on


def _by() -> TrafficSplit:
    return "policy" if state.param("by") == "policy" else "family"


def _groups(scope: Scope, groups: Sequence[Mapping[str, Traffic]], models: Sequence[str]) -> None:
    st.subheader("What does it depend on?")
    left, right = st.columns(2)
    with left:
        by = state.address_select(
            "By", {"family": "Task family", "policy": "Policy"}, name="by", key="routing_by"
        )
    with right:
        roles = {"all": "All roles", **{role.value: role_word(role) for role in ROLES}}
        role = state.address_select("Role", roles, name="in", key="routing_in")
    only = None if role == "all" else Role(role)
    every = list(dict.fromkeys(name for of in groups for name in of))
    names = every[:MOST_GROUPS]
    words = {name: scope.say(name) if by == "policy" else name for name in names}
    paired = scope.compared and by == "family"
    st.caption(
        ("B minus A, in points" if paired else "Percent of the row's turns")
        + (f" in the role {role_word(only)}" if only else "")
        + ", by model. Click a cell for its episodes."
    )
    cells = []
    for name in names:
        sides = [of.get(name) for of in groups]
        row = [_group_cell(sides, model, only, paired, words[name], f"{name}\n{model}") for model in models]
        cells.append(row)
    cell = picked(
        matrix(
            cells,
            [literal(one, 30) for one in words.values()],
            [literal(model, 14) for model in models],
            ink(),
            axes=(by, "model"),
            signed=paired,
        ),
        key=f"groups_{by}_{role}",
        alt=f"Share of turns by model, one row for each {by}",
    )
    if cell:
        name, model = str(cell[0]).split("\n", 1)
        role_of = {"role": only.value} if only else {}
        state.go("episodes", **scope.sides[-1].listed(model=model, **{by: name}, **role_of))
    if len(every) > len(names):
        st.caption(f"The {MOST_GROUPS} with most episodes.")
    with st.expander("Episodes of each row", icon=":material/table_rows:"):
        side = scope.sides[-1]
        row_table(
            {"name": by.capitalize(), "open": link("Episodes", "List")},
            [(one_line(words[name], 60), side.episodes(**{by: name})) for name in names],
            key="group_links",
            at_most=MOST_GROUPS + 1,
        )


def _group_cell(
    sides: Sequence[Traffic | None], model: str, only: Role | None, paired: bool, name: str, key: str
) -> MatrixCell:
    """How often a model has a turn in the group `name` of each side; `paired`: B's share minus A's."""
    shares = [_model_share(one, model, only) for one in sides]
    hover = f"{literal(name, 40)}: {literal(model, 30)}"
    if paired:
        change = shares[-1] - shares[0]
        hover = f"{hover}, A {percent(shares[0])}, B {percent(shares[-1])}"
        return MatrixCell(change, _points(change), hover, key)
    share = next((share for share, one in zip(shares, sides, strict=True) if one is not None), 0.0)
    return MatrixCell(share, _whole_percent(share), f"{hover} {percent(share)}", key)


def _model_share(one: Traffic | None, model: str, only: Role | None) -> float:
    if one is None:
        return 0.0
    roles = [only] if only else list(ROLES)
    total = sum(n for move, n in one.turns.items() if move.role in roles)
    return sum(one.turns[ModelInRole(model, role)] for role in roles) / total if total else 0.0


# Into a number


def _clickable(figure: go.Figure, key: str, alt: str, side: ScopeSide | None = None) -> None:
    """A chart whose points carry what to look into; a click notes it in the address."""
    of_b = "#B" if side and side.letter == "B" else ""
    clickable(figure, lambda into: state.set_params(into=f"{into}{of_b}"), key=f"routing_{key}", alt=alt)


def into_words(key: str) -> tuple[str, dict[str, Any]] | None:
    """What an address looks into, in words and as arguments of `behind_move`; None for a stale one."""
    rest, _, turn = key.partition("@") if "@" in key.rsplit(":", 1)[-1] else (key, "", "")
    at = int(turn) if turn.isdecimal() and len(turn) < 7 else None
    first, arrow, then = rest.partition(">")
    move, follow = parse_move(first), parse_move(then)
    if not arrow:
        where = "" if at is None else f" at turn {at + 1}"
        return (f"{move_words(move)}{where}", {"move": move, "at": at}) if move else None
    if first == "start":
        return (f"{move_words(follow)} at turn 1", {"move": follow, "at": 0}) if follow else None
    if move is None or (follow is None and then != "end"):
        return None
    where = "" if at is None else f", at turn {at}"
    arguments = {"move": move, "then": follow, "ends": then == "end", "at": at}
    return f"{move_words(move)}, then {move_words(follow)}{where}", arguments


def _into(store: Store, scope: Scope) -> None:
    """The turns behind what was clicked."""
    key = state.param("into")
    if key is None:
        return
    found = into_words(key.removesuffix("#B"))
    side = scope.sides[-1 if key.endswith("#B") or not scope.compared else 0]
    if found is None:
        st.info(
            "The link names nothing that this page knows; click a cell or an arrow instead.",
            icon=":material/info:",
        )
        return
    words, arguments = found
    move = arguments["move"]
    behind(
        f"**Turns behind it**: {label(words, 120)}" + (f" · {side.title}" if side.letter else ""),
        f"Episodes with {label(move_words(move), 60)}",
        side.listed(model=move.model, role=move.role.value),
        turns_with_move(store, side.where, **arguments),
        scope,
    )


if __name__ == "__main__":
    state.run(show)
