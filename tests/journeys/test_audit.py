"""An audit of the sample runs: hidden states, logits and grades computed again without the program's own code.

Only the file is read. Transcripts are written out and encoded with plain transformers, logits are the product of a
stored state and the checkpoint's weights, and answers are compared with those of a solver that knows a question's text
alone: it shares no code and no tables with the program, so that both being wrong alike would be a coincidence.
"""

from __future__ import annotations

import base64
import calendar
import gzip
import json
import re
from collections.abc import Callable, Iterator
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load
from transformers import AutoModel, AutoTokenizer

from core.pocket import FAMILIES, WEIGHTS
from core.pocket.tasks import UNSEEN, draw_tasks
from ui.runs.wiring import SAMPLE_RUNS

#: Turns that are encoded again, evenly over all runs.
TURNS = 290


@pytest.fixture(scope="module")
def lines() -> dict[str, list[dict[str, Any]]]:
    """The sample runs' lines by kind."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(SAMPLE_RUNS.glob("*.jsonl.gz")):
        with gzip.open(path, "rt") as file:
            for line in file:
                one = json.loads(line)
                found.setdefault(one["kind"], []).append(one)
    return found


def episodes(lines: dict[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    return [one["episode"] for one in lines["episode"]]


def decided(lines: dict[str, list[dict[str, Any]]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """(episode, turn) of every turn that a checkpoint decided."""
    for episode in episodes(lines):
        for turn in episode["turns"]:
            if turn["decision"].get("hidden_state"):
                yield episode, turn


def unpacked(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def state_of(turn: dict[str, Any]) -> np.ndarray[Any, Any]:
    return np.frombuffer(unpacked(turn["decision"]["hidden_state"]), "<f2").astype(np.float32)


def test_states_are_those_of_plain_transformers_at_the_penultimate_token(
    lines: dict[str, list[dict[str, Any]]],
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(WEIGHTS / "encoder")
    model = AutoModel.from_pretrained(WEIGHTS / "encoder", dtype=torch.float32).eval()
    every = list(decided(lines))
    some = every[:: max(1, len(every) // TURNS)][:TURNS]
    assert len(some) == TURNS
    worst = 0.0
    for episode, turn in some:
        text = f"<|im_start|>user\n{episode['task']['question']}<|im_end|>\n"
        for before in episode["turns"][: turn["index"]]:
            choice = before["decision"]
            text += f"<|im_start|>{choice['role']} {choice['model']}\n{before['reply']['text']}<|im_end|>\n"
        text += "<|im_start|>assistant\n<think>\n\n</think>\n\n"
        ids = tokenizer(text, return_tensors="pt", add_special_tokens=False).input_ids
        with torch.inference_mode():
            hidden = model(input_ids=ids).last_hidden_state[0, -2].numpy()
        assert turn["decision"]["prompt_tokens"] == ids.shape[1]
        worst = max(worst, float(np.abs(hidden - state_of(turn)).max() / np.abs(hidden).max()))
    assert worst < 2e-3  # states are kept as float16


def test_logits_are_the_stored_states_times_the_checkpoints_weights(
    lines: dict[str, list[dict[str, Any]]],
) -> None:
    heads = {
        one["id"]: load(unpacked(one["weights"]))["head.weight"]
        for one in lines["checkpoint"]
        if one["config"]["format"] == "trinity-checkpoint"
    }
    worst, n = 0.0, 0
    for episode, turn in decided(lines):
        logits = np.array(turn["decision"]["model_logits"] + turn["decision"]["role_logits"])
        again = heads[episode["policy"]].astype(float) @ state_of(turn).astype(float)
        worst, n = max(worst, float(np.abs(again - logits).max() / max(1.0, np.abs(logits).max()))), n + 1
    assert n >= TURNS
    assert worst < 5e-3


def test_answers_are_graded_as_an_independent_solver_grades_them(
    lines: dict[str, list[dict[str, Any]]],
) -> None:
    finished = [one for one in episodes(lines) if one["status"] == "finished"]
    assert len(finished) >= 500
    for one in finished:
        task, answer = one["task"], one["answer"] or ""
        truth = solve(task["family"], task["question"])
        numeric = task["grader"] in ("number", "code")
        right = bool(re.fullmatch(rf"\s*{truth}\s*", answer)) if numeric else answer.strip() == truth
        assert right == one["correct"], (task["question"], answer, truth)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_worlds_answers_are_those_of_an_independent_solver(family: str) -> None:
    for split in ("train", "evolve", "validation", UNSEEN):
        for task in draw_tasks(family, split, 60, 11, at_most=True):
            assert solve(family, task.question) == task.answer, task.question


#: Words of a text.
_words = str.split
SYMBOLS = _words(
    "H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr "
    "Rb Sr Y Zr Nb Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba"
)
ELEMENTS = _words(
    "hydrogen helium lithium beryllium boron carbon nitrogen oxygen fluorine neon sodium magnesium aluminium silicon "
    "phosphorus sulfur chlorine argon potassium calcium scandium titanium vanadium chromium manganese iron cobalt "
    "nickel copper zinc gallium germanium arsenic selenium bromine krypton rubidium strontium yttrium zirconium "
    "niobium molybdenum technetium ruthenium rhodium palladium silver cadmium indium tin antimony tellurium iodine "
    "xenon caesium barium"
)
WORLD = {
    "Europe": "France Paris, Spain Madrid, Italy Rome, Norway Oslo, Greece Athens, Poland Warsaw, Sweden Stockholm, "
    "Austria Vienna, Hungary Budapest, Portugal Lisbon, Ireland Dublin, Finland Helsinki, Belgium Brussels, "
    "Romania Bucharest",
    "Asia": "Japan Tokyo, China Beijing, India Delhi, Iran Tehran, Nepal Kathmandu, Vietnam Hanoi, Thailand Bangkok, "
    "Iraq Baghdad, Mongolia Ulaanbaatar, Jordan Amman, Turkey Ankara, Syria Damascus, Laos Vientiane",
    "Africa": "Egypt Cairo, Kenya Nairobi, Ghana Accra, Angola Luanda, Morocco Rabat, Senegal Dakar, Uganda Kampala, "
    "Libya Tripoli, Nigeria Abuja, Zambia Lusaka, Tunisia Tunis",
    "America": "Peru Lima, Cuba Havana, Chile Santiago, Canada Ottawa, Ecuador Quito, Colombia Bogota, "
    "Uruguay Montevideo, Bolivia Sucre, Jamaica Kingston, Panama Panama City",
}
CONTINENT = {
    place: continent
    for continent, rows in WORLD.items()
    for row in rows.split(", ")
    for place in row.split(" ", 1)
}
DAYS, MONTHS = list(calendar.day_name), list(calendar.month_name)[1:]
FACTOR = {
    ("hours", "minutes"): 60,
    ("weeks", "days"): 7,
    ("feet", "inches"): 12,
    ("days", "hours"): 24,
    ("dozens", "eggs"): 12,
}
PLACES = {"": 0, "second": 1, "third": 2, "fourth": 3, "fifth": 4}
#: The comparative and superlative that put somebody first, and the comparative that puts somebody last.
SCALES = {
    "taller": ("tallest", "shorter"),
    "older": ("oldest", "younger"),
    "faster": ("fastest", "slower"),
    "richer": ("richest", "poorer"),
    "stronger": ("strongest", "weaker"),
}


def solve(family: str, question: str) -> str:
    """The answer to a question of a family."""
    return str(SOLVERS[family](question))


def _numbers(text: str) -> list[int]:
    return [int(found) for found in re.findall(r"\d+", text)]


def _math(question: str) -> int:
    n = _numbers(question)
    if "more than" in question:  # two people
        return n[0] + n[0] + n[1]
    if "fills" in question:
        total = n[0] * n[1]
        if "left over" in question:
            return total + n[2]
        if "gave" in question:
            return total - n[2]
        return total + n[2] - n[3]
    if "sells" in question:
        return n[0] * n[1] - n[2]
    if "buys" in question:
        return n[0] + n[1] - n[2]
    return n[0] - n[1] + n[2]


def _logic(question: str) -> str:
    more = next(word for word in SCALES if word in question or SCALES[word][1] in question)
    most, less = SCALES[more]
    pairs = [(a, b) for a, b in re.findall(rf"(\w+) is {more} than (\w+)\.", question)]
    pairs += [(b, a) for a, b in re.findall(rf"(\w+) is {less} than (\w+)\.", question)]
    people = sorted({name for pair in pairs for name in pair})
    (order,) = (
        row
        for row in permutations(people)
        if all(row.index(first) < row.index(second) for first, second in pairs)
    )
    row: list[str] = list(order)
    if found := re.search(r"(\w+) leaves|Not counting (\w+)", question):
        row.remove(found[1] or found[2])
    if found := re.search(r"(\w+) and (\w+) change places|If (\w+) took the place of (\w+)", question):
        one, two = (name for name in found.groups() if name)
        row = [{one: two, two: one}.get(name, name) for name in row]
    if f"the {most} last" in question:
        row.reverse()
    if found := re.search(r"at place (\d)", question):
        return row[int(found[1]) - 1]
    found = re.search(rf"[Ww]ho (?:is|would be) the ((?:second|third|fourth|fifth)?) ?{most}", question)
    assert found is not None
    return row[PLACES[found[1]]]


def _knowledge(question: str) -> str:
    stem, listed = question.rstrip("?").split(": ")
    options = re.split(r", | or ", listed)
    if found := re.search(r"(\d+) places (after|before) (\w+)", stem):
        table = SYMBOLS if "symbol" in stem else ELEMENTS
        step = int(found[1]) if found[2] == "after" else -int(found[1])
        return table[table.index(found[3]) + step]
    if "By how much" in stem:
        found = re.search(r"number of (\w+) higher than that of (\w+)", stem)
        assert found is not None
        return str(ELEMENTS.index(found[1]) - ELEMENTS.index(found[2]))
    if "largest number" in stem:
        return max(options, key=ELEMENTS.index)
    here = stem.split("same continent as ")[1]
    (right,) = (one for one in options if CONTINENT[one] == CONTINENT[here])
    return right


def _code(question: str) -> int:
    before, expression = question.split("What does this give? ")
    names: dict[str, object] = {}
    exec(before.strip().rstrip("."), {}, names)  # a question of the sample runs
    return int(eval(expression, {**names}))


def _dates(question: str) -> str:
    names = MONTHS if question.startswith("Which month") else DAYS
    found = next(name for name in names if re.search(rf"\b{name}\b", question))
    count = _numbers(question)[-1]
    step = -count if " before " in question else count
    return names[(names.index(found) + step) % len(names)]


def _units(question: str) -> int:
    count, extra = _numbers(question)
    big, small = next(
        pair for pair in FACTOR if re.search(rf"\d+ {pair[0]}\b", question) and pair[1] in question
    )
    total = count * FACTOR[big, small]
    return total - extra if "are over" in question or "By how many" in question else total + extra


def _sequences(question: str) -> int:
    n = _numbers(question)
    if "twice" in question:
        return 2 * n[-1]
    steps = [b - a for a, b in zip(n, n[1:], strict=False)]
    return n[-1] + steps[-1] + (steps[-1] - steps[-2])


def _sets(question: str) -> int:
    left, right = (set(_numbers(one)) for one in re.findall(r"\{([^}]*)\}", question))
    if "not in" in question:
        return len(left - right)
    if " or " in question:
        return len(left | right)
    if "biggest" in question or "smallest" in question:
        return (max if "biggest" in question else min)(left & right)
    return len(left & right)


SOLVERS: dict[str, Callable[[str], object]] = {
    "math": _math,
    "logic": _logic,
    "knowledge": _knowledge,
    "code": _code,
    "dates": _dates,
    "units": _units,
    "sequences": _sequences,
    "sets": _sets,
}
