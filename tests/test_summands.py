"""What enters beside a signal: its line has the name and the amount that a sum written by hand gives it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from scoped import Operation, amount, check, passed, rules
from torch import Tensor, nn
from weighing import drawn

from headwater.inputs.places import start
from headwater.rules import Books, Scope
from headwater.rules.call import is_signal
from headwater.rules.linear import dequantize

A, B, C = (drawn(3, 4, seed=seed) for seed in (1, 2, 3))
W, V = drawn(5, 4, seed=6), drawn(5, seed=7)
NONE, GAMMA = rules("ln"), rules("gamma", gamma=0.5)
SOME = C > 0


def worth(value: Tensor | float, like: tuple[int, ...] = (3, 4)) -> float:
    return amount(torch.as_tensor(value).broadcast_to(like), *like)


SUMS: dict[str, tuple[Operation, Operation, str, Tensor]] = {
    "add": (lambda a: a + B, lambda a: a, "add", B),
    "add from the left": (lambda a: torch.add(B, a), lambda a: a, "add", B),
    "add times": (lambda a: torch.add(a, B, alpha=-3), lambda a: a, "add", -3 * B),
    "add to times": (lambda a: torch.add(B, a, alpha=-3), lambda a: -3 * a, "add", B),
    "add, named": (lambda a: torch.add(input=B, other=a, alpha=2), lambda a: 2 * a, "add", B),
    "add a number": (lambda a: a + 0.7, lambda a: a, "add", torch.tensor(0.7, dtype=A.dtype)),
    "sub": (lambda a: a - B, lambda a: a, "sub", -B),
    "sub from": (lambda a: B - a, lambda a: -a, "sub", B),
    "sub times": (lambda a: torch.sub(a, B, alpha=3), lambda a: a, "sub", -3 * B),
    "sub from times": (lambda a: torch.sub(B, a, alpha=3), lambda a: -3 * a, "sub", B),
    "rsub": (lambda a: torch.rsub(a, B, alpha=3), lambda a: -3 * a, "rsub", B),
    "rsub of": (lambda a: torch.rsub(B, a, alpha=3), lambda a: a, "rsub", -3 * B),
    "a number less": (lambda a: 2 - a, lambda a: -a, "rsub", torch.tensor(2.0)),
    "a row": (lambda a: a + B[0], lambda a: a, "add", B[0]),
    "a column": (lambda a: a + B[:, :1], lambda a: a, "add", B[:, :1]),
    "to a row": (lambda a: a[0] + B, lambda a: a[0].expand(3, 4), "add", B),
    "where": (lambda a: torch.where(SOME, a, B), lambda a: a * SOME, "where", B * ~SOME),
    "where not": (lambda a: torch.where(SOME, B, a), lambda a: a * ~SOME, "where", B * SOME),
    "where, a number": (lambda a: torch.where(SOME, a, 0.3), lambda a: a * SOME, "where", 0.3 * (~SOME).double()),
    "where, a number first": (lambda a: torch.where(SOME, 0.3, a), lambda a: a * ~SOME, "where", 0.3 * (SOME).double()),
    "where, named": (lambda a: torch.where(condition=SOME, input=a, other=B), lambda a: a * SOME, "where", B * ~SOME),
    "where, other named": (lambda a: torch.where(SOME, a, other=B), lambda a: a * SOME, "where", B * ~SOME),
    "where, a method": (lambda a: a.where(SOME, B), lambda a: a * SOME, "where", B * ~SOME),
    "where, a method named": (lambda a: a.where(condition=SOME, other=B), lambda a: a * SOME, "where", B * ~SOME),
    "where, of a constant": (lambda a: B.where(SOME, a), lambda a: a * ~SOME, "where", B * SOME),
    "where, of a row": (lambda a: torch.where(SOME[0], a, B), lambda a: a * SOME[0], "where", B * ~SOME[0]),
    "where, a row of a signal": (lambda a: torch.where(SOME, a[0], B), lambda a: a[0] * SOME, "where", B * ~SOME),
    "filled": (lambda a: a.masked_fill(SOME, 0.4), lambda a: a * ~SOME, "masked_fill", 0.4 * (SOME).double()),
    "filled, named": (
        lambda a: torch.masked_fill(a, mask=SOME, value=0.4),
        lambda a: a * ~SOME,
        "masked_fill",
        0.4 * (SOME).double(),
    ),
    "filled by a tensor": (lambda a: a.masked_fill(SOME, B[0, 0]), lambda a: a * ~SOME, "masked_fill", B[0, 0] * SOME),
    "filled by a signal": (
        lambda a: B.masked_fill(SOME, a[0, 0]),
        lambda a: a[0, 0] * SOME,
        "masked_fill",
        B * ~SOME,
    ),
    "filled in a row": (
        lambda a: a.masked_fill(SOME[0], 0.4),
        lambda a: a * ~SOME[0],
        "masked_fill",
        0.4 * (SOME[0]).double(),
    ),
    "maximum": (lambda a: torch.maximum(a, B), lambda a: a * (a.detach() > B), "maximum", B * (B > A)),
    "maximum, named": (lambda a: torch.maximum(B, other=a), lambda a: a * (a.detach() > B), "maximum", B * (B > A)),
    "minimum": (lambda a: torch.minimum(a, B), lambda a: a * (a.detach() < B), "minimum", B * (B < A)),
    "minimum, turned": (lambda a: torch.minimum(B, a), lambda a: a * (a.detach() < B), "minimum", B * (B < A)),
    "fmax": (lambda a: torch.fmax(a, B), lambda a: a * (a.detach() > B), "fmax", B * (B > A)),
    "fmin": (lambda a: torch.fmin(B, a), lambda a: a * (a.detach() < B), "fmin", B * (B < A)),
    "max": (lambda a: a.max(B), lambda a: a * (a.detach() > B), "maximum", B * (B > A)),
    "min": (lambda a: torch.min(B, other=a), lambda a: a * (a.detach() < B), "minimum", B * (B < A)),
    "maximum of a row": (lambda a: torch.maximum(a[0], B), lambda a: a[0] * (A[0] > B), "maximum", B * (A[0] < B)),
    "padded": (
        lambda a: F.pad(a[:2, 1:], (1, 0, 0, 1), value=0.6),
        lambda a: F.pad(a[:2, 1:], (1, 0, 0, 1)),
        "pad",
        F.pad(torch.zeros(2, 3).double(), (1, 0, 0, 1), value=0.6),
    ),
    "padded, by position": (
        lambda a: F.pad(a[:, 1:], (1, 0), "constant", -2.0),
        lambda a: F.pad(a[:, 1:], (1, 0)),
        "pad",
        F.pad(torch.zeros(3, 3), (1, 0), value=-2.0),
    ),
    "padded, named": (
        lambda a: F.pad(a[:, 1:], pad=(0, 1), mode="constant", value=-2.0),
        lambda a: F.pad(a[:, 1:], (0, 1)),
        "pad",
        F.pad(torch.zeros(3, 3), (0, 1), value=-2.0),
    ),
}


@pytest.mark.parametrize("name", SUMS)
def test_a_constant_beside_a_signal(name: str) -> None:
    operation, signal, line, constant = SUMS[name]
    for active in (NONE, rules("ah", "ln", "act", "gate", attention="secant")):
        found = check(operation, signal, [A], active, {line: worth(constant)})
        assert found.sorts[line].name == "CONSTANT"


@pytest.mark.parametrize("name", [name for name in SUMS if "number" not in name and "pad" not in name])
def test_a_parameter_beside_a_signal_is_a_bias(name: str) -> None:
    operation, _, _, constant = SUMS[name]
    if "filled" in name and "signal" not in name and "tensor" not in name:
        return
    found = passed(operation, [A], NONE, {"own": B})
    if "row" in name or "column" in name or "tensor" in name:  # the parameter in part, by an index
        assert sum(found.lines.values()) == pytest.approx(worth(constant), abs=1e-12)
        return
    assert {name: value for name, value in found.lines.items() if value} == pytest.approx({"own": worth(constant)})
    assert found.sorts["own"].name == "BIAS"


def test_where_both_are_equal_the_signal_has_it() -> None:
    """All of it and no line, whichever way round; torch would give it half of what it has to give."""
    for f in (torch.maximum, torch.minimum, torch.fmax, torch.fmin):
        check(lambda a, f=f: f(a, A), lambda a: a, [A], NONE, {})
        check(lambda a, f=f: f(A, a), lambda a: a, [A], NONE, {})


def test_of_two_signals_each_has_its_own() -> None:
    for f in (torch.maximum, torch.minimum, torch.fmax, torch.fmin, torch.max, torch.min):
        check(f, f, [A, B], NONE, {})
    where: Operation = lambda a, b: torch.where(SOME, a, b)  # noqa: E731
    check(where, where, [A, B], NONE, {})
    check(lambda a, b: a.masked_fill(SOME, b[0, 0]), lambda a, b: a.masked_fill(SOME, b[0, 0]), [A, B], NONE, {})
    for g in (torch.add, torch.sub, torch.rsub):
        check(lambda a, b, g=g: g(a, b, alpha=3), lambda a, b, g=g: g(a, b, alpha=3), [A, B], NONE, {})


def test_nothing_has_no_line() -> None:
    for f in (
        lambda a: torch.where(SOME, a, 0.0),
        lambda a: a.masked_fill(SOME, 0),
        lambda a: F.pad(a, (1, 1)),
        lambda a: F.pad(a, (1, 1), value=0.0),
        lambda a: F.pad(a[None], (1, 1), mode="reflect"),
        lambda a: F.pad(a[None], (1, 1), "replicate"),
        lambda a: a + 0,
        lambda a: a.index_fill(0, torch.tensor([1]), 0.0),
        lambda a: torch.zeros_like(a).scatter(0, torch.zeros(3, 4).long(), a),
    ):
        assert check(f, f, [A], NONE, {}).scope.books.sites == []


def test_a_place_that_is_asked_for_is_no_choice() -> None:
    """`where` of a condition alone gives places."""

    def operation(a: Tensor) -> Tensor:
        rows, columns = torch.where(a > 0)
        assert rows.tolist() == (A > 0).nonzero()[:, 0].tolist()
        (alone,) = torch.where(a[0])
        assert alone.tolist() == [0, 1, 2, 3]
        return a[rows, columns]

    check(operation, lambda a: a[A > 0], [A], NONE, {})


def test_what_is_masked_without_end_is_no_line() -> None:
    """-inf times a gradient of nothing is nothing."""

    def operation(a: Tensor) -> Tensor:
        return a.masked_fill(SOME, -torch.inf).softmax(-1) + torch.where(SOME, -torch.inf, a).softmax(-1)

    found = passed(operation, [A], rules("act"))
    assert all(abs(value) < 1e-12 for value in found.lines.values())


def test_what_is_joined_without_end_is_no_line() -> None:
    endless = torch.full((3, 2), -torch.inf, dtype=A.dtype)
    found = passed(lambda a: torch.cat([a, endless], 1).softmax(-1), [A], rules("act"))
    assert all(abs(value) < 1e-12 for value in found.lines.values())
    assert found.lines


KINDS: dict[str, tuple[Operation, Operation, Any]] = {
    # what a sum, a choice or a join is to the next product: its gate is held
    "a gate plus a number": (
        lambda a, b: (a.tanh() + 1) * b.tanh(),
        lambda a, b: (a.tanh() + 1).detach() * b.tanh(),
        0,
    ),
    "nothing added": (
        lambda a, b: (a.tanh() + 0) * b.tanh(),
        lambda a, b: 0.5 * a.tanh() * b.tanh().detach() + 0.5 * a.tanh().detach() * b.tanh(),
        0,
    ),
    "a tensor added": (
        lambda a, b: (a.tanh() + C) * b.tanh(),
        lambda a, b: 0.5 * a.tanh() * b.tanh().detach() + 0.5 * (a.tanh() + C).detach() * b.tanh() + 0.5 * C * 0,
        0,
    ),
    "a gate less a number": (
        lambda a, b: (1 - a.tanh()) * b.tanh(),
        lambda a, b: (1 - a.tanh()).detach() * b.tanh(),
        0,
    ),
    "a linear signal plus a number": (
        lambda a, b: (a + 1) * b.tanh(),
        lambda a, b: (a + 1) * b.tanh().detach(),
        0,
    ),
    "a sum of two of one root": (
        lambda a, b: (a.tanh() + a.sigmoid()) * b.tanh(),
        lambda a, b: (a.tanh() + a.sigmoid()).detach() * b.tanh(),
        0,
    ),
    "a sum of two roots": (
        lambda a, b: (a.sigmoid() + b.sigmoid()) * b.tanh(),
        lambda a, b: (a.sigmoid() + b.sigmoid()) * b.tanh().detach(),
        0,
    ),
    "one attention less another": (
        lambda a, b: (a.softmax(-1) - a.flip(0).softmax(-1)) * b.sigmoid(),
        lambda a, b: (a.softmax(-1) - a.flip(0).softmax(-1)).detach() * b.sigmoid(),
        0,
    ),
    "a softmax and a gate": (
        lambda a, b: (a.softmax(-1) + b.sigmoid()) * b.tanh(),
        lambda a, b: (a.softmax(-1) + b.sigmoid()) * b.tanh().detach(),
        0,
    ),
    "where": (
        lambda a, b: torch.where(SOME, a.sigmoid(), 0.0) * b.tanh(),
        lambda a, b: torch.where(SOME, a.sigmoid(), 0.0).detach() * b.tanh(),
        0,
    ),
    "where not": (
        lambda a, b: torch.where(SOME, 0.0, a.sigmoid()) * b.tanh(),
        lambda a, b: torch.where(SOME, 0.0, a.sigmoid()).detach() * b.tanh(),
        0,
    ),
    "filled": (
        lambda a, b: a.sigmoid().masked_fill(SOME, 0.0) * b.tanh(),
        lambda a, b: a.sigmoid().masked_fill(SOME, 0.0).detach() * b.tanh(),
        0,
    ),
    "not below": (
        lambda a, b: torch.maximum(a.sigmoid(), C) * b.tanh(),
        lambda a, b: torch.maximum(a.sigmoid(), C).detach() * b.tanh(),
        0,
    ),
    "joined": (
        lambda a, b: torch.cat([a.sigmoid(), b.sigmoid()], 1) * torch.cat([b.tanh(), a.tanh()], 1),
        lambda a, b: torch.cat([a.sigmoid(), b.sigmoid()], 1).detach() * torch.cat([b.tanh(), a.tanh()], 1),
        0,
    ),
    "joined of two kinds": (
        lambda a, b: torch.cat([a.sigmoid(), b], 1) * torch.cat([b, a], 1).tanh(),
        lambda a, b: torch.cat([a.sigmoid(), b], 1) * torch.cat([b, a], 1).tanh().detach(),
        0,
    ),
    "joined with a constant": (
        lambda a, b: torch.cat([a.sigmoid(), torch.zeros_like(C)], 1) * torch.cat([b, a], 1).tanh(),
        lambda a, b: torch.cat([a.sigmoid(), torch.zeros_like(C)], 1) * torch.cat([b, a], 1).tanh().detach(),
        0,
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_what_a_sum_is_to_the_next_product(name: str) -> None:
    operation, reference, _ = KINDS[name]
    check(operation, reference, [A, B], rules("gate"))


def test_what_a_sum_comes_from() -> None:
    """Of one signal by functions of each element, it is an activation by hand; of two it is a product of two."""
    assert passed(lambda a: (a.tanh() + a.sigmoid()) * a, [A], rules("gate")).met == {}
    assert passed(lambda a, b: (a.tanh() + b.sigmoid()) * a, [A, B], rules("gate")).met == {"gate": 1}
    assert passed(lambda a: (a.sigmoid() + 2) * a, [A], rules("gate")).met == {}
    assert passed(lambda a: torch.cat([a.sigmoid(), a], 1) * torch.cat([a, a], 1), [A], rules("gate")).met == {
        "gate": 1
    }


JOINS: dict[str, tuple[Operation, Tensor, str]] = {
    "cat": (lambda a: torch.cat([a, B, a, C]), torch.cat([0 * A, B, 0 * A, C]), "cat"),
    "cat, last": (lambda a: torch.cat([B, a, C], -1), torch.cat([B, 0 * A, C], -1), "cat"),
    "cat, named": (lambda a: torch.cat(tensors=(a, B), dim=1), torch.cat([0 * A, B], 1), "cat"),
    "concat": (lambda a: torch.concat([a, B], 1), torch.cat([0 * A, B], 1), "cat"),
    "cat with nothing": (lambda a: torch.cat([torch.zeros(0).double(), a, B[:0], B]), torch.cat([0 * A, B]), "cat"),
    "cat with whole numbers": (lambda a: torch.cat([torch.ones(2, 4).long(), a]), torch.zeros(5, 4), "cat"),
    "stack": (lambda a: torch.stack([a, B, a, C]), torch.stack([0 * A, B, 0 * A, C]), "stack"),
    "stack, middle": (lambda a: torch.stack([B, a, C], 1), torch.stack([B, 0 * A, C], 1), "stack"),
    "stack, last": (lambda a: torch.stack([B, a, C], dim=-1), torch.stack([B, 0 * A, C], -1), "stack"),
    "hstack": (lambda a: torch.hstack([B, a, C]), torch.hstack([B, 0 * A, C]), "hstack"),
    "hstack of rows": (lambda a: torch.hstack([B[0], a[0], C[0]]), torch.hstack([B[0], 0 * A[0], C[0]]), "hstack"),
    "hstack of three axes": (
        lambda a: torch.hstack([B[None], a[None], C[None]]),
        torch.hstack([B[None], 0 * A[None], C[None]]),
        "hstack",
    ),
    "vstack": (lambda a: torch.vstack([B, a, C]), torch.vstack([B, 0 * A, C]), "vstack"),
    "vstack of rows": (lambda a: torch.vstack([B[0], a[0], C[0]]), torch.vstack([B[0], 0 * A[0], C[0]]), "vstack"),
    "vstack of both": (lambda a: torch.vstack((B[0], a, C[1])), torch.vstack((B[0], 0 * A, C[1])), "vstack"),
}


@pytest.mark.parametrize("name", JOINS)
def test_constants_that_are_joined_have_their_places(name: str) -> None:
    operation, constants, line = JOINS[name]
    value = amount(constants, *constants.shape)
    check(operation, lambda a: operation(a), [A], NONE, {line: value} if name != "cat with whole numbers" else {})


@pytest.mark.parametrize("name", ["cat", "stack", "hstack", "vstack"])
def test_a_parameter_that_is_joined_is_a_bias_and_what_was_cut_off_is_not(name: str) -> None:
    join = getattr(torch, name)
    constants = join([0 * A, B])
    found = passed(lambda a: join([a, B]), [A], NONE, {"token": B})
    assert found.lines == pytest.approx({"token": amount(constants, *constants.shape)})
    assert found.sorts["token"].name == "BIAS"
    cut = passed(lambda a: join([a, a.detach() - A + B]), [A], NONE)
    assert {sort.name for sort in cut.sorts.values()} == {"CUT_OFF"}


INDEX = torch.tensor([[0, 2, 1, 1], [1, 0, 2, 0]])
ROWS = torch.tensor([2, 0])
WRITTEN: dict[str, tuple[Operation, Tensor]] = {
    "scatter": (lambda a: B.scatter(0, INDEX, a[:2]), B.scatter(0, INDEX, 0)),
    "scatter a constant": (lambda a: a.scatter(0, INDEX, B), torch.zeros_like(B).scatter(0, INDEX, B)),
    "scatter a number": (lambda a: a.scatter(0, INDEX, 0.7), torch.zeros_like(B).scatter(0, INDEX, 0.7)),
    "scatter_add": (lambda a: B.scatter_add(0, INDEX, a[:2]), B),
    "scatter_add a constant": (lambda a: a.scatter_add(0, INDEX, B), torch.zeros_like(B).scatter_add(0, INDEX, B)),
    "index_add": (lambda a: B.index_add(0, ROWS, a[:2], alpha=3), B),
    "index_add a constant": (lambda a: a.index_add(0, ROWS, B[:2]), torch.zeros_like(B).index_add(0, ROWS, B[:2])),
    "index_copy": (lambda a: B.index_copy(0, ROWS, a[:2]), B.index_fill(0, ROWS, 0)),
    "index_fill": (lambda a: a.index_fill(0, ROWS, 0.7), torch.zeros_like(B).index_fill(0, ROWS, 0.7)),
    "index_put": (lambda a: a.index_put((ROWS,), B[:2]), torch.zeros_like(B).index_put((ROWS,), B[:2])),
    "index_put into": (lambda a: B.index_put((ROWS,), a[:2]), B.index_fill(0, ROWS, 0)),
    "masked_scatter": (lambda a: a.masked_scatter(SOME, B), torch.zeros_like(B).masked_scatter(SOME, B)),
    "masked_scatter into": (lambda a: B.masked_scatter(SOME, a), B.masked_fill(SOME, 0)),
    "slice_scatter": (lambda a: torch.slice_scatter(B, a[:2], 0, 1, 3), torch.cat([B[:1], 0 * B[:2]])),
    "select_scatter": (
        lambda a: torch.select_scatter(a, src=B[0], dim=0, index=1),
        torch.stack([0 * B[0], B[0], 0 * B[0]]),
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_or_stays_is_a_line(name: str) -> None:
    operation, constants = WRITTEN[name]
    line = name.split()[0]
    check(operation, operation, [A], NONE, {line: worth(constants)})


INTO: dict[str, tuple[Callable[[Tensor], object], Tensor]] = {
    "setitem": (lambda y: y.__setitem__(1, B[1]), torch.stack([0 * B[1], B[1], 0 * B[1]])),
    "setitem, a number": (
        lambda y: y.__setitem__((slice(None), 2), 0.6),
        0.6 * F.one_hot(torch.tensor([2]), 4).double(),
    ),
    "index_put": (lambda y: y.index_put_((ROWS,), B[:2]), torch.zeros_like(B).index_put((ROWS,), B[:2])),
    "index_fill": (lambda y: y.index_fill_(0, ROWS, 0.7), torch.zeros_like(B).index_fill(0, ROWS, 0.7)),
    "index_add": (lambda y: y.index_add_(0, ROWS, B[:2]), torch.zeros_like(B).index_add(0, ROWS, B[:2])),
    "scatter": (lambda y: y.scatter_(0, INDEX, B), torch.zeros_like(B).scatter(0, INDEX, B)),
    "copy": (lambda y: y.copy_(B), B),
    "fill": (lambda y: y.fill_(0.4), torch.tensor(0.4, dtype=A.dtype)),
    "masked_scatter": (lambda y: y.masked_scatter_(SOME, B), torch.zeros_like(B).masked_scatter(SOME, B)),
}


@pytest.mark.parametrize("name", INTO)
def test_what_is_written_into_a_signal_is_a_line(name: str) -> None:
    write, constants = INTO[name]

    def operation(a: Tensor) -> Tensor:
        kept = a * 1.0
        write(kept)
        return kept + a * 1.0

    check(operation, operation, [A], NONE, {name.split(",")[0]: worth(constants)})


@pytest.mark.parametrize("name", INTO)
def test_what_was_cut_off_and_is_written_stays_cut_off(name: str) -> None:
    write = INTO[name][0]

    def operation(a: Tensor) -> Tensor:
        kept = (a.detach() - A + B).clone()
        kept[2] = a[2]
        write(kept)
        return kept * 1.0 if is_signal(kept) else kept + a

    found = passed(operation, [A], NONE)
    assert "CUT_OFF" in {sort.name for sort in found.sorts.values()}


def test_a_signal_written_into_a_constant() -> None:
    def operation(a: Tensor) -> Tensor:
        kept = B.clone()
        kept[1] = a[0]
        whole = torch.zeros(3, 4, dtype=torch.long)
        whole[1] = a[0]  # whole numbers are no signal
        return kept * 1.0

    stays = torch.stack([B[0], 0 * B[0], B[2]])
    check(operation, lambda a: torch.stack([0 * a[0], a[0], 0 * a[0]]), [A], NONE, {"setitem": worth(stays)})


LAYERS: dict[str, tuple[Operation, Operation, dict[str, float]]] = {
    "layer": (lambda a: F.linear(a, W, V), lambda a: a @ W.T, {"linear": worth(V, (3, 5))}),
    "named": (lambda a: F.linear(input=a, weight=W, bias=V), lambda a: a @ W.T, {"linear": worth(V, (3, 5))}),
    "bias named": (lambda a: F.linear(a, W, bias=V), lambda a: a @ W.T, {"linear": worth(V, (3, 5))}),
    "without a bias": (lambda a: F.linear(a, W), lambda a: a @ W.T, {}),
    "one axis": (lambda a: F.linear(a[0], W, V), lambda a: a[0] @ W.T, {"linear": worth(V, (5,))}),
    "three axes": (lambda a: F.linear(a[None], W, V), lambda a: (a @ W.T)[None], {"linear": worth(V, (1, 3, 5))}),
    "a bias of one number": (lambda a: F.linear(a, W, V[:1]), lambda a: a @ W.T, {"linear": worth(V[:1], (3, 5))}),
    "a matrix of biases": (
        lambda a: F.linear(a, W, drawn(3, 5)),
        lambda a: a @ W.T,
        {"linear": worth(drawn(3, 5), (3, 5))},
    ),
    "a vector of weights": (lambda a: F.linear(a, W[0]), lambda a: a @ W[0], {}),
    "addmm": (lambda a: torch.addmm(V, a, W.T), lambda a: a @ W.T, {"addmm": worth(V, (3, 5))}),
    "addmm of a matrix": (
        lambda a: torch.addmm(drawn(3, 5), a, W.T),
        lambda a: a @ W.T,
        {"addmm": worth(drawn(3, 5), (3, 5))},
    ),
    "matmul": (lambda a: a[None] @ W.T, lambda a: (a @ W.T)[None], {}),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer(name: str) -> None:
    operation, reference, lines = LAYERS[name]
    check(operation, reference, [A], NONE, lines)


@pytest.mark.parametrize("name", ["layer", "without a bias", "addmm", "matmul", "three axes"])
def test_a_layer_whose_parameters_have_names(name: str) -> None:
    """The bias is a line by its name, and the GAMMA-rule finds the weight by its own."""
    operation, reference, lines = LAYERS[name]
    named = {"layer.weight": W, "layer.bias": V}
    found = check(operation, reference, [A], NONE, dict(zip(["layer.bias"], lines.values(), strict=False)), named)
    assert all(sort.name == "BIAS" for sort in found.sorts.values())
    for pattern, acts in (("layer.*", True), ("*", True), ("other.*", False)):
        found = passed(operation, [A], rules("gamma", gamma=((pattern, 0.5),)), named)
        assert found.met == ({"gamma": 1} if acts else {})
        assert set(found.lines) == {"layer.bias"} if lines else not found.lines


def boosted(x: Tensor, weight: Tensor, bias: Tensor, gamma: float, upstream: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient at x and what reaches the bias, by the definition of the rule, sum by sum."""
    inputs, biases = torch.zeros_like(x), torch.zeros_like(upstream)
    for t, row in enumerate(x):
        for j, own in enumerate(weight):
            z = row @ own + bias[j]
            counted = torch.where(row * own * z > 0, 1 + gamma, torch.ones((), dtype=x.dtype))
            total = (counted * row * own).sum() + bias[j]
            factor = z / total if total != 0 else 0.0
            inputs[t] += upstream[t, j] * factor * counted * own
            biases[t, j] = upstream[t, j] * factor * bias[j]
    return inputs, biases


