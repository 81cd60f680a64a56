"""What the endpoint adds to calls of models, measured on a small scale."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.bench import _overhead, endpoint
from tests.bench._frame import run_apart

pytestmark = pytest.mark.usefixtures("forked_servers")


@pytest.mark.process
def test_what_both_tiers_add_to_a_request_is_told_by_requests_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {"AT_ONCE": (1, 2), "ROUNDS": 2, "EACH": 4, "FIRST": 2}.items():
        monkeypatch.setattr(_overhead, name, value)
    found = endpoint.measure(policy="random", overhead=True)
    assert (found["errors"], found["model_ms"]) == (0, 22.0)
    for tier in ("single", "coordinator"):
        assert found["overhead_ms"][tier].keys() == {"1", "2"}
        for added in found["overhead_ms"][tier].values():
            # A call's own time is taken off, or it would be 22 and more for each.
            assert -22.0 < added["p50"] <= added["p99"] < 2_000.0
    assert 0.0 < found["coordinator_deciding_ms"]["p50"] <= found["coordinator_deciding_ms"]["p99"]


@pytest.mark.integration
def test_answers_that_are_errors_are_counted_and_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"AT_ONCE": (1,), "ROUNDS": 3, "EACH": 2, "FIRST": 2}.items():
        monkeypatch.setattr(_overhead, name, value)
    with answering(failing="single") as address:
        found = run_apart(_overhead._measure(address, address))
    assert found["errors"] == 3 * 2  # all of one tier's
    assert found["overhead_ms"]["single"] == {"1": {"p50": None, "p99": None}}
    assert found["overhead_ms"]["coordinator"]["1"]["p50"] is not None


@contextmanager
def answering(failing: str) -> Iterator[str]:
    """The address of a server that answers at once, and with an error where this model is asked for."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            body = json.dumps({"trinity": {"turns": [{}]}}).encode()
            self.send_response(500 if asked.get("model") == failing else 200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_message_is_read_once_it_is_whole_and_the_next_one_is_left() -> None:
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    assert [_overhead.message_in(whole[:n]) for n in (10, len(whole) - 1)] == [None, None]
    head, content, rest = _overhead.message_in(whole + whole[:7]) or (b"", b"", b"")
    assert (head.split()[1], content, rest) == (b"200", b"{}", whole[:7])
