"""Attention in whatever spelling: a fused operation, a softmax and a matrix product, an einsum. Read, not changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from .attention.call import AttentionCall, attention_weights
from .call import Call, is_signal
from .lineage import Kind, lineage_kind
from .scope import Scope

_MIXES = ("matmul", "bmm", "einsum")


@dataclass(frozen=True)
class Order:
    """How axes are turned so that weights are [heads …, queries, keys] and values [heads …, keys, size]."""

    weights: tuple[int, ...]
    values: tuple[int, ...]
    result: tuple[int, ...]


def order_of(call: Call) -> Order | None:
    """A product of weights and values, as a matrix product or spelled by einsum."""
    if call.name != "einsum":
        weights, values = call.args
        plain = tuple(range(weights.dim()))
        return Order(plain, plain, plain) if weights.dim() == values.dim() and weights.dim() in (3, 4) else None
    if not isinstance(call.args[0], str) or len(call.args) != 3 or "->" not in call.args[0]:
        return None
    left, result = call.args[0].replace(" ", "").split("->")
    weights, values = left.split(",")
    shared = [a for a in weights if a in values and a in result]
    queries = [a for a in weights if a not in values]
    keys = [a for a in weights if a in values and a not in result]
    size = [a for a in values if a not in weights]
    if not len(queries) == len(keys) == len(size) == 1 or sorted(result) != sorted((*shared, *queries, *size)):
        return None
    return Order(
        tuple(weights.index(a) for a in (*shared, *queries, *keys)),
        tuple(values.index(a) for a in (*shared, *keys, *size)),
        tuple(result.index(a) for a in (*shared, *queries, *size)),
    )


@dataclass
class AttentionMap:
    """One attention: weights and values, [heads …, rows, columns]; `gradient` of its result after a backward pass."""

    weights: Tensor
    values: Tensor
    gradient: Tensor | None = None
    module: str = ""

    @property
    def weights_gradient(self) -> Tensor | None:
        """df/dA = df/dy v^T."""
        return None if self.gradient is None else self.gradient @ self.values.transpose(-2, -1)


@dataclass(eq=False)
class MapScope(Scope):
    """A scope that also keeps every attention map it meets, without asking the model for a slower attention."""

    maps: list[AttentionMap] = field(default_factory=list)
    reads_weights: bool = True

    def perform(self, call: Call) -> Any:
        found = self._read_fused(call) or self._read_product(call)
        result = super().perform(call)
        if found is not None and is_signal(result):
            self.maps.append(found[0])
            self.watch_result(result, *found)
        return result

    def watch_result(self, result: Tensor, one: AttentionMap, order: tuple[int, ...]) -> None:
        """The gradient of an attention's result is noted on the way back. `order` turns its axes, see `Order`."""
        result.register_hook(lambda gradient: self._note(one, gradient, order))

    def _read_fused(self, call: Call) -> tuple[AttentionMap, tuple[int, ...]] | None:
        if call.name != "scaled_dot_product_attention":
            return None
        given = AttentionCall.read(call)
        key, values = (part.detach() for part in given.keys_and_values_per_head())
        mask = None if given.mask is None else given.mask.detach()
        weights = attention_weights(given.query.detach(), key, mask, given.options, slice(None))
        return AttentionMap(weights, values, module=self.where()), tuple(range(values.dim()))

    def _read_product(self, call: Call) -> tuple[AttentionMap, tuple[int, ...]] | None:
        if call.name not in _MIXES or not all(isinstance(a, Tensor) for a in call.args[-2:]):
            return None
        weights, values = call.args[-2:]
        order = order_of(call) if is_signal(weights) and lineage_kind(weights) is Kind.WEIGHTS else None
        if order is None:
            return None
        turned = weights.detach().permute(order.weights), values.detach().permute(order.values)
        return AttentionMap(*turned, module=self.where()), order.result

    def _note(self, one: AttentionMap, gradient: Tensor | None, order: tuple[int, ...]) -> None:
        if gradient is not None and self.books.probe is None:
            one.gradient = gradient.detach().permute(order)
