"""What is said of the endpoint's requests, on a store that a real endpoint and real runs of its pool have filled."""

from __future__ import annotations

import html
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from core.analysis.metrics import wilson_interval
from core.errors import ConfigError
from core.play.policies import decide_each
from storage.filters.episode_filter import EpisodeFilter
from storage.rows.engine import writing
from storage.rows.schema import served as served_requests
from tests.builders.stores import new_store
from tests.core.pool.faulty_server import Answer, Request, fail, ok
from tests.ui.answers.test_answers import numbers
from tests.ui.endpoint.server import CALL_USD, PRICES, Served, episode_of, said_to, served, team
from tests.ui.pages import asked_of_stores, assert_literal, command, opened, plainly, table_with
from ui.answers import plain
from ui.answers.asked import Asked, memory
from ui.answers.blocks import Address, Bars, Table
from ui.answers.blocks import Answer as Told
from ui.answers.pages import answers
from ui.answers.requests.subject import ALL, asked_of_requests, requests
from ui.endpoint import engine
from ui.endpoint.tiers import Endpoint, Tier
from ui.web.analysis import draw as drawing
from ui.web.analysis import page

pytestmark = pytest.mark.integration
TIERS = Endpoint(
    tier=(Tier("trinity", policy="round-robin", turns=3), Tier("alone", policy="single:b", turns=1))
)
EVERY = EpisodeFilter()
#: How many requests each tier is asked that nothing happens to.
PLAIN = 12


def models(request: Request) -> Answer:
    """Models a, b and c: of the tasks b knows all, a and c half; questions say what else happens to them."""
    text, model = said_to(request), request.body["model"]
    if ("down" in text and model == "a") or "dead" in text:
        return fail(503)
    if "has not the form" in text:
        return ok('{"n": 42}')
    number = next((word for word in text.replace("?", " ").split() if word.isdecimal()), "0")
    knows = model == "b" or int(number) % 2
    return team(number if knows else "none", wait_s=0.3 if "slow" in text else 0.0)(request)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A day of an endpoint whose models were measured before."""
    folder = tmp_path_factory.mktemp("requests")
    with served(folder, models, endpoint=TIERS, models="abc", entry=PRICES) as one:
        tasks = folder / "tasks.jsonl"
        lines = [
            {"question": f"Say {n}", "answer": str(n), "grader": "number", "split": "test"}
            for n in range(20, 60)
        ]
        tasks.write_text("".join(json.dumps(line) + "\n" for line in lines))
        play = ["run", "--pool", str(folder / "pool.toml"), "--store", one.store.url, "--tasks", str(tasks)]
        play += ["--max-cost", "1", "--policy", "single:*", "--policy", "round-robin"]
        assert command([*play, "--turns", "3"]) == 0
        ask(one)
        yield one


def ask(one: Served) -> None:
    for n in range(PLAIN):
        answer = one.ask(f"Say {n}")
        if n < 6:
            one.post("/v1/feedback", {"episode": answer.id, "right": n % 2 == 1})
    keyed = one.with_key()
    for n in range(PLAIN):
        keyed.ask(f"Say {n}", model="alone")
    one.client.responses.create(model="trinity", input="Say 1")
    assert episode_of(one, one.ask("Say 3 although a is down")).turns[0].reply.error is not None
    one.refused("Say 4 to the dead")
    one.refused("Say 5, slow", extra_body={"trinity": {"deadline_s": 0.05}})
    one.ask("Say 7", model="alone", response_format={"type": "json_object"})
    one.until_idle()


def asked(one: Served, where: EpisodeFilter = EVERY, since: str = "2026-01-01") -> Asked:
    return asked_of_requests(one.store, where, since, now=one.store.now(), remember=memory())


def told(of: Asked) -> dict[str, Told]:
    return {found.key: found for part in answers("requests", of).values() for found in part}


def rows(of: Told, key: str) -> dict[str, dict[str, Any]]:
    """A table's rows by their first column, as JSON has them."""
    return {next(iter(row.values())): row for row in plain.answer(of)[key]}


