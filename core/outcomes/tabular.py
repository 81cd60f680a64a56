"""Outcomes in tables of one's own: long CSV, a row for each task and model; wide CSV, a row for each task and a column
for each model; JSON Lines and Parquet in our own format."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from core.errors import ConfigError
from core.outcomes.kinds import (
    Answered,
    Asked,
    Item,
    Judged,
    Kind,
    Looked,
    Planned,
    Report,
    Wishes,
    number_of,
    text_of,
)
from core.tasks.sources import Source, csv_rows, delimiter_of, json_lines, parquet_rows

#: What a column of a CSV can be, each with the names by which it is known without `--columns`. `key` is the right
#: answer, `answer` the model's.
COLUMNS: dict[str, tuple[str, ...]] = {
    "task": ("task", "task_id", "question_id", "prompt_id", "sample_id", "id"),
    "model": ("model", "model_name", "model_id"),
    "score": ("score", "performance", "resolved", "correct", "is_correct", "right", "accuracy", "reward"),
    "cost": ("cost", "cost_usd", "total_cost"),
    "tokens_in": ("tokens_in", "input_tokens", "in_tok", "prompt_tokens"),
    "tokens_out": ("tokens_out", "output_tokens", "out_tok", "completion_tokens"),
    "seconds": ("seconds", "latency_s", "latency"),
    "milliseconds": ("milliseconds", "latency_ms"),
    "sample": ("sample", "trial", "epoch"),
    "reply": ("reply", "response", "output", "completion"),
    "answer": ("answer", "prediction", "pred"),
    "key": ("key", "expected", "target", "gold", "reference"),
    "question": ("question", "prompt"),
    "family": ("family", "dimension", "domain", "category", "subject"),
    "grader": ("grader",),
    "error": ("error",),
}
_TRUTHS = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0}
_UNKNOWN = frozenset(("", "null", "none", "na", "n/a", "-"))


def _places(one: Looked, wishes: Wishes) -> dict[str, int]:
    """Which column of a CSV is what: as the user says, else by its name."""
    if unknown := sorted(wishes.columns.keys() - COLUMNS.keys()):
        raise ConfigError(f"--columns does not know '{unknown[0]}': choose among {', '.join(COLUMNS)}.")
    small = {name.casefold(): place for name, place in reversed(list(one.first.items()))}
    found = {}
    for ours, names in COLUMNS.items():
        given = wishes.columns.get(ours)
        if given is not None and "|" not in given:
            if given not in one.first:
                raise ConfigError(
                    f"{one.source.name} has no column '{given}': it has {', '.join(one.first)[:300]}."
                )
            found[ours] = one.first[given]
        elif given is None and (known := [small[name] for name in names if name in small]):
            found[ours] = known[0]
    return found


def _is_long(one: Looked) -> bool:
    if one.form != "csv":
        return False
    places = _places(one, Wishes())
    return "model" in places and "task" in places


def _number(cell: str, comma: bool) -> float | None:
    """A number as a CSV has it; NaN for what is none."""
    cell = cell.strip()
    if cell.casefold() in _UNKNOWN:
        return None
    if cell.casefold() in _TRUTHS:
        return _TRUTHS[cell.casefold()]
    if comma and re.fullmatch(r"[-+]?\d+,\d+", cell):
        cell = cell.replace(",", ".")
    return float(cell) if re.fullmatch(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?", cell) else math.nan


def _long(looked: Sequence[Looked], wishes: Wishes, report: Report) -> Iterator[Answered]:
    """A row for each task and model, with its score. Questions come from a column, or from JSON Lines beside it that
    have `task_id` and `prompt`."""
    asked = _prompts(looked)
    for one in looked:
        if one.form != "csv":
            continue
        places, comma = _places(one, wishes), delimiter_of(one.source) == ";"
        for needed in ("task", "model"):
            if needed not in places:
                raise ConfigError(
                    f"{one.source.name} has no column for the {needed}: name it by --columns {needed}=COLUMN, as in "
                    f"{', '.join(one.first)[:200]}."
                )
        if not places.keys() & {"score", "answer", "reply"}:
            raise ConfigError(
                f"{one.source.name} has no column for the score: name it by --columns score=COLUMN."
            )
        rows = csv_rows(one.source)
        next(rows)
        for line, cells in rows:
            row = {name: cells[place] for name, place in places.items()}
            item = _answered(row, asked.get(row["task"].strip()), one.source, line, comma)
            if item.marked is None and not (item.reply or item.answer or item.error):
                report.add("rows have no score and are left out")
                continue
            yield item


def _answered(
    row: Mapping[str, str], known: Asked | None, source: Source, line: int, comma: bool
) -> Answered:
    def number(name: str) -> float | None:
        return _number(row.get(name, ""), comma)

    score = None if row.get("score", "").strip().casefold() == "nan" else number("score")
    if score is not None and not 0 <= score <= 1:  # also what is no number, such as a formula
        source.refuse(f"has '{row['score'].strip()[:40]}' for a score: write a number from 0 to 1.", line)
    seconds, milliseconds = number("seconds"), number("milliseconds")
    question, key = row.get("question", "").strip(), row.get("key", "").strip()
    sample = number("sample")
    task = known or Asked(row["task"].strip())
    task = replace(
        task,
        question=question or task.question,
        answer=key or task.answer,
        grader=row.get("grader", "").strip() or task.grader,
        family=row.get("family", "").strip() or task.family,
    )
    return Answered(
        task,
        row["model"].strip(),
        int(sample) if sample is not None and math.isfinite(sample) else 0,
        row.get("reply", ""),
        row.get("answer", "").strip() or None,
        None if score is None else score == 1,
        score,
        number("tokens_in"),
        number("tokens_out"),
        number("cost"),
        seconds if milliseconds is None else milliseconds / 1000,
        row.get("error", "").strip(),
    )


def _prompts(looked: Sequence[Looked]) -> dict[str, Asked]:
    """The questions of files beside a CSV, by the task's id."""
    found: dict[str, Asked] = {}
    for one in looked:
        if one.form != "lines":
            continue
        for _, line in json_lines(one.source):
            name = text_of(line.get("task_id", line.get("task")))
            found[name] = Asked(
                name,
                text_of(line.get("prompt", line.get("question"))).strip(),
                text_of(line.get("key")) or None,
                text_of(line.get("grader")),
                text_of(next((line[one] for one in COLUMNS["family"] if one in line), "")),
            )
    return found


