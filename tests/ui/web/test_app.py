"""The frame: every page opens, knows its states, and importing it loads no torch."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from storage.store import Store
from tests.builders.stores import empty_store
from tests.ui.pages import APP, opened, press, shown
from ui.presentation.glossary import SECTIONS, define
from ui.presentation.theme import MODEL_COLOURS, ink_on, label, model_colour, one_line, plain
from ui.web.kit import state

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("samples")]


@pytest.mark.parametrize("name", sorted(state.VIEWS))
def test_every_page_opens_on_an_empty_store(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty_store(tmp_path / "new.db")
    monkeypatch.setenv("TRINITY_STORE", str(tmp_path / "new.db"))
    assert shown(opened(name))


@pytest.mark.parametrize("name", sorted(state.VIEWS))
def test_every_page_opens_on_a_store_that_is_only_read(
    name: str, samples: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRINITY_STORE", f"{samples.url}?mode=ro")
    page = opened(name)
    assert not page.error
    assert shown(page)
    assert "cannot be shown" not in shown(page)


def test_what_cannot_be_written_is_told_in_one_sentence(
    samples: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRINITY_STORE", f"{samples.url}?mode=ro")
    page = press(opened("review"), "quick_label_1")
    assert [one.value[:18] for one in page.toast] == ["Nothing was stored"]


@pytest.mark.parametrize(("name", "query"), [("replay", {"ep": "e-gone"}), ("forks", {"ep": "e-gone"})])
def test_a_stale_link_says_so_in_one_sentence_and_leads_on(name: str, query: dict[str, str]) -> None:
    page = opened(name, **query)
    assert "This view cannot be shown" in shown(page)
    assert "gone" in page.text[0].value
    assert "All episodes" in shown(page)


def test_a_link_to_a_run_that_is_gone_leads_to_the_runs_there_are() -> None:
    page = opened("live", run="rgone")
    assert "holds no run rgone any more" in shown(page)
    assert not page.error


def test_a_broken_store_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "foreign.db").write_text("this is no database at all, and long enough to be looked at\n" * 40)
    monkeypatch.setenv("TRINITY_STORE", str(tmp_path / "foreign.db"))
    page = opened("episodes")
    assert "This view cannot be shown" in shown(page)
    assert "Traceback" not in shown(page)


def test_the_app_stays_on_this_machine() -> None:
    config = tomllib.loads((APP.parent / ".streamlit" / "config.toml").read_text("utf-8"))
    assert config["browser"]["gatherUsageStats"] is False
    assert (
        config["client"]["showErrorDetails"] == "none"
    )  # a fault of ours shows nothing of what it was about
    assert config["server"]["address"] == "127.0.0.1"
    assert "http" not in config["theme"]["font"]


def test_plain_text_hides_nothing_and_a_label_keeps_no_markdown() -> None:
    assert plain("a\u202eb\x1b[31mc\u200bd\r\ne") == "a⟨U+202E⟩b␛[31mc⟨ZWSP⟩d\ne"
    assert plain("x" * 50, 10) == "x" * 10 + "\n… 40 more characters"
    assert "\n" not in one_line("a\nb\u2028c")
    assert ":green-badge[" not in label(":green-badge[ACCEPT] ![x](http://e.invalid)")
    assert "](" not in label("[a](b)")


def test_colours_are_fixed_per_slot_and_readable() -> None:
    models = tuple("abcdefghijklmnop")  # fifteen models of a published table have a colour each
    assert [model_colour(model, models) for model in models] == list(MODEL_COLOURS)
    assert len(set(MODEL_COLOURS)) == len(MODEL_COLOURS)
    assert {ink_on(colour) for colour in MODEL_COLOURS} <= {"#000000", "#FFFFFF"}


def test_the_glossary_has_each_word_once_and_draws_the_loop_until_one_is_sought() -> None:
    for word in ("Logit", "Margin", "SVF", "Flip"):
        assert define(word)
    words = [term.word for terms in SECTIONS.values() for term in terms]
    assert len(words) == len(set(words))
    assert opened("glossary").get("image")
    page = opened("glossary", word="mcnemar")
    assert not page.get("image")
    assert "McNemar p" in shown(page)
    assert "Sigma" not in shown(page)


def test_a_new_store_opens_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRINITY_STORE", str(tmp_path / "new.db"))  # there is none: the page makes it
    assert "Nothing is recorded yet" in shown(opened("home"))


def test_what_is_not_offered_was_not_chosen_and_what_is_gone_reports_nothing() -> None:
    def page() -> None:
        import streamlit as st

        from ui.web.kit import state

        st.session_state["one"], st.session_state["some"] = "gen 0 · sample", ["c1", "gen 0 · sample"]
        offered = {"c1": "gen 1", "c2": "gen 2"}
        st.text(str([state.entered("one", offered), state.entered("some", offered), state.entered("one")]))
        st.text(str([state.entered("gone", offered), state.entered("gone"), state.reported("gone", "go")]))
        st.text(str([state.points("gone"), state.rows("gone")]))
        alike = {"c1": "gen 1", "c2": "gen 1"}
        state.select("Which", alike, "c2", lambda new: st.query_params.update(c=new or ""), key="which")

    tab = AppTest.from_function(page).run()
    assert [one.value for one in tab.text] == [
        "[None, ['c1'], 'gen 0 · sample']",
        "[None, None, None]",
        "[[], []]",
    ]
    assert tab.selectbox(key="which").options == ["gen 1 (c1)", "gen 1 (c2)"]
    tab.selectbox(key="which").select_index(0).run()
    assert tab.query_params["c"] == "c1"
