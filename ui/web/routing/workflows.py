"""Workflows of one policy, or of two set against each other: who does which step, how long they are, their shapes and
how those end, what steps may read, plans that cannot be read, and what later rounds change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import streamlit as st

from core.workflow import MOST_STEPS
from storage.analysis.routing import pool_order
from storage.analysis.workflows import RoundOutcome, Rounds, WorkflowUse, any_workflow, workflow_use
from storage.filters.expression import AnyOf, Compare, Every, Name, write_expression
from storage.store import Store
from ui.presentation.theme import FIRST_COLOUR, WARN_COLOUR, one_line, percent
from ui.presentation.workflows import FAULT_WORDS, TOPOLOGY_COLOURS, step_name, topologies_legend
from ui.web.kit import state
from ui.web.kit.cache import cached
from ui.web.kit.chart import plot
from ui.web.kit.clicks import picked
from ui.web.kit.estimates import Estimate, estimates_figure
from ui.web.kit.figures import horizontal_bars, literal
from ui.web.kit.matrix import MatrixCell, matrix
from ui.web.kit.tables import link, number, row_table, text
from ui.web.kit.widgets import ink, nothing_here
from ui.web.pickers.scope import Scope, ScopeSide

_use = cached(workflow_use)
_any = cached(any_workflow)
_pool_order = cached(pool_order)

_UNREAD = write_expression(Compare(Name("plan_fault"), "!=", None))
#: What a later round did, in words.
OUTCOMES: dict[RoundOutcome, str] = {
    RoundOutcome.KEPT: "The planner kept the answer",
    RoundOutcome.SAME: "A new workflow, the same answer",
    RoundOutcome.CHANGED: "A new workflow, another answer",
    RoundOutcome.NOT_RUN: "Its plan could not be read or run",
}


@dataclass(frozen=True, slots=True)
class _Part:
    """One policy's workflows: `side` counts its episodes alone."""

    side: ScopeSide
    use: WorkflowUse

    @property
    def mark(self) -> str:
        """What sets its charts apart from the other side's."""
        return f" · {self.side.letter}" if self.side.letter else ""


def has_workflows(store: Store, scope: Scope) -> bool:
    """Whether any of the episodes that the address asks for has a plan."""
    return any(_any(store, where) for where in scope.asked)


def workflows_panel(store: Store, scope: Scope) -> None:
    """The part of the page: the policies that write workflows, and what those of one are like, or of A and B."""
    st.subheader("What are the workflows like?")
    found = [_use(store, side.where) for side in scope.sides]
    if scope.compared:
        parts = [
            _Part(side, of[side.where.policy])
            for side, of in zip(scope.sides, found, strict=True)
            if side.where.policy in of
        ]
        if len(parts) < len(scope.sides):
            lacking = [side.title for side in scope.sides if side not in [part.side for part in parts]]
            nothing_here(f"Without workflows here: {', '.join(lacking)}.", ":material/info:")
    else:
        _overview(scope, found[0])
        parts = [_chosen(scope, found[0])]
    models = list(dict.fromkeys(model for part in parts for model in _pool_order(store, part.side.where)))
    for part in parts:
        _standing(part)
    _steps(parts, models)
    _beside(parts, "Steps per workflow", _lengths)
    _beside(parts, "Which shapes, and how do they end?", _shapes)
    st.caption(
        f"Share of right episodes with its 95 % interval, those of one task taken together. {topologies_legend()}"
    )
    _beside(parts, "How much may a step read?", _access)
    st.caption(
        "Of the earlier steps of its workflow, the share that a step is allowed to read, by its place."
    )
    _beside(parts, "Which plans cannot be read?", _faults)
    if any(part.use.rounds for part in parts):
        _beside(parts, "What do later rounds change?", _rounds)


def _overview(scope: Scope, found: Mapping[str, WorkflowUse]) -> None:
    """Every policy by itself: a mean over several would be of none of them."""
    if len(found) < 2:
        return
    address = st.query_params.to_dict()
    row_table(
        {
            "policy": text("Policy", width=300),
            "right": number("Right", "%.1f %%"),
            "interval": text("95 % interval", width=130),
            "n": number("Episodes", "localized"),
            "steps": number("Mean steps", "%.1f"),
            "readable": number(
                "Plans read", "%.1f %%", help="Of the planner's replies, those that are a workflow"
            ),
            "open": link("Alone", "Show"),
        },
        [
            (
                one_line(scope.say(policy), 80),
                100 * (use.right.value or 0.0),
                _interval(use.right.ci95),
                use.episodes,
                use.steps_mean,
                None if (read := use.readable) is None else 100 * read,
                state.href("routing", **{**address, "policy": policy, "planner": None}),
            )
            for policy, use in found.items()
        ],
        key="workflow_policies",
        at_most=10,
    )


