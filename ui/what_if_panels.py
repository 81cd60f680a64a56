"""What else a decision could have been: by another checkpoint, without a model, and in decisions near to it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import streamlit as st

from core.checkpoint import Checkpoint
from core.episode import ROLE_ORDER, Decision, Role
from storage.filters import EpisodeFilter, measured
from storage.steps import read_decisions, read_second_opinion
from storage.store import Store
from storage.summaries import CheckpointSummary
from ui import state
from ui.components.decision_chart import decision_chart
from ui.decision_panels import pair_words
from ui.figures import share
from ui.glossary import define
from ui.kept_heads import checkpoint_of, most_telling, others, readers, spoken
from ui.lens import Array, Otherwise, look, otherwise, without
from ui.lens_panels import Seen, known_to, why_not
from ui.nearest import COUNTED, SAMPLE, SHOWN, Tally, neighbourhood
from ui.odds import beside, options
from ui.rescored import allowed
from ui.theme import ROLE_LOOKS, badge, correct_mark, label, plain
from ui.widgets import who

#: A divergence below so many nats -> in words.
_APART = ((0.001, "as good as the same"), (0.1, "close together"), (1.0, "some way apart"))
#: So many turns are looked at for the first at which two checkpoints part.
PARTED_AT_MOST = 100
#: So many choices of near decisions are named, the others counted together.
_MOST_TALLIES = 6
#: Probabilities that differ by less are the same.
_SAME_P = 1e-6

# Another checkpoint


def other_checkpoint(seen: Seen) -> None:
    """What another head would have made of the same transcript, its probabilities over these bars."""
    if seen.checkpoint is None:
        st.caption(why_not(seen))
        return
    offered = others(seen.recording.store, seen.checkpoint)
    if not offered:
        st.caption(
            "The store holds no other checkpoint that reads as this one does and chooses among the same models."
        )
        return
    chosen = _pick_other(seen.recording.store, offered, seen.checkpoint.id)
    logits = _other_logits(seen, chosen)
    if logits is None:
        return
    z, tolerance, theirs = logits
    found = _by_other(seen, seen.decision, seen.index, z, tolerance, theirs)
    name = label(who(chosen.id, chosen.generation), 60)
    if has_no_preference(found.decision):
        st.markdown(
            f"{name} **has no preference yet: every pair is equally likely**. By the random numbers of this turn it "
            f"{_would(found, seen)}."
            if found.draw
            else f"{name} **has no preference yet: every pair is equally likely**."
        )
    else:
        st.markdown(f"{name} {_would(found, seen)}.")
    _its_own_way(seen, chosen.id, theirs, name)
    st.markdown(f"Over all pairs the two are {apart(found.kl)}.", help=define("KL divergence"))
    models, roles = options(seen.decision, seen.recording.models)
    decision_chart(
        beside(models, found.decision.model_probs),
        beside(roles, found.decision.role_probs),
        key="other_chart",
        what="Probability of each model and of each role, as recorded and by the other checkpoint.",
        grid=False,
    )
    st.caption(
        f"Bars: recorded. Open diamonds: the other checkpoint. {known_to(found.tolerance, 'the other')} "
        "Only the first turn at which it chooses otherwise is certain: from there on it would have read another text."
    )


def _by_other(
    seen: Seen, decision: Decision, index: int, z: Array, tolerance: Array, theirs: Checkpoint
) -> Otherwise:
    """A decision of the episode by the other checkpoint's logits, under its masks."""
    masks = [
        allowed(mask, own)
        for mask, own in zip(
            (decision.model_mask, decision.role_mask), (theirs.model_mask, theirs.role_mask), strict=True
        )
    ]
    return otherwise(decision, seen.recording.models, seen.recording.episode, index, z, tolerance, masks)


def _its_own_way(seen: Seen, policy: str, theirs: Checkpoint, name: str) -> None:
    """Whether it would have come to this turn at all, and what it played when it had the task itself."""
    parted = _parted_before(seen, theirs)
    if parted is not None:
        here_link(f"It would have left this course at turn {parted + 1}", parted)
    own = seen.recording.summary
    where = measured(EpisodeFilter(task=own.task_id, family=own.family, policy=policy))
    for other in seen.recording.store.episodes.page(where, limit=1).items:
        words = f"What {name} played on this task: {badge(correct_mark(other.correct))}, {other.turns} turns"
        state.page_link("pair", words, icon=":material/compare:", a=own.id, b=other.id)


