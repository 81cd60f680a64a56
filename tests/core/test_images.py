"""Do images come out of a stored message where they went in, and what is said of those whose bytes are not there?"""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.episode import Ask, Decide, Decision, Episode, Message, Reply, Role, Status, Task
from core.images import (
    MEDIA_TYPES,
    Image,
    as_content,
    beside_with,
    content_parts,
    image_of,
    images_in,
    media_type_of,
    put_before,
    unkept_images,
)
from core.play.session import play
from core.pool.costs import bound_usd
from core.pool.hosted import HttpPool
from core.pool.spec import ModelSpec
from core.pool.wire import TOOL_IMAGES, request_body
from tests.core.pool.faulty_server import faulty_server, ok

PNG = image_of(b"\x89PNG\r\n\x1a\n", "image/png", "low")
WEB = Image(url="https://example.com/a.gif")
DATA = {PNG.sha256: PNG.data}
SHOWN = {"type": "image_url", "image_url": {"url": PNG.data, "detail": "low"}}
SEEN = {"type": "image_url", "image_url": {"url": WEB.url}}
PARTS = st.lists(st.one_of(st.text(st.characters(codec="utf-8")), st.sampled_from([PNG, WEB])), max_size=8)


def message(*parts: str | Image, role: Any = "user", **beside: Any) -> Message:
    content, images = as_content(parts)
    return Message(role, content, beside_with(beside, images))


@given(PARTS, st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1))
def test_a_message_gives_back_its_texts_and_images_in_their_order(parts: list[Any], before: str) -> None:
    one = message(*parts, name="ann")
    told = images_in(one)
    assert [replace(image, at=0, data="") for image in told] == [
        replace(image, data="") for image in _images(parts)
    ]
    assert all(one.content[image.at :].startswith("[image]") for image in told)
    sent = content_parts(one, DATA)
    assert [part for part in sent if part != {"type": "text", "text": part.get("text")}] == [
        SHOWN if image == PNG else SEEN for image in _images(parts)
    ]
    if sent:
        texts = "".join(part.get("text", "") for part in sent)
        assert texts == "".join(part for part in parts if isinstance(part, str)).replace("\0", "\ufffd")
    # What is put before the text moves the images, and no more.
    moved = put_before(before, one)
    assert moved.content == f"{before}\n\n{one.content}"
    assert json.loads(moved.beside or "{}").get("name") == "ann"
    own = [part for part in content_parts(moved, DATA) if part["type"] == "image_url"]
    assert own == [part for part in sent if part["type"] == "image_url"]


def _images(parts: list[Any]) -> list[Image]:
    return [one for one in parts if isinstance(one, Image)]


@pytest.mark.parametrize(
    "beside",
    [
        '{"images": 5}',
        '{"images": [5, null, {}]}',
        '{"images": [{"at": "x", "url": "y"}]}',
        '{"images": [{"at": 1}]}',
    ],
)
def test_what_is_no_image_in_an_imported_message_says_nothing(beside: str) -> None:
    one = Message("user", "Look.", beside)
    assert images_in(one) == ()
    body = request_body(ModelSpec("a", images=True), Ask("a", Role.WORKER, (one,)), stream=False)
    assert body["messages"] == [{"role": "user", "content": "Look."}]


def test_kinds_of_images_are_known_by_their_first_bytes() -> None:
    begins = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff\xe0", b"GIF89a", b"RIFF\0\0\0\0WEBPVP8 ")
    assert tuple(map(media_type_of, begins)) == MEDIA_TYPES
    assert {media_type_of(one) for one in (b"", b"RIFF\0\0\0\0WAVE", b"<svg>", b"\x89PN")} == {""}


