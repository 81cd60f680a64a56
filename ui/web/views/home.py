"""Home: where to begin, how the latest runs did, what was played last, and whether the store is well."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import streamlit as st

from core.episode import Flag, Role, Status
from storage.analysis.standings import (
    PolicySide,
    figures,
    policies_with_episodes,
    runs_played,
    sides_of,
    task_sets,
)
from storage.filters.episode_filter import EpisodeFilter
from storage.rows.progress import strip_moves
from storage.rows.summaries import EpisodeSummary, Health, RunKind, RunSummary
from storage.store import Store
from ui.presentation.comparison import accuracy_words, tells_seen
from ui.presentation.runs import names_of, run_name
from ui.presentation.theme import code, label
from ui.presentation.words import ago, decider_words, policy_name, strip_key
from ui.runs import wiring
from ui.runs.plans import address_of, kind_of, known_plan
from ui.runs.queue import has_died
from ui.runs.settings.batch import BatchPlan
from ui.web.kit import state
from ui.web.kit.cache import cached
from ui.web.kit.figures import plot
from ui.web.kit.widgets import Standing, episode_line, nothing_here, run_mark, standings_figure, tool
from ui.web.pickers.checkpoints import best_and_baseline, default_checkpoints, default_planner, generation_of
from ui.web.pickers.facets import uncounted_words
from ui.web.pickers.line import EVERY_RUN, listed

_figures = cached(figures)
_played = cached(policies_with_episodes)
_task_sets = cached(task_sets)
#: How many runs, episodes and saved views the page shows.
RUNS, EPISODES, VIEWS = 3, 8, 3
#: How many episodes are looked at for one of so many models, which is as good as more.
_LOOKED_AT, _MODELS = 100, 3
_ALL_ROLES = " and ".join(f'any(turn.role == "{role.value}")' for role in Role)
_STEPS = "any(turn.step != None)"
#: What is worth seeing, the best first: all three roles at work until an answer was accepted that is right; a wrong
#: answer that was accepted; a workflow that lost a right answer, that could not be read, or whose answer is wrong.
_TELLING = (
    EpisodeFilter(correct="right", end_reason="accepted", min_turns=4, q=_ALL_ROLES),
    EpisodeFilter(correct="right", end_reason="accepted", min_turns=3),
    EpisodeFilter(correct="right"),
)
_ACCEPTED_WRONG = (
    EpisodeFilter(correct="wrong", flag="false_accept", min_turns=3),
    EpisodeFilter(correct="wrong", flag="false_accept"),
)
_BROKEN_WORKFLOWS = (
    EpisodeFilter(correct="wrong", flag="answer_broke", q=_STEPS),
    EpisodeFilter(end_reason="unreadable_plan"),
    EpisodeFilter(correct="wrong", min_turns=2, q=_STEPS),
)
#: The runs that are no measurement of policies, of which the newest is named.
_OTHERS: tuple[RunKind, ...] = ("live", "fork", "evolve", "train")

#: A way on from a card: the page, its words, its icon, and the address there.
_Way = tuple[str, str, str, Mapping[str, str | None]]


def show() -> None:
    store = state.store()
    health = store.health()
    st.title("Why did the coordinator do that?")
    st.caption(
        "A small learned coordinator chooses, turn by turn, which language model speaks next and in which role. "
        "Replay an episode to see why, compare two policies, or play a problem."
    )
    newest = store.episodes.page(limit=EPISODES).items
    _resume()
    if not newest:
        _empty(store)
    else:
        _begin(store, newest)
        _where_the_samples_are(store)
        left, right = st.columns([3, 2], gap="large")
        with left:
            _runs(store)
        with right:
            _views(store)
            _newest(store, newest)
    _health_line(store, health)


def _resume() -> None:
    if (place := state.last_place()) is None:
        return
    page, query = place
    what = {"replay": "the replay", "pair": "the comparison", "review": "the review"}[page]
    episode = label(query.get("ep") or query.get("a", ""), 40)
    turn = f", turn {label(query['t'], 8)}" if query.get("t") else ""
    words = f":blue[**Go on with {what}**] of {episode}{turn}"
    state.page_link(page, words, query, icon=":material/resume:")


def _empty(store: Store) -> None:
    with st.container(border=True):
        st.subheader("Nothing is recorded yet")
        if wiring.has_samples():
            st.write("Load the sample runs that came with this installation, or play a problem of your own.")
            if tool("Load the sample runs", "load_samples", icon="download", type="primary"):
                with st.spinner("Importing the sample runs …"):
                    wiring.import_samples(store, wiring.settings())
                st.rerun()
        else:
            st.write("Play a problem and it will appear here, or record a run from a terminal:")
            st.code("trinity run --policy random --tasks pocket --n 20", language=None)
        state.page_link("live", "Play a problem live", icon=":material/play_circle:")


def _begin(store: Store, newest: Sequence[EpisodeSummary]) -> None:
    """Four ways in, each one click from something worth seeing."""
    telling = _first_of(store, _TELLING) or newest[0]
    wrong = _first_of(store, _ACCEPTED_WRONG)
    compared = wrong is not None and Flag.BY_AGREEMENT.value in wrong.flags
    accepted = "Two gave the same wrong answer" if compared else "A wrong ACCEPT"
    workflow = _first_of(store, _BROKEN_WORKFLOWS)
    ids = default_checkpoints(store) or default_checkpoints(store, samples=True)
    beside = {"c": listed(ids), "base": ids[0], "b": ids[-1]} if ids else {}
    planner = default_planner(store) or default_planner(store, samples=True)
    two_systems: tuple[_Way, ...] = ()
    if planner and ids:
        best = best_and_baseline(store, ids)[1]
        against = {"c": listed([best, planner]), "base": best, "b": planner}
        two_systems = (("checkpoints", "A coordinator and a Conductor", ":material/account_tree:", against),)
    cards: tuple[tuple[str, str, tuple[_Way, ...]], ...] = (
        (
            "1 · Replay an episode",
            "Who was chosen, why, and what came of it.",
            (
                ("replay", "A good example", ":material/smart_display:", {"ep": telling.id}),
                *(
                    ("replay", words, icon, {"ep": one.id})
                    for words, icon, one in (
                        (accepted, ":material/cancel:", wrong),
                        ("A workflow that broke", ":material/account_tree:", workflow),
                    )
                    if one
                ),
            ),
        ),
        (
            "2 · Compare two policies",
            "What was won and lost on the same tasks, and whether it is luck.",
            (("checkpoints", "Before and after evolution", ":material/balance:", beside), *two_systems),
        ),
        (
            "3 · Play a problem live",
            "Watch each decision before the model answers.",
            (("live", "Start one", ":material/play_circle:", {}),),
        ),
        (
            "4 · Ask recorded models",
            "What real models answered, who knows what, and what asking several would bring.",
            (("outcomes", "Outcomes", ":material/table_chart:", {}),),
        ),
    )
    for column, (title, words, ways) in zip(st.columns(len(cards)), cards, strict=True):
        with column, st.container(border=True, height="stretch"):
            st.markdown(f"**{title}**")
            st.markdown(f":gray[{words}]")
            with st.container(horizontal=True, gap="medium"):
                for page, action, icon, params in ways:
                    state.page_link(page, f":blue[**{action}**]", icon=icon, **params)


def _where_the_samples_are(store: Store) -> None:
    """That what is shown are samples, or where those are that one's own runs took the place of."""
    samples = store.runs.sample_ids()
    if not samples:
        return
    counts = store.episodes.facets(EpisodeFilter())
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if counts.samples:
            st.caption("Your own runs are shown.", width="content")
            words = f"The {counts.samples:,} sample episodes"
            state.page_link("episodes", words, icon=":material/school:", samples="only")
        else:
            st.caption(
                ":material/school: These are sample runs: your first own run takes their place.",
                help="Live plays and forks do not count as runs of your own.",
            )


