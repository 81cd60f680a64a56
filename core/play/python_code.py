"""Programs in replies: which blocks of a text are Python that does something, and which of several make up the program.

One program is chosen by what stands in the blocks and by what the tests ask for, before anything is run: nothing is
ever tried until something passes.
"""

from __future__ import annotations

import ast
import builtins
import re
import symtable
import textwrap
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property

#: A block of code, also one that is never closed.
_BLOCK = re.compile(
    r"^[ \t]*(?P<fence>```+|~~~+)(?P<language>[^\n`]*)\n(?P<code>.*?)(?:^[ \t]*(?P=fence)[ \t]*$|\Z)",
    re.MULTILINE | re.DOTALL,
)
_FENCE_LINE = re.compile(r"^[ \t]*(?:```+|~~~+)[^\n`]*$", re.MULTILINE)
_LANGUAGE = re.compile(r"[{.\s]*(?P<name>[A-Za-z]+)")
_PYTHON = frozenset(("python", "py", "ipython", "pycon", "doctest"))
_PROMPT = re.compile(r"^[ \t]*(?:>>>|\.\.\.)(?: |$)(.*)$", re.MULTILINE)
#: How a line of a program begins that stands in prose.
_BEGINS = re.compile(
    r"@\w|(?:async )?def \w|class \w|import \w|from [\w.]+ import |if __name__|(?:for|while) .*:\s*$|print\(|"
    r"[A-Za-z_][\w., \[\]]* = "
)
_MOST_LINES, _MOST_TRIES = 600, 40

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)
_COMPOUND = (ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.If, ast.Match)
_ASSIGNMENTS = (ast.Assign, ast.AugAssign, ast.Delete)
_BUILTINS = frozenset(dir(builtins)) | {"__name__", "__file__"}


def program_in(text: str) -> str:
    """The program that a text gives: all of it where it is one; else its blocks of Python, each in a fence where there
    are several, for `chosen_program` to choose from; else lines of a program among words. Empty for none."""
    blocks = program_blocks(text)
    return blocks[0] if len(blocks) == 1 else "\n\n".join(_fenced(one) for one in blocks)


def program_blocks(text: str) -> list[str]:
    """The blocks of Python in a text that do something, in order; all of a text that is a program, or the lines of it
    that are one."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    whole = _plain(_unspanned(text))
    if does_something(whole):
        return [whole]
    found = [(_language(one["language"]), _block(one["code"])) for one in _BLOCK.finditer(text)]
    for languages in (_PYTHON, ("",)):
        mine = [code for language, code in found if language in languages and _counts(code, bool(language))]
        if mine:
            return list(dict.fromkeys(mine))
    parts = _FENCE_LINE.split(text) if _FENCE_LINE.search(text) and not _labelled(found) else [text]
    lines = [code for part in parts if (code := _among_words(part))]
    return lines[-1:]


def chosen_program(text: str, calls: Sequence[str] = ()) -> str:
    """The one program of a text that holds one or several blocks. `calls`: the expressions that its tests work out;
    without any it is run on input.

    For calls: the last block that defines what they name, with the blocks that define what it uses. Without: the last
    block that reads the input, likewise. Blocks that only show a use are left out."""
    codes = program_blocks(text)
    if len(codes) < 2:
        return codes[0] if codes else last_block(text)
    blocks = [_Block(code) for code in codes]
    roots = _called(blocks, calls) if calls else _reading_input(blocks)
    needed = _closure(blocks, roots) if roots else range(len(blocks))
    return "\n\n".join(blocks[place].code for place in needed)


def last_block(text: str) -> str:
    """The last block of code in a text, whatever it holds, else all of it; without a fence, with its lines as they
    are."""
    text = text.replace("\r\n", "\n")
    found = [one["code"] for one in _BLOCK.finditer(text)]
    return _plain(next((code for code in reversed(found) if code.strip()), text))


def does_something(code: str) -> bool:
    """Whether a text is a program by a definition, an import, a loop or a standing call, and no words or value that
    happen to be Python."""
    tree = _tree(code)
    if tree is None:
        return False
    calls = any(isinstance(node, ast.Call) for node in ast.walk(tree))
    return any(
        isinstance(node, (*_DEFINITIONS, *_IMPORTS, *_COMPOUND))
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await))
        or (isinstance(node, _ASSIGNMENTS) and calls)
        for node in tree.body
    )


def _counts(code: str, labelled: bool) -> bool:
    """Whether a block is one of the program: what assigns something counts only where it is said to be Python."""
    if does_something(code):
        return True
    tree = _tree(code) if labelled else None
    return tree is not None and any(isinstance(node, _ASSIGNMENTS) for node in tree.body)


def _labelled(found: Iterable[tuple[str, str]]) -> bool:
    return any(language for language, _ in found)


def _language(info: str) -> str:
    """The language that the line of a fence names, in lower case; empty for none."""
    named = _LANGUAGE.match(info)
    return named["name"].casefold() if named else ""


def _plain(code: str) -> str:
    return textwrap.dedent(code.strip("\n")).rstrip()


def _block(code: str) -> str:
    """A block's program; of a session in the interpreter, what was typed."""
    code = _plain(code)
    if code.lstrip().startswith(">>>"):
        return "\n".join(found[1] for found in _PROMPT.finditer(code))
    return code


