"""Modules that give vectors, made of a model and what follows it, or of a method of a model."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from ..errors import ModelError
from ..inputs.pooling import MAXSIM, VectorRecipe, states_of, take_tensor


class TailEncoder(nn.Module):
    """A transformer, its pooling, and the modules that follow: their vector is the output."""

    def __init__(self, body: nn.Module, recipe: VectorRecipe, tail: Sequence[nn.Module]) -> None:
        super().__init__()
        self.body = body
        self.recipe = recipe
        self.tail: nn.ModuleList = nn.ModuleList(tail)
        self.config: Any | None = getattr(body, "config", None)
        self.eval()

    def get_input_embeddings(self) -> nn.Module:
        return self.body.get_input_embeddings()  # type: ignore[operator, no-any-return]

    def forward(self, **fields: Any) -> Tensor:
        out = self.body(**fields)
        late = self.recipe.pooling in (MAXSIM, (MAXSIM,))
        states = states_of(out) if late else None
        vector = states if states is not None else self.recipe.pool(out, fields["attention_mask"].bool())
        for part in self.tail:
            vector = apply_tail(part, vector)
        return vector


def apply_tail(part: nn.Module, vector: Tensor) -> Tensor:
    """A Dense is a linear layer and its activation, a LayerNorm holds torch's."""
    if hasattr(part, "linear"):
        return part.activation_function(part.linear(vector))  # type: ignore[operator, no-any-return]
    return part.norm(vector)  # type: ignore[operator, no-any-return]


class FunctionModule(nn.Module):
    """A function of what the tokenizer gives, as a module. The model is the one whose method it is."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        owner = getattr(function, "__self__", None)
        self.function = function
        self.inner: nn.Module | None = owner if isinstance(owner, nn.Module) else None
        if self.inner is None:
            raise ModelError(
                "a function gives vectors, but not which model it calls: pass a method of the model, such as "
                "model.get_text_features, or an nn.Module around it."
            )
        self.config: Any | None = getattr(self.inner, "config", None)
        self.train(self.inner.training)

    def get_input_embeddings(self) -> nn.Module | None:
        """The model's; of a model with several towers that says none, those of the tower that looks words up."""
        assert self.inner is not None
        found = [find_table(part) for part in (self.inner, *self.inner.children())]
        tables = [one for one in found if one is not None]
        return next((one for one in tables if isinstance(one, nn.Embedding)), next(iter(tables), None))

    def forward(self, **fields: Any) -> Any:
        takes = inspect.signature(self.function).parameters
        everything = any(one.kind is one.VAR_KEYWORD for one in takes.values())
        out = self.function(**{name: value for name, value in fields.items() if everything or name in takes})
        return out if isinstance(out, Tensor) else take_tensor(out, "pooler_output")


def find_table(model: nn.Module) -> nn.Module | None:
    """The module that embeds a model's input, where the model says which."""
    try:
        found = model.get_input_embeddings()  # type: ignore[operator]
    except (AttributeError, NotImplementedError):
        return None
    return found if isinstance(found, nn.Module) else None
