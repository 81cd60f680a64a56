"""Agents and models of `trinity bench clients`: each agent is given a task of two steps, and tools that take them.

A model that does not know the texts at which its client wants it to stop goes on and makes up what its tool gave. An
agent that reads this gets the wrong sum; where the endpoint ends the answer as it was asked to, the right one.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any

from tests.core.pool.faulty_server import Answer, Request, ok
from tests.ui.endpoint.server import role_of, said_to, team

QUESTION = "How much is 17 + 25?"
TASK = "How much is twice the sum of 17 and 25? Add first, then double."
#: What the model makes up where nobody stops it.
MADE_UP = "99"


@dataclass(frozen=True)
class Way:
    """Something that a client does. `wanted` stands in what it gives."""

    name: str
    run: Callable[[], object]
    wanted: str = "42"


Ways = Iterator[Way]


def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first number.
        b: The second number.
    """
    return int(a) + int(b)


def double(n: int) -> int:
    """Double a number.

    Args:
        n: The number.
    """
    return 2 * int(n)


def _in_words(function: Callable[..., int]) -> Callable[..., str]:
    """The same function, which gives a text, as some clients want it."""

    @wraps(function)
    def told(**arguments: Any) -> str:
        return str(function(**arguments))

    told.__annotations__ = {**function.__annotations__, "return": str}
    return told


def model(request: Request) -> Answer:
    """A model that keeps to its role. A Worker takes the next step of what it is asked, by the tools that it is
    offered, or in the words that its agent reads; asked for JSON, it answers JSON."""
    if role_of(request) != "Worker":
        return team(accept=MADE_UP not in _latest_reply(request))(request)
    tools = {one["function"]["name"]: one["function"] for one in request.body.get("tools") or ()}
    if name := _next_tool(tools, request):
        known = {"total": 42, "a": 17, "b": 25, "n": 42, "answer": "84"}
        arguments = json.dumps({one: known[one] for one in tools[name]["parameters"]["properties"]})
        call = {"id": "", "type": "function", "function": {"name": name, "arguments": arguments}}
        return ok("", finish_reason="tool_calls", tool_calls=[call])
    if "must be one JSON object" in said_to(request):
        return ok(json.dumps({"total": 42}))
    return ok(_words(request))


def _latest_reply(request: Request) -> str:
    """What an assistant wrote last of what is to be judged."""
    told = [one["content"] or "" for one in request.body["messages"] if one["role"] == "assistant"]
    return str(told[-1]) if told else ""


def _next_tool(tools: dict[str, Any], request: Request) -> str | None:
    """The tool that is called now; None where a text is written."""
    if "add" in tools and not _gave(request, 42):
        return "add"
    if "double" in tools and _gave(request, 42) and not _gave(request, 84):
        return "double"
    if {"add", "double"} & {*tools}:
        return "final_answer" if "final_answer" in tools else None
    # Told to answer by calling something, or left with the one that it has to call.
    return next(iter(tools), None) if not _gave(request, 42) or request.body.get("tool_choice") else None


def _gave(request: Request, number: int) -> bool:
    """Whether a tool gave this number: as a tool's message, or in the words of an agent."""
    observed = re.compile(rf"Observation:.{{0,80}}?\b{number}\b", re.DOTALL)
    return any(
        (one["role"] == "tool" and str(number) in (one["content"] or ""))
        or (one["role"] == "user" and observed.search(one["content"] or ""))
        for one in request.body["messages"]
    )


def _words(request: Request) -> str:
    """A reply to whoever reads actions out of texts, and else the sum."""
    said, task = said_to(request), TASK in said_to(request)
    step = 0 if not _gave(request, 42) else 1 if not _gave(request, 84) else 2
    if task and "Action Input:" in said:
        action = ("Action: add\nAction Input: 17, 25", "Action: double\nAction Input: 42")
        if step < 2:
            more = f"Observation: {MADE_UP}\nThought: Done.\nFinal Answer: {MADE_UP}"
            return f"I take the next step.\n{action[step]}\n{more}"
        return "I know the answer.\nFinal Answer: 84"
    if task and "<code>" in said:
        code = ("print(add(17, 25))", "print(double(42))", "final_answer(84)")[step]
        more = f"Observation:\n{MADE_UP}\n<code>\nfinal_answer({MADE_UP})\n</code>"
        return f"Thought: I take the next step.\n<code>\n{code}\n</code>\n{more}"
    return "84" if task else "42"


