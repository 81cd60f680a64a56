"""The table of published benchmarks that can be read: each with its fields, its grader, its splits, where it is
published, under which licence, and how many of it the paper uses."""

from __future__ import annotations

import datetime
import hashlib
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from core.pocket.tasks import normalise_question, split_of
from core.tasks.choices import options_of
from core.tasks.mathematics import math_answer
from core.tasks.numbers import read_number
from core.tasks.published_code import (
    LeftOut,
    bigcodebench_line,
    humaneval_line,
    livecodebench_line,
    mbpp_line,
)
from core.tasks.rows import ReadLine, Row
from core.texts import well_formed

LETTERS = "ABCDEFGHIJ"


@dataclass(frozen=True, slots=True)
class SplitRule:
    """Which split a row's task belongs to, and the rule in words. LeftOut for a row that belongs to none."""

    words: str
    split: Callable[[Row, str], str]


@dataclass(frozen=True, slots=True)
class PublishedSet:
    """A benchmark as it is published. A row is one of it that has a value in all of its `fields`, `a|b` being either,
    and of which `marks` holds. `sizes`: how many tasks it has, and how many the paper (TRINITY) uses."""

    name: str
    fields: tuple[str, ...]
    line: ReadLine
    grader: str
    splits: SplitRule
    source: str
    licence: str
    sizes: str
    marks: Callable[[Row], bool] = lambda row: True

    def missing(self, row: Row) -> list[str]:
        """The fields that a row lacks."""
        return [one for one in self.fields if not any(row.has(name) for name in one.split("|"))]

    def is_of(self, row: Row) -> bool:
        """Whether a row looks like one of this set."""
        return not self.missing(row) and self.marks(row)


# Splits. The paper says for LiveCodeBench alone which problems it learned on. The settings of its released run put a
# fifth of the other sets that it learned on into validation and a fifth into tests.

_SHARES = {"evolve": range(60), "validation": range(60, 80), "test": range(80, 100)}
_LEARNED = {"evolve": range(75), "validation": range(75, 100)}


def _by_file(row: Row, question: str) -> str:
    words = re.findall(r"[a-z]+", row.file.name.lower())
    if "test" in words:
        return "test"
    return split_of(question, _LEARNED if "train" in words else _SHARES)


#: The days of LiveCodeBench's first version and of what its sixth added.
_V1_ENDS, _V6_BEGINS = datetime.date(2024, 3, 31), datetime.date(2025, 1, 1)


def _by_version(row: Row, question: str) -> str:
    day = _day(row)
    version = 1 if day <= _V1_ENDS else 6 if day >= _V6_BEGINS else 0
    named = re.fullmatch(r"test(\d*)\.jsonl(?:\.gz)?", row.file.name)
    # The fifth version has problems of January 2025 too. Another's file may be called test.jsonl whatever it holds:
    # what the sixth has is not learned on.
    if named and {version, number := int(named[1] or 1)} != {1, 6}:
        version = number
    if version not in (1, 6):
        raise LeftOut("neither of version 1 nor new in version 6")
    return "test" if version == 6 else split_of(question, _LEARNED)


def _day(row: Row) -> datetime.date:
    value = row.fields.get("contest_date")
    if isinstance(value, datetime.date):
        return value.date() if isinstance(value, datetime.datetime) else value
    try:
        return datetime.date.fromisoformat(str(value)[:10])
    except ValueError:
        raise ValueError("has no 'contest_date' such as 2024-03-31, by which its version is told") from None


def _by_number(row: Row, question: str) -> str:
    if not (text := row.text("task_id")).isdecimal():
        raise ValueError(f"has the task_id '{text[:20]}', and those of MBPP are numbers")
    if (number := int(text)) <= 10:
        raise LeftOut("an example for prompts (tasks 1 to 10)")
    return "test" if number <= 510 else "validation" if number <= 600 else "evolve"


_BY_QUESTION = SplitRule(
    "evolve 60 %, validation 20 %, test 20 %, by the question's own text",
    lambda _, text: split_of(text, _SHARES),
)
_TEST = SplitRule("all in test: the paper learns on none of it", lambda *_: "test")
_BY_FILE = SplitRule(
    "by the file's name: test; train into evolve 75 % and validation 25 %; else 60, 20, 20 % by the question",
    _by_file,
)
_BY_VERSION = SplitRule(
    "version 1 (test.jsonl, to March 2024): evolve 75 %, validation 25 %; new in version 6 (test6.jsonl, from January "
    "2025): test; the rest is left out",
    _by_version,
)
_BY_NUMBER = SplitRule(
    "as published: tasks 11 to 510 test, 511 to 600 validation, the rest evolve", _by_number
)


# Questions and answers


