"""Where workers died in a chunk, and what that teaches: the same bookkeeping for processes and for actors.

Nothing here needs torch, so that an actor that only counts starts at once.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from .planning import Chunk

logger: logging.Logger = logging.getLogger(__name__)
DEATHS = 4  # at one place until it is taken for the cause: somebody may be killing workers for other reasons
STARTS = 16  # deaths on end of workers that never got to work


@dataclass(frozen=True)
class Place:
    """Where a worker stands in its chunk: about to run this batch, or this row of it alone."""

    batch: int
    row: int | None = None


@dataclass(frozen=True)
class RetryState:
    """What earlier trouble with a chunk teaches: batches to be run row by row, and rows to be left out, with why."""

    alone: frozenset[int] = frozenset()
    left_out: Mapping[int, str] = field(default_factory=dict)


@dataclass
class ChunkTask:
    """A chunk with its history. A batch at which workers die is run row by row; a row at which they die is left out."""

    chunk: Chunk
    care: RetryState = field(default_factory=RetryState)
    deaths: Counter[Place] = field(default_factory=Counter)

    def note_death(self, place: Place, how: str) -> None:
        self.deaths[place] += 1
        logger.warning("a worker ended at %s, for the time %d (%s)", place, self.deaths[place], how)
        if self.deaths[place] < DEATHS:
            return
        if place.row is None:
            self.care = replace(self.care, alone=self.care.alone | {place.batch})
        else:
            said = f"{DEATHS} worker processes ended while they explained this row ({how})"
            self.care = replace(self.care, left_out={**self.care.left_out, place.row: said})

    @property
    def should_give_up(self) -> bool:
        """They go on dying where care was taken already, and where no row is left that could be the cause."""
        return any(deaths >= 2 * DEATHS for place, deaths in self.deaths.items() if place.row is None)

    def describe_failure(self, how: str) -> str:
        rows = f"rows {self.chunk.start} to {self.chunk.stop - 1}"
        return (
            f"workers end again and again at {rows} of the input, and no single row is the cause ({how}). What is done "
            "is kept; the same command goes on from there."
        )


class History:
    """Counts how often each chunk was begun, and where. A chunk that begins again was lost where it last stood.

    Where it stands is told only from the second time on: to tell takes as long as some rows do.
    """

    def __init__(self) -> None:
        self.tasks: dict[Chunk, ChunkTask] = {}
        self.places: dict[Chunk, Place] = {}
        self.lost: Counter[Chunk] = Counter()

    def begins(self, chunk: Chunk) -> tuple[RetryState, bool] | None:
        """What to take care of, and whether to tell; None where it was begun too often without getting anywhere."""
        known, place = chunk in self.tasks, self.places.pop(chunk, None)
        task = self.tasks.setdefault(chunk, ChunkTask(chunk))
        if place is not None:
            task.note_death(place, "the actor was lost")
        elif known:
            self.lost[chunk] += 1
        return (task.care, known) if self.lost[chunk] < STARTS and not task.should_give_up else None

    def at(self, chunk: Chunk, place: Place) -> None:
        self.places[chunk] = place

    def ends(self, chunk: Chunk) -> None:
        """Nothing more is to be known of it, and memory does not grow with the job."""
        self.tasks.pop(chunk, None)
        self.places.pop(chunk, None)
