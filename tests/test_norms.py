"""Normalisations in every spelling: what is divided by is held, whatever eps, axes and arguments say."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from weighing import LENGTH, WIDTH, Operation, drawn, error, explained, seeded

import headwater as hw

W, B = 1 + 0.3 * drawn(WIDTH, seed=21), drawn(WIDTH, seed=22)
W4, B4 = 1 + 0.3 * drawn(LENGTH, seed=23), drawn(LENGTH, seed=24)
MEAN, SIZE = drawn(LENGTH, seed=25), drawn(LENGTH, seed=26).abs() + 0.5
EPS = 0.3  # so large that it counts

NORMS: dict[str, Operation] = {
    "layer_norm": lambda x: F.layer_norm(x, (WIDTH,), W, B, EPS),
    "layer_norm, named": lambda x: F.layer_norm(x, normalized_shape=(WIDTH,), weight=W, bias=B, eps=EPS),
    "layer_norm without weights": lambda x: F.layer_norm(x, (WIDTH,), eps=EPS),
    "layer_norm with a bias alone": lambda x: F.layer_norm(x, (WIDTH,), None, B, EPS),
    "layer_norm with a weight alone": lambda x: F.layer_norm(x, (WIDTH,), W, None, EPS),
    "layer_norm over two axes": lambda x: F.layer_norm(x, (LENGTH, WIDTH), torch.outer(W4, W), torch.outer(B4, B), EPS),
    "layer_norm by torch": lambda x: torch.layer_norm(x, (WIDTH,), W, B, EPS),
    "rms_norm": lambda x: F.rms_norm(x, (WIDTH,), W, EPS),
    "rms_norm, named": lambda x: F.rms_norm(x, normalized_shape=(WIDTH,), weight=W, eps=EPS),
    "rms_norm without weights": lambda x: F.rms_norm(x, (WIDTH,)),
    "rms_norm of small numbers": lambda x: F.rms_norm(1e-8 * x, (WIDTH,), W),
    "rms_norm over two axes": lambda x: F.rms_norm(x, (LENGTH, WIDTH), torch.outer(W4, W), EPS),
    "group_norm by torch": lambda x: torch.group_norm(x, 2, W4, B4, EPS, False),
    "instance_norm by torch": lambda x: torch.instance_norm(x, W4, B4, None, None, True, 0.1, EPS, False),
    "rms_norm by torch": lambda x: torch.rms_norm(x, (WIDTH,), W, EPS),
    "group_norm": lambda x: F.group_norm(x, 2, W4, B4, EPS),
    "group_norm, named": lambda x: F.group_norm(x, num_groups=4, weight=W4, bias=B4, eps=EPS),
    "group_norm without weights": lambda x: F.group_norm(x, 2, eps=EPS),
    "group_norm, weight alone": lambda x: F.group_norm(x, 2, W4, None, EPS),
    "group_norm of images": lambda x: F.group_norm(x.unflatten(2, (2, 4)), 2, W4, B4, EPS),
    "instance_norm": lambda x: F.instance_norm(x, weight=W4, bias=B4, eps=EPS),
    "instance_norm without weights": lambda x: F.instance_norm(x, eps=EPS),
    "instance_norm of images": lambda x: F.instance_norm(x.unflatten(2, (2, 4)), weight=W4, bias=B4, eps=EPS),
    "instance_norm, by position": lambda x: F.instance_norm(x, None, None, W4, B4, True, 0.1, EPS),
}


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_closes(name: str) -> None:
    assert error(NORMS[name]) < 1e-12


@pytest.mark.parametrize("name", NORMS)
def test_a_norm_is_open_without_its_rule(name: str) -> None:
    """And its bias has its line all the same."""
    for e in explained(NORMS[name], "gi"):
        assert e.ledger.error > 1e-3


RUNNING: dict[str, Operation] = {
    "batch_norm": lambda x: F.batch_norm(x, MEAN, SIZE, W4, B4, False, 0.1, EPS),
    "batch_norm, named": lambda x: F.batch_norm(x, running_mean=MEAN, running_var=SIZE, weight=W4, bias=B4, eps=EPS),
    "batch_norm without weights": lambda x: F.batch_norm(x, MEAN, SIZE, eps=EPS),
    "batch_norm of images": lambda x: F.batch_norm(x.unflatten(2, (2, 4)), MEAN, SIZE, W4, B4, eps=EPS),
    "batch_norm of vectors": lambda x: F.batch_norm(x[:, 0, :4], MEAN, SIZE, W4, B4, eps=EPS),
    "batch_norm by torch": lambda x: torch.batch_norm(x, W4, B4, MEAN, SIZE, False, 0.1, EPS, False),
    "instance_norm by torch": lambda x: torch.instance_norm(x, W4, B4, MEAN, SIZE, False, 0.1, EPS, False),
    "instance_norm": lambda x: F.instance_norm(x, MEAN, SIZE, W4, B4, False, 0.1, EPS),
    "instance_norm, named": lambda x: F.instance_norm(
        x, running_mean=MEAN, running_var=SIZE, weight=W4, bias=B4, use_input_stats=False, eps=EPS
    ),
}


@pytest.mark.parametrize("method", ["gi", "lrp"])
@pytest.mark.parametrize("name", RUNNING)
def test_with_running_statistics_a_norm_is_affine(name: str, method: str) -> None:
    """Input times gradient, and what it gives for nothing: bias and mean, together what it makes of 0."""
    assert error(RUNNING[name], method) < 1e-12


def test_without_running_statistics_batch_norm_is_left_to_its_gradient() -> None:
    """Then samples depend on each other, which no explanation of one of them can say."""
    x = drawn(1, LENGTH, 6)
    model = seeded(
        lambda: nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(LENGTH, track_running_stats=False), nn.Flatten())
    )
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model(leaf)[:, 1].sum(), leaf)
    e = hw.explain(model, x, method="gi", score=lambda out: out[:, 1])[0]
    assert e.relevance.flatten().tolist() == pytest.approx((x * gradient).flatten().tolist(), abs=1e-10)


class Norm(nn.Module):
    """A module with its own weights, between two layers."""

    def __init__(self, make: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.before, self.norm, self.after = nn.Linear(6, WIDTH), make(), nn.Linear(LENGTH * WIDTH, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.norm(self.before(x)).flatten(1))


def running(norm: nn.Module) -> nn.Module:
    norm.running_mean.copy_(MEAN)
    norm.running_var.copy_(SIZE)
    return norm


@pytest.mark.parametrize(
    ("make", "lines"),
    [
        (lambda: nn.LayerNorm(WIDTH), {"norm.bias"}),
        (lambda: nn.LayerNorm([LENGTH, WIDTH]), {"norm.bias"}),
        (lambda: nn.RMSNorm(WIDTH), set()),
        (lambda: nn.GroupNorm(2, LENGTH), {"norm.bias"}),
        (lambda: nn.InstanceNorm1d(LENGTH, affine=True), {"norm.bias"}),
        (lambda: running(nn.BatchNorm1d(LENGTH)), {"norm.bias", "norm.running_mean"}),
        (
            lambda: running(nn.InstanceNorm1d(LENGTH, affine=True, track_running_stats=True)),
            {"norm.bias", "norm.running_mean"},
        ),
    ],
    ids=lambda value: "",
)
@pytest.mark.parametrize("method", ["lrp", "gi"])
def test_a_norm_has_its_own_lines(make: Callable[[], nn.Module], lines: set[str], method: str) -> None:
    """A bias by its name among the biases, a running mean among the constants: each is worth something."""
    model = seeded(lambda: Norm(make))
    for e in hw.explain(model, drawn(3, LENGTH, 6), method=method, score=lambda out: out[:, 1]):
        assert set(e.ledger.biases) == {"before.bias", "after.bias"} | {n for n in lines if n.endswith("bias")}
        assert set(e.ledger.constants) == {n for n in lines if n.endswith("mean")}
        assert all(abs(e.ledger.biases.get(n, 1) * e.ledger.constants.get(n, 1)) > 1e-4 for n in lines)


def size(x: Tensor) -> Tensor:
    return x.square().mean(-1, keepdim=True)


BY_HAND: dict[str, Operation] = {
    "over a root": lambda x: x / torch.sqrt(size(x) + EPS),
    "times a root": lambda x: x * torch.rsqrt(size(x) + EPS),
    "in place": lambda x: x.clone().div_((size(x) + EPS).sqrt()),
    "by divide": lambda x: torch.divide(x, (size(x) + EPS).sqrt()),
    "by true_divide, named": lambda x: torch.true_divide(x, other=(size(x) + EPS).sqrt()),
    "by a power": lambda x: x * (size(x) + EPS) ** -0.5,
    "by a power, named": lambda x: x * torch.pow(size(x) + EPS, exponent=-0.5),
    "by a power that is a tensor": lambda x: x * torch.pow(size(x) + EPS, torch.tensor(-0.5)),
    "by a power below one": lambda x: x / torch.pow(size(x) + EPS, 0.5),
    "by a reciprocal": lambda x: x * torch.reciprocal((size(x) + EPS).sqrt()),
    "by one over": lambda x: x * (1 / (size(x) + EPS).sqrt()),
    "by a number over": lambda x: x * (2.5 / (size(x) + EPS).sqrt()),
    "by a constant over": lambda x: x * (W / (size(x) + EPS).sqrt()),
    "std": lambda x: x / (x.std(-1, keepdim=True) + EPS),
    "var": lambda x: x / (x.var(-1, keepdim=True) + EPS).sqrt(),
    "norm": lambda x: x / (x.norm(dim=-1, keepdim=True) + EPS),
    "torch.norm": lambda x: x / torch.norm(x, dim=-1, keepdim=True),
    "vector_norm": lambda x: x / torch.linalg.vector_norm(x, dim=-1, keepdim=True),
    "linalg.norm": lambda x: x / torch.linalg.norm(x, dim=-1, keepdim=True),
    "frobenius": lambda x: x / torch.linalg.matrix_norm(x, keepdim=True),
    "var_mean": lambda x: (x - torch.var_mean(x, -1, keepdim=True)[1]) / torch.var_mean(x, -1, keepdim=True)[0].sqrt(),
    "std_mean": lambda x: (x - torch.std_mean(x, -1, keepdim=True)[1]) / torch.std_mean(x, -1, keepdim=True)[0],
    "by a mean of sizes": lambda x: x / x.norm(dim=-1, keepdim=True).mean(1, keepdim=True),
    "normalize": lambda x: F.normalize(x, dim=-1),
    "the largest": lambda x: x / x.abs().amax(-1, keepdim=True),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_a_norm_by_hand_closes_and_needs_its_rule(name: str) -> None:
    assert error(BY_HAND[name]) < 1e-12
    if name not in ("in place",):  # which the plain gradient does not survive
        assert error(BY_HAND[name], "gi") > 1e-3


@pytest.mark.parametrize("name", [name for name in BY_HAND if not name.endswith(("_mean", "largest"))])
def test_what_is_divided_by_is_a_constant(name: str) -> None:
    """The same relevance as with the divisor detached: that is the rule."""
    x = drawn(1, LENGTH, WIDTH)
    divisor = x / BY_HAND[name](x)
    (ours,) = explained_alone(BY_HAND[name], x, "lrp(ln)")
    (plain,) = explained_alone(lambda y: y / divisor, x, "gi")
    assert ours == pytest.approx(plain, abs=1e-12)


def explained_alone(operation: Operation, x: Tensor, method: str) -> list[list[float]]:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (operation(x) * drawn(LENGTH, WIDTH, seed=31)).sum((1, 2))[:, None]

    return [
        e.relevance.flatten().tolist()
        for e in hw.explain(Model().eval(), x, method=method, score=lambda out: out[:, 0])
    ]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["LayerNorm", "RMSNorm"])
def test_half_precision_is_normalised_in_float32(name: str, dtype: torch.dtype) -> None:
    """Numbers whose squares float16 cannot hold; and relevance as in float64 but for the rounding of its inputs."""
    norm = {"LayerNorm": nn.LayerNorm(WIDTH), "RMSNorm": nn.RMSNorm(WIDTH)}[name]
    model = seeded(lambda: nn.Sequential(norm, nn.Flatten(), nn.Linear(LENGTH * WIDTH, 2))).to(dtype)
    x = (300 * drawn(1, LENGTH, WIDTH)).to(dtype)
    name = str(dtype).removeprefix("torch.")  # else it is computed in float32
    ours = hw.explain(model, x, score=lambda out: out[:, 0], dtype=name)[0].relevance.flatten()
    fine = hw.explain(model.double(), x.double(), score=lambda out: out[:, 0])[0].relevance.flatten()
    assert bool(ours.isfinite().all())
    torch.testing.assert_close(ours.double(), fine.double(), rtol=0.05, atol=0.02 * float(fine.abs().max()))
