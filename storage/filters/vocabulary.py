"""The fields a filter expression can ask about, an episode's and, in any, all and count, `turn.` and `label.` fields;
and which labels are current: the last of one author under one name at one place, unless it withdraws the label."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast, get_args

from sqlalchemy import Column, ColumnElement, Select, and_, exists, func, not_, or_, select

from core.episode import ANSWER_RULES, EndReason, Flag, Protocol, Role, Status, Verdict
from core.workflow import PlanFault, Topology
from storage.rows.mapping import flag_bits
from storage.rows.schema import api_key, episode, judgement, label, run, same_turn, served, task, turn
from storage.rows.summaries import EPISODE_FLAGS, Purpose

#: Labels that agree in these replace each other.
_KEY = ("episode_id", "idx", "span_start", "span_end", "name", "author")


def is_current() -> ColumnElement[bool]:
    """The condition on `label` that a row is current: it withdraws nothing, and no later one replaces it."""
    later = label.alias("later")
    replaced = exists(
        select(later.c.id).where(
            *(later.c[one].is_not_distinct_from(label.c[one]) for one in _KEY),
            or_(later.c.at > label.c.at, and_(later.c.at == label.c.at, later.c.id > label.c.id)),
        )
    )
    return and_(label.c.value != "", ~replaced)


def current_labels(*where: ColumnElement[bool]) -> Select[Any]:
    """The current rows among those that meet `where`: conditions on episode, name and author."""
    order = func.row_number().over(
        partition_by=[label.c[one] for one in _KEY],
        order_by=[label.c.at.desc(), label.c.id.desc()],
    )
    ranked = select(label, order.label("place")).where(*where).subquery()
    return (
        select(ranked)
        .where(ranked.c.place == 1, ranked.c.value != "")
        .order_by(ranked.c.episode_id, ranked.c.at, ranked.c.id)
    )


#: text: quoted words. number. truth: True or False. choice: one of a few words. set: several of a few words.
#: time: a date such as "2026-11-05" or "2026-11-05 14:30" (UTC).
Kind = Literal["text", "number", "truth", "choice", "set", "time"]
#: What an episode has several of, so that any, all and count can ask about them.
Many = Literal["turn", "label"]


@dataclass(frozen=True, slots=True)
class Field:
    """One name of the language. `spellings` maps every accepted spelling, in small letters, to what is stored."""

    name: str
    kind: Kind
    words: str
    column: ColumnElement[Any] = field(compare=False)
    spellings: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def of(self) -> Many | None:
        scope, dot, _ = self.name.partition(".")
        return cast(Many, scope) if dot else None

    @property
    def choices(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.spellings.values()))

    @property
    def nullable(self) -> bool:
        return not isinstance(self.column, Column) or bool(self.column.nullable)


def _same(words: Iterable[str]) -> dict[str, str]:
    return {word.lower(): str(word) for word in words}


def _of_task(column: Column[Any]) -> ColumnElement[Any]:
    """A column of the episode's task; lists keep only the question's beginning."""
    return select(column).where(task.c.key == episode.c.task_key).correlate(episode).scalar_subquery()


def _of_run(column: Column[Any]) -> ColumnElement[Any]:
    return select(column).where(run.c.id == episode.c.run_id).correlate(episode).scalar_subquery()


def _of_request(column: Column[Any]) -> ColumnElement[Any]:
    """What is known of an episode as a request to the endpoint; of its key where that is a column of a key."""
    of = select(column).where(served.c.episode_id == episode.c.id)
    if column.table is api_key:
        of = of.where(api_key.c.id == served.c.key_id)
    return of.correlate(episode).scalar_subquery()


_LABELS = (
    select(func.count())
    .select_from(label)
    .where(label.c.episode_id == episode.c.id, is_current())
    .correlate(episode)
    .scalar_subquery()
)


#: Of the answer with which an episode ended, and of that of a turn.
RATING = (
    select(func.max(judgement.c.rating))
    .where(judgement.c.episode_id == episode.c.id, judgement.c.answer == episode.c.answer)
    .correlate(episode)
    .scalar_subquery()
)
TURN_RATING = (
    select(func.max(judgement.c.rating)).where(same_turn(judgement)).correlate(turn).scalar_subquery()
)


def played_for(*purposes: Purpose) -> ColumnElement[bool]:
    """Episodes of runs with one of these purposes. By the run, which the facets' index covers."""
    return episode.c.run_id.in_(select(run.c.id).where(run.c.purpose.in_(purposes)))


