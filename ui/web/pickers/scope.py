"""Which episodes a page counts: the filter bar of the pages that add up, with two policies side by side, one, or a
mixture of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import streamlit as st

from core.episode import Status
from storage.filters.episode_filter import EpisodeFilter, for_totals
from storage.rows.summaries import Facets, FacetValue
from storage.store import Store
from ui.answers.asked import Asked, Side
from ui.presentation.glossary import define
from ui.presentation.theme import code, label
from ui.presentation.words import policy_name
from ui.web.kit import state
from ui.web.kit.cache import cached
from ui.web.kit.widgets import tool
from ui.web.pickers.checkpoints import best_and_baseline, generation_of
from ui.web.pickers.facets import (
    aside_words,
    condition_chip,
    counted,
    facet,
    facets_of,
    fork_switch,
    sample_switch,
)

#: The parameter of the address that asks for all policies together.
MIXTURE = "mix"
#: What the bar itself sets; other conditions come with a link and are listed below it.
_OWN = ("policy", "family", "run", "forks", "samples")


@dataclass(frozen=True, slots=True)
class _Whose:
    """Whose episodes are counted: those of A and B, of one policy, or of all policies together."""

    a: str | None = None
    b: str | None = None
    policy: str | None = None
    chosen: bool = True  # by the address; else it is what the page opens on


def scope_bar(store: Store, *, everything: bool = False, apart: bool = False) -> Asked:
    """Draw the bar and give what it asks for; all of it stands in the address. Where the address names no policy these
    are the best checkpoint and its baseline; all policies together are a choice of the reader, and named a mixture.

    `apart`: what the page shows keeps policies apart by itself, and opens on all of them.

    `everything`: for a page about models, whoever called them: all policies, and also what totals leave out, such as
    live plays, forks and requests to the endpoint, unless the address says otherwise."""
    asked = EpisodeFilter.from_query(st.query_params.to_dict())
    where = replace(asked, forks=asked.forks or "with") if everything else for_totals(asked)
    names = generation_of(store)

    def say(policy: str) -> str:
        return policy_name(policy, names.get(policy))

    # Pages that add up count what is finished, and so do their lists.
    facets = facets_of(store, where if everything else replace(where, status=Status.FINISHED))
    whose = _whose(store, where, facets.policy, all_at_first=everything or apart)
    columns = st.columns([3, 3, 2, 3], vertical_alignment="bottom")
    with columns[0]:
        # Not what the policies add up to: a play in which somebody else decided a turn is of none of them.
        status = where.status if everything else Status.FINISHED
        every_status = facets_of(store, replace(where, policy=None)).status
        total = sum(one.n for one in every_status if status in (None, one.value))
        _choose_policy(whose, facets.policy, say, total)
    with columns[1]:
        _compare_with(whose, [one.value for one in facets.policy], say)
    for column, name, words in zip(columns[2:], ("family", "run"), ("Task family", "Run"), strict=True):
        look: dict[str, Any] = {"key": "scope", "least": 0, "index": None, "placeholder": "all"}
        with column:  # without an index it can be emptied again
            facet(store, name, words, getattr(where, name), getattr(facets, name), _change, **look)
    if not everything and not (apart and whose == _Whose()):
        _what_is_counted(whose, facets.policy, say)
    if everything:
        _beside_the_measured(where, facets)
    else:
        fork_switch(where, facets_of(store, where), _change, totals=True)
    sample_switch(where, facets_of(store, where), _change)
    _others(where)
    letters = (("A", whose.a), ("B", whose.b)) if whose.b is not None else (("", whose.policy),)
    n = len(facets.policy)
    every = f"a mixture of all {n} policies" if n > 1 and not everything else "all policies"
    sides = tuple(
        Side(letter, every if policy is None else say(policy), replace(where, policy=policy))
        for letter, policy in letters
    )
    together = Side("", every, replace(where, policy=None))
    return Asked(store, sides, together, whose.chosen, st.query_params.to_dict(), cached)


def _whose(
    store: Store, where: EpisodeFilter, policies: Sequence[FacetValue], *, all_at_first: bool
) -> _Whose:
    """Whose episodes the address asks for, else what the page opens on."""
    a, b = state.param("a"), state.param("b")
    open_policies = [one.value for one in policies]
    if b is not None:
        return _Whose(a or where.policy or next((one for one in open_policies if one != b), b), b)
    if where.policy is not None:
        return _Whose(policy=where.policy)
    if all_at_first or state.param(MIXTURE) or not open_policies:
        return _Whose()
    baseline, best = best_and_baseline(store, open_policies, samples=where.samples == "only")
    if baseline is None:
        return _Whose(policy=best, chosen=False)
    return _Whose(baseline, best, chosen=False)


def _choose_policy(
    whose: _Whose, policies: Sequence[FacetValue], say: Callable[[str], str], total: int
) -> None:
    """The policy, or A; or all of them together, `total` episodes."""
    name, chosen = ("a", whose.a) if whose.b else ("policy", whose.policy)
    counts = counted(policies, chosen)
    every = "all" if len(policies) < 2 else f"all {len(policies)} together"
    options = {"": f"{every} · {total:,}"}
    options |= {value: f"{say(value)} · {n:,}" for value, n in counts.items()}

    def write(policy: str | None) -> None:
        if not policy:
            _change(policy=None, a=None, b=None, **{MIXTURE: "all"})
        elif whose.b is None:
            _change(policy=policy, **{MIXTURE: None})
        else:
            _change(policy=None, a=policy, b=whose.b)

    words = "A" if whose.b else "Policy"
    which = f" Chosen: {code(chosen, 60)}." if chosen else ""
    state.select(words, options, chosen or "", write, key=f"scope_{name}", help=f"{define('Alone')}{which}")


def _compare_with(whose: _Whose, policies: Sequence[str], say: Callable[[str], str]) -> None:
    a, b = whose.a or whose.policy, whose.b
    others = [one for one in policies if one != a]
    if b is not None and b not in others:
        others = [b, *others]

    def write(second: str | None) -> None:
        if second is None:
            _change(policy=a, a=None, b=None)
        else:
            first = a or next((one for one in policies if one != second), None)
            _change(policy=None, a=first, b=second, **{MIXTURE: None})

    state.select(
        "B" if b else "Compare with",
        {one: say(one) for one in others},
        b,
        write,
        key="scope_b",
        index=None,
        placeholder="nothing",
        help="Choose a second policy to see the difference, B minus A.",
    )


def _what_is_counted(whose: _Whose, policies: Sequence[FacetValue], say: Callable[[str], str]) -> None:
    """How many of the episodes of all policies are counted, whose the others are, and the way to the other view."""
    if len(policies) < 2:
        return
    total = sum(one.n for one in policies)
    shown = [one for one in policies if one.value in (whose.a, whose.b, whose.policy)]
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if not shown and whose.policy is None and whose.b is None:
            st.markdown(
                f":material/blender: **A mixture**: {total:,} finished episodes of {len(policies)} policies, counted "
                "together. Its figures hold for none of these policies alone.",
                width="content",
            )
            back = partial(_change, policy=None, a=None, b=None, **{MIXTURE: None})
            tool("Show the best and its baseline", "scope_best", back, icon="balance")
            return
        n, others = sum(one.n for one in shown), len(policies) - len(shown)
        if not others:
            return
        words = "A and B" if whose.b is not None else "one policy"
        st.caption(f"Showing {words}: {n:,} of {total:,} finished episodes.", width="content")
        together = partial(_change, policy=None, a=None, b=None, **{MIXTURE: "all"})
        tool("Show all policies", "scope_mix", together, icon="blender")


def _beside_the_measured(where: EpisodeFilter, facets: Facets) -> None:
    """That forks, live plays and requests count here, or are left out, and the other choice; nothing without any."""
    them = aside_words(facets)
    if not them:
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if where.forks == "with":
            st.caption(f"Calls of every episode count here, {them} included.", width="content")
            leave = partial(_change, forks="without")
            tool("Leave these out", "scope_measured", leave, icon="filter_alt")
        elif where.forks == "without":
            st.caption(f"Left out: {them}.", width="content")
            tool("Count these too", "scope_measured", partial(_change, forks=None), icon="filter_alt_off")


def _change(**values: str | None) -> None:
    """A new selection: what was looked into belongs to the old one."""
    state.set_params(**{"into": None, **values})


def _others(where: EpisodeFilter) -> None:
    others = {name: value for name, value in where.to_query().items() if name not in _OWN}
    if not others:
        return
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.caption("Only episodes with", width="content")
        for name, value in others.items():
            words = f"{name.replace('_', ' ')}: {label(value, 40)}"
            condition_chip(f"scope_drop_{name}", words, partial(_change, **{name: None}))
