"""What of a model decides which operations it runs: weights, parts, hooks, switches. Has any of it changed?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import eq
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as torch_module

from ..inputs.hooks import HOOKED, hooks_seen_here

EVERYWHERE = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks")
PLAIN = (int, float, str, bool, tuple, type(None), torch.dtype, torch.device)
MANY = 64  # entries of a list that is compared


@dataclass(frozen=True)
class ModelState:
    """All modules of a model, as they were: the attributes of each by identity, and what their dicts and lists held.

    Comparing is a matter of microseconds a module. Hooks that an explanation on another thread has attached meanwhile
    are left out. It holds the modules' parts, but not the model itself.
    """

    now: list[Any]  # attributes of each module, and dicts and lists among them
    then: list[Any]  # the same, copied
    empty: list[Any]  # those of them that held nothing: most do, and then less is to be compared
    hooks: list[Any]  # of each module, and how they were
    hooks_then: list[Any]
    weights: list[Tensor]
    places: list[int]  # of the weights, in memory
    config: Any
    everywhere: tuple[int, ...]

    @classmethod
    def of(cls, model: nn.Module) -> ModelState:
        now: list[Any] = []
        hooks: list[Any] = []
        for module in model.modules():
            now.append(module.__dict__)
            now += [
                value
                for name, value in module.__dict__.items()
                if isinstance(value, (dict, list, set)) and name not in HOOKED
            ]
            hooks += [module._forward_hooks, module._forward_pre_hooks]
        weights = [weight for weight in weights_of(model) if not weight.is_meta]
        filled = [one for one in now if one]
        return cls(
            filled,
            [copy_of(one) for one in filled],
            [one for one in now if not one],
            hooks,
            [hooks_seen_here(one) for one in hooks],
            weights,
            [weight.data_ptr() for weight in weights],
            config_of(model),
            hooks_everywhere(),
        )

    def holds(self, model: nn.Module) -> bool:
        """Whether the model is as it was."""
        try:
            if any(self.empty) or not all(map(eq, self.now, self.then)):
                return False
        except (RuntimeError, ValueError):  # a tensor was put in the place of another, and cannot be compared
            return False
        if not all(map(same_hooks, self.hooks, self.hooks_then)):
            return False
        if [weight.data_ptr() for weight in self.weights] != self.places:
            return False
        return hooks_everywhere() == self.everywhere and config_of(model) == self.config


def weights_of(model: nn.Module) -> Iterator[Tensor]:
    """Parameters and buffers of all modules, a shared one as often as it is shared."""
    for module in model.modules():
        for held in (module._parameters, module._buffers):
            yield from (weight for weight in held.values() if weight is not None)


def same_hooks(now: dict[int, Any], then: list[Any]) -> bool:
    return hooks_seen_here(now) == then if now or then else True


def copy_of(value: Any) -> Any:
    return set(value) if isinstance(value, set) else list(value) if isinstance(value, list) else dict(value)


def config_of(model: nn.Module) -> Any:
    """The configuration's own values, as far as they are plain."""
    config = getattr(model, "config", None)
    return None if config is None else plain_values(config, 2)


def plain_values(config: Any, depth: int) -> Any:
    found: dict[str, Any] = {}
    for name, value in getattr(config, "__dict__", {}).items():
        if isinstance(value, PLAIN):
            found[name] = value
        elif isinstance(value, (dict, list, set)):
            found[name] = str(value) if len(value) > MANY else copy_of(value)
        elif depth and hasattr(value, "__dict__"):
            found[name] = plain_values(value, depth - 1)
    return found


def hooks_everywhere() -> tuple[int, ...]:
    return tuple(len(getattr(torch_module, name)) for name in EVERYWHERE)
