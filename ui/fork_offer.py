"""From an episode's turn, or a filter over many, to a plan of forks: what fits, by which pool, at what cost."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qsl

from core.deciders import changes
from core.episode import Episode, Role, Verdict
from core.errors import ConfigError, StoreError, TrinityError
from core.forking import (
    BASELINE,
    CHANGE,
    FORK,
    NUMBER,
    PART,
    PREFIX,
    Change,
    check,
    decided_by,
    left_to_play,
    prefix_digest,
    seed_of,
)
from core.policies import follows_cycle
from core.pool.costs import Estimate
from core.pool.spec import ModelSpec
from core.settings import POCKET
from storage import forks
from storage.filters import EpisodeFilter
from storage.forks import Child
from storage.mapping import removed
from storage.store import Store
from ui.fork_plan import LEFT_OUT, Branch, ForkPlan, made_by
from ui.live_form import pool_specs
from ui.spending import estimate

#: At most so many children of one kind per turn, and so many episodes at once.
MOST_CHILDREN, MOST_EPISODES = 64, 200

#: Flags that point to the turn that a batch forks.
BATCHES = {
    "false_accept": "the turn that accepted a wrong answer",
    "answer_broke": "the turn that lost a right answer",
}
#: Which turn of each episode a batch can fork, as its address says it in `at`; else by the flag it filters by.
PLACES = BATCHES | {
    "first": "the first turn",
    "last": "the last turn",
    "verifier": "the last turn of a Verifier",
}


def place_of(batch: str) -> str:
    """Which turn a batch forks, of PLACES; empty when its address does not say."""
    asked = dict(parse_qsl(batch))
    return next((place for place in (asked.get("at"), asked.get("flag")) if place in PLACES), "")


def turn_at(episode: Episode, place: str) -> int | None:
    """The turn of an episode at such a place; None when it has none."""
    turns = episode.turns
    last = len(turns) - 1
    match place:
        case "first":
            return 0 if turns else None
        case "last":
            return last if turns else None
        case "verifier":
            judged = (i for i in range(last, -1, -1) if turns[i].decision.role is Role.VERIFIER)
            return next(judged, None)
        case "false_accept":
            wrong = turns and turns[-1].verdict is Verdict.ACCEPT and turns[-1].correct_after is False
            return last if wrong else None
    grades = [turn.correct_after for turn in turns]
    broke = (i for i in range(1, len(grades)) if grades[i - 1] is True and grades[i] is False)
    return next(broke, None)


def found_by(store: Store, batch: str, most: int) -> list[tuple[str, int]]:
    """Episode ids and turns that a batch is about: the newest `most` that the filter's address finds and that have
    such a turn.

    ConfigError when it does not say which turn."""
    if not (place := place_of(batch)):
        raise ConfigError(
            "A batch of forks needs flag=false_accept or flag=answer_broke in its filter, or at= "
            f"{', '.join(PLACES)}."
        )
    where = EpisodeFilter.from_query(dict(parse_qsl(batch)))
    newest, _ = forks.originals(store, where, max(1, min(most, MOST_EPISODES)))
    ids = [one.id for one in newest]
    whole = forks.parents(store, ids)
    turns = [(one, turn_at(whole[one], place)) for one in ids if one in whole]
    return [(name, turn) for name, turn in turns if turn is not None]


def pool_of(store: Store, parent: Episode, chosen: str) -> str:
    """The pool an episode can go on with: the one it was played with where that can still be had, else the
    `chosen` one."""
    try:
        own = store.runs.get(parent.run_id).config.get("pool")
    except StoreError:
        return chosen
    if own == POCKET or (isinstance(own, str) and Path(own).is_file()):
        return own
    return chosen if chosen == POCKET else str(Path(chosen).resolve())


def digest_of(specs: Sequence[ModelSpec]) -> str:
    """What a pool's models hash to: children of pools that differ in it cannot stand for each other."""
    told = [
        (one.name, one.model, one.provider, one.base_url, one.dialect, one.temperature, one.max_tokens)
        + (sorted(one.role_temperature.items()), sorted(one.extra.items()))
        for one in specs
    ]
    return hashlib.sha256(json.dumps(told, default=str).encode()).hexdigest()[:16]


