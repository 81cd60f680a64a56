"""Which of up to eight policies is ahead on the tasks that they share, what each took, what was won and lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from core.analysis.comparison import Comparison, MatchedTasks, accuracy_over_tasks, compare, is_solved
from core.episode import Flag
from core.play.policies import SINGLE
from storage.analysis.routing import count_episodes
from storage.analysis.standings import (
    CELLS,
    Calls,
    Cell,
    Figures,
    PolicySide,
    SharedTask,
    TaskOutcome,
    calls,
    figures,
    matched_tasks,
    policies_with_episodes,
    read_shared_tasks,
    runs_played,
    setting_under,
    sides_of,
    task_sets,
)
from storage.store import Store
from ui.answers.asked import Asked, Side, like_chance, mark_words, prefers_nothing
from ui.answers.blocks import Address, Answer, Block, Column, Estimate, Estimates, Line, Mark, Table, Way
from ui.presentation.comparison import (
    CELL_WORDS,
    accuracy_words,
    basis,
    enumerated,
    leading,
    p_source,
    p_words,
    plays_words,
    points,
    short_names,
    tells_seen,
    threshold_words,
    verdict,
)
from ui.presentation.rules import told_of
from ui.presentation.theme import RIGHT, WRONG, one_line, percent, signed_points
from ui.presentation.words import setting_words

#: Rows on one page of the list of tasks, so many at once are read of all, and families in the figure of families.
PAGE, _READ, MOST_FAMILIES = 25, 500, 16
_EVERY_PAGE = "all"
_OUTCOMES: dict[Cell, str] = {
    "only_b": "Won: only B right",
    "only_a": "Lost: only A right",
    "both_wrong": "Both wrong",
    "both_right": "Both right",
}
_FAMILY = "family"
#: Tasks that two policies share, by family.
Families = Mapping[str, Sequence[MatchedTasks]]


class _Standing(NamedTuple):
    """How a side did and, of all but A, how it compares with A."""

    side: Side
    did: Figures
    over: Comparison | None
    asked: Calls


def played(asked: Asked) -> tuple[PolicySide, ...]:
    """The sides as the store's comparisons read them."""
    return tuple(side.played for side in asked.sides)


def figures_of(asked: Asked) -> list[Figures]:
    """How each side did over all its own finished episodes."""
    return asked.read(figures, played(asked))


def compared(
    store: Store, base: PolicySide, others: Sequence[PolicySide]
) -> list[tuple[Comparison, Families]]:
    """Each of the others against the baseline over the tasks that both finished, and these tasks."""
    return [
        (compare([one for of in found.values() for one in of], key=f"{base.token}/{side.token}"), found)
        for side, found in zip(others, matched_tasks(store, base, others), strict=True)
    ]


def _against(asked: Asked) -> list[Comparison]:
    """All but A, against A."""
    base, *others = played(asked)
    return [found for found, _ in asked.read(compared, base, tuple(others))]


def _shared(asked: Asked) -> Families:
    """The tasks that A and B share."""
    base, *others = played(asked)
    return asked.read(compared, base, tuple(others))[0][1]


def _here(asked: Asked, **params: str | None) -> Address:
    """The page with these sides, and with more parameters."""
    return Address("checkpoints", {**asked.address, **params})


def _short(asked: Asked) -> list[str]:
    return [one_line(name, 60) for name in short_names([side.name for side in asked.sides])]


def ahead(asked: Asked) -> Answer:
    """Who is ahead, and whether B's difference from A is luck."""
    found, against, short = figures_of(asked), _against(asked), _short(asked)
    first = against[0]
    if not first.n:
        said = "A and B have no finished task in common. Choose other policies, or play the same tasks."
    else:
        said = (
            f"{verdict(first, f'{short[0]} (A)', f'{short[1]} (B)', len(against))} The 95 % interval of B minus A is "
            f"{points((first.difference.low, first.difference.high))} points, p {p_words(first.p)} ({p_source(first)})."
        )
    lines = [
        Line(name, _accuracy(one), Mark(to=side.listed(), side=side.letter))
        for side, name, one in zip(asked.sides, short, found, strict=True)
        if one.summary.n
    ]
    lines.sort(key=lambda line: -(line.estimate.value or 0.0))
    picture = Estimates(lines, "answered right, with 95 % interval", key="accuracies")
    return Answer(
        "ahead",
        "Who is ahead, and is it luck?",
        "\n".join(filter(None, [_leading(asked, found, against), said])),
        [picture, _standings(asked, found, against), *_cautions(asked)],
        _measured(asked, found, against),
        term="Paired difference",
        ways=_wider(asked, found)[1],
    )


