"""Which pixels of an image go together, and which positions inside a model they become."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ModelError
from ..results.picture import Grid
from .hooks import hook_modules, stop_after
from .places import embeddings_around, find_places

OTHERS = 14  # cells a side, for a model that does not cut its input into patches


@dataclass(frozen=True)
class PatchGrid:
    """`cells`: what relevance is summed over. `own`: the patches that the model itself cuts, None if it does not.

    `embed` runs a model's embeddings on the images it is given, and gives [images, positions, features].
    """

    cells: Grid
    own: Grid | None
    embed: Callable[[Tensor], Tensor | None]

    @property
    def index(self) -> Tensor:
        """[height, width]: the cell of each pixel."""
        return indices(self.cells)

    def sums(self, values: Tensor) -> Tensor:
        """[cells]: `values` [channels, height, width] summed over each cell, in double precision on the way."""
        flat = values.detach().double().sum(0).flatten().cpu()
        return torch.zeros(len(self.cells), dtype=torch.float64).index_add_(0, self.index.flatten(), flat)

    def spread(self, values: Tensor, mask: Tensor) -> Tensor:
        """A cell's value, which stands at each of its numbers, divided among them."""
        sizes = torch.bincount(mask.flatten(), minlength=len(self.cells)).to(values)
        return values / sizes[mask]

    @cached_property
    def before(self) -> int | None:
        """How many positions the model puts before its patches: those that no pixel reaches. None where it is not so.

        Two images that have no pixel in common are embedded, and positions that are the same in both are no patches.
        """
        if self.own is None:
            return None
        both = torch.stack([torch.zeros(self.own.height, self.own.width), torch.ones(self.own.height, self.own.width)])
        found = self.embed(both)
        if found is None or found.dim() != 3:
            return None
        same = (found[0] == found[1]).all(-1).tolist()
        count = len(same) - len(self.own)
        return count if count >= 0 and same == [True] * count + [False] * len(self.own) else None

    def of_positions(self, row: Tensor) -> Tensor:
        """[cells]: one number for each of the model's own patches, summed over the cells that they lie in."""
        assert self.own is not None
        high, wide = self.own.cell
        places = [
            self.cells.number_of(row * high + high // 2, column * wide + wide // 2)
            for row in range(self.own.rows)
            for column in range(self.own.columns)
        ]
        return torch.zeros(len(self.cells), dtype=row.dtype).index_add_(0, torch.tensor(places), row)

    @property
    def nested(self) -> bool:
        """Whether every patch of the model lies in one cell."""
        own, cells = self.own, self.cells
        return own is not None and all(c % o == 0 for c, o in zip(cells.cell, own.cell, strict=True))


def indices(grid: Grid) -> Tensor:
    rows = torch.tensor([grid.row_of(y) for y in range(grid.height)])
    columns = torch.tensor([grid.column_of(x) for x in range(grid.width)])
    return rows[:, None] * grid.columns + columns


def patches_of(model: nn.Module, channels: int, height: int, width: int, side: int | None) -> PatchGrid:
    """The model's own patches, or cells of `side` pixels; where there are neither, a grid of 14 by 14."""
    cut = own_patch(model, channels)
    own = None if cut is None else Grid(height, width, cut)
    if side is not None:
        cells = Grid(height, width, (side, side))
    else:
        cells = own or Grid(height, width, (max(1, height // OTHERS), max(1, width // OTHERS)))
    return PatchGrid(cells, own, lambda grey: embed_images(model, grey, channels))


def pixel_argument(model: nn.Module) -> str:
    """The argument that takes the pixels: `pixel_values`, as transformers calls it, or the first, as in timm."""
    parameters = list(inspect.signature(model.forward).parameters.values())
    named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    others = any(p.kind is p.VAR_KEYWORD for p in parameters)
    if not named or "pixel_values" in [p.name for p in named] or (others and named[0].default is not named[0].empty):
        return "pixel_values"
    return named[0].name


def first_layer(model: nn.Module, channels: int) -> nn.Conv2d | None:
    """The convolution that takes the pixels."""
    return next((m for m in model.modules() if isinstance(m, nn.Conv2d) and m.in_channels == channels), None)


def own_patch(model: nn.Module, channels: int) -> tuple[int, int] | None:
    """The size of the patches that the first layer cuts: a convolution that takes every pixel once.

    A layer that overlaps, or takes pixel by pixel, cuts no patches. A model that unfolds its input by hand is believed
    what its config says.
    """
    first = first_layer(model, channels)
    if first is not None:
        apart = tuple(first.kernel_size) == tuple(first.stride) and first.kernel_size != (1, 1)
        return (first.kernel_size[0], first.kernel_size[1]) if apart else None
    said = getattr(getattr(model, "config", None), "patch_size", None)
    return (said, said) if isinstance(said, int) else None


def embeddings(model: nn.Module, channels: int) -> nn.Module | None:
    """The module whose output are the embedded patches and what comes before them."""
    first = first_layer(model, channels)
    if first is not None:
        return embeddings_around(model, first)
    try:
        return find_places(model, "embeddings")[0]
    except ModelError:
        return None


def embed_images(model: nn.Module, grey: Tensor, channels: int) -> Tensor | None:
    """What the model's embeddings make of grey images [images, height, width]; None for a model that has none."""
    place = embeddings(model, channels)
    if place is None:
        return None
    found: list[Tensor] = []

    def keep(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        found.append(output if isinstance(output, Tensor) else next(o for o in output if isinstance(o, Tensor)))

    like = next(p for p in model.parameters() if p.is_floating_point())
    images = grey[:, None].expand(-1, channels, -1, -1).to(like)
    with hook_modules([place], after=keep), stop_after([place]), torch.no_grad():
        model(**{pixel_argument(model): images})
    return found[0].cpu() if found else None
