"""Parts of the Routing page about what coordination is good for: against models alone, against luck, and without
a model of the pool."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict

import streamlit as st

from core.analysis.metrics import Mean
from core.play.policies import SINGLE
from storage.analysis.counterfactual import Without, each_missed, without_models
from storage.analysis.regret import (
    Contestant,
    Regret,
    Replicate,
    regret,
    replicated_tasks,
    replicates,
)
from storage.analysis.routing import pool_order
from storage.analysis.standings import policies_with_episodes
from storage.store import Store
from ui.presentation.glossary import define
from ui.presentation.theme import (
    FIRST_COLOUR,
    NEUTRAL_COLOUR,
    correct_mark,
    label,
    one_line,
    percent,
    plain,
)
from ui.presentation.words import right_words, setting_words, strip_text
from ui.runs.plans import BatchPlan, known_plan
from ui.web.kit import state
from ui.web.kit.cache import cached
from ui.web.kit.chart import plot
from ui.web.kit.estimates import Estimate, estimates_figure
from ui.web.kit.figures import horizontal_bars, literal
from ui.web.kit.tables import link, number, row_table, text
from ui.web.kit.widgets import nothing_here
from ui.web.pickers.checkpoints import default_checkpoints, like_chance
from ui.web.pickers.facets import facets_of
from ui.web.pickers.scope import Scope, ScopeSide
from ui.web.routing.figures import replicate_tree

_pool_order = cached(pool_order)
_regret = cached(regret)
_replicated = cached(replicated_tasks)
_played = cached(policies_with_episodes)
_without = cached(without_models)
_each_missed = cached(each_missed)
ORACLE = "solved by any of them alone (upper bound)"


def compared_with_models(store: Store, scope: Scope) -> None:
    """The policy against every model alone, on the tasks that all played."""
    st.subheader("Does coordinating pay?", help=define("Regret"))
    for side in scope.sides:
        policy = _chosen_policy(store, side)
        if policy is None:
            nothing_here("Choose a policy above that is not a single model.")
            continue
        found = _regret(store, side.where, policy)
        alone = {one.name.removeprefix(SINGLE) for one in found.contestants if one.name}
        alone |= {policy.removeprefix(SINGLE)} if policy.startswith(SINGLE) else set()
        left = [model for model in _pool_order(store, side.where) if model not in alone]
        _against(found, scope, side.letter, left)
        if left:
            which = "Not played alone yet" if alone else "No model alone has played"
            names = label(", ".join(left), 200)
            st.markdown(
                f"{which} on these tasks with the same turn budget, rules and pool: {names}. From a terminal, on the "
                "tasks of the same run:"
            )
            st.code(plain(play_alone(store, side.where.run, policy, left)), language=None, wrap_lines=True)
    policies = [policy for side in scope.sides if (policy := _chosen_policy(store, side))]
    if same := like_chance(store, policies, scope.say):
        st.caption(label(same, 600))


def _chosen_policy(store: Store, side: ScopeSide) -> str | None:
    """The side's policy; where it has none, the newest of the checkpoints that other pages compare by default, else the
    policy with most episodes that is not a single model, checkpoints first."""
    if side.where.policy:
        return side.where.policy
    known = {one.id for one in store.checkpoints.list()}
    preferred = default_checkpoints(store)[-1:]
    played = [one.value for one in facets_of(store, side.where).policy if not one.value.startswith(SINGLE)]
    return next(
        (one for wanted in (preferred, known, played) for one in played if one in wanted),
        None,
    )


def play_alone(store: Store, run: str | None, policy: str, models: Sequence[str]) -> str:
    """The command that plays models alone on the tasks of a policy's run, the newest where none is meant."""
    runs = [one.run for one in _played(store) if one.policy == policy and run in (None, one.run)]
    plans = [plan for one in runs if isinstance(plan := known_plan(store.runs.get(one)), BatchPlan)]
    words = [word for model in models for word in ("--policy", f"{SINGLE}{model}")]
    of = asdict(plans[0]) if plans else {"tasks": "…"}
    for name in ("tasks", "split", "n", "seed", "turns", "protocol", "pool"):
        if of.get(name) is not None:
            words += [f"--{name}", str(of[name])]
    return " ".join(["trinity", "run", *(word if word == "…" else shlex.quote(word) for word in words)])


