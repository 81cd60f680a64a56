"""The analyses there are, each imported when it is opened: its name in addresses and commands, its title, its parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from core.errors import ConfigError

if TYPE_CHECKING:
    from ui.answers.asked import Asked, Behind
    from ui.answers.blocks import Answer

#: One question, or several that share their reads; None where the episodes have nothing of the kind.
Question = Callable[["Asked"], "Answer | Sequence[Answer] | None"]


@dataclass(frozen=True, slots=True)
class Part:
    """Questions that a page shows together: `key` in the address, `words` on the page. `there`: whether these episodes
    have anything of it. `asked_for`: so slow or long that a command and a saved page leave it out unless named."""

    key: str
    words: str
    questions: Sequence[Question]
    there: Callable[[Asked], bool] = lambda asked: True
    asked_for: bool = False

    def answers(self, asked: Asked) -> list[Answer]:
        """Every question's answer."""
        found: list[Answer] = []
        for question in self.questions:
            answer = question(asked)
            found += [] if answer is None else list(answer) if isinstance(answer, Sequence) else [answer]
        return found


@dataclass(frozen=True, slots=True)
class Analysis:
    """What a page, a command and an exported page show. `behind`: the turns behind a mark's `into`, of the first side
    or, where the flag is set, the second; None for what names nothing. `apart`: parts that keep policies apart by
    themselves, and open on all of them. `everything`: about models, whoever called them, live plays and forks too."""

    parts: Sequence[Part]
    behind: Callable[[Asked, str, bool], Behind | None] = lambda asked, into, second: None
    apart: frozenset[str] = frozenset()
    everything: bool = False


@dataclass(frozen=True, slots=True)
class Listed:
    """An analysis as menus and `--help` need it: `ui.answers.NAME` is not imported for that."""

    title: str
    icon: str
    about: str  # in the menu
    command: str  # in `trinity --help`
    own_command: str = ""  # its command's name, where that has arguments of its own
    group: str = "Analyse"  # of the menu
    by_filter: bool = True  # whether it asks about the episodes of a filter and nothing else


#: By name, in the order of the menu.
ANALYSES: dict[str, Listed] = {
    "checkpoints": Listed(
        "Checkpoints",
        "balance",
        "Up to eight coordinators on the same tasks: accuracy, flips, and whether the difference is real.",
        "Compare policies with a baseline over the tasks both finished.",
        "compare",
        "Compare",
        by_filter=False,
    ),
    "policy": Listed(
        "Policy diff",
        "difference",
        "What other checkpoints would choose at the recorded turns, without asking a model.",
        "How often checkpoints would choose alike at recorded turns.",
        "policy",
        "Compare",
        by_filter=False,
    ),
    "routing": Listed(
        "Routing",
        "route",
        "Who is called in which role, who follows whom, what it depends on, and whether it pays.",
        "Who is called in which role, and how such episodes end.",
    ),
    "verifier": Listed(
        "Verifier & cost",
        "fact_check",
        "Which verifier accepts wrong answers, what fewer turns would do, what a solved problem costs.",
        "Which verifier accepts wrong answers, what a solution costs.",
    ),
    "pool": Listed(
        "Pool",
        "dns",
        "How each model has been answering, its errors, times and cost, and what would happen without it.",
        "How each model has been answering, what it costs, who would be missed.",
        "pool health",
    ),
    "requests": Listed(
        "Requests",
        "swap_vert",
        "What the endpoint has served: how requests ended, how long they took, what they cost, what a tier is worth.",
        "How the endpoint's requests ended, how long they took, what they cost.",
        by_filter=False,
    ),
    "evolution": Listed(
        "Evolution and training",
        "trending_up",
        "An evolution or a training, update by update; start, watch, stop and resume one.",
        "What an evolution or a training came to, update by update.",
        "evolution",
        "Learn",
        by_filter=False,
    ),
    "outcomes": Listed(
        "Outcomes",
        "table_chart",
        "What recorded models answered to a task set: who knows what, what a second opinion brings, what could be won.",
        "What the models of an outcome table know, and what could be won.",
        "outcomes show",
        by_filter=False,
    ),
    "separability": Listed(
        "Separability",
        "scatter_plot",
        "Hidden states and logits as points: do task families and chosen models lie apart?",
        "Read task family and chosen model off hidden states and logits.",
        "separability",
        by_filter=False,
    ),
}


def analysis(name: str) -> Analysis:
    """The analysis of this name."""
    found: Analysis = import_module(f"ui.answers.{name}").ANALYSIS
    return found


def answers(name: str, asked: Asked, parts: Sequence[str] = ()) -> dict[str, list[Answer]]:
    """The answers by the words of their part: of the named parts, else of all that are not `asked_for`. ConfigError
    where there is no such part, or no episode."""
    found = analysis(name)
    there = {one.key: one for one in found.parts if one.there(asked)}
    if unknown := [part for part in parts if part not in there]:
        raise ConfigError(f"There is no part '{unknown[0]}': choose one of {', '.join(there)}.")
    if not found.everything and not any(asked.counts().values()):
        raise ConfigError(
            "No finished episode matches: leave a filter out, or list what there is by trinity episodes."
        )
    wanted = parts or [key for key, one in there.items() if not one.asked_for]
    return {one.words: one.answers(asked) for key, one in there.items() if key in wanted}