def _chosen(scope: Scope, found: Mapping[str, WorkflowUse]) -> _Part:
    """The policy of the address, else the one with most episodes: never a mixture."""
    side = scope.sides[0]
    policy = next(iter(found))
    if len(found) > 1:
        words = {one: scope.say(one) for one in found}
        policy = state.address_select(
            "Whose workflows?", words, name="planner", key="routing_planner", widget="list"
        )
    own = replace(side, name=scope.say(policy), where=replace(side.where, policy=policy))
    return _Part(own, found[policy])


def _interval(ends: tuple[float, float]) -> str:
    return f"{percent(ends[0])} to {percent(ends[1])}"


def _standing(part: _Part) -> None:
    use = part.use
    steps = "" if use.steps_mean is None else f", {use.steps_mean:.1f} steps each"
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(
            f"**{part.side.title}**: {use.episodes:,} finished episodes, {percent(use.right.value)} right "
            f"({_interval(use.right.ci95)}), {use.workflows:,} workflows{steps}",
            width="content",
        )
        part.side.link("List them")


def _beside(parts: Sequence[_Part], question: str, draw: Callable[[_Part], None]) -> None:
    """A chart of each side under its question."""
    st.markdown(f"**{question}**")
    for column, part in zip(st.columns(len(parts)), parts, strict=True):
        with column:
            if part.side.letter:
                st.caption(part.side.title)
            draw(part)


# Steps


def _steps(parts: Sequence[_Part], models: Sequence[str]) -> None:
    """Models by the place of the step: shares of one policy, or B minus A."""
    st.markdown("**Who does which step?**")
    places = [place for place in range(MOST_STEPS) if any(part.use.lengths_from(place) for part in parts)]
    if not places:
        nothing_here("No workflow was run.")
        return
    compared = len(parts) == 2
    st.caption(
        "B minus A, in points of the steps at a place. Click a cell for its episodes."
        if compared
        else "Percent of the steps at a place, by model. Click a cell for its episodes."
    )
    cell = picked(
        matrix(
            [[_step_cell(parts, place, model) for model in models] for place in places],
            [
                f"{step_name(place)} ({'/'.join(f'{part.use.lengths_from(place):,}' for part in parts)})"
                for place in places
            ],
            [literal(model, 14) for model in models],
            ink(),
            axes=("step", "model"),
            signed=compared,
        ),
        key="workflow_steps",
        alt="; ".join(_steps_words(part, places) for part in parts),
    )
    if cell:
        place, _, model = str(cell[0]).partition(" ")
        at = AnyOf(
            Every(
                (Compare(Name("turn.step"), "==", int(place) + 1), Compare(Name("turn.model"), "==", model))
            )
        )
        state.go("episodes", **parts[-1].side.listed(write_expression(at)))


def _step_cell(parts: Sequence[_Part], place: int, model: str) -> MatrixCell:
    shares = [part.use.share(place, model) for part in parts]
    lines = [
        f"{part.side.letter or 'here'}: {part.use.models[place, model]:,} of {part.use.lengths_from(place):,}, "
        f"{percent(share)}"
        for part, share in zip(parts, shares, strict=True)
    ]
    hover, key = "<br>".join([f"{literal(model, 40)}, {step_name(place)}", *lines]), f"{place} {model}"
    if not any(shares):
        return MatrixCell(None, "", hover, key)
    value = shares[1] - shares[0] if len(shares) == 2 else shares[0]
    return MatrixCell(value, f"{100 * value:{'+' if len(shares) == 2 else ''}.0f}", hover, key)


def _steps_words(part: _Part, places: Sequence[int]) -> str:
    most = []
    for place in places:
        models = {model: n for (at, model), n in part.use.models.items() if at == place}
        model = max(models, key=models.__getitem__, default="")
        most.append(f"{step_name(place)} {model} {percent(part.use.share(place, model))}")
    return f"{part.side.name}: most often {', '.join(most)}"


