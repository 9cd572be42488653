"""Checks of a pass: does it explain the model's own prediction, and does no "constant" in fact depend on the input?

A model is looked at closely at its first explanation by a set of rules, and now and then: it is run plainly, and on
another input. The other checks read what every pass leaves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import (
    AnotherPrediction,
    HeadwaterError,
    HiddenOperation,
    ModelError,
    RandomPrediction,
    RuleNotMet,
    UsageError,
)
from ..inputs.batch import Batch
from ..inputs.places import Captured, capture_inputs, find_places
from ..inputs.restoring import outside_inference
from ..inputs.walking import named_modules
from ..rules import Scope
from ..rules.constants import BESIDE_HELD, EnteredConstant
from ..rules.modules import is_foreign_node
from ..rules.sources import Sort
from .compiled import run_eagerly
from .forward import (
    Demand,
    Read,
    Run,
    asks_links,
    forward,
    known_of,
    map_output,
    model_arguments,
    read_score,
    scope_for,
    seen_of,
    watch_nothing,
)

LARGE = 10_000_000  # numbers in an output that is not copied for a check

OFTEN = 64  # explanations of a model by a method after which it is looked at again; then after twice as many


def is_due(run: Run, demand: Demand) -> bool:
    """Whether a model is looked at closely: at its first explanation by these rules there, and after 64, 128, 256, …

    Always where it reads numbers of the input, which cannot be followed.
    """
    known = known_of(run)
    before = known.explained.get(demand.rules, 0)
    known.explained[demand.rules] = before + 1
    times, rest = divmod(before, OFTEN)
    return known.reads or (rest == 0 and times & (times - 1) == 0)


@contextmanager
def forget_look_on_error(run: Run, demand: Demand, close: bool) -> Iterator[None]:
    """A closer look that ends in an error is due again: what was refused once is refused the next time, too."""
    try:
        yield
    except GeneratorExit:
        raise
    except BaseException:
        counts = known_of(run).explained
        if close and counts.get(demand.rules):
            counts[demand.rules] -= 1
        raise


def predict_plainly(run: Run) -> Tensor:
    """The score of the model's own prediction, as a user would get it: without rules, without gradients."""
    with torch.no_grad(), run_eagerly():
        out = run.model(*run.batch.args, **model_arguments(run))
        return run.read(out, run.batch).score.detach().double()


def check_prediction(run: Run, plain: Tensor, read: Read, scope: Scope) -> None:
    """The score under the rules must be that of the plain prediction: a model may act otherwise with gradients."""
    found = read.reading.score.detach()
    size = max(float(values.detach().abs().max()) for values in (plain, *read.ends) if values.numel())
    room = math.sqrt(torch.finfo(scope.coarsest or torch.float32).eps) * size
    gap = float((found - plain.to(found.device)).abs().max())
    if not gap > room:  # a NaN is reported later, with the module that it comes from
        return
    apart = float((predict_plainly(run) - plain).abs().max())
    if apart > room:
        raise RandomPrediction(
            f"the model is in evaluation mode, but two predictions of the same input differ by {apart:.3g}: it draws "
            "random numbers, writes over its input, or changes when it is called. Turn that off, so that there is one "
            "prediction to explain."
        )
    raise AnotherPrediction(
        f"under the rules the model's score is off by {gap:.3g} from its plain prediction: it does something else when "
        "gradients are made (it asks torch.is_grad_enabled() or requires_grad, say). Make it compute the same in both "
        "cases."
    )


def check_score(run: Run, out: Any, read: Read) -> None:
    """The gradient of a score function of the caller's must match its value: no part of it may be detached.

    In float64: of a score that does not depend on the outputs' size (a cosine), float32 would leave only rounding.
    """
    if not callable(getattr(run.read, "target", None)) or sum(end.numel() for end in read.ends) > LARGE:
        return
    step = 1e-4 / max(1.0, *(float(end.detach().abs().max()) for end in read.ends))
    try:
        exact = read_score(run, map_output(out, in_float64))
        with torch.no_grad():
            there, here = (
                run.read(map_output(out, partial(scale_signal, factor=1 + sign * step)), run.batch).score
                for sign in (1, -1)
            )
    except RuntimeError:  # it takes no float64
        return
    slope, said = (there.double() - here) / (2 * step), exact.linear_part()
    rounding = torch.finfo(there.dtype).eps * (exact.linear_size() + there.abs()) / step
    if bool(((slope - said).abs() > 1e-3 * (slope.abs() + said.abs()) + rounding + 1e-9).any()):
        raise UsageError(
            f"the gradient of score= is not that of its value: along the model's output it is {float(said[0]):.4g}, "
            f"and differences give {float(slope[0]):.4g}. Leave out what cuts it off (detach, item)."
        )