def _first_of(store: Store, wanted: Sequence[EpisodeFilter]) -> EpisodeSummary | None:
    """The first episode worth seeing: of one's own, where there is one like the best of what is `wanted`, else of the
    samples; then like the next. Of several like it the one that most models took part in."""
    for where in wanted:
        for samples in (None, "only"):
            found = store.episodes.page(replace(where, samples=samples), limit=_LOOKED_AT).items
            if found:
                return max(
                    found,
                    key=lambda one: min(
                        _MODELS, len({slot for slot, _ in strip_moves(one.models, one.strip)})
                    ),
                )
    return None


def _runs(store: Store) -> None:
    st.subheader("Latest runs")
    played = [*store.runs.list("run", limit=20), *store.runs.list("reproduction", limit=20)]
    found = [run for run in played if run.episodes]
    found = [run for run in found if not run.is_sample] or found
    runs = sorted(found, key=lambda run: run.created, reverse=True)[:RUNS]
    if not runs:
        nothing_here("No run of several episodes yet: `trinity run` records one.")
    names = names_of(runs)
    for run in runs:
        with st.container(border=True):
            _run(store, run, names[run.id])
    for name in _OTHERS:
        for run in store.runs.list(name, limit=1):
            kind = kind_of(run)
            words = f"Newest {kind.words}: :blue[{label(run_name(run), 64)}] :gray[{_stands(run)}]"
            state.page_link(kind.page, words, icon=kind.icon, **address_of(run))


def _stands(run: RunSummary) -> str:
    now = time.time()
    return f"{ago(run.created, now)}, {run_mark(run, stalled=has_died(run, now)).word}"


