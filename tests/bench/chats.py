"""Ordinary chats with a real small model: asked directly, and served as a pool of seven, beside each other.

    trinity encoders add smollm2
    trinity bench chats

Seven entries are a model, or two, under different settings; a second one needs a chat template. Three tiers are asked:
`trinity`, as it is without a file of tiers; `once`, one entry at temperature 0, which is also asked directly; `team`,
which plans, answers and checks with all of them in turn. Of each reply is checked what a program can tell: that it is
not empty and holds nothing of the notes by which turns are coordinated, that JSON fits its schema, that the rule of a
system message is obeyed, that a tool is called, or its result told. Shares of passed checks are paired with the direct
reply's, chat by chat. Replies of more than three times the direct one's length are counted beside. Models in this
process can call no tools: a 400 that says so is counted as refused, and its checks not at all.
"""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import httpx
import jsonschema_rs

from core.analysis.metrics import clustered_difference
from core.episode import Ask, Message, Role
from core.play.chat import without_echo
from core.pool.pool import answers
from tests.bench._frame import SERVE, Figures, percentile, run, say
from tests.browsing import serving
from ui.runs import wiring

#: Subjects of the chats, each of which is asked for in several ways.
SUBJECTS = ("rain", "a lighthouse", "the number seven", "bread", "winter trains")
RULE = "Answer in one sentence, and end it with the word 'indeed'."
#: The entries: which of two models, at which temperature, and the most tokens that it writes. The first is asked
#: directly, too.
ENTRIES = {
    "small": (0, 0.0, 60),
    "small-cool": (0, 0.3, 60),
    "small-warm": (0, 0.7, 60),
    "small-brief": (0, 0.3, 40),
    "other": (1, 0.0, 60),
    "other-cool": (1, 0.3, 60),
    "other-warm": (1, 0.7, 60),
}
DIRECT = next(iter(ENTRIES))
TIERS = f"""
[[tier]]
name = "trinity"
lean = true
turns = 3

[[tier]]
name = "once"
policy = "single:{DIRECT}"
turns = 1

[[tier]]
name = "team"
policy = "round-robin"
turns = 3
"""
NAMES = ("trinity", "once", "team")
#: Cities with what a tool says of their weather.
CITIES = {"Rome": "31", "Oslo": "4", "Lima": "19", "Cairo": "38", "Quito": "14"}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "temperature",
        "description": "The temperature in a city, in degrees Celsius.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
#: Longer than so many times the direct reply is too long.
LONGEST = 3


@dataclass(frozen=True)
class Chat:
    """A conversation, what else is in its request, and what its reply has to be: ended as the rule says, an object that
    fits a `schema`, with a `result` told in it, or a call of a tool."""

    kind: str
    messages: Sequence[dict[str, Any]]
    more: dict[str, Any] = field(default_factory=dict)
    schema: dict[str, Any] | None = None
    rule: bool = False
    result: str = ""
    calls: bool = False

    @property
    def told_directly(self) -> tuple[Message, ...]:
        """The messages for the model alone, which is told in words what form its answer shall have."""
        found = []
        for one in self.messages:
            beside = {key: value for key, value in one.items() if key not in ("role", "content")}
            found.append(Message(one["role"], one["content"] or "", json.dumps(beside) if beside else ""))
        if self.schema is None:
            return tuple(found)
        form = f" that fits this JSON schema: {json.dumps(self.schema)}" if self.schema else ""
        words = f"{found[-1].content}\n\nThe answer must be one JSON object{form}, and nothing around it."
        return (*found[:-1], Message("user", words))


