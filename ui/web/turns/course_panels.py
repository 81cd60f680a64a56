"""An episode over all its turns: how sure the coordinator was, and what the turns have used.

They are the same at every turn, so a step through the episode does not draw them anew.
"""

from __future__ import annotations

from collections.abc import Callable

import plotly.graph_objects as go
import streamlit as st

from storage.rows.summaries import LOW_MARGIN
from ui.presentation.glossary import explain
from ui.web.kit import state
from ui.web.kit.chart import plot
from ui.web.turns.figures import MEASURES, uncertainty_over_turns, usage_over_turns
from ui.web.turns.recording import Recording


def _plot(figure: go.Figure, key: str, alt: str, to_turn: Callable[[int], None]) -> None:
    """A figure over turns, in which a click goes to a turn."""

    def clicked() -> None:
        if points := state.points(key):
            to_turn(round(points[0]["x"]) - 1)

    plot(figure, key=key, small=True, alt=alt, on_select=clicked)


def uncertainty_panel(recording: Recording, to_turn: Callable[[int], None]) -> None:
    """How sure the coordinator was at each turn; nothing where no decision says. A click calls `to_turn(index)`."""
    figure = uncertainty_over_turns(recording.outlines)
    if figure is None:
        return
    with st.container(border=True):
        st.markdown("**How sure was the coordinator?**", help=explain("Margin", "Entropy"))
        _plot(figure, "doubt", "Entropy and margin of every decision, turn by turn.", to_turn)
        st.caption(
            f"High entropy or a low margin: the choice was close. Ringed: a margin below {LOW_MARGIN:g}. Marks "
            "have the shape of the role; a click goes to the turn."
        )


def usage_panel(recording: Recording, to_turn: Callable[[int], None]) -> None:
    """What the turns have used so far, by model, in the measure of the address. A click calls `to_turn(index)`."""
    with st.container(border=True):
        st.markdown("**What had it used by each turn?**")
        measures = {name: words for name, (words, _) in MEASURES.items()}
        measure = state.address_select("Measure", measures, name="spend", key="spend")
        figure = usage_over_turns(recording.outlines, recording.models, measure, recording.episode.plans)
        if figure is None:
            st.caption("No price is known for these models: write price_in and price_out into pool.toml.")
            return
        _plot(figure, "spent", "Cumulative use of every model and of the planner, turn by turn.", to_turn)
        unknown = sum(one.cost_usd is None for one in recording.outlines if one.stage == "finished")
        unknown += sum(one.reply.usage.cost_usd is None for one in recording.episode.plans)
        if measure == "cost" and unknown:
            st.caption(f"{unknown} replies have no known price and count as nothing here.")