def _run(store: Store, run: RunSummary, name: str) -> None:
    left, right = st.columns([4, 1], vertical_alignment="center")
    sides = _sides(store, run)
    words = f"**{label(name)}** · {run.finished_episodes:,} episodes · :gray[{_stands(run)}]"
    left.markdown(words, help=f"Run {code(run.id)}. {_accuracy_words(store, run, sides)}")
    with right:
        state.page_link("episodes", "Episodes", icon=":material/table_rows:", run=run.id)
    policies = sorted(store.runs.policies(run.id), key=lambda one: -(one.accuracy or 0))
    if any(one.n for one in policies):
        figure = standings_figure([Standing.of(one, generation_of(store)) for one in policies])
        alt = f"Accuracy of each policy of {name} with its 95 % interval"
        plot(figure, key=f"standings_{run.id}", small=True, alt=alt)
        for note in filter(tells_seen, run.notes.splitlines()):
            st.warning(label(note, 500), icon=":material/school:")
        _with_other_runs(store, run, sides)


def _sides(store: Store, run: RunSummary) -> list[PolicySide]:
    here = _played(store)
    sides = [side for one in here if one.run == run.id for side in sides_of(here, one.policy, run.id)]
    return list(dict.fromkeys(sides))


def _accuracy_words(store: Store, run: RunSummary, sides: Sequence[PolicySide]) -> str:
    """What a run's accuracies are of, for a tooltip; empty for a run without any."""
    if not sides:
        return ""
    names = generation_of(store)
    words = accuracy_words(
        _task_sets(store, sides),
        _figures(store, sides),
        [policy_name(side.policy, names.get(side.policy)) for side in sides],
        families=False,
    )
    plan = known_plan(run)
    seed = f", with seed {plan.seed}" if isinstance(plan, BatchPlan) else ""
    return label(f"{words}{seed}.", 600)


def _with_other_runs(store: Store, run: RunSummary, sides: Sequence[PolicySide]) -> None:
    """Links to where a checkpoint's episodes of other runs count too."""
    here, names, ids = _played(store), generation_of(store), default_checkpoints(store)
    for policy in dict.fromkeys(side.policy for side in sides if side.policy in ids[1:]):
        if runs := {one.run for one in runs_played(here, policy, None)} - {run.id}:
            others = f"{len(runs)} other run{'s' if len(runs) > 1 else ''}"
            words = f"{label(policy_name(policy, names.get(policy)), 60)} with its {others} together"
            address = {"c": listed(ids), "base": ids[0], "b": policy, "run": EVERY_RUN}
            state.page_link("checkpoints", words, icon=":material/balance:", **address)


def _views(store: Store) -> None:
    views = store.views.list(VIEWS)
    if views:
        st.subheader("Saved views")
        with st.container(border=True):
            for one in views:
                state.page_link("episodes", label(one.name, 64), icon=":material/bookmark:", view=one.id)


def _newest(store: Store, newest: Sequence[EpisodeSummary]) -> None:
    st.subheader("Newest episodes")
    st.caption(strip_key(newest))
    with st.container(border=True):
        for one in newest:
            question = f":blue[{label(one.question, 64) or '(no question)'}]"
            state.page_link("replay", question, ep=one.id)
            running = ":blue[:material/play_circle: running] · " if one.status is Status.RUNNING else ""
            st.caption(running + episode_line(one, decider_words(one, generation_of(store))))
    state.page_link("episodes", "All episodes", icon=":material/table_rows:")


def _health_line(store: Store, health: Health) -> None:
    st.divider()
    size = "" if health.size_bytes is None else f" · {health.size_bytes / 1e6:,.1f} MB"
    stalled = f" · :red[:material/warning: {health.stalled} stalled]" if health.stalled else ""
    st.caption(
        f":green[:material/database:] {health.episodes:,} episodes in all{uncounted_words(store)}, "
        f"{health.turns:,} turns, {health.checkpoints:,} checkpoints · {health.running} running{stalled}{size}"
    )
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        words = "Settings & health, with a note on this database" if health.warning else "Settings & health"
        state.page_link("settings", words, icon=":material/settings:")
        if health.stalled:
            state.page_link("settings", "What stalled?", icon=":material/heart_broken:", part="work")
        state.page_link("glossary", "Glossary", icon=":material/menu_book:")
        with st.popover("Where the store is", icon=":material/folder:", type="tertiary"):
            free = "" if health.free_bytes is None else f", {health.free_bytes / 1e9:,.0f} GB free"
            st.caption(f"{label(health.database)}, schema {label(health.schema)}{free}")
            st.code(health.url, language=None, wrap_lines=True)
            st.caption("How to back it up")
            st.code(health.backup_hint, language=None, wrap_lines=True)


if __name__ == "__main__":
    state.run(show)