def chats() -> list[Chat]:
    """Sixty: poems, translations, summaries, lists, letters, reasons, rules of a system message, several turns, five
    with a tool, each followed by one with its result, and five in JSON."""
    found = []
    for subject in SUBJECTS:
        user = {
            "poem": f"Write a poem of two lines about {subject}.",
            "translation": f"Translate into French: I like {subject}.",
            "summary": f"Summarise in five words: Last year we read a long book about {subject}, and it was dull.",
            "list": f"Name three things that go with {subject}.",
            "letter": f"Write a short note to Ann that thanks her for the picture of {subject}.",
            "why": f"Why do people write about {subject}?",
        }
        found += [Chat(kind, [_user(text)]) for kind, text in user.items()]
        system = {"role": "system", "content": RULE}
        found += [Chat("system rule", [system, _user(user[name])], rule=True) for name in ("why", "list")]
        earlier = [_user(f"What do you think of {subject}?")]
        earlier += [{"role": "assistant", "content": f"I think that {subject} can be a good subject."}]
        found.append(Chat("several turns", [*earlier, _user("Say that again in other words.")]))
        found.append(Chat("several turns", [*earlier, _user("Give me a title for an essay about it.")]))
    return [*found, *_with_tools(), *_in_json()]


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _with_tools() -> list[Chat]:
    """Of five cities: three in which the tool has to be called, and two in which its result is there."""
    found = []
    for place, (city, degrees) in enumerate(CITIES.items()):
        asked = _user(f"How warm is it in {city} now? Say the number of degrees.")
        if place < 3:
            more = {"tools": [TOOL], "tool_choice": "required"}
            found.append(Chat("tool", [asked], more, calls=True))
            continue
        function = {"name": "temperature", "arguments": json.dumps({"city": city})}
        call = {"id": f"call_{place}", "type": "function", "function": function}
        said = {"role": "assistant", "content": None, "tool_calls": [call]}
        given = {"role": "tool", "tool_call_id": call["id"], "content": f"{degrees} degrees Celsius"}
        found.append(Chat("tool result", [asked, said, given], result=degrees))
    return found


def _in_json() -> list[Chat]:
    """Of the subjects: two as any JSON object, three as one that fits a schema."""
    found = []
    for place, subject in enumerate(SUBJECTS):
        if place < 2:
            text = f"Give a JSON object with the keys subject and opinion about {subject}."
            found.append(Chat("json object", [_user(text)], {"response_format": {"type": "json_object"}}, {}))
            continue
        schema = {
            "type": "object",
            "properties": {"subject": {"type": "string"}, "score": {"type": "integer"}},
            "required": ["subject", "score"],
            "additionalProperties": False,
        }
        wanted = {"type": "json_schema", "json_schema": {"name": "opinion", "schema": schema}}
        text = f"Rate {subject} with a score from 1 to 10."
        found.append(Chat("json schema", [_user(text)], {"response_format": wanted}, schema))
    return found


@dataclass(frozen=True, slots=True)
class Reply:
    """What came of a chat: its text, the seconds it took, how many tools it calls; the status and the words of a
    refusal; who answered."""

    text: str
    seconds: float
    calls: int = 0
    status: int = 200
    error: str = ""
    by: str = ""


