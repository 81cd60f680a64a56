"""What the paper published (arXiv 2512.04695), as plain numbers, to compare with what is measured here.

Accuracies in percent; benchmarks are LiveCodeBench, MATH500, MMLU and RLPR, on a pool of seven large models. They
belong to that pool: a pocket figure beside them compares how rows relate, never how good they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A published table: one number per column and row."""

    name: str
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[float, ...]]


_BENCHMARKS = ("LCB", "MATH500", "MMLU", "RLPR", "average")

ZERO_SHOT = PublishedTable(
    "Table 1",
    ("AIME", "BigCodeBench", "MT-Bench", "GPQA-D", "average"),
    {
        "TRINITY": (50.00, 35.80, 9.60, 76.82, 54.21),
        "Gemini 2.5 Pro": (46.67, 35.10, 9.37, 75.25, 52.34),
        "GPT-5": (46.67, 33.80, 9.35, 72.73, 51.07),
        "Claude-4-Sonnet": (35.33, 35.80, 9.28, 67.30, 46.14),
        "DeepSeek-R1-Distill-32B": (30.00, 24.30, 8.43, 51.01, 35.10),
        "Qwen3-32B reasoning": (23.33, 20.90, 8.99, 59.09, 34.44),
        "Qwen3-32B direct": (20.00, 23.00, 9.03, 54.05, 33.46),
        "Gemma-3-27B": (20.00, 20.30, 8.76, 33.33, 21.38),
    },
)

ABLATIONS = PublishedTable(
    "Table 2",
    _BENCHMARKS,
    {
        "TRINITY": (61.46, 88.00, 91.56, 40.72, 70.44),
        "w/o SVF": (55.68, 85.85, 90.10, 39.77, 67.85),
        "w/o Thinker": (57.80, 86.20, 92.75, 38.00, 68.69),
        "w/o tri-role": (58.28, 82.00, 91.64, 36.15, 67.02),
        "last token": (50.85, 87.00, 82.19, 38.60, 64.66),
        "GPT-5 only": (59.54, 75.66, 90.74, 37.87, 65.95),
        "Gemini 2.5 Pro only": (46.51, 83.05, 79.41, 43.00, 62.99),
        "Claude-4-Sonnet only": (39.09, 82.25, 88.23, 34.90, 61.12),
    },
)

HEADS = PublishedTable(
    "Table 3",
    _BENCHMARKS[:4],
    {
        "linear": (61.5, 88.0, 91.6, 40.1),
        "low-rank": (59.7, 77.0, 91.4, 34.4),
        "sparse": (40.0, 81.1, 91.7, 37.2),
        "block-diagonal-2": (33.6, 77.6, 89.7, 37.8),
        "block-diagonal-10": (55.1, 81.2, 80.2, 37.6),
    },
)

LEARNERS = PublishedTable(
    "Table 4",
    _BENCHMARKS[:4],
    {
        "REINFORCE": (25.3, 45.9, 50.0, 26.6),
        "random search": (37.4, 79.4, 89.7, 34.5),
        "supervised labels": (59.2, 78.6, 90.6, 36.0),
        "sep-CMA-ES": (61.5, 88.0, 91.6, 40.1),
    },
)

#: The average over the four benchmarks, of every row of tables 2, 3 and 4; of tables 3 and 4 it is computed here.
AVERAGES = PublishedTable(
    "Tables 2 to 4",
    ("average",),
    {
        **{name: (round(sum(row[:4]) / 4, 2),) for of in (HEADS, LEARNERS) for name, row in of.rows.items()},
        **{name: row[4:] for name, row in ABLATIONS.rows.items()},
    },
)

#: Mean output tokens per question.
OUTPUT_TOKENS = PublishedTable(
    "Table 9",
    ("MATH500", "MMLU", "RLPR", "LCB"),
    {
        "TRINITY": (2853, 1200, 2141, 1999),
        "Mixture-of-Agents": (6871, 5218, 11086, 21634),
        "RouterDC": (624, 374, 811, 1552),
        "Smoothie": (6472, 4718, 10580, 17864),
        "MasRouter": (4260, 1847, 5370, 8401),
    },
)

