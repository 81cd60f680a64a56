"""Large encoders on the machines of a Ray cluster: they read for this process, each the conversations that it began."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import socket
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from core.checkpoint import MIXED, Dtype, Recipe
from core.cluster.cluster import Cluster
from core.cluster.joining import reason_of, this_program
from core.cluster.logs import Collected, Said, tell
from core.cluster.workers import other_program
from core.coordinator.splits import SplitModel
from core.coordinator.svf import Offsets
from core.errors import CheckpointError
from core.processes import folder_of, portable
from core.tokens.files import weights_digest
from core.tokens.prompts import Prompt

log = logging.getLogger(__name__)

#: So many prompts are sent together, and so many bytes of a weights file.
PROMPTS, BYTES = 16, 2**24
#: How long a machine may take to load an encoder, to read so many prompts, and to take so many bytes, in seconds.
LOAD_S, READ_S, TAKE_S = 600.0, 600.0, 30.0
#: So long it is tried to put something into Ray's object store while that is full, in seconds.
PUT_S = 5.0
#: So long an answer is waited for before it is looked whether the cluster is still there, and so long after one try a
#: lost encoder is looked for again, in seconds.
ASK_S, AGAIN_S = 5.0, 1.0
#: Prompts are read by so many encoders that are lost over them before it is given up.
MOST_LOST = 5
#: A draft of a folder that nobody has written to for so long is left over, in seconds.
OLD_S = 3600.0
#: A made-up prompt by whose state machines are told apart that compute other last digits.
_PROBE = Prompt(tuple(range(3, 43)), False, (40,))
#: What of a folder an encoder is loaded from.
_FILES = ("*.safetensors", "*.json", "*.txt", "*.jinja")


@dataclass(frozen=True, slots=True)
class Reads:
    """How an encoder reads: what runs there, Python and this program, how it computes, and the state of the probe."""

    program: tuple[str, str]
    recipe: Recipe
    probe: bytes


@dataclass(frozen=True, slots=True)
class Read:
    """Every prompt's place and state, how many forwards of a whole prompt that took, and what was logged meanwhile."""

    states: list[tuple[int, NDArray[np.float32]]]
    forwards: float
    said: list[Said]


class EncoderActor:
    """In an actor: an encoder that reads. Its weights are those of a folder there, or were sent, once for each machine,
    and kept in its folder for temporary files."""

    def __init__(self, folder: str, digest: str, device: str, dtype: Dtype | None, threads: int) -> None:
        torch.set_num_threads(threads)  # by which the last digits differ
        self._digest, self._how = digest, (device, dtype)
        sent = Path(tempfile.gettempdir()) / f"trinity-encoder-{digest}"
        self._folders = (folder_of(folder), sent)
        self._draft = sent.with_name(f"{sent.name}.{os.getpid()}")
        self._encoder: Any = None
        self._logged = Collected.installed()

    def load(self) -> Reads | str:
        """How it reads; where the weights are not here, the name of the machine that lacks them."""
        from core.coordinator.encoder import load_encoder

        if self._encoder is None:
            found = (one for one in self._folders if (one / "config.json").is_file())
            folder = next((one for one in found if weights_digest(one) == self._digest), None)
            if folder is None:
                return socket.gethostname()
            device, dtype = self._how
            self._encoder = load_encoder(folder, device=device, dtype=dtype)
        _, state = next(iter(self._encoder.read_prompts([_PROBE], -1, None)))
        return Reads(this_program(), self._encoder.recipe, state.tobytes())

    def take(self, name: str, at: int, piece: NDArray[np.uint8]) -> bool:
        """Write a piece of a file; whether all before it is here."""
        self._draft.mkdir(exist_ok=True)
        path = self._draft / name
        if at != (path.stat().st_size if at and path.is_file() else 0):
            return False
        with path.open("ab" if at else "wb") as file:
            file.write(piece.tobytes())
        return True

    def keep(self) -> None:
        """What was taken are the weights, unless another actor of this machine had them first."""
        sent = self._folders[1]
        if not sent.is_dir() or weights_digest(sent) != self._digest:
            shutil.rmtree(sent, ignore_errors=True)
            with suppress(OSError):
                self._draft.rename(sent)
        self.drop()
        for draft in sent.parent.glob(f"{sent.name}.*"):
            with suppress(OSError):
                if draft.stat().st_mtime < time.time() - OLD_S:  # who wrote it was lost
                    shutil.rmtree(draft)

    def drop(self) -> None:
        """What was taken is of no use."""
        shutil.rmtree(self._draft, ignore_errors=True)

    def read(self, prompts: Sequence[Prompt], token_position: int, offsets: Offsets | None) -> Read | None:
        """What was read; None after a start anew, before it was loaded."""
        if self._encoder is None:
            return None
        before = self._encoder.forwards
        states = list(self._encoder.read_prompts(prompts, token_position, offsets))
        return Read(states, self._encoder.forwards - before, self._logged.taken())


