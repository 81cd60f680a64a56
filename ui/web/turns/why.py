"""The panel on what in the transcript made a choice: by part, then by word, for one checkpoint or two side by side."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import streamlit as st

from core.analysis.attribution import (
    QUESTION,
    STRETCHES,
    Attribution,
    PartLeftOut,
    WordAttribution,
    WordLeftOut,
    times_likelier,
    words_of,
)
from core.analysis.head_lens import compare_logits
from core.checkpoint import Checkpoint
from core.episode import Decision, Flag, Role, Transcript
from core.errors import TrinityError
from storage.rows.summaries import QUESTION_CUT, RunStatus, RunSummary
from storage.store import Store
from ui.presentation.glossary import define
from ui.presentation.odds import masked_words
from ui.presentation.story import SAID, part_words, reason
from ui.presentation.theme import ROLE_STYLES, label, percent, plain
from ui.presentation.words import ordinal, pair_words, policy_name
from ui.runs import queue, reading, wiring
from ui.runs.plans import AttributionPlan
from ui.runs.queue import Ticket
from ui.runs.reading import Encoders, ExplainedTurn, Explanation
from ui.web.components.weighed_words import WeighedText, weighed_words
from ui.web.kit import state
from ui.web.kit.cache import remembered
from ui.web.kit.figures import plot
from ui.web.kit.text import markdown_table
from ui.web.kit.widgets import button
from ui.web.pickers.checkpoints import generation_of, others, policy_label
from ui.web.progress import Reached, RunTexts, is_under_way, standing, watch
from ui.web.turns.decision import DecisionContext, why_not_recomputed
from ui.web.turns.figures import PartBars, parts_figure
from ui.web.turns.recording import Recording

#: The most parts that are drawn and told, those that move the lead furthest.
MOST_PARTS = 12
#: The most words that are named beside the coloured text.
_NAMED_WORDS = 3
TEXTS = RunTexts(
    process="reads the transcript again",
    stored="All that was worked out is kept.",
    stop="Stop",
    stop_help="All that was worked out is kept, and it can be resumed.",
    stopping="Stopping after the step under way …",
)


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the checkpoints that are explained: its name as markdown, what it is asked and what is found so far."""

    name: str
    turn: ExplainedTurn
    found: Explanation
    own: bool  # it is the one that decided

    @property
    def waits(self) -> bool:
        """Whether something is left to a worker."""
        return not self.found.complete(self.turn)


def why_panel(context: DecisionContext) -> None:
    """What each part and each word of the transcript does for the choice, exactly where nothing else is said."""
    if context.checkpoint is None:
        st.caption(why_not_recomputed(context))
        return
    both = (context.checkpoint, _beside(context))
    sides = [side for i, one in enumerate(both) if one and (side := _side(context, one, own=i == 0))]
    if not sides:
        return
    _choices(context, sides)
    told = [side for side in sides if side.found.parts and not is_indifferent(side.found.parts)]
    if told:
        _likeliest_without(told)
        _words(told)
        with st.expander("In logits", icon=":material/functions:"):
            _logits(told, context.decision)
    if any(side.waits for side in sides):
        _work(context, sides)


def _beside(context: DecisionContext) -> Checkpoint | None:
    """The checkpoint that is put beside the one that decided, which stands in the address; None at first."""
    store, own = context.recording.store, context.checkpoint
    if own is None:
        return None
    named = policy_label(store)
    offered = {one.id: plain(named(one.id), 120) for one in others(store, own, reading=False)}
    if not offered:
        return None
    chosen = state.address_select(
        "Compare with",
        {"": "Compare with another checkpoint …", **offered},
        name="beside",
        key="why_beside",
        widget="list",
        label_visibility="collapsed",
    )
    return store.checkpoints.load(chosen) if chosen else None


def _side(context: DecisionContext, checkpoint: Checkpoint, *, own: bool) -> _Side | None:
    """What is known about a checkpoint's choice, worked out here where that is quick; None, saying why, where it cannot
    be explained."""
    store, episode = context.recording.store, context.recording.episode
    name = label(policy_name(checkpoint.id, generation_of(store).get(checkpoint.id)), 60)
    try:
        reading.check_explainable(episode)
        turn = _turn(store, episode.id, context.index, checkpoint.id, wiring.settings().encoder)
        found = reading.kept_explanation(store, turn)
        if not found.complete(turn) and not turn.takes_long:
            with st.spinner("Reading the transcript again without each part and word …"):
                policy = reading.coordinator_of(store, turn, _encoders())
                *_, found = reading.explain(store, turn, policy, found)
    except TrinityError as error:
        st.caption(label(str(error), 500) if own else f"{name}: {label(str(error), 500)}")
        return None
    return _Side(name, turn, found, own)


