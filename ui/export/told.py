"""What a saved page says of a decision, an episode and a pair, as plain words and numbers for its template."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from core.comparison import TEXT_CUT, Alignment, Move, Row, align
from core.episode import ROLE_ORDER, Decision, Role, Status
from core.heads import softmax
from storage.mapping import to_floats
from storage.opinions import Opinion
from storage.summaries import EpisodeSummary
from ui.decision_panels import alternatives
from ui.export.played import Played, PlayedTurn
from ui.figures import role_word, share
from ui.panels import seconds
from ui.spending import dollars
from ui.theme import END_WORDS, ROLE_LOOKS, STATUS_MARKS, Mark, correct_mark
from ui.widgets import deciders

#: Alignment takes time and room as the product of the lengths: beyond this many turns a side is cut.
MOST_TURNS = 300

ORIGINS = {
    "override": "chosen by hand",
    "suggested_role": "the role was suggested by the Thinker before",
}


def how_chosen(decision: Decision, models: Sequence[str]) -> str:
    """How the choice came about in one plain sentence."""
    chosen = f"{role_word(decision.role)} on {decision.model}"
    if decision.origin in ORIGINS:
        return f"{chosen}: {ORIGINS[decision.origin]}."
    if not decision.model_probs or not decision.role_probs:
        return f"{chosen}, chosen by a rule without logits."
    if not decision.argmax_model:
        return f"{chosen}, drawn at random."
    if (decision.argmax_model, decision.argmax_role) == (decision.model, decision.role):
        return f"{chosen}, the likeliest pair{', sampled' if decision.sampled else ' (argmax)'}."
    likeliest = "" if decision.argmax_role is None else f"{role_word(decision.argmax_role)} on "
    return f"{chosen}, sampled; argmax would have been {likeliest}{decision.argmax_model}."


def runners_up(decision: Decision, models: Sequence[str]) -> list[tuple[str, str, str]]:
    """The likeliest pairs that were not chosen: pair, probability, by how many nats the choice was ahead."""
    if not decision.argmax_model:
        return []
    return [
        (f"{role_word(other.role)} on {other.model}", share(other.p), f"{other.margin:+.2f}")
        for other in alternatives(decision, models)
    ]


def elsewise(turn: PlayedTurn, models: Sequence[str]) -> list[tuple[str, str, str, str]]:
    """What other checkpoints would likeliest have chosen at a turn when they read it again: checkpoint, pair, its
    probability, and whether that is the choice that was made and what they read is what was read."""
    if turn.decision is None:
        return []
    return [_other(one, turn.decision, models) for one in turn.opinions]


def _other(opinion: Opinion, decision: Decision, models: Sequence[str]) -> tuple[str, str, str, str]:
    p = softmax(np.array(to_floats(opinion.model_logits)), decision.model_mask)
    q = softmax(np.array(to_floats(opinion.role_logits)), decision.role_mask)
    model, role = models[int(p.argmax())], ROLE_ORDER[int(q.argmax())]
    note = "the same" if (model, role) == (decision.model, decision.role) else "otherwise"
    if opinion.prompt_digest != decision.prompt_digest:
        note += "; it read another text"
    return opinion.checkpoint_id, f"{role_word(role)} on {model}", share(float(p.max() * q.max())), note


def when(at: float) -> str:
    """A time as `2026-11-05 14:30 UTC`."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


def outcome(played: Played) -> Mark:
    """Right, wrong or not judged; while it is not finished, where it stands."""
    status = played.episode.status
    return correct_mark(played.episode.correct) if status is Status.FINISHED else STATUS_MARKS[status]


def ended(played: Played) -> str:
    """Why it ended, in words; empty while it has not."""
    reason = played.episode.end_reason
    return END_WORDS[reason] if reason else ""


def facts(played: Played) -> list[tuple[str, str]]:
    """What else stands in an episode's head: name and value."""
    summary, episode = played.summary, played.episode
    told = [
        ("Policy", deciders(summary.policy, summary.generation, episode.meta)),
        ("Choice", f"{'argmax' if episode.argmax else 'sampled'}, seed {episode.seed}"),
        ("Protocol", episode.protocol.value),
        ("Turns", f"{len(played.turns)} of {episode.turn_budget}"),
        ("Tokens", f"{summary.tokens_in + summary.tokens_out:,}"),
        ("Time", seconds(summary.latency_s)),
        ("Cost", dollars(summary.cost_usd)),
        ("Task", f"{episode.task.id} ({episode.task.family})"),
        ("Episode", episode.id),
        ("Run", episode.run_id),
    ]
    if episode.parent_episode_id:
        fork = "" if episode.fork_turn is None else f", from turn {episode.fork_turn + 1} on"
        told.append(("Fork of", f"{episode.parent_episode_id}{fork}"))
    return told


def totals(a: EpisodeSummary, b: EpisodeSummary) -> list[tuple[str, str, str, str]]:
    """A pair's totals: name, A, B, B minus A."""
    tokens = (a.tokens_in + a.tokens_out, b.tokens_in + b.tokens_out)
    return [
        ("Turns", str(a.turns), str(b.turns), f"{b.turns - a.turns:+d}"),
        ("Tokens", f"{tokens[0]:,}", f"{tokens[1]:,}", f"{tokens[1] - tokens[0]:+,d}"),
        ("Time", seconds(a.latency_s), seconds(b.latency_s), f"{b.latency_s - a.latency_s:+.2f} s"),
        ("Cost", dollars(a.cost_usd), dollars(b.cost_usd), ""),
    ]


def aligned(a: Played, b: Played) -> Alignment:
    """The pair's alignment; its rows are the same whichever side is A."""
    if a.episode.id > b.episode.id:
        found = aligned(b, a)
        return Alignment(tuple(Row(row.b, row.a, row.cost) for row in found.rows), found.first_divergence)
    return align(_moves(a), _moves(b))


def _moves(played: Played) -> list[Move]:
    return [
        Move(turn.outline.model, turn.outline.role, turn.text.reply[:TEXT_CUT])
        for turn in played.turns[:MOST_TURNS]
    ]


def role_name(role: Role) -> str:
    """A role's word alone."""
    return ROLE_LOOKS[role].word
