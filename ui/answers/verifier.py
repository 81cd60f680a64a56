"""Verifier & cost: which verifier accepts wrong answers, what fewer turns would do, what a solved problem costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from core.analysis.metrics import ClusteredShare
from core.episode import Role
from storage.analysis.costs import policy_costs
from storage.analysis.routing import pool_order
from storage.analysis.verdicts import (
    FEWEST,
    WRONGLY_ENDED,
    VerdictOutcome,
    VerdictsOnAuthors,
    VerifierLedger,
    by_author,
    ledgers,
    turn_groups,
    turn_rates,
    turns_with_verdict,
    with_judgement,
    wrong_accepts,
)
from ui.answers import costs, pool
from ui.answers.asked import SIDE, Asked, Behind, Row, Side
from ui.answers.blocks import (
    Address,
    Answer,
    Bars,
    Cell,
    Choice,
    Column,
    Estimate,
    Estimates,
    Grid,
    Line,
    Mark,
    Series,
    Table,
    Way,
)
from ui.answers.pages import Analysis, Part
from ui.presentation.theme import one_line, percent
from ui.presentation.words import share_words, wrong_accepts_words

#: Whose verdicts are counted: those under each side, or under all policies together.
WHOSE = {"sides": "Under A and B alone", "all": "Under all policies together"}
JUDGEMENTS: dict[VerdictOutcome, str] = {
    VerdictOutcome.ACCEPTED_WRONG: "Accepted a wrong answer",
    VerdictOutcome.ACCEPTED_RIGHT: "Accepted a right answer",
    VerdictOutcome.REVISED_RIGHT: "Sent a right answer back",
    VerdictOutcome.REVISED_WRONG: "Sent a wrong answer back",
    VerdictOutcome.UNREADABLE: "Gave no readable verdict",
    VerdictOutcome.NOTHING: "Had no answer to check",
    VerdictOutcome.FAILED: "Did not reply",
}
#: Of fewer wrong answers a cell of verifier and author says nothing.
_FEWEST_OF_AUTHOR = 3


class Rate(NamedTuple):
    """A rate of verifiers: its field in a ledger, what they did, to which answers, and the turns that it counts."""

    field: str
    did: str
    answers: str
    outcome: VerdictOutcome

    def of(self, one: VerifierLedger) -> ClusteredShare:
        """A verifier's."""
        found: ClusteredShare = getattr(one, self.field)
        return found


FALSE_ACCEPT = Rate("false_accept", "accepted", "wrong answers", VerdictOutcome.ACCEPTED_WRONG)
FALSE_REVISE = Rate("false_revise", "sent back", "right answers", VerdictOutcome.REVISED_RIGHT)


def _books(asked: Asked, side: Side) -> list[VerifierLedger]:
    return ledgers(asked.read(turn_groups, side.where), asked.read(turn_rates, side.where))


def _enough(books: Sequence[VerifierLedger], rate: Rate) -> list[VerifierLedger]:
    """The verifiers that judged enough, the one with the largest share first."""
    return sorted(
        (one for one in books if rate.of(one).n >= FEWEST), key=lambda one: -(rate.of(one).value or 0.0)
    )


def _whose(asked: Asked) -> Choice | None:
    """Whose verdicts are counted, as the address says; where it says nothing and a page opens on sides under which no
    two verifiers can be ranked, all together. None where there is one side."""
    if not asked.compared:
        return None
    few = not any(len(_enough(_books(asked, side), FALSE_ACCEPT)) > 1 for side in asked.sides)
    default = "all" if few and not asked.chosen else "sides"
    return asked.choice("verdicts", "Whose verdicts", WHOSE, default, "flip")


def _judging(asked: Asked) -> Asked:
    whose = _whose(asked)
    return asked.alone(asked.together) if whose and whose.value == "all" else asked


def false_accept(asked: Asked) -> Answer:
    """Which verifier accepts wrong answers."""
    whose = _whose(asked)
    notes = []
    if whose:
        notes.append(
            "A verifier is a model, whoever called it: here and below, its verdicts under all policies."
            if whose.value == "all"
            else "Here and below, only verdicts under A and under B."
        )
    answer = _rates(_judging(asked), FALSE_ACCEPT, "Which verifier accepts wrong answers most?", notes)
    return replace(answer, choices=[whose] if whose else (), term="Wrong answers accepted")