def lists(one: Served, to: Address) -> int:
    """How many episodes stand in the list that an address leads to."""
    where = EpisodeFilter.from_query({name: value for name, value in to.params.items() if value})
    return one.store.episodes.page(where).total.n


def test_requests_are_counted_and_each_number_leads_to_its_episodes(one: Served) -> None:
    of = asked(one)
    found, answer = requests(of), told(of)["ended"]
    every = 2 * PLAIN + 5
    assert (len(found.found), len(found.over)) == (every, every)
    assert [request.failed for request in found.found].count(True) == 2
    low, high = wilson_interval(2, every)
    assert (
        f"{every} requests. 2 failed: {200 / every:.1f} % ({100 * low:.0f} to {100 * high:.0f})"
        in answer.sentence
    )
    assert "2 failed over to another model. 1 had an answer repaired." in answer.sentence
    assert "Clients rated 6: right 50.0 %" in answer.sentence
    tiers, keys, doors, ends = (rows(answer, key) for key in ("tiers", "keys", "doors", "ends"))
    assert {name: row["requests"] for name, row in tiers.items()} == {
        "trinity": PLAIN + 4,
        "alone": PLAIN + 1,
    }
    assert (tiers["trinity"]["failed"]["k"], tiers["alone"]["failed"]["k"]) == (2, 0)
    assert {name: row["requests"] for name, row in keys.items()} == {
        "without a key": PLAIN + 5,
        "limited": PLAIN,
    }
    assert doors["/v1/responses"]["requests"] == 1
    assert {name: row["requests"] for name, row in ends.items() if "budget" not in name} == {
        "accepted by a Verifier": PLAIN + 2,
        "out of time": 1,
        "ended by an error": 1,
    }
    assert tiers["trinity"]["right"] == {"k": 3, "n": 6, "share": 0.5, "ci95": wilson_interval(3, 6)}
    tables = [block for block in answer.blocks if isinstance(block, Table)]
    assert [table.key for table in tables] == ["ends", "tiers", "keys", "doors"]
    for table in tables:
        place = {column.key: i for i, column in enumerate(table.columns)}
        for row in table.rows:
            assert lists(one, row[place["open"]]) == row[place["requests"]], (table.key, row[0])
    [bars] = [block for block in answer.blocks if isinstance(block, Bars)]
    behind = [lists(one, mark.to) for mark in bars.marks if mark.to]
    assert behind == [sum(counts) for counts in zip(*(kind.counts for kind in bars.series), strict=True)]
    assert sum(behind) == every
    ways = {way.words: lists(one, way.to) for way in answer.ways}
    assert ways == {"All of these requests": every, "Failed": 2, "Failed over": 2, "Repaired": 1}


def test_as_much_is_asked_of_the_store_for_one_request_as_for_many(one: Served) -> None:
    told = []
    for q in (None, 'door == "responses"'):
        with asked_of_stores() as statements:
            found = requests(asked(one, EpisodeFilter(q=q)))
        told.append(
            (len(found.found), len(statements) - (q is None))
        )  # of all it is also asked what is removed
    (many, queries), (few, as_many) = told
    assert many > few == 1
    assert queries == as_many <= 6


def test_parts_of_the_time_are_measured_and_add_up(one: Served) -> None:
    of = asked(one)
    for request in requests(of).over:
        assert request.whole_s is not None
        assert request.deciding_s is not None
        assert request.recording_s is not None
        assert request.recording_s > 0, "events were stored"
        parts = request.waiting_s + request.deciding_s + request.recording_s
        assert parts + (request.rest_s or 0.0) == pytest.approx(max(request.whole_s, parts))
        assert parts < request.whole_s + 0.05
    answer = told(of)["latency"]
    parts_of = rows(answer, "parts")
    assert sum(row["share"] for row in parts_of.values() if row["share"]) == pytest.approx(1.0, abs=0.05)
    whole = parts_of["the whole request"]
    assert whole["p50"] <= whole["p95"]
    assert sum(one["requests"] for one in rows(answer, "tiers_s").values()) == len(requests(of).over)


