"""Relevance inside the model as columns of a run: one for heads, one for neurons, one for layers, one for modules.

A cell lists the model's groups in the order in which it computes them. A group has the sum over all tokens for every
unit, and the token at which each unit has most; relevance of every unit at every token would be as large as the
activations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..results.inside import KINDS, MODULES, CutLedger, Inside, NodeGroup

if TYPE_CHECKING:
    import pyarrow as pa


def inside_columns(asked: Sequence[str] | None) -> tuple[str, ...]:
    """The columns of a run that was asked for these kinds and modules."""
    known = {name if name in KINDS else MODULES for name in asked or ()}
    return tuple(name for name in (*KINDS, MODULES) if name in known)


def inside_type(relevance: str) -> pa.DataType:
    """The type of each of these columns; `relevance` is the type of its numbers, float or double."""
    import pyarrow as pa

    number = {"double": pa.float64(), "float": pa.float32()}[relevance]
    units = {"relevance": pa.list_(number), "peaks": pa.list_(pa.int32()), "at_peaks": pa.list_(number)}
    cut = dict.fromkeys(("nodes", "by_passing", "sources", "size"), pa.float64())
    fields = {"layer": pa.int32(), "module": pa.string(), **units, **cut, "closed": pa.bool_()}
    return pa.list_(pa.struct(list(fields.items())))


def inside_row(inside: Inside, columns: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    """The cells of one explanation."""
    return {name: [group_cell(group) for group in inside.groups if group.kind == name] for name in columns}


def group_cell(group: NodeGroup) -> dict[str, Any]:
    """One group. Where its positions are no tokens, units have no peak; where it is no cut, it has no ledger."""
    cut = group.ledger
    return {
        "layer": group.layer,
        "module": group.place,
        "relevance": group.units.numpy(),
        **(find_peaks(group) if group.by_token else {"peaks": None, "at_peaks": None}),
        "nodes": None if cut is None else cut.nodes,
        "by_passing": None if cut is None else cut.by_passing,
        "sources": None if cut is None else cut.sources,
        "size": None if cut is None else cut.size,
        "closed": None if cut is None else cut.closed,
    }


def find_peaks(group: NodeGroup) -> dict[str, Any]:
    """For every unit the token at which its relevance is largest, whatever its sign, and how much it is there."""
    peaks = group.relevance.abs().argmax(0)
    return {"peaks": peaks.int().numpy(), "at_peaks": group.relevance.gather(0, peaks.unsqueeze(0))[0].numpy()}


def read_inside(row: Mapping[str, Any], columns: Sequence[str]) -> Inside:
    """The groups of a row, each with one position: the sum over its tokens."""
    return Inside(tuple(read_cell(name, cell, row) for name in columns for cell in row[name]), tuple(row["tokens"]))


def read_cell(kind: str, cell: Mapping[str, Any], row: Mapping[str, Any]) -> NodeGroup:
    import torch

    dtype = torch.float64 if row["double"] else torch.float32
    cut = None
    if cell["nodes"] is not None:
        sums = {name: cell[name] for name in ("nodes", "by_passing", "sources", "size")}
        name = f"{cell['module']}: {kind}" if cell["module"] else kind
        cut = CutLedger(name=name, score=row["score"], readout=row["readout"], dtype=row["precision"], **sums)
    return NodeGroup(
        kind, cell["module"], torch.tensor([cell["relevance"]], dtype=dtype), layer=cell["layer"], ledger=cut
    )
