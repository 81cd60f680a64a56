"""Does the endpoint answer as OpenAI's own client expects, and is every request an episode that says who did what?"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import openai
import pytest

from core.episode import EndReason, Role
from core.ids import episode_id
from tests.core.pool.faulty_server import HANG_UP, Answer, Request, chat, fail, ok, respond
from tests.ui.endpoint.server import (
    CALL_USD,
    CHAT,
    PRICES,
    Serve,
    Served,
    asking,
    episode_of,
    raw,
    role_of,
    said_to,
    served,
    team,
)
from ui.endpoint.tiers import Endpoint, Tier
from ui.runs.plans import ServePlan
from ui.runs.queue import Ticket, enqueue

pytestmark = pytest.mark.integration
#: The most that a call can cost is a dollar.
DOLLAR = "price_in = 0.0\nprice_out = 1000000.0\nmax_tokens = 1"


def test_chat_answers_and_keeps_the_episode(one: Served) -> None:
    before = one.store.endpoint.charged_usd()
    answer = one.ask("How many?", metadata={"case": "7"})
    assert answer.choices[0].message.content == "forty-two"
    assert answer.choices[0].finish_reason == "stop"
    usage = answer.usage.model_dump()
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (11, 7, 18)
    assert usage["prompt_tokens_details"]["orchestration_input_tokens"] == 22
    assert usage["prompt_tokens_details"]["orchestration_input_cached_tokens"] == 0
    assert usage["completion_tokens_details"]["orchestration_output_tokens"] == 14
    trace = answer.model_extra["trinity"]
    assert trace["end_reason"] == "accepted"
    assert [(turn["model"], turn["role"]) for turn in trace["turns"]] == [
        ("a", "thinker"), ("a", "worker"), ("a", "verifier"),
    ]  # fmt: skip
    assert trace["cost_usd"] == pytest.approx(3 * CALL_USD)
    kept = episode_of(one, answer)
    assert kept.correct is None  # nobody knows the right answer
    assert kept.turns[1].answer_rule == "whole"
    assert (kept.task.question, kept.answer) == ("How many?", "forty-two")
    assert kept.end_reason is EndReason.ACCEPTED
    assert kept.meta["case"] == "7"
    assert one.store.runs.get(kept.run_id).kind == "serve"
    assert one.store.endpoint.charged_usd() - before == pytest.approx(3 * CALL_USD)


def test_the_same_seed_plays_the_same_choices_again(serve: Serve) -> None:
    drawn = Endpoint(tier=(Tier(name="trinity", policy="random"),))
    one = serve(endpoint=drawn, models="abc", entry="send_seed = true")

    def played(**fields: Any) -> list[tuple[str, str, int]]:
        before = len(one.models.requests)
        one.post(CHAT, asking(**fields))
        asked = one.models.requests[before:]
        return [(ask.body["model"], role_of(ask), ask.body["seed"]) for ask in asked]

    first, again = played(seed=7), played(seed=7)
    assert first == again
    assert len(first) > 1
    [run] = one.store.runs.list()
    [task] = one.store.episodes.tasks(run.id)  # asked again, a question is the same task
    # Also where nothing of it is kept, its name included, by which a guess at it could be confirmed.
    assert played(seed=7, trinity={"store_text": False}) == first
    assert {kept.id for kept in one.store.episodes.tasks(run.id)} == {task.id, "not-kept"}
    assert played(seed=8)[0][2] != first[0][2]
    assert played()[0][2] != played()[0][2]


def test_tokens_that_a_provider_had_read_before_are_told_and_billed_as_such(serve: Serve) -> None:
    models = team(cached={"Worker": 4, "Verifier": 9})
    one = serve(models, entry=f"{PRICES}\nprice_cached = 0.5")
    answer = one.ask()
    usage = answer.usage.model_dump()
    assert (usage["prompt_tokens"], usage["total_tokens"]) == (11, 18)
    assert usage["prompt_tokens_details"]["cached_tokens"] == 4
    assert usage["prompt_tokens_details"]["orchestration_input_cached_tokens"] == 9
    usage = one.client.responses.create(model="trinity", input="How many?").model_dump()["usage"]
    assert usage["input_tokens_details"]["cached_tokens"] == 4
    assert usage["input_tokens_details"]["orchestration_input_cached_tokens"] == 9
    assert answer.model_extra["trinity"]["cost_usd"] == pytest.approx(3 * CALL_USD - 13 * 0.5e-6)
    assert [turn.reply.usage.tokens_cached for turn in episode_of(one, answer).turns] == [0, 4, 9]


def test_a_stream_tells_who_works_before_the_answer(serve: Serve) -> None:
    one = serve(team("word " * 40, wait_s=0.1))
    told: list[dict[str, Any]] = []
    text, first, usage = "", None, None
    for chunk in one.ask(stream=True, stream_options={"include_usage": True}):
        first = len(one.models.requests) if first is None else first
        told += [chunk.model_extra["trinity"]] if "trinity" in (chunk.model_extra or {}) else []
        text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
        usage = chunk.usage or usage
    assert text.split() == ["word"] * 40
    assert usage is not None
    assert usage.total_tokens == 18
    assert [what["type"] for what in told] == [
        "started", *["turn.started", "turn.finished"] * 3, "finished",
    ]  # fmt: skip
    assert told[-2]["verdict"] == "ACCEPT"
    assert first is not None
    assert first < 3  # it spoke before the last model was asked


def test_responses_whole_and_streamed(one: Served) -> None:
    whole = one.client.responses.create(model="trinity", input="How many?", instructions="Be brief.")
    assert (whole.output_text, whole.status) == ("forty-two", "completed")
    assert whole.usage is not None
    assert (whole.usage.input_tokens, whole.usage.output_tokens, whole.usage.total_tokens) == (11, 7, 18)
    kept = one.store.episodes.get((whole.model_extra or {})["trinity"]["episode"])
    assert kept.task.question == "[system]\nBe brief.\n\n[user]\nHow many?"
    person = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How many?"}]
    assert [asked.body["messages"][:1] for asked in one.models.requests] == [person[:1]] * 3
    assert [(sent.role, sent.content) for sent in kept.task.conversation] == [
        (*one.values(),) for one in person
    ]
    with one.client.responses.stream(
        model="trinity", input=[{"role": "user", "content": "How many?"}]
    ) as told:
        kinds = [event.type for event in told]
        final = told.get_final_response()
    assert final.output_text == "forty-two"
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert kinds.count("response.in_progress") == 6


def test_decisions_choose_without_asking_a_model(one: Served) -> None:
    roles: Any = [{"value": role.value} for role in Role]
    asked = len(one.models.requests)
    found = one.client.decisions.create(
        model="both",
        input="How many?",
        questions=[
            {"type": "choice", "name": "who", "instructions": "Who?", "choices": [{"value": "a"}, {"value": "b"}]},
            {"type": "choice", "instructions": "As what?", "choices": roles},
            {"type": "predicate", "instructions": "Is it hard?"},
        ],
    )  # fmt: skip
    who, role, other = (answer.model_dump() for answer in found.answers)
    assert (who["choice"], who["confidence"], who["name"]) == ("a", 1.0, "who")
    assert role["choice"] == "thinker"
    assert sum(one["probability"] for one in role["probabilities"]) == pytest.approx(1.0)
    assert other["type"] == "refusal"
    assert len(one.models.requests) == asked


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("fields", "kind", "code"),
    [
        ({"model": "nope"}, openai.NotFoundError, "model_not_found"),
        ({"n": 2}, openai.BadRequestError, "unsupported_parameter"),
        ({"extra_body": {"surprise": 1}}, openai.BadRequestError, "unsupported_parameter"),
        ({"extra_body": {"trinity": {"leave_out": ["127.0.0.1"]}}}, openai.BadRequestError, "empty_pool"),
    ],
)
def test_errors_are_openai_s(
    one: Served, stream: bool, fields: dict[str, Any], kind: type[openai.APIStatusError], code: str
) -> None:
    refusal = one.refused(stream=stream, **fields)
    assert (type(refusal), refusal.code) == (kind, code)
    assert not one.models.requests


def test_an_opt_out_is_masked_before_the_softmax(one: Served) -> None:
    answer = one.ask(model="both", extra_body={"trinity": {"leave_out": ["a"]}})
    trace = answer.model_extra["trinity"]
    assert {turn["model"] for turn in trace["turns"]} == {"b"}
    assert trace["left_out"] == ["a"]
    kept = episode_of(one, answer)
    assert kept.left_out == ("a",)
    assert kept.turns[0].decision.model_mask == (False, True)


def test_effort_and_key_bound_the_turns(serve: Serve) -> None:
    one = serve(team(accept=False))
    assert len(episode_of(one, one.ask(reasoning_effort="low")).turns) == 2
    trace = one.with_key(max_turns=3).ask(reasoning_effort="max").model_extra["trinity"]
    assert (len(trace["turns"]), trace["end_reason"]) == (3, "budget")
    assert one.store.endpoint.keys()[0].requests == 1


def test_the_last_turn_without_an_answer_is_a_worker_s(one: Served) -> None:
    answer = one.ask(extra_body={"trinity": {"max_turns": 1}})  # the cycle begins with a Thinker
    assert answer.choices[0].message.content == "forty-two"
    assert [turn["role"] for turn in answer.model_extra["trinity"]["turns"]] == ["worker"]


def test_the_deadline_holds_although_a_model_does_not_answer(serve: Serve) -> None:
    def slow(request: Request) -> Any:
        return (5.0, *ok("late")) if role_of(request) == "Verifier" else team()(request)

    one = serve(slow)
    began = time.monotonic()
    answer = one.ask(extra_body={"trinity": {"deadline_s": 0.8}})
    assert time.monotonic() - began < 4  # the model takes five seconds
    assert answer.choices[0].message.content == "forty-two"
    assert answer.model_extra["trinity"]["end_reason"] == "deadline"
    one.until_idle()
    kept = episode_of(one, answer)
    assert (kept.end_reason, kept.answer, len(kept.turns)) == (EndReason.DEADLINE, "forty-two", 2)
    assert one.refused(extra_body={"trinity": {"deadline_s": 0.001}}).status_code == 504


def test_a_client_that_leaves_pays_for_no_further_call(serve: Serve) -> None:
    one = serve(team(wait_s=0.3))
    stream, name = one.ask(stream=True), ""
    for chunk in stream:
        told = (chunk.model_extra or {})["trinity"]
        name = told.get("episode", "") or name
        if told["type"] == "turn.started":
            break
    while not one.models.requests:
        time.sleep(0.01)
    stream.close()
    one.until_idle()
    time.sleep(0.4)
    assert len(one.models.requests) == 1
    assert one.store.episodes.get(name).end_reason is EndReason.CANCELLED
    # Also where nothing is streamed.
    with pytest.raises(openai.APITimeoutError):
        one.client.with_options(timeout=0.2).chat.completions.create(
            model="trinity", messages=[{"role": "user", "content": "?"}]
        )
    one.until_idle()
    time.sleep(0.4)
    assert len(one.models.requests) == 2


def test_ceilings_of_request_and_key(serve: Serve) -> None:
    one = serve(entry=DOLLAR)  # a call can cost a dollar, and costs seven
    refusal = one.refused(extra_body={"trinity": {"max_cost_usd": 0.5}})
    assert (refusal.status_code, refusal.code) == (429, "cost_ceiling")
    assert "this request's cost ceiling of $0.5000: give it a higher trinity.max_cost_usd" in refusal.message
    assert not one.models.requests
    poor = one.with_key(max_cost_usd=8.5)
    answer = poor.ask()
    trace = answer.model_extra["trinity"]
    # 7 + 1, then 14 + 1 is too much
    assert (trace["end_reason"], trace["ceiling"], len(trace["turns"])) == ("cost_ceiling", "key", 2)
    assert answer.choices[0].message.content == "forty-two"
    refusal = poor.refused()
    assert refusal.status_code == 429
    assert "this key's cost ceiling of $8.50" in refusal.message


@pytest.mark.parametrize(("pool", "usd"), [("another.toml", 5.0), ("", 0.9999)])
def test_an_endpoint_s_ceiling_counts_what_its_own_pool_has_cost(
    tmp_path: Path, pool: str, usd: float
) -> None:
    with served(tmp_path, entry=PRICES, max_cost_usd=1.0) as one:
        run, _ = enqueue(one.store, ServePlan(pool or one.service.pool_name, ("a",)), Ticket())
        one.store.endpoint.note(episode_id(run, 0), None, "chat", "trinity")
        one.store.endpoint.charge(episode_id(run, 0), usd)
        if pool:
            assert one.ask().choices[0].message.content == "forty-two"
            return
        error = "this endpoint's cost ceiling of $1.00: serve with a higher --max-cost"
        assert error in one.refused().message
        told = one.post(CHAT, asking(stream=True))[1]
        assert error in told
        assert '"ceiling": "server"' in told


def test_an_unreachable_model_is_said_and_not_called_an_answer(serve: Serve) -> None:
    one = serve(fail(503, "out of order"))
    refusal = one.refused()
    assert (refusal.status_code, refusal.code) == (502, "pool_unavailable")
    assert "503" in refusal.message
    one = serve(HANG_UP)
    with pytest.raises(openai.APIError, match="could be asked"):
        [*one.ask(stream=True)]


@pytest.mark.process
def test_structured_output_is_checked(serve: Serve) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "count", "schema": schema}}
    one = serve(team('```json\n{"n": 42}\n```'))
    assert json.loads(one.ask(response_format=wanted).choices[0].message.content) == {"n": 42}
    assert json.loads(one.ask(response_format={"type": "json_object"}).choices[0].message.content)
    assert json.dumps(schema) in said_to(one.models.requests[0])
    one = serve(team('{"n": "many"}'))
    assert one.refused(response_format=wanted).code == "invalid_answer_format"


def test_texts_that_are_not_kept_are_nowhere(tmp_path: Path) -> None:
    secret = "the-secret-7d1f"
    with served(tmp_path, team(f"{secret} is told")) as one:
        noted = {"metadata": {"ticket": secret}, "user": f"of {secret}"}
        answer = one.ask(f"What of {secret}?", extra_body={"trinity": {"store_text": False}}, **noted)
        assert secret in answer.choices[0].message.content
        given = one.client.responses.create(
            model="trinity", input="?", metadata={"ticket": secret}, store=False
        )
        assert given.metadata == {"ticket": secret}, "who asked hears it"
        kept = episode_of(one, answer)
        assert [turn.decision.role for turn in kept.turns] == [Role.THINKER, Role.WORKER, Role.VERIFIER]
        assert set(kept.removed) == {"texts", "prompts", "states"}
        assert kept.meta == {}
        one.service.close()
    stored = b"".join(file.read_bytes() for file in tmp_path.glob("trinity.db*"))
    assert secret.encode() not in stored


def test_every_route_needs_a_key_beyond_this_machine(tmp_path: Path) -> None:
    with served(tmp_path, local=False, needs_key=True) as one:
        key, text = one.store.endpoint.add_key("mine")
        described = raw(one.url, "GET", "/openapi.json", Authorization=f"Bearer {text}")[2]
        routes = [(method.upper(), path) for path, ways in described["paths"].items() for method in ways]
        assert len(routes) >= 6
        others = [("GET", "/openapi.json"), ("GET", "/"), ("GET", "/docs"), ("PUT", "/v1/x")]
        wrong = {
            "": "A key is needed",
            f"Bearer {text[:-1]}x": "not valid here",
            f"Basic {text}": "A key is needed",
        }
        for (method, path), (sent, words) in product([*routes, *others], wrong.items()):
            headers = {"Authorization": sent} if sent else {}
            status, _, answer = raw(one.url, method, path.replace("{name}", "trinity"), b"{}", **headers)
            error = answer["error"]
            assert (status, error["type"]) == (401, "authentication_error"), (method, path)
            assert words in error["message"]
            assert "trinity keys add NAME" in error["message"]
        assert raw(one.url, "GET", "/v1/models", Authorization=f"Bearer {text}")[0] == 200
        one.store.endpoint.revoke(key.id)
        assert raw(one.url, "GET", "/v1/models", Authorization=f"Bearer {text}")[0] == 401
        secret = text.split("-", 2)[2]  # which may hold a - too
    assert not any(secret.encode() in file.read_bytes() for file in tmp_path.glob("trinity.db*"))


def test_many_at_once_and_one_that_hangs(tmp_path: Path) -> None:
    def some_hang(request: Request) -> Any:
        hangs = "HANG" in said_to(request)
        return (60.0, *ok("late")) if hangs else team(wait_s=0.05)(request)

    with served(tmp_path, some_hang) as one, ThreadPoolExecutor(8) as threads:
        hanging = one.ask("HANG", stream=True)
        next(iter(hanging))
        answers = threads.map(lambda _: one.ask().choices[0].message.content, range(8))
        assert [*answers] == ["forty-two"] * 8
        assert one.service.engine.in_progress == 1  # nobody waited for the one that hangs
        hanging.close()
        one.until_idle()
        assert one.service.engine.in_progress == 0


# How a model's call ended, and what is charged for one that failed

CUT = (respond(chat("forty-two")[:40]),)
BARE = json.dumps({"choices": [{"finish_reason": "stop", "message": {"content": "1"}}]}).encode()


def ended(reason: str) -> Any:
    """A team whose Workers stop for this reason."""

    def answer(request: Request) -> Answer:
        if role_of(request) != "Worker":
            return team()(request)
        return (respond(chat("forty-two", finish_reason=reason)),)

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
def test_nothing_is_called_done_that_is_not(serve: Serve, reason: str, told: str, status: str) -> None:
    one = serve(ended(reason))
    answer = one.ask()
    assert (answer.choices[0].finish_reason, answer.choices[0].message.content) == (told, "forty-two")
    turn = next(turn for turn in answer.model_extra["trinity"]["turns"] if turn["role"] == "worker")
    assert turn["finish_reason"] == reason
    assert ("unknown_finish" in turn["flags"]) is (reason == "pause_turn")
    *_, last = [chunk for chunk in one.ask(stream=True) if chunk.choices and chunk.choices[0].finish_reason]
    assert last.choices[0].finish_reason == told
    response = one.client.responses.create(model="trinity", input="How many?")
    assert response.status == status
    details = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(told)
    assert (response.incomplete_details and response.incomplete_details.reason) == details


def test_half_a_text_of_a_server_that_broke_off_reaches_nobody(serve: Serve) -> None:
    one = serve(ended("network_error"))
    refusal = one.refused()
    assert refusal.code == "pool_unavailable"
    assert "network_error" in refusal.message


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
def test_a_failed_call_is_charged_as_what_it_may_have_cost(serve: Serve, answer: Answer, usd: float) -> None:
    one = serve(answer, entry=DOLLAR)
    before = one.store.endpoint.charged_usd()
    one.ask() if usd == 5.0 else one.refused()
    assert one.store.endpoint.charged_usd() - before == usd
