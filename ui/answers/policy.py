"""Policy diff: how often checkpoints would choose alike at recorded turns, where they part, and what they pick."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from core.analysis.agreement import (
    NEVER,
    Agreement,
    Divergence,
    FirstDifferences,
    Flags,
    confusion,
    divergence_by_turn,
)
from core.episode import ROLE_ORDER, Role
from storage.analysis.policy_diff import CheckpointLogits, PolicyDiff, Proof, Source, read_diff
from storage.analysis.second_opinions import EpisodeScope, JudgedEpisode, JudgedTurn
from storage.filters.episode_filter import EpisodeFilter
from storage.store import Store
from storage.upkeep.retention import last_removed
from ui.answers.asked import Asked, Side, prefers_nothing
from ui.answers.blocks import (
    Address,
    Answer,
    Bars,
    Block,
    Cell,
    Choice,
    Column,
    Curve,
    Estimate,
    Estimates,
    Grid,
    Line,
    Mark,
    Point,
    Series,
    Table,
)
from ui.answers.pages import Analysis, Part
from ui.presentation.comparison import pair_letter, slot_letter
from ui.presentation.theme import ROLES_LEGEND, one_line, percent
from ui.presentation.words import pair_words, share_words

#: How a choice is taken: value in the address -> its words.
BY = {"argmax": "Likeliest choice", "draw": "With the recorded draw"}
#: Rows of the list of turns; sentences about one checkpoint each.
MOST_ROWS, MOST_SENTENCES = 200, 3
#: Where logits come from, in words, and why a turn is skipped.
LOGITS = {Source.RECORDED: "Recorded", Source.REREAD: "Read again", Source.STATE: "Head on stored state"}
SKIPPED: dict[Source, str] = {
    Source.OTHER_POOL: "recorded with another pool of models",
    Source.OTHER_PROTOCOL: "played by another protocol",
    Source.OTHER_TEXT: "read again, but the text was not the one recorded",
    Source.SVF: "SVF changes the encoder: the transcript has to be read again",
    Source.NO_STATE: "no usable hidden state was kept, as of chance or a single model, or it was removed",
    Source.OTHER_READING: "recorded by another encoder, or read in another way",
}


def asked_of_checkpoints(store: Store, scope: EpisodeScope, names: Mapping[str, str], **more: Any) -> Asked:
    """Two to eight checkpoints, the baseline A first, with their names, at the turns of a scope. `more`: further
    fields."""
    where = scope.where if scope.episode is None else EpisodeFilter(q=f'id == "{scope.episode}"')
    sides = tuple(Side(letter, name, where) for letter, name in zip("ABCDEFGH", names.values(), strict=False))
    address = {"c": ",".join(names), "ep": scope.episode}
    return Asked(store, sides, Side("", "", scope.where), address=address, **more)


def diff_in(store: Store, scope: EpisodeScope, ids: Sequence[str], by_draw: bool) -> PolicyDiff:
    """`read_diff`, to be remembered by what it is asked."""
    return read_diff(store, scope, ids, by_draw=by_draw)


def _ids(asked: Asked) -> tuple[str, ...]:
    return tuple((asked.address["c"] or "").split(","))


def _by(asked: Asked) -> Choice:
    return asked.choice("by", "How a choice is taken", BY)


def diff_of(asked: Asked) -> PolicyDiff:
    """What the checkpoints make of the turns."""
    scope = EpisodeScope(asked.together.where, asked.address["ep"])
    return asked.read(diff_in, scope, _ids(asked), _by(asked).value == "draw")


class _Pair(NamedTuple):
    """The baseline A and one other checkpoint, the `place`-th of the diff."""

    diff: PolicyDiff
    place: int
    side: Side

    @property
    def found(self) -> Agreement:
        return self.diff.agreements[self.place - 1]

    @property
    def parted(self) -> FirstDifferences:
        return self.diff.partings[self.place - 1]

    @property
    def models(self) -> Sequence[str]:
        return self.diff.checkpoints[0].models


class _Listed(NamedTuple):
    """A turn of the diff, by its row."""

    row: int
    turn: JudgedTurn
    episode: JudgedEpisode


def _pairs(asked: Asked) -> list[_Pair]:
    diff = diff_of(asked)
    return [_Pair(diff, place, side) for place, side in enumerate(asked.sides) if place]


def _with(asked: Asked) -> Choice:
    names = {one: side.title for one, side in zip(_ids(asked)[1:], asked.sides[1:], strict=True)}
    return asked.choice("with", "A compared with", names, also={"first": None, "cell": None})


def _chosen(asked: Asked) -> _Pair | None:
    """The pair that is looked at in detail; None where no turn can be judged."""
    pairs = _pairs(asked)
    return pairs[_ids(asked)[1:].index(_with(asked).value)] if pairs[0].diff.turns else None


def pair_name(pair: int, models: Sequence[str]) -> str:
    """A pick in words, plain text: `Worker on atlas`."""
    slot, role = divmod(pair, len(ROLE_ORDER))
    return pair_words(ROLE_ORDER[role], models[slot])


# How often


def agreement(asked: Asked) -> Answer:
    """How often each would choose as the baseline does."""
    pairs, diff = _pairs(asked), diff_of(asked)
    lines = [
        _line(one.side.title, one.found, {"with": key})
        for one, key in zip(pairs, _ids(asked)[1:], strict=True)
        if diff.turns
    ]
    if len(pairs) == 1 and len(families := sorted(set(diff.families()))) > 1:
        at = np.array(diff.families())
        lines += [_line(one, pairs[0].found.where(at == one), {"family": one}) for one in families]
    lines = [one for one in lines if one.estimate.value is not None]
    return Answer(
        "agreement",
        "How often would they choose alike?",
        _agreement_words(pairs),
        [Estimates(lines, "share of turns with the same choice")] if lines else [],
        [
            "Teacher-forced: every checkpoint is shown the transcript as it was recorded. After the first disagreement "
            "the other would have seen another transcript. No model is asked. Intervals are over tasks.",
            *_trust(asked, diff),
        ],
        term="Agreement",
        choices=[_by(asked)],
    )


def _line(name: str, found: Agreement, params: Mapping[str, str]) -> Line:
    called, same = int(found.called.sum()), int((found.same & found.called).sum())
    ends = found.interval if called else None
    return Line(name, Estimate(found.rate, ends, same, called), Mark(to=Address("policy", params)))


def _agreement_words(pairs: Sequence[_Pair]) -> str:
    diff = pairs[0].diff
    if not diff.judged.turns:
        return "No recorded turn matches: remove a condition."
    if not diff.turns:
        return "At none of these turns can all of the checkpoints be judged: read the transcripts again."
    called = [one for one in pairs if one.found.rate is not None]
    if not called:
        return "Every turn is too close to call: one of them hardly prefers anything."
    if len(pairs) <= MOST_SENTENCES:
        return "\n".join(
            f"{one.side.name} ({one.side.letter}) would choose as A does at "
            f"{share_words(one.found.rate or 0.0, one.found.interval)} of {int(one.found.called.sum()):,} turns; "
            f"{int(one.found.close.sum()):,} are too close to call."
            for one in called
        )
    ends = [
        f"{one.side.title} {share_words(one.found.rate or 0.0, one.found.interval)}"
        for one in sorted(called, key=lambda one: -(one.found.rate or 0.0))
    ]
    return f"Of {len(diff.turns):,} turns, most often as A would choose {ends[0]}, least often {ends[-1]}."


def _trust(asked: Asked, diff: PolicyDiff) -> list[Block]:
    """What the comparison rests on: turns used and skipped, tolerance, draws, and proofs."""
    notes: list[Block] = [
        f"{side.name} prefers nothing: all parameters of its head are zero, so its choice is too close to call at "
        "every turn."
        for side, one in zip(asked.sides, _ids(asked), strict=True)
        if prefers_nothing(asked.store, one)
    ]
    notes += _used(diff)
    if Source.NO_STATE in diff.skipped():
        episode = asked.address["ep"]
        if day := last_removed(asked.store, "states", [episode] if episode else asked.together.where):
            notes.append(f"Some hidden states were removed, last on {day}.")
    if diff.tolerance:
        notes.append(
            f"States are kept in half precision, which can move a logit here by up to {diff.tolerance:.3f}. A choice "
            "that this could turn is too close to call, neither agreement nor disagreement."
        )
    if diff.by_draw:
        notes.append(_drawn(diff))
    notes.append(_logits(asked, diff))
    for side, one in zip(asked.sides, diff.judgements, strict=True):
        notes += _proof(one.head_proof, f"{side.name}, its head on stored states")
        notes += _proof(
            one.reread_proof, f"{side.name}, the transcript read again on {', '.join(one.devices)}"
        )
    return notes


def _used(diff: PolicyDiff) -> list[Block]:
    """How many turns are used, and why the others are not."""
    used = f"Used: {len(diff.turns):,} of {len(diff.judged.turns):,} turns of {len(diff.judged.episodes):,} episodes."
    if diff.judged.matching > len(diff.judged.episodes):
        used += f" Only the newest of {diff.judged.matching:,} episodes are read."
    reason = Column("reason", "Not used, because", get=lambda one: SKIPPED[one[0]])
    turns = Column("turns", "Turns", "count", lambda one: one[1])
    return [used, Table.of(diff.skipped().items(), reason, turns, key="skipped")]


def _logits(asked: Asked, diff: PolicyDiff) -> Table:
    """Where the logits of each checkpoint come from."""
    again = diff.readable()

    def count(source: Source) -> Callable[[tuple[Side, CheckpointLogits]], int]:
        return lambda one: int((one[1].with_source(source) & diff.used).sum())

    return Table.of(
        zip(asked.sides, diff.judgements, strict=True),
        Column("side", "", get=lambda one: one[0].letter),
        Column("checkpoint", "Checkpoint", get=lambda one: one[1].checkpoint.id),
        *(Column(of.value, words, "count", count(of)) for of, words in LOGITS.items()),
        Column("to_read_again", "To be read again", "count", lambda one: again.get(one[1].checkpoint.id, 0)),
        key="logits",
    )


def _drawn(diff: PolicyDiff) -> str:
    drawn = int(np.isfinite(diff.at.draws[:, 0]).sum())
    sentence = f"The recorded draw is used at {drawn:,} turns; "
    sentence += f"at {len(diff.turns) - drawn:,} the likeliest choice is taken"
    if diff.unrepeated:
        sentence += f", {diff.unrepeated:,} of all turns because the seed does not repeat what was drawn"
    return f"{sentence}."


def _proof(found: Proof, what: str) -> list[str]:
    if not found.n:
        return []
    beyond = f"{found.beyond:,} beyond what rounding explains" if found.beyond else "all within that bound"
    return [
        f"{what}, beside the logits it recorded itself at {found.n:,} turns: at most {found.largest:.2g} apart, "
        f"{beyond}; the same likeliest choice at {found.same:,}."
    ]


# Where and how far


def parting(asked: Asked) -> Answer | None:
    """At which turn A and another first part."""
    one = _chosen(asked)
    if one is None:
        return None
    parted = one.parted
    places = [*range(max(parted.turns.tolist(), default=-1) + 1), NEVER]
    names = [*(str(place + 1) for place in places[:-1]), "never"]
    counts = [
        [int(((parted.turns == place) & (parted.sure == sure)).sum()) for place in places]
        for sure in (True, False)
    ]
    never, n = int(((parted.turns == NEVER) & parted.sure).sum()), len(parted.turns)
    most = max(range(len(places) - 1), key=lambda at: counts[0][at] + counts[1][at], default=None)
    said = f"A and {one.side.letter} surely never part in {never:,} of {n:,} episodes"
    if most is not None:
        said += f"; they part most often at turn {most + 1}, in {counts[0][most] + counts[1][most]:,}"
    return Answer(
        "parting",
        "At which turn do they first part?",
        f"{said}.",
        [
            Bars(
                names,
                [Series("certain", counts[0]), Series("perhaps earlier", counts[1], "unsure")],
                ("first turn with another choice", "episodes"),
                marks=[Mark(to=Address("policy", {"first": name, "cell": None})) for name in names],
            )
        ],
        ["Hatched: a turn before it was too close to call or could not be judged. A click lists the turns."],
        term="First disagreement",
        choices=[_with(asked)],
    )


def divergence(asked: Asked) -> Answer | None:
    """How far each lies from the baseline, turn by turn."""
    pairs = _pairs(asked)
    if not pairs[0].diff.turns:
        return None
    found = [(one.side, divergence_by_turn(one.found)) for one in pairs]
    rows = [(side, turn) for side, turns in found for turn in turns]
    never = sum(turn.infinite for _, turn in rows)
    furthest: tuple[Side, Divergence] | None = max(rows, key=lambda one: one[1].mean, default=None)
    said = "No turn can be called."
    if furthest is not None:
        side, turn = furthest
        said = (
            f"Furthest from A on average is {side.letter} at turn {turn.index + 1}, by {turn.mean:.2f} nats (the "
            f"middle half of its {turn.n:,} turns: {turn.low:.2f} to {turn.high:.2f}); 0 means the same decision."
        )
    table = Table.of(
        rows,
        Column("side", "", get=lambda one: one[0].letter),
        Column("turn", "Turn", "count", lambda one: one[1].index + 1),
        Column("n", "Turns", "count", lambda one: one[1].n),
        Column("mean", "Mean, nats", "number", lambda one: one[1].mean, places=3),
        Column("low", "Lower quartile", "number", lambda one: one[1].low, places=3),
        Column("high", "Upper quartile", "number", lambda one: one[1].high, places=3),
        Column("infinite", "Infinite", "count", lambda one: one[1].infinite),
        key="kl_by_turn",
    )
    lines = {
        side.title: [Point(turn.index + 1, Estimate(turn.mean, None, n=turn.n)) for turn in turns]
        for side, turns in found
    }
    left_out = f" {never:,} are infinite, where one never chooses what A may, and left out." if never else ""
    return Answer(
        "divergence",
        "How much do the decisions differ, turn by turn?",
        said,
        [Curve(lines, ("turn", "mean KL, nats"), places=2)],
        [table, f"KL divergence of A's decision at a turn from the other's, D_KL(A ‖ other).{left_out}"],
        term="KL divergence",
    )


# What they pick


def picks(asked: Asked) -> Answer | None:
    """Whom another would call where A would call somebody else."""
    one = _chosen(asked)
    if one is None:
        return None
    counts, models = confusion(one.diff.picks[0], one.diff.picks[one.place], one.found.called), one.models
    order = np.argsort(-(counts.sum(axis=0) + counts.sum(axis=1)), kind="stable").tolist()
    down = [pair for pair in order if counts[pair].any()]
    across = [pair for pair in order if counts[:, pair].any()]

    def cell(a: int, b: int) -> Cell:
        n = int(counts[a, b])
        detail = f"{n:,} turns, A {pair_name(a, models)}, {one.side.letter} {pair_name(b, models)}"
        if not n:
            return Cell(None, detail)
        mark = Mark(to=Address("policy", {"first": None, "cell": f"{a}-{b}"}))
        return Cell(round(n / int(counts[a].sum()), 4), detail, " =" * (a == b), mark)

    other = [(int(counts[a, b]), a, b) for a in down for b in across if a != b and counts[a, b]]
    said = f"Wherever it can be called, {one.side.letter} would call whom A calls."
    if other:
        n, a, b = max(other)
        said = (
            f"Most often apart: {one.side.letter} would call {pair_name(b, models)} where A calls "
            f"{pair_name(a, models)}, at {n:,} of {int(counts.sum()):,} turns ({percent(n / int(counts.sum()))})."
        )
    table = Table.of(
        zip(*(part.tolist() for part in counts.nonzero()), strict=True),
        Column("a", "A", get=lambda at: pair_name(at[0], models)),
        Column("b", one.side.letter, get=lambda at: pair_name(at[1], models)),
        Column("turns", "Turns", "count", lambda at: int(counts[at])),
        key="pairs",
    )
    slots = ", ".join(f"{slot_letter(slot)} {one_line(model, 24)}" for slot, model in enumerate(models))
    rows = [pair_name(pair, models) for pair in down]
    cells = [[cell(a, b) for b in across] for a in down]
    grid = Grid(rows, [pair_letter(pair) for pair in across], ("A", one.side.letter), cells, top=1.0)
    return Answer(
        "picks",
        "Whom would one call where A would call another?",
        said if counts.any() else "Every turn is too close to call.",
        [grid] if counts.any() else [],
        [
            f"Percent of the turns at which A calls the row; = marks agreement. {ROLES_LEGEND}; {slots}. A click lists "
            "a cell's turns.",
            table,
        ],
        term="Routing",
    )


def turns(asked: Asked) -> Answer | None:
    """The turns at which A and another differ, or those of a bar or cell."""
    one = _chosen(asked)
    if one is None:
        return None
    first, cell = _first(asked, one), _cell(asked, one)
    rows, words = _narrowed(one, first.value, cell.value)
    order = np.flatnonzero(rows)
    order = order[np.argsort(-one.found.divergence[order], kind="stable")]
    more = f", of which the {MOST_ROWS} furthest apart are listed" if len(order) > MOST_ROWS else ""
    return Answer(
        "turns",
        "At which turns do they differ most?",
        f"{len(order):,} turns {words}{more}." if len(order) else f"No turn is one {words}.",
        [_turns_table(one, order[:MOST_ROWS].tolist())],
        choices=[first, cell],
    )


def _first(asked: Asked, one: _Pair) -> Choice:
    places = sorted(set(one.parted.turns.tolist()) - {NEVER})
    names = {"": "any turn", **{str(place + 1): f"turn {place + 1}" for place in places}, "never": "never"}
    return asked.choice("first", "They first part at", names, look="list", also={"cell": None})


def _cell(asked: Asked, one: _Pair) -> Choice:
    counts = confusion(one.diff.picks[0], one.diff.picks[one.place], one.found.called)
    names = {
        f"{a}-{b}": f"{pair_letter(a)} → {pair_letter(b)}"
        for a, b in zip(*(part.tolist() for part in counts.nonzero()), strict=True)
    }
    words, options = f"A calls → {one.side.letter} calls", {"": "anything", **names}
    return asked.choice("cell", words, options, look="list", also={"first": None})


def _narrowed(one: _Pair, first: str, cell: str) -> tuple[Flags, str]:
    """The turns to be listed, and which they are, in words."""
    at, found = one.found.at, one.found
    if first:
        turn = NEVER if first == "never" else int(first) - 1
        rows = np.isin(at.episodes, one.parted.episodes[one.parted.turns == turn])
        if turn == NEVER:
            return rows, "of episodes in which they never part"
        return rows & (at.indices == turn) & found.differs, f"at which they first part, turn {turn + 1}"
    if cell:
        a, b = (int(pair) for pair in cell.split("-"))
        rows = (one.diff.picks[0].pairs == a) & (one.diff.picks[one.place].pairs == b) & found.called
        picked = pair_name(a, one.models), pair_name(b, one.models)
        return rows, f"at which A picks {picked[0]} and {one.side.letter} {picked[1]}"
    return found.differs, "at which they surely choose otherwise"


def _turns_table(pair: _Pair, rows: Sequence[int]) -> Table:
    diff, second = pair.diff, pair.diff.checkpoints[pair.place].id
    episodes = diff.judged.episodes

    def choice(place: int) -> Callable[[_Listed], str]:
        made = diff.picks[place]
        return lambda one: (
            f"{pair_name(int(made.pairs[one.row]), pair.models)}, {percent(float(made.chances[one.row]))}"
        )

    def replay(one: _Listed) -> Address:
        at = {"ep": one.turn.episode_id, "t": str(one.turn.idx + 1)}
        return Address("replay", {**at, "panel": "other", "other": second})

    return Table.of(
        [_Listed(row, turn := diff.turns[row], episodes[turn.episode_id]) for row in rows],
        Column("replay", "Replay", "link", replay, link="Open"),
        Column("episode", "Episode", "id", lambda one: one.episode.id),
        Column("turn", "Turn", "count", lambda one: one.turn.idx + 1),
        Column("kl", "KL", "number", lambda one: _finite(pair.found.divergence[one.row]), "KL divergence", 2),
        Column("a", "A would choose", get=choice(0)),
        Column("b", f"{pair.side.letter} would choose", get=choice(pair.place)),
        Column("recorded", "Recorded", get=lambda one: pair_words(Role(one.turn.role), one.turn.model)),
        Column("family", "Family", get=lambda one: one.episode.family),
        Column("question", "Question", get=lambda one: one.episode.question),
    )


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


ANALYSIS = Analysis((Part("diff", "Policy diff", (agreement, parting, divergence, picks, turns)),))
