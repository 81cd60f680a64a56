"""How many transcripts an encoder's window would cut, known before anything is played."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.episode import Decide, Task, Transcript
from core.play.session import recorded_requests
from core.pool.spec import ModelSpec, digest_of_specs
from core.tokens import PromptTokens
from storage.filters.episode_filter import EpisodeFilter
from storage.store import Store

#: Recorded episodes, and questions, that are looked at: hundreds of transcripts, in well under two seconds.
MOST_EPISODES, MOST_QUESTIONS = 40, 200


@dataclass(frozen=True, slots=True)
class WindowCut:
    """Of `n` transcripts, `cut` are longer than the window; they are `recorded` ones, or questions alone. With neither
    there is no `share`."""

    cut: int
    n: int
    recorded: bool

    @property
    def share(self) -> float | None:
        """Of all of them, those that are cut."""
        return self.cut / self.n if self.n else None


def window_cut(
    store: Store, tokens: PromptTokens, specs: Sequence[ModelSpec], tasks: Sequence[Task]
) -> WindowCut:
    """What the encoder's window would cut of the newest recorded transcripts of a pool; where there are none, of the
    questions of the `tasks`."""
    newest = EpisodeFilter(q=f'pool == "{digest_of_specs(specs)}" and turns > 1', forks="with")
    requests = [
        request
        for one in store.episodes.page(newest, limit=MOST_EPISODES).items
        for request in recorded_requests(store.episodes.get(one.id))
    ]
    recorded = bool(requests)
    if not recorded:
        requests = [Decide(Transcript(task.question), 0, "") for task in tasks[:MOST_QUESTIONS]]
    cut = sum(tokens.prompt(one, "chat" if one.messages else "segments").overflow for one in requests)
    return WindowCut(cut, len(requests), recorded)
