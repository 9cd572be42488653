"""Modules whose operations cannot be seen. There are three cases.

An activation that is an autograd function of its own: if it has no parameters and acts on each element alone, the
ACT-rule applies to the module. A linear layer that is one (packed weights): its own gradient conserves, and its result
for zero is its bias. An encoder layer of torch on its fused path for inference: the rules act on the plain path, and
the value is that of the fused path, bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ..inputs.hooks import hook_modules, without_hooks
from ..inputs.walking import named_modules
from ..traces.record import untraced
from .call import is_signal
from .cuts import tensors
from .gradients import value_of
from .lineage import Kind, mark
from .ratio import scale_by_constant
from .scope import Scope

FUSED = (nn.Transformer, nn.TransformerEncoder, nn.TransformerEncoderLayer, nn.MultiheadAttention)


@contextmanager
def watch_foreign_modules(model: nn.Module, scope: Scope) -> Iterator[None]:
    """Watches the modules of `model` on this thread, and leaves no hook behind."""

    def activation(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        if len(args) != 1 or not is_signal(args[0]) or not is_unknown(output):
            return None
        return apply_act_by_value(scope, module, args[0], output)

    def linear(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if len(args) == 1 and is_signal(args[0]) and is_unknown(output):
            account_linear_module(scope, module, args[0], output)

    def fused(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        if not torch.is_grad_enabled():
            return None
        plain = with_inference_value(without_hooks(module), args, kwargs, output, own=scope.parts_decide)
        for part, seen in zip(tensors(plain), tensors(output), strict=True):
            if is_signal(part):
                scope.stand_in(part, seen)
            else:
                scope.cuts.carry(part, seen)
        return plain

    def is_unknown(output: Any) -> bool:  # dropout in evaluation, for one, hands on what came in
        return is_foreign(output) and output.grad_fn not in scope.known_foreign

    acts: dict[nn.Module, Any] = dict.fromkeys(outermost(model, FUSED), fused)
    inside_fused = {id(part) for module in acts for _, part in named_modules(module)}
    for _, module in named_modules(model):
        if not module._modules and id(module) not in inside_fused and not is_plain(module):
            acts[module] = activation if is_bare(module) else linear
    with hook_modules(acts, after=lambda module, *rest: acts[module](module, *rest)):
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


def apply_act_by_value(scope: Scope, module: nn.Module, x: Tensor, output: Tensor) -> Any:
    """The ACT-rule for a function that is known by its values alone. Without the rule its own gradient is in order."""
    with untraced(), torch._C.DisableTorchFunction(), torch.no_grad():
        if output.shape != x.shape or not is_elementwise(module, x.detach(), output.detach()):
            return None
        zero, slope = around_zero(module, x)
    scope.known_foreign.add(output.grad_fn)
    with torch._C.DisableTorchFunction():
        passed = scope.pass_activation_on(module.forward, x, output.detach())
    if passed is not None:
        return passed
    acts = math.isfinite(zero) and scope.applies("act")
    with torch._C.DisableTorchFunction():
        result = scale_by_constant(x, output.detach(), (zero, slope), scope.pending) if acts else output
    mark(result, Kind.ACTIVATED if zero == 0 else Kind.SHIFTED)
    if acts and zero != 0:
        scope.source(result, zero, "activation(0)")
    return result


def is_elementwise(module: nn.Module, x: Tensor, output: Tensor) -> bool:
    """Whether a function acts on each element alone, judged by its operations and by its values.

    Operations are not enough, because numbers may pass through Python or numpy. Values are not enough, because a
    function may mix its elements for some inputs only.
    """
    watch = PointwiseOnly(x)
    with watch:
        module.forward(x)
    return watch.holds and all(stays(module, x, output, draw) for draw in range(4))


def stays(module: nn.Module, x: Tensor, output: Tensor, draw: int) -> bool:
    """Whether elements keep their values while others are replaced, by larger and by smaller ones."""
    chance = torch.Generator().manual_seed(draw)
    replaced = (torch.rand(x.shape, generator=chance) < (0.5, 0.5, 0.9, 0.1)[draw]).to(x.device)
    size = float(x.abs().max().nan_to_num(1.0)) + 1.0
    others = (torch.rand(x.shape, generator=chance) - 0.5).to(x) * size * (8.0, 0.1, 8.0, 8.0)[draw]
    found = module.forward(torch.where(replaced, others, x))
    return torch.equal(found[~replaced].nan_to_num(), output[~replaced].nan_to_num())


_SAME_ELEMENTS = ("aten::detach", "aten::alias", "aten::clone", "aten::_to_copy", "aten::contiguous", "aten::copy_")


class PointwiseOnly(TorchDispatchMode):
    """Watches the operations of a function of `x`. It `holds` that each acts on single elements of what x became."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.holds: bool = True
        self.shape: torch.Size = x.shape
        self.made: list[Tensor] = [x]  # held, for numbers of objects are given out again

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = list(tensors((args, kwargs)))
        if given or not isinstance(result, Tensor) or result.numel() != 1:
            self.holds &= self._is_pointwise(func) and all(map(self._is_known, given)) and bool(given)
            self.made.extend(tensors(result))
        return result

    def _is_pointwise(self, func: Any) -> bool:
        random = torch.Tag.nondeterministic_seeded in func.tags
        return not random and (torch.Tag.pointwise in func.tags or func.name().split(".")[0] in _SAME_ELEMENTS)

    def _is_known(self, tensor: Tensor) -> bool:
        """Made of x, in its shape; or a single number that is not."""
        own = any(tensor is one for one in self.made)
        return tensor.shape == self.shape if own else tensor.numel() == 1


