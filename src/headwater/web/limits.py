"""How much one request may ask, and how many may wait: a server that is asked too much says so and lives."""

from __future__ import annotations

from dataclasses import dataclass

KIB, MIB = 1024, 1024 * 1024


@dataclass(frozen=True)
class Limits:
    """Bounds of one server. `seconds` is the time that one request may compute, `waiting` how many may stand in line.

    Schemas carry the bounds of their own fields (characters, methods, masked words); these are the ones that depend on
    the machine, or that need a look at the data.
    """

    workers: int = 2
    waiting: int = 32
    seconds: float = 60.0
    body: int = 12 * MIB
    image_pixels: int = 24_000_000
    atoms: int = 150
    kept: int = 64  # answers that are kept, so that a report does not compute again what is on the screen
