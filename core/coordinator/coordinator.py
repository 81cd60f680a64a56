"""The coordinator: a checkpoint on an encoder as a Policy, alone or as a whole population of candidates; and the
authors' released coordinator, a flat vector, as a checkpoint on a Qwen3-0.6B-shaped encoder."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.checkpoint import Checkpoint
from core.coordinator.encoder import Encoder
from core.coordinator.states import Encoded
from core.coordinator.svf import Offsets, check_layout, dead_blocks, svf_layout
from core.draws import draw_index, uniform
from core.episode import ROLE_ORDER, Decide, Decision, Protocol
from core.errors import CheckpointError
from core.heads import softmax, split
from core.play.policies import Policy


class Coordinator(Policy):
    """Policy of one checkpoint: encode, one head, two softmaxes, a seeded draw, or the best of each (`argmax`)."""

    def __init__(self, checkpoint: Checkpoint, encoder: Encoder, *, argmax: bool = False) -> None:
        check_fits(checkpoint, encoder)
        self.checkpoint = checkpoint
        self.id = checkpoint.id
        self.models = checkpoint.models
        self.encoder = encoder
        self.argmax = argmax or checkpoint.head.argmax
        layout = checkpoint.svf_layout
        self.offsets = Offsets(layout, checkpoint.svf_offsets) if layout else None

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        """One decision per request; the draw depends on the request's key only."""
        encoded = encode_for(self.checkpoint, self.encoder, requests, self.offsets)
        turns = [request.index for request in requests]
        z = self.checkpoint.head.logits(encoded.states, self.checkpoint.head_vector, turns)
        return choose(requests, encoded, z, self.checkpoint, argmax=self.argmax)


class Population(Policy):
    """Policy of many candidates at once: equal inputs are encoded once, whichever candidates reached them.

    `vectors` float32 [candidates, n] stand in the place of the template's vector; `candidate_of` maps episode id
    to candidate. Candidates with SVF offsets of their own each read for themselves."""

    def __init__(
        self, template: Checkpoint, vectors: NDArray[Any], encoder: Encoder, candidate_of: Mapping[str, int]
    ) -> None:
        if vectors.ndim != 2 or vectors.shape[1] != len(template.vector):
            raise CheckpointError(
                f"A population around checkpoint {template.id} needs vectors of {len(template.vector)} numbers; "
                f"these have shape {vectors.shape}."
            )
        check_fits(template, encoder)
        self.id = "population"  # not one checkpoint but all candidates of a generation
        self.models = template.models
        self._template = template
        self._vectors = np.asarray(vectors, np.float32)
        self._encoder = encoder
        self._candidate_of = candidate_of

    def decide(self, requests: Sequence[Decide]) -> list[Decision]:
        """One decision per request, each by the candidate that plays its episode."""
        template = self._template
        candidates = np.array([self._candidate_of[request.episode_id] for request in requests], int)
        turns = np.array([request.index for request in requests], int)
        encoded = self._encoded(requests, candidates)
        head = template.head
        z = np.empty((len(requests), head.rows))
        for candidate in np.unique(candidates):
            rows, vector = candidates == candidate, self._vectors[candidate, template.svf_size :]
            z[rows] = head.logits(encoded.states[rows], vector, turns[rows])
        return choose(requests, encoded, z, template, argmax=template.head.argmax)

    def _encoded(self, requests: Sequence[Decide], candidates: NDArray[np.int64]) -> Encoded:
        template = self._template
        if not template.svf_layout:
            return encode_for(template, self._encoder, requests)
        rows: dict[int, Encoded] = {}
        for candidate in np.unique(candidates).tolist():
            mine = np.flatnonzero(candidates == candidate).tolist()
            offsets = Offsets(template.svf_layout, self._vectors[candidate, : template.svf_size])
            found = encode_for(template, self._encoder, [requests[row] for row in mine], offsets)
            rows |= {row: found.row(place) for place, row in enumerate(mine)}
        return Encoded.of([rows[row] for row in range(len(requests))])


def encode_for(
    checkpoint: Checkpoint, encoder: Encoder, requests: Sequence[Decide], offsets: Offsets | None = None
) -> Encoded:
    """Hidden states as the checkpoint's head reads them."""
    return encoder.encode(
        requests,
        input_format=checkpoint.input_format,
        token_position=checkpoint.token_position,
        offsets=offsets,
    )