def as_question(stem: str, options: Sequence[Any]) -> str:
    """A question with its options below it, by letter. ValueError, half a sentence, for options without a text."""
    if not 2 <= len(options) <= len(LETTERS):
        raise ValueError(f"has {len(options)} options: there may be 2 to {len(LETTERS)}")
    lines = list[str]()
    for letter, option in zip(LETTERS, options, strict=False):
        text = "" if option is None else well_formed(str(option).strip())
        if not text:
            raise ValueError(f"has no text for option {letter}")
        lines.append(f"{letter}) {text}")
    return "\n".join([f"{stem}\n", *lines])


def letter_of(answer: Any, count: int, *, from_zero: bool = True) -> str:
    """The letter of an answer that is a letter, or the place of one. ValueError, half a sentence, for another."""
    if isinstance(answer, str) and answer.strip().isdecimal():
        answer = int(answer)
    if isinstance(answer, int) and not isinstance(answer, bool):
        place = answer if from_zero else answer - 1
        if not 0 <= place < count:
            raise ValueError(
                f"has the answer {answer}, and {count} options counted from {0 if from_zero else 1}"
            )
        return LETTERS[place]
    letter = str(answer).strip().strip("()").upper()
    if len(letter) != 1 or letter not in LETTERS[:count]:
        raise ValueError(f"has the answer '{str(answer)[:20]}', and options A to {LETTERS[count - 1]}")
    return letter


def _options(row: Row, name: str) -> list[Any]:
    value = row.fields[name]
    if not isinstance(value, list):
        raise ValueError(f"needs a list of options for '{name}'")
    return value


def _math500(row: Row) -> dict[str, Any]:
    answer = row.text("answer")
    grader = "exact" if math_answer(answer) is None else "math"
    line = {"question": row.text("problem"), "answer": answer, "grader": grader, "id": row.text("unique_id")}
    return line | {"family": row.text("subject"), "level": row.text("level")}


def _mmlu(row: Row) -> dict[str, Any]:
    options = _options(row, "choices") if row.has("choices") else [row.fields.get(one) for one in "ABCD"]
    if len(options) != 4:
        raise ValueError(f"has {len(options)} options, and MMLU's questions have 4")
    subject = row.text("subject") if row.has("subject") else re.sub(r"_(test|val|dev)$", "", row.file.stem)
    return _choice(row.text("question"), options, letter_of(row.fields["answer"], 4), subject, "mmlu")


def _mmlu_pro(row: Row) -> dict[str, Any]:
    options = _options(row, "options")
    line = _choice(row.text("question"), options, "A", row.text("category"), "mmlu-pro")
    letter = letter_of(row.text("answer"), len(options))
    if row.has("answer_index") and letter_of(row.fields["answer_index"], len(options)) != letter:
        raise ValueError(f"has two answers: {letter}, and {row.fields['answer_index']} counted from 0")
    number = row.text("question_id") if row.has("question_id") else ""
    return line | {"answer": letter, "id": f"mmlu-pro-{number}".strip("-")}


def _choice(stem: str, options: Sequence[Any], letter: str, family: str, name: str) -> dict[str, Any]:
    question = as_question(stem, options)
    return {"question": question, "answer": letter, "grader": "choice", "family": family, "id": name}


_GPQA_OPTIONS = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")


def _gpqa(row: Row) -> dict[str, Any]:
    """The four answers in an order drawn by the question's own text: the same on every machine."""
    stem = row.text("Question")
    texts = [row.text(name) for name in _GPQA_OPTIONS]
    if len({" ".join(one.split()) for one in texts}) < len(texts):
        raise ValueError("has the same text for two of its options")
    order = [*range(len(texts))]
    seed = hashlib.sha256(f"gpqa/{normalise_question(stem)}".encode()).hexdigest()
    random.Random(seed).shuffle(order)
    domain = row.text("High-level domain") if row.has("High-level domain") else "gpqa"
    line = _choice(stem, [texts[place] for place in order], LETTERS[order.index(0)], domain, "gpqa")
    return line | ({"id": row.text("Record ID")} if row.has("Record ID") else {})


def _gsm8k(row: Row) -> dict[str, Any]:
    said, marks, answer = row.text("answer").rpartition("####")
    if not marks:
        raise ValueError("has no '####' before its answer")
    return {
        "question": row.text("question"),
        "answer": answer.strip().replace(",", ""),
        "grader": "number",
        "family": "gsm8k",
        "id": "gsm8k",
    }


def _aime(row: Row) -> dict[str, Any]:
    answer = re.sub(r"\s*(?:\^\s*\{?\\circ\}?|°)$", "", row.text("answer").strip("$ "))
    if not re.fullmatch(r"\d{1,3}", answer):
        raise ValueError(f"has the answer '{answer[:20]}', and those of AIME are whole numbers from 0 to 999")
    name = row.text("id") if row.has("id") else ""
    return {
        "question": row.text("problem", "question"),
        "answer": str(int(answer)),
        "grader": "number",
        "family": "aime",
        "id": f"aime-{name}".strip("-"),
    }


