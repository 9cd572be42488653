"""One forward pass inside the rules, the score outside them, one backward pass: relevance and its books."""

from __future__ import annotations

import copy
import inspect
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import CheckpointError

from ..errors import (
    AnotherPrediction,
    HeadwaterError,
    HiddenOperation,
    NoSignal,
    NotFinite,
    RandomPrediction,
    RuleNotMet,
    UsageError,
)
from ..inputs.batch import Batch, leaves, mapped
from ..inputs.hooks import hooked
from ..inputs.places import Captured, captured, start
from ..inputs.restoring import outside_inference
from ..inputs.walking import named_modules, named_weights
from ..rules import Books, RuleSet, Scope
from ..rules.linear import plain
from ..rules.modules import is_foreign_node, modules_seen
from ..rules.scope import BESIDE_HELD, Entered
from ..rules.sources import Sort, wide
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
    close = run.noise is None and is_due(model, demand)
    if close:
        find_tables(run)
    plain = predict_plainly(run) if close else None
    others = look_at_others(run, demand) if close else []  # first, for what a model keeps is then of this input
    scope.entered = [] if close else None
    with outside_inference(), torch.enable_grad(), uncompiled():
        out, inputs = forward(run, scope, beside=run.links and demand.backward and "ah" not in demand.rules.names)
    settle_choices(scope)
    if close or (run.noise is None and scope.cuts.unclear()):
        find_escapes(run, demand, scope, inputs, others)
    for number, reader in enumerate(readers, 1):
        with outside_inference(), torch.enable_grad():
            read = read_score(replace(run, read=reader), out)
            if number == 1:
                check_visible(read.ends, demand, scope)
                check_met(scope, demand)
                if plain is not None:
                    check_prediction(run, plain, read, scope)
                    check_score(replace(run, read=reader), out, read)
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
    args, kwargs = batch.args, arguments(run)
    given: list[Captured] = []
    if batch.tensor is not None:
        leaf = batch.tensor.detach().clone()
        leaf = (leaf if run.noise is None else leaf + run.noise(leaf)).requires_grad_(True)
        given.append(Captured(leaf, None))
        begun = start(leaf)
        args, kwargs = mapped((args, kwargs), lambda t: begun if t is batch.tensor else t)
    other = batch.beside.module if batch.beside is not None and beside else None
    places = [*batch.places, *tables_of(run)]
    with (
        captured(places, run.noise, other) if batch.places else nullcontext(given) as inputs,
        modules_seen(run.model, scope),
        run.watch(scope),
        scope,
    ):
        out = run.model(*args, **kwargs)
    if not inputs:
        raise NoSignal("the module whose output is to be explained was not called by the model.")
    return out, inputs


def arguments(run: Run) -> dict[str, Any]:
    """The keyword arguments that the model is called with."""
    given = run.batch.kwargs
    return {**without_cache(run.model), **given, **with_names(run.model, given)}


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


LARGE = 10_000_000  # numbers in an output that is not copied for a check
OFTEN = 64  # explanations of a model by a method after which its plain prediction is asked for again


@dataclass
class Known:
    """What earlier explanations of a model have shown: how many there were by each rules; whether it reads numbers."""

    explained: dict[RuleSet, int] = field(default_factory=dict)
    reads: bool = False
    tables: list[nn.Module] | None = None  # further modules that look up the words of a text


_KNOWN: weakref.WeakKeyDictionary[nn.Module, Known] = weakref.WeakKeyDictionary()


def is_due(model: nn.Module, demand: Demand) -> bool:
    """Whether a model is looked at closely: at its first explanation by these rules, now and then, or always.

    Always where it reads numbers of the input, which cannot be followed.
    """
    known = _KNOWN.setdefault(model, Known())
    before = known.explained.get(demand.rules, 0)
    known.explained[demand.rules] = before + 1
    return known.reads or before % OFTEN == 0


def predict_plainly(run: Run) -> Tensor:
    """The score of the model's own prediction, as a user would get it: without rules, without gradients."""
    with torch.no_grad(), uncompiled():
        out = run.model(*run.batch.args, **arguments(run))
        return run.read(out, run.batch).score.detach().double()