def read_each_for(
    checkpoint: Checkpoint, encoder: Encoder, requests: Sequence[Decide]
) -> Iterator[tuple[int, Encoded]]:
    """The same without offsets, row by row as it is read (see `Encoder.read_each`)."""
    return encoder.read_each(
        requests, input_format=checkpoint.input_format, token_position=checkpoint.token_position
    )


def choose(
    requests: Sequence[Decide],
    encoded: Encoded,
    z: NDArray[np.float64],
    checkpoint: Checkpoint,
    *,
    argmax: bool = False,
) -> list[Decision]:
    """Decisions from logits `z` [n, models + roles]; model and role are drawn independently (paper 3.1).

    What the checkpoint bars or the request masks is minus infinity before the softmax."""
    decisions, models = [], checkpoint.models
    own_models, own_roles = checkpoint.model_mask, checkpoint.role_mask
    for row, request in enumerate(requests):
        model_z, role_z = split(z[row], len(models))
        model_mask = _both(request.model_mask, own_models)
        role_mask = _both(request.role_mask, own_roles)
        model_probs, role_probs = softmax(model_z, model_mask), softmax(role_z, role_mask)
        best = int(np.argmax(model_probs)), int(np.argmax(role_probs))
        if argmax:
            model, role = best
        else:
            u = uniform(request.key, 2)
            model, role = draw_index(model_probs, float(u[0])), draw_index(role_probs, float(u[1]))
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
                model_mask=model_mask or (True,) * len(models),
                role_mask=role_mask or (True,) * len(ROLE_ORDER),
                hidden_state=encoded.states[row].astype("<f2").tobytes(),
                prompt_digest=encoded.digests[row],
                prompt_tokens=encoded.token_counts[row],
                prompt_overflow=encoded.overflows[row],
                recipe=encoded.recipe,
            )
        )
    return decisions


def _both(mask: Sequence[bool], other: Sequence[bool]) -> tuple[bool, ...]:
    """What both masks allow; an empty one allows all."""
    if mask and other:
        return tuple(a and b for a, b in zip(mask, other, strict=True))
    return tuple(mask or other)


def check_fits(checkpoint: Checkpoint, encoder: Encoder, models: Sequence[str] | None = None) -> None:
    """Refuse a checkpoint that was made for another encoder or for models that the pool does not have. One that was
    made on another recipe plays: `recipes.Agreement` measures what that changes.

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
    encoder.tokens.check(checkpoint.input_format)
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
            f"{', '.join(checkpoint.models)}, but this pool has no {', '.join(missing)}. "
            "Give a pool.toml that has them."
        )


def released_checkpoint(vector_file: Path, config_file: Path, encoder: Encoder) -> Checkpoint:
    """Read the run's `model_iter_N.npy` and its configuration: [SVF offsets | head row-major], chat input.

    Raises CheckpointError when a file cannot be read or the vector does not fit the encoder."""
    try:
        with vector_file.open("rb") as file:  # not np.load, which also opens archives
            vector = np.asarray(np.lib.format.read_array(file, allow_pickle=False), np.float32)
        config: dict[str, Any] = json.loads(config_file.read_text("utf-8"))[0]["configs"]
        models = tuple(map(str, config["llm_names"]))
        layers = [int(layer) for layer in config["opt_layer_indices"]]
        position = -1 if config["last_token_predict"] else -2
        generation = int(config["num_iters"])
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise CheckpointError(f"The released run cannot be read: {type(error).__name__} {error}.") from error
    layout = svf_layout(encoder.model, layers, lm_head=True)
    offsets, rows = sum(count for _, count in layout), len(models) + len(ROLE_ORDER)
    if vector.shape != (offsets + rows * encoder.hidden_size,):
        raise CheckpointError(
            f"The released vector has shape {vector.shape}, but this encoder needs {offsets} SVF offsets "
            f"and a {rows} x {encoder.hidden_size} head."
        )
    return Checkpoint(
        vector,
        models,
        encoder.identity,
        input_format="chat",
        token_position=position,
        svf_layout=layout,
        svf_dead=dead_blocks(encoder.model, layout),
        **asdict(encoder.recipe),
        protocol=Protocol.RELEASED,
        generation=generation,
        kind="released",
    )