def _parted_before(seen: Seen, theirs: Checkpoint) -> int | None:
    """The first turn before this one at which it would surely have chosen otherwise, of the first PARTED_AT_MOST; None
    where there is none or its encoder is another."""
    if theirs.svf_layout or seen.checkpoint is None or seen.checkpoint.svf_layout:
        return None
    recording = seen.recording
    before = read_decisions(recording.store, recording.episode.id)
    for index, decision in enumerate(before[: min(seen.index, PARTED_AT_MOST)]):
        lens = look(theirs, decision.hidden_state, index)
        if lens is None or not decision.model_logits or not decision.role_logits:
            continue
        found = _by_other(seen, decision, index, lens.logits, lens.tolerance, theirs)
        slot, role = found.pair
        if not found.unsure and (recording.models[slot], role) != (decision.model, decision.role):
            return index
    return None


def has_no_preference(decision: Decision) -> bool:
    """Whether every pair that may be chosen is equally likely, as before an evolution."""
    sides = (
        (decision.model_probs, decision.model_mask),
        (decision.role_probs, decision.role_mask),
    )
    open_to = [
        [p for p, free in zip(probs, mask or (True,) * len(probs), strict=True) if free]
        for probs, mask in sides
    ]
    return all(max(ps) - min(ps) < _SAME_P for ps in open_to if ps)


def apart(kl: float) -> str:
    """D_KL(recorded || other) in nats as words, with its number, as markdown."""
    words = next((words for below, words in _APART if kl < below), "far apart")
    if math.isinf(kl):
        return f"**{words}**: the other never takes something that could have been taken here"
    return f"**{words}**: KL divergence, D_KL(recorded ‖ other), {kl:.{3 if kl < 1 else 1}f} nats"


def _pick_other(store: Store, offered: Sequence[CheckpointSummary], own: str) -> CheckpointSummary:
    """The other checkpoint, which stands in the address; at first the one that shows most beside this one."""
    by_id = {one.id: one for one in offered}
    asked = state.param("other")
    st.session_state["other_checkpoint"] = asked if asked in by_id else most_telling(store, list(by_id), own)
    named = spoken(store)
    st.selectbox(
        "Other checkpoint",
        list(by_id),
        key="other_checkpoint",
        format_func=lambda one: plain(f"{named(one)}{_described(by_id[one])}", 120),
        on_change=lambda: state.set_params(other=st.session_state["other_checkpoint"]),
        label_visibility="collapsed",
    )
    return by_id[str(st.session_state["other_checkpoint"])]


def _described(one: CheckpointSummary) -> str:
    """What its name leaves out."""
    svf = ", SVF" if one.config.get("svf_layout") else ""
    return f"{svf} · run {one.run_id or 'unknown'}"


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
            st.caption(why_not(seen))
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
        return (
            f"{how} **{words}**, or not: :orange[too close to call] within the tolerance of one logit, "
            f"{found.tolerance:#.2g} at most"
        )
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
    decision_chart(
        *options(_as_chosen(found, models[slot], role), models),
        key="mask_chart",
        what="Probabilities of what is left in: each model and each role.",
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
    for key, codes_of in (("mask_models", codes), ("mask_roles", letters)):
        st.session_state[key] = [code for code in codes_of if code not in asked]

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
        st.caption(why_not(seen))
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
    first, rest = found.tallies[:_MOST_TALLIES], found.tallies[_MOST_TALLIES:]
    rows = [_tally(f"{ROLE_LOOKS[one.role].shape} {pair_words(one.model, one.role)}", [one]) for one in first]
    rows += [_tally("any other", rest)] if rest else []
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


def _tally(words: str, of: Sequence[Tally]) -> str:
    """A row of the table: how often it was chosen, and how it ended where that was judged."""
    judged = sum(one.judged for one in of)
    right = share(sum(one.right for one in of) / judged) if judged else "–"
    return f"| {words} | {sum(one.n for one in of)} | {right} |"


def here_link(words: str, index: int) -> None:
    """A link to another turn of this view, everything else kept."""
    query = st.query_params.to_dict() | {"t": str(index + 1)}
    state.page_link("replay", words, icon=":material/arrow_forward:", **query)