def _leading(asked: Asked, found: Sequence[Figures], against: Sequence[Comparison]) -> str:
    """The policies from which the most accurate of three or more does not differ surely."""
    if len(asked.sides) < 3:
        return ""
    base, *_ = sides = played(asked)
    best = max(found, key=lambda one: one.summary.accuracy or 0.0).side
    others = tuple(side for side in sides if side != best)
    short = dict(zip(sides, _short(asked), strict=True))
    over_base = dict(zip(sides[1:], against, strict=True))
    rivals = [
        # The baseline's is the page's own p, the other way round.
        (short[side], over_base[best], 1) if side == base else (short[side], one, -1)
        for side, (one, _) in zip(others, asked.read(compared, best, others), strict=True)
    ]
    return leading(short[best], rivals)


def _standings(asked: Asked, found: Sequence[Figures], against: Sequence[Comparison]) -> Table:
    """A row per side: how it did, and the others against A on the tasks that both finished."""
    here = asked.read(policies_with_episodes)
    luck = "How likely a difference from A this large would be by luck alone, were both equally good"
    seeds = "With how many different seeds it played; another seed draws other choices"
    called = "Calls of models per question; a reply that is used again is none"

    def over(get: Callable[[Comparison], object]) -> Callable[[_Standing], object]:
        return lambda one: get(one.over) if one.over and one.over.n else None

    return Table.of(
        map(_Standing, asked.sides, found, (None, *against), asked.read(calls, played(asked))),
        Column("name", "Policy", get=lambda one: one.side.title, help="Policy"),
        Column("policy", "Id", "id", lambda one: one.side.played.policy),
        Column("run", "Run", "id", lambda one: one.side.played.run),
        Column("setting", "Setting", "data", lambda one: setting_under(here, one.side.played)),
        Column("accuracy", "Accuracy", "estimate", lambda one: _accuracy(one.did), "Accuracy"),
        Column("difference", "Points over A", "difference", over(_difference), "Paired difference"),
        Column("p", "p", "p", over(lambda one: one.p), luck),
        Column("n", "Shared tasks", "count", over(lambda one: one.n), "Tasks that it and A both finished"),
        Column("only_b", "Won", "count", over(lambda one: one.b_only), "Flip"),
        Column("only_a", "Lost", "count", over(lambda one: one.a_only), "Flip"),
        Column("both_right", "Both right", "count", over(lambda one: one.both)),
        Column("both_wrong", "Both wrong", "count", over(lambda one: one.neither)),
        Column("shared", "On these", "estimate", over(lambda one: Estimate(one.accuracy_b, one.ci95_b))),
        Column("shared_a", "A on these", "estimate", over(lambda one: Estimate(one.accuracy_a, one.ci95_a))),
        Column("test", "Test", "data", over(p_source)),
        Column("episodes", "Episodes", "count", lambda one: one.did.summary.n),
        Column("tasks", "Tasks", "count", lambda one: one.did.tasks, "Different tasks that it has finished"),
        Column("seeds", "Seeds", "count", lambda one: one.did.seeds, seeds),
        Column("missing", "Missing", "count", lambda one: one.did.summary.missing, "Missing"),
        Column("calls", "Calls each", "number", lambda one: one.asked.calls_each, called, 2),
        Column("tokens", "Tokens each", "number", lambda one: one.asked.tokens_each, "Sent and written"),
        Column("cost", "Cost each", "usd", _cost_each, "What its replies cost, per question"),
        Column("open", "List", "link", lambda one: one.side.listed()),
        key="policies",
    )


def _cost_each(one: _Standing) -> float | None:
    did = one.did.summary
    return None if did.cost_usd is None or not did.n else did.cost_usd / did.n


def _accuracy(one: Figures) -> Estimate:
    """Its accuracy with the 95 % interval over tasks."""
    _, low, high = accuracy_over_tasks(one.by_task)
    return Estimate(one.summary.accuracy, (low, high), one.summary.correct, one.summary.n)


def _difference(one: Comparison) -> Estimate:
    found = one.difference
    return Estimate(found.difference, (found.low, found.high))


