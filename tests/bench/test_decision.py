"""The benchmark of decisions on a tiny shape: an evolution's share, and parts that fail without taking others along."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bench import decision
from tests.bench._accelerated import CANDIDATES, DECISIONS, EPISODES, GENERATIONS
from tests.bench._frame import Figures, apart
from tests.builders.encoder import TINY

SHAPE = json.dumps({**TINY, "vocab_size": 400})


def test_an_evolution_is_reckoned_from_whole_candidates(capsys: pytest.CaptureFixture[str]) -> None:
    share = 2 / (GENERATIONS * CANDIDATES)
    found = decision.measure(only="evolution", tokens=24, threads=1, shape=SHAPE, share=share)
    assert (found["candidates"], found["decisions"]) == (2, 2 * EPISODES * DECISIONS)
    assert found["of_decisions"] == 30_720 * 4
    assert found["share"] == pytest.approx(share)
    assert found["layer"] == 1
    parts = found["of_which_applying_s"], found["of_which_reading_s"]
    assert 0 < sum(parts) < found["seconds"]
    once = found["decomposing_s"] + found["settling_s"]
    assert found["whole_s"] == pytest.approx(once + found["seconds"] / share)
    assert "128 decisions in" in capsys.readouterr().err


@pytest.mark.process
def test_a_part_in_a_process_of_its_own_tells_how_it_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "part.py").write_text(
        "import sys, time\n"
        "print('half of it', file=sys.stderr, flush=True)\n"
        "time.sleep(60) if 'late' in sys.argv else None\n"
        "raise ValueError('no such device') if 'bad' in sys.argv else print('{\"seconds\": 2}')\n"
    )
    monkeypatch.chdir(tmp_path)
    assert apart("part", [], 60) == {"seconds": 2}
    assert apart("part", ["bad"], 60) == {"failed": "ValueError: no such device"}
    assert apart("part", ["late"], 1.0) == {"failed": "it took longer than 1 s"}
    assert capsys.readouterr().err.count("half of it") == 3


def test_on_an_accelerator_what_fails_is_told_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logits = [[float(n) for n in range(10)]]
    ours = {"total_s": 1.0, "last_s": 0.2, "limit_s": 0.5, "cpu_s": [0.8, 0.2], "logits": logits}
    answers: dict[str, Figures] = {
        "ours": ours,
        "deep": {"p50_ms": 7.0},
        "batches": {"failed": "CUDA error"},
        "evolution": {"whole_s": 400.0},
        "naive": {**ours, "total_s": 3.0},
        "automodel": {"failed": "it took longer than 90 s"},
    }
    asked = []

    def answer(module: str, options: list[str], limit_s: float) -> Figures:
        told = dict(zip(options[::2], options[1::2], strict=True))
        asked.append((told["--only"], told["--device"], told["--dtype"], limit_s))
        return dict(answers[told["--only"]])

    monkeypatch.setattr(decision, "apart", answer)
    found: dict[str, Any] = decision.measure(device="cuda", conversations=0, limit=90)
    assert [one[:3] for one in asked] == [
        ("ours", "cuda", "bfloat16"),
        ("deep", "cuda", "bfloat16"),
        ("batches", "cuda", "bfloat16"),
        ("evolution", "cuda", "bfloat16"),
        ("ours", "cpu", "float32"),
        ("naive", "cuda", "bfloat16"),
        ("automodel", "cuda", "bfloat16"),
    ]
    assert found["ratios"] == {
        "total_vs_naive": 3.0,
        "last_vs_naive": 1.0,
        "total_cpu_vs_naive": 1.0,
        "limit": 2.0,
    }
    assert found["batches"] == {"failed": "CUDA error"}
    assert found["logits_against"]["cpu_float32"]["same_choices"] == 2
    assert [*found["wanted"].values()] == ["reached", "NOT reached"]
    assert 'batches: {"failed": "CUDA error"}' in capsys.readouterr().err


def test_on_the_cpu_a_part_that_fails_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision, "apart", lambda *_: {"failed": "no memory"})
    with pytest.raises(ValueError, match="ours: no memory"):
        decision.measure(times=1)
