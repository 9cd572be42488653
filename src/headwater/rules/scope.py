"""The scope in which rules act: on operations, inside a `with`, for one thread, on any model. Nothing is patched.

Every torch operation that meets a signal (a tensor that depends on the inputs) passes through here. Parameters are
constants: they are handed on detached, whatever their `requires_grad` says, so the model's flags are never touched.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import HiddenOperation, UnknownName, UsageError
from ..inputs.restoring import Mode
from .attention.registry import Named, Softmax, find_variant
from .cuts import ORIGIN, READS, Chosen, Cuts, Origin, merge, numbers_of, tensors
from .gamma import Gamma
from .lineage import Kind, carry, lineage_kind, mark
from .ratio import Pending, settle_ratio
from .sources import Books, Sort

_NAME = "_headwater_name"
_EMBEDDED = "_headwater_embedded"
_ORIGINAL = "_headwater_original"

RULES: dict[str, str] = {
    "ah": "attention weights are constants (the paper's AH-rule)",
    "ln": "the divisor of a normalisation is a constant (the paper's LN-rule)",
    "act": "an activation is its input times a constant",
    "gate": "in a product of two signals the gate is a constant, or each takes half",
    "gamma": "in a linear layer, contributions that agree with the output count 1 + gamma times",
}

GATES = ("constant", "half")  # the values of `gate=`


@dataclass(frozen=True)
class RuleSet:
    """Which rules act, and how.

    `gate` says how a product of two signals is shared: one factor is "constant", or each takes "half". `attention` is
    the name of a variant of attention (`attention.registry.VARIANTS`). `gamma` is a number, or numbers by patterns of
    names. A name that is not known is an error.
    """

    names: frozenset[str]
    gate: str = "constant"
    attention: str = "constant"
    gamma: Gamma = 0.0

    def __post_init__(self) -> None:
        for rule in self.names:
            if rule not in RULES:
                raise UnknownName("rule", rule, RULES)
        if self.gate not in GATES:
            raise UnknownName("share for 'gate'", self.gate, GATES)
        find_variant(self.attention)

    def __contains__(self, name: str) -> bool:
        return name in self.names


@dataclass
class Call:
    """One operation on its way through the scope; parameters among its arguments are already constants."""

    func: Callable[..., Any]
    name: str
    inplace: bool
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def run(self) -> Any:
        return self.func(*self.args, **self.kwargs)

    def get(self, position: int, name: str, default: Any = None) -> Any:
        return self.args[position] if len(self.args) > position else self.kwargs.get(name, default)


Handler = Callable[["Scope", Call], Any]
OPERATIONS: dict[str, Handler] = {}
RULES_AT: dict[str, tuple[str, ...]] = {}  # by operation: the rules that its handler asks for
FOLLOWED: dict[str, Handler] = {}  # the same where scores take part in attention: what is known of weights goes along
SPELLED: dict[str, Callable[[Call], Any]] = {}  # operations of our own, written out in those of torch


def on(
    *operations: str | Callable[..., Any], when: str | None = None, rules: Sequence[str] = ()
) -> Callable[[Handler], Handler]:
    """The rule for operations, by torch's name ("i0", however it is spelled: `i0_` too) or as functions (`torch.i0`).

    It works in any package. The result has the model's value, with the gradient that relevance takes:

        @on(torch.i0, when="act")
        def bessel(scope, call):
            '''i0(x) is i0(0) = 1 plus its input times a constant.'''
            x, value = call.args[0], call.run().detach()
            result = value_of(value, gradient_of=x * ((value - 1) / x).nan_to_num(0.0).detach())
            scope.source(result, 1.0, "i0(0)")  # a line of the ledger
            return result

    Operations of your own are seen, too: those of `torch.library`, and functions in Python to which you add
    `torch.overrides.wrap_torch_function`. Parameters among `call.args` are constants; `is_signal` tells what depends on
    the input. One operation has one such function: a second one is an error.

    `when` names the rule (`ah`, `ln`, `act`, `gate`) that the function belongs to: it acts only under methods that have
    this rule, and the operation keeps its gradient under the others. Without it the function acts under every method,
    also `gi`, and asks for itself (`scope.applies("act")`); `rules` then names the rules that it asks for.
    """
    rules = (*rules, *([when] if when is not None else []))
    for rule in rules:
        if rule not in RULES:
            raise UnknownName("rule", rule, RULES)
    names = [canonical(one if isinstance(one, str) else name_of_operation(one))[0] for one in operations]

    def register(handler: Handler) -> Handler:
        handler = handler if when is None else only_under(when, handler)
        for name in names:
            known = OPERATIONS.setdefault(name, handler)
            if (known.__module__, known.__qualname__) != (handler.__module__, handler.__qualname__):
                raise UsageError(f"the operation {name!r} has a rule already: {known.__module__}.{known.__name__}.")
            OPERATIONS[name], RULES_AT[name] = handler, tuple(rules)
        return handler

    return register


def only_under(rule: str, handler: Handler) -> Handler:
    """The handler where a method has the rule; elsewhere the operation as it is."""

    @functools.wraps(handler)
    def act(scope: Scope, call: Call) -> Any:
        return handler(scope, call) if scope.applies(rule) else call.run()

    return act


def name_of_operation(function: Callable[..., Any]) -> str:
    """The name under which the scope meets a function."""
    name: str = getattr(function, "__name__", "")
    if not name:
        raise UsageError(f"a rule acts on an operation, by name or as a function, not on {function!r}.")
    return name


@dataclass(eq=False)
class Scope(Mode):
    """`with Scope(rules, books, names): model(...)`. `met` counts how often each rule acted."""

    rules: RuleSet
    books: Books
    names: Mapping[int, str]  # id(parameter or buffer) -> its name
    modules: Mapping[int, str]  # id(module) -> its name
    met: dict[str, int] = field(default_factory=dict)
    known_foreign: set[Any] = field(default_factory=set)  # autograd functions of others that were understood
    coarsest: torch.dtype | None = None  # the least precise type of a signal
    pending: Pending = field(default_factory=Pending)
    reads_weights: bool = False  # attention is to be written out, for somebody looks at its weights
    fleeting: bool = False  # weights are put into their modules when those are called, and taken out again
    cuts: Cuts = field(init=False)
    variant: Named = field(init=False)  # of attention
    follows: bool = field(init=False)  # whether scores take part in attention, and what they leave is accounted for
    entered: list[EnteredConstant] | None = None  # constants as they enter, where somebody compares them
    _frozen: dict[int, Tensor] = field(default_factory=dict)
    _unfolding: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.cuts = Cuts(self.where)
        self._memory, self._selected = self.cuts.memory, self.cuts.selected  # asked at every operation
        self.variant = find_variant(self.rules.attention)
        self.follows = "ah" in self.rules and self.variant.softmax is Softmax.LINEAR

    def applies(self, rule: str) -> bool:
        """Whether `rule` acts here; noted as met if so."""
        if rule not in self.rules:
            return False
        self.met[rule] = self.met.get(rule, 0) + 1
        return True

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "__get__":
            name = _GETS.get(getattr(func.__self__, "__name__", ""), "")
        elif name == "__set__":
            name = "set_data" if getattr(func.__self__, "__name__", "") == "data" else ""
        if not name:
            return func(*args, **kwargs)
        if name in _UNUSUAL:
            return self._unusual(func, name, args, kwargs)
        name, inplace = canonical(name)
        if not torch.is_grad_enabled():
            return self._without_gradient(func, name, inplace, args, kwargs)
        if kwargs:
            args, kwargs = positional(name, args, torch_names(name, kwargs))
        args, alive, origin = self._constants_frozen(args)
        if kwargs:
            kwargs, also, another = self._constants_frozen(kwargs)
            alive, origin = alive or also, merge(origin, another)
        if not alive:
            result = self._name_passed_on(func(*args, **kwargs), name, args)
            if origin is not None:
                self.cuts.pass_on(result, origin, name, args, inplace=inplace)
                self._note_constants(name, (args, kwargs))
            return result
        if name in HIDDEN:
            raise HiddenOperation(f"{name!r} {HIDDEN[name]}")
        if self.reads_weights and name in SPELLED:
            with self:
                return SPELLED[name](Call(func, name, inplace, args, kwargs))
        if name not in OPERATIONS and name not in OPAQUE and isinstance(func, _PYTHON) and func not in self._unfolding:
            return self._unfold(func, args, kwargs)
        known = len(self.books.sites)
        result = self.perform(Call(func, name, inplace, args, kwargs))
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
        elif name == "set_data":
            return self._data_set(func, args)
        elif name == "register_hook" and is_signal(args[0]):
            return func(args[0], only_looking(*args[1:], **kwargs))
        elif name in _OWN_GRADIENTS or is_transformed():
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
        """One operation on signals: as its handler has it, or as it is."""
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
                elif id(value) in self.names and not hasattr(value, _NAME):
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
            frozen = parameter.detach()
            setattr(frozen, _ORIGINAL, parameter)
            name = self.names.get(id(parameter))
            if name is not None:
                setattr(frozen, _NAME, name)
            self._frozen[id(parameter)] = frozen
        return frozen

    def _name_passed_on(self, result: Any, name: str, args: Any) -> Any:
        """A constant computed from a parameter keeps its name, so that the ledger can say what entered."""
        if isinstance(result, Tensor) and result.is_floating_point() and not hasattr(result, _NAME):
            for value in args:
                found = getattr(value, _NAME, None) if isinstance(value, Tensor) else None
                if found is not None:
                    setattr(result, _NAME, found)
                    setattr(result, _EMBEDDED, name == "embedding" or getattr(value, _EMBEDDED, False))
                    break
        return result

    def where(self) -> str:
        """Name of the module whose code is running, found on the Python stack."""
        frame: Any = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_varnames[:1] == ("self",):  # to ask for its values is slow
                this = frame.f_locals.get("self")
                if isinstance(this, nn.Module) and id(this) in self.modules:
                    return self.modules[id(this)]
            frame = frame.f_back
        return ""

    def label(self, value: Any, operation: str) -> tuple[str, Sort]:
        """The ledger's name for a source that is about to enter, and its sort.

        A parameter is a bias, unless it is looked up by index. What was made from the input is no constant.
        """
        name = self.name_of(value)
        sort = Sort.BIAS if name is not None and not getattr(value, _EMBEDDED, False) else Sort.CONSTANT
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
        """The name of the parameter that a constant is, or was made of."""
        found: str | None = getattr(value, _NAME, None)
        return found if found is not None else self._name_on_the_stack(parameter_of(value))

    def _name_on_the_stack(self, value: Any) -> str | None:
        """The name of a weight that was put into its module just now, as offloaded ones are."""
        if not self.fleeting or not isinstance(value, Tensor):
            return None
        frame: Any = sys._getframe(1)
        while frame is not None:
            this = frame.f_locals.get("self")
            if isinstance(this, nn.Module) and id(this) in self.modules:
                for own, held in (*this._parameters.items(), *this._buffers.items()):
                    if held is value:
                        return ".".join(filter(None, (self.modules[id(this)], own)))
            frame = frame.f_back
        return None

    def as_it_was(self, call: Call) -> Any:
        """What `call` writes into. A constant is soon no longer what it was: a copy, with its name and its origin."""
        target = call.args[0]
        if not call.inplace or is_signal(target):
            return target
        return self.name_as(target.clone(), target)

    def name_as(self, value: Tensor, source: Tensor) -> Any:
        """`value` is the constant `source` in another shape or memory, and has its name and its origin."""
        return self._name_passed_on(self.cuts.carry(value, source), "", (source,))

    def rename(self, value: Tensor, name: str | None) -> Tensor:
        if name is not None:
            setattr(value, _NAME, name)
        return value

    def source(
        self, result: Tensor, value: Tensor | float, operation: str, *, sign: float = 1.0, by_rule: bool = False
    ) -> None:
        """`sign * value` entered `result` by a sum, broadcast to its shape. `by_rule`: a rule made it, no model."""
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


BESIDE_HELD = -1  # no site: what meets a constant that a rule holds


@dataclass(frozen=True)
class EnteredConstant:
    """A constant that entered as line `site` of the books: its name, and two numbers that tell it from others."""

    site: int
    name: str
    value: tuple[float, float]


def fingerprint_constant(value: Any) -> tuple[float, float]:
    if not isinstance(value, Tensor):
        return float(value), 0.0
    with torch.no_grad():
        numbers = value.detach().double().nan_to_num().flatten()
        return float(numbers.sum()), float(numbers @ torch.arange(1, len(numbers) + 1).to(numbers))


def keep_kind(result: Any, name: str, args: Any) -> Any:
    """Inside somebody's own autograd function no gradient is made, but what a tensor has been through is still noted.

    So the result of that function can be recognised as a gate, which is held constant.
    """
    if name in ELEMENTWISE and args and isinstance(args[0], Tensor) and isinstance(result, Tensor):
        kind = lineage_kind(args[0])
        if kind in (Kind.ACTIVATED, Kind.SHIFTED) and result.shape == args[0].shape:
            mark(result, kind)
    return result


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
        if hook(gradient) is not None:
            raise HiddenOperation(
                "the model changes gradients by a hook (register_hook), and relevance with them. Remove the hook."
            )

    return look


_PYTHON = types.FunctionType
_CHECKPOINT = "torch.utils.checkpoint"  # whose hooks are there where the running code lies in a checkpoint
_top_hooks = torch._C._autograd._top_saved_tensors_default_hooks
_CONTAINERS = (list, tuple, dict)
# properties that are operations
_GETS = dict.fromkeys(("T", "mT", "H", "mH"), "transpose") | {name: name for name in ("data", "real", "imag")}
_OPERANDS = {
    "where": "condition input other",
    "masked_fill": "input mask value",
    "pow": "input exponent",
    "lerp": "input end weight",
    "mm": "input mat2",
    "bmm": "input mat2",
    "_grouped_mm": "input mat2",
    "grouped_mm": "input mat2",
    "mv": "input vec",
    "dot": "input tensor",
    "tensordot": "a b",
    "bilinear": "input1 input2 weight bias",
    "linear": "input weight bias",
    "addmm": "input mat1 mat2",
    "addmv": "input mat vec",
    "baddbmm": "input batch1 batch2",
    "addbmm": "input batch1 batch2",
    "addcmul": "input tensor1 tensor2",
    "addcdiv": "input tensor1 tensor2",
    "cdist": "x1 x2",
    "pairwise_distance": "x1 x2",
    "cosine_similarity": "x1 x2",
    "linalg_vector_norm": "x",
    "linalg_inv": "A",
    "linalg_solve": "A B",
    "linalg_solve_triangular": "input B",
    "scaled_dot_product_attention": "query key value",
    "cat": "tensors",
    "stack": "tensors",
    "hstack": "tensors",
    "vstack": "tensors",
    "split": "tensor",
}
_USUAL = "input other"  # operands of all others


_NUMPY = {"axis": "dim", "keepdims": "keepdim", "x": "input", "x1": "input", "a": "input", "x2": "other"}


def torch_names(name: str, kwargs: Any) -> Any:
    """Arguments by numpy's names, which torch takes as well, get torch's own, by which handlers ask for them."""
    if name not in OPERATIONS or _NUMPY.keys().isdisjoint(kwargs):
        return kwargs
    own = _OPERANDS.get(name, _USUAL).split()
    return {key if key in own else _NUMPY.get(key, key): value for key, value in kwargs.items()}


def positional(name: str, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Operands given by name are put where handlers look for them."""
    for operand in _OPERANDS.get(name, _USUAL).split()[len(args) :]:
        if operand not in kwargs:
            break
        args = (*args, kwargs[operand])
        kwargs = {other: value for other, value in kwargs.items() if other != operand}
    return args, kwargs


