"""How a run is stopped while its models are being asked."""

from __future__ import annotations

import pytest

from core.episode import Ask, Message, Role
from core.pool.hosted import HttpPool
from core.pool.spec import ModelSpec
from tests.core.pool.faulty_server import faulty_server, ok
from ui.runs.play import HaltingPool, Stopped


def test_what_is_under_way_comes_before_a_pool_halts() -> None:
    asks = [Ask("m", Role.WORKER, (Message("user", f"{number}"),)) for number in range(3)]
    came: list[int] = []
    with faulty_server((0.05, *ok())) as server:
        pool = HaltingPool(HttpPool([ModelSpec("m", base_url=server.url)]), lambda: bool(came))
        flight = pool.flight()
        flight.add(asks[:2])
        came += [next(flight.ready())[0]]
        flight.add(asks[2:])
        came += [number for number, _ in flight.ready()]
        assert sorted(came) == [0, 1]
        assert flight.under_way == 1
        with pytest.raises(Stopped):
            flight.ready()
        flight.close()
        with pytest.raises(Stopped):
            next(pool.stream(asks[0]))
        assert len(server.requests) == 2
