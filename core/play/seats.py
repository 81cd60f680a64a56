"""A place at the table where episodes are played side by side: one episode, its play, and what it waits for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from core.episode import (
    Ask,
    AskSteps,
    Decide,
    EndReason,
    Episode,
    EpisodeFinished,
    Event,
    Grade,
    Plan,
    Replied,
    Status,
    Turn,
    TurnStarted,
    WritePlan,
)
from core.errors import TrinityError
from core.play.policy import Policy, WorkflowPolicy, conducting_policy, innermost
from core.play.session import play
from core.pool.pool import Pool

#: Why an episode shall end now, None when it shall not.
Stop = Callable[[Episode], EndReason | None]


@dataclass(slots=True)
class Seat:
    """One episode being played: its generator, what it waits for and its turns so far.

    `under_way` are a workflow's steps that have been asked, by the number of their turn; `halting` is why no more are
    begun, while those that are under way are waited for."""

    episode: Episode
    generator: Generator[Any, Any, Episode]
    writer: WorkflowPolicy | None = None
    turns: list[Turn] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    request: Decide | WritePlan | Ask | AskSteps | Grade | None = None
    outcome: Episode | None = None
    under_way: set[int] = field(default_factory=set)
    halting: EndReason | None = None

    def advance(self, response: object = None) -> Iterator[Event]:
        """Send the answer to `play`, yield its events, and halt at its next request or at the end."""
        self.request = None
        try:
            step = self.generator.send(response)
            while isinstance(step, Plan | TurnStarted | Replied | Turn):
                if isinstance(step, Turn):
                    self.turns.append(step)
                elif isinstance(step, Plan):
                    self.plans.append(step)
                yield step
                step = self.generator.send(None)
            self.request = step
        except StopIteration as ended:
            self.outcome = ended.value
            yield EpisodeFinished(ended.value)

    def halts(self, stop: Stop | None) -> EndReason | None:
        """The reason to stop here, if there is one."""
        return stop(self.so_far) if stop is not None else None

    @property
    def so_far(self) -> Episode:
        """The episode with its committed turns."""
        if not self.turns and not self.plans:
            return self.episode
        return replace(self.episode, turns=tuple(self.turns), plans=tuple(self.plans))

    def interrupt(self, reason: EndReason) -> Iterator[Event]:
        """End the episode early; what it has come to is kept, and it can be resumed."""
        self.generator.close()
        yield self._cut(Status.INTERRUPTED, reason)

    def break_off(self, fault: Exception) -> Iterator[Event]:
        """End the episode as missing because of a fault of this program; what it has come to is kept."""
        with contextlib.suppress(Exception):  # the fault may be its own
            self.generator.close()
        yield self._cut(Status.MISSING, EndReason.ERROR, self._told(fault))

    def _told(self, fault: Exception) -> str:
        """What is said of a fault: the sentence of an error of ours, else where its traceback is."""
        if isinstance(fault, TrinityError):
            return str(fault)
        where = f"at turn {len(self.turns) + 1}" if self.writer is None else "in a workflow"
        return f"This program failed {where} ({type(fault).__name__}); its log says more."

    def _cut(self, status: Status, reason: EndReason, error: str | None = None) -> EpisodeFinished:
        self.request = None
        answer, correct = None, None
        if self.turns:
            answer, correct = self.turns[-1].answer_after, self.turns[-1].correct_after
        self.outcome = replace(
            self.so_far, status=status, end_reason=reason, answer=answer, correct=correct, error=error
        )
        return EpisodeFinished(self.outcome)


def seat_of(
    episode: Episode,
    policy: Policy,
    pool: Pool,
    *,
    model_mask: Sequence[bool] = (),
    role_mask: Sequence[bool] = (),
    temperatures: Mapping[int, float] | None = None,
) -> Seat:
    """The seat of an episode that begins, or goes on with the turns that it carries; masks and `temperatures`, by turn
    index, as in `play`."""
    specs = {spec.name: spec for spec in pool.specs}
    fresh = replace(episode, status=Status.RUNNING, end_reason=None, answer=None, correct=None)
    if (whole := conducting_policy(policy, episode)) is not None:
        conducted = whole.conduct(fresh, specs, model_mask=model_mask, role_mask=role_mask)
        writer = inner if isinstance(inner := innermost(whole), WorkflowPolicy) else None
        return Seat(fresh, conducted, writer, turns=list(episode.turns), plans=list(episode.plans))
    played = play(fresh, specs, model_mask=model_mask, role_mask=role_mask, temperatures=temperatures)
    return Seat(fresh, played, turns=list(episode.turns))


def raising(fault: Exception) -> Generator[Any, Any, Any]:
    """Raises a fault where its first value is asked for: the play of an episode that cannot begin."""
    raise fault
    yield
