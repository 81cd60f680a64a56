"""`trinity ui --no-samples` with models of one's own: its endpoint answers on the same port, and what was asked there
is seen live, replayed and forked in the app."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from openai import OpenAI
from playwright.sync_api import Browser, Page, expect

from core.episode import Status
from storage.filters.episode_filter import EpisodeFilter
from storage.rows.summaries import RunStatus
from storage.store import Store, open_store
from tests.browsing import PATIENCE_S, new_tab, serving, settled, visit
from tests.core.pool.faulty_server import Answer, Request, faulty_server
from tests.ui.endpoint.server import role_of, team
from tests.ui.pages import until
from tests.zygote import forked

pytestmark = pytest.mark.process


@dataclass
class Held:
    """Models that keep to their roles; the Worker answers only once it is let go."""

    go: threading.Event = field(default_factory=threading.Event)

    def __call__(self, request: Request) -> Answer:
        if role_of(request) == "Worker":
            self.go.wait(PATIENCE_S)
        return team("So it is \\(6 \\cdot 7\\): 42")(request)


@dataclass
class Shop:
    """The app over a pool of two models: its address, its store, the models."""

    address: str
    store: Store
    models: Held


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    held = Held()
    data = tmp_path / "trinity-inspector"
    data.mkdir()
    with faulty_server(held) as server:
        pool = [f'[[model]]\nname = "{name}"\nbase_url = "{server.url}"\n' for name in ("ada", "bob")]
        (data / "pool.toml").write_text("\n".join(pool))
        (data / "config.toml").write_text(f"pool = {json.dumps(str(data / 'pool.toml'))}\n")
        (data / "endpoint.toml").write_text('[[tier]]\nname = "trinity"\npolicy = "single:ada"\n')
        with serving(
            [forked("trinity"), "ui", "--no-samples", "--port"], tmp_path, tmp_path / "own.db"
        ) as address:
            store = open_store(tmp_path / "own.db")
            try:
                yield Shop(address, store, held)
            finally:
                held.go.set()
                store.close()


@pytest.fixture
def page(chromium: Browser, shop: Shop) -> Iterator[Page]:
    opened = new_tab(chromium, shop.address)
    yield opened
    opened.context.close()


def test_a_request_to_the_endpoint_is_seen_live_replayed_and_forked_in_the_app(
    shop: Shop, page: Page
) -> None:
    assert shop.store.health().runs == 0  # no samples
    client = OpenAI(base_url=f"{shop.address}/v1", api_key="none", max_retries=0, timeout=PATIENCE_S)
    assert [model.id for model in client.models.list()] == ["trinity"]
    question = "How much is 6 times 7?"

    def ask() -> tuple[str | None, str | None]:
        """What is answered, and where it says that the episode can be seen."""
        raw = client.chat.completions.with_raw_response.create(
            model="trinity", messages=[{"role": "user", "content": question}]
        )
        return raw.parse().choices[0].message.content, raw.headers["x-trinity-url"]

    with ThreadPoolExecutor(1) as elsewhere:
        asked = elsewhere.submit(ask)
        until(lambda: bool(shop.store.episodes.page(EpisodeFilter(forks="with")).items))
        [running] = shop.store.episodes.page(EpisodeFilter(forks="with")).items
        visit(page, f"/replay?ep={running.id}")
        page.get_by_text("This episode is still being played").wait_for()
        page.get_by_text(question).first.wait_for()
        shop.models.go.set()
        answer, url = asked.result(PATIENCE_S)
    client.close()
    assert answer == "So it is \\(6 \\cdot 7\\): 42"
    assert url == f"{shop.address}/replay?ep={running.id}"

    # The page that was open all the while has seen it end.
    expect(page.get_by_text("This episode is still being played")).to_have_count(0, timeout=PATIENCE_S * 1000)
    visit(page, f"{url}&t=2&show=rendered")
    page.get_by_text("Turn 2 of 3").first.wait_for()
    expect(page.locator(".katex")).to_have_count(1, timeout=PATIENCE_S * 1000)

    page.get_by_role("button", name="Fork here").click()
    page.wait_for_url("**/forks?**")
    settled(page)
    page.get_by_role("button", name="Play the forks").click()
    page.wait_for_url("**run=**")
    until(lambda: [run.status for run in shop.store.runs.list("fork")] == [RunStatus.FINISHED])
    forks = shop.store.episodes.page(EpisodeFilter(forks="only")).items
    assert forks
    assert {one.status for one in forks} == {Status.FINISHED}
    visit(page, page.url)
    assert page.get_by_test_id("stException").count() == 0
    assert page.get_by_text("This view cannot be shown").count() == 0
