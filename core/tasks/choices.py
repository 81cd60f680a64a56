"""Which choice of a multiple-choice question an answer names: by its letter, by its text, or by both in agreement."""

from __future__ import annotations

import re
from collections.abc import Mapping

#: Another choice behind the first: `B)`, `(B)`, `or B`.
_ANOTHER = re.compile(
    r"(?<![\w(\[])[(\[]?([A-Za-z])[)\]]|^\s*(?:or|and|[,/&;])\s*[(\[]?([A-Za-z])(?:[).:\]]|\s*$)"
)

#: One letter alone behind the first choice, or one that takes it back: "B. C", "B) Rome. Final answer: C".
_CORRECTED = re.compile(
    r"(?:^|\b(?:answer|option|choice|actually|rather|instead|no)\b[\s,:]*(?:is\b[\s:]*)?)[(\[]?([A-Za-z])[)\]]?$",
    re.IGNORECASE,
)

#: Words before a choice that say nothing but that it is one.
_LEAD = re.compile(
    r"""^(?:
      (?:so|thus|hence|therefore|finally|then)\b,?
    | i\ (?:would\ )?(?:choose|pick|select|say|go\ with|chose|picked)
    | i\ (?:think|believe|am\ sure)(?:\ that)?
    | (?:it|this|that)(?:\ is|\ must\ be|'s)
    | (?:the|my)?\ *(?:final|correct|right|best|most\ likely)*\ *
      (?:answer|option|choice|letter)(?:\ is|\ must\ be)?\ *:?
    | (?:la\ )?(?:respuesta|resposta|risposta)(?:\ final|\ correcta|\ corretta)?(?:\ es|\ é|\ è)?(?:\ la)?\ *:?
    | (?:die\ )?(?:richtige\ )?antwort(?:\ ist|\ lautet)?\ *:?
    | (?:la\ )?(?:bonne\ )?réponse(?:\ est)?(?:\ la)?\ *:?
    | 答案\s*(?:是|为)?\s*[:：]? | 正解は | 答えは
    | only | just | exactly | definitely | clearly
    )\s*(?=\S)""",
    re.IGNORECASE | re.VERBOSE,
)
_NARROW = {
    code: chr(code - 0xFEE0) for code in (*range(0xFF21, 0xFF3B), *range(0xFF41, 0xFF5B), 0xFF08, 0xFF09)
}
_ONE = r"[(\[]?[A-Za-z][)\]]?"
_LIST = rf"{_ONE}(?:(?:\s*,\s*(?:and|or|nor)?\s*|\s+(?:and|or|nor)\s+){_ONE})*"
_THEREFORE = r"(?:so|therefore|thus|hence|leaving|which\s+leaves|that\s+leaves|it\s+must\s+be)"
#: A choice beside others that are ruled out: "not A, so B", "B, not C", "first I thought A, but B".
_RULED_OUT = (
    re.compile(
        rf"^not\s+{_ONE}(?:\s+(?:or|nor|and)\s+{_ONE})*,?\s+(?:so|but|therefore|hence)\s+(?P<said>.+)$", re.I
    ),
    re.compile(rf"^(?:at\s+)?first\s+i\s+thought\s+{_ONE},?\s+but\s+(?P<said>.+)$", re.I),
    re.compile(rf"^(?P<said>{_ONE}),?\s+(?:and\s+)?not\s+{_ONE}(?:\s+(?:or|nor|and)\s+{_ONE})*$", re.I),
    re.compile(r"^(?P<said>[(\[]?[A-Z][)\]]?)\s+(?:only|alone)$"),
    re.compile(
        r"^(?P<said>[(\[]?[A-Z][)\]]?),?\s+(?:because|since|as)\s+(?!(?:not\b|[(\[]?[A-Z][)\]]?(?:\s|$)))[^?]*$"
    ),
    re.compile(
        rf"^(?:since\s+|as\s+|because\s+)?{_LIST}\s+(?:is|are)\s+(?:(?:all|both|clearly|each)\s+)?"
        r"(?:wrong|incorrect|false|out|ruled\s+out|eliminated|excluded|impossible|not\s+(?:correct|right|possible))"
        rf"[,;.]?\s+(?:{_THEREFORE}\s+)?(?P<said>.+)$",
        re.I,
    ),
    re.compile(rf"^neither\s+{_LIST}[,;]?\s+(?:{_THEREFORE}|but)\s+(?P<said>.+)$", re.I),
    re.compile(
        rf"^not\s+{_LIST}[,;.]\s+(?P<said>(?:the|my)\s+(?:\w+\s+)?(?:answer|option|choice)\s+is\s+.+)$", re.I
    ),
    re.compile(rf"^(?:(?![A-Z](?![\w'])).)+?,?\s+{_THEREFORE}\s+(?P<said>{_ONE})$"),
)
_LONGEST = 400  # characters of an answer that are worth looking into
_STOPS = r"\s*(?:[,;:]\s|\s[-\u2013\u2014]\s|\s(?=[(\[]))\s*"
#: A letter before or behind words that say nothing else.
_WITH_WORDS = (
    re.compile(rf"[(\[]?(?P<letter>[A-Z])[)\]]?{_STOPS}(?P<words>.+)", re.DOTALL),
    re.compile(r"(?P<words>.{1,200}?)\s*[(\[](?P<letter>[A-Z])[)\]]", re.DOTALL),
    re.compile(
        r"[(\[]?(?P<letter>[A-Z])[)\]]?\s+(?:is|must be)\s+(?:the\s+)?(?:only\s+)?"
        r"(?:correct|right|best|true)\b(?P<words>.*)",
        re.DOTALL,
    ),
)
#: Words beside a letter by which it is not chosen, or not alone.
_DOUBT = re.compile(
    r"\b(?:not|no|never|or|nor|and/or|either|neither|both|but|if|unless|else|maybe|perhaps|possibly|probably|wrong|incorrect|"
    r"false|except|wait|actually|sure|unsure|instead|rather|however|could|might|would|all|none|other|another|unlikely|"
    r"partly|also|excluded|eliminated?|ruled|cannot|guess|between|versus|vs|although|though)\b|n['\u2019]?t\b|\?",
    re.IGNORECASE,
)
_LETTER_ALONE = re.compile(r"(?<![\w'\u2019])(?:[A-HJ-Z](?![\w'\u2019])|I(?=[)\]]))")
#: A letter and a text that have to agree: "Jupiter (B)", "B - Jupiter".
_BOTH = (
    re.compile(r"(?P<text>.+?)\s*[(\[](?P<letter>[A-Z])[)\]]"),
    re.compile(r"(?P<letter>[A-Z])\s*(?:[-\u2013\u2014=]|,?\s*i\.e\.,?|,\s*namely)\s*(?P<text>.+)"),
)
_OPTION = re.compile(r"(?<![\w])[(\[]?([A-Z])[).:\]]\s*")


