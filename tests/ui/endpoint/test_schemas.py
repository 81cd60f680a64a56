"""Schemas of requests: what is checked, what is refused with its place, and that none holds up anybody else."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ui.endpoint.server import Served, raw, served, team
from ui.endpoint import schema_checks
from ui.endpoint.errors import ApiError
from ui.endpoint.formats import DEEPEST_SCHEMA, AnswerFormat, answer_format, check_schema
from ui.endpoint.schema_checks import CHECKS, Checks, Undecided
from ui.endpoint.wire import FlatJsonSchemaFormat

pytestmark = pytest.mark.process

#: A pattern that tries again without end where it is looked for by trying again, and one that cannot be had otherwise.
CATASTROPHIC, TRIES_AGAIN = "^(a+)+$", r"^(?:(a+)\1?)+$"
#: As zod writes what is an e-mail address.
EMAIL = r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"


def doubling(n: int, word: str = "allOf") -> dict[str, Any]:
    """Definitions of which each names the next one twice."""
    defs = {f"d{k}": {word: [{"$ref": f"#/$defs/d{k + 1}"}] * 2} for k in range(n)}
    return {"$defs": {**defs, f"d{n}": {"type": "object"}}, "$ref": "#/$defs/d0"}


@pytest.fixture(scope="module", autouse=True)
def _ended() -> Iterator[None]:
    yield
    CHECKS.close()


def asked(schema: dict[str, Any]) -> AnswerFormat:
    found = answer_format(FlatJsonSchemaFormat(type="json_schema", name="s", schema=schema), "text.format")
    assert found is not None
    return found


def fits(schema: dict[str, Any], value: Any) -> bool:
    return asked(schema).read(json.dumps(value)).text is not None


def refusal(schema: dict[str, Any]) -> str:
    with pytest.raises(ApiError) as caught:
        asked(schema)
    assert (caught.value.status, caught.value.param) == (400, "text.format.schema")
    return caught.value.message


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"pattern": "^[a-z]+$"}, "abc", "ABC"),
        ({"pattern": EMAIL}, "a.b@example.com", ".a@example.com"),
        ({"format": "email"}, "a@example.com", "nobody"),
        ({"format": "date-time"}, "2026-11-26T12:00:00Z", "yesterday"),
        ({"format": "uuid"}, "12345678-1234-1234-1234-123456789abc", "12"),
        ({"format": "ipv4"}, "127.0.0.1", "127.0.0.256"),
        ({"patternProperties": {"^x": {"type": "integer"}}}, {"x1": 1}, {"x1": "one"}),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "integer"}]}, [1], ["one"]),
        ({"$id": "https://example.com/a.json", "$schema": "https://json-schema.org/draft/2020-12/schema",
          "$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}, 1, "one"),
        ({"properties": {"pattern": {"type": "integer"}, "$ref": {"type": "integer"}, "$id": {"type": "integer"}}},
         {"pattern": 1, "$ref": 2, "$id": 3}, {"$ref": "one"}),
        ({"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}}},
         {"kids": [{"kids": []}]}, {"kids": [{"kids": 1}]}),
        ({"minItems": 10**18}, {}, []),
        ({"enum": [*range(10_000)]}, 9_999, 10_000),
        ({"format": "a-word-of-ours"}, "anything", None),
    ],
)  # fmt: skip
def test_what_a_schema_says_is_checked(schema: dict[str, Any], good: Any, bad: Any) -> None:
    assert fits(schema, good)
    if bad is not None:
        assert not fits(schema, bad)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (doubling(13), "more than 5,000 parts"),
        (doubling(18), "more than 5,000 parts"),
        (doubling(22), "more than 5,000 parts"),
        (doubling(30), "more than 5,000 parts"),
        (doubling(22, "anyOf"), "more than 5,000 parts"),
        ({"properties": doubling(22)["$defs"], "allOf": [{"$ref": "#/properties/d0"}], "$defs": doubling(22)["$defs"]},
         "more than 5,000 parts"),
        ({"$ref": "#"}, "'$ref' leads back to itself"),
        ({"$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"},
         "leads back to itself"),
        ({"properties": {"a": {"anyOf": [{"type": "string"}, {"$ref": "#/properties/a"}]}}}, "leads back to itself"),
        ({"$ref": "#/$defs/none"}, "the '$ref' #/$defs/none leads nowhere"),
        ({"items": {"$ref": "http://127.0.0.1:1/x.json"}}, "at #/items, a '$ref' may only lead into the schema itself"),
        ({"$ref": "file:///etc/passwd"}, "may only lead into the schema itself"),
        ({"items": {"$id": "https://example.com"}}, "'$id' is not read here"),
        ({"properties": {"a": {"pattern": "("}}}, 'at #/properties/a/pattern, "(" is not a "regex"'),
        ({"properties": {"a": {"pattern": "((a{0,100}){0,100}){0,100}"}}}, "at #/properties/a/pattern"),
        ({"properties": {"a": {"minimum": "x"}}}, "at #/properties/a/minimum"),
        ({"type": "objekt"}, "at #/type"),
        ({"properties": 5}, "at #/properties"),
        ({"enum": ["x" * 100_000]}, "longer than 100,000 characters"),
        ({"$defs": {f"d{k}": {"$ref": f"#/$defs/d{k + 1}"} for k in range(999)} | {"d999": {}}, "$ref": "#/$defs/d0"},
         "through more than 200 schemas"),
    ],
)  # fmt: skip
def test_what_cannot_be_checked_is_refused_with_its_place(schema: dict[str, Any], words: str) -> None:
    began = time.monotonic()
    assert words in refusal(schema)
    assert time.monotonic() - began < 5


def test_a_schema_as_deep_as_may_be_and_one_deeper() -> None:
    def nested(depth: int) -> dict[str, Any]:
        schema: dict[str, Any] = {}
        for _ in range(depth):
            schema = {"items": schema}
        return schema

    assert check_schema(nested(DEEPEST_SCHEMA), "p")
    with pytest.raises(ApiError, match="nested more than"):
        check_schema(nested(DEEPEST_SCHEMA + 1), "p")


@pytest.mark.parametrize("n", [28, 5_000])
@pytest.mark.parametrize("schema", [{"pattern": CATASTROPHIC}, {"patternProperties": {CATASTROPHIC: False}}])
def test_patterns_take_time_in_proportion(schema: dict[str, Any], n: int) -> None:
    fits({}, 1)  # its process is there
    began = time.monotonic()
    text = "a" * n + "b"
    fits(schema, {text: 1} if "patternProperties" in schema else text)
    assert time.monotonic() - began < 1


def test_a_pattern_that_would_try_without_end_is_told_so() -> None:
    format_ = asked({"pattern": TRIES_AGAIN})
    assert format_.read('"aaaa"').text
    with pytest.raises(Undecided, match="try a pattern too often"):
        format_.read(json.dumps("a" * 3_000 + "b"))


def test_a_check_that_takes_too_long_is_ended_and_the_next_one_is_not_held_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schema_checks, "CHECK_S", 0.3)
    checks = Checks()
    slow = json.dumps({"items": {"uniqueItems": True}})
    rows = json.dumps([[{"a": [k, 0] * 60} for k in range(60_000)]])
    with pytest.raises(Undecided, match="took longer than 0.3 s"):
        checks.fault(slow, rows)
    assert checks.fault(slow, "[[1, 2]]") is None
    assert checks.fault(slow, "[[1, 1]]")
    checks.close()


def latencies(one: Served, while_: Callable[[], object]) -> float:
    """The longest that /healthz took meanwhile, in seconds."""
    worst, over = 0.0, threading.Event()

    def look() -> None:
        nonlocal worst
        while not over.is_set():
            began = time.monotonic()
            assert raw(one.url, "GET", "/healthz")[0] == 200
            worst = max(worst, time.monotonic() - began)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        while_()
    finally:
        over.set()
        looking.join()
    return worst


def test_no_schema_holds_up_others(tmp_path: Path) -> None:
    answer = json.dumps({"a" * 28 + "b": [[k] for k in range(3_000)]})
    heavy = {"patternProperties": {CATASTROPHIC: False, ".": {"uniqueItems": True}}}
    with served(tmp_path, team(f"{answer}")) as one:

        def ask(schema: dict[str, Any]) -> tuple[int, Any]:
            wanted = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
            talk = [{"role": "user", "content": "How many?"}]
            body = {"model": "trinity", "messages": talk, "response_format": wanted}
            status, _, said = raw(one.url, "POST", "/v1/chat/completions", json.dumps(body).encode())
            return status, said

        assert ask({"type": "object"})[0] == 200

        def all_of_them() -> None:
            for n in (18, 22, 30):
                status, said = ask(doubling(n))
                assert (status, said["error"]["code"]) == (400, "unsupported_schema")
            assert ask(heavy)[0] == 200
            status, said = ask({"propertyNames": {"pattern": TRIES_AGAIN}})
            assert (status, "would have to try a pattern too often" in said["error"]["message"]) == (
                502,
                True,
            )
            status, said = ask({"required": ["n"]})
            assert (status, said["error"]["code"]) == (502, "invalid_answer_format")
            assert '"n" is a required property' in said["error"]["message"]

        assert latencies(one, all_of_them) < 2.0