def scale_signal(value: Any, factor: float) -> Any:
    return value.detach().double() * factor if isinstance(value, Tensor) and value.requires_grad else value


def in_float64(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.requires_grad else value


def settle_choices(scope: Scope) -> None:
    """Decides what a lookup is whose index also weighs its result, as a router's: an expert's bias is then a bias."""
    for one in scope.cuts.chosen:
        if scope.cuts.is_weighed(one.site, one.choice):
            scope.books.resort(one.site, one.name, Sort.BIAS if one.bias else Sort.CONSTANT)


def find_tables(run: Run) -> None:
    """Finds further embeddings that look up the words of the text, as some models have in each layer.

    The model is run on other words to tell: position numbers may by chance equal the word ids of one text.
    """
    known, batch = known_of(run), run.batch
    if known.tables is not None or batch.ids is None or not batch.places:
        return
    inside = {id(part) for place in (*batch.places, *usual_places(run)) for _, part in named_modules(place)}
    tables: list[nn.Module] = [
        m for _, m in named_modules(run.model) if isinstance(m, nn.Embedding) and id(m) not in inside
    ]
    other = other_input(run)
    known.tables = []
    if tables and other.batch is not batch:
        with capture_inputs(tables) as found, torch.no_grad(), run_eagerly():
            run.model(*other.batch.args, **model_arguments(other))
        known.tables = [one.place for one in found if one.place and looks_words_up(one, other.batch.ids)]


def find_ways_around(run: Run) -> None:
    """Finds out whether words reach the output past the module that is explained: the graph of a plain run tells."""
    known = known_of(run)
    if not run.batch.lookups or known.around is not None:
        return
    with (
        outside_inference(),
        torch.enable_grad(),
        run_eagerly(),
        capture_inputs(run.batch.places, None, run.batch.lookups) as found,
    ):
        ends = read_score(run, run.model(*run.batch.args, **model_arguments(run))).ends
        words = [one.leaf for one in found if one.beside]
        gradients = torch.autograd.grad([end.sum() for end in ends], words, allow_unused=True) if words else ()
    known.around = any(gradient is not None for gradient in gradients)


def usual_places(run: Run) -> list[nn.Module]:
    """The embeddings, where a layer behind them is explained: what goes around that layer is no input of it."""
    try:
        return [*run.batch.lookups, *(find_places(run.model, "embeddings") if run.batch.lookups else ())]
    except ModelError:  # it does not say which they are
        return list(run.batch.lookups)


def looks_words_up(one: Captured, text: Tensor | None) -> bool:
    """Whether an output holds the embedding rows of the text's words, scaled or not, or of the text shifted by one."""
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


Look = tuple[list[EnteredConstant], list[bool]]

OTHERS = 4  # inputs that are tried where numbers are read: an index may be the same for some


def look_at_others(run: Run, demand: Demand) -> list[Look]:
    """For other inputs: the constants that enter, and which look-ups are those of the text."""
    count = OTHERS if known_of(run).reads else 1
    found = [look_at_another(run, demand, number) for number in range(count)]
    return [look for look in found if look is not None]


SIZES = (3.0, 0.3, 0.01)  # of the noise, relative to the input: a model may refuse what it never saw
FAR = {1: 30.0, 2: 300.0}  # inputs that are tried far away, too: a code may be the same for everything near


def look_at_another(run: Run, demand: Demand, number: int) -> Look | None:
    for size in (FAR[number], *SIZES) if number in FAR else SIZES:
        other = other_input(run, number, size)
        try:
            entered, inputs = find_constants(other, demand)
        except HeadwaterError:
            raise
        except Exception:
            continue
        if number in FAR and not all(math.isfinite(part) for one in entered for part in one.value):
            continue
        return entered, lookups(other.batch, inputs)
    return None


def find_escapes(run: Run, demand: Demand, scope: Scope, inputs: list[Captured], others: list[Look]) -> None:
    """Refuses constants that differ for another input: they were computed from it by a way that rules cannot follow.

    Numbers may leave torch and come back; a thread, a traced function or a shape may carry them.
    """
    known_of(run).reads |= scope.cuts.unclear()
    ours = scope.entered if scope.entered is not None else find_constants(run, demand)[0]
    if scope.cuts.unclear():
        more = (look_at_another(run, demand, number) for number in range(len(others), OTHERS))
        others = [*others, *(look for look in more if look is not None)]
    if any(lookups(run.batch, inputs) != own for _, own in others):
        raise HiddenOperation("the model looks up the words of a text in another order: nobody can say which is which.")
    changed = set[int]().union(*(changing_sites(ours, theirs) for theirs, _ in others))
    changed -= {one.site for one in scope.cuts.chosen}
    found = known_of(run).changing
    for site, known in enumerate(scope.books.sites):
        held = known.sort is Sort.HELD and BESIDE_HELD in changed
        if held or (site in changed and known.sort < Sort.CUT_OFF and not scope.cuts.is_weighed(site)):
            found.add((site, known.name))
    cut_off_changing(run, scope)


def cut_off_changing(run: Run, scope: Scope) -> None:
    """What a closer look found to change with the input is cut off in every explanation, not in that one alone."""
    found = seen_of(run).changing
    for site, known in enumerate(scope.books.sites) if found else ():
        if (site, known.name) in found:
            scope.books.resort(site, f"{known.name}, which changes with the input", Sort.CUT_OFF)


def other_input(run: Run, number: int = 0, size: float = SIZES[0]) -> Run:
    """The same run for another input: noise at the place that is explained, and words in another order.

    The first and the last word stay, for models look for them.
    """
    ids = run.batch.ids_argument
    if ids is None or ids.shape[1] < 4:
        return replace(run, noise=partial(unlike, number=number, times=size))
    real = run.batch.real if run.batch.real is not None else torch.ones_like(ids, dtype=torch.bool)
    moved = ids.clone()
    for row, own in zip(moved, real, strict=True):
        places = own.nonzero()[1:-1, 0]
        row[places] = row[places].roll(1 + number)
    return replace(run, noise=partial(unlike, number=number, times=size), batch=run.batch.with_ids(moved))


def lookups(batch: Batch, inputs: list[Captured]) -> list[bool]:
    """Whether each look-up is that of the text, word by word, or of a prefix that was given to the decoder."""
    texts = [text for text in (batch.ids, batch.kwargs.get("decoder_input_ids")) if isinstance(text, Tensor)]
    return [any(one.ids is not None and torch.equal(one.ids, text) for text in texts) for one in inputs if texts]


def find_constants(run: Run, demand: Demand) -> tuple[list[EnteredConstant], list[Captured]]:
    """Every constant that enters on the way forward, in order; and the inputs."""
    scope = scope_for(replace(run, scope=Scope), demand)
    scope.entered = []
    with outside_inference(), torch.enable_grad(), run_eagerly():
        _, inputs = forward(replace(run, watch=watch_nothing), scope, beside=asks_links(run, demand))
    scope.release()
    assert scope.entered is not None
    return scope.entered, inputs


def changing_sites(ours: list[EnteredConstant], others: list[EnteredConstant]) -> set[int]:
    """The sites whose constant differs between two inputs; matched by name where the two runs took different paths."""
    if [one.name for one in ours] == [one.name for one in others]:
        return {one.site for one, other in zip(ours, others, strict=True) if one.value != other.value}
    values, seen = (values_by_name(found) for found in (ours, others))
    return {one.site for one in ours if values[one.name] != seen.get(one.name)}


def values_by_name(entered: list[EnteredConstant]) -> dict[str, list[tuple[float, float]]]:
    found: dict[str, list[tuple[float, float]]] = {}
    for one in sorted(entered, key=lambda one: one.value):
        found.setdefault(one.name, []).append(one.value)
    return found


def unlike(leaf: Tensor, number: int, times: float) -> Tensor:
    """Noise of the input's own size, which makes another input of it."""
    drawn = torch.randn(leaf.shape, generator=torch.Generator().manual_seed(1 + number), dtype=torch.float64)
    size = leaf.detach().std().nan_to_num() if leaf.numel() > 1 else leaf.detach().abs().sum()
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
    """Refuses custom autograd functions between score and input: the rules cannot see the operations inside them."""
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
            if name == "BackwardHookFunction":
                raise HiddenOperation(
                    "a module has a full backward hook, which may change gradients unseen by the rules. Remove it "
                    "(the handle of register_full_backward_hook) while you explain."
                )
            raise HiddenOperation(
                f"the model uses a custom autograd function ({name}), which the rules cannot see into. "
                "If it is a fused attention, load the model with attn_implementation='sdpa'; if it is a checkpoint, "
                "call model.gradient_checkpointing_disable(); if it packs weights, load them unpacked."
            )
        stack.extend(parent for parent, _ in node.next_functions)
