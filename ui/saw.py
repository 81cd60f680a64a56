"""Exactly what the coordinator read before a turn: its tokens, where they were cut, and the one that was read."""

from __future__ import annotations

from dataclasses import dataclass, replace

import streamlit as st

from core.checkpoint import Checkpoint
from core.episode import Decide, Decision, Episode
from core.errors import CheckpointError, TrinityError
from core.pool.spec import ModelSpec
from core.session import play
from ui.kept_heads import checkpoint_of
from ui.panels import text_block
from ui.recording import Recording
from ui.theme import label


@dataclass(frozen=True, slots=True)
class Read:
    """A prompt as the encoder read it. `text` spells out control tokens and has the token read at `place` (from 0) in
    ⟦ ⟧; `cut_at` is the first token that differs from the whole text's, None when nothing was left out of `whole`
    tokens; `same` tells whether its digest is the recorded one."""

    tokens: int
    whole: int
    place: int
    cut_at: int | None
    text: str
    same: bool


def request_at(episode: Episode, index: int) -> Decide:
    """What the coordinator was asked before turn `index` of an episode with its turns; CheckpointError when it ended
    before."""
    specs = {name: ModelSpec(name) for name in episode.models}
    begun = replace(episode, turns=episode.turns[:index], turn_budget=index + 1)
    course = play(begun, specs)
    try:
        asked = next(course)
        while not isinstance(asked, Decide):
            asked = course.send(True)  # a grade, which no prompt holds
    except StopIteration:
        raise CheckpointError(f"This episode was over before turn {index + 1}.") from None
    return asked


def read_again(checkpoint: Checkpoint, request: Decide, decision: Decision) -> Read:
    """The prompt of a request written again by the tokenizer alone. CheckpointError when its files are not here."""
    from core.reading import prompt_tokens  # tokenizers are slow to import, and few readers ask

    encoder = checkpoint.encoder
    writer = prompt_tokens(encoder.name, encoder.revision)
    prompt = writer.prompt(request, checkpoint.input_format)
    ids = whole = prompt.ids
    if prompt.overflow:
        everything = prompt_tokens(encoder.name, encoder.revision, whole=True)
        whole = everything.prompt(request, checkpoint.input_format).ids
    place = len(ids) + checkpoint.token_position
    if not 0 <= place < len(ids):
        raise CheckpointError("The token that this checkpoint reads lies outside its prompt.")
    cut_at = next((i for i, (a, b) in enumerate(zip(ids, whole, strict=False)) if a != b), None)
    text = f"{writer.text(ids[:place])}⟦{writer.text(ids[place : place + 1])}⟧{writer.text(ids[place + 1 :])}"
    return Read(
        len(ids),
        len(whole),
        place,
        cut_at if prompt.overflow else None,
        text,
        prompt.digest == decision.prompt_digest,
    )


def what_it_read(recording: Recording, index: int) -> None:
    """What is stored about the prompt, and on request its tokens, written again."""
    decision = recording.decision(index)
    st.markdown("**What the coordinator read before it chose**")
    if decision is None or not decision.prompt_tokens:
        st.caption("Nothing: this policy reads no transcript, or what it read was not recorded.")
        return
    cut = " It was cut to fit the encoder." if decision.prompt_overflow else ""
    digest = f" Digest `{label(decision.prompt_digest[:16])}`." if decision.prompt_digest else ""
    st.caption(f"The coordinator read {decision.prompt_tokens:,} tokens.{cut}{digest}")
    flag = f"tokens_{recording.episode.id}_{index}"
    if not st.session_state.get(flag):
        st.button(
            "Show its tokens",
            key="show_tokens",
            icon=":material/data_array:",
            on_click=lambda: st.session_state.update({flag: True}),
        )
        return
    try:
        checkpoint = checkpoint_of(recording.store, recording.decided_by(index))
        if checkpoint is None:
            raise CheckpointError(
                "The store holds no checkpoint of this policy, so its encoder is not known."
            )
        episode = recording.store.episodes.get(recording.episode.id)
        _tokens(read_again(checkpoint, request_at(episode, index), decision), flag)
    except TrinityError as error:
        st.caption(label(str(error), 400))


def _tokens(read: Read, key: str) -> None:
    same = (
        ":green[:material/verified: the very tokens] that were recorded: same digest"
        if read.same
        else ":orange[:material/warning: not the recorded tokens]: another digest, so the tokenizer or a text changed"
    )
    st.markdown(f"{read.tokens:,} tokens, {same}.")
    if read.cut_at is not None:
        st.markdown(
            f"{read.whole - read.tokens:,} of {read.whole:,} tokens did not fit: the first left out is number "
            f"{read.cut_at + 1:,}."
        )
    st.caption(f"The hidden state was taken at token {read.place + 1:,} of {read.tokens:,}, marked ⟦ ⟧.")
    text_block(read.text, key=key)
