"""Which number an answer is, and whether two answers are the same number.

What is written exactly, as an integer, a fraction or a power, is the same only where it is equal; a decimal may be
rounded. Numerals are first put into ASCII digits: other scripts' digits, number words, Chinese numerals."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Set
from dataclasses import dataclass
from fractions import Fraction
from itertools import takewhile

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


#: Two numbers of which one is a decimal count as equal within this relative difference: room for rounding, none for
#: another answer. A decimal of fewer places than this also within one unit of its last place.
TOLERANCE = Fraction(1, 10**6)
_PLACES = 6

_LONGEST = 400  # characters of an answer that are worth parsing


@dataclass(frozen=True, slots=True)
class Number:
    """A number that was read: `places` behind its decimal point (None: it is exact), and whether it is in per cent."""

    value: Fraction
    places: int | None = None
    percent: bool = False


#: What may stand before the number: an equation up to its last `=`, or words such as "the final answer is".
_BEFORE = (
    r"(?:(?:so|thus|hence|therefore|finally)\b,?\s*)?(?:there\s+(?:is|are)\s+)?"
    r"(?:(?:答案|答え|答)(?:[是为為は])?\s*:?\s*)?"
    r"(?:(?:the|my|our)\s+)?(?:(?:final|correct|right)\s+)?"
    r"(?:(?:answer|result|value|total|sum|number|it)\b\s*(?:is\b|equals\b|[:\-\u2013\u2212](?=\s))?:?\s*)?"
    r"(?:(?:exactly|precisely|just|only)\b\s*)?"
)
_LEAD = re.compile(rf"(?:.*(?<![!<>~:])=\s*)?{_BEFORE}", re.IGNORECASE | re.DOTALL)
_WORDS_BEFORE = re.compile(_BEFORE, re.IGNORECASE)
_CURRENCY = r"(?P<currency>[$\u20ac\u00a3\u00a5\u20b9]|(?:USD|EUR|GBP)\b)?"
_NUMBER = re.compile(
    rf"(?P<sign>[-+\u2212\u2013]?)\s*{_CURRENCY}\s*(?P<inner>[-+\u2212\u2013]?)\s*(?:"
    r"(?P<whole>\d+)\s+(?P<top>\d+)\s*/\s*(?P<bottom>\d+)"  # 1 1/2
    r"|(?P<units>\d*)\s?(?P<vulgar>[\u00bc-\u00be\u2150-\u215e])"  # ½, 1½
    r"|(?P<decimal>(?:\d{1,3}(?:,\d{3})+|\d{1,2}(?:,\d\d)+,\d{3}"
    r"|\d{1,3}(?:[ \u00a0\u2009\u202f]\d{3})+|\d+(?:_\d+)*)(?:\.\d*)?|\.\d+)"
    r"(?:[eE](?P<exponent>[-+]?\d{1,3})"
    r"|(?:\s*(?:[x\u00d7*\u00b7]|\\times|\\cdot)\s*(?P<ten>10))?\s*(?:\^|\*\*)\s*\{?(?P<power>[-+\u2212]?\d{1,3})\}?"
    r"|\s*/\s*(?P<divisor>\d+(?:\.\d+)?)"
    r"|(?P<letter>K(?!\w)|[MB](?!\w))|\s?(?P<small>k(?!\w)|bn\b))?"  # 1e3, 10^2, 3 x 10^4, 3/4, 70k
    r")",
    re.ASCII,
)
#: What may stand behind it, in lower case, besides a word of the question.
_UNIT_WORDS = """
    % percent ° °c °f degree degrees celsius fahrenheit kelvin rad radians
    mm cm dm m km in ft yd mi inch inches foot feet yard yards mile miles meter meters metre metres
    kilometer kilometers kilometre kilometres centimeter centimeters centimetre centimetres millimeters millimetres
    mg g kg t lb lbs oz gram grams kilogram kilograms pound pounds ounce ounces ton tons tonne tonnes
    ml cl l liter liters litre litres gallon gallons cup cups
    ms s sec secs min mins h hr hrs second seconds minute minutes hour hours day days week weeks month months year years
    m2 m^2 m² cm2 cm^2 cm² km2 km^2 km² m3 m^3 m³ cm3 cm^3 cm³ km/h mph m/s
    hz khz mhz ghz w kw v a j kj cal kcal n pa kpa mol kb mb gb tb bit bits byte bytes
    people persons times items pieces units
    """
_MONEY = frozenset("$ € £ ¥ usd eur gbp dollar dollars cent cents euro euros pound pounds".split())  # noqa: SIM905
UNITS = _MONEY.union(_UNIT_WORDS.split())
#: Spellings of units, in one form each.
SPELLINGS = {
    name: unit
    for unit, names in {
        "%": r"% \% percent",
        "degree": r"degree degrees deg ^\circ ^{\circ} \circ \degree",
        "rad": "rad radian radians",
        "mm": "mm millimeter millimeters millimetre millimetres",
        "cm": "cm centimeter centimeters centimetre centimetres",
        "m": "m meter meters metre metres",
        "km": "km kilometer kilometers kilometre kilometres",
        "in": "in inch inches", "ft": "ft foot feet", "yd": "yd yard yards", "mi": "mi mile miles",
        "g": "g gram grams", "mg": "mg", "kg": "kg kilogram kilograms", "lb": "lb lbs pound pounds",
        "oz": "oz ounce ounces",
        "l": "l liter liters litre litres", "ml": "ml milliliter milliliters",
        "s": "s sec secs second seconds", "min": "min mins minute minutes", "h": "h hr hrs hour hours",
        "day": "day days", "week": "week weeks", "month": "month months", "year": "year years",
        "$": r"$ \$ usd dollar dollars", "cent": "cent cents \u00a2", "\u20ac": "\u20ac eur euro euros",
        "\u00a3": "\u00a3 gbp",
        "m/s": "m/s mps", "km/h": "km/h kmh kph", "mph": "mph", "n": "newton newtons", "j": "joule joules",
        "w": "watt watts", "unit": "unit units",
    }.items()
    for name in names.split()
}  # fmt: skip
#: Words behind a number that make it another number, or none.
_NO_UNIT_WORDS = """
    hundred thousand million billion trillion dozen dozens score half halves third thirds quarter quarters squared
    cubed factorial or and to not more less than over under about minus plus
    """
_NO_UNITS = frozenset(_NO_UNIT_WORDS.split())

#: What a question asks the number of, up to its verb: "how many red apples does ...".
_ASKED_FOR = re.compile(r"\b(?:how many|how much|number of|amount of)((?:\s+[^\W\d_]+)+)")
_VERBS = frozenset("""
    is are was were be been am do does did has have had can could will would shall should may might must
    """.split())  # fmt: skip  # noqa: SIM905
#: Words before an equation that say it does not hold.
_DENIED = re.compile(r"\b(?:not|never|no|isnt|doesnt|cannot|cant)\b", re.IGNORECASE)


_LETTERS = {"k": 10**3, "m": 10**6, "b": 10**9, "bn": 10**9}
#: A number with a decimal comma and points between its thousands, or with a decimal comma alone.
_POINTS_AND_COMMA = re.compile(r"(?<![\d.,])\d{1,3}(?:\.\d{3})+,\d+(?![\d.,]*\d)")
_COMMA = re.compile(r"(?<![\d.,])(?:\d{1,3}(?:\.\d{3})+(?:,\d+)?|\d+,\d+)(?![\d.,]*\d)")

#: What may follow a number without making it another one: words behind a comma, a stop or a dash, or in brackets.
_CLAUSE = re.compile(
    r"^\s*(?:\((?P<inside>[^()]*(?:\([^()]*\)[^()]*)*)\)|[,;:.]\s+(?P<after>\D.*)"
    r"|\s[-\u2013\u2014]\s(?P<dash>\D.*)"
    r"|,?\s*(?P<reason>(?:because|since|as|so|in total|altogether|in all|overall)\b.*))$",
    re.IGNORECASE,
)
_REASON = re.compile(r"^(?:because|since|as|for|from|i\.?e\.?|that is|which is|by)\b", re.IGNORECASE)
#: Words in it that would make it another one, or two.
_TAKEN_BACK = re.compile(
    r"\b(?:not|no|nor|or|but|if|unless|either|neither|maybe|perhaps|possibly|probably|wrong|incorrect|false|actually|"
    r"wait|sorry|instead|between|about|approximately|approx|around|roughly|nearly|almost|least|most|more|less|fewer|than|"
    r"except|correction|rather|could|might|should|cannot|however|although|though|other|another|alternatively|each|per|"
    r"hundreds?|thousands?|millions?|billions?|trillions?|dozens?|scores?|times|remaining|assuming|plus|minus|"
    r"half|third|quarter|squared|cubed|factorial|depending|unknown|unsure|guess|negative|kinds?|to)\b"
    r"|n['\u2019]?t\b|[?\u2248~]",
    re.IGNORECASE,
)
_RULED_OUT = re.compile(r"(?:and\s+)?not\s+([-\u2212\u2013]?\d[\d,]*(?:\.\d+)?)\.?", re.IGNORECASE)
_ANY_NUMBER = re.compile(r"[-\u2212\u2013]?\d[\d,]*(?:\.\d+)?")
#: Two values in one answer: "x = 3 or x = -3".
_TWO_VALUES = re.compile(r"=[^=]*?(?:\bor\b|\band\b|;|,(?!\d))", re.IGNORECASE)


def same_number(given: str, right: str, question: str) -> bool:
    """Whether an answer is the right number, in the notation and the unit that the right one shows."""
    expected = read_key(right, question)
    if expected is None:
        return False
    comma, nouns = _number(right, question) is None, not question.strip()
    said = _number(given, question, comma=comma, nouns=nouns)
    if (
        said is None and not comma and len(given) <= _LONGEST and _POINTS_AND_COMMA.search(in_digits(given))
    ):  # it can mean nothing else
        said = _number(given, question, comma=True, nouns=nouns)
    return said is not None and any(_equal(one, expected) for one in _meant(said, expected, question))


def read_number(text: str, question: str = "") -> Fraction | None:
    """The number that an answer is: sign, currency, thousands, decimals, exponent, power of ten, fraction, LaTeX,
    number words, numerals of other scripts.

    Before it may stand an equation up to its last `=`, or words such as "the answer is"; behind it one unit out of
    `UNITS` or what the question asks the number of, and words that only explain it. None for anything else, such as
    "not 42", "8 - 5", "42 or 43" or "42, but 43 is possible"."""
    found = _number(text, question)
    return found.value if found else None


def read_key(text: str, question: str = "") -> Number | None:
    """The number that a right answer is; one that can be read only with a decimal comma is read so."""
    return _number(text, question) or _number(text, question, comma=True)


def _meant(said: Number, expected: Number, question: str) -> list[Number]:
    """What a number can mean beside the right one: per cent are hundredths, unless the right one is in per cent."""
    if not said.percent or expected.percent:
        return [said]
    hundredths = Number(said.value / 100, None if said.places is None else said.places + 2)
    if _in_percent(question):
        return [hundredths, said]
    # A right answer above 1 whose question asks for no amount is itself in per cent, without the sign.
    counts = re.search(r"\bhow (?:many|much)\b|\b(?:number|amount) of\b", question, re.IGNORECASE)
    return [hundredths] if counts or abs(expected.value) <= 1 else [hundredths, said]


def _equal(said: Number, expected: Number) -> bool:
    places = [one.places for one in (said, expected) if one.places is not None]
    if not places:
        return said.value == expected.value
    apart = abs(said.value - expected.value)
    if apart > TOLERANCE * max(abs(said.value), abs(expected.value)):
        return False
    return min(places) >= _PLACES or apart <= Fraction(10) ** -min(places)


def _in_percent(text: str) -> bool:
    return "%" in text or "percent" in text.casefold() or "per cent" in text.casefold()


def _number(text: str, question: str, *, comma: bool = False, nouns: bool = False) -> Number | None:
    """With `nouns`, any one word behind the number may say what is counted, as nothing tells what that is."""
    text = " ".join(text.split()) if len(text) > _LONGEST else text
    text = _undressed(in_digits(text)) if len(text) <= _LONGEST else text
    if len(text) > _LONGEST:
        return None
    if comma:
        text = _COMMA.sub(lambda it: it[0].replace(".", "").replace(",", "."), text)
    for lead in (_LEAD, _WORDS_BEFORE):
        match = _NUMBER.match(text, found.end() if (found := lead.match(text)) else 0)
        if not match:
            continue
        if _is_denied(text[: match.start()], match) or (value := _value(match)) is None:
            return None
        rest = text[match.end() :]
        for kept in (rest, _without_reasons(rest, value)):
            scaled = (
                None
                if kept is None
                else _with_unit(value, kept, bool(match["currency"]), question, nouns=nouns)
            )
            if kept is not None and scaled is not None:
                return Number(scaled, _places(match), _in_percent(kept[:10]))
    return None


def _with_unit(value: Fraction, rest: str, is_money: bool, question: str, *, nouns: bool) -> Fraction | None:
    """The value with its scale, where a unit follows that can be meant; else None."""
    unit = re.sub(r"^(?:in total|altogether|in all|overall)$", "", rest.strip(" .").casefold())
    unit = unit.removesuffix("only").strip()
    scale, _, after = unit.partition(" ")
    if scale.removesuffix("s") in _SCALES:
        value, unit = value * _SCALES[scale.removesuffix("s")], after
    if is_money:
        return value if unit in ("", *_MONEY) else None  # "$42 m" are millions
    if not unit or unit in _asked_for(question):
        return value
    if nouns and rest[:1].isspace() and re.fullmatch(r"[^\W\d_]{2,}", unit) and unit not in _NO_UNITS:
        return value
    asked = {unit_of(word) for word in _asked_for(question)} - {""}
    if unit in UNITS:
        return value if not asked or unit_of(unit) in asked else None
    return value if _is_compound(unit, _asked_for(question)) else None


def _is_compound(unit: str, asked: Set[str]) -> bool:
    """Whether words are a rate, an area or a volume in known units, each of which the question asks for where it asks
    for an amount: "miles per hour", "m/min", "cubic inches"."""
    parts = re.split(r"\s+per\s+|\s*/\s*", re.sub(r"^(?:square|cubic|sq\.?|cu\.?)\s+", "", unit))
    if len(parts) > 2 or parts == [unit] or not all(part in UNITS for part in parts):
        return False
    units = {unit_of(word) or word for word in asked}
    return not asked or all((unit_of(part) or part) in units for part in parts)


def unit_of(word: str) -> str:
    """The unit that a word names, in its one spelling; empty for what is none."""
    return SPELLINGS.get(word, SPELLINGS.get(word.casefold(), ""))


def _without_reasons(rest: str, value: Fraction) -> str | None:
    """What stands behind a number without the words that only explain it; None where they may say something else."""
    unit = re.match(r"^\s*[^\s,;:.()\u2013\u2014-]{0,20}(?=[\s,;:.(])", rest) or re.match(r"", rest)
    assert unit is not None
    for begin in {0, unit.end()}:
        found = _CLAUSE.match(rest[begin:])
        if not found:
            continue
        said = (found["inside"] or found["after"] or found["dash"] or found["reason"] or "").strip()
        if (other := _RULED_OUT.fullmatch(said)) and _plain(other[1]) != value:  # "72, not 73"
            return rest[:begin]
        if _TAKEN_BACK.search(said):
            return None
        reason, equation = _REASON.match(said), said.rpartition("=")
        numbers = [_plain(one) for one in _ANY_NUMBER.findall(said)]
        if equation[1]:
            last = _ANY_NUMBER.search(equation[2])
            if last is None or _plain(last[0]) != value:
                return None
        elif not reason and any(one not in (value, -value if value < 0 else value) for one in numbers):
            return None
        return rest[:begin]
    return None


def _plain(number: str) -> Fraction:
    return Fraction(re.sub(r"[\u2212\u2013]", "-", number).replace(",", ""))


def _places(match: re.Match[str]) -> int | None:
    """Digits behind the decimal point, less a power of ten; None for what is written exactly."""
    if not match["decimal"] or match["divisor"] or "." not in match["decimal"]:
        return None
    power = int(match["exponent"] or 0) + (
        int((match["power"] or "0").replace("\u2212", "-")) if match["ten"] else 0
    )
    power += {"k": 3, "m": 6, "b": 9, "bn": 9}.get((match["letter"] or match["small"] or "").casefold(), 0)
    return len(match["decimal"].partition(".")[2]) - power


def _is_denied(before: str, match: re.Match[str]) -> bool:
    """Whether what stands before the number says that it is not the answer: "x is not = 42", "43 = 42"."""
    left, equation, _ = before.rpartition("=")
    number = _NUMBER.fullmatch(left.strip()) if equation else None
    if _DENIED.search(before) or (equation and _TWO_VALUES.search(before)):
        return True
    return number is not None and _value(number) != _value(match)


def _asked_for(question: str) -> set[str]:
    """The words for what the question asks the number of."""
    found: set[str] = set()
    for words in _ASKED_FOR.findall(question.casefold()):
        found.update(takewhile(lambda word: word not in _VERBS, words.split()))
    return found - _NO_UNITS


#: A fraction in LaTeX, and the digit of a mixed number before it.
_FRACTION = re.compile(r"(\d?)\\[dt]?frac\s*(\d|\{[^{}]+\})\s*(\d|\{[^{}]+\})")
_NO_BRACES = str.maketrans("", "", "{}")


def _undressed(text: str) -> str:
    """One line without LaTeX, emphasis and quotes."""
    text = re.sub(r"^#{1,6}\s+(?=\S)", "", text.strip())
    text = re.sub(r"\b(?:minus|negative)\s+(?=\d)", "-", text.replace("{,}", ","), flags=re.IGNORECASE)
    text = _FRACTION.sub(lambda it: f"{it[1]} {it[2]}/{it[3]}".translate(_NO_BRACES).strip(), text)
    text = re.sub(r"\\(?:text|mathrm|mbox|boxed)\s*\{([^{}]*)\}", r" \1 ", text)
    text = re.sub(r"\^?\{?\\circ\}?", "\u00b0", text)
    text = re.sub(r"\\[,;! ()\[\]]|\\(?=[$%])|\*\*(?!\d)|(?<!\d)\*\*|[`\"']", "", text)
    if text.count("$") > 1:  # marks of mathematics, not of money
        text = text.replace("$", "")
    if bracketed := re.fullmatch(r"\((-[^()]*)\)", text.strip()):
        text = bracketed[1]  # a negative number, as it stands in a sum
    return " ".join(text.split())


def _value(match: re.Match[str]) -> Fraction | None:
    signs = match["sign"] + match["inner"]
    if len(signs) > 1:
        return None
    sign = 1 if signs in ("", "+") else -1
    try:
        if match["whole"]:
            return sign * (int(match["whole"]) + Fraction(int(match["top"]), int(match["bottom"])))
        if match["vulgar"]:
            top, _, bottom = unicodedata.normalize("NFKC", match["vulgar"]).partition("\u2044")
            return sign * (int(match["units"] or 0) + Fraction(int(top), int(bottom)))
        value = Fraction(re.sub(r"[,_\s]", "", match["decimal"]))
        power = int((match["power"] or "0").replace("\u2212", "-"))
        if match["power"] and not match["ten"]:
            value = value**power if abs(power) <= 100 else Fraction(0)
        else:
            value *= Fraction(10) ** (int(match["exponent"] or 0) + power)
            value *= _LETTERS.get((match["letter"] or match["small"] or "").casefold(), 1)
        return sign * (value / Fraction(match["divisor"]) if match["divisor"] else value)
    except (ZeroDivisionError, ValueError):
        return None
