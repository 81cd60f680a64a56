"""Why a model stopped writing: the one table that tells the words of all servers apart."""

from __future__ import annotations

import re
from enum import StrEnum
from functools import cache


class Finish(StrEnum):
    """What a server's finish reason means for its reply."""

    DONE = "done"  # the model said all that it had to say
    TOOLS = "tools"  # it asks for tools to be called
    CUT = "cut"  # at a limit of tokens, or of the model's window
    FILTERED = "filtered"  # the provider's filter, or the model itself, would not answer
    FAILED = "failed"  # the server broke off: what there is of a text is no reply
    UNKNOWN = "unknown"  # a word that stands in no list: the text counts as a reply, and is flagged


_DONE = """stop stopped stop_sequence stop_sequences stop_token eos eos_token end end_of_sequence end_of_text
    end_of_turn end_turn endoftext complete completed completion done finish finished normal success
    edited not_asked"""  # the last two are our own, of turns that no model wrote
#: Why a reply ends that a fork has by hand: no model wrote it.
EDITED = "edited"
#: Our own, of a call that its server did not accept as it stands (400, 422).
NOT_ACCEPTED = "request_error"
#: Our own, of a reply that calls tools which nobody offered: beside its text, or in place of one. Of the second kind
#: the text tells the calls in words, and nothing is read from it.
UNASKED_CALLS, ONLY_UNASKED_CALLS = "unasked_tool_calls", "only_unasked_tool_calls"
#: Our own, of a call whose prompt its model cannot hold.
TOO_LONG = "prompt_too_long"
_TOOLS = (
    f"tool_calls tool_call tool_use tool function_call function_calls {UNASKED_CALLS} {ONLY_UNASKED_CALLS}"
)
_CUT = """length max_length model_length max_tokens max_token max_new_tokens max_output_tokens max_completion_tokens
    max_output_reached max_tokens_reached output_limit token_limit token_limit_reached limit limit_reached error_limit
    context_length context_length_exceeded context_window_exceeded model_context_window_exceeded max_context_length
    max_context_length_exceeded time_limit truncated incomplete"""
_FILTERED = """content_filter content_filtered content_policy content_policy_violation content_violation
    content_moderation filter filtered sensitive safety unsafe image_safety refusal refused recitation copyright
    prohibited prohibited_content blocklist blocked block spii moderation moderated guardrail guardrails
    guardrail_intervened policy_violation risk high_risk error_toxic"""
_FAILED = f"""{TOO_LONG} abort aborted cancel canceled cancelled user_cancel user_cancelled timeout timed_out
    deadline_exceeded interrupted insufficient_system_resource overloaded unavailable evicted preempted disconnected
    not_finished crash crashed exception oom out_of_memory"""
_TABLE = {
    word: kind
    for kind, words in (
        (Finish.DONE, _DONE),
        (Finish.TOOLS, _TOOLS),
        (Finish.CUT, _CUT),
        (Finish.FILTERED, _FILTERED),
        (Finish.FAILED, _FAILED),
    )
    for word in words.split()
}
#: In a word of no list: network_error, provider_error, generation_failed ...
_FAILING = {"error", "errored", "fail", "failed", "failure"}


@cache
def finish_of(reason: str | None) -> Finish:
    """What a finish reason means, however it is written: STOP, maxTokens, FinishReason.SAFETY, end-turn. None is
    recorded of some replies, which are taken as done."""
    if not reason:
        return Finish.DONE
    word = reason.strip().rpartition(".")[2]
    word = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", word)
    word = re.sub(r"[^a-z0-9]+", "_", word.casefold()).strip("_")
    word = word.removeprefix("finish_reason_")
    if (known := _TABLE.get(word)) is not None:
        return known
    return Finish.FAILED if _FAILING & set(word.split("_")) else Finish.UNKNOWN
