"""Heads or neurons over many rows of a run: those with most relevance, and the tokens at which they have it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

Floats = NDArray[np.float64]
ReadBatches = Callable[[list[str]], "Iterator[pa.RecordBatch]"]  # of some columns of a run


@dataclass(frozen=True)
class TokenTotal:
    """A token at which a unit had its largest relevance, in how many rows, and the sum of it there."""

    text: str
    rows: int
    total: float


@dataclass(frozen=True)
class UnitTotal:
    """One head or neuron over `rows` rows. `size` is the mean absolute relevance, `mean` that with its sign."""

    module: str
    layer: int | None
    unit: int
    rows: int
    mean: float
    size: float
    tokens: tuple[TokenTotal, ...]


@dataclass
class GroupSums:
    """Sums of one group of units while rows come in."""

    layer: int | None
    rows: int
    sums: Floats
    sizes: Floats


def rank_units(read: ReadBatches, kind: str, count: int, tokens: int, rows: int | None) -> list[UnitTotal]:
    """Two passes over the column: sums of all units, then the tokens of those that are listed."""
    groups: dict[str, GroupSums] = {}
    for module, layer, amounts, _ in read_unit_groups(read, kind, rows):
        found = groups.setdefault(module, GroupSums(layer, 0, np.zeros(amounts.shape[1]), np.zeros(amounts.shape[1])))
        found.rows += len(amounts)
        found.sums += amounts.sum(0)
        found.sizes += np.abs(amounts).sum(0)
    everything = [(float(g.sizes[u] / g.rows), name, u) for name, g in groups.items() for u in range(len(g.sizes))]
    best = sorted(everything, key=lambda one: -one[0])[:count]
    met = count_tokens(read, kind, {(name, unit) for _, name, unit in best}, rows)
    return [
        UnitTotal(
            name,
            groups[name].layer,
            unit,
            groups[name].rows,
            float(groups[name].sums[unit] / groups[name].rows),
            size,
            largest_tokens(*met[name, unit], tokens),
        )
        for size, name, unit in best
    ]


TokenSums = tuple[Counter[str], dict[str, float]]


def count_tokens(read: ReadBatches, kind: str, units: set[tuple[str, int]], rows: int | None) -> dict[Any, TokenSums]:
    """How often each of these units had its largest relevance at which token, and how much."""
    met: dict[Any, TokenSums] = {one: (Counter(), {}) for one in units}
    for module, _, _, places in read_unit_groups(read, kind, rows):
        if places is None:
            continue
        peaks, at_peaks, texts = places
        for unit in (unit for name, unit in units if name == module):
            often, sums = met[module, unit]
            for peak, amount, tokens in zip(peaks[:, unit], at_peaks[:, unit], texts, strict=True):
                often[tokens[peak]] += 1
                sums[tokens[peak]] = sums.get(tokens[peak], 0.0) + float(amount)
    return met


def largest_tokens(often: Counter[str], sums: dict[str, float], count: int) -> tuple[TokenTotal, ...]:
    best = sorted(sums, key=lambda text: (-abs(sums[text]), text))[:count]
    return tuple(TokenTotal(text, often[text], sums[text]) for text in best)


Places = tuple[NDArray[np.int64], Floats, list[list[str]]]


def read_unit_groups(
    read: ReadBatches, kind: str, rows: int | None
) -> Iterator[tuple[str, int | None, Floats, Places | None]]:
    """Batch by batch and group by group: its module, its layer, [rows, units], and the peaks with the rows' tokens."""
    left = rows
    for batch in read([kind, "tokens"]):
        batch = batch if left is None else batch.slice(0, left)
        left = None if left is None else left - batch.num_rows
        cells, tokens = batch.column(kind), batch.column("tokens").to_pylist()
        owners = np.repeat(np.arange(batch.num_rows), np.diff(cells.offsets.to_numpy()))
        flat = cells.flatten()
        modules = np.array(flat.field("module").to_pylist(), object)
        for module in dict.fromkeys(modules):
            chosen = np.flatnonzero(modules == module)
            part = flat.take(chosen)
            size = len(chosen)
            amounts = part.field("relevance").flatten().to_numpy().astype(float).reshape(size, -1)
            layer = part.field("layer")[0].as_py()
            places = None
            if part.field("peaks").null_count == 0:
                peaks = part.field("peaks").flatten().to_numpy().reshape(size, -1)
                at_peaks = part.field("at_peaks").flatten().to_numpy().astype(float).reshape(size, -1)
                places = peaks, at_peaks, [tokens[owner] for owner in owners[chosen]]
            yield module, layer, amounts, places
        if left is not None and left <= 0:
            return
