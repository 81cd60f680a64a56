"""A planner that is a causal language model with its tokenizer: a checkpoint that writes workflows, each by its own
keyed random numbers, freely or only what lists can be."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel, PreTrainedTokenizerFast
from transformers.modeling_outputs import CausalLMOutputWithPast

from core.checkpoint import write_folder
from core.conduct.planners import CONDUCTOR
from core.conduct.session import Planner
from core.episode import Decide, Reply, Transcript, Usage, WritePlan
from core.errors import CheckpointError
from core.planner.card import CARD_FILE, PlannerCard, read_card
from core.planner.forms import Grammar, Place, Shown, list_form, shown_messages
from core.pocket.threads import is_small, quiet_loading, suited_threads
from core.pocket.writing import KeyedPrompt, sample
from core.tokens.prompts import PromptTokens

#: Requests that are written in one batch.
BATCH = 256

#: Tokens of a prompt where the model names no window of its own.
_WINDOW = 8_192


@dataclass(frozen=True, slots=True)
class Sampled:
    """One reply in tokens and as text; `finished` where the model ended it itself. `chosen` is True for each token
    that another one could have stood for; one that the form of the lists fixed was not chosen. `allowed` are the slots
    of the models that it may name, and of `words` each subtask is one (empty: any text)."""

    prompt: tuple[int, ...]
    ids: tuple[int, ...]
    chosen: tuple[bool, ...]
    text: str
    finished: bool
    allowed: tuple[int, ...]
    words: tuple[str, ...] = ()


class Pieces:
    """What every token of a vocabulary writes, and which of them may come next in lists."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, size: int) -> None:
        self._end, self._size = int(tokenizer.eos_token_id), size
        self._by_sign: dict[str, list[tuple[int, str]]] = {}
        # Some tokenizers drop a blank that stands at the beginning, so each piece is read behind another one.
        anchor = tokenizer.encode("[", add_special_tokens=False)
        before = len(_decoded(tokenizer, anchor))
        for token in range(min(size, len(tokenizer))):
            piece = _decoded(tokenizer, [*anchor, token])[before:]
            if piece:
                self._by_sign.setdefault(piece[0], []).append((token, piece))
        self._biases: dict[tuple[int, Place], Tensor] = {}
        self._moves: dict[tuple[int, Place], dict[int, Place]] = {}

    def bias(self, grammar: Grammar, place: Place) -> Tensor:
        """What is added to the logits [vocabulary]: 0 for a token that may come next, minus infinity for any other.
        CheckpointError where the vocabulary cannot write any lists from here."""
        key = (id(grammar), place)
        if key not in self._biases:
            found = torch.full((self._size,), -torch.inf)
            moves = self.moves(grammar, place)
            allowed = [*moves] if place.part != "done" else [self._end]
            if not allowed:
                raise CheckpointError(
                    "The planner's tokenizer has no token with which its lists could go on: use another one, or let "
                    "it write freely."
                )
            found[allowed] = 0.0
            self._biases[key] = found
        return self._biases[key]

    def moves(self, grammar: Grammar, place: Place) -> dict[int, Place]:
        """Every token that may come next, and where it leads."""
        key = (id(grammar), place)
        if key not in self._moves:
            signs = grammar.next_signs(place)
            found: dict[int, Place] = {}
            for sign in self._by_sign if signs is None else sorted(signs):
                for token, piece in self._by_sign.get(sign, ()):
                    if token != self._end and (to := grammar.advance(place, piece)) is not None:
                        found[token] = to
            self._moves[key] = found
        return self._moves[key]


def _decoded(tokenizer: PreTrainedTokenizerFast, ids: Sequence[int]) -> str:
    options = {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}
    return str(tokenizer.decode(list(ids), **options))


