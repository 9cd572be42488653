"""Attention in which queries and keys have the gradient of torch's own kernel; values, too, or a rule of their own.

Queries, keys, values and one number per query are kept. The result is not: on the way back it is made again, which is
two products. The next linear layer may ask for it first; it is then made once for both.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...kernels import forward
from ...kernels.batching import map_batch, outside_batches
from ..call import is_signal
from ..saved import BorrowedTensor, SavedTensor, mark_remade
from ..scope import Scope
from .call import AttentionCall
from .constant import attend_by_values, values_gradient


class RemadeAttention:
    """One attention whose result is made again. `gamma` and `offset` are those of the rule for sums over tokens."""

    __slots__ = ("__weakref__", "_func", "_made", "_mask", "_options", "_parts", "_sums")

    def __init__(self, call: AttentionCall, sums: Tensor | None, gamma: float, offset: float) -> None:
        self._parts = [BorrowedTensor(part) for part in (call.query, call.key, call.value)]
        self._mask = None if call.mask is None else BorrowedTensor(call.mask)
        self._sums = None if sums is None else SavedTensor(sums)
        self._func, self._options = call.func, {**call.options, "token": gamma, "offset": offset}
        self._made: tuple[Tensor, ...] | None = None

    def copy_before_write(self, written: Tensor) -> None:
        for part in self._borrowed:
            part.copy_before_write(written)

    @property
    def here(self) -> bool:
        return all(part.here for part in self._borrowed)

    @property
    def _borrowed(self) -> list[BorrowedTensor]:
        """What the model may write over: queries, keys, values, and the mask if there is one."""
        return self._parts if self._mask is None else [*self._parts, self._mask]

    def tensor(self) -> Tensor:
        """The result. It is held until the backward pass of this attention, which takes it."""
        return self._make()[0].detach()

    @property
    def _by_gradient(self) -> bool:
        """Whether values have the gradient of torch's kernel, as queries and keys have."""
        return not self._options["token"] and not self._options["offset"]

    def _make(self) -> tuple[Tensor, ...]:
        """The result, with a graph of its own; queries, keys and values."""
        if self._made is None:
            query, key, value = (part.tensor().detach() for part in self._parts)
            mask = self._mask_and_sums()[0]
            options = {name: one for name, one in self._options.items() if name not in ("token", "offset")}
            with outside_batches(), torch.enable_grad():
                query, key = query.requires_grad_(), key.requires_grad_()
                value = value.requires_grad_(self._by_gradient)
                made, _ = forward.attend_by_torch(self._func, query, key, value, mask, options)
            self._made = made, query, key, value
        return self._made

    def _mask_and_sums(self) -> tuple[Tensor | None, Tensor | None]:
        mask, sums = (None if one is None else one.tensor() for one in (self._mask, self._sums))
        return mask, sums

    def back(self, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of queries, keys and values."""
        (made, query, key, value), (mask, sums) = self._make(), self._mask_and_sums()
        self._made = None
        parts = query.detach(), key.detach(), value
        sources = (query, key, value) if self._by_gradient else (query, key)

        def by_torch(one: Tensor) -> tuple[Tensor, ...]:
            with outside_batches():
                return torch.autograd.grad(made, sources, one, retain_graph=True)

        if self._by_gradient:
            to_query, to_key, to_value = map_batch(by_torch, gradient)
            return to_query, to_key, to_value
        heads = value.shape[-3] if value.dim() > 2 else None
        to_query, to_key = map_batch(by_torch, gradient)
        return to_query, to_key, values_gradient(gradient, parts, mask, sums, self._options, heads)


class _RemadeAttention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, result: list[Tensor], held: RemadeAttention
    ) -> Tensor:
        ctx.held = held
        return result[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return *ctx.held.back(gradients[0]), None, None


def can_remake(call: AttentionCall) -> bool:
    """Whether queries or keys take part, and attention made again is the same: no dropout, and a mask that is given."""
    follows = is_signal(call.query) or is_signal(call.key)
    return follows and not is_signal(call.mask) and not call.options.get("dropout_p")


def attend_by_gradient(scope: Scope, call: AttentionCall) -> Any:
    """Fused attention with its own gradient. The result is made again on the way back where that can be."""
    return attend_by_rule(scope, call, 0.0) if can_remake(call) and is_signal(call.value) else call.run()


def attend_by_rule(scope: Scope, call: AttentionCall, gamma: float, offset: float = 0.0) -> Tensor:
    """Fused attention: queries and keys get its gradient, values theirs by the rule for sums over tokens."""
    if not can_remake(call):
        return attend_by_values(call, gamma, offset)
    attended, sums = attend_detached(call)
    held = RemadeAttention(call, sums, gamma, offset)
    scope.pending.register_borrower(held)
    result: Tensor = _RemadeAttention.apply(call.query, call.key, call.value, [attended], held)
    mark_remade(result, held)
    return result


def attend_detached(call: AttentionCall) -> forward.ResultAndSums:
    with torch.no_grad():
        query, key, value = (part.detach() for part in (call.query, call.key, call.value))
        return forward.attend_by_torch(call.func, query, key, value, call.mask, dict(call.options))