def _lengths(part: _Part) -> None:
    counts = [part.use.lengths[n] for n in range(1, MOST_STEPS + 1)]
    shares = [n / max(1, part.use.workflows) for n in counts]
    plot(
        horizontal_bars(
            shares,
            [f"{n} {'step' if n == 1 else 'steps'}" for n in range(1, MOST_STEPS + 1)],
            [FIRST_COLOUR] * MOST_STEPS,
            [f"{percent(share)} ({n:,})" for share, n in zip(shares, counts, strict=True)],
            "share of workflows",
        ),
        key=f"workflow_lengths{part.mark}",
        small=True,
        alt=", ".join(f"{n} steps: {count}" for n, count in enumerate(counts, 1)),
    )


# Shapes and access


def _shapes(part: _Part) -> None:
    shapes = sorted(part.use.topologies.items(), key=lambda one: (-one[1].n, one[0]))
    if not shapes:
        nothing_here("No workflow was read.")
        return
    rows = []
    for shape, share in shapes:
        low, high = share.ci95
        detail = f"{share.k:,} of {share.n:,} right, {percent(share.n / part.use.episodes)} of the episodes"
        rows.append(
            Estimate(
                f"{shape.value} ({share.n:,})",
                share.value or 0.0,
                low,
                high,
                detail,
                shape.value,
                TOPOLOGY_COLOURS[shape],
            )
        )
    cell = picked(
        estimates_figure(rows, "share answered right"),
        key=f"workflow_shapes{part.mark}",
        alt="; ".join(f"{row.name} {percent(row.value)} right" for row in rows),
    )
    if cell:
        where = write_expression(Compare(Name("topology"), "==", str(cell[0])))
        state.go("episodes", **part.side.listed(where))


def _access(part: _Part) -> None:
    if not part.use.access:
        nothing_here("No workflow has a second step.")
        return
    rows = list(part.use.access.items())
    plot(
        horizontal_bars(
            [share.value for _, share in rows],
            [step_name(place) for place, _ in rows],
            [FIRST_COLOUR] * len(rows),
            [f"{percent(share.value)} ({share.k:,} of {share.n:,})" for _, share in rows],
            "share that reads earlier steps",
            room=1.6,
        ),
        key=f"workflow_access{part.mark}",
        small=True,
        alt=", ".join(f"{step_name(place)}: {percent(share.value)}" for place, share in rows),
    )


# Plans


def _faults(part: _Part) -> None:
    use = part.use
    failed = f" {use.failed:,} more failed with their model." if use.failed else ""
    if not use.faults:
        nothing_here(
            f"All {use.plans - use.failed:,} replies of the planner could be read.{failed}",
            ":material/check:",
        )
        return
    rows = use.faults.most_common()
    plot(
        horizontal_bars(
            [float(n) for _, n in rows],
            [FAULT_WORDS[fault] for fault, _ in rows],
            [WARN_COLOUR] * len(rows),
            [f"{n:,} ({percent(n / use.plans)})" for _, n in rows],
            "replies that could not be read",
        ),
        key=f"workflow_faults{part.mark}",
        small=True,
        alt=", ".join(f"{FAULT_WORDS[fault]}: {n}" for fault, n in rows),
    )
    st.caption(f"Of {use.plans:,} replies, repeated tries counted, by the first reason that holds.{failed}")
    part.side.link("Episodes whose last plan could not be read", _UNREAD)


# Rounds


def _rounds(part: _Part) -> None:
    if not part.use.rounds:
        nothing_here("No episode has a second round.")
        return
    total = sum(one.n for one in part.use.rounds.values())
    rows = [(outcome, part.use.rounds.get(outcome, Rounds())) for outcome in OUTCOMES]
    row_table(
        {
            "outcome": text("Rounds after the first", width=240),
            "n": number("Rounds", "localized"),
            "share": number("Share", "%.0f %%"),
            "before": number("Right before", "localized"),
            "after": number("Right after", "localized"),
        },
        [
            (OUTCOMES[outcome], one.n, 100 * one.n / total, one.right_before, one.right_after)
            for outcome, one in rows
            if one.n
        ],
        key=f"workflow_rounds{part.mark}",
    )
