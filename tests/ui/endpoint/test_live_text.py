"""A stream gives the answer's text while its model writes it, where nothing can change it any more."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.episode import Flag, Message
from core.play.chat import LONGEST_WORD, NOTE, joined, shown_of
from tests.core.pool.faulty_server import Answer, Request, Step, events, ok, stream_head
from tests.ui.endpoint.server import Serve, Served, role_of, team
from ui.endpoint.live_text import LiveText
from ui.endpoint.tiers import Endpoint, Tier

TIERS = Endpoint(
    tier=(
        Tier("trinity", policy="round-robin", turns=1),  # the only turn is a Worker's
        Tier("three", policy="single:a", turns=3),
        Tier("two", policy="single:a", turns=2),
    )
)


def streamed(*pieces: str | threading.Event, calls: tuple[Any, ...] = ()) -> Answer:
    """A reply in pieces; an event is awaited between them."""
    steps: list[Step] = [stream_head()]
    for piece in pieces:
        whole = events(piece, finish_reason=None, done=False) if isinstance(piece, str) else piece
        steps.append(whole)
    delta = {"choices": [{"index": 0, "delta": {"tool_calls": [*calls]}}]}
    steps += [b"data: " + json.dumps(delta).encode() + b"\n\n"] if calls else []
    return (*steps, events())


def chunks(one: Served, **fields: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """The text and the vendor's object of each chunk."""
    for chunk in one.ask(stream=True, **fields):
        delta = chunk.choices[0].delta if chunk.choices else None
        yield (delta.content or "") if delta else "", (chunk.model_extra or {}).get("trinity") or {}


def text_of(one: Served, **fields: Any) -> str:
    return "".join(text for text, _ in chunks(one, **fields))


@pytest.fixture
def one(serve: Serve) -> Served:
    return serve(endpoint=TIERS)


@pytest.mark.integration
def test_the_first_words_come_while_the_model_still_writes(one: Served) -> None:
    go = threading.Event()
    one.begin(streamed("Forty", "-two ", go, "it is."))
    told = ""
    for text, _ in chunks(one):
        told += text
        if told == "Forty-two":
            go.set()  # who does not hear of it first waits forever
    assert told == "Forty-two it is."
    assert one.models.requests[0].body["stream"] is True


@pytest.mark.integration
def test_the_responses_api_streams_as_well(one: Served) -> None:
    go = threading.Event()
    one.begin(streamed("Forty ", go, "two"))
    with one.client.responses.stream(model="trinity", input="How many?") as told:
        kinds = []
        for event in told:
            kinds.append(event.type)
            if event.type == "response.output_text.delta":
                go.set()
        assert told.get_final_response().output_text == "Forty two"
    assert kinds.count("response.output_item.added") == kinds.count("response.output_text.done") == 1
    assert kinds.count("response.output_text.delta") == 2


@pytest.mark.integration
def test_what_may_still_be_changed_is_progress_and_the_answer_follows_its_acceptance(one: Served) -> None:
    def models(request: Request) -> Answer:
        if role_of(request) == "Worker":
            return streamed("Forty", "-two")
        return team()(request)

    one.begin(models)
    seen = [*chunks(one, model="three")]
    progress = [what for _, what in seen if what.get("type") == "turn.text" and what["turn"] == 1]
    assert [what["text"] for what in progress] == ["Forty", "-two"]
    verdict = next(i for i, (_, what) in enumerate(seen) if what.get("verdict") == "ACCEPT")
    assert {i for i, (text, _) in enumerate(seen) if text} == {verdict + 1}
    quiet = [*chunks(one, model="three", extra_body={"trinity": {"progress": False}})]
    assert not any("text" in what for _, what in quiet)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("pieces", "fields", "answer"),
    [
        (("<th", "ink>Hm, forty", "-one?</think>", "Forty-two."), {}, "Forty-two."),
        (("  \n", "Forty", "-two  \n"), {}, "Forty-two"),
        (("One, tw", "o, EN", "D and more"), {"stop": "END"}, "One, two, "),
        (("One, tw", "o, EN", "OUGH"), {"stop": ["END", "FIN"]}, "One, two, ENOUGH"),
    ],
)
def test_only_the_answer_goes_out(
    one: Served, pieces: tuple[str, ...], fields: dict[str, Any], answer: str
) -> None:
    one.begin(streamed(*pieces))
    assert text_of(one, **fields) == answer
    whole = one.ask(**fields)
    assert whole.choices[0].message.content == answer


@pytest.mark.integration
def test_what_a_model_repeats_of_its_notes_does_not_go_out(one: Served) -> None:
    """The last turn of a tier with two is a Worker's that was sent a plan and a note."""

    def models(request: Request) -> Answer:
        if role_of(request) == "Thinker":
            return team()(request)
        note = request.body["messages"][-1]["content"]
        return streamed(*[f"{note} Forty. "[at : at + 7] for at in range(0, len(note) + 8, 7)], "And two.")

    one.begin(models)
    told = text_of(one, model="two")
    assert NOTE not in told
    assert told == "Forty. And two."


GO_ON = "Your reply above broke off."


def begun_in(request: Request) -> str:
    """What a model is asked to go on from; empty where it is asked for a whole reply."""
    messages: list[dict[str, str]] = request.body["messages"]
    return messages[-2]["content"] if GO_ON in messages[-1]["content"] else ""


def broken(*pieces: str) -> Answer:
    return (stream_head(), *(events(one, finish_reason=None, done=False) for one in pieces), "reset")


