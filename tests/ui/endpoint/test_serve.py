"""`trinity serve` and `trinity keys` as a person types them, and what hostile bodies do to a served pool."""

from __future__ import annotations

import json
import os
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from openai import OpenAI
from schemathesis import GenerationMode

from storage.store import open_store
from tests.browsing import serving
from tests.builders.stores import new_store
from tests.core.pool.faulty_server import faulty_server
from tests.ui.endpoint.server import PRICES, raw, served, team
from tests.ui.pages import command
from tests.zygote import forked
from ui.endpoint.tiers import read_endpoint
from ui.endpoint.wire import NEUTRAL

#: Bodies for each address, and as many against what it takes; the full figure, over 2,000 cases, is taken with 350.
EXAMPLES = int(os.environ.get("TRINITY_EXAMPLES", "12"))


def test_keys_are_made_listed_and_revoked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRINITY_STORE", str(tmp_path / "t.db"))
    assert command(["keys", "add", "laptop", "--max-cost", "2", "--leave-out", "a", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["key"].startswith("trinity-")
    assert command(["keys", "list", "--json"]) == 0
    [listed] = json.loads(capsys.readouterr().out)
    assert (listed["name"], listed["limits"]["max_cost_usd"], listed["revoked"]) == ("laptop", 2.0, None)
    assert made["key"] not in json.dumps(listed)
    assert command(["keys", "revoke", "laptop"]) == 0
    assert command(["keys", "revoke", "laptop"]) == 1
    assert "No valid key is called 'laptop'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "tiers", "said"),
    [
        (["--host", "0.0.0.0"], None, "trinity keys add"),
        (["--config", "none.toml"], None, "There is no file"),
        (["--max-cost", "-1"], None, "max_cost_usd cannot be -1.0: give a number of at least 0"),
        (["--engine", "rays"], None, "The engine must be local, ray or ray=ADDRESS, not 'rays'"),
        (["--engine", "ray=127.0.0.1:1"], None, "No Ray cluster listens at 127.0.0.1:1"),
        ([], 'name = "t"\nturns = 0', "tier 1: turns cannot be 0: give a number of at least 1"),
        ([], 'name = "t"\nsurprise = 1', "tier 1 has a key 'surprise', which there is not: use name,"),
        ([], "turns = 3", "tier 1 has no name"),
        ([], 'name = "a b"', "a tier cannot be called 'a b'"),
        ([], 'name = "t"\n[[tier]]\nname = "t"', "two tiers have the same name"),
        ([], 'name = "t"\nmodels = ["nobody"]', "which the pool does not have"),
        ([], 'name = "t"\npolicy = "mixture"', "makes one answer of several episodes, which is not served"),
        ([], 'name = "t"\npolicy = "cascade"', "which only trinity run does"),
    ],
)
def test_what_cannot_be_served_is_said(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    tiers: str | None,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRINITY_STORE", str(tmp_path / "t.db"))
    if tiers is not None:
        (tmp_path / "tiers.toml").write_text(f"[[tier]]\n{tiers}\n")
        arguments = [*arguments, "--config", "tiers.toml"]
    assert command(["serve", "--port", "59999", *arguments]) == 1
    assert said in " ".join(capsys.readouterr().err.split())


def test_the_written_config_is_what_is_served_without_one(tmp_path: Path) -> None:
    assert command(["serve", "--write-config", str(tmp_path / "tiers.toml")]) == 0
    assert read_endpoint(tmp_path / "tiers.toml", tmp_path) == read_endpoint(None, tmp_path)
    assert command(["serve", "--write-config", str(tmp_path / "tiers.toml")]) == 1  # it is there already


#: Codes of a server's errors that a body itself can ask for: too little time, and a form that the answer cannot fit.
WISHED = {"deadline_exceeded", "invalid_answer_format"}


@pytest.mark.process
@pytest.mark.parametrize(
    "mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=lambda mode: mode.value
)
def test_no_body_makes_the_server_fail(tmp_path: Path, mode: GenerationMode) -> None:
    """Bodies drawn from /openapi.json for a model that exists, and bodies against it: none is answered with a server's
    error."""
    with served(tmp_path, team('{"n": 1}'), entry=PRICES) as one:
        schema = schemathesis.openapi.from_url(f"{one.url}/openapi.json")
        cases: Counter[str] = Counter()
        answered: Counter[str] = Counter()
        for found in schema.get_all_operations():
            operation: Any = found.ok()  # type: ignore[union-attr]
            if mode is GenerationMode.NEGATIVE and not operation.body:
                continue  # an address without a body can hold nothing wrong

            @settings(
                max_examples=EXAMPLES,
                deadline=None,
                derandomize=True,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy(generation_mode=mode), playable=st.booleans())
            def ask(case: Any, playable: bool) -> None:
                if isinstance(case.body, dict) and "model" in case.body:
                    case.body["model"] = "trinity"
                    # Nearly every value of these is refused, or asks for what the models' answer cannot fit: half of
                    # the bodies have none, so that they are played.
                    for unwanted in ("response_format", "text", *NEUTRAL) if playable else ():
                        case.body.pop(unwanted, None)
                answer = case.call(base_url=one.url)
                cases[case.operation.label] += 1
                answered[case.operation.label] += answer.status_code == 200
                if answer.status_code >= 500:
                    assert answer.json()["error"]["code"] in WISHED, answer.text

            ask()
        assert one.service.engine.in_progress == 0
        for address in ("/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/decisions"):
            assert cases[f"POST {address}"] >= EXAMPLES, cases
        # Most drawn bodies ask for something that is refused; some must have been played, or nothing was tried.
        if mode is GenerationMode.POSITIVE:
            assert answered["POST /v1/chat/completions"] + answered["POST /v1/responses"] >= 5, answered


@pytest.mark.process
def test_openai_s_client_asks_a_served_pool_in_all_its_ways(tmp_path: Path) -> None:
    """Chat and responses, whole and streamed, and decisions, each by a process of `trinity serve`."""
    new_store(tmp_path / "t.db").close()
    (tmp_path / "tiers.toml").write_text('[[tier]]\nname = "trinity"\npolicy = "round-robin"\nturns = 4\n')
    options = ("--pool", tmp_path / "pool.toml", "--config", tmp_path / "tiers.toml", "--port")
    with faulty_server(team()) as models:
        tables = [f'[[model]]\nname = "{name}"\nbase_url = "{models.url}"\n' for name in "ab"]
        (tmp_path / "pool.toml").write_text("".join(tables))
        with (
            serving(
                [forked("trinity"), "serve", *options], tmp_path, tmp_path / "t.db", health="/healthz"
            ) as address,
            OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client,
        ):
            asked: Any = [{"role": "user", "content": "How many?"}]
            said = client.chat.completions.with_raw_response.create(model="trinity", messages=asked)
            assert said.parse().choices[0].message.content == "forty-two"
            episode = said.headers["x-trinity-episode"]
            assert said.headers["x-trinity-url"].endswith(f"/replay?ep={episode}")
            streamed = client.chat.completions.create(model="trinity", messages=asked, stream=True)
            pieces = [piece.choices[0].delta.content or "" for piece in streamed if piece.choices]
            assert "".join(pieces) == "forty-two"
            assert client.responses.create(model="trinity", input="How many?").output_text == "forty-two"
            with client.responses.stream(model="trinity", input="How many?") as told:
                assert [event.type for event in told][-1] == "response.completed"
                assert told.get_final_response().output_text == "forty-two"
            before = len(models.requests)
            choices: Any = [{"value": "a"}, {"value": "b"}]
            decision = client.decisions.create(
                model="trinity",
                input="How many?",
                questions=[{"type": "choice", "instructions": "Who?", "choices": choices}],
            )
            assert decision.answers[0].model_dump()["choice"] == "a"
            assert len(models.requests) == before  # no model was asked for it
            assert [model.id for model in client.models.list()] == ["trinity"]
            assert raw(address, "GET", "/v1/healthz")[2]["status"] == "ok"
    with closing(open_store(tmp_path / "t.db")) as store:
        [run] = store.runs.list()
        assert (run.kind, run.status) == ("serve", "finished")
        assert store.episodes.get(episode).task.question == "How many?"
        assert [one.end_reason for one in store.episodes.of_run(run.id)] == ["accepted"] * 4
