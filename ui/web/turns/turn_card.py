"""The card of one turn: its reply, its prompt and reasoning, and what it changed.

Used by Replay, Two episodes and Live. What a model wrote is shown as text; its reply also rendered where a reader asks
for that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict

import streamlit as st

from core.episode import Decision, Episode, Flag, Role
from core.play.marks import without_marks
from storage.rows.summaries import TurnOutline, TurnText
from ui.presentation.course import SENT_BACK_WORDS, sent_back, verdict_of
from ui.presentation.glossary import define
from ui.presentation.theme import READ_BY, ROLE_STYLES, badge, correct_mark, flag_words, label, plain
from ui.presentation.words import judged_words, missing_reply_words, pace_words, recorded_words, used_words
from ui.web.components import key_focus
from ui.web.kit import state
from ui.web.kit.text import diff_block, text_block

#: What a card can show of its turn, as the address says it -> its words.
VIEWS = {
    "reply": "Reply",
    "rendered": "Rendered",
    "saw": "What it saw",
    "reasoning": "Reasoning",
    "raw": "Raw",
    "diff": "Diff to previous answer",
}
_ORIGIN_WORDS = {
    "override": "chosen by hand",
    "suggested_role": "role suggested by the Thinker",
    "repair": "form repaired",
}
#: What the JSON of a turn holds of its outline.
_OUTLINE_FIELDS = (
    *("stage", "role", "model", "origin", "verdict", "answer_rule", "answer_after", "correct_after", "flags"),
    *("tokens_in", "tokens_out", "cost_usd", "latency_s", "error"),
)


def question_heading(episode: Episode) -> None:
    """What the episode was asked, all of it in an expander where the heading cuts it."""
    question = episode.task.question
    st.subheader(label(question, 220), anchor=False)
    if len(question) > 220 or "\n" in question:
        with st.expander("The whole question"):
            text_block(question, key=f"{episode.id}_question")


def turn_heading(
    outline: TurnOutline, total: int, *, running: bool = False, at_most: int | None = None
) -> str:
    """`Turn 4 of 7 · ▲ Verifier · delta · Revise · 812 tokens · 3.1 s · $0.004` as markdown with foreign
    text escaped. While more turns may come `at_most` says how many there can be."""
    look = ROLE_STYLES[outline.role]
    parts = [
        f"**Turn {outline.index + 1} of {total if at_most is None else f'at most {at_most}'}**",
        f"{look.shape} {look.word}",
        f"**{label(outline.model, 40)}**",
    ]
    if mark := verdict_of(outline):
        parts.append(badge(mark))
    if outline.stage == "asked":
        parts.append(":blue[:material/edit_note: writing]" if running else ":orange[cut off]")
    else:
        parts += [
            *(f":gray[{label(used)}]" for used in _used(outline)),
            *([":gray[recorded]"] if outline.recorded else []),
        ]
    return " · ".join(parts)


def _used(outline: TurnOutline) -> list[str]:
    tokens = outline.tokens_in + outline.tokens_out
    # Where there was nothing to judge, nobody was asked.
    recorded = outline.recorded is not None or Flag.NOTHING_TO_JUDGE in outline.flags
    used = used_words(tokens, outline.latency_s, outline.cost_usd, recorded=recorded)
    return used + pace_words(outline.tokens_out, outline.latency_s)


def turn_card(
    outlines: Sequence[TurnOutline],
    index: int,
    text: Callable[[int], TurnText],
    decision: Decision | None,
    *,
    key: str,
    tab: str,
    running: bool = False,
    at_most: int | None = None,
    asked_s: float = 0.0,
    also: Callable[[int], None] | None = None,
) -> None:
    """The card of turn `index`. `text` reads one turn's texts and is called only for what is shown; `tab` is
    the address's name for what that is; `running` tells a turn being played from one that was cut off; `at_most`
    is the turn budget while more turns may come; `asked_s` says for how many seconds a reply has been waited for, on a
    page that goes on counting; `also` draws more below what its model saw."""
    outline = outlines[index]
    st.markdown(turn_heading(outline, len(outlines), running=running, at_most=at_most))
    _outcome(outlines, index)
    with st.container(key=f"{key}_views"):
        view = state.address_select("What to show of this turn", VIEWS, name=tab, key=f"{key}_view")
        key_focus(f"{key}_views")  # an arrow key then moves the turn, and not the view
    place = f"{key}_{outline.episode_id}_{index}_{view}"
    if view == "saw":
        _prompt(text(index), key=place)
        if also is not None:
            also(index)
    elif view == "reasoning":
        text_block(
            text(index).reasoning, key=place, empty="The model gave no reasoning apart from its reply."
        )
    elif view == "raw":
        text_block(turn_json(outline, text(index), decision), key=place)
    elif view == "diff":
        _diff_view(outlines, index, text, key=place)
    else:
        _reply(outline, text(index), view, key=place, running=running, asked_s=asked_s)


def before_card(
    outlines: Sequence[TurnOutline], index: int, text: Callable[[int], TurnText], at_most: int | None = None
) -> None:
    """What the turn before said, short, so that a step can be read without going back."""
    st.caption(f"Just before: {turn_heading(outlines[index - 1], len(outlines), at_most=at_most)}")
    body = text(index - 1).said
    st.code(plain(body, 400) or "(nothing)", language=None, wrap_lines=True)


def _outcome(outlines: Sequence[TurnOutline], index: int) -> None:
    outline = outlines[index]
    badges = []
    if outline.stage == "finished" and outline.answer_after is None:
        badges.append(":gray-badge[no answer yet]")
    elif outline.stage == "finished":
        mark = correct_mark(outline.correct_after)
        before = outlines[index - 1].answer_after if index else None
        unchanged = before == outline.answer_after
        own = outline.recorded.answer if outline.recorded and outline.role is Role.WORKER else None
        counted = own is not None and own != outline.answer_after  # others' answers count too
        if counted:
            badges.append(f":gray-badge[its own answer: {label(own or '', 80)}]")
        answer = label(outline.answer_after or "", 80) or "(empty)"
        if counted or (
            unchanged and outline.role is not Role.WORKER
        ):  # it gave none: nothing of this is its own
            badges.append(f":gray-badge[answer so far: {answer}, {mark.word}]")
        else:
            same = " (unchanged)" if unchanged else ""
            badges.append(f":{mark.tone}-badge[{mark.icon} answer {answer} {mark.word}{same}]")
    if outline.answer_rule in READ_BY:
        badges.append(f":gray-badge[{READ_BY[outline.answer_rule]}]")
    if sent_back(outline):
        badges.append(f":red-badge[:material/undo: {SENT_BACK_WORDS}]")
    if outline.origin in _ORIGIN_WORDS:
        badges.append(f":blue-badge[{_ORIGIN_WORDS[outline.origin]}]")
    badges += [f":orange-badge[{words}]" for words in flag_words(outline.flags)]
    if badges:
        st.markdown(" ".join(badges))
    if words := recorded_words(outline):
        st.caption(label(words, 600))
    if outline.error:
        st.text(f"The model failed: {plain(outline.error, 2000)}")
    for said in outline.judgements:
        st.caption(f":material/gavel: {label(judged_words(said), 600)}", help=define("Judge"))
        if words := without_marks(said.reply.text):
            with st.expander("What the judge said"):
                text_block(words, key=f"{outline.episode_id}_judged_{outline.index}_{said.number}")


def _reply(
    outline: TurnOutline, text: TurnText, look: str, *, key: str, running: bool, asked_s: float
) -> None:
    if text.reasoning:
        st.caption(f"It reasoned first, in {len(text.reasoning):,} characters: see Reasoning.")
    waiting = running and outline.stage == "asked"
    wait = f"Waiting for its first words{f', {asked_s:.0f} s …' if asked_s else '.'}"
    said = text.said
    empty = wait if waiting and not text.reply else missing_reply_words(text)
    text_block(said, key=key, empty=empty, look=look)
    if said != text.reply:
        unsaid = max(1, len(text.reply) - len(said))
        st.caption(
            f"{unsaid:,} characters of thinking or of chat template marks are left out here. Raw shows them."
        )
    if outline.stage != "finished" and (text.reply or not waiting):
        st.caption("Still being written." if waiting else "This turn was never finished.")


def _prompt(text: TurnText, *, key: str) -> None:
    for i, message in enumerate(text.messages):
        st.caption(f"{message.role} message, {len(message.text):,} characters")
        text_block(message.text, key=f"{key}_{i}", empty="An empty message.")
    if not text.messages and text.prompt_removed:
        st.caption(f"What was sent was removed on {label(text.prompt_removed, 20)}.")
    elif not text.messages:
        st.caption("Nothing was sent: this turn ended before its model was asked.")


def turn_json(outline: TurnOutline, text: TurnText, decision: Decision | None) -> str:
    """Everything stored about the turn but what was sent to its model, as JSON of ASCII characters only, so that
    every one of the reply's shows."""
    stored = {"episode": outline.episode_id, "turn": outline.index + 1}
    stored |= {name: getattr(outline, name) for name in _OUTLINE_FIELDS}
    if outline.recorded is not None:
        stored["recorded"] = asdict(outline.recorded)
    if outline.judgements:
        stored["judgements"] = [
            {"judge": said.judge, "rating": said.rating, "reply": said.reply.text}
            for said in outline.judgements
        ]
    stored |= {"reasoning": text.reasoning, "reply": text.reply}
    if decision and decision.model_logits:
        stored["model_logits"] = [round(value, 6) for value in decision.model_logits]
        stored["role_logits"] = [round(value, 6) for value in decision.role_logits]
    return json.dumps(stored, indent=2, ensure_ascii=True)


def _diff_view(
    outlines: Sequence[TurnOutline], index: int, text: Callable[[int], TurnText], *, key: str
) -> None:
    """This reply against the latest earlier Worker reply: what an answer became."""
    earlier = next((i for i in range(index - 1, -1, -1) if outlines[i].role is Role.WORKER), None)
    if earlier is None:
        st.caption("No Worker has answered before this turn.")
        return
    before, after = text(earlier).said, text(index).said
    st.caption(f"From turn {earlier + 1} (Worker) to turn {index + 1}")
    diff_block(before, after, key=key)
