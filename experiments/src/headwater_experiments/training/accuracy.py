"""How often a classifier is right, with the interval that a sample of this size leaves open."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.errors import LoadError
from headwater_experiments.data import LabelledTexts, load

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

NORMAL_95 = 1.959964


@dataclass(frozen=True)
class Accuracy:
    """`correct` of `total` texts got their own label."""

    correct: int
    total: int

    @property
    def value(self) -> float:
        """The share of correct answers, 0 to 1, higher is better."""
        return self.correct / self.total

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95% interval for the share, which also holds near 0 and 1."""
        n, p, z = self.total, self.value, NORMAL_95
        middle = (p + z * z / (2 * n)) / (1 + z * z / n)
        half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)) / (1 + z * z / n)
        return middle - half, middle + half

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.value:.1%} ({self.correct} of {self.total}; 95% interval {low:.1%} to {high:.1%})"


def evaluate_accuracy(
    model: str | Path | None = None, split: str = "dev", device: str = "cpu", dataset: str = "sst2"
) -> Accuracy:
    """The accuracy of a model directory, or of the bundled model, on a split of a dataset.

    Weights are computed in float32, however they are stored.
    """
    from headwater.models.bundled import bundled_path, load_classifier

    classifier, tokenizer = load_classifier(bundled_path() if model is None else model)
    table = load(dataset, split)
    if classifier.config.num_labels != len(table.label_names):
        raise LoadError(
            f"{model} tells {classifier.config.num_labels} classes apart, {dataset} has {len(table.label_names)}: "
            f"{', '.join(table.label_names)}. Give a model that was trained on {dataset}."
        )
    return count_correct(classifier.to(device), tokenizer, table)


def count_correct(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, table: LabelledTexts, batch_size: int = 64
) -> Accuracy:
    """The accuracy of a loaded model on these texts, in evaluation mode; the mode it was in is put back."""
    import torch

    was_training = model.training
    model.eval()
    order = sorted(range(len(table)), key=lambda i: len(table.texts[i]))
    correct = 0
    with torch.inference_mode():
        for start in range(0, len(order), batch_size):
            rows = table.rows(order[start : start + batch_size])
            inputs = tokenizer(rows.texts, padding=True, truncation=True, return_tensors="pt").to(model.device)
            predicted = model(**inputs).logits.argmax(-1).tolist()
            correct += sum(p == label for p, label in zip(predicted, rows.labels, strict=True))
    model.train(was_training)
    return Accuracy(correct, len(table))
