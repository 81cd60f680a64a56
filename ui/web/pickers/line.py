"""Which policies are compared, as the address gives them; no screen, no database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import unquote

from core.errors import StoreError
from storage.analysis.defaults import MOST_SIDES
from storage.analysis.standings import PolicyInRun, PolicySide, find_side

#: The address's word for the episodes of every run.
EVERY_RUN = "every"


@dataclass(frozen=True, slots=True)
class ComparedPolicies:
    """The policies of a comparison in their order, which of them is the baseline A, and which is looked at as B."""

    sides: tuple[PolicySide, ...]
    a: int
    b: int

    @property
    def base(self) -> PolicySide:
        """The baseline."""
        return self.sides[self.a]

    @property
    def chosen(self) -> PolicySide:
        """The policy that is set against it."""
        return self.sides[self.b]

    @property
    def others(self) -> tuple[PolicySide, ...]:
        """All but the baseline, in order."""
        return tuple(side for i, side in enumerate(self.sides) if i != self.a)

    def params(self) -> dict[str, str | None]:
        """The line as address parameters."""
        return {
            "c": listed([side.token for side in self.sides]),
            "base": self.base.token,
            "b": self.chosen.token,
            "page": None,
        }

    def swapped(self) -> ComparedPolicies:
        """B as the baseline and the baseline as B."""
        return replace(self, a=self.b, b=self.a)

    def taking(self, name: Literal["base", "b"], token: str) -> dict[str, str | None]:
        """Another policy as A ("base") or as B, as address parameters: what is the other one's swaps the two, what is
        not among the policies joins them, and nothing else changes."""
        if token == (self.chosen if name == "base" else self.base).token:
            return self.swapped().params()
        tokens = [side.token for side in self.sides]
        return self.params() | {"c": listed(dict.fromkeys([*tokens, token])), name: token}


def listed(tokens: Iterable[str]) -> str:
    """Tokens as one address parameter; a comma within a name does not part them."""
    return ",".join(token.replace("%", "%25").replace(",", "%2C") for token in tokens)


def parted(parameter: str) -> list[str]:
    """Inverse of `listed`, each token once."""
    return list(dict.fromkeys(unquote(token) for token in parameter.split(",") if token))


def compared_in_address(query: Mapping[str, str]) -> tuple[list[str], str | None, str | None]:
    """The tokens that an address asks for, its baseline and its B."""
    a, b = query.get("base"), query.get("b")
    tokens = parted(query.get("c", ""))
    tokens = [*([a] if a and a not in tokens else []), *tokens]
    tokens += [b] if b and b not in tokens else []
    return tokens, a or None, b or None


def line_of(
    query: Mapping[str, str], policies: Sequence[PolicyInRun], defaults: Sequence[str]
) -> tuple[ComparedPolicies | None, list[str]]:
    """The line that an address asks for, and its unknown tokens, whose places the `defaults` take; no line when fewer
    than two are left. An address with no known token means all `defaults`, the first of them as A and the last as B."""
    tokens, a, b = compared_in_address(query)
    known, gone = _found(policies, tokens)
    if not known:
        known, a, b = _found(policies, defaults)[0], defaults[0], defaults[-1]
    if gone or not query.get("c"):
        for token, side in _found(policies, defaults)[0].items():
            if len(set(known.values())) < 2:
                known.setdefault(token, side)
    sides = tuple(dict.fromkeys(known.values()))[:MOST_SIDES]
    if len(sides) < 2:
        return None, gone
    places = {token: sides.index(side) for token, side in known.items() if side in sides}
    given_a, given_b = places.get(a or ""), places.get(b or "")
    # A side that the address does not give never takes the place of one that it gives.
    base = given_a if given_a is not None else next(i for i in range(len(sides)) if i != given_b)
    left = [i for i in range(len(sides)) if i != base]
    return ComparedPolicies(sides, base, given_b if given_b in left else left[-1]), gone


def _found(policies: Sequence[PolicyInRun], tokens: Sequence[str]) -> tuple[dict[str, PolicySide], list[str]]:
    known: dict[str, PolicySide] = {}
    gone: list[str] = []
    for token in tokens:
        try:
            found = find_side(policies, token)
        except StoreError:
            gone.append(token)
            continue
        known.setdefault(token, found[0])
        for other in found[1:]:  # played under other settings too: never averaged, each stands for itself
            known.setdefault(other.token, other)
    return known, gone


def within(line: ComparedPolicies, policies: Sequence[PolicyInRun], run: str | None) -> ComparedPolicies:
    """The line with each policy that names no run of its own limited to `run`, if it played there."""
    here = {(one.policy, setting) for one in policies if one.run == run for setting in (None, one.setting)}
    sides = (
        replace(side, run=run) if side.run is None and (side.policy, side.setting) in here else side
        for side in line.sides
    )
    return replace(line, sides=tuple(sides))


def free_policies(line: ComparedPolicies) -> set[str]:
    """The policies that are compared without a run of their own."""
    return {side.policy for side in line.sides if side.run is None}


def shared_runs(line: ComparedPolicies, policies: Sequence[PolicyInRun]) -> list[str]:
    """Runs in which two or more of the policies played, newest first; first those in which all did."""
    free = free_policies(line)
    played = Counter(one.run for one in policies if one.policy in free)
    return [run for run, n in played.most_common() if n > 1]


def default_run(line: ComparedPolicies, policies: Sequence[PolicyInRun]) -> str | None:
    """The run whose episodes count unless a reader says otherwise: the newest in which all of them played. None, which
    is every run, where there is no such run."""
    options = shared_runs(line, policies)
    played = {(one.policy, one.run) for one in policies}
    if options and all((policy, options[0]) in played for policy in free_policies(line)):
        return options[0]
    return None
