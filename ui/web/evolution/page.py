"""An evolution or a training on its page: where it stands, what came of it, and its updates one by one."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from operator import attrgetter

import streamlit as st

from core.analysis.comparison import accuracy_over_tasks
from storage.analysis.defaults import comparable
from storage.analysis.standings import Figures, figures, policies_with_episodes, sides_of, task_sets
from storage.rows.summaries import RunStatus, RunSummary
from storage.store import Store
from ui.answers.learning import asked_of_course, nearest, shown
from ui.answers.training import commands
from ui.presentation.comparison import enumerated, plays_words, tasks_words
from ui.presentation.theme import label
from ui.presentation.words import ago, dollars, policy_name, share_words
from ui.runs.course import Course, Lineage, Training, read_course
from ui.runs.settings.learning import EvolutionPlan, TrainingPlan, usual_settings
from ui.web.analysis.page import show_answers
from ui.web.components.transport import autoplay, from_widget, keys_of, step_buttons, transport
from ui.web.kit import state
from ui.web.kit.cache import cached
from ui.web.kit.fields import settings_table
from ui.web.kit.widgets import button, nothing_here, popover
from ui.web.pickers.checkpoints import generation_of, own_and_shipped, play_link, policy_label, side_namer
from ui.web.pickers.line import default_run, line_of, listed, within
from ui.web.progress import Reached, RunTexts, is_under_way, standing, watch

#: A course is read again only when there are more updates.
read_once = st.cache_resource(
    max_entries=16,
    show_spinner=False,
    hash_funcs={Store: attrgetter("url"), RunSummary: attrgetter("id", "generations")},
)(read_course)
_figures = cached(figures)
_played = cached(policies_with_episodes)
_task_sets = cached(task_sets)
_comparable = cached(comparable)
#: Why the two may name different bests.
WHY_APART = "The tasks are not the same, and on so few of them luck alone can change the order of close ones."


def run_page(store: Store, run: RunSummary, second: RunSummary | None) -> None:
    """Everything below the list of runs; `second` is one of its kind on the same axes."""
    course = read_once(store, run)
    # Slots that are always there: what stands below keeps its place, and no ghost of it stays behind.
    top, progress, below = st.container(), st.container(), st.container()
    with top:
        texts = _headline(store, run, course)
    if is_under_way(run):
        with progress:
            watch(store, run, texts, reached)
    with below:
        if course.updates:
            _stage(store, course, second)
        elif is_under_way(run):
            nothing_here(f"The first {course.noun} will appear here by itself.", ":material/hourglass_top:")
        else:
            nothing_here(f"It ended before its first {course.noun}: nothing was learned.")
        if course.plan is not None:
            settings_table(course.plan, _usual(course.plan))


def _usual(plan: EvolutionPlan | TrainingPlan) -> Mapping[str, int | float]:
    """The settings of a plan that follow from others where nobody chooses them."""
    if isinstance(plan, TrainingPlan):
        return {}
    return usual_settings(plan.evolution.learner, plan.pool, plan.evolution.logit_spread)


# Where it stands


def _headline(store: Store, run: RunSummary, course: Lineage | Training) -> RunTexts:
    """What it is, how far it came, why it stopped, and how to go on with it or remove it; gives its texts."""
    noun, when = course.noun, f"before the next call or {course.noun}"
    texts = RunTexts(
        process="learns",
        stored=f"Every finished {noun} is kept, and every reply that was paid for.",
        stop="Stop",
        stop_help=f"Stops {when}. All that was paid for is kept, and it can be resumed.",
        stopping=f"Stopping at the next safe moment: {when} …",
    )
    done = course.indices[-1] if course.indices else 0
    of = f" of {course.planned}" if course.planned else ""
    cost = _cost(store, course) if course.updates else []
    begun = [f":gray[{label(course.learner_words, 30)}, begun {ago(run.created, time.time())}]", *cost]
    go_on = "Resume" if run.generations else "Start again"
    standing(store, run, texts, [f"{noun} **{done}**{of}", *begun], go_on=go_on)
    if run.status in (RunStatus.FAILED, RunStatus.CANCELLED) and not run.generations:
        help = "Nothing was learned; this frees its name."
        button("Remove it", "remove", partial(_remove, store, run.id), icon="delete", help=help)
    return texts


def _remove(store: Store, run_id: str) -> None:
    store.runs.delete(run_id)
    state.replace_params({})


def reached(store: Store, run: RunSummary) -> Reached:
    """How many updates are over, and how long the others take by the pace of the last five."""
    course = read_once(store, run)
    done, planned = (course.indices[-1] if course.indices else -1), course.planned or 1
    if done < 0:
        words = "The planner learns the form of workflows, and questions are chosen"
        if isinstance(course, Lineage):
            words = course.plan.survey_words if course.plan else "The encoder is loaded"
        return Reached(0, planned, f"{words}; then the start is validated")
    if done >= planned:
        return Reached(done, planned, f"The last {course.noun} is kept; the run is coming to its end")
    replies = store.learning.paid_replies(course.run).count(done + 1)
    words = f"{course.noun.capitalize()} {done + 1} of {planned} is being played, {replies:,} replies so far"
    if done < 2:
        return Reached(done, planned, words)
    last = course.updates[-min(5, done + 1) :]
    pace_s = (last[-1].wall_s - last[0].wall_s) / max(1, last[-1].index - last[0].index)
    return Reached(done, planned, words, pace_s * (planned - done))


def _cost(store: Store, course: Lineage | Training) -> list[str]:
    """What it cost so far, with the update under way; nothing where it is free and has no ceiling."""
    ceiling = course.plan.max_cost_usd if course.plan else None
    cost = store.runs.spent_usd(course.run)
    of = "" if ceiling is None else f" of {dollars(ceiling)}"
    return [f"{label(dollars(cost) + of, 60)} so far"] if cost or ceiling is not None else []


def _pair(store: Store, policy: str) -> Sequence[str]:
    """A kept checkpoint and the one that came with the program, to be played on the same tasks."""
    found = store.checkpoints.named(policy)
    return own_and_shipped(store, found.models if found else (), policy)


# The chosen update


def _stage(store: Store, course: Lineage | Training, second: RunSummary | None) -> None:
    """The slider over the updates, the steps to the next ones with the ways on from the chosen one and what it is, the
    answers of the address, and the bar that plays the updates through. Its number is `gen` in the address, else the
    last one."""
    indices, noun, what = course.indices, course.noun.capitalize(), f"{course.title} {course.name}"
    number, beside = (
        state.int_param("gen", 0, 10**9, indices[-1]),
        read_once(store, second) if second else None,
    )
    choices = st.query_params.to_dict()
    asked = asked_of_course(store, course, number, beside, choices=choices, remember=cached)
    at, total = shown(asked).at, len(indices)

    def go(place: int) -> None:
        state.set_params(gen=indices[place])

    def chosen() -> None:
        if (number := state.entered("generation")) is not None:
            from_widget(go)(nearest(indices, number))

    if total > 1:
        st.session_state["generation"] = indices[at]
        st.select_slider(noun, indices, key="generation", on_change=chosen)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        step_buttons(at, total, go, keys_of(course.noun))
        _ways_on(store, course, at)
    st.markdown(_line(course, at))
    show_answers("evolution", asked, partial(beside_recorded, store, course), name="panel")
    transport(what, at, total, go, noun, f"{noun} {indices[at]} of {indices[-1]}")
    autoplay(what, at, total, 0, go)


def _line(course: Course, at: int) -> str:
    """Which update is chosen, as markdown."""
    kept = course.updates[at].checkpoint_id
    checkpoint = f" · :gray[checkpoint {label(kept)}]" if kept else ""
    return f"**{course.noun.capitalize()} {course.indices[at]}** of {label(course.name, 40)}{checkpoint}"


def _ways_on(store: Store, course: Lineage | Training, at: int) -> None:
    """Playing the best of an evolution, or the chosen checkpoint, its episodes, comparing it with another, and what to
    type for it."""
    if isinstance(course, Lineage) and (kept := course.policies):
        best = course.indices[course.best] if course.best is not None else -1
        number = best if best in kept else max(kept)
        pair = _pair(store, kept[number])
        other = label(policy_label(store)(pair[0]), 60)
        play_link(f"Play {course.noun} {number} and {other} on the same tasks", pair)
    index = course.indices[at]
    policy = course.policies.get(index)
    if policy is None:
        return
    state.page_link("live", "Play this checkpoint live", icon=":material/play_circle:", play=policy)
    if isinstance(course, Lineage):
        if course.plan and course.plan.record != "none":
            words, icon = "Its recorded episodes", ":material/table_rows:"
            state.page_link("episodes", words, icon=icon, run=course.run, generation=index)
    else:
        if policy in store.checkpoints.policies_with_episodes():
            state.page_link("episodes", "Its episodes", icon=":material/table_rows:", policy=policy)
            words, icon = "Its workflows", ":material/route:"
            state.page_link("routing", words, icon=icon, policy=policy, part="workflows")
        play_link("Play it and another on the same tasks", _pair(store, policy))
    popover("Compare", f"compare_{course.noun}s", partial(_compare, store, course, index), icon="balance")
    if isinstance(course, Training):
        typed = commands(policy.removeprefix(course.prefix), index)
        show = partial(st.code, typed, language=None, wrap_lines=True)
        popover("Play or export it", "training_commands", show, icon="terminal")


def _compare(store: Store, course: Course, index: int) -> None:
    """The way to Checkpoints, with the policy of this number and another of the reader's choice; or to playing both
    where one of them has not played."""
    policies, noun = course.policies, course.noun
    others = [one for one in policies if one != index]
    if not others:
        st.caption(f"There is no other {noun} yet.")
        return
    chosen = st.selectbox(
        f"{noun.capitalize()} {index} with",
        others,
        index=len(others) - 1 if index == min(policies) else 0,
        key=f"compare_with_{index}",
        format_func=lambda value: f"{noun} {value}",
    )
    first, last = sorted((index, chosen))
    played = {facet.value for facet in store.episodes.facets().policy}
    if missing := [one for one in (first, last) if policies[one] not in played]:
        names = " and ".join(f"{noun} {one}" for one in missing)
        st.caption(f"No episode of {names} is recorded: play the same tasks under both first.")
        play_link("Play both on the same tasks", [policies[first], policies[last]])
        return
    state.page_link(
        "checkpoints",
        f"Compare {noun}s {first} and {last}",
        icon=":material/balance:",
        base=policies[first],
        b=policies[last],
    )


# Beside recorded episodes


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
