"""What stands beside a turn, one panel at a time, named in the address: the decision, why it was made, and what else it
could have been: by another checkpoint, with models or roles left out, and in near decisions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import streamlit as st

from core.analysis.head_lens import (
    AlternativeDecision,
    alternative_decision,
    decision_without,
    lens_of,
    read_half,
)
from core.checkpoint import Checkpoint
from core.episode import ROLE_ORDER, Decision, Role
from core.errors import TrinityError
from core.heads import Array, common_mask
from storage.analysis.hidden_states import PastDecisions, StateTurn, read_past_decisions
from storage.filters.episode_filter import EpisodeFilter, for_totals
from storage.reads.episode_steps import read_decisions, read_second_opinion
from storage.rows.summaries import CheckpointSummary
from storage.store import Store
from ui.presentation.glossary import define
from ui.presentation.odds import apart_words, options, with_other_head
from ui.presentation.theme import ROLE_STYLES, badge, correct_mark, label, percent, plain
from ui.presentation.words import pair_words, policy_name
from ui.web.components.decision_chart import decision_chart
from ui.web.kit import state
from ui.web.kit.cache import remembered
from ui.web.kit.text import markdown_table
from ui.web.kit.widgets import tool
from ui.web.pickers.checkpoints import (
    checkpoint_of,
    generation_of,
    most_telling,
    others,
    policy_label,
    readers,
)
from ui.web.turns.decision import (
    DecisionContext,
    decision_panel,
    pair_markdown,
    recomputation,
    rule_panel,
    tolerance_words,
    why_not_recomputed,
)
from ui.web.turns.recording import Recording, standing_words
from ui.web.turns.why import why_panel
from ui.web.turns.workflow import chosen_by

#: The most turns searched for the first at which two checkpoints choose otherwise.
MOST_EARLIER_TURNS = 100
#: The most choices of near decisions that are named; the others are counted together.
_MOST_CHOICES = 6
#: Probabilities that differ by less are the same.
_SAME_P = 1e-6


def other_checkpoint_panel(context: DecisionContext) -> None:
    """What another head would have made of the same transcript, its probabilities over these bars."""
    if context.checkpoint is None:
        st.caption(why_not_recomputed(context))
        return
    offered = others(context.recording.store, context.checkpoint)
    if not offered:
        st.caption(
            "The store holds no other checkpoint that reads as this one does and chooses among the same models."
        )
        return
    chosen = _pick_other(context.recording.store, offered, context.checkpoint.id)
    logits = _other_logits(context, chosen)
    if logits is None:
        return
    z, tolerance, theirs = logits
    found = _by_other(context, context.decision, context.index, z, tolerance, theirs)
    name = label(policy_name(chosen.id, generation_of(context.recording.store).get(chosen.id)), 60)
    sentence = f"{_choice_words(found, context)}."
    if has_no_preference(found.decision):
        drawn = f" By the random numbers of this turn it {sentence}" if found.draw else ""
        sentence = f"**has no preference yet: every pair is equally likely**.{drawn}"
    st.markdown(f"{name} {sentence}")
    _other_course(context, chosen.id, theirs, name)
    slots = context.recording.models
    st.markdown(
        apart_words(context.decision, slots, found.decision, slots, found.kl),
        help=f"D_KL(recorded ‖ other). {define('KL divergence')}",
    )
    models, roles = options(context.decision, slots)
    decision_chart(
        with_other_head(models, found.decision.model_probs),
        with_other_head(roles, found.decision.role_probs),
        key="other_chart",
        what="Probability of each model and of each role, as recorded and by the other checkpoint.",
        grid=False,
    )
    st.caption(
        "Bars: recorded. Open diamonds: the other checkpoint. Only the first turn at which it chooses otherwise is "
        "certain: from there on it would have read another text.",
        help=f"{tolerance_words(found.tolerance, 'the other')} {define('Tolerance')}",
    )


def _by_other(
    context: DecisionContext, decision: Decision, index: int, z: Array, tolerance: Array, theirs: Checkpoint
) -> AlternativeDecision:
    """A decision of the episode by the other checkpoint's logits, under its masks."""
    masks = [
        common_mask(decision.model_mask, theirs.model_mask),
        common_mask(decision.role_mask, theirs.role_mask),
    ]
    return alternative_decision(
        decision, context.recording.models, context.recording.episode, index, z, tolerance, masks
    )


