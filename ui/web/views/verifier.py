"""Verifier & cost: which verifier accepts wrong answers, what fewer turns would do, what a solved problem costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import plotly.graph_objects as go
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from core.analysis.metrics import ClusteredShare
from core.episode import Role
from storage.analysis.costs import PolicyCost, policy_costs
from storage.analysis.routing import pool_order
from storage.analysis.verdicts import (
    FEWEST,
    WRONGLY_ENDED,
    VerdictOutcome,
    VerifierLedger,
    by_author,
    ledgers,
    turn_groups,
    turn_rates,
    turns_with_verdict,
    with_judgement,
    wrong_accepts,
)
from storage.store import Store
from ui.presentation.glossary import define
from ui.presentation.theme import label, one_line, percent
from ui.presentation.words import dollars, wrong_accepts_words
from ui.web.kit import state
from ui.web.kit.buttons import tool
from ui.web.kit.cache import cached
from ui.web.kit.chart import plot
from ui.web.kit.clicks import clickable
from ui.web.kit.estimates import Estimate, estimates_figure
from ui.web.kit.figures import literal
from ui.web.kit.matrix import MatrixCell, matrix
from ui.web.kit.tables import link, number, row_table, text
from ui.web.kit.widgets import ink, nothing_here
from ui.web.pickers.scope import Scope, ScopeSide, behind, scope_bar
from ui.web.verifier.cost import budget_part, cost_part, named, roles_part, with_interval
from ui.web.verifier.figures import SIDES, accepts

_costs = cached(policy_costs)
_groups = cached(turn_groups)
_wrong_accepts = cached(wrong_accepts)
_turn_rates = cached(turn_rates)
_by_author = cached(by_author)
_pool_order = cached(pool_order)
#: For each side of the scope, of its verifiers and of its policies.
Ledgers = Sequence[Sequence[VerifierLedger]]
Costs = Sequence[Sequence[PolicyCost]]
PARTS = {"verdicts": "Verdicts", "cost": "Cost", "budget": "Turn budget", "roles": "Roles kept"}
#: Whose verdicts are counted: those under all policies together ("all"), or under each side ("sides").
WHOSE = "verdicts"
JUDGEMENTS: dict[VerdictOutcome, str] = {
    VerdictOutcome.ACCEPTED_WRONG: "Accepted a wrong answer",
    VerdictOutcome.ACCEPTED_RIGHT: "Accepted a right answer",
    VerdictOutcome.REVISED_RIGHT: "Sent a right answer back",
    VerdictOutcome.REVISED_WRONG: "Sent a wrong answer back",
    VerdictOutcome.UNREADABLE: "Gave no readable verdict",
    VerdictOutcome.NOTHING: "Had no answer to check",
    VerdictOutcome.FAILED: "Did not reply",
}


def show() -> None:
    """Render the page."""
    store = state.store()
    st.title("Verifier & cost")
    st.caption(
        "A Verifier's ACCEPT ends a coordinator's episode: whether it can be trusted, and what a solved problem costs."
    )
    scope = scope_bar(store)
    costs = [_costs(store, side.where) for side in scope.sides]
    if not any(costs):
        nothing_here("No finished episode here.", ":material/filter_alt_off:")
        with st.container(horizontal=True):
            state.page_link("verifier", "Without these conditions", icon=":material/fact_check:")
            state.page_link("home", "See how to record or load some", icon=":material/home:")
        return
    groups = [_groups(store, side.where) for side in scope.sides]
    rates = [_turn_rates(store, side.where) for side in scope.sides]
    judging = _judging(store, scope)
    books = [_ledgers(store, side) for side in judging.sides]
    _answers(scope, costs, judging, books)
    # Where all is free, the answer above says it all.
    priced = any(one.cost_usd != 0 for of in costs for one in of)
    parts = {name: words for name, words in PARTS.items() if priced or name != "cost"}
    part = state.address_select("Part", parts, name="part", key="verifier_part")
    if part == "verdicts":
        _verdicts(store, judging, books)
    elif part == "cost":
        cost_part(store, scope, groups, costs)
    elif part == "budget":
        budget_part(store, scope)
    else:
        roles_part(store, scope, groups, rates)


def _ledgers(store: Store, side: ScopeSide) -> list[VerifierLedger]:
    return ledgers(_groups(store, side.where), _turn_rates(store, side.where))


def _judging(store: Store, scope: Scope) -> Scope:
    """Whose verdicts are counted: those under each side, or under all policies together, as the address says. Where it
    says nothing and the page opens on sides under which no two verifiers can be ranked, all together."""
    if not scope.compared:
        return scope
    few = not any(len(_ranked(_ledgers(store, side))) > 1 for side in scope.sides)
    whose = "all" if few and not scope.chosen else "sides"
    asked = state.param(WHOSE)
    whose = asked if asked in ("all", "sides") else whose
    together = replace(scope, sides=(scope.together,), mixture=0)
    return together if whose == "all" else scope


# The two answers


def _answers(scope: Scope, costs: Costs, judging: Scope, books: Ledgers) -> None:
    left, right = st.columns(2)
    with left, st.container(border=True, height="stretch"):
        st.markdown("**Which verifier accepts wrong answers most?**", help=define("Wrong answers accepted"))
        _whose_verdicts(scope, judging)
        for side, of in zip(judging.sides, books, strict=True):
            st.markdown(f"{_letter(side)}{worst(of)}")
    with right, st.container(border=True, height="stretch"):
        st.markdown("**What did a solved problem cost?**")
        _pooled_words(scope)
        for side, found in zip(scope.sides, costs, strict=True):
            st.markdown(f"{_letter(side)}{solved_cost(found)}")
        if not scope.compared and (least := least_tokens(costs[0])):
            st.caption(
                f"Least: {label(named(least, scope, costs[0]), 60)}, {least.tokens / least.right:,.0f} tokens."
            )


def _letter(side: ScopeSide) -> str:
    return f"{side.letter}: " if side.letter else ""


def _pooled_words(scope: Scope) -> None:
    """Whose episodes an answer is about."""
    if not scope.compared:
        st.caption(label(scope.sides[0].name.capitalize() if scope.mixture else scope.sides[0].name, 60))


def _whose_verdicts(scope: Scope, judging: Scope) -> None:
    """Whose episodes the first answer is about, and the way to the other view where there are two."""
    if not scope.compared:
        _pooled_words(scope)
        return
    all_together = not judging.compared
    words = (
        "A verifier is a model, whoever called it: here and below, its verdicts under all policies."
        if all_together
        else "Here and below, only verdicts under A and under B."
    )
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.caption(words, width="content")
        change = partial(state.set_params, **{WHOSE: "sides" if all_together else "all", "into": None})
        tool(
            "Under A and B alone" if all_together else "Under all policies together",
            "whose_verdicts",
            change,
            icon="balance" if all_together else "blender",
        )


def _ranked(books: Sequence[VerifierLedger]) -> list[VerifierLedger]:
    """The verifiers that judged enough wrong answers, the one that accepted the largest share first."""
    enough = [one for one in books if one.false_accept.n >= FEWEST]
    return sorted(enough, key=lambda one: -(one.false_accept.value or 0.0))


def worst(books: Sequence[VerifierLedger]) -> str:
    """The first question's answer in a sentence, as markdown."""
    ranked = _ranked(books)
    few = sum(0 < one.false_accept.n < FEWEST for one in books)
    if not ranked:
        return f"Too few wrong answers to tell: no verifier judged {FEWEST} or more here."
    first, *others = ranked
    name = f"**{label(first.model, 40)}**"
    if not others and few:
        return f"Too few wrong answers to tell: only {name} judged {FEWEST} or more; it accepted {_accepted(first)}."
    verb = "is" if few == 1 else "are"
    left = f" {few} with fewer than {FEWEST} wrong answers {verb} not ranked." if few else ""
    if not first.false_accept.k:
        return f"None: not one of {sum(one.false_accept.n for one in ranked):,} wrong answers was accepted.{left}"
    low, _ = first.false_accept.ci95
    rivals = [one for one in others if one.false_accept.ci95[1] > low]
    apart = ""
    if rivals:
        names = " or ".join(f"{label(one.model, 30)} ({_briefly(one)})" for one in rivals[:3])
        apart = f" It cannot be told from {names}: the intervals overlap."
    return f"{name}: it accepted {_accepted(first)}.{apart}{left}"


