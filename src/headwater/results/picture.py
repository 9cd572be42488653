"""Where relevance lies in an image: pixels as the model takes them, cut into cells, and their place in the original."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Grid:
    """A model's input of `height` by `width` pixels, cut into cells of `cell` (rows, columns of pixels).

    Pixels that are left over at the lower and right edge, where a cell does not fit any more, go with the last cell.
    """

    height: int
    width: int
    cell: tuple[int, int]

    @property
    def rows(self) -> int:
        return max(1, self.height // self.cell[0])

    @property
    def columns(self) -> int:
        return max(1, self.width // self.cell[1])

    def __len__(self) -> int:
        return self.rows * self.columns

    def row_of(self, y: int) -> int:
        return min(y // self.cell[0], self.rows - 1)

    def column_of(self, x: int) -> int:
        return min(x // self.cell[1], self.columns - 1)

    def number_of(self, y: int, x: int) -> int:
        """The cell of a pixel, counted line by line from 0."""
        return self.row_of(y) * self.columns + self.column_of(x)

    def edges(self, row: int, column: int) -> tuple[int, int, int, int]:
        """left, top, right and bottom of a cell, in pixels."""
        right = self.width if column == self.columns - 1 else (column + 1) * self.cell[1]
        bottom = self.height if row == self.rows - 1 else (row + 1) * self.cell[0]
        return column * self.cell[1], row * self.cell[0], right, bottom

    @property
    def names(self) -> tuple[str, ...]:
        """Row and column of every cell, from 0, line by line."""
        return tuple(f"[{row}, {column}]" for row in range(self.rows) for column in range(self.columns))


@dataclass(frozen=True)
class ImageFrame:
    """The image as its user knows it: `size` (width, height), and `box`, the part of it that the model sees.

    `box` is left, top, right and bottom in pixels of the image, and lies partly outside where a processor pads. None
    where a processor does more than resize, cut and pad, so that no such part exists. `source` is the file's name.
    """

    size: tuple[int, int]
    box: Box | None
    source: str | None = None


@dataclass(frozen=True)
class Picture:
    """An image that was explained. `grid`: its patches. `pixels` [channels, height, width] is the relevance of every
    number that the model took, None for methods that tell patches apart and no more."""

    grid: Grid
    frame: ImageFrame
    pixels: Tensor | None = None
