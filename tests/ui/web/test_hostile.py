"""Two hundred hostile texts in every place a text can stand: on every page and in every export they are text."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Dialog, Page, expect

from storage.filters.episode_filter import EpisodeFilter
from storage.store import Store
from tests.browsing import PATIENCE_S, new_tab, serving, serving_app, settled, visit, watch
from tests.builders.hostile_store import EPISODES, EVOLUTION, RUN, hostile_store
from tests.hostile import HOSTILE
from tests.zygote import forked
from ui.export.formats import write_pages
from ui.export.page import pair_page, read_played
from ui.presentation.rendered import rendered
from ui.presentation.theme import plain
from ui.presentation.words import CUT
from ui.web.kit import state

#: Where to look for what a hostile text would draw, in the page and in the shadow roots of its components.
DRAWN = """() => {
  const roots = [document], found = [];
  for (const one of document.querySelectorAll('*')) if (one.shadowRoot) roots.push(one.shadowRoot);
  const all = (what) => roots.flatMap((root) => [...root.querySelectorAll(what)]);
  const told = (what, one) => found.push(what + ': ' + one.outerHTML.slice(0, 200));
  const plain = (what) => all(what).filter((one) => !one.closest('[class*="st-key-rendered_"]'));
  for (const one of all('[class*="badge" i], [class*="shimmer" i], [class*="ColoredText"]'))
    if (/^\\W*ACCEPT\\W*$/.test(one.textContent)) told('a false verdict', one);
  for (const one of all('[data-testid="stIconMaterial"]'))
    if (one.textContent === 'verified') told('a false icon', one);
  for (const one of plain('.katex')) told('a formula', one);
  for (const one of all('[class*="mermaid" i], iframe, object, embed, base, form[action], noscript p'))
    told('a thing', one);
  for (const one of all('[src], [href], [data], [action]'))
    for (const name of ['src', 'href', 'data', 'action'].filter((name) => one.hasAttribute(name))) {
      const to = URL.parse(one.getAttribute(name), location.href);
      if (to && to.href.startsWith('data:image/svg+xml;base64,')) continue;  // our icon and logo
      if (!to || to.protocol !== location.protocol || to.host !== location.host) told('an address', one);
    }
  for (const one of all('[onerror], [onload], [onfocus], [ontoggle], [onmouseover]')) told('a handler', one);
  for (const one of all('[style*="tracker"], meta[http-equiv="refresh"]')) told('a style', one);
  for (const one of all('style')) if (/tracker|body\\{display/.test(one.textContent)) told('a style', one);
  for (const one of plain('h1, h2, h3, li, td > strong'))
    if (/^(heading|one|two|bold)$/.test(one.textContent.trim())) told('markdown', one);
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const hidden = walk.currentNode.data.match(/[\\u202a-\\u202e\\u2066-\\u2069\\u200b\\u00ad\\u001b\\u0000]/);
    if (walk.currentNode.parentElement.matches('.katex .vlist-s')) continue;  // KaTeX's own
    if (hidden) told('a hidden character', walk.currentNode.parentElement);
  }
  return found;
}"""

#: What of a rendered text stands outside its frame without being cut off or scrolled there.
OUT_OF_FRAME = """() => {
  const found = [];
  for (const frame of document.querySelectorAll('[class*="st-key-rendered_"]')) {
    const edge = frame.getBoundingClientRect();
    for (const one of frame.querySelectorAll('*')) {
      const box = one.getBoundingClientRect();
      let held = box.width === 0 || box.height === 0 || (box.left > edge.left - 1 && box.right < edge.right + 1
        && box.top > edge.top - 1 && box.bottom < edge.bottom + 1);
      for (let on = one.parentElement; !held && on !== frame.parentElement; on = on.parentElement)
        held = getComputedStyle(on).overflowX !== 'visible';
      if (!held || getComputedStyle(one).position === 'fixed') found.push('outside: ' + one.outerHTML.slice(0, 200));
    }
  }
  if (document.documentElement.scrollWidth > innerWidth) found.push('the page is too wide');
  return found;
}"""
#: How many of the texts are nested too deeply to be rendered.
TOO_DEEP = sum(rendered(text) is None for text in HOSTILE)

#: The address of a reply that is all of the texts.
REPLY = "replay?ep=eh-00000&t=2"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store in which every foreign text is hostile."""
    store = hostile_store(tmp_path_factory.mktemp("hostile") / "trinity.db")
    yield store
    store.close()


def _addresses() -> list[str]:
    """Every page of the app, those about episodes at hostile ones."""
    special = {
        "replay": [
            REPLY,
            f"replay?ep=eh-{EPISODES - 1:05d}&t=4&show=saw",
            "replay?ep=eh-00003",
            "replay?ep=eh-00007&t=2&show=rendered",
            f"replay?ep=eh-{EPISODES:05d}&t=1&show=rendered",
        ],
        "pair": ["pair?a=eh-00000&b=eh-00001&show_a=rendered", f"pair?a=eh-00002&b=eh-{EPISODES:05d}"],
        "review": ["review", "review?ep=eh-00000&look=rendered"],
        "episodes": [
            "episodes",
            "episodes?peek=eh-00001&look=rendered",
            "episodes?family=" + "%3Cb%3E",
            f"episodes?run={RUN}",
        ],
        "requests": ["requests", "requests?since=all&part=worth"],
        "evolution": [f"evolution?run={EVOLUTION}&gen=1"],
        "data": [
            "data",
            "data?task=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E&policy=%3Agreen-badge%5BACCEPT%5D",
        ],
    }
    return [address for name in state.VIEWS for address in special.get(name, [name])]


