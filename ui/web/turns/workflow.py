"""The workflow behind an episode: its graph, what each step was asked and sent, and what the planner wrote."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from core.changes import ChangeKind
from core.conduct.prompts import Passed, passed, subtask_word, unused
from core.episode import Episode, Plan, Status, Turn
from core.play.forked_steps import as_done
from core.workflow import Workflow
from ui.presentation.comparison import enumerated
from ui.presentation.steps import FAULT_WORDS, change_words
from ui.presentation.theme import NEUTRAL_COLOUR, ink_on, label, layout, model_colour, one_line
from ui.presentation.words import Generations, policy_name, seconds, turns_words
from ui.web.kit import state
from ui.web.kit.figures import plot
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
#: What the short form of the pocket models passes on of earlier steps, by the first word of what a step is asked.
_SHORT_FORM = {
    "plan": "who plans is sent the problem alone",
    "check": "who checks is sent one answer, the latest",
    "merge": "who merges is sent one answer, the most frequent; the others are only counted",
}
_SOLVES = "who solves is sent one plan, the latest"


@dataclass(frozen=True, slots=True)
class Round:
    """One round of an episode, with what is known of its turns: `first` is the number of its first turn, `names` are
    the models that did its steps, `given` says what each turn was sent, by number, `unused` are those of which nothing
    reached the last step, `in_vain` the calls for steps that other models did in the end: place, model and turn."""

    workflow: Workflow
    names: Sequence[str]
    first: int = 0
    given: Mapping[int, Passed] = field(default_factory=dict)
    unused: Collection[int] = ()
    in_vain: Sequence[tuple[int, str, int]] = ()

    def sent(self, place: int) -> tuple[int, ...] | None:
        """The places of the steps of this round that a step was sent something of; None where it is not known."""
        given = self.given.get(self.first + place)
        if given is None or given.sent is None:
            return None
        return tuple(one - self.first for one in given.sent if one >= self.first)

    def is_unused(self, place: int) -> bool:
        """Whether the last step never used it."""
        return self.first + place in self.unused


def workflow_panel(
    episode: Episode,
    cursor: int | None,
    turns: Sequence[Turn] = (),
    *,
    names: Generations,
    forks: bool = False,
) -> None:
    """All of it, with the step of turn `cursor` (from 0) told in words; nothing for an episode without plans. `turns`:
    those that are over, by which it is told what each was sent; `names`: by which planners are called; `forks`: with
    links to what can be changed of that step."""
    if not episode.plans:
        return
    given, idle = passed(episode.task, turns), frozenset[int]()
    if episode.status is Status.FINISHED:
        idle = unused(episode.task, turns)
    turn = 0
    for number in sorted({plan.round for plan in episode.plans}):
        plans = [plan for plan in episode.plans if plan.round == number]
        workflow = plans[-1].workflow
        with st.container(border=True):
            if workflow is None:
                _heading(episode, plans, names)
            else:
                done = as_done(workflow, number, episode.models, turns)
                part = Round(
                    workflow,
                    [episode.models[slot] for slot in done.models],
                    turn,
                    given,
                    idle,
                    _in_vain(turns, number),
                )
                place = None if cursor is None else cursor - turn
                _heading(episode, plans, names)
                _steps(episode, part, place, number, forks=forks)
                turn += len(workflow) + len(part.in_vain)
            _changed_by_fork(episode, plans[-1])
            _written(plans)


def _in_vain(turns: Sequence[Turn], number: int) -> list[tuple[int, str, int]]:
    """A round's calls for steps that other models did in the end: place, model and turn of each."""
    return [
        (turn.step.place, turn.decision.model, turn.index)
        for turn in turns
        if turn.step is not None and turn.step.round == number and not turn.counts
    ]