def test_a_decision_takes_its_time_and_a_slow_model_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowly(*arguments: Any) -> Any:
        time.sleep(0.2)
        return decide_each(*arguments)

    monkeypatch.setattr(engine, "decide_each", slowly)
    with served(tmp_path, team(wait_s=0.1), endpoint=TIERS, models="abc", entry=PRICES) as one:
        one.ask("Say 1", model="alone")
        one.until_idle()
        [request] = requests(asked(one)).over
        assert 0.2 <= (request.deciding_s or 0.0) < 0.3
        assert 0.1 <= request.waiting_s < 0.2
        assert (request.whole_s or 0.0) >= 0.3


def test_what_was_spent_stands_beside_the_best_single_model(one: Served) -> None:
    answer = told(asked(one))["cost"]
    costs = rows(answer, "tiers_cost")
    # Asked once each, it is what it is compared with.
    assert costs["alone"]["each"] == pytest.approx(costs["alone"]["total"] / costs["alone"]["requests"])
    trinity = costs["trinity"]
    assert trinity["alone"] == pytest.approx(CALL_USD)
    assert trinity["each"] > 2 * CALL_USD
    low, high = trinity["saved_ci95"]
    assert low < trinity["saved"] < high < 0, "three calls cost more than one"
    assert trinity["saved"] == pytest.approx(trinity["alone"] - trinity["each"])
    assert (
        "b, the best single model (alone it solved 100.0 % of 40 tasks), asked once, would have cost"
        in answer.sentence
    )
    assert "lost in all" in answer.sentence
    assert "What this does not show is whether its answers would have been as good." in answer.sentence


def test_a_tier_is_worth_what_its_policy_solves_beside_the_best_single_model(one: Served) -> None:
    answer = told(asked(one))["tiers"]
    worth = rows(answer, "worth")
    assert worth["alone"]["accuracy"]["share"] == 1.0
    trinity = worth["trinity"]
    assert (trinity["policy_id"], trinity["tasks"], trinity["single_name"]) == ("round-robin", 40, "b")
    assert trinity["single"]["share"] == 1.0
    difference = trinity["difference"]
    assert difference["difference"] == pytest.approx(trinity["accuracy"]["share"] - 1.0)
    assert difference["ci95"][0] < difference["difference"] < difference["ci95"][1]
    assert "alone plays b alone, the best single model: it solved 100.0 %" in answer.sentence
    assert trinity["cost_usd"] > CALL_USD
    assert trinity["right"]["n"] == 6


def test_filters_and_times_narrow_what_is_counted(one: Served) -> None:
    where = EpisodeFilter(q='tier == "alone" and key == "limited"')
    assert len(requests(asked(one, where)).found) == PLAIN
    assert len(requests(asked(one, EpisodeFilter(q='door == "responses"'))).found) == 1
    assert len(requests(asked(one, EpisodeFilter(q='key == None and tier == "alone"'))).found) == 1
    assert len(requests(asked(one, since=ALL)).found) == len(requests(asked(one, since="1h")).found)
    with pytest.raises(ConfigError, match="'soon' is not an age"):
        asked(one, since="soon")
    nothing = told(asked(one, since="2999-01-01"))
    assert list(nothing) == ["ended"]
    assert nothing["ended"].sentence.startswith("There is no request in this time. The last one of all was")
    assert [way.to for way in nothing["ended"].ways] == [Address("requests", {"since": ALL})]


