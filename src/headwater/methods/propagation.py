"""One forward pass inside the rules, the score outside them, one backward pass: relevance and its books."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointError

from ..errors import HeadwaterError, HiddenOperation, NoSignal, NotFinite, RuleNotMet
from ..inputs.batch import Batch, leaves, mapped
from ..inputs.hooks import hooked
from ..inputs.places import Captured, captured, start
from ..inputs.restoring import outside_inference
from ..inputs.walking import named_modules, named_weights
from ..rules import Books, RuleSet, Scope
from ..rules.linear import plain
from ..rules.modules import is_foreign_node, modules_seen
from ..rules.sources import wide
from ..targets import Reading
from .compiled import uncompiled


@dataclass(frozen=True)
class Demand:
    """Which rules a method puts on operations. Each `required` one must meet one; `some`: one of them all must."""

    rules: RuleSet
    required: tuple[str, ...] = ()
    some: bool = False
    backward: bool = True


def unwatched(_: Scope) -> AbstractContextManager[Any]:
    return nullcontext()


@dataclass
class Run:
    """One batch to be explained by one method."""

    model: nn.Module
    batch: Batch
    read: Callable[[Any, Batch], Reading]
    seed: int = 0
    nothing: int | None = None  # the token that stands for "nothing there"
    noise: Callable[[Tensor], Tensor] | None = None  # added to the explained input
    links: bool = True  # whether what enters beside the items is asked for, too
    scope: type[Scope] = Scope
    watch: Callable[[Scope], AbstractContextManager[Any]] = unwatched
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
    positions: list[Tensor] | None = None  # one number a real position, from methods that give no more than that
    coarsest: torch.dtype | None = None  # the least precise type that the model cast to inside
    constants: dict[str, list[float]] = field(default_factory=dict)  # lines of the ledger that are no model's sources
    beside: list[tuple[Captured, Tensor]] = field(default_factory=list)  # what entered beside the items, its gradient


def propagate(run: Run, demand: Demand) -> Outcome:
    """Relevance = input times gradient of the score, the gradient bent by the rules."""
    (outcome,) = propagate_each(run, demand, [run.read])
    return outcome


def propagate_each(run: Run, demand: Demand, readers: Sequence[Callable[[Any, Batch], Reading]]) -> Iterator[Outcome]:
    """Several scores of one prediction: one forward pass serves all, each has a backward pass and books of its own."""
    model, batch = run.model, run.batch
    books = Books(batch.samples, batch.length)
    modules = named_modules(model)
    weights = list(named_weights(model, modules))
    scope = run.scope(
        demand.rules,
        books,
        {id(t): n for n, t in weights if not t.is_meta},  # what is offloaded comes in as another tensor
        {id(m): n for n, m in modules},
    )
    scope.fleeting = any(t.is_meta for _, t in weights)
    with outside_inference(), torch.enable_grad(), uncompiled():
        out, inputs = forward(run, scope, beside=run.links and demand.backward and "ah" not in demand.rules.names)
    for number, reader in enumerate(readers, 1):
        with outside_inference(), torch.enable_grad():
            read = read_score(replace(run, read=reader), out)
            if number == 1:
                check_visible(read.ends, demand, scope)
                check_met(scope, demand)
            if demand.backward:
                keep = run.inspect is not None or number < len(readers)
                gradients = backward(read, inputs, books, keep=keep)
            else:
                gradients = [torch.zeros_like(one.leaf) for one in inputs]
            if run.inspect is not None:
                run.inspect(scope)
            linear = read.linear_part()
        last = number == len(readers)
        if last:
            scope.release()
        outcome = outcome_of(read, linear, inputs, gradients, books if last else books.taken(), scope)
        check_finite(run, demand, outcome)
        yield outcome


def outcome_of(
    read: Read,
    linear: Tensor,
    inputs: list[Captured],
    gradients: list[Tensor],
    books: Books,
    scope: Scope,
) -> Outcome:
    score = read.reading.score.detach().double()
    items = [(one, gradient) for one, gradient in zip(inputs, gradients, strict=True) if not one.beside]
    relevance = [wide(one.leaf.detach()) * wide(gradient) for one, gradient in items]
    outcome = Outcome(read.reading, score, score - linear, [one for one, _ in items], relevance, books, scope.met)
    outcome.beside = [(one, gradient) for one, gradient in zip(inputs, gradients, strict=True) if one.beside]
    outcome.coarsest = scope.coarsest
    return outcome


def forward(run: Run, scope: Scope, beside: bool = False) -> tuple[Any, list[Captured]]:
    """The model's own forward pass with the rules on, its inputs made into leaves; what enters beside them if asked."""
    batch = run.batch
    args, kwargs = batch.args, batch.kwargs
    given: list[Captured] = []
    if batch.tensor is not None:
        leaf = batch.tensor.detach().clone()
        leaf = (leaf if run.noise is None else leaf + run.noise(leaf)).requires_grad_(True)
        given.append(Captured(leaf, None))
        begun = start(leaf)
        args, kwargs = mapped((args, kwargs), lambda t: begun if t is batch.tensor else t)
    kwargs = {**without_cache(run.model), **decoder_start(run), **kwargs, **with_names(run.model, kwargs)}
    other = batch.beside.module if batch.beside is not None and beside else None
    with (
        captured(batch.places, run.noise, other) if batch.places else nullcontext(given) as inputs,
        modules_seen(run.model, scope),
        run.watch(scope),
        scope,
    ):
        out = run.model(*args, **kwargs)
    if not inputs:
        raise NoSignal("the module whose output is to be explained was not called by the model.")
    return out, inputs


