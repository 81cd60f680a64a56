"""Who decides which turn: an episode's policy, until a person puts another in its place for the turns that follow."""

from __future__ import annotations

import json
from collections.abc import Mapping

#: Key of an episode's `meta`: JSON object of turn (0-based) -> the policy that decides from it on.
DECIDERS = "deciders"


def changes(meta: Mapping[str, str]) -> dict[int, str]:
    """Turn -> the policy that a person put in charge from it on, in order; mostly empty."""
    try:
        told = json.loads(meta.get(DECIDERS, "{}"))
        return {int(turn): str(told[turn]) for turn in sorted(told, key=int)}
    except (ValueError, TypeError):  # of a file that somebody wrote by hand
        return {}


def decider(policy: str, meta: Mapping[str, str], index: int) -> str:
    """The policy that decides turn `index` of an episode with this policy and `meta`."""
    last = [name for turn, name in changes(meta).items() if turn <= index]
    return last[-1] if last else policy


def decided_as(meta: Mapping[str, str], noted: Mapping[str, str]) -> dict[str, str]:
    """An episode's `meta` with what was `noted` elsewhere, and only that, of who decides."""
    rest = {key: value for key, value in meta.items() if key != DECIDERS}
    return {**rest, DECIDERS: noted[DECIDERS]} if DECIDERS in noted else rest


def carried(policy: str, meta: Mapping[str, str], index: int, to: str) -> dict[str, str]:
    """What the `meta` of an episode decided by `to` says of the turns before `index` that it took over from an episode
    with this policy and `meta`: empty when `to` decided them all."""
    before = {0: policy} | {turn: name for turn, name in changes(meta).items() if turn < index}
    if index == 0 or set(before.values()) == {to}:
        return {}
    told = before if [*before.values()][-1] == to else {**before, index: to}
    return {DECIDERS: json.dumps({str(turn): name for turn, name in told.items()})}


def changed(policy: str, meta: Mapping[str, str], index: int, to: str) -> dict[str, str]:
    """The `meta` of the same episode when `to` decides from turn `index` on, whatever was meant for later turns."""
    before = {turn: name for turn, name in changes(meta).items() if turn < index}
    rest = {key: value for key, value in meta.items() if key != DECIDERS}
    in_charge = [policy, *before.values()][-1]
    after = before if to == in_charge else {**before, index: to}
    told = {str(turn): name for turn, name in after.items()}
    return {**rest, DECIDERS: json.dumps(told)} if told else rest
