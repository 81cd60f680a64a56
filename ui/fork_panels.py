"""What a run of forks came to, as its page shows it: progress, finding, variation tree, every child with its links."""

from __future__ import annotations

import time
from collections.abc import Sequence

import streamlit as st

from core.forking import BASELINE, FORK
from core.metrics import PairedDifference
from storage.forks import Child
from storage.steps import read_head
from storage.store import Store
from storage.summaries import RunStatus, RunSummary
from ui import live, state
from ui.chart import plot
from ui.fork_figures import MOST_LEAVES, PARENT, Path, tree_figure
from ui.fork_plan import Branch, ForkPlan
from ui.fork_results import PAIR_WORDS, Grown, Results, Side
from ui.fork_words import change_words
from ui.glossary import define
from ui.live import is_stalled
from ui.resuming import resumable
from ui.spending import dollars
from ui.theme import (
    NEUTRAL_COLOUR,
    STATUS_MARKS,
    badge,
    correct_mark,
    label,
    percent,
)
from ui.widgets import (
    RUN_MARKS,
    STALLED,
    Standing,
    ago,
    nothing_here,
    standings_figure,
    strip_key,
    strip_text,
    who,
    worker_trouble,
)

#: How often a run under way is looked at, in seconds.
REFRESH_S = 1.0
#: At most so many episodes of a batch are listed.
MOST_LISTED = 100


def headline(store: Store, run: RunSummary, plan: ForkPlan, results: Results) -> None:
    """Where the run stands, what went wrong, and the way on from there."""
    stalled = is_stalled(run, time.time())
    paused = run.status is RunStatus.RUNNING and store.runs.control(run.id).paused
    mark = STALLED if stalled else RUN_MARKS[run.status]
    parts = [f"**{badge(mark)}**" + (" · **paused**" if paused else "")]
    parts.append(f":gray[begun {ago(run.created, time.time())}]")
    parts.append(f":gray[spent {label(dollars(results.spent_usd))}]")
    parts.append(f":gray[pool {label(plan.pool, 60)}]")
    st.markdown(" · ".join(parts))
    worker_trouble(
        run, live.log_file(run.id), "plays these forks", "Every finished turn is kept.", stalled=stalled
    )
    if stalled or run.status is RunStatus.INTERRUPTED:
        resumable(store, run, "Go on")


def watch(store: Store, run: RunSummary, results: Results) -> None:
    """While it is under way: how far it is, ways to pause and to end it, and the page again when there is more."""
    shown = _pulse(run)

    def look() -> None:
        store.runs.mark_interrupted()
        now = store.runs.get(run.id)
        if _pulse(now) != shown:
            st.rerun()
        _progress(store, now, results)

    st.fragment(state.guarded(look), run_every=REFRESH_S, key="fork_watch")()


def _pulse(run: RunSummary) -> tuple[object, ...]:
    """What changes when a run moves."""
    return run.status, run.finished_episodes, is_stalled(run, time.time())


def _progress(store: Store, run: RunSummary, results: Results) -> None:
    done, wanted = (results.baseline.n, results.fork.n), (results.baseline.wanted, results.fork.wanted)
    said = f"Baseline {done[0]} of {wanted[0]} · forks {done[1]} of {wanted[1]}"
    control = store.runs.control(run.id)
    if run.status is RunStatus.QUEUED:
        said = live.waiting_words(store, run)
    elif control.cancel:
        said += " · cancelling at the next moment it can …"
    with st.container(horizontal=True, vertical_alignment="center"):
        st.progress(sum(done) / max(1, sum(wanted)), text=said)
        paused = control.paused
        st.button(
            "Play on" if paused else "Pause",
            key="fork_pause",
            icon=":material/play_arrow:" if paused else ":material/pause:",
            on_click=state.guarded(store.runs.unpause if paused else store.runs.pause, state.refused),
            args=(run.id,),
        )
        st.button(
            "Cancel",
            key="fork_cancel",
            icon=":material/stop_circle:",
            disabled=control.cancel,
            on_click=state.guarded(store.runs.cancel, state.refused),
            args=(run.id,),
        )


# The finding


