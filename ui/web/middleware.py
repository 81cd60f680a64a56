"""Who may use the web server: only its own page, under a name of this machine; every answer forbids the rest.

Beside it the page is told from its first byte what it would otherwise learn while it is drawn, and move: its style, the
parts of Streamlit's script that pages are made of, and where its server is, which that script would find out by asking
below the page's own address first, where nothing answers.

A page from elsewhere reaches a server on 127.0.0.1 through the reader's own browser: under a name of its own that it
lets point here (DNS rebinding), by a websocket, to which browsers apply no same-origin rule, or inside a frame.
Streamlit looks at the Host of websockets only, lets in the origins of all local ports, and asks the internet for this
machine's address before it refuses a foreign one; hence all is decided here, before Streamlit sees a request.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

import streamlit as st
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from ui.endpoint.guard import asked_by_name, from_own_page
from ui.program import LOCAL_NAMES

#: What Streamlit's server hands to browsers.
_STATIC = Path(st.__file__).parent / "static"
#: The pages with filters in a bar at their side.
FILTERED = ("episodes", "policy")
#: How every page looks from its first byte.
STYLE = Path(__file__).parents[1] / "assets" / "page.css"
#: What says on the page's root what the style asks about its parts.
MARKS = STYLE.with_name("marks.js")
#: What most pages are made of. Fetched only when first drawn, each would stand there as a bar of another height before.
_PARTS = """
    Selectbox Multiselect TextInput NumberInput ButtonGroup Button PageLink Checkbox Slider Metric DownloadButton
    BidiComponent DataFrame ImageList StreamlitSyntaxHighlighter
"""


class OwnPageOnly:
    """Passes requests on that name this machine and come from no other page; refuses others with 403.

    A request without Origin is no page's and passes, but for a websocket: every browser sends one there.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        # `server.allowedHosts` of Streamlit's configuration names other ways to call it.
        self._names = frozenset(st.get_option("server.allowedHosts") or LOCAL_NAMES)
        self._headers = {
            "Content-Security-Policy": content_security_policy(),
            "X-Frame-Options": "DENY",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request or websocket, or hand it on."""
        if scope["type"] not in ("http", "websocket"):  # the server's own start and stop
            await self._app(scope, receive, send)
            return

        websocket = scope["type"] == "websocket"

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._headers)
            await send(message)

        app = self._app
        if refusal := self._refusal(scope, Headers(scope=scope)):
            # A websocket closed before it is accepted is answered 403, too.
            app = WebSocketClose() if websocket else PlainTextResponse(refusal, status_code=403)
        await app(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope, headers: Headers) -> str | None:
        if not asked_by_name(headers, self._names):
            return "This server is not known under this name: open it as http://127.0.0.1 with its port.\n"
        if not from_own_page(scope, headers):
            return "Only this server's own page may ask this.\n"
        return None


def content_security_policy() -> str:
    """What a page may load: this server's own files and what it made itself, nothing from anywhere else."""
    policy = {
        "default-src": "'none'",
        # Streamlit wraps the script of a custom component into a blob; its own page holds one inline script.
        "script-src": f"'self' blob: {_inline_scripts()}",
        "style-src": "'self' 'unsafe-inline'",  # styled components and figures write style elements
        "img-src": "'self' data: blob:",
        "font-src": "'self' data:",
        "connect-src": "'self'",
        "worker-src": "'self' blob:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return "; ".join(f"{what} {whence}" for what, whence in policy.items())


def _inline_scripts() -> str:
    """The hashes of the scripts that stand in the page, Streamlit's and ours, by which a policy allows just these."""
    page = (_STATIC / "index.html").read_bytes()
    scripts = [*re.findall(rb"<script>(.*?)</script>", page, re.S), _first_script()]
    hashes = [hashlib.sha256(script).digest() for script in scripts]
    return " ".join(f"'sha256-{base64.b64encode(one).decode()}'" for one in hashes)


class PageBegins:
    """Writes our style and the first script into the page, before Streamlit's own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._head = b"<style>" + STYLE.read_bytes() + b"</style><script>" + _first_script() + b"</script>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on; only an HTML page that a browser asks for is changed."""
        if scope["type"] != "http" or "text/html" not in Headers(scope=scope).get("accept", ""):
            await self._app(scope, receive, send)
            return
        # Uncompressed: a compressed page could not be written into.
        plain = {**scope, "headers": [pair for pair in scope["headers"] if pair[0] != b"accept-encoding"]}
        start: Message | None = None
        page = b""

        async def send_page(message: Message) -> None:
            nonlocal start, page
            if message["type"] == "http.response.start":
                headers = Headers(raw=message["headers"])
                is_html = headers.get("content-type", "").startswith("text/html")
                if is_html and "content-encoding" not in headers:
                    start = message
                    return
            if start is None or message["type"] != "http.response.body":
                await send(message)
                return
            page += message.get("body", b"")
            if message.get("more_body", False):
                return
            page = page.replace(b"<head>", b"<head>" + self._head, 1)
            changed = MutableHeaders(scope=start)
            if page:  # else HEAD was asked
                changed["content-length"] = str(len(page))
            await send(start)
            await send({"type": "http.response.body", "body": page})
            start = None

        await self._app(plain, receive, send_page)


def _first_script() -> bytes:
    """The script that names the server, where the page comes from, below `server.baseUrlPath` if that is set
    (`window.__streamlit` is Streamlit's own hook for whoever hosts a page elsewhere), fetches the parts, on a page with
    filters keeps the place of the bar at its side until that is there, and says on the page's root what the style asks
    about its parts."""
    below = str(st.get_option("server.baseUrlPath") or "").strip("/")
    path = f' + "/{below}"' if below else ""
    folder = _STATIC / "static" / "js"
    parts = json.dumps(
        [found.name for part in _PARTS.split() for found in sorted(folder.glob(f"{part}.*.js"))]
    )
    return (
        f"window.__streamlit = {{ BACKEND_BASE_URL: location.origin{path} }};"
        'addEventListener("DOMContentLoaded", () => {'
        f"for (const part of {parts}) import(`${{window.__streamlit.BACKEND_BASE_URL}}/static/js/${{part}}`); }});"
        f"if ({json.dumps(FILTERED)}.includes(location.pathname.split('/').pop())) "
        "document.documentElement.dataset.filtered = '';"
    ).encode() + MARKS.read_bytes()
