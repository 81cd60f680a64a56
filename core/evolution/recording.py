"""Which of the episodes that an evolution plays are kept, and under which names (no torch)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from core.checkpoint import Checkpoint
from core.episode import Episode
from core.play.policies import CANDIDATE

RecordName = Literal["none", "share", "all"]

#: Of how many candidates of each generation a share keeps the episodes.
SHARED_CANDIDATES = 4


@dataclass(frozen=True, slots=True)
class Recording:
    """Names the episodes of the evolution `run_id` that are kept: with `share` those of each validation and of
    SHARED_CANDIDATES candidates in each generation, evenly spread over the population and so not chosen by how they
    did; with `all` those of each validation and of every candidate.

    A name says generation and place in it, and so is the same when the generation has to be played again."""

    run_id: str = ""
    record: RecordName = "none"

    def of_candidates(self, played: Sequence[Sequence[Episode]], generation: int) -> tuple[Episode, ...]:
        """The episodes to keep of those that each candidate of a generation has played."""
        chosen: Sequence[int] = ()
        if self.record == "all":
            chosen = range(len(played))
        elif self.record == "share":
            n = min(SHARED_CANDIDATES, len(played))
            chosen = [place * len(played) // n for place in range(n)]
        return tuple(
            self._named(
                episode,
                f"{generation:04d}-{candidate:03d}-{number:03d}",
                f"{CANDIDATE}{self.run_id}/{generation}/{candidate}",
                generation,
            )
            for candidate in chosen
            for number, episode in enumerate(played[candidate])
        )

    def of_validation(self, played: Sequence[Episode], checkpoint: Checkpoint) -> tuple[Episode, ...]:
        """The episodes to keep of those that a generation's checkpoint has played on held-apart tasks."""
        if self.record == "none":
            return ()
        generation = checkpoint.generation or 0
        return tuple(
            self._named(episode, f"{generation:04d}-v-{number:03d}", checkpoint.id, generation)
            for number, episode in enumerate(played)
        )

    def _named(self, played: Episode, place: str, policy: str, generation: int) -> Episode:
        name = f"e{self.run_id[1:]}-{place}"
        turns = tuple(replace(turn, episode_id=name) for turn in played.turns)
        return replace(played, id=name, run_id=self.run_id, policy=policy, generation=generation, turns=turns)