_DUNDER = {"radd": "add", "rmul": "mul", "truediv": "div", "rtruediv": "rdiv", "rdiv": "rdiv", "rmatmul": "rmatmul"}
_INPLACE_DUNDER = {"iadd": "add", "isub": "sub", "imul": "mul", "itruediv": "div", "idiv": "div", "ipow": "pow"}
_SYNONYMS = {
    "multiply": "mul",
    "divide": "div",
    "true_divide": "div",
    "subtract": "sub",
    "concat": "cat",
    "concatenate": "cat",
    "clip": "clamp",
    "_softmax": "softmax",
    "swapaxes": "transpose",
    "swapdims": "transpose",
}

# with these a model takes gradients of its own: autograd.grad, backward, torch.func.grad and jvp
_OWN_GRADIENTS = frozenset("grad backward _make_dual make_dual".split())
_UNUSUAL = READS | _OWN_GRADIENTS | {"set_data", "register_hook", "requires_grad_"}

# torch functions in Python that are no computation on the tensor, or hold none of our operations inside
OPAQUE = frozenset(
    """
    backward register_hook register_post_accumulate_grad_hook retain_grad requires_grad __repr__ __format__ __str__
    __deepcopy__ __reduce_ex__ __len__ __contains__ __iter__ __hash__ __array__ __dlpack__ detach is_shared
    """.split()
)

