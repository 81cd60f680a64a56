"""The warm-up teaches the form alone: random legal workflows, the same every time."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import islice

import pytest
import torch

from core.conduct.reading import read_workflow
from core.episode import WritePlan
from core.planner import warmup
from core.planner.planner import LanguagePlanner
from core.planner.rollouts import random_subset
from core.planner.warmup import WarmUp, examples, new_planner, warm_up
from core.pocket import TRAINED_FAMILIES
from core.pocket.tasks import draw_tasks
from core.pocket.training import train_tokenizer
from core.workflow import AccessMode, Workflow

SETTINGS = WarmUp(("ann", "bob", "cid", "dan"), width=32, layers=1, steps=16, batch=8)


def test_examples_are_random_workflows_and_half_of_them_of_some_models() -> None:
    partial, first, words = 0, Counter[int](), Counter[str]()
    for request, reply in islice(examples(SETTINGS), 600):
        read = read_workflow(reply, allowed=request.allowed, mode=AccessMode.CHOOSE_POSITION)
        assert isinstance(read, Workflow)
        partial += len(request.allowed) < 4
        first[read.models[0]] += 1
        words.update(read.subtasks)
    assert 240 < partial < 360
    assert all(100 < count < 200 for count in first.values())
    assert set(words) == {"plan", "solve", "check", "merge"}


@pytest.fixture
def few_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmup, "train_tokenizer", lambda texts: train_tokenizer(islice(texts, 1_000)))


@pytest.mark.integration
@pytest.mark.usefixtures("few_texts")
def test_a_short_warm_up_is_the_same_every_time_and_learns() -> None:
    found, begun = [], []
    for _ in range(2):
        planner = new_planner(SETTINGS)
        begun.append(planner.id)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        reports = list(warm_up(planner, SETTINGS, report_every=8))
        torch.set_num_threads(threads)
        found.append((planner.frozen(kind="warm-up"), [report.loss for report in reports]))
    (one, losses), (other, again) = found
    assert losses == again
    assert losses[-1] < losses[0]
    assert one.id == other.id
    assert one.card.kind == "warm-up"
    assert begun[0] == begun[1] != new_planner(replace(SETTINGS, seed=1)).id


@pytest.mark.integration
@pytest.mark.usefixtures("few_texts")
def test_after_it_a_plan_begins_from_hidden_states_that_tell_questions_apart() -> None:
    """Else what is best on average is learned long before what is best for one kind of question."""
    settings = replace(SETTINGS, width=64, layers=2, steps=60, batch=4, peak_rate=2.5e-2)
    start, told_apart = new_planner(settings), {}
    for weight in (0.0, 1.0):
        planner = start.frozen()
        for _ in warm_up(planner, replace(settings, recall_weight=weight)):
            pass
        told_apart[weight] = _share_between(planner)
    assert told_apart[1.0] > 1.5 * told_apart[0.0]


def _share_between(planner: LanguagePlanner) -> float:
    """How far apart the families' mean hidden states are where a reply begins, over the length of the overall mean."""
    means = []
    for family in TRAINED_FAMILIES:
        requests = [
            WritePlan((), one.question, (0, 1, 2, 3), "") for one in draw_tasks(family, "evolve", 12, 0)
        ]
        with torch.no_grad():
            states = [
                planner.model.model(torch.tensor([planner.prompt_ids(request)])).last_hidden_state[0, -1]
                for request in requests
            ]
        means.append(torch.stack(states).mean(0))
    overall = torch.stack(means).mean(0)
    return float((torch.stack(means) - overall).norm(dim=1).mean() / overall.norm())


def test_subsets_leave_out_one_model_or_more() -> None:
    drawn = [random_subset(str(number), 7) for number in range(300)]
    assert {len(one) for one in drawn} == {2, 3, 4, 5, 6}
    assert {slot for one in drawn for slot in one} == set(range(7))
    assert all(list(one) == sorted(set(one)) for one in drawn)
    assert random_subset("key", 2) == (0, 1)
    assert random_subset("key", 1) == (0,)
