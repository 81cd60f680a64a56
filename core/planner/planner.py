"""A planner that is a causal language model with its tokenizer: a checkpoint that writes workflows."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from core.conduct.planners import CONDUCTOR
from core.episode import Decide, Reply, Transcript, Usage, WritePlan
from core.errors import CheckpointError
from core.planner.card import CARD_FILE, PlannerCard, read_card
from core.planner.forms import Shown, list_form, shown_messages
from core.planner.grammar import Grammar, Place
from core.planner.writing import Pieces, Sampled, write_tokens
from core.pocket.language_model import KeyedPrompt
from core.pocket.progress_bars import no_progress_bar
from core.tokens import PromptTokens
from core.workflow import AccessMode

#: Requests that are written in one batch.
BATCH = 256

#: Tokens of a prompt where the model names no window of its own.
_WINDOW = 8_192


class LanguagePlanner:
    """Writes workflows with a language model (a `Planner` of core.conduct.session).

    `argmax`: it writes the most likely token each time, whatever its temperature. `rounds`: the most rounds of plan and
    workflow; the short form knows one."""

    def __init__(
        self,
        card: PlannerCard,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerFast,
        *,
        argmax: bool = False,
        rounds: int = 1,
    ) -> None:
        if rounds > 1 and card.shown is Shown.SHORT:
            raise CheckpointError(f"Planner {card.id} writes the short form, which knows one round only.")
        self.card, self.model, self.tokenizer = card, model, tokenizer
        self.argmax, self.rounds = argmax, rounds
        window = int(getattr(model.config, "max_position_embeddings", 0) or _WINDOW)
        self._prompts = PromptTokens(tokenizer, min(window, _WINDOW + card.most_tokens) - card.most_tokens)
        self._end = int(tokenizer.eos_token_id)
        self._pad = self._end if tokenizer.pad_token_id is None else int(tokenizer.pad_token_id)
        self._pieces: Pieces | None = None
        self._grammars: dict[tuple[int, ...], Grammar] = {}

    @classmethod
    def load(
        cls,
        folder: Path,
        models: Sequence[str] | None = None,
        *,
        argmax: bool = False,
        rounds: int = 1,
        device: str = "cpu",
    ) -> LanguagePlanner:
        """The planner in a folder, for a pool of these `models` (None: unchecked). No code and no pickle of the
        folder's is run. CheckpointError where a part is missing or damaged, or the pool is another one."""
        card = read_card(folder)
        if models is not None:
            card.check_pool(tuple(models))
        model, tokenizer = _read(folder, device)
        if weights_digest(model, tokenizer) != card.weights_sha256:
            raise CheckpointError(
                f"The weights of the planner at {folder} do not match the digest in its {CARD_FILE}: a file is damaged."
            )
        return cls(card, model, tokenizer, argmax=argmax, rounds=rounds)

    @classmethod
    def begin(
        cls, folder: Path, models: Sequence[str], *, device: str = "cpu", **fields: Any
    ) -> LanguagePlanner:
        """A planner that has learned nothing yet, of any causal language model in a folder; `fields` are its card's."""
        model, tokenizer = _read(folder, device)
        settings = {"shown": Shown.IDS, "most_tokens": 1_024, **fields}
        return cls(PlannerCard(tuple(models), weights_digest(model, tokenizer), **settings), model, tokenizer)

    @property
    def id(self) -> str:
        return f"{CONDUCTOR}{self.card.id}"

    @property
    def iteration(self) -> int:
        """After how many iterations of its training."""
        return self.card.iteration

    @property
    def models(self) -> tuple[str, ...]:
        return self.card.models

    @property
    def mode(self) -> AccessMode:
        return self.card.mode

    @property
    def asked_model(self) -> str:
        return ""

    @property
    def show_names(self) -> bool:
        return self.card.shown is Shown.NAMES

    @property
    def device(self) -> str:
        """Where its weights are: CPU, CUDA …"""
        return str(self.model.device.type).upper()

    @property
    def size_bytes(self) -> int:
        """Of its weights, in memory."""
        return sum(one.numel() * one.element_size() for one in self.model.state_dict().values())

    def write(self, requests: Sequence[WritePlan]) -> list[Reply]:
        """One reply per request, each with the randomness of its key."""
        return [as_reply(one) for one in self.sample(requests, [request.key for request in requests])]

    def sample(self, requests: Sequence[WritePlan], keys: Sequence[str]) -> list[Sampled]:
        """One reply per request by the randomness of its key, in tokens and as text."""
        prompts = [
            KeyedPrompt(self.prompt_ids(request), key) for request, key in zip(requests, keys, strict=True)
        ]
        order = sorted(range(len(prompts)), key=lambda place: len(prompts[place].ids))
        found: dict[int, Sampled] = {}
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            replies = write_tokens(
                self.model,
                [prompts[place] for place in batch],
                temperature=0.0 if self.argmax else self.card.temperature,
                most_tokens=self.card.most_tokens,
                end=self._end,
                pad=self._pad,
                grammars=[self._grammar(requests[place].allowed) for place in batch]
                if self.card.constrained
                else (),
                pieces=self._vocabulary() if self.card.constrained else None,
            )
            for place, written in zip(batch, replies, strict=True):
                found[place] = self._sampled(prompts[place].ids, written, requests[place].allowed)
        return [found[place] for place in range(len(prompts))]

    def save(self, folder: Path) -> Path:
        """Write the folder so that a crash leaves either nothing or the whole planner. The same planner again changes
        nothing; anything else in its place is refused with CheckpointError."""
        folder = folder.absolute()
        if folder.exists():
            if folder.is_dir() and (folder / CARD_FILE).exists() and read_card(folder) == self.card:
                return folder
            raise CheckpointError(f"{folder} holds another planner or other files; name a new folder.")
        draft = folder.with_name(f".{folder.name}.draft")
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(draft, ignore_errors=True)  # left behind by a crash
            draft.mkdir()
            with no_progress_bar():
                self.model.save_pretrained(draft)
                self.tokenizer.save_pretrained(draft)
            (draft / CARD_FILE).write_text(json.dumps(self.card.to_json(), indent=2) + "\n", "utf-8")
            for path in draft.iterdir():
                with path.open("rb+") as file:
                    os.fsync(file.fileno())
            draft.rename(folder)
        except OSError as error:
            raise CheckpointError(f"The planner cannot be written to {folder}: {error.strerror}.") from error
        return folder

    def frozen(self, **fields: Any) -> LanguagePlanner:
        """A copy with weights of its own, which later learning leaves as they are, and other `fields` of its card."""
        model = torch.nn.Module.eval(copy.deepcopy(self.model))
        model.zero_grad(set_to_none=True)
        card = replace(self.card, **{"weights_sha256": weights_digest(model, self.tokenizer), **fields})
        return LanguagePlanner(card, model, self.tokenizer, argmax=self.argmax, rounds=self.rounds)

    def most_likely(self) -> LanguagePlanner:
        """The same planner, with the same weights, that writes the most likely token each time."""
        return LanguagePlanner(self.card, self.model, self.tokenizer, argmax=True, rounds=self.rounds)

    def freely(self) -> LanguagePlanner:
        """The same planner, with the same weights, that may write anything."""
        card = replace(self.card, constrained=False)
        return LanguagePlanner(card, self.model, self.tokenizer, argmax=self.argmax, rounds=self.rounds)

    def prompt_ids(self, request: WritePlan) -> tuple[int, ...]:
        """The tokens of what a request shows; text of the question never becomes a control token."""
        messages = shown_messages(request, self.card.shown)
        return self._prompts.prompt(Decide(Transcript(""), 0, "", messages=messages), "chat").ids

    def biases(self, written: Sampled) -> Tensor:
        """What the form of the lists adds to the logits [tokens, vocabulary] of each token of a reply: 0 for one that
        could stand there, minus infinity for any other."""
        grammar, pieces = self._grammar(written.allowed), self._vocabulary()
        return torch.stack([pieces.bias(grammar, place) for place in self.places(written)])

    def places(self, written: Sampled) -> list[Place]:
        """How far the lists had come before each token of a reply."""
        grammar, pieces, place, found = self._grammar(written.allowed), self._vocabulary(), Place(), []
        for token in written.ids:
            found.append(place)
            place = pieces.moves(grammar, place).get(token, place)
        return found

    def _sampled(
        self, prompt: tuple[int, ...], written: Sequence[tuple[int, bool]], allowed: tuple[int, ...]
    ) -> Sampled:
        ids, chosen = tuple(token for token, _ in written), tuple(free for _, free in written)
        text = str(self.tokenizer.decode(list(ids), skip_special_tokens=True)).strip()
        return Sampled(prompt, ids, chosen, text, bool(ids) and ids[-1] == self._end, allowed)

    def _grammar(self, allowed: tuple[int, ...]) -> Grammar:
        if allowed not in self._grammars:
            card = self.card
            self._grammars[allowed] = Grammar(list_form(card.shown), card.mode, allowed, card.most_steps)
        return self._grammars[allowed]

    def _vocabulary(self) -> Pieces:
        if self._pieces is None:
            size = int(self.model.config.vocab_size)
            self._pieces = Pieces(self.tokenizer, size)
        return self._pieces


