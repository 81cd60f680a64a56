"""Is this answer right? Exact text, numbers, choices, mathematics, Python values, programs and functions of the user's
own, without asking any model: at once where that is quick, else in the background, programs on the machines of a
cluster where there is one.

Python values are those of the pocket tasks (numbers, strings, lists, comprehensions, a few functions): allow-listed
over the syntax tree, then evaluated in a resource-limited child process. Programs have `core.tasks.bubblewrap`.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from core.episode import Failure, Grade, PendingVerdict, Task
from core.errors import TaskError
from core.grader import own_grader
from core.play.drive import GradeMany
from core.play.judging import final_verdicts
from core.processes import Graders, Processes
from core.tasks.background import BACKGROUND, start_child
from core.tasks.bubblewrap import check_sandbox
from core.tasks.choices import read_choice
from core.tasks.kept_tests import kept_file
from core.tasks.mathematics import mathematics_verdict
from core.tasks.numbers import same_number
from core.tasks.own_graders import OwnFunction
from core.tasks.programs import passes

_VALUES = (
    ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.UnaryOp, ast.USub, ast.UAdd,
    ast.Load,
)  # fmt: skip


def grade_many(grades: Sequence[Grade]) -> list[bool]:
    """One verdict per answer, in order, once all have come. TaskError for programs and functions of the user's own,
    which are graded only where their run is played."""
    return final_verdicts(_Grading(None)(grades))


def normalise_answer(text: str) -> str:
    """Text as `exact` compares it: without case, spacing, wrapping quotes, `$` or \\boxed{} and a final stop."""
    text = " ".join(text.split()).casefold()
    while True:
        bare = text.strip().strip("$\"'`*\u201c\u201d\u2018\u2019").rstrip(".").strip()
        if boxed := re.fullmatch(r"\\boxed\{(.*)\}", bare):
            bare = boxed[1]
        if bare == text:
            return text
        text = bare


def _is_literal(text: str) -> bool:
    """Is this a value and not a sum to do? Repeating the question's own expression is no answer to it."""
    tree = syntax_of(text) if len(text) <= MAX_CHARACTERS else None
    return tree is not None and all(isinstance(node, _VALUES) for node in ast.walk(tree))


#: Which function of the user's own may grade which task.
OwnFunctions = Mapping[Task, OwnFunction]
NO_OWN: OwnFunctions = MappingProxyType({})


def grading_of(
    tasks: Sequence[Task],
    own: OwnFunctions = NO_OWN,
    processes: int | None = None,
    helpers: Processes | None = None,
) -> GradeMany:
    """The grading of these tasks, mathematics in so many `processes` at most (None: one for each core). TaskError,
    before anything is played, for programs where there is no sandbox, and for a function that is not among those that
    may be called.

    Where `helpers` are on other machines, programs are run there: here one takes a core 140 ms, and this process 7 ms
    of CPU where a message takes 2 ms. All else stays here. Expressions of mathematics take another core 8 ms and this
    process 0.5 ms, less than a message; Python values one child process for all that wait; rules on texts next to
    nothing; and functions of the user's own have their files and environment here."""
    far = None
    if any(task.grader == "program" for task in tasks):
        far = helpers.graders() if helpers else None
        (far.check_sandbox if far else check_sandbox)()
    for task in tasks:
        if own_grader(task.grader) and task not in own:
            raise TaskError(_may_not_be_called(task))
    return _Grading(own, processes, far)


#: Why a task with the grader `judge` is not graded apart from an episode.
ASKS_A_MODEL = (
    "Task {} is rated by a model, which is asked only while its episode is played: play it by trinity run with a pool "
    "that has a judge."
)


@dataclass(frozen=True, eq=False)
class _Grading:
    """Grades answers; what functions of the user's own say of the same answer is asked once, and not for the next run:
    they may depend on more than their file."""

    own: OwnFunctions | None  # None: neither these nor programs are run
    processes: int | None = None
    far: Graders | None = None

    def __call__(self, grades: Sequence[Grade]) -> list[bool | Failure | PendingVerdict]:
        """One verdict per answer, in order; all Python values are evaluated in one child process."""
        verdicts = [self._verdict(grade) for grade in grades]
        codes = [index for index, verdict in enumerate(verdicts) if verdict is None]
        values = evaluate_many([text for i in codes for text in (grades[i].answer, grades[i].task.answer)])
        for index, given, right in zip(codes, values[::2], values[1::2], strict=True):
            verdicts[index] = given is not None and given == right
        return [verdict or False for verdict in verdicts]

    def _verdict(self, grade: Grade) -> bool | Failure | PendingVerdict | None:
        """The verdict, perhaps one that is still worked on; None for a value that has to be evaluated first."""
        task, said, right = grade.task, grade.answer, grade.task.answer
        match task.grader:
            case "exact":
                return normalise_answer(said) == normalise_answer(right)
            case "number":
                return same_number(said, right, task.question)
            case "choice":
                letter = read_choice(said, task.question)
                return letter is not None and letter == read_choice(right, task.question)
            case "math":
                return said.strip() == right.strip() or mathematics_verdict(said, right, self.processes)
            case "code":
                if said.strip() == right.strip():
                    return True
                return None if _is_literal(said) and not said.strip().isdigit() else False
            case "open":  # nobody knows the one right text
                return False
            case "recorded":
                return said in json.loads(right)
            case "judge":
                raise TaskError(ASKS_A_MODEL.format(task.id))
        if self.own is None:
            raise TaskError(f"Task {task.id} can be graded only where its run is played ({task.grader}).")
        if task.grader == "program":
            return self._program(said, right)
        if (function := self.own.get(task)) is None:
            return Failure("infrastructure", _may_not_be_called(task))
        key = (self, task.question, right, said, function)
        return BACKGROUND.verdict(key, partial(function.grade, said, right, task.question))

    def _program(self, said: str, tests: str) -> bool | Failure | PendingVerdict:
        begin = None
        if self.far is not None:
            try:
                file = kept_file(json.loads(tests)) if tests.startswith('"') else None  # else they are a list
            except TaskError as error:
                return Failure("infrastructure", str(error))
            begin = partial(self.far.begin, f"{__name__}:{passes_tests.__name__}", said, tests, file=file)
        return BACKGROUND.verdict((tests, said), partial(passes_tests, said, tests), begin)


