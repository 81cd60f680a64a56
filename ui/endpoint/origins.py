"""Where a request comes from, as a browser tells: under which name it asked, and whether a page of another place sent
it. A page from elsewhere reaches a server of this machine through its reader's own browser."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope

from ui.program import LOCAL_NAMES


def asked_by_name(headers: Headers, names: Collection[str] = LOCAL_NAMES) -> bool:
    """Whether the request names the server by one of its names, once, and without anything around it."""
    hosts = headers.getlist("host")
    return len(hosts) == 1 and _parts(hosts[0])[0] in names


def asked_by_port(headers: Headers, scope: Scope) -> bool:
    """Whether the port that the request names, if any, is the one that it came to."""
    port = _parts(headers.get("host", ""))[1]
    server = scope.get("server")
    return port is None or server is None or server[1] is None or port == server[1]


def from_own_page(scope: Scope, headers: Headers) -> bool:
    """Whether no page of another place sent the request: neither its Origin nor what a browser says of the site tells
    of one. A reader who follows a link to a page comes from anywhere; a websocket always has an Origin."""
    origins = headers.getlist("origin")
    host = headers.get("host", "")
    if origins not in ([f"http://{host}"], [f"https://{host}"]) and (origins or scope["type"] == "websocket"):
        return False
    sites = headers.getlist("sec-fetch-site")
    return all(site in ("same-origin", "none") for site in sites) or _follows_link(scope, headers)


def _follows_link(scope: Scope, headers: Headers) -> bool:
    return (
        scope.get("method") in ("GET", "HEAD")
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
    )


def _parts(host: str) -> tuple[str | None, int | None]:
    """The name and the port in a Host header; no name for what is no host."""
    try:
        parts = urlsplit(f"//{host}")
        name, port = parts.hostname, parts.port  # a ValueError when it is no number
    except ValueError:
        return None, None
    whole = parts.netloc == host and "@" not in host and not host.endswith(":")
    return (name, port) if whole and name else (None, None)
