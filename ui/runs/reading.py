"""Recorded transcripts read again, with another checkpoint's encoder, or to find what in one made a recorded choice.

A page asks for it. An attribution is worked out there or, where it takes long, by a worker; each step of it is kept in
the store. Reading again is queued by the page and played by a worker process."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from core.analysis.attribution import (
    Attribution,
    Pair,
    WordAttribution,
    as_decided,
    by_part,
    check_gradients,
    digest_of,
    leave_out,
    own_choice,
    words_of,
)
from core.checkpoint import Checkpoint, Recipe
from core.episode import Decide, Decision, Episode, Transcript
from core.errors import CheckpointError, ConfigError, StoreError
from core.play.policies import Policy, decider_at
from core.play.session import recorded_requests, request_at
from core.settings import POCKET_POOL
from core.tasks.sets import load_tasks
from core.tokens.files import encoder_size
from storage.analysis.policy_diff import (
    CAN_BE_READ,
    CheckpointLogits,
    PolicyDiff,
    Source,
    StoredStates,
    configs_of,
    logits_of,
)
from storage.analysis.second_opinions import (
    EpisodeScope,
    JudgedTurns,
    Opinion,
    add_opinions,
    read_judged,
    read_opinions,
)
from storage.filters.episode_filter import EpisodeFilter
from storage.reads import forks
from storage.reads.episode_steps import read_decision
from storage.rows.mapping import floats
from storage.rows.summaries import RunStatus, RunSummary
from storage.shelves.attributions import AttributedTurn
from storage.store import Store
from ui.presentation.words import left_words
from ui.runs import wiring
from ui.runs.lease import owner
from ui.runs.plans import AttributionPlan, Preparation, RereadPlan, runs_of
from ui.runs.play import Ending, Stopped, decompositions, prepare_run
from ui.runs.policies import Policies
from ui.runs.wiring import encoder_place

if TYPE_CHECKING:
    from core.coordinator.coordinator import Coordinator
    from core.coordinator.encoder import Encoder
    from core.coordinator.recipes import Agreement

log = logging.getLogger(__name__)

#: Encoders with more parameters have words told apart by gradients and not by leaving each out.
LARGE = 50_000_000
#: Words left out together and kept: so much is lost at most, and so long a stop may take.
WORDS_AT_ONCE = 16
#: Arithmetic that a page does at once, about a second of it; more is left to a worker.
AT_ONCE_FLOP = 1e10

NO_ENCODER = "This policy has no encoder that reads the transcript: only a checkpoint's choices can be explained by it."
WORKFLOW_STEP = (
    "This turn is a step of a workflow: a planner wrote it before any step was played, so no coordinator chose it from "
    "the transcript."
)

Encoders = dict[tuple[str, str], "Encoder"]


@dataclass(frozen=True, slots=True)
class ExplainedTurn:
    """A turn whose choice is to be explained for one checkpoint: what it is asked, masks included, and the pair to be
    explained, None for the one that it finds likeliest. `encoder` is where its encoder is, of `size` parameters."""

    checkpoint: Checkpoint
    request: Decide
    chosen: Pair | None
    kept: AttributedTurn
    encoder: str
    size: int

    @property
    def by_gradients(self) -> bool:
        """Whether words are told apart by gradients."""
        return self.size > LARGE

    @property
    def no_words(self) -> str:
        """Why its words cannot be told apart, in one sentence; empty where they can."""
        if self.by_gradients:
            try:
                check_gradients(self.checkpoint.input_format)
            except ConfigError as error:
                return str(error)
        return ""

    @property
    def takes_long(self) -> bool:
        """Whether it is left to a worker."""
        words = words_of(self.request.transcript)
        readings = len(words) + len(self.request.transcript.entries) + 2
        characters = sum(end - start for _, start, end in words)
        return self.by_gradients or 2.0 * self.size * readings * (characters / 3 + 20) > AT_ONCE_FLOP


def read_turn(
    store: Store, episode_id: str, index: int, checkpoint_id: str, encoder: str | None = None
) -> ExplainedTurn:
    """`explained_turn` of what the store has. StoreError where it has no such episode or checkpoint."""
    decision = read_decision(store, episode_id, index)
    if decision is None:
        raise StoreError(f"Episode {episode_id} has no turn {index + 1}.")
    checkpoint = store.checkpoints.load(checkpoint_id)
    return explained_turn(store.episodes.get(episode_id), index, decision, checkpoint, encoder, store)


def explained_turn(
    episode: Episode,
    index: int,
    decision: Decision,
    checkpoint: Checkpoint,
    encoder: str | None = None,
    store: Store | None = None,
) -> ExplainedTurn:
    """What has to be asked to explain a decision, that at turn `index` of an episode with its texts. `encoder` is tried
    where the checkpoint's own is not at hand; `store` may have the evolution that knows where that lies. ConfigError
    or CheckpointError, one sentence, where it cannot be explained."""
    check_explainable(episode)
    if not decision.model_logits:
        raise ConfigError(NO_ENCODER)
    if checkpoint.models != episode.models:
        raise ConfigError(f"Checkpoint {checkpoint.id} chooses among other models than this episode's.")
    reads_chat = checkpoint.input_format == "chat"
    request = as_decided(request_at(episode, index), decision, reads_chat=reads_chat)
    if request.messages:
        raise ConfigError(
            "Attribution needs a coordinator that reads the transcript; this one reads the chat of the "
            "released protocol, whose words cannot be left out one by one."
        )
    own = decider_at(episode.policy, episode.deciders, index) == checkpoint.id
    chosen = own_choice(decision) if own else None
    name, size = _encoder_at_hand(store, checkpoint, encoder)
    kept = AttributedTurn(episode.id, index, checkpoint.id, digest_of(request, chosen))
    return ExplainedTurn(checkpoint, request, chosen, kept, name, size)


def check_explainable(episode: Episode) -> None:
    """ConfigError where no turn of an episode can be explained: its transcript is gone, or a planner wrote it."""
    if day := episode.removed.get("texts"):
        raise ConfigError(
            f"The texts of this episode were removed on {day}, so there is no transcript to explain a choice by; a "
            "hidden state alone does not tell what was read."
        )
    if episode.plans:
        raise ConfigError(WORKFLOW_STEP)


def _encoder_at_hand(store: Store | None, checkpoint: Checkpoint, other: str | None) -> tuple[str, int]:
    try:
        own = encoder_place(checkpoint, store, wiring.data_folder())
        return own, encoder_size(own, checkpoint.encoder.revision)
    except CheckpointError as error:
        if other is None:
            raise
        try:
            other = wiring.encoder_source(other)
            return other, encoder_size(other)  # a checkpoint of another encoder is refused when it is loaded
        except CheckpointError:
            raise error from None


@dataclass(frozen=True, slots=True)
class Explanation:
    """What is known so far about what made a choice."""

    parts: Attribution | None = None
    words: WordAttribution | None = None

    def complete(self, turn: ExplainedTurn) -> bool:
        """Whether nothing is left to be worked out."""
        words = self.words is not None and self.words.complete
        return self.parts is not None and (words or bool(turn.no_words))

    @property
    def done(self) -> int:
        """Steps that are done: one for all parts, then those of the words."""
        return (self.parts is not None) + (self.words.done if self.words else 0)


def kept_explanation(store: Store, turn: ExplainedTurn) -> Explanation:
    """What the store has of it."""
    return Explanation(store.attributions.parts(turn.kept), store.attributions.words(turn.kept))


def coordinator_of(store: Store, turn: ExplainedTurn, encoders: Encoders) -> Coordinator:
    """The checkpoint on its encoder, which is taken from `encoders` or put there."""
    policies = Policies(store, turn.checkpoint.models, encoder=turn.encoder, encoders=encoders)
    return policies.coordinator(turn.checkpoint)


def explain(
    store: Store, turn: ExplainedTurn, policy: Coordinator, found: Explanation
) -> Generator[Explanation]:
    """Work out what `found` lacks, step by step; each is kept, unless the store is only read, before it is yielded."""
    for step in _steps(turn, policy, found):
        if not store.read_only:
            store.attributions.add(turn.kept, step)
        found = (
            Explanation(step, found.words)
            if isinstance(step, Attribution)
            else Explanation(found.parts, step)
        )
        yield found


def _steps(
    turn: ExplainedTurn, policy: Coordinator, found: Explanation
) -> Iterator[Attribution | WordAttribution]:
    parts = found.parts
    if parts is None:
        parts = by_part(policy, turn.request, turn.chosen or _likeliest(turn, policy))
        yield parts
    if turn.no_words or (found.words and found.words.complete):
        return
    if turn.by_gradients:
        from core.coordinator.gradients import word_gradients

        yield from word_gradients(policy, turn.request, parts.chosen, parts.rival, found.words)
        return
    places = words_of(turn.request.transcript)
    done = list(found.words.words) if found.words else []
    for start in range(len(done), max(1, len(places)), WORDS_AT_ONCE):
        done += leave_out(policy, turn.request, parts, places[start : start + WORDS_AT_ONCE])
        yield WordAttribution(tuple(done), len(done), len(places))


def _likeliest(turn: ExplainedTurn, policy: Coordinator) -> Pair:
    [decision] = policy.decide([turn.request])
    assert decision.argmax_role is not None
    return decision.argmax_model, decision.argmax_role


@dataclass(frozen=True, slots=True)
class AttributionParts:
    """What explains a turn for one checkpoint after the other; each encoder is loaded when its turn comes."""

    plan: AttributionPlan
    encoders: Encoders = field(default_factory=dict)

    def play(self, store: Store, run: str) -> Generator[Explanation | Preparation, None, Ending]:
        """Work out what is not kept yet. Stopped when a person asks for it."""
        plan = self.plan
        for name in plan.checkpoints:
            turn = read_turn(store, plan.episode, plan.index, name, plan.encoder)
            found = kept_explanation(store, turn)
            if found.complete(turn):
                continue
            policy = coordinator_of(store, turn, self.encoders)
            yield from prepare_run(store, run, decompositions([policy]))
            for reached in explain(store, turn, policy, found):
                yield reached
                if store.runs.control(run).cancel:
                    raise Stopped
        return RunStatus.FINISHED, None


def prepare(_store: Store, plan: RereadPlan | AttributionPlan) -> RereadParts | AttributionParts:
    """The parts of a plan."""
    return RereadParts(plan) if isinstance(plan, RereadPlan) else AttributionParts(plan)


def latest_attribution(store: Store, plan: AttributionPlan) -> RunSummary | None:
    """The newest run that explains this turn for one of these checkpoints."""
    for run, other in runs_of(store, "attribute", AttributionPlan, limit=50):
        same_turn = (other.episode, other.index) == (plan.episode, plan.index)
        if same_turn and set(plan.checkpoints) & set(other.checkpoints):
            return run
    return None


#: Recorded turns, and pocket questions where nothing is recorded, by which two recipes are compared.
COMPARED_TURNS, COMPARED_QUESTIONS = 32, 16
_told: dict[tuple[str, Recipe], str] = {}


def tell_agreement(store: Store, coordinator: Coordinator, encoder: str) -> str:
    """Say, once in a process, how far the decisions of a checkpoint that is read on another recipe than its own agree
    with those on its own; the sentence. `encoder` is where its encoder is."""
    from core.coordinator.recipes import agreement_sentence

    checkpoint, recipe = coordinator.checkpoint, coordinator.encoder.recipe
    if (checkpoint.id, recipe) not in _told:
        agreement = compare_recipes(store, coordinator, encoder)
        _told[checkpoint.id, recipe] = agreement_sentence(checkpoint, recipe, agreement)
        log.warning(_told[checkpoint.id, recipe])
    return _told[checkpoint.id, recipe]


def compare_recipes(store: Store, coordinator: Coordinator, encoder: str) -> Agreement | None:
    """How far a checkpoint's decisions here agree with those on its own recipe: with recorded ones, else about some
    pocket questions, for which its encoder is loaded once more. None where its recipe is not at hand."""
    from core.coordinator.coordinator import Coordinator
    from core.coordinator.encoder import load_encoder
    from core.coordinator.recipes import Agreement

    checkpoint = coordinator.checkpoint
    recorded = [*islice(_own_turns(store, checkpoint), COMPARED_TURNS)]
    if recorded:
        requests, own = map(list, zip(*recorded, strict=True))
        _tell_wait(coordinator.encoder, requests)
        return Agreement.between(own, coordinator.decide(requests), "recorded decisions")
    try:
        made_on = load_encoder(
            wiring.encoder_source(encoder), dtype=checkpoint.dtype, device=checkpoint.device
        )
    except CheckpointError:
        return None
    if made_on.recipe != checkpoint.recipe:
        return None
    tasks = load_tasks(POCKET_POOL, "test", COMPARED_QUESTIONS, 0)
    requests = [Decide(Transcript(task.question), 0, task.id) for task in tasks]
    _tell_wait(
        coordinator.encoder, [*requests, *requests]
    )  # read twice: the other recipe is taken to be as quick
    own = Coordinator(checkpoint, made_on).decide(requests)
    return Agreement.between(own, coordinator.decide(requests), "decisions about pocket questions")


def _tell_wait(encoder: Encoder, requests: Sequence[Decide]) -> None:
    """Say how long it takes a large encoder to read these."""
    if encoder.keeps_states:
        tokens = sum(len(encoder.tokens.prompt(one, encoder.input_format).ids) for one in requests)
        left = left_words(tokens / encoder.tokens_per_s())
        log.warning("First it is measured how far the decisions on two recipes agree%s.", left)


def _own_turns(store: Store, checkpoint: Checkpoint) -> Iterator[tuple[Decide, Decision]]:
    """What a checkpoint was asked, newest episodes first, and decided on its own recipe."""
    played = EpisodeFilter(policy=checkpoint.id, forks="with")
    for one in store.episodes.page(played, limit=COMPARED_TURNS).items:
        episode = store.episodes.get(one.id)
        if episode.removed.get("texts"):
            continue
        for request, turn in zip(recorded_requests(episode), episode.turns, strict=True):
            decision = turn.decision
            own = decider_at(episode.policy, episode.deciders, turn.index) == checkpoint.id
            if own and decision.model_logits and decision.recipe == checkpoint.recipe.key:
                yield as_decided(request, decision, reads_chat=checkpoint.input_format == "chat"), decision


#: Episodes read and kept together: so much is lost at most, and so long a stop may take.
EPISODES_AT_ONCE = 4
#: Turns that a checkpoint recorded itself and reads again all the same, so that both can be set side by side.
PROVEN = 32


@dataclass(frozen=True, slots=True)
class RereadParts:
    """What reads again; each checkpoint's encoder is loaded when its turn comes."""

    plan: RereadPlan

    def play(self, store: Store, run: str) -> Generator[int | Preparation, None, Ending]:
        """Read what is left of the plan, batch by batch, each kept before the number of its turns is yielded. Stopped
        when a person asks for it."""
        plan = self.plan
        policies: Policies | None = None
        for name in plan.checkpoints:
            checkpoint = store.checkpoints.load(name)
            judged = read_judged(store, plan.scope)
            opinions = read_opinions(store, plan.scope, [name], max(1, len(judged.episodes)))
            rows = to_read(
                logits_of(checkpoint, judged, opinions, configs_of(store, judged), StoredStates(judged))
            )
            if not rows:
                continue
            policies = policies or Policies(store, checkpoint.models, encoder=plan.encoder).play_in(run)
            coordinator = policies.coordinator(checkpoint)
            yield from prepare_run(store, run, decompositions([coordinator]))
            for part in _batches(judged, rows):
                if store.runs.control(run).cancel:
                    raise Stopped
                yield _read(store, run, coordinator, coordinator.encoder.device, part)
        return RunStatus.FINISHED, None


