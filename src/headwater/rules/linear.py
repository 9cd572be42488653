"""Linear layers conserve by themselves. What they add, and every other sum of a signal and a constant, is a source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..inputs.places import is_start
from ..kernels.batching import close_batch, open_batch
from ..kernels.row_products import multiply_rows
from ..kernels.sparse_rows import find_nonzero_rows, gather_rows, scatter_rows
from .call import Call, is_signal
from .constants import parameter_of
from .gamma import Boost, boost_map, in_the_finest
from .gradients import times, value_of
from .handlers import on
from .lineage import Kind, carry, is_normalised, lineage, lineage_kind, mark, mark_normalised
from .residual import add_branches
from .rule_set import gamma_of
from .scope import Scope


def linear(scope: Scope, call: Call) -> Any:
    """x W^T + b with weights that are constants."""
    x, weight, bias = (*call.args, None)[:3]
    if not is_signal(x):
        result = call.run()
        with scope:
            product = call.func(x, weight)
        scope.source(result, product, "linear")
        return result
    if is_signal(bias) or not is_layer(weight, bias):
        result = call.run()
        if bias is not None and not is_signal(bias):
            scope.source(result, bias, "linear")
        return result
    return affine(scope, x, weight, bias, lambda x: call.func(x, parameter_of(weight), parameter_of(bias)), "linear")


def is_layer(weight: Tensor, bias: Tensor | None) -> bool:
    """A matrix, and a number for each of its rows; torch takes other shapes, too."""
    return weight.dim() == 2 and (bias is None or bias.shape == weight.shape[:1])


def affine(
    scope: Scope, x: Tensor, weight: Tensor, bias: Tensor | None, compute: Callable[[Tensor], Tensor], operation: str
) -> Any:
    """x W^T + b: plain, or with the GAMMA-rule."""
    rule, gamma = gamma_in(scope, x, weight)
    if not gamma:
        result = apply_product(x, weight, compute)
        if bias is not None:
            name, sort = scope.label(bias, operation)
            result.grad_fn.record = scope.books.record_vector(result, name, bias, sort=sort)
        return result
    scope.applies(rule)
    with torch.no_grad():
        value = compute(x.detach()).data
    again = rule == "output" and operation == "linear" and is_cheap_to_repeat(x, weight, value)
    boost = Boost(x, None if again else value, bias, gamma)
    scope.pending.register_borrower(boost)
    boosted = apply_boost(x, weight, value, boost)
    if bias is not None:
        name, sort = scope.label(bias, operation)
        boosted.grad_fn.record = scope.books.record_vector(boosted, name, bias, sort=sort)
    return boosted


def apply_product(x: Tensor, weight: Tensor, compute: Callable[[Tensor], Tensor]) -> Any:
    """x W^T (+ b) as `compute` makes it of x, with its own gradient."""
    return _Product.apply(x, weight, compute)


def apply_boost(x: Tensor, weight: Tensor, value: Tensor, boost: Boost) -> Any:
    """The value of a linear layer, with the gradient that `boost` gives to its input."""
    return _Boosted.apply(x, weight, [value], boost)


def is_cheap_to_repeat(x: Tensor, weight: Tensor, value: Tensor) -> bool:
    """Whether a layer's output is made again on the way back rather than kept: its input is no wider than that."""
    plain = type(weight) in (Tensor, torch.nn.Parameter) and x.dtype is weight.dtype is value.dtype
    return plain and weight.shape[1] <= weight.shape[0]


def gamma_in(scope: Scope, x: Tensor, weight: Tensor) -> tuple[str, float]:
    """The gamma of a linear layer, and the rule that it is of: "output" if `x` is neither normalised nor the input."""
    rules, name = scope.rules, scope.name_of(weight)
    writes = "output" in rules and not (is_normalised(x) or is_start(x))
    if writes and (gamma := gamma_of(rules.output, name)):
        return "output", gamma
    return "gamma", gamma_of(rules.gamma, name) if "gamma" in rules else 0.0


