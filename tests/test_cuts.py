"""What depends on the input but has no gradient is neither a bias nor a constant: a ledger with it is not closed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import headwater as hw
from headwater.errors import AnotherPrediction, HiddenOperation, RandomPrediction
from headwater.results.ledger import Ledger, Lines

DRAWN = torch.Generator().manual_seed(3)


class Hidden(nn.Module):
    """head(hidden(x) + 0.01 adapter(x)): nearly all that the head sees comes by a way that `hidden` may cut."""

    def __init__(self, hidden: Callable[[Hidden, Tensor], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.backbone, self.adapter, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)
        self.book, self.values = nn.Parameter(torch.randn(6, 4)), nn.Parameter(torch.randn(6, 4))
        self.register_buffer("room", torch.zeros(3, 4))
        self.hidden = hidden
        self.double().eval()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.hidden(self, x) + 0.01 * self.adapter(x))


def under_no_grad(m: Hidden, x: Tensor) -> Tensor:
    with torch.no_grad():
        return m.backbone(x)


def under_inference_mode(m: Hidden, x: Tensor) -> Tensor:
    with torch.inference_mode():
        return m.backbone(x)


def into_a_view(m: Hidden, x: Tensor) -> Tensor:
    room = torch.zeros_like(x)
    room[:, 1:].copy_(m.backbone(x).detach()[:, 1:])
    return room


def into_a_buffer(m: Hidden, x: Tensor) -> Tensor:
    m.room.copy_(m.backbone(x).detach())
    return m.room


def into_data(m: Hidden, x: Tensor) -> Tensor:
    room = torch.zeros_like(x)
    room.data.add_(m.backbone(x).detach())
    return room


def nearest(m: Hidden, x: Tensor) -> Tensor:
    return torch.cdist(x, m.book).argmin(-1)


def straight_through(m: Hidden, x: Tensor) -> Tensor:
    x = m.backbone(x)
    return x + (m.book[nearest(m, x)] - x).detach()


def hard_choice(m: Hidden, x: Tensor) -> Tensor:
    soft = torch.softmax(x @ m.book.T, -1)
    hard = torch.zeros_like(soft).scatter_(-1, soft.argmax(-1, keepdim=True), 1.0)
    return (hard - soft.detach() + soft) @ m.values


CUTS: dict[str, Callable[[Hidden, Tensor], Any]] = {
    "no_grad": under_no_grad,
    "inference_mode": under_inference_mode,
    "detach": lambda m, x: m.backbone(x).detach(),
    "data": lambda m, x: m.backbone(x).data,
    "numpy, the same memory": lambda m, x: torch.from_numpy(m.backbone(x).detach().numpy()),
    "numpy, other memory": lambda m, x: torch.from_numpy(2 * np.asarray(m.backbone(x).detach())),
    "a list": lambda m, x: torch.tensor(m.backbone(x).tolist(), dtype=x.dtype),
    "item": lambda m, x: m.backbone(x).sum().item(),
    "float": lambda m, x: float(m.backbone(x).detach().sum()) * torch.ones_like(x),
    "dlpack": lambda m, x: torch.from_dlpack(m.backbone(x).detach()) * 1.0,
    "integers": lambda m, x: (5 * m.backbone(x)).long().to(x.dtype),
    "yes and no": lambda m, x: (m.backbone(x) > 0).to(x.dtype),
    "a code book": lambda m, x: m.book[nearest(m, x)],
    "a code book as an embedding": lambda m, x: F.embedding(nearest(m, x), m.book),
    "a code book by a Python number": lambda m, x: m.book[int(nearest(m, x)[0])],
    "a straight-through code book": straight_through,
    "a hard choice": hard_choice,
    "a view": into_a_view,
    "a buffer": into_a_buffer,
    "memory of .data": into_data,
    "a parameter": lambda m, x: nn.Parameter(m.backbone(x).detach()),
    "a bias": lambda m, x: F.linear(x * 0.01, m.adapter.weight, m.backbone(x).detach()[0]),
    "a part of cat": lambda m, x: torch.cat([m.backbone(x).detach()[:, :3], 0.01 * x[:, 3:]], -1),
    "a branch of where": lambda m, x: torch.where(x > 0.3, 0.01 * x, m.backbone(x).detach()),
    "masked_fill": lambda m, x: (0.01 * x).masked_fill(x > -0.5, m.backbone(x).detach().sum()),
    "an assignment": lambda m, x: assigned(0.01 * x, m.backbone(x).detach()),
    "addmm": lambda m, x: torch.addmm(m.backbone(x).detach(), 0.01 * x, m.adapter.weight, beta=2.0),
}


def assigned(target: Tensor, value: Tensor) -> Tensor:
    target[:, :3] = value[:, :3]
    return target


def points() -> Tensor:
    return torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def directional(model: nn.Module, x: Tensor, step: float = 1e-6) -> Tensor:
    """Gradient times input of each sample's first output, by finite differences of the plain model."""
    with torch.no_grad():
        return (model((1 + step) * x)[:, 0] - model((1 - step) * x)[:, 0]) / (2 * step)