def _briefly(one: VerifierLedger) -> str:
    """`31.0 % of 42, 19 to 46`."""
    low, high = one.false_accept.ci95
    share = one.false_accept
    return f"{percent(share.value)} of {share.n:,}, {100 * low:.0f} to {100 * high:.0f}"


def _accepted(one: VerifierLedger) -> str:
    """`**6.5 %** of the 31 wrong answers it was shown (95 % interval 1.8 % to 20.7 %)`."""
    share = one.false_accept
    low, high = share.ci95
    return (
        f"**{percent(share.value)}** of the {share.n:,} wrong answers it was shown "
        f"(95 % interval {percent(low)} to {percent(high)})"
    )


def solved_cost(found: Sequence[PolicyCost]) -> str:
    """The second question's answer in a sentence, as markdown."""
    right, tokens = sum(one.right for one in found), sum(one.tokens for one in found)
    if not right:
        return "Nothing was solved."
    n = sum(one.n for one in found)
    each = f"per solved problem ({n:,} played, {right:,} solved)"
    words = f"**{tokens / right:,.0f} tokens** {each}"
    if any(one.cost_usd is None for one in found):
        return f"{words}. The cost in dollars is unknown: some replies have no known price."
    cost = sum(one.cost_usd or 0.0 for one in found)
    if not cost:
        return f"{words}. These models are free."
    return f"**{dollars(cost / right)}** and {tokens / right:,.0f} tokens {each}."


