"""Outcomes as others publish them: MMLU-Pro, ZeroEval, lm-eval-harness, Inspect."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from core.outcomes.kinds import (
    LETTERS,
    Answered,
    Asked,
    Kind,
    Looked,
    Report,
    Wishes,
    dict_of,
    has,
    listed,
    number_of,
    text_of,
    with_options,
)
from core.tasks.sources import Source, json_items, json_lines, json_object

# MMLU-Pro


def _mmlu_pro(looked: Sequence[Looked], wishes: Wishes, report: Report) -> Iterator[Answered]:
    """`model_outputs_MODEL_5shots`: a list of objects with question, options, answer (a letter), category, the reply,
    and `pred`, the letter that they read; null where they drew one at random, which is no mark."""
    for one in looked:
        name = re.sub(r"^model_outputs_|_\d+shots?$", "", one.source.stem)
        for number, entry in json_items(one.source):
            if not isinstance(entry, dict):
                report.add("entries of files are no objects and are left out")
                continue
            options, key = listed(entry.get("options")), text_of(entry.get("answer"))
            if not options or not isinstance(entry.get("question"), str):
                one.source.refuse("lacks its question or its options.", number)
            place = LETTERS.find(key) if len(key) == 1 else -1
            if not 0 <= place < len(options):
                report.add("answers have a key that is none of the options and are left out")
                continue
            if entry.get("answer_index") not in (None, place):
                report.add("answers have two keys, a letter and another number, and are left out")
                continue
            reply = text_of(entry.get("model_outputs", entry.get("generated_text")))
            said = text_of(entry.get("pred")) or None
            if said is not None and not _stands(said, reply):
                report.add(
                    "letters that the table reads stand nowhere in the reply: they are marks and no answers"
                )
            yield Answered(
                Asked(
                    f"q{entry.get('question_id', number)}",
                    with_options(entry["question"], options),
                    key,
                    "choice",
                    text_of(entry.get("category")),
                    len(options),
                ),
                wishes.model or name,
                reply=reply,
                answer=said if said is not None and _stands(said, reply) else None,
                marked=None if said is None else said == key,
            )


def _stands(letter: str, reply: str) -> bool:
    """Whether a reply has a letter as that of an option. Their reader takes the last capital there is, such as the I of
    "I cannot tell", and of a reply that was cut off one at random."""
    form = (
        r"[(\[]{0}[)\]]|(?<![A-Za-z]){0}[).:\]]|(?:answer|option|choice)(?: is)?:? ?\W{{0,3}}{0}(?![A-Za-z])"
    )
    return re.search(form.format(re.escape(letter)), reply) is not None


# ZeroEval

#: How the answers to its tasks are graded.
_ZEROEVAL = {"gsm": "number", "math-l5": "math", "math": "math", "crux": "code", "mmlu-redux": "choice"}


def _zeroeval(looked: Sequence[Looked], wishes: Wishes, report: Report) -> Iterator[Answered]:
    """A list of objects for each model: question (or problem), answer, `output`, a list of replies, and the name of the
    task in `dataset`. The file is named for the model. No marks are published with it."""
    for one in looked:
        for number, entry in json_items(one.source):
            if not isinstance(entry, dict):
                report.add("entries of files are no objects and are left out")
                continue
            question = entry.get("question") or entry.get("problem")
            replies = listed(entry.get("output")) or [text_of(entry.get("output"))]
            if not isinstance(question, str) or "answer" not in entry:
                one.source.refuse("has no question, or no answer to it.", number)
            dataset, options = (
                text_of(entry.get("dataset")),
                listed(entry.get("choices", entry.get("options"))),
            )
            task = Asked(
                text_of(entry.get("id", number)),
                with_options(question, options),
                text_of(entry["answer"]).lstrip("# ").strip(),
                _ZEROEVAL.get(dataset, ""),
                dataset,
                len(options),
            )
            for sample, reply in enumerate(replies):
                yield Answered(task, wishes.model or one.source.stem, sample, reply)


# lm-eval-harness

#: Its metrics of a single answer, the first that there is counts.
_METRICS = ("exact_match", "acc", "pass@1", "pass_at_1", "em", "acc_norm", "score")


def _harness(looked: Sequence[Looked], wishes: Wishes, report: Report) -> Iterator[Answered]:
    """`samples_TASK_TIME.jsonl`, a line for each question of one model, whose name stands in `results_*.json` beside
    it. Of several filters of the same replies the first one counts."""
    results = [one for one in looked if one.form == "object"]
    for one in looked:
        if one.form == "object":
            continue
        model = wishes.model or _model_of(one.source, results)
        task_name = re.sub(r"^samples_|_\d{4}-\d\d-\d\dT.*$", "", one.source.stem)
        for number, line in json_lines(one.source):
            first = line.get("filter", "") == one.first.get("filter", "")
            if not first:
                report.add("lines repeat a reply with another filter and are left out")
                continue
            doc = dict_of(line.get("doc"))
            options, scores = _choices(doc), _log_likelihoods(line.get("resps"))
            question = _question_of(doc, line)
            key = text_of(line.get("target")).strip()
            marks = [number_of(line.get(name)) for name in _METRICS if name in line]
            if scores:  # the likeliest option is the answer
                options = options or [str(place) for place in range(len(scores))]
                best = max(range(len(scores)), key=scores.__getitem__)
                key = LETTERS[int(key)] if key.isdigit() and int(key) < len(options) else key
                replies, grader, said = [LETTERS[best]], "choice", [LETTERS[best]]
            else:
                replies = _replies(line.get("resps"))
                said = _replies(line.get("filtered_resps"))
                key, grader = key.rpartition("####")[2].strip(), "math" if "math" in task_name else ""
            task = Asked(
                f"{task_name}-{line.get('doc_id', number)}",
                with_options(question, options) if question else "",
                key or None,
                grader,
                text_of(doc.get("subject") or doc.get("category")) or task_name,
                len(options),
            )
            score = next((mark for mark in marks if mark is not None), None)
            only = len(replies) == 1
            for sample, reply in enumerate(replies):
                read = said[sample] if sample < len(said) and said[sample] != "[invalid]" else None
                yield Answered(
                    task,
                    model,
                    sample,
                    reply,
                    read,
                    marked=None if score is None or not only else score == 1,
                    score=score if only else None,
                )


def _model_of(source: Source, results: Sequence[Looked]) -> str:
    """The model that was asked: as the results file says that lies in the same folder."""
    near = [one for one in results if one.source.path.parent == source.path.parent]
    if not near:
        paths = sorted(source.path.parent.glob("results_*.json")) if not source.member else []
        near = [Looked(Source(path), "object", json_object(Source(path)) or {}) for path in paths]
    names = {name for one in near if (name := _model_in(one.first))}
    if len(names) != 1:
        source.refuse(
            f"does not name its model, and {len(names)} results_*.json beside it do: name it by --model, and add one "
            "file at a time."
        )
    return names.pop()


def _model_in(results: Mapping[str, Any]) -> str:
    config = dict_of(results.get("config"))
    named = re.search(r"(?:pretrained|model)=([^,]+)", text_of(config.get("model_args")))
    return text_of(results.get("model_name")) or (named[1] if named else text_of(config.get("model")))


def _choices(doc: Mapping[str, Any]) -> list[str]:
    found = doc.get("choices", doc.get("options", doc.get("endings")))
    return listed(found.get("text") if isinstance(found, dict) else found)


def _question_of(doc: Mapping[str, Any], line: Mapping[str, Any]) -> str:
    for name in ("question", "problem", "query", "input", "prompt", "ctx", "text"):
        if isinstance(doc.get(name), str) and doc[name].strip():
            return str(doc[name])
    asked = line.get("arguments")
    with suppress(LookupError, TypeError, StopIteration):
        return text_of(asked["gen_args_0"]["arg_0"] if isinstance(asked, dict) else asked[0][0])  # type: ignore[index]
    return ""


def _log_likelihoods(found: Any) -> list[float]:
    """One for each option; nothing where replies are texts."""
    scores: list[float] = []
    for one in found if isinstance(found, list) else []:
        while isinstance(one, list) and len(one) == 1:
            one = one[0]
        if not (isinstance(one, list) and len(one) == 2 and str(one[1]) in ("True", "False")):
            return []
        value = number_of(one[0])
        scores.append(float("-inf") if value is None else value)
    return scores


def _replies(found: Any) -> list[str]:
    while isinstance(found, list) and len(found) == 1 and isinstance(found[0], list):
        found = found[0]
    return [text_of(one) for one in found] if isinstance(found, list) else [text_of(found)]


# Inspect

#: What its scorers write for right and wrong.
_GRADES = {"C": 1.0, "I": 0.0, "N": 0.0, "P": 0.5, "true": 1.0, "false": 0.0}


def _inspect(looked: Sequence[Looked], wishes: Wishes, report: Report) -> Iterator[Answered]:
    """An `.eval` log: a zip archive with the head of the log and a file for each question and epoch of one model."""
    for one in looked:
        head = _log_head(one.source)
        name = text_of(head.get("eval", {}).get("model"))
        family = text_of(head.get("eval", {}).get("task"))
        with zipfile.ZipFile(one.source.path) as archive:
            members = [member for member in archive.namelist() if re.fullmatch(r"samples/.+\.json", member)]
        for member in sorted(members, key=_epoch_last):
            entry = json_object(Source(one.source.path, member))
            if not isinstance(entry, dict) or "input" not in entry:
                one.source.refuse(f"holds a {member} that is no sample of a log: fetch it again.")
            yield _sample(entry, wishes.model or name or one.source.stem, family.rpartition("/")[2], report)


def _epoch_last(member: str) -> tuple[int, int, str]:
    found = re.fullmatch(r"samples/(.+)_epoch_(\d+)\.json", member)
    name, epoch = (found[1], int(found[2])) if found else (member, 0)
    return epoch, int(name) if name.isdigit() and len(name) < 10 else 0, name


def _log_head(source: Source) -> dict[str, Any]:
    for member in ("header.json", "_journal/start.json"):
        try:
            found = json_object(Source(source.path, member))
        except KeyError:
            continue
        if isinstance(found, dict):
            return dict(found)
    return source.refuse("has no head: it is no whole log of Inspect.")


def _sample(entry: Mapping[str, Any], model: str, family: str, report: Report) -> Answered:
    kept = dict_of(entry.get("attachments"))
    asked = entry["input"]
    if isinstance(asked, list):
        asked = "\n\n".join(text_of(one.get("content")) for one in asked if isinstance(one, dict))
    asked = re.sub(r"attachment://(\w+)", lambda it: text_of(kept.get(it[1], it[0])), text_of(asked))
    options, target = listed(entry.get("choices")), entry.get("target")
    keys = [text_of(one).strip() for one in (target if isinstance(target, list) else [target])]
    if len(keys) > 1:
        report.add("answers belong to questions with several right answers: their marks stand for a key")
    scores = dict_of(entry.get("scores"))
    scorer, first = next(iter(scores.items()), ("", None))
    score = dict_of(first)
    value = score.get("value", first)
    grade = _GRADES.get(str(value).lower() if isinstance(value, bool) else str(value), number_of(value))
    output = dict_of(entry.get("output"))
    usage = dict_of(output.get("usage"))
    return Answered(
        Asked(
            text_of(entry.get("id")),
            with_options(asked, options),
            # What a model judged, no rule of ours can.
            keys[0] if len(keys) == 1 and keys[0] and "model_graded" not in scorer else None,
            "choice" if options else "",
            family,
            len(options),
        ),
        model,
        max(0, int(number_of(entry.get("epoch")) or 1) - 1),
        text_of(output.get("completion")),
        text_of(score.get("answer")) or None,
        marked=None if grade is None else grade == 1,
        score=grade,
        tokens_in=number_of(usage.get("input_tokens")),
        tokens_out=number_of(usage.get("output_tokens")),
        seconds=number_of(output.get("time")) or number_of(entry.get("total_time")),
        error=text_of(dict_of(entry.get("error")).get("message")),
    )


PUBLISHED = (
    Kind(
        "mmlu-pro",
        "MMLU-Pro's model_outputs_*.zip",
        lambda it: it.form == "list" and has(it, "question", "options", "pred"),
        _mmlu_pro,
    ),
    Kind(
        "zeroeval",
        "ZeroEval's JSON",
        lambda it: (
            it.form == "list"
            and has(it, "output", "answer")
            and ("generator" in it.first or "dataset" in it.first)
        ),
        _zeroeval,
    ),
    Kind(
        "lm-eval",
        "samples of lm-eval-harness",
        lambda it: it.form == "lines" and has(it, "doc", "resps"),
        _harness,
        lambda it: (
            it.form == "object" and has(it, "results") and ("config" in it.first or "model_name" in it.first)
        ),
    ),
    Kind("inspect", "an .eval log of Inspect", lambda it: it.form == "eval", _inspect),
)
