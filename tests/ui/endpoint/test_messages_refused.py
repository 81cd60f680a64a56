"""Is what clients of Anthropic's API ask wrongly told in its form, and what changes no answer left aside?"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.ui.endpoint.server import CHAT, Served, raw, said_to
from tests.ui.endpoint.test_messages import MESSAGES, TALK, WEATHER, asking

pytestmark = pytest.mark.integration

RESULT = {"type": "tool_result", "tool_use_id": "zz", "content": "4"}
WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"max_tokens": None}, "max_tokens", "integer"),
    ({"max_tokens": 0}, "max_tokens", "greater"),
    ({"messages": []}, "messages", "at least 1"),
    ({"messages": [*TALK, {"role": "user", "content": [RESULT]}]}, "messages.1.content.0", "'zz'"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role", "'assistant'"),
    ({"messages": [{"role": "user", "content": [{"type": "document", "source": {}}]}]},
     "messages.0.content.0.type", "only text and images"),
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "file", "file_id": "f"}}]}]},
     "messages.0.content.0.source.type", "'base64'"),
    ({"messages": [{"role": "user", "content": " "}]}, "messages", "at least one"),
    ({"messages": [*TALK, {"role": "system", "content": [RESULT]}]}, "messages.1.content.0", "in a user's message"),
    ({"messages": [*TALK, {"role": "assistant", "content": "{"}]}, "messages.1", "end with a user's message"),
    ({"temperature": 1.5}, "temperature", "less than or equal"),
    ({"stop": ["x"]}, "stop", "leave it out"),
    ({"surprise": 1}, "surprise", "leave it out"),
    ({"trinity": {"surprise": 1}}, "trinity.surprise", "leave it out"),
    ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "sub"}}, "tool_choice", "'sub'"),
    ({"tools": [WEATHER], "tool_choice": {"type": "tool"}}, "tool_choice.name", "names none"),
    ({"tool_choice": {"type": "any"}}, "tool_choice", "no function is offered"),
    ({"tools": [{"name": "a b", "input_schema": {}}]}, "tools.0.name", "pattern"),
    ({"tools": [{"name": "ab"}]}, "tools.0.input_schema", "missing"),
    ({"mcp_servers": [{"url": "x"}]}, "mcp_servers", "offer their tools"),
    ({"output_config": {"effort": "huge"}}, "reasoning_effort", "minimal"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param", "words"), WRONG)
def test_what_is_asked_wrongly_is_told_in_anthropic_s_form(
    one: Served, fields: dict[str, Any], param: str, words: str
) -> None:
    status, answer = one.post(MESSAGES, asking(**fields))
    assert (status, answer["type"], answer["error"]["type"]) == (400, "error", "invalid_request_error")
    assert answer["error"]["param"] == param, answer
    assert words in answer["error"]["message"]
    assert not one.models.requests


def test_a_failed_tool_may_give_as_many_parts_as_any_other(one: Served) -> None:
    result = {**RESULT, "content": [{"type": "text", "text": "x"}] * 100, "is_error": True}
    called = {"role": "assistant", "content": [{"type": "tool_use", "id": "zz", "name": "f", "input": {}}]}
    body = asking(messages=[*TALK, called, {"role": "user", "content": [result]}])
    assert one.post(MESSAGES, body)[0] == 200
    assert f"The tool failed:\n{'x' * 100}" in said_to(one.models.requests[1])


def test_errors_before_a_body_is_read_have_the_same_form(one: Served) -> None:
    cases = [
        (raw(one.url, "POST", MESSAGES, b"{"), 400, "invalid_request_error"),
        (raw(one.url, "POST", MESSAGES, json.dumps(asking(model="no")).encode()), 404, "not_found_error"),
        (raw(one.url, "POST", f"{MESSAGES}/count_tokens", b"{}"), 404, "not_found_error"),
        (raw(one.url, "POST", MESSAGES, b" " * (17 * 2**20)), 413, "request_too_large"),
        (raw(one.url, "POST", MESSAGES, b"{}", Origin="https://evil.example"), 403, "permission_error"),
        (raw(one.url, "GET", MESSAGES), 405, "invalid_request_error"),
    ]
    for (status, _, answer), expected, kind in cases:
        assert (status, answer["type"], answer["error"]["type"]) == (expected, "error", kind)
    assert raw(one.url, "POST", CHAT, b"{")[2]["error"]["code"] is None, "the other doors keep theirs"


def test_what_changes_no_answer_is_left_aside_and_told(one: Served) -> None:
    body = asking(
        top_k=5,
        thinking={"type": "enabled", "budget_tokens": 1024},
        cache_control={"type": "ephemeral"},
        service_tier="auto",
        context_management={"edits": []},
        mcp_servers=[],
        container=None,
        tools=[
            {**WEATHER, "cache_control": {"type": "ephemeral"}},
            {"type": "bash_20250124", "name": "bash"},
        ],
        system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
    )
    status, answer = one.post(MESSAGES, body, anthropic_version="2023-06-01", anthropic_beta="x")
    assert status == 200, answer
    assert sorted(answer["trinity"]["left_aside"]) == [
        "cache_control",
        "context_management",
        "service_tier",
        "system.cache_control",
        "thinking",
        "tools.bash_20250124",
        "tools.cache_control",
        "top_k",
    ]


def test_the_description_names_the_door(one: Served) -> None:
    described = raw(one.url, "GET", "/openapi.json")[2]
    operation = described["paths"][MESSAGES]["post"]
    assert operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith(
        "MessagesRequest"
    )
    assert "Anthropic" in operation["responses"]["400"]["description"]
    assert {"model", "max_tokens", "messages"} == {
        *described["components"]["schemas"]["MessagesRequest"]["required"]
    }
