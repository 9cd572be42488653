"""Attention by torch's own kernel, which also returns the logsumexp of each query's scores.

With the logsumexp, the backward pass computes the attention weights again, block by block. So neither the weights nor
the values are kept. torch's public function does not return it, so the kernel that torch would choose is called by
name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..traces.record import untraced

ResultAndSums = tuple[Tensor, Tensor | None]

FLASH, EFFICIENT, CUDNN = 1, 2, 3  # torch.nn.attention.SDPBackend
ALIGNED = 8  # flash attention on a graphics card takes head sizes that are multiples of this
ROWS = 4  # of queries whose logsumexp is checked, once for each kind of call


def attend_by_torch(
    func: Any, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: Any
) -> ResultAndSums:
    """The result of `func`, torch's attention, and the logsumexp [batch, heads, queries], or None if it is unknown."""
    kernel = None if is_unusual(query, key, value, mask, options) else choose_kernel(query, key, value, mask, options)
    if kernel is None:
        return func(query, key, value, attn_mask=mask, **options), None
    result, sums = kernel(query, key, value, make_additive_mask(mask, query.dtype), options)
    if not trusts_sums(kernel, sums, query, key, mask, options):
        sums = None
    return result, sums


def is_unusual(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: Any) -> bool:
    """Whether anything about the call is not plainly what the kernels are made for."""
    if not is_usual_shape(query, key, mask, options) or key.shape[:3] != value.shape[:3]:
        return True
    if not set(options) <= {"dropout_p", "is_causal", "scale", "enable_gqa"}:
        return True
    same = query.dtype == key.dtype == value.dtype and query.device == key.device == value.device
    return not same or torch.is_autocast_enabled(query.device.type)


def is_usual_shape(query: Tensor, key: Tensor, mask: Tensor | None, options: Any) -> bool:
    """[batch, heads, length, size], keys for all heads or for groups of them, a mask that fits, or a causal one."""
    if query.dim() != 4 or key.dim() != 4 or 0 in query.shape or 0 in key.shape or options.get("dropout_p"):
        return False
    if query.shape[0] != key.shape[0] or query.shape[1] % key.shape[1] or query.dtype != key.dtype:
        return False
    if mask is None:
        return True
    whole = (*query.shape[:3], key.shape[2])
    fits = all(size in (1, there) for size, there in zip(mask.shape[::-1], whole[::-1], strict=False))
    return 2 <= mask.dim() <= 4 and fits and not options.get("is_causal")


Kernel = Callable[[Tensor, Tensor, Tensor, Tensor | None, Any], ResultAndSums]


def choose_kernel(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: Any) -> Kernel | None:
    """The kernel that torch itself would take, if it tells the logsumexp."""
    choice = torch._fused_sdp_choice(
        query,
        key,
        value,
        attn_mask=mask,
        is_causal=bool(options.get("is_causal")),
        scale=options.get("scale"),
        enable_gqa=bool(options.get("enable_gqa")),
    )
    if query.device.type == "cpu":
        return flash_on_cpu if choice == FLASH else None
    if not query.is_cuda or torch.version.hip is not None:
        return None
    if mask is not None and (mask.dtype is not torch.bool or choice != CUDNN):
        return None  # what was added to the scores may have swallowed the sum's digits; and masks would need padding
    return {FLASH: flash, EFFICIENT: efficient, CUDNN: cudnn}.get(choice)


def make_additive_mask(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """A mask as something to add to the scores."""
    if mask is None or mask.dtype is not torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, -torch.inf)


def flash_on_cpu(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: Any) -> ResultAndSums:
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return attention(  # type: ignore[no-any-return]
        query, key, value, 0.0, bool(options.get("is_causal")), attn_mask=mask, scale=options.get("scale")
    )


def flash(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: Any) -> ResultAndSums:
    size = query.shape[-1]
    scale = options.get("scale") or size**-0.5
    missing = -size % ALIGNED
    if missing:
        query, key, value = (F.pad(part, (0, missing)) for part in (query, key, value))
    attention = torch.ops.aten._scaled_dot_product_flash_attention
    result, sums = attention(query, key, value, 0.0, bool(options.get("is_causal")), False, scale=scale)[:2]
    return result[..., :size], sums


def efficient(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: Any) -> ResultAndSums:
    attention = torch.ops.aten._scaled_dot_product_efficient_attention
    causal, scale = bool(options.get("is_causal")), options.get("scale")
    result, sums = attention(query, key, value, mask, True, 0.0, causal, scale=scale)[:2]
    return result, sums[..., : query.shape[-2]]  # it comes padded


def cudnn(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, options: Any) -> ResultAndSums:
    attention = torch.ops.aten._scaled_dot_product_cudnn_attention
    causal, scale = bool(options.get("is_causal")), options.get("scale")
    result, sums = attention(query, key, value, mask, True, 0.0, causal, False, scale=scale)[:2]
    return result, sums.reshape(query.shape[:-1])


_TRUSTED: dict[Any, bool] = {}


def trusts_sums(
    kernel: Kernel, sums: Tensor | None, query: Tensor, key: Tensor, mask: Tensor | None, options: Any
) -> bool:
    """Whether the second result of a kernel really is the logsumexp. Checked once per kind of call, on a few queries.

    torch documents nothing about it, and a wrong one would falsify every explanation.
    """
    if sums is None:
        return False
    causal = bool(options.get("is_causal"))
    kind = (kernel, query.dtype, query.shape[-1], causal, mask is None, query.shape[1] == key.shape[1])
    if kind not in _TRUSTED:
        with untraced():
            _TRUSTED[kind] = sums.shape == query.shape[:-1] and agrees(sums, query, key, mask, options)
    return _TRUSTED[kind]


def agrees(sums: Tensor, query: Tensor, key: Tensor, mask: Tensor | None, options: Any) -> bool:
    """The logsumexp of the last queries of the last head, computed plainly."""
    length, keys = query.shape[-2], key.shape[-2]
    scale = options.get("scale") or query.shape[-1] ** -0.5
    first = max(0, length - ROWS)
    scores = scale * (query[-1, -1, first:].double() @ key[-1, -1].double().T)
    if options.get("is_causal"):
        seen = torch.arange(keys, device=key.device) <= torch.arange(first, length, device=key.device)[:, None]
        scores = scores.masked_fill(~seen, -torch.inf)
    if mask is not None:
        part = mask.expand(*query.shape[:-1], keys)[-1, -1, first:]
        scores = scores.masked_fill(~part, -torch.inf) if mask.dtype is torch.bool else scores + part
    expected, found = scores.logsumexp(-1), sums[-1, -1, first:].double()
    alive = expected > -torch.inf
    room = 0.05 * (1 + expected.abs()) if query.dtype in (torch.float16, torch.bfloat16) else 1e-3
    return bool(((found - expected).abs() <= room)[alive].all())
