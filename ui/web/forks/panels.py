"""What a run of forks came to, as its page shows it: progress, finding, variation tree, every child with its links."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial

import streamlit as st

from core.episode import BASELINE, FORK
from storage.reads.episode_steps import read_head
from storage.reads.forks import Child
from storage.rows.summaries import RunSummary
from storage.store import Store
from ui.presentation.glossary import define
from ui.presentation.steps import change_words
from ui.presentation.theme import NEUTRAL_COLOUR, STATUS_MARKS, badge, correct_mark, label, percent
from ui.presentation.words import ago, decider_words, if_paid, strip_key, strip_text, turns_words
from ui.runs.forks.results import PAIR_WORDS, ForkSide, Grown, Results
from ui.runs.plans import Branch, ForkPlan
from ui.web.forks.figures import MOST_LEAVES, PARENT, Path, tree_figure
from ui.web.kit import state
from ui.web.kit.figures import picked, plot
from ui.web.kit.widgets import Standing, nothing_here, standings_figure, tool
from ui.web.pickers.checkpoints import generation_of
from ui.web.progress.panel import Reached, RunTexts, standing

TEXTS = RunTexts("plays these forks", pause="Pause")
#: At most so many episodes of a batch are listed.
MOST_LISTED = 100


def headline(store: Store, run: RunSummary, plan: ForkPlan, results: Results) -> None:
    """Where the run stands, what went wrong, and how to go on with it."""
    facts = (
        f"begun {ago(run.created, time.time())}",
        *(f"spent {label(spent)}" for spent in if_paid(results.spent_usd)),
        f"pool {label(plan.pool, 60)}",
    )
    standing(store, run, TEXTS, [f":gray[{one}]" for one in facts], go_on="Resume")


def reached(results: Results) -> Reached:
    """How many children are finished."""
    baseline, fork = results.baseline, results.fork
    words = f"Baseline {baseline.n} of {baseline.wanted} · forks {fork.n} of {fork.wanted}"
    return Reached(baseline.n + fork.n, baseline.wanted + fork.wanted, words)


# The finding


def finding(plan: ForkPlan, results: Results) -> None:
    """The verdict in a sentence, and both sides with their intervals."""
    st.subheader("Did the change matter?", help=define("Fork"))
    with st.container(border=True):
        if not results.baseline.n and not results.fork.n:
            nothing_here("No play has finished yet.", ":material/hourglass_top:")
            proof(plan, results)
            return
        st.markdown(f"**{label(results.verdict, 400)}**")
        if results.open:
            st.caption(
                f"So far: {results.open} of {results.baseline.wanted + results.fork.wanted} plays are not over."
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
        proof(plan, results)


def _sides(results: Results) -> None:
    one, two, three = st.columns(3)
    one.metric("Baseline ends right", percent(results.baseline.share), help=define("Baseline"))
    one.caption(_spread(results.baseline))
    two.metric("Fork ends right", percent(results.fork.share))
    two.caption(_spread(results.fork))
    found = results.difference
    points = f"{100 * found.difference:+.1f} points" if found.n else "–"
    three.metric("Difference, pair by pair", points, help=define("Paired difference"))
    if found.n:
        over = f", clustered over {len(results.grown)} episodes" if len(results.grown) > 1 else ""
        three.caption(
            f"95 % interval {100 * found.low:+.0f} to {100 * found.high:+.0f} points, {found.n} pairs{over}",
            help=PAIR_WORDS,
        )


def _spread(side: ForkSide) -> str:
    if not side.n:
        return "no play has finished"
    if side.certain:
        return f"{side.right} of {side.n} · certain: nothing is left to chance"
    return f"{side.right} of {side.n} · 95 % interval {percent(side.low)} to {percent(side.high)}"


def proof(plan: ForkPlan, results: Results) -> None:
    """The unchanged turns, and that the recorded episodes are unchanged; a click shows the hashes that prove it."""
    one = plan.branches[0] if len(plan.branches) == 1 else None
    if one is not None and one.anew:
        st.caption(f":material/call_split: {_asked_again(plan, one)}")
    elif one is not None:
        unchanged = f"Kept: turn{'s 1 to' if one.turn > 1 else ''} {one.turn}"
        unchanged = unchanged if one.turn else "Nothing comes before it"
        st.caption(f":material/call_split: {unchanged}. {_anew(plan, one)}")
    if results.parents_unchanged:
        whose = "The recorded episode is" if one else f"All {len(plan.branches)} recorded episodes are"
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.caption(f":material/lock: {whose} unchanged.", width="content")
            with st.popover("Proof", icon=":material/fingerprint:", type="tertiary"):
                st.markdown("Every recorded row has the same hash as before the forks.")
                if one is not None:
                    st.markdown(f"- the recorded episode `{one.digest[:16]}`")
                    st.markdown(f"- the turns that were kept `{one.prefix[:16]}`", help=define("Prefix hash"))
    else:
        st.caption(
            ":orange[:material/warning:] A forked episode was deleted or changed after this run began."
        )
    if results.gone:
        plays = "play that was" if results.gone == 1 else "plays that were"
        st.caption(
            f"{results.gone} {plays} counted here {'has' if results.gone == 1 else 'have'} been deleted since."
        )


def _anew(plan: ForkPlan, one: Branch) -> str:
    """What the children played themselves."""
    turn = one.turn + 1
    if plan.asks_luck:
        return "Every turn was decided and played again."
    if one.certain:
        return f"The baseline plays from turn {turn} on, the fork nothing."
    by_hand = f"; the fork's turn {turn} was set by hand" if _by_hand(plan) else ""
    return f"Played again from turn {turn} on{by_hand}."


def _asked_again(plan: ForkPlan, one: Branch) -> str:
    """Which steps of a workflow its children asked themselves."""
    words = f"Asked again: {turns_words(one.anew)}. Every other step keeps what it said, and costs nothing."
    return f"{words} The fork's turn {one.turn + 1} was set by hand." if _by_hand(plan) else words


def _by_hand(plan: ForkPlan) -> bool:
    """Whether the change writes a reply, or a verdict, by hand."""
    return plan.change is not None and plan.change.by_hand


# One turn: the tree and its children


def tree(store: Store, plan: ForkPlan, grown: Grown) -> None:
    """The variation tree of one forked turn; a click on a turn opens it in Replay."""
    st.subheader("Where do the plays diverge?", help=define("Variation tree"))
    parent = next(iter(store.episodes.summaries([grown.branch.parent])), None)
    sides = {BASELINE: grown.baseline.values(), FORK: grown.forks.values()}
    parts = [(part, one.id, one.correct) for part, side in sides.items() for one in side]
    children = len(parts)
    if parent:
        parts.insert(0, (PARENT, parent.id, parent.correct))
    outlines = store.episodes.outlines([ep for _, ep, _ in parts])
    paths = [Path(part, ep, tuple(outlines[ep]), correct) for part, ep, correct in parts if outlines[ep]]
    if not children or not paths:
        nothing_here("The tree appears with the first play.", ":material/hourglass_top:")
        return
    models = read_head(store, paths[0].episode_id).episode.models
    figure, left_out = tree_figure(paths, grown.branch.turn, models)
    with st.container(border=True):
        lines = "Grey and dotted: the recorded play and its replays."
        if not plan.asks_luck:
            lines = (
                "Before the dashed line nothing differs. Grey and dotted: the recorded play and the baseline. Blue: "
                f"{label(change_words(plan.change), 80)}."
            )
        st.caption(f"{lines} Letters are roles; a click opens the turn in Replay.")
        with st.container(key="wide_tree"):
            point = picked(
                figure,
                key=f"fork_tree_{grown.branch.parent}_{children}",
                alt=f"Tree of plays from turn {grown.branch.turn + 1}: {_right(grown.baseline)} baseline plays were "
                f"right, {_right(grown.forks)} forks were right",
            )
        if left_out:
            st.caption(f"The {MOST_LEAVES} most frequent paths are drawn; {left_out} rarer ones are not.")
    if point:
        ep, turn, _ = point
        # With the run, because the browser's way back leads over this page under the parameters of the next.
        state.go("replay", ep=str(ep), t=int(turn), run=state.param("run"))


def _right(side: Mapping[int, Child]) -> str:
    return f"{sum(bool(one.correct) for one in side.values())} of {len(side)}"


def pairs_table(grown: Grown) -> None:
    """Each seed's baseline and fork side by side, with links to replay and to a comparison with the parent."""
    st.subheader("Every play, pair by pair", help=PAIR_WORDS)
    numbers = sorted({*grown.baseline, *grown.forks})
    certain = grown.branch.certain
    st.caption(strip_key(one.summary for side in (grown.baseline, grown.forks) for one in side.values()))
    with st.container(border=True):
        left, right = st.columns(2)
        with left:
            st.markdown("**Baseline, unchanged**")
            for number in numbers:
                _child_line(grown.baseline.get(number), grown.branch.parent, number)
        with right:
            st.markdown("**Fork**" + (" :gray[· certain: one is enough]" if certain else ""))
            for number in [0] if certain else numbers:
                _child_line(grown.forks.get(number), grown.branch.parent, number)


