"""Concurrent streams while one of the pool's seven models answers half of its calls with a 500 or a connection that is
cut: which requests come to no whole answer, and how long clients wait for a sign and for the first word.

Every model streams: its first piece comes after a third of the time that it takes, and each says something else, so
that a text that was begun by one and begun again by another would be seen; asked again, a model says the same, as real
ones do at temperature 0, and asked to go on from a text that broke off it writes the rest of that. `lost` are requests
without a whole answer. A model's own first piece, as a client of it sees it under the same load, stands beside that of
the endpoint; a Worker's is counted from when its turn began.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from core.pocket import MODELS
from tests.bench._frame import SERVE, Figures, percentile, run_apart
from tests.browsing import serving
from tests.builders.own_models import role_in, tag_in

#: One answers directly; the other is planned, written and, as turns are drawn, checked, and ends with a Worker's text
#: or with a verdict. Who answers is drawn among all models, the faulty one included.
TIERS = {"once": 1, "team": 3}
#: The model with faults, and the share of its calls that have one.
FAULTY, SHARE = MODELS[0], 0.5
#: In so many pieces a reply comes.
PIECES = 6
#: What a client saw of one request.
Seen = dict[str, Any]


def said_by(model: str) -> str:
    """What a model answers."""
    return f"As {model} counts them, one after another and twice over, there are exactly forty-two of them."


def begun_in(messages: Sequence[dict[str, str]]) -> str:
    """What a model is asked to go on from, where a reply broke off; empty where it is asked for a whole one."""
    *_, said, asked = [{"content": ""}, *messages]
    return said["content"] if "above broke off" in asked["content"] else ""


def serve_models(listener: socket.socket, wait_s: float) -> None:
    """Models that keep to their roles, take their time, and stream; at /faults the faults so far."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response, StreamingResponse
    from starlette.routing import Route

    faults, dice = Counter[str](), random.Random(0)

    async def chat(request: Request) -> Response:
        body = await request.json()
        prompt, model = "\n".join(one["content"] for one in body["messages"]), body["model"]
        role = role_in(prompt)
        text = said_by(model) if role == "Worker" else "Count them."
        if begun := begun_in(body["messages"]):
            text = next(one for one in map(said_by, MODELS) if one.startswith(begun))[len(begun) :]
        if role == "Verifier":
            text = f"It holds.\nVERDICT-{tag_in(prompt)}: ACCEPT"
        fault = ""
        if model == FAULTY and dice.random() < SHARE:
            fault = dice.choice(("500", "cut"))
            faults[fault] += 1
        await asyncio.sleep(wait_s / 3)
        if fault == "500":
            return JSONResponse({"error": {"message": "The engine is overloaded"}}, 500)
        return StreamingResponse(_streamed(text, wait_s, cut=fault == "cut"), media_type="text/event-stream")

    async def told(_: Request) -> Response:
        return JSONResponse(faults)

    app = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"]), Route("/faults", told)])
    uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False)).run([listener])


async def _streamed(text: str, wait_s: float, *, cut: bool) -> AsyncIterator[str]:
    """A text in pieces, in two thirds of the time; `cut`: only half of it, and then the connection ends, as the
    server meets a fault of its own."""
    size = len(text) // PIECES + 1
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    for place, piece in enumerate(pieces):
        if cut and place >= len(pieces) / 2:
            raise ConnectionError("cut")
        choice: dict[str, Any] = {"index": 0, "delta": {"content": piece}, "finish_reason": None}
        yield f"data: {json.dumps({'choices': [choice]})}\n\n"
        await asyncio.sleep(2 * wait_s / 3 / len(pieces))
    last = {"index": 0, "delta": {}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 11, "completion_tokens": len(pieces)}
    yield f"data: {json.dumps({'choices': [last], 'usage': usage})}\n\ndata: [DONE]\n\n"


