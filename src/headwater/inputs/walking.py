"""A model's modules and weights with their names, in torch's order: torch's own walk is recursive, and slow.

An explanation asks for them several times; on a large model that would take longer than some of its layers.
"""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn


def named_modules(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """As `model.named_modules()`: each once, parents before their parts."""
    found: list[tuple[str, nn.Module]] = []
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


def named_weights(model: nn.Module, modules: list[tuple[str, nn.Module]] | None = None) -> Iterator[tuple[str, Tensor]]:
    """As `model.named_parameters()` and then `model.named_buffers()`: each once."""
    modules = named_modules(model) if modules is None else modules
    for held in ("_parameters", "_buffers"):
        seen: set[int] = set()
        for name, module in modules:
            for own, tensor in getattr(module, held).items():
                if tensor is not None and id(tensor) not in seen:
                    seen.add(id(tensor))
                    yield (f"{name}.{own}" if name else own), tensor
