"""What several answers say of policies: names under a setting, who chooses by chance, who is compared by default."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from storage.analysis.costs import PolicyCost
from storage.analysis.standings import (
    PolicyInRun,
    PolicySide,
    Setting,
)
from storage.store import Store
from ui.presentation.words import Generations, policy_name, setting_words


def named(one: PolicyCost, say: Callable[[str], str], found: Sequence[PolicyCost]) -> str:
    """A policy's name, with its setting where it was played under several."""
    name = say(one.policy)
    if one.setting is None:
        return name
    others = [other.setting for other in found if other.policy == one.policy and other.setting]
    return f"{name}, {setting_words(one.setting, others)}"


def side_words(played: Iterable[PolicyInRun], names: Generations) -> Callable[[PolicySide], str]:
    """How a comparison names its sides, plain text: by what was played under a setting of its own, with the setting.
    `played`: who has played under which; `names`: the generations by which policies are named."""
    settings: dict[str, set[Setting]] = {}
    for one in played:
        settings.setdefault(one.policy, set()).add(one.setting)

    def say(side: PolicySide) -> str:
        name = policy_name(side.policy, names.get(side.policy))
        if side.setting is None:
            return name
        return f"{name}, {setting_words(side.setting, sorted(settings[side.policy], key=str))}"

    return say


def prefers_nothing(store: Store, checkpoint: str) -> bool:
    """Whether all parameters of a checkpoint's head are zero and its choices are drawn among everything; False for
    what is no stored checkpoint."""
    one = store.checkpoints.find(checkpoint)
    if one is None:
        return False
    return not (one.head_vector.any() or one.head.argmax or one.model_mask or one.role_mask)


def like_chance(policies: Sequence[str], say: Callable[[str], str], prefers: Callable[[str], bool]) -> str:
    """Why checkpoints among these policies have the numbers of `random`, plain text; empty where none does or `random`
    is not among them. `say` names a policy, `prefers` says whether it `prefers_nothing`."""
    if "random" not in policies:
        return ""
    neutral = [one for one in dict.fromkeys(policies) if one != "random" and prefers(one)]
    return " ".join(
        f"{say(one)} prefers nothing: all parameters of its head are zero, so it draws evenly like “{say('random')}”. "
        "With the same seeds both make the same choices, and their numbers are the same."
        for one in neutral
    )