@pytest.mark.parametrize("method", ["lrp", "gi", "lrp-gamma", "attnlrp"])
@pytest.mark.parametrize("cut", CUTS)
def test_what_is_cut_off_is_never_closed(cut: str, method: str) -> None:
    for one in hw.explain(Hidden(CUTS[cut]), points(), method=method, target=0):
        assert not one.ledger.closed
        if method in ("gi", "lrp") and cut != "a hard choice":
            assert abs(one.ledger.cut_off.total) > 1e-3
            assert "cuts off" in one.ledger.why
            assert one.ledger.unaccounted == pytest.approx(0, abs=1e-10)


@pytest.mark.parametrize("cut", ["no_grad", "detach", "data", "numpy, other memory", "item"])
def test_the_line_has_what_finite_differences_have_beside_the_inputs(cut: str) -> None:
    """The model is linear, so gradient times input of all that depends on the input is inputs + what was cut off."""
    model = Hidden(CUTS[cut])
    with torch.no_grad():
        model.backbone.bias.zero_()  # a bias under no_grad is part of what was cut off
    for one, whole in zip(hw.explain(model, points(), target=0), directional(model, points()), strict=True):
        assert one.ledger.inputs + one.ledger.cut_off.total == pytest.approx(float(whole), rel=1e-6)
        assert one.ledger.inputs != pytest.approx(float(whole), rel=0.2)