def measured(models: str, clients: int, seconds: float, wait_s: float) -> Figures:
    """The figures of every tier, over the models at this address, and of a good model alone."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "pool.toml").write_text(
            "\n".join(
                f'[[model]]\nname = "{name}"\nbase_url = "{models}/v1"\nconcurrency = 64\n' for name in MODELS
            )
        )
        (place / "tiers.toml").write_text(
            "".join(
                f'[[tier]]\nname = "{name}"\nturns = {turns}\npolicy = "random"\n'
                for name, turns in TIERS.items()
            )
        )
        options = ("--pool", place / "pool.toml", "--encoder", "pocket", "--config", place / "tiers.toml")
        alone = {"TRINITY_PROCESSES": "1"}
        with serving(
            [*SERVE, *options, "--port"], place, place / "t.db", alone, health="/healthz"
        ) as address:
            return run_apart(_all(address, models, clients, seconds, wait_s))


async def _all(address: str, models: str, clients: int, seconds: float, wait_s: float) -> Figures:
    found: Figures = {"clients": clients, "seconds_each": seconds, "model_s": wait_s}
    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(timeout=120.0, limits=limits, trust_env=False) as http:
        direct = partial(_stream, http, models, MODELS[-1])
        alone = [await direct() for _ in range(10)]
        together = await _for(clients, min(seconds, 10.0), direct)
        found["model"] = {
            "first_content_s_alone_p50": percentile(50, [one["first"] for one in alone], 3),
            **_times([one for one in together if "lost" not in one], "first_content_s", "first"),
        }
        for tier in TIERS:
            before = (await http.get(f"{models}/faults")).json()
            seen = await _for(clients, seconds, partial(_stream, http, address, tier))
            after = (await http.get(f"{models}/faults")).json()
            found[tier] = _figures(seen, seconds) | {
                "faults": {name: n - before.get(name, 0) for name, n in after.items()}
            }
    return found


def _figures(seen: Sequence[Seen], seconds: float) -> Figures:
    whole = [one for one in seen if "lost" not in one]
    live = [one | {"since": one["first"] - one["worker"]} for one in whole if one["live"]]
    return {
        "requests": len(seen),
        "lost": len(seen) - len(whole),
        "why": dict(Counter(one["lost"][:160] for one in seen if "lost" in one).most_common(5)),
        "failed_over": sum(one["failed_over"] for one in whole),
        "continued": sum(one["continued"] for one in whole),
        **_times([one for one in seen if "progress" in one], "first_progress_s", "progress"),
        **_times(whole, "first_content_s", "first"),
        **_times(whole, "whole_s", "whole"),
        "sent_as_it_came": len(live),
        **_times(live, "first_content_since_its_turn_s", "since"),
        "requests_per_s": round(len(whole) / seconds, 2),
    }


def _times(seen: Sequence[Seen], name: str, key: str) -> dict[str, float | None]:
    values = [one[key] for one in seen]
    return {f"{name}_p{at}": percentile(at, values, 3) if values else None for at in (50, 95)}


async def _for(clients: int, seconds: float, ask: Callable[[], Coroutine[Any, Any, Seen]]) -> list[Seen]:
    """What all clients saw who asked again and again for so long."""
    until = time.monotonic() + seconds

    async def client(number: int) -> list[Seen]:
        await asyncio.sleep(number / clients)
        seen = []
        while time.monotonic() < until:
            seen.append(await ask())
        return seen

    return [one for seen in await asyncio.gather(*map(client, range(clients))) for one in seen]


async def _stream(http: httpx.AsyncClient, url: str, model: str) -> Seen:
    """One streamed request to a tier or to a model. `progress`, `first` and `whole`: seconds to the first line, the
    first piece of the answer and the end; `worker`: to the beginning of the last Worker's turn; `live`: whether text
    came before that turn was over; `lost`: why there is no whole answer, where there is none."""
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": "How many?"}]}
    began, text = time.monotonic(), ""
    seen: Seen = {"worker": 0.0, "live": False, "failed_over": False, "continued": False}
    done, finished = False, False
    try:
        async with http.stream("POST", f"{url}/v1/chat/completions", json=body) as response:
            if response.status_code != 200:
                return seen | {"lost": f"{response.status_code}: {(await response.aread())[:100]!r}"}
            async for line in response.aiter_lines():
                now = time.monotonic() - began
                seen.setdefault("progress", now)
                if not line.startswith("data: ") or done:
                    continue
                if done := line == "data: [DONE]":
                    continue
                chunk = json.loads(line[6:])
                if "error" in chunk:
                    return seen | {"lost": f"{chunk['error']['code']}"}
                told = chunk.get("trinity", {})
                if told.get("type") == "turn.started" and told["role"] == "worker":
                    seen["worker"] = now
                finished = finished or told.get("type") == "turn.finished" and told["role"] == "worker"
                for flag in ("failed_over", "continued"):
                    seen[flag] |= flag in told.get("flags", ())
                if piece := chunk["choices"][0]["delta"].get("content"):
                    seen["live"] |= "first" not in seen and not finished
                    seen.setdefault("first", now)
                    text += piece
    except (httpx.HTTPError, ValueError, KeyError) as error:
        return seen | {"lost": repr(error)}
    if not done:
        return seen | {"lost": "the stream ended without [DONE]"}
    if text not in map(said_by, MODELS):
        return seen | {"lost": f"not the text of one model: {text}"}
    return seen | {"whole": time.monotonic() - began}