#: LiveCodeBench at full power.
TURN_BUDGETS = PublishedTable("Figure 4", ("LCB",), {"2 turns": (82.3,), "6 turns": (86.3,)})

#: The bars of figure 4, in percent, with what stands behind their plus-minus.
FULL_POWER = {
    "TRINITY": (86.2, 0.5), "GPT-5": (83.8, 0.7), "Gemini 2.5 Pro": (67.2, 3.1), "Claude-4-Sonnet": (46.5, 1.0),
}  # fmt: skip

#: Share of choices by slot: GPT-5, Claude-4-Sonnet, Gemini 2.5 Pro, DeepSeek, Gemma, Qwen3 reasoning, Qwen3 direct.
SELECTION = PublishedTable(
    "Figure 15",
    ("A0", "A1", "A2", "A3", "A4", "A5", "A6"),
    {
        "LCB": (87.9, 9.3, 2.3, 0.0, 0.0, 0.0, 0.5),
        "MATH500": (9.2, 5.3, 82.2, 0.0, 0.0, 0.0, 3.4),
        "MMLU": (24.7, 74.3, 1.0, 0.0, 0.0, 0.0, 0.0),
        "RLPR": (22.2, 16.3, 59.4, 0.0, 0.0, 0.0, 2.1),
    },
)

#: The Conductor (arXiv 2512.04388) and others over one pool, in a controlled comparison.
CONDUCTOR = PublishedTable(
    "Conductor",
    ("average",),
    {"Conductor": (72.35,), "MoA": (62.13,), "MasRouter": (56.89,), "RouterDC": (52.41,)},
)

#: Figure 3, as far as it can be read: MATH500, RLPR and LiveCodeBench; not every bar is legible.
COMBINATIONS = PublishedTable(
    "Figure 3",
    ("MATH500", "RLPR", "LCB"),
    {
        "TRINITY": (88.00, 40.72, 61.46),
        "Mixture-of-Agents": (83.0, 38.0, 39.0),
        "RouterDC": (float("nan"), 28.0, float("nan")),
        "random": (float("nan"), 32.0, float("nan")),
        "per-question best": (91.0, float("nan"), 65.0),
    },
)

#: Questions that each of the seven models is best at; which column is which model is not said.
LABELS = PublishedTable(
    "Table 5",
    ("1", "2", "3", "4", "5", "6", "7"),
    {"LCB": (31, 69, 31, 13, 6, 19, 6), "MATH500": (18, 13, 21, 12, 15, 17, 4)},
)

#: Numbers to learn, over 1,024 hidden units, seven models and three roles.
PARAMETERS = PublishedTable(
    "Table 6",
    ("parameters",),
    {
        "SVF": (9216,),
        "linear": (10240,),
        "low-rank": (20680,),
        "sparse": (11266,),
        "block-diagonal-2": (5120,),
        "block-diagonal-10": (1024,),
    },
)

#: MMLU, majority of five answers.
MAJORITY = PublishedTable(
    "Table 7", ("MMLU",), {"Gemini 2.5 Pro": (91.57,), "GPT-5": (91.31,), "Claude-4-Sonnet": (90.99,)}
)

#: The plus-minus of its rows.
MAJORITY_SPREADS = (0.70, 0.23, 0.39)

#: Gemini 2.5 Pro told by a prompt to be the coordinator; nothing here plays that.
PROMPTED = PublishedTable(
    "Table 8", _BENCHMARKS, {"Gemini 2.5 Pro as coordinator": (26.28, 78.67, 83.26, 26.83, 53.76)}
)

#: Mean output tokens per question of LiveCodeBench.
SINGLE_TOKENS = PublishedTable(
    "Table 12", ("LCB",), {"GPT-5": (1113,), "Gemini 2.5 Pro": (2396,), "DeepSeek": (3443,)}
)

#: For rows that the paper has none of.
NOTHING = PublishedTable("nothing like it", (), {})
