"""Texts that begin alike are read from where they part: keys and values of what they share are computed once."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor, nn

from ..engine.session import Session
from ..inputs.readouts import logits_of
from .output_text import Text, takes
from .span_scores import logprobs_at

ROUNDING = 1e-3  # of a log-probability: the most that two ways to read one text may differ, in half precision ten times
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

    def first(self, count: int) -> Any:
        """What the model takes for having read the first so many tokens."""
        from transformers import cache_utils

        found = cache_utils.DynamicCache()
        for number, (keys, values) in enumerate(self.layers):
            found.update(keys[:, :, :count], values[:, :, :count], number)
        return found


def read_from_prefix(session: Session, texts: Sequence[Text], original: Text) -> list[Tensor] | None:
    """[texts][outputs]: the log-probability of every output token. None where the model cannot be read so.

    All texts have the same output, and each is the original without something: the one that parts from it last is read
    in full, and each of the others from where it parts from that one. For processors, where a batch saves nothing.
    """
    model = session.model
    able = session.device.type == "cpu" and takes(model, "past_key_values") and takes(model, "logits_to_keep")
    if len(texts) < 2 or original.start or not able or not TRUSTED.get(model, True):
        return None
    base = max(range(len(texts)), key=lambda n: count_common(texts[n].said.ids, original.said.ids))
    found, kept = read_text(model, texts[base], None)
    if kept is None:
        TRUSTED[model] = False
        return None
    rows = [found if n == base else read_text(model, text, kept)[0] for n, text in enumerate(texts)]
    return rows if trust(model, texts, rows, base) else None


def trust(model: nn.Module, texts: Sequence[Text], rows: Sequence[Tensor], base: int) -> bool:
    """A model is read both ways once, and trusted where both agree."""
    if model not in TRUSTED:
        other = next(n for n in range(len(texts)) if n != base)
        half = next(model.parameters()).dtype in (torch.float16, torch.bfloat16)
        apart = (read_text(model, texts[other], None)[0] - rows[other]).abs().max()
        TRUSTED[model] = bool(apart <= ROUNDING * (10 if half else 1) * (1 + rows[other].abs().max()))
    return TRUSTED[model]


@torch.no_grad()
def read_text(model: nn.Module, text: Text, read: PrefixCache | None) -> tuple[Tensor, PrefixCache | None]:
    """The log-probabilities of a text's output tokens; where nothing was read before, also its own cache."""
    ids = [*text.said.ids, *text.output[:-1]]
    done = 0 if read is None else min(count_common(ids, read.ids), len(text.said.ids) - 1)
    rest = torch.tensor([ids[done:]], device=next(model.parameters()).device)
    past = {} if read is None or not done else {"past_key_values": read.first(done)}
    out = model(input_ids=rest, use_cache=True, logits_to_keep=len(text.output), **past)
    own = PrefixCache.of(ids, getattr(out, "past_key_values", None)) if read is None else None
    return logprobs_at(logits_of(out)[0], text.output), own


def count_common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two texts begin with alike."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
