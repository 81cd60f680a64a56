"""When an evolution learned what: recorded turns read again by every generation's head, as curves of its habits, and
turn by turn for pinned episodes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from core.analysis.learning import AnswerState, LearningCurve, learning_curve
from core.checkpoint import Checkpoint, reads_alike
from core.episode import ROLE_ORDER, Role
from core.heads import Array
from storage.analysis.counterfactual import RecordedTurn, Rescored, probabilities, score
from storage.analysis.hidden_states import BestModel, TurnStates, best_models, read_turn_states
from storage.filters.episode_filter import EpisodeFilter
from storage.reads.episode_steps import read_decisions
from storage.rows.summaries import CheckpointSummary, EpisodeSummary
from storage.store import Store
from storage.upkeep.retention import last_removed
from ui.answers.asked import Asked
from ui.answers.blocks import (
    Address,
    Answer,
    Block,
    Choice,
    Code,
    Column,
    Estimate,
    Point,
    Strip,
    Table,
    Trace,
)
from ui.answers.learning import lineage_of, trend
from ui.presentation.learning import DEFINITION, HABITS, Habit, learned_words, mean_words
from ui.presentation.theme import ROLE_STYLES, one_line
from ui.presentation.words import decider_words, distinct, generations_of, policy_name

#: Recorded episodes that can be chosen from, and how many are shown at once.
OFFERED, MOST_PINS = 80, 6
#: The episodes that totals count: no fork, no live play, nothing decided by hand.
_COUNTED = EpisodeFilter(status="finished", forks="without")
#: At most so many heads are read, evenly between the first and the last.
MOST_HEADS = 250
_PINNED = "Pinned tasks: when did each choice come about?"
_SVF = (
    "This evolution changed the encoder too (SVF offsets), so what a generation would choose cannot be found from "
    "stored hidden states: each generation would have read the transcript otherwise."
)


def heads_of(store: Store, run: str) -> tuple[Checkpoint, ...]:
    """The checkpoint of every generation that has one, first to last; CheckpointError for a damaged one."""
    return tuple(store.checkpoints.of_run(run))


# What it learned, from all recorded turns that fit


@dataclass(frozen=True, eq=False)
class Learned:
    """What can be told of an evolution: a curve for each habit that some turn can show, from the `turns` it was found
    at, and the families' best models."""

    turns: TurnStates
    own: bool  # the turns are of the evolution's own checkpoints
    best: Mapping[str, BestModel]
    curves: Mapping[Habit, LearningCurve]


def read_learned(store: Store, run: str, at_turns_of: str) -> Learned | None:
    """What a run's heads choose at recorded turns: those of the checkpoints of the run `at_turns_of`, or where these
    have recorded none, of other checkpoints that read transcripts as they do. None where its heads cannot read them."""
    heads, theirs = heads_of(store, run), heads_of(store, at_turns_of)
    if not heads or not theirs or not reads_alike(heads[-1].to_config(), theirs[-1].to_config()):
        return None
    width, models = theirs[-1].encoder.hidden_size, theirs[-1].models
    alike = _reading_alike(store, at_turns_of)
    own, others = (
        tuple(one.id for one in alike if (one.run_id == at_turns_of) is ours) for ours in (True, False)
    )
    turns = read_turn_states(store, own, width)
    mine = len(turns) > 0
    if not mine:
        turns = read_turn_states(store, others, width)
    best = best_models(store, models)
    return Learned(turns, mine, best, _curves(heads, turns, best) if len(turns) else {})


def _curves(
    heads: Sequence[Checkpoint], turns: TurnStates, best: Mapping[str, BestModel]
) -> dict[Habit, LearningCurve]:
    """The curve of every habit that some of the turns can show."""
    if len(heads) > MOST_HEADS:
        heads = [heads[at] for at in np.linspace(0, len(heads) - 1, MOST_HEADS).round().astype(int)]
    found = probabilities(heads, turns.states, turns.turns.tolist())
    state = np.array([answer.value for answer in turns.answers])
    nothing, models = state == AnswerState.NONE.value, heads[-1].models
    slots = np.array([models.index(best[name].model) if name in best else -1 for name in turns.families])

    def role(wanted: Role) -> Array:
        return found.roles[:, :, ROLE_ORDER.index(wanted)]

    shown: dict[Habit, tuple[NDArray[np.bool_], Array]] = {
        Habit.VERIFIES: (state == AnswerState.UNJUDGED.value, role(Role.VERIFIER)),
        Habit.VERIFIES_NOTHING: (nothing, role(Role.VERIFIER)),
        Habit.THINKER_FIRST: (turns.turns == 0, role(Role.THINKER)),
        Habit.BEST_MODEL: (nothing & (slots >= 0), found.models[np.arange(len(turns)), :, slots]),
    }
    generations = [one.generation or 0 for one in heads]
    curves = {
        habit: learning_curve(generations, values[rows], turns.tasks[rows])
        for habit, (rows, values) in shown.items()
    }
    return {habit: curve for habit, curve in curves.items() if curve is not None}