def passes_tests(said: str, tests: str, content: bytes | None = None) -> bool | Failure:
    """Whether a program passes its tests (`core.tasks.programs.passes`), or why it cannot be told here."""
    try:
        return passes(said, tests, content=content)
    except TaskError as error:  # no sandbox, or the tests are not here
        return Failure("infrastructure", str(error))


def _may_not_be_called(task: Task) -> str:
    return (
        f"Task {task.id} is graded by {task.grader}, which is called only in runs that are begun here with its task "
        "file, and as long as neither file changes: begin such a run with --tasks FILE.jsonl."
    )


FUNCTIONS = ("abs", "len", "list", "max", "min", "range", "sorted", "sum")
MAX_CHARACTERS = 400
MAX_NODES = 200
WALL_CLOCK_S = 10.0

_NODES: tuple[type[ast.AST], ...] = (
    ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.Subscript, ast.Slice, ast.Name, ast.Load,
    ast.Store, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.UnaryOp, ast.USub, ast.UAdd, ast.Not,
    ast.BoolOp, ast.And, ast.Or, ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn,
    ast.IfExp, ast.Call, ast.ListComp, ast.GeneratorExp, ast.comprehension,
)  # fmt: skip

# The child limits itself before it reads anything: 2 s of CPU, 512 MB of memory, no new process, no file written,
# no file opened. It prints one JSON line per expression.
_CHILD = f"""
import json, resource, sys
lines = sys.stdin.buffer.read().decode().splitlines()
names = {{name: getattr(__builtins__, name) for name in {FUNCTIONS!r}}}
for what, most in (("CPU", 2), ("AS", 1 << 29), ("NPROC", 0), ("FSIZE", 0), ("NOFILE", 3), ("CORE", 0)):
    resource.setrlimit(getattr(resource, "RLIMIT_" + what), (most, most))
for line in lines:
    try:
        value = repr(eval(compile(json.loads(line), "answer", "eval"), {{"__builtins__": names}}))
        value = value if len(value) <= 1000 else None
    except Exception:
        value = None
    print(json.dumps(value), flush=True)
"""


def syntax_of(expression: str) -> ast.Expression | None:
    """The expression's syntax tree; None when it has none. Python's warnings about style are silenced."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            return ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def is_allowed(expression: str) -> bool:
    """Does the expression consist of allow-listed syntax and names only?"""
    tree = syntax_of(expression) if len(expression) <= MAX_CHARACTERS else None
    if tree is None:
        return False
    nodes = list(ast.walk(tree))
    if len(nodes) > MAX_NODES or not all(isinstance(node, _NODES) for node in nodes):
        return False
    bound = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return all(_is_harmless(node, bound) for node in nodes)


def _is_harmless(node: ast.AST, bound: set[str]) -> bool:
    if isinstance(node, ast.Name):
        return not node.id.startswith("_") and node.id in {*FUNCTIONS, *bound}
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id in FUNCTIONS and not node.keywords
    if isinstance(node, ast.Constant):
        return node.value is None or isinstance(node.value, bool | int | str)
    return True


def evaluate_many(expressions: Sequence[str]) -> list[str | None]:
    """The `repr` of each expression's value; None where it is not allowed, fails or exceeds its limits."""
    results: list[str | None] = [None] * len(expressions)
    waiting = [index for index, expression in enumerate(expressions) if is_allowed(expression)]
    while waiting:
        values = _run([expressions[index].strip() for index in waiting])
        for index, value in zip(waiting, values, strict=False):
            results[index] = value
        waiting = waiting[len(values) + 1 :]  # the one that killed the child has no value; go on behind it
    return results


def _run(expressions: Sequence[str]) -> list[str | None]:
    """One child for the whole batch; fewer values than expressions when a limit ended it."""
    child = start_child([sys.executable, "-I", "-S", "-c", _CHILD])
    try:
        out, _ = child.communicate("\n".join(map(json.dumps, expressions)).encode(), timeout=WALL_CLOCK_S)
    except subprocess.TimeoutExpired:
        child.kill()
        out, _ = child.communicate()
    return [json.loads(line) for line in out.decode().splitlines() if line]
