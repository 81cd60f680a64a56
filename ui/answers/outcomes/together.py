"""What a second model says beside a first: a second opinion, how often models agree, what one of them alone knows."""

from __future__ import annotations

from functools import partial

import numpy as np

from core.outcomes.matrix import Pair, cases, guessed_alone, knowers, pair
from ui.answers.asked import Asked
from ui.answers.blocks import (
    Answer,
    Bars,
    Block,
    Cell,
    Column,
    Estimates,
    Grid,
    Line,
    Mark,
    Series,
    Table,
    Way,
)
from ui.answers.outcomes.questions import MOST, questions_table
from ui.answers.outcomes.subject import (
    BY_PARTS,
    counted,
    matrix,
    model_choice,
    part_of,
    questions,
    share,
    short,
    strongest,
    there,
)
from ui.presentation.theme import percent
from ui.presentation.words import cost_words, several, share_words

_NOT_COMPARABLE = (
    "The answers of this table cannot be compared: it says which replies are right, and not what they say."
)


def second(asked: Asked) -> Answer:
    """What asking a second model beside a first costs and brings."""
    of, tasks, order = matrix(asked), counted(asked), strongest(asked)
    question = "What does a second opinion cost and bring?"
    if not of.comparable or len(of.models) < 2:
        return Answer("second", question, _NOT_COMPARABLE if len(order) > 1 else "There is one model only.")
    first = model_choice(asked, "first", "First model", order, order[0])
    a = of.models.index(first.value)
    rest = [model for model in order if model != a]
    other = model_choice(asked, "second", "Second model", rest, rest[0])
    b = of.models.index(other.value)
    found = pair(of, tasks, a, b)
    names = first.value, other.value
    called = short(names, 20)
    at = partial(questions, asked, model=names[0], other=names[1])
    lines = [
        Line("They agree", share(found.same, found.n), Mark(to=at("same"))),
        Line("Agree: right", share(found.same_right, found.same), Mark(to=at("same"))),
        Line(f"Differ: {called[0]} right", share(found.a_right, found.differ), Mark(to=at("differ"))),
        Line(f"Differ: {called[1]} right", share(found.b_right, found.differ), Mark(to=at("rescues"))),
        Line("Differ: neither right", share(found.neither, found.differ), Mark(to=at("differ"))),
    ]
    pairs = [pair(of, tasks, a, model) for model in rest]
    return Answer(
        "second",
        question,
        _second_words(asked, found),
        [Estimates(lines, "share, 95 % interval"), _seconds_table(asked, pairs)],
        [
            "Over the questions for which both models have a graded first reply. Two agree when the grader calls their "
            "answers the same; a reply without an answer agrees with none. The best that a second opinion can bring is "
            "that whoever is right is believed wherever they differ: no rule can know that always."
        ],
        choices=[first, other],
    )


def _second_words(asked: Asked, found: Pair) -> str:
    of = matrix(asked)
    a, b = of.models[found.a], of.models[found.b]
    if not found.n:
        return f"{a} and {b} have answered no question in common."
    agree, right = share(found.same, found.n), share(found.same_right, found.same)
    wrong = found.n - found.same_right - found.a_right
    told = found.b_right + found.neither
    one_right, two_right = found.same_right + found.a_right, found.same_right + found.a_right + found.b_right
    said = [
        f"{a} and {b} agree in {share_words(agree.value or 0.0, agree.ci95 or (0.0, 1.0))} of {found.n:,} questions; "
        f"then {percent(right.value) if found.same else 'none'} are right.",
        f"Where they differ {a} is right in {part_of(found.a_right, found.differ)}, {b} in "
        f"{part_of(found.b_right, found.differ)}, neither in {part_of(found.neither, found.differ)}.",
        f"It costs one more call a question{_price(asked, found.b)}. To believe {a} whenever they differ wins nothing "
        f"by itself, but marks {several(found.differ, 'answer')} of {a} as doubtful: {told:,} of its {wrong:,} wrong "
        f"ones ({part_of(told, wrong)}), and {found.a_right:,} right ones with them.",
        f"To believe whoever is right would win {100 * found.b_right / found.n:.1f} points, from "
        f"{percent(one_right / found.n)} to {percent(two_right / found.n)}.",
    ]
    return "\n".join(said)


