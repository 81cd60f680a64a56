"""What calls, turns and policies took: calls to the models of a pool and how these have been answering, what turns and
planners consumed, what a solved problem cost, and how many transcripts an encoder's window would cut."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any

from sqlalchemy import ColumnElement, Table, case, func, select

from core.analysis.metrics import ClusteredShare
from core.episode import Decide, EndReason, Flag, Status, Task, Transcript, Verdict
from core.finish import EDITED
from core.play.session import recorded_requests
from core.pool.spec import ModelSpec, digest_of_specs
from core.tokens.prompts import PromptTokens
from storage.analysis.routing import counted_episodes, own_turns
from storage.analysis.standings import SETTING, Setting
from storage.analysis.verdicts import TurnGroup
from storage.filters.episode_filter import EpisodeFilter
from storage.filters.listing import DECIDER, read_shares, sum_if_all_known, total, total_if_all_known
from storage.rows.engine import fetch_rows, reading
from storage.rows.schema import candidate, episode, judgement, learning_update, plan, run, task, turn
from storage.store import Store


@dataclass(frozen=True, slots=True)
class Spending:
    """What some turns consumed; None: a price is unknown. `n` are those in which a model was asked, `anew` those of
    them that no earlier reply answered: only they took time."""

    n: int
    anew: int
    tokens: int
    cost_usd: float | None
    latency_s: float

    @property
    def tokens_per_reply(self) -> float | None:
        return self.tokens / self.n if self.n else None

    @property
    def seconds_per_reply(self) -> float | None:
        """Of those that took time; None where none did."""
        return self.latency_s / self.anew if self.anew else None


def spending_by(groups: Iterable[TurnGroup], key: Callable[[TurnGroup], str]) -> dict[str, Spending]:
    """Turns put together by `key`, most tokens first."""
    parts: defaultdict[str, list[Spending]] = defaultdict(list)
    for group in groups:
        asked, tokens = group.n if group.asked else 0, group.tokens_in + group.tokens_out
        anew = 0 if Flag.REUSED in group.flags else asked
        parts[key(group)].append(Spending(asked, anew, tokens, group.cost_usd, group.latency_s))
    return _most_first((name, _sum(of)) for name, of in parts.items())


def _most_first(found: Iterable[tuple[str, Spending]]) -> dict[str, Spending]:
    return dict(sorted(found, key=lambda one: (-one[1].tokens, one[0])))


#: What whoever writes workflows, and whoever rates answers, is called beside roles and models.
PLANNER, JUDGE = "Planner", "Judge"


def planning(store: Store, where: EpisodeFilter, *, of_pool: bool = False) -> dict[str, Spending]:
    """What planners consumed to write workflows, by who wrote them (a model of the pool, or a policy), most tokens
    first; `of_pool`: models alone. Forks carry their parents' plans, which count for these. One query."""
    among = [episode.c.fork_turn.is_(None), *([of_the_pool()] if of_pool else [])]
    return _beside_turns(store, where, plan, plan.c.planner, among)


def judging(store: Store, where: EpisodeFilter) -> dict[str, Spending]:
    """What judges consumed to rate answers, by model, most tokens first. One query."""
    return _beside_turns(store, where, judgement, judgement.c.judge, ())


def _beside_turns(
    store: Store,
    where: EpisodeFilter,
    of: Table,
    who: ColumnElement[str],
    among: Sequence[ColumnElement[bool]],
) -> dict[str, Spending]:
    """What was asked of models beside turns, in a table of its own, by who was asked."""
    query = (
        select(
            who,
            func.count(),
            func.count(),  # nothing beside turns is a reply that another run had got
            func.coalesce(func.sum(of.c.tokens_in), 0) + func.coalesce(func.sum(of.c.tokens_out), 0),
            total_if_all_known(of.c.cost_usd),
            total(of.c.latency_s),
        )
        .join(episode, episode.c.id == of.c.episode_id)
        .where(*counted_episodes(store, where), *among)
        .group_by(who)
    )
    rows = fetch_rows(store.engine, query)
    return _most_first((name, Spending(*amounts)) for name, *amounts in rows)


def sum_spending(found: Iterable[Spending]) -> Spending | None:
    """The sum of several; None of none."""
    parts = list(found)
    return _sum(parts) if parts else None


def _sum(parts: Sequence[Spending]) -> Spending:
    return Spending(
        sum(one.n for one in parts),
        sum(one.anew for one in parts),
        sum(one.tokens for one in parts),
        sum_if_all_known(one.cost_usd for one in parts),
        fsum(one.latency_s for one in parts),
    )


def of_the_pool() -> ColumnElement[bool]:
    """That a plan was written by a model of its episode's pool and not by a planner of its own."""
    return episode.c.models.contains('"' + plan.c.planner + '"')