def _cautions(asked: Asked) -> list[Block]:
    flags = [
        {
            flag
            for flag in (Flag.RECORDED, Flag.REUSED)
            if asked.read(count_episodes, replace(side.where, flag=flag))
        }
        for side in asked.sides
    ]
    here = asked.read(policies_with_episodes)
    # A recorded model alone takes one turn whatever its budget: it could only say the same again.
    settings = {
        side.letter: setting_under(here, side.played)
        for side, own in zip(asked.sides, flags, strict=True)
        if not (Flag.RECORDED in own and side.played.policy.startswith(SINGLE))
    }
    cautions: list[Block] = []
    for policy, run in dict.fromkeys((side.policy, side.run) for side in played(asked)):
        cautions += asked.read(_seen, policy, tuple(one.run for one in runs_played(here, policy, run)))
    if len(set(settings.values())) > 1:
        under = "; ".join(
            f"{letter} {setting_words(one, list(settings.values()))}" for letter, one in settings.items()
        )
        cautions.append(
            "These were not played under the same setting: a difference may come from it and not from the policy "
            f"({under})."
        )
    if any(Flag.RECORDED in one for one in flags):
        cautions.append(
            "Replies here are recorded: where policies ask the same model, they get the same. The comparison by task "
            "allows for that; two accuracies side by side are not independent."
        )
    # Whether a reply that another run had got stands in any of their episodes.
    elif any(Flag.REUSED in one for one in flags):
        cautions.append(
            "Replies of earlier runs were reused here: where policies asked the same, they share their luck. The "
            "comparison by task allows for that; two accuracies side by side are not independent."
        )
    return cautions


def _seen(store: Store, policy: str, runs: Sequence[str]) -> list[str]:
    """What these runs note of tasks that the policy had learned from before it played them, each sentence once."""
    notes = (line for run in runs for line in told_of(store.runs.get(run).notes, policy))
    return list(dict.fromkeys(filter(tells_seen, notes)))


def _measured(asked: Asked, found: Sequence[Figures], against: Sequence[Comparison]) -> list[Block]:
    short, first = _short(asked), against[0]
    notes: list[Block] = [f"{accuracy_words(asked.read(task_sets, played(asked)), found, short)}."]
    if len({one.tasks for one in found}) > 1:
        notes.append(
            "They did not play equally many tasks: accuracy is over each one's own tasks, points over A only over "
            "those that both played."
        )
    if first.n:
        notes.append(f"{basis(first)} p: {p_source(first)}.")
    notes += [words for words in (threshold_words(len(against)), _wider(asked, found)[0]) if words]
    if samples := _samples(asked, short):
        notes.append(f"Samples, which came with the program: {samples}.")
    names = dict(zip((side.played.policy for side in asked.sides), short, strict=True))
    if same := like_chance(list(names), names.__getitem__, lambda one: asked.read(prefers_nothing, one)):
        notes.append(same)
    notes.append(
        "Forks and live plays never count: what a person changed or chose there is not the policy's own play."
    )
    return notes


def _samples(asked: Asked, names: Sequence[str]) -> str:
    """Which of the sides are sample runs, by name; empty for none."""
    here = asked.read(policies_with_episodes)
    sides = zip(played(asked), names, strict=True)
    return ", ".join(
        name for side, name in sides if all(one.sample for one in runs_played(here, side.policy, side.run))
    )


def _wider(asked: Asked, found: Sequence[Figures]) -> tuple[str, list[Way]]:
    """What the policies have over all runs where this is one of several, and the way there."""
    here, sides = asked.read(policies_with_episodes), played(asked)
    if any(len(sides_of(here, side.policy)) > 1 for side in sides if side.setting is None):
        return "", []  # played under several settings, which are never averaged
    wide = asked.read(figures, tuple(replace(side, run=None) for side in sides))
    more = [
        f"{name} {percent(whole.summary.accuracy)} (each task {plays_words([whole], [name]).removeprefix('each ')})"
        for name, one, whole in zip(_short(asked), found, wide, strict=True)
        if whole.summary.n > one.summary.n
    ]
    if not more:
        return "", []
    return f"Over every run: {enumerated(more)}.", [Way("Count every run", _here(asked, run="every"))]


def tasks(asked: Asked) -> Answer | None:
    """Which tasks B won and lost, each a way to the episodes of all sides."""
    first = _against(asked)[0]
    if not first.n:
        return None
    shared = _shared(asked)
    also = {**asked.address, "page": None}
    names = {"": "every family", **{name: one_line(name, 40) for name in shared}}
    of_family = asked.choice(_FAMILY, "Family", names, look="list", also=also)
    family = of_family.value or None
    counts: dict[Cell, int] = {one: _count(shared, one, family) for one in CELLS}
    words = {"": "all, flips first"} | {one: f"{counts[one]:,} {CELL_WORDS[one]}" for one in CELLS}
    of_cell = asked.choice("cell", "Tasks", words, also=also)
    cell: Cell | None = next((one for one in CELLS if one == of_cell.value), None)
    n = counts[cell] if cell else sum(counts.values())
    rows: dict[str, str] = {}
    for start in range(0, n, PAGE) if n > PAGE else ():
        rows[f"{1 + start // PAGE}"] = f"{start + 1:,} to {min(n, start + PAGE):,} of {n:,}"
    page = asked.choice("page", "Rows", rows | {_EVERY_PAGE: f"all {n:,}"}, look="list")
    place = (0, n) if page.value == _EVERY_PAGE else (PAGE * (int(page.value) - 1), PAGE)
    found = asked.read(shared_tasks, played(asked), cell, family, *place)
    return Answer(
        "tasks",
        "What did B win and lose?",
        f"Of {first.n:,} shared tasks B won {first.b_only:,}, which only it solved, and lost {first.a_only:,}; "
        f"{first.both:,} both solved, {first.neither:,} neither.",
        [_task_table(asked, found)] if found else ["No task is in this cell."],
        term="Flip",
        choices=[of_cell, of_family, page],
    )


