"""Reading recorded transcripts again with a checkpoint's own encoder: queued by a page, played by a worker process."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from core.play.policy import Policy
from core.play.session import recorded_requests
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
from storage.reads import forks
from storage.rows.mapping import floats
from storage.rows.summaries import RunStatus, RunSummary
from storage.store import Store
from ui.runs import wiring
from ui.runs.control import Stopped
from ui.runs.lease import owner
from ui.runs.plans import RereadPlan, known_plan
from ui.runs.play import Ending
from ui.runs.policies import Policies

#: Episodes read and kept together: so much is lost at most, and so long a stop may take.
EPISODES_AT_ONCE = 4
#: Turns that a checkpoint recorded itself and reads again all the same, so that both can be set side by side.
PROVEN = 32


@dataclass(frozen=True, slots=True)
class RereadParts:
    """What reads again; each checkpoint's encoder is loaded when its turn comes."""

    plan: RereadPlan

    def play(self, store: Store, run: str) -> Generator[int, None, Ending]:
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
            policies = policies or Policies(store, checkpoint.models, encoder=plan.encoder)
            coordinator = policies.coordinator(checkpoint)
            for part in _parts(judged, rows):
                if store.runs.control(run).cancel:
                    raise Stopped
                yield _read(store, run, coordinator, coordinator.encoder.device, part)
        return RunStatus.FINISHED, None


def prepare(_store: Store, plan: RereadPlan) -> RereadParts:
    """The parts of a plan."""
    return RereadParts(plan)


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


def words_of(diff: PolicyDiff, names: Mapping[str, str]) -> str:
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
    own = np.flatnonzero(judgement.having(Source.RECORDED))[:PROVEN]
    proofs = [row for row in own.tolist() if not judgement.read[row]]
    return sorted({*np.flatnonzero(judgement.having(*CAN_BE_READ)).tolist(), *proofs})


def latest(store: Store, checkpoints: Sequence[str], scope: EpisodeScope) -> RunSummary | None:
    """The newest run that reads these episodes again for some of these checkpoints."""
    for run in store.runs.list(kind="reencode", limit=50):
        plan = known_plan(run)
        if isinstance(plan, RereadPlan) and plan.asks_for(checkpoints, scope):
            return run
    return None


def _parts(judged: JudgedTurns, rows: Sequence[int]) -> Iterator[dict[str, set[int]]]:
    """The turns to read by episode, a few episodes at a time."""
    wanted: dict[str, set[int]] = {}
    for row in rows:
        wanted.setdefault(judged.turns[row].episode_id, set()).add(judged.turns[row].idx)
    names = list(wanted)
    for start in range(0, len(names), EPISODES_AT_ONCE):
        yield {name: wanted[name] for name in names[start : start + EPISODES_AT_ONCE]}


def _read(store: Store, run: str, coordinator: Policy, device: str, wanted: Mapping[str, set[int]]) -> int:
    """Read some turns again and keep what the coordinator makes of them, in one transaction."""
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
