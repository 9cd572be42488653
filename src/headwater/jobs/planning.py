"""How the input is cut: into shards, which are files, and chunks, which are what a worker is handed.

The cuts depend on the input alone. So a row has the same neighbours in its batch with any number of workers, with
either engine, and after any interruption. Equal batches are what makes results equal to the last digit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..store.manifest import shard_extent

CHUNK_ROWS = 512


@dataclass(frozen=True, order=True)
class Chunk:
    """Rows from `start` up to `stop`, the `part`-th of the `parts` of a shard."""

    shard: int
    part: int
    parts: int
    start: int
    stop: int


@dataclass(frozen=True)
class Layout:
    """Where `rows` rows lie in shards of `shard_rows`."""

    rows: int
    shard_rows: int

    @property
    def shards(self) -> range:
        return range(-(-self.rows // self.shard_rows))

    def extent(self, shard: int) -> range:
        return shard_extent(shard, self.shard_rows, self.rows)

    def chunks(self, shard: int) -> list[Chunk]:
        """A shard in stretches of 512 rows, so that a worker that dies loses no more than one."""
        extent = self.extent(shard)
        starts = range(extent.start, extent.stop, CHUNK_ROWS)
        ends = (min(start + CHUNK_ROWS, extent.stop) for start in starts)
        return [Chunk(shard, i, len(starts), a, b) for i, (a, b) in enumerate(zip(starts, ends, strict=True))]

    def left(self, done: Iterable[int]) -> Iterator[Chunk]:
        """Chunks of the shards that are not done, in their order."""
        known = set(done)
        return (chunk for shard in self.shards if shard not in known for chunk in self.chunks(shard))
