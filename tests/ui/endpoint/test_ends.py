"""How a model's call ended, as a client of the endpoint hears it, and what is charged for one that failed."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.core.pool.faulty_server import Answer, Request, chat, fail, respond
from tests.ui.endpoint.server import role_of, served, team

DOLLAR = "price_in = 0.0\nprice_out = 1000000.0\nmax_tokens = 1"  # the most that a call can cost
CUT = (respond(chat("forty-two")[:40]),)
BARE = json.dumps(
    {"choices": [{"finish_reason": "stop", "message": {"content": "<answer>1</answer>"}}]}
).encode()


def ended(reason: str) -> Any:
    """A team whose Workers stop for this reason."""

    def answer(request: Request) -> Answer:
        if role_of(request) != "Worker":
            return team()(request)
        return (respond(chat("<answer>forty-two</answer>", finish_reason=reason)),)

    return answer


@pytest.mark.parametrize(
    ("reason", "told", "status"),
    [
        ("end_turn", "stop", "completed"),
        ("MAX_TOKENS", "length", "incomplete"),
        ("model_context_window_exceeded", "length", "incomplete"),
        ("sensitive", "content_filter", "incomplete"),
        ("pause_turn", "stop", "completed"),
    ],
)
def test_nothing_is_called_done_that_is_not(tmp_path: Path, reason: str, told: str, status: str) -> None:
    with served(tmp_path, ended(reason)) as one:
        answer = one.ask()
        assert (answer.choices[0].finish_reason, answer.choices[0].message.content) == (told, "forty-two")
        turn = next(turn for turn in answer.model_extra["trinity"]["turns"] if turn["role"] == "worker")
        assert turn["finish_reason"] == reason
        assert ("unknown_finish" in turn["flags"]) is (reason == "pause_turn")
        *_, last = [
            chunk for chunk in one.ask(stream=True) if chunk.choices and chunk.choices[0].finish_reason
        ]
        assert last.choices[0].finish_reason == told
        response = one.client.responses.create(model="trinity", input="How many?")
        assert response.status == status
        details = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(told)
        assert (response.incomplete_details and response.incomplete_details.reason) == details


def test_half_a_text_of_a_server_that_broke_off_reaches_nobody(tmp_path: Path) -> None:
    with served(tmp_path, ended("network_error")) as one:
        with pytest.raises(openai.APIStatusError) as caught:
            one.ask()
        assert caught.value.response.json()["error"]["code"] == "pool_unavailable"
        assert "network_error" in caught.value.response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("answer", "usd"),
    [
        (CUT, 1.0),  # it cannot be read, and may be billed
        ((respond(BARE),), 5.0),  # five turns without counts of tokens
        (fail(503), 0.0),
        (fail(429, "insufficient_quota"), 0.0),
        (
            (respond(chat("", finish_reason="error", usage={"prompt_tokens": 9, "completion_tokens": 3})),),
            3.0,
        ),
    ],
)
def test_a_failed_call_is_charged_as_what_it_may_have_cost(
    tmp_path: Path, answer: Answer, usd: float
) -> None:
    with served(tmp_path, answer, entry=DOLLAR) as one:
        with nullcontext() if usd == 5.0 else pytest.raises(openai.InternalServerError):
            one.ask()
        assert one.store.endpoint.charged_usd() == usd
