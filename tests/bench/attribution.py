"""How faithful attribution by words is: the words named for a choice taken away, or kept alone, against other words.

    trinity bench attribution [--turns 300] [--share 0.1] [--gradients] [--json]

Turns of the sample runs' coordinators, from different episodes first; a head that is all zeros, as of generation 0,
cannot change its choice and is left out. The tenth of a transcript's words that speak most for a choice is removed,
and so are as many random words, and as many words with digits (all, where there are fewer); a choice flips where
another pair of model and role becomes the likeliest. That tells whether the named words are needed. Whether they
suffice is told by keeping them alone: `stays` is how often the choice is then the same, and with as many random words.
`numbers_among_top` and `numbers_among_all` are the shares of words with digits. Each figure is a mean with the ends of
its 95 % interval, clustered by task; times have none. With --gradients the words are told apart as they are of encoders
too large to leave each word out: by integrated gradients.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from core.analysis.attribution import (
    QUESTION,
    WordLeftOut,
    by_part,
    lead_of,
    leave_out,
    without_words,
    words_of,
)
from core.coordinator.coordinator import Coordinator
from core.coordinator.gradients import word_gradients
from core.draws import uniform
from core.episode import Decide, Episode, Role
from core.play.session import recorded_requests
from storage.files.interchange import import_runs
from storage.store import Store, open_store
from ui.runs import wiring
from ui.runs.policies import Policies


@dataclass(frozen=True, slots=True)
class Measured:
    """One turn: whether its choice flipped without the top words, without random and without number words, and stayed
    with the top, or random, words alone; how far the lead moved without them (logits); the shares of number words; and
    how long attribution took (seconds). `task` is its family and id."""

    task: str
    checkpoint: str
    flip_top: bool
    flip_random: bool
    flip_numbers: bool
    stays_top: bool
    stays_random: bool
    moved_top: float
    moved_random: float
    moved_numbers: float
    numbers_among_top: float
    numbers_among_all: float
    parts_s: float
    words_s: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="trinity bench attribution", description=__doc__)
    parser.add_argument("--turns", type=int, default=300)
    parser.add_argument("--share", type=float, default=0.1, help="of a transcript's words that are removed")
    parser.add_argument("--gradients", action="store_true", help="words by integrated gradients")
    parser.add_argument("--json", action="store_true", help="print JSON")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(Path(folder) / "samples.db")
        import_runs(store, wiring.SAMPLE_RUNS)
        found = measured(store, chosen.turns, chosen.share, gradients=chosen.gradients)
        store.close()
    figures: dict[str, Any] = {
        "checkpoints": len({one.checkpoint for one in found}),
        "turns": len(found),
        "measured": summed(found),
    }
    if chosen.json:
        print(json.dumps(figures))
        return
    for name, value in figures["measured"].items():
        print(f"{name}: {value}")


def measured(store: Store, turns: int, share: float, *, gradients: bool) -> list[Measured]:
    """So many turns of the stored coordinators whose head can tell anything apart, as many of each."""
    checkpoints = [
        one
        for one in sorted(store.checkpoints.policies_with_episodes())
        if store.checkpoints.load(one).head_vector.any()
    ]
    policies = Policies(store, store.checkpoints.load(checkpoints[0]).models)
    found: list[Measured] = []
    for checkpoint in checkpoints:
        policy = policies.coordinator(store.checkpoints.load(checkpoint))
        asked = _requests(store, checkpoint, -(-turns // len(checkpoints)))
        found += [
            _measured(policy, episode, request, share, gradients=gradients) for episode, request in asked
        ]
    return found


def _requests(store: Store, checkpoint: str, n: int) -> list[tuple[Episode, Decide]]:
    """Turns of a checkpoint, the first of every episode, then the second."""
    ids = [
        one.id
        for run in store.runs.list()
        for one in store.episodes.of_run(run.id)
        if one.policy == checkpoint
    ]
    episodes = [store.episodes.get(name) for name in sorted(ids)]
    some = [(one.index, episode, one) for episode in episodes for one in recorded_requests(episode)]
    return [(episode, request) for _, episode, request in sorted(some, key=lambda one: one[0])][:n]


def _measured(
    policy: Coordinator, episode: Episode, request: Decide, share: float, *, gradients: bool
) -> Measured:
    request = replace(request, key=f"bench/{request.key}")
    [decision] = policy.decide([request])
    chosen = decision.argmax_model, decision.argmax_role or Role.WORKER
    _forget(policy)
    began = time.perf_counter()
    found = by_part(policy, request, chosen)
    parts_s = time.perf_counter() - began
    _forget(policy)
    began = time.perf_counter()
    words = (
        [*word_gradients(policy, request, chosen, found.rival)][-1].words
        if gradients
        else leave_out(policy, request, found, words_of(request.transcript))
    )
    words_s = time.perf_counter() - began
    n = max(1, round(share * len(words)))
    top = sorted(words, key=lambda one: -one.gives)[:n]
    order = np.argsort(uniform(f"bench/{episode.id}/{request.index}", len(words)))[:n]
    other = [words[int(place)] for place in order]
    numbers = [one for one in words if _is_number(request, one)]
    drawn = np.argsort(uniform(f"bench/numbers/{episode.id}/{request.index}", len(numbers)))[:n]
    removed = (
        top,
        other,
        [numbers[int(place)] for place in drawn],
        [one for one in words if one not in top],
        [one for one in words if one not in other],
    )
    leads = [
        lead_of(policy, one, chosen, found.rival)
        for one in policy.decide(
            [without_words(request, [(word.part, word.start, word.end) for word in some]) for some in removed]
        )
    ]
    flips = [one.likeliest != chosen for one in leads]
    moved = [found.full.value - one.value for one in leads]
    return Measured(
        f"{episode.task.family}/{episode.task.id}",
        policy.checkpoint.id,
        flip_top=flips[0],
        flip_random=flips[1],
        flip_numbers=flips[2],
        stays_top=not flips[3],
        stays_random=not flips[4],
        moved_top=moved[0],
        moved_random=moved[1],
        moved_numbers=moved[2],
        numbers_among_top=sum(one in numbers for one in top) / n,
        numbers_among_all=len(numbers) / len(words),
        parts_s=parts_s,
        words_s=words_s,
    )


def _is_number(request: Decide, word: WordLeftOut) -> bool:
    transcript = request.transcript
    text = transcript.question if word.part == QUESTION else transcript.entries[word.part].text
    return any(char.isdigit() for char in text[word.start : word.end])


def _forget(policy: Coordinator) -> None:
    """Nothing that was read before shortens what is timed."""
    policy.encoder.forget()


def summed(found: Sequence[Measured]) -> dict[str, Any]:
    """The figures over all turns."""
    tasks = [one.task for one in found]
    names = [
        field.name
        for field in fields(Measured)
        if field.name not in ("task", "checkpoint", "parts_s", "words_s")
    ]
    shares: dict[str, list[float]] = {name: [float(getattr(one, name)) for one in found] for name in names}
    shares |= {
        "flip_top_less_random": [one.flip_top - one.flip_random for one in found],
        "flip_top_less_numbers": [one.flip_top - one.flip_numbers for one in found],
        "stays_top_less_random": [one.stays_top - one.stays_random for one in found],
    }
    figures: dict[str, Any] = {name: over_tasks(values, tasks) for name, values in shares.items()}
    for name, values in (
        ("parts", [one.parts_s for one in found]),
        ("words", [one.words_s for one in found]),
    ):
        figures[f"{name}_p50_ms"] = round(1000 * float(np.percentile(values, 50)), 1)
        figures[f"{name}_p95_ms"] = round(1000 * float(np.percentile(values, 95)), 1)
    return figures


def over_tasks(values: Sequence[float], tasks: Sequence[str]) -> list[float]:
    """The mean of the tasks' means, and the ends of its interval by Student's t: several checkpoints read one task, and
    several of its turns."""
    by_task: dict[str, list[float]] = {}
    for value, name in zip(values, tasks, strict=True):
        by_task.setdefault(name, []).append(float(value))
    means = np.array([np.mean(some) for some in by_task.values()])
    half = float(stats.t.ppf(0.975, len(means) - 1)) * float(means.std(ddof=1)) / len(means) ** 0.5
    return [round(float(means.mean()) + end, 4) for end in (0.0, -half, half)]


if __name__ == "__main__":
    main()
