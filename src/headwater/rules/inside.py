"""The scope that notes relevance inside the model: at heads, neurons, layers, attention's roles, and named modules.

Parts are found by operation. A head is where a softmax mixes values; a neuron is an input of the linear layer after an
activation or a gate. Nothing is named by architecture, and no number changes: each tap is a hook on a tensor. A cut is
made at every group of nodes (`by_passing`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor, nn

from ..errors import NotApplicable
from ..inputs.hooks import hook_modules
from ..inputs.inside_demand import InsideDemand, find_stacks
from ..inputs.places import find_explained, put_explained
from ..inputs.walking import named_modules
from ..results.inside import MODULES
from .by_passing import CutScope, alias_of
from .call import Call, is_signal
from .cuts import tensors
from .experts import Expert, expert_after, find_expert, find_stacked, find_weighing, mark_expert
from .lineage import Kind, lineage_kind
from .maps import order_of
from .scope import Scope
from .shape_ops import MOVE, STAY
from .tapped import NodeTap, SamplesUntold, Sum

_GATED, _MIXED = "_headwater_gated", "_headwater_mixed"
_FUSED = ("scaled_dot_product_attention", "capped_attention")
_PRODUCTS = ("matmul", "bmm", "einsum", "baddbmm")
_ROLES = ("query", "key", "value")
_ROLE_KINDS = {"query": "queries", "key": "keys", "value": "values"}
_ACTIVE = (Kind.ACTIVATED, Kind.SHIFTED)
_ALONG = frozenset((*STAY, *MOVE, "dropout", "mul", "div", "add", "sub"))  # a gate's result stays one through these
_LINEAR = {"linear": 0, "addmm": 1, "matmul": 0, "mm": 0, "bmm": 0}  # the place of what a matrix multiplies


NOTHING_ASKED = InsideDemand(frozenset())


@dataclass(eq=False)
class InsideScope(CutScope):
    """A scope that notes relevance at the nodes that `demand` asks for, and around them."""

    demand: InsideDemand = NOTHING_ASKED
    _wants_heads: bool = False
    _wants_neurons: bool = False
    _wants_experts: bool = False
    stacked: list[Tensor] = field(default_factory=list)  # parameters that hold one matrix per expert
    expert_here: Expert | None = None  # whose matrix the running operation multiplies by
    _roles: tuple[str, ...] = ()
    _busy: bool = False
    _scores: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # operands of products that may be scores

    @property
    def tells_experts(self) -> bool:
        """Whether somebody asks which expert an operation belongs to."""
        return self._wants_experts

    def ask(self, demand: InsideDemand) -> None:
        """Says which nodes are asked for."""
        self.demand, kinds = demand, demand.kinds
        self._wants_heads, self._wants_neurons = "heads" in kinds, "neurons" in kinds
        self._wants_experts = "experts" in kinds
        self._roles = tuple(role for role in _ROLES if _ROLE_KINDS[role] in kinds)

    def perform(self, call: Call) -> Any:
        if self._busy:  # an operation that a rule is made of
            return super().perform(call)
        self._busy = True
        try:
            if self.record.cuts:
                call = self.with_edges(call)
            if self._wants_neurons or self._wants_experts:
                call = self._with_neurons(call)
            if self._wants_experts:
                call = self._with_router(call)
            mixing = self._find_mixing(call)
            if mixing is not None and self._roles:
                call = self._with_roles(call, mixing)
            result = self.perform_once(call)
        finally:
            self._busy = False
        self._follow_result(call, result)
        self.expert_here = None
        return self._note_heads(result, mixing) if mixing is not None and is_signal(result) else result

    def _follow_result(self, call: Call, result: Any) -> None:
        """When a tensor was made, and what of gates and mixed values went into it."""
        signals = [one for one in tensors((call.args, call.kwargs)) if is_signal(one)]
        linear = call.name in _LINEAR and len(signals) == 1
        mixed = not linear and any(hasattr(one, _MIXED) for one in signals)
        gated = (self._wants_neurons or self._wants_experts) and not mixed and is_gated(call, signals)
        expert = expert_after(call, signals, self.expert_here) if self._wants_experts else None
        written = call.args[0] if call.inplace and call.args else None
        for one in tensors((result, written)):
            if is_signal(one):
                self.note_birth(one)
                set_flag(one, _MIXED, mixed)
                set_flag(one, _GATED, gated)
                mark_expert(one, expert)

    def _with_neurons(self, call: Call) -> Call:
        x = linear_input(call)
        if x is None:
            return call
        place = _LINEAR[call.name]
        if hasattr(x, _MIXED) or not (hasattr(x, _GATED) or lineage_kind(x) in _ACTIVE):
            return call
        if any(is_signal(one) for number, one in enumerate(call.args) if number != place):
            return call
        self.expert_here = find_expert(call, self.stacked)
        if not self._wants_neurons and self.expert_here is None:
            return call
        axis, node = self.record.find_sample_axis(x.shape, self.books.scrambled), alias_of(x)
        if self._wants_neurons:
            node = self.note_node(node, "neurons", self.where(), Sum.NOTHING, (axis, x.dim() - 1))
        if self.expert_here is not None and self._wants_experts:
            node = self.note_node(alias_of(node), "experts", self.where(), Sum.FEATURES, (axis, None))
            self.record.name_expert(self.expert_here)
        return put_argument(call, place, node)

    def _with_router(self, call: Call) -> Call:
        """The router's weights of an expert, as they are multiplied with what it gives. They are no cut."""
        for place, expert in find_weighing(call).items():
            alias, module = alias_of(call.args[place]), self.where()
            axis = self.record.find_sample_axis(alias.shape, self.books.scrambled)
            tap = NodeTap("router", module, Sum.NOTHING, axis, None, -1, -1, layer=self.layer_of(module))
            self.watch_tensor(alias, tap)
            self.record.name_expert(expert)
            call = put_argument(call, place, alias)
        return call

    def _find_mixing(self, call: Call) -> tuple[int, ...] | None:
        """The order of the result's axes, [heads …, queries, size], where a softmax mixes values; else None."""
        if not (self._wants_heads or self._roles or self._wants_neurons):
            return None
        if call.name in _FUSED:
            value = call.get(2, "value")
            return tuple(range(value.dim())) if is_signal(value) else None
        if call.name not in _PRODUCTS or not all(isinstance(one, Tensor) for one in call.args[-2:]):
            return None
        weights, values = call.args[-2:]
        if not self._is_weights(weights):
            if self._roles and is_signal(weights) and is_signal(values):
                self._scores = [*self._scores[-3:], (weights, values)]
            return None
        order = None if "..." in str(call.args[0])[:99] and call.name == "einsum" else order_of(call)
        if order is None and (self._wants_heads or self._roles):
            self.record.untold.append(self.where())
        return None if order is None else order.result

    def _is_weights(self, tensor: Tensor) -> bool:
        if lineage_kind(tensor) is Kind.WEIGHTS:
            return True
        origin = None if tensor.requires_grad else self.cuts.of(tensor)
        return origin is not None and origin.weights

    def _note_heads(self, result: Tensor, order: tuple[int, ...]) -> Tensor:
        setattr(result, _MIXED, True)
        if not self._wants_heads:
            return result
        axes = head_axes([result.shape[axis] for axis in order], self.record.samples, self.books.scrambled)
        if axes is None:
            self.record.untold.append(self.where())
            return result
        # summed over the last axis of the ordered result, what is left has the order of the others
        kept = [axis for axis in range(result.dim()) if axis != order[-1]]
        samples, units = (kept.index(order[axis]) for axis in axes)
        if order[-1] != result.dim() - 1:
            raise NotApplicable(f"the heads of {self.where()!r} have their features along another axis than the last.")
        return self.note_node(result, "heads", self.where(), Sum.FEATURES, (samples, units))

    def _with_roles(self, call: Call, order: tuple[int, ...]) -> Call:
        """Attention's queries, keys and values, each as this attention alone uses it."""
        if call.name not in _FUSED:
            return self._with_written_roles(call)
        for place, role in enumerate(_ROLES):
            given = call.get(place, role)
            if role in self._roles and is_signal(given):
                alias = self._role_alias(given, role)
                if len(call.args) > place:
                    call = put_argument(call, place, alias)
                else:
                    call = replace(call, kwargs={**call.kwargs, role: alias})
        return call

    def _with_written_roles(self, call: Call) -> Call:
        """Attention that is written out: queries and keys are what the last product of the weights' shape is of."""
        weights, values = call.args[-2:]
        fitting = [pair for pair in self._scores if scores_shape(*pair) == tuple(weights.shape)]
        self._scores = []
        if call.name == "einsum" or (not fitting and self._roles != ("value",)):
            self.record.untold.append(self.where())
            return call
        if fitting:
            self._watch_role(fitting[-1][0], "query", Sum.FEATURES)
            self._watch_role(fitting[-1][1], "key", Sum.ROWS)
        if "value" in self._roles and is_signal(values):
            return replace(call, args=(*call.args[:-1], self._role_alias(values, "value")))
        return call

    def _role_alias(self, given: Tensor, role: str) -> Tensor:
        alias = alias_of(given)
        self._watch_role(alias, role, Sum.FEATURES)
        return alias

    def _watch_role(self, tensor: Tensor, role: str, how: Sum) -> None:
        if role not in self._roles:
            return
        axes = head_axes(list(tensor.shape), self.record.samples, self.books.scrambled)
        if axes is None:
            self.record.untold.append(self.where())
            return
        module = self.where()
        self.watch_tensor(tensor, NodeTap(_ROLE_KINDS[role], module, how, *axes, -1, -1, layer=self.layer_of(module)))

    def note_output(self, kind: str, module: str, output: Any) -> Any:
        """The output of a layer or of a named module: the module's callers get the node in its place."""
        try:
            tensor = find_explained(output)
        except ValueError:
            return None
        if not is_signal(tensor) or tensor.is_leaf:
            return None
        node = self.own_alias(tensor, len(self.record.cuts))
        node = alias_of(tensor) if node is tensor else alias_of(node)
        axis = self.record.find_sample_axis(tensor.shape, self.books.scrambled)
        node = self.note_node(node, kind, module, Sum.FEATURES, (axis, None))
        return put_explained(output, tensor, node)


