"""Reads a workflow out of a planner's reply: three labelled lists, written the way that language models write them.

Nothing is ever run: a list is taken as a Python literal, else as JSON, else it is split at its commas.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Collection
from itertools import zip_longest

from core.play.marks import without_marks
from core.workflow import AccessMode, PlanFault, Workflow, resolve

#: Labels at a reply's end that are looked at; what stands before them is an earlier draft.
MOST_LABELS = 60
#: A list with more characters, or nested deeper, is none.
LONGEST_LIST, DEEPEST = 50_000, 20

_LISTS = ("model_id", "subtasks", "access_list")
#: A label, the marks that wrap it, = or :.
_LABEL = re.compile(
    r"(?<!\w)(?:(?P<model_id>model_id|model ids?)|(?P<subtasks>subtasks?)|(?P<access_list>access(?:[_ ]list)?))"
    r"[\"'*_\u201c\u201d\u2018\u2019]{0,4}[ \t]*[=:]",
    re.IGNORECASE,
)
#: What may stand between a label and its list: words, but no bracket of another kind.
_BETWEEN = re.compile(r"[^\[({]{0,500}(?=\[)")
_BULLET = re.compile(r"^[ \t]*(?:[-*\u2022+]|\d{1,2}[.)])[ \t]+", re.MULTILINE)
#: Typographic quotation marks and the plain ones that they stand for.
_PLAIN = str.maketrans("\u201c\u201d\u201e\u201f\u2018\u2019\u201a\u201b", '"' * 4 + "'" * 4)
#: What may follow a string in a list.
_AFTER_STRING = re.compile(r"\s*(?:[,\]:})#]|\n\s*[\"']|\Z)")
_WHOLE = re.compile(r"-?(?:0|[1-9]\d{0,17})")


def read_workflow(
    reply: str, *, allowed: Collection[int], mode: AccessMode = AccessMode.AUTO
) -> Workflow | PlanFault:
    """The workflow that a reply holds, of models in the `allowed` slots, or why it holds none. Never raises.

    Where a list is written several times, the last one counts: models mend what they wrote."""
    lists = _lists(_BULLET.sub("", without_marks(reply).replace("`", "")))
    if any(name not in lists for name in _LISTS):
        return PlanFault.NO_LISTS
    models, subtasks, access = (lists[name] for name in _LISTS)
    return resolve(models, subtasks, access, allowed=allowed, mode=mode)


def write_workflow(workflow: Workflow) -> str:
    """The three lists of a workflow in its mode, which reads them back."""
    subtasks = json.dumps(list(workflow.subtasks), ensure_ascii=False)
    if without_marks(subtasks) != subtasks:  # a mark in a subtask would be taken for one of the reply
        written = [
            json.dumps(one).replace("<", "\\u003c").replace("[", "\\u005b") for one in workflow.subtasks
        ]
        subtasks = f"[{', '.join(written)}]"
    return (
        f"model_id = {json.dumps(list(workflow.models))}\n"
        f"subtasks = {subtasks}\n"
        f"access_list = {json.dumps(workflow.access)}"
    )


def _lists(text: str) -> dict[str, list[object]]:
    """The last list behind each label; labels within another list are part of its texts."""
    found: dict[str, list[object]] = {}
    labels, over = [*_LABEL.finditer(text)][-MOST_LABELS:], 0
    for match, next_label in zip_longest(labels, labels[1:]):
        between = _BETWEEN.match(text, match.end())
        if match.start() < over or between is None:
            continue
        if next_label is not None and between.end() > next_label.start():
            continue
        value, end = _list_at(text, between.end())
        if end > between.end() and match.lastgroup is not None:
            over = end
            found.pop(match.lastgroup, None)
            if value is not None:
                found[match.lastgroup] = value
    return found


def _list_at(text: str, start: int) -> tuple[list[object] | None, int]:
    """The list whose bracket opens at `start`, and where it ends (`start` where it never does).

    It is first read with quotation marks taken at their word, then with those that stand inside a text forgiven."""
    strict, end = _bracketed(text, start, forgiving=False)
    if strict is not None and (value := _literal(strict)) is not None:
        return (value if isinstance(value, list) else None), end
    mended, mended_end = _bracketed(text, start, forgiving=True)
    if mended is not None and (value := _literal(mended)) is not None:
        return (value if isinstance(value, list) else None), mended_end
    if strict is None:
        return None if mended is None else _split(mended), start if mended is None else mended_end
    return _split(strict), end


def _bracketed(text: str, start: int, *, forgiving: bool) -> tuple[str | None, int]:
    """The balanced bracket that opens at `start`, and where it ends; None when it does not close.

    Comments are left out, and strings are written plainly: typographic quotation marks made straight, those inside a
    string and its line ends escaped. A mark ends its string; if `forgiving`, only where a list can go on after it."""
    depth, opened, mark, written = 0, False, "", list[str]()
    place, last = start, min(len(text), start + LONGEST_LIST)
    while place < last:
        sign = text[place].translate(_PLAIN)
        place += 1
        if opened:
            if sign == "\\":
                sign += text[place : place + 1]
                place += 1
            elif text[place - 1 : place - 1 + len(mark)].translate(_PLAIN) == mark and (
                not forgiving or _AFTER_STRING.match(text, place - 1 + len(mark))
            ):
                place, opened, sign = place - 1 + len(mark), False, mark[0]
            elif sign == mark[0]:
                sign = "\\" + sign
            elif sign == "\n":
                sign = "\\n"
        elif sign in "\"'":
            mark = sign * 3 if text.startswith(sign * 3, place - 1) else sign
            opened, place = True, place - 1 + len(mark)
        elif sign == "#":
            place = end if (end := text.find("\n", place)) >= 0 else last
            continue
        elif sign in "[({":
            depth += 1
            if depth > DEEPEST:
                return None, start
        elif sign in "])}":
            depth -= 1
            if depth == 0:
                return "".join(written) + sign, place
        written.append(sign)
    return None, start


def _literal(bracket: str) -> object | None:
    """A bracket as a Python literal, else as JSON; None where it is neither."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # strange escapes are the model's
            value: object = ast.literal_eval(bracket)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        try:
            value = json.loads(bracket)
        except (ValueError, RecursionError):
            return None
    return value


def _split(bracket: str) -> list[object]:
    """What stands between a bracket's commas."""
    return [_piece(one) for one in _between_commas(bracket[1:-1])]


def _piece(text: str) -> object:
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        found = _literal(text)
        return _split(text) if found is None else found
    if _WHOLE.fullmatch(text):
        return int(text)
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def _between_commas(inner: str) -> list[str]:
    """Pieces of a list's inside, divided at the commas that stand in no bracket and in no string."""
    pieces, depth, opened, begun = list[str](), 0, "", 0
    for place, sign in enumerate(inner):
        if opened:
            if sign == opened and inner[place - 1] != "\\":
                opened = ""
        elif sign in "\"'" and not inner[begun:place].strip():
            opened = sign
        elif sign in "[({":
            depth += 1
        elif sign in "])}":
            depth -= 1
        elif sign == "," and depth == 0:
            pieces.append(inner[begun:place])
            begun = place + 1
    return [*pieces, inner[begun:]] if inner[begun:].strip() else pieces
