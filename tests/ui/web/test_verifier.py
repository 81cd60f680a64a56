"""Verifier & cost: the two answers on top, the ledger, prices that are unknown, budgets and roles."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from streamlit.testing.v1 import AppTest

from core.analysis.metrics import ClusteredShare
from core.episode import Episode, Flag, Role, Turn, Verdict
from storage.analysis.costs import PolicyCost, policy_costs
from storage.analysis.verdicts import (
    LACKS,
    VerdictOutcome,
    VerifierLedger,
    ledgers,
    thinker_plans,
    turn_groups,
    turn_rates,
)
from storage.filters.episode_filter import EpisodeFilter
from storage.rows.engine import writing
from storage.rows.mapping import flag_bits
from storage.rows.schema import episode, text
from storage.store import Store
from tests.builders.sample_store import checkpoint, sample_store
from tests.ui.pages import assert_literal, opened, plainly, press, shown, table_with
from ui.answers.costs import solved_cost
from ui.answers.verifier import into_verdict, worst
from ui.web.analysis.figures import label_sides

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("samples")]


def book(model: str, wrong_accepted: int, wrong_revised: int) -> VerifierLedger:
    counts = {VerdictOutcome.ACCEPTED_WRONG: wrong_accepted, VerdictOutcome.REVISED_WRONG: wrong_revised}
    return VerifierLedger(model, counts, share(wrong_accepted, wrong_accepted + wrong_revised), share(0, 0))


def share(k: int, n: int) -> ClusteredShare:
    """Of observations that have a task each."""
    return ClusteredShare.counted((task, task < k) for task in range(n))


def test_the_worst_verifier_is_named_only_where_chance_allows() -> None:
    assert "no verifier judged 10 or more" in worst([book("few", 5, 2)])
    only = worst([book("all", 1, 0), book("much", 2, 29)])
    assert only.startswith("Too few wrong answers to tell: only much judged 10 or more; it accepted 6.5 %")
    clear = worst([book("lax", 80, 20), book("strict", 5, 95)])
    assert clear.startswith("lax: ")
    assert "80.0 %" in clear
    assert "cannot be told" not in clear
    close = worst([book("one", 10, 10), book("other", 9, 11), book("few", 1, 0)])
    assert "20 wrong answers it was shown (95 % interval" in close
    assert "cannot be told from other (45.0 % of 20, " in close
    assert "1 with fewer than 10 wrong answers is not ranked" in close
    assert worst([book("saint", 0, 50)]).startswith("None: not one of 50")


def cost(cost_usd: float | None, right: int = 5) -> PolicyCost:
    return PolicyCost(
        "p", None, 40, 1000, cost_usd, 1.0, share(right, 10), share(5, 10), share(1, 5), {(3, True): 5}
    )


def test_a_solved_problem_costs_what_all_attempts_did() -> None:
    assert solved_cost([cost(0.0)]) == (
        "200 tokens per solved problem (10 played, 5 solved: 50.0 % (24 to 76)). These models are free."
    )
    assert "no known price" in solved_cost([cost(1.0), cost(None)])
    assert (
        solved_cost([cost(1.0)])
        == "$0.2000 and 200 tokens per solved problem (10 played, 5 solved: 50.0 % (24 to 76))."
    )
    assert solved_cost([cost(1.0, right=0)]) == "Nothing was solved."


def test_names_beside_marks_do_not_cover_each_other() -> None:
    """Two marks at one place, and one at the chart's end."""
    first, second, last = label_sides(
        [(0.5, 0.2), (0.5, 0.2), (1.0, 0.6)], ["generation 0", "random", "long name of one"], [(0.1, 0.3)] * 3
    )
    assert first != second
    assert last.endswith("left")