def least_tokens(found: Sequence[PolicyCost]) -> PolicyCost | None:
    """The policy whose solved problems took the fewest tokens each; None where there are not several."""
    solving = [one for one in found if one.right]
    return min(solving, key=lambda one: one.tokens / one.right) if len(solving) > 1 else None


# Verdicts


def _verdicts(store: Store, scope: Scope, books: Ledgers) -> None:
    if not any(books):
        nothing_here("No model was called as a Verifier here.")
        return
    left, right = st.columns(2, gap="large")
    with left:
        st.subheader("How often is a wrong answer accepted?")
        st.caption(
            "Of the wrong answers that a verifier judged, the share that it accepted. Click a mark for the turns."
        )
        _rates(scope, books, "false_accept", VerdictOutcome.ACCEPTED_WRONG, "wrong answers accepted")
    with right:
        st.subheader("How often is a right answer sent back?")
        st.caption(
            "Of the right answers that a verifier judged, the share that it sent back. Click a mark for the turns."
        )
        _rates(scope, books, "false_revise", VerdictOutcome.REVISED_RIGHT, "right answers sent back")
    _into(store, scope)
    with st.expander(
        "The ledger: every verdict against the truth", icon=":material/table_rows:", expanded=True
    ):
        _ledger_table(scope, books)
    for side in scope.sides:
        if words := wrong_accepts_words(*_wrong_accepts(store, side.where)):
            st.caption(f"{_letter(side)}{words}", help=define("False accept"))
    st.subheader("Do they accept their own wrong answers more often?", help=define("Self-verified"))
    st.caption(
        "Share of wrong answers accepted, by verifier (row) and author of the answer (column); ◆ judged its own."
    )
    for side in scope.sides:
        if scope.compared:
            st.markdown(f"**{side.title}**")
        _authors(store, side, _pool_order(store, side.where))
    st.subheader("When do they accept?")
    for column, side in zip(st.columns(len(scope.sides)), scope.sides, strict=True):
        with column:
            _accepts(side, _costs(store, side.where))


