"""Where relevance ends other than at the inputs: at biases and constants, one number per sample for each.

A source that is added to a signal has the relevance gradient times value. A hook on the sum reads the gradient, so the
operation stays the model's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum

import torch
from torch import Tensor

from ..kernels.batching import close_batch, is_batched, open_batch
from ..kernels.elementwise import sum_products
from ..kernels.sparse_rows import scatter_rows
from .gradients import times
from .saved import SavedTensor

Told = Callable[..., None]

BASE = 16  # digits of samples' numbers: powers of two from 2^-8 to 2^7, which float16 holds too


class Sort(IntEnum):
    """Which group of the ledger's lines a source belongs to."""

    CONSTANT = 0
    BIAS = 1  # a parameter
    CUT_OFF = 2  # made from the input, without a gradient that leads there
    HELD = 3  # the same, because a rule of ours holds it constant


@dataclass
class Site:
    """One place where a source enters."""

    name: str
    sort: Sort
    axis: int | None  # the axis of the samples, None where the shape does not tell


@dataclass(frozen=True)
class PartOfProduct:
    """An amount: a part of gradient times value. `whole`: only its sum is asked for, and may come as any numbers."""

    part: float
    whole: bool = False

    def __call__(self, gradient: Tensor, value: Tensor) -> Tensor:
        sums = sum_products(gradient, value) if self.whole and not is_batched(gradient) else None
        return self.part * (times(wide(gradient), value) if sums is None else sums)