def _heading(episode: Episode, plans: Sequence[Plan], names: Generations) -> None:
    """Which round, of what shape, and by whom; or why there is no workflow."""
    last = plans[-1]
    rounds = len({plan.round for plan in episode.plans})
    name = f"Workflow of round {last.round + 1}" if rounds > 1 else "Workflow"
    workflow = last.workflow
    if workflow is None:
        kept = (
            "The planner left the answer as it was." if last.keeps else f"No workflow: {fault_words(last)}."
        )
        st.markdown(f"**{name}** · {label(kept)}")
        return
    writer = one_line(policy_name(last.planner, names.get(last.planner, episode.generation)), 60)
    shape = f"{workflow.topology.value}, {len(workflow)} {'step' if len(workflow) == 1 else 'steps'}"
    side = f", {workflow.width} side by side" if workflow.width > 1 else ""
    st.markdown(f"**{name}** · {shape}{side} · written by {label(writer)}")


def _steps(episode: Episode, part: Round, place: int | None, number: int, *, forks: bool) -> None:
    plot(
        graph_figure(part, episode.models, place), key=f"workflow_{number}", small=True, alt=graph_words(part)
    )
    if legend := legend_words(part):
        st.caption(legend)
    if place is not None and (failed := [one for one in part.in_vain if one[2] == part.first + place]):
        st.markdown(in_vain_words(part, *failed[0]))
    if place is not None and 0 <= place < len(part.workflow):
        st.markdown(step_words(part, place))
        if forks:
            _what_if(episode, part.first, place)


def _written(plans: Sequence[Plan]) -> None:
    with st.expander(_planner_words(plans)):
        for plan in plans:
            if len(plans) > 1:
                st.caption(f"Try {plan.attempt + 1}: {fault_words(plan) if plan.fault else 'read'}")
            written = plan.reply.text or (plan.reply.error.message if plan.reply.error else "")
            text_block(written or "(nothing)", key=f"plan_{plan.round}_{plan.attempt}")


def chosen_by(episode: Episode, index: int, turns: Sequence[Turn] = ()) -> str:
    """Why a step's model is this one, of an episode that a planner planned; plain text. `turns`: those that are
    over."""
    fork = episode.fork
    if fork and fork.change and fork.turn == index and fork.change.kind == "model":
        return "a fork put this model in the place of the one that the planner had named."
    own = next((one for one in turns if one.index == index), None)
    workflows = [one.workflow for one in episode.plans if own and own.step and one.round == own.step.round]
    if own and own.step and workflows and workflows[-1] is not None:
        named = episode.models[workflows[-1].models[own.step.place]]
        if named != own.decision.model:
            return f"the planner had named {one_line(named, 40)}, which could not be asked for this step."
    return "the planner named the model when it wrote the workflow above."


def _what_if(episode: Episode, first: int, place: int) -> None:
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


def step_words(part: Round, place: int) -> str:
    """What a step was asked, what it was sent of earlier ones, and what it was not."""
    workflow, first = part.workflow, part.first
    asked = label(one_line(workflow.subtasks[place], 300))
    head = f"**Turn {first + place + 1}** ({label(part.names[place], 30)}) was asked: {asked}"
    said = [*_sent_words(part, place)]
    if hidden := [earlier for earlier in range(place) if earlier not in workflow.reads[place]]:
        said.append(f"It could not read {_named(part, hidden)}.")
    if failed := [f"turn {turn + 1} ({label(model, 30)})" for at, model, turn in part.in_vain if at == place]:
        said.append(f"Asked for it in vain before: {enumerated(failed)}.")
    if part.is_unused(place):
        said.append("**The last step never used it**: nothing of its reply was sent on to it.")
    return f"{head}  \n{' '.join(said)}"


def in_vain_words(part: Round, place: int, model: str, turn: int) -> str:
    """What a call for a step was that another model did in the end."""
    return (
        f"**Turn {turn + 1}** ({label(model, 30)}) could not be asked for its step, which is turn "
        f"{part.first + place + 1}: {label(part.names[place], 30)} did it."
    )


def _named(part: Round, places: Sequence[int]) -> str:
    return enumerated([f"turn {part.first + one + 1} ({label(part.names[one], 30)})" for one in places])


