"""A Hugging Face hub on loopback: a real HTTP server with the few routes by which a snapshot of a model is fetched."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest
from huggingface_hub import constants
from huggingface_hub.utils.tqdm import disable_progress_bars, enable_progress_bars

_MODEL = re.compile(r"/api/models/(?P<id>[^/]+/[^/]+)(?:/revision/(?P<revision>[^/?]+))?")
_TREE = re.compile(r"/api/models/(?P<id>[^/]+/[^/]+)/tree/(?P<revision>[^/?]+)")
_FILE = re.compile(r"/(?P<id>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<path>[^?]+)")


@dataclass
class Hub:
    """Models by their ids, each a list of folders: what it held at one commit after the other."""

    url: str
    models: dict[str, list[Path]] = field(default_factory=dict)
    gated: set[str] = field(default_factory=set)
    #: From a file that ends so it sends half, then nothing more to anybody.
    dies_in: str = ""
    dead: bool = False
    requests: list[str] = field(default_factory=list)

    def commit(self, model: str, number: int = -1) -> str:
        """The commit of one of a model's states."""
        return hashlib.sha1(str(self.models[model][number]).encode(), usedforsecurity=False).hexdigest()

    def folder(self, model: str, revision: str | None) -> tuple[str, Path] | None:
        """The commit that a revision means, and its folder."""
        commits = {self.commit(model, n): one for n, one in enumerate(self.models.get(model, []))}
        if revision in (None, "main"):
            return [*commits.items()][-1] if commits else None
        return (revision, commits[revision]) if revision in commits else None


@contextmanager
def loopback_hub(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Serve until the block ends, as the hub of this process, whose cache is the folder given."""

    class Answer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            hub.requests.append(f"{self.command} {self.path}")
            path = unquote(self.path)
            if hub.dead:
                self.close_connection = True
            elif tree := _TREE.match(path):
                self._tree(tree["id"], tree["revision"])
            elif about := _MODEL.match(path):
                self._about(about["id"], about["revision"])
            elif file := _FILE.match(path):
                self._file(file["id"], file["revision"], file["path"])
            else:
                self._refuse(404, "")

        do_HEAD = do_GET

        def _about(self, model: str, revision: str | None) -> None:
            found = hub.folder(model, revision)
            if model not in hub.models:
                self._refuse(401, "")  # as the hub does: it may be private
            elif found is None:
                self._refuse(404, "RevisionNotFound")
            else:
                names = [{"rfilename": one.name} for one in sorted(found[1].iterdir())]
                self._send(json.dumps({"id": model, "sha": found[0], "siblings": names}).encode())

        def _tree(self, model: str, revision: str) -> None:
            if (found := hub.folder(model, revision)) is None:
                self._refuse(404, "RevisionNotFound")
                return
            files = [
                {"type": "file", "path": one.name, "size": one.stat().st_size, "oid": _digest(one)}
                for one in sorted(found[1].iterdir())
            ]
            self._send(json.dumps(files).encode())

        def _file(self, model: str, revision: str, name: str) -> None:
            found = hub.folder(model, revision)
            if model in hub.gated:
                self._refuse(403, "GatedRepo")
            elif found is None or not (file := found[1] / name).is_file():
                self._refuse(404, "EntryNotFound")
            else:
                self._send(file.read_bytes(), name, {"ETag": f'"{_digest(file)}"', "X-Repo-Commit": found[0]})

        def _refuse(self, status: int, code: str) -> None:
            self._send(b"", status=status, headers={"X-Error-Code": code} if code else {})

        def _send(
            self, body: bytes, name: str = "", headers: dict[str, str] | None = None, status: int = 200
        ) -> None:
            self.send_response(status)
            for key, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "HEAD":
                return
            if hub.dies_in and name.endswith(hub.dies_in):
                body, hub.dead, self.close_connection = body[: len(body) // 2], True, True
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    server.daemon_threads = True
    hub = Hub(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    # As in a process that read HF_ENDPOINT, HF_HUB_CACHE, HF_HUB_OFFLINE and HF_HUB_DISABLE_PROGRESS_BARS for itself.
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    disable_progress_bars()
    try:
        yield hub
    finally:
        enable_progress_bars()
        server.shutdown()
        thread.join()
        server.server_close()


def _digest(file: Path) -> str:
    return hashlib.sha1(file.read_bytes(), usedforsecurity=False).hexdigest()
