"""Modules whose operations cannot be seen: torch's fused layers, and what others hide in functions of their own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from defining import X, check, check_relevance, hold, times_constant, weighed
from test_curves import Curve, OwnProduct
from torch import Tensor, nn
from weighing import LENGTH, WIDTH, drawn, seeded

import headwater as hw
from headwater.errors import HiddenOperation

A, C = slice(None, 4), slice(4, None)


def curve(x: Tensor) -> Tensor:
    """What `Curve` computes, without its shift."""
    return torch.tanh(x) + x * x


class Hidden(nn.Module):
    """A hidden activation, of which something is made."""

    def __init__(self, shift: float, use: Any) -> None:
        super().__init__()
        self.curve, self.use = Curve(shift), use

    def forward(self, x: Tensor) -> Tensor:
        return self.use(self.curve, x)


def test_a_hidden_activation_is_its_input_times_a_constant() -> None:
    check((Curve(), times_constant(curve)))
    for shift in (0.5, 1.0):
        check((Curve(shift), times_constant(curve), {"operation: activation(0)": shift}))


def test_a_hidden_activation_is_a_gate() -> None:
    """One that is nothing at zero beside a signal, and another one beside that."""
    check_relevance(
        Hidden(0.0, lambda own, x: own(x[..., A]) * x[..., C]),
        lambda x: hold(curve(x[..., A])) * x[..., C],
    )
    check_relevance(
        Hidden(0.5, lambda own, x: own(x[..., A]) * torch.tanh(x[..., C])),
        lambda x: hold(curve(x[..., A]) + 0.5) * times_constant(torch.tanh)(x[..., C]),
    )
    check_relevance(
        Hidden(0.0, lambda own, x: own(x[..., A]) * torch.sigmoid(x[..., C])),
        lambda x: times_constant(curve)(x[..., A]) * hold(torch.sigmoid(x[..., C])),
    )


def test_a_hidden_activation_that_is_no_number_at_zero_keeps_its_gradient() -> None:
    class OwnInverse(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return 1 / x

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            (x,) = ctx.saved_tensors
            return -gradients[0] / (x * x)

    class Inverse(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return OwnInverse.apply(x)

    check_relevance(Inverse(), lambda x: 1 / x)


@pytest.mark.parametrize("shift", [0.0, 0.5])
@pytest.mark.parametrize("how", ["named", "two", "constant first"])
def test_a_hidden_activation_is_called_with_one_signal(how: str, shift: float) -> None:
    """Called in another way, it may be anything."""

    class More(Curve):
        def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
            return super().forward(x if how != "constant first" else y)

    calls = {
        "named": lambda own, x: own(x=x),
        "two": lambda own, x: own(x, x),
        "constant first": lambda own, x: own(drawn(1), x),
    }
    model = Hidden(shift, calls[how])
    model.curve = More(shift)
    with pytest.raises(HiddenOperation, match="OwnCurve"):
        hw.explain(nn.Sequential(model, nn.Flatten()).eval(), X, score=lambda out: out[:, 0])


class Plain(nn.Module):
    """Somebody's own activation, of operations that can be seen."""

    def __init__(self, weight: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(drawn(WIDTH)) if weight else None

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x) if self.weight is None else torch.sigmoid(x @ torch.diag(self.weight))


def test_a_module_that_hides_nothing_keeps_the_lines_of_its_operations() -> None:
    check((Plain(False), times_constant(torch.sigmoid, 0.5), {"operation: sigmoid(0)": 0.5}))
    check(
        (
            Plain(True).requires_grad_(False),
            lambda x: times_constant(torch.sigmoid, 0.5)(x * drawn(WIDTH)),
            {"operation: sigmoid(0)": 0.5},
        )
    )


class Elsewhere(nn.Module):
    """A product whose signal does not come by its argument."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(drawn(5, 6))

    def forward(self, x: Tensor) -> Tensor:
        return OwnProduct.apply(self.signal, self.weight, None, 0.0)


class Sneaking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.own, self.after = Elsewhere(), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.own.signal = x
        out = self.own(drawn(2, 6)).mean(1)
        del self.own.signal
        return self.after(out)


def test_a_hidden_product_of_something_else_is_hidden() -> None:
    with pytest.raises(HiddenOperation, match="OwnProduct"):
        hw.explain(seeded(Sneaking), drawn(2, LENGTH, 6), score=lambda out: out[:, 1])


def test_a_hidden_activation_of_a_constant_is_a_constant() -> None:
    own = Hidden(0.5, lambda own, x: x * own(drawn(WIDTH)))
    check((own, lambda x: x * (curve(drawn(WIDTH)) + 0.5)))


class Product(nn.Module):
    """A linear layer that nobody can see into, with something beside it."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.weight, self.bias = how, nn.Parameter(drawn(5, 6)), nn.Parameter(drawn(5))
        self.inner = nn.Linear(6, 6) if how == "parts" else None

    def forward(self, x: Tensor, more: Tensor | None = None) -> Tensor:
        x = self.inner(x) if self.inner is not None else x
        return OwnProduct.apply(x, self.weight, self.bias, 0.0)