def finding(plan: ForkPlan, results: Results) -> None:
    """The verdict in a sentence, and both sides with their intervals."""
    st.subheader("Did the change matter?", help=define("Fork"))
    with st.container(border=True):
        if not results.baseline.n and not results.fork.n:
            nothing_here("No child has finished yet.", ":material/hourglass_top:")
            _proof(plan, results)
            return
        st.markdown(f"**{label(results.verdict, 400)}**")
        if results.open:
            st.caption(
                f"So far: {results.open} of {results.baseline.wanted + results.fork.wanted} are not over."
            )
        standings = [
            Standing("Baseline, unchanged", results.baseline.right, results.baseline.n, NEUTRAL_COLOUR),
            Standing(f"Fork, {change_words(plan.change)}", results.fork.right, results.fork.n),
        ]
        if len(plan.branches) == 1 and not results.fork.certain:
            plot(
                standings_figure(standings),
                key="fork_standings",
                small=True,
                alt=f"How often the baseline and the fork end right, with 95 % intervals. {results.verdict}",
            )
        _sides(results)
        _proof(plan, results)


def _sides(results: Results) -> None:
    one, two, three = st.columns(3)
    one.metric("Baseline ends right", _share(results.baseline), help=define("Baseline"))
    one.caption(_spread(results.baseline))
    two.metric("Fork ends right", _share(results.fork))
    two.caption(_spread(results.fork))
    three.metric("Difference, pair by pair", _points(results.difference), help=define("Paired difference"))
    if results.difference.n:
        low, high = results.difference.low, results.difference.high
        over = f", clustered over {len(results.grown)} episodes" if len(results.grown) > 1 else ""
        three.caption(
            f"95 % interval {100 * low:+.0f} to {100 * high:+.0f} points, {results.difference.n} pairs{over}",
            help=PAIR_WORDS,
        )


def _share(side: Side) -> str:
    return percent(side.share)


def _spread(side: Side) -> str:
    if not side.n:
        return "none has finished"
    if side.certain:
        return f"{side.right} of {side.n} · certain: nothing is left to chance"
    return f"{side.right} of {side.n} · 95 % interval {percent(side.low)} to {percent(side.high)}"


def _points(found: PairedDifference) -> str:
    return f"{100 * found.difference:+.1f} points" if found.n else "–"


def _proof(plan: ForkPlan, results: Results) -> None:
    """What was kept, and that the recorded episodes are as they were; the hashes that prove it are a click away."""
    one = plan.branches[0] if len(plan.branches) == 1 else None
    if one is not None:
        kept = (
            "Nothing comes before it"
            if not one.turn
            else f"Kept: turn{'s 1 to' if one.turn > 1 else ''} {one.turn}"
        )
        st.caption(f":material/call_split: {kept}. {_anew(plan, one)}")
    if results.parents_unchanged:
        whose = "The recorded episode is" if one else f"All {len(plan.branches)} recorded episodes are"
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.caption(f":material/lock: {whose} unchanged.", width="content")
            with st.popover("Proof", icon=":material/fingerprint:", type="tertiary"):
                st.markdown("Every row of what was recorded hashes as before the forks.")
                if one is not None:
                    st.markdown(f"- the recorded episode `{one.digest[:16]}`")
                    st.markdown(f"- the turns that were kept `{one.prefix[:16]}`", help=define("Prefix hash"))
    else:
        st.caption(
            ":orange[:material/warning:] A forked episode was deleted, or is not what it was when this began."
        )
    if results.gone:
        st.caption(f"{results.gone} children that were counted here were deleted since.")


def _anew(plan: ForkPlan, one: Branch) -> str:
    """What the children played themselves."""
    turn = one.turn + 1
    if one.certain:
        return f"The baseline plays from turn {turn} on, the fork nothing."
    return f"Played anew: from turn {turn} on{', which the fork has by hand' if plan.change.by_hand else ''}."


# One turn: the tree and its children


def tree(store: Store, plan: ForkPlan, grown: Grown) -> None:
    """The variation tree of one forked turn; a click on a turn opens it in Replay."""
    st.subheader("Where do the courses part?", help=define("Variation tree"))
    parent = next(iter(store.episodes.summaries([grown.branch.parent])), None)
    children = [*grown.baseline.values(), *grown.forks.values()]
    ids = [one.id for one in children] + ([parent.id] if parent else [])
    outlines = store.episodes.outlines(ids)
    paths = [Path(PARENT, parent.id, tuple(outlines[parent.id]), parent.correct)] if parent else []
    for part, side in ((BASELINE, grown.baseline), (FORK, grown.forks)):
        paths += [Path(part, one.id, tuple(outlines[one.id]), one.correct) for one in side.values()]
    paths = [one for one in paths if one.outlines]
    if not children or not paths:
        nothing_here("The tree grows with the first child.", ":material/hourglass_top:")
        return
    models = read_head(store, paths[0].episode_id).episode.models
    figure, left_out = tree_figure(paths, grown.branch.turn, models, change_words(plan.change))
    with st.container(border=True):
        st.caption(
            f"Before the dashed line nothing differs. Grey and dotted: the recorded course and the baseline. Blue: "
            f"{label(change_words(plan.change), 80)}. Letters are roles; a click opens the turn in Replay."
        )
        with st.container(key="wide_tree"):
            event = plot(
                figure,
                key=f"fork_tree_{grown.branch.parent}_{len(children)}",
                small=True,
                on_select="rerun",
                selection_mode="points",
                alt=_tree_alt(grown),
            )
        if left_out:
            st.caption(f"The {MOST_LEAVES} most frequent courses are drawn; {left_out} rarer ones are not.")
    points = event["selection"]["points"]
    if points:
        ep, turn, _ = points[0]["customdata"]
        # With the run, because the browser's way back leads over this page under the parameters of the next.
        state.go("replay", ep=str(ep), t=int(turn), run=state.param("run"))


