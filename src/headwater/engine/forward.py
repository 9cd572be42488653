"""One pass of a model inside the rules: what is run, how it is called, and how its score is read."""

from __future__ import annotations

import copy
import inspect
import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import NoSignal, NotApplicable, TargetError, UsageError
from ..inputs.batch import Batch, copy_caches, map_leaves
from ..inputs.inside_demand import InsideDemand
from ..inputs.places import Captured, capture_inputs, start
from ..inputs.readouts import ScoreReading
from ..inputs.walking import named_modules, named_weights
from ..rules import Books, RuleSet, Scope
from ..rules.difference import DifferenceScope
from ..rules.inside import InsideScope, watch_inside
from ..rules.modules import watch_foreign_modules
from ..traces.record import Slot

LEAVES = (Tensor, Slot)  # of an output, and of one that was written down
SMALL = 1 << 20  # numbers of a score's gradient that are kept to be asked for again


@dataclass(frozen=True)
class Demand:
    """The rules that a method uses. Each `required` one must meet an operation; with `some`, at least one must.

    Example:
        >>> from headwater.methods import Demand, RuleSet
        >>> "ln" in Demand(RuleSet(frozenset({"ln"})), required=("ln",)).rules
        True
    """

    rules: RuleSet  # that are put on operations
    required: tuple[str, ...] = ()  # rules that must meet an operation, each
    some: bool = False  # whether at least one rule must meet an operation
    backward: bool = True  # whether a backward pass follows


NO_RULES = Demand(RuleSet(frozenset()))  # plain gradients: Gradient x Input


def do_nothing() -> None:
    pass


def watch_nothing(_: Scope) -> AbstractContextManager[Any]:
    return nullcontext()


@dataclass(frozen=True)
class Run:
    """One batch to be explained by one method. A method is given it, and hands it to `propagate`.

    Example:
        >>> from headwater.methods import NO_RULES, Method, propagate
        >>> seen = []
        >>> def look(run):
        ...     seen.append((run.batch.samples, run.seed))
        ...     return propagate(run, NO_RULES)
        >>> texts = ["a fine film", "a dull film"]
        >>> found = hw.explain("headwater/sentiment", texts, method=Method("look", "", look), seed=7)
        >>> seen
        [(2, 7)]
    """

    model: nn.Module  # in evaluation mode, on its device
    batch: Batch  # the samples, and where they are explained
    read: Callable[[Any, Batch], ScoreReading]  # reads the score off the model's output
    seed: int = 0  # of methods that draw random numbers
    nothing: int | None = None  # the token that stands for "nothing there"
    special: Mapping[str, int] = field(default_factory=dict)  # tokens that could: "unk", "mask", "pad"
    noise: Callable[[Tensor], Tensor] | None = None  # added to the explained input
    planned: bool = False  # whether it may be played by a plan: the model is the caller's own, and lasts
    scores_at_once: int | None = None  # of one prediction's scores, how many a backward pass has at most
    links: bool = True  # whether what enters beside the items is asked for, too
    inside: InsideDemand | None = None  # parts of the model at which relevance is noted, too
    scope: type[Scope] = Scope  # in which rules act
    watch: Callable[[Scope], AbstractContextManager[Any]] = watch_nothing  # a context around the pass, for audits
    inspect: Callable[[Scope, Read], None] | None = None  # called after the backward pass, the graph still there
    meanwhile: Callable[[], None] = do_nothing  # called while a card is at work, for what needs none of its numbers


def is_unwatched(run: Run) -> bool:
    """Whether it is run as every explanation is: by the usual scope, without noise, with nobody who watches."""
    return run.scope is Scope and run.inspect is None and run.noise is None and run.watch is watch_nothing


@dataclass
class Known:
    """What earlier explanations showed of a model: how many there were per set of rules; whether it reads numbers."""

    explained: dict[RuleSet, int] = field(default_factory=dict)
    reads: bool = False
    tables: list[nn.Module] | None = None  # further modules that look up the words of a text
    around: bool | None = None  # whether words of the text reach the output by ways around the explained module
    changing: set[tuple[int, str]] = field(default_factory=set)  # constants that differed between inputs, by site


PlaceKey = tuple[int, ...]
KNOWN: weakref.WeakKeyDictionary[nn.Module, dict[PlaceKey, Known]] = weakref.WeakKeyDictionary()


def known_of(run: Run) -> Known:
    """What is known of a model that is explained at one place. At another one, other things are constants."""
    return KNOWN.setdefault(run.model, {}).setdefault(key_of_places(run), Known())


def seen_of(run: Run) -> Known:
    """The same to read: a model of which nothing is known stays unknown."""
    return KNOWN.get(run.model, {}).get(key_of_places(run)) or Known()


def key_of_places(run: Run) -> PlaceKey:
    return tuple(id(module) for module in run.batch.places)


def tables_of(run: Run) -> list[nn.Module]:
    """Further modules that look up the words of a text, where a closer look found any."""
    tables = seen_of(run).tables
    return [] if tables is None or run.batch.ids is None else tables