def false_revise(asked: Asked) -> Answer:
    """Which verifier sends right answers back."""
    return _rates(_judging(asked), FALSE_REVISE, "Which verifier sends right answers back most?", [])


def _rates(asked: Asked, rate: Rate, question: str, notes: Sequence[str]) -> Answer:
    books = {side: _books(asked, side) for side in asked.sides}
    if not any(books.values()):
        return Answer(rate.field, question, "No model was called as a Verifier here.")
    shares: dict[str, list[tuple[Side, ClusteredShare]]] = {}
    for side, of in books.items():
        for one in of:
            if (share := rate.of(one)).n:
                shares.setdefault(one.model, []).append((side, share))

    def order(model: str) -> tuple[bool, float, str]:
        of = [share for _, share in shares[model]]
        return max(one.n for one in of) < FEWEST, -max(one.value or 0.0 for one in of), model

    lines = [
        Line(
            model,
            Estimate.of(share),
            Mark(f"{rate.outcome.value}:{model}", side=side.letter),
            faint=share.n < FEWEST,
        )
        for model in sorted(shares, key=order)
        for side, share in shares[model]
    ]
    method = (
        f"Of the {rate.answers} that a verifier judged readably, the share that it {rate.did}. Lines are 95 % "
        "intervals in which the turns of one task count together."
    )
    faint = f"A hollow mark judged fewer than {FEWEST}: too few to be ranked, so it stands below the others."
    return Answer(
        rate.field,
        question,
        asked.each(lambda side: worst(books[side], rate)),
        [Estimates(lines, f"{rate.answers} {rate.did}, with 95 % interval")],
        [method, *[faint] * any(one.faint for one in lines), *notes],
    )


def worst(books: Sequence[VerifierLedger], rate: Rate = FALSE_ACCEPT) -> str:
    """Which verifier has the largest share, and which others it cannot be told from."""
    ranked = _enough(books, rate)
    few = sum(0 < rate.of(one).n < FEWEST for one in books)
    if not ranked:
        return f"Too few {rate.answers} to tell: no verifier judged {FEWEST} or more here."
    first, *others = ranked
    share = rate.of(first)
    low, high = share.ci95
    said = (
        f"{percent(share.value)} of the {share.n:,} {rate.answers} it was shown "
        f"(95 % interval {percent(low)} to {percent(high)})"
    )
    name = one_line(first.model, 40)
    if not others and few:
        return f"Too few {rate.answers} to tell: only {name} judged {FEWEST} or more; it {rate.did} {said}."
    left = ""
    if few:
        left = f" {few} with fewer than {FEWEST} {rate.answers} {'is' if few == 1 else 'are'} not ranked."
    if not share.k:
        return (
            f"None: not one of {sum(rate.of(one).n for one in ranked):,} {rate.answers} was {rate.did}.{left}"
        )
    rivals = [(one.model, of) for one in others if (of := rate.of(one)).ci95[1] > low]
    apart = ""
    if rivals:
        names = " or ".join(
            f"{one_line(model, 30)} ({percent(of.value)} of {of.n:,}, {100 * of.ci95[0]:.0f} to {100 * of.ci95[1]:.0f})"
            for model, of in rivals[:3]
        )
        apart = f" It cannot be told from {names}: the intervals overlap."
    return f"{name}: it {rate.did} {said}.{apart}{left}"


_COUNTS = {
    VerdictOutcome.ACCEPTED_RIGHT: ("✓ right", "ACCEPT of a right answer"),
    VerdictOutcome.ACCEPTED_WRONG: ("✓ wrong", "ACCEPT of a wrong answer"),
    VerdictOutcome.REVISED_RIGHT: ("↻ right", "REVISE of a right answer"),
    VerdictOutcome.REVISED_WRONG: ("↻ wrong", "REVISE of a wrong answer"),
    VerdictOutcome.UNREADABLE: ("? unreadable", "Counted as REVISE"),
    VerdictOutcome.NOTHING: ("∅ no answer to check", ""),
    VerdictOutcome.FAILED: ("⚠ no reply", ""),
}


