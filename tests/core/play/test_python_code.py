"""Which lines of a reply are its program: chosen by what they say and what the tests ask for, before anything runs."""

from __future__ import annotations

import contextlib
import io
import sys
from typing import Any

import pytest

from core.episode import Protocol, Role
from core.play.python_code import chosen_program, does_something, program_blocks
from core.play.reading import read_reply

CALLED, METHOD = ["add(3, 4)"], ["Solution().add(3, 4)"]
RUN: list[str] = []

ADD, SUBTRACT = "def add(a, b):\n    return a + b", "def add(a, b):\n    return a - b"
MAIN = "a, b = map(int, input().split())\nprint(a + b)"


def fenced(*blocks: str, language: str = "python") -> str:
    return "\n\nText here.\n\n".join(f"```{language}\n{one}\n```" for one in blocks)


#: Tests and a reply whose program adds 3 and 4.
RIGHT: list[tuple[list[str], str]] = [
    *(
        (CALLED, reply)
        for reply in (
            fenced(ADD, "print(add(1, 2))"),
            fenced(ADD, "x = int(input())\nprint(add(x, 1))"),
            fenced(ADD, "assert add(1, 2) == 4"),
            fenced(ADD) + "\n\nTime: O(1)\n\n```\nTime: O(1)\n```",
            fenced("import math", "def add(a, b):\n    return int(math.fsum([a, b]))"),
            fenced("from math import *", "def add(a, b):\n    return int(fsum([a, b]))"),
            fenced(SUBTRACT, ADD),
            "First:\n"
            + fenced(SUBTRACT)
            + "\nThat is wrong. Corrected version:\n"
            + fenced(ADD, "print(add(5, 5))"),
            fenced(ADD) + "\n\n```bash\npython add.py\n```\n\n```text\n7\n```",
            fenced(ADD) + '\n\n```json\n{"a": 1}\n```',
            fenced(ADD) + "\n\n```\n7\n```",
            fenced(ADD, language=""),
            fenced(ADD, language="py"),
            fenced(ADD, language="Python3"),
            fenced(ADD, language="{.python}"),
            fenced(ADD, language='python title="a.py"'),
            fenced(ADD).replace("```", "~~~"),
            fenced(ADD).replace("```", "````"),
            "  ```python\n  def add(a, b):\n      return a + b\n  ```",
            "1. Do:\n\n   ```python\n   def add(a, b):\n       return a + b\n   ```\n",
            "```python\n" + ADD,
            ADD + "\n```",
            "Here it is:\n\n" + ADD + "\n```\nIt adds.",
            "Here is the function:\n\n" + ADD + "\n\nIt adds two numbers.",
            "```python\r\n" + ADD.replace("\n", "\r\n") + "\r\n```\r\nDone.",
            "```python\n>>> def add(a, b):\n...     return a + b\n>>> add(1, 2)\n3\n```",
            fenced(ADD) + "\n\n```python\n>>> add(1, 2)\n3\n```",
            "<answer>" + fenced(ADD) + "</answer>",
            fenced(ADD) + "\n<answer>see the code above</answer>",
            "<answer>" + ADD + "</answer>",
            "<think>" + fenced(SUBTRACT) + "</think>" + fenced(ADD),
            fenced(ADD) + "<|im_end|>",
            fenced("def add(a, b):\n    ...", ADD),
            fenced(ADD, "def add(a, b): ..."),
            fenced("class Node:\n    pass", "def add(a, b):\n    n = Node()\n    return a + b"),
            fenced(
                "def helper(a, b):\n    return a + b",
                "def add(a, b):\n    return helper(a, b)",
                "import unittest\nclass T(unittest.TestCase):\n"
                "    def test(self):\n        self.assertEqual(add(1, 2), 4)\n"
                "unittest.main()",
            ),
            fenced("add = lambda a, b: a + b"),
            fenced("MOD = 10**9", "def add(a, b):\n    return (a + b) % MOD"),
            fenced(ADD, "raise SystemExit(1)"),
            fenced(
                'def add(a, b):\n    """Adds.\n\n    ```\n    add(1, 2)\n    ```\n    """\n    return a + b'
            ),
        )
    ),
    *(
        (METHOD, reply)
        for reply in (
            fenced(
                "class Solution:\n    def add(self, a: int, b: int) -> int:\n        return a + b",
                "s = Solution()\nprint(s.add(1, 2))",
            ),
            fenced(
                "from typing import List",
                "class Solution:\n    def add(self, a: int, b: int) -> int:\n        x: List[int] = [a, b]\n"
                "        return sum(x)",
            ),
            fenced(
                "class Solution:\n    def add(self, a, b):\n        return a + b",
                "class Solution:\n    def brute(self, a, b):\n        return a",
            ),
            fenced(
                "class Solution:\n    pass", "def add(self, a, b):\n    return a + b", "Solution.add = add"
            ),
        )
    ),
    *(
        (RUN, reply)
        for reply in (
            fenced("def main():\n" + "    a, b = map(int, input().split())\n    print(a + b)", "main()"),
            fenced(ADD, "a, b = map(int, input().split())\nprint(add(a, b))"),
            fenced(
                "import sys",
                "def main():\n    a, b = map(int, sys.stdin.readline().split())\n    print(a + b)\n\n"
                "if __name__ == '__main__':\n    main()",
                "print('example: 3 4 -> 7')",
            ),
            fenced("a, b = map(int, input().split())\nprint(a - b)", MAIN),
            fenced(MAIN) + "\n\n```\n7\n```\n",
            fenced(MAIN) + "\n\n```\n$ echo 3 4 | python a.py\n```",
            fenced(MAIN, "import io, sys\nsys.stdin = io.StringIO('1 2')\nprint(3)"),
            fenced(
                ADD + "\nif __name__ == '__main__':\n    print(add(*map(int, input().split())))",
                "print(add(1, 2))",
            ),
            fenced(MAIN, "a = int(input('First: '))\nb = int(input('Second: '))\nprint(a + b)"),
            fenced("import sys\na, b = map(int, open(0).read().split())\nprint(a + b)"),
            MAIN,
            "`print(sum(map(int, input().split())))`",
            "```python\n" + MAIN + "\nprint('</s>', end='')if 0 else None\n```</s>",
        )
    ),
]
#: What does not.
WRONG: list[tuple[list[str], str]] = [
    (CALLED, fenced(ADD, SUBTRACT)), (CALLED, fenced(SUBTRACT)), (CALLED, "Time: O(1)"),
    (CALLED, "```\nTime: O(1)\n```"), (CALLED, fenced("print(7)")),
    (RUN, fenced(MAIN, "a, b = map(int, input().split())\nprint(a * b)")), (CALLED, "no code"),
    (CALLED, "<think>" + fenced(ADD) + "</think>" + fenced(SUBTRACT)),
    (CALLED, "<answer>" + SUBTRACT + "</answer>\n" + fenced(ADD)),
    (CALLED, fenced(ADD) + "<answer>" + SUBTRACT + "</answer>"), (METHOD, fenced(ADD)),
]  # fmt: skip