def decoder_start(run: Run) -> dict[str, Any]:
    """An encoder-decoder that generates begins with its start token, unless a prefix is given."""
    config = getattr(run.model, "config", None)
    token = getattr(config, "decoder_start_token_id", None)
    generates = bool(getattr(run.model, "can_generate", lambda: False)())
    if not (getattr(config, "is_encoder_decoder", False) and generates and isinstance(token, int)):
        return {}
    if run.batch.ids is None or "decoder_input_ids" in run.batch.kwargs:
        return {}
    run.batch.kwargs["decoder_input_ids"] = torch.full_like(run.batch.ids[:, :1], token)
    return {"decoder_input_ids": run.batch.kwargs["decoder_input_ids"]}


def without_cache(model: nn.Module) -> dict[str, Any]:
    """A language model's cache of keys and values is not needed for one pass."""
    if not hasattr(getattr(model, "config", None), "use_cache"):
        return {}
    parameters = inspect.signature(model.forward).parameters.values()
    takes = any(p.name == "use_cache" or p.kind is p.VAR_KEYWORD for p in parameters)
    return {"use_cache": False} if takes else {}


def with_names(model: nn.Module, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Outputs come with their names also where the model was set to give a tuple, which does not say what is what."""
    config = getattr(model, "config", None)
    if config is None or kwargs.get("return_dict", getattr(config, "return_dict", None)) is not False:
        return {}
    parameters = inspect.signature(model.forward).parameters.values()
    takes = any(p.name == "return_dict" or p.kind is p.VAR_KEYWORD for p in parameters)
    return {"return_dict": True} if takes else {}


@dataclass
class Read:
    """The score, the outputs of the model that it reads (`ends`), and the same cut off from the model (`cut`)."""

    reading: Reading
    ends: list[Tensor]
    cut: list[Tensor]

    def gradients(self, seeds: Tensor | None = None) -> list[Tensor]:
        """Gradient of the scores' sum, each times its seed, at every output."""
        score = self.reading.score
        total = score.sum() if seeds is None else (score * seeds.to(score)).sum()
        return list(torch.autograd.grad(total, self.cut, retain_graph=True))

    def linear_part(self) -> Tensor:
        """Output times gradient for each sample: what of the score is linear in the outputs."""
        samples = len(self.reading.score)
        gradients = self.gradients()
        if all(plainly_first(cut, samples) for cut in self.cut):
            rows = [
                (c.detach().double() * g.double()).reshape(samples, -1).sum(1)
                for c, g in zip(self.cut, gradients, strict=True)
            ]
            return torch.stack(rows).sum(0)
        each = [self.gradients(seed) for seed in torch.eye(samples)]
        sums = [
            sum((c.detach().double() * g.double()).sum() for c, g in zip(self.cut, one, strict=True)) for one in each
        ]
        return torch.stack([torch.as_tensor(total) for total in sums])


def plainly_first(tensor: Tensor, samples: int) -> bool:
    """Whether only the first axis can be the samples'."""
    return samples == 1 or (len(tensor) == samples and samples not in tensor.shape[1:-1])


def read_score(run: Run, out: Any) -> Read:
    """The score function runs outside the rules, on outputs that are cut off from the model."""
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
        raise NoSignal(
            "the score does not depend on the input: no operation leads from one to the other. (A model that ends in a "
            "softmax has it held constant by the rules: explain its logits.)"
        )
    used = torch.autograd.grad(reading.score.sum(), cut, retain_graph=True, allow_unused=True)
    kept = [(end, one) for end, one, g in zip(ends, cut, used, strict=True) if g is not None]
    return Read(reading, [end for end, _ in kept], [one for _, one in kept])


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


def backward(read: Read, inputs: list[Captured], books: Books, keep: bool) -> list[Tensor]:
    """The gradient at each input. One backward pass; further ones where shapes do not tell a source's samples."""
    leaves = [one.leaf for one in inputs]
    probes = books.probes
    found = gradients_at(leaves, read, None, keep or probes > 0)
    if all(g is None for g, one in zip(found, inputs, strict=True) if not one.beside):
        raise NoSignal("the score does not depend on the input that is to be explained.")
    for probe in range(probes):
        books.probe = probe
        seeds = torch.tensor(books.seeds(probe), dtype=torch.float64, device=leaves[0].device)
        gradients_at(leaves, read, seeds, keep or probe + 1 < probes)
    books.settle()
    return [torch.zeros_like(leaf) if g is None else g.detach() for leaf, g in zip(leaves, found, strict=True)]


def gradients_at(leaves: list[Tensor], read: Read, seeds: Tensor | None, keep: bool) -> tuple[Tensor | None, ...]:
    try:
        with torch.autocast(leaves[0].device.type, enabled=False):  # types are chosen on the way forward
            return torch.autograd.grad(read.ends, leaves, read.gradients(seeds), retain_graph=keep, allow_unused=True)
    except CheckpointError as error:
        raise HiddenOperation(
            "a part of the model under gradient checkpointing cannot be computed again as the rules had it. Call "
            "model.gradient_checkpointing_disable(), or leave out the checkpoint."
        ) from error
    except RuntimeError as error:
        if "inplace operation" not in str(error):
            raise
        raise HiddenOperation(
            "the model writes over a tensor that the backward pass still needs, "
            f"as code for inference alone may do: {error}"
        ) from error


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
                "If it is a fused attention, load the model with attn_implementation='sdpa'; if it is a checkpoint, "
                "call model.gradient_checkpointing_disable(); if it packs weights, load them unpacked."
            )
        stack.extend(parent for parent, _ in node.next_functions)