def test_the_line_names_module_and_operation() -> None:
    class Detaching(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.detach()

    model = Hidden(lambda m, x: m.inner(x))
    model.inner = Detaching().eval()
    (name,) = hw.explain(model, points(), target=0)[0].ledger.cut_off
    assert name == "inner: detach"


def test_a_hook_that_detaches_is_seen() -> None:
    model = Hidden(lambda m, x: m.backbone(x))
    assert all(one.ledger.closed for one in hw.explain(model, points(), target=0))
    model.backbone.register_forward_hook(lambda module, args, output: output.detach())
    assert not any(one.ledger.closed for one in hw.explain(model, points(), target=0))


HELD: dict[str, Callable[[Hidden, Tensor], Tensor]] = {
    "a learned memory": lambda m, x: torch.softmax(x @ m.book.T, -1) @ m.values,
    "a learned memory, fused": lambda m, x: F.scaled_dot_product_attention(x[None], m.book[None], m.values[None])[0],
    "inverse distances": lambda m, x: (1 / (1 + torch.cdist(x, m.book))) @ m.values,
    "a Student-t layer": lambda m, x: F.normalize(1 / (1 + torch.cdist(x, m.book) ** 2), p=1.0, dim=-1) @ m.values,
    "rsqrt": lambda m, x: x.square().sum(-1, keepdim=True).rsqrt() * m.values[0],
    "a negative power": lambda m, x: (x.square().sum(-1, keepdim=True) + 1) ** -1 * m.values[0],
}


@pytest.mark.parametrize("held", HELD)
def test_parameters_weighed_by_what_is_held_are_no_biases(held: str) -> None:
    for one in hw.explain(Hidden(HELD[held]), points(), target=0):
        assert one.ledger.held.absolute > 0.1 * one.ledger.size
        assert not one.ledger.closed
        assert "hold" in one.ledger.why
        assert not any(one.ledger.biases.get(name) for name in ("values", "book"))


def test_a_little_that_is_held_is_shown_and_does_no_harm() -> None:
    model = Hidden(lambda m, x: m.backbone(x) + 0.01 * torch.softmax(x @ m.book.T, -1) @ m.values)
    for one in hw.explain(model, points(), target=0):
        assert 0 < one.ledger.held.absolute < 0.1 * one.ledger.size
        assert one.ledger.closed


def experts(m: Hidden, x: Tensor, weights: Tensor, chosen: Tensor) -> Tensor:
    return (weights.unsqueeze(-1) * (x.unsqueeze(1) * 1.5 + m.values[chosen])).sum(1)


def by_top(m: Hidden, x: Tensor) -> Tensor:
    return experts(m, x, *torch.softmax(x @ m.book.T, -1).topk(2))


def by_corrected_scores(m: Hidden, x: Tensor) -> Tensor:
    scores = (x @ m.book.T).sigmoid()
    chosen = (scores + m.values[:, 0]).topk(2).indices
    weights = scores.gather(1, chosen)
    return experts(m, x, weights / weights.sum(-1, keepdim=True), chosen)


def by_largest(m: Hidden, x: Tensor) -> Tensor:
    scores = torch.softmax(x @ m.book.T, -1)
    return experts(m, x, scores.max(-1, keepdim=True).values, scores.argmax(-1, keepdim=True))


def one_by_one(m: Hidden, x: Tensor) -> Tensor:
    weights, chosen = torch.softmax(x @ m.book.T, -1).topk(1)
    out = torch.zeros_like(x)
    for number in chosen.unique().tolist():
        rows = torch.where(chosen[:, 0] == number)[0]
        out.index_add_(0, rows, (x[rows] * 1.5 + m.values[number]) * weights[rows])
    return out


def made_without_gradients(m: Hidden, x: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.arange(4).to(x).type_as(x).expand_as(x) + torch.zeros_like(x)


LEGITIMATE: dict[str, Callable[[Hidden, Tensor], Tensor]] = {
    "experts by top": by_top,
    "experts by corrected scores": by_corrected_scores,
    "the largest expert": by_largest,
    "experts one by one": one_by_one,
    "zeros of its shape": lambda m, x: m.backbone(x) + torch.zeros_like(x) + x.new_ones(x.shape),
    "a table in its type": lambda m, x: m.backbone(x) + torch.arange(4).type_as(x) + m.room.to(x).expand_as(x),
    "a table made under no_grad": lambda m, x: m.backbone(x) + made_without_gradients(m, x),
    "relu by hand": lambda m, x: torch.where(m.backbone(x) > 0, m.backbone(x), 0.0),
    "a mask that multiplies": lambda m, x: m.backbone(x) * (x > 0).to(x.dtype),
    "a check": lambda m, x: m.backbone(x) if not bool(torch.isinf(x).any()) else x,
    "a number that is only read": lambda m, x: m.backbone(x) if x.abs().max().item() < 100 else x,
    "a gate that is detached": lambda m, x: m.backbone(x) * torch.sigmoid(x).detach(),
}


@pytest.mark.parametrize("legitimate", LEGITIMATE)
def test_no_false_alarm(legitimate: str) -> None:
    for one in hw.explain(Hidden(LEGITIMATE[legitimate]), points(), target=0):
        assert one.ledger.closed, one.ledger.why
        assert not one.ledger.cut_off


@pytest.mark.parametrize(("name", "looks"), [("relu by hand", 1), ("a number that is only read", 12)])
def test_another_input_is_looked_at_once_and_four_always_where_numbers_are_read(
    name: str, looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headwater.engine import checks

    model, asked = Hidden(LEGITIMATE[name]), []
    look = checks.look_at_another
    monkeypatch.setattr(checks, "look_at_another", lambda *a: asked.append(1) or look(*a))
    for _ in range(3):
        hw.explain(model, points(), target=0)
    assert len(asked) == looks


def inner_gradient(m: Hidden, x: Tensor) -> Tensor:
    with torch.enable_grad():
        inner = x.detach().requires_grad_()
        return torch.autograd.grad(torch.tanh(m.backbone(inner)).sum(), inner)[0]


def through_gradient(m: Hidden, x: Tensor) -> Tensor:
    with torch.enable_grad():
        inner = x if x.requires_grad else x.detach().requires_grad_()
        return torch.autograd.grad(torch.tanh(m.backbone(inner)).sum(), inner, create_graph=True)[0]


def inner_backward(m: Hidden, x: Tensor) -> Tensor:
    inner = x.detach().requires_grad_()
    with torch.enable_grad():
        torch.tanh(m.backbone(inner)).sum().backward()
    assert inner.grad is not None
    return inner.grad


GRADIENTS = {
    "autograd.grad": inner_gradient,
    "autograd.grad of the input": through_gradient,
    "backward": inner_backward,
    "func.grad": lambda m, x: torch.func.grad(lambda y: torch.tanh(m.backbone(y)).sum())(x),
    "func.jvp": lambda m, x: torch.func.jvp(lambda y: torch.tanh(m.backbone(y)), (x,), (torch.ones_like(x),))[1],
}


@pytest.mark.parametrize("method", ["gi", "lrp"])
@pytest.mark.parametrize("gradient", GRADIENTS)
def test_gradients_inside_a_model_are_refused_by_name(gradient: str, method: str) -> None:
    with pytest.raises(HiddenOperation, match="takes gradients inside"):
        hw.explain(Hidden(GRADIENTS[gradient]), points(), method=method, target=0)


ANOTHER = {
    "is_grad_enabled": lambda m, x: m.backbone(x) if torch.is_grad_enabled() else m.adapter(x),
    "requires_grad": lambda m, x: m.backbone(x) if x.requires_grad else m.adapter(x),
}


@pytest.mark.parametrize("method", ["gi", "lrp", "gae"])
@pytest.mark.parametrize("branch", ANOTHER)
def test_another_prediction_than_the_models_own_is_refused(branch: str, method: str) -> None:
    model = Hidden(lambda m, x: F.scaled_dot_product_attention(x[None], x[None], ANOTHER[branch](m, x)[None])[0])
    for _ in range(3):  # refused once, it is not taken the next time
        with pytest.raises(AnotherPrediction, match="plain prediction"):
            hw.explain(model, points(), method=method, target=0)


@pytest.mark.parametrize("noise", [lambda x: F.dropout(x, 0.5, training=True), lambda x: x + torch.randn_like(x)])
def test_noise_in_evaluation_mode_is_refused(noise: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(RandomPrediction, match="random"):
        hw.explain(Hidden(lambda m, x: noise(m.backbone(x))), points(), target=0)


def test_the_plain_prediction_is_asked_for_at_first_and_then_seldom() -> None:
    calls: list[bool] = []

    def counted(m: Hidden, x: Tensor) -> Tensor:
        calls.append(torch.is_grad_enabled())
        return m.backbone(x)

    model = Hidden(counted)
    for _ in range(40):
        hw.explain(model, points(), target=0)
    assert calls.count(False) == 1
    hw.explain(model, points(), target=0, method="gi")
    assert calls.count(False) == 2


class Foreign(torch.autograd.Function):
    """Somebody's own function, whose gradient pretends that it acts on each element alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.save_for_backward(x)
        return function(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0], None


class Activation(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return Foreign.apply(x, self.function)


NOT_ELEMENTWISE: dict[str, Callable[[Tensor], Tensor]] = {
    "max-pool": lambda x: F.max_pool1d(x, 3, 1, 1),
    "less the largest": lambda x: x - x.max(),
    "softmax": lambda x: torch.softmax(x, -1),
    "less the mean": lambda x: x - x.mean(),
    "less the mean, by numpy": lambda x: x - float(np.mean(x.detach().numpy())),
    "symmetric": lambda x: x + x.flatten().flip(0).reshape(x.shape),
    "only above a size": lambda x: x if float(x.abs().max()) < 50 else x - x.mean(),
    "the first element": lambda x: x * x.flatten()[0],
    "sorted": lambda x: x.sort(-1).values,
    "a place of its own": lambda x: x * torch.linspace(1, 2, x.numel(), dtype=x.dtype).reshape(x.shape),
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("function", NOT_ELEMENTWISE)
def test_a_foreign_function_is_proven_elementwise_or_refused(function: str, seed: int) -> None:
    model = Hidden(lambda m, x: m.inner(m.backbone(x)))
    model.inner = Activation(NOT_ELEMENTWISE[function]).eval()
    x = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    with pytest.raises(HiddenOperation, match="custom autograd function"):
        hw.explain(model, x, target=0)


def test_a_full_backward_hook_is_named() -> None:
    """Torch puts a function of its own around the module, in which the hook may change gradients."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)).eval()
    handle = model[1].register_full_backward_hook(lambda module, given, found: None)
    with pytest.raises(HiddenOperation, match="full backward hook"):
        hw.explain(model, torch.ones(1, 4), target=0)
    handle.remove()
    assert hw.explain(model, torch.ones(1, 4), target=0)[0].ledger.closed


@pytest.mark.parametrize(
    "function", [torch.tanh, F.gelu, lambda x: x * torch.sigmoid(1.7 * x), lambda x: x.clamp(-1, 2)]
)
def test_a_foreign_function_of_single_elements_is_accepted(function: Callable[[Tensor], Tensor]) -> None:
    model = Hidden(lambda m, x: m.inner(m.backbone(x)))
    model.inner = Activation(function).eval()
    found = hw.explain(model, points(), target=0)
    model.inner = nn.Identity().eval()
    model.inner.forward = function
    for one, seen in zip(found, hw.explain(model, points(), target=0), strict=True):
        assert one.ledger.closed
        assert torch.allclose(one.relevance, seen.relevance, rtol=1e-8)


def cancelling(unaccounted: float, size: float = 1e4, score: float = 1.8) -> Ledger:
    inputs = score - unaccounted
    return Ledger(score, inputs, Lines({"a": size}), Lines({"b": -size}), spread=abs(inputs))


def test_lines_that_cancel_hide_nothing() -> None:
    assert not cancelling(0.11).closed
    assert "cancel" in cancelling(0.11).why
    assert cancelling(0.002).closed
    assert cancelling(0.002).scale == "lines"
    assert cancelling(1e-6).scale == "score"
    assert not cancelling(0.3).closed


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [("float64", 1e-10), ("float32", 1e-5), ("float16", 1e-2), ("bfloat16", 5e-2)]
)
def test_closed_is_as_precise_as_the_type(dtype: str, tolerance: float) -> None:
    assert Ledger(1.0, 1.0 - 0.9 * tolerance, dtype=dtype).closed
    assert not Ledger(1.0, 1.0 - 1.3 * tolerance, dtype=dtype).closed


def test_what_is_cut_off_is_not_excused_by_a_coarse_type() -> None:
    assert not Ledger(1.0, 0.99, cut_off=Lines({"detach": 0.01}), dtype="bfloat16").closed
    assert Ledger(1.0, 1.0, cut_off=Lines({"detach": 1e-7}), dtype="bfloat16").closed


def test_held_up_to_a_tenth_of_the_lines() -> None:
    assert Ledger(1.0, 0.91, held=Lines({"softmax": 0.09})).closed
    assert not Ledger(1.0, 0.88, held=Lines({"softmax": 0.12})).closed


class Rolled(nn.Module):
    """A model that looks its ids up after they were moved by one place."""

    def __init__(self, start: int | None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.head, self.start = nn.Embedding(12, 6), nn.Linear(6, 2), start
        self.place = nn.Parameter(torch.randn(5, 1))
        self.double().eval()

    def get_input_embeddings(self) -> nn.Module:
        return self.words

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        moved = input_ids.roll(1, 1)
        if self.start is not None:
            moved = torch.cat([torch.full_like(moved[:, :1], self.start), moved[:, 1:]], 1)
        return self.head((self.words(moved) * self.place[: moved.shape[1]]).sum(1))


def test_rolled_ids_are_no_shift_of_a_decoder() -> None:
    ids, model = torch.tensor([[3, 7, 1, 9, 4]]), Rolled(None)
    (found,) = hw.explain(model, {"input_ids": ids}, target=0)
    by_hand = (model.words.weight[ids[0].roll(1)] * model.place * model.head.weight[0]).sum(-1).roll(-1)
    assert torch.allclose(found.relevance, by_hand.detach(), rtol=1e-10)
    assert "decoder start token" not in found.ledger.constants


def test_a_start_token_of_its_own_stays_a_line() -> None:
    ids, model = torch.tensor([[3, 7, 1, 9, 4]]), Rolled(0)
    (found,) = hw.explain(model, {"input_ids": ids}, target=0)
    first = float((model.words.weight[0] * model.place[0] * model.head.weight[0]).sum().detach())
    assert found.ledger.constants["decoder start token"] == pytest.approx(first)
    assert float(found.relevance[-1]) == 0


class IntegersByAnotherWay(nn.Module):
    """Integers made of the input become numbers again, leave torch and come back; a code is chosen by them."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.codes, self.head = nn.Parameter(torch.randn(3, 6)), nn.Linear(6, 2)

    def forward(self, inputs_embeds: Tensor) -> Tensor:
        counted = (8 * inputs_embeds).long().to(inputs_embeds.dtype) / 8
        back = torch.from_dlpack(counted * 2)
        code = self.codes[(0 * back + torch.tensor([1.0, 0, 0, 0, 0, 0], dtype=back.dtype)).argmax(-1) % 3]
        return self.head(code + inputs_embeds).mean(1)


def test_a_code_by_integers_that_left_torch_is_cut_off_though_it_is_the_same_for_every_input_that_is_tried() -> None:
    model = IntegersByAnotherWay().double().eval()
    (found,) = hw.explain(model, torch.randn(1, 4, 6, dtype=torch.float64), target=1)
    assert not found.ledger.closed
    assert found.ledger.cut_off
