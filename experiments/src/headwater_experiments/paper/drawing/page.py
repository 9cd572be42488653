"""The sheet that every figure is drawn on: its size, its type, where panels lie, and how it becomes files.

Panels are placed in inches, so that those of one row or column line up whatever their numbers are. Type is DejaVu
Sans, which comes with matplotlib: the same figure on every machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.errors import UsageError, require_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAGE, TALL = 6.75, 8.8  # inches: the width of both columns of a page, and what it leaves above a caption
DPI = 200  # of the PNG
DOTS = 400  # an inch, of points inside the SVG
SMALL, PLAIN = 7.0, 8.0  # points

STYLE: dict[str, Any] = {
    "font.family": ["DejaVu Sans"],
    "font.size": SMALL,
    "axes.titlesize": PLAIN,
    "axes.titlepad": 4,
    "axes.labelsize": SMALL,
    "axes.labelpad": 2,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "xtick.major.pad": 2,
    "ytick.major.pad": 2,
    "axes.unicode_minus": True,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "legend.handlelength": 3.0,
    "legend.columnspacing": 1.6,
    "legend.borderpad": 0,
    "legend.borderaxespad": 0,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.4,
    "patch.linewidth": 0,
    "text.hinting": "none",  # letters as wide on the PNG as they were measured
    "svg.fonttype": "path",
    "svg.hashsalt": "headwater",
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}


@dataclass(frozen=True)
class Margins:
    """Inches around all panels and between two of them."""

    left: float = 0.5
    right: float = 0.08
    top: float = 0.25
    bottom: float = 0.55
    across: float = 0.4
    down: float = 0.4
    apart: float = 0.0  # beyond `across`, between two blocks of panels


@contextmanager
def use_style() -> Iterator[None]:
    """Draw by matplotlib's defaults and `STYLE`, whatever the caller has set; the caller's settings come back."""
    with require_extra("drawing figures", "paper", "headwater-experiments"):
        import matplotlib
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(STYLE)
        yield


def blank(width: float, height: float) -> Figure:
    """A sheet of this size in inches; no window, no state of pyplot."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


def panels(rows: int, columns: int, height: float, margins: Margins, blocks: int = 1) -> tuple[Figure, Any]:
    """A figure with panels of one size, `height` inches high, and the array of its axes [rows, columns].

    A row may hold several blocks of equally many panels, with a wider gap between them.
    """
    import numpy as np

    across = panel_width(columns, margins, blocks)
    total = margins.top + margins.bottom + rows * height + (rows - 1) * margins.down
    figure = blank(PAGE, total)
    axes = np.empty((rows, columns), dtype=object)
    for row in range(rows):
        for column in range(columns):
            before = column // (columns // blocks) * margins.apart
            left = margins.left + column * (across + margins.across) + before
            low = total - margins.top - (row + 1) * height - row * margins.down
            axes[row, column] = figure.add_axes((left / PAGE, low / total, across / PAGE, height / total))
    return figure, axes


def panel_width(columns: int, margins: Margins, blocks: int = 1) -> float:
    between = (columns - 1) * margins.across + (blocks - 1) * margins.apart
    return (PAGE - margins.left - margins.right - between) / columns


def panel_height(rows: int, margins: Margins) -> float:
    """What a page leaves for each of so many panels, one below the other."""
    return (TALL - margins.top - margins.bottom - (rows - 1) * margins.down) / rows


def write_title(figure: Figure, axes: Axes, text: str, above: float) -> None:
    """The name of a block, so many inches above its first panel and as far left as its numbers."""
    width, height = figure.get_size_inches()
    box = axes.get_position()
    place = (box.x0 * width - 0.34, box.y1 * height + above)
    beside(figure, *place, text, fontsize=PLAIN, fontweight="bold")


def few_ticks(axes: Axes, x: int = 4, y: int = 4) -> None:
    """At most so many intervals, at round numbers."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(x, steps=[1, 2, 5, 10]))
    axes.yaxis.set_major_locator(MaxNLocator(y, steps=[1, 2, 5, 10]))


def beside(figure: Figure, x: float, y: float, text: str, **options: Any) -> None:
    """Text at a place in inches from the lower left corner."""
    width, height = figure.get_size_inches()
    figure.text(x / width, y / height, text, parse_math=False, **{"fontsize": SMALL, **options})


def save_figure(figure: Figure, stem: str | Path) -> tuple[Path, Path]:
    """Write `stem`.svg and `stem`.png. The same figure gives the same bytes: no date, no random names, no version.

    Letters are outlines in the SVG, so that it looks the same where the font is missing.
    """
    svg, png = Path(f"{stem}.svg"), Path(f"{stem}.png")
    try:
        svg.parent.mkdir(parents=True, exist_ok=True)
        with use_style():
            figure.savefig(svg, format="svg", dpi=DOTS, metadata={"Date": None, "Creator": None})
            figure.savefig(png, format="png", dpi=DPI, metadata={"Software": None})
    except OSError as error:
        raise UsageError(f"{svg.parent} cannot be written: {error.strerror}.") from error
    return svg, png
