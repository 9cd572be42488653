"""Where workers died in a chunk, and what that teaches: the same bookkeeping for processes and for actors."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from .explaining import Care, Place
from .planning import Chunk

DEATHS = 4  # at one place until it is taken for the cause: somebody may be killing workers for other reasons
STARTS = 16  # deaths on end of workers that never got to work


@dataclass
class Task:
    """A chunk with its history. A batch at which workers die is run row by row; a row at which they die is left out."""

    chunk: Chunk
    care: Care = field(default_factory=Care)
    deaths: Counter[Place] = field(default_factory=Counter)

    def died_at(self, place: Place, how: str) -> None:
        self.deaths[place] += 1
        if self.deaths[place] < DEATHS:
            return
        if place.row is None:
            self.care = replace(self.care, alone=self.care.alone | {place.batch})
        else:
            said = f"{DEATHS} worker processes ended while they explained this row ({how})"
            self.care = replace(self.care, left_out={**self.care.left_out, place.row: said})

    @property
    def hopeless(self) -> bool:
        """They go on dying where care was taken already, and where no row is left that could be the cause."""
        return any(deaths >= 2 * DEATHS for place, deaths in self.deaths.items() if place.row is None)

    def given_up(self, how: str) -> str:
        rows = f"rows {self.chunk.start} to {self.chunk.stop - 1}"
        return (
            f"workers end again and again at {rows} of the input, and no single row is the cause ({how}). What is done "
            "is kept; the same command goes on from there."
        )
