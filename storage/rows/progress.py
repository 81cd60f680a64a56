"""What lists show of an episode so far, its strip of turns above all; it grows turn by turn."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from core.analysis.metrics import decision_entropy, decision_margin
from core.episode import EndReason, Episode, Plan, Reply, Role, Turn, Verdict
from core.play.policies import VOTES, rule_of
from storage.rows.summaries import LOW_MARGIN

_LETTERS = {Role.THINKER: "T", Role.WORKER: "W", Role.VERIFIER: "V"}
_MARKS = {Verdict.ACCEPT: "✓", Verdict.REVISE: "✗", None: ""}


@dataclass(frozen=True, slots=True)
class EpisodeProgress:
    """What lists show of an episode so far; grows turn by turn without looking back."""

    turns: int = 0
    strip: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float | None = None  # None as soon as one price is unknown
    latency_s: float = 0.0
    min_margin: float | None = None
    entropy_sum: float = 0.0
    decisions: int = 0  # turns decided by a head
    flags: frozenset[str] = frozenset()  # out of EPISODE_FLAGS
    right: bool | None = None  # the answer after the last turn
    calls: int = 0  # turns, and replies of a planner
    topology: str | None = None  # of the last workflow
    plan_fault: str | None = None  # of the last plan

    @classmethod
    def over(
        cls, models: Sequence[str], turns: Iterable[Turn], plans: Iterable[Plan] = ()
    ) -> EpisodeProgress:
        planned = reduce(EpisodeProgress.add_plan, plans, cls())
        return reduce(lambda progress, turn: progress.add(models, turn), turns, planned)

    def add_plan(self, plan: Plan) -> EpisodeProgress:
        """The progress after one more plan, which costs as a turn does and is none."""
        return replace(
            self._after(plan.reply),
            topology=plan.workflow.topology.value if plan.workflow else self.topology,
            plan_fault=plan.fault.value if plan.fault else None,
        )

    def _after(self, reply: Reply) -> EpisodeProgress:
        usage, before = reply.usage, 0.0 if self.calls == 0 else self.cost_usd
        return replace(
            self,
            calls=self.calls + 1,
            tokens_in=self.tokens_in + usage.tokens_in,
            tokens_out=self.tokens_out + usage.tokens_out,
            cost_usd=None if before is None or usage.cost_usd is None else before + usage.cost_usd,
            latency_s=self.latency_s + reply.latency_s,
        )

    def add(self, models: Sequence[str], turn: Turn) -> EpisodeProgress:
        decision = turn.decision
        margin, entropy = decision_margin(decision), decision_entropy(decision)
        cell = strip_cell(models, decision.model, decision.role, turn.verdict)
        return replace(
            self._after(turn.reply),
            turns=self.turns + 1,
            strip=f"{self.strip} {cell}".lstrip(),
            min_margin=min((m for m in (self.min_margin, margin) if m is not None), default=None),
            entropy_sum=self.entropy_sum + (entropy or 0.0),
            decisions=self.decisions + (entropy is not None),
            flags=self.flags | self._noticed(turn, margin),
            right=turn.correct_after,
        )

    def _noticed(self, turn: Turn, margin: float | None) -> set[str]:
        """What the turn adds to the episode's flags: its own, and those of the course."""
        found = {flag.value for flag in turn.flags}
        if self.right is True and turn.correct_after is False:
            found.add("answer_broke")
        if margin is not None and margin < LOW_MARGIN:
            found.add("low_margin")
        if turn.decision.origin == "override":
            found.add("override")
        return found


def strip_cell(models: Sequence[str], model: str, role: Role, verdict: Verdict | None) -> str:
    """One cell of a strip, e.g. "V·b✓": the model's letter is its slot, or its name beyond 26 slots."""
    slot = models.index(model) if model in models else -1
    letter = chr(ord("a") + slot) if 0 <= slot < 26 else model
    return f"{_LETTERS[role]}·{letter}{_MARKS[verdict]}"


_CELL = re.compile(r"([TWV])·(.+?)([✓✗]?)(?= [TWV]·|$)")
_BY_LETTER = {letter: role for role, letter in _LETTERS.items()}


def strip_moves(models: Sequence[str], strip: str) -> tuple[tuple[str, Role], ...]:
    """The (model, role) of every turn of a strip: inverse of `strip_cell` but for the verdict."""
    return tuple((_slot(models, cell[2]), _BY_LETTER[cell[1]]) for cell in _CELL.finditer(strip))


def _slot(models: Sequence[str], letter: str) -> str:
    slot = ord(letter) - ord("a") if len(letter) == 1 else -1
    return models[slot] if 0 <= slot < min(26, len(models)) else letter


def episode_flags(episode: Episode, progress: EpisodeProgress) -> frozenset[str]:
    flags = set(progress.flags)
    if episode.end_reason is EndReason.ACCEPTED and episode.correct is False:
        flags.add("false_accept")
    if episode.deciders:
        flags.add("swapped")
    if episode.correct and rule_of(episode.policy) in VOTES:  # it was ahead, behind, and ahead again
        flags.discard("answer_broke")
    return frozenset(flags)
