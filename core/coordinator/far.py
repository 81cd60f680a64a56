"""Large encoders on the machines of a Ray cluster: they read for this process, each the conversations that it began."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from core.checkpoint import Dtype, Recipe
from core.cluster.cluster import Cluster
from core.cluster.joining import START_S, reason_of, this_program
from core.coordinator.splits import SplitModel
from core.coordinator.svf import Offsets
from core.errors import CheckpointError
from core.processes import folder_of, portable
from core.tokens.files import weights_digest
from core.tokens.prompts import Prompt

#: So many prompts are sent together, and so many bytes of a weights file.
PROMPTS, BYTES = 16, 2**26
#: How long a machine may take to load an encoder or to read so many prompts, in seconds.
LOAD_S, READ_S = 600.0, 600.0
#: A made-up prompt by whose state machines are told apart that compute other last digits.
_PROBE = Prompt(tuple(range(3, 43)), False, (40,))


class EncoderActor:
    """In an actor: an encoder that reads. Its weights are those of a folder there, or come through Ray's object store,
    once for each machine."""

    def __init__(self, folder: str, digest: str, device: str, dtype: Dtype | None, threads: int) -> None:
        torch.set_num_threads(threads)  # by which the last digits differ
        self._folder, self._digest, self._how = folder_of(folder), digest, (device, dtype)
        self._encoder: Any = None

    def load(self, files: Mapping[str, Sequence[Any]] | None) -> tuple[str, Recipe, bytes] | None:
        """What runs here, how it computes, and the state of the probe; None where the weights are not here, and come
        with `files`, each in pieces."""
        from core.coordinator.encoder import load_encoder

        if self._encoder is None:
            here = [self._folder, Path(tempfile.gettempdir()) / f"trinity-encoder-{self._digest}"]
            found = [
                one for one in here if (one / "config.json").is_file() and weights_digest(one) == self._digest
            ]
            if not found and files is None:
                return None
            folder = found[0] if found else _written(here[1], files or {})
            device, dtype = self._how
            self._encoder = load_encoder(folder, device=device, dtype=dtype)
        _, state = next(iter(self._encoder.read_prompts([_PROBE], -1, None)))
        return repr(this_program()), self._encoder.recipe, state.tobytes()

    def read(
        self, prompts: Sequence[Prompt], token_position: int, offsets: Offsets | None
    ) -> list[tuple[int, NDArray[np.float32]]] | None:
        """Every prompt's place and state; None after a start anew, before it was loaded."""
        return (
            None
            if self._encoder is None
            else list(self._encoder.read_prompts(prompts, token_position, offsets))
        )


def _written(folder: Path, files: Mapping[str, Sequence[Any]]) -> Path:
    import ray

    draft = folder.with_name(f"{folder.name}.{os.getpid()}")
    draft.mkdir(parents=True, exist_ok=True)
    for name, pieces in files.items():
        with (draft / name).open("wb") as file:
            for piece in pieces:
                file.write(memoryview(ray.get(piece)))
    with suppress(OSError):  # another actor of this machine was there first
        draft.rename(folder)
    return folder


