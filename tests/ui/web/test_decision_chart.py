"""The decision chart in a real browser: it changes in place, fits a phone, speaks and is saved."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

from playwright.sync_api import Page

from storage.filters.episode_filter import EpisodeFilter
from tests.browsing import settled, visit
from tests.ui.conftest import Served
from ui.presentation.odds import options
from ui.web.turns.recording import open_recording


def test_a_step_changes_the_chart_where_it_stands_and_it_fits_a_phone(tab: Page, served: Served) -> None:
    page = served.store.episodes.page(EpisodeFilter(min_turns=3), limit=200)
    episode = next(one.id for one in page.items if one.checkpoint_id)
    visit(tab, f"/replay?ep={episode}&t=1")
    tab.locator(".decision svg.odds text").first.wait_for()
    settled(tab)
    chart = tab.locator(".decision svg.odds")
    chart.evaluate("node => { node.dataset.kept = 'yes'; }")
    tab.keyboard.press("j")
    tab.get_by_text("Turn 2 of").first.wait_for()
    settled(tab)
    assert chart.get_attribute("data-kept") == "yes"
    recording = open_recording(served.store, episode)
    decision = recording.decision(1)
    assert decision is not None
    said = chart.get_attribute("aria-label") or ""
    for option in (one for side in options(decision, recording.models) for one in side):
        assert f"{option.name} {option.words}{' ' + option.note if option.note else ''}." in said
        assert any(
            text.startswith(option.words) for text in tab.locator(".decision text").all_text_contents()
        )
    assert tab.locator(".decision title", has_text=f"logit {decision.model_logits[0]:+.4f}").count() == 1
    tab.locator(".decision").hover()
    with tab.expect_download() as saving:
        tab.get_by_role("button", name="Save as SVG").click()
    assert saving.value.suggested_filename == "trinity-decision-chart.svg"
    drawing = ElementTree.fromstring(Path(saving.value.path()).read_bytes())
    texts = ["".join(node.itertext()) for node in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == tab.locator(".decision text").all_text_contents(), "its camera saves what it shows"
    for width in (1280, 390):
        tab.set_viewport_size({"width": width, "height": 900})
        tab.wait_for_function(
            """() => {
              const [box] = [...document.querySelectorAll('.st-key-decision_chart *')]
                .filter(node => node.shadowRoot).map(node => node.shadowRoot.querySelector('svg.odds'));
              const frame = box.getBoundingClientRect();
              return Math.abs(frame.width - box.parentElement.clientWidth) <= 1 &&
                [...box.querySelectorAll('text')].every(text => {
                  const words = text.getBoundingClientRect();
                  return words.left >= frame.left - 1 && words.right <= frame.right + 12;
                });
            }"""
        )
