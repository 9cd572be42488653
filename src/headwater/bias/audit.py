"""`audit_bias`: relevance of groups of words or phrases over a set of texts, for any classifier."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from .. import methods as registry
from ..api import describe, explain, prepared, where_it_is
from ..errors import DataError, HeadwaterError, UsageError
from ..explanation import Explanation
from ..inputs.text import encode, length_limit
from ..measures.progress import bar
from ..measures.provenance import machine, model_sha256, now, versions
from .analysis import Settings, analyse
from .effects import PERMUTATIONS
from .finding import Finder
from .groups import GENDER_NAMES, read_groups
from .mentions import Explained, collect
from .results import BiasAudit, Swap
from .swaps import scorer, swapped
from .texts import DEFAULT, Texts, read_texts

CHUNK = 16  # batches explained between two steps of the bar, texts of like length together


def audit_bias(
    model: nn.Module,
    data: Any = DEFAULT,
    *,
    tokenizer: Any = None,
    groups: Any = GENDER_NAMES,
    case: bool = False,
    method: str = "lrp",
    target: Any = None,
    output: str = "logit",
    at: str = "embeddings",
    text_column: str = "text",
    part_column: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    permutations: int = PERMUTATIONS,
    swaps: int = 0,
    batch_size: int = 32,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    truncate: bool = False,
    progress: bool | None = None,
) -> BiasAudit:
    """Whether groups of words push a model's score differently: `b["female"].mean`, `b.comparisons`, `b.save(path)`.

    `data` is "sst2", a path (parquet, csv, tsv, jsonl), a list of texts, or anything with columns by name;
    `part_column` names parts of it that are reported one by one, too. `groups` is "gender-names" (people's first names,
    joined with what follows them), a file of phrases by group (.json, .csv, .tsv), or such a mapping; `case` makes
    capitals count in it. Only texts with a mention are explained.

    `target` is the score, as for `explain`. For a model of two classes it is their difference unless said otherwise:
    positive minus negative, or the second minus the first. `permutations`: random labellings in the test. With
    `swaps`, every mention is also replaced by that many members of each group, and the scores are compared.
    """
    chosen = registry.resolve(method).name
    if permutations < 1 or swaps < 0:
        raise UsageError(f"permutations must be at least 1 and swaps at least 0, not {permutations} and {swaps}.")
    finder = read_groups(groups, case)
    ready = prepared(model, device, dtype)
    score = target if target is not None else default_target(ready)
    texts = read_texts(data, text_column, part_column, tokenizer).drawn(limit, seed)
    found = [finder.find(text) for text in texts.texts]
    wanted = texts.chosen([i for i, one in enumerate(found) if one.hits])
    check_lengths(ready, tokenizer, wanted, truncate)
    about = provenance(model, ready, texts, finder, seed)
    began = time.perf_counter()
    options = {"method": method, "target": score, "output": output, "at": at, "truncate": truncate, "seed": seed}
    made = Made()
    collected = collect(made.explained(ready, tokenizer, wanted, batch_size, progress, options), finder)
    others = [i for i, one in enumerate(found) if not one.hits]
    collected = collected.plus((skip for i in others for skip in found[i].skipped), (texts.parts[i] for i in others))
    settings = Settings(seed, permutations)
    about |= {"batch_size": batch_size, "output": output, "at": at, "permutations": permutations}
    about |= {"resamples": settings.resamples, "swaps": swaps}
    audit = analyse(collected, finder, made.target, chosen, about, settings)
    if swaps:
        found_swaps = swap(audit, ready, tokenizer, score, swaps, batch_size, progress, settings)
        audit = replace(audit, swaps=tuple(found_swaps))
    about["seconds"] = round(time.perf_counter() - began, 3)
    return audit


def swap(
    audit: BiasAudit,
    model: nn.Module,
    tokenizer: Any,
    target: Any,
    draws: int,
    batch_size: int,
    progress: bool | None,
    settings: Settings,
) -> list[Swap]:
    """The texts asked again with members of every group in the place of each mention."""
    total = draws * len(audit.mentions) * len(audit.groups)
    with bar(total, 0, progress, "swapping") as tick:
        scores = scorer(model, tokenizer, target, audit.provenance["output"], batch_size, tick)
        return swapped(audit.mentions, scores, draws, settings)


class Made:
    """Explanations as they are made, a chunk at a time, so that none is kept; remembers what the score is called."""

    target = ""

    def explained(
        self,
        model: nn.Module,
        tokenizer: Any,
        texts: Texts,
        batch_size: int,
        progress: bool | None,
        options: dict[str, Any],
    ) -> Iterator[Explained]:
        size = CHUNK * batch_size
        with bar(len(texts), 0, progress, "explaining") as tick:
            for start in range(0, len(texts), size):
                part = texts.chosen(range(start, min(start + size, len(texts))))
                found: list[Explanation] = explain(
                    model, part.texts, tokenizer=tokenizer, batch_size=batch_size, **options
                )
                tick(len(part))
                self.target = self.target or found[0].target
                for explanation, row, name in zip(found, part.rows, part.parts, strict=True):
                    yield Explained.of(explanation, row, name)


def default_target(model: nn.Module) -> str | None:
    """The difference of a model's two classes: positive minus negative where it has such, else second minus first."""
    labels = getattr(getattr(model, "config", None), "id2label", None) or {}
    names = [str(labels[i]) for i in sorted(labels)]
    if len(names) == 1:
        return None
    if len(names) != 2:
        said = f"has the classes {', '.join(names)}" if names else "does not name its classes"
        raise UsageError(f"the model {said}: say which score is audited, target='a - b' (--target).")
    lower = [name.lower() for name in names]
    if sorted(lower) == ["negative", "positive"]:
        return f"{names[lower.index('positive')]} - {names[lower.index('negative')]}"
    return "1 - 0" if any(" - " in name for name in names) else f"{names[1]} - {names[0]}"


def check_lengths(model: nn.Module, tokenizer: Any, texts: Texts, truncate: bool) -> None:
    """Every text can be run, or the first that cannot is named before any work is done."""
    if tokenizer is None:
        raise UsageError("texts need a tokenizer: audit_bias(model, data, tokenizer=tokenizer).")
    limit = length_limit(model, tokenizer)
    for text, row in zip(texts.texts, texts.rows, strict=True):
        try:
            encode([text], tokenizer, limit, truncate)
        except HeadwaterError as error:
            raise DataError(f"row {row} of {texts.source}: {error}") from error


def provenance(given: nn.Module, ready: nn.Module, texts: Texts, finder: Finder, seed: int) -> dict[str, Any]:
    """What is needed to repeat the result."""
    place, dtype = where_it_is(ready)
    about = describe(ready, place, dtype, seed)
    return {
        "model": about.model,
        "model_class": type(given).__name__,
        "model_sha256": model_sha256(given),
        "data": texts.source,
        "data_sha256": texts.sha256,
        "groups": finder.source,
        "groups_sha256": finder.sha256,
        "dtype": about.dtype,
        "seed": seed,
        "versions": versions(),
        **machine(place),
        "started": now(),
    }