def by_smolagents(url: str, tier: str) -> Ways:
    """Its agents send `stop` with every call, and `tool_choice: required` where they call tools."""
    from smolagents import CodeAgent, OpenAIModel, ToolCallingAgent, tool

    def run(kind: Any, stream: bool) -> Callable[[], object]:
        def answer() -> object:
            served = OpenAIModel(tier, api_base=url, api_key="none", client_kwargs={"max_retries": 0})
            agent = kind(
                tools=[tool(add), tool(double)],
                model=served,
                max_steps=4,
                verbosity_level=0,
                stream_outputs=stream,
            )
            found = agent.run(TASK)
            failed = [step.error for step in agent.memory.steps if getattr(step, "error", None)]
            assert not failed, failed
            return found

        return answer

    for name, kind in (("tools required, and stop", ToolCallingAgent), ("code, ended by stop", CodeAgent)):
        for stream in (False, True):
            yield Way(f"agent: {name}{', streamed' * stream}", run(kind, stream), "84")


def _graph(chat: Any, stream: bool) -> object:
    """What LangChain's agent answers that calls tools."""
    from langchain.agents import create_agent
    from langchain_core.tools import tool

    agent: Any = create_agent(chat, [tool(add), tool(double)])
    asked = {"messages": [("user", TASK)]}
    if not stream:
        return agent.invoke(asked)["messages"][-1].text
    pieces = [one for one, _ in agent.stream(asked, stream_mode="messages")]
    texts: dict[str, str] = {}
    for piece in pieces:
        texts[piece.id] = texts.get(piece.id, "") + str(piece.text)
    return texts[pieces[-1].id]


def by_langchain_agents(url: str, tier: str) -> Ways:
    """The ReAct agent, which ends each of the model's texts before its observation, and the agent that calls tools."""
    from langchain_classic.agents import AgentExecutor, create_react_agent
    from langchain_core.prompts import PromptTemplate
    from langchain_core.tools import Tool
    from langchain_openai import ChatOpenAI

    chat: Any = ChatOpenAI(model=tier, base_url=url, api_key="none", max_retries=0)
    prompt = PromptTemplate.from_template(
        "Answer the question. You have these tools:\n\n{tools}\n\nUse this format:\nQuestion: the question\n"
        "Thought: what to do\nAction: one of [{tool_names}]\nAction Input: its input\nObservation: its result\n"
        "... (this can repeat)\nThought: I know the answer\nFinal Answer: the answer\n\n"
        "Question: {input}\nThought:{agent_scratchpad}"
    )

    def react(stream: bool) -> object:
        named = [
            Tool("add", lambda text: str(add(*text.split(","))), "Add two numbers: a, b"),
            Tool("double", lambda text: str(double(text)), "Double a number"),
        ]
        agent = create_react_agent(chat, named, prompt)
        executor = AgentExecutor(agent=agent, tools=named, max_iterations=4, stream_runnable=stream)
        return executor.invoke({"input": TASK})["output"]

    for stream in (False, True):
        told = ", streamed" * stream
        yield Way(f"agent: ReAct, ended by stop{told}", partial(react, stream), "84")
        yield Way(f"agent: tools{told}", partial(_graph, chat, stream), "84")


def by_openai_agents(url: str, tier: str) -> Ways:
    """Its agent is told by `tool_choice` to begin with a named tool, or to call one each time."""
    import agents
    from openai import AsyncOpenAI

    agents.set_tracing_disabled(True)
    tools = [agents.function_tool(one) for one in (add, double)]

    def final_answer(answer: str) -> str:
        """Give the answer."""
        return answer

    async def played(kind: Any, stream: bool, choice: str) -> object:
        each = choice == "required"
        more: Any = {"tool_use_behavior": {"stop_at_tool_names": ["final_answer"]}} if each else {}
        async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            agent: Any = agents.Agent(
                name="adder",
                model=kind(model=tier, openai_client=client),
                tools=[*tools, agents.function_tool(final_answer)] if each else tools,
                model_settings=agents.ModelSettings(tool_choice=choice),
                reset_tool_choice=not each,
                **more,
            )
            if not stream:
                return (await agents.Runner.run(agent, TASK, max_turns=4)).final_output
            result = agents.Runner.run_streamed(agent, TASK, max_turns=4)
            told = [event async for event in result.stream_events()]
            assert told
            return result.final_output

    def answer(kind: Any, stream: bool, choice: str) -> object:
        return asyncio.run(played(kind, stream, choice))

    kinds = {"": agents.OpenAIChatCompletionsModel, "responses, ": agents.OpenAIResponsesModel}
    for door, kind in kinds.items():
        for choice in ("required", "add"):
            for stream in (False, True):
                name = "a call each time" if choice == "required" else "first the named tool"
                yield Way(
                    f"agent: {door}{name}{', streamed' * stream}",
                    partial(answer, kind, stream, choice),
                    "84",
                )


