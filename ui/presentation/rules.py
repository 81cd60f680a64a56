"""Episodes of rules, which ask models for answers of their own and compare these: what ended one, what its vote came
to, and in which order models are asked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import replace as changed

from core.episode import EndReason, Episode, Flag, Grade, Role, Task, Turn
from core.errors import TrinityError
from core.play.answers import find_answer
from core.play.ensembles import VOTERS
from core.play.policies import UNLESS_SURE, VOTES, rule_of
from storage.rows.summaries import EpisodeSummary, TurnOutline
from ui.presentation.theme import ALONE_WORDS, CHOSEN_WORDS, END_WORDS, SURE_WORDS, one_line, percent

#: Whether two answers to the question are the same.
Same = Callable[[str, str], bool]
#: Graders that say at once whether two answers are the same.
_QUICK = ("exact", "number", "choice")
#: Answers that lost a vote and are named.
_NAMED = 3
STRENGTH_WORDS = (
    "Strength: the chance that a model is right, as the rule reckons it from its answers to evolve and "
    "validation tasks."
)


def told_of(notes: str, policy: str) -> list[str]:
    """What a run's notes, a sentence a line, say of how a policy was chosen: the lines that begin with its name."""
    return [line for line in notes.splitlines() if line.startswith((f"{policy} ", f"{policy},"))]


def ended_words(one: EpisodeSummary) -> str:
    """Why an episode ended, plain text: of a rule, and of a verdict by comparison, what that means; empty for one that
    has not ended."""
    if one.end_reason is None:
        return ""
    compared, rule = Flag.BY_AGREEMENT.value in one.flags, rule_of(one.policy)
    if one.end_reason is EndReason.ACCEPTED and compared:
        if Flag.SELF_VERIFIED.value not in one.flags:
            return "two answered the same"
        if one.turns > 2:
            return CHOSEN_WORDS
        return f"the first was asked alone: {SURE_WORDS}" if rule in UNLESS_SURE else ALONE_WORDS
    if one.end_reason is EndReason.BUDGET and rule:
        return _ended_by(rule, one.turns)
    return END_WORDS[one.end_reason]


def drawn_words(episode: Episode, outlines: Sequence[TurnOutline]) -> str:
    """How the choices of an episode came about, plain text: `sampled, seed 3`; a fixed rule that asks recorded models
    has nothing to draw."""
    if outlines and not any(one.sampled for one in outlines) and not episode.argmax:
        recorded = all(one.recorded for one in outlines)
        return "by a fixed rule" if recorded else f"by a fixed rule, seed {episode.seed}"
    return f"{'argmax' if episode.argmax else 'sampled'}, seed {episode.seed}"


def _ended_by(rule: str, turns: int) -> str:
    if rule == "agree" or (rule in UNLESS_SURE and turns > 1):
        return "everybody was asked"
    if rule in UNLESS_SURE:
        return f"the first was asked alone: {SURE_WORDS}"
    return {
        "frugal": "a reply was believed, or everybody was asked",
        "bayes": "an answer was likely enough, or everybody was asked",
    }.get(rule, "decided by a vote")


@dataclass(frozen=True, slots=True)
class Tally:
    """The votes of an episode, by answer as it was first given, the most first and the winner before all: who gave it,
    in the order they were asked in, and its share of the weight (None: votes weigh the same, or nobody knows what).
    `mute` gave no readable answer; `right`: which of the answers is right, where one is known to be."""

    votes: Mapping[str, Sequence[str]]
    mute: int
    share: Mapping[str, float] | None = None
    right: str | None = None

    @property
    def won(self) -> str:
        return next(iter(self.votes))

    def words(self) -> str:
        """`24 won with 9 of 13 votes (71.2 % of the weight); 18 had 3, 20 had 1`; `all 13 votes were for 24`."""
        (winner, voters), *others = self.votes.items()
        n = sum(map(len, self.votes.values()))
        if not others:
            return (
                f"all {n} votes were for {_answer(winner)}"
                if n > 1
                else f"the one vote was for {_answer(winner)}"
            )
        weight = f" ({percent(self.share[winner])} of the weight)" if self.share else ""
        said = f"{_answer(winner)} won with {len(voters)} of {n} votes{weight}"
        if rest := [f"{_answer(answer)} had {len(own)}" for answer, own in others[:_NAMED]]:
            more = len(others) - _NAMED
            said += f"; {', '.join(rest)}{f', {more} more answers fewer' if more > 0 else ''}"
        return said


def asked_words(outlines: Sequence[TurnOutline], index: int, order: Sequence[str], rule: str = "") -> str:
    """Why a rule asked the model of a turn, plain text. `order`: in which it asks models, empty where nobody knows."""
    one = outlines[index]
    model, before = one.model, list(dict.fromkeys(turn.model for turn in outlines[:index]))
    if model in before:
        if Flag.SELF_VERIFIED in one.flags and Flag.BY_AGREEMENT in one.flags:
            why = f"Nobody else was asked: {SURE_WORDS}" if len(before) == 1 else "Its answer was chosen"
            return f"{why}. The same reply confirms it, which costs nothing."
        why = "its answer was the likeliest" if rule == "probe" else "two of those asked gave the same answer"
        return f"It had been asked before, which costs nothing: {why}."
    asked = "first" if not before else "next"
    if model not in order:
        return f"It was asked {asked}, number {len(before) + 1} in this rule's order for the question."
    passed = [other for other in order[: order.index(model)] if other not in before]
    place = order.index(model) + 1
    strongest = (
        "the strongest model by this rule's order" if place == 1 else f"number {place} in this rule's order"
    )
    skipped = f"; {_names(passed)} could not be asked" if passed else ""
    return f"It was asked {asked}: {strongest}{skipped}."


