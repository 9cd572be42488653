"""Differences from a reference: how a prediction rises from a second input to the first, operation by operation.

Each operation is computed twice, for the input x and for the reference b (a text of [UNK], say). Of an operation y =
f(x) relevance passes back by a map that is exact for the pair: f(x) - f(b) = M (x - b). So what the inputs get adds up
to the score's rise from b to x. Biases and constants have no part in it, and nothing has to be held constant. This is
DeepLIFT's difference from a reference (Shrikumar et al. 2017), carried through attention and normalisation.

- A linear operation is its own map. Of a product of two signals each factor gets the mean of the other:
  a b - a' b' = (a - a') (b + b') / 2 + (b - b') (a + a') / 2. Both are the gradient halfway between x and b, which is
  exact for everything of second degree.
- A function of single numbers has its secant (`secants`).
- For a softmax, p_j - q_j = L_j (d_j - c) with the logarithmic mean L_j of p_j and q_j, the rise d_j of the score, and
  c = sum L_j d_j / sum L_j, since p and q both add up to 1.
- Solutions of linear systems have a map of their own (`solutions`).
- Fused attention joins them, in blocks of queries (`attention.difference`).
- Normalisation is written out in these.
- What chooses (an index, a mask, the places of the largest) is that of the input x in both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ..errors import HiddenOperation
from ..inputs.places import Captured
from .activation import FUNCTIONS
from .attention.call import AttentionCall
from .attention.difference import pass_attention_on
from .attention.softmax import axis_of
from .call import Call, is_signal
from .constants import parameter_of
from .gamma import Boost
from .gradients import check_derivative, value_of
from .linear import apply_boost, apply_product, is_layer
from .rule_set import gamma_of
from .scope import Scope
from .secants import CLOSED, derivative_by_values, secant_slope, slope_of_power, softmax_slopes
from .shape_ops import MOVE, STAY
from .solutions import SOLUTIONS
from .written_out import WRITTEN_OUT

REFERENCE = "_headwater_reference"

# exact as they are, however many signals they take
LINEAR = frozenset(
    (
        *STAY,
        *MOVE,
        *"add sub rsub sum mean nanmean cumsum cat stack hstack vstack pad masked_fill where scatter_add".split(),
        *"index_add unfold fold fill zero".split(),
        *"scatter index_put setitem copy gather index_select index take take_along_dim conv1d conv2d conv3d".split(),
        *"avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d".split(),
    )
)
# exact as they are where one operand alone is a signal; with more, halfway between x and b
PRODUCTS = frozenset("mul matmul bmm mm mv dot einsum linear addmm baddbmm addbmm tensordot bilinear outer".split())
ELEMENTWISE = frozenset((*FUNCTIONS, *CLOSED, "pow", "abs", "log2", "log10"))
CHOOSING = frozenset("topk sort max min amax amin".split())


def reference_of(tensor: Tensor) -> Tensor:
    """The same tensor in the run of the reference."""
    found: Tensor | None = getattr(tensor, REFERENCE, None)
    if found is not None:
        return found
    root = tensor._base
    if root is not None and hasattr(root, REFERENCE):
        return view_like(getattr(root, REFERENCE), tensor, root)
    raise HiddenOperation(
        "a signal came about outside torch's operations, so that its value for the reference is not known. "
        "'lrp' explains such a model."
    )


def reference_if_signal(value: Any) -> Any:
    """The same, of a constant the constant itself."""
    return reference_of(value) if is_signal(value) else value


def view_like(reference: Tensor, tensor: Tensor, root: Tensor) -> Tensor:
    return reference.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset() - root.storage_offset())


def with_reference(tensor: Tensor, reference: Tensor) -> Tensor:
    setattr(tensor, REFERENCE, reference.detach() if reference.requires_grad else reference)
    return tensor


def map_tensors(values: Any, change: Callable[[Tensor], Any]) -> Any:
    """Arguments with their signals changed, also inside lists."""
    if is_signal(values):
        return change(values)
    if type(values) in (list, tuple):
        return type(values)(map_tensors(value, change) for value in values)
    if type(values) is dict:
        return {key: map_tensors(value, change) for key, value in values.items()}
    return values


def count_signals(values: Any) -> int:
    found: list[Tensor] = []
    map_tensors(values, lambda tensor: found.append(tensor))
    return len(found)


@dataclass(frozen=True)
class ReferenceValues:
    """What the explained inputs and the model's outputs are for the reference."""

    inputs: list[Tensor]
    ends: list[Tensor]


