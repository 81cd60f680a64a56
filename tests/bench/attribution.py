"""How faithful attribution by words is: the words named for a choice taken away, or kept alone, against other words.

Turns of the sample runs' coordinators, from different episodes first; a head that is all zeros, as of generation 0,
cannot change its choice and is left out. The tenth of a transcript's words that speak most for a choice is removed,
and so are as many random words, and as many words with digits (all, where there are fewer); a choice flips where
another pair of model and role becomes the likeliest. That tells whether the named words are needed. Whether they
suffice is told by keeping them alone: `stays` is how often the choice is then the same, and with as many random words.
`moved` is how far the lead fell (logits). `numbers_among_top` and `numbers_among_all` are the shares of words with
digits. Each figure is a mean with the ends of its 95 % interval, clustered by task; times have none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

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
from storage.store import Store
from tests.bench._frame import Figures, milliseconds, percentile, run, sample_store
from ui.runs.policies import Policies


def measure(
    turns: int = 300,
    share: Annotated[float, "of a transcript's words that are removed"] = 0.1,
    gradients: Annotated[
        bool, "words told apart by integrated gradients, as for encoders too large to leave each out"
    ] = False,
) -> Figures:
    """So many turns of the stored coordinators whose head can tell anything apart, as many of each."""
    tasks: list[str] = []
    found: dict[str, list[float]] = defaultdict(list)
    with sample_store() as store:
        played = sorted(store.checkpoints.policies_with_episodes())
        loaded = [store.checkpoints.load(name) for name in played if store.checkpoints.has(name)]
        checkpoints = [one for one in loaded if one.head_vector.any()]
        policies = Policies(store, checkpoints[0].models)
        for checkpoint in checkpoints:
            policy = policies.coordinator(checkpoint)
            for episode, request in _requests(store, checkpoint.id, -(-turns // len(checkpoints))):
                tasks.append(f"{episode.task.family}/{episode.task.id}")
                for name, value in _turn(policy, episode, request, share, gradients=gradients).items():
                    found[name].append(value)
    times = {name: found.pop(name) for name in ("parts", "words")}
    for name, other in (("flip", "random"), ("flip", "numbers"), ("stays", "random")):
        pairs = zip(found[f"{name}_top"], found[f"{name}_{other}"], strict=True)
        found[f"{name}_top_less_{other}"] = [top - less for top, less in pairs]
    measured: Figures = {name: over_tasks(values, tasks) for name, values in found.items()}
    for name, values in times.items():
        measured |= {f"{name}_p{percent}_ms": percentile(percent, values) for percent in (50, 95)}
    return {"checkpoints": len(checkpoints), "turns": len(tasks), "measured": measured}


def _requests(store: Store, checkpoint: str, n: int) -> list[tuple[Episode, Decide]]:
    """Turns of a checkpoint, the first of every episode, then the second."""
    ids = [
        one.id
        for run in store.runs.list()
        for one in store.episodes.of_run(run.id)
        if one.policy == checkpoint
    ]
    episodes = [store.episodes.get(name) for name in sorted(ids)]
    some = [(episode, one) for episode in episodes for one in recorded_requests(episode)]
    return sorted(some, key=lambda one: one[1].index)[:n]


def _turn(
    policy: Coordinator, episode: Episode, request: Decide, share: float, *, gradients: bool
) -> dict[str, float]:
    """The figures of one turn; times in milliseconds, with nothing that was read before to shorten them."""
    request = replace(request, key=f"bench/{request.key}")
    [decision] = policy.decide([request])
    chosen = decision.argmax_model, decision.argmax_role or Role.WORKER
    found: list[Any] = []
    policy.encoder.forget()
    parts_ms = milliseconds(lambda: found.append(by_part(policy, request, chosen)))
    [parts] = found

    def named() -> Sequence[WordLeftOut]:
        if gradients:
            return [*word_gradients(policy, request, chosen, parts.rival)][-1].words
        return leave_out(policy, request, parts, words_of(request.transcript))

    policy.encoder.forget()
    words_ms = milliseconds(lambda: found.append(named()))
    words: Sequence[WordLeftOut] = found[1]
    n = max(1, round(share * len(words)))
    numbers = [one for one in words if _is_number(request, one)]
    top = sorted(words, key=lambda one: -one.gives)[:n]
    other = _drawn(words, f"bench/{episode.id}/{request.index}", n)
    removed = {
        "top": top,
        "random": other,
        "numbers": _drawn(numbers, f"bench/numbers/{episode.id}/{request.index}", n),
        "but_top": [one for one in words if one not in top],
        "but_random": [one for one in words if one not in other],
    }
    shortened = [
        without_words(request, [(word.part, word.start, word.end) for word in some])
        for some in removed.values()
    ]
    leads = {
        name: lead_of(policy, one, chosen, parts.rival)
        for name, one in zip(removed, policy.decide(shortened), strict=True)
    }
    flips = {name: float(one.likeliest != chosen) for name, one in leads.items()}
    taken = ("top", "random", "numbers")
    return {
        **{f"flip_{name}": flips[name] for name in taken},
        **{f"stays_{name}": 1.0 - flips[f"but_{name}"] for name in ("top", "random")},
        **{f"moved_{name}": parts.full.value - leads[name].value for name in taken},
        "numbers_among_top": sum(one in numbers for one in top) / n,
        "numbers_among_all": len(numbers) / len(words),
        "parts": parts_ms,
        "words": words_ms,
    }


def _drawn(words: Sequence[WordLeftOut], key: str, n: int) -> list[WordLeftOut]:
    return [words[int(place)] for place in np.argsort(uniform(key, len(words)))[:n]]


def _is_number(request: Decide, word: WordLeftOut) -> bool:
    transcript = request.transcript
    text = transcript.question if word.part == QUESTION else transcript.entries[word.part].text
    return any(char.isdigit() for char in text[word.start : word.end])


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
    run(measure)
