"""Forks in use: planned, played by a worker, killed and resumed, read on their page, begun by `trinity fork`."""

from __future__ import annotations

from dataclasses import replace

import plotly.graph_objects as go
import pytest

from core.analysis.metrics import PairedDifference
from core.changes import Change
from core.episode import Status, Verdict
from core.errors import ConfigError, StoreError
from storage.filters.episode_filter import EpisodeFilter
from storage.reads import forks
from storage.rows.summaries import RunStatus
from storage.store import Store
from tests.core.pool.faulty_server import fail
from tests.ui.pages import opened, press, shown, until, waiting
from tests.ui.runs.forking import planned, played, refused
from tests.ui.sums import Sums, answer
from ui.runs.forks.planning import find_turns
from ui.runs.forks.results import read_results
from ui.runs.plans import ForkPlan, plan_of
from ui.runs.play import GroupControl
from ui.runs.queue import Ticket, enqueue, start_worker
from ui.runs.spending import price
from ui.runs.worker import play_claimed
from ui.web.forks.panels import Path, grow, tree_figure


@pytest.fixture
def parent(world: Sums, store: Store) -> str:
    """An episode whose wrong answer its Verifier accepted: guesser plans, works, checks."""
    world.run("--policy", "single:guesser", "--n", "4", "--validate", "0")
    where = EpisodeFilter(flag="false_accept")
    return store.episodes.page(where).items[0].id


@pytest.mark.usefixtures("forked_workers")
def test_a_worker_plays_the_baseline_then_the_forks_and_the_parent_stays(
    world: Sums, store: Store, parent: str
) -> None:
    before = forks.episode_digests(store, [parent])
    whole = store.episodes.get(parent)
    plan = planned(world, store, (parent, 2))
    run = enqueue(store, plan, Ticket())[0]
    assert plan_of(store.runs.get(run)) == plan
    world.server.requests.clear()
    start_worker(store, run)  # a process of its own
    until(lambda: store.runs.get(run).status is RunStatus.FINISHED)
    results = read_results(store, run, plan)
    assert forks.episode_digests(store, [parent]) == before
    assert (store.episodes.get(parent), results.parents_unchanged) == (whole, True)
    children = forks.of_runs(store, [run])[run]
    assert [one.fork.part for one in children] == ["baseline"] * 3 + ["fork"] * 3
    assert [one.seed for one in children[:3]] == [one.seed for one in children[3:]]
    ended = max(one.summary.finished or 0 for one in children[:3])
    assert min(one.summary.started for one in children[3:]) >= ended
    assert (results.baseline.right, results.baseline.n, results.fork.n) == (0, 3, 3)
    for one in children:
        child = store.episodes.get(one.id)
        assert child.fork == one.fork
        assert (one.fork.parent, one.fork.turn) == (parent, 2)
        assert [replace(turn, episode_id=parent) for turn in child.turns[:2]] == list(whole.turns[:2])
    check = store.episodes.get(children[3].id).turns[2]
    decided = check.decision.model, check.decision.origin, check.verdict
    assert decided == ("adder", "override", Verdict.REVISE)
    asked = len(world.server.requests)
    assert asked == sum(one.summary.turns - 2 for one in children)  # what is carried is never asked for
    assert results.spent_usd == store.runs.spent_usd(run)


def test_a_replay_lists_its_forks_by_change_and_course(world: Sums, store: Store, parent: str) -> None:
    played(store, planned(world, store, (parent, 2), change=Change("verdict", "REVISE")))
    run = store.runs.list(limit=1)[0].id
    children = forks.of_runs(store, [run])[run]
    played(store, planned(world, store, (children[-1].id, 2), baseline=1, n=1))
    page = opened("replay", ep=parent)
    text = shown(page)
    assert "**turn 3** unchanged, played 3 times" in text
    assert "**turn 3** with the verdict REVISE, played 3 times" in text
    assert "**turn 3** unchanged, played once" in text  # forks of a fork, below their own course
    courses = {(one.summary.correct, one.summary.strip) for one in children}
    depths = [len(link.label) - len(link.label.lstrip("\u2003")) for link in page.page_link]
    assert depths.count(4) == len(courses)