def prices_of(looked: Sequence[Looked]) -> dict[str, tuple[float, float]]:
    """Prices of models in USD per million tokens, in and out, as a file beside says them."""
    found = {}
    for one in looked:
        models = one.first.get("models") if one.form == "object" else None
        for model in models if isinstance(models, list) else []:
            if isinstance(model, dict) and isinstance(model.get("model"), str):
                sent, said = (number_of(model.get(f"{way}_per_1m")) for way in ("input", "output"))
                if (
                    sent is not None
                    and said is not None
                    and min(sent, said) >= 0
                    and max(sent, said) < math.inf
                ):
                    found[model["model"]] = (sent, said)
    return found


def _wide(looked: Sequence[Looked], wishes: Wishes, report: Report) -> Iterator[Answered]:
    """A row for each task, a column for each model with its score from 0 to 1, or with its answer where a column `key`
    (or `answer`) holds the right ones. Scores they are where all of them are numbers from 0 to 1 and a key is not."""
    for one in looked:
        places, comma = _places(one, wishes), delimiter_of(one.source) == ";"
        if "key" not in places and "answer" in places:
            places["key"] = places["answer"]
        own = {places[name] for name in ("task", "question", "key", "family", "grader") if name in places}
        models = {name: place for name, place in one.first.items() if place not in own}
        if chosen := [name for name in wishes.columns.get("model", "").split("|") if name]:
            if lacking := [name for name in chosen if name not in one.first]:
                raise ConfigError(f"{one.source.name} has no column '{lacking[0]}' for a model.")
            models = {name: one.first[name] for name in chosen}
        if not models or not own & {places.get("task"), places.get("question")}:
            one.source.refuse(
                "has no column for the task, or none for a model: name the first by --columns task=COLUMN."
            )
        scored = _holds_scores(one, places, models, comma)
        rows = csv_rows(one.source)
        next(rows)
        for line, cells in rows:
            row = {name: cells[place].strip() for name, place in places.items() if place in own}
            task = Asked(
                row.get("task") or f"line-{line}",
                row.get("question", ""),
                row.get("key") or None,
                row.get("grader", ""),
                row.get("family", ""),
            )
            for name, place in models.items():
                cell = cells[place].strip()
                if cell.casefold() in (*_UNKNOWN, "nan"):
                    report.add("cells are empty: the model has no answer to that task")
                    continue
                if not scored:
                    yield Answered(task, name, answer=cell)
                    continue
                score = _number(cell, comma)
                if score is None or not 0 <= score <= 1:
                    one.source.refuse(
                        f"has '{cell[:40]}' in column {name}, where a model's score from 0 to 1 is expected: name the "
                        "models' columns by --columns model='A|B'.",
                        line,
                    )
                yield Answered(task, name, marked=score == 1, score=score)


def _holds_scores(one: Looked, places: Mapping[str, int], models: Mapping[str, int], comma: bool) -> bool:
    if "key" not in places:
        return True
    rows = csv_rows(one.source)
    next(rows)
    keys_too = True
    for _, cells in rows:
        numbers = [_number(cells[place], comma) for place in models.values()]
        cells_known = [
            value
            for value, place in zip(numbers, models.values(), strict=True)
            if cells[place].strip().casefold() != "nan"
        ]
        if not all(value is None or 0 <= value <= 1 for value in cells_known):
            return False
        key = _number(cells[places["key"]], comma)
        keys_too = keys_too and key is not None and 0 <= key <= 1
    return not keys_too


