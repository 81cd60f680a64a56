"""Was it bad luck? The way to the answer from wherever a wrong episode is shown as one."""

from __future__ import annotations

from typing import NoReturn

import streamlit as st

from core.analysis.power import MOST_PLAYS
from core.episode import Status
from core.errors import TrinityError
from storage.rows.summaries import EpisodeSummary
from storage.store import Store
from ui.presentation.theme import label
from ui.runs import queue, wiring
from ui.runs.forks.planning import plan_luck
from ui.runs.forks.results import Luck, luck_runs, read_luck
from ui.runs.plans import ForkPlan
from ui.runs.queue import Ticket
from ui.runs.spending import paid_models
from ui.web.kit import state
from ui.web.kit.cache import cached, pool_specs, remembered
from ui.web.kit.widgets import button
from ui.web.progress.panel import is_under_way

WORDS = "Was it bad luck?"
_HELP = (
    f"Replays the episode with nothing changed, until it can be told whether the miss was bad luck: {MOST_PLAYS} times "
    "at most"
)
_runs = cached(luck_runs)


def luck_line(store: Store, summary: EpisodeSummary) -> None:
    """Of an episode that ended wrong: the button, or what its replays came to. Nothing of any other."""
    if summary.status is not Status.FINISHED or summary.correct is not False:
        return
    known = _runs(store).get(summary.id)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if known is not None and is_under_way(known[0]):
            st.markdown(f"**{WORDS}** It is being replayed.", width="content")
            state.page_link("forks", "See it", icon=":material/hourglass_top:", run=known[0].id)
            return
        found = read_luck(store, known[0].id, known[1]) if known else None
        if known is not None and found is not None and (found.plays or store.read_only):
            st.markdown(f"**{WORDS}** {label(found.sentence, 300)}", width="content")
            state.page_link("forks", "See the replays", icon=":material/casino:", run=known[0].id)
        if not store.read_only and (found is None or is_open(found)):
            luck_button(store, summary.id, again=found is not None)


def is_open(found: Luck) -> bool:
    """Whether more plays could still tell it."""
    return found.told is None and len(found.outcomes) < MOST_PLAYS


def luck_button(store: Store, episode: str, *, again: bool) -> None:
    """The button, or why there is nothing to press; `again`: some replays are there already."""
    why = _why_not(store, episode)
    words = "Replay it further" if again else WORDS
    if button(words, f"luck_{episode}", icon="casino", help=_HELP, disabled=bool(why)):
        _ask(store, episode)
    if why:
        st.caption(label(why, 400))


@remembered(most=256, seconds=30)
def _why_not(store: Store, episode: str) -> str:
    try:
        plan_luck(store, episode)
    except TrinityError as error:
        return str(error)
    return ""


def _ask(store: Store, episode: str) -> NoReturn:
    """To the run that replays it, which is begun where nobody has to be asked first."""
    plan = luck_plan(store, episode)
    if paid_models(pool_specs(plan.pool)):
        state.go("forks", ep=episode, luck=1)
    begin_luck(store, plan)


def luck_plan(store: Store, episode: str) -> ForkPlan:
    """What replays an episode; ConfigError where it cannot be replayed."""
    return plan_luck(store, episode, encoder=wiring.settings().encoder)


def begin_luck(store: Store, plan: ForkPlan) -> NoReturn:
    """To the run that is under way for this episode, in another tab perhaps, else to a new one."""
    known = luck_runs(store).get(plan.branches[0].parent)
    under_way = known[0].id if known is not None and is_under_way(known[0]) else None
    state.go("forks", run=under_way or queue.begin(store, plan, Ticket.new()))
