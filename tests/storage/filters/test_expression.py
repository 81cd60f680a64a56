"""The filter language: SQL says what a plain reading of the tree says, and every mistake is pointed at."""

from __future__ import annotations

import operator
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select
from sqlalchemy.dialects import postgresql

from core.errors import ConfigError
from storage.filters.episode_filter import EpisodeFilter, as_expression, condition
from storage.filters.expression import (
    AllOf,
    Among,
    AnyOf,
    Compare,
    Count,
    Either,
    Every,
    ExpressionError,
    Holds,
    Name,
    Node,
    Not,
    join_nodes,
    write_expression,
)
from storage.filters.parser import parse_expression
from storage.filters.vocabulary import FIELDS, Many
from storage.rows import schema
from storage.rows.engine import reading, writing
from tests.builders.stores import new_store
from tests.storage.random_rows import NUMBERS, TIMES, WORDS, Row, Written, insert, seen_episode

SPEC = 'correct == False and turns > 4 and any(turn.role == "V" and turn.verdict == "ACCEPT")'
POSTGRES = postgresql.dialect()  # type: ignore[no-untyped-call]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    store = new_store(tmp_path_factory.mktemp("language") / "trinity.db")
    rng = random.Random(5)
    episodes = tuple(seen_episode(rng, index) for index in range(80))
    store.runs.create("r1", "run", {})
    store.runs.create("r2", "fork", {})
    with writing(store.engine) as connection:
        for key, question in ((0, "What is 50% of A_b?"), (1, "Say axb")):
            connection.execute(
                schema.task.insert().values(
                    key=key + 1,
                    digest=str(key),
                    id=f"t{key}",
                    question=question,
                    answer=WORDS[key + 1],
                    grader="exact",
                    family="f",
                    split="test",
                )
            )
        for one in episodes:
            one["question"], one["expected"] = (
                ("What is 50% of A_b?", "a") if one["task"] == "t0" else ("Say axb", "A")
            )
            insert(connection, one)
    yield Written(store, episodes)
    store.close()


# The language, read in the plainest way: over one episode and, within brackets, one turn or label

SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def value_of(operand: Any, one: Row, inner: Row | None) -> Any:
    if isinstance(operand, Count):
        return sum(holds(operand.of, one, other) for other in one[operand.over])
    if not isinstance(operand, Name):
        return operand
    scope, _, name = operand.name.rpartition(".")
    if scope:
        assert inner is not None
        return inner[name]
    return one[name]


def lowered(text: str) -> str:
    return "".join(letter.lower() if letter.isascii() else letter for letter in text)


def holds(node: Node, one: Row, inner: Row | None = None) -> bool:
    match node:
        case Every(parts):
            return all(holds(part, one, inner) for part in parts)
        case Either(parts):
            return any(holds(part, one, inner) for part in parts)
        case Not(part):
            return not holds(part, one, inner)
        case AnyOf(of, over):
            return any(holds(of, one, other) for other in one[over])
        case AllOf(of, over):
            return all(holds(of, one, other) for other in one[over])
        case Among(left, values):
            return value_of(left, one, inner) in values
        case Holds(left, part):
            held = value_of(left, one, inner)
            if isinstance(held, str):
                return lowered(part) in lowered(held)
            return held is not None and part in held
        case Compare(left, sign, right):
            a, b = value_of(left, one, inner), value_of(right, one, inner)
            if sign in ("==", "!="):
                return bool(a == b) is (sign == "==")
            return a is not None and b is not None and SIGNS[sign](a, b)
        case _:
            raise AssertionError(node)


# Trees at random, of every kind of test


def compared(names: list[Name], kinds: tuple[str, ...]) -> st.SearchStrategy[Node]:
    fitting = [name for name in names if name.field.kind in kinds]
    values: dict[str, list[Any]] = {"text": WORDS, "number": NUMBERS, "truth": [True, False], "time": TIMES}

    def of(name: Name) -> st.SearchStrategy[Node]:
        kind = name.field.kind
        some = st.sampled_from([*(values.get(kind) or name.field.choices)])
        peers = st.sampled_from([other for other in names if other.field.kind == kind])
        equal = st.builds(Compare, st.just(name), st.sampled_from(["==", "!="]), some | peers | st.none())
        among = st.builds(Among, st.just(name), st.lists(some | st.none(), min_size=1, max_size=3).map(tuple))
        if kind == "text":
            return equal | among | st.builds(Holds, st.just(name), some)
        if kind in ("number", "time"):
            return equal | among | st.builds(Compare, st.just(name), st.sampled_from([*SIGNS]), some | peers)
        return equal | among

    return st.sampled_from(fitting).flatmap(of)


def leaves_of(names: list[Name]) -> st.SearchStrategy[Node]:
    found = compared(names, ("text", "number", "truth", "choice", "time"))
    if not (sets := [name for name in names if name.field.kind == "set"]):
        return found
    return found | st.sampled_from(sets).flatmap(
        lambda name: st.builds(Holds, st.just(name), st.sampled_from(name.field.choices))
    )


