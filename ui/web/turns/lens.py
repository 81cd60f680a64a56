"""The lens on a decision: what in the hidden state made it, and whether it can be recomputed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import streamlit as st

from core.analysis.head_lens import (
    Lens,
    LogitCheck,
    compare_logits,
    lead_changes,
    lead_parts,
    lens_of,
    opposing_sums,
    runner_up,
)
from core.checkpoint import Checkpoint
from core.episode import ROLE_ORDER, Decision
from ui.presentation.glossary import define
from ui.presentation.theme import ROLE_STYLES, label
from ui.web.kit import state
from ui.web.kit.chart import plot
from ui.web.kit.text import markdown_table
from ui.web.kit.widgets import popover
from ui.web.turns.figures import parts_figure
from ui.web.turns.recording import Recording

_SOFTMAXES = {"model": "Why this model", "role": "Why this role"}


@dataclass(frozen=True, slots=True)
class DecisionContext:
    """One decision of a recording, with logits, and the checkpoint that made it where the store has it."""

    recording: Recording
    index: int
    decision: Decision
    checkpoint: Checkpoint | None

    @property
    def lens(self) -> Lens | None:
        """The checkpoint's head on the stored state."""
        return lens_of(self.checkpoint, self.decision.hidden_state, self.index) if self.checkpoint else None


def why_not_recomputed(context: DecisionContext) -> str:
    """Why nothing can be recomputed, in one sentence."""
    if context.checkpoint is None:
        policy = label(context.recording.decided_by(context.index), 40)
        return (
            f"The store holds no checkpoint {policy}, so its head cannot be applied "
            "again: bring it in with `trinity checkpoints import`."
        )
    if not context.decision.hidden_state:
        if day := context.recording.episode.removed.get("states"):
            return f"The hidden states of this episode were removed on {label(day, 20)}: nothing can be recomputed."
        return "No hidden state is stored for this turn, so nothing can be recomputed."
    return "The stored hidden state does not fit this head, or holds a number too large for half precision."


def recomputation(context: DecisionContext) -> None:
    """Whether the stored head on the stored state gives the recorded logits, as a button that opens the details."""
    lens = context.lens
    found = compare_logits(lens, context.decision) if lens else None
    if found is None:
        words, icon = "Cannot be recomputed", "help"
    elif found.matches:
        words, icon = "Recomputed: matches", "verified"
    else:
        words, icon = ":orange[Recomputed: does not match]", "warning"
    popover(words, "recomputed", partial(_recomputed, context, found), icon=icon)


def _recomputed(context: DecisionContext, found: LogitCheck | None) -> None:
    decision, episode = context.decision, context.recording.episode
    if found is None:
        st.markdown(why_not_recomputed(context))
    elif found.matches:
        st.markdown(
            f"The stored head on the stored hidden state gives the recorded logits: they differ by at most "
            f"{found.difference:.2g}. {tolerance_words(found.tolerance, 'this')}"
        )
    else:
        st.warning(
            f"The stored head on the stored hidden state gives other logits than were recorded: one differs by "
            f"{found.difference:.2g}, of which rounding explains {found.tolerance:.2g}. The checkpoint in this "
            "store is not the one that played this turn, or a row was changed. Do not trust the lens here.",
            icon=":material/warning:",
        )
    numbers = len(decision.hidden_state) // 2
    rows = [
        ("prompt digest", decision.prompt_digest or "not stored"),
        ("prompt tokens", f"{decision.prompt_tokens:,}" if decision.prompt_tokens else "not stored"),
        ("state", f"{numbers:,} numbers, float16" if numbers else "none"),
        ("seed", str(episode.seed)),
        ("chosen by", "a draw from the softmaxes" if decision.sampled else "argmax"),
    ]
    if context.checkpoint:
        encoder = context.checkpoint.encoder
        rows += [
            ("checkpoint", context.checkpoint.id),
            ("head", f"{context.checkpoint.head_kind}, {context.checkpoint.parts}"),
            ("encoder", encoder.name),
            ("encoder digest", encoder.digest[:16] or "not stored"),
            ("dtype", context.checkpoint.dtype),
            ("input format", context.checkpoint.input_format),
            ("token read", str(context.checkpoint.token_position)),
        ]
    markdown_table(("", ""), [(name, label(value, 60)) for name, value in rows], "ll")
    st.caption(
        "The state is kept in half precision: what that can have moved a logit by is its tolerance.",
        help=define("Tolerance"),
    )


