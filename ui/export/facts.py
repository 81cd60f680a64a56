"""What a saved page says of a decision, an episode and a pair, as plain words and numbers for its template."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from core.analysis.comparison import TEXT_CUT, Alignment, AlignmentRow, TurnKey, align
from core.episode import ROLE_ORDER, Decision, Status
from core.heads import softmax
from storage.analysis.second_opinions import Opinion
from storage.rows.mapping import to_floats
from storage.rows.summaries import EpisodeSummary
from ui.export.played import PlayedEpisode, PlayedTurn
from ui.presentation.theme import END_WORDS, STATUS_MARKS, Mark, correct_mark, percent
from ui.presentation.words import deciders, dollars, role_word, seconds

#: Alignment takes time and room as the product of the lengths: beyond this many turns a side is cut.
MOST_TURNS = 300


def second_opinions(turn: PlayedTurn, models: Sequence[str]) -> list[tuple[str, str, str, str]]:
    """What other checkpoints that read a turn again would most likely have chosen: checkpoint, pair, its probability,
    and a note that says whether choice and text are the recorded ones."""
    if turn.decision is None:
        return []
    return [_opinion_row(one, turn.decision, models) for one in turn.opinions]


def _opinion_row(opinion: Opinion, decision: Decision, models: Sequence[str]) -> tuple[str, str, str, str]:
    p = softmax(np.array(to_floats(opinion.model_logits)), decision.model_mask)
    q = softmax(np.array(to_floats(opinion.role_logits)), decision.role_mask)
    model, role = models[int(p.argmax())], ROLE_ORDER[int(q.argmax())]
    note = "the same" if (model, role) == (decision.model, decision.role) else "otherwise"
    if opinion.prompt_digest != decision.prompt_digest:
        note += "; it read another text"
    return opinion.checkpoint_id, f"{role_word(role)} on {model}", percent(float(p.max() * q.max())), note


def time_words(at: float) -> str:
    """A time as `2026-11-05 14:30 UTC`."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


def outcome_mark(played: PlayedEpisode) -> Mark:
    """Right, wrong or not judged; the status of an episode that is not finished."""
    status = played.episode.status
    return correct_mark(played.episode.correct) if status is Status.FINISHED else STATUS_MARKS[status]


def end_words(played: PlayedEpisode) -> str:
    """Why an episode ended, in words; empty for one that has not."""
    reason = played.episode.end_reason
    return END_WORDS[reason] if reason else ""


def facts(played: PlayedEpisode) -> list[tuple[str, str]]:
    """The other facts of an episode's head: name and value."""
    summary, episode = played.summary, played.episode
    generation = played.names.get(summary.policy, summary.generation)
    rows = [
        ("Policy", deciders(summary.policy, generation, episode.deciders, lambda: played.names)),
        ("Choice", f"{'argmax' if episode.argmax else 'sampled'}, seed {episode.seed}"),
        ("Protocol", episode.protocol),
        ("Turns", f"{len(played.turns)} of {episode.turn_budget}"),
        ("Tokens", f"{summary.tokens_in + summary.tokens_out:,}"),
        ("Time", seconds(summary.latency_s)),
        ("Cost", dollars(summary.cost_usd)),
        ("Task", f"{episode.task.id} ({episode.task.family})"),
        ("Episode", episode.id),
        ("Run", episode.run_id),
    ]
    if fork := episode.fork:
        rows.append(("Fork of", f"{fork.parent}, from turn {fork.turn + 1} on"))
    return rows


def totals(a: EpisodeSummary, b: EpisodeSummary) -> list[tuple[str, str, str, str]]:
    """A pair's totals: name, A, B, B minus A."""
    tokens = (a.tokens_in + a.tokens_out, b.tokens_in + b.tokens_out)
    return [
        ("Turns", str(a.turns), str(b.turns), f"{b.turns - a.turns:+d}"),
        ("Tokens", f"{tokens[0]:,}", f"{tokens[1]:,}", f"{tokens[1] - tokens[0]:+,d}"),
        ("Time", seconds(a.latency_s), seconds(b.latency_s), f"{b.latency_s - a.latency_s:+.2f} s"),
        ("Cost", dollars(a.cost_usd), dollars(b.cost_usd), ""),
    ]


def aligned_turns(a: PlayedEpisode, b: PlayedEpisode) -> Alignment:
    """The pair's alignment; its rows are the same whichever side is A."""
    if a.episode.id > b.episode.id:
        found = aligned_turns(b, a)
        return Alignment(
            tuple(AlignmentRow(row.b, row.a, row.cost) for row in found.rows), found.first_divergence
        )
    return align(_moves(a), _moves(b))


def _moves(played: PlayedEpisode) -> list[TurnKey]:
    return [
        TurnKey(turn.outline.model, turn.outline.role, turn.text.reply[:TEXT_CUT])
        for turn in played.turns[:MOST_TURNS]
    ]
