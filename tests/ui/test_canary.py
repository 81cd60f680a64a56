"""One key through every failure: a server repeats it wherever it can, and it is found in no file, log, page, message or
answer, whether of a model's provider or of the endpoint itself."""

from __future__ import annotations

import gzip
import io
import json
import logging
import zipfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from core.ids import episode_id
from storage.store import Store
from tests.core.pool.faulty_server import CANARY, ECHOES, Answer, Request, events, ok, stream_head
from tests.ui.endpoint.server import PRICES, raw, served
from tests.ui.pages import SUM, opened, shown
from tests.ui.sums import POOL, Sums, reply
from ui.runs.plans import LivePlan
from ui.runs.queue import Ticket, enqueue
from ui.runs.worker import main
from ui.web.kit.state import VIEWS

pytestmark = pytest.mark.integration
KEYED = "api_key_env = 'SUMS_KEY'\nheaders_env = { x-key = 'SUMS_KEY' }\n"


def unpacked(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Every file below a folder with what it holds, packed as it is and unpacked."""
    for file in (one for one in folder.rglob("*") if one.is_file()):
        data = [file.read_bytes()]
        if file.suffix == ".gz":
            data.append(gzip.decompress(data[0]))
        elif file.suffix == ".parquet":
            data.append(repr(pq.read_table(file).to_pylist()).encode())
        elif file.suffix == ".zip":
            with zipfile.ZipFile(io.BytesIO(data[0])) as archive:
                data += map(archive.read, archive.namelist())
        yield file, b"\n".join(data)


def hits(folder: Path, *secrets: str) -> list[str]:
    """The files below a folder that hold one of these texts, packed or not."""
    found = [(str(file), data.lower()) for file, data in unpacked(folder)]
    return [name for name, data in found for secret in secrets if secret.lower().encode() in data]


def echo_after_echo() -> Iterator[Answer]:
    """Every answer of a server that repeats the key, again and again."""
    while True:
        yield from (echo(CANARY) for echo in ECHOES.values())


def test_a_providers_key_is_found_nowhere(
    evolving: Sums,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    no_workers: None,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("SUMS_KEY", CANARY)
    monkeypatch.chdir(tmp_path)
    world, echoes, calls = evolving, echo_after_echo(), count()
    pool = POOL.format(url=world.server.url, price=1.0)
    (tmp_path / "pool.toml").write_text(pool.replace("name =", f"{KEYED}attempts = 1\nname ="))

    def repeat(request: Request) -> Answer:
        """Now and then a reply that is one, so that episodes come to an end; the key stands in it, too."""
        if next(calls) % 3 == 0:
            return next(echoes)
        text = f"{reply(request)} {CANARY}"
        if request.body.get("stream"):
            return stream_head(), events(text[:-9], text[-9:])
        return ok(text, reasoning_content=f"I was given {CANARY}")

    world.server.answer = repeat
    said: list[str] = []

    def trinity(*arguments: object) -> None:
        result = world.trinity(*arguments)
        assert "Traceback" not in result.err
        said.extend((result.out, result.err))

    for _ in ECHOES:
        trinity("pool", "check")
    trinity("pool", "check", "--roles")
    trinity("pool", "list")
    trinity("run", *world.test_tasks, "--policy", "random", "--policy", "round-robin", "--max-cost", 1)
    small = ["--generations", 2, "--population", 4, "--replicates", 2, "--turns", 3]
    trinity("evolve", "--tasks", world.tasks, *small, "--max-cost", 1)
    for kept in ("episodes", "doctor", "checkpoints", "routing", "verifier"):
        trinity(kept)
    for suffix in ("jsonl.gz", "csv", "parquet", "html.zip"):
        trinity("export", "--all", "--out", f"all.{suffix}")
    with world.kept() as store:
        plan = LivePlan(SUM, "random", ("adder", "guesser"), str(tmp_path / "pool.toml"), max_cost_usd=1.0)
        run = enqueue(store, plan, Ticket())[0]
        main(["--run", run])
        said += capsys.readouterr()
        said += _pages(store, run)
    # Who writes the key itself into the file is told so, and not with its value.
    for wrong in ("api_key_env = '{}'", "api_key = '{}'", "base_url = 'http://{}@127.0.0.1/v1'", "'{}' = 1"):
        (tmp_path / "pool.toml").write_text(f"[[model]]\nname = 'm'\n{wrong.format(CANARY)}\n")
        trinity("pool", "check")
        said += [shown(opened("pool")), shown(opened("live"))]
    (tmp_path / "pool.toml").unlink()

    assert {request.headers["authorization"] for request in world.server.requests} == {f"Bearer {CANARY}"}
    assert b"(key)" in (tmp_path / "store.db").read_bytes() + (tmp_path / "store.db-wal").read_bytes()
    assert [words for words in said if CANARY.lower() in words.lower()] == []
    assert CANARY not in caplog.text
    assert hits(tmp_path, CANARY) == []


def _pages(store: Store, run: str) -> Iterator[str]:
    """What every page shows, also of an episode whose models failed."""
    yield from (shown(opened(name)) for name in VIEWS)
    yield shown(opened("live", run=run))
    yield shown(opened("replay", ep=episode_id(run, 0)))
    for episode in store.episodes.page(limit=6).items:
        yield shown(opened("replay", ep=episode.id))


def test_no_key_is_found_behind_the_endpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("SUMS_KEY", CANARY)
    echoes = echo_after_echo()
    answered: list[object] = []
    with served(tmp_path, lambda _: next(echoes), entry=KEYED + PRICES, needs_key=True) as one:
        _, key = one.store.endpoint.add_key("mine")
        _, revoked = one.store.endpoint.add_key("lost")
        one.store.endpoint.revoke("lost")
        talk = [{"role": "user", "content": "How many?"}]
        bodies: list[tuple[str, dict[str, object]]] = [
            ("/v1/chat/completions", {"model": "both", "messages": talk}),
            ("/v1/chat/completions", {"model": "both", "messages": talk, "stream": True}),
            ("/v1/responses", {"model": "both", "input": "How many?", "stream": True}),
            ("/v1/messages", {"model": "both", "max_tokens": 99, "messages": talk, "stream": True}),
        ]
        for _ in ECHOES:
            answered += [_post(one.url, path, body, key) for path, body in bodies]
        wrong = [revoked, key[:-1] + ("a" if key[-1] != "a" else "b"), CANARY, f"{CANARY}\x01"]
        for path, body in bodies:
            answered += [_post(one.url, path, body, text) for text in wrong]
            answered.append(_post(one.url, path, {**body, "x": key}, key))
        for path in ("/openapi.json", "/v1/models", "/v1/models/none", "/v1/healthz"):
            answered.append(raw(one.url, "GET", path, Authorization=f"Bearer {key}"))
        assert len(one.models.requests) >= len(ECHOES)
    (tmp_path / "pool.toml").unlink()
    secrets = [CANARY, *(text.partition("-")[2].partition("-")[2] for text in (key, revoked))]
    assert hits(tmp_path, *secrets) == []
    for secret in secrets:
        assert secret not in caplog.text
        assert secret not in repr(answered)


def _post(url: str, path: str, body: object, key: str) -> object:
    return raw(url, "POST", path, json.dumps(body).encode(), Authorization=f"Bearer {key}")
