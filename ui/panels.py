"""The panels of one turn: its card (what was said, seen, changed) and its decision (why this model and role).

Used by Replay, Two episodes and Live. Everything a model wrote is shown as text, never as markdown.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import streamlit as st

from core.episode import ROLE_ORDER, Decision, Flag, Message, Role
from storage.summaries import TurnOutline, TurnText
from ui import state
from ui.chart import plot
from ui.course import in_words
from ui.figures import joint_grid, share, softmax_bars
from ui.glossary import define
from ui.spending import dollars
from ui.theme import (
    FLAG_WORDS,
    ROLE_LOOKS,
    badge,
    correct_mark,
    label,
    one_line,
    plain,
    verdict_mark,
)
from ui.widgets import ink

#: Longer texts are cut to this many characters until a reader asks for all of them, and to HARD_CUT even
#: then.
CUT, HARD_CUT = 6_000, 400_000

#: What a card can show of its turn, as the address says it -> its words.
VIEWS = {"reply": "Reply", "saw": "What it saw", "raw": "Raw", "diff": "Diff to previous answer"}


@dataclass(frozen=True, slots=True)
class Alternative:
    """A pair that was not chosen: its probability and by how many nats the chosen pair was ahead of it."""

    model: str
    role: Role
    p: float
    margin: float


def seconds(value: float) -> str:
    """A duration: `0.04 s`, `3.1 s`, `2 min 5 s`."""
    if value >= 60:
        return f"{int(value // 60)} min {value % 60:.0f} s"
    return f"{value:.2f} s" if value < 1 else f"{value:.1f} s"


def text_block(body: str, *, key: str, empty: str = "Nothing was said.") -> None:
    """Foreign text as text. What is too long is cut, with its size and a way to see the rest."""
    if not body:
        st.caption(empty)
        return
    whole = len(body) <= CUT or st.session_state.get(f"{key}_whole", False)
    shown = body[:HARD_CUT] if whole else body[:CUT]
    st.code(plain(shown), language=None, wrap_lines=True, height="content" if len(shown) <= CUT else 640)
    if not whole:
        st.button(
            f"Show all {len(body):,} characters",
            key=f"{key}_more",
            on_click=_show_whole,
            args=(f"{key}_whole",),
            type="tertiary",
        )
    elif len(body) > HARD_CUT:
        st.caption(f"The first {HARD_CUT:,} of {len(body):,} characters; `trinity export` writes them all.")


def _show_whole(flag: str) -> None:
    st.session_state[flag] = True


def turn_heading(outline: TurnOutline, total: int, *, running: bool = False) -> str:
    """`Turn 4 of 7 · ▲ Verifier · delta · Revise · 812 tokens · 3.1 s · $0.004` as markdown with foreign
    text escaped."""
    look = ROLE_LOOKS[outline.role]
    parts = [
        f"**Turn {outline.index + 1} of {total}**",
        f"{look.shape} {look.word}",
        f"**{label(outline.model, 40)}**",
    ]
    mark = verdict_mark(outline.verdict, unreadable=Flag.VERDICT_UNREADABLE in outline.flags)
    if mark:
        parts.append(badge(mark))
    if outline.stage == "asked":
        parts.append(":blue[:material/edit_note: writing]" if running else ":orange[cut off]")
    else:
        parts += [
            f":gray[{outline.tokens_in + outline.tokens_out:,} tokens]",
            f":gray[{seconds(outline.latency_s)}]",
            f":gray[{label(dollars(outline.cost_usd))}]",
        ]
    return " · ".join(parts)


def turn_card(
    outlines: Sequence[TurnOutline],
    index: int,
    text: Callable[[int], TurnText],
    decision: Decision | None,
    *,
    key: str,
    tab: str,
    running: bool = False,
) -> None:
    """The card of turn `index`. `text` reads one turn's texts and is called only for what is shown; `tab` is
    the address's name for what that is; `running` tells a turn being played from one that was cut off."""
    outline = outlines[index]
    st.markdown(turn_heading(outline, len(outlines), running=running))
    _outcome(outlines, index)
    view = state.choice("What to show of this turn", VIEWS, name=tab, key=f"{key}_view")
    place = f"{key}_{outline.episode_id}_{index}_{view}"
    if view == "saw":
        _saw(text(index).messages, decision, key=place)
    elif view == "raw":
        _raw(outline, text(index), decision, key=place)
    elif view == "diff":
        _diff_view(outlines, index, text, key=place)
    else:
        _reply(outline, text(index), key=place, running=running)


