"""The story of an episode in a few sentences, made of recorded facts alone: who began, who proposed what, who caught or
missed it, and which turn is named where it ended wrong."""

from __future__ import annotations

from core.analysis.blame import Blame, blame, last_worker
from core.analysis.overruled import Pair, overruled_pair
from core.episode import ROLE_ORDER, Decision, EndReason, Episode, Flag, Role, Status, Turn, Verdict
from ui.presentation.theme import ROLE_STYLES, one_line, percent
from ui.presentation.words import pair_words, turns_words

#: Proposals that are told one by one; the others are counted.
_TOLD = 3


def story(episode: Episode) -> str:
    """Plain text; empty for an episode that is not over, or that nobody could judge."""
    if episode.status is not Status.FINISHED or episode.correct is None or not episode.turns:
        return ""
    parts = [_opening(episode), _taken_over(episode), *_proposals(episode), _ending(episode)]
    return " ".join(part for part in parts if part)


def _opening(episode: Episode) -> str:
    """Who began, and with what probability, or who a person let begin."""
    turn = episode.turns[0]
    if turn.step is not None:
        n = len(episode.turns)
        return f"A workflow of {n} step{'s' if n > 1 else ''}, begun by {_model(turn)}."
    decision = turn.decision
    role = ROLE_STYLES[decision.role].word
    if decision.origin == "override":
        proposed = overruled_pair(decision, episode.models, episode, turn.index)
        own = f"; proposed was {_offer(episode, decision, proposed)}" if proposed else ""
        return f"A person chose {_model(turn)} to begin as {role}{own}."
    sampled = decision.sampled and decision.model_probs and decision.role_probs
    odds = _probability(episode, decision, (decision.model, decision.role)) if sampled else ""
    return f"{_model(turn)} began as {role}{odds}."


def _offer(episode: Episode, decision: Decision, pair: Pair) -> str:
    """A pair in words, and what the coordinator gave it."""
    model, role = pair
    return f"{pair_words(role, one_line(model, 40))}{_probability(episode, decision, pair)}"


def _probability(episode: Episode, decision: Decision, pair: Pair) -> str:
    """The probability that the coordinator gave a pair, after a comma."""
    model, role = pair
    p = decision.model_probs[episode.models.index(model)] * decision.role_probs[ROLE_ORDER.index(role)]
    return f", with a probability of {percent(p)}"


def _taken_over(episode: Episode) -> str:
    """The later turns that a person decided; empty for none."""
    later = [turn.index for turn in episode.turns[1:] if turn.decision.origin == "override"]
    return f"A person chose who took {turns_words(later)}." if later else ""


def _proposals(episode: Episode) -> list[str]:
    """Every new answer, and what the Verifiers after it made of it."""
    told: list[str] = []
    standing: str | None = None
    for place, turn in enumerate(episode.turns):
        if turn.answer_after is None or turn.answer_after == standing:
            continue
        standing = turn.answer_after
        words = f"{_model(turn)} gave {_answer(standing)} in turn {turn.index + 1}, which is {_judged(turn)}"
        told.append(
            f"{words}{_verdicts(episode.turns[place + 1 :], standing, right=turn.correct_after is True)}."
        )
    if len(told) > _TOLD + 1:
        between = len(told) - _TOLD
        return [*told[: _TOLD - 1], f"{between} more answers came between.", told[-1]]
    return told


def _verdicts(later: tuple[Turn, ...], answer: str, *, right: bool) -> str:
    """What came of an answer, until another one stands."""
    found: list[str] = []
    for turn in later:
        if turn.answer_after != answer:
            break
        if turn.decision.role is not Role.VERIFIER or Flag.NOTHING_TO_JUDGE in turn.flags:
            continue
        where = f"{_model(turn)} in turn {turn.index + 1}"
        if turn.verdict is Verdict.ACCEPT:
            found.append(f"{where} accepted it" if right else f"{where} missed it (ACCEPT)")
        elif turn.verdict is Verdict.REVISE:
            found.append(f"{where} sent it back" if right else f"{where} caught it (REVISE)")
        else:
            found.append(f"{where} gave no readable verdict")
    return f"; {', '.join(found)}" if found else ""


def _ending(episode: Episode) -> str:
    named = blame(episode)
    if named is not None:
        return _named(episode, named)
    decided = next((turn for turn in episode.turns if turn.answer_after == episode.answer), None)
    if decided is None:
        return ""
    how = "by ACCEPT" if episode.end_reason is EndReason.ACCEPTED else "when its turns were used up"
    if episode.end_reason is EndReason.COMPLETED:
        how = "with its last step"
    return f"It ended right {how}; the answer stands since turn {decided.index + 1}."


def _named(episode: Episode, named: Blame) -> str:
    """The last Worker, whose turn is decisive most often, and before it the turn where the wrong value first stands."""
    last = last_worker(episode)
    if named.why == "none" or last is None:
        return (
            f"It ended wrong: no turn gave a readable answer; turn {named.turn + 1} was the last that could have."
            if named.why == "none"
            else f"It ended wrong by {_first(episode, named)}."
        )
    mute = Flag.NO_ANSWER in last.flags
    words = "with no readable answer" if mute else "with the last answer"
    first = "" if named.turn >= last.index else f"; {_first(episode, named)}"
    return f"It ended wrong {words} of {_model(last)} in turn {last.index + 1}{first}."


def _first(episode: Episode, named: Blame) -> str:
    """Where the wrong value first stands."""
    turn = episode.turns[named.turn]
    where, value = f"turn {named.turn + 1}", _answer(named.value)
    match named.why:
        case "plan":
            return f"{value} comes first in {_model(turn)}'s plan, {where}"
        case "text":
            return f"{value} comes first in what {_model(turn)} wrote in {where}"
    return f"{value} was first given by {_model(turn)} in {where}"


def _judged(turn: Turn) -> str:
    return {True: "right", False: "wrong", None: "not judged"}[turn.correct_after]


def _model(turn: Turn) -> str:
    return one_line(turn.decision.model, 40)


def _answer(text: str) -> str:
    return one_line(text, 40) or "an empty answer"
