"""On the page of an evolution or a training: which of its policies the recorded episodes name as the best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from core.analysis.comparison import accuracy_over_tasks
from storage.analysis.defaults import comparable
from storage.analysis.standings import Figures, figures, policies_with_episodes, sides_of, task_sets
from storage.store import Store
from ui.presentation.comparison import enumerated, plays_words, tasks_words
from ui.presentation.theme import label
from ui.presentation.words import policy_name, share_words
from ui.runs.course import Course
from ui.web.kit import state
from ui.web.kit.cache import cached
from ui.web.pickers.checkpoints import generation_of, side_namer
from ui.web.pickers.line import default_run, line_of, listed, within

_figures = cached(figures)
_played = cached(policies_with_episodes)
_task_sets = cached(task_sets)
_comparable = cached(comparable)
#: Why the two may name different bests.
WHY_APART = "The tasks are not the same, and on so few of them luck alone can change the order of close ones."


def beside_recorded(store: Store, course: Course) -> None:
    """On a run's page: which of its policies the recorded episodes name as the best, on which tasks, and the way
    there."""
    if course.best is None:
        return
    here, names = _played(store), generation_of(store)
    players = {one.policy for one in here}
    mine = [policy for _, policy in sorted(course.policies.items()) if policy in players]
    if not mine:
        st.caption(
            f"No episode of any {course.short} of this run is recorded yet, so Checkpoints shows no accuracy "
            "of it yet."
        )
        return
    ids = _comparable(store, mine) or mine[-1:]
    line, _ = line_of({}, here, ids)
    sides = within(line, here, default_run(line, here)).sides if line else tuple(sides_of(here, ids[0])[:1])
    say, found = side_namer(store), _figures(store, sides)
    best = max(found, key=lambda one: one.summary.accuracy or 0.0)
    tasks = tasks_words(_task_sets(store, sides), families=False)
    often = plays_words(found, [say(one.side) for one in found])
    does = "is the best with" if len(found) > 1 else "has"
    sentence = (
        f"Checkpoints counts recorded episodes of other plays: {tasks}, {often}. There {say(best.side)} {does} "
        f"{_accuracy(best)}{_of_the_validated(course, found, best, players, names)}. {WHY_APART}"
    )
    address = {"c": listed(ids), "base": ids[0]} if len(ids) > 1 else {}
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.caption(label(sentence, 900), width="content")
        state.page_link(
            "checkpoints",
            f"{label(say(best.side), 60)} on Checkpoints",
            icon=":material/balance:",
            b=best.side.policy if best.side.policy != ids[0] else ids[-1],
            **address,
        )


def _accuracy(one: Figures) -> str:
    share, low, high = accuracy_over_tasks(one.by_task)
    return share_words(share, (low, high))


def _of_the_validated(
    course: Course,
    found: Sequence[Figures],
    best: Figures,
    players: set[str],
    names: Mapping[str, int | str | None],
) -> str:
    """What the recorded episodes say of the best validated one, the end of a sentence."""
    number = course.indices[course.best or 0]
    chosen = course.policies.get(number)
    name = policy_name(chosen, names.get(chosen)) if chosen else f"{course.short} {number}"
    own = [one for one in found if one.side.policy == chosen]
    if best.side.policy == chosen:
        return ", as it is here"
    if own:
        return f"; {name}, the best here, has {enumerated([_accuracy(one) for one in own])} there"
    if chosen is None or chosen not in players:
        return f"; {name}, the best here, has no recorded episode"
    return ""