def test_what_the_store_holds_is_not_played_again(world: Sums, store: Store, parent: str) -> None:
    played(store, planned(world, store, (parent, 2)))
    calls = len(world.server.requests)
    again = planned(world, store, (parent, 2))
    assert again.to_play == 0
    assert played(store, again).fork.n == 3
    assert len(world.server.requests) == calls
    assert planned(world, store, (parent, 2), anew=True).to_play == 6
    assert planned(world, store, (parent, 2), baseline=5).to_play == 2
    judged, drawn = Change("verdict", "REVISE"), Change("policy", "random")
    assert planned(world, store, (parent, 2), change=judged).to_play == 3, "the baseline stands"
    assert planned(world, store, (parent, 2), change=drawn).to_play == 6, "this one draws anew"
    assert planned(world, store, (parent, 1)).to_play == 6
    pool = world.folder / "pool.toml"
    pool.write_text(pool.read_text().replace('dialect = "terse"', 'dialect = "terse"\ntemperature = 0.1'))
    assert planned(world, store, (parent, 2)).to_play == 6  # other models, though of the same names


def test_a_certain_change_is_played_once_and_set_against_the_spread(
    world: Sums, store: Store, parent: str
) -> None:
    stop = played(store, planned(world, store, (parent, 2), change=Change("stop")))
    assert (stop.fork.n, stop.fork.certain, stop.difference.n) == (1, True, 3)
    assert stop.verdict.endswith("3 pairs detect no difference reliably: play more.")
    many = replace(stop, difference=PairedDifference(0.0, -0.2, 0.3, 40))
    assert "An effect beyond 30 points is unlikely (40 pairs)." in many.verdict
    whole = store.episodes.get(parent)
    right = played(
        store,
        planned(world, store, (parent, 1), change=Change("reply", f"answer {whole.task.answer}")),
    )
    assert right.fork.right == right.fork.n == 3
    assert right.recorded == (False,)
    assert right.verdict.startswith(
        "The recorded play was wrong. Replayed unchanged, 0 of 3 were right: too few plays to say if the miss was bad "
        "luck (95 % interval 0 to 56 %). Changed, 3 of 3 were right. The change helps: +100 points"
    )
    fork = next(one for one in forks.of_parents(store, [parent]) if one.correct)
    deeper = played(store, planned(world, store, (fork.id, 2)))
    assert deeper.fork.n == 3  # a fork of a fork
    assert deeper.parents_unchanged


