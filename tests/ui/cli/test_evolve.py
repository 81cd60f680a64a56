"""`trinity evolve` with a tiny encoder: a checkpoint per generation, the same end after being interrupted."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from core.episode import Protocol
from core.evolution import evolve as evolution
from core.evolution.config import label_episodes
from core.fields import validate_settings
from core.settings import read_settings
from storage.files.interchange import import_file
from storage.filters.episode_filter import EpisodeFilter, for_totals
from storage.rows.summaries import EpisodeSummary
from storage.shelves.learning import Learning
from storage.store import Store, open_store
from tests.builders.stores import copy_store
from tests.ui.sums import Result, Sums, sums
from tests.ui.test_canary import unpacked
from ui.cli.learning import read_file
from ui.presentation.words import generations_of, policy_name
from ui.runs.settings.learning import EvolutionPlan, plan_from

pytestmark = pytest.mark.usefixtures("evolving")
SMALL = ["--generations", 3, "--population", 4, "--replicates", 4, "--turns", 2, "--validate-every", 2]


def evolve(world: Sums, *more: object) -> Result:
    """A small evolution, with the options that follow winning."""
    return world.trinity("evolve", "--tasks", world.tasks, *SMALL, *more)


def evolved(world: Sums, *more: object) -> Result:
    """The same, which comes to its end and prints JSON."""
    return world.done("evolve", "--tasks", world.tasks, *SMALL, *more, "--json")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: Path) -> tuple[Result, Path]:
    """What an evolution says that comes to its end and records every candidate; and its store."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patched, sums(folder, patched) as made:
        made.add_tasks_to_evolve_on()
        patched.setenv("TRINITY_ENCODER", str(tiny_encoder))
        return evolved(made, "--record", "all"), Path(made.store)


@pytest.fixture
def finished(world: Sums, undisturbed: tuple[Result, Path]) -> Result:
    """The same, and the world's store holds that evolution."""
    result, store = undisturbed
    copy_store(store, world.store)
    return result


@contextmanager
def dying(index: int, *, before: bool) -> Iterator[None]:
    """An evolution is interrupted as it keeps the generation of this index, or once it is kept."""
    add = Learning.add

    def broken(self: Learning, entry: object, **rest: Any) -> None:
        dies = getattr(entry, "index", 0) == index
        if dies and before:
            raise KeyboardInterrupt
        add(self, entry, **rest)  # type: ignore[arg-type]
        if dies:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learning, "add", broken)
        yield


def test_an_evolution_leaves_a_checkpoint_per_generation_that_can_be_played(
    world: Sums, finished: Result
) -> None:
    result = finished
    assert list(result.json) == ["run", "generations", "checkpoint", "digest", "best", "controls", "took"]
    assert result.json["generations"] == 3
    assert "generation 2, mean" in result.err
    assert "first steps of the head" in result.err
    assert "spread the logits by 6" in result.err
    walk, single = result.json["controls"]
    assert walk == "random walk"
    assert single.startswith("single:adder ")
    listed = world.trinity("checkpoints", "--run", result.json["run"], "--json").json
    assert [one["generation"] for one in listed] == [0, 1, 2, 3]
    assert listed[-1]["id"] == result.json["checkpoint"]
    played = world.run("--policy", result.json["checkpoint"], "--n", 3, "--json")
    assert played.json[0]["n"] == 3, played.err
    with world.kept() as store:
        generations = store.learning.updates(result.json["run"])
    assert [one.episodes for one in generations] == [0, 16, 32, 48]
    assert "validation" in generations[2].stats


def test_an_evolution_by_the_released_rules_leaves_checkpoints_that_play_by_them(world: Sums) -> None:
    small = ("--generations", 1, "--no-controls", "--name", "mine")
    result = evolved(world, *small, "--protocol", "released")
    name = result.json["checkpoint"]
    assert world.run("--policy", name, "--policy", "random", "--n", 3).code == 0
    with world.kept() as store:
        checkpoint = store.checkpoints.load(name)
        assert (checkpoint.protocol, checkpoint.input_format) == (Protocol.RELEASED, "chat")
        rules = {
            one.policy: store.episodes.get(one.id).protocol
            for one in store.episodes.page(EpisodeFilter(), limit=6).items
        }
    assert rules == {name: Protocol.RELEASED, "random": Protocol.PAPER}
    refused = world.run("--policy", name, "--protocol", "paper", "--n", 3)
    assert "was evolved under the protocol 'released' and cannot play by 'paper'" in " ".join(
        refused.err.split()
    )
    again = evolve(world, *small, "--protocol", "paper", "--resume")
    assert "was begun with another --protocol" in again.err


