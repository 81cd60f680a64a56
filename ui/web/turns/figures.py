"""The figures of an episode and of two turns: uncertainty and use over turns with their panels, what moved a lead,
two choices.

They are cached, for a step through an episode draws the same figure again and again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, groupby
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from core.episode import ROLE_ORDER, Decision, Flag, Plan, Role
from storage.rows.summaries import LOW_MARGIN, TurnOutline
from ui.presentation.glossary import explain
from ui.presentation.theme import (
    FIRST_COLOUR,
    NEUTRAL_COLOUR,
    ROLE_STYLES,
    SECOND_COLOUR,
    WARN_COLOUR,
    layout,
    model_colour,
    percent,
)
from ui.presentation.words import role_word
from ui.web.kit import state
from ui.web.kit.figures import TIGHT, literal, named_axis, plot, title, titled, unvalidated, values
from ui.web.turns.recording import Recording

_ENTROPY_COLOUR, _MARGIN_COLOUR = "#7C5CBF", "#0E8A8A"
#: The most turns drawn as bars; more are drawn as areas, which stay fast.
_MOST_BARS = 200
#: What use can be measured by, as the address says it -> its words and its unit.
MEASURES = {"tokens": ("Tokens", "tokens"), "cost": ("Cost", "USD"), "time": ("Time", "seconds")}


@dataclass(frozen=True, slots=True)
class PartBars:
    """One checkpoint's bars: how far each part moves the lead, in logits. `name` stands before each figure; `hatched`
    tells the second checkpoint's from the first's."""

    name: str
    gives: Sequence[float]
    hatched: bool = False


def parts_figure(names: Sequence[str], sides: Sequence[PartBars]) -> go.Figure:
    """What each named part does to the lead of a choice, the first on top: rightwards for the choice."""
    reach = max((abs(one) for side in sides for one in side.gives), default=0.0) or 1.0
    bars = [
        {
            "type": "bar",
            "orientation": "h",
            "y": list(range(len(names))),
            "x": list(side.gives),
            "text": [f"{literal(side.name)} {one:+.2f}".strip() for one in side.gives],
            "textposition": "outside",
            "cliponaxis": False,
            "marker": {
                "color": [FIRST_COLOUR if one >= 0 else SECOND_COLOUR for one in side.gives],
                "pattern": {"shape": "/" if side.hatched else ""},
            },
            "hovertemplate": "%{x:+.4f} logits<extra></extra>",
        }
        for side in sides
    ]
    return unvalidated(
        bars,
        layout(
            len(names) * 26 * len(sides) + 40,
            barmode="group",
            xaxis=values(
                "lead with it minus lead without it, in logits",
                range=[-1.5 * reach, 1.5 * reach],
                showticklabels=False,
                showgrid=False,
                zeroline=True,
                zerolinecolor=NEUTRAL_COLOUR,
            ),
            yaxis=named_axis(
                [literal(name) for name in names],
                autorange="reversed",
                showgrid=False,
                title=title("part read"),
            ),
            showlegend=False,
            margin={"l": 8, "r": 8, "t": 4, "b": 4},
        ),
    )


def usage(outline: TurnOutline, measure: str) -> float | None:
    """What one turn used, in the unit of the measure; None for a cost without a known price."""
    if measure == "cost":
        return outline.cost_usd
    return outline.latency_s if measure == "time" else float(outline.tokens_in + outline.tokens_out)


def is_counted(outlines: Sequence[TurnOutline], measure: str) -> bool:
    """Whether a measure says anything of these turns: of recorded replies alone, whether somebody counted it, and
    nothing of turns in which nobody was asked."""

    def says(one: TurnOutline) -> bool:
        asked = one.recorded is None and Flag.NOTHING_TO_JUDGE not in one.flags
        return asked or bool(usage(one, measure))

    return any(map(says, outlines)) or not outlines


def usage_over_turns(
    outlines: Sequence[TurnOutline], models: tuple[str, ...], measure: str, plans: Sequence[Plan] = ()
) -> go.Figure | None:
    """What the turns so far, and the `plans` that they follow, have used together: stacked by model in slot order, the
    planner last. None when it is known for no turn."""
    over = [one for one in outlines if one.stage == "finished"]
    spent = tuple((one.model, usage(one, measure)) for one in over)
    if not any(value is not None for _, value in spent):
        return None
    return _usage(spent, models, measure, _planned(plans, over, measure))


def _planned(plans: Sequence[Plan], over: Sequence[TurnOutline], measure: str) -> tuple[float, ...]:
    """What plans used, by the turn with which their round begins (the last turn, where none follows)."""
    turns, first = len(over), 0
    found = [0.0] * turns
    for _, of_round in groupby(plans, key=lambda one: one.round):
        tries = list(of_round)
        for one in tries:
            used = one.reply.usage
            tokens = float(used.tokens_in + used.tokens_out)
            amounts = {"cost": used.cost_usd or 0.0, "time": one.reply.latency_s}
            found[min(first, turns - 1)] += amounts.get(measure, tokens)
        first += len(tries[-1].workflow or ())
        while first < turns and Flag.FAILED_OVER in over[first].flags:  # calls in vain for its steps
            first += 1
    return tuple(found)


@lru_cache(maxsize=256)
def _usage(
    spent: tuple[tuple[str, float | None], ...],
    models: tuple[str, ...],
    measure: str,
    planned: tuple[float, ...],
) -> go.Figure:
    turns = list(range(1, len(spent) + 1))
    used = [name for name in models if any(model == name for model, _ in spent)]
    used += sorted({model for model, _ in spent} - set(models))
    amounts = {
        name: [(value or 0.0) if model == name else 0.0 for model, value in spent] for name in used
    } | ({"planner": list(planned)} if any(planned) else {})
    data: list[dict[str, Any]] = []
    for name, own in amounts.items():
        colour = model_colour(name, models)
        curve: dict[str, Any] = {
            "x": turns,
            "y": list(accumulate(own)),
            "name": literal(name),
            "hovertemplate": f"{literal(name)}: %{{y:,.4~g}}<extra></extra>",
        }
        if len(spent) > _MOST_BARS:
            curve |= {"type": "scatter", "mode": "lines", "stackgroup": "all"}
            curve |= {"line": {"color": colour, "width": 1}}
        else:
            curve |= {"type": "bar", "marker": {"color": colour}}
        data.append(curve)
    return unvalidated(
        data,
        layout(
            200,
            xaxis=_turn_axis(len(spent), 0.6),
            yaxis=_axis_from_zero(MEASURES[measure][1]),
            barmode="stack",
            bargap=0.35,
            hovermode="x unified",
            margin=TIGHT,
        ),
    )


def _turn_axis(last: int, beyond: float) -> dict[str, Any]:
    return titled("turn", range=[0.6, last + beyond], dtick=max(1, math.ceil(last / 20)), tick0=1)


def uncertainty_over_turns(outlines: Sequence[TurnOutline]) -> go.Figure | None:
    """Entropy (nats) of every decision and below it its logit margin, low ones marked. None when no decision has
    them."""
    points = tuple((o.index + 1, o.role, o.entropy, o.margin) for o in outlines)
    if all(entropy is None and margin is None for _, _, entropy, margin in points):
        return None
    return _uncertainty(points)


@lru_cache(maxsize=256)
def _uncertainty(points: tuple[tuple[int, Role, float | None, float | None], ...]) -> go.Figure:
    turns, roles, entropies, margins = zip(*points, strict=True)
    symbols = [ROLE_STYLES[role].symbol for role in roles]
    data = [
        _line(turns, entropies, symbols, "entropy", _ENTROPY_COLOUR, "solid"),
        _line(turns, margins, symbols, "margin", _MARGIN_COLOUR, "dot") | {"yaxis": "y2"},
    ]
    low = [(turn, margin) for turn, _, _, margin in points if margin is not None and margin < LOW_MARGIN]
    if low:
        data.append(
            {
                "type": "scatter",
                "x": [turn for turn, _ in low],
                "y": [margin for _, margin in low],
                "yaxis": "y2",
                "name": f"margin below {LOW_MARGIN:g}",
                "mode": "markers",
                "marker": {"symbol": "circle-open", "size": 17, "color": WARN_COLOUR, "line": {"width": 2}},
                "hoverinfo": "skip",
            }
        )
    return unvalidated(
        data,
        layout(
            240,
            # One above the other, each on a scale of its own: margins are often ten times an entropy.
            xaxis=_turn_axis(max(turns), 0.4) | {"anchor": "y2"},
            yaxis=_axis_from_zero("entropy (0: certain)") | {"domain": [0.56, 1]},
            yaxis2=_axis_from_zero("margin (logits)") | {"domain": [0, 0.44], "anchor": "x"},
            showlegend=False,
            margin=TIGHT,
            hovermode="x unified",
            hoversubplots="axis",
        ),
    )


def _axis_from_zero(words: str) -> dict[str, Any]:
    return values(words, rangemode="tozero", nticks=5, tickmode="auto")


def _line(
    turns: Sequence[int],
    heights: Sequence[float | None],
    symbols: Sequence[str],
    name: str,
    colour: str,
    dash: str,
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "x": turns,
        "y": heights,
        "name": name,
        "mode": "lines+markers",
        "line": {"color": colour, "width": 2, "dash": dash},
        "marker": {"symbol": symbols, "size": 9},
        "hovertemplate": f"turn %{{x}}: {name} %{{y:.3f}}<extra></extra>",
    }


@lru_cache(maxsize=256)
def two_choices(a: Decision, a_models: tuple[str, ...], b: Decision, b_models: tuple[str, ...]) -> go.Figure:
    """Both softmaxes of two decisions, A's bar above B's for every model and role; each side's choice is
    named. Slots are matched by name; a side without a slot, or without a head, has no bar there."""
    models = (*a_models, *(name for name in b_models if name not in a_models))
    names = [literal(name) for name in models] + [role_word(role) for role in ROLE_ORDER]
    data = []
    for side, decision, own, colour in (("A", a, a_models, FIRST_COLOUR), ("B", b, b_models, SECOND_COLOUR)):
        by_model = dict(zip(own, decision.model_probs, strict=False))
        by_role = dict(zip(ROLE_ORDER, decision.role_probs, strict=False))
        probs = [*(by_model.get(name) for name in models), *(by_role.get(role) for role in ROLE_ORDER)]
        picks = {len(models) + ROLE_ORDER.index(decision.role)}
        picks |= {models.index(decision.model)} if decision.model in models else set()
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": side,
                "y": list(range(len(names))),
                "x": probs,
                "text": [
                    "" if p is None else f"{side} {percent(p)}{'  <b>chosen</b>' if i in picks else ''}"
                    for i, p in enumerate(probs)
                ],
                "textposition": "outside",
                "cliponaxis": False,
                "marker": {
                    "color": colour,
                    "opacity": [1.0 if i in picks else 0.4 for i in range(len(names))],
                },
                "hovertemplate": f"{side}: %{{x:.4f}}<extra></extra>",
            }
        )
    figure = unvalidated(
        data,
        layout(
            len(names) * 42 + 48,
            barmode="group",
            xaxis=titled("probability", range=[0, 1.4], showticklabels=False),
            yaxis=named_axis(names, autorange="reversed", showgrid=False, title=None),
            showlegend=False,
            margin={"l": 8, "r": 0, "t": 4, "b": 4},
        ),
    )
    figure.add_hline(len(models) - 0.5, line={"color": NEUTRAL_COLOUR, "width": 1}, opacity=0.5)
    return figure


def _plot(figure: go.Figure, key: str, alt: str, to_turn: Callable[[int], None]) -> None:
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
    """What the turns have used so far, by model, in the measure of the address; nothing where nobody counted it. A
    click calls `to_turn(index)`."""
    measures = {name: words for name, (words, _) in MEASURES.items() if is_counted(recording.outlines, name)}
    if not measures:
        return
    with st.container(border=True):
        st.markdown("**What had it used by each turn?**")
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
