"""The paper's section 3 as a tool: relevance into and out of every module, and the operations that leak."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from ...engine.forward import Read, Run
from ...engine.options import OptionsByName
from ...engine.session import answer_all, check_followed
from ...errors import UsageError
from ...inputs.hooks import hook_modules
from ...inputs.restoring import restores
from ...memory.estimate import fit_to_limit
from ...methods.registry import Method, resolve_method
from ...results.audit import Audit, HeadFlow, Leak, ModuleFlow, NormFlow
from ...results.explanation import Explanation
from ...results.ledger import Ledger
from ...rules.call import Call, is_signal
from ...rules.lineage import carry
from ...rules.scope import Scope
from ..requests import Model, make_request
from .heads import Head, head_flows, note_head, note_scores
from .watch import Tap, tap_alias

UNSEEN = "an operation out of sight"  # inside TorchScript, or written in C++ by somebody else
_NORMS = ("layer_norm", "rms_norm", "group_norm")


@restores
def audit(model: Model, data: Any, *, method: str | Method | None = None, **options: Unpack[OptionsByName]) -> Audit:
    """Explain one input and say for every module what came in, what went out, and what its operations lost.

    For each normalisation it shows the share that the paper's second proposition predicts beside the one measured, for
    each attention head the break that the first one predicts.

    Args:
        model: as for `explain`.
        data: one sample, as for `explain`.
        method: as for `explain`; None audits what `explain` gives, or `lrp` where that (`lrp-difference`) cannot be
                followed through the model.
        options: all other options of `explain`, by name.

    Returns:
        An `Audit`: the explanation, its modules, normalisations and heads, and the operations that lose, the worst
        first.

    Raises:
        UsageError: there are several samples, or an option is wrong.
        NotApplicable: the method gives no relevance to parts of the model.
        ModelError: as for `explain`.

    Example:
        >>> a = hw.audit("headwater/sentiment", "a fine film", method="gi")
        >>> a.leaks[0].operation
        'tanh'
    """
    found: list[AuditScope] = []
    if method is not None:
        check_followed(resolve_method(method))
    ask = make_request(model, data, method=method, **options)
    if ask.options.memory_limit is not None:
        ask = fit_to_limit(ask)
    if ask.options.recompute:
        raise UsageError("an audit watches every operation, so no block can be computed again: leave out recompute=.")
    try:
        (explanation,) = answer_all(ask, lambda run: watch_run(run, found))
        return report(found[0], explanation, resolve_method(explanation.method if method is None else method))
    finally:
        for scope in found:
            scope.close()


def report(scope: AuditScope, explanation: Explanation, method: Method) -> Audit:
    held = method.rules
    return Audit(
        explanation=explanation,
        modules=tuple(scope.module_flows()),
        norms=tuple(flow for norm in scope.norms for flow in [norm.flow("ln" in held)] if flow is not None),
        heads=tuple(scope.head_flows),
        leaks=tuple(scope.leaks(explanation.ledger)),
    )


def watch_run(run: Run, found: list[AuditScope]) -> Run:
    """The same run with everything noted. A head's break is stated for items, so links between them are left out."""
    if run.batch.samples != 1:
        raise UsageError(f"an audit is of one input, not of {run.batch.samples}.")

    def watch(scope: Scope) -> AbstractContextManager[None]:
        assert isinstance(scope, AuditScope)
        found.append(scope)
        return watch_modules(run.model, scope)

    def inspect(scope: Scope, _: Read) -> None:
        assert isinstance(scope, AuditScope)
        scope.finish()

    return replace(run, scope=AuditScope, watch=watch, inspect=inspect, links=False)


@dataclass
class Passage:
    """Signals into and out of one operation or one call of a module, and the sources that entered between."""

    name: str
    kind: str
    into: list[Tap]
    out: list[Tap]
    sites: range
    inputs: list[Tensor] = field(default_factory=list)

    @property
    def totals(self) -> tuple[float, float]:
        """The relevance that came in, and that which went out."""
        return sum(tap.relevance for tap in self.into), sum(tap.relevance for tap in self.out)


@dataclass
class Norm:
    """One normalisation: its input, its output without the affine bias, and eps / (eps + Var) of every row."""

    name: str
    into: Tap
    out: Tap
    bias: Tensor | None
    collapse: Tensor
    rows: tuple[int, ...]  # the shape in which each row is normalised by itself

    def flow(self, held: bool) -> NormFlow | None:
        if self.into.gradient is None or self.out.gradient is None:
            return None
        core = self.out.value if self.bias is None else self.out.value - self.bias
        out = (self.out.gradient * core).reshape(self.rows).sum(-1).double()
        into = (self.into.gradient * self.into.value).sum().double()
        total = float(out.sum()) or math.nan
        collapse = float((out * self.collapse).sum()) / total
        return NormFlow(self.name, total, float(into), 1.0 if held else collapse, float(into) / total, collapse)


@dataclass(eq=False)
class AuditScope(Scope):
    """A scope that notes relevance at every operation, at the operation's own copy of its inputs."""

    reads_weights: bool = True
    operations: list[Passage] = field(default_factory=list)
    modules_called: list[Passage] = field(default_factory=list)
    active: list[Passage] = field(default_factory=list)
    norms: list[Norm] = field(default_factory=list)
    heads: list[Head] = field(default_factory=list)
    head_flows: list[HeadFlow] = field(default_factory=list)
    last_scores: Tensor | None = None
    leaf_modules: dict[str, nn.Module] = field(default_factory=dict)

    def perform(self, call: Call) -> Any:
        first = len(self.books.sites)
        taps: list[Tap] = []
        if call.inplace:
            return self._perform_in_place(call, taps, first)
        call = replace(call, args=own_copies(call.args, taps), kwargs=own_copies(call.kwargs, taps))
        note_scores(self, call)
        result = super().perform(call)
        out = tap_outputs(result)
        self.operations.append(Passage(call.name, self.where(), taps, out, range(first, len(self.books.sites))))
        if call.name in _NORMS and taps and out:
            self.norms.append(norm_of(call, self.where(), taps[0], out[0]))
        note_head(self, call, out)
        return result

    def _perform_in_place(self, call: Call, taps: list[Tap], first: int) -> Any:
        """Done on a copy, before and after which relevance can be told; the result is then written."""
        target = call.args[0]
        done = target.clone()
        carry(done, target, same_elements=True)
        if is_signal(done):
            taps.append(Tap.on(done, value=target.detach().clone()))
        args = (done, *own_copies(call.args[1:], taps))
        super().perform(replace(call, args=args, kwargs=own_copies(call.kwargs, taps)))
        out = tap_outputs(done)
        self.operations.append(Passage(call.name, self.where(), taps, out, range(first, len(self.books.sites))))
        if out:
            target.copy_(done)
            carry(target, done, same_elements=True)
        else:
            with torch.no_grad():
                target.copy_(done)
        return None if call.name == "setitem" else target

    def finish(self) -> None:
        """After the backward pass: what needs the graph is computed now."""
        self.books.open = False
        for passage in (*self.operations, *self.modules_called):
            for tap in (*passage.into, *passage.out):
                tap.open = False
        held = "ah" in self.rules
        self.head_flows = [flow for head in self.heads for flow in head_flows(head, held)]

    def close(self) -> None:
        for passage in (*self.operations, *self.modules_called, *self.active):
            for tap in (*passage.into, *passage.out):
                tap.close()
            passage.inputs.clear()
        self.heads.clear()
        self.last_scores = None

    def sources_in(self, sites: range) -> float:
        return sum(float(self.books.amounts[i].sum()) for i in sites if i in self.books.amounts)

    def module_flows(self) -> Iterator[ModuleFlow]:
        for passage in self.modules_called:
            if passage.into and passage.out:
                into, out = passage.totals
                yield ModuleFlow(passage.name, passage.kind, out, into, self.sources_in(passage.sites))

    def _leaf_flows(self) -> Iterator[tuple[ModuleFlow, nn.Module]]:
        """Modules without parts, by their calls together: what their operations do not explain was hidden from us."""
        for name, calls in groupby(sorted(self.module_flows(), key=lambda f: f.name), key=lambda f: f.name):
            module, several = self.leaf_modules.get(name), list(calls)
            if module is not None:
                out, into, sources = (sum(getattr(f, n) for f in several) for n in ("out", "into", "sources"))
                yield ModuleFlow(name, several[0].kind, out, into, sources), module

    def leaks(self, ledger: Ledger) -> list[Leak]:
        """Operations that did not pass on what they received, the largest first. Together they are `unaccounted`."""
        amounts: dict[tuple[str, str], float] = {}
        for passage in self.operations:
            into, out = passage.totals
            key = (passage.name, passage.kind)
            amounts[key] = amounts.get(key, 0.0) + out - into - self.sources_in(passage.sites)
        for flow, module in self._leaf_flows():
            inside = sum(amount for (_, name), amount in amounts.items() if name == flow.name)
            amounts[type(module).__name__, flow.name] = flow.lost - inside
        amounts[UNSEEN, ""] = ledger.unaccounted - sum(amounts.values())
        exact = all(tap.value.dtype is torch.float64 for passage in self.operations for tap in passage.into)
        found = [Leak(name, module, amount) for (name, module), amount in amounts.items()]
        floor = (1e-9 if exact else 1e-4) * ledger.size
        return sorted((leak for leak in found if abs(leak.amount) > floor), key=lambda leak: -abs(leak.amount))


