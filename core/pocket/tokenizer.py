"""The pocket tokenizer: byte-level BPE of 1,024 tokens, one token per digit, control tokens and turns as Qwen3's."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from core.tokens import THINK_END, THINK_START, TURN_END, TURN_START

END_OF_TEXT = "<|endoftext|>"

#: The turn markers of Qwen3, without its tool and system defaults.
CHAT_TEMPLATE = (
    f"{{% for message in messages %}}{TURN_START}{{{{ message.role }}}}\n{{{{ message.content }}}}{TURN_END}\n"
    f"{{% endfor %}}{{% if add_generation_prompt %}}{TURN_START}assistant\n"
    f"{{% if enable_thinking is defined and enable_thinking is false %}}{THINK_START}\n\n{THINK_END}\n\n{{% endif %}}"
    "{% endif %}"
)


def train_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizerFast:
    """Train on sample texts. Digits stand alone so that numbers keep their places; any byte can be encoded."""
    core = Tokenizer(models.BPE())
    pieces = Regex(r" ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]|\n+|\s+")
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pieces, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    core.decoder = decoders.ByteLevel()
    special = [END_OF_TEXT, TURN_START, TURN_END]
    trainer = trainers.BpeTrainer(
        vocab_size=1024 - 3,  # <think>, </think> and the double newline come on top
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=2,
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    # As in Qwen3: think marks are added tokens but not special ones, and "\n\n" is one token, so that </think>
    # stands at the penultimate position of the generation suffix.
    core.add_tokens([AddedToken(mark, normalized=False, special=False) for mark in (THINK_START, THINK_END)])
    if core.token_to_id("ĊĊ") is None:
        core.add_tokens([AddedToken("\n\n", normalized=False, special=False)])
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=core, eos_token=TURN_END, pad_token=END_OF_TEXT, clean_up_tokenization_spaces=False
    )
    tokenizer.add_special_tokens({"additional_special_tokens": [TURN_START]})
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer
