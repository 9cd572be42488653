"""Methods made of others: `baseline(METHOD)` asks what inputs add to a baseline, `mean(A,B)` is the mean of several."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ..engine.forward import Run
from ..engine.propagate import Outcome
from ..errors import NotApplicable, UsageError
from ..inputs.batch import Batch
from ..inputs.places import Captured
from ..names import split_names
from ..rules import Books
from ..rules.sources import sample_axis, wide
from .perturbation import look_up_token
from .registry import Method, family, resolve_method
from .smoothgrad import mean_of

BASELINE = "baseline"  # the line of the ledger


def compare_with_baseline(inner: Method) -> Method:
    """`inner` with x - b in place of x, where b is [UNK] at the same place: relevance is g · (x - b).

    The gradient g, with its rules, stays that of the input x. What the baseline takes of it, Σ g · b, is one line of
    the ledger, which therefore closes if that of `inner` does. Without it a token has relevance for what all tokens
    have in common, [UNK] too, and nothing changes in that when a token is replaced.
    """
    if not inner.gradient:
        raise UsageError(f"baseline(…) takes a gradient method, and {inner.name!r} is none.")

    def run(job: Run) -> Outcome:
        return subtract_baseline(inner.run(job), job)

    return replace(inner, name=f"baseline({inner.name})", summary=f"{inner.name}, against [UNK]", run=run, each=None)


def subtract_baseline(outcome: Outcome, job: Run) -> Outcome:
    """The outcome with the relevance of the baseline taken out of the inputs; unchanged where there are no tokens."""
    if job.nothing is None or job.batch.ids is None or not job.batch.places:
        return outcome
    if BASELINE in outcome.constants:
        raise UsageError("a baseline is taken off once: baseline(…) has no place inside another.")
    baselines = look_up_token(job, job.nothing)
    if [one.leaf.shape for one in baselines] != [one.leaf.shape for one in outcome.captured]:
        raise NotApplicable("this model does not look a text of [UNK] alone up as it does the text: no baseline.")
    parts = [
        wide(base.leaf.detach()) * wide(gradient) for base, gradient in zip(baselines, outcome.gradients, strict=True)
    ]
    relevance = [whole - part for whole, part in zip(outcome.relevance, parts, strict=True)]
    amount = sum_samples(parts, job.batch)
    return replace(outcome, relevance=relevance, constants={**outcome.constants, BASELINE: amount})


def sum_samples(parts: Sequence[Tensor], batch: Batch) -> list[float]:
    """One number for each sample, whether samples come first or positions do."""
    total = torch.zeros(batch.samples, dtype=torch.float64)
    for part in parts:
        axis = sample_axis(part.shape, batch.samples, (part.dim() - 1,), part.shape[1]) or 0
        total += part.movedim(axis, 0).flatten(1).sum(1, dtype=torch.float64).cpu()
    found: list[float] = total.tolist()
    return found


def average_methods(parts: Sequence[Method]) -> Method:
    """The mean of several gradient methods. Its ledger is the mean of theirs, so it closes if all of them do.

    It costs as much as all of them together.
    """
    wrong = next((part.name for part in parts if not part.gradient), None)
    if wrong is not None:
        raise UsageError(f"mean(…) takes gradient methods, and {wrong!r} is none.")
    if len(parts) < 2:
        raise UsageError("mean(…) takes two methods or more: mean(lrp,attnlrp).")

    def run(job: Run) -> Outcome:
        return average_outcomes([part.run(job) for part in parts])

    names = ",".join(part.name for part in parts)
    rules = tuple(dict.fromkeys(rule for part in parts for rule in part.rules))
    return Method(f"mean({names})", f"the mean of {names}", run, rules, gradient=True, group="rules")


def average_outcomes(found: Sequence[Outcome]) -> Outcome:
    """Explanations of one score by several methods, as one."""
    first = found[0]
    beside: list[tuple[Captured, Tensor]] = [
        (one, mean_of([gradient, *(other for _, other in others)]))
        for (one, gradient), *others in zip(*(outcome.beside for outcome in found), strict=True)
    ]
    return replace(
        first,
        readout=mean_of([outcome.readout for outcome in found]),
        relevance=[mean_of(parts) for parts in zip(*(outcome.relevance for outcome in found), strict=True)],
        gradients=[mean_of(parts) for parts in zip(*(outcome.gradients for outcome in found), strict=True)],
        beside=beside,
        books=average_books([outcome.books for outcome in found]),
        constants=average_constants([outcome.constants for outcome in found], len(first.score)),
        met=dict(sum((Counter(outcome.met) for outcome in found), Counter())),
    )


def average_books(found: Sequence[Books]) -> Books:
    """All their lines, each with its share of the mean. Lines of one name are added up where they are read."""
    joined = Books(found[0].samples, found[0].length)
    for books in found:
        start = len(joined.sites)
        joined.sites += books.sites
        joined.amounts |= {start + index: amount / len(found) for index, amount in books.amounts.items()}
        joined.sizes |= {start + index: size / len(found) for index, size in books.sizes.items()}
    return joined


def average_constants(found: Sequence[dict[str, list[float]]], samples: int) -> dict[str, list[float]]:
    """Lines by name; a method that lacks a line has zero there."""
    names = dict.fromkeys(name for lines in found for name in lines)
    empty = [0.0] * samples
    return {
        name: [sum(values) / len(found) for values in zip(*(lines.get(name, empty) for lines in found), strict=True)]
        for name in names
    }


@family
def parse_baseline(name: str) -> Method | None:
    """baseline(lrp-gamma(0.02))."""
    match = re.fullmatch(r"baseline\((.*)\)", name)
    return compare_with_baseline(resolve_method(match[1])) if match else None


@family
def parse_mean(name: str) -> Method | None:
    """mean(lrp,attnlrp)."""
    match = re.fullmatch(r"mean\((.*)\)", name)
    return average_methods([resolve_method(part) for part in split_names(match[1])]) if match else None
