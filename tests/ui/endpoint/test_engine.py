"""An endpoint whose models are called, and whose encoder reads, on a cluster of two real nodes: clients are told the
same, as it comes; who leaves is not paid for, and who is lost there costs no request."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.checkpoint import Checkpoint
from core.coordinator.coordinator import Coordinator
from core.coordinator.encoder import load_encoder
from core.episode import Decide, EndReason, Transcript
from storage.store import open_store
from tests.bench._cluster import Nodes, cluster, patched_program
from tests.browsing import serving
from tests.builders.encoder import tiny_qwen3
from tests.core.pool.faulty_server import Answer, Request
from tests.ui.endpoint.server import CALL_USD, CHAT, DECISIONS, PRICES, Served, asking, raw, served, team
from tests.ui.endpoint.test_live_text import chunks, streamed
from tests.zygote import forked
from ui.endpoint.tiers import Endpoint, Tier
from ui.runs import wiring

pytestmark = [pytest.mark.process, pytest.mark.integration]

#: Not a small encoder, which this process would do without others: 44 MB.
SHAPE: dict[str, Any] = {"hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 7}


@pytest.fixture(scope="module")
def far(nodes: Nodes, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    tiers = (Tier("trinity", policy="single:a"), Tier("one", policy="round-robin", turns=1))
    endpoint = Endpoint(engine=f"ray={nodes.address}", tier=tiers)
    with served(tmp_path_factory.mktemp("far"), endpoint=endpoint, entry=PRICES) as one:
        yield one
    wiring.leave_cluster()


def engine_of(url: str) -> dict[str, int]:
    """What the health says of the engine."""
    status, _, told = raw(url, "GET", "/healthz")
    assert (status, told["status"]) == (200, "ok")
    engine: dict[str, int] = told["engine"]
    return engine


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_answers_ceilings_and_health_are_those_of_an_endpoint(far: Served) -> None:
    far.begin(team(wait_s=0.4))
    with ThreadPoolExecutor(1) as aside:
        asked = aside.submit(far.ask)
        until(lambda: engine_of(far.url)["under_way"] == 1)
        answer = asked.result()
    assert answer.choices[0].message.content == "forty-two"
    trace = answer.model_extra["trinity"]
    assert [turn["role"] for turn in trace["turns"]] == ["thinker", "worker", "verifier"]
    assert trace["cost_usd"] == pytest.approx(3 * CALL_USD)
    engine = engine_of(far.url)
    assert engine.pop("helpers") >= 1
    assert engine == {"machines": 2, "under_way": 0, "lost": 0}
    far.begin(team())
    assert far.refused(extra_body={"trinity": {"max_cost_usd": 1e-6}}).code == "cost_ceiling"
    assert not far.models.requests
    far.begin(team(wait_s=5.0))
    before = far.models.hang_ups
    assert far.refused(extra_body={"trinity": {"deadline_s": 0.5}}).status_code == 504
    until(lambda: far.models.hang_ups > before)


def test_a_stream_comes_while_the_model_writes_and_ends_where_its_client_leaves(far: Served) -> None:
    go, never = threading.Event(), threading.Event()
    far.begin(streamed("Forty", "-two ", go, "it is."))
    told = ""
    for text, _ in chunks(far, model="one"):
        told += text
        if told == "Forty-two":
            go.set()  # who does not hear of it first waits forever
    assert told == "Forty-two it is."
    far.begin(streamed("Forty ", never, "two"))
    before, name = far.models.hang_ups, ""
    stream = far.ask(model="one", stream=True)
    for chunk in stream:
        name = ((chunk.model_extra or {}).get("trinity") or {}).get("episode") or name
        if chunk.choices and chunk.choices[0].delta.content:
            break
    stream.close()
    far.until_idle()
    assert far.store.episodes.get(name).end_reason is EndReason.CANCELLED
    never.set()
    until(lambda: far.models.hang_ups > before)


def test_who_is_lost_costs_no_request(nodes: Nodes, far: Served) -> None:
    never = threading.Event()

    def hangs_first(*pieces: str) -> Callable[[Request], Answer]:
        answers = iter([streamed(*pieces, never, "never") if pieces else (never,)])
        return lambda request: next(answers, None) or team()(request)

    far.begin(team())
    far.ask()  # or the pool has asked nobody yet, and nobody can be lost
    lost = engine_of(far.url)["lost"]
    far.begin(hangs_first())
    with ThreadPoolExecutor(1) as aside:
        asked = aside.submit(far.ask)
        until(lambda: bool(far.models.requests))
        lose_callers(nodes)
        trace = asked.result().model_extra["trinity"]
    assert len(far.models.requests) == 4
    assert not any("model_error" in turn["flags"] for turn in trace["turns"])
    assert trace["cost_usd"] > 3 * CALL_USD  # the server may bill the call that it never answered
    assert engine_of(far.url)["lost"] > lost

    far.begin(hangs_first("Forty "))
    told = ""
    for text, _ in chunks(far, model="one"):
        told += text
        if told == "Forty":
            lose_callers(nodes)
    assert told.startswith("Forty")  # the other model goes on
    assert told.endswith("forty-two")
    never.set()


def lose_callers(nodes: Nodes) -> None:
    for process in nodes.actors("Caller"):
        process.kill()


def test_a_large_encoder_reads_on_the_cluster(nodes: Nodes, far: Served, tmp_path: Path) -> None:
    folder = tiny_qwen3(tmp_path / "encoder", **SHAPE)
    here = load_encoder(folder)
    begun = Checkpoint.begin(("a", "b"), here.identity, **asdict(here.recipe))
    made = begun.with_vector(np.random.default_rng(0).normal(0, 0.3, len(begun.vector)))
    wiring.keep_checkpoint(far.store, made)
    wiring.remember_encoder(here, wiring.data_folder())
    question = {"name": "who", "type": "choice", "choices": [{"value": "a"}, {"value": "b"}]}
    body: dict[str, Any] = {"model": f"trinity@{made.id}", "input": "How many?", "questions": [question]}
    far.service.policy(far.service.offer.tier(body["model"]), None)  # as a server does before it listens
    status, told = far.post(DECISIONS, body)
    assert status == 200, told
    assert nodes.actors("EncoderActor")
    [decision] = Coordinator(made, load_encoder(folder)).decide(
        [Decide(Transcript("How many?"), 0, "decision")]
    )
    odds = {one["value"]: one["probability"] for one in told["answers"][0]["probabilities"]}
    assert list(odds.values()) == [float(p) for p in decision.model_probs]


def test_processes_that_share_a_port_are_on_the_cluster_each_by_itself(
    nodes: Nodes, far: Served, tmp_path: Path
) -> None:
    """As the file of tiers says, until a signal."""
    engine = f"ray={nodes.address}"
    (tmp_path / "tiers.toml").write_text(
        f'engine = "{engine}"\n[[tier]]\nname = "trinity"\npolicy = "single:a"\n'
    )
    far.begin(team())
    pool = Path(far.service.pool_name)
    options = ("--pool", pool, "--config", tmp_path / "tiers.toml", "--processes", "2", "--port")
    with serving(
        [forked("trinity"), "serve", *map(str, options)], tmp_path, tmp_path / "t.db", health="/healthz"
    ) as url:
        assert engine_of(url)["machines"] == 2
        for _ in range(8):
            assert raw(url, "POST", CHAT, json.dumps(asking()).encode())[0] == 200
    said = (tmp_path / "server.log").read_text()
    assert re.search(rf"Engine: Ray at {nodes.address}: \d helpers? on 2 machines\.", said)
    assert "Traceback" not in said
    with closing(open_store(tmp_path / "t.db")) as store:
        assert {run.status for run in store.runs.list("serve")} == {"finished"}


@pytest.fixture
def lonely() -> Iterator[Nodes]:
    """A cluster that a test may lose."""
    with cluster(1) as found:
        yield found


def test_a_cluster_that_is_gone_is_said_to_clients_and_ends_the_server_at_once(
    lonely: Nodes, far: Served, tmp_path: Path
) -> None:
    (tmp_path / "tiers.toml").write_text(
        f'engine = "ray={lonely.address}"\n[[tier]]\nname = "trinity"\npolicy = "single:a"\n'
    )
    options = ("--pool", far.service.pool_name, "--config", tmp_path / "tiers.toml", "--port")
    program = (*patched_program({"core.cluster.cluster.GONE_S": 4.0}), "serve", *map(str, options))
    question = json.dumps(asking()).encode()
    far.begin(team(wait_s=30.0))
    with (
        serving(program, tmp_path, tmp_path / "t.db", health="/healthz") as url,
        ThreadPoolExecutor(1) as one,
    ):
        under_way = one.submit(raw, url, "POST", CHAT, question)
        until(lambda: bool(far.models.requests))
        lonely.lose_all()
        refused = [under_way.result(), raw(url, "POST", CHAT, question), raw(url, "GET", "/healthz")]
        began = time.monotonic()
    assert time.monotonic() - began < 10
    for status, _, told in refused:
        assert (status, told["error"]["code"]) == (503, "not_ready")
        assert told["error"]["message"].startswith("The Ray cluster is gone: it has not answered for 4 s. ")
