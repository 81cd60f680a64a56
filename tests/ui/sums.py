"""A small world for command line tests: sums as tasks, and two models that add on a real loopback server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from storage.rows.summaries import RunSummary
from storage.store import Store, open_store
from tests.builders.stores import empty_store
from tests.core.pool.faulty_server import Answer, FaultyServer, Request, chat, faulty_server, respond
from ui.cli import main

POOL = """
[[model]]
name = "adder"
base_url = "{url}"
dialect = "terse"
price_in = {price}
price_out = {price}

[[model]]
name = "guesser"
base_url = "{url}"
dialect = "terse"
price_in = {price}
price_out = {price}
"""


@dataclass
class Result:
    """What a command said and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Sums:
    """The world's paths, its server, and `trinity` to call in this process."""

    folder: Path
    server: FaultyServer

    @property
    def tasks(self) -> str:
        return str(self.folder / "sums.jsonl")

    @property
    def store(self) -> str:
        return str(self.folder / "store.db")

    @property
    def test_tasks(self) -> tuple[str, ...]:
        """Options that name the twelve sums."""
        return "--tasks", self.tasks, "--split", "test"

    def trinity(self, *arguments: object) -> Result:
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            try:
                code: Any = main([str(argument) for argument in arguments])
            except SystemExit as ended:
                code = ended.code
        return Result(int(code or 0), out.getvalue(), err.getvalue())

    def run(self, *arguments: object) -> Result:
        """`trinity run` over twelve sums."""
        return self.trinity("run", *self.test_tasks, *arguments)

    def done(self, *arguments: object) -> Result:
        """What a command says that does what it is asked for."""
        result = self.trinity(*arguments)
        assert result.code == 0, result.err
        return result

    def refused(self, *arguments: object) -> str:
        """The one sentence of a command that refuses what it is asked for."""
        result = self.trinity(*arguments)
        assert (result.code, result.err.count("\n")) == (1, 1), result.err
        assert result.err.startswith("trinity: ")
        return result.err

    @contextmanager
    def kept(self) -> Iterator[Store]:
        """The store as it is now."""
        with closing(open_store(self.store)) as store:
            yield store

    def last_run(self) -> tuple[RunSummary, float]:
        """The newest run and what it has spent."""
        with self.kept() as store:
            run = store.runs.list()[0]
            return run, store.runs.spent_usd(run.id)

    def add_tasks(self, split: str, n: int, first: int = 50) -> None:
        """More sums in a split."""
        with Path(self.tasks).open("a") as file:
            for a in range(first, first + n):
                line = {"question": f"What is {a} + 2?", "answer": a + 2, "grader": "number", "split": split}
                file.write(json.dumps(line) + "\n")

    def add_tasks_to_evolve_on(self) -> None:
        """Twelve more sums to evolve on and four to validate with."""
        lines = [
            {"question": f"What is {a} + 5?", "answer": a + 5, "grader": "number", "split": split}
            for a, split in zip(range(60, 76), ["evolve", "evolve", "evolve", "validation"] * 4, strict=True)
        ]
        with Path(self.tasks).open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)

    def price(self, usd_per_million: float) -> None:
        """Let both models cost something, and need a key."""
        pool = POOL.format(url=self.server.url, price=usd_per_million)
        (self.folder / "pool.toml").write_text(pool.replace("name =", "api_key_env = 'SUMS_KEY'\nname ="))


def reply(request: Request) -> str:
    """The adder adds; the guesser is one too high when the first number is odd, and believes every answer."""
    kind, question, *rest = request.body["messages"][-1]["content"].splitlines()
    a, b = (int(number) for number in re.findall(r"\d+", question))
    value = a + b + (request.body["model"] == "guesser" and a % 2)
    if kind == "think":
        return f"add {b} to {a}"
    if kind == "work":
        return f"answer {value}"
    believed = request.body["model"] == "guesser" or rest[-1] == f"answer {a + b}"
    return f"{a} plus {b} is {value} {'ACCEPT' if believed else 'REVISE'}"


def answer(request: Request) -> Answer:
    """A reply as a chat completion, on a connection that is kept for the next."""
    return (respond(chat(reply(request)), kept=True),)


@contextmanager
def sums(folder: Path, monkeypatch: pytest.MonkeyPatch, n: int = 12) -> Iterator[Sums]:
    """The world in a folder; its empty store and its pool are named by the environment."""
    with faulty_server(answer) as server:
        lines = [
            {
                "question": f"What is {a} + {a + 3}?",
                "answer": str(a + a + 3),
                "grader": "number",
                "split": "test",
            }
            for a in range(10, 10 + n)
        ]
        (folder / "sums.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (folder / "pool.toml").write_text(POOL.format(url=server.url, price=0))
        empty_store(folder / "store.db")
        monkeypatch.setenv("XDG_DATA_HOME", str(folder))
        monkeypatch.setenv("TRINITY_STORE", str(folder / "store.db"))
        monkeypatch.setenv("TRINITY_POOL", str(folder / "pool.toml"))
        monkeypatch.delenv("TRINITY_MAX_COST", raising=False)
        monkeypatch.setenv("SUMS_KEY", "k")
        yield Sums(folder, server)
