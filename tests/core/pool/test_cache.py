"""CachedPool pays once for what is the same and never for a failure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from core.episode import Ask, Failure, Message, Reply, Role
from core.pool.cache import CachedPool
from core.pool.spec import ModelSpec
from tests.builders.pools import ScriptedPool


def ask(text: str = "hi", model: str = "a", seed: int = 0, sample: int = 0, **limits: float) -> Ask:
    return Ask(model, Role.WORKER, (Message("user", text),), seed=seed, sample=sample, **limits)  # type: ignore[arg-type]


def replies(pool: ScriptedPool | CachedPool, asks: Sequence[Ask]) -> list[Reply]:
    return [reply for _, reply in sorted(pool.ask(asks), key=lambda pair: pair[0])]


def test_cache_asks_equal_calls_once_and_others_again() -> None:
    behind = ScriptedPool(["a"], lambda a: f"{a.messages[0].content}{a.seed}{a.sample}{a.temperature}")
    pool = CachedPool(behind)
    batch = [ask("x"), ask("y"), ask("x"), ask("x", sample=1), ask("x", seed=1), ask("x", temperature=0.0)]
    first = replies(pool, batch)
    assert first[0] == first[2]
    assert (len(behind.asks), pool.hits, pool.misses) == (5, 1, 5)
    assert replies(pool, batch) == first
    assert (len(behind.asks), pool.hits, pool.misses) == (5, 7, 5)


def test_a_models_own_limits_written_out_are_the_same_call() -> None:
    behind = ScriptedPool([ModelSpec("a", temperature=0.25, max_tokens=9)], lambda a: "x")
    replies(CachedPool(behind), [ask(), ask(temperature=0.25, max_tokens=9)])
    assert len(behind.asks) == 1


def test_cache_forgets_failures_and_the_least_recently_used() -> None:
    behind = ScriptedPool(["a"], [Failure("model", "no"), "ok", "2", "3", "again"])
    pool = CachedPool(behind, max_entries=2)
    assert replies(pool, [ask("1")])[0].error is not None
    assert replies(pool, [ask("1")])[0].text == "ok"
    assert [r.text for r in replies(pool, [ask("2"), ask("1"), ask("3")])] == ["2", "ok", "3"]
    assert replies(pool, [ask("1")])[0].text == "again"


def test_cached_stream_yields_the_text_then_the_reply() -> None:
    pool = CachedPool(ScriptedPool(["a"], ["one two"]))
    first, second = list(pool.stream(ask())), list(pool.stream(ask()))
    assert first[:-1] == ["one ", "two"]
    assert second == ["one two", first[-1]]


def test_closing_the_cache_closes_the_pool_behind() -> None:
    class Closable(ScriptedPool):
        closed = False

        def ask(self, asks: Sequence[Ask]) -> Iterator[tuple[int, Reply]]:
            try:
                yield from super().ask(asks)
            finally:
                self.closed = True

    behind = Closable(["a"], ["x", "y"])
    iterator = CachedPool(behind).ask([ask("1"), ask("2")])
    next(iterator)
    iterator.close()  # type: ignore[attr-defined]
    assert behind.closed
    assert len(behind.asks) == 1
