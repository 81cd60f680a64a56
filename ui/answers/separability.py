"""Separability: can the task family and the chosen model be read off hidden states and logits?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from core.analysis.curvature import (
    FEWEST_EPISODES,
    BlockSeparability,
    block_separability,
    gain_over_random_search,
)
from core.analysis.separability import (
    FEWEST_POINTS,
    FOLDS,
    PUBLISHED_ACCURACY,
    PUBLISHED_FISHER,
    PUBLISHED_WITHIN,
    SHUFFLES,
    SPACE_WORDS,
    SPACES,
    SYNTHETIC_MODELS,
    SYNTHETIC_SIZE,
    SYNTHETIC_TASKS,
    TARGET_WORDS,
    TARGETS,
    Accuracy,
    PublishedSeparability,
    Space,
    Target,
    accuracy,
    classes,
    discriminate,
    perplexity,
    project,
    separability_index,
    synthetic_study,
    within_families,
)
from core.episode import ROLE_ORDER
from storage.analysis.hidden_states import (
    HiddenStates,
    PolicyWithStates,
    StateTurn,
    read_choices,
    read_states,
)
from storage.filters.episode_filter import EpisodeFilter
from storage.store import Store
from ui.answers.asked import Asked, Behind, Side
from ui.answers.blocks import (
    Address,
    Answer,
    Block,
    Cell,
    Choice,
    Cloud,
    Column,
    Curve,
    Dot,
    Estimate,
    Grid,
    Mark,
    Point,
    Table,
    Way,
)
from ui.answers.pages import Analysis, Part
from ui.presentation.glossary import define
from ui.presentation.theme import one_line, percent
from ui.presentation.words import role_word, score_words

#: Value in the address -> its words.
TURNS = {"all": "Every turn", "first": "First turns"}
METHODS: dict[str, str] = {"pca": "PCA", "lda": "LDA", "tsne": "t-SNE"}
#: Rare classes named one by one.
MOST_NAMES = 10
_PLACES: tuple[tuple[Target, Space], ...] = tuple((target, space) for target in TARGETS for space in SPACES)

# What takes seconds is measured once for the same points.
_measured, _projected = lru_cache(maxsize=16)(accuracy), lru_cache(maxsize=16)(project)
_discriminated, _indexed = lru_cache(maxsize=16)(discriminate), lru_cache(maxsize=16)(separability_index)
_within, _studied = lru_cache(maxsize=16)(within_families), lru_cache(maxsize=16)(synthetic_study)


def asked_of_states(store: Store, chosen: PolicyWithStates, name: str, **more: Any) -> Asked:
    """The turns of a policy in a run that left hidden states. `name` names it; `more`: further fields."""
    side = Side("", name, EpisodeFilter(run=chosen.run_id, policy=chosen.policy))
    return Asked(store, (side,), side, **more)


def states_in(store: Store, run: str, policy: str, first_only: bool) -> HiddenStates:
    """`read_states`, to be remembered by what it is asked."""
    return read_states(store, run, policy, first_only=first_only)


def curvature_in(store: Store, run: str, policy: str) -> BlockSeparability | None:
    """The curvature by the choices of a policy in a run; None where there are too few."""
    choices = read_choices(store, run, policy)
    return None if choices is None else block_separability(choices)


def _turns(asked: Asked) -> Choice:
    return asked.choice("turns", "Which turns", TURNS)


def _whose(asked: Asked) -> tuple[str, str]:
    where = asked.sides[0].where
    return where.run or "", where.policy or ""


def states_of(asked: Asked) -> HiddenStates:
    """The turns and their points."""
    return asked.read(states_in, *_whose(asked), _turns(asked).value == "first")


def too_few(asked: Asked) -> str:
    """Why nothing can be measured; empty where it can."""
    (run, policy), n = _whose(asked), len(states_of(asked).points)
    if n >= FEWEST_POINTS:
        return ""
    return (
        f"{policy} in run {run} has {n} turns with a hidden state: fewer than {FEWEST_POINTS} tell nothing."
    )


def _title(target: Target, space: Space) -> str:
    return f"{TARGET_WORDS[target].capitalize()}, {SPACE_WORDS[space]}"


def _nothing(target: Target) -> str:
    return (
        f"Fewer than two classes of {TARGET_WORDS[target]} have {FOLDS} tasks or more, so there is nothing to tell "
        "apart: play more tasks of each."
    )


def readings(asked: Asked) -> Answer:
    """How well the task family and the chosen model are read."""
    states = states_of(asked)
    found = {place: _measured(states.points, *place) for place in _PLACES}
    there = [one for one in found.values() if one is not None]
    said = [
        f"{TARGET_WORDS[one.target].capitalize()}: a linear SVM reads {score_words(one.linear)} off hidden states; "
        f"always naming the largest class is right in {percent(one.majority)}."
        for one in there
        if one.space == "hidden"
    ]
    said += [_nothing(target) for target in TARGETS if found[target, "hidden"] is None]
    return Answer(
        "readings",
        "How well can it be read?",
        "\n".join(said),
        [_readings_grid(there)] if there else [],
        [
            *([_readings_table(there)] if there else []),
            _what(states),
            *_classes(states, there),
            *_method(states),
        ],
        term="SVM",
        choices=[_turns(asked)],
    )


def _readings_grid(found: Sequence[Accuracy]) -> Grid:
    def row(one: Accuracy) -> list[Cell]:
        paper = PUBLISHED_ACCURACY[one.target, one.space]
        linear, rbf, *published = (
            Cell(score.mean, score_words(score)) for score in (one.linear, one.rbf, paper.linear, paper.rbf)
        )
        return [linear, rbf, Cell(one.majority, percent(one.majority)), *published]

    by = ["linear SVM", "RBF SVM", "largest class", "paper: linear", "paper: RBF"]
    rows = [_title(one.target, one.space) for one in found]
    return Grid(rows, by, ("read", "by"), [row(one) for one in found], top=1.0)


_SCORES = (
    Column("linear", "Linear SVM", "score", lambda one: one.linear, "SVM"),
    Column("rbf", "RBF SVM", "score", lambda one: one.rbf, "SVM"),
    Column("majority", "Largest class", "part", lambda one: one.majority),
    Column("chance", "Chance", "part", lambda one: one.chance),
    Column("classes", "Classes", "count", lambda one: one.classes),
    Column("n", "Turns", "count", lambda one: one.n),
)


def _readings_table(found: Sequence[Accuracy]) -> Table:
    return Table.of(
        found,
        Column("target", "Read", get=lambda one: TARGET_WORDS[one.target]),
        Column("space", "Off", get=lambda one: SPACE_WORDS[one.space]),
        *_SCORES,
        Column("paper_linear", "Paper: linear", "score", lambda one: _paper(one).linear),
        Column("paper_rbf", "Paper: RBF", "score", lambda one: _paper(one).rbf),
        Column("paper_chance", "Paper: chance", "part", lambda one: _paper(one).chance),
        key="results",
    )


def _paper(one: Accuracy) -> PublishedSeparability:
    return PUBLISHED_ACCURACY[one.target, one.space]


def _what(states: HiddenStates) -> str:
    points = states.points
    parts = [f"{len(points):,} turns of {len(set(points.tasks)):,} tasks"]
    if len(points) + states.unusable < states.total:
        parts.append(f"drawn by a fixed seed from {states.total:,}")
    if states.unusable:
        parts.append(
            f"{states.unusable:,} more left out: their hidden state holds numbers too large for the store"
        )
    parts.append(f"hidden states of {points.hidden.shape[1]:,} numbers")
    parts.append(f"{points.logits.shape[1]} logits, one per model and role")
    return " · ".join(parts) + ". Every number is standardised."


def _classes(states: HiddenStates, found: Sequence[Accuracy]) -> list[Block]:
    """Which classes were read, and which were left out."""
    counts = {one.target: one.n for one in found}
    notes: list[Block] = []
    for target in TARGETS:
        of = classes(states.points, target)
        words = f"{TARGET_WORDS[target].capitalize()}: {len(of.frequent)} classes in {counts.get(target, 0):,} turns"
        if of.rare:
            rare = ", ".join(one_line(name, 30) for name in of.rare[:MOST_NAMES])
            more = "" if len(of.rare) <= MOST_NAMES else f" and {len(of.rare) - MOST_NAMES} more"
            words += f"; {rare}{more} left out, with fewer than {FOLDS} tasks"
        notes.append(f"{words}.")
    return notes


def _method(states: HiddenStates) -> list[Block]:
    notes: list[Block] = [
        f"Stratified cross-validation in {FOLDS} folds. All turns of a task stay in one fold, so no turn is recognised "
        "by another of its episode. ± is the standard deviation over the folds.",
        "The paper's figures (arXiv 2512.04695) are of Qwen3-0.6B states that choose among frontier models such as "
        "GPT-5 and Gemini 2.5 Pro on four benchmarks. They are here for orientation: other tasks, other models.",
    ]
    likeliest = float(np.mean([turn.model == turn.argmax_model for turn in states.turns]))
    if likeliest < 1:
        notes.append(
            f"Of these choices {percent(likeliest)} took the likeliest model and the others were drawn below it, so "
            "even a perfect reading of the logits ends near there."
        )
    return notes


def within(asked: Asked) -> Answer:
    """How well the model is read where the family tells nothing."""
    measured = _within(states_of(asked).points, "hidden")
    found = [(family, one) for family, one in measured.items() if one is not None]
    said = [f"{family} {score_words(one.linear)} ({percent(one.majority)})" for family, one in found]
    papers = ", ".join(f"{name} {percent(share)}" for name, share in PUBLISHED_WITHIN.items())
    scores = [
        Column(of.key, of.words, of.kind, lambda one, of=of: of.get(one[1]), of.help)  # type: ignore[misc]
        for of in _SCORES
    ]
    return Answer(
        "within",
        "How well is the model read within one family?",
        f"A linear SVM reads the chosen model off hidden states in {'; '.join(said)}; in brackets: always naming the "
        "largest class."
        if said
        else f"In no family two models were chosen on {FOLDS} tasks each, so there is nothing to tell apart: play more "
        "tasks of each.",
        [Table.of(found, Column("family", "Family", get=lambda one: one[0]), *scores, key="families")]
        if found
        else [],
        [f"Where the family itself no longer tells who is chosen. The paper, linear SVM: {papers}."],
    )


def clouds(asked: Asked) -> Answer:
    """Whether classes lie apart, drawn in the plane."""
    states, projection = states_of(asked), asked.choice("projection", "Projection", METHODS)
    points = states.points
    planes = {place: _discriminated(points, *place) for place in _PLACES}
    said = [
        f"{_title(*place)} {plane.fisher:.2f} ({plane.shuffled:.2f} with shuffled labels)"
        for place, plane in planes.items()
        if plane is not None
    ]
    table = Table.of(
        planes.items(),
        Column("target", "Classes", get=lambda one: TARGET_WORDS[one[0][0]]),
        Column("space", "In", get=lambda one: SPACE_WORDS[one[0][1]]),
        Column("fisher", "Fisher ratio", "number", lambda one: one[1] and one[1].fisher, "Fisher ratio", 2),
        Column("shuffled", "Shuffled labels", "number", lambda one: one[1] and one[1].shuffled, places=2),
        Column("paper", "Paper", "number", lambda one: PUBLISHED_FISHER[one[0][1]], places=2),
        Column("index", "Index", "number", lambda one: _indexed(points, *one[0]), places=3),
        key="fisher",
    )
    return Answer(
        "clouds",
        "Do the classes lie apart?",
        f"Fisher ratio of the classes in their discriminant plane: {'; '.join(said)}."
        if said
        else " ".join(_nothing(target) for target in TARGETS),
        [_cloud(states, projection.value, *place) for place in _PLACES],
        [
            table,
            "Each point is one decision. Where points of a colour lie together, the class can be read off what the "
            "encoder sees (hidden states) or off what the head makes of it (logits). A click in a legend hides a "
            "class, a double click isolates it.",
            _how_to_read(projection.value, len(points)),
            f"Shuffled: the mean of {SHUFFLES} shuffles of the labels. The index is the share of the variance that "
            "lies between classes. The paper names one Fisher ratio per space, perhaps by another formula.",
        ],
        term="Separability",
        choices=[projection],
    )


def _how_to_read(method: str, n: int) -> str:
    return {
        "pca": define("PCA"),
        "lda": f"{define('LDA')} It sees the labels and finds some distance even in noise.",
        "tsne": f"{define('t-SNE')} Perplexity {perplexity(n):.0f}.",
    }[method]


def _cloud(states: HiddenStates, method: str, target: Target, space: Space) -> Block:
    points, title = states.points, f"{SPACE_WORDS[space].capitalize()} by {TARGET_WORDS[target]}"
    if not np.ptp(points.matrix(space), axis=0).any():
        return f"{title}: all {SPACE_WORDS[space]} are the same, as of a head that has learned nothing yet."
    if method == "lda":
        plane = _discriminated(points, target, space)
        if plane is None:
            return f"{title}: {_nothing(target)}"
        drawn = plane.projection
    else:
        drawn = _projected(points, method, space)
    dots = [
        Dot(x, y, name, _turn_words(turn), Mark(f"{space}.{target}:{turn.episode_id}:{turn.index + 1}"))
        for (x, y), name, turn in zip(
            drawn.xy.round(4).tolist(), points.labels(target).tolist(), states.turns, strict=True
        )
    ]
    slots = states.slots if target == "model" else ()
    return Cloud(dots, drawn.axes, slots, title, f"{target}_{space}")


def _turn_words(turn: StateTurn) -> str:
    likeliest = "" if turn.model == turn.argmax_model else f" (likeliest: {one_line(turn.argmax_model, 24)})"
    return (
        f"{one_line(turn.model, 24)} as {role_word(turn.role)}, turn {turn.index + 1}{likeliest}; "
        f"{one_line(turn.family, 24)}: {one_line(turn.question, 56)}"
    )


def behind(asked: Asked, into: str, second: bool) -> Behind | None:
    """The turn of a point."""
    named = into.partition(":")[2]
    turns = states_of(asked).turns
    turn = next((one for one in turns if named == f"{one.episode_id}:{one.index + 1}"), None)
    if turn is None:
        return None
    return Behind(_turn_words(turn), Way(f"Open turn {turn.index + 1}", _replay(turn)))


def _replay(turn: StateTurn) -> Address:
    return Address("replay", {"ep": turn.episode_id, "t": f"{turn.index + 1}"})


def turns(asked: Asked) -> Answer:
    """The turns behind the points."""
    states = states_of(asked)
    table = Table.of(
        states.turns,
        Column("open", "Turn", "link", _replay, link="Replay"),
        Column("family", "Family", get=lambda one: one.family),
        Column("model", "Model", get=lambda one: one.model),
        Column("likeliest", "Likeliest", get=lambda one: one.argmax_model),
        Column("role", "Role", "role", lambda one: one.role),
        Column("number", "Number", "count", lambda one: one.index + 1),
        Column("question", "Question", get=lambda one: one.question),
        Column("episode", "Episode", "id", lambda one: one.episode_id),
    )
    said = f"{len(states.turns):,} of {states.total:,} turns with a hidden state."
    return Answer("turns", "Which turns are these?", said, [table], choices=[_turns(asked)])


def made_up(asked: Asked) -> Answer:
    """How index and accuracy go together where it is known."""
    points = states_of(asked).points
    found = _studied()
    ours = [
        f"{TARGET_WORDS[target]} in {SPACE_WORDS[space]} {index:.3f}"
        for target, space in _PLACES
        if (index := _indexed(points, target, space)) is not None
    ]
    enough = next((one.index for one in found if one.accuracy >= 0.95), 1.0)
    line = [Point(one.index, Estimate(one.accuracy, None)) for one in found]
    return Answer(
        "made_up",
        "How far apart must classes lie?",
        f"A separability index of {enough:.3f} is enough to read 95 % of made-up states. Index in this run: "
        f"{', '.join(ours) or 'none can be measured'}.",
        [Curve({"made-up states": line}, ("separability index", "linear SVM"))],
        [
            f"As in the paper's appendix: {SYNTHETIC_TASKS} clusters of tasks and {SYNTHETIC_MODELS} models in "
            f"{SYNTHETIC_SIZE:,} numbers. The index is the share of the variance that lies between classes; a linear "
            "SVM reads the model off each set of made-up states. Real classes are seldom round clouds, so the two "
            "need not agree."
        ],
        choices=[_turns(asked)],
    )


def curvature(asked: Asked) -> Answer:
    """Whether each logit could be searched alone."""
    found = asked.read(curvature_in, *_whose(asked))
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
    names = [*states_of(asked).slots, *(role_word(role) for role in ROLE_ORDER)]
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
        Part("read", "How well it is read", (readings, within, clouds)),
        Part("turns", "Turns", (turns,), asked_for=True),
        Part("curvature", "Curvature", (curvature,)),
        Part("made_up", "Made-up states", (made_up,), asked_for=True),
    ),
    behind,
)