@pytest.mark.parametrize("name", ["layer", "addmm", "three axes", "without a bias", "matmul"])
@pytest.mark.parametrize("gamma", [0.25, 2.0])
def test_a_layer_by_the_gamma_rule(name: str, gamma: float) -> None:
    operation, _, lines = LAYERS[name]
    x = A.clone()
    x[1, 2] = 0.0
    found = passed(operation, [x], rules("gamma", gamma=gamma))
    bias = V if lines else torch.zeros(5, dtype=A.dtype)
    inputs, biases = boosted(x, W, bias, gamma, drawn(15, seed=9).reshape(3, 5))
    sign = x.sign() == 0  # what is not there has no sign: its part of both kinds is the same
    torch.testing.assert_close(found.gradients[0][~sign], inputs[~sign])
    assert sum(found.lines.values()) == pytest.approx(float(biases.sum()), abs=1e-12)
    with torch.no_grad():
        assert torch.equal(found.value, operation(x))


@pytest.mark.parametrize("gamma", [0.25, 2.0])
def test_a_unit_of_nothing_passes_nothing_on_by_the_gamma_rule(gamma: float) -> None:
    """Of contributions that cancel, and of none."""
    weight, bias, x = W.clone(), V.clone(), A.clone()
    x[0, :2] = 1.5
    weight[1], weight[3] = torch.tensor([2.0, -2.0, 0.0, 0.0]), 0.0
    bias[1] = bias[3] = 0.0
    found = passed(lambda a: F.linear(a, weight, bias), [x], rules("gamma", gamma=gamma))
    inputs, biases = boosted(x, weight, bias, gamma, drawn(15, seed=9).reshape(3, 5))
    torch.testing.assert_close(found.gradients[0], inputs)
    assert found.lines["linear"] == pytest.approx(float(biases.sum()), abs=1e-12)


