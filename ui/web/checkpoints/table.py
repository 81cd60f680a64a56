"""The first panel of a comparison: how often each policy is right and at what cost, with what to be careful about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from core.analysis.comparison import Comparison, accuracy_over_tasks
from core.conduct.planners import CONDUCTOR
from storage.analysis.standings import Figures, PolicySide
from ui.presentation.comparison import MOST_SIDES, p_words, threshold_words
from ui.presentation.glossary import define
from ui.presentation.theme import label, percent
from ui.presentation.words import per_solved
from ui.web.checkpoints.figures import policy_styles
from ui.web.kit import state
from ui.web.kit.chart import plot
from ui.web.kit.tables import link, row_table, text
from ui.web.kit.widgets import Standing, standings_figure
from ui.web.pickers.line import ComparedPolicies

#: How the table's columns read, each with what it counts.
COLUMNS = {
    "Policy": text("Policy", help=define("Policy")),
    "Accuracy": text(
        "Accuracy", help="Share of its own finished episodes that ended right, with the 95 % interval"
    ),
    "episodes": link("Episodes", r"#(.*)$", width=80),
    "Points over A": text(
        "Points over A", help="Its accuracy minus A's over the tasks that both played, in percentage points"
    ),
    "p": text(
        "p against A",
        help="How likely a difference from A this large would be by luck alone, were both equally good",
    ),
    "Cost per solved": text("Cost per solved", help="What all its episodes cost, over those that it solved"),
    "Tokens per solved": text(
        "Tokens per solved", help="Those of all its episodes, over those that it solved"
    ),
    "Turns": text("Turns", help="Mean per episode"),
    "Accepted": text("Accepted", help="Share of its episodes that a Verifier ended with ACCEPT"),
    "Wrong among accepted": text("Wrong among accepted", help=define("Wrong among accepted")),
    "Tasks": text("Tasks", help="How many different tasks it has finished"),
    "Seeds": text("Seeds", help="With how many different seeds it played; another seed draws other choices"),
    "Missing": text("Missing", help=define("Missing")),
}


def standings(
    line: ComparedPolicies,
    found: Sequence[Figures],
    compared: Mapping[PolicySide, Comparison],
    names: Sequence[str],
    leader: str,
    of: str,
) -> None:
    """Accuracy with its interval and what it cost, one line per policy; above it who is ahead, and what the accuracies
    are `of`, both plain text."""
    st.subheader("How often is each right, and at what cost?", help=define("Accuracy"))
    if leader:
        st.markdown(f"**{label(leader, 600)}**")
    st.caption(label(of, 900))
    marked = [f"{mark(line, i)}{name}" for i, name in enumerate(names)]
    rows = [
        Standing(name, one.summary.correct, one.summary.n, style.colour, _interval(one))
        for name, style, one in zip(marked, policy_styles(names), found, strict=True)
    ]
    plot(
        standings_figure(rows),
        key="accuracies",
        small=True,
        alt="Accuracy of each policy over its own finished episodes, with its 95 % interval",
    )
    row_table(
        COLUMNS,
        figure_rows(found, compared, marked),
        key="figures",
        at_most=MOST_SIDES + 1,
        alt="What each policy did: accuracy, difference from A, cost, turns, accepts, episodes",
    )
    _cautions(found, compared)


def mark(line: ComparedPolicies, i: int) -> str:
    """What stands before the name of A and of B."""
    return "A · " if i == line.a else "B · " if i == line.b else ""


def figure_rows(
    found: Sequence[Figures], compared: Mapping[PolicySide, Comparison], names: Sequence[str]
) -> Sequence[tuple[str, ...]]:
    """One row per policy, a value for each of `COLUMNS`; the number of its episodes leads to them."""
    rows = []
    for one, name in zip(found, names, strict=True):
        did, against = one.summary, compared.get(one.side)
        low, high = _interval(one)
        rows.append(
            (
                name,
                f"{percent(did.accuracy)} ({100 * low:.0f}–{100 * high:.0f})",
                f"{state.href('episodes', **to_episodes(one.side))}#{did.n:,}",
                _minus(against),
                "–" if against is None or not against.n else p_words(against.p),
                per_solved(did.cost_usd, did.correct),
                f"{did.tokens / did.correct:,.0f}" if did.correct else "–",
                "–" if did.mean_turns is None else f"{did.mean_turns:.2f}",
                # Nothing ends a workflow but its last step.
                percent(
                    did.accepted / did.n if did.n and not one.side.policy.startswith(CONDUCTOR) else None
                ),
                percent(did.false_accepts / did.accepted if did.accepted else None),
                f"{one.tasks:,}",
                f"{one.seeds:,}",
                f"{did.missing:,}",
            )
        )
    return rows


def _interval(one: Figures) -> tuple[float, float]:
    """The 95 % interval of its accuracy, over tasks."""
    _, low, high = accuracy_over_tasks(one.by_task)
    return low, high


def _minus(against: Comparison | None) -> str:
    if against is None:
        return "baseline"
    return f"{100 * against.difference.difference:+.1f}" if against.n else "–"


def _cautions(found: Sequence[Figures], compared: Mapping[PolicySide, Comparison]) -> None:
    sentences = []
    if len({one.tasks for one in found}) > 1:
        sentences.append(
            "They did not play equally many tasks: accuracy is over each one's own tasks, points over A only over "
            "those that both played."
        )
    if words := threshold_words(len(compared)):
        sentences.append(words)
    if sentences:
        st.caption(" ".join(sentences))


def to_episodes(side: PolicySide) -> dict[str, str | None]:
    """The list of a side's episodes, as parameters of its address."""
    forks = "without" if side.run is None else None  # what counts for it
    where = None if side.setting is None else side.setting.expression
    return {"policy": side.policy, "run": side.run, "forks": forks, "status": "finished", "q": where}
