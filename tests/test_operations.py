"""Operations in every spelling: as functions, as modules, by hand, in place. Each closes, and needs its rule to."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tiny import randomised
from torch import Tensor, nn
from transformers.activations import ACT2FN

import headwater as hw


class Wrapped(nn.Module):
    """Linear, the operation, linear; a bias before and after, so that every missing line shows."""

    def __init__(self, operation: Callable[[Tensor], Tensor] | nn.Module, width: int = 8, out: int = 8) -> None:
        super().__init__()
        self.before, self.after = nn.Linear(6, width), nn.Linear(out, 3)
        self.operation = operation

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.operation(self.before(x))).mean(1)


def closes(model: nn.Module, x: Tensor, method: str = "lrp") -> float:
    """Largest relative remainder; the prediction and each sample alone are checked on the way."""
    model = randomised(model.double())
    with torch.no_grad():
        plain = model(x.clone())
    found = hw.explain(model, x, method=method, score=lambda out: out[:, 1])
    assert [e.score for e in found] == plain[:, 1].tolist()
    for i, e in enumerate(found):
        alone = hw.explain(model, x[i : i + 1], method=method, score=lambda out: out[:, 1])[0]
        assert e.relevance == pytest.approx(alone.relevance, abs=1e-12)
        assert dict(e.ledger.biases) == pytest.approx(dict(alone.ledger.biases), abs=1e-12)
        assert dict(e.ledger.constants) == pytest.approx(dict(alone.ledger.constants), abs=1e-12)
    return max(e.ledger.error for e in found)


def explained(model: nn.Module, method: str = "lrp") -> hw.Explanation:
    return hw.explain(model, data(1), method=method, score=lambda out: out[:, 1])[0]


def data(samples: int = 3, length: int = 4) -> Tensor:
    return torch.randn(samples, length, 6, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def gelu_by_hand(x: Tensor) -> Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def gelu_as_bloom(x: Tensor) -> Tensor:
    return x * 0.5 * (1.0 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x)))


def gelu_with_erf(x: Tensor) -> Tensor:
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


def mish_by_hand(x: Tensor) -> Tensor:
    return x * torch.tanh(torch.log1p(torch.exp(x)))


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
    "tanh method": lambda x: x.tanh(),
    "tanh in place": lambda x: x.tanh_(),
    "gelu by hand": gelu_by_hand,
    "gelu as bloom": gelu_as_bloom,
    "gelu with erf": gelu_with_erf,
    "quick gelu": lambda x: x * torch.sigmoid(1.702 * x),
    "silu by hand": lambda x: torch.sigmoid(x) * x,
    "silu in place": lambda x: F.silu(x, inplace=True),
    "mish": F.mish,
    "mish by hand": mish_by_hand,
    "relu squared": lambda x: F.relu(x).square(),
    "relu squared by pow": lambda x: torch.relu(x) ** 2,
    "relu squared by mul": lambda x: torch.relu(x) * torch.relu(x),
    "square": lambda x: x * x,
    "cube": lambda x: x**3,
    "elu": F.elu,
    "selu": F.selu,
    "softplus": F.softplus,
    "sigmoid": torch.sigmoid,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "hardtanh": F.hardtanh,
    "clamp": lambda x: x.clamp(-0.4, 0.5),
    "clamp above zero": lambda x: x.clamp(min=0.1),
    "softsign": F.softsign,
    "exp": torch.exp,
    "cosine": torch.cos,
    "soft cap": lambda x: 5 * torch.tanh(x / 5),
}
HOMOGENEOUS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "relu in place": lambda x: F.relu(x, inplace=True),
    "leaky relu": F.leaky_relu,
    "abs": torch.abs,
    "threshold as where": lambda x: torch.where(x > 0, x, 0.0),
    "maximum of two": lambda x: torch.maximum(x, x.flip(-1)),
    "largest": lambda x: x - x.amax(-1, keepdim=True),
}


@pytest.mark.parametrize("name", [*ACTIVATIONS, *HOMOGENEOUS])
def test_activation_closes(name: str) -> None:
    assert closes(Wrapped({**ACTIVATIONS, **HOMOGENEOUS}[name]), data()) < 1e-12


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation_is_open_without_its_rule(name: str) -> None:
    assert closes(Wrapped(ACTIVATIONS[name]), data(), "gi") > 1e-4


@pytest.mark.parametrize("name", ["gelu by hand", "quick gelu", "relu squared by mul", "gelu as bloom", "mish by hand"])
def test_activation_by_hand_is_an_activation_not_a_gate(name: str) -> None:
    assert closes(Wrapped(ACTIVATIONS[name]), data(), "lrp(act)") < 1e-12


@pytest.mark.parametrize("name", sorted(set(ACT2FN) - {"swiglu", "xielu", "linear"}))
def test_every_activation_of_transformers(name: str) -> None:
    assert closes(Wrapped(ACT2FN[name].eval()), data()) < 1e-12


def test_activation_by_hand_equals_the_function() -> None:
    """The same relevance whether GELU is one operation or eight."""
    first, second = (Wrapped(f) for f in (ACTIVATIONS["gelu tanh"], gelu_by_hand))
    second.load_state_dict(first.state_dict())
    a, b = (explained(randomised(m.double())) for m in (first, second))
    assert a.relevance == pytest.approx(b.relevance, abs=1e-12)


def test_ratio_near_zero_is_the_derivative() -> None:
    """(sigmoid(x) - 1/2) / x at x = 1e-12 is 1/4, not rounding divided by nothing."""
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Sigmoid()).double().eval()
    nn.init.ones_(model[0].weight)
    for value in (1e-12, -1e-9, 0.0, 1e-3):
        e = hw.explain(model, torch.tensor([[value]], dtype=torch.float64), score=lambda out: out[:, 0])[0]
        assert e.relevance.item() == pytest.approx(value / 4, rel=1e-5)
        assert e.ledger.constants.total == pytest.approx(0.5)


def layer_norm_by_hand(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True, correction=0) + 1e-5)


def rms_norm_by_hand(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def paper_norm(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-12)


def response_norm(x: Tensor) -> Tensor:
    """Global response normalisation: each channel times its share of all channels' sizes."""
    size = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return x * (size / (size.mean(-1, keepdim=True) + 1e-6)) + x


