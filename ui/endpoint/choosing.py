"""Which coordinator plays where a tier names none: the best validated one of those that choose among the pool's models,
and what is known of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from core.evolution.fitness import EpisodeStatistics, GenerationStats
from core.play.policies import SINGLE
from storage.rows.summaries import CheckpointSummary
from storage.store import Store
from ui.presentation.words import share_words


@dataclass(frozen=True, slots=True)
class Validated:
    """A checkpoint's result on the held-apart tasks of its evolution, and the best single model's there, where it was
    played. `alike` is what results must have in common to be compared."""

    checkpoint: str
    run: str
    generation: int
    result: EpisodeStatistics
    turns: int | None
    single: tuple[str, EpisodeStatistics] | None
    alike: tuple[str, ...]

    @property
    def is_behind(self) -> bool:
        """Whether the best single model solved more of the same tasks."""
        return self.single is not None and self.single[1].accuracy > self.result.accuracy

    @property
    def words(self) -> str:
        """What is known of it, in plain sentences."""
        turns = "" if self.turns is None else f", with all its models and up to {self.turns} turns"
        solved = share_words(self.result.accuracy, self.result.interval)
        said = f"generation {self.generation} of {self.run} solved {solved} of {self.result.n} validation tasks{turns}"
        if self.single is None:
            return f"{said}; what the best single model solves of them was not played"
        name, found = self.single
        return f"{said}; the best single model, {name}, {share_words(found.accuracy, found.interval)}"


def validated(store: Store, fitting: Sequence[CheckpointSummary]) -> list[Validated]:
    """The results of these checkpoints, where there are any; those of the newest evolution last."""
    by_run: dict[str, dict[str, CheckpointSummary]] = {}
    for one in fitting:
        by_run.setdefault(one.run_id or "", {})[one.id] = one
    found: list[Validated] = []
    for run in sorted(by_run.keys() - {""}):
        config = store.runs.get(run).config
        search = config.get("evolution", {})
        alike = tuple(
            str(one)
            for one in (
                *(config.get(name) for name in ("tasks", "digest", "validation", "protocol", "models")),
                search.get("turn_budget"),
                search.get("seed"),
            )
        )
        generations = store.learning.updates(run)
        stats = [GenerationStats.of(one.stats) for one in generations]
        single = _best_single(stats[-1].controls.items()) if stats else None
        found += [
            Validated(
                str(one.checkpoint_id),
                run,
                one.index,
                has.validation,
                search.get("turn_budget"),
                single,
                alike,
            )
            for one, has in zip(generations, stats, strict=True)
            if one.checkpoint_id in by_run[run] and has.validation and has.validation.n
        ]
    return found


def best(results: Sequence[Validated]) -> Validated | None:
    """The best of those that can be compared with the newest evolution's; of equals the latest. None of none."""
    comparable = [one for one in results if one.alike == results[-1].alike]
    return max(comparable, key=lambda one: (one.result.accuracy, one.run, one.generation), default=None)


def _best_single(
    controls: Iterable[tuple[str, EpisodeStatistics]],
) -> tuple[str, EpisodeStatistics] | None:
    singles = [(name.removeprefix(SINGLE), one) for name, one in controls if name.startswith(SINGLE)]
    return max(singles, key=lambda one: one[1].accuracy, default=None)