def check_finite(run: Run, demand: Demand, outcome: Outcome) -> None:
    """No NaN and no infinity in score, relevance or books; where there is one, the module it came from is named."""
    said = not_finite(outcome)
    if said is None:
        return
    for name, tensor in (*run.model.named_parameters(), *run.model.named_buffers()):
        if tensor.is_floating_point() and not name.endswith("mask") and not tensor.is_meta and has_nan(tensor):
            raise NotFinite(f"the parameter {name!r} holds NaN.")
    why = "It overflowed, or padding attends to nothing; a more precise dtype= helps against the first."
    raise NotFinite(f"{said} is not finite{first_seen(run, demand)}. {why}")


def not_finite(outcome: Outcome) -> str | None:
    if not bool(outcome.score.isfinite().all()):
        return "the score"
    if not all(bool(r.isfinite().all()) for r in outcome.relevance):
        return "the relevance"
    if outcome.books.is_finite():
        return None
    for bias in (True, False):
        for name, amount in outcome.books.totals(bias=bias).items():
            if not bool(amount.isfinite().all()):
                return f"the relevance of {name!r}"
    return None


def has_nan(tensor: Tensor) -> bool:
    return bool(plain(tensor).isnan().any())


def first_seen(run: Run, demand: Demand) -> str:
    """The same run once more, every module watched: where on the way, and then on the way back, it first appeared."""
    forwards, backwards = Watch(), Watch()
    names = {id(module): name for name, module in run.model.named_modules()}

    def note(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        name = names[id(module)] or type(module).__name__
        for tensor in leaves(list(output.values()) if isinstance(output, dict) else output):
            if isinstance(tensor, Tensor) and tensor.is_floating_point():
                forwards.see(name, tensor)
                if tensor.requires_grad:
                    tensor.register_hook(lambda gradient: backwards.see(name, gradient))

    with suppress(HeadwaterError), hooked(run.model.modules(), after=note):
        read_again(run, demand)  # where the score cannot be read, the way forward says enough
    if forwards.first is not None:
        return f": it first appeared in the output of the module {forwards.first!r}"
    return f": on the way back it first appeared at the output of the module {backwards.first!r}" * bool(
        backwards.first
    )


@dataclass
class Watch:
    """Remembers who first gave something that is not finite."""

    first: str | None = None

    def see(self, name: str, tensor: Tensor | None) -> None:
        if self.first is None and tensor is not None and not bool(tensor.detach().isfinite().all()):
            self.first = name


def read_again(run: Run, demand: Demand) -> None:
    books = Books(run.batch.samples, run.batch.length)
    scope = Scope(demand.rules, books, {}, {})
    with outside_inference(), torch.enable_grad(), uncompiled():
        out, inputs = forward(run, scope)
        read = read_score(run, out)
        if demand.backward:
            gradients_at([one.leaf for one in inputs], read, None, keep=False)