def scores_shape(queries: Tensor, keys: Tensor) -> tuple[int, ...]:
    """The shape of q k^T, for keys that are turned already."""
    return (*queries.shape[:-1], keys.shape[-1])


def linear_input(call: Call) -> Tensor | None:
    """What a matrix multiplies in this operation, if it is one of those and that is a signal."""
    place = _LINEAR.get(call.name)
    found = None if place is None or len(call.args) <= place else call.args[place]
    return found if is_signal(found) else None


def holds_mixed_values(tensor: Tensor) -> bool:
    """Whether a tensor is made of what heads gave, and no linear layer has read it yet."""
    return hasattr(tensor, _MIXED)


def is_gated(call: Call, signals: list[Tensor]) -> bool:
    """Whether the result is a product with a gate, or such a product under another name."""
    if call.name == "mul" and len(signals) == 2:
        kinds = [lineage_kind(one) for one in signals]
        if Kind.NORM in kinds:  # normalised it stays what it was, whether a rule holds the size constant or not
            return any(hasattr(one, _GATED) for one in signals)
        return any(kind in _ACTIVE for kind in kinds) and Kind.WEIGHTS not in kinds
    return call.name in _ALONG and len(signals) == 1 and hasattr(signals[0], _GATED)


def head_axes(shape: list[int], samples: int, scrambled: bool) -> tuple[int, int] | None:
    """Where samples and heads lie in [heads …, rows, size]; None where that cannot be told.

    With one sample, all axes before the rows but the last are windows of one image or text.
    """
    if len(shape) not in (3, 4):
        return None
    if samples == 1:
        return 0, len(shape) - 3
    if scrambled or shape[0] != samples:
        raise SamplesUntold
    return (0, 1) if len(shape) == 4 else None


