"""What a policy had decided for a turn that a person decided otherwise. The proposal itself is not recorded, but a draw
is a pure function of its key, so that what was drawn can be drawn again from the recorded probabilities."""

from __future__ import annotations

from collections.abc import Sequence

from core.draws import draw_index, turn_key, uniform
from core.episode import ROLE_ORDER, Decision, Episode, Protocol, Role

Pair = tuple[str, Role]


def overruled_pair(decision: Decision, models: Sequence[str], episode: Episode, index: int) -> Pair | None:
    """The model and the role that were proposed for turn `index` before a person chose; None where nobody took the turn
    over, or where it cannot be told: by the released rules the Thinker before has a say in it, and a fork keeps the
    turns of an episode that drew with another key."""
    if decision.origin != "override" or episode.fork is not None or episode.protocol is Protocol.RELEASED:
        return None
    if not decision.model_probs or not decision.role_probs:
        return None
    if not decision.sampled:
        return (decision.argmax_model, decision.argmax_role) if decision.argmax_role is not None else None
    u = uniform(turn_key(episode.seed, episode.task.id, index), 2).tolist()
    return (
        models[draw_index(decision.model_probs, u[0])],
        ROLE_ORDER[draw_index(decision.role_probs, u[1])],
    )
