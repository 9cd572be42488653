"""One attention's arguments, in the same places however they were given: by position, by name, fused, with a cap."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..call import Call, is_signal

_ALL = slice(None)
_FUSED = ("attn_mask", "dropout_p", "is_causal")  # what torch's attention takes after queries, keys and values
_CAPPED = ("attn_mask", "sinks")


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """softmax(q k^T scale + mask, sinks) v. `options` are those that were given: scale, is_causal, cap and so on.

    Example:
        >>> from headwater.rules import AttentionCall, Call
        >>> attend = torch.nn.functional.scaled_dot_product_attention
        >>> x = torch.ones(1, 1, 2, 4)
        >>> plain = Call(attend, "scaled_dot_product_attention", False, (x, x, x), {"is_causal": True})
        >>> call = AttentionCall.read(plain)
        >>> call.options["is_causal"], tuple(call.run().shape)
        (True, (1, 1, 2, 4))
    """

    func: Callable[..., Any]  # the operation that was called
    query: Tensor  # […, queries, width]
    key: Tensor  # […, keys, width]
    value: Tensor  # […, keys, width]
    mask: Tensor | None  # added to the scores, or true where a key is seen
    sinks: Tensor | None  # further scores that take weight and have no value
    options: Mapping[str, Any]  # others that were given: scale, is_causal, cap and so on

    @classmethod
    def read(cls, call: Call) -> AttentionCall:
        """The arguments of a `call` of `scaled_dot_product_attention` or `capped_attention`."""
        names = _CAPPED if call.name == "capped_attention" else _FUSED
        given = {**dict(zip(("query", "key", "value", *names), call.args, strict=False)), **call.kwargs}
        query, key, value = (given.pop(name) for name in ("query", "key", "value"))
        return cls(call.func, query, key, value, given.pop("attn_mask", None), given.pop("sinks", None), given)

    def run(self, *parts: Tensor) -> Any:
        """The operation itself; with other queries, keys and values if they are given as `parts`."""
        query, key, value = parts or (self.query, self.key, self.value)
        sinks = {} if self.sinks is None else {"sinks": self.sinks}
        return self.func(query, key, value, attn_mask=self.mask, **sinks, **self.options)

    @property
    def is_alive(self) -> bool:
        """Whether queries, keys and values all depend on the input."""
        return all(is_signal(part) for part in (self.query, self.key, self.value))

    def keys_and_values_per_head(self) -> tuple[Tensor, Tensor]:
        """Keys and values, repeated where a group of heads shares them."""
        return per_head(self.query, self.key, self.value)

    def scores(self, query: Tensor, key: Tensor) -> Tensor:
        """`query` times `key`, scaled, with the mask: what the softmax gets."""
        return scores_with_mask(query, key, self.mask, self.options)


def per_head(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Keys and values, repeated where a group of the queries' heads shares them."""
    groups = query.shape[-3] // key.shape[-3] if query.dim() > 2 else 1
    if groups == 1:
        return key, value
    return key.repeat_interleave(groups, -3), value.repeat_interleave(groups, -3)


def attention_weights(
    query: Tensor, key: Tensor, mask: Tensor | None, options: Mapping[str, Any], block: slice
) -> Tensor:
    """softmax(scores + mask, sinks) for a block of queries, without the sinks' column.

    A query that may look at nothing attends to nothing.
    """
    scores = scores_with_mask(query, key, mask, options, block)
    sinks = options.get("sinks")
    if sinks is not None:
        sink = sinks.to(scores.dtype)[:, None, None].expand(*scores.shape[:-1], 1)
        return torch.softmax(torch.cat([scores, sink], -1), -1)[..., :-1]
    weights = torch.softmax(scores, -1)
    return weights if mask is None and not options.get("is_causal") else weights.nan_to_num(0.0)


def scores_with_mask(
    query: Tensor, key: Tensor, mask: Tensor | None, options: Mapping[str, Any], block: slice = _ALL
) -> Tensor:
    """q k^T / sqrt(d), capped if there is a cap, + mask for a block of queries; -inf where a query may not look."""
    scale = options.get("scale") or 1 / math.sqrt(query.shape[-1])
    scores, cap = attention_scores(query[..., block, :], key, scale), options.get("cap")
    if cap:
        scores = cap * (scores / cap).tanh()
    allowed = None
    if options.get("is_causal"):
        shape = (query.shape[-2], key.shape[-2])
        allowed = torch.ones(shape, dtype=torch.bool, device=query.device).tril()[block]
    if mask is not None:
        part = mask[..., block, :] if mask.shape[-2] > 1 else mask
        if part.dtype is torch.bool:
            allowed = part if allowed is None else allowed & part
        else:
            scores = scores + part
    return scores if allowed is None else scores.masked_fill(~allowed, -math.inf)


def attention_scores(query: Tensor, key: Tensor, scale: float) -> Tensor:
    if query.dtype != key.dtype:  # autocast makes them one
        key = key.to(query.dtype)
    return (query * scale) @ key.transpose(-2, -1)
