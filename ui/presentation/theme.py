"""The one visual language: a colour per model slot, letter and shape per role, icon and word per verdict.

Nothing is shown by colour alone. Text that a model or a task file wrote reaches the page only through `plain`
(as text) or `label` (inside our own markdown), never as markdown of its own.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from core.episode import AnswerRule, EndReason, Flag, Role, Status, Verdict
from storage.rows.summaries import RunStatus

#: Okabe and Ito's colour-blind-safe palette, its yellow darkened and its black made grey so that every colour
#: is visible on the light and on the dark page; then eight for larger pools, as far from all before them as they can
#: be for readers with and without colour blindness. One colour per pool slot, in slot order.
MODEL_COLOURS: tuple[str, ...] = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#56B4E9",
    "#CC79A7",
    "#6B7280",
    "#B8A100",
    "#2B2BEE",
    "#A50D27",
    "#2B6CEE",
    "#A7B464",
    "#7B8FF4",
    "#783A78",
    "#732EB8",
    "#B85C2E",
)
UNKNOWN_COLOUR = "#9AA3AF"

#: Tol's bright palette, lengthened by two, for classes that are not models, so that no colour means both.
CLASS_COLOURS: tuple[str, ...] = (
    "#4477AA",
    "#EE6677",
    "#228833",
    "#CCBB44",
    "#66CCEE",
    "#AA3377",
    "#EE7733",
    "#7C5CBF",
)
#: Plotly symbols of classes, beside their colours. Circle, square and triangle are roles.
CLASS_SYMBOLS: tuple[str, ...] = (
    "diamond",
    "cross",
    "star",
    "x",
    "pentagon",
    "hourglass",
    "diamond-open",
    "cross-open",
    "star-open",
    "x-open",
    "pentagon-open",
    "hourglass-open",
)

RIGHT_COLOUR = "#0B8A56"
WRONG_COLOUR = "#C2410C"
NEUTRAL_COLOUR = "#8894A5"
WARN_COLOUR = "#B85C00"
#: The first and the second of two, such as A and B, or this store and the paper: readable on both pages.
FIRST_COLOUR, SECOND_COLOUR = "#3375D0", "#C77700"

#: For Plotly heat maps that must look the same on both pages: probability (0 to 1) and signed difference.
PROBABILITY_SCALE = [
    [0.0, "rgba(51,117,208,0.04)"],
    [0.5, "rgba(51,117,208,0.45)"],
    [1.0, "rgba(51,117,208,1)"],
]
DIFFERENCE_SCALE = [[0.0, WRONG_COLOUR], [0.5, "rgba(136,148,165,0.10)"], [1.0, FIRST_COLOUR]]


@dataclass(frozen=True, slots=True)
class RoleStyle:
    """How a role is drawn: `letter` and `shape` (a character) in text, `symbol` in Plotly."""

    letter: str
    word: str
    shape: str
    symbol: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A state as it is shown: `glyph` in plain text and charts, `icon` in Streamlit, `word` beside them.
    `tone` is a Streamlit text colour name, `colour` the same idea for charts."""

    glyph: str
    icon: str
    word: str
    tone: str
    colour: str


ROLE_STYLES: dict[Role, RoleStyle] = {
    Role.THINKER: RoleStyle("T", "Thinker", "●", "circle"),
    Role.WORKER: RoleStyle("W", "Worker", "■", "square"),
    Role.VERIFIER: RoleStyle("V", "Verifier", "▲", "triangle-up"),
}
ROLE_COLOURS = {Role.THINKER: "#7C5CBF", Role.WORKER: "#0E8A8A", Role.VERIFIER: WARN_COLOUR}

ACCEPT = Mark("✓", ":material/check_circle:", "Accept", "green", RIGHT_COLOUR)
REVISE = Mark("↻", ":material/restart_alt:", "Revise", "orange", WARN_COLOUR)
SAME = replace(ACCEPT, word="Answered the same")
ITSELF = replace(ACCEPT, word="The same reply")
DIFFERENT = replace(REVISE, word="Answered differently")
UNREADABLE = Mark("?", ":material/help:", "Unreadable", "orange", WARN_COLOUR)

RIGHT = Mark("●", "●", "right", "green", RIGHT_COLOUR)
WRONG = Mark("✕", "✕", "wrong", "red", WRONG_COLOUR)
NOT_JUDGED = Mark("·", "·", "not judged", "gray", NEUTRAL_COLOUR)

