"""Checkpoints: up to eight policies on the same tasks, flips first, and whether the difference is more than luck."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Literal

import streamlit as st

from core.errors import StoreError
from storage.analysis.defaults import MOST_SIDES, own_first
from storage.analysis.standings import (
    Figures,
    PolicyInRun,
    PolicySide,
    figures,
    policies_with_episodes,
    sides_of,
)
from storage.rows.summaries import RunStatus, RunSummary
from storage.store import Store
from ui.answers.asked import asked_of_policies
from ui.presentation.comparison import enumerated, short_names
from ui.presentation.theme import code, label, one_line, percent
from ui.presentation.words import ago, distinct, if_paid, policy_name, share_words
from ui.runs.plans import known_plan, plan_of
from ui.runs.queue import LEARNING
from ui.runs.settings.batch import BatchPlan
from ui.web.analysis.page import show_answers
from ui.web.checkpoints.form import play_form
from ui.web.evolution.page import WHY_APART, read_once
from ui.web.kit import state
from ui.web.kit.cache import cached, run_names
from ui.web.kit.widgets import button, nothing_here
from ui.web.pickers.checkpoints import (
    PLAY,
    default_checkpoints,
    generation_of,
    play_link,
    side_namer,
)
from ui.web.pickers.line import (
    EVERY_RUN,
    ComparedPolicies,
    default_run,
    free_policies,
    line_of,
    listed,
    parted,
    shared_runs,
    within,
)
from ui.web.progress import Reached, RunTexts, is_under_way, run_notes, standing, watch

_played = cached(policies_with_episodes)
_figures = cached(figures)
_TEXTS = RunTexts("plays these tasks", pause="Pause")


def show() -> None:
    """Render the page."""
    store = state.store()
    if state.param("panel") == PLAY:
        play_form(store)
        return
    st.title("Checkpoints")
    played = _played_run(store, state.param("run"))
    here = _played(store)
    if played is not None and _played_line(store, played, here):
        return
    ages = generation_of(store)

    say = side_namer(store)
    if len({one.policy for one in here}) < 2 and len(here) < 2:
        nothing_here("A comparison needs two policies that have played; this store has fewer.")
        play_link("Play two policies on the same tasks", [])
        state.page_link("home", "See how to record or load some", icon=":material/home:")
        return
    policies = list(dict.fromkeys(one.policy for one in own_first(here)))
    defaults = default_checkpoints(store) or (policies if len(policies) < 3 else policies[:2])
    if played is not None and (inside := [one for one in here if one.run == played.id]):
        # The run says under which setting each is meant, and who is, where the address does not.
        theirs = list(dict.fromkeys(one.policy for one in inside))
        ordered = [one for one in plan_of(played, BatchPlan).policies if one in theirs]
        line, gone = line_of(st.query_params.to_dict(), inside, ordered)
    else:
        line, gone = line_of(st.query_params.to_dict(), here, defaults)
    if gone:
        names = ", ".join(policy_name(token, ages.get(token)) for token in gone)
        st.info(label(f"{names}: has not played here, and is left out.", 300), icon=":material/info:")
    if line is None:
        _token_bar(_offered(store, here, say), parted(state.param("c") or ""))
        nothing_here("Choose two policies or more, up to eight.", ":material/balance:")
        if samples := default_checkpoints(store, samples=True):
            words = "Compare the sample checkpoints, before and after evolution"
            state.page_link("checkpoints", words, icon=":material/school:", c=listed(samples))
        return
    line, address = _choose(store, line, here, say)
    play_link("Play A and B on the same tasks", [line.base.policy, line.chosen.policy])
    rest = [side for side in line.others if side != line.chosen]
    asked = asked_of_policies(
        store,
        [line.base, line.chosen, *rest],
        say,
        choices=st.query_params.to_dict(),
        address=address,
        remember=cached,
    )
    short = short_names([say(side) for side in line.sides])
    show_answers("checkpoints", asked, lambda: _validated(store, line, _figures(store, line.sides), short))


def _validated(store: Store, line: ComparedPolicies, found: Sequence[Figures], names: Sequence[str]) -> None:
    """What the evolution or training of these policies says by its own validation, and the way there."""
    born = {one.policy: one.run_id for one in store.checkpoints.list(planners=None)}
    runs = dict.fromkeys(run for side in line.sides if (run := born.get(side.policy)))
    ages = generation_of(store)
    for run in runs:
        learned = store.runs.get(run)
        course = read_once(store, learned)
        if (
            learned.kind not in LEARNING
            or course.best is None
            or (best := course.validations[course.best]) is None
        ):
            continue
        number, policies = course.indices[course.best], course.policies
        policy = policies.get(number, "")
        first = policy_name(policy, ages.get(policy)) if policy else f"{course.short} {number}"
        validated = zip(course.indices, course.validations, strict=True)
        theirs = {
            policies[one]: found for one, found in validated if found and one in policies and one != number
        }
        others = [
            f"{name} has {percent(theirs[one.side.policy].share)}"
            for name, one in zip(names, found, strict=True)
            if one.side.policy in theirs
        ]
        drawn = f" of {course.tasks_words}" if course.plan else ""
        page = course.title
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.caption(
                label(
                    f"{page} measures on other plays, its own {best.n:,} validation tasks{drawn}, each played once: "
                    f"there {first} is the best with {share_words(best.share, best.interval)}"
                    f"{', and ' + enumerated(others) if others else ''}. {WHY_APART}",
                    900,
                ),
                width="content",
            )
            state.page_link(
                "evolution",
                f"{label(first, 60)} on {page}",
                icon=":material/trending_up:",
                run=run,
                gen=number,
                panel="progress",
            )


# Choosing


def _offered(store: Store, here: Sequence[PolicyInRun], say: Callable[[PolicySide], str]) -> dict[str, str]:
    """Who can be compared: token -> words. A policy that played in several runs is also offered run by run."""
    runs: dict[str, list[str]] = {}
    for one in here:
        runs.setdefault(one.policy, []).append(one.run)
    sides = [side for policy in runs for side in sides_of(here, policy)]
    for policy, several in runs.items():
        if len(set(several)) > 1:
            sides += [side for run in dict.fromkeys(several) for side in sides_of(here, policy, run)]
    names = run_names(store, sorted({side.run for side in sides if side.run}))
    return {side.token: say(side) + (f" in {names[side.run]}" if side.run else "") for side in sides}


def _token_bar(
    offered: Mapping[str, str], chosen: Sequence[str], line: ComparedPolicies | None = None
) -> None:
    """Who is compared, in order."""
    options = dict(offered)
    for token in chosen:
        options.setdefault(token, one_line(token, 60))
    options = distinct(options)
    st.session_state["policies"] = list(chosen)
    st.multiselect(
        "Policies",
        list(options),
        key="policies",
        format_func=options.__getitem__,
        max_selections=MOST_SIDES,
        placeholder="Choose up to eight",
        help="  \n".join(f"{label(options[token], 60)}: {code(token, 60)}" for token in chosen) or None,
        on_change=_chosen,
        args=(line, options),
    )


def _chosen(line: ComparedPolicies | None, options: Collection[str]) -> None:
    """The bar has changed: A and B stay who they are, unless they are no longer in it."""
    tokens = state.entered("policies", options) or []
    were = {"base": line.base.token, "b": line.chosen.token} if line else {}
    held = {name: token for name, token in were.items() if token in tokens}
    gone = dict.fromkeys(("base", "b", "page", "family"))
    state.set_params(**(gone | held), c=listed(tokens))


def _choose(
    store: Store, line: ComparedPolicies, here: Sequence[PolicyInRun], say: Callable[[PolicySide], str]
) -> tuple[ComparedPolicies, dict[str, str | None]]:
    """The token bar, baseline, B, and whose episodes count; the line limited to the run that is meant, and all of it
    as address parameters."""
    offered = {side.token: say(side) for side in line.sides} | _offered(store, here, say)
    _token_bar(offered, [side.token for side in line.sides], line)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        _pick("A, the baseline", "base", line, offered)
        _change("swap", "swap_horiz", "Swap A and B", line, line.swapped())
        _pick("B", "b", line, offered)
        run = _run(store, line, here)
    if run is None and len(free_policies(line)) > 1 and default_run(line, here) is None:
        st.caption("No one run holds all of these policies, so episodes of every run count.")
    return within(line, here, run), {**line.params(), "run": run or EVERY_RUN}


def _change(key: str, icon: str, words: str, line: ComparedPolicies, to: ComparedPolicies) -> None:
    button("", key, partial(state.set_params, **to.params()), icon=icon, help=words, disabled=to == line)


def _pick(words: str, name: Literal["base", "b"], line: ComparedPolicies, offered: Mapping[str, str]) -> None:
    """A choice of A or of B among all who have played; of those compared alone where no more fit."""
    tokens = [side.token for side in line.sides]
    full = len(tokens) >= MOST_SIDES
    state.select(
        words,
        {token: offered.get(token, token) for token in (tokens if full else [*tokens, *offered])},
        (line.base if name == "base" else line.chosen).token,
        lambda token: state.set_params(**line.taking(name, str(token))),
        key=f"side_{name}",
        help=f"{MOST_SIDES} policies are the most: take one away above to choose another." if full else None,
        width=320,
    )


def _run(store: Store, line: ComparedPolicies, here: Sequence[PolicyInRun]) -> str | None:
    """The run whose episodes count, None for every run; by default the newest that all of them share."""
    options = shared_runs(line, here)
    if not options or len({one.run for one in here if one.policy in free_policies(line)}) == 1:
        return options[0] if options else None
    chosen = state.address_select(
        "Episodes of",
        {EVERY_RUN: "every run", **run_names(store, options)},
        name="run",
        key="comparison_run",
        default=default_run(line, here) or EVERY_RUN,
        forgets=("page",),
        widget="list",
        width=280,
        help="Forks and live plays never count: what a person changed or chose there is not the policy's own play.",
    )
    return None if chosen == EVERY_RUN else chosen


# A run that plays what is compared


def _played_run(store: Store, run_id: str | None) -> RunSummary | None:
    """The run of several policies that an address names; None for any other, and for none."""
    try:
        run = store.runs.get(run_id) if run_id else None
    except StoreError:  # gone, or the word for every run
        return None
    plan = known_plan(run) if run else None
    return run if isinstance(plan, BatchPlan) and len(plan.policies) > 1 else None


def _played_line(store: Store, run: RunSummary, here: Sequence[PolicyInRun]) -> bool:
    """Where the run stands, unless it is finished; whether nothing of it is compared yet. Those episodes that end first
    are the shorter ones, so that a comparison would be of these alone as long as others are under way."""
    if run.status is RunStatus.FINISHED:
        run_notes(run)
        return False
    plan = plan_of(run, BatchPlan)
    names = generation_of(store)
    who = enumerated([policy_name(policy, names.get(policy)) for policy in plan.policies])
    st.markdown(f"#### {label(who, 200)}, on the same tasks")
    facts = [f"begun {ago(run.created, time.time())}", f"tasks {label(plan.tasks, 60)}", f"seed {plan.seed}"]
    facts += [f"spent {label(one)}" for one in if_paid(store.runs.spent_usd(run.id))]
    standing(store, run, _TEXTS, [f":gray[{one}]" for one in facts], go_on="Go on")
    if is_under_way(run):
        watch(store, run, _TEXTS, _reached)
        nothing_here(
            "The comparison stands here once all of it is played: the episodes that end first are the shorter ones.",
            ":material/balance:",
        )
        return True
    if len({one.policy for one in here if one.run == run.id}) < 2:
        nothing_here(
            "It was not played to its end: fewer than two of its policies have finished episodes, so there is nothing "
            "to compare.",
            ":material/balance:",
        )
        return True
    st.warning(
        "It was not played to its end. Below are the finished episodes alone, which tend to be the shorter ones.",
        icon=":material/content_cut:",
    )
    return False


def _reached(_store: Store, run: RunSummary) -> Reached:
    """How many of its episodes are over, and how long the others take at the pace so far."""
    plan = plan_of(run, BatchPlan)
    done, planned = run.finished_episodes, len(plan.load_tasks()) * len(plan.policies)
    if not run.episodes and plan.undecided:
        return Reached(0, planned, "The best cycle of roles is being chosen on validation tasks")
    words = f"{done:,} of {planned:,} episodes played"
    if run.started is None or done < 4 or done >= planned:
        return Reached(done, planned, words)
    return Reached(done, planned, words, (time.time() - run.started) / done * (planned - done))


if __name__ == "__main__":
    state.run(show)