def _is_aime(row: Row) -> bool:
    """A question and a number may be of anything: its file, or its folder, has to say so."""
    return any("aime" in part.lower() for part in row.file.absolute().parts[-2:])


def _rlpr(row: Row) -> dict[str, Any]:
    """The user's messages as the question; graded by the rule that the reference answer allows."""
    prompt, model = row.fields["prompt"], row.fields["reward_model"]
    if isinstance(model, str):
        try:
            model = json.loads(model)
        except ValueError:
            raise ValueError("has a 'reward_model' that is not understood") from None
    if not isinstance(model, Mapping):
        raise ValueError("has a 'reward_model' that is not understood")
    answer = Row(model, row.where, row.file).text("ground_truth")
    question = prompt if isinstance(prompt, str) else "\n\n".join(_asked(prompt))
    if not question.strip():
        raise ValueError("has a prompt without a message of the user")
    source = row.text("data_source") if row.has("data_source") else "rlpr"
    grader = _rule(question, answer)
    line = {"question": question, "answer": answer, "grader": grader, "id": "rlpr", "source": source}
    return line | {"family": row.text("ability") if row.has("ability") else "rlpr"}


def _asked(prompt: Any) -> list[str]:
    if not isinstance(prompt, list) or not all(isinstance(one, Mapping) for one in prompt):
        raise ValueError("has a prompt that is no list of messages")
    return [str(one.get("content") or "") for one in prompt if one.get("role") == "user"]


def _rule(question: str, answer: str) -> str:
    if answer in options_of(question):
        return "choice"
    if read_number(answer) is not None:
        return "number"
    has_signs = re.search(r"[\\^_=+*/$]|\d", answer) is not None
    return "math" if has_signs and math_answer(answer) is not None else "exact"


def _is_rlpr(row: Row) -> bool:
    model = row.fields["reward_model"]
    return isinstance(model, str | Mapping) and "ground_truth" in model


def _mt_bench(row: Row) -> dict[str, Any]:
    """The first turn alone. The second asks about the reply that a model gave to the first, which is another one in
    each episode: no published text stands for it."""
    turns = _turns(row)
    references = row.fields.get("reference")
    first = references[0] if isinstance(references, list) and references else None
    number = row.text("question_id", "prompt_id") if row.has("question_id") or row.has("prompt_id") else ""
    return _judged(turns[0], first, {"family": row.text("category"), "id": f"mt-bench-{number}".strip("-")})


def _turns(row: Row) -> list[Any]:
    turns = row.fields["turns" if row.has("turns") else "prompt"]
    if not _is_mt_bench(row) or not turns or not turns[0].strip():
        raise ValueError("has no text for its first turn")
    return [*turns]


def _is_mt_bench(row: Row) -> bool:
    turns = row.fields["turns" if row.has("turns") else "prompt"]
    return isinstance(turns, list) and all(isinstance(one, str) for one in turns)


#: Tasks of MT-Bench-101 whose published last reply is a reference: mathematical and general reasoning.
_REFERENCED = ("MR", "GR")


def _mt_bench_101(row: Row) -> dict[str, Any]:
    """The last turn, after the published replies to the turns before it."""
    said, history = list[str](), row.fields["history"]
    if not _is_mt_bench_101(row):
        raise ValueError("has a 'history' that is no list of turns")
    for turn in history:
        own = Row(turn, row.where, row.file)
        said += [f"[user]\n{own.text('user')}", f"[assistant]\n{own.text('bot')}"]
    family, last = row.text("task"), Row(history[-1], row.where, row.file)
    question = last.text("user") if len(history) == 1 else "\n\n".join(said[:-1])
    reference = last.text("bot") if family in _REFERENCED else None
    return _judged(question, reference, {"family": family, "id": f"mt-bench-101-{row.text('id')}"})


def _is_mt_bench_101(row: Row) -> bool:
    history = row.fields["history"]
    return isinstance(history, list) and bool(history) and all(isinstance(one, Mapping) for one in history)


def _judged(question: str, reference: Any, more: dict[str, Any]) -> dict[str, Any]:
    """The line of a task that a judge rates, with a reference where there is a text for one."""
    line = {"question": well_formed(question.strip()), "grader": "judge", **more}
    has_reference = isinstance(reference, str) and bool(reference.strip())
    return line | ({"answer": well_formed(reference.strip())} if has_reference else {})