def _rates(scope: Scope, books: Ledgers, what: str, judged: VerdictOutcome, words: str) -> None:
    shares: dict[str, list[tuple[int, ClusteredShare]]] = {}
    for i, of in enumerate(books):
        for one in of:
            shares.setdefault(one.model, []).append((i, getattr(one, what)))

    def order(name: str) -> tuple[bool, float]:
        few = max(share.n for _, share in shares[name]) < FEWEST
        return few, -max(share.value or 0.0 for _, share in shares[name])

    found = []
    for name in sorted(shares, key=order):
        for i, share in shares[name]:
            if share.value is not None:
                named = f"{scope.sides[i].letter} · {name}" if scope.compared else name
                colour, _, symbol = SIDES[i]
                found.append(
                    Estimate(
                        f"{named} · {share.k:,} of {share.n:,}",
                        share.value,
                        *share.ci95,
                        words,
                        f"{judged.value}:{name}{'#B' if i else ''}",
                        colour,
                        symbol if share.n >= FEWEST else f"{symbol}-open",
                    )
                )
    if not found:
        nothing_here("No such answer was judged.")
        return
    _clickable(
        estimates_figure(found, f"{words}, with 95 % interval"), what, "; ".join(one.name for one in found)
    )
    hollow = (
        f" A hollow mark judged fewer than {FEWEST}: too few to be ranked, so it stands below the others."
        if any(one.symbol.endswith("-open") for one in found)
        else ""
    )
    counted = "accepted" if what == "false_accept" else "sent back"
    st.caption(f"After each name: {counted} of judged. Lines are 95 % intervals.{hollow}")


def _clickable(figure: go.Figure, key: str, alt: str) -> None:
    """A chart whose points carry what to look into; a click notes it in the address."""
    clickable(
        figure,
        lambda into: state.set_params(into=into) if into else None,
        key=f"verifier_{key}",
        alt=alt,
    )


def into_verdict(key: str) -> tuple[VerdictOutcome, str, str | None] | None:
    """(what, verifier, author) that an address looks into; None for a stale one."""
    what, _, rest = key.partition(":")
    verifier, by, author = rest.partition("\n")
    if what not in set(VerdictOutcome) or not verifier:
        return None
    return VerdictOutcome(what), verifier, author if by else None


def _into(store: Store, scope: Scope) -> None:
    """The turns behind what was clicked."""
    key = state.param("into")
    if key is None:
        return
    side = scope.sides[-1 if key.endswith("#B") or len(scope.sides) == 1 else 0]
    found = into_verdict(key.removesuffix("#B"))
    if found is None:
        st.info("The link names nothing that this page knows; click a mark instead.", icon=":material/info:")
        return
    what, verifier, author = found
    of = f", answers of {label(author, 40)}" if author else ""
    behind(
        f"**{JUDGEMENTS[what]}**: {label(verifier, 40)}{of}",
        "Their episodes, and other authors'" if author else "Their episodes",
        side.listed(with_judgement(verifier, what)),
        turns_with_verdict(store, side.where, verifier, what, author),
        scope,
    )


