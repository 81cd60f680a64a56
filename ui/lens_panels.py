"""The panels beside a decision: the head's lens, another checkpoint, a model left out, near decisions, the recomputing.

Each looks at one turn of a recording. Nothing here asks a model, and nothing re-decides what rounding leaves open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import streamlit as st

from core.checkpoint import Checkpoint
from core.episode import ROLE_ORDER, Decision, Role
from core.errors import TrinityError
from storage.steps import read_decisions, read_second_opinion
from storage.summaries import CheckpointSummary
from ui import state
from ui.chart import plot
from ui.decision_panels import decision_panel, pair_words
from ui.figures import joint_grid, share, softmax_bars
from ui.glossary import define
from ui.kept_heads import checkpoint_of, others, readers
from ui.lens import Check, Lens, Otherwise, ahead, check, look, moved, otherwise, rival, without
from ui.lens_figures import ghosted_bars, parts_figure
from ui.nearest import COUNTED, SAMPLE, SHOWN, neighbourhood
from ui.recording import Recording
from ui.rescored import allowed
from ui.theme import CHART_CONFIG, ROLE_LOOKS, correct_mark, label, plain
from ui.widgets import ink, who

_CONFIG = CHART_CONFIG | {"displayModeBar": False}
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


def _why_not(seen: Seen) -> str:
    """Why nothing can be recomputed, in one sentence."""
    if seen.checkpoint is None:
        return (
            f"The store holds no checkpoint {label(seen.recording.episode.policy, 40)}, so its head cannot be "
            "applied again: bring it in with `trinity checkpoints import`."
        )
    if not seen.decision.hidden_state:
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
        st.markdown(_why_not(seen))
    elif found.matches:
        st.markdown(
            f"The stored head on the stored hidden state gives the recorded logits: largest difference "
            f"{found.difference:.2g}, tolerance {found.tolerance:.2g}."
        )
    else:
        st.warning(
            f"The stored head on the stored hidden state gives other logits than were recorded: difference "
            f"{found.difference:.2g}, and rounding explains {found.tolerance:.2g}. The checkpoint in this store is not "
            "the one that played this turn, or a row was changed. Do not trust the lens here.",
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
        "Tolerance: the most that keeping the state in half precision can have moved a logit of this head.",
        help=define("Tolerance"),
    )


# Head lens


def head_lens(seen: Seen) -> None:
    """What in the hidden state put the choice ahead of the runner-up, and what of it is new since the turn before."""
    lens = seen.lens
    if lens is None:
        st.caption(_why_not(seen))
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
    plot(
        parts_figure(parts, lens.width, lens.parts.shape[1]),
        key="lens_ahead",
        config=_CONFIG,
        alt="What each number of the hidden state gives to the lead of the choice over the runner-up.",
    )
    told = f"Together {difference:+.4f}, recorded {recorded[row] - recorded[against]:+.4f}, tolerance {error:.1g}."
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
        config=_CONFIG,
        alt="What each number of the hidden state changed in that lead since the turn before.",
    )
    st.caption(
        f"The lead of {names[chosen]} over {names[other]} changed by {change:+.4f}; to the right: towards the choice."
    )


# Another checkpoint


def other_checkpoint(seen: Seen) -> None:
    """What another head would have made of the same transcript, its probabilities over these bars."""
    if seen.checkpoint is None:
        st.caption(_why_not(seen))
        return
    offered = others(seen.recording.store, seen.checkpoint)
    if not offered:
        st.caption(
            "The store holds no other checkpoint that reads as this one does and chooses among the same models."
        )
        return
    chosen = _pick_other(offered, seen.checkpoint)
    logits = _other_logits(seen, chosen)
    if logits is None:
        return
    z, tolerance, theirs = logits
    masks = [
        allowed(mask, own)
        for mask, own in zip(
            (seen.decision.model_mask, seen.decision.role_mask),
            (theirs.model_mask, theirs.role_mask),
            strict=True,
        )
    ]
    found = otherwise(
        seen.decision, seen.recording.models, seen.recording.episode, seen.index, z, tolerance, masks
    )
    name = label(who(chosen.id, chosen.generation), 60)
    st.markdown(f"{name} {_would(found, seen)}.")
    plot(
        ghosted_bars(seen.decision, found.decision, seen.recording.models),
        key="other_bars",
        config=_CONFIG,
        alt="Probability of each model and role, as recorded and by the other checkpoint.",
    )
    st.caption(
        f"Bars: recorded. Open diamonds: the other checkpoint. Divergence {found.kl:.3f} nats; tolerance of a logit "
        f"{found.tolerance:.1g}. After the first turn that it would choose otherwise it would have read another text.",
        help=define("KL divergence"),
    )


def _pick_other(offered: Sequence[CheckpointSummary], own: Checkpoint) -> CheckpointSummary:
    """The other checkpoint, which stands in the address; at first the latest of the same run that is not this one."""
    by_id = {one.id: one for one in offered}
    asked = state.param("other")
    st.session_state["other_checkpoint"] = asked if asked in by_id else offered[0].id
    st.selectbox(
        "Other checkpoint",
        list(by_id),
        key="other_checkpoint",
        format_func=lambda one: plain(_described(by_id[one]), 80),
        on_change=lambda: state.set_params(other=st.session_state["other_checkpoint"]),
        label_visibility="collapsed",
    )
    return by_id[str(st.session_state["other_checkpoint"])]


def _described(one: CheckpointSummary) -> str:
    svf = ", SVF" if one.config.get("svf_layout") else ""
    return f"{who(one.id, one.generation)}{svf} · run {one.run_id or 'unknown'}"


def _other_logits(
    seen: Seen, chosen: CheckpointSummary
) -> (
    tuple[
        np.ndarray[tuple[int], np.dtype[np.float64]], np.ndarray[tuple[int], np.dtype[np.float64]], Checkpoint
    ]
    | None
):
    """Its logits here, how far they are known, and itself; None, with what to do, where they cannot be had."""
    store = seen.recording.store
    theirs = checkpoint_of(store, chosen.id)
    if theirs is None or seen.checkpoint is None:
        return None
    if not theirs.svf_layout and not seen.checkpoint.svf_layout:
        lens = look(theirs, seen.decision.hidden_state, seen.index)
        if lens is None:
            st.caption(_why_not(seen))
            return None
        return lens.logits, lens.tolerance, theirs
    kept = read_second_opinion(store, seen.recording.episode.id, seen.index, theirs.id)
    if kept is None:
        st.info(
            "SVF changes the encoder itself, so the stored state is not what this checkpoint would have read: its "
            "encoder has to read the transcript again first. Policy diff does that.",
            icon=":material/info:",
        )
        if "policy" in state.VIEWS:
            state.page_link(
                "policy",
                "Read it again on the Policy diff page",
                icon=":material/difference:",
                ep=seen.recording.episode.id,
                c=f"{seen.checkpoint.id},{theirs.id}",
            )
        return None
    z = np.array([*kept[0], *kept[1]])
    return z, np.zeros(len(z)), theirs


def _would(found: Otherwise, seen: Seen) -> str:
    """What would have been chosen, as the end of a sentence in markdown."""
    slot, role = found.pair
    models, decision = seen.recording.models, seen.decision
    words = pair_words(models[slot], role)
    how = "would have drawn" if found.draw else "would have chosen"
    if found.unsure:
        return f"{how} **{words}**, or not: :orange[too close to call] within the tolerance of {found.tolerance:.1g}"
    if (models[slot], role) == (decision.model, decision.role):
        return f"{how} :green[:material/check: the same], **{words}**"
    return f"{how} :orange[:material/call_split: otherwise]: **{words}**"


# Without a model


def without_a_model(seen: Seen) -> None:
    """What the recorded logits choose once some models or roles are left out: exactly, from stored numbers."""
    models = seen.recording.models
    barred = _leave_out(models)
    found = without(seen.decision, models, seen.recording.episode, seen.index, barred)
    if found is None:
        st.warning(
            "Leave at least one model and one role in that were allowed here.", icon=":material/block:"
        )
        return
    if barred:
        st.markdown(f"Without them the coordinator {_would(found, seen)}.")
    else:
        st.caption("Untick models or roles: their logits are removed and the rest share the probability.")
    slot, role = found.pair
    shown = _as_chosen(found, models[slot], role)
    plot(
        softmax_bars(shown, models), key="mask_bars", config=_CONFIG, alt="Probabilities of what is left in."
    )
    plot(
        joint_grid(shown, models, ink()),
        key="mask_grid",
        config=_CONFIG,
        alt="Joint probabilities of what is left in.",
    )
    if barred:
        _over_the_episode(seen, barred)


def _as_chosen(found: Otherwise, model: str, role: Role) -> Decision:
    return replace(found.decision, model=model, role=role)


def _leave_out(models: Sequence[str]) -> frozenset[str]:
    """What is left out. It stands in the address by slot number and role letter: `without=2,V`."""
    codes = {str(slot + 1): name for slot, name in enumerate(models)}
    letters = {ROLE_LOOKS[role].letter: role for role in ROLE_ORDER}
    asked = set((state.param("without") or "").split(","))
    for key, options in (("mask_models", codes), ("mask_roles", letters)):
        st.session_state[key] = [code for code in options if code not in asked]

    def changed() -> None:
        kept = {*st.session_state["mask_models"], *st.session_state["mask_roles"]}
        state.set_params(without=",".join(code for code in (*codes, *letters) if code not in kept))

    st.pills(
        "Models left in",
        list(codes),
        key="mask_models",
        selection_mode="multi",
        format_func=lambda code: label(codes[code], 30),
        on_change=changed,
    )
    st.pills(
        "Roles left in",
        list(letters),
        key="mask_roles",
        selection_mode="multi",
        format_func=lambda code: ROLE_LOOKS[letters[code]].word,
        on_change=changed,
    )
    return frozenset(
        [codes[code] for code in asked if code in codes]
        + [letters[code].value for code in asked if code in letters]
    )


def _over_the_episode(seen: Seen, barred: frozenset[str]) -> None:
    """How many of the episode's choices would have been others, and where the first is."""
    recording = seen.recording
    decided, changed = 0, []
    for index, decision in enumerate(read_decisions(recording.store, recording.episode.id)):
        if not decision.model_logits or not decision.role_logits:
            continue
        found = without(decision, recording.models, recording.episode, index, barred)
        decided += 1
        if found is None:
            continue
        slot, role = found.pair
        if (recording.models[slot], role) != (decision.model, decision.role):
            changed.append(index)
    if not changed:
        st.caption(f"None of this episode's {decided} choices would have been another.")
        return
    st.caption(
        f"{len(changed)} of this episode's {decided} choices would have been others. From the first on the transcript "
        "would have been another, so only that one is certain."
    )
    here_link(f"Turn {changed[0] + 1} is the first", changed[0])


