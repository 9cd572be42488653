"""The paper's baselines that look at attention: a-last, rollout, a-flow, and GAE, which also asks for its gradient.

Computed as the paper's authors did. Maps are means over heads; relevance is summed over all queries, not read off the
class token's row, except in GAE.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ..engine.forward import Run
from ..engine.outcome import Outcome
from ..engine.sharing import plain_pass
from ..errors import NotApplicable, require_extra
from ..inputs.patches import PatchGrid
from ..rules import Books
from ..rules.maps import AttentionMap
from .registry import Method, register

Maps = list[Tensor]  # a matrix per layer, [queries, keys], of one sample's real positions


OnMaps = Callable[[Maps], Tensor]


def on_maps(
    name: str, summary: str, *, gradient: bool = False, pooled: OnMaps | None = None
) -> Callable[[OnMaps], Method]:
    """Register a function of one sample's maps, first layer first, that gives one number per position.

    `pooled` takes its place in models that are known to read their answer off the mean of all positions.
    """

    def decorate(function: OnMaps) -> Method:
        def run(job: Run) -> Outcome:
            outcome, maps = read_attention(job, name, gradient)
            chosen = pooled if pooled is not None and reads_all(job, maps, gradient) else function
            rows = [chosen([layer[i] for layer in maps]) for i in range(job.batch.samples)]
            return align_positions(job, outcome, rows)

        return register(Method(name, summary, run, group="attention"))

    return decorate


def reads_all(job: Run, maps: list[list[Tensor]], gradient: bool) -> bool:
    """Whether the answer is read off the mean of all positions.

    Of an image model nobody says it, but the gradient does: in the last layer it reaches the queries that are read.
    """
    if job.batch.patches is None or not gradient:
        return job.batch.pooled
    return all(int((matrix.sum(-1) > 0).sum()) > len(matrix) // 2 for matrix in maps[-1])


def align_positions(job: Run, outcome: Outcome, rows: list[Tensor]) -> Outcome:
    """Positions that the model put before the items are lines of the ledger."""
    before, patches = job.batch.before, job.batch.patches
    if patches is not None:
        before = tuple(f"position {k}, no patch" for k in range(count_leading(patches, len(rows[0]))))
    positions = [row[len(before) :] for row in rows]
    if patches is not None:
        positions = [patches.of_positions(row) for row in positions]
    lines = {n: [float(r[k]) for r in rows] for k, n in enumerate(before)}
    return replace(outcome, constants={**outcome.constants, **lines}, positions=positions)


def count_leading(patches: PatchGrid, positions: int) -> int:
    """How many positions stand before those of an image's patches; a map of other positions cannot be drawn."""
    if patches.own is None or patches.before is None or patches.before + len(patches.own) != positions:
        raise NotApplicable(
            f"the model's attention has {positions} positions, and it cannot be told which patch of the image each is: "
            "it attends within windows, or does not cut its input into patches."
        )
    if not patches.nested:
        own = patches.own.cell
        raise NotApplicable(f"attention is between patches of {own[0]} by {own[1]} pixels; ask for a multiple of it.")
    return patches.before


def read_attention(job: Run, name: str, gradient: bool) -> tuple[Outcome, list[list[Tensor]]]:
    """Every layer's map for every sample: attention, or the positive part of attention times its gradient."""
    whole, found = plain_pass(job, backward=gradient)
    # What biases took is Gradient x Input's, and not in these maps.
    outcome = replace(whole, books=Books(job.batch.samples), readout=torch.zeros_like(whole.readout))
    if outcome.beside and job.batch.lookups:
        raise NotApplicable(f"{name!r} follows one stack, and words go around {job.batch.at!r} in this model.")
    if len(outcome.captured) > 1:
        raise NotApplicable(f"{name!r} follows one stack of self-attention; this model looks its input up twice.")
    maps = [by_sample(one, job.batch.samples, gradient) for one in found]
    if not maps:
        where = f" behind {job.batch.at!r}" if job.batch.lookups else ""
        raise NotApplicable(f"{name!r} reads attention maps, and this model has none{where} that can be seen.")
    check_one_stack(maps, name)
    return outcome, [crop(layer, real_positions(job, maps)) for layer in maps]


def by_sample(one: AttentionMap, samples: int, gradient: bool) -> Tensor:
    """[samples, queries, keys], the mean over heads."""
    weights = one.weights
    if gradient:
        slope = one.weights_gradient
        weights = torch.zeros_like(weights) if slope is None else (weights * slope).clamp(min=0)
    return weights.reshape(samples, -1, *weights.shape[-2:]).mean(1).float()


def check_one_stack(maps: Sequence[Tensor], name: str) -> None:
    shapes = {tuple(layer.shape[-2:]) for layer in maps}
    if len(shapes) != 1 or next(iter(shapes))[0] != next(iter(shapes))[1]:
        raise NotApplicable(
            f"{name!r} follows one stack of self-attention; this model has attention of shapes {sorted(shapes)}."
        )


