"""`trinity checkpoints`: coordinators and planners are listed, taken out as folders and brought in again."""

from __future__ import annotations

from core.checkpoint import load_checkpoint, save_checkpoint
from core.planner.planner import LanguagePlanner
from tests.builders.checkpoints import checkpoint
from tests.core.planner.tiny import tiny_planner
from tests.ui.sums import Sums


def test_checkpoints_go_in_and_out_as_folders(world: Sums) -> None:
    made = checkpoint(("adder", "guesser"), seed=1)
    save_checkpoint(made, world.folder / "made")
    for _ in range(2):
        assert world.trinity("checkpoints", "import", world.folder / "made").code == 0
    listed = world.trinity("checkpoints", "--json").json
    found = {"system": "trinity", "id": made.id, "run": None, "generation": None, "kind": "head"}
    assert listed == [found]
    assert made.id in world.trinity("checkpoints").out
    assert world.trinity("checkpoints", "export", made.id, world.folder / "out").code == 0
    assert load_checkpoint(world.folder / "out") == made


def test_planners_are_listed_beside_coordinators_and_go_in_and_out_as_folders(world: Sums) -> None:
    planner = tiny_planner().frozen(models=("adder", "guesser"))
    for _ in range(2):
        folder = planner.save(world.folder / "planner")
        assert world.trinity("checkpoints", "import", folder).code == 0
    listed = world.trinity("checkpoints", "--json").json
    found = {"system": "conductor", "id": planner.card.id, "run": None, "generation": 0, "kind": "start"}
    assert listed == [found]
    assert "Planners (Conductor)" in world.trinity("checkpoints").out
    assert world.trinity("checkpoints", "export", planner.card.id, world.folder / "out").code == 0
    assert LanguagePlanner.load(world.folder / "out").card == planner.card
    played = world.run(
        "--policy", world.folder / "planner", "--policy", f"conductor:{planner.card.id}", "--json"
    )
    assert [one["policy"] for one in played.json] == [f"conductor:{planner.card.id}"], "both are one policy"
    assert world.run("--policy", "conductor:cabcdefghij").code == 1
