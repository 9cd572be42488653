"""What compares two texts, by the kind of model: a vector each, a vector per token, both texts read at once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Protocol

from torch import Tensor, nn

from ..errors import EmptyInput, UnknownName, UsageError, check_integer
from ..inputs.images import is_image
from ..inputs.pooling import check_pooling
from ..models.pretrained import locate
from ..models.sentence_parts import READS_PAIRS, is_cross_encoder, says_vectors
from ..results.similarity import Similarity
from .cross_encoders import open_cross_encoder
from .late_interaction import LateComparer, is_late
from .requests import take_model
from .text_encoders import VectorOptions, open_encoders
from .text_pairs import VectorComparer
from .word_removal import RemovalComparer


class Comparer(Protocol):
    """Explains one similarity, or says many. `measure` is what the score is."""

    @property
    def measure(self) -> str: ...

    def compare(self, a: Any, b: Any, rank: int | None) -> Similarity: ...

    def score(self, query: Any, passages: Sequence[Any]) -> Tensor: ...


def read_vector_options(given: Any) -> VectorOptions:
    """Options by name; an unknown name is answered with the nearest one."""
    names = [field.name for field in fields(VectorOptions)]
    for name in given:
        if name not in names:
            raise UnknownName("option", name, names)
    read: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    options = VectorOptions(**read)
    for name in ("tokenizer", "prompts", "inputs"):
        value = getattr(options, name)
        if isinstance(value, tuple) and len(value) != 2:
            raise UsageError(f"{name}= is one for both texts, or a pair of them, one for each: not {len(value)}.")
    prompts = options.prompts if isinstance(options.prompts, tuple) else (options.prompts,)
    if not all(prompt is None or isinstance(prompt, str) for prompt in prompts):
        raise UsageError(f"prompts= is a text, or a pair of texts, not {options.prompts!r:.60}.")
    check_pooling(options.pooling)
    check_integer("batch_size", options.batch_size, 1)
    if options.dimensions is not None:
        check_integer("dimensions", options.dimensions, 1)
    return options


def check_sample(name: str, sample: Any) -> None:
    """Refuses a text without anything in it, by the `name` that it has for the caller."""
    if isinstance(sample, str) and not sample.strip():
        raise EmptyInput(f"{name} is empty: there is nothing to explain.")


def open_comparer(model: Any, options: VectorOptions, samples: tuple[Any, Any]) -> Comparer:
    """The one for this model. Of the samples is asked whether they are images."""
    if isinstance(model, (str, os.PathLike)) and names_cross_encoder(model):
        model, readers = take_model(model, {"tokenizer": options.tokenizer, "device": options.device})
        options = replace(options, tokenizer=readers["tokenizer"])
    if is_cross_encoder(model):
        return open_cross_encoder(model, options)
    if options.target is not None:
        raise UsageError(
            "target= is a class of a model that reads both texts at once. This one gives vectors: leave it out."
        )
    if is_function_of_texts(model):
        return RemovalComparer.of(model, options)
    encoders = open_encoders(model, options, (is_image(samples[0]), is_image(samples[1])))
    return LateComparer(encoders) if is_late(encoders) else VectorComparer(encoders)


def names_cross_encoder(name: str | os.PathLike[str]) -> bool:
    """Whether the model of that name reads two texts at once: its files say what it was saved from."""
    from ..models.loading import find_saved_classes

    if says_vectors(locate(name) if isinstance(name, str) else name):
        return False
    return any(saved_from.endswith(READS_PAIRS) for saved_from in find_saved_classes(name))


def is_function_of_texts(model: Any) -> bool:
    """Whether it is a function, and no model of torch, nor a method or a holder of one."""
    if isinstance(model, (nn.Module, tuple)) or not callable(model) or hasattr(model, "model"):
        return False
    return not isinstance(getattr(model, "__self__", None), nn.Module)
