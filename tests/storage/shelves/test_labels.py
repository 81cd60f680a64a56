"""What people say is only ever added, counts by its latest row, travels with the episode and can be compared."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import func, select

from core.analysis.metrics import cohen_kappa, krippendorff_alpha
from core.errors import ConfigError, ImportFormatError, StoreError
from storage.files.interchange import import_file
from storage.filters.episode_filter import EpisodeFilter
from storage.recorder import record
from storage.rows.engine import reading
from storage.rows.schema import label
from storage.shelves.labels import NOT_GIVEN, Place
from storage.store import Store, open_store
from tests.builders.interchange import export_runs
from tests.builders.play import births, events, tasks
from tests.builders.stores import copy_store, new_store

CLOCK = iter(range(1_790_000_000, 1_800_000_000))


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a store with a run of eight episodes."""
    path = tmp_path_factory.mktemp("labels") / "one.db"
    opened = new_store(path, now=lambda: float(next(CLOCK)))
    opened.runs.create("r1", "run", {})
    list(record(opened, events(births("r1", tasks(8)))))
    opened.runs.finish("r1")
    opened.close()
    return path


@pytest.fixture
def store(played: Path, tmp_path: Path) -> Iterator[Store]:
    copy_store(played, tmp_path / "one.db")
    opened = open_store(tmp_path / "one.db", now=lambda: float(next(CLOCK)))
    yield opened
    opened.close()


def rows(store: Store) -> int:
    with reading(store.engine) as connection:
        return int(connection.execute(select(func.count()).select_from(label)).scalar_one())


def having(store: Store, *condition: str | None) -> set[str]:
    """The episodes with a current label of this name, value and author; None: of any."""
    named = zip(("name", "value", "author"), condition, strict=False)
    wanted = " and ".join(f'label.{field} == "{word}"' for field, word in named if word is not None)
    return {one.id for one in store.episodes.page(EpisodeFilter(q=f"any({wanted})")).items}


def test_the_latest_counts_and_nothing_is_lost(store: Store) -> None:
    one, two = (summary.id for summary in store.episodes.of_run("r1")[:2])
    reply = store.episodes.text(one, 0).reply
    said = store.labels.add
    said(Place(one), "quality", "good", author="ann")
    said(Place(one), "quality", "bad", author="ann", note="  on second thought ")
    said(Place(one), "quality", "good", author="ben")
    said(Place(one, 0), "verdict", "wrong", author="ann")
    said(Place(one, 0, (1, len(reply))), "cause", "prompt bug", author="ann")
    said(Place(two), "quality", "bad", author="ann")
    store.labels.withdraw(Place(two), "quality", author="ann", note="wrong episode")

    told = [(one.place.index, one.name, one.value, one.author) for one in store.labels.of(one)]
    assert told == [
        (None, "quality", "bad", "ann"),
        (None, "quality", "good", "ben"),
        (0, "verdict", "wrong", "ann"),
        (0, "cause", "prompt bug", "ann"),
    ]
    assert store.labels.of(one)[0].note == "on second thought"
    assert store.labels.of(one)[-1].quote == reply[1:][:200]
    assert store.labels.of(two) == ()
    assert [one.value for one in store.labels.history(two)] == ["bad", ""]
    assert rows(store) == 7

    assert having(store, "quality") == having(store, None, None, "ann") == {one}
    assert having(store, "quality", "good") == {one}, "as ben still says"
    assert having(store, "quality", "good", "ann") == set()
    uses = {use.name: use for use in store.labels.in_use()}
    assert [(value.value, value.n) for value in uses["quality"].values] == [("bad", 1), ("good", 1)]
    assert [(author.value, author.n) for author in store.labels.authors()] == [("ann", 1), ("ben", 1)]
    store.episodes.delete([one])
    assert rows(store) == 2


def test_a_label_that_cannot_be_is_refused_in_one_sentence(store: Store) -> None:
    one = store.episodes.of_run("r1")[0].id
    for place, name, value, author, error, words in (
        (Place("e-gone"), "quality", "good", "ann", StoreError, "no episode e-gone"),
        (Place(one, 77), "quality", "good", "ann", StoreError, "no turn 78"),
        (Place(one, 0, (3, 3)), "quality", "good", "ann", StoreError, "outside"),
        (Place(one, 0, (0, 10**6)), "quality", "good", "ann", StoreError, "outside"),
        (Place(one, None, (0, 1)), "quality", "good", "ann", StoreError, "name the turn"),
        (Place(one), " ", "good", "ann", ConfigError, "needs a name"),
        (Place(one), "quality", "", "ann", ConfigError, "needs a value"),
        (Place(one), "a=b", "good", "ann", ConfigError, "equals sign"),
        (Place(one), "quality", "go\u202eod", "ann", ConfigError, "one line"),
        (Place(one), "quality", "good", " ", ConfigError, "author"),
    ):
        with pytest.raises(error, match=words):
            store.labels.add(place, name, value, author=author)
    with pytest.raises(StoreError, match="could be withdrawn"):
        store.labels.withdraw(Place(one), "quality", author="ann")
    assert rows(store) == 0


