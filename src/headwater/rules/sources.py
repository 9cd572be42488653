"""Where relevance ends other than at the inputs: biases and constants, one number a sample for each.

A source that enters a signal additively has the relevance gradient times value. The gradient is seen by a hook on the
result, so the operation stays the model's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass
class Site:
    """One place where a source enters."""

    name: str
    bias: bool
    axis: int | None  # the axis of the samples, None where the shape does not tell


@dataclass
class Books:
    """Collects the relevance of sources during a backward pass, for each of `samples` samples."""

    samples: int
    sites: list[Site] = field(default_factory=list)
    amounts: dict[int, Tensor] = field(default_factory=dict)
    first_seen: dict[int, list[Tensor]] = field(default_factory=dict)
    probing: bool = False
    scrambled: bool = False  # rows were moved along the first axis: from here on shapes tell nothing
    open: bool = True  # further backward passes through the same graph are not booked when this is off

    @property
    def needs_probe(self) -> bool:
        return any(site.axis is None for site in self.sites)

    def enter(
        self, result: Tensor, name: str, *, bias: bool, varies: tuple[int, ...], amount: Callable[[Tensor], Tensor]
    ) -> None:
        """Note that a source entered `result`; `amount` turns the gradient there into relevance, elementwise.

        `varies` names the axes along which the source itself varies: none of them can be the samples' axis.
        """
        index = len(self.sites)
        self.sites.append(Site(name, bias, self._axis(result, varies)))
        result.register_hook(lambda gradient: self._record(index, amount(gradient)))

    def enter_vector(self, result: Tensor, name: str, vector: Tensor, *, bias: bool = True) -> None:
        """A bias along the last axis. One matrix-vector product, so nothing of the result's size is made."""
        index = len(self.sites)
        self.sites.append(Site(name, bias, self._axis(result, (result.dim() - 1,))))
        result.register_hook(lambda gradient: self._record(index, gradient @ vector.to(gradient.dtype)))

    def _axis(self, result: Tensor, varies: tuple[int, ...]) -> int | None:
        return None if self.scrambled and self.samples > 1 else sample_axis(result.shape, self.samples, varies)

    def _record(self, index: int, relevance: Tensor) -> None:
        site = self.sites[index]
        if not self.open:
            return
        if site.axis is None:
            self._record_unplaced(index, relevance)
        elif not self.probing:
            if self.samples > 1:
                relevance = relevance.movedim(site.axis, 0).reshape(self.samples, -1).sum(1)
            else:
                relevance = relevance.sum().reshape(1)
            self._add(index, relevance)

    def _add(self, index: int, relevance: Tensor) -> None:
        relevance = relevance.detach().double()
        seen = self.amounts.get(index)
        self.amounts[index] = relevance if seen is None else seen + relevance

    def _record_unplaced(self, index: int, relevance: Tensor) -> None:
        """The second pass scaled the score of sample s by s + 1, so the ratio of the two passes names the sample."""
        if not self.probing:
            self.first_seen.setdefault(index, []).append(relevance.detach())
            return
        once = self.first_seen[index].pop(0)
        ratio = torch.where(once == 0, torch.ones_like(once), relevance / once)
        sample = (ratio.round().long() - 1).clamp(0, self.samples - 1)
        shares = torch.zeros(self.samples, dtype=torch.float64, device=once.device)
        self._add(index, shares.scatter_add_(0, sample.flatten(), once.double().flatten()))

    def totals(self, *, bias: bool) -> dict[str, Tensor]:
        """Relevance by name, [samples]. A bias that no gradient reached stands there with zero; a constant does not."""
        found: dict[str, Tensor] = {}
        for index, site in enumerate(self.sites):
            if site.bias is bias and (bias or index in self.amounts):
                amount = self.amounts.get(index, torch.zeros(self.samples, dtype=torch.float64)).cpu()
                found[site.name] = found[site.name] + amount if site.name in found else amount
        return found


def sample_axis(shape: torch.Size, samples: int, varies: tuple[int, ...] = ()) -> int | None:
    """The axis of `shape` along which the samples lie, or None where that cannot be told for certain.

    Batch first is certain if no other free axis has that size. Another axis is certain if it alone has it and the
    first is no multiple of it (flattened or windowed batches are). Everything else is left to a second pass.
    """
    if samples == 1:
        return 0
    free = [axis for axis in range(len(shape)) if axis not in varies]
    exact = [axis for axis in free if shape[axis] == samples]
    if len(exact) != 1:
        return None
    if exact[0] == 0 or (0 in free and shape[0] % samples != 0):
        return exact[0]
    return None
