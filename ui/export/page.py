"""A self-contained HTML page of one episode or of a pair: no script, no request, every foreign text escaped once.

Escaping happens in one place: whatever a template prints goes through `ui.theme.plain`, which makes hidden
characters visible, and then through Jinja's escape. Styles are inline and a policy in the page forbids the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from core.comparison import RULE, RULE_IN_SHORT
from core.episode import ROLE_ORDER
from storage.summaries import EpisodeSummary
from ui.course import cells
from ui.export import told
from ui.export.played import Played
from ui.figures import role_word
from ui.labelling import where, words
from ui.odds import options
from ui.panels import HARD_CUT, seconds
from ui.spending import dollars
from ui.theme import (
    FLAG_WORDS,
    correct_mark,
    model_colour,
    one_line,
    plain,
)
from ui.widgets import strip_text, who

TEMPLATES = Path(__file__).parent / "templates"

#: What a model was sent repeats what was said before it: of each message this much is kept.
SAW_CUT = 20_000

#: Differences between aligned turns, in words.
ROW_WORDS = {
    0: "same model, same role",
    1: "same role, another model",
    2: "same model, another role",
    3: "a turn only one side has",
}


def episode_page(played: Played) -> str:
    """The page of one episode; its turns have the anchors `#t1`, `#t2` and so on."""
    return _environment().get_template("episode.html").render(one=played, strip=_strip(played))


def pair_page(a: Played, b: Played) -> str:
    """The page of two episodes side by side, aligned; its rows have the anchors `#r1`, `#r2` and so on."""
    alignment = told.aligned(a, b)
    strips = (_strip(a), _strip(b))
    return (
        _environment()
        .get_template("pair.html")
        .render(
            a=a, b=b, strips=strips, alignment=alignment, rule=f"{RULE_IN_SHORT} {RULE}", row_words=ROW_WORDS
        )
    )


def index_page(summaries: Sequence[EpisodeSummary], title: str) -> str:
    """The page that leads to the pages of several episodes lying beside it as `ID.html`."""
    return _environment().get_template("index.html").render(title=title, episodes=summaries)


def _strip(played: Played) -> object:
    return cells(played.outlines, played.episode.models, running=played.running)


def visible(value: object) -> object:
    """What a template prints: text with everything hidden in it shown, our own markup as it is."""
    if isinstance(value, Markup):
        return value
    return "" if value is None else plain(str(value))


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        finalize=visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.globals |= {
        "told": told,
        "options": options,
        "roles": [role_word(role) for role in ROLE_ORDER],
        "role_word": role_word,
        "correct_mark": correct_mark,
        "flag_words": FLAG_WORDS,
        "model_colour": model_colour,
        "one_line": one_line,
        "label_words": words,
        "label_where": where,
        "seconds": seconds,
        "dollars": dollars,
        "strip_text": strip_text,
        "who": who,
        "reply_cut": HARD_CUT,
        "saw_cut": SAW_CUT,
    }
    return made
