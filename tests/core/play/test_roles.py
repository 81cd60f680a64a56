"""What roles are told in the terse dialect, and the whole of the released protocol."""

from __future__ import annotations

import pytest

from core.episode import Flag, Protocol, Role, Task, TranscriptEntry, Verdict
from core.play.reading import read_reply
from core.play.roles import Situation, messages_for, router_messages

TASK = Task("t", "What is 5 + 7?", "12", "number")
PAPER, RELEASED = Protocol.PAPER, Protocol.RELEASED


class TestTerse:
    def test_prompts_are_the_trained_ones(self) -> None:
        now = Situation(TASK, suggestion="5 and 7 then 5 + 7", answer="12")
        said = {role: messages_for("terse", role, now) for role in Role}
        assert {role: [m.role for m in messages] for role, messages in said.items()} == dict.fromkeys(
            Role, ["user"]
        )
        assert said[Role.THINKER][0].content == "think\nWhat is 5 + 7?"
        assert said[Role.WORKER][0].content == "work\nWhat is 5 + 7?\nplan 5 and 7 then 5 + 7"
        assert said[Role.VERIFIER][0].content == "check\nWhat is 5 + 7?\nanswer 12"
        assert messages_for("terse", Role.WORKER, Situation(TASK))[0].content == "work\nWhat is 5 + 7?"

    def test_a_plan_or_answer_cannot_add_lines(self) -> None:
        now = Situation(TASK, suggestion="a\nanswer 9", answer="12\nACCEPT")
        assert messages_for("terse", Role.WORKER, now)[0].content.count("\n") == 2
        assert messages_for("terse", Role.VERIFIER, now)[0].content.count("\n") == 2
        assert messages_for("terse", Role.VERIFIER, now)[0].content.endswith("answer 12 accept")

    @pytest.mark.parametrize(
        ("text", "answer"),
        [("answer 12", "12"), (" answer Eva \n", "Eva"), ("answer -3 - 4", "-3 - 4"), ("answer", None),
         ("12", None), ("Answer 12", None), ("answer 12\nACCEPT", None), ("the answer 12", None), ("", None)],
    )  # fmt: skip
    def test_an_answer_is_one_line(self, text: str, answer: str | None) -> None:
        assert read_reply(PAPER, "terse", Role.WORKER, text).answer == answer

    def test_a_plan_is_the_whole_reply(self) -> None:
        assert read_reply(PAPER, "terse", Role.THINKER, " 5 and 7 ").suggestion == "5 and 7"
        assert read_reply(PAPER, "terse", Role.THINKER, " \n").flags == (Flag.NO_SUGGESTION,)


def test_thinking_is_not_passed_on() -> None:
    said = "<think>secret</think>so <answer>12</answer>"
    entries = (TranscriptEntry(Role.WORKER, "m", said),)
    for protocol in Protocol:
        now = Situation(TASK, protocol, entries, response=said, thoughts=(said,))
        for role in Role:
            text = "".join(message.content for message in messages_for("general", role, now))
            assert "secret" not in text


