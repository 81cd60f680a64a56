"""When an evolution learned what: recorded turns read again by every generation's head, as four figures with a
sentence each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
import streamlit as st

from core.analysis.learning import AnswerState, LearningCurve, learning_curve
from core.checkpoint import Checkpoint, reads_alike
from core.episode import ROLE_ORDER, Role
from core.errors import CheckpointError
from core.heads import Array
from storage.analysis.counterfactual import RecordedTurn, Rescored, probabilities, score
from storage.analysis.hidden_states import BestModel, TurnStates, best_models, read_turn_states
from storage.filters.episode_filter import EpisodeFilter
from storage.reads.episode_steps import read_decisions
from storage.rows.summaries import CheckpointSummary, EpisodeSummary
from storage.store import Store
from ui.presentation.glossary import define
from ui.presentation.learning import DEFINITION, HABITS, Habit, learned_words, mean_words
from ui.presentation.theme import label, one_line
from ui.presentation.words import policy_name, share_words
from ui.web.evolution.course import Lineage
from ui.web.evolution.figures import learning_figure
from ui.web.kit.cache import cached
from ui.web.kit.figures import plot
from ui.web.kit.tables import number, row_table, text
from ui.web.kit.widgets import nothing_here
from ui.web.pickers.checkpoints import generation_of

#: Recorded episodes that can be chosen from, and how many are shown at once.
OFFERED, MOST_PINS = 80, 6
#: The episodes that totals count: no fork, no live play, nothing decided by hand.
_COUNTED = EpisodeFilter(status="finished", forks="without")


#: How a cache tells its arguments apart; nothing of a generation or of a finished episode ever changes.
HASHES: dict[str | type[Any], Callable[[Any], Any]] = {
    Store: attrgetter("url"),
    Lineage: attrgetter("run", "indices"),
    EpisodeSummary: attrgetter("id"),
}


@st.cache_resource(max_entries=8, show_spinner=False, hash_funcs=HASHES)
def heads_of(store: Store, lineage: Lineage) -> tuple[Checkpoint, ...]:
    """The checkpoint of every generation that has one, first to last; CheckpointError for a damaged one."""
    return tuple(store.checkpoints.of_run(lineage.run))


# Which recorded episodes fit


def offered(store: Store, lineage: Lineage) -> list[EpisodeSummary]:
    """Finished episodes of checkpoints that read as this run's do: those of its own last generation that played,
    before those of others, a few of every family first. Only such as totals count: what a person plays beside them
    changes nothing here."""
    fitting = _reading_alike(store, lineage)
    found: dict[str, EpisodeSummary] = {}
    for one in fitting:
        families = store.episodes.facets(replace(_COUNTED, policy=one.id)).family
        for family in sorted(families, key=lambda value: value.value):
            where = replace(_COUNTED, policy=one.id, family=family.value)
            for episode in store.episodes.page(where, order="oldest", limit=OFFERED // len(families)).items:
                found.setdefault(episode.id, episode)
        if len(found) >= OFFERED:
            break
    return list(found.values())


def own_plays(store: Store, lineage: Lineage) -> list[EpisodeSummary]:
    """The newest finished live plays, and plays with decisions by hand, of checkpoints that read as this run's do."""
    fitting = {one.id for one in _reading_alike(store, lineage)}
    where = EpisodeFilter(status="finished", q="measured == False and evolution == False")
    played = store.episodes.page(where, limit=OFFERED).items
    # The turns of a play that was handed to another policy are not all of one reading.
    return [one for one in played if one.policy in fitting and "swapped" not in one.flags]


def _reading_alike(store: Store, lineage: Lineage) -> list[CheckpointSummary]:
    """The checkpoints that read as this run's do, its own and the latest generations first."""
    checkpoints = store.checkpoints.list()
    ours = next((one for one in checkpoints if one.run_id == lineage.run), None)
    if ours is None:
        return []
    fitting = [one for one in checkpoints if reads_alike(ours.config, one.config)]
    return sorted(fitting, key=lambda one: (one.run_id == lineage.run, one.generation or 0), reverse=True)


def default_pins(episodes: Sequence[EpisodeSummary]) -> list[str]:
    """One episode per family, in the order offered."""
    first: dict[str, str] = {}
    for one in episodes:
        first.setdefault(one.family, one.id)
    return list(first.values())[:MOST_PINS]


# Scoring


@st.cache_resource(max_entries=32, show_spinner=False, hash_funcs=HASHES)
def rescore(store: Store, lineage: Lineage, episodes: Sequence[EpisodeSummary]) -> Rescored:
    """Every turn of the episodes through every generation's head."""
    heads = heads_of(store, lineage)
    if not heads:
        raise CheckpointError("The store holds no checkpoint of this run: its heads cannot be applied.")
    width = heads[-1].encoder.hidden_size
    turns = [
        (RecordedTurn(episode, index, decision.model, decision.role), decision)
        for episode in episodes
        for index, decision in enumerate(read_decisions(store, episode.id))
        if len(decision.hidden_state) == 2 * width
    ]
    return score(heads, [line for line, _ in turns], [decision for _, decision in turns])


#: At most so many heads are read, evenly between the first and the last.
MOST_HEADS = 250
_best_models = cached(best_models)


@dataclass(frozen=True, eq=False)
class Learned:
    """What can be told of an evolution: a curve for each habit that some turn can show, from the `turns` it was found
    at, and the families' best models."""

    turns: TurnStates
    own: bool  # the turns are of the evolution's own checkpoints
    best: Mapping[str, BestModel]
    curves: Mapping[Habit, LearningCurve]


