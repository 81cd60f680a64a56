"""Structured output for real: servers are told of the form, what is found among words is taken, and an answer in
another form is written again, once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.episode import Flag
from tests.core.pool.faulty_server import Answer, Request, ok
from tests.ui.endpoint.server import Serve, episode_of, role_of, said_to, served, team
from ui.endpoint.formats import only_object
from ui.endpoint.tiers import Endpoint, Tier

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
WANTED: Any = {"type": "json_schema", "json_schema": {"name": "count", "schema": SCHEMA, "strict": True}}
ONCE = Endpoint(
    tier=(Tier("trinity", policy="single:a", turns=1), Tier("three", policy="round-robin", turns=3))
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('Here it is: {"n": {"m": "}"}} Good?', '{"n": {"m": "}"}}'),
        ('{"n": 1} or {"n": 2}', ""),
        ("none {at all}", ""),
        ('{broken {"n": 1}', '{"n": 1}'),
        ("", ""),
    ],
)
def test_the_only_object_among_words_is_found(text: str, found: str) -> None:
    assert only_object(text) == found


@pytest.mark.process
def test_a_server_that_takes_it_is_told_of_the_form(tmp_path: Path) -> None:
    for takes, sent in (("json_schema", WANTED), ("json_object", {"type": "json_object"}), ("", None)):
        (folder := tmp_path / (takes or "nothing")).mkdir()
        with served(folder, team('{"n": 1}'), endpoint=ONCE, entry=f'response_format = "{takes}"') as one:
            assert json.loads(one.ask(response_format=WANTED).choices[0].message.content) == {"n": 1}
            [request] = one.models.requests
            assert request.body.get("response_format") == sent
            assert "must be one JSON object" in said_to(request)
            one.ask(model="three", response_format={"type": "json_object"})
            told = {role_of(one): one.body.get("response_format") for one in one.models.requests[1:]}
            assert told["Worker"] == ({"type": "json_object"} if takes else None)
            assert told["Thinker"] is told["Verifier"] is None


@pytest.mark.process
def test_an_answer_in_another_form_is_written_again_once(serve: Serve) -> None:
    def models(request: Request) -> Answer:
        if "has not the form" in said_to(request):
            return ok('Of course: {"n": 42}')
        return team("It is forty-two.")(request)

    one = serve(models, endpoint=ONCE)
    for model, turns in (("trinity", 2), ("three", 4)):
        answer = one.ask(model=model, response_format=WANTED)
        assert json.loads(answer.choices[0].message.content) == {"n": 42}
        kept = episode_of(one, answer)
        assert len(kept.turns) == turns
        *before, repaired = kept.turns
        assert Flag.REPAIRED in repaired.flags
        assert repaired.decision.origin == "repair"
        worker = next(turn for turn in before if turn.answer_after)
        assert repaired.decision.model == worker.decision.model
        [*_, shown, note] = repaired.messages
        assert (shown.role, note.role) == ("assistant", "user")
        assert "JSON" in note.content
        assert answer.model_extra["trinity"]["end_reason"] == ("budget" if turns == 2 else "accepted")
    told = "".join(
        chunk.choices[0].delta.content or "" for chunk in one.ask(response_format=WANTED, stream=True)
    )
    assert json.loads(told) == {"n": 42}
    assert len(episode_of(one, one.ask()).turns) == 1  # without a form nothing is written again


@pytest.mark.process
def test_what_is_wrong_twice_is_an_error(serve: Serve) -> None:
    one = serve(team("Forty-two."), endpoint=ONCE)
    refusal = one.refused(response_format=WANTED)
    assert (refusal.status_code, refusal.code) == (502, "invalid_answer_format")
    assert len(one.models.requests) == 2
