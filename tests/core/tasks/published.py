"""Small files in the schemas in which benchmarks are published, with questions of our own."""

from __future__ import annotations

import base64
import csv
import gzip
import json
import pickle
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Rows = Sequence[Mapping[str, Any]]


def packed(tests: Any) -> str:
    """Private tests as LiveCodeBench packs them."""
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()


def lcb(name: str, **more: Any) -> dict[str, Any]:
    """A problem that reads and prints: the sum of a line."""
    public = [{"input": "3 4\n", "output": "7\n", "testtype": "stdin"}]
    private = [{"input": "10 -4\n", "output": "6\n", "testtype": "stdin"}]
    return {
        "question_title": name,
        "question_content": f"Print the sum of the numbers in the line. [{name}]",
        "platform": "atcoder",
        "question_id": name,
        "contest_id": "own1",
        "contest_date": "2023-08-21T00:00:00",
        "starter_code": "",
        "difficulty": "easy",
        "public_test_cases": json.dumps(public),
        "private_test_cases": packed(private),
        "metadata": "{}",
    } | more


def lcb_function(name: str, **more: Any) -> dict[str, Any]:
    """A problem of a method: the sum of two lists, each argument a line of JSON."""
    tests = [{"input": "[1, 2]\n[3]", "output": "[6, true]", "testtype": "functional"}]
    starter = "class Solution:\n    def total(self, a: List[int], b: List[int]) -> List[int]:\n        "
    given = {
        "question_content": f"Return the sum of both lists, and whether it is even. [{name}]",
        "platform": "leetcode",
        "starter_code": starter,
        "public_test_cases": json.dumps(tests),
        "private_test_cases": packed(tests),
        "metadata": json.dumps({"func_name": "total"}),
    }
    return lcb(name) | given | more


