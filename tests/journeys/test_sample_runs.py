"""The sample runs: what they hold, and that the shipped weights play them again, turn for turn."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest
from starlette.testclient import TestClient

from core.episode import Episode, EpisodeFinished, Status, Turn
from core.play.drive import drive_many
from core.pocket import FAMILIES
from core.pool.cache import CachedPool
from core.tasks.graders import grade_many
from storage.analysis.defaults import validated_checkpoints
from storage.files.interchange import import_runs
from storage.rows.engine import reading
from storage.rows.full_episodes import read_episodes
from storage.rows.summaries import EpisodeSummary
from storage.store import Store, open_store
from ui.endpoint.api import endpoint_app
from ui.endpoint.service import Service
from ui.endpoint.tiers import EXAMPLE, EXAMPLE_ANSWER, Endpoint
from ui.runs.plans import plan_of
from ui.runs.policies import Policies
from ui.runs.settings.batch import BatchPlan
from ui.runs.wiring import SAMPLE_RUNS, resolve_pool

pytestmark = pytest.mark.integration


#: How many sample episodes are played again, and how many of them must come out the same.
REPLAYED, SAME = 20, 19


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    opened = open_store(tmp_path_factory.mktemp("samples") / "store.db")
    import_runs(opened, SAMPLE_RUNS)
    yield opened
    opened.close()


def played(store: Store) -> list[EpisodeSummary]:
    """Every sample episode."""
    return [one for run in store.runs.list("run") for one in store.episodes.of_run(run.id)]


def test_every_sample_episode_is_what_was_recorded(store: Store) -> None:
    """To the bit, every logit and hidden state: however often the files are written in another form."""
    names, digest = sorted(one.id for one in played(store)), hashlib.sha256()
    with reading(store.engine) as connection:
        for one in read_episodes(connection, names):
            whole = repr(one)
            for later in (
                ", recipe=''",
                ", recorded=None",
                ", judgements=()",
                ", beside=''",
            ):  # fields of later forms
                whole = whole.replace(later, "")
            digest.update(whole.encode())
    assert (len(names), digest.hexdigest()[:16]) == (1824, "22383418e9811a9e")


def test_three_checkpoints_the_best_single_model_and_chance_played_the_same_tasks(store: Store) -> None:
    tasks: dict[str, set[str]] = {}
    for one in played(store):
        tasks.setdefault(one.policy, set()).add(one.task_id)
    shared = set.intersection(*tasks.values())
    assert len(shared) >= 80
    assert {one.family for one in played(store) if one.task_id in shared} == set(FAMILIES)
    generations = {one.id: one.generation for one in store.checkpoints.list()}
    shown = sorted(generations[policy] or 0 for policy in tasks if policy in generations)
    assert len(shown) >= 3
    assert shown[0] == 0
    assert shown[-1] == max(one.generation or 0 for one in store.checkpoints.list())
    assert "random" in tasks
    assert any(policy.startswith("single:") for policy in tasks)


def test_the_shipped_weights_play_sample_episodes_again(store: Store) -> None:
    some = sorted(played(store), key=lambda one: hashlib.sha256(one.id.encode()).digest())[:REPLAYED]
    some.sort(key=lambda one: (one.run_id, one.policy))
    same = 0
    for (run, policy), group in groupby(some, key=lambda one: (one.run_id, one.policy)):
        recorded = {one.id: store.episodes.get(one.id) for one in group}
        again = replayed(store, run, policy, list(recorded.values()))
        same += sum(alike(recorded[one.id], one) for one in again)
    assert same >= SAME


def replayed(store: Store, run: str, policy: str, episodes: list[Episode]) -> Iterator[Episode]:
    """The episodes played anew from their beginnings, as their run's plan says."""
    plan = plan_of(store.runs.get(run), BatchPlan)
    pool = resolve_pool(plan.pool)
    policies = Policies(store, plan.models, argmax=plan.argmax, cycles=plan.cycles)
    fresh = [replace(one, turns=(), status=Status.RUNNING) for one in episodes]
    for event in drive_many(fresh, policies.resolve(policy), CachedPool(pool), grade_many):
        if isinstance(event, EpisodeFinished):
            yield event.episode


def alike(a: Episode, b: Episode) -> bool:
    """The same turns with the same words and outcome, logits within 1e-3."""
    return (
        (a.answer, a.correct, a.end_reason) == (b.answer, b.correct, b.end_reason)
        and len(a.turns) == len(b.turns)
        and all(alike_turn(x, y) for x, y in zip(a.turns, b.turns, strict=True))
    )


def alike_turn(a: Turn, b: Turn) -> bool:
    """The same choice, prompt, reply and reading; logits within 1e-3."""
    return told(a) == told(b) and all(
        np.allclose(x, y, atol=1e-3, rtol=0)
        for x, y in (
            (a.decision.model_logits, b.decision.model_logits),
            (a.decision.role_logits, b.decision.role_logits),
        )
    )


def told(turn: Turn) -> tuple[object, ...]:
    """What must be equal to the letter."""
    decision = turn.decision
    return decision.model, decision.role, turn.messages, turn.reply.text, turn.verdict, turn.answer_after


def test_the_example_that_is_shown_is_answered_right_by_what_serves_by_default(store: Store) -> None:
    service = Service(store, "pocket", Endpoint())
    tier = service.offer.tier("trinity")
    results = {one.id: one for one in validated_checkpoints(store, store.checkpoints.list())}
    assert not results[service.offer.policy_of(tier)].is_behind
    app = endpoint_app(service, prefix="/v1")
    right = 0
    with TestClient(app, "http://127.0.0.1") as client:
        for seed in range(6):
            body = {"model": "trinity", "messages": [{"role": "user", "content": EXAMPLE}], "seed": seed}
            answer = client.post("/v1/chat/completions", json=body).json()
            right += answer["choices"][0]["message"]["content"] == EXAMPLE_ANSWER
    assert right >= 5
