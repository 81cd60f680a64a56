"""A pool that says what a test wrote for it: deterministic, with faults on demand."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from core.episode import Ask, Failure, Reply, Usage
from core.errors import PoolError
from core.pool.spec import Dialect, ModelSpec

Line = str | Reply | Failure  # what one call gives: a text, a whole reply, or a fault
Script = Sequence[Line] | Callable[[Ask], Line]


def specs(models: Iterable[str], dialect: Dialect = "terse") -> list[ModelSpec]:
    """Scripted models, in slot order."""
    return [ModelSpec(name, provider="scripted", dialect=dialect) for name in models]


class ScriptedPool:
    """Answers from `script`: a sequence is read line by line in the order of the asks, a function is called
    with each Ask. `asks` keeps every Ask seen, in order. Raises PoolError when a sequence runs out."""

    def __init__(self, specs: Sequence[ModelSpec | str], script: Script) -> None:
        self._specs = tuple(
            spec if isinstance(spec, ModelSpec) else ModelSpec(name=spec, provider="scripted")
            for spec in specs
        )
        self._script = script
        self.asks: list[Ask] = []

    @property
    def specs(self) -> tuple[ModelSpec, ...]:
        """The pool's models in slot order."""
        return self._specs

    def ask(self, asks: Sequence[Ask]) -> Iterator[tuple[int, Reply]]:
        """Yield (index, reply) in the order of the asks."""
        for index, ask in enumerate(asks):
            yield index, self._reply(ask)

    def stream(self, ask: Ask) -> Iterator[str | Reply]:
        """Yield the reply word by word, then whole; a fault comes without any text before it."""
        reply = self._reply(ask)
        if reply.error is None:
            yield from re.findall(r"\S+\s*|\s+", reply.text)
        yield reply

    def _reply(self, ask: Ask) -> Reply:
        if ask.model not in {spec.name for spec in self._specs}:
            raise PoolError(f"The pool has no model named {ask.model!r}; add it or ask one it has.")
        self.asks.append(ask)
        line = self._line(ask)
        match line:
            case Reply():
                return line
            case Failure():
                return Reply(text="", finish_reason="error", error=line)
            case _:
                words = sum(len(message.content.split()) for message in ask.messages)
                return Reply(text=line, usage=Usage(words, len(line.split()), 0.0, tokens_cached=words // 2))

    def _line(self, ask: Ask) -> Line:
        if callable(self._script):
            return self._script(ask)
        if len(self.asks) > len(self._script):
            raise PoolError(
                f"The script has {len(self._script)} replies and was asked for one more; write it longer."
            )
        return self._script[len(self.asks) - 1]
