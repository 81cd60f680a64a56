"""What the tiers of an endpoint choose among: the cheaper models in the lean one, and nobody who is left out. And who
decides where a tier names nobody: the best validated checkpoint, told beside the best single model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.play.policies import Policy, RandomPolicy
from core.pool_file import load_specs
from storage.analysis.defaults import validated_checkpoints
from storage.shelves.learning import checkpoint_row
from storage.store import Store
from tests.builders.checkpoints import checkpoint
from tests.builders.stores import begin_run, kept_generation, new_store
from tests.ui.endpoint.server import CHAT, Serve, Served, asking, raw
from ui.endpoint import tiers
from ui.endpoint.errors import ApiError
from ui.endpoint.tiers import BEST, EXAMPLE, EXAMPLE_ANSWER, Endpoint, Offer, Tier, result_words

PRICES = {"a": 2.0, "b": 0.5, "c": 8.0, "d": 1.0}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(tiers, "KNOWN_S", 0.0)
    opened = new_store(tmp_path / "trinity.db")
    yield opened
    opened.close()


def pool(
    store: Store, prices: Mapping[str, float | None], strengths: Mapping[str, int] | None = None
) -> Offer:
    """The default tiers over models with these prices and strengths, of which one provider has the first two."""
    lines = ['[[provider]]\nname = "lab"\nbase_url = "https://api.example.com/v1"\n']
    for place, (name, price) in enumerate(prices.items()):
        lines.append(f'[[model]]\nname = "{name}"\n')
        lines.append('provider = "lab"\n' if place < 2 else 'base_url = "https://other.example.com/v1"\n')
        lines.append("" if price is None else f"price_in = {price}\nprice_out = {2 * price}\n")
        lines.append(f"strength = {strengths[name]}\n" if strengths and name in strengths else "")
    file = Path(str(store.engine.url.database)).with_name("pool.toml")
    file.write_text("".join(lines))
    return Offer(Endpoint(), load_specs(file), store)


def offer(
    store: Store, prices: Mapping[str, float | None], strengths: Mapping[str, int] | None = None
) -> Offer:
    """The same with a checkpoint of theirs that decides."""
    one = checkpoint(tuple(prices))
    store.checkpoints.add(one.id, one.to_config(), one.to_bytes())
    return pool(store, prices, strengths)


def chosen_among(one: Offer, name: str, out: Sequence[str] = ()) -> set[str]:
    policy: Policy = RandomPolicy(tuple(spec.name for spec in one.specs))
    return set(policy.models) - set(one.left_out(one.tier(name), policy, out))


def test_the_lean_tier_has_the_cheaper_half_of_the_models_and_fewer_turns(store: Store) -> None:
    one = offer(store, PRICES)
    assert chosen_among(one, "trinity") == {*one.choices(one.tier("trinity"))} == {"b", "d"}
    assert chosen_among(one, "trinity-ultra") == {*PRICES}
    assert one.lean_words(one.tier("trinity")) == "the leaner half"
    assert one.tier("trinity").turns < one.tier("trinity-ultra").turns
    [pin] = one.pins()
    assert chosen_among(one, pin) == {*PRICES}


NO_PRICE = "the price of a, b, c, d is not known"


@pytest.mark.parametrize(
    ("prices", "strengths", "lean", "why"),
    [
        ([1.0] * 3, [], "abc", "all cost the same"),
        ([1.0, None, 3.0], [], "abc", "the price of b is not known"),
        ([1.0], [], "a", None),
        ([None] * 4, [3, 1, 4, 2], "bd", ""),  # no price is known
        ([1.0, None, 8.0, 1.0], [3, 1, 4, 2], "bd", ""),
        ([1.0] * 4, [3, 1, 4, 2], "bd", ""),
        ([1.0, 1.0, 1.0, 8.0], [3, 1, 2, 0], "bc", ""),  # the price comes first, then the strength
        ([2.0, 0.5, 8.0, 1.0], [1, 4, 2, 3], "bd", ""),
        ([2.0, 0.5, 8.0, 1.0], [1], "bd", ""),  # an order that some lack is not used
        ([None] * 4, [1, 2, 3], "abcd", NO_PRICE),
        ([None] * 4, [2, 2, 2, 2], "abcd", NO_PRICE),
        ([None] * 4, [1, 2, 2, 3], "abc", ""),  # who is as lean as the last one is in it
    ],
)
def test_lean_are_the_cheaper_ones_then_the_weaker_ones_and_all_where_nothing_tells_them_apart(
    store: Store, prices: Sequence[float | None], strengths: Sequence[int], lean: str, why: str | None
) -> None:
    models = "abcd"[: len(prices)]
    one = offer(store, dict(zip(models, prices, strict=True)), dict(zip("abcd", strengths, strict=False)))
    assert chosen_among(one, "trinity") == {*lean}
    assert chosen_among(one, "trinity-ultra") == {*models}
    nothing = f"all of them: {why}, and no strength in pool.toml tells them apart"
    said = {None: "", "": "the leaner half"}.get(why, nothing)  # None: there is nothing to choose
    assert (one.lean_words(one.tier("trinity")), one.lean_words(one.tier("trinity-ultra"))) == (said, "")


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
    store: Store, out: list[str], left: set[str]
) -> None:
    one = offer(store, PRICES)
    assert chosen_among(one, "trinity-ultra", out) == left
    with pytest.raises(
        ApiError, match="leave out some of a, lab, api.example.com, b, c, other.example.com, d"
    ):
        chosen_among(one, "trinity-ultra", ["nobody"])


def test_a_tier_of_one_model_that_is_left_out_is_an_empty_pool(one: Served) -> None:
    # `trinity` is model a alone, of a and b
    status, told = one.post(CHAT, asking("?", trinity={"leave_out": ["a"]}))
    assert (status, told["error"]["code"]) == (400, "empty_pool")
    assert one.ask().choices[0].message.content == "forty-two"


def test_the_list_of_models_says_how_tiers_differ(serve: Serve) -> None:
    few = Tier(name="few", policy="round-robin", models=("b",), turns=2)
    one = serve(endpoint=Endpoint(tier=(few, Tier(name="many", policy="random", turns=6))))
    told = [model["trinity"] for model in raw(one.url, "GET", "/v1/models")[2]["data"]]
    assert [(one["models"], one["turns"]) for one in told] == [(["b"], 2), (["a", "b"], 6)]
    assert raw(one.url, "GET", "/v1/models/few")[2]["trinity"] == told[0]
    turns = one.ask(model="few").model_extra["trinity"]["turns"]
    assert {turn["model"] for turn in turns} == {"b"}
    assert [model.id for model in one.client.models.list()] == ["few", "many"]
    assert one.client.models.retrieve("few").id == "few"


# Who decides

MODELS = ("a", "b")


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


@pytest.fixture
def found(store: Store) -> Offer:
    """The default tiers over both models."""
    return pool(store, dict.fromkeys(MODELS))


def test_the_best_validated_generation_plays_and_not_the_newest(store: Store, found: Offer) -> None:
    ids = evolve(store, "r1", {0: 0.1, 1: 0.6, 2: 0.4}, single=0.5)
    assert found.policy_of(found.endpoint.tier[0]) == ids[1]
    assert found.pins() == [f"trinity@{ids[1]}"]
    [known] = [one for one in validated_checkpoints(store, store.checkpoints.list()) if one.id == ids[1]]
    assert (known.generation, known.is_behind) == (1, False)
    assert result_words(known) == (
        "generation 1 of r1 solved 60.0 % (50 to 69) of 100 validation tasks, with all its models and up to 5 turns; "
        "the best single model, b T W, 50.0 % (40 to 60)"
    )


def test_the_latest_of_equals_plays(store: Store, found: Offer) -> None:
    ids = evolve(store, "r1", {0: 0.5, 1: 0.5})
    assert found.policy_of(found.endpoint.tier[0]) == ids[1]


def test_evolutions_on_the_same_tasks_are_compared_and_no_others(store: Store, found: Offer) -> None:
    older = evolve(store, "r1", {1: 0.7})
    newer = evolve(store, "r2", {2: 0.6})
    assert found.policy_of(found.endpoint.tier[0]) == older[1]
    assert {*found.pins()} == {f"trinity@{older[1]}", f"trinity@{newer[2]}"}
    other = evolve(
        store, "r3", {0: 0.2}, tasks="mine.jsonl"
    )  # 20 % there may be harder to come by than 70 % here
    assert found.policy_of(found.endpoint.tier[0]) == other[0]


def test_without_any_validation_the_newest_plays(store: Store, found: Offer) -> None:
    ids = evolve(store, "r1", {})
    assert found.policy_of(found.endpoint.tier[0]) == ids[2]
    assert validated_checkpoints(store, store.checkpoints.list()) == []


def test_what_is_known_of_who_serves_is_said_with_what_to_do(store: Store, found: Offer) -> None:
    def said(policy: str = BEST) -> tuple[str, str]:
        endpoint = Endpoint(tier=(Tier(name="t", policy=policy),))
        reports = Offer(endpoint, found.specs, store).reports()
        return reports[0] if reports else ("", "")

    ids = evolve(store, "r1", {})
    why = ": as none that fits the pool was, the newest plays."
    assert said() == (f"Checkpoint {ids[2]} was never validated{why}", "")
    assert said(ids[0]) == (f"Checkpoint {ids[0]} was never validated.", "")
    evolve(store, "r2", {1: 0.3}, generations=2)
    assert said()[1] == ""
    ids = evolve(store, "r3", {1: 0.4}, single=0.5)
    words, advice = said(ids[1])
    assert "solved 40.0 % (31 to 50) of 100 validation tasks" in words
    assert "the best single model, b T W, 50.0 %" in words
    assert advice.startswith("Beware: it is behind the best single model.")
    assert 'policy = "single:b" for tier t' in advice
    assert said("single:a") == ("", "")


def test_the_best_single_model_answers_where_no_coordinator_is_ahead_of_it(
    store: Store, found: Offer
) -> None:
    lean, ultra = found.endpoint.tier
    ids = evolve(store, "r1", {1: 0.5}, single=0.5)
    assert (found.policy_of(ultra), found.turns_of(ultra)) == ("single:b", 1)
    [(words, advice)] = found.reports()
    assert words.startswith(
        f"b alone answers, as no coordinator that was evolved here is ahead of it: checkpoint {ids[1]}"
    )
    assert "the best single model, b T W, 50.0 % (40 to 60)" in words
    assert not advice
    inside = replace(lean, models=("a",))  # where it may not be chosen, the coordinator decides
    assert found.policy_of(inside) == ids[1]
    ahead = evolve(store, "r2", {1: 0.7}, single=0.5)
    found = Offer(found.endpoint, found.specs, store)
    assert (found.policy_of(ultra), found.turns_of(ultra)) == (ahead[1], 8)


def test_without_any_coordinator_the_strongest_model_answers(store: Store) -> None:
    def plays(one: Offer) -> tuple[str, int]:
        ultra = one.endpoint.tier[-1]
        return one.policy_of(ultra), one.turns_of(ultra)

    by_strength = pool(store, dict.fromkeys("abc", 1.0), {"a": 1, "b": 3, "c": 2})
    assert plays(by_strength) == ("single:b", 1)
    assert (
        "the strongest model answers, by its strength in pool.toml: trinity tune"
        in by_strength.reports()[0][0]
    )
    by_price = pool(store, {"a": 1.0, "b": 2.0, "c": 0.5})
    assert plays(by_price) == ("single:b", 1)
    assert "by its price" in by_price.reports()[0][0]
    unknown = pool(store, dict.fromkeys("abc"))
    assert plays(unknown) == ("single:a", 1)
    assert "nothing says that one of its models is better" in unknown.reports()[0][0]


def test_the_example_stands_where_it_is_shown() -> None:
    root = Path(__file__).parents[3]
    for name in ("README.md", "ui/cli/serve.py"):
        assert EXAMPLE in " ".join((root / name).read_text("utf-8").split())
    assert f"this one is {EXAMPLE_ANSWER}" in " ".join((root / "README.md").read_text("utf-8").split())
