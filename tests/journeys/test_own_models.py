"""From a pool file to a served coordinator with one's own models: check, run, resume, evolve, inspect, compare, serve.

Seven models of a server that fails as servers do, and the first steps with a good one; what every step says is put
beside the server's own truth. `trinity bench pool` is the longer form, with figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from openai import OpenAI

from core.episode import Episode
from tests.builders.encoder import tiny_qwen3
from tests.builders.own_models import KEY, MODELS, Call, seen
from tests.journeys.engineer import ALL, ASKED_TWICE, Engineer, Said, calls_of, engineer, truth
from tests.ui.pages import opened, shown

OWN = ("--pool", "pool.toml", "--max-cost", 5)
#: Small enough for the suite.
SMALL = ("--generations", 1, "--population", 4, "--replicates", 2, "--validation", 4, "--no-controls")
#: So many times a run is resumed whose episodes went missing, at most.
RESUMED = 6


@pytest.mark.process
def test_from_a_pool_file_to_a_served_coordinator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with engineer(tmp_path, each=6, per_second=40, faulty=True) as me:
        every_role_is_checked(me)
        first = looked_at_first(me)
        run = killed_and_resumed(me)
        # What a decision is made of is not looked at here: one that reads little takes next to no time.
        encoder = ("--encoder", tiny_qwen3(tmp_path / "encoder", max_position_embeddings=128))
        checkpoint = evolved(me, encoder)
        played = compared(me, run, checkpoint)
        inspected(me, played, monkeypatch)
        served(me, *encoder)
        assert len({call.fault for call in me.team.calls}) > 4
        assert truth(me.team, [*first, *played]).unreadable_share < 0.01
    nothing_holds_the_key(me)


@pytest.mark.process
def test_of_a_good_server_nothing_is_found_wanting(tmp_path: Path) -> None:
    with engineer(tmp_path, each=6, per_second=100) as me:
        every_role_is_checked(me)
        assert truth(me.team, looked_at_first(me)).unreadable_share < 0.01
        tiers = tmp_path / "tiers.toml"
        tiers.write_text('[[tier]]\nname = "trinity"\npolicy = "random"\n')
        served(me, "--config", tiers)
        assert {call.fault for call in me.team.calls} == {""}
    nothing_holds_the_key(me)


def every_role_is_checked(me: Engineer) -> None:
    """What cannot be read is said of the models that did not keep to the form, and of no other."""
    said = me.trinity("pool", "check", "--roles", "--pool", "pool.toml", "--json")
    assert len(said.json) == len(MODELS) * 3 * 2
    found = {(one["model"], one["role"]) for one in said.json if not one["ok"]}
    assert said.code == bool(found)
    lacking = {(call.model, call.role.lower()) for call in said.calls if not call.readable}
    hanging = {(call.model, call.role.lower()) for call in said.calls if call.fault == "hang"}
    assert lacking <= found <= lacking | hanging


def looked_at_first(me: Engineer) -> list[Episode]:
    """A few tasks, which tell what is to be expected of more."""
    said = whole(me, "run", *OWN, "--tasks", "tasks.jsonl", "--n", 6, "--policy", "random", "--json")
    assert "Nothing is recorded of these models yet" in said[0].err
    episodes = me.played(said[0].run)
    assert_true(me, said, episodes)
    return episodes


def killed_and_resumed(me: Engineer) -> str:
    """A run that dies in the middle: no stored reply is asked for again, and all of it is as the server knows it."""
    policies = ("--policy", "single:bootes", "--policy", "random")
    killed = me.trinity("run", *OWN, "--tasks", "tasks.jsonl", *policies, "--json", killed_after=40)
    stored = calls_of(me.played(killed.run))
    assert stored
    resumed = whole(me, "run", "--resume", killed.run, "--json")
    episodes = me.played(killed.run)
    needed = calls_of(episodes)
    again = {call.asked[:2] for said in resumed for call in said.calls}
    assert not [asked for asked in again & stored.keys() if needed[asked] == stored[asked]]
    assert_true(me, [killed, *resumed], episodes)
    assert sum(said.billed_usd for said in (killed, *resumed)) <= me.spent_usd(killed.run) + 1e-9
    assert "is counted for calls that came to nothing" in resumed[-1].err
    assert_expected(killed, sum(said.billed_usd for said in (killed, *resumed)))
    return killed.run


def evolved(me: Engineer, encoder: Sequence[object]) -> str:
    """An evolution that dies in the middle: no reply is paid for twice, and a call whose reply was lost is counted as
    the most that it could cost. The checkpoint that it comes to."""
    command = ("evolve", *OWN, "--tasks", "tasks.jsonl", *encoder, *SMALL, "--name", "own", "--json")
    killed = me.trinity(*command, killed_after=20)
    ended = whole(me, "evolve", "--name", "own", "--resume", "--json")
    assert not (me.folder / ASKED_TWICE).exists()
    billed = sum(said.billed_usd for said in (killed, *ended))
    assert billed <= me.spent_usd(killed.run) + 1e-9
    assert_expected(killed, billed)
    result = ended[-1].json
    assert result["generations"] == 1
    return str(result["checkpoint"])


def compared(me: Engineer, run: str, checkpoint: str) -> list[Episode]:
    """The checkpoint on the tasks of the run, beside chance: as accurate as the server knows."""
    said = whole(me, "run", *OWN, "--tasks", "tasks.jsonl", "--policy", checkpoint, "--json")
    episodes = me.played(said[0].run)
    assert_true(me, said, episodes)
    both = (f"{run}/random", f"{said[0].run}/{checkpoint}")
    a, b = me.trinity("compare", *both, "--json").json["ahead"]["policies"]
    known = truth(me.team, [*me.played(run), *episodes]).accuracy
    assert b["n"] == len(episodes)
    assert a["accuracy"]["share"] == pytest.approx(known["random"])
    assert b["accuracy"]["share"] == pytest.approx(known[checkpoint])
    return episodes


def inspected(me: Engineer, played: Sequence[Episode], monkeypatch: pytest.MonkeyPatch) -> None:
    """The stored episodes, in a list and on a page."""
    where = f'run == "{played[0].run_id}" and correct == False'
    wrong = me.trinity("episodes", "--where", where, "--json").json["episodes"]
    assert {one["id"] for one in wrong} == {one.id for one in played if not one.correct}
    with me.store() as store:
        monkeypatch.setenv("TRINITY_STORE", store.url)
        page = shown(opened("replay", ep=played[0].id))
    assert f"of {len(played[0].turns)}" in page
    assert seen(played[0].turns[0].reply.text)[:40] in page


def served(me: Engineer, *options: object) -> None:
    """The pool as one model: a reply to a question, with what it took."""
    task = next(one for one in me.team.tasks if one.family == "shop")
    with (
        me.serving("serve", *OWN, *options) as address,
        OpenAI(base_url=address, api_key="none", max_retries=RESUMED) as client,
    ):
        answer = client.chat.completions.create(
            model="trinity", messages=[{"role": "user", "content": task.question}]
        )
    workers = [call for call in me.team.calls if call.role == "Worker" and call.question == task.question]
    content = answer.choices[0].message.content or ""
    assert any(content in seen(call.text) for call in workers)
    assert answer.usage is not None
    with me.store() as store:
        episode = store.episodes.get((answer.model_extra or {})["trinity"]["episode"])
    assert episode.task.question == task.question
    assert calls_of([episode]).total() > 0


def nothing_holds_the_key(me: Engineer) -> None:
    """No file, and nothing that a command said."""
    assert not [name for name, content in me.written() if KEY.encode() in content]
    assert not [said for said in me.heard if KEY in said]


def whole(me: Engineer, *command: object) -> list[Said]:
    """A command, and the same resumed until no episode is missing."""
    said = [me.trinity(*command)]
    while said[-1].code == 1 and len(said) <= RESUMED:
        assert "Go on with: trinity" in said[-1].err, said[-1].err
        name = ("--name", said[0].run) if command[0] == "evolve" else (said[0].run,)
        said.append(me.trinity(command[0], "--resume", *name, "--json"))
    assert said[-1].code == 0, said[-1].err
    return said


def assert_true(me: Engineer, said: Sequence[Said], episodes: Sequence[Episode]) -> None:
    """Accuracies and costs are the server's own, and every right answer counts, in whatever form it came."""
    known = truth(me.team, episodes)
    assert known.unreadable_share < 0.01, known.unreadable
    assert known.taken == 0
    told = {row["policy"]: row["accuracy"] for row in said[-1].json}
    assert told == pytest.approx(known.accuracy, abs=0.01)
    prices: dict[tuple[str, str], Call] = {
        (call.model, call.text): call for call in me.team.calls if call.answered
    }
    paid = {}
    for turn in (turn for episode in episodes for turn in episode.turns if turn.messages):
        call, usage = prices[turn.decision.model, turn.reply.text], turn.reply.usage
        assert (usage.tokens_in, usage.tokens_out) == (call.tokens_in, call.tokens_out)
        assert usage.cost_usd is not None
        # Answers that could not be read before it are paid for too.
        assert usage.cost_usd - usage.unread_usd == pytest.approx(call.cost_usd)
        paid[call.asked] = call.cost_usd
    billed = sum(one.billed_usd for one in said)
    lost = sum(lost_at_most(one) for one in said if one.code < 0)
    assert -1e-9 < billed - sum(paid.values()) < lost + 1e-9


def lost_at_most(killed: Said) -> float:
    """What the calls under way at a death can have cost."""
    return sum(sorted(call.cost_usd for call in killed.calls)[-ALL:])


def assert_expected(said: Said, spent_usd: float) -> None:
    """What was to be expected is within a factor of two of what it came to, which its bound is not below."""
    assert said.expected_usd / 2 <= spent_usd <= 2 * said.expected_usd
    assert spent_usd <= said.bound_usd