def shared_tasks(
    store: Store, sides: Sequence[PolicySide], cell: Cell | None, family: str | None, offset: int, n: int
) -> list[SharedTask]:
    """`n` of the tasks that A and B, the first two sides, share, flips first."""
    base, chosen, *_ = sides
    found: list[SharedTask] = []
    for start in range(offset, offset + n, _READ):
        limit = min(_READ, offset + n - start)
        found += read_shared_tasks(
            store, base, chosen, sides, cell=cell, family=family, offset=start, limit=limit
        )
    return found


def _count(shared: Families, cell: Cell, family: str | None) -> int:
    return sum(
        one.tasks
        for name, matched in shared.items()
        for one in matched
        if family in (None, name)
        and cell == _cell_of(is_solved(one.right_a, one.n_a), is_solved(one.right_b, one.n_b))
    )


def _cell_of(a: bool, b: bool) -> Cell:
    """The cell of a task by who solved it."""
    return ("both_right" if b else "only_a") if a else "only_b" if b else "both_wrong"


def _task_table(asked: Asked, found: Sequence[SharedTask]) -> Table:
    """Tasks with a link to both episodes side by side, and per policy its outcome as a link to its episode."""
    ends, ids = [], []
    for i, side in enumerate(asked.sides):
        of, name = partial(_of, i), side.letter
        ends.append(Column(name, side.title, "way", of(_end)))
        ids.append(Column(f"episode_{name}", f"Episode of {name}", "id", of(lambda one: one.episode)))
    return Table.of(
        found,
        Column("pair", "Both episodes", "link", _pair, link="Side by side"),
        Column("outcome", "Outcome", get=_outcome),
        Column("question", "Question", get=lambda one: one.question),
        *ends,
        Column(_FAMILY, "Family", get=lambda one: one.family),
        Column("task", "Task", "id", lambda one: one.task_id),
        *ids,
        key="tasks",
    )


def _of(i: int, get: Callable[[TaskOutcome], object]) -> Callable[[SharedTask], object]:
    """What is got of the outcome under a side, None where it did not play the task."""
    return lambda one: get(outcome) if (outcome := one.outcomes[i]) else None


def _pair(one: SharedTask) -> Address | None:
    a, b, *_ = one.outcomes
    return Address("pair", {"a": a.episode, "b": b.episode}) if a and b else None


def _outcome(one: SharedTask) -> str | None:
    a, b, *_ = one.outcomes
    return _OUTCOMES[_cell_of(a.solved, b.solved)] if a and b else None


def _end(outcome: TaskOutcome) -> Way:
    mark = RIGHT if outcome.solved else WRONG
    words = f"{mark.glyph} {outcome.right} of {outcome.n} right" if outcome.n > 1 else mark_words(mark)
    return Way(words, Address("replay", {"ep": outcome.episode}))


def families(asked: Asked) -> Answer | None:
    """In which task families B is better."""
    shared = _shared(asked)
    if len(shared) < 2:
        return None
    largest = sorted(shared, key=lambda family: -sum(one.tasks for one in shared[family]))[:MOST_FAMILIES]
    base, chosen, *_ = played(asked)
    found = {
        family: compare(shared[family], key=f"{base.token}/{chosen.token}/{family}")
        for family in sorted(largest)
    }
    sure = [
        f"{name} ({signed_points(one.difference.difference)} points)"
        for name, one in found.items()
        if one.difference.low > 0 or one.difference.high < 0
    ]
    said = (
        f"Its interval leaves out zero in {enumerated(sure)}."
        if sure
        else "In no family can the difference be told from luck."
    )
    lines = [
        Line(f"{name} ({one.n:,} tasks)", _difference(one), Mark(to=_here(asked, family=name, page=None)))
        for name, one in found.items()
    ]
    further = [f"The {MOST_FAMILIES} largest of {len(shared)} families."] if len(shared) > len(found) else []
    return Answer(
        "families",
        "In which families is B better?",
        said,
        [Estimates(lines, "accuracy of B minus A, in points", signed=True, key="families")],
        [
            *further,
            "Intervals are 95 %, of each family alone. A mark narrows the list of tasks to its family.",
        ],
        term="Paired difference",
    )


QUESTIONS = (ahead, tasks, families)
