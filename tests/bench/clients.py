"""Real clients against `trinity serve`: each runs a chat, a stream, a forced tool and a schema, and tells what it got.

    pip install 'pydantic-ai-slim[openai]' instructor langchain-openai openai-agents
    trinity bench clients

The models are a local server that keeps to its roles. The clients weigh too much for the suite, which has OpenAI's own.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel, Field

from tests.bench._frame import SERVE
from tests.browsing import serving
from tests.core.pool.faulty_server import Answer, Request, faulty_server, ok
from tests.ui.endpoint.server import role_of, said_to, team

QUESTION = "How much is 17 + 25?"
ASKED: Any = [{"role": "user", "content": QUESTION}]
#: What a client does, by its name.
Ways = Iterator[tuple[str, Callable[[], object]]]


class Total(BaseModel):
    """A sum."""

    total: int = Field(ge=0)


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def model(request: Request) -> Answer:
    """A Worker calls what it is offered, until it has a result; asked for JSON, it answers JSON."""
    has_result = any(message["role"] == "tool" for message in request.body["messages"])
    if request.body.get("tools") and not has_result:
        function = request.body["tools"][0]["function"]
        numbers = {"total": 42, "a": 17, "b": 25}
        arguments = json.dumps({name: numbers[name] for name in function["parameters"]["properties"]})
        call = {"id": "", "type": "function", "function": {"name": function["name"], "arguments": arguments}}
        return ok("", finish_reason="tool_calls", tool_calls=[call])
    in_json = "must be one JSON object" in said_to(request) and role_of(request) == "Worker"
    return team(json.dumps({"total": 42}) if in_json else "42")(request)


def by_pydantic_ai(url: str) -> Ways:
    from pydantic_ai import Agent, NativeOutput
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    def agent(kind: Any = OpenAIChatModel, **more: Any) -> Any:
        return Agent(kind("trinity", provider=OpenAIProvider(base_url=url, api_key="none")), **more)

    async def stream() -> str:
        async with agent().run_stream(QUESTION) as result:
            return "".join([piece async for piece in result.stream_text(delta=True)])

    yield "chat", lambda: agent().run_sync(QUESTION).output
    yield "stream", lambda: asyncio.run(stream())
    yield "a tool of one's own", lambda: agent(tools=[add]).run_sync(QUESTION).output
    yield "output type, by a forced tool", lambda: agent(output_type=Total).run_sync(QUESTION).output
    yield "output type, by a schema", lambda: agent(output_type=NativeOutput(Total)).run_sync(QUESTION).output
    yield "responses", lambda: agent(OpenAIResponsesModel, output_type=Total).run_sync(QUESTION).output


def by_instructor(url: str) -> Ways:
    import instructor

    def client(mode: Any = instructor.Mode.TOOLS) -> Any:
        return instructor.from_openai(OpenAI(base_url=url, api_key="none", max_retries=0), mode=mode)

    asked = {"model": "trinity", "messages": ASKED, "max_retries": 0}

    def of(mode: Any, kind: Any) -> Any:
        return client(mode).chat.completions.create(**asked, response_model=kind)

    def stream() -> object:
        return [*client().chat.completions.create_partial(**asked, response_model=Total)][-1]

    yield "chat", lambda: of(instructor.Mode.TOOLS, None).choices[0].message.content
    yield "stream", stream
    yield "forced tool", lambda: of(instructor.Mode.TOOLS, Total)
    yield "schema", lambda: of(instructor.Mode.JSON_SCHEMA, Total)


def by_langchain(url: str) -> Ways:
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI

    chat: Any = ChatOpenAI(model="trinity", base_url=url, api_key="none", max_retries=0)

    def tool() -> object:
        called = chat.bind_tools([add], tool_choice="any").invoke(QUESTION)
        [call] = called.tool_calls
        result = ToolMessage(str(add(**call["args"])), tool_call_id=call["id"])
        return call["args"], chat.bind_tools([add]).invoke([HumanMessage(QUESTION), called, result]).content

    def schema(method: str) -> Callable[[], object]:
        return lambda: chat.with_structured_output(Total, method=method).invoke(QUESTION)

    yield "chat", lambda: chat.invoke(QUESTION).content
    yield "stream", lambda: "".join(str(piece.content) for piece in chat.stream(QUESTION))
    yield "forced tool, and its result", tool
    yield "schema, by a forced tool", schema("function_calling")
    yield "schema", schema("json_schema")
    yield "stop at '2'", lambda: chat.invoke(QUESTION, stop=["2"]).content


def by_openai_agents(url: str) -> Ways:
    import agents

    agents.set_tracing_disabled(True)
    forced: Any = {
        "tools": [agents.function_tool(add)],
        "model_settings": agents.ModelSettings(
            tool_choice="required", parallel_tool_calls=False, top_p=0.9, verbosity="low"
        ),
    }

    def agent(kind: Any, **more: Any) -> Any:
        client = AsyncOpenAI(base_url=url, api_key="none", max_retries=0)
        return agents.Agent(name="adder", model=kind(model="trinity", openai_client=client), **more)

    def run(kind: Any, **more: Any) -> Callable[[], object]:
        return lambda: asyncio.run(agents.Runner.run(agent(kind, **more), QUESTION)).final_output

    def stream(kind: Any) -> Callable[[], object]:
        async def pieces() -> str:
            result = agents.Runner.run_streamed(agent(kind), QUESTION)
            told = [
                event.data async for event in result.stream_events() if event.type == "raw_response_event"
            ]
            return "".join(one.delta for one in told if one.type == "response.output_text.delta")

        return lambda: asyncio.run(pieces())

    kinds = {"": agents.OpenAIChatCompletionsModel, "responses, ": agents.OpenAIResponsesModel}
    for name, kind in kinds.items():
        yield f"{name}chat", run(kind, instructions="Be brief.")
        yield f"{name}stream", stream(kind)
        yield f"{name}forced tool, and its result", run(kind, **forced)
        yield f"{name}schema", run(kind, output_type=Total)


CLIENTS = {
    "pydantic-ai-slim": by_pydantic_ai,
    "instructor": by_instructor,
    "langchain-openai": by_langchain,
    "openai-agents": by_openai_agents,
}


def main() -> int:
    """How many of the ways failed."""
    failed = 0
    with tempfile.TemporaryDirectory() as folder, faulty_server(model) as behind:
        place = Path(folder)
        (place / "pool.toml").write_text(f'[[model]]\nname = "a"\nbase_url = "{behind.url}"\n')
        (place / "tiers.toml").write_text('[[tier]]\nname = "trinity"\npolicy = "single:a"\nturns = 3\n')
        options = ("--pool", place / "pool.toml", "--config", place / "tiers.toml", "--port")
        with serving([*SERVE, *options], place, place / "t.db", health="/healthz") as address:
            for package, ways in CLIENTS.items():
                for name, run in ways(f"{address}/v1"):
                    try:
                        said = f"ok: {run()!r}"
                    except Exception as error:
                        failed, said = failed + 1, f"FAILED: {type(error).__name__}: {str(error)[:300]}"
                    print(f"{package} {version(package)}, {name}: {said}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