def _against(found: Regret, scope: Scope, letter: str, left: Sequence[str]) -> None:
    name = scope.say(found.policy)
    st.markdown(f"**{letter + ' · ' if letter else ''}{label(name, 60)}**")
    if not found.tasks:
        return
    st.markdown(verdict(found, scope, whole_pool=not left))
    contestants = sorted(_shown_contestants(found), key=lambda one: -one.accuracy.mean)
    ahead_of_it = [one for one in contestants if one.accuracy.mean > found.accuracy.mean]
    place = len(ahead_of_it)  # of the policy itself, among them
    shares, points = st.columns(2, gap="large")
    with shares:
        st.caption(
            f"Share solved of the {found.tasks:,} tasks that all have played, 95 % interval over tasks"
        )
        rows = [_estimate(_name(one, scope), one.accuracy) for one in contestants]
        rows.insert(place, _estimate(name, found.accuracy, stands_out=True))
        plot(
            estimates_figure(rows, "share of tasks solved"),
            key=f"solved_{letter}",
            small=True,
            alt="; ".join(f"{one.name} {percent(one.value)}" for one in rows),
        )
    with points:
        st.caption(
            f"How far {label(name, 40)} is ahead on the same tasks, in points; left of the line it is behind"
        )
        rows = [_estimate(_name(one, scope), one.ahead, stands_out=one.ahead.low > 0) for one in contestants]
        plot(
            estimates_figure(
                [*rows[:place], Estimate("", 0.0, 0.0, 0.0), *rows[place:]], "points ahead", signed=True
            ),
            key=f"ahead_{letter}",
            small=True,
            alt="; ".join(f"{100 * one.value:+.1f} points to {one.name}" for one in rows),
        )
    oracle = (
        "The upper bound counts a task as solved if any of these tries was right. No policy can reach it: of several "
        "models, or several tries, one is right by chance. "
    )
    if found.settings and not found.settings[0].is_recorded:
        st.caption(f"Under this setting: {setting_words(found.settings[0], found.settings)}.")
    if len(found.settings) > 1:
        under, others = setting_words(found.settings[0], found.settings), len(found.settings) - 1
        st.caption(
            f"All under one setting: {under}. {label(name, 60)} was played under {others} more, which "
            f"{'is' if others == 1 else 'are'} left out; filter by budget, protocol or pool to see "
            f"{'it' if others == 1 else 'them'}."
        )
    several = any(one.name is None for one in contestants)
    st.caption(f"{oracle if several else ''}Tasks count once, however often they were played.")
    if found.left_out:
        named = ", ".join(f"{scope.say(policy)} ({n:,})" for policy, n in found.left_out.items())
        st.caption(f"Left out, because they share too few tasks: {label(named, 200)}.")
    _missed(found, letter)


def _shown_contestants(found: Regret) -> Sequence[Contestant]:
    """The contestants; the upper bound only where there are several to choose from."""
    alone = [one for one in found.contestants if one.name is not None]
    return alone if len(alone) == 1 else found.contestants


def verdict(found: Regret, scope: Scope, *, whole_pool: bool) -> str:
    """The answer in one sentence, as markdown. `whole_pool`: every model of the pool was played alone."""
    alone = [one for one in found.contestants if one.name is not None]
    best = max(alone, key=lambda one: one.accuracy.mean)
    ahead = best.ahead
    name, other = label(scope.say(found.policy), 60), label((best.name or "").removeprefix(SINGLE), 60)
    points = f"{abs(100 * ahead.mean):.1f} points (95 % {100 * ahead.low:+.1f} to {100 * ahead.high:+.1f})"
    if len(alone) == 1 and not whole_pool:
        other = f"{other}, the only model that has been played alone on these tasks,"
    elif whole_pool:
        other = f"the best model alone, {other},"
    else:
        other = f"{other}, the best of the {len(alone)} models that have been played alone on these tasks,"
    if ahead.low > 0:
        return f"**Yes.** {name} solves more than {other} by {points}."
    if ahead.high < 0:
        return f"**No.** {name} solves less than {other} by {points}."
    return f"**Not enough to tell.** {name} and {other} differ by {points}."


