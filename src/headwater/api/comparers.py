"""What compares two texts, by the kind of model: a vector each, a vector per token, both texts read at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Protocol

from torch import Tensor, nn

from ..errors import UnknownName
from ..inputs.images import is_image
from ..models.sentence_parts import is_cross_encoder
from ..results.similarity import Similarity
from .cross_encoders import open_cross_encoder
from .late_interaction import LateComparer, is_late
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
    return VectorOptions(**given)


def open_comparer(model: Any, options: VectorOptions, samples: tuple[Any, Any]) -> Comparer:
    """The one for this model. Of the samples is asked whether they are images."""
    if is_cross_encoder(model):
        return open_cross_encoder(model, options)
    if is_function_of_texts(model):
        return RemovalComparer.of(model, options)
    encoders = open_encoders(model, options, (is_image(samples[0]), is_image(samples[1])))
    return LateComparer(encoders) if is_late(encoders) else VectorComparer(encoders)


def is_function_of_texts(model: Any) -> bool:
    """Whether it is a function, and no model of torch, nor a method or a holder of one."""
    if isinstance(model, (nn.Module, tuple)) or not callable(model) or hasattr(model, "model"):
        return False
    return not isinstance(getattr(model, "__self__", None), nn.Module)