@dataclass(frozen=True, slots=True)
class PolicyCost:
    """How a policy (MIXED: two of them) did under one setting and what its finished episodes consumed. `setting` is
    None where the policy has been played under one alone."""

    policy: str
    setting: Setting | None
    turns: int
    tokens: int
    cost_usd: float | None
    latency_s: float
    accuracy: ClusteredShare  # right episodes of all
    accepted: ClusteredShare  # of all, those that a Verifier ended
    false_accept: ClusteredShare  # wrong ones among those that a Verifier ended
    accepts: dict[tuple[int, bool], int]  # (turns played, right) -> episodes that a Verifier ended

    @property
    def token(self) -> str:
        """Tells it from the others: POLICY, with @SETTING where it has one."""
        return self.policy if self.setting is None else f"{self.policy}{self.setting.suffix}"

    @property
    def expression(self) -> str | None:
        return None if self.setting is None else self.setting.expression

    @property
    def n(self) -> int:
        return self.accuracy.n

    @property
    def right(self) -> int:
        return self.accuracy.k

    def per_solved(self, amount: float | None) -> float | None:
        """An amount shared out over the solved problems; None where there are none, or it is unknown."""
        return None if amount is None or not self.right else amount / self.right


def policy_costs(store: Store, where: EpisodeFilter) -> list[PolicyCost]:
    """Every policy with finished episodes, once for each setting it was played under, most episodes first. Two
    queries."""
    accepted = episode.c.end_reason == EndReason.ACCEPTED
    right = func.coalesce(episode.c.correct, False)
    ended = case((accepted, True), else_=False)
    whose = (DECIDER, *SETTING)
    keys = (*whose, episode.c.turns, ended, right)
    query = (
        select(
            *keys,
            func.count(),
            func.sum(episode.c.tokens_in + episode.c.tokens_out),
            total_if_all_known(episode.c.cost_usd),
            total(episode.c.latency_s),
        )
        .join(run, run.c.id == episode.c.run_id)
        .where(*counted_episodes(store, where))
    )
    n = len(whose)
    rows: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    with reading(store.engine) as connection:
        for row in connection.execute(query.group_by(*keys)):
            rows.setdefault(tuple(row[:n]), []).append(tuple(row[n:]))
        falsely = accepted & right.is_(False)
        shares = read_shares(
            connection, query, whose, (right.is_(True), None), (accepted, None), (falsely, accepted)
        )
    settings = Counter(policy for policy, *_ in shares)
    found = []
    for (policy, *columns), shares_of in shares.items():
        setting = Setting(*columns) if settings[policy] > 1 else None
        found.append(_policy_cost(policy, setting, rows[policy, *columns], shares_of))
    return sorted(found, key=lambda one: (-one.n, one.token))


def _policy_cost(
    policy: str, setting: Setting | None, rows: Sequence[tuple[Any, ...]], shares: Sequence[ClusteredShare]
) -> PolicyCost:
    accuracy, accepted_by, false_accept = shares
    accepts: Counter[tuple[int, bool]] = Counter()
    for played, accepted, right, count, *_ in rows:
        if accepted:
            accepts[played, bool(right)] += count
    return PolicyCost(
        policy,
        setting,
        sum(played * count for played, _, _, count, *_ in rows),
        sum(used for *_, used, _, _ in rows),
        sum_if_all_known(paid for *_, paid, _ in rows),
        fsum(waited for *_, waited in rows),
        accuracy,
        accepted_by,
        false_accept,
        dict(accepts),
    )


def solved_by_task(store: Store, where: EpisodeFilter) -> dict[str, float]:
    """The share of the finished episodes of each task, by its id, that came to the right answer."""
    right = func.avg(case((episode.c.correct.is_(True), 1.0), else_=0.0))
    query = (
        select(task.c.id, right)
        .join(task, task.c.key == episode.c.task_key)
        .where(*counted_episodes(store, where))
        .group_by(task.c.id)
    )
    return dict(fetch_rows(store.engine, query))


def frontier(points: Iterable[tuple[str, float, float]]) -> list[str]:
    """Names of the (name, price, accuracy) that no other beats in both, cheapest first."""
    best, found = float("-inf"), []
    for name, _, accuracy in sorted(points, key=lambda one: (one[1], -one[2], one[0])):
        if accuracy > best:
            best = accuracy
            found.append(name)
    return found


# Calls

EVERY_EPISODE = EpisodeFilter(forks="with")
#: The newest turns and generations that are looked at.
MOST_TURNS, MOST_GENERATIONS = 20_000, 500


@dataclass(frozen=True, slots=True)
class CallMeans:
    """A model's recorded replies: their number, and the means of tokens sent, written and billed as read before, and
    of seconds."""

    n: int
    tokens_in: float
    tokens_out: float
    tokens_cached: float
    latency_s: float


@dataclass(frozen=True, slots=True)
class PoolMeans:
    """Means by model, and the calls that an episode made; `n` is the number of recorded replies behind them. `accepts`
    is the share of verdicts that accept; a half where there is none."""

    models: dict[str, CallMeans]
    calls_per_episode: float
    accepts: float = 0.5

    @property
    def n(self) -> int:
        return sum(one.n for one in self.models.values())