def _name(one: Contestant, scope: Scope) -> str:
    return ORACLE if one.name is None else scope.say(one.name)


def _estimate(name: str, mean: Mean, *, stands_out: bool = False) -> Estimate:
    colour = FIRST_COLOUR if stands_out else NEUTRAL_COLOUR
    return Estimate(name, mean.mean, mean.low, mean.high, colour=colour)


def _missed(found: Regret, letter: str) -> None:
    if not found.missed:
        return
    n = f"{len(found.missed)}{'+' if len(found.missed) == 50 else ''}"
    with st.expander(f"Tasks where a model alone did better ({n})", icon=":material/table_rows:"):
        row_table(
            {
                "pair": link("Both episodes", "Side by side", width=110),
                "question": text("Question", width="large"),
                "ours": "Right here",
                "best": "Best model alone",
                "theirs": "Right there",
            },
            [
                (
                    state.href(
                        "pair",
                        a=one.ours.wrong_episode or one.ours.right_episode,
                        b=one.theirs.right_episode or one.theirs.wrong_episode,
                    ),
                    one_line(one.question, 100),
                    f"{one.ours.right} of {one.ours.n}",
                    one_line(one.best.removeprefix(SINGLE), 40),
                    f"{one.theirs.right} of {one.theirs.n}",
                )
                for one in found.missed
            ],
            key=f"missed_{letter}",
        )


# Luck


def replicated_tasks_panel(store: Store, scope: Scope) -> None:
    """Tasks that one policy played several times, one of them as a tree."""
    st.subheader("Where does luck enter?")
    side = scope.sides[-1]
    tasks = _replicated(store, side.where)
    chosen, policy = state.param("task"), side.where.policy
    if chosen is None and tasks:
        chosen, policy = tasks[0].task_id, tasks[0].policy
    elif chosen is not None and policy is None:
        policy = next((one.policy for one in tasks if one.task_id == chosen), None)
    if chosen is None or policy is None:
        nothing_here(
            "No policy has played a task more than once here. Play the same file of tasks again with another seed:"
        )
        st.code("trinity run --policy … --tasks … --seed 1", language=None)
        return
    found = replicates(store, side.where, policy, chosen)
    if len(found) > 1:
        question = next((one.question for one in tasks if one.task_id == chosen), chosen)
        _tree(found, question, scope.say(policy))
    else:
        nothing_here("This task has not been played more than once by one policy of this selection.")
    st.markdown("**Other tasks played several times**, those with the most mixed outcome first")
    query = {**side.where.to_query(), "part": "luck"}
    row_table(
        {
            "open": link("Tree", "Show", width=70),
            "question": text("Question", width="large"),
            "policy": "Policy",
            "n": number("Played"),
            "right": number("Right"),
        },
        [
            (
                state.href("routing", **{**query, "task": one.task_id, "policy": one.policy}),
                one_line(one.question, 100),
                scope.say(one.policy),
                one.n,
                one.right,
            )
            for one in tasks
        ],
        key="replicated",
    )


def _tree(found: Sequence[Replicate], question: str, policy: str) -> None:
    right = right_words([one.correct for one in found])
    st.markdown(
        f"{label(policy, 60)} played this task **{len(found)} times, {right}**: {label(question, 120)}"
    )
    st.caption(
        "From top to bottom, turn by turn: episodes stay together while they make the same moves; the last cell says "
        "how they ended. Width is how many. Click a cell to enlarge it."
    )
    plot(
        replicate_tree(found),
        key="replicate_tree",
        small=True,
        alt="; ".join(f"{strip_text(one.strip)} {correct_mark(one.correct).word}" for one in found[:20]),
    )
    with st.expander("Each of them", icon=":material/table_rows:"):
        marks = [correct_mark(one.correct) for one in found]
        row_table(
            {
                "open": link("Open", "Replay", width=80),
                "answer": "Answer",
                "turns": text("Turns", width="large"),
            },
            [
                (state.href("replay", ep=one.episode_id), f"{mark.glyph} {mark.word}", strip_text(one.strip))
                for one, mark in zip(found, marks, strict=True)
            ],
            key="replicate_rows",
        )


