"""What policies came to on recorded models over all folds, as it was measured elsewhere and came with the program."""

from __future__ import annotations

from core.analysis.metrics import p_over_tasks
from ui.answers.blocks import Answer, Block, Code, Column, Estimate, Estimates, Line, Mark, Table
from ui.presentation.comparison import difference_words
from ui.presentation.words import share_words
from ui.runs.paper.folds import FoldsRow, FoldsTable, shipped_folds
from ui.runs.paper.results import Differences
from ui.runs.policy_kinds import POLICIES

#: What is so far below the best is not drawn: differences of a point would be lost.
FAR = 0.05


def came_with_the_program() -> list[Answer]:
    """A table each. ConfigError for a damaged file."""
    tables = shipped_folds()
    ps = {
        (row.policy, one.against, one.name): p_over_tasks(row.less, row.tasks)
        for one in tables
        for row in one.rows
        if row.less is not None
    }
    differences = Differences.allowing(ps)
    return [_answer(one, differences) for one in tables]


def _answer(one: FoldsTable, differences: Differences) -> Answer:
    others = [row for row in one.rows if row.less is not None]
    best = max(others, key=lambda row: row.solved.mean)
    reference = next(row for row in one.rows if row.policy == one.against)
    holds = "holds" if differences.says((best.policy, one.against, one.name)) == "yes" else "does not hold"
    return Answer(
        f"recorded_{one.name}",
        f"Does coordinating pay on {one.models} recorded real models ({one.name})?",
        f"Shipped with the program, measured on {one.measured}, not on this machine. {one.against}: "
        f"{_solved(reference)} of {reference.tasks:,} test questions with {reference.calls:.2f} calls each. Best of "
        f"the others: {best.policy}, {_solved(best)} with {best.calls:.2f} calls; {_less(best)} points on the same "
        f"questions, which {holds} when all {len(differences.ps)} differences are allowed for.{_alone(one)}",
        [_picture(one), _table(one, differences), _policies(one)],
        _beside(one, differences),
    )


def _alone(one: FoldsTable) -> str:
    """The simplest rule: the model that is best on evolve and validation questions, asked alone."""
    row = next((row for row in one.rows if row.policy == "vote:1"), None)
    return f" The best model alone (vote:1): {_solved(row)}." if row else ""


def _solved(row: FoldsRow) -> str:
    return share_words(row.solved.mean, (row.solved.low, row.solved.high))


def _less(row: FoldsRow) -> str:
    return "" if row.less is None else difference_words(row.less.mean, (row.less.low, row.less.high))


def _picture(one: FoldsTable) -> Block:
    best = max(row.solved.mean for row in one.rows)
    lines = [
        Line(row.policy, Estimate.of(row.solved), plain=row.less is not None, mark=Mark())
        for row in one.rows
        if row.solved.mean > best - FAR
    ]
    return Estimates(lines, "share of test questions solved, over questions", zoomed=True)


def _table(one: FoldsTable, differences: Differences) -> Table:
    return Table.of(
        one.rows,
        Column("policy", "Policy", get=lambda row: row.policy),
        Column("solved", "Solved", "estimate", lambda row: Estimate.of(row.solved)),
        Column("calls", "Calls a question", "number", lambda row: row.calls, places=2),
        Column("tokens", "Tokens a question", "count", lambda row: round(row.tokens) or None),
        Column(
            "less",
            f"Less {one.against}",
            "difference",
            lambda row: None if row.less is None else Estimate.of(row.less),
        ),
        Column(
            "holds", differences.column, get=lambda row: differences.says((row.policy, one.against, one.name))
        ),
        Column("by_fold", "", "data", lambda row: row.by_fold),
        title=f"{one.name}: {len(one.folds)} folds",
    )


def _policies(one: FoldsTable) -> Table:
    """What the policies do, a kind a row."""
    kinds = dict.fromkeys(row.policy.partition(":")[0] for row in one.rows)
    return Table.of(
        [POLICIES[kind] for kind in kinds if kind in POLICIES],
        Column("policy", "Policy", get=lambda kind: kind.form),
        Column("does", "What it does", get=lambda kind: kind.words),
        title="What these policies do",
    )


def _beside(one: FoldsTable, differences: Differences) -> list[Block]:
    policies = " ".join(f"--policy {row.policy}" for row in one.rows)
    return [
        f"Table {one.table} ({one.source}, {one.licence}). {one.encoder} read for probes and heads. Each policy is "
        "chosen, or taught, on the evolve and validation questions of a fold and plays its test questions; a question "
        "that stands in two folds counts once. A call is one that has to be paid: a model's second reply to a "
        "question is its first.",
        differences.words("the tables of recorded models"),
        *([one.note] if one.note else []),
        Code(
            f"trinity outcomes play {one.name} --against {one.against} --encoder {one.encoder} {policies}",
            "To play it with this table on your machine:",
        ),
    ]
