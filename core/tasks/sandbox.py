"""Evaluates small Python expressions: allow-listed over the syntax tree, then run in a resource-limited child process.

Only for pocket expressions (numbers, strings, lists, comprehensions, a few functions); programs have
`core.tasks.bubblewrap`.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import warnings
from collections.abc import Sequence

from core.tasks.children import start_child

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
