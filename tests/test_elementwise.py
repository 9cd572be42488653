"""What a card computes in one pass over memory is what torch's operations compute in several."""

from __future__ import annotations

import pytest
import tiny
import torch
import torch.nn.functional as F
from torch import Tensor

import headwater as hw
from headwater.kernels import elementwise
from headwater.kernels.elementwise import Activation
from headwater.rules.gamma import Boost

launch = pytest.importorskip("headwater.kernels.elementwise_launch")

SILU = Activation("silu", F.silu)
SHARE = 0.3
ROOM = 1e-6


@pytest.fixture
def on_card(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """As on a card; the names of the kernels that were started."""
    begun: list[str] = []
    real = launch.launch_program

    def note(program: object, *args: object) -> None:
        begun.append(getattr(program, "__name__", "") or program.fn.__name__)  # type: ignore[attr-defined]
        real(program, *args)

    monkeypatch.setattr(elementwise, "is_served_card", lambda tensor: True)
    monkeypatch.setattr(launch, "launch_program", note)
    return begun


def drawn(count: int, *shape: int) -> list[Tensor]:
    """With zeros among them, and more numbers than a program takes."""
    torch.manual_seed(0)
    return [torch.randn(shape).masked_fill(torch.rand(shape) < 0.05, 0.0) for _ in range(count)]


def apart(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())


def test_a_gated_product(on_card: list[str]) -> None:
    gate, other = drawn(2, 3, 37, 50)
    assert apart(elementwise.multiply_gate(gate, other, SILU), F.silu(gate) * other) < ROOM
    assert on_card == ["silu_product_program"]


def test_its_way_back(on_card: list[str]) -> None:
    gradient, gate, other = drawn(3, 3, 37, 50)
    found = elementwise.share_gate(gradient, gate, other, SILU, 0.5, SHARE)
    ratio = torch.where(gate == 0, 0.5, F.silu(gate) / gate)
    expected = (gradient * SHARE * other * ratio, gradient * (1 - SHARE) * F.silu(gate))
    assert all(apart(one, right) < ROOM for one, right in zip(found, expected, strict=True))
    assert on_card == ["silu_share_program"]


def test_what_an_activation_is_divided_by(on_card: list[str]) -> None:
    x = drawn(1, 3, 37, 50)[0]
    expected = torch.where(x == 0, 0.5, F.gelu(x) / x)
    assert apart(elementwise.divide_by_input(x, F.gelu(x), 0.5), expected) < ROOM
    assert on_card == ["ratio_program"]


@pytest.mark.parametrize("weighed", [True, False])
def test_what_a_norm_passes_on(on_card: list[str], weighed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    gradient, scale = drawn(1, 3, 37, 50)[0], torch.rand(3, 37, 1) + 0.1
    weight = torch.randn(50) if weighed else None
    flow = gradient * (1 if weight is None else weight)
    found = elementwise.pass_back_norm(gradient, weight, scale)
    assert found is not None
    assert apart(found, (flow - flow.mean(-1, keepdim=True)) * scale) < ROOM
    monkeypatch.setattr(elementwise, "WIDEST_ROW", 49)
    assert elementwise.pass_back_norm(gradient, weight, scale) is None


def test_explanations_of_an_encoder_are_the_same(on_card: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = tiny.tiny("bert", torch.float32), {"input_ids": torch.arange(5, 25)[None]}
    begun: list[object] = []
    real = launch.launch_centring
    monkeypatch.setattr(launch, "launch_centring", lambda *args: begun.append(args) or real(*args))
    found = hw.explain(model, data, method="lrp", plans=False)[0]
    assert begun
    assert "ratio_program" in on_card
    monkeypatch.setattr(elementwise, "is_served_card", lambda tensor: False)
    plain = hw.explain(model, data, method="lrp", plans=False)[0]
    assert apart(found.relevance, plain.relevance) < 1e-5
    assert found.ledger.error < 1e-5


def test_it_conserves(on_card: list[str]) -> None:
    gradient, gate, other = (part.double() for part in drawn(3, 40, 50))
    to_gate, to_other = elementwise.share_gate(gradient.float(), gate.float(), other.float(), SILU, 0.5, SHARE)
    passed = (gradient * F.silu(gate) * other).sum()
    assert float((to_gate * gate).sum()) == pytest.approx(SHARE * float(passed), rel=1e-5)
    assert float((to_other * other).sum()) == pytest.approx((1 - SHARE) * float(passed), rel=1e-5)


@pytest.mark.parametrize("other", ["gelu", "cut", "double"])
def test_what_no_kernel_is_made_for(on_card: list[str], other: str) -> None:
    gate, value = drawn(2, 40, 50)
    function = Activation("gelu", F.gelu) if other == "gelu" else SILU
    gate, value = (part[:, ::2] if other == "cut" else part.double() for part in (gate, value))
    assert torch.equal(elementwise.multiply_gate(gate, value, function), function(gate) * value)
    assert on_card == []


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy, behind Triton's interpreter, speaks of infinities
def test_a_sum_of_products(on_card: list[str]) -> None:
    gradient, value = (part.transpose(1, 2) for part in drawn(2, 2, 37, 4, 50))
    value[0, 0, 0, 0], gradient[0, 0, 0, 0] = torch.inf, 0.0
    found = elementwise.sum_products(gradient, value)
    assert found is not None
    assert float(found.sum()) == pytest.approx(float(torch.where(gradient == 0, 0.0, gradient * value).sum()), rel=1e-5)
    assert elementwise.sum_products(gradient, value.contiguous()) is None  # in another order


@pytest.mark.parametrize("biased", [False, True])
def test_the_gamma_rule(on_card: list[str], biased: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: False)  # one pass alone
    x, gradient = drawn(1, 2, 30, 60)[0], drawn(1, 2, 30, 45)[0]
    weight, bias = torch.randn(45, 60), torch.randn(45) if biased else None
    z = F.linear(x, weight, bias)
    z[0, :3] = 0.0
    found = Boost(x, z, bias, 0.5).back(gradient, weight, None)
    assert on_card == (["ratio_program", "join_program"] if biased else ["flow_program", "join_program"])
    monkeypatch.setattr(elementwise, "is_served_card", lambda tensor: False)
    assert apart(found, Boost(x, z, bias, 0.5).back(gradient, weight, None)) < ROOM


@pytest.mark.parametrize("method", ["lrp-language", "lrp-gamma", "lrp-query"])
def test_explanations_are_the_same(on_card: list[str], method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, data = tiny.tiny("llama", torch.float32), {"input_ids": torch.arange(5, 25)[None]}
    found = hw.explain(model, data, method=method, plans=False)[0]
    assert "flow_program" in on_card
    assert ("silu_share_program" in on_card) == (method != "lrp-gamma")  # its gate is a constant
    monkeypatch.setattr(elementwise, "is_served_card", lambda tensor: False)
    plain = hw.explain(model, data, method=method, plans=False)[0]
    assert apart(found.relevance, plain.relevance) < 1e-5
    assert found.ledger.error < 1e-5
