"""The coordinator: a checkpoint on an encoder as a Policy, alone or as a whole population of candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.checkpoint import Checkpoint, InputFormat
from core.coordinator import head
from core.coordinator.encoder import Encoded, Encoder
from core.coordinator.svf import Offsets, check_layout, dead_blocks
from core.draws import pick, uniform
from core.episode import ROLE_ORDER, Decide, Decision
from core.errors import CheckpointError


class Coordinator:
    """Policy of one checkpoint: encode, one linear head, two softmaxes, a seeded draw or the best of each."""

    def __init__(self, checkpoint: Checkpoint, encoder: Encoder, *, argmax: bool = False) -> None:
        check_fits(checkpoint, encoder)
        self.checkpoint = checkpoint
        self.encoder = encoder
        self.argmax = argmax
        layout = checkpoint.svf_layout
        self._offsets = Offsets(layout, checkpoint.svf_offsets) if layout else None

    @property
    def id(self) -> str:
        """The checkpoint's id."""
        return self.checkpoint.id

    @property
    def models(self) -> tuple[str, ...]:
        """The checkpoint's pool slots, in head order."""
        return self.checkpoint.models

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        """One decision per request; the draw depends on the request's key only."""
        encoded = self.encoder.encode(
            requests,
            input_format=self.checkpoint.input_format,
            token_position=self.checkpoint.token_position,
            offsets=self._offsets,
        )
        z = head.logits(encoded.states, self.checkpoint.head)
        return choose(requests, encoded, z, self.models, argmax=self.argmax)


class Population:
    """Policy of many candidate heads at once: equal inputs are encoded once, whoever reached them.

    `vectors` float32 [candidates, (models + 3) x hidden size]; `candidate_of` maps episode id to candidate.
    """

    def __init__(
        self,
        vectors: NDArray[Any],
        encoder: Encoder,
        candidate_of: Mapping[str, int],
        models: Sequence[str],
        *,
        argmax: bool = False,
        input_format: InputFormat = "segments",
        token_position: int = -2,
    ) -> None:
        rows = len(models) + len(ROLE_ORDER)
        if vectors.ndim != 2 or vectors.shape[1] != rows * encoder.hidden_size:
            raise CheckpointError(
                f"A population for {len(models)} models needs vectors of {rows} x {encoder.hidden_size} "
                f"numbers; these have shape {vectors.shape}."
            )
        self._heads = np.asarray(vectors, np.float32).reshape(len(vectors), rows, encoder.hidden_size)
        self._encoder = encoder
        self._candidate_of = candidate_of
        self._models = tuple(models)
        self._argmax = argmax
        self._input_format: InputFormat = input_format
        self._token_position = token_position

    @property
    def id(self) -> str:
        """Not one checkpoint but all candidates of a generation."""
        return "population"

    @property
    def models(self) -> tuple[str, ...]:
        """The pool slots, in head order."""
        return self._models

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        """One decision per request, each by the candidate that plays its episode."""
        encoded = self._encoder.encode(
            requests, input_format=self._input_format, token_position=self._token_position
        )
        candidates = np.array([self._candidate_of[request.episode_id] for request in requests], int)
        z = np.empty((len(requests), self._heads.shape[1]))
        for candidate in np.unique(candidates):
            mine = candidates == candidate
            z[mine] = head.logits(encoded.states[mine], self._heads[candidate])
        return choose(requests, encoded, z, self._models, argmax=self._argmax)


def choose(
    requests: Sequence[Decide],
    encoded: Encoded,
    z: NDArray[np.float64],
    models: Sequence[str],
    *,
    argmax: bool = False,
) -> list[Decision]:
    """Decisions from logits `z` [n, models + roles]; model and role are drawn independently (paper 3.1)."""
    decisions = []
    for row, request in enumerate(requests):
        model_z, role_z = head.split(z[row], len(models))
        model_probs = head.softmax(model_z, request.model_mask)
        role_probs = head.softmax(role_z, request.role_mask)
        best = int(np.argmax(model_probs)), int(np.argmax(role_probs))
        if argmax:
            model, role = best
        else:
            u = uniform(request.key, 2)
            model, role = pick(model_probs, float(u[0])), pick(role_probs, float(u[1]))
        decisions.append(
            Decision(
                model=models[model],
                role=ROLE_ORDER[role],
                model_logits=tuple(model_z.tolist()),
                role_logits=tuple(role_z.tolist()),
                model_probs=tuple(model_probs.tolist()),
                role_probs=tuple(role_probs.tolist()),
                argmax_model=models[best[0]],
                argmax_role=ROLE_ORDER[best[1]],
                sampled=not argmax,
                model_mask=request.model_mask or (True,) * len(models),
                role_mask=request.role_mask or (True,) * len(ROLE_ORDER),
                hidden_state=encoded.states[row].astype("<f2").tobytes(),
                prompt_digest=encoded.digests[row],
                prompt_tokens=encoded.token_counts[row],
                prompt_overflow=encoded.overflows[row],
            )
        )
    return decisions


def check_fits(checkpoint: Checkpoint, encoder: Encoder, models: Sequence[str] | None = None) -> None:
    """Refuse a checkpoint that was made for another encoder or for models that the pool does not have.

    Raises CheckpointError naming the mismatch. `models`: the pool's slots; None checks the encoder only."""
    made, given = checkpoint.encoder, encoder.identity
    if made.hidden_size != given.hidden_size:
        raise CheckpointError(
            f"Checkpoint {checkpoint.id} reads hidden states of {made.hidden_size} numbers ({made.name}), "
            f"but the encoder {given.name} gives {given.hidden_size}."
        )
    if made.digest and given.digest and made.digest != given.digest:
        raise CheckpointError(
            f"Checkpoint {checkpoint.id} was made on other encoder weights than {given.name}'s: "
            f"their digest is {made.digest[:12]} and not {given.digest[:12]}."
        )
    if not (made.digest and given.digest) and (made.name, made.revision) != (given.name, given.revision):
        raise CheckpointError(
            f"Checkpoint {checkpoint.id} was made on the encoder {made.name}, not on {given.name}."
        )
    if checkpoint.dtype != encoder.dtype:
        raise CheckpointError(
            f"Checkpoint {checkpoint.id} was made on {checkpoint.dtype} states; "
            f"load the encoder with that dtype, not {encoder.dtype}."
        )
    check_layout(encoder.model, checkpoint.svf_layout)
    if checkpoint.svf_dead != dead_blocks(encoder.model, checkpoint.svf_layout):
        raise CheckpointError(
            f"Checkpoint {checkpoint.id} was made on an encoder with other tied embeddings: it records "
            f"{', '.join(checkpoint.svf_dead) or 'none'} as dead."
        )
    missing = [name for name in checkpoint.models if models is not None and name not in models]
    if missing:
        raise CheckpointError(
            f"Checkpoint {checkpoint.id} was made for another pool: it chooses among "
            f"{', '.join(checkpoint.models)}, but this pool has no {', '.join(missing)}."
        )