class Holding(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.own, self.after = how, Product(how), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "one axis":
            return self.after(torch.stack([self.own(row) for row in x.mean(1)]))
        if self.how == "two axes":
            return self.after(self.own(x.mean(1)))
        if self.how == "two":
            return self.after(self.own(x, None).mean(1))
        return self.after((self.own(x=x) if self.how == "named" else self.own(x)).mean(1))


@pytest.mark.parametrize("how", ["parts", "one axis", "two", "named"])
def test_a_hidden_product_is_known_in_a_plain_layer_alone(how: str) -> None:
    """With parts of its own their biases would be counted twice; of one axis nobody knows what is a position.

    And with further arguments it may be anything.
    """
    with pytest.raises(HiddenOperation, match="OwnProduct"):
        hw.explain(seeded(lambda: Holding(how)), drawn(2, LENGTH, 6), score=lambda out: out[:, 1])


@pytest.mark.parametrize("how", ["plain", "two axes"])
def test_the_bias_of_a_hidden_product_has_its_name_and_its_worth(how: str) -> None:
    model, x = seeded(lambda: Holding(how)), drawn(2, LENGTH, 6)
    for e in hw.explain(model, x, score=lambda out: out[:, 1]):
        assert e.ledger.biases["own.bias"] == pytest.approx(
            float(model.after.weight[1].detach() @ model.own.bias.detach())
        )
        assert e.ledger.error < 1e-12


class OwnTurn(torch.autograd.Function):
    """Linear, but no layer: rows and columns change places."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.mT + 0.0

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0].mT


class Turning(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        return OwnTurn.apply(x)


def test_what_turns_its_axes_is_no_linear_layer() -> None:
    model = seeded(lambda: nn.Sequential(nn.Linear(6, 5), Turning(), nn.Flatten(), nn.Linear(20, 3)))
    with pytest.raises(HiddenOperation, match="OwnTurn"):
        hw.explain(model, drawn(1, LENGTH, 6), score=lambda out: out[:, 1])


class Attending(nn.Module):
    """torch's own attention, of which the weights are used as well."""

    def __init__(self, use: str, width: int = WIDTH) -> None:
        super().__init__()
        self.use, self.attention = use, nn.MultiheadAttention(width, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        out, weights = self.attention(x, x, x, need_weights=True)
        if self.use == "weights":
            return weighed(out) + weighed(weights)
        return weighed(out)


def test_weights_that_a_fused_layer_gives_are_held_and_not_constant() -> None:
    model = seeded(lambda: Attending("weights"))
    for e in hw.explain(model, X, score=lambda out: out[:, 0]):
        assert e.ledger.held.total != 0
        assert not e.ledger.constants
        assert abs(e.ledger.unaccounted) < 1e-10


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("use", ["weights", "values"])
def test_a_fused_layer_gives_its_own_value_to_the_last_bit(use: str, dtype: torch.dtype) -> None:
    model, x = seeded(lambda: Attending(use, 96)).to(dtype), drawn(3, 20, 96).to(dtype)
    with torch.no_grad():
        plain = model(x)[:, 0].tolist()
    assert [e.score for e in hw.explain(model, x, score=lambda out: out[:, 0])] == plain


class Encoding(nn.Module):
    def __init__(self, nested: bool, named: bool) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 2, 12, batch_first=True, activation="gelu")
        self.encoder, self.named = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested), named

    def forward(self, x: Tensor) -> Tensor:
        padding = torch.zeros(len(x), x.shape[1], dtype=torch.bool)
        padding[:, -1] = True
        if self.named:
            return weighed(self.encoder(src=x, src_key_padding_mask=padding))
        return weighed(self.encoder(x, None, padding))


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_padding_that_the_fused_path_leaves_out_passes_nothing_on(nested: bool, named: bool) -> None:
    """Its rows are zero in inference, so that nothing of the score comes from them; else they are as any other."""
    model = seeded(lambda: Encoding(nested, named))
    with torch.no_grad():
        plain = model(X)[:, 0].tolist()
    for i, e in enumerate(hw.explain(model, X, score=lambda out: out[:, 0])):
        assert e.score == plain[i]
        assert e.ledger.error < 1e-10
        assert bool(e.relevance[-1].any()) is not nested
        assert bool(e.relevance[:-1].all())
