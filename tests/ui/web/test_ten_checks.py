"""The checks that this inspector has to pass, one test each, in a real browser where they speak of one.

The seventh, that hostile text shows as text and no request leaves the page, is test_hostile.py's, for every page.
"""

from __future__ import annotations

import dataclasses
import os
import re
import socket
import subprocess
import sys
import time
from math import comb
from pathlib import Path
from typing import NoReturn
from urllib.parse import parse_qs, urlparse

import numpy as np
import pytest
from playwright.sync_api import Page, Position

from core.episode import Status
from core.ids import episode_id
from storage.analysis.policy_diff import read_diff
from storage.analysis.second_opinions import EpisodeScope
from storage.analysis.standings import CELLS, PolicySide, read_shared_tasks
from storage.filters.episode_filter import EpisodeFilter
from storage.reads import forks
from storage.recorder import record
from storage.store import Store
from tests import browsing
from tests.browsing import PATIENCE_S, arrive, environment, parameters, settled, visit
from tests.builders.diffed import Diffed
from tests.builders.recorded import episode, events_of
from tests.builders.sample_store import EVOLVED, checkpoint
from tests.ui.conftest import Served
from tests.ui.pages import APP, assert_literal, opened, plainly, press, shown, until, waiting
from tests.ui.sums import Sums
from ui.presentation.comparison import CELL_WORDS
from ui.runs.plans import LivePlan, to_config
from ui.runs.worker import play_claimed
from ui.web.views.review import KEYS
from ui.web.views.settings import key_sheets

pytestmark = pytest.mark.integration
FIRST, LAST = checkpoint(0).id, checkpoint(30).id
LIVE = "rliveread"


def go(page: Page, address: str) -> None:
    """Open a page with a strip, and wait for it."""
    visit(page, address)
    page.locator(".strip button").first.wait_for()
    settled(page)


def test_1_from_the_flip_table_to_the_first_diverging_turn_in_two_clicks(
    same_tab: Page, served: Served
) -> None:
    tab = same_tab
    sides = PolicySide(FIRST), PolicySide(LAST)
    cell = next(cell for cell in CELLS if read_shared_tasks(served.store, *sides, (), cell=cell))
    visit(tab, f"{served.address}/checkpoints")
    begun = tab.url
    tab.locator(".st-key-choose_cell").get_by_text(CELL_WORDS[cell]).click()  # the first
    tab.wait_for_url(f"**cell={cell}*")
    settled(tab)
    chosen = tab.url
    table = tab.get_by_test_id("stDataFrame").nth(1)
    link: Position = {"x": 45, "y": 52}  # in the first row; it opens once the pointer is over it
    table.hover(position=link)
    tab.wait_for_timeout(500)
    table.click(position=link)  # the second
    outcomes = read_shared_tasks(served.store, *sides, sides, cell=cell)[0].outcomes
    tab.wait_for_url("**/pair?*")
    assert tab.url.endswith("/pair?a={}&b={}".format(*(one.episode for one in outcomes if one)))
    tab.get_by_text("first differ in").wait_for()
    row = re.compile(r"^\s*Row .*first divergence", re.DOTALL)  # the row at hand, not the figure of that name
    tab.get_by_test_id("stMarkdownContainer").filter(has_text=row).first.wait_for()
    for left in (chosen, begun):  # Back takes one click away after the other
        settled(tab)
        tab.go_back()
        tab.wait_for_url(left)


def test_2_paired_p_and_interval_are_on_the_page(samples: Store) -> None:
    table = opened("checkpoints").dataframe[0].value
    (told,) = (row for _, row in table.iterrows() if row["name"] == "B · gen 30")
    n = {
        cell: len(read_shared_tasks(samples, PolicySide(FIRST), PolicySide(LAST), (), cell=cell))
        for cell in CELLS
    }
    lost, won = n["only_a"], n["only_b"]
    flips = lost + won
    p = min(1.0, 2 * sum(comb(flips, k) for k in range(min(lost, won) + 1)) / 2**flips)
    assert told["p"] == ("< 0.001" if p < 0.001 else f"{p:.3f}")
    difference = 100 * (won - lost) / sum(n.values())
    shown, low, high = (float(number) for number in re.findall(r"[-+]?\d+\.\d", told["difference"]))
    assert shown == round(difference, 1)
    assert low <= difference <= high
    assert low < high


