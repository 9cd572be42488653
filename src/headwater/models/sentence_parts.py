"""What a model of sentence-transformers is made of: read from its modules, or from the files of its directory.

The package itself is not needed: a `SentenceTransformer` is known by its parts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from ..errors import DataError, NotApplicable

# In the order in which sentence-transformers joins the vectors, where a model has several.
MODES = {
    "cls_token": "cls",
    "max_tokens": "max",
    "mean_tokens": "mean",
    "mean_sqrt_len_tokens": "mean-sqrt",
    "weightedmean_tokens": "weighted-mean",
    "lasttoken": "last",
}
SPELLED = {"weightedmean": "weighted-mean", "mean_sqrt_len_tokens": "mean-sqrt", "lasttoken": "last"}
IDLE = ("Dropout",)  # does nothing in evaluation mode
TAIL = ("Dense", "LayerNorm")  # between pooling and vector
READS_PAIRS = "ForSequenceClassification"  # how the class of a cross-encoder ends


@dataclass(frozen=True)
class SentenceParts:
    """A transformer, what pools its states, what follows, and how texts are given to it."""

    model: nn.Module | None
    tokenizer: Any = None
    pooling: tuple[str, ...] = ("mean",)
    tail: tuple[nn.Module, ...] = ()
    unit: bool = False
    prompts: Mapping[str, str] = field(default_factory=dict)
    prompt_name: str | None = None
    pools_prompt: bool = True
    dimensions: int | None = None
    limit: int | None = None
    lower: bool = False


def is_sentence_model(model: Any) -> bool:
    """Whether it is a `SentenceTransformer`: a sequence of modules whose first holds a transformer."""
    first = next(iter(model.children()), None) if isinstance(model, nn.Sequential) else None
    return first is not None and isinstance(getattr(first, "auto_model", None), nn.Module)


def take_apart(model: nn.Module) -> SentenceParts:
    """The parts of a `SentenceTransformer`. One that is not known here is refused: its numbers would be others."""
    first, *rest = model.children()
    body = getattr(first, "auto_model", None)
    kinds = [type(part).__name__ for part in rest]
    known = ("Pooling", "Normalize", *IDLE, *TAIL)
    strange = [kind for kind in kinds if kind not in known]
    late = "Pooling" not in kinds and "Dense" in kinds  # a vector per token, as ColBERT's
    if strange or kinds.count("Pooling") != (0 if late else 1):
        raise NotApplicable(
            f"a SentenceTransformer of {type(first).__name__}, {', '.join(kinds)} cannot be taken apart: it may have "
            f"one Pooling, and beside it {', '.join(known[1:])}."
        )
    pooling = None if late else rest[kinds.index("Pooling")]
    last = [kind for kind in kinds if kind not in IDLE][-1]
    if "Normalize" in kinds and last != "Normalize":
        raise NotApplicable("a SentenceTransformer that normalises before its last module cannot be taken apart.")
    prompts = {name: text for name, text in (getattr(model, "prompts", None) or {}).items() if text}
    return SentenceParts(
        model=body if isinstance(body, nn.Module) else None,
        tokenizer=getattr(first, "tokenizer", None),
        pooling=("maxsim",) if pooling is None else read_modes(vars(pooling)),
        tail=tuple(part for part, kind in zip(rest, kinds, strict=True) if kind in TAIL),
        unit="Normalize" in kinds,
        prompts=prompts,
        prompt_name=getattr(model, "default_prompt_name", None),
        pools_prompt=bool(getattr(pooling, "include_prompt", True)),
        dimensions=getattr(model, "truncate_dim", None),
        limit=getattr(first, "max_seq_length", None),
        lower=bool(getattr(first, "do_lower_case", False)),
    )


def is_cross_encoder(model: Any) -> bool:
    """Whether it reads two texts at once and gives logits: a `CrossEncoder`, or a sequence classifier.

    Both are known by the classifier of transformers: its class is named for what it does.
    """
    return type(find_pair_model(model)).__name__.endswith(READS_PAIRS)


def says_vectors(directory: str | os.PathLike[str]) -> bool:
    """Whether its files say that it gives vectors: one that is pooled, or one per token."""
    root = Path(directory)
    if not (root / "modules.json").is_file():
        return False
    kinds = {str(part["type"]).rpartition(".")[2] for part in read_settings(root, "modules.json")}
    return bool(kinds & {"Pooling", "Dense"})


def find_pair_model(model: Any) -> Any:
    """The classifier that a `CrossEncoder` holds, whichever version: itself, `model`, or a first module's."""
    if type(model).__name__ != "CrossEncoder":
        return model
    held = getattr(model, "model", None)
    first = next(iter(model.children()), None) if isinstance(model, nn.Module) else None
    return held if isinstance(held, nn.Module) else getattr(first, "auto_model", None)


def read_modes(found: Mapping[str, Any]) -> tuple[str, ...]:
    """The poolings that a Pooling module, or its file, names."""
    said = found.get("pooling_mode")
    if isinstance(said, (str, list, tuple)) and said:
        names: Sequence[str] = [said] if isinstance(said, str) else said
        return tuple(SPELLED.get(name, name) for name in names)
    modes = tuple(name for mode, name in MODES.items() if found.get(f"pooling_mode_{mode}"))
    if not modes:
        raise NotApplicable("the Pooling module of this model names no pooling that is known here.")
    return modes


def read_sentence_files(directory: str | Path) -> SentenceParts | None:
    """What the directory of such a model says beside its weights; None where it is none. Its model is still to load."""
    root = Path(directory)
    if not (root / "modules.json").is_file():
        return None
    parts = {
        str(part["type"]).rpartition(".")[2]: root / str(part["path"]) for part in read_settings(root, "modules.json")
    }
    strange = set(parts) - {"Transformer", "Pooling", "Normalize", *IDLE}
    if strange:
        raise NotApplicable(f"{root} has {', '.join(sorted(strange))} modules: load it with SentenceTransformer.")
    pooling = read_settings(parts.get("Pooling", root / "1_Pooling"), "config.json")
    settings, texts = (
        read_settings(root, "config_sentence_transformers.json"),
        read_settings(root, "sentence_bert_config.json"),
    )
    return SentenceParts(
        model=None,
        pooling=read_modes(pooling),
        unit="Normalize" in parts,
        prompts={name: text for name, text in (settings.get("prompts") or {}).items() if text},
        prompt_name=settings.get("default_prompt_name"),
        pools_prompt=bool(pooling.get("include_prompt", True)),
        limit=texts.get("max_seq_length"),
        lower=bool(texts.get("do_lower_case", False)),
    )


def read_settings(root: Path, name: str) -> Any:
    """A file of the directory; nothing where it is not there."""
    path = root / name
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read: {error}.") from error
