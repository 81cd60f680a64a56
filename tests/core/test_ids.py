"""Names sort by time, fit into a URL and do not collide."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from core.ids import checkpoint_id, episode_id, request_task_id, run_id

SECONDS = st.integers(0, 2**34)


@given(SECONDS, SECONDS, st.binary(min_size=1), st.binary(min_size=1))
def test_later_runs_sort_later(a: int, b: int, x: bytes, y: bytes) -> None:
    if a != b:
        assert (run_id(a, x) < run_id(b, y)) == (a < b)


@given(SECONDS, st.binary(), st.integers(0, 10**7))
def test_names_are_short_and_safe_in_a_url(now_s: int, entropy: bytes, index: int) -> None:
    run = run_id(now_s, entropy)
    for name, first in ((run, "r"), (episode_id(run, index), "e"), (checkpoint_id(entropy), "c")):
        assert re.fullmatch(rf"{first}[0-9a-v-]{{10,24}}", name)


def test_episodes_sort_in_the_order_of_their_run() -> None:
    run = run_id(1_800_000_000, b"x")
    names = [episode_id(run, index) for index in range(0, 99_999, 777)]
    assert names == sorted(names)
    assert len(set(names)) == len(names)


def test_entropy_tells_runs_of_one_second_apart() -> None:
    assert len({run_id(5, bytes([k])) for k in range(256)}) == 256


def test_a_checkpoint_is_named_by_its_content() -> None:
    assert checkpoint_id(b"a") == checkpoint_id("a") != checkpoint_id(b"b")


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_request_is_named_by_its_question(question: str) -> None:
    assert re.fullmatch(r"request-[0-9a-v]{10}", request_task_id(question))
    assert request_task_id(question) != request_task_id(f"{question} ")
