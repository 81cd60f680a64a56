"""Numerals as people write them, in ASCII digits: other scripts' digits, number words, Chinese numerals.

Only the way of writing is changed; what the number means is read in `core.tasks.numbers`.
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction

_SMALL_WORDS = """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen
    """
_ONES = {word: value for value, word in enumerate(_SMALL_WORDS.split())}
_TENS_WORDS = """
    twenty thirty forty fifty sixty seventy eighty ninety
    """
_TENS = {word: 10 * value for value, word in enumerate(_TENS_WORDS.split(), start=2)} | {"fourty": 40}
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_WORD = "|".join([*_ONES, *_TENS, "hundred", *_SCALES])
#: A run of number words; "a hundred" begins with an article.
_WORDS = re.compile(
    rf"(?<![\w-])(?:a\s+(?=hundred|thousand|million))?(?:{_WORD})(?:(?:\s*-\s*|\s+and\s+|\s+)(?:{_WORD}))*"
    rf"(?:\s+point(?:[\s-]+(?:{'|'.join(list(_ONES)[:10])}))+)?(?![\w-])",
    re.IGNORECASE,
)
_ONE_WORD = re.compile(r"[a-z]+")

_CHINESE = {sign: value for value, sign in enumerate("零一二三四五六七八九")} | {
    "〇": 0, "两": 2, "兩": 2, "壹": 1, "贰": 2, "貳": 2, "叁": 3, "肆": 4, "伍": 5, "陆": 6, "柒": 7, "捌": 8, "玖": 9,
}  # fmt: skip
_SMALL = {"十": 10, "拾": 10, "百": 100, "佰": 100, "千": 1000, "仟": 1000}
_LARGE = {"万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8}
_SIGNS = "".join([*_CHINESE, *_SMALL, *_LARGE])
_CHINESE_NUMERAL = re.compile(
    rf"(?P<share>百分之)?(?P<minus>[负負])?(?P<whole>[{_SIGNS}]+)(?:点(?P<rest>[{''.join(_CHINESE)}]+))?"
)
#: Digits before a scale: 3万, 1.5亿.
_MIXED = re.compile(rf"(?P<digits>\d+(?:\.\d+)?)\s*(?P<scale>[{''.join(_LARGE)}])(?![{_SIGNS}\d])")

#: Signs of other scripts and widths, as ASCII has them.
_PLAIN: dict[int, str] = {
    **{code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)},
    0x66A: "%", 0x66B: ".", 0x66C: ",", 0x3000: " ", 0x2012: "-", 0x2010: "-", 0x2011: "-",
}  # fmt: skip


def in_digits(text: str) -> str:
    """The text with each numeral in ASCII digits. One that breaks the rules of its language stays as it is."""
    text = "".join(
        str(unicodedata.decimal(sign)) if not sign.isascii() and sign.isdecimal() else sign for sign in text
    ).translate(_PLAIN)
    text = _WORDS.sub(lambda found: _english(found[0]) or found[0], text)
    if any(sign in text for sign in _SIGNS):
        text = _MIXED.sub(lambda it: _written(Fraction(it["digits"]) * _LARGE[it["scale"]]), text)
        text = _CHINESE_NUMERAL.sub(_chinese, text)
    return text


def _written(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    return f"{float(value):.15g}"


def _english(run: str) -> str:
    """The value of number words; empty where they do not follow each other as in one number."""
    whole, _, rest = run.lower().partition(" point")
    value = _whole(["one" if word == "a" else word for word in _ONE_WORD.findall(whole)])
    if value is None:
        return ""
    digits = "".join(str(_ONES[word]) for word in _ONE_WORD.findall(rest))
    return f"{value}.{digits}" if digits else str(value)


def _whole(words: list[str]) -> int | None:
    """Groups below a thousand, each with a smaller scale than the one before."""
    total, group, last_scale = 0, list[str](), 10**15
    for word in words:
        if word not in _SCALES:
            group.append(word)
            continue
        value = _below_thousand(group)
        if not value or _SCALES[word] >= last_scale:
            return None
        total, group, last_scale = total + value * _SCALES[word], [], _SCALES[word]
    if not group:
        return total if words and words[-1] != "and" else None
    if group[0] == "and":
        group = group[1:] if last_scale < 10**15 else ["and"]
    value = _below_thousand(group)
    return None if value is None or (value == 0 and total) else total + value


def _below_thousand(words: list[str]) -> int | None:
    """`six hundred and five`, `twenty one`, `nineteen hundred`."""
    if "hundred" in words:
        place = words.index("hundred")
        hundreds, rest = _below_hundred(words[:place]), words[place + 1 :]
        rest = rest[1:] if len(rest) > 1 and rest[0] == "and" else rest
        below = _below_hundred(rest) if rest else 0
        if not hundreds or below is None or (rest and not below):
            return None
        return 100 * hundreds + below
    return _below_hundred(words)


def _below_hundred(words: list[str]) -> int | None:
    match words:
        case [one] if one in _ONES or one in _TENS:
            return _ONES.get(one, _TENS.get(one))
        case [ten, one] if ten in _TENS and 0 < _ONES.get(one, 0) < 10:
            return _TENS[ten] + _ONES[one]
    return None


def _chinese(found: re.Match[str]) -> str:
    """A Chinese numeral; as it stands where it is none, such as a scale alone."""
    whole, rest = found["whole"], found["rest"] or ""
    value = _chinese_whole(whole)
    if value is None:
        return found[0]
    digits = "".join(str(_CHINESE[sign]) for sign in rest)
    sign = "-" if found["minus"] else ""
    return f"{sign}{value}{'.' + digits if digits else ''}{'%' if found['share'] else ''}"


def _chinese_whole(signs: str) -> int | None:
    if all(sign in _CHINESE for sign in signs):  # digit by digit: 二〇二四
        return (
            int("".join(str(_CHINESE[sign]) for sign in signs)) if len(signs) < 2 or "〇" in signs else None
        )
    for large in ("亿億", "万萬"):
        for sign in large:
            if sign in signs:
                above, _, below = signs.partition(sign)
                one, other = _chinese_whole(above), _chinese_whole(below) if below else 0
                if not one or other is None or other >= _LARGE[sign]:
                    return None
                return one * _LARGE[sign] + other
    total, digit, smallest = 0, None, 10**4
    for sign in signs:
        if sign in _CHINESE:
            if digit:  # two digits without a scale between them
                return None
            digit = _CHINESE[sign]
            continue
        scale = _SMALL[sign]
        if scale >= smallest or (digit is None and (scale != 10 or total)) or digit == 0 and scale != 10:
            return None
        total, digit, smallest = total + (1 if digit is None else digit or 1) * scale, None, scale
    return total + (digit or 0)
