"""What each factor of a product gets, element by element, against the product written out with constants detached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from scoped import Operation, amount, check, expected, passed, rules
from torch import Tensor
from weighing import drawn

A, B, C = (drawn(3, 4, seed=seed) for seed in (1, 2, 3))
GATE, HALF, ACT = rules("gate"), rules("gate", gate="half"), rules("act")
ALL, BOTH = rules("act", "gate"), rules("ah", "gate")
Pair = tuple[Operation, Operation]


def d(x: Tensor) -> Tensor:
    return x.detach()


def halves(f: Operation, share: float = 0.5) -> Operation:
    """`share` to the first of two factors, the rest to the second."""
    return lambda a, b, *rest: share * f(a, d(b), *rest) + (1 - share) * f(d(a), b, *rest)


def second(f: Operation) -> Operation:
    return lambda a, b, *rest: f(d(a), b, *rest)


def first(f: Operation) -> Operation:
    return lambda a, b, *rest: f(a, d(b), *rest)


def sig(f: Operation) -> Operation:
    """With a sigmoid of the first."""
    return lambda a, b, *rest: f(torch.sigmoid(a), b, *rest)


def mul(a: Tensor, b: Tensor) -> Tensor:
    return a * b


def turned(a: Tensor, b: Tensor) -> Tensor:
    return b * a


PRODUCTS: dict[str, Pair] = {
    "a product": (mul, halves(mul)),
    "by a function": (torch.mul, halves(mul)),
    "named": (lambda a, b: torch.mul(input=a, other=b), halves(mul)),
    "other, named": (lambda a, b: torch.mul(a, other=b), halves(mul)),
    "in place": (lambda a, b: (a + 0.0).mul_(b), halves(mul)),
    "in place, and used again": (lambda a, b: b + (b * 1.0).mul_(a), lambda a, b: b + halves(mul)(a, b)),
    "broadcast from the left": (lambda a, b: a[:1] * b, halves(lambda a, b: a[:1] * b)),
    "broadcast from the right": (lambda a, b: a * b[:, :1], halves(lambda a, b: a * b[:, :1])),
    "of fewer axes": (lambda a, b: a[0] * b, halves(lambda a, b: a[0] * b)),
    "broadcast in place": (lambda a, b: (a + 0.0).mul_(b[0]), halves(lambda a, b: a * b[0])),
    "a gate": (sig(mul), sig(second(mul))),
    "a gate on the right": (sig(turned), sig(second(mul))),
    "a gate in place": (lambda a, b: F.silu(a).mul_(b), lambda a, b: d(F.silu(a)) * b),
    "a gate into its signal": (lambda a, b: (b + 0.0).mul_(torch.sigmoid(a)), sig(second(mul))),
    "a gate of fewer axes, in place": (
        lambda a, b: (b + 0.0).mul_(torch.sigmoid(a[0])),
        lambda a, b: d(torch.sigmoid(a[0])) * b,
    ),
    "of a kind": (lambda a, b: torch.sigmoid(a) * torch.sigmoid(b), sig(lambda a, b: halves(mul)(a, b.sigmoid()))),
    "a constant first": (lambda a, b: torch.mul(C, a) * b, halves(lambda a, b: C * a * b)),
    "a constant in place": (lambda a, b: (C + 0.0).mul_(a) * b, halves(lambda a, b: C * a * b)),
    "a number first": (lambda a, b: 3 * torch.sigmoid(a) * b, sig(second(lambda a, b: 3 * a * b))),
    "a gate in place is a gate no longer": (
        lambda a, b: F.softplus(a).mul_(b) * torch.tanh(a),
        lambda a, b: d(F.softplus(a)) * b * d(a.tanh()),
    ),
    "a product is a gate no longer": (
        lambda a, b: (torch.sigmoid(a) * b) * torch.tanh(a),
        lambda a, b: d(a.sigmoid()) * b * d(a.tanh()),
    ),
    "a gate times a number": (
        lambda a, b: torch.sigmoid(a) * 2 * torch.tanh(b),
        lambda a, b: d(a.sigmoid()) * 2 * torch.tanh(b),
    ),
    "a constant times a gate": (
        lambda a, b: torch.mul(C, torch.sigmoid(a)) * torch.tanh(b),
        lambda a, b: C * d(a.sigmoid()) * torch.tanh(b),
    ),
    "a size": (lambda a, b: a.norm(dim=-1, keepdim=True) * b, lambda a, b: a.norm(dim=-1, keepdim=True) * b),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PRODUCTS)
def test_what_the_factors_of_a_product_get(name: str) -> None:
    operation, reference = PRODUCTS[name]
    check(operation, reference, [A, B], GATE, {})


@pytest.mark.parametrize("name", [name for name in PRODUCTS if "place" not in name and "gate no" not in name])
def test_without_the_rule_each_gets_its_gradient(name: str) -> None:
    operation = PRODUCTS[name][0]
    assert check(operation, operation, [A, B], rules("ah"), {}).met == {}


def test_in_place_without_the_rule_it_is_torchs_own() -> None:
    check(lambda a, b: (a + 0.0).mul_(b.exp()), lambda a, b: a * b.exp(), [A, B], rules("ln"), {})


WITH_HALF: dict[str, Pair] = {
    "a gate": (sig(mul), sig(halves(mul))),
    "a gate on the right": (sig(turned), sig(halves(mul))),
    "in place": (lambda a, b: F.silu(a).mul_(b), lambda a, b: halves(mul)(F.silu(a), b)),
    "into its signal": (lambda a, b: (b + 0.0).mul_(torch.sigmoid(a)), sig(halves(mul))),
    "a matrix of gates": (sig(lambda a, b: a @ b.T), sig(halves(lambda a, b: a @ b.T))),
    "weights": (lambda a, b: a.softmax(-1) * b, lambda a, b: halves(mul)(a.softmax(-1), b)),
}


@pytest.mark.parametrize("name", WITH_HALF)
def test_with_half_a_gate_gets_as_much_as_what_it_gates(name: str) -> None:
    check(*WITH_HALF[name], [A, B], HALF, {})


BY_HAND: dict[str, Pair] = {
    "gate on the right": (lambda a, b: a * torch.sigmoid(a), lambda a, b: a * d(a.sigmoid())),
    "gate on the left": (lambda a, b: torch.sigmoid(a) * a, lambda a, b: a * d(a.sigmoid())),
    "a square": (lambda a, b: a * a, lambda a, b: a * d(a)),
    "with a number": (lambda a, b: a * (torch.sigmoid(a) * 2), lambda a, b: a * d(a.sigmoid()) * 2),
    "with a number first": (lambda a, b: (0.5 * a) * torch.sigmoid(a), lambda a, b: 0.5 * a * d(a.sigmoid())),
    "with a constant": (lambda a, b: (a * C) * torch.sigmoid(a), lambda a, b: C * a * d(a.sigmoid())),
    "with a constant first": (lambda a, b: torch.mul(C, a) * torch.sigmoid(a), lambda a, b: C * a * d(a.sigmoid())),
    "with a constant of fewer axes": (
        lambda a, b: (a * C[0]) * torch.sigmoid(a),
        lambda a, b: C[0] * a * d(a.sigmoid()),
    ),
    "in place": (lambda a, b: (a * 1.0).mul_(torch.sigmoid(a)), lambda a, b: a * d(a.sigmoid())),
    "a product of it": (
        lambda a, b: (a * torch.sigmoid(a)) * a,
        lambda a, b: a * d(a * a.sigmoid()),
    ),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_an_activation_by_hand_is_its_input_times_a_constant(name: str) -> None:
    """With the rule for activations; the one for gates has no part in it."""
    operation, reference = BY_HAND[name]
    for active in (ACT, rules("act", "gate", gate="half")):
        assert "act" in check(operation, reference, [A, B], active).met
    plain = passed(operation, [A, B], GATE)
    theirs = expected(lambda a, b: operation(a, b), [A, B]) if name != "in place" else None
    if theirs is not None:
        torch.testing.assert_close(plain.gradients[0], theirs[0])
    assert "gate" not in plain.met


KEPT: dict[str, Pair] = {
    "a square": (lambda a, b: (a * a) * b, lambda a, b: d(a * a) * b),
    "over an activation": (
        lambda a, b: (a * torch.sigmoid(a)) * torch.tanh(b),
        lambda a, b: d(a * a.sigmoid()) * b * d(b.tanh() / b),
    ),
    "from the left": (
        lambda a, b: (torch.sigmoid(a) * a) * torch.tanh(b),
        lambda a, b: d(a * a.sigmoid()) * b * d(b.tanh() / b),
    ),
    "as much as an activation": (
        lambda a, b: (a * torch.tanh(a)) * torch.tanh(b),
        lambda a, b: 0.5 * a * d(a.tanh() * b.tanh()) + 0.5 * b * d(a * a.tanh() * b.tanh() / b),
    ),
    "broadcast, it is another tensor": (
        lambda a, b: (a[:1] * C) * torch.sigmoid(a[:1].expand(3, 4)),
        lambda a, b: (a[:1] * C) * d(torch.sigmoid(a[:1])),
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_a_product_by_hand_is_to_the_next(name: str) -> None:
    check(*KEPT[name], [A, B], ALL)


def test_a_size_that_multiplies_is_held_by_the_rule_for_sizes() -> None:
    def size(a: Tensor, b: Tensor) -> Tensor:
        return a.norm(dim=-1, keepdim=True) * b

    assert check(size, second(lambda a, b: d(size(a, b) / b) * b), [A, B], rules("ln"), {}).met == {"ln": 1}


def scores(a: Tensor, b: Tensor) -> Tensor:
    return a @ b.T


X, Y = drawn(2, 3, 4, seed=4), drawn(2, 4, 5, seed=5)
W3, M = drawn(2, 5, 4, seed=6), drawn(5, 4, seed=7)

CONTRACTIONS: dict[str, tuple[Operation, list[Tensor]]] = {
    "matmul": (torch.matmul, [X, Y]),
    "matmul by a matrix": (torch.matmul, [X, Y[0]]),
    "matmul of matrices": (torch.matmul, [A, Y[0]]),
    "rmatmul": (lambda a, b: b.__rmatmul__(a), [X, Y]),
    "rmatmul by a matrix": (lambda a, b: a.__rmatmul__(b), [X, drawn(5, 3)]),
    "mm": (torch.mm, [A, Y[0]]),
    "mm, named": (lambda a, b: torch.mm(input=a, mat2=b), [A, Y[0]]),
    "bmm": (torch.bmm, [X, Y]),
    "bmm, named": (lambda a, b: torch.bmm(a, mat2=b), [X, Y]),
    "mv": (torch.mv, [A, B[0]]),
    "dot": (torch.dot, [A[0], B[0]]),
    "inner": (torch.inner, [X, M]),
    "tensordot": (lambda a, b: torch.tensordot(a, b, dims=([2, 0], [1, 0])), [X, Y]),
    "tensordot, a number": (lambda a, b: torch.tensordot(a, b, 1), [X, Y[0]]),
    "einsum": (lambda a, b: torch.einsum("bij,bjk->bik", a, b), [X, Y]),
    "einsum, a list": (lambda a, b: torch.einsum("bij,bjk->bik", [a, b]), [X, Y]),
    "einsum with a constant": (lambda a, b: torch.einsum("bij,bj,bjk->bik", a, W3[:, 0], b), [X, Y]),
    "einsum with a constant first": (lambda a, b: torch.einsum("bj,bij,bjk->bik", [W3[:, 0], a, b]), [X, Y]),
    "bilinear": (lambda a, b: F.bilinear(a, b, drawn(2, 4, 4)), [A, B]),
    "linear": (lambda a, b: F.linear(a, b), [X, M]),
    "linear, named": (lambda a, b: F.linear(input=a, weight=b), [X, M]),
}


@pytest.mark.parametrize("name", CONTRACTIONS)
def test_a_sum_of_products_is_shared_as_a_product_is(name: str) -> None:
    """Equals by half; a gate is held on either side; without the rule all is gradient."""
    operation, leaves = CONTRACTIONS[name]
    check(operation, halves(operation), leaves, GATE, {})
    check(sig(operation), sig(second(operation)), leaves, GATE, {})
    check(sig(operation), sig(halves(operation)), leaves, HALF, {})
    check(lambda a, b: operation(a, b.sigmoid()), lambda a, b: operation(a, d(b.sigmoid())), leaves, GATE, {})
    assert check(operation, operation, leaves, rules("ah"), {}).met == {}


@pytest.mark.parametrize("multiply", [torch._grouped_mm, F.grouped_mm], ids=["torch", "function"])
def test_products_of_groups(multiply: Operation) -> None:
    """As experts are computed: each group of rows with its own matrix. There is none in float64."""
    a, b = drawn(6, 16).bfloat16(), drawn(2, 16, 8, seed=4).bfloat16()
    grouped: Operation = lambda a, b: multiply(a, b, offs=torch.tensor([2, 6], dtype=torch.int32))  # noqa: E731
    check(grouped, halves(grouped), [a, b], GATE, {})
    check(sig(grouped), sig(second(grouped)), [a, b], GATE, {})


@pytest.mark.parametrize("name", CONTRACTIONS)
def test_one_signal_among_the_factors_has_all_of_it(name: str) -> None:
    operation, leaves = CONTRACTIONS[name]
    for i in (0, 1):
        one = (lambda a: operation(a, leaves[1])) if i == 0 else (lambda b: operation(leaves[0], b))
        assert check(one, one, [leaves[i]], GATE, {}).met == {}


@pytest.mark.parametrize("shapes", [((2, 3, 4), (4, 5)), ((2, 2, 3, 4), (4, 5))])
def test_a_matrix_behind_many_axes_is_a_layer_and_no_other_product_is(shapes: Any) -> None:
    """The GAMMA-rule acts on layers alone."""
    gamma = rules("gamma", gamma=0.5)
    x, w = (drawn(*shape, seed=i) for i, shape in enumerate(shapes))
    layer, product = passed(lambda x: x @ w, [x], gamma), passed(lambda x: F.linear(x, w.T), [x], gamma)
    torch.testing.assert_close(layer.gradients[0], product.gradients[0])
    assert layer.met == product.met == {"gamma": 1}
    others: list[tuple[Operation, Tensor]] = [
        (lambda x: torch.tensordot(x, w, 1), x),
        (lambda x: x.__rmatmul__(drawn(5, x.shape[-2])), x),
        (lambda x: x.flatten(0, -2) @ w, x),
        (lambda x: x @ drawn(*x.shape[:-2], 4, 5), x),
        (lambda x: x @ w[:, 0], x),
        (lambda x: drawn(5, x.shape[-2]) @ x, x),
        (lambda x: torch.inner(x, w.T), x),
    ]
    for other, leaf in others:
        assert check(other, other, [leaf], gamma, {}).met == {}


def test_a_matrix_that_is_a_signal_is_no_layer() -> None:
    check(torch.matmul, halves(torch.matmul), [X, Y[0]], rules("gate", "gamma", gamma=0.5), {})


def triple(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return torch.einsum("ij,ij,ij->i", a, b, c)


def mean_of(*parts: Operation) -> Operation:
    return lambda *leaves: torch.stack([part(*leaves) for part in parts]).mean(0)


MANY: dict[str, tuple[Operation, Operation, Any]] = {
    "equals": (
        triple,
        mean_of(
            lambda a, b, c: triple(a, d(b), d(c)),
            lambda a, b, c: triple(d(a), b, d(c)),
            lambda a, b, c: triple(d(a), d(b), c),
        ),
        GATE,
    ),
    "a gate among them": (
        lambda a, b, c: triple(a, torch.sigmoid(b), c),
        mean_of(
            lambda a, b, c: triple(a, d(b.sigmoid()), d(c)),
            lambda a, b, c: triple(d(a), d(b.sigmoid()), c),
        ),
        GATE,
    ),
    "two gates": (
        lambda a, b, c: triple(torch.tanh(a), torch.sigmoid(b), c),
        lambda a, b, c: triple(d(a.tanh()), d(b.sigmoid()), c),
        GATE,
    ),
    "gates take part by half": (
        lambda a, b, c: triple(torch.tanh(a), torch.sigmoid(b), c),
        mean_of(
            lambda a, b, c: triple(a.tanh(), d(b.sigmoid()), d(c)),
            lambda a, b, c: triple(d(a.tanh()), b.sigmoid(), d(c)),
            lambda a, b, c: triple(d(a.tanh()), d(b.sigmoid()), c),
        ),
        HALF,
    ),
    "weights never do": (
        lambda a, b, c: triple(a.softmax(-1), torch.sigmoid(b), c),
        mean_of(
            lambda a, b, c: triple(d(a.softmax(-1)), b.sigmoid(), d(c)),
            lambda a, b, c: triple(d(a.softmax(-1)), d(b.sigmoid()), c),
        ),
        HALF,
    ),
    "weights alone share": (
        lambda a, b, c: triple(a.softmax(-1), b.softmax(-1), c.softmax(-1)),
        mean_of(
            lambda a, b, c: triple(a.softmax(-1), d(b.softmax(-1)), d(c.softmax(-1))),
            lambda a, b, c: triple(d(a.softmax(-1)), b.softmax(-1), d(c.softmax(-1))),
            lambda a, b, c: triple(d(a.softmax(-1)), d(b.softmax(-1)), c.softmax(-1)),
        ),
        HALF,
    ),
    "without the rule": (triple, triple, rules("ah")),
}


@pytest.mark.parametrize("name", MANY)
def test_three_signals_in_one_sum_of_products(name: str) -> None:
    operation, reference, active = MANY[name]
    assert check(operation, reference, [A, B, C], active, {}).met == ({} if active == rules("ah") else {"gate": 1})


BIASED: dict[str, Callable[[Tensor], Operation]] = {
    "bilinear": lambda bias: lambda a, b: F.bilinear(a, b, drawn(5, 4, 4), bias),
    "bilinear, named": lambda bias: lambda a, b: F.bilinear(a, b, weight=drawn(5, 4, 4), bias=bias),
    "linear": lambda bias: lambda a, b: F.linear(a, torch.cat([b, b[:2]]), bias),
    "linear, named": lambda bias: lambda a, b: F.linear(a, weight=torch.cat([b, b[:2]]), bias=bias),
}


@pytest.mark.parametrize("name", BIASED)
def test_the_bias_beside_a_product_of_signals_is_a_line(name: str) -> None:
    bias = drawn(5, seed=8)
    operation = BIASED[name](bias)
    found = check(operation, halves(operation), [A, B], GATE, {"offset": amount(bias, 3, 5)}, {"offset": bias})
    assert found.sorts["offset"].name == "BIAS"


@pytest.mark.parametrize("name", BIASED)
def test_a_bias_that_is_a_signal_has_its_own(name: str) -> None:
    def operation(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return BIASED[name](c[0])(a, b)

    def reference(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        return halves(BIASED[name](torch.zeros(5, dtype=A.dtype)))(a, b) + c[0]

    check(operation, reference, [A, B, drawn(1, 5)], GATE, {})


ADDED: dict[str, tuple[Callable[..., Operation], list[Tensor], Tensor]] = {
    "addmm": (lambda base, **k: lambda a, b: torch.addmm(base, a, b, **k), [A, Y[0]], drawn(3, 5, seed=8)),
    "addmm, named": (
        lambda base, **k: lambda a, b: torch.addmm(base, mat2=b, mat1=a, **k),
        [A, Y[0]],
        drawn(3, 5, seed=8),
    ),
    "addmm, half named": (
        lambda base, **k: lambda a, b: torch.addmm(base, a, mat2=b, **k),
        [A, Y[0]],
        drawn(3, 5, seed=8),
    ),
    "addmm to a row": (lambda base, **k: lambda a, b: torch.addmm(base, a, b, **k), [A, Y[0]], drawn(5, seed=8)),
    "baddbmm": (lambda base, **k: lambda a, b: torch.baddbmm(base, a, b, **k), [X, Y], drawn(2, 3, 5, seed=8)),
    "baddbmm, named": (
        lambda base, **k: lambda a, b: torch.baddbmm(base, batch2=b, batch1=a, **k),
        [X, Y],
        drawn(2, 3, 5, seed=8),
    ),
    "addbmm": (lambda base, **k: lambda a, b: torch.addbmm(base, a, b, **k), [X, Y], drawn(3, 5, seed=8)),
    "addmv": (lambda base, **k: lambda a, b: torch.addmv(base, a, b, **k), [A, B[0]], drawn(3, seed=8)),
    "addmv, named": (
        lambda base, **k: lambda a, b: torch.addmv(base, vec=b, mat=a, **k),
        [A, B[0]],
        drawn(3, seed=8),
    ),
}
FACTORS: dict[str, dict[str, float]] = {
    "plain": {},
    "beta": {"beta": 0.3},
    "alpha": {"alpha": -1.7},
    "both": {"beta": -2.0, "alpha": 0.4},
    "nothing of the base": {"beta": 0.0},
}


@pytest.mark.parametrize("factors", FACTORS)
@pytest.mark.parametrize("name", ADDED)
def test_a_product_that_something_is_added_to(name: str, factors: str) -> None:
    """Shared as without it; the base is a line of beta times itself, and so is a base that is a signal."""
    make, leaves, base = ADDED[name]
    told = FACTORS[factors]
    operation, plain = make(base, **told), make(torch.zeros_like(base), **told)
    worth = told.get("beta", 1.0) * amount(base, *operation(*leaves).shape)
    line = {name.split(",")[0].split()[0]: worth} if worth else {}
    check(operation, halves(plain), leaves, GATE, line)
    check(sig(operation), sig(second(plain)), leaves, GATE, line)
    check(lambda a, b: operation(a, b.sigmoid()), lambda a, b: plain(a, d(b.sigmoid())), leaves, GATE, line)
    check(operation, plain, leaves, rules("ah"), line)
    for i in (0, 1):
        one = (lambda a: operation(a, leaves[1])) if i == 0 else (lambda b: operation(leaves[0], b))
        check(one, one, [leaves[i]], GATE, line)
    check(
        lambda a, b, c: make(c, **told)(a, b),
        lambda a, b, c: told.get("beta", 1.0) * c + halves(plain)(a, b),
        [*leaves, base],
        GATE,
        {},
    )
    check(lambda c: make(c, **told)(*leaves), lambda c: make(c, **told)(*leaves), [base], GATE, {})


@pytest.mark.parametrize("name", ADDED)
def test_a_parameter_that_a_product_is_added_to_is_a_bias(name: str) -> None:
    make, leaves, base = ADDED[name]
    worth = 0.3 * amount(base, *make(base)(*leaves).shape)
    for operation, own in (
        (make(base, beta=0.3), leaves),
        (lambda a: make(base, beta=0.3)(a, leaves[1]), leaves[:1]),
    ):
        found = passed(operation, own, GATE, {"offset": base})
        assert found.lines["offset"] == pytest.approx(worth, abs=1e-12)
        assert found.sorts["offset"].name == "BIAS"


N = 3 * torch.eye(4, dtype=torch.float64) + 0.3 * drawn(4, 4, seed=6)
LOW = N.tril()
T = torch.linalg
SYSTEMS: dict[str, tuple[Operation, list[Tensor]]] = {
    "solve": (T.solve, [N, A.T]),
    "solve, named": (lambda a, b: T.solve(A=a, B=b), [N, A.T]),
    "solve, half named": (lambda a, b: T.solve(a, B=b), [N, A.T]),
    "solve from the right": (lambda a, b: T.solve(a, b, left=False), [N, A]),
    "triangular": (lambda a, b: T.solve_triangular(a, b, upper=False), [LOW, A.T]),
    "triangular, named": (lambda a, b: T.solve_triangular(a, B=b, upper=False), [LOW, A.T]),
    "inv": (lambda a, b: T.inv(a) @ A.T, [N, A.T]),
    "inv, named": (lambda a, b: T.inv(A=a) @ A.T, [N, A.T]),
    "inverse": (lambda a, b: a.inverse() @ A.T, [N, A.T]),
    "pinv": (lambda a, b: T.pinv(a) @ A.T, [N, A.T]),
    "pinverse": (lambda a, b: a.pinverse() @ A.T, [N, A.T]),
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_matrix_of_a_system_is_held(name: str) -> None:
    operation, leaves = SYSTEMS[name]
    called = {"inv, named": "linalg_inv", "inv": "linalg_inv", "pinv": "linalg_pinv"}.get(name, name)
    held = "inv" in name  # by itself it is no longer a signal, and what enters is what the rule holds
    found = check(
        lambda a, b: operation(a, b) + 0 * b,
        lambda a, b: operation(d(a), b) + 0 * b,
        leaves,
        GATE,
        {called: amount(operation(*leaves), 4, 3)} if held else {},
    )
    assert found.met["gate"] == 1
    assert {sort.name for sort in found.sorts.values()} == ({"HELD"} if held else set())
    plain = check(lambda a, b: operation(a, b) + 0 * b, lambda a, b: operation(a, b) + 0 * b, leaves, rules("ah"), {})
    assert plain.met == {}
    if "inv" not in name:
        one = passed(lambda b: operation(leaves[0], b), leaves[1:], GATE)
        assert one.met == {}
        torch.testing.assert_close(one.gradients, expected(lambda b: operation(leaves[0], b), leaves[1:]))


G = drawn(3, 8, seed=6)
GLU: dict[str, tuple[Operation, int]] = {
    "last": (F.glu, -1),
    "by position": (lambda x: F.glu(x, 1), 1),
    "named": (lambda x: F.glu(x, dim=-1), -1),
    "first axis": (lambda x: F.glu(x.T, 0).T, -1),
    "first axis, named": (lambda x: F.glu(x.T, dim=-2).T, -1),
}


@pytest.mark.parametrize("name", GLU)
def test_a_gated_linear_unit(name: str) -> None:
    operation, axis = GLU[name]

    def by_gate(x: Tensor) -> Tensor:
        a, b = x.chunk(2, axis)
        return a * d(b.sigmoid())

    def by_half(x: Tensor) -> Tensor:
        a, b = x.chunk(2, axis)
        slope = torch.where(b == 0, 0.25, (b.sigmoid() - 0.5) / b)
        return 0.5 * a * d(b.sigmoid()) + 0.5 * d(a) * b * d(slope)

    x = G.clone()
    x[0, 5] = 0.0  # there the slope is that of a sigmoid at 0
    assert check(operation, by_gate, [x], GATE, {}).met == {"gate": 1}
    check(operation, by_half, [x], HALF, {"sigmoid(0)": amount(0.25 * x[:, :4], 3, 4)})
    check(operation, operation, [x], rules("ah"), {})


LERP: dict[str, tuple[Operation, Operation]] = {
    "plain": (torch.lerp, torch.lerp),
    "named": (lambda a, b, w: torch.lerp(a, end=b, weight=w), torch.lerp),
    "half named": (lambda a, b, w: torch.lerp(a, b, weight=w), torch.lerp),
    "in place": (lambda a, b, w: (a * 1.0).lerp_(b, w), torch.lerp),
}


@pytest.mark.parametrize("name", LERP)
def test_a_blend_is_its_sum(name: str) -> None:
    """start + weight * (end - start): each operand a signal or a constant, and the weight a gate or a number."""
    operation, plain = LERP[name]
    check(lambda a, b: operation(a, b, 0.3), lambda a, b: plain(a, b, 0.3), [A, B], GATE, {})
    check(lambda a, b: operation(a, b, C), lambda a, b: plain(a, b, C), [A, B], GATE, {})
    check(
        lambda a, b, w: operation(a, b, w.sigmoid()),
        lambda a, b, w: a + d(w.sigmoid()) * (b - a),
        [A, B, C],
        GATE,
        {},
    )
    check(lambda a, b, w: operation(a, b, w), lambda a, b, w: a + halves(mul)(w, b - a), [A, B, C], GATE, {})
    line = amount(C.sigmoid() * B, 3, 4)
    check(lambda a: operation(a, B, C.sigmoid()), lambda a: a * (1 - C.sigmoid()), [A], GATE, {"sub": line})
    found = passed(lambda a: operation(a, B, C.sigmoid()), [A], GATE, {"end": B})
    assert found.lines == pytest.approx({"end": line})


def test_a_blend_from_a_constant() -> None:
    """Also where that is written into: then its name is that of the parameter that it was."""
    line = amount(A * (1 - 0.3), 3, 4)
    found = check(lambda b: torch.lerp(A, b, 0.3), lambda b: 0.3 * b, [B], GATE)
    assert sum(found.lines.values()) == pytest.approx(line)
    found = check(lambda b: (A * 1.0).lerp_(b, 0.3), lambda b: 0.3 * b, [B], GATE)
    assert sum(found.lines.values()) == pytest.approx(line)
    found = passed(lambda b: torch.lerp(A, b, 0.3), [B], GATE, {"begin": A})
    assert found.lines == pytest.approx({"begin": line})
    found = passed(lambda b: (A * 1.0).lerp_(b, 0.3), [B], GATE, {"begin": A})
    assert found.lines == pytest.approx({"begin": line})


def test_a_blend_by_a_signal_of_constants() -> None:
    found = check(
        lambda w: torch.lerp(A, B, w.sigmoid()), lambda w: w.sigmoid() * (B - A), [C], GATE, {"add": amount(A, 3, 4)}
    )
    assert found.met == {}


P = B.abs() + 1
COMBINED: dict[str, tuple[Operation, Operation]] = {
    "addcmul": (torch.addcmul, lambda c, a, b: c + halves(mul)(a, b)),
    "addcmul, value": (lambda c, a, b: torch.addcmul(c, a, b, value=-1.3), lambda c, a, b: c - 1.3 * halves(mul)(a, b)),
    "addcmul, named": (
        lambda c, a, b: torch.addcmul(c, tensor1=a, tensor2=b, value=2),
        lambda c, a, b: c + 2 * halves(mul)(a, b),
    ),
    "addcmul in place": (
        lambda c, a, b: (c * 1.0).addcmul_(a, b, value=0.5),
        lambda c, a, b: c + 0.5 * halves(mul)(a, b),
    ),
    "addcmul, a gate": (
        lambda c, a, b: torch.addcmul(c, a.sigmoid(), b),
        lambda c, a, b: c + d(a.sigmoid()) * b,
    ),
    "addcdiv": (lambda c, a, b: torch.addcdiv(c, a, b.exp()), lambda c, a, b: c + a / d(b.exp())),
    "addcdiv, value": (
        lambda c, a, b: torch.addcdiv(c, tensor1=a, tensor2=b.exp(), value=3),
        lambda c, a, b: c + 3 * a / d(b.exp()),
    ),
    "addcdiv in place": (
        lambda c, a, b: (c * 1.0).addcdiv_(a, b.exp(), value=-1),
        lambda c, a, b: c - a / d(b.exp()),
    ),
}


@pytest.mark.parametrize("name", COMBINED)
def test_a_sum_and_a_product_in_one(name: str) -> None:
    operation, reference = COMBINED[name]
    check(operation, reference, [C, A, B], GATE, {})
    line = {"add": amount(C, 3, 4)}
    check(lambda a, b: operation(C, a, b), lambda a, b: reference(torch.zeros_like(C), a, b), [A, B], GATE, line)


@pytest.mark.parametrize("in_place", [False, True])
def test_constants_in_a_sum_and_a_product(in_place: bool) -> None:
    def operation(c: Tensor) -> Tensor:
        return (c * 1.0).addcmul_(A, B, value=0.5) if in_place else torch.addcmul(c, A, B, value=0.5)

    check(operation, lambda c: c, [C], GATE, {"add": amount(0.5 * A * B, 3, 4)})


@pytest.mark.parametrize("name", ["lerp", "addcmul", "addcdiv"])
def test_what_is_written_into_is_the_tensor_itself(name: str) -> None:
    """The model goes on with the tensor, not with what the operation gave back."""

    def operation(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        kept = a * 1.0
        given = getattr(kept, name + "_")(b, c.sigmoid())
        assert given is kept
        return kept * 1.0

    def reference(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        gate = d(c.sigmoid())
        return {"lerp": a + gate * (b - a), "addcmul": a + gate * b, "addcdiv": a + b / gate}[name]

    check(operation, reference, [A, B, C], GATE, {})


def test_a_product_in_place_is_the_tensor_itself() -> None:
    def operation(a: Tensor, b: Tensor) -> Tensor:
        for factor in (b, b.sigmoid()):
            kept = a * 1.0
            assert kept.mul_(factor) is kept
        gate = a.sigmoid()
        assert gate.mul_(b) is gate
        return kept

    check(operation, lambda a, b: a * d(b.sigmoid()), [A, B], GATE, {})


def exp_over(a: Tensor) -> Tensor:
    return a.exp() * (1 / a.exp().sum(-1, keepdim=True))


def exp_under(a: Tensor) -> Tensor:
    return (1 / a.exp().sum(-1, keepdim=True)) * a.exp()


@pytest.mark.parametrize("spelling", [exp_over, exp_under])
def test_one_over_a_sum_times_its_exponentials_is_a_softmax(spelling: Callable[[Tensor], Tensor]) -> None:
    """The sum is a constant; with both rules all of it is; where scores take part, it is the softmax that they have."""
    held = check(spelling, lambda a: a.exp() * d(1 / a.exp().sum(-1, keepdim=True)), [A], GATE, {})
    assert held.met == {"gate": 1}
    check(spelling, spelling, [A], rules("ah", "gate", attention="half"), {})
    for active in (BOTH, rules("ah", "gate", attention="secant"), rules("ah", attention="query")):
        ours = passed(lambda a, b: spelling(a) @ b.T, [A, B], active)
        theirs = passed(lambda a, b: a.softmax(-1) @ b.T, [A, B], active)
        torch.testing.assert_close(ours.gradients, theirs.gradients)
        assert sum(ours.lines.values()) == pytest.approx(sum(theirs.lines.values()), abs=1e-12)


def test_weights_by_hand_are_weights() -> None:
    """They are what a softmax is to the next product."""
    check(lambda a, b: exp_over(a) @ b.T, lambda a, b: d(exp_over(a)) @ b.T, [A, B], rules("ah"))


def test_exponentials_over_one_more_of_them_are_an_activation_by_hand() -> None:
    def sigmoid(a: Tensor) -> Tensor:
        return a.exp() * (1 / (1 + a.exp()))

    check(sigmoid, sigmoid, [A], GATE)


def test_of_two_alike_that_a_rule_holds_it_holds_the_second() -> None:
    def sizes(a: Tensor, b: Tensor) -> Tensor:
        return a.norm(dim=-1, keepdim=True) * b.norm(dim=-1, keepdim=True)

    def weights(a: Tensor, b: Tensor) -> Tensor:
        return a.softmax(-1) @ b.softmax(-1).T

    check(sizes, first(sizes), [A, B], rules("ln"), {})
    check(weights, first(weights), [A, B], rules("ah"), {})


ATTENTIONS: dict[str, tuple[Operation, list[Tensor]]] = {
    "matmul": (torch.matmul, [X, Y]),
    "einsum": (lambda a, b: torch.einsum("bij,bjk->bik", [a, b]), [X, Y]),
    "bmm": (torch.bmm, [X, Y]),
    "baddbmm": (lambda a, b: torch.baddbmm(torch.zeros_like(C[:, :1]), a, b, alpha=0.5), [X, Y]),
    "addbmm": (lambda a, b: torch.addbmm(torch.zeros_like(C[:, :1]), a, b), [X, Y]),
    "addmm": (lambda a, b: torch.addmm(torch.zeros_like(C[:, :1]), a, b), [A, Y[0]]),
    "addmv": (lambda a, b: torch.addmv(torch.zeros_like(C[:, 0]), a, b), [A, B[0]]),
}


def weighed(f: Operation) -> Operation:
    return lambda a, b: f(a.softmax(-1), b)


@pytest.mark.parametrize("name", ATTENTIONS)
def test_weights_in_a_sum_of_products(name: str) -> None:
    """Held by the rule for attention; shared by half; with a query 0.6 to the weights; on either side."""
    f, leaves = ATTENTIONS[name]
    assert check(weighed(f), weighed(second(f)), leaves, rules("ah"), {}).met == {"ah": 1}
    check(weighed(f), weighed(halves(f)), leaves, rules("ah", attention="half"), {})
    check(weighed(f), weighed(halves(f, 0.6)), leaves, rules("ah", attention="query"))
    check(weighed(f), weighed(f), leaves, GATE, {})

    def right(a: Tensor, b: Tensor) -> Tensor:
        return f(a, b.softmax(-1))

    def halved(a: Tensor, b: Tensor) -> Tensor:
        return halves(f, 0.4)(a, b.softmax(-1))

    check(right, lambda a, b: f(a, d(b.softmax(-1))), leaves, rules("ah"), {})
    check(right, halved, leaves, rules("ah", attention="query"))


def line_of(s: Tensor) -> Tensor:
    """p_j = u_j + l_j (s_j - sum_k w_k s_k), of even attention u, from its definition."""
    p, n = d(s.softmax(-1)), s.shape[-1]
    own, u = d(s), 1 / n
    c = own.logsumexp(-1, keepdim=True) - torch.tensor(float(n), dtype=s.dtype).log()
    low, high = own.mean(-1, keepdim=True), (p * own).sum(-1, keepdim=True)
    w = u + (c - low) / (high - low) * (p - u)
    return u + (p - u) / (own - c) * (s - (w * s).sum(-1, keepdim=True))


@pytest.mark.parametrize("name", ATTENTIONS)
def test_weights_by_their_secant(name: str) -> None:
    """Values see half of the weights and half of even ones; weights bring half of what is not even."""
    f, leaves = ATTENTIONS[name]

    def reference(a: Tensor, b: Tensor) -> Tensor:
        even = torch.full_like(a, 1 / a.shape[-1])
        return f(0.5 * (d(a.softmax(-1)) + even), b) + f(0.5 * (line_of(a) - even), d(b))

    found = check(weighed(f), reference, leaves, rules("ah", attention="secant"), {})
    assert found.met["ah"] >= 1
    turned_round = passed(
        lambda a, b: f(b.mT, a.softmax(-1).mT) if name in ("matmul", "bmm") else f(a.softmax(-1), b),
        leaves,
        rules("ah", attention="secant"),
    )
    if name in ("matmul", "bmm"):
        again = expected(lambda a, b: reference(a, b).mT, leaves)
        torch.testing.assert_close(turned_round.gradients, again, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", ["baddbmm", "addmm", "addmv", "addbmm"])
@pytest.mark.parametrize("attention", ["secant", "query", "half", "constant"])
def test_what_is_added_to_weights_times_values(name: str, attention: str) -> None:
    f: Any = getattr(torch, name)
    leaves = ATTENTIONS[name][1]
    shape = {"baddbmm": (2, 3, 5), "addmm": (3, 5), "addmv": (3,), "addbmm": (3, 5)}[name]
    base = drawn(*shape, seed=8)
    active = rules("ah", attention=attention)
    told = {"beta": 0.3, "alpha": -0.7}
    with_base, without = (
        passed(lambda a, b, base=base, factor=factor: f(factor * base, a.softmax(-1), b, **told), leaves, active)
        for factor in (1.0, 0.0)
    )
    torch.testing.assert_close(with_base.gradients, without.gradients)
    assert with_base.lines[name] == pytest.approx(0.3 * amount(base, *shape), abs=1e-12)
    signal = passed(lambda a, b, c: f(c, a.softmax(-1), b, **told), [*leaves, base], active)
    torch.testing.assert_close(signal.gradients[:2], without.gradients)
    upstream = drawn(base.numel(), seed=9).reshape(base.shape)
    torch.testing.assert_close(signal.gradients[2], 0.3 * upstream)


def test_scores_of_a_query_hold_their_keys() -> None:
    """Where the query takes part; a gate in their place is a gate still."""
    query = rules("ah", "gate", attention="query")
    check(lambda a, b: a @ b.T, lambda a, b: a @ d(b).T, [A, B], query, {})
    check(lambda a, b: a @ b.T, halves(lambda a, b: a @ b.T), [A, B], rules("gate", attention="query"), {})
    for attention in ("half", "secant", "constant"):
        check(lambda a, b: a @ b.T, halves(lambda a, b: a @ b.T), [A, B], rules("ah", "gate", attention=attention), {})
    check(sig(scores), sig(second(scores)), [A, B], query, {})
    check(lambda a, b: scores(a, b.sigmoid()), lambda a, b: scores(a, d(b.sigmoid())), [A, B], query, {})
    half = rules("ah", "gate", gate="half", attention="query")
    check(sig(scores), sig(halves(scores)), [A, B], half, {})
    check(lambda a, b: a.tanh() @ b.tanh().T, lambda a, b: a.tanh() @ d(b.tanh()).T, [A, B], half, {})
    check(mul, halves(mul), [A, B], query, {})


@pytest.mark.parametrize("attention", ["secant", "query"])
def test_weights_as_a_gate_are_held_where_scores_take_part(attention: str) -> None:
    """In a product that is no attention."""
    for gate in ("half", "constant"):
        active = rules("ah", "gate", gate=gate, attention=attention)
        check(lambda a, b: a.softmax(-1) * b, lambda a, b: d(a.softmax(-1)) * b, [A, B], active)
        check(lambda a, b: b * a.softmax(-1), lambda a, b: d(a.softmax(-1)) * b, [A, B], active)
        check(
            lambda a, b: torch.sigmoid(a) * b,
            sig(halves(mul)) if gate == "half" else sig(second(mul)),
            [A, B],
            active,
        )


def test_what_an_activation_needs_is_made_when_it_is_used() -> None:
    """The model may write over it later, also where no gradient is made."""

    def operation(a: Tensor, b: Tensor) -> Tensor:
        kept, other = a * 1.0, b * 1.0
        made = torch.tanh(kept) * torch.tanh(other) + torch.tanh(kept) * 2
        with torch.no_grad():
            kept.zero_()
            other.zero_()
        return made

    def reference(a: Tensor, b: Tensor) -> Tensor:
        return 0.5 * a * d(a.tanh() / a * b.tanh()) + 0.5 * b * d(b.tanh() / b * a.tanh()) + 2 * a * d(a.tanh() / a)

    check(operation, reference, [A, B], ALL)