def came_to(calls: list[str], reply: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the program of a reply comes to; these are our own and harmless, so no sandbox is needed."""
    answer = read_reply(Protocol.PAPER, "general", Role.WORKER, reply, grader="program").answer
    if not answer:
        return None
    program, space = chosen_program(answer, calls), {"__name__": "program" if calls else "__main__"}
    monkeypatch.setattr(sys, "stdin", io.StringIO("3 4\n"))
    with contextlib.redirect_stdout(io.StringIO()) as said:
        try:
            exec(compile(program, "program.py", "exec"), space)
            return eval(calls[0], space) if calls else said.getvalue().strip()
        except (Exception, SystemExit) as error:
            return error


@pytest.mark.parametrize(("calls", "reply"), RIGHT)
def test_a_right_program_is_found_in_its_reply(
    calls: list[str], reply: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "open(0)" not in reply:
        assert came_to(calls, reply, monkeypatch) == (7 if calls else "7")


@pytest.mark.parametrize(("calls", "reply"), WRONG)
def test_a_wrong_program_is_not_exchanged_for_another(
    calls: list[str], reply: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert came_to(calls, reply, monkeypatch) != (7 if calls else "7")


def test_the_last_of_two_whole_programs_is_the_one_that_counts() -> None:
    first, second = "print(input())", "print(input()[::-1])"
    text = f"```python\n{first}\n```\nBetter:\n```python\n{second}\n```"
    assert program_blocks(text) == [first, second]
    assert chosen_program(text) == second


@pytest.mark.parametrize(
    ("text", "does"),
    [
        ("def f(): pass", True), ("import math", True), ("for n in range(3): print(n)", True), ("print(1)", True),
        ("if __name__ == '__main__': main()", True), ("class A: pass", True), ("n = int(input())", True),
        ("Time: O(1)", False), ("x", False), ("[1, 2]", False), ("x = 5", False), ("'a b'", False),
        ("not Python", False), ("", False), ("total: int", False), ("7", False), ("a, b", False), ("1 + 2", False),
    ],
)  # fmt: skip
def test_a_program_is_one_by_what_it_does(text: str, does: bool) -> None:
    assert does_something(text) == does


def test_what_two_blocks_need_of_each_other_goes_with_them_in_the_order_of_the_text() -> None:
    blocks = (
        "import math",
        "SIZE = 3",
        "def size():\n    return SIZE",
        "def area(x):\n    return math.pi * size() * x",
    )
    uses = ("SIZE = 100", "print(area(2))", "import sys\nsys.exit(1)")
    text = "\n\n".join(f"```python\n{one}\n```" for one in (*blocks, *uses))
    assert chosen_program(text, ["area(2)"]) == "\n\n".join(blocks)