def test_3_a_pasted_link_restores_page_filters_episode_turn_panel_and_compare_set(
    tab: Page, recorded_app: Served
) -> None:
    # That a key writes what it opens into the address, the fourth check tells.
    basket = "e-wrong,e-right"
    tab.goto(f"{recorded_app.address}/replay?ep=e-wrong&t=4&panel=why&only=changed&basket={basket}")
    tab.locator(".strip button").first.wait_for()
    settled(tab)
    asked = {"ep": "e-wrong", "t": "4", "panel": "why", "only": "changed", "basket": basket}
    assert parameters(tab) == asked
    tab.get_by_text("Turn 4 of 5").first.wait_for()
    assert tab.locator(".strip button").count() == 2  # folded as it was
    assert "primary" not in (tab.locator(".st-key-panel_why button").get_attribute("kind") or "")
    tab.get_by_text("In the basket: 2").wait_for()
    tab.get_by_role("link", name="Compare the 2 in the basket").wait_for()
    tab.locator('.strip [tabindex="0"]').first.focus()
    tab.keyboard.press("Escape")
    arrive(tab, "/episodes", basket=basket)
    tab.locator(".st-key-facet_correct").get_by_text("right").first.click()
    arrive(tab, correct="right")
    link = tab.url
    fresh = tab.context.new_page()
    fresh.goto(link)
    fresh.get_by_text("2 ticked").wait_for()
    fresh.locator(".st-key-chip_correct").wait_for()
    settled(fresh)
    assert parse_qs(urlparse(fresh.url).query) == parse_qs(urlparse(link).query)


#: What keys of a sheet do: the line they stand on, the key pressed, and where it leads.
Keys = list[tuple[str, str, dict[str, str | None]]]
#: Replay's, from e-wrong, turn 2.
REPLAY: Keys = [
    ("J  or  →", "j", {"t": "3"}),
    ("J  or  →", "ArrowRight", {"t": "4"}),
    ("K  or  ←", "k", {"t": "3"}),
    ("K  or  ←", "ArrowLeft", {"t": "2"}),
    ("Home / End", "End", {"t": "5"}),
    ("Home / End", "Home", {"t": "1"}),
    ("V", "v", {"t": "3"}),
    ("Space", " ", {"t": "5"}),  # playing goes on by itself, to the last turn
    ("B", "b", {"t": "3"}),
    ("O", "o", {"t": "5"}),
    ("M", "m", {"t": "1"}),
    ("S", "s", {"t": "4"}),
    ("L", "l", {"labels": "open"}),
    ("L", "l", {"labels": None}),
    ("Z", "z", {"zen": "1"}),
    ("Z", "z", {"zen": None}),
    ("X", "x", {"basket": "e-wrong"}),
    ("X", "x", {"basket": None}),
    ("1 to 5", "2", {"panel": "why"}),
    ("1 to 5", "3", {"panel": "other"}),
    ("1 to 5", "4", {"panel": "without"}),
    ("1 to 5", "5", {"panel": "near"}),
    ("1 to 5", "1", {"panel": None}),
]
#: A pair's, from row 2.
PAIR: Keys = [
    ("J  or  →", "j", {"t": "3"}),
    ("J  or  →", "ArrowRight", {"t": "4"}),
    ("K  or  ←", "ArrowLeft", {"t": "3"}),
    ("Space", " ", {"t": "5"}),
    ("K  or  ←", "k", {"t": "4"}),
    ("Home / End", "Home", {"t": "1"}),
    ("Home / End", "End", {"t": "5"}),
    ("A  or  D", "a", {"a": "e-wrong", "b": "e-right"}),
    ("A  or  D", "d", {"a": "e-right", "b": "e-wrong"}),
    ("F", "f", {"t": None}),
]
#: An evolution's, from the second of its three generations.
EVOLUTION: Keys = [
    ("Home / End", "End", {"gen": "30"}),
    ("K  or  ←", "k", {"gen": "8"}),
    ("K  or  ←", "ArrowLeft", {"gen": "0"}),
    ("J  or  →", "j", {"gen": "8"}),
    ("J  or  →", "ArrowRight", {"gen": "30"}),
    ("Home / End", "Home", {"gen": "0"}),
    ("Space", " ", {"gen": "30"}),
]