def plan_for(diff: PolicyDiff, scope: EpisodeScope, now: float) -> RereadPlan | None:
    """What has to be read again so that every checkpoint has logits at every turn; None when nothing has."""
    if not diff.readable():
        return None
    counts = {one.checkpoint.id: int(len(to_read(one))) for one in diff.judgements}
    return RereadPlan(
        tuple(checkpoint for checkpoint, n in counts.items() if n),
        scope.where.to_query(),
        scope.episode,
        now,
        sum(counts.values()),
        tuple(counts),
        wiring.settings().encoder,
    )


def reading_words(diff: PolicyDiff, names: Mapping[str, str]) -> str:
    """What `plan_for` would read, in a sentence of plain text: turns to be judged, turns read as a proof, and both
    together; empty where nothing has to be read."""
    readable = diff.readable()
    if not readable:
        return ""
    due_now = sum(readable.values())
    total = sum(len(to_read(one)) for one in diff.judgements)
    turns = ", ".join(f"{n:,} turns by {names[one]}" for one, n in readable.items())
    if total == due_now:
        return f"To be read: {turns}."
    proofs = f"{total - due_now:,} that were recorded with logits"
    return f"To be read: {turns}, and {proofs}, to compare the two; {total:,} in all."


def to_read(judgement: CheckpointLogits) -> list[int]:
    """The turns a checkpoint reads again: those it has no logits at, and a few of its own as a proof."""
    own = np.flatnonzero(judgement.with_source(Source.RECORDED))[:PROVEN]
    proofs = [row for row in own.tolist() if not judgement.read[row]]
    return sorted({*np.flatnonzero(judgement.with_source(*CAN_BE_READ)).tolist(), *proofs})


