"""The panels of a policy diff: agreement with its interval, where two part, what they pick, and how far to trust it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

from core.analysis.agreement import NEVER, Agreement, FirstDifferences, Flags, confusion, divergence_by_turn
from core.episode import ROLE_ORDER, Role
from storage.analysis.policy_diff import PolicyDiff, Source
from storage.analysis.second_opinions import EpisodeScope
from storage.store import Store
from ui.presentation.comparison import (
    AgreementRate,
    agreement_rates,
    agreement_rates_by_family,
    pair_letter,
    pair_name,
    trust_lines,
)
from ui.presentation.glossary import define
from ui.presentation.theme import ROLE_STYLES, ROLES_LEGEND, label, one_line, percent
from ui.web.kit import state
from ui.web.kit.figures import clickable, plot
from ui.web.kit.tables import link, number, row_table, text
from ui.web.kit.widgets import ink, nothing_here, states_removed, tool
from ui.web.policy.figures import confusion_figure, divergence_figure, firsts_figure, shares_figure

#: Rows of the list of turns.
MOST_ROWS = 200
_KL = "KL divergence"


# All of them beside the baseline


def show_overview(diff: PolicyDiff, names: Mapping[str, str]) -> None:
    """Every checkpoint's agreement with the baseline, and how far each lies from it turn by turn; of two alone the
    details say as much."""
    st.caption(
        f"{len(diff.turns):,} turns of {len(set(diff.at.episodes.tolist())):,} episodes. Intervals are of 95 %, over "
        "tasks; turns too close to call are left out."
    )
    if len(diff.checkpoints) == 2:
        return
    base = label(names[diff.checkpoints[0].id], 60)
    shares = agreement_rates(diff, names)
    left, right = st.columns(2)
    with left, st.container(border=True, height="stretch"):
        st.markdown(f"**How often would each choose as {base} does?**", help=define("Agreement"))
        _shares(shares, "agreements", "Agreement of each checkpoint with the baseline and its 95 % interval")
    with right:
        _divergence([(one.name, found) for one, found in zip(shares, diff.agreements, strict=True)])


def _shares(shares: Sequence[AgreementRate], key: str, alt: str, click: str = "") -> None:
    if all(one.rate is None for one in shares):
        nothing_here("Every turn is too close to call: one of them hardly prefers anything.")
        return
    figure = shares_figure(shares)
    if click:
        clickable(figure, _narrow_to(click), key=key, alt=alt)
    else:
        plot(figure, key=key, small=True, alt=alt)


def _divergence(others: Sequence[tuple[str, Agreement]]) -> None:
    lines = [(name, divergence_by_turn(found)) for name, found in others]
    with st.container(border=True, height="stretch"):
        st.markdown("**How much do the decisions differ, turn by turn?**", help=define(_KL))
        plot(
            divergence_figure(lines),
            key="divergences",
            small=True,
            alt="Mean divergence from the baseline by turn",
        )
        never = sum(one.infinite for _, turns in lines for one in turns)
        more = f" {never:,} are infinite, where one never chooses what A may, and left out." if never else ""
        st.caption(
            f"Mean KL divergence from A's decision at that turn; 0 means the same.{more}",
            help=f"D_KL(A ‖ other). {define(_KL)}",
        )


# Two of them in detail


def show_detail(diff: PolicyDiff, names: Mapping[str, str]) -> None:
    """The baseline and one other: where they part, by family, what they pick, and the turns."""
    others = {one.id: names[one.id] for one in diff.checkpoints[1:]}
    chosen = next(iter(others))
    if len(others) > 1:
        st.markdown("**In detail: A compared with**")
        options = {one: label(name, 60) for one, name in others.items()}
        chosen = state.address_select("Compare A with", options, name="with", key="beside")
    place = list(others).index(chosen)
    found, parted = diff.agreements[place], diff.partings[place]
    a, b = names[diff.checkpoints[0].id], others[chosen]
    st.subheader(f"A · {label(a, 60)}, B · {label(b, 60)}", anchor=False)
    _figures(found, parted)
    left, right = st.columns(2)
    with left:
        _firsts(parted)
    families = agreement_rates_by_family(diff, found)
    if len(others) == 1:
        with right:
            _divergence([(b, found)])
        right = st.container()
    with right:
        if len(families) > 1:
            _families(families)
    _confusion(diff, found, place + 1, (a, b))
    _turns(diff, found, parted, place + 1)


def _figures(found: Agreement, parted: FirstDifferences) -> None:
    low, high = found.interval
    never = int(((parted.turns == NEVER) & parted.sure).sum())
    interval = "–" if found.rate is None else f"{percent(low)} to {percent(high)}"
    close = f"{int(found.close.sum()):,} turns"
    with st.container(horizontal=True, gap="large", key="figures"):
        for words, value, help in (
            ("Agreement", percent(found.rate), define("Agreement")),
            ("95 % interval", interval, None),
            ("Choose otherwise", f"{int(found.differs.sum()):,} turns", None),
            ("Too close to call", close, define("Too close to call")),
            ("Never part", f"{never:,} of {len(parted.turns):,} episodes", None),
        ):
            st.metric(words, value, help=help, width="content")


def _firsts(parted: FirstDifferences) -> None:
    with st.container(border=True, height="stretch"):
        st.markdown("**At which turn do they first part?**", help=define("First disagreement"))
        clickable(
            firsts_figure(parted, ink()),
            _narrow_to("first"),
            key="firsts",
            alt="Episodes by the first turn at which the two choose otherwise",
        )
        st.caption(
            "Episodes by that turn, the number over a bar for all of it. Striped: a turn before it was too close to "
            "call or could not be judged. A click lists the turns."
        )


def _families(shares: Sequence[AgreementRate]) -> None:
    with st.container(border=True, height="stretch"):
        st.markdown("**In which family of tasks do they agree?**")
        _shares(shares, "family_agreements", "Agreement by family of tasks with its 95 % interval", "family")
        st.caption("A click keeps that family's episodes only.")


def _confusion(diff: PolicyDiff, found: Agreement, other: int, names: tuple[str, str]) -> None:
    counts = confusion(diff.picks[0], diff.picks[other], found.called)
    with st.container(border=True):
        st.markdown("**Whom would B call where A would call another?**", help=define("Routing"))
        if not counts.any():
            nothing_here("Every turn is too close to call.")
            return
        models = diff.checkpoints[0].models
        clickable(
            confusion_figure(counts, models, names, ink()),
            _narrow_to("cell"),
            key="confusion",
            alt="How often B picks each pair where A picks a row's pair",
        )
        letters = ", ".join(
            f"{pair_letter(slot * len(ROLE_ORDER))[-1]} {label(model, 24)}"
            for slot, model in enumerate(models)
        )
        st.caption(
            f"Turns that could be called; framed cells are agreement. {ROLES_LEGEND}; {letters}. "
            "A click lists a cell's turns."
        )


def _narrow_to(name: str) -> Callable[[str], None]:
    """Writes what was clicked into the address, in the place of what another click wrote there."""
    return lambda value: state.set_params(**{"first": None, "cell": None, name: value})


# The turns


def narrowed(diff: PolicyDiff, found: Agreement, parted: FirstDifferences, other: int) -> tuple[Flags, str]:
    """The turns that the address narrows the list to, and these in words (empty: those at which they differ)."""
    at = found.at
    first, cell = state.param("first"), state.param("cell")
    if first == "never" or (first or "").isdecimal():
        turn = NEVER if first == "never" else int(first or 0) - 1
        episodes = parted.episodes[parted.turns == turn]
        rows = np.isin(at.episodes, episodes)
        if turn == NEVER:
            return rows, "of episodes in which they never part"
        return rows & (at.indices == turn) & found.differs, f"at which they first part, turn {turn + 1}"
    pair = (cell or "").split("-")
    size = len(diff.checkpoints[0].models) * len(ROLE_ORDER)
    if len(pair) == 2 and all(one.isdecimal() and int(one) < size for one in pair):
        a, b = int(pair[0]), int(pair[1])
        rows = (diff.picks[0].pairs == a) & (diff.picks[other].pairs == b) & found.called
        models = diff.checkpoints[0].models
        return rows, f"at which A picks {pair_name(a, models)} and B {pair_name(b, models)}"
    return found.differs, ""


def _turns(diff: PolicyDiff, found: Agreement, parted: FirstDifferences, other: int) -> None:
    rows, words = narrowed(diff, found, parted, other)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.subheader(
            f"Turns {label(words, 120)}" if words else "Turns at which they disagree most",
            anchor=False,
            width="content",
        )
        if words:
            tool(
                "All disagreements",
                "all_turns",
                partial(state.set_params, first=None, cell=None),
                icon="close",
            )
    order = np.flatnonzero(rows)
    order = order[np.argsort(-found.divergence[order], kind="stable")]
    if not len(order):
        nothing_here("No turn is of this kind." if words else "At no turn do they surely choose otherwise.")
        return
    row_table(
        {
            "replay": link("Replay", "Open", width=70),
            "turn": number("Turn", width=50),
            "kl": number("KL divergence", "%.2f", width=110, help=define(_KL)),
            "a": text("A would choose", width=170),
            "b": text("B would choose", width=170),
            "recorded": text("Recorded", width=160),
            "family": text("Family", width=90),
            "question": text("Question", width="large"),
        },
        [_turn_row(diff, found, other, row) for row in order[:MOST_ROWS].tolist()],
        key="policy_turns",
        at_most=11,
        height=388,
        alt="The turns with both choices, the largest divergence first, each with a link to its replay",
    )
    if len(order) > MOST_ROWS:
        st.caption(f"The first {MOST_ROWS} of {len(order):,}, those furthest apart first.")


def _turn_row(diff: PolicyDiff, found: Agreement, other: int, row: int) -> tuple[Any, ...]:
    """A turn with both choices and what was recorded, and a link to its replay."""
    models, turn, second = diff.checkpoints[0].models, diff.turns[row], diff.checkpoints[other].id
    episode = diff.judged.episodes[turn.episode_id]

    def choice(place: int) -> str:
        picks = diff.picks[place]
        return (
            f"{one_line(pair_name(int(picks.pairs[row]), models), 34)}, {percent(float(picks.chances[row]))}"
        )

    return (
        state.href("replay", ep=turn.episode_id, t=turn.idx + 1, panel="other", other=second),
        turn.idx + 1,
        float(found.divergence[row]),
        choice(0),
        choice(other),
        f"{ROLE_STYLES[Role(turn.role)].word} on {one_line(turn.model, 24)}",
        one_line(episode.family, 30),
        one_line(episode.question, 110),
    )


# How far it can be trusted


def show_trust(
    store: Store, scope: EpisodeScope, diff: PolicyDiff, names: Mapping[str, str], *, opened: bool = False
) -> None:
    """Which turns of the scope are used and which are not, and how well recorded logits are met."""
    skipped = sum(diff.skipped().values())
    words = f"Which turns are used ({len(diff.turns):,}), which are not ({skipped:,}), and how exact this is"
    with st.expander(words, icon=":material/verified_user:", expanded=opened):
        for line in trust_lines(diff, names):
            st.markdown(f"- {label(line, 600)}")
        if Source.NO_STATE in diff.skipped():
            where = scope.where if scope.episode is None else [scope.episode]
            if gone := states_removed(store, where).strip():
                st.markdown(f"- {gone}")
