"""Whose is it? Rows that change places inside a model, and layers that a rule treats each in its own way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from weighing import LENGTH, WIDTH, drawn, error, explained, seeded

import headwater as hw
from headwater.rules import gamma
from headwater.rules.rule_set import gamma_of

Turn = tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]


def back(x: Tensor) -> Tensor:
    return torch.arange(len(x)).flip(0)


def spread(x: Tensor) -> Tensor:
    """Indices of all elements, of which each says the row in reverse order."""
    return back(x)[:, None, None].expand_as(x)


TURNS: dict[str, Turn] = {
    "flip": (lambda x: x.flip(0), lambda x: x.flip(0)),
    "flip, a list": (lambda x: torch.flip(x, [1, 0]), lambda x: torch.flip(x, dims=(0, 1))),
    "flip from the end": (lambda x: x.flip(-3), lambda x: x.flip(-3)),
    "roll": (lambda x: x.roll(1, 0), lambda x: x.roll(-1, 0)),
    "roll, named": (lambda x: torch.roll(x, shifts=(1,), dims=(0,)), lambda x: torch.roll(x, -1, dims=0)),
    "index_select": (lambda x: x.index_select(0, back(x)), lambda x: torch.index_select(x, dim=0, index=back(x))),
    "an index": (lambda x: x[back(x)], lambda x: x[back(x)]),
    "a list": (lambda x: x[back(x).tolist()], lambda x: x[back(x).tolist()]),
    "an index in a tuple": (lambda x: x[back(x), :2], lambda x: x[back(x), :]),
    "gather": (lambda x: x.gather(0, spread(x)), lambda x: torch.gather(x, dim=0, index=spread(x))),
    "take_along_dim": (lambda x: x.take_along_dim(spread(x), 0), lambda x: torch.take_along_dim(x, spread(x), dim=0)),
    "roll of all elements": (lambda x: x.roll(x[0].numel()), lambda x: torch.roll(x, -x[0].numel())),
    "take_along_dim of all elements": (
        lambda x: x.take_along_dim(torch.arange(x.numel()).reshape(x.shape).flip(0)).reshape(x.shape),
        lambda x: torch.take_along_dim(x, torch.arange(x.numel()).reshape(x.shape).flip(0)).reshape(x.shape),
    ),
    "repeat_interleave": (lambda x: x.repeat_interleave(2, 0), lambda x: x[::2]),
    "take": (
        lambda x: x.take(torch.arange(x.numel()).reshape(x.shape).flip(0)),
        lambda x: x.take(torch.arange(x.numel()).reshape(x.shape).flip(0)),
    ),
    "masked_select": (
        lambda x: x.flip(0).masked_select(torch.ones_like(x, dtype=torch.bool)).reshape(x.shape),
        lambda x: x.flip(0),
    ),
}


@pytest.mark.parametrize("samples", [3, 4])
@pytest.mark.parametrize("name", TURNS)
def test_rows_that_change_places_keep_their_sample(name: str, samples: int) -> None:
    """A constant that enters while they stand elsewhere is booked with the sample it belongs to."""
    there, home = TURNS[name]
    for e in explained(lambda x: home(F.gelu(there(x) * drawn(WIDTH) + drawn(WIDTH, seed=8))), samples=samples):
        assert e.ledger.error < 1e-12


@pytest.mark.parametrize("descending", [False, True])
def test_sorted_and_chosen_rows_keep_their_sample(descending: bool) -> None:
    def by_sort(x: Tensor) -> Tensor:
        values, order = x.sort(0, descending=descending)
        return torch.zeros_like(x).scatter(0, order, F.gelu(values + 1))

    def by_topk(x: Tensor) -> Tensor:
        values, order = x.topk(len(x), 0, largest=descending)
        return torch.zeros_like(x).scatter(0, order, F.gelu(values + 1))

    for operation in (by_sort, by_topk):
        for e in explained(operation):
            assert e.ledger.error < 1e-12


def test_many_samples_are_told_apart() -> None:
    """More than one digit of their numbers: sixteen and more."""
    there, home = TURNS["flip"]
    model = seeded(lambda: nn.Sequential(Place(lambda x: home(F.gelu(there(x) + 1))), nn.Flatten(), nn.Linear(20, 3)))
    x = drawn(35, LENGTH, 6)
    together = hw.explain(model, x, score=lambda out: out[:, 1])
    for i in (0, 1, 15, 16, 17, 33, 34):
        alone = hw.explain(model, x[i : i + 1], score=lambda out: out[:, 1])[0]
        assert dict(together[i].ledger.biases) == pytest.approx(dict(alone.ledger.biases), abs=1e-12)
        assert dict(together[i].ledger.constants) == pytest.approx(dict(alone.ledger.constants), abs=1e-12)


class Place(nn.Module):
    def __init__(self, operation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.linear, self.operation = nn.Linear(6, 5), operation

    def forward(self, x: Tensor) -> Tensor:
        return self.operation(self.linear(x))


def test_the_gamma_of_a_layer_is_that_of_the_last_pattern_that_fits() -> None:
    patterns = (("*", 0.1), ("layers.*", 0.5), ("layers.2.*", 0.0))
    assert gamma_of(0.3, "layers.1.weight") == gamma_of(0.3, None) == 0.3
    assert gamma_of(patterns, "head.weight") == gamma_of(patterns, None) == 0.1
    assert gamma_of(patterns, "layers.1.weight") == 0.5
    assert gamma_of(patterns, "layers.2.weight") == 0.0
    assert gamma_of((("layers.*", 0.5),), "head.weight") == gamma_of((("layers.*", 0.5),), None) == 0.0


def boosted(model: nn.Module, x: Tensor, value: float = 0.4) -> list[float]:
    e = hw.explain(model, x, method=f"lrp(act+gamma={value})", score=lambda out: out[:, 1])[0]
    assert e.ledger.error < 1e-12
    return [*e.relevance.flatten().tolist(), *e.ledger.biases.values()]


@pytest.mark.parametrize("cached", [1, 7, 20, 64, 1000])
def test_a_product_in_pieces_is_the_product(cached: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = seeded(lambda: nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 5), nn.Flatten(), nn.Linear(20, 3)))
    whole = boosted(model, drawn(1, LENGTH, 6))
    monkeypatch.setattr(gamma, "CACHED", cached)
    assert boosted(model, drawn(1, LENGTH, 6)) == pytest.approx(whole, abs=1e-12)


@pytest.mark.parametrize("value", [0.0, 0.4, 3.0])
def test_the_gamma_rule_by_its_definition(value: float) -> None:
    """R_i = sum_j c'_ij / sum_i c'_ij R_j, with contributions of the output's own sign counted 1 + gamma times."""
    layer = seeded(lambda: nn.Sequential(nn.Linear(6, 5), nn.Flatten(), nn.Linear(20, 3)))
    x, boost = drawn(1, LENGTH, 6), torch.tensor(1 + value, dtype=torch.float64)
    with torch.no_grad():
        z = layer[0](x)
        contributions = torch.cat(
            [x[..., None, :] * layer[0].weight, layer[0].bias[:, None].expand(1, LENGTH, 5, 1)], -1
        )
        counted = contributions * torch.where(contributions * z[..., None] > 0, boost, 1)
        counted[..., -1] = contributions[..., -1]  # a bias is no contribution of an input
        own = torch.cat([layer[2].weight[1] * z.flatten(), layer[2].bias[1:2]])
        score = own.sum()
        counted_last = own * torch.where(own * score > 0, boost, 1)
        counted_last[-1] = own[-1]
        arriving = (counted_last / counted_last.sum() * score)[:-1].reshape(z.shape)
        found = (counted / counted.sum(-1, keepdim=True) * arriving[..., None]).sum(2)
    e = hw.explain(layer, x, method=f"lrp(gamma={value})" if value else "gi", score=lambda out: out[:, 1])[0]
    assert e.relevance.flatten().tolist() == pytest.approx(found[..., :-1].flatten().tolist(), abs=1e-12)
    assert e.ledger.biases["0.bias"] == pytest.approx(float(found[..., -1].sum()), abs=1e-12)