def own_copies(value: Any, taps: list[Tap]) -> Any:
    """Signals among arguments replaced by aliases whose gradient is this operation's alone."""
    if is_signal(value) and not value.is_leaf:
        alias, tap = tap_alias(value)
        taps.append(tap)
        return alias
    if isinstance(value, dict):
        return {k: own_copies(v, taps) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(own_copies(v, taps) for v in value)
    return value


def tap_outputs(result: Any) -> list[Tap]:
    """The gradient that arrives at a result. The result stays the very tensor: it may carry hooks and lineage."""
    several = result if isinstance(result, (tuple, list)) else (result,)
    return [Tap.on(tensor) for tensor in several if is_signal(tensor)]


@contextmanager
def watch_modules(model: nn.Module, scope: Scope) -> Iterator[None]:
    """Notes what goes into and out of every module on this thread, and leaves no hook behind."""
    assert isinstance(scope, AuditScope)
    names = scope.modules
    scope.leaf_modules = {n: m for n, m in model.named_modules() if not any(True for _ in m.children())}

    def enter(module: nn.Module, args: Any, kwargs: Any) -> Any:
        taps: list[Tap] = []
        with torch._C.DisableTorchFunction():
            args, kwargs = own_copies(args, taps), own_copies(kwargs, taps)
        inputs = [tap.alias for tap in taps]
        start = len(scope.books.sites)
        scope.active.append(Passage(names[id(module)], type(module).__name__, taps, [], range(start, start), inputs))
        return args, kwargs

    def leave(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
        passage = scope.active.pop()
        passage.sites = range(passage.sites.start, len(scope.books.sites))
        with torch._C.DisableTorchFunction():
            tapped_output, passage.out = module_output(output)
        scope.modules_called.append(passage)
        note_hand_norm(scope, module, passage)
        return tapped_output

    with hook_modules(model.modules(), before=enter, after=leave):
        yield


def module_output(output: Any) -> tuple[Any, list[Tap]]:
    """A module's result, as an alias of its own: its gradient is all that arrives there."""
    taps: list[Tap] = []
    if isinstance(output, Tensor) or type(output) in (tuple, list):
        return own_copies(output, taps), taps
    return output, taps


def norm_of(call: Call, name: str, into: Tap, out: Tap) -> Norm:
    """The second proposition at torch's own normalisations."""
    x = into.value
    eps = call.get(4 if call.name != "rms_norm" else 3, "eps", 1e-5 if call.name != "rms_norm" else None)
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    bias = None if call.name == "rms_norm" else call.get(3, "bias")
    if call.name == "group_norm":
        groups = x.reshape(x.shape[0], call.get(1, "num_groups"), -1)
        if bias is not None:
            bias = bias.reshape(1, -1, *[1] * (x.dim() - 2))
        return Norm(name, into, out, bias, eps / (eps + groups.var(-1, correction=0)), groups.shape)
    axes = tuple(range(-len(tuple(call.get(1, "normalized_shape"))), 0))
    size = x.square().mean(axes) if call.name == "rms_norm" else x.var(axes, correction=0)
    return Norm(name, into, out, bias, eps / (eps + size), (*x.shape[: x.dim() - len(axes)], -1))


def note_hand_norm(scope: AuditScope, module: nn.Module, passage: Passage) -> None:
    """A module that normalises its rows by hand is a normalisation too."""
    if isinstance(module, (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)) or any(True for _ in module.children()):
        return
    if len(passage.into) != 1 or len(passage.out) != 1:
        return
    x, y = passage.into[0].value, passage.out[0].value
    if x.shape != y.shape or x.dim() < 2 or not x.is_floating_point() or torch.equal(x, y):
        return
    eps = next((v for n, v in vars(module).items() if "eps" in n and isinstance(v, float)), None)
    collapse = None if eps is None else collapse_of_root_mean_square(x, y, eps)
    collapse = collapse_of_deviation(x.double(), y.double()) if collapse is None else collapse
    if collapse is not None:
        scope.norms.append(Norm(passage.name, passage.into[0], passage.out[0], None, collapse, x.shape))


def collapse_of_root_mean_square(x: Tensor, y: Tensor, eps: float) -> Tensor | None:
    """eps / (eps + E[x^2]) of every row, if y is x / sqrt(eps + E[x^2]) times one vector."""
    size = x.square().mean(-1)
    vector = (y * (size + eps).sqrt().unsqueeze(-1)).double() / x.double()
    first = vector.reshape(-1, x.shape[-1])[:1]
    same = torch.isclose(vector.reshape(-1, x.shape[-1]), first, rtol=1e-3, atol=1e-4).all()
    return eps / (eps + size) if bool(same) else None


def collapse_of_deviation(x: Tensor, y: Tensor) -> Tensor | None:
    """What the gradient lets pass in every row, if y is (x - mean) / root with a root that is the row's deviation.

    eps is read off: it stands beside the deviation, root = std + eps, where eps / (std + eps) passes, or under the
    root, where eps / (var + eps) does. Of these, with n and with n - 1, the one counts whose eps is most nearly equal
    in all rows.
    """
    centred = x - x.mean(-1, keepdim=True)
    power = centred.square().sum(-1)
    factor = (y * centred).sum(-1) / power
    if not bool((y - factor.unsqueeze(-1) * centred).norm() <= 1e-5 * y.norm()):
        return None
    found = []
    for freedom in (0, 1):
        var = power / (x.shape[-1] - freedom)
        for size, root in ((var.sqrt(), 1 / factor), (var, 1 / factor.square())):
            eps = root - size
            if bool((eps.abs() <= 1e-2 * size).all()):
                found.append((float(eps.std(correction=0) / eps.abs().mean().clamp_min(1e-300)), eps / root))
    return min(found, key=lambda one: one[0])[1].clamp_min(0) if found else None
