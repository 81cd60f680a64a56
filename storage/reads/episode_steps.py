"""Reads for stepping through one episode: its head, the turns at hand, searching its texts, its forks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import RowMapping, Select, case, exists, func, literal, or_, select

from core.changes import Change
from core.episode import Decision, Episode, Judgement, Plan
from storage.filters.listing import FORK, LIGHT, to_summary
from storage.rows import mapping
from storage.rows.engine import fetch_mapping, fetch_mappings, fetch_rows, reading
from storage.rows.full_episodes import no_episode, read_judgements, read_plans
from storage.rows.schema import at_turn, episode, label, same_turn, second_opinion, state, task, text, turn
from storage.rows.summaries import QUESTION_CUT, EpisodeSummary, TurnText
from storage.store import Store

#: Characters of a text around what was found in it.
AROUND = 60
#: A family of forks is shown up to this many members and this many forks of forks.
FAMILY, DEEPEST = 200, 20
#: The kinds of text that a model writes.
_WRITTEN = ("reply", "partial", "reasoning")


@dataclass(frozen=True, slots=True)
class EpisodeHead:
    """An episode without its turns, its line of the list, and whether it has anything that can still be added to a
    finished one: forks (or is one), labels."""

    episode: Episode
    summary: EpisodeSummary
    forked: bool
    labelled: bool


@dataclass(frozen=True, slots=True)
class BegunTurn:
    """The decision and reply of a turn that has begun; `text` leaves out what its model was sent."""

    decision: Decision
    text: TurnText


@dataclass(frozen=True, slots=True)
class TextMatch:
    """A turn whose reply or reasoning (`kind`) holds what was looked for, with the words around the first place."""

    index: int
    kind: str
    excerpt: str


@dataclass(frozen=True, slots=True)
class Variation:
    """One episode of a family of forks: `depth` forks below the first, from turn `fork_turn` (0-based) of `parent`,
    with this `change`; None for one that plays its parent on unchanged."""

    summary: EpisodeSummary
    parent: str | None
    fork_turn: int | None
    depth: int
    change: Change | None = None


def read_head(store: Store, episode_id: str) -> EpisodeHead:
    """All that is known of an episode but its turns, in one query, or three where it has a workflow or is judged by a
    model; StoreError when
    there is no such episode."""
    child = episode.alias()
    forks = exists(select(child.c.id).where(child.c.parent_episode_id == episode_id))
    query = (
        select(
            episode,
            *(column.label(f"asked_{column.name}") for column in task.c),
            or_(episode.c.parent_episode_id.is_not(None), forks).label("forked"),
            exists(select(label.c.id).where(label.c.episode_id == episode_id)).label("labelled"),
        )
        .join(task, task.c.key == episode.c.task_key)
        .where(episode.c.id == episode_id)
    )
    row = fetch_mapping(store.engine, query)
    if row is None:
        raise no_episode(episode_id)
    task_row = {column.name: row[f"asked_{column.name}"] for column in task.c}
    summary = to_summary(row)
    plans: tuple[Plan, ...] = ()
    judged: tuple[Judgement, ...] = ()
    if row["topology"] or row["plan_fault"] or row["asked_grader"] == "judge":
        with reading(store.engine) as connection:
            plans = tuple(read_plans(connection, [episode_id])[episode_id])
            judged = tuple(read_judgements(connection, [episode_id])[episode_id])
    return EpisodeHead(
        mapping.to_episode(row, mapping.to_task(task_row), (), plans, judged),
        replace(summary, answer=summary.answer and summary.answer[:QUESTION_CUT]),
        bool(row["forked"]),
        bool(row["labelled"]),
    )


def read_turns(store: Store, episode_id: str, indices: Iterable[int]) -> dict[int, BegunTurn]:
    query = (
        _decisions(episode_id)
        .add_columns(text.c.kind, text.c.body, episode.c.texts_removed)
        .join(episode, episode.c.id == turn.c.episode_id)
        .outerjoin(text, same_turn(text) & text.c.kind.in_(_WRITTEN))
        .where(turn.c.idx.in_(list(indices)))
    )
    bodies: dict[int, dict[str, str]] = {}
    found: dict[int, BegunTurn] = {}
    for row in fetch_mappings(store.engine, query):
        texts = bodies.setdefault(row["idx"], {})
        texts[row["kind"]] = row["body"]
        partial = row["stage"] == "asked"
        reply = texts.get("partial" if partial else "reply", "")
        found[row["idx"]] = BegunTurn(
            _decision(row),
            TurnText((), reply, texts.get("reasoning", ""), partial, reply_removed=row["texts_removed"]),
        )
    return found


def read_decision(store: Store, episode_id: str, index: int) -> Decision | None:
    """The decision of a turn that has begun, its reply written or not; None when there is no such turn."""
    row = fetch_mapping(store.engine, _decisions(episode_id).where(turn.c.idx == index))
    return None if row is None else _decision(row)


def _decisions(episode_id: str) -> Select[Any]:
    return (
        select(turn, state.c.hidden)
        .outerjoin(state, same_turn(state))
        .where(turn.c.episode_id == episode_id)
        .order_by(turn.c.idx)
    )


def read_decisions(store: Store, episode_id: str) -> list[Decision]:
    return [_decision(row) for row in fetch_mappings(store.engine, _decisions(episode_id))]


def _decision(row: RowMapping) -> Decision:
    return mapping.to_decision(row, bytes(row["hidden"] or b""))


def read_second_opinion(
    store: Store, episode_id: str, index: int, checkpoint_id: str
) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """Model and role logits that another checkpoint gave a turn when it read the very same prompt again, or None."""
    own = select(turn.c.prompt_digest).where(at_turn(turn, episode_id, index))
    query = select(second_opinion.c.model_logits, second_opinion.c.role_logits).where(
        at_turn(second_opinion, episode_id, index),
        second_opinion.c.checkpoint_id == checkpoint_id,
        second_opinion.c.prompt_digest == own.scalar_subquery(),
    )
    row = fetch_mapping(store.engine, query)
    if row is None:
        return None
    return mapping.to_floats(bytes(row["model_logits"])), mapping.to_floats(bytes(row["role_logits"]))


def find_in_texts(store: Store, episode_id: str, words: str, limit: int = 200) -> list[TextMatch]:
    """The turns of an episode whose texts hold `words`, whatever their case, in order."""
    instr = func.instr if store.engine.dialect.name == "sqlite" else func.strpos
    at = instr(func.lower(text.c.body), func.lower(literal(words)))
    begin = case((at > AROUND, at - AROUND), else_=1)
    query = (
        select(text.c.idx, text.c.kind, func.substr(text.c.body, begin, 2 * AROUND + len(words)))
        .where(text.c.episode_id == episode_id, text.c.kind.in_(_WRITTEN), at > 0)
        .order_by(text.c.idx, text.c.kind.desc())
        .limit(limit)
    )
    return [
        TextMatch(index, "reply" if kind == "partial" else kind, excerpt)
        for index, kind, excerpt in fetch_rows(store.engine, query)
    ]


def read_family(store: Store, episode_id: str) -> list[Variation]:
    """The forks that an episode belongs to, from the first recording downwards, each after its parent; the episode
    alone when it neither is a fork nor has any. One query."""
    up = (
        select(episode.c.id, episode.c.parent_episode_id, literal(0).label("height"))
        .where(episode.c.id == episode_id)
        .cte("up", recursive=True)
    )
    above = select(episode.c.id, episode.c.parent_episode_id, up.c.height + 1)
    up = up.union_all(above.join(up, episode.c.id == up.c.parent_episode_id).where(up.c.height < DEEPEST))
    top = select(up.c.id, literal(0).label("depth")).order_by(up.c.height.desc()).limit(1).subquery()
    down = select(top.c.id, top.c.depth).cte("down", recursive=True)
    below = select(episode.c.id, down.c.depth + 1)
    down = down.union_all(
        below.join(down, episode.c.parent_episode_id == down.c.id).where(down.c.depth < DEEPEST)
    )
    query = (
        select(*LIGHT, *FORK, down.c.depth)
        .join(down, down.c.id == episode.c.id)
        .order_by(down.c.depth, episode.c.fork_turn, episode.c.id)
        .limit(FAMILY)
    )
    return _parents_first([_variation(row) for row in fetch_mappings(store.engine, query)])


def _variation(row: RowMapping) -> Variation:
    fork = mapping.to_fork(row)
    if fork is None:
        return Variation(to_summary(row), None, None, row["depth"], None)
    return Variation(to_summary(row), fork.parent, fork.turn, row["depth"], fork.change)


def _parents_first(members: list[Variation]) -> list[Variation]:
    ordered: list[Variation] = []
    waiting = [one for one in members if one.depth == 0]
    while waiting:
        one = waiting.pop(0)
        ordered.append(one)
        waiting = [m for m in members if m.parent == one.summary.id and m.depth == one.depth + 1] + waiting
    return ordered
