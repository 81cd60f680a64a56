"""The endpoint served by a Conductor: workflows as answers, their steps told as they come, and what they cost."""

from __future__ import annotations

import threading
import time
from typing import Any

import openai
import pytest

from core.episode import Flag
from core.play.chat import NOTE
from core.pool.circuits import FAILURES
from tests.core.pool.faulty_server import USAGE, Answer, Request, fail, ok
from tests.ui.endpoint.server import CALL_USD, CHAT, Serve, asking, episode_of, said_to
from tests.ui.endpoint.test_images import text_of
from tests.ui.endpoint.test_live_text import chunks, streamed
from ui.endpoint.tiers import Endpoint, Tier

SOLVERS = Endpoint(
    tier=(
        Tier(name="trinity", policy="conductor:fixed:solvers:a+b"),
        Tier(name="prompted", policy="conductor:prompted:a"),
        Tier(name="random", policy="conductor:random", turns=2),
    )
)
#: In the note of the step whose reply the person reads.
LAST = "The person will read what you write now."
LISTS = 'model_id = [0, 1]\nsubtasks = ["think of a number", "say it"]\naccess_list = [[], [0]]'


def team(wait_s: float = 0.0, plan: str = LISTS) -> Any:
    """A planner that writes these lists, and models whose last step answers by what it was shown."""

    def reply(request: Request) -> Answer:
        prompt = text_of(request)
        if "The models:" in prompt:
            text = plan
        elif LAST in prompt:
            shown = [one for one in request.body["messages"] if one["content"] == "half of forty-two"]
            text = f"{len(shown)} of {said_to(request).count(NOTE)}"
        else:
            text = "half of forty-two"
        whole = ok(text, usage=USAGE)
        return (wait_s, *whole) if wait_s else whole

    return reply


def test_a_workflow_answers_and_its_trace_tells_every_step(serve: Serve) -> None:
    one = serve(team(), endpoint=SOLVERS)
    before = one.store.endpoint.charged_usd()
    found = one.ask()
    assert found.choices[0].message.content == "3 of 4"
    trace = found.model_extra["trinity"]
    assert (trace["end_reason"], trace["policy"]) == ("completed", "conductor:fixed:solvers:a+b")
    assert [(turn["step"], turn["model"], turn["reads"]) for turn in trace["turns"]] == [
        (0, "a", []),
        (1, "b", []),
        (2, "a", []),
        (3, "b", [0, 1, 2]),
    ]
    assert [turn["answered"] for turn in trace["turns"]][-1]
    [plan] = trace["plans"]
    assert (plan["topology"], plan["fault"], len(plan["steps"])) == ("join", None, 4)
    assert trace["cost_usd"] == pytest.approx(4 * CALL_USD)
    assert found.usage.total_tokens == 18
    assert one.store.endpoint.charged_usd() - before == pytest.approx(4 * CALL_USD)
    kept = one.store.episodes.get(trace["episode"])
    assert kept.plans[0].workflow is not None
    assert len(kept.turns) == 4


def test_steps_that_do_not_wait_for_each_other_run_at_once(serve: Serve) -> None:
    one = serve(team(), endpoint=SOLVERS)
    one.ask()
    one.begin(team(wait_s=0.2))
    began = time.monotonic()
    one.ask()
    assert time.monotonic() - began < 4 * 0.2


def test_a_stream_names_the_steps(serve: Serve) -> None:
    one = serve(team(), endpoint=SOLVERS)
    told = [
        chunk.model_extra["trinity"]
        for chunk in one.ask(model="prompted", stream=True)
        if "trinity" in (chunk.model_extra or {})
    ]
    kinds = [what["type"] for what in told]
    assert kinds[:3] == ["started", "plan.written", "turn.started"]
    assert kinds[-1] == "finished"
    begun = [what for what in told if what["type"] == "turn.started"]
    assert [(what["step"], what["subtask"], what["reads"]) for what in begun] == [
        (0, "think of a number", []),
        (1, "say it", [0]),
    ]


def test_the_planner_s_own_call_is_counted_and_kept_below_the_ceilings(serve: Serve) -> None:
    one = serve(team(), endpoint=SOLVERS)
    before = one.store.endpoint.charged_usd()
    found = one.ask(model="prompted")
    assert found.model_extra["trinity"]["cost_usd"] == pytest.approx(3 * CALL_USD)
    details = found.usage.prompt_tokens_details.model_extra
    assert details["orchestration_input_tokens"] == 2 * 11
    spent = one.store.endpoint.charged_usd() - before
    assert spent == pytest.approx(3 * CALL_USD)
    # Three steps at once cannot all be paid for by what one of them may cost.
    with pytest.raises(openai.APIStatusError) as refused:
        one.ask(extra_body={"trinity": {"max_cost_usd": 0.01}})
    assert refused.value.status_code == 429
    assert one.store.endpoint.charged_usd() - before - spent <= 0.01