#: Two rows or more of each set, in its own fields.
SETS: dict[str, list[dict[str, Any]]] = {
    "math500": [
        {
            "problem": f"Compute $\\frac{{1}}{{{n}}}$.",
            "solution": "Divide.",
            "answer": f"\\frac{{1}}{{{n}}}",
            "subject": "Algebra",
            "level": 1 + n % 5,
            "unique_id": f"test/algebra/{n}.json",
        }
        for n in range(2, 62)
    ]
    + [
        {
            "problem": "Who is taller?",
            "solution": "Look.",
            "answer": "\\text{Ida}",
            "subject": "Logic",
            "level": 1,
            "unique_id": "test/logic/1.json",
        }
    ],
    "mmlu": [
        {
            "question": f"Which is {n} + 1?",
            "subject": "sums",
            "choices": [f"{n}", f"{n + 1}", f"{n + 2}", "none"],
            "answer": 1,
        }
        for n in range(20)
    ],
    "mmlu-pro": [
        {
            "question_id": 70 + n,
            "question": f"Which is twice {n}?",
            "options": [f"{n + k}" for k in range(3, 10)] + [f"{2 * n} exactly"],
            "answer": "H",
            "answer_index": 7,
            "cot_content": "",
            "category": "math",
            "src": "own",
        }
        for n in range(20)
    ],
    "rlpr": [
        {
            "data_source": "own",
            "prompt": [
                {"role": "system", "content": "Think first."},
                {"role": "user", "content": question},
            ],
            "ability": "physics",
            "reward_model": {"ground_truth": answer, "style": "rule"},
            "extra_info": {"index": place},
        }
        for place, (question, answer) in enumerate(
            [
                ("How many metres are in a kilometre?", "1000"),
                ("Which is right?\nA) red\nB) blue", "B"),
                ("Give the energy of a mass at rest.", "$mc^2$"),
                ("What do plants breathe in?", "carbon dioxide"),
            ]
        )
    ],
    "livecodebench": [lcb(f"p{n}") for n in range(8)] + [lcb_function("f1")],
    "aime": [
        {"problem": f"Find n + {n} for n = 100.", "answer": f"{100 + n}", "id": f"{n}"} for n in range(3)
    ],
    "bigcodebench": [
        {
            "task_id": "BigCodeBench/0",
            "complete_prompt": "import json\n\ndef task_func(n):\n    '''The JSON of a list of n zeros.'''\n",
            "instruct_prompt": "Write task_func(n) that returns the JSON of a list of n zeros.",
            "canonical_solution": "    return json.dumps([0] * n)",
            "code_prompt": "import json\n\ndef task_func(n):\n",
            "test": (
                "import unittest\nfrom unittest.mock import patch\n\nclass TestCases(unittest.TestCase):\n"
                "    def setUp(self):\n        self.two = '[0, 0]'\n"
                "    def test_two(self):\n        self.assertEqual(task_func(2), self.two)\n"
                "    def test_none(self):\n        self.assertEqual(task_func(0), '[]')\n"
                "    @patch('json.dumps', return_value='x')\n"
                "    def test_uses_json(self, dumps):\n        self.assertEqual(task_func(1), 'x')\n"
            ),
            "entry_point": "task_func",
            "doc_struct": "{}",
            "libs": "['json']",
        },
        {
            "task_id": "BigCodeBench/1",
            "complete_prompt": "import nowhere_to_be_found\n\ndef task_func():\n    '''Find it.'''\n",
            "instruct_prompt": "Write task_func() that finds it.",
            "canonical_solution": "    return nowhere_to_be_found.it",
            "code_prompt": "import nowhere_to_be_found\n\ndef task_func():\n",
            "test": "import unittest\nclass TestCases(unittest.TestCase):\n    def test_it(self): task_func()\n",
            "entry_point": "task_func",
            "doc_struct": "{}",
            "libs": "['nowhere_to_be_found']",
        },
    ],
    "gpqa-diamond": [
        {
            "Record ID": f"rec{n}",
            "Question": f"Which number is prime, if none is below {n}?",
            "Correct Answer": "97,\nand so on",
            "Incorrect Answer 1": "91",
            "Incorrect Answer 2": "93",
            "Incorrect Answer 3": '95, "five times 19"',
            "Subdomain": "Numbers",
            "High-level domain": "Mathematics",
        }
        for n in range(12)
    ],
    "mt-bench": [
        {
            "question_id": 81 + n,
            "category": "math" if n else "writing",
            "turns": [f"Write {n + 1} lines about rain.", "Write them again without the letter a."],
            **({"reference": ["Two lines.", ""]} if n else {}),
        }
        for n in range(2)
    ],
    "mt-bench-101": [
        {
            "task": task,
            "id": place,
            "history": [{"user": f"{task}: ask {n}", "bot": f"{task}: reply {n}"} for n in range(turns)],
        }
        for place, (task, turns) in enumerate([("CM", 3), ("MR", 2), ("GR", 1)])
    ],
    "gsm8k": [
        {
            "question": f"Ann has {n} boxes of 1,000 pins. How many pins?",
            "answer": f"She has {n} * 1000 = <<{n}*1000={n}000>>{n}000 pins.\n#### {n},000",
        }
        for n in range(1, 25)
    ],
    "humaneval": [
        {
            "task_id": "HumanEval/0",
            "prompt": "from typing import List\n\n\ndef half(n: int) -> int:\n    return n // 2\n\n\n"
            'def halves(ns: List[int]) -> List[int]:\n    """ Half of each.\n    >>> halves([4])\n    [2]\n    """\n',
            "entry_point": "halves",
            "canonical_solution": "    return [half(n) for n in ns]\n",
            "test": "METADATA = {}\n\ndef check(candidate):\n    assert candidate([4, 6]) == [2, 3]\n"
            "    assert candidate([]) == []\n",
        }
    ],
    "mbpp": [
        {
            "task_id": number,
            "text": f"Write a function to add {number} to a number.",
            "code": f"import math\ndef add(a):\n    return a + {number}",
            "test_list": [f"assert add(1) == {number + 1}", "assert math.isclose(add(0.5) - add(0), 0.5)"][
                :count
            ],
            "test_setup_code": "import math" if count > 1 else "",
            "challenge_test_list": [],
        }
        for number, count in ((3, 1), (11, 2), (12, 1), (550, 1), (700, 1))
    ],
}
#: What a model writes that solves the problems of code above.
SOLUTIONS = {
    "livecodebench": "print(sum(map(int, input().split())))",
    "bigcodebench": "def task_func(n):\n    return json.dumps([0] * n)",
    "humaneval": "def halves(ns):\n    return [half(n) for n in ns]",
    "mbpp": "def add(a):\n    return a + 11",
}


def write_jsonl(path: Path, rows: Rows) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def write_json(path: Path, rows: Rows) -> Path:
    path.write_text(json.dumps(rows, indent=1), "utf-8")
    return path


def write_csv(path: Path, rows: Rows) -> Path:
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_parquet(path: Path, rows: Rows) -> Path:
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows]), path)
    return path


def write_gzip(path: Path, rows: Rows) -> Path:
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    return path


#: How each set is published, or is found.
WRITERS = {
    "math500": ("test.jsonl", write_jsonl),
    "mmlu": ("validation-00000-of-00001.parquet", write_parquet),
    "mmlu-pro": ("test-00000-of-00001.parquet", write_parquet),
    "rlpr": ("rlpr_train.parquet", write_parquet),
    "livecodebench": ("test.jsonl", write_jsonl),
    "aime": ("aime2025-I.jsonl", write_jsonl),
    "bigcodebench": ("v0.1.4-00000-of-00001.parquet", write_parquet),
    "gpqa-diamond": ("gpqa_diamond.csv", write_csv),
    "mt-bench": ("question.jsonl", write_jsonl),
    "mt-bench-101": ("mtbench101.jsonl", write_jsonl),
    "gsm8k": ("train.json", write_json),
    "humaneval": ("HumanEval.jsonl.gz", write_gzip),
    "mbpp": ("mbpp.jsonl", write_jsonl),
}


def write_set(name: str, folder: Path, rows: Rows | None = None) -> Path:
    """The set's file, as it is published, with these rows or all of ours."""
    file, write = WRITERS[name]
    return write(folder / file, SETS[name] if rows is None else rows)