def test_a_layer_of_nothing_is_its_bias() -> None:
    for active in (NONE, GAMMA):
        found = passed(lambda a: F.linear(a[:, :0], W[:, :0], V), [A], active)
        assert found.lines == pytest.approx({"linear": worth(V, (3, 5))})
        check(lambda a: F.linear(a, W[:0]), lambda a: a @ W[:0].T, [A], active)


@pytest.mark.parametrize("name", ["layer", "three axes", "addmm"])
def test_the_way_back_may_itself_be_followed(name: str) -> None:
    """Somebody asks for the gradient of a gradient: what the rule writes into is its own."""
    operation = LAYERS[name][0]
    leaf, scope = A.clone().requires_grad_(), Scope(GAMMA, Books(1), {}, {})
    with scope:
        result = operation(start(leaf))
    upstream = drawn(15, seed=9).reshape(result.shape).requires_grad_()
    (found,) = torch.autograd.grad(result, leaf, upstream, create_graph=True)
    torch.testing.assert_close(found.detach(), passed(operation, [A], GAMMA).gradients[0])


@pytest.mark.parametrize("active", [NONE, GAMMA], ids=["plain", "gamma"])
@pytest.mark.parametrize("rows", [31, 32, 40])
@pytest.mark.parametrize("reached", [0, 1, 9, 31])
def test_rows_that_nothing_reaches_change_nothing(rows: int, reached: int, active: Any) -> None:
    """They may be left out on the way back: what is read of one row is that of the row alone."""
    x = drawn(1, rows, 4, seed=8)
    chosen = torch.arange(reached) * 3 % rows

    def operation(x: Tensor) -> Tensor:
        return F.linear(x, W, V)[:, chosen]

    many = passed(operation, [x], active)
    few = passed(lambda x: F.linear(x, W, V), [x[:, chosen]], active)
    torch.testing.assert_close(many.gradients[0][:, chosen], few.gradients[0])
    assert many.gradients[0].abs().sum() == pytest.approx(float(few.gradients[0].abs().sum()), rel=1e-9)
    assert many.lines.get("linear", 0.0) == pytest.approx(few.lines.get("linear", 0.0), abs=1e-10)


