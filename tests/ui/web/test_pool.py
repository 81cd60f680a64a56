"""Does the Pool page count what the store holds, and can keys be made and revoked on Settings?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from sqlalchemy import text
from streamlit.testing.v1 import AppTest

from core.pool.pool import tokens_per_s
from storage.analysis.costs import planning
from storage.analysis.health import model_health
from storage.filters.episode_filter import EpisodeFilter
from storage.store import Store, open_store
from tests.builders.sample_store import sample_store
from tests.builders.stores import new_store
from tests.ui.pages import opened, plainly, press, shown

pytestmark = pytest.mark.integration


def test_each_model_is_left_out_alone_before_any_is_chosen(samples: Store) -> None:
    page = opened("pool")
    table = next(one.value for one in page.dataframe if "changed" in one.value.columns)
    assert len(table) == 7
    changed = list(table["changed"])
    assert changed == sorted(changed), "the least missed first"
    assert sum(table["share"]) == pytest.approx(100), "each pick is of one model"
    assert f"of {sum(changed):,} picks would change" in plainly(page)


def test_calls_and_the_turns_at_which_nobody_was_asked_add_up_to_the_turns_of_other_pages(
    samples: Store,
) -> None:
    page = opened("pool")
    calls = int(page.dataframe[0].value["calls"].sum())
    told = re.search(r"([0-9,]+) more turns of Verifiers", shown(page))
    assert told
    everything = EpisodeFilter()
    plans = sum(one.n for one in planning(samples, everything, of_pool=True).values())
    with samples.engine.connect() as connection:
        turns = connection.execute(text("select count(*) from turn")).scalar_one()
    assert calls - plans + int(told[1].replace(",", "")) == turns
    assert ("or a plan that it wrote" in shown(page)) == (plans > 0)


def test_the_models_of_a_store_are_counted(recorded: Store) -> None:
    found = {one.model: one for one in model_health(recorded, EpisodeFilter(forks="with"))}
    episodes = [
        recorded.episodes.get(one.id)
        for run in recorded.runs.list()
        for one in recorded.episodes.of_run(run.id)
    ]
    asked = [turn for one in episodes for turn in one.turns if turn.messages]
    assert sum(one.calls for one in found.values()) >= len(asked)
    for name, one in found.items():
        replies = [turn.reply for turn in asked if turn.decision.model == name]
        assert one.failed == sum(reply.error is not None for reply in replies)
        assert one.calls - one.lost >= len(replies)
        if replies:
            assert one.latency_p95_s is not None
            assert one.latency_p50_s is not None
            assert min(reply.latency_s for reply in replies) <= one.latency_p50_s <= one.latency_p95_s
        paces = [pace for reply in replies if (pace := tokens_per_s(reply))]
        assert (one.tokens_per_s is not None) or not paces
        if paces:
            assert one.tokens_per_s is not None
            assert min(paces) <= one.tokens_per_s * 1.001
            assert one.tokens_per_s <= max(paces) * 1.001


def test_the_page_shows_them_and_says_who_is_hard_to_read(recorded: Store) -> None:
    everybody = model_health(recorded, EpisodeFilter(forks="with"))
    page = opened("pool")
    assert not page.exception
    assert [one.value for one in page.subheader] == [
        "How have they been answering?",
        "Where do the tokens go?",
        "What if a model were not there?",
    ]
    table = page.dataframe[0].value
    assert list(table["model"]) == sorted(one.model for one in everybody)
    assert table["calls"].sum() == sum(one.calls for one in everybody)


def test_calls_of_live_plays_are_said_to_count_and_can_be_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = sample_store(tmp_path / "trinity.db", 4)
    monkeypatch.setenv("TRINITY_STORE", store.url)
    page = opened("pool")
    calls = page.dataframe[0].value["calls"].sum()
    words = "1 live play, request or episode of an evolution"
    assert f"Calls of every episode count here, {words} included." in shown(page)
    picks = page.dataframe[1].value["changed"].tolist()
    press(page, "scope_measured")
    assert page.query_params["forks"] == "without"
    assert f"Left out: {words}." in shown(page)
    assert page.dataframe[0].value["calls"].sum() < calls
    assert page.dataframe[1].value["changed"].tolist() == picks, (
        "who is missed is of measured episodes either way"
    )
    press(page, "scope_measured")
    assert page.dataframe[0].value["calls"].sum() == calls
    store.close()


def test_an_empty_store_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_store(tmp_path / "empty.db").close()
    monkeypatch.setenv("TRINITY_STORE", str(tmp_path / "empty.db"))
    page = opened("pool")
    assert not page.exception
    assert "No model was asked in these episodes." in plainly(page)
    assert not page.dataframe


def test_a_key_is_made_shown_once_and_revoked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_store(tmp_path / "keys.db").close()
    monkeypatch.setenv("TRINITY_STORE", str(tmp_path / "keys.db"))
    page: AppTest = opened("settings", part="endpoint")
    assert not page.exception
    assert any("There is no key yet" in one.value for one in page.markdown)
    page.text_input(key="endpoint_key_name").set_value("laptop")
    page.number_input(key="endpoint_key_ceiling").set_value(2.5)
    next(one for one in page.button if one.label == "Make a key").click().run()
    made = next(one for one in page.code if one.value.startswith("trinity-"))
    store = open_store(tmp_path / "keys.db")
    key = store.endpoint.find(made.value)
    assert key is not None
    assert (key.name, key.limits.max_cost_usd) == ("laptop", 2.5)
    page.run()
    assert not any(one.value.startswith("trinity-") for one in page.code)
    page.selectbox(key="endpoint_revoke").select_index(0).run()
    page.button(key="endpoint_revoke_now").click().run()
    assert store.endpoint.find(made.value) is None
    store.close()