def _unspanned(text: str) -> str:
    """Without single marks of code around all of it."""
    bare = text.strip()
    one = bare.startswith("`") and bare.endswith("`") and bare.count("`") == 2
    return bare[1:-1] if one else text


def _fenced(code: str) -> str:
    longest = max((len(run) for run in re.findall(r"`{3,}", code)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}python\n{code}\n{fence}"


def _among_words(text: str) -> str:
    """The lines of a program that stand among words without a fence; empty for none."""
    lines = text.split("\n")
    if len(lines) > _MOST_LINES:
        return ""
    tries = 0
    for start, line in enumerate(lines):
        if not _BEGINS.match(line):
            continue
        for end in range(len(lines), start, -1):
            if not lines[end - 1].strip() or (end < len(lines) and lines[end][:1].isspace()):
                continue
            code = "\n".join(lines[start:end])
            if does_something(code):
                return code
            tries += 1
            if tries >= _MOST_TRIES:
                return ""
    return ""


def _tree(code: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


# Which blocks make up the program


@dataclass(frozen=True)
class _Block:
    """A block of Python: what it defines, what it needs from elsewhere, and what it does when it is run."""

    code: str

    @cached_property
    def tree(self) -> ast.Module:
        return _tree(self.code) or ast.Module([], [])

    @cached_property
    def names(self) -> tuple[AbstractSet[str], AbstractSet[str]]:
        """The names that it binds, and those that it uses and does not bind."""
        bound, used = set[str](), set[str]()
        try:
            top = symtable.symtable(self.code, "block", "exec")
        except (SyntaxError, ValueError, RecursionError):
            return bound, used
        for name in top.get_symbols():
            if name.is_assigned() or name.is_imported() or name.is_namespace():
                bound.add(name.get_name())
            if name.is_referenced():
                used.add(name.get_name())
        inner = [*top.get_children()]
        while inner:
            scope = inner.pop()
            inner += scope.get_children()
            for name in scope.get_symbols():
                if name.is_global() and name.is_referenced():
                    used.add(name.get_name())
                if name.is_declared_global() and name.is_assigned():
                    bound.add(name.get_name())
        return bound, used - bound - _BUILTINS

    @property
    def binds(self) -> AbstractSet[str]:
        return self.names[0]

    @property
    def needs(self) -> AbstractSet[str]:
        return self.names[1]

    @cached_property
    def acts(self) -> bool:
        """Whether it does more than define when it is run."""
        return any(
            isinstance(node, _COMPOUND) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
            for node in self.tree.body
        )

    @cached_property
    def sets_up(self) -> bool:
        """Whether it imports, and at most calls what it imports."""
        return any(isinstance(node, _IMPORTS) for node in self.tree.body) and all(
            isinstance(node, _IMPORTS)
            or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and not self.needs)
            and not any(isinstance(one, ast.Name) and one.id in _BUILTINS for one in ast.walk(node))
            for node in self.tree.body
        )

    @cached_property
    def has_star(self) -> bool:
        """Whether it imports names that it does not name."""
        return any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in self.tree.body)

    @cached_property
    def alters(self) -> AbstractSet[str]:
        """The names of elsewhere of which it sets an attribute: `Solution.add = add`."""
        targets = [
            target for node in self.tree.body if isinstance(node, ast.Assign) for target in node.targets
        ]
        named = (one.value for one in targets if isinstance(one, ast.Attribute))
        return {one.id for one in named if isinstance(one, ast.Name)} - self.binds

    def defines(self, name: str, attributes: AbstractSet[str]) -> bool:
        """Whether it gives a name something to be called: no stub, and a class with these methods."""
        if name not in self.binds:
            return False
        own = [node for node in self.tree.body if isinstance(node, _DEFINITIONS) and node.name == name]
        if not own:
            return True
        if isinstance(own[-1], ast.ClassDef):
            methods = {one.name: one for one in own[-1].body if isinstance(one, _DEFINITIONS)}
            return all(one in methods and not _is_stub(methods[one]) for one in attributes)
        return not _is_stub(own[-1])

    @cached_property
    def reads_input(self) -> bool:
        """Whether it reads standard input, and does not put something else in its place."""
        reads = False
        for node in ast.walk(self.tree):
            match node:
                case ast.Attribute(attr="stdin", ctx=ast.Store()):
                    return False
                case (
                    ast.Attribute(attr="stdin") | ast.Name(id="input" | "stdin" | "fileinput", ctx=ast.Load())
                ):
                    reads = True
                case ast.Call(func=ast.Name(id="open"), args=[ast.Constant(value=0 | "/dev/stdin"), *_]):
                    reads = True
        return reads

    @cached_property
    def asks_a_person(self) -> bool:
        """Whether it writes words where it reads: `input("How many? ")`."""
        return any(
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "input"
            and node.args
            for node in ast.walk(self.tree)
        )


