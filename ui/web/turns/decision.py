"""The decision of one turn: why this model in this role, in words, bars, a grid and numbers; whether its logits can
be recomputed; the prompt that the coordinator read."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

import streamlit as st

from core.analysis.head_lens import Lens, LogitCheck, Pair, compare_logits, lens_of
from core.checkpoint import Checkpoint, Recipe
from core.episode import ROLE_ORDER, Decide, Decision, Role
from core.errors import CheckpointError, TrinityError
from core.outcomes.asking import weights_of
from core.play.policies import rule_of
from core.play.session import request_at
from ui.presentation.glossary import define, explain
from ui.presentation.odds import alternatives, choice_words, masked_words, options, undecided
from ui.presentation.rules import STRENGTH_WORDS, asked_words, told_of
from ui.presentation.theme import ROLE_STYLES, code, label, one_line, percent
from ui.presentation.words import pair_words
from ui.runs import wiring
from ui.runs.policy_kinds import POLICIES
from ui.runs.wiring import encoder_place
from ui.web.components.decision_chart import decision_chart
from ui.web.kit.text import markdown_table, text_block
from ui.web.kit.widgets import button, popover
from ui.web.pickers.checkpoints import checkpoint_of
from ui.web.turns.recording import Recording, order_in


def choice_markdown(decision: Decision, models: Sequence[str], proposed: Pair | None = None) -> str:
    """How the choice came about, as markdown. `proposed` as in `choice_words`."""
    hand = ":blue[:material/front_hand:] " if decision.origin == "override" else ""
    return hand + choice_words(decision, models, lambda text: f"**{label(text)}**", proposed=proposed)


def decision_panel(
    decision: Decision | None,
    models: Sequence[str],
    *,
    key: str,
    by: str | None = None,
    planned: str = "",
    proposed: Pair | None = None,
    missing: Collection[str] = (),
    standing: str = "",
) -> None:
    """Why this model in this role: both softmaxes, the joint grid, the runners-up and the numbers. `by` is the policy
    that decided, shown where several decided the episode; `planned`: why the model is this one, where the turn is a
    step of a workflow; `proposed`: what a person overruled, where it is known; `missing`: the models of which an
    outcome table has no answer; `standing`: how the chosen model stands in that table."""
    if decision is None:
        st.caption("No decision is stored for this turn.")
        return
    if planned:
        pair = label(pair_words(decision.role, decision.model), 60)
        st.markdown(f"**{pair}**: {planned}")
        st.caption(
            "A step has no probabilities of its own: the planner chose its model before any step was played."
        )
        return
    if by is not None:
        st.markdown(f":blue-badge[:material/swap_horiz: decided by {label(by, 60)}]")
    st.markdown(choice_markdown(decision, models, proposed), help=explain("Softmax", "Argmax and sampling"))
    if masked := masked_words(decision, models, missing):
        st.markdown(label(masked, 200))
    if standing:
        st.markdown(label(standing, 300))
    if not decision.model_probs or not decision.role_probs:
        st.caption(
            "Fixed models and cycles of roles are chosen by rule. Episodes of a checkpoint show softmaxes and logits."
        )
        return
    chosen = one_line(pair_words(decision.role, decision.model), 90)
    decision_chart(
        *options(decision, models, proposed=proposed),
        key=f"{key}_chart",
        what=f"Probability of each model and of each role. {chosen} was chosen.",
    )
    dashed = " dashed ring: proposed," if proposed is not None else ""
    st.caption(
        f"Grid: joint probability of model and role in percent; full ring: chosen,{dashed} dotted ring: argmax.",
        help=define("Joint grid"),
    )
    if decision.argmax_model:
        _runners_up(decision, models)
    if decision.model_logits:
        # Closed, it costs a step nothing.
        with st.expander("Logits", key=f"{key}_logits", on_change="rerun") as numbers:
            if numbers.open:
                st.caption(define("Logit"))
                _numbers(decision, models)


def rule_panel(recording: Recording, index: int, decision: Decision, by: str | None = None) -> None:
    """Why a policy without a head asked this model: what it was chosen by, and in which order it asks. `by` is the
    policy that decided, shown where several decided the episode."""
    policy, run = recording.decided_by(index), recording.store.runs.get(recording.episode.run_id)
    rule, told = rule_of(policy), told_of(run.notes, policy)
    order = order_in(recording.store, recording.episode, policy)
    if by is not None:
        st.markdown(f":blue-badge[:material/swap_horiz: decided by {label(by, 60)}]")
    if rule and decision.origin == "policy":
        why = asked_words(recording.outlines, index, [name for name, _ in order], rule)
        st.markdown(f"**{label(pair_words(decision.role, decision.model), 60)}**: {label(why, 300)}")
    else:
        st.markdown(choice_markdown(decision, recording.models))
    if not told and (kind := POLICIES.get(policy.partition(":")[0])):
        told = [f"{policy}: {kind.words}."]
    for sentence in told:
        st.markdown(label(sentence, 500))
    if order:
        _order(recording, order, rule)
    elif rule:
        st.caption("Whom it would have asked next is not kept: its order is another one for each question.")


def _order(recording: Recording, order: Sequence[tuple[str, float]], rule: str) -> None:
    """In which order a rule asks models, how strong it reckons each, and in which turn it was asked."""
    asked = {one.model: one.index + 1 for one in reversed(recording.outlines)}
    weights = weights_of(dict(order)) if rule == "weighted-vote" else {}
    rows = [
        (
            str(place),
            label(name, 40),
            percent(strength),
            *([f"{weights[name]:.2f}"] if weights else []),
            f"turn {asked[name]}" if name in asked else "–",
        )
        for place, (name, strength) in enumerate(order, 1)
    ]
    names = ("", "Model", "Strength", *(["Weight"] if weights else []), "Asked in")
    markdown_table(names, rows, f"rlr{'r' * bool(weights)}l")
    st.caption(
        f"The order for questions of the family {label(recording.summary.family, 40)}. {STRENGTH_WORDS}"
        + (" A vote weighs the logarithm of the odds of its model." if weights else "")
    )


def undecided_panel(models: Sequence[str], *, key: str, heading: bool = True) -> None:
    """The place of a decision, before there is one: as large as the decision, so that nothing moves then."""
    if heading:
        st.markdown("**Decision**")
        st.caption("The first model and its role show here once the coordinator has decided.")
    nothing = Decision(
        "", ROLE_ORDER[0], model_probs=(0.0,) * len(models), role_probs=(0.0,) * len(ROLE_ORDER)
    )
    decision_chart(
        *(undecided(side) for side in options(nothing, models)),
        key=f"{key}_chart",
        what="Every model and every role; nothing is decided yet.",
    )


def _runners_up(decision: Decision, models: Sequence[str]) -> None:
    rows = [
        (pair_markdown(other.role, other.model), percent(other.p), f"{other.margin:+.2f}")
        for other in alternatives(decision, models)
    ]
    if rows:
        markdown_table(("Instead of it", "p", "choice ahead by"), rows, "lrr")
        st.caption(
            "Ahead by: difference of log-probabilities; below zero the pair was likelier than what was chosen."
        )


def pair_markdown(role: Role, model: str) -> str:
    """A role on a model with the role's shape, as markdown."""
    return f"{ROLE_STYLES[role].shape} {label(pair_words(role, model), 60)}"