_turn = remembered(most=64)(reading.read_turn)


@st.cache_resource(show_spinner=False)
def _encoders() -> Encoders:
    return {}


def _choices(context: DecisionContext, sides: Sequence[_Side]) -> None:
    """What is explained, and whether the decision taken again is the recorded one."""
    st.markdown("**Why this choice? What in the text led to it**", help=define("Attribution"))
    decision = context.decision
    if masked := masked_words(decision, context.recording.models, context.recording.missing):
        st.markdown(label(masked, 200))
    if decision.origin == "override":
        st.caption("A person chose at this turn. This explains the coordinator's own likeliest choice.")
    elif decision.origin == "suggested_role":
        st.caption(
            "A Thinker asked for this role. This explains the role that the coordinator itself would have chosen."
        )
    for side in sides:
        if side.found.parts:
            st.markdown(_reason(side, context.recording))
            if side.own:
                _agreement(context, side.found.parts)


def _reason(side: _Side, recording: Recording) -> str:
    found, words = side.found.parts, side.found.words
    assert found is not None
    if is_indifferent(found):
        who = "This checkpoint" if side.own else side.name
        return f"{who} prefers nothing here, with or without any part: nothing in the text led to a choice."
    verdicts = {
        one.index: one.verdict
        for one in recording.outlines
        if one.verdict and Flag.VERDICT_UNREADABLE not in one.flags
    }
    known = words if words and words.complete else None
    sentence = label(reason(found, known, side.turn.request.transcript, verdicts), 700)
    return f"**{sentence}**" if side.own else f"{side.name}, of **{_pair(found.chosen)}**: {sentence}"


def _lead_words(found: Attribution, other: str | None, decision: Decision) -> str:
    """How far a choice is ahead of its rival, as a sentence of markdown; `other` names another checkpoint than the one
    that decided."""
    chosen, rival = _pair(found.chosen), _pair(found.rival)
    lead = found.full.value
    if other:
        begin = f"{other}: **{chosen}** is its likeliest choice here,"
    else:
        begin = (
            f"**{chosen}** was chosen," if decision.origin == "policy" else f"**{chosen}** would be chosen,"
        )
    if lead < 0:
        return f"{begin} drawn against the odds: {rival} was {_times(-lead)} likelier, {-lead:.2f} logits ahead of it."
    return f"{begin} {lead:.2f} logits ahead of {rival}: {_times(lead)} likelier."


def is_indifferent(found: Attribution) -> bool:
    """Whether the choice is level with its rival whatever is left out, as of a head that is all zeros."""
    return not any([found.full.value, *(one.without.value for one in found.parts)])


def _times(lead: float) -> str:
    times = times_likelier(lead)
    if times >= 1e6:
        return "over a million times"
    return f"{times:.1f} times" if times < 100 else f"{times:,.0f} times"


def _pair(pair: tuple[str, Role]) -> str:
    return label(pair_words(pair[1], pair[0]), 60)


def _agreement(context: DecisionContext, found: Attribution) -> None:
    """A warning where the decision taken again in full is not the recorded one."""
    lens = context.lens
    recorded = np.array([*context.decision.model_logits, *context.decision.role_logits])
    again = np.array(found.logits)
    if lens is not None:
        check = compare_logits(replace(lens, logits=again), context.decision)
        matches, difference = check.matches, check.difference
    else:
        difference = float(np.abs(again - recorded).max())
        matches = difference <= 1e-3 * (1 + float(np.abs(recorded).max()))
    if not matches:
        st.warning(
            "Computed again with nothing left out, the decision has other logits than recorded: one differs "
            f"by {difference:.2g}. The encoder here differs from the one that played this turn, so the explanation "
            "below is of the decision as computed here.",
            icon=":material/warning:",
        )


# By part


def _likeliest_without(sides: Sequence[_Side]) -> None:
    transcript, places = sides[0].turn.request.transcript, _strongest_parts(sides)
    gives = [_by_place(side.found.parts) for side in sides]
    without = {
        place: [_without(here[place], side) for here, side in zip(gives, sides, strict=True)]
        for place in places
    }
    if len(sides) > 1:
        rows = [(label(part_words(transcript, place), 60), *words) for place, words in without.items()]
        markdown_table(("Without", *(side.name for side in sides)), rows, "lll")
    else:
        st.markdown(
            "\n".join(
                f"- Without {label(part_words(transcript, place), 60)}: {words[0]}"
                for place, words in without.items()
            )
        )


