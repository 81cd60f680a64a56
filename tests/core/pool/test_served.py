"""A pocket model behind `transformers serve`: hosted and in process it says the same."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
import torch

from core.episode import Ask, Message, Reply, Role
from core.pocket.models import pocket_spec
from core.pocket.pool import PocketPool
from core.pocket.training import new_model, train_tokenizer
from core.pool.hosted import HttpPool
from core.pool.pool import check_pool
from core.pool_file import load_pool
from tests.zygote import forked

pytestmark = pytest.mark.process

NAME = "atlas"
QUESTION = "What is 12 + 30?"


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one pocket-sized model of random weights, as the pocket models are shipped."""
    root = tmp_path_factory.mktemp("weights")
    tokenizer = train_tokenizer([f"What is {a} + {b}? answer {a + b}" for a in range(40) for b in range(40)])
    torch.manual_seed(0)
    model = new_model(tokenizer, width=32, layers=2)
    words = [str(tokenizer.decode([token])) for token in range(len(tokenizer))]
    readable = torch.tensor([word.isascii() and word.isprintable() for word in words])
    model.lm_head.weight.data[~readable] = 0  # half of a UTF-8 character has no text to compare
    model.save_pretrained(root / NAME)
    tokenizer.save_pretrained(root / NAME)
    return root


@pytest.fixture(scope="module")
def url(weights: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the served model; the server is stopped at the end."""
    home = tmp_path_factory.mktemp("huggingface")
    hub = home / "hub"
    hub.mkdir()  # without one, /v1/models is an error
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    log = home / "log"
    call: list[str | Path] = [forked("python"), "-m", "tests.core.pool.model_server", "serve", weights / NAME]
    options = ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu", "--dtype", "float32"]
    with log.open("wb") as output:
        server = subprocess.Popen(
            [*call, *options],
            env={**os.environ, "HF_HUB_CACHE": str(hub)},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        until = time.monotonic() + 300  # seconds on a free machine, minutes beside trainings
        while not _healthy(port):
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _healthy(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).is_success
    except httpx.TransportError:
        return False


@pytest.fixture
def pool(url: str, weights: Path, tmp_path: Path) -> Iterator[HttpPool]:
    path = tmp_path / "pool.toml"
    path.write_text(f"""
        [[model]]
        name = "{NAME}"
        model = "{weights / NAME}"
        base_url = "{url}"
        dialect = "terse"
        temperature = 0.0
        max_tokens = 12
        stream_done = false
        timeout_s = 60
    """)
    pool = load_pool(path, {})
    assert isinstance(pool, HttpPool)
    yield pool
    pool.close()


def ask(text: str = QUESTION) -> Ask:
    return Ask(NAME, Role.WORKER, (Message("user", f"work\n{text}"),))


def test_served_and_in_process_replies_are_the_same(pool: HttpPool, weights: Path) -> None:
    [(_, reply)] = pool.ask([ask()])
    spec = replace(pocket_spec(NAME), temperature=0.0, max_tokens=12)
    [(_, expected)] = PocketPool([NAME], weights=weights, specs=[spec]).ask([ask()])
    assert reply.error is None
    assert reply.text.strip() == expected.text != ""
    assert reply.finish_reason == expected.finish_reason
    assert reply.usage.tokens_in == expected.usage.tokens_in
    assert reply.usage.tokens_out > 0
    assert reply.usage.cost_usd is None


def test_a_stream_ends_with_the_same_reply(pool: HttpPool) -> None:
    [(_, whole)] = pool.ask([ask()])
    *pieces, reply = pool.stream(ask())
    assert isinstance(reply, Reply)
    assert reply.error is None
    assert "".join(str(piece) for piece in pieces) == reply.text
    assert (reply.text.strip(), reply.finish_reason) == (whole.text.strip(), whole.finish_reason)
    assert reply.usage == whole.usage


def test_calls_side_by_side_come_back_under_their_own_index(pool: HttpPool) -> None:
    asks = [ask(f"What is {n} + 1?") for n in range(6)]
    alone = [next(pool.ask([one]))[1].text for one in asks]
    together = {index: reply.text for index, reply in pool.ask(asks)}
    assert [together[index] for index in range(6)] == alone


def test_check_and_a_field_the_server_refuses(pool: HttpPool) -> None:
    [(name, reply)] = check_pool(pool)
    assert (name, reply.error) == (NAME, None)
    for change, words in (
        ({"extra": {"min_p": 0.1}}, "min_p"),
        ({"model": "another"}, "requested 'another'"),
    ):
        refused = HttpPool([replace(pool.specs[0], **change)])
        [(_, reply)] = refused.ask([ask()])
        refused.close()
        assert reply.error is not None
        assert words in reply.error.message
