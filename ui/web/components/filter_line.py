"""The filter line: a text field for one filter expression that completes fields, signs and values as one types.

A Streamlit component (version 2). The text goes down as data and comes up, when Enter is pressed, as a trigger.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from storage.filters.parser import LONGEST_EXPRESSION
from storage.filters.vocabulary import FIELDS
from ui.web.components import component
from ui.web.kit import state

_HTML = """
<div class="line">
  <span class="icon" aria-hidden="true">ƒ</span>
  <input type="text" spellcheck="false" autocomplete="off" autocapitalize="off" role="combobox"
    aria-autocomplete="list" aria-expanded="false" aria-controls="offers" aria-label="Filter expression">
  <button type="button" class="clear" aria-label="Clear the filter" hidden>×</button>
</div>
<ul id="offers" role="listbox" aria-label="Suggestions" hidden></ul>
"""


def filter_line(
    value: str,
    known: Mapping[str, Sequence[str]],
    on_submit: Callable[[str], None],
    *,
    key: str,
    placeholder: str,
    wrong: bool = False,
) -> None:
    """Draw the line holding `value`; Enter calls `on_submit(text)` before the rerun.

    `known` has values to offer for text fields, by field name; those of the other fields are the language's own.
    """

    def submitted() -> None:
        text = state.reported(key, "submit")
        if isinstance(text, str):
            on_submit(text[: LONGEST_EXPRESSION + 1])

    component("filter_line", _HTML)(
        key=key,
        data={
            "value": value,
            "placeholder": placeholder,
            "longest": LONGEST_EXPRESSION + 1,
            "wrong": wrong,
            "fields": [
                {
                    "name": one.name,
                    "kind": one.kind,
                    "words": one.words,
                    "values": list(known.get(one.name, one.choices if one.kind in ("choice", "set") else ())),
                }
                for one in FIELDS.values()
            ],
        },
        on_submit_change=submitted,
    )
