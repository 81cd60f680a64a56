"""Doors to encoders: what a checkpoint says that plays on another recipe, and who reads, on every form."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient

from core.changes import Change
from core.checkpoint import Checkpoint
from core.errors import ConfigError
from core.settings import Computing, ray_address
from core.tokens.shelf import Shelved, put
from storage.analysis.defaults import most_telling
from storage.store import Store
from tests.builders.recorded import episode
from tests.builders.stores import record_finished_run
from tests.ui.pages import opened, plainly, press, waiting
from tests.ui.sums import Sums
from ui.endpoint.api import endpoint_app
from ui.endpoint.service import Service
from ui.endpoint.tiers import Endpoint, Tier
from ui.runs import wiring
from ui.runs.batch import complete_plan
from ui.runs.forks.planning import plan_forks
from ui.runs.plans import ForkPlan, LivePlan, plan_of
from ui.runs.queue import Ticket, enqueue
from ui.runs.settings.batch import BatchPlan
from ui.runs.worker import play_claimed
from ui.web.checkpoints.form import command
from ui.web.kit.cache import pool_specs
from ui.web.pickers import encoder

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("no_workers")]
HALF = Computing("cpu", "bfloat16")


@pytest.fixture
def reading(store: Store, tiny_encoder: Path) -> Checkpoint:
    """A checkpoint of the world's pool that was made on a tiny encoder, in float32 on the CPU."""
    encoder = wiring.loaded_encoder(str(tiny_encoder))
    begun = Checkpoint.begin(("adder", "guesser"), encoder.identity, **asdict(encoder.recipe))
    made = begun.with_vector(np.random.default_rng(0).normal(0, 0.3, len(begun.vector)))
    wiring.keep_checkpoint(store, made)
    return made


def played(store: Store, plan: LivePlan | BatchPlan | ForkPlan) -> str:
    run, _ = enqueue(store, plan, Ticket())
    assert play_claimed(store, run) == 0, store.runs.get(run).error
    return run


def test_on_another_recipe_every_run_says_how_far_its_decisions_agree(
    world: Sums, store: Store, plan: LivePlan, reading: Checkpoint
) -> None:
    own = replace(plan, policy=reading.id, computing=Computing("cpu", "float32"))
    first = played(store, own)
    assert store.runs.get(first).notes == "", "on its own recipe there is nothing to say"
    run = played(store, replace(own, computing=HALF))
    [sentence] = store.runs.get(run).notes.splitlines()
    made = (
        f"Checkpoint {reading.id} was made in float32 on the CPU and plays here in bfloat16 on the CPU: of "
    )
    assert sentence.startswith(made)
    assert "recorded decisions" in sentence
    assert sentence in plainly(opened("live", run=run))
    [parent] = store.episodes.of_run(first)
    pool, specs = plan.pool, pool_specs(plan.pool)
    forks = plan_forks(
        store, [(parent.id, 0)], Change("temperature", "1"), n=1, baseline=1, pool=pool, specs=specs
    )
    batch = complete_plan(store, BatchPlan((reading.id,), world.tasks, n=1, pool=pool, computing=HALF))
    for other, page in ((replace(forks, computing=HALF), "forks"), (batch, "checkpoints")):
        run = played(store, other)
        assert store.runs.get(run).notes == sentence
        assert page == "checkpoints" or sentence in plainly(opened(page, run=run))


def test_forms_offer_who_reads_only_where_a_coordinator_plays(
    world: Sums, store: Store, plan: LivePlan, reading: Checkpoint, tiny_encoder: Path
) -> None:
    put(wiring.data_folder(), "mine", lambda _: Shelved("mine", "a folder", "", "", str(tiny_encoder)))
    wiring.keep_checkpoint(store, later := replace(reading, generation=1))
    [parent] = store.episodes.of_run(played(store, replace(plan, policy=reading.id, computing=HALF)))
    [other] = store.episodes.of_run(played(store, plan))
    forms = {
        "both": ("checkpoints", {"panel": "play", "tasks": "pocket", "n": "2"}, "play_both"),
        "fork": ("forks", {"t": "1"}, "fork_start"),
        "live": ("live", {}, "play"),
        "again": ("live", {"run": parent.run_id}, "play_again"),
    }
    for form, (name, query, button) in forms.items():
        who = {"both": {"c": f"{reading.id},random"}, "fork": {"ep": parent.id}, "live": {"play": reading.id}}
        page = opened(name, **query, **who.get(form, {}))
        if form == "again":
            page.selectbox(key="swap_policy").select(later.id).run()
            assert page.button_group(key="again_device").value == "cpu", "as it was played before"
            dtype = page.selectbox(key="again_dtype")
            assert (dtype.value, dtype.options[0]) == ("bfloat16", "the checkpoint's own")
            page.selectbox(key="swap_policy").select("random").run()
            assert not [one for one in page.selectbox if one.key == "again_encoder"], "random reads nothing"
            continue
        assert page.selectbox(key=f"{form}_encoder").options == ["the checkpoint's own", "pocket", "mine"]
        page.selectbox(key=f"{form}_encoder").select("mine")
        page.selectbox(key=f"{form}_dtype").select("bfloat16")
        page.button_group(key=f"{form}_device").set_value("cpu").run()
        press(page, button)
        kept = plan_of(store.runs.get(waiting(store)[-1]))
        assert isinstance(kept, BatchPlan | ForkPlan | LivePlan)
        assert (kept.encoder, kept.computing) == ("mine", HALF)
        if isinstance(kept, BatchPlan):
            assert "--encoder mine --device cpu --dtype bfloat16" in command(kept)
    for name, query in (
        ("checkpoints", {"panel": "play", "c": "random,single:adder"}),
        ("forks", {"ep": other.id}),
    ):
        assert not [one for one in opened(name, **query).selectbox if str(one.key).endswith("_encoder")]