def learned(store: Store, lineage: Lineage, heads: Sequence[Checkpoint]) -> Learned:
    """What these heads of a run choose at recorded turns: those of its own checkpoints, or where these have recorded
    none, of other checkpoints that read transcripts as they do."""
    width, models = heads[-1].encoder.hidden_size, heads[-1].models
    own, others = _readers(store, lineage)
    turns = _turn_states(store, own, width)
    mine = len(turns) > 0
    if not mine:
        turns = _turn_states(store, others, width)
    best = _best_models(store, models)
    return Learned(turns, mine, best, _curves(store, lineage, turns, best) if len(turns) else {})


def _readers(store: Store, lineage: Lineage) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The checkpoints of the run, and the others that read transcripts alike and choose among the same models."""
    checkpoints = store.checkpoints.list()
    ours = [one for one in checkpoints if one.run_id == lineage.run]

    def fits(one: CheckpointSummary) -> bool:
        return one.run_id != lineage.run and reads_alike(ours[0].config, one.config)

    return tuple(one.id for one in ours), tuple(one.id for one in checkpoints if ours and fits(one))


_turn_states = cached(read_turn_states)
_HASHES = HASHES | {TurnStates: attrgetter("episodes"), BestModel: attrgetter("model")}


@st.cache_resource(max_entries=16, show_spinner=False, hash_funcs=_HASHES)
def _curves(
    store: Store, lineage: Lineage, turns: TurnStates, best: Mapping[str, BestModel]
) -> dict[Habit, LearningCurve]:
    """The curve of every habit that some of the turns can show."""
    heads = heads_of(store, lineage)
    if len(heads) > MOST_HEADS:
        heads = tuple(heads[at] for at in np.linspace(0, len(heads) - 1, MOST_HEADS).round().astype(int))
    found = probabilities(heads, turns.states, turns.turns.tolist())
    state = np.array([answer.value for answer in turns.answers])
    nothing, models = state == AnswerState.NONE.value, heads[-1].models
    slots = np.array([models.index(best[name].model) if name in best else -1 for name in turns.families])

    def role(wanted: Role) -> Array:
        return found.roles[:, :, ROLE_ORDER.index(wanted)]

    shown: dict[Habit, tuple[np.ndarray[tuple[int, ...], np.dtype[np.bool_]], Array]] = {
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


# On the page


def show_learned(store: Store, lineage: Lineage, at: int, second: Lineage | None) -> list[str]:
    """The four figures side by side, each under its question and its sentence; gives what they are computed on. Where
    no recorded turn can be read by these heads, nothing is shown."""
    found = learned(store, lineage, heads_of(store, lineage))
    if not len(found.turns):
        return []
    generation = lineage.indices[at]
    beside = _beside(store, lineage, second, found)
    for column, (habit, words) in zip(st.columns(len(HABITS)), HABITS.items(), strict=True):
        with column, st.container(border=True, height="stretch"):
            st.markdown(f"**{words.name}**", help=define("Learned from about"))
            curve = found.curves.get(habit)
            if curve is None:
                nothing_here(_why_not(habit))
                continue
            sentence = learned_words(habit, curve)
            plot(
                learning_figure(curve, generation, beside.get(habit), second.name if second else ""),
                key=f"learned_{habit}",
                small=True,
                alt=f"{words.name}: probability by generation. {sentence}",
            )
            st.markdown(label(sentence, 500))
            here = min(curve.generations, key=lambda one: abs(one - generation))
            mean = curve.means[curve.generations.index(here)]
            st.caption(
                f"Generation {here}: {mean_words(mean)}, at {curve.turns:,} turns of {curve.tasks:,} tasks"
            )
    _best_table(found)
    return [label(computed_on(found, store, lineage), 900), DEFINITION.format(FIRST=lineage.indices[0])]


def _beside(
    store: Store, lineage: Lineage, second: Lineage | None, found: Learned
) -> Mapping[Habit, LearningCurve]:
    """Another evolution's curves at the same turns; none where its heads cannot read them."""
    if second is None or not (theirs := heads_of(store, second)):
        return {}
    ours = heads_of(store, lineage)[-1]
    if not reads_alike(ours.to_config(), theirs[-1].to_config()):
        return {}
    return _curves(store, second, found.turns, found.best)


def computed_on(found: Learned, store: Store, lineage: Lineage) -> str:
    """What the figures are computed on and what they do not show, plain text."""
    turns = found.turns
    if found.own:
        ages = {one.id: one.generation for one in store.checkpoints.list()}
        played = sorted(age for one in turns.policies if (age := ages.get(one)) is not None)
        several = "s" if len(played) > 1 else ""
        whose = f"its own generation{several} {', '.join(map(str, played))}"
    else:
        names = [policy_name(one, generation_of(store).get(one)) for one in turns.policies]
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
            "No best model is known: in no family have two models given enough first answers. Record some with "
            "`trinity run --policy 'single:*'`."
        )
    return "No recorded turn is of this kind."


def _best_table(found: Learned) -> None:
    if not found.best:
        return
    with st.expander("Which model is a family's best?", icon=":material/military_tech:"):
        st.caption(
            "The model whose first answers were right most often, over all recorded episodes of this pool that totals "
            "count. Families in which none was right often enough are left out of the fourth figure."
        )
        row_table(
            {
                "family": "Family",
                "model": "Best model",
                "right": text("First answers right", help="With 95 % interval"),
                "n": number("First answers", "localized"),
                "rivals": text("Cannot be told from"),
            },
            [
                (
                    one_line(family, 30),
                    one_line(best.model, 30),
                    share_words(best.right.value or 0.0, best.right.ci95),
                    best.right.n,
                    one_line(", ".join(best.rivals), 60),
                )
                for family, best in found.best.items()
            ],
            key="best_models",
            at_most=12,
            alt="The best model of each task family by its first answers",
        )
