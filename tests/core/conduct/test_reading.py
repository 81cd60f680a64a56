"""Plans as planners write them, read or refused for one reason, and workflows that are read as they were written."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.conduct.planners import has_plan, legal_workflow, makes_sense, random_workflow
from core.conduct.reading import read_workflow, write_workflow
from core.workflow import AccessMode, PlanFault, Topology, Workflow

CORPUS = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "plans.jsonl").read_text("ascii").splitlines()
]


#: Read at its full length of 5 MB. What takes more than proportionally longer shows at a fiftieth of it too.
WHOLE = "ok-huge-prose-before"


def reply_of(one: dict[str, Any]) -> str:
    if "reply" in one:
        return str(one["reply"])
    before, unit, count, after = one["repeat"]
    if len(unit) * count > 1_000_000 and one["id"] != WHOLE:
        count //= 50
    return f"{before}{unit * count}{after}"


def test_the_corpus_is_read_as_it_is_labelled() -> None:
    """A reply of 5 MB among them; no exception, and nothing is run."""
    wrong: list[tuple[str, object]] = []
    for one in CORPUS:
        read = read_workflow(reply_of(one), allowed=range(one["models"]), mode=AccessMode(one["mode"]))
        if isinstance(read, Workflow):
            lists = {
                "models": [*read.models],
                "subtasks": [*read.subtasks],
                "reads": [[*seen] for seen in read.reads],
            }
            if lists != one.get("workflow"):
                wrong.append((one["id"], lists))
        elif read != one.get("fault"):
            wrong.append((one["id"], read))
    assert not wrong
    assert len(CORPUS) > 300
    assert {one.get("fault") for one in CORPUS} == {None, *PlanFault}


@st.composite
def workflows(draw: st.DrawFn, mode: AccessMode) -> Workflow:
    """Workflows that a mode can write."""
    n = draw(st.integers(1, 5))
    models = tuple(draw(st.integers(0, 6)) for _ in range(n))
    texts = tuple(
        draw(
            st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=40).filter(str.strip)
        ).strip()
        for _ in range(n)
    )
    reads: list[tuple[int, ...]] = []
    for step in range(n):
        earlier = range(step)
        match mode:
            case AccessMode.BINARY:
                seen: set[int] = set(earlier) if draw(st.booleans()) else set()
            case AccessMode.CHOOSE_ID:
                chosen = draw(st.sets(st.sampled_from(models[:step]))) if step else set()
                seen = {place for place in earlier if models[place] in chosen}
            case _:
                seen = draw(st.sets(st.sampled_from(list(earlier)))) if step else set()
        reads.append(tuple(sorted(seen)))
    if mode is AccessMode.CHOOSE_POSITION:
        reads[-1] = tuple(range(n - 1))  # no dead step
    return Workflow(models, texts, tuple(reads), mode)


@pytest.mark.parametrize("mode", list(AccessMode))
@given(data=st.data())
@settings(deadline=None)
def test_what_is_written_is_read_again(mode: AccessMode, data: st.DataObject) -> None:
    workflow = data.draw(workflows(mode))
    assume_plain = all("`" not in text and "<think>" not in text for text in workflow.subtasks)
    read = read_workflow(write_workflow(workflow), allowed=range(7), mode=mode)
    if assume_plain:
        assert isinstance(read, Workflow)
        assert (read.models, read.reads) == (workflow.models, workflow.reads)


@given(st.text(max_size=400), st.sampled_from(list(AccessMode)))
@settings(deadline=None)
def test_any_text_is_a_workflow_or_one_reason(text: str, mode: AccessMode) -> None:
    read = read_workflow(
        f"model_id = [0]{text}subtasks = ['x{text}']\naccess_list: [[]]{text}", allowed=(0,), mode=mode
    )
    assert isinstance(read, Workflow | PlanFault)


def test_models_that_may_not_be_named_are_unknown() -> None:
    text = 'model_id = [1]\nsubtasks = ["x"]\naccess_list = [[]]'
    assert read_workflow(text, allowed=(0, 2)) is PlanFault.UNKNOWN_MODEL
    assert isinstance(read_workflow(text, allowed=(1,)), Workflow)


@pytest.mark.parametrize(
    ("reads", "topology", "depth", "width"),
    [
        ([()], "single", 1, 1), ([(), (0,), (1,)], "chain", 3, 1), ([(), (0,), (0, 1)], "chain", 3, 1),
        ([(), (), ()], "parallel", 1, 3), ([(), (), (0, 1)], "join", 2, 2), ([(), (0,), (0,)], "tree", 2, 2),
        ([(), (0,), (0,), (1, 2)], "other", 3, 2), ([(), (), (0,)], "other", 2, 2),
    ],
)  # fmt: skip
def test_shapes(reads: list[tuple[int, ...]], topology: str, depth: int, width: int) -> None:
    one = Workflow((0,) * len(reads), ("x",) * len(reads), tuple(reads))
    assert (one.topology, one.depth, one.width) == (Topology(topology), depth, width)


@pytest.mark.parametrize("drawn", [legal_workflow, random_workflow])
def test_random_workflows_are_legal_and_name_only_allowed_models(
    drawn: Callable[[str, tuple[int, ...]], Workflow],
) -> None:
    for number in range(200):
        workflow = drawn(f"key/{number}", (1, 4))
        read = read_workflow(write_workflow(workflow), allowed=(1, 4), mode=AccessMode.CHOOSE_POSITION)
        assert read == workflow
    assert random_workflow("a", (0,)) == random_workflow("a", (0,))


def test_random_workflows_make_sense_and_are_of_every_length_alike() -> None:
    drawn = [random_workflow(f"key/{number}", (0, 1)) for number in range(1_000)]
    assert all(makes_sense(one) for one in drawn)
    assert all(160 < count < 240 for count in Counter(map(len, drawn)).values())
    longer = [has_plan(one) for one in drawn if len(one) > 1]
    assert 0.45 < sum(longer) / len(longer) < 0.55, "a plan is as likely as none"
    assert {len(random_workflow(f"key/{number}", (0, 1), most_steps=2)) for number in range(50)} == {1, 2}


@pytest.mark.parametrize(
    ("subtasks", "reads", "sensible"),
    [
        (["plan"], [()], False),  # nobody answers
        (["check"], [()], False),  # nothing to check
        (["plan", "solve"], [(), (0,)], True),
        (["plan", "solve"], [(), ()], False),  # nobody uses the plan
        (["plan", "solve", "check"], [(), (), (0, 1)], False),  # who checks uses no plan
        (["solve", "merge"], [(), (0,)], False),  # one answer is nothing to merge
        (["solve", "solve", "merge"], [(), (), (0, 1)], True),
        (["plan", "solve", "check"], [(), (0,), (0, 1)], True),
        (["solve", "plan"], [(), (0,)], False),
    ],
)
def test_what_makes_sense(subtasks: list[str], reads: list[tuple[int, ...]], sensible: bool) -> None:
    assert makes_sense(Workflow((0,) * len(reads), tuple(subtasks), tuple(reads))) is sensible


def test_a_workflow_that_cannot_be_run_is_none() -> None:
    for models, reads in (((), ()), ((0, 1), ((), (1,))), ((0,) * 6, ((),) * 6)):
        with pytest.raises(ValueError, match="A (step of a )?workflow"):
            Workflow(models, ("x",) * len(models), reads)


@pytest.mark.parametrize("text", ["</think>", "<think>", "say <think> no more</think>"])
def test_a_subtask_that_holds_a_mark_of_thinking_is_read_again(text: str) -> None:
    written = Workflow((0,), (text,), ((),))
    assert read_workflow(write_workflow(written), allowed=(0,), mode=AccessMode.CHOOSE_POSITION) == written