def test_4_every_key_of_review_does_what_its_sheet_says(same_tab: Page, served: Served) -> None:
    tab = same_tab
    store = served.store
    ids = [one.id for one in store.episodes.page(EpisodeFilter(family="user"), order="oldest").items]

    def key(name: str) -> None:
        tab.keyboard.press(name)
        settled(tab)

    visit(tab, "/review?family=user&order=oldest")
    tab.locator(".st-key-quick_label_1").wait_for()
    tab.locator(".st-key-help button").wait_for(state="attached")  # it hears the key
    browsing.press(tab, "h")
    sheet = tab.get_by_role("dialog")
    sheet.wait_for()
    assert all(name in sheet.inner_text() for name, _ in KEYS)
    key("Escape")
    sheet.wait_for(state="hidden")
    key("n")
    arrive(tab, ep=ids[1])
    key("2")
    until(lambda: [one.value for one in store.labels.of(ids[1])] == ["bad"])
    key("p")
    arrive(tab, ep=ids[0])
    key("j")  # over what is labelled
    arrive(tab, ep=ids[2])
    key("k")
    arrive(tab, ep=ids[0])
    key("z")
    arrive(tab, blind="1")
    key("a")
    arrive(tab, on="1")
    key("1")
    arrive(tab, ep=ids[2])
    key("u")
    arrive(tab, ep=ids[0])
    until(lambda: store.labels.of(ids[0]) == ())


def test_4_all_keys_on_the_help_sheet_work_with_the_strip_focused_and_not(
    same_tab: Page, served: Served, recorded_app: Served
) -> None:
    tab = same_tab
    sheets = {title: dict(keys) for title, keys in key_sheets().items()}
    for title, keys, others in (
        ("Replay", REPLAY, {"N / P", "F", "Esc"}),
        ("Two episodes", PAIR, set()),
        ("Evolution", EVOLUTION, set()),
    ):
        assert {"H", *others, *(line for line, _, _ in keys)} == set(sheets[title])
    visit(tab, f"{served.address}/evolution?run={EVOLVED}&gen=8")
    tab.get_by_text("Generation 8 of 30").wait_for()
    _press_all(tab, EVOLUTION, strip=False)
    go(tab, f"{recorded_app.address}/replay?ep=e-wrong&t=2")  # with nothing in the basket
    _press_all(tab, REPLAY, strip=True)
    for key in "np":
        before = parameters(tab)["ep"]
        tab.keyboard.press(key)
        tab.wait_for_url(lambda url, before=before: f"ep={before}" not in url)  # type: ignore[misc]
        settled(tab)
        tab.locator('.strip [tabindex="0"]').first.focus()
    assert parameters(tab)["ep"] == "e-wrong"
    tab.keyboard.press("f")
    tab.wait_for_url("**/forks?*ep=e-wrong*")
    go(tab, f"{recorded_app.address}/pair?a=e-right&b=e-wrong&t=2")
    _press_all(tab, PAIR, strip=True)
    ids = [one.id for one in recorded_app.store.episodes.page(EpisodeFilter(correct="right"), limit=2).items]
    go(tab, f"{recorded_app.address}/episodes?correct=right&peek={ids[0]}")
    for key, one in (("j", ids[1]), ("k", ids[0])):
        tab.keyboard.press(key)
        arrive(tab, peek=one)
    assert list(sheets["Episodes"]) == ["J / K"]
    # The third check presses Esc, Live's test in test_live_in_browser.py its one.
    assert set(sheets) == {"Replay", "Two episodes", "Evolution", "Episodes", "Review", "Live"}


