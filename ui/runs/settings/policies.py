"""What policies are called: how each name is typed, and what such a policy does (nothing heavy is imported here).

`ui.runs.policies` makes the policy of a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PolicyWords:
    """Policies whose names begin with one word: `form` is how they are typed, `words` what they do. `alone`: the word
    alone is such a name, which a batch of any models can play."""

    form: str
    words: str
    alone: bool = False


#: Every kind of policy but stored checkpoints, by the word that its name begins with.
POLICIES: Mapping[str, PolicyWords] = {
    one.form.partition(":")[0].partition("[")[0]: one
    for one in (
        PolicyWords("single:MODEL", "one model plays every turn; single:* is each model"),
        PolicyWords("random", "a random model in a random role", alone=True),
        PolicyWords("random-model", "a random model at each turn", alone=True),
        PolicyWords("round-robin", "the models in turn", alone=True),
        PolicyWords(
            "conductor:PLANNER",
            "whole workflows; PLANNER is an id, random, fixed:NAME (single, chain, solvers, debate, automix, critic), "
            "prompted:MODEL or same-model:MODEL:PLANNER",
        ),
        PolicyWords(
            "cascade[:MODEL+...+JUDGE]",
            "one model after the other until a judge accepts; the best team on validation tasks where none is named",
            alone=True,
        ),
        PolicyWords(
            "majority[:N][:WHO]",
            "the most frequent of N answers (5) of a model, or of N episodes of a coordinator; the best model on "
            "validation tasks where nobody is named",
            alone=True,
        ),
        PolicyWords(
            "mixture",
            "every model answers, then one that is handed all answers (Mixture-of-Agents)",
            alone=True,
        ),
        PolicyWords(
            "router[:RIDGE]",
            "each question to the model that is likeliest to solve it (as RouteLLM)",
            alone=True,
        ),
        PolicyWords(
            "labels[:C]", "each question to the model that solved the likes of it most often", alone=True
        ),
        PolicyWords(
            "cloned[:RIDGE]",
            "a coordinator whose head is taught by such labels; it becomes a checkpoint",
            alone=True,
        ),
        PolicyWords("hand-made", "a team made by hand for each family of pocket tasks"),
        PolicyWords(
            "without:WHAT:POLICY",
            "a policy that never chooses a role (verifier), or that may not choose some models (2), drawn for each "
            "task",
        ),
    )
}
