"""Vectors made of a model's output, one per text or one per token: pooled, cut to the first dimensions, normalised."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import TargetError, UnknownName, UsageError
from ..plurals import say_count
from .batch import Batch
from .readouts import ScoreReading

SMALLEST = 1e-12  # a shorter vector is divided by this, as torch.nn.functional.normalize does
Pooling = str | tuple[str, ...] | Callable[[Any, Tensor], Tensor]


def pool_mean(states: Tensor, real: Tensor) -> Tensor:
    weights = real.to(states.dtype).unsqueeze(-1)
    return (states * weights).sum(1) / weights.sum(1)


def pool_mean_by_root(states: Tensor, real: Tensor) -> Tensor:
    """The sum over the root of the number of tokens."""
    weights = real.to(states.dtype).unsqueeze(-1)
    return (states * weights).sum(1) / weights.sum(1).sqrt()


def pool_by_place(states: Tensor, real: Tensor) -> Tensor:
    """The mean with weights 1, 2, 3, …: later tokens count more."""
    places = torch.arange(1, states.shape[1] + 1, device=states.device, dtype=states.dtype)
    weights = (real.to(states.dtype) * places).unsqueeze(-1)
    return (states * weights).sum(1) / weights.sum(1)


def pool_max(states: Tensor, real: Tensor) -> Tensor:
    """Each dimension from the token where it is largest: linear in the states once that token is chosen."""
    best = states.detach().masked_fill(~real.unsqueeze(-1), -torch.inf).argmax(1, keepdim=True)
    return states.gather(1, best).squeeze(1)


def pool_first(states: Tensor, real: Tensor) -> Tensor:
    return pick_position(states, real.long().argmax(1))


def pool_last(states: Tensor, real: Tensor) -> Tensor:
    return pick_position(states, real.shape[1] - 1 - real.flip(1).long().argmax(1))


def pick_position(states: Tensor, places: Tensor) -> Tensor:
    at = places.to(states.device).view(-1, 1, 1).expand(-1, 1, states.shape[-1])
    return states.gather(1, at).squeeze(1)


POOLINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": pool_mean,
    "cls": pool_first,
    "max": pool_max,
    "last": pool_last,
    "mean-sqrt": pool_mean_by_root,
    "weighted-mean": pool_by_place,
}
POOLER = "pooler"  # what the model itself pooled
MAXSIM = "maxsim"  # every token keeps its vector: `token_vectors`
VECTORS = ("sentence_embedding", "text_embeds", "image_embeds")  # what models call the vector of a text or an image


def check_pooling(pooling: Pooling | None) -> None:
    """Refuses a pooling that does not exist, before anything is computed."""
    if pooling is None or callable(pooling):
        return
    if not isinstance(pooling, (str, tuple)) or not pooling:
        raise UsageError(f"pooling= is a name, a tuple of names, or a function, not {pooling!r:.60}.")
    for name in (pooling,) if isinstance(pooling, str) else pooling:
        if name not in (*POOLINGS, POOLER, MAXSIM):
            raise UnknownName("pooling", name, (*POOLINGS, POOLER, MAXSIM))
    if isinstance(pooling, tuple) and MAXSIM in pooling:
        raise UsageError("pooling='maxsim' keeps a vector per token, so no other pooling can stand beside it.")


@dataclass(frozen=True)
class VectorRecipe:
    """How a model's output becomes the vector of a text.

    `pooling`: a name of `POOLINGS`, several whose vectors are joined, "pooler" for the output of that name, or a
    function of the output and of what is no padding. None takes a vector as it is, and the mean of states.
    `skip`: so many first tokens are not pooled. `unit` divides by the length before the cut to `dimensions`, as a
    module of the model does; `normalise` after it. Both lengths are held constant, so that what is read stays linear
    in the output.
    """

    pooling: Pooling | None = None
    skip: int = 0
    unit: bool = False
    dimensions: int | None = None
    normalise: bool = True

    def pool(self, out: Any, real: Tensor | None) -> Tensor:
        """[samples, dimensions of the model]: before it is cut or normalised."""
        if callable(self.pooling):
            assert real is not None
            return check_vectors(self.pooling(out, real), out)
        names = self.pooling if isinstance(self.pooling, tuple) else (self.pooling,)
        return torch.cat([self._pool_by(name, out, real) for name in names], -1)

    def _pool_by(self, name: str | None, out: Any, real: Tensor | None) -> Tensor:
        given = out if isinstance(out, Tensor) else take_vectors(out)
        if name is None and given is not None and given.dim() == 2:
            return given
        if name == POOLER:
            return check_vectors(take_tensor(out, "pooler_output"), out)
        states = states_of(out)
        if states is None:
            raise TargetError(f"the model gives no vector per text, and no states to pool, but {describe_output(out)}.")
        real = torch.ones(states.shape[:2], dtype=torch.bool) if real is None else real
        return POOLINGS[name or "mean"](states, skip_first(real.to(states.device), self.skip))

    def finish(self, vectors: Tensor) -> Tensor:
        """Cut and normalised."""
        if self.unit:
            vectors = divide_by_length(vectors)
        if self.dimensions is not None:
            if not 0 < self.dimensions <= vectors.shape[-1]:
                raise UsageError(
                    f"dimensions={self.dimensions}: the model's vectors have {vectors.shape[-1]}, of which the first "
                    "can be taken."
                )
            vectors = vectors[:, : self.dimensions]
        return divide_by_length(vectors) if self.normalise else vectors

    def __call__(self, out: Any, batch: Batch) -> Tensor:
        vectors = self.pool(out, batch.real)
        if len(vectors) != batch.samples:
            raise TargetError(
                f"the model gives {say_count(len(vectors), 'vector')} for {say_count(batch.samples, 'text')}."
            )
        return self.finish(vectors)


@dataclass(frozen=True)
class DirectionReader:
    """Reads how far a text's vector reaches along one direction."""

    recipe: Callable[[Any, Batch], Tensor]
    direction: Tensor

    def __call__(self, out: Any, batch: Batch) -> ScoreReading:
        vectors = self.recipe(out, batch)
        score = (vectors * self.direction.to(vectors)).sum(-1)
        return ScoreReading(score, ["direction"] * batch.samples, [None] * batch.samples)

    def with_fixed_target(self, out: Any, batch: Batch) -> DirectionReader:
        """The direction is fixed already."""
        return self


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


