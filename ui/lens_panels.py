"""The lens on a decision: what in the hidden state made it, and whether it can be recomputed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from core.checkpoint import Checkpoint
from core.episode import ROLE_ORDER, Decision
from storage.mapping import removed
from ui import state
from ui.chart import plot
from ui.glossary import define
from ui.lens import Check, Lens, ahead, check, look, moved, pulls, rival
from ui.lens_figures import parts_figure
from ui.recording import Recording
from ui.theme import ROLE_LOOKS, label

_SOFTMAXES = {"model": "Why this model", "role": "Why this role"}


@dataclass(frozen=True)
class Seen:
    """One decision of a recording, with logits, and the checkpoint that made it where the store has it."""

    recording: Recording
    index: int
    decision: Decision
    checkpoint: Checkpoint | None

    @property
    def lens(self) -> Lens | None:
        """The checkpoint's head on the stored state."""
        return look(self.checkpoint, self.decision.hidden_state, self.index) if self.checkpoint else None


def why_not(seen: Seen) -> str:
    """Why nothing can be recomputed, in one sentence."""
    if seen.checkpoint is None:
        return (
            f"The store holds no checkpoint {label(seen.recording.decided_by(seen.index), 40)}, so its head cannot be "
            "applied again: bring it in with `trinity checkpoints import`."
        )
    if not seen.decision.hidden_state:
        if day := removed(seen.recording.episode.meta, "states"):
            return f"The hidden states of this episode were removed on {label(day, 20)}: nothing can be recomputed."
        return "No hidden state is stored for this turn, so nothing can be recomputed."
    return "The stored hidden state does not fit this head, or holds a number too large for half precision."


# Recompute badge


def badge(seen: Seen) -> None:
    """Whether the stored head on the stored state gives the recorded logits; what it was read with, on request."""
    lens = seen.lens
    found = check(lens, seen.decision) if lens else None
    words, icon = "Cannot be recomputed", ":material/help:"
    if found:
        words, icon = (
            ("Recomputed: matches", ":material/verified:")
            if found.matches
            else (":orange[Recomputed: does not match]", ":material/warning:")
        )
    with st.popover(words, icon=icon, type="tertiary", on_change="rerun", key="recomputed") as popover:
        if popover.open:
            _recomputed(seen, found)


def _recomputed(seen: Seen, found: Check | None) -> None:
    decision, episode = seen.decision, seen.recording.episode
    if found is None:
        st.markdown(why_not(seen))
    elif found.matches:
        st.markdown(
            f"The stored head on the stored hidden state gives the recorded logits: they differ by at most "
            f"{found.difference:.2g}. {known_to(found.tolerance, 'this')}"
        )
    else:
        st.warning(
            f"The stored head on the stored hidden state gives other logits than were recorded: one differs by "
            f"{found.difference:.2g}, of which rounding explains {found.tolerance:.2g}. The checkpoint in this "
            "store is not the one that played this turn, or a row was changed. Do not trust the lens here.",
            icon=":material/warning:",
        )
    rows = [
        ("prompt digest", decision.prompt_digest or "not stored"),
        ("prompt tokens", f"{decision.prompt_tokens:,}" if decision.prompt_tokens else "not stored"),
        (
            "state",
            f"{len(decision.hidden_state) // 2:,} numbers, float16" if decision.hidden_state else "none",
        ),
        ("seed", str(episode.seed)),
        ("chosen by", "a draw from the softmaxes" if decision.sampled else "argmax"),
    ]
    if seen.checkpoint:
        encoder = seen.checkpoint.encoder
        rows += [
            ("checkpoint", seen.checkpoint.id),
            ("head", f"{seen.checkpoint.head_kind}, {seen.checkpoint.parts}"),
            ("encoder", encoder.name),
            ("encoder digest", encoder.digest[:16] or "not stored"),
            ("dtype", seen.checkpoint.dtype),
            ("input format", seen.checkpoint.input_format),
            ("token read", str(seen.checkpoint.token_position)),
        ]
    st.markdown(
        "\n".join(["| | |", "|:--|:--|", *(f"| {name} | {label(value, 60)} |" for name, value in rows)])
    )
    st.caption(
        "The state is kept in half precision: what that can have moved a logit by is its tolerance.",
        help=define("Tolerance"),
    )


