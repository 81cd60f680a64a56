"""The one bar of a replay, at the foot of the page: steps, which turns are shown, find, ways on from the turn, menus,
share.

What only a menu offers has a key all the same: a button that is not seen listens for it. What the menu shows of it is
a second button, for a shut menu is not drawn.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import streamlit as st

from core.episode import Role
from storage.reads.episode_steps import TextMatch
from storage.rows.summaries import LOW_MARGIN, EpisodeSummary, TurnOutline
from storage.store import Store
from ui.export.page import page_of
from ui.presentation.course import BLUNDER_WORDS, LOW_WORDS, blunders, happenings, next_of
from ui.presentation.theme import label, plain
from ui.presentation.words import CUT, decider_words
from ui.web.kit import state
from ui.web.kit.cache import run_names
from ui.web.kit.widgets import download, outcome_badge, tool
from ui.web.pickers.checkpoints import generation_of
from ui.web.pickers.lists import held, toggle
from ui.web.turns.recording import Recording
from ui.web.turns.turn_card import turn_json
from ui.web.turns.variations import family_of

#: The episodes before and after one in the list that the reader came from.
Near = tuple[str | None, str | None]
#: The other episodes of a task, as they are grouped where one is chosen to compare with.
OTHERS, REPEATS = "The same task under other policies", "Repeats: the same policy, drawn again"
FORKS = "Forks: turns of one episode kept, one thing changed"
#: So many other episodes of a task are read, and so many of a group listed.
_READ, _LISTED = 200, 8


@dataclass(frozen=True, slots=True)
class Tool:
    """What a menu offers and a key does: its words, the name of its button, the key, and what a press of it calls."""

    words: str
    name: str
    shortcut: str
    act: Callable[[], object]
    icon: str = ""
    help: str | None = None
    disabled: bool = False


def listen(tools: Sequence[Tool]) -> None:
    """Have the keys of these do what they do; nothing of it is seen."""
    for one in tools:
        tool(one.words, one.name, one.act, shortcut=one.shortcut, disabled=one.disabled)


def offer(tools: Sequence[Tool]) -> None:
    """These as lines of an open menu, each with its key."""
    for one in tools:
        words = one.words if one.disabled else f"{one.words} :gray[{one.shortcut}]"
        tool(words, f"menu_{one.name}", one.act, icon=one.icon, help=one.help, disabled=one.disabled)


def turn_tools(
    outlines: Sequence[TurnOutline], cursor: int, go: Callable[[int], None], *, judged: bool
) -> list[Tool]:
    """The next turn of each kind, going round; no blunder unless the episode may be `judged`."""
    here = outlines[cursor]
    verifiers = tuple(one.index for one in outlines if one.role is Role.VERIFIER)
    same_model = tuple(one.index for one in outlines if one.model == here.model)
    same_role = tuple(one.index for one in outlines if one.role is here.role)
    low = tuple(one.index for one in outlines if one.margin is not None and one.margin < LOW_MARGIN)
    kinds: tuple[tuple[str, str, str, str | None, Sequence[int]], ...] = (
        ("Next blunder", "next_blunder", "B", BLUNDER_WORDS, blunders(outlines) if judged else ()),
        ("Next Verifier", "next_verifier", "V", None, verifiers),
        ("Next low margin", "next_low_margin", "M", LOW_WORDS, low),
        ("Next of the same model", "next_same_model", "S", None, same_model),
        ("Next in the same role", "next_same_role", "O", None, same_role),
    )
    found = []
    for words, name, shortcut, what, turns in kinds:
        turn = next_of(turns, cursor)
        act = partial(go, cursor if turn is None else turn)
        help = None if what is None else f"The next turn with {what}"
        found.append(Tool(words, name, shortcut, act, help=help, disabled=turn in (None, cursor)))
    return found


def episode_tools(episode_id: str, near: Near, leave_for: Callable[[str | None], None]) -> list[Tool]:
    """The ways to the episodes `near` this one, and into the basket or out of it."""
    found = []
    for words, shortcut, icon, other in (
        ("Previous", "P", "skip_previous", near[0]),
        ("Next", "N", "skip_next", near[1]),
    ):
        name, help = f"{words.lower()}_episode", f"{words} episode of the list"
        act = partial(leave_for, other)
        found.append(Tool(f"{words} episode", name, shortcut, act, icon, help, other is None))
    put, words = partial(toggle, episode_id), "Take out of basket" if episode_id in held() else "To basket"
    return [*found, Tool(words, "to_basket", "X", put, "shopping_basket")]


def same_task(store: Store, summary: EpisodeSummary) -> None:
    """Links to this episode beside each other one of its task: first those of other policies, then repeats, then
    forks, with the turn from which each was played anew."""
    others = store.episodes.same_task(summary.id, limit=_READ)
    if not others:
        st.caption("No other episode has played this task.")
        return
    ages = generation_of(store)
    family = {one.summary.id: one.fork_turn for one in family_of(store, summary.id)}
    fork_runs = {run for run in {one.run_id for one in others} if store.runs.get(run).kind == "fork"}
    groups: dict[str, list[EpisodeSummary]] = {OTHERS: [], REPEATS: [], FORKS: []}
    for one in others:
        forked = one.id in family or one.run_id in fork_runs
        groups[FORKS if forked else REPEATS if one.policy == summary.policy else OTHERS].append(one)
    for heading, members in groups.items():
        if members:
            st.caption(heading)
        for one in members[:_LISTED]:
            name = label(decider_words(one, ages), 90)
            more = _from_where(store, one, family) if heading == FORKS else ""
            words = f"{name} · {outcome_badge(one)} · {one.turns} turns{more}"
            state.page_link("pair", words, a=summary.id, b=one.id)
        if len(members) > _LISTED:
            st.caption(f"and {len(members) - _LISTED} older ones")


def _from_where(store: Store, one: EpisodeSummary, family: Mapping[str, int | None]) -> str:
    """What tells one of a family of forks from another, as markdown after its name."""
    turn = family.get(one.id)
    if one.id in family and turn is None:
        return " · the first recording"
    run = run_names(store, [one.run_id])[one.run_id]
    return f"{'' if turn is None else f' · from turn {turn + 1}'} · :gray[{label(run, 80)}]"


#: Places that are shown, and found at most; the strip marks every turn.
_SHOWN, MOST_FOUND = 12, 200


def find_field() -> None:
    """The field for words of the replies, which stand in the address as `find`."""
    # Set only where it differs: what is being typed must outlive the reruns of playing.
    if st.session_state.get("find", "") != (asked := state.param("find") or ""):
        st.session_state["find"] = asked
    st.text_input(
        "Find in this episode",
        key="find",
        placeholder="Find in the replies",
        label_visibility="collapsed",
        icon=":material/search:",
        width=230,
        on_change=lambda: state.set_params(find=(state.entered("find") or "").strip()[:200]),
    )


def found_list(found: Sequence[TextMatch], words: str, cursor: int) -> None:
    """The places as links; the current turn's stands out."""
    if not words:
        return
    if not found:
        st.caption(f"No reply of this episode says {label(words, 60)}.")
        return
    turns = len({one.index for one in found})
    more = f"; the first {_SHOWN} here" if len(found) > _SHOWN else ""
    at_least = "At least " if len(found) >= MOST_FOUND else ""
    n, m = ("s" if count > 1 else "" for count in (len(found), turns))
    says = "say" if n else "says"
    st.caption(f"{at_least}{len(found)} text{n} in {turns} turn{m} {says} {label(words, 60)}{more}.")
    address = st.query_params.to_dict()
    address.pop("show", None)
    with st.container(horizontal=True, gap="small"):
        for one in found[:_SHOWN]:
            here = "**" if one.index == cursor else ""
            place, query = f"Turn {one.index + 1}", address | {"t": str(one.index + 1)}
            if one.kind == "reasoning":
                place, query["show"] = f"{place} reasoning", "reasoning"
            state.page_link("replay", f"{here}{place}{here} · {_around(one.excerpt, words)}", query)