STATUS_MARKS: dict[Status, Mark] = {
    Status.RUNNING: Mark("▶", ":material/play_circle:", "running", "blue", FIRST_COLOUR),
    Status.FINISHED: Mark("■", ":material/task_alt:", "finished", "gray", NEUTRAL_COLOUR),
    Status.INTERRUPTED: Mark("‖", ":material/pause_circle:", "interrupted", "orange", WARN_COLOUR),
    Status.MISSING: Mark("∅", ":material/cloud_off:", "missing", "red", WRONG_COLOUR),
}

END_WORDS: dict[EndReason, str] = {
    EndReason.ACCEPTED: "accepted by a Verifier",
    EndReason.BUDGET: "turn budget spent",
    EndReason.VERIFIER_FIRST: "Verifier before any answer",
    EndReason.COMPLETED: "workflow run to its end",
    EndReason.UNREADABLE_PLAN: "no workflow could be read",
    EndReason.CANCELLED: "cancelled",
    EndReason.ERROR: "ended by an error",
    EndReason.DEADLINE: "out of time",
    EndReason.COST_CEILING: "cost ceiling reached",
    EndReason.TOOL_CALLS: "asks for tools to be called",
    EndReason.NOT_RECORDED: "no recorded reply",
}

#: What the shapes of the roles mean.
ROLES_LEGEND = "● thinks, ■ works, ▲ verifies"
#: How an answer was found, where it was not in the form that was asked for.
READ_BY: dict[AnswerRule | None, str] = {
    "pattern": "answer found by the task's pattern",
    "open tag": "answer tag never closed",
    "fence": "answer found in a block of code",
    "box": "answer found in \\boxed{}",
    "json": "answer found in JSON",
    "hashes": "answer found behind ####",
    "whole": "the whole reply is the answer",
    "sentence": "answer found in a sentence",
    "letter": "answer found as a lone letter",
    "bare": "a lone number is the answer",
    "conclusion": "answer found in the last line's conclusion",
}
FLAG_WORDS: dict[Flag, str] = {
    Flag.VERDICT_UNREADABLE: "verdict unreadable, counted as Revise",
    Flag.NOTHING_TO_JUDGE: "Verifier before any answer",
    Flag.NO_ANSWER: "no readable answer",
    Flag.NO_SUGGESTION: "no readable plan",
    Flag.TRUNCATED: "reply cut at its token limit",
    Flag.PROMPT_OVERFLOW: "transcript cut to fit the encoder",
    Flag.PROMPT_SHORTENED: "transcript shortened to fit the model's window",
    Flag.SELF_VERIFIED: "judged its own model's answer",
    Flag.MODEL_ERROR: "model failed",
    Flag.REFUSED: "would not answer",
    Flag.UNKNOWN_FINISH: "stopped for a reason that is not known",
    Flag.UNASKED_TOOL_CALL: "called a tool that nobody offered",
    Flag.FAILED_OVER: "could not be asked, or broke off: the turn does not count, and another call made it good",
    Flag.CONTINUED: "goes on where the reply before broke off, which the client had begun to read",
    Flag.REPAIRED: "written again in the form that was asked for: the turn does not count",
    Flag.REUSED: "reply that was there already, free of charge",
    Flag.RECORDED: "recorded reply to the bare question",
    Flag.BY_AGREEMENT: "verdict by comparing two recorded answers",
}
#: Of a verdict by comparing two recorded answers that are one and the same reply.
ALONE_WORDS = "no other model was asked to check its answer"
#: Of such a verdict by a rule that asks nobody else where it is sure.
SURE_WORDS = "its own answer was sure enough"
#: Of such a verdict after others had been asked.
CHOSEN_WORDS = "of several answers one was chosen"


def flag_words(flags: Collection[Flag]) -> list[str]:
    """What a turn's flags say, in their order; where answers were compared, no model has judged one."""
    known = FLAG_WORDS
    if Flag.BY_AGREEMENT in flags:
        known = FLAG_WORDS | {Flag.SELF_VERIFIED: ALONE_WORDS}
    return [known[flag] for flag in flags]


def model_colour(model: str, models: Sequence[str]) -> str:
    """The colour of `model`'s slot in `models` (head order); grey for a model that is not in the pool."""
    if model not in models:
        return UNKNOWN_COLOUR
    return MODEL_COLOURS[list(models).index(model) % len(MODEL_COLOURS)]