def _logits(sides: Sequence[_Side], decision: Decision) -> None:
    """How far the choice is ahead, and what each part and the strongest words add to that, in logits."""
    for side in sides:
        if side.found.parts:
            st.markdown(_lead_words(side.found.parts, None if side.own else side.name, decision))
    transcript, places = sides[0].turn.request.transcript, _strongest_parts(sides)
    gives = [_by_place(side.found.parts) for side in sides]
    bars = [
        PartBars("" if i == 0 else "other", [here[place].gives for place in places], hatched=i > 0)
        for i, here in enumerate(gives)
    ]
    plot(
        parts_figure([_short(transcript, place) for place in places], bars),
        key="why_parts",
        small=True,
        alt="How far the question and each earlier reply move the lead of the choice, in logits.",
    )
    hatched = f" Hatched: {sides[1].name}, for its own choice." if len(sides) > 1 else ""
    st.caption(
        "The lead is how many logits the choice is ahead of its runner-up. A bar is what one part adds to it: to the "
        "right for the choice, to the left against it. Only these two are measured: without a part a third pair can be "
        f"ahead of both.{hatched}"
    )
    hidden = len(gives[0]) - len(places)
    if hidden:
        least = max(abs(one.gives) for here in gives for place, one in here.items() if place not in places)
        st.caption(f"The {hidden:,} other replies move it by {least:.2f} logits each at most.")
    for side in sides:
        if side.found.words and side.found.words.complete:
            named = _named_words(side, side.found.words)
            rows = [(label(word, 24), where, f"{gives:+.2f}") for word, gives, where in named]
            if rows:
                whose = "Strongest words" if len(sides) == 1 else f"Strongest words, {side.name}"
                markdown_table((whose, "where", "moves the lead by, in logits"), rows, "llr")


def _strongest_parts(sides: Sequence[_Side]) -> list[int]:
    """The parts that are told, in order: where there are many, those that move a lead furthest."""
    reach: dict[int, float] = {}
    for side in sides:
        for place, part in _by_place(side.found.parts).items():
            reach[place] = max(reach.get(place, 0.0), abs(part.gives))
    return sorted(sorted(reach, key=lambda place: -reach[place])[:MOST_PARTS])


def _by_place(found: Attribution | None) -> dict[int, PartLeftOut]:
    return {one.part: one for one in found.parts} if found else {}


def _without(part: PartLeftOut, side: _Side) -> str:
    """What the likeliest choice would be without a part, as markdown, and whether it is another than with it. A choice
    that was drawn against the odds is not the likeliest with everything there either."""
    assert side.found.parts is not None
    likeliest = part.without.likeliest
    same = likeliest == side.found.parts.full.likeliest
    mark = ":green[:material/check: still likeliest]" if same else ":orange[:material/call_split: likeliest]"
    return f"{mark} **{_pair(likeliest)}**, {percent(part.without.p)}"


def _short(transcript: Transcript, place: int) -> str:
    if place == QUESTION:
        return "question"
    entry = transcript.entries[place]
    return f"{place + 1} {ROLE_STYLES[entry.role].shape} {entry.model}"


def _heading(transcript: Transcript, place: int) -> str:
    if place == QUESTION:
        return "The question"
    entry = transcript.entries[place]
    return f"Turn {place + 1}, {entry.model}'s {SAID[entry.role]}"


# By word


def _words(sides: Sequence[_Side]) -> None:
    told = [side for side in sides if side.found.words and side.found.words.complete]
    for side in sides:
        if side.turn.no_words:
            st.caption(label(side.turn.no_words, 400))
    if not told:
        return
    st.markdown("**Which words?**")
    found = [side.found.words for side in told if side.found.words]
    for column, side, one in zip(st.columns(len(told)), told, found, strict=True):
        with column:
            if len(sides) > 1:
                st.markdown(f"**{side.name}**: {_pair(side.found.parts.chosen) if side.found.parts else ''}")
            _word_texts(side, one, key=f"why_words_{side.turn.checkpoint.id}")
    methods = " ".join(dict.fromkeys(map(_method_words, found)))
    st.caption(
        "Blue over a solid line speaks for the choice, orange over a dotted line against it; hovering shows by how "
        "many logits, and the strongest word has the full colour. A word that occurs several times in a part counts "
        f"once for each place: “2nd of 3” is its second place of three. {methods} The words named are "
        "needed for the choice, and need not suffice for it: `trinity bench attribution` measures both."
    )


def _method_words(found: WordAttribution) -> str:
    if found.method == "gradients":
        moved = sum(one.gives for one in found.words) + found.rest
        return (
            "By integrated gradients, an approximation for large encoders: all words together move the lead by "
            f"{moved:+.2f} logits from where there are none, with an error of {found.error:.2g}."
        )
    return "Each word was left out alone; what several do together is in none of them."


