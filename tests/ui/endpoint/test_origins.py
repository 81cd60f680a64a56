"""Who may ask a server on this machine's own address, as far as a browser gives away who asks."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.datastructures import Headers

from tests.ui.endpoint.server import CHAT, Served, asking, raw
from ui.endpoint.guard import asked_by_name, asked_by_port, from_own_page

PORT = 8080
OWN = {"host": f"127.0.0.1:{PORT}"}


def passes(*headers: tuple[str, str], method: str = "POST", kind: str = "http") -> bool:
    raw_headers = [(name.encode(), value.encode()) for name, value in headers]
    scope: dict[str, Any] = {
        "type": kind,
        "method": method,
        "server": ("127.0.0.1", PORT),
        "headers": raw_headers,
    }
    given = Headers(scope=scope)
    return asked_by_name(given) and asked_by_port(given, scope) and from_own_page(scope, given)


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8080", "localhost:8080", "[::1]:8080", "LOCALHOST:8080", "127.0.0.1", "localhost"]
)
def test_the_names_of_this_machine_pass(host: str) -> None:
    assert passes(("host", host))
    assert passes(("host", host), ("origin", f"http://{host}"), ("sec-fetch-site", "same-origin"))
    assert passes(("host", host), ("sec-fetch-site", "none"))


#: Names of other servers, and what reads as one of ours only in part.
FOREIGN = """
evil.example evil.example@127.0.0.1 evil.example@127.0.0.1:8080 127.0.0.1@127.0.0.1:8080 @127.0.0.1:8080
127.0.0.1:8080@evil.example 127.0.0.1:8080,evil.example evil.example,127.0.0.1:8080 127.0.0.1:8081 127.0.0.1:80
127.0.0.1: 127.0.0.1:x 127.0.0.1:99999 127.0.0.1:8080/x 127.0.0.1:8080?x 127.0.0.1:8080#x
127.0.0.1.evil.example:8080 0.0.0.0:8080 [::1 http://127.0.0.1:8080 :8080
"""


@pytest.mark.parametrize("host", [*FOREIGN.split(), "", "127.0.0.1:8080 evil.example"])
def test_no_other_name_passes(host: str) -> None:
    assert not passes(("host", host))


def test_a_request_without_a_name_or_with_several_does_not_pass() -> None:
    assert not passes()
    assert not passes(("host", "127.0.0.1:8080"), ("host", "127.0.0.1:8080"))
    assert not passes(("host", "127.0.0.1:8080"), ("host", "evil.example"))


@pytest.mark.parametrize("site", ["cross-site", "same-site", "CROSS-SITE", "", "same-origin, cross-site"])
def test_what_a_browser_says_is_of_another_site_does_not_pass(site: str) -> None:
    assert not passes(("host", "127.0.0.1:8080"), ("sec-fetch-site", site))
    assert not passes(("host", "127.0.0.1:8080"), ("sec-fetch-site", site), method="GET")
    assert not passes(("host", "127.0.0.1:8080"), ("sec-fetch-site", "none"), ("sec-fetch-site", site))


def test_a_link_to_a_page_may_be_followed_from_anywhere_and_nothing_else() -> None:
    link = [
        ("host", "127.0.0.1:8080"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-mode", "navigate"),
        ("sec-fetch-dest", "document"),
    ]
    assert passes(*link, method="GET")
    assert not passes(*link, method="POST")  # a form
    assert not passes(*link[:3], ("sec-fetch-dest", "iframe"), method="GET")
    assert not passes(*link[:2], ("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "document"), method="GET")


@pytest.mark.parametrize(
    "origin", ["null", "http://evil.example", "http://127.0.0.1:8081", "http://localhost:8080", ""]
)
def test_no_other_origin_passes(origin: str) -> None:
    assert not passes(("host", "127.0.0.1:8080"), ("origin", origin))
    own = ("origin", "http://127.0.0.1:8080")
    assert not passes(("host", "127.0.0.1:8080"), own, ("origin", origin))


def test_a_websocket_needs_an_origin() -> None:
    assert not passes(("host", "127.0.0.1:8080"), kind="websocket", method="GET")
    own = ("origin", "http://127.0.0.1:8080")
    assert passes(("host", "127.0.0.1:8080"), own, kind="websocket", method="GET")


#: What asks for a websocket.
UPGRADE: dict[str, Any] = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec_WebSocket_Version": "13",
    "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


def test_the_endpoint_answers_as_the_rules_say(one: Served, caplog: pytest.LogCaptureFixture) -> None:
    for headers in (
        {"Host": "evil.example@127.0.0.1"},
        {"Host": f"{one.url.removeprefix('http://')},evil.example"},
        {"Host": "127.0.0.1:1"},
        {"Host": ""},
        {"Host": "evil.example"},
        {"Origin": "http://evil.example"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ):
        status, said = one.post(CHAT, asking(), **headers)
        assert (status, said["error"]["type"]) == (403, "invalid_request_error"), headers
    wrong = f"Bearer trinity-{'a' * 8}-{'b' * 43}"
    assert raw(one.url, "GET", "/v1/models", Authorization=wrong)[0] == 401
    assert raw(one.url, "GET", "/v1/models")[0] == 200
    assert not one.models.requests
    for path in (CHAT, "/v1/realtime", "/", "/healthz"):
        assert raw(one.url, "GET", path, **UPGRADE)[0] == 403
        assert raw(one.url, "GET", path, Origin=one.url, **UPGRADE)[0] == 403
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    assert one.post(CHAT, asking(), Sec_Fetch_Site="same-origin", Origin=one.url)[0] == 200
