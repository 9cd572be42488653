"""`headwater paper train`: the paper's small transformer, or MiniLM as a whole, on one of the seven text datasets."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging

from headwater.errors import UnknownName, UsageError
from headwater.models.loading import load
from headwater.models.pretrained import MINILM, locate
from headwater_experiments.data import Experiment, experiment
from headwater_experiments.models.distilbert import as_distilbert
from headwater_experiments.models.low_rank import save_low_rank, train_in_low_rank
from headwater_experiments.models.text_transformer import TextTransformerForSequenceClassification, save_compact
from headwater_experiments.paper.checkpoints import RECIPES
from headwater_experiments.training.accuracy import Accuracy

from .cards import TITLES, text_card
from .fitting import Fitted, TextRecipe, evaluate_loss, fit_text
from .tokens import Tokenised

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

KINDS = ("small", "minilm", "distilbert")
RECORD = "training.json"

# As the paper and its code have it. Decay is not given there, and is torch's. The mask is kept: with it ignored, what
# is predicted of a text depends on the texts beside it.
PAPER = TextRecipe(rounds=20, batch=32, rate=2e-5, patience=20, warmup=0.0, unscaled=True, bfloat16=False)
# Chosen on the validation parts. Tokens are replaced by [UNK], which is what the paper's protocol removes them with.
TUNED = TextRecipe(rounds=20, batch=64, rate=2e-4, dropout=0.2, decay=0.05, word_dropout=0.1, average=500, patience=5)
TUNED_LONG = replace(TUNED, rate=3e-4, dropout=0.1, word_dropout=0.5, average=1000)
# Of three recipes the best in mean validation accuracy over the seven datasets.
WHOLE = TextRecipe(rounds=4, batch=64, rate=1e-4, smoothing=0.1, average=300, patience=3)
# Of three rates the best in mean validation accuracy over T-Emotions, Semaine and Meld-S.
LOW_RANK = replace(WHOLE, rounds=6, rate=2e-3, rank=8)


def recipe_for(kind: str, dataset: str, name: str = "tuned", **changes: Any) -> TextRecipe:
    """The recipe of a model on a dataset, with other choices in place of some; those that are None are left.

    MiniLM and what is made of it have one recipe, the tuned one.
    """
    if name not in RECIPES:
        raise UnknownName("recipe", name, RECIPES)
    if kind != "small":
        if name == "paper":
            raise UsageError(
                f"the paper did not train {TITLES[kind]}: --recipe paper says nothing of it. Leave it out."
            )
        recipe = LOW_RANK if kind == "minilm" else WHOLE
        if changes.get("rank") == 0:
            recipe = WHOLE
    elif name == "paper":
        recipe = PAPER
    else:
        recipe = TUNED_LONG if dataset == "imdb" else TUNED
    return replace(recipe, **{choice: value for choice, value in changes.items() if value is not None})


@dataclass(frozen=True)
class Training:
    """What a training gave. `test` was looked at once, when everything was chosen."""

    dataset: str
    model: str
    seed: int
    recipe_name: str
    recipe: TextRecipe
    fitted: Fitted
    test: Accuracy
    parameters: int
    trained_on: str
    notes: tuple[str, ...]
    embeddings: str

    @property
    def changes(self) -> dict[str, Any]:
        """The choices that are other than those of the recipe of that name."""
        usual = asdict(recipe_for(self.model, self.dataset, self.recipe_name))
        return {name: value for name, value in asdict(self.recipe).items() if value != usual[name]}

    def to_dict(self) -> dict[str, Any]:
        low, high = self.test.interval
        best = self.fitted.best
        return {
            **{name: value for name, value in vars(self).items() if name not in ("recipe", "fitted", "test")},
            "test": {**asdict(self.test), "accuracy": self.test.value, "low": low, "high": high},
            "validation": {**asdict(best.validation), "accuracy": best.validation.value},
            "recipe": asdict(self.recipe),
            "changes": self.changes,
            "rounds": len(self.fitted.rounds),
            "best_round": self.fitted.rounds.index(best) + 1,
            "seconds": self.fitted.seconds,
        }


def train_text(
    dataset: str,
    out: Path,
    *,
    kind: str = "small",
    recipe: str = "tuned",
    seed: int = 0,
    device: str = "cpu",
    embeddings: str = MINILM,
    **changes: Any,
) -> Training:
    """Train, choose the round on the validation part, write the model to `out`, and look at the test part once.

    `recipe` is "paper" or "tuned"; `changes` are fields of `TextRecipe` that differ from it. `embeddings` names the
    BERT whose embeddings the small model stands on, or the one that is fine-tuned. Cut off, the same call goes on after
    the last whole round.
    """
    if kind not in KINDS:
        raise UnknownName("model", kind, KINDS)
    choices = recipe_for(kind, dataset, recipe, **changes)
    parts = experiment(dataset)
    torch.manual_seed(seed)
    model, tokenizer = new_classifier(kind, parts, embeddings, choices)
    tokens = Tokenised.of(parts, tokenizer, choices.longest)
    state = out / "training-state.pt"
    fitted = fit_text(model.to(device), tokens, choices, seed, int(tokenizer.unk_token_id), state)
    write_model(model, tokenizer, out, embeddings, choices.rank)
    written, _ = load(out, device=device)
    found = Training(
        dataset=dataset,
        model=kind,
        seed=seed,
        recipe_name=recipe,
        recipe=choices,
        fitted=fitted,
        test=evaluate_loss(written, tokens.test)[0],
        parameters=sum(p.numel() for p in written.parameters()),
        trained_on=device_name(device),
        notes=parts.notes,
        embeddings=embeddings,
    )
    (out / RECORD).write_text(json.dumps(found.to_dict(), indent=2) + "\n", encoding="utf-8")
    (out / "README.md").write_text(text_card(found.to_dict(), parts.dataset), encoding="utf-8")
    state.unlink(missing_ok=True)
    return found


def new_classifier(
    kind: str, parts: Experiment, embeddings: str, recipe: TextRecipe
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model before training, and its tokenizer."""
    names = parts.dataset.label_names
    labels = {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}
    source = locate(embeddings)
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()  # a new head is meant to be random
    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
        if kind == "small":
            switches = {"dropout": recipe.dropout, "unscaled": recipe.unscaled, "ignore_mask": recipe.ignore_mask}
            made = TextTransformerForSequenceClassification.new(embeddings, **switches, **labels)
            return made, tokenizer
        if kind == "distilbert":
            bert = AutoModel.from_pretrained(source, dtype=torch.float32, use_safetensors=True)
            return as_distilbert(bert, num_labels=len(names), **labels), tokenizer
        whole = AutoModelForSequenceClassification.from_pretrained(
            source, dtype=torch.float32, use_safetensors=True, num_labels=len(names), **labels
        )
        return train_in_low_rank(whole, recipe.rank) if recipe.rank else whole, tokenizer
    finally:
        logging.set_verbosity(verbosity)


def write_model(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, out: Path, embeddings: str, rank: int
) -> None:
    """What was trained of the small model or in low rank in four bits; others whole, in half precision."""
    if isinstance(model, TextTransformerForSequenceClassification):
        save_compact(model, out)
        return
    if rank:
        save_low_rank(model, out, embeddings, rank)
        return
    model.save_pretrained(out, state_dict={name: value.half() for name, value in model.state_dict().items()})
    tokenizer.save_pretrained(out)


def device_name(device: str) -> str:
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else "CPU"
