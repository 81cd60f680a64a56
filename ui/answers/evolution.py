"""Evolution: who is chosen in which role, one generation's candidates, the weights of its heads, whether each
logit can be searched alone; and the parts of the page of an evolution or a training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from core.analysis.curvature import (
    FEWEST_EPISODES,
    BlockSeparability,
    block_separability,
    gain_over_random_search,
)
from core.analysis.head_lens import cosines, head_rows
from core.episode import ROLE_ORDER, Role
from core.evolution.fitness import EpisodeStatistics, GenerationStats
from core.heads import Array
from storage.analysis.hidden_states import read_choices, read_states
from storage.store import Store
from ui.answers import habits, learning, training
from ui.answers.asked import Asked
from ui.answers.blocks import (
    Answer,
    Area,
    Areas,
    Block,
    Cell,
    Choice,
    Column,
    Curve,
    Estimate,
    Grid,
    Point,
    Points,
    Table,
)
from ui.answers.learning import axis_choice, is_evolution, is_training, lineage_of, trace, trend
from ui.answers.pages import Analysis, Part
from ui.presentation.theme import ROLE_COLOURS, ROLE_STYLES, model_colour, one_line, percent
from ui.presentation.words import role_word
from ui.runs.course import (
    Lineage,
    binomial_error,
    grouped,
    most_entropy,
    rank_correlation,
    share_entropy,
    tasks_each,
)

_SHARES = {"pair": "Model and role", "model": "Model", "role": "Role"}
#: Fill of a role's areas: pattern, and its words.
_PATTERNS: dict[Role, tuple[str, str]] = {
    Role.THINKER: ("/", "striped"),
    Role.WORKER: ("", "plain"),
    Role.VERIFIER: (".", "dotted"),
}


# Choices


def _by(asked: Asked) -> Choice:
    return asked.choice("by", "Shares of", _SHARES)


def choices(asked: Asked) -> Answer:
    """Selection shares by model and role, and those of a second evolution on the same axis."""
    lineage, at, second = lineage_of(asked)
    by, along = _by(asked), axis_choice(asked)
    question, played = "Who is chosen, in which role?", lineage.plays[at]
    if not any(lineage.plays):
        said = "This run kept no shares: it was recorded by something else than an evolution."
        return Answer("choices", question, said)
    shown = [lineage] if second is None else [lineage, second]
    ends = [end for one in shown for end in one.axis(along.value)]
    span = min(ends), max(ends)
    said = f"Generation {lineage.indices[at]} kept no shares."
    if played is not None and played.shares:
        most = sorted(grouped(played.shares, by.value).items(), key=lambda one: -one[1])[:3]
        said = f"Generation {lineage.indices[at]}, of all turns: " + ", ".join(
            f"{_choice_words(key)} {percent(share)}" for key, share in most
        )
    looks = ", ".join(f"{ROLE_STYLES[role].word} {words}" for role, (_, words) in _PATTERNS.items())
    return Answer(
        "choices",
        question,
        f"{said.rstrip('.')}.",
        [_areas(one, by.value, along.value, at if one is lineage else None, span) for one in shown],
        [
            f"Shares of all turns of the whole population. A colour per model; {looks}. The order is that of the pool."
        ],
        term="Routing",
        choices=[by, along],
    )


def _choice_words(key: str) -> str:
    """A model, a role or both, as `grouped` names them."""
    model, _, role = key.rpartition(" ")
    if role not in [*Role]:
        return one_line(key, 40)
    return f"{one_line(model, 40)} as {role_word(Role(role))}" if model else role_word(Role(role))


def _areas(lineage: Lineage, by: str, axis: str, at: int | None, span: tuple[float, float]) -> Areas:
    """Every choice, from the bottom of the stack, generation after generation (the paper's figure 6)."""
    x, models = lineage.axis(axis), lineage.models
    known = [(place, one) for place, one in zip(x, lineage.plays, strict=True) if one]
    rows = [grouped(one.shares, by) for _, one in known]

    def area(key: str, name: str, colour: str, pattern: str = "") -> Area:
        return Area(name, [row.get(key, 0.0) for row in rows], colour, pattern)

    if by == "model":
        areas = [area(model, model, model_colour(model, models)) for model in models]
    elif by == "role":
        areas = [
            area(role.value, role_word(role), ROLE_COLOURS[role], pattern)
            for role, (pattern, _) in _PATTERNS.items()
        ]
    else:
        areas = [
            area(
                f"{model} {role.value}",
                f"{ROLE_STYLES[role].letter} · {one_line(model, 12)}",
                model_colour(model, models),
                pattern,
            )
            for model in models
            for role, (pattern, _) in _PATTERNS.items()
        ]
    return Areas(
        [place for place, _ in known],
        areas,
        (lineage.axes[axis], "share"),
        None if at is None else x[at],
        span,
        small=at is None,
        title="" if at is not None else f"{one_line(lineage.name, 30)} ({lineage.learner_words})",
        key="shares" if at is not None else "shares_beside",
    )


def manners(asked: Asked) -> Answer | None:
    """How populations play: how mixed their choices are, how long their episodes, and how many end by ACCEPT."""
    lineage, at, second = lineage_of(asked)
    if not any(lineage.plays):
        return None
    by, axis = _by(asked).value, axis_choice(asked).value
    most = most_entropy(lineage.models, by)
    kinds = {
        "entropy": ("How mixed are the choices?", "entropy", 2, most, "Selection entropy"),
        "turns": ("How many turns does an episode take?", "turns", 2, None, ""),
        "accepted": ("How many episodes end by ACCEPT?", "share accepted", None, 1.0, ""),
    }
    shown = [(lineage, {}), *([(second, {"tone": "second", "dash": "dash"})] if second else [])]
    blocks: list[Block] = [
        trend(
            asked,
            axis,
            [
                trace(one, axis, one.name, [_manner(played, what, by) for played in one.plays], **look)
                for one, look in shown
            ],
            words,
            places=places,
            top=top,
            small=True,
            title=title,
            key=what,
            term=term,
        )
        for what, (title, words, places, top, term) in kinds.items()
    ]
    found = {what: _manner(lineage.plays[at], what, by) for what in kinds}
    said = f"Generation {lineage.indices[at]} kept nothing of how it played."
    if found["turns"] is not None and found["entropy"] is not None:
        said = (
            f"Generation {lineage.indices[at]}: {found['turns']:.2f} turns an episode, {percent(found['accepted'])} "
            f"accepted; the entropy of its choices is {found['entropy']:.2f} of at most {most:.2f} nats."
        )
    return Answer("manner", "How do its populations play?", said, blocks)


def _manner(played: EpisodeStatistics | None, what: str, by: str) -> float | None:
    """One number of how a population played; None where it is not known."""
    if played is None:
        return None
    if what == "entropy":
        return share_entropy(played.shares, by)
    found = played.accept_rate if what == "accepted" else played.turns_mean
    return None if math.isnan(found) else found


# Population


def population(asked: Asked) -> Answer:
    """One generation's candidates: fitness against distance from the mean, with the error of its tasks."""
    lineage, at, _ = lineage_of(asked)
    one, index = lineage.stats[at], lineage.indices[at]
    question = f"Which candidates of generation {index} did well, and how far out were they?"
    candidates = asked.store.learning.candidates(lineage.run, index) if index else []
    if len(candidates) < 2:
        said = "This run kept no candidates: there is no population to show."
        if not index:
            said = "Generation 0 has no candidates: choose a later one."
        elif lineage.learner == "reinforce":
            said = "REINFORCE plays one policy: there is no population to show."
        return Answer("population", question, said, term="Candidate")
    known = [(number, found) for number, found in enumerate(candidates) if found.fitness is not None]
    known.sort(key=lambda found: found[1].fitness or 0.0)
    distances = distances_of(one, len(candidates))
    points = []
    for place, (number, candidate) in enumerate(known):
        fitness, n = candidate.fitness or 0.0, candidate.rollouts - candidate.missing
        error = binomial_error(fitness, n)
        detail = f"candidate {candidate.index}, ± {percent(error)}, {candidate.missing} missing"
        x = float(place + 1) if distances is None else distances[number]
        points.append(Point(x, Estimate(fitness, None, n=n), f"{candidate.index}", detail))
    tasks = tasks_each(lineage, at)
    each = f" over its {tasks} tasks" if tasks else ""
    said = f"{len(candidates):,} candidates, best {percent(one.best)}, mean {percent(one.mean)}."
    if lost := len(candidates) - len(known):
        said += f" {lost} have no fitness: all of their episodes are missing."
    notes: list[Block] = [
        f"± is one binomial standard error of a candidate's fitness{each}. Dashed: the mean."
    ]
    if distances is None:
        notes.append("This run did not keep the candidates' distances: they are sorted by fitness instead.")
    elif (
        found := rank_correlation([p.x for p in points], [p.estimate.value or 0.0 for p in points])
    ) is not None:
        said += f" Rank correlation of distance and fitness: {found:+.2f}."
    title = "candidates, the worst first" if distances is None else "distance from the mean, in step sizes"
    picture = Points(points, (title, "fitness"), level=one.mean, key="candidates")
    return Answer("population", question, said, [picture], notes, term="Candidate")


def distances_of(stats: GenerationStats, n: int) -> tuple[float, ...] | None:
    """Every candidate's distance from the mean; None where they were not kept."""
    return stats.distances if len(stats.distances) == n else None


# Weights


def weights(asked: Asked) -> list[Answer]:
    """The length of each logit's row by generation, and which rows of the chosen head point the same way."""
    lineage, at, _ = lineage_of(asked)
    question = "How strongly does each logit read the state?"
    read = asked.read(rows_of_heads, lineage.run)
    if isinstance(read, str):
        return [Answer("norms", question, read, term="Head")]
    kind, names, rows = read
    here = min(rows, key=lambda one: abs(one - lineage.indices[at]))
    norms = {generation: np.linalg.norm(one, axis=1) for generation, one in rows.items()}
    lines = {
        name: [Point(float(one), Estimate(float(norm[row]), None)) for one, norm in norms.items()]
        for row, name in enumerate(names)
    }
    longest = names[int(np.argmax(norms[here]))]
    found = cosine_grid(rows[here], names)
    alike = [
        (cell.value, names[row], names[column])
        for row, of in enumerate(found.cells)
        for column, cell in enumerate(of)
        if cell.value is not None and row < column
    ]
    said = "Rows of zeros have no direction."
    if alike:
        value, one, other = max(alike)
        said = f"Most alike: {one} and {other}, cosine {value:.2f}."
    return [
        Answer(
            "norms",
            question,
            f"In generation {here} most strongly: {longest}, whose row is {norms[here].max():.2f} long.",
            [Curve(lines, ("generation", "length of the row"), places=2, key="norms")],
            [
                "The length of each logit's row of weights. A longer row makes a logit vary more with the transcript."
            ],
            term="Head",
        ),
        Answer(
            "cosines",
            f"Which logits of generation {here} ask for the same?",
            said,
            [found],
            [
                "Cosine between rows: 1 is the same direction, −1 the opposite. Rows of zeros have no direction."
                f"{_kind_words(kind)}"
            ],
            term="Cosine",
        ),
    ]


def rows_of_heads(store: Store, run: str) -> str | tuple[str, Sequence[str], Mapping[int, Array]]:
    """The kind of a run's heads, the names of their logits and each logit's row in the head of every generation; or why
    there are none."""
    heads = store.checkpoints.of_run(run)
    if not heads:
        return "No checkpoint of this run is kept: there are no weights to show."
    kind, found = heads[-1].head_kind, {one.generation or 0: head_rows(one) for one in heads}
    rows = {generation: one for generation, one in found.items() if one is not None}
    if not rows:
        return (
            f"A {kind} head bends what it reads before it scores it: its logits have no rows in the state that could "
            "be compared."
        )
    return kind, [*heads[-1].models, *(role_word(role) for role in ROLE_ORDER)], rows


def cosine_grid(rows: Array, names: Sequence[str]) -> Grid:
    """The cosine between every two rows of a head; nothing where a row of zeros has no direction."""
    cells = [
        [
            Cell(value if row != column and math.isfinite(value) else None, f"{value:.2f}")
            for column, value in enumerate(values)
        ]
        for row, values in enumerate(cosines(rows).tolist())
    ]
    return Grid(names, names, ("logit", "with"), cells, signed=True, top=1.0, places=2, key="cosines")


def _kind_words(kind: str) -> str:
    if kind.startswith("block"):
        return " Rows of different blocks read different numbers of the state, so their cosine is 0."
    return {
        "sparse": " Rows are taken after the weights of the numbers that this head reads.",
        "turn-aware": " Rows read the state and the embedding of the turn.",
    }.get(kind, "")


# Whether the optimiser's assumption holds, for the page of hidden states


def curvature_in(store: Store, run: str, policy: str) -> BlockSeparability | None:
    """The curvature by the choices of a policy in a run; None where there are too few."""
    choices = read_choices(store, run, policy)
    return None if choices is None else block_separability(choices)


def curvature(asked: Asked) -> Answer:
    """Whether each logit could be searched alone."""
    where = asked.sides[0].where
    whose = (where.run or "", where.policy or "")
    found = asked.read(curvature_in, *whose)
    question = "Can each logit be searched alone?"
    bound = float(gain_over_random_search(np.array([60.0]))[0])
    notes: list[Block] = [
        "The paper's theory: sep-CMA-ES, which knows no dependence between two numbers, does well when the Hessian of "
        "the expected reward is nearly block-diagonal (definition 1). The blocks here are the head's rows, one per "
        "logit; the Hessian is estimated from which choices were drawn and which episodes were solved, in the "
        "directions in which hidden states vary most.",
        "What the paper concludes (proposition 1): the lead of CMA-ES over random search grows with the generations T "
        f"at least like T / ln(16 T), {bound:.1f} at T = 60, up to constants that it does not give.",
    ]
    if found is None:
        said = (
            f"It takes at least {FEWEST_EPISODES} whole episodes with drawn choices and hidden states, some solved and "
            "some not. Play more tasks with this checkpoint."
        )
        return Answer("curvature", question, said, measured=notes)
    names = [*asked.read(read_states, *whose).slots, *(role_word(role) for role in ROLE_ORDER)]
    cells = [[Cell(value, f"{value:.3f}") for value in row] for row in found.curvature.tolist()]
    table = Table.of(
        (("spectral norm", "spectral"), ("largest block", "largest"), ("sum over a row", "row")),
        Column("measure", "Outside over inside", get=lambda one: one[0]),
        Column("coupling", "This run", "number", lambda one: getattr(found.coupling, one[1]), places=2),
        Column("by_chance", "Shuffled", "number", lambda one: getattr(found.by_chance, one[1]), places=2),
        key="coupling",
    )
    return Answer(
        "curvature",
        question,
        f"Over {found.episodes:,} episodes, {percent(found.outside or 0.0)} of the squared curvature lies outside of "
        "the blocks, noise left out."
        if found.found
        else f"{found.episodes:,} episodes are too few to tell this curvature from chance: with shuffled rewards the "
        "figures come out alike. A run of a thousand episodes or more by a checkpoint that is not yet sure of its "
        "choices, such as an early generation, tells more.",
        [Grid(names, names, ("logit", "with"), cells, signed=True, places=2)],
        [
            table,
            *notes,
            "0 would be block-diagonal. Shuffled: the mean over shuffles of which episodes were solved.",
        ],
    )


ANALYSIS = Analysis(
    (
        Part("progress", "Progress", (learning.fitness, learning.standings, learning.pace), is_evolution),
        Part("pinned", "What it learned", (habits.learned, habits.pinned), is_evolution),
        Part("choices", "Choices", (choices, manners), is_evolution),
        Part("population", "Population", (population,), is_evolution),
        Part("weights", "Weights", (weights,), is_evolution),
        Part("progress", "Progress", (learning.rollouts, learning.standings, training.measures), is_training),
        Part("workflows", "Workflows", (training.shapes, training.steps, training.who), is_training),
        Part("plans", "Unreadable plans", (training.faults,), is_training),
        Part("kept", "Kept planners", (training.kept,), is_training),
    ),
    everything=True,
)
