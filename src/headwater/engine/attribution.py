"""From relevance at the captured inputs to relevance of the tokens that the user knows."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError, ModelError
from ..inputs.batch import Batch, Item
from ..inputs.patches import PatchGrid
from ..inputs.places import Captured
from ..inputs.protocol import Link
from ..rules.sources import wide
from .outcome import Fetched, Outcome


@dataclass(frozen=True)
class Attributed:
    """One sample's share: `relevance` of its tokens, and what belongs to tokens it did not bring."""

    relevance: Tensor
    tokens: tuple[str, ...]
    segments: tuple[str, ...] = ()
    constants: dict[str, float] = field(default_factory=dict)
    untold: dict[str, float] = field(default_factory=dict)  # of words of the text, nobody can say of which
    links: tuple[Link, ...] | None = None
    pixels: Tensor | None = None


def attribute(batch: Batch, outcome: Outcome) -> list[Attributed]:
    """Each sample's own relevance, padding left out, and that of links between its items where a method gives it."""
    found = of_items(batch, outcome)
    if batch.lookups and outcome.beside and outcome.positions is None:
        return [with_ways_around(part, batch, outcome, i) for i, part in enumerate(found)]
    if batch.beside is None or not outcome.beside or outcome.positions is not None:
        return found
    return [with_links(part, batch, outcome, i) for i, part in enumerate(found)]


def with_links(part: Attributed, batch: Batch, outcome: Outcome, i: int) -> Attributed:
    """Adds the relevance of links between items. Their sum is one line of the ledger."""
    assert batch.beside is not None
    links = tuple(
        link
        for one, gradient in outcome.beside
        for link in batch.beside.relevance(i, one.leaf[i].detach().cpu(), gradient[i].cpu())
    )
    total = sum(amount for _, _, amount in links)
    return replace(part, links=links, constants={**part.constants, batch.beside.name: total})


def with_ways_around(part: Attributed, batch: Batch, outcome: Outcome, i: int) -> Attributed:
    """What words bring by ways around the explained module, as one line of the ledger."""
    products = [(one, wide(one.leaf.detach()) * wide(gradient)) for one, gradient in outcome.beside]
    rows = [positions(batch, one, product, outcome.fetched)[0][i] for one, product in products]
    total = sum(float(row.double().sum()) for row in rows)
    line = {f"words that go around {batch.at}": total} if total else {}
    return replace(part, constants={**part.constants, **line})


def of_items(batch: Batch, outcome: Outcome) -> list[Attributed]:
    if batch.patches is not None:
        found = outcome.relevance[0] if outcome.positions is None else outcome.positions
        return [_of_image(batch.patches, one.cpu()) for one in found]
    if outcome.positions is not None:
        return [_of_positions(row, batch.items[i]) for i, row in enumerate(outcome.positions)]
    if batch.tensor is not None:
        return [Attributed(r, ()) for r in outcome.relevance[0].cpu()]
    rows = [positions(batch, c, r, outcome.fetched) for c, r in zip(outcome.captured, outcome.relevance, strict=True)]
    if batch.ids is None and batch.real is None:
        return [_calls([rows[k][0][i] for k in range(len(rows))]) for i in range(batch.samples)]
    rows = with_prefix(batch, rows)
    decoder = bool(batch.lookups) and any(how == "prefix" for _, how in rows)  # one of its layers was asked for
    if not decoder and not any(how in OWN for _, how in rows):
        raise ModelError("the model looks up other tokens than those of the text, so it cannot be told which is which.")
    real = outcome.fetched.copy_of(real_of(batch))
    whole, each = real.all(1).tolist(), [(row.unbind(), how) for row, how in rows]
    return [_sample(batch, i, each, own, whole[i]) for i, own in enumerate(real.unbind())]


TARGET = "target"  # the segment of what a decoder is given
OWN = ("own", "sequence first", "padded", "shifted", "rolled")


