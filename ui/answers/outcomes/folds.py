"""What policies came to on recorded models over all folds, as it was measured elsewhere and came with the program."""

from __future__ import annotations

from functools import partial

from core.analysis.metrics import Mean, p_over_tasks
from ui.answers.blocks import Answer, Block, Code, Column, Estimate, Estimates, Line, Mark, Table
from ui.presentation.comparison import difference_words
from ui.presentation.words import share_words
from ui.runs.paper.folds import FoldsRow, FoldsTable, shipped_folds
from ui.runs.paper.results import Differences
from ui.runs.policy_kinds import POLICIES

#: What is so far below the best is not drawn: differences of a point would be lost.
FAR = 0.05
#: The simplest rule: the model that is best on evolve and validation questions, asked alone.
ALONE = "vote:1"
#: What stands for the number of a fold in the name of an evolution.
FOLD = "{fold}"
#: What such a policy does.
EVOLVED = "a coordinator that was evolved in each fold, by its best checkpoint on validation questions"


def came_with_the_program() -> list[Answer]:
    """A table each. ConfigError for a damaged file."""
    tables = shipped_folds()
    ps = {
        _pair(one, row.policy, other): p_over_tasks(less, row.tasks)
        for one in tables
        for row in one.rows
        for other, less in row.less.items()
    }
    differences = Differences.allowing(ps)
    return [_answer(one, differences) for one in tables]


def _pair(one: FoldsTable, policy: str, other: str) -> tuple[str, str, str]:
    """Two policies of a table, whichever is put against the other: their difference is one."""
    first, second = sorted((policy, other))
    return first, second, one.name


def _answer(one: FoldsTable, differences: Differences) -> Answer:
    rows = {row.policy: row for row in one.rows}
    best = max((row for row in one.rows if row.policy not in one.against), key=lambda row: row.solved.mean)
    said = [
        f"{_named(other)}: {_solved(rows[other])} with {rows[other].calls:.2f} calls; beside it "
        f"{_name(best.policy)} has {_less(best.less[other])} points on the same questions, which "
        f"{'holds' if differences.says(_pair(one, best.policy, other)) == 'yes' else 'does not hold'}."
        for other in one.against
    ]
    return Answer(
        f"recorded_{one.name}",
        f"Does coordinating pay on {one.models} recorded real models ({one.name})?",
        f"Shipped with the program, measured on {one.measured}, not on this machine. Best of the policies: "
        f"{_name(best.policy)}, {_solved(best)} of {best.tasks:,} test questions with {best.calls:.2f} calls each. "
        f"{' '.join(said)} What holds, holds allowing for all {len(differences.ps)} differences of these tables.",
        [_picture(one), _table(one, differences), _policies(one)],
        _beside(one, differences),
    )


def _name(policy: str) -> str:
    """A policy as it is told: the name of an evolution of each fold without its braces."""
    return policy.replace(FOLD, " of each fold")


def _named(policy: str) -> str:
    """The same of one that others are put against."""
    return f"The best model alone ({policy})" if policy == ALONE else policy


def _solved(row: FoldsRow) -> str:
    return share_words(row.solved.mean, (row.solved.low, row.solved.high))


def _less(less: Mean) -> str:
    return difference_words(less.mean, (less.low, less.high))


def _picture(one: FoldsTable) -> Block:
    best = max(row.solved.mean for row in one.rows)
    lines = [
        Line(_name(row.policy), Estimate.of(row.solved), plain=row.policy in one.against, mark=Mark())
        for row in one.rows
        if row.solved.mean > best - FAR
    ]
    return Estimates(lines, "share of test questions solved, over questions", zoomed=True)


def _table(one: FoldsTable, differences: Differences) -> Table:
    def less(row: FoldsRow, other: str) -> Estimate | None:
        return Estimate.of(row.less[other]) if other in row.less else None

    def against(other: str) -> list[Column]:
        return [
            Column(f"less_{other}", f"Less {other}", "difference", partial(less, other=other)),
            Column(
                f"holds_{other}",
                differences.column,
                get=lambda row: differences.says(_pair(one, row.policy, other)) if other in row.less else "",
            ),
        ]

    return Table.of(
        one.rows,
        Column("policy", "Policy", get=lambda row: _name(row.policy)),
        Column("solved", "Solved", "estimate", lambda row: Estimate.of(row.solved)),
        Column("calls", "Calls a question", "number", lambda row: row.calls, places=2),
        Column("tokens", "Tokens a question", "count", lambda row: round(row.tokens) or None),
        *(column for other in one.against for column in against(other)),
        Column("by_fold", "", "data", lambda row: row.by_fold),
        title=f"{one.name}: {len(one.folds)} folds",
    )


def _policies(one: FoldsTable) -> Table:
    """What the policies do, a kind a row."""
    found = {
        (kind.form if kind else _name(row.policy)): kind.words if kind else EVOLVED
        for row in one.rows
        for kind in [POLICIES.get(row.policy.partition(":")[0])]
    }
    columns = [Column("policy", "Policy"), Column("does", "What it does")]
    return Table(columns, [*found.items()], title="What these policies do", key="kinds")


def _beside(one: FoldsTable, differences: Differences) -> list[Block]:
    policies = " ".join(f"--policy {row.policy}" for row in one.rows)
    against = " ".join(f"--against {other}" for other in one.against)
    return [
        f"Table {one.table} ({one.source}, {one.licence}). {one.encoder} read for probes and heads. Each policy is "
        "chosen, or taught, on the evolve and validation questions of a fold and plays its test questions; a question "
        "that stands in two folds counts once. A call is one that has to be paid: a model's second reply to a "
        "question is its first.",
        differences.words("the tables of recorded models"),
        *([one.note] if one.note else []),
        Code(
            f"trinity outcomes play {one.name} {against} --encoder {one.encoder} {policies}",
            "To play it with this table on your machine:",
        ),
    ]
