"""What a reader's eyes and fingers meet on every page, measured in a browser: how far the page moves while it loads,
the contrast of its text, and the size of what can be tapped.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urljoin

from PIL import Image
from playwright.sync_api import Browser, Page

from storage.filters.episode_filter import EpisodeFilter
from storage.store import Store
from tests.browsing import settled
from ui.web.kit.state import VIEWS

WIDE, PHONE = (1440, 900), (390, 844)
#: At least so many times as light, or as dark, as what it stands on: text (WCAG 2.2, 1.4.3) and icons (1.4.11).
TEXT_CONTRAST, ICON_CONTRAST = 4.5, 3.0
#: The sum of what moves while a page loads stays below this.
SHIFT = 0.1
#: What can be tapped is at least so many pixels wide and high (WCAG 2.2, 2.5.8).
TAP_PX = 24
#: After the last script has ended, what draws by itself (figures, tables) is given this long.
DRAWN_MS = 400
#: An address of the app that shows next to nothing.
EMPTY = "/_stcore/health"
#: A page is measured down to this height, in pixels.
TALLEST = 9000

#: Notes what moves, each with its rectangle before and after (left, top, width and height), and what lies over “Stop”.
WATCH = """
window.trinityShifts = [];
new PerformanceObserver(list => {
  const name = node => {
    const element = node && (node.nodeType === 1 ? node : node.parentElement);
    const key = /st-key-[\\w-]+/.exec(element?.closest('[class*="st-key-"]')?.getAttribute("class") ?? "");
    return `${element?.dataset?.testid ?? element?.tagName} ${key ?? ""}`
      + ` “${(element?.textContent ?? "").trim().slice(0, 40)}”`;
  };
  const far = one => Math.max(...["left", "top"].map(edge => Math.abs(one.currentRect[edge] - one.previousRect[edge])));
  const box = one => [one.left, one.top, one.width, one.height].map(Math.round).join(" ");
  for (const one of list.getEntries()) {
    if (!one.hadRecentInput) window.trinityShifts.push({
      value: one.value,
      at: Math.round(one.startTime),
      what: one.sources.toSorted((a, b) => far(b) - far(a)).map(source =>
        `${name(source.node)} ${box(source.previousRect)} → ${box(source.currentRect)}`),
    });
  }
}).observe({type: "layout-shift", buffered: true});
window.trinityStop = [];  // what lies over the button that stops a page while it is computed
let due = false;
const look = () => {  // once before a page that has changed is painted: to ask at every change lays it out as often
  due = false;
  const stop = document.querySelector('[data-testid="stStatusWidget"]')?.getBoundingClientRect();
  if (!stop?.width) return;
  for (const other of document.querySelectorAll('.st-key-palette, [data-testid="stMainMenu"]')) {
    const box = other.getBoundingClientRect();
    if (box.left < stop.right - 1 && box.right > stop.left + 1) {
      window.trinityStop.push("“Go to” or the menu over “Stop”");
    }
  }
};
new MutationObserver(() => {
  if (due) return;
  due = true;
  requestAnimationFrame(look);
}).observe(document, {childList: true, subtree: true});
"""

#: Every text that is seen, with its box, its colour and how much of it shows; disabled controls are exempt.
TEXTS = """
() => {
  const found = [];
  const visit = root => {
    const walk = document.createTreeWalker(root, NodeFilter.SHOW_TEXT | NodeFilter.SHOW_ELEMENT);
    for (let node = walk.nextNode(); node; node = walk.nextNode()) {
      if (node.nodeType === 1) { if (node.shadowRoot) visit(node.shadowRoot); continue; }
      const words = node.textContent.trim();
      const element = node.parentElement;
      if (!words || !element || /^(SCRIPT|STYLE|CANVAS|NOSCRIPT|OPTION)$/.test(element.tagName)) continue;
      if (element.closest("canvas, [disabled], [aria-disabled='true'], .modebar, [data-testid='stLogo']")) continue;
      if (!element.checkVisibility({opacityProperty: true, visibilityProperty: true})) continue;
      const own = element.getBoundingClientRect();
      if (own.width < 3 || own.height < 3) continue;  // for screen readers alone
      const range = document.createRange();
      range.selectNodeContents(node);
      // The name of an icon takes more room than the icon that is drawn for it.
      const icon = /Material/.test(getComputedStyle(element).fontFamily);
      const full = (icon ? element : range).getBoundingClientRect();
      const width = icon ? Math.min(full.width, full.height) : full.width;
      const box = new DOMRect(full.left, full.top, width, full.height);
      if (box.width < 2 || box.height < 2) continue;
      const style = getComputedStyle(element);
      const svg = element.namespaceURI.endsWith("svg");
      let alpha = svg ? parseFloat(style.fillOpacity) : 1, hidden = false, clip = null;
      for (let up = element; up; up = up.parentElement ?? up.getRootNode().host) {
        const look = getComputedStyle(up);
        alpha *= parseFloat(look.opacity);
        if (up !== element && /hidden|clip|auto|scroll/.test(look.overflowX + look.overflowY)) {
          const frame = up.getBoundingClientRect();
          if (box.right <= frame.left + 1 || box.left >= frame.right - 1 || box.bottom <= frame.top + 1
              || box.top >= frame.bottom - 1) hidden = true;
          clip = clip ?? frame;
        }
      }
      if (hidden || alpha < 0.02) continue;
      const left = Math.max(box.left, clip?.left ?? 0), right = Math.min(box.right, clip?.right ?? 1e9);
      const top = Math.max(box.top, clip?.top ?? 0), bottom = Math.min(box.bottom, clip?.bottom ?? 1e9);
      if (right - left < 0.8 * box.width || bottom - top < 0.8 * box.height) continue;
      const key = element.closest('[class*="st-key-"]')?.getAttribute("class") ?? "";
      found.push({
        words: words.slice(0, 60), box: [left, top, right, bottom], alpha, svg,
        colour: svg ? style.fill : style.webkitTextFillColor || style.color,
        icon, size: parseFloat(style.fontSize),
        where: `${/st-key-[\\w-]+/.exec(key) ?? ""} ${element.dataset?.testid ?? element.tagName.toLowerCase()}`,
      });
    }
  };
  visit(document.body);
  for (const field of document.querySelectorAll("input, textarea")) {
    if (!field.placeholder || field.value || field.disabled || !field.checkVisibility()) continue;
    const style = getComputedStyle(field, "::placeholder"), box = field.getBoundingClientRect();
    if (box.width < 4) continue;
    found.push({words: field.placeholder.slice(0, 60), box: [box.left, box.top, box.right, box.bottom],
      alpha: parseFloat(style.opacity), svg: false, colour: style.webkitTextFillColor || style.color, icon: false,
      size: 14, where: "placeholder"});
  }
  return found;
}
"""

#: What can be tapped and is smaller than it should be; a link within a sentence is exempt, and so is a radio's own dot.
TAPS = """
least => {
  const small = [];
  let all = 0;
  const visit = root => {
    for (const one of root.querySelectorAll("*")) {
      if (one.shadowRoot) visit(one.shadowRoot);
      if (!one.matches("button, a[href], summary, input, textarea, [role=button], [role=tab], [role=slider]")) continue;
      if (one.disabled || !one.checkVisibility({opacityProperty: true, visibilityProperty: true})) continue;
      if (one.closest(".modebar, [aria-hidden='true'], [data-collapsed='true']")) continue;  // a shut drawer, too
      let box = one.getBoundingClientRect();
      if (box.width < 2 || box.height < 2) continue;
      if (one.matches("input")) {
        // A check box is tapped by its label, a field by its frame.
        const frame = one.closest("label") ?? one.closest("[data-baseweb]") ?? one;
        box = frame.getBoundingClientRect();
      }
      if (one.matches("a") && getComputedStyle(one).display === "inline"
          && one.parentElement.textContent.trim().length > one.textContent.trim().length) continue;
      all += 1;
      if (box.width < least - 0.5 || box.height < least - 0.5) {
        const key = one.closest('[class*="st-key-"]')?.getAttribute("class") ?? "";
        small.push(`${(/st-key-[\\w-]+/.exec(key) ?? [""])[0]} ${one.tagName.toLowerCase()}`
          + ` “${(one.textContent || one.ariaLabel || "").trim().slice(0, 30)}”`
          + ` ${Math.round(box.width)}×${Math.round(box.height)}`);
      }
    }
  };
  visit(document);
  return {all, small};
}
"""

#: What of a figure lies under its own tool bar, whether the bar shows or not: marks, words, the legend, what is drawn.
COVERED = """
() => {
  const found = [];
  for (const figure of document.querySelectorAll(".js-plotly-plot")) {
    const bar = figure.querySelector(".modebar")?.getBoundingClientRect();
    if (!bar?.width) continue;
    const frame = figure.getBoundingClientRect();
    const key = figure.closest('[class*="st-key-"]')?.getAttribute("class") ?? "";
    const name = (/st-key-[\\w-]+/.exec(key) ?? [""])[0];
    if (bar.bottom > frame.bottom + 1) found.push(`${name} the bar is higher than the figure`);
    for (const one of figure.querySelectorAll(".main-svg text, .main-svg .point, .main-svg .legend, .nsewdrag")) {
      const box = one.getBoundingClientRect();
      if (box.width && box.height && box.left < bar.right - 1 && box.right > bar.left + 1
          && box.top < bar.bottom - 1 && box.bottom > bar.top + 1) {
        found.push(`${name} ${one.getAttribute("class") ?? "text"} “${one.textContent.slice(0, 30)}”`);
      }
    }
  }
  return found;
}
"""

_HEIGHT = """
() => {
  const main = document.querySelector('[data-testid="stMain"]');
  return Math.ceil((main?.scrollHeight ?? 0) + document.querySelector('[data-testid="stHeader"]')?.offsetHeight ?? 0);
}
"""


@dataclass(frozen=True, slots=True)
class Quality:
    """One page at one size and in one theme. `shift` is the sum of its layout shifts; `moved` says what moved most;
    `covered` is what the tool bars of figures lie over, and what lies over the button that stops a page."""

    page: str
    theme: str
    width: int
    shift: float
    moved: tuple[str, ...]
    texts: int
    faint: tuple[str, ...]
    taps: int
    small: tuple[str, ...]
    covered: tuple[str, ...]


def addresses(store: Store) -> dict[str, str]:
    """Page -> an address at which it has something to show."""
    episode = store.episodes.page(EpisodeFilter(min_turns=3), limit=1).items[0]
    others = store.episodes.same_task(episode.id, limit=1)
    given = {
        "replay": {"ep": episode.id, "t": "2"},
        "pair": {"a": episode.id, "b": others[0].id} if others else {},
    }
    return {
        name: f"/{'' if name == 'home' else name}" + (f"?{urlencode(given[name])}" if given.get(name) else "")
        for name in VIEWS
    }


def load(page: Page, url: str) -> float:
    """Open an address anew and wait until it is drawn; returns the sum of its layout shifts so far."""
    page.goto(url)
    page.get_by_test_id("stMainBlockContainer").wait_for()
    return drawn(page)


def drawn(page: Page) -> float:
    """Wait until the page is drawn; returns the sum of its layout shifts so far."""
    settled(page)
    page.wait_for_timeout(DRAWN_MS)
    settled(page)
    return float(sum(one["value"] for one in page.evaluate("window.trinityShifts")))


def moved(page: Page) -> list[str]:
    """What moved while the page loaded, the most first."""
    found: list[dict[str, Any]] = page.evaluate("window.trinityShifts")
    found.sort(key=lambda one: -one["value"])
    return [f"{one['value']:.3f} at {one['at']} ms: {'; '.join(one['what'])}" for one in found]


def measure(
    page: Page,
    name: str,
    url: str,
    theme: str,
    size: tuple[int, int],
    *,
    texts: bool = True,
) -> Quality:
    """Load a page in a window of this size and measure it from top to bottom; its `texts`, too, if asked for."""
    width, height = size
    page.goto(urljoin(url, EMPTY))  # what is open would be drawn once more, at this size
    page.set_viewport_size({"width": width, "height": height})
    shift = load(page, url)
    what = moved(page)
    faint, found = faint_texts(page) if texts else ([], 0)
    taps = page.evaluate(TAPS, TAP_PX)
    return Quality(
        page=name,
        theme=theme,
        width=width,
        shift=shift,
        moved=tuple(what),
        texts=found,
        faint=tuple(faint),
        taps=taps["all"],
        small=tuple(taps["small"]),
        covered=(*page.evaluate(COVERED), *dict.fromkeys(page.evaluate("window.trinityStop"))),
    )


def faint_texts(page: Page) -> tuple[list[str], int]:
    """The texts of the whole page with too little contrast, and how many texts there are.

    What a text stands on is the most frequent colour in its box on a picture of the page: so it is right on a chart
    and on the cells of a heat map, too."""
    width = page.viewport_size["width"] if page.viewport_size else WIDE[0]
    page.set_viewport_size(
        {"width": width, "height": min(TALLEST, max(900, int(page.evaluate(_HEIGHT)) + 80))}
    )
    page.wait_for_timeout(DRAWN_MS)
    settled(page)
    texts: list[dict[str, Any]] = page.evaluate(TEXTS)
    picture = Image.open(io.BytesIO(page.screenshot(animations="disabled"))).convert("RGB")
    faint = []
    for one in texts:
        left, top, right, bottom = (round(edge) for edge in one["box"])
        left, top, right, bottom = (
            max(0, left),
            max(0, top),
            min(picture.width, right),
            min(picture.height, bottom),
        )
        if left >= right or top >= bottom:
            continue
        box = picture.crop((left, top, right, bottom))
        counted: Any = box.getcolors(box.width * box.height)
        papers = [colour for _, colour in sorted(counted, reverse=True)]
        # An icon can fill most of its box.
        filled = one["icon"] and len(papers) > 1 and contrast(_rgba(one["colour"])[:3], papers[0]) < 1.05
        paper = papers[1 if filled else 0]
        ratio = contrast(_over(_rgba(one["colour"]), one["alpha"], paper), paper)
        if ratio < (ICON_CONTRAST if one["icon"] else TEXT_CONTRAST):
            faint.append(
                f"{ratio:.2f} {one['words']!r} {one['colour']}×{one['alpha']:.2f} on {paper} {one['where']}"
            )
    return faint, len(texts)


def contrast(a: Sequence[float], b: Sequence[float]) -> float:
    """The contrast of two colours (red, green, blue from 0 to 255) as WCAG defines it, from 1 to 21."""
    dark, light = sorted((_luminance(a), _luminance(b)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: Sequence[float]) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (v / 255 for v in colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _rgba(colour: str) -> tuple[float, float, float, float]:
    parts = colour[colour.index("(") + 1 : -1].replace("/", " ").replace(",", " ").split()
    values = [float(part) for part in parts if part != "srgb"]
    if colour.startswith("color("):
        values[:3] = [255 * value for value in values[:3]]
    return values[0], values[1], values[2], values[3] if len(values) > 3 else 1.0


def _over(colour: Sequence[float], alpha: float, paper: Sequence[float]) -> list[float]:
    share = colour[3] * alpha
    return [share * c + (1 - share) * p for c, p in zip(colour[:3], paper, strict=True)]


def window(browser: Browser, theme: str, size: tuple[int, int]) -> Page:
    """A tab of a window of its own that notes what moves."""
    width, height = size
    scheme: Any = theme
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    context.set_default_timeout(120_000)
    context.add_init_script(WATCH)
    return context.new_page()