def by_pydantic_ai_agents(url: str, tier: str) -> Ways:
    """Its agent, with texts at which the model shall stop."""
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    served = OpenAIChatModel(tier, provider=OpenAIProvider(base_url=url, api_key="none"))
    settings: Any = {"stop_sequences": ["\nObservation:"]}
    agent: Any = Agent(served, tools=[add, double], model_settings=settings)

    async def stream() -> str:
        async with agent.run_stream(TASK) as result:
            return "".join([piece async for piece in result.stream_text(delta=True)])

    yield Way("agent: tools and stop", lambda: agent.run_sync(TASK).output, "84")
    yield Way("agent: tools and stop, streamed", lambda: asyncio.run(stream()), "84")


def by_langchain_anthropic(url: str, tier: str) -> Ways:
    """LangChain's agent by Anthropic's API."""
    from langchain_anthropic import ChatAnthropic

    chat = ChatAnthropic(
        model=tier, base_url=url.removesuffix("/v1"), api_key="none", max_retries=0, stop=["\nObservation:"]
    )
    for stream in (False, True):
        yield Way(f"agent: tools and stop{', streamed' * stream}", partial(_graph, chat, stream), "84")


def by_anthropic(url: str, tier: str) -> Ways:
    """The loop of its manual, by its own client: a call is answered with a result until a text comes."""
    from anthropic import Anthropic

    schema: Any = {
        "add": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
        "double": {"type": "object", "properties": {"n": {"type": "integer"}}},
    }
    tools: Any = [{"name": name, "input_schema": one} for name, one in schema.items()]
    does: dict[str, Callable[..., int]] = {"add": add, "double": double}

    def loop(stream: bool, first: Any) -> object:
        said: list[Any] = [{"role": "user", "content": TASK}]
        with Anthropic(base_url=url.removesuffix("/v1"), api_key="none", max_retries=0) as client:
            for step in range(4):
                choice: Any = first if step == 0 else {"type": "auto"}
                asked: Any = {"model": tier, "max_tokens": 500, "messages": said, "tools": tools}
                asked |= {"tool_choice": choice, "stop_sequences": ["\nObservation:"]}
                if stream:
                    with client.messages.stream(**asked) as told:
                        answer = told.get_final_message()
                else:
                    answer = client.messages.create(**asked)
                calls = [one for one in answer.content if one.type == "tool_use"]
                assert (answer.stop_reason == "tool_use") == bool(calls), answer
                if not calls:
                    return _text(answer)
                said += [
                    {"role": "assistant", "content": answer.content},
                    {
                        "role": "user",
                        "content": [
                            {
                                "type": "tool_result",
                                "tool_use_id": one.id,
                                "content": str(does[one.name](**one.input)),
                            }
                            for one in calls
                        ],
                    },
                ]
        raise AssertionError("It called tools to the end.")

    def runner(stream: bool) -> object:
        from anthropic import beta_tool

        with Anthropic(base_url=url.removesuffix("/v1"), api_key="none", max_retries=0) as client:
            own: Any = [beta_tool(_in_words(one)) for one in (add, double)]
            asked: Any = {"model": tier, "max_tokens": 500, "tools": own, "max_iterations": 4}
            asked["messages"] = [{"role": "user", "content": TASK}]
            if not stream:
                return _text(client.beta.messages.tool_runner(**asked).until_done())
            last: Any = None
            for told in client.beta.messages.tool_runner(**asked, stream=True):
                last = told.get_final_message()
            return _text(last)

    def stop(stream: bool) -> object:
        words = f"{TASK} Use the format Action:, Action Input:, Observation:."
        asked: Any = {"model": tier, "max_tokens": 500, "stop_sequences": ["\nObservation:"]}
        asked["messages"] = [{"role": "user", "content": words}]
        with Anthropic(base_url=url.removesuffix("/v1"), api_key="none", max_retries=0) as client:
            if stream:
                with client.messages.stream(**asked) as told:
                    pieces = "".join(told.text_stream)
                    answer = told.get_final_message()
                assert pieces == _text(answer)
            else:
                answer = client.messages.create(**asked)
        assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", "\nObservation:"), answer
        assert MADE_UP not in _text(answer)
        return _text(answer)

    choices: Any = {"any": {"type": "any"}, "tool": {"type": "tool", "name": "add"}}
    for stream in (False, True):
        told = ", streamed" * stream
        for name, choice in choices.items():
            yield Way(f"loop: tool_choice {name}{told}", partial(loop, stream, choice), "84")
        yield Way(f"its tool runner{told}", partial(runner, stream), "84")
        yield Way(f"stop_sequences{told}", partial(stop, stream), "Action Input: 17, 25")


def _text(message: Any) -> str:
    """What an answer of Anthropic's API says."""
    return str(message.content[0].text)
