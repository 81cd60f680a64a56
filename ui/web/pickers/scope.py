"""Which episodes a page counts: the filter bar of the pages that add up, with two policies side by side or one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import streamlit as st

from core.episode import Status
from storage.analysis.routing import NEWEST, TurnReference
from storage.filters.episode_filter import EpisodeFilter, for_totals
from storage.rows.summaries import FacetValue
from storage.store import Store
from ui.presentation.glossary import define
from ui.presentation.theme import correct_mark, label, one_line
from ui.presentation.words import policy_name, strip_text
from ui.web.components import in_sight
from ui.web.kit import state
from ui.web.kit.buttons import tool
from ui.web.kit.tables import column_table
from ui.web.kit.widgets import nothing_here
from ui.web.pickers.checkpoints import generation_of
from ui.web.pickers.facets import condition_chip, counted, facets_of, fork_switch, sample_switch

#: What the bar itself sets; other conditions come with a link and are listed below it.
_OWN = ("policy", "family", "run", "forks", "samples")


@dataclass(frozen=True, slots=True)
class ScopeSide:
    """The episodes that are counted together, `letter` empty where there is one side only. `name` is plain text."""

    letter: str
    name: str
    where: EpisodeFilter

    @property
    def title(self) -> str:
        """The name with its letter, as markdown."""
        return f"{self.letter} · {label(self.name, 60)}" if self.letter else label(self.name, 60)

    def listed(self, q: str | None = None, **more: str | None) -> dict[str, str | None]:
        """The address parameters of a list of these episodes as totals count them, finished ones alone: those for
        which an expression of the filter language holds, and with more fields of the filter set."""
        where = self.where if q is None else self.where.narrowed(q)
        return {**where.to_query(), "status": Status.FINISHED.value, **more}

    def episodes(self, q: str | None = None, **more: str | None) -> str:
        """A link to the list that `listed` describes."""
        return state.href("episodes", **self.listed(q, **more))

    def link(self, words: str, q: str | None = None, **more: str | None) -> None:
        """A link on the page to the list that `listed` describes; `words` are markdown."""
        state.page_link("episodes", words, icon=":material/table_rows:", **self.listed(q, **more))


@dataclass(frozen=True, slots=True)
class Scope:
    """What the bar says: one side, or A and B. `say` names a policy."""

    sides: tuple[ScopeSide, ...]
    say: Callable[[str], str]

    @property
    def compared(self) -> bool:
        """Two policies are set against each other."""
        return len(self.sides) == 2


def scope_bar(store: Store, *, everything: bool = False) -> Scope:
    """Draw the bar and give what it says; all of it stands in the address. `everything`: also what totals leave out,
    such as live plays, forks and requests to the endpoint, unless the address says otherwise."""
    asked = EpisodeFilter.from_query(st.query_params.to_dict())
    where = replace(asked, forks=asked.forks or "with") if everything else for_totals(asked)
    names = generation_of(store)

    def say(policy: str) -> str:
        return policy_name(policy, names.get(policy))

    facets = facets_of(store, where)
    open_policies = [one.value for one in facets.policy]
    a, b = state.param("a"), state.param("b")
    if b is None:
        a = None
    elif a is None:
        a = where.policy or next((one for one in open_policies if one != b), b)
    columns = st.columns([3, 3, 2, 3], vertical_alignment="bottom")
    with columns[0]:
        words, name, chosen = ("A", "a", a) if b else ("Policy", "policy", where.policy)
        which = f" Chosen: `{label(chosen, 60)}`." if chosen else ""
        _choice(words, name, chosen, facets.policy, say, f"{define('Alone')}{which}")
    with columns[1]:
        _compare_with(a or where.policy, b, open_policies, say)
    with columns[2]:
        _choice("Task family", "family", where.family, facets.family, lambda value: one_line(value, 30))
    with columns[3]:
        _choice("Run", "run", where.run, facets.run, lambda value: one_line(value, 30))
    if not everything:
        fork_switch(where, facets, _change, totals=True)
    sample_switch(where, facets, _change)
    _others(where)
    if a and b:
        sides = tuple(
            ScopeSide(letter, say(policy), replace(where, policy=policy))
            for letter, policy in (("A", a), ("B", b))
        )
        return Scope(sides, say)
    return Scope((ScopeSide("", say(where.policy) if where.policy else "all policies", where),), say)


def _choice(
    words: str,
    name: str,
    chosen: str | None,
    values: Sequence[FacetValue],
    say: Callable[[str], str],
    help: str | None = None,
) -> None:
    counts = counted(values, chosen)
    state.select(
        words,
        {value: f"{say(value)} · {n:,}" for value, n in counts.items()},
        chosen,
        lambda value: _change(**{name: value}),
        key=f"scope_{name}",
        index=None,  # so that it can be emptied again
        placeholder="all",
        help=help,
    )


def _compare_with(a: str | None, b: str | None, policies: Sequence[str], say: Callable[[str], str]) -> None:
    others = [one for one in policies if one != a]
    if b is not None and b not in others:
        others = [b, *others]

    def write(second: str | None) -> None:
        if second is None:
            _change(policy=a, a=None, b=None)
        else:
            _change(policy=None, a=a or next((one for one in policies if one != second), None), b=second)

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


def _change(**values: str | None) -> None:
    """A new selection: what was looked into belongs to the old one."""
    state.set_params(**{"into": None, **values})


def _others(where: EpisodeFilter) -> None:
    """Conditions that came with the link."""
    others = {name: value for name, value in where.to_query().items() if name not in _OWN}
    if not others:
        return
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.caption("Only episodes with", width="content")
        for name, value in others.items():
            words = f"{name.replace('_', ' ')}: {label(value, 40)}"
            condition_chip(f"scope_drop_{name}", words, partial(_change, **{name: None}))


def behind(
    title: str, episodes: str, where: Mapping[str, str | None], found: Sequence[TurnReference], scope: Scope
) -> None:
    """What was clicked: its name as markdown, the way to its episodes, and its newest turns; it can be closed."""
    with st.container(border=True, key="behind"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(title, width="stretch")
            state.page_link("episodes", episodes, icon=":material/table_rows:", **where)
            tool("", "into_close", partial(state.set_params, into=None), icon="close", help="Close")
        if found:
            behind_table(found, scope, "behind_rows")
        else:
            nothing_here("No turn of these episodes is like that.")
        if len(found) == NEWEST:
            st.caption(f"The {NEWEST} newest.")
        in_sight("behind", title)


def behind_table(found: Sequence[TurnReference], scope: Scope, key: str) -> None:
    """The turns behind a number, each a link to its replay."""
    text = st.column_config.TextColumn
    links = [state.href("replay", ep=one.episode_id, t=one.index + 1) for one in found]
    marks = [correct_mark(one.correct) for one in found]
    column_table(
        {
            "open": (st.column_config.LinkColumn("Open", width=90, display_text="This turn"), links),
            "turn": (st.column_config.NumberColumn("Turn", width=50), [one.index + 1 for one in found]),
            "answer": (text("Answer", width=90), [f"{mark.glyph} {mark.word}" for mark in marks]),
            "question": (text("Question", width=330), [one_line(one.question, 90) for one in found]),
            "turns": (text("Turns", width=220), [strip_text(one.strip) for one in found]),
            "policy": (text("Policy", width=180), [scope.say(one.policy) for one in found]),
        },
        key=key,
        alt="Turns behind the number, newest first, each with a link to its replay",
    )
