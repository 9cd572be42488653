"""Positions of a model's output: those that are no padding, the n-th of them, the best span."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import TargetError
from .batch import Batch


def real_outputs(batch: Batch, logits: Tensor) -> Tensor:
    """[samples, positions] of the output that are no padding; those of a decoder have a mask of their own."""
    real = batch.real
    if isinstance(batch.kwargs.get("decoder_input_ids"), Tensor):
        mask = batch.kwargs.get("decoder_attention_mask")
        real = mask.bool() if isinstance(mask, Tensor) else None
    if real is not None and real.shape == logits.shape[:2]:
        return real
    return torch.ones(logits.shape[:2], dtype=torch.bool, device=logits.device)


def nth(real: Tensor, position: int) -> Tensor:
    """The n-th real position of a padded row."""
    places = real.nonzero().flatten()
    if not -len(places) <= position < len(places):
        raise TargetError(f"no position {position}: the sample has {len(places)} tokens.")
    return places[position]


def best_spans(starts: Tensor, ends: Tensor, real: Tensor | None) -> Tensor:
    """The pair start <= end with the largest sum, among real tokens."""
    if real is not None and real.shape == starts.shape:
        starts, ends = starts.masked_fill(~real, -torch.inf), ends.masked_fill(~real, -torch.inf)
    sums = (starts.unsqueeze(2) + ends.unsqueeze(1)).masked_fill(
        ~torch.ones(starts.shape[1], starts.shape[1], dtype=torch.bool, device=starts.device).triu(), -torch.inf
    )
    flat = sums.flatten(1).argmax(1)
    return torch.stack([flat // starts.shape[1], flat % starts.shape[1]], 1)


def span_name(pair: Tensor) -> str:
    return f"tokens {int(pair[0])} to {int(pair[1])}"
