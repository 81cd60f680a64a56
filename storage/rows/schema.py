"""The tables: thin rows for lists, fat text and tensors apart, everything finished immutable.

Texts live in `text` (one row per episode, turn and kind) so that no list ever reads them; hidden states in `state`. The
same definitions serve SQLite and PostgreSQL, all but full text search (see `storage/rows/search.py`). A new store is
made from these definitions, an older one is migrated to them. What a column means is its `doc`, in words for people who
read the store with their own tools (`storage/upkeep/tables.py`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ColumnElement,
    Float,
    ForeignKey,
    FromClause,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    and_,
)
from sqlalchemy.types import TypeEngine

from core.episode import EndReason, Protocol, Role, Status, Verdict
from core.workflow import PlanFault, Topology
from storage.rows.columns import DECIDERS, FLAGS, MASK, NAMES, OBJECT, one_of
from storage.rows.summaries import Purpose, RunKind, RunStatus

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

#: SQLite gives rowids to INTEGER keys only; PostgreSQL wants the wide type.
_rowid = BigInteger().with_variant(Integer, "sqlite")


def _to(column: str) -> ForeignKey:
    return ForeignKey(column, ondelete="CASCADE")


def _only(name: str, values: Sequence[str]) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{name} IN ({listed})", name=name)


def _needed(name: str, type_: Any, meaning: str) -> Column[Any]:
    """A column that is never empty."""
    return Column(name, type_, nullable=False, doc=meaning)


def _zeroed(name: str, type_: type[TypeEngine[Any]], meaning: str | None = None) -> Column[Any]:
    return Column(name, type_, nullable=False, server_default="0", doc=meaning)


def _blank(name: str, type_: type[TypeEngine[Any]], meaning: str) -> Column[Any]:
    return Column(name, type_, nullable=False, server_default="", doc=meaning)


def _of_reply(writer: str) -> list[Column[Any]]:
    """How a reply ended and what it took: known once its writer, the model or the planner, has replied."""
    cached = "Of the tokens sent, those billed as read before; empty when not recorded"
    return [
        Column("finish_reason", String, doc=f"Why the {writer} stopped writing"),
        Column("tokens_in", Integer),
        Column("tokens_out", Integer),
        Column("tokens_cached", Integer, doc=cached),
        Column("cost_usd", Float),
        Column("at_most_usd", Float, doc="What it was charged as, where its cost is not known"),
        Column("unread_usd", Float, doc="Of the cost: answers that could not be read or broke off"),
        Column("latency_s", Float),
        Column("error_kind", String, doc=f"What kind of failure the {writer} had"),
        Column("error", Text, doc="What the failure said"),
    ]


#: Columns that indexes cover, so that what is counted over them reads no wide row.
_FACETS = ("run_id", "policy", "status", "family", "correct", "end_reason", "flags", "turns", "generation")
_JUDGED = ("verdict", "correct_after", "flags")
_CONSUMED = ("tokens_in", "tokens_out", "cost_usd", "latency_s")

run = Table(
    "run",
    metadata,
    Column("id", String, primary_key=True),
    _needed("kind", String, "run, reproduction, evolve, train, live, fork, reencode, attribute or serve"),
    _needed("purpose", String, "What its episodes are for: measured, learning, live …"),
    Column("name", String, doc="What a person calls it; empty: nothing"),
    Column("status", one_of(RunStatus), nullable=False),
    Column("config", OBJECT, nullable=False),  # JSON object
    Column("created", Float, nullable=False),
    Column("started", Float),
    Column("finished", Float),
    Column("heartbeat", Float, doc="The last sign of life of its process, Unix seconds"),
    Column("owner", String, doc="The process that plays it: host:pid@start"),
    Column("error", Text, doc="Why it failed, in one sentence"),
    _blank("pool", String, "A digest of the models that answered, temperatures too; empty: none did"),
    _blank("notes", Text, "What has to be known of how it is played, a sentence a line"),
    _zeroed("cancel", Boolean, "Somebody asked to cancel it"),
    _zeroed("paused", Boolean, "Somebody asked to wait before the next turn"),
    _zeroed("steps", Integer, "The number of the turn up to which it is played while it is paused; 0: none"),
    _zeroed("under_way_usd", Float, "The most that calls under way can cost; lost once nobody plays it"),
    _zeroed("lost_usd", Float, "The most that calls could cost that came to nothing, US dollars"),
    _only("kind", get_args(RunKind)),
    _only("purpose", get_args(Purpose)),
    _only("status", tuple(RunStatus)),
    Index(None, "created", "id"),
    Index(None, "status"),
    Index(None, "name"),
)

# What was learned, a coordinator or a planner. What is too large for a row stays in a folder of this machine.
checkpoint = Table(
    "checkpoint",
    metadata,
    Column("id", String, primary_key=True),
    Column("run_id", String, _to("run.id")),
    Column("generation", Integer, doc="After how many generations or iterations"),
    _needed("kind", String, "What was learned: head or head+svf; of a planner start, warm-up or trained"),
    _needed("digest", String, "SHA-256 of its config and weights"),
    Column("created", Float, nullable=False),
    _needed("config", OBJECT, "JSON: what stands in its config.json or conductor.json"),
    Column(
        "weights",
        LargeBinary,
        doc="The weights as safetensors, of a planner a zip archive of its files; empty: they are in `folder`",
    ),
    Column("folder", String, doc="Where its files are; empty: in `weights`"),
    _needed("size_bytes", BigInteger, "Bytes of its weights, of a planner of its files"),
    Index(None, "run_id", "generation"),
)

# A task is its content: two files that give one id to different questions make two rows.
task = Table(
    "task",
    metadata,
    Column("key", _rowid, primary_key=True, doc="Its number in this store"),
    Column("digest", String, nullable=False, unique=True, doc="SHA-256 of its content"),
    Column("id", String, nullable=False, index=True, doc="The id its file gave it"),
    Column("question", Text, nullable=False),
    _needed("answer", Text, "The right answer; the tests of a program, as JSON"),
    _needed("grader", String, "How answers are judged"),
    Column("family", String, nullable=False),
    _needed("split", String, "train, validation, test or live"),
    _blank("answer_pattern", Text, "The regular expression that finds an answer first; empty: none"),
    _blank("conversation", Text, "The messages that its question tells as one text, as JSON; empty: none"),
)

episode = Table(
    "episode",
    metadata,
    Column("id", String, primary_key=True),
    Column("run_id", String, _to("run.id"), nullable=False),
    Column("task_key", _rowid, ForeignKey("task.key"), nullable=False, doc="The task that was played"),
    _needed("task_id", String, "The task's id in its file"),
    Column("family", String, nullable=False),
    _needed("question", String, "The first characters of the question, for lists"),
    _needed("policy", String, "Who decided: a checkpoint's id, single:MODEL, random …"),
    Column("checkpoint_id", String, ForeignKey("checkpoint.id", ondelete="SET NULL")),
    Column("generation", Integer),
    _needed("models", NAMES, "JSON list of the pool's models in slot order"),
    _needed("protocol", one_of(Protocol), "By whose rules it was played"),
    _needed("turn_budget", Integer, "The most turns it could take"),
    _needed("seed", BigInteger, "Where its random draws begin"),
    _needed("argmax", Boolean, "Whether the likeliest choice was taken each time"),
    Column("parent_episode_id", String, doc="The episode it was forked from"),
    Column("fork_turn", Integer, doc="The turn of its parent at which it departs, from 0"),
    Column("fork_number", Integer, doc="Its number among the forks, or the unchanged children, of that turn"),
    Column("fork_change", String, doc="What was changed: model, role, reply …; empty: nothing"),
    Column("fork_value", Text, doc="To what it was changed"),
    Column("fork_prefix", String, doc="Digest of the turns that it carries"),
    Column("fork_pool", String, doc="Digest of the models that played on"),
    Column("fork_held", Boolean, doc="Whether its first turn stands as it was decided"),
    Column("left_out", NAMES, doc="JSON list of the models that could not be chosen; empty: none"),
    Column(
        "deciders", DECIDERS, doc="JSON: turn, from 0, and the policy that decides from it on; empty: its own"
    ),
    _needed("meta", OBJECT, "JSON: what other programs noted"),
    *(
        Column(
            f"{what}_removed", String, doc=f"The day on which its {words} were removed, such as 2026-11-05"
        )
        for what, words in (("states", "hidden states"), ("prompts", "prompts"), ("texts", "texts"))
    ),
    Column("status", one_of(Status), nullable=False),
    Column("end_reason", one_of(EndReason), doc="Why it ended"),
    Column("answer", Text, doc="The final answer"),
    Column("correct", Boolean, doc="Whether that is right; empty when not judged"),
    Column("started", Float, nullable=False),
    Column("finished", Float),
    Column("error", Text, doc="Why it is missing, in one sentence"),
    _zeroed("turns", Integer, "Turns played"),
    _blank("strip", String, "The turn strip as text: T·a W·c V·b✓"),
    _zeroed("tokens_in", Integer),
    _zeroed("tokens_out", Integer),
    Column("cost_usd", Float),
    _zeroed("latency_s", Float),
    Column("topology", one_of(Topology), doc="The shape of its last workflow; empty: it has none"),
    Column("plan_fault", one_of(PlanFault), doc="Why its last plan was no workflow; empty: it was one"),
    Column("min_margin", Float, doc="The smallest margin of its decisions, in logits"),
    Column("mean_entropy", Float, doc="The mean entropy of its decisions, in nats"),
    _zeroed("flags", Integer, "Bits in the order of storage.rows.summaries.EPISODE_FLAGS"),
    Index(None, "started", "id"),
    Index(None, "run_id", "started", "id"),
    Index(None, "policy", "started", "id"),
    Index(None, "task_key", "policy"),
    Index(None, "checkpoint_id"),
    Index(None, "parent_episode_id"),
    # For facets, run lists and accuracies.
    Index("ix_episode_counts", *_FACETS, "id"),
)

turn = Table(
    "turn",
    metadata,
    Column("episode_id", String, _to("episode.id"), primary_key=True),
    Column("idx", Integer, primary_key=True),
    _needed("stage", String, "asked, replied or finished"),
    Column("model", String, nullable=False),
    Column("role", one_of(Role), nullable=False),
    Column("model_logits", LargeBinary, nullable=False),  # little-endian float64
    Column("role_logits", LargeBinary, nullable=False),
    _needed("model_probs", LargeBinary, "The softmax over models, little-endian float64"),
    _needed("role_probs", LargeBinary, "The softmax over roles, little-endian float64"),
    _needed("argmax_model", String, "The likeliest model"),
    Column("argmax_role", one_of(Role), doc="The likeliest role"),
    _needed("sampled", Boolean, "Whether the choice was drawn"),
    _needed("model_mask", MASK, "Which models could be chosen: 1101, empty for all"),
    _needed("role_mask", MASK, "Which roles could be chosen, empty for all"),
    _needed("prompt_digest", String, "Digest of what the coordinator read"),
    _needed("prompt_tokens", Integer, "Tokens that the coordinator read"),
    _needed("prompt_overflow", Boolean, "Whether that was cut to fit the encoder"),
    _blank(
        "recipe",
        String,
        "Device, numbers and attention that read it, such as cuda/bfloat16/sdpa; empty: cpu/float32/sdpa, or none",
    ),
    _needed("origin", String, "Who chose: policy, override, suggested_role, repair"),
    Column("margin", Float, doc="How far the choice was ahead, in logits"),
    Column("entropy", Float, doc="How undecided it was, in nats"),
    Column("started", Float, nullable=False),
    *_of_reply("model"),
    Column("recorded", OBJECT, doc="Which row of an outcome table the reply is; empty: the model wrote it"),
    # from here on: known once the turn is over
    Column("suggestion", Text, doc="The Thinker's plan, as it was read"),
    Column("suggested_role", one_of(Role), doc="The role that a Thinker asked for next"),
    Column("verdict", one_of(Verdict), doc="The Verifier's verdict, as it was read"),
    Column("verdict_raw", Text, doc="The words that the verdict was read from"),
    Column("answer_rule", String, doc="By which rule a Worker's answer was found in its reply"),
    Column("answer_after", Text, doc="The answer that stands after this turn"),
    Column("correct_after", Boolean, doc="Whether that is right"),
    # of a workflow's step alone
    Column("round", Integer, doc="The round of its workflow, from 0; empty: no workflow"),
    Column("step", Integer, doc="Its place in the workflow, from 0"),
    Column("subtask", Text, doc="What the step was asked to do"),
    Column("visible", NAMES, doc="JSON list of the turns that it could read"),
    Column("flags", FLAGS, nullable=False, server_default="", doc="What was noticed, by commas"),
    _only("stage", ("asked", "replied", "finished")),
    Index(None, "model", "role", "episode_id"),
    # In the order in which turns are added up, with what they are added up to: no sort.
    Index("ix_turn_groups", "role", "model", *_JUDGED, "stage", "episode_id", "idx", *_CONSUMED),
    # For what is counted over the turns of some episodes (verdicts, roles, spend).
    Index(
        "ix_turn_counts",
        *("episode_id", "idx", "stage", "role", "model", *_JUDGED, *_CONSUMED, "sampled", "margin"),
    ),
)

# The replies of a planner, in order, each with what was read from it.
plan = Table(
    "plan",
    metadata,
    Column("episode_id", String, _to("episode.id"), primary_key=True),
    Column("round", Integer, primary_key=True, doc="The round of plan and workflow, from 0"),
    Column("attempt", Integer, primary_key=True, doc="How often it was asked before in this round"),
    _needed("planner", String, "The model of the pool, or the policy, that wrote it"),
    _needed("at", Float, "When it was there, Unix seconds"),
    _needed("prompt", Text, "What the planner was asked: JSON messages"),
    _needed("reply", Text, "What the planner wrote"),
    _needed("reasoning", Text, "What it wrote apart from that, to think"),
    *_of_reply("planner"),
    Column("workflow", OBJECT, doc="JSON: models, subtasks, reads and mode; empty: none could be read"),
    Column("fault", one_of(PlanFault), doc="Why none could be read"),
    _zeroed("keeps", Boolean, "In a later round: nothing is changed"),
)

# What the judge said of the answers of turns, in order, each with the rating that was read from it.
judgement = Table(
    "judgement",
    metadata,
    Column("episode_id", String, _to("episode.id"), primary_key=True),
    Column("idx", Integer, primary_key=True, doc="The turn whose answer it is about, from 0"),
    Column("number", Integer, primary_key=True, doc="Its number in its episode, from 0"),
    _needed("judge", String, "The model of the pool that rated"),
    _needed("at", Float, "When it was there, Unix seconds"),
    _needed("answer", Text, "The answer that it is about"),
    _needed("prompt", Text, "What the judge was asked: JSON messages"),
    _needed("reply", Text, "What the judge wrote"),
    _needed("reasoning", Text, "What it wrote apart from that, to think"),
    *_of_reply("judge"),
    Column("rating", Float, doc="From 1 to 10; empty: none could be read"),
)

text = Table(
    "text",
    metadata,
    Column("id", _rowid, primary_key=True, doc="Its number in this store"),
    Column("episode_id", String, _to("episode.id"), nullable=False),
    _needed("idx", Integer, "The turn, from 0"),
    _needed("kind", String, "prompt (JSON messages), partial, reply or reasoning"),
    Column("body", Text, nullable=False),
    Index(None, "episode_id", "idx", "kind", unique=True),
)

state = Table(
    "state",
    metadata,
    Column("episode_id", String, _to("episode.id"), primary_key=True),
    Column("idx", Integer, primary_key=True),
    _needed("hidden", LargeBinary, "The vector, little-endian float16"),
)

override = Table(
    "override",
    metadata,
    Column("episode_id", String, primary_key=True),
    Column("idx", Integer, primary_key=True),
    Column("model", String, nullable=False),
    Column("role", one_of(Role), nullable=False),
)

proposal = Table(
    "proposal",
    metadata,
    Column("episode_id", String, _to("episode.id"), primary_key=True),
    Column("idx", Integer, nullable=False),
    _needed("policy", String, "Whoever proposes it"),
    _needed("body", Text, "JSON: the decision, without the hidden state"),
)

learning_update = Table(
    "learning_update",
    metadata,
    Column("run_id", String, _to("run.id"), primary_key=True),
    Column("idx", Integer, primary_key=True),
    _needed("episodes", Integer, "Episodes played so far, over all updates"),
    _needed("wall_s", Float, "Seconds so far, over all updates"),
    _needed("spent_usd", Float, "What replies cost so far, over all updates"),
    _needed("unread_usd", Float, "Of that: answers that could not be read or broke off"),
    Column("checkpoint_id", String, doc="The checkpoint that was kept after it; empty: none"),
    _needed("stats", OBJECT, "JSON: fitness or reward, validation, choices and more"),
)

candidate = Table(
    "candidate",
    metadata,
    Column("run_id", String, _to("run.id"), primary_key=True),
    Column("generation", Integer, primary_key=True),
    Column("idx", Integer, primary_key=True),
    Column("fitness", Float, doc="Its mean reward; empty when all is missing"),
    _needed("rollouts", Integer, "Episodes it was given"),
    _needed("missing", Integer, "Episodes lost to the infrastructure"),
)

optimiser = Table(
    "optimiser",
    metadata,
    Column("run_id", String, _to("run.id"), primary_key=True),
    _needed("generation", Integer, "The generation or iteration after which this is the state"),
    _needed("state", LargeBinary, "The learner's state, exact to the bit; empty: in a file"),
)

# What a generation under way, or those after it, would otherwise ask for again.
paid_reply = Table(
    "paid_reply",
    metadata,
    Column("run_id", String, _to("run.id"), primary_key=True),
    Column("key", LargeBinary, primary_key=True, doc="Digest of the call"),
    _needed("generation", Integer, "The generation under way when it was paid"),
    Column("cost_usd", Float),
    _needed("body", Text, "JSON of the reply"),
)

# What people said about an episode, a turn or a span of its reply. Append only: of the rows of one author under
# one name at one place the last counts, and the others are the history.
label = Table(
    "label",
    metadata,
    Column("id", _rowid, primary_key=True, doc="Its number in this store"),
    Column("episode_id", String, _to("episode.id"), nullable=False),
    Column("idx", Integer, doc="The turn, from 0; empty: the whole episode"),
    Column("span_start", Integer, doc="First character of the reply it is about; empty: all of it"),
    Column("span_end", Integer, doc="The character after its last"),
    Column("name", String, nullable=False),
    _needed("value", String, "What is said; empty: withdrawn"),
    _needed("note", Text, "Why, in the author's words"),
    _needed("author", String, "Who said it"),
    _needed("at", Float, "When, Unix seconds"),
    Index(None, "episode_id", "idx"),
    Index(None, "name", "value", "episode_id"),
)

view = Table(
    "view",
    metadata,
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False),
    _needed("query", OBJECT, "JSON: the parameters of its page's address"),
    Column("created", Float, nullable=False),
)

# What another checkpoint would have chosen at a recorded turn, where its encoder had to read the transcript again.
second_opinion = Table(
    "second_opinion",
    metadata,
    Column("episode_id", String, _to("episode.id"), primary_key=True),
    Column("idx", Integer, primary_key=True),
    Column("checkpoint_id", String, _to("checkpoint.id"), primary_key=True),
    Column("run_id", String, _to("run.id"), nullable=False),
    Column("model_logits", LargeBinary, nullable=False),  # little-endian float64
    Column("role_logits", LargeBinary, nullable=False),
    _needed("prompt_digest", String, "Digest of what the other coordinator read"),
    _needed("device", String, "Where it was read: cpu, cuda …"),
    Index(None, "run_id"),
)

# What in the transcript made a checkpoint's choice at a recorded turn. Places of words alone: no text is in here.
attribution = Table(
    "attribution",
    metadata,
    Column("episode_id", String, _to("episode.id"), primary_key=True),
    Column("idx", Integer, primary_key=True),
    Column("checkpoint_id", String, _to("checkpoint.id"), primary_key=True),
    Column("kind", String, primary_key=True, doc="What was left out: parts or words"),
    _needed("digest", String, "Digest of transcript, masks and choice it holds for"),
    _needed("body", Text, "JSON: how far each part or word moved the lead, in logits"),
    _only("kind", ("parts", "words")),
)

# Who may ask the endpoint. The key itself is nowhere: it is told once, when it is made.
_QUOTAS = (("usd", Float, "US dollars"), ("requests", Integer, "The number"), ("tokens", Integer, "Tokens"))
api_key = Table(
    "api_key",
    metadata,
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False),
    _needed("digest", String, "SHA-256 of the key's secret part"),
    Column("created", Float, nullable=False),
    Column("revoked", Float, doc="Since when it is refused, Unix seconds"),
    Column("max_cost_usd", Float, doc="What all its requests may cost together; empty: no ceiling"),
    Column("max_turns", Integer, doc="The most turns that one of its requests may take"),
    Column("deadline_s", Float, doc="How long one of its requests may take, in seconds"),
    _needed("leave_out", NAMES, "JSON list of models and providers that it does without"),
    *(
        Column(f"{period}_{what}", kind, doc=f"{words} of its requests of a {period}; empty: no limit")
        for period in ("day", "month")
        for what, kind, words in _QUOTAS
    ),
)

# What a request has cost stays known when its episode is deleted: ceilings are over it.
served = Table(
    "served",
    metadata,
    Column("episode_id", String, primary_key=True),
    Column("key_id", String, doc="The key it was asked with; empty: none"),
    _needed("door", String, "Which address was asked: chat, responses or messages"),
    _needed("model", String, "The model that was asked for: a tier or a checkpoint"),
    _needed("at", Float, "When it was asked, Unix seconds"),
    _zeroed("charged_usd", Float, "What counts against ceilings, US dollars: unknown use at its bound"),
    _zeroed("tokens", BigInteger, "Tokens that its models were sent and wrote"),
    _zeroed("under_way_usd", Float, "The most that its calls under way can cost, US dollars"),
    Column("deciding_s", Float, doc="Seconds that its decisions took; empty: not measured"),
    Column("recording_s", Float, doc="Seconds that storing its events took; empty: not measured"),
    Index(None, "key_id"),
    Index(None, "at"),
)


def same_turn(one: FromClause, other: FromClause = turn) -> ColumnElement[bool]:
    return at_turn(one, other.c.episode_id, other.c.idx)


def at_turn(table: FromClause, episode_id: Any, index: Any) -> ColumnElement[bool]:
    """The rows that belong to one turn, by values or by expressions for them."""
    return and_(table.c.episode_id == episode_id, table.c.idx == index)
