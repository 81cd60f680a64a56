"""What a generation came to besides its fitness, as its run keeps it: how it played and what it took (no torch)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from core.analysis.metrics import wilson_interval
from core.episode import Flag, Role


@dataclass(frozen=True, slots=True)
class Step:
    """The first step size of one block of the vector, and the standard deviation of the logits it causes."""

    step_size: float
    logit_spread: float


@dataclass(frozen=True, slots=True)
class NoticedTurns:
    """`n` turns of one model in one role that carry the same flags."""

    model: str
    role: Role
    flags: tuple[Flag, ...]
    n: int

    @classmethod
    def of(cls, stored: object) -> tuple[NoticedTurns, ...]:
        """Inverse of `to_json` for all of them; flags of another version are left out."""
        if not isinstance(stored, list):
            return ()
        return tuple(
            cls(str(model), Role(role), tuple(Flag(one) for one in flags if one in tuple(Flag)), int(n))
            for model, role, flags, n in stored
        )

    def to_json(self) -> list[Any]:
        """Ready for JSON."""
        return [self.model, self.role.value, [flag.value for flag in self.flags], self.n]


@dataclass(frozen=True, slots=True)
class EpisodeStatistics:
    """What `n` episodes came to, besides those `missing`. `shares` maps (model, role) to its share of all
    turns. `error` is the accuracy's standard error, all episodes of one task drawn together; `noticed` are all of
    their turns by what was noticed about them. NaN and nothing for what an older run did not keep."""

    accuracy: float
    n: int
    missing: int
    turns_mean: float
    accept_rate: float
    shares: Mapping[tuple[str, Role], float]
    error: float = math.nan
    noticed: tuple[NoticedTurns, ...] = ()

    @classmethod
    def of(cls, stored: object) -> EpisodeStatistics | None:
        """Inverse of `to_json`; None for what says neither accuracy nor number."""
        if not isinstance(stored, Mapping) or not {"accuracy", "n"} <= stored.keys():
            return None
        pairs = [
            (str(pair).rpartition(" "), float(share)) for pair, share in stored.get("shares", {}).items()
        ]
        return cls(
            float(stored["accuracy"]),
            int(stored["n"]),
            int(stored.get("missing", 0)),
            float(stored.get("turns_mean", math.nan)),
            float(stored.get("accept_rate", math.nan)),
            {(model, Role(role)): share for (model, _, role), share in pairs if role in tuple(Role)},
            float(stored.get("error", math.nan)),
            NoticedTurns.of(stored.get("noticed")),
        )

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON; pairs as `MODEL ROLE`."""
        shares = {f"{model} {role}": share for (model, role), share in self.shares.items()}
        kept = {**asdict(self), "shares": shares, "noticed": [one.to_json() for one in self.noticed]}
        if math.isnan(self.error):
            del kept["error"]
        if not self.noticed:
            del kept["noticed"]
        return kept

    @property
    def right(self) -> int:
        """How many of the `n` episodes ended right."""
        return round(self.accuracy * self.n) if self.n else 0

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % Wilson interval of the accuracy."""
        return wilson_interval(self.right, self.n)


_COUNTS = ("calls", "calls_saved", "decisions", "forwards", "next_tasks", "label_episodes")


@dataclass(frozen=True, slots=True)
class GenerationStats:
    """Calls to models and decisions, with the encoder's forwards for them, are counted over this generation, without
    those of its validation; None where its run did not keep them. `next_tasks` is the next generation's
    `tasks_per_candidate`; `label_episodes`, of generation 0 only, were played for labels; `distances` are the
    candidates' from where the learner stood, in step sizes; `steps` and `mean_state`, of generation 0 only, are what
    was surveyed of the encoder: the first step of every block of the vector, and a packed vector (`search.Survey`);
    `validation` is of the distribution mean on held-apart tasks, when due. `controls` are what the last generation is
    put beside, by name; `spent_usd` is that of the whole run so far, `unread_usd` the part of it for answers that
    could not be read."""

    calls: int | None = None
    calls_saved: int | None = None
    decisions: int | None = None
    forwards: float | None = None
    next_tasks: int | None = None
    label_episodes: int | None = None
    distances: tuple[float, ...] = ()
    steps: Mapping[str, Step] = field(default_factory=dict)
    mean_state: str = ""
    episodes: EpisodeStatistics | None = None
    validation: EpisodeStatistics | None = None
    controls: Mapping[str, EpisodeStatistics] = field(default_factory=dict)
    spent_usd: float = 0.0
    unread_usd: float = 0.0

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> GenerationStats:
        """Inverse of `to_json`; what an older run did not keep is left open."""
        controls = {str(name): EpisodeStatistics.of(one) for name, one in stored.get("controls", {}).items()}
        return cls(
            **{name: stored.get(name) for name in _COUNTS},
            distances=tuple(stored.get("distances", ())),
            steps={str(block): Step(**step) for block, step in stored.get("steps", {}).items()},
            mean_state=str(stored.get("mean_state", "")),
            episodes=EpisodeStatistics.of(stored.get("episodes")),
            validation=EpisodeStatistics.of(stored.get("validation")),
            controls={name: one for name, one in controls.items() if one is not None},
            spent_usd=float(stored.get("spent_usd", 0.0)),
            unread_usd=float(stored.get("unread_usd", 0.0)),
        )

    def to_json(self) -> dict[str, Any]:
        """Ready for JSON, without what is open."""
        found: dict[str, Any] = {
            **{name: getattr(self, name) for name in _COUNTS},
            "distances": [round(distance, 4) for distance in self.distances] or None,
            "steps": {block: asdict(step) for block, step in self.steps.items()} or None,
            "mean_state": self.mean_state or None,
            "episodes": self.episodes and self.episodes.to_json(),
            "validation": self.validation and self.validation.to_json(),
            "controls": {name: one.to_json() for name, one in self.controls.items()} or None,
            "spent_usd": self.spent_usd,
            "unread_usd": self.unread_usd or None,
        }
        return {name: value for name, value in found.items() if value is not None}