def _around(excerpt: str, words: str) -> str:
    """A few words before and after, so that a link holds one line."""
    at = max(0, excerpt.lower().find(words.lower()))
    begin = max(0, at - 16)
    return ("…" if begin else "") + label(excerpt[begin : at + len(words) + 24], 70)


_PARAM, _KEY = "only", "only_turns"


def _of_role(role: Role) -> Callable[[Sequence[TurnOutline]], list[int]]:
    return lambda outlines: [one.index for one in outlines if one.role is role]


def _changed(outlines: Sequence[TurnOutline]) -> list[int]:
    """The turns after which the answer was another one, the first answer among them."""
    answers = [None, *(one.answer_after for one in outlines)]
    return [turn for turn, (before, after) in enumerate(pairwise(answers)) if after not in (None, before)]


def _marked(outlines: Sequence[TurnOutline]) -> list[int]:
    return [index for index, here in enumerate(happenings(outlines)) if here]


#: What the address says -> its words, and the turns that are kept.
FILTERS: dict[str, tuple[str, Callable[[Sequence[TurnOutline]], list[int]]]] = {
    "thinker": ("Only Thinkers", _of_role(Role.THINKER)),
    "worker": ("Only Workers", _of_role(Role.WORKER)),
    "verifier": ("Only Verifiers", _of_role(Role.VERIFIER)),
    "changed": ("Answer changed", _changed),
    "marked": ("With a mark", _marked),
}