def test_no_page_draws_runs_or_fetches_what_a_hostile_text_asks_for(
    chromium: Browser, hostile: Store, tmp_path: Path
) -> None:
    database = Path(hostile.url.removeprefix("sqlite:///"))
    with serving_app(tmp_path, database, variables={"TRINITY_WORKERS": "0"}) as address:
        page = new_tab(chromium, address)
        trouble, body = _watched(page, address), ""
        for where in _addresses():
            visit(page, f"/{where}")
            trouble += [f"{where}: {found}" for found in page.evaluate(DRAWN)]
            trouble += [f"{where}: {box}" for box in page.get_by_test_id("stException").all_inner_texts()]
            if where == REPLY:
                body = page.get_by_test_id("stCode").first.locator("code").text_content() or ""
        page.context.close()
    assert not trouble, "\n".join(trouble)
    assert body[:5000] == plain("\n".join(HOSTILE)[:CUT])[:5000]


def test_two_hundred_rendered_replies_draw_run_and_fetch_nothing_and_stay_in_their_frames(
    chromium: Browser, tmp_path: Path
) -> None:
    """On a page without the app's content security policy, so that the rendering alone has to hold."""
    script = Path(__file__).with_name("rendered_page.py")
    server: list[str | Path] = [
        forked("python"),
        "-m",
        "streamlit",
        "run",
        script,
        "--server.address",
        "127.0.0.1",
    ]
    quiet = ["--browser.gatherUsageStats", "false", "--server.headless", "true", "--server.port"]
    ours = {"PYTHONPATH": str(Path(__file__).parents[3])}
    with serving([*server, *quiet], tmp_path, variables=ours) as address:
        page = new_tab(chromium, address)
        trouble = _watched(page, address)
        page.goto("/")
        frames = page.locator('[class*="st-key-rendered_"]')
        frames.nth(len(HOSTILE) - TOO_DEEP).wait_for(state="attached")
        settled(page)
        expect(page.get_by_test_id("stSkeleton")).to_have_count(0, timeout=PATIENCE_S * 1000)
        for width in (1280, 390):
            page.set_viewport_size({"width": width, "height": 900})
            trouble += [
                f"{width} px: {found}" for found in page.evaluate(DRAWN) + page.evaluate(OUT_OF_FRAME)
            ]
        trouble += page.get_by_test_id("stException").all_inner_texts()
        count = frames.count()
        first = frames.first
        kinds = [first.locator(kind).count() for kind in (".katex", "strong", "li", "td", "a", "img")]
        words = '[data-testid="stMarkdown"]:not(:has([data-testid="stCaptionContainer"]))'
        drawn = frames.locator(words).locator(':is(a, img, [role="img"]):visible')
        trouble += drawn.evaluate_all("found => found.map((one) => one.outerHTML.slice(0, 200))")
        green = page.locator(".katex", has_text="ACCEPT").count()
        shown = page.get_by_text("costs $5 and $6").count()
        page.context.close()
    assert not trouble, "\n".join(trouble)
    assert len(HOSTILE) >= 200
    assert count == len(HOSTILE) + 1 - TOO_DEEP
    assert kinds == [2, 2, 1, 1, 0, 0]
    assert green == 0
    assert shown == 1


def test_saved_pages_open_from_disk_and_show_every_text_as_text(
    chromium: Browser, hostile: Store, tmp_path: Path
) -> None:
    assert [*write_pages(hostile, EpisodeFilter(), tmp_path / "all.zip")][-1] == EPISODES + 1
    with zipfile.ZipFile(tmp_path / "all.zip") as bundle:
        bundle.extractall(tmp_path)
    both = pair_page(read_played(hostile, "eh-00000"), read_played(hostile, "eh-00001"))
    (tmp_path / "pair.html").write_text(both, "utf-8")
    names = ["index", "pair", "eh-00000", f"eh-{EPISODES - 1:05d}", f"eh-{EPISODES:05d}"]
    page = new_tab(chromium, width=390)
    said = None
    trouble = _watched(page, *(f"{(tmp_path / name).as_uri()}.html" for name in names))
    for name in names:
        page.goto(f"{(tmp_path / name).as_uri()}.html" + ("#t2" if name == "eh-00000" else ""))
        trouble += [f"{name}: {found}" for found in page.evaluate(DRAWN)]
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        trouble += [f"{name} is {wide} px too wide"] if wide > 0 else []
        if name == "eh-00000":
            said = page.locator("#t2 pre").first.text_content()
            assert page.locator("#t2").evaluate("one => one.getBoundingClientRect().top") < 100
            assert page.locator("script").count() == 0
    # The last is still open.
    assert "The first 400,000 of 5,250,000 characters" in page.locator("#t1").inner_text()
    page.close()
    assert not trouble, "\n".join(trouble)
    assert said == plain("\n".join(HOSTILE).replace("\x00", "\ufffd"))


def _watched(page: Page, *own: str) -> list[str]:
    """What goes wrong in a tab: what `watch` tells, dialogs, and windows that open."""
    sockets = (address.replace("http", "ws", 1) for address in own)
    trouble = watch(page, (*own, *sockets, "data:", "blob:"))

    def spoke(dialog: Dialog) -> None:
        trouble.append(f"dialog {dialog.message}")
        dialog.dismiss()

    page.on("dialog", spoke)
    page.on("popup", lambda popup: trouble.append(f"window {popup.url}"))
    return trouble