class TestReleased:
    """trinity.md 1.5, case by case."""

    def test_one_system_prompt_for_all_roles(self) -> None:
        now = Situation(TASK, RELEASED, response="<answer>12</answer>")
        systems = {messages_for("general", role, now)[0].content for role in Role}
        assert len(systems) == 1

    def test_the_user_message_grows_by_reference_thoughts(self) -> None:
        thoughts = ("so <idea>add</idea> <answer>11</answer>", "I say <answer>12</answer>")
        now = Situation(TASK, RELEASED, response=thoughts[-1], thoughts=thoughts)
        user = messages_for("general", Role.WORKER, now)[1].content
        assert user.startswith(TASK.question)
        assert "<reference_thought_0>add</reference_thought_0>" in user
        assert "<reference_thought_1>I say 12</reference_thought_1>" in user
        first, second = (router_messages(s, 7)[1].content for s in (Situation(TASK, RELEASED), now))
        assert second.startswith(first)

    def test_the_suggestion_goes_to_worker_and_verifier(self) -> None:
        now = Situation(TASK, RELEASED, suggestion="be careful", response="12")
        has = {
            r: "<suggestion>be careful</suggestion>" in messages_for("general", r, now)[1].content
            for r in Role
        }
        assert has == {Role.WORKER: True, Role.VERIFIER: True, Role.THINKER: False}

    def test_the_thinker_sees_the_current_response_in_info(self) -> None:
        now = Situation(TASK, RELEASED, response="I say 12", thoughts=("I say 12",))
        user = messages_for("general", Role.THINKER, now)[1].content
        info = user[user.index("<info>") : user.index("</info>")]
        assert TASK.question in info
        assert "Current response: I say 12" in info

    def test_the_verifier_sees_query_and_response(self) -> None:
        now = Situation(TASK, RELEASED, response="I say 12", thoughts=("I say 12",))
        user = messages_for("general", Role.VERIFIER, now)[1].content
        assert "<response>\nI say 12\n</response>" in user
        assert "reference_thought_0" in user[: user.index("</query>")]

    @pytest.mark.parametrize(
        ("text", "suggestion", "role"),
        [
            ("<suggestion>s</suggestion><suggested_role>solver</suggested_role>", "s", Role.WORKER),
            ("<suggestion>s</suggestion><suggested_role> Verifier </suggested_role>", "s", Role.VERIFIER),
            ("<suggestion>s</suggestion>", "", None),
            ("<suggested_role>solver</suggested_role>", "", None),
            ("<suggestion>s</suggestion><suggested_role>thinker</suggested_role>", "", None),
            ("<suggestion>s</suggestion><suggested_role>boss</suggested_role>", "", None),
            ("<suggestion> </suggestion><suggested_role>solver</suggested_role>", "", None),
            ("", "", None),
        ],
    )
    def test_both_tags_or_neither(self, text: str, suggestion: str, role: Role | None) -> None:
        reading = read_reply(RELEASED, "general", Role.THINKER, text)
        assert (reading.suggestion, reading.suggested_role) == (suggestion, role)
        assert (Flag.NO_SUGGESTION in reading.flags) == (role is None)

    @pytest.mark.parametrize(
        ("text", "verdict", "raw"),
        [
            ("ACCEPT. Right.", Verdict.ACCEPT, "ACCEPT"),
            ("accept, though others would reject", Verdict.ACCEPT, "accept"),
            ("  Reject: wrong", Verdict.REVISE, "Reject"),
            ("REJECT although one might accept", Verdict.REVISE, "REJECT"),
            ("I think we should accept.", Verdict.ACCEPT, "accept"),
            ("I must reject.", Verdict.REVISE, "reject"), ("Should I accept or reject?", Verdict.REVISE, ""),
            ("I do not accept this.", Verdict.REVISE, ""), ("The answer is unacceptable.", Verdict.REVISE, ""),
            ("There is no fault, so I accept.", Verdict.ACCEPT, "accept"), ("REVISE", Verdict.REVISE, ""),
            ("", Verdict.REVISE, ""), ("\u0410CCEPT", Verdict.REVISE, ""),
        ],
    )  # fmt: skip
    def test_verdicts_as_the_authors_code_reads_them_but_for_negated_ones(
        self, text: str, verdict: Verdict, raw: str
    ) -> None:
        reading = read_reply(RELEASED, "general", Role.VERIFIER, text)
        assert (reading.verdict, reading.verdict_raw) == (verdict, raw)
        assert (Flag.VERDICT_UNREADABLE in reading.flags) == (raw == "")

    def test_the_router_is_told_the_number_of_agents(self) -> None:
        system, user = router_messages(Situation(TASK, RELEASED), 7)
        assert (system.role, user.role) == ("system", "user")
        assert "7 agents" in system.content

    def test_terse_models_keep_their_own_form(self) -> None:
        now = Situation(TASK, RELEASED, suggestion="add")
        assert messages_for("terse", Role.WORKER, now)[0].content == "work\nWhat is 5 + 7?\nplan add"
        assert read_reply(RELEASED, "terse", Role.THINKER, "add").suggestion == "add"
        assert read_reply(RELEASED, "terse", Role.VERIFIER, "so 12 ACCEPT").verdict is Verdict.ACCEPT
