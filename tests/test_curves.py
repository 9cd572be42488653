"""Activations where a small fault would show: at 0, with arguments, in place, hidden, and written over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from weighing import LENGTH, WIDTH, Operation, drawn, error, explained, seeded

import headwater as hw
from headwater.errors import HiddenOperation


class OwnCurve(torch.autograd.Function):
    """A function of each element that nobody can see into: tanh(x) + x^2 + shift."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, shift: float) -> Tensor:
        ctx.save_for_backward(x)
        return torch.tanh(x) + x * x + shift

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (x,) = ctx.saved_tensors
        return gradients[0] * (1 - torch.tanh(x) ** 2 + 2 * x), None


class Curve(nn.Module):
    def __init__(self, shift: float = 0.0) -> None:
        super().__init__()
        self.shift = shift

    def forward(self, x: Tensor) -> Tensor:
        return OwnCurve.apply(x, self.shift)


SLOPES: dict[str, tuple[Operation, float]] = {
    "tanh": (torch.tanh, 1.0),
    "tanh in place": (lambda x: x.tanh_(), 1.0),
    "gelu": (F.gelu, 0.5),
    "gelu, named": (lambda x: F.gelu(input=x, approximate="tanh"), 0.5),
    "silu": (F.silu, 0.5),
    "silu in place": (lambda x: F.silu(x, inplace=True), 0.5),
    "elu": (F.elu, 1.0),
    "sigmoid": (torch.sigmoid, 0.25),
    "sigmoid in place": (lambda x: x.sigmoid_(), 0.25),
    "softplus": (F.softplus, 0.5),
    "sinh": (lambda x: 2 * torch.sinh(x), 2.0),
    "square": (torch.square, 0.0),
    "cube": (lambda x: x**3, 0.0),
    "power": (lambda x: torch.relu(x) ** 1.5, 0.0),
    "powers that differ": (lambda x: x ** torch.tensor([2.0, 3.0], dtype=x.dtype), 0.0),
    "root": (lambda x: torch.sqrt(torch.relu(x)), 0.0),
    "hidden": (Curve(), 1.0),
    "hidden and shifted": (Curve(0.5), 1.0),
    "of a slope each": (lambda x: F.prelu(x, torch.tensor([0.3, 0.4], dtype=x.dtype)), 0.0),
    "of one slope": (nn.PReLU(init=0.3).double(), 0.3),
}


class Cancelling(nn.Module):
    """Two inputs that cancel each other where the activation is, and a third that does not."""

    def __init__(self, activation: Operation) -> None:
        super().__init__()
        self.linear, self.activation = nn.Linear(3, 2, bias=False), activation
        with torch.no_grad():
            self.linear.weight.copy_(torch.tensor([[2.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.linear(x)) @ torch.tensor([[3.0], [1.0]], dtype=x.dtype)


@pytest.mark.parametrize("name", SLOPES)
def test_an_activation_at_zero_passes_its_slope(name: str) -> None:
    """Nothing comes out but f(0), and what cancelled is told apart by f'(0): each has its own share."""
    activation, slope = SLOPES[name]
    x = torch.tensor([[1.5, -3.0, 0.7]], dtype=torch.float64)
    model = Cancelling(activation).double().eval()
    e = hw.explain(model, x, score=lambda out: out[:, 0])[0]
    assert e.relevance[:2].tolist() == pytest.approx([9.0 * slope, -9.0 * slope], rel=1e-6, abs=1e-9)
    assert e.ledger.error < 1e-10


def test_nothing_that_comes_of_something_is_nothing() -> None:
    """Hardswish is 0 at 0, with a slope, and 0 below -3, without one: of two zeros only one passes anything on."""
    x = torch.tensor([[1.5, -3.0, -4.0]], dtype=torch.float64)
    e = hw.explain(Cancelling(F.hardswish).double().eval(), x, score=lambda out: out[:, 0])[0]
    assert e.relevance.tolist() == pytest.approx([4.5, -4.5, 0.0])


def test_a_gated_linear_unit_at_zero_passes_its_slope() -> None:
    """glu([a, b]) = a sigmoid(b) at b = 0 is a / 2; with half each, b's inputs get a / 2 times the slope, 1/4."""
    model = nn.Sequential(nn.Linear(3, 2, bias=False), nn.GLU()).double().eval()
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[0.0, 0.0, 1.0], [2.0, 1.0, 0.0]]))
    x = torch.tensor([[1.5, -3.0, 0.7]], dtype=torch.float64)
    e = hw.explain(model, x, method="lrp(gate=half)", score=lambda out: out[:, 0])[0]
    share = 0.5 * 0.7 * 0.25 * 3.0
    assert e.relevance.tolist() == pytest.approx([share, -share, 0.5 * 0.7 * 0.5])
    assert e.ledger.constants.total == pytest.approx(0.5 * 0.7 * 0.5)


