"""What is added, joined, chosen or written beside a signal: each constant has its line, in its place, with its sign."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from weighing import LENGTH, WIDTH, Operation, constant, drawn, error, explained, seeded

import headwater as hw

HALF = drawn(LENGTH, WIDTH, seed=11) > 0
SOME = drawn(LENGTH, WIDTH, seed=12)


def into(x: Tensor, write: Callable[[Tensor], object]) -> Tensor:
    x = x.clone()
    write(x)
    return x


CONSTANTS: dict[str, Operation] = {
    "added": lambda x: x + SOME,
    "added from the left": lambda x: SOME + x,
    "a number": lambda x: x + 0.7,
    "a number from the left": lambda x: 0.7 + x,
    "added times": lambda x: torch.add(x, SOME, alpha=-1.4),
    "added to times": lambda x: torch.add(SOME, x, alpha=-1.4),
    "named": lambda x: torch.add(input=x, other=SOME, alpha=3),
    "taken away": lambda x: x - SOME,
    "taken away from": lambda x: SOME - x,
    "taken away times": lambda x: torch.sub(x, SOME, alpha=1.4),
    "taken away from times": lambda x: torch.sub(SOME, x, alpha=1.4),
    "rsub": lambda x: torch.rsub(x, SOME, alpha=1.4),
    "rsub of a signal": lambda x: torch.rsub(SOME, x, alpha=1.4),
    "a number less": lambda x: 2 - x,
    "in place": lambda x: into(x, lambda y: y.add_(SOME)),
    "in place times": lambda x: into(x, lambda y: y.sub_(SOME, alpha=0.3)),
    "in place, by an operator": lambda x: x.__iadd__(SOME),
    "into a constant": lambda x: constant(x, LENGTH, WIDTH).clone().add_(x),
    "into a constant, less": lambda x: constant(x, LENGTH, WIDTH).clone().sub_(x, alpha=2),
    "along one axis": lambda x: x + SOME[:, :1],
    "along another": lambda x: x + SOME[0],
    "of more axes": lambda x: x.unsqueeze(1) + SOME[None, :2, None, :],
    "each sample its own axis": lambda x: x + torch.ones(len(x), 1, 1) * 0.3,
    "where": lambda x: torch.where(HALF, x, SOME),
    "where not": lambda x: torch.where(HALF, SOME, x),
    "where, a number": lambda x: torch.where(HALF, 0.4, x),
    "where, as a method": lambda x: x.where(HALF, SOME),
    "where, a method of a constant": lambda x: SOME.where(HALF, x),
    "where, named": lambda x: torch.where(HALF, input=x, other=SOME),
    "where, of signals": lambda x: torch.where(HALF, x, x.flip(1)),
    "where, along one axis": lambda x: torch.where(HALF[:, :1], x, 0.4),
    "filled": lambda x: x.masked_fill(HALF, -0.8),
    "filled, nothing": lambda x: x.masked_fill(HALF, 0),
    "filled, named": lambda x: x.masked_fill(mask=HALF, value=0.6),
    "filled by a tensor": lambda x: x.masked_fill(HALF, SOME[0, 0]),
    "filled by a signal": lambda x: torch.stack([SOME.masked_fill(HALF, one[0, 0]) for one in x]),
    "filled in place": lambda x: into(x, lambda y: y.masked_fill_(HALF[:, :1], 0.6)),
    "not below": lambda x: torch.maximum(x, SOME),
    "not below, from the left": lambda x: torch.maximum(SOME, x),
    "not above": lambda x: torch.minimum(x, SOME),
    "not above, from the left": lambda x: torch.minimum(SOME, x),
    "fmax": lambda x: torch.fmax(x, SOME),
    "fmin": lambda x: torch.fmin(SOME, x),
    "named other": lambda x: torch.minimum(x, other=SOME),
    "the larger of two signals": lambda x: torch.maximum(x, x.flip(1)),
    "padded": lambda x: F.pad(x, (1, 2, 1, 0), value=0.4),
    "padded, by position": lambda x: F.pad(x, (1, 2), "constant", -0.4),
    "padded by nothing": lambda x: F.pad(x, (1, 2)),
    "padded by itself": lambda x: F.pad(x, (1, 2), mode="reflect"),
    "written into": lambda x: into(x, lambda y: y.__setitem__((slice(None), 1), SOME[1])),
    "a number written": lambda x: into(x, lambda y: y.__setitem__((slice(None), slice(None), 3), 0.9)),
    "a signal written": lambda x: into(constant(x, LENGTH, WIDTH), lambda y: y.__setitem__((slice(None), 2), x[:, 1])),
    "put": lambda x: x.index_put((torch.arange(len(x)), torch.tensor(2)), SOME[0]),
    "put and added": lambda x: x.index_put((torch.arange(len(x)), torch.tensor(2)), SOME[0], accumulate=True),
    "scattered": lambda x: torch.stack([one.masked_scatter(HALF, SOME) for one in x]),
    "filled by index": lambda x: x.index_fill(1, torch.tensor([0, 2]), 0.3),
    "copied by index": lambda x: x.index_copy(1, torch.tensor([2, 0]), constant(x, 2, WIDTH)),
    "copied": lambda x: into(x, lambda y: y[:, :2].copy_(SOME[:2])),
    "fill": lambda x: into(x, lambda y: y[:, 1].fill_(0.25)) * 2,
    "a slice": lambda x: torch.slice_scatter(x, constant(x, 2, WIDTH), 1, 1, 3),
    "a slice of a constant": lambda x: torch.slice_scatter(constant(x, LENGTH, WIDTH), x[:, :2], 1, 1, 3),
    "a row": lambda x: torch.select_scatter(x, constant(x, WIDTH), 1, 2),
    "a row, named": lambda x: torch.select_scatter(constant(x, LENGTH, WIDTH), src=x[:, 0], dim=1, index=2),
    "hstack": lambda x: torch.hstack([x, x.flip(1)]),
    "vstack": lambda x: torch.vstack([x, x])[: len(x)],
    "addcmul": lambda x: torch.addcmul(SOME, x, SOME, value=0.3),
    "addcmul to a signal": lambda x: torch.addcmul(x, x, SOME, value=0.3),
    "addcmul of constants": lambda x: torch.addcmul(x, SOME, SOME, value=0.3),
    "addcmul in place": lambda x: into(x, lambda y: y.addcmul_(x, SOME, value=0.3)),
    "addcdiv": lambda x: torch.addcdiv(SOME, x, SOME, value=-2),
    "addcdiv in place": lambda x: into(x, lambda y: y.addcdiv_(x, SOME)),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_constant_beside_a_signal_has_its_line(name: str) -> None:
    assert error(CONSTANTS[name]) < 1e-12


NONE = ("nothing", "itself", "of signals", "two signals", "stack", "to a signal", "v in place", "l in place")


@pytest.mark.parametrize("name", [name for name in CONSTANTS if not any(word in name for word in NONE)])
def test_the_line_of_a_constant_is_what_it_adds(name: str) -> None:
    """Without the signal, the rest of the score is there: lines of constants are no remainder."""
    (e,) = explained(CONSTANTS[name], samples=1)
    assert abs(e.ledger.constants.total) > 1e-3


def test_nothing_is_no_line() -> None:
    for operation in (lambda x: x + 0, lambda x: x.masked_fill(HALF, 0), lambda x: F.pad(x, (1, 1)), lambda x: x - 0.0):
        (e,) = explained(operation, samples=1)
        assert dict(e.ledger.constants) == {}


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "conv1d": (lambda: nn.Conv1d(4, 3, 3, padding=1), (4, 6)),
    "conv1d, strided": (lambda: nn.Conv1d(4, 6, 2, stride=2, groups=2), (4, 6)),
    "conv1d without a bias": (lambda: nn.Conv1d(4, 3, 2, bias=False), (4, 6)),
    "conv2d": (lambda: nn.Conv2d(2, 3, 2, stride=2), (2, 4, 6)),
    "conv2d, dilated": (lambda: nn.Conv2d(2, 3, 2, dilation=2, padding=1), (2, 4, 6)),
    "conv3d": (lambda: nn.Conv3d(2, 3, 2), (2, 3, 4, 3)),
    "conv_transpose1d": (lambda: nn.ConvTranspose1d(4, 3, 3, stride=2), (4, 5)),
    "conv_transpose2d": (lambda: nn.ConvTranspose2d(2, 3, 2, stride=2), (2, 3, 4)),
    "conv_transpose3d": (lambda: nn.ConvTranspose3d(2, 3, 2), (2, 3, 2, 3)),
    "linear": (lambda: nn.Linear(6, 5), (4, 6)),
    "linear of one axis": (lambda: nn.Linear(6, 5), (6,)),
    "linear of many axes": (lambda: nn.Linear(6, 5), (2, 3, 6)),
    "linear without a bias": (lambda: nn.Linear(6, 5, bias=False), (4, 6)),
}


class Layer(nn.Module):
    def __init__(self, make: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
        super().__init__()
        self.layer = make().double()
        with torch.no_grad():
            self.after = nn.Linear(self.layer(drawn(1, *shape)).numel(), 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.layer(x).flatten(1))


@pytest.mark.parametrize("method", ["gi", "lrp-gamma", "lrp(gamma=0.3)"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_linear_layer_conserves_with_its_bias(name: str, method: str) -> None:
    make, shape = LAYERS[name]
    model = seeded(lambda: Layer(make, shape))
    for samples in (1, 2, 5):
        x = drawn(samples, *shape)
        for i, e in enumerate(hw.explain(model, x, method=method, score=lambda out: out[:, 1])):
            alone = hw.explain(model, x[i : i + 1], method=method, score=lambda out: out[:, 1])[0]
            assert e.ledger.error < 1e-12
            assert dict(e.ledger.biases) == pytest.approx(dict(alone.ledger.biases), abs=1e-12)
            assert set(e.ledger.biases) == {n for n, _ in model.named_parameters() if n.endswith("bias")}


@pytest.mark.parametrize("gamma", [0.1, 1.0])
@pytest.mark.parametrize("name", [name for name in LAYERS if "linear" not in name])
def test_a_convolution_is_the_linear_layer_that_it_is(name: str, gamma: float) -> None:
    """Written as a matrix, with the same GAMMA-rule, it gives the same relevance and the same bias."""
    make, shape = LAYERS[name]
    model = seeded(lambda: Layer(make, shape))
    layer, x = model.layer, drawn(1, *shape)
    x.view(-1)[::3] = 0  # what is not there has no sign
    with torch.no_grad():
        zero = layer(torch.zeros_like(x)).flatten()
        rows = [layer(row.reshape(x.shape)).flatten() - zero for row in torch.eye(x.numel(), dtype=x.dtype)]
    twin = nn.Sequential(nn.Flatten(), nn.Linear(x.numel(), len(zero)), model.after).double().eval()
    with torch.no_grad():
        twin[1].weight.copy_(torch.stack(rows, 1))
        twin[1].bias.copy_(zero)
    ours, theirs = (
        hw.explain(one, x, method=f"lrp(gamma={gamma})", score=lambda out: out[:, 1])[0] for one in (model, twin)
    )
    assert ours.relevance.flatten().tolist() == pytest.approx(theirs.relevance.flatten().tolist(), abs=1e-10)
    if layer.bias is not None:
        assert ours.ledger.biases["layer.bias"] == pytest.approx(theirs.ledger.biases["1.bias"], abs=1e-10)


class HyperLinear(nn.Module):
    """A linear layer whose weights, or whose bias, depend on the input."""

    def __init__(self, which: str) -> None:
        super().__init__()
        self.which, self.first = which, nn.Linear(6, 6)
        self.weight, self.bias = nn.Parameter(drawn(5, 6)), nn.Parameter(drawn(5))

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        if self.which == "weight":
            return F.linear(y, y[0, :5] if y.dim() == 3 else y[:5], self.bias)
        if self.which == "bias":
            return F.linear(y, self.weight, y.mean((0, 1))[:5])
        if self.which == "both constant":
            return F.linear(drawn(1, 4, 6), y[0].mean(0)[None], self.bias[:1])
        return F.linear(input=y, weight=self.weight, bias=self.bias)


@pytest.mark.parametrize("which", ["weight", "bias", "both constant", "named"])
def test_a_linear_layer_made_by_the_input_is_left_to_its_gradient(which: str) -> None:
    model = seeded(lambda: nn.Sequential(HyperLinear(which), nn.Flatten()))
    x = drawn(1, 6, 6)
    e = hw.explain(model, x, method="gi", score=lambda out: out[:, 1])[0]
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(leaf)[:, 1].sum(), leaf)
    assert e.relevance.flatten().tolist() == pytest.approx((x * gradient).flatten().tolist(), abs=1e-10)
    if which != "bias":
        assert e.ledger.biases["0.bias"] != 0