def before_card(
    outlines: Sequence[TurnOutline], index: int, text: Callable[[int], TurnText], *, key: str
) -> None:
    """What the turn before said, short, so that a step can be read without going back."""
    st.caption(f"Just before: {turn_heading(outlines[index - 1], len(outlines))}")
    body = text(index - 1).reply
    st.code(plain(body, 400) or "(nothing)", language=None, wrap_lines=True)


def _outcome(outlines: Sequence[TurnOutline], index: int) -> None:
    """The answer after this turn, what became of it, and everything flagged."""
    outline = outlines[index]
    badges = [f":orange-badge[{FLAG_WORDS[flag]}]" for flag in outline.flags]
    if outline.origin == "override":
        badges.insert(0, ":blue-badge[chosen by hand]")
    elif outline.origin == "suggested_role":
        badges.insert(0, ":blue-badge[role suggested by the Thinker]")
    if outline.stage == "finished":
        mark = correct_mark(outline.correct_after)
        if outline.answer_after is None:
            badges.insert(0, ":gray-badge[no answer yet]")
        else:
            before = outlines[index - 1].answer_after if index else None
            kept = " (unchanged)" if before == outline.answer_after else ""
            answer = label(outline.answer_after, 80) or "(empty)"
            badges.insert(0, f":{mark.tone}-badge[{mark.icon} answer {answer} {mark.word}{kept}]")
    if badges:
        st.markdown(" ".join(badges))
    if outline.error:
        st.text(f"The model failed: {plain(outline.error, 2000)}")


def _reply(outline: TurnOutline, told: TurnText, *, key: str, running: bool) -> None:
    if told.reasoning:
        with st.expander("Reasoning", on_change="rerun", key=f"{key}_reasoning_open") as reasoning:
            if reasoning.open:
                text_block(told.reasoning, key=f"{key}_reasoning")
    waiting = running and outline.stage == "asked"
    text_block(
        told.reply,
        key=key,
        empty="Waiting for the first words." if waiting else "The model said nothing.",
    )
    if outline.stage != "finished":
        st.caption("Still being written." if waiting else "This turn was never finished.")


def _saw(messages: Sequence[Message], decision: Decision | None, *, key: str) -> None:
    """What was sent to the model, and what the coordinator read before it chose."""
    for i, message in enumerate(messages):
        st.caption(f"{message.role} message, {len(message.content):,} characters")
        text_block(message.content, key=f"{key}_{i}", empty="An empty message.")
    if not messages:
        st.caption("Nothing was sent: this turn ended before its model was asked.")
    if decision and decision.prompt_tokens:
        cut = " It was cut to fit the encoder." if decision.prompt_overflow else ""
        digest = f" Digest `{label(decision.prompt_digest[:16])}`." if decision.prompt_digest else ""
        st.caption(f"The coordinator read {decision.prompt_tokens:,} tokens before it chose.{cut}{digest}")


