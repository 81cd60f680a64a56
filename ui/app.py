"""The web app as one ASGI application: the pages of `frame.py` behind the checks of `middleware.py`.

`trinity ui` runs it; so do `streamlit run ui/app.py` and any ASGI server that is given `ui.app:app`.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path

import streamlit as st
from starlette.middleware import Middleware

from ui.web.middleware import OwnPageOnly, PageKnowsItsServer


@asynccontextmanager
async def _lifespan(_: st.App) -> AsyncIterator[None]:
    """Load what the first page needs while the browser is still on its way."""
    # Only now: two threads that import Streamlit's server at once could each see half of it.
    threading.Thread(target=import_module, args=("ui.web.kit.widgets",), daemon=True).start()
    yield


app = st.App(
    Path(__file__).parent / "web" / "frame.py",
    lifespan=_lifespan,
    middleware=[Middleware(OwnPageOnly), Middleware(PageKnowsItsServer)],
)
