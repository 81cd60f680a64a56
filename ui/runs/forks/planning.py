"""From an episode's turn, or a filter over many, to a plan of forks: what fits, by which pool; and which forks cannot
change the answer, found before they are played."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from core.analysis.head_lens import runner_up
from core.analysis.power import MOST_PLAYS
from core.changes import FORK, Change, ChangeKind, Fork
from core.conduct.prompts import Reach, reach_of
from core.episode import ROLE_ORDER, Episode, Role, Status, Verdict
from core.errors import ConfigError, StoreError, TrinityError
from core.play.forked_steps import forked_step
from core.play.forking import (
    check_change,
    check_kept,
    child_seed,
    decider_of_turn,
    forked_turn,
    is_held,
    keeps_answer,
    possible_changes,
    prefix_digest,
    replayed_turns,
    right_reply,
    turns_left,
)
from core.play.policies import Cycle, needs_no_checkpoint
from core.pool.spec import ModelSpec, digest_of_specs, slots_of
from storage.filters.episode_filter import EpisodeFilter
from storage.reads import forks
from storage.reads.forks import Child
from storage.store import Store
from ui.presentation.theme import one_line
from ui.presentation.words import role_word, turns_words
from ui.runs.plans import Branch, ForkPlan, LivePlan, PooledPlan, RunPlan, ServePlan, known_plan
from ui.runs.policies import pupil_of
from ui.runs.policy_kinds import POLICIES
from ui.runs.settings import absolute_pool
from ui.runs.settings.batch import BatchPlan
from ui.runs.settings.forks import MOST_CHILDREN, MOST_EPISODES
from ui.runs.wiring import is_here, pool_specs, settings

#: An episode, one of its turns (0-based), and what is changed there; None where nothing is.
ChangedTurn = tuple[Episode, int, Change | None]
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
            return max((one.index for one in turns if one.step is None or one.counts), default=None)
        case "verifier":
            judged = (i for i in range(last, -1, -1) if turns[i].decision.role is Role.VERIFIER)
            return next(judged, None)
        case "false_accept":
            wrong = turns and turns[-1].verdict is Verdict.ACCEPT and turns[-1].correct_after is False
            return last if wrong else None
    grades = [turn.correct_after for turn in turns]
    broke = (i for i in range(1, len(grades)) if grades[i - 1] is True and grades[i] is False)
    return next(broke, None)


def find_turns(store: Store, batch: str, most: int) -> list[tuple[str, int]]:
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
    if is_here(own):
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
    anew: bool = False,
    batch: str = "",
) -> ForkPlan:
    """What is played when this change is made at these turns (episode id, 0-based turn); `anew`: also what the store
    already holds.

    ConfigError, one sentence, when it makes no sense; in a batch, when it does so nowhere."""
    if not (1 <= n <= MOST_CHILDREN and 1 <= baseline <= MOST_CHILDREN):
        raise ConfigError(f"Play between 1 and {MOST_CHILDREN} forks, and as many of the baseline.")
    parents = forks.parents(store, [name for name, _ in picks])
    turns: list[ChangedTurn] = []
    problem = ""
    for name, turn in picks:
        try:
            parent = _held(parents, name)
            check_change(change, parent, turn)
            _check_playable(store, parent, turn, change, specs)
            turns.append((parent, turn, change))
        except TrinityError as error:
            if not batch:
                raise
            problem = problem or str(error)
    if not turns:
        raise ConfigError(problem or "No episode matches this filter: there is nothing to fork.")
    skipped = len(picks) - len(turns)
    return _plan(store, turns, n, baseline, pool, specs, encoder, anew=anew, batch=batch, skipped=skipped)


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
    parent = _held(forks.parents(store, [episode_id]), episode_id)
    if not parent.task.answer:
        raise ConfigError(
            f"The problem of episode {episode_id} has no expected answer, so nothing can tell which turn "
            "mattered: play it with its answer."
        )
    change_at = right_reply if right_replies else runner_up_change
    changes = [change_at(parent, turn) for turn in range(len(parent.turns))]
    turns = [(parent, turn, change) for turn, change in enumerate(changes) if change is not None]
    for _, turn, change in turns:
        _check_playable(store, parent, turn, change, specs)
    if not turns:
        raise ConfigError(
            f"At no turn of episode {episode_id} is a right reply known that it did not have."
            if right_replies
            else f"At no turn of episode {episode_id} is a runner-up recorded: its policy gives no odds, or nothing "
            "else was allowed."
        )
    about: dict[str, Any] = {"every_turn": episode_id, "right_replies": right_replies}
    return _plan(store, turns, n, n, pool, specs, encoder, skipped=len(changes) - len(turns), **about)


def plan_luck(store: Store, episode_id: str, *, encoder: str | None = None) -> ForkPlan:
    """What is played to find out whether the ending of an episode was luck: the episode from its first turn on, with
    nothing changed, MOST_PLAYS times at most, by the models that played it. ConfigError or StoreError, one sentence,
    where that cannot be done."""
    parent = _held(forks.parents(store, [episode_id]), episode_id)
    pool = _replayed_pool(store, parent)
    specs = pool_specs(pool)
    if store.runs.noted_pool(parent.run_id) != digest_of_specs(specs):
        raise ConfigError(
            f"Episode {episode_id} cannot be replayed unchanged: the models of {Path(pool).name}, with which it was "
            "played, or their settings have changed since."
        )
    _check_playable(store, parent, 0, None, specs)
    if all(spec.repeats for spec in slots_of(specs)) and not any(
        turn.decision.sampled for turn in parent.turns
    ):
        raise ConfigError(
            "Recorded replies do not change, and no choice was drawn: it would come out the same again."
        )
    return _plan(store, [(parent, 0, None)], 0, MOST_PLAYS, pool, specs, encoder)


def _held(parents: Mapping[str, Episode], name: str) -> Episode:
    """The episode of an id; StoreError for one that is gone."""
    if name not in parents:
        raise StoreError(f"The store holds no episode {name}: 'trinity episodes' lists those it has.")
    return parents[name]


def _replayed_pool(store: Store, parent: Episode) -> str:
    """The pool with which an episode is played again as it was, and can be judged then: its own. ConfigError where that
    cannot be."""
    forked_turn(parent, 0)
    plan = _plan_behind(store, parent)
    pool = plan.pool if isinstance(plan, PooledPlan | ServePlan) else ""
    by_hand = [turn.index for turn in parent.turns if turn.decision.origin == "override"]
    why = ""
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
    elif not pool:
        why = "with which models it was played is not recorded, as of imported episodes"
    elif not is_here(pool):
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
    played_by: dict[str, Any] = {
        "pool": plan.pool,
        "specs": pool_specs(plan.pool),
        "encoder": plan.encoder,
        "n": n + pairs,
    }
    if plan.every_turn:
        more = plan_every_turn(store, plan.every_turn, right_replies=plan.right_replies, **played_by)
    else:
        picks = [(one.parent, one.turn) for one in plan.branches]
        more = plan_forks(store, picks, plan.change, baseline=baseline + pairs, batch=plan.batch, **played_by)
    return replace(more, max_cost_usd=plan.max_cost_usd, computing=plan.computing, engine=plan.engine)


def _check_playable(
    store: Store, parent: Episode, turn: int, change: Change | None, specs: Sequence[ModelSpec]
) -> None:
    """ConfigError unless this pool and the policies at hand can go on with the episode."""
    by_name = {spec.name: spec for spec in specs}
    check_kept(parent, by_name.get(change.value) if change and change.kind == "model" else None)
    if change is not None and change.kind in ("model", "role"):
        own = parent.turns[turn].decision
        model = change.value if change.kind == "model" else own.model
        role = change.value if change.kind == "role" else own.role
        if (spec := by_name.get(model)) is not None and not spec.can_answer(parent.task.id):
            raise ConfigError(
                f"{model} has no recorded reply to the task of episode {parent.id}: choose another."
            )
        if spec is not None and not parent.plans and role not in spec.roles:
            raise ConfigError(
                f"{model} cannot be asked as {role_word(Role(role))}: its outcome table holds nothing of that kind."
            )
    absent = [name for name in parent.models if name not in by_name]
    if absent:
        raise ConfigError(
            f"The pool has no model '{absent[0]}', with which episode {parent.id} was played: "
            "give the pool it was played with."
        )
    if parent.plans:  # all is planned, so whoever planned it is not asked
        return
    decided = decider_of_turn(parent, turn)
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


def why_no_fork(policy: str, models: Sequence[str], *, recorded: bool) -> str:
    """Why nothing can be played on from an episode of a policy that learns before it plays, in a sentence; empty for
    any other policy. `recorded`: its models' replies are."""
    try:
        learns = policy.partition(":")[0] in POLICIES and pupil_of(policy, models) is not None
    except TrinityError:  # an imported name, which means nothing here
        learns = False
    if not learns:
        return ""
    name = one_line(policy, 60)
    if recorded:
        return (
            f"Recorded replies do not change, and {name} would ask the same models again: nothing would be drawn anew, "
            "so there is no fork to play."
        )
    return (
        f"{name} learns from other tasks before it plays, which only trinity run does, so there is no fork to play: "
        "run it again with another --seed."
    )


