"""An episode and a choice in a few sentences, made of recorded facts alone: who began, proposed, caught or missed
what, and which words spoke most for a choice."""

from __future__ import annotations

from collections.abc import Mapping

from core.analysis.attribution import QUESTION, Attribution, PartLeftOut, WordAttribution, WordLeftOut
from core.analysis.blame import Blame, blame, last_worker
from core.analysis.head_lens import Pair, overruled_pair
from core.episode import (
    ROLE_ORDER,
    Decision,
    EndReason,
    Episode,
    Flag,
    Role,
    Status,
    Transcript,
    Turn,
    Verdict,
)
from core.play.policies import UNLESS_SURE, rule_of
from ui.presentation.comparison import enumerated
from ui.presentation.rules import Same, own_answer, rule_story
from ui.presentation.theme import (
    ALONE_WORDS,
    CHOSEN_WORDS,
    ROLE_STYLES,
    SURE_WORDS,
    correct_mark,
    one_line,
    percent,
)
from ui.presentation.words import pair_words, turns_words

#: Proposals that are told one by one; the others are counted.
_TOLD = 3


def story(episode: Episode, strengths: Mapping[str, float] | None = None, same: Same | None = None) -> str:
    """Plain text; empty for an episode that is not over, or that nobody could judge. `strengths` and `same` as in
    `tally_of`, for one that was decided by a vote."""
    if episode.status is not Status.FINISHED or episode.correct is None or not episode.turns:
        return ""
    if voted := rule_story(episode, strengths, same):
        return " ".join(voted)
    parts = [_opening(episode), _taken_over(episode), *_proposals(episode), _ending(episode)]
    return " ".join(part for part in parts if part)


def _opening(episode: Episode) -> str:
    """Who began, and with what probability, or who a person let begin."""
    turn = episode.turns[0]
    if turn.step is not None:
        n = sum(turn.counts for turn in episode.turns)
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
    model, role = pair
    return f"{pair_words(role, one_line(model, 40))}{_probability(episode, decision, pair)}"


def _probability(episode: Episode, decision: Decision, pair: Pair) -> str:
    """The probability that the coordinator gave a pair, after a comma."""
    model, role = pair
    p = decision.model_probs[episode.models.index(model)] * decision.role_probs[ROLE_ORDER.index(role)]
    return f", with a probability of {percent(p)}"


def _taken_over(episode: Episode) -> str:
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
        judged = correct_mark(turn.correct_after).word
        words = f"{_model(turn)} gave {_answer(standing)} in turn {turn.index + 1}, which is {judged}"
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
        if Flag.BY_AGREEMENT in turn.flags:
            found.append(f"{where} {_compared(turn)}")
        elif turn.verdict is Verdict.ACCEPT:
            found.append(f"{where} accepted it" if right else f"{where} missed it (ACCEPT)")
        elif turn.verdict is Verdict.REVISE:
            found.append(f"{where} sent it back" if right else f"{where} caught it (REVISE)")
        else:
            found.append(f"{where} gave no readable verdict")
    return f"; {', '.join(found)}" if found else ""


def _compared(turn: Turn) -> str:
    """What a verdict by comparing two recorded answers says: no model has judged anything."""
    if Flag.SELF_VERIFIED in turn.flags and turn.verdict is Verdict.ACCEPT:
        return "confirmed it by the same reply"
    if turn.verdict is Verdict.ACCEPT:
        return "answered the same"
    own = turn.reply.recorded.answer if turn.reply.recorded else None
    return f"answered differently ({_answer(own)})" if own else "gave no readable answer"


def _ending(episode: Episode) -> str:
    named, how = blame(episode), _ended_by_comparing(episode)
    if named is not None:
        if how and named.why != "none":
            return f"It ended wrong, {how}; {_first(episode, named)}."
        return _named(episode, named)
    decided = next((turn for turn in episode.turns if turn.answer_after == episode.answer), None)
    if decided is None:
        return ""
    if how:
        since = "" if "first answer stands" in how else f"; the answer stands since turn {decided.index + 1}"
        return f"It ended right, {how}{since}."
    how = "by ACCEPT" if episode.end_reason is EndReason.ACCEPTED else "when its turns were used up"
    if episode.end_reason is EndReason.COMPLETED:
        how = "with its last step"
    return f"It ended right {how}; the answer stands since turn {decided.index + 1}."


def _ended_by_comparing(episode: Episode) -> str:
    """Why an episode ended whose answers were compared: by recorded models, or by a rule that does so; else empty."""
    rule, last = rule_of(episode.policy), episode.turns[-1]
    if episode.end_reason is EndReason.ACCEPTED and Flag.BY_AGREEMENT in last.flags:
        if Flag.SELF_VERIFIED not in last.flags:
            return "as two answered the same"
        if len(episode.turns) > 2:
            return f"as {CHOSEN_WORDS}"
        return f"as {SURE_WORDS if rule in UNLESS_SURE else ALONE_WORDS}"
    if episode.end_reason is not EndReason.BUDGET or not rule:
        return ""
    asked = len({turn.decision.model for turn in episode.turns})
    if rule in UNLESS_SURE and asked == 1:
        return f"as {SURE_WORDS}"
    if rule == "frugal":
        return "with the answer of the last one that was asked"
    if rule in ("agree", *UNLESS_SURE):
        alike = all(turn.decision.role is Role.WORKER for turn in episode.turns)
        answers = [own_answer(turn, episode.task) for turn in episode.turns]
        if alike and len({*answers} - {None}) < len(answers) - answers.count(None):
            return "as two answered the same"
        return f"as no two of {asked} asked answered the same, so that the first answer stands"
    return "by a vote"


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
    turn = episode.turns[named.turn]
    where, value = f"turn {named.turn + 1}", _answer(named.value)
    match named.why:
        case "plan":
            return f"{value} comes first in {_model(turn)}'s plan, {where}"
        case "text":
            return f"{value} comes first in what {_model(turn)} wrote in {where}"
    return f"{value} was first given by {_model(turn)} in {where}"


