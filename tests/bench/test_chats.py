"""Chats: what is asked, and what a program can tell of a reply."""

from __future__ import annotations

from collections import Counter

from tests.bench.chats import Chat, Reply, _figures, chats, checked


def reply(text: str, calls: int = 0) -> Reply:
    return Reply(text, 1.0, calls)


def test_sixty_chats_are_asked() -> None:
    kinds = Counter(one.kind for one in chats())
    assert kinds.total() == 60
    assert kinds["tool"] + kinds["tool result"] == kinds["json object"] + kinds["json schema"] == 5
    [last] = {one.told_directly[-1].content.count("JSON schema") for one in chats() if one.schema}
    assert last == 1  # whoever is asked directly is told of the form, too


def failed(chat: Chat, text: str, direct: str = "A reply.", calls: int = 0) -> list[str]:
    found = checked(chat, reply(text, calls), reply(direct))
    return [name for name, passed in found.items() if not passed]


def test_a_reply_is_checked_by_what_its_chat_asks_for() -> None:
    by_kind = {one.kind: one for one in chats()}
    assert failed(by_kind["poem"], "Rain falls.") == []
    assert failed(by_kind["poem"], "") == ["not empty"]
    assert failed(by_kind["poem"], "VERDICT-ab: ACCEPT") == ["no notes"]
    assert failed(by_kind["poem"], "word " * 9) == ["not too long"]
    rule = by_kind["system rule"]
    assert failed(rule, "It is wet indeed.", "It is very wet.") == []
    assert failed(rule, "It is wet. Really. Indeed.", "It is very wet indeed.") == ["rule"]
    schema = by_kind["json schema"]
    long = "A long reply to a short question."
    assert failed(schema, '{"subject": "rain", "score": 7}', long) == []
    assert failed(schema, '{"subject": "rain", "score": "7"}', long) == ["json"]
    assert failed(by_kind["json object"], "[1]") == ["json"]
    assert failed(by_kind["tool"], "", calls=1) == []
    assert failed(by_kind["tool"], "It is warm.") == ["tool called"]
    assert failed(by_kind["tool result"], "It has 38 or 14 degrees.", long) == []


def test_shares_are_paired_and_what_was_refused_counts_for_nobody() -> None:
    asked = [one for one in chats() if one.kind in ("system rule", "tool")][-5:]
    direct = [reply("Yes.") for _ in asked]
    served = [reply("Yes indeed."), reply(""), *(Reply("", 1.0, 0, 400, "no tools") for _ in range(3))]
    found = _figures(asked, direct, served)
    assert found["refused_400"] == {"no tools": 3}
    assert found["checks_passed"] == {
        "not empty": "1 of 2",
        "no notes": "2 of 2",
        "rule": "1 of 2",
        "not too long": "2 of 2",
    }
    assert (found["share_passed"], found["share_passed_directly"]) == (0.6667, 0.6667)
    assert found["beside_direct"]["n"] == 6
