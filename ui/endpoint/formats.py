"""Answers that must be JSON: what schema a client may ask for, a bound on its size, its depth and on how often its
references unfold, and whether an answer fits it. And what counts as JSON here: no number without end, no key twice, no
bottomless nesting."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from core.pool.wire import Malformed, strict_json
from ui.endpoint.errors import ApiError, bad_request
from ui.endpoint.schema_checks import CHECKS, NoSchema, Undecided
from ui.endpoint.wire import AnyFormat, FlatJsonSchemaFormat, JsonSchemaFormat, PlainFormat

#: How deep the lists and objects of a body, or of an answer, may stand in each other.
DEEPEST = 100
#: So long an answer is checked at most, in characters.
LONGEST_ANSWER = 1_000_000
#: So many braces of a text are tried as the beginning of an object.
MOST_TRIES = 1_000
_FENCED = re.compile(r"\A\s*```(?:json)?\s*\n(.*)\n\s*```\s*\Z", re.DOTALL)


#: How deep and how many characters long a schema may be, and how many parts it may have once every reference is
#: replaced by what it leads to (22 definitions that name the next one twice each would have four million).
DEEPEST_SCHEMA, LONGEST_SCHEMA, MOST_PARTS = 60, 100_000, 5_000
#: Through so many schemas references may lead one after the other.
LONGEST_WAY = 200
#: What would have a reference lead to another place than its pointer says.
_ELSEWHERE = ("$dynamicRef", "$recursiveRef", "$dynamicAnchor", "$recursiveAnchor", "$anchor", "$id")


#: Keywords that hold a schema, or a list of them, and look at the same value again, or at a part of it.
_SAME = ("not", "if", "then", "else", "allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies")
_PARTS = (
    *("items", "prefixItems", "additionalItems", "unevaluatedItems", "contains", "contentSchema"),
    *("properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames"),
)
_DEFINITIONS = ("$defs", "definitions")
#: Those of them that hold schemas by name.
_BY_NAME = {"dependentSchemas", "dependencies", "properties", "patternProperties", *_DEFINITIONS}


def read_body(data: bytes) -> Any:
    """The JSON value of a body; Malformed for what another reader could take for something else."""
    value = strict_json(data)
    level, depth = [value], 0
    while level := [inner for one in level for inner in _held(one) if isinstance(inner, dict | list)]:
        depth += 1
        if depth >= DEEPEST:
            raise Malformed(f"is nested more than {DEEPEST} deep")
    return value


def _held(value: Any) -> Any:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


@dataclass(frozen=True, slots=True)
class Fitting:
    """An answer that was checked: its JSON text, or why it does not fit."""

    text: str | None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class AnswerFormat:
    """JSON objects that fit `schema`; an empty one allows all."""

    schema: dict[str, Any]
    name: str = "answer"
    strict: bool | None = None

    @property
    def sent(self) -> str:
        """The format as a server is asked for it, as JSON."""
        if not self.schema:
            return json.dumps({"type": "json_object"})
        strict = {} if self.strict is None else {"strict": self.strict}
        return json.dumps(
            {"type": "json_schema", "json_schema": {"name": self.name, "schema": self.schema, **strict}}
        )

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
            if not (found := only_object(text)):
                return Fitting(None, f"it {error}")
            try:
                value, text = read_body(found.encode("utf-8", "replace")), found
            except Malformed as worse:
                return Fitting(None, f"it {worse}")
        if not self.schema:
            return Fitting(text) if isinstance(value, dict) else Fitting(None, "it is no JSON object")
        fault = CHECKS.fault(json.dumps(self.schema), json.dumps(value))
        return Fitting(text) if fault is None else Fitting(None, fault)


def only_object(text: str) -> str:
    """The text of the only JSON object among other words; empty where there is none, or more than one."""
    decoder, found, at = json.JSONDecoder(), list[str](), text.find("{")
    for _ in range(MOST_TRIES):
        if at < 0 or len(found) > 1:
            break
        try:
            _, end = decoder.raw_decode(text, at)
            found.append(text[at:end])
        except (ValueError, RecursionError):
            end = at + 1
        at = text.find("{", end)
    return found[0] if len(found) == 1 and at < 0 else ""


def answer_format(asked: AnyFormat | None, param: str) -> AnswerFormat | None:
    """The format that a request asks for, None for text. ApiError for a schema that cannot be checked against. It may
    take a second or two."""
    match asked:
        case PlainFormat(type="json_object"):
            return AnswerFormat({})
        case JsonSchemaFormat():
            own = asked.json_schema
            schema = _compiled(own.schema_, f"{param}.json_schema.schema")
            return AnswerFormat(schema, own.name, own.strict)
        case FlatJsonSchemaFormat():
            return AnswerFormat(_compiled(asked.schema_, f"{param}.schema"), asked.name, asked.strict)
        case _:
            return None


def _compiled(given: dict[str, Any], param: str) -> dict[str, Any]:
    schema = check_schema(given, param)
    try:
        CHECKS.compile(json.dumps(schema))
    except NoSchema as error:
        raise bad_request(f"This is no JSON schema: {error}.", param, "invalid_schema") from None
    except Undecided as error:
        raise bad_request(
            f"The schema cannot be used: its check {error}. Send fewer or shorter patterns.",
            param,
            "unsupported_schema",
        ) from None
    return schema


def check_schema(schema: dict[str, Any], param: str) -> dict[str, Any]:
    """The schema as it is checked against, without its own name. ApiError, which names the place, for one that is too
    large or leads elsewhere; whether it is a schema at all is for whoever compiles it."""
    if len(json.dumps(schema)) > LONGEST_SCHEMA:
        raise bad_request(
            f"The schema is longer than {LONGEST_SCHEMA:,} characters: send a smaller one.", param
        )
    named = {key: value for key, value in schema.items() if key != "$id"}
    counted = _Counted(named, param)
    counted.check_places()
    if counted.size(named, "#", {}) > MOST_PARTS:
        raise bad_request(
            f"The schema has more than {MOST_PARTS:,} parts once its references are unfolded: name fewer "
            "definitions more than once, or send a smaller one.",
            param,
            "unsupported_schema",
        )
    return named


@dataclass
class _Counted:
    """A schema whose parts are counted as if every reference were replaced by what it leads to."""

    root: dict[str, Any]
    param: str
    sizes: dict[int, int] = field(default_factory=dict)  # by identity

    def check_places(self) -> None:
        """ApiError for a schema that stands too deep, leads elsewhere, or to nothing."""
        for depth, path, schema in _every(self.root):
            if depth > DEEPEST_SCHEMA:
                raise bad_request(
                    f"The schema is nested more than {DEEPEST_SCHEMA} deep: send a flatter one.", self.param
                )
            for word in _ELSEWHERE:
                if word in schema:
                    raise self._refused(path, f"'{word}' is not read here: leave it out")
            if "$ref" in schema:
                self._target(schema["$ref"], path)

    def size(self, schema: Any, path: str, above: Mapping[int, bool]) -> int:
        """How many parts a schema has; those of a reference to what encloses it are counted where they stand. `above`:
        by identity, the schemas that are being counted, and whether a part of the value was entered since."""
        if not isinstance(schema, dict):
            return 1
        if (known := self.sizes.get(id(schema))) is not None:
            return known
        if len(above) >= LONGEST_WAY:
            raise self._refused(path, f"references lead through more than {LONGEST_WAY} schemas: name fewer")
        here = {**above, id(schema): False}
        same = [*_within(schema, _SAME)]
        if "$ref" in schema:
            same.append(("$ref", self._target(schema["$ref"], path)))
        total = 1
        for now, inner in ((here, same), (dict.fromkeys(here, True), _within(schema, _PARTS))):
            for name, part in inner:
                if now.get(id(part)) is False:
                    raise self._refused(path, f"'{name}' leads back to itself without going deeper: mend it")
                if id(part) not in now:
                    total += self.size(part, f"{path}/{name}", now)
        self.sizes[id(schema)] = total
        return total

    def _target(self, reference: Any, path: str) -> Any:
        """What a reference leads to."""
        if not (isinstance(reference, str) and (reference == "#" or reference.startswith("#/"))):
            raise self._refused(path, "a '$ref' may only lead into the schema itself (#/$defs/...)")
        found: Any = self.root
        for step in reference.split("/")[1:]:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                raise self._refused(path, f"the '$ref' {reference[:100]} leads nowhere")
        return found

    def _refused(self, path: str, why: str) -> ApiError:
        return bad_request(
            f"The schema cannot be used: at {path[:200]}, {why}.", self.param, "unsupported_schema"
        )


def _within(schema: dict[str, Any], keywords: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """The schemas at these keywords of one, each with its place."""
    for word in keywords:
        held = schema.get(word)
        if isinstance(held, list):
            yield from ((f"{word}/{place}", inner) for place, inner in enumerate(held))
        elif isinstance(held, dict) and word in _BY_NAME:
            yield from ((f"{word}/{name}", inner) for name, inner in held.items())
        elif isinstance(held, dict):
            yield word, held


def _every(root: dict[str, Any]) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Every schema that stands in one, itself first, with how deep it stands and where."""
    waiting: list[tuple[int, str, Any]] = [(0, "#", root)]
    while waiting:
        depth, path, schema = waiting.pop()
        if not isinstance(schema, dict):
            continue
        yield depth, path, schema
        if depth <= DEEPEST_SCHEMA:
            inner = _within(schema, (*_SAME, *_PARTS, *_DEFINITIONS))
            waiting += [(depth + 1, f"{path}/{name}", one) for name, one in inner]
