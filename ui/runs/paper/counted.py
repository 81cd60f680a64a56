"""The paper's tables whose cells are counts or shares, without intervals: what the store holds of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import get_args

import numpy as np

from core.evolution.fitness import label_weights
from core.heads import HeadKind, head_of
from storage.analysis.routing import chosen_by_family
from storage.store import Store
from ui.runs.paper.outcomes import PlayedRow
from ui.runs.paper.table import Table

#: Rows of columns, by name.
Cells = Mapping[str, Mapping[str, float]]


def cells(store: Store, table: Table, played: Mapping[str, Sequence[PlayedRow]]) -> Cells:
    """The cells of a counted table; nothing where its rows have not been played."""
    if table.measure == "selection":
        return selection(store, played.get(table.rows[0].key, ()))
    if table.measure == "labels":
        return labels([played[row.key] for row in table.rows if row.key in played])
    return parameters(store, table, played)


def selection(store: Store, played: Sequence[PlayedRow]) -> dict[str, dict[str, float]]:
    """Share of each model among all choices, by family, over the seeds of a row."""
    counts: dict[str, Counter[str]] = {}
    for one in played:
        for family, model, n in chosen_by_family(store, one.kept.run_id):
            counts.setdefault(family, Counter())[model] += n
    return {
        family: {model: count / sum(models.values()) for model, count in sorted(models.items())}
        for family, models in sorted(counts.items())
    }


def labels(singles: Sequence[Sequence[PlayedRow]]) -> dict[str, dict[str, float]]:
    """How many questions each model is best at, by family: most often right over the seeds that all have
    played, equals in equal parts."""
    if not singles:
        return {}
    family_of = {one.task_id: one.family for seed in singles[0] for one in seed.episodes}
    shared = set.intersection(*({seed.kept.seed for seed in seeds} for seeds in singles))
    solved = np.zeros((len(singles), len(family_of)))
    for model, seeds in enumerate(singles):
        for seed in (one for one in seeds if one.kept.seed in shared):
            right = {one.task_id: bool(one.correct) for one in seed.episodes}
            solved[model] += [right.get(task, False) for task in family_of]
    weights = label_weights(solved)
    names = [seeds[0].kept.policy.removeprefix("single:") for seeds in singles]
    families = np.array(list(family_of.values()))
    return {
        family: dict(zip(names, weights[:, families == family].sum(axis=1).tolist(), strict=True))
        for family in sorted(set(family_of.values()))
    }


def parameters(
    store: Store, table: Table, played: Mapping[str, Sequence[PlayedRow]]
) -> dict[str, dict[str, float]]:
    """How many numbers each kind of head has for the pool and the encoder of the table's rows, and how many singular
    values the row with SVF scales."""
    some = [store.checkpoints.load(played[row.key][0].kept.policy) for row in table.rows if row.key in played]
    if not some:
        return {}
    models, width = len(some[0].models), some[0].encoder.hidden_size
    scaled = max(one.svf_size for one in some)
    sizes: dict[str, float] = {kind: head_of(kind, models, width).size for kind in get_args(HeadKind)}
    if scaled:
        sizes = {"SVF": scaled, **sizes}
    return {name: {"parameters": size} for name, size in sizes.items()}
