"""How values stand in columns: names of an enumeration, JSON, masks as strings of 0 and 1, flags between commas.

In conditions a text or a number is compared with a column as it is stored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import cache
from typing import Any

from sqlalchemy import Dialect, Float, String, Text, TypeDecorator

from core.episode import Flag


class Stored(TypeDecorator[Any]):
    """Values that are written and read by these two functions; an unknown one is NULL."""

    impl = String
    cache_ok = True

    def __init__(
        self, write: Callable[[Any], str], read: Callable[[str], Any], stored: type[String] = Text
    ) -> None:
        super().__init__()
        self.write, self.read, self.stored = write, read, stored

    def load_dialect_impl(self, dialect: Dialect) -> Any:
        return dialect.type_descriptor(self.stored())

    def coerce_compared_value(self, op: Any, value: Any) -> Any:
        return self.stored() if isinstance(value, str) else self

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else self.write(value)

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        read = self.read
        return lambda value: None if value is None else read(value)


def one_of(kind: type[StrEnum]) -> Stored:
    return Stored(str, {one.value: one for one in kind}.__getitem__, String)


@cache
def _read_names(listed: str) -> tuple[Any, ...]:
    return tuple(json.loads(listed))


@cache
def _read_flags(joined: str) -> tuple[Flag, ...]:
    return tuple(Flag(name) for name in joined.split(",") if name)


@cache
def _read_mask(marks: str) -> tuple[bool, ...]:
    return tuple(mark == "1" for mark in marks)


def _write_mask(mask: tuple[bool, ...]) -> str:
    return "".join("1" if allowed else "0" for allowed in mask)


def _write_object(found: Mapping[Any, Any]) -> str:
    return json.dumps(dict(found))


def _read_deciders(found: str) -> dict[int, str]:
    return {int(turn): policy for turn, policy in json.loads(found).items()}


#: A JSON object, one from turns to policies, and a JSON list, read as a tuple.
OBJECT = Stored(_write_object, json.loads)
DECIDERS = Stored(_write_object, _read_deciders)
NAMES = Stored(json.dumps, _read_names)
FLAGS = Stored(",".join, _read_flags, String)
MASK = Stored(_write_mask, _read_mask, String)


class Total(TypeDecorator[float]):
    """A sum or mean of floats to 12 digits: each database adds up in an order of its own."""

    impl = Float
    cache_ok = True

    def process_result_value(self, value: Any, dialect: Dialect) -> float | None:
        return None if value is None else float(f"{value:.12g}")