class _Product(torch.autograd.Function):
    """x W^T (+ b), made as in inference: where a gradient is wanted, torch folds it in another way."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, compute: Any) -> Tensor:
        ctx.save_for_backward(weight)
        result: Tensor = compute(x.detach())
        return result.data  # torch gives a view of its product, which nobody could write into

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (weight,) = ctx.saved_tensors
        gradient, level = open_batch(gradients[0])
        rows, shape = find_nonzero_rows(gradient), gradient.shape[:-1]
        gradient, record = gather_rows(gradient, rows), getattr(ctx, "record", None)
        if record is not None:
            record(gradient, rows, shape, level)
        flow = times_weight(gradient, weight, shape.numel())
        return close_batch(scatter_rows(flow, rows, shape), level), None, None


class _Boosted(torch.autograd.Function):
    """The same with the GAMMA-rule; its value is already there."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, value: list[Tensor], boost: Boost) -> Tensor:
        ctx.save_for_backward(weight)
        ctx.boost, ctx.record = boost, None
        return value[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (weight,) = ctx.saved_tensors
        with torch.no_grad():  # it writes into its own memory, also where somebody goes back a second time
            return ctx.boost.back(gradients[0], dequantize(weight), ctx.record), None, None, None


def times_weight(gradient: Tensor, weight: Tensor, count: int | None = None) -> Tensor:
    """dy W, with weights that are packed taken apart, in the finer of two types where autocast made them differ.

    `count`: the number of rows, those that were left out among them.
    """
    rows, matrix = in_the_finest(gradient, dequantize(weight))
    return multiply_rows(rows, matrix, count)


def dequantize(weight: Tensor) -> Tensor:
    """Packed weights (a kind of tensor that can be dequantised) as the numbers that they stand for."""
    if type(weight) in (Tensor, torch.nn.Parameter):
        return weight
    try:
        return weight.dequantize()
    except (NotImplementedError, RuntimeError, TypeError):
        return weight


def times_matrix(scope: Scope, call: Call, x: Tensor, matrix: Tensor) -> Any:
    """x @ W with a constant matrix: a linear layer by hand."""
    transposed = scope.rename(matrix.T, scope.name_of(matrix))
    return affine(scope, x, transposed, None, lambda x: call.func(x, parameter_of(matrix)), "matmul")


@on("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", rules=("gamma",))
def convolution(scope: Scope, call: Call) -> Any:
    """A convolution is linear; its bias is a line of the ledger."""
    x, weight, bias = call.args[0], call.get(1, "weight"), call.get(2, "bias")
    result, factor = call.run(), None
    axis = result.dim() - int(call.name[-2]) - 1
    spread = None if bias is None else bias.reshape(-1, *[1] * (result.dim() - axis - 1))
    gamma = gamma_of(scope.rules.gamma, scope.name_of(weight)) if "gamma" in scope.rules else 0.0
    if gamma and is_signal(x) and not is_signal(weight):
        scope.applies("gamma")
        rest, options = call.args[3:], {k: v for k, v in call.kwargs.items() if k not in ("weight", "bias")}
        linear, factor = boost_map(
            x,
            weight,
            result.detach(),
            0.0 if spread is None else spread,
            lambda x, weight: call.func(x, weight, None, *rest, **options),
            gamma,
        )
        result = value_of(result, gradient_of=linear)
    if spread is not None and not is_signal(bias):
        name, sort = scope.label(bias, call.name)
        amount = spread if factor is None else spread * factor
        scope.books.enter(result, name, sort=sort, varies=(axis,), amount=torch.mul, held=(amount,))
    return result


def add_product(scope: Scope, call: Call) -> Any:
    """beta * input + alpha * a @ b (GPT-2's linear layer, BLOOM's scores)."""
    base, x, matrix = call.args
    plain = call.name == "addmm" and not call.kwargs and not (is_signal(base) or is_signal(matrix))
    if plain and is_layer(matrix.T, base):
        transposed = scope.rename(matrix.T, scope.name_of(matrix))
        return affine(
            scope,
            x,
            transposed,
            base,
            lambda x: call.func(parameter_of(base), x, parameter_of(matrix)),
            call.name,
        )
    result = call.run()
    if not is_signal(base):
        scope.source(result, base, call.name, sign=float(call.kwargs.get("beta", 1)))
    return result


@on("add", "sub", "rsub", rules=("residual",))
def sum_of_two(scope: Scope, call: Call) -> Any:
    """A sum passes relevance on to both; a constant in it is a line of the ledger."""
    a, b = call.args
    alpha = float(call.kwargs.get("alpha", 1))
    signs = {"add": (1.0, alpha), "sub": (1.0, -alpha), "rsub": (-alpha, 1.0)}[call.name]
    if is_signal(a) and is_signal(b):
        mine, other = lineage(a), lineage(b)
        result = add_branches(scope, call, signs)
        same = mine.root is other.root
        weights = mine.kind is other.kind is Kind.WEIGHTS  # one attention less another
        mark(result, max(mine.kind, other.kind) if same or weights else Kind.LINEAR, mine.root if same else None)
        return result
    constant, signal, sign = (b, a, signs[1]) if is_signal(a) else (a, b, signs[0])
    before = lineage(signal)
    if constant is a:
        constant = scope.as_it_was(call)
    result = call.run()
    scope.source(result, constant, call.name, sign=sign)
    shifted = before.kind is Kind.ACTIVATED and not isinstance(constant, Tensor) and constant != 0
    mark(result, Kind.SHIFTED if shifted else before.kind, before.root)
    return mark_normalised(result) if is_normalised(signal) else result


@on("cat", "stack", "hstack", "vstack")
def concatenate(scope: Scope, call: Call) -> Any:
    """Constants that stand beside signals (a class token, a memory) are sources in their own place."""
    parts, axis = call.args[0], call.get(1, "dim", 0)
    result = call.run()
    axis = {"hstack": 1, "vstack": 0}.get(call.name, axis) % result.dim()  # of rows, hstack has the only one
    start = 0
    for part in parts:
        if part.numel() == 0:
            continue
        new = part.dim() < result.dim()  # the axis, of which it is one place
        length = 1 if new else part.shape[axis]
        if not is_signal(part) and part.is_floating_point():
            value = scope.name_as(part.unsqueeze(axis), part) if new else part
            enter_beside(scope, result, value, Stretch(axis, start, length), call.name)
        start += length
    kinds = {lineage_kind(part) if is_signal(part) else Kind.LINEAR for part in parts}
    mark(result, kinds.pop() if len(kinds) == 1 else Kind.LINEAR)
    return result


class Stretch(NamedTuple):
    """Neighbouring places along one axis of a tensor, as `Tensor.narrow` takes them."""

    axis: int
    start: int
    length: int


def enter_beside(scope: Scope, result: Tensor, value: Tensor, stretch: Stretch, operation: str) -> None:
    """The constant `value` fills a stretch of `result`."""
    name, sort = scope.label(value, operation)
    scope.books.enter(
        result,
        name,
        sort=sort,
        varies=(stretch.axis,),
        amount=lambda g, value: times(g.narrow(*stretch), value),
        held=(value,),
    )


@on("where")
def choose_by_condition(scope: Scope, call: Call) -> Any:
    """One of two by a condition: a constant is a line of the ledger where it is chosen."""
    result = call.run()
    if len(call.args) < 3 and "other" not in call.kwargs:
        return result
    if isinstance(call.args[0], Tensor) and call.args[0].dtype is torch.bool:
        condition, yes, no = call.args
    else:  # x.where(condition, other)
        yes, condition, no = call.args[0], call.get(1, "condition"), call.get(2, "other")
    for value, at in ((yes, condition), (no, ~condition)):
        if not is_signal(value):
            constant_where(scope, result, at, value, "where")
        else:
            carry(result, value, same_elements=False)
    return result


@on("masked_fill")
def fill_where(scope: Scope, call: Call) -> Any:
    """A constant in some places: a line of the ledger."""
    before, mask, value = scope.as_it_was(call), *call.args[1:]
    result = call.run()
    if is_signal(before):
        carry(result, before, same_elements=False)
    else:
        constant_where(scope, result, ~mask, before, "masked_fill")
    if not is_signal(value):
        constant_where(scope, result, mask, value, "masked_fill")
    return result


def constant_where(scope: Scope, result: Tensor, mask: Tensor, value: Any, operation: str) -> None:
    """`value` stands in `result` where `mask` is true."""
    if not isinstance(value, Tensor):
        if value == 0:
            return
        value = torch.full((), float(value), dtype=result.dtype, device=result.device)
    name, sort = scope.label(value, operation)
    scope.books.enter(
        result,
        name,
        sort=sort,
        varies=(),
        amount=lambda g, mask, value: times(g.masked_fill(~mask, 0), value),
        held=(mask, value),
    )


@on("maximum", "minimum", "fmax", "fmin")
def larger(scope: Scope, call: Call) -> Any:
    """The larger (or smaller) of a signal and a constant: where it is the constant, that is booked as one."""
    a, b = call.args
    result = call.run()
    if is_signal(a) != is_signal(b):
        constant = b if is_signal(a) else a
        signal = a if is_signal(a) else b
        mask = (constant > signal) if call.name in ("maximum", "fmax") else (constant < signal)
        result = value_of(result, gradient_of=torch.where(mask, signal.detach(), signal))  # torch shares what is equal
        constant_where(scope, result, mask, constant, call.name)
        carry(result, signal, same_elements=False)
    return result


@on("pad")
def pad_with_number(scope: Scope, call: Call) -> Any:
    """By a number, if one is given: other modes take none."""
    result, value = call.run(), call.kwargs.get("value")
    if value:
        inner = call.func(torch.zeros_like(call.args[0]), *call.args[1:], **call.kwargs).detach()
        scope.source(result, inner, "pad")
    return result


@on(
    "setitem",
    "index_put",
    "masked_scatter",
    "index_fill",
    "index_copy",
    "copy",
    "fill",
    "slice_scatter",
    "select_scatter",
)
def overwrite(scope: Scope, call: Call) -> Any:
    """Part of a tensor is overwritten: what stays of a constant, or comes in as one, is a source."""
    return write_part(scope, call, lambda scope, call: call.run())


def write_part(scope: Scope, call: Call, perform: Callable[[Scope, Call], Any]) -> Any:
    """The same for an operation that is performed by a rule."""
    target = call.args[0]
    entered = scope.cuts.carry(constants_left(call, target), (call.args, call.kwargs))
    result = perform(scope, call)
    written_to = target if call.name == "setitem" else result
    if is_signal(written_to) and bool(entered.count_nonzero()):
        scope.source(written_to, entered, call.name)
    return result


def constants_left(call: Call, target: Tensor) -> Tensor:
    """What the result would be if every signal in it were zero."""
    plain = torch.zeros_like(target) if is_signal(target) else target.clone()
    args = [torch.zeros_like(v) if is_signal(v) else v for v in call.args[1:]]
    kwargs = {k: torch.zeros_like(v) if is_signal(v) else v for k, v in call.kwargs.items()}
    with torch.no_grad():
        out = call.func(plain, *args, **kwargs)
    return plain if call.inplace else out
