"""A pocket model in memory: text prompts in, sampled text replies out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Qwen3ForCausalLM

from core.errors import PoolError
from core.pocket.decode import KeyedPrompt, sample
from core.pocket.progress_bars import no_progress_bar
from core.pocket.specs import MAX_TOKENS
from core.pocket.threads import is_small, suited_threads
from core.tokens import PromptTokens

#: Positions a pocket model was built for; a longer prompt loses its end, never its place for the reply.
CONTEXT = 1024


@dataclass(frozen=True, slots=True)
class Written:
    """One reply: its text, how it ended and how many tokens went in and out."""

    text: str
    finished: bool
    tokens_in: int
    tokens_out: int


class LanguageModel:
    """Qwen3-architecture weights with their tokenizer, run in fp32 on the CPU."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self._small = is_small(model)
        self._end, self._pad = int(tokenizer.eos_token_id), int(tokenizer.pad_token_id)
        self._tokens = PromptTokens(tokenizer, CONTEXT)
        around = tokenizer.apply_chat_template(
            [{"role": "user", "content": "\0"}], tokenize=False, add_generation_prompt=True
        )
        self._opening, self._closing = (self._tokens.literal(part) for part in str(around).split("\0"))

    @classmethod
    def load(cls, folder: Path) -> LanguageModel:
        """Read a Hugging Face folder; raises PoolError when there is none."""
        if not (folder / "config.json").exists():
            raise PoolError(
                f"There are no pocket weights at {folder}: run 'trinity pocket train {folder.name}'."
            )
        with no_progress_bar():
            model = Qwen3ForCausalLM.from_pretrained(folder, dtype=torch.float32)
        return cls(model, PreTrainedTokenizerFast.from_pretrained(folder))

    def ids(self, content: str) -> tuple[int, ...]:
        """Token ids of one user message with the generation prompt; the content can never open or close a message."""
        room = CONTEXT - len(self._opening) - len(self._closing) - MAX_TOKENS
        return (*self._opening, *self._tokens.plain(content)[:room], *self._closing)

    def text(self, tokens: Sequence[int]) -> str:
        """Readable text of reply tokens."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True)).strip()

    def write(
        self, contents: Sequence[str], keys: Sequence[str], *, temperature: float, max_tokens: int
    ) -> list[Written]:
        """Reply to each content with the randomness of its key, all in one batch."""
        prompts = [KeyedPrompt(self.ids(content), key) for content, key in zip(contents, keys, strict=True)]
        replies: list[list[int]] = [[] for _ in prompts]
        if prompts:
            for step in self._steps(prompts, temperature, max_tokens):
                for row, token in step.items():
                    replies[row].append(token)
        return [self._written(prompt, tokens) for prompt, tokens in zip(prompts, replies, strict=True)]

    def stream(
        self, content: str, key: str, *, temperature: float, max_tokens: int
    ) -> Iterator[str | Written]:
        """Pieces of one reply as they are sampled, then the whole: the same reply that `write` gives."""
        prompt, tokens, shown = KeyedPrompt(self.ids(content), key), [], ""
        for step in self._steps([prompt], temperature, max_tokens):
            tokens.append(step[0])
            so_far = self.text(tokens)
            if so_far.startswith(shown) and len(so_far) > len(shown):
                yield so_far[len(shown) :]
                shown = so_far
        yield self._written(prompt, tokens)

    def _steps(
        self, prompts: Sequence[KeyedPrompt], temperature: float, max_tokens: int
    ) -> Iterator[dict[int, int]]:
        steps = sample(
            self.model, prompts, temperature=temperature, max_tokens=max_tokens, end=self._end, pad=self._pad
        )
        while True:
            with suited_threads(self._small):  # not while whoever reads the steps does something else
                step = next(steps, None)
            if step is None:
                return
            yield step

    def _written(self, prompt: KeyedPrompt, tokens: Sequence[int]) -> Written:
        finished = bool(tokens) and tokens[-1] == self._end
        return Written(self.text(tokens), finished, len(prompt.ids), len(tokens))