def account_linear_module(scope: Scope, module: nn.Module, x: Tensor, output: Tensor) -> None:
    """x W^T + b that is known by its values alone. With the GAMMA-rule its weights would have to be seen."""
    with torch._C.DisableTorchFunction(), torch.no_grad():
        bias = module.forward(torch.zeros_like(x[..., :1, :])).detach() if x.dim() > 1 else None
        if (
            bias is None
            or bias.shape[-1] != output.shape[-1]
            or not acts_linearly(module, x.detach(), output.detach(), bias)
            or not has_own_gradient(module, x.detach(), bias)
        ):
            return
    if "gamma" in scope.rules:
        return
    scope.known_foreign.add(output.grad_fn)
    vector = bias.reshape(-1, bias.shape[-1])[0]
    if bool(vector.count_nonzero()):
        name = scope.modules.get(id(module), "")
        scope.source(output, scope.rename(vector, f"{name}.bias" if name else "bias"), "linear")


def acts_linearly(module: nn.Module, x: Tensor, output: Tensor, bias: Tensor) -> bool:
    """Whether the sum of two inputs gives the sum of their results, for inputs of either sign, small and large."""
    return all(adds_up(module, x, output - bias, bias, scale) for scale in (0.37, -2.0, 30.0))


def has_own_gradient(module: nn.Module, x: Tensor, bias: Tensor) -> bool:
    """Whether the gradient that a linear function gives is its own: <g, f(v)> = <gradient of g at x, v>.

    For a g of chance, and for one along f(v): there no parts cancel, so that half precision shows it, too.
    """
    chance = torch.Generator().manual_seed(1)
    with torch.enable_grad():
        leaf = x.clone().requires_grad_(True)
        out = module.forward(leaf)
        for along in (False, True):
            seed, step = (torch.randn(t.shape, generator=chance, dtype=torch.float64).to(t) for t in (out, leaf))
            with torch.no_grad():
                own = module.forward(step) - bias
                seed = own / own.abs().amax().clamp_min(torch.finfo(own.dtype).tiny) if along else seed
            (found,) = torch.autograd.grad(out, leaf, seed, retain_graph=True)
            forth, back, lost = (a.double() * b.double() for a, b in ((seed, own), (found, step), (seed, bias)))
            room = 64 * torch.finfo(x.dtype).eps * sum(float(part.abs().sum()) for part in (forth, back, lost))
            if abs(float(forth.sum() - back.sum())) > room:
                return False
    return True


def adds_up(module: nn.Module, x: Tensor, own: Tensor, bias: Tensor, scale: float) -> bool:
    drawn = torch.randn(x.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    other = scale * x.abs().mean() * drawn.to(x)
    brought = module.forward(other) - bias
    gap = (module.forward(x + other) - bias - own - brought).abs().amax()
    return bool(gap <= 16 * torch.finfo(own.dtype).eps * (own.abs() + brought.abs() + bias.abs()).amax())


def around_zero(module: nn.Module, x: Tensor) -> tuple[float, float]:
    step = torch.finfo(x.dtype).eps ** (1 / 3)
    low, zero, high = (float(module.forward(x.new_full((1,), v))) for v in (-step, 0.0, step))
    return zero, (high - low) / (2 * step)


def with_inference_value(module: nn.Module, args: Any, kwargs: Any, output: Any, *, own: bool) -> Any:
    """The value that the module gives in inference, where it may take its fused path; or its `own`, padding aside."""
    with torch._C.DisableTorchFunction(), torch.no_grad():
        known: dict[int, Tensor] = {}
        plain = module.forward(*detach_all(args, known), **detach_all(kwargs, known))
    if isinstance(output, Tensor):
        return inference_value(plain, output, own=own)
    return tuple(inference_value(p, o, own=own) for p, o in zip(plain, output, strict=True))


def inference_value(plain: Any, output: Any, *, own: bool) -> Any:
    """Rows that are zero in inference alone (padding, which the fused path leaves out) pass nothing on."""
    if not is_signal(output):
        return plain
    with torch._C.DisableTorchFunction():
        left_out = ((plain == 0) & (output != 0)).all(-1, keepdim=True)
        kept = output.masked_fill(left_out, 0) if bool(left_out.any()) else output
        return kept if own else value_of(plain, gradient_of=kept)


def detach_all(value: Any, known: dict[int, Tensor]) -> Any:
    """Tensors as constants; one that stands in two places stays one, for torch asks whether query is key."""
    if isinstance(value, Tensor):
        return known.setdefault(id(value), value.detach())
    if isinstance(value, dict):
        return {k: detach_all(v, known) for k, v in value.items()}
    return tuple(detach_all(v, known) for v in value) if isinstance(value, tuple) else value
