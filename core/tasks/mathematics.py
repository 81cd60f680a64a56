"""Whether two mathematical answers are the same: wrapping, words, units and notation are made uniform here,
expressions are compared by math-verify in processes of their own.

What comes out of a text is LaTeX that a parser can read, or plain words where an answer is none.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
import unicodedata
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from pathlib import Path

from core.episode import PendingVerdict
from core.errors import TaskError
from core.processes import cores
from core.tasks.background import BACKGROUND, LineChild
from core.tasks.numbers import SPELLINGS, in_digits, read_key, read_number


@dataclass(frozen=True, slots=True)
class MathAnswer:
    """An answer made uniform: its LaTeX (empty where it holds words that are no mathematics), its unit in one spelling,
    and all of it as plain words."""

    latex: str
    unit: str
    words: str


_SYMBOLS = {
    "\u2212": "-", "\u2013": "-", "\u00d7": r"\times ", "\u00b7": r"\cdot ", "\u22c5": r"\cdot ", "\u00f7": r"\div ",
    "\u221a": r"\sqrt ", "\u03c0": r"\pi ", "\u03b8": r"\theta ", "\u221e": r"\infty ", "\u2264": r"\le ",
    "\u2265": r"\ge ", "\u2260": r"\ne ", "\u222a": r"\cup ", "\u2229": r"\cap ", "\u2205": r"\emptyset ",
    "\u00b0": r"^\circ ", "\u00b1": r"\pm ", "\u27e8": r"\langle ", "\u27e9": r"\rangle ", "\u2208": r"\in ",
    "\u211d": r"\mathbb{R}", "\u2032": "'", "\u2248": r"\approx ",
}  # fmt: skip
_SUPERSCRIPTS = str.maketrans(
    "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u207b", "0123456789-"
)

#: Words before an answer that say nothing but that it is one.
_LEAD = re.compile(
    r"""^(?:(?:so|thus|hence|therefore|then|und|also|donc|por\ lo\ tanto),?\s+)?
    (?:i\ (?:am|'m)\ (?:fairly\ |quite\ |pretty\ )?(?:sure|confident|certain)(?:\ that)?\s+)?
    (?:(?:i|we)\ (?:think|believe|get|got|find|have)\s+)?
    (?:
      (?:the|my|our|its)?\s*(?:final|correct|right)?\s*(?:answer|result|value|solution|total|sum)\s*(?:is|equals|:|=)
    | (?:it|this|that)\ (?:is|equals)
    | (?:la\ )?respuesta\ (?:final\ )?(?:es|:) | (?:die\ )?antwort\ (?:ist|lautet|:) | das\ ergebnis\ ist
    | [a-z]\ is | la\ r\u00e9ponse\ est | la\ risposta\ \u00e8 | a\ resposta\ \u00e9 | (?:final\s*)?answer\s*:
    | \u7b54\u6848\s*(?:\u662f|\u4e3a|:|\uff1a) | \u7b54\u3048\u306f | \u043e\u0442\u0432\u0435\u0442\s*:
    )\s*:?\s*""",
    re.IGNORECASE | re.VERBOSE,
)
_EXACTLY = re.compile(
    r"^(?:exactly|precisely|just|only|simply|certainly|definitely|clearly|indeed)\s+", re.IGNORECASE
)
_TAIL = re.compile(r"\s*(?:\u3067\u3059|\u3002|\.)\s*$")
#: Words in a sentence of which only the mathematics at its end is the answer.
_SENTENCE = re.compile(r"^(?P<words>[^$\\\d]+)\$(?P<said>[^$]+)\$$")
_NOT_PLAIN = re.compile(
    r"\b(?:not|never|or|between|than|about|roughly|cannot|no|wrong|either|least|most)\b", re.IGNORECASE
)
#: "42, not 43", "not 41 but 42": a rejected value beside the one that is given.
_NOT_THAT = re.compile(r"^(?P<said>[^,]+),?\s+(?:and\s+)?not\s+[^,]+$", re.IGNORECASE)
_BUT_THIS = re.compile(r"^not\s+[^,]+?,?\s+but\s+(?:rather\s+)?(?P<said>.+)$", re.IGNORECASE)

#: Words behind a number that make it another one, or none.
_NOT_COUNTED = """
    hundred thousand million billion trillion dozen score half third quarter squared cubed factorial and
    not more less than over under about minus plus mod pmod sin cos tan log exp sqrt infinity times
    """
_NO_NOUNS = frozenset(_NOT_COUNTED.split())
_PER = {"hour": "h", "second": "s", "minute": "min", "h": "h", "s": "s", "hr": "h", "sec": "s", "day": "day"}

#: Names that a LaTeX parser reads as mathematics.
_READ = """
    sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln exp sqrt max min gcd lcm mod det abs
    """
_FUNCTIONS = frozenset(_READ.split())
_COMMAND = re.compile(r"\\[A-Za-z]+")
_LONGEST = 400


def math_answer(text: str) -> MathAnswer | None:
    """The answer made uniform; None for what is too long, empty, or says that it is not the answer."""
    text = unicodedata.normalize("NFC", text)
    if len(text) > _LONGEST:
        return None
    text = in_digits(text)
    text = _spoken(_unwrapped(text))
    if not text or re.match(r"(?:not|no|never)\s+[-\d\\$]", text, re.IGNORECASE) or _hedged(text):
        return None
    words = _words(text)
    value, unit = _without_unit(text)
    latex = _notation(value)
    return MathAnswer(latex if _is_mathematics(latex) else "", unit, words)


def _unwrapped(text: str) -> str:
    """Without marks of mathematics, emphasis and boxes around it."""
    text = text.strip()
    while True:
        bare = text.strip().strip("`").strip()
        bare = re.sub(r"^\*\*(.*)\*\*$", r"\1", bare, flags=re.DOTALL)
        for left, right in ((r"\[", r"\]"), (r"\(", r"\)"), ("$$", "$$"), ("$", "$")):
            if bare.startswith(left) and bare.endswith(right) and len(bare) >= len(left) + len(right):
                inside = bare[len(left) : -len(right)]
                if left not in inside:
                    bare = inside.strip()
        bare = re.sub(
            r"^\\(?:boxed|fbox|texttt|mathtt|mathbf|boldsymbol)\s*\{(.*)\}$", r"\1", bare, flags=re.DOTALL
        )
        bare = re.sub(r"^\\(?:displaystyle|textstyle)\b\s*", "", bare)
        bare = bare.rstrip(".").strip() if not bare.endswith("...") else bare
        if bare == text:
            return text
        text = bare


def _spoken(text: str) -> str:
    """Without the words that only say that this is the answer, or which one is not."""
    for _ in range(3):
        before = text
        text = _unwrapped(_TAIL.sub("", _EXACTLY.sub("", _LEAD.sub("", text))))
        if (found := _SENTENCE.match(text)) and not _NOT_PLAIN.search(found["words"]):
            text = found["said"].strip()
        for rejected in (_BUT_THIS, _NOT_THAT):
            if found := rejected.match(text):
                text = found["said"].strip()
        if text == before:
            break
    return text


def _hedged(text: str) -> bool:
    """Whether it names two answers, or only the beginning of one."""
    if re.search(r"[+*/=<>^(\[{,-]\s*$|\b(?:and|or|between|from|to|than|about)\s*$", text, re.IGNORECASE):
        return True
    return bool(
        re.match(r"(?:between|either|neither|maybe|perhaps|probably|about|around|roughly)\b", text, re.I)
    )


def _words(text: str) -> str:
    """All of it in lower case, without commands, spacing and stops: what is compared where there is no mathematics."""
    text = re.sub(r"\\(?:text|textbf|mathrm|mbox|operatorname)\s*\{([^{}]*)\}", r" \1 ", text)
    text = re.sub(r"(?<!\\)\\[,;:! ]|~|\$", " ", text).replace("\\varnothing", "\\emptyset")
    text = re.sub(r"\\!\s*", "", text)
    text = re.sub(r"\b([ap])\.\s?m\.?", r"\1m", text.casefold())
    text = re.sub(r"\s*:\s*", ":", " ".join(text.split()))
    text = re.sub(r"\s+(?=[ap]m\b)", "", text)
    return text.strip(" .\"'()").strip()


def _without_unit(text: str) -> tuple[str, str]:
    """The value and its unit in one spelling; an empty unit for none."""
    text = re.sub(r"\\!\s*", "", text)
    if money := re.match(r"^(-?)\s*(\\\$|\$|\u20ac|\u00a3|USD\s|EUR\s)\s*(?=[-\d.])", text):
        text, unit = money[1] + text[money.end() :], SPELLINGS[money[2].strip().casefold()]
        rest, own = _without_unit(text)
        return (rest, unit) if own in ("", unit) else (text, own)
    text = re.sub(r"\\frac\s*\{\s*\\text\{(\w+)\}\s*\}\s*\{\s*\\text\{(\w+)\}\s*\}", r"\\text{\1/\2}", text)
    if written := re.match(
        r"^(?P<value>.*[\d)}])\s*(?:\\[,;:! ]|~)?\s*\\(?:text|mathrm|rm)\s*\{\s*(?P<unit>[A-Za-z]+)\s*\}$",
        text,
    ):  # a letter that is set as text is a unit and no variable
        unit = SPELLINGS.get(written["unit"], SPELLINGS.get(written["unit"].casefold(), ""))
        if unit:
            return written["value"], unit
    bare = re.sub(r"\\(?:text|textrm|mathrm|mbox|operatorname|rm)\s*\{\s*([^{}]*?)\s*\}", r" \1 ", text)
    bare = re.sub(r"(?<!\\)\\[,;:! ]|~", " ", bare).strip()
    if re.search(r"(?:sin|cos|tan|cot|sec|csc)\b", bare):  # an angle in there has its own unit
        return text, ""
    found = re.match(
        r"^(?P<value>.*[\d)}\]])\s*(?P<unit>(?:\\?%|\^\s*\{?\\circ\}?|\u00b0|\\degree)"
        r"|(?:(?:square|cubic|sq\.?)\s+)?[A-Za-z\u00a2\u20ac$]+\.?(?:\s*(?:/|per)\s*[A-Za-z]+)?)(?P<power>\s*\^\s*\{?[23]\}?|[\u00b2\u00b3])?"
        r"(?P<scale>\s*(?:C|F|Celsius|Fahrenheit))?$",
        bare,
        re.DOTALL,
    )
    if not found:
        return text, ""
    unit = _unit(found["unit"], found["power"] or "", found["scale"] or "")
    noun = found["unit"].casefold()
    if not unit and re.fullmatch(r"[a-z]{3,}", noun) and noun not in _NO_NOUNS and not found["power"]:
        unit = noun.rstrip("s")  # what is counted: 5 apples
    return (found["value"], unit) if unit else (text, "")


def _unit(name: str, power: str, scale: str) -> str:
    """A unit in its one spelling; empty for what is none."""
    name = name.strip().rstrip(".").replace(" ", " ").replace("\u00b0", r"^\circ")
    square = re.match(r"(square|cubic|sq\.?)\s+(.*)", name, re.IGNORECASE)
    if square:
        power, name = ("3" if square[1].lower() == "cubic" else "2"), square[2]
    parts = [part.strip() for part in re.split(r"\s*/\s*|\s+per\s+", name)]
    key = re.sub(r"\s+|\{|\}", "", parts[0])
    base = SPELLINGS.get(key) or SPELLINGS.get(key.casefold())
    if base is None or (len(parts[0]) == 1 and parts[0].isalpha() and not power and len(parts) == 1):
        return ""  # one letter alone is a variable
    if len(parts) == 2:
        below = _PER.get(parts[1].casefold().rstrip("s")) or _PER.get(parts[1].casefold())
        if below is None:
            return ""
        base = f"{base}/{below}"
    digits = re.sub(r"\D", "", power.translate(_SUPERSCRIPTS))
    return f"{base}{digits}{scale.strip()[:1].upper()}"


def _notation(text: str) -> str:
    """In the LaTeX that the parser reads: symbols, spacing, thousands, mixed numbers, exponents, repeating decimals."""
    text = re.sub(
        r"[\u2070\u00b9\u00b2\u00b3\u2074-\u2079\u207b]+",
        lambda it: f"^{{{it[0].translate(_SUPERSCRIPTS)}}}",
        text,
    )
    text = re.sub(
        r"(\d*)\s?([\u00bc-\u00be\u2150-\u215e])",
        lambda it: (
            f"{it[1]}\\frac{{{unicodedata.normalize('NFKC', it[2])[0]}}}"
            f"{{{unicodedata.normalize('NFKC', it[2])[2:]}}}"
        ),
        text,
    )
    for symbol, command in _SYMBOLS.items():
        text = text.replace(symbol, command)
    text = re.sub(r"\\sqrt\s+(\d+|[a-z])", r"\\sqrt{\1}", text)
    text = re.sub(r"\\sqrt\s+\(([^()]*)\)", r"\\sqrt{\1}", text)
    text = re.sub(r"\\(?:text|textrm|mathrm|mbox|operatorname|rm)\s*\{([^{}]*)\}", r" \1 ", text)
    text = re.sub(r"\\[dt]frac", r"\\frac", text)
    text = re.sub(r"^([^=<>]+)=\s*([a-z])$", r"\2=\1", text)
    text = re.sub(r"\\frac\s*(\d)\s*(\d)", r"\\frac{\1}{\2}", text)
    text = re.sub(r"\\(?:left|right|big|Big|bigg|Bigg)(?:l|r)?(?![A-Za-z])\.?", "", text)
    text = re.sub(
        r"\(?\s*\\begin\s*\{array\}\s*\{[clr| ]*\}(.*)\\end\s*\{array\}\s*\)?",
        r"\\begin{pmatrix}\1\\end{pmatrix}",
        text,
    )
    text = re.sub(r"(?<=\d)(?:\\,|\\;|\\!|\{,\}|\\ )+(?=\d{3}(?!\d))", "", text)
    text = re.sub(r"(?<!\\)\\[,;:! ]|~|\\q?quad\b", " ", text)
    text = re.sub(r"\\varnothing|\\\{\s*\\\}", r"\\emptyset", text)
    text = re.sub(r"\\le(?:q|qslant)?(?![a-z])|<=", r"\\le ", text)
    text = re.sub(r"\\ge(?:q|qslant)?(?![a-z])|>=", r"\\ge ", text)
    text = re.sub(r"^[a-z]\s*(?:\([a-z]\)\s*=|\\in(?![a-z]))\s*", "", text)
    text = re.sub(r"(?<![\\A-Za-z])sqrt\(([^()]*)\)", r"\\sqrt{\1}", text)
    text = re.sub(r"(?<![\\A-Za-z])(pi|sin|cos|tan|log|ln)(?![A-Za-z])", r"\\\1 ", text)
    text = re.sub(r"\\neq\b|!=", r"\\ne ", text)
    text = re.sub(r"(?<![\d,.])(\d{1,3}(?:,\d{3})+)(?![\d,])", lambda it: it[1].replace(",", ""), text)
    text = re.sub(r"(?<![\d.])(\d{1,3}(?: \d{3})+)(?!\d)", lambda it: it[1].replace(" ", ""), text)
    text = re.sub(r"(?<![\d./}])(\d+)\s+(\d+)\s*/\s*(\d+)(?![\d/])", r"(\1+\\frac{\2}{\3})", text)
    text = re.sub(r"(?<![\d./}^_{])(\d+)\s*\\frac\{(\d+)\}\{(\d+)\}", r"(\1+\\frac{\2}{\3})", text)
    text = re.sub(r"(?<![\w.])(\d+(?:\.\d+)?)[eE]([-+]?\d{1,3})(?!\w)", r"\1\\times 10^{\2}", text)
    text = re.sub(r"(\d*)\.(\d*)\\(?:overline|bar)\s*\{?(\d+)\}?", _repeating, text)
    text = text.replace("**", "^").replace("*", r"\cdot ")
    text = re.sub(r"(?<=\d)\s*\((?!\s*\\?p?mod)", r"\\cdot (", text)
    return " ".join(text.split())


def _repeating(found: re.Match[str]) -> str:
    whole, fixed, period = found[1] or "0", found[2], found[3]
    value = Fraction(
        int(whole + fixed + period) - int(whole + fixed), 10 ** len(fixed) * (10 ** len(period) - 1)
    )
    return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"


#: What no answer of mathematics holds, but code does.
_CODE = re.compile(r"__|['\"`;@#?]|\b(?:import|exec|eval|lambda)\b")
#: Letters that stand for variables, so that `xy` is a product and no word.
_VARIABLES = frozenset("xyzabcnkmtpqrsuvi")
_JOINING = frozenset(("or", "and", "to", "mod"))


def _is_mathematics(latex: str) -> bool:
    """Whether no word is left that a parser would take for a product of letters, nor anything that is code."""
    if not latex or _CODE.search(latex.replace("\\\\", "")):
        return False
    bare = _COMMAND.sub(" ", re.sub(r"\\(?:begin|end)\s*\{[A-Za-z]+\*?\}", " ", latex))
    words = [word for word in re.findall(r"[A-Za-z]{2,}", bare) if not set(word) <= _VARIABLES]
    return all(word.lower() in _FUNCTIONS | _JOINING for word in words)


#: Seconds that a comparison may take before its process is ended, and that the process may take to begin.
LIMIT_S, START_S = 6.0, 120.0
#: A further process is started once answers have waited for so many seconds in all: about what its start costs.
WORTH_S = 2.0

#: A letter that is part of no command: of a number alone, a word or a sign of scale.
_LETTER = re.compile(r"(?<![\\A-Za-z])[A-Za-z]")
_WORKER = (sys.executable, "-I", str(Path(__file__).with_name("math_worker.py")))


def mathematics_verdict(given: str, right: str, most: int | None = None) -> bool | PendingVerdict:
    """Whether a careful reader would take two answers for the same; pending where expressions have to be compared, by
    `most` processes at a time (None: as many as there are cores). Units count where both have one. TaskError when
    math-verify cannot be started."""
    one, other = math_answer(given), math_answer(right)
    if one is None or other is None:
        return False
    if one.words and one.words == other.words:
        return True
    if one.unit and other.unit and one.unit != other.unit:
        return False
    key = None if "=" in right or _LETTER.search(other.latex) else read_key(right)
    if one.unit == "%" and not other.unit and key is not None and abs(key.value) <= 1:
        one = replace(one, latex=rf"\frac{{{one.latex}}}{{100}}")
    elif key is not None and (not one.latex or _LETTER.search(one.latex)) and read_number(given) == key.value:
        return True
    if not (one.latex and other.latex):
        return False
    pair = (one.latex, other.latex)
    return BACKGROUND.verdict(("math", *pair), partial(COMPARERS.same, pair, most))


@dataclass
class Comparers:
    """The processes that compare: one is started for the first pair, others only when many pairs wait."""

    children: list[LineChild] = field(default_factory=list)
    _idle: list[LineChild] = field(default_factory=list)
    _waited_s: float = 0.0  # by all pairs together, since a process was last started
    _returned: threading.Condition = field(default_factory=threading.Condition)

    def same(self, pair: tuple[str, str], most: int | None = None) -> bool:
        """Whether two expressions are the same; False for what took too long. Safe to share between threads."""
        child = self._take(min(most or cores(), cores()))
        try:
            if child.begin() != b"ready":
                raise TaskError(
                    "Mathematical answers cannot be graded: math-verify did not start. Install the program again."
                )
            return child.ask(json.dumps(pair).encode(), LIMIT_S) == b"true"
        finally:
            with self._returned:
                self._idle.append(child)
                self._returned.notify()

    def _take(self, most: int) -> LineChild:
        """A process that nobody else has, once there is one."""
        with self._returned:
            while not self._idle:
                may_grow = len(self.children) < most
                if not self.children or (may_grow and self._waited_s >= WORTH_S):
                    self._waited_s = 0.0
                    self.children.append(LineChild(_WORKER, START_S))
                    return self.children[-1]
                since = time.monotonic()
                self._returned.wait(WORTH_S - self._waited_s if may_grow else None)
                self._waited_s += time.monotonic() - since
            return self._idle.pop()


COMPARERS = Comparers()
