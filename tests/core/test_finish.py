"""Finish reasons: one table for the words of all servers, and what a turn notices of them."""

from __future__ import annotations

import pytest

from core.episode import Flag, Reply
from core.finish import Finish, finish_of
from core.play.session import reply_flags

WORDS = {
    Finish.DONE: "stop STOP eos end_turn endTurn stop_sequence COMPLETE FinishReason.STOP FINISH_REASON_STOP Stop",
    Finish.TOOLS: "tool_calls function_call tool_use toolUse TOOL_CALL",
    Finish.CUT: "length max_tokens MAX_TOKENS maxTokens model_context_window_exceeded model_length max_output_tokens "
    "ERROR_LIMIT context-window-exceeded FinishReason.MAX_TOKENS",
    Finish.FILTERED: "content_filter sensitive safety SAFETY refusal recitation PROHIBITED_CONTENT blocklist SPII "
    "guardrail_intervened contentFiltered ERROR_TOXIC content-filter",
    Finish.FAILED: "error ERROR abort aborted network_error cancelled canceled insufficient_system_resource timeout "
    "provider_error generation_failed serverError USER_CANCEL",
    Finish.UNKNOWN: "pause_turn other OTHER load unspecified malformed_function_call 17 …",
}


@pytest.mark.parametrize(
    ("word", "kind"), [(word, kind) for kind, of in WORDS.items() for word in of.split()]
)
def test_every_word_has_its_place_however_it_is_written(word: str, kind: Finish) -> None:
    assert finish_of(word) is finish_of(f" {word} ") is kind


def test_what_is_not_recorded_and_what_nobody_was_asked_for_is_done() -> None:
    assert {finish_of(one) for one in ("", None, "edited", "not_asked")} == {Finish.DONE}


@pytest.mark.parametrize(
    ("reason", "flag"),
    [
        ("stop", None),
        ("tool_use", None),
        ("MAX_TOKENS", Flag.TRUNCATED),
        ("sensitive", Flag.REFUSED),
        ("pause_turn", Flag.UNKNOWN_FINISH),
        ("error", None),  # of a failure, which is told elsewhere
    ],
)
def test_a_turn_is_flagged_by_what_its_reason_means(reason: str, flag: Flag | None) -> None:
    assert reply_flags(Reply("x", finish_reason=reason)) == ([flag] if flag else [])
