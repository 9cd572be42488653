"""Is every number finite? Where one is not, the module that it came from is found."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import HeadwaterError, NotFinite
from ..inputs.batch import list_leaves
from ..inputs.hooks import hook_modules
from ..inputs.restoring import outside_inference
from ..rules import Books, Scope
from ..rules.linear import dequantize
from ..rules.sources import Sort
from .backward import gradients_at
from .compiled import run_eagerly
from .forward import Demand, Run, forward, read_score
from .outcome import Fetched, Outcome


def check_finite(run: Run, demand: Demand, outcome: Outcome) -> None:
    """No NaN and no infinity in score, relevance or books; where there is one, the module it came from is named."""
    said = not_finite(outcome)
    if said is None:
        return
    for name, tensor in (*run.model.named_parameters(), *run.model.named_buffers()):
        if (
            tensor.is_floating_point()
            and not name.endswith("mask")
            and not tensor.is_meta
            and dequantize(tensor).isnan().any()
        ):
            raise NotFinite(f"the parameter {name!r} holds NaN.")
    why = "It overflowed, or padding attends to nothing; a more precise dtype= helps against the first."
    raise NotFinite(f"{said} is not finite{find_first_nonfinite(run, demand)}. {why}")


def not_finite(outcome: Outcome) -> str | None:
    if not bool(outcome.fetched.copy_of(outcome.score).isfinite().all()):
        return "the score"
    if not all(is_finite(r, outcome.fetched) for r in outcome.relevance):
        return "the relevance"
    if outcome.books.is_finite():
        return None
    for sort in Sort:
        for name, amount in outcome.books.totals(sort).items():
            if not bool(amount.isfinite().all()):
                return f"the relevance of {name!r}"
    return None


def is_finite(relevance: Tensor, fetched: Fetched) -> bool:
    """Sums are finite only where all that is added is. Finite numbers may add up to more than their type holds."""
    return bool(fetched.sum_of(relevance).isfinite().all()) or bool(relevance.isfinite().all())


def find_first_nonfinite(run: Run, demand: Demand) -> str:
    """Runs again with every module watched, and names the first whose output, or gradient, is not finite."""
    forwards, backwards = Watch(), Watch()
    names = {id(module): name for name, module in run.model.named_modules()}

    def note(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        name = names[id(module)] or type(module).__name__
        for tensor in list_leaves(list(output.values()) if isinstance(output, dict) else output):
            if isinstance(tensor, Tensor) and tensor.is_floating_point():
                forwards.see(name, tensor)
                if tensor.requires_grad:
                    tensor.register_hook(lambda gradient: backwards.see(name, gradient))

    with suppress(HeadwaterError), hook_modules(run.model.modules(), after=note):
        read_again(run, demand)  # where the score cannot be read, the way forward says enough
    if forwards.first is not None:
        return f": it first appeared in the output of the module {forwards.first!r}"
    return f": on the way back it first appeared at the output of the module {backwards.first!r}" * bool(
        backwards.first
    )


@dataclass
class Watch:
    """Remembers the first module that gave a number that is not finite."""

    first: str | None = None

    def see(self, name: str, tensor: Tensor | None) -> None:
        if self.first is None and tensor is not None and not bool(tensor.detach().isfinite().all()):
            self.first = name


def read_again(run: Run, demand: Demand) -> None:
    books = Books(run.batch.samples, run.batch.length)
    scope = Scope(demand.rules, books, {}, {})
    with outside_inference(), torch.enable_grad(), run_eagerly():
        out, inputs = forward(run, scope)
        read = read_score(run, out)
        if demand.backward:
            gradients_at([one.leaf for one in inputs], read, None, keep=False)
