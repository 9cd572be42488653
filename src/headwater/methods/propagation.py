"""One forward pass inside the rules, the score outside them, one backward pass: relevance and its books."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import HiddenOperation, NoSignal, NotFinite, RuleNotMet
from ..inputs.batch import Batch, mapped
from ..inputs.places import Captured, captured, start
from ..rules import Books, RuleSet, Scope
from ..rules.modules import is_foreign_node, modules_seen
from ..targets import Reading


@dataclass(frozen=True)
class Demand:
    """Which rules a method puts on operations. Each `required` one must meet one; `some`: one of them all must."""

    rules: RuleSet
    required: tuple[str, ...] = ()
    some: bool = False


@dataclass
class Run:
    """One batch to be explained by one method."""

    model: nn.Module
    batch: Batch
    read: Callable[[Any, Batch], Reading]
    scope: type[Scope] = Scope
    watch: Callable[[Scope], AbstractContextManager[Any]] = lambda scope: nullcontext()
    inspect: Callable[[Scope], None] | None = None  # called after the backward pass, the graph still there


@dataclass
class Outcome:
    """What came out, sample by sample. `relevance` stands beside each captured input, elementwise."""

    reading: Reading
    score: Tensor  # [samples], float64
    readout: Tensor  # [samples]
    captured: list[Captured]
    relevance: list[Tensor]
    books: Books
    met: dict[str, int]


def propagate(run: Run, demand: Demand) -> Outcome:
    """Relevance = input times gradient of the score, the gradient bent by the rules."""
    model, batch = run.model, run.batch
    books = Books(batch.samples)
    scope = run.scope(
        demand.rules,
        books,
        {id(t): n for n, t in (*model.named_parameters(), *model.named_buffers())},
        {id(m): n for n, m in model.named_modules()},
    )
    with torch.inference_mode(False), torch.enable_grad():
        out, inputs = forward(run, scope)
        ends, reading, gradients = read_score(run, out)
        check_visible(ends, demand, scope)
        check_met(scope, demand)
        relevance = backward(ends, gradients, inputs, books, keep=run.inspect is not None)
        if run.inspect is not None:
            run.inspect(scope)
    readout = reading.score.detach().double() - per_sample(ends, gradients, batch.samples)
    outcome = Outcome(reading, reading.score.detach().double(), readout, inputs, relevance, books, scope.met)
    check_finite(model, outcome)
    return outcome


def forward(run: Run, scope: Scope) -> tuple[Any, list[Captured]]:
    """The model's own forward pass with the rules on, its inputs made into leaves."""
    batch = run.batch
    args, kwargs = batch.args, batch.kwargs
    given: list[Captured] = []
    if batch.tensor is not None:
        leaf = batch.tensor.detach().clone().requires_grad_(True)
        given.append(Captured(leaf, None))
        begun = start(leaf)
        args, kwargs = mapped((args, kwargs), lambda t: begun if t is batch.tensor else t)
    kwargs = {**without_cache(run.model), **kwargs}
    with (
        captured(batch.places) if batch.places else nullcontext(given) as inputs,
        modules_seen(run.model, scope),
        run.watch(scope),
        scope,
    ):
        out = run.model(*args, **kwargs)
    if not inputs:
        raise NoSignal("the module whose output is to be explained was not called by the model.")
    return out, inputs


def without_cache(model: nn.Module) -> dict[str, Any]:
    """A language model's cache of keys and values is not needed for one pass."""
    if not hasattr(getattr(model, "config", None), "use_cache"):
        return {}
    parameters = inspect.signature(model.forward).parameters.values()
    takes = any(p.name == "use_cache" or p.kind is p.VAR_KEYWORD for p in parameters)
    return {"use_cache": False} if takes else {}


def read_score(run: Run, out: Any) -> tuple[list[Tensor], Reading, list[Tensor]]:
    """The score, and its gradient at every output of the model that it reads."""
    ends: list[Tensor] = []
    cut: list[Tensor] = []

    def separate(value: Any) -> Any:
        if not isinstance(value, Tensor) or not value.requires_grad:
            return value
        ends.append(value)
        cut.append(value.detach().requires_grad_(True))
        return cut[-1]

    reading = run.read(map_output(out, separate), run.batch)
    if not reading.score.requires_grad:
        raise NoSignal("the score does not depend on the input: no operation leads from one to the other.")
    gradients = torch.autograd.grad(reading.score.sum(), cut, allow_unused=True)
    kept = [(end, g) for end, g in zip(ends, gradients, strict=True) if g is not None]
    return [end for end, _ in kept], reading, [g for _, g in kept]


