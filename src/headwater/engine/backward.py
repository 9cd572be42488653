"""The way back: the gradient of the score at each input, by as few backward passes as tell the samples apart."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import Tensor
from torch.utils.checkpoint import CheckpointError

from ..errors import HiddenOperation, NoSignal
from ..inputs.places import Captured
from ..rules import Books
from .forward import Read
from .run_writing import RunWriter


def backward(
    read: Read, inputs: list[Captured], books: Books, keep: bool, writer: RunWriter | None = None
) -> list[Tensor]:
    """The gradient at each input, by one backward pass; by more where shapes do not tell the samples of a source."""
    leaves = [one.leaf for one in inputs]
    probes = books.probes
    found = gradients_at(leaves, read, None, keep or probes > 0, writer)
    if all(g is None for g, one in zip(found, inputs, strict=True) if not one.beside):
        raise NoSignal("the score does not depend on the input that is to be explained.")
    for probe in range(probes):
        books.probe = probe
        seeds = torch.tensor(books.seeds(probe), dtype=torch.float64, device=leaves[0].device)
        gradients_at(leaves, read, seeds, keep or probe + 1 < probes)
    books.settle()
    return [torch.zeros_like(leaf) if g is None else g.detach() for leaf, g in zip(leaves, found, strict=True)]


def gradients_at(
    leaves: list[Tensor], read: Read, seeds: Tensor | None, keep: bool, writer: RunWriter | None = None
) -> tuple[Tensor | None, ...]:
    starts = read.gradients(seeds)
    try:
        with (
            torch.autocast(leaves[0].device.type, enabled=False),  # types are chosen on the way forward
            nullcontext() if writer is None else writer.backwards(starts),
        ):
            found = torch.autograd.grad(read.ends, leaves, starts, retain_graph=keep, allow_unused=True)
    except CheckpointError as error:
        raise HiddenOperation(
            "a part of the model under gradient checkpointing cannot be computed again as the rules had it. Call "
            "model.gradient_checkpointing_disable(), or leave out the checkpoint."
        ) from error
    except RuntimeError as error:
        if "inplace operation" not in str(error):
            raise
        raise HiddenOperation(
            "the model writes over a tensor that the backward pass still needs, "
            f"as code for inference alone may do: {error}"
        ) from error
    if writer is not None:
        writer.gradients = found
    return found