def _press_all(page: Page, keys: Keys, *, strip: bool) -> None:
    """Press every key of the page that is open, and first the one that shows the sheet, on which they must all stand.
    With `strip` a cell of the strip has the focus."""
    page.locator(".st-key-help button").wait_for(state="attached")  # it hears the key
    browsing.press(page, "h")
    dialog = page.get_by_role("dialog")
    dialog.wait_for()
    said = re.sub(r"\s+", " ", dialog.inner_text())
    assert not [line for line, _, _ in keys if line.replace("  ", " ") not in said]
    page.keyboard.press("Escape")
    dialog.wait_for(state="hidden")
    settled(page)
    for _, key, there in keys:
        # With a cell focused Space presses that cell: so a page that plays has the focus elsewhere.
        if strip and key != " ":
            page.locator('.strip [tabindex="0"]').first.focus()
        elif strip:
            page.get_by_role("heading").first.click()
        page.keyboard.press(key)
        arrive(page, **there)


def test_5_an_episode_of_2000_turns_and_a_reply_of_5_mb_open(same_tab: Page, recorded_app: Served) -> None:
    tab = same_tab
    go(tab, f"{recorded_app.address}/replay?ep=e-2000&t=1000")
    tab.get_by_text("Turn 1000 of 2000").first.wait_for()
    assert tab.locator(".strip button").count() == 200
    tab.locator(".st-key-go_to input").fill("1999")
    tab.locator(".st-key-go_to input").press("Enter")
    arrive(tab, t="1999")
    tab.get_by_text("Turn 1999 of 2000").first.wait_for()
    go(tab, f"{recorded_app.address}/replay?ep=e-5mb&t=2")
    body = tab.get_by_test_id("stCode").first
    assert len(body.inner_text()) < 7000
    tab.get_by_role("button", name="Show more of 5,250,000 characters").click()
    # To look for words anywhere would read all of these over and over.
    words = tab.get_by_test_id("stCaptionContainer").or_(tab.get_by_test_id("stMarkdownContainer"))
    words.filter(has_text="The first 400,000 of 5,250,000 characters").first.wait_for()
    tab.keyboard.press("j")
    arrive(tab, t="3")
    words.filter(has_text="Turn 3 of 5").first.wait_for()


def test_6_a_running_episode_can_be_read_its_page_stays_and_a_dead_one_is_stalled(
    same_tab: Page, recorded_app: Served
) -> None:
    tab, store = same_tab, recorded_app.store
    whole = dataclasses.replace(episode(episode_id(LIVE, 0), turns=18, seed=31), run_id=LIVE, turn_budget=18)
    store.runs.create(LIVE, "live", to_config(LivePlan(whole.task, whole.policy, whole.models, turns=18)))
    playing = record(store, events_of(dataclasses.replace(whole, status=Status.RUNNING)))

    def play(turns: int) -> None:
        done = 0
        for happened in playing:
            done += getattr(happened, "reply", None) is not None and hasattr(happened, "flags")
            if done == turns:
                return

    play(4)
    go(tab, f"{recorded_app.address}/live?run={LIVE}&t=4")
    tab.get_by_text("Turn 4 of 4").first.wait_for()
    assert not tab.get_by_role("switch", name="Follow").or_(tab.get_by_label("Follow")).first.is_checked()
    tab.mouse.move(640, 500)  # over what scrolls
    tab.mouse.wheel(0, 120)
    tab.wait_for_timeout(300)
    place = tab.get_by_test_id("stMain").evaluate("one => one.scrollTop")
    assert place > 0
    play(12)
    tab.get_by_text("12 new turns").first.wait_for()
    tab.get_by_text("Turn 4 of 16").first.wait_for()
    assert parameters(tab)["t"] == "4"
    assert tab.get_by_test_id("stMain").evaluate("one => one.scrollTop") == place
    silent = dataclasses.replace(store.runs, now=lambda: time.time() - 21)

    def told_while_silent(words: str) -> None:
        """The page comes to say so. Meanwhile the silence stays as long as it is: ten seconds later the run would be
        taken for dead, and a busy machine may need more for a page."""
        end = time.monotonic() + PATIENCE_S
        while not tab.get_by_text(words).first.is_visible():
            assert time.monotonic() < end, words
            silent.heartbeat(LIVE)
            tab.wait_for_timeout(200)

    told_while_silent("stalled")
    visit(tab, f"{recorded_app.address}/replay?ep={whole.id}&t=3")
    told_while_silent("Turn 3 of 16")
    told_while_silent("This episode has stalled")
    store.runs.heartbeat(LIVE)
    tab.get_by_text("still being played").wait_for()
    assert parameters(tab)["t"] == "3"


