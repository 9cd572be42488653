"""Methods side by side on pairs of texts: what removing words, and pairs of words, does; evidence of HotpotQA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headwater.evaluation.statistics import compare_pairs, resample_means

from .explaining import PairRelevance, explain_pair
from .pairs import QuestionPair
from .removing import MaskedPair, MaskedText

MEASURES = ("words of a", "words of b", "pairs", "evidence")
DECISIVE = 3  # words of an evidence sentence that are removed
Row = dict[str, dict[str, float]]  # by measure and method


def measure_pair(model: Any, tokenizer: Any, found: QuestionPair, methods: Sequence[str]) -> Row:
    """Every measure of every method on one pair."""
    pair = MaskedPair(MaskedText(model, tokenizer, found.question), MaskedText(model, tokenizer, found.sentence))
    nearest = find_nearest(pair, found.others) if methods else None
    row: Row = {measure: {} for measure in MEASURES}
    for method in methods if nearest is not None or not found.further else ():
        relevance = explain_pair(pair, method)
        if not found.further:
            row["words of a"][method] = pair.measure_side(relevance.rows, 0)
            row["words of b"][method] = pair.measure_side(relevance.columns, 1)
            row["pairs"][method] = pair.measure_pairs(relevance.matrix)
        if nearest is not None:
            row["evidence"][method] = lose_place(pair, relevance, nearest)
    return row


def find_nearest(pair: MaskedPair, others: Sequence[str]) -> float | None:
    """The largest cosine of the question with a sentence that is no evidence; None where the evidence is below it."""
    if not others:
        return None
    texts = [MaskedText(pair.a.model, pair.a.tokenizer, text) for text in others]
    (question,) = pair.a.without([frozenset()])
    best = max(float(question @ text.without([frozenset()])[0]) for text in texts if text.words)
    return best if float(pair.score([(frozenset(), frozenset())])[0]) > best else None


def lose_place(pair: MaskedPair, relevance: PairRelevance, nearest: float) -> float:
    """1 where the evidence falls below the nearest other sentence without its `DECISIVE` most relevant words."""
    top = frozenset(np.argsort(-relevance.columns, kind="stable")[:DECISIVE].tolist())
    return float(pair.score([(frozenset(), top)])[0] < nearest)


def summarise(rows: Sequence[Row], methods: Sequence[str], first: str, seed: int = 0) -> list[dict[str, Any]]:
    """For each measure and method: the mean, and the paired difference of `first` to it with its 95 % interval."""
    lines = []
    for measure in MEASURES:
        used = [row[measure] for row in rows if row[measure]]
        if not used:
            continue
        values = {method: np.array([row[method] for row in used]) for method in methods}
        means = {method: resample_means(one[:, None], seed)[:, 0] for method, one in values.items()}
        for method in methods:
            pair = ((first, values[first], means[first]), (method, values[method], means[method]))
            difference = compare_pairs(measure, *pair, higher=True)
            lines.append(
                {
                    "measure": measure,
                    "method": method,
                    "pairs": len(used),
                    "mean": float(values[method].mean()),
                    "difference": difference.value,
                    "low": difference.low,
                    "high": difference.high,
                }
            )
    return lines


def write_table(lines: Sequence[Mapping[str, Any]], first: str) -> str:
    """A row per method, a column per measure: the mean, and what `first` has more, with its interval."""
    measures = list(dict.fromkeys(line["measure"] for line in lines))
    counts = {line["measure"]: line["pairs"] for line in lines}
    head = "| method | " + " | ".join(f"{name} ({counts[name]})" for name in measures) + " |"
    table = [head, "|---|" + "---:|" * len(measures)]
    for method in dict.fromkeys(line["method"] for line in lines):
        cells = [write_cell(line, method == first) for line in lines if line["method"] == method]
        table.append(f"| `{method}` | " + " | ".join(cells) + " |")
    return "\n".join(table)


def write_cell(line: Mapping[str, Any], is_first: bool) -> str:
    if is_first:
        return f"{line['mean']:.3f}"
    return f"{line['mean']:.3f} ({line['difference']:+.3f}, {line['low']:+.3f} to {line['high']:+.3f})"