# Our own format

_FIELDS: dict[str, frozenset[str]] = {
    "task": frozenset(("task", "question", "answer", "tests", "grader", "family")),
    "verdict": frozenset(("task", "model", "judged", "verdict", "reply")),
    "plan": frozenset(("task", "model", "plan")),
    "outcome": frozenset(
        "task model sample reply answer right score tokens_in tokens_out cost seconds error".split()  # noqa: SIM905
    ),
}


def _own(looked: Sequence[Looked], wishes: Wishes, report: Report) -> Iterator[Item]:
    """Lines (or rows of Parquet) of four sorts: tasks, which have a question; outcomes; verdicts; plans."""
    asked: dict[str, Asked] = {}
    for one, number, row in _all_rows(looked):
        if "question" in row:
            task = _own_task(row, one.source, number)
            if (known := asked.setdefault(task.name, task)) != task:
                what = "two keys" if known.answer != task.answer else "two questions"
                one.source.refuse(f"gives the task '{task.name[:60]}' {what}: keep one.", number)
    for one, number, row in _all_rows(looked):
        if "question" not in row:
            yield _own_item(row, asked, one.source, number)


def _all_rows(looked: Sequence[Looked]) -> Iterator[tuple[Looked, int, Mapping[str, Any]]]:
    for one in looked:
        rows: Callable[[Source], Iterator[tuple[int, Mapping[str, Any]]]] = (
            parquet_rows if one.form == "parquet" else json_lines
        )
        for number, row in rows(one.source):
            sort = next((name for name in ("verdict", "plan") if name in row), "outcome")
            unknown = row.keys() - _FIELDS["task" if "question" in row else sort]
            if unknown:
                one.source.refuse(
                    f"has a field '{min(unknown)[:60]}' that is not understood: leave it out.", number
                )
            yield one, number, row


def _own_task(row: Mapping[str, Any], source: Source, number: int) -> Asked:
    name, question = text_of(row.get("task")).strip(), text_of(row["question"]).strip()
    if not name or not question:
        source.refuse("needs texts for 'task' and 'question'.", number)
    key = (
        json.dumps(row["tests"], ensure_ascii=False) if "tests" in row else text_of(row.get("answer")).strip()
    )
    return Asked(
        name,
        question,
        key or None,
        text_of(row.get("grader")).strip(),
        text_of(row.get("family")).strip(),
    )


def _own_item(row: Mapping[str, Any], asked: Mapping[str, Asked], source: Source, number: int) -> Item:
    name, model = text_of(row.get("task")).strip(), text_of(row.get("model")).strip()
    if not name or not model:
        source.refuse("needs texts for 'task' and 'model'.", number)
    if asked and name not in asked:
        source.refuse(f"names the task '{name[:60]}', which no line describes: add its question.", number)
    task = asked.get(name, Asked(name))
    if "verdict" in row:
        verdict = text_of(row["verdict"]).strip().upper()
        if verdict not in ("ACCEPT", "REVISE") or not isinstance(row.get("judged"), str):
            source.refuse("needs ACCEPT or REVISE for 'verdict', and the answer for 'judged'.", number)
        return Judged(task, model, row["judged"].strip(), verdict, text_of(row.get("reply")))
    if "plan" in row:
        return Planned(task, model, text_of(row["plan"]))
    right, score, sample = row.get("right"), row.get("score"), row.get("sample", 0)
    if right is not None and not isinstance(right, bool):
        source.refuse("needs true or false for 'right'.", number)
    if isinstance(sample, bool) or not isinstance(sample, int) or not 0 <= sample < 2**15:
        source.refuse("needs a number from 0 for 'sample'.", number)
    value = number_of(score)
    if score is not None and (value is None or not 0 <= value <= 1):
        source.refuse("needs a number from 0 to 1 for 'score'.", number)
    given = row.get("answer")
    return Answered(
        task,
        model,
        sample,
        text_of(row.get("reply")),
        None if given is None else text_of(given).strip() or None,
        right if right is not None else None if value is None else value == 1,
        value,
        number_of(row.get("tokens_in")),
        number_of(row.get("tokens_out")),
        number_of(row.get("cost")),
        number_of(row.get("seconds")),
        text_of(row.get("error")),
    )


def _is_own(one: Looked) -> bool:
    return (
        one.form in ("lines", "parquet")
        and "task" in one.first
        and bool(one.first.keys() & {"question", "model"})
    )


OWN = (
    Kind(
        "long-csv",
        "a CSV with a row for each task and model",
        _is_long,
        _long,
        lambda it: (it.form == "lines" and "task_id" in it.first) or bool(prices_of([it])),
    ),
    Kind("own", "our own JSON Lines or Parquet", _is_own, _own),
    Kind(
        "wide-csv",
        "a CSV with a column for each model",
        lambda it: it.form == "csv" and not _is_long(it),
        _wide,
    ),
)
