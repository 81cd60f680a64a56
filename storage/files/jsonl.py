"""The lines of an interchange file, version 1, and how strictly they are read.

A `trinity-jsonl` file is UTF-8 JSON Lines, plain (`.jsonl`) or gzipped (`.jsonl.gz`). Every line is an object
whose `kind` says what it is; they come in this order:

    header      format "trinity-jsonl", version 1, runs: ids of the runs that follow
    run         id, run_kind, purpose, name, status, config, created, started, finished, error, pool (empty: no
                model was asked), lost_usd (what calls could cost that came to nothing, where there are any)
    checkpoint  id, run (null when its run is not in the file), generation (of a planner, its iteration), head_kind
                (start, warm-up or trained: a planner), created, config, weights (safetensors, of a planner a zip
                archive, base64; null: too large, in the folder of this name), folder, size_bytes
    update      run, index, episodes, wall_s, spent_usd, unread_usd, checkpoint_id, stats, candidates: a generation of
                an evolution or an iteration of a training
    optimiser   run, generation, state (base64): to resume an evolution or a training from where it stands
    episode     started, finished, turn_started: [seconds], episode: a `core.episode.Episode` as it stands,
                turns and texts included; hidden states are base64 of little-endian float16, logits all digits;
                plans and a turn's step are those of a workflow, judgements what a judge said of answers
    label       episode, turn, span_start, span_end (characters of the turn's reply; null: all of it, the whole
                episode), name, value (empty: withdrawn), note, author, at: follows its episode, oldest first
    end         counts: {kind: lines}, sha256: of every byte before this line

A file may hold a run without all that is its own: single episodes are exported so, and a later file can bring the
rest. A field that is left out has its usual value; a protocol cannot be left out. Times are Unix
seconds. Numbers of turns (a turn's `index`, a fork's and a label's
`turn`) count from 0 here; pages, filters and other exports count from 1. Only finished turns are written; what was
running is written as interrupted. Files and
folders of the machine (a task file, a pool file, an encoder) are named
without their place; what is in them, a run's `config` and `pool` say by digests. Texts hold no NUL and no lone
surrogate: U+FFFD stands for them. Base64 is URL-safe. Unknown keys, doubled keys, NaN, infinities and numbers beyond
64 bits are refused."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath, PureWindowsPath
from typing import Annotated, Any, Literal, NoReturn, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from sqlalchemy import ColumnElement, Connection, or_, select

from core.episode import Episode, Status
from core.errors import StoreError
from core.texts import well_formed
from storage.rows.full_episodes import chunks, read_timed_episodes, rows_among
from storage.rows.mapping import Row, Rows
from storage.rows.schema import checkpoint, episode, label, learning_update, optimiser, run
from storage.rows.summaries import PLANNER_KINDS, CandidateSummary, Purpose, RunKind, RunStatus
from storage.shelves.learning import POLICY, read_candidates

FORMAT = "trinity-jsonl"
VERSION = 1

#: What an id may look like: it stands in addresses and in names of files.
ID = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,79}$"
Id = Annotated[str, Field(pattern=ID)]

#: The settings of a run that may name a file or a folder.
_PLACES = ("tasks", "held_out", "pool", "encoder", "planner", "policy", "tiers")
_PLACE = re.compile(r"(?:[/~.]|[A-Za-z]:[\\/]|\\\\).*[/\\]")
#: The same inside a sentence; not what comes after a scheme or another word, as in addresses and dates.
_PLACE_IN_WORDS = re.compile(r"(?<![\w./:~\\-])(?:[A-Za-z]:[\\/]|\\\\|~?/)(?:[^\s/\\'\"`:;,()]+[/\\])+")


def file_name(path: str) -> str:
    """The name of a file or folder of a machine, without where it lies there; any other text as it is."""
    if not _PLACE.match(path) or "\n" in path:
        return path
    name = PureWindowsPath(path).name if "\\" in path else PurePosixPath(path).name
    return name if name.strip(".") else "unnamed"


def without_places(words: str) -> str:
    return _PLACE_IN_WORDS.sub("", words)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """Values of JSON with every text in them changed."""
    match value:
        case str():
            return change(value)
        case list() | tuple():
            return [_mapped(one, change) for one in value]
        case dict():
            return {change(name): _mapped(one, change) for name, one in value.items()}
    return value


def storable(value: Any) -> Any:
    """Values of JSON with every text in them as a database can hold it."""
    return _mapped(value, well_formed)


def _portable(config: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _mapped(one, file_name) if key in _PLACES else _portable(one) if isinstance(one, dict) else one
        for key, one in config.items()
    }


def _portable_error(episode: Episode) -> Episode:
    """An episode whose error, if there is one, names no place of the machine."""
    if not episode.error or (error := without_places(episode.error)) == episode.error:
        return episode
    return replace(episode, error=error)


class _Line(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        ser_json_bytes="base64",
        val_json_bytes="base64",
    )


class HeaderLine(_Line):
    kind: Literal["header"] = "header"
    format: str = FORMAT
    version: int = VERSION
    runs: tuple[Id, ...]


class RunLine(_Line):
    kind: Literal["run"] = "run"
    id: Id
    run_kind: RunKind
    purpose: Purpose
    name: Annotated[str, AfterValidator(well_formed)] | None
    status: RunStatus
    config: Annotated[dict[str, Any], AfterValidator(storable), AfterValidator(_portable)]
    created: float
    started: float | None
    finished: float | None
    error: Annotated[str, AfterValidator(well_formed), AfterValidator(without_places)] | None
    pool: str  # a digest of the models that answered
    lost_usd: float = 0.0  # the most that those of its calls could cost that came to nothing


class CheckpointLine(_Line):
    """One checkpoint with its weights, or the folder that they are in."""

    kind: Literal["checkpoint"] = "checkpoint"
    id: Id
    run: Id | None
    generation: int | None
    head_kind: str
    created: float
    config: dict[str, Any]
    weights: bytes | None
    folder: Annotated[str, AfterValidator(file_name)] | None
    size_bytes: Annotated[int, Field(ge=0)]


class UpdateLine(_Line):
    """One generation of an evolution with its candidates, or one iteration of a training."""

    kind: Literal["update"] = "update"
    run: Id
    index: int
    episodes: int
    wall_s: float
    spent_usd: float
    unread_usd: float
    checkpoint_id: Id | None
    stats: dict[str, Any]
    candidates: tuple[CandidateSummary, ...]


class OptimiserLine(_Line):
    kind: Literal["optimiser"] = "optimiser"
    run: Id
    generation: int
    state: bytes


class EpisodeLine(_Line):
    kind: Literal["episode"] = "episode"
    started: float
    finished: float | None
    turn_started: tuple[float, ...]
    episode: Annotated[Episode, AfterValidator(_portable_error)]


class LabelLine(_Line):
    """One label of an episode, a turn or words of its reply."""

    kind: Literal["label"] = "label"
    episode: Id
    turn: Annotated[int, Field(ge=0)] | None
    span_start: Annotated[int, Field(ge=0)] | None
    span_end: Annotated[int, Field(ge=1)] | None
    name: Annotated[str, Field(min_length=1)]
    value: str
    note: str
    author: Annotated[str, Field(min_length=1)]
    at: float

    @model_validator(mode="after")
    def _is_a_place(self) -> Self:
        start, end = self.span_start, self.span_end
        if (start is None) is not (end is None) or (start is not None and self.turn is None):
            raise ValueError("a span has a turn, a start and an end")
        if start is not None and end is not None and start >= end:
            raise ValueError("a span ends after it starts")
        return self


class EndLine(_Line):
    """The mark that nothing was cut off."""

    kind: Literal["end"] = "end"
    counts: dict[str, int]
    sha256: str


#: What stands in a file before the episodes.
Head = RunLine | CheckpointLine | UpdateLine | OptimiserLine
Body = Head | EpisodeLine | LabelLine
Line = HeaderLine | Body | EndLine
_LINE: TypeAdapter[Line] = TypeAdapter(Annotated[Line, Field(discriminator="kind")])


#: How JSON writes a NUL and halves of characters.
_UNSTORABLE = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")

#: What a reply holds while it is played, and no store keeps.
_NOT_KEPT = {"tool_calls", "reused"}


def dump_line(line: Line) -> bytes:
    unwritten: dict[str, Any] | None = None
    if isinstance(line, RunLine) and not line.lost_usd:
        unwritten = {"lost_usd": True}
    if isinstance(line, EpisodeLine):
        turns = line.episode.turns
        # What no turn of an episode has is not said of it.
        reply = _NOT_KEPT | (set() if any(turn.reply.recorded for turn in turns) else {"recorded"})
        recipe = set() if any(turn.decision.recipe for turn in turns) else {"recipe"}
        bare = {"messages": {"__all__": {"beside"}}}
        apart = {"__all__": {"reply": _NOT_KEPT | {"recorded"}, **bare}}
        of_chat = bool(line.episode.task.conversation)
        unwritten = {
            "episode": {
                "task": set() if of_chat else {"conversation"},
                "turns": {"__all__": {"reply": reply, "decision": recipe, **({} if of_chat else bare)}},
                "plans": apart,
                "judgements": apart if line.episode.judgements else True,
            }
        }
    return line.model_dump_json(exclude=unwritten).encode() + b"\n"


def parse_line(content: bytes) -> Line:
    """The line of its bytes, its texts as a store can hold them; ValueError, half a sentence, for one that is not
    well-formed."""
    try:
        # The fast parser below takes the last of two equal keys: a line could mean two things to two readers.
        found = json.loads(
            content,
            object_pairs_hook=_unique,
            parse_constant=_not_a_number,
            parse_int=_integer,
            parse_float=_decimal,
        )
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise ValueError("is not JSON") from error
    except UnicodeDecodeError as error:
        raise ValueError("is not UTF-8") from error
    if not isinstance(found, dict) or "kind" not in found:
        raise ValueError("is not a line of a trinity-jsonl file")
    if _UNSTORABLE.search(content):
        found = storable(found)
        content = json.dumps(found).encode()
    if found["kind"] == "episode" and "protocol" not in found.get("episode", {}):
        raise ValueError("has an unusable value at episode.protocol (it must not be guessed)")
    try:
        return _LINE.validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])  # the first says the line's kind
        raise ValueError(f"has an unusable value at {where or 'its start'} ({first['msg']})") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("has the same key twice")
    return found


def _not_a_number(name: str) -> NoReturn:
    raise ValueError(f"holds {name}, which is not a number")


def _decimal(digits: str) -> float:
    if not math.isfinite(value := float(digits)):
        raise ValueError("holds a number beyond 64 bits")
    return value


def _integer(digits: str) -> int:
    if len(digits) > 20 or not -(2**63) <= int(digits) < 2**63:
        raise ValueError("holds a number beyond 64 bits")
    return int(digits)


L = TypeVar("L", bound=Body)

_ALIVE = (RunStatus.QUEUED, RunStatus.RUNNING)
#: Fields of lines that stand in columns of another name.
_COLUMNS = {
    "run": "run_id",
    "run_kind": "kind",
    "head_kind": "kind",
    "index": "idx",
    "episode": "episode_id",
    "turn": "idx",
}
#: So many episodes are in memory at once.
_EPISODES = 100


def row_of_line(line: RunLine | OptimiserLine | LabelLine) -> Row:
    return {_COLUMNS.get(name, name): value for name, value in line if name != "kind"}


def _line_of_row(kind: type[L], row: Rows, **given: Any) -> L:
    for name in kind.model_fields.keys() - {"kind", *given}:
        given[name] = row[_COLUMNS.get(name, name)]
    return kind(**given)


def lines_of_runs(connection: Connection, run_ids: Sequence[str]) -> Iterator[Body]:
    """Everything of these runs, in the order in which a reader needs it. StoreError for an unknown run."""
    yield from _runs(connection, run_ids)
    played = select(episode.c.policy).where(episode.c.run_id.in_(run_ids))
    yield from _checkpoints(connection, run_ids, or_(checkpoint.c.run_id.in_(run_ids), POLICY.in_(played)))
    for run_id in run_ids:
        yield from _updates(connection, run_id)
        if (last := _optimiser(connection, run_id)) is not None:
            yield last
    for run_id in run_ids:
        ids = select(episode.c.id).where(episode.c.run_id == run_id).order_by(episode.c.id)
        yield from _episodes(connection, connection.execute(ids).scalars().all())


def lines_of_episodes(
    connection: Connection, run_ids: Sequence[str], episode_ids: Sequence[str]
) -> Iterator[Body]:
    """These episodes with what they refer to: their runs, and the checkpoints they were played by."""
    yield from _runs(connection, run_ids)
    seen: set[str] = set()
    for some in chunks(episode_ids):
        played = select(episode.c.policy).where(episode.c.id.in_(some))
        for line in _checkpoints(connection, run_ids, POLICY.in_(played)):
            if line.id not in seen:
                seen.add(line.id)
                yield line
    yield from _episodes(connection, episode_ids)


def runs_of(connection: Connection, episode_ids: Sequence[str]) -> list[str]:
    rows = rows_among(connection, select(episode.c.run_id), episode.c.id, episode_ids)
    return sorted({row["run_id"] for row in rows})


def known_values(connection: Connection, column: ColumnElement[str], wanted: Iterable[str]) -> set[str]:
    rows = rows_among(connection, select(column.label("value")), column, sorted(wanted))
    return {row["value"] for row in rows}


def stored_episodes(connection: Connection, episode_ids: Sequence[str]) -> dict[str, EpisodeLine]:
    """What the store holds under these ids, as lines; most ids of an import are new."""
    ids = sorted(known_values(connection, episode.c.id, episode_ids))
    lines = _episodes(connection, ids)
    return {line.episode.id: line for line in lines if isinstance(line, EpisodeLine)}


def stored_twin(connection: Connection, line: Head) -> Body | None:
    """What the store holds under the line's id, as a line; None when that is nothing."""
    match line:
        case RunLine():
            return _run(connection, line.id)
        case UpdateLine():
            return next(_updates(connection, line.run, learning_update.c.idx == line.index), None)
        case OptimiserLine():
            return _optimiser(connection, line.run)
        case CheckpointLine():
            query = select(checkpoint).where(checkpoint.c.id == line.id)
            row = connection.execute(query).mappings().first()
            if row is None:
                return None
            # Which run an equal checkpoint came from, and when, is not its content. Nor is where a planner's files are,
            # or how they are packed: its id is made of what they say.
            planner = row["kind"] in PLANNER_KINDS
            place = ("run", "created", *(("weights", "folder", "size_bytes") if planner else ()))
            return _line_of_row(CheckpointLine, row, **{name: getattr(line, name) for name in place})


