"""A decision with the checkpoint that made it, and whether its logits can be recomputed from the hidden state."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import streamlit as st

from core.analysis.head_lens import (
    Lens,
    LogitCheck,
    compare_logits,
    lens_of,
)
from core.checkpoint import Checkpoint
from core.episode import Decision
from ui.presentation.glossary import define
from ui.presentation.theme import label
from ui.web.kit.text import markdown_table
from ui.web.kit.widgets import popover
from ui.web.turns.recording import Recording


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
            f"{found.difference:.2g}.",
            help=tolerance_words(found.tolerance, "this"),
        )
    else:
        st.warning(
            f"The stored head on the stored hidden state gives other logits than were recorded: one differs by "
            f"{found.difference:.2g}, of which rounding explains {found.tolerance:.2g}. The checkpoint in this "
            "store is not the one that played this turn, or a row was changed. Do not trust "
            "what other panels compute from it.",
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
