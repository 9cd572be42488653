"""The reference that a prediction is compared with: the same input with nothing in it, and how it is looked up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..inputs.batch import list_leaves, map_leaves
from ..inputs.hooks import stop_after
from ..inputs.places import Captured, capture_inputs
from ..inputs.text import encoder_decoder
from ..rules.difference import ReferenceValues
from .forward import Read, Run, model_arguments, tables_of


@dataclass(frozen=True)
class Reference:
    """The explained inputs for the reference, and what of the score is linear in the outputs there, [samples]."""

    inputs: list[Tensor]
    score: Tensor


def read_reference(read: Read, values: ReferenceValues | None) -> Reference | None:
    return None if values is None else Reference(values.inputs, read.linear_part_at(values.ends))


def find_references(run: Run) -> list[Tensor]:
    """The explained inputs in the run of the reference, in the order in which they enter.

    In the reference every token is [UNK] (else [MASK], else padding), and every number of an image 0. Where a model has
    neither, the explained input itself is 0. (Embeddings of 0 are no reference for tokens: some models divide by their
    size.)
    """
    batch = run.batch
    if batch.tensor is not None:
        return [torch.zeros_like(batch.tensor)]
    everywhere = replace(run, batch=replace(batch, places=[*batch.places, *tables_of(run)]))
    if batch.ids_argument is not None:
        return [one.leaf for one in look_up_words(everywhere, empty_token(run))]
    return look_up_zeros(everywhere)


def empty_token(run: Run) -> int:
    """The tokenizer's token for nothing; without a tokenizer one that the configuration names, else the first."""
    config = getattr(run.model, "config", None)
    named = [getattr(config, f"{kind}_token_id", None) for kind in ("pad", "eos", "bos")]
    return next((token for token in (run.nothing, *named) if isinstance(token, int) and token >= 0), 0)


def look_up_words(run: Run, token: int) -> list[Captured]:
    whole = looks_up_later(run)
    try:
        return look_up_token(run, token, whole=whole)
    except (ValueError, IndexError, RuntimeError):  # it asks for its last token, as BART's classifiers do
        return look_up_token(run, token, whole=whole, ends=True)


def looks_up_later(run: Run) -> bool:
    """Whether a decoder looks words up after an encoder did, or layers have tables of their own."""
    return bool(encoder_decoder(run.model) or tables_of(run))


def look_up_token(run: Run, token: int, *, whole: bool = False, ends: bool = False) -> list[Captured]:
    """The explained inputs of a batch in which every token but padding is `token`, as the model has them.

    `whole`: the model is run to its end, for it looks words up in several places. `ends`: the first and the last token
    stay, for some models look for them.
    """
    batch = run.batch
    assert batch.ids is not None
    replaced = torch.ones_like(batch.ids, dtype=torch.bool)
    if batch.real is not None and batch.real.shape == batch.ids.shape:
        replaced = batch.real.to(batch.ids.device) != 0  # some models number positions by padding
    if ends:
        count = replaced.cumsum(1)
        replaced = replaced & (count > 1) & (count < count[:, -1:])
    ids = torch.where(replaced, token, batch.ids)
    return capture_run(replace(run, batch=batch.with_ids(ids)), whole)


def look_up_zeros(run: Run) -> list[Tensor]:
    """The inputs made of numbers that are all 0; without any, inputs of 0."""
    batch = run.batch
    given = [leaf for leaf in list_leaves((batch.args, batch.kwargs)) if is_number(leaf)]
    args, kwargs = map_leaves(
        (batch.args, batch.kwargs), lambda leaf: torch.zeros_like(leaf) if is_number(leaf) else leaf
    )
    found = capture_run(replace(run, batch=replace(batch, args=args, kwargs=kwargs)), looks_up_later(run))
    return [one.leaf if given else torch.zeros_like(one.leaf) for one in found]


def is_number(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()


def capture_run(run: Run, whole: bool) -> list[Captured]:
    """The explained inputs as they enter the model, which is left then unless it is to be run to its end."""
    places = run.batch.places
    with torch.no_grad(), capture_inputs(places) as found, stop_after([] if whole else places):
        run.model(*run.batch.args, **model_arguments(run))
    for one in found:
        one.leaf.requires_grad_(False)
    return found