def scope_for(run: Run, demand: Demand) -> Scope:
    """A scope with the rules, empty books, and the names of the model's weights and modules."""
    modules = named_modules(run.model)
    weights = list(named_weights(run.model, modules))
    demand.rules.check_names([name for name, _ in weights], [name for name, _ in modules])
    scope = scope_kind(run, demand)(
        demand.rules,
        Books(run.batch.samples, run.batch.length),
        {id(t): n for n, t in weights if not t.is_meta},  # what is offloaded comes in as another tensor
        {id(m): n for n, m in modules},
    )
    scope.fleeting = any(t.is_meta for _, t in weights)
    if isinstance(scope, InsideScope) and run.inside is not None:
        scope.ask(run.inside)
    return scope


def scope_kind(run: Run, demand: Demand) -> type[Scope]:
    if run.inside is not None and run.scope is not Scope:
        raise UsageError("this function watches the model itself, so inside= has no place beside it.")
    if "difference" not in demand.rules:
        return run.scope if run.inside is None else InsideScope
    if run.scope is not Scope or run.inside is not None:
        raise NotApplicable("differences from a reference cannot be watched inside the model. Take 'lrp' for that.")
    return DifferenceScope


def asks_links(run: Run, demand: Demand) -> bool:
    """Whether a side input is explained, too. It enters by attention's scores, which get nothing under the AH-rule."""
    return run.links and demand.backward and "ah" not in demand.rules.names


def forward(run: Run, scope: Scope, beside: bool = False) -> tuple[Any, list[Captured]]:
    """Runs the model under the rules. The explained inputs become leaves; with `beside`, so does the side input."""
    batch = run.batch
    args, kwargs = batch.args, model_arguments(run)
    given: list[Captured] = []
    if batch.tensor is not None:
        leaf = batch.tensor.detach().clone()
        leaf = (leaf if run.noise is None else leaf + run.noise(leaf)).requires_grad_(True)
        given.append(Captured(leaf, None))
        begun = start(leaf)
        scope.enter_input(given[0], begun)
        args, kwargs = map_leaves((args, kwargs), lambda t: begun if t is batch.tensor else t)
    other = side_modules(run, beside)
    places = [*batch.places, *(() if batch.lookups else tables_of(run))]
    with (
        capture_inputs(places, run.noise, other, batch.lookups, scope.enter_input)
        if batch.places
        else nullcontext(given) as inputs,
        watch_foreign_modules(run.model, scope),
        run.watch(scope),
        nullcontext() if run.inside is None else watch_inside(run.model, scope),
        scope,
    ):
        out = run.model(*args, **kwargs)
    if all(one.beside for one in inputs):
        raise NoSignal(describe_uncalled(batch))
    return out, inputs


def describe_uncalled(batch: Batch) -> str:
    """Why nothing came from the module that is explained. A list of modules is never called, its modules are."""
    name = "" if batch.at is None else f" {batch.at!r}"
    said = f"the module{name} whose output is to be explained was not called by the model. "
    part: nn.Module | None = batch.places[0] if batch.places else None
    if not isinstance(part, (nn.ModuleList, nn.ModuleDict)):
        return f"{said}Name one that this input goes through."
    path = "" if batch.at is None else batch.at
    while isinstance(part, (nn.ModuleList, nn.ModuleDict)) and len(part):
        first, part = next(part.named_children())
        path = f"{path}.{first}" if path else first
    return f"{said}It is a list of modules: name one of them, such as {path!r}."


def side_modules(run: Run, links: bool) -> list[nn.Module]:
    """Modules whose outputs are inputs too, though not the explained ones: of a side input, or of words that go around.

    Where a layer inside a model is explained, a residual stream or a decoder may carry words past it. Their share is a
    line of the ledger, for which they are followed from where they are looked up.
    """
    side = [run.batch.beside.module] if run.batch.beside is not None and links else []
    around = run.batch.lookups if seen_of(run).around else ()
    return [*side, *around, *(tables_of(run) if run.batch.lookups else ())]


def model_arguments(run: Run) -> dict[str, Any]:
    """The keyword arguments that the model is called with, once."""
    given = copy_caches(run.batch.kwargs)
    return {**without_cache(run.model), **given, **with_names(run.model, given)}


def without_cache(model: nn.Module) -> dict[str, Any]:
    """A language model's cache of keys and values is not needed for one pass."""
    if not hasattr(getattr(model, "config", None), "use_cache"):
        return {}
    parameters = inspect.signature(model.forward).parameters.values()
    takes = any(p.name == "use_cache" or p.kind is p.VAR_KEYWORD for p in parameters)
    return {"use_cache": False} if takes else {}


