"""The other commands on a real store: what they print, what --json promises, and what a mistake gets."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.checkpoint import load_checkpoint, save_checkpoint
from core.evolution import cycles
from core.evolution.cycles import Tried, try_temperatures
from core.planner.planner import LanguagePlanner
from core.pool.spec import digest_of_specs
from core.pool_file import load_specs
from tests.builders.checkpoints import checkpoint
from tests.builders.stores import copy_store
from tests.core.planner.tiny import tiny_planner
from tests.ui.sums import Sums, sums
from ui.cli.console import printable
from ui.cli.ui import check_port
from ui.runs import wiring
from ui.runs.lease import is_dead, owner


@pytest.fixture(scope="module")
def _played(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("played")
    with pytest.MonkeyPatch.context() as patched, sums(folder, patched) as world:
        world.done("run", *world.test_tasks, "--policy", "single:*", "--policy", "round-robin")
    return Path(world.store)


@pytest.fixture
def played(world: Sums, _played: Path) -> Sums:
    """A world in which both single models and round-robin have played."""
    copy_store(_played, world.store)
    return world


def test_the_version_is_told_and_a_wrong_option_is_exit_code_two(world: Sums) -> None:
    assert re.fullmatch(r"\d+\.\d+.*\n", world.done("--version").out)
    assert world.trinity("doctor", "--nonsense").code == 2
    assert "--where)" in world.trinity("episodes", "--wher", "x").err
    assert world.trinity("compare", "a", "b", "--family", "logic").code == 2


@pytest.mark.process
def test_an_argument_that_is_no_text_is_one_sentence(world: Sums) -> None:
    said = subprocess.run(
        [Path(sys.executable).parent / "trinity", "episodes", "show", b"ep\xff"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (said.returncode, said.stderr) == (1, "trinity: An argument is not text: write it in UTF-8.\n")


def test_doctor_says_where_things_are_and_what_tables_and_columns_mean(played: Sums) -> None:
    world, report = played, played.trinity("doctor", "--json").json
    assert "cores" in report["devices"]["cpu"]
    assert report["version"]
    assert report["store"]["url"].endswith("store.db")
    assert (bool(report["store"]["schema"]), report["store"]["episodes"]) == (True, 36)
    assert "backup" in report["store"]
    said = world.trinity("doctor", "--tables").out
    assert "label: One thing a person said" in said
    assert "First character of the reply" in said
    told = world.trinity("doctor", "--tables", "--json").json
    assert {"name": "run_id", "key": "→ run.id"}.items() <= told["episode"]["columns"][1].items()


def test_doctor_names_another_distribution_that_owns_one_of_our_names(
    world: Sums, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert world.trinity("doctor", "--json").json["name_clashes"] == {}
    described = tmp_path / "site" / "apple_core-1.0.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: apple-core\nVersion: 1.0\n")
    (described / "RECORD").write_text("core/__init__.py,,\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(described.parent)])
    assert world.trinity("doctor", "--json").json["name_clashes"] == {"core": ["apple-core"]}
    assert "apple-core also installs a package named 'core'" in world.trinity("doctor").out


def test_doctor_reports_a_store_that_is_none(world: Sums) -> None:
    Path(world.store).write_bytes(b"not a database at all, but long enough to look at" * 40)
    assert world.refused("doctor")


def test_episodes_are_paged_to_the_end(played: Sums) -> None:
    seen: list[str] = []
    after: list[str] = []
    while True:
        page = played.trinity("episodes", "--limit", 10, *after, "--json").json
        seen += [one["id"] for one in page["episodes"]]
        if page["next"] is None:
            break
        after = ["--after", page["next"]]
    assert len(seen) == len(set(seen)) == 36


def test_episodes_are_filtered_and_shown(played: Sums) -> None:
    page = played.trinity("episodes", "--policy", "round-robin", "--limit", 1, "--json").json
    one = page["episodes"][0]
    shown = played.trinity("episodes", "show", one["id"]).out
    assert "1. thinker adder" in shown
    assert "answer " in shown
    whole = played.trinity("episodes", "show", one["id"], "--json").json
    assert [turn["index"] for turn in whole["turns"]] == list(range(one["turns"]))


def test_no_episode_has_more_turns_than_a_database_can_count(played: Sums) -> None:
    assert played.trinity("episodes", "--where", f"turns >= {10**20}", "--json").json["episodes"] == []
    assert len(played.trinity("episodes", "--where", f"turns <= {10**20}", "--json").json["episodes"]) == 20


def test_episodes_and_runs_are_deleted(played: Sums) -> None:
    ids = [one["id"] for one in played.trinity("episodes", "--limit", 2, "--json").json["episodes"]]
    played.done("episodes", "delete", *ids, "--yes")
    assert played.trinity("doctor", "--json").json["store"]["episodes"] == 34
    assert played.trinity("episodes", "show", ids[0]).code == 1
    run = played.last_run()[0].id
    deleted = played.trinity("episodes", "delete", "--run", run, "--yes")
    assert (deleted.code, deleted.err) == (0, f"Deleted run {run} with its 34 episodes.\n")
    assert played.trinity("doctor", "--json").json["store"]["episodes"] == 0


def test_deleting_what_is_not_there_deletes_nothing(played: Sums) -> None:
    one = played.trinity("episodes", "--limit", 1, "--json").json["episodes"][0]["id"]
    assert played.trinity("episodes", "delete", one, "e0", "--yes").code == 1
    played.done("episodes", "show", one)


def test_compare_with_a_baseline(played: Sums) -> None:
    found = played.trinity("compare", "single:guesser", "single:adder", "round-robin", "--json").json
    base, first, second = found["ahead"]["policies"]
    named = [one["policy"] for one in (base, first, second)]
    assert named == ["single:guesser", "single:adder", "round-robin"]
    assert (base["difference"], base["p"]) == (None, None)
    assert first["n"] == 12
    assert [first[cell] for cell in ("both_right", "only_a", "only_b", "both_wrong")] == [6, 0, 6, 0]
    assert first["difference"]["difference"] == 0.5
    assert (first["p"], first["test"]) == (pytest.approx(2 / 2**6), "exact McNemar test")
    assert first["difference"]["ci95"][0] < 0.5 < first["difference"]["ci95"][1]
    won = ("--part", "result", "--choose", "cell=only_b", "--choose", "page=all")
    text = played.trinity("compare", "single:guesser", "single:adder", *won).out
    assert "+50.0 (" in text
    assert "Yes, adder alone (B) is better than guesser alone (A), by 50.0 points" in text
    assert text.count("What is ") == 6


def test_compare_between_runs_uses_shared_tasks_and_counts_repeats_once(world: Sums) -> None:
    assert world.run("--policy", "single:*").code == 0
    assert world.run("--policy", "single:adder", "--n", 5).code == 0
    with world.kept() as store:
        new, old = (run.id for run in store.runs.list())

    def compared(*policies: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = world.trinity("compare", *policies, "--json").json["ahead"]["policies"]
        return found

    a, b = compared(f"{old}/single:guesser", new)
    assert b["n"] == 5
    assert (a["run"], b["run"]) == (old, new)
    a, b = compared("single:guesser", "single:adder")
    assert (b["n"], a["episodes"], b["episodes"]) == (12, 12, 17)
    assert b["p"] == pytest.approx(2 / 2**6)

    assert world.run("--policy", "single:adder", "--turns", 1).code == 0  # another setting: never averaged
    refused = world.refused("compare", "single:guesser", "single:adder")
    assert "under 2 settings, which are not to be averaged: name single:adder@" in refused
    sides = [word.strip(".,") for word in refused.split() if word.startswith("single:adder@")]
    named = sides[-1]
    _, one = compared("single:guesser", named)
    assert one["episodes"] == 12
    assert one["setting"]["turn_budget"] == int(named.partition("@")[2].partition("-")[0])
    text = world.trinity("compare", "single:guesser", *sides).out
    assert "adder alone, 1 turn" in text
    assert "not played under the same setting" in text


@pytest.mark.parametrize(
    ("policies", "sentence"),
    [
        (["single:adder", "nobody"], "no run or policy 'nobody'"),
        (["single:adder", "round-robin", "single:adder"], "are the same"),
        (["RUN", "single:adder"], "has 3 policies"),
        (["single:adder"], "Name two to 8"),
        (["single:adder", *map(str, range(9))], "these are 10"),
    ],
)
def test_what_cannot_be_compared(played: Sums, policies: list[str], sentence: str) -> None:
    run = played.last_run()[0].id
    assert sentence in played.refused("compare", *(run if one == "RUN" else one for one in policies))


def test_runs_go_out_and_into_another_store(played: Sums) -> None:
    run = played.last_run()[0].id
    file, other = played.folder / "run.jsonl.gz", played.folder / "other.db"
    assert played.trinity("export", run, "--out", file, "--json").json["lines"]["episode"] == 36
    assert "exists already" in played.trinity("export", run, "--out", file).err
    assert "36 episodes" in played.trinity("import", file, "--store", other).out
    assert "nothing new" in played.trinity("import", file, "--store", other).out
    assert played.trinity("doctor", "--store", other, "--json").json["store"]["episodes"] == 36


def test_a_checkpoint_for_another_pool_or_encoder_is_refused(world: Sums) -> None:
    from tests.builders.encoder import tiny_qwen3

    save_checkpoint(checkpoint(("adder", "stranger")), world.folder / "made")
    encoder = tiny_qwen3(world.folder / "encoder")
    result = world.run("--policy", world.folder / "made", "--encoder", encoder)
    assert (result.code, "hidden states of 4 numbers" in result.err) == (1, True)
    with world.kept() as store:
        assert store.runs.list() == []


def test_a_damaged_checkpoint_is_not_imported(world: Sums) -> None:
    save_checkpoint(checkpoint(("adder",)), world.folder / "made")
    (world.folder / "made" / "model.safetensors").write_bytes(b"")
    assert world.refused("checkpoints", "import", world.folder / "made")


def test_pool_init_writes_a_valid_file_once(world: Sums, monkeypatch: pytest.MonkeyPatch) -> None:
    path = world.folder / "mine.toml"
    world.done("pool", "init", path)
    assert "exists already" in world.trinity("pool", "init", path).err
    monkeypatch.setenv("OPENAI_API_KEY", "very-secret")
    listed = world.trinity("pool", "list", "--pool", path)
    assert "OPENAI_API_KEY is set" in listed.out
    assert "very-secret" not in listed.out + listed.err


def test_a_strength_is_listed_and_changes_nothing_that_is_recorded(world: Sums) -> None:
    file = world.folder / "pool.toml"
    before = digest_of_specs(load_specs(file))
    file.write_text(file.read_text().replace('name = "guesser"', 'name = "guesser"\nstrength = 3'))
    assert [row["strength"] for row in world.trinity("pool", "list", "--json").json] == [None, 3]
    assert digest_of_specs(load_specs(file)) == before
    file.write_text(file.read_text().replace("strength = 3", "strength = 2.5"))
    assert "model 2 ('guesser'): strength should be a valid integer" in world.trinity("pool", "list").err


def test_pool_check_asks_each_model_once_and_fails_when_one_does(world: Sums) -> None:
    answered = world.done("pool", "check", "--json").json
    assert {row["name"]: row["ok"] for row in answered} == {"adder": True, "guesser": True}
    assert all(row["tokens_per_s"] > 0 for row in answered)
    assert len(world.server.requests) == 2
    file = world.folder / "pool.toml"
    unreachable = file.read_text().replace(f'"{world.server.url}"', '"http://127.0.0.1:9/v1"\nattempts = 1')
    file.write_text(unreachable)
    result = world.trinity("pool", "check")
    assert result.code == 1
    assert "failed" in result.out


def test_pool_list_of_the_pocket_needs_no_weights(world: Sums) -> None:
    listed = world.trinity("pool", "list", "--pool", "pocket", "--json").json
    assert [row["provider"] for row in listed] == ["pocket"] * 7


def test_pocket_temperatures_plays_every_cycle_at_every_temperature(
    world: Sums, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: dict[str, list[Tried]] = {}

    def once(model: str, *how: Any) -> list[Tried]:
        """What was played for one way of telling it is told in the other."""
        if model not in kept:
            kept[model] = list(try_temperatures(model, *how))
        return kept[model]

    monkeypatch.setattr(cycles, "try_temperatures", once)
    tried = world.trinity("pocket", "temperatures", "pip", "--n", 1, "--json").json["pip"]
    assert sorted({one["temperature"] for one in tried}) == [0.25, 0.5, 0.75, 1.0]
    assert len(tried) == 16
    assert {one["n"] for one in tried} == {4}
    best = max(one["solved"] for one in tried)
    said = world.trinity("pocket", "temperatures", "pip", "--n", 1).out
    coolest = min(one["temperature"] for one in tried if one["solved"] == best)
    assert f"pip does best alone at {coolest:g}." in said


def test_commands_that_only_read_work_on_a_store_that_is_only_read(played: Sums, tmp_path: Path) -> None:
    with played.kept() as store:
        episode, run = store.episodes.page(limit=1).items[0].id, store.runs.list()[0].id
    before = Path(played.store).read_bytes()
    read_only = ("--store", f"{played.store}?mode=ro")
    for command in (
        ["doctor"],
        ["episodes"],
        ["episodes", "show", episode],
        ["checkpoints"],
        ["labels"],
        ["compare", "single:adder", "round-robin"],
        ["routing"],
        ["verifier"],
        ["export", run, "--out", tmp_path / "all.jsonl"],
    ):
        played.done(*command, *read_only)
    for command in (
        ["label", episode, "quality=good"],
        ["episodes", "delete", episode, "--yes"],
        ["prune", "--what", "runs", "--run", run, "--yes", "--vacuum"],
    ):
        assert "Nothing was stored: this store is read-only" in played.refused(*command, *read_only)
    assert Path(played.store).read_bytes() == before


def test_what_encoders_have_read_is_told_by_doctor_and_removed_by_prune(world: Sums) -> None:
    file = wiring.state_file(wiring.data_folder())
    assert world.trinity("doctor", "--json").json["readings"]["size_bytes"] == 0
    assert "Nothing that encoders have read" in world.trinity("prune", "--what", "readings").out
    file.keep({b"k" * 20: np.ones(4, np.float32)})
    assert world.trinity("doctor", "--json").json["readings"]["size_bytes"] > 4000
    assert "of at most 1.0 GB" in world.trinity("doctor").out
    assert "(of at most 1.0 GB)" in world.trinity("prune", "--what", "readings", "--dry-run").out
    assert "leave filters" in world.refused("prune", "--what", "readings", "--run", "r")
    assert not world.trinity("prune", "--what", "readings", "--dry-run", "--json").json["removed"]
    assert file.path.exists()
    assert world.trinity("prune", "--what", "readings", "--yes", "--json").json["removed"]
    assert not file.path.exists()


def test_a_password_in_the_address_is_shown_nowhere(world: Sums, monkeypatch: pytest.MonkeyPatch) -> None:
    for address in (
        "postgresql://me:pa@s3cret@h/db",
        "postgresql://me:s3cret@127.0.0.1:1/db?sslpassword=s3cret",
    ):
        monkeypatch.setenv("TRINITY_STORE", address)
        for command in (["doctor"], ["--verbose", "doctor"], ["episodes", "--store", address], ["worker"]):
            result = world.trinity(*command)
            assert (result.code, "s3cret" in result.err + result.out) == (1, False)


def test_a_port_in_use_is_one_sentence(world: Sums) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"Port {port} on 127.0.0.1 is in use" in world.refused("ui", "--port", port)
    check_port(port)  # free again


def test_terminal_controls_in_untrusted_text_are_shown_escaped() -> None:
    assert printable("a\x1b[2Jb\u202e\n") == "a\\x1b[2Jb\\u202e\\x0a"


@pytest.mark.process
def test_a_lease_knows_the_living_and_the_dead() -> None:
    assert not is_dead(owner())
    name, _, start = owner().partition("@")
    assert not is_dead(name), "of an older store"
    assert is_dead(f"{name}@{int(start) + 60_000}"), "a process that began at another time had this number"
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert is_dead(f"{socket.gethostname()}:{gone.pid}")
    assert is_dead(f"{socket.gethostname()}:{gone.pid}@{start}")
    assert not is_dead(f"elsewhere:{gone.pid}")
    assert not is_dead(None)


def test_where_lists_what_the_expression_says_and_points_at_a_mistake(played: Sums) -> None:
    listed = played.done("episodes", "--json", "--limit", "99").json["episodes"]
    asked = 'policy == "round-robin" and any(turn.role == "V")'
    found = played.done("episodes", "--json", "--limit", "99", "--where", asked).json["episodes"]
    chosen = [one for one in listed if "V" in one["strip"] and one["policy"] == "round-robin"]
    assert found == chosen
    assert 0 < len(chosen) < len(listed)
    refused = played.trinity("episodes", "--where", "turns > 1 and trns < 4")
    assert refused.code == 1
    sentence, line, caret = refused.err.splitlines()
    assert sentence == "trinity: Column 15 of the filter: there is no field “trns”: did you mean turns?"
    assert line[caret.index("^") :].startswith("trns")


def test_checkpoints_go_in_and_out_as_folders(world: Sums) -> None:
    made = checkpoint(("adder", "guesser"), seed=1)
    save_checkpoint(made, world.folder / "made")
    for _ in range(2):
        world.done("checkpoints", "import", world.folder / "made")
    listed = world.trinity("checkpoints", "--json").json
    found = {"system": "trinity", "id": made.id, "run": None, "generation": None, "kind": "head"}
    assert listed == [found]
    assert made.id in world.trinity("checkpoints").out
    world.done("checkpoints", "export", made.id, world.folder / "out")
    assert load_checkpoint(world.folder / "out") == made


def test_planners_are_listed_beside_coordinators_and_go_in_and_out_as_folders(world: Sums) -> None:
    planner = tiny_planner().frozen(models=("adder", "guesser"))
    for _ in range(2):
        folder = planner.save(world.folder / "planner")
        world.done("checkpoints", "import", folder)
    listed = world.trinity("checkpoints", "--json").json
    found = {"system": "conductor", "id": planner.card.id, "run": None, "generation": 0, "kind": "start"}
    assert listed == [found]
    assert "Planners (Conductor)" in world.trinity("checkpoints").out
    world.done("checkpoints", "export", planner.card.id, world.folder / "out")
    assert LanguagePlanner.load(world.folder / "out").card == planner.card
    played = world.run(
        "--policy", world.folder / "planner", "--policy", f"conductor:{planner.card.id}", "--json"
    )
    assert [one["policy"] for one in played.json] == [f"conductor:{planner.card.id}"], "both are one policy"
    assert world.run("--policy", "conductor:cabcdefghij").code == 1


def written(path: Path, *lines: object) -> Path:
    path.write_text("".join(f"{one if isinstance(one, str) else json.dumps(one)}\n" for one in lines))
    return path


def test_a_file_is_counted(world: Sums, tmp_path: Path) -> None:
    file = written(
        tmp_path / "own.jsonl",
        {"question": "What is 2 + 2?", "answer": "4", "grader": "math", "split": "test"},
        {"question": "Who?", "answer": "Eva", "grader": "exact", "split": "test"},
    )
    listed = world.trinity("tasks", "list", file, "--json").json
    assert [(one["split"], one["grader"], one["n"]) for one in listed] == [
        ("test", "exact", 1),
        ("test", "math", 1),
    ]


@pytest.mark.process
def test_labelled_answers_are_graded_and_differences_shown(world: Sums, tmp_path: Path) -> None:
    lines = [
        {"answer": "\\frac{1}{2}", "said": "0.5", "grader": "math", "right": True},
        {"answer": "\\frac{1}{2}", "said": "0.33", "grader": "math", "right": False},
        {"answer": "B", "said": "Venus", "grader": "choice", "right": True, "question": "Which? A) Mars B) Venus"},
    ]  # fmt: skip
    agrees = world.done("tasks", "check", written(tmp_path / "a.jsonl", *lines), "--json")
    assert agrees.json == {"n": 3, "agree": 3, "false_right": 0, "false_wrong": 0, "differs": []}
    lines += [
        {"answer": "42", "said": "42", "grader": "number", "right": False},
        {"answer": "42", "said": "43", "grader": "number", "right": True},
    ]
    file = written(tmp_path / "b.jsonl", *lines)
    differs = world.trinity("tasks", "check", file, "--json")
    assert differs.code == 1
    assert [differs.json[name] for name in ("n", "agree", "false_right", "false_wrong")] == [5, 3, 1, 1]
    assert [one["said"] for one in differs.json["differs"]] == ["42", "43"]
    told = world.trinity("tasks", "check", file).out
    assert "3 of 5 answers are graded as they are labelled; 1 wrong ones count as right" in told


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "Line 1 of c.jsonl is not valid JSON"),
        ({"answer": "1", "said": 1, "grader": "exact", "right": True}, 'needs texts for "answer", "said"'),
        ({"answer": "1", "said": "1", "grader": "exact"}, 'needs true or false for "right"'),
        (
            {"answer": "1", "said": "1", "grader": "open", "right": True},
            "has an unknown grader 'open': choose exact",
        ),
        ("", "is empty"),
    ],
)
def test_a_bad_line_is_one_sentence(world: Sums, tmp_path: Path, line: object, says: str) -> None:
    assert says in world.refused("tasks", "check", written(tmp_path / "c.jsonl", line))
