"""The app shell: what the frame of every page does in the browser, beyond what Streamlit does by itself.

One act of the reader's is one step of the browser's history: Streamlit pushes an entry for every change of the query,
and going to another page changes the query first, on the page that is left. Esc in a field leaves the field, not the
page. On a narrow screen, where the menu covers the page, choosing a page closes it.
"""

from __future__ import annotations

from ui.web.components import component


def shell() -> None:
    """Draw it, once in every run of the app: nothing is to be seen of it."""
    component("shell", "")(key="shell")
