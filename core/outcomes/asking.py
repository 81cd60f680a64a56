"""The rules of `core.outcomes.rules` as policies: who is asked next, and whose answer stands, by what was said."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

import numpy as np

from core.episode import (
    ROLE_ORDER,
    Decide,
    Decision,
    EndReason,
    Episode,
    Role,
    Status,
    TranscriptEntry,
)
from core.outcomes.rules import log_odds, option_weight
from core.play.ensembles import Said, Tally, asked_in_order
from core.play.policies import Masks, Policy
from core.play.session import masks_of, play
from core.pool.spec import ModelSpec

#: Whether two answers to a question are the same.
Same = Callable[[str, str, str], bool]
#: The models in the order in which they are asked a question.
Order = Callable[[str], Sequence[str]]
#: A number of each model for a question.
Numbered = Callable[[str], Mapping[str, float]]
#: How likely the answers of the models asked so far, in that order, are right; empty where nobody knows.
Likely = Callable[[str, tuple[str, ...]], Mapping[str, float]]
#: Whether a model's answer to a question is enough when it comes first.
Enough = Callable[[str, str], bool]


def never(question: str, model: str) -> bool:
    """No first answer is enough."""
    return False


def groups_of(question: str, answers: Sequence[str | None], same: Same) -> list[int]:
    """The place of the first answer that each is the same as; -1 without one."""
    found: list[int] = []
    for place, answer in enumerate(answers):
        earlier = (
            other
            for other, own in enumerate(found)
            if own == other and answer is not None and same(question, str(answers[other]), answer)
        )
        found.append(-1 if answer is None else next(earlier, place))
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Cascade(Policy):
    """Recorded models, at most so many in their order: the first works, and those after it verify its answer; one that
    accepts ends it. An earlier answer is taken again by a turn of its model's and a Verifier's, which cost nothing
    where a model has one reply to a task: they are turns that a coordinator can be taught.

    `told` says in a sentence how it was chosen, `strengths` how strong each model is reckoned for a question."""

    id: str
    models: tuple[str, ...]
    order: Order
    most: int
    told: str = field(default="", kw_only=True)
    strengths: Numbered | None = field(default=None, kw_only=True)

    def begin(self, episode: Episode) -> Episode:
        """The episode with a turn for each model that is asked, and two in which an earlier answer is taken again."""
        return replace(episode, turn_budget=self.most + 2)

    def asked(self, question: str, mask: Sequence[bool]) -> list[str]:
        """The models in the order in which they are asked."""
        return asked_in_order(self, self.order(question), self.most, mask)

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        """Who is next, as Verifier where it is to judge and the mask leaves that role, else as Worker."""
        return [self._decide(request) for request in requests]

    def _decide(self, request: Decide) -> Decision:
        model, judges = self.next_turn(request)
        role = Role.VERIFIER if judges and _may_verify(request.role_mask) else Role.WORKER
        return Decision(
            model, role, sampled=False, model_mask=request.model_mask, role_mask=request.role_mask
        )

    @abstractmethod
    def next_turn(self, request: Decide) -> tuple[str, bool]:
        """The next model, and whether it judges the answer that stands."""


@dataclass(frozen=True, slots=True, eq=False)
class AgreementCascade(Cascade):
    """Until two give the same answer; else the first answer stands.

    Where one agrees with another that came before it and not with the first, the earlier one works and the later one
    verifies. A model that follows one without an answer works too. Where the first model's answer is `enough`, nobody
    else is asked: where a model has one reply to a task, it verifies its own answer."""

    same: Same
    enough: Enough = never

    def conduct(
        self, episode: Episode, specs: Mapping[str, ModelSpec], **masks: Unpack[Masks]
    ) -> Generator[Any, Any, Episode]:
        """It ends when everybody was asked, but where the last one agrees with one before it; or with a first answer
        that is enough."""
        mask, roles = masks_of(episode, specs, masks.get("model_mask", ()), masks.get("role_mask", ()))
        over, question = episode, episode.task.question
        for step, budget in enumerate((1, len(self.asked(question, mask)), self.most + 2)):
            over = yield from play(_open(over, budget), specs, **masks)
            if not _ran_out(over):
                break
            said = _said(over)
            if step == 0 and self._is_enough(question, said):
                if _may_verify(roles) and specs[over.turns[0].decision.model].repeats:
                    over = yield from play(_open(over, 2), specs, **masks)
                break
            if step > 0 and self._pair(question, said) is None:
                break
        return replace(over, turn_budget=episode.turn_budget)

    def _is_enough(self, question: str, said: Mapping[str, str | None]) -> bool:
        """Whether one model alone was asked, and its answer is enough."""
        return len(said) == 1 and all(
            answer is not None and self.enough(question, model) for model, answer in said.items()
        )

    def next_turn(self, request: Decide) -> tuple[str, bool]:
        """The next model in order, which judges once there is an answer; then, of two that agree, the earlier one,
        which works, and the later one, which judges."""
        question, entries = request.transcript.question, request.transcript.entries
        asked = self.asked(question, request.model_mask)
        said = {entry.model: entry.answer for entry in entries}
        left = [name for name in asked if name not in said]
        if _may_verify(request.role_mask) and self._is_enough(question, said):
            return entries[0].model, True
        if (pair := self._pair(question, said)) is not None:
            earlier, later = pair
            answered = (stands := _standing(entries)) is not None and stands.model == earlier
            return (later, True) if answered else (earlier, False)
        if left:
            works = all(entry.answer is None or entry.role is not Role.WORKER for entry in entries)
            return left[0], not works
        return asked[0], False

    def _pair(self, question: str, said: Mapping[str, str | None]) -> tuple[str, str] | None:
        """The first two models, in the order that they were asked in, that gave the same answer."""
        names, groups = [*said], groups_of(question, [*said.values()], self.same)
        found = ((names[group], names[place]) for place, group in enumerate(groups) if 0 <= group < place)
        return next(found, None)


@dataclass(frozen=True, slots=True, eq=False)
class ProbeCascade(Cascade):
    """Until one agrees with the answer that stands, or one of theirs is likely enough; else the likeliest stands.

    The model whose answer is to stand works again, where it is not the one that stands, and verifies it."""

    likely: Likely
    sure: float

    def conduct(
        self, episode: Episode, specs: Mapping[str, ModelSpec], **masks: Unpack[Masks]
    ) -> Generator[Any, Any, Episode]:
        """It ends when a Verifier accepts, or when the answer stands that is to stand."""
        mask, roles = masks_of(episode, specs, masks.get("model_mask", ()), masks.get("role_mask", ()))
        over, chosen = episode, False
        while not chosen:
            stands = next(
                (t.decision.model for t in reversed(over.turns) if t.decision.role is Role.WORKER), None
            )
            best = self._best(over.task.question, _said(over), mask)
            chosen = best is not None
            confirms = best is None or (_may_verify(roles) and specs[best].repeats)
            turns = confirms + (best is not None and best != stands)
            over = yield from play(_open(over, len(over.turns) + turns), specs, **masks)
            if not _ran_out(over):
                break
        return replace(over, turn_budget=episode.turn_budget)

    def next_turn(self, request: Decide) -> tuple[str, bool]:
        """The next model in order, which judges once there is an answer; then the one whose answer is to stand, which
        works unless it stands, and judges."""
        question, entries = request.transcript.question, request.transcript.entries
        said = {entry.model: entry.answer for entry in entries}
        stands = _standing(entries)
        best = self._best(question, said, request.model_mask)
        model = best or next(name for name in self.asked(question, request.model_mask) if name not in said)
        return model, stands is not None and stands.answer is not None and best in (None, stands.model)

    def _best(self, question: str, said: Mapping[str, str | None], mask: Sequence[bool]) -> str | None:
        """Whose answer is to stand; None where another model is to be asked."""
        if not said:
            return None
        chances = self.likely(question, tuple(said))
        answered = [name for name, answer in said.items() if answer is not None]
        best = max(answered, key=lambda name: chances.get(name, 0.0), default=None)
        if {*self.asked(question, mask)} <= {*said}:
            return best or next(iter(said))
        return best if best is not None and chances.get(best, 0.0) >= self.sure else None


def _may_verify(roles: Sequence[bool]) -> bool:
    """Whether a mask of roles leaves the Verifier."""
    return not roles or roles[ROLE_ORDER.index(Role.VERIFIER)]


def _open(episode: Episode, turn_budget: int) -> Episode:
    """The episode as it goes on, to so many turns."""
    on = replace(episode, status=Status.RUNNING, end_reason=None, answer=None, correct=None)
    return replace(on, turn_budget=turn_budget)


def _ran_out(episode: Episode) -> bool:
    """Whether it was played to its last turn, and nothing else ended it."""
    return episode.status is Status.FINISHED and episode.end_reason is EndReason.BUDGET


def _said(episode: Episode) -> dict[str, str | None]:
    """What each model that was asked answered, as it is recorded."""
    recorded = {turn.decision.model: turn.reply.recorded for turn in episode.turns}
    return {model: None if one is None else one.answer for model, one in recorded.items()}


def _standing(entries: Sequence[TranscriptEntry]) -> TranscriptEntry | None:
    """The latest turn of a Worker."""
    return next((entry for entry in reversed(entries) if entry.role is Role.WORKER), None)


def two_agree(same: Same, enough: Enough = never) -> Tally:
    """Enough as soon as two give the same answer, which then stands; until then the first answer does. Enough at once
    where that of the model asked first is."""

    def tally(question: str, said: Sequence[Said]) -> tuple[int | None, bool]:
        groups = groups_of(question, [one.answer for one in said], same)
        pair = next((group for place, group in enumerate(groups) if 0 <= group < place), None)
        first = next((place for place, group in enumerate(groups) if group >= 0), None)
        alone = first == 0 and enough(question, said[0].model)
        return (first, alone) if pair is None else (pair, True)

    return tally


def most_weight(same: Same, weights: Numbered) -> Tally:
    """The answer of most weight stands, of equals the one that came first. Everybody is asked."""

    def tally(question: str, said: Sequence[Said]) -> tuple[int | None, bool]:
        totals = _totals(question, said, same, weights(question))
        return max(totals, key=totals.__getitem__, default=None), False

    return tally


def sure_enough(same: Same, chances: Numbered, options: Callable[[str], int], sure: float) -> Tally:
    """The likeliest answer by naive Bayes stands, and it is enough once it has the chance `sure`."""

    def tally(question: str, said: Sequence[Said]) -> tuple[int | None, bool]:
        n = options(question)
        weights = {
            name: float(option_weight(np.array(chance), np.array(n)))
            for name, chance in chances(question).items()
        }
        totals = _totals(question, said, same, weights)
        if not totals:
            return None, False
        best = max(totals, key=totals.__getitem__)
        likely = {place: math.exp(min(total, 500)) for place, total in totals.items()}
        return best, likely[best] / (sum(likely.values()) + max(n - len(likely), 0)) >= sure

    return tally


def _totals(
    question: str, said: Sequence[Said], same: Same, weights: Mapping[str, float]
) -> dict[int, float]:
    """The weight of each answer, by the place of whoever gave it first."""
    totals: dict[int, float] = {}
    for one, group in zip(said, groups_of(question, [one.answer for one in said], same), strict=True):
        if group >= 0:
            totals[group] = totals.get(group, 0.0) + weights[one.model]
    return {place: round(total, 9) for place, total in totals.items()}


def weights_of(strengths: Mapping[str, float]) -> dict[str, float]:
    """How much the vote of each model weighs, by its strength."""
    return {name: float(log_odds(np.array(strength))) for name, strength in strengths.items()}