def test_an_evolution_begins_with_labels_whose_episodes_count(world: Sums) -> None:
    result = evolved(world, "--generations", 1, "--labels", 8, "--no-controls")
    with world.kept() as store:
        first, second, *_ = store.learning.updates(result.json["run"])
        assert (first.episodes, second.episodes) == (label_episodes(2, 8), label_episodes(2, 8) + 16)
        assert first.checkpoint_id is not None
        assert store.checkpoints.load(first.checkpoint_id).kind == "labels"
        called = generations_of(store)[first.checkpoint_id]
        assert policy_name(first.checkpoint_id, called) == "start (taught by labels)"


def test_the_papers_preset_is_every_setting_of_the_paper_and_options_win_over_it(world: Sums) -> None:
    file = world.folder / "paper.toml"
    world.done("evolve", "--preset", "paper", "--generations", 7, "--write-config", file)
    said = read_file(file, EvolutionPlan, "evolve")
    assert (said["learner"], said["step_size"], said["generations"]) == ("pycma", 0.03, 7)
    assert (said["common"], said["mirrored"], said["constant_spread"]) == (False, False, "plain")
    config = plan_from(EvolutionPlan, said, read_settings({}, {}, world.folder)).evolution
    assert (config.population, config.tasks_per_candidate, config.rotate_every) == (32, 16, 1)


def test_a_population_is_given_or_the_usual_one(world: Sums) -> None:
    tiny = ["--generations", 1, "--replicates", 2, "--turns", 1, "--validation", 0]
    world.done("evolve", "--tasks", world.tasks, *tiny, "--population", "auto", "--name", "a")
    with world.kept() as store:
        run = store.runs.list(kind="evolve")[0]
        assert len(store.learning.candidates(run.id, 1)) == run.config["evolution"]["population"] == 18
    again = world.trinity("evolve", "--resume", "--name", "a", "--population", "auto")
    assert "there is nothing to resume" in again.err