@dataclass
class Books:
    """Collects the relevance of sources during a backward pass, for each of `samples` samples.

    Example:
        >>> from headwater.rules import Books, RuleSet, Scope
        >>> layer, x = torch.nn.Linear(2, 1), torch.ones(1, 2, requires_grad=True).clone()
        >>> books = Books(samples=1)
        >>> with Scope(RuleSet(frozenset()), books, {id(layer.bias): "bias"}, {}):
        ...     score = layer(x).sum()
        >>> score.backward()
        >>> [site.name for site in books.sites]
        ['bias']
    """

    samples: int  # in the batch
    length: int | None = None  # positions of a sample, where known
    sites: list[Site] = field(default_factory=list)  # where a bias or a constant entered, in order
    amounts: dict[int, Tensor] = field(default_factory=dict)  # relevance for each sample, by number of the site
    sizes: dict[int, Tensor] = field(default_factory=dict)  # of what was cut off: absolute, so that nothing cancels
    first_seen: dict[int, list[Tensor]] = field(default_factory=dict)  # relevance of the plain pass, by site
    digits: dict[int, list[Tensor]] = field(default_factory=dict)  # of the samples' numbers, by site
    probe: int | None = None  # which digit of the samples' numbers a further pass asks for
    scrambled: bool = False  # rows were moved along the first axis: from here on shapes tell nothing
    scores: int | None = None  # so many at once: every amount has one axis more then, the first
    open: bool = True  # further backward passes through the same graph are not booked when this is off

    @property
    def needs_probe(self) -> bool:
        """Whether some source's shape does not tell the samples apart, so that further passes must."""
        return any(site.axis is None for site in self.sites)

    def enter(
        self,
        result: Tensor,
        name: str,
        *,
        sort: Sort,
        varies: tuple[int, ...],
        amount: Callable[..., Tensor],
        held: Sequence[Tensor] = (),
    ) -> None:
        """Note that a source entered `result`; `amount` turns the gradient there into relevance, elementwise.

        `name` is its line in the ledger and `sort` what kind of line that is. Tensors that `amount` needs are `held`
        until then, and given to it beside the gradient. `varies` names the axes along which the source itself varies:
        none of them can be the samples' axis.
        """
        result.register_hook(self.record_amount(result, name, sort=sort, varies=varies, amount=amount, held=held))

    def record_amount(
        self,
        result: Tensor,
        name: str,
        *,
        sort: Sort,
        varies: tuple[int, ...],
        amount: Callable[..., Tensor],
        held: Sequence[Tensor] = (),
    ) -> Told:
        """The same, for a backward pass that itself says which gradient reaches the source.

        `result`, `name`, `sort`, `varies`, `amount` and `held` are those of `enter`.
        """
        index = len(self.sites)
        self.sites.append(Site(name, sort, self._axis(result, varies)))
        waiting = [SavedTensor(tensor) for tensor in held]

        def record(gradient: Tensor | None) -> None:
            if gradient is not None:  # a rule that holds this tensor passes nothing on to it
                given = gradient if isinstance(amount, PartOfProduct) else wide(gradient)
                self._record(index, amount(given, *(one.tensor() for one in waiting)))

        return record

    def enter_vector(self, result: Tensor, name: str, vector: Tensor, *, sort: Sort = Sort.BIAS) -> None:
        """A bias, `vector`, along the last axis of `result`, under `name` and `sort`.

        It takes one matrix-vector product, so nothing of the result's size is made.
        """
        result.register_hook(self.record_vector(result, name, vector, sort=sort))

    def record_vector(self, result: Tensor, name: str, vector: Tensor, *, sort: Sort) -> Told:
        """The same, for a backward pass that itself says which gradient reaches the bias, or which of its rows.

        `result`, `name`, `vector` and `sort` are those of `enter_vector`.
        """
        index = len(self.sites)
        self.sites.append(Site(name, sort, self._axis(result, (result.dim() - 1,))))

        def record(
            gradient: Tensor | None,
            rows: Tensor | None = None,
            shape: torch.Size | None = None,
            level: int | None = None,
        ) -> None:
            if gradient is None:
                return
            gradient = wide(gradient).contiguous()
            relevance = gradient @ (vector if vector.dtype is gradient.dtype else vector.to(gradient.dtype))
            if shape is not None:
                relevance = scatter_rows(relevance.unsqueeze(-1), rows, shape)
            self._record(index, close_batch(relevance, level))

        return record

    def _axis(self, result: Tensor, varies: tuple[int, ...]) -> int | None:
        if self.scrambled and self.samples > 1:
            return None
        return sample_axis(result.shape, self.samples, varies, self.length)

    def _record(self, index: int, relevance: Tensor) -> None:
        site = self.sites[index]
        if not self.open:
            return
        if site.axis is None:
            self._record_by_digits(index, relevance)
        elif self.probe is None:
            self._add(self.amounts, index, self._by_sample(relevance, site.axis))
            if site.sort is Sort.CUT_OFF:
                self._add(self.sizes, index, self._by_sample(relevance.abs(), site.axis))

    def _by_sample(self, relevance: Tensor, axis: int) -> Tensor:
        relevance = relevance.contiguous()  # autograd chooses how a sum of gradients lies in memory, by who holds it
        if self.samples == 1:
            return relevance.sum().reshape(1)
        relevance = relevance if axis == 0 else relevance.movedim(axis, 0)
        return relevance if relevance.dim() == 1 else relevance.flatten(1).sum(1)

    def _add(self, amounts: dict[int, Tensor], index: int, relevance: Tensor) -> None:
        relevance, level = open_batch(relevance.double())
        if self.scores is not None and level is None:  # the same for every score
            relevance = relevance.expand(self.scores, *relevance.shape)
        seen = amounts.get(index)
        amounts[index] = relevance if seen is None else seen + relevance

    def _record_by_digits(self, index: int, relevance: Tensor) -> None:
        """A further pass scales the score of every sample by a power of two that spells a digit of its number.

        Scaling by a power of two is exact in any precision, so the ratio of two passes names the digit.
        """
        if self.probe is None:
            self.first_seen.setdefault(index, []).append(relevance)
            return
        seen = self.digits.setdefault(index, [])
        number = len(seen) % len(self.first_seen[index])
        once = self.first_seen[index][number]
        ratio = torch.where(once == 0, torch.ones_like(once), relevance / once).double().abs()
        seen.append((ratio.log2().nan_to_num(0, 0, 0).round().long() + BASE // 2).clamp(0, BASE - 1))

    def seeds(self, probe: int) -> list[float]:
        """The factor of every sample's score in the pass that asks for digit number `probe`."""
        return [2.0 ** (sample // BASE**probe % BASE - BASE // 2) for sample in range(self.samples)]

    @property
    def probes(self) -> int:
        """How many further passes tell the samples apart: one up to BASE of them."""
        return 0 if not self.needs_probe else max(1, math.ceil(math.log(self.samples, BASE) - 1e-9))

    def settle(self) -> None:
        """After the further passes: every amount to its sample."""
        for index, parts in self.first_seen.items():
            for number, once in enumerate(parts):
                digits = self.digits[index][number :: len(parts)]
                sample = sum(digit * BASE**p for p, digit in enumerate(digits))
                assert isinstance(sample, Tensor)
                shares = torch.zeros(self.samples, dtype=torch.float64, device=once.device)
                flat = sample.clamp(0, self.samples - 1).flatten()
                self._add(self.amounts, index, shares.scatter_add(0, flat, once.double().flatten()))
                if self.sites[index].sort is Sort.CUT_OFF:
                    self._add(self.sizes, index, shares.scatter_add(0, flat, once.double().abs().flatten()))

    def take(self) -> Books:
        """What was booked, as books of its own; these are ready for another score of the same forward pass."""
        done = replace(self, amounts=self.amounts, sizes=self.sizes, first_seen=self.first_seen, digits=self.digits)
        self.amounts, self.sizes, self.first_seen, self.digits, self.probe = {}, {}, {}, {}, None
        return done

    def take_each(self) -> list[Books]:
        """The same of a backward pass of several scores: books for each of them."""
        count, done = self.scores or 0, self.take()
        self.scores = None
        return [
            replace(
                done,
                scores=None,
                amounts={index: amount[k] for index, amount in done.amounts.items()},
                sizes={index: size[k] for index, size in done.sizes.items()},
            )
            for k in range(count)
        ]

    def copy(self) -> Books:
        """What was booked, in memory of its own."""
        amounts, sizes = ({i: t.clone() for i, t in found.items()} for found in (self.amounts, self.sizes))
        return replace(self, amounts=amounts, sizes=sizes)

    def is_finite(self) -> bool:
        """Whether every amount is a number: one question a device, not one a source."""
        alike: dict[tuple[torch.device, torch.Size], list[Tensor]] = {}
        for amount in self.amounts.values():
            alike.setdefault((amount.device, amount.shape), []).append(amount)
        return all(bool(torch.stack(amounts).isfinite().all()) for amounts in alike.values())

    def totals(self, sort: Sort) -> dict[str, Tensor]:
        """Relevance by name, [samples], of one `sort`. A bias that no gradient reached stands there with zero."""
        return self.all_totals()[sort]

    def all_totals(self) -> dict[Sort, dict[str, Tensor]]:
        """The same of every sort."""
        found: dict[Sort, dict[str, Tensor]] = {sort: {} for sort in Sort}
        nothing = torch.zeros(self.samples, dtype=torch.float64)
        for index, site in enumerate(self.sites):
            amount = self.amounts.get(index, nothing if site.sort is Sort.BIAS else None)
            if amount is not None:
                own, lines = amount if amount.is_cpu else amount.cpu(), found[site.sort]
                lines[site.name] = lines[site.name] + own if site.name in lines else own
        return found

    def cut_size(self) -> Tensor:
        """[samples]: the absolute relevance of all that was cut off."""
        found = torch.zeros(self.samples, dtype=torch.float64)
        return sum((size.cpu() for size in self.sizes.values()), found)

    def resort(self, index: int, name: str, sort: Sort) -> None:
        """The source number `index` turned out to be of another `sort`, under another `name`."""
        self.sites[index] = replace(self.sites[index], name=name, sort=sort)


def wide(tensor: Tensor) -> Tensor:
    """Sums of half precision are made in float32."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def sample_axis(shape: torch.Size, samples: int, varies: tuple[int, ...] = (), length: int | None = None) -> int | None:
    """The axis of `shape` along which the samples lie, or None where that cannot be told for certain.

    Batch first is certain if no other free axis could hold the samples too: none of that size, and in up to three
    dimensions none that is a multiple of it, but for the known number of positions. Another axis is certain if it
    alone has the size and the first is no multiple of it (flattened or windowed batches are). Everything else is left
    to further passes.
    """
    if samples == 1:
        return 0
    free = [axis for axis in range(len(shape)) if axis not in varies]
    exact = [axis for axis in free if shape[axis] == samples]
    if len(exact) != 1:
        return None
    if exact[0] == 0:
        others = [shape[axis] for axis in free if axis != 0 and shape[axis] != length]
        folded = len(shape) <= 3 and any(size % samples == 0 for size in others)
        return None if folded else 0
    return exact[0] if 0 in free and shape[0] % samples != 0 else None