def own_answer(turn: Turn, task: Task) -> str | None:
    """What the model of a turn itself answered, whatever answer stands after it."""
    if turn.reply.recorded is not None:
        return turn.reply.recorded.answer
    found = find_answer(turn.reply.text, task.grader, task.answer_pattern)
    return found[0] if found else None


def same_by_grader(task: Task) -> Same:
    """Whether two answers to a task are the same as its grader sees it, where that is quick; else as texts."""
    from core.play.judging import final_verdicts
    from core.tasks.graders import grading_of

    def same(one: str, other: str) -> bool:
        if one == other or task.grader not in _QUICK:
            return one == other
        with suppress(TrinityError):
            return final_verdicts(grading_of([task])([Grade(changed(task, answer=one), other)]))[0]
        return False

    return same


def tally_of(
    episode: Episode, strengths: Mapping[str, float] | None = None, same: Same | None = None
) -> Tally | None:
    """The votes of an episode that was decided by counting answers; None for any other, and where the answer that won
    by them is not the one that stands. `strengths`: by model, the chance to be right by which a vote is weighed."""
    rule = rule_of(episode.policy)
    if rule not in VOTES or not episode.turns or episode.answer is None:
        return None
    if any(turn.decision.role is not Role.WORKER for turn in episode.turns) or (
        rule == "majority" and len(episode.turns) != _votes_in(episode.policy)
    ):
        return None
    same = same or same_by_grader(episode.task)
    votes: dict[str, list[str]] = {}
    mute = 0
    for turn in episode.turns:
        answer = own_answer(turn, episode.task)
        if answer is None:
            mute += 1
        else:
            first = next((one for one in votes if same(one, answer)), answer)
            votes.setdefault(first, []).append(turn.decision.model)
    won = next((one for one in votes if same(one, episode.answer)), None)
    most = max(map(len, votes.values()), default=0)
    if won is None or (rule in ("vote", "majority") and len(votes[won]) < most):
        return None
    share = _shares(votes, strengths) if rule == "weighted-vote" and strengths else None
    if share and max(share.values()) > share[won]:
        share = None
    others = sorted((one for one in votes if one != won), key=lambda one: -len(votes[one]))
    return Tally({one: votes[one] for one in (won, *others)}, mute, share, _right(episode, votes, won, same))


def _right(episode: Episode, votes: Collection[str], won: str, same: Same) -> str | None:
    """Which answer is right, as far as it is known."""
    if episode.correct:
        return won
    known = [turn.answer_after for turn in episode.turns if turn.correct_after and turn.answer_after]
    known += [episode.task.answer] if episode.task.grader in _QUICK else []
    return next((one for one in votes for right in known if same(one, right)), None)


def _votes_in(policy: str) -> int:
    """How many votes a majority of this name has."""
    number = policy.split("majority:", 1)[-1].partition(":")[0]
    return int(number) if number.isdecimal() else VOTERS


def _shares(votes: Mapping[str, Sequence[str]], strengths: Mapping[str, float]) -> dict[str, float] | None:
    """Each answer's share of the weight; None where a voter's strength is not known, or a vote weighs less than
    nothing."""
    from core.outcomes.asking import weights_of

    weights = weights_of(strengths)
    voters = [model for own in votes.values() for model in own]
    if any(weights.get(model, -1.0) < 0 for model in voters) or not any(weights[one] for one in voters):
        return None
    total = sum(weights[model] for model in voters)
    return {answer: sum(weights[model] for model in own) / total for answer, own in votes.items()}


def rule_story(
    episode: Episode, strengths: Mapping[str, float] | None = None, same: Same | None = None
) -> list[str]:
    """The story of a vote, of naive Bayes or of models asked until one is believed, a sentence each; empty for any
    other episode, and where its answers cannot be told apart."""
    rule = rule_of(episode.policy)
    tally = tally_of(episode, strengths, same)
    if tally is None:
        return []
    ended = f"It ended {'right' if episode.correct else 'wrong'}"
    asked = dict.fromkeys(turn.decision.model for turn in episode.turns)
    n, times = len(asked), len(episode.turns)
    if n == 1 and times > 1:
        opening = f"{one_line(next(iter(asked)), 40)} was asked {times} times, each time anew."
    else:
        opening = (
            f"{n} models were asked, each alone."
            if n > 1
            else f"{one_line(next(iter(asked)), 40)} was asked."
        )
    how = "by a weighted vote" if rule == "weighted-vote" else "by a vote"
    said = [opening, f"{ended} {how}: {tally.words()}."]
    if rule == "bayes":
        gave = "it" if n == 1 else f"{len(tally.votes[tally.won])} of them"
        said[-1] = f"{ended} by naive Bayes: {_answer(tally.won)}, which {gave} gave, was the likeliest."
    if not episode.correct and tally.right is not None and tally.right != tally.won:
        said.append(
            f"The right answer, {_answer(tally.right)}, came from {_names(tally.votes[tally.right])}."
        )
    elif not episode.correct and tally.right is None and episode.task.grader in _QUICK:
        said.append("Nobody gave the right answer.")
    if tally.mute:
        said.append(f"{tally.mute} gave no readable answer.")
    return said


def _names(models: Sequence[str]) -> str:
    named = [one_line(model, 40) for model in models[:_NAMED]]
    more = len(models) - _NAMED
    return ", ".join(named) + (f" and {more} more" if more > 0 else "")


def _answer(text: str) -> str:
    return one_line(text, 40) or "an empty answer"
