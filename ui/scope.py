"""Which episodes a page counts: the filter bar of the pages that add up, with two policies side by side or one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import streamlit as st

from storage.filters import EpisodeFilter, measured
from storage.routing import NEWEST, Behind
from storage.store import Store
from storage.summaries import FacetValue
from ui import state
from ui.facets import facets_of, fork_switch
from ui.glossary import define
from ui.theme import correct_mark, label, one_line
from ui.widgets import generations, nothing_here, strip_text, who

#: What the bar itself sets; other conditions come with a link and are shown beside it.
_OWN = ("policy", "family", "run", "forks")


@dataclass(frozen=True, slots=True)
class Side:
    """The episodes that are counted together, `letter` empty where there is one side only. `name` is plain text."""

    letter: str
    name: str
    where: EpisodeFilter

    @property
    def title(self) -> str:
        """The name with its letter, as markdown."""
        return f"{self.letter} · {label(self.name, 60)}" if self.letter else label(self.name, 60)

    def episodes(self, **more: str | None) -> str:
        """A link to these episodes, narrowed."""
        return state.href("episodes", **{**self.where.to_query(), **more})

    def link(self, words: str, **more: str | None) -> None:
        """The same as a link on the page; `words` are markdown."""
        state.page_link("episodes", words, icon=":material/table_rows:", **{**self.where.to_query(), **more})


@dataclass(frozen=True, slots=True)
class Scope:
    """What the bar says: one side, or A and B. `say` names a policy."""

    sides: tuple[Side, ...]
    say: Callable[[str], str]

    @property
    def compared(self) -> bool:
        """Two policies are set against each other."""
        return len(self.sides) == 2


def scope_bar(store: Store) -> Scope:
    """Draw the bar and give what it says; all of it stands in the address."""
    where = measured(EpisodeFilter.from_query(st.query_params.to_dict()))
    born = generations(store.checkpoints.list())

    def say(policy: str) -> str:
        return who(policy, born.get(policy))

    facets = facets_of(store, where)
    open_policies = [one.value for one in facets.policy]
    a, b = state.param("a"), state.param("b")
    if b is None:
        a = None
    elif a is None:
        a = where.policy or next((one for one in open_policies if one != b), b)
    columns = st.columns([3, 3, 2, 3], vertical_alignment="bottom")
    with columns[0]:
        _choice(
            "A" if b else "Policy",
            "a" if b else "policy",
            a if b else where.policy,
            facets.policy,
            say,
            define("Alone"),
        )
    with columns[1]:
        _compare_with(a or where.policy, b, open_policies, say)
    with columns[2]:
        _choice("Task family", "family", where.family, facets.family, lambda value: one_line(value, 30))
    with columns[3]:
        _choice("Run", "run", where.run, facets.run, lambda value: one_line(value, 30))
    fork_switch(where, facets, _change, totals=True)
    _others(where)
    if a and b:
        sides = tuple(
            Side(letter, say(policy), replace(where, policy=policy))
            for letter, policy in (("A", a), ("B", b))
        )
        return Scope(sides, say)
    return Scope((Side("", say(where.policy) if where.policy else "all policies", where),), say)


def _choice(
    words: str,
    name: str,
    chosen: str | None,
    values: Sequence[FacetValue],
    say: Callable[[str], str],
    help: str | None = None,
) -> None:
    counts = {one.value: one.n for one in values}
    if chosen is not None and chosen not in counts:
        counts = {chosen: 0, **counts}
    key = f"scope_{name}"
    st.session_state[key] = chosen
    st.selectbox(
        words,
        list(counts),
        index=None,  # so that it can be emptied again
        key=key,
        placeholder="all",
        help=help,
        format_func=lambda value: f"{say(value)} · {counts[value]:,}",
        on_change=lambda: _change(**{name: st.session_state[key]}),
    )


def _compare_with(a: str | None, b: str | None, policies: Sequence[str], say: Callable[[str], str]) -> None:
    others = [one for one in policies if one != a]
    if b is not None and b not in others:
        others = [b, *others]
    st.session_state["scope_b"] = b

    def chosen() -> None:
        second = st.session_state["scope_b"]
        if second is None:
            _change(policy=a, a=None, b=None)
        else:
            _change(policy=None, a=a or next((one for one in policies if one != second), None), b=second)

    st.selectbox(
        "B" if b else "Set against",
        others,
        index=None,
        key="scope_b",
        placeholder="nothing",
        format_func=say,
        on_change=chosen,
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
            st.button(
                f"{name.replace('_', ' ')}: {label(value, 40)}",
                key=f"scope_drop_{name}",
                icon=":material/close:",
                on_click=_change,
                kwargs={name: None},
                help="Let this condition go",
            )


def behind(
    title: str, episodes: str, where: Mapping[str, str | None], found: Sequence[Behind], scope: Scope
) -> None:
    """What was clicked: its name as markdown, the way to its episodes, and its newest turns; it can be closed."""
    with st.container(border=True, key="behind"):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(title, width="stretch")
            state.page_link("episodes", episodes, icon=":material/table_rows:", **where)
            st.button(
                "",
                key="into_close",
                icon=":material/close:",
                type="tertiary",
                help="Close",
                on_click=state.set_params,
                kwargs={"into": None},
            )
        if not found:
            nothing_here("No turn of these episodes is like that.")
            return
        behind_table(found, scope, "behind_rows")
        if len(found) == NEWEST:
            st.caption(f"The {NEWEST} newest.")


def behind_table(found: Sequence[Behind], scope: Scope, key: str) -> None:
    """The turns behind a number, each a link to its replay."""
    st.dataframe(
        {
            "open": [state.href("replay", ep=one.episode_id, t=one.index + 1) for one in found],
            "turn": [one.index + 1 for one in found],
            "answer": [f"{(mark := correct_mark(one.correct)).glyph} {mark.word}" for one in found],
            "question": [one_line(one.question, 90) for one in found],
            "turns": [strip_text(one.strip) for one in found],
            "policy": [scope.say(one.policy) for one in found],
        },
        key=key,
        hide_index=True,
        height="content" if len(found) < 9 else 320,
        column_config={
            "open": st.column_config.LinkColumn("Open", width=90, display_text="This turn"),
            "turn": st.column_config.NumberColumn("Turn", width=50),
            "answer": st.column_config.TextColumn("Answer", width=90),
            "question": st.column_config.TextColumn("Question", width=330),
            "turns": st.column_config.TextColumn("Turns", width=220),
            "policy": st.column_config.TextColumn("Policy", width=180),
        },
        alt="Turns behind the number, newest first, each with a link to its replay",
    )