def latest_reading(store: Store, checkpoints: Sequence[str], scope: EpisodeScope) -> RunSummary | None:
    """The newest run that reads these episodes again for some of these checkpoints."""
    found = runs_of(store, "reencode", RereadPlan, limit=50)
    return next((run for run, plan in found if plan.asks_for(checkpoints, scope)), None)


def _batches(judged: JudgedTurns, rows: Sequence[int]) -> Iterator[dict[str, set[int]]]:
    wanted: dict[str, set[int]] = {}
    for row in rows:
        wanted.setdefault(judged.turns[row].episode_id, set()).add(judged.turns[row].idx)
    names = list(wanted)
    for start in range(0, len(names), EPISODES_AT_ONCE):
        yield {name: wanted[name] for name in names[start : start + EPISODES_AT_ONCE]}


def _read(store: Store, run: str, coordinator: Policy, device: str, wanted: Mapping[str, set[int]]) -> int:
    requests = [
        request
        for episode in forks.parents(store, list(wanted)).values()
        for request in recorded_requests(episode)
        if request.index in wanted[episode.id]
    ]
    decisions = coordinator.decide(requests)
    opinions = [
        Opinion(
            coordinator.id,
            request.episode_id,
            request.index,
            floats(decision.model_logits),
            floats(decision.role_logits),
            decision.prompt_digest,
            device,
        )
        for request, decision in zip(requests, decisions, strict=True)
    ]
    add_opinions(store, run, opinions, owner())
    return len(opinions)