def known_to(tolerance: float, which: str) -> str:
    """How far the logits of `which` head are known, as a sentence; `tolerance` is the largest of theirs."""
    if not tolerance:
        return f"The logits of {which} head are exact."
    return f"Tolerance of one logit of {which} head: at most {tolerance:#.2g}."


# Head lens


def head_lens(seen: Seen) -> None:
    """What in the hidden state put the choice ahead of the runner-up, and what of it is new since the turn before."""
    lens = seen.lens
    if lens is None:
        st.caption(why_not(seen))
        return
    which = state.choice("Which choice", _SOFTMAXES, name="lens", key="lens_which")
    models, decision = seen.recording.models, seen.decision
    names = (
        [label(name, 30) for name in models]
        if which == "model"
        else [ROLE_LOOKS[role].word for role in ROLE_ORDER]
    )
    logits = decision.model_logits if which == "model" else decision.role_logits
    mask = decision.model_mask if which == "model" else decision.role_mask
    chosen = list(models).index(decision.model) if which == "model" else ROLE_ORDER.index(decision.role)
    other = rival(logits, chosen, mask)
    if other is None:
        st.caption("Nothing else was allowed, so there is no lead to explain.")
        return
    offset = 0 if which == "model" else len(models)
    _lead(lens, seen, names, chosen, other, offset)
    before = _before(seen)
    if before is not None:
        _since(lens, before, seen.index, names, chosen, other, offset)


def _lead(lens: Lens, seen: Seen, names: Sequence[str], chosen: int, other: int, offset: int) -> None:
    row, against = chosen + offset, other + offset
    parts = ahead(lens, row, against)
    recorded = (*seen.decision.model_logits, *seen.decision.role_logits)
    difference, error = lens.logits[row] - lens.logits[against], lens.tolerance[row] + lens.tolerance[against]
    st.markdown(f"**What put {names[chosen]} ahead of {names[other]}?**", help=define("Head lens"))
    if not parts:
        st.caption("Nothing: both rows of the head give the same logit on every state.")
        return
    mine, theirs = pulls(lens, row, against)
    st.markdown(
        f"What speaks for {names[chosen]} adds up to **{mine:.2f}** logits, what speaks for {names[other]} to "
        f"**{theirs:.2f}**; the lead is what is left, **{mine - theirs:+.2f}**. These numbers are the encoder's own "
        "and mean nothing one by one. What near decisions led to stands under Neighbours."
    )
    plot(
        parts_figure(parts, lens.width, lens.parts.shape[1]),
        key="lens_ahead",
        small=True,
        alt="What each number of the hidden state gives to the lead of the choice over the runner-up.",
    )
    told = (
        f"Together a lead of {difference:+.4f}, recorded {recorded[row] - recorded[against]:+.4f}. "
        f"Tolerance of the lead: {error:#.2g}, of the one logit {lens.tolerance[row]:#.2g} plus of the other "
        f"{lens.tolerance[against]:#.2g}."
    )
    close = " The lead is within it: too close to call." if abs(difference) <= error else ""
    st.caption(f"{_reads(lens)} {told}{close}")


def _reads(lens: Lens) -> str:
    if lens.width == 0:
        return (
            "This head bends what it reads, so no number of the state has a share of its own; the bars are the "
            "directions that it reads, exactly."
        )
    return "Weight times number, for each number h[i] of the hidden state."


def _before(seen: Seen) -> Lens | None:
    """The same head on the state before the turn before; None at the first turn or where none is stored."""
    if seen.index == 0 or seen.checkpoint is None:
        return None
    decision = seen.recording.decision(seen.index - 1)
    return look(seen.checkpoint, decision.hidden_state, seen.index - 1) if decision else None


def _since(
    lens: Lens, before: Lens, index: int, names: Sequence[str], chosen: int, other: int, offset: int
) -> None:
    row, against = chosen + offset, other + offset
    parts = moved(lens, before, row, against)
    change = (lens.logits[row] - lens.logits[against]) - (before.logits[row] - before.logits[against])
    st.markdown(f"**What moved that lead since turn {index}?**")
    if not parts:
        st.caption("Nothing moved it.")
        return
    plot(
        parts_figure(parts, lens.width, lens.parts.shape[1]),
        key="lens_moved",
        small=True,
        alt="What each number of the hidden state changed in that lead since the turn before.",
    )
    st.caption(
        f"The lead of {names[chosen]} over {names[other]} changed by {change:+.4f}; to the right: towards the choice."
    )