class _Steered:
    """A causal model as `sample` runs it, wherever it stands, with something added to its logits."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.config = model.config
        self._decoder: Callable[..., Any] = model.get_decoder()  # type: ignore[no-untyped-call]
        self._head: Callable[[Tensor], Tensor] = model.get_output_embeddings()  # type: ignore[no-untyped-call]
        self._device = model.device
        self.bias: Tensor | None = None

    def __call__(self, *, logits_to_keep: int, **inputs: Any) -> CausalLMOutputWithPast:
        out = self._decoder(
            **{
                name: value.to(self._device) if isinstance(value, Tensor) else value
                for name, value in inputs.items()
            }
        )
        logits = self._head(out.last_hidden_state[:, -logits_to_keep:]).float().cpu()
        return CausalLMOutputWithPast(logits=logits if self.bias is None else logits + self.bias[:, None])


class LanguagePlanner(Planner):
    """Writes workflows with a language model.

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
        self.id, self.models, self.mode = f"{CONDUCTOR}{card.id}", card.models, card.mode
        self.iteration = card.iteration  # after how many of its training
        self.show_names = card.shown is Shown.NAMES
        window = int(getattr(model.config, "max_position_embeddings", 0) or _WINDOW)
        self._prompts = PromptTokens(tokenizer, min(window, _WINDOW + card.most_tokens) - card.most_tokens)
        self._end = int(tokenizer.eos_token_id)
        self._pad = self._end if tokenizer.pad_token_id is None else int(tokenizer.pad_token_id)
        self._pieces: Pieces | None = None
        self._grammars: dict[tuple[tuple[int, ...], tuple[str, ...]], Grammar] = {}

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
    def untrained(
        cls, folder: Path, models: Sequence[str], *, device: str = "cpu", **fields: Any
    ) -> LanguagePlanner:
        """A planner that has learned nothing yet, of any causal language model in a folder; `fields` are its card's."""
        model, tokenizer = _read(folder, device)
        settings = {"shown": Shown.IDS, "most_tokens": 1_024, **fields}
        return cls(PlannerCard(tuple(models), weights_digest(model, tokenizer), **settings), model, tokenizer)

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
            told = [requests[place] for place in batch] if self.card.constrained else []
            grammars = [self._grammar(one.allowed, one.words) for one in told]
            replies = self._write([prompts[place] for place in batch], grammars)
            for place, written in zip(batch, replies, strict=True):
                ids, chosen = tuple(token for token, _ in written), tuple(free for _, free in written)
                text = str(self.tokenizer.decode(list(ids), skip_special_tokens=True)).strip()
                ended = bool(ids) and ids[-1] == self._end
                asked = requests[place]
                found[place] = Sampled(
                    prompts[place].ids, ids, chosen, text, ended, asked.allowed, asked.words
                )
        return [found[place] for place in range(len(prompts))]

    def _write(
        self, prompts: Sequence[KeyedPrompt], grammars: Sequence[Grammar]
    ) -> list[list[tuple[int, bool]]]:
        """The tokens of one reply per prompt, the end token included, each with whether it was chosen. With `grammars`,
        one per prompt, a reply can be nothing but lists."""
        steered, card, training = _Steered(self.model), self.card, self.model.training
        pieces = self._vocabulary() if grammars else None
        replies: list[list[tuple[int, bool]]] = [[] for _ in prompts]
        places = [Place()] * len(prompts)
        torch.nn.Module.eval(self.model)

        def steer(rows: Sequence[int]) -> None:
            if pieces is not None:
                steered.bias = torch.stack([pieces.bias(grammars[row], places[row]) for row in rows])

        try:
            with suited_threads(is_small(self.model)):
                steer(range(len(prompts)))
                for step in sample(
                    steered,
                    prompts,
                    temperature=0.0 if self.argmax else card.temperature,
                    max_tokens=card.most_tokens,
                    ends=frozenset([self._end]),
                    pad=self._pad,
                ):
                    for row, token in step.items():
                        moves = pieces.moves(grammars[row], places[row]) if pieces is not None else {}
                        replies[row].append((token, len(moves) > 1 or pieces is None))
                        places[row] = moves.get(token, places[row])
                    if going := [row for row, token in step.items() if token != self._end]:
                        steer(going)
        finally:
            self.model.train(training)
        return replies

    def save(self, folder: Path) -> Path:
        """Write the folder so that a crash leaves either nothing or the whole planner. The same planner again changes
        nothing; anything else in its place is refused with CheckpointError."""
        folder = folder.absolute()

        def write(draft: Path) -> None:
            with quiet_loading():
                self.model.save_pretrained(draft)
                self.tokenizer.save_pretrained(draft)
            (draft / CARD_FILE).write_text(json.dumps(self.card.to_json(), indent=2) + "\n", "utf-8")

        return write_folder(folder, "planner", write, lambda: read_card(folder) == self.card)

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
        grammar, pieces = self._grammar(written.allowed, written.words), self._vocabulary()
        return torch.stack([pieces.bias(grammar, place) for place in self.places(written)])

    def places(self, written: Sampled) -> list[Place]:
        """How far the lists had come before each token of a reply."""
        grammar, pieces = self._grammar(written.allowed, written.words), self._vocabulary()
        place, found = Place(), list[Place]()
        for token in written.ids:
            found.append(place)
            place = pieces.moves(grammar, place).get(token, place)
        return found

    def _grammar(self, allowed: tuple[int, ...], words: tuple[str, ...]) -> Grammar:
        key, card = (allowed, words), self.card
        if key not in self._grammars:
            form = list_form(card.shown, words)
            self._grammars[key] = Grammar(form, card.mode, allowed, card.most_steps)
        return self._grammars[key]

    def _vocabulary(self) -> Pieces:
        if self._pieces is None:
            size = int(self.model.config.vocab_size)
            self._pieces = Pieces(self.tokenizer, size)
        return self._pieces


def _read(folder: Path, device: str) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Weights and tokenizer in a folder, in float32 on a CPU. CheckpointError where they cannot be loaded."""
    try:
        with quiet_loading():
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
