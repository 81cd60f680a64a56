"""The workflow behind an episode: its graph, what each step was asked and could read, and what the planner wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from core.conduct.prompts import terse_role
from core.episode import ChangeKind, Episode, Message, Plan, Role, Status
from core.play.roles import dialect_and_tag
from core.workflow import Workflow
from ui.presentation.changes import change_words
from ui.presentation.theme import NEUTRAL_COLOUR, ink_on, label, layout, model_colour, one_line
from ui.presentation.words import policy_name, seconds
from ui.presentation.workflows import FAULT_WORDS
from ui.web.kit import state
from ui.web.kit.chart import plot
from ui.web.kit.text import text_block

#: What can be changed of a step, and the words of the link that leads there.
_WHAT_IFS: dict[ChangeKind, str] = {
    "model": "another model",
    "subtask": "another subtask",
    "access": "other access",
    "reply": "another reply",
}
_NODE_PX, _LANE_PX = 34, 64
#: How near the middle of a node a straight arrow may pass, in lanes.
_CLEAR_LANES = 0.4
#: What of earlier steps the short form passes on.
_ROOM: dict[Role, str] = {
    Role.THINKER: "nothing: pocket models plan from the problem alone",
    Role.WORKER: "the latest plan alone: pocket models solve from the problem and one plan",
    Role.VERIFIER: "one answer alone: pocket models check or merge a single one",
}


def workflow_panel(
    episode: Episode, cursor: int | None, *, forks: bool = False, sent: Sequence[Message] = ()
) -> None:
    """All of it, with the step of turn `cursor` (from 0) told in words; nothing for an episode without plans. `forks`:
    with links to what can be changed of that step; `sent`: the messages that its model was sent."""
    if not episode.plans:
        return
    turn = 0
    for number in sorted({plan.round for plan in episode.plans}):
        plans = [plan for plan in episode.plans if plan.round == number]
        with st.container(border=True):
            place = None if cursor is None else cursor - turn
            turn += _round(episode, plans, place, first=turn, forks=forks, sent=sent)


def _round(
    episode: Episode,
    plans: Sequence[Plan],
    place: int | None,
    *,
    first: int,
    forks: bool,
    sent: Sequence[Message],
) -> int:
    """One round; returns how many turns it has."""
    last = plans[-1]
    rounds = len({plan.round for plan in episode.plans})
    name = f"Workflow of round {last.round + 1}" if rounds > 1 else "Workflow"
    workflow = last.workflow
    if workflow is None:
        kept = (
            "The planner left the answer as it was." if last.keeps else f"No workflow: {fault_words(last)}."
        )
        st.markdown(f"**{name}** · {label(kept)}")
    else:
        shape = f"{workflow.topology.value}, {len(workflow)} {'step' if len(workflow) == 1 else 'steps'}"
        side = f", {workflow.width} side by side" if workflow.width > 1 else ""
        st.markdown(f"**{name}** · {shape}{side} · written by {label(_writer(episode, last))}")
        names = [episode.models[slot] for slot in workflow.models]
        plot(
            graph_figure(workflow, names, episode.models, place, first),
            key=f"workflow_{last.round}",
            small=True,
            alt=graph_words(workflow, names, first),
        )
        if place is not None and 0 <= place < len(workflow):
            st.markdown(step_words(workflow, names, place, first))
            if words := passed_on_words(workflow, place, sent):
                st.markdown(words)
            if forks:
                _what_if(episode, first, place)
    _changed_by_fork(episode, last)
    with st.expander(_planner_words(plans)):
        for plan in plans:
            if len(plans) > 1:
                st.caption(f"Try {plan.attempt + 1}: {fault_words(plan) if plan.fault else 'read'}")
            written = plan.reply.text or (plan.reply.error.message if plan.reply.error else "")
            text_block(written or "(nothing)", key=f"plan_{plan.round}_{plan.attempt}")
    return len(workflow) if workflow else 0


def _writer(episode: Episode, plan: Plan) -> str:
    return one_line(policy_name(plan.planner, episode.generation), 60)


def chosen_by(episode: Episode, index: int) -> str:
    """Why a step's model is this one, of an episode that a planner planned; plain text."""
    fork = episode.fork
    if fork and fork.change and fork.turn == index and fork.change.kind == "model":
        return "a fork put this model in the place of the one that the planner had named."
    return "the planner named the model when it wrote the workflow above."