def test_a_unit_that_gives_nothing_gets_nothing_with_gamma() -> None:
    """z = 0 of no contributions, and z = 0 of contributions that cancel."""
    model = seeded(lambda: nn.Sequential(nn.Linear(6, 4, bias=False), nn.Linear(4, 3)))
    with torch.no_grad():
        model[0].weight[0] = 0
        model[0].weight[1] = torch.tensor([1.0, -1.0, 0, 0, 0, 0])
    x = torch.tensor([[2.0, 2.0, 0.3, -0.4, 0.5, 0.6]], dtype=torch.float64)
    e = hw.explain(model, x, method="lrp(gamma=0.5)", score=lambda out: out[:, 1])[0]
    assert bool(e.relevance.isfinite().all())
    assert e.ledger.error < 1e-12


def test_a_layer_that_hides_in_a_scatter_closes() -> None:
    assert error(lambda x: torch.zeros_like(x).scatter_add(1, torch.zeros_like(x, dtype=torch.long), x)) < 1e-12


class Giving(nn.Module):
    """A model that gives more than a tensor."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.linear, self.how = nn.Linear(6, 3), how

    def forward(self, x: Tensor) -> object:
        first, second = self.linear(x).mean(1), x.sum((1, 2))
        return {
            "tensor": first,
            "tuple": (first, second, None),
            "list": [first, 3.0],
            "dict": {"out": first, "more": (second, "text")},
            "nested": ((first, [second]), {"a": second}),
        }[self.how]


READ: dict[str, Callable[[Any], Tensor]] = {
    "tensor": lambda out: out[:, 1],
    "tuple": lambda out: out[0][:, 1],
    "list": lambda out: out[0][:, 1],
    "dict": lambda out: out["out"][:, 1],
    "nested": lambda out: out[0][0][:, 1],
}


@pytest.mark.parametrize("how", READ)
def test_a_score_may_be_read_off_any_output(how: str) -> None:
    x = drawn(2, LENGTH, 6)
    plain, ours = (hw.explain(seeded(lambda one=one: Giving(one)), x, score=READ[one]) for one in ("tensor", how))
    for a, b in zip(plain, ours, strict=True):
        assert a.score == b.score
        assert a.relevance.flatten().tolist() == b.relevance.flatten().tolist()
        assert b.ledger.closed
