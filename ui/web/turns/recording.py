"""One recorded episode as pages read it: its head and outline at once, decisions and texts turn by turn."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from core.analysis.head_lens import Pair, overruled_pair
from core.episode import Decision, Episode, Status, Turn
from core.errors import TrinityError
from core.outcomes.matrix import outcomes
from core.outcomes.pool import RecordedPool
from core.outcomes.table import load_table
from core.play.policies import VOTES, decider_at, rule_of
from storage.reads.episode_steps import BegunTurn, read_head, read_turns
from storage.rows.summaries import EpisodeSummary, TurnOutline, TurnText, with_judgements
from storage.store import Store
from ui.presentation.rules import Same
from ui.presentation.story import story
from ui.presentation.theme import one_line, percent
from ui.runs.plans import known_plan
from ui.runs.settings.batch import BatchPlan, Order
from ui.web.kit.cache import cached, remembered


@dataclass(frozen=True, slots=True)
class Recording:
    """An episode without its turns, its summary, the outlines of its turns, and ways to read one turn. `forked`: it is
    a fork or has forks; `labelled`: somebody has labelled it."""

    store: Store
    summary: EpisodeSummary
    episode: Episode  # turns left out
    outlines: tuple[TurnOutline, ...]
    forked: bool = False
    labelled: bool = False
    loaded: dict[int, BegunTurn] = field(default_factory=dict)

    @property
    def running(self) -> bool:
        """Whether it is still being played."""
        return self.episode.status is Status.RUNNING

    @property
    def models(self) -> tuple[str, ...]:
        """The pool slots in head order."""
        return self.episode.models

    @property
    def missing(self) -> tuple[str, ...]:
        """The models of which the outcome table that it was played from has no answer to the question."""
        return self.episode.left_out if any(one.recorded for one in self.outlines) else ()

    def decided_by(self, index: int) -> str:
        return decider_at(self.episode.policy, self.episode.deciders, index)

    def unjudged(self) -> Recording:
        """The recording without what was found out about its turns."""
        hidden = {"correct_after": None, "flags": (), "margin": None, "entropy": None, "judgements": ()}
        outlines = tuple(replace(one, **hidden) for one in self.outlines)  # type: ignore[arg-type]
        return replace(self, outlines=outlines)

    def decision(self, index: int) -> Decision | None:
        """The decision of turn `index`; None when there is no such turn."""
        found = self._turn(index)
        return found.decision if found else None

    def overruled(self, index: int) -> Pair | None:
        """What was proposed for turn `index` before a person chose; None where nobody did, or where it is not known."""
        decision = self.decision(index)
        return overruled_pair(decision, self.models, self.episode, index) if decision else None

    def reply_text(self, index: int) -> TurnText:
        """The reply and reasoning of turn `index`, without what its model was sent."""
        found = self._turn(index)
        return found.text if found else self.text(index)

    def text(self, index: int) -> TurnText:
        """All texts of turn `index`; its prompt can be far longer than its reply."""
        return self.store.episodes.text(self.episode.id, index)

    @property
    def turns(self) -> tuple[Turn, ...]:
        """All turns that are over, with their texts: for what has few, such as a workflow."""
        finished = self.episode.status is Status.FINISHED
        return (_remembered_turns if finished else _turns)(self.store, self.episode.id)

    def _turn(self, index: int) -> BegunTurn | None:
        """Turn `index`, read together with the one before it, which is shown beside it."""
        if index not in self.loaded:
            self.loaded.update(read_turns(self.store, self.episode.id, {max(0, index - 1), index}))
        return self.loaded.get(index)


def open_recording(store: Store, episode_id: str) -> Recording:
    """The recording of an episode; StoreError when there is none with this id."""
    head = read_head(store, episode_id)
    finished = head.episode.status is Status.FINISHED  # its turns never change
    outlines = (_remembered_outlines if finished else _outlines)(store, head.summary)
    if head.episode.judgements:
        outlines = with_judgements(outlines, head.episode.judgements)
    return Recording(store, head.summary, head.episode, outlines, head.forked, head.labelled)


def _outlines(store: Store, summary: EpisodeSummary) -> tuple[TurnOutline, ...]:
    return tuple(store.episodes.outline(summary.id))


def _turns(store: Store, episode_id: str) -> tuple[Turn, ...]:
    return store.episodes.get(episode_id).turns


_remembered_turns = remembered(most=32, seconds=60)(_turns)
_remembered_outlines = remembered(most=64)(_outlines)


@cached
def story_of(store: Store, episode_id: str) -> str:
    """What happened in an episode, plain text; empty where nobody could judge it."""
    episode = store.episodes.get(episode_id)
    return story(episode, dict(order_in(store, episode, episode.policy)), _same_by_table(episode))


def order_in(store: Store, episode: Episode, policy: str) -> Order:
    """In which order a rule asks models for an episode's task, each with its strength; empty for any other policy, and
    where its run has not kept it."""
    plan = known_plan(store.runs.get(episode.run_id)) if rule_of(policy) else None
    return plan.order_of(policy, episode.task.family) if isinstance(plan, BatchPlan) else ()


def standing_words(recording: Recording, model: str) -> str:
    """How a recorded model stands among those of its outcome table on questions of the episode's family, plain text;
    empty for models that are asked, and where the table is not here."""
    row = next((one.recorded for one in recording.outlines if one.recorded), None)
    found = _standings(row.table, recording.summary.family) if row else ()
    place = next((place for place, (name, _) in enumerate(found, 1) if name == model), 0)
    if place == 0 or len(found) < 2:
        return ""
    (best, most), (second, next_) = found[:2]
    where = f"On the {one_line(recording.summary.family, 40)} questions of its table"
    if place == 1:
        return f"{where} {best} is right most often: {percent(most)}; next is {second}, {percent(next_)}."
    own = percent(found[place - 1][1])
    return f"{where} {best} is right most often: {percent(most)}; {model} is number {place} of {len(found)}, {own}."


@remembered(most=64, seconds=60)
def _standings(known_as: str, family: str) -> tuple[tuple[str, float], ...]:
    """The models of an outcome table with their accuracies on a family, the best first."""
    with suppress(TrinityError):
        table = load_table(known_as.partition("@")[0])
        of = outcomes(table)
        if table.card.known_as == known_as and family in of.domains:
            tasks = of.domain == of.domains.index(family)
            rates = [(of.models[i], of.accuracy(tasks, i).value) for i in of.contenders]
            return tuple(
                sorted(((name, rate) for name, rate in rates if rate is not None), key=lambda one: -one[1])
            )
    return ()


def _same_by_table(episode: Episode) -> Same | None:
    """Which answers are the same as the outcome table has it that they are recorded in, where it is here."""
    row = episode.turns[0].reply.recorded if episode.turns and rule_of(episode.policy) in VOTES else None
    if row is None:
        return None
    with suppress(TrinityError):
        table = load_table(row.table.partition("@")[0])
        if table.card.known_as == row.table:
            return partial(RecordedPool(table).same, episode.task.question)
    return None