def test_an_interrupted_evolution_ends_the_same_bit_for_bit(
    world: Sums, undisturbed: tuple[Result, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with dying(1, before=False):
        result = evolve(world)
    assert result.code == 130
    assert "Go on with: trinity evolve --resume --name r" in result.err
    run = result.err.strip().split()[-1]
    longer = world.refused("evolve", "--resume", "--name", run, "--generations", 100)
    assert "begun with another --generations" in longer
    assert "reads 256 sketched transcripts once" in result.err

    def measured(*_: object) -> None:
        raise AssertionError("the encoder is measured once")

    with monkeypatch.context() as once:
        once.setattr(evolution, "survey", measured)
        said = world.trinity("evolve", "--resume", "--name", run, "--json")
    assert "sketched" not in said.err
    resumed = said.json
    assert resumed["digest"] == undisturbed[0].json["digest"]
    assert resumed["run"] == run
    again = world.trinity("evolve", "--resume", "--name", run)
    assert again.code == 1
    assert again.err.splitlines()[-1].startswith("trinity: ")


def recorded(store: Store, run: str) -> list[EpisodeSummary]:
    """The episodes of an evolution, the first first."""
    return list(store.episodes.page(EpisodeFilter(run=run), order="oldest", limit=500).items)


@pytest.mark.parametrize(
    ("record", "candidates", "validations"), [("none", 0, 0), ("share", 4, 3), ("all", 6, 3)]
)
def test_an_evolution_records_the_episodes_of_none_a_share_or_all_of_its_candidates(
    world: Sums, record: str, candidates: int, validations: int
) -> None:
    result = evolved(world, "--population", 6, "--no-controls", "--record", record)
    with world.kept() as store:
        run = result.json["run"]
        found = recorded(store, run)
        assert len(found) == 3 * candidates * 4 + validations * 4
        for index in range(1, 4):
            of_one = [one for one in found if one.generation == index and one.checkpoint_id is None]
            assert len({one.policy for one in of_one}) == candidates
            by_index = store.learning.candidates(run, index)
            for policy in {one.policy for one in of_one}:
                own = [one.correct for one in of_one if one.policy == policy]
                assert sum(map(bool, own)) / len(own) == by_index[int(policy.rpartition("/")[2])].fitness
        if found:
            where = EpisodeFilter(q=f'run == "{run}" and generation == 2 and policy == "{found[-1].policy}"')
            assert store.episodes.page(where).total.n == (found[-1].generation == 2) * 4
            played = store.episodes.get(found[0].id)
            assert len(played.turns) == found[0].turns > 0
            assert all(turn.episode_id == played.id and turn.decision.hidden_state for turn in played.turns)
        # They share their replies, so that no total counts them.
        assert store.episodes.page(for_totals(EpisodeFilter())).total.n == 0


def test_recorded_episodes_cost_nothing_more_than_the_replies_that_they_share(world: Sums) -> None:
    world.price(1000.0)
    small = ("--generations", 2, "--no-controls", "--max-cost", 100)
    none, every = (
        spent(world, evolved(world, *small, "--record", record).json["run"]) for record in ("none", "all")
    )
    assert 0 < none == every


@pytest.mark.parametrize("before", [True, False])
def test_an_interrupted_evolution_records_every_episode_once(
    world: Sums, finished: Result, before: bool
) -> None:
    with dying(2, before=before):
        stopped = evolve(world, "--record", "all")
    assert stopped.code == 130
    run = stopped.err.strip().split()[-1]
    world.done("evolve", "--resume", "--name", run)
    with world.kept() as store:
        first, second = (
            [
                (one.id.partition("-")[2], one.generation, one.strip, one.correct)
                for one in recorded(store, name)
            ]
            for name in (finished.json["run"], run)
        )
    assert sorted(first) == sorted(second)
    assert len(first) == 3 * 4 * 4 + 3 * 4


def test_a_candidate_whose_weights_are_gone_cannot_play_again(world: Sums, finished: Result) -> None:
    name = f"candidate:{finished.json['run']}/2/1"
    assert "The weights of candidate 1 of gen 2" in world.run("--policy", name).err


def test_real_models_need_a_named_encoder(world: Sums, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRINITY_ENCODER")
    refused = evolve(world)
    assert refused.code == 1
    assert "Name the language model that reads the transcripts of adder, guesser" in refused.err
    small = ("--generations", 1, "--no-controls", "--encoder", "pocket")
    assert "window 1,024 tokens" in evolved(world, *small).err


def test_the_same_command_line_with_resume_goes_on_with_the_evolution_of_that_name(world: Sums) -> None:
    command = ["evolve", "--tasks", world.tasks, *SMALL, "--name", "mine"]
    with dying(2, before=True):
        assert world.trinity(*command, "--resume").code == 130  # nothing to go on with: it begins
    begun = len(world.server.requests)
    assert "resume it by --resume" in world.trinity(*command).err
    other = world.trinity(*command, "--resume", "--head", "sparse")
    assert "begun with another --head" in other.err
    assert world.trinity(*command, "--resume", "--json").json["generations"] == 3
    resumed = len(world.server.requests)
    world.done(*command[:-1], "other", "--json")
    assert resumed == len(world.server.requests) - resumed  # a stored reply was not asked for again
    assert begun < resumed


@pytest.mark.parametrize(
    "head", ["low-rank", "sparse", "block-diagonal-2", "block-diagonal-10", "turn-aware"]
)
def test_every_head_and_singular_values_can_be_evolved_and_played(world: Sums, head: str) -> None:
    result = evolved(world, "--generations", 1, "--no-controls", "--head", head, "--svf", "1")
    played = world.run("--policy", result.json["checkpoint"], "--n", 1, "--json")
    assert played.json[0]["n"] == 1, played.err
    kinds = {one["kind"] for one in world.trinity("checkpoints", "--run", result.json["run"], "--json").json}
    assert kinds == {"head+svf"}


def test_the_written_file_is_the_default_and_options_win_over_it(world: Sums) -> None:
    file = world.folder / "evolve.toml"
    world.done("evolve", "--write-config", file)
    usual = validate_settings(EvolutionPlan, {})
    assert validate_settings(EvolutionPlan, read_file(file, EvolutionPlan, "evolve")) == usual
    assert [key for key in usual if f"{key} =" not in file.read_text()] == []
    assert "exists already" in world.trinity("evolve", "--write-config", file).err
    file.write_text('logit_spread = 4.0\nbarred = ["thinker"]\nseed = 3\nname = "mine"\n')
    result = evolved(world, "--config", file, "--seed", 4)
    with world.kept() as store:
        begun = store.runs.get(result.json["run"])
    config = begun.config
    assert (begun.name, config["barred"], config["tasks"]) == ("mine", ["thinker"], world.tasks)
    assert (config["evolution"]["logit_spread"], config["evolution"]["seed"]) == (4.0, 4)
    again = world.trinity("evolve", "--resume", "--config", file)
    assert "was begun with another seed, which --resume cannot change" in again.err


def test_an_evolution_is_the_same_by_options_and_by_a_file(world: Sums) -> None:
    tiny = ["--generations", 1, "--population", 4, "--replicates", 2, "--turns", 1]
    tiny += ["--validation", 0, "--seed", 5]
    file = world.folder / "evolve.toml"
    plain = world.trinity("evolve", "--tasks", world.tasks, *tiny, "--json").json
    world.done("evolve", "--tasks", world.tasks, *tiny, "--write-config", file)
    by_file = world.trinity("evolve", "--config", file, "--json").json
    assert by_file["digest"] == plain["digest"]
    file.write_text(file.read_text().replace("logit_spread = 6.0", "logit_spread = 2.0"))
    other = world.trinity("evolve", "--config", file, "--json").json
    assert other["digest"] != plain["digest"]


def spent(world: Sums, run: str) -> float:
    """What a run knows to have cost."""
    with world.kept() as store:
        return store.runs.spent_usd(run)


def test_a_paid_evolution_stops_below_its_ceiling_and_can_go_on(world: Sums) -> None:
    world.price(10.0)
    undecided = evolve(world).err
    controls = 2 * 4 * 4 + 2 * 4  # two models in four ways on four tasks, then the best and the random walk
    calls = (
        3 * 4 * 4 + 3 * 4 + controls
    ) * 2  # candidates of three generations, three validations, two turns
    assert f"up to {calls} calls" in undecided
    assert "set a ceiling" in undecided
    result = evolve(world, "--max-cost", "0.045")
    assert result.code == 1
    assert "The next episode could exceed the ceiling of $0.0450" in result.err
    assert "everything so far is kept" in result.err
    run = result.err.split("--name ")[1].split()[0]
    assert 0 < spent(world, run) <= 0.045
    more = world.trinity("evolve", "--resume", "--name", run, "--max-cost", "0.05")
    assert "generation 1, mean" in more.err
    assert "The next generation could exceed the ceiling of $0.0500" in more.err
    calls, so_far = len(world.server.requests), spent(world, run)
    again = world.trinity("evolve", "--resume", "--name", run, "--max-cost", str(so_far + 0.0001))
    assert "The next generation could exceed" in again.err
    assert len(world.server.requests) == calls, "a generation that cannot be paid for is not begun"
    ended = world.trinity("evolve", "--resume", "--name", run, "--max-cost", "9", "--json").json
    assert ended["generations"] == 3
    assert spent(world, run) == pytest.approx(len(world.server.requests) * 18 * 10 / 1e6, rel=0.01)


def test_nothing_that_leaves_the_machine_names_a_place_of_it(
    world: Sums, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    begun = evolved(world, "--record", "share", "--name", "mine")
    assert world.run("--policy", begun.json["checkpoint"], "--policy", "random", "--n", 3).code == 0
    with world.kept() as store:
        runs = [one.id for one in store.runs.list()]
        played = [one.id for one in store.episodes.page(limit=2).items]
        assert str(world.folder) in str([one.config for one in store.runs.list()]), "here they are found"
    out = tmp_path_factory.mktemp("out")
    for name, *how in (
        ("runs.jsonl", *runs),
        ("few.jsonl", "--all"),
        ("table.csv", "--all"),
        ("table.parquet", "--all"),
        ("page.html", "--episode", played[0]),
        ("pages.html.zip", "--all"),
        ("pair.html", "--pair", *played),
    ):
        world.done("export", *how, "--out", out / name)
    world.done("checkpoints", "export", begun.json["checkpoint"], out / "checkpoint")
    (out / "compared").write_text(world.trinity("compare", "random", begun.json["checkpoint"], "--json").out)
    places = [str(world.folder).encode(), str(Path.home()).encode(), b"sums.jsonl/"]
    held = {file.relative_to(out).as_posix(): content for file, content in unpacked(out)}
    assert len(held) > 12
    for name, content in held.items():
        assert not any(place in content for place in places), name
    assert b'"tasks":"sums.jsonl"' in held["runs.jsonl"]
    there = open_store(out / "there.db")
    import_file(there, out / "runs.jsonl")
    there.close()
    told = [json.loads(line) for line in held["runs.jsonl"].splitlines()]
    begun_there = next(one for one in told if one.get("run_kind") == "evolve")
    assert begun_there["config"]["pool"] == "pool.toml"
    assert len(begun_there["pool"]) == 16, "by the digest of its models"
    assert len(begun_there["config"]["digest"]) >= 16, "and that of its tasks"
    other = out / "another machine"
    other.mkdir()
    encoder = os.environ["TRINITY_ENCODER"]
    monkeypatch.chdir(other)
    monkeypatch.setenv("XDG_DATA_HOME", str(other))
    monkeypatch.setenv("TRINITY_STORE", str(out / "there.db"))
    monkeypatch.delenv("TRINITY_ENCODER")
    play = ("--policy", begun.json["checkpoint"], "--n", 2)
    lost = world.run(*play)
    assert "is a folder that is not known on this machine: give its path by --encoder" in " ".join(
        lost.err.split()
    )
    assert world.run(*play, "--encoder", encoder).code == 0
    assert world.run(*play).code == 0, "once found, it is found again"