def read_choice(text: str, question: str = "") -> str | None:
    """The letter chosen, upper case: `B`, `(B)`, `B) Oslo`, `answer: B`, "not A, so B", or the text of one of the
    `question`'s options; None when it is not plain, as with two letters or a letter beside another option's text."""
    said, options = _said(_undressed(text)), options_of(question)
    for form in _BOTH:
        both = form.fullmatch(said)
        if both and _same(options.get(both["letter"], ""), both["text"]):
            return both["letter"]
    letter = _plain_letter(said, question)
    if letter:
        behind = re.sub(r"^[(\[]?[A-Za-z][).:\]]*\s*", "", said)
        others = [
            text
            for name, text in options.items()
            if name != letter and not _same(text, options.get(letter, ""))
        ]
        return None if behind and any(_same(other, behind) for other in others) else letter
    named = [name for name, option in options.items() if _same(option, said)]
    if named or len(said) > _LONGEST:
        return named[0] if len(named) == 1 else None
    return next(
        (one["letter"] for form in _WITH_WORDS if (one := form.fullmatch(said)) and _is_sole(one, options)),
        None,
    )


def _is_sole(found: re.Match[str], options: Mapping[str, str]) -> bool:
    """Whether the words beside a letter neither doubt it nor name another option."""
    letter, words = found["letter"], f" {' '.join(found['words'].split())} "
    if options and letter not in options:
        return False
    own = options.get(letter, "")
    if own:
        words = re.sub(rf"(?<!\w){re.escape(' '.join(own.split()))}(?!\w)", " ", words, flags=re.IGNORECASE)
    if _DOUBT.search(words) or set(_LETTER_ALONE.findall(words)) - {letter}:
        return False
    return not any(
        re.search(rf"(?<!\w){re.escape(' '.join(text.split()))}(?!\w)", words, re.IGNORECASE)
        for name, text in options.items()
        if name != letter and text
    )


