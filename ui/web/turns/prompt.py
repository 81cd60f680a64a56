"""The prompt of the coordinator at a turn: its tokens, where they were cut, and the one whose state was read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import streamlit as st

from core.checkpoint import Checkpoint
from core.episode import Decide, Decision
from core.errors import CheckpointError, TrinityError
from core.play.session import request_at
from ui.presentation.theme import label
from ui.runs import wiring
from ui.runs.wiring import encoder_place
from ui.web.kit.buttons import button
from ui.web.kit.text import text_block
from ui.web.pickers.checkpoints import checkpoint_of
from ui.web.turns.recording import Recording


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """A prompt as the encoder read it. `text` spells out control tokens and marks the token whose state was read, at
    `position` (from 0), with ⟦ ⟧. `cut_at` is the first token left out of the `uncut` tokens, None when all fitted;
    `matches` says whether the digest is the recorded one."""

    tokens: int
    uncut: int
    position: int
    cut_at: int | None
    text: str
    matches: bool


def tokenize_again(
    checkpoint: Checkpoint, request: Decide, decision: Decision, place: str = ""
) -> PromptTokens:
    """The prompt of a request written again by the tokenizer alone. `place` is the folder of the encoder where its
    name does not tell it. CheckpointError when its files are not here."""
    from core.tokenizer_files import prompt_tokens  # tokenizers are slow to import, and few readers ask

    encoder = checkpoint.encoder
    writer = prompt_tokens(place or encoder.name, encoder.revision)
    prompt = writer.prompt(request, checkpoint.input_format)
    ids = uncut = prompt.ids
    if prompt.overflow:
        everything = prompt_tokens(place or encoder.name, encoder.revision, uncut=True)
        uncut = everything.prompt(request, checkpoint.input_format).ids
    position = len(ids) + checkpoint.token_position
    if not 0 <= position < len(ids):
        raise CheckpointError("The token that this checkpoint reads lies outside its prompt.")
    cut_at = next((i for i, (a, b) in enumerate(zip(ids, uncut, strict=False)) if a != b), None)
    before, read, after = ids[:position], ids[position : position + 1], ids[position + 1 :]
    text = f"{writer.text(before)}⟦{writer.text(read)}⟧{writer.text(after)}"
    return PromptTokens(
        len(ids),
        len(uncut),
        position,
        cut_at if prompt.overflow else None,
        text,
        prompt.digest == decision.prompt_digest,
    )


def prompt_panel(recording: Recording, index: int) -> None:
    """What is stored about the prompt, and on request its tokens, written again."""
    decision = recording.decision(index)
    st.markdown("**What the coordinator read before it chose**")
    if decision is None or not decision.prompt_tokens:
        st.caption("Nothing: this policy reads no transcript, or what it read was not recorded.")
        return
    cut = " It was cut to fit the encoder." if decision.prompt_overflow else ""
    digest = f"Their digest: `{label(decision.prompt_digest[:16])}`" if decision.prompt_digest else None
    st.caption(f"The coordinator read {decision.prompt_tokens:,} tokens.{cut}", help=digest)
    flag = f"tokens_{recording.episode.id}_{index}"
    if not st.session_state.get(flag):
        show = partial(st.session_state.update, {flag: True})
        button("Show its tokens", "show_tokens", show, icon="data_array")
        return
    try:
        checkpoint = checkpoint_of(recording.store, recording.decided_by(index))
        if checkpoint is None:
            raise CheckpointError(
                "The store holds no checkpoint of this policy, so its encoder is not known."
            )
        episode = recording.store.episodes.get(recording.episode.id)
        place = encoder_place(checkpoint, recording.store, wiring.data_folder())
        _tokens(tokenize_again(checkpoint, request_at(episode, index), decision, place), flag)
    except TrinityError as error:
        st.caption(label(str(error), 400))


def _tokens(prompt: PromptTokens, key: str) -> None:
    digest = (
        ":green[:material/verified: the very tokens] that were recorded: same digest"
        if prompt.matches
        else ":orange[:material/warning: not the recorded tokens]: another digest, so the tokenizer or a text changed"
    )
    st.markdown(f"{prompt.tokens:,} tokens, {digest}.")
    if prompt.cut_at is not None:
        st.markdown(
            f"{prompt.uncut - prompt.tokens:,} of {prompt.uncut:,} tokens did not fit: the first left out is number "
            f"{prompt.cut_at + 1:,}."
        )
    st.caption(
        f"The hidden state was taken at token {prompt.position + 1:,} of {prompt.tokens:,}, marked ⟦ ⟧."
    )
    text_block(prompt.text, key=key)