def with_names(model: nn.Module, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Asks for outputs by name where a model is configured to give a tuple, which does not say what is what."""
    config = getattr(model, "config", None)
    if config is None or kwargs.get("return_dict", getattr(config, "return_dict", None)) is not False:
        return {}
    parameters = inspect.signature(model.forward).parameters.values()
    takes = any(p.name == "return_dict" or p.kind is p.VAR_KEYWORD for p in parameters)
    return {"return_dict": True} if takes else {}


@dataclass
class Read:
    """The score, the outputs of the model that it reads (`ends`), and the same cut off from the model (`cut`)."""

    reading: ScoreReading
    ends: list[Tensor]
    cut: list[Tensor]
    slopes: list[Tensor] | None = None  # what `gradients` gives without seeds, where it is small

    def gradients(self, seeds: Tensor | None = None) -> list[Tensor]:
        """The gradient of the sum of all scores at every output; with `seeds`, each score is multiplied by its seed."""
        if seeds is None and self.slopes is not None:
            return [slope.clone() for slope in self.slopes]
        score = self.reading.score
        total = score.sum() if seeds is None else (score * seeds.to(score)).sum()
        return list(torch.autograd.grad(total, self.cut, retain_graph=True))

    def linear_part(self) -> Tensor:
        """Output times gradient for each sample: what of the score is linear in the outputs."""
        return self._sum_over_inputs(lambda product: product)

    def linear_part_at(self, values: list[Tensor]) -> Tensor:
        """The same for other values of the outputs, with the gradient of these."""
        return self._sum_over_inputs(lambda product: product, values)

    def linear_size(self) -> Tensor:
        """The same sum over absolute values, so that nothing cancels."""
        return self._sum_over_inputs(Tensor.abs)

    def _sum_over_inputs(self, of: Callable[[Tensor], Tensor], values: list[Tensor] | None = None) -> Tensor:
        samples, values = len(self.reading.score), values or self.cut
        if all(plainly_first(cut, samples) for cut in self.cut):
            parts = multiply_outputs(values, self.gradients())
            return torch.stack([of(part).reshape(samples, -1).sum(1) for part in parts]).sum(0)
        each = [multiply_outputs(values, self.gradients(seed)) for seed in torch.eye(samples)]
        sums = [sum(of(part).sum() for part in parts) for parts in each]
        return torch.stack([torch.as_tensor(total) for total in sums])


def multiply_outputs(values: list[Tensor], gradients: list[Tensor]) -> list[Tensor]:
    """Output times gradient; 0 where the gradient is 0, even of an infinite output (a class that is masked)."""
    pairs = zip(values, gradients, strict=True)
    return [(value.detach().double() * gradient.double()).masked_fill_(gradient == 0, 0) for value, gradient in pairs]


def plainly_first(tensor: Tensor, samples: int) -> bool:
    """Whether the samples lie along the first axis and can lie along no other."""
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
    check_read_off(reading.score, cut)
    used = torch.autograd.grad(reading.score.sum(), cut, retain_graph=True, allow_unused=True)
    kept = [(end, one, g) for end, one, g in zip(ends, cut, used, strict=True) if g is not None]
    slopes = [g for _, _, g in kept] if sum(g.numel() for _, _, g in kept) <= SMALL else None
    return Read(reading, [end for end, _, _ in kept], [one for _, one, _ in kept], slopes)


def check_read_off(score: Tensor, cut: list[Tensor]) -> None:
    """Refuses a score that reaches into the model past its output: what it reads there would have no relevance."""
    known, seen, waiting = set(map(id, cut)), set(), [score.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None and id(leaf) not in known and not isinstance(leaf, nn.Parameter):
            raise TargetError(
                "the score is made of a tensor that is no part of the model's output, and that the input leads to: "
                "relevance would be missing. Let the model return it, in a tuple, a dict or a dataclass; what is a "
                "constant of the score, detach."
            )
        waiting.extend(following for following, _ in node.next_functions)


def map_output(out: Any, change: Callable[[Any], Any], around: dict[int, Any] | None = None) -> Any:
    """A model's output with its tensors changed: a tensor, a tuple, a dict, or an object with tensors as attributes.

    An output that leads back to itself leads back to its copy: `around` has the copies of all that `out` is a part of,
    by the identity of the original. A tuple needs none, for it is made after its parts and cannot hold itself alone.
    """
    around = {} if around is None else around
    if id(out) in around:
        return around[id(out)]
    if isinstance(out, tuple):
        parts = [map_output(part, change, around) for part in out]
        return out._make(parts) if hasattr(out, "_make") else type(out)(parts)
    names = [] if isinstance(out, (dict, list)) else attributes_with_tensors(out)
    if not names and not isinstance(out, (dict, list)):
        return change(out)
    around[id(out)] = copied = copy.copy(out)
    if isinstance(out, dict):  # transformers' has attributes, too
        for key in list(copied.keys()):
            copied[key] = map_output(out[key], change, around)
    elif isinstance(out, list):
        list.__setitem__(copied, slice(None), [map_output(part, change, around) for part in out])  # it may be frozen
    for name in names:
        object.__setattr__(copied, name, map_output(getattr(out, name), change, around))
    del around[id(out)]
    return copied


def attributes_with_tensors(out: Any) -> list[str]:
    """What an output has as attributes: the fields of a dataclass, or all of an object that holds tensors."""
    if isinstance(out, (*LEAVES, nn.Module, type)):
        return []
    if is_dataclass(out):
        return [field.name for field in fields(out)]
    held = getattr(out, "__dict__", {})
    return list(held) if any(isinstance(value, LEAVES) for value in held.values()) else []
