"""Real clients against `trinity serve`: each runs chats, streams, forced tools, schemas and agents, and tells what it
got.

    pip install 'pydantic-ai-slim[openai]' instructor openai-agents smolagents anthropic \\
        langchain langchain-classic langchain-openai langchain-anthropic
    trinity bench clients

All is asked of a tier of one model and of a coordinator's. The models are a local server that keeps to its roles. The
clients weigh too much for the suite, which has OpenAI's and Anthropic's own. The exit code is 1 where something failed.
"""

from __future__ import annotations

import asyncio
import io
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, redirect_stdout
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel, Field

from core.pocket import MODELS
from tests.bench import _agents
from tests.bench._agents import QUESTION, Way, Ways, add, model
from tests.bench._frame import SERVE, Figures, run, say
from tests.browsing import environment, serving
from tests.core.pool.faulty_server import faulty_server
from ui.endpoint.tiers import BEST
from ui.runs.wiring import SAMPLE_RUNS

ASKED: Any = [{"role": "user", "content": QUESTION}]
TIERS = ("single", "coordinator")


class Total(BaseModel):
    """A sum."""

    total: int = Field(ge=0)


def by_pydantic_ai(url: str, tier: str) -> Ways:
    from pydantic_ai import Agent, NativeOutput
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider

    def agent(kind: Any = OpenAIChatModel, **more: Any) -> Any:
        return Agent(kind(tier, provider=OpenAIProvider(base_url=url, api_key="none")), **more)

    async def stream() -> str:
        async with agent().run_stream(QUESTION) as result:
            return "".join([piece async for piece in result.stream_text(delta=True)])

    yield Way("chat", lambda: agent().run_sync(QUESTION).output)
    yield Way("stream", lambda: asyncio.run(stream()))
    yield Way("a tool of one's own", lambda: agent(tools=[add]).run_sync(QUESTION).output)
    yield Way("output type, by a forced tool", lambda: agent(output_type=Total).run_sync(QUESTION).output)
    yield Way(
        "output type, by a schema", lambda: agent(output_type=NativeOutput(Total)).run_sync(QUESTION).output
    )
    yield Way("responses", lambda: agent(OpenAIResponsesModel, output_type=Total).run_sync(QUESTION).output)


def by_instructor(url: str, tier: str) -> Ways:
    import instructor

    def client(mode: Any = instructor.Mode.TOOLS) -> Any:
        return instructor.from_openai(OpenAI(base_url=url, api_key="none", max_retries=0), mode=mode)

    asked = {"model": tier, "messages": ASKED, "max_retries": 0}

    def of(mode: Any, kind: Any) -> Any:
        return client(mode).chat.completions.create(**asked, response_model=kind)

    def stream() -> object:
        return [*client().chat.completions.create_partial(**asked, response_model=Total)][-1]

    yield Way("chat", lambda: of(instructor.Mode.TOOLS, None).choices[0].message.content)
    yield Way("stream", stream)
    yield Way("forced tool", lambda: of(instructor.Mode.TOOLS, Total))
    yield Way("schema", lambda: of(instructor.Mode.JSON_SCHEMA, Total))


def by_langchain(url: str, tier: str) -> Ways:
    from langchain_core.messages import HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI

    chat: Any = ChatOpenAI(model=tier, base_url=url, api_key="none", max_retries=0)

    def tool() -> object:
        called = chat.bind_tools([add], tool_choice="any").invoke(QUESTION)
        [call] = called.tool_calls
        result = ToolMessage(str(add(**call["args"])), tool_call_id=call["id"])
        return call["args"], chat.bind_tools([add]).invoke([HumanMessage(QUESTION), called, result]).content

    def schema(method: str) -> Callable[[], object]:
        return lambda: chat.with_structured_output(Total, method=method).invoke(QUESTION)

    yield Way("chat", lambda: chat.invoke(QUESTION).content)
    yield Way("stream", lambda: "".join(str(piece.content) for piece in chat.stream(QUESTION)))
    yield Way("forced tool, and its result", tool)
    yield Way("schema, by a forced tool", schema("function_calling"))
    yield Way("schema", schema("json_schema"))
    yield Way("stop at '2'", lambda: chat.invoke(QUESTION, stop=["2"]).content, "4")


