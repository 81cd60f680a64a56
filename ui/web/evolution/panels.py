"""The panels of an evolution: what it learned, progress, choices, one generation's candidates, weights.

All of them mark the chosen generation, `at` its position in the lineage.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import streamlit as st

from core.analysis.head_lens import cosines, head_rows
from core.episode import ROLE_ORDER, Role
from core.evolution.fitness import GenerationStats
from core.heads import Array
from storage.analysis.counterfactual import Rescored
from storage.filters.episode_filter import EpisodeFilter
from storage.rows.summaries import EpisodeSummary
from storage.store import Store
from ui.answers.blocks import Cell, Curve, Estimate, Grid, Point
from ui.presentation.glossary import define
from ui.presentation.theme import ROLE_STYLES, label, one_line, percent
from ui.presentation.words import Generations, decider_words, distinct, role_word
from ui.web.analysis.figures import curve, grid
from ui.web.evolution.course import Lineage, rank_correlation, tasks_each
from ui.web.evolution.figures import (
    PATTERNS,
    candidates_figure,
    manner_figure,
    shares_figure,
)
from ui.web.evolution.head_figures import choices_strip
from ui.web.evolution.learned import (
    MOST_PINS,
    default_pins,
    heads_of,
    offered,
    own_plays,
    rescore,
    show_learned,
)
from ui.web.evolution.progress import axis_choice, chart, progress_panel
from ui.web.kit import state
from ui.web.kit.tables import link, row_table, text
from ui.web.kit.widgets import ink, nothing_here, states_removed
from ui.web.pickers.checkpoints import generation_of

_SHARES = {"pair": "Model and role", "model": "Model", "role": "Role"}


# Choices


def choices_panel(store: Store, lineage: Lineage, at: int, second: Lineage | None) -> None:
    """Selection shares by model and role, and how populations play; a second evolution on the same axes."""
    with st.container(horizontal=True, gap="medium"):
        by = state.address_select("Shares of", _SHARES, name="by", key="shares_by")
        axis = axis_choice(lineage)
    if not any(lineage.plays):
        nothing_here("This run kept no shares: it was recorded by something else than an evolution.")
        return
    shown = [lineage] if second is None else [lineage, second]
    ends = [one.axis(axis) for one in shown]
    span = (min(min(x) for x in ends), max(max(x) for x in ends))
    mark = lineage.axis(axis)[at]
    for column, one in zip(st.columns(len(shown)), shown, strict=True):
        name = "" if second is None else f" · {label(one.name, 30)} ({label(one.learner_words, 20)})"
        chart(
            column,
            f"Who is chosen, in which role?{name}",
            shares_figure(one, by, axis, mark if one is lineage else None, span, ink()),
            key=f"shares_{one.run}",
            help=define("Routing"),
            alt=f"Stacked shares of all turns by {_SHARES[by].lower()}, generation after generation",
            caption=_shares_words(by),
        )
    for column, (title, what, help) in zip(
        st.columns(3),
        (
            ("How mixed are the choices?", "entropy", define("Selection entropy")),
            ("How many turns does an episode take?", "turns", None),
            ("How many episodes end by ACCEPT?", "accepted", None),
        ),
        strict=True,
    ):
        chart(
            column,
            title,
            manner_figure(lineage, second, what, by, axis, at),
            key=f"manner_{what}",
            help=help,
            alt=f"{title} By {lineage.axes[axis]}",
        )


def _shares_words(by: str) -> str:
    if by != "pair":
        return "Shares of all turns of the whole population."
    looks = ", ".join(f"{ROLE_STYLES[role].word} {words}" for role, (_, words) in PATTERNS.items())
    return f"Shares of all turns of the whole population. A colour per model; {looks}. The order is that of the pool."


# What it learned


def learned_panel(store: Store, lineage: Lineage, at: int, second: Lineage | None) -> Sequence[str]:
    """Since when it does what, at recorded turns; and what every generation's head would choose at those of a few
    pinned episodes."""
    heads = heads_of(store, lineage)
    if not heads:
        nothing_here("No checkpoint of this run is kept: its heads cannot be applied.")
        return ()
    if heads[-1].svf_layout:
        st.info(
            "This evolution changed the encoder too (SVF offsets), so what a generation would choose cannot be "
            "found from stored hidden states: each generation would have read the transcript otherwise.",
            icon=":material/info:",
        )
        return ()
    notes = show_learned(store, lineage, at, second)
    counted = offered(store, lineage)
    options = {one.id: one for one in (*counted, *own_plays(store, lineage))}
    if not options:
        nothing_here(
            "No recorded episode has hidden states that these heads can read."
            f"{states_removed(store, EpisodeFilter())} Record some with a checkpoint of this run, then come back:"
        )
        last = lineage.updates[-1].checkpoint_id
        st.code(f"trinity run --policy {last} --tasks pocket/all --n 20", language=None)
        return notes
    pins = _pins(options, default_pins(counted), generation_of(store))
    if not pins:
        nothing_here("Pin at least one episode above.")
        return notes
    found = rescore(store, lineage, pins)
    if not found.lines:
        gone = states_removed(store, [one.id for one in pins])
        nothing_here(f"These episodes kept no hidden states: pin others.{gone}")
        return notes
    generation = lineage.indices[at]
    chart(
        st.container(),
        "Pinned tasks: when did each choice come about?",
        choices_strip(found, generation, ink()),
        key="strip",
        help=define("Pinned task"),
        alt="For every recorded turn and generation, the model and role that its head would choose",
    )
    _choices_table(found, generation)
    how = (
        "Pinned tasks: a row per recorded turn, a column per generation. Colour: the model, stronger the surer the "
        "choice. Letters: role (T, W, V) and slot, where a choice begins to stand. Every generation reads the same "
        "recorded transcript; had it chosen otherwise, the next turns would have been others."
    )
    return [*notes, how, f"{_tolerance_words(found)} {_bound_words(found)}"]


def _pins(options: dict[str, EpisodeSummary], usual: list[str], names: Generations) -> list[EpisodeSummary]:
    """The pinned episodes: those of the address, else the default ones."""
    ids = [one for one in (state.param("ep") or "").split(",") if one]
    known = [one for one in ids if one in options][:MOST_PINS]
    if ids and len(known) < len(ids):
        st.info(
            "Some episodes of this link are gone or cannot be read by these heads; they are left out.",
            icon=":material/info:",
        )
    words = distinct(
        {
            key: f"{one_line(one.family, 12)} · {one_line(one.question, 48)} · {decider_words(one, names)}"
            for key, one in options.items()
        }
    )
    st.session_state["pins"] = known or usual
    st.multiselect(
        "Pinned episodes",
        list(options),
        key="pins",
        max_selections=MOST_PINS,
        format_func=words.__getitem__,
        on_change=lambda: state.set_params(ep=",".join(state.entered("pins", options) or ())),
    )
    return [options[one] for one in st.session_state["pins"]]


def _tolerance_words(found: Rescored) -> str:
    close = int(found.unsure.sum())
    return (
        "The likeliest choice is shown; the recorded one may have been drawn. No model is asked: stored hidden states "
        f"go through stored heads. Choices too close to call are grey and marked '?' ({close:,} of "
        f"{found.unsure.size:,})."
    )


def _bound_words(found: Rescored) -> str:
    sentence = (
        f"States are kept in half precision, which can move a logit here by up to ±{found.tolerance:.3f}."
    )
    if found.deviation is not None:
        sentence += f" Against logits recorded by a generation itself, the largest difference is {found.deviation:.4f}."
    return sentence


def _choices_table(found: Rescored, generation: int) -> None:
    column = min(range(len(found.generations)), key=lambda c: abs(found.generations[c] - generation))
    st.markdown(f"**What would generation {found.generations[column]} choose, and what was recorded?**")
    row_table(
        {
            "task": text("Recorded turn", width=130),
            "now": text("It would choose", width=170),
            "same": text("", width=60),
            "then": text("Recorded", width=170),
            "p": st.column_config.ProgressColumn("Probability", min_value=0, max_value=100, format="%.1f %%"),
            "lead": text("Lead, logits", width=90),
            "replay": link("Replay", "Open", width=70),
        },
        [_choice_row(found, row, column) for row in range(len(found.lines))],
        key=f"choices_{generation}",
        at_most=11,
        height=388,
        alt="What the chosen generation would choose at every pinned turn, and what was recorded",
    )


def _choice_row(found: Rescored, row: int, column: int) -> tuple[Any, ...]:
    """What a generation would choose at a recorded turn, and what was."""
    line, unsure, lead = found.lines[row], found.unsure[row, column], found.leads[row, column]
    now = _choice(found.models[found.slots[row, column]], ROLE_ORDER[found.roles[row, column]])
    then = _choice(line.model, line.role)
    return (
        f"{one_line(line.episode.family, 14)}, turn {line.index + 1}",
        "too close to tell" if unsure else now,
        "–" if unsure else "same" if now == then else "other",
        then,
        100 * float(found.chances[row, column]),
        "–" if math.isinf(lead) else f"{lead:.2f}",
        state.href("replay", ep=line.episode.id, t=line.index + 1),
    )


def _choice(model: str, role: Role) -> str:
    return f"{ROLE_STYLES[role].word} on {one_line(model, 24)}"


# Population


def population_panel(store: Store, lineage: Lineage, at: int, second: Lineage | None) -> None:
    """One generation's candidates: fitness against distance from the mean, with the error of its tasks."""
    one, index = lineage.stats[at], lineage.indices[at]
    if index == 0:
        nothing_here("Generation 0 has no candidates: choose a later one.")
        return
    candidates = store.learning.candidates(lineage.run, index)
    if len(candidates) < 2:
        words = (
            "REINFORCE plays one policy" if lineage.learner == "reinforce" else "This run kept no candidates"
        )
        nothing_here(f"{words}: there is no population to show.")
        return
    known = [candidate for candidate in candidates if candidate.fitness is not None]
    distances = distances_of(one, len(candidates))
    chart(
        st.container(),
        f"Which candidates of generation {index} did well, and how far out were they?",
        candidates_figure(candidates, distances, one.mean),
        key="candidates",
        help=define("Candidate"),
        alt="Fitness of each candidate with one standard error",
        caption=_population_words(one, len(candidates), len(known), tasks_each(lineage, at)),
    )
    if distances is None:
        st.caption("This run did not keep the candidates' distances: they are sorted by fitness instead.")
        return
    found = rank_correlation(
        [distances[candidate.index] for candidate in known],
        [candidate.fitness or 0.0 for candidate in known],
    )
    if found is not None:
        st.caption(f"Rank correlation of distance and fitness: {found:+.2f} over {len(known):,} candidates.")