def test_separability_offers_the_encoders_that_are_here_and_takes_any_other(
    world: Sums, store: Store, tiny_encoder: Path
) -> None:
    put(wiring.data_folder(), "mine", lambda _: Shelved("mine", "a folder", "", "", str(tiny_encoder)))
    page = opened("separability", of="questions", n="20")
    picker = page.selectbox(key="separability_encoder")
    assert (picker.value, picker.options) == ("pocket", ["pocket", "mine"])
    by_pocket = plainly(page)
    picker.select("mine").run()
    assert page.query_params["encoder"] in ("mine", ["mine"])
    assert "A linear SVM reads family off" in plainly(page)
    assert plainly(page) != by_pocket
    page.selectbox(key="separability_encoder").select("pocket").run()
    assert "encoder" not in page.query_params
    named = opened("separability", of="questions", n="20", encoder="/nowhere/at all")
    assert named.selectbox(key="separability_encoder").value == "/nowhere/at all"
    assert "/nowhere/at all is not on this machine" in plainly(named)


def test_a_planner_that_played_is_no_checkpoint_to_show_first(store: Store, reading: Checkpoint) -> None:
    store.checkpoints.add("cplan", {"models": ["adder", "guesser"]}, b"", kind="trained")
    record_finished_run(
        store, "r1", "run", {}, [replace(episode("e-1"), run_id="r1", policy="conductor:cplan")]
    )
    assert most_telling(store, ["conductor:cplan", "random"], reading.id) == "conductor:cplan"


def test_the_endpoint_keeps_the_sentence_with_its_run(world: Sums, store: Store, reading: Checkpoint) -> None:
    endpoint = Endpoint(tier=(Tier(name="trinity", policy=reading.id, turns=1),))
    service = Service(store, str(world.folder / "pool.toml"), endpoint, computing=HALF)
    asked = {"model": "trinity", "messages": [{"role": "user", "content": "What is 1 + 1?"}]}
    with (
        closing(service),
        TestClient(endpoint_app(service, prefix="/v1", local=True), base_url="http://127.0.0.1") as client,
    ):
        for _ in range(2):
            assert client.post("/v1/chat/completions", json=asked).status_code == 200
    [run] = store.runs.list("serve")
    assert run.notes.startswith(f"Checkpoint {reading.id} was made in float32 on the CPU and plays here in")
    assert len(run.notes.splitlines()) == 1
    assert run.notes in plainly(opened("settings", part="endpoint"))


def test_every_form_that_begins_a_run_offers_the_engine_and_says_what_is_wrong_with_it(
    world: Sums, store: Store, plan: LivePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = "ray=10.0.0.1:6379"
    monkeypatch.setenv("TRINITY_ENGINE", address)
    [parent] = store.episodes.of_run(played(store, plan))
    both = {"panel": "play", "c": "random,single:adder", "tasks": "pocket", "n": "2"}
    forms = {
        "both": ("checkpoints", both, "play_both"),
        "fork": ("forks", {"ep": parent.id, "t": "1"}, "fork_start"),
        "ev": ("evolution", {"panel": "begin"}, "begin"),
        "tr": ("evolution", {"panel": "train"}, "begin"),
    }
    for form, (name, query, button) in forms.items():
        page = opened(name, **query)
        picker = page.selectbox(key=f"{form}_engine")
        offered = ["local", "Ray on this machine", "Ray at 10.0.0.1:6379"]
        assert (picker.value, picker.options) == (address, offered), "as the app's settings say"
        with monkeypatch.context() as patched:  # a test cannot type into this widget
            patched.setattr(encoder, "typed_engine", lambda _: "rays")
            page.run()
            if form != "tr":  # whose pool has no planner here
                assert "The engine must be local, ray or ray=ADDRESS, not 'rays'." in plainly(page)
            assert page.button(key=button).disabled
        page.run()
        if form in ("both", "fork"):
            for engine in (address, "ray"):
                page = opened(name, **query)
                page.selectbox(key=f"{form}_engine").select(engine).run()
                press(page, button)
                kept = plan_of(store.runs.get(waiting(store)[-1]))
                assert isinstance(kept, BatchPlan | ForkPlan)
                assert kept.engine == engine
                assert isinstance(kept, ForkPlan) or f"--engine {engine}" in command(kept)


def test_an_address_alone_is_that_of_a_ray_cluster() -> None:
    typed = {
        "10.0.0.1:6379": "ray=10.0.0.1:6379",
        " ray://head:10001 ": "ray=ray://head:10001",
        "ray=head:6379": "ray=head:6379",
        "ray-mixed=head:6379": "ray-mixed=head:6379",
        "local": "local",
        "Ray": "ray",
    }
    assert {words: encoder.typed_engine(words) for words in typed} == typed
    for words in ("head", "ray=head", "ray=head:port", "ray-mixed=head"):
        with pytest.raises(ConfigError):
            ray_address(encoder.typed_engine(words))
