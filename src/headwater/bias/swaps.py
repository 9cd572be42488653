"""The same texts with other members put in: what the model does when only the name changes.

Relevance compares members where they stand, and groups stand in different sentences. Here every sentence is asked with
members of every group in turn, so that context cannot set the groups apart. The texts are no longer ones that somebody
wrote: read it beside the relevance, not instead of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import nn

from ..engine.forward import without_cache
from ..engine.model import where_it_is
from ..errors import NotFinite
from ..inputs.batch import group_by_length
from ..inputs.targets import Reader
from ..inputs.text import encode, keeps_places, length_limit, padding_id, padding_side, to_batch
from .analysis import Resampling
from .effects import effect
from .mentions import Mention
from .results import Swap

Scores = Callable[[Sequence[str]], Sequence[float]]
Tick = Callable[[float], None]


@dataclass(frozen=True)
class SwapTrial:
    """A text with a member of `group` in the place of mention number `mention`."""

    mention: int
    group: str
    entry: str
    text: str


def make_trials(mentions: Sequence[Mention], draws: int, seed: int) -> Iterator[SwapTrial]:
    """For each mention and each group, `draws` members of the group that occur somewhere in these texts."""
    members = {group: sorted({m.entry for m in mentions if m.group == group}) for group in groups_of(mentions)}
    random = np.random.default_rng(seed)
    for number, mention in enumerate(mentions):
        for group, entries in members.items():
            for place in random.permutation(len(entries))[:draws].tolist():
                yield SwapTrial(number, group, entries[place], with_entry(mention, entries[place]))


def groups_of(mentions: Sequence[Mention]) -> list[str]:
    return list(dict.fromkeys(m.group for m in mentions))


def with_entry(mention: Mention, entry: str) -> str:
    """The text with another entry, written as the one it replaces: only the first name of a full name changes."""
    text, start = mention.text, mention.start
    there = text[start : start + len(mention.entry)]
    end = start + len(there) if there.casefold() == mention.entry.casefold() else mention.end
    return text[:start] + write_like(entry, text[start:end]) + text[end:]


def write_like(entry: str, model: str) -> str:
    if model.isupper():
        return entry.upper()
    return entry.title() if model[:1].isupper() else entry


def compare_swaps(mentions: Sequence[Mention], scores: Scores, draws: int, settings: Resampling) -> list[Swap]:
    """Every pair of groups, put into the same places.

    The mean score of each place is subtracted first, so that differences between places do not count. The bootstrap
    and the permutation test work on members, as in the other comparisons.
    """
    tried = list(make_trials(mentions, draws, settings.seed))
    found = np.array(scores([trial.text for trial in tried]), dtype=np.float64)
    places = np.array([trial.mention for trial in tried])
    groups = np.array([trial.group for trial in tried])
    centred = found - average_by_place(found, places, groups)[places]
    entries = [trial.entry for trial in tried]
    how = (settings.seed, settings.permutations, settings.resamples)
    pairs = []
    for first, second in combinations(groups_of(mentions), 2):
        values = [
            (centred[groups == g], [e for e, at in zip(entries, groups == g, strict=True) if at])
            for g in (first, second)
        ]
        if all(len(set(many)) > 1 for _, many in values):
            pairs.append(Swap(first, second, effect(values[0], values[1], *how), len(mentions), len(tried)))
    return pairs


def average_by_place(scores: np.ndarray[Any, Any], places: np.ndarray[Any, Any], groups: np.ndarray[Any, Any]) -> Any:
    """The mean of each place over groups, each group counting once."""
    means = []
    for group in np.unique(groups):
        at = groups == group
        means.append(np.bincount(places[at], scores[at]) / np.bincount(places[at]))
    return np.mean(means, axis=0)


def make_scorer(model: nn.Module, tokenizer: Any, target: Any, output: str, batch_size: int, tick: Tick) -> Scores:
    """The score of texts, by forward passes alone; what is too long for the model is cut."""
    reader = Reader(model, tokenizer, target, output)
    device, _ = where_it_is(model)
    pad, side, limit = padding_id(model, tokenizer), padding_side(model, tokenizer), length_limit(model, tokenizer)

    def scores(texts: Sequence[str]) -> list[float]:
        encoded = encode(list(texts), tokenizer, limit, True)
        found = [0.0] * len(texts)
        lengths, most = [e.length for e in encoded], batch_size if pad is not None else 1
        for group in group_by_length(lengths, most=most, mixes=keeps_places(side)):
            batch = to_batch([encoded[i] for i in group], pad, side, []).to(device, None)
            with torch.inference_mode():
                read = reader(model(**{**without_cache(model), **batch.kwargs}), batch).score.double()
            if not bool(read.isfinite().all()):
                raise NotFinite("the score is not finite for a text with another name in it.")
            for i, value in zip(group, read.tolist(), strict=True):
                found[i] = value
            tick(len(group))
        return found

    return scores