def _tree_alt(grown: Grown) -> str:
    told = [
        f"{sum(bool(one.correct) for one in side.values())} of {len(side)} {words} end right"
        for words, side in (("baseline episodes", grown.baseline), ("forks", grown.forks))
    ]
    return f"Tree of courses from turn {grown.branch.turn + 1}: {', '.join(told)}"


def pairs_table(grown: Grown) -> None:
    """Each seed's baseline and fork side by side, with links to replay and to the parent beside it."""
    st.subheader("Every child, pair by pair", help=PAIR_WORDS)
    numbers = sorted({*grown.baseline, *grown.forks})
    certain = grown.branch.certain
    st.caption(strip_key(one.summary for side in (grown.baseline, grown.forks) for one in side.values()))
    with st.container(border=True):
        sides = (
            ("Baseline, unchanged", grown.baseline, numbers),
            ("Fork", grown.forks, [0] if certain else numbers),
        )
        for column, (words, side, shown) in zip(st.columns(2), sides, strict=True):
            with column:
                st.markdown(
                    f"**{words}**"
                    + (" :gray[· certain: one is enough]" if side is grown.forks and certain else "")
                )
                for number in shown:
                    _child_line(side.get(number), grown.branch.parent, number)


def _child_line(child: Child | None, parent: str, number: int) -> None:
    if child is None:
        st.markdown(f":gray[{number + 1} · not begun]")
        return
    one = child.summary
    mark = (
        badge(correct_mark(child.correct)) if child.correct is not None else badge(STATUS_MARKS[one.status])
    )
    answer = "no answer" if one.answer is None else f"**{label(one.answer, 30) or '(empty)'}**"
    answer = f" · {answer}" if child.correct is not None else ""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(
            f":gray[{number + 1}] · {mark}{answer} · {label(strip_text(one.strip)) or '–'}", width="content"
        )
        state.page_link("replay", "Replay", ep=one.id, t=child.turn + 1)
        state.page_link("pair", "Beside the recorded one", a=parent, b=one.id, t=child.turn + 1)


def branches_table(store: Store, results: Results) -> None:
    """A batch's episodes, those that the change moved most first; each opens its own tree."""
    st.subheader("Episode by episode")
    rows = sorted(results.grown, key=lambda one: -abs(_mean(one.pairs)))
    asked = [one.branch.parent for one in rows[:MOST_LISTED]]
    parents = {one.id: one for one in store.episodes.summaries(asked)}
    with st.container(border=True):
        for one in rows[:MOST_LISTED]:
            parent = parents.get(one.branch.parent)
            left, right = st.columns([3, 2], vertical_alignment="center")
            left.button(
                f":blue[{label(parent.question if parent else 'deleted since', 70) or '(no question)'}]",
                key=f"open_{one.branch.parent}",
                type="tertiary",
                on_click=state.set_params,
                kwargs={"ep": one.branch.parent},
            )
            by = f" · :gray[{label(who(parent.policy, parent.generation), 40)}]" if parent else ""
            right.markdown(f"{_tally(one)} · turn {one.branch.turn + 1}{by}")
        if len(rows) > MOST_LISTED:
            st.caption(f"The first {MOST_LISTED} of {len(rows)}.")


def _tally(one: Grown) -> str:
    sides = (("baseline", one.baseline), ("fork", one.forks))
    told = [
        f"{words} {sum(bool(child.correct) for child in side.values())} of {len(side)}"
        for words, side in sides
    ]
    points = f"**{100 * _mean(one.pairs):+.0f} points**" if one.pairs else "–"
    return f"{points} · {' · '.join(told)}"


def _mean(pairs: Sequence[tuple[bool, bool]]) -> float:
    return sum(b - a for a, b in pairs) / len(pairs) if pairs else 0.0
