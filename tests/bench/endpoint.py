"""Concurrent streams through the endpoint, beside the same calls made to the models directly."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from core.pocket import MODELS
from ui.runs.wiring import SAMPLE_RUNS

ROLES = ("Thinker", "Worker", "Verifier")


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve a pool of local models, ask it from many clients at once, and print what that took."""
    parser = argparse.ArgumentParser(prog="trinity bench endpoint", description=__doc__)
    parser.add_argument("--clients", type=int, default=100, help="streams at a time")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long they ask")
    parser.add_argument("--wait", type=float, default=0.3, help="how long a model takes, in seconds")
    parser.add_argument(
        "--policy", default="", help="who decides: a policy; left out: the newest sample checkpoint"
    )
    parser.add_argument(
        "--models", type=int, default=0, help=argparse.SUPPRESS
    )  # the port of the models' server
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args(arguments)
    if chosen.models:
        _serve_models(chosen.models, chosen.wait)
        return
    found = _measure(chosen)
    if chosen.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:42} {value}")


def _measure(chosen: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        models, port = _free_port(), _free_port()
        place = Path(folder)
        (place / "pool.toml").write_text(
            "\n".join(
                f'[[model]]\nname = "{name}"\nbase_url = "http://127.0.0.1:{models}/v1"\nconcurrency = 64\n'
                for name in MODELS
            )
        )
        tier = f'[[tier]]\nname = "trinity"\nturns = 3\npolicy = "{chosen.policy}"\n'
        (place / "endpoint.toml").write_text(tier)
        environment = os.environ | {"TRINITY_STORE": str(place / "trinity.db"), "TRINITY_PROCESSES": "1"}
        environment["OMP_NUM_THREADS"] = "1"
        if not chosen.policy:
            subprocess.run(
                [sys.executable, "-m", "ui.cli", "import", str(SAMPLE_RUNS)], env=environment, check=True
            )
        serve = [*("serve", "--pool", str(place / "pool.toml"), "--encoder", "pocket"), "--port", str(port)]
        serve += ["--config", str(place / "endpoint.toml")]
        behind = [
            sys.executable,
            "-m",
            "tests.bench.endpoint",
            "--models",
            str(models),
            "--wait",
            str(chosen.wait),
        ]
        with (
            _process(behind, environment, models),
            _process([sys.executable, "-m", "ui.cli", *serve], environment, port),
        ):
            return asyncio.run(_compare(chosen, port, models))


async def _compare(chosen: argparse.Namespace, port: int, models: int) -> dict[str, Any]:
    limits = httpx.Limits(max_connections=chosen.clients)
    async with httpx.AsyncClient(timeout=60.0, limits=limits, trust_env=False) as http:
        await _through(http, port)  # what is loaded at the first request is not measured
        alone = [await _through(http, port) for _ in range(20)]
        direct_alone = [await _direct(http, models) for _ in range(20)]
        ours = await _for(chosen, lambda: _through(http, port))
        direct = await _for(chosen, lambda: _direct(http, models))
    good, straight = (
        [one for one in ours if "error" not in one],
        [one for one in direct if "error" not in one],
    )
    pool_s = statistics.mean(one["turns"] for one in good) * chosen.wait
    over = [1000 * (one["whole"] - one["turns"] * chosen.wait) for one in alone]
    return {
        "requests": len(good),
        "errors": len(ours) - len(good),
        "turns_per_request": round(statistics.mean(one["turns"] for one in good), 2),
        "first_progress_s_p50": _at(50, [one["first"] for one in good]),
        "first_progress_s_p95": _at(95, [one["first"] for one in good]),
        "whole_s_p50": _at(50, [one["whole"] for one in good]),
        "whole_s_p95": _at(95, [one["whole"] for one in good]),
        "pool_s_per_request": round(pool_s, 3),
        "overhead_ms_alone_p50": _at(50, over),
        "overhead_ms_alone_p95": _at(95, over),
        "overhead_ms_per_turn_alone_p50": _at(
            50, [ms / one["turns"] for ms, one in zip(over, alone, strict=True)]
        ),
        "direct_overhead_ms_alone_p50": _at(
            50, [1000 * (one["whole"] - 3 * chosen.wait) for one in direct_alone]
        ),
        "direct_whole_s_p50": _at(50, [one["whole"] for one in straight]),
        "requests_per_s": round(len(good) / chosen.seconds, 2),
        "direct_requests_per_s": round(len(straight) / chosen.seconds, 2),
    }


async def _for(chosen: argparse.Namespace, ask: Any) -> list[dict[str, Any]]:
    """What all clients saw who asked again and again for so long."""
    until = time.monotonic() + chosen.seconds

    async def client(number: int) -> list[dict[str, Any]]:
        await asyncio.sleep(chosen.wait * number / chosen.clients)
        seen = []
        while time.monotonic() < until:
            try:
                seen.append(await ask())
            except (httpx.HTTPError, AssertionError, KeyError) as error:
                seen.append({"error": repr(error)})
        return seen

    return [one for seen in await asyncio.gather(*map(client, range(chosen.clients))) for one in seen]


async def _through(http: httpx.AsyncClient, port: int) -> dict[str, Any]:
    """One streamed request to the endpoint."""
    body = {"model": "trinity", "stream": True, "messages": [{"role": "user", "content": "How many?"}]}
    began, first, turns, text, done = time.monotonic(), 0.0, 0, "", False
    async with http.stream("POST", f"http://127.0.0.1:{port}/v1/chat/completions", json=body) as response:
        assert response.status_code == 200, await response.aread()
        async for line in response.aiter_lines():
            first = first or time.monotonic() - began
            if not line.startswith("data: "):
                continue
            done = done or line == "data: [DONE]"
            if not done:
                chunk = json.loads(line[6:])
                assert "error" not in chunk, chunk
                turns += chunk.get("trinity", {}).get("type") == "turn.finished"
                text += chunk["choices"][0]["delta"].get("content") or ""
    assert (done, text) == (True, "forty-two")
    return {"first": first, "whole": time.monotonic() - began, "turns": turns}


async def _direct(http: httpx.AsyncClient, port: int) -> dict[str, Any]:
    """The three calls of a request, one after another, without an endpoint."""
    began = time.monotonic()
    for role in ROLES:
        messages = [{"role": "user", "content": f"you are the {role} VERDICT-abcd: "}]
        answer = await http.post(f"http://127.0.0.1:{port}/v1/chat/completions", json={"messages": messages})
        assert answer.status_code == 200
    return {"whole": time.monotonic() - began}


def _at(percentile: int, values: Sequence[float]) -> float:
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, len(ordered) * percentile // 100)], 3)


def _serve_models(port: int, wait_s: float) -> None:
    """Models that keep to their roles and take their time."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    async def chat(request: Request) -> Response:
        prompt = (await request.json())["messages"][-1]["content"]
        role = next(role for role in ROLES if f"you are the {role}" in prompt)
        tag = prompt.rpartition("VERDICT-")[2].split(":")[0]
        texts = {"Thinker": "<suggestion>Count.</suggestion>", "Worker": "<answer>forty-two</answer>"}
        text = texts.get(role, f"It holds.\nVERDICT-{tag}: ACCEPT")
        await asyncio.sleep(wait_s)
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return JSONResponse({"choices": [choice], "usage": {"prompt_tokens": 11, "completion_tokens": 7}})

    app = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="critical", access_log=False)


@contextmanager
def _process(command: list[str], environment: dict[str, str], port: int) -> Iterator[None]:
    """Run a server until the block ends; the block begins when it listens."""
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until and process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    main()
