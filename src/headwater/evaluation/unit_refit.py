"""What other units say of one: least squares over the texts that units are scored on.

A linear layer reads the units z of a group. When some of them go, the others say a part of what those said, for units
are correlated. With C the covariance of z over all positions of the texts, K the units that are kept and R those that
go, z_R is predicted by z_K (C_KK + ridge)^-1 C_KR, and the weights of K are changed to read that, too. The bias takes
the mean. It is the least-squares step of Optimal Brain Surgeon (Hassibi & Stork 1992; Frantar & Alistarh 2023) for
whole units.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..inputs.hooks import hook_modules
from ..kernels.row_products import FasterLinear
from .unit_removal import Chosen, UnitGroup, cut_units, read_inputs

RIDGE = 0.01  # of the mean variance of what a layer reads; chosen on SST-2's validation part, as all of this
TOGETHER = 32  # texts of one length


@dataclass(frozen=True)
class InputMoments:
    """Mean and covariance of what a linear layer reads, float64. Without a bias, which takes the mean, it is zero."""

    mean: Tensor
    covariance: Tensor

    def invert(self, kept: Tensor) -> Tensor:
        """The inverse covariance of the kept inputs, with the ridge."""
        found: Tensor = torch.linalg.inv(self._add_ridge(kept))
        return found

    def predict(self, kept: Tensor, gone: Tensor) -> Tensor:
        """[kept, gone]: the weights by which kept inputs predict those that go."""
        found: Tensor = torch.linalg.solve(self._add_ridge(kept), self.covariance[kept][:, gone])
        return found

    def _add_ridge(self, kept: Tensor) -> Tensor:
        size = RIDGE * float(self.covariance.diagonal().mean()) or 1.0
        return self.covariance[kept][:, kept] + size * torch.eye(len(kept), dtype=torch.float64)


def find_moments(
    model: nn.Module, tokenizer: Any, texts: Sequence[str], groups: Sequence[UnitGroup]
) -> list[InputMoments]:
    """For each group the moments of what its reader reads, over all positions of the texts."""
    readers = [model.get_submodule(group.reader) for group in groups]
    sums: list[Tensor] = [torch.zeros(())] * len(groups)
    products: list[Tensor] = [torch.zeros(())] * len(groups)
    count = 0
    for _, batch in batches_by_length(model, tokenizer, texts):
        with torch.no_grad(), FasterLinear(), watch_readers(readers) as found:
            model(**batch)
        for number in range(len(groups)):
            rows = found[number].flatten(0, -2)
            sums[number] = sums[number] + rows.sum(0).double().cpu()
            products[number] = products[number] + (rows.T @ rows).double().cpu()
        count += batch["input_ids"].numel()
    made = []
    for reader, total, product in zip(readers, sums, products, strict=True):
        mean = total / count if getattr(reader, "bias", None) is not None else torch.zeros_like(total)
        made.append(InputMoments(mean, product / count - torch.outer(mean, mean)))
    return made


def refit_units(
    model: nn.Module, groups: Sequence[UnitGroup], chosen: Chosen, moments: Sequence[InputMoments]
) -> nn.Module:
    """A copy of the model in which nothing reads the chosen units, and what is left says what can be said of them."""
    made = cut_units(model, groups, chosen)
    with torch.no_grad():
        for number, units in chosen.items():
            if not units:
                continue
            group, known = groups[number], moments[number]
            reader = made.get_submodule(group.reader)
            before = read_inputs(model.get_submodule(group.reader), group.reader).double().cpu()
            after = read_inputs(reader, group.reader)
            kept, gone = split_inputs(group, len(before), units)
            new = before.clone()
            new[gone] = 0
            if len(kept):
                new[kept] += known.predict(kept, gone) @ before[gone]
            after.copy_(new)
            bias = getattr(reader, "bias", None)
            if bias is not None:
                bias.add_(((before - new).T @ known.mean).to(bias))
    return made


def split_inputs(group: UnitGroup, inputs: int, gone: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Which inputs of the reader are those of units that are kept, and of units that go."""
    mask = torch.zeros(group.units, dtype=torch.bool)
    mask[list(gone)] = True
    wide = mask.repeat_interleave(inputs // group.units)
    return (~wide).nonzero().flatten(), wide.nonzero().flatten()


@contextmanager
def watch_readers(readers: Sequence[nn.Module], differentiable: bool = False) -> Iterator[dict[int, Tensor]]:
    """Inside, what each reader reads is kept by its number."""
    numbers = {reader: number for number, reader in enumerate(readers)}
    found: dict[int, Tensor] = {}

    def keep(module: nn.Module, args: Any, kwargs: Any) -> Any:
        value = args[0]
        if differentiable and not value.requires_grad:
            value = value.detach().requires_grad_()
        found[numbers[module]] = value
        return (value, *args[1:]), kwargs

    with hook_modules(readers, before=keep):
        yield found


def batches_by_length(
    model: nn.Module, tokenizer: Any, texts: Sequence[str]
) -> Iterator[tuple[list[int], dict[str, Tensor]]]:
    """Texts of one length together, so that no position is padding: their numbers, and the model's inputs."""
    device = next(model.parameters()).device
    read = [tokenizer(text, return_tensors="pt", truncation=True) for text in texts]
    lengths: dict[int, list[int]] = {}
    for number, one in enumerate(read):
        lengths.setdefault(one["input_ids"].shape[1], []).append(number)
    for _, numbers in sorted(lengths.items()):
        for start in range(0, len(numbers), TOGETHER):
            own = numbers[start : start + TOGETHER]
            yield own, {name: torch.cat([read[number][name] for number in own]).to(device) for name in read[own[0]]}
