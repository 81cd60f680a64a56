"""The settings of every learner that were tried on validation tasks before its defaults were fixed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Grid:
    """The settings of a learner that were tried on validation tasks before its defaults were fixed: `tried` maps the
    name of an evolved row to fields of its configuration."""

    learner: str
    setting: str
    tried: Mapping[str, Mapping[str, Any]]


def _grid(
    learner: str, setting: str, name: str, values: Sequence[float], fixed: Mapping[str, Any], stem: str = ""
) -> Grid:
    """A grid over the field `name` of the configuration, which is `fixed` otherwise; `stem` opens its rows' names."""
    return Grid(learner, setting, {f"{stem}{name}={value:g}": {**fixed, name: value} for value in values})


#: How the names of rows begin whose learner is taught by labels first.
LABELS_FIRST_STEM = "labels-first "
#: The size of the generations in the grids that came before the one over populations.
_WIDE = {"population": 192}

#: Every learner's own settings; the later grid of a learner begins where its earlier one ended.
GRIDS = (
    _grid("sep-CMA-ES", "spread", "logit_spread", (1.5, 3.0, 6.0, 12.0), _WIDE),
    _grid("sep-CMA-ES", "candidates", "population", (48, 96), {"logit_spread": 6.0}),
    _grid(
        "labels, then sep-CMA-ES",
        "spread",
        "logit_spread",
        (0.5, 1.5, 3.0, 6.0),
        _WIDE,
        stem=LABELS_FIRST_STEM,
    ),
    _grid(
        "REINFORCE",
        "learning rate",
        "learning_rate",
        (1e-3, 3e-3, 1e-2, 3e-2, 1e-1),
        {"learner": "reinforce", "tasks_per_candidate": 512},
    ),
    _grid(
        "REINFORCE",
        "batch",
        "tasks_per_candidate",
        (64, 128, 256),
        {"learner": "reinforce", "learning_rate": 1e-2},
    ),
    _grid(
        "random search",
        "box",
        "box",
        (0.3, 1.0, 3.0, 10.0, 30.0),
        {"learner": "random-search"},
    ),
)

#: Of each learner that asks every model about a question: its recipe, its name, its setting, and the values tried.
LABEL_GRIDS: tuple[tuple[str, str, str, tuple[float, ...]], ...] = (
    ("router", "router", "ridge", (0.01, 0.1, 1, 10, 100, 1000)),
    ("labels", "router of labels", "C", (0.001, 0.01, 0.1, 1, 10)),
    ("cloned", "cloned labels", "ridge", (1e-4, 1e-3, 1e-2, 1e-1)),
)
