"""Checkpoints that prefer nothing, found from their heads: they draw evenly, as chance does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from core.checkpoint import Checkpoint
from storage.store import Store
from ui.remembered import remembered


@remembered
def prefers_nothing(store: Store, checkpoint: str) -> bool:
    """Whether all parameters of a checkpoint's head are zero and its choices are drawn among everything; False for
    what is no stored checkpoint."""
    found = store.checkpoints.find(checkpoint)
    if found is None:
        return False
    one = Checkpoint.from_bytes(found[0].config, found[1])
    return not (one.head_vector.any() or one.head.argmax or one.model_mask or one.role_mask)


def like_chance(store: Store, policies: Sequence[str], say: Callable[[str], str]) -> str:
    """Why checkpoints among these policies have the numbers of `random`, plain text; empty where none does or `random`
    is not among them. `say` names a policy."""
    if "random" not in policies:
        return ""
    told = [one for one in dict.fromkeys(policies) if one != "random" and prefers_nothing(store, one)]
    return " ".join(
        f"{say(one)} prefers nothing: all parameters of its head are zero, so it draws evenly like “{say('random')}”. "
        "With the same seeds both make the same choices, and their numbers are the same."
        for one in told
    )