@dataclass(eq=False)
class DifferenceScope(Scope):
    """`references`: the explained inputs for the reference, in the order in which they enter."""

    references: list[Tensor] = field(default_factory=list)
    reads_weights: bool = True  # attention is written out
    _entered: int = 0  # how many of them did

    def enter_input(self, captured: Captured, started: Tensor) -> None:
        if captured.beside:
            with_reference(started, captured.leaf)
            return
        place, self._entered = self._entered, self._entered + 1
        if place >= len(self.references) or self.references[place].shape != captured.leaf.shape:
            raise HiddenOperation("this model does not look the reference up as it does the input.")
        with_reference(started, self.references[place].clone())  # the model may write into it

    def reference_values(self, ends: list[Tensor]) -> ReferenceValues:
        return ReferenceValues(self.references[: self._entered], [reference_of(end) for end in ends])

    def stand_in(self, value: Any, seen: Any) -> None:
        with_reference(value, reference_of(seen))

    def pass_activation_on(self, function: Callable[[Tensor], Tensor], x: Tensor, output: Tensor) -> Tensor | None:
        with torch.no_grad():
            points = (x.detach(), reference_of(x))
            values = (output, function(points[1]))
            slope = secant_slope(function, points, values, derivative_by_values)
        return with_reference(value_of(output, gradient_of=x * slope), values[1])

    def perform(self, call: Call) -> Any:
        self.met[call.name] = self.met.get(call.name, 0) + 1
        if call.inplace:
            return self._write(call)
        if call.name in CHOOSING and not is_signal(call.get(1, "other")):
            return choose(call)
        with torch.no_grad():
            reference = self.run_for_reference(call)
        return self.attach(call, self.compute(call, reference), reference)

    def compute(self, call: Call, reference: Any) -> Any:
        """The operation's own value, with a gradient that is exact between input and reference."""
        if call.name == "scaled_dot_product_attention":
            attended = pass_attention_on(AttentionCall.read(call), reference_if_signal)
            if attended is not None:
                return attended
        surrogate = SURROGATES.get(call.name)
        if surrogate is not None and (linear := surrogate(call)) is not None:
            return self.with_own_value(call, linear)
        if call.name in SOLUTIONS:
            return self.with_own_value(call, SOLUTIONS[call.name](call, reference_if_signal))
        spelled = WRITTEN_OUT.get(call.name)
        if spelled is not None:
            with self:
                found = spelled(call)
            if found is not None:
                return self.with_own_value(call, found)
        return self.pass_on(call, reference)

    def with_own_value(self, call: Call, surrogate: Tensor) -> Tensor:
        value = plain_value(call)
        return value_of(value, gradient_of=surrogate.to(value.dtype))

    def attach(self, call: Call, result: Any, reference: Any) -> Any:
        """What came out for the reference goes along with what came out for the input."""
        if isinstance(result, Tensor):
            if result.requires_grad:
                with_reference(result, reference)
                self._note_precision(result)
                check_derivative(call.name, result)
        elif isinstance(result, (tuple, list)):
            for one, other in zip(result, reference, strict=True):
                self.attach(call, one, other)
        return result

    def run_for_reference(self, call: Call) -> Any:
        args, kwargs = map_tensors((call.args, call.kwargs), reference_of)
        return call.func(*args, **kwargs)

    def pass_on(self, call: Call, reference: Any) -> Any:
        """A linear operation as it is, a function of single numbers by its secant, all others halfway."""
        signals = count_signals((call.args, call.kwargs))
        if signals == 1 and is_signal(call.args[0]) and call.name in ELEMENTWISE:
            return self.by_secant(call, reference)
        if call.name in LINEAR or (call.name in PRODUCTS and signals == 1):
            layer = self.linear_layer(call, reference)
            return call.run() if layer is None else layer
        return self.halfway(call)

    def by_secant(self, call: Call, reference: Tensor) -> Tensor:
        """f(x) - f(b) = slope (x - b) for each number."""
        x: Tensor = call.args[0]
        with torch.no_grad():
            value, b = call.func(x.detach(), *call.args[1:], **call.kwargs), reference_of(x)
            slope = closed_slope(call, x.detach(), b)
            if slope is None:
                points, values = (x.detach(), b), (value, reference)
                slope = secant_slope(lambda t: call.func(t, *call.args[1:], **call.kwargs), points, values)
        return value_of(value, gradient_of=x * slope)

    def halfway(self, call: Call) -> Any:
        """The gradient in the middle between input and reference: exact for everything of second degree."""
        value = plain_value(call)
        args, kwargs = map_tensors((call.args, call.kwargs), middle_of)
        between = call.func(*args, **kwargs)
        if isinstance(value, Tensor):
            return value_of(value, gradient_of=between) if is_signal(between) else value
        if isinstance(value, (tuple, list)):
            return type(value)(
                value_of(one, gradient_of=other) if is_signal(other) else one
                for one, other in zip(value, between, strict=True)
            )
        return value

    def linear_layer(self, call: Call, reference: Any) -> Any:
        """A linear layer, by the GAMMA-rule where it is asked for: x_i w_ij of the sign of their sum count more."""
        if call.name != "linear" or not is_signal(call.args[0]):
            return None
        x, weight, bias = (*call.args, None)[:3]
        if not is_layer(weight, bias) or is_signal(bias):
            return None
        gamma = gamma_of(self.rules.gamma, self.name_of(weight)) if "gamma" in self.rules else 0.0
        if not gamma:
            return apply_product(x, weight, lambda x: call.func(x, parameter_of(weight), parameter_of(bias)))
        with torch.no_grad():
            value = call.func(x.detach(), parameter_of(weight), parameter_of(bias)).data
        boost = Boost(x.detach() - reference_of(x), value - reference, None, gamma)
        return apply_boost(x, weight, value, boost)

    def _write(self, call: Call) -> Any:
        """An operation that writes into its first operand: computed beside it, then written, in both runs."""
        target = call.args[0]
        reference = self.reference_to_write(target)
        copied = target.clone()
        if is_signal(target):
            with_reference(copied, reference.clone())
        with torch.no_grad():
            args, kwargs = map_tensors((call.args[1:], call.kwargs), reference_of)
            written = reference.clone()
            call.func(written, *args, **kwargs)
        fresh = replace(call, args=(copied, *call.args[1:]), func=out_of_place(call.func), inplace=False)
        result = self.compute(fresh, written)
        target.copy_(result)
        reference.copy_(written)
        if is_signal(target):
            with_reference(target, reference)
        return None if call.name == "setitem" else target

    def reference_to_write(self, target: Tensor) -> Tensor:
        """The reference of a tensor that is written into. A constant gets one, and what it is a view of, too."""
        if is_signal(target):
            return reference_of(target)
        root = target._base
        if root is None:
            return target.detach().clone()
        if not hasattr(root, REFERENCE):
            with_reference(root, root.detach().clone())
        return view_like(getattr(root, REFERENCE), target, root)


