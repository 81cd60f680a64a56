"""How far reviewers agree: each pair's table and kappa, all of them in one alpha, and where they differ."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from core.reviewers import Kappa
from storage.filters import EpisodeFilter
from storage.reviews import Agreement, PairAgreement
from storage.store import Store
from ui import state
from ui.glossary import define
from ui.labelling import where as place_words
from ui.theme import label, percent

#: How many pairs and differing items are shown.
MOST_PAIRS, MOST_ITEMS = 6, 12


def agreement_panel(store: Store, where: EpisodeFilter, names: Sequence[str]) -> None:
    """One name's agreement over the episodes of a list; the name stands in the address as `name`."""
    if not names:
        st.caption("Nothing is labelled yet, so there is nothing to compare.")
        return
    name = state.choice("Which label", {one: one for one in names[:8]}, name="name", key="agreement_name")
    found = store.reviews.agreement(name, where)
    if not found.pairs:
        st.caption(
            f"No two reviewers have labelled the same thing with “{label(name)}” yet. A second reviewer types "
            "their own name under “You label as”, best with Blind on."
        )
        return
    _all_together(found)
    for i, pair in enumerate(found.pairs[:MOST_PAIRS]):
        with st.container(border=True):
            _pair(pair, i)
    if len(found.pairs) > MOST_PAIRS:
        st.caption(f"And {len(found.pairs) - MOST_PAIRS} more pairs, with fewer items in common.")


def _all_together(found: Agreement) -> None:
    if found.ticked:
        st.caption(
            "This label has one value only: whoever labelled an episode in any way and left it off counts as "
            "“not given”."
        )
    if len(found.pairs) > 1 and found.alpha is not None:
        st.markdown(
            f"All reviewers together: Krippendorff's alpha **{found.alpha:.2f}** over {found.items:,} items",
            help=define("Krippendorff's alpha"),
        )


def kappa_words(kappa: Kappa) -> str:
    """`0.46, 95 % interval -0.17 to 1.00, over 7 items`, or why it cannot be told."""
    if kappa.kappa is None or kappa.low is None or kappa.high is None:
        return "cannot be told: both gave one and the same value throughout"
    return f"**{kappa.kappa:.2f}**, 95 % interval {kappa.low:.2f} to {kappa.high:.2f}"


def _pair(pair: PairAgreement, i: int) -> None:
    a, b = label(pair.a, 40), label(pair.b, 40)
    items = f"{pair.kappa.n:,} item{'' if pair.kappa.n == 1 else 's'}"
    st.markdown(f"**{a}** and **{b}**: the same value for {percent(pair.kappa.observed)} of {items}")
    st.markdown(f"Cohen's kappa {kappa_words(pair.kappa)}", help=define("Cohen's kappa"))
    used = [j for j in range(len(pair.values)) if any(pair.counts[j]) or any(row[j] for row in pair.counts)]
    rows = [
        f"| **{label(pair.values[j], 40)}** | {' | '.join(str(pair.counts[j][k]) for k in used)} |"
        for j in used
    ]
    head = f"| {a} ↓ {b} → | {' | '.join(label(pair.values[k], 40) for k in used)} |"
    st.markdown("\n".join([head, f"|:--|{'--:|' * len(used)}", *rows]))
    if not pair.differing:
        return
    with st.expander(f"Where they differ ({len(pair.differing):,})", key=f"differ_{i}"):
        for one in pair.differing[:MOST_ITEMS]:
            state.page_link(
                "replay",
                f"{label(one.place.episode_id)} {place_words(one.place)}: {label(one.a, 40)} / {label(one.b, 40)}",
                ep=one.place.episode_id,
                t=None if one.place.index is None else one.place.index + 1,
                labels="open",
            )
        if len(pair.differing) > MOST_ITEMS:
            st.caption(f"And {len(pair.differing) - MOST_ITEMS:,} more.")
