"""How often a rule that plays nothing names the decisive turn of a failure, which playing on from every turn finds.

Failed episodes of the sample runs' coordinators. From every turn the unchanged choice, its runner-up and a right reply
are played n times each; the decisive turn is the earliest at which the runner-up or a right reply ends right more often
than not and the unchanged choice does not (the definition of arXiv 2505.00212). A right reply is the known answer of a
Worker or the verdict that the answer deserves: what a right plan would be, nobody knows. Beside the rule of
`core.analysis.blame` stand the last Worker, the first wrong answer and a turn at random. Shares are of the failures
that have a decisive turn, with 95 % intervals (Wilson).

With --key the failures are the 30 of `failure_key.json`: 18 of the sample's last checkpoint and 12 of an earlier one,
evenly spread over their failures. Its turns were written down by reading the episodes, before any rule was run on them:
the turn where the wrong value that stands at the end came in after the last right answer, or the wrong plan that it
came from. Then the decisive turn and every rule are also put against the key.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from core.analysis.blame import blame
from core.analysis.metrics import wilson_interval
from core.draws import uniform
from core.episode import Episode, Role
from core.errors import ConfigError
from storage.store import Store
from tests.bench._frame import Figures, run, sample_store
from ui.runs import wiring
from ui.runs.forks.planning import plan_every_turn
from ui.runs.forks.play import prepare
from ui.runs.forks.results import by_turn, decisive, read_results
from ui.runs.lease import owner
from ui.runs.play import play
from ui.runs.queue import Ticket, enqueue


def measure(
    episodes: int = 150,
    n: Annotated[int, "plays from each turn, of either choice"] = 5,
    key: Annotated[bool, "the failures whose turns somebody wrote down"] = False,
) -> Figures:
    """Play on from every turn of the failures, and hold the rules against what that finds."""
    written = read_key() if key else {}
    with sample_store() as store:
        failed = [store.episodes.get(name) for name in written or _failed(store, episodes)]
        ways = {
            name: {one.id: _turned(store, one, n, right_replies=right) for one in failed}
            for name, right in (("runner-up", False), ("right reply", True))
        }
    earliest = {
        one.id: min((turn for of in ways.values() if (turn := of[one.id]) is not None), default=None)
        for one in failed
    }
    figures: Figures = {"episodes": len(failed)}
    figures |= {name: summed(failed, of) for name, of in {"either": earliest, **ways}.items()}
    if written:
        figures["against the key"] = against_key(failed, earliest, written)
    return figures


def _failed(store: Store, most: int) -> list[str]:
    """Failed episodes of coordinators that have turns with odds, as they come: of every coordinator some, and of every
    family."""
    coordinators = store.checkpoints.policies_with_episodes()
    listed = [one for run in store.runs.list() for one in store.episodes.of_run(run.id)]
    ids = [one.id for one in listed if one.policy in coordinators and one.correct is False]
    order = uniform("bench/failure", len(ids))
    return [ids[place] for place in sorted(range(len(ids)), key=lambda i: order[i])[:most]]


def _turned(store: Store, episode: Episode, n: int, *, right_replies: bool) -> int | None:
    """The earliest turn, from 0, at which the runner-up, or a right reply, turns the ending round; None for none."""
    specs = wiring.pool_specs("pocket")
    try:
        plan = plan_every_turn(
            store, episode.id, n=n, pool="pocket", specs=specs, right_replies=right_replies
        )
    except ConfigError:  # nothing else could have been chosen or said anywhere
        return None
    run, _ = enqueue(store, plan, Ticket(), owner=owner())
    for _ in play(store, run, prepare(store, plan)):
        pass
    found = decisive(by_turn(plan, read_results(store, run, plan)), recorded_right=False)
    return None if found is None else found.turn


def named(episode: Episode) -> dict[str, int | None]:
    """The turn that each rule names."""
    workers = [turn.index for turn in episode.turns if turn.decision.role is Role.WORKER]
    wrong = [turn.index for turn in episode.turns if turn.correct_after is False]
    told = blame(episode)
    return {
        "rule": None if told is None else told.turn,
        "last worker": workers[-1] if workers else None,
        "first wrong answer": wrong[0] if wrong else None,
        "random turn": int(uniform(f"bench/failure/{episode.id}", 1)[0] * len(episode.turns)),
    }


def summed(failed: Sequence[Episode], turns: Mapping[str, int | None]) -> dict[str, Any]:
    """How many failures have a decisive turn, and of these how often each rule names it, and its model."""
    known = [(one, turn) for one in failed if (turn := turns[one.id]) is not None]
    figures: dict[str, Any] = {"decisive": len(known)}
    for rule in named(failed[0]) if failed else ():
        told = [(one, turn, named(one)[rule]) for one, turn in known]
        same = sum(guess == turn for _, turn, guess in told)
        model = sum(
            guess is not None and one.turns[guess].decision.model == one.turns[turn].decision.model
            for one, turn, guess in told
        )
        figures[rule] = {"turn": _share(same, len(known)), "model": _share(model, len(known))}
    return figures


def read_key() -> dict[str, int]:
    """The turn, from 0, that a reader named for each of some episodes."""
    lines = json.loads(Path(__file__).with_name("failure_key.json").read_text())
    return {line["episode"]: line["turn"] - 1 for line in lines}


def against_key(
    failed: Sequence[Episode], turns: Mapping[str, int | None], key: Mapping[str, int]
) -> dict[str, Any]:
    """How often each rule, and the decisive turn where there is one, is the turn that the reader named; and which
    episodes the rule gets wrong, as (episode, the reader's turn, the rule's)."""
    guesses = {one.id: named(one) for one in failed}
    found: dict[str, Any] = {
        rule: _share(sum(guesses[one][rule] == turn for one, turn in key.items()), len(key))
        for rule in next(iter(guesses.values()))
    }
    known = [(one, turn) for one, turn in key.items() if turns[one] is not None]
    found["decisive"] = _share(sum(turns[one] == turn for one, turn in known), len(known))
    missed = [(one, turn, guesses[one]["rule"]) for one, turn in key.items() if guesses[one]["rule"] != turn]
    found["missed"] = [(one, turn + 1, None if guess is None else guess + 1) for one, turn, guess in missed]
    return found


def _share(right: int, n: int) -> list[float]:
    low, high = wilson_interval(right, n)
    return [round(right / n if n else 0.0, 3), round(low, 3), round(high, 3)]


if __name__ == "__main__":
    run(measure)