def passed_on_words(workflow: Workflow, place: int, sent: Sequence[Message]) -> str:
    """What of the earlier steps that it could read a pocket model's step was sent, which is not all of their text;
    empty where all of it was."""
    if not sent or not workflow.reads[place] or dialect_and_tag(sent)[0] != "terse":
        return ""
    room = _ROOM[terse_role(workflow.subtasks[place])]
    return f"Of the earlier turns it was sent {room}."


def _what_if(episode: Episode, first: int, place: int) -> None:
    """Links to forks of a step."""
    if episode.status is Status.RUNNING:
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(":gray[What if it had]", width="content")
        for kind, words in _WHAT_IFS.items():
            if kind != "access" or place:
                state.page_link("forks", words, ep=episode.id, t=first + place + 1, change=kind)


def _changed_by_fork(episode: Episode, last: Plan) -> None:
    """What a fork changed in this round, whose workflow is then not quite what its planner wrote."""
    fork, rounds = episode.fork, {plan.round for plan in episode.plans}
    if fork is None or fork.change is None or last.round != max(rounds):
        return
    st.markdown(
        f":material/fork_right: By a fork, turn {fork.turn + 1} was **{label(change_words(fork.change), 120)}**; the "
        "rest of the workflow is that of the forked episode."
    )


def fault_words(plan: Plan) -> str:
    """Why a plan is no workflow."""
    return FAULT_WORDS[plan.fault] if plan.fault else "its planner failed"


def _planner_words(plans: Sequence[Plan]) -> str:
    tries = f" ({len(plans)} tries)" if len(plans) > 1 else ""
    usage = plans[-1].reply.usage
    spent = usage.tokens_in + usage.tokens_out
    cost = f" · {spent:,} tokens · {seconds(plans[-1].reply.latency_s)}" if spent else ""
    return f"What the planner wrote{tries}{cost}"


def step_words(workflow: Workflow, names: Sequence[str], place: int, first: int = 0) -> str:
    """What a step was asked, and which earlier steps it could and could not read."""
    seen = workflow.reads[place]
    hidden = [earlier for earlier in range(place) if earlier not in seen]

    def told(places: Sequence[int]) -> str:
        return ", ".join(f"turn {first + one + 1} ({label(names[one], 30)})" for one in places)

    could = f"It could read the problem and {told(seen)}." if seen else "It saw only the problem."
    could_not = f" It could not read {told(hidden)}." if hidden else ""
    asked = label(one_line(workflow.subtasks[place], 300))
    return (
        f"**Turn {first + place + 1}** ({label(names[place], 30)}) was asked: {asked}  \n{could}{could_not}"
    )


def graph_words(workflow: Workflow, names: Sequence[str], first: int = 0) -> str:
    """The graph for who cannot see it."""
    steps = (
        f"turn {first + place + 1} {names[place]}"
        + (f" reads {', '.join(str(first + one + 1) for one in seen)}" if seen else "")
        for place, seen in enumerate(workflow.reads)
    )
    return "; ".join(steps)