def _model(turn: Turn) -> str:
    return one_line(turn.decision.model, 40)


def _answer(text: str) -> str:
    return one_line(text, 40) or "an empty answer"


#: The most words that are quoted, and the most parts whose absence is told.
_QUOTED, _TOLD_PARTS = 3, 2
#: The share of all that speaks for a choice from which on a few words or a part are most of it.
_MOST = 0.5
_NOTHING = "nothing in the text"
#: What each role contributes to a transcript.
SAID: dict[Role, str] = {Role.THINKER: "plan", Role.WORKER: "answer", Role.VERIFIER: "verdict"}


def reason(
    found: Attribution, words: WordAttribution | None, transcript: Transcript, verdicts: Mapping[int, Verdict]
) -> str:
    """A sentence or two, plain text. `words`: what each word contributes, None as long as that is not known; `verdicts`
    are those that were read from the replies, by their place in the transcript."""
    likeliest = found.full.likeliest
    spoke = _for_it(found, words, transcript, verdicts)
    if likeliest != found.chosen:
        drawn = f"Drawn against the odds: the likeliest choice was {_likely_pair(likeliest)}"
        return f"{drawn}. For {_likely_pair(found.chosen)} spoke {spoke}; {_without(found, transcript, verdicts)}."
    first = (
        f"{spoke[0].upper()}{spoke[1:]}" if spoke != _NOTHING else f"{_NOTHING.capitalize()} speaks for it"
    )
    return f"{first}; {_without(found, transcript, verdicts)}."


def part_words(transcript: Transcript, place: int, verdicts: Mapping[int, Verdict] | None = None) -> str:
    """A part of a transcript within a sentence, plain text: `the question`, `jack's plan (turn 1)`, and by its verdict
    where that is known: `jack's REVISE (turn 2)`."""
    if place == QUESTION:
        return "the question"
    entry = transcript.entries[place]
    said = (verdicts or {}).get(place) or SAID[entry.role]
    return f"{one_line(entry.model, 40)}'s {said} (turn {place + 1})"


def _for_it(
    found: Attribution, words: WordAttribution | None, transcript: Transcript, verdicts: Mapping[int, Verdict]
) -> str:
    """What speaks for the choice, the words where they are known."""
    positive = (
        sorted((one for one in words.words if one.gives > 0), key=lambda one: -one.gives) if words else []
    )
    if positive:
        told = positive[:_QUOTED]
        how = _how(sum(one.gives for one in told), sum(one.gives for one in positive))
        return f"{how} {_quoted(told, transcript)}"
    parts = sorted((one for one in found.parts if one.gives > 0), key=lambda one: -one.gives)
    if parts:
        how = _how(parts[0].gives, sum(one.gives for one in parts))
        return f"{how} {part_words(transcript, parts[0].part, verdicts)}"
    return _NOTHING


def _how(told: float, all_of_it: float) -> str:
    return "mostly" if told >= _MOST * all_of_it else "many words together, above all"


def _quoted(told: list[WordLeftOut], transcript: Transcript) -> str:
    """The words in quotation marks and where they stand, those of one part together, the part with the strongest
    first."""
    by_part: dict[int, list[WordLeftOut]] = {}
    for one in told:
        by_part.setdefault(one.part, []).append(one)
    places = [
        f"{_quotation(part, sorted(own, key=lambda one: one.start), transcript)} in "
        f"{part_words(transcript, part)}"
        for part, own in by_part.items()
    ]
    return f"the word{'s' if len(told) > 1 else ''} {enumerated(places)}"


def _quotation(part: int, own: list[WordLeftOut], transcript: Transcript) -> str:
    """Words of a part in their order; an ellipsis stands for what is between them."""
    text = transcript.question if part == QUESTION else transcript.entries[part].text
    quoted, end = "", 0
    for one in own:
        between = " " if not text[end : one.start].strip() else " … "
        quoted += (between if quoted else "") + one_line(text[one.start : one.end], 24)
        end = one.end
    return f"“{quoted}”"


def _without(found: Attribution, transcript: Transcript, verdicts: Mapping[int, Verdict]) -> str:
    changed = sorted(
        (one for one in found.parts if one.without.likeliest != found.full.likeliest),
        key=lambda one: -abs(one.gives),
    )
    if not changed:
        return "without any one part of the text the likeliest choice would have been the same"
    told = " and ".join(_instead(one, transcript, verdicts) for one in changed[:_TOLD_PARTS])
    more = len(changed) - _TOLD_PARTS
    others = f", and without {more} more part{'s' if more > 1 else ''} another one too" if more > 0 else ""
    return f"{told}{others}"


def _instead(one: PartLeftOut, transcript: Transcript, verdicts: Mapping[int, Verdict]) -> str:
    model, role = one.without.likeliest
    before = transcript.entries[-1] if transcript.entries else None
    again = " again" if before is not None and (before.model, before.role) == (model, role) else ""
    part = part_words(transcript, one.part, verdicts)
    return f"without {part} the likeliest choice would have been {_likely_pair(one.without.likeliest)}{again}"


def _likely_pair(pair: tuple[str, Role]) -> str:
    return pair_words(pair[1], one_line(pair[0], 40))
