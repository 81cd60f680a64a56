"""The paper's tables as they are played on a pool of one's own: which rows there are, and what they are beside.

A row is played by `ui.runs.paper.reproduction`, once per seed, and kept as a run whose config says which row it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from core.analysis import published
from core.episode import Protocol
from core.evolution.config import sequence_label_episodes
from core.evolution.departures import DEPARTURES, PAPER_SETTING
from ui.runs.paper.conductor_table import CONDUCTOR_TABLE
from ui.runs.paper.grids import GRIDS, LABEL_GRIDS, LABELS_FIRST_STEM
from ui.runs.paper.table import DEFAULT_BUDGETS, Table, TableRow, Way

#: What makes an evolved row differ from plain sep-CMA-ES over a linear head: fields of an evolution's outline, under
#: "evolution" those of its configuration, under "labels" whether labels take a share of its budget first, and under
#: "budgets" how many times the suite's budget it has.
EVOLVED: Mapping[str, Mapping[str, Any]] = {
    "trinity": {},
    "default": {"budgets": DEFAULT_BUDGETS},
    "svf": {"svf": "-2"},
    "no-thinker": {"barred": ("thinker",)},
    "no-roles": {"barred": ("thinker", "verifier")},
    "last-token": {"token_position": -1},
    "low-rank": {"head": "low-rank"},
    "sparse": {"head": "sparse"},
    "block-diagonal-2": {"head": "block-diagonal-2"},
    "block-diagonal-10": {"head": "block-diagonal-10"},
    "turn-aware": {"head": "turn-aware"},
    "low-rank-neutral": {"head": "low-rank", "neutral_start": True},
    "low-rank-plain": {"head": "low-rank", "evolution": {"constant_spread": None}},
    "paper": {"evolution": PAPER_SETTING},
    "labels-first": {"labels": True},
    "released": {"protocol": Protocol.RELEASED},
    "reinforce": {"evolution": {"learner": "reinforce"}},
    "random-search": {"evolution": {"learner": "random-search"}},
    **{
        name: {"labels": name.startswith(LABELS_FIRST_STEM), "evolution": dict(settings)}
        for grid in GRIDS
        for name, settings in grid.tried.items()
    },
}

#: The part of a budget that labels take in a row that is taught by labels before it evolves.
LABELS_SHARE = 1 / 3

_LABELS_FIRST = TableRow("evolved:labels-first", "labels first, then sep-CMA-ES")
_CLONED = TableRow("cloned", "supervised labels, the coordinator's own head", "supervised labels")
_VOTED = TableRow("evolved:trinity", "coordinator, majority of five side by side", played="voted")
#: Why labels are for whole episodes of one model and not for sequences of choices (paper A.5).
_LABEL_COST = (
    "A label takes three episodes of every model on a question: 147,000 for the paper's 7,000 questions and seven "
    f"models. Labels for whole sequences of choices, 7^4 x 3^5 of them, would take "
    f"{sequence_label_episodes(7, 5) * 147_000 / 1e9:.0f} billion episodes."
)
#: A role's name, and how a policy is played without it.
_MASKED: tuple[tuple[str, Way], ...] = (("Thinker", "without thinker"), ("Verifier", "without verifier"))
_PAPER = TableRow("evolved:paper", "the paper's own setting (pycma, 32 x 16, step size 0.03)", "w/o SVF")
_RELEASED = TableRow("evolved:released", "played by the rules of the authors' released code")
_TRINITY = TableRow("evolved:trinity", "sep-CMA-ES, linear head, no SVF", "TRINITY")
_DEFAULT = TableRow("evolved:default", "three times the budget, as `trinity evolve` by default", "TRINITY")
_SVF = TableRow("evolved:svf", "with SVF of the second-to-last layer", "TRINITY")
_NO_THINKER = TableRow("evolved:no-thinker", "without Thinker", "w/o Thinker")
_NO_ROLES = TableRow("evolved:no-roles", "Workers only", "w/o tri-role")
_LAST_TOKEN = TableRow("evolved:last-token", "last token's state", "last token")
_SEARCHES = (
    TableRow("evolved:reinforce", "REINFORCE", "REINFORCE"),
    TableRow("evolved:random-search", "random search", "random search"),
)
_ONE_MODEL = (
    TableRow("only:1", "best single model, roles evolved", "GPT-5 only"),
    TableRow("only:2", "second single model, roles evolved", "Gemini 2.5 Pro only"),
    TableRow("only:3", "third single model, roles evolved", "Claude-4-Sonnet only"),
)
_LABELS = TableRow("labels", "supervised labels", "supervised labels")
_MAJORITY = TableRow("majority", "majority of five, best single model")
_MIXTURE = TableRow("mixture", "Mixture-of-Agents", "Mixture-of-Agents")


TABLES: Mapping[str, Table] = {
    table.id: table
    for table in (
        Table(
            "all",
            "All rows",
            "The coordinator beside everything else, at the same budget of episodes where a row does not say otherwise",
            (
                replace(_TRINITY, label="coordinator: sep-CMA-ES, linear head, no SVF", published="w/o SVF"),
                replace(_DEFAULT, published=""),
                _PAPER,
                _LABELS_FIRST,
                _VOTED,
                _RELEASED,
                _SVF,
                _NO_THINKER,
                replace(_NO_ROLES, label="Workers only (no roles)"),
                _LAST_TOKEN,
                *(
                    TableRow(f"evolved:{kind}", f"head {kind}", kind)
                    for kind in ("sparse", "block-diagonal-10", "block-diagonal-2")
                ),
                TableRow("evolved:turn-aware", "head turn-aware"),
                TableRow("evolved:low-rank", "head low-rank", "low-rank"),
                TableRow("evolved:low-rank-plain", "head low-rank, shared direction searched too"),
                TableRow(
                    "evolved:low-rank-neutral", "head low-rank, begun where every choice is equally likely"
                ),
                *_SEARCHES,
                _CLONED,
                replace(_LABELS, label="router of labels, each model at its best cycle of roles"),
                TableRow("router", "learned single-turn router, each model at its best cycle of roles"),
                TableRow("cascade", "cascade with a judge"),
                TableRow("single:1", "best single model (chosen on validation tasks)"),
                *_ONE_MODEL,
                TableRow("majority", "majority of five"),
                TableRow("random", "random model and role"),
                TableRow("mixture", "Mixture-of-Agents"),
            ),
            published.AVERAGES,
            note="The paper's averages are over its four benchmarks: other models, other tasks, so only how rows "
            "relate can be compared. Its heads were evolved with SVF.",
        ),
        Table(
            "1",
            "Zero-shot",
            "Zero-shot on held-out families: does the coordinator beat every single model where it never evolved?",
            (
                replace(_DEFAULT, on="held-out"),
                *(
                    TableRow(f"single:{rank}", f"single model {rank}", name, on="held-out")
                    for rank, name in enumerate(list(published.ZERO_SHOT.rows)[1:], start=1)
                ),
            ),
            published.ZERO_SHOT,
            note="Single models by rank, the best on validation tasks first, each at its best cycle of roles.",
        ),
        Table(
            "2",
            "Ablations",
            "Ablations: what does each part of the coordinator bring?",
            (
                _SVF,
                replace(_TRINITY, published="w/o SVF"),
                _NO_THINKER,
                _NO_ROLES,
                _LAST_TOKEN,
                *_ONE_MODEL,
            ),
            published.ABLATIONS,
            note="The paper's TRINITY has SVF. Here every row but the first goes without it, so each ablation "
            "is to be read against the second row.",
        ),
        Table(
            "3",
            "Heads",
            "Heads: is the plain linear one the best?",
            (
                replace(_TRINITY, label="linear", published="linear"),
                *(
                    TableRow(f"evolved:{kind}", kind, kind)
                    for kind in ("low-rank", "sparse", "block-diagonal-2", "block-diagonal-10")
                ),
                TableRow("evolved:turn-aware", "turn-aware"),
                TableRow("evolved:low-rank-plain", "low-rank, shared direction searched too"),
                TableRow("evolved:low-rank-neutral", "low-rank, begun where every choice is equally likely"),
            ),
            published.HEADS,
        ),
        Table(
            "4",
            "Learners",
            "Learners at the same budget of episodes: is evolution worth it?",
            (
                *_SEARCHES,
                _CLONED,
                replace(_LABELS, label="router of labels", published=""),
                TableRow("router", "learned single-turn router"),
                _LABELS_FIRST,
                replace(_TRINITY, label="sep-CMA-ES", published="sep-CMA-ES"),
                replace(_PAPER, published="sep-CMA-ES"),
            ),
            published.LEARNERS,
            note="Departures of the row sep-CMA-ES from the paper: "
            + " ".join(DEPARTURES)
            + " The paper's REINFORCE has batches of 512 episodes and its random search a box of 0.5 to each side; "
            "here each has the best of its grid (table grids). Validations on the way, the same for all, come on top. "
            + _LABEL_COST,
            curves=True,
        ),
        Table(
            "5",
            "Best models",
            "Which model is best at how many questions? (labels: each model at its best cycle, a tie counted in parts)",
            tuple(TableRow(f"single:{rank}", f"single model {rank}") for rank in range(1, 8)),
            published.LABELS,
            measure="labels",
            note="Over the test tasks and all seeds of the single models' rows; a question that no model solved has no "
            "label. The paper does not say which of its models stands in which column.",
        ),
        Table(
            "6",
            "Parameters",
            "How many numbers does each head have to learn?",
            (_TRINITY, _SVF),
            published.PARAMETERS,
            measure="parameters",
        ),
        Table(
            "7",
            "Majority votes",
            "Majority of five answers by one model",
            tuple(
                TableRow(
                    "majority" if rank == 1 else f"majority:{rank}",
                    f"majority of five, single model {rank}",
                    name,
                )
                for rank, name in enumerate(published.MAJORITY.rows, start=1)
            ),
            published.MAJORITY,
            note="The paper's figures stand with, in this order, "
            + ", ".join(f"± {one}" for one in published.MAJORITY_SPREADS)
            + ".",
        ),
        Table(
            "9",
            "Tokens",
            "Output tokens per question: what does the coordination cost?",
            (
                _TRINITY,
                _MIXTURE,
                TableRow("router", "learned single-turn router", "RouterDC"),
                TableRow("cascade", "cascade with a judge"),
                _MAJORITY,
                TableRow("single:1", "best single model"),
            ),
            published.OUTPUT_TOKENS,
            measure="tokens",
        ),
        Table(
            "12",
            "Tokens of single models",
            "Output tokens per question of the single models",
            tuple(
                TableRow(f"single:{rank}", f"single model {rank}", name)
                for rank, name in enumerate(published.SINGLE_TOKENS.rows, start=1)
            ),
            published.SINGLE_TOKENS,
            measure="tokens",
        ),
        Table(
            "parts",
            "Parts and controls",
            "The evolved coordinator with its likeliest choices, with a role masked, and beside what learned nothing",
            (
                _DEFAULT,
                replace(_DEFAULT, label="likeliest choice each time (argmax)", published="", played="argmax"),
                *(
                    replace(_DEFAULT, label=f"{role} masked", published="", played=played)
                    for role, played in _MASKED
                ),
                TableRow("single:1", "best single model (chosen on validation tasks)"),
                TableRow("router", "learned single-turn router, each model at its best cycle of roles"),
                TableRow("walk", "random walk of the same length"),
                TableRow("start", "generation 0: every choice equally likely"),
                TableRow("random-model", "random models at their best cycle of roles"),
                TableRow("random", "random model and role"),
                TableRow("hand-made", "a team made by hand for each family: a ceiling"),
            ),
            published.ABLATIONS,
            note="The coordinator has three times the budget of the other tables' learners. "
            "The paper's ablations were evolved without the part; here the part is masked in the evolved "
            "coordinator. The random walk is sep-CMA-ES told coin tosses instead of rewards.",
        ),
        Table(
            "unseen",
            "Unseen templates",
            "Kinds of question that no model was trained on and nothing was evolved on",
            (
                replace(_DEFAULT, on="unseen", published=""),
                TableRow("router", "learned single-turn router", on="unseen"),
                TableRow("single:1", "best single model (chosen on validation tasks)", on="unseen"),
                TableRow("random", "random model and role", on="unseen"),
            ),
            published.NOTHING,
            note="One template in each family is kept out of every other split. The models were not trained on it "
            "either, so a low figure is their ignorance as much as the coordinator's.",
        ),
        Table(
            "grids",
            "Settings tried",
            "What was tried for each learner on validation tasks before its settings were fixed",
            tuple(
                TableRow(
                    f"evolved:{name}",
                    f"{grid.learner}: {grid.setting} {name.partition('=')[2]}",
                    on="validation",
                )
                for grid in GRIDS
                for name in grid.tried
            ),
            published.NOTHING,
            curves=True,
            note="Spread: that of the first candidates' logits. Candidates: of 8 tasks each, in a generation. "
            "Batch: in episodes. Box: half its side, in step sizes. The defaults are each learner's best row. "
            "The seeds are not those of the other tables.",
        ),
        Table(
            "label-grids",
            "Settings tried with labels",
            "What was tried for each learner that asks every model about its questions, on validation tasks",
            tuple(
                TableRow(f"{how}:{value:g}", f"{learner}: {setting} {value:g}", on="validation")
                for how, learner, setting, values in LABEL_GRIDS
                for value in values
            )
            + (TableRow("cloned", "cloned labels: chosen on questions set aside", on="validation"),),
            published.NOTHING,
            note="Both routers were first played with 1; this search came after that, and the rows of the other tables "
            "have its best setting. Cloned labels choose their setting on questions set aside. Ridge: the weight of "
            "the squared coefficients. C: the larger, the larger coefficients may become. The seeds are not those of "
            "the other tables.",
        ),
        Table(
            "turns",
            "Turn budgets",
            "Turn budgets: does accuracy rise with the turns it may take? (the same coordinator, not evolved again)",
            tuple(
                TableRow(
                    "evolved:default",
                    f"{turns} turn{'s' if turns > 1 else ''}",
                    f"{turns} turns",
                    turns=turns,
                )
                for turns in range(1, 7)
            ),
            published.TURN_BUDGETS,
            note="The paper's bars beside its curve, LiveCodeBench at full power: "
            + ", ".join(
                f"{name} {share} ± {spread} %" for name, (share, spread) in published.FULL_POWER.items()
            )
            + ".",
        ),
        Table(
            "selection",
            "Selection",
            "Selection: which models does the coordinator choose for which kind of task?",
            (_DEFAULT,),
            published.SELECTION,
            measure="selection",
        ),
        Table(
            "combinations",
            "Combinations",
            "Other ways to combine the same models",
            (
                _TRINITY,
                TableRow("router", "learned single-turn router (as RouteLLM)", "RouterDC"),
                replace(_LABELS, published=""),
                _VOTED,
                TableRow("cascade", "cascade with a judge (as FrugalGPT)"),
                _MAJORITY,
                TableRow("mixture", "Mixture-of-Agents, one layer", "Mixture-of-Agents"),
                TableRow("random", "random model and role", "random"),
                *(TableRow(f"single:{rank}", f"single model {rank}") for rank in range(1, 8)),
                TableRow("union", "per-question union of the single models", "per-question best"),
            ),
            published.COMBINATIONS,
            note="The union counts a question as solved when any single model solved it: a ceiling, not a policy. "
            "The paper's table 8, which nothing here plays: Gemini 2.5 Pro, told by a prompt to coordinate, averages "
            f"{published.PROMPTED.rows['Gemini 2.5 Pro as coordinator'][-1]} %.",
        ),
        CONDUCTOR_TABLE,
    )
}

#: All tables as a reader looks for them: by subject, with what each answers in a few words.
SUBJECTS: Mapping[str, Mapping[str, str]] = {
    "Overview": {"all": "the coordinator beside everything else"},
    "The coordinator": {
        "2": "what does each of its parts bring?",
        "parts": "how good is it without a role, and beside what learned nothing?",
        "3": "which form of the head is best?",
        "6": "how many numbers does each head learn?",
        "turns": "does accuracy rise with the turns that it may take?",
    },
    "Other ways": {
        "4": "is evolution worth it at the same budget of episodes?",
        "combinations": "is it better than routers, votes and mixtures?",
        "7": "what does a majority of five answers by one model bring?",
        "conductor": "is a planner of whole workflows better?",
    },
    "New kinds of task": {
        "1": "does it beat every single model where it never evolved?",
        "unseen": "what is left where nothing was trained or evolved?",
    },
    "The models": {
        "5": "which model is best at how many questions?",
        "selection": "which models are chosen for which kind of task?",
    },
    "Cost": {
        "9": "how many tokens does a question take?",
        "12": "how many tokens does a single model take?",
    },
    "Settings": {
        "grids": "what was tried for each learner?",
        "label-grids": "what was tried for the learners of labels?",
    },
}


def needed(tables: Sequence[Table]) -> list[TableRow]:
    """The rows that have to be played for these tables, each once; the union comes from the single models."""
    rows = {row.key: row for table in tables for row in table.rows if row.how != "union"}
    return list(rows.values())
