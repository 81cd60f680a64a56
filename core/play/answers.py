"""A Worker's answer in its reply: in the form that was asked for, or as models write it that take liberties with it.

What could mean two things means nothing: then there is no answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from core.episode import AnswerRule
from core.grader import WHOLE_REPLIES, Grader
from core.play.marks import stripped
from core.play.python_code import last_block, program_in

#: Marks of Markdown and of mathematics around a short text.
_DRESS = "*_`$ \t\n"
#: What stands for an answer where the asked form is repeated and not followed.
_PLACEHOLDERS = frozenset(("your answer", "answer", "your final answer", "...", "___"))
_LONGEST = 2000  # characters of an answer found without its closing tag
_LONGEST_LINE = 400  # characters of a last line that is looked into for a conclusion
_MOST_BOXES = 50  # that are looked into, from the last one on

#: The name of the field of a JSON object that holds the answer; inside a text its quotes would be escaped.
_JSON_FIELD = re.compile(r'(?<!\\)"(?:final[_ ])?answer"\s*:\s*', re.IGNORECASE)
#: A text of JSON that ends where the next field or the object's end begins; and one with quotes in it, which ends where
#: the object does.
_JSON_TEXT = re.compile(r'"(?P<said>(?:[^"\\]|\\.)*)"\s*(?:,\s*"|,?\s*\}|```|\Z)', re.DOTALL)
_LOOSE_TEXT = re.compile(r"""(?P<mark>['"])(?P<said>.*?)(?P=mark)\s*,?\s*\}\s*(?:```|\Z)""", re.DOTALL)
#: A backslash of JSON with what it escapes, and the commands of LaTeX whose first letter makes an escape with it.
_ESCAPE = re.compile(r"\\(?:u[0-9A-Fa-f]{4}|[A-Za-z]+|.|\Z)", re.DOTALL)
_LIKE_ESCAPES_WORDS = """
    boxed binom bar begin big bigl bigr beta bmod boldsymbol frac forall ne neq not nu nabla notin rangle right rho
    rfloor rceil rm text textbf times theta tan tau to tfrac triangle
    """
_LIKE_ESCAPES = frozenset(_LIKE_ESCAPES_WORDS.split())

_TAG_PAIR = re.compile(
    r"<answer\b[^<>]{0,80}>((?:(?!</?answer\b).)*)</answer\s*>", re.IGNORECASE | re.DOTALL | re.ASCII
)
_OPEN_TAG = re.compile(r"<answer\b[^<>]{0,80}>((?:(?!<answer\b).)*)\Z", re.IGNORECASE | re.DOTALL | re.ASCII)
_ESCAPED_TAG = re.compile(r"&lt;(/?answer)&gt;", re.IGNORECASE)
_BOX = re.compile(r"\\(?:boxed|fbox|answer)\s*\{")
#: Words that introduce an answer, in the languages that models fall into most.
_INTRODUCED = re.compile(
    r"""(?:
      \b(?:final|correct|right|best|my|the|most\ (?:accurate|appropriate|likely|plausible|suitable|reasonable|correct))
        \ (?:answer|option|choice)(?:\ to\ [^.:\n]{1,80})?
        (?:\ (?:is|would\ be|equals)\b|\s*=)
    | \b(?:final|correct|right|my)\ (?:answer|option|choice)\s*(?:[*_]+\s*)?:
    | (?:^|(?<=[.!?]\ )|(?<=[*_#>]))[ \t]*answer\ is\b
    | ^\#{1,6}\s*(?:the\ )?(?:final\ )?answer\s*$
    | (?:^|(?<=[.!?]\ )|(?<=[*_#>]))[ \t]*(?:the\ )?(?:final\ |correct\ )?answer\s*(?:[*_]+\s*)?:
    | \b(?:respuesta|resposta|risposta)(?:\ (?:final|correcta|finale|corretta))?\ (?:es|é|è)\b
    | \b(?:antwort|lösung)\ (?:ist|lautet)\b
    | \bréponse(?:\ (?:finale|correcte))?\ est\b
    | (?:^|(?<=\s)|(?<=[*_]))(?:respuesta|resposta|risposta|antwort|lösung|réponse)(?:\ final[e]?)?\s*(?:[*_]+\s*)?:
    | (?:答案|答え|答)(?:是|为|為|は)?\s*[:：]?
    )\s*[:：]?\s*""",
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
_SENTENCE_END = re.compile(
    r"[.!?](?=[*_`$)\"'\]]*(?:\s|$))|[。！？]|\n|,?\s(?:because|since|as we|weil|porque|car)\s"
)
_NO_ANSWER = re.compile(
    r"^(?:not|no|never|unknown|unclear|unsure|wrong|incorrect|correct|right|nicht|nein|pas|non|不是|not\b.*)\b|^$",
    re.IGNORECASE,
)
#: A text of one line that holds nothing of a program.
_WORDS = re.compile(r"(?:(?!\w\()[^\n=\[\]{}:;])*")
#: A number and nothing else, with its currency, its per cent or its thousands.
_BARE_NUMBER = re.compile(
    r"[-+\u2212\u2013\uff0d]?\s*[$\u20ac\u00a3\u00a5\u20b9]?\s*(?:"
    r"\d(?:[\d,._ \u00a0\u2009\u202f'\u066b\u066c]*[\d.,])?(?:\s*/\s*\d+)?"
    r"\s*(?:%|\\%|\u066a|\uff05|[kK](?!\w))?"
    r"|\\[dt]?frac\s*(?:\d\s*\d|\{\d+\}\s*\{\d+\}))"
)
#: A letter, alone or before an option's text.
_LETTERED = re.compile(r"[(\[]?[A-Za-z](?:[)\].:].*)?", re.DOTALL)
_LONE_LETTER = re.compile(r"[(\[]?([A-Za-z])[)\].:]{0,2}")
#: Words of a sentence that says what is chosen; each is followed by it.
_CHOSEN = re.compile(
    r"""(?:\bI(?:\ would|\ will|['\u2019](?:d|ll))?
      \ (?:pick|choose|select|go\ (?:with|for)|say|chose|picked|selected)(?:\ (?:option|choice|answer))?
    | \b(?:so|therefore|thus|hence|leaving|leaves)(?:\ (?:us\ with|only))?[,:]?
      (?:\ it(?:\ is|'s|\u2019s|\ must\ be))?(?:\ (?:the\ answer\ is|option|choice|answer))?
    )[\s:*_`(\[]+(?P<letter>[A-L])(?=[)\]*_`]*(?:[.,;:!]|\s[-\u2013\u2014]\s|\s\(|\s(?:because|since|as)\b|\s*$))""",
    re.VERBOSE | re.IGNORECASE,
)
#: A letter that is said to be right: "B is correct".
_IS_RIGHT = re.compile(
    r"(?P<before>\w+\s+|^|[.,:;]\s*)(?:\*\*|[(\[])*(?P<letter>[A-Z])(?:\*\*|[)\].:])*\s+(?:is|must be)\s+"
    r"(?:therefore\s+)?(?:the\s+)?(?:(?:only|most)\s+)?(?:correct|right|best|true)\b",
    re.MULTILINE,
)
_NOT_ALONE_WORDS = """
    neither nor not if whether or and than unless either both
    """
_NOT_ALONE = frozenset(_NOT_ALONE_WORDS.split())
#: One of a question's options as it is repeated on a line of its own, and an option's text with its letter behind.
_OPTION_LINE = re.compile(r"^\W{0,4}(?P<letter>[A-Z])[).:\]]\**\s+\S", re.MULTILINE)
_LETTER_BEHIND = re.compile(r"[^\n?()]{1,80}\((?P<letter>[A-Z])\)")
#: Words that take back, deny or doubt what stands beside them.
_DOUBTFUL = re.compile(
    r"\b(?:not|no|never|neither|nor|or|either|maybe|perhaps|possibly|probably|might|could|if|unless|but|wait|wrong|"
    r"incorrect|false|except|eliminat\w*|rule\w*|unlike\w*|unsure|sure|about|around|roughly|approximately|almost|"
    r"nearly|between|least|most|more|less|over|under|than|instead|actually|cannot)\b|n['\u2019]t\b|[?~\u2248]",
    re.IGNORECASE,
)
#: A last sentence that draws the conclusion, and its number at the end, with at most two words of a unit.
_CONCLUSION = re.compile(
    r"(?:^|(?<=[.!?]\s))(?:so|thus|hence|therefore|consequently|finally|altogether|overall|in\ total|in\ conclusion)\b"
    r"(?P<said>[^\n]*?)[.!*_\s]*\Z",
    re.IGNORECASE | re.VERBOSE | re.MULTILINE,
)
_NUMBER_AT_END = re.compile(
    r"(?P<before>[A-Za-z=]*)\s*(?P<number>[-\u2212\u2013]?[$\u20ac\u00a3]?\s?\d[\d,]*(?:\.\d+)?\s?%?)(?:\s[a-z]+){0,2}\Z"
)
#: Words before a number by which it counts something else.
_COUNTING_WORDS = """
    of the after in for from by with per first last these those all each every to at on
    """
_COUNTING = frozenset(_COUNTING_WORDS.split())


def find_answer(text: str, grader: Grader, pattern: str = "") -> tuple[str, AnswerRule] | None:
    """A Worker's answer in its reply and the rule that found it: by the task file's own `pattern` (its first group, or
    all of it, where it matches last), else by the first of the rules that finds one."""
    if pattern:
        found = list(re.finditer(pattern, text))
        own = found[-1][1 if found[-1].re.groups else 0] if found else ""
        if own and own.strip():
            return own.strip(), "pattern"
    if grader in WHOLE_REPLIES:
        return _whole(text)
    if grader == "program":
        return _program(text)
    value: tuple[str, AnswerRule] | None = None
    for rule, find in _RULES.items():
        answer = stripped(find(text, grader))
        if grader != "exact":
            answer = _HASHES.sub("", answer)
        if not answer or answer.casefold() in _PLACEHOLDERS:
            continue
        if grader == "choice" and (rule == "box" or value) and not _LETTERED.fullmatch(answer):
            value = value or (answer, rule)  # a result that is boxed on the way to the letter
            continue
        return answer, rule
    return value


def _whole(text: str) -> tuple[str, AnswerRule] | None:
    """A reply to somebody: what stands in its tag, also one that is never closed, else all of it."""
    if tagged := _in_tag(text, "open"):
        return tagged, "tag"
    opened = _OPEN_TAG.search(_ESCAPED_TAG.sub(r"<\1>", text))
    if opened and (rest := opened[1].strip()):
        return rest, "open tag"
    return (text.strip(), "whole") if text.strip() else None


def _program(text: str) -> tuple[str, AnswerRule] | None:
    """A program: what stands in its tag, also one that is never closed; else the blocks of code; else all of the reply,
    where it is one. A tag that holds words alone points to a program elsewhere."""
    bare = _ESCAPED_TAG.sub(r"<\1>", text)
    tagged: list[tuple[AnswerRule, str]] = [("tag", one) for one in reversed(_TAG_PAIR.findall(bare))]
    tagged += [("open tag", one) for one in _OPEN_TAG.findall(bare)]
    for rule, one in tagged:
        if one.strip().casefold() not in _PLACEHOLDERS and one.strip():
            if program := program_in(one):
                return program, rule
            if not _WORDS.fullmatch(one.strip()):
                return last_block(one), rule
    fenced = re.search(r"^[ \t]*(?:```|~~~)[^\n`]*\n", text, re.MULTILINE)
    found = program_in(text) or (last_block(text) if fenced else "")
    return (found, "fence" if fenced else "whole") if found else None


def _in_tag(text: str, _: Grader) -> str:
    """The last complete pair that holds something."""
    found = [one.strip() for one in _TAG_PAIR.findall(_ESCAPED_TAG.sub(r"<\1>", text))]
    return next((one for one in reversed(found) if one and one.casefold() not in _PLACEHOLDERS), "")


def _in_open_tag(text: str, _: Grader) -> str:
    """What follows a last tag that is never closed, up to an empty line."""
    found = _OPEN_TAG.search(_ESCAPED_TAG.sub(r"<\1>", text))
    if not found or "</answer" in found[1].lower():
        return ""
    rest = re.split(r"\n\s*\n|</?\w", found[1].strip(), maxsplit=1)[0].strip()
    return rest if len(rest) <= _LONGEST else ""


def _in_box(text: str, _: Grader) -> str:
    """What stands in the last \\boxed{} whose braces balance."""
    for box in reversed(list(_BOX.finditer(text))[-_MOST_BOXES:]):
        depth = 1
        for end in range(box.end(), min(len(text), box.end() + _LONGEST)):
            depth += {"{": 1, "}": -1}.get(text[end], 0) if text[end - 1] != "\\" else 0
            if not depth:
                break
        if not depth and (inside := text[box.end() : end].strip()):
            return inside
    return ""


def _in_json(text: str, grader: Grader) -> str:
    """What the last field `answer` of a JSON object says, wherever the object stands: as JSON has it, or with the
    faults that models make in it, which are quotes inside a text and the backslashes of LaTeX."""
    found = list(_JSON_FIELD.finditer(text))
    if not found:
        return ""
    rest = text[found[-1].end() :][: 2 * _LONGEST]
    whole = _JSON_TEXT.match(rest)
    if whole or rest[:1] in ('"', "'"):
        loose = whole or _LOOSE_TEXT.match(rest)
        said = _unescaped(loose["said"], grader)[:_LONGEST] if loose else ""
        return repr(said) if loose and grader == "code" and not said.strip() else said
    try:
        value, end = json.JSONDecoder(strict=False).raw_decode(rest)
    except (ValueError, RecursionError):
        return ""
    if value is None or rest[end:].lstrip()[:1] not in (",", "}", ""):
        return ""
    if isinstance(value, str | int | float) or grader == "code":
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def _unescaped(said: str, grader: Grader) -> str:
    """The text that JSON has between quotes; a value of Python as it is written, where only so it is one."""
    try:
        read = str(json.loads(f'"{_ESCAPE.sub(_as_json, said)}"', strict=False))
    except ValueError:
        return said.replace('\\"', '"')
    bare = said.replace('\\"', '"')
    return bare if grader == "code" and "\n" in read and "\n" not in bare else read


def _as_json(escape: re.Match[str]) -> str:
    """An escape as JSON can read it: where it is none, its backslash is one of the text."""
    found = escape[0]
    if found[1:2] in tuple('"\\/') or re.match(r"\\u[0-9A-Fa-f]{4}", found):
        return found
    return found if found[1:2] in tuple("bfnrt") and found[1:] not in _LIKE_ESCAPES else f"\\{found}"


_HASHES = re.compile(r"\A#{1,6}\s+(?=[^#\s][^\n]*\Z)")


def _after_hashes(text: str, _: Grader) -> str:
    """The last line, where it begins with ####, as in GSM8K."""
    last = text.strip().rsplit("\n", 1)[-1].strip()
    return last.removeprefix("####").strip(_DRESS) if re.match(r"####\s*[^#\s]", last) else ""


def _in_sentence(text: str, _: Grader) -> str:
    """What follows the last words that introduce an answer, up to the end of that sentence."""
    for found in reversed(list(_INTRODUCED.finditer(text))):
        rest = text[found.end() :].lstrip(_DRESS + ":")
        end = _SENTENCE_END.search(rest)
        said = _undressed(rest[: end.start()] if end else rest)
        if not said and end:
            continue
        if not _NO_ANSWER.match(said):
            return re.split(r",? (?:no,? wait|wait,|sorry|actually)", said, maxsplit=1)[0].strip(" ,")
        return ""
    return ""


def _undressed(text: str) -> str:
    """Without emphasis around it, and without a mark of mathematics that has no partner."""
    bare = text.strip().strip("*_`").strip()
    for mark in ("**", "__", "$$", "$", "`"):
        if bare.count(mark) % 2 and (bare.endswith(mark) or (mark != "$" and bare.startswith(mark))):
            bare = bare.removesuffix(mark).strip() if bare.endswith(mark) else bare.removeprefix(mark).strip()
    return bare.strip("*_` ").strip()


def _last_line(text: str) -> str:
    return text.strip().rsplit("\n", 1)[-1].strip(_DRESS)


def _lone_letter(text: str, grader: Grader) -> str:
    """The letter of a choice that stands alone on the last line."""
    found = _LONE_LETTER.fullmatch(_last_line(text)) if grader == "choice" else None
    return found[1].upper() if found else ""


def _option_repeated(text: str) -> str:
    """The last line, where it is one option alone: its letter before its text, or in brackets behind it."""
    last, repeated = _last_line(text), {found["letter"] for found in _OPTION_LINE.finditer(text)}
    if (
        last.endswith(":")
        or _DOUBTFUL.search(last)
        or len(repeated) > 1
        or len(re.findall(r"[(\[][A-Z][)\]]", last)) > 1
    ):
        return ""
    alone = _OPTION_LINE.match(last) and len(last) <= 120
    return last if alone or _LETTER_BEHIND.fullmatch(last) else ""


def _said_choice(text: str, grader: Grader) -> str:
    """The letter that the last line says to be chosen or right, where it says so of one alone; or that line, where it
    is an option."""
    last = text.strip().rsplit("\n", 1)[-1]
    if grader != "choice" or not last or len(last) > _LONGEST_LINE:
        return ""
    if option := _option_repeated(text):
        return option
    chosen = [found["letter"] for found in _CHOSEN.finditer(last) if found["letter"].isupper()]
    right = [
        found["letter"]
        for found in _IS_RIGHT.finditer(last)
        if found["before"].strip().casefold() not in _NOT_ALONE
    ]
    said = {*chosen, *right}
    behind = re.split(r"[A-Z](?![\w])", last, maxsplit=0)[-1] if said else ""
    if len(said) != 1 or re.search(r"\b(?:or|and)\s+[(\[]?[A-Z]\b", last.replace(" I ", " ")) and not chosen:
        return ""
    return "" if re.match(r"\W*(?:or|and|nor|unless|if)\b|[^.]*\?", behind) else said.pop()


def _concluded(text: str, grader: Grader) -> str:
    """What the last line concludes."""
    return _said_choice(text, grader) or _concluded_number(text, grader)


def _bare_number(text: str, grader: Grader) -> str:
    """A number that is the whole reply, or of a question for one all of the last line."""
    bare = text.strip().strip(_DRESS)
    if len(bare) <= _LONGEST_LINE and "\n" not in bare and _BARE_NUMBER.fullmatch(bare):
        return bare
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    if grader not in ("number", "math") or len(lines) < 2 or lines[-1].endswith("."):
        return ""
    last, before = (line.strip(_DRESS) for line in (lines[-1], lines[-2]))
    return (
        last
        if len(last) <= _LONGEST_LINE
        and _BARE_NUMBER.fullmatch(last)
        and not re.match(r"[-*\d.]+[.)]?(?:\s|$)", before)
        else ""
    )


def _concluded_number(text: str, grader: Grader) -> str:
    """The number that a last sentence with "so" or "therefore" comes to, where nothing else in it can be meant."""
    last = _last_line(text) if grader == "number" else ""
    found = _CONCLUSION.search(last) if len(last) <= _LONGEST_LINE else None
    if not found or _DOUBTFUL.search(found["said"]):
        return ""
    end = _NUMBER_AT_END.search(found["said"].replace("*", ""))
    if not end or end["before"].casefold() in _COUNTING:
        return ""
    numbers = re.findall(r"\d[\d,.]*", found["said"])
    return end["number"].strip() if len(numbers) == 1 or end["before"] == "=" else ""


_RULES: dict[AnswerRule, Callable[[str, Grader], str]] = {
    "tag": _in_tag,
    "open tag": _in_open_tag,
    "box": _in_box,
    "json": _in_json,
    "hashes": _after_hashes,
    "letter": _lone_letter,
    "sentence": _in_sentence,
    "bare": _bare_number,
    "conclusion": _concluded,
}


def last_tagged(name: str, text: str) -> str:
    """The content of the last complete <name>..</name> pair, stripped; empty when there is none."""
    pair = rf"<{name}>((?:(?!</?{name}>).)*)</{name}>"
    found = re.findall(pair, text, re.IGNORECASE | re.DOTALL | re.ASCII)
    return str(found[-1]).strip() if found else ""
