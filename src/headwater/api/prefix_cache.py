"""Texts that begin alike are read from where they part: keys and values of what they share are computed once."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor, nn

from ..engine.session import Session
from ..inputs.readouts import logits_of
from ..inputs.text import takes
from ..kernels.row_products import FasterLinear
from .output_text import Text
from .span_scores import logprobs_at

ROUNDING = 1e-3  # of a log-probability: the most that two ways to read one text may differ, in half precision ten times
KEPT = 2**30  # bytes of a cache that is kept; a larger one is not, and texts are read in full
TRUSTED: weakref.WeakKeyDictionary[nn.Module, bool] = weakref.WeakKeyDictionary()  # models that were read both ways


@dataclass(frozen=True)
class PrefixCache:
    """A text that was read: its ids, and of every layer its keys and values, [1, heads, positions, size] each."""

    ids: list[int]
    layers: list[tuple[Tensor, Tensor]]

    @classmethod
    def of(cls, ids: list[int], kept: Any) -> PrefixCache | None:
        """None where a layer keeps anything but the keys and values of all positions: a window, a state."""
        from transformers import cache_utils

        layers = getattr(kept, "layers", ())
        plain = type(kept) is cache_utils.DynamicCache and all(type(one) is cache_utils.DynamicLayer for one in layers)
        if not plain or not layers or any(one.get_seq_length() != len(ids) for one in layers):
            return None
        return cls(ids, [(one.keys, one.values) for one in layers])

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(part.nbytes for layer in self.layers for part in layer)

    def first(self, count: int) -> Any:
        """What the model takes for having read the first so many tokens."""
        from transformers import cache_utils

        found = cache_utils.DynamicCache()
        for number, (keys, values) in enumerate(self.layers):
            found.update(keys[:, :, :count], values[:, :, :count], number)
        return found


@dataclass(frozen=True)
class ReadText:
    """A text that was read in full: the log-probability of every output token, and its cache where it serves others."""

    logprobs: Tensor
    cache: PrefixCache | None


def read_with_cache(session: Session, text: Text) -> ReadText | None:
    """None where the model keeps nothing of what it reads, or is known to read otherwise with it; for processors."""
    model = session.model
    able = session.device.type == "cpu" and takes(model, "past_key_values") and takes(model, "logits_to_keep")
    if text.start or not able or not TRUSTED.get(model, True):
        return None
    found = read_text(model, text, None)
    if model not in TRUSTED:
        TRUSTED[model] = found.cache is not None and reads_alike(model, text, found)
    return (
        found if TRUSTED[model] and found.cache is not None and found.cache.size <= KEPT else replace(found, cache=None)
    )


def reads_alike(model: nn.Module, text: Text, full: ReadText) -> bool:
    """Whether the output, read after what is kept of the prompt, has the log-probabilities that it has in full."""
    half = next(model.parameters()).dtype in (torch.float16, torch.bfloat16)
    apart = (read_text(model, text, full.cache).logprobs - full.logprobs).abs().max()
    return bool(apart <= ROUNDING * (10 if half else 1) * (1 + full.logprobs.abs().max()))


@torch.no_grad()
def read_text(model: nn.Module, text: Text, read: PrefixCache | None) -> ReadText:
    """A text from where it parts from what was read before; where nothing was, in full, and with its own cache."""
    ids = [*text.said.ids, *text.output[:-1]]
    done = 0 if read is None else min(count_common(ids, read.ids), len(text.said.ids) - 1)
    rest = torch.tensor([ids[done:]], device=next(model.parameters()).device)
    past = {} if read is None or not done else {"past_key_values": read.first(done)}
    with FasterLinear():
        out = model(input_ids=rest, use_cache=True, logits_to_keep=len(text.output), **past)
    own = PrefixCache.of(ids, getattr(out, "past_key_values", None)) if read is None else None
    return ReadText(logprobs_at(logits_of(out)[0], text.output), own)


def count_common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two texts begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