@dataclass(eq=False)
class _Share:
    """Prompts that are read together, by their places: at which encoder, and how often one was lost over them."""

    actor: int
    places: Sequence[int]
    lost: int = 0


class _Actors:
    """The encoders, and which of them are `up`: those that are lost load again as soon as Ray has started them."""

    def __init__(self, cluster: Cluster, folder: Path, actors: Sequence[Any]) -> None:
        self._cluster, self._ray, self._folder = cluster, cluster.ray, folder
        self.all = actors
        #: Calls by which lost ones load again, and whose they are.
        self.coming: dict[Any, int] = {}
        self._again: dict[int, float] = {}  # when which ones are looked for
        self._sent: set[int] = set()  # those that were given the weights in this life
        self._kinds = self._load_all()
        self.up = set(range(len(actors)))

    @property
    def recipe(self) -> Recipe:
        """The recipe of their states."""
        first = next(iter(self._kinds)).recipe
        return first if len(self._kinds) == 1 else replace(first, attention=MIXED)

    def lose(self, actor: int, error: Exception) -> None:
        """One cannot read any more, until it is there again."""
        if actor in self.up:
            log.warning("An encoder of the cluster was lost: %s", reason_of(error))
            self._cluster.note_lost()
            self.up.discard(actor)
            self._sent.discard(actor)
            self._again[actor] = 0.0

    def look(self) -> float:
        """Have those load that were lost; how long their answers may be waited for before it is looked again."""
        now = time.monotonic()
        for actor in [one for one, at in self._again.items() if at <= now]:
            del self._again[actor]
            self.coming[self.all[actor].load.remote()] = actor
        return min([ASK_S, *(at - now for at in self._again.values())])

    def take(self, ready: Any) -> None:
        """One has answered that was to load. CheckpointError where it cannot, and no other one is up."""
        actor, fault = self.coming.pop(ready), ""
        try:
            told = self._ray.get(ready)
            if told in self._kinds:
                self.up.add(actor)
            elif isinstance(told, str) and actor not in self._sent:
                self._send([actor])
                self._again[actor] = 0.0
            else:
                fault = _unlike([*self._kinds, told]) if isinstance(told, Reads) else _CHANGED
        except (self._ray.exceptions.RayTaskError, CheckpointError) as error:
            fault = str(error) if isinstance(error, CheckpointError) else _unread(error)
        except self._ray.exceptions.RayError:  # it is not there yet
            self._again[actor] = time.monotonic() + AGAIN_S
        if fault:
            if not self.up and not self.coming and not self._again:
                self._again = dict.fromkeys(range(len(self.all)), 0.0)  # for who tries once more
                raise CheckpointError(fault)
            log.warning("An encoder of the cluster is given no work: %s", fault)

    def _load_all(self) -> frozenset[Reads]:
        """How they read. CheckpointError where one cannot load, or they may not read side by side."""
        told: dict[int, Reads] = {}
        try:
            while lacking := [one for one in range(len(self.all)) if one not in told]:
                said = self._got([self.all[one].load.remote() for one in lacking], LOAD_S)
                told |= {
                    one: found for one, found in zip(lacking, said, strict=True) if isinstance(found, Reads)
                }
                machines = {name: one for one, name in zip(lacking, said, strict=True) if one not in told}
                if self._sent & {*machines.values()}:
                    raise CheckpointError(_CHANGED)
                self._send([*machines.values()])
        except self._ray.exceptions.RayError as error:
            raise CheckpointError(_unread(error)) from error
        kinds = frozenset(told.values())
        if fault := _unlike([*kinds], mixed=self._cluster.mixed):
            raise CheckpointError(fault)
        return kinds

    def _send(self, actors: Sequence[int]) -> None:
        """Give these the files of the folder, one piece after the other: Ray's object store need never hold more than
        one. CheckpointError where a piece does not get there; RayError where one of them is lost."""
        to = [self.all[one] for one in actors]
        try:
            for name, at, piece in self._pieces() if to else ():
                stored = self.put(piece)
                taken = self._got([one.take.remote(name, at, stored) for one in to], TAKE_S)
                if not all(taken):  # one was started anew meanwhile
                    return
            self._got([one.keep.remote() for one in to], LOAD_S)
            self._sent |= {*actors}
        except (CheckpointError, self._ray.exceptions.GetTimeoutError) as error:
            for one in to:
                one.drop.remote()
            if isinstance(error, CheckpointError):
                raise
            raise CheckpointError(_NO_ROOM) from error  # a piece stays where it was put

    def put(self, value: Any) -> Any:
        """Put something into Ray's object store, which needs a moment to be rid of what was there. CheckpointError
        where it has no room."""
        full = self._ray.exceptions.ObjectStoreFullError, self._ray.exceptions.OutOfDiskError
        until = time.monotonic() + PUT_S
        while True:
            try:
                return self._ray.put(value)
            except full as error:
                if time.monotonic() > until:
                    raise CheckpointError(_NO_ROOM) from error
                time.sleep(0.1)

    def _pieces(self) -> Iterator[tuple[str, int, NDArray[np.uint8]]]:
        """The files of the folder, each in pieces: its name, where the piece stands in it, and the piece."""
        try:
            for file in sorted({one for pattern in _FILES for one in self._folder.glob(pattern)}):
                for at in range(0, max(1, file.stat().st_size), BYTES):
                    yield file.name, at, np.fromfile(file, np.uint8, BYTES, offset=at)
        except OSError as error:
            raise CheckpointError(
                f"The encoder's files in {self._folder} cannot be read any more, and a machine of the cluster lacks "
                f"them: {error.strerror or error}."
            ) from error

    def _got(self, asked: Sequence[Any], most_s: float) -> list[Any]:
        """What all of these calls answer. PoolError where the cluster is gone."""
        until, waiting = time.monotonic() + most_s, [*asked]
        while waiting:
            left_s = until - time.monotonic()
            _, waiting = self._ray.wait(
                waiting, num_returns=len(waiting), timeout=max(0.0, min(ASK_S, left_s))
            )
            if waiting and left_s <= 0:
                raise self._ray.exceptions.GetTimeoutError(f"no answer for {most_s:g} s")
            if waiting:
                self._cluster.check()
        return [self._ray.get(one) for one in asked]


