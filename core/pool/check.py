"""One small call to each model of a pool, to see that it can be asked at all."""

from __future__ import annotations

from collections.abc import Iterator

from core.episode import Ask, Message, Reply, Role
from core.pool.pool import Pool, closing

CHECK_TOKENS = 16
#: In the roles that an episode's prompts have: some models know no system role.
QUESTION = (Message("system", "Answer with a number alone."), Message("user", "What is 1 + 1?"))


def check_pool(pool: Pool) -> Iterator[tuple[str, Reply]]:
    """Ask every model a trivial question, all at once, and yield (name, reply) as each answers."""
    asks = [
        Ask(
            model=spec.name,
            role=Role.WORKER,
            messages=(Message("user", "work\n1 + 1"),) if spec.dialect == "terse" else QUESTION,
            max_tokens=min(CHECK_TOKENS, spec.max_tokens),
        )
        for spec in pool.specs
    ]
    with closing(pool.ask(asks)) as replies:
        for index, reply in replies:
            yield asks[index].model, reply
