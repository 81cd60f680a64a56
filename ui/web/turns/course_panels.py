"""An episode over all its turns: how sure the coordinator was, and what the turns have used.

They are the same at every turn, so a step through the episode does not draw them anew.
"""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from storage.rows.summaries import LOW_MARGIN
from ui.presentation.glossary import explain
from ui.web.kit import state
from ui.web.kit.chart import plot
from ui.web.turns.figures import MEASURES, uncertainty_over_turns, usage_over_turns
from ui.web.turns.recording import Recording


def _clicked(chart: str, go: Callable[[int], None]) -> Callable[[], None]:
    """A click on a turn of a chart goes to it."""

    def to_turn() -> None:
        points = st.session_state[chart].selection.points
        if points:
            go(round(points[0]["x"]) - 1)

    return to_turn


def uncertainty_panel(recording: Recording, go: Callable[[int], None]) -> None:
    """How sure the coordinator was at each turn; nothing where no decision says. A click calls `go(index)`."""
    figure = uncertainty_over_turns(recording.outlines)
    if figure is None:
        return
    with st.container(border=True):
        st.markdown("**How sure was the coordinator?**", help=explain("Margin", "Entropy"))
        plot(
            figure,
            key="doubt",
            small=True,
            alt="Entropy and margin of every decision, turn by turn.",
            on_select=_clicked("doubt", go),
            selection_mode="points",
        )
        st.caption(
            f"High entropy or a low margin: the choice hung on little. Ringed: a margin below {LOW_MARGIN:g}. Marks "
            "have the shape of the role; a click goes to the turn."
        )


def usage_panel(recording: Recording, go: Callable[[int], None]) -> None:
    """What the turns have used so far, by model, in the measure that the address names. A click calls `go(index)`."""
    with st.container(border=True):
        st.markdown("**What had it used by each turn?**")
        measure = state.address_select(
            "Measure", {name: words for name, (words, _) in MEASURES.items()}, name="spend", key="spend"
        )
        figure = usage_over_turns(recording.outlines, recording.models, measure)
        if figure is None:
            st.caption("No price is known for these models: write price_in and price_out into pool.toml.")
            return
        plot(
            figure,
            key="spent",
            small=True,
            alt="Cumulative use of every model, turn by turn.",
            on_select=_clicked("spent", go),
            selection_mode="points",
        )
        unknown = sum(one.cost_usd is None for one in recording.outlines if one.stage == "finished")
        if measure == "cost" and unknown:
            st.caption(f"{unknown} turns have no known price and count as nothing here.")