def test_a_layer_whose_input_is_a_constant() -> None:
    """A signal as its bias, or as its weight: the product of constants is a line."""
    product = worth(A @ W.T, (3, 5))
    check(lambda b: F.linear(A, W, b), lambda b: b.expand(3, 5), [V], NONE, {"linear": product})
    found = passed(lambda b: F.linear(A, W, b), [V], NONE, {"weight": W})
    assert found.lines == pytest.approx({"weight": product})
    check(lambda a, b: F.linear(a, W, b), lambda a, b: F.linear(a, W, b), [A, V], GAMMA, {})
    check(lambda w: F.linear(A, w, V), lambda w: A @ w.T, [W], NONE, {"add": worth(V, (3, 5))})


@pytest.mark.parametrize("active", [NONE, GAMMA], ids=["plain", "gamma"])
@pytest.mark.parametrize("types", [(32, 32), (32, 16), (16, 32), (16, 16)], ids=str)
def test_types_that_autocast_makes_one(types: tuple[int, int], active: Any) -> None:
    """On the way back the finest of them is computed in, whatever rule acts."""
    x, weight, bias = (
        one.to(torch.float32 if n == 32 else torch.bfloat16) for one, n in zip((A, W, V), (*types, 32), strict=True)
    )

    def operation(a: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return F.linear(a, weight, bias)

    found = passed(operation, [x], active)
    theirs = passed(lambda a: F.linear(a, weight.double(), bias.double()), [x.double()], active)
    assert found.gradients[0].dtype is x.dtype
    torch.testing.assert_close(found.gradients[0].double(), theirs.gradients[0], rtol=2e-2, atol=2e-2)
    assert found.lines["linear"] == pytest.approx(theirs.lines["linear"], abs=5e-2)


@pytest.mark.parametrize("name", ["layer", "three axes", "without a bias"])
def test_going_back_again_gives_what_it_gives_once(name: str) -> None:
    """What is kept for further ways back is what each of them needs; also where few rows are reached."""
    x = torch.cat([A] * 12)
    operation: Operation = lambda a: LAYERS[name][0](a)  # noqa: E731
    leaf, scope = x.clone().requires_grad_(), Scope(GAMMA, Books(1), {}, {})
    with scope:
        result = operation(start(leaf))
    few = torch.zeros_like(result)
    few[..., 4:7, :] = drawn(15, seed=4).reshape(3, 5)
    for upstream in (
        drawn(result.numel(), seed=9).reshape(result.shape),
        few,
        drawn(result.numel()).reshape(few.shape),
    ):
        (found,) = torch.autograd.grad(result, leaf, upstream, retain_graph=True)
        bias = V if LAYERS[name][2] else torch.zeros(5, dtype=A.dtype)
        torch.testing.assert_close(found, boosted(x, W, bias, 0.5, upstream.reshape(36, 5))[0])


def test_a_gradient_finer_than_the_weights() -> None:
    """As autocast makes it: the finer of two types is computed in."""
    x, weight = A.float(), W.to(torch.bfloat16)

    def operation(a: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            made = F.linear(a, weight.float())
        return made.float()

    (found,) = passed(operation, [x], NONE).gradients
    theirs = drawn(15, seed=9).reshape(3, 5).float() @ weight.float()
    assert found.dtype is torch.float32
    torch.testing.assert_close(found, theirs, rtol=2e-2, atol=2e-2)


CONVOLUTIONS: dict[str, tuple[Operation, tuple[int, ...], tuple[int, ...], int]] = {
    "conv1d": (F.conv1d, (2, 4, 6), (5, 4, 3), 1),
    "conv1d, of one sample": (F.conv1d, (4, 6), (5, 4, 3), 0),
    "conv1d, strided": (lambda x, w, b: F.conv1d(x, w, b, 2, 1), (2, 4, 6), (5, 4, 3), 1),
    "conv1d, named": (lambda x, w, b: F.conv1d(x, weight=w, bias=b, padding=1), (2, 4, 6), (5, 4, 3), 1),
    "conv1d, bias named": (lambda x, w, b: F.conv1d(x, w, bias=b, stride=2), (2, 4, 6), (5, 4, 3), 1),
    "conv2d": (F.conv2d, (2, 3, 4, 5), (5, 3, 2, 2), 1),
    "conv2d, of one sample": (F.conv2d, (3, 4, 5), (5, 3, 2, 2), 0),
    "conv2d, grouped": (lambda x, w, b: F.conv2d(x, w, b, groups=2), (2, 4, 4, 5), (6, 2, 2, 2), 1),
    "conv3d": (F.conv3d, (1, 2, 3, 3, 4), (5, 2, 2, 2, 2), 1),
    "transposed": (F.conv_transpose1d, (2, 4, 6), (4, 5, 3), 1),
    "transposed, strided": (lambda x, w, b: F.conv_transpose2d(x, w, b, 2), (1, 2, 3, 4), (2, 5, 2, 2), 1),
    "transposed of three": (F.conv_transpose3d, (1, 2, 2, 3, 2), (2, 5, 2, 2, 2), 1),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_the_bias_of_a_convolution(name: str) -> None:
    f, shape, kernel, axis = CONVOLUTIONS[name]
    x, weight = drawn(*shape, seed=1), drawn(*kernel, seed=2)
    with torch.no_grad():
        out = f(x, weight, None).shape
    bias = drawn(out[axis], seed=3)
    told = amount(bias.reshape(-1, *[1] * (len(out) - axis - 1)), *out)
    operation: Operation = lambda x: f(x, weight, bias)  # noqa: E731
    line = name.split(",")[0].replace("transposed", "conv_transpose")
    line = {"conv_transpose": f"conv_transpose{len(kernel) - 2}d"}.get(line.split()[0], line)
    found = check(operation, lambda x: f(x, weight, None), [x], NONE, {line: told})
    assert found.sorts[line].name == "CONSTANT"
    named = passed(operation, [x], NONE, {"layer.bias": bias, "layer.weight": weight})
    assert named.lines == pytest.approx({"layer.bias": told})
    check(lambda x: f(x, weight, None), lambda x: f(x, weight, None), [x], NONE, {})
    both: Operation = lambda x, b: f(x, weight, b)  # noqa: E731
    check(both, both, [x, bias], NONE, {})
    made: Operation = lambda w: f(x, w, bias)  # noqa: E731
    check(made, lambda w: f(x, w, None), [weight], GAMMA, {line: told})


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("biased", [True, False])
def test_a_convolution_by_the_gamma_rule_is_its_matrix(name: str, biased: bool) -> None:
    f, shape, kernel, axis = CONVOLUTIONS[name]
    x, weight = drawn(*shape, seed=1)[:1] if len(shape) > len(kernel) - 1 else drawn(*shape, seed=1), drawn(*kernel)
    with torch.no_grad():
        out = f(x, weight, None)
        bias = drawn(out.shape[axis], seed=3) if biased else None
        spread = torch.zeros_like(out) if bias is None else bias.reshape(-1, *[1] * (out.dim() - axis - 1)) + 0 * out
        columns = [f(one.reshape(x.shape), weight, None).flatten() for one in torch.eye(x.numel(), dtype=x.dtype)]
    matrix = torch.stack(columns, 1)
    found = passed(lambda x: f(x, weight, bias), [x], GAMMA, {"weight": weight})
    upstream = drawn(out.numel(), seed=9).reshape(1, -1)
    inputs, biases = boosted(x.reshape(1, -1), matrix, spread.flatten(), 0.5, upstream)
    torch.testing.assert_close(found.gradients[0].reshape(1, -1), inputs)
    assert sum(found.lines.values()) == pytest.approx(float(biases.sum()), abs=1e-10)
    assert found.met == {"gamma": 1}
    assert passed(lambda x: f(x, weight, bias), [x], rules("gamma", gamma=(("a*", 0.5),)), {"weight": weight}).met == {}


def test_packed_weights_are_taken_apart() -> None:
    assert dequantize(W) is W
    own = nn.Parameter(W)
    assert dequantize(own) is own

    class Half(torch.Tensor):
        def dequantize(self) -> Tensor:
            return torch.ones(2)

    class Whole(torch.Tensor):
        def dequantize(self) -> Tensor:
            raise NotImplementedError

    assert dequantize(W.as_subclass(Half)).tolist() == [1.0, 1.0]
    kept = W.as_subclass(Whole)
    assert dequantize(kept) is kept
