"""The study: every setting on every prompt of a half, kept as it goes, and a table at the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from headwater.errors import UsageError
from headwater.evaluation.kept_lines import KeptLines
from headwater.evaluation.language.study import describe_tools
from headwater.evaluation.provenance import model_sha256
from headwater.evaluation.statistics import MeanEstimate, resample_means, with_interval
from headwater.viz.tables import markdown_rows

from ..prompts import KINDS, Prompt
from .measuring import effects, measure_answer
from .questions import Question
from .replacing import Answers, Substitutes
from .settings import OURS, Setting

DRAWS = 4
COLUMNS = {
    "found": "finds the decisive word ↑",
    "before": "… before the last ↑",
    "activation": "activation ↑",
    "pruning": "pruning error ↓",
    "agreement": "agreement ↑",
}


@dataclass(frozen=True)
class StudyRow:
    """One setting on one prompt."""

    prompt: str
    kind: str
    setting: str
    answer: str
    decisive: str
    first: str
    ledger_error: float | None  # of a setting that has a ledger
    found: bool
    before: bool
    activation: float
    pruning: float
    agreement: float


def study(
    model: nn.Module,
    tokenizer: Any,
    prompts: Sequence[Prompt],
    settings: Iterable[str],
    *,
    pool: Sequence[Prompt] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    out: Path | None = None,
) -> Iterator[StudyRow]:
    """Rows as they are found. With `out`, a file of JSON lines, what stands there is not computed again.

    Words that stand in for others are those of `pool`, by default of the prompts themselves. With a whole half as the
    pool, a part of its prompts gives the rows that it has among all of them.
    """
    chosen = [Setting.parse(text) for text in settings]
    if not chosen or not prompts:
        raise UsageError("a study needs at least one setting and one prompt.")
    pool = prompts if pool is None else pool
    about = {"model": model_sha256(model), "draws": draws, "seed": seed, "pool": [p.id for p in pool]}
    kept = KeptLines.open(out, about, describe_tools(model))
    known = {(row.prompt, row.setting): row for row in (StudyRow(**line) for line in kept.lines)}
    questions = [Question.of(model, tokenizer, prompt) for prompt in prompts]
    substitutes = Substitutes.of(tokenizer, pool)
    for question in questions:
        answers: Answers | None = None
        for setting in chosen:
            row = known.get((question.prompt.id, str(setting)))
            if row is None:
                answers = answers or Answers(model, question, substitutes.draw(question, draws, seed))
                row = judge_setting(model, tokenizer, answers, setting, seed)
                kept.add(asdict(row))
            yield row


def judge_setting(model: nn.Module, tokenizer: Any, answers: Answers, setting: Setting, seed: int) -> StudyRow:
    """One setting's explanation of one answer, measured."""
    question = answers.question
    taken = effects(answers)
    relevance, error = setting.words(model, tokenizer, question, seed)
    found = measure_answer(answers, relevance, taken)
    return StudyRow(
        question.prompt.id,
        question.prompt.kind,
        str(setting),
        str(tokenizer.decode([question.answer])),
        question.words[int(taken.argmax())].text,
        question.words[int(np.argmax(relevance))].text,
        error,
        **asdict(found),
    )


def summarise_settings(rows: Sequence[StudyRow]) -> dict[str, dict[str, MeanEstimate]]:
    """Means over prompts with 95 % bootstrap intervals, setting by setting; all are resampled alike."""
    settings = list(dict.fromkeys(row.setting for row in rows))
    prompts = list(dict.fromkeys(row.prompt for row in rows))
    at = {(row.prompt, row.setting): row for row in rows}
    found = {}
    for setting in settings:
        values = np.array([[float(getattr(at[p, setting], name)) for name in COLUMNS] for p in prompts])
        found[setting] = mean_by_column(values)
    return found


def paired_difference(rows: Sequence[StudyRow], first: str, second: str) -> dict[str, MeanEstimate]:
    """What the first setting has above the second, prompt by prompt: means with 95 % bootstrap intervals."""
    at = {(row.prompt, row.setting): row for row in rows}
    prompts = [prompt for prompt, setting in at if setting == first and (prompt, second) in at]
    values = [
        np.array([[float(getattr(at[p, setting], name)) for name in COLUMNS] for p in prompts])
        for setting in (first, second)
    ]
    return mean_by_column(values[0] - values[1])


def mean_by_column(values: np.ndarray) -> dict[str, MeanEstimate]:
    """Values [prompts, columns] -> their means with intervals, by name."""
    means = resample_means(values, seed=0)
    return {name: with_interval(float(values[:, i].mean()), means[:, i]) for i, name in enumerate(COLUMNS)}


def study_page(rows: Sequence[StudyRow]) -> str:
    """Markdown: all prompts with intervals; the default beside the others, paired; decisive words by kind of prompt."""
    found = summarise_settings(rows)
    cells = {}
    for setting, estimates in found.items():
        errors = [row.ledger_error for row in rows if row.setting == setting and row.ledger_error is not None]
        cells[setting] = [*map(format_estimate, estimates.values()), f"{max(errors):.1e}" if errors else ""]
    lines = setting_table([*COLUMNS.values(), "largest ledger error"], cells)
    if OURS in found and len(found) > 1:
        gaps = {setting: paired_difference(rows, OURS, setting).values() for setting in found if setting != OURS}
        lines += ["", f"`{OURS}` minus the others, prompt by prompt:", ""]
        lines += setting_table([*COLUMNS.values()], {name: [*map(format_estimate, own)] for name, own in gaps.items()})
    kinds = [kind for kind in KINDS if any(row.kind == kind for row in rows)]
    shares = {
        setting: [np.mean([r.found for r in rows if r.setting == setting and r.kind == kind]) for kind in kinds]
        for setting in found
    }
    lines += ["", "Decisive words found, by kind of prompt:", ""]
    lines += setting_table(kinds, {name: [f"{share:.2f}" for share in own] for name, own in shares.items()})
    return "\n".join(lines) + "\n"


def setting_table(columns: Sequence[str], cells: Mapping[str, Sequence[str]]) -> list[str]:
    """A row per setting."""
    return markdown_rows(["setting", *columns], ([f"`{setting}`", *own] for setting, own in cells.items()))


def format_estimate(e: MeanEstimate) -> str:
    digits = 1 if abs(e.value) >= 10 else 2 if abs(e.value) >= 1 else 3
    return f"{e.value:.{digits}f} ({e.low:.{digits}f} to {e.high:.{digits}f})"
