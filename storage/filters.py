"""Which episodes a list shows: a frozen filter that travels in a URL and compiles to SQL conditions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EpisodeFilter:
    """All conditions must hold; None means "any". Values come from `Facets`, so they can be clicked together.

    `correct` is "right", "wrong" or "none"; `model` and `role` match episodes with at least one such turn (the same
    turn when both are given); `text` is searched in questions and replies.
    """

    run: str | None = None
    policy: str | None = None
    checkpoint: str | None = None
    family: str | None = None
    task: str | None = None
    correct: str | None = None
    end_reason: str | None = None
    status: str | None = None
    flag: str | None = None
    min_turns: int | None = None
    max_turns: int | None = None
    model: str | None = None
    role: str | None = None
    text: str | None = None

    def to_query(self) -> dict[str, str]:
        """The filter as URL query parameters; unset fields are left out."""
        ...

    @classmethod
    def from_query(cls, query: dict[str, str]) -> EpisodeFilter:
        """The filter a URL asks for; unknown keys and unusable values are ignored, so a stale link still opens."""
        ...