def map_output(out: Any, change: Callable[[Any], Any]) -> Any:
    """A model's output with its tensors changed: a tensor, a tuple, a dict, or transformers' dict with attributes."""
    if isinstance(out, dict) and type(out) is not dict:
        copied = copy.copy(out)
        for key in list(copied.keys()):
            copied[key] = map_output(out[key], change)
        return copied
    if isinstance(out, (dict, list)) or type(out) is tuple:
        return mapped(out, change)
    return change(out)


def backward(
    ends: list[Tensor], gradients: list[Tensor], inputs: list[Captured], books: Books, keep: bool
) -> list[Tensor]:
    """One backward pass; a second one where a source's samples could not be told from shapes (see Books)."""
    leaves = [c.leaf for c in inputs]
    probe = books.needs_probe
    try:
        found = torch.autograd.grad(ends, leaves, gradients, retain_graph=probe or keep, allow_unused=True)
    except RuntimeError as error:
        if "inplace operation" not in str(error):
            raise
        raise HiddenOperation(
            "the model writes over a tensor that the backward pass still needs, "
            f"as code for inference alone may do: {error}"
        ) from error
    if all(g is None for g in found):
        raise NoSignal("the score does not depend on the input that is to be explained.")
    if probe:
        books.probing = True
        scaled = [g * sample_numbers(g, books.samples) for g in gradients]
        torch.autograd.grad(ends, leaves, scaled, retain_graph=keep, allow_unused=True)
    return [
        (leaf.detach() * g if g is not None else torch.zeros_like(leaf)).detach()
        for leaf, g in zip(leaves, found, strict=True)
    ]


def sample_numbers(like: Tensor, samples: int) -> Tensor:
    """1, 2, 3 … along the samples of an output, which stand first."""
    numbers = torch.arange(1, samples + 1, dtype=like.dtype, device=like.device)
    return numbers.reshape(-1, *[1] * (like.dim() - 1))


def per_sample(ends: list[Tensor], gradients: list[Tensor], samples: int) -> Tensor:
    total = torch.zeros(samples, dtype=torch.float64, device=ends[0].device)
    for end, gradient in zip(ends, gradients, strict=True):
        total = total + (end.detach().double() * gradient.double()).reshape(samples, -1).sum(1)
    return total


def check_met(scope: Scope, demand: Demand) -> None:
    """A rule that silently does nothing gives an explanation that looks entirely reasonable, and is wrong."""
    missing = [rule for rule in demand.required if not scope.met.get(rule)]
    if demand.some and not any(scope.met.values()):
        missing = missing or sorted(demand.rules.names)
    if missing:
        raise RuleNotMet(
            f"the rule {missing[0]!r} met no operation of this model: it has none of that kind, or hides it. "
            "'lrp' takes the rules that a model needs."
        )


def check_visible(ends: list[Tensor], demand: Demand, scope: Scope) -> None:
    """No autograd function of somebody else's lies between score and input: its inside would escape the rules."""
    if not demand.rules.names:
        return
    seen: set[Any] = set()
    stack = [end.grad_fn for end in ends]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if is_foreign_node(node) and node not in scope.known_foreign:
            name = type(node).__name__.removesuffix("Backward")
            raise HiddenOperation(
                f"the model uses a custom autograd function ({name}), which the rules cannot see into. "
                "If it is a fused attention, load the model with attn_implementation='sdpa'."
            )
        stack.extend(parent for parent, _ in node.next_functions)


def check_finite(model: nn.Module, outcome: Outcome) -> None:
    if bool(outcome.score.isfinite().all()) and all(bool(r.isfinite().all()) for r in outcome.relevance):
        return
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_floating_point() and not name.endswith("mask") and bool(tensor.isnan().any()):
            raise NotFinite(f"the parameter {name!r} holds NaN.")
    what = "relevance" if bool(outcome.score.isfinite().all()) else "score"
    raise NotFinite(f"the {what} is not finite: an operation overflowed. Try dtype='float32' or 'float64'.")
