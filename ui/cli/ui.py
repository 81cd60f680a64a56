"""`trinity ui`: the app in a browser, on this machine only."""

from __future__ import annotations

import logging
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from core.errors import ConfigError
from ui.cli.console import say
from ui.cli.options import StoreOption

ADDRESS = "127.0.0.1"
APP = Path(__file__).resolve().parents[1] / "app.py"


def ui(
    store: StoreOption = None,
    port: Annotated[int | None, typer.Option(help="Port on 127.0.0.1. Else TRINITY_PORT, else 8501.")] = None,
    samples: Annotated[
        bool, typer.Option(help="Import the recorded sample runs into a store that never had them.")
    ] = True,
) -> None:
    """Open the app on http://127.0.0.1:8501. The first start imports the sample runs; stop it with Ctrl-C.

    It listens on this machine only and sends nothing anywhere.

    [dim]$[/] trinity ui --port 8600 --store ./experiments.db
    """
    from storage.store import open_store
    from ui.runs import wiring

    settings = wiring.settings(store=store, port=port)
    check_port(settings.port)
    opened = open_store(settings.store)
    if samples and wiring.wants_samples(opened, settings):
        say("Importing the sample runs (first start only) ...")
        wiring.import_samples(opened, settings)
    opened.close()
    say(f"Trinity Inspector on http://{ADDRESS}:{settings.port}  (Ctrl-C stops it)")
    options = {
        "server.address": ADDRESS,
        "server.port": settings.port,
        "server.headless": True,
        "browser.gatherUsageStats": False,
        "logger.hideWelcomeMessage": True,
    }
    os.environ |= {"TRINITY_STORE": settings.store, "TRINITY_POOL": settings.pool}
    os.environ["TRINITY_PORT"] = str(settings.port)  # the endpoint tells where its episodes can be seen
    from ui.app import app

    sys.argv = [str(APP)]  # beside it Streamlit looks for its configuration
    # uvicorn tells of its start and of every refused request; the address is told above.
    logging.getLogger("uvicorn.error").addFilter(lambda record: record.levelno >= logging.WARNING)
    with suppress(KeyboardInterrupt):  # raised again once the server has stopped in order
        app.run(config=options)


def check_port(port: int, host: str = ADDRESS) -> None:
    """ConfigError when another program listens on the port. A port that is only cooling down counts as free."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            raise ConfigError(
                f"Port {port} on {host} is in use: stop that program or choose another with --port."
            ) from None
