"""The questions of an outcome table: lists of those that are a case of something, one of them with all its replies, and
how often our grades are the table's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core.episode import Task
from core.outcomes.matrix import CASES, CASES_OF_ONE, CASES_OF_TWO, Ints, cases
from core.tasks.sets import load_outcome_tasks
from ui.answers.asked import Asked, mark_words
from ui.answers.blocks import (
    Address,
    Answer,
    Choice,
    Code,
    Column,
    Estimates,
    Line,
    Mark,
    Table,
    Way,
)
from ui.answers.outcomes.subject import (
    counted,
    matrix,
    model_choice,
    questions,
    share,
    strongest,
    there,
    viewed,
)
from ui.presentation.theme import correct_mark, one_line, percent
from ui.presentation.words import several, share_words

#: So many questions are listed at a time.
MOST = 50
#: Of a key in words, so many characters.
_KEY = 60
#: A case of `core.outcomes.matrix.cases` -> its words, with the model (and the other one).
_WORDS = {
    "": "Every question",
    "nobody": "No model is right",
    "one": "One model alone is right",
    "some": "Some models are right, not all",
    "everybody": "All models are right",
    "right": "{model} is right",
    "wrong": "{model} is wrong",
    "only": "{model} alone is right",
    "unread": "No answer of {model} can be read",
    "failed": "{model} gave an error",
    "marks": "Our grade of {model} is not the table's mark",
    "missing": "{model} has no reply",
    "same": "Both answer the same",
    "differ": "They answer differently",
    "rescues": "{other} is right, {model} is not",
    "alike": "Both give the same wrong answer",
}


def tasks_of(asked: Asked) -> Sequence[Task]:
    """The table's tasks in order, their splits those of the fold."""
    of = viewed(asked)
    return load_outcome_tasks(f"outcomes:{of.table.card.name}@{of.fold}")


