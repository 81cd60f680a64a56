"""Retention: exactly what was previewed goes, what others lean on stays, and pages say what is gone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import event, func, select

from core.episode import Removable
from storage.filters.episode_filter import EpisodeFilter
from storage.rows import schema
from storage.rows.engine import reading, writing
from storage.shelves.labels import Place
from storage.store import Store
from storage.upkeep.retention import compact, last_removed, moment_of, preview, prune
from tests.builders.sample_store import EVOLVED, PLAYED, sample_store
from tests.ui.pages import opened, shown
from ui.cli import main


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The store of a first evening, to be changed."""
    made = sample_store(tmp_path / "trinity.db", 6)
    monkeypatch.setenv("TRINITY_STORE", made.url)
    return made


def held(store: Store, table: str, run: str = PLAYED) -> int:
    of = schema.metadata.tables[table]
    ids = select(schema.episode.c.id).where(schema.episode.c.run_id == run)
    with reading(store.engine) as connection:
        query = select(func.count()).select_from(of).where(of.c.episode_id.in_(ids))
        return int(connection.execute(query).scalar_one())


def lean_on(store: Store) -> tuple[str, str, str]:
    """One episode labelled, one forked, and the fork."""
    labelled, parent, child = (
        one.id for one in store.episodes.page(EpisodeFilter(run=PLAYED), limit=3).items
    )
    store.labels.add(Place(labelled), "quality", "good", author="Ada")
    with writing(store.engine) as connection:
        change = schema.episode.update().where(schema.episode.c.id == child)
        connection.execute(change.values(parent_episode_id=parent, fork_turn=1))
    return labelled, parent, child


@pytest.mark.integration
@pytest.mark.parametrize("what", ["texts", "prompts"])
def test_what_was_previewed_goes_and_what_others_lean_on_stays(store: Store, what: Removable) -> None:
    labelled, parent, child = lean_on(store)
    where = EpisodeFilter(run=PLAYED)
    spared = [store.episodes.get(one) for one in (labelled, parent, child)]
    before, others = held(store, "text"), held(store, "text", EVOLVED)
    seen = preview(store, what, where)
    assert seen.retained == {
        "labelled": 1,
        "forked, and compared with their forks": 1,
        "forks or their baseline": 1,
    }
    assert held(store, "text") == before
    assert prune(store, what, where) == seen
    assert before - held(store, "text") == seen.rows > 0
    assert held(store, "text", EVOLVED) == others
    assert [store.episodes.get(one) for one in (labelled, parent, child)] == spared
    worked = EpisodeFilter(
        run=PLAYED, q='labels == 0 and parent == None and any(turn.number == 1 and turn.role == "W")'
    )
    gone = next(one.id for one in store.episodes.page(worked).items if one.id != parent)
    text = store.episodes.text(gone, 0)
    assert text.prompt_removed == last_removed(store, what, where) is not None
    assert (text.messages, bool(text.reply)) == ((), what == "prompts")
    assert preview(store, what, where).rows == 0
    everything = prune(store, what, where, everything=True)
    assert everything.episodes == 3
    assert held(store, "text") == (0 if what == "texts" else before - seen.rows - everything.rows)
    card = shown(opened("replay", ep=gone, t="1", show="saw")).replace("\\", "")
    assert f"What was sent was removed on {text.prompt_removed}" in card


def test_a_failure_half_way_removes_nothing(store: Store) -> None:
    before = held(store, "text")

    def fail(_c: object, _cursor: object, statement: str, *_rest: object) -> None:
        if statement.startswith("UPDATE episode"):
            raise RuntimeError("the power went")

    event.listen(store.engine, "before_cursor_execute", fail)
    with pytest.raises(RuntimeError, match="the power went"):
        prune(store, "texts", EpisodeFilter(run=PLAYED))
    event.remove(store.engine, "before_cursor_execute", fail)
    assert held(store, "text") == before
    assert last_removed(store, "texts", EpisodeFilter()) is None


def test_a_run_goes_whole_or_not_at_all(store: Store) -> None:
    """Never one of which an episode was not chosen, nor one whose checkpoints others played with."""
    size = store.health().size_bytes or 0
    part = preview(store, "runs", EpisodeFilter(run=PLAYED, policy="random"))
    assert (part.runs, part.retained) == ((), {"of which not every episode is chosen": 1})
    lean_on(store)
    assert preview(store, "runs", EpisodeFilter(run=PLAYED)).retained == {"with labels": 1}
    assert preview(store, "runs", EpisodeFilter(run=PLAYED), everything=True).runs == (PLAYED,)
    gone = prune(store, "runs", EpisodeFilter(run=PLAYED), everything=True)
    assert gone.episodes > 20
    assert [one.id for one in store.runs.list() if one.id == PLAYED] == []
    assert held(store, "text") == held(store, "turn") == 0
    compact(store)
    assert (store.health().size_bytes or 0) < size


@pytest.mark.parametrize(("age", "hours"), [("24h", 24), ("1d", 24), ("2w", 336), ("99999w", 876_000)])
def test_an_age_is_hours_days_or_weeks(age: str, hours: int) -> None:
    now = 5e9
    assert now - moment_of(age, now).timestamp() == hours * 3600


def test_the_command_previews_asks_and_tells(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trinity("prune", "--what", "states") == 1
    assert "Say which with --older-than" in capsys.readouterr().err
    assert trinity("prune", "--what", "thoughts", "--all") == 1
    assert "choose one of states, prompts, texts, episodes, runs" in capsys.readouterr().err
    assert trinity("prune", "--what", "texts", "--older-than", "soon") == 1
    assert "write 90d or 12w" in capsys.readouterr().err
    assert trinity("prune", "--what", "texts", "--older-than", "2001-01-01", "--dry-run") == 0
    assert "Nothing to remove" in capsys.readouterr().out
    before = held(store, "text")
    assert trinity("prune", "--what", "texts", "--run", PLAYED, "--dry-run", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["removed"] is False
    assert held(store, "text") == before == told["rows"]
    assert trinity("prune", "--what", "texts", "--run", PLAYED, "--yes", "--vacuum") == 0
    assert "The store is now" in capsys.readouterr().err
    assert held(store, "text") == 0


@pytest.mark.integration
def test_settings_shows_what_would_go_and_does_it(store: Store) -> None:
    page = opened("settings", part="room", what="texts", age="0", of=PLAYED)
    before = held(store, "text")
    assert "All texts of turns in " in shown(page)
    assert held(store, "text") == before
    page.checkbox[0].check().run()
    page.button(key="prune_now").click().run()
    assert held(store, "text") == 0
    assert "The file keeps its size" in page.success[0].value


def trinity(*arguments: str) -> int:
    """The command's exit code."""
    try:
        return main(arguments)
    except SystemExit as done:
        return int(done.code or 0)
