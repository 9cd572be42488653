"""A vector per token, of models whose texts are compared token by token (late interaction)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..errors import TargetError
from .batch import Batch
from .pooling import VectorRecipe, describe_output, states_of


def read_token_vectors(recipe: VectorRecipe, out: Any, batch: Batch, number: int = 0) -> Tensor:
    """[tokens, dimensions] of one text of the batch, without padding; each cut and normalised as the recipe says."""
    states = states_of(out)
    if states is None:
        raise TargetError(f"the model gives no vector per token, but {describe_output(out)}.")
    tokens = states[number] if batch.real is None else states[number][batch.real[number].to(states.device)]
    return recipe.finish(tokens)


@dataclass(frozen=True)
class TokenSum:
    """Reads a sum of some tokens' vectors, as a `VectorRecipe` reads a text's vector. `weights` has one per token."""

    recipe: VectorRecipe
    weights: Tensor

    def __call__(self, out: Any, batch: Batch) -> Tensor:
        vectors = read_token_vectors(self.recipe, out, batch)
        return (self.weights.to(vectors)[:, None] * vectors).sum(0, keepdim=True)