def check_prediction(run: Run, plain: Tensor, read: Read, scope: Scope) -> None:
    """What is explained is what the model predicts. A model may notice gradients or rules, and do something else."""
    found = read.reading.score.detach().double()
    size = max(float(values.detach().double().abs().max()) for values in (plain, *read.ends) if values.numel())
    room = math.sqrt(torch.finfo(scope.coarsest or torch.float32).eps) * size
    gap = float((found - plain.to(found.device)).abs().max())
    if not gap > room:  # a NaN is reported later, with the module that it comes from
        return
    apart = float((predict_plainly(run) - plain).abs().max())
    if apart > room:
        raise RandomPrediction(
            f"the model is in evaluation mode, but two predictions of the same input differ by {apart:.3g}: it draws "
            "random numbers, or changes when it is called. Turn that off, so that there is one prediction to explain."
        )
    raise AnotherPrediction(
        f"under the rules the model's score is off by {gap:.3g} from its plain prediction: it does something else when "
        "gradients are made (it asks torch.is_grad_enabled() or requires_grad, say). Make it compute the same in both "
        "cases."
    )


def check_score(run: Run, out: Any, read: Read) -> None:
    """The gradient of a score that the caller wrote is that of its value: nothing is cut off in it."""
    if not callable(getattr(run.read, "target", None)) or sum(end.numel() for end in read.ends) > LARGE:
        return
    step = 1e-4 / max(1.0, *(float(end.detach().abs().max()) for end in read.ends))
    try:
        with torch.no_grad():
            there, here = (
                run.read(map_output(out, partial(scaled, factor=1 + sign * step)), run.batch).score.double()
                for sign in (1, -1)
            )
    except RuntimeError:  # it takes no float64
        return
    slope, said = (there - here) / (2 * step), read.linear_part()
    if bool(((slope - said).abs() > 1e-3 * (slope.abs() + said.abs()) + 1e-9).any()):
        raise UsageError(
            f"the gradient of score= is not that of its value: along the model's output it is {float(said[0]):.4g}, "
            f"and differences give {float(slope[0]):.4g}. Leave out what cuts it off (detach, item)."
        )


def scaled(value: Any, factor: float) -> Any:
    return value.detach().double() * factor if isinstance(value, Tensor) and value.requires_grad else value


def settle_choices(scope: Scope) -> None:
    """What was looked up by a choice that also weighs is a bias or a constant after all: an expert's bias."""
    for one in scope.cuts.chosen:
        if scope.cuts.is_weighed(one.site, one.choice):
            scope.books.resort(one.site, one.name, Sort.BIAS if one.bias else Sort.CONSTANT)


def tables_of(run: Run) -> list[nn.Module]:
    known = _KNOWN.get(run.model)
    return [] if known is None or known.tables is None or run.batch.ids is None else known.tables


def find_tables(run: Run) -> None:
    """Embeddings beside the places that are explained which look up the words of the text, too, as each layer may have.

    That they do is seen with other words: numbers of positions may happen to be those of words.
    """
    known, batch = _KNOWN.setdefault(run.model, Known()), run.batch
    if known.tables is not None or batch.ids is None or not batch.places:
        return
    inside = {id(part) for place in batch.places for _, part in named_modules(place)}
    tables: list[nn.Module] = [
        m for _, m in named_modules(run.model) if isinstance(m, nn.Embedding) and id(m) not in inside
    ]
    other = other_input(run)
    known.tables = []
    if tables and other.batch is not batch:
        with captured(tables) as found, torch.no_grad(), uncompiled():
            run.model(*other.batch.args, **arguments(other))
        known.tables = [one.place for one in found if one.place and looks_words_up(one, other.batch.ids)]


def looks_words_up(one: Captured, text: Tensor | None) -> bool:
    """Whether what came out are the rows of the text, scaled or not; or of the text shifted by one, as a decoder's."""
    table = getattr(one.place, "weight", None)
    if one.ids is None or text is None or one.ids.shape != text.shape or not isinstance(table, Tensor):
        return False
    if int(one.ids.max()) >= len(table):
        return False
    rows = table[one.ids].to(one.leaf.dtype)
    if rows.shape != one.leaf.shape or not (torch.equal(one.ids, text) or torch.equal(one.ids[:, 1:], text[:, :-1])):
        return False
    scale = (rows * one.leaf).sum() / rows.square().sum()
    return torch.allclose(rows * scale, one.leaf, rtol=1e-3, atol=1e-5)


Look = tuple[list[Entered], list[bool]]
OTHERS = 4  # inputs that are tried where numbers are read: an index may be the same for some


def look_at_others(run: Run, demand: Demand) -> list[Look]:
    """For other inputs: the constants that enter, and which look-ups are those of the text."""
    count = OTHERS if _KNOWN.setdefault(run.model, Known()).reads else 1
    found = [look_at_another(run, demand, number) for number in range(count)]
    return [look for look in found if look is not None]


SIZES = (3.0, 0.3, 0.01)  # of the noise, relative to the input: a model may refuse what it never saw


