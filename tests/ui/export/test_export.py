"""Exports: what each format holds, that a part of a store travels, and that no file is ever half-written."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import hashlib
import io
import json
import os
import re
import shlex
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any, get_args

import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Page
from sqlalchemy import String, cast, insert, literal, select, true
from streamlit.testing.v1 import AppTest

from core.errors import ImportFormatError, StoreError
from storage.analysis.second_opinions import Opinion, add_opinions
from storage.files import interchange, selection
from storage.files.interchange import import_file
from storage.files.parquet import RowKind, export_parquet
from storage.files.selection import Selection
from storage.filters.episode_filter import WHOLE_STORE, EpisodeFilter
from storage.recorder import record
from storage.rows.engine import writing
from storage.rows.mapping import floats
from storage.rows.schema import episode as table
from storage.shelves.labels import Place
from storage.store import Store
from tests.browsing import settled, visit
from tests.builders.interchange import export_episodes, export_runs
from tests.builders.recorded import RUN, episode, events_of, recorded_store
from tests.builders.sample_store import EVOLVED, PLAYED, checkpoint
from tests.builders.stores import new_store
from tests.hostile import HOSTILE
from tests.ui.conftest import Served
from tests.ui.pages import assert_literal, command, opened, press, shown
from ui.export import formats
from ui.export.formats import cell
from ui.export.page import episode_page, pair_page, read_played
from ui.presentation.odds import choice_words
from ui.web.turns.turn_card import turn_json

MANY = 1_500


def sheet(store: Store, folder: Path) -> dict[str, dict[str, str]]:
    """The rows of a store's sheet, by episode."""
    formats.FORMATS["csv"].write(store, EpisodeFilter(), folder / "e.csv")
    with (folder / "e.csv").open(encoding="utf-8-sig", newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def table_of(store: Store, selection: Selection, folder: Path, kind: RowKind) -> list[dict[str, Any]]:
    """The rows of a Parquet table."""
    export_parquet(store, selection, folder / "one.parquet", kind)
    found: list[dict[str, Any]] = pq.read_table(folder / "one.parquet").to_pylist()
    return found


def test_single_episodes_travel_with_what_they_refer_to_and_the_rest_can_follow(
    samples: Store, tmp_path: Path
) -> None:
    checkpoint = samples.checkpoints.list(EVOLVED)[0].id
    chosen = EpisodeFilter(policy=checkpoint, correct="wrong")
    ids = sorted(one.id for one in samples.episodes.page(chosen, limit=100).items)
    counts = export_episodes(samples, chosen, tmp_path / "some.jsonl.gz")
    assert counts == {"run": 1, "checkpoint": 1, "episode": len(ids)}
    there = new_store(tmp_path / "there.db")
    import_file(there, tmp_path / "some.jsonl.gz")
    assert [there.episodes.get(one) for one in ids] == [samples.episodes.get(one) for one in ids]
    assert there.episodes.page(EpisodeFilter(checkpoint=checkpoint)).total.n == len(ids)
    export_runs(samples, [EVOLVED, PLAYED], tmp_path / "all.jsonl")
    again = import_file(there, tmp_path / "all.jsonl")
    assert again.unchanged >= len(ids)
    assert (
        there.episodes.page(EpisodeFilter(run=PLAYED)).total
        == samples.episodes.page(EpisodeFilter(run=PLAYED)).total
    )
    assert [one.run_id for one in there.checkpoints.list(EVOLVED)] == [EVOLVED] * 3
    there.close()


def test_an_episode_whose_id_is_a_path_or_a_script_stays_out(recorded: Store, tmp_path: Path) -> None:
    export_episodes(recorded, ["e-right"], tmp_path / "one.jsonl")
    lines = (tmp_path / "one.jsonl").read_bytes().replace(b'"e-right"', b'"javascript:alert(1)//../x"')
    body = b"".join(lines.splitlines(keepends=True)[:-1])
    end = {"kind": "end", "counts": {"run": 1, "episode": 1}, "sha256": hashlib.sha256(body).hexdigest()}
    (tmp_path / "bad.jsonl").write_bytes(body + json.dumps(end).encode() + b"\n")
    there = new_store(tmp_path / "there.db")
    with pytest.raises(ImportFormatError, match="line 3, has an unusable value at episode.id"):
        import_file(there, tmp_path / "bad.jsonl")
    assert there.runs.list() == []
    there.close()


def test_parquet_has_typed_rows_with_everything_a_notebook_needs(recorded: Store, tmp_path: Path) -> None:
    n = recorded.episodes.page(limit=50).total.n
    assert export_parquet(recorded, EpisodeFilter(), tmp_path / "e.parquet", "episodes") == n
    assert export_parquet(recorded, EpisodeFilter(), tmp_path / "t.parquet", "turns") > 80
    one = pq.read_table(tmp_path / "e.parquet", filters=[("id", "=", "e-wrong")]).to_pylist()[0]
    whole, summary = recorded.episodes.get("e-wrong"), recorded.episodes.summary("e-wrong")
    assert (one["question"], one["expected"], one["answer"]) == (whole.task.question, "32", "36")
    assert (one["correct"], one["seed"], one["models"]) == (False, 7, list(whole.models))
    assert one["started"].timestamp() == pytest.approx(summary.started, abs=1e-5)
    assert one["flags"] == list(summary.flags)
    turns = pq.read_table(tmp_path / "t.parquet", filters=[("episode_id", "=", "e-wrong")]).to_pylist()
    assert [tuple(turn["model_logits"]) for turn in turns] == [t.decision.model_logits for t in whole.turns]
    assert [turn["reply"] for turn in turns] == [turn.reply.text for turn in whole.turns]
    assert [turn["turn"] for turn in turns] == [1, 2, 3, 4, 5]
    assert [turn["verdict"] for turn in turns] == [turn.verdict for turn in whole.turns]
    running = pq.read_table(tmp_path / "t.parquet", filters=[("episode_id", "=", "e-running")]).to_pylist()
    assert running[-1]["stage"] != "finished"


def test_a_turns_number_means_the_same_in_parquet_in_filters_and_on_pages(tmp_path: Path) -> None:
    """From 1; only JSON Lines, which is read by programs, counts a turn's `index` from 0."""
    recorded = recorded_store(tmp_path / "trinity.db")
    with writing(recorded.engine) as connection:
        change = table.update().where(table.c.id == "e-right")
        connection.execute(change.values(parent_episode_id="e-wrong", fork_turn=1))
    recorded.labels.add(Place("e-wrong", 1), "step", "wrong", author="Ada")

    def found_by(q: str) -> list[str]:
        return [one.id for one in recorded.episodes.page(EpisodeFilter(q=q), limit=50).items]

    fork = next(
        row for row in table_of(recorded, EpisodeFilter(), tmp_path, "episodes") if row["id"] == "e-right"
    )
    assert found_by(f"fork_turn == {fork['fork_turn']}") == ["e-right"]
    (label,) = table_of(recorded, EpisodeFilter(), tmp_path, "labels")
    assert found_by(f"any(label.turn == {label['turn']})") == ["e-wrong"]
    for row in table_of(recorded, EpisodeFilter(), tmp_path, "turns"):
        if row["stage"] == "finished":
            here = f"turn.number == {row['turn']} and turn.role == {row['role']!r} and turn.model == {row['model']!r}"
            assert row["episode_id"] in found_by(f"any({here})")
    outline = recorded.episodes.outline("e-wrong")[1]
    shown = json.loads(turn_json(outline, recorded.episodes.text("e-wrong", 1), None))
    assert (shown["turn"], "index" in shown) == (2, False)
    recorded.close()


def test_a_probability_and_its_logit_stand_apart_also_where_the_page_is_read_as_text(recorded: Store) -> None:
    """Whoever copies the page, or reads it in a terminal, gets words without cells."""
    words = re.sub(r"<[^>]+>", "", episode_page(read_played(recorded, "e-wrong")))
    assert not re.search(r"%[+-]?\d|plogit", words)
    assert re.search(r"\d %\s+[+-]\d+\.\d{4}", words)
    assert re.search(r"\bp\s+logit\b", words)


def test_labels_and_second_opinions_leave_with_every_format(tmp_path: Path) -> None:
    recorded = recorded_store(tmp_path / "trinity.db")
    one, turns = recorded.episodes.get("e-wrong"), recorded.episodes.get("e-wrong").turns
    say = recorded.labels.add
    say(Place("e-wrong"), "quality", "good", author="Ada")
    say(Place("e-wrong"), "quality", "bad", author="Ada", note="on second thought <b>no</b>")
    say(Place("e-wrong"), "quality", "mixed", author="=Bob")
    say(Place("e-wrong", 1), "step", "wrong", author="Ada")
    say(Place("e-wrong", 1, (0, 4)), "step", "typo", author="Ada")
    say(Place("e-right"), "gone", "yes", author="Ada")
    recorded.labels.withdraw(Place("e-right"), "gone", author="Ada")
    other = checkpoint(0)
    recorded.checkpoints.add(other.id, other.to_config(), other.to_bytes())
    logits = ([9.0, *[0.0] * (len(one.models) - 1)], [0.0, 0.0, 9.0])
    recorded.runs.create("rr", "reencode", {})
    numbers = floats(logits[0]), floats(logits[1])
    said = Opinion(other.id, "e-wrong", 1, *numbers, turns[1].decision.prompt_digest, "cpu")
    add_opinions(recorded, "rr", [said])

    rows = sheet(recorded, tmp_path)
    assert [name for name in rows["e-wrong"] if name.startswith("label_")] == ["label_quality"]
    assert (rows["e-wrong"]["label_quality"], rows["e-right"]["label_quality"]) == ("bad | mixed", "")
    both = ["e-wrong", "e-right"]
    tables = {kind: table_of(recorded, both, tmp_path, kind) for kind in get_args(RowKind)}
    assert {row["id"]: row["label_quality"] for row in tables["episodes"]} == {
        "e-wrong": "bad | mixed",
        "e-right": None,
    }
    wrong = [row["label_step"] for row in tables["turns"] if row["episode_id"] == "e-wrong"]
    assert wrong == [None, "wrong | typo", None, None, None]
    assert {(row["turn"], row["words"], row["value"], row["author"]) for row in tables["labels"]} == {
        (None, None, "bad", "Ada"),
        (None, None, "mixed", "=Bob"),
        (2, None, "wrong", "Ada"),
        (2, turns[1].reply.text[:4], "typo", "Ada"),
    }
    assert len(tables["labels"]) == 4
    assert [(row["turn"], row["checkpoint_id"], row["same_input"]) for row in tables["opinions"]] == [
        (2, other.id, True)
    ]
    assert tables["opinions"][0]["model_logits"] == logits[0]
    page = episode_page(read_played(recorded, "e-wrong"))
    assert "on second thought &lt;b&gt;no&lt;/b&gt;" in page
    assert f"<bdi>{other.id}</bdi>" in page
    assert f"Verifier on {one.models[0]}" in page
    assert "on second thought" in pair_page(
        read_played(recorded, "e-right"), read_played(recorded, "e-wrong")
    )


def test_no_cell_of_a_sheet_is_run_and_no_character_of_it_is_hidden(recorded: Store, tmp_path: Path) -> None:
    rows = sheet(recorded, tmp_path)
    assert rows.keys() == {one.id for one in recorded.episodes.page(limit=50).items}
    wrong = rows["e-wrong"]
    assert (wrong["correct"], wrong["tokens_in"], wrong["answer"]) == ("False", "150", "36")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT.*\+00:00", wrong["started"])
    shown_cells = [str(cell("question", text)) for text in HOSTILE]
    assert not [
        one for one in shown_cells if one.lstrip(" ").startswith(("=", "+", "-", "@", "\t", "\r", "＝"))
    ]
    assert not [one for one in shown_cells if re.search("[\u202a-\u202e\u2066-\u2069\u200b\x00\x1b]", one)]
    assert cell("min_margin", -0.5) == -0.5


def test_a_page_holds_the_whole_episode_with_an_anchor_per_turn(recorded: Store) -> None:
    played = read_played(recorded, "e-wrong")
    page = episode_page(played)
    for turn in played.episode.turns:
        assert f'id="t{turn.index + 1}"' in page
        assert turn.reply.text in page
        assert f"{turn.decision.model_logits[0]:+.4f}" in page
        assert choice_words(turn.decision, played.episode.models) in page
    assert "accepted a wrong answer" in page
    assert "script" not in re.sub("runs no script", "", page)
    assert "default-src &#39;none&#39;" in page or "default-src 'none'" in page
    both = pair_page(read_played(recorded, "e-right"), read_played(recorded, "e-short"))
    assert both.count("⚑ first divergence") == 1
    assert 'class="row first" id="r4"' in both
    for state_ in ("e-running", "e-missing", "e-interrupted", "e-random", "e-failed", "e-long", "e-other"):
        assert "Undefined" not in episode_page(read_played(recorded, state_))


def test_a_list_of_many_episodes_is_streamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "FETCH", 50)
    store = new_store(tmp_path / "many.db")
    store.runs.create(RUN, "run", {})
    list(record(store, events_of(episode("e0"))))
    columns = [column.name for column in table.c if column.name not in ("id", "started")]
    first = select(literal(1).label("n")).cte(recursive=True)
    number = first.union_all(select(first.c.n + 1).where(first.c.n < MANY))
    named = literal("e").concat(cast(number.c.n, String))
    copied = select(named, number.c.n, *(table.c[name] for name in columns))
    copied = copied.select_from(table.join(number, true())).where(table.c.id == "e0")
    with writing(store.engine) as connection:
        connection.execute(insert(table).from_select(["id", "started", *columns], copied))
    tracemalloc.start()
    assert selection.last_count(formats.write_csv(store, EpisodeFilter(), tmp_path / "e.csv"), 0) == MANY + 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000  # all of them at once take twice as much
    assert export_parquet(store, EpisodeFilter(), tmp_path / "e.parquet", "episodes") == MANY + 1
    store.close()