def _calls(parts: list[Tensor]) -> Attributed:
    """The outputs of a module, one call after the other."""
    joined = torch.cat(parts)
    tokens = tuple(str(i) for part in parts for i in range(len(part)))
    segments = tuple(f"call {k + 1}" for k, part in enumerate(parts) for _ in part) if len(parts) > 1 else ()
    return Attributed(joined, tokens, segments)


def with_prefix(batch: Batch, rows: list[tuple[Tensor, str]]) -> list[tuple[Tensor, str]]:
    """A prefix that happens to be the source's own tokens is still the prefix: the later lookup."""
    prefix = batch.kwargs.get("decoder_input_ids")
    own = [k for k, (_, how) in enumerate(rows) if how == "own"]
    if isinstance(prefix, Tensor) and len(own) > 1 and not any(how == "prefix" for _, how in rows):
        rows[own[-1]] = (rows[own[-1]][0], "prefix")
    return rows


def _of_positions(row: Tensor, item: Item) -> Attributed:
    tokens = item.tokens or tuple(str(i) for i in range(len(row)))
    return Attributed(row, tokens)


def _of_image(patches: PatchGrid, row: Tensor) -> Attributed:
    """Pixels are summed over the patches; from some methods patches are all there is."""
    if row.dim() == 1:
        return Attributed(row, patches.cells.names)
    row = row.float() if row.dtype in (torch.float16, torch.bfloat16) else row
    return Attributed(patches.sums(row).to(row.dtype), patches.cells.names, pixels=row)


def positions(batch: Batch, captured: Captured, relevance: Tensor, fetched: Fetched) -> tuple[Tensor, str]:
    """Relevance as [samples, positions] in main memory, and how these positions belong to the text."""
    relevance = relevance.float() if relevance.dtype in (torch.float16, torch.bfloat16) else relevance
    if batch.lookups and batch.ids is not None and relevance.dim() > 3 and relevance.shape[-3:-1] == batch.ids.shape:
        relevance = relevance.flatten(0, -4).sum(0)  # a layer that has several streams, as Gemma 3n does
    per_position = fetched.sum_of(relevance)
    if batch.ids is None:
        return samples_first(per_position, batch.samples), "own"
    if batch.lookups and captured.ids is None:
        check_positions(batch, relevance)
    how = match_ids(batch, captured.ids, per_position.shape)
    turned = captured.ids is not None and tuple(per_position.shape) == tuple(captured.ids.T.shape) != captured.ids.shape
    return (per_position.T if turned or how == "sequence first" else per_position), how


def check_positions(batch: Batch, relevance: Tensor) -> None:
    """The output of a module that was chosen must have a row of features for every token."""
    assert batch.ids is not None
    rows = tuple(relevance.shape[:-1])
    if rows not in (tuple(batch.ids.shape), tuple(batch.ids.T.shape)):
        raise InputError(
            f"the output of {batch.at!r} has the shape {tuple(relevance.shape)}, which is not one row of features per "
            f"token of {batch.samples} texts with {batch.ids.shape[1]} tokens. Choose a layer whose output has tokens."
        )


def samples_first(per_position: Tensor, samples: int) -> Tensor:
    if per_position.dim() == 2 and per_position.shape[0] != samples and per_position.shape[1] == samples:
        return per_position.T
    return per_position.reshape(samples, -1)