def test_what_a_workflow_cannot_do_is_said(serve: Serve) -> None:
    one = serve(team(plan="I would rather answer: 42"), endpoint=SOLVERS)
    with pytest.raises(openai.APIStatusError, match="no workflow that can be read"):
        one.ask(model="prompted")
    with pytest.raises(openai.APIStatusError, match="allow more turns"):
        one.ask(extra_body={"trinity": {"max_turns": 2}})
    with pytest.raises(openai.APIStatusError, match="call no tools"):
        one.ask(tools=[{"type": "function", "function": {"name": "look", "parameters": {}}}])
    with pytest.raises(openai.APIStatusError, match="decides no single turns"):
        one.client.decisions.create(
            model="trinity", input="?", questions=[{"type": "predicate", "instructions": "Hard?"}]
        )


def test_a_workflow_names_no_model_that_is_left_out(serve: Serve) -> None:
    one = serve(team(), endpoint=SOLVERS)
    for seed in range(6):
        try:
            found = one.ask(model="random", seed=seed, extra_body={"trinity": {"leave_out": ["a"]}})
        except openai.APIStatusError:  # its last step found nothing to say
            continue
        assert {turn["model"] for turn in found.model_extra["trinity"]["turns"]} == {"b"}
    assert {request.body["model"] for request in one.models.requests} == {"b"}


# Conversations


TALK = [
    {"role": "system", "content": "Answer in French."},
    {"role": "user", "content": "One?"},
    {"role": "assistant", "content": "Un."},
    {"role": "user", "content": "Two?"},
]


def test_each_step_reads_the_client_s_own_messages_and_the_planner_the_systems_rules(serve: Serve) -> None:
    one = serve(team(), endpoint=SOLVERS)
    one.ask(messages=TALK, model="prompted")
    planner, first, last = (request.body["messages"] for request in one.models.requests)
    assert "Answer in French." in planner[-1]["content"], "with the problem, whose rules its steps keep to"
    assert first[:3] == TALK[:3]
    assert first[3]["content"].startswith(f"Two?\n\n{NOTE} ")
    assert first[3]["content"].endswith("think of a number")
    assert [message["role"] for message in last[3:]] == ["user", "assistant", "user"]
    assert last[4]["content"] == "half of forty-two"
    assert LAST in last[5]["content"]
    assert last[5]["content"].endswith("Two?")


