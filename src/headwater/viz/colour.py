"""The one scale of all pictures: the largest relevance is full colour, zero is none; red adds, blue takes away."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Rgb = tuple[int, int, int]
Theme = Literal["dark", "light"]

# Full colour under white text on a dark ground and under black text on a light one: contrast at least 4.5 to 1.
POSITIVE: dict[Theme, Rgb] = {"dark": (192, 45, 45), "light": (255, 107, 107)}
NEGATIVE: dict[Theme, Rgb] = {"dark": (38, 92, 204), "light": (116, 169, 255)}
GROUND: dict[Theme, Rgb] = {"dark": (24, 24, 27), "light": (255, 255, 255)}
INK: dict[Theme, Rgb] = {"dark": (245, 245, 245), "light": (17, 17, 17)}


@dataclass(frozen=True)
class Shade:
    """The colour of one relevance: `sign` is +1, 0 or -1, `opacity` runs from 0 to 1."""

    sign: int
    opacity: float

    def background(self, theme: Theme) -> Rgb:
        """The colour on an opaque ground, for media that cannot blend."""
        full = POSITIVE[theme] if self.sign > 0 else NEGATIVE[theme]
        return blend(GROUND[theme], full, self.opacity)


def largest(values: Iterable[float]) -> float:
    """The size that gets full colour: the largest absolute value, 0 where there is none."""
    return max((abs(value) for value in values if math.isfinite(value)), default=0.0)


def shade(value: float, scale: float) -> Shade:
    """The colour of `value` where `scale` is full. What is not a finite number gets none."""
    if not math.isfinite(value) or value == 0 or scale <= 0:
        return Shade(0, 0.0)
    return Shade(1 if value > 0 else -1, min(1.0, abs(value) / scale))


def blend(ground: Rgb, colour: Rgb, opacity: float) -> Rgb:
    red, green, blue = (round(g + (c - g) * opacity) for g, c in zip(ground, colour, strict=True))
    return red, green, blue