# Without a model


def without_model(store: Store, scope: Scope) -> None:
    """What would be picked if some models could not be."""
    st.subheader("What if a model were not there?")
    side = scope.sides[-1]
    if scope.compared:
        st.markdown(f"**{side.title}**")
    models = _pool_order(store, side.where)
    off = [one for one in (state.param("off") or "").split(",") if one in models]
    st.session_state["routing_off"] = off
    st.pills(
        "Leave out",
        models,
        key="routing_off",
        selection_mode="multi",
        format_func=lambda model: label(model, 30),
        on_change=lambda: state.set_params(off=",".join(state.entered("routing_off", models) or ()) or None),
    )
    if not off:
        _each_alone(store, side, models)
        return
    if len(off) == len(models):
        nothing_here("No model is left to choose from: keep at least one.")
        return
    found = _without(store, side.where, off)
    if not found.turns:
        nothing_here("These episodes have no decisions with logits, so there is nothing to choose again.")
        return
    _changed_picks(found)
    side.link("Episodes of this selection")


def _each_alone(store: Store, side: ScopeSide, models: Sequence[str]) -> None:
    """What each model's absence would touch, the least first."""
    found = _each_missed(store, side.where, models)
    if not any(each.turns for each in found.values()):
        nothing_here("These episodes have no decisions with logits, so there is nothing to choose again.")
        return
    measured = " Forks and live plays are not counted." if side.where.forks == "without" else ""
    st.caption(
        "Each model left out alone, the least missed first. Tick one above to see who would step in, or several to "
        f"leave them out together.{measured}"
    )
    row_table(
        {
            "model": "Without",
            "picks": text("Picks that would change"),
            "episodes": text("Episodes touched"),
        },
        [
            (
                one_line(name, 30),
                f"{each.changed:,} of {each.turns:,}, {percent(each.changed / each.turns)}",
                f"{each.touched:,} of {each.episodes:,}, {percent(each.touched / each.episodes)}",
            )
            for name, each in found.items()
        ],
        key="each_alone",
    )
    st.caption(_ONLY_PLAYING)


#: What picks alone cannot tell.
_ONLY_PLAYING = (
    "No model is asked: stored logits are read without the models left out. From the first changed pick on, an episode "
    "would have gone another way; how it would have ended, only playing tells."
)


def _changed_picks(found: Without) -> None:
    changes = (
        ("Picks that would change", "turns", found.changed, found.turns),
        ("Episodes touched", "episodes", found.touched, found.episodes),
    )
    for column, (title, unit, n, of) in zip(st.columns(2), changes, strict=True):
        column.metric(
            title, f"{n:,} of {of:,}", f"{percent(n / of)} of {unit}", delta_color="off", delta_arrow="off"
        )
    if found.takers:
        st.markdown(
            "**Who would step in?** Probability of the others, renormalised, over the picks that change"
        )
        total = sum(found.takers.values()) or 1.0
        shares = {name: p / total for name, p in found.takers.items()}
        plot(
            horizontal_bars(
                list(shares.values()),
                [literal(name, 30) for name in shares],
                [NEUTRAL_COLOUR] * len(shares),
                [percent(share) for share in shares.values()],
                "probability of being picked instead",
            ),
            key="takers",
            small=True,
            alt="; ".join(f"{name} {percent(share)}" for name, share in shares.items()),
        )
        if found.read < found.changed:
            st.caption(f"Over {found.read:,} of these picks.")
    st.caption(_ONLY_PLAYING)