def _price(asked: Asked, model: int) -> str:
    of, tasks = matrix(asked), counted(asked)
    cost, tokens = (float(of.spent(name, tasks)[model]) for name in ("cost", "tokens"))
    known = [f"{tokens:,.0f} tokens"] * bool(np.isfinite(tokens)) + [cost_words(cost)] * bool(
        np.isfinite(cost)
    )
    return f" ({', '.join(known)})" if known else ""


def _seconds_table(asked: Asked, pairs: list[Pair]) -> Table:
    of, tasks = matrix(asked), counted(asked)
    spent = {name: of.spent(name, tasks) for name in ("tokens", "cost")}

    def of_reply(name: str, one: Pair) -> float | None:
        value = float(spent[name][one.b])
        return value if np.isfinite(value) else None

    def wins(one: Pair) -> float | None:
        return one.b_right / one.n if one.n else None

    return Table.of(
        sorted(pairs, key=lambda one: -(wins(one) or 0.0)),
        Column("second", "Second model", get=lambda one: of.models[one.b]),
        Column("most", "Most to win", "points", wins, "In points, if whoever is right were believed"),
        Column("same", "Agree", "estimate", lambda one: share(one.same, one.n)),
        Column("right", "Then right", "estimate", lambda one: share(one.same_right, one.same)),
        Column("first_right", "Else the first", "estimate", lambda one: share(one.a_right, one.differ)),
        Column("second_right", "Else the second", "estimate", lambda one: share(one.b_right, one.differ)),
        Column("tokens", "Tokens", "number", lambda one: of_reply("tokens", one), "More per question"),
        Column("cost_usd", "Cost", "usd", lambda one: of_reply("cost", one), "More US dollars per question"),
        Column("questions", "Questions", "count", lambda one: one.n, "That both answered"),
        title=f"Beside {of.models[pairs[0].a]}",
        key="seconds",
    )


def agreement(asked: Asked) -> Answer | None:
    """How often each two models answer the same, and how often the same wrong thing."""
    of, tasks, order = matrix(asked), counted(asked), strongest(asked)
    if not of.comparable or len(of.models) < 2:
        return None
    pairs = {(a, b): pair(of, tasks, a, b) for a in order for b in order if a != b}
    names = [of.models[model] for model in order]

    def cell(a: int, b: int, k: str, n: str, words: str) -> Cell:
        if a == b:
            return Cell(None, "itself")
        one = pairs[a, b]
        hits, of_all = getattr(one, k), getattr(one, n)
        to = there(asked, "together", first=of.models[a], second=of.models[b])
        value = hits / of_all if of_all else None
        return Cell(value, f"{hits:,} of {of_all:,} {words}", mark=Mark(to=to), ci95=share(hits, of_all).ci95)

    def grid(title: str, key: str, k: str, n: str, words: str) -> Grid:
        cells = [[cell(a, b, k, n, words) for b in order] for a in order]
        return Grid(names, short(names), ("model", "other"), cells, top=1.0, title=title, key=key)

    same = [one for (a, b), one in pairs.items() if order.index(a) < order.index(b) and one.n]
    if not same:
        return Answer("agreement", "How often do models agree?", "No two models answered the same question.")
    most = max(same, key=lambda one: one.same / one.n)
    least = min(same, key=lambda one: one.same / one.n)
    alike, wrong = sum(one.alike for one in same), sum(one.both_wrong for one in same)
    said = (
        f"Most: {of.models[most.a]} and {of.models[most.b]}, the same answer in {percent(most.same / most.n)} of "
        f"{most.n:,} questions; least: {of.models[least.a]} and {of.models[least.b]}, {percent(least.same / least.n)}. "
        f"Two that are both wrong are so alike in {part_of(alike, wrong)} of the cases."
    )
    return Answer(
        "agreement",
        "How often do models agree?",
        said,
        [
            grid("The same answer, percent of questions", "same", "same", "n", "questions"),
            grid(
                "The same wrong answer, percent of those that both have wrong",
                "alike",
                "alike",
                "both_wrong",
                "both wrong",
            ),
        ],
        ["A cell leads to that pair as a first and a second opinion, above."],
    )


