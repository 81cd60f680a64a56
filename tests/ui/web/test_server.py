"""The web server's doors: which names and origins it answers, what it lets a browser do, and whom it asks."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.browsing import serving
from tests.ui.conftest import Served
from tests.ui.pages import APP
from tests.zygote import forked

#: `{port}` is the server's own.
OWN_NAMES = [
    "127.0.0.1:{port}",
    "localhost:{port}",
    "LOCALHOST:{port}",
    "[::1]:{port}",
    "localhost",
    "localhost:9",
]
FOREIGN_NAMES = [
    "attacker.example",
    "attacker.example:{port}",
    "127.0.0.1.attacker.example:{port}",
    "localhost.attacker.example",
    "127.0.0.1@attacker.example",
    "attacker.example@127.0.0.1:{port}",
    "127.0.0.1/attacker.example",
    "0.0.0.0:{port}",
    "192.168.0.7:{port}",
    "[::1",
    "localhost:port",
    "",
]
FOREIGN_ORIGINS = [
    "http://attacker.example",
    "http://attacker.example:{port}",
    "http://localhost:9999",
    "http://127.0.0.1:9999",
    "http://127.0.0.1",
    "http://localhost:{port}",  # the page asked 127.0.0.1
    "http://0.0.0.0:{port}",
    "ftp://127.0.0.1:{port}",
    "null",
    "",
]
WEBSOCKET = (
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)


@pytest.mark.parametrize("name", OWN_NAMES)
def test_a_name_of_this_machine_is_answered(served: Served, name: str) -> None:
    host = named(name, served.address)
    assert status(served.address, "/", f"Host: {host}") == 200
    assert (
        status(served.address, "/_stcore/stream", f"Host: {host}", f"Origin: http://{host}", *WEBSOCKET)
        == 101
    )


@pytest.mark.parametrize("name", FOREIGN_NAMES)
def test_a_name_from_elsewhere_that_points_here_is_refused(served: Served, name: str) -> None:
    host = named(name, served.address)
    for path in ("/", "/_stcore/health", "/_stcore/host-config", "/media/0.html", "/episodes"):
        assert status(served.address, path, f"Host: {host}") in (400, 403)
    websocket = (f"Host: {host}", f"Origin: http://{host}", *WEBSOCKET)
    assert status(served.address, "/_stcore/stream", *websocket) in (400, 403)


def test_a_request_names_one_host(served: Served) -> None:
    own = f"Host: {urlsplit(served.address).netloc}"
    assert status(served.address, "/", own, "Host: attacker.example") in (400, 403)
    assert status(served.address, "/", "Host: attacker.example", own) in (400, 403)
    assert status(served.address, "/") in (400, 403)


@pytest.mark.parametrize("origin", FOREIGN_ORIGINS)
def test_another_origin_is_refused(served: Served, origin: str) -> None:
    own = urlsplit(served.address).netloc
    foreign = (f"Host: {own}", f"Origin: {named(origin, served.address)}")
    assert status(served.address, "/_stcore/stream", *foreign, *WEBSOCKET) == 403
    assert status(served.address, "/_stcore/health", *foreign) == 403


def test_a_websocket_says_whose_it_is_and_a_program_need_not(served: Served) -> None:
    own = urlsplit(served.address).netloc
    assert status(served.address, "/_stcore/stream", f"Host: {own}", *WEBSOCKET) == 403
    assert status(served.address, "/_stcore/health", f"Host: {own}") == 200
    assert status(served.address, "/_stcore/health", f"Host: {own}", f"Origin: http://{own}") == 200


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The app's address, and the file in which the interpreter's own audit notes whom its process asks."""
    folder = tmp_path_factory.mktemp("watched")
    asked = folder / "asked.txt"
    asked.touch()
    launcher = folder / "launcher.py"
    launcher.write_text(
        "import sys\n"
        "def note(event, arguments):\n"
        "    if event in ('socket.connect', 'socket.getaddrinfo', 'socket.gethostbyname', 'socket.sendto'):\n"
        f"        with open({str(asked)!r}, 'a') as file:\n"
        "            print(event, *arguments[1:] if event == 'socket.connect' else arguments, file=file)\n"
        "sys.addaudithook(note)\n"
        "from streamlit.web.cli import main\n"
        f"sys.argv = ['streamlit', 'run', {str(APP)!r}, '--server.port', sys.argv[1]]\n"
        "main()\n"
    )
    with serving([sys.executable, launcher], folder, folder / "trinity.db") as address:
        yield address, asked


@pytest.mark.process
def test_no_request_from_elsewhere_makes_the_server_ask_anybody(watched: tuple[str, Path]) -> None:
    address, asked = watched
    own = urlsplit(address).netloc
    for origin in ("http://attacker.example", "http://127.0.0.2:9999", "null"):
        status(address, "/_stcore/stream", f"Host: {own}", f"Origin: {origin}", *WEBSOCKET)
    elsewhere = [line for line in asked.read_text().splitlines() if "127.0.0.1" not in line]
    assert not elsewhere


def test_trinity_ui_has_the_same_doors_and_stops_without_a_word(served: Served, tmp_path: Path) -> None:
    command: list[str | Path] = [forked("trinity"), "ui", "--store", f"{served.store.url}?mode=ro", "--port"]
    with serving(command, tmp_path) as address:
        own = urlsplit(address).netloc
        assert status(address, "/", f"Host: {own}") == 200
        assert status(address, "/", "Host: attacker.example") == 403
        assert status(address, "/_stcore/stream", f"Host: {own}", f"Origin: http://{own}", *WEBSOCKET) == 101
        foreign = (f"Host: {own}", "Origin: http://localhost:9999")
        assert status(address, "/_stcore/stream", *foreign, *WEBSOCKET) == 403
    said = (tmp_path / "server.log").read_text().splitlines()
    assert said == [f"Trinity Inspector on {address}  (Ctrl-C stops it)"]


def test_every_answer_forbids_frames_foreign_sources_and_guesses(served: Served) -> None:
    asset = next(
        (Path(httpx.__file__).parents[1] / "streamlit" / "static" / "static" / "js").glob("index.*.js")
    )
    with httpx.Client(base_url=served.address, timeout=60) as client:
        answers = [
            client.get("/"),
            client.get("/replay"),
            client.get(f"/static/js/{asset.name}"),
            client.get("/_stcore/health"),
            client.get("/media/gone.csv"),
            client.get("/", headers={"Host": "attacker.example"}),
        ]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 404, 403]
    for answer in answers:
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        policy = dict(
            part.strip().split(" ", 1) for part in answer.headers["Content-Security-Policy"].split(";")
        )
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert policy["connect-src"] == "'self'"
        assert not any("http" in sources or "*" in sources for sources in policy.values())
        assert "unsafe" not in policy["script-src"]


def named(pattern: str, address: str) -> str:
    """The pattern with the server's own port."""
    return pattern.format(port=urlsplit(address).port)


def status(address: str, path: str, *headers: str) -> int:
    """The status of the answer to a request with exactly these headers."""
    parts = urlsplit(address)
    request = "\r\n".join([f"GET {path} HTTP/1.1", *headers, "", ""])
    with socket.create_connection((parts.hostname, parts.port), timeout=60) as connection:
        connection.sendall(request.encode())
        return int(connection.makefile("rb").readline().split()[1])