def test_images_of_tool_results_stand_in_the_next_words_of_a_user() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    asked = [
        Message("user", "What is there?"),
        message("", role="assistant", tool_calls=[call]),
        message(PNG, role="tool", tool_call_id="c"),
    ]
    spec = ModelSpec("a", images=True)

    def sent(*more: Message) -> list[dict[str, Any]]:
        body = request_body(spec, Ask("a", Role.WORKER, (*asked, *more), images=DATA), stream=False)
        return body["messages"][2:]  # type: ignore[no-any-return]

    result, shown = sent()
    assert result == {"role": "tool", "content": "[image]", "tool_call_id": "c"}
    behind = [{"type": "text", "text": TOOL_IMAGES}, SHOWN]
    assert shown == {"role": "user", "content": behind}
    assert sent(Message("user", "Well?"))[1]["content"] == [*behind, {"type": "text", "text": "Well?"}]
    assert sent(message("Like", WEB))[1]["content"] == [*behind, {"type": "text", "text": "Like"}, SEEN]
    spoken = sent(Message("assistant", "A cat."))
    assert [one["role"] for one in spoken] == ["tool", "user", "assistant"]


def test_a_model_without_a_system_role_sees_the_images_too() -> None:
    spec = ModelSpec("a", images=True, system_role=False)
    messages = (Message("system", "Be brief. " * 9), message("What?", PNG))
    [one] = request_body(spec, Ask("a", Role.WORKER, messages, images=DATA), stream=False)["messages"]
    assert one["content"] == [{"type": "text", "text": f"{'Be brief. ' * 9}\n\nWhat?"}, SHOWN]


def test_an_image_bounds_what_a_call_may_cost() -> None:
    spec = ModelSpec("a", images=True, image_tokens=1000, price_in=1.0, price_out=0.0)
    one = message("What?", PNG, WEB)
    ask = Ask("a", Role.WORKER, (one,))
    bare = replace(ask, messages=(Message("user", one.text),))
    assert bound_usd(spec, ask) == pytest.approx(bound_usd(spec, bare) + 2000 / 1e6)


def test_a_call_whose_image_is_not_there_is_a_failure_and_reaches_no_server() -> None:
    assert unkept_images([message(PNG, WEB)]) == (PNG,)
    assert unkept_images([message(PNG, WEB)], DATA) == ()
    with faulty_server(ok("A cat.")) as server:
        pool = HttpPool([ModelSpec("a", base_url=server.url, images=True)], {})
        asks = [Ask("a", Role.WORKER, (message("?", PNG),), images=images) for images in ({}, DATA)]
        lost, seen = (reply for _, reply in sorted(pool.ask(asks), key=lambda one: one[0]))
        pool.close()
    assert (lost.error is not None, seen.text) == (True, "A cat.")
    assert lost.error is not None
    assert "whose bytes are not kept" in lost.error.message
    assert len(server.requests) == 1


def test_a_model_that_reads_no_images_is_not_asked_about_any() -> None:
    talk = (message("What is this?", WEB),)
    task = Task("t", "What is this?\n[image]", "", grader="open", conversation=talk)
    episode = Episode("e1", "r1", task, "single:a", ("a",))

    def played(spec: ModelSpec) -> tuple[list[Ask], Episode]:
        game: Generator[Any, Any, Episode] = play(episode, {"a": spec})
        asked = list[Ask]()
        answer: Decision | Reply | None = None
        try:
            while True:
                request = game.send(answer)
                asked += [request] if isinstance(request, Ask) else []
                last = isinstance(request, Decide) and request.index == episode.turn_budget - 1
                role = Role.WORKER
                answer = Decision("a", role) if isinstance(request, Decide) else None
                answer = Reply("A cat.") if isinstance(request, Ask) else answer
                assert not last or asked
        except StopIteration as over:
            return asked, over.value

    asked, over = played(ModelSpec("a", images=True))
    assert len(asked) == episode.turn_budget
    assert over.answer == "A cat."
    asked, over = played(ModelSpec("a"))
    assert (asked, over.status) == ([], Status.MISSING)
    assert "which it does not read" in (over.error or "")