def _runs(connection: Connection, run_ids: Sequence[str]) -> Iterator[RunLine]:
    for run_id in run_ids:
        line = _run(connection, run_id)
        if line is None:
            raise StoreError(f"The store holds no run {run_id}: list the runs to see which there are.")
        yield line


def _run(connection: Connection, run_id: str) -> RunLine | None:
    row = connection.execute(select(run).where(run.c.id == run_id)).mappings().first()
    if row is None:
        return None
    status = RunStatus.INTERRUPTED if row["status"] in _ALIVE else row["status"]
    lost_usd = row["lost_usd"] + row["under_way_usd"]
    return _line_of_row(RunLine, row, status=status, lost_usd=lost_usd)


def _checkpoints(
    connection: Connection, run_ids: Sequence[str], wanted: ColumnElement[bool]
) -> Iterator[CheckpointLine]:
    """The wanted checkpoints; a run that is not in the file is not named."""
    query = (
        select(checkpoint)
        .where(wanted)
        .order_by(checkpoint.c.run_id, checkpoint.c.generation, checkpoint.c.id)
    )
    for row in connection.execute(query).mappings():
        yield _line_of_row(CheckpointLine, row, run=row["run_id"] if row["run_id"] in run_ids else None)


def _updates(connection: Connection, run_id: str, *where: ColumnElement[bool]) -> Iterator[UpdateLine]:
    query = (
        select(learning_update)
        .where(learning_update.c.run_id == run_id, *where)
        .order_by(learning_update.c.idx)
    )
    for row in connection.execute(query).mappings().all():
        candidates = tuple(read_candidates(connection, run_id, row["idx"]))
        yield _line_of_row(UpdateLine, row, candidates=candidates)