def learned(asked: Asked) -> Answer:
    """Since when it does what, at recorded turns."""
    lineage, at, second = lineage_of(asked)
    question, heads = "What did it learn, and since when?", asked.read(heads_of, lineage.run)
    if not heads:
        none = "No checkpoint of this run is kept: its heads cannot be applied."
        return Answer("learned", question, none, term="Learned from about")
    if heads[-1].svf_layout:
        return Answer("learned", question, _SVF, term="Learned from about")
    found = asked.read(read_learned, lineage.run, lineage.run)
    if found is None or not len(found.turns):
        none = (
            "No recorded episode has hidden states that these heads can read."
            f"{_removed(asked, EpisodeFilter())} Record some with a checkpoint of this run, then come back:"
        )
        last = lineage.updates[-1].checkpoint_id
        code = Code(f"trinity run --policy {last} --tasks pocket/all --n 20")
        return Answer("learned", question, none, [code], term="Learned from about")
    beside = asked.read(read_learned, second.run, lineage.run) if second else None
    said: list[str] = []
    blocks: list[Block] = []
    for habit, words in HABITS.items():
        curve = found.curves.get(habit)
        if curve is None:
            said.append(f"{words.name}: {_why_not(habit)}")
            continue
        said.append(learned_words(habit, curve))
        traces = list(_traces(curve, "probability"))
        if second and beside and habit in beside.curves:
            [theirs, *_] = _traces(beside.curves[habit], second.name)
            traces.append(replace(theirs, tone="second", dash="dash"))
        blocks.append(
            trend(asked, "gen", traces, "probability", small=True, title=words.name, key=habit.value)
        )
    notes: list[Block] = [computed_on(found, asked), DEFINITION.format(FIRST=lineage.indices[0])]
    if found.best:
        notes += [
            "A family's best model is the one whose first answers were right most often, over all recorded episodes of "
            "this pool that totals count. Families in which none was right often enough are left out.",
            _best_table(found),
        ]
    return Answer("learned", question, "\n".join(said), blocks, notes, term="Learned from about")


def _traces(curve: LearningCurve, name: str) -> Iterator[Trace]:
    """A probability by generation with its band; level, where the first generation was."""
    generations, detail = (
        [float(one) for one in curve.generations],
        f"{curve.turns:,} turns of {curve.tasks:,} tasks",
    )
    known = zip(generations, curve.means, strict=True)
    yield Trace(
        name, [Point(x, Estimate.of(mean), detail=f"{mean_words(mean)}, {detail}") for x, mean in known]
    )
    level = Estimate(curve.means[0].mean, None)
    ends = [Point(end, level) for end in (generations[0], generations[-1])]
    yield Trace("the first generation", ends, "neutral", "dot")


def computed_on(found: Learned, asked: Asked) -> str:
    """What the figures are computed on and what they do not show, plain text."""
    turns, ages = found.turns, asked.read(generations_of)
    if found.own:
        born = {one.id: one.generation for one in asked.store.checkpoints.list()}
        played = sorted(age for one in turns.policies if (age := born.get(one)) is not None)
        several = "s" if len(played) > 1 else ""
        whose = f"its own generation{several} {', '.join(map(str, played))}"
    else:
        names = [policy_name(one, ages.get(one)) for one in turns.policies]
        more = f" and {len(names) - 6} more" if len(names) > 6 else ""
        whose = f"other checkpoints that read alike, {', '.join(names[:6])}{more}"
    drawn = f" (of {turns.of:,}, drawn by a fixed seed)" if turns.of > len(turns) else ""
    return (
        f"Computed on {len(turns):,} recorded turns{drawn} of {len(np.unique(turns.tasks)):,} tasks, played by {whose}"
        ": every generation's head reads the same stored states, and no episode is played. This shows what each would "
        "choose there, not whether that would be right, nor the turns that its own choices would lead to."
    )


