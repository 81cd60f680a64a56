"""Routing: the counts on the page, two policies set against each other, the turns behind a number, luck and regret."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from core.episode import Role
from storage.analysis.regret import replicates
from storage.analysis.routing import ModelInRole, traffic_of
from storage.filters.episode_filter import EpisodeFilter
from storage.rows.engine import writing
from storage.rows.schema import episode
from storage.store import Store
from tests.builders.sample_store import MODELS, checkpoint, sample_store
from tests.ui.pages import assert_literal, opened, plainly, press, shown, table_with
from ui.answers import plain
from ui.answers.asked import asked_of
from ui.answers.blocks import Flow, Tree
from ui.answers.blocks import Path as Played
from ui.answers.routing import into_words, order, who
from ui.presentation.words import move_key, parse_move
from ui.web.analysis.flows import flow, tree
from ui.web.kit.figures import MatrixCell, matrix
from ui.web.pickers.checkpoints import best_and_baseline

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("samples")]


def test_the_page_counts_what_the_store_holds(samples: Store) -> None:
    page = opened("routing", mix="all")
    found = traffic_of(samples, EpisodeFilter())[""]
    assert f"{found.episodes:,} finished episodes, {found.total:,} turns" in plainly(page)
    table = page.dataframe[0].value
    most = max(found.turns.values())
    assert list(table["turns"])[0] == most
    assert table["open"][0] in {
        f"/episodes?forks=without&status=finished&model={move.model}&role={move.role.value}"
        for move, n in found.turns.items()
        if n == most
    }
    assert table["share"].sum() == pytest.approx(100)
    assert_literal(page)


@pytest.mark.parametrize("view", ["routing", "verifier"])
def test_the_page_opens_on_the_best_checkpoint_beside_its_baseline(samples: Store, view: str) -> None:
    """All policies together are a choice, are named a mixture, and the address keeps the choice."""
    ids = [checkpoint(generation).id for generation in (0, 8, 30)]
    right = {
        one: samples.episodes.page(EpisodeFilter(policy=one, correct="right"), limit=100).items for one in ids
    }
    best = max(ids[1:], key=lambda one: len(right[one]))
    page = opened(view)
    assert (page.selectbox(key="scope_a").value, page.selectbox(key="scope_b").value) == (ids[0], best)
    assert not {"a", "b", "policy", "mix"} & set(page.query_params)
    counts = {one.value: one.n for one in samples.episodes.facets(EpisodeFilter(status="finished")).policy}
    total, n = sum(counts.values()), counts[ids[0]] + counts[best]
    text = shown(page)
    assert f"Showing A and B: {n} of {total} finished episodes." in text
    assert "mixture" not in text.lower()
    press(page, "scope_mix")
    text = shown(page)
    assert f"**A mixture**: {total} finished episodes of 4 policies, counted together." in text
    assert page.selectbox(key="scope_policy").value == ""
    assert page.query_params["mix"] in ("all", ["all"])
    press(page, "scope_best")
    assert page.selectbox(key="scope_b").value == best
    page.selectbox(key="scope_b").select("random").run()
    assert (page.query_params["a"], page.query_params["b"]) == (ids[0], "random")
    page.selectbox(key="scope_a").select("").run()
    assert "A mixture" in shown(page)
    page.selectbox(key="scope_policy").select("random").run()
    assert "mix" not in page.query_params
    n = counts["random"]
    assert f"Showing one policy: {n} of {total} finished episodes." in shown(page)


def test_where_one_policy_played_there_is_no_mixture_to_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = sample_store(tmp_path / "trinity.db", 4)
    monkeypatch.setenv("TRINITY_STORE", store.url)
    with writing(store.engine) as connection:
        connection.execute(episode.delete().where(episode.c.policy != checkpoint(30).id))
    for query in ({}, {"mix": "all"}):
        text = shown(opened("routing", **query))
        assert "mixture" not in text.lower()
        assert "6 finished episodes" in text
    store.close()


@pytest.mark.parametrize(
    ("policies", "pair"),
    [
        (["random"], (None, "random")),
        (["single:a", "random"], ("random", "single:a")),
        (["random", "single:a", "conductor:fixed:chain"], ("random", "conductor:fixed:chain")),
        (["single:a", "single:b"], (None, "single:a")),
    ],
)
def test_the_baseline_of_what_is_no_checkpoint_is_chance(
    samples: Store, policies: list[str], pair: tuple[str | None, str]
) -> None:
    assert best_and_baseline(samples, policies) == pair
    assert best_and_baseline(samples, [*policies, checkpoint(8).id])[1] == checkpoint(8).id


def test_what_pays_claims_no_more_than_was_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = sample_store(tmp_path / "trinity.db", 12)
    monkeypatch.setenv("TRINITY_STORE", store.url)
    answer = plainly(opened("routing", part="pays"))
    assert (
        "A: No model alone has played on these tasks with the same turn budget, rules and pool: atlas"
        in answer
    )
    with writing(store.engine) as connection:
        connection.execute(episode.update().where(episode.c.policy == "random").values(policy="single:atlas"))
    page = opened("routing", part="pays", policy=checkpoint(30).id)
    text = plainly(page)
    assert "atlas, the only model that has been played alone on these tasks" in text
    assert "upper bound" not in text
    assert page.code[-1].value == (
        "trinity run"
        + "".join(f" --policy single:{model}" for model in MODELS if model != "atlas")
        + " --tasks pocket/all --split test --n 12 --seed 3 --turns 5 --pool pocket"
    )
    with writing(store.engine) as connection:
        connection.execute(
            episode.update().where(episode.c.policy == checkpoint(0).id).values(policy="single:jack")
        )
    text = plainly(opened("routing", part="pays", policy=checkpoint(30).id))
    assert "the best of the 2 models that have been played alone" in text
    assert "The upper bound counts a task as solved if any of these tries was right" in text
    store.close()


def test_two_policies_are_chosen_and_let_go_in_the_address() -> None:
    page = opened("routing", policy="random")
    page.selectbox(key="scope_b").select(checkpoint(8).id).run()
    assert (page.query_params["a"], page.query_params["b"]) == ("random", checkpoint(8).id)
    assert "policy" not in page.query_params
    page.selectbox(key="scope_b").select(None).run()
    assert page.query_params["policy"] == "random"
    assert "b" not in page.query_params


def test_a_link_of_a_move_and_of_a_step_shows_their_turns(samples: Store) -> None:
    found = traffic_of(samples, EpisodeFilter(policy="random"))[""]
    (here, there), n = next(one for one in found.steps().most_common() if None not in one[0])
    assert here is not None
    assert there is not None
    for said in (
        move_key(here),
        f"{move_key(here)}>{move_key(there)}",
        f"{move_key(there)}@0",
        f"start>{move_key(here)}",
    ):
        page = opened("routing", policy="random", into=said)
        assert "Turns behind it" in shown(page)
    rows = opened("routing", policy="random", part="order", into=f"{move_key(here)}>{move_key(there)}")
    table = table_with(rows, "question")
    assert len(table) == min(n, 50)
    assert table["open"][0].startswith("/replay?ep=")
    stale = opened("routing", into="nobody>nothing")
    assert "names nothing that this page knows" in stale.info[0].value


def test_what_an_address_looks_into_survives_names_with_signs() -> None:
    for model in ("a:b", "x@y/z", "m > n"):
        move = ModelInRole(model, Role.WORKER)
        assert parse_move(move_key(move)) == move
    assert into_words("worker:atlas@2") == (
        "Worker on atlas at turn 3",
        {"move": ModelInRole("atlas", Role.WORKER), "at": 2},
    )
    assert into_words("verifier:bo>end") is not None
    assert into_words("") is None


def test_a_filter_that_nothing_matches_says_so_and_leads_on() -> None:
    page = opened("routing", policy="gone", family="nowhere")
    assert "No finished episode here" in page.markdown[0].value
    page.selectbox(key="scope_policy").select("").run()
    assert not page.exception


def test_figures_are_valid_and_escape_foreign_names(samples: Store) -> None:
    hostile = "<b>x</b>"

    def renamed(move: ModelInRole) -> ModelInRole:
        return ModelInRole(hostile, move.role)

    for turns in ("together", "unrolled"):
        [drawn] = order(asked_of(samples, EpisodeFilter(), choices={"turns": turns})).blocks
        assert isinstance(drawn, Flow)
        nodes = [replace(one, move=renamed(one.move)) for one in drawn.nodes]
        arrows = [replace(one, name=f"{hostile} → {hostile}", model=hostile) for one in drawn.arrows]
        names = [hostile] * len(drawn.rows)
        assert arrows
        assert hostile not in flow(replace(drawn, nodes=nodes, arrows=arrows, rows=names)).to_json()
    found = replicates(samples, EpisodeFilter(), "random", "user-0001")
    made = tree(
        Tree([Played([renamed(move) for move in one.moves], one.correct, [hostile]) for one in found])
    )
    assert hostile not in made.to_json()
    drawn_tree = json.loads(made.to_json())["data"][0]
    assert drawn_tree["values"][0] == sum(
        v for v, p in zip(drawn_tree["values"], drawn_tree["parents"], strict=True) if p == "/"
    )
    assert matrix([[MatrixCell(None, "", "nothing")]], ["r"], ["c"], "#000", axes=("row", "column")).data


def test_the_moves_of_a_policy_are_counted_once_each(samples: Store) -> None:
    found = traffic_of(samples, EpisodeFilter(policy="random"))[""]
    moves = plain.answer(who(asked_of(samples, EpisodeFilter(policy="random"))))["moves"]
    assert {one["model"]: one["turns"] for one in moves if one["role"] == "worker"} == {
        move.model: n for move, n in found.turns.items() if move.role is Role.WORKER
    }
    assert sum(one["turns"] for one in moves) == found.total
    assert sum(one["opens"] for one in moves) == found.episodes
