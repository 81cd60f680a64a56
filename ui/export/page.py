"""A self-contained HTML page of one episode or of a pair: no script, no request, every foreign text escaped once.

Escaping happens in one place: whatever a template prints goes through `ui.presentation.theme.plain`, which makes hidden
characters visible, and then through Jinja's escape. Styles are inline and a policy in the page forbids the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from core.analysis.comparison import RULE, RULE_IN_SHORT
from core.episode import ROLE_ORDER
from storage.rows.summaries import EpisodeSummary
from ui.export import facts
from ui.export.played import PlayedEpisode
from ui.presentation.comparison import ALIGNMENT_WORDS
from ui.presentation.course import cells
from ui.presentation.odds import alternatives, choice_words, options
from ui.presentation.theme import FLAG_WORDS, correct_mark, model_colour, one_line, percent, plain
from ui.presentation.words import (
    HARD_CUT,
    dollars,
    label_words,
    policy_name,
    role_word,
    seconds,
    strip_text,
)

TEMPLATES = Path(__file__).parent / "templates"

#: Prompts repeat the replies before them: each message is cut to this many characters.
PROMPT_CUT = 20_000


def episode_page(played: PlayedEpisode) -> str:
    """The page of one episode; its turns have the anchors `#t1`, `#t2` and so on."""
    return environment().get_template("episode.html").render(one=played, strip=_strip(played))


def pair_page(a: PlayedEpisode, b: PlayedEpisode) -> str:
    """The page of two episodes side by side, aligned; its rows have the anchors `#r1`, `#r2` and so on."""
    alignment = facts.aligned_turns(a, b)
    strips = (_strip(a), _strip(b))
    return (
        environment()
        .get_template("pair.html")
        .render(
            a=a,
            b=b,
            strips=strips,
            alignment=alignment,
            rule=f"{RULE_IN_SHORT} {RULE}",
            row_words=ALIGNMENT_WORDS,
        )
    )


def index_page(summaries: Sequence[EpisodeSummary], title: str) -> str:
    """The page that leads to the pages of several episodes lying beside it as `ID.html`."""
    return environment().get_template("index.html").render(title=title, episodes=summaries)


def _strip(played: PlayedEpisode) -> object:
    return cells(played.outlines, played.episode.models, running=played.running)


def printed(value: object) -> object:
    """What a template prints: text with everything hidden in it shown, our own markup as it is."""
    if isinstance(value, Markup):
        return value
    return "" if value is None else plain(str(value))


@cache
def environment() -> Environment:
    """What renders the templates: it escapes all that they print."""
    made = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        finalize=printed,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.globals |= {
        "facts": facts,
        "alternatives": alternatives,
        "choice_words": choice_words,
        "percent": percent,
        "options": options,
        "roles": [role_word(role) for role in ROLE_ORDER],
        "role_word": role_word,
        "correct_mark": correct_mark,
        "flag_words": FLAG_WORDS,
        "model_colour": model_colour,
        "one_line": one_line,
        "label_words": label_words,
        "seconds": seconds,
        "dollars": dollars,
        "strip_text": strip_text,
        "policy_name": policy_name,
        "reply_cut": HARD_CUT,
        "prompt_cut": PROMPT_CUT,
    }
    return made
