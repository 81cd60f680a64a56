"""Routing: which model is called in which role, in which order, what that depends on, and whether it pays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from core.analysis.metrics import wilson_interval
from core.episode import Role
from storage.analysis.routing import ModelInRole, Traffic, pool_order, traffic_of, turns_with_move
from ui.answers import workflows, worth
from ui.answers.asked import SIDE, Asked, Behind, Row, Side
from ui.answers.blocks import (
    Address,
    Answer,
    Arrow,
    Bars,
    Cell,
    Column,
    Flow,
    Grid,
    Mark,
    Node,
    Series,
    Table,
    Way,
)
from ui.answers.pages import Analysis, Part
from ui.answers.pool import ROLES
from ui.presentation.theme import percent, signed_points
from ui.presentation.words import move_key, move_words, parse_move, role_word, share_words

#: Families or policies in one grid; opening moves; steps of a drawing, and of a table.
MOST_GROUPS, MOST_FIRST, MOST_ARROWS, MOST_STEPS = 12, 10, 24, 500


def _traffic(asked: Asked, side: Side) -> Traffic:
    return next(iter(asked.read(traffic_of, side.where).values()), Traffic())


def _models(asked: Asked) -> list[str]:
    """The models of all sides, in head order."""
    return list(dict.fromkeys(model for side in asked.sides for model in asked.read(pool_order, side.where)))


def who(asked: Asked) -> Answer:
    """Who does what: turns by model and role, of one side or B minus A."""
    found, models = [_traffic(asked, side) for side in asked.sides], _models(asked)
    moves = [[ModelInRole(model, role) for model in models] for role in ROLES]
    shown = [move for row in moves for move in row if any(one.turns[move] for one in found)]
    cells = [
        [_change(asked, [one.share(move) for one in found], Mark(move_key(move))) for move in row]
        for row in moves
    ]
    grid = Grid([role_word(role) for role in ROLES], models, ("role", "model"), cells, signed=asked.compared)
    return Answer(
        "who",
        "Who does what?",
        asked.each(lambda side: _who_words(_traffic(asked, side))),
        [grid, _who_table(asked, sorted(shown, key=lambda move: -found[-1].turns[move]))],
        [
            "B minus A, in points of the share of turns."
            if asked.compared
            else "Share of all turns, in percent.",
            "Intervals are of 95 % over episodes (Wilson).",
        ],
        term="Routing",
        ways=_lists(asked),
    )


def _lists(asked: Asked) -> list[Way]:
    return [
        Way(f"List the episodes{f' of {side.letter}' * bool(side.letter)}", side.listed())
        for side in asked.sides
    ]


def _who_words(found: Traffic) -> str:
    if not found.episodes:
        return "No finished episode."
    most = ""
    if found.turns:
        [(move, n)] = found.turns.most_common(1)
        where = f"in {_part(found.seen[move], found.episodes)} of the episodes"
        most = f" Most often {move_words(move)}: {percent(n / found.total)} of the turns, {where}."
    right = _part(found.right, found.episodes)
    return f"{found.episodes:,} finished episodes, {found.total:,} turns, {right} right.{most}"


def _part(k: int, n: int) -> str:
    """`k` of `n` episodes as a share with its interval."""
    return share_words(k / n, wilson_interval(k, n))


def _change(asked: Asked, shares: Sequence[float], mark: Mark) -> Cell:
    """A share, or B's minus A's; empty where there is none."""
    detail = ", ".join(
        f"{side.letter} {percent(share)}".strip() for side, share in zip(asked.sides, shares, strict=True)
    )
    if not any(shares):
        return Cell(None, detail, mark=mark)
    return Cell(shares[-1] - shares[0] if len(shares) > 1 else shares[0], detail, mark=mark)


def _who_table(asked: Asked, moves: Sequence[ModelInRole]) -> Table:
    found = {side: _traffic(asked, side) for side in asked.sides}
    first = {side: one.first() for side, one in found.items()}

    def of(count: Callable[[Traffic, ModelInRole], Any]) -> Callable[[Row[ModelInRole]], Any]:
        return lambda row: count(found[row.side], row.of)

    return Table.of(
        [Row(side, move) for move in moves for side in asked.sides if found[side].turns[move]],
        SIDE,
        Column("model", "Model", get=lambda row: row.of.model),
        Column("role", "Role", "role", lambda row: row.of.role),
        Column("turns", "Turns", "count", of(lambda one, move: one.turns[move])),
        Column("share", "Share of turns", "part", of(lambda one, move: one.share(move))),
        Column("episodes", "Episodes", "id", of(lambda one, move: one.seen[move])),
        Column("solved", "Solved", "id", of(lambda one, move: one.solved[move])),
        Column(
            "right",
            "Right",
            "share",
            of(lambda one, move: one.solved[move] / one.seen[move]),
            "Share of the episodes with such a turn that ended right",
        ),
        Column("opens", "Opens", "count", lambda row: first[row.side][row.of], "Episodes that begin with it"),
        Column("open", "Episodes", "link", lambda row: row.side.listed(model=row.of.model, role=row.of.role)),
        key="moves",
    )


def opens(asked: Asked) -> Answer:
    """Who opens, and how such episodes end."""
    return Answer(
        "first",
        "Who opens?",
        asked.each(lambda side: _opens_words(_traffic(asked, side))),
        [_first(side, _traffic(asked, side)) for side in asked.sides],
        [f"Episodes by their first turn, the {MOST_FIRST} most frequent, and how many of them ended right."],
    )


def _opens_words(found: Traffic) -> str:
    if not (first := found.first().most_common(1)):
        return "No turn was played."
    [(move, n)] = first
    return (
        f"{move_words(move)} opens {_part(n, found.episodes)} of the episodes; "
        f"{_part(found.opened_right[move], n)} of these end right."
    )


def _first(side: Side, found: Traffic) -> Bars:
    first = found.first().most_common(MOST_FIRST)
    right = [found.opened_right[move] for move, _ in first]
    wrong = [n - k for (_, n), k in zip(first, right, strict=True)]
    return Bars(
        [f"{role_word(move.role)} on {move.model}" for move, _ in first],
        [Series("● right", right, "right"), Series("✕ wrong", wrong, "wrong")],
        ("first turn", "episodes"),
        level=True,
        marks=[Mark(f"{move_key(move)}@0", side=side.letter) for move, _ in first],
        title=side.title,
        key=f"bars{side.letter}",
    )


def order(asked: Asked) -> Answer:
    """Who follows whom, all turns together or turn by turn."""
    how = asked.choice("turns", "Turns", {"together": "All turns together", "unrolled": "Turn by turn"})
    draw, models = (_unrolled if how.value == "unrolled" else _together), _models(asked)
    stubs = " Grey arrows from the left: episodes begin there; to the right: they end." * (
        how.value == "together"
    )
    return Answer(
        "order",
        "Who follows whom?",
        asked.each(lambda side: _order_words(_traffic(asked, side))),
        [draw(side, _traffic(asked, side), models) for side in asked.sides],
        [
            "Colour is the model, shape the role (● Thinker, ■ Worker, ▲ Verifier), width how often. Only the most "
            f"frequent steps are drawn; a click on an arrow head or a mark leads to the turns behind it.{stubs}",
            _steps_table(asked),
        ],
        choices=[how],
    )


def _order_words(found: Traffic) -> str:
    steps = found.steps()
    inner = [(step, n) for step, n in steps.most_common() if None not in step][:1]
    if not inner:
        return "No turn followed another."
    [((here, there), n)] = inner
    return (
        f"Most often {move_words(here)} is followed by {move_words(there)}: {percent(n / steps.total())} of all steps, "
        "beginnings and ends among them."
    )


Step = tuple[ModelInRole | None, ModelInRole | None]


def step_key(here: ModelInRole | None, there: ModelInRole | None) -> str:
    """A step as an address names it; None is the beginning, or the end, of an episode."""
    return f"{move_key(here) if here else 'start'}>{move_key(there) if there else 'end'}"


def _step_words(here: ModelInRole | None, there: ModelInRole | None) -> str:
    return f"{move_words(here, 'the beginning')} → {move_words(there)}"


def _together(side: Side, found: Traffic, models: Sequence[str]) -> Flow:
    """Models are columns and roles rows, as in the grid of who does what."""
    at = {
        ModelInRole(model, role): (float(x), float(y))
        for x, model in enumerate(models)
        for y, role in enumerate(ROLES)
    }
    steps = found.steps()
    total = steps.total() or 1
    arrows = [
        Arrow(
            at[here] if here else None,
            at[there] if there else None,
            _step_words(here, there),
            n,
            n / total,
            here.model if here and there else "",
            Mark(step_key(here, there), side=side.letter),
        )
        for (here, there), n in steps.most_common(MOST_ARROWS)
    ]
    nodes = [
        Node(place, move, found.share(move), f"{n:,} turns", Mark(move_key(move), side=side.letter))
        for move, place in at.items()
        if (n := found.turns[move])
    ]
    rows = [role_word(role) for role in ROLES]
    return Flow(nodes, arrows, models, rows, models, title=side.title, key=f"flow{side.letter}")


def _unrolled(side: Side, found: Traffic, models: Sequence[str]) -> Flow:
    """Columns are turns, rows the moves made."""
    links = [one for one in found.links.most_common() if one[0][1] is not None][: 2 * MOST_ARROWS]
    shown = {move for (_, here, there), _ in links for move in (here, there) if move is not None}
    moves = [move for role in ROLES for model in models if (move := ModelInRole(model, role)) in shown]
    row = {move: float(y) for y, move in enumerate(moves)}
    last, episodes = max((at for (at, _, _), _ in links), default=1), max(1, found.episodes)
    arrows = [
        Arrow(
            (at - 1.0, row[here]),
            None if there is None else (float(at), row[there]),
            f"turn {at}: {_step_words(here, there)}",
            n,
            n / episodes,
            here.model,
            Mark(f"{step_key(here, there)}@{at}", side=side.letter),
        )
        for (at, here, there), n in links
        if here is not None and here in row and (there is None or there in row)
    ]
    made: dict[tuple[int, ModelInRole], int] = {}
    for (at, _, there), n in found.links.items():
        if there is not None and there in row and at < last:
            made[at, there] = made.get((at, there), 0) + n
    nodes = [
        Node(
            (float(at), row[move]),
            move,
            n / episodes,
            f"{n:,} episodes",
            Mark(f"{move_key(move)}@{at}", side=side.letter),
        )
        for (at, move), n in made.items()
    ]
    columns = [f"turn {turn}" for turn in range(1, last + 1)]
    rows = [f"{role_word(move.role)} on {move.model}" for move in moves]
    return Flow(nodes, arrows, columns, rows, models, True, side.title, f"flow{side.letter}")


def _steps_table(asked: Asked) -> Table:
    """All steps, with a column of counts and of shares for each side."""
    steps = [_traffic(asked, side).steps() for side in asked.sides]
    totals = [of.total() or 1 for of in steps]
    every = sorted({step for of in steps for step in of}, key=lambda step: -max(of[step] for of in steps))

    def times(i: int) -> Callable[[Step], int]:
        return lambda step: steps[i][step]

    def share(i: int) -> Callable[[Step], float]:
        return lambda step: steps[i][step] / totals[i]

    columns = []
    for i, side in enumerate(asked.sides):
        columns.append(Column(f"n{side.letter}", f"Times {side.letter}", "count", times(i)))
        columns.append(Column(f"share{side.letter}", f"Share {side.letter}", "share", share(i)))
    if asked.compared:
        columns.append(Column("change", "B minus A", "points", lambda step: share(1)(step) - share(0)(step)))
    return Table.of(
        every[:MOST_STEPS],
        Column("from", "From", get=lambda step: move_words(step[0], "(beginning)")),
        Column("to", "To", get=lambda step: move_words(step[1], "(end)")),
        *columns,
        Column(
            "open", "Turns", "link", lambda step: asked.here("routing", into=step_key(*step)), link="Show"
        ),
        title="All steps",
        key="steps",
    )


def depends(asked: Asked) -> Answer:
    """What routing depends on: the models by task family, or by policy."""
    by = asked.choice("by", "By", {"family": "Task family", "policy": "Policy"})
    role = asked.choice("in", "Role", {"all": "All roles", **{role.value: role_word(role) for role in ROLES}})
    only = [Role(role.value)] if role.value != "all" else list(ROLES)
    groups: list[Mapping[str, Traffic]] = [
        asked.read(traffic_of, side.where, by.value) for side in asked.sides
    ]
    names, models = list(dict.fromkeys(name for of in groups for name in of)), _models(asked)
    paired, side = asked.compared and by.value == "family", asked.sides[-1]

    def say(name: str) -> str:
        return asked.say(name) if by.value == "policy" else name

    def cell(name: str, model: str) -> Cell:
        shares = [_model_share(of.get(name), model, only) for of in groups]
        if not paired:
            shares = [next(one for one, of in zip(shares, groups, strict=True) if name in of)]
        found = {"role": role.value} if role.value != "all" else {}
        to = side.listed(**{"model": model, by.value: name, **found})
        share = shares[-1] - shares[0] if paired else shares[0]
        return Cell(share if any(shares) else None, " to ".join(map(percent, shares)), mark=Mark(to=to))

    shown = names[:MOST_GROUPS]
    table = Table.of(
        shown,
        Column("name", by.options[by.value], get=say),
        Column(
            "episodes",
            "Episodes",
            "count",
            lambda name: sum(of[name].episodes for of in groups if name in of),
        ),
        Column("open", "List", "link", lambda name: side.listed(**{by.value: name})),
    )
    cells = [[cell(name, model) for model in models] for name in shown]
    more = f" The {MOST_GROUPS} with most episodes." if len(names) > len(shown) else ""
    what = "B minus A, in points" if paired else "Percent of the row's turns"
    return Answer(
        "depends",
        "What does it depend on?",
        _depends_words(shown, models, cells, say, paired),
        [Grid([say(name) for name in shown], models, (by.value, "model"), cells, signed=paired), table],
        [f"{what}{'' if role.value == 'all' else f' in the role {role_word(only[0])}'}, by model.{more}"],
        choices=[by, role],
    )


def _model_share(found: Traffic | None, model: str, roles: Sequence[Role]) -> float:
    if found is None:
        return 0.0
    total = sum(n for move, n in found.turns.items() if move.role in roles)
    return sum(found.turns[ModelInRole(model, role)] for role in roles) / total if total else 0.0


def _depends_words(
    names: Sequence[str],
    models: Sequence[str],
    cells: Sequence[Sequence[Cell]],
    say: Callable[[str], str],
    paired: bool,
) -> str:
    """The model, or the change, by which the groups differ most."""
    if len(names) < 2:
        return "Only one group played here: choose all families, or all policies, to see a difference."
    spans = [
        (max(column), min(column), i)
        for i in range(len(models))
        if (column := [(of[i].value or 0.0, name) for of, name in zip(cells, names, strict=True)])
    ]
    (high, most), (low, least), i = max(spans, key=lambda span: span[0][0] - span[1][0])

    model = models[i]
    if paired:
        return (
            f"Most of all {model}: from A to B its share of the turns changes by {signed_points(high)} points in "
            f"{say(most)} and by {signed_points(low)} in {say(least)}."
        )
    return f"Most of all {model}: it has {percent(high)} of the turns in {say(most)}, {percent(low)} in {say(least)}."


def into_words(key: str) -> tuple[str, dict[str, Any]] | None:
    """What an address looks into, in words and as arguments of `turns_with_move`; None for a stale one."""
    rest, _, turn = key.partition("@") if "@" in key.rsplit(":", 1)[-1] else (key, "", "")
    at = int(turn) if turn.isdecimal() and len(turn) < 7 else None
    first, arrow, then = rest.partition(">")
    move, follow = parse_move(first), parse_move(then)
    if not arrow:
        where = "" if at is None else f" at turn {at + 1}"
        return (f"{move_words(move)}{where}", {"move": move, "at": at}) if move else None
    if first == "start":
        return (f"{move_words(follow)} at turn 1", {"move": follow, "at": 0}) if follow else None
    if move is None or (follow is None and then != "end"):
        return None
    where = "" if at is None else f", at turn {at}"
    arguments = {"move": move, "then": follow, "ends": then == "end", "at": at}
    return f"{move_words(move)}, then {move_words(follow)}{where}", arguments


def behind(asked: Asked, into: str, second: bool) -> Behind | None:
    """The turns that an address looks into."""
    found = into_words(into)
    if found is None:
        return None
    words, arguments = found
    move, side = arguments["move"], asked.sides[-1 if second else 0]
    to: Address = side.listed(model=move.model, role=move.role.value)
    of = f" · {side.title}" if side.letter else ""
    return Behind(
        f"Turns behind it: {words}{of}",
        Way(f"Episodes with {move_words(move)}", to),
        turns_with_move(asked.store, side.where, **arguments),
    )


ANALYSIS = Analysis(
    (
        Part("who", "Who does what", (who, opens)),
        Part("order", "Who follows whom", (order,)),
        Part("tasks", "What it depends on", (depends,)),
        Part("pays", "Does it pay?", (worth.pays,)),
        Part("luck", "Where luck enters", (worth.luck,)),
        Part("without", "Without a model", (worth.without,)),
        Part("workflows", "Workflows", workflows.QUESTIONS, workflows.there),
    ),
    behind,
    apart=frozenset({"workflows"}),
)