def distances_of(stats: GenerationStats, n: int) -> tuple[float, ...] | None:
    """Every candidate's distance from the mean; None where they were not kept."""
    return stats.distances if len(stats.distances) == n else None


def _population_words(one: GenerationStats, n: int, known: int, tasks: int | None) -> str:
    lost = f" {n - known} have no fitness: all of their episodes are missing." if known < n else ""
    each = f" over its {tasks} tasks" if tasks else ""
    return (
        f"{n:,} candidates, best {percent(one.best)}, mean {percent(one.mean)}. Bars: one binomial standard error of a "
        f"candidate's fitness{each}.{lost}"
    )


# Weights


def weights_panel(store: Store, lineage: Lineage, at: int, second: Lineage | None) -> None:
    """The length of each logit's row by generation, and which rows of the chosen head point the same way."""
    heads = heads_of(store, lineage)
    if not heads:
        nothing_here("No checkpoint of this run is kept: there are no weights to show.")
        return
    found = [head_rows(head) for head in heads]
    if found[-1] is None:
        nothing_here(
            f"A {heads[-1].head_kind} head bends what it reads before it scores it: its logits have no rows "
            "in the state that could be compared."
        )
        return
    rows = [one for one in found if one is not None]
    generations = [head.generation or 0 for head in heads]
    here = min(range(len(heads)), key=lambda place: abs(generations[place] - lineage.indices[at]))
    norms = np.array([np.linalg.norm(one, axis=1) for one in rows])
    names = [*heads[-1].models, *(role_word(role) for role in ROLE_ORDER)]
    lines = {
        name: [
            Point(float(at), Estimate(norm, None))
            for at, norm in zip(generations, norms[:, row], strict=True)
        ]
        for row, name in enumerate(names)
    }
    left, right = st.columns(2)
    chart(
        left,
        "How strongly does each logit read the state?",
        curve(Curve(lines, ("generation", "length of the row"), places=2)),
        key="norms",
        help=define("Head"),
        alt="Norm of each logit's row by generation",
        caption="The length of each logit's row of weights. A longer row makes a logit vary more with the transcript.",
    )
    zero = " Rows of zeros have no direction." if not norms[here].all() else ""
    chart(
        right,
        f"Which logits of generation {generations[here]} ask for the same?",
        grid(_cosines(rows[here], names), ink()),
        key="cosines",
        help=define("Cosine"),
        alt="Cosine of every pair of rows of the chosen head",
        caption=f"Cosine between rows: 1 is the same direction, −1 the opposite.{zero}"
        f"{_kind_words(heads[-1].head_kind)}",
    )