def tolerance_words(tolerance: float, which: str) -> str:
    """How exact the logits of `which` head are, as a sentence; `tolerance`, in logits, is the largest of them."""
    if not tolerance:
        return f"The logits of {which} head are exact."
    return f"Tolerance of one logit of {which} head: at most {tolerance:#.2g}."


def head_lens_panel(context: DecisionContext) -> None:
    """What in the hidden state put the choice ahead of the runner-up, and what of it is new since the turn before."""
    lens = context.lens
    if lens is None:
        st.caption(why_not_recomputed(context))
        return
    which = state.address_select("Which choice", _SOFTMAXES, name="lens", key="lens_which")
    models, decision = context.recording.models, context.decision
    if which == "model":
        names, first = [label(name, 30) for name in models], 0
        chosen = models.index(decision.model)
        other = runner_up(decision.model_logits, chosen, decision.model_mask)
    else:
        names, first = [ROLE_STYLES[role].word for role in ROLE_ORDER], len(models)
        chosen = ROLE_ORDER.index(decision.role)
        other = runner_up(decision.role_logits, chosen, decision.role_mask)
    if other is None:
        st.caption("Nothing else was allowed, so there is no lead to explain.")
        return
    lead = _Lead(names[chosen], names[other], first + chosen, first + other)
    _show_lead(lens, context, lead)
    before = _previous_lens(context)
    if before is not None:
        _show_change(lens, before, context.index, lead)


@dataclass(frozen=True, slots=True)
class _Lead:
    """A choice and its runner-up: their names as markdown, and their rows of the head."""

    choice: str
    other: str
    row: int
    against: int


def _show_lead(lens: Lens, context: DecisionContext, lead: _Lead) -> None:
    row, against = lead.row, lead.against
    parts = lead_parts(lens, row, against)
    recorded = (*context.decision.model_logits, *context.decision.role_logits)
    difference, error = lens.logits[row] - lens.logits[against], lens.tolerance[row] + lens.tolerance[against]
    st.markdown(f"**What put {lead.choice} ahead of {lead.other}?**", help=define("Head lens"))
    if not parts:
        st.caption("Nothing: both rows of the head give the same logit on every state.")
        return
    for_choice, for_other = opposing_sums(lens, row, against)
    st.markdown(
        f"What speaks for {lead.choice} adds up to **{for_choice:.2f}** logits, what speaks for {lead.other} to "
        f"**{for_other:.2f}**; the lead is what is left, **{for_choice - for_other:+.2f}**. These numbers are "
        "the encoder's own and mean nothing one by one. What near decisions led to stands under Neighbours."
    )
    alt = "What each number of the hidden state gives to the lead of the choice over the runner-up."
    plot(parts_figure(parts, lens.width, lens.parts.shape[1]), key="lens_ahead", small=True, alt=alt)
    sums = (
        f"Together a lead of {difference:+.4f}, recorded {recorded[row] - recorded[against]:+.4f}. "
        f"Tolerance of the lead: {error:#.2g}, of the one logit {lens.tolerance[row]:#.2g} plus of the other "
        f"{lens.tolerance[against]:#.2g}."
    )
    close = " The lead is within it: too close to call." if abs(difference) <= error else ""
    st.caption(f"{_reads(lens)} {sums}{close}")


def _reads(lens: Lens) -> str:
    if lens.width == 0:
        return (
            "This head bends what it reads, so no number of the state has a share of its own; the bars are the "
            "directions that it reads, exactly."
        )
    return "Weight times number, for each number h[i] of the hidden state."


def _previous_lens(context: DecisionContext) -> Lens | None:
    """The head on the hidden state of the turn before; None at the first turn or where no state is stored."""
    if context.index == 0 or context.checkpoint is None:
        return None
    decision = context.recording.decision(context.index - 1)
    return lens_of(context.checkpoint, decision.hidden_state, context.index - 1) if decision else None


def _show_change(lens: Lens, before: Lens, index: int, lead: _Lead) -> None:
    row, against = lead.row, lead.against
    parts = lead_changes(lens, before, row, against)
    change = (lens.logits[row] - lens.logits[against]) - (before.logits[row] - before.logits[against])
    st.markdown(f"**What moved that lead since turn {index}?**")
    if not parts:
        st.caption("Nothing moved it.")
        return
    alt = "What each number of the hidden state changed in that lead since the turn before."
    plot(parts_figure(parts, lens.width, lens.parts.shape[1]), key="lens_moved", small=True, alt=alt)
    st.caption(
        f"The lead of {lead.choice} over {lead.other} changed by {change:+.4f}; to the right: towards the choice."
    )