def test_labels_travel_with_their_episodes(store: Store, tmp_path: Path) -> None:
    one = store.episodes.of_run("r1")[3].id
    store.labels.add(Place(one), "quality", "good", author="ann", note="naïve ☃")
    store.labels.add(Place(one, 0, (0, 2)), "cause", "prompt bug", author="ben")
    store.labels.withdraw(Place(one), "quality", author="ann")
    counts = export_runs(store, ["r1"], tmp_path / "runs.jsonl")
    assert counts["label"] == 3
    other = new_store(tmp_path / "other.db")
    assert import_file(other, tmp_path / "runs.jsonl").added == counts
    assert other.labels.history(one) == store.labels.history(one)
    store.labels.add(Place(one), "quality", "bad", author="ann")
    export_runs(store, ["r1"], tmp_path / "more.jsonl")
    assert import_file(other, tmp_path / "more.jsonl").added == {"label": 1}, "what was said since"
    assert other.labels.of(one) == store.labels.of(one)
    export_runs(other, ["r1"], tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == (tmp_path / "more.jsonl").read_bytes()
    lines = (tmp_path / "more.jsonl").read_bytes().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if json.loads(line)["kind"] == "label")
    for old, new, words in (
        (b'"note"', b'"nota"', "note"),
        (b'"span_start":null', b'"span_start":1', "a span has"),
        (b'"episode":"', b'"episode":"x', "neither in the file nor in the store"),
    ):
        bad = [*lines]
        bad[at] = bad[at].replace(old, new, 1)
        (tmp_path / "bad.jsonl").write_bytes(b"".join(bad))
        with pytest.raises(ImportFormatError, match=words):
            import_file(other, tmp_path / "bad.jsonl")
    other.close()


def test_a_queue_goes_through_what_a_reviewer_has_not_labelled(store: Store) -> None:
    where = EpisodeFilter(run="r1", family="math")
    queue = [one.id for one in store.episodes.page(where, order="oldest").items]
    assert len(queue) == 3
    reviews = store.reviews
    assert reviews.next("ann", where, order="oldest") == queue[0]
    store.labels.add(Place(queue[1], 0), "verdict", "wrong", author="ann")
    store.labels.add(Place(queue[0]), "quality", "good", author="ben")
    assert reviews.next("ann", where, order="oldest", after=queue[0]) == queue[2]
    assert reviews.next("ann", where, order="oldest", after=queue[0], unlabelled=False) == queue[1]
    assert reviews.next("ann", where, order="oldest", after=queue[2], backwards=True) == queue[0]
    progress = reviews.progress("ann", where, order="oldest", episode_id=queue[2])
    assert (progress.labelled, progress.total.n, progress.at, progress.share) == (1, 3, 3, 1 / 3)
    assert reviews.progress("ann", where, episode_id="e-gone").at is None
    for one in queue:
        store.labels.add(Place(one), "quality", "bad", author="ann")
    assert reviews.next("ann", where) is None


def test_reviewers_are_compared(store: Store) -> None:
    ids = [one.id for one in store.episodes.of_run("r1")]
    for one, ann, ben in zip(ids, "gggbbbgb", "ggbbbgg ", strict=True):
        for author, value in (("ann", ann), ("ben", ben)):
            if value != " ":
                word = {"g": "good", "b": "bad"}[value]
                store.labels.add(Place(one), "quality", word, author=author)
    for one in ids[:3]:
        store.labels.add(Place(one), "luck", "lucky", author="ann")
    store.labels.add(Place(ids[0], 0), "luck", "lucky", author="ben")
    found = store.reviews.agreement("quality")
    (pair,) = found.pairs
    assert (pair.a, pair.b, pair.values, pair.counts) == ("ann", "ben", ("bad", "good"), ((2, 1), (1, 3)))
    assert pair.kappa.kappa == pytest.approx((5 / 7 - 25 / 49) / (1 - 25 / 49))
    assert (pair.kappa.n, found.items, found.ticked) == (7, 7, False)
    assert {one.place.episode_id for one in pair.differing} == {ids[2], ids[5]}
    ticked = store.reviews.agreement("luck")
    assert ticked.ticked
    assert ticked.pairs[0].values == ("lucky", NOT_GIVEN)
    assert ticked.pairs[0].counts == ((1, 2), (0, 4))
    assert store.reviews.agreement("quality", EpisodeFilter(family="none such")).pairs == ()


def test_agreement_is_what_the_books_say() -> None:
    kappa = cohen_kappa([[20, 5], [10, 15]])  # the usual textbook table
    assert kappa.kappa == pytest.approx(0.4)
    assert kappa.low is not None
    assert kappa.high is not None
    assert (kappa.low, kappa.high) == pytest.approx((0.1511, 0.6489), abs=1e-4)
    assert cohen_kappa([[9, 0], [0, 0]]).kappa is None
    assert cohen_kappa([]).n == 0
    coders = ("123321412***", "1233224125*3", "*3332342251*", "12332441251*")
    items = [[value for value in item if value != "*"] for item in zip(*coders, strict=True)]
    assert krippendorff_alpha(items) == pytest.approx(0.743, abs=5e-4)  # Krippendorff 2011, nominal data
    assert krippendorff_alpha([["a", "a"], ["a"]]) is None