def shown_turns(outlines: Sequence[TurnOutline], cursor: int) -> list[int]:
    """The indices of the turns that are shown, in order; the one at the cursor always is."""
    chosen = FILTERS.get(state.param(_PARAM) or "")
    return sorted({cursor, *chosen[1](outlines)}) if chosen else list(range(len(outlines)))


def position_words(shown: Sequence[int], cursor: int, total: int) -> str:
    """Where the cursor is, for the foot of the page: `Turn 4 of 7`, and among how many when some are folded away."""
    here = f"Turn {cursor + 1:,} of {total:,}"
    return here if len(shown) == total else f"{here} · {len(shown):,} shown"


def turn_filter(outlines: Sequence[TurnOutline], *, judged: bool) -> None:
    """The field that chooses which turns are shown; its value stands in the address as `only`. Kinds without a turn are
    not offered, nor is `marked` unless the episode may be `judged`."""
    offered = {
        name: f"{words} ({len(turns)})"
        for name, (words, turns_of) in FILTERS.items()
        if (judged or name != "marked") and (turns := turns_of(outlines))
    }
    chosen = state.param(_PARAM) or ""
    if chosen in FILTERS:
        offered.setdefault(chosen, FILTERS[chosen][0])
    state.address_select(
        "Turns shown",
        {"": "Every turn", **offered},
        name=_PARAM,
        key=_KEY,
        widget="list",
        label_visibility="collapsed",
        width=170,
        help="Hides the other turns: the strip and the keys J and K then go over these turns only",
    )


def ways_to_share(recording: Recording, index: int) -> None:
    """A turn's link and JSON to copy, and the episode as a file."""
    st.caption("Link to this turn, as it is shown now")
    st.code(state.here(), language=None)
    st.caption("This turn as JSON")
    body = turn_json(recording.outlines[index], recording.text(index), recording.decision(index))
    if len(body) <= CUT:
        st.code(plain(body), language=None, wrap_lines=True, height=180)
    else:
        words = f"Save {len(body):,} characters"
        file_name = f"{recording.episode.id}-turn-{index + 1}.json"
        download(words, body, file_name, "application/json", key="save_turn", icon=None)
    words, file_name = "Save the whole episode as JSON", f"{recording.episode.id}.json"
    data = partial(episode_json, recording)
    download(words, data, file_name, "application/json", key="save_episode")


def episode_json(recording: Recording) -> str:
    """The episode with all its finished turns as JSON; hidden states in hex."""

    def readable(value: Any) -> str:
        return value.hex() if isinstance(value, bytes) else str(value)

    return json.dumps(asdict(recording.store.episodes.get(recording.episode.id)), default=readable, indent=1)


def save_button(store: Store, *episode_ids: str) -> None:
    """A download of one episode's page, or of two episodes' page; it is made when it is clicked."""
    help = (
        "One HTML file with everything shown here. It opens from disk, needs no network and runs no script."
    )
    file_name = f"{'-and-'.join(episode_ids)}.html"
    page = partial(page_of, store, episode_ids)
    download("Save as a page", page, file_name, "text/html", key="save_page", type="tertiary", help=help)