def _guess_words(falling: float, even: float, found: int) -> str:
    """How many lone right answers guessing would give, under two views of how models guess."""
    lucky = "All of them" if falling >= found else f"About {falling:,.0f} of them"
    said = (
        f"{lucky} may be lucky guesses, going by how often one model alone picks a wrong option. "
        f"If models that do not know guessed evenly, each for itself, it would be {even:,.0f}"
    )
    return f"{said}, more than there are: they do not guess so. " if even > found else f"{said}. "


def alone(asked: Asked) -> Answer:
    """How many models know a question, and which questions one of them alone knows."""
    of, tasks, order = matrix(asked), counted(asked), strongest(asked)
    known = knowers(of, tasks)
    counts = [int((known == k).sum()) for k in range(len(of.models) + 1)]
    n = sum(counts)
    where = {0: "nobody", 1: "one", len(of.models): "everybody"}
    marks = [Mark(to=questions(asked, where.get(k, "some"))) for k in range(len(counts))]
    only = (known == 1)[:, None] & (of.first == 1)
    falling, even = guessed_alone(of, tasks)
    options_known = bool((of.options[tasks] > 1).any())
    bars = Bars(
        [str(k) for k in range(len(counts))],
        [Series("questions", counts)],
        ("models that are right", "questions"),
        marks=marks,
        key="knowers",
    )
    guessed = [
        Column(
            "guessed",
            "Perhaps luck",
            "number",
            lambda model: float(falling[model]),
            "So many may be lucky guesses, going by how often this model alone picks a wrong option",
        ),
        Column(
            "guessed_evenly",
            "If all guessed evenly",
            "number",
            lambda model: float(even[model]),
            "So many would be expected if models that do not know guessed evenly, each for itself",
        ),
    ]
    table = Table.of(
        [model for model in order if only[:, model].any()],
        Column("model", "Model", get=lambda model: of.models[model]),
        Column("only", "It alone is right", "count", lambda model: int(only[:, model].sum())),
        *(guessed if options_known else ()),
        Column("share", "Of all", "share", lambda model: float(only[:, model].sum() / n)),
        Column("list", "Questions", "link", lambda model: questions(asked, "only", model=of.models[model])),
        key="models",
    )
    which = np.flatnonzero(known == 1)[: MOST // 5]
    blocks: list[Block] = [bars, table]
    if len(which):
        blocks.append(
            questions_table(asked, which, title="Some of them", key="questions", knows=True, elsewhere=True)
        )
    said = "No question here is graded."
    ways = [Way("All that one model alone knows", questions(asked, "one"))] if counts[1] else []
    if n:
        nobody, everybody = share(counts[0], n), share(int(cases(of, tasks, "everybody").sum()), n)
        said = (
            f"{counts[1]:,} of {n:,} questions ({percent(counts[1] / n)}) are answered right by one model alone. "
            f"{_guess_words(float(falling.sum()), float(even.sum()), counts[1]) if options_known and counts[1] else ''}"
            f"{share_words(nobody.value or 0.0, nobody.ci95 or (0.0, 1.0))} are answered right by none, "
            f"{percent(everybody.value)} by all that answered."
        )
    return Answer(
        "alone",
        "Which questions does only one model know?",
        said,
        blocks,
        [
            *([BY_PARTS] * of.by_parts),
            "By the first reply of each model. A question that some model did not answer counts with those that did; "
            "one that fewer than two answered is left out. "
            f"There are {several(len(of.models), 'model')}.",
            "How many lone right answers may be luck is reckoned from the questions that nobody has right, where each "
            "answer is a guess. The first number: a wrong option that one model alone chose could as well have been "
            "the right one, so it counts as one right answer divided by the number of options that nobody chose. The "
            "second: had all models guessed evenly and each for itself, a wrong answer among K options would stand for "
            "1 / (K - 1) right ones. Real models share their mistakes, so the second is too high where it passes what "
            "was found."
            if options_known
            else "The questions list no options, so it cannot be reckoned how many of these guessing would give.",
        ],
        ways=ways,
    )
