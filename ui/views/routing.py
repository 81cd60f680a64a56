"""Routing: who is called in which role, who follows whom, what that depends on, and whether it pays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from core.episode import Role
from storage.routing import (
    Group,
    Move,
    Traffic,
    behind_move,
    pool_order,
    traffic_of,
)
from storage.store import Store
from ui import state
from ui.chart import plot
from ui.figures import literal, role_word, share
from ui.glossary import define
from ui.paying import luck, paying, without
from ui.remembered import remembered
from ui.routing_figures import (
    ROLES,
    Cell,
    first_moves,
    graph,
    matrix,
    move_words,
    role_rows,
    to_move,
    token,
    unrolled,
)
from ui.scope import Scope, Side, behind, scope_bar
from ui.theme import label, one_line, percent
from ui.widgets import ink, nothing_here

#: Part of the page -> its words; one part at a time keeps the page quick.
PARTS = {
    "who": "Who does what",
    "order": "Who follows whom",
    "tasks": "What it depends on",
    "pays": "Does it pay?",
    "luck": "Where luck enters",
    "without": "Without a model",
}
_traffic = remembered(traffic_of)
_pool_order = remembered(pool_order)
#: Families or policies in one matrix.
MOST_GROUPS = 12


def show() -> None:
    """Render the page."""
    store = state.store()
    st.title("Routing")
    st.caption("Which model is called in which role, in which order, and what that is good for.")
    scope = scope_bar(store)
    part = state.choice("Part", PARTS, name="part", key="routing_part")
    if part == "pays":
        paying(store, scope)
        return
    if part == "luck":
        luck(store, scope)
        return
    if part == "without":
        without(store, scope)
        return
    by: Group | None = None
    if part == "tasks":
        by = "policy" if _by() == "policy" else "family"
    found = [_traffic(store, side.where, by) for side in scope.sides]
    traffic = [Traffic.over(of.values()) for of in found]
    if not all(one.episodes for one in traffic):
        _nothing(scope, traffic)
        return
    models = _models(store, scope)
    _told(scope, traffic)
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


def _told(scope: Scope, traffic: Sequence[Traffic]) -> None:
    for side, one in zip(scope.sides, traffic, strict=True):
        right = percent(one.right / one.episodes)
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.markdown(
                f"**{side.title}**: {one.episodes:,} finished episodes, {one.total:,} turns, {right} right",
                width="content",
            )
            side.link("List them", status="finished")


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


def _who_cell(scope: Scope, traffic: Sequence[Traffic], move: Move) -> Cell:
    shares = [one.share(move) for one in traffic]
    words = literal(move_words(move), 40)
    told = [
        f"{side.letter or 'here'}: {one.turns[move]:,} turns, {share(value)}"
        for side, one, value in zip(scope.sides, traffic, shares, strict=True)
    ]
    hover = "<br>".join([words, *told])
    if scope.compared:
        change = shares[1] - shares[0]
        return Cell(
            change if any(shares) else None, _points(change) if any(shares) else "", hover, token(move)
        )
    return Cell(shares[0], f"{100 * shares[0]:.0f}" if shares[0] else "", hover, token(move))


def _points(change: float) -> str:
    rounded = round(100 * change)
    return f"{rounded:+d}" if rounded else "0"


def _alt(scope: Scope, traffic: Sequence[Traffic]) -> str:
    return "; ".join(
        f"{side.name}: "
        + ", ".join(f"{move_words(move)} {share(one.share(move))}" for move, _ in one.turns.most_common(4))
        for side, one in zip(scope.sides, traffic, strict=True)
    )


def _who_table(scope: Scope, traffic: Sequence[Traffic], moves: Sequence[Move]) -> None:
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
    how = state.choice(
        "Turns",
        {"together": "All turns together", "unrolled": "Turn by turn"},
        name="turns",
        key="routing_turns",
    )
    draw = unrolled if how == "unrolled" else graph
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


def _step_key(here: Move | None, there: Move | None) -> str:
    return f"{token(here) if here else 'start'}>{token(there) if there else 'end'}"


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
        by = state.choice("By", {"family": "Task family", "policy": "Policy"}, name="by", key="routing_by")
    with right:
        roles = {"all": "All roles", **{role.value: role_word(role) for role in ROLES}}
        role = state.choice("Role", roles, name="in", key="routing_in")
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
            Cell(cell.value, cell.text, f"{literal(say(name), 40)}: {cell.hover}", f"{name}\n{model}")
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
        query = {**scope.sides[-1].where.to_query(), "model": model, by: name}
        state.go("episodes", **(query | ({"role": only.value} if only else {})))
    if len({name for of in groups for name in of}) > len(names):
        st.caption(f"The {MOST_GROUPS} with most episodes.")
    _group_links(scope, names, by, say)


def _group_cell(sides: Sequence[Traffic | None], model: str, only: Role | None, paired: bool) -> Cell:
    shares = [_model_share(one, model, only) for one in sides]
    if paired:
        change = shares[-1] - shares[0]
        return Cell(
            change, _points(change), f"{literal(model, 30)}, A {share(shares[0])}, B {share(shares[-1])}"
        )
    value = next((x for x, one in zip(shares, sides, strict=True) if one is not None), 0.0)
    return Cell(value, f"{100 * value:.0f}" if value else "", f"{literal(model, 30)} {share(value)}")


def _model_share(one: Traffic | None, model: str, only: Role | None) -> float:
    if one is None:
        return 0.0
    roles = [only] if only else list(ROLES)
    total = sum(n for move, n in one.turns.items() if move.role in roles)
    return sum(one.turns[Move(model, role)] for role in roles) / total if total else 0.0


def _group_links(scope: Scope, names: Sequence[str], by: str, say: Any) -> None:
    with st.expander("Episodes of each row", icon=":material/table_rows:"):
        where = scope.sides[-1].where.to_query()
        st.dataframe(
            {
                "name": [one_line(say(name), 60) for name in names],
                "open": [state.href("episodes", **{**where, by: name}) for name in names],
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


def _clickable(figure: Any, key: str, alt: str, side: Side | None = None) -> None:
    """A chart whose points carry what to look into; a click notes it in the address."""
    name = f"routing_{key}"

    def chosen() -> None:
        points = st.session_state[name]["selection"]["points"]
        if points and (data := points[0].get("customdata")):
            state.set_params(into=f"{data[0]}{'#B' if side and side.letter == 'B' else ''}")

    plot(figure, key=name, small=True, on_select=chosen, selection_mode="points", alt=alt)


def into_words(said: str) -> tuple[str, dict[str, Any]] | None:
    """What an address looks into, in words and as arguments of `behind_move`; None for a stale one."""
    rest, _, turn = said.partition("@") if "@" in said.rsplit(":", 1)[-1] else (said, "", "")
    at = int(turn) if turn.isdecimal() and len(turn) < 7 else None
    first, arrow, then = rest.partition(">")
    move, follow = to_move(first), to_move(then)
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
    said = state.param("into")
    if said is None:
        return
    of_b = said.endswith("#B")
    found = into_words(said.removesuffix("#B"))
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
        {**side.where.to_query(), "model": move.model, "role": move.role.value},
        behind_move(store, side.where, **arguments),
        scope,
    )


if __name__ == "__main__":
    state.run(show)