def test_page_command_and_saved_page_give_the_same_numbers(
    one: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRINITY_STORE", one.store.url)
    asking = ["requests", "--since", "2026-01-01"]
    capsys.readouterr()
    assert command([*asking, "--json"]) == 0
    expected = json.loads(capsys.readouterr().out)
    given: dict[str, Told] = {}

    def keep(found: Told, *rest: Any, **look: Any) -> None:
        given[found.key] = found
        drawing.draw(found, *rest, **look)

    monkeypatch.setattr(page, "draw", keep)
    for part in ("course", "worth"):
        assert_literal(opened("requests", since="2026-01-01", part=part))
    shown = json.loads(json.dumps({key: plain.answer(found) for key, found in given.items()}))
    del shown["ended"]["over_time"], expected["ended"]["over_time"]  # a bar more where a minute has passed
    assert shown == {key: value for key, value in expected.items() if key != "requests"}
    assert expected["requests"] == {"requests since 2026-01-01 00:00 UTC": len(requests(asked(one)).found)}
    assert command([*asking, "--html", str(tmp_path / "saved.html")]) == 0
    saved = html.unescape((tmp_path / "saved.html").read_text("utf-8"))
    assert [words for words in numbers(expected) if not any(found in saved for found in words)] == []
    keys = one.store.endpoint.keys()
    secrets = [key.id for key in keys]
    assert [key for key in secrets if key in saved or key in json.dumps(expected)] == []


def test_the_page_lets_choose_a_tier_a_key_and_a_time(one: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRINITY_STORE", one.store.url)
    shown = opened("requests", tier="alone", key="limited", since="7d")
    assert [box.value for box in shown.selectbox] == ["7d", "alone", "limited"]
    assert f"{PLAIN} requests" in plainly(shown)
    assert list(table_with(shown, "name")["requests"]) == [PLAIN]
    assert "'soon' is not an age" in plainly(opened("requests", since="soon"))


def test_without_a_request_the_page_says_how_to_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = new_store(tmp_path / "trinity.db")
    monkeypatch.setenv("TRINITY_STORE", store.url)
    shown = opened("requests")
    assert "No request has been served yet" in plainly(shown)
    assert shown.code[0].value == "trinity serve --pool pool.toml"
    assert command(["requests"]) == 0
    assert "trinity serve --pool pool.toml" in capsys.readouterr().out
    store.close()


def test_requests_whose_texts_are_not_kept_count_and_removed_ones_are_told(tmp_path: Path) -> None:
    tiers = Endpoint(tier=TIERS.tier, store_text=False)
    with served(tmp_path, models, endpoint=tiers, models="abc", entry=PRICES) as one:
        kept, gone = (episode_of(one, one.ask("Say 1")) for _ in range(2))
        one.refused("Say 4 to the dead")
        one.until_idle()
        assert kept.removed
        of = requests(asked(one))
        assert [(request.answered, request.failed) for request in of.found] == [(True, False)] * 2 + [
            (False, True)
        ]
        one.store.episodes.delete([gone.id])
        answer = told(asked(one))
        assert "Not counted: 1 request of this time, removed since." in answer["ended"].measured
        assert requests(asked(one)).removed == 1
        # No model of this pool has played alone, so there is nothing to compare with.
        assert "Which model of this pool is the best alone was not measured" in answer["cost"].sentence
        assert "was never measured with this pool" in answer["tiers"].sentence
        one.store.episodes.delete([request.episode_id for request in requests(asked(one)).found[1:]])
        one.store.episodes.delete([kept.id])
        [left] = told(asked(one)).values()
        assert left.sentence == "Of this time there is no request but 3 that were removed since."


def test_each_door_is_told_by_its_address(one: Served) -> None:
    """As one request that came by the Responses API would look, had it come by Anthropic's."""
    for before, after, address in (
        ("responses", "messages", "/v1/messages"),
        ("messages", "responses", "/v1/responses"),
    ):
        with writing(one.store.engine) as connection:
            connection.execute(
                update(served_requests).where(served_requests.c.door == before).values(door=after)
            )
        doors = rows(told(asked(one))["ended"], "doors")
        assert doors.keys() == {"/v1/chat/completions", address}
        assert doors[address]["requests"] == 1