@pytest.mark.integration
@pytest.mark.parametrize(
    "more",
    ["forty-two it stays.", "Forty-two it is, and forty-two it stays.", "it is, and forty-two it stays."],
)
def test_a_text_that_broke_off_is_gone_on_with(one: Served, more: str) -> None:
    def models(request: Request) -> Answer:
        if not (begun := begun_in(request)):
            return broken("Forty-two it is,", " and forty-")
        assert begun == "Forty-two it is, and"  # the half word is written again
        return streamed(*(more[at : at + 5] for at in range(0, len(more), 5)))

    one.begin(models)
    assert text_of(one) == "Forty-two it is, and forty-two it stays."
    first, second = one.models.requests  # nobody begins it again
    assert first.body["model"] == second.body["model"] == "a"
    row = one.store.episodes.page().items[0]
    episode = one.store.episodes.get(row.id)
    assert episode.answer == "Forty-two it is, and forty-two it stays."
    flags = [turn.flags for turn in episode.turns]
    assert flags == [(Flag.MODEL_ERROR, Flag.FAILED_OVER), (Flag.CONTINUED,)]
    assert [turn.reply.text for turn in episode.turns] == ["Forty-two it is, and forty-", more]


@pytest.mark.integration
def test_one_that_breaks_off_again_and_again_leaves_the_rest_to_another(one: Served) -> None:
    def models(request: Request) -> Answer:
        match request.body["model"], begun_in(request):
            case "a", "":
                return broken("Forty-two it is, and ", "forty-")
            case "a", "Forty-two it is, and":
                return broken("forty-two it ", "st")
            case "a", begun:
                assert begun == "Forty-two it is, and forty-two it"
                return broken("st")
            case _, begun:
                assert begun == "Forty-two it is, and forty-two it"
                return streamed("stays.")

    one.begin(models)
    assert text_of(one) == "Forty-two it is, and forty-two it stays."
    assert [request.body["model"] for request in one.models.requests] == ["a", "a", "a", "b"]
    one.begin(lambda _: broken("Forty-two ", "it "))
    with pytest.raises(openai.APIError, match="broke off in the middle of its answer"):
        text_of(one)


@pytest.mark.integration
def test_a_reply_that_nobody_reads_yet_is_begun_again(one: Served) -> None:
    left = [broken("Forty-two it "), ok("Fifty it is.")]
    one.begin(lambda _: left.pop(0))
    assert one.ask().choices[0].message.content == "Fifty it is."


@pytest.mark.integration
def test_calls_of_tools_stand_behind_what_was_said_before_them(one: Served) -> None:
    function = {"name": "clock", "arguments": "{}"}
    call = {"index": 0, "id": "c", "type": "function", "function": function}
    tool: Any = {"type": "function", "function": {"name": "clock"}}
    one.begin(streamed("I look.", calls=(call,)))
    last = [*one.ask(stream=True, tools=[tool])]
    said = "".join(chunk.choices[0].delta.content or "" for chunk in last)
    calls = [call for chunk in last for call in chunk.choices[0].delta.tool_calls or ()]
    assert (said, [one.function.name for one in calls]) == ("I look.", ["clock"])
    flat: Any = [{"type": "function", "name": "clock", "parameters": {"type": "object"}, "strict": False}]
    with one.client.responses.stream(model="trinity", input="Late?", tools=flat) as told:
        output = told.until_done().get_final_response().output
    assert [item.type for item in output] == ["message", "function_call"]


TEXT = st.text(st.sampled_from("ab.< \nEND"), max_size=30)


@given(text=TEXT, cuts=st.lists(st.integers(0, 30), max_size=6), stops=st.lists(TEXT.filter(bool), max_size=2),
       notes=st.booleans())  # fmt: skip
def test_however_it_is_cut_what_was_sent_and_the_rest_are_the_answer(
    text: str, cuts: list[int], stops: list[str], notes: bool
) -> None:
    live = LiveText(0, stops, (Message("user", NOTE),) if notes else ())
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    sent = "".join(live.feed(text[a:b]) for a, b in zip(places, places[1:], strict=False))
    answer = text.strip()
    answer = answer[: min([at for stop in stops if (at := answer.find(stop)) >= 0], default=None)]
    rest = live.rest(answer, text)
    assert rest is not None
    assert sent + rest == answer


@given(text=TEXT, more=TEXT, cut=st.integers(0, 30))
def test_what_goes_on_from_a_text_that_broke_off_is_sent_as_it_is_read(
    text: str, more: str, cut: int
) -> None:
    first = LiveText(0)
    sent = first.feed(text)
    begun = shown_of(text)
    then = LiveText(1, begun=begun, sent=first.sent)
    sent += then.feed(more[:cut]) + then.feed(more[cut:])
    answer = joined(begun, more).strip()
    rest = then.rest(answer, more)
    assert rest is not None
    assert sent + rest == answer


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Forty-two it", "Forty-two "),
        ("Forty-two it ", "Forty-two it "),
        ("See " + "x" * LONGEST_WORD, "See "),
        ("See " + "x" * (LONGEST_WORD + 1), "See " + "x" * (LONGEST_WORD + 1)),
        ("\u56db\u5341\u4e8c", "\u56db\u5341\u4e8c"),
        ("<think>Forty", ""),
    ],
)
def test_a_text_is_shown_up_to_its_last_whole_word(text: str, shown: str) -> None:
    assert shown_of(text) == shown


def test_an_echo_behind_what_was_sent_is_held_back() -> None:
    live = LiveText(0, messages=(Message("user", NOTE),))
    assert live.feed("Forty-two it is. And ") == "Forty-two it is."
    assert live.feed(f"{NOTE} so on. ") == ""