def _cosines(rows: Array, names: Sequence[str]) -> Grid:
    """The cosine between every two rows of a head; nothing where a row of zeros has no direction."""
    cells = [
        [
            Cell(value if row != column and math.isfinite(value) else None, f"{value:.2f}")
            for column, value in enumerate(values)
        ]
        for row, values in enumerate(cosines(rows).tolist())
    ]
    return Grid(names, names, ("logit", "with"), cells, signed=True, top=1.0, places=2)


def _kind_words(kind: str) -> str:
    if kind.startswith("block"):
        return " Rows of different blocks read different numbers of the state, so their cosine is 0."
    return {
        "sparse": " Rows are taken after the weights of the numbers that this head reads.",
        "turn-aware": " Rows read the state and the embedding of the turn.",
    }.get(kind, "")


Panel = Callable[[Store, Lineage, int, Lineage | None], Sequence[str] | None]
#: Panel in the address -> its words, and what draws it and gives how it was measured; the first is meant where the
#: address says nothing.
PANELS: dict[str, tuple[str, Panel]] = {
    "progress": ("Progress", progress_panel),
    "pinned": ("What it learned", learned_panel),
    "choices": ("Choices", choices_panel),
    "population": ("Population", population_panel),
    "weights": ("Weights", weights_panel),
}