# Neighbours


def near_by(seen: Seen) -> None:
    """Decisions of other episodes that were read from nearly the same state: what was chosen, how they ended."""
    if seen.checkpoint is None or not seen.decision.hidden_state:
        st.caption(_why_not(seen))
        return
    found = neighbourhood(
        seen.recording.store,
        readers(seen.recording.store, seen.checkpoint),
        seen.decision.hidden_state,
        seen.recording.episode.id,
        seen.decision.prompt_digest,
    )
    if found is None or not found.near:
        st.caption("The store holds no other decision that was read by the same encoder.")
        return
    st.markdown(f"**What did the {len(found.near)} nearest decisions choose, and how did it end?**")
    rows = [
        f"| {ROLE_LOOKS[one.role].shape} {pair_words(one.model, one.role)} | {one.n} | "
        f"{share(one.right / one.judged) if one.judged else '–'} |"
        for one in found.tallies[:6]
    ]
    st.markdown("\n".join(["| Chosen there | times | ended right |", "|:--|--:|--:|", *rows]))
    for one in found.near[:SHOWN]:
        mark = correct_mark(one.turn.correct)
        same = ", the same text" if one.same_text else ""
        state.page_link(
            "replay",
            f"{one.cosine:.4f}{same} · {ROLE_LOOKS[one.turn.role].shape} {label(one.turn.model, 24)} · "
            f":{mark.tone}[{mark.icon} {mark.word}] · {label(one.turn.question, 40)}",
            ep=one.turn.episode_id,
            t=one.turn.index + 1,
            panel="near",
        )
    sampled = f", a fixed sample of {found.total:,}" if found.total > SAMPLE else ""
    st.caption(
        f"By cosine of hidden states, out of {found.looked:,} decisions of other episodes, same encoder{sampled}; "
        f"the table counts the nearest {min(COUNTED, len(found.near))}.",
        help=define("Cosine"),
    )