def ledger(asked: Asked) -> Answer | None:
    """Every verdict against the truth."""
    asked = _judging(asked)
    rows = asked.rows(lambda side: _books(asked, side))
    if not rows:
        return None
    table = Table.of(
        rows,
        SIDE,
        Column("model", "Verifier", get=lambda row: row.of.model),
        Column(
            "false_accept",
            "Wrong answers accepted",
            "estimate",
            lambda row: row.of.false_accept,
            "Wrong answers accepted",
        ),
        Column("false_revise", "Right answers sent back", "estimate", lambda row: row.of.false_revise),
        *(Column(what.value, words, "count", _times(what), help) for what, (words, help) in _COUNTS.items()),
        Column(
            "self_verified", "Its own answers", "count", lambda row: row.of.self_verified, "Self-verified"
        ),
        Column("open", "Episodes", "link", _as_verifier),
        Column("false", "With ✓ wrong", "link", _wrongly, "Its episodes in which it accepted a wrong answer"),
    )
    said = asked.each(lambda side: wrong_accepts_words(*asked.read(wrong_accepts, side.where)))
    sentence = said or "No verdict accepted a wrong answer."
    return Answer("verifiers", "What did their verdicts come to?", sentence, [table], term="False accept")


def _times(what: VerdictOutcome) -> Callable[[Row[VerifierLedger]], int]:
    return lambda row: row.of.counts.get(what, 0)


def _as_verifier(row: Row[VerifierLedger]) -> Address:
    return row.side.listed(model=row.of.model, role=Role.VERIFIER.value)


def _wrongly(row: Row[VerifierLedger]) -> Address | None:
    if not row.of.counts.get(VerdictOutcome.ACCEPTED_WRONG):
        return None
    return row.side.listed(with_judgement(row.of.model, VerdictOutcome.ACCEPTED_WRONG))


def authors(asked: Asked) -> Answer | None:
    """Whether verifiers go easy on answers of their own."""
    asked = _judging(asked)
    found = [(side, asked.read(by_author, side.where)) for side in asked.sides]
    if not any(judged.pairs for _, judged in found):
        return None
    return Answer(
        "authors",
        "Do they accept their own wrong answers more often?",
        asked.each(lambda side: _own_and_others(asked.read(by_author, side.where))),
        [_by_author(asked, side) for side, judged in found if judged.pairs],
        [
            "Share of wrong answers accepted, in percent, by verifier (row) and author of the answer (column); ◆ "
            f"judged its own. Nothing stands where fewer than {_FEWEST_OF_AUTHOR} wrong answers were judged. Read "
            "along a verifier's row to see if it is easier on itself."
        ],
        term="Self-verified",
    )


def _own_and_others(judged: VerdictsOnAuthors) -> str:
    """How many verifiers are easier on themselves, each by its own row, and the two totals."""
    rows: dict[str, tuple[Counter[bool], Counter[bool]]] = {}
    for (verifier, author), share in judged.pairs.items():
        k, n = rows.setdefault(verifier, (Counter(), Counter()))
        k[verifier == author] += share.k
        n[verifier == author] += share.n
    both = [(k[True] / n[True], k[False] / n[False]) for k, n in rows.values() if n[True] and n[False]]
    if not both:
        return "It cannot be told: no verifier judged wrong answers of its own and of others."
    easier = sum(own > others for own, others in both)
    own, others = (share_words(one.value or 0.0, one.ci95) for one in (judged.own, judged.others))
    return (
        f"{easier} of {len(both)} verifiers accepted a larger share of their own wrong answers than of others'. "
        f"Together it is {own} of own ones and {others} of others', which weighs a verifier by how often it judged."
    )