def listed(asked: Asked) -> Answer:
    """The questions that are a case, a page of them at a time; or the one that the reader has opened."""
    if asked.choices.get("task"):
        return _one(asked)
    of, order = matrix(asked), strongest(asked)
    domain = asked.choice(
        "domain",
        "Domain",
        {"": "Any domain", **{one: one for one in of.domains}},
        look="list",
        also={"at": None},
    )
    forgets = {"at": None, "case": None}
    model = model_choice(asked, "model", "Model", order, None, **forgets)
    a = of.models.index(model.value) if model.value else None
    others = [one for one in order if one != a]
    chosen = [domain, model]
    b = None
    if a is not None and of.comparable and others:
        chosen.append(model_choice(asked, "other", "Beside", others, None, **forgets))
        b = of.models.index(chosen[-1].value) if chosen[-1].value else None
    case = _case(asked, model.value, chosen[2].value if len(chosen) > 2 else "")
    tasks = counted(asked)
    if domain.value:
        tasks = tasks & (of.domain == of.domains.index(domain.value))
    which = np.flatnonzero(cases(of, tasks, case.value, a, b))
    pages = max(1, -(-len(which) // MOST))
    page = asked.choice("at", "Page", {str(i + 1): f"{i + 1} of {pages}" for i in range(pages)}, look="list")
    place = int(page.value)
    begin = MOST * (place - 1)
    shown = which[begin : begin + MOST]
    known = {name.name: name.value or None for name in (*chosen, case)}
    ways = [
        Way(words, there(asked, "questions", **known, at=str(at) if at > 1 else None))
        for words, at in (("Questions before these", place - 1), ("Questions after these", place + 1))
        if 1 <= at <= pages
    ]
    of_words = f" of {domain.value}" if domain.value else ""
    said = f"{case.options[case.value]}: {several(len(which), 'question')}{of_words}."
    if len(which) > MOST:
        said += f" These are {begin + 1:,} to {begin + len(shown):,}."
    table = questions_table(
        asked, shown, models=[one for one in (a, b) if one is not None], knows=case.value in ("one", "some")
    )
    hint = ["Click a question for all replies to it."] if len(shown) else []
    return Answer(
        "listed",
        "Which questions are these?",
        said,
        [*hint, table] if len(shown) else [],
        choices=[*chosen, case, page],
        ways=ways,
    )


def _case(asked: Asked, model: str, other: str) -> Choice:
    names = ["", *CASES, *(CASES_OF_ONE if model else ()), *(CASES_OF_TWO if other else ())]
    options = {name: _WORDS[name].format(model=model, other=other) for name in names}
    return asked.choice("case", "Which", options, look="list", also={"at": None})


def questions_table(
    asked: Asked,
    which: Ints,
    models: Sequence[int] = (),
    *,
    title: str = "",
    key: str = "questions",
    knows: bool = False,
    elsewhere: bool = False,
) -> Table:
    """Questions by their places in the table, each leads to its replies; with what `models` answered, or who `knows`
    it. `elsewhere`: they are not the list that the address narrows."""
    of, tasks = matrix(asked), tasks_of(asked)
    answers = {model: _answers(asked, which, model) for model in models}
    here = asked.choices

    def address(place: int) -> Address:
        kept = {name: here.get(name) or None for name in ("domain", "model", "other", "case", "at")}
        return there(asked, "questions", **({} if elsewhere else kept), task=tasks[place].id)

    def given(model: int) -> list[Column]:
        name = of.models[model]
        return [
            Column(f"answer_{name}", name, get=lambda place: answers[model][place]),
            Column(
                f"right_{name}",
                "",
                get=lambda place: mark_words(correct_mark(_grade(of.first[place, model]))),
            ),
        ]

    known = (of.first == 1).sum(axis=1)
    return Table.of(
        which.tolist(),
        Column("id", "Id", "id", lambda place: tasks[place].id),
        *([Column("knows", "Right", get=lambda place: _knowing(asked, place))] * knows),
        Column("question", "Question", get=lambda place: tasks[place].question or "no text in the table"),
        Column("domain", "Domain", get=lambda place: tasks[place].family),
        Column("key", "Key", get=lambda place: key_words(tasks[place])),
        *(column for model in models for column in given(model)),
        Column("right", "Right models", "count", lambda place: int(known[place])),
        Column("models", "Of", "count", lambda place: int((of.first[place] >= 0).sum())),
        title=title,
        key=key,
        leads=[address(place) for place in which.tolist()],
    )


def _grade(value: int) -> bool | None:
    return None if value < 0 else bool(value)


def _knowing(asked: Asked, place: int) -> str:
    of = matrix(asked)
    return ", ".join(of.models[model] for model in np.flatnonzero(of.first[place] == 1).tolist())


def _answers(asked: Asked, which: Ints, model: int) -> dict[int, str]:
    """What a model answered first to each of these questions, for a cell."""
    table = viewed(asked).table
    first, answers = table.first, table.texts["answer"]
    found = {}
    for place in which.tolist():
        row = int(first[place, model])
        found[place] = "no reply" if row < 0 else answers[row].as_py() or "no answer"
    return found


def key_words(task: Task) -> str:
    """The right answer of a task in a few words; nothing where the table says only which replies are right."""
    return "" if task.grader == "recorded" else one_line(task.answer, _KEY)


# One question


@dataclass(frozen=True, slots=True)
class Reply:
    """A recorded reply. `right` is what counts, `marked` what the table itself says; None where unknown."""

    model: str
    sample: int
    text: str
    answer: str | None
    right: bool | None
    marked: bool | None
    score: float | None
    tokens_in: float | None
    tokens_out: float | None
    cost: float | None
    seconds: float | None
    error: str


def find_task(asked: Asked, name: str) -> int | None:
    """The place of a task by its id; None for one that the table has not."""
    return viewed(asked).table.task_index.get(name)


def replies_of(asked: Asked, place: int) -> list[Reply]:
    """All replies to a question, in the order of models and samples."""
    table = viewed(asked).table
    begin = int(np.searchsorted(table.numbers["task"], place))
    end = int(np.searchsorted(table.numbers["task"], place, side="right"))
    texts, found = table.texts.slice(begin, end - begin).to_pylist(), []
    for row, text in zip(range(begin, end), texts, strict=True):
        numbers = {name: values[row].item() for name, values in table.numbers.items()}
        toll = {name: _known(values[row].item()) for name, values in table.toll.items()}
        found.append(
            Reply(
                table.card.models[numbers["model"]],
                numbers["sample"],
                text["reply"],
                text["answer"],
                _grade(numbers["right"]),
                _grade(numbers["marked"]),
                _known(numbers["score"]),
                toll["tokens_in"],
                toll["tokens_out"],
                toll["cost"],
                toll["seconds"],
                text["error"],
            )
        )
    return found


def _known(value: float) -> float | None:
    return value if np.isfinite(value) else None


def grader_words(task: Task) -> str:
    """By what the replies to a task were graded."""
    if task.grader == "recorded":
        return "the table's own marks"
    return f"our grader “{task.grader}”, against the key"


def _one(asked: Asked) -> Answer:
    """A question with what every model answered."""
    name = asked.choices["task"]
    this = Choice("task", "Question", {name: name}, name)
    kept = {one: asked.choices.get(one) or None for one in ("domain", "model", "other", "case", "at")}
    back = Way("Back to the list", there(asked, "questions", **kept))
    place = find_task(asked, name)
    question = "What did every model answer?"
    if place is None:
        said = f"This table has no question {one_line(name, 80)}."
        return Answer("question", question, said, choices=[this], ways=[back])
    task, found = tasks_of(asked)[place], replies_of(asked, place)
    graded = [one for one in found if one.right is not None]
    right = list(dict.fromkeys(one.model for one in graded if one.right))
    models = list(dict.fromkeys(one.model for one in graded))
    key = f" The key is {key_words(task)}." if key_words(task) else ""
    said = (
        f"{len(right)} of {several(len(models), 'model')} "
        f"{'is' if len(right) == 1 else 'are'} right{': ' * bool(right)}{', '.join(right)}.{key} "
        f"Domain {task.family}, {task.split} split of fold {viewed(asked).fold}; graded by {grader_words(task)}."
    )
    table = Table.of(
        found,
        Column("model", "Model", get=lambda one: one.model),
        Column("sample", "Sample", "count", lambda one: one.sample),
        Column("answer", "Answer", get=lambda one: one.answer or ("error" if one.error else "none read")),
        Column(
            "right",
            "Grade",
            get=lambda one: mark_words(correct_mark(one.right)),
            help="Our own, of the answer that is read from the reply: this one counts everywhere",
        ),
        Column(
            "marked",
            "The table's mark",
            help="As it was published; it counts nowhere",
            get=lambda one: mark_words(correct_mark(one.marked)),
        ),
        *([Column("score", "Score", "number", lambda one: one.score, places=3)] * matrix(asked).by_parts),
        Column("tokens_in", "Tokens in", "count", lambda one: one.tokens_in),
        Column("tokens_out", "Tokens out", "count", lambda one: one.tokens_out),
        Column("cost_usd", "Cost", "usd", lambda one: one.cost),
        Column("seconds", "Seconds", "number", lambda one: one.seconds, places=1),
        Column("error", "Error", get=lambda one: one.error),
        Column("reply", "Reply", "data", lambda one: one.text),
        key="replies",
    )
    return Answer(
        "question",
        question,
        said,
        [Code(task.question or "The table has no text of this question.", key="text"), table],
        choices=[this],
        ways=[back],
    )


# Grading


@dataclass(frozen=True, slots=True)
class _Graded:
    """How often our grade of a model's first reply is the table's own mark, of those that have both."""

    model: int
    n: int
    agree: int
    ours_alone: int
    theirs_alone: int


def grading(asked: Asked) -> Answer:
    """How often our grades agree with the table's own marks, by model."""
    of, tasks = matrix(asked), counted(asked)
    question = "Does our grading agree with the table's own marks?"
    found = []
    for model in strongest(asked):
        first, mark = of.first[tasks, model], of.marked[tasks, model]
        both = (first >= 0) & (mark >= 0)
        ours, theirs = int((both & (first > mark)).sum()), int((both & (first < mark)).sum())
        n = int(both.sum())
        found.append(_Graded(model, n, n - ours - theirs, ours, theirs))
    graded = [one for one in found if one.n]
    if not graded:
        return Answer("marks", question, "There is nothing to compare: the table has no marks of its own.")
    n, agree = sum(one.n for one in graded), sum(one.agree for one in graded)
    least = min(graded, key=lambda one: one.agree / one.n)
    lines = [
        Line(
            of.models[one.model],
            share(one.agree, one.n),
            Mark(to=questions(asked, "marks", model=of.models[one.model])),
        )
        for one in graded
    ]
    table = Table.of(
        graded,
        Column("model", "Model", get=lambda one: of.models[one.model]),
        Column("agree", "Agree", "estimate", lambda one: share(one.agree, one.n)),
        Column("differ", "Differ", "count", lambda one: one.n - one.agree),
        Column("ours", "Only we say right", "count", lambda one: one.ours_alone),
        Column("theirs", "Only the table does", "count", lambda one: one.theirs_alone),
        Column(
            "list",
            "Cases",
            "link",
            lambda one: questions(asked, "marks", model=of.models[one.model]) if one.agree < one.n else None,
        ),
        key="models",
    )
    graders = sorted({task.grader for task in tasks_of(asked)})
    own = (
        "" if graders != ["recorded"] else " The grades of this table are its own marks: they cannot differ."
    )
    rate = share(least.agree, least.n)
    said = (
        f"In {percent(agree / n)} of {n:,} replies; {n - agree:,} differ. Least for {of.models[least.model]}, "
        f"{share_words(rate.value or 0.0, rate.ci95 or (0.0, 1.0))}.{own}"
    )
    return Answer(
        "marks",
        question,
        said,
        [Estimates(lines, "the same grade, 95 % interval", zoomed=True), table],
        [
            "By first replies that have a grade and a mark. Grades are ours wherever a key is known "
            f"({', '.join(graders)}): the answer is read from the reply and compared with the key. Elsewhere on this "
            "page our grade counts; the table's mark stands beside it."
        ],
    )