def _known(store: Store, parent: Episode, policy: str) -> None:
    if needs_no_checkpoint(policy, parent.models):
        return
    if policy.startswith("single:"):
        raise ConfigError(f"There is no model '{policy.removeprefix('single:')}' in the pool.")
    if why := why_no_fork(policy, parent.models, recorded=any(turn.reply.recorded for turn in parent.turns)):
        raise ConfigError(why)
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


def _plan(
    store: Store,
    turns: Sequence[ChangedTurn],
    n: int,
    baseline: int,
    pool: str,
    specs: Sequence[ModelSpec],
    encoder: str | None,
    *,
    anew: bool = False,
    **about: Any,
) -> ForkPlan:
    """The plan of these forked turns, with the children that the store holds already unless all are played `anew`;
    `about` are further fields of it."""
    names = list(dict.fromkeys(parent.id for parent, _, _ in turns))
    pool_digest, digests = digest_of_specs(specs), forks.episode_digests(store, names)
    children = [] if anew else forks.of_parents(store, names)
    branches = []
    for parent, turn, change in turns:
        plan, left = _plan_behind(store, parent), turns_left(parent, turn, change)
        asked_again = replayed_turns(parent, turn) if change else tuple(one.index for one in parent.turns)
        branch = Branch(
            parent.id,
            turn,
            prefix_digest(parent, turn),
            digests[parent.id],
            n=n if left else 1,
            baseline=baseline,
            certain=not left,
            anew=asked_again if parent.plans else (),
            # Live runs knew the masked models before episodes said so themselves.
            left_out=parent.left_out or (plan.left_out if isinstance(plan, LivePlan) else ()),
            cycles=_cycles(parent, change, plan),
            change=change if "every_turn" in about else None,
        )
        branches.append(replace(branch, reused=_standing(parent, branch, change, pool_digest, children)))
    (first, _, change), models = turns[0], tuple(spec.name for spec in slots_of(specs))
    question = first.task.question[:400]
    about |= {"question": question, "computing": settings().computing, "engine": settings().engine}
    return ForkPlan(change, tuple(branches), pool, pool_digest, models, encoder, **about)


