"""Checkpoints: two policies on the same tasks, flips first, and whether the difference is more than luck."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from core.comparison import Comparison, compare_counts
from core.episode import ROLE_ORDER
from storage.filters import EpisodeFilter
from storage.routing import Routed, routing
from storage.store import Store
from storage.summaries import CheckpointSummary, Flip, PolicySummary
from ui import state
from ui.figures import literal, role_word, ticks
from ui.glossary import define
from ui.spending import dollars
from ui.theme import (
    CHART_CONFIG,
    DIFFERENCE_SCALE,
    NEUTRAL_COLOUR,
    PROBABILITY_SCALE,
    label,
    layout,
    one_line,
    percent,
)
from ui.widgets import Standing, generations, ink, is_dark, nothing_here, standings_figure, who

#: Below this many discordant tasks no test can reach p < 0.05: the page says so rather than show a bare p.
FEWEST_FLIPS = 6
#: Rows of the list of tasks.
MOST_ROWS = 500
#: Kind of flip -> its words with A and B, in the order of the 2x2 table.
KINDS: dict[str, str] = {
    "both_right": "Both right",
    "only_a": "Only A right",
    "only_b": "Only B right",
    "both_wrong": "Both wrong",
}

_CELL_WORDS = {
    "both_right": "both right",
    "only_a": "lost by B",
    "only_b": "won by B",
    "both_wrong": "both wrong",
}


def show() -> None:
    """Render the page."""
    store = state.store()
    st.title("Checkpoints")
    st.caption(
        "Two policies on the tasks that both played. Flips first: an average hides what was won and lost."
    )
    checkpoints = store.checkpoints.list()
    born = generations(checkpoints)
    played = [one.value for one in store.episodes.facets().policy]
    if len(played) < 2:
        nothing_here("A comparison needs two policies that have played; this store has fewer.")
        state.page_link("home", "See how to record or load some", icon=":material/home:")
        return
    a, b = _chosen(played, checkpoints)
    for name, instead in (("base", a), ("b", b)):
        if (asked := state.param(name)) and asked != instead:
            said = f"{who(asked, born.get(asked))} has not played here: {who(instead, born.get(instead))} stands in."
            st.info(label(said, 300), icon=":material/info:")
    run_a, run_b = _choose(store, played, a, b, born)
    if a == b and run_a == run_b:
        nothing_here("A and B are the same policy: choose another for one of them.", ":material/equal:")
        return
    counts = store.episodes.flip_counts(a, b, run=run_a, run_b=run_b)
    if counts.n == 0:
        nothing_here("These two have no finished task in common. Choose other runs or play the same tasks.")
        _config_differences(checkpoints, a, b)
        return
    compared = compare_counts(
        counts.both_right, counts.only_a, counts.only_b, counts.both_wrong, key=f"{a}/{b}/{run_a}/{run_b}"
    )
    names = {"a": who(a, born.get(a)), "b": who(b, born.get(b))}
    left, right = st.columns([1, 1], gap="large")
    with left:
        _flip_table(counts.both_right, counts.only_a, counts.only_b, counts.both_wrong)
        _in_figures(store, (run_a, a), (run_b, b))
    with right:
        _difference(compared, names)
    if {a, b} <= born.keys():
        state.page_link(
            "policy",
            "What would each choose at the same turns? Policy diff",
            icon=":material/difference:",
            c=f"{a},{b}",
        )
    _tasks(store.episodes.flips(a, b, run=run_a, run_b=run_b, kind=_kind(), limit=MOST_ROWS))
    _routing(routing(store, run_a, a), routing(store, run_b, b), _slots(checkpoints, a, b))
    _config_differences(checkpoints, a, b)


# Choosing


def _chosen(played: Sequence[str], checkpoints: Sequence[CheckpointSummary]) -> tuple[str, str]:
    """A and B from the address bar; else the first and the last generation that have played."""
    ours = [one for one in checkpoints if one.id in played and one.generation is not None]
    ours = sorted((one for one in ours if one.run_id == ours[0].run_id), key=lambda one: one.generation or 0)
    default_a, default_b = (ours[0].id, ours[-1].id) if len(ours) > 1 else (played[0], played[1])
    a, b = state.param("base"), state.param("b")
    return a if a in played else default_a, b if b in played else default_b  # type: ignore[return-value]


def _choose(
    store: Store, played: Sequence[str], a: str, b: str, born: Mapping[str, int | None]
) -> tuple[str, str]:
    """The line of choices; returns the run of each side."""
    runs = {side: _runs_of(store, policy) for side, policy in (("a", a), ("b", b))}
    both = [run for run in runs["a"] if run in runs["b"]]
    chosen: dict[str, str] = {}
    left, middle, right = st.columns([10, 1, 10], vertical_alignment="bottom")
    for column, side, name, policy in ((left, "a", "base", a), (right, "b", "b", b)):
        with column:
            key = f"side_{side}"
            st.session_state[key] = policy
            st.selectbox(
                f"Side {side.upper()}",
                played,
                key=key,
                format_func=lambda value: who(value, born.get(value)),
                on_change=_set_side,
                args=(key, name, side),
            )
            wanted = state.param(f"run_{side}")
            default = (both or runs[side])[0]
            chosen[side] = wanted if wanted in runs[side] else default
            if len(runs[side]) > 1:
                key = f"run_of_{side}"
                st.session_state[key] = chosen[side]
                st.selectbox(
                    f"Run of {side.upper()}",
                    runs[side],
                    key=key,
                    on_change=_set_run,
                    args=(key, f"run_{side}"),
                )
    middle.button(
        "",
        key="swap",
        icon=":material/swap_horiz:",
        help="Swap the sides",
        on_click=state.set_params,
        kwargs={"base": b, "b": a, "run_a": chosen["b"], "run_b": chosen["a"], "kind": None},
    )
    return chosen["a"], chosen["b"]


def _runs_of(store: Store, policy: str) -> list[str]:
    return [one.value for one in store.episodes.facets(EpisodeFilter(policy=policy)).run]


def _set_side(key: str, name: str, side: str) -> None:
    state.set_params(**{name: st.session_state[key], f"run_{side}": None, "kind": None})


def _set_run(key: str, name: str) -> None:
    state.set_params(**{name: st.session_state[key], "kind": None})


def _kind() -> str | None:
    kind = state.param("kind")
    return kind if kind in KINDS else None


# Flips


def _flip_table(both: int, only_a: int, only_b: int, neither: int) -> None:
    st.subheader("Flips", help=define("Flip"))
    with st.container(border=True):
        _cells("", "**B right**", "**B wrong**")
        for word, cells in (
            ("**A right**", (("both_right", both), ("only_a", only_a))),
            ("**A wrong**", (("only_b", only_b), ("both_wrong", neither))),
        ):
            columns = st.columns([1, 2, 2], vertical_alignment="center")
            columns[0].markdown(word)
            for column, (kind, n) in zip(columns[1:], cells, strict=True):
                column.button(
                    f"**{n:,}**  {_CELL_WORDS[kind]}",
                    key=f"cell_{kind}",
                    type="primary" if _kind() == kind else "secondary",
                    width="stretch",
                    on_click=state.set_params,
                    kwargs={"kind": None if _kind() == kind else kind},
                    help="List these tasks below",
                )
        st.caption("A number lists its tasks below; each opens both episodes side by side.")


def _cells(*words: str) -> None:
    for column, word in zip(st.columns([1, 2, 2]), words, strict=True):
        column.markdown(word or "&nbsp;")


def verdict(compared: Comparison) -> str:
    """The comparison in one sentence a reader can quote."""
    points = 100 * compared.difference.difference
    flips = compared.a_only + compared.b_only
    if flips < FEWEST_FLIPS:
        return (
            f"Not enough to tell: they differ on {flips} of {compared.n} tasks, and fewer than "
            f"{FEWEST_FLIPS} can never show more than luck."
        )
    better = "B" if points > 0 else "A"
    if compared.p < 0.05:
        return f"{better} is better by {abs(points):.1f} points; chance alone is an unlikely explanation."
    return f"Not enough to tell: a difference of {points:+.1f} points over {compared.n} tasks may be luck."


def _difference(compared: Comparison, names: Mapping[str, str]) -> None:
    st.subheader("Difference", help=define("Paired difference"))
    with st.container(border=True):
        st.markdown(f"**{verdict(compared)}**")
        a_right, b_right = compared.both + compared.a_only, compared.both + compared.b_only
        st.plotly_chart(
            standings_figure(
                [
                    Standing(f"A · {names['a']}", a_right, compared.n, NEUTRAL_COLOUR),
                    Standing(f"B · {names['b']}", b_right, compared.n),
                ]
            ),
            key="accuracies",
            config=CHART_CONFIG | {"displayModeBar": False},
            alt="Accuracy of A and of B over the shared tasks, each with its 95 % Wilson interval",
        )
        found = compared.difference
        one, two, three = st.columns(3)
        one.metric("B minus A", f"{100 * found.difference:+.1f} points", help=define("Paired difference"))
        two.metric(
            "95 % interval",
            f"{100 * found.low:+.1f} to {100 * found.high:+.1f}",
            help=define("Bootstrap interval"),
        )
        three.metric("McNemar p", _p(compared.p), help=define("McNemar p"))
        st.caption(
            f"Over {compared.n:,} shared tasks, one episode each; {compared.a_only + compared.b_only} flips."
        )


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _tasks(flips: Sequence[Flip]) -> None:
    kind = _kind()
    st.subheader(f"Tasks: {_CELL_WORDS[kind]}" if kind else "Tasks, flips first")
    if not flips:
        nothing_here("No task is in this cell.")
        return
    st.dataframe(
        flip_rows(flips),
        key=f"flips_{kind}",
        hide_index=True,
        height=min(38 + 35 * len(flips), 388),
        column_config={
            "pair": st.column_config.LinkColumn("Both episodes", display_text="Side by side", width=110),
            "outcome": st.column_config.TextColumn("Outcome", width=130),
            "family": st.column_config.TextColumn("Family", width=100),
            "question": st.column_config.TextColumn("Question", width="large"),
            "a": st.column_config.LinkColumn("A", display_text="Replay A", width=90),
            "b": st.column_config.LinkColumn("B", display_text="Replay B", width=90),
        },
        alt="Tasks that both sides played, with links to both episodes",
    )
    if len(flips) == MOST_ROWS:
        st.caption(f"The first {MOST_ROWS} tasks; a cell of the table above narrows them.")


def flip_rows(flips: Sequence[Flip]) -> pd.DataFrame:
    """Tasks with outcome and links to the pair view and to each side."""
    words = {
        (True, True): "both_right",
        (True, False): "only_a",
        (False, True): "only_b",
        (False, False): "both_wrong",
    }
    return pd.DataFrame(
        {
            "pair": [state.href("pair", a=one.a_episode, b=one.b_episode) for one in flips],
            "outcome": [KINDS[words[one.a_correct, one.b_correct]] for one in flips],
            "family": [one_line(one.family, 30) for one in flips],
            "question": [one_line(one.question, 110) for one in flips],
            "a": [state.href("replay", ep=one.a_episode) for one in flips],
            "b": [state.href("replay", ep=one.b_episode) for one in flips],
        }
    )


# Figures of each side


def _in_figures(store: Store, a: tuple[str, str], b: tuple[str, str]) -> None:
    found = {side: _policy(store, *which) for side, which in (("A", a), ("B", b))}
    table = {side: _figures(one) for side, one in found.items() if one is not None}
    st.table(pd.DataFrame(table), border="horizontal")


def _policy(store: Store, run: str, policy: str) -> PolicySummary | None:
    return next((one for one in store.runs.policies(run) if one.policy == policy), None)


def _figures(one: PolicySummary) -> dict[str, str]:
    solved = None if not one.correct or one.cost_usd is None else one.cost_usd / one.correct
    return {
        "Accuracy, all its tasks": f"{percent(one.accuracy)} of {one.n:,}",
        "Turns per episode": "–" if one.mean_turns is None else f"{one.mean_turns:.2f}",
        "Accepted by a Verifier": percent(one.accepted / one.n if one.n else None),
        "False accepts": f"{one.false_accepts:,} of {one.accepted:,}",
        "Missing": f"{one.missing:,}",
        "Tokens per episode": f"{one.tokens / one.n:,.0f}" if one.n else "–",
        "Cost per solved task": dollars(solved),
    }


# Routing


def _slots(checkpoints: Sequence[CheckpointSummary], *policies: str) -> list[str]:
    """Pool slots in head order, from the first of the two that is a checkpoint; empty when neither is."""
    for one in checkpoints:
        if one.id in policies:
            return [str(model) for model in one.config.get("models", [])]
    return []


def shares(routed: Sequence[Routed], models: Sequence[str]) -> list[list[float]]:
    """Share of all turns by role (rows, in ROLE_ORDER) and model (columns)."""
    total = sum(one.n for one in routed) or 1
    counts = {(one.role, one.model): one.n for one in routed}
    return [[counts.get((role, model), 0) / total for model in models] for role in ROLE_ORDER]


def _routing(a: Sequence[Routed], b: Sequence[Routed], slots: list[str]) -> None:
    models = slots + sorted({one.model for one in (*a, *b)} - set(slots))
    if not models:
        return
    st.subheader("Routing", help=define("Routing"))
    share_a, share_b = shares(a, models), shares(b, models)
    change = [
        [y - x for x, y in zip(row_a, row_b, strict=True)]
        for row_a, row_b in zip(share_a, share_b, strict=True)
    ]
    most = max((max(map(max, grid)) for grid in (share_a, share_b)), default=1.0)
    span = max((abs(value) for row in change for value in row), default=0.0) or 0.01
    for column, title, grid, scale, low, high in zip(
        st.columns(3),
        ("A, share of turns in percent", "B", "B minus A, in points"),
        (share_a, share_b, change),
        (PROBABILITY_SCALE, PROBABILITY_SCALE, DIFFERENCE_SCALE),
        (0.0, 0.0, -span),
        (most, most, span),
        strict=True,
    ):
        with column:
            st.markdown(f"**{title}**")
            st.plotly_chart(
                heat(grid, models, scale, low, high),
                key=f"routing_{title}",
                config=CHART_CONFIG | {"displayModeBar": False},
                alt=f"Routing by model and role: {title}",
            )


def heat(
    grid: list[list[float]], models: Sequence[str], scale: list[list[Any]], low: float, high: float
) -> go.Figure:
    """Shares by role and model, or with a negative `low` their differences, one column per slot."""
    signed = low < 0
    names, roles = [literal(model, 14) for model in models], [role_word(role) for role in ROLE_ORDER]
    figure = go.Figure(
        go.Heatmap(
            z=grid,
            x=list(range(len(names))),
            y=list(range(len(roles))),
            customdata=[[f"{role} on {literal(model, 40)}" for model in models] for role in roles],
            colorscale=scale,
            zmin=low,
            zmax=high,
            showscale=False,
            xgap=2,
            ygap=2,
            text=[[_whole(100 * value, signed) for value in row] for row in grid],
            texttemplate="%{text}",
            # Plotly judges contrast without the alpha of the scale: right on the light page only.
            textfont={"color": ink()} if is_dark() else {},
            hovertemplate="%{customdata}: %{text}<extra></extra>",
        )
    )
    figure.update_layout(**layout(190, margin={"l": 8, "r": 8, "t": 8, "b": 8}))
    figure.update_yaxes(autorange="reversed", automargin=True, showgrid=False, zeroline=False, **ticks(roles))
    figure.update_xaxes(automargin=True, showgrid=False, zeroline=False, **ticks(names))
    return figure


def _whole(value: float, signed: bool) -> str:
    """Rounded; a difference with its sign, and no sign on nothing."""
    rounded = round(value)
    return f"{rounded:+d}" if signed and rounded else str(rounded)


# Configuration


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """A nested config as dotted keys and text values."""
    found: dict[str, str] = {}
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            found |= flat(value, f"{name}.")
        else:
            found[name] = str(value)
    return found


def _config_differences(checkpoints: Sequence[CheckpointSummary], a: str, b: str) -> None:
    by_id = {one.id: one for one in checkpoints}
    if a not in by_id or b not in by_id or a == b:
        return
    one, other = flat(by_id[a].config), flat(by_id[b].config)
    differing = [key for key in {**one, **other} if one.get(key) != other.get(key)]
    with st.expander(f"What differs in their configuration ({len(differing)})", icon=":material/difference:"):
        st.dataframe(
            pd.DataFrame(
                {
                    "": differing,
                    "A": [one_line(one.get(key, "–"), 120) for key in differing],
                    "B": [one_line(other.get(key, "–"), 120) for key in differing],
                }
            ),
            hide_index=True,
            key="config_differences",
        )
        same = len({**one, **other}) - len(differing)
        st.caption(f"{same} further keys are the same. {label(a)} · {label(b)}")


if __name__ == "__main__":
    state.run(show)
