"""Statistics of what learns as JSON and back: dataclasses of numbers, shares and counts, without what is not known."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter

T = TypeVar("T")


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def statistics_json(kind: type[T], value: T) -> dict[str, Any]:
    """The fields that `kind` has of a value, ready for JSON; NaN, None and what is empty are left out."""
    adapter = _adapter(cast(Any, kind))
    found: dict[str, Any] = _known(adapter.dump_python(value, mode="json"))
    return found


def statistics_of_json(kind: type[T], stored: Mapping[str, Any]) -> T:
    """Inverse of `statistics_json`."""
    return cast(T, _adapter(cast(Any, kind)).validate_python(stored))


def _known(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    known = ((name, _known(one)) for name, one in value.items())
    return {name: one for name, one in known if one == one and one not in (None, "", [], {})}


def joined(shares: Mapping[tuple[Any, Any], float]) -> dict[str, float]:
    """Shares of pairs by one text each: `MODEL ROLE`."""
    return {f"{first} {second}": share for (first, second), share in shares.items()}