def options_of(question: str) -> dict[str, str]:
    """The options that a question lists, by letter: `A) Mars B) Jupiter`; empty for none."""
    found: dict[str, str] = {}
    marks = list(_OPTION.finditer(question))
    begin = next((i for i in range(len(marks) - 1, -1, -1) if marks[i][1] == "A"), None)
    if begin is None:
        return {}
    ends: list[re.Match[str]] = []
    for mark in marks[begin:]:  # in alphabetical order; a letter out of turn belongs to an option's own text
        if mark[1] == chr(ord("A") + len(ends)):
            ends.append(mark)
    for mark, after in zip(ends, [*ends[1:], None], strict=True):
        found[mark[1]] = question[mark.end() : after.start() if after else None].strip(" \n,;")
    return found if len(found) > 1 else {}


def _same(option: str, said: str) -> bool:
    """Whether two texts are the same option, whatever their case, spacing, article and stops."""
    bare = [
        re.sub(r"^(?:the|a|an)\s+", "", " ".join(one.split()).casefold().strip(" .\"'"))
        for one in (option, said)
    ]
    return bool(bare[0]) and bare[0] == bare[1]


def _undressed(text: str) -> str:
    """One line without emphasis, mathematics and quotes."""
    text = re.sub(r"^#{1,6}\s+", "", text.strip().translate(_NARROW))
    text = re.sub(r"^<([A-Za-z])>$", r"\1", text)
    text = re.sub(
        r"^(?:the|la|el|le|die|der|das)\s+(?=[(\[]?[A-Z][)\]]?[.]?$)", "", text, flags=re.IGNORECASE
    )
    text = re.sub(r"\\(?:text|textbf|mathrm|mathbf|mbox|boxed)\s*\{([^{}]*)\}", r"\1", text)
    text = re.sub(r"\\(?:text|textbf|mathrm|mathbf|mbox|boxed)\s*\{([^{}]*)\}", r"\1", text)
    return (
        " ".join(re.sub(r"[*_`$\"{}]|\\[()\[\]]|\\", "", text).split())
        .strip()
        .strip("'")
        .rstrip("。")
        .strip()
    )


def _said(text: str) -> str:
    """What is chosen, without the words around it."""
    for _ in range(6):
        before = text
        text = _LEAD.sub("", text, count=1).strip()
        for ruled_out in _RULED_OUT:
            if found := ruled_out.match(text.rstrip(".")):
                text = found["said"].strip()
        if text == before:
            return text
    return text


def _plain_letter(text: str, question: str) -> str | None:
    """The letter that the text begins with, upper case; None when it names another one behind it, unless that is what
    the `question` says there."""
    text = re.sub(r"[*_`$\"'\\{}]|boxed", "", text).strip()
    text = re.sub(
        r"^(?:(?:the )?(?:correct |right |final )?(?:answer|option|choice)(?: is)?:? *)+",
        "",
        text,
        flags=re.I,
    )
    match = re.fullmatch(
        r"(?:\(([A-Za-z])\)|\[([A-Za-z])\]|([A-Za-z])(?:[).:]|$))(?P<rest>(?:\s.*)?)\.?", text, re.DOTALL
    )
    if not match:
        return None
    letter = match[1] or match[2] or match[3]
    rest = match["rest"].strip(" .")
    also = _ANOTHER.findall(match["rest"])
    if any(other and other.upper() != letter.upper() for _, other in also):  # "B or c)"
        return None
    named = {one for one, _ in also}
    if last := _CORRECTED.search(rest):
        own = re.search(rf"\b{letter}[).:\]]\s*{re.escape(rest)}(?!\w)", question)
        named |= set() if own else {last[1]}
    # In another case it is a name in the choice's own text, as in "B) (a + b)".
    return None if any(o != letter and o.isupper() == letter.isupper() for o in named) else letter.upper()