def here_link(words: str, index: int) -> None:
    """A link to another turn of this view, everything else kept."""
    query = st.query_params.to_dict() | {"t": str(index + 1)}
    state.page_link("replay", words, icon=":material/arrow_forward:", **query)


# The panels together

Panel = Callable[[Seen], None]
#: What can stand beside a turn, as the address says it -> its words and what draws it, in the order of their keys.
PANELS: dict[str, tuple[str, Panel | None]] = {
    "decision": ("Decision", None),
    "head": ("Head lens", head_lens),
    "other": ("Other checkpoint", other_checkpoint),
    "without": ("Without a model", without_a_model),
    "near": ("Neighbours", near_by),
}


def beside_turn(recording: Recording, index: int) -> None:
    """The panel that the address names, its tabs above and below it whether the turn can be recomputed."""
    shown = _tabs()
    decision = recording.decision(index)
    panel = PANELS[shown][1]
    if panel is None or decision is None:
        decision_panel(decision, recording.models, key="decision")
    if decision is None:
        return
    if not decision.model_logits or not decision.role_logits:
        if panel is not None:
            st.caption("This policy has no head and no logits: only a checkpoint's turns can be looked into.")
        return
    try:
        seen = Seen(recording, index, decision, checkpoint_of(recording.store, recording.episode.policy))
        if panel is not None:
            panel(seen)
        badge(seen)
    except TrinityError as error:
        st.error(label(str(error), 400), icon=":material/error:")


def _tabs() -> str:
    """One button per panel; its key is its place."""
    asked = state.param("panel") or "decision"
    shown = asked if asked in PANELS else "decision"
    with st.container(horizontal=True, gap="small", key="panels"):
        for place, (name, (words, _)) in enumerate(PANELS.items(), 1):
            st.button(
                words,
                key=f"panel_{name}",
                shortcut=str(place),
                type="secondary" if name == shown else "tertiary",
                on_click=_show,
                args=(name,),
            )
    return shown


def _show(name: str) -> None:
    state.set_params(panel=None if name == "decision" else name)