@pytest.mark.usefixtures("no_workers")
def test_8_a_fork_leaves_its_parent_as_it_was_and_shows_the_baselines_spread(
    world: Sums, store: Store
) -> None:
    world.run("--policy", "single:guesser", "--n", "4", "--validate", "0")
    parent = store.episodes.page(EpisodeFilter(flag="false_accept")).items[0].id
    before, whole = forks.episode_digests(store, [parent]), store.episodes.get(parent)
    page = opened("forks", ep=parent, t="3", change="verdict")
    assert "Turns 1 to 2 stay as they are" in shown(page)
    page.number_input(key="fork_n").set_value(2).run()
    page.number_input(key="fork_baseline").set_value(2).run()
    press(page, "fork_start")
    (run,) = waiting(store)
    assert play_claimed(store, run) == 0
    assert forks.episode_digests(store, [parent]) == before
    assert store.episodes.get(parent) == whole
    said = shown(opened("forks", run=run))
    assert "Every recorded row has the same hash as before" in said
    assert re.search(r"[Bb]aseline", said)
    assert re.search(r"95 \\% interval \d+ to \d+", said)


def test_9_policy_diff_works_with_the_network_off(diffed: Diffed, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> NoReturn:
        raise OSError("the network is off")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    a, b = diffed.a.id, diffed.b.id
    page = opened("policy", c=f"{a},{b},{diffed.barred.id}", **{"with": b})
    diff = read_diff(diffed.store, EpisodeScope(), [a, b, diffed.barred.id])
    rate = diff.agreements[0].rate
    assert rate is not None
    said = plainly(page)
    assert f"would choose as A does at {100 * rate:.1f} %" in said
    assert "Teacher-forced: every checkpoint is shown the transcript as it was recorded." in said
    assert "no usable hidden state was kept" in " ".join(page.dataframe[1].value["reason"])
    rows = page.dataframe[0].value
    assert len(rows) == int(diff.agreements[0].differs.sum())
    assert rows["kl"].is_monotonic_decreasing
    assert rows["replay"][0].startswith("/replay?ep=")
    assert_literal(page)
    # What a click writes narrows the list, and stands in the address.
    first = int(np.max(diff.partings[0].turns)) + 1
    page.query_params["first"] = str(first)
    page.run()
    assert "turn" not in page.dataframe[0].value, "all are of one turn, so no column says it"
    page.selectbox(key="choose_first").select_index(0).run()
    assert "first" not in page.query_params
    page.selectbox(key="policy_base").select(b).run()
    assert page.query_params["c"] == f"{b},{a},{diffed.barred.id}"
    assert not page.exception


@pytest.mark.process
def test_10_with_the_sample_data_every_page_renders_with_no_key_no_gpu_and_no_torch(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from tests.ui.pages import opened, shown\n"
        "from ui.runs import wiring\nfrom ui.web.kit import state\n"
        "from storage.store import open_store\n"
        "chosen = wiring.settings()\n"
        "store = open_store(chosen.store)\n"
        "store.runs.create('rown', 'run', {})\n"
        "wiring.import_samples(store, chosen)\n"
        "samples = {run.id: run.is_sample for run in store.runs.list()}\n"
        "assert len(samples) > 3 and not samples.pop('rown') and all(samples.values())\n"
        "store.runs.finish('rown')\n"
        "store.runs.delete('rown')\n"
        "one, two, *_ = (line.id for line in store.episodes.page().items)\n"
        "about = {'replay': {'ep': one, 't': '2'}, 'pair': {'a': one, 'b': two}}\n"
        "for name in state.VIEWS:\n"
        "    page = opened(name, **about.get(name, {}))\n"
        "    assert shown(page) and not page.error, name\n"
        "    assert 'cannot be shown' not in shown(page), name\n"
        "    assert not {'torch', 'transformers'} & set(sys.modules), name\n"
    )
    own = {
        name: value
        for name, value in environment(tmp_path).items()
        if not name.endswith(("_API_KEY", "_TOKEN"))
    } | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=APP.parents[1], env=own, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr[-2000:]
