"""Causal attention of new tokens over remembered ones without a mask: quicker than torch's way with one.

On the CPU every new token sees all remembered ones, and the new ones before it. Each half is one call of torch's own
kernel; the two halves of a softmax are put together by their sums. Query heads that share a head of keys go through the
first half together, so that keys and values are not copied for each. Of several prompts that stand one after the
other, each sees its own tokens alone. On CUDA flash attention does all of it in one
kernel, whose causal diagonal ends at the last key, and which reads from the device how many keys there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import causal_mask_function, sdpa_mask

#: By this name a model's configuration asks for it.
CONTINUED = "continued_sdpa"

#: The same on CUDA.
IN_ROOM = "room_sdpa"

_kernel: Any = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)

_flash: Any = getattr(torch.ops.aten, "_flash_attention_forward", None)


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """New tokens of several prompts, one after the other: how many each has, `lengths`, and by layer and prompt the
    keys and values [1, heads of keys, tokens, head size] of the parts before them."""

    lengths: Sequence[int]
    before: Sequence[Sequence[Sequence[tuple[torch.Tensor, ...]]]]


def continued_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any,
    *,
    packed: Packed | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """As transformers' `sdpa_attention_forward`: query [1, heads, new tokens, head size], key and value [1, heads of
    keys, tokens, head size] to [1, new tokens, heads, head size]. Whatever is no plain causal attention goes there.
    Where several prompts are `packed`, key and value are of the new tokens alone."""
    if packed is not None:
        found, start = list[torch.Tensor](), 0
        for length, parts in zip(packed.lengths, packed.before[module.layer_idx], strict=True):
            own = slice(start, start := start + length)
            seen = [
                torch.cat([*(part[i] for part in parts), one[:, :, own]], dim=-2)
                for i, one in enumerate((key, value))
            ]
            found.append(continued_attention(module, query[:, :, own], seen[0], seen[1], None, **options)[0])
        return torch.cat(found, dim=1), None
    new, before = query.shape[2], key.shape[2] - query.shape[2]
    scale = options.get("scaling")
    usual = attention_mask is None and not any(
        options.get(one) for one in ("dropout", "softcap", "position_bias")
    )
    if not usual or before <= 0:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    batch, heads, _, size = query.shape
    shared = heads // key.shape[1]
    together = query.reshape(batch, key.shape[1], shared * new, size)
    old, old_sum = _kernel(together, key[:, :, :before], value[:, :, :before], 0.0, False, scale=scale)
    own, own_sum = _kernel(
        query, *(repeat_kv(one[:, :, before:], shared) for one in (key, value)), 0.0, True, scale=scale
    )
    share = torch.sigmoid(old_sum.reshape(own_sum.shape) - own_sum).to(own.dtype)[..., None]
    return torch.lerp(own, old.reshape(own.shape), share).transpose(1, 2).contiguous(), None


def _mask(**asked: Any) -> torch.Tensor | None:
    """None where a token sees all before it; what transformers' sdpa has for anything else, as a sliding window."""
    if asked.get("mask_function") is causal_mask_function and asked.get("attention_mask") is None:
        return None
    return sdpa_mask(**asked)


def use_continued_attention(model: Any) -> None:
    """Let a model that was loaded with sdpa on the CPU attend this way; another is left as it is."""
    if _kernel is None or model.device.type != "cpu" or model.config._attn_implementation != "sdpa":
        return
    AttentionInterface.register(CONTINUED, continued_attention)
    AttentionMaskInterface.register(CONTINUED, _mask)
    model.set_attn_implementation(CONTINUED)


def attends_continued(model: Any) -> bool:
    """Whether it attends this way."""
    return bool(model.config._attn_implementation == CONTINUED)


def room_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any,
    *,
    in_room: tuple[torch.Tensor, torch.Tensor, int, int] | None = None,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """As transformers' `sdpa_attention_forward`, which it is without `in_room`: where each prompt's new tokens end, and
    where its keys do, int32 from 0 on the device, and how many tokens one has at most of both. Prompts stand one after
    the other; behind their keys there may be room for more."""
    if in_room is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    if any(options.get(one) for one in ("dropout", "softcap", "position_bias", "sliding_window")):
        raise ValueError("This is no plain causal attention.")
    packed = (one[0].transpose(0, 1) for one in (query, key, value))
    found = _flash(*packed, *in_room, 0.0, True, False, scale=options.get("scaling"))[0]
    return found[None], None


def use_room_attention(model: Any) -> bool:
    """Let a model that was loaded with sdpa on CUDA attend this way where it is asked to; whether it can."""
    halves = model.dtype in (torch.bfloat16, torch.float16)
    if _flash is None or not halves or model.device.type != "cuda":
        return False
    if model.config._attn_implementation != "sdpa":
        return False
    set_room_attention(model)
    return True


def set_room_attention(model: Any) -> None:
    """Let it attend this way."""
    AttentionInterface.register(IN_ROOM, room_attention)
    AttentionMaskInterface.register(IN_ROOM, sdpa_mask)
    model.set_attn_implementation(IN_ROOM)


def attends_in_room(model: Any) -> bool:
    """Whether it attends this way."""
    return bool(model.config._attn_implementation == IN_ROOM)
