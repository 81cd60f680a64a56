"""`trinity ui`: the app in a browser, on this machine only."""

from __future__ import annotations

import os
import socket
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from ui.cli.console import StoreOption, say

ADDRESS = "127.0.0.1"
APP = Path(__file__).resolve().parents[1] / "app.py"


def ui(
    store: StoreOption = None,
    port: Annotated[int | None, typer.Option(help="Port on 127.0.0.1. Else TRINITY_PORT, else 8501.")] = None,
    agent_api: Annotated[
        bool,
        typer.Option(
            "--agent-api",
            help="Let programs on this machine read and use the pages over HTTP, also as an MCP server at "
            "/_stcore/agent/mcp. They may do what a reader may. Streamlit calls this experimental.",
        ),
    ] = False,
) -> None:
    """Open the app on http://127.0.0.1:8501. The first start imports the sample runs; stop it with Ctrl-C.

    It listens on this machine only and sends nothing anywhere.

    [dim]$[/] trinity ui --port 8600 --store ./experiments.db
    """
    from core.errors import ConfigError
    from storage.store import open_store
    from ui import wiring

    settings = wiring.settings(store=store, port=port)
    if port_in_use(settings.port):
        raise ConfigError(
            f"Port {settings.port} on {ADDRESS} is in use: stop that program or choose another with --port."
        )
    opened = open_store(settings.store)
    if wiring.wants_samples(opened, settings):
        say("Importing the sample runs (first start only) ...")
        wiring.import_samples(opened, settings)
    opened.close()
    say(f"Trinity Inspector on http://{ADDRESS}:{settings.port}  (Ctrl-C stops it)")
    options = {
        "server.address": ADDRESS,
        "server.port": str(settings.port),
        "server.headless": "true",
        "server.enableAgentApi": str(agent_api).lower(),
        "browser.gatherUsageStats": "false",
        "logger.hideWelcomeMessage": "true",
    }
    os.environ |= {"TRINITY_STORE": settings.store, "TRINITY_POOL": settings.pool}
    sys.argv = ["streamlit", "run", str(APP), *(f"--{name}={value}" for name, value in options.items())]
    from streamlit.web.cli import main

    # Only now: two threads that import Streamlit at once could each see half of it.
    threading.Thread(target=import_module, args=("ui.widgets",), daemon=True).start()  # for the first page
    main()  # in this process: what is imported already need not be again


def port_in_use(port: int) -> bool:
    """Whether another program listens on the port. A port that is only cooling down counts as free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ADDRESS, port))
        except OSError:
            return True
    return False