def by_openai_agents(url: str, tier: str) -> Ways:
    import agents

    agents.set_tracing_disabled(True)
    forced: Any = {
        "tools": [agents.function_tool(add)],
        "model_settings": agents.ModelSettings(
            tool_choice="required", parallel_tool_calls=False, top_p=0.9, verbosity="low"
        ),
    }

    @asynccontextmanager
    async def adder(kind: Any, **more: Any) -> AsyncIterator[Any]:
        async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            yield agents.Agent(name="adder", model=kind(model=tier, openai_client=client), **more)

    def run(kind: Any, **more: Any) -> Callable[[], object]:
        async def answer() -> object:
            async with adder(kind, **more) as agent:
                return (await agents.Runner.run(agent, QUESTION)).final_output

        return lambda: asyncio.run(answer())

    def stream(kind: Any) -> Callable[[], object]:
        async def pieces() -> str:
            async with adder(kind) as agent:
                events = agents.Runner.run_streamed(agent, QUESTION).stream_events()
                told = [event.data async for event in events if event.type == "raw_response_event"]
            return "".join(one.delta for one in told if one.type == "response.output_text.delta")

        return lambda: asyncio.run(pieces())

    kinds = {"": agents.OpenAIChatCompletionsModel, "responses, ": agents.OpenAIResponsesModel}
    for name, kind in kinds.items():
        yield Way(f"{name}chat", run(kind, instructions="Be brief."))
        yield Way(f"{name}stream", stream(kind))
        yield Way(f"{name}forced tool, and its result", run(kind, **forced))
        yield Way(f"{name}schema", run(kind, output_type=Total))


#: By package, what its client does.
CLIENTS: dict[str, tuple[Callable[[str, str], Ways], ...]] = {
    "pydantic-ai-slim": (by_pydantic_ai, _agents.by_pydantic_ai_agents),
    "instructor": (by_instructor,),
    "langchain-openai": (by_langchain, _agents.by_langchain_agents),
    "openai-agents": (by_openai_agents, _agents.by_openai_agents),
    "smolagents": (_agents.by_smolagents,),
    "langchain-anthropic": (_agents.by_langchain_anthropic,),
    "anthropic": (_agents.by_anthropic,),
}


def measure(
    only: Annotated[str, "one of the clients, by its package; left out: all"] = "",
    policy: Annotated[
        str, "who decides in the coordinator's tier; left out: the newest sample checkpoint"
    ] = "",
) -> Figures:
    """What each client got in each of its ways, by tier."""
    found: Figures = {}
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as folder, faulty_server(model) as behind:
        place = Path(folder)
        tables = [f'[[model]]\nname = "{name}"\nbase_url = "{behind.url}"\n' for name in MODELS]
        (place / "pool.toml").write_text("\n".join(tables))
        (place / "tiers.toml").write_text(
            f'[[tier]]\nname = "single"\npolicy = "single:{next(iter(MODELS))}"\nturns = 1\n'
            f'[[tier]]\nname = "coordinator"\npolicy = "{policy or BEST}"\nturns = 5\n'
        )
        store = place / "t.db"
        if not policy:
            command = [sys.executable, "-m", "ui.cli", "import", str(SAMPLE_RUNS)]
            here = environment(place) | {"TRINITY_STORE": str(store)}
            subprocess.run(command, env=here, check=True, capture_output=True)
        options = ("--pool", place / "pool.toml", "--encoder", "pocket", "--config", place / "tiers.toml")
        with serving([*SERVE, *options, "--port"], place, store, health="/healthz") as address:
            for package, kinds in CLIENTS.items():
                if only in ("", package):
                    name, outcomes = _outcomes(package, kinds, f"{address}/v1", failed)
                    found[name] = outcomes
    return found | {"failed": len(failed), **({"not_kept": failed} if failed else {})}


def _outcomes(
    package: str, kinds: tuple[Callable[[str, str], Ways], ...], url: str, failed: list[str]
) -> tuple[str, Figures]:
    """A client with its version, and what came of each of its ways by tier; the names of those that failed are added to
    `failed`."""
    try:
        name = f"{package} {version(package)}"
    except PackageNotFoundError:
        return package, {"left out": "it is not installed"}
    found: Figures = {tier: {} for tier in TIERS}
    for tier in TIERS:
        say(f"{name}, {tier}")
        for way in (one for ways in kinds for one in ways(url, tier)):
            found[tier][way.name] = outcome = _outcome(way)
            if not outcome.startswith("ok"):
                failed.append(f"{name}, {tier}, {way.name}")
    return name, found


def _outcome(way: Way) -> str:
    try:
        with redirect_stdout(io.StringIO()):  # some show what they do
            got = way.run()
    except Exception as error:
        return f"FAILED: {type(error).__name__}: {str(error)[:300]}"
    return f"{'ok' if way.wanted in str(got) else f'FAILED: no {way.wanted}'}: {str(got)[:100]!r}"


if __name__ == "__main__":
    run(measure)