def _ledger_table(scope: Scope, books: Ledgers) -> None:
    headings: dict[str, ColumnConfig] = {
        "side": text("", width=30),
        "model": text("Verifier", pinned=True),
        "accepted_wrong_rate": text(
            "Wrong answers accepted", help=f"{define('Wrong answers accepted')} With 95 % interval"
        ),
        "revised_right_rate": text("Right answers sent back", help="With 95 % interval"),
        "accepted_right": number("✓ right", help="ACCEPT of a right answer"),
        "accepted_wrong": number("✓ wrong", help="ACCEPT of a wrong answer"),
        "revised_right": number("↻ right", help="REVISE of a right answer"),
        "revised_wrong": number("↻ wrong", help="REVISE of a wrong answer"),
        "unreadable": number("? unreadable", help="Counted as REVISE"),
        "nothing": number("∅ no answer to check"),
        "failed": number("⚠ no reply"),
        "own": number("Its own answers", help=define("Self-verified")),
        "open": link("Episodes", "List"),
        "false": link("With ✓ wrong", "List", help="Its episodes in which it accepted a wrong answer"),
    }
    row_table(
        headings,
        [
            (
                side.letter,
                one_line(one.model, 40),
                with_interval(one.false_accept),
                with_interval(one.false_revise),
                *(one.counts.get(what, 0) for what in VerdictOutcome),
                one.self_verified,
                side.episodes(model=one.model, role=Role.VERIFIER.value),
                side.episodes(with_judgement(one.model, VerdictOutcome.ACCEPTED_WRONG))
                if one.counts.get(VerdictOutcome.ACCEPTED_WRONG)
                else None,
            )
            for side, of in zip(scope.sides, books, strict=True)
            for one in of
        ],
        key="ledger",
        at_most=10_000,
        column_order=list(headings) if scope.compared else list(headings)[1:],
    )


def _authors(store: Store, side: ScopeSide, order: Sequence[str]) -> None:
    judged = _by_author(store, side.where)
    found = judged.pairs
    if not found:
        nothing_here("No answer was judged.")
        return
    verifiers = [name for name in order if any(key[0] == name for key in found)]
    authors = [name for name in order if any(key[1] == name for key in found)]
    mark = "#B" if side.letter == "B" else ""
    _clickable(
        matrix(
            [[_author_cell(found.get((v, a)), v, a, mark) for a in authors] for v in verifiers],
            [f"▲ {literal(name, 16)}" for name in verifiers],
            [literal(name, 14) for name in authors],
            ink(),
            axes=("verifier", "author of the answer"),
            most=1.0,
        ),
        f"authors{side.letter}",
        "Share of wrong answers accepted by verifier and author",
    )
    own, others = with_interval(judged.own), with_interval(judged.others)
    st.caption(
        f"Wrong answers accepted: {own} of a model's own, {others} of others'. "
        "Numbers are percent; nothing stands where fewer than three wrong answers were judged. The two totals weigh a "
        "verifier by how often it judged: read along its row to see if it is easier on itself."
    )


def _author_cell(share: ClusteredShare | None, verifier: str, author: str, mark: str) -> MatrixCell:
    own = "◆" if verifier == author else ""
    words = f"▲ {literal(verifier, 30)} on {literal(author, 30)}'s answers"
    if share is None or share.n < 3:
        return MatrixCell(None, own, f"{words}: too few")
    return MatrixCell(
        share.value,
        f"{100 * (share.value or 0.0):.0f}{own}",
        f"{words}: {share.k:,} of {share.n:,} wrong ones accepted"
        f"<br>95 % {percent(share.ci95[0])} to {percent(share.ci95[1])}",
        f"{VerdictOutcome.ACCEPTED_WRONG.value}:{verifier}\n{author}{mark}",
    )


def _accepts(side: ScopeSide, found: Sequence[PolicyCost]) -> None:
    counts: Counter[tuple[int, bool]] = Counter()
    for one in found:
        counts.update(one.accepts)
    ended, false = counts.total(), sum(n for (_, right), n in counts.items() if not right)
    if not ended:
        nothing_here("No episode was ended by a Verifier.")
        return
    # Several policies play the same tasks, so that their shares have no common interval.
    share = with_interval(found[0].false_accept) if len(found) == 1 else percent(false / ended)
    st.markdown(
        f"{_letter(side)}A Verifier ended {ended:,} of {sum(one.n for one in found):,} "
        f"episodes; of these **{share} with a wrong answer** (false accepts).",
        help=define("False accept"),
    )
    if false:
        side.link(f"List these {false:,}", WRONGLY_ENDED)
    plot(
        accepts(counts),
        key=f"accepts{side.letter}",
        small=True,
        alt="; ".join(
            f"turn {turn} {'right' if right else 'wrong'} {n}" for (turn, right), n in sorted(counts.items())
        ),
    )


if __name__ == "__main__":
    state.run(show)
