"""What the tiers of an endpoint choose among: the cheaper models in the lean one, and nobody who is left out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from core.play.policies import RandomPolicy
from core.play.policy import Policy
from core.pool_file import load_specs
from tests.builders.checkpoints import checkpoint
from tests.builders.stores import new_store
from tests.ui.endpoint.server import raw, served
from ui.endpoint.errors import ApiError
from ui.endpoint.tiers import Endpoint, Offer, Tier

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
    tiers = Endpoint(
        tier=(
            Tier(name="few", policy="random", models=("a",), turns=2),
            Tier(name="many", policy="random", turns=6),
        )
    )
    with served(tmp_path, endpoint=tiers) as one:
        few, many = (model["trinity"] for model in raw(one.url, "GET", "/v1/models")[2]["data"])
        assert (few["models"], few["turns"]) == (["a"], 2)
        assert (many["models"], many["turns"]) == (["a", "b"], 6)
        assert raw(one.url, "GET", "/v1/models/few")[2]["trinity"] == few
