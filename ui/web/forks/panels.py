"""What a run of forks came to, as its page shows it beside its answers: progress, the proof that nothing recorded
changed, and the variation tree: parent, baseline and forks merged by common prefix, a leaf per outcome."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from core.analysis.power import MOST_PLAYS
from core.changes import BASELINE, FORK
from core.episode import Role, Verdict
from storage.reads.episode_steps import read_head
from storage.reads.forks import Child
from storage.rows.summaries import RunSummary, TurnOutline
from storage.store import Store
from ui.presentation.glossary import define
from ui.presentation.steps import change_words
from ui.presentation.theme import (
    FIRST_COLOUR,
    NEUTRAL_COLOUR,
    ROLE_STYLES,
    correct_mark,
    label,
    layout,
    model_colour,
    one_line,
    verdict_mark,
)
from ui.presentation.words import ago, if_paid, turns_words
from ui.runs.forks.results import (
    Grown,
    Results,
)
from ui.runs.plans import Branch, ForkPlan, runs_of
from ui.web.kit import state
from ui.web.kit.figures import BARE, TIGHT, line_at, literal, note, picked, unvalidated
from ui.web.kit.widgets import nothing_here
from ui.web.progress import Reached, RunTexts, standing

PARENT = "parent"
#: At most so many different courses are drawn, the most frequent ones.
MOST_LEAVES = 40
_ROW_PX = 48
#: Right of the last turn, for how a course ended; a line bends this far from the turns it joins, in turns.
_ENDS_PX, _BEND = 168, 0.38

Move = tuple[str, str, Role, Verdict | None, str | None, bool | None]


@dataclass(frozen=True, slots=True)
class Path:
    """An episode of the tree: what it is (parent, baseline or fork), its turns and its outcome."""

    part: str
    episode_id: str
    outlines: tuple[TurnOutline, ...]
    correct: bool | None


@dataclass(slots=True)
class Node:
    """A turn that these paths share: their choices, verdicts and answers agree up to here."""

    turn: int
    outline: TurnOutline | None
    paths: list[Path]
    children: dict[Move, Node] = field(default_factory=dict)
    y: float = 0.0

    @property
    def ends(self) -> list[Path]:
        """The paths that end here."""
        return [one for one in self.paths if len(one.outlines) <= self.turn + 1]


def grow(paths: Sequence[Path], fork_turn: int) -> Node:
    """The tree of the paths. From the forked turn on, forks stand apart from what was not changed."""
    root = Node(-1, None, list(paths))
    for path in paths:
        node = root
        for outline in path.outlines:
            side = FORK if path.part == FORK and outline.index >= fork_turn else BASELINE
            ended = outline.verdict, outline.answer_after, outline.correct_after
            move = side, outline.model, outline.role, *ended
            node = node.children.setdefault(move, Node(outline.index, outline, []))
            node.paths.append(path)
    return root


def tree_figure(paths: Sequence[Path], fork_turn: int, models: Sequence[str]) -> tuple[go.Figure, int]:
    """The tree and how many different courses it leaves out. A point's customdata is its episode and turn (from 1); the
    shared turns before the fork are drawn as far as the last two."""
    root = grow(paths, fork_turn)
    leaves = _laid_out(root)
    drawn = sorted(leaves, key=lambda node: (-_weight(node), node.y))[:MOST_LEAVES]
    for place, node in enumerate(sorted(drawn, key=lambda node: node.y)):
        node.y = float(place)
    _prune(root, {id(node) for node in drawn})
    first = max(0, fork_turn - 2)
    nodes = [node for node in _walk(root) if node.turn >= first]
    turns = range(first, max((node.turn for node in nodes), default=0) + 1)
    rows = max(3, len(drawn))
    figure = unvalidated(
        [*_edges(nodes, fork_turn), _points(nodes, models)],
        layout(
            84 + _ROW_PX * rows,
            showlegend=False,
            margin=TIGHT | {"r": _ENDS_PX, "t": 30},
            xaxis=BARE
            | {
                "range": [first - 0.5, turns.stop - 0.8],
                "tickvals": list(turns),
                "ticktext": [f"turn {turn + 1}" for turn in turns],
                "side": "top",
            },
            yaxis={"visible": False, "range": [rows - 0.3, -0.7], "fixedrange": True},
            annotations=[_end(node) for node in drawn],
            shapes=[line_at(x=fork_turn - 0.5, width=1, dash="dash")],
        ),
    )
    return figure, len(leaves) - len(drawn)


def _laid_out(root: Node) -> list[Node]:
    """The nodes where courses end, from top to bottom: what was not changed first. Their `y` is their place."""
    found: list[Node] = []

    def walk(node: Node) -> None:
        for move in sorted(
            node.children, key=lambda move: (move[0] == FORK, -len(node.children[move].paths))
        ):
            walk(node.children[move])
        if node.ends and node.turn >= 0:
            node.y = float(len(found))
            found.append(node)

    walk(root)
    return found


def _weight(node: Node) -> int:
    """Parents are always drawn, then what happened often."""
    return len(node.ends) + 1000 * any(one.part == PARENT for one in node.ends)


def _prune(node: Node, drawn: set[int]) -> bool:
    """Takes away the turns that lead to no drawn course, and puts the others midway between those they lead to.
    Whether anything is left of the node."""
    node.children = {move: child for move, child in node.children.items() if _prune(child, drawn)}
    if id(node) in drawn:
        return True
    below = [child.y for child in node.children.values()]
    if below:
        node.y = (min(below) + max(below)) / 2
    return bool(below)


def _walk(node: Node) -> Iterator[Node]:
    for child in node.children.values():
        yield child
        yield from _walk(child)


def _edges(nodes: Sequence[Node], fork_turn: int) -> list[dict[str, Any]]:
    """A line from each turn to the next, thicker where more episodes went; forks solid blue, others grey."""
    lines: list[dict[str, Any]] = []
    for node in nodes:
        for move, child in node.children.items():
            forked = move[0] == FORK and child.turn >= fork_turn
            stroke = {
                "color": FIRST_COLOUR if forked else NEUTRAL_COLOUR,
                "width": min(7.0, 1.2 + 0.5 * len(child.paths)),
                "dash": "solid" if forked else "dot",
            }
            # It bends midway, so that no turn's words lie under it.
            x = [node.turn, node.turn + _BEND, child.turn - _BEND, child.turn]
            y = [node.y, node.y, child.y, child.y]
            line = {"type": "scatter", "mode": "lines", "x": x, "y": y, "line": stroke, "hoverinfo": "skip"}
            lines.append(line)
    return lines


def _points(nodes: Sequence[Node], models: Sequence[str]) -> dict[str, Any]:
    turns = [(node, node.outline) for node in nodes if node.outline is not None]
    return {
        "type": "scatter",
        "mode": "markers+text",
        "x": [node.turn for node, _ in turns],
        "y": [node.y for node, _ in turns],
        "marker": {
            "size": 17,
            "symbol": [ROLE_STYLES[outline.role].symbol for _, outline in turns],
            "color": [model_colour(outline.model, models) for _, outline in turns],
            "line": {"width": 1, "color": "rgba(255,255,255,0.8)"},
        },
        "text": [_word(outline) for _, outline in turns],
        "textposition": "bottom center",
        "textfont": {"size": 10},
        "customdata": [
            [node.paths[0].episode_id, node.turn + 1, _hover(node, outline)] for node, outline in turns
        ],
        "hovertemplate": "%{customdata[2]}<extra></extra>",
        "cliponaxis": False,
    }


def _word(outline: TurnOutline) -> str:
    mark = verdict_mark(outline.verdict)
    return (
        f"{ROLE_STYLES[outline.role].letter} {literal(outline.model, 12)}{f' {mark.glyph}' if mark else ''}"
    )


def _hover(node: Node, outline: TurnOutline) -> str:
    mark = correct_mark(outline.correct_after)
    answer = "no answer yet"
    if outline.answer_after is not None:
        answer = f"{literal(f'answer {one_line(outline.answer_after, 60)}', 80)} ({mark.word})"
    speaker = f"{ROLE_STYLES[outline.role].word} {one_line(outline.model, 40)}"
    verdict = f", {outline.verdict}" if outline.verdict else ""
    parts = ", ".join(f"{n} {part}" for part, n in Counter(path.part for path in node.paths).items())
    return f"turn {node.turn + 1}: {literal(speaker, 80)}{verdict}<br>{answer}<br>{parts}"


def _end(node: Node) -> dict[str, Any]:
    """Right of a last turn: how it ended, with which answer, and in which part of the run."""
    mark = correct_mark(node.ends[0].correct)
    given = node.outline.answer_after if node.outline else None
    answer = "no answer" if given is None else literal(given, 12) or "(empty)"
    parts = " · ".join(
        "recorded" if part == PARENT else f"{n} {part}{'s' if n > 1 and part == FORK else ''}"
        for part, n in Counter(path.part for path in node.ends).items()
    )
    outcome = f'<b><span style="color:{mark.colour}">{mark.glyph}</span> {mark.word}</b>'
    return note(f"{outcome} · {answer}<br>{parts}", x=node.turn, y=node.y, xshift=34, align="left")


TEXTS = RunTexts("plays these forks", pause="Pause")


def headline(store: Store, run: RunSummary, plan: ForkPlan, results: Results) -> None:
    """Where the run stands, what went wrong, and how to go on with it."""
    facts = (
        f"begun {ago(run.created, time.time())}",
        *(f"spent {label(spent)}" for spent in if_paid(results.spent_usd)),
        f"pool {label(plan.pool, 60)}",
    )
    standing(store, run, TEXTS, [f":gray[{one}]" for one in facts], go_on="Resume")


def reached(plan: ForkPlan, results: Results) -> Reached:
    """How many children are finished."""
    baseline, fork = results.baseline, results.fork
    if plan.asks_luck:
        words = (
            f"Replay {baseline.n + 1} of at most {MOST_PLAYS} · right {baseline.right} of {baseline.n} so far"
        )
        return Reached(baseline.n, MOST_PLAYS, words)
    words = f"Baseline {baseline.n} of {baseline.wanted} · forks {fork.n} of {fork.wanted}"
    return Reached(baseline.n + fork.n, baseline.wanted + fork.wanted, words)


def proof(plan: ForkPlan, results: Results) -> None:
    """The unchanged turns, and that the recorded episodes are unchanged; a click shows the hashes that prove it."""
    one = plan.branches[0] if len(plan.branches) == 1 else None
    if one is not None and one.anew:
        st.caption(f":material/call_split: {_asked_again(plan, one)}")
    elif one is not None:
        unchanged = f"Kept: turn{'s 1 to' if one.turn > 1 else ''} {one.turn}"
        unchanged = unchanged if one.turn else "Nothing comes before it"
        st.caption(f":material/call_split: {unchanged}. {_anew(plan, one)}")
    if results.parents_unchanged:
        whose = "The recorded episode is" if one else f"All {len(plan.branches)} recorded episodes are"
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.caption(f":material/lock: {whose} unchanged.", width="content")
            with st.popover("Proof", icon=":material/fingerprint:", type="tertiary"):
                st.markdown("Every recorded row has the same hash as before the forks.")
                if one is not None:
                    st.markdown(f"- the recorded episode `{one.digest[:16]}`")
                    st.markdown(f"- the turns that were kept `{one.prefix[:16]}`", help=define("Prefix hash"))
    else:
        st.caption(
            ":orange[:material/warning:] A forked episode was deleted or changed after this run began."
        )
    if results.gone:
        plays = "play that was" if results.gone == 1 else "plays that were"
        st.caption(
            f"{results.gone} {plays} counted here {'has' if results.gone == 1 else 'have'} been deleted since."
        )


def _anew(plan: ForkPlan, one: Branch) -> str:
    turn = one.turn + 1
    if plan.asks_luck:
        return "Every turn was decided and played again."
    if one.certain:
        return f"The baseline plays from turn {turn} on, the fork nothing."
    by_hand = f"; the fork's turn {turn} was set by hand" if _by_hand(plan) else ""
    return f"Played again from turn {turn} on{by_hand}."


def _asked_again(plan: ForkPlan, one: Branch) -> str:
    words = f"Asked again: {turns_words(one.anew)}. Every other step keeps what it said, and costs nothing."
    return f"{words} The fork's turn {one.turn + 1} was set by hand." if _by_hand(plan) else words


def _by_hand(plan: ForkPlan) -> bool:
    return plan.change is not None and plan.change.by_hand


# One turn: the tree and its children


def tree(store: Store, plan: ForkPlan, grown: Grown) -> None:
    """The variation tree of one forked turn; a click on a turn opens it in Replay."""
    st.subheader("Where do the plays diverge?", help=define("Variation tree"))
    parent = next(iter(store.episodes.summaries([grown.branch.parent])), None)
    sides = {BASELINE: grown.baseline.values(), FORK: grown.forks.values()}
    parts = [(part, one.id, one.correct) for part, side in sides.items() for one in side]
    children = len(parts)
    if parent:
        parts.insert(0, (PARENT, parent.id, parent.correct))
    outlines = store.episodes.outlines([ep for _, ep, _ in parts])
    paths = [Path(part, ep, tuple(outlines[ep]), correct) for part, ep, correct in parts if outlines[ep]]
    if not children or not paths:
        nothing_here("The tree appears with the first play.", ":material/hourglass_top:")
        return
    models = read_head(store, paths[0].episode_id).episode.models
    figure, left_out = tree_figure(paths, grown.branch.turn, models)
    with st.container(border=True):
        lines = "Grey and dotted: the recorded play and its replays."
        if not plan.asks_luck:
            lines = (
                "Before the dashed line nothing differs. Grey and dotted: the recorded play and the baseline. Blue: "
                f"{label(change_words(plan.change), 80)}."
            )
        st.caption(f"{lines} Letters are roles; a click opens the turn in Replay.")
        with st.container(key="wide_tree"):
            point = picked(
                figure,
                key=f"fork_tree_{grown.branch.parent}_{children}",
                alt=f"Tree of plays from turn {grown.branch.turn + 1}: {_right(grown.baseline)} baseline plays were "
                f"right, {_right(grown.forks)} forks were right",
            )
        if left_out:
            st.caption(f"The {MOST_LEAVES} most frequent paths are drawn; {left_out} rarer ones are not.")
    if point:
        ep, turn, _ = point
        # With the run, because the browser's way back leads over this page under the parameters of the next.
        state.go("replay", ep=str(ep), t=int(turn), run=state.param("run"))


def _right(side: Mapping[int, Child]) -> str:
    return f"{sum(bool(one.correct) for one in side.values())} of {len(side)}"


#: Among so many newest runs of forks one is looked for that is of an episode.
_LOOKED_AT = 100


def newest_of(store: Store, episode_id: str) -> tuple[str, ForkPlan] | None:
    """The newest run that forks every turn of this episode, and its plan."""
    found = runs_of(store, "fork", ForkPlan, limit=_LOOKED_AT)
    return next(((run.id, plan) for run, plan in found if plan.every_turn == episode_id), None)