def grown(leaves: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    return st.recursive(
        leaves,
        lambda part: (
            st.builds(Not, part)
            | st.builds(join_nodes, st.sampled_from([Every, Either]), st.lists(part, min_size=2, max_size=3))
        ),
        max_leaves=4,
    )


OF_EPISODE = [Name(name) for name in FIELDS if FIELDS[name].of is None]


def bracketed(over: Many) -> st.SearchStrategy[Node]:
    """Every test in a bracket asks something of a turn, or a label; beside it, it may ask of the episode."""
    leaves = leaves_of([Name(name) for name in FIELDS if FIELDS[name].of == over])
    beside = st.builds(
        lambda first, rest: join_nodes(Every, [first, rest]),
        grown(leaves),
        grown(leaves | leaves_of(OF_EPISODE)),
    )
    asked = beside | grown(leaves)
    counted = st.builds(
        Compare,
        st.builds(Count, asked, st.just(over)),
        st.sampled_from(["==", "!=", *SIGNS]),
        st.sampled_from([0, 1, 2, Name("turns"), Name("labels")]),
    )
    return st.builds(AnyOf, asked, st.just(over)) | st.builds(AllOf, asked, st.just(over)) | counted


TREES = grown(leaves_of(OF_EPISODE) | bracketed("turn") | bracketed("label"))


@settings(deadline=None)
@given(tree=TREES)
def test_sql_finds_what_a_plain_reading_finds(written: Written, tree: Node) -> None:
    """And `not` finds exactly the others; PostgreSQL is offered the same."""
    for asked in (tree, Not(tree)):
        with reading(written.store.engine) as connection:
            query = select(schema.episode.c.id).where(condition(asked, "sqlite"))
            found = set(connection.execute(query).scalars())
        assert found == {one["id"] for one in written.episodes if holds(asked, one)}
        select(schema.episode.c.id).where(condition(asked, "postgresql")).compile(dialect=POSTGRES)


@settings(deadline=None)
@given(tree=TREES)
def test_what_is_written_reads_as_the_same_tree(tree: Node) -> None:
    assert parse_expression(write_expression(tree)) == tree


# What the language accepts, and what it says of mistakes


@pytest.mark.parametrize(
    ("said", "canonical"),
    [
        (SPEC, SPEC.replace('"V"', '"verifier"')),
        ("ended = 'accepted'".replace("=", "=="), 'end_reason == "accepted"'),
        ('outcome == "wrong" AND NOT 2 < turns <= 5', "correct == False and not (turns > 2 and turns <= 5)"),
        ("correct or (turns == 1 or cost == null)", "correct == True or turns == 1 or cost == None"),
        ('family not in ["a", \'b"\']', r'family not in ("a", "b\"")'),
        ('"LOW_margin" in flags', '"low_margin" in flags'),
        ("count() > 3 and count(turn.role=='w')==1", 'turns > 3 and count(turn.role == "worker") == 1'),
        (
            'labels > 0 and any(label.at < "2026-11-05")',
            'labels > 0 and any(label.said < "2026-11-05T00:00:00+00:00")',
        ),
        ("count(label.turn==none)>labels", "count(label.turn == None) > labels"),
        ("all(turn.sampled)", "all(turn.sampled == True)"),
        ('started >= "2026-11-05"', 'started >= "2026-11-05T00:00:00+00:00"'),
        ('search("prime") and -0.5 < margin', 'search("prime") and margin > -0.5'),
        (
            "seed == 123456789012345678 and cost < 1e400".replace("1e400", "1e3"),
            "seed == 123456789012345678 and cost < 1000.0",
        ),
    ],
)
def test_one_meaning_one_spelling(said: str, canonical: str) -> None:
    assert write_expression(parse_expression(said)) == canonical
    assert parse_expression(canonical) == parse_expression(said)


@pytest.mark.parametrize(
    ("said", "column", "hint"),
    [
        ("", 1, "empty"),
        ("trns > 3", 1, "did you mean turns?"),
        ("any(turn.rol == 'V')", 5, "did you mean turn.role?"),
        ('any(role == "V")', 5, "did you mean turn.role?"),
        ('turn.role == "V"', 1, "any(turn.role ...)"),
        ('label.name == "a"', 1, "any(label.name ...)"),
        ('any(author == "me")', 5, "did you mean label.author?"),
        ('any(label.turn == 2 and turn.role == "V")', 25, "asks about a label"),
        ('any(turn.role == "verifer")', 18, 'did you mean "verifier"?'),
        ("correct == Flase", 12, "did you mean False?"),
        ('"fals_accept" in flags', 1, 'did you mean "false_accept"?'),
        ("family == math", 11, 'in quotes, "math"'),
        ("turns = 3", 7, "write == to compare"),
        ("turns > 3 && correct", 11, "write and"),
        ("family == “math”", 11, "straight quotes"),
        ('turns > "x"', 9, "turns is a number"),
        ("answer == 7", 11, '"7"'),
        ("cost < None", 8, "neither large nor small"),
        ('policy < "x"', 8, "compare it with == or !="),
        ("turns == correct", 10, "different kinds"),
        ("turns == 1e999", 10, "too large"),
        ('started > "yesterday"', 11, "2026-11-05"),
        ("(turns > 3", 11, "bracket of column 1"),
        ("turns > 3)", 10, "never opened"),
        ("turns > 3 turns < 5", 11, "put and or or"),
        ("turns > 3 and", 14, "missing before the end"),
        ('answer == "x', 11, "no closing quote"),
        ('answer == "a\x00b"', 13, "invisible"),
        ("any(turns > 3)", 1, "must ask something of a turn"),
        ("any(any(turn.sampled))", 5, "inside another"),
        ("turns", 6, "turns == 4"),
        ("not " * 40 + "correct", 97, "more than 24 deep"),
        ("correct and " * 250 + "correct", 1209, "more than 100"),
        ("x" * 30_000, 20_001, "longer than 20,000"),
    ],
)
def test_a_mistake_is_one_sentence_that_points_at_its_column(said: str, column: int, hint: str) -> None:
    with pytest.raises(ExpressionError) as told:
        parse_expression(said)
    assert told.value.column == column
    assert hint in str(told.value)
    assert f"Column {column} of the filter" in str(told.value)
    assert "\n" not in str(told.value)
    line, caret = told.value.pointer.split("\n")
    assert len(line) <= 102
    if len(said) < 90 and said.isascii():
        assert caret.index("^") == column - 1


@settings(deadline=None)
@given(said=st.text(max_size=60) | st.text(alphabet="()[]<>=!\"'., turnscorectayl0159-_", max_size=60))
def test_any_text_is_a_tree_or_a_mistake(said: str) -> None:
    try:
        tree = parse_expression(said)
    except ExpressionError as error:
        column = error.column
    else:
        assert parse_expression(write_expression(tree)) == tree
        column = 1
    assert 1 <= column <= len(said) + 1


def test_forks_are_left_out_unless_they_are_asked_for(written: Written) -> None:
    """In one place for lists, facets and files; whoever names a run, an id or forks means them as they are."""

    def found(**where: str) -> set[str]:
        page = written.store.episodes.page(EpisodeFilter.from_query(where), limit=100)
        return {one.id for one in page.items}

    forks = {one["id"] for one in written.episodes if one["fork"]}
    plays = {one["id"] for one in written.episodes} - forks
    assert min(len(forks), len(plays)) > 20
    assert found() == found(q="fork == False") == plays
    assert found(forks="with") == found(q="fork in (True, False)") == plays | forks
    assert found(forks="only") == found(q="fork") == found(run="r2") == found(q='run == "r2"') == forks
    measured = {one["id"] for one in written.episodes if one["measured"]}
    assert found(forks="without") == found(q="measured") == measured < plays
    one = min(forks)
    assert found(q=f'id == "{one}" or any(turn.number > 99 and parent == "x")') == {one}
    assert found(correct="right") == plays & found(correct="right", forks="with")
    for where, count, offered in (
        ({}, len(plays), len(forks)),
        ({"forks": "with"}, 80, len(forks)),
        ({"run": "r2"}, len(forks), 0),
    ):
        facets = written.store.episodes.facets(EpisodeFilter.from_query(where))
        assert facets.forks == offered
        assert sum(value.n for value in facets.status) == count


def test_what_was_clicked_is_an_expression_too(written: Written) -> None:
    """And it finds the same; with an unreadable expression nothing is listed in silence."""
    where = EpisodeFilter(
        run="r1",
        generation=1,
        correct="none",
        flag="low_margin",
        min_turns=2,
        max_turns=2,
        model="a",
        role="verifier",
        status="finished",
        text='"prime number" is',
        q="cost < 1 or cost == None",
    )
    assert as_expression(where) == (
        'run == "r1" and generation == 1 and status == "finished" and mixed == False and correct == None'
        ' and "low_margin" in flags and turns == 2 and any(turn.model == "a" and turn.role == "verifier")'
        ' and search("\\"prime number\\" is") and (cost < 1 or cost == None)'
    )
    assert as_expression(EpisodeFilter()) == ""
    assert as_expression(EpisodeFilter(forks="with")) == "fork in (True, False)"
    assert as_expression(EpisodeFilter(forks="with", run="r1")) == 'run == "r1"'
    for one in (
        EpisodeFilter(run="r1"),
        EpisodeFilter(correct="wrong", max_turns=3),
        EpisodeFilter(role="worker"),
    ):
        said = EpisodeFilter.from_query({"q": as_expression(one)})
        assert written.store.episodes.page(said).items == written.store.episodes.page(one).items
        assert written.store.episodes.facets(said) is not None
    broken = EpisodeFilter.from_query({"q": "trns > 3"})
    with pytest.raises(ConfigError, match="did you mean turns"):
        written.store.episodes.page(broken)
