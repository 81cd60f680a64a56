"""What a run of forks came to, as its page shows it: progress, finding, variation tree, every child with its links;
whether an ending was luck, and which turn mattered."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import plotly.graph_objects as go
import streamlit as st

from core.analysis.luck import MOST_PLAYS
from core.episode import BASELINE, FORK
from core.errors import TrinityError
from storage.reads.episode_steps import read_head
from storage.reads.forks import Child
from storage.rows.summaries import RunSummary
from storage.store import Store
from ui.presentation.changes import change_words
from ui.presentation.glossary import define
from ui.presentation.theme import (
    FIRST_COLOUR,
    NEUTRAL_COLOUR,
    STATUS_MARKS,
    badge,
    correct_mark,
    label,
    layout,
    one_line,
    percent,
)
from ui.presentation.words import ago, decider_words, if_paid, strip_key, strip_text, turns_words
from ui.runs.forks.results import (
    PAIR_WORDS,
    RULE,
    ForkSide,
    Grown,
    Results,
    TurnOutcome,
    by_turn,
    decisive_words,
    luck_words,
    read_luck,
    read_results,
)
from ui.runs.plans import Branch, ForkPlan, runs_of
from ui.web.forks.figures import MOST_LEAVES, PARENT, Path, tree_figure
from ui.web.forks.form import what_will_run
from ui.web.kit import state
from ui.web.kit.axes import titled
from ui.web.kit.buttons import replay_link, tool
from ui.web.kit.chart import plot
from ui.web.kit.clicks import picked
from ui.web.kit.widgets import Standing, nothing_here, standings_figure
from ui.web.pickers.checkpoints import generation_of
from ui.web.progress.begin import begin_button
from ui.web.progress.luck import WORDS, begin_luck, is_open, luck_button, luck_plan
from ui.web.progress.panel import Reached, RunTexts, is_under_way, standing, watch

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
    turn = one.turn + 1
    if plan.asks_luck:
        return "Every turn was decided and played again."
    if one.certain:
        return f"The baseline plays from turn {turn} on, the fork nothing."
    by_hand = f"; the fork's turn {turn} was set by hand" if _by_hand(plan) else ""
    return f"Played again from turn {turn} on{by_hand}."


def _asked_again(plan: ForkPlan, one: Branch) -> str:
    words = f"Asked again: {turns_words(one.anew)}. Every other step keeps what it said, and costs nothing."
    return f"{words} The fork's turn {one.turn + 1} was set by hand." if _by_hand(plan) else words


def _by_hand(plan: ForkPlan) -> bool:
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
            points = f"**{100 * _mean(one.pairs):+.0f} points**" if one.pairs else "–"
            sides = f"baseline {_right(one.baseline)} · fork {_right(one.forks)}"
            right.markdown(f"{points} · {sides} · turn {one.branch.turn + 1}{by}")
        if len(rows) > MOST_LISTED:
            st.caption(f"The first {MOST_LISTED} of {len(rows)}.")


def _mean(pairs: Sequence[tuple[bool, bool]]) -> float:
    return sum(b - a for a, b in pairs) / len(pairs) if pairs else 0.0


def luck_form(store: Store, episode: str) -> None:
    """What will be played and what it may cost, and the button."""
    parent = store.episodes.get(episode)
    st.title(WORDS)
    st.markdown(f"#### {label(parent.task.question, 220)}")
    replay_link("The recorded episode", episode, 1)
    with st.container(border=True):
        st.markdown("**What will run**")
        try:
            plan = luck_plan(store, episode)
        except TrinityError as error:
            st.markdown(f":orange[:material/block:] {label(str(error), 400)}")
            return
        ceiling, to_do = what_will_run(store, plan)
        if begin_button("Replay it", "luck_start", "casino", to_do):
            begin_luck(store, replace(plan, max_cost_usd=ceiling))


def luck_page(store: Store, run: RunSummary, plan: ForkPlan) -> None:
    """A run that replays an episode: how far it is, what it tells, every play."""
    found, results = read_luck(store, run.id, plan), read_results(store, run.id, plan)
    branch = plan.branches[0]
    st.title(WORDS if not found.recorded_right else "Was it good luck?")
    top, progress, below = st.container(), st.container(), st.container()
    with top:
        st.markdown(f"#### {label(plan.question, 220)}")
        headline(store, run, plan, results)
    if is_under_way(run):
        with progress:
            right, n = results.baseline.right, results.baseline.n
            words = f"Replay {n + 1} of at most {MOST_PLAYS} · right {right} of {n} so far"
            watch(store, run, TEXTS, lambda _store, _run: Reached(n, MOST_PLAYS, words))
    with below:
        with st.container(border=True):
            st.markdown(f"**{label(found.sentence, 300)}**")
            if len(found.plays) < len(found.outcomes):
                st.caption(
                    f"It could be told after {len(found.plays)} plays. {len(found.outcomes) - len(found.plays)} more "
                    "were under way; they are listed and do not count."
                )
            st.caption(RULE)
            if branch.anew:
                st.caption("The workflow stays as it was planned; every step of it is asked again.")
            proof(plan, results)
        if not is_under_way(run) and not store.read_only and is_open(found):
            luck_button(store, branch.parent, again=True)
        grown = results.grown[0]
        tree(store, plan, grown)
        plays_table(grown)
        replay_link("The recorded episode", branch.parent, 1)


#: Among so many newest runs of forks one is looked for that is of an episode.
_LOOKED_AT = 100


def newest_of(store: Store, episode_id: str) -> tuple[str, ForkPlan] | None:
    """The newest run that forks every turn of this episode, and its plan."""
    found = runs_of(store, "fork", ForkPlan, limit=_LOOKED_AT)
    return next(((run.id, plan) for run, plan in found if plan.every_turn == episode_id), None)


def turning_panel(
    plan: ForkPlan, results: Results, *, recorded_right: bool, to_turn: Callable[[int], None]
) -> None:
    """The finding in words and a chart over the turns; a click on one calls `to_turn(index)`."""
    outcomes = by_turn(plan, results)

    def clicked() -> None:
        if points := state.points("turning"):
            to_turn(round(points[0]["x"]) - 1)

    with st.container(border=True):
        st.markdown("**Which turn mattered?**")
        for sentence in (
            luck_words(outcomes, recorded_right=recorded_right),
            decisive_words(outcomes, recorded_right=recorded_right, other=plan.other_words),
        ):
            if sentence:
                st.markdown(label(sentence, 400))
        plot(
            turning_figure(outcomes, plan.other_words),
            key="turning",
            small=True,
            alt="; ".join(
                f"from turn {one.turn + 1} on {percent(one.unchanged.share)} end right unchanged, "
                f"{percent(one.other.share)} {change_words(one.change)}"
                for one in outcomes
            ),
            on_select=clicked,
        )
        st.caption(
            "Share of right plays from each turn on, with 95 % intervals: unchanged, and with "
            + (
                "a right reply in that turn"
                if plan.right_replies
                else "the runner-up of that turn's decision"
            )
            + ". A turn decided it where the change reverses what more than half of the plays come to. With few plays "
            "most intervals overlap. A click goes to the turn."
        )


def turning_figure(outcomes: Sequence[TurnOutcome], other: str) -> go.Figure:
    """Both sides by turn, a little apart, with their intervals."""
    figure = go.Figure()
    for name, colour, aside, symbol in (
        ("unchanged", NEUTRAL_COLOUR, -0.08, "circle"),
        (other, FIRST_COLOUR, 0.08, "diamond"),
    ):
        sides = [(one, one.unchanged if name == "unchanged" else one.other) for one in outcomes]
        known = [(one, side, side.share) for one, side in sides if side.share is not None]
        figure.add_scatter(
            x=[one.turn + 1 + aside for one, _, _ in known],
            y=[share for _, _, share in known],
            mode="markers",
            name=name,
            marker={"color": colour, "size": 11, "symbol": symbol},
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [side.high - share for _, side, share in known],
                "arrayminus": [share - side.low for _, side, share in known],
                "color": colour,
            },
            text=[
                f"turn {one.turn + 1}, {name if name == 'unchanged' else one_line(change_words(one.change), 60)}: "
                f"{side.right} of {side.n} end right"
                for one, side, _ in known
            ],
            hovertemplate="%{text}<extra></extra>",
        )
    last = max(one.turn for one in outcomes) + 1
    figure.update_layout(
        **layout(
            240,
            xaxis=titled("from turn", range=[0.5, last + 0.5], dtick=1),
            yaxis=titled("end right", range=[-0.08, 1.08], tickformat=".0%"),
        )
    )
    return figure
