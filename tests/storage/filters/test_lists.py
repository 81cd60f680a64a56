"""Lists show exactly what a filter asks for, page by page, cheaply and without turn text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event, select

from core.episode import Episode, Flag, Role, Status, Turn
from storage.analysis.counterfactual import accuracy_by_budget
from storage.analysis.standings import (
    PolicySide,
    courses,
    figures,
    matched_tasks,
    policies_with_episodes,
    read_shared_tasks,
)
from storage.filters.episode_filter import CHOICES, EpisodeFilter, condition
from storage.filters.parser import parse_expression
from storage.recorder import record
from storage.rows.engine import reading, writing
from storage.rows.full_episodes import TimedEpisode, insert_episodes
from storage.rows.progress import EpisodeProgress, episode_flags
from storage.rows.schema import episode
from storage.rows.search import terms
from storage.rows.summaries import EPISODE_FLAGS, EpisodeSummary, FacetValue, Order
from storage.store import Store
from tests.builders.checkpoints import checkpoint
from tests.builders.play import FAMILIES, MODELS, HashPolicy, births, ends, events, tasks
from tests.builders.stores import new_store

CHECKPOINT = checkpoint(MODELS, generation=7)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, list[Episode]]]:
    """A store with two runs and three policies, one episode still running after its first turn, and its whole episodes.
    Three at a time began at once, so that orders have ties."""
    store = new_store(tmp_path_factory.mktemp("lists") / "trinity.db")
    store.runs.create("r1", "run", {})
    store.runs.create("r2", "run", {})
    one = CHECKPOINT
    store.checkpoints.add(one.id, one.to_config(), one.to_bytes(), run_id="r1", generation=7)
    whole: list[Episode] = []
    for run, policy, first in (("r1", "hash", 0), ("r1", one.id, 40), ("r2", "other", 0)):
        born = births(run, tasks(40), policy, first=first, budget=4 if run == "r2" else 5)
        whole += ends(events(born, HashPolicy(policy))).values()
    with writing(store.engine) as connection:
        insert_episodes(connection, [timed(1e9 + i // 3, one) for i, one in enumerate(whole)])
    happened = record(store, events(births("r2", tasks(1, start=90), "other", first=90)))
    first_turn = next(one for one in happened if isinstance(one, Turn))
    happened.close()  # type: ignore[attr-defined]  # a generator
    yield store, [*whole, store.episodes.get(first_turn.episode_id)]
    store.close()


def timed(started: float, one: Episode) -> TimedEpisode:
    return TimedEpisode(one, started, started + 1, [started] * len(one.turns))


def flags_of(one: Episode) -> frozenset[str]:
    return episode_flags(one, EpisodeProgress.over(one.models, one.turns))


def matches(where: EpisodeFilter, one: Episode) -> bool:
    """What a filter means, said in Python."""
    outcome = {True: "right", False: "wrong", None: "none"}[one.correct]
    texts = [turn.reply.text for turn in one.turns]
    begun = [(turn.decision.model, turn.decision.role.value) for turn in one.turns]
    checks: dict[str, Callable[[Any], bool]] = {
        "run": lambda v: one.run_id == v,
        "policy": lambda v: one.policy == v,
        "checkpoint": lambda v: one.policy == v == CHECKPOINT.id,
        "family": lambda v: one.task.family == v,
        "task": lambda v: one.task.id == v,
        "correct": lambda v: outcome == v,
        "end_reason": lambda v: one.end_reason == v,
        "status": lambda v: one.status == v,
        "flag": lambda v: v in flags_of(one),
        "min_turns": lambda v: len(one.turns) >= v,
        "max_turns": lambda v: len(one.turns) <= v,
        "model": lambda v: any(model == v and where.role in (None, role) for model, role in begun),
        "role": lambda v: any(role == v and where.model in (None, model) for model, role in begun),
        "generation": lambda v: one.policy == CHECKPOINT.id and v == 7,
        "text": lambda v: any(v.lower() in body.lower() for body in (one.task.question, *texts)),
    }
    asked = {field.name: getattr(where, field.name) for field in fields(where)}
    return all(checks[name](value) for name, value in asked.items() if value is not None)


def open_or(values: list[str]) -> st.SearchStrategy[str | None]:
    return st.none() | st.sampled_from(values)


FILTERS = st.builds(
    EpisodeFilter,
    run=open_or(["r1", "r2", "r9"]),
    policy=open_or(["hash", "other", CHECKPOINT.id]),
    checkpoint=st.none() | st.none() | st.just(CHECKPOINT.id),
    generation=st.none() | st.none() | st.sampled_from([0, 7]),
    family=open_or([*FAMILIES, "none"]),
    task=st.none() | st.none() | st.sampled_from(["t0001", "t0039", "'; --"]),
    correct=open_or(["right", "wrong", "none"]),
    end_reason=open_or(["accepted", "budget", "cancelled"]),
    status=open_or(["finished", "running"]),
    flag=open_or(list(EPISODE_FLAGS)),
    min_turns=st.none() | st.integers(0, 6),
    max_turns=st.none() | st.integers(0, 6),
    model=open_or([*MODELS, "nobody"]),
    role=open_or([role.value for role in Role]),
    text=open_or(["largest", "answer 3", "plus 17", "checked", "zebra"]),
)
SLOW = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@SLOW
@given(where=FILTERS)
def test_a_filter_means_what_it_says(filled: tuple[Store, list[Episode]], where: EpisodeFilter) -> None:
    store, whole = filled
    shown = store.episodes.page(where, limit=1000)
    text = f'"{where.text}"' if where.text else None  # a phrase, whose last word may go on
    phrased = [one.id for one in store.episodes.page(replace(where, text=text), limit=1000).items]
    assert sorted(phrased) == sorted(one.id for one in whole if matches(where, one))
    assert set(phrased) <= {one.id for one in shown.items}
    assert str(shown.total) == str(len(shown.items))


@given(where=FILTERS)
def test_a_filter_survives_its_url(where: EpisodeFilter) -> None:
    assert EpisodeFilter.from_query(where.to_query()) == where


@settings(deadline=None)
@given(query=st.dictionaries(st.sampled_from([f.name for f in fields(EpisodeFilter)]), st.text(max_size=300)))
def test_any_url_gives_a_usable_filter(filled: tuple[Store, list[Episode]], query: dict[str, str]) -> None:
    where = EpisodeFilter.from_query({**query, "unknown": "x"}).without("q")  # that is test_expression's
    filled[0].episodes.page(where)
    filled[0].episodes.facets(where)


ORDERS: dict[Order, Callable[[EpisodeSummary], tuple[float, str]]] = {
    "newest": lambda one: (one.started, one.id),
    "oldest": lambda one: (one.started, one.id),
    "turns": lambda one: (one.turns, one.id),
    "tokens": lambda one: (one.tokens_in + one.tokens_out, one.id),
    "cost": lambda one: (-1.0 if one.cost_usd is None else one.cost_usd, one.id),
    "latency": lambda one: (one.latency_s, one.id),
    "entropy": lambda one: (-1.0 if one.mean_entropy is None else one.mean_entropy, one.id),
    "margin": lambda one: (1e300 if one.min_margin is None else one.min_margin, one.id),
}


def walk(store: Store, where: EpisodeFilter, order: Order, limit: int) -> list[EpisodeSummary]:
    """Every page from the first to the last, and back again the same."""
    page = store.episodes.page(where, order=order, limit=limit)
    assert page.previous is None
    pages = [page]
    while pages[-1].next is not None:
        pages.append(store.episodes.page(where, order=order, after=pages[-1].next, limit=limit))
    back = pages[-1]
    for expected in reversed(pages[:-1]):
        assert back.previous is not None
        back = store.episodes.page(where, order=order, before=back.previous, limit=limit)
        assert back.items == expected.items
    return [item for page in pages for item in page.items]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("limit", [7, 1000])
def test_pages_join_into_the_sorted_whole(
    filled: tuple[Store, list[Episode]], order: Order, limit: int
) -> None:
    store, whole = filled
    found = walk(store, EpisodeFilter(), order, limit)
    ascending = order in ("oldest", "margin")
    assert found == sorted(found, key=ORDERS[order], reverse=not ascending)
    assert len(found) == len(whole)
    last = store.episodes.page(order=order, last=True, limit=limit)
    assert last.items == tuple(found[-limit:])
    assert last.next is None


@pytest.mark.parametrize("order", ORDERS)
def test_neighbours_are_those_of_the_list(filled: tuple[Store, list[Episode]], order: Order) -> None:
    store, whole = filled
    where = EpisodeFilter(run="r1")
    ids = [one.id for one in store.episodes.page(where, order=order, limit=1000).items]
    for before, here, after in zip([None, *ids[:-1]], ids, [*ids[1:], None], strict=True):
        assert store.episodes.neighbours(here, where, order=order) == (before, after)
    elsewhere = next(one.id for one in whole if one.run_id == "r2")
    assert store.episodes.neighbours(elsewhere, where, order=order) is None


@pytest.mark.parametrize("cursor", ["", "x", "AAAA", "W10", "bnVsbA", "W251bGwsIDFd", "é" * 50, "W" * 5000])
def test_a_damaged_cursor_shows_the_first_page(filled: tuple[Store, list[Episode]], cursor: str) -> None:
    store, _ = filled
    assert store.episodes.page(after=cursor).items == store.episodes.page().items


@settings(SLOW, max_examples=settings().max_examples // 2)  # each asks for twenty lists
@given(where=FILTERS)
def test_facets_count_what_a_click_would_show(
    filled: tuple[Store, list[Episode]], where: EpisodeFilter
) -> None:
    store, _ = filled
    facets = store.episodes.facets(where)
    for name in ("run", "policy", "family", "correct", "end_reason", "status", "flag"):
        for value in getattr(facets, name)[:3]:
            clicked = replace(where, **{name: value.value})
            assert store.episodes.page(clicked, limit=1).total.n == value.n, (name, value)


def test_episode_flags_keep_the_bits_they_are_stored_as() -> None:
    """Append only: the place of a flag is its bit in every store."""
    assert (
        *("verdict_unreadable", "nothing_to_judge", "no_answer", "no_suggestion", "truncated"),
        *("prompt_overflow", "self_verified", "model_error"),
        *("false_accept", "answer_broke", "low_margin", "override", "swapped", "prompt_shortened", "reused"),
        *("refused", "unknown_finish", "unasked_tool_call", "recorded", "by_agreement"),
        *("failed_over", "repaired", "continued"),
    ) == EPISODE_FLAGS
    assert set(Flag) < set(EPISODE_FLAGS)


@pytest.mark.parametrize("name", CHOICES)
def test_what_no_episode_can_be_finds_none(filled: tuple[Store, list[Episode]], name: str) -> None:
    page = filled[0].episodes.page(EpisodeFilter(**{name: "wrnog"}))  # type: ignore[arg-type]
    assert (page.items, page.total.n) == ((), 0)


def test_runs_and_policies_add_up(filled: tuple[Store, list[Episode]]) -> None:
    store, whole = filled
    for run in store.runs.list():
        mine = [one for one in whole if one.run_id == run.id]
        done = [one for one in mine if one.status is Status.FINISHED]
        assert (run.episodes, run.finished_episodes) == (len(mine), len(done))
        assert run.correct == sum(bool(one.correct) for one in done)
        for policy in store.runs.policies(run.id):
            its = [one for one in done if one.policy == policy.policy]
            assert (policy.n, policy.correct) == (len(its), sum(bool(one.correct) for one in its))
            assert policy.mean_turns == pytest.approx(sum(len(one.turns) for one in its) / len(its))
            assert policy.false_accepts == sum("false_accept" in flags_of(one) for one in its)
            assert policy.generation == (7 if policy.policy == CHECKPOINT.id else None)
            used = [turn.reply.usage for one in its for turn in one.turns]
            assert policy.tokens == sum(each.tokens_in + each.tokens_out for each in used)
    assert sum(policy.running for policy in store.runs.policies("r2")) == 1
    assert store.episodes.summary(whole[-1].id).tokens_out > 0, (
        "of a running episode they count for no policy yet"
    )


def test_others_who_played_a_task_are_found(filled: tuple[Store, list[Episode]]) -> None:
    store, whole = filled
    one = next(one for one in whole if one.policy == "hash")
    others = {two.id for two in whole if two.task == one.task and two.id != one.id}
    assert {two.id for two in store.episodes.same_task(one.id)} == others


@pytest.mark.parametrize(
    "text",
    [
        '"',
        '""',
        "*",
        "a*b",
        "NEAR(",
        "a AND",
        "OR",
        "-x",
        "^x",
        "col:x",
        "'; DROP",
        "(",
        "%",
        "_",
        "\x00",
        "é",
    ],
)
def test_search_takes_any_text(filled: tuple[Store, list[Episode]], text: str) -> None:
    store, whole = filled
    found = store.episodes.page(EpisodeFilter(text=text)).total
    if not terms(text):
        assert found.n == len(whole)


def test_search_narrows_while_one_types(filled: tuple[Store, list[Episode]]) -> None:
    store, _ = filled
    counts = [
        store.episodes.page(EpisodeFilter(text=text)).total.n for text in ("lar", "large", "largest of")
    ]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] > 0
    assert store.episodes.page(EpisodeFilter(text='"of largest"')).total.n == 0


@contextmanager
def statements(store: Store) -> Iterator[list[str]]:
    """The SQL that runs in the block, transaction marks aside."""
    seen: list[str] = []

    def note(_c: object, _cursor: object, statement: str, *_: object) -> None:
        if not statement.startswith(("BEGIN", "PRAGMA")):
            seen.append(statement)

    event.listen(store.engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        event.remove(store.engine, "before_cursor_execute", note)


def test_lists_take_few_queries_and_no_text(filled: tuple[Store, list[Episode]]) -> None:
    store, whole = filled
    where = EpisodeFilter(run="r1", correct="right", model="ada")
    said = EpisodeFilter(q='not any(turn.model == "ada" and turn.error != None)')
    for read, most in (
        (lambda: store.episodes.page(where), 2),
        (lambda: store.episodes.page(last=True, order="margin"), 2),
        (lambda: store.episodes.facets(), 2),
        (lambda: store.episodes.facets(where), 4),
        (lambda: store.episodes.page(said), 2),
        (lambda: store.episodes.page(EpisodeFilter(q="turns > 99")), 1),
        (lambda: store.episodes.facets(said), 2),
        (lambda: store.episodes.groups("policy", said), 2),
        (lambda: store.episodes.summaries([one.id for one in whole[:9]]), 1),
        (lambda: store.views.list(), 1),
        (lambda: store.runs.list(), 3),
        (lambda: store.runs.policies("r1"), 1),
        (lambda: store.checkpoints.list(), 1),
        (lambda: store.episodes.outline(whole[0].id), 1),
        (lambda: store.episodes.same_task(whole[0].id), 1),
        (
            lambda: matched_tasks(
                store, PolicySide("hash"), [PolicySide("other"), PolicySide(CHECKPOINT.id)]
            ),
            1,
        ),
        (
            lambda: read_shared_tasks(
                store, PolicySide("hash"), PolicySide("other"), [PolicySide("hash"), PolicySide("other")]
            ),
            3,
        ),
        (lambda: figures(store, [PolicySide("hash"), PolicySide("other"), PolicySide(CHECKPOINT.id)]), 2),
        (lambda: courses(store, [PolicySide("hash"), PolicySide("other")]), 2),
        (lambda: accuracy_by_budget(store), 2),
        (lambda: policies_with_episodes(store), 1),
    ):
        with statements(store) as seen:
            read()
        assert len(seen) <= most
        assert not any(" text" in one or "body" in one or "weights" in one for one in seen), seen
    with statements(store) as seen:
        store.episodes.get(whole[0].id)
    assert len(seen) <= 6


def test_turns_are_looked_up_by_their_episode(filled: tuple[Store, list[Episode]]) -> None:
    """Never by their model: that would go over a model's every turn for each episode of the list."""
    store, _ = filled
    for said in ('any(turn.model == "ada" and turn.error != None)', 'count(turn.role == "V") > 1'):
        query = select(episode.c.id).where(condition(parse_expression(said), "sqlite"))
        compiled = query.compile(store.engine, compile_kwargs={"literal_binds": True})
        with reading(store.engine) as connection:
            plan = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {compiled}")]
        assert [step for step in plan if " turn " in step and "(episode_id=?" in step], plan
        assert not [step for step in plan if " turn " in step and "(episode_id=?" not in step], plan


def test_counts_are_capped_and_facets_are_not(fresh: Store) -> None:
    """Over more episodes than a count goes to; how long it takes is a benchmark's question."""
    fresh.runs.create("r1", "run", {})
    many = [replace(one, status=Status.FINISHED) for one in births("r1", tasks(1) * 1_200)]
    with writing(fresh.engine) as connection:
        insert_episodes(connection, [timed(float(i), one) for i, one in enumerate(many)])
    page = fresh.episodes.page()
    assert (str(page.total), len(page.items)) == ("1,000+", 50)
    assert fresh.episodes.facets().run == (FacetValue("r1", 1_200),)