def _read(folder: Path, device: str) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Weights and tokenizer in a folder, in float32 on a CPU. CheckpointError where they cannot be loaded."""
    try:
        with no_progress_bar():
            model = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=torch.float32 if device == "cpu" else "auto",
                trust_remote_code=False,
                use_safetensors=True,
                local_files_only=True,
            )
            tokenizer = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # tokenizers and safetensors raise exceptions of their own
        first = str(error).strip().partition("\n")[0]
        raise CheckpointError(f"The planner at {folder} cannot be loaded: {first}") from error
    torch.nn.Module.to(model, torch.device(device))  # in place
    return torch.nn.Module.eval(model), tokenizer


def best_device() -> str:
    """Where a planner learns fastest on this machine."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def as_reply(one: Sampled) -> Reply:
    """What was written as a reply; a planner of our own costs nothing."""
    reason = "stop" if one.finished else "length"
    return Reply(one.text, finish_reason=reason, usage=Usage(len(one.prompt), len(one.ids), 0.0))


def weights_digest(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> str:
    """SHA-256 (hex) over every tensor of the model by name, and the tokenizer."""
    digest = hashlib.sha256(tokenizer.backend_tokenizer.to_str().encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        plain = tensor.detach().cpu().contiguous()
        digest.update(plain.view(torch.uint8).numpy().tobytes() if plain.ndim else str(plain.item()).encode())
    return digest.hexdigest()
