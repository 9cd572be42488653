"""What other tools do on the same model and batch, called as their own documents have it, for the benchmark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from ..targets import logits_of

STEPS = 32  # of integrated gradients, as in `headwater.methods`

Job = Callable[[], Any]


def peers(model: nn.Module, inputs: dict[str, Any]) -> Iterator[tuple[str, Job]]:
    """Jobs by name, of the tools that are installed."""
    if find_spec("captum") is not None:
        yield "captum InputXGradient", lambda: captum_gradient(model, inputs)
        yield f"captum IntegratedGradients, {STEPS} steps", lambda: captum_path(model, inputs)


def captum_gradient(model: nn.Module, inputs: dict[str, Any]) -> Tensor:
    from captum.attr import InputXGradient

    vectors, score = scored(model, inputs)
    found: Tensor = InputXGradient(score).attribute(vectors)
    return found.sum(-1)


def captum_path(model: nn.Module, inputs: dict[str, Any]) -> Tensor:
    """From zero, the batch's own size at a time."""
    from captum.attr import IntegratedGradients

    vectors, score = scored(model, inputs)
    path = IntegratedGradients(score)
    found: Tensor = path.attribute(vectors, n_steps=STEPS, internal_batch_size=len(vectors))
    return found.sum(-1)


def scored(model: nn.Module, inputs: dict[str, Any]) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """The word embeddings, and each row's highest logit as a function of them."""
    rest = {name: value for name, value in inputs.items() if name != "input_ids"}
    embed: Any = model.get_input_embeddings
    vectors = embed()(inputs["input_ids"]).detach().requires_grad_(True)

    def score(x: Tensor) -> Tensor:
        fields = {k: v[:1].expand(len(x), *v.shape[1:]) if isinstance(v, Tensor) else v for k, v in rest.items()}
        logits = logits_of(model(inputs_embeds=x, **fields))
        return torch.amax(logits.reshape(len(x), -1, logits.shape[-1])[:, -1], -1)

    return vectors, score