def _is_stub(definition: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    """Whether a definition only shows how something is called."""
    return all(
        isinstance(node, ast.Pass | ast.Raise)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for node in definition.body
    ) and not (
        isinstance(definition.body[-1], ast.Raise) and "NotImplemented" not in ast.dump(definition.body[-1])
    )


def _called(blocks: Sequence[_Block], calls: Sequence[str]) -> list[int]:
    """The last blocks that define what the tests call; none where one of them is nowhere defined."""
    roots = list[int]()
    for name, attributes in _wanted(calls).items():
        whole = _last(blocks, lambda one: one.defines(name, attributes))  # noqa: B023
        place = _last(blocks, lambda one: name in one.binds) if whole is None else whole  # noqa: B023
        if place is None:
            return []
        roots.append(place)
    return roots


def _wanted(calls: Sequence[str]) -> Mapping[str, set[str]]:
    """The names that the calls need from the program, each with the methods that are called on what it makes."""
    wanted = dict[str, set[str]]()
    for call in calls:
        for name in _Block(call).needs:
            wanted.setdefault(name, set())
        tree = _tree(call)
        for node in ast.walk(tree) if tree else ():
            match node:
                case ast.Attribute(
                    value=ast.Call(func=ast.Name(id=name)) | ast.Name(id=name), attr=attribute
                ):
                    if name in wanted:
                        wanted[name].add(attribute)
    return wanted


def _reading_input(blocks: Sequence[_Block]) -> list[int]:
    """The last block that reads the input, and the one that starts it; without one, the last that does something,
    rather one that also defines something than one that only shows a use."""
    rules: list[Callable[[_Block], bool]] = [
        lambda one: one.reads_input and not one.asks_a_person,
        lambda one: one.reads_input,
        lambda one: one.acts and any(isinstance(node, _DEFINITIONS) for node in one.tree.body),
        lambda one: one.acts,
    ]
    place = next((found for rule in rules if (found := _last(blocks, rule)) is not None), None)
    if place is None:
        return []
    if blocks[place].acts:
        return [place]
    starts = (
        later
        for later in range(place + 1, len(blocks))
        if blocks[later].acts and blocks[later].needs & blocks[place].binds
    )
    return [place, *([first] if (first := next(starts, None)) is not None else [])]


def _last(blocks: Sequence[_Block], rule: Callable[[_Block], bool]) -> int | None:
    return next((place for place in range(len(blocks) - 1, -1, -1) if rule(blocks[place])), None)


def _closure(blocks: Sequence[_Block], roots: Iterable[int]) -> list[int]:
    """These blocks and those that define what they use, in the order of the text."""
    needed, open_ = set(roots), [*roots]
    needed |= {place for place, one in enumerate(blocks) if one.sets_up and place < max(needed)}
    open_ = [*needed]
    while open_:
        place = open_.pop()
        for name in blocks[place].needs:
            nearest = [*range(place - 1, -1, -1), *range(place + 1, len(blocks))]
            defines = [one for one in nearest if name in blocks[one].binds]
            stars = [one for one in nearest if one < place and blocks[one].has_star]
            for one in defines[:1] or stars[:1]:
                if one not in needed:
                    needed.add(one)
                    open_.append(one)
        altering = (
            one
            for one in range(place + 1, len(blocks))
            if one not in needed and blocks[one].alters & blocks[place].binds and not blocks[one].acts
        )
        for one in altering:
            needed.add(one)
            open_.append(one)
    return sorted(needed)