def _plan_behind(store: Store, parent: Episode) -> RunPlan | None:
    """What the episode was played by; None where its run is gone or does not say."""
    try:
        return known_plan(store.runs.get(parent.run_id))
    except StoreError:
        return None


def _cycles(parent: Episode, change: Change | None, plan: RunPlan | None) -> dict[str, Cycle]:
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
        held = is_held(change, part)
        wanted = Fork(parent.id, branch.turn, own, number, branch.prefix, pool_digest, held)
        in_charge = decider_of_turn(parent, branch.turn)
        policy = change.value if part == FORK and change and change.kind == "policy" else in_charge
        budget = branch.turn if part == FORK and change and change.kind == "stop" else parent.turn_budget
        same = (one.fork, one.left_out, one.summary.policy) == (wanted, branch.left_out, policy)
        same &= (one.turn_budget, one.argmax) == (budget, parent.argmax)
        most = branch.n if part == FORK else branch.baseline
        if same and number < most and one.seed == child_seed(parent, branch.turn, number):
            found[f"{part}/{number}"] = one.id
    return found


def change_reach(parent: Episode, index: int, change: Change, specs: Sequence[ModelSpec] = ()) -> Reach:
    """How far a change of one turn can get: to the answer, or not."""
    step = forked_step(parent, index)
    if step is None:
        return Reach.NOWHERE if keeps_answer(parent, index, change) else Reach.ANSWER
    return reach_of(step, change, {spec.name: spec.dialect for spec in specs})


def reach_words(plan: ForkPlan, parents: Mapping[str, Episode], specs: Sequence[ModelSpec]) -> str:
    """What has to be said of a plan's forks that cannot change the answer, plain text; empty where all can."""
    found = [
        change_reach(parents[one.parent], one.turn, change, specs)
        for one in plan.branches
        if (change := plan.change_at(one)) is not None
    ]
    short = sum(one is not Reach.ANSWER for one in found)
    if not short:
        return ""
    if len(found) > 1:
        noun = "turns" if plan.every_turn else "episodes"
        return (
            f"In {short} of the {len(found)} {noun} the change cannot reach the answer: nothing of it is sent to a "
            "step that gives the answer, or no turn follows that could give another."
        )
    branch = plan.branches[0]
    parent = parents[branch.parent]
    if not parent.plans:
        answer = f"with the answer {one_line(parent.answer, 40)}" if parent.answer else "without an answer"
        return f"This change cannot change the answer: every fork would end {answer}, as the episode did."
    where = f"turn {branch.turn + 1} says"
    if found[0] is Reach.FALLBACK:
        return (
            f"Nothing that {where} is sent to the step that gave the answer: this change can reach the answer only if "
            "that step, asked again, gives none."
        )
    if found[0] is Reach.SAME:
        return (
            f"Turn {branch.turn + 1} would be sent the same as before, because its model is sent one plan or one "
            "answer at most and is asked by the first word alone: forks and baseline can differ by chance alone."
        )
    return (
        f"Nothing that {where} is sent to the step that gives the answer: this change cannot reach the answer, and "
        "forks and baseline can differ by chance alone."
    )