def test_pause_cancel_a_ceiling_and_a_lost_server(
    world: Sums, store: Store, parent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = enqueue(store, planned(world, store, (parent, 2)), Ticket())[0]
    store.runs.cancel(run)
    assert store.runs.get(run).status is RunStatus.CANCELLED
    run = enqueue(store, planned(world, store, (parent, 2)), Ticket())[0]
    store.runs.pause(run)
    waits: list[float] = []
    noted: list[bool] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        store.runs.cancel(run)

    bridle = GroupControl(store, run, wait, lambda: noted.append(not waits))
    assert store.runs.claim(run, "elsewhere:1")
    assert bridle.stop() == "cancelled"
    assert len(waits) == 1
    assert noted == [True], "what replies cost is noted before it waits"
    world.server.answer = lambda _request: fail(401, "no such key")
    plan = planned(world, store, (parent, 2))
    run = enqueue(store, plan, Ticket())[0]
    assert play_claimed(store, run) == 0
    assert "6 episodes are missing" in (store.runs.get(run).error or "")
    world.server.answer = answer
    assert play_claimed(store, run) == 0
    assert read_results(store, run, plan).open == 0
    world.price(1e6)
    monkeypatch.setenv("SUMS_KEY", "k")
    world.server.requests.clear()
    paid = replace(planned(world, store, (parent, 2), anew=True), max_cost_usd=0.000001)
    most = price(store, paid).most
    assert (most.calls, most.cost_usd is not None) == (6 * 3, True)
    run = enqueue(store, paid, Ticket())[0]
    assert play_claimed(store, run) == 0
    assert (store.runs.get(run).status, world.server.requests) == (RunStatus.INTERRUPTED, [])
    assert "ceiling" in (store.runs.get(run).error or "")


def test_many_episodes_at_once(world: Sums, store: Store, parent: str) -> None:
    picks = find_turns(store, "flag=false_accept", 10)
    assert len(picks) == store.episodes.page(EpisodeFilter(flag="false_accept")).total.n > 1
    assert {turn for _, turn in picks} == {2}
    results = played(store, planned(world, store, *picks, batch="flag=false_accept"))
    assert len(results.grown) == len(picks)
    assert results.difference.n == 3 * len(picks)
    assert find_turns(store, "flag=false_accept", 10) == picks  # forks are never forked unasked
    with pytest.raises(ConfigError, match="flag=false_accept or"):
        find_turns(store, "policy=random", 10)
    nowhere = Change("model", "guesser")
    with pytest.raises(ConfigError, match="changes nothing"):
        planned(world, store, *picks, change=nowhere, batch="flag=false_accept")


def test_what_cannot_be_forked_is_one_sentence(world: Sums, store: Store, parent: str) -> None:
    with pytest.raises(StoreError, match="no episode e-gone"):
        planned(world, store, ("e-gone", 0))
    with pytest.raises(ConfigError, match="holds no policy .cgone"):
        planned(world, store, (parent, 2), change=Change("policy", "cgone"))
    with pytest.raises(ConfigError, match="already writes at 0.7"):
        planned(world, store, (parent, 2), change=Change("temperature", "0.7"))
    plan = planned(world, store, (parent, 2))
    run = enqueue(store, plan, Ticket())[0]
    store.episodes.delete([parent])
    assert play_claimed(store, run) == 1
    assert "is not in the store any more" in (store.runs.get(run).error or "")
    assert "was deleted" in shown(opened("forks", run=run))


# The page


@pytest.mark.usefixtures("no_workers")
def test_the_page_from_the_list_to_a_result(world: Sums, store: Store, parent: str) -> None:
    assert "None yet" in opened("forks").markdown[0].value
    page = opened("forks", ep=parent, t="3")
    assert "Turns 1 to 2 stay as they are" in shown(page)
    assert "**free**" in shown(page)
    page.button_group(key="fork_kind").set_value("verdict").run()
    assert page.query_params["change"] == "verdict"
    assert "says **REVISE** instead" in shown(page)
    assert "says **REVISE** instead" in shown(
        opened("forks", ep=parent, t="3", change="verdict")
    )  # the same link
    assert "8 pairs detect a difference of 76 points (80 % power)" in shown(page)
    press(page, "fork_see_50")
    assert page.number_input(key="fork_n").value == page.number_input(key="fork_baseline").value == 18
    page.number_input(key="fork_n").set_value(2).run()
    page.number_input(key="fork_baseline").set_value(2).run()
    press(page, "fork_start")
    (run,) = waiting(store)
    assert page.query_params["run"] == run
    assert "waiting" in shown(page)
    assert play_claimed(store, run) == 0
    page = opened("forks", run=run)
    text = shown(page)
    assert "What if turn 3 had been with the verdict REVISE" in text.replace("\\", "")
    assert "The difference may be chance" in text or "The change" in text
    assert "The recorded episode is unchanged." in text
    assert "Every recorded row has the same hash as before" in text
    assert list(page.dataframe[-1].value["side"]) == ["baseline", "fork"] * 2
    before = read_results(store, run, plan_of(store.runs.get(run), ForkPlan))
    press(page, "fork_more")
    more = page.query_params["run"]
    assert waiting(store) == [more]
    assert store.runs.get(more).status is RunStatus.QUEUED
    plan = plan_of(store.runs.get(more), ForkPlan)
    assert (plan.branches[0].n, plan.branches[0].baseline, plan.to_play) == (10, 10, 16)
    assert {*plan.branches[0].reused.values()} == {*before.baseline.ids, *before.fork.ids}
    store.runs.cancel(more)
    listed = shown(opened("forks"))
    assert "turn 3 with the verdict REVISE" in listed
    assert "of 2 · baseline" in listed
    assert "**This view cannot be shown**" in opened("forks", run="rgone").markdown[0].value
    first = shown(opened("forks", ep=parent, t="1", change="verdict"))
    assert "makes no sense at this turn" in first
    batch = opened("forks", batch="flag=false_accept")
    assert "episodes found by flag" in shown(batch).replace("\\", "")
    assert "cannot be shown" in shown(opened("forks", batch="policy=random"))


def test_a_paid_fork_asks_for_a_ceiling_first(
    world: Sums, store: Store, parent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.price(3.0)
    monkeypatch.setenv("SUMS_KEY", "k")
    page = opened("forks", ep=parent, t="3")
    assert "cost money" in page.warning[0].value
    assert page.button(key="fork_start").disabled
    page.number_input(key="fork_max_cost").set_value(0.5).run()
    assert not page.button(key="fork_start").disabled


def test_the_tree_merges_what_is_the_same_and_keeps_forks_apart(
    world: Sums, store: Store, parent: str
) -> None:
    results = played(store, planned(world, store, (parent, 2)))
    (one,) = results.grown
    children = [*one.baseline.values(), *one.forks.values()]
    outlines = store.episodes.outlines([parent, *(child.id for child in children)])
    paths = [Path("parent", parent, tuple(outlines[parent]), False)]
    paths += [Path(child.fork.part, child.id, tuple(outlines[child.id]), child.correct) for child in children]
    root = grow(paths, 2)
    (first,) = root.children.values()
    (second,) = first.children.values()
    assert (len(first.paths), len(second.paths), len(second.children)) == (7, 7, 2)
    same, changed = second.children.values()
    assert sorted(path.part for path in same.ends) == ["baseline"] * 3 + ["parent"]
    assert {path.part for path in changed.paths} == {"fork"}
    figure, left_out = tree_figure(paths, 2, ("adder", "guesser"))
    assert left_out == 0
    assert go.Figure(figure.to_dict())  # validates, which drawing does not
    assert {point[0] for point in figure.data[-1].customdata} <= set(outlines)


# The command line


def test_a_pool_named_by_a_relative_path_is_kept_by_its_whole_path(
    world: Sums, store: Store, parent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(world.folder)
    options = ("--turn", 3, "--model", "adder", "--n", 1, "--baseline", 1, "--pool", "pool.toml", "--json")
    done = world.done("fork", parent, *options)
    assert store.runs.get(done.json["run"]).config["pool"] == str((world.folder / "pool.toml").resolve())


def test_trinity_fork(world: Sums, store: Store, parent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done = world.done("fork", parent, "--turn", 3, "--model", "adder", "--n", 2, "--baseline", 2, "--json")
    told = done.json
    assert (told["baseline"]["n"], told["fork"]["n"], told["parents_unchanged"]) == (2, 2, True)
    assert told["parents"][0]["turn"] == 3
    assert "points" in told["verdict"]
    (world.folder / "reply.txt").write_text("answer 7\n")
    reply = ("--reply", world.folder / "reply.txt", "--n", 1, "--baseline", 1)
    edited = world.trinity("fork", parent, "--turn", 2, *reply)
    assert "Baseline, unchanged" in edited.out
    for arguments, says in (
        (["--turn", 3], "exactly one thing"),  # of a policy without odds, which has no runner-up
        (["--turn", 3, "--stop", "--see", 40, "--n", 2], "leave out --n"),
        (["--turn", 3, "--stop", "--see", 20], "ask for 26 points or more"),
        (["--turn", 3, "--stop", "--role", "worker"], "exactly one thing"),
        (["--stop"], "Name an episode and a turn"),
        (["--turn", 1, "--stop"], "is the first"),
        (["--turn", 1, "--reply", "/no/such/file"], "cannot be read"),
        (["--turn", 9, "--verdict", "ACCEPT"], "between 1 and 3"),
        (["--turn", 3, "--verdict", "MAYBE"], "choose ACCEPT or REVISE"),
    ):
        refused(world, "fork", parent, *arguments, says=says)
    wrong_judged = 'correct == False and any(turn.role == "V")'
    many = ("--where", wrong_judged, "--at", "verifier", "--n", 1, "--baseline", 1)
    batch = world.done("fork", *many, "--verdict", "REVISE", "--most", 3, "--json")
    wrong = store.episodes.page(EpisodeFilter(q=wrong_judged)).items
    assert {one["episode"] for one in batch.json["parents"]} <= {one.id for one in wrong}
    assert 1 <= len(batch.json["parents"]) <= 3
    assert batch.json["fork"]["n"] == len(batch.json["parents"])
    for arguments, says in (
        ([parent, *many, "--stop"], "or many by --where"),
        (["--where", "correct ==", "--at", "last", "--stop"], "Column 11 of the filter"),
        (["--where", "correct", "--stop"], "or at= false_accept"),
        (["--where", "turns > 90", "--at", "last", "--stop"], "there is nothing to fork"),
    ):
        refused(world, "fork", *arguments, says=says)
    world.server.answer = lambda _request: fail(401, "no such key")
    lost = world.trinity("fork", parent, "--turn", 3, "--role", "thinker", "--n", 1, "--baseline", 3)
    assert lost.code == 1
    assert "--resume" in lost.err
    run = lost.err.split("--resume ")[1].split()[0]
    world.server.answer = answer
    world.done("fork", "--resume", run)
    assert all(one.status is Status.FINISHED for one in store.episodes.of_run(run))
    world.price(3.0)
    monkeypatch.setenv("SUMS_KEY", "k")
    unasked = world.trinity("fork", parent, "--turn", 3, "--role", "worker")
    assert "set a ceiling with --max-cost" in unasked.err
