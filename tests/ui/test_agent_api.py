"""Programs that use the pages without a browser, by `trinity ui --agent-api`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import httpx

from tests.browsing import serving
from tests.ui.conftest import Served

#: Starts the app by its own command; a port follows.
WITH_AGENT_API = [sys.executable, "-c", "import sys; from ui.cli import main; sys.exit(main())", "ui"]


def test_a_program_reads_every_page_and_presses_a_button(served: Served, tmp_path: Path) -> None:
    episode = served.store.episodes.page(limit=1).items[0].id
    command = [*WITH_AGENT_API, "--store", served.store.url, "--agent-api", "--port"]
    with serving(command, tmp_path) as address, httpx.Client(base_url=address, timeout=60) as client:
        seen = interact(client)
        pages = {page["url_path"]: page for page in seen["pages"]}
        assert {"", "episodes", "checkpoints", "policy", "forks", "settings"} <= set(pages)
        for url_path in pages:
            read = interact(client, page=url_path)
            assert read["status"] == "ready", read
            assert '"type": "exception"' not in json.dumps(read["tree"])
        replay = interact(client, page="replay", query_params={"ep": [episode], "t": ["1"]})
        assert "Turn 1 of" in json.dumps(replay["tree"])
        stepped = interact(client, session_id=replay["session_id"], trigger={"key": "step_next"})
        assert "Turn 2 of" in json.dumps(stepped["tree"])


def test_without_the_option_there_is_no_such_door(served: Served) -> None:
    refused = httpx.post(f"{served.address}/_stcore/agent/interact", json={}, timeout=60)
    assert refused.json()["error"]["code"] == "not_available"


def interact(client: httpx.Client, **asked: object) -> dict[str, Any]:
    """The app after what was asked of it."""
    told = dict(client.post("/_stcore/agent/interact", json=asked).json())
    assert "error" not in told, told
    return told
