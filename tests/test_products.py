"""Products in every spelling: which factor is held constant, what the others get, and what is added to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from weighing import LENGTH, WIDTH, Operation, constant, drawn, error, explained, seeded

import headwater as hw

Combine = Callable[[Tensor, Tensor], Tensor]


class Two(nn.Module):
    """Two linear layers whose results meet; each element of what comes out has a weight of its own."""

    def __init__(self, combine: Combine) -> None:
        super().__init__()
        self.left, self.right, self.combine = nn.Linear(6, WIDTH), nn.Linear(6, WIDTH), combine
        with torch.no_grad():
            out = combine(drawn(1, LENGTH, WIDTH, seed=1), drawn(1, LENGTH, WIDTH, seed=2))
        self.after = nn.Linear(out.numel(), 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.combine(self.left(x), self.right(x)).flatten(1))


def of_two(combine: Combine, method: str = "lrp") -> tuple[float, float, float]:
    """What the ledger lacks, and what the biases of the two factors have."""
    model, x = seeded(lambda: Two(combine)), drawn(1, LENGTH, 6)
    e = hw.explain(model, x, method=method, score=lambda out: out[:, 1])[0]
    with torch.no_grad():
        assert e.score == model(x)[0, 1].item()
    return e.ledger.error, e.ledger.biases["left.bias"], e.ledger.biases["right.bias"]


GATES: dict[str, Combine] = {
    "an activation": lambda a, b: torch.tanh(a) * b,
    "second": lambda a, b: b * F.silu(a),
    "by multiply": lambda a, b: torch.multiply(F.silu(a), b),
    "in place, into the signal": lambda a, b: b.mul_(F.silu(a)),
    "in place, into the gate": lambda a, b: F.silu(a).mul_(b),
    "by an assignment": lambda a, b: in_place(torch.sigmoid(a), b),
    "a size of each element": lambda a, b: a.abs() * b,
    "a bound keeps it": lambda a, b: torch.sigmoid(a).clamp(0.1, 0.9) * b,
    "shifted": lambda a, b: (1 - F.silu(a)) * torch.tanh(b),
    "shifted from the other side": lambda a, b: torch.tanh(b) * (F.silu(a) + 2),
    "an exponential over a sigmoid": lambda a, b: torch.exp(-F.softplus(a)) * F.silu(b),
    "a root": lambda a, b: torch.sqrt(F.softplus(a)) * b,
    "a square": lambda a, b: torch.relu(a) ** 2 * b,
    "a square of its own": lambda a, b: a.square() * b,
    "a third power": lambda a, b: a**3 * b,
    "over an activation": lambda a, b: b / (1 + torch.exp(a)),
    "one over an activation": lambda a, b: (1 / (1 + torch.exp(a))) * b,
    "reciprocal": lambda a, b: torch.reciprocal(1 + torch.exp(a)) * b,
    "turned": lambda a, b: F.silu(a).transpose(1, 2).contiguous().transpose(1, 2) * b,
    "a part": lambda a, b: F.silu(a)[:, :, :1] * b,
    "cast": lambda a, b: F.silu(a).float().double() * b,
    "joined of two": lambda a, b: torch.cat([F.silu(a), torch.tanh(a)], 1) * torch.cat([b, b.flip(1)], 1),
    "stacked": lambda a, b: torch.stack([F.silu(a), F.silu(a.flip(1))], 1) * b.unsqueeze(1),
    "chosen by a condition": lambda a, b: torch.where(drawn(WIDTH) > 0, torch.sigmoid(a), 0.5) * b,
    "masked": lambda a, b: torch.sigmoid(a).masked_fill(drawn(WIDTH) > 0, 0.5) * b,
    "not below a constant": lambda a, b: torch.maximum(torch.sigmoid(a), drawn(WIDTH).sigmoid()) * b,
    "the largest": lambda a, b: torch.sigmoid(a).amax(-1, keepdim=True) * b,
    "the first of the sorted": lambda a, b: torch.sigmoid(a).sort(-1).values * b,
    "a router": lambda a, b: a.softmax(-1).topk(2, -1).values.sum(-1, keepdim=True) * b,
    "half as much": lambda a, b: 0.5 * torch.sigmoid(a) * b,
    "of a constant times": lambda a, b: torch.sigmoid(a) * drawn(LENGTH, 1) * b,
    "divided by a number": lambda a, b: torch.sigmoid(a) / 3 * b,
    "of two activations, the shifted one": lambda a, b: torch.sigmoid(a) * torch.tanh(b),
    "a sum over it": lambda a, b: torch.sigmoid(a).sum(-1, keepdim=True) * torch.tanh(b),
    "running sums": lambda a, b: torch.sigmoid(a).cumsum(1) * torch.tanh(b),
    "added to itself": lambda a, b: (torch.sigmoid(a) + torch.sigmoid(a)) * torch.tanh(b),
    "a matrix of gates": lambda a, b: torch.sigmoid(a) @ b.transpose(1, 2),
    "gates from the right": lambda a, b: b @ torch.sigmoid(a).transpose(1, 2),
    "by bmm": lambda a, b: torch.bmm(torch.sigmoid(a), b.transpose(1, 2)),
    "by mm": lambda a, b: torch.mm(torch.sigmoid(a[0]), b[0].T)[None],
    "by mv": lambda a, b: torch.mv(torch.sigmoid(a[0]), b[0, 0])[None],
    "by dot": lambda a, b: torch.dot(torch.sigmoid(a).flatten(), b.flatten()).reshape(1, 1),
    "by inner": lambda a, b: torch.inner(torch.sigmoid(a), b[0]),
    "by tensordot": lambda a, b: torch.tensordot(torch.sigmoid(a), b[0], dims=([2], [1])),
    "by einsum": lambda a, b: torch.einsum("bid,bjd->bij", torch.sigmoid(a), b),
    "by einsum, in a list": lambda a, b: torch.einsum("bid,bjd->bij", [b, torch.sigmoid(a)]),
    "baddbmm": lambda a, b: torch.baddbmm(drawn(LENGTH, LENGTH), torch.sigmoid(a), b.transpose(1, 2), alpha=0.7),
    "baddbmm from the right": lambda a, b: torch.baddbmm(drawn(LENGTH, LENGTH), b, torch.sigmoid(a).mT, beta=0.7),
    "addmm": lambda a, b: torch.addmm(drawn(LENGTH), torch.sigmoid(a[0]), b[0].T)[None],
    "addmv": lambda a, b: torch.addmv(drawn(LENGTH), torch.sigmoid(a[0]), b[0, 1], alpha=3)[None],
    "addbmm": lambda a, b: torch.addbmm(drawn(LENGTH), torch.sigmoid(a), b.transpose(1, 2))[None],
    "addcmul": lambda a, b: torch.addcmul(drawn(WIDTH), torch.sigmoid(a), b, value=-1.3),
    "addcmul, named": lambda a, b: torch.addcmul(drawn(WIDTH), tensor1=b, tensor2=torch.sigmoid(a), value=-1.3),
    "addcdiv": lambda a, b: torch.addcdiv(drawn(WIDTH), b, 1 + torch.exp(a), value=0.6),
    "glu": lambda a, b: F.glu(torch.cat([b, a], -1)),
    "glu of another axis": lambda a, b: F.glu(torch.cat([b, a], 1), 1),
    "glu of a named axis": lambda a, b: F.glu(torch.cat([b, a], 1), dim=1),
    "a solved system": lambda a, b: torch.linalg.solve(torch.eye(4) + 0.1 * a @ a.mT, b),
    "solved, named": lambda a, b: torch.linalg.solve(A=torch.eye(4) + 0.1 * a @ a.mT, B=b),
    "a triangular system": lambda a, b: torch.linalg.solve_triangular(3 * torch.eye(4) + a @ a.mT, b, upper=False),
    "an inverse": lambda a, b: torch.linalg.inv(torch.eye(4) + 0.1 * a @ a.mT) @ b,
    "an inverse, as a method": lambda a, b: (torch.eye(4) + 0.1 * a @ a.mT).inverse() @ b,
    "a pseudo-inverse": lambda a, b: torch.linalg.pinv(torch.eye(4) + 0.1 * a @ a.mT) @ b,
    "a pseudo-inverse, as a method": lambda a, b: (torch.eye(4) + 0.1 * a @ a.mT).pinverse() @ b,
    "a divisor": lambda a, b: b / (a.square().mean(-1, keepdim=True) + 1),
    "a divisor in place": lambda a, b: b.div_(a.square().mean(-1, keepdim=True) + 1),
    "what a root divides": lambda a, b: b * torch.rsqrt(a.square().mean(-1, keepdim=True) + 1),
    "a power below zero": lambda a, b: b * (a.square().mean(-1, keepdim=True) + 1) ** -0.5,
    "a size that multiplies": lambda a, b: b * a.norm(dim=-1, keepdim=True),
    "a deviation that multiplies": lambda a, b: a.std(-1, keepdim=True) * F.silu(b),
    "a variance": lambda a, b: a.var(-1, keepdim=True) * b,
    "a variance with its mean": lambda a, b: torch.var_mean(a, -1, keepdim=True)[0] * b,
    "a deviation with its mean": lambda a, b: torch.std_mean(a, -1, keepdim=True)[0] * b,
    "a vector's norm": lambda a, b: torch.linalg.vector_norm(a, dim=-1, keepdim=True) * b,
    "a root of a mean": lambda a, b: a.square().mean(-1, keepdim=True).sqrt() * b,
    "a power below one": lambda a, b: a.square().mean(-1, keepdim=True).pow(0.5) * b,
    "a distance": lambda a, b: torch.cdist(a, drawn(WIDTH, WIDTH)) * b,
    "a mean of sizes": lambda a, b: a.norm(dim=-1, keepdim=True).mean(1, keepdim=True) * b,
    "softmax times": lambda a, b: a.softmax(1) * b,
    "softmax over its sum": lambda a, b: (a.exp() / a.exp().sum(-1, keepdim=True)) * b,
    "attention": lambda a, b: (a @ a.mT).softmax(-1) @ b,
    "attention from the right": lambda a, b: b.mT @ (a @ a.mT).softmax(-1),
}


def in_place(gate: Tensor, signal: Tensor) -> Tensor:
    signal = signal.clone()
    signal *= gate
    return signal


@pytest.mark.parametrize("name", GATES)
def test_a_gate_gets_nothing_and_what_it_gates_everything(name: str) -> None:
    error, gate, signal = of_two(GATES[name])
    assert error < 1e-10
    assert gate == 0
    assert abs(signal) > 1e-3


HALVES: dict[str, Combine] = {
    "a product": lambda a, b: a * b,
    "in place": lambda a, b: a.mul_(b),
    "in place, of one that is used again": lambda a, b: (a + 0).mul_(b) + a,
    "broadcast": lambda a, b: a[:, :1] * b,
    "of activations": lambda a, b: torch.tanh(a) * F.silu(b),
    "of activations in place": lambda a, b: torch.tanh(a).mul_(F.silu(b)),
    "of shifted ones": lambda a, b: torch.sigmoid(a) * torch.sigmoid(b),
    "scores": lambda a, b: a @ b.mT,
    "by bmm": lambda a, b: torch.bmm(a, b.mT),
    "by mm": lambda a, b: torch.mm(a[0], b[0].T)[None],
    "by mv": lambda a, b: torch.mv(a[0], b[0, 1])[None],
    "by dot": lambda a, b: torch.dot(a.flatten(), b.flatten()).reshape(1, 1),
    "by rmatmul": lambda a, b: a.__rmatmul__(b.mT),
    "by inner": lambda a, b: torch.inner(a, b),
    "by tensordot": lambda a, b: torch.tensordot(a, b[0], dims=([2], [1])),
    "by bilinear": lambda a, b: F.bilinear(a, b, drawn(5, WIDTH, WIDTH)),
    "by einsum": lambda a, b: torch.einsum("bid,bjd->bij", a, b),
    "by addcmul": lambda a, b: torch.addcmul(drawn(WIDTH), a, b, value=0.4),
    "by baddbmm": lambda a, b: torch.baddbmm(drawn(LENGTH, LENGTH), a, b.mT, beta=0.4, alpha=0.8),
    "by addmm": lambda a, b: torch.addmm(drawn(LENGTH), a[0], b[0].T, beta=0.4)[None],
    "by addmv": lambda a, b: torch.addmv(drawn(LENGTH), a[0], b[0, 2], beta=0.4)[None],
    "by addbmm": lambda a, b: torch.addbmm(drawn(LENGTH), a, b.mT, beta=0.4)[None],
}


@pytest.mark.parametrize("name", HALVES)
def test_two_equals_share_by_half(name: str) -> None:
    """Each bias has half of what it has where the other factor is a constant."""
    combine = HALVES[name]
    error, left, right = of_two(combine)
    assert error < 1e-12
    if "in place" not in name:  # which the plain gradient does not survive
        assert of_two(combine, "gi")[0] > 1e-4
    if "activations" not in name and "shifted" not in name and "again" not in name:
        assert left == pytest.approx(0.5 * of_two(lambda a, b: combine(a, b.detach()), "gi")[1])
        assert right == pytest.approx(0.5 * of_two(lambda a, b: combine(a.detach(), b), "gi")[2])


@pytest.mark.parametrize("name", ["an activation", "second", "glu", "addcmul", "a matrix of gates", "by einsum"])
def test_with_half_a_gate_takes_part(name: str) -> None:
    error, gate, signal = of_two(GATES[name], "lrp(act+gate=half)")
    assert error < 1e-12
    assert abs(gate) > 1e-4
    assert signal == pytest.approx(0.5 * of_two(GATES[name])[2])


@pytest.mark.parametrize(
    "name", ["an activation", "in place, into the signal", "by mm", "baddbmm", "glu", "an inverse"]
)
def test_without_the_rule_a_product_keeps_its_gradient(name: str) -> None:
    """Then the gate takes what its gradient gives it, and there is more than there should be."""
    error, gate, _ = of_two(GATES[name], "gi" if name in ("glu", "an inverse") else "lrp(act)")
    assert error > 1e-4
    assert gate != 0


JOINED: dict[str, Operation] = {
    "constants after signals": lambda x: torch.cat([x, constant(x, 2, WIDTH), x.flip(1), constant(x, 3, WIDTH)], 1),
    "by the last axis": lambda x: torch.cat([x, constant(x, LENGTH, 1), constant(x, LENGTH, 5, seed=6)], -1),
    "nothing among them": lambda x: torch.cat([x, x[:, :0], constant(x, 1, WIDTH), constant(x, 2, WIDTH, seed=6)], 1),
    "stacked": lambda x: torch.stack([x, constant(x, LENGTH, WIDTH), x, constant(x, LENGTH, WIDTH, seed=6)], 2),
    "stacked at the end": lambda x: torch.stack([x, x, constant(x, LENGTH, WIDTH)], -1),
    "stacked, named": lambda x: torch.stack(tensors=[x, constant(x, LENGTH, WIDTH), x], dim=1),
    "named": lambda x: torch.cat(tensors=[x, constant(x, 2, WIDTH), constant(x, 1, WIDTH)], dim=1),
}


@pytest.mark.parametrize("name", JOINED)
def test_each_part_of_what_is_joined_stands_in_its_own_place(name: str) -> None:
    assert error(JOINED[name]) < 1e-12


FACTORS = {"beta": 0.3, "alpha": -1.7}
ADDED: dict[str, Operation] = {
    "addmm": lambda x: torch.addmm(drawn(WIDTH), x.flatten(0, 1), drawn(WIDTH, WIDTH), **FACTORS).unflatten(
        0, x.shape[:2]
    ),
    "addmm, plain": lambda x: torch.addmm(drawn(WIDTH), x.flatten(0, 1), drawn(WIDTH, WIDTH)).unflatten(0, x.shape[:2]),
    "addmm, named": lambda x: torch.addmm(
        drawn(WIDTH), mat1=x.flatten(0, 1), mat2=drawn(WIDTH, WIDTH), beta=0.3
    ).unflatten(0, x.shape[:2]),
    "addmm, to a signal": lambda x: torch.addmm(x[:, 0], x[:, 1], drawn(WIDTH, WIDTH), **FACTORS),
    "baddbmm": lambda x: torch.baddbmm(drawn(LENGTH, LENGTH), x, constant(x, WIDTH, LENGTH), **FACTORS),
    "baddbmm from the right": lambda x: torch.baddbmm(drawn(LENGTH, WIDTH), constant(x, LENGTH, LENGTH), x, **FACTORS),
    "baddbmm, to a signal": lambda x: torch.baddbmm(x[..., :4], x, constant(x, WIDTH, LENGTH), **FACTORS),
    "baddbmm, in place": lambda x: x.flip(1).baddbmm_(constant(x, LENGTH, LENGTH), x, **FACTORS),
    "two signals": lambda x: torch.baddbmm(drawn(LENGTH, LENGTH), x, x.transpose(1, 2), **FACTORS),
    "two signals to a signal": lambda x: torch.baddbmm(x[..., :4], x, x.transpose(1, 2), **FACTORS),
    "two signals, named": lambda x: torch.baddbmm(drawn(LENGTH, LENGTH), batch1=x, batch2=x.mT, **FACTORS),
    "matmul of two axes": lambda x: (x.flatten(0, 1) @ drawn(WIDTH, 5)).unflatten(0, x.shape[:2]),
    "matmul of three axes": lambda x: x @ drawn(WIDTH, 5),
    "matmul by many matrices": lambda x: x @ constant(x, WIDTH, 5),
    "matmul by a vector": lambda x: x @ drawn(WIDTH),
    "matmul from the left": lambda x: drawn(5, LENGTH) @ x,
    "matmul by inner": lambda x: torch.inner(x, drawn(5, WIDTH)),
    "matmul by tensordot": lambda x: torch.tensordot(x, drawn(5, WIDTH), dims=([2], [1])),
    "matmul by tensordot, in a row": lambda x: torch.tensordot(x, drawn(WIDTH, 5), 1),
    "matmul by einsum": lambda x: torch.einsum("bid,de->bie", x, drawn(WIDTH, 5)),
    "matmul in the middle": lambda x: torch.einsum(
        "bid,de,bje->bij", x, drawn(WIDTH, WIDTH), constant(x, LENGTH, WIDTH)
    ),
}


@pytest.mark.parametrize("name", ADDED)
def test_what_is_added_to_a_product_counts_by_its_factor(name: str) -> None:
    assert error(ADDED[name]) < 1e-12


@pytest.mark.parametrize("name", [name for name in ADDED if "matmul" in name])
def test_a_product_with_a_matrix_conserves_with_the_gamma_rule(name: str) -> None:
    assert error(ADDED[name], "lrp-gamma") < 1e-12


@pytest.mark.parametrize("name", ["matmul of three axes", "addmm, plain"])
def test_a_linear_layer_by_hand_is_a_linear_layer(name: str) -> None:
    """The GAMMA-rule knows it by its operation, not by its module; so its relevance is not the plain one."""
    bias = drawn(WIDTH) if "addmm" in name else None
    matrix = drawn(WIDTH, WIDTH) if "addmm" in name else drawn(WIDTH, 5)
    ours, layer, plain = (
        explained(operation, method, 1)[0]
        for operation, method in (
            (ADDED[name], "lrp-gamma"),
            (lambda x: F.linear(x, matrix.T, bias), "lrp-gamma"),
            (ADDED[name], "lrp"),
        )
    )
    assert ours.relevance == pytest.approx(layer.relevance, abs=1e-12)
    assert float((ours.relevance - plain.relevance).abs().max()) > 1e-3


class OneSample(nn.Module):
    """An operation on the rows of a single sample, each element of its result with a weight of its own."""

    def __init__(self, operation: Operation, weight: Tensor) -> None:
        super().__init__()
        self.operation, self.weight = operation, nn.Parameter(weight)

    def forward(self, x: Tensor) -> Tensor:
        return (self.operation(x[0]) * self.weight).sum().reshape(1, 1)


@pytest.mark.parametrize("beta", [0.0, 1.0, 0.3])
@pytest.mark.parametrize("name", ["addmv", "addbmm", "addmm"])
def test_the_base_of_a_product_is_worth_beta_times_itself(name: str, beta: float) -> None:
    """A number that can be worked out by hand: gradient times beta times base."""
    matrix, vector, base = drawn(5, 4), drawn(4), drawn(5, seed=8) if name == "addmv" else drawn(5, 3, seed=8)
    operation: Any = {
        "addmv": lambda x: torch.addmv(base, x, vector, beta=beta, alpha=2.0),
        "addmm": lambda x: torch.addmm(base, x, drawn(4, 3), beta=beta, alpha=2.0),
        "addbmm": lambda x: torch.addbmm(base, x[None], drawn(1, 4, 3), beta=beta, alpha=2.0),
    }[name]
    model = OneSample(operation, drawn(*base.shape, seed=9)).double().eval()
    e = hw.explain(model, matrix[None], score=lambda out: out[:, 0])[0]
    assert e.ledger.constants.total == pytest.approx(beta * float((base * model.weight.detach()).sum()), abs=1e-12)
    assert e.ledger.error < 1e-12


def test_a_gated_linear_unit_is_its_product_written_out() -> None:
    """With half each, too: the same relevance, and f(0) of its sigmoid is a constant that nothing of the model cuts."""
    first, second = (
        explained(f, "lrp(act+gate=half)")
        for f in (
            lambda x: F.glu(F.tanhshrink(x)),
            lambda x: (lambda y: y[..., :4] * torch.sigmoid(y[..., 4:]))(F.tanhshrink(x)),
        )
    )
    for a, b in zip(first, second, strict=True):
        assert a.relevance == pytest.approx(b.relevance, abs=1e-12)
        assert a.ledger.constants.total == pytest.approx(b.ledger.constants.total, abs=1e-12)
        assert a.ledger.closed
