"""Where relevance is taken: which module's output is "the embeddings" of a model that nobody described to us.

`at="words"`: the module that turns token ids (or pixels) into vectors, which the model itself names through
`get_input_embeddings()`, and every other module that shares its table.

`at="embeddings"`: the outermost module around it that holds no stack of layers. In BERT that is word + position + type
and LayerNorm, as in the paper; in ViT patches + class token + position; in GPT-2 and Llama no such module exists, so it
is the word embedding, and what GPT-2 adds for positions has its own line in the ledger.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ModelError, UnknownName
from .hooks import hook_modules
from .walking import named_modules

PLACES = ("embeddings", "words")


def find_places(model: nn.Module, at: str) -> list[nn.Module]:
    """The modules whose outputs are the inputs to be explained."""
    if at not in PLACES:
        raise UnknownName("place", at, PLACES)
    words = word_modules(model)
    if at == "words":
        return words
    return unique([embeddings_around(model, module) for module in words])


def word_modules(model: nn.Module) -> list[nn.Module]:
    """The model's input embeddings, and the modules that share their table (encoder and decoder of one model)."""
    get = getattr(model, "get_input_embeddings", None)
    try:
        first = get() if get is not None else None
    except NotImplementedError:
        first = None
    if not isinstance(first, nn.Module):
        raise ModelError(
            f"{type(model).__name__} does not say which module embeds its input (no get_input_embeddings()). "
            "Pass inputs= with the module, its dotted name, or the tensor to be explained."
        )
    table = getattr(first, "weight", None)
    twins = [m for _, m in named_modules(model) if table is not None and getattr(m, "weight", None) is table]
    return unique([first, *(m for m in twins if isinstance(m, nn.Embedding))])


def unique(modules: list[nn.Module]) -> list[nn.Module]:
    return list({id(module): module for module in modules}.values())


def embeddings_around(model: nn.Module, words: nn.Module) -> nn.Module:
    """The outermost ancestor of `words`, short of the model itself, that is called and holds no stack of layers."""
    by_name = dict(named_modules(model))
    names = {id(module): name for name, module in by_name.items()}
    best, path = words, names[id(words)].split(".")
    for depth in range(len(path) - 1, 0, -1):
        ancestor = by_name[".".join(path[:depth])]
        if holds_stack(ancestor) or isinstance(ancestor, (nn.ModuleDict, nn.ModuleList)):
            break
        best = ancestor
    return best


def holds_stack(module: nn.Module) -> bool:
    return any(is_stack(part) for part in module.modules())  # torch's walk, since it is left at the first one


def is_stack(module: nn.Module) -> bool:
    """A list of layers, or a sequence of alike modules that are more than one operation each."""
    if isinstance(module, nn.ModuleList):
        return len(module) > 0
    children = list(module.children()) if isinstance(module, nn.Sequential) else []
    return len(children) > 1 and all(type(c) is type(children[0]) and list(c.children()) for c in children)


@dataclass
class Captured:
    """An input as it entered the model: `leaf` gets the gradient; `ids` are the token ids it was looked up by."""

    leaf: Tensor
    ids: Tensor | None
    beside: bool = False  # it enters beside the items, see `headwater.inputs.protocol.Beside`
    place: nn.Module | None = None


@contextmanager
def capture_inputs(
    places: list[nn.Module],
    noise: Callable[[Tensor], Tensor] | None = None,
    beside: nn.Module | None = None,
    entered: Callable[[Captured, Tensor], None] | None = None,
) -> Iterator[list[Captured]]:
    """Outputs of `places` become the inputs to be explained. Acts on this thread only, and leaves no hook behind.

    The output of `beside`, if it is called, becomes one too, and is marked. `entered` is told of each input, and of the
    tensor that the model goes on with.
    """
    found: list[Captured] = []

    def begin(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        tensor = output if isinstance(output, Tensor) else next(o for o in output if isinstance(o, Tensor))
        if tensor.requires_grad and not tensor.is_leaf and tensor.grad_fn is not None and depends_on_input(tensor):
            return None
        is_item = module is not beside
        with torch._C.DisableTorchFunction():  # this is no code of the model's
            leaf = tensor.detach().clone()
            leaf = (leaf + noise(leaf) if noise is not None and is_item else leaf).requires_grad_(True)
            started = start(leaf)
        found.append(Captured(leaf, first_ids(args, kwargs), not is_item, module))
        if entered is not None:
            entered(found[-1], started)
        return started if isinstance(output, Tensor) else type(output)(started if o is tensor else o for o in output)

    with hook_modules([*places, *([] if beside is None else [beside])], after=begin):
        yield found


def depends_on_input(tensor: Tensor) -> bool:
    """An embedding inside an embedding: the inner one is already the input."""
    return getattr(tensor.grad_fn, "name", lambda: "")() == "_StartBackward"


def first_ids(args: Any, kwargs: Any) -> Tensor | None:
    """The token ids among a module's arguments."""
    candidates = [kwargs.get("input_ids"), *args, *kwargs.values()]
    for value in candidates:
        if isinstance(value, Tensor) and not value.is_floating_point() and value.dtype is not torch.bool:
            return value
    return None


def start(leaf: Tensor) -> Tensor:
    """`leaf` as a tensor that is no leaf, so that the model may write into it."""
    return _Start.apply(leaf)  # type: ignore[no-any-return]


def is_start(tensor: Tensor) -> bool:
    """Whether a tensor is the explained input itself."""
    return tensor.is_leaf or isinstance(tensor.grad_fn, _Start._backward_cls)


class _Start(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, leaf: Tensor) -> Tensor:
        return leaf.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0]
