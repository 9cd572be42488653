"""Bare tensors -> Batch, for any PyTorch module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from ..errors import EmptyInput, InputError
from .batch import Batch, Item, list_leaves
from .module_names import find_module


def from_tensors(model: nn.Module, tensors: Any, inputs: Any, places: list[nn.Module] | None) -> Batch:
    """`tensors` are the model's arguments; `inputs` says what is explained: one of them, a module, or its name."""
    args, kwargs = split_arguments(tensors)
    if isinstance(inputs, str) and isinstance(kwargs.get(inputs), Tensor):
        kwargs[inputs] = kwargs[inputs].detach()  # of a tensor that is given twice, the argument with this name alone
    every = [t for t in list_leaves((args, kwargs)) if isinstance(t, Tensor)]
    floats = list({id(t): t for t in every if t.is_floating_point()}.values())
    if not every:
        raise InputError(
            f"there is no text and no tensor in what is to be explained ({type(tensors).__name__}). "
            "Pass a text, a list of texts, or the tensors that the model is called with."
        )
    place, tensor, at = choose_inputs(model, inputs, kwargs, floats, every, places)
    samples = len(tensor) if tensor is not None else len(every[0])
    if any(t.numel() == 0 for t in every):
        raise EmptyInput("a tensor among the arguments is empty: there is nothing to explain.")
    return Batch(samples, [Item()] * samples, args, kwargs, places=place, tensor=tensor, at=at)


def split_arguments(tensors: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(tensors, Mapping):
        return (), dict(tensors)
    return (tuple(tensors) if isinstance(tensors, (tuple, list)) else (tensors,)), {}


def choose_inputs(
    model: nn.Module,
    inputs: Any,
    kwargs: dict[str, Any],
    floats: list[Tensor],
    every: list[Tensor],
    places: list[nn.Module] | None,
) -> tuple[list[nn.Module], Tensor | None, str | None]:
    """What is explained: modules whose output it is, or the tensor itself; and what it is called."""
    if isinstance(inputs, str) and isinstance(kwargs.get(inputs), Tensor):
        return [], kwargs[inputs], inputs
    if inputs is not None and not isinstance(inputs, Tensor):
        name, module = find_module(model, inputs, tuple(kwargs))
        return [module], None, name
    if isinstance(inputs, Tensor):
        if not any(t is inputs for t in every):
            raise InputError("inputs= is a tensor that is not among the model's arguments.")
        if not inputs.is_floating_point():
            raise InputError("inputs= holds whole numbers, which have no gradient. Name the module that embeds them.")
        return [], inputs, name_tensor(kwargs, inputs)
    if places:
        return places, None, None
    if not floats:
        raise InputError(
            "the model's arguments hold whole numbers alone, and it is not known which module embeds them: name it, "
            "inputs=. Token ids of a model of transformers go by their name: {'input_ids': ids}."
        )
    if len(floats) != 1:
        raise InputError(
            f"the model's arguments hold {len(floats)} floating tensors, so inputs= must say what is explained: "
            "one of them, the module that embeds the input, or its dotted name."
        )
    return [], floats[0], name_tensor(kwargs, floats[0])


def name_tensor(kwargs: dict[str, Any], tensor: Tensor) -> str:
    """An argument by its name, or by its names; "tensor" where it was given without one."""
    return ", ".join(name for name, value in kwargs.items() if value is tensor) or "tensor"