#: A fork, or the unchanged baseline of one.
IS_FORK = played_for("fork")
#: An episode of a run that came with the program.
IS_SAMPLE = played_for("sample")
#: The flags of a play that a person took a hand in.
BY_HAND = ("override", "swapped")
#: A play that is no policy's own: a person decided a turn of it, or a second policy did.
IS_MIXED = episode.c.flags.op("&")(flag_bits(BY_HAND)) != 0
#: An episode that totals count: no fork, no play whose problem, settings or decisions a person chose, and none of an
#: evolution, whose episodes share their replies.
IS_MEASURED = and_(played_for("measured", "sample"), not_(IS_MIXED))
#: An episode of one's own that takes the place of samples.
IS_OWN_RECORD = played_for("measured", "learning")
_ROLES = {"t": "thinker", "w": "worker", "v": "verifier", **_same(Role)}
_OUTCOMES = {"right": "right", "wrong": "wrong"}

_EPISODE = (
    Field("correct", "truth", "the final answer is right; None: not judged", episode.c.correct, _OUTCOMES),
    Field("rating", "number", "the judge's, of the final answer, 1 to 10; None: no model judges", RATING),
    Field("turns", "number", "turns played", episode.c.turns),
    Field("end_reason", "choice", "why it stopped", episode.c.end_reason, _same(EndReason)),
    Field("flags", "set", "what a reader should notice", episode.c.flags, _same(EPISODE_FLAGS)),
    Field("family", "text", "kind of task", episode.c.family),
    Field("task", "text", "id of the task", episode.c.task_id),
    Field("question", "text", "the question, in full", _of_task(task.c.question)),
    Field("expected", "text", "the right answer", _of_task(task.c.answer)),
    Field("answer", "text", "the final answer", episode.c.answer),
    Field("policy", "text", "who chose: a checkpoint's id, random, single:NAME ...", episode.c.policy),
    Field("checkpoint", "text", "id of the checkpoint that chose", episode.c.checkpoint_id),
    Field("generation", "number", "generation of that checkpoint", episode.c.generation),
    Field("run", "text", "id of the run", episode.c.run_id),
    Field("status", "choice", "where it stands", episode.c.status, _same(Status)),
    Field("tokens", "number", "tokens read and written", episode.c.tokens_in + episode.c.tokens_out),
    Field("tokens_in", "number", "tokens read by the models", episode.c.tokens_in),
    Field("tokens_out", "number", "tokens written by the models", episode.c.tokens_out),
    Field("cost", "number", "US dollars; None: some price is unknown", episode.c.cost_usd),
    Field("latency", "number", "seconds of all calls", episode.c.latency_s),
    Field("margin", "number", "smallest margin of its decisions", episode.c.min_margin),
    Field("entropy", "number", "mean entropy of its decisions, nats", episode.c.mean_entropy),
    Field("budget", "number", "most turns it was allowed", episode.c.turn_budget),
    Field("seed", "number", "seed of its draws", episode.c.seed),
    Field("argmax", "truth", "the likeliest choice was always taken", episode.c.argmax),
    Field("protocol", "choice", "the rules it was played by", episode.c.protocol, _same(Protocol)),
    Field("pool", "text", "digest of the models that answered", _of_run(run.c.pool)),
    Field("purpose", "choice", "what its run is for", _of_run(run.c.purpose), _same(get_args(Purpose))),
    Field("tier", "text", "of a request: the model that was asked for", _of_request(served.c.model)),
    Field("key", "text", "of a request: the name of its key; None: without one", _of_request(api_key.c.name)),
    Field("door", "text", "of a request: chat, responses or messages", _of_request(served.c.door)),
    Field("fork", "truth", "a fork, or the unchanged baseline of one", IS_FORK),
    Field(
        "measured", "truth", "counts in totals: no fork, live play, evolution, nothing by hand", IS_MEASURED
    ),
    Field("mixed", "truth", "a person or a second policy decided part of it", IS_MIXED),
    Field(
        "evolution", "truth", "played by an evolution's candidate, or its validation", played_for("learning")
    ),
    Field("sample", "truth", "it came with the program, as a sample", IS_SAMPLE),
    Field(
        "topology",
        "choice",
        "the shape of its last workflow; None: it has none",
        episode.c.topology,
        _same(Topology),
    ),
    Field(
        "plan_fault",
        "choice",
        "why its last plan was no workflow; None: it was one",
        episode.c.plan_fault,
        _same(PlanFault),
    ),
    Field("parent", "text", "id of the episode it was forked from", episode.c.parent_episode_id),
    Field(
        "fork_turn", "number", "first turn that may differ from the parent's, from 1", episode.c.fork_turn + 1
    ),
    Field("labels", "number", "labels that count: on it, its turns and their words", _LABELS),
    Field("id", "text", "id of the episode", episode.c.id),
    Field("started", "time", 'when it began (UTC), such as "2026-11-05"', episode.c.started),
    Field("finished", "time", "when it ended (UTC)", episode.c.finished),
)
_TURN = (
    Field("turn.role", "choice", "who took it; T, W and V are short for them", turn.c.role, _ROLES),
    Field("turn.model", "text", "model that spoke", turn.c.model),
    Field("turn.verdict", "choice", "what a verifier said", turn.c.verdict, _same(Verdict)),
    Field("turn.correct", "truth", "the answer after it is right", turn.c.correct_after, _OUTCOMES),
    Field("turn.answer", "text", "the answer after it", turn.c.answer_after),
    Field("turn.rating", "number", "the judge's, of an answer that is new in it", TURN_RATING),
    Field(
        "turn.read_by", "choice", "how a worker's answer was found", turn.c.answer_rule, _same(ANSWER_RULES)
    ),
    Field("turn.number", "number", "1 for the first turn, as on pages", turn.c.idx + 1),
    Field("turn.step", "number", "place in its workflow, from 1; None: no workflow", turn.c.step + 1),
    Field("turn.margin", "number", "logit margin of the decision", turn.c.margin),
    Field("turn.entropy", "number", "entropy of the decision, nats", turn.c.entropy),
    Field("turn.sampled", "truth", "drawn by chance, not the likeliest", turn.c.sampled),
    Field("turn.argmax_model", "text", "model with the highest logit", turn.c.argmax_model),
    Field("turn.argmax_role", "choice", "role with the highest logit", turn.c.argmax_role, _ROLES),
    Field("turn.flags", "set", "what a reader should notice", turn.c.flags, _same(Flag)),
    Field("turn.tokens", "number", "tokens read and written", turn.c.tokens_in + turn.c.tokens_out),
    Field("turn.tokens_in", "number", "tokens read", turn.c.tokens_in),
    Field("turn.tokens_out", "number", "tokens written", turn.c.tokens_out),
    Field(
        "turn.tokens_cached", "number", "tokens read that were billed as read before", turn.c.tokens_cached
    ),
    Field("turn.cost", "number", "US dollars; None: price unknown", turn.c.cost_usd),
    Field(
        "turn.unread_cost",
        "number",
        "US dollars of it for answers that could not be read",
        func.coalesce(turn.c.unread_usd, 0.0),
    ),
    Field("turn.latency", "number", "seconds of the call", turn.c.latency_s),
    Field("turn.error", "text", "what went wrong with the call; None: nothing", turn.c.error),
    Field(
        "turn.origin", "text", "how it was decided: policy, override, suggested_role or repair", turn.c.origin
    ),
)
_LABEL = (
    Field("label.name", "text", 'what a person judged, such as "quality"', label.c.name),
    Field("label.value", "text", 'how, such as "good"', label.c.value),
    Field("label.author", "text", "who said it", label.c.author),
    Field("label.note", "text", "why, in the author's words", label.c.note),
    Field("label.turn", "number", "the turn it is about; None: the whole episode", label.c.idx + 1),
    Field("label.said", "time", "when it was said (UTC)", label.c.at),
)

#: Every field by its name, in the order in which a reader wants to see them.
FIELDS: dict[str, Field] = {one.name: one for one in (*_EPISODE, *_TURN, *_LABEL)}
#: Other names that mean the same.
ALIASES = {
    "ended": "end_reason",
    "outcome": "correct",
    "turn.index": "turn.number",
    "turn.agent": "turn.model",
    "label.at": "label.said",
}
