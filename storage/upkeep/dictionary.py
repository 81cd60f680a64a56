"""What every table and column of the store means, for people who read it with their own tools.

Names, types and keys are those of `storage/rows/schema.py`; a test holds that nothing of it is left unexplained.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Column

from storage.rows.schema import metadata

#: Table -> what one row is.
TABLE_MEANINGS: dict[str, str] = {
    "run": "One run: episodes recorded together, an evolution, a live problem, an import, a fork",
    "checkpoint": "One coordinator's weights, never changed once kept",
    "task": "One task by its content",
    "episode": "One task played by one policy: what lists show, without texts",
    "turn": "One turn of an episode: decision, cost and outcome, without texts",
    "text": "One text of a turn; kept apart so that no list reads it",
    "state": "The hidden state that a turn's decision was read from",
    "override": "A decision that a person took over, waiting for its turn",
    "generation": "One generation of an evolution",
    "candidate": "One candidate of a generation",
    "optimiser": "What an evolution needs to go on after its last generation",
    "paid_reply": "A reply that an evolution has paid for and may need again",
    "label": "One thing a person said about an episode, a turn or words of its reply; never changed",
    "view": "A list of episodes kept under a name",
    "second_opinion": "What another checkpoint would have chosen at a recorded turn",
}

#: What a column means wherever it stands, unless MEANINGS says otherwise.
_SHARED: dict[str, str] = {
    "id": "Its id: short, sortable by time, safe in addresses",
    "run_id": "The run it belongs to",
    "episode_id": "The episode it belongs to",
    "checkpoint_id": "The checkpoint, if it is a stored one",
    "idx": "Its number, from 0",
    "created": "When it was made, Unix seconds",
    "started": "When it began, Unix seconds",
    "finished": "When it was over, Unix seconds",
    "config": "JSON: everything it was made with",
    "status": "Where it stands",
    "model": "The chosen model",
    "role": "The chosen role: thinker, worker or verifier",
    "model_logits": "One score per model, little-endian float64",
    "role_logits": "One score per role, little-endian float64",
    "tokens_in": "Tokens sent to models",
    "tokens_out": "Tokens that models wrote",
    "cost_usd": "US dollars; empty when the price is not known",
    "latency_s": "Seconds spent waiting for models",
    "flags": "What was noticed about it",
    "generation": "The generation it is of",
    "family": "The task's family",
    "question": "What is asked",
    "body": "The text itself",
    "name": "Its name",
}

#: (table, column) -> its meaning.
_OWN: dict[tuple[str, str], str] = {
    ("run", "kind"): "What it is: run, evolve, live, import, fork or reencode",
    ("run", "heartbeat"): "The last sign of life of its process, Unix seconds",
    ("run", "owner"): "The process that plays it: host:pid@start",
    ("run", "error"): "Why it failed, in one sentence",
    ("run", "cancel"): "Somebody asked to cancel it",
    ("run", "paused"): "Somebody asked to wait before the next turn",
    ("run", "steps"): "The number of the turn up to which it is played while it is paused; 0: none",
    ("checkpoint", "kind"): "What was learned: head or head+svf",
    ("checkpoint", "digest"): "SHA-256 of its config and weights",
    ("checkpoint", "weights"): "The weights, as safetensors",
    ("checkpoint", "size_bytes"): "Bytes of its weights",
    ("task", "key"): "Its number in this store",
    ("task", "digest"): "SHA-256 of its content",
    ("task", "id"): "The id its file gave it",
    ("task", "answer"): "The right answer",
    ("task", "grader"): "How answers are judged",
    ("task", "split"): "train, validation, test or live",
    ("episode", "task_key"): "The task that was played",
    ("episode", "task_id"): "The task's id in its file",
    ("episode", "question"): "The first characters of the question, for lists",
    ("episode", "policy"): "Who decided: a checkpoint's id, single:MODEL, random …",
    ("episode", "models"): "JSON list of the pool's models in slot order",
    ("episode", "protocol"): "How models were spoken to",
    ("episode", "turn_budget"): "The most turns it could take",
    ("episode", "seed"): "Where its random draws begin",
    ("episode", "argmax"): "Whether the likeliest choice was taken each time",
    ("episode", "parent_episode_id"): "The episode it was forked from",
    ("episode", "fork_turn"): "The turn of its parent at which it departs, from 0",
    ("episode", "meta"): "JSON: how a fork was made, why one is missing, who decides, and what others noted",
    ("episode", "end_reason"): "Why it ended",
    ("episode", "answer"): "The final answer",
    ("episode", "correct"): "Whether that is right; empty when not judged",
    ("episode", "turns"): "Turns played",
    ("episode", "strip"): "The turn strip as text: T·a W·c V·b✓",
    ("episode", "min_margin"): "The smallest margin of its decisions, in logits",
    ("episode", "mean_entropy"): "The mean entropy of its decisions, in nats",
    ("episode", "flags"): "Bits in the order of storage.rows.summaries.EPISODE_FLAGS",
    ("turn", "stage"): "asked, replied or finished",
    ("turn", "model_probs"): "The softmax over models, little-endian float64",
    ("turn", "role_probs"): "The softmax over roles, little-endian float64",
    ("turn", "argmax_model"): "The likeliest model",
    ("turn", "argmax_role"): "The likeliest role",
    ("turn", "sampled"): "Whether the choice was drawn",
    ("turn", "model_mask"): "Which models could be chosen: 1101, empty for all",
    ("turn", "role_mask"): "Which roles could be chosen, empty for all",
    ("turn", "prompt_digest"): "Digest of what the coordinator read",
    ("turn", "prompt_tokens"): "Tokens that the coordinator read",
    ("turn", "prompt_overflow"): "Whether that was cut to fit the encoder",
    ("turn", "origin"): "Who chose: policy, override, suggested_role …",
    ("turn", "margin"): "How far the choice was ahead, in logits",
    ("turn", "entropy"): "How undecided it was, in nats",
    ("turn", "finish_reason"): "Why the model stopped writing",
    ("turn", "error_kind"): "What kind of failure the model had",
    ("turn", "error"): "What the failure said",
    ("turn", "suggestion"): "The Thinker's plan, as it was read",
    ("turn", "suggested_role"): "The role that a Thinker asked for next",
    ("turn", "verdict"): "The Verifier's verdict, as it was read",
    ("turn", "verdict_raw"): "The words that the verdict was read from",
    ("turn", "answer_after"): "The answer that stands after this turn",
    ("turn", "correct_after"): "Whether that is right",
    ("turn", "flags"): "What was noticed, by commas",
    ("text", "id"): "Its number in this store",
    ("text", "idx"): "The turn, from 0",
    ("text", "kind"): "prompt (JSON messages), partial, reply or reasoning",
    ("state", "hidden"): "The vector, little-endian float16",
    ("generation", "best"): "The best candidate's fitness",
    ("generation", "mean"): "The mean fitness",
    ("generation", "median"): "The median fitness",
    ("generation", "sigma"): "The optimiser's step size",
    ("generation", "evaluations"): "Episodes spent so far, over all generations",
    ("generation", "wall_s"): "Seconds it took",
    ("generation", "stats"): "JSON: anything else worth a curve",
    ("candidate", "fitness"): "Its mean reward; empty when all is missing",
    ("candidate", "rollouts"): "Episodes it was given",
    ("candidate", "missing"): "Episodes lost to the infrastructure",
    ("optimiser", "generation"): "The generation after which this is the state",
    ("optimiser", "state"): "The learner's state, exact to the bit",
    ("paid_reply", "key"): "Digest of the call",
    ("paid_reply", "generation"): "The generation under way when it was paid",
    ("paid_reply", "body"): "JSON of the reply",
    ("label", "id"): "Its number in this store",
    ("label", "idx"): "The turn, from 0; empty: the whole episode",
    ("label", "span_start"): "First character of the reply it is about; empty: all of it",
    ("label", "span_end"): "The character after its last",
    ("label", "value"): "What is said; empty: withdrawn",
    ("label", "note"): "Why, in the author's words",
    ("label", "author"): "Who said it",
    ("label", "at"): "When, Unix seconds",
    ("second_opinion", "prompt_digest"): "Digest of what the other coordinator read",
    ("second_opinion", "device"): "Where it was read: cpu, cuda …",
    ("view", "query"): "JSON: the parameters of its page's address",
}


@dataclass(frozen=True, slots=True)
class ColumnMeaning:
    """A column as a reader needs it: `key` is "primary key", the column it refers to, or nothing."""

    name: str
    type: str
    key: str
    required: bool
    meaning: str


def columns(table: str) -> tuple[ColumnMeaning, ...]:
    """The columns of a table in their order; KeyError for a table there is not."""
    return tuple(_column(table, column) for column in metadata.tables[table].columns)


def _column(table: str, column: Column[object]) -> ColumnMeaning:
    refers = next(iter(column.foreign_keys), None)
    key = "primary key" if column.primary_key else f"→ {refers.target_fullname}" if refers else ""
    meaning = _OWN.get((table, column.name)) or _SHARED.get(column.name, "")
    return ColumnMeaning(column.name, str(column.type), key, not column.nullable, meaning)
