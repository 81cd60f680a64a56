"""Answers that must be JSON: what schema a client may ask for, and whether an answer fits it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from core.pool.wire import Malformed
from ui.endpoint.bodies import read_body
from ui.endpoint.errors import refused
from ui.endpoint.schema_checks import CHECKS, NoSchema, Undecided
from ui.endpoint.schemas import checked_schema
from ui.endpoint.wire import FlatJsonSchemaFormat, JsonObjectFormat, JsonSchemaFormat, TextFormat

#: So long an answer is checked at most, in characters.
LONGEST_ANSWER = 1_000_000
_FENCED = re.compile(r"\A\s*```(?:json)?\s*\n(.*)\n\s*```\s*\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Fitting:
    """An answer that was checked: its JSON text, or why it does not fit."""

    text: str | None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """JSON objects that fit `schema`; an empty one allows all."""

    schema: dict[str, Any]

    def read(self, answer: str) -> Fitting:
        """The JSON text of an answer that fits, without a fence around it. It may take a second or two; Undecided
        where it would take longer."""
        fenced = _FENCED.match(answer)
        text = (fenced[1] if fenced else answer).strip()
        if len(text) > LONGEST_ANSWER:
            return Fitting(None, f"it has more than {LONGEST_ANSWER:,} characters")
        try:
            value = read_body(text.encode("utf-8", "replace"))
        except Malformed as error:
            return Fitting(None, f"it {error}")
        if not self.schema:
            return Fitting(text) if isinstance(value, dict) else Fitting(None, "it is no JSON object")
        fault = CHECKS.fault(json.dumps(self.schema), json.dumps(value))
        return Fitting(text) if fault is None else Fitting(None, fault)


def answer_format(
    asked: TextFormat | JsonObjectFormat | JsonSchemaFormat | FlatJsonSchemaFormat | None, param: str
) -> AnswerFormat | None:
    """The format that a request asks for, None for text. ApiError for a schema that cannot be checked against. It may
    take a second or two."""
    match asked:
        case JsonObjectFormat():
            return AnswerFormat({})
        case JsonSchemaFormat():
            return AnswerFormat(_compiled(asked.json_schema.schema_, f"{param}.json_schema.schema"))
        case FlatJsonSchemaFormat():
            return AnswerFormat(_compiled(asked.schema_, f"{param}.schema"))
        case _:
            return None


def _compiled(given: dict[str, Any], param: str) -> dict[str, Any]:
    schema = checked_schema(given, param)
    try:
        CHECKS.compile(json.dumps(schema))
    except NoSchema as error:
        raise refused(f"The schema is none: {error}.", param, "invalid_schema") from None
    except Undecided as error:
        raise refused(
            f"The schema cannot be used: its check {error}. Send fewer or shorter patterns.",
            param,
            "unsupported_schema",
        ) from None
    return schema
