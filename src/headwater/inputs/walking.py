"""The modules and weights of a model by name, in torch's order, but faster than torch's own recursive walk.

An explanation asks for them several times; on a large model that would take longer than some of its layers. So it walks
once: nobody takes a model apart while it is explained. Whoever knows the model from before, and has seen that it is the
same, says so (`recall_walk`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial

from torch import Tensor, nn

from .restoring import undone

Named = list[tuple[str, nn.Module]]


@dataclass
class Walks:
    """What is known of models, by their numbers: their modules, and which were seen to be as they were."""

    modules: dict[int, Named] = field(default_factory=dict)
    unchanged: set[int] = field(default_factory=set)


_KNOWN: ContextVar[Walks | None] = ContextVar("walks", default=None)


@contextmanager
def walk_once() -> Iterator[None]:
    """Inside, each model is walked through once. Its modules must stay where they are; weights may move."""
    known = _KNOWN.get()
    with undone(partial(_KNOWN.set, known)):
        _KNOWN.set(Walks() if known is None else known)
        yield


def named_modules(model: nn.Module) -> Named:
    """As `model.named_modules()`: each once, parents before their parts."""
    known = _KNOWN.get()
    if known is None:
        return walk_modules(model)
    if id(model) not in known.modules:
        known.modules[id(model)] = walk_modules(model)  # it holds the model: its number is nobody else's until the end
    return known.modules[id(model)]


def recall_walk(model: nn.Module, modules: Named) -> None:
    """These are the modules, and the model was just seen to be as it was. Forgotten outside `walk_once`."""
    known = _KNOWN.get()
    if known is not None:
        known.modules[id(model)] = modules
        known.unchanged.add(id(model))


def take_unchanged(model: nn.Module) -> bool:
    """Whether it was just seen to be as it was. Asked a second time, nobody knows: a run may change a model."""
    known = _KNOWN.get()
    if known is None or id(model) not in known.unchanged:
        return False
    known.unchanged.discard(id(model))
    return True


def walk_modules(model: nn.Module) -> Named:
    found: Named = []
    seen: set[int] = set()
    stack = [("", model)]
    while stack:
        name, module = stack.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        found.append((name, module))
        prefix = f"{name}." if name else ""
        stack.extend((prefix + own, part) for own, part in reversed(module._modules.items()) if part is not None)
    return found


def list_weights(model: nn.Module) -> Iterator[Tensor | None]:
    """Parameters and buffers without their names, a shared one as often as it is shared."""
    for _, module in named_modules(model):
        yield from module._parameters.values()
        yield from module._buffers.values()


def named_weights(model: nn.Module, modules: Named | None = None) -> Iterator[tuple[str, Tensor]]:
    """As `model.named_parameters()` and then `model.named_buffers()`: each once."""
    modules = named_modules(model) if modules is None else modules
    for held in ("_parameters", "_buffers"):
        seen: set[int] = set()
        for name, module in modules:
            for own, tensor in getattr(module, held).items():
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield (f"{name}.{own}" if name else own), tensor
