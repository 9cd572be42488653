"""The model as a function of its explained input alone, and the input that stands for "nothing there"."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..engine.forward import Run, without_cache
from ..engine.outcome import Outcome
from ..engine.reference import look_up_token
from ..errors import NotApplicable, UnknownName
from ..inputs.batch import Batch, copy_caches, find_moved, map_leaves, same_place
from ..inputs.hooks import hook_modules
from ..inputs.places import Captured, capture_inputs, find_explained, put_explained, start
from ..inputs.readouts import ScoreReading, join_readings
from ..rules import Books
from .parameters import BASELINES


@dataclass
class Function:
    """f(x) of one sample: `x` [copies, …] stands in for the explained input; one score per copy, for one target."""

    run: Run
    inputs: Captured
    read: Callable[[Any, Batch], Any]
    sequence_first: bool = False  # the model has positions before samples; here samples come first, as everywhere

    def __call__(self, x: Tensor) -> Tensor:
        try:
            out, widened = self.run_copies(x)
        except ValueError as error:
            if len(x) == 1:
                raise
            raise NotApplicable(
                f"this method runs {len(x)} changed copies of the input at once, and the model refuses them: {error} "
                "A classifier wants to know its padding for that: model.config.pad_token_id = tokenizer.pad_token_id."
            ) from error
        score: Tensor = self.read(out, widened).score
        return score

    def run_copies(self, x: Tensor) -> tuple[Any, Batch]:
        """The model's output for these copies, and the batch that they are."""
        batch, copies = self.run.batch, len(x)
        widened = repeat_sample(batch, copies)
        if batch.tensor is not None:
            args, kwargs = map_leaves(
                (batch.args, batch.kwargs), lambda t: x if t is batch.tensor else widen(t, copies)
            )
            return self.run.model(*args, **copy_caches(kwargs)), widened
        with standing_in(batch.places, x.transpose(0, 1) if self.sequence_first else x):
            kwargs = {**without_cache(self.run.model), **copy_caches(widened.kwargs)}
            return self.run.model(*widened.args, **kwargs), widened


def function_of(run: Run) -> tuple[Function, Any]:
    """The function of a run with one sample, and the reading of the unchanged input."""
    (function,), (reading,) = functions_of(run, [run.read])
    return function, reading


def functions_of(run: Run, readers: Sequence[Any]) -> tuple[list[Function], list[ScoreReading]]:
    """The same for several scores of one sample's prediction. All functions have the same inputs."""
    with torch.no_grad():
        out, inputs = plain_forward(run)
        if len(inputs) != 1:
            raise NotApplicable("this model looks its input up more than once; a perturbation method needs one place.")
        settled = [fix_target(read, out, run.batch) for read in readers]
        readings = [read(out, run.batch) for read in settled]
    first = positions_first(run.batch, inputs[0])
    captured = put_samples_first(inputs[0], first)
    return [Function(run, captured, read, first) for read in settled], readings


def fix_target(read: Any, out: Any, batch: Batch) -> Any:
    """The reader with its target fixed to what is predicted for the unchanged input, where it can be."""
    settle = getattr(read, "with_fixed_target", None)
    return read if settle is None else settle(out, batch)


def positions_first(batch: Batch, inputs: Captured) -> bool:
    """Whether the model turned its input round, as XLNet does: [positions, samples, …]."""
    shape = inputs.leaf.shape
    return batch.ids is not None and len(shape) > 2 and shape[0] == batch.ids.shape[1] != 1 and shape[1] == 1


def put_samples_first(inputs: Captured, turned: bool) -> Captured:
    return replace(inputs, leaf=inputs.leaf.transpose(0, 1)) if turned else inputs


def plain_forward(run: Run) -> tuple[Any, list[Captured]]:
    batch = run.batch
    if batch.tensor is not None:
        return run.model(*batch.args, **copy_caches(batch.kwargs)), [Captured(batch.tensor.detach(), None)]
    with capture_inputs(batch.places) as inputs:
        out = run.model(*batch.args, **{**without_cache(run.model), **copy_caches(batch.kwargs)})
    return out, inputs