def _numbers(decision: Decision, models: Sequence[str]) -> None:
    names = [*(label(name, 40) for name in models), *(ROLE_STYLES[role].word for role in ROLE_ORDER)]
    logits = [*decision.model_logits, *decision.role_logits]
    probs = [*decision.model_probs, *decision.role_probs]
    rows = [(name, f"{logit:+.4f}", f"{p:.4f}") for name, logit, p in zip(names, logits, probs, strict=False)]
    markdown_table(("", "logit", "p"), rows, "lrr")
    if decision.hidden_state:
        st.caption(
            f"Read from a hidden state of {len(decision.hidden_state) // 2:,} numbers, kept as float16."
        )


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
        ("computed", str(Recipe.of(decision.recipe)) if decision.model_logits else "not by an encoder"),
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
            ("made on", str(context.checkpoint.recipe)),
            ("input format", context.checkpoint.input_format),
            ("token read", str(context.checkpoint.token_position)),
        ]
    markdown_table(("", ""), [(name, label(value, 60)) for name, value in rows], "ll")
    st.caption(
        "The state is kept in half precision: the tolerance of a logit is how far that can have moved it.",
        help=define("Tolerance"),
    )


def tolerance_words(tolerance: float, which: str) -> str:
    """How exact the logits of `which` head are, as a sentence; `tolerance`, in logits, is the largest of them."""
    if not tolerance:
        return f"The logits of {which} head are exact."
    return f"Tolerance of one logit of {which} head: at most {tolerance:#.2g}."


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
    from core.tokens.files import prompt_tokens  # tokenizers are slow to import, and few readers ask

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
    digest = f"Their digest: {code(decision.prompt_digest[:16])}" if decision.prompt_digest else None
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
