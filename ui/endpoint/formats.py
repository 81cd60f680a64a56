"""Answers that must be JSON: what schema a client may ask for, and whether an answer fits it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from core.pool.wire import Malformed, strict_json
from ui.endpoint.errors import refused
from ui.endpoint.wire import FlatJsonSchemaFormat, JsonObjectFormat, JsonSchemaFormat, TextFormat

#: How deep and how large a schema may be.
_DEEPEST, _LONGEST = 30, 100_000
#: What could keep this process busy without end, or have it look elsewhere.
_REFUSED = ("pattern", "patternProperties", "format", "$dynamicRef", "$id", "$anchor")
_FENCED = re.compile(r"\A\s*```(?:json)?\s*\n(.*)\n\s*```\s*\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """JSON objects that fit `schema`; an empty one allows all."""

    schema: dict[str, Any]

    def read(self, answer: str) -> str | None:
        """The JSON text of an answer that fits, without a fence around it; None for any other."""
        fenced = _FENCED.match(answer)
        text = (fenced[1] if fenced else answer).strip()
        try:
            value = strict_json(text.encode("utf-8", "replace"))
        except Malformed:
            return None
        if not isinstance(value, dict) and not self.schema:
            return None
        return text if not self.schema or Draft202012Validator(self.schema).is_valid(value) else None


def answer_format(
    asked: TextFormat | JsonObjectFormat | JsonSchemaFormat | FlatJsonSchemaFormat | None, param: str
) -> AnswerFormat | None:
    """The format that a request asks for, None for text. ApiError for a schema that cannot be checked against."""
    match asked:
        case JsonObjectFormat():
            return AnswerFormat({})
        case JsonSchemaFormat():
            return AnswerFormat(_checked(asked.json_schema.schema_, f"{param}.json_schema.schema"))
        case FlatJsonSchemaFormat():
            return AnswerFormat(_checked(asked.schema_, f"{param}.schema"))
        case _:
            return None


def _checked(schema: dict[str, Any], param: str) -> dict[str, Any]:
    if len(json.dumps(schema)) > _LONGEST:
        raise refused(f"The schema is longer than {_LONGEST:,} characters: send a smaller one.", param)
    for depth, word, value in _words(schema):
        if depth > _DEEPEST:
            raise refused(f"The schema is nested more than {_DEEPEST} deep: send a flatter one.", param)
        if word in _REFUSED and not isinstance(value, dict):
            raise refused(
                f"The schema's '{word}' is not checked here: leave it out.", param, "unsupported_schema"
            )
        if word == "$ref" and not (isinstance(value, str) and value.startswith("#")):
            raise refused(
                "A '$ref' may only lead into the schema itself (#/$defs/...).", param, "unsupported_schema"
            )
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise refused(f"The schema is none: {error.message[:200]}", param, "invalid_schema") from None
    return schema


def _words(value: Any, depth: int = 0) -> Iterator[tuple[int, str, Any]]:
    """Every key of a schema with how deep it stands and what it holds."""
    if depth > _DEEPEST + 1:
        return
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield depth, key, inner
        yield from _words(inner, depth + 1)
    for inner in value if isinstance(value, list) else ():
        yield from _words(inner, depth + 1)
