"""The three cases in which an operation cannot be seen and its module can.

An activation behind somebody's own autograd function is a module without parameters that acts on each element alone:
the ACT-rule holds for it as for any other. A linear layer behind one (packed weights) conserves by its own gradient,
and what it gives for nothing is its bias. And torch's encoder layers have a fused path for inference that the rules
cannot enter: they act on the plain path, and the value is the fused one's, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..inputs.hooks import hooked, without_hooks
from ..inputs.walking import named_modules
from .lineage import Kind, mark
from .ratio import scaled
from .scope import Scope, is_signal, value_of

FUSED = (nn.Transformer, nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.MultiheadAttention)


@contextmanager
def modules_seen(model: nn.Module, scope: Scope) -> Iterator[None]:
    """Watches the modules of `model` on this thread, and leaves no hook behind."""

    def activation(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        if len(args) != 1 or not is_signal(args[0]) or not is_unknown(output):
            return None
        return activation_held(scope, module, args[0], output)

    def linear(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if len(args) == 1 and is_signal(args[0]) and is_unknown(output):
            linear_known(scope, module, args[0], output)

    def fused(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        if not torch.is_grad_enabled():
            return None
        return with_inference_value(without_hooks(module), args, kwargs, output)

    def is_unknown(output: Any) -> bool:  # dropout in evaluation, for one, hands on what came in
        return is_foreign(output) and output.grad_fn not in scope.known_foreign

    acts: dict[nn.Module, Any] = dict.fromkeys(outermost(model, FUSED), fused)
    inside_fused = {id(part) for module in acts for _, part in named_modules(module)}
    for _, module in named_modules(model):
        if not module._modules and id(module) not in inside_fused and not is_plain(module):
            acts[module] = activation if is_bare(module) else linear
    with hooked(acts, after=lambda module, *rest: acts[module](module, *rest)):
        yield


def is_plain(module: nn.Module) -> bool:
    """Whether a module is torch's own, with weights of the plain kind: it then hides nothing."""
    return (
        type(module).__module__.startswith("torch.nn.modules.")
        and "forward" not in module.__dict__
        and all(type(weight) is nn.Parameter for weight in module._parameters.values() if weight is not None)
    )


def outermost(module: nn.Module, kinds: tuple[type[nn.Module], ...]) -> Iterator[nn.Module]:
    if isinstance(module, kinds):
        yield module
        return
    for child in module.children():
        yield from outermost(child, kinds)


def is_bare(module: nn.Module) -> bool:
    """No parameters and no parts: what activations are."""
    return not any(p is not None for p in module._parameters.values()) and not module._modules


def is_foreign(output: Any) -> bool:
    """Whether a tensor comes straight out of an autograd function that is not ours."""
    return isinstance(output, Tensor) and is_foreign_node(output.grad_fn)


def is_foreign_node(node: Any) -> bool:
    if not isinstance(node, torch.autograd.function.BackwardCFunction):
        return False
    owner = getattr(type(node), "_forward_cls", type(node))
    return not owner.__module__.startswith("headwater.")


def activation_held(scope: Scope, module: nn.Module, x: Tensor, output: Tensor) -> Any:
    """The ACT-rule for a function that is known by its values alone. Without the rule its own gradient is in order."""
    with torch._C.DisableTorchFunction(), torch.no_grad():
        if output.shape != x.shape or not is_elementwise(module, x.detach(), output.detach()):
            return None
        zero, slope = around_zero(module, x)
    scope.known_foreign.add(output.grad_fn)
    if "act" not in scope.rules:
        return None
    if not math.isfinite(zero):
        return None
    scope.applies("act")
    with torch._C.DisableTorchFunction():
        result = scaled(x, output.detach(), (zero, slope), scope.pending)
    mark(result, Kind.ACTIVATED if zero == 0 else Kind.SHIFTED)
    if zero != 0:
        scope.source(result, zero, "activation(0)")
    return result


def is_elementwise(module: nn.Module, x: Tensor, output: Tensor) -> bool:
    """A function of each element alone does not care in which order the elements stand."""
    turned = module.forward(x.flatten().flip(0).reshape(x.shape))
    return torch.equal(turned.flatten().flip(0).reshape(x.shape).nan_to_num(), output.nan_to_num())


def linear_known(scope: Scope, module: nn.Module, x: Tensor, output: Tensor) -> None:
    """x W^T + b that is known by its values alone. With the GAMMA-rule its weights would have to be seen."""
    with torch._C.DisableTorchFunction(), torch.no_grad():
        bias = module.forward(torch.zeros_like(x[..., :1, :])).detach() if x.dim() > 1 else None
        if (
            bias is None
            or bias.shape[-1] != output.shape[-1]
            or not is_linear(module, x.detach(), output.detach(), bias)
        ):
            return
    if "gamma" in scope.rules:
        return
    scope.known_foreign.add(output.grad_fn)
    vector = bias.reshape(-1, bias.shape[-1])[0]
    if bool(vector.count_nonzero()):
        name = scope.modules.get(id(module), "")
        scope.source(output, scope.rename(vector, f"{name}.bias" if name else "bias"), "linear")


def is_linear(module: nn.Module, x: Tensor, output: Tensor, bias: Tensor) -> bool:
    """Whether the rows' sum gives the sum of their results, to the precision of the numbers."""
    other = 0.37 * x.flatten().flip(0).reshape(x.shape)
    parts = (output - bias) + (module.forward(other) - bias)
    gap = (module.forward(x + other) - bias - parts).abs().amax()
    return bool(gap <= 16 * torch.finfo(output.dtype).eps * parts.abs().amax())


def around_zero(module: nn.Module, x: Tensor) -> tuple[float, float]:
    step = torch.finfo(x.dtype).eps ** (1 / 3)
    low, zero, high = (float(module.forward(x.new_full((1,), v))) for v in (-step, 0.0, step))
    return zero, (high - low) / (2 * step)


def with_inference_value(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
    """The value that the module gives in inference, where it may take its fused path."""
    with torch._C.DisableTorchFunction(), torch.no_grad():
        known: dict[int, Tensor] = {}
        plain = module.forward(*detached(args, known), **detached(kwargs, known))
    if isinstance(output, Tensor):
        return inference_value(plain, output)
    return tuple(inference_value(p, o) for p, o in zip(plain, output, strict=True))


def inference_value(plain: Any, output: Any) -> Any:
    """Rows that are zero in inference alone (padding, which the fused path leaves out) pass nothing on."""
    if not is_signal(output):
        return plain
    with torch._C.DisableTorchFunction():
        left_out = ((plain == 0) & (output != 0)).all(-1, keepdim=True)
        kept = output.masked_fill(left_out, 0) if bool(left_out.any()) else output
        return value_of(plain, gradient_of=kept)


def detached(value: Any, known: dict[int, Tensor]) -> Any:
    """Tensors as constants; one that stands in two places stays one, for torch asks whether query is key."""
    if isinstance(value, Tensor):
        return known.setdefault(id(value), value.detach())
    if isinstance(value, dict):
        return {k: detached(v, known) for k, v in value.items()}
    return tuple(detached(v, known) for v in value) if isinstance(value, tuple) else value