_NO_ROOM = (
    "Ray's object store has no room for a piece of the encoder's weights, and its disk neither: put the encoder's "
    "folder on every machine of the cluster, or start Ray with a larger --object-store-memory."
)
_CHANGED = "The encoder's files were changed while they were sent to a machine of the cluster: try again."


def _unread(error: Exception) -> str:
    return f"The cluster cannot load the encoder: {reason_of(error)}"


def _unlike(told: Sequence[Reads], *, mixed: bool = False) -> str:
    """What is wrong with encoders that do not read alike, unless they may be `mixed`, or run another program than this
    process; empty: nothing."""
    for one in told:
        if fault := other_program(one.program):
            return fault
    if mixed or len(set(told)) < 2:
        return ""
    kinds = ", ".join(sorted({str(one.recipe) for one in told}))
    return (
        f"The machines of the cluster read in other last digits each ({kinds}): run on machines of one kind with the "
        "same torch, or by --engine ray-mixed, after which a run does not come to the same again."
    )


class FarReader:
    """Reads prompts on a cluster: conversations that begin alike at one encoder, which remembers them. One encoder on
    each GPU, where there are any, else one on each machine. CheckpointError where they do not agree to the last bit, or
    none can be started."""

    def __init__(self, cluster: Cluster, folder: Path, digest: str, device: str, dtype: Dtype | None) -> None:
        self._cluster, self._ray = cluster, cluster.ray
        gpus = int(self._ray.cluster_resources().get("GPU", 0)) if device in ("auto", "cuda") else 0
        n, share = (gpus, 1) if gpus else (len(cluster.nodes), 0)
        arguments = (portable(folder.absolute()), digest, device, dtype, torch.get_num_threads())
        actors = cluster.actors(EncoderActor, n, *arguments, num_gpus=share)
        self._actors = _Actors(cluster, folder, actors)
        self.recipe = self._actors.recipe
        #: Offsets of singular values under which prompts are read; None: the weights as they are.
        self.offsets: Offsets | None = None
        self._offsets_there: tuple[bytes, Any] = b"", None
        self.forwards = 0.0

    def read(
        self,
        prompts: Sequence[Prompt],
        token_position: int,
        seed: bytes = b"",
        split: SplitModel | None = None,
    ) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Every prompt's place in `prompts` and its state [hidden size], as they come. CheckpointError where no encoder
        can read them; PoolError where the cluster is gone."""
        actors, due = self._actors, deque(self._shares(prompts))
        under_way: dict[Any, tuple[int, _Share]] = {}
        heard = time.monotonic()
        while due or under_way:
            wait_s = actors.look()
            while due and actors.up:
                share = due.popleft()
                others = sorted(actors.up)
                actor = share.actor if share.actor in others else others[share.actor % len(others)]
                under_way[self._begin(actor, [prompts[one] for one in share.places], token_position)] = (
                    actor,
                    share,
                )
            if waited := [*under_way, *actors.coming]:
                came, _ = self._ray.wait(waited, num_returns=1, timeout=max(0.0, wait_s))
            else:
                time.sleep(max(0.0, wait_s))
                came = []
            self._cluster.check()
            if time.monotonic() - heard > READ_S:
                raise CheckpointError(
                    f"The encoders of the cluster have given nothing for {READ_S:g} s: see that its machines are well, "
                    "then resume."
                )
            for ready in came:
                if ready in actors.coming:
                    actors.take(ready)
                    continue
                actor, share = under_way.pop(ready)
                if (states := self._states(ready, actor, share)) is None:
                    due.append(share)
                    continue
                heard = time.monotonic()
                for at, state in states:
                    yield share.places[at], state

    def forget(self) -> None:
        """What is remembered there changes no state."""

    def _shares(self, prompts: Sequence[Prompt]) -> Iterator[_Share]:
        """Those that begin alike for the same encoder, one after the other."""
        of: dict[int, list[int]] = {}
        n = len(self._actors.all)
        for place in sorted(range(len(prompts)), key=lambda place: prompts[place].ids):
            start = np.asarray(prompts[place].ids[: (prompts[place].ends or (1,))[0]], "<i4").tobytes()
            of.setdefault(hashlib.blake2b(start).digest()[0] % n, []).append(place)
        for actor, places in of.items():
            for at in range(0, len(places), PROMPTS):
                yield _Share(actor, places[at : at + PROMPTS])

    def _begin(self, actor: int, prompts: Sequence[Prompt], token_position: int) -> Any:
        offsets = None
        if self.offsets is not None:  # through the object store: once to each machine
            if self._offsets_there[0] != self.offsets.key:
                self._offsets_there = self.offsets.key, self._actors.put(self.offsets)
            offsets = self._offsets_there[1]
        return self._actors.all[actor].read.remote(prompts, token_position, offsets)

    def _states(self, ready: Any, actor: int, share: _Share) -> list[tuple[int, NDArray[np.float32]]] | None:
        """What was read; None where the encoder was lost, and these prompts have to be read again."""
        lost: Exception = CheckpointError("it was started again")
        try:
            read: Read | None = self._ray.get(ready)
        except self._ray.exceptions.RayTaskError as error:
            log.error("An encoder of the cluster failed: %s", error)  # with its traceback
            raise CheckpointError(f"An encoder of the cluster failed: {reason_of(error)}") from error
        except self._ray.exceptions.RayError as error:
            read, lost = None, error
        if read is None:
            self._actors.lose(actor, lost)
            share.lost += 1
            if share.lost > MOST_LOST:
                raise CheckpointError(f"The encoders of the cluster are lost: {reason_of(lost)}") from lost
            return None
        tell(read.said)
        self.forwards += read.forwards
        return read.states
