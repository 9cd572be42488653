"""Where relevance is taken: which module's output is "the embeddings" of a model that nobody described to us.

`at="words"`: the module that turns token ids (or pixels) into vectors, which the model itself names through
`get_input_embeddings()`, and every other module that shares its table.

`at="embeddings"`: the outermost module around it that holds no stack of layers. In BERT that is word + position + type
and LayerNorm, as in the paper; in ViT patches + class token + position; in GPT-2 and Llama no such module exists, so it
is the word embedding, and what GPT-2 adds for positions has its own line in the ledger.

Any other name is that of a module, whose output is then explained: a layer of the stack.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError, ModelError
from .hooks import hook_modules
from .module_names import find_module
from .walking import named_modules

PLACES = ("embeddings", "words")


@dataclass(frozen=True)
class InputPlace:
    """Where relevance is taken: the modules whose outputs are explained, and what that place is called.

    `lookups` are the modules before it that look the words of a text up. They say whose positions those of a layer are:
    the text's own, or a decoder's. The usual places have none before them.
    """

    name: str
    modules: list[nn.Module]
    lookups: tuple[nn.Module, ...] = ()


def find_place(model: nn.Module, inputs: Any, at: str) -> InputPlace:
    """The place that was asked for: a module (`inputs`, or the name of one as `at`), or the usual one called `at`."""
    if inputs is None and at in PLACES:
        return InputPlace(at, find_places(model, at))
    if inputs is not None and at != PLACES[0]:
        raise InputError(f"inputs={inputs!r:.40} says where relevance is taken, so at={at!r} has no place beside it.")
    name, module = find_module(model, at if inputs is None else inputs, PLACES if inputs is None else ())
    inside = {id(part) for part in module.modules()}
    return InputPlace(name, [module], tuple(one for one in find_lookups(model) if id(one) not in inside))


def find_lookups(model: nn.Module) -> list[nn.Module]:
    """The modules that look words up; where the model does not say which they are, its largest table."""
    try:
        return word_modules(model)
    except ModelError:
        tables = [module for _, module in named_modules(model) if isinstance(module, nn.Embedding)]
        return [*sorted(tables, key=lambda table: -table.num_embeddings)[:1]]


def check_ids(model: nn.Module, ids: Tensor | None) -> None:
    """Refuses tokens that the model has no row for. Asked where it failed: some models put others in their place."""
    rows = [table.num_embeddings for table in find_lookups(model) if isinstance(table, nn.Embedding)]
    if ids is None or not rows:
        return
    wrong = ids[(ids < 0) | (ids >= min(rows))].tolist()
    if wrong:
        raise InputError(
            f"there is the token id {wrong[0]}, and the model knows 0 to {min(rows) - 1}: the tokenizer is that of "
            "another model, or got tokens that the model has not (model.resize_token_embeddings(len(tokenizer)))."
        )


def find_places(model: nn.Module, at: str) -> list[nn.Module]:
    """The modules whose outputs are the inputs to be explained."""
    if at not in PLACES:
        return [find_module(model, at, PLACES)[1]]
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
            f"Pass inputs= with that module or its dotted name{guess_embedding(model)}; for tensors, also the tensor."
        )
    table = getattr(first, "weight", None)
    tables = (module for _, module in named_modules(model) if table is not None and isinstance(module, nn.Embedding))
    return unique([first, *(module for module in tables if module.weight is table)])


def guess_embedding(model: nn.Module) -> str:
    """The name of the first embedding, for a message: most likely it is the one that is meant."""
    names = [name for name, module in named_modules(model) if name and isinstance(module, nn.Embedding)]
    return f", such as inputs={names[0]!r}" if names else ""


def unique(modules: list[nn.Module]) -> list[nn.Module]:
    return list({id(module): module for module in modules}.values())


def embeddings_around(model: nn.Module, words: nn.Module) -> nn.Module:
    """The outermost ancestor of `words`, short of the model itself, that is called and holds no stack of layers."""
    best, path = words, next((name for name, module in named_modules(model) if module is words), "").split(".")
    for depth in range(len(path) - 1, 0, -1):
        ancestor = model.get_submodule(".".join(path[:depth]))
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
    beside: Sequence[nn.Module] = (),
    lookups: Sequence[nn.Module] = (),
    entered: Callable[[Captured, Tensor], None] | None = None,
) -> Iterator[list[Captured]]:
    """Outputs of `places` become the inputs to be explained. Acts on this thread only, and leaves no hook behind.

    Outputs of `beside`, where these are called, become inputs too, and are marked. Where `lookups` look words up, a
    layer that is called later has the positions of these words. `entered` is told of each input, and of the tensor that
    the model goes on with.
    """
    found: list[Captured] = []
    looked_up: list[Tensor] = []

    def note(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        ids = first_ids(args, kwargs)
        looked_up.extend([] if ids is None else [ids])

    def begin(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        tensor = find_explained(output)
        if tensor.requires_grad and not tensor.is_leaf and tensor.grad_fn is not None and depends_on_input(tensor):
            return None
        is_item = all(module is not other for other in beside)
        with torch._C.DisableTorchFunction():  # this is no code of the model's
            leaf = tensor.detach().clone()
            leaf = (leaf + noise(leaf) if noise is not None and is_item else leaf).requires_grad_(True)
            started = start(leaf)
        ids = last_ids(looked_up, leaf) if takes_hidden_states(args, kwargs, leaf) else first_ids(args, kwargs)
        found.append(Captured(leaf, ids, not is_item, module))
        if entered is not None:
            entered(found[-1], started)
        return put_explained(output, tensor, started)

    others = [module for module in lookups if all(module is not place for place in places)]
    with hook_modules(others, after=note), hook_modules([*places, *beside], after=begin):
        yield found


def find_explained(output: Any) -> Tensor:
    """What of a module's output is explained: the first tensor of numbers in it."""
    values = (
        output.values() if isinstance(output, Mapping) else output if isinstance(output, (tuple, list)) else [output]
    )
    for value in values:
        if isinstance(value, Tensor) and value.is_floating_point():
            return value
    raise InputError(f"a module that gives {type(output).__name__} without a tensor of numbers cannot be explained at.")


def put_explained(output: Any, old: Tensor, new: Tensor) -> Any:
    """The output of a module with another tensor in the place of one."""
    if isinstance(output, Tensor):
        return new
    if isinstance(output, Mapping):
        changed: Any = copy.copy(output)
        for key, value in output.items():
            if value is old:
                changed[key] = new
        return changed
    parts = [new if part is old else part for part in output]
    return type(output)(*parts) if hasattr(output, "_fields") else type(output)(parts)


def takes_hidden_states(args: Any, kwargs: Any, output: Tensor) -> bool:
    """Whether a module is given hidden states, as a layer is: integers among its arguments are then no words."""
    given = (*args, *kwargs.values())
    return any(isinstance(t, Tensor) and t.is_floating_point() and t.dim() == output.dim() > 2 for t in given)


def last_ids(looked_up: list[Tensor], output: Tensor) -> Tensor | None:
    """The words whose positions a layer has: the last that were looked up before it, if there are as many."""
    fitting = (tuple(output.shape[:2]), tuple(output.shape[1::-1]))
    return next((ids for ids in reversed(looked_up) if tuple(ids.shape) in fitting), None)


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
