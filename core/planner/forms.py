"""What a planner that is a language model is shown, the form in which it writes its lists, and its grammar: given what
has been written, what may be written next (no torch).

The short form is that of small models: the allowed models by number and the question; a reply is three short lists
whose subtasks are one word each, which the strict reader of positions reads as it reads any other lists.

By the grammar a text is read as a walk through decisions. At each decision there are a few options, none of which
begins another one, and the text so far is either inside an option or at the next decision. Every walk that is begun can
be finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import combinations
from typing import Literal, NamedTuple

from core.conduct.prompts import WORDS, subtask_word
from core.episode import Message, WritePlan
from core.workflow import AccessMode, Workflow


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
    (("subtasks", "subtasks=["), ("access", "]\naccess=["), ("models", "]\nmodel_id=[")), ",", words=(*WORDS,)
)
WHOLE_LISTS = ListForm(
    (("models", "model_id = ["), ("subtasks", "]\nsubtasks = ["), ("access", "]\naccess_list = [")),
    ", ",
    quote='"',
)


def list_form(shown: Shown, words: Sequence[str] = ()) -> ListForm:
    """The form of the lists that belongs to what is shown; with `words`, each subtask is one of them."""
    form = SHORT_LISTS if shown is Shown.SHORT else WHOLE_LISTS
    return replace(form, words=tuple(words)) if words else form


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


Part = Lists | Literal["start", "text", "after text", "done"]

#: Signs that no free subtask holds: they would end it, escape something, or be taken for marks around the lists.
_NOT_IN_TEXT = frozenset('"\\`<\u201c\u201d\u201e\u201f')


class Place(NamedTuple):
    """How far a text has come: the part of the lists, the number of steps (0 while the first list is written), the
    models named so far (only where entries of the access list depend on them), the entries written in this part, steps
    that no later one reads yet, and what is written of an option. In a free subtask `typed` is a mark where something
    other than blanks has been written."""

    part: Part = "start"
    steps: int = 0
    models: tuple[int, ...] = ()
    entry: int = 0
    unread: frozenset[int] = frozenset()
    typed: str = ""


class Grammar:
    """The lists of 1 to `most_steps` steps in one form and mode, of models in the `allowed` slots."""

    def __init__(self, form: ListForm, mode: AccessMode, allowed: Sequence[int], most_steps: int) -> None:
        self._form, self._mode, self._allowed, self._most = form, mode, tuple(allowed), most_steps
        self._options: dict[Place, dict[str, Place]] = {}

    def advance(self, place: Place, text: str) -> Place | None:
        """Where `text` leads from a place; None where no lists go on so."""
        while text:
            if place.part == "text":
                sign, text = text[0], text[1:]
                if sign == self._form.quote and place.typed:
                    place = place._replace(part="after text", typed="")
                elif sign in _NOT_IN_TEXT or not sign.isprintable():
                    return None
                elif not sign.isspace():
                    place = place._replace(typed="x")
                continue
            options, typed = self.options(place), place.typed + text
            chosen = next((option for option in options if typed.startswith(option)), None)
            if chosen is None:
                inside = any(option.startswith(typed) for option in options)
                return place._replace(typed=typed) if inside else None
            place, text = options[chosen], typed[len(chosen) :]
        return place

    def next_signs(self, place: Place) -> frozenset[str] | None:
        """The signs that can come next; None for any, in a free subtask."""
        if place.part == "text":
            return None
        begun = place.typed
        return frozenset(option[len(begun)] for option in self.options(place) if option.startswith(begun))

    def options(self, place: Place) -> dict[str, Place]:
        """What can be written at a decision, and where each leads; none once the lists are whole."""
        key = place._replace(typed="")
        if key not in self._options:
            self._options[key] = self._options_at(key)
        return self._options[key]

    def _options_at(self, place: Place) -> dict[str, Place]:
        form = self._form
        match place.part:
            case "start":
                part, opening = form.lists[0]
                return {opening: Place(part)}
            case "models":
                by_id = self._mode is AccessMode.CHOOSE_ID
                return {
                    f"{model}{text}": to._replace(models=(*place.models, model)) if by_id else to
                    for model in self._allowed
                    for text, to in self._behind(place)
                }
            case "subtasks" if form.words:
                mark = form.quote
                return {
                    f"{mark}{word}{mark}{text}": to for word in form.words for text, to in self._behind(place)
                }
            case "subtasks":
                return {form.quote: place._replace(part="text")}
            case "after text":
                return dict(self._behind(place._replace(part="subtasks")))
            case "access":
                return {
                    f"{entry}{text}": to._replace(unread=(place.unread - read) | {place.entry})
                    if to.part == "access"
                    else to
                    for entry, read in self._entries(place)
                    for text, to in self._behind(place)
                }
        assert place.part == "done"
        return {}

    def _behind(self, place: Place) -> list[tuple[str, Place]]:
        """What can stand behind an entry, and where it leads: to the next entry, or to the next list."""
        lists: tuple[tuple[Part, str], ...] = (*self._form.lists, ("done", "]"))
        entries = place.entry + 1
        number = next(number for number, (part, _) in enumerate(lists) if part == place.part)
        found = []
        if entries < (place.steps or self._most):
            found.append((self._form.comma, place._replace(entry=entries)))
        if entries == (place.steps or entries):
            part, opening = lists[number + 1]
            found.append((opening, Place(part, entries, place.models)))
        return found

    def _entries(self, place: Place) -> list[tuple[str, frozenset[int]]]:
        """The legal entries of the access list here, each with the steps that it reads."""
        entry, earlier = place.entry, range(place.entry)
        found: list[tuple[str, frozenset[int]]] = []
        if self._mode in (AccessMode.BINARY, AccessMode.AUTO):
            found.append(('["all"]', frozenset(earlier)))
        if self._mode is AccessMode.BINARY:
            return [("[]", frozenset()), *found]
        named = sorted(set(place.models[:entry])) if self._mode is AccessMode.CHOOSE_ID else [*earlier]
        final = entry == place.steps - 1
        for size in range(len(named) + 1):
            for some in combinations(named, size):
                read = frozenset(some)
                if self._mode is AccessMode.CHOOSE_POSITION and final and not place.unread <= read:
                    continue  # a step would be left that nobody reads
                found.append((f"[{self._form.comma.join(map(str, some))}]", read))
        return found
