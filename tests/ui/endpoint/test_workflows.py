"""The endpoint served by a Conductor: workflows as answers, their steps told as they come, and what they cost."""

from __future__ import annotations

import time
from typing import Any

import openai
import pytest

from tests.core.pool.faulty_server import USAGE, Answer, Request, ok
from tests.ui.endpoint.server import CALL_USD, Serve
from ui.endpoint.tiers import Endpoint, Tier

SOLVERS = Endpoint(
    tier=(
        Tier(name="trinity", policy="conductor:fixed:solvers:a+b"),
        Tier(name="prompted", policy="conductor:prompted:a"),
        Tier(name="random", policy="conductor:random", turns=2),
    )
)
LISTS = 'model_id = [0, 1]\nsubtasks = ["think of a number", "say it"]\naccess_list = [[], [0]]'


def team(wait_s: float = 0.0, plan: str = LISTS) -> Any:
    """A planner that writes these lists, and models whose last step answers by what it was shown."""

    def reply(request: Request) -> Answer:
        prompt = request.body["messages"][-1]["content"]
        if "The models:" in prompt:
            text = plan
        elif "<answer>your answer</answer>" in prompt:
            text = f"<answer>{prompt.count('half of forty-two')} of {prompt.count('Your step')}</answer>"
        else:
            text = "half of forty-two"
        whole = ok(text, usage=USAGE)
        return (wait_s, *whole) if wait_s else whole

    return reply


def test_a_workflow_answers_and_its_trace_tells_every_step(serve: Serve) -> None:
    one = serve(team(), endpoint=SOLVERS)
    before = one.store.endpoint.charged_usd()
    found = one.ask()
    assert found.choices[0].message.content == "3 of 1"
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
