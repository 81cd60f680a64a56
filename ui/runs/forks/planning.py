"""From an episode's turn, or a filter over many, to a plan of forks: what fits, by which pool, at what cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qsl

from core.analysis.head_lens import runner_up
from core.analysis.luck import MOST_PLAYS
from core.episode import FORK, ROLE_ORDER, Change, ChangeKind, Episode, Fork, Role, Status, Verdict
from core.errors import ConfigError, StoreError, TrinityError
from core.play.forking import (
    check_change,
    child_seed,
    decided_by,
    forked_turn,
    possible_changes,
    prefix_digest,
    right_reply,
    stands,
    turns_anew,
    turns_left,
)
from core.play.policies import Cycle, needs_no_checkpoint
from core.pool.spec import ModelSpec, digest_of_specs
from core.settings import POCKET_POOL
from storage.filters.episode_filter import EpisodeFilter
from storage.reads import forks
from storage.reads.forks import Child
from storage.store import Store
from ui.presentation.words import turns_words
from ui.runs.plans import Branch, ForkPlan, LivePlan, PooledPlan, RunPlan, ServePlan, known_plan
from ui.runs.settings import absolute_pool
from ui.runs.settings.batch import BatchPlan
from ui.runs.wiring import pool_specs

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


def place_in_address(batch: str) -> str:
    """Which turn a batch forks, of PLACES; empty when its address does not say."""
    query = dict(parse_qsl(batch))
    return next((place for place in (query.get("at"), query.get("flag")) if place in PLACES), "")


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
    if not (place := place_in_address(batch)):
        raise ConfigError(
            "A batch of forks needs flag=false_accept or flag=answer_broke in its filter, or at= "
            f"{', '.join(PLACES)}."
        )
    where = EpisodeFilter.from_query(dict(parse_qsl(batch)))
    newest, _ = forks.newest_episodes(store, where, max(1, min(most, MOST_EPISODES)))
    ids = [one.id for one in newest]
    episodes = forks.parents(store, ids)
    turns = [(one, turn_at(episodes[one], place)) for one in ids if one in episodes]
    return [(name, turn) for name, turn in turns if turn is not None]


def pool_of(store: Store, parent: Episode, chosen: str) -> str:
    """The pool an episode can go on with: its own where that can still be had, else the `chosen` one."""
    plan = _plan_behind(store, parent)
    own = plan.pool if isinstance(plan, PooledPlan | ServePlan) else ""
    if own == POCKET_POOL or Path(own).is_file():
        return own
    return absolute_pool(chosen)


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
        raise ConfigError(problem or "No episode matches this filter: there is nothing to fork.")
    digest, digests = (
        digest_of_specs(specs),
        forks.episode_digests(store, [parent.id for parent, _ in fitting]),
    )
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


def plan_every_turn(
    store: Store,
    episode_id: str,
    *,
    n: int,
    pool: str,
    specs: Sequence[ModelSpec],
    encoder: str | None = None,
    right_replies: bool = False,
) -> ForkPlan:
    """What is played to find out which turn of an episode mattered: from every turn the unchanged choice and its
    runner-up, or a right reply, each n times. ConfigError, one sentence, when that makes sense at no turn."""
    if not 1 <= n <= MOST_CHILDREN:
        raise ConfigError(f"Play between 1 and {MOST_CHILDREN} forks at each turn.")
    parents = forks.parents(store, [episode_id])
    if episode_id not in parents:
        raise StoreError(f"The store holds no episode {episode_id}: 'trinity episodes' lists those it has.")
    parent, digest = parents[episode_id], digest_of_specs(specs)
    if not parent.task.answer:
        raise ConfigError(
            f"The problem of episode {episode_id} has no expected answer, so nothing can tell which turn "
            "mattered: play it with its answer."
        )
    own_digest = forks.episode_digests(store, [episode_id])[episode_id]
    children, branches = forks.of_parents(store, [episode_id]), []
    for turn in range(len(parent.turns)):
        change = right_reply(parent, turn) if right_replies else runner_up_change(parent, turn)
        if change is None:
            continue
        _playable(store, parent, turn, change, specs)
        branch = replace(_branch(store, parent, turn, change, n, n, own_digest), change=change)
        branches.append(replace(branch, reused=_standing(parent, branch, change, digest, children)))
    if not branches:
        raise ConfigError(
            f"At no turn of episode {episode_id} is a right reply known that it did not have."
            if right_replies
            else f"At no turn of episode {episode_id} is a runner-up recorded: its policy gives no odds, or nothing "
            "else was allowed."
        )
    assert branches[0].change is not None
    return ForkPlan(
        branches[0].change,
        tuple(branches),
        pool,
        digest,
        tuple(spec.name for spec in specs),
        encoder,
        question=parent.task.question[:400],
        skipped=len(parent.turns) - len(branches),
        every_turn=episode_id,
        right_replies=right_replies,
    )


def plan_luck(store: Store, episode_id: str, *, encoder: str | None = None) -> ForkPlan:
    """What is played to find out whether the ending of an episode was luck: the episode from its first turn on, with
    nothing changed, MOST_PLAYS times at most, by the models that played it. ConfigError or StoreError, one sentence,
    where that cannot be done."""
    parents = forks.parents(store, [episode_id])
    if episode_id not in parents:
        raise StoreError(f"The store holds no episode {episode_id}: 'trinity episodes' lists those it has.")
    parent = parents[episode_id]
    _check_replayable(parent)
    pool = _own_pool(store, parent)
    specs = pool_specs(pool)
    digest = digest_of_specs(specs)
    if store.runs.noted_pool(parent.run_id) not in (None, digest):
        raise ConfigError(
            f"Episode {episode_id} cannot be replayed unchanged: the models of {Path(pool).name}, with which it was "
            "played, or their settings have changed since."
        )
    _playable(store, parent, 0, None, specs)
    own_digest = forks.episode_digests(store, [episode_id])[episode_id]
    branch = _branch(store, parent, 0, None, 0, MOST_PLAYS, own_digest)
    if parent.plans:
        branch = replace(branch, anew=tuple(turn.index for turn in parent.turns))
    branch = replace(
        branch, n=0, reused=_standing(parent, branch, None, digest, forks.of_parents(store, [episode_id]))
    )
    names = tuple(spec.name for spec in specs)
    return ForkPlan(None, (branch,), pool, digest, names, encoder, question=parent.task.question[:400])


def _check_replayable(parent: Episode) -> None:
    """ConfigError unless an episode could be played again as it was, and then be judged."""
    forked_turn(parent, 0)
    why = ""
    by_hand = [turn.index for turn in parent.turns if turn.decision.origin == "override"]
    if parent.status is not Status.FINISHED:
        why = "it was not played to its end"
    elif not parent.task.answer:
        why = "no right answer to its problem is known"
    elif parent.fork is not None:
        why = (
            "it is a fork itself, in which turns are kept or changed by hand; ask it of the recorded episode"
        )
    elif by_hand:
        why = f"a person chose who took {turns_words(by_hand)}, which no replay would do"
    elif parent.deciders:
        why = "another coordinator took over in its course, which no replay would do"
    elif len({plan.round for plan in parent.plans}) > 1:
        why = "its planner wrote a further workflow after it had read replies, which would have been others"
    if why:
        raise ConfigError(f"Episode {parent.id} cannot be replayed unchanged: {why}.")


def _own_pool(store: Store, parent: Episode) -> str:
    """The pool that an episode was played with. ConfigError where that is not known, or not on this machine."""
    plan, why = _plan_behind(store, parent), ""
    pool = plan.pool if isinstance(plan, PooledPlan | ServePlan) else ""
    if not pool:
        why = "with which models it was played is not recorded, as of imported episodes"
    elif pool != POCKET_POOL and not (Path(pool).is_absolute() and Path(pool).is_file()):
        # An imported run names the file alone: one of that name in some folder need not be it.
        why = f"the pool that it was played with, {Path(pool).name}, is not on this machine"
    elif isinstance(plan, LivePlan) and plan.temperature is not None:
        why = f"its models were asked at a temperature of {plan.temperature:g}, which a replay would not keep"
    if why:
        raise ConfigError(f"Episode {parent.id} cannot be replayed unchanged: {why}.")
    return pool


def runner_up_change(parent: Episode, index: int) -> Change | None:
    """The likeliest other model, or the likeliest other role, whichever was less behind; None where the decision has
    no odds, or neither makes sense at this turn."""
    decision, possible = forked_turn(parent, index).decision, possible_changes(parent, index)
    sides: tuple[tuple[ChangeKind, Sequence[str], str, Sequence[float], Sequence[bool]], ...] = (
        ("model", parent.models, decision.model, decision.model_probs, decision.model_mask),
        ("role", ROLE_ORDER, decision.role, decision.role_probs, decision.role_mask),
    )
    found: list[tuple[float, Change]] = []
    for kind, names, chosen, probs, mask in sides:
        place = names.index(chosen)
        other = runner_up(probs, place, mask) if probs and kind in possible else None
        if other is not None and probs[other] > 0:
            found.append((probs[other] / probs[place], Change(kind, str(names[other]))))
    return max(found, key=lambda one: one[0])[1] if found else None


def more_of(store: Store, plan: ForkPlan, pairs: int) -> ForkPlan:
    """A plan with so many more pairs per turn, up to MOST_CHILDREN; what was played stands. ConfigError when
    there is no room for more, when it cannot be played any more, or when it has no pairs."""
    if plan.change is None:
        raise ConfigError(f"An episode is replayed unchanged at most {MOST_PLAYS} times.")
    n, baseline = max(one.n for one in plan.branches), max(one.baseline for one in plan.branches)
    pairs = min(pairs, MOST_CHILDREN - max(n, baseline))
    if pairs < 1:
        raise ConfigError(f"This turn has {MOST_CHILDREN} pairs already, the most that one turn can have.")
    if plan.every_turn:
        more = plan_every_turn(
            store,
            plan.every_turn,
            n=n + pairs,
            pool=plan.pool,
            specs=pool_specs(plan.pool),
            encoder=plan.encoder,
            right_replies=plan.right_replies,
        )
        return replace(more, max_cost_usd=plan.max_cost_usd)
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
            check_change(change, parents[name], turn)
            _playable(store, parents[name], turn, change, specs)
            fitting.append((parents[name], turn))
        except TrinityError as error:
            if not lenient:
                raise
            problem = problem or str(error)
    return fitting, problem


def _playable(
    store: Store, parent: Episode, turn: int, change: Change | None, specs: Sequence[ModelSpec]
) -> None:
    """ConfigError unless this pool and the policies at hand can go on with the episode."""
    if day := parent.removed.get("prompts", parent.removed.get("texts")):
        raise ConfigError(
            f"The texts of episode {parent.id} were removed on {day}, so it cannot be continued."
        )
    if parent.protocol is None:
        raise ConfigError(
            f"Episode {parent.id} does not record its protocol, so it cannot be continued under the same one."
        )
    by_name = {spec.name: spec for spec in specs}
    absent = [name for name in parent.models if name not in by_name]
    if absent:
        raise ConfigError(
            f"The pool has no model '{absent[0]}', with which episode {parent.id} was played: "
            "give the pool it was played with."
        )
    if parent.plans:  # all is planned, so whoever planned it is not asked
        return
    decided = decided_by(parent, turn)
    for policy in dict.fromkeys((decided, change.value if change and change.kind == "policy" else decided)):
        _known(store, parent, policy)
    model = parent.turns[turn].decision.model
    if change is not None and change.kind == "temperature":
        spec = by_name[model]
        if spec.provider == "openai" and not spec.send_temperature:
            raise ConfigError(f"Model '{model}' is never sent a temperature (send_temperature in pool.toml).")
        if float(change.value) == spec.temperature_in(parent.turns[turn].decision.role):
            raise ConfigError(
                f"That changes nothing: '{model}' already writes at {change.value} in this role."
            )


def _known(store: Store, parent: Episode, policy: str) -> None:
    if needs_no_checkpoint(policy, parent.models):
        return
    if policy.startswith("single:"):
        raise ConfigError(f"There is no model '{policy.removeprefix('single:')}' in the pool.")
    if not store.checkpoints.has(policy):
        raise ConfigError(
            f"The store holds no policy '{policy}': bring its checkpoint in with 'trinity checkpoints "
            "import'."
        )
    config = store.checkpoints.get(policy).config
    if tuple(config.get("models", ())) != parent.models:
        raise ConfigError(f"Checkpoint {policy} chooses among other models than episode {parent.id}.")
    if config.get("protocol", parent.protocol) != parent.protocol:
        raise ConfigError(f"Checkpoint {policy} plays by other rules than episode {parent.id}.")


def _branch(
    store: Store, parent: Episode, turn: int, change: Change | None, n: int, baseline: int, digest: str
) -> Branch:
    plan = _plan_behind(store, parent)
    left = turns_left(parent, turn, change)
    return Branch(
        parent.id,
        turn,
        prefix_digest(parent, turn),
        digest,
        n=n if left else 1,
        baseline=baseline,
        certain=not left,
        anew=turns_anew(parent, turn),
        # Live runs knew the masked models before episodes said so themselves.
        left_out=parent.left_out or (plan.left_out if isinstance(plan, LivePlan) else ()),
        cycles=_cycles(parent, change, plan),
    )


def _plan_behind(store: Store, parent: Episode) -> RunPlan | None:
    """What the episode was played by; None where its run is gone or does not say."""
    try:
        return known_plan(store.runs.get(parent.run_id))
    except StoreError:
        return None


def _cycles(parent: Episode, change: Change | None, plan: RunPlan | None) -> dict[str, Cycle]:
    """The cycles of roles that the episode's run had chosen for the policies that follow one."""
    known: dict[str, Cycle] = {}
    for one in plan.branches if isinstance(plan, ForkPlan) else [plan] if isinstance(plan, BatchPlan) else []:
        known |= one.cycles
    wanted = {parent.policy, *parent.deciders.values()}
    wanted |= {change.value} if change and change.kind == "policy" else set()
    return {name: cycle for name, cycle in known.items() if name in wanted}


def _standing(
    parent: Episode, branch: Branch, change: Change | None, pool_digest: str, children: Sequence[Child]
) -> dict[str, str]:
    """The children that need not be played again: same turns carried, same seed, played by the same."""
    found: dict[str, str] = {}
    for one in children:
        part, number = one.fork.part, one.fork.number
        if number is None or one.correct is None:
            continue
        own = change if part == FORK else None
        held = stands(change, part)
        wanted = Fork(parent.id, branch.turn, own, number, branch.prefix, pool_digest, held)
        in_charge = decided_by(parent, branch.turn)
        policy = change.value if part == FORK and change and change.kind == "policy" else in_charge
        budget = branch.turn if part == FORK and change and change.kind == "stop" else parent.turn_budget
        same = (one.fork, one.left_out, one.summary.policy) == (wanted, branch.left_out, policy)
        same &= (one.turn_budget, one.argmax) == (budget, parent.argmax)
        most = branch.n if part == FORK else branch.baseline
        if same and number < most and one.seed == child_seed(parent, branch.turn, number):
            found[f"{part}/{number}"] = one.id
    return found