_TABLE = (
    PublishedSet(
        "math500",
        ("problem", "answer", "subject", "level", "unique_id"),
        _math500,
        "math; exact where the answer is words",
        _BY_QUESTION,
        "huggingface.co/datasets/HuggingFaceH4/MATH-500",
        "MIT",
        "500; the paper's test has 100",
    ),
    PublishedSet(
        "mmlu",
        ("question", "choices|A", "choices|D", "answer"),
        _mmlu,
        "choice",
        _BY_QUESTION,
        "huggingface.co/datasets/cais/mmlu, or github.com/hendrycks/test",
        "MIT",
        "15,858; the paper's test has about 1,531, as many as the file 'validation'",
    ),
    PublishedSet(
        "mmlu-pro",
        ("question", "options", "answer", "category"),
        _mmlu_pro,
        "choice",
        _BY_QUESTION,
        "huggingface.co/datasets/TIGER-Lab/MMLU-Pro",
        "MIT",
        "12,102; not in the paper",
    ),
    PublishedSet(
        "rlpr",
        ("prompt", "reward_model"),
        _rlpr,
        "number, choice, math or exact, by the reference answer",
        _BY_QUESTION,
        "huggingface.co/datasets/openbmb/RLPR-Train-Dataset",
        "see its page",
        "77,687; the paper's test has about 5,184",
        _is_rlpr,
    ),
    PublishedSet(
        "livecodebench",
        ("question_content", "public_test_cases", "private_test_cases"),
        livecodebench_line,
        "program",
        _BY_VERSION,
        "huggingface.co/datasets/livecodebench/code_generation_lite",
        "Creative Commons, as its page says",
        "1,055; the paper learns on 400 (version 1) and tests on 175 (version 6)",
    ),
    PublishedSet(
        "aime",
        ("problem|question", "answer"),
        _aime,
        "number",
        _TEST,
        "huggingface.co/datasets/opencompass/AIME2025, or math-ai/aime25",
        "the problems are the MAA's",
        "30; the paper tests on 2025's",
        _is_aime,
    ),
    PublishedSet(
        "bigcodebench",
        ("task_id", "instruct_prompt|complete_prompt", "test", "entry_point"),
        bigcodebench_line,
        "program",
        _TEST,
        "huggingface.co/datasets/bigcode/bigcodebench, or bigcodebench-hard",
        "Apache-2.0",
        "1,140, and 148 hard ones; the paper's percentages fit those 148",
    ),
    PublishedSet(
        "gpqa-diamond",
        ("Question", *_GPQA_OPTIONS),
        _gpqa,
        "choice",
        _TEST,
        "huggingface.co/datasets/Idavidrein/gpqa (gpqa_diamond.csv)",
        "CC BY 4.0; its authors ask not to show its questions on the web",
        "198; the paper tests on them",
    ),
    PublishedSet(
        "mt-bench",
        ("turns|prompt", "category"),
        _mt_bench,
        "judge: the first turn alone, as the second asks about a model's own reply to it",
        _TEST,
        "github.com/lm-sys/FastChat (llm_judge/data/mt_bench/question.jsonl), or "
        "huggingface.co/datasets/HuggingFaceH4/mt_bench_prompts",
        "Apache-2.0",
        "80; the paper tests on them",
        _is_mt_bench,
    ),
    PublishedSet(
        "mt-bench-101",
        ("task", "id", "history"),
        _mt_bench_101,
        "judge: the last turn, after the published replies to those before it",
        _BY_QUESTION,
        "github.com/mtbench101/mt-bench-101",
        "see its page",
        "1,388 dialogues; not in the paper",
        _is_mt_bench_101,
    ),
    PublishedSet(
        "gsm8k",
        ("question", "answer"),
        _gsm8k,
        "number",
        _BY_FILE,
        "huggingface.co/datasets/openai/gsm8k, or github.com/openai/grade-school-math",
        "MIT",
        "7,473 to learn on and 1,319 tests; not in the paper",
        lambda row: "####" in str(row.fields["answer"]),
    ),
    PublishedSet(
        "humaneval",
        ("task_id", "prompt", "entry_point", "test", "canonical_solution"),
        humaneval_line,
        "program",
        _TEST,
        "huggingface.co/datasets/openai/openai_humaneval, or github.com/openai/human-eval",
        "MIT",
        "164; not in the paper",
    ),
    PublishedSet(
        "mbpp",
        ("task_id", "text|prompt", "code", "test_list"),
        mbpp_line,
        "program",
        _BY_NUMBER,
        "huggingface.co/datasets/google-research-datasets/mbpp",
        "CC BY 4.0",
        "974; not in the paper",
    ),
)

#: Every set that can be read, by name.
PUBLISHED: Mapping[str, PublishedSet] = MappingProxyType({one.name: one for one in _TABLE})


def recognise(row: Row) -> list[PublishedSet]:
    """The sets that a row may be of, those with most fields alone: a row of HumanEval has those of others too."""
    found = [one for one in _TABLE if one.is_of(row)]
    most = max((len(one.fields) for one in found), default=0)
    return [one for one in found if len(one.fields) == most]
