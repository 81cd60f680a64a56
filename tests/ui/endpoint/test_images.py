"""Do images go to the models that read them and to no other, in the form of their servers, and are their bytes kept
nowhere?"""

from __future__ import annotations

import base64
import hashlib
import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from openai import OpenAI

from core.changes import Change
from core.episode import Protocol, Status
from core.errors import ConfigError
from core.pool.circuits import FAILURES
from core.pool.pool import check_pool
from core.pool_file import load_pool, load_specs
from tests.core.pool.faulty_server import Answer, Request, fail, faulty_server, ok
from tests.ui.endpoint.server import (
    DECISIONS,
    PRICES,
    Served,
    episode_of,
    role_of,
    served,
    team,
)
from ui.endpoint import images
from ui.endpoint.errors import ApiError
from ui.endpoint.guard import MOST_BYTES
from ui.endpoint.tiers import Endpoint, Tier
from ui.runs.forks.planning import plan_forks
from ui.runs.wiring import pool_specs

pytestmark = pytest.mark.integration
PNG = b"\x89PNG\r\n\x1a\n" + b"not all of it" * 20
PNG_URL = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
GIF_URL = f"data:image/gif;base64,{base64.b64encode(b'GIF89a' + b'x' * 30).decode()}"
WEB_URL = "https://pictures.example.com/a.png"
TIERS = Endpoint(
    tier=(
        Tier("trinity", policy="round-robin", turns=3),
        Tier("blind", policy="single:a", turns=3),
        Tier("sighted", policy="single:b", turns=3),
    )
)


def shown(*urls: str, text: str = "What is this?", **detail: str) -> list[Any]:
    """A user's message of a chat with these images behind a text."""
    parts = [{"type": "image_url", "image_url": {"url": url, **detail}} for url in urls]
    return [{"role": "user", "content": [{"type": "text", "text": text}, *parts]}]


def text_of(request: Request) -> str:
    """The texts that a model is sent."""
    contents = [message["content"] for message in request.body["messages"]]
    parts = [part for one in contents if isinstance(one, list) for part in one]
    return "\n".join(
        [one for one in contents if isinstance(one, str)] + [one.get("text", "") for one in parts]
    )


def seeing(answer: str = "A cat.") -> Any:
    """Models that keep to their roles, whatever the form of the messages."""

    def reply(request: Request) -> Answer:
        last = request.body["messages"][-1]
        plain = {**last, "content": text_of(request)}
        return team(answer)(replace(request, body={**request.body, "messages": [plain]}))

    return reply


def one_reading(
    path: Path, answer: Any = None, models: str = "abc", reads: str = "bc", **options: Any
) -> Any:
    """An endpoint of whose models some read images."""
    options = {"endpoint": TIERS, "entry": PRICES, **options}
    context = served(path, answer or seeing(), models=models, **options)
    return _Reading(context, path / "pool.toml", reads)


class _Reading:
    def __init__(self, context: Any, pool: Path, reads: str) -> None:
        self._context, self._pool, self._reads = context, pool, reads

    def __enter__(self) -> Served:
        one: Served = self._context.__enter__()
        text = self._pool.read_text()
        for name in self._reads:
            text = text.replace(f'name = "{name}"', f'name = "{name}"\nimages = true')
        self._pool.write_text(text)  # it is read at the first request
        return one

    def __exit__(self, *error: Any) -> None:
        self._context.__exit__(*error)


def image_parts(request: Request) -> list[dict[str, Any]]:
    """The images that a model is sent."""
    contents = [message["content"] for message in request.body["messages"]]
    parts = [part for one in contents if isinstance(one, list) for part in one]
    return [part["image_url"] for part in parts if part["type"] == "image_url"]


def test_an_image_goes_to_every_role_of_the_models_that_read_it_and_to_no_other(tmp_path: Path) -> None:
    with one_reading(tmp_path) as one:
        talk = [{"role": "system", "content": "Be brief."}, *shown(PNG_URL, WEB_URL, detail="high")]
        answer = one.ask(messages=talk)
        assert answer.choices[0].message.content == "A cat."
        assert [request.body["model"] for request in one.models.requests] == ["b", "c", "b"]
        for request in one.models.requests:
            assert image_parts(request) == [
                {"url": PNG_URL, "detail": "high"},
                {"url": WEB_URL, "detail": "high"},
            ]
        worker = next(one for one in one.models.requests if role_of_parts(one) == "Worker")
        content = worker.body["messages"][1]["content"]
        assert [part["type"] for part in content][:3] == ["text", "image_url", "image_url"]
        assert content[0]["text"] == "What is this?"
        trace = answer.model_extra["trinity"]
        assert trace["left_out"] == ["a"]
        # Without images all are asked.
        one.begin(seeing())
        one.ask()
        assert {request.body["model"] for request in one.models.requests} == {"a", "b", "c"}