def _raw(outline: TurnOutline, told: TurnText, decision: Decision | None, *, key: str) -> None:
    """Everything stored about the turn, as JSON in plain text; the reply as a JSON string shows every
    character."""
    stored = {
        "episode": outline.episode_id,
        "index": outline.index,
        "stage": outline.stage,
        "role": outline.role,
        "model": outline.model,
        "origin": outline.origin,
        "verdict": outline.verdict,
        "answer_after": outline.answer_after,
        "correct_after": outline.correct_after,
        "flags": list(outline.flags),
        "tokens_in": outline.tokens_in,
        "tokens_out": outline.tokens_out,
        "cost_usd": outline.cost_usd,
        "latency_s": outline.latency_s,
        "error": outline.error,
        "reply": told.reply,
    }
    if decision and decision.model_logits:
        stored["model_logits"] = [round(value, 6) for value in decision.model_logits]
        stored["role_logits"] = [round(value, 6) for value in decision.role_logits]
    text_block(json.dumps(stored, indent=2, ensure_ascii=True), key=key)


def _diff_view(
    outlines: Sequence[TurnOutline], index: int, text: Callable[[int], TurnText], *, key: str
) -> None:
    """This reply against the latest earlier Worker reply: what an answer became."""
    earlier = next((i for i in range(index - 1, -1, -1) if outlines[i].role is Role.WORKER), None)
    if earlier is None:
        st.caption("No Worker has answered before this turn.")
        return
    before, after = text(earlier).reply, text(index).reply
    st.caption(f"Turn {earlier + 1} (Worker) to turn {index + 1}: [-removed-] {{+added+}}")
    text_block(word_diff(before, after), key=key, empty="Both say nothing.")


def word_diff(before: str, after: str) -> str:
    """What changed word by word, marked in the text itself: `the [-cat-] {+dog+} sat`. Long texts are
    cut first."""
    old, new = (re.findall(r"\s+|\S+", side[:CUT]) for side in (before, after))
    told: list[str] = []
    for kind, a0, a1, b0, b1 in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            told.append("".join(old[a0:a1]))
            continue
        if a1 > a0:
            told.append(f"[-{''.join(old[a0:a1])}-]")
        if b1 > b0:
            told.append(f"{{+{''.join(new[b0:b1])}+}}")
    cut = max(len(before), len(after)) - CUT
    return "".join(told) + (f"\n… compared up to {CUT:,} characters" if cut > 0 else "")


def alternatives(decision: Decision, models: Sequence[str], top: int = 3) -> list[Alternative]:
    """The likeliest pairs that were not chosen, best first; a negative margin means the choice was
    behind it."""
    if not decision.model_probs or not decision.role_probs:
        return []
    pairs = {
        (model, role): p_model * p_role
        for model, p_model in zip(models, decision.model_probs, strict=False)
        for role, p_role in zip(ROLE_ORDER, decision.role_probs, strict=False)
    }
    mine = pairs.pop((decision.model, decision.role), 0.0)
    ranked = sorted(pairs.items(), key=lambda pair: -pair[1])[:top]
    return [
        Alternative(model, role, p, math.log(mine / p) if mine > 0 else -math.inf)
        for (model, role), p in ranked
        if p > 0
    ]


def choice_in_words(decision: Decision, models: Sequence[str]) -> str:
    """How the choice came about, as markdown: sampled or argmax, likely or lucky, or taken by hand."""
    chosen = _pair(decision.model, decision.role)
    p = _joint_p(decision, models, decision.model, decision.role)
    if decision.origin == "override":
        aside = _would_have(decision, models)
        return f":blue[:material/front_hand:] **{chosen}** was chosen **by hand**{aside}."
    if decision.origin == "suggested_role":
        return f"The Thinker of the turn before asked for this role: **{chosen}**."
    if not decision.model_probs:
        return f"**{chosen}** was chosen **without a head**: this policy has no logits and no probabilities."
    if not decision.role_probs:
        drawn = share(max(decision.model_probs))
        return (
            f"**{chosen}**: the model **drawn at random**, every allowed one at {drawn}, the role by a cycle."
        )
    if not decision.argmax_model:
        return f"**Drawn at random**: **{chosen}**, like every allowed pair at {share(p)}."
    same = (decision.argmax_model, decision.argmax_role) == (decision.model, decision.role)
    if not decision.sampled:
        return f"**Argmax**: **{chosen}** is the likeliest pair at {share(p)}."
    if same:
        return f"**Sampled**, and it drew the likeliest pair: **{chosen}** at {share(p)}."
    return f"**Sampled**: it drew **{chosen}** at {share(p)}{_would_have(decision, models)}."


