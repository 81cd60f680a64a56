"""Who decides where a tier names nobody: the best validated checkpoint, told beside the best single model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from core.pool_file import load_specs
from storage.shelves.checkpoints import checkpoint_row
from storage.store import Store
from tests.builders.checkpoints import checkpoint
from tests.builders.stores import begin_run, kept_generation, new_store
from ui.endpoint import tiers
from ui.endpoint.tiers import EXAMPLE, EXAMPLE_ANSWER, Endpoint, Offer, Tier

MODELS = ("a", "b")
POOL = "".join(f'[[model]]\nname = "{name}"\nbase_url = "http://127.0.0.1:1/v1"\n' for name in MODELS)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(tiers, "KNOWN_S", 0.0)
    (tmp_path / "pool.toml").write_text(POOL)
    opened = new_store(tmp_path / "trinity.db")
    yield opened
    opened.close()


def played(accuracy: float, n: int = 100) -> dict[str, Any]:
    return {"accuracy": accuracy, "n": n, "turns_mean": 3.0, "accept_rate": 0.5, "shares": {}}


def evolve(
    store: Store,
    run: str,
    validations: Mapping[int, float],
    *,
    generations: int = 3,
    single: float | None = None,
    tasks: str = "pocket",
) -> dict[int, str]:
    """An evolution of so many generations, of which some are validated; the ids of its checkpoints."""
    config = {"tasks": tasks, "validation": 100, "models": MODELS, "evolution": {"turn_budget": 5, "seed": 0}}
    begin_run(store, run, "evolve", config)
    ids: dict[int, str] = {}
    for index in range(generations):
        one = checkpoint(MODELS, seed=10 * int(run[1:]) + index, generation=index)
        row = checkpoint_row(
            one.id,
            one.to_config(),
            one.to_bytes(),
            run_id=run,
            generation=index,
            kind="head",
            created=float(index),
        )
        stats: dict[str, Any] = {"validation": played(validations[index])} if index in validations else {}
        if single is not None and index == generations - 1:
            stats["controls"] = {"single:b T W": played(single), "random walk": played(0.99)}
        entry = kept_generation(run, index, 0.5, 0.5, 0.5, 0.3, 10, 1.0, one.id, stats)
        store.learning.add(entry, state=b"", checkpoint=row)
        ids[index] = one.id
    return ids


def offer(store: Store, folder: Path) -> Offer:
    return Offer(Endpoint(), load_specs(folder / "pool.toml"), store)


def test_the_best_validated_generation_plays_and_not_the_newest(store: Store, tmp_path: Path) -> None:
    ids = evolve(store, "r1", {0: 0.1, 1: 0.6, 2: 0.4}, single=0.5)
    found = offer(store, tmp_path)
    assert found.policy_of(found.endpoint.tier[0]) == ids[1]
    assert found.pins() == [f"trinity@{ids[1]}"]
    known = found.validated(ids[1])
    assert known is not None
    assert (known.generation, known.is_behind) == (1, False)
    assert known.words == (
        "generation 1 of r1 solved 60.0 % (50 to 69) of 100 validation tasks, with all its models and up to 5 turns; "
        "the best single model, b T W, 50.0 % (40 to 60)"
    )


def test_the_latest_of_equals_plays(store: Store, tmp_path: Path) -> None:
    ids = evolve(store, "r1", {0: 0.5, 1: 0.5})
    found = offer(store, tmp_path)
    assert found.policy_of(found.endpoint.tier[0]) == ids[1]


def test_evolutions_on_the_same_tasks_are_compared_and_no_others(store: Store, tmp_path: Path) -> None:
    older = evolve(store, "r1", {1: 0.7})
    newer = evolve(store, "r2", {2: 0.6})
    found = offer(store, tmp_path)
    assert found.policy_of(found.endpoint.tier[0]) == older[1]
    assert {*found.pins()} == {f"trinity@{older[1]}", f"trinity@{newer[2]}"}
    other = evolve(
        store, "r3", {0: 0.2}, tasks="mine.jsonl"
    )  # 20 % there may be harder to come by than 70 % here
    assert found.policy_of(found.endpoint.tier[0]) == other[0]


def test_without_any_validation_the_newest_plays(store: Store, tmp_path: Path) -> None:
    ids = evolve(store, "r1", {})
    found = offer(store, tmp_path)
    assert found.policy_of(found.endpoint.tier[0]) == ids[2]
    assert found.validated(ids[2]) is None


def test_what_is_known_of_who_serves_is_said_with_what_to_do(store: Store, tmp_path: Path) -> None:
    def said(policy: str = "") -> tuple[str, str]:
        endpoint = Endpoint(tier=(Tier(name="t", policy=policy),))
        found = Offer(endpoint, load_specs(tmp_path / "pool.toml"), store).reports()
        return found[0] if found else ("", "")

    ids = evolve(store, "r1", {})
    why = ": as none that fits the pool was, the newest plays."
    assert said() == (f"Checkpoint {ids[2]} was never validated{why}", "")
    assert said(ids[0]) == (f"Checkpoint {ids[0]} was never validated.", "")
    evolve(store, "r2", {1: 0.3}, generations=2)
    assert said()[1] == ""
    evolve(store, "r3", {1: 0.4}, single=0.5)
    words, advice = said()
    assert "solved 40.0 % (31 to 50) of 100 validation tasks" in words
    assert "the best single model, b T W, 50.0 %" in words
    assert advice.startswith("Beware: it is behind the best single model.")
    assert 'policy = "single:b" for tier t' in advice
    assert said("single:a") == ("", "")


def test_the_example_stands_where_it_is_shown() -> None:
    root = Path(__file__).parents[3]
    for name in ("README.md", "ui/cli/endpoint.py"):
        assert EXAMPLE in " ".join((root / name).read_text("utf-8").split())
    assert f"this one is {EXAMPLE_ANSWER}" in " ".join((root / "README.md").read_text("utf-8").split())