# operations on each element alone, through which a gate stays a gate
ELEMENTWISE = frozenset("sqrt square pow exp sigmoid tanh relu clamp mul div add sub rsub to type float clone".split())

HIDDEN = {
    "_native_multi_head_attention": "fuses attention so that its weights cannot be held constant.",
    "_transformer_encoder_layer_fwd": "fuses a whole layer so that the rules cannot see into it.",
    "flex_attention": 'hides its attention. Load the model with attn_implementation="sdpa".',
}


@cache
def canonical(name: str) -> tuple[str, bool]:
    """Torch's name of an operation without its spellings, and whether it writes into its first argument."""
    name = name.split(".")[0]
    if name.startswith("__"):
        core = name[2:-2]
        if core in _INPLACE_DUNDER:
            return _INPLACE_DUNDER[core], True
        return _DUNDER.get(core, core), core == "setitem"
    inplace = name.endswith("_")
    core = name[:-1] if inplace else name
    return _SYNONYMS.get(core, core), inplace


@cache
def inside(func: types.FunctionType) -> Callable[..., Any]:
    """The same Python function without its hand-over to overrides, so that the operations in its body are seen."""
    no = dict.fromkeys(("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"), _no)
    copy = types.FunctionType(
        func.__code__, {**func.__globals__, **no}, func.__name__, func.__defaults__, func.__closure__
    )
    copy.__kwdefaults__ = func.__kwdefaults__
    return copy


def _no(*_: Any) -> bool:
    return False


def parameter_of(constant: Any) -> Any:
    """The parameter behind a constant: by its `requires_grad` torch chooses a kernel even where no gradient is made."""
    return getattr(constant, _ORIGINAL, constant)


def is_signal(value: Any) -> bool:
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


def value_of(value: Tensor, *, gradient_of: Tensor) -> Tensor:
    """The number of one tensor with the gradient of another."""
    return _Swap.apply(gradient_of, [value.detach()])  # type: ignore[no-any-return]


class _Swap(torch.autograd.Function):
    """The value comes in a list, so that it is no input: the result may then be written into like any other."""

    @staticmethod
    def forward(ctx: Any, surrogate: Tensor, value: list[Tensor]) -> Tensor:
        return value[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0], None
