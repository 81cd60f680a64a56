"""An evolution or a training on its page: where it stands, what came of it, and its updates one by one."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import streamlit as st

from core.settings import POCKET_POOL
from storage.rows.summaries import RunStatus, RunSummary
from storage.store import Store
from ui.presentation.glossary import define
from ui.presentation.theme import label, percent
from ui.presentation.words import ago, dollars, share_words
from ui.runs.settings.learning import EvolutionPlan, TrainingPlan
from ui.web.components.transport import autoplay, from_widget, keys_of, step_buttons, transport
from ui.web.evolution.course import Course, Lineage, Training, read_course
from ui.web.evolution.panels import PANELS
from ui.web.evolution.progress import beside_recorded, validated_on
from ui.web.evolution.training_panels import PANELS as TRAINING_PANELS
from ui.web.evolution.training_panels import commands
from ui.web.kit import state
from ui.web.kit.fields import settings_table
from ui.web.kit.widgets import button, nothing_here, popover
from ui.web.pickers.checkpoints import own_and_shipped, play_link, policy_label
from ui.web.progress import Reached, RunTexts, is_under_way, standing, watch


def run_page(store: Store, run: RunSummary, second: RunSummary | None) -> None:
    """Everything below the list of runs; `second` is one of its kind on the same axes."""
    course = read_course(store, run)
    # Slots that are always there: what stands below keeps its place, and no ghost of it stays behind.
    top, progress, below = st.container(), st.container(), st.container()
    texts = _texts(course)
    with top:
        _headline(store, run, course, texts)
    if is_under_way(run):
        with progress:
            watch(store, run, texts, reached)
    with below:
        if course.updates:
            st.markdown(_best_words(course))
            beside = read_course(store, second) if second and second.generations else None
            _measured(store, course, _stage(store, course, beside))
        elif is_under_way(run):
            nothing_here(f"The first {course.noun} will appear here by itself.", ":material/hourglass_top:")
        else:
            nothing_here(f"It ended before its first {course.noun}: nothing was learned.")
        if course.plan is not None:
            settings_table(course.plan)


# Where it stands


def _texts(course: Course) -> RunTexts:
    when = f"before the next call or {course.noun}"
    return RunTexts(
        process="learns",
        stored=f"Every finished {course.noun} is kept, and every reply that was paid for.",
        stop="Stop",
        stop_help=f"Stops {when}. All that was paid for is kept, and it can be resumed.",
        stopping=f"Stopping at the next safe moment: {when} …",
    )


def _headline(store: Store, run: RunSummary, course: Lineage | Training, texts: RunTexts) -> None:
    """What it is, how far it came, why it stopped, and how to go on with it or remove it."""
    done = course.indices[-1] if course.indices else 0
    of = f" of {course.planned}" if course.planned else ""
    cost = _cost(store, course) if course.updates else []
    begun = [f":gray[{label(course.learner_words, 30)}, begun {ago(run.created, time.time())}]", *cost]
    go_on = "Resume" if run.generations else "Start again"
    standing(store, run, texts, [f"{course.noun} **{done}**{of}", *begun], go_on=go_on)
    if run.status in (RunStatus.FAILED, RunStatus.CANCELLED) and not run.generations:
        help = "Nothing was learned; this frees its name."
        button("Remove it", "remove", partial(_remove, store, run.id), icon="delete", help=help)


def _kind_facts(course: Lineage | Training) -> list[str]:
    """What it is, as markdown."""
    facts = [label(course.learner_words, 30)]
    if course.plan is not None:
        facts.append(f"tasks {label(course.plan.tasks, 40)}")
    match course.plan:
        case EvolutionPlan() as plan:
            svf = f" with SVF {label(plan.svf, 20)}" if plan.svf else ""
            facts += [f"{label(plan.head, 20)} head{svf}", f"seed {plan.evolution.seed}"]
        case TrainingPlan(learning=learning) as plan:
            facts.append(
                "a new pocket planner"
                if plan.planner == POCKET_POOL
                else f"planner {label(plan.planner, 40)}"
            )
            facts.append(f"{learning.questions} questions with {learning.rollouts} rollouts each")
            facts.append(f"seed {learning.seed}")
    return facts


def _remove(store: Store, run_id: str) -> None:
    store.runs.delete(run_id)
    state.replace_params({})


def reached(store: Store, run: RunSummary) -> Reached:
    """How many updates are over, and how long the others take by the pace of the last five."""
    course = read_course(store, run)
    done, planned = (course.indices[-1] if course.indices else -1), course.planned or 1
    if done < 0:
        words = "The planner learns the form of workflows, and questions are chosen"
        if isinstance(course, Lineage):
            words = course.plan.survey_words if course.plan else "The encoder is loaded"
        return Reached(0, planned, f"{words}; then the start is validated")
    if done >= planned:
        return Reached(done, planned, f"The last {course.noun} is kept; the run is coming to its end")
    words = f"{course.noun.capitalize()} {done + 1} of {planned} is being played"
    if done < 2:
        return Reached(done, planned, words)
    last = course.updates[-min(5, done + 1) :]
    pace_s = (last[-1].wall_s - last[0].wall_s) / max(1, last[-1].index - last[0].index)
    return Reached(done, planned, words, pace_s * (planned - done))


def duration(seconds: float) -> str:
    """How long something took, coarsely: `40 s`, `3.2 min`, `1.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


# What came of it


def _best_words(course: Lineage | Training) -> str:
    """What came of it, a sentence, as markdown."""
    if course.best is None or (best := course.validations[course.best]) is None:
        return f"No {course.noun} has been validated, so how good it became is not known."
    said = f"**{course.noun.capitalize()} {course.indices[course.best]} is the best validated**: "
    return f"{said}{share_words(best.share, best.interval)} of {best.n:,} held-apart tasks."


def _measured(store: Store, course: Lineage | Training, notes: Sequence[str]) -> None:
    """How the panel was measured (`notes`, markdown), what the run is and took, what was validated and what recorded
    episodes say, in one fold; above it the way to play its best."""
    if isinstance(course, Lineage) and (kept := course.policies):
        best = course.indices[course.best] if course.best is not None else -1
        number = best if best in kept else max(kept)
        pair = _pair(store, kept[number])
        other = label(policy_label(store)(pair[0]), 60)
        play_link(f"Play {course.noun} {number} and {other} on the same tasks", pair)
    with st.expander("How this is measured", icon=":material/straighten:", key="evolution_measured"):
        for note in filter(None, notes):
            st.caption(note)
        st.caption(" · ".join(_kind_facts(course)))
        st.caption(" · ".join(_took(course)), help=f"Time includes validation. {define('Cached reply')}")
        if course.best is not None:
            st.caption(validated_on(course))
            beside_recorded(store, course)


def _took(course: Lineage | Training) -> list[str]:
    """Episodes, time, and what was not asked for or read again."""
    last = course.updates[-1]
    pace = f", {last.episodes / last.wall_s:,.0f} a second" if last.episodes and last.wall_s > 0 else ""
    facts = [f"**{last.episodes:,}** episodes in **{duration(last.wall_s)}**{pace}"]
    if isinstance(course, Training):
        written = sum(one.written_tokens for one in course.stats)
        facts.append(f"**{course.tokens[-1]:,}** tokens of the pool, **{written:,}** written by the planner")
    shares = {"replies": saved_share(course, "calls", "calls_saved")}
    if isinstance(course, Lineage):
        shares["encodings"] = saved_share(course, "forwards", "decisions")
    saved = [f"**{percent(share)}** of {words}" for words, share in shares.items() if share is not None]
    return [*facts, f"{' and '.join(saved)} from cache"] if saved else facts


def saved_share(course: Lineage | Training, spent: str, saved: str) -> float | None:
    """The share of the work that was not done again. `saved` is counted apart from `spent` for replies, and
    includes it for transcripts read. None in runs that did not count it."""
    done, counted = course.total(spent), course.total(saved)
    if done is None or counted is None:
        return None
    work = counted if saved == "decisions" else done + counted
    return max(0.0, 1 - done / work) if work else None


def _cost(store: Store, course: Lineage | Training) -> list[str]:
    """What it cost so far, with the update under way; nothing where it is free and has no ceiling."""
    unfinished = store.learning.paid_replies(course.run).spent_usd(course.indices[-1] + 1)
    ceiling = course.plan.max_cost_usd if course.plan else None
    cost = course.updates[-1].spent_usd + unfinished
    of = "" if ceiling is None else f" of {dollars(ceiling)}"
    return [f"{label(dollars(cost) + of, 60)} so far"] if cost or ceiling is not None else []


def _pair(store: Store, policy: str) -> Sequence[str]:
    """A kept checkpoint and the one that came with the program, to be played on the same tasks."""
    found = store.checkpoints.named(policy)
    return own_and_shipped(store, found.models if found else (), policy)


# The chosen update


def nearest(indices: Sequence[int], number: int) -> int:
    """The place of a number among those that are there, or of the nearest one."""
    return min(range(len(indices)), key=lambda place: abs(indices[place] - number))


def _stage(store: Store, course: Lineage | Training, second: Lineage | Training | None) -> Sequence[str]:
    """The slider over the updates, the steps to the next ones with the ways on from the chosen one, the panel of the
    address, and what the chosen one is; the bar that plays them through. Its number is `gen` in the address, else the
    last one. Gives how the panel was measured."""
    indices, noun, what = course.indices, course.noun.capitalize(), f"{course.title} {course.name}"
    at, total = nearest(indices, state.int_param("gen", 0, 10**9, indices[-1])), len(indices)

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
        panels: Any = TRAINING_PANELS if isinstance(course, Training) else PANELS
        titles = {name: title for name, (title, _) in panels.items()}
        panel = state.address_select("Panel", titles, name="panel", key=f"panel_{course.noun}")
    notes: Sequence[str] = panels[panel][1](store, course, at, second) or ()
    st.markdown(_line(course, at))
    transport(what, at, total, go, noun, f"{noun} {indices[at]} of {indices[-1]}")
    autoplay(what, at, total, 0, go)
    return notes


def _line(course: Lineage | Training, at: int) -> str:
    """What the chosen update is, as markdown."""
    index, validated = course.indices[at], course.validations[at]
    parts = [f"**{course.noun.capitalize()} {index}** of {label(course.name, 40)}"]
    parts += _candidates_line(course, at) if isinstance(course, Lineage) else _rollouts_line(course, at)
    if validated is not None:
        low, high = validated.interval
        share = f"**{percent(validated.share)}** of {validated.n}"
        parts.append(f"validated {share} ({percent(low)} to {percent(high)})")
    if isinstance(course, Lineage):
        parts.append(f"{course.reach_words} {course.stats[at].sigma:.3g}")
    if kept := course.updates[at].checkpoint_id:
        parts.append(f":gray[checkpoint {label(kept)}]")
    return " · ".join(parts)


def _candidates_line(lineage: Lineage, at: int) -> list[str]:
    one = lineage.stats[at]
    if not lineage.indices[at]:
        return []
    return [f"mean {percent(one.mean)}, best {percent(one.best)}, median {percent(one.median)}"]


def _rollouts_line(training: Training, at: int) -> list[str]:
    stats = training.stats[at]
    if (played := stats.rollouts) is None:
        return []
    forced = " (forced by the grammar)" if training.forced else ""
    parts = [
        f"{percent(played.right)} of {played.n:,} rollouts right, {percent(played.readable)} readable{forced}",
        f"mean reward {stats.reward_mean:.2f}, signal {percent(stats.signal)}",
    ]
    if played.steps_mean == played.steps_mean:
        parts.append(f"{played.steps_mean:.1f} steps")
    return [*parts, f"{played.missing:,} missing"] if played.missing else parts


def _ways_on(store: Store, course: Lineage | Training, at: int) -> None:
    """Playing the chosen checkpoint, its episodes, comparing it with another, and what to type for it."""
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
        show = partial(commands, policy.removeprefix(course.prefix), index)
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
