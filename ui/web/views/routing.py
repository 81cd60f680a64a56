"""Routing: which model is called in which role, in which order, what that depends on, and whether it pays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

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
from ui.web.kit.chart import plot
from ui.web.kit.figures import literal
from ui.web.kit.matrix import ROLES, MatrixCell, matrix
from ui.web.kit.widgets import ink, nothing_here
from ui.web.pickers.scope import Scope, ScopeSide, behind, scope_bar
from ui.web.routing.figures import first_moves, move_graph, moves_by_turn, role_rows
from ui.web.routing.worth import compared_with_models, replicated_tasks_panel, without_model

#: Part of the page -> its words; one part at a time keeps the page quick.
PARTS = {
    "who": "Who does what",
    "order": "Who follows whom",
    "tasks": "What it depends on",
    "pays": "Does it pay?",
    "luck": "Where luck enters",
    "without": "Without a model",
}
_traffic = cached(traffic_of)
_pool_order = cached(pool_order)
#: Families or policies in one matrix.
MOST_GROUPS = 12


def show() -> None:
    """Render the page."""
    store = state.store()
    st.title("Routing")
    st.caption("Which model is called in which role, in which order, and what that is good for.")
    scope = scope_bar(store)
    part = state.address_select("Part", PARTS, name="part", key="routing_part")
    if part == "pays":
        compared_with_models(store, scope)
        return
    if part == "luck":
        replicated_tasks_panel(store, scope)
        return
    if part == "without":
        without_model(store, scope)
        return
    by: TrafficSplit | None = None
    if part == "tasks":
        by = "policy" if _by() == "policy" else "family"
    found = [_traffic(store, side.where, by) for side in scope.sides]
    traffic = [Traffic.over(of.values()) for of in found]
    if not all(one.episodes for one in traffic):
        _nothing(scope, traffic)
        return
    models = _models(store, scope)
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
        state.page_link("routing", "All episodes", icon=":material/route:")
        state.page_link("home", "See how to record or load some", icon=":material/home:")


def _models(store: Store, scope: Scope) -> list[str]:
    """Models in head order, over both sides."""
    return list(dict.fromkeys(model for side in scope.sides for model in _pool_order(store, side.where)))


def _standing(scope: Scope, traffic: Sequence[Traffic]) -> None:
    for side, one in zip(scope.sides, traffic, strict=True):
        right = percent(one.right / one.episodes)
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
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
            signed=scope.compared,
        ),
        "who",
        f"Share of turns by model and role: {_alt(scope, traffic)}",
    )
    with st.expander("The same as a table", icon=":material/table_rows:"):
        _who_table(scope, traffic, [move for row in moves for move in row])


def _who_cell(scope: Scope, traffic: Sequence[Traffic], move: ModelInRole) -> MatrixCell:
    shares = [one.share(move) for one in traffic]
    words = literal(move_words(move), 40)
    lines = [
        f"{side.letter or 'here'}: {one.turns[move]:,} turns, {percent(value)}"
        for side, one, value in zip(scope.sides, traffic, shares, strict=True)
    ]
    hover = "<br>".join([words, *lines])
    if scope.compared:
        change = shares[1] - shares[0]
        return MatrixCell(
            change if any(shares) else None, _points(change) if any(shares) else "", hover, move_key(move)
        )
    return MatrixCell(shares[0], f"{100 * shares[0]:.0f}" if shares[0] else "", hover, move_key(move))


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
    columns: dict[str, list[Any]] = {"move": [one_line(move_words(move), 60) for move in shown]}
    config: dict[str, Any] = {"move": "Model and role"}
    for side, one in zip(scope.sides, traffic, strict=True):
        mark = f" {side.letter}" if side.letter else ""
        columns[f"turns{mark}"] = [one.turns[move] for move in shown]
        columns[f"share{mark}"] = [100 * one.share(move) for move in shown]
        columns[f"right{mark}"] = [
            100 * one.solved[move] / one.seen[move] if one.seen[move] else None for move in shown
        ]
        columns[f"open{mark}"] = [side.episodes(model=move.model, role=move.role) for move in shown]
        config[f"turns{mark}"] = st.column_config.NumberColumn(f"Turns{mark}", format="localized")
        config[f"share{mark}"] = st.column_config.NumberColumn(f"Share of turns{mark}", format="%.1f %%")
        config[f"right{mark}"] = st.column_config.NumberColumn(
            f"Right{mark}", format="%.1f %%", help="Share of the episodes with such a turn that ended right"
        )
        config[f"open{mark}"] = st.column_config.LinkColumn(f"Episodes{mark}", display_text="List")
    st.dataframe(columns, key="who_table", hide_index=True, column_config=config, height="content")


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
    draw = moves_by_turn if how == "unrolled" else move_graph
    stubs = (
        ""
        if how == "unrolled"
        else " Grey arrows from the left: episodes begin there; to the right: they end."
    )
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
    shown = sorted({step for of in steps for step in of}, key=lambda step: -max(of[step] for of in steps))[
        :500
    ]
    columns: dict[str, list[Any]] = {
        "from": [one_line(move_words(here, "(beginning)"), 50) for here, _ in shown],
        "to": [one_line(move_words(there, "(end)"), 50) for _, there in shown],
    }
    config: dict[str, Any] = {"from": "From", "to": "To"}
    for side, of, total in zip(scope.sides, steps, totals, strict=True):
        mark = f" {side.letter}" if side.letter else ""
        columns[f"n{mark}"] = [of[step] for step in shown]
        columns[f"share{mark}"] = [100 * of[step] / total for step in shown]
        config[f"n{mark}"] = st.column_config.NumberColumn(f"Times{mark}", format="localized")
        config[f"share{mark}"] = st.column_config.NumberColumn(f"Share{mark}", format="%.1f %%")
    if scope.compared:
        columns["change"] = [
            100 * (steps[1][step] / totals[1] - steps[0][step] / totals[0]) for step in shown
        ]
        config["change"] = st.column_config.NumberColumn(
            "B minus A", format="%+.1f", help="Points of the share"
        )
    columns["open"] = [_link(_step_key(*step)) for step in shown]
    config["open"] = st.column_config.LinkColumn("Turns", display_text="Show")
    st.dataframe(columns, key="steps_table", hide_index=True, column_config=config, height=390)


def _step_key(here: ModelInRole | None, there: ModelInRole | None) -> str:
    return f"{move_key(here) if here else 'start'}>{move_key(there) if there else 'end'}"


def _link(key: str) -> str:
    """This page, looking into something."""
    return state.href("routing", **{**st.query_params.to_dict(), "into": key})


# What it depends on


def _by() -> str:
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
    names = list(dict.fromkeys(name for of in groups for name in of))[:MOST_GROUPS]
    say = scope.say if by == "policy" else str
    st.caption(
        ("B minus A, in points" if scope.compared and by == "family" else "Percent of the row's turns")
        + (f" in the role {role_word(only)}" if only else "")
        + ", by model. Click a cell for its episodes."
    )
    paired = scope.compared and by == "family"
    rows = [
        [_group_cell([of.get(name) for of in groups], model, only, paired) for model in models]
        for name in names
    ]
    keyed = [
        [
            MatrixCell(cell.value, cell.text, f"{literal(say(name), 40)}: {cell.hover}", f"{name}\n{model}")
            for cell, model in zip(row, models, strict=True)
        ]
        for row, name in zip(rows, names, strict=True)
    ]
    event = plot(
        matrix(
            keyed,
            [literal(say(name), 30) for name in names],
            [literal(model, 14) for model in models],
            ink(),
            signed=paired,
        ),
        key=f"groups_{by}_{role}",
        small=True,
        on_select="rerun",
        selection_mode="points",
        alt=f"Share of turns by model, one row for each {by}",
    )
    if points := event["selection"]["points"]:
        name, model = str(points[0]["customdata"][0]).split("\n", 1)
        role_of = {"role": only.value} if only else {}
        state.go("episodes", **scope.sides[-1].listed(model=model, **{by: name}, **role_of))
    if len({name for of in groups for name in of}) > len(names):
        st.caption(f"The {MOST_GROUPS} with most episodes.")
    _group_links(scope, names, by, say)


def _group_cell(sides: Sequence[Traffic | None], model: str, only: Role | None, paired: bool) -> MatrixCell:
    shares = [_model_share(one, model, only) for one in sides]
    if paired:
        change = shares[-1] - shares[0]
        return MatrixCell(
            change, _points(change), f"{literal(model, 30)}, A {percent(shares[0])}, B {percent(shares[-1])}"
        )
    value = next((x for x, one in zip(shares, sides, strict=True) if one is not None), 0.0)
    return MatrixCell(value, f"{100 * value:.0f}" if value else "", f"{literal(model, 30)} {percent(value)}")


def _model_share(one: Traffic | None, model: str, only: Role | None) -> float:
    if one is None:
        return 0.0
    roles = [only] if only else list(ROLES)
    total = sum(n for move, n in one.turns.items() if move.role in roles)
    return sum(one.turns[ModelInRole(model, role)] for role in roles) / total if total else 0.0


def _group_links(scope: Scope, names: Sequence[str], by: str, say: Any) -> None:
    with st.expander("Episodes of each row", icon=":material/table_rows:"):
        st.dataframe(
            {
                "name": [one_line(say(name), 60) for name in names],
                "open": [scope.sides[-1].episodes(**{by: name}) for name in names],
            },
            key="group_links",
            hide_index=True,
            column_config={
                "name": by.capitalize(),
                "open": st.column_config.LinkColumn("Episodes", display_text="List"),
            },
            height="content",
        )


# Into a number


def _clickable(figure: Any, key: str, alt: str, side: ScopeSide | None = None) -> None:
    """A chart whose points carry what to look into; a click notes it in the address."""
    name = f"routing_{key}"

    def chosen() -> None:
        points = st.session_state[name]["selection"]["points"]
        if points and (data := points[0].get("customdata")):
            state.set_params(into=f"{data[0]}{'#B' if side and side.letter == 'B' else ''}")

    plot(figure, key=name, small=True, on_select=chosen, selection_mode="points", alt=alt)


def into_words(key: str) -> tuple[str, dict[str, Any]] | None:
    """What an address looks into, in words and as arguments of `behind_move`; None for a stale one."""
    rest, _, turn = key.partition("@") if "@" in key.rsplit(":", 1)[-1] else (key, "", "")
    at = int(turn) if turn.isdecimal() and len(turn) < 7 else None
    first, arrow, then = rest.partition(">")
    move, follow = parse_move(first), parse_move(then)
    if not arrow:
        if move is None:
            return None
        return move_words(move) + ("" if at is None else f" at turn {at + 1}"), {"move": move, "at": at}
    if first == "start":
        return None if follow is None else (f"{move_words(follow)} at turn 1", {"move": follow, "at": 0})
    if move is None or (follow is None and then != "end"):
        return None
    words = f"{move_words(move)}, then {move_words(follow)}" + ("" if at is None else f", at turn {at}")
    return words, {"move": move, "then": follow, "ends": then == "end", "at": at}


def _into(store: Store, scope: Scope) -> None:
    """The turns behind what was clicked."""
    key = state.param("into")
    if key is None:
        return
    of_b = key.endswith("#B")
    found = into_words(key.removesuffix("#B"))
    side = scope.sides[-1 if of_b or len(scope.sides) == 1 else 0]
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