def out_of_place(func: Callable[..., Any]) -> Callable[..., Tensor]:
    """The same operation on a copy of its first operand, which it gives back."""

    def run(first: Tensor, *rest: Any, **options: Any) -> Tensor:
        copied = first.clone()
        func(copied, *rest, **options)
        return copied

    return run


def middle_of(x: Tensor) -> Tensor:
    """The number halfway between input and reference, with the gradient of the input."""
    with torch.no_grad():
        between = torch.lerp(x.detach(), reference_of(x).to(x.dtype), 0.5)
    return value_of(between, gradient_of=x)


def closed_slope(call: Call, x: Tensor, b: Tensor) -> Tensor | None:
    """A slope that subtracts no close numbers, where there is such a form."""
    if call.name == "pow":
        return slope_of_power(x, b, call.get(1, "exponent"))
    plain = call.name in CLOSED and not call.kwargs and len(call.args) == 1
    return CLOSED[call.name](x, b) if plain else None


def choose(call: Call) -> Any:
    """The largest, or an order: the reference's numbers are taken from the same places."""
    x, axis = call.args[0], call.get(_AXIS_AT.get(call.name, 1), "dim")
    if call.name in ("amax", "amin") or (call.name in ("max", "min") and axis is None):
        return choose_one(call, x, axis)
    result = call.run()
    places = result[1]
    axis = -1 if axis is None else axis
    reference = reference_of(x)
    keeps = places.dim() == x.dim()
    taken = torch.take_along_dim(reference, places if keeps else places.unsqueeze(axis), axis)
    with_reference(result[0], taken if keeps else taken.squeeze(axis))
    return result


