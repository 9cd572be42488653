"""The scope in which rules act: on operations, inside a `with`, for one thread, on any model. Nothing is patched.

Every torch operation that meets a signal (a tensor that depends on the inputs) passes through here. Parameters are
constants: they are handed on detached, whatever their `requires_grad` says, so the model's flags are never touched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import HiddenOperation
from ..inputs.places import Captured
from ..inputs.restoring import Mode
from ..traces.record import refuse_trace
from .attention.registry import Named, Softmax, check_variants, variant_for
from .branches import pass_branch_on
from .call import Call, is_signal
from .constants import (
    BESIDE_HELD,
    NAME,
    EnteredConstant,
    fingerprint_constant,
    freeze,
    is_embedded,
    module_on_stack,
    parameter_of,
    pass_name_on,
    set_name,
    weight_on_stack,
)
from .cuts import ORIGIN, READS, Chosen, Cuts, Origin, merge, numbers_of, tensors
from .gradients import OWN_GRADIENTS, check_derivative, is_transformed, only_looking, times
from .handlers import FOLLOWED, OPERATIONS, SPELLED
from .lineage import carry, keep_kind
from .python_functions import inside, is_transparent
from .ratio import Pending, settle_ratio
from .rule_set import RuleSet
from .sources import Books, Sort
from .spelling import canonical, operation_name, positional, torch_names
from .tapped import InsideRecord

_CHECKPOINT = "torch.utils.checkpoint"  # whose hooks are there where the running code lies in a checkpoint
_top_hooks = torch._C._autograd._top_saved_tensors_default_hooks
_CONTAINERS = (list, tuple, dict)
SEEN = {"item", "__float__", "__int__", "__index__", "__complex__", "__bool__"}  # below, as operations
_UNUSUAL = READS | OWN_GRADIENTS | {"set_data", "register_hook", "requires_grad_"}

HIDDEN = {
    "_native_multi_head_attention": "fuses attention so that its weights cannot be held constant.",
    "_transformer_encoder_layer_fwd": "fuses a whole layer so that the rules cannot see into it.",
    "flex_attention": 'hides its attention. Load the model with attn_implementation="sdpa".',
}


@dataclass(eq=False)
class Scope(Mode):
    """`with Scope(rules, books, names, modules): model(...)`. `met` counts how often each rule acted.

    Example:
        >>> from headwater.rules import Books, RuleSet, Scope
        >>> norm, x = torch.nn.LayerNorm(4), torch.arange(4.0).requires_grad_().clone()
        >>> with Scope(RuleSet(frozenset({"ln"})), Books(samples=1), {}, {}) as scope:
        ...     y = norm(x)
        >>> scope.met
        {'ln': 1}
    """

    rules: RuleSet  # that act inside
    books: Books  # where biases and constants are noted
    names: Mapping[int, str]  # id(parameter or buffer) -> its name
    modules: Mapping[int, str]  # id(module) -> its name
    met: dict[str, int] = field(default_factory=dict)  # how often each rule acted
    known_foreign: set[Any] = field(default_factory=set)  # autograd functions of others that were understood
    coarsest: torch.dtype | None = None  # the least precise type of a signal
    pending: Pending = field(default_factory=Pending)  # what waits for a later operation to be understood
    reads_weights: bool = False  # attention is to be written out, for somebody looks at its weights
    fleeting: bool = False  # weights are put into their modules when those are called, and taken out again
    cuts: Cuts = field(init=False)  # what was made from the input without a gradient
    follows: bool = field(init=False)  # whether scores take part in attention, and what they leave is accounted for
    tells_branches: bool = field(init=False)  # whether a rule for sums asks which branch a signal belongs to
    entered: list[EnteredConstant] | None = None  # constants as they enter, where somebody compares them
    parts_decide: bool = False  # a module's value is what its parts compute here, also where inference has a fused path
    inside: InsideRecord | None = None  # relevance at parts of the model, where it is asked for
    _frozen: dict[int, Tensor] = field(default_factory=dict)
    _unfolding: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.cuts = Cuts(self.where)
        self._memory, self._selected = self.cuts.memory, self.cuts.selected  # asked at every operation
        self._variant = check_variants(self.rules.attention)
        self.tells_branches = "residual" in self.rules or "token" in self.rules
        self.follows = "ah" in self.rules and self._variant.softmax is Softmax.LINEAR

    @property
    def variant(self) -> Named:
        """The variant of attention in the module whose code is running."""
        return self._variant if isinstance(self.rules.attention, str) else variant_for(self.rules, self.where())

    def enter_input(self, captured: Captured, started: Tensor) -> None:
        """An input that is explained, `captured`, enters the model as the tensor `started`."""

    def reference_values(self, ends: list[Tensor]) -> Any:
        """What inputs and the outputs `ends` are for the reference, where relevance is a difference from one."""
        return None

    def stand_in(self, value: Any, seen: Any) -> None:
        """`value` takes the place of the signal `seen`, from which it has its gradient."""

    def pass_activation_on(self, function: Callable[[Tensor], Tensor], x: Tensor, output: Tensor) -> Tensor | None:
        """The result of an activation that is known by its values alone; None: the ACT-rule decides.

        `function` is the activation, `x` its input and `output` its value there.
        """
        return None

    def applies(self, rule: str) -> bool:
        """Whether `rule` acts here; noted as met if so."""
        if rule not in self.rules:
            return False
        self.met[rule] = self.met.get(rule, 0) + 1
        return True

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = operation_name(func)
        if not name:
            return func(*args, **kwargs)
        if name in _UNUSUAL:
            return self._unusual(func, name, args, kwargs)
        name, inplace = canonical(name)
        if not torch.is_grad_enabled():
            return self._without_gradient(func, name, inplace, args, kwargs)
        if kwargs:
            args, kwargs = positional(name, args, torch_names(name, kwargs) if name in OPERATIONS else kwargs)
        args, alive, origin = self._constants_frozen(args)
        if kwargs:
            kwargs, also, another = self._constants_frozen(kwargs)
            alive, origin = alive or also, merge(origin, another)
        if not alive:
            result = pass_name_on(func(*args, **kwargs), name, args)
            if origin is not None:
                self.cuts.pass_on(result, origin, name, args, inplace=inplace)
                self._note_constants(name, (args, kwargs))
            return result
        if name in HIDDEN:
            raise HiddenOperation(f"{name!r} {HIDDEN[name]}")
        if self.reads_weights and name in SPELLED:
            with self:
                return SPELLED[name](Call(func, name, inplace, args, kwargs))
        if name not in OPERATIONS and is_transparent(func, name) and func not in self._unfolding:
            return self._unfold(func, args, kwargs)
        known = len(self.books.sites)
        call = Call(func, name, inplace, args, kwargs)
        result = self.perform(call)
        if self.tells_branches:
            pass_branch_on(call, result)
        if type(result) is not Tensor or not result.requires_grad:
            self.cuts.lose(result, name, args, origin, by_rule=name in OPERATIONS)
            self._note_constants(name, (args, kwargs))
        if origin is not None or self._selected:
            self.cuts.meet(result, name, (args, kwargs), origin)
        if self.entered is not None:
            self.cuts.place(result, range(known, len(self.books.sites)))
        return result

    def _unusual(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """What is no operation: a model takes gradients of its own, reads numbers, or exchanges a tensor's data."""
        if name in READS:
            self.cuts.read(args[0] if args else None)
            if name not in SEEN:
                refuse_trace(f"numbers leave torch by {name}")
        elif name == "set_data":
            return self._data_set(func, args)
        elif name == "register_hook" and is_signal(args[0]):
            return func(args[0], only_looking(*args[1:], **kwargs))
        elif name in OWN_GRADIENTS or is_transformed():
            raise HiddenOperation(
                f"the model takes gradients inside its forward pass ({name}), and the rules would change them. Explain "
                "the model without that part, or write its gradients out."
            )
        return func(*args, **kwargs)

    def _data_set(self, func: Any, args: Any) -> Any:
        """`tensor.data = other`: it is another tensor from now on."""
        func(*args)
        self._frozen.pop(id(args[0]), None)
        origin = self.cuts.of_any(args[1:])
        if origin is not None:
            self.cuts.pass_on(None, origin, "data", args, inplace=True)

    def _without_gradient(self, func: Any, name: str, inplace: bool, args: Any, kwargs: Any) -> Any:
        """Inside the model's own `no_grad`, or inside somebody's own autograd function."""
        if kwargs:
            args, kwargs = positional(name, args, kwargs)
        if inplace and args:
            self.pending.tell_borrowers(args[0])
        result = keep_kind(func(*args, **kwargs), name, args)
        origin = self.cuts.of_any(numbers_of(name, args, kwargs))
        if origin is not None:
            self.cuts.pass_on(result, origin, name, args, inplace=inplace)
        return result

    def _unfold(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A function in Python: the operations in its body are seen one by one."""
        self._unfolding.append(func)
        try:
            with self:
                return inside(func)(*args, **kwargs)
        finally:
            self._unfolding.pop()

    def release(self) -> None:
        """Let go of the model: nothing of a run keeps it alive."""
        self._frozen.clear()
        self.cuts.release()

    def perform(self, call: Call) -> Any:
        """One operation on signals, `call`: as its handler has it, or as it is."""
        hooks = _top_hooks(True)
        if hooks is not None and hooks[0].__module__ == _CHECKPOINT:
            return self._perform_outside_checkpoint(call, hooks)
        if call.inplace:
            self.pending.settle(call.args[0])
            if is_signal(call.args[0]) and call.args[0]._is_view():
                return self._perform_on_copy(call)
        elif call.args and call.name != "mul":  # a product may hold it constant, and looks after it itself
            settle_ratio(call.args[0])
        handler = FOLLOWED.get(call.name) if self.follows else None
        handler = handler or OPERATIONS.get(call.name)
        result = handler(self, call) if handler is not None else call.run()
        if type(result) is Tensor and result.dtype is not self.coarsest:
            self._note_precision(result)
        if handler is None:
            check_derivative(call.name, result)
        return result

    def _perform_outside_checkpoint(self, call: Call, hooks: Any) -> Any:
        """Gradient checkpointing would compute it again on the way back, outside the rules: it is set aside here."""
        torch._C._autograd._pop_saved_tensors_default_hooks()
        try:
            return self.perform(call)
        finally:
            torch._C._autograd._push_saved_tensors_default_hooks(*hooks)

    def _note_precision(self, result: Any) -> None:
        """The books are as precise as the coarsest signal; autocast changes types without a cast in the model."""
        if not is_signal(result) or not result.is_floating_point():
            return
        if result.dtype.itemsize == 1:  # float8 is only a step between casts, and what it rounds is accounted for
            return
        if self.coarsest is None or torch.finfo(result.dtype).eps > torch.finfo(self.coarsest).eps:
            self.coarsest = result.dtype

    def _perform_on_copy(self, call: Call) -> Any:
        """Writing into a view drops the hooks that sources hang on it, so a copy is written into, then the view."""
        target = call.args[0]
        done = carry(target.clone(), target, same_elements=True)
        self.perform(replace(call, args=(done, *call.args[1:])))
        target.copy_(done)
        carry(target, done, same_elements=True)
        return None if call.name == "setitem" else target

    def _constants_frozen(self, values: Any) -> tuple[Any, bool, Origin | None]:
        """Parameters among `values`, also inside lists, replaced by detached aliases.

        And whether a signal is there, and the origin of what was made from the input without being one.
        """
        alive, changed, origin = False, {}, None
        for place, value in values.items() if type(values) is dict else enumerate(values):
            if isinstance(value, Tensor):
                if value.requires_grad:
                    if not value.is_leaf:
                        alive = True
                        continue
                    changed[place] = value = self._freeze(value)
                elif hasattr(value, ORIGIN):
                    origin = merge(origin, self.cuts.of(value))
                elif id(value) in self.names and not hasattr(value, NAME):
                    changed[place] = value = self._freeze(value)
                if self._memory:
                    origin = merge(origin, self.cuts.of(value))
            elif type(value) in _CONTAINERS:
                inner, also, another = self._constants_frozen(value)
                alive, origin = alive or also, merge(origin, another)
                if inner is not value:
                    changed[place] = inner
        if not changed:
            return values, alive, origin
        if type(values) is dict:
            return {**values, **changed}, alive, origin
        return type(values)([changed.get(place, value) for place, value in enumerate(values)]), alive, origin

    def _freeze(self, parameter: Tensor) -> Tensor:
        frozen = self._frozen.get(id(parameter))
        if frozen is None:
            frozen = self._frozen[id(parameter)] = freeze(parameter, self.names.get(id(parameter)))
        return frozen

    def where(self) -> str:
        """Name of the module whose code is running."""
        return module_on_stack(self.modules)

    def label(self, value: Any, operation: str) -> tuple[str, Sort]:
        """The ledger's name for a source, `value`, that is about to enter by an `operation`, and its sort.

        A parameter is a bias, unless it is looked up by index. What was made from the input is no constant.
        """
        name = self.name_of(value)
        sort = Sort.BIAS if name is not None and not is_embedded(value) else Sort.CONSTANT
        name = name if name is not None else self._name_here(operation)
        if self.entered is not None and not self._is_parameter(value):
            self.entered.append(EnteredConstant(len(self.books.sites), name, fingerprint_constant(value)))
        origin = self.cuts.of(value)
        if origin is None:
            return name, sort
        if not origin.value and origin.choice is not None:
            self.cuts.chosen.append(Chosen(len(self.books.sites), origin.choice, name, sort is Sort.BIAS))
        if origin.held:
            return self._name_here(origin.name), Sort.HELD if origin.value else Sort.CUT_OFF
        return origin.name, Sort.CUT_OFF

    def _note_constants(self, operation: str, operands: Any) -> None:
        """Constants that meet what is held: where they change with the input, it is more than the rule that holds."""
        if self.entered is not None:
            for value in tensors(operands):
                if not value.requires_grad and self.cuts.of(value) is None and not self._is_parameter(value):
                    self.entered.append(EnteredConstant(BESIDE_HELD, operation, fingerprint_constant(value)))

    def _is_parameter(self, value: Any) -> bool:
        """Whether a constant is a whole parameter of the model, which no input changes."""
        return isinstance(parameter_of(value), nn.Parameter) and id(parameter_of(value)) in self.names

    def _name_here(self, operation: str) -> str:
        module = self.where()
        return f"{module}: {operation}" if module else operation

    def name_of(self, value: Any) -> str | None:
        """The name of the parameter that a constant, `value`, is, or was made of."""
        found: str | None = getattr(value, NAME, None)
        if found is not None or not self.fleeting:
            return found
        value = parameter_of(value)
        return weight_on_stack(value, self.modules) if isinstance(value, Tensor) else None

    def as_it_was(self, call: Call) -> Any:
        """What `call` writes into. A constant is soon no longer what it was: a copy, with its name and its origin."""
        target = call.args[0]
        if not call.inplace or is_signal(target):
            return target
        return self.name_as(target.clone(), target)

    def name_as(self, value: Tensor, source: Tensor) -> Any:
        """`value` is the constant `source` in another shape or memory, and has its name and its origin."""
        return pass_name_on(self.cuts.carry(value, source), "", (source,))

    def rename(self, value: Tensor, name: str | None) -> Tensor:
        """The constant `value` under the `name` of a parameter that it was made of."""
        return set_name(value, name)

    def source(
        self, result: Tensor, value: Tensor | float, operation: str, *, sign: float = 1.0, by_rule: bool = False
    ) -> None:
        """`sign` times `value` entered `result` by a sum, broadcast to its shape. `by_rule`: a rule made it, no model.

        `operation` is what the ledger calls a source that is no parameter.
        """
        if not isinstance(value, Tensor):
            self._enter_number(result, sign * float(value), operation)
            return
        if by_rule:
            amount = value if sign == 1.0 else value * sign
            name = self._name_here(operation)
            self.books.enter(result, name, sort=Sort.CONSTANT, varies=(), amount=times, held=(amount,))
            return
        name, sort = self.label(value, operation)
        amount = value if sign == 1.0 else value * sign
        offset = result.dim() - amount.dim()
        varies = tuple(axis + offset for axis, size in enumerate(amount.shape) if size > 1)
        if amount.dim() == 1 and result.dim() > 1 and amount.shape[0] == result.shape[-1]:
            self.books.enter_vector(result, name, amount, sort=sort)
        else:
            self.books.enter(result, name, sort=sort, varies=varies, amount=times, held=(amount,))

    def _enter_number(self, result: Tensor, value: float, operation: str) -> None:
        if value == 0:
            return
        name, sort = self.label(value, operation)
        self.books.enter(result, name, sort=sort, varies=(), amount=lambda g: times(g, value))