def pool_means(store: Store, pool: str) -> PoolMeans | None:
    """The means of a pool's recorded calls, by the digest that its runs keep; None where none is recorded. Turns that
    forks carry were counted in their parents, and a fork is no whole episode: none tells how many calls one makes."""
    took = case((turn.c.flags.like(f"%{Flag.REUSED}%"), None), else_=turn.c.latency_s)
    played = (
        select(
            *(turn.c.episode_id, turn.c.model, turn.c.tokens_in, turn.c.tokens_out, turn.c.verdict),
            func.coalesce(turn.c.tokens_cached, 0).label("tokens_cached"),
            took.label("latency_s"),
            episode.c.fork_turn,
        )
        .join(episode, episode.c.id == turn.c.episode_id)
        .join(run, run.c.id == episode.c.run_id)
        .where(
            run.c.pool == pool,
            episode.c.status == Status.FINISHED,
            turn.c.stage == "finished",
            turn.c.error_kind.is_(None),
            func.coalesce(turn.c.finish_reason, "").not_in(("not_asked", EDITED)),
            *own_turns(EVERY_EPISODE),
        )
        .order_by(episode.c.started.desc())
        .limit(MOST_TURNS)
        .subquery()
    )
    by_model = select(
        played.c.model,
        func.count(),
        func.avg(played.c.tokens_in),
        func.avg(played.c.tokens_out),
        func.avg(played.c.tokens_cached),
        func.avg(played.c.latency_s),
    ).group_by(played.c.model)
    accepted = case((played.c.verdict == Verdict.ACCEPT, 1), else_=0)
    whole = case((played.c.fork_turn.is_(None), played.c.episode_id))
    episodes = select(
        *(func.count(whole.distinct()), func.count(whole)),
        *(func.count(played.c.episode_id.distinct()), func.count()),
        *(func.count(played.c.verdict), func.sum(accepted)),
    ).select_from(played)
    with reading(store.engine) as connection:
        n, calls, with_forks, all_calls, judged, accepts = connection.execute(episodes).one()
        rows = connection.execute(by_model).all()
    if not with_forks:
        return None
    return PoolMeans(
        {model: CallMeans(k, *(float(mean or 0) for mean in means)) for model, k, *means in rows},
        calls / n if n else all_calls / with_forks,
        accepts / judged if judged else 0.5,
    )


@dataclass(frozen=True, slots=True)
class SharedCalls:
    """A generation of an evolution: its number, how many candidates played how many tasks each, the calls that were
    made, and those that were answered by what another candidate had got. `config` is its run's."""

    index: int
    candidates: int
    tasks: int
    made: int
    saved: int
    config: Mapping[str, Any]


def shared_calls(store: Store, pool: str) -> list[SharedCalls]:
    """The newest generations of evolutions of this pool, by the digest that runs keep, as far as they counted calls."""
    of_it = (candidate.c.run_id == learning_update.c.run_id, candidate.c.generation == learning_update.c.idx)
    n, tasks = (
        select(one).where(*of_it).scalar_subquery() for one in (func.count(), func.max(candidate.c.rollouts))
    )
    query = (
        select(learning_update.c.idx, n, tasks, learning_update.c.stats, run.c.config)
        .join(run, run.c.id == learning_update.c.run_id)
        .where(run.c.pool == pool, run.c.kind == "evolve", learning_update.c.idx > 0)
        .order_by(run.c.created.desc(), learning_update.c.idx)
        .limit(MOST_GENERATIONS)
    )
    found = []
    for index, candidates, each, stats, config in fetch_rows(store.engine, query):
        made, saved = (stats.get(name) for name in ("calls", "calls_saved"))
        if made is not None and saved is not None and made + saved and candidates and each:
            found.append(SharedCalls(index, candidates, each, made, saved, config))
    return found


#: Recorded episodes, and questions, that are looked at: hundreds of transcripts, in well under two seconds.
MOST_EPISODES, MOST_QUESTIONS = 40, 200


@dataclass(frozen=True, slots=True)
class WindowCut:
    """Of `n` transcripts, `cut` are longer than the window; they are `recorded` ones, or questions alone. With neither
    there is no `share`."""

    cut: int
    n: int
    recorded: bool

    @property
    def share(self) -> float | None:
        return self.cut / self.n if self.n else None


def window_cut(
    store: Store, tokens: PromptTokens, specs: Sequence[ModelSpec], tasks: Sequence[Task]
) -> WindowCut:
    """What the encoder's window would cut of the newest recorded transcripts of a pool; where there are none, of the
    questions of the `tasks`."""
    newest = EpisodeFilter(q=f'pool == "{digest_of_specs(specs)}" and turns > 1', forks="with")
    requests = [
        request
        for one in store.episodes.page(newest, limit=MOST_EPISODES).items
        for request in recorded_requests(store.episodes.get(one.id))
    ]
    recorded = bool(requests)
    if not recorded:
        requests = [Decide(Transcript(task.question), 0, "") for task in tasks[:MOST_QUESTIONS]]
    cut = sum(
        tokens.prompt(one, "chat" if one.messages else tokens.input_format).overflow for one in requests
    )
    return WindowCut(cut, len(requests), recorded)