def _other_course(context: DecisionContext, policy: str, theirs: Checkpoint, name: str) -> None:
    """Whether the other checkpoint would have come to this turn, and links to what it played on this task."""
    diverged = _first_divergence(context, theirs)
    if diverged is not None:
        here_link(f"It would have diverged at turn {diverged + 1}", diverged)
    own = context.recording.summary
    where = for_totals(EpisodeFilter(task=own.task_id, family=own.family, policy=policy))
    for other in context.recording.store.episodes.page(where, limit=1).items:
        words = f"What {name} played on this task: {badge(correct_mark(other.correct))}, {other.turns} turns"
        state.page_link("pair", words, icon=":material/compare:", a=own.id, b=other.id)


def _first_divergence(context: DecisionContext, theirs: Checkpoint) -> int | None:
    """The first turn before this one at which it would surely have chosen otherwise, of the first MOST_EARLIER_TURNS;
    None where there is none or its encoder is another."""
    if theirs.svf_layout or context.checkpoint is None or context.checkpoint.svf_layout:
        return None
    recording = context.recording
    before = read_decisions(recording.store, recording.episode.id)
    for index, decision in enumerate(before[: min(context.index, MOST_EARLIER_TURNS)]):
        lens = lens_of(theirs, decision.hidden_state, index)
        if lens is None or not decision.model_logits or not decision.role_logits:
            continue
        found = _by_other(context, decision, index, lens.logits, lens.tolerance, theirs)
        if not found.unsure and not _same_choice(found, decision, recording.models):
            return index
    return None


def has_no_preference(decision: Decision) -> bool:
    """Whether every pair that may be chosen is equally likely, as before an evolution."""
    sides = ((decision.model_probs, decision.model_mask), (decision.role_probs, decision.role_mask))
    open_to = [
        [p for p, free in zip(probs, mask or (True,) * len(probs), strict=True) if free]
        for probs, mask in sides
    ]
    return all(max(ps) - min(ps) < _SAME_P for ps in open_to if ps)


def _pick_other(store: Store, offered: Sequence[CheckpointSummary], own: str) -> CheckpointSummary:
    """The other checkpoint, which stands in the address; at first the one before this one."""
    by_id = {one.id: one for one in offered}
    named, words = policy_label(store), {}
    for one in offered:
        svf = ", SVF" if one.config.get("svf_layout") else ""
        words[one.id] = plain(f"{named(one.id)}{svf}", 120)
    chosen = state.address_select(
        "Other checkpoint",
        words,
        name="other",
        key="other_checkpoint",
        default=most_telling(store, list(by_id), own),
        widget="list",
        label_visibility="collapsed",
    )
    return by_id[chosen]


def _other_logits(
    context: DecisionContext, chosen: CheckpointSummary
) -> tuple[Array, Array, Checkpoint] | None:
    """The other checkpoint's logits here, their tolerances, and itself; None, saying why, where they cannot be had."""
    store = context.recording.store
    theirs = checkpoint_of(store, chosen.id)
    if theirs is None or context.checkpoint is None:
        return None
    if not theirs.svf_layout and not context.checkpoint.svf_layout:
        lens = lens_of(theirs, context.decision.hidden_state, context.index)
        if lens is None:
            st.caption(why_not_recomputed(context))
            return None
        return lens.logits, lens.tolerance, theirs
    stored = read_second_opinion(store, context.recording.episode.id, context.index, theirs.id)
    if stored is None:
        st.info(
            "SVF changes the encoder itself, so the stored state is not what this checkpoint would have read: its "
            "encoder has to read the transcript again first. Policy diff does that.",
            icon=":material/info:",
        )
        state.page_link(
            "policy",
            "Read it again on the Policy diff page",
            icon=":material/difference:",
            ep=context.recording.episode.id,
            c=f"{context.checkpoint.id},{theirs.id}",
        )
        return None
    logits = np.array([*stored[0], *stored[1]])
    return logits, np.zeros(len(logits)), theirs


