"""Operations that move or choose elements: whose they are, and what they have been through."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from scoped import Operation, amount, check, passed, rules
from torch import Tensor
from weighing import drawn

from headwater.inputs.places import start
from headwater.rules import Books, Scope

X = drawn(4, 3, 2, seed=1)
ORDER = torch.tensor([2, 0, 3, 1])
SPREAD = ORDER[:, None, None].expand(4, 3, 2)
ALL = torch.arange(24).reshape(4, 3, 2)
YES = torch.ones(4, 3, 2, dtype=torch.bool)

MOVED: dict[str, Operation] = {
    "index": lambda x: x[ORDER],
    "a list": lambda x: x[[2, 0, 3, 1]],
    "index in a tuple": lambda x: x[ORDER, 0],
    "a mask": lambda x: x[YES[:, 0, 0]],
    "a step": lambda x: x[::2],
    "a step in a tuple": lambda x: x[::2, 0],
    "masked_select": lambda x: x.masked_select(YES),
    "take": lambda x: x.take(ALL),
    "flip": lambda x: x.flip(0),
    "flip, a list": lambda x: torch.flip(x, [1, 0]),
    "flip, named": lambda x: torch.flip(x, dims=(0,)),
    "flip from the end": lambda x: x.flip(-3),
    "roll": lambda x: x.roll(1, 0),
    "roll, named": lambda x: torch.roll(x, shifts=1, dims=0),
    "roll, of several": lambda x: x.roll((1, 1), (1, 0)),
    "roll of all": lambda x: x.roll(6),
    "index_select": lambda x: x.index_select(0, ORDER),
    "index_select, named": lambda x: torch.index_select(x, dim=-3, index=ORDER),
    "gather": lambda x: x.gather(0, SPREAD),
    "gather, named": lambda x: torch.gather(x, dim=0, index=SPREAD),
    "take_along_dim": lambda x: x.take_along_dim(SPREAD, 0),
    "take_along_dim, named": lambda x: torch.take_along_dim(x, SPREAD, dim=0),
    "take_along_dim of all": lambda x: x.take_along_dim(ALL),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 0),
    "repeat_interleave, named": lambda x: torch.repeat_interleave(x, 2, dim=0),
    "sort": lambda x: x.sort(0).values,
    "sort, named": lambda x: torch.sort(x, dim=0).values,
    "sort of one axis": lambda x: x[:, 0, 0].sort().values,
    "sort of a number": lambda x: x.sum().sort().values,
    "topk": lambda x: x.topk(2, 0).values,
    "topk, named": lambda x: torch.topk(x, 2, dim=0).values,
    "topk of one axis": lambda x: x[:, 0, 0].topk(2).values,
}
STILL: dict[str, Operation] = {
    "index of another axis": lambda x: x[:, torch.tensor([2, 0])],
    "a slice": lambda x: x[1:3],
    "a slice in a tuple": lambda x: x[1:3, 0],
    "a step of one": lambda x: x[::1],
    "a number": lambda x: x[0],
    "a number in a tuple": lambda x: x[0, ::2],
    "an ellipsis": lambda x: x[..., torch.tensor([1, 0])],
    "nothing": lambda x: x[None],
    "an empty tuple": lambda x: x[()],
    "flip": lambda x: x.flip(1),
    "flip, a list": lambda x: torch.flip(x, dims=[1, -1]),
    "roll": lambda x: x.roll(1, 1),
    "roll, named": lambda x: torch.roll(x, 1, dims=-1),
    "index_select": lambda x: x.index_select(1, torch.tensor([2, 0])),
    "gather": lambda x: x.gather(1, torch.zeros(4, 3, 2).long()),
    "take_along_dim": lambda x: x.take_along_dim(torch.zeros(4, 3, 2).long(), 1),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
    "sort": lambda x: x.sort(1).values,
    "sort of the last": lambda x: x.sort().values,
    "topk": lambda x: x.topk(1, 1).values,
    "topk of the last": lambda x: x.topk(1).values,
    "view": lambda x: x.reshape(12, 2),
    "turned": lambda x: x.transpose(1, 2),
    "largest": lambda x: x.amax(1),
    "max": lambda x: x.max(1).values,
    "scatter": lambda x: torch.zeros_like(x).scatter(1, torch.zeros(4, 3, 2).long(), x),
}


def scrambled(operation: Operation) -> bool:
    """Whether the books no longer trust shapes to tell whose an element is."""
    scope = Scope(rules("ln"), Books(4), {}, {})
    leaf = X.clone().requires_grad_()
    with scope:
        operation(start(leaf))
    return scope.books.scrambled


@pytest.mark.parametrize("name", MOVED)
def test_rows_may_have_changed_places(name: str) -> None:
    assert scrambled(MOVED[name])


@pytest.mark.parametrize("name", STILL)
def test_rows_have_not_changed_places(name: str) -> None:
    """Further passes for each would be for nothing."""
    assert not scrambled(STILL[name])


@pytest.mark.parametrize("name", ["flip", "sort"])
def test_once_in_doubt_always_in_doubt(name: str) -> None:
    assert scrambled(lambda x: STILL["flip"](STILL["sort"](MOVED[name](x))))


A, B = drawn(3, 4, seed=1), drawn(3, 4, seed=2)
PLACES = torch.tensor([[0, 2], [1, 3], [3, 0]])
KEPT: dict[str, Operation] = {
    # a gate stays a gate, wherever its elements go
    "to": lambda g: g.to(torch.float64),
    "type": lambda g: g.type(torch.float64),
    "type_as": lambda g: g.type_as(A),
    "double": lambda g: g.float().double(),
    "half": lambda g: g.half().double(),
    "bfloat16": lambda g: g.bfloat16().double(),
    "cpu": lambda g: g.cpu(),
    "clone": lambda g: g.clone(),
    "contiguous": lambda g: g.T.contiguous().T,
    "neg": lambda g: -g,
    "negative": lambda g: torch.negative(g),
    "positive": lambda g: +g,
    "nan_to_num": lambda g: g.nan_to_num(),
    "dropout": lambda g: F.dropout(g, 0.5, training=False),
    "dropout1d": lambda g: F.dropout1d(g, 0.5, training=False),
    "dropout2d": lambda g: F.dropout2d(g[None, None], 0.5, training=False)[0, 0],
    "dropout3d": lambda g: F.dropout3d(g[None, None, None], 0.5, training=False)[0, 0, 0],
    "alpha_dropout": lambda g: F.alpha_dropout(g, 0.5, training=False),
    "feature_dropout": lambda g: torch.feature_dropout(g, 0.5, False),
    "view": lambda g: g.view(4, 3).view(3, 4),
    "reshape": lambda g: g.reshape(-1).reshape(3, 4),
    "reshape_as": lambda g: g.reshape(12).reshape_as(A),
    "view_as": lambda g: g.view_as(A),
    "transpose": lambda g: g.transpose(0, 1).transpose(0, 1),
    "permute": lambda g: g.permute(1, 0).permute(1, 0),
    "movedim": lambda g: g.movedim(0, 1).movedim(0, 1),
    "moveaxis": lambda g: g.moveaxis(0, 1).moveaxis(0, 1),
    "t": lambda g: g.t().t(),
    "T": lambda g: g.T.T,
    "flatten": lambda g: g.flatten().reshape(3, 4),
    "unflatten": lambda g: g.unflatten(1, (2, 2)).flatten(1),
    "squeeze": lambda g: g.unsqueeze(0).squeeze(0),
    "expand": lambda g: g[:1].expand(3, 4),
    "expand_as": lambda g: g[:1].expand_as(A),
    "broadcast_to": lambda g: g[:1].broadcast_to(3, 4),
    "getitem": lambda g: g[:, [1, 0, 3, 2]],
    "narrow": lambda g: torch.narrow(g.repeat(1, 2), 1, 0, 4),
    "select": lambda g: g.select(0, 1),
    "chunk": lambda g: g.chunk(2, 1)[0].repeat(1, 2),
    "split": lambda g: g.split(2, 1)[1].repeat(1, 2),
    "split_with_sizes": lambda g: g.split([1, 3], 1)[0],
    "tensor_split": lambda g: g.tensor_split(2, 1)[0].repeat(1, 2),
    "unbind": lambda g: g.unbind(0)[1],
    "repeat": lambda g: g[:1].repeat(3, 1),
    "repeat_interleave": lambda g: g[:, :2].repeat_interleave(2, 1),
    "roll": lambda g: g.roll(1, 1),
    "flip": lambda g: g.flip(1),
    "tile": lambda g: g[:1].tile(3, 1),
    "masked_select": lambda g: g.masked_select(torch.ones(3, 4, dtype=torch.bool)).reshape(3, 4),
    "diagonal": lambda g: g.diagonal().reshape(3, 1),
    "tril": lambda g: g.tril(),
    "triu": lambda g: g.triu(),
    "topk": lambda g: g.topk(4, 1).values,
    "sort": lambda g: g.sort(1).values,
    "gather": lambda g: g.gather(1, torch.zeros(3, 4).long()),
    "index_select": lambda g: g.index_select(1, torch.tensor([1, 0, 3, 2])),
    "take": lambda g: g.take(torch.arange(12).reshape(3, 4)),
    "take_along_dim": lambda g: g.take_along_dim(torch.zeros(3, 4).long(), 1),
    "max": lambda g: g.max(1, keepdim=True).values,
    "min": lambda g: g.min(1, keepdim=True).values,
    "max of all": lambda g: g.max(),
    "min of all": lambda g: g.min(),
    "amax": lambda g: g.amax(1, keepdim=True),
    "amin": lambda g: g.amin(1, keepdim=True),
    "scatter": lambda g: torch.zeros_like(A).scatter(1, PLACES, g[:, :2]),
    "scatter_add": lambda g: torch.zeros_like(A).scatter_add(1, PLACES, g[:, :2]),
    "index_add": lambda g: torch.zeros_like(A).index_add(1, torch.tensor([2, 0]), g[:, :2]),
}
GATES = {
    "a sigmoid": (lambda a: F.softplus(a), lambda b: b.tanh()),
    "an activation": (lambda a: F.silu(a), lambda b: b),
}


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("name", KEPT)
def test_a_gate_stays_a_gate(name: str, gate: str) -> None:
    move, (make, other) = KEPT[name], GATES[gate]
    coarse = name in ("half", "bfloat16", "double")
    found = passed(lambda a, b: move(make(a)) * other(b), [A, B], rules("gate"))
    assert float(found.gradients[0].abs().sum()) == 0
    theirs = drawn(12, seed=9).reshape(3, 4) * move(make(A))
    leaf = B.clone().requires_grad_()
    (slope,) = torch.autograd.grad(other(leaf), leaf, theirs)
    torch.testing.assert_close(found.gradients[1], slope, rtol=1e-2 if coarse else 1e-9, atol=1e-2 if coarse else 1e-9)


ELEMENTS = [
    name for name in KEPT if name in "to type type_as double clone neg negative positive nan_to_num dropout".split()
]


@pytest.mark.parametrize("name", ELEMENTS)
def test_elements_that_stay_in_place_keep_their_root(name: str) -> None:
    """x * f(x) is an activation by hand, also with a cast between; with elements moved it is a product of two."""
    move = KEPT[name]
    operation: Operation = lambda a: a * move(a.sigmoid())  # noqa: E731
    found = passed(operation, [A], rules("gate"))
    assert found.met == {}
    turned = passed(lambda a: a * move(a.sigmoid()).flip(1), [A], rules("gate"))
    assert turned.met == {"gate": 1}


CHOSEN = ["topk", "sort", "gather", "index_select", "take", "take_along_dim", "max", "min", "amax", "amin"]


@pytest.mark.parametrize("name", [*CHOSEN, "scatter", "scatter_add", "index_add"])
def test_a_softmax_from_which_some_are_chosen_is_a_router(name: str) -> None:
    """A gate, not attention: without the rule for gates its gradient stays, with it it is held in a product."""
    choose = KEPT[name]
    routed: Operation = lambda a, b: choose(a.softmax(-1)) @ b.sigmoid().T[: choose(A).shape[1]]  # noqa: E731
    found = check(routed, routed, [A, B], rules("ah"), {})
    assert found.met == {}
    equals = passed(routed, [A, B], rules("gate"))
    assert equals.met == {"gate": 1}
    assert float(equals.gradients[0].abs().sum()) > 0  # of a kind with a sigmoid, so each has half


@pytest.mark.parametrize("name", [*CHOSEN, "scatter", "scatter_add", "index_add"])
def test_what_is_chosen_of_a_plain_signal_is_no_gate(name: str) -> None:
    found = passed(lambda a, b: KEPT[name](a) * b.tanh(), [A, B], rules("gate"))
    assert float(found.gradients[0].abs().sum()) > 0
    assert float(found.gradients[1].abs().sum()) == 0


@pytest.mark.parametrize("in_place", [False, True])
def test_a_softmax_of_which_some_are_put_out_is_a_router(in_place: bool) -> None:
    def routed(a: Tensor, b: Tensor) -> Tensor:
        weights = a.softmax(-1).clone()
        weights = weights.scatter_(1, PLACES, 0.0) if in_place else weights.scatter(1, PLACES, 0.0)
        return weights @ b.T

    assert passed(routed, [A, B], rules("ah", "act")).met == {}
    found = passed(routed, [A, B], rules("gate", "act"))
    assert float(found.gradients[0].abs().sum()) == 0


def test_what_is_written_into_keeps_what_it_was() -> None:
    """In place, and of two signals, nothing is said of the result."""
    operation: Operation = lambda a, b: a.sigmoid().scatter_add(1, torch.zeros(3, 4).long(), b) * b.tanh()  # noqa: E731
    found = passed(operation, [A, B], rules("gate"))
    assert float(found.gradients[0].abs().sum()) > 0


COARSE = torch.float8_e4m3fn


def rounded(x: Tensor) -> Tensor:
    return x.to(COARSE).to(torch.float64)


def test_what_is_rounded_to_a_byte_is_what_it_was_times_a_constant() -> None:
    """With the rule for activations: all of it is passed on. Without, its gradient is that of the cast before."""
    check(rounded, lambda a: a * (rounded(A) / A), [A], rules("act"), {})
    check(rounded, lambda a: a, [A], rules("ln"), {})


def test_a_byte_is_a_step_between_casts() -> None:
    """Also through further steps, in which it stays a byte; and what comes back is a gate if it was one."""
    check(
        lambda a: a.to(COARSE).contiguous().clone().to(torch.float64), lambda a: a * (rounded(A) / A), [A], rules("act")
    )
    found = passed(lambda a, b: rounded(a.sigmoid()) * b, [A, B], rules("gate"))
    assert float(found.gradients[0].abs().sum()) == 0
    nothing = torch.zeros_like(A)
    (slope,) = passed(lambda a: rounded(a) + a, [nothing], rules("act")).gradients
    torch.testing.assert_close(slope, drawn(12, seed=9).reshape(3, 4))  # 0 of 0 is no factor


def test_a_larger_one_of_two_tensors_is_no_choice() -> None:
    line = amount(B * (B > A), 3, 4)
    for operation in (lambda a: a.max(B), lambda a: torch.max(a, other=B)):
        check(operation, lambda a: a * (A > B), [A], rules("ln"), {"maximum": line})


def test_several_results_each_keep_it() -> None:
    def operation(a: Tensor, b: Tensor) -> Tensor:
        return sum((part * b.tanh()[:, :2] for part in F.softplus(a).chunk(2, 1)), torch.zeros(()))

    found: Any = passed(operation, [A, B], rules("gate"))
    assert float(found.gradients[0].abs().sum()) == 0