def test_the_page_answers_both_questions_and_shows_the_ledger(samples: Store) -> None:
    page = opened("verifier", mix="all")
    books = ledgers(turn_groups(samples, EpisodeFilter()), turn_rates(samples, EpisodeFilter()))
    assert worst(books) in plainly(page)
    assert solved_cost(policy_costs(samples, EpisodeFilter())) in plainly(
        opened("verifier", part="cost", mix="all")
    )
    table = table_with(page, "accepted_wrong")
    assert list(table["model"]) == [one.model for one in books]
    assert list(table["accepted_wrong"]) == [
        one.counts.get(VerdictOutcome.ACCEPTED_WRONG, 0) for one in books
    ]
    assert_literal(page)


def test_where_the_two_sides_judged_too_little_the_first_answer_is_of_all_policies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = sample_store(tmp_path / "trinity.db", 34)
    monkeypatch.setenv("TRINITY_STORE", store.url)

    def answer(policy: str | None) -> str:
        where = EpisodeFilter(policy=policy)
        return worst(ledgers(turn_groups(store, where), turn_rates(store, where)))

    page = opened("verifier")
    a, b = page.selectbox(key="scope_a").value, page.selectbox(key="scope_b").value
    assert a
    assert b
    assert all("Too few" in answer(one) for one in (a, b))
    assert "Too few" not in answer(None)
    assert answer(None) in plainly(page)
    assert "its verdicts under all policies" in shown(page)
    table = table_with(page, "accepted_wrong")
    assert table["model"].is_unique  # the part below counts what the answer counts
    press(page, "choose_verdicts")
    assert page.query_params["verdicts"] == "sides"
    assert f"A: {answer(a)}" in plainly(page)
    assert f"B: {answer(b)}" in plainly(opened("verifier", a=a, b=b))  # who chooses two sees the two
    store.close()


