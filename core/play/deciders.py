"""Which policy decides which turn: the episode's own, until a person chooses another for the turns that follow.

`deciders` is always `Episode.deciders`: turn (0-based) -> the policy that decides from it on, in order.
"""

from __future__ import annotations

from collections.abc import Mapping


def decider_at(policy: str, deciders: Mapping[int, str], index: int) -> str:
    """The policy that decides turn `index` of an episode with this policy."""
    last = [name for turn, name in deciders.items() if turn <= index]
    return last[-1] if last else policy


def deciders_of_fork(policy: str, deciders: Mapping[int, str], index: int, to: str) -> dict[int, str]:
    """The deciders of an episode that is decided by `to` and took over the turns before `index` from one with this
    policy and these deciders: empty when `to` decided them all."""
    before = {0: policy} | {turn: name for turn, name in deciders.items() if turn < index}
    if index == 0 or set(before.values()) == {to}:
        return {}
    return before if [*before.values()][-1] == to else {**before, index: to}


def deciders_with(policy: str, deciders: Mapping[int, str], index: int, to: str) -> dict[int, str]:
    """The deciders when `to` decides from turn `index` on, whatever was planned for later turns."""
    before = {turn: name for turn, name in deciders.items() if turn < index}
    in_charge = [policy, *before.values()][-1]
    return before if to == in_charge else {**before, index: to}