def ink_on(colour: str) -> str:
    """Black or white, whichever reads better on a #RRGGBB background (WCAG relative luminance)."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#000000" if (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05) else "#FFFFFF"


def verdict_mark(
    verdict: Verdict | None, *, unreadable: bool = False, compared: bool = False, itself: bool = False
) -> Mark | None:
    """The mark of a Verifier's verdict; None for a turn without one. `compared`: nobody judged, two recorded answers
    were compared; `itself`: both are one and the same reply."""
    if unreadable:
        return UNREADABLE
    if compared:
        return (
            {Verdict.ACCEPT: ITSELF if itself else SAME, Verdict.REVISE: DIFFERENT}.get(verdict)
            if verdict
            else None
        )
    return {Verdict.ACCEPT: ACCEPT, Verdict.REVISE: REVISE}.get(verdict) if verdict else None


def correct_mark(correct: bool | None) -> Mark:
    """Right, wrong, or not judged: an episode without an end, a turn without an answer."""
    return NOT_JUDGED if correct is None else RIGHT if correct else WRONG


def outcome_mark(status: Status, correct: bool | None) -> Mark:
    """How an episode ended: right, wrong or not judged; its status where it is not finished."""
    return correct_mark(correct) if status is Status.FINISHED else STATUS_MARKS[status]


def badge(mark: Mark) -> str:
    """A mark as Streamlit markdown: icon and word in its tone."""
    return f":{mark.tone}[{mark.icon} {mark.word}]"


_ESCAPE_NAMES = {"\u200b": "ZWSP", "\u200c": "ZWNJ", "\u200d": "ZWJ", "\ufeff": "BOM", "\u00ad": "SHY"}
#: Letters that draw nothing although Unicode does not call them control or format characters.
_BLANK_LETTERS = frozenset("\u115f\u1160\u3164\uffa0\u2800\u034f")


@lru_cache(maxsize=4096)
def _is_hidden(char: str) -> bool:
    """True for characters that act on the page, or hide in it, without being seen."""
    if char in "\n\t":
        return False
    return (
        unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
        or char in _BLANK_LETTERS
        or "\U000e0100" <= char <= "\U000e01ef"
    )


def _reveal(char: str) -> str:
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    return f"⟨{_ESCAPE_NAMES.get(char, f'U+{code:04X}')}⟩"


def plain(text: str, limit: int | None = None) -> str:
    """Text that means only itself: control, bidirectional and zero-width characters are shown as visible
    escapes, CRLF becomes a newline. Text beyond `limit` characters is cut, with a note of how many."""
    cut = 0
    if limit is not None and len(text) > limit:
        text, cut = text[:limit], len(text) - limit
    text = text.replace("\r\n", "\n")
    # By distinct character: texts of megabytes have a few hundred of them.
    shown = text.translate({ord(char): _reveal(char) for char in set(text) if _is_hidden(char)})
    return f"{shown}\n… {cut:,} more characters" if cut else shown


def one_line(text: str, limit: int = 100) -> str:
    """Text for a table cell or a title: hidden characters made visible, on one line, cut with an ellipsis."""
    line = " ".join(plain(text[: limit * 4]).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def one_lines(names: Sequence[str], limit: int) -> list[str]:
    """Names on one line each, of so many characters at most, for the labels of a figure: where two would look the same
    once they are cut, each keeps the word that it alone has, else gets a number."""
    cut = [one_line(name, limit) for name in names]
    found = list(cut)
    for i, name in enumerate(names):
        alike = [other for j, other in enumerate(names) if cut[j] == cut[i] and i != j]
        own = [word for word in re.split(r"[-_@/ ]", name) if all(word not in other for other in alike)]
        if alike and own:
            last = own[0][: limit - 2]
            found[i] = one_line(f"{name[: limit - 1 - len(last)]}…{last}", limit)
    return [
        name if found.count(name) == 1 else f"{name[: limit - 3]}…{found[: i + 1].count(name)}"
        for i, name in enumerate(found)
    ]


_PUNCTUATION = str.maketrans({char: f"\\{char}" for char in string.punctuation})
#: What Streamlit looks for in text even where all of it is escaped, with the character to break it after: bare links
#: (`https://`, `www.`, `a@b.c`), icons and emoji between colons, arrows and signs that stand alone.
_FOUND_IN_TEXT = re.compile(
    r":(?=//|[\w+-]+:)|www(?=\.)|@|(?<!\S)(?:<(?=->|-|=)|-(?=>|-)|>(?==)|~(?==))(?=[->=]+(?!\S))",
    re.IGNORECASE,
)
WORD_JOINER = "\u2060"


def escaped(text: str) -> str:
    """Text on one or more lines made literal for Streamlit's markdown: every ASCII punctuation mark is escaped, and
    what Streamlit finds in text all the same is broken by an invisible joiner, so that no directive, link, image,
    icon, emoji, formula or emphasis survives."""
    return _FOUND_IN_TEXT.sub(lambda match: match[0] + WORD_JOINER, text).translate(_PUNCTUATION)


def label(text: str, limit: int = 100) -> str:
    """Foreign text made literal for use inside a Streamlit label, title or markdown, on one line."""
    return escaped(one_line(text, limit))


def code(text: str, limit: int = 100) -> str:
    """Foreign text as code within our own markdown, on one line. Nothing in it can act there, and nothing is escaped:
    a backslash would be seen."""
    line = one_line(text, limit)
    fence = "`" * (1 + max((len(ticks) for ticks in re.findall("`+", line)), default=0))
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{space}{line}{space}{fence}" if line else ""


def strip_legend(models: Sequence[str] = (), *, compared: bool = False) -> str:
    """How a turn strip in text, `●a ■c ▲b✓`, is read, as markdown: with `models` (the pool in slot order) also which
    letter is which model. Beyond 26 slots a strip has the model's name. `compared`: its verdicts come of comparing
    recorded answers."""
    names = ", ".join(
        f"{letter} {label(name, 24)}" for letter, name in zip(string.ascii_lowercase, models, strict=False)
    )
    slots = f"the small letter is the model: {names}" if names else "the small letter is the model's slot"
    verdicts = "accepts", "asks for a revision"
    if compared:
        verdicts = "answered the same", "answered differently"
    return f"{ROLES_LEGEND}; {slots}; {ACCEPT.glyph} {verdicts[0]}, {REVISE.glyph} {verdicts[1]}."


def percent(share: float | None) -> str:
    """A share (0 to 1) as text: `83.8 %`, `<0.1 %`, never a rounded-away 0 or 100; a dash when there is none."""
    if share is None:
        return "–"
    if 0 < share < 0.001:
        return "<0.1 %"
    if 0.999 < share < 1:
        return ">99.9 %"
    return f"{100 * share:.1f} %"


def signed_points(difference: float) -> str:
    """A difference of shares in points: `+1.2`, and `0.0` for what rounds to nothing."""
    points = round(100 * difference, 1)
    return f"{points:+.1f}" if points else "0.0"


#: The width of the tool bar that a figure shows under the pointer, in pixels.
TOOL_BAR_PX = 34


def layout(height: int | None = None, **overrides: Any) -> dict[str, Any]:
    """Plotly layout shared by every figure: small margins, no background of its own (the page's theme shows
    through), legend above. At the right of what a figure draws, its own margin included, there is room for the tool
    bar, which so lies over nothing. Use as `figure.update_layout(**layout(240))`."""
    shared: dict[str, Any] = {
        "margin": {"l": 8, "r": 8, "t": 28, "b": 8},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"size": 12},
        "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.02, "xanchor": "left", "x": 0},
        "hoverlabel": {"font": {"size": 12}},
        "bargap": 0.25,
        "modebar": {
            "orientation": "v",
            "bgcolor": "rgba(0,0,0,0)",
            "color": NEUTRAL_COLOUR,
            "activecolor": FIRST_COLOUR,
        },
    }
    if height is not None:
        shared["height"] = height
    merged = shared | overrides
    margin = merged["margin"]
    merged["margin"] = margin | {"r": margin["r"] + TOOL_BAR_PX}
    return merged


#: Passed to every `st.plotly_chart`: no logo, no link to a cloud, only the buttons a reader needs.
CHART_CONFIG: dict[str, Any] = {
    "displaylogo": False,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"],
    "showLink": False,
    "plotlyServerURL": "",
}


#: Where a run stands.
RUN_MARKS: dict[RunStatus, Mark] = {
    RunStatus.QUEUED: Mark("…", ":material/hourglass_top:", "waiting", "blue", FIRST_COLOUR),
    RunStatus.RUNNING: Mark("▶", ":material/play_circle:", "playing", "blue", FIRST_COLOUR),
    RunStatus.FINISHED: Mark("■", ":material/task_alt:", "finished", "green", RIGHT_COLOUR),
    RunStatus.INTERRUPTED: Mark("‖", ":material/pause_circle:", "interrupted", "orange", WARN_COLOUR),
    RunStatus.CANCELLED: Mark("✕", ":material/cancel:", "cancelled", "gray", NEUTRAL_COLOUR),
    RunStatus.FAILED: Mark("!", ":material/error:", "failed", "red", WRONG_COLOUR),
}
#: What a run is whose process is gone or silent.
STALLED = Mark("!", ":material/heart_broken:", "stalled", "red", WRONG_COLOUR)