def as_large_as_before(x: Tensor) -> Tensor:
    """Another vector, brought to the size that this one has."""
    other, size = x.flip(-1), x.square().mean(-1, keepdim=True) ** 0.5
    return other * size / (other.square().mean(-1, keepdim=True) ** 0.5)


NORMS: dict[str, Callable[[], Callable[[Tensor], Tensor] | nn.Module]] = {
    "LayerNorm": lambda: nn.LayerNorm(8),
    "LayerNorm, plain": lambda: nn.LayerNorm(8, elementwise_affine=False),
    "LayerNorm over two axes": lambda: nn.LayerNorm([4, 8]),
    "RMSNorm": lambda: nn.RMSNorm(8),
    "layer norm by hand": lambda: layer_norm_by_hand,
    "the paper's: x - mean over std": lambda: (
        lambda x: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-12)
    ),
    "rms norm by hand": lambda: rms_norm_by_hand,
    "rms norm by pow": lambda: lambda x: x * torch.pow(x.square().mean(-1, keepdim=True) + 1e-6, -0.5),
    "rms norm by reciprocal": lambda: lambda x: x * (1 / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()),
    "rms norm in place": lambda: lambda x: x.div_(x.square().mean(-1, keepdim=True).sqrt() + 1e-6),
    "unit length": lambda: lambda x: F.normalize(x, dim=-1),
    "over its norm": lambda: lambda x: x / x.norm(dim=-1, keepdim=True),
    "global response norm": lambda: response_norm,
    "size of another": lambda: as_large_as_before,
    "GroupNorm": lambda: nn.Sequential(Turned(), nn.GroupNorm(2, 8), Turned()),
    "InstanceNorm": lambda: nn.Sequential(Turned(), nn.InstanceNorm1d(8, affine=True), Turned()),
}


class Turned(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2)


@pytest.mark.parametrize("name", NORMS)
def test_norm_closes(name: str) -> None:
    assert closes(Wrapped(NORMS[name]()), data()) < 1e-12


NOTHING_LOST = {"rms norm in place", "InstanceNorm", "global response norm", "size of another"}