def real_positions(job: Run, maps: Sequence[Tensor]) -> Tensor:
    """[samples, positions]: which are no padding."""
    real = job.batch.real
    length = maps[0].shape[-1]
    before = len(job.batch.before)
    if real is not None and real.shape[1] + before == length:
        return torch.nn.functional.pad(real, (before, 0), value=True).cpu()
    return torch.ones(job.batch.samples, length, dtype=torch.bool)


def crop(layer: Tensor, real: Tensor) -> list[Tensor]:
    return [matrix.cpu()[keep][:, keep] for matrix, keep in zip(layer, real, strict=True)]


def with_residual(layer: Tensor) -> Tensor:
    """A + I, rows normalised: half of a token stays where it is."""
    mixed = layer + torch.eye(len(layer))
    return mixed / mixed.sum(-1, keepdim=True)


@on_maps("a-last", "the last layer's attention, mean over heads, summed over queries")
def last(maps: Maps) -> Tensor:
    return maps[-1].sum(0)


@on_maps(
    "a-mean",
    "attention, mean over layers and heads, of the position that answers",
    pooled=lambda maps: torch.stack(maps).mean((0, 1)),
)
def mean(maps: Maps) -> Tensor:
    return torch.stack(maps).mean(0)[read_row(maps)]


@on_maps("rollout", "attention rollout (Abnar & Zuidema 2020): product over layers of A + I, summed over queries")
def rollout(maps: Maps) -> Tensor:
    return roll_out(maps).sum(0)


def roll_out(maps: Maps) -> Tensor:
    total = torch.eye(len(maps[0]))
    for layer in maps:
        total = with_residual(layer) @ total
    return total


@on_maps("a-flow", "attention flow (Abnar & Zuidema 2020): maximum flow from every top node to every input")
def flow(maps: Maps) -> Tensor:
    """Normalised for each top node, summed over them."""
    flows = flow_matrix([with_residual(layer) for layer in maps])
    return (flows / flows.sum(1, keepdim=True)).sum(0)


def flow_matrix(layers: Maps) -> Tensor:
    """Maximum flow [top node, input] through the layers, edges as wide as the matrices' entries."""
    with require_extra("'a-flow'", "flow"):
        import numpy as np
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import maximum_flow
    size, depth = len(layers[0]), len(layers)
    scale = 2**30  # scipy's capacities are whole numbers: exact to 1e-9 for edges of at most 1
    rows, columns, capacity = [], [], []
    for level, matrix in enumerate(layers):  # edges go from a layer's queries down to its keys
        query, key = np.nonzero(matrix.numpy())
        rows.append(((level + 1) * size + query).astype(np.int32))  # scipy before 1.15 takes no wider ones
        columns.append((level * size + key).astype(np.int32))
        capacity.append(np.rint(matrix.numpy()[query, key].astype(np.float64) * scale).astype(np.int32))
    nodes = (depth + 1) * size
    entries = (np.concatenate(capacity), (np.concatenate(rows), np.concatenate(columns)))
    graph = csr_array(entries, shape=(nodes, nodes), dtype=np.int32)
    found = torch.zeros(size, size, dtype=torch.float64)
    for top in range(size):
        for bottom in range(size):
            found[top, bottom] = maximum_flow(graph, depth * size + top, bottom).flow_value / scale
    return found.float()


def gae_of_all(maps: Maps) -> Tensor:
    """The mean over rows, each without its own entry."""
    return accumulate_layers(maps).fill_diagonal_(0).mean(0)


@on_maps(
    "gae",
    "generic attention explainability (Chefer et al. 2021): R + relu(A * dA) R",
    gradient=True,
    pooled=gae_of_all,
)
def gae(maps: Maps) -> Tensor:
    row = read_row(maps)
    relevance = accumulate_layers(maps)[row].clone()
    relevance[row] = 0
    return relevance


def accumulate_layers(maps: Maps) -> Tensor:
    total = torch.eye(len(maps[0]))
    for layer in maps:
        total = total + layer @ total
    return total


@on_maps(
    "gae-rollout",
    "the paper's SST-2 code for GAE: rollout of relu(A * dA), summed over queries",
    gradient=True,
    pooled=lambda maps: roll_out(maps).sum(0),
)
def gae_rollout(maps: Maps) -> Tensor:
    total = roll_out(maps)
    total[0, 0] = 0
    return total.sum(0)


def read_row(maps: Maps) -> int:
    """The row the score is read off: the first (class) token's, or the last one's where no query looks ahead."""
    causal = all(bool((layer.triu(1) == 0).all()) for layer in maps)
    return len(maps[0]) - 1 if causal else 0
