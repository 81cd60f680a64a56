"""Served requests whose askers said what came of the answers, as an outcome table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from core.episode import Episode, Flag, Turn
from core.errors import ConfigError
from storage.shelves.endpoint import RIGHT, SCORE
from storage.store import Store


def write_served(store: Store, since: float, folder: Path) -> int:
    """Write requests with feedback from a time on (Unix seconds) as the files of an outcome table, its own kind: a task
    for each question, and of the model that answered its reply, whether it was right, what it cost. How many;
    ConfigError for none."""
    rows = [*_rows(store, since)]
    if not rows:
        raise ConfigError(
            "No request in that time has both its texts and feedback: send it to POST /v1/feedback, with the id of an "
            "answer, or begin earlier."
        )
    for name, place in (("tasks.jsonl", 0), ("outcomes.jsonl", 1)):
        lines = [json.dumps(row[place]) for row in rows]
        (folder / name).write_text("\n".join(lines) + "\n")
    return len(rows)


def _rows(store: Store, since: float) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for name in store.endpoint.rated(since):
        episode = store.episodes.get(name)
        said = {one.name: one.value for one in store.labels.of(name) if one.name in (RIGHT, SCORE)}
        turn = _answering(episode)
        if not said or turn is None or episode.removed or not episode.answer:
            continue
        score = float(said[SCORE]) if SCORE in said else float(said[RIGHT] == "right")
        right = said[RIGHT] == "right" if RIGHT in said else score >= 0.5
        task = {
            "task": episode.id,
            "question": episode.task.question,
            "family": "request",
            "grader": "recorded",
        }
        used = turn.reply.usage
        yield (
            task,
            {
                "task": episode.id,
                "model": turn.decision.model,
                "reply": episode.answer,
                "right": right,
                "score": score,
                "tokens_in": used.tokens_in,
                "tokens_out": used.tokens_out,
                **({} if used.cost_usd is None else {"cost": used.cost_usd}),
                "seconds": turn.reply.latency_s,
            },
        )


def _answering(episode: Episode) -> Turn | None:
    """The turn that gave the answer."""
    found = (
        turn
        for turn in reversed(episode.turns)
        if turn.answer_after == episode.answer and turn.answer_rule and Flag.NO_ANSWER not in turn.flags
    )
    return next(found, None)