def _would_have(decision: Decision, models: Sequence[str]) -> str:
    if not decision.argmax_model or decision.argmax_role is None:
        return ""
    p = _joint_p(decision, models, decision.argmax_model, decision.argmax_role)
    return f"; argmax would have been **{_pair(decision.argmax_model, decision.argmax_role)}** at {share(p)}"


def _pair(model: str, role: Role) -> str:
    return f"{ROLE_LOOKS[role].word} on {label(model, 40)}"


def _joint_p(decision: Decision, models: Sequence[str], model: str, role: Role) -> float:
    if model not in models or not decision.model_probs or not decision.role_probs:
        return 0.0
    return decision.model_probs[list(models).index(model)] * decision.role_probs[ROLE_ORDER.index(role)]


def decision_panel(decision: Decision | None, models: Sequence[str], *, key: str) -> None:
    """Why this model in this role: both softmaxes, the joint grid, the runners-up and the numbers."""
    st.markdown("**Decision**", help=f"{define('Softmax')} {define('Argmax and sampling')}")
    if decision is None:
        st.caption("No decision is stored for this turn.")
        return
    st.markdown(choice_in_words(decision, models))
    if not decision.model_probs or not decision.role_probs:
        st.caption(
            "Fixed models and cycles of roles are chosen by rule. Episodes of a checkpoint show softmaxes and logits."
        )
        return
    slots = tuple(models)
    said = one_line(f"{ROLE_LOOKS[decision.role].word} on {decision.model} was chosen", 100)
    plot(
        softmax_bars(decision, slots),
        key=f"{key}_bars",
        small=True,
        alt=f"Probability of each model and of each role. {said}.",
    )
    st.caption(
        "Joint probability of model and role in percent; full ring: chosen, dotted ring: argmax.",
        help=define("Joint grid"),
    )
    plot(
        joint_grid(decision, slots, ink()),
        key=f"{key}_grid",
        small=True,
        alt=f"Joint probability of every model and role. {said}.",
    )
    if decision.argmax_model:
        _runners_up(decision, slots)
    if decision.model_logits:
        with st.expander("Logits", key=f"{key}_logits"):
            st.caption(define("Logit"))
            _numbers(decision, slots)


def _runners_up(decision: Decision, models: tuple[str, ...]) -> None:
    rows = [
        f"| {ROLE_LOOKS[o.role].shape} {_pair(o.model, o.role)} | {share(o.p)} | {o.margin:+.2f} |"
        for o in alternatives(decision, models)
    ]
    if rows:
        st.markdown("\n".join(["| Instead of it | p | choice ahead by |", "|:--|--:|--:|", *rows]))
        st.caption(
            "Ahead by: difference of log-probabilities in nats; below zero the draw went against the odds."
        )


def _numbers(decision: Decision, models: tuple[str, ...]) -> None:
    names = [*(label(name, 40) for name in models), *(ROLE_LOOKS[role].word for role in ROLE_ORDER)]
    logits = [*decision.model_logits, *decision.role_logits]
    probs = [*decision.model_probs, *decision.role_probs]
    rows = [
        f"| {name} | {logit:+.4f} | {p:.4f} |" for name, logit, p in zip(names, logits, probs, strict=False)
    ]
    st.markdown("\n".join(["| | logit | p |", "|:--|--:|--:|", *rows]))
    if decision.hidden_state:
        st.caption(
            f"Read from a hidden state of {len(decision.hidden_state) // 2:,} numbers, kept as float16."
        )


def announcement(outlines: Sequence[TurnOutline], index: int) -> str:
    """What a screen reader hears when the cursor arrives at a turn."""
    return in_words(outlines[index], len(outlines)) if 0 <= index < len(outlines) else ""
