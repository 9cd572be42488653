"""The one scale of all pictures: the largest relevance is full colour, zero is none.

Red adds and blue takes away, unless another palette is asked for: `with palette("green-purple"): …`. No picture leaves
the sign to hue alone, so that every palette can be read without one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

from headwater.errors import UnknownName

__all__ = ["Palette", "Shade", "largest", "palette", "shade"]

Rgb = tuple[int, int, int]
Theme = Literal["dark", "light"]


@dataclass(frozen=True)
class Palette:
    """Full colour of what adds and of what takes away, for each theme; `said` is what a person calls the pair.

    Example:
        >>> from headwater.viz.colour import Palette
        >>> mine = Palette("teal and brown", {"light": (0, 128, 128), "dark": (0, 160, 160)},
        ...                {"light": (150, 75, 0), "dark": (200, 120, 40)})
        >>> mine.positive["light"]
        (0, 128, 128)
    """

    said: str  # what a person calls the pair
    positive: dict[Theme, Rgb]  # full colour of what adds, by theme
    negative: dict[Theme, Rgb]  # full colour of what takes away, by theme


SIGN_CLASS = {1: "add", 0: "none", -1: "take"}  # of an element of a page, by the sign of its shade

# Full colour under white text on a dark ground and under black text on a light one: contrast at least 4.5 to 1.
PALETTES = {
    "red-blue": Palette(
        "red and blue",
        {"dark": (192, 45, 45), "light": (255, 107, 107)},
        {"dark": (38, 92, 204), "light": (116, 169, 255)},
    ),
    "orange-blue": Palette(
        "orange and blue, for red-green blindness",
        {"dark": (176, 84, 0), "light": (250, 164, 58)},
        {"dark": (0, 97, 166), "light": (110, 180, 236)},
    ),
    "green-purple": Palette(
        "green and purple, for blue-yellow blindness",
        {"dark": (22, 122, 62), "light": (116, 196, 134)},
        {"dark": (128, 66, 156), "light": (194, 158, 214)},
    ),
    "grey": Palette(
        "one grey, the sign by line alone",
        {"dark": (112, 112, 118), "light": (160, 160, 166)},
        {"dark": (112, 112, 118), "light": (160, 160, 166)},
    ),
}
DEFAULT = "red-blue"
_chosen: ContextVar[str] = ContextVar("palette", default=DEFAULT)


@contextmanager
def palette(name: str) -> Iterator[None]:
    """Everything that is drawn inside is drawn in this palette, on this thread.

    Args:
        name: "red-blue", "orange-blue", "green-purple" or "grey".

    Returns:
        A context.

    Raises:
        UnknownName: there is no such palette.

    Example:
        >>> from headwater.viz.colour import palette
        >>> e = hw.explain("headwater/sentiment", "a fine film")
        >>> with palette("green-purple"):
        ...     e.save("green.html")
    """
    if name not in PALETTES:
        raise UnknownName("palette", name, PALETTES)
    token = _chosen.set(name)
    try:
        yield
    finally:
        _chosen.reset(token)


def hues() -> tuple[str, str]:
    """What a person calls the two colours in force."""
    adds, _, takes = _chosen.get().partition("-")
    return adds, takes or adds


class Hue(Mapping[Theme, Rgb]):
    """One side of the palette that is in force, by theme."""

    def __init__(self, side: Literal["positive", "negative"]) -> None:
        self.side = side

    def _now(self) -> dict[Theme, Rgb]:
        chosen = PALETTES[_chosen.get()]
        return chosen.positive if self.side == "positive" else chosen.negative

    def __getitem__(self, theme: Theme) -> Rgb:
        return self._now()[theme]

    def __iter__(self) -> Iterator[Theme]:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._now())


POSITIVE, NEGATIVE = Hue("positive"), Hue("negative")
GROUND: dict[Theme, Rgb] = {"dark": (24, 24, 27), "light": (255, 255, 255)}
INK: dict[Theme, Rgb] = {"dark": (245, 245, 245), "light": (17, 17, 17)}


@dataclass(frozen=True)
class Shade:
    """The colour of one relevance: `sign` is +1, 0 or -1, `opacity` runs from 0 to 1.

    Example:
        >>> from headwater.viz.colour import shade
        >>> shade(-1.5, scale=3.0)
        Shade(sign=-1, opacity=0.5)
    """

    sign: int  # +1, 0 or -1
    opacity: float  # from 0 to 1

    def background(self, theme: Theme) -> Rgb:
        """The colour on an opaque ground of a `theme`, "light" or "dark", for media that cannot blend."""
        full = POSITIVE[theme] if self.sign > 0 else NEGATIVE[theme]
        return blend_colours(GROUND[theme], full, self.opacity)


def largest(values: Iterable[float]) -> float:
    """The size that gets full colour: the largest absolute value, 0 where there is none.

    Args:
        values: relevance.

    Returns:
        A number.

    Example:
        >>> from headwater.viz.colour import largest
        >>> largest([1.0, -3.0])
        3.0
    """
    return max((abs(value) for value in values if math.isfinite(value)), default=0.0)


def shade(value: float, scale: float) -> Shade:
    """The colour of one relevance.

    Args:
        value: the relevance. What is not a finite number gets no colour.
        scale: the relevance that has full colour.

    Returns:
        A `Shade`.

    Example:
        >>> from headwater.viz.colour import shade
        >>> shade(1.5, scale=3.0)
        Shade(sign=1, opacity=0.5)
    """
    if not math.isfinite(value) or value == 0 or scale <= 0:
        return Shade(0, 0.0)
    return Shade(1 if value > 0 else -1, min(1.0, abs(value) / scale))


def blend_colours(ground: Rgb, colour: Rgb, opacity: float) -> Rgb:
    red, green, blue = (round(g + (c - g) * opacity) for g, c in zip(ground, colour, strict=True))
    return red, green, blue