def divide_by_length(vectors: Tensor) -> Tensor:
    """Of length 1; the length is a constant to the backward pass, as the divisor is in the LN-rule."""
    length: Tensor = vectors.detach().norm(dim=-1, keepdim=True)
    return vectors / length.clamp_min(SMALLEST)


def skip_first(real: Tensor, count: int) -> Tensor:
    """The same without the first `count` real tokens."""
    return real & (real.long().cumsum(1) > count)


def states_of(out: Any) -> Tensor | None:
    """[samples, positions, dimensions]: the states of the last layer, where the output has them."""
    found = out if isinstance(out, Tensor) else take_tensor(out, "last_hidden_state")
    if found is None and type(out) is tuple and out and isinstance(out[0], Tensor):
        found = out[0]
    return found if found is not None and found.dim() == 3 else None


def take_tensor(out: Any, name: str) -> Tensor | None:
    value = out.get(name) if isinstance(out, Mapping) else getattr(out, name, None)
    return value if isinstance(value, Tensor) else None


def take_vectors(out: Any) -> Tensor | None:
    """The vectors of an output that has them by name."""
    return next((found for name in VECTORS if (found := take_tensor(out, name)) is not None), None)


def check_vectors(found: Any, out: Any) -> Tensor:
    if not isinstance(found, Tensor) or found.dim() != 2:
        given = f"shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise TargetError(f"a pooling must give one vector per text, not {given}, of {describe_output(out)}.")
    return found


def describe_output(out: Any) -> str:
    if isinstance(out, Tensor):
        return f"a tensor of shape {tuple(out.shape)}"
    names = f" with {', '.join(map(str, out))}" if isinstance(out, Mapping) else ""
    head = "; a head for a task hides the encoder: pass model.base_model" if "logits" in names else ""
    return f"{type(out).__name__}{names}{head}"