def _by_author(asked: Asked, side: Side) -> Grid:
    judged, order = asked.read(by_author, side.where).pairs, asked.read(pool_order, side.where)

    def cell(verifier: str, author: str) -> Cell:
        share, sign = judged.get((verifier, author)), "◆" if verifier == author else ""
        if share is None or share.n < _FEWEST_OF_AUTHOR:
            return Cell(None, "too few", sign)
        into = f"{VerdictOutcome.ACCEPTED_WRONG.value}:{verifier}\n{author}"
        detail = f"{share.k:,} of {share.n:,} wrong ones accepted"
        return Cell(share.value, detail, sign, Mark(into, side=side.letter), share.ci95)

    rows = [name for name in order if any(verifier == name for verifier, _ in judged)]
    columns = [name for name in order if any(author == name for _, author in judged)]
    cells = [[cell(verifier, author) for author in columns] for verifier in rows]
    axes = ("verifier", "author of the answer")
    return Grid(rows, columns, axes, cells, top=1.0, title=side.title, key=f"grid{side.letter}")


def accepts(asked: Asked) -> Answer:
    """After how many turns a Verifier ends an episode, and how many of these ends are wrong."""
    asked = _judging(asked)
    ended = [(side, _ended(asked, side)) for side in asked.sides]
    return Answer(
        "accepts",
        "When do they accept?",
        asked.each(lambda side: _ended_words(asked, side)),
        [_by_turn(side, counts) for side, counts in ended if counts],
        term="False accept",
        ways=[
            Way(
                f"List these {wrong:,}{f' of {side.letter}' if side.letter else ''}",
                side.listed(WRONGLY_ENDED),
            )
            for side, counts in ended
            if (wrong := sum(n for (_, right), n in counts.items() if not right))
        ],
    )


def _ended(asked: Asked, side: Side) -> Counter[tuple[int, bool]]:
    counts: Counter[tuple[int, bool]] = Counter()
    for one in asked.read(policy_costs, side.where):
        counts.update(one.accepts)
    return counts


def _ended_words(asked: Asked, side: Side) -> str:
    counts, found = _ended(asked, side), asked.read(policy_costs, side.where)
    if not (ended := counts.total()):
        return "No episode was ended by a Verifier."
    wrong = sum(n for (_, right), n in counts.items() if not right)
    # Several policies play the same tasks, so that their shares have no common interval.
    share = percent(wrong / ended)
    if len(found) == 1:
        share = share_words(wrong / ended, found[0].false_accept.ci95)
    return (
        f"A Verifier ended {ended:,} of {sum(one.n for one in found):,} episodes; of these {share} with a wrong answer "
        "(false accepts)."
    )


def _by_turn(side: Side, counts: Counter[tuple[int, bool]]) -> Bars:
    turns = range(1, max(turn for turn, _ in counts) + 1)
    right, wrong = ([counts[turn, outcome] for turn in turns] for outcome in (True, False))
    return Bars(
        [str(turn) for turn in turns],
        [Series("● right", right, "right"), Series("✕ wrong", wrong, "wrong")],
        ("accepted at turn", "episodes"),
        title=side.title,
        key=f"bars{side.letter}",
    )


def behind(asked: Asked, into: str, second: bool) -> Behind | None:
    """The turns that an address looks into; None for a stale one."""
    judging = _judging(asked)
    side = judging.sides[-1 if second else 0]
    found = into_verdict(into)
    if found is None:
        return None
    what, verifier, author = found
    of = f", answers of {one_line(author, 40)}" if author else ""
    return Behind(
        f"{JUDGEMENTS[what]}: {one_line(verifier, 40)}{of}",
        Way(
            "Their episodes, and other authors'" if author else "Their episodes",
            side.listed(with_judgement(verifier, what)),
        ),
        turns_with_verdict(asked.store, side.where, verifier, what, author),
    )


def into_verdict(key: str) -> tuple[VerdictOutcome, str, str | None] | None:
    """(what, verifier, author) that an address looks into; None for a stale one."""
    what, _, rest = key.partition(":")
    verifier, by, author = rest.partition("\n")
    if what not in set(VerdictOutcome) or not verifier:
        return None
    return VerdictOutcome(what), verifier, author if by else None


ANALYSIS = Analysis(
    (
        Part("verdicts", "Verdicts", (false_accept, false_revise, ledger, authors, accepts)),
        Part("cost", "Cost", costs.QUESTIONS),
        Part("budget", "Turn budget", (costs.budget,)),
        Part("roles", "Roles kept", (pool.kept, pool.refrained)),
    ),
    behind,
)