def test_a_decision_by_hand_counts_only_when_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The switch says what is left out (the store has a live play too), and lists are told to leave it out as well."""
    store = sample_store(tmp_path / "trinity.db", 4)
    monkeypatch.setenv("TRINITY_STORE", store.url)
    every = sum(one.n for one in policy_costs(store, EpisodeFilter()))
    taken = store.episodes.page(EpisodeFilter(status="finished"), limit=1).items[0].id
    with writing(store.engine) as connection:
        connection.execute(
            episode.update().where(episode.c.id == taken).values(flags=flag_bits(["override"]))
        )
    counted = every - 1
    page = opened("verifier", mix="all")
    switch = page.button_group(key="facet_forks")
    assert (switch.label, switch.options) == ("Live plays, requests, evolutions (2)", ["hidden", "included"])
    assert re.search(rf"A Verifier ended \d+ of {counted:,} episodes", plainly(page))
    switch.set_value("with").run()
    assert page.query_params["forks"] == "with"
    assert re.search(rf"A Verifier ended \d+ of {every:,} episodes", plainly(page))
    table = table_with(opened("verifier", part="cost", mix="all"), "tokens_per_solved")
    assert table["episodes"].sum() == counted
    assert all("forks=without" in link for link in table["open"])
    shares = [float(one.split(" %")[0]) for one in table["accuracy"]]
    assert shares == sorted(shares, reverse=True)
    store.close()


def test_thinkers_that_answered_or_judged_are_found_in_what_they_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = sample_store(tmp_path / "trinity.db", 4)
    thought = EpisodeFilter(
        q='any(turn.role == "T" and turn.error == None) and status == "finished" and parent == None'
    )
    said = {
        "<suggestion>add</suggestion> It is <answer>7</answer>.": "answer",
        "answer 7": "answer",
        "3 + 4 so 7 given 8 REVISE": "verdict",
        "<think>Is it <answer>7</answer>?</think> <suggestion>Add, then ACCEPT or REVISE.</suggestion>": None,
    }
    ids = [one.id for one in store.episodes.page(thought).items][: len(said)]
    for episode_id, body in zip(ids, said, strict=True):
        with writing(store.engine) as connection:
            mine = (text.c.episode_id == episode_id, text.c.kind == "reply")
            connection.execute(text.update().where(*mine).values(body=body))
    found = [one for one in thinker_plans(store, EpisodeFilter()) if one.turn.episode_id in ids]
    assert {(one.turn.episode_id, one.breach) for one in found} == set(zip(ids, said.values(), strict=True))
    monkeypatch.setenv("TRINITY_STORE", store.url)
    page = press(opened("verifier", part="roles", mix="all"), "choose_plans")
    assert page.query_params["plans"] == "read"
    table = table_with(page, "verdict")
    astray = [one for one in thinker_plans(store, EpisodeFilter()) if one.breach]
    assert table["answer"].sum() + table["verdict"].sum() == len(astray)
    behind = table_with(page, "question")
    first = astray[0].turn
    assert behind["open"][0] == f"/replay?ep={first.episode_id}&t={first.index + 1}"
    store.close()


def test_a_link_of_a_verdict_shows_its_turns(samples: Store) -> None:
    books = ledgers(turn_groups(samples, EpisodeFilter()), turn_rates(samples, EpisodeFilter()))
    model, n = next((one.model, k) for one in books if (k := one.counts.get(VerdictOutcome.REVISED_WRONG, 0)))
    page = opened("verifier", mix="all", into=f"revised_wrong:{model}")
    table = table_with(page, "question")
    assert len(table) == min(n, 50)
    press(page, "into_close")
    assert "into" not in page.query_params
    assert "names nothing that this page knows" in opened("verifier", mix="all", into="x").info[0].value
    assert into_verdict("accepted_wrong:a:b\nc") == (VerdictOutcome.ACCEPTED_WRONG, "a:b", "c")


def test_other_conditions_of_a_link_are_shown_and_let_go() -> None:
    page = opened("verifier", mix="all", correct="wrong", family="gone")
    assert "No finished episode here" in shown(page)
    press(page, "scope_drop_correct")
    assert "correct" not in page.query_params


# Every number's link lists what the number counts


def listed(store: Store, link: object) -> list[str]:
    """Ids of the episodes that a link to the list of episodes shows, sorted; none where a cell has no link."""
    if not isinstance(link, str):
        return []
    where = EpisodeFilter.from_query(dict(parse_qsl(urlsplit(link).query)))
    return sorted(one.id for one in store.episodes.page(where, limit=10_000).items)


def turns_by(episodes: Iterable[Episode], model: str, role: Role) -> list[Turn]:
    return [
        turn
        for one in episodes
        for turn in one.turns
        if (turn.decision.model, turn.decision.role) == (model, role)
    ]


def of(turns: Iterable[Turn]) -> list[str]:
    return sorted({turn.episode_id for turn in turns})


@pytest.fixture(scope="module")
def lost(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, list[Episode]]]:
    """A store of which one episode of a checkpoint was lost, and the episodes that totals count."""
    store = sample_store(tmp_path_factory.mktemp("lost") / "trinity.db", 12)
    lost = store.episodes.page(EpisodeFilter(policy=checkpoint(30).id), limit=1).items[0].id
    with writing(store.engine) as connection:
        connection.execute(episode.update().where(episode.c.id == lost).values(status="missing"))
    found = store.episodes.page(EpisodeFilter(status="finished", forks="without"), limit=10_000).items
    yield store, [store.episodes.get(one.id) for one in found]
    store.close()


@pytest.fixture
def with_a_lost_one(
    lost: tuple[Store, list[Episode]], monkeypatch: pytest.MonkeyPatch
) -> tuple[Store, list[Episode]]:
    """That store, which the app opens."""
    monkeypatch.setenv("TRINITY_STORE", lost[0].url)
    return lost


def test_the_ledgers_links_list_the_episodes_that_its_numbers_count(
    with_a_lost_one: tuple[Store, list[Episode]],
) -> None:
    store, episodes = with_a_lost_one
    table = table_with(opened("verifier", mix="all"), "accepted_wrong")
    more = 0
    for row in table.to_dict("records"):
        turns = turns_by(episodes, row["model"], Role.VERIFIER)
        accepting = [one for one in turns if one.verdict is Verdict.ACCEPT and not one.correct_after]
        assert len(listed(store, row["false"])) == row["accepted_wrong"]
        assert listed(store, row["false"]) == of(accepting)
        assert listed(store, row["open"]) == of(turns)
        # A column of which every row says 0 is left out.
        assert len(turns) == sum(row.get(what.value, 0) for what in VerdictOutcome)
        asked = {one.episode_id for one in turns if one not in accepting}
        more += sum(one.id in asked and one.correct is False for one in episodes)
    assert more  # a model that asked for more in an episode that another then accepted wrongly


def test_lists_of_judgements_and_of_wrong_ends_hold_what_is_counted(
    with_a_lost_one: tuple[Store, list[Episode]],
) -> None:
    store, episodes = with_a_lost_one
    # Each model with one kind of judgement and each kind with some model.
    for place, one in enumerate(
        ledgers(turn_groups(store, EpisodeFilter()), turn_rates(store, EpisodeFilter()))
    ):
        what, n = list(one.counts.items())[place % len(one.counts)]
        page = opened("verifier", mix="all", into=f"{what.value}:{one.model}")
        table = table_with(page, "question")
        assert len(table) == min(n, 50)
        query = link_query(page, "Their episodes")
        assert listed(store, f"/episodes?{query}") == of_links(table["open"]) or n > 50
    ended = [one for one in episodes if one.end_reason == "accepted"]
    wrong = sorted(one.id for one in ended if not one.correct)
    page = opened("verifier", mix="all")
    assert f"A Verifier ended {len(ended):,} of {len(episodes):,} episodes" in plainly(page)
    assert listed(store, f"/episodes?{link_query(page, 'List these')}") == wrong


def link_query(page: AppTest, words: str) -> str:
    return str(next(link.proto.query_string for link in page.page_link if link.proto.label.startswith(words)))


def of_links(links: Iterable[str]) -> list[str]:
    return sorted({dict(parse_qsl(urlsplit(link).query))["ep"] for link in links})


def test_costs_and_roles_list_what_they_count(with_a_lost_one: tuple[Store, list[Episode]]) -> None:
    store, episodes = with_a_lost_one
    costs = table_with(opened("verifier", part="cost", mix="all"), "tokens_per_solved")
    assert sum(costs["episodes"]) == len(episodes)
    for row in costs.to_dict("records"):
        assert len(listed(store, row["open"])) == row["episodes"]
    kept = table_with(opened("verifier", part="roles", mix="all"), "kept")
    failed, whole = 0, kept["kept"].str.startswith("100.0 %")
    assert 0 < whole.sum() < len(kept)
    assert kept["open"][whole].isna().all(), "where a role was always kept to there is no list of lapses"
    for row in kept.to_dict("records"):
        role = next(one for one in Role if one.value in row["role"].lower())
        turns = [
            one
            for one in turns_by(episodes, row["model"], role)
            if Flag.NOTHING_TO_JUDGE not in one.flags  # no model was asked
        ]
        assert row["turns"] == len(turns)
        lapses = [one for one in turns if {LACKS[role], Flag.MODEL_ERROR} & set(one.flags)]
        assert listed(store, row["open"]) == of(lapses)
        failed += row["failed"]
    assert failed  # a model that gave no reply at all lacked what its role asks for too


def test_a_links_own_conditions_are_kept_beside_those_of_the_page(
    with_a_lost_one: tuple[Store, list[Episode]],
) -> None:
    """The page counts the episodes of a filter: a number's list is within it, whatever the filter asks for."""
    store, episodes = with_a_lost_one
    page = opened("verifier", mix="all", q="turns > 2 or correct == True", flag="low_margin")
    table = table_with(page, "accepted_wrong")
    assert table["accepted_wrong"].sum() > 0
    for row in table.to_dict("records"):
        assert len(listed(store, row["false"])) == row["accepted_wrong"]
