"""Which texts are lists of a workflow: given what has been written, what may be written next (no torch).

A text is read as a walk through decisions. At each decision there are a few options, none of which begins another one,
and the text so far is either inside an option or at the next decision. Every walk that is begun can be finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Literal, NamedTuple

from core.planner.forms import ListForm
from core.workflow import AccessMode

Part = Literal["start", "models", "subtasks", "text", "after text", "access", "done"]

#: Signs that no free subtask holds: they would end it, escape something, or be taken for marks around the lists.
_NOT_IN_TEXT = frozenset('"\\`<\u201c\u201d\u201e\u201f')


class Place(NamedTuple):
    """How far a text has come: the part of the lists, the models named so far (their numbers only where entries of the
    access list depend on them), the entries written in this part, steps that no later one reads yet, and what is
    written of an option. In a free subtask `typed` is a mark where something other than blanks has been written."""

    part: Part = "start"
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
        form, steps, last = self._form, len(place.models), place.entry == len(place.models) - 1
        match place.part:
            case "start":
                return {form.models: Place("models")}
            case "models":
                found = {}
                for model in self._allowed:
                    named = (*place.models, model if self._mode is AccessMode.CHOOSE_ID else 0)
                    if len(named) < self._most:
                        found[f"{model}{form.comma}"] = Place("models", named)
                    found[f"{model}{form.subtasks}"] = Place("subtasks", named)
                return found
            case "subtasks" if form.words:
                return {f"{word}{text}": to for word in form.words for text, to in self._next_subtask(place)}
            case "subtasks":
                return {form.quote: place._replace(part="text")}
            case "after text":
                return dict(self._next_subtask(place))
            case "access":
                found = {}
                for entry, read in self._entries(place):
                    unread = (place.unread - read) | {place.entry}
                    to = Place("access", place.models, place.entry + 1, unread)
                    found[entry + ("]" if last else form.comma)] = Place("done") if last else to
                return found
        assert steps or place.part == "done"
        return {}

    def _next_subtask(self, place: Place) -> list[tuple[str, Place]]:
        """What stands behind a subtask, and where it leads."""
        if place.entry < len(place.models) - 1:
            return [(self._form.comma, Place("subtasks", place.models, place.entry + 1))]
        return [(self._form.access, Place("access", place.models))]

    def _entries(self, place: Place) -> list[tuple[str, frozenset[int]]]:
        """The legal entries of the access list here, each with the steps that it reads."""
        entry, earlier = place.entry, range(place.entry)
        found: list[tuple[str, frozenset[int]]] = []
        if self._mode in (AccessMode.BINARY, AccessMode.AUTO):
            found.append(('["all"]', frozenset(earlier)))
        if self._mode is AccessMode.BINARY:
            return [("[]", frozenset()), *found]
        named = sorted(set(place.models[:entry])) if self._mode is AccessMode.CHOOSE_ID else [*earlier]
        final = entry == len(place.models) - 1
        for size in range(len(named) + 1):
            for some in combinations(named, size):
                read = frozenset(some)
                if self._mode is AccessMode.CHOOSE_POSITION and final and not place.unread <= read:
                    continue  # a step would be left that nobody reads
                found.append((f"[{self._form.comma.join(map(str, some))}]", read))
        return found