def _same_choice(found: AlternativeDecision, decision: Decision, models: Sequence[str]) -> bool:
    slot, role = found.pair
    return (models[slot], role) == (decision.model, decision.role)


def _choice_words(found: AlternativeDecision, context: DecisionContext) -> str:
    """What would have been chosen, as the end of a sentence in markdown."""
    slot, role = found.pair
    models = context.recording.models
    words = label(pair_words(role, models[slot]), 60)
    how = "would have drawn" if found.draw else "would have chosen"
    if found.unsure:
        return f"{how} **{words}**, or not: :orange[too close to call]"
    if _same_choice(found, context.decision, models):
        return f"{how} :green[:material/check: the same], **{words}**"
    return f"{how} :orange[:material/call_split: otherwise]: **{words}**"


def leave_out_panel(context: DecisionContext) -> None:
    """What the recorded logits choose once some models or roles are left out: exactly, from stored numbers."""
    models = context.recording.models
    barred = _leave_out(models)
    found = decision_without(context.decision, models, context.recording.episode, context.index, barred)
    if found is None:
        words = "Keep at least one model and one role that were allowed here."
        st.warning(words, icon=":material/block:")
        return
    if barred:
        st.markdown(f"Without them the coordinator {_choice_words(found, context)}.")
    else:
        st.caption("Untick models or roles: their logits are removed and the rest share the probability.")
    slot, role = found.pair
    decision_chart(
        *options(replace(found.decision, model=models[slot], role=role), models),
        key="mask_chart",
        what="Probabilities of what is left in: each model and each role.",
    )
    if barred:
        _over_episode(context, barred)


def _leave_out(models: Sequence[str]) -> frozenset[str]:
    """What is left out. It stands in the address by slot number and role letter: `without=2,V`."""
    slots = {str(slot + 1): name for slot, name in enumerate(models)}
    looks = {role.value: ROLE_STYLES[role] for role in ROLE_ORDER}
    letters = {look.letter: role for role, look in looks.items()}
    names = slots | letters
    left_out = set((state.param("without") or "").split(",")) & set(names)

    def changed() -> None:
        left_in = {*(state.entered("mask_models") or ()), *(state.entered("mask_roles") or ())}
        state.set_params(without=",".join(code for code in names if code not in left_in))

    for key, words, codes in (
        ("mask_models", "Models left in", {code: label(name, 30) for code, name in slots.items()}),
        ("mask_roles", "Roles left in", {look.letter: look.word for look in looks.values()}),
    ):
        st.session_state[key] = [code for code in codes if code not in left_out]
        st.pills(
            words,
            list(codes),
            key=key,
            selection_mode="multi",
            format_func=codes.__getitem__,
            on_change=changed,
        )
    return frozenset(names[code] for code in left_out)


def _over_episode(context: DecisionContext, barred: frozenset[str]) -> None:
    """How many of the episode's choices would have been others, and where the first is."""
    recording = context.recording
    decided, changed = 0, []
    for index, decision in enumerate(read_decisions(recording.store, recording.episode.id)):
        if not decision.model_logits or not decision.role_logits:
            continue
        found = decision_without(decision, recording.models, recording.episode, index, barred)
        decided += 1
        if found is not None and not _same_choice(found, decision, recording.models):
            changed.append(index)
    if not changed:
        st.caption(f"None of this episode's {decided} choices would have changed.")
        return
    st.caption(
        f"{len(changed)} of this episode's {decided} choices would have changed. After the first the transcript would "
        "differ, so only that one is certain."
    )
    here_link(f"Turn {changed[0] + 1} is the first", changed[0])


