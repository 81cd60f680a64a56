"""Does the Pool page count what the store holds, and can keys be made and revoked on Settings?"""

from __future__ import annotations

from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from storage.analysis.model_health import model_health
from storage.filters.episode_filter import EpisodeFilter
from storage.store import Store, open_store
from tests.builders.stores import new_store
from tests.ui.pages import opened


def test_each_model_is_left_out_alone_before_any_is_chosen(samples: Store) -> None:
    page = opened("pool")
    table = next(one.value for one in page.dataframe if "picks" in one.value.columns)
    assert len(table) == 7
    changed = [int(one.split(" of ")[0].replace(",", "")) for one in table["picks"]]
    assert changed == sorted(changed), "the least missed first"
    turns = {one.split(" of ")[1].split(", ")[0] for one in table["picks"]}
    assert len(turns) == 1
    assert sum(changed) == int(turns.pop().replace(",", "")), "each pick is of one model"


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


def test_the_page_shows_them_and_says_who_is_hard_to_read(recorded: Store) -> None:
    everybody = model_health(recorded, EpisodeFilter(forks="with"))
    shown = opened("pool")
    assert not shown.exception
    assert [one.value for one in shown.subheader] == [
        "How have they been answering?",
        "Where does it go?",
        "What if a model were not there?",
    ]
    table = shown.dataframe[0].value
    assert list(table["model"]) == sorted(one.model for one in everybody)
    assert table["calls"].sum() == sum(one.calls for one in everybody)


def test_an_empty_store_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_store(tmp_path / "empty.db").close()
    monkeypatch.setenv("TRINITY_STORE", str(tmp_path / "empty.db"))
    shown = opened("pool")
    assert not shown.exception
    assert any("No model was asked" in one.value for one in shown.markdown)


def test_a_key_is_made_shown_once_and_revoked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_store(tmp_path / "keys.db").close()
    monkeypatch.setenv("TRINITY_STORE", str(tmp_path / "keys.db"))
    shown: AppTest = opened("settings", part="endpoint")
    assert not shown.exception
    assert any("There is no key yet" in one.value for one in shown.markdown)
    shown.text_input(key="endpoint_key_name").set_value("laptop")
    shown.number_input(key="endpoint_key_ceiling").set_value(2.5)
    next(one for one in shown.button if one.label == "Make a key").click().run()
    made = next(one for one in shown.code if one.value.startswith("trinity-"))
    store = open_store(tmp_path / "keys.db")
    key = store.endpoint.find(made.value)
    assert key is not None
    assert (key.name, key.limits.max_cost_usd) == ("laptop", 2.5)
    shown.run()
    assert not any(one.value.startswith("trinity-") for one in shown.code)
    shown.selectbox(key="endpoint_revoke").select_index(0).run()
    shown.button(key="endpoint_revoke_now").click().run()
    assert store.endpoint.find(made.value) is None
    store.close()