class FarReader:
    """Reads prompts on a cluster: conversations that begin alike at one encoder, which remembers them. One encoder on
    each GPU, where there are any, else one on each machine. CheckpointError where they do not agree to the last bit, or
    none can be started."""

    def __init__(self, cluster: Cluster, folder: Path, digest: str, device: str, dtype: Dtype | None) -> None:
        self._ray, self._folder = cluster.ray, folder
        gpus = int(self._ray.cluster_resources().get("GPU", 0)) if device in ("auto", "cuda") else 0
        n, share = (gpus, 1) if gpus else (len(cluster.nodes), 0)
        threads = torch.get_num_threads()
        arguments = (portable(folder), digest, device, dtype, threads)
        self._actors = cluster.actors(EncoderActor, n, *arguments, num_gpus=share)
        self._files: dict[str, list[Any]] = {}
        told = self._loaded(self._actors)
        if len(set(told)) > 1:
            kinds = sorted({f"{one[1].key}" for one in told})
            raise CheckpointError(
                f"The machines of the cluster read otherwise, each in its own last digits ({', '.join(kinds)}): run on "
                "machines of one kind, with the same torch."
            )
        self.recipe = told[0][1]
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
        """Every prompt's place in `prompts` and its state [hidden size], as they come."""
        shares: dict[int, list[int]] = {}
        for place in sorted(range(len(prompts)), key=lambda place: prompts[place].ids):
            start = np.asarray(prompts[place].ids[: (prompts[place].ends or (1,))[0]], "<i4").tobytes()
            shares.setdefault(hashlib.blake2b(start).digest()[0] % len(self._actors), []).append(place)
        due = [
            (actor, places[start : start + PROMPTS])
            for actor, places in shares.items()
            for start in range(0, len(places), PROMPTS)
        ]
        under_way = {
            self._begin(actor, places, prompts, token_position): (actor, places, 0) for actor, places in due
        }
        while under_way:
            came, _ = self._ray.wait([*under_way], num_returns=1, timeout=READ_S)
            if not came:
                raise CheckpointError(
                    f"The encoders of the cluster have given nothing for {READ_S:g} s: see that its machines are well, "
                    "then resume."
                )
            actor, places, tries = under_way.pop(came[0])
            states = self._states(came[0], actor, tries)
            if states is None:
                other = (actor + tries) % len(self._actors)
                under_way[self._begin(other, places, prompts, token_position)] = other, places, tries + 1
                continue
            self.forwards += len(places)
            for at, state in states:
                yield places[at], state

    def forget(self) -> None:
        """What is remembered there changes no state."""

    def _begin(
        self, actor: int, places: Sequence[int], prompts: Sequence[Prompt], token_position: int
    ) -> Any:
        offsets = None
        if self.offsets is not None:  # through the object store: once to each machine
            if self._offsets_there[0] != self.offsets.key:
                self._offsets_there = self.offsets.key, self._ray.put(self.offsets)
            offsets = self._offsets_there[1]
        some = [prompts[place] for place in places]
        return self._actors[actor].read.remote(some, token_position, offsets)

    def _states(self, ready: Any, actor: int, tries: int) -> list[tuple[int, NDArray[np.float32]]] | None:
        """What was read; None where the encoder was lost, and these prompts have to be read again."""
        try:
            states: list[tuple[int, NDArray[np.float32]]] | None = self._ray.get(ready)
        except self._ray.exceptions.RayTaskError as error:
            raise CheckpointError(f"An encoder of the cluster failed: {reason_of(error)}") from error
        except self._ray.exceptions.RayError as error:
            if tries > 2 * len(self._actors):
                raise CheckpointError(f"The encoders of the cluster are lost: {reason_of(error)}") from error
            states = None
        if states is None:
            with suppress(CheckpointError):  # the next try goes to another one
                self._loaded([self._actors[actor]])
        return states

    def _loaded(self, actors: Sequence[Any]) -> list[tuple[str, Recipe, bytes]]:
        """What actors say of themselves once they have the weights."""
        try:
            told = self._ray.get([one.load.remote(None) for one in actors], timeout=LOAD_S)
            if None in told:
                files = self._stored()
                told = self._ray.get([one.load.remote(files) for one in actors], timeout=LOAD_S + START_S)
        except self._ray.exceptions.ObjectStoreFullError as error:
            raise CheckpointError(
                "Ray's object store has no room for the encoder's weights: put its folder on every machine, or start "
                "Ray with a larger --object-store-memory."
            ) from error
        except self._ray.exceptions.RayError as error:
            raise CheckpointError(f"The cluster cannot load the encoder: {reason_of(error)}") from error
        return list(told)

    def _stored(self) -> dict[str, list[Any]]:
        """The files of the folder in Ray's object store, in pieces."""
        if not self._files:
            for file in sorted(one for one in self._folder.iterdir() if one.is_file()):
                content = np.memmap(file, np.uint8, "r") if file.stat().st_size else np.zeros(0, np.uint8)
                pieces = range(0, len(content), BYTES)
                self._files[file.name] = [self._ray.put(np.array(content[at : at + BYTES])) for at in pieces]
        return self._files
