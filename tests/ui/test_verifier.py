"""Verifier & cost: the two answers on top, the ledger, prices that are unknown, budgets and roles."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from storage.engine import writing
from storage.filters import EpisodeFilter
from storage.mapping import flag_bits
from storage.schema import episode, text
from storage.store import Store
from storage.verdicts import Judgement, Ledger, PolicyCost, Share, ledgers, plans, policy_costs, turn_groups
from tests.ui.pages import assert_literal, command, opened, press, shown
from tests.ui.sample_store import checkpoint, sample_store
from ui.verdict_figures import beside
from ui.views.verifier import PARTS, into_verdict, solved_cost, worst

pytestmark = pytest.mark.usefixtures("samples")


def book(model: str, wrong_accepted: int, wrong_revised: int) -> Ledger:
    return Ledger(model, {Judgement.ACCEPTED_WRONG: wrong_accepted, Judgement.REVISED_WRONG: wrong_revised})


def test_the_worst_verifier_is_named_only_where_chance_allows() -> None:
    assert "no verifier judged 10 or more" in worst([book("few", 5, 2)])
    only = worst([book("all", 1, 0), book("much", 2, 29)])
    assert only.startswith(
        "Too few wrong answers to tell: only **much** judged 10 or more; it accepted **6.5 %**"
    )
    clear = worst([book("lax", 80, 20), book("strict", 5, 95)])
    assert "**lax**" in clear
    assert "80.0 %" in clear
    assert "cannot be told" not in clear
    close = worst([book("one", 10, 10), book("other", 9, 11), book("few", 1, 0)])
    assert "cannot be told from other" in close
    assert "1 with fewer than 10 wrong answers is not ranked" in close
    assert worst([book("saint", 0, 50)]).startswith("None: not one of 50")


def cost(cost_usd: float | None, right: int = 5) -> PolicyCost:
    return PolicyCost("p", 10, right, 40, 1000, cost_usd, 1.0, Share(5, 10), Share(1, 5), {(3, True): 5})


def test_a_solved_problem_costs_what_all_attempts_did() -> None:
    assert solved_cost([cost(0.0)]) == (
        "**200 tokens**: those of all 10 episodes over the 5 that were solved. These models are free of charge, so "
        "tokens are what it cost."
    )
    assert "no known price" in solved_cost([cost(1.0), cost(None)])
    assert "200 tokens" in (said := solved_cost([cost(1.0)]))
    assert "0.20" in said
    assert solved_cost([cost(1.0, right=0)]) == "Nothing was solved."


def test_names_beside_marks_do_not_cover_each_other() -> None:
    """Two marks at one place, and one at the chart's end."""
    first, second, last = beside(
        [(0.5, 0.2), (0.5, 0.2), (1.0, 0.6)], ["generation 0", "random", "long name of one"], [(0.1, 0.3)] * 3
    )
    assert first != second
    assert last.endswith("left")


def test_the_page_answers_both_questions_and_shows_the_ledger(samples: Store) -> None:
    page = opened("verifier")
    books = ledgers(turn_groups(samples, EpisodeFilter()))
    assert worst(books) in shown(page)
    assert solved_cost(policy_costs(samples, EpisodeFilter())) in shown(page)
    table = next(one.value for one in page.dataframe if "accepted_wrong" in one.value)
    assert list(table["model"]) == [one.model for one in books]
    assert list(table["accepted_wrong"]) == [one.counts.get(Judgement.ACCEPTED_WRONG, 0) for one in books]
    assert (
        table["false"][0] == f"/episodes?forks=without&model={books[0].model}&role=verifier&flag=false_accept"
    )
    assert_literal(page)


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
    page = opened("verifier")
    switch = page.button_group(key="facet_forks")
    assert (switch.label, switch.options) == ("Live plays, left out", ["with 2"])
    assert f"of {counted:,}" in shown(page)
    switch.set_value("with").run()
    assert page.query_params["forks"] == "with"
    assert f"of {every:,}" in shown(page)
    table = next(one.value for one in opened("verifier", part="cost").dataframe if "dollars" in one.value)
    assert table["n"].sum() == counted
    assert all("forks=without" in link for link in table["open"])
    shares = [float(one.split(" %")[0]) for one in table["solved"]]
    assert shares == sorted(shares, reverse=True)
    store.close()


def test_where_a_role_was_always_kept_to_there_is_no_list_of_lapses() -> None:
    table = next(one.value for one in opened("verifier", part="roles").dataframe if "kept" in one.value)
    whole = table["kept"].str.startswith("100.0 %")
    assert 0 < whole.sum() < len(table)
    assert table["open"][whole].isna().all()
    assert table["open"][~whole].str.startswith("/episodes?").all()


@pytest.mark.parametrize("part", PARTS)
def test_every_part_opens_with_one_policy_and_with_two(part: str) -> None:
    assert_literal(opened("verifier", part=part, family="user"))
    page = opened("verifier", part=part, a="random", b=checkpoint(30).id)
    assert "A · random" in shown(page) or "A: " in shown(page)


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
    found = [one for one in plans(store, EpisodeFilter()) if one.behind.episode_id in ids]
    assert {(one.behind.episode_id, one.strayed) for one in found} == set(
        zip(ids, said.values(), strict=True)
    )
    monkeypatch.setenv("TRINITY_STORE", store.url)
    page = press(opened("verifier", part="roles"), "read_plans")
    assert page.query_params["plans"] == "read"
    table = next(one.value for one in page.dataframe if "verdict" in one.value)
    astray = [one for one in plans(store, EpisodeFilter()) if one.strayed]
    assert table["answer"].sum() + table["verdict"].sum() == len(astray)
    behind = next(one.value for one in page.dataframe if "question" in one.value)
    first = astray[0].behind
    assert behind["open"][0] == f"/replay?ep={first.episode_id}&t={first.index + 1}"
    store.close()


def test_a_link_of_a_verdict_shows_its_turns(samples: Store) -> None:
    books = ledgers(turn_groups(samples, EpisodeFilter()))
    model, n = next((one.model, k) for one in books if (k := one.counts.get(Judgement.REVISED_WRONG, 0)))
    page = opened("verifier", into=f"revised_wrong:{model}")
    table = next(one.value for one in page.dataframe if "question" in one.value)
    assert len(table) == min(n, 50)
    press(page, "into_close")
    assert "into" not in page.query_params
    assert "names nothing that this page knows" in opened("verifier", into="x").info[0].value
    assert into_verdict("accepted_wrong:a:b\nc") == (Judgement.ACCEPTED_WRONG, "a:b", "c")


def test_other_conditions_of_a_link_are_shown_and_let_go() -> None:
    page = opened("verifier", correct="wrong", family="gone")
    assert "No finished episode here" in shown(page)
    press(page, "scope_drop_correct")
    assert "correct" not in page.query_params


def test_the_command_line_prints_the_ledger_and_the_costs(
    samples: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["verifier", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    books = {one.model: one for one in ledgers(turn_groups(samples, EpisodeFilter()))}
    for one in told["verifiers"]:
        assert one["false_accept"]["k"] == books[one["model"]].false_accept.k
    assert {one["policy"] for one in told["policies"]} >= {"random", checkpoint(30).id}
    assert command(["verifier"]) == 0
    assert "wrong answers accepted" in capsys.readouterr().out
