"""Matrices in four bits, so that many small checkpoints fit beside the code: a ninth of their size in float32.

Groups of 32 numbers of a row share a step in half precision; every number is a multiple of it, from -8 to 7. What is
unpacked are plain float32 matrices, so that a model read from such a file is a model like any other, and gives the same
numbers everywhere. It is not quite the model that was trained: its matrices were rounded.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

GROUP = 32
LEVELS = 8
CODES, STEPS = ".codes", ".steps"  # what a packed matrix is kept as, behind its name
STEPS_TO_LARGEST = (7.0, 7.5, 8.0, 8.5, 9.0, 10.0)  # past 8 it is cut off, where that makes the others more exact


def pack(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Matrices whose rows are whole groups as codes and steps, the rest in half precision."""
    packed: dict[str, Tensor] = {}
    for name, value in weights.items():
        if value.dim() == 2 and value.shape[1] % GROUP == 0:
            codes, steps = round_groups(value.detach().float().unflatten(1, (-1, GROUP)))
            pairs = (codes + LEVELS).to(torch.uint8).flatten(1).unflatten(1, (-1, 2))
            packed[name + CODES] = pairs[..., 0] << 4 | pairs[..., 1]
            packed[name + STEPS] = steps[..., 0]
        else:
            packed[name] = value.detach().half()
    return packed


def round_groups(groups: Tensor) -> tuple[Tensor, Tensor]:
    """Codes [rows, groups, 32] and steps [rows, groups, 1]: of several steps the one with the smallest error."""
    largest = groups.abs().amax(-1, keepdim=True)
    steps = torch.stack([largest / count for count in STEPS_TO_LARGEST]).half()
    steps = torch.where(steps == 0, torch.ones_like(steps), steps)
    codes = (groups / steps.float()).round().clamp(-LEVELS, LEVELS - 1)
    errors = (codes * steps.float() - groups).square().sum(-1, keepdim=True)
    best = errors.argmin(0, keepdim=True)
    return codes.gather(0, best.expand(-1, -1, -1, GROUP))[0], steps.gather(0, best)[0]


def unpack(packed: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights in float32."""
    weights: dict[str, Tensor] = {}
    for name, value in packed.items():
        if name.endswith(CODES):
            whole = name.removesuffix(CODES)
            codes = torch.stack([value >> 4, value & 15], -1).flatten(1).float() - LEVELS
            steps = packed[whole + STEPS].float()
            weights[whole] = (codes.unflatten(1, (-1, GROUP)) * steps[..., None]).flatten(1)
        elif not name.endswith(STEPS):
            weights[name] = value.float()
    return weights


def is_packed(names: Mapping[str, Tensor]) -> bool:
    return any(name.endswith(CODES) for name in names)
