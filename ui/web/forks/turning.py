"""Which turn of an episode mattered: how it ends from each turn on, as it was, and with its runner-up or a
right reply."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import plotly.graph_objects as go
import streamlit as st

from storage.store import Store
from ui.presentation.steps import change_words
from ui.presentation.theme import FIRST_COLOUR, NEUTRAL_COLOUR, label, layout, one_line, percent
from ui.runs.forks.results import Results, TurnOutcome, by_turn
from ui.runs.forks.turning import decisive_words, luck_words
from ui.runs.plans import ForkPlan, known_plan
from ui.web.kit import state
from ui.web.kit.figures import plot, titled

#: Among so many newest runs of forks one is looked for that is of an episode.
_LOOKED_AT = 100


def newest_of(store: Store, episode_id: str) -> tuple[str, ForkPlan] | None:
    """The newest run that forks every turn of this episode, and its plan."""
    for run in store.runs.list(kind="fork", limit=_LOOKED_AT):
        plan = known_plan(run)
        if isinstance(plan, ForkPlan) and plan.every_turn == episode_id:
            return run.id, plan
    return None


def turning_panel(
    plan: ForkPlan, results: Results, *, recorded_right: bool, to_turn: Callable[[int], None]
) -> None:
    """The finding in words and a chart over the turns; a click on one calls `to_turn(index)`."""
    outcomes = by_turn(plan, results)
    with st.container(border=True):
        st.markdown("**Which turn mattered?**")
        for sentence in (
            luck_words(outcomes, recorded_right=recorded_right),
            decisive_words(outcomes, recorded_right=recorded_right, other=plan.other_words),
        ):
            if sentence:
                st.markdown(label(sentence, 400))
        plot(
            turning_figure(outcomes, plan.other_words),
            key="turning",
            small=True,
            alt="; ".join(
                f"from turn {one.turn + 1} on {percent(one.unchanged.share)} end right unchanged, "
                f"{percent(one.other.share)} {change_words(one.change)}"
                for one in outcomes
            ),
            on_select=lambda: _clicked(to_turn),
        )
        st.caption(
            "Share of right plays from each turn on, with 95 % intervals: unchanged, and with "
            + (
                "a right reply in that turn"
                if plan.right_replies
                else "the runner-up of that turn's decision"
            )
            + ". A turn decided it where the change reverses what more than half of the plays come to. With few plays "
            "most intervals overlap. A click goes to the turn."
        )


def turning_figure(outcomes: Sequence[TurnOutcome], other: str) -> go.Figure:
    """Both sides by turn, a little apart, with their intervals."""
    figure = go.Figure()
    for name, colour, aside, symbol in (
        ("unchanged", NEUTRAL_COLOUR, -0.08, "circle"),
        (other, FIRST_COLOUR, 0.08, "diamond"),
    ):
        sides = [(one, one.unchanged if name == "unchanged" else one.other) for one in outcomes]
        known = [(one, side, side.share) for one, side in sides if side.share is not None]
        figure.add_scatter(
            x=[one.turn + 1 + aside for one, _, _ in known],
            y=[share for _, _, share in known],
            mode="markers",
            name=name,
            marker={"color": colour, "size": 11, "symbol": symbol},
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [side.high - share for _, side, share in known],
                "arrayminus": [share - side.low for _, side, share in known],
                "color": colour,
            },
            text=[
                f"turn {one.turn + 1}, {name if name == 'unchanged' else one_line(change_words(one.change), 60)}: "
                f"{side.right} of {side.n} end right"
                for one, side, _ in known
            ],
            hovertemplate="%{text}<extra></extra>",
        )
    last = max(one.turn for one in outcomes) + 1
    figure.update_layout(
        **layout(
            240,
            xaxis=titled("from turn", range=[0.5, last + 0.5], dtick=1),
            yaxis=titled("end right", range=[-0.08, 1.08], tickformat=".0%"),
        )
    )
    return figure


def _clicked(to_turn: Callable[[int], None]) -> None:
    if points := state.points("turning"):
        to_turn(round(points[0]["x"]) - 1)