BOUND = 0.3 * drawn(LENGTH, WIDTH, seed=14)
ARGUMENTS: dict[str, Operation] = {
    "two softpluses": lambda x: F.softplus(x) + F.softplus(x, beta=3),
    "by position": lambda x: F.softplus(x) + F.softplus(x, 3, 5),
    "two bounds": lambda x: x.clamp(0.1, 2) + x.clamp(min=0.4) + x.clamp(max=-0.2),
    "bounds by other names": lambda x: torch.clip(x, 0.2) + torch.clamp_min(x, 0.3) + torch.clamp_max(x, -0.3),
    "bounds of their own": lambda x: x.clamp(BOUND - 0.5, BOUND + 0.5),
    "bounds of their own, named": lambda x: torch.clamp(x, min=BOUND - 0.5, max=BOUND),
    "one bound of its own": lambda x: torch.clamp(x, BOUND, max=None) + x.clamp(max=BOUND),
    "a bound of its own and a number": lambda x: torch.clamp(x, BOUND, torch.tensor(0.9, dtype=x.dtype)),
    "below a bound of its own": lambda x: torch.clamp_min(x, BOUND) + torch.clamp_max(x, BOUND),
    "bounds of their own in place": lambda x: x.clone().clamp_(BOUND, BOUND + 1),
    "two thresholds": lambda x: F.threshold(x, 0.1, 20.0) + F.threshold(x, 0.2, 5.0),
    "hardtanh": lambda x: F.hardtanh(x, 0.1, 0.6) + F.hardtanh(x, -0.6, -0.1),
    "slopes by channel": nn.PReLU(LENGTH).double(),
    "in place by name": lambda x: F.hardswish(x.clone(), inplace=True) + F.elu(x.clone(), 2.0, inplace=True),
    "in place with arguments": lambda x: x.clone().clamp_(0.2, 0.7),
    "hidden": Curve(),
    "hidden and shifted": Curve(0.5),
    "a power that is a tensor": lambda x: x ** torch.tensor(3.0),
    "a power, named": lambda x: torch.pow(x, exponent=2),
    "a power of one": lambda x: x**1,
    "relu to a power": lambda x: torch.relu(x).pow(1.7),
    "its size times itself": lambda x: x.abs() * x,
    "a root of an activation": lambda x: torch.sqrt(F.softplus(x)),
    "a root of relu": lambda x: torch.sqrt(torch.relu(x)),
    "a root of a root": lambda x: torch.sqrt(torch.sqrt(F.softplus(x))) * x,
    "over its own exponential": lambda x: x / (1 + torch.exp(-x)),
    "over an activation of its own": lambda x: x / (1 + x.abs()),
    "one over": lambda x: 1 / (1 + torch.exp(-x)) * x,
    "inverse of an activation": lambda x: torch.reciprocal(1 + torch.exp(-x)) * x,
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_activation_closes_with_its_arguments(name: str) -> None:
    assert error(ARGUMENTS[name]) < 1e-12


BY_HAND = {
    "silu": (lambda x: x * torch.sigmoid(x), F.silu),
    "silu over": (lambda x: x / (1 + torch.exp(-x)), F.silu),
    "silu turned round": (lambda x: torch.sigmoid(x) * x, F.silu),
    "softsign": (lambda x: x / (1 + x.abs()), F.softsign),
    "square": (lambda x: x * x, torch.square),
    "square by a power": (lambda x: x**2, torch.square),
    "relu": (lambda x: 0.5 * (x + x.abs()), F.relu),
    "relu as a bound": (lambda x: x.clamp(min=0), F.relu),
    "mish": (lambda x: x * torch.tanh(F.softplus(x)), F.mish),
    "gelu": (lambda x: x * 0.5 * (1 + torch.erf(x / 2**0.5)), F.gelu),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_an_activation_by_hand_is_the_activation(name: str) -> None:
    first, second = (explained(f, samples=1)[0] for f in BY_HAND[name])
    assert first.relevance == pytest.approx(second.relevance, abs=1e-12)
    assert first.ledger.error < 1e-12


def test_powers_may_differ_from_element_to_element() -> None:
    powers = torch.tensor([1.0, 2.0, 3.0, 1.0, 2.0, 3.0, 1.0, 2.0], dtype=torch.float64)
    assert error(lambda x: x**powers) < 1e-12
    assert error(lambda x: x**powers, "gi") > 1e-4


class Attended(nn.Module):
    """Attention whose weights go through something before they are used."""

    def __init__(self, change: Operation) -> None:
        super().__init__()
        self.query, self.value, self.change = nn.Linear(6, WIDTH), nn.Linear(6, WIDTH), change
        self.after = nn.Linear(LENGTH * WIDTH, 3)

    def forward(self, x: Tensor) -> Tensor:
        query = self.query(x)
        weights = self.change((query @ query.mT).softmax(-1))
        return self.after((weights @ self.value(x)).flatten(1))


CHANGES: dict[str, Operation] = {
    "nothing": lambda w: w,
    "a bound": lambda w: w.clamp(0.2, 0.3),
    "relu": F.relu,
    "a square": torch.square,
    "a power": lambda w: w**3,
    "a power of two": lambda w: w**2,
    "over their sum": lambda w: w / w.sum(-1, keepdim=True),
    "a cast": lambda w: w.to(torch.float32).to(torch.float64),
    "dropout": lambda w: F.dropout(w, 0.1, False),
    "turned": lambda w: w.mT.contiguous().mT,
    "masked": lambda w: w.masked_fill(torch.eye(LENGTH, dtype=torch.bool), 0.0),
    "no NaN": lambda w: w.nan_to_num(0.0),
    "a factor": lambda w: 2 * w,
    "divided": lambda w: w / 3,
}


@pytest.mark.parametrize("name", CHANGES)
def test_weights_stay_weights(name: str) -> None:
    """With the AH-rule alone, what a softmax gave is held whatever was done to it: queries get nothing."""
    model = seeded(lambda: Attended(CHANGES[name]))
    for e in hw.explain(model, drawn(2, LENGTH, 6), method="lrp(ah)", score=lambda out: out[:, 1]):
        assert e.ledger.biases["query.bias"] == 0
        assert e.ledger.error < 1e-10


class WrittenOver(nn.Module):
    """A layer whose input, result or activation is written over before the way back."""

    def __init__(self, how: str, activation: Operation = F.gelu) -> None:
        super().__init__()
        self.how, self.activation = how, activation
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = 1 * x
        z = self.first(y)
        if self.how == "input":
            y.mul_(3)
            return self.second(self.activation(z)).mean(1) + y.mean((1, 2))[:, None]
        if self.how == "result":
            z.mul_(2)
        if self.how == "list":
            torch._foreach_mul_([z], 2.0)
        if self.how == "twice":
            z.mul_(2).mul_(1)
        if self.how == "activation":
            h = self.activation(z)
            z.mul_(2)
            return self.second(h).mean(1) + z.mean((1, 2))[:, None]
        if self.how == "plain":
            z = 2 * z
        if self.how == "plain input":
            return self.second(self.activation(z)).mean(1) + 3 * y.mean((1, 2))[:, None]
        if self.how == "plain activation":
            return self.second(self.activation(z)).mean(1) + 2 * z.mean((1, 2))[:, None]
        return self.second(self.activation(z)).mean(1)


@pytest.mark.parametrize("activation", [F.gelu, torch.sigmoid, Curve()])
@pytest.mark.parametrize("method", ["lrp", "lrp-gamma", "lrp(act+gamma=1)"])
@pytest.mark.parametrize("how", ["input", "result", "list", "twice", "activation"])
def test_what_is_written_over_is_kept_for_the_way_back(how: str, method: str, activation: Operation) -> None:
    """The same numbers as where nothing is written over."""
    plain = {"input": "plain input", "activation": "plain activation"}.get(how, "plain")
    found = []
    for one in (how, plain):
        model = seeded(lambda one=one: WrittenOver(one, activation))
        found.append(hw.explain(model, drawn(2, LENGTH, 6), method=method, score=lambda out: out[:, 1]))
    for ours, theirs in zip(*found, strict=True):
        assert ours.relevance.flatten().tolist() == pytest.approx(theirs.relevance.flatten().tolist(), abs=1e-12)
        assert ours.ledger.error < 1e-10


@pytest.mark.parametrize("which", ["input", "value"])
def test_writing_where_nobody_looks_is_an_error(which: str) -> None:
    """Under no_grad the rules see nothing; that an activation's numbers are gone is found out, and said."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            z = self.linear(x)
            h = torch.tanh(z)
            with torch.no_grad():
                (z if which == "input" else h).add_(1.0)
            return h.mean(1)

    with pytest.raises(HiddenOperation, match="writes over"):
        hw.explain(seeded(Model), drawn(1, LENGTH, 6), score=lambda out: out[:, 1])


class OwnProduct(torch.autograd.Function):
    """x W^T + b that nobody can see into; or something that is no linear layer at all."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, bend: float) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.bend = bend
        return F.linear(x, weight, bias) + bend * F.linear(x * x, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        x, weight = ctx.saved_tensors
        return (gradients[0] @ weight) * (1 + 2 * ctx.bend * x), None, None, None


class Packed(nn.Module):
    def __init__(self, bias: bool = True, bend: float = 0.0) -> None:
        super().__init__()
        self.weight, self.bend = nn.Parameter(drawn(5, 6)), bend
        self.bias = nn.Parameter(drawn(5)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        return OwnProduct.apply(x, self.weight, self.bias, self.bend)


@pytest.mark.parametrize("bias", [True, False])
def test_a_hidden_linear_layer_conserves_with_its_bias(bias: bool) -> None:
    hidden = seeded(lambda: nn.Sequential(Packed(bias), nn.GELU(), nn.Flatten(), nn.Linear(20, 3)))
    plain = nn.Sequential(nn.Linear(6, 5, bias=bias), nn.GELU(), nn.Flatten(), nn.Linear(20, 3)).double().eval()
    plain.load_state_dict(hidden.state_dict())
    x = drawn(3, LENGTH, 6)
    ours, theirs = (hw.explain(one, x, score=lambda out: out[:, 1]) for one in (hidden, plain))
    for a, b in zip(ours, theirs, strict=True):
        assert a.relevance.flatten().tolist() == pytest.approx(b.relevance.flatten().tolist(), abs=1e-12)
        assert dict(a.ledger.biases) == pytest.approx(dict(b.ledger.biases), abs=1e-12)
        assert a.ledger.error < 1e-12


@pytest.mark.parametrize("bend", [1e-6, 0.5])
def test_what_is_nearly_linear_is_hidden(bend: float) -> None:
    model = seeded(lambda: nn.Sequential(Packed(True, bend), nn.GELU(), nn.Flatten(), nn.Linear(20, 3)))
    with pytest.raises(HiddenOperation, match="OwnProduct"):
        hw.explain(model, drawn(1, LENGTH, 6), score=lambda out: out[:, 1])


def test_with_the_gamma_rule_a_hidden_layer_is_hidden() -> None:
    """Its weights would have to be seen."""
    model = seeded(lambda: nn.Sequential(Packed(), nn.Flatten(), nn.Linear(20, 3)))
    with pytest.raises(HiddenOperation, match="OwnProduct"):
        hw.explain(model, drawn(1, LENGTH, 6), method="lrp-gamma", score=lambda out: out[:, 1])


class OwnMean(torch.autograd.Function):
    """As large as its input, but no function of each element alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.tanh(x) * x.cumsum(-1)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0]


class Mixing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return OwnMean.apply(x)


def test_what_mixes_elements_is_hidden() -> None:
    model = seeded(lambda: nn.Sequential(nn.Linear(6, 5), Mixing(), nn.Flatten(), nn.Linear(20, 3)))
    with pytest.raises(HiddenOperation, match="OwnMean"):
        hw.explain(model, drawn(1, LENGTH, 6), score=lambda out: out[:, 1])


def test_a_hidden_activation_keeps_its_gradient_without_the_rule() -> None:
    model = seeded(lambda: nn.Sequential(nn.Linear(6, 5), Curve(0.5), nn.Flatten(), nn.Linear(20, 3)))
    x = drawn(1, LENGTH, 6)
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(leaf)[:, 1].sum(), leaf)
    e = hw.explain(model, x, method="gi", score=lambda out: out[:, 1])[0]
    assert e.relevance.flatten().tolist() == pytest.approx((x * gradient).flatten().tolist(), abs=1e-12)


@pytest.mark.parametrize("make", [nn.Tanh, nn.GELU, Curve, lambda: Packed(False)])
def test_no_hook_is_left(make: Callable[[], nn.Module]) -> None:
    model = seeded(lambda: make_model(make))
    hw.explain(model, drawn(1, LENGTH, 6), score=lambda out: out[:, 1])
    assert not any(module._forward_hooks for module in model.modules())


def make_model(make: Callable[[], nn.Module]) -> nn.Module:
    module = make()
    width = 5 if isinstance(module, Packed) else 6
    return nn.Sequential(nn.Linear(6, 6), module, nn.Flatten(), nn.Linear(LENGTH * width, 3))
