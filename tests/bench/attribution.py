"""How faithful attribution by words is: the words that are said to have made a choice taken away, against random ones.

    trinity bench attribution [--turns 300] [--share 0.1] [--gradients] [--json]

Turns of the sample runs' coordinators, from different episodes first. The tenth of a transcript's words that speak most
for a choice is removed, and as many random words; a choice flips where another pair of model and role becomes the
likeliest. Each figure is a mean with the ends of its 95 %
interval, clustered by episode; times have none. With --gradients the words are told apart as they are of encoders too
large to leave each word out: by integrated gradients.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from core.analysis.attribution import by_part, by_word, lead_of, without_words
from core.coordinator.coordinator import Coordinator
from core.coordinator.gradients import word_gradients
from core.draws import uniform
from core.episode import Decide, Episode, Role
from core.play.session import recorded_requests
from storage.files.interchange import import_runs
from storage.store import Store, open_store
from ui.runs import wiring


@dataclass(frozen=True, slots=True)
class Measured:
    """One turn: whether its choice flipped without the top and without random words, how far the lead moved (logits),
    and how long attribution took (seconds)."""

    episode: str
    checkpoint: str
    flip_top: bool
    flip_random: bool
    moved_top: float
    moved_random: float
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
    """So many turns of the stored coordinators, as many of each."""
    checkpoints = sorted(store.checkpoints.ids_with_episodes())
    policies = wiring.Policies(store, store.checkpoints.load(checkpoints[0]).models)
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
        else by_word(policy, request, chosen).words
    )
    words_s = time.perf_counter() - began
    n = max(1, round(share * len(words)))
    top = sorted(words, key=lambda one: -one.gives)[:n]
    order = np.argsort(uniform(f"bench/{episode.id}/{request.index}", len(words)))[:n]
    other = [words[int(place)] for place in order]
    leads = [
        lead_of(policy, one, chosen, found.rival)
        for one in policy.decide(
            [
                without_words(request, [(word.part, word.start, word.end) for word in some])
                for some in (top, other)
            ]
        )
    ]
    return Measured(
        episode.id,
        policy.checkpoint.id,
        leads[0].likeliest != chosen,
        leads[1].likeliest != chosen,
        found.full.value - leads[0].value,
        found.full.value - leads[1].value,
        parts_s,
        words_s,
    )


def _forget(policy: Coordinator) -> None:
    """Nothing that was read before shortens what is timed."""
    policy.encoder.forget()


def summed(found: Sequence[Measured]) -> dict[str, Any]:
    """The figures over all turns."""
    episodes = [one.episode for one in found]
    shares: dict[str, list[float]] = {
        "flip_top": [one.flip_top for one in found],
        "flip_random": [one.flip_random for one in found],
        "flip_difference": [one.flip_top - one.flip_random for one in found],
        "moved_top": [one.moved_top for one in found],
        "moved_random": [one.moved_random for one in found],
    }
    figures: dict[str, Any] = {name: _over_episodes(values, episodes) for name, values in shares.items()}
    for name, values in (
        ("parts", [one.parts_s for one in found]),
        ("words", [one.words_s for one in found]),
    ):
        figures[f"{name}_p50_ms"] = round(1000 * float(np.percentile(values, 50)), 1)
        figures[f"{name}_p95_ms"] = round(1000 * float(np.percentile(values, 95)), 1)
    return figures


def _over_episodes(values: Sequence[float], episodes: Sequence[str]) -> list[float]:
    """The mean of the episodes' means, and the ends of its interval by Student's t."""
    by_episode: dict[str, list[float]] = {}
    for value, name in zip(values, episodes, strict=True):
        by_episode.setdefault(name, []).append(float(value))
    means = np.array([np.mean(some) for some in by_episode.values()])
    half = float(stats.t.ppf(0.975, len(means) - 1)) * float(means.std(ddof=1)) / len(means) ** 0.5
    return [round(float(means.mean()) + end, 4) for end in (0.0, -half, half)]


if __name__ == "__main__":
    main()
