"""Ordinary chats with a real small model: asked directly, and served as a pool, beside each other.

    trinity encoders add smollm2
    trinity bench chats

Counted are served replies that hold anything of the notes by which turns are coordinated, and, where the model is asked
once, those that differ from its direct reply at temperature 0.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import httpx

from core.episode import Ask, Message, Role
from core.play.chat import without_echo
from core.pool.pool import answers
from tests.bench._frame import SERVE, Figures, percentile, run
from tests.browsing import serving
from ui.runs import wiring

#: Subjects of the chats, each of which is asked for in several ways.
SUBJECTS = ("rain", "a lighthouse", "the number seven", "bread", "winter trains")
RULE = "Answer in one sentence, and end it with the word 'indeed'."
POOL = (
    '[[model]]\nname = "small"\nprovider = "local"\nlocal = "{local}"\ntemperature = 0.0\nmax_tokens = 60\n'
)
TIERS = """
[[tier]]
name = "once"
policy = "single:small"
turns = 1

[[tier]]
name = "team"
policy = "single:small"
turns = 3
"""


def chats() -> list[list[dict[str, str]]]:
    """Fifty conversations: poems, translations, summaries, rules of a system message, several turns, lists, JSON."""
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
        found += [[{"role": "user", "content": text}] for text in user.values()]
        found += [
            [{"role": "system", "content": RULE}, {"role": "user", "content": user[name]}]
            for name in ("why", "list")
        ]
        earlier = [{"role": "user", "content": f"What do you think of {subject}?"}]
        earlier += [{"role": "assistant", "content": f"I think that {subject} can be a good subject."}]
        found.append([*earlier, {"role": "user", "content": "Say that again in other words."}])
        found.append([*earlier, {"role": "user", "content": "Give me a title for an essay about it."}])
    return found


def measure(
    model: Annotated[str, "an added encoder that can write"] = "smollm2",
    n: Annotated[int, "so many of the fifty chats"] = 50,
    show: Annotated[bool, "print the replies beside each other"] = False,
) -> Figures:
    """Ask each chat directly, once through the endpoint, and with a plan and a check."""
    asked = chats()[:n]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "pool.toml").write_text(POOL.format(local=model))
        (place / "tiers.toml").write_text(TIERS)
        direct, seconds = _direct(str(place / "pool.toml"), asked)
        options = ("--pool", place / "pool.toml", "--encoder", "pocket", "--config", place / "tiers.toml")
        data = {"XDG_DATA_HOME": str(wiring.data_folder().parent)}
        with serving([*SERVE, *options, "--port"], place, place / "t.db", data, health="/healthz") as address:
            served = {tier: [_ask(address, tier, chat) for chat in asked] for tier in ("once", "team")}
    if show:
        for chat, plain, once, team in zip(asked, direct, served["once"], served["team"], strict=True):
            print(
                json.dumps({"chat": chat[-1]["content"], "direct": plain, "once": once[0], "team": team[0]})
            )
    return {
        "chats": len(asked),
        "scaffolding": {tier: sum(_holds_notes(text) for text, _ in seen) for tier, seen in served.items()},
        "empty": {tier: sum(not text for text, _ in seen) for tier, seen in served.items()},
        "once_differs_from_direct": sum(a != b for a, (b, _) in zip(direct, served["once"], strict=True)),
        "seconds_p50": {"direct": percentile(50, seconds, 2)}
        | {tier: percentile(50, [s for _, s in seen], 2) for tier, seen in served.items()},
    }


def _direct(pool_file: str, asked: list[list[dict[str, str]]]) -> tuple[list[str], list[float]]:
    """The model's replies, without an endpoint, and how long each took."""
    pool = wiring.resolve_pool(pool_file, judged=False)
    texts, seconds = [], []
    for chat in asked:
        messages = tuple(Message(**one) for one in chat)  # type: ignore[arg-type]
        flight = pool.flight()  # type: ignore[attr-defined]
        flight.add([Ask("small", Role.WORKER, messages)])
        [(_, reply)] = answers(flight)
        texts.append(reply.text.strip())
        seconds.append(reply.latency_s)
    return texts, seconds


def _ask(address: str, tier: str, chat: list[dict[str, str]]) -> tuple[str, float]:
    body: dict[str, Any] = {"model": tier, "messages": chat}
    began = time.monotonic()
    answer = httpx.post(f"{address}/v1/chat/completions", json=body, timeout=300.0)
    took = time.monotonic() - began
    return (answer.json()["choices"][0]["message"]["content"] if answer.status_code == 200 else ""), took


def _holds_notes(text: str) -> bool:
    """Whether anything of the notes by which turns are coordinated stands in a reply."""
    words = (
        "VERDICT-",
        "Note of the coordinator",
        "BEGIN ",
        "<answer>",
        "<suggestion>",
        "mention none of them",
    )
    return any(word in text for word in words) or without_echo(text, ()) != text.strip()


if __name__ == "__main__":
    run(measure)