def plays_table(grown: Grown) -> None:
    """Each play of an episode in which nothing was changed, with its links."""
    st.subheader("Every play")
    st.caption(strip_key(one.summary for one in grown.baseline.values()))
    with st.container(border=True):
        if not grown.baseline:
            nothing_here("No play has begun yet.", ":material/hourglass_top:")
        for number, child in sorted(grown.baseline.items()):
            _child_line(child, grown.branch.parent, number)


def _child_line(child: Child | None, parent: str, number: int) -> None:
    if child is None:
        st.markdown(f":gray[{number + 1} · not begun]")
        return
    one = child.summary
    mark = badge(STATUS_MARKS[one.status] if child.correct is None else correct_mark(child.correct))
    answer = "no answer" if one.answer is None else f"**{label(one.answer, 30) or '(empty)'}**"
    answer = f" · {answer}" if child.correct is not None else ""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(
            f":gray[{number + 1}] · {mark}{answer} · {label(strip_text(one.strip)) or '–'}", width="content"
        )
        state.page_link("replay", "Replay", ep=one.id, t=child.fork.turn + 1)
        state.page_link("pair", "Compare with the recorded play", a=parent, b=one.id, t=child.fork.turn + 1)


def branches_table(store: Store, results: Results) -> None:
    """A batch's episodes, those that the change moved most first; each opens its own tree."""
    st.subheader("Episode by episode")
    rows = sorted(results.grown, key=lambda one: -abs(_mean(one.pairs)))
    parents_listed = [one.branch.parent for one in rows[:MOST_LISTED]]
    parents = {one.id: one for one in store.episodes.summaries(parents_listed)}
    with st.container(border=True):
        for one in rows[:MOST_LISTED]:
            parent = parents.get(one.branch.parent)
            left, right = st.columns([3, 2], vertical_alignment="center")
            question = label(parent.question if parent else "deleted since", 70) or "(no question)"
            with left:
                ep = one.branch.parent
                tool(f":blue[{question}]", f"open_{ep}", partial(state.set_params, ep=ep))
            by = f" · :gray[{label(decider_words(parent, generation_of(store)), 70)}]" if parent else ""
            right.markdown(f"{_tally(one)} · turn {one.branch.turn + 1}{by}")
        if len(rows) > MOST_LISTED:
            st.caption(f"The first {MOST_LISTED} of {len(rows)}.")


def _tally(one: Grown) -> str:
    points = f"**{100 * _mean(one.pairs):+.0f} points**" if one.pairs else "–"
    return f"{points} · baseline {_right(one.baseline)} · fork {_right(one.forks)}"


def _mean(pairs: Sequence[tuple[bool, bool]]) -> float:
    return sum(b - a for a, b in pairs) / len(pairs) if pairs else 0.0
