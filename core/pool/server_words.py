"""What servers say when something goes wrong, wherever and however they say it, and what it means."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

_DEPTH = 8
_READ_CHARS = 4000  # of them it is told what they mean
_SENTENCES = 3

#: Where an object says it, in the order in which it is shown.
_WORDS = (
    "message",
    "msg",
    "detail",
    "details",
    "error_description",
    "error_message",
    "error_msg",
    "status_msg",
    "description",
    "title",
    "reason",
    "raw",
)
_INSIDE = ("error", "errors", "base_resp")
_CODES = ("code", "type", "status", "status_code", "error_code")
_NO_ERROR = ("", "0", "none", "null", "false", "ok", "success", "200")


class Meaning(Enum):
    """What it comes to."""

    TOO_LONG = "the prompt does not fit the model"
    FILTERED = "the provider's filter will not have it answered"
    QUOTA = "there is no money or allowance left, and no wait will mend it"
    RATE = "it may be asked again later"
    SYSTEM_ROLE = "the model knows no system role"
    NO_MODEL = "there is no such model"
    KEY = "the key is refused"
    OTHER = "anything else"


@dataclass(frozen=True, slots=True)
class ServerWords:
    """An error as a server told it: its sentences, its codes (words, such as insufficient_quota) and the HTTP status
    that it names in its text. `wait_s`: after how long it says that it may be asked again."""

    text: str = ""
    codes: tuple[str, ...] = ()
    status: int | None = None

    @property
    def shown(self) -> str:
        """What is worth showing: a code, where the sentences do not have it, and the sentences."""
        telling = [one for one in self.codes if one.lower() not in ("error", "badrequesterror")]
        own = [one for one in telling if not one.isdigit() and one.lower() not in self.text.lower()]
        return " ".join([*own[:1], self.text]).strip()

    @property
    def wait_s(self) -> float | None:
        """How long it asks to wait, in seconds."""
        found = _WAIT.search(self._all)
        if found is None:
            return None
        return float(found["n"]) * _UNITS[found["unit"]]

    @property
    def _all(self) -> str:
        return " ".join([*self.codes, self.text])[:_READ_CHARS].lower()

    def meaning(self, status: int) -> Meaning:
        """What it means beside an HTTP status, which may be one that it names itself."""
        said = self._all
        if _SYSTEM_ROLE.search(said):
            return Meaning.SYSTEM_ROLE
        if status == 401:
            return Meaning.KEY
        per_time = bool(_PER_TIME.search(said))
        if status == 402 or _NO_MONEY.search(said):
            return Meaning.QUOTA
        if _QUOTA.search(said) and not per_time and self.wait_s is None:
            return Meaning.QUOTA
        if (asked := _ASKED.search(said)) and int(asked["asked"]) > int(asked["limit"]):
            return Meaning.TOO_LONG  # of one minute's allowance, which no wait makes larger
        if status != 429 and not per_time and _TOO_LONG.search(said) and not _REPLY_LIMIT.search(said):
            return Meaning.TOO_LONG
        if status == 429 or _RATE.search(said):
            return Meaning.RATE
        if _FILTER.search(said):
            return Meaning.FILTERED
        if status == 404 or (status < 500 and _NO_MODEL.search(said)):
            return Meaning.NO_MODEL
        if status == 403 and (not said or _KEY.search(said)):
            return Meaning.KEY
        return Meaning.OTHER


_WAIT = re.compile(
    r"(?:retry|try again|retrydelay|wait)\D{0,20}(?P<n>\d{1,9}(?:\.\d{1,9})?) ?(?P<unit>ms|milli|m|h|s)"
)
_UNITS = {"ms": 1e-3, "milli": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_ASKED = re.compile(r"limit:? (?P<limit>\d{1,12})\D{1,40}requested:? (?P<asked>\d{1,12})")
_SYSTEM_ROLE = re.compile(
    r"system[^.]{0,12} (role|prompt|message|instruction)s?[^.]{0,40}(not|n't|un)[^.]{0,8}(support|allow|accept|enabled)"
    r"|system[ _-]?(role|prompt|message|instruction)s? (is |are )?(not|un) ?(support|allow|accept)"
    r"|(not|n't) (support|allow|accept)[^.]{0,20} (system|developer)[ _-]?(role|prompt|message|instruction)"
    r"|developer instruction is not enabled|only user,? (and )?assistant"
    r"|roles must alternate user/assistant|(unknown|invalid|unsupported|unexpected)[^.]{0,20}role[^.]{0,6}system"
)
_NO_MONEY = re.compile(
    r"insufficient[_ ](quota|credit|balance|fund)|credit balance|out of credits|no credits|payment required"
    r"|(quota|credits?|balance) (is |has been |have been )?(used up|exhausted|depleted)|requires? more credits"
    r"|balance (is )?(not enough|too low)|arrears|spend(ing)? limit|exceeded_current_quota"
)
_QUOTA = re.compile(
    r"exceeded your (current |monthly |daily )?quota|quota[_ ](is |has been )?exceeded|quota exceeded|billing"
)
_PER_TIME = re.compile(r"per[_ ]?(minute|second|min\b|sec\b)|\b[rt]pm\b|requests too quickly")
_RATE = re.compile(
    r"rate[_ -]?limit|too many (requests|concurrent)|too_many_requests|throttl|resource_exhausted"
)
_TOO_LONG = re.compile(
    r"context[ _-]?(length|window|size|limit)"  # OpenAI, vLLM, SGLang, Mistral, DeepSeek, Ollama, LM Studio, llama.cpp
    r"|(prompt|inputs?|messages?|request|query)( text| tokens?)?( is| are)? too (long|large)"
    r"|(input|prompt) token count|maximum number of (input |prompt )?tokens"  # Google
    r"|max(imum)? (model|prompt|input|sequence) len"  # vLLM, xAI
    r"|max_(seq|model|input|prompt)_(len|tokens)|max_new_tokens` must be|n_ctx\b"  # TensorRT-LLM, TGI, llama.cpp
    r"|range of input length|too many (input |prompt )?tokens|reduce (the length|your (message|prompt|input))"
    r"|(prompt|input|messages?)( tokens?)?( length)?[^.]{0,60}"
    r"(exceed|longer than|greater than|larger than)[^.]{0,60}(max|limit|allowed)"
    r"|string_above_max_length|request_too_large|tokens? limit exceeded"
)
#: Of the longest reply that may be asked for, not of the prompt.
_REPLY_LIMIT = re.compile(r"^(?!.*(context|prompt|input|messages)).*max(_completion|_output|_new)?_tokens")
_FILTER = re.compile(
    r"content[ _-]?(filter|policy|management|violation|exists risk|moderation)|\bmoderation\b|\bflagged\b"
    r"|responsibleai|data_?inspection_?failed|inappropriate content|usage polic|high risk"
    r"|safety (system|filter|setting)"
    r"|prohibited[ _]content|guardrail|blocked (by|due to)[^.]{0,30}(safety|policy|filter)|敏感|violat[^.]{0,30}polic"
)
_NO_MODEL = re.compile(
    r"model_not_found|no such model|unknown model|model.{0,80}(does not exist|doesn't exist|not found|not exist)"
    r"|(not a valid|invalid) model|model.{0,60} is not (a valid|supported)|unknown_model"
)
_KEY = re.compile(
    r"api[ _-]?key|invalid[ _](key|token|credential)|authenticat|unauthori[sz]ed|bearer|incorrect key"
)


def words_of(body: bytes) -> ServerWords:
    """What the body of an answer that is no success says; empty for a page in HTML and for bytes that are no text."""
    try:
        text = body.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        return ServerWords()
    value = _parsed(text)
    if value is None and text.startswith(("{", "[")):  # it breaks off
        return ServerWords()
    return _gathered(text if value is None else value)


def error_in(value: Any, *, event: str | None = None) -> ServerWords | None:
    """The error that the JSON of a success tells of, or an event of this name in its stream; None where it tells of
    none."""
    if isinstance(value, list):
        return error_in(value[0], event=event) if len(value) == 1 and isinstance(value[0], dict) else None
    if event is not None and "error" in event.lower():
        return _gathered(value)
    if not isinstance(value, dict):
        return None
    told = [_gathered(value[name]) for name in _INSIDE if not _is_nothing(value.get(name))]
    if told:
        return told[0]
    if value.get("choices"):
        choices = value["choices"]
        return _error_of_choice(choices[0]) if isinstance(choices, list) else None
    named = f"{value.get('object')} {value.get('type')}".lower()
    says = any(
        isinstance(value.get(name), (str, list)) and value[name] for name in ("message", "msg", "detail")
    )
    found = _gathered(value)
    if "error" in named or (says and (event is None or found.status is not None)):
        return found
    return None


def _error_of_choice(choice: Any) -> ServerWords | None:
    if not isinstance(choice, dict):
        return None
    for holder in (choice, choice.get("message"), choice.get("delta")):
        if isinstance(holder, dict) and not _is_nothing(holder.get("error")):
            return _gathered(holder["error"])
    return None


def _gathered(value: Any) -> ServerWords:
    texts: list[str] = []
    codes: list[str] = []
    for kind, text in _walk(value, _DEPTH):
        known = codes if kind == "code" else texts
        if not any(text in one for one in known):
            known.append(text)
    numbers = [int(one) for one in codes if one.isdigit() and len(one) == 3]
    words = tuple(one for one in codes if not one.isdigit())
    status = next((one for one in numbers if 400 <= one < 600), None)
    return ServerWords(": ".join(texts[:_SENTENCES]), words, status)


def _walk(value: Any, depth: int) -> Iterator[tuple[str, str]]:
    """Codes and sentences, the outer ones first."""
    if depth == 0 or _is_nothing(value):
        return
    if isinstance(value, str):
        inner = _parsed(value)
        if inner is not None:
            yield from _walk(inner, depth - 1)
        elif not re.match(r"\s*<(!doctype|html|head|body|\?xml)", value, re.IGNORECASE):
            yield "text", " ".join(value.split())
    elif isinstance(value, list):
        for one in value[:_SENTENCES]:
            yield from _walk(one, depth - 1)
    elif isinstance(value, dict):
        for name in _CODES:
            if isinstance(code := value.get(name), (str, int)) and not isinstance(code, bool):
                yield "code", str(code).strip()
        if isinstance(value.get("retryDelay"), str):
            yield "code", f"retryDelay {value['retryDelay']}"
        place = ".".join(str(one) for one in value.get("loc") or () if isinstance(one, (str, int)))
        for name in (*_INSIDE, *_WORDS):
            for kind, text in _walk(value.get(name), depth - 1):
                yield kind, f"{place} {text}" if place and kind == "text" else text
        yield from _walk(value.get("metadata"), depth - 1)


def _parsed(text: str) -> Any:
    """The JSON that a text is; None where it is none."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _is_nothing(value: Any, depth: int = _DEPTH) -> bool:
    """Whether an error says that there is none: null, empty, or all of its parts so."""
    if isinstance(value, (dict, list)):
        parts = value.values() if isinstance(value, dict) else value
        return not parts or (depth > 0 and all(_is_nothing(one, depth - 1) for one in parts))
    return str(value if value is not None else "").strip().lower() in _NO_ERROR
