"""`audit_bias`: relevance of groups of words or phrases over a set of texts, for any classifier."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from .. import methods as registry
from ..api.explain import explain
from ..api.requests import Model, take_model
from ..engine.kind import choose_method, choose_output
from ..engine.model import prepare_model
from ..errors import DataError, HeadwaterError, UsageError
from ..evaluation.progress import show_progress
from ..evaluation.provenance import describe_work
from ..evaluation.statistics import PERMUTATIONS
from ..evaluation.stored import check_asked, open_given_run
from ..inputs.restoring import restores
from ..inputs.text import encode, length_limit
from ..results.explanation import Explanation
from ..store.runs import StoredRun
from . import saving  # noqa: F401 - a BiasAudit is written by it
from .analysis import Resampling, analyse, relevance_of
from .calibration import PLANTED, Calibration, calibrate
from .effects import Sums, entry_sums
from .finding import Finder
from .groups import GENDER_NAMES, read_groups
from .mentions import Explained, collect
from .results import BiasAudit, Swap
from .swaps import Scores, Tick, compare_swaps, make_scorer
from .texts import DEFAULT, Texts, read_texts

CHUNK = 16  # batches explained between two steps of the bar, texts of like length together


@restores
def audit_bias(
    model: Model,
    data: Any = DEFAULT,
    *,
    tokenizer: Any = None,
    groups: Any = GENDER_NAMES,
    case: bool = False,
    method: str | None = None,
    target: Any = None,
    output: str | None = None,
    at: str = "embeddings",
    text_column: str = "text",
    part_column: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    permutations: int = PERMUTATIONS,
    swaps: int = 0,
    calibration: int = 0,
    batch_size: int = 32,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    truncate: bool = False,
    progress: bool | None = None,
) -> BiasAudit:
    """Whether groups of words push a model's score differently: `b["female"].mean`, `b.comparisons`, `b.save(path)`.

    Only texts with a mention are explained.

    Args:
        model: as for `explain`.
        data: "sst2", a path (parquet, csv, tsv, jsonl), a list of texts, or anything with columns by name. The
            directory of a run (`hw.run`) by this model and method, for one score in all rows, is such data, too: then
            nothing is explained, it is read there.
        tokenizer: as for `explain`.
        groups: "gender-names" (people's first names, joined with what follows them), a file of phrases by group (.json,
            .csv, .tsv), or such a mapping.
        case: makes capitals count in the phrases.
        method: as for `explain`.
        target: as for `explain`; it is the score. For a model of two classes it is their difference unless said
            otherwise: positive minus negative, or the second minus the first.
        output: as for `explain`.
        at: as for `explain`.
        text_column: the column of the texts.
        part_column: names parts of the data that are reported one by one, too.
        limit: draws at most so many texts, by the seed.
        seed: of all that is drawn.
        permutations: random labellings in the test.
        swaps: every mention is also replaced by that many members of each group, and the scores are compared.
        calibration: the test itself is checked on that many random labellings of the same entries.
        batch_size: as for `explain`.
        device: as for `explain`.
        dtype: as for `explain`.
        truncate: as for `explain`.
        progress: shows a bar; None does so on a terminal.

    Returns:
        A `BiasAudit`.

    Raises:
        UsageError: an option is wrong, or there are fewer than two groups.
        DataError: the data is missing, or no text has a mention.
        ModelError: as for `explain`.

    Example:
        >>> names = {"female": ["Anna", "Mary"], "male": ["John", "Paul"]}
        >>> texts = [f"{name} is {how} here" for group in names.values() for name in group for how in ("fine", "dull")]
        >>> b = hw.audit_bias("headwater/sentiment", texts, groups=names, permutations=100, progress=False)
        >>> b["female"].mentions
        4
    """
    if method is not None:
        registry.resolve_method(method)  # a method that does not exist is refused before any work
    if permutations < 1 or swaps < 0 or calibration < 0:
        raise UsageError(
            "permutations must be at least 1, swaps and calibration at least 0, "
            f"not {permutations}, {swaps} and {calibration}."
        )
    finder = read_groups(groups, case)
    model, readers = take_model(model, {"tokenizer": tokenizer, "device": device})
    tokenizer = readers["tokenizer"]
    ready = prepare_model(model, device, dtype)
    chosen, output = choose_method(method, ready).name, choose_output(output, ready)
    run = open_given_run(data, model)
    if run is not None:
        score = read_target(run, target)
        check_same_run(run, {"method": chosen, "output": output, "at": at, "seed": seed})
        texts = read_stored_texts(run, part_column).draw(limit, seed)
    else:
        score = target if target is not None else default_target(ready)
        texts = read_texts(data, text_column, part_column, tokenizer).draw(limit, seed)
    found = [finder.find(text) for text in texts.texts]
    wanted = texts.choose([i for i, one in enumerate(found) if one.hits])
    if run is None:
        check_lengths(ready, tokenizer, wanted, truncate)
    about = describe_audit(model, ready, texts, finder, seed)
    began = time.perf_counter()
    options = {"method": chosen, "target": score, "output": output, "at": at, "truncate": truncate, "seed": seed}
    made = Made()
    if run is not None:
        about["run"] = run.manifest.job
        explained = made.read_stored(run, wanted)
    else:
        explained = made.explain_texts(ready, tokenizer, wanted, batch_size, progress, options)
    collected = collect(explained, finder)
    others = [i for i, one in enumerate(found) if not one.hits]
    collected = collected.plus((skip for i in others for skip in found[i].skipped), (texts.parts[i] for i in others))
    settings = Resampling(seed, permutations)
    about |= {"batch_size": batch_size, "output": output, "at": at, "permutations": permutations}
    about |= {"resamples": settings.resamples, "swaps": swaps}
    audit = analyse(collected, finder, made.target, chosen, about, settings)
    if swaps:
        ask = partial(make_scorer, ready, tokenizer, score, output, batch_size)
        audit = replace(audit, swaps=tuple(swap(audit, ask, swaps, progress, settings)))
    if calibration:
        audit = replace(audit, calibrations=tuple(calibrate_comparisons(audit, calibration, seed, progress)))
    about["seconds"] = round(time.perf_counter() - began, 3)
    return audit


def swap(
    audit: BiasAudit, ask: Callable[[Tick], Scores], draws: int, progress: bool | None, settings: Resampling
) -> list[Swap]:
    """The texts asked again with members of every group in the place of each mention.

    `ask` gives the scores of texts, and tells the bar how many are done.
    """
    total = draws * len(audit.mentions) * len(audit.groups)
    with show_progress(total, 0, progress, "swapping") as tick:
        return compare_swaps(audit.mentions, ask(tick), draws, settings)


def calibrate_comparisons(audit: BiasAudit, labellings: int, seed: int, progress: bool | None) -> Iterator[Calibration]:
    """The test of every comparison, asked about random labels on the same entries."""
    with show_progress(labellings * (1 + len(PLANTED)) * len(audit.comparisons), 0, progress, "labelling") as tick:
        for c in audit.comparisons:
            sums = sums_of(audit, c.first), sums_of(audit, c.second)
            yield calibrate((c.first, c.second), sums, c.effect.detectable, labellings, seed, tick)


def sums_of(audit: BiasAudit, group: str) -> Sums:
    mentions = [m for m in audit.mentions if m.group == group]
    return entry_sums(relevance_of(mentions), [m.entry for m in mentions])


class Made:
    """Explanations as they are made, a chunk at a time, so that none is kept; remembers what the score is called."""

    target: str = ""

    def read_stored(self, run: StoredRun, texts: Texts) -> Iterator[Explained]:
        """Those that a run has made already."""
        for row, name in zip(texts.rows, texts.parts, strict=True):
            explanation = run.explanation(row)
            assert explanation is not None  # `texts` are the rows of the run
            self.target = self.target or explanation.target
            yield Explained.of(explanation, row, name)

    def explain_texts(
        self,
        model: nn.Module,
        tokenizer: Any,
        texts: Texts,
        batch_size: int,
        progress: bool | None,
        options: dict[str, Any],
    ) -> Iterator[Explained]:
        size = CHUNK * batch_size
        with show_progress(len(texts), 0, progress, "explaining") as tick:
            for start in range(0, len(texts), size):
                part = texts.choose(range(start, min(start + size, len(texts))))
                found: list[Explanation] = explain(
                    model, part.texts, tokenizer=tokenizer, batch_size=batch_size, **options
                )
                tick(len(part))
                self.target = self.target or found[0].target
                for explanation, row, name in zip(found, part.rows, part.parts, strict=True):
                    yield Explained.of(explanation, row, name)


def read_target(run: StoredRun, target: Any) -> Any:
    """The score that a run explained. Each row's own prediction is no score that rows could be compared by."""
    found = run.manifest.asked["target"]
    if found is None:
        raise UsageError(
            f"{run.path} explains what each row predicts; groups are compared by one score. Run it with a target, such "
            "as --target 'positive - negative', into another directory."
        )
    if target is not None:
        check_same_run(run, {"target": target})
    return found


def read_stored_texts(run: StoredRun, part_column: str | None) -> Texts:
    part = None if part_column is None else run.carried(part_column)
    rows = list(run.rows(["row_id", "text", *([] if part is None else [part])]))
    parts = ["" if part is None else str(row[part]) for row in rows]
    return Texts([row["text"] for row in rows], [row["row_id"] for row in rows], parts, str(run.path))


def check_same_run(run: StoredRun, wanted: Mapping[str, Any]) -> None:
    for name, value in wanted.items():
        check_asked(run, name, value, f"its {name}")


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


def describe_audit(given: nn.Module, ready: nn.Module, texts: Texts, finder: Finder, seed: int) -> dict[str, Any]:
    """What is needed to repeat the result."""
    found = {
        "data": texts.source,
        "data_sha256": texts.sha256,
        "groups": finder.source,
        "groups_sha256": finder.sha256,
    }
    return describe_work(given, ready, seed, found)
