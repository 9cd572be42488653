"""Explanations of one shape, recorded once on a graphics card and replayed from then on (CUDA graphs).

For a short input, Python takes longer to launch the kernels than the card takes to run them. Which kernels are launched
depends only on the model, the rules and the shapes. So they are captured once: the forward pass as one CUDA graph, the
backward pass as another. The score is read between the two as in any run.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from ..engine.checks import check_met, check_visible, settle_choices
from ..engine.compiled import run_eagerly
from ..engine.finite import check_finite
from ..engine.forward import Demand, Read, Run, asks_links, forward, is_unwatched, read_score, side_modules, tables_of
from ..engine.outcome import FetchingOutcome, Outcome
from ..engine.propagate import agree, outcome_of, propagate
from ..engine.replay import ACTIVE
from ..inputs.batch import Batch, list_leaves
from ..inputs.places import Captured
from ..inputs.restoring import outside_inference, undone
from ..inputs.text import encoder_decoder
from ..inputs.walking import named_modules, named_weights
from ..rules import Books, Scope
from ..traces.capture import Body, CapturedCall, refuse_replay

SHAPES = 4
MASK = "attention_mask"


@contextmanager
def recorded(shapes: int = SHAPES) -> Iterator[Recorder]:
    """Inside, explanations on a graphics card are recorded when a shape comes for the second time, and then replayed.

    A recording keeps the memory that one explanation needs. All are given back at the end, and earlier where memory is
    short. On a processor nothing changes. Nor for a model that every explanation copies first, into another dtype than
    its own: one in half precision needs `dtype=` with its own.

    Args:
        shapes: so many recordings are kept, those that were used last.

    Returns:
        A context with a `Recorder`; its `refused` says why a shape is not replayed.

    Raises:
        Nothing of its own. What cannot be recorded is computed as ever.

    Example:
        >>> with hw.recorded() as recorder:
        ...     e = hw.explain("headwater/sentiment", "a fine film")
        >>> e.target, recorder.replays
        ('positive', 0)
    """
    recorder = Recorder(shapes)
    with undone(recorder.release), recorder.at_work():
        yield recorder


@dataclass(eq=False)
class CaptureBlock:
    """Held by the block of `recorded` alone. An interrupt that ends the block frees it: no recorder is active then."""

    recorder: Recorder


@dataclass
class Recorder:
    """Keeps captured explanations by the key of their run. `call` captures work as a graph; tests pass a plain call."""

    shapes: int = SHAPES
    call: Callable[[Body, Any], Body] | None = None
    seen: set[Any] = field(default_factory=set)
    captured_runs: dict[Any, CapturedExplanation] = field(default_factory=dict)
    refused: dict[Any, str] = field(default_factory=dict)
    replays: int = 0

    @contextmanager
    def at_work(self) -> Iterator[None]:
        block = CaptureBlock(self)
        with undone(partial(ACTIVE.set, ACTIVE.get())):
            ACTIVE.set(weakref.ref(block))
            yield

    def takes(self, run: Run, demand: Demand) -> bool:
        """Whether a run can be captured: it is on a card, and nothing watches it."""
        usual = is_unwatched(run) and "difference" not in demand.rules and run.inside is None
        return usual and demand.backward and bool(run.batch.places) and (run_on_card(run) or self.call is not None)

    def explain_run(self, run: Run, demand: Demand) -> Outcome:
        """Replayed where there is a recording. Where memory is short, all are given back, and it runs again."""
        try:
            return self.run_or_replay(run, demand)
        except torch.OutOfMemoryError:
            if not self.captured_runs:
                raise
        self.release()
        return self.run_or_replay(run, demand)

    def run_or_replay(self, run: Run, demand: Demand) -> Outcome:
        key = key_of(run, demand)
        if key in self.captured_runs:
            self.captured_runs[key] = self.captured_runs.pop(key)  # the last that was used goes last
            return self.replay(self.captured_runs[key], run)
        outcome = propagate(run, demand)
        if key in self.seen and key not in self.refused:
            self.record(key, run, demand, outcome)
        self.seen.add(key)
        return outcome

    def replay(self, captured_run: CapturedExplanation, run: Run) -> Outcome:
        self.replays += 1
        return captured_run.explain_run(run)

    def record(self, key: Any, run: Run, demand: Demand, expected: Outcome) -> None:
        """Captures a run. It is kept only if its replay agrees with the plain run."""
        self.release(keep=self.shapes - 1)
        for more in ({"past_key_values": PassedOn()}, {}) if takes_cache(run) else ({},):
            try:
                captured_run, found = self.capture(run, demand, more)
            except torch.OutOfMemoryError:
                self.refused[key] = "it cannot be recorded: memory is too little for one recording"
                return
            except (RuntimeError, AttributeError, TypeError) as error:  # it asks the card for a number, or us for more
                self.refused[key] = f"it cannot be recorded: {describe_first_error(error)}"
                continue
            if agree(found, expected):
                self.captured_runs[key] = captured_run
                self.refused.pop(key, None)
                return
            captured_run.release()
            self.refused[key] = "replayed, it does not say what it says otherwise"

    def capture(self, run: Run, demand: Demand, more: Mapping[str, Any]) -> tuple[CapturedExplanation, Outcome]:
        """A recording and what it says. Where memory is short, all others are given back for it."""
        try:
            return self.capture_once(run, demand, more)
        except torch.OutOfMemoryError:
            if not self.captured_runs:
                raise
        self.release()
        return self.capture_once(run, demand, more)

    def capture_once(self, run: Run, demand: Demand, more: Mapping[str, Any]) -> tuple[CapturedExplanation, Outcome]:
        captured_run = CapturedExplanation(run, demand, self.call or CapturedCall, more)
        try:
            return captured_run, captured_run.explain_run(run)
        except BaseException:
            captured_run.release()
            raise

    def release(self, keep: int = 0) -> None:
        """Gives recordings back, those that were used longest ago first, until no more than `keep` are left."""
        given_back = False
        while len(self.captured_runs) > max(keep, 0):
            self.captured_runs.pop(next(iter(self.captured_runs))).release()
            given_back = True
        if given_back and torch.cuda.is_initialized():
            torch.cuda.empty_cache()  # a graph's memory is its own: no other work could use it


class CapturedExplanation:
    """One captured explanation: the forward graph, the score read in Python, the backward graph."""

    def __init__(self, run: Run, demand: Demand, call: Callable[[Body, Any], Body], more: Mapping[str, Any]) -> None:
        self.demand = demand
        self.call = call
        batch = copy_arguments(run.batch)
        self.run: Run = replace(run, batch=replace(batch, kwargs={**batch.kwargs, **more}))
        self.pool: tuple[int, int] | None = torch.cuda.graph_pool_handle() if run_on_card(run) else None
        self.forwards: Body = call(self._forwards, self.pool)
        self.backwards: Body | None = None
        self.way: ForwardState | None = None
        self.places: list[int] = []  # of the outputs that the score reads
        self.seeds: list[Tensor] = []

    def explain_run(self, run: Run) -> Outcome:
        for ours, theirs in zip(tensors_of(self.run.batch), tensors_of(run.batch), strict=True):
            ours.copy_(theirs)
        with outside_inference(), torch.enable_grad(), run_eagerly():
            self.way = way = self.forwards()
            read = read_score(run, way.out)
            if self.backwards is None:
                self._begin(read, way)
            if [way.place(end) for end in read.ends] != self.places:
                raise RuntimeError("the score reads other outputs than it did")
            for seed, gradient in zip(self.seeds, read.gradients(), strict=True):
                seed.copy_(gradient)
            assert self.backwards is not None
            gradients = self.backwards()
            linear = read.linear_part()
        outcome = outcome_of(read, linear, way.inputs, gradients, way.books.copy(), way.scope)
        own = [gradient.clone() for gradient in outcome.gradients]  # the next replay writes over the graph's memory
        outcome = FetchingOutcome(replace(outcome, score=outcome.score.clone(), gradients=own)).wait()
        check_finite(run, self.demand, outcome)
        return outcome

    def release(self) -> None:
        """Frees the graphs and their memory. The parts hold each other, so that forgetting the whole frees nothing."""
        for part in (self.forwards, self.backwards):
            if isinstance(part, CapturedCall):
                part.release()
        self.forwards, self.backwards, self.way, self.seeds = refuse_replay, None, None, []

    def _begin(self, read: Read, way: ForwardState) -> None:
        check_visible(read.ends, self.demand, way.scope)
        check_met(way.scope, self.demand)
        if way.books.needs_probe:
            raise RuntimeError("shapes do not tell the samples apart, so that further passes are needed")
        self.places = [way.place(end) for end in read.ends]
        self.seeds = [torch.zeros_like(end) for end in read.ends]
        self.backwards = self.call(self._backwards, self.pool)

    def _forwards(self) -> ForwardState:
        run, books = self.run, Books(self.run.batch.samples, self.run.batch.length)
        weights, modules = named_weights(run.model), {id(module): name for name, module in named_modules(run.model)}
        scope = run.scope(self.demand.rules, books, {id(t): name for name, t in weights}, modules)
        with hide_capture():
            out, inputs = forward(run, scope)
        settle_choices(scope)
        if scope.cuts.unclear():
            raise RuntimeError("numbers of the input leave torch")
        scope.release()
        return ForwardState(out, inputs, books, scope)

    def _backwards(self) -> list[Tensor]:
        assert self.way is not None
        ends = [self.way.ends[place] for place in self.places]
        found = torch.autograd.grad(ends, [one.leaf for one in self.way.inputs], self.seeds, allow_unused=True)
        return [torch.zeros_like(one.leaf) if g is None else g for one, g in zip(self.way.inputs, found, strict=True)]


@dataclass
class ForwardState:
    """What the forward graph leaves for the score and for the backward graph."""

    out: Any
    inputs: list[Captured]
    books: Books
    scope: Scope

    @property
    def ends(self) -> list[Tensor]:
        values = list(self.out.values()) if isinstance(self.out, dict) else self.out
        return [tensor for tensor in list_leaves(values) if isinstance(tensor, Tensor)]

    def place(self, end: Tensor) -> int:
        return next(number for number, tensor in enumerate(self.ends) if tensor is end)


class PassedOn:
    """A cache of keys and values that keeps nothing.

    Without a cache, transformers looks at the positions to see whether several texts are packed into one row. Values
    cannot be read while a graph is captured; with a cache, transformers does not look.
    """

    is_compileable = False
    is_initialized = True
    is_sliding: tuple[bool, ...] = (False,)

    def update(self, keys: Tensor, values: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        return keys, values

    def get_seq_length(self, *_: Any) -> int:
        return 0

    def get_query_offset(self, *_: Any) -> int:
        return 0

    def get_mask_sizes(self, length: int | Tensor, *_: Any) -> tuple[int, int]:
        return (length if isinstance(length, int) else len(length)), 0

    def get_max_cache_shape(self, *_: Any) -> int:
        return -1


@contextmanager
def hide_capture() -> Iterator[None]:
    """Inside, a model that asks whether a CUDA graph is being captured is told no, so that it runs as it did before.

    transformers asks, and would then make a mask that the plain run did not have. This is safe: an operation that is
    not allowed during a capture still fails, and the result is compared with the plain run's.
    """
    with undone(partial(setattr, torch.cuda, "is_current_stream_capturing", torch.cuda.is_current_stream_capturing)):
        torch.cuda.is_current_stream_capturing = lambda: False
        yield


def describe_first_error(error: BaseException) -> str:
    """The message of the first error in the chain: the last one only says that the capture failed."""
    while error.__context__ is not None and str(error.__context__):  # the end of a generator says nothing
        error = error.__context__
    return str(error).strip().split("\n")[0]


def takes_cache(run: Run) -> bool:
    """Whether the model is a decoder without an encoder that accepts a cache."""
    return not encoder_decoder(run.model) and "past_key_values" in signature(run.model.forward).parameters


def key_of(run: Run, demand: Demand) -> Any:
    """What must be equal for a replay: weights by address, the rules, the explained place, shapes, plain arguments."""
    weights = hash(tuple(weight.data_ptr() for _, weight in named_weights(run.model)))
    batch = run.batch
    shapes = tuple((tuple(t.shape), t.dtype, t.device) for t in tensors_of(batch))
    side = side_modules(run, asks_links(run, demand))
    place = tuple(tuple(map(id, modules)) for modules in (batch.places, tables_of(run), side, batch.lookups))
    told = str(plain_arguments(batch))
    return (Model(run.model), weights, demand, place, shapes, is_unmasked(batch), batch.samples, told)


class Model:
    """A model as a key by its identity, which does not keep it alive."""

    def __init__(self, model: nn.Module) -> None:
        self.of: weakref.ref[nn.Module] = weakref.ref(model)
        self.number: int = id(model)

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Model) and self.of() is not None and self.of() is other.of()


def tensors_of(batch: Batch) -> list[Tensor]:
    """Every tensor among the arguments, in order. A mask that hides nothing is left out, as it is in the capture."""
    kwargs = {name: value for name, value in batch.kwargs.items() if name != MASK or not is_unmasked(batch)}
    return [tensor for tensor in list_leaves([batch.args, *kwargs.values()]) if isinstance(tensor, Tensor)]


def is_unmasked(batch: Batch) -> bool:
    """Whether the mask hides nothing. It is then left out, so that the model can use attention without a mask."""
    mask = batch.kwargs.get(MASK)
    return not isinstance(mask, Tensor) or bool(mask.bool().all())


def plain_arguments(batch: Batch) -> Any:
    return sorted((name, value) for name, value in batch.kwargs.items() if isinstance(value, (int, float, str, bool)))


def copy_arguments(batch: Batch) -> Batch:
    """A copy of the arguments. Its memory is the graph's input: each replay first writes the new values there."""
    own: dict[int, Tensor] = {}

    def copy(value: Any) -> Any:
        if isinstance(value, Tensor):
            return own.setdefault(id(value), value.detach().clone())
        if isinstance(value, (list, tuple)):
            return type(value)(copy(item) for item in value)
        return {key: copy(item) for key, item in value.items()} if isinstance(value, dict) else value

    whole = is_unmasked(batch)
    kwargs = {name: value for name, value in batch.kwargs.items() if name != MASK or not whole}
    return replace(batch, args=copy(batch.args), kwargs=copy(kwargs))


def run_on_card(run: Run) -> bool:
    return all(tensor.is_cuda for tensor in tensors_of(run.batch))
