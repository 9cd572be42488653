"""Where the tensors stand among an operation's arguments, and the same operation with other tensors in their places."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .call import Call

Place = tuple[int, int]  # the argument's number, and the number inside it if it is a list; -1 if it is none


def operand_places(call: Call) -> dict[Place, Any]:
    """Tensors among the arguments, also inside a list, by where they stand."""
    places: dict[Place, Any] = {}
    for i, value in enumerate(call.args):
        if isinstance(value, Tensor):
            places[i, -1] = value
        elif isinstance(value, (list, tuple)):
            places.update({(i, k): item for k, item in enumerate(value) if isinstance(item, Tensor)})
    return places


def run_with(call: Call, new: dict[Place, Tensor]) -> Any:
    """The operation with the tensors of `new` in place of its own."""
    args = list(call.args)
    for (i, k), tensor in new.items():
        if k < 0:
            args[i] = tensor
        else:
            args[i] = [tensor if j == k else item for j, item in enumerate(args[i])]
    return call.func(*args, **call.kwargs)


def share_product(call: Call, first: Place, second: Place, part: float = 0.5) -> Any:
    """A product of two signals that is linear in each.

    Args:
        call: the product: a matmul, an einsum.
        first: where the first factor stands among its arguments: a number, and a place in a list or -1.
        second: where the second does.
        part: of the product that goes by the first; the rest goes by the second.

    Returns:
        The product, with that gradient.

    Example:
        >>> from headwater.rules import Call, share_product
        >>> a, b = torch.tensor([2.0], requires_grad=True), torch.tensor([3.0], requires_grad=True)
        >>> product = share_product(Call(torch.mul, "mul", False, (a, b), {}), (0, -1), (1, -1), 0.25)
        >>> product.sum().backward()
        >>> float(a.detach() * a.grad), float(b.detach() * b.grad)  # a quarter of 6, and the rest
        (1.5, 4.5)
    """
    operands = operand_places(call)
    by_first = run_with(call, {second: operands[second].detach()})
    by_second = run_with(call, {first: operands[first].detach()})
    return part * by_first + (1 - part) * by_second
