"""Whether what an imported line says can be: times, counts, probabilities and names within what the program records.

Types and enumerations are checked as a line is parsed (`storage/files/jsonl.py`); here is what they cannot say.
Every limit is beyond what any version of the program writes, so that its own files always pass.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence

import numpy as np

from core.episode import ROLE_ORDER, Decision, Episode, Flag, Judgement, Message, Reply, Role, Status, Turn
from core.grader import is_grader
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
#: Of a model to a task, in an outcome table.
_MOST_SAMPLES = 32_767
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
        case RunLine():
            _between("lost_usd", line.lost_usd, 0, _DEAREST_USD)
            if line.name is not None:
                _name("name", line.name)
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
    _need(line.turn in turns, "turn", f"the episode's turns, {len(turns)} counted from 0, are allowed")
    if line.span_end is not None and (length := turns[line.turn]) is not None:
        _need(line.span_end <= length, "span_end", f"up to {length:,}, the length of the reply, is allowed")


def _need(holds: bool, where: str, allowed: str) -> None:
    if not holds:
        raise ValueError(f"has an unusable value at {where} ({allowed})")


def _update(line: UpdateLine) -> None:
    _between("wall_s", line.wall_s, 0, _LONGEST_S)
    _between("spent_usd", line.spent_usd, 0, _DEAREST_USD)
    _between("unread_usd", line.unread_usd, 0, line.spent_usd + 1e-9)
    numbers = [one.index for one in line.candidates]
    for place, one in enumerate(line.candidates):
        where = f"candidates.{place}"
        _count(f"{where}.index", one.index)
        _need(one.index not in numbers[:place], f"{where}.index", "each candidate's number is allowed once")
        _count(f"{where}.rollouts", one.rollouts)
        _between(f"{where}.missing", one.missing, 0, one.rollouts)


def _label(line: LabelLine) -> None:
    for name, most in (("name", LONGEST_WORD), ("value", LONGEST_WORD), ("author", LONGEST_AUTHOR)):
        word = getattr(line, name)
        one_line = len(word) <= most and word.isprintable() and ("=" not in word or name == "author")
        _need(one_line, name, f"one line of at most {most} characters without an equals sign is allowed")
    _need(len(line.note) <= LONGEST_NOTE, "note", f"at most {LONGEST_NOTE:,} characters are allowed")


def _episode(line: EpisodeLine) -> None:
    episode, budget = line.episode, line.episode.turn_budget
    _id("episode.id", episode.id)
    if (fork := episode.fork) is not None:
        _id("episode.fork.parent", fork.parent)
        _need(fork.parent != episode.id, "episode.fork.parent", "the id of another episode is allowed")
        _between("episode.fork.turn", fork.turn, 0, _MOST_TURNS)
        _count("episode.fork.number", fork.number)
    _name("episode.policy", episode.policy)
    grader = is_grader(episode.task.grader)
    _need(grader, "episode.task.grader", "the name of a grader of this program is allowed")
    _messages("episode.task.conversation", episode.task.conversation)
    once = 1 <= len(set(episode.models)) == len(episode.models) <= _MOST_MODELS
    _need(once, "episode.models", f"1 to {_MOST_MODELS:,} models, each once, are allowed")
    for slot, model in enumerate(episode.models):
        _name(f"episode.models.{slot}", model)
    _between("episode.turn_budget", budget, 1, _MOST_TURNS)
    within = sum(turn.counts for turn in episode.turns) <= budget
    _need(within, "episode.turns", f"at most as many as the turn budget, {budget}, are allowed")
    over = episode.status is not Status.RUNNING
    _need(over, "episode.status", "it is still running, and only an episode that is over is allowed")
    _count("episode.generation", episode.generation)
    timed = len(line.turn_started) == len(episode.turns)
    _need(timed, "turn_started", f"a time for each turn, {len(episode.turns)} of them, is allowed")
    before = line.started
    for index, at in enumerate(line.turn_started):
        _span("the turn before", before, f"turn_started.{index}", at)
        before = at
    for index, turn in enumerate(episode.turns):
        _turn(f"episode.turns.{index}", index, turn, episode)
    for place, said in enumerate(episode.judgements):
        _judgement(f"episode.judgements.{place}", said, episode)


def _messages(where: str, messages: Sequence[Message]) -> None:
    for place, message in enumerate(messages):
        try:
            fits = not message.beside or isinstance(json.loads(message.beside), dict)
        except (ValueError, RecursionError):
            fits = False
        _need(fits, f"{where}.{place}.beside", "a JSON object as a text is allowed")


def _judgement(where: str, said: Judgement, episode: Episode) -> None:
    own = said.episode_id == episode.id
    _need(own, f"{where}.episode_id", "only the id of the episode is allowed")
    _between(f"{where}.index", said.index, 0, episode.turn_budget - 1)
    same = [one for one in episode.judgements if (one.index, one.number) == (said.index, said.number)]
    _need(len(same) == 1, f"{where}.number", "each number is allowed once at a turn")
    _count(f"{where}.number", said.number)
    _name(f"{where}.judge", said.judge)
    _usage(f"{where}.reply", said.reply)
    if said.rating is not None:
        _between(f"{where}.rating", said.rating, 1, 10)


def _turn(where: str, index: int, turn: Turn, episode: Episode) -> None:
    through = turn.index == index
    _need(through, f"{where}.index", f"turns are numbered through from 0, so {index} is allowed")
    own = turn.episode_id == episode.id
    _need(own, f"{where}.episode_id", "only the id of the episode is allowed")
    _decision(f"{where}.decision", turn.decision, episode.models)
    _messages(f"{where}.messages", turn.messages)
    _usage(f"{where}.reply", turn.reply)
    row, of_row = turn.reply.recorded, f"{where}.reply.recorded"
    told = (Flag.RECORDED in turn.flags) is (row is not None)
    _need(told, of_row, "a row where the turn's flags say 'recorded', and no other, is allowed")
    if row is not None:
        _name(f"{of_row}.table", row.table)
        _between(f"{of_row}.sample", row.sample, 0, _MOST_SAMPLES)
        judge = turn.decision.role is Role.VERIFIER
        _need(judge or row.verdict is None, f"{of_row}.verdict", "a Verifier's turn alone has one")
        judged = row.verdict is not None or not row.by_agreement
        _need(judged, f"{of_row}.by_agreement", "only a verdict can be made by agreement")


def _usage(where: str, reply: Reply) -> None:
    usage, of_usage = reply.usage, f"{where}.usage"
    _count(f"{of_usage}.tokens_in", usage.tokens_in)
    _count(f"{of_usage}.tokens_out", usage.tokens_out)
    _between(f"{of_usage}.tokens_cached", usage.tokens_cached, 0, usage.tokens_in)
    for name in ("cost_usd", "at_most_usd", "unread_usd"):
        if (usd := getattr(usage, name)) is not None:
            _between(f"{of_usage}.{name}", usd, 0, _DEAREST_USD)
    _between(f"{where}.latency_s", reply.latency_s, 0, _LONGEST_S)


def _decision(where: str, one: Decision, models: Sequence[str]) -> None:
    _need(one.model in models, f"{where}.model", "one of the episode's models is allowed")
    best = one.argmax_model in ("", *models)
    _need(best, f"{where}.argmax_model", "one of the episode's models, or nothing, is allowed")
    for kind, size in (("model", len(models)), ("role", len(ROLE_ORDER))):
        logits, probs, mask = (getattr(one, f"{kind}_{name}") for name in ("logits", "probs", "mask"))
        for name, values in (("logits", logits), ("probs", probs), ("mask", mask)):
            if len(values) not in (0, size):
                allowed = f"one for each {kind}, {size} of them, or none is allowed"
                _need(False, f"{where}.{kind}_{name}", allowed)
        for name, values, low, high in (
            ("logits", logits, -_FLOAT32, _FLOAT32),
            ("probs", probs, 0, 1 + _SUM_TOLERANCE),
        ):
            for slot, value in enumerate(values):
                if not low <= value <= high:
                    _between(f"{where}.{kind}_{name}.{slot}", value, low, high)
        total = math.fsum(probs) if probs else 1
        whole = abs(total - 1) <= _SUM_TOLERANCE
        _need(whole, f"{where}.{kind}_probs", f"their sum is {total:.4g}, and only 1 is allowed")
        _need(not mask or any(mask), f"{where}.{kind}_mask", f"at least one {kind} must be allowed")
    state = one.hidden_state
    finite = len(state) % 2 == 0 and bool(np.isfinite(np.frombuffer(state, "<f2")).all())
    _need(finite, f"{where}.hidden_state", "finite numbers of 16 bits are allowed")
    _count(f"{where}.prompt_tokens", one.prompt_tokens)
    known = not one.recipe or re.fullmatch(r"\w{1,20}/\w{1,20}/\w{1,40}", one.recipe) is not None
    _need(known, f"{where}.recipe", "device/dtype/attention, such as cuda/bfloat16/sdpa, is allowed")


def _span(first: str, start: float | None, second: str, end: float | None) -> None:
    """Two times in their order, or as far out of it as a clock that was set back can bring them."""
    for name, at in ((first, start), (second, end)):
        if at is not None:
            _time(name, at)
    ordered = start is None or end is None or end >= start - _SET_BACK_S
    _need(ordered, second, f"it is more than a day before {first}: a time after that is allowed")


def _time(where: str, at: float) -> None:
    allowed = f"{at:g}, where seconds since 1970, up to the year 9999, are allowed"
    _need(0 <= at <= LAST_TIME, where, allowed)


def _count(where: str, n: int | None) -> None:
    if n is not None:
        _between(where, n, 0, _INT32)


def _between(where: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        shown = (f"{limit:,}" if isinstance(limit, int) else f"{limit:g}" for limit in (low, high))
        _need(False, where, f"{value:g}, where {' to '.join(shown)} is allowed")


def _id(where: str, given: str) -> None:
    allowed = "an id is up to 80 of A-Z a-z 0-9 . _ - and begins with a letter or digit"
    _need(re.fullmatch(ID, given) is not None, where, allowed)


def _name(where: str, given: str) -> None:
    fits = given.strip() and len(given) <= _LONGEST_NAME and given.isprintable()
    _need(bool(fits), where, f"one line of 1 to {_LONGEST_NAME} characters is allowed")