def _optimiser(connection: Connection, run_id: str) -> OptimiserLine | None:
    row = connection.execute(select(optimiser).where(optimiser.c.run_id == run_id)).mappings().first()
    return None if row is None else _line_of_row(OptimiserLine, row)


def _episodes(connection: Connection, ids: Sequence[str]) -> Iterator[EpisodeLine | LabelLine]:
    for chunk in chunks(ids, _EPISODES):
        labels = lines_of_labels(connection, chunk)
        for one in read_timed_episodes(connection, chunk):
            full = one.episode
            if full.status is Status.RUNNING:
                full = replace(full, status=Status.INTERRUPTED)
            times = {name: getattr(one, name) for name in ("started", "finished", "turn_started")}
            yield EpisodeLine(episode=full, **times)
            yield from labels.get(full.id, ())


def lines_of_labels(connection: Connection, episode_ids: Sequence[str]) -> Mapping[str, list[LabelLine]]:
    """Every label of these episodes, replaced and withdrawn ones included, oldest first."""
    found: dict[str, list[LabelLine]] = defaultdict(list)
    query = select(label).where(label.c.episode_id.in_(episode_ids)).order_by(label.c.at, label.c.id)
    for row in connection.execute(query).mappings():
        found[row["episode_id"]].append(_line_of_row(LabelLine, row))
    return found