def _sent_words(part: Round, place: int) -> Iterator[str]:
    """What stood in what a step's model was sent, and what could have."""
    seen, sent = part.workflow.reads[place], part.sent(place)
    given = part.given.get(part.first + place)
    if sent is None or given is None:
        also = f" and {_named(part, seen)}" if seen else " alone"
        yield f"It could read the problem{also}."
        if given is not None:
            yield "What it was sent is no longer in the store."
        return
    if not given.asked:
        yield "No model was asked: no answer that it could read was there to be judged."
        return
    word = subtask_word(part.workflow.subtasks[place])
    short = given.short
    what = "answer" if word in ("check", "merge") else "plan"
    earlier = [one for one in given.sent or () if one < part.first]
    whole = [_named(part, sent)] if sent else []
    whole += [f"{turns_words(earlier)} of the round before"] if earlier else []
    if not short:
        what = "replies" if len(sent) + len(earlier) > 1 else "reply"
    yield (
        f"It saw the problem and the {what} of {' and '.join(whole)}."
        if whole
        else "It saw only the problem."
    )
    if given.recorded:
        if seen:
            compared = "; its own answer was compared with what it could read" if given.used else ""
            yield f"It was sent nothing of {_named(part, seen)}, as its reply is recorded{compared}."
        return
    if rest := [one for one in seen if one not in sent]:
        why = f": {_SHORT_FORM.get(word, _SOLVES)}" if short else ", which said nothing"
        them = "it" if len(rest) == 1 else "them"
        yield f"It was allowed to read {_named(part, rest)} too, and was sent nothing of {them}{why}."


def legend_words(part: Round) -> str:
    """What the arrows and the rings of the graph mean, as far as it has any."""
    edges = [(place, one) for place, seen in enumerate(part.workflow.reads) for one in seen]
    unknown = [place for place, _ in edges if part.sent(place) is None]
    solid = [one for place, one in edges if one in (part.sent(place) or ())]
    said = []
    if solid:
        said.append("Solid arrow: what was sent.")
    if len(solid) < len(edges):
        said.append("Dotted: what may be read." if unknown else "Dotted: could be read, was not sent.")
    if any(map(part.is_unused, range(len(part.workflow)))):
        said.append("Open ring: the last step never used it.")
    return " ".join(said)


def graph_words(part: Round) -> str:
    """The graph for who cannot see it."""
    first = part.first

    def numbers(places: Sequence[int]) -> str:
        return ", ".join(str(first + one + 1) for one in places)

    steps = []
    for place, seen in enumerate(part.workflow.reads):
        sent = part.sent(place)
        words = f"turn {first + place + 1} {part.names[place]}"
        if sent is None and seen:
            words += f" may read {numbers(seen)}"
        elif sent is not None:
            words += f" was sent {numbers(sent)}" if sent else ""
            rest = [one for one in seen if one not in sent]
            words += f"{', and' * bool(sent)} could read {numbers(rest)}" if rest else ""
        steps.append(words + " (never used)" * part.is_unused(place))
    return "; ".join(steps)