def neighbours_panel(context: DecisionContext) -> None:
    """Decisions of other episodes that were read from nearly the same state: what was chosen, how they ended."""
    if context.checkpoint is None or not context.decision.hidden_state:
        st.caption(why_not_recomputed(context))
        return
    store, episode_id = context.recording.store, context.recording.episode.id
    policies = readers(store, context.checkpoint)
    hidden, digest = context.decision.hidden_state, context.decision.prompt_digest
    found = neighbourhood(store, policies, hidden, episode_id, digest)
    if found is None or not found.near:
        st.caption("The store holds no other decision that was read by the same encoder.")
        return
    st.markdown(f"**What did the {len(found.near)} nearest decisions choose, and how did it end?**")
    first, rest = found.choices[:_MOST_CHOICES], found.choices[_MOST_CHOICES:]
    rows = [_choice_row(pair_markdown(role, model), turns) for (model, role), turns in first]
    rows += [_choice_row("any other", [turn for _, turns in rest for turn in turns])] if rest else []
    markdown_table(("Chosen there", "times", "ended right"), rows, "lrr")
    for one in found.near[:SHOWN]:
        mark = correct_mark(one.turn.correct)
        same = ", the same text" if one.same_text else ""
        state.page_link(
            "replay",
            f"{one.cosine:.4f}{same} · {ROLE_STYLES[one.turn.role].shape} {label(one.turn.model, 24)} · "
            f":{mark.tone}[{mark.icon} {mark.word}] · {label(one.turn.question, 40)}",
            ep=one.turn.episode_id,
            t=one.turn.index + 1,
            panel="near",
        )
    sampled = f", a fixed sample of {found.total:,}" if found.total > SAMPLE else ""
    st.caption(
        f"By cosine of hidden states, out of {found.compared:,} decisions of other episodes, same encoder{sampled}; "
        f"the table counts the nearest {min(COUNTED, len(found.near))}.",
        help=define("Cosine"),
    )


def _choice_row(words: str, turns: Sequence[StateTurn]) -> tuple[str, str, str]:
    judged = [one.correct for one in turns if one.correct is not None]
    return words, str(len(turns)), percent(sum(judged) / len(judged)) if judged else "–"


def here_link(words: str, index: int) -> None:
    """A link to another turn of this view, everything else kept."""
    query = st.query_params.to_dict() | {"t": str(index + 1)}
    state.page_link("replay", words, query, icon=":material/arrow_forward:")


#: Decisions that are looked through, how many of the nearest are counted, and how many are shown.
SAMPLE, COUNTED, SHOWN = 4000, 50, 8


@dataclass(frozen=True, slots=True)
class NearDecision:
    """A decision near another: the cosine of both states, and whether both read the very same transcript."""

    turn: StateTurn
    cosine: float
    same_text: bool


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """The nearest decisions, nearest first, out of `compared` of `total`."""

    near: tuple[NearDecision, ...]
    compared: int
    total: int

    @property
    def choices(self) -> list[tuple[tuple[str, Role], list[StateTurn]]]:
        """What was chosen there, with the turns that chose it, the most frequent first."""
        found: dict[tuple[str, Role], list[StateTurn]] = {}
        for one in self.near:
            found.setdefault((one.turn.model, one.turn.role), []).append(one.turn)
        return sorted(found.items(), key=lambda choice: -len(choice[1]))


