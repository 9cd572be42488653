"""What is asked of an explanation, as one value: the functions, the command line and the server all fill it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypedDict

import torch
from torch import Tensor, nn

from ..errors import UnknownName, UsageError
from ..inputs.images import is_image
from ..inputs.targets import Target
from ..memory.policy import MemoryPolicy
from ..memory.recompute import Count
from ..methods.registry import Method, resolve_method

SHOWN = "show"
HANDLING = (SHOWN, "aside")  # of the attention sink, and of special tokens


@dataclass(frozen=True)
class Options:
    """All that can be asked beside the model and the data. `headwater.explain` says what each means.

    `on_device` is found by `memory_limit`: so many bytes stay on the device where `keep` names another place.
    """

    tokenizer: Any = None
    processor: Any = None
    method: str | Method | None = None
    target: Target = None
    output: str | None = None
    score: Callable[[Any], Tensor] | None = None
    inputs: Any = None
    at: str = "embeddings"
    batch_size: int = 16
    device: str | torch.device | None = None
    dtype: str | torch.dtype | None = None
    seed: int = 0
    truncate: bool = False
    window: bool = False
    stride: int | None = None
    patch: int | None = None
    sinks: str | None = None
    keep: str = "device"
    recompute: Count = None
    memory_limit: int | str | None = None
    plans: bool = True
    inside: str | Sequence[str] | None = None
    on_device: int = 0

    @property
    def saves_memory(self) -> bool:
        """Whether anything is kept elsewhere than on the device, or computed again."""
        return self.keep != "device" or bool(self.recompute)

    @property
    def memory(self) -> MemoryPolicy:
        """Where what the backward pass needs is kept."""
        return MemoryPolicy(self.keep, self.recompute, self.on_device)

    def with_memory(self, policy: MemoryPolicy) -> Options:
        """The same options with a memory policy. The limit is dropped: the policy was chosen to meet it."""
        keep, recompute, on_device = policy.keep, policy.recompute, policy.on_device
        return replace(self, memory_limit=None, keep=keep, recompute=recompute, on_device=on_device, plans=False)


USUAL = Options()
NAMES = tuple(field.name for field in fields(Options) if field.name != "on_device")


def read_options(**given: Any) -> Options:
    """Options by name; an unknown name is answered with the nearest one."""
    for name in given:
        if name not in NAMES:
            raise UnknownName("option", name, NAMES)
    options = Options(**given)
    if options.method is not None:
        resolve_method(options.method)  # a method that does not exist is refused before any work
    check_handling(sinks=options.sinks)
    if not hasattr(options.batch_size, "__index__"):
        raise UsageError(f"batch_size is a whole number, not {options.batch_size!r}.")
    if options.score is not None and not callable(options.score):
        raise UsageError(
            f"score= is a function of the model's output, not {options.score!r}. A class or a token is target=."
        )
    if options.saves_memory:
        _ = options.memory  # a place that does not exist is refused before any work
    return options


def check_handling(**chosen: str | None) -> None:
    """What was chosen for sinks or special tokens is a way to handle them; None leaves it to the kind of model."""
    for name, value in chosen.items():
        if value is not None and value not in HANDLING:
            raise UnknownName(f"way to handle {name}", value, HANDLING)


def refuse_unused(options: Options, names: Sequence[str], why: str) -> None:
    """Refuses options that would have no effect. What says no more than is done anyway is none of them."""
    for name in names:
        value = getattr(options, name)
        if value != getattr(USUAL, name) and not (name == "sinks" and value == SHOWN):
            raise UsageError(f"{why}: leave out {name}=.")


class OptionsByName(TypedDict, total=False):
    """The same options as keyword arguments, for the types of functions that take them."""

    tokenizer: Any
    processor: Any
    target: Target
    output: str | None
    score: Callable[[Any], Tensor] | None
    inputs: Any
    at: str
    batch_size: int
    device: str | torch.device | None
    dtype: str | torch.dtype | None
    seed: int
    truncate: bool
    window: bool
    stride: int | None
    patch: int | None
    sinks: str | None
    keep: str
    recompute: Count
    memory_limit: int | str | None
    plans: bool


class ExplainOptions(OptionsByName, total=False):
    """All of them: those of functions that take one method."""

    method: str | Method | None
    inside: str | Sequence[str] | None


@dataclass(frozen=True)
class Request:
    """A model, the data to be explained, and what is asked of the explanation."""

    model: nn.Module
    data: Any
    options: Options

    @property
    def of_images(self) -> bool:
        """Whether the data are images. Tensors by name are the model's arguments, whatever else is given."""
        return not isinstance(self.data, Mapping) and (self.options.processor is not None or is_image(self.data))

    @property
    def of_texts(self) -> bool:
        return is_text(self.data) and not self.of_images


def is_text(data: Any) -> bool:
    """A string, a pair of strings, or a list of those. An empty list is an empty list of texts."""
    if isinstance(data, str):
        return True
    if isinstance(data, tuple):
        return len(data) > 0 and all(isinstance(part, str) for part in data)
    return isinstance(data, list) and all(is_text(part) or not isinstance(part, (Tensor, list)) for part in data)
