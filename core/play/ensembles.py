"""Policies that make one episode of several: a majority vote, a ballot of models, Mixture-of-Agents; and those that do
without a role, or without some models.

Each part of a vote or a mixture is an episode of `core.play.session` that knows nothing of the others; their turns
stand one after the other in the whole. What is recorded of them is taken as it is, so that such an episode goes on like
any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

from core.draws import derive_seed, reply_seed, uniform
from core.episode import (
    ROLE_ORDER,
    Ask,
    Decide,
    Decision,
    EndReason,
    Episode,
    Judgement,
    Replied,
    Role,
    Status,
    Turn,
    TurnStarted,
)
from core.errors import NothingAllowed
from core.play.policies import CyclePolicy, Masks, Policy, RandomPolicy, WrappedPolicy
from core.play.session import masks_of, play
from core.pool.spec import ModelSpec

Conduct = Generator[Any, Any, Episode]
#: A turn of a part as it stands in the whole, told whether it is the part's last one and how the part then ended.
Revise = Callable[[Turn, Episode | None], Turn]

VOTERS = 5


@dataclass
class _Whole:
    """An episode whose turns come from its parts, by these models; `turns` are those so far."""

    episode: Episode
    specs: Mapping[str, ModelSpec]
    turns: list[Turn] = field(default_factory=list)
    judgements: list[Judgement] = field(default_factory=list)

    def play(self, part: Conduct, decision: Decision | None = None, revise: Revise | None = None) -> Conduct:
        """Play a part and return it as it ended. A `decision` stands for each of its turns: the driver is not asked."""
        held: Turn | None = None
        response: Any = None
        while True:
            ended: Episode | None = None
            try:
                step = part.send(response)
            except StopIteration as over:
                step, ended = None, over.value
            if held is not None:  # now it is known whether it was the last one
                turn = revise(held, ended) if revise else held
                is_new, held = len(self.turns) >= len(self.episode.turns), None
                self.turns.append(turn if is_new else self.episode.turns[len(self.turns)])
                if is_new:
                    yield turn
            if ended is not None:
                return ended
            index, response = len(self.turns), None
            recorded = self.episode.turns[index] if index < len(self.episode.turns) else None
            match step:
                case Turn():
                    held = replace(step, index=index)
                case Decide() if recorded or decision:
                    response = recorded.decision if recorded else decision
                case Ask() if recorded and not self.specs[step.model].judge:
                    response = recorded.reply
                case Ask() if self.specs[step.model].dialect == "recorded":
                    response = yield self._next_sample(step)
                case TurnStarted() | Replied():
                    if not recorded:
                        yield replace(step, index=index)
                case Judgement():
                    self.judgements.append(replace(step, index=index))
                    yield self.judgements[-1]
                case _:
                    response = yield step

    def _next_sample(self, ask: Ask) -> Ask:
        """The same call of a recorded model: its rows are drawn, and paid, once in the whole."""
        before = sum(turn.decision.model == ask.model and bool(turn.messages) for turn in self.turns)
        return replace(ask, seed=reply_seed(self.episode.seed, self.episode.task.id), sample=before)

    def ended(self, status: Status, **outcome: Any) -> Episode:
        said = (*self.episode.judgements, *self.judgements)
        return replace(self.episode, turns=tuple(self.turns), judgements=said, status=status, **outcome)

    def missing(self, part: Episode) -> Episode:
        """The whole without a part that was lost."""
        answer = self.turns[-1].answer_after if self.turns else None
        return self.ended(Status.MISSING, end_reason=EndReason.ERROR, error=part.error, answer=answer)


def _part(episode: Episode, seed: tuple[int | str, ...], turn_budget: int) -> Episode:
    """A part that begins, with chances of its own."""
    return replace(episode, turns=(), seed=derive_seed((episode.seed, *seed)), turn_budget=turn_budget)


@dataclass(eq=False)
class MajorityVote(WrappedPolicy):
    """Majority vote (Wang et al. 2023, "Self-Consistency"): a policy plays the task `votes` times, knowing nothing of
    its other answers; the most frequent answer wins, of equals the first. After each turn the answer stands that has
    most votes so far. `turns`: the turn budget of each vote (None: the episode's)."""

    name: str
    votes: int = VOTERS
    turns: int | None = None
    decides_turns = False

    def __post_init__(self) -> None:
        self.id, self.models = self.name, self.inner.models

    @property
    def of_one_model(self) -> bool:
        """Whether each vote is another reply of one model to the same question."""
        return self.turns == 1 and isinstance(self.inner, CyclePolicy) and len(self.inner.steps) == 1

    def begin(self, episode: Episode) -> Episode:
        return replace(episode, turn_budget=self.votes * (self.turns or episode.turn_budget))

    def conduct(self, episode: Episode, specs: Mapping[str, ModelSpec], **masks: Unpack[Masks]) -> Conduct:
        """All votes, one after the other. An infrastructure failure in one of them makes the episode missing."""
        whole, ended = _Whole(episode, specs), list[Episode]()

        def stands(turn: Turn, part: Episode | None) -> Turn:
            winner = _winner([*ended, part] if part else ended)
            if winner is None:
                return turn
            return replace(turn, answer_after=winner.answer, correct_after=winner.correct)

        for number in range(self.votes):
            part = _part(episode, ("vote", number), episode.turn_budget // self.votes)
            game = play(part, specs, **masks)
            vote = yield from whole.play(game, revise=stands)
            if vote.status is not Status.FINISHED:
                return whole.missing(vote)
            ended.append(vote)
        winner = _winner(ended)
        return whole.ended(
            Status.FINISHED,
            end_reason=(winner or ended[0]).end_reason,
            answer=winner.answer if winner else None,
            correct=winner.correct if winner else ended[0].correct,
        )


def _winner(votes: Sequence[Episode]) -> Episode | None:
    """The first vote with the most frequent answer; None where none has an answer."""
    answers = Counter(vote.answer for vote in votes if vote.answer is not None)
    if not answers:
        return None
    [(most, _)] = answers.most_common(1)
    return next(vote for vote in votes if vote.answer == most)


@dataclass(frozen=True, slots=True)
class Said:
    """What a model answered when it was asked alone: its reply's text, and the answer that was read from it."""

    model: str
    text: str
    answer: str | None


#: Of a question and what was said to it so far: the place of whoever's answer stands (None: nobody gave one), and
#: whether nobody else is asked.
Tally = Callable[[str, Sequence[Said]], tuple[int | None, bool]]


@dataclass(frozen=True, slots=True, eq=False)
class Ballot(Policy):
    """Asks models one after the other, each alone and at most `most` of them, in the `order` that it has for a
    question, until its `tally` has enough; the answer stands that the tally says. After each turn it is the one so far.
    `told` says in a sentence how it was chosen, `strengths` how strong each model is reckoned for a question."""

    id: str
    models: tuple[str, ...]
    order: Callable[[str], Sequence[str]]
    tally: Tally
    most: int
    told: str = ""
    strengths: Callable[[str], Mapping[str, float]] | None = None
    decides_turns = False

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        """Whom it asks first."""
        return [
            Decision(
                asked_in_order(self, self.order(one.transcript.question), self.most, one.model_mask)[0],
                Role.WORKER,
                sampled=False,
                model_mask=one.model_mask,
            )
            for one in requests
        ]

    def begin(self, episode: Episode) -> Episode:
        return replace(episode, turn_budget=self.most)

    def conduct(self, episode: Episode, specs: Mapping[str, ModelSpec], **masks: Unpack[Masks]) -> Conduct:
        """A turn for each model that is asked. An infrastructure failure in one of them makes the episode missing."""
        whole, ended, said = _Whole(episode, specs), list[Episode](), list[Said]()
        question, stands, enough = episode.task.question, None, False
        mask, _ = masks_of(episode, specs, masks.get("model_mask", ()))

        def counted(turn: Turn, part: Episode | None) -> Turn:
            nonlocal stands, enough
            assert part is not None  # each part is one turn
            ended.append(part)
            said.append(Said(turn.decision.model, turn.reply.text, part.answer))
            place, enough = self.tally(question, said)
            stands = None if place is None else ended[place]
            if stands is None:
                return turn
            return replace(turn, answer_after=stands.answer, correct_after=stands.correct)

        for model in asked_in_order(self, self.order(question), self.most, mask):
            alone = Decision(model, Role.WORKER, sampled=False, model_mask=mask)
            game = play(_part(episode, ("ballot", model), 1), specs)
            part = yield from whole.play(game, alone, counted)
            if part.status is not Status.FINISHED:
                return whole.missing(part)
            if enough:
                break
        return whole.ended(
            Status.FINISHED,
            end_reason=EndReason.BUDGET,
            answer=stands.answer if stands else None,
            correct=stands.correct if stands else ended[0].correct,
        )


def asked_in_order(policy: Policy, order: Sequence[str], most: int, mask: Sequence[bool]) -> list[str]:
    """The first `most` models in this order of those that the policy may ask (False in `mask`: it may not).
    NothingAllowed where there is none."""
    may = [name for slot, name in enumerate(policy.models) if not mask or mask[slot]]
    if asked := [name for name in order if name in may][:most]:
        return asked
    raise NothingAllowed(f"The mask leaves nothing that policy '{policy.id}' could choose: allow more.")


@dataclass(frozen=True, slots=True)
class MixtureOfAgents(Policy):
    """Mixture-of-Agents (Wang et al. 2024) with one layer: every model answers, knowing nothing of the others; then
    one at random, which is handed all their answers, answers last. Calls: the models and one."""

    models: tuple[str, ...]
    id: str = "mixture"
    decides_turns = False

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        """Who answers last."""
        return RandomPolicy(self.models, (Role.WORKER,), self.id).decide(requests)

    def begin(self, episode: Episode) -> Episode:
        """The episode with a turn for each model and one for the last answer."""
        return replace(episode, turn_budget=len(self.models) + 1)

    def conduct(self, episode: Episode, specs: Mapping[str, ModelSpec], **masks: Unpack[Masks]) -> Conduct:
        """The layer of the models that the mask allows, then the last answer. An infrastructure failure in one of them
        makes the episode missing."""
        whole, answers = _Whole(episode, specs), dict[str, None]()
        mask = masks.get("model_mask", ())
        allowed = [
            model
            for slot, model in enumerate(self.models)
            if (not mask or mask[slot]) and model not in episode.left_out
        ]

        def beside_the_others(turn: Turn, part: Episode | None) -> Turn:
            if turn.answer_after is not None:
                answers[turn.answer_after] = None
            elif whole.turns:  # a turn without an answer leaves the one before
                before = whole.turns[-1]
                turn = replace(turn, answer_after=before.answer_after, correct_after=before.correct_after)
            last = turn.decision.model == allowed[-1]
            return replace(turn, suggestion="; ".join(answers)) if last else turn

        for model in allowed:
            alone = Decision(model, Role.WORKER, sampled=False)
            game = play(_part(episode, ("proposal", model), 1), specs)
            proposal = yield from whole.play(game, alone, beside_the_others)
            if proposal.status is not Status.FINISHED:
                return whole.missing(proposal)
        layer = replace(episode, turns=tuple(whole.turns), turn_budget=len(allowed) + 1)
        over = yield from whole.play(play(layer, specs, model_mask=mask))
        return replace(over, turn_budget=episode.turn_budget)


@dataclass(eq=False)
class WithoutRole(WrappedPolicy):
    """A policy that never chooses one of the roles."""

    role: Role

    def __post_init__(self) -> None:
        self.id, self.models = f"without:{self.role}:{self.inner.id}", self.inner.models

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        return self.inner.decide([replace(one, role_mask=self._mask(one.role_mask)) for one in requests])

    def conduct(self, episode: Episode, specs: Mapping[str, ModelSpec], **masks: Unpack[Masks]) -> Conduct:
        masks["role_mask"] = self._mask(masks.get("role_mask") or ())
        return self.inner.conduct(episode, specs, **masks)

    def _mask(self, other: Sequence[bool]) -> tuple[bool, ...]:
        return tuple(
            role is not self.role and (not other or other[place]) for place, role in enumerate(ROLE_ORDER)
        )


@dataclass(eq=False)
class WithoutModels(WrappedPolicy):
    """A policy that may not choose `n` of its models, drawn for each task."""

    n: int
    decides_turns = False

    def __post_init__(self) -> None:
        self.id, self.models = f"without:{self.n}:{self.inner.id}", self.inner.models

    def begin(self, episode: Episode) -> Episode:
        """The episode without so many models."""
        draws = uniform(f"left out/{episode.seed}/{episode.task.id}", len(episode.models))
        places = sorted(range(len(episode.models)), key=lambda place: float(draws[place]))[: self.n]
        left_out = tuple(episode.models[place] for place in sorted(places))
        return replace(self.inner.begin(episode), left_out=left_out)

    def conduct(self, episode: Episode, specs: Mapping[str, ModelSpec], **masks: Unpack[Masks]) -> Conduct:
        mask = masks.get("model_mask") or (True,) * len(episode.models)
        masks["model_mask"] = tuple(
            own and name not in episode.left_out for own, name in zip(mask, episode.models, strict=True)
        )
        return self.inner.conduct(episode, specs, **masks)