def role_of_parts(request: Request) -> str:
    last = request.body["messages"][-1]
    return role_of(replace(request, body={"messages": [{**last, "content": text_of(request)}]}))


def test_the_responses_api_sends_images_too_also_as_what_a_tool_gave(tmp_path: Path) -> None:
    with one_reading(tmp_path) as one:
        part = {"type": "input_image", "image_url": GIF_URL, "detail": "low"}
        asked: Any = [
            {"role": "user", "content": [{"type": "input_text", "text": "What do you see?"}]},
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": [part]},
        ]
        tools: Any = [{"type": "function", "name": "look", "parameters": {"type": "object"}}]
        answer = one.client.responses.create(model="trinity", input=asked, tools=tools)
        assert answer.output_text == "A cat."
        for request in one.models.requests:
            assert image_parts(request) == [{"url": GIF_URL, "detail": "low"}]
            roles = [message["role"] for message in request.body["messages"]]
            assert roles[:4] == ["user", "assistant", "tool", "user"], "servers take images of users alone"
            assert request.body["messages"][2]["content"] == "[image]"


def test_a_call_that_fails_is_taken_over_by_another_that_reads_images(tmp_path: Path) -> None:
    def reply(request: Request) -> Answer:
        return fail(503) if request.body["model"] == "b" else seeing()(request)

    with one_reading(tmp_path, reply) as one:
        answer = one.ask(messages=shown(PNG_URL))
        assert answer.choices[0].message.content == "A cat."
        assert {request.body["model"] for request in one.models.requests} == {"b", "c"}
    (tmp_path / "second").mkdir()
    with one_reading(tmp_path / "second", reply, reads="b") as one:
        refusal = one.refused(messages=shown(PNG_URL))
        assert (refusal.status_code, refusal.code) == (502, "pool_unavailable")
        assert {request.body["model"] for request in one.models.requests} == {"b"}, "never one that cannot"


def test_an_image_that_a_server_refuses_keeps_nobody_else_from_its_model(tmp_path: Path) -> None:
    """A client may name an address that no server can fetch: that says nothing of the models."""

    def reply(request: Request) -> Answer:
        return fail(400, "invalid image") if image_parts(request) else seeing()(request)

    with one_reading(tmp_path, reply) as one:
        for _ in range(FAILURES + 1):
            refusal = one.refused(messages=shown(WEB_URL))
            assert (refusal.status_code, refusal.code) == (502, "pool_unavailable")
            assert "invalid image" in refusal.message
        assert not any(one.service.engine.circuits.is_open(model) for model in "abc")
        one.begin(seeing())
        one.ask()
        assert {request.body["model"] for request in one.models.requests} == {"a", "b", "c"}


def test_where_no_model_reads_images_a_request_with_any_is_refused(tmp_path: Path) -> None:
    with one_reading(tmp_path) as one:
        refusals = [
            one.refused(model="blind", messages=shown(PNG_URL)),
            one.refused(messages=shown(WEB_URL), extra_body={"trinity": {"leave_out": ["b", "c"]}}),
        ]
        for refusal in refusals:
            assert (refusal.status_code, refusal.code) == (400, "no_model_reads_images")
            assert "set images = true" in refusal.message
        question = [{"type": "choice", "choices": [{"value": "a"}, {"value": "b"}]}]
        body = {"model": "blind", "questions": question}
        status, answer = one.post(DECISIONS, {**body, "input": shown(PNG_URL)})
        assert (status, answer["error"]["code"]) == (400, "no_model_reads_images")
        status, answer = one.post(DECISIONS, {**body, "model": "trinity", "input": shown(PNG_URL)})
        assert answer["answers"][0]["choice"] == "b"
        assert not one.models.requests