class _Edge:
    """The way from a step to one that reads it: straight, or bowed where a straight one would go through a third."""

    def __init__(self, step: int, earlier: int, x: Sequence[float], y: Sequence[float]) -> None:
        self.start, self.end = (x[earlier], y[earlier]), (x[step], y[step])
        (x0, y0), (x1, y1) = self.start, self.end
        meets = any(
            x0 < a < x1 and abs(y0 + (y1 - y0) * (a - x0) / (x1 - x0) - b) < _CLEAR_LANES
            for a, b in zip(x, y, strict=True)
        )
        #: How far the middle is above the straight way, in lanes; the longer the way, the higher, so that several bows
        #: over the same steps can be told apart.
        self.bow = 0.3 + 0.07 * (x1 - x0) if meets else 0.0

    @property
    def _bend(self) -> tuple[float, float]:
        """The control point of the quadratic curve."""
        (x0, y0), (x1, y1) = self.start, self.end
        return (x0 + x1) / 2, (y0 + y1) / 2 + 2 * self.bow

    def curve(self) -> dict[str, Any]:
        """The bow as a shape behind the nodes."""
        points = (self.start, self._bend, self.end)
        start, bend, end = (f"{a},{b}" for a, b in points)
        line = {"color": NEUTRAL_COLOUR, "width": 1.5}
        return {"type": "path", "path": f"M {start} Q {bend} {end}", "line": line, "layer": "below"}

    def arrow(self) -> dict[str, Any]:
        """The straight way with its head; of a bow the last piece."""
        tail = self.start
        if self.bow:
            (x0, y0), (xb, yb), (x1, y1) = self.start, self._bend, self.end
            u = 0.88  # so far along the curve
            tail = (
                (1 - u) ** 2 * x0 + 2 * u * (1 - u) * xb + u**2 * x1,
                (1 - u) ** 2 * y0 + 2 * u * (1 - u) * yb + u**2 * y1,
            )
        return {
            **dict(zip(("x", "y"), self.end, strict=True)),
            **dict(zip(("ax", "ay"), tail, strict=True)),
            **dict.fromkeys(("xref", "axref"), "x"),
            **dict.fromkeys(("yref", "ayref"), "y"),
            "standoff": _NODE_PX / 2 + 2,
            "startstandoff": 0 if self.bow else _NODE_PX / 2 + 2,
            "arrowhead": 2,
            "arrowwidth": 1.5,
            "arrowcolor": NEUTRAL_COLOUR,
            "text": "",
        }


def graph_figure(
    workflow: Workflow, names: Sequence[str], models: Sequence[str], place: int | None, first: int = 0
) -> go.Figure:
    """A node for each step in the colour of its model, time from left to right, so that steps which run side by side
    stand above each other; an arrow from what is read to who reads it. The step at `place` has a ring."""
    depths = workflow.depths
    lanes = [depths[:step].count(depth) for step, depth in enumerate(depths)]
    heights = [depths.count(depth) for depth in depths]
    x = list(depths)
    y = [(heights[step] - 1) / 2 - lanes[step] for step in range(len(workflow))]
    edges = [_Edge(step, earlier, x, y) for step, seen in enumerate(workflow.reads) for earlier in seen]
    colours = [model_colour(name, models) for name in names]
    nodes = go.Scatter(
        x=x,
        y=y,
        mode="markers+text",
        marker={
            "size": _NODE_PX,
            "color": colours,
            "line": {
                "width": [4 if step == place else 0 for step in range(len(workflow))],
                "color": NEUTRAL_COLOUR,
            },
        },
        text=[str(first + step + 1) for step in range(len(workflow))],
        textfont={"color": [ink_on(colour) for colour in colours], "size": 14},
        customdata=[
            [label(name, 40), label(one_line(text, 120))]
            for name, text in zip(names, workflow.subtasks, strict=True)
        ],
        hovertemplate="%{customdata[0]}: %{customdata[1]}<extra></extra>",
    )
    captions = [
        {
            "x": a,
            "y": b,
            "text": name[:24],
            "yshift": -_NODE_PX / 2 - 10,
            "showarrow": False,
            "font": {"size": 11},
        }
        for a, b, name in zip(x, y, (one.replace("<", "&lt;") for one in names), strict=True)
    ]
    most = max(heights)
    hidden = {"visible": False, "fixedrange": True}
    return go.Figure(
        nodes,
        layout(
            60 + _LANE_PX * most,
            showlegend=False,
            annotations=[*(edge.arrow() for edge in edges), *captions],
            shapes=[edge.curve() for edge in edges if edge.bow],
            xaxis={**hidden, "range": [-0.6, max(max(x), 1) + 0.6]},
            yaxis={**hidden, "range": [-most / 2 - 0.4, most / 2 + 0.25]},
            margin={"l": 0, "r": 0, "t": 4, "b": 4},
        ),
    )
