"""A number with another gradient; and gradients that are not ours: a model's own, and those that torch lacks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import HiddenOperation
from ..kernels.batching import is_batched

# with these a model takes gradients of its own: autograd.grad, backward, torch.func.grad and jvp
OWN_GRADIENTS = frozenset("grad backward _make_dual make_dual".split())


def value_of(value: Tensor, *, gradient_of: Tensor) -> Tensor:
    """The number of one tensor with the gradient of another.

    Args:
        value: whose number it is.
        gradient_of: whose gradient it has.

    Returns:
        A tensor.

    Example:
        >>> from headwater.rules import value_of
        >>> x = torch.tensor([2.0], requires_grad=True)
        >>> y = value_of(x**3, gradient_of=4 * x)  # 8, as a linear function of x
        >>> y.sum().backward()
        >>> y.item(), x.grad.item()
        (8.0, 4.0)
    """
    return _Swap.apply(gradient_of, [value.detach()])  # type: ignore[no-any-return]


class _Swap(torch.autograd.Function):
    """The value comes in a list, so that it is no input: the result may then be written into like any other."""

    @staticmethod
    def forward(ctx: Any, surrogate: Tensor, value: list[Tensor]) -> Tensor:
        return value[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0], None


def times(gradient: Tensor, value: Tensor | float) -> Tensor:
    """gradient * value, with 0 where the gradient is 0 even if the value is infinite (a mask)."""
    product = gradient * value
    return torch.where(gradient == 0, torch.zeros_like(product), product)


def check_derivative(name: str, result: Any) -> None:
    """Operations for inference alone end a signal where nobody would notice."""
    node = result.grad_fn if isinstance(result, Tensor) else None
    lost = node is not None and node.name().endswith("NotImplemented")
    if lost or (isinstance(result, Tensor) and result.is_quantized):
        raise HiddenOperation(f"{name!r} has no derivative, so that relevance would end there. Use unpacked weights.")


def is_transformed() -> bool:
    """Whether a transform of torch.func runs: what then asks for gradients is a gradient of the model's own."""
    return torch._C._functorch.peek_interpreter_stack() is not None


def only_looking(hook: Any) -> Any:
    """A hook of the model's on a gradient may look at it; one that changes it changes relevance."""

    def look(gradient: Tensor) -> None:
        if is_batched(gradient):
            raise RuntimeError("the model's hook looks at the gradient of one score at a time.")
        if hook(gradient) is not None:
            raise HiddenOperation(
                "the model changes gradients by a hook (register_hook), and relevance with them. Remove the hook."
            )

    return look
