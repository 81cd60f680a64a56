"""A mistake on the command line is one sentence, exit code 1, and leaves nothing."""

from __future__ import annotations

import shlex

import pytest

from tests.ui.sums import Sums

TEST = "--tasks sums.jsonl --split test"
EVOLVE = "evolve --tasks sums.jsonl --generations 3 --population 4 --replicates 4 --turns 2"
#: What is typed -> what is said of it.
MISTAKES = {
    f"run {TEST}": "Name at least one policy",
    f"run {TEST} --policy cabc": "There is no policy or checkpoint 'cabc'",
    f"run {TEST} --policy {'x' * 300}": "There is no policy or checkpoint 'xxx",
    f"run {TEST} --policy single:nobody": "There is no model 'nobody' in the pool",
    "run --policy random --tasks chess": "There is no task set 'chess'",
    "run --policy random --tasks none.jsonl": "There is no task file",
    f"run {TEST} --policy random --pool none.toml": "There is no pool file",
    f"run {TEST} --policy random --pool keyed.toml": "NO_KEY",
    f"run {TEST} --policy random --store mysql://x": "trinity: ",
    f"run {TEST} --resume r0 --policy random": "leave --policy, --split, --tasks out",
    f"run {TEST} --resume r0 --n 500 --turns 2": "leave --n, --split, --tasks, --turns out",
    "run --resume r0": "The store holds no run r0",
    "run --resume r0 --pilot": "--resume keeps the settings of the run",
    f"{EVOLVE} --head convex": "head cannot be 'convex': give 'linear', 'low-rank'",
    f"{EVOLVE} --svf 9": "layers 0 to 2; SVF cannot use [9]",
    f"{EVOLVE} --svf last": "give layers, such as 1 or 26,27",
    f"{EVOLVE} --population 5": "an even number for mirrored pairs",
    f"{EVOLVE} --population many": "population cannot be 'many': give a whole number or 'auto'",
    f"{EVOLVE} --population {'9' * 5000}": "population cannot be '9999",
    f"{EVOLVE} --record some": "record cannot be 'some': give 'none', 'share' or 'all'",
    f"{EVOLVE} --preset best": "There is no preset 'best': choose default or paper",
    f"{EVOLVE} --resume": "--resume needs --name",
    f"{EVOLVE} --resume --pilot": "leave it out with --resume",
    "evolve --resume --name mine": "no evolution named 'mine'",
    "evolve --tasks only.jsonl": "has no task in split 'evolve'",
    f"{EVOLVE} --config none.toml": "cannot be read",
    "episodes --after zzz": "--after needs the value",
    "episodes --after ''": "--after needs the value",
    "episodes --after W05hTiwgImUiXQ": "--after needs the value",  # it says NaN
    "episodes --flag wrnog": "--flag cannot be 'wrnog': choose one of ",
    "episodes --order wrnog": "--order cannot be 'wrnog': choose one of ",
    "episodes delete --yes": "Name episodes to delete",
    "checkpoints export c0 folder": "c0",
    "import foreign.jsonl": "not the header of a trinity-jsonl file",
    "tasks list foreign.jsonl": "Line 1 of foreign.jsonl",
    "pocket cards nobody": "There is no pocket model 'nobody'",
    "pocket temperatures nobody": "There is no pocket model 'nobody'",
    "pocket train nobody": "There is no pocket model 'nobody'",
}
#: The same for files of settings: a line -> what is said of it.
WRONG_SETTINGS = {
    'rates = "fast"': "rates cannot be 'fast': give 'pycma' or 'cmaes'",
    'common = "twice"': "common cannot be 'twice': give true or false",
    'constant_spread = "much"': "constant_spread cannot be 'much'",
    "logit_spread = -1": "logit_spread cannot be -1: give a number above 0",
    "logit_spred = 3": "has an unknown key 'logit_spred': did you mean logit_spread?",
    "zzz = 3": "has an unknown key 'zzz': trinity evolve --write-config FILE writes them all.",
    "logit_spread =": "is not valid TOML",
    **{
        f"{key} = {value}": f"{key} cannot be"
        for key in ("step_size", "logit_spread", "turn_cost")
        for value in ("inf", "nan")
    },
}


def test_a_mistake_is_one_sentence_and_leaves_nothing(
    evolving: Sums, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, folder = evolving, evolving.folder
    monkeypatch.chdir(folder)
    keyed = (folder / "pool.toml").read_text().replace("name =", "api_key_env = 'NO_KEY'\nname =")
    (folder / "keyed.toml").write_text(keyed)
    (folder / "foreign.jsonl").write_text('{"question": "?"}\n')
    only = '{"question": "1 + 1?", "answer": "2", "grader": "number", "split": "test"}\n'
    (folder / "only.jsonl").write_text(only)
    typed = list(MISTAKES.items())
    for number, (line, sentence) in enumerate(WRONG_SETTINGS.items()):
        (folder / f"{number}.toml").write_text(f"{line}\n")
        typed.append((f"{EVOLVE} --config {number}.toml", sentence))
    missed = {}
    for command, sentence in typed:
        said = world.trinity(*shlex.split(command))
        one = (said.code, said.err.count("\n"), said.err.startswith("trinity: "), len(said.err) < 1000)
        if one != (1, 1, True, True) or sentence not in said.err:
            missed[command] = said
    assert missed == {}
    assert not (folder / "folder").exists()
    assert world.server.requests == []
    with world.kept() as store:
        assert store.runs.list() == []