def match_ids(batch: Batch, ids: Tensor | None, shape: Any) -> str:
    """How looked-up ids relate to the text's own: the same, transposed, shifted by one (a decoder's), or others."""
    assert batch.ids is not None
    own = batch.ids
    if ids is not None:
        if ids is own or (ids.shape == own.shape and torch.equal(ids, own)):
            return "own"
        if ids.dim() == 2 and ids.T.shape == own.shape and torch.equal(ids.T, own):
            return "sequence first"
        prefix = batch.kwargs.get("decoder_input_ids")
        if isinstance(prefix, Tensor) and ids.shape == prefix.shape and torch.equal(ids, prefix):
            return "prefix"
        if ids.dim() == 2 and ids.shape[1] > own.shape[1] and torch.equal(ids[:, : own.shape[1]], own):
            return "padded"
        if ids.shape == own.shape and bool(((ids[:, 1:] == own[:, :-1]) | ~real_of(batch)[:, 1:]).all()):
            return "rolled" if is_rolled(batch, ids) else "shifted" if is_start(batch, ids) else "other"
        return "other"
    if tuple(shape) == tuple(own.shape):
        return "own"
    return "sequence first" if tuple(shape) == tuple(own.T.shape) else "other"


def is_rolled(batch: Batch, ids: Tensor) -> bool:
    """Whether the first of the shifted ids is the text's own last one, and not the token that a decoder starts with."""
    if any(bool((ids[:, 0] == start).all()) for start in batch.starts):
        return False
    assert batch.ids is not None
    real = real_of(batch)
    last = (real * torch.arange(1, real.shape[1] + 1, device=real.device)).argmax(1, keepdim=True)
    return torch.equal(ids[:, :1], batch.ids.gather(1, last))


def is_start(batch: Batch, ids: Tensor) -> bool:
    """Whether the first of the shifted ids is a decoder's start token: none of the text, where it is unknown."""
    assert batch.ids is not None
    known = any(bool((ids[:, 0] == start).all()) for start in batch.starts)
    return known or not bool((batch.ids == ids[:, :1]).any())


def real_of(batch: Batch) -> Tensor:
    if batch.real is not None:
        return batch.real
    assert batch.ids is not None
    return torch.ones_like(batch.ids, dtype=torch.bool)


def _sample(batch: Batch, i: int, rows: list[tuple[tuple[Tensor, ...], str]], real: Tensor, whole: bool) -> Attributed:
    """`real`: its positions that are no padding; `whole`: all are."""
    item: Item = batch.items[i]
    if whole and len(rows) == 1 and rows[0][1] in ("own", "sequence first"):
        kept = rows[0][0][i].clone()
        return Attributed(kept, item.tokens or tuple(str(k) for k in range(len(kept))))
    own = torch.zeros(len(real)).to(rows[0][0][i])
    prefix: list[Tensor] = []
    constants: dict[str, float] = {}
    untold: dict[str, float] = {}
    for relevance, how in rows:
        row = relevance[i]
        if how in ("own", "sequence first"):
            own = own + row
        elif how == "shifted":
            own = own + torch.cat([row[1:], row.new_zeros(1)])
            constants["decoder start token"] = constants.get("decoder start token", 0.0) + float(row[0])
        elif how == "rolled":
            own = own + torch.cat([row[1:], row.new_zeros(1)])
            own[int(real.nonzero()[-1])] += row[0]
        elif how == "padded":
            own = own + row[: len(real)]
            constants["padding"] = constants.get("padding", 0.0) + float(row[len(real) :].double().sum())
        elif how == "prefix":
            prefix.append(row)
        elif how == "other":
            untold["words in another order"] = untold.get("words in another order", 0.0) + float(row.double().sum())
        else:
            raise LookupError(f"rows of the kind {how!r} belong to no position")
    padding = float(own[~real].double().sum())
    if padding:
        constants["padding"] = constants.get("padding", 0.0) + padding
    kept = own[real]
    tokens = item.tokens or tuple(str(k) for k in range(len(kept)))
    if not prefix:
        return Attributed(kept, tokens, (), constants, untold)
    target = torch.stack(prefix).sum(0)
    ids = batch.kwargs["decoder_input_ids"][i].tolist()
    segments = ("source",) * len(kept) + (TARGET,) * len(target)
    names = tokens + tuple(str(t) for t in ids)
    return Attributed(torch.cat([kept, target]), names, segments, constants, untold)