@pytest.mark.parametrize("name", sorted(set(NORMS) - NOTHING_LOST))
def test_norm_is_open_without_its_rule(name: str) -> None:
    """The mean over positions of InstanceNorm's result is its bias, whatever the input: nothing can be lost there.

    What is twice as large for a vector twice as large is in order by its gradient; one size alone held would break it.
    """
    assert closes(Wrapped(NORMS[name]()), data(), "gi") > 1e-3


def test_writing_over_what_the_gradient_needs_is_an_error_that_says_so() -> None:
    """The rule needs nothing of it; the plain gradient does."""
    with pytest.raises(hw.errors.HiddenOperation, match="writes over a tensor"):
        explained(randomised(Wrapped(NORMS["rms norm in place"]()).double()), "gi")


@pytest.mark.parametrize("name", ["layer norm by hand", "rms norm by hand"])
def test_norm_by_hand_equals_the_function(name: str) -> None:
    function = nn.LayerNorm(8, elementwise_affine=False) if "layer" in name else nn.RMSNorm(8, 1e-6, False)
    first, second = Wrapped(function), Wrapped(NORMS[name]())
    second.load_state_dict(first.state_dict())
    a, b = (explained(randomised(m.double())) for m in (first, second))
    assert a.relevance == pytest.approx(b.relevance, abs=1e-12)


def test_batch_norm_is_affine_and_its_mean_is_in_the_ledger() -> None:
    norm = nn.BatchNorm1d(8)
    with torch.no_grad():
        norm.running_mean.normal_(generator=torch.Generator().manual_seed(0))
        norm.running_var.uniform_(0.5, 2, generator=torch.Generator().manual_seed(0))
    model = Wrapped(nn.Sequential(Turned(), norm, Turned()))
    for method in ("gi", "lrp"):
        assert closes(model, data(), method) < 1e-12
    e = hw.explain(model, data(), score=lambda out: out[:, 1])[0]
    assert "operation.1.running_mean" in e.ledger.constants
    assert "operation.1.bias" in e.ledger.biases


class Gated(nn.Module):
    def __init__(self, gate: Callable[[Tensor], Tensor], swap: bool = False) -> None:
        super().__init__()
        self.left, self.right, self.gate, self.swap = nn.Linear(8, 8), nn.Linear(8, 8), gate, swap

    def forward(self, x: Tensor) -> Tensor:
        gate, signal = self.gate(self.left(x)), self.right(x)
        return signal * gate if self.swap else gate * signal


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("gate", [F.silu, F.gelu, torch.sigmoid, gelu_by_hand, lambda x: F.relu(x) ** 2])
def test_gate_is_constant_or_takes_half(gate: Callable[[Tensor], Tensor], swap: bool) -> None:
    for method in ("lrp", "lrp(act+gate=half)", "lrp(act+gate)"):
        assert closes(Wrapped(Gated(gate, swap)), data(), method) < 1e-12
    assert closes(Wrapped(Gated(gate, swap)), data(), "lrp(act)") > 1e-4


def test_constant_gate_gives_the_gate_nothing() -> None:
    model = randomised(Wrapped(Gated(F.silu)).double())
    e, half = (
        hw.explain(model, data(1), method=m, score=lambda out: out[:, 1])[0] for m in ("lrp", "lrp(act+gate=half)")
    )
    assert e.ledger.biases["operation.left.bias"] == 0
    assert half.ledger.biases["operation.left.bias"] != 0
    assert half.ledger.biases["operation.right.bias"] == pytest.approx(e.ledger.biases["operation.right.bias"] / 2)


