"""The paper's own setting of an evolution, and where the defaults are not it (no numpy)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: What differs, in a sentence each. `trinity evolve --preset paper` leaves out all but the last two.
DEPARTURES = (
    "The optimiser is our own, with pycma's learning rates; the paper's is pycma itself, which adapts the step size "
    "by comparing two points.",
    "Candidates come in mirrored pairs.",
    "The first step size follows from the encoder's hidden states, so that logits spread by 6; the paper's is 0.03.",
    "The search leaves out preferences that are the same for every transcript.",
    "96 candidates play 8 tasks each in a generation; the paper's 32 play 16.",
    "All candidates of a generation play the same tasks, evenly from every family; the paper draws each candidate's "
    "own, with replacement.",
    "Chances and replies are common to all candidates and are used again for ten generations; the paper draws and asks "
    "every time.",
    "An evolution plays 92,160 episodes where it is not told otherwise; the paper's 60 generations play 30,720.",
    "Candidates whose fitness is equal share their weight, and a generation in which no episode ended changes nothing.",
    "The mean is validated every 10 generations on 200 tasks; the paper's every 5 on 300.",
    "Singular values stay as they are unless --svf is given; the paper evolves them too.",
)

#: The paper's own setting, as fields of an `EvolveConfig`; 32 candidates, 16 tasks and fresh replies go with pycma.
PAPER_SETTING: Mapping[str, Any] = {
    "learner": "pycma",
    "step_size": 0.03,
    "svf_step_size": 0.03,
    "constant_spread": None,
    "common": False,
    "mirrored": False,
}
