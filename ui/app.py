"""The web app as one ASGI application: the pages of `frame.py` and the endpoint under /v1, behind `middleware.py`.

`trinity ui` runs it; so do `streamlit run ui/app.py` and any ASGI server that is given `ui.app:app`.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from core.errors import TrinityError
from core.settings import LOCAL_ENGINE
from ui.program import LOCAL_NAMES
from ui.runs.queue import stand_by
from ui.web.middleware import OwnPageOnly, PageBegins

if TYPE_CHECKING:
    from ui.endpoint.service import Service


@cache
def _service() -> Service:
    """The endpoint's own part, made when it is first asked: opening the app loads nothing of it."""
    from storage.store import open_store
    from ui.endpoint.service import Service
    from ui.endpoint.tiers import read_endpoint
    from ui.runs import wiring
    from ui.runs.settings import absolute_pool

    chosen = wiring.settings()
    endpoint = read_endpoint(None, chosen.data_folder)
    inspector = endpoint.inspector or f"http://127.0.0.1:{chosen.port}"
    return Service(
        open_store(chosen.store),
        absolute_pool(chosen.pool),
        replace(endpoint, inspector=inspector, engine=LOCAL_ENGINE),  # a lost cluster would end the app, too
        chosen.encoder,
        chosen.max_cost_usd,
        needs_ceiling=True,
        computing=chosen.computing,
    )


@cache
def _endpoint() -> ASGIApp:
    from ui.endpoint.api import endpoint_app

    # Streamlit's own default is to listen everywhere.
    local = st.get_option("server.address") in LOCAL_NAMES
    return endpoint_app(_service(), local=local, needs_key=not local)


async def endpoint(scope: Scope, receive: Receive, send: Send) -> None:
    """The endpoint, on this machine's own address only."""
    from ui.endpoint.errors import ApiError

    try:
        app = _endpoint()
    except TrinityError as error:
        refusal = ApiError(503, str(error), "server_error", "not_ready")
        await refusal.response()(scope, receive, send)
        return
    await app(scope, receive, send)


@asynccontextmanager
async def _lifespan(_: st.App) -> AsyncIterator[None]:
    """Load what the first page needs while the browser is still on its way."""
    # Only now: two threads that import Streamlit's server at once could each see half of it.
    threading.Thread(target=import_module, args=("ui.web.kit.widgets",), daemon=True).start()
    stand_by.allow()
    yield
    stand_by.close()
    if _service.cache_info().currsize:
        await run_in_threadpool(_service().close)


app = st.App(
    Path(__file__).parent / "web" / "frame.py",
    lifespan=_lifespan,
    routes=[Mount("/v1", endpoint)],
    middleware=[Middleware(OwnPageOnly), Middleware(PageBegins)],
)