@contextmanager
def standing_in(places: list[nn.Module], x: Tensor) -> Iterator[None]:
    """The output of `places` is `x`, on this thread."""

    def swap(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        inner = start(x) if x.requires_grad and x.is_leaf else x
        return put_explained(output, find_explained(output), inner)

    with hook_modules(places, after=swap):
        yield


def repeat_sample(batch: Batch, copies: int) -> Batch:
    """The one sample of a batch, `copies` times."""
    args, kwargs = map_leaves((batch.args, batch.kwargs), lambda t: widen(t, copies))
    same = {"ids": widen(batch.ids, copies), "real": widen(batch.real, copies)}
    own = None if batch.tensor is None else same_place(batch, (args, kwargs), batch.tensor)
    return replace(
        batch, samples=copies, items=list(batch.items) * copies, args=args, kwargs=kwargs, tensor=own, **same
    )


def widen(value: Any, copies: int) -> Any:
    if isinstance(value, Tensor) and value.dim() > 0 and len(value) == 1:
        return value.expand(copies, *value.shape[1:])
    if hasattr(value, "batch_repeat_interleave"):  # a cache of keys and values
        value = copy_caches(value)
        value.batch_repeat_interleave(copies)
    return value


def choose_token(run: Run, baseline: str | None) -> int | None:
    """The token that replaces another, by the name of a baseline; None for zeros."""
    if baseline is None or baseline == "zero":
        return None if baseline == "zero" else run.nothing
    if baseline not in BASELINES:
        raise UnknownName("baseline", baseline, BASELINES)
    token = run.nothing if baseline == "unk" else run.special.get(baseline)
    if token is None or run.batch.ids is None:
        tried = "[UNK], [MASK] or padding" if baseline == "unk" else baseline
        raise NotApplicable(f"there is no {tried} token to put in a token's place: choose 'zero'.")
    return token


def nothing(run: Run, inputs: Captured, token: int | None) -> Tensor:
    """The baseline: every token replaced by `token` at its place; zero where there are no tokens."""
    batch = run.batch
    if batch.ids is None or token is None or not batch.places:
        return torch.zeros_like(inputs.leaf)
    found = look_up_token(run, token)[0]
    return put_samples_first(found, positions_first(batch, found)).leaf.detach()


def positions_mask(f: Function, x: Tensor) -> Tensor:
    """Features are positions, or patches of an image: all the numbers of one go together."""
    patches = f.run.batch.patches
    if patches is not None:
        return patches.index.to(x.device).expand_as(x[:1]).contiguous()
    count = x.shape[1]
    return torch.arange(count, device=x.device).reshape(1, count, *[1] * (x.dim() - 2)).expand_as(x[:1]).contiguous()


def per_feature(f: Function, attribution: Tensor) -> Tensor:
    """A position's value stands at each of its numbers: spread evenly, so that the sum over them is the value."""
    patches = f.run.batch.patches
    if patches is not None:
        return patches.spread(attribution, positions_mask(f, attribution))
    return attribution / attribution[0, 0].numel()


def split_samples(run: Run) -> Iterator[Run]:
    """One run per sample, without padding."""
    batch = run.batch
    if batch.alone is not None:
        yield from (replace(run, batch=batch.alone(i)) for i in range(batch.samples))
        return
    for i in range(batch.samples):
        keep = None if batch.real is None else batch.real[i]

        def cut(value: Any, i: int = i, keep: Tensor | None = keep) -> Any:
            if not isinstance(value, Tensor) or value.dim() == 0 or len(value) != batch.samples:
                return value
            row = value[i : i + 1]
            same = keep is not None and row.dim() > 1 and row.shape[1] == len(keep)
            return row[:, keep] if same else row

        own = None if batch.tensor is None else cut(batch.tensor)
        args, kwargs = map_leaves((batch.args, batch.kwargs), partial(_own_or_cut, batch.tensor, own, cut))
        ids = find_moved(batch, (args, kwargs), cut)
        kept = {"args": args, "kwargs": kwargs, "ids": ids, "real": cut(batch.real), "tensor": own}
        yield replace(run, batch=replace(batch, samples=1, items=[batch.items[i]], **kept))


def _own_or_cut(explained: Tensor | None, own: Tensor | None, cut: Callable[[Any], Any], value: Any) -> Any:
    return own if value is explained else cut(value)


def join_found(readings: list[ScoreReading], positions: list[Tensor], constants: dict[str, list[float]]) -> Outcome:
    """Samples that were explained one by one, as one batch: a number per position, and lines of the ledger."""
    score = torch.cat([reading.score.detach().double().cpu() for reading in readings])
    reading, books = join_readings(readings, score), Books(len(score))
    return Outcome(reading, score, torch.zeros_like(score), [], [], books, {}, positions=positions, constants=constants)
