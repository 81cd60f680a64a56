"""What servers say of tokens, and what it comes to in money."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.episode import Ask, Message, Role
from core.pool.costs import Counts, UsageReader, bound_usd, counted_usd, usage_in
from core.pool.spec import ModelSpec

NONE = dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"))


def thought(n: Any) -> dict[str, Any]:
    return {"completion_tokens_details": {"reasoning_tokens": n}}


def counted(*told: Any, wrote: bool = True) -> Counts:
    reader = UsageReader()
    for one in told:
        reader.take(one)
    return reader.counts(wrote=wrote)


@pytest.mark.parametrize(
    ("usage", "sent", "written"),
    [
        ({"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}, 11, 7),
        ({"prompt_tokens": 11, "completion_tokens": 7}, 11, 7),
        ({"input_tokens": 11, "output_tokens": 7}, 11, 7),
        ({"prompt_tokens": 40, "completion_tokens": 9, "total_tokens": 149, **thought(100)}, 40, 109),
        ({"prompt_tokens": 40, "completion_tokens": 9, "total_tokens": 49, **thought(100)}, 40, 109),
        ({"prompt_tokens": 40, "completion_tokens": 109, "total_tokens": 149, **thought(100)}, 40, 109),
        ({"prompt_tokens": 40, "completion_tokens": 50, "total_tokens": 10}, 40, 50),  # no sum at all
        ({"prompt_tokens": 40, "total_tokens": 149}, 40, 109),
        ({"prompt_tokens": 40, "completion_tokens": None, "total_tokens": 149}, 40, 109),
        ({"completion_tokens": 9, "total_tokens": 49}, 40, 9),
        ({"prompt_tokens": 40}, 40, None),
        ({"prompt_tokens": 40, "completion_tokens": 0, "total_tokens": 40}, 40, None),  # there is a text
        ({"completion_tokens": 9}, None, 9),
        ({"total_tokens": 49}, None, None),
        (thought(100), None, None),
        ({"prompt_tokens": "40", "completion_tokens": 9.0, "total_tokens": "49"}, 40, 9),
        ({"prompt_tokens": -40, "completion_tokens": 9}, None, 9),
        ({"prompt_tokens": 40.5, "completion_tokens": True, "total_tokens": [49]}, None, None),
        ({"prompt_tokens": 10**12, "completion_tokens": float("nan")}, None, None),
        (dict.fromkeys(NONE, 0), None, None),
        (NONE, None, None),
        ({}, None, None),
        (None, None, None),
        ([{"prompt_tokens": 40}], None, None),
        ({"prompt_tokens": 40, "completion_tokens": 9, "prompt_tokens_details": 3}, 40, 9),
    ],
)
def test_a_usage_is_a_sum_of_parts_of_which_any_may_be_missing(
    usage: Any, sent: int | None, written: int | None
) -> None:
    assert counted(usage) == Counts(sent, written)


def test_nothing_written_is_known_only_where_it_is_said_and_there_is_no_text() -> None:
    assert counted({"prompt_tokens": 40, "completion_tokens": 0}, wrote=False) == Counts(40, 0)
    assert counted({"prompt_tokens": 40}, wrote=False) == Counts(40, None)
    assert counted(dict.fromkeys(NONE, 0), wrote=False) == Counts(None, None)


def test_in_a_stream_the_last_number_above_zero_stands() -> None:
    zeros = dict.fromkeys(NONE, 0)
    cumulative = [{"prompt_tokens": 11, "completion_tokens": n, "total_tokens": 11 + n} for n in (1, 4, 7)]
    assert counted(*cumulative) == counted(*cumulative, zeros, NONE, None, {}) == Counts(11, 7)
    assert counted({"prompt_tokens": 11, "completion_tokens": 1}, {"completion_tokens": 7}) == Counts(11, 7)


@pytest.mark.parametrize(
    ("told", "cached"),
    [
        ({"prompt_tokens_details": {"cached_tokens": 8}}, 8),
        ({"prompt_cache_hit_tokens": 8}, 8),
        ({"prompt_tokens_details": {"cached_tokens": 99}}, 11),
        ({"prompt_tokens_details": None, "cached_tokens": -1}, 0),
        ({"prompt_tokens_details": {"cached_tokens": "8"}}, 8),
    ],
)
def test_no_more_is_read_from_a_cache_than_was_sent(told: dict[str, Any], cached: int) -> None:
    assert counted({"prompt_tokens": 11, "completion_tokens": 7, **told}) == Counts(11, 7, cached)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([*NONE, "prompt_tokens_details", "completion_tokens_details"]), _JSON))
def test_whatever_a_usage_holds_it_is_read_and_never_below_nothing(usage: dict[str, Any]) -> None:
    found = counted(usage)
    assert (found.sent or 0) >= found.cached >= 0
    assert found.written is None or found.written > 0


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (b'{"usage": {"prompt_tokens": 11, "completion_tokens": 7}, "choices": [{"mess', Counts(11, 7)),
        (b'{"a": 1, "a": 2, "usage": {"prompt_tokens": 11, "completion_tokens": 7}}', Counts(11, 7)),
        (b'{"n": NaN, "usage": {"prompt_tokens": 11, "total_tokens": 18}}', Counts(11, 7)),
        (b'{"usage": {"prompt_tokens": 11, "completi', Counts()),
        (b'"usage"', Counts()),
        (b'\xff "usage": ' + b"[" * 100_000, Counts()),
        (b"", Counts()),
    ],
)
def test_the_usage_of_a_body_is_read_that_cannot_be_read_itself(body: bytes, found: Counts) -> None:
    assert usage_in(body).counts(wrote=True) == found


def test_what_is_not_counted_costs_the_most_that_it_can() -> None:
    spec = ModelSpec("m", price_in=2.0, price_out=10.0, max_tokens=1000)
    ask = Ask("m", Role.WORKER, (Message("user", "hi"),), tools="[]")
    most = bound_usd(spec, ask)
    assert most == pytest.approx(((2 + 16 + 2) * 2 + 1000 * 10) / 1e6)
    assert counted_usd(spec, ask, Counts()) == pytest.approx(most)
    assert counted_usd(spec, ask, Counts(11, 7)) == pytest.approx((11 * 2 + 7 * 10) / 1e6)
    assert counted_usd(spec, ask, Counts(11)) == pytest.approx((11 * 2 + 1000 * 10) / 1e6)
    assert counted_usd(spec, ask, Counts(None, 7)) == pytest.approx(((2 + 16 + 2) * 2 + 7 * 10) / 1e6)
    assert counted_usd(spec, ask, Counts(11, 7, 8)) == pytest.approx((11 * 2 + 7 * 10) / 1e6), (
        "no other price"
    )
    cheaper = replace(spec, price_cached=0.1)
    assert counted_usd(cheaper, ask, Counts(11, 7, 8)) == pytest.approx((3 * 2 + 8 * 0.1 + 7 * 10) / 1e6)
    assert counted_usd(ModelSpec("m", price_out=10.0), ask, Counts(11, 7)) == pytest.approx(70 / 1e6)