def neighbourhood(
    store: Store, policies: Sequence[str], hidden: bytes, episode_id: str, digest: str
) -> Neighbourhood | None:
    """The decisions of other episodes nearest to a state, by cosine; None when the state cannot be read."""
    past = _past(store, policies)
    state = read_half(hidden, len(hidden) // 2)
    if state is None or not past.turns:
        return None if state is None else Neighbourhood((), 0, past.total)
    return nearest(past, state, episode_id, digest)


def nearest(
    past: PastDecisions, state: np.ndarray[tuple[int], np.dtype[np.float64]], episode_id: str, digest: str
) -> Neighbourhood:
    """The decisions of other episodes, among those loaded, that are nearest to a state by cosine."""
    if past.hidden.shape[1] != len(state):
        return Neighbourhood((), 0, past.total)
    lengths = np.linalg.norm(past.hidden, axis=1) * np.linalg.norm(state)
    with np.errstate(invalid="ignore", divide="ignore"):
        cosines = np.nan_to_num(past.hidden @ state / lengths, nan=-1.0)
    foreign = np.array([turn.episode_id != episode_id for turn in past.turns], bool)
    order = [row for row in np.argsort(-cosines, kind="stable").tolist() if foreign[row]][:COUNTED]
    near = []
    for row in order:
        turn = past.turns[row]
        same_text = bool(digest) and turn.prompt_digest == digest
        near.append(NearDecision(turn, min(1.0, float(cosines[row])), same_text))
    return Neighbourhood(tuple(near), int(foreign.sum()), past.total)


@remembered(most=8, seconds=300)
def _past(store: Store, policies: Sequence[str]) -> PastDecisions:
    return read_past_decisions(store, policies, SAMPLE)


Panel = Callable[[DecisionContext], None]
#: What can stand beside a turn, as the address says it -> its words and what draws it, in the order of their keys.
PANELS: dict[str, tuple[str, Panel | None]] = {
    "decision": ("Decision", None),
    "why": ("Why", why_panel),
    "other": ("Other checkpoint", other_checkpoint_panel),
    "without": ("Leave out", leave_out_panel),
    "near": ("Neighbours", neighbours_panel),
}


def turn_panel(recording: Recording, index: int) -> None:
    """The panel that the address names, its tabs above and below it whether the turn can be recomputed."""
    # A planner wrote a workflow's steps before any was played: no choice is there to be looked into.
    # Nor is there of a policy without a head.
    decision = recording.decision(index)
    headless = decision is not None and not (decision.model_logits and decision.role_logits)
    if headless and decision and not (decision.role_probs or recording.episode.plans):
        rule_panel(recording, index, decision, decider_words(recording, index))
        return
    shown = "decision" if headless or recording.episode.plans else _tabs()
    panel = PANELS[shown][1]
    if panel is None or decision is None:
        decision_panel(
            decision,
            recording.models,
            key="decision",
            by=decider_words(recording, index),
            planned=chosen_by(recording.episode, index, recording.turns) if recording.episode.plans else "",
            proposed=recording.overruled(index),
            missing=recording.missing,
            standing=standing_words(recording, decision.model) if decision else "",
        )
    if decision is None or headless:
        return
    try:
        context = DecisionContext(
            recording, index, decision, checkpoint_of(recording.store, recording.decided_by(index))
        )
        if panel is not None:
            panel(context)
        recomputation(context)
    except TrinityError as error:
        st.error(label(str(error), 400), icon=":material/error:")


def decider_words(recording: Recording, index: int) -> str | None:
    """The policy that decided a turn, in words, of an episode in which several did."""
    if not recording.episode.deciders:
        return None
    name = recording.decided_by(index)
    return policy_name(name, generation_of(recording.store).get(name))


def _tabs() -> str:
    """One button per panel; its key is its place."""
    named = state.param("panel") or ""
    shown = named if named in PANELS else "decision"
    with st.container(horizontal=True, gap="xsmall", key="tools_panels"):
        for place, (name, (words, _)) in enumerate(PANELS.items(), 1):
            show = partial(state.set_params, panel=None if name == "decision" else name)
            look = "secondary" if name == shown else "tertiary"
            tool(words, f"panel_{name}", show, shortcut=str(place), type=look)
    return shown
