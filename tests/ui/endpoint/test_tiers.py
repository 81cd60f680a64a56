"""What the tiers of an endpoint choose among: the cheaper models in the lean one, and nobody who is left out. And who
decides where a tier names nobody: the best validated checkpoint, told beside the best single model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from core.play.policies import Policy, RandomPolicy
from core.pool_file import load_specs
from storage.shelves.checkpoints import checkpoint_row
from storage.store import Store
from tests.builders.checkpoints import checkpoint
from tests.builders.stores import begin_run, kept_generation, new_store
from tests.ui.endpoint.server import raw, served
from ui.endpoint import tiers
from ui.endpoint.errors import ApiError
from ui.endpoint.tiers import EXAMPLE, EXAMPLE_ANSWER, Endpoint, Offer, Tier

PRICES = {"a": 2.0, "b": 0.5, "c": 8.0, "d": 1.0}


def offer(folder: Path, prices: dict[str, float | None], strengths: dict[str, int] | None = None) -> Offer:
    """The default tiers over models with these prices and strengths, of which one provider has the first two."""
    lines = ['[[provider]]\nname = "lab"\nbase_url = "https://api.example.com/v1"\n']
    for place, (name, price) in enumerate(prices.items()):
        lines.append(f'[[model]]\nname = "{name}"\n')
        lines.append('provider = "lab"\n' if place < 2 else 'base_url = "https://other.example.com/v1"\n')
        lines.append("" if price is None else f"price_in = {price}\nprice_out = {2 * price}\n")
        lines.append(f"strength = {strengths[name]}\n" if strengths and name in strengths else "")
    (folder / "pool.toml").write_text("".join(lines))
    store = new_store(folder / "trinity.db")
    models = tuple(prices)
    one = checkpoint(models)
    store.checkpoints.add(one.id, one.to_config(), one.to_bytes())
    return Offer(Endpoint(), load_specs(folder / "pool.toml"), store)


def chosen_among(one: Offer, name: str, out: Sequence[str] = ()) -> set[str]:
    policy: Policy = RandomPolicy(tuple(spec.name for spec in one.specs))
    return set(policy.models) - set(one.left_out(one.tier(name), policy, out))


def test_the_lean_tier_has_the_cheaper_half_of_the_models_and_fewer_turns(tmp_path: Path) -> None:
    one = offer(tmp_path, {**PRICES})
    assert chosen_among(one, "trinity") == {*one.choices(one.tier("trinity"))} == {"b", "d"}
    assert chosen_among(one, "trinity-ultra") == {*PRICES}
    assert one.lean_words(one.tier("trinity")) == "the leaner half"
    assert one.tier("trinity").turns < one.tier("trinity-ultra").turns
    [pin] = one.pins()
    assert chosen_among(one, pin) == {*PRICES}
    one.store.close()


@pytest.mark.parametrize(
    "prices", [{"a": 1.0, "b": 1.0, "c": 1.0}, {"a": 1.0, "b": None, "c": 3.0}, {"a": 1.0}]
)
def test_where_nobody_is_known_to_be_cheaper_all_are_lean(
    tmp_path: Path, prices: dict[str, float | None]
) -> None:
    one = offer(tmp_path, prices)
    assert chosen_among(one, "trinity") == {*prices}
    why = "the price of b is not known" if None in prices.values() else "all cost the same"
    said = f"all of them: {why}, and no strength in pool.toml tells them apart" if len(prices) > 1 else ""
    assert one.lean_words(one.tier("trinity")) == said
    assert one.lean_words(one.tier("trinity-ultra")) == ""
    one.store.close()


@pytest.mark.parametrize(
    ("prices", "strengths", "lean"),
    [
        ([None] * 4, [3, 1, 4, 2], "bd"),  # no price is known
        ([1.0, None, 8.0, 1.0], [3, 1, 4, 2], "bd"),
        ([1.0] * 4, [3, 1, 4, 2], "bd"),
        ([1.0, 1.0, 1.0, 8.0], [3, 1, 2, 0], "bc"),  # the price comes first, then the strength
        ([2.0, 0.5, 8.0, 1.0], [1, 4, 2, 3], "bd"),
        ([2.0, 0.5, 8.0, 1.0], [1], "bd"),  # an order that some lack is not used
        ([None] * 4, [1, 2, 3], "abcd"),
        ([None] * 4, [2, 2, 2, 2], "abcd"),
        ([None] * 4, [1, 2, 2, 3], "abc"),  # who is as lean as the last one is in it
    ],
)
def test_where_the_price_does_not_tell_who_is_leaner_the_strength_does(
    tmp_path: Path, prices: Sequence[float | None], strengths: Sequence[int], lean: str
) -> None:
    one = offer(tmp_path, dict(zip("abcd", prices, strict=True)), dict(zip("abcd", strengths, strict=False)))
    assert chosen_among(one, "trinity") == {*lean}
    assert chosen_among(one, "trinity-ultra") == {*"abcd"}
    one.store.close()


@pytest.mark.parametrize(
    ("out", "left"),
    [
        (["lab"], {"c", "d"}),
        (["other.example.com"], {"a", "b"}),
        (["lab", "c"], {"d"}),
        (["api.example.com"], {"c", "d"}),
    ],
)
def test_a_provider_is_left_out_by_its_name_in_the_pool_file_and_by_its_host(
    tmp_path: Path, out: list[str], left: set[str]
) -> None:
    one = offer(tmp_path, {**PRICES})
    assert chosen_among(one, "trinity-ultra", out) == left
    with pytest.raises(
        ApiError, match="leave out some of a, lab, api.example.com, b, c, other.example.com, d"
    ):
        chosen_among(one, "trinity-ultra", ["nobody"])
    one.store.close()


def test_a_tier_of_one_model_that_is_left_out_is_an_empty_pool(tmp_path: Path) -> None:
    with served(tmp_path) as one:  # `trinity` is model a alone, of a and b
        body = b'{"model": "trinity", "messages": [{"role": "user", "content": "?"}], "trinity": {"leave_out": ["a"]}}'
        status, _, told = raw(one.url, "POST", "/v1/chat/completions", body)
        assert (status, told["error"]["code"]) == (400, "empty_pool")
        assert one.ask().choices[0].message.content == "forty-two"


def test_the_list_of_models_says_how_tiers_differ(tmp_path: Path) -> None:
    few = Tier(name="few", policy="round-robin", models=("b",), turns=2)
    with served(tmp_path, endpoint=Endpoint(tier=(few, Tier(name="many", policy="random", turns=6)))) as one:
        told = [model["trinity"] for model in raw(one.url, "GET", "/v1/models")[2]["data"]]
        assert [(one["models"], one["turns"]) for one in told] == [(["b"], 2), (["a", "b"], 6)]
        assert raw(one.url, "GET", "/v1/models/few")[2]["trinity"] == told[0]
        turns = one.ask(model="few").model_extra["trinity"]["turns"]
        assert {turn["model"] for turn in turns} == {"b"}
        assert [model.id for model in one.client.models.list()] == ["few", "many"]
        assert one.client.models.retrieve("few").id == "few"


# Who decides

MODELS = ("a", "b")
_POOL = "".join(f'[[model]]\nname = "{name}"\nbase_url = "http://127.0.0.1:1/v1"\n' for name in MODELS)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(tiers, "KNOWN_S", 0.0)
    (tmp_path / "pool.toml").write_text(_POOL)
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


def usual_offer(store: Store, folder: Path) -> Offer:
    return Offer(Endpoint(), load_specs(folder / "pool.toml"), store)


def test_the_best_validated_generation_plays_and_not_the_newest(store: Store, tmp_path: Path) -> None:
    ids = evolve(store, "r1", {0: 0.1, 1: 0.6, 2: 0.4}, single=0.5)
    found = usual_offer(store, tmp_path)
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
    found = usual_offer(store, tmp_path)
    assert found.policy_of(found.endpoint.tier[0]) == ids[1]


def test_evolutions_on_the_same_tasks_are_compared_and_no_others(store: Store, tmp_path: Path) -> None:
    older = evolve(store, "r1", {1: 0.7})
    newer = evolve(store, "r2", {2: 0.6})
    found = usual_offer(store, tmp_path)
    assert found.policy_of(found.endpoint.tier[0]) == older[1]
    assert {*found.pins()} == {f"trinity@{older[1]}", f"trinity@{newer[2]}"}
    other = evolve(
        store, "r3", {0: 0.2}, tasks="mine.jsonl"
    )  # 20 % there may be harder to come by than 70 % here
    assert found.policy_of(found.endpoint.tier[0]) == other[0]


def test_without_any_validation_the_newest_plays(store: Store, tmp_path: Path) -> None:
    ids = evolve(store, "r1", {})
    found = usual_offer(store, tmp_path)
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