def test_the_steps_of_a_workflow_are_sent_images_where_their_models_read_them(tmp_path: Path) -> None:
    tiers = Endpoint(tier=(Tier("trinity", policy="conductor:fixed:solvers:a+b"),))
    with one_reading(tmp_path, reads="b", models="ab", endpoint=tiers) as one:
        answer = one.ask(messages=shown(PNG_URL, WEB_URL))
        assert answer.choices[0].message.content == "A cat."
        assert [request.body["model"] for request in one.models.requests] == ["b"] * 4
        for request in one.models.requests:
            assert [image["url"] for image in image_parts(request)] == [PNG_URL, WEB_URL]
        assert answer.model_extra["trinity"]["left_out"] == ["a"]


def test_policies_whose_prompts_hold_text_alone_see_no_images(tmp_path: Path) -> None:
    tiers = Endpoint(tier=(Tier("trinity", policy="single:b"),))
    with served(tmp_path, seeing(), endpoint=tiers, entry=f"{PRICES}\nimages = true") as one:
        released: Any = SimpleNamespace(
            models=("a", "b"), rounds=0, checkpoint=SimpleNamespace(protocol=Protocol.RELEASED)
        )
        offer = one.service.offer
        assert offer.left_out(tiers.tier[0], released, []) == ()
        with pytest.raises(ApiError) as caught:
            offer.left_out(tiers.tier[0], released, [], with_images=True)
        assert "released protocol" in caught.value.message
        assert not one.models.requests


def test_neither_a_stored_row_nor_an_export_holds_an_image_s_bytes(tmp_path: Path) -> None:
    with one_reading(tmp_path) as one:
        kept = episode_of(one, one.ask(messages=shown(PNG_URL, GIF_URL)))
        (message,) = kept.task.conversation
        assert message.content == "What is this?\n[image]\n[image]"
        told = json.loads(message.beside)["images"]
        assert told[0] == {
            "at": 14,
            "media_type": "image/png",
            "size": len(PNG),
            "sha256": hashlib.sha256(PNG).hexdigest(),
        }
        assert kept.task.question == message.content, "which is what a coordinator reads"
        other = episode_of(one, one.ask(messages=shown(GIF_URL, PNG_URL)))
        assert other.task.question == kept.task.question
        assert other.task.id != kept.task.id, "other images are another task"
        one.until_idle()
        sent = PNG_URL.partition(",")[2]
        with closing(sqlite3.connect(tmp_path / "trinity.db")) as database:
            rows = "\n".join(database.iterdump())
        assert sent not in rows
        assert sent[:40] not in rows
        assert PNG[:12].hex() not in rows.lower()


def test_an_episode_with_images_is_forked_where_they_have_an_address_alone(tmp_path: Path) -> None:
    with one_reading(tmp_path) as one:
        with_bytes = episode_of(one, one.ask(messages=shown(PNG_URL)))
        with_address = episode_of(one, one.ask(messages=shown(WEB_URL)))
        pool = str(tmp_path / "pool.toml")
        how: Any = {"n": 1, "baseline": 1, "pool": pool, "specs": pool_specs(pool)}

        def plan(name: str, model: str) -> Any:
            return plan_forks(one.store, [(name, 0)], Change("model", model), **how)

        with pytest.raises(ConfigError, match="whose bytes are not kept"):
            plan(with_bytes.id, "c")
        with pytest.raises(ConfigError, match="which a does not read"):
            plan(with_address.id, "a")
        assert plan(with_address.id, "c").to_play
        assert with_address.status is Status.FINISHED


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://pictures.example.com/a.png", "send an https address"),
        ("file:///etc/passwd", "send an https address"),
        ("data:image/png;base64,@@@", "not valid base64"),
        ("data:image/png;base64,", "no such image"),
        (f"data:image/jpeg;base64,{PNG_URL.partition(',')[2]}", "its bytes are image/png"),
        ("data:image/svg+xml;base64,PHN2Zz4=", "images are read as image/png"),
        ("data:text/plain,hello", "send an https address"),
        (f"https://example.com/{'a' * 9000}", "at most 8,000 characters"),
    ],
)
def test_what_is_no_image_is_refused(one: Served, url: str, words: str) -> None:
    refusal = one.refused(messages=shown(url))
    assert (refusal.status_code, refusal.param) == (400, "messages.0.content.1")
    assert words in refusal.message
    assert not one.models.requests