def measure(
    model: Annotated[str, "an added encoder that can write"] = "smollm2",
    second: Annotated[str, "another one; left out: the same, under other settings"] = "",
    n: Annotated[int, "so many of the sixty chats"] = 60,
    show: Annotated[bool, "print the replies beside each other, a line of JSON for each chat"] = False,
) -> Figures:
    """Ask each chat directly, and through three tiers."""
    every = chats()
    asked = [every[place * len(every) // n] for place in range(min(n, len(every)))]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "pool.toml").write_text(_pool((model, second or model)))
        (place / "tiers.toml").write_text(TIERS)
        direct = _direct(str(place / "pool.toml"), asked)
        say(f"direct: {sum(one.seconds for one in direct):.0f} s")
        options = ("--pool", place / "pool.toml", "--encoder", "pocket", "--config", place / "tiers.toml")
        data = {"XDG_DATA_HOME": str(wiring.data_folder().parent)}
        with serving([*SERVE, *options, "--port"], place, place / "t.db", data, health="/healthz") as address:
            served = {tier: _asked(address, tier, asked) for tier in NAMES}
    if show:
        for number, chat in enumerate(asked):
            print(json.dumps(_shown(chat, direct[number], {tier: served[tier][number] for tier in NAMES})))
    return {
        "chats": len(asked),
        "models": [*dict.fromkeys((model, second or model))],
        "direct": {"seconds_p50": percentile(50, [one.seconds for one in direct], 2)},
        **{tier: _figures(asked, direct, replies) for tier, replies in served.items()},
        "once_differs_from_direct": sum(
            a.text != b.text for a, b in zip(direct, served["once"], strict=True) if b.status == 200
        ),
    }


def _pool(models: tuple[str, str]) -> str:
    return "".join(
        f'[[model]]\nname = "{name}"\nlocal = "{models[which]}"\ntemperature = {temperature}\nmax_tokens = {most}\n'
        for name, (which, temperature, most) in ENTRIES.items()
    )


def _shown(chat: Chat, direct: Reply, served: dict[str, Reply]) -> dict[str, Any]:
    """A chat with its replies, and the checks that each did not pass."""
    sides = {"direct": direct, **served}
    failed = {
        name: [check for check, passed in checked(chat, one, direct).items() if not passed]
        for name, one in sides.items()
    }
    replies = {name: one.text or one.error for name, one in sides.items()}
    return {"kind": chat.kind, "chat": chat.messages[-1]["content"], **replies, "failed": failed}


def checked(chat: Chat, reply: Reply, direct: Reply) -> dict[str, bool]:
    """Which of the checks that apply to a reply it passes."""
    text = reply.text.strip()
    found = {"not empty": bool(text or reply.calls), "no notes": not _holds_notes(text)}
    if chat.schema is not None:
        found["json"] = _fits(text, chat.schema)
    if chat.rule:
        end = re.sub(r"\W+$", "", text)
        found["rule"] = end.lower().endswith("indeed") and len(re.findall(r"[.!?]+(?:\s|$)", text)) <= 1
    if chat.result:
        found["result told"] = chat.result in text
    if chat.calls:
        found["tool called"] = bool(reply.calls)
    if direct.text and not chat.calls:
        found["not too long"] = len(text) <= LONGEST * len(direct.text)
    return found


def _fits(text: str, schema: dict[str, Any]) -> bool:
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return isinstance(value, dict) and jsonschema_rs.is_valid(schema, value)


def _figures(asked: Sequence[Chat], direct: Sequence[Reply], served: Sequence[Reply]) -> Figures:
    """The figures of a tier: how many replies passed each check, beside the direct ones, and how long they took."""
    passed, of, pairs = Counter[str](), Counter[str](), []
    for chat, plain, one in zip(asked, direct, served, strict=True):
        if one.status == 400:
            continue
        mine, theirs = checked(chat, one, plain), checked(chat, plain, plain)
        passed.update(name for name, right in mine.items() if right)
        of.update(mine.keys())
        both = [name for name in mine if name in theirs and name != "not too long"]
        pairs.append([(theirs[name], mine[name]) for name in both])
    every = [pair for cluster in pairs for pair in cluster]
    return {
        "answered": sum(one.status == 200 for one in served),
        "refused_400": dict(Counter(one.error for one in served if one.status == 400)),
        "errors": dict(Counter(one.error[:120] for one in served if one.status not in (200, 400))),
        "checks_passed": {name: f"{passed[name]} of {n}" for name, n in of.items()},
        "share_passed": round(sum(b for _, b in every) / len(every), 4) if every else None,
        "share_passed_directly": round(sum(a for a, _ in every) / len(every), 4) if every else None,
        "beside_direct": asdict(clustered_difference(pairs)),
        "seconds_p50": percentile(50, [one.seconds for one in served], 2),
        "answered_by": dict(Counter(one.by for one in served if one.by)),
    }


def _direct(pool_file: str, asked: Sequence[Chat]) -> list[Reply]:
    """The first entry's replies, without an endpoint."""
    pool = wiring.resolve_pool(pool_file, judged=False)
    found = []
    for chat in asked:
        flight = pool.flight()  # type: ignore[attr-defined]
        flight.add([Ask(DIRECT, Role.WORKER, chat.told_directly)])
        [(_, reply)] = answers(flight)
        found.append(Reply(reply.text.strip(), reply.latency_s, by=DIRECT))
    return found


def _asked(address: str, tier: str, asked: Sequence[Chat]) -> list[Reply]:
    """What a tier replies to each chat."""
    found = [_ask(address, tier, chat) for chat in asked]
    say(f"{tier}: {sum(one.seconds for one in found):.0f} s")
    return found


def _ask(address: str, tier: str, chat: Chat) -> Reply:
    body: dict[str, Any] = {"model": tier, "messages": chat.messages, **chat.more}
    began = time.monotonic()
    answer = httpx.post(f"{address}/v1/chat/completions", json=body, timeout=300.0)
    took, told = time.monotonic() - began, answer.json()
    if answer.status_code != 200:
        return Reply("", took, status=answer.status_code, error=told["error"]["message"])
    message = told["choices"][0]["message"]
    by = next((one["model"] for one in reversed(told["trinity"]["turns"]) if one["answered"]), "")
    return Reply(message["content"] or "", took, len(message.get("tool_calls") or ()), by=by)


def _holds_notes(text: str) -> bool:
    """Whether anything of the notes by which turns are coordinated stands in a reply."""
    words = (
        "VERDICT-",
        "Note of the coordinator",
        "BEGIN ",
        "<answer>",
        "<suggestion>",
        "mention none of them",
        "message to reply to",
    )
    return any(word in text for word in words) or without_echo(text, ()) != text.strip()


if __name__ == "__main__":
    run(measure)