def test_a_tool_call_of_the_past_stays_one(serve: Serve) -> None:
    one = serve(team(), endpoint=SOLVERS)
    call = {"id": "c", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
    talk = [
        {"role": "user", "content": "How late is it?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "12:00"},
    ]
    one.ask(messages=talk, model="prompted")
    for request in one.models.requests[1:]:
        sent = request.body["messages"]
        assert sent[1]["tool_calls"] == [call]
        assert (sent[2]["tool_call_id"], sent[2]["content"]) == ("c", "12:00")


# Models that cannot be asked


def down(*models: str, plan: str = LISTS) -> Any:
    """Models of which these cannot be asked."""
    return lambda request: fail(503) if request.body["model"] in models else team(plan=plan)(request)


def rested(one: Any) -> None:
    """Let every model be asked again, whatever came of it before."""
    for model in "ab":
        one.service.engine.circuits.replied(model)


def test_a_step_whose_model_cannot_be_asked_is_done_by_another(serve: Serve) -> None:
    one = serve(down("a"), endpoint=SOLVERS)
    one.service.warm_up()
    rested(one)
    before = one.store.endpoint.charged_usd()
    found = one.ask()
    assert found.choices[0].message.content == "3 of 4"
    trace = found.model_extra["trinity"]
    assert [turn["model"] for turn in trace["turns"]] == ["b", "b", "b", "b", "a", "a"]
    steps = [turn["step"] for turn in trace["turns"]]
    assert (steps[:4], {*steps[4:]}) == ([0, 1, 2, 3], {0, 2})
    for turn in trace["turns"][4:]:
        assert turn["flags"] == ["model_error", "failed_over"]
        assert "503" in turn["error"]
        assert not turn["answered"]
    assert (trace["end_reason"], trace["error"]) == ("completed", None)
    assert trace["cost_usd"] == pytest.approx(4 * CALL_USD)
    assert one.store.endpoint.charged_usd() - before == pytest.approx(4 * CALL_USD)
    kept = episode_of(one, found)
    assert [Flag.FAILED_OVER in turn.flags for turn in kept.turns] == [False] * 4 + [True] * 2
    rested(one)


def test_a_stream_tells_who_took_over_and_brings_the_answer(serve: Serve) -> None:
    one = serve(down("b"), endpoint=SOLVERS)
    rested(one)
    chunks = [*one.ask(model="prompted", stream=True)]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "1 of 2"
    told = [chunk.model_extra["trinity"] for chunk in chunks if "trinity" in (chunk.model_extra or {})]
    begun = [what for what in told if what["type"] == "turn.started"]
    assert [(what["turn"], what["model"], what.get("failed_as")) for what in begun] == [
        (0, "a", None),
        (1, "b", None),
        (1, "a", 2),
    ]
    assert [what["turn"] for what in told if what["type"] == "turn.finished"] == [0, 1, 2]
    assert told[-1]["turns"][2]["flags"] == ["model_error", "failed_over"]
    rested(one)


def test_the_last_step_s_words_come_while_its_model_writes(serve: Serve) -> None:
    go = threading.Event()

    def reply(request: Request) -> Answer:
        last = LAST in text_of(request)
        return streamed("Forty.\n", go, "Two.") if last else streamed("half of ", "forty-two")

    one = serve(reply, endpoint=SOLVERS)
    rested(one)
    told = ""
    progress = list[str]()
    for text, what in chunks(one):
        told += text
        progress += [what["text"]] if what.get("type") == "turn.text" else []
        if told == "Forty.":
            go.set()  # who does not hear of it first waits forever
    assert told == "Forty.\nTwo."
    assert "half of " in progress, "what other models read is progress alone"


def test_a_last_step_that_breaks_off_is_made_good_before_any_word_went_out_and_said_after(
    serve: Serve,
) -> None:
    def reply(*pieces: str) -> Any:
        def answer(request: Request) -> Answer:
            last = LAST in text_of(request) and request.body["model"] == "b"
            return (*streamed(*pieces)[:-1], "reset") if last else team()(request)

        return answer

    one = serve(reply("Forty"), endpoint=SOLVERS)
    rested(one)
    assert "".join(text for text, _ in chunks(one)) == "3 of 4", "a sentence that is not whole is held back"
    one.begin(reply("Forty.\n", "Two"))
    rested(one)
    with pytest.raises(openai.APIError, match="broke off after a part"):
        [*chunks(one)]
    rested(one)


def test_where_nobody_can_be_asked_it_is_said_whole_and_in_a_stream(serve: Serve) -> None:
    one = serve(down("a", "b"), endpoint=SOLVERS)
    for model in ("trinity", "prompted", "random"):
        rested(one)
        before = one.store.endpoint.charged_usd()
        refusal = one.refused(model=model)
        if model == "prompted":  # of the others, calls that were under way have been given up
            assert one.store.endpoint.charged_usd() == before
        assert (refusal.status_code, refusal.code) == (502, "pool_unavailable")
        assert "503" in refusal.message
    rested(one)
    status, body = one.post(CHAT, asking(model="trinity", stream=True))
    assert status == 200
    assert "No model that may be chosen could be asked" in body
    assert "[DONE]" not in body
    rested(one)


def test_a_planner_that_cannot_be_asked_is_stood_in_for(serve: Serve) -> None:
    one = serve(down("a"), endpoint=SOLVERS)
    rested(one)
    trace = one.ask(model="prompted").model_extra["trinity"]
    assert [(plan["planner"], bool(plan["steps"])) for plan in trace["plans"]] == [("a", False), ("b", True)]
    assert [turn["model"] for turn in trace["turns"]] == ["b", "b", "a"]
    rested(one)


def test_a_model_whose_circuit_is_open_is_not_asked_for_a_step(serve: Serve) -> None:
    one = serve(down("a"), endpoint=SOLVERS)
    rested(one)
    for _ in range(FAILURES):
        one.ask()
    one.models.requests.clear()
    trace = one.ask().model_extra["trinity"]
    assert {request.body["model"] for request in one.models.requests} == {"b"}
    assert [turn["model"] for turn in trace["turns"]] == ["b"] * 4
    rested(one)


def test_a_conversation_that_is_too_long_for_every_model_is_a_400(serve: Serve) -> None:
    entry = "price_in = 1.0\nprice_out = 2.0\ncontext_window = 400\nmax_tokens = 100"
    one = serve(team(), endpoint=SOLVERS, entry=entry)
    refusal = one.refused(" ".join(["word"] * 3000))
    assert (refusal.status_code, refusal.code) == (400, "context_length_exceeded")
    assert one.models.requests == []


def test_who_leaves_a_model_out_has_its_steps_done_by_others(serve: Serve) -> None:
    one = serve(team(plan=LISTS.replace("[0, 1]", "[1, 1]")), endpoint=SOLVERS)
    for model in ("trinity", "prompted"):
        one.models.requests.clear()
        found = one.ask(model=model, extra_body={"trinity": {"leave_out": ["a"]}})
        assert {turn["model"] for turn in found.model_extra["trinity"]["turns"]} == {"b"}
        assert {request.body["model"] for request in one.models.requests} == {"b"}
