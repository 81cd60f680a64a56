"""Whether what an imported line says can be: times, counts, probabilities and names within what the program records.

Types and enumerations are checked as a line is parsed (`storage/files/jsonl.py`); here is what they cannot say.
Every limit is beyond what any version of the program writes, so that its own files always pass.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

from core.episode import ROLE_ORDER, Decision, Episode, Status, Turn
from core.grader_names import is_grader
from storage.files.jsonl import ID, Body, EpisodeLine, LabelLine, RunLine, UpdateLine
from storage.shelves.labels import LONGEST_AUTHOR, LONGEST_NOTE, LONGEST_WORD

#: The last second that a date can be made of (the end of the year 9999).
LAST_TIME = 253_402_300_799.0
#: How far a clock may be set back while something is recorded.
_SET_BACK_S = 86_400.0
_INT32, _FLOAT32 = 2**31 - 1, 3.5e38
#: Seconds (some 30 years) and USD that no call, episode or run comes to.
_LONGEST_S, _DEAREST_USD = 1e9, 1e9
_LONGEST_NAME = 300
_MOST_TURNS, _MOST_MODELS = 10_000, 1_000
#: Probabilities are rounded, and were summed in 32 bits.
_SUM_TOLERANCE = 1e-3


#: What is wrong with a line whose run or episode is nowhere.
UNKNOWN = "refers to something that is neither in the file nor in the store"


def check_line(line: Body) -> None:
    """ValueError with half a sentence that names the field and what it may be, for a line that makes no sense."""
    for name, value in line:
        if name in ("created", "at"):
            _time(name, value)
        elif name in ("generation", "index", "episodes", "turn", "span_start", "span_end"):
            _count(name, value)
    if isinstance(line, RunLine | EpisodeLine):
        _span("started", line.started, "finished", line.finished)
    match line:
        case RunLine(name=str() as name):
            _name("name", name)
        case UpdateLine():
            _update(line)
        case LabelLine():
            _label(line)
        case EpisodeLine():
            _episode(line)


def check_place(line: LabelLine, turns: Mapping[int, int | None] | None) -> None:
    """ValueError with half a sentence for a label that cannot be where it says. `turns` are those of its episode in the
    store, each with the characters of its reply (None: there is no reply)."""
    if turns is None:
        raise ValueError(UNKNOWN)
    if line.turn is None:
        return
    if line.turn not in turns:
        raise unusable("turn", f"the episode's turns, {len(turns)} counted from 0, are allowed")
    length = turns[line.turn]
    if line.span_end is not None and length is not None and line.span_end > length:
        raise unusable("span_end", f"up to {length:,}, the length of the reply, is allowed")


def unusable(where: str, allowed: str) -> ValueError:
    return ValueError(f"has an unusable value at {where} ({allowed})")


def _update(line: UpdateLine) -> None:
    _between("wall_s", line.wall_s, 0, _LONGEST_S)
    _between("spent_usd", line.spent_usd, 0, _DEAREST_USD)
    _between("unread_usd", line.unread_usd, 0, line.spent_usd)
    seen: set[int] = set()
    for place, one in enumerate(line.candidates):
        where = f"candidates.{place}"
        _count(f"{where}.index", one.index)
        if one.index in seen:
            raise unusable(f"{where}.index", "each candidate's number is allowed once")
        seen.add(one.index)
        _count(f"{where}.rollouts", one.rollouts)
        _between(f"{where}.missing", one.missing, 0, one.rollouts)


def _label(line: LabelLine) -> None:
    for name, most in (("name", LONGEST_WORD), ("value", LONGEST_WORD), ("author", LONGEST_AUTHOR)):
        word = getattr(line, name)
        if len(word) > most or not word.isprintable() or ("=" in word and name != "author"):
            raise unusable(name, f"one line of at most {most} characters without an equals sign is allowed")
    if len(line.note) > LONGEST_NOTE:
        raise unusable("note", f"at most {LONGEST_NOTE:,} characters are allowed")


def _episode(line: EpisodeLine) -> None:
    episode = line.episode
    _id("episode.id", episode.id)
    if episode.fork is not None:
        _id("episode.fork.parent", episode.fork.parent)
        if episode.fork.parent == episode.id:
            raise unusable("episode.fork.parent", "the id of another episode is allowed")
        _between("episode.fork.turn", episode.fork.turn, 0, _MOST_TURNS)
        _count("episode.fork.number", episode.fork.number)
    _name("episode.policy", episode.policy)
    if not is_grader(episode.task.grader):
        raise unusable("episode.task.grader", "the name of a grader of this program is allowed")
    if not 1 <= len(set(episode.models)) == len(episode.models) <= _MOST_MODELS:
        raise unusable("episode.models", f"1 to {_MOST_MODELS:,} models, each once, are allowed")
    for slot, model in enumerate(episode.models):
        _name(f"episode.models.{slot}", model)
    _between("episode.turn_budget", episode.turn_budget, 1, _MOST_TURNS)
    if len(episode.turns) > episode.turn_budget:
        raise unusable(
            "episode.turns", f"at most as many as the turn budget, {episode.turn_budget}, are allowed"
        )
    if episode.status is Status.RUNNING:
        raise unusable("episode.status", "it is still running, and only an episode that is over is allowed")
    if episode.generation is not None:
        _between("episode.generation", episode.generation, 0, _INT32)
    if len(line.turn_started) != len(episode.turns):
        raise unusable("turn_started", f"a time for each turn, {len(episode.turns)} of them, is allowed")
    before = line.started
    for index, at in enumerate(line.turn_started):
        _span("the turn before", before, f"turn_started.{index}", at)
        before = at
    for index, turn in enumerate(episode.turns):
        _turn(f"episode.turns.{index}", index, turn, episode)


def _turn(where: str, index: int, turn: Turn, episode: Episode) -> None:
    if turn.index != index:
        raise unusable(f"{where}.index", f"turns are numbered through from 0, so {index} is allowed")
    if turn.episode_id != episode.id:
        raise unusable(f"{where}.episode_id", "only the id of the episode is allowed")
    _decision(f"{where}.decision", turn.decision, episode.models)
    usage = turn.reply.usage
    _count(f"{where}.reply.usage.tokens_in", usage.tokens_in)
    _count(f"{where}.reply.usage.tokens_out", usage.tokens_out)
    _between(f"{where}.reply.usage.tokens_cached", usage.tokens_cached, 0, usage.tokens_in)
    for name in ("cost_usd", "at_most_usd", "unread_usd"):
        if (usd := getattr(usage, name)) is not None:
            _between(f"{where}.reply.usage.{name}", usd, 0, _DEAREST_USD)
    _between(f"{where}.reply.latency_s", turn.reply.latency_s, 0, _LONGEST_S)


def _decision(where: str, one: Decision, models: Sequence[str]) -> None:
    if one.model not in models:
        raise unusable(f"{where}.model", "one of the episode's models is allowed")
    if one.argmax_model and one.argmax_model not in models:
        raise unusable(f"{where}.argmax_model", "one of the episode's models, or nothing, is allowed")
    for kind, size in (("model", len(models)), ("role", len(ROLE_ORDER))):
        for name in ("logits", "probs", "mask"):
            if len(getattr(one, f"{kind}_{name}")) not in (0, size):
                raise unusable(
                    f"{where}.{kind}_{name}", f"one for each {kind}, {size} of them, or none is allowed"
                )
        for slot, logit in enumerate(getattr(one, f"{kind}_logits")):
            _between(f"{where}.{kind}_logits.{slot}", logit, -_FLOAT32, _FLOAT32)
        _probabilities(f"{where}.{kind}_probs", getattr(one, f"{kind}_probs"))
        mask = getattr(one, f"{kind}_mask")
        if mask and not any(mask):
            raise unusable(f"{where}.{kind}_mask", f"at least one {kind} must be allowed")
    if one.hidden_state and (
        len(one.hidden_state) % 2 or not np.isfinite(np.frombuffer(one.hidden_state, "<f2")).all()
    ):
        raise unusable(f"{where}.hidden_state", "finite numbers of 16 bits are allowed")
    _count(f"{where}.prompt_tokens", one.prompt_tokens)


def _probabilities(where: str, values: Sequence[float]) -> None:
    for slot, p in enumerate(values):
        _between(f"{where}.{slot}", p, 0, 1 + _SUM_TOLERANCE)
    if values and abs(math.fsum(values) - 1) > _SUM_TOLERANCE:
        raise unusable(where, f"their sum is {math.fsum(values):.4g}, and only 1 is allowed")


def _span(first: str, start: float | None, second: str, end: float | None) -> None:
    """Two times in their order, or as far out of it as a clock that was set back can bring them."""
    for name, at in ((first, start), (second, end)):
        if at is not None:
            _time(name, at)
    if start is not None and end is not None and end < start - _SET_BACK_S:
        raise unusable(second, f"it is more than a day before {first}: a time after that is allowed")


def _time(where: str, at: float) -> None:
    if not 0 <= at <= LAST_TIME:
        raise unusable(where, f"{at:g}, where seconds since 1970, up to the year 9999, are allowed")


def _count(where: str, n: int | None) -> None:
    if n is not None:
        _between(where, n, 0, _INT32)


def _between(where: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise unusable(where, f"{value:g}, where {_short(low)} to {_short(high)} is allowed")


def _short(limit: float) -> str:
    return f"{limit:,}" if isinstance(limit, int) else f"{limit:g}"


def _id(where: str, given: str) -> None:
    if not re.fullmatch(ID, given):
        raise unusable(where, "an id is up to 80 of A-Z a-z 0-9 . _ - and begins with a letter or digit")


def _name(where: str, given: str) -> None:
    if not given.strip() or len(given) > _LONGEST_NAME or not given.isprintable():
        raise unusable(where, f"one line of 1 to {_LONGEST_NAME} characters is allowed")