def _word_texts(side: _Side, found: WordAttribution, *, key: str) -> None:
    strongest = max((abs(one.gives) for one in found.words), default=0.0)
    transcript = side.turn.request.transcript
    texts = _texts(side)
    blocks = [
        WeighedText(
            _heading(transcript, place),
            texts[place],
            [(one.start, one.end, one.gives) for one in found.words if one.part == place],
        )
        for place in _strongest_parts([side])
    ]
    said = "; ".join(f"{plain(word, 40)} {gives:+.2f}" for word, gives, _ in _named_words(side, found))
    weighed_words(
        blocks,
        strongest,
        key=key,
        what=f"The transcript as it was read. Words that move the choice most: {said}.",
    )


def _texts(side: _Side) -> dict[int, str]:
    transcript = side.turn.request.transcript
    return {QUESTION: transcript.question, **{i: one.text for i, one in enumerate(transcript.entries)}}


def _named_words(side: _Side, found: WordAttribution) -> list[tuple[str, float, str]]:
    """The strongest words for a side's choice, then those against it."""
    return [one for sign in (1.0, -1.0) for one in strongest_words(found, _texts(side), sign)]


def strongest_words(
    found: WordAttribution, texts: dict[int, str], sign: float
) -> list[tuple[str, float, str]]:
    """The words that speak most for the choice (`sign` 1) or against it (-1): word, logits, and where it stands."""
    some = sorted((one for one in found.words if one.gives * sign > 0), key=lambda one: -sign * one.gives)
    return [
        (texts[one.part][one.start : one.end], one.gives, _where(one, found, texts))
        for one in some[:_NAMED_WORDS]
    ]


def _where(word: WordLeftOut, found: WordAttribution, texts: dict[int, str]) -> str:
    """Where a word stands: `question`, `turn 3`, and which of its places it is where it has several: `turn 3, 2nd of
    3`."""
    place = "question" if word.part == QUESTION else f"turn {word.part + 1}"
    text = texts[word.part]
    same = sorted(
        one.start
        for one in found.words
        if one.part == word.part and text[one.start : one.end] == text[word.start : word.end]
    )
    if len(same) < 2:
        return place
    return f"{place}, {ordinal(same.index(word.start) + 1)} of {len(same)}"


# By a worker


def _work(context: DecisionContext, sides: Sequence[_Side]) -> None:
    """What is left to a worker: how far it is, and the button that begins it."""
    store = context.recording.store
    if store.read_only:
        st.caption("This store is read-only, so the remaining steps cannot be computed here.")
        return
    question = context.recording.episode.task.question[:QUESTION_CUT]
    waiting = tuple(side.turn.checkpoint.id for side in sides if side.waits)
    plan = AttributionPlan(
        context.recording.episode.id, context.index, waiting, question, wiring.settings().encoder
    )
    run = reading.latest_attribution(store, plan)
    with st.container(border=True):
        if run is not None and is_under_way(run):
            watch(store, run, TEXTS, lambda kept, now: _reached(kept, now, sides))
            return
        st.markdown(
            "This encoder is large, or the transcript is long: a background process reads it again and keeps the "
            "result. No model of the pool is asked, nothing is paid."
        )
        if run is not None and run.status is not RunStatus.FINISHED:
            standing(store, run, TEXTS, [], go_on="Resume")
        if run is None or run.status in (RunStatus.FINISHED, RunStatus.CANCELLED, RunStatus.FAILED):
            button(
                "Compute it",
                "attribute",
                lambda: queue.begin(store, plan, Ticket()),  # a second click finds the first one's run
                icon="manage_search",
                type="primary",
            )


def _reached(store: Store, run: RunSummary, sides: Sequence[_Side]) -> Reached:
    """How many of the readings are done, and how long the others take at the pace so far."""
    found = [reading.kept_explanation(store, side.turn) for side in sides]
    done = sum(one.done for one in found)
    steps = sum(_steps(side.turn) for side in sides)
    if not done:
        return Reached(0, steps, "The encoder is being loaded")
    words = f"{done:,} of {steps:,} steps"
    if run.started is None or done < 3 or done >= steps:
        return Reached(done, steps, words)
    return Reached(done, steps, words, (time.time() - run.started) / done * (steps - done))


def _steps(turn: ExplainedTurn) -> int:
    """One for all parts, then one for each word or stretch of the way."""
    if turn.no_words:
        return 1
    return 1 + (STRETCHES if turn.by_gradients else len(words_of(turn.request.transcript)))