def plan_forks(
    store: Store,
    picks: Sequence[tuple[str, int]],
    change: Change,
    *,
    n: int,
    baseline: int,
    pool: str,
    specs: Sequence[ModelSpec],
    encoder: str | None = None,
    reuse: bool = True,
    batch: str = "",
) -> ForkPlan:
    """What is played when this change is made at these turns (episode id, 0-based turn).

    ConfigError, one sentence, when it makes no sense; in a batch, when it does so nowhere."""
    if not (1 <= n <= MOST_CHILDREN and 1 <= baseline <= MOST_CHILDREN):
        raise ConfigError(f"Play between 1 and {MOST_CHILDREN} forks, and as many of the baseline.")
    parents = forks.parents(store, [name for name, _ in picks])
    fitting, problem = _fitting(store, picks, parents, change, specs, bool(batch))
    if not fitting:
        raise ConfigError(problem or "No episode is found by this filter: nothing can be forked.")
    digest, digests = digest_of(specs), forks.digests(store, [parent.id for parent, _ in fitting])
    children = forks.of_parents(store, [parent.id for parent, _ in fitting]) if reuse else []
    branches = []
    for parent, turn in fitting:
        branch = _branch(store, parent, turn, change, n, baseline, digests[parent.id])
        branches.append(replace(branch, reused=_standing(parent, branch, change, digest, children)))
    return ForkPlan(
        change,
        tuple(branches),
        pool,
        digest,
        tuple(spec.name for spec in specs),
        encoder,
        batch=batch,
        question=fitting[0][0].task.question[:400],
        skipped=len(picks) - len(fitting),
    )


def more_of(store: Store, plan: ForkPlan, pairs: int) -> ForkPlan:
    """The same plan with so many more pairs per turn, up to MOST_CHILDREN; what was played stands. ConfigError when
    there is no room for more, or when it cannot be played any more."""
    n, baseline = (
        max(sizes) for sizes in zip(*((one.n, one.baseline) for one in plan.branches), strict=True)
    )
    pairs = min(pairs, MOST_CHILDREN - max(n, baseline))
    if pairs < 1:
        raise ConfigError(f"At most {MOST_CHILDREN} pairs are played at one turn, and these are there.")
    return replace(
        plan_forks(
            store,
            [(one.parent, one.turn) for one in plan.branches],
            plan.change,
            n=n + pairs,
            baseline=baseline + pairs,
            pool=plan.pool,
            specs=pool_specs(plan.pool),
            encoder=plan.encoder,
            batch=plan.batch,
        ),
        max_cost_usd=plan.max_cost_usd,
    )


def _fitting(
    store: Store,
    picks: Sequence[tuple[str, int]],
    parents: Mapping[str, Episode],
    change: Change,
    specs: Sequence[ModelSpec],
    lenient: bool,
) -> tuple[list[tuple[Episode, int]], str]:
    """The turns that can be forked so, and why the first of the others cannot; ConfigError unless `lenient`."""
    fitting: list[tuple[Episode, int]] = []
    problem = ""
    for name, turn in picks:
        try:
            if name not in parents:
                raise StoreError(f"The store holds no episode {name}: 'trinity episodes' lists those it has.")
            check(change, parents[name], turn)
            _playable(store, parents[name], turn, change, specs)
            fitting.append((parents[name], turn))
        except TrinityError as error:
            if not lenient:
                raise
            problem = problem or str(error)
    return fitting, problem


def _playable(store: Store, parent: Episode, turn: int, change: Change, specs: Sequence[ModelSpec]) -> None:
    """ConfigError unless this pool and the policies at hand can go on with the episode."""
    if day := removed(parent.meta, "prompts", "texts"):
        raise ConfigError(f"The texts of episode {parent.id} were removed on {day}: it cannot be played on.")
    by_name = {spec.name: spec for spec in specs}
    absent = [name for name in parent.models if name not in by_name]
    if absent:
        raise ConfigError(
            f"The pool has no model '{absent[0]}', with which episode {parent.id} was played: "
            "give the pool it was played with."
        )
    decided = decided_by(parent, turn)
    for policy in dict.fromkeys((decided, change.value if change.kind == "policy" else decided)):
        _known(store, parent, policy)
    model = parent.turns[turn].decision.model
    if change.kind == "temperature":
        spec = by_name[model]
        if spec.provider == "openai" and not spec.send_temperature:
            raise ConfigError(f"Model '{model}' is never sent a temperature (send_temperature in pool.toml).")
        if float(change.value) == spec.temperature_in(parent.turns[turn].decision.role):
            raise ConfigError(
                f"That changes nothing: '{model}' already writes at {change.value} in this role."
            )