def test_images_stand_in_what_a_person_says_and_a_tool_gives_alone(one: Served) -> None:
    system = [{"role": "system", "content": shown(PNG_URL)[0]["content"]}, *shown()]
    refusal = one.refused(messages=system)
    assert "images are read in a user's message and in a tool's result" in refusal.message
    assert refusal.param == "messages.0"


def test_more_images_or_bytes_of_them_than_a_request_may_hold_are_refused(tmp_path: Path) -> None:
    with one_reading(tmp_path) as one:
        most = images.MOST_IMAGE_BYTES
        half = b"\x89PNG\r\n\x1a\n" + bytes(most // 2 - 8)
        url = f"data:image/png;base64,{base64.b64encode(half).decode()}"
        assert 2 * len(url) < MOST_BYTES, "as many bytes as may be sent fit a body"
        assert one.ask(messages=shown(url, url)).choices[0].message.content == "A cat."
        refusal = one.refused(messages=shown(url, url, GIF_URL))
        assert (refusal.status_code, refusal.code) == (413, "too_large")
        assert "send at most 10,000,000" in refusal.message
        talk = [message for _ in range(2) for message in shown(*[WEB_URL] * 51)]
        assert "send at most 100" in one.refused(messages=talk).message


def test_an_image_counts_against_ceilings_and_the_window(tmp_path: Path) -> None:
    """Of a model that counts an image as a million tokens, a call with one could cost a dollar."""
    entry = f"{PRICES}\nmax_tokens = 50\nimages = true\n"
    with served(tmp_path, seeing(), endpoint=TIERS, entry=f"{entry}image_tokens = 1000000") as one:
        limited: Any = {"extra_body": {"trinity": {"max_cost_usd": 0.5}}}
        assert one.refused(messages=shown(PNG_URL), **limited).code == "cost_ceiling"
        assert one.ask(messages=shown(), **limited).choices[0].message.content == "A cat."
    (tmp_path / "second").mkdir()
    small = f"{entry}image_tokens = 3000\ncontext_window = 4000"
    with served(tmp_path / "second", seeing(), endpoint=TIERS, entry=small) as one:
        assert one.ask(messages=shown(PNG_URL)).choices[0].message.content == "A cat."
        one.begin(seeing())
        one.refused(messages=shown(PNG_URL, GIF_URL))
        assert not one.models.requests, "two do not fit"


def test_a_request_whose_texts_are_not_kept_sends_its_images_all_the_same(tmp_path: Path) -> None:
    with one_reading(tmp_path) as one:
        answer = one.ask(messages=shown(PNG_URL), extra_body={"trinity": {"store_text": False}})
        assert all(image_parts(request) for request in one.models.requests)
        assert episode_of(one, answer).task.conversation == ()


def test_a_streamed_answer_about_an_image_comes_as_any_other(tmp_path: Path) -> None:
    with one_reading(tmp_path) as one, OpenAI(base_url=f"{one.url}/v1", api_key="none") as client:
        chunks = client.chat.completions.create(model="sighted", messages=shown(PNG_URL), stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "A cat."


# The pool file


def test_a_pool_file_says_which_models_read_images(tmp_path: Path) -> None:
    pool = tmp_path / "pool.toml"

    def entry(more: str) -> str:
        return f'[[model]]\nname = "a"\nbase_url = "http://127.0.0.1:1/v1"\n{more}\n'

    pool.write_text(entry("images = true"))
    assert load_specs(pool)[0].images
    for more, words in (("images = 1", "images"), ('images = true\ndialect = "terse"', "dialect general")):
        pool.write_text(entry(more))
        with pytest.raises(ConfigError, match=words):
            load_specs(pool)


def test_checking_a_pool_shows_an_image_to_the_models_that_read_them(tmp_path: Path) -> None:
    pool = tmp_path / "pool.toml"
    with faulty_server(ok("2")) as server:
        tables = [
            f'[[model]]\nname = "{name}"\nbase_url = "{server.url}"\n{more}\n'
            for name, more in (("a", ""), ("b", "images = true"))
        ]
        pool.write_text("".join(tables))
        replies = dict(check_pool(load_pool(pool, {})))
        assert all(reply.error is None for reply in replies.values())
        sent = {request.body["model"]: image_parts(request) for request in server.requests}
    assert (len(sent["a"]), len(sent["b"])) == (0, 1)
    square = base64.b64decode(sent["b"][0]["url"].partition(",")[2])
    assert square.startswith(b"\x89PNG")
