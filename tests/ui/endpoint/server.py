"""A real endpoint on loopback, over a real store, in front of models that a local server plays."""

from __future__ import annotations

import json
import platform
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from http.client import HTTPConnection
from pathlib import Path
from types import MappingProxyType
from typing import Any

import openai
import pytest
import uvicorn
from openai import OpenAI

from core.episode import Episode
from storage.shelves.endpoint import Limits
from storage.store import Store
from tests.builders.own_models import role_in
from tests.builders.stores import new_store
from tests.core.pool.faulty_server import USAGE, Answer, FaultyServer, Request, faulty_server, ok
from ui.endpoint.api import endpoint_app
from ui.endpoint.service import Service
from ui.endpoint.tiers import Endpoint, Tier

platform.processor()  # runs a program once, which the client would do in the middle of a test

#: A price in USD per million tokens, at which a call of `USAGE` costs 25 millionths.
PRICES = "price_in = 1.0\nprice_out = 2.0"
CHAT, RESPONSES, DECISIONS = "/v1/chat/completions", "/v1/responses", "/v1/decisions"
CALL_USD = (11 * 1.0 + 7 * 2.0) / 1e6


def asking(question: str = "How many?", **fields: Any) -> dict[str, Any]:
    """The body of a chat."""
    return {"model": "trinity", "messages": [{"role": "user", "content": question}], **fields}


def said_to(request: Request) -> str:
    """All that a model is sent, as one text."""
    return "\n".join(message["content"] or "" for message in request.body["messages"])


def role_of(request: Request) -> str:
    """The role that a model is asked to be, by the prompt for a task or for a conversation."""
    return role_in(request.body["messages"][-1]["content"] or "")


def team(
    answer: str = "forty-two",
    accept: bool = True,
    wait_s: float = 0.0,
    cached: Mapping[str, int] = MappingProxyType({}),
    **message: Any,
) -> Callable[[Request], Answer]:
    """Models that keep to their roles: a plan, this reply of a Worker, and a verdict. `cached`: by role, the tokens of
    its prompt that they say they had read before; `message`: what else is in every answer."""

    def reply(request: Request) -> Answer:
        role = role_of(request)
        if role == "Verifier":
            tag = request.body["messages"][-1]["content"].rsplit("VERDICT-", 1)[1].split(":")[0]
            text = f"It holds.\nVERDICT-{tag}: {'ACCEPT' if accept else 'REVISE'}"
        else:
            tag = {"Thinker": "suggestion", "Worker": "answer"}[role]
            text = answer if role == "Worker" else "Count."
            if f"you are the {role}" in said_to(request):  # by the prompt for a task
                text = f"<{tag}>{text}</{tag}>"
        usage = {**USAGE, "prompt_tokens_details": {"cached_tokens": cached.get(role, 0)}}
        whole = ok(text, **{"usage": usage, **message})
        return (wait_s, *whole) if wait_s else whole

    return reply


@dataclass
class Served:
    """A running endpoint."""

    url: str
    store: Store
    service: Service
    models: FaultyServer

    @cached_property
    def client(self) -> OpenAI:
        return OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0)

    def begin(self, answer: Answer | Callable[[Request], Answer]) -> None:
        """Have the models answer so from here on; what they were asked before is forgotten."""
        self.until_idle()
        self.models.answer = answer if callable(answer) else lambda _: answer
        self.models.requests.clear()

    def until_idle(self) -> None:
        """Wait until no request is played."""
        until = time.monotonic() + 10
        while self.service.engine.in_progress and time.monotonic() < until:
            time.sleep(0.01)

    def close(self) -> None:
        if "client" in self.__dict__:
            self.client.close()

    def ask(self, text: str = "How many?", **fields: Any) -> Any:
        return self.client.chat.completions.create(**asking(text, **fields))

    def refused(self, text: str = "How many?", **fields: Any) -> openai.APIStatusError:
        """The error with which a request is answered; its code is `code`, its words are in `message`."""
        with pytest.raises(openai.APIStatusError) as caught:
            self.ask(text, **fields)
        return caught.value

    def with_key(self, **limits: Any) -> Served:
        """The same endpoint, asked with a new key that has these limits."""
        _, text = self.store.endpoint.add_key("limited", Limits(**limits))
        other = replace(self)
        other.client = self.client.with_options(api_key=text)
        return other

    def post(self, path: str, body: object, **headers: str) -> tuple[int, Any]:
        """A request of JSON, or of bytes, as it is: status, and JSON or the text of a stream."""
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        status, _, answer = raw(self.url, "POST", path, sent, **headers)
        return status, answer


#: The fixture `serve`: takes what the models answer, and the options of `served`.
Serve = Callable[..., Served]


@contextmanager
def served(
    path: Path,
    *answers: Answer | Callable[[Request], Answer],
    endpoint: Endpoint | None = None,
    models: str = "ab",
    entry: str = "",
    local: bool = True,
    needs_key: bool = False,
    max_cost_usd: float | None = None,
    clock: Callable[[], float] = time.time,
) -> Iterator[Served]:
    """Serve until the block ends. The tier `trinity` is model a alone: Thinker, Worker, Verifier, and again."""
    with faulty_server(*(answers or (team(),))) as behind:
        tables = [
            f'[[model]]\nname = "{name}"\nbase_url = "{behind.url}"\nattempts = 1\n{entry}\n'
            for name in models
        ]
        (path / "pool.toml").write_text("\n".join(tables))
        store = new_store(path / "trinity.db", clock)
        tiers = endpoint or Endpoint(
            tier=(Tier(name="trinity", policy="single:a"), Tier(name="both", policy="round-robin"))
        )
        service = Service(store, str(path / "pool.toml"), tiers, max_cost_usd=max_cost_usd)
        app = endpoint_app(service, prefix="/v1", local=local, needs_key=needs_key)
        with (
            listening(app) as port,
            closing(Served(f"http://127.0.0.1:{port}", store, service, behind)) as one,
        ):
            yield one
        service.close()
        store.close()


@contextmanager
def listening(app: Any) -> Iterator[int]:
    """The port at which an application is served until the block ends."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", access_log=False, lifespan="off"))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    until = time.monotonic() + 10
    while not server.started and time.monotonic() < until:
        time.sleep(0.01)
    try:
        yield int(listener.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def episode_of(one: Served, answer: Any) -> Episode:
    """The episode that an answer came from, as it is stored."""
    return one.store.episodes.get(answer.model_extra["trinity"]["episode"])


def raw(
    url: str, method: str, path: str, body: bytes = b"", **headers: str
) -> tuple[int, dict[str, str], Any]:
    """One request as it is: status, headers in lower case, JSON (or text)."""
    given = {"Content-Type": "application/json", "Connection": "close"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    with closing(HTTPConnection(url.removeprefix("http://"), timeout=20)) as connection:
        connection.request(method, path, body, given)
        # An answer that breaks off keeps its socket open until it is closed itself.
        with closing(connection.getresponse()) as answer:
            text = answer.read().decode()
    found = {name.lower(): value for name, value in answer.getheaders()}
    try:
        return answer.status, found, json.loads(text)
    except ValueError:
        return answer.status, found, text
