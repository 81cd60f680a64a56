"""Opens pages of the app in AppTest and reads what they say."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest

from tests.ui.conftest import APP


def app() -> AppTest:
    """The app at its first page; the store is named by the environment."""
    return AppTest.from_file(str(APP), default_timeout=60)


def opened(name: str, **query: str) -> AppTest:
    """A page at an address, without an exception."""
    page = app().run()
    for key, value in query.items():
        page.query_params[key] = value
    page.switch_page(f"views/{name}.py").run()
    assert not page.exception
    return page


def shown(page: AppTest) -> str:
    """Everything the page says, in one string."""
    kinds = (
        page.title,
        page.subheader,
        page.markdown,
        page.caption,
        page.text,
        page.code,
        page.info,
        page.error,
    )
    words = [str(element.value) for kind in kinds for element in kind]
    return "\n".join(
        [*words, *(button.label for button in page.button), *(link.value for link in page.page_link)]
    )
