"""Samples of a model's own kind -> Batch, by the model itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from ..errors import ModelError, check_least
from .batch import Batch, Item
from .protocol import Prepared, SupportsSamples


def takes_own(model: nn.Module, data: Any) -> bool:
    """Whether the model makes its inputs from `data` itself: it can, and the data are no tensors already."""
    if isinstance(data, (Mapping, Tensor)) or not isinstance(model, SupportsSamples):
        return False
    return not (isinstance(data, (list, tuple)) and any(isinstance(part, Tensor) for part in data))


def from_samples(model: nn.Module, samples: Sequence[Any], places: list[nn.Module]) -> Batch:
    """These samples as one batch."""
    assert isinstance(model, SupportsSamples)
    made = model.headwater_inputs(samples)
    check_prepared(made, len(samples))
    return Batch(
        samples=len(samples),
        items=[Item(tokens=names) for names in made.names],
        kwargs=dict(made.arguments),
        real=made.real,
        places=places,
        before=made.before,
        pooled=made.pooled,
        beside=made.beside,
        alone=lambda i: from_samples(model, [samples[i]], places),
    )


def check_prepared(made: Prepared, samples: int) -> None:
    lengths = [len(names) for names in made.names]
    found = made.real.sum(1).tolist() if made.real.dim() == 2 else None
    if len(made.names) != samples or found != lengths:
        raise ModelError(
            f"the model's headwater_inputs gave {lengths} names for {samples} samples that have {found} items. "
            "It must name every item that is marked as real."
        )


def batch_samples(model: nn.Module, samples: Sequence[Any], size: int, places: list[nn.Module]) -> Iterator[Batch]:
    """At most `size` together, in their order."""
    check_least("batch_size", size)
    for start in range(0, len(samples), size):
        yield from_samples(model, samples[start : start + size], places)