class RootOfGate(torch.autograd.Function):
    """A square root with a gradient of its own, as some write it where the root's is too steep."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.sqrt(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] / torch.sqrt(ctx.saved_tensors[0].clamp_min(1e-6) * 4)


def test_a_gate_may_go_through_a_function_that_hides_it() -> None:
    assert closes(Wrapped(Gated(lambda x: RootOfGate.apply(1 - torch.exp(-F.softplus(x))))), data()) < 1e-12


def test_a_signal_may_not() -> None:
    with pytest.raises(hw.errors.HiddenOperation, match="RootOfGate"):
        explained(randomised(Wrapped(lambda x: RootOfGate.apply(x * x)).double()))
    with pytest.raises(hw.errors.HiddenOperation, match="RootOfGate"):
        explained(randomised(Wrapped(Gated(lambda x: RootOfGate.apply(x - x.detach() + 2))).double()))


def test_glu() -> None:
    assert closes(Wrapped(nn.GLU(), out=4), data()) < 1e-12
    assert closes(Wrapped(nn.GLU(), out=4), data(), "lrp(act+gate=half)") < 1e-12


def test_bilinear_product_takes_half_each() -> None:
    model = Wrapped(Gated(lambda x: x))
    assert closes(model, data()) < 1e-12
    e = hw.explain(model, data(1), score=lambda out: out[:, 1])[0]
    assert e.ledger.biases["operation.left.bias"] != 0


def linear_attention(x: Tensor) -> Tensor:
    """phi(q) (phi(k)^T v), its normaliser by hand."""
    q, k, v = F.elu(x) + 1, F.elu(x.flip(-1)) + 1, x
    return (q @ (k.transpose(1, 2) @ v)) / (q * k.sum(1, keepdim=True)).sum(-1, keepdim=True)


def pooled_by_attention(x: Tensor) -> Tensor:
    return (x[..., :1].softmax(1) * x).sum(1, keepdim=True)


def softmax_by_hand(x: Tensor) -> Tensor:
    weights = torch.exp(x @ x.transpose(1, 2))
    return (weights / weights.sum(-1, keepdim=True)) @ x


def delta_rule(x: Tensor) -> Tensor:
    """Values corrected by what the keys before them already say: a triangular system made of the signal."""
    keys = (x @ x.transpose(1, 2)).tril(-1)
    return torch.linalg.solve_triangular(keys, x, upper=False, unitriangular=True)


def solved(x: Tensor) -> Tensor:
    return torch.linalg.solve(A=torch.eye(4, dtype=x.dtype) + 0.1 * x @ x.transpose(1, 2), B=x)


class Experts(nn.Module):
    """A router's softmax, its best entries, and experts that see some of the tokens: no shape tells samples here."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(8, 3)
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8)) for _ in range(3)])

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, 8)
        weights, chosen = self.router(flat).softmax(-1).topk(2, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        result = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            token, slot = (chosen == number).nonzero(as_tuple=True)
            result.index_add_(0, token, expert(flat[token]) * weights[token, slot, None])
        return result.reshape(x.shape)


OTHERS: dict[str, Callable[[], Callable[[Tensor], Tensor] | nn.Module]] = {
    "linear attention": lambda: linear_attention,
    "pooled by attention": lambda: pooled_by_attention,
    "softmax by hand": lambda: softmax_by_hand,
    "delta rule": lambda: delta_rule,
    "linear system": lambda: solved,
    "inverse of a matrix": lambda: lambda x: (torch.eye(4) + 0.1 * x @ x.transpose(1, 2)).inverse() @ x,
    "experts": Experts,
    "einsum attention": lambda: (
        lambda x: torch.einsum("bij,bjd->bid", torch.einsum("bid,bjd->bij", x, x).softmax(-1), x)
    ),
    "constants beside": lambda: lambda x: torch.cat([torch.ones_like(x[:, :1]), x], 1),
    "constant written": lambda: written,
    "signal written": lambda: signal_written,
    "filled": lambda: lambda x: x.masked_fill(torch.tensor([True, False] * 4), 0.7),
    "where": lambda: lambda x: torch.where(torch.tensor([True, False] * 4), x, 0.7),
    "padded": lambda: lambda x: F.pad(x, (0, 0, 1, 0), value=0.4),
    "larger than a constant": lambda: lambda x: torch.maximum(x, torch.tensor(0.1, dtype=x.dtype)),
    "addcmul": lambda: lambda x: torch.addcmul(torch.ones_like(x), x, torch.full_like(x, 0.3)),
    "baddbmm": lambda: lambda x: torch.baddbmm(torch.ones_like(x), torch.eye(4).double().expand(3, 4, 4)[: len(x)], x),
    "one minus": lambda: lambda x: 1 - x,
    "stacked": lambda: lambda x: torch.stack([x, torch.ones_like(x)], 2).mean(2),
    "in place sum": lambda: lambda x: x.add_(0.5).mul_(2),
    "convolution": lambda: nn.Sequential(Turned(), nn.Conv1d(8, 8, 3, padding=1), nn.GELU(), Turned()),
}


def written(x: Tensor) -> Tensor:
    x = x.clone()
    x[:, 1] = 0.5
    x[..., :2] *= 3
    return x


def signal_written(x: Tensor) -> Tensor:
    buffer = torch.full_like(x, 0.3)
    buffer[:, ::2] = x[:, ::2]
    return buffer


def einsum_attention(x: Tensor) -> Tensor:
    weights = torch.einsum("bid,bjd->bij", x, x).softmax(-1)
    return torch.einsum("bij,bjd->bid", weights, x)


@pytest.mark.parametrize("name", OTHERS)
def test_other_operations_close(name: str) -> None:
    assert closes(Wrapped(OTHERS[name]()), data()) < 1e-12


@pytest.mark.parametrize("name", ["delta rule", "linear system", "inverse of a matrix"])
def test_linear_system_is_open_without_its_rule(name: str) -> None:
    assert closes(Wrapped(OTHERS[name]()), data(), "gi") > 1e-3


@pytest.mark.parametrize("seed", range(12))
def test_experts_that_see_as_many_tokens_as_there_are_samples(seed: int) -> None:
    """Then the shape of an expert's input looks like the batch, and is not."""
    model = randomised(Wrapped(Experts()).double(), seed)
    x = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    found = hw.explain(model, x, score=lambda out: out[:, 1])
    for i, e in enumerate(found):
        alone = hw.explain(model, x[i : i + 1], score=lambda out: out[:, 1])[0]
        assert dict(e.ledger.biases) == pytest.approx(dict(alone.ledger.biases), abs=1e-12)


def test_samples_in_another_order_inside_the_model() -> None:
    class Reversed(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.gelu(x.flip(0) + 1).flip(0)

    assert closes(Wrapped(Reversed()), data()) < 1e-12


def test_router_is_a_gate_not_attention() -> None:
    """`ah` alone leaves the router to its gradient; the gate rule holds it."""
    model = randomised(Wrapped(Experts()).double())
    with pytest.raises(hw.errors.RuleNotMet):
        hw.explain(model, data(), method="lrp(ah)", score=lambda out: out[:, 1])


def test_two_dimensional_convolution_and_windows() -> None:
    """Samples folded into windows: the second pass finds them."""

    class Windows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.inner, self.head = nn.Conv2d(1, 4, 2, stride=2), nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = self.stem(x).permute(0, 2, 3, 1)
            windows = x.reshape(len(x) * 4, -1, 4)
            return self.head(F.gelu(self.inner(windows)).reshape(len(x), -1, 4).mean(1))

    image = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert closes(Windows(), image) < 1e-12


class Twice(nn.Module):
    """A residual block whose layer is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            x = x + F.gelu(self.layer(x))
        return self.head(x.mean(1))


def test_bias_used_twice_is_booked_twice() -> None:
    assert closes(Twice(), data()) < 1e-12


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
def test_multihead_attention(batch_first: bool, need_weights: bool) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(6, 2, batch_first=batch_first, add_bias_kv=True)
            self.head = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = x if batch_first else x.transpose(0, 1)
            y = self.attention(x, x, x, need_weights=need_weights)[0]
            return self.head(y if batch_first else y.transpose(0, 1)).mean(1)

    assert closes(Model(), data(samples=3, length=4)) < 1e-12


@pytest.mark.parametrize("fast", ["layer", "stack", "decoder"])
def test_torch_transformers_including_the_fused_path(fast: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerEncoderLayer(6, 2, 12, batch_first=True)
            self.stack = {
                "layer": lambda: layer,
                "stack": lambda: nn.TransformerEncoder(layer, 2),
                "decoder": lambda: nn.Transformer(6, 2, 1, 1, 12, batch_first=True),
            }[fast]()
            self.head = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.stack(x, x) if fast == "decoder" else self.stack(x)).mean(1)

    assert closes(Model(), data()) < 1e-12
