"""What a planner that is a language model is shown, and the form in which it writes its lists (no torch).

The short form is that of small models: the allowed models by number and the question; a reply is three short lists
whose subtasks are one word each, which the strict reader of positions reads as it reads any other lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from core.conduct.prompts import subtask_word
from core.episode import Message, WritePlan
from core.workflow import Workflow

#: The subtasks of the short form, which are the words that pocket models know.
WORDS: tuple[str, ...] = ("plan", "solve", "check", "merge")


class Shown(StrEnum):
    """What a planner is shown of a problem and of the models."""

    SHORT = "short"  # the short form: numbers of models, and the question
    IDS = "ids"  # the whole instruction; models without names
    NAMES = "names"  # the whole instruction; models with their names


Lists = Literal["models", "subtasks", "access"]


@dataclass(frozen=True, slots=True)
class ListForm:
    """How three lists are written: which they are in their order, each with what opens it (and closes the one before),
    the comma between entries, the mark around a subtask, and the words that a subtask is one of; without words it is
    any text. Access comes after another list, which tells the number of steps."""

    lists: tuple[tuple[Lists, str], ...]
    comma: str
    quote: str = ""
    words: tuple[str, ...] = ()


#: What is done by whom is written last here, so that a small planner can learn who is good at which subtask.
SHORT_LISTS = ListForm(
    (("subtasks", "subtasks=["), ("access", "]\naccess=["), ("models", "]\nmodel_id=[")), ",", words=WORDS
)
WHOLE_LISTS = ListForm(
    (("models", "model_id = ["), ("subtasks", "]\nsubtasks = ["), ("access", "]\naccess_list = [")),
    ", ",
    quote='"',
)


def list_form(shown: Shown) -> ListForm:
    """The form of the lists that belongs to what is shown."""
    return SHORT_LISTS if shown is Shown.SHORT else WHOLE_LISTS


def shown_messages(request: WritePlan, shown: Shown) -> tuple[Message, ...]:
    """The messages that a planner reads for a request."""
    if shown is Shown.SHORT:
        return (Message("user", short_prompt(request.question, request.allowed)),)
    return request.messages


def short_prompt(question: str, allowed: Sequence[int]) -> str:
    """The question and the models that may be named, the models first: a question that is too long loses its end."""
    return f"workflow\nmodels {' '.join(map(str, allowed))}\n{question}"


def write_short(workflow: Workflow) -> str:
    """The lists of a workflow of positions in the short form, each subtask by its first word, in lower case."""
    comma = SHORT_LISTS.comma
    entries: dict[Lists, list[str]] = {
        "models": [*map(str, workflow.models)],
        "subtasks": [*map(subtask_word, workflow.subtasks)],
        "access": [f"[{comma.join(map(str, seen))}]" for seen in workflow.reads],
    }
    return "".join(f"{opening}{comma.join(entries[which])}" for which, opening in SHORT_LISTS.lists) + "]"
