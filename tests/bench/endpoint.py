"""Concurrent streams through the endpoint, beside the same calls made to the models directly."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import httpx

from core.pocket import MODELS
from tests.bench import _faulty, _overhead
from tests.bench._frame import SERVE, Figures, percentile, run
from tests.browsing import environment, serving
from ui.endpoint.tiers import BEST
from ui.runs.wiring import SAMPLE_RUNS

ROLES = ("Thinker", "Worker", "Verifier")
#: What a client saw of one request.
Seen = dict[str, Any]


def measure(
    clients: Annotated[int, "streams at a time"] = 100,
    seconds: Annotated[float, "how long they ask"] = 60.0,
    wait: Annotated[float, "how long a model takes, in seconds"] = 0.3,
    policy: Annotated[str, "who decides; left out: the newest sample checkpoint"] = "",
    overhead: Annotated[
        bool, "what the endpoint adds to calls of models that take 22 ms, at 1 to 64 at a time"
    ] = False,
    faulty: Annotated[
        bool, "one of seven models fails at half of its calls: what is lost, and how long a first word takes"
    ] = False,
) -> Figures:
    """Serve a pool of local models, and ask it from many clients at once."""
    if faulty:
        with _models(wait, _faulty.serve_models) as models:
            return _faulty.measured(models, clients, seconds, wait)
    serve = _overhead.serve_models if overhead else _serve_models
    with tempfile.TemporaryDirectory() as folder, _models(wait, serve) as models:
        place = Path(folder)
        tables = [
            f'[[model]]\nname = "{name}"\nbase_url = "{models}/v1"\nconcurrency = 64\n' for name in MODELS
        ]
        (place / "pool.toml").write_text("\n".join(tables))
        tiers = f'[[tier]]\nname = "trinity"\nturns = 3\npolicy = "{policy or BEST}"\n'
        tiers += f'[[tier]]\nname = "single"\nturns = 1\npolicy = "single:{next(iter(MODELS))}"\n'
        (place / "tiers.toml").write_text(tiers)
        store = place / "trinity.db"
        if not policy:
            command = [sys.executable, "-m", "ui.cli", "import", str(SAMPLE_RUNS)]
            subprocess.run(command, env=environment(place) | {"TRINITY_STORE": str(store)}, check=True)
        options = ("--pool", place / "pool.toml", "--encoder", "pocket", "--config", place / "tiers.toml")
        alone = {"TRINITY_PROCESSES": "1"}
        with serving([*SERVE, *options, "--port"], place, store, alone, health="/healthz") as address:
            if overhead:
                return _overhead.measured(address, models, store)
            return asyncio.run(_compare(address, models, clients, seconds, wait))


async def _compare(address: str, models: str, clients: int, seconds: float, wait: float) -> Figures:
    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(timeout=60.0, limits=limits, trust_env=False) as http:
        through, direct = partial(_through, http, address), partial(_direct, http, models)
        await through()  # what is loaded at the first request is not measured
        alone = [await through() for _ in range(20)]
        direct_alone = [await direct() for _ in range(20)]
        ours, theirs = [await _for(clients, seconds, wait, ask) for ask in (through, direct)]
    good, straight = ([one for one in seen if "error" not in one] for seen in (ours, theirs))
    over = [1000 * (one["whole"] - one["turns"] * wait) for one in alone]
    turns = statistics.mean(one["turns"] for one in good)
    told = {
        "first_progress_s": [one["first"] for one in good],
        "whole_s": [one["whole"] for one in good],
        "overhead_ms_alone": over,
        "overhead_ms_per_turn_alone": [ms / one["turns"] for ms, one in zip(over, alone, strict=True)],
        "direct_overhead_ms_alone": [1000 * (one["whole"] - 3 * wait) for one in direct_alone],
        "direct_whole_s": [one["whole"] for one in straight],
    }
    return {
        "requests": len(good),
        "errors": len(ours) - len(good),
        "turns_per_request": round(turns, 2),
        "pool_s_per_request": round(turns * wait, 3),
        **{f"{name}_p{at}": percentile(at, some, 3) for name, some in told.items() for at in (50, 95)},
        "requests_per_s": round(len(good) / seconds, 2),
        "direct_requests_per_s": round(len(straight) / seconds, 2),
    }


async def _for(
    clients: int, seconds: float, wait: float, ask: Callable[[], Coroutine[Any, Any, Seen]]
) -> list[Seen]:
    """What all clients saw who asked again and again for so long."""
    until = time.monotonic() + seconds

    async def client(number: int) -> list[Seen]:
        await asyncio.sleep(wait * number / clients)
        seen = []
        while time.monotonic() < until:
            try:
                seen.append(await ask())
            except (httpx.HTTPError, AssertionError, KeyError) as error:
                seen.append({"error": repr(error)})
        return seen

    return [one for seen in await asyncio.gather(*map(client, range(clients))) for one in seen]


async def _through(http: httpx.AsyncClient, url: str) -> Seen:
    """One streamed request to the endpoint."""
    body = {"model": "trinity", "stream": True, "messages": [{"role": "user", "content": "How many?"}]}
    began, first, turns, text, done = time.monotonic(), 0.0, 0, "", False
    async with http.stream("POST", f"{url}/v1/chat/completions", json=body) as response:
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


async def _direct(http: httpx.AsyncClient, url: str) -> Seen:
    """The three calls of a request, one after another, without an endpoint."""
    began = time.monotonic()
    for role in ROLES:
        messages = [{"role": "user", "content": f"you are the {role} VERDICT-abcd: "}]
        answer = await http.post(f"{url}/v1/chat/completions", json={"messages": messages})
        assert answer.status_code == 200
    return {"whole": time.monotonic() - began}


def _serve_models(listener: socket.socket, wait_s: float) -> None:
    """Models that keep to their roles and take their time."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    async def chat(request: Request) -> Response:
        prompt = (await request.json())["messages"][-1]["content"]
        tag = prompt.rpartition("VERDICT-")[2].split(":")[0]
        text = f"It holds.\nVERDICT-{tag}: ACCEPT" if "VERDICT-" in prompt else "forty-two"
        await asyncio.sleep(wait_s)
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return JSONResponse({"choices": [choice], "usage": {"prompt_tokens": 11, "completion_tokens": 7}})

    app = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])
    uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False)).run([listener])


@contextmanager
def _models(wait_s: float, serve: Callable[[socket.socket, float], None]) -> Iterator[str]:
    """The address of the models, which a process of their own serves until the block ends."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        spawned = multiprocessing.get_context("spawn")
        process = spawned.Process(target=serve, args=(listener, wait_s), daemon=True)
        process.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        process.terminate()
        process.join()


if __name__ == "__main__":
    run(measure)
