"""Reading recorded transcripts again with a checkpoint's own encoder: queued by a page, played by a worker process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from core.errors import StoreError, TrinityError
from core.ids import run_id
from core.policy import Policy
from core.session import requests
from storage.filters import EpisodeFilter
from storage.opinions import (
    Judged,
    Scope,
    add_opinions,
    opinion,
    read_judged,
    read_opinions,
    transcripts,
)
from storage.store import Store
from storage.summaries import RunStatus, RunSummary
from ui import wiring
from ui.halting import Stopped
from ui.lease import owner
from ui.policy_diff import Diff, Judgement, Source, States, configs_of, due, judge

#: Episodes read and kept together: so much is lost at most, and so long a stop may take.
EPISODES_AT_ONCE = 4
#: Turns that a checkpoint recorded itself and reads again all the same, so that both can be set side by side.
PROVEN = 32


@dataclass(frozen=True, slots=True)
class ReencodePlan:
    """Which checkpoints read which turns again; `turns` is how many readings that is in all, `compared` are all that
    are put side by side, the baseline first, `encoder` as in settings."""

    checkpoints: tuple[str, ...]
    scope: Scope
    turns: int
    compared: tuple[str, ...] = ()
    encoder: str | None = None

    def to_config(self) -> dict[str, Any]:
        """The plan as a run's config."""
        return {
            "checkpoints": list(self.checkpoints),
            "where": self.scope.where.to_query(),
            "episode": self.scope.episode,
            "before": self.scope.before,
            "turns": self.turns,
            "compared": list(self.compared),
            "encoder": self.encoder,
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> ReencodePlan:
        """Inverse of `to_config`; StoreError for another kind of run."""
        try:
            scope = Scope(EpisodeFilter.from_query(config["where"]), config["episode"], config["before"])
            checkpoints, compared = (tuple(config[key]) for key in ("checkpoints", "compared"))
            return cls(checkpoints, scope, int(config["turns"]), compared, config["encoder"])
        except (KeyError, TypeError) as error:
            raise StoreError("This run does not say which transcripts to read again.") from error

    def address(self) -> dict[str, str]:
        """The query of the Policy diff page that it was begun on."""
        episode = {"ep": self.scope.episode} if self.scope.episode else {}
        return {"c": ",".join(self.compared), **self.scope.where.to_query(), **episode}

    def asks_for(self, checkpoints: Sequence[str], scope: Scope) -> bool:
        """Whether it is about some of these checkpoints and the same episodes, whenever it began."""
        same = replace(self.scope, before=None) == replace(scope, before=None)
        return same and set(self.checkpoints) <= set(checkpoints)


def plan_for(diff: Diff, scope: Scope, now: float) -> ReencodePlan | None:
    """What has to be read again so that every checkpoint has logits at every turn; None when nothing has."""
    if not diff.readable():
        return None
    counts = {one.checkpoint.id: int(len(to_read(one))) for one in diff.judgements}
    return ReencodePlan(
        tuple(checkpoint for checkpoint, n in counts.items() if n),
        replace(scope, before=now),
        sum(counts.values()),
        tuple(counts),
        wiring.settings().encoder,
    )


def to_read(judgement: Judgement) -> list[int]:
    """The turns a checkpoint reads again: those it has no logits at, and a few of its own as a proof."""
    own = np.flatnonzero(judgement.having(Source.RECORDED))[:PROVEN]
    proofs = [row for row in own.tolist() if not judgement.read[row]]
    return sorted({*np.flatnonzero(due(judgement)).tolist(), *proofs})


def queue(store: Store, plan: ReencodePlan) -> tuple[str, bool]:
    """Write the plan down as a queued run; its id, and whether it is new and not one that is under way already."""
    for other in store.runs.list(kind="reencode", limit=20):
        under_way = other.status in (RunStatus.QUEUED, RunStatus.RUNNING)
        if under_way and ReencodePlan.from_config(other.config).asks_for(plan.checkpoints, plan.scope):
            return other.id, False
    run = run_id(int(time.time()), os.urandom(16))
    store.runs.create(run, "reencode", plan.to_config(), status=RunStatus.QUEUED)
    return run, True


def latest(store: Store, checkpoints: Sequence[str], scope: Scope) -> RunSummary | None:
    """The newest run that reads these episodes again for some of these checkpoints."""
    for run in store.runs.list(kind="reencode", limit=50):
        if ReencodePlan.from_config(run.config).asks_for(checkpoints, scope):
            return run
    return None


def play(store: Store, run: str) -> tuple[RunStatus, str | None]:
    """Play a claimed run from wherever it stands; how it is over, and why when that was not its end."""
    try:
        for _ in played(store, run):
            pass
    except Stopped:
        return RunStatus.INTERRUPTED, None
    except TrinityError as error:
        return RunStatus.INTERRUPTED, str(error)
    return RunStatus.FINISHED, None


def played(store: Store, run: str) -> Iterator[int]:
    """Read what is left of a claimed run's plan, batch by batch, each kept before the next; yields the turns of each.
    Stopped when a person asks for it."""
    plan = ReencodePlan.from_config(store.runs.get(run).config)
    policies: wiring.Policies | None = None
    for name in plan.checkpoints:
        checkpoint = wiring.stored_checkpoint(store, name)
        judged = read_judged(store, plan.scope)
        opinions = read_opinions(store, plan.scope, [name], max(1, len(judged.episodes)))
        rows = to_read(judge(checkpoint, judged, opinions, configs_of(store, judged), States(judged)))
        if not rows:
            continue
        policies = policies or wiring.Policies(store, checkpoint.models, encoder=plan.encoder)
        coordinator = policies.coordinator(checkpoint)
        for part in _parts(judged, rows):
            if store.runs.control(run).cancel:
                raise Stopped("Stopped; what was read is kept.")
            yield _read(store, run, coordinator, coordinator.encoder.device, part)


def _parts(judged: Judged, rows: Sequence[int]) -> Iterator[dict[str, set[int]]]:
    """The turns to read by episode, a few episodes at a time."""
    wanted: dict[str, set[int]] = {}
    for row in rows:
        wanted.setdefault(judged.turns[row].episode_id, set()).add(judged.turns[row].idx)
    names = list(wanted)
    for start in range(0, len(names), EPISODES_AT_ONCE):
        yield {name: wanted[name] for name in names[start : start + EPISODES_AT_ONCE]}


def _read(store: Store, run: str, coordinator: Policy, device: str, wanted: Mapping[str, set[int]]) -> int:
    """Read some turns again and keep what the coordinator makes of them, in one transaction."""
    asked = [
        request
        for episode in transcripts(store, list(wanted))
        for request in requests(episode)
        if request.index in wanted[episode.id]
    ]
    decisions = coordinator.decide(asked)
    opinions = [
        opinion(
            coordinator.id,
            request.episode_id,
            request.index,
            (decision.model_logits, decision.role_logits),
            decision.prompt_digest,
            device,
        )
        for request, decision in zip(asked, decisions, strict=True)
    ]
    add_opinions(store, run, opinions, owner())
    return len(opinions)