def _edge(
    x: Sequence[float], y: Sequence[float], step: int, earlier: int, *, dotted: bool
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The way from a step to one that reads it, as an arrow and its shaft behind the nodes: straight, or bowed where a
    straight one would go through a third; dotted where nothing of it was sent. An arrow of Plotly's is straight and
    solid, and needs no shaft (None) where the way is so."""
    x0, y0, x1, y1 = x[earlier], y[earlier], x[step], y[step]
    meets = any(
        x0 < a < x1 and abs(y0 + (y1 - y0) * (a - x0) / (x1 - x0) - b) < _CLEAR_LANES
        for a, b in zip(x, y, strict=True)
    )
    # The longer the way, the higher its middle, so that several bows over the same steps can be told apart.
    bow = 0.3 + 0.07 * (x1 - x0) if meets else 0.0
    bend_x, bend_y = (x0 + x1) / 2, (y0 + y1) / 2 + 2 * bow
    begins = 0.88 if dotted or meets else 0.0  # so far along the curve
    at_start, at_bend, at_end = (1 - begins) ** 2, 2 * begins * (1 - begins), begins**2
    arrow = {
        "x": x1,
        "y": y1,
        "ax": at_start * x0 + at_bend * bend_x + at_end * x1,
        "ay": at_start * y0 + at_bend * bend_y + at_end * y1,
        **dict.fromkeys(("xref", "axref"), "x"),
        **dict.fromkeys(("yref", "ayref"), "y"),
        "standoff": _NODE_PX / 2 + 2,
        "startstandoff": 0 if begins else _NODE_PX / 2 + 2,
        "arrowhead": 2,
        "arrowwidth": 1.5,
        "arrowcolor": NEUTRAL_COLOUR,
        "text": "",
    }
    if not begins:
        return arrow, None
    line = {"color": NEUTRAL_COLOUR, "width": 1.5, **({"dash": "dot"} if dotted else {})}
    path = f"M {x0},{y0} Q {bend_x},{bend_y} {x1},{y1}"
    return arrow, {"type": "path", "path": path, "line": line, "layer": "below"}


def graph_figure(part: Round, models: Sequence[str], place: int | None) -> go.Figure:
    """A node for each step in the colour of its model, time from left to right, so that steps which run side by side
    stand above each other; a solid arrow from each step to who was sent something of it, a dotted one to who could
    only have read it. The step at `place` has a ring; one that the last never used is an open one."""
    workflow, depths = part.workflow, part.workflow.depths
    lanes = [depths[:step].count(depth) for step, depth in enumerate(depths)]
    heights = [depths.count(depth) for depth in depths]
    x = list(depths)
    y = [(heights[step] - 1) / 2 - lanes[step] for step in range(len(workflow))]
    edges = [
        _edge(x, y, step, earlier, dotted=earlier not in (part.sent(step) or ()))
        for step, seen in enumerate(workflow.reads)
        for earlier in seen
    ]
    colours = [model_colour(name, models) for name in part.names]
    idle = [part.is_unused(step) for step in range(len(workflow))]
    numbers = [str(part.first + step + 1) for step in range(len(workflow))]
    nodes = go.Scatter(
        x=x,
        y=y,
        mode="markers+text",
        marker={
            "size": _NODE_PX,
            "color": colours,
            "symbol": ["circle-open" if one else "circle" for one in idle],
            "line": {
                "width": [4 if step == place else 2 if idle[step] else 0 for step in range(len(workflow))],
                "color": NEUTRAL_COLOUR,
            },
        },
        text=["" if one else number for one, number in zip(idle, numbers, strict=True)],
        textfont={"color": [ink_on(colour) for colour in colours], "size": 14},
        customdata=[
            [label(name, 40), label(one_line(text, 120))]
            for name, text in zip(part.names, workflow.subtasks, strict=True)
        ],
        hovertemplate="%{customdata[0]}: %{customdata[1]}<extra></extra>",
    )
    words = [
        f"{name[:24]}{', unused' * one}".replace("<", "&lt;")
        for name, one in zip(part.names, idle, strict=True)
    ]
    captions = [
        {"x": a, "y": b, "text": text, "yshift": shift, "showarrow": False, "font": {"size": size}}
        for a, b, word, number, one in zip(x, y, words, numbers, idle, strict=True)
        # The number in an open ring stands on the page, in the page's own colour.
        for text, shift, size in [(word, -_NODE_PX / 2 - 10, 11), *([(number, 0, 14)] if one else [])]
    ]
    most = max(heights)
    hidden = {"visible": False, "fixedrange": True}
    return go.Figure(
        nodes,
        layout(
            60 + _LANE_PX * most,
            showlegend=False,
            annotations=[*(arrow for arrow, _ in edges), *captions],
            shapes=[shaft for _, shaft in edges if shaft is not None],
            xaxis={**hidden, "range": [-0.6, max(max(x), 1) + 0.6]},
            yaxis={**hidden, "range": [-most / 2 - 0.4, most / 2 + 0.25]},
            margin={"l": 0, "r": 0, "t": 4, "b": 4},
        ),
    )
