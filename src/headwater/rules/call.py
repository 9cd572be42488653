"""One operation with its arguments, and which of them depend on the inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass
class Call:
    """One operation on its way through the scope; parameters among its arguments are already constants.

    Example:
        >>> from headwater.rules import Call
        >>> call = Call(torch.add, "add", False, (torch.tensor(1), torch.tensor(2)), {})
        >>> int(call.run()), int(call.get(1, "other"))
        (3, 2)
    """

    func: Callable[..., Any]  # the function of torch
    name: str  # by which rules find it
    inplace: bool  # whether it writes into its first argument
    args: tuple[Any, ...]  # given by position
    kwargs: dict[str, Any]  # given by name

    def run(self) -> Any:
        """The operation itself, on its arguments."""
        return self.func(*self.args, **self.kwargs)

    def get(self, position: int, name: str, default: Any = None) -> Any:
        """An argument by its `position` or its `name`; `default` where it was not given."""
        return self.args[position] if len(self.args) > position else self.kwargs.get(name, default)


def is_signal(value: Any) -> bool:
    """Whether a value depends on the input that is explained.

    Args:
        value: an argument of an operation.

    Returns:
        True for a tensor that carries a gradient.

    Example:
        >>> from headwater.rules import is_signal
        >>> is_signal(torch.ones(2)), is_signal(torch.ones(2, requires_grad=True))
        (False, True)
    """
    return isinstance(value, Tensor) and value.requires_grad


def find_signal(call: Call) -> Tensor | None:
    """The first tensor among the arguments that depends on the inputs."""
    for value in (*call.args, *call.kwargs.values()):
        if is_signal(value):
            return value  # type: ignore[no-any-return]
        if isinstance(value, (list, tuple)):
            for item in value:
                if is_signal(item):
                    return item  # type: ignore[no-any-return]
    return None