@pytest.mark.parametrize(
    ("form", "files"),
    [
        ("jsonl", ["episodes.jsonl.gz"]),
        ("csv", ["episodes.csv"]),
        ("parquet", [f"episodes.{kind}parquet" for kind in ("labels.", "opinions.", "", "turns.")]),
        ("html", ["episodes.html.zip"]),
    ],
)
def test_the_command_exports_every_format(
    form: str,
    files: list[str],
    samples: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command(["export", "--where", "correct == False", "--policy", "random", "--format", form]) == 0
    assert "Wrote" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == files
    before = (tmp_path / files[0]).read_bytes()
    assert command(["export", "--all", "--format", form]) == 1
    assert "exists already" in capsys.readouterr().err
    assert (tmp_path / files[0]).read_bytes() == before


def test_the_command_says_in_one_sentence_what_it_cannot_do(
    samples: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    one, other = (found.id for found in samples.episodes.page(limit=2).items)
    for arguments, sentence in (
        ([], "Choose one way to say what to export"),
        (["--all", "--where", "correct == False"], "Choose one way to say what to export"),
        (["--flag", "maybe"], "--flag cannot be 'maybe'"),
        (["--all", "--format", "docx"], "--format cannot be 'docx'"),
        (["--all", "--out", "all.html"], "are a zip: name it all.zip"),
        (["--all", "--format", "html", "--out", "all.html"], "are a zip: name it all.zip"),
        (["--episode", one, "--out", "one.zip"], "one page and no zip: name it one.html"),
        (["--episode", "e-nobody"], "holds no episode e-nobody"),
        (["--episode", "e-nobody", "--format", "html"], "holds no episode e-nobody"),
        (["--pair", one, other, "--format", "csv"], "A pair is a page"),
        ([PLAYED, EVOLVED, "--format", "csv"], "Name one run at a time"),
        (["--where", 'family == "nothing"'], "No episode matches"),
        (["--all", "--out", "no/such/folder.csv"], "cannot be written"),
        (["rnothing"], "holds no run rnothing"),
    ):
        assert command(["export", *arguments]) == 1, arguments
        told = capsys.readouterr().err
        assert sentence in told
        assert told.count("\n") == 1
    assert command(["export", "--where", "turns >"]) == 1
    assert "Column 8 of the filter" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert command(["export", "--pair", one, other]) == 0
    assert command(["export", "--episode", one, "--out", "one.html"]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {f"{one}-and-{other}.html", "one.html"}


@pytest.mark.parametrize("form", list(formats.FORMATS))
def test_a_full_disk_leaves_no_half_file(
    form: str, samples: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out"
    target.write_text("what was there")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left on device"):
        formats.FORMATS[form].write(samples, EpisodeFilter(policy="random", correct="wrong"), target)
    assert target.read_text() == "what was there"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.integration
def test_the_data_page_exports_what_its_address_selects(
    samples: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = opened("data", correct="wrong", policy="random", **{"as": "csv"})
    n = samples.episodes.page(EpisodeFilter(correct="wrong", policy="random")).total.n
    assert f"**{n} episodes**" in shown(page)
    assert page.get("download_button")[0].proto.label == "Download CSV"
    form = dataclasses.replace(formats.FORMATS["csv"], most=3)
    assert (
        form.deferred(samples, EpisodeFilter(correct="wrong", policy="random"))().read().count(b"\r\n")
        == n + 1
    )
    monkeypatch.setitem(formats.FORMATS, "csv", form)
    page = opened("data", family="math", **{"as": "csv"})
    assert "Too much for a browser: more than 3 episodes" in shown(page)
    assert page.code[0].value == "trinity export --where 'family == \"math\"' --format csv"
    assert not page.get("download_button")
    said = formats.command(EpisodeFilter(end_reason="budget", family="a'b", run="r 1"), "parquet")
    where = """family == "a'b" and end_reason == "budget\""""
    assert shlex.split(said)[2:] == ["--run", "r 1", "--where", where, "--format", "parquet"]
    assert formats.command(WHOLE_STORE, "csv") == "trinity export --all --format csv"
    page = opened("data", family=HOSTILE[0], task=HOSTILE[22])
    assert "No episode matches" in shown(page)
    assert_literal(page)


def test_a_download_of_several_files_is_a_zip_that_is_named_one(samples: Store) -> None:
    chosen = EpisodeFilter(policy="random", correct="wrong")
    n = samples.episodes.page(chosen).total.n
    assert {name for name, one in formats.FORMATS.items() if one.suffix.endswith(".zip")} == {
        "parquet",
        "html",
    }
    with zipfile.ZipFile(formats.FORMATS["html"].deferred(samples, chosen)()) as pages:
        assert len(pages.namelist()) == n + 1
    with zipfile.ZipFile(formats.FORMATS["parquet"].deferred(samples, chosen)()) as tables:
        assert tables.namelist() == [f"{rowed}.parquet" for rowed in get_args(RowKind)]
        assert pq.read_table(io.BytesIO(tables.read("episodes.parquet"))).num_rows == n


@pytest.mark.integration
def test_an_upload_comes_in_whole_or_not_at_all(
    recorded: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_episodes(recorded, ["e-right", "e-hostile"], tmp_path / "two.jsonl.gz")
    content = (tmp_path / "two.jsonl.gz").read_bytes()
    monkeypatch.setenv("TRINITY_STORE", str(tmp_path / "new.db"))
    page = opened_with("data", content[:-20], "<b>:green-badge[ACCEPT].jsonl.gz")
    assert "is truncated or damaged" in page.error[0].value
    assert_literal(page)
    monkeypatch.setattr(interchange, "MAX_LINE_BYTES", 100_000)
    bomb = gzip.compress(b"\x00" * 1_000_000)
    page = opened_with("data", bomb, "bomb.jsonl.gz")
    assert "too large" in page.error[0].value
    monkeypatch.undo()
    monkeypatch.setenv("TRINITY_STORE", str(tmp_path / "new.db"))
    page = opened_with("data", content, "two.jsonl.gz")
    assert {metric.label: metric.value for metric in page.metric} == {"run": "1", "episodes": "2"}
    new = new_store(tmp_path / "new.db")
    assert new.episodes.get("e-hostile") == recorded.episodes.get("e-hostile")
    new.close()


def opened_with(name: str, content: bytes, called: str) -> AppTest:
    """A page with a file chosen and its import pressed."""
    page = opened(name)
    page.file_uploader(key="upload").set_value((called, content, "application/gzip")).run()
    return press(page, "import_it")


def test_figures_and_pages_are_saved_from_the_browser(tab: Page, served: Served) -> None:
    several = served.store.episodes.page(EpisodeFilter(run=PLAYED, min_turns=3), limit=200).items
    one = next(each.id for each in several if each.checkpoint_id)
    visit(tab, f"/replay?ep={one}")
    assert _camera(tab, "svg").startswith(b"<svg")
    tab.locator(".st-key-more button").first.click()
    with tab.expect_download() as saving:
        tab.get_by_role("button", name="Save as a page").click()
    page = Path(saving.value.path()).read_text("utf-8")
    assert saving.value.suggested_filename == f"{one}.html"
    assert page == episode_page(read_played(served.store, one))
    visit(tab, "/data")
    tab.get_by_role("radio", name="PNG").or_(tab.get_by_role("button", name="PNG")).first.click()
    settled(tab)
    visit(tab, f"/replay?ep={one}")  # the choice is kept from page to page
    tab.locator(".decision svg.odds text").first.wait_for()
    tab.locator(".decision").hover()
    with tab.expect_download() as saving:
        tab.get_by_role("button", name="Save as PNG").click()
    assert saving.value.suggested_filename == "trinity-decision-chart.png"
    assert Path(saving.value.path()).read_bytes().startswith(b"\x89PNG")
    assert _camera(tab, "png").startswith(b"\x89PNG")


def _camera(tab: Page, kind: str) -> bytes:
    """What the camera of the first figure of a page hands over."""
    figure = tab.get_by_test_id("stPlotlyChart").first
    figure.hover()
    with tab.expect_download() as saving:
        figure.locator(".modebar-btn").first.click()
    assert re.fullmatch(rf"trinity-[\w-]+\.{kind}", saving.value.suggested_filename)
    return Path(saving.value.path()).read_bytes()