def look_at_another(run: Run, demand: Demand, number: int) -> Look | None:
    for size in SIZES:
        other = other_input(run, number, size)
        try:
            entered, inputs = constants_entered(other, demand)
        except HeadwaterError:
            raise
        except Exception:
            continue
        return entered, [looks_up(other.batch, one) for one in inputs]
    return None


def find_escapes(run: Run, demand: Demand, scope: Scope, inputs: list[Captured], others: list[Look]) -> None:
    """Constants that are others for another input were made of it, by a way that could not be followed.

    Numbers may leave torch and come back; a thread, a traced function or a shape may carry them.
    """
    _KNOWN.setdefault(run.model, Known()).reads |= bool(scope.cuts.unclear())
    ours = scope.entered if scope.entered is not None else constants_entered(run, demand)[0]
    if scope.cuts.unclear() and len(others) < OTHERS:
        more = (look_at_another(run, demand, number) for number in range(len(others), OTHERS))
        others = [*others, *(look for look in more if look is not None)]
    if any([looks_up(run.batch, one) for one in inputs] != own for _, own in others):
        raise HiddenOperation("the model looks up the words of a text in another order: nobody can say which is which.")
    changed = set[int]().union(*(changing_sites(ours, theirs) for theirs, _ in others))
    changed -= {one.site for one in scope.cuts.chosen}
    for site, known in enumerate(scope.books.sites):
        held = known.sort is Sort.HELD and BESIDE_HELD in changed
        if held or (site in changed and known.sort < Sort.CUT_OFF and not scope.cuts.is_weighed(site)):
            scope.books.resort(site, f"{known.name}, which changes with the input", Sort.CUT_OFF)


def other_input(run: Run, number: int = 0, size: float = SIZES[0]) -> Run:
    """The same run for another input: noise at the place that is explained, and words in another order.

    The first and the last word stay, for models look for them.
    """
    ids, given = run.batch.ids, run.batch.kwargs.get("input_ids")
    if ids is None or ids.shape[1] < 4 or not isinstance(given, Tensor) or not torch.equal(ids, given):
        return replace(run, noise=partial(unlike, number=number, times=size))
    real = run.batch.real if run.batch.real is not None else torch.ones_like(given, dtype=torch.bool)
    moved = given.clone()
    for row, own in zip(moved, real, strict=True):
        places = own.nonzero()[1:-1, 0]
        row[places] = row[places].roll(1 + number)
    batch = replace(run.batch, ids=moved, kwargs={**run.batch.kwargs, "input_ids": moved})
    return replace(run, noise=partial(unlike, number=number, times=size), batch=batch)


def looks_up(batch: Batch, one: Captured) -> bool:
    """Whether a look-up is that of the text, word by word."""
    return batch.ids is not None and one.ids is not None and torch.equal(one.ids, batch.ids)


def constants_entered(run: Run, demand: Demand) -> tuple[list[Entered], list[Captured]]:
    """Every constant that enters on the way forward, in order; and the inputs."""
    modules = {id(module): name for name, module in named_modules(run.model)}
    names = {id(t): n for n, t in named_weights(run.model) if not t.is_meta}
    scope = Scope(demand.rules, Books(run.batch.samples, run.batch.length), names, modules, entered=[])
    with outside_inference(), torch.enable_grad(), uncompiled():
        _, inputs = forward(replace(run, scope=Scope, watch=unwatched), scope)
    scope.release()
    assert scope.entered is not None
    return scope.entered, inputs


def changing_sites(ours: list[Entered], others: list[Entered]) -> set[int]:
    """The sites whose constant is another one for another input. Where the two ways differ, names tell."""
    if [one.name for one in ours] == [one.name for one in others]:
        return {one.site for one, other in zip(ours, others, strict=True) if one.value != other.value}
    values, seen = (by_name(found) for found in (ours, others))
    return {one.site for one in ours if values[one.name] != seen.get(one.name)}


def by_name(entered: list[Entered]) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {}
    for one in sorted(entered, key=lambda one: one.value):
        found.setdefault(one.name, []).append(one.value)
    return found


def unlike(leaf: Tensor, number: int, times: float) -> Tensor:
    """What makes another input of this one: noise of its own size."""
    drawn = torch.randn(leaf.shape, generator=torch.Generator().manual_seed(1 + number), dtype=torch.float64)
    size = leaf.detach().double().std().nan_to_num(1.0) if leaf.numel() > 1 else leaf.detach().double().abs().sum()
    return (times * drawn.to(leaf.device) * (size + (size == 0))).to(leaf.dtype)


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
    for sort in Sort:
        for name, amount in outcome.books.totals(sort).items():
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