def _why_not(habit: Habit) -> str:
    if habit is Habit.BEST_MODEL:
        return (
            "no best model is known: in no family have two models given enough first answers. Record some with "
            "`trinity run --policy 'single:*'`."
        )
    return "no recorded turn is of this kind."


def _best_table(found: Learned) -> Table:
    return Table.of(
        found.best.items(),
        Column("family", "Family", get=lambda one: one_line(one[0], 30)),
        Column("model", "Best model", get=lambda one: one_line(one[1].model, 30)),
        Column("right", "First answers right", "estimate", lambda one: one[1].right),
        Column("n", "First answers", "count", lambda one: one[1].right.n),
        Column("rivals", "Cannot be told from", get=lambda one: one_line(", ".join(one[1].rivals), 60)),
        key="best_models",
    )


# What every generation would choose at the turns of pinned episodes


def offered(store: Store, run: str) -> list[EpisodeSummary]:
    """Finished episodes of checkpoints that read as this run's do: those of its own last generation that played,
    before those of others, a few of every family first. Only such as totals count: what a person plays beside them
    changes nothing here."""
    found: dict[str, EpisodeSummary] = {}
    for one in _reading_alike(store, run):
        families = store.episodes.facets(replace(_COUNTED, policy=one.id)).family
        for family in sorted(families, key=lambda value: value.value):
            where = replace(_COUNTED, policy=one.id, family=family.value)
            for episode in store.episodes.page(where, order="oldest", limit=OFFERED // len(families)).items:
                found.setdefault(episode.id, episode)
        if len(found) >= OFFERED:
            break
    return list(found.values())


def own_plays(store: Store, run: str) -> list[EpisodeSummary]:
    """The newest finished live plays, and plays with decisions by hand, of checkpoints that read as this run's do."""
    fitting = {one.id for one in _reading_alike(store, run)}
    where = EpisodeFilter(status="finished", q="measured == False and evolution == False")
    played = store.episodes.page(where, limit=OFFERED).items
    # The turns of a play that was handed to another policy are not all of one reading.
    return [one for one in played if one.policy in fitting and "swapped" not in one.flags]


def _reading_alike(store: Store, run: str) -> list[CheckpointSummary]:
    """The checkpoints that read as this run's do, its own and the latest generations first."""
    checkpoints = store.checkpoints.list()
    ours = next((one for one in checkpoints if one.run_id == run), None)
    if ours is None:
        return []
    fitting = [one for one in checkpoints if reads_alike(ours.config, one.config)]
    return sorted(fitting, key=lambda one: (one.run_id == run, one.generation or 0), reverse=True)


def rescore(store: Store, run: str, episode_ids: tuple[str, ...]) -> Rescored:
    """Every turn of the episodes through every generation's head, of which there are some."""
    heads = heads_of(store, run)
    width = heads[-1].encoder.hidden_size
    turns = [
        (RecordedTurn(episode, index, decision.model, decision.role), decision)
        for episode in store.episodes.summaries(episode_ids)
        for index, decision in enumerate(read_decisions(store, episode.id))
        if len(decision.hidden_state) == 2 * width
    ]
    return score(heads, [line for line, _ in turns], [decision for _, decision in turns])


def pinned(asked: Asked) -> Answer | None:
    """What every generation's head would choose at the turns of a few pinned episodes; None where `learned` says why
    nothing can be told."""
    lineage, at, _ = lineage_of(asked)
    heads = asked.read(heads_of, lineage.run)
    if not heads or heads[-1].svf_layout:
        return None
    counted, own = asked.read(offered, lineage.run), asked.read(own_plays, lineage.run)
    options = {one.id: one for one in (*counted, *own)}
    if not options:
        return None
    pins, gone = _pins(asked, options, counted)
    ids = tuple(one for one in pins.value.split(",") if one)
    blocks: list[Block] = [
        "Some episodes of this link are gone or cannot be read by these heads; they are left out."
    ]
    blocks *= gone
    if not ids:
        return Answer("pinned", _PINNED, "Pin at least one episode.", blocks, choices=[pins])
    found = asked.read(rescore, lineage.run, ids)
    if not found.lines:
        said = f"These episodes kept no hidden states: pin others.{_removed(asked, ids)}"
        return Answer("pinned", _PINNED, said, blocks, choices=[pins])
    generation = lineage.indices[at]
    column = min(range(len(found.generations)), key=lambda c: abs(found.generations[c] - generation))
    table = _choices_table(found, column)
    agree = [row[2] for row in table.rows]
    sure, close = len(agree) - agree.count(None), agree.count(None)
    unsure = f"; {close:,} more are too close to call" if close else ""
    return Answer(
        "pinned",
        _PINNED,
        f"Generation {found.generations[column]} would choose as recorded at {agree.count('same'):,} of {sure:,} turns"
        f"{unsure}.",
        [Strip(found, generation), table, *blocks],
        [
            "A row per recorded turn, a column per generation. Colour: the model, stronger the surer the choice. "
            "Letters: role (T, W, V) and slot, where a choice begins to stand. Every generation reads the same "
            "recorded transcript; had it chosen otherwise, the next turns would have been others.",
            _rounding_words(found),
        ],
        term="Pinned task",
        choices=[pins],
    )


def _pins(
    asked: Asked, options: Mapping[str, EpisodeSummary], counted: Sequence[EpisodeSummary]
) -> tuple[Choice, bool]:
    """The choice of pinned episodes: those of the address, else one per family; and whether some of the address are
    not there."""
    ages, first = asked.read(generations_of), {one.family: one.id for one in reversed(counted)}
    words = {
        key: f"{one_line(one.family, 12)} · {one_line(one.question, 48)} · {decider_words(one, ages)}"
        for key, one in options.items()
    }
    named = [one for one in asked.choices.get("ep", "").split(",") if one]
    known = [one for one in named if one in options][:MOST_PINS]
    usual = [one.id for one in counted if first[one.family] == one.id][:MOST_PINS]
    chosen = Choice(
        "ep", "Pinned episodes", distinct(words), ",".join(known or usual), "several", most=MOST_PINS
    )
    return chosen, len(known) < len(named)


def _removed(asked: Asked, where: EpisodeFilter | Sequence[str]) -> str:
    """When hidden states of these episodes were removed, a sentence after a space; empty: never."""
    day = last_removed(asked.store, "states", where)
    return f" Some hidden states were removed, last on {day}." if day else ""


def _rounding_words(found: Rescored) -> str:
    sentence = (
        "The likeliest choice is shown; the recorded one may have been drawn. No model is asked: stored hidden states "
        f"go through stored heads. Choices too close to call are grey and marked '?' ({int(found.unsure.sum()):,} of "
        f"{found.unsure.size:,}). States are kept in half precision, which can move a logit here by up to "
        f"±{found.tolerance:.3f}."
    )
    if found.deviation is not None:
        sentence += f" Against logits recorded by a generation itself, the largest difference is {found.deviation:.4f}."
    return sentence


def _choices_table(found: Rescored, column: int) -> Table:
    """What a generation would choose at every recorded turn, and what was recorded."""
    rows = []
    for row, line in enumerate(found.lines):
        unsure, lead = bool(found.unsure[row, column]), float(found.leads[row, column])
        now, then = _now(found, row, column), _choice(line.model, line.role)
        rows.append(
            (
                f"{one_line(line.episode.family, 14)}, turn {line.index + 1}",
                "too close to tell" if unsure else now,
                None if unsure else "same" if now == then else "other",
                then,
                float(found.chances[row, column]),
                None if math.isinf(lead) else lead,
                Address("replay", {"ep": line.episode.id, "t": str(line.index + 1)}),
            )
        )
    columns = (
        Column("task", "Recorded turn"),
        Column("now", "It would choose"),
        Column("same", "Agrees"),
        Column("then", "Recorded"),
        Column("p", "Probability", "part"),
        Column("lead", "Lead, logits", "number", places=2),
        Column("replay", "Replay", "link", link="Open"),
    )
    title = f"What would generation {found.generations[column]} choose, and what was recorded?"
    return Table(columns, rows, title, "choices")


def _now(found: Rescored, row: int, column: int) -> str:
    return _choice(found.models[found.slots[row, column]], ROLE_ORDER[found.roles[row, column]])


def _choice(model: str, role: Role) -> str:
    return f"{ROLE_STYLES[role].word} on {one_line(model, 24)}"