_AXIS_AT = {"topk": 2}


def choose_one(call: Call, x: Tensor, axis: Any) -> Tensor:
    """The largest or smallest along axes, or of all."""
    find = torch.argmax if call.name in ("max", "amax") else torch.argmin
    axes = range(x.dim()) if axis is None or axis == () else [axis] if isinstance(axis, int) else axis
    keep, moved = call.get(2, "keepdim", False), sorted(one % x.dim() for one in axes)
    reference, rest = reference_of(x), [one for one in range(x.dim()) if one not in moved]
    flat = [part.permute(*rest, *moved).flatten(len(rest)) for part in (x, reference)]
    places = find(flat[0].detach(), -1, keepdim=True)
    result, taken = (torch.take_along_dim(part, places, -1).squeeze(-1) for part in flat)
    if keep and axis is not None:
        shape = [1 if one in moved else size for one, size in enumerate(x.shape)]
        result, taken = result.reshape(shape), taken.reshape(shape)
    return with_reference(result, taken)


def pass_softmax_on(call: Call) -> Tensor | None:
    """L_j (s_j - sum L_k s_k / sum L_k)."""
    if not is_signal(call.args[0]):
        return None
    seen, slopes, centre = centre_scores(call.args[0], axis_of(call))
    return slopes * (seen - centre)


def pass_log_softmax_on(call: Call) -> Tensor | None:
    """The same of the logarithm: s_j - c."""
    if not is_signal(call.args[0]):
        return None
    seen, _, centre = centre_scores(call.args[0], axis_of(call))
    return seen - centre


def pass_logsumexp_on(call: Call) -> Tensor | None:
    """c alone."""
    axis, keep = call.get(1, "dim"), call.get(2, "keepdim", False)
    if not is_signal(call.args[0]) or not isinstance(axis, int):
        return None
    centre = centre_scores(call.args[0], axis)[2]
    return centre if keep else centre.squeeze(axis)


def centre_scores(x: Tensor, axis: int) -> tuple[Tensor, Tensor, Tensor]:
    """Scores without those that nobody looks at, their slopes L, and c: the mean of the scores weighed by L."""
    with torch.no_grad():
        precise = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
        scores = (x.detach().to(precise), reference_of(x).to(precise))
        slopes = softmax_slopes((scores[0].softmax(axis), scores[1].softmax(axis)), scores, axis)
        total = slopes.sum(axis, keepdim=True)
        shares = slopes / torch.where(total == 0, torch.ones_like(total), total)
    seen = torch.where(slopes > 0, x.to(precise), 0.0)
    return seen, slopes, (shares * seen).sum(axis, keepdim=True)


SURROGATES: dict[str, Callable[[Call], Tensor | None]] = {
    "softmax": pass_softmax_on,
    "log_softmax": pass_log_softmax_on,
    "special_log_softmax": pass_log_softmax_on,
    "logsumexp": pass_logsumexp_on,
    "special_logsumexp": pass_logsumexp_on,
}


def plain_value(call: Call) -> Any:
    """What the operation gives, without a graph."""
    with torch.no_grad():
        args, kwargs = map_tensors((call.args, call.kwargs), Tensor.detach)
        return call.func(*args, **kwargs)