def set_flag(tensor: Tensor, name: str, value: bool) -> None:
    if value:
        setattr(tensor, name, True)
    elif hasattr(tensor, name):
        delattr(tensor, name)


@contextmanager
def watch_inside(model: nn.Module, scope: Scope) -> Iterator[None]:
    """Layers and named modules, by hooks that stay for one forward pass."""
    if not isinstance(scope, InsideScope):
        yield
        return
    scope.stacks = find_stacks(model)
    scope.stacked = find_stacked(model) if scope.tells_experts else []
    places = {id(part): (stack, n) for stack, parts in scope.stacks.items() for n, part in enumerate(parts)}
    asked: dict[int, list[tuple[str, str]]] = {}
    for name, module in scope.demand.find_modules(model).items():
        asked.setdefault(id(module), []).append((MODULES, name))
    if "layers" in scope.demand.kinds:
        for number, (stack, place) in places.items():
            asked.setdefault(number, []).append(("layers", f"{stack}.{place}" if stack else str(place)))

    def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
        scope.entered_layers[places[id(module)]] += 1

    def note(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        found = None
        for kind, name in asked[id(module)]:
            again = scope.note_output(kind, name, output if found is None else found)
            found = found if again is None else again
        return found

    parts = [part for stack in scope.stacks.values() for part in stack]
    watched = [module for _, module in named_modules(model) if id(module) in asked]
    with hook_modules(parts, before=enter), hook_modules(watched, after=note):
        yield


def put_argument(call: Call, place: int, value: Any) -> Call:
    """The same call with another argument at this place."""
    return replace(call, args=(*call.args[:place], value, *call.args[place + 1 :]))