def _known(store: Store, parent: Episode, policy: str) -> None:
    if policy == "random" or follows_cycle(policy):
        if policy.startswith("single:") and policy.removeprefix("single:") not in parent.models:
            raise ConfigError(f"There is no model '{policy.removeprefix('single:')}' in the pool.")
        return
    if not store.checkpoints.has(policy):
        raise ConfigError(
            f"Policy '{policy}' is not in this store, so nothing can be decided by it: bring its checkpoint in "
            "with 'trinity checkpoints import'."
        )
    config = store.checkpoints.get(policy).config
    if tuple(config.get("models", ())) != parent.models:
        raise ConfigError(f"Checkpoint {policy} chooses among other models than episode {parent.id}.")
    if config.get("protocol", parent.protocol) != parent.protocol:
        raise ConfigError(f"Checkpoint {policy} plays by other rules than episode {parent.id}.")


def _branch(
    store: Store, parent: Episode, turn: int, change: Change, n: int, baseline: int, digest: str
) -> Branch:
    try:
        config = store.runs.get(parent.run_id).config
    except StoreError:
        config = {}
    left = left_to_play(parent, turn, change)
    return Branch(
        parent.id,
        turn,
        prefix_digest(parent, turn),
        digest,
        n=n if left else 1,
        baseline=baseline,
        certain=not left,
        left_out=_left_out(parent, config),
        cycles=_cycles(parent, change, config),
    )


def _left_out(parent: Episode, config: Mapping[str, object]) -> tuple[str, ...]:
    """The models that were masked when the episode was played: of a live run by its plan, of a fork by itself."""
    told = json.loads(parent.meta[LEFT_OUT]) if LEFT_OUT in parent.meta else config.get("left_out")
    return tuple(str(name) for name in told) if isinstance(told, list) else ()


def _cycles(parent: Episode, change: Change, config: Mapping[str, object]) -> dict[str, tuple[str, ...]]:
    """The cycles of roles that the episode's run had chosen for the policies that follow one."""
    known: dict[str, object] = {}
    told = config.get("branches")
    for branch in told if isinstance(told, list) else ():
        known |= branch.get("cycles", {})
    own = config.get("cycles")
    known |= own if isinstance(own, dict) else {}
    wanted = {parent.policy, *changes(parent.meta).values()}
    wanted |= {change.value} if change.kind == "policy" else set()
    return {name: tuple(cycle) for name, cycle in known.items() if name in wanted and isinstance(cycle, list)}


def _standing(
    parent: Episode, branch: Branch, change: Change, pool_digest: str, children: Sequence[Child]
) -> dict[str, str]:
    """The children that need not be played again: same turns carried, same seed, played by the same."""
    found: dict[str, str] = {}
    for one in children:
        part, number = one.meta.get(PART), one.meta.get(NUMBER, "")
        if part not in (BASELINE, FORK) or not number.isdecimal() or one.correct is None:
            continue
        told = {PREFIX: branch.prefix, **made_by(change, part, pool_digest, branch.left_out)}
        same = all(one.meta.get(name) == value for name, value in told.items())
        in_charge = decided_by(parent, branch.turn)
        policy = change.value if part == FORK and change.kind == "policy" else in_charge
        budget = branch.turn if part == FORK and change.kind == "stop" else parent.turn_budget
        same &= (one.turn, one.summary.policy, one.turn_budget) == (branch.turn, policy, budget)
        same &= one.argmax == parent.argmax
        same &= one.meta.get(CHANGE) == (change.to_json() if part == FORK else None)
        most = branch.n if part == FORK else branch.baseline
        if same and int(number) < most and one.seed == seed_of(parent, branch.turn, int(number)):
            found[f"{part}/{number}"] = one.id
    return found


def most_of(plan: ForkPlan, specs: Sequence[ModelSpec], parents: Mapping[str, Episode]) -> Estimate:
    """The most that is asked for and paid: every child that is not there yet plays all its turns."""
    parts: list[Estimate] = []
    for branch in plan.branches:
        parent = parents[branch.parent]
        question = [parent.task.question + 3 * (plan.change.value if plan.change.kind == "reply" else "")]
        for part, change, n in ((BASELINE, None, branch.baseline), (FORK, plan.change, branch.n)):
            n -= sum(name.startswith(f"{part}/") for name in branch.reused)
            left = left_to_play(parent, branch.turn, change)
            first = parent.turn_budget - left
            parts.append(estimate(specs, n if left else 0, parent.turn_budget, question, first))
    costs = [one.cost_usd for one in parts]
    known = [cost for cost in costs if cost is not None]
    return Estimate(
        calls=sum(one.calls for one in parts),
        tokens_in=sum(one.tokens_in for one in parts),
        tokens_out=sum(one.tokens_out for one in parts),
        cost_usd=sum(known) if len(known) == len(costs) else None,
        unknown=tuple(dict.fromkeys(name for one in parts for name in one.unknown)),
    )
