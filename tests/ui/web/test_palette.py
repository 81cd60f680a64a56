"""The palette: from every page one key leads to any page, checkpoint, run or episode."""

from __future__ import annotations

from ui.web.pickers.palette import Place, called

PLACES: dict[str, Place] = {
    "page policy": ("Policy diff", "policy", {}),
    "run r2": ("Run r2: batch run, verified", "episodes", {"run": "r2"}),
    "page verifier": ("Verifier & cost", "verifier", {}),
    "checkpoint c1": ("Checkpoint gen 4 (c1)", "episodes", {"policy": "c1"}),
    "checkpoint c2": ("Checkpoint gen 40 (c2)", "episodes", {"policy": "c2"}),
    "run r1": ("Run r1: evolution, gen 4 and on", "evolution", {"run": "r1"}),
    "episode e1": ("Episode e1: Which gen 40 policy is best? · right", "replay", {"ep": "e1"}),
}


def test_what_was_typed_names_places_by_whole_words() -> None:
    def keys(typed: str) -> list[str]:
        return [key for key, place in PLACES.items() if place in called(typed, PLACES)]

    assert keys("policy DIFF") == ["page policy"]
    assert keys("gen 40") == ["checkpoint c2"], "an episode's question is no name"
    assert keys("e1") == ["episode e1"]
    assert keys("nothing (of [this") == []
    assert keys("enera") == [], "a word's middle is no beginning"
    assert keys(" ") == keys("") == []


def test_enter_takes_the_first_which_is_a_page_where_one_begins_so() -> None:
    def first(typed: str) -> list[str]:
        return [place[0] for place in called(typed, PLACES)]

    assert first("gen 4") == [
        "Checkpoint gen 4 (c1)",
        "Run r1: evolution, gen 4 and on",
        "Checkpoint gen 40 (c2)",
    ]
    assert first("pol") == first("DIF") == ["Policy diff"]
    assert first("verif") == ["Verifier & cost", "Run r2: batch run, verified"]
    assert first("r2")[0] == "Run r2: batch run, verified"
