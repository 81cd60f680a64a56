"""Separability: can the task family and the chosen model be read off hidden states and logits, and the class of
a question off the state of an encoder before anything is played?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from core.analysis import separability as measure
from core.analysis.separability import (
    FOLDS,
    READERS,
    SPACE_WORDS,
    SPACES,
    TARGET_WORDS,
    TARGETS,
    Accuracy,
    QuestionReadings,
    Reader,
    Space,
    Target,
)
from storage.analysis.hidden_states import HiddenStates, StateTurn, read_states
from storage.store import Store
from ui.answers.asked import Asked, Behind
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
    Estimates,
    Grid,
    Line,
    Mark,
    Point,
    Table,
    Way,
)
from ui.answers.evolution import curvature
from ui.answers.pages import Analysis, Part
from ui.presentation.comparison import difference_words
from ui.presentation.glossary import define
from ui.presentation.theme import one_line, percent
from ui.presentation.words import role_word, score_words, share_words

#: Value in the address -> its words.
TURNS = {"all": "Every turn", "first": "First turns"}
METHODS: dict[str, str] = {"pca": "PCA", "lda": "LDA", "tsne": "t-SNE"}
#: Rare classes named one by one.
MOST_NAMES = 10
_PLACES: tuple[tuple[Target, Space], ...] = tuple((target, space) for target in TARGETS for space in SPACES)

# What takes seconds is measured once for the same points.
_once = lru_cache(maxsize=16)
_measured, _projected = _once(measure.accuracy), _once(measure.project)
_discriminated, _indexed = _once(measure.discriminate), _once(measure.separability_index)
_within, _studied = _once(measure.within_families), _once(measure.synthetic_study)
_read_questions = _once(measure.read_questions)


def states_in(store: Store, run: str, policy: str, first_only: bool) -> HiddenStates:
    """`read_states`, to be remembered by what it is asked."""
    return read_states(store, run, policy, first_only=first_only)


def _turns(asked: Asked) -> Choice:
    return asked.choice("turns", "Which turns", TURNS)


def _whose(asked: Asked) -> tuple[str, str]:
    where = asked.sides[0].where
    return where.run or "", where.policy or ""


def _of_questions(asked: Asked) -> bool:
    return isinstance(asked.subject, HiddenStates)


def states_of(asked: Asked) -> HiddenStates:
    """The turns, or the questions, and their points."""
    if isinstance(asked.subject, HiddenStates):
        return asked.subject
    return asked.read(states_in, *_whose(asked), _turns(asked).value == "first")


def too_few(asked: Asked) -> str:
    """Why nothing can be measured; empty where it can."""
    (run, policy), n = _whose(asked), len(states_of(asked).points)
    if n >= measure.FEWEST_POINTS:
        return ""
    return f"{policy} in run {run} has {n} turns with a hidden state: fewer than {measure.FEWEST_POINTS} tell nothing."


def _places(states: HiddenStates) -> tuple[tuple[Target, Space], ...]:
    """What is read off what: questions have no chosen model and no logits."""
    return _PLACES[:1] if states.texts else _PLACES


def _words(target: Target, states: HiddenStates | None = None) -> str:
    return one_line(states.label, 30) if states and states.label else TARGET_WORDS[target]


def _title(target: Target, space: Space, states: HiddenStates | None = None) -> str:
    words = _words(target, states)
    return f"{words[:1].upper()}{words[1:]}, {SPACE_WORDS[space]}"


def _nothing(target: Target, states: HiddenStates | None = None) -> str:
    things, more = ("questions", "give") if states and states.texts else ("tasks", "play")
    return (
        f"Fewer than two classes of {_words(target, states)} have {FOLDS} {things} or more, so there is nothing "
        f"to tell apart: {more} more {things} of each."
    )


def readings(asked: Asked) -> Answer:
    """How well the task family and the chosen model are read."""
    states = states_of(asked)
    if states.texts:
        return _questions_read(states)
    found = {place: _measured(states.points, *place) for place in _PLACES}
    there = [one for one in found.values() if one is not None]
    counts = {one.target: one.n for one in there}
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
            *_classes(states, {one: counts.get(one, 0) for one in TARGETS}),
            *_method(states),
        ],
        term="SVM",
        choices=[_turns(asked)],
    )


#: Who reads a class off a question.
READER_WORDS: dict[Reader, str] = {
    "linear": "hidden states, linear SVM",
    "rbf": "hidden states, RBF SVM",
    "words": "words, TF-IDF",
    "length": "length alone",
}


def _questions_read(states: HiddenStates) -> Answer:
    """How well the class of a question is read off its hidden state, beside readers without an encoder."""
    found, question = _read_questions(states.points, states.texts), "How well can it be read?"
    if found is None:
        return Answer("readings", question, _nothing("task", states), measured=_classes(states, {"task": 0}))
    shares = {reader: found.share(reader) for reader in READERS}
    linear, words, length = (
        share_words(shares[reader].value or 0.0, shares[reader].ci95)
        for reader in ("linear", "words", "length")
    )
    ahead, *ends = found.ahead("linear", "words")
    clear = (
        "Hidden states and words differ" if ends[0] > 0 or ends[1] < 0 else "It is not clear which tell more"
    )
    lines = [Line(READER_WORDS[one], Estimate.of(share)) for one, share in shares.items()]
    return Answer(
        "readings",
        question,
        f"A linear SVM reads {_words('task', states)} off hidden states in {linear} of the questions. Words alone tell "
        f"it in {words}, the length in {length}; always naming the largest class in {percent(found.majority)}.\n"
        f"{clear}: {difference_words(ahead, (ends[0], ends[1]))} points for hidden states.",
        [Estimates(lines, "share of questions named right", key="readers")],
        [
            _readers_table(found),
            _what(states),
            *_classes(states, {"task": len(found.tasks)}),
            *_QUESTIONS_METHOD,
        ],
        term="SVM",
    )


def _readers_table(found: QuestionReadings) -> Table:
    def ahead(reader: Reader) -> Estimate | None:
        value, *ends = found.ahead(reader, "words")
        return None if reader == "words" else Estimate(value, (ends[0], ends[1]))

    return Table.of(
        READERS,
        Column("reader", "Read off", get=lambda one: READER_WORDS[one]),
        Column("right", "Right", "estimate", found.share),
        Column("ahead", "Points over words", "difference", ahead, "Paired difference"),
        Column("majority", "Largest class", "part", lambda one: found.majority),
        Column("chance", "Chance", "part", lambda one: found.chance),
        Column("classes", "Classes", "count", lambda one: found.classes),
        key="results",
    )


_QUESTIONS_METHOD = (
    f"Stratified cross-validation in {FOLDS} folds, the same for all; equal questions stay in one fold, whatever their "
    "case and spaces. Intervals are over questions.",
    "Words: logistic regression on TF-IDF of words and pairs. Length: the same on the logarithm of the number of "
    "characters. Both need no encoder, and may be enough where sets differ in their layout.",
    "What is read could serve a head at its first turn. Whether it is worth anything depends on who is right on which "
    "class: give tasks a field that says so, and name it as the label.",
)


def _readings_grid(found: Sequence[Accuracy]) -> Grid:
    def row(one: Accuracy) -> list[Cell]:
        paper = measure.PUBLISHED_ACCURACY[one.target, one.space]
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


def _paper(one: Accuracy) -> measure.PublishedSeparability:
    return measure.PUBLISHED_ACCURACY[one.target, one.space]


def _what(states: HiddenStates) -> str:
    points, asked = states.points, len(states.texts)
    parts = [
        f"{asked:,} questions" if asked else f"{len(points):,} turns of {len(set(points.tasks)):,} tasks"
    ]
    if len(points) + states.unusable < states.total:
        parts.append(f"drawn by a fixed seed from {states.total:,}")
    if states.unusable:
        parts.append(
            f"{states.unusable:,} more left out: their hidden state holds numbers too large for the store"
        )
    parts.append(f"hidden states of {points.hidden.shape[1]:,} numbers")
    if not asked:
        parts.append(f"{points.logits.shape[1]} logits, one per model and role")
    return " · ".join(parts) + ". Every number is standardised."


def _classes(states: HiddenStates, counts: Mapping[Target, int]) -> list[Block]:
    """Which classes were read, in how many turns or questions, and which were left out."""
    notes: list[Block] = []
    things = ("questions", "questions") if states.texts else ("turns", "tasks")
    for target, n in counts.items():
        of = measure.classes(states.points, target)
        words = f"{_words(target, states).capitalize()}: {len(of.frequent)} classes in {n:,} {things[0]}"
        if of.rare:
            rare = ", ".join(one_line(name, 30) for name in of.rare[:MOST_NAMES])
            more = "" if len(of.rare) <= MOST_NAMES else f" and {len(of.rare) - MOST_NAMES} more"
            words += f"; {rare}{more} left out, with fewer than {FOLDS} {things[1]}"
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


def within(asked: Asked) -> Answer | None:
    """How well the model is read where the family tells nothing."""
    if _of_questions(asked):
        return None
    measured = _within(states_of(asked).points, "hidden")
    found = [(family, one) for family, one in measured.items() if one is not None]
    said = [f"{family} {score_words(one.linear)} ({percent(one.majority)})" for family, one in found]
    papers = ", ".join(f"{name} {percent(share)}" for name, share in measure.PUBLISHED_WITHIN.items())
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
    planes = {place: _discriminated(points, *place) for place in _places(states)}
    said = [
        f"{_title(*place, states)} {plane.fisher:.2f} ({plane.shuffled:.2f} with shuffled labels)"
        for place, plane in planes.items()
        if plane is not None
    ]
    table = Table.of(
        planes.items(),
        Column("target", "Classes", get=lambda one: _words(one[0][0], states)),
        Column("space", "In", get=lambda one: SPACE_WORDS[one[0][1]]),
        Column("fisher", "Fisher ratio", "number", lambda one: one[1] and one[1].fisher, "Fisher ratio", 2),
        Column("shuffled", "Shuffled labels", "number", lambda one: one[1] and one[1].shuffled, places=2),
        Column("paper", "Paper", "number", lambda one: measure.PUBLISHED_FISHER[one[0][1]], places=2),
        Column("index", "Index", "number", lambda one: _indexed(points, *one[0]), places=3),
        key="fisher",
    )
    return Answer(
        "clouds",
        "Do the classes lie apart?",
        f"Fisher ratio of the classes in their discriminant plane: {'; '.join(said)}."
        if said
        else " ".join(_nothing(target, states) for target, space in planes if space == "hidden"),
        [_cloud(states, projection.value, *place) for place in planes],
        [
            table,
            f"Each point is one {'question' if states.texts else 'decision'}. Where points of a colour lie together, "
            "the class can be read off what the encoder sees (hidden states) or off what the head makes of it "
            "(logits). A click in a legend hides a class, a double click isolates it.",
            _how_to_read(projection.value, len(points)),
            f"Shuffled: the mean of {measure.SHUFFLES} shuffles of the labels. The index is the share of the variance "
            "that lies between classes. The paper names one Fisher ratio per space, perhaps by another formula.",
        ],
        term="Separability",
        choices=[projection],
    )


def _how_to_read(method: str, n: int) -> str:
    return {
        "pca": define("PCA"),
        "lda": f"{define('LDA')} It sees the labels and finds some distance even in noise.",
        "tsne": f"{define('t-SNE')} Perplexity {measure.perplexity(n):.0f}.",
    }[method]


def _cloud(states: HiddenStates, method: str, target: Target, space: Space) -> Block:
    points, title = states.points, f"{SPACE_WORDS[space].capitalize()} by {_words(target, states)}"
    if not np.ptp(points.matrix(space), axis=0).any():
        return f"{title}: all {SPACE_WORDS[space]} are the same, as of a head that has learned nothing yet."
    if method == "lda":
        plane = _discriminated(points, target, space)
        if plane is None:
            return f"{title}: {_nothing(target, states)}"
        drawn = plane.projection
    else:
        drawn = _projected(points, method, space)
    dots = [
        Dot(x, y, name, _turn_words(turn), _mark(f"{space}.{target}", turn))
        for (x, y), name, turn in zip(
            drawn.xy.round(4).tolist(), points.labels(target).tolist(), states.turns, strict=True
        )
    ]
    slots = states.slots if target == "model" else ()
    return Cloud(dots, drawn.axes, slots, title, f"{target}_{space}")


def _mark(cloud: str, turn: StateTurn) -> Mark:
    return Mark(f"{cloud}:{turn.episode_id}:{turn.index + 1}") if turn.episode_id else Mark()


def _turn_words(turn: StateTurn) -> str:
    if not turn.episode_id:  # a question
        return f"{one_line(turn.family, 24)}: {one_line(turn.question, 80)}"
    likeliest = "" if turn.model == turn.argmax_model else f" (likeliest: {one_line(turn.argmax_model, 24)})"
    return (
        f"{one_line(turn.model, 24)} as {role_word(turn.role)}, turn {turn.index + 1}{likeliest}; "
        f"{one_line(turn.family, 24)}: {one_line(turn.question, 56)}"
    )


def behind(asked: Asked, into: str, second: bool) -> Behind | None:
    """The turn of a point."""
    named = into.partition(":")[2]
    turns = () if _of_questions(asked) else states_of(asked).turns
    turn = next((one for one in turns if named == f"{one.episode_id}:{one.index + 1}"), None)
    if turn is None:
        return None
    return Behind(_turn_words(turn), Way(f"Open turn {turn.index + 1}", _replay(turn)))


def _replay(turn: StateTurn) -> Address:
    return Address("replay", {"ep": turn.episode_id, "t": f"{turn.index + 1}"})


def questions(asked: Asked) -> Answer:
    """The questions behind the points."""
    states = states_of(asked)
    label = Column("label", _words("task", states).capitalize(), get=lambda one: one.family)
    table = Table.of(states.turns, label, Column("question", "Question", get=lambda one: one.question))
    said = f"{len(states.turns):,} of {states.total:,} questions with a {_words('task', states)}."
    return Answer("questions", "Which questions are these?", said, [table])


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
    """How index and measure.accuracy go together where it is known."""
    states, found = states_of(asked), _studied()
    ours = [
        f"{_words(target, states)} in {SPACE_WORDS[space]} {index:.3f}"
        for target, space in _places(states)
        if (index := _indexed(states.points, target, space)) is not None
    ]
    enough = next((one.index for one in found if one.accuracy >= 0.95), 1.0)
    line = [Point(one.index, Estimate(one.accuracy, None)) for one in found]
    return Answer(
        "made_up",
        "How far apart must classes lie?",
        f"A separability index of {enough:.3f} is enough to read 95 % of made-up states. Index here: "
        f"{', '.join(ours) or 'none can be measured'}.",
        [Curve({"made-up states": line}, ("separability index", "linear SVM"))],
        [
            f"As in the paper's appendix: {measure.SYNTHETIC_TASKS} clusters of tasks and {measure.SYNTHETIC_MODELS} "
            f"models in {measure.SYNTHETIC_SIZE:,} numbers. The index is the share of the variance that lies between "
            "classes; a linear SVM reads the model off each set of made-up states. Real classes are seldom round "
            "clouds, so the two need not agree."
        ],
        choices=[] if states.texts else [_turns(asked)],
    )


ANALYSIS = Analysis(
    (
        Part("read", "How well it is read", (readings, within, clouds)),
        Part("turns", "Turns", (turns,), there=lambda asked: not _of_questions(asked), asked_for=True),
        Part("turns", "Questions", (questions,), there=_of_questions, asked_for=True),
        Part("curvature", "Curvature", (curvature,), there=lambda asked: not _of_questions(asked)),
        Part("made_up", "Made-up states", (made_up,), asked_for=True),
    ),
    behind,
)
