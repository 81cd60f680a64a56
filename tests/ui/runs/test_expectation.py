"""Does what is expected come near what is then spent?"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from sqlalchemy import insert

from core.pool.spec import ModelSpec
from core.pool.throttle import Service
from storage.analysis.call_means import CallMeans, PoolMeans, pool_means, share_of_calls_made
from storage.rows.engine import writing
from storage.rows.schema import generation
from storage.store import Store, open_store
from tests.builders.stores import begin_run, new_store
from tests.core.pool.faulty_server import faulty_server
from tests.ui.endpoint.server import CALL_USD, PRICES, team
from tests.ui.pages import command
from ui.runs.expectation import Part, expectation, longest
from ui.runs.plans import BatchPlan, plan_of
from ui.runs.wiring import pool_specs


def test_a_second_run_is_expected_to_cost_what_it_then_costs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = "\n".join(
        f'{{"question": "{n} + 3?", "answer": "5", "grader": "number", "split": "test"}}' for n in range(12)
    )
    (tmp_path / "tasks.jsonl").write_text(tasks)
    with faulty_server(team("<answer>5</answer>")) as server:
        (tmp_path / "pool.toml").write_text(f'[[model]]\nname = "m"\nbase_url = "{server.url}"\n{PRICES}\n')
        monkeypatch.setenv("TRINITY_STORE", str(tmp_path / "t.db"))
        arguments = ["run", "--pool", str(tmp_path / "pool.toml"), "--tasks", str(tmp_path / "tasks.jsonl")]
        arguments += ["--policy", "single:m", "--max-cost", "1"]
        assert command([*arguments, "--n", "3"]) == 0
        assert "Nothing is recorded of these models yet" in " ".join(capsys.readouterr().err.split())
        assert command([*arguments, "--n", "12", "--seed", "1"]) == 0
        told = " ".join(capsys.readouterr().err.split())
        store = open_store(tmp_path / "t.db")
        newest = store.runs.list()[0]
        spent = store.runs.spent_usd(newest.id)
        found = re.search(r"To expect: about (\d+) calls, \$([\d.]+) and", told)
        assert found is not None, told
        assert float(found[2]) == pytest.approx(spent, rel=0.2)
        assert int(found[1]) == pytest.approx(spent / CALL_USD, rel=0.1)
        plan = plan_of(newest, BatchPlan)
        again = expectation(store, plan, pool_specs(plan.pool))
        assert again is not None
        assert again.cost_usd == pytest.approx(spent, rel=0.2)
        store.close()


@pytest.mark.parametrize(
    ("limits", "hours", "words"),
    [
        ({}, 0.9, ""),  # each model takes 120 calls of 54 s, two at a time
        ({"concurrency": 1}, 3.6, "there's concurrency of 1"),
        ({"requests_per_minute": 2}, 2.0, "there's 2 requests a minute"),
        ({"tokens_per_minute": 100}, 4.8, "there's 100 tokens a minute"),
        ({"requests_per_minute": 2, "tokens_per_minute": 100}, 4.8, "there's 100 tokens a minute"),
        ({"requests_per_minute": 600, "tokens_per_minute": 90_000, "concurrency": 64}, 0.9, ""),
    ],
)
def test_hours_are_those_of_the_tightest_limit(limits: dict[str, int], hours: float, words: str) -> None:
    service = Service("there", **limits)
    specs = [ModelSpec(name, concurrency=2, service=service) for name in ("a", "b")]
    means = PoolMeans({name: CallMeans(10, 100.0, 20.0, 0.0, 54.0) for name in ("a", "b")}, 3.0)
    parts = [Part("episodes", {"a": 120.0, "b": 120.0}, None)]
    seconds, limit = longest(parts, specs, means)
    assert limit == words
    assert seconds / 3600 == pytest.approx(hours)


def test_means_are_of_this_pool_alone(samples: Store) -> None:
    assert pool_means(samples, "another") is None


def test_the_share_of_calls_that_evolutions_made(tmp_path: Path) -> None:
    store = new_store(tmp_path / "t.db")
    assert share_of_calls_made(store) is None
    begin_run(store, "r1", "evolve", {})
    counts = [
        {"calls": 90, "calls_saved": 0},
        {"calls": 30, "calls_saved": 70},
        {"calls": 10, "calls_saved": 90},
        {},
    ]
    with writing(store.engine) as connection:
        for index, stats in enumerate(counts):  # what came before the first generation is not counted
            numbers = dict.fromkeys(("best", "mean", "median", "sigma", "evaluations", "wall_s"), 0)
            row = {"run_id": "r1", "idx": index, "stats": json.dumps(stats), **numbers}
            connection.execute(insert(generation), row)
    assert share_of_calls_made(store) == pytest.approx(40 / 200)
    store.close()


def test_an_accuracy_is_told_of_whole_episodes_and_of_what_a_ceiling_cut_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = "\n".join(
        f'{{"question": "{n} + 3?", "answer": "5", "grader": "number", "split": "test"}}' for n in range(12)
    )
    (tmp_path / "tasks.jsonl").write_text(tasks)
    price = "price_in = 0.0\nprice_out = 1000000.0\nmax_tokens = 7\nconcurrency = 1"
    with faulty_server(team("<answer>5</answer>")) as server:
        (tmp_path / "pool.toml").write_text(f'[[model]]\nname = "m"\nbase_url = "{server.url}"\n{price}\n')
        monkeypatch.setenv("TRINITY_STORE", str(tmp_path / "t.db"))
        arguments = ["run", "--pool", str(tmp_path / "pool.toml"), "--tasks", str(tmp_path / "tasks.jsonl")]
        arguments += ["--policy", "single:m", "--max-cost"]
        assert command([*arguments, "10"]) == 1
        out = capsys.readouterr()
        assert "1 of 12 episodes were cut" in " ".join(out.err.split()), "a ceiling below the first one"
        assert "11 of 12 episodes were never begun" in " ".join(out.err.split())
        assert "%" not in out.out.split("cut short")[1].split("\n")[0]
        assert len(server.requests) == 1
        server.requests.clear()
        assert command([*arguments, "70"]) == 1  # an episode costs 21
        out = capsys.readouterr()
        assert "cut" not in out.out + out.err
        assert "9 of 12 episodes were never begun" in " ".join(out.err.split())
        assert re.search(r"single:m +100.0 % +43.9 to 100.0 +3 ", out.out), out.out
        assert len(server.requests) == 9
