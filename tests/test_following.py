"""Attention weights in which scores take part: what is known of them after each operation, and who gets how much."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from weighing import drawn

import headwater as hw
from headwater.rules import Books, RuleSet, Scope
from headwater.rules.attention.facts import Even, exponent_of
from headwater.rules.attention.query import QUERY_SHARE
from headwater.rules.attention.shares import OFFSET, Tangent
from headwater.rules.lineage import Kind, lineage, mark
from headwater.rules.scope import Scope as Acting

NAMES = frozenset(("ah", "ln", "act", "gate"))
MASK = drawn(3, 4, seed=5) > 0
OPEN = torch.eye(3, 4, dtype=torch.bool)
FACTOR = drawn(3, 4, seed=6)
OTHER = drawn(3, 4, seed=7)

LINEAR: dict[str, Callable[[Tensor], Tensor]] = {
    "clone": lambda w: w.clone(),
    "a cast": lambda w: w.to(torch.float32).to(torch.float64),
    "neg": lambda w: -w,
    "dropout": lambda w: F.dropout(w, 0.5, training=False),
    "nan_to_num": lambda w: w.nan_to_num(0.0),
    "transpose": lambda w: w.transpose(0, 1),
    "view": lambda w: w.view(2, 6),
    "a part": lambda w: w[1:, ::2],
    "expand": lambda w: w[None].expand(2, 3, 4),
    "a number": lambda w: w * 2.5,
    "a number in front": lambda w: 2.5 * w,
    "a factor": lambda w: w * FACTOR,
    "a factor in front": lambda w: torch.mul(FACTOR, w),
    "a factor by name": lambda w: torch.mul(input=FACTOR, other=w),
    "a divisor": lambda w: w / FACTOR,
    "a divisor by name": lambda w: torch.div(w, other=FACTOR),
    "masked_fill": lambda w: w.masked_fill(MASK, 0),
    "masked_fill by name": lambda w: torch.masked_fill(input=w, mask=MASK, value=0.0),
    "where": lambda w: torch.where(MASK, w, 0.0),
    "where, the other way": lambda w: torch.where(MASK, 0, w),
    "where by name": lambda w: torch.where(condition=MASK, input=w, other=0.0),
    "a sum": lambda w: w.sum(0),
    "a mean": lambda w: w.mean(1, keepdim=True),
    "in place": lambda w: (w * 1.0).mul_(FACTOR),
    "in place, divided": lambda w: (w * 1.0).div_(3.0),
    "in place, filled": lambda w: (w * 1.0).masked_fill_(MASK, 0.0),
}
OF_TWO: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "a sum": lambda w, v: w + v,
    "a difference": lambda w, v: w - v,
    "by name": lambda w, v: torch.add(w, other=v),
    "cat": lambda w, v: torch.cat([w, v], 1),
    "stack": lambda w, v: torch.stack((v, w)),
    "in place": lambda w, v: (w * 1.0).add_(v),
}
ELSE: dict[str, Callable[[Tensor], Any]] = {
    "a number is added": lambda w: w + 1.0,
    "a number is in front": lambda w: 1.0 - w,
    "a number is subtracted": lambda w: torch.sub(w, 2),
    "a constant is added": lambda w: w + OTHER,
    "beside a constant": lambda w: torch.cat([w, OTHER]),
    "beside a constant, stacked": lambda w: torch.stack([OTHER, w]),
    "ones in place of some": lambda w: w.masked_fill(MASK, 1.0),
    "a tensor in place of some": lambda w: w.masked_fill(MASK, torch.tensor(0.5, dtype=w.dtype)),
    "others in place of some": lambda w: torch.where(MASK, w, OTHER),
    "others in place of some, in front": lambda w: torch.where(MASK, OTHER, w),
    "ones in place of some, by where": lambda w: torch.where(MASK, w, 1.0),
    "several": lambda w: w.chunk(2, -1)[0],
    "several, unbound": lambda w: w.unbind(0)[1],
    "a square": lambda w: w * w,
    "a number is added in place": lambda w: (w * 1.0).add_(1.0),
}


def following(attention: str = "secant") -> Scope:
    return Acting(RuleSet(NAMES, attention=attention), Books(1), {}, {})


def leaves(count: int) -> list[Tensor]:
    return [drawn(3, 4, seed=20 + number).requires_grad_() for number in range(count)]


def known(result: Tensor) -> Even | None:
    root = lineage(result).root
    return root if isinstance(root, Even) else None


def check(found: Even | None, expected: list[Tensor], leaves: list[Tensor]) -> None:
    """What is known is what the operation makes of the line and of even weights, gradients included."""
    assert found is not None
    line, even = expected
    torch.testing.assert_close(found.line, line)
    torch.testing.assert_close(found.weights, even)
    assert not found.weights.requires_grad
    upstream = drawn(*line.shape, seed=9)
    ours, theirs = (
        torch.autograd.grad((one * upstream).sum(), leaves, retain_graph=True) for one in (found.line, line)
    )
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", LINEAR)
def test_through_a_linear_operation_line_and_even_weights_go_along(name: str) -> None:
    (leaf,) = leaves(1)
    scores, operation = leaf * 1, LINEAR[name]
    with following():
        weights = scores.softmax(-1)
        root = known(weights)
        result = operation(weights)
    assert root is not None
    assert lineage(result).kind is Kind.WEIGHTS
    torch.testing.assert_close(root.weights, torch.full((3, 4), 0.25, dtype=torch.float64))
    check(known(result), [operation(root.line), operation(root.weights)], [leaf])
    torch.testing.assert_close(result.detach(), operation(leaf.detach().softmax(-1)))


@pytest.mark.parametrize("name", OF_TWO)
def test_through_a_linear_operation_of_two(name: str) -> None:
    both, operation = leaves(2), OF_TWO[name]
    one, two = (leaf * 1 for leaf in both)
    with following():
        first, second = one.softmax(-1), two.softmax(-1)
        roots = [known(first), known(second)]
        result = operation(first, second)
    assert roots[0] is not None
    assert roots[1] is not None
    expected = [operation(roots[0].line, roots[1].line), operation(roots[0].weights, roots[1].weights)]
    check(known(result), expected, both)


@pytest.mark.parametrize("name", ELSE)
def test_anything_else_is_not_known_of(name: str) -> None:
    (leaf,) = leaves(1)
    scores = leaf * 1
    with following():
        result = ELSE[name](scores.softmax(-1))
    assert known(result) is None


def test_two_of_which_one_is_another_signal() -> None:
    both = leaves(2)
    one, two = (leaf * 1 for leaf in both)
    for operation in (torch.add, torch.sub, torch.mul):
        with following():
            first, second = operation(one.softmax(-1), two), operation(two, one.softmax(-1))
        assert known(first) is known(second) is None
    with following():
        weights = one.softmax(-1)
        root = known(weights)
        divided = weights / two.exp().sum(-1, keepdim=True)
        over_others = weights / two.softmax(0).sum(-1, keepdim=True)
        joined = torch.cat([weights, two])
        squared = weights * weights
    assert root is not None
    assert known(joined) is known(squared) is None
    below = two.detach().exp().sum(-1, keepdim=True)
    check(known(divided), [root.line / below, root.weights / below], both[:1])
    below = two.detach().softmax(0).sum(-1, keepdim=True)
    check(known(over_others), [root.line / below, root.weights / below], both[:1])


def test_weights_over_their_sum_are_a_softmax_once_more() -> None:
    (leaf,) = leaves(1)
    scores = leaf * 1
    with following():
        weights = scores.softmax(-1).masked_fill(MASK, 0.0)
        again = weights / weights.sum(-1, keepdim=True)
    root = known(again)
    assert root is not None
    masked = leaf.detach().masked_fill(MASK, -torch.inf).softmax(-1)
    torch.testing.assert_close(again.detach().nan_to_num(0.0), masked.nan_to_num(0.0))
    seen = (~MASK).double()
    torch.testing.assert_close(root.weights, (seen / seen.sum(-1, keepdim=True)).nan_to_num(0.0))


EXPONENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "as it is": lambda e: e,
    "clone": lambda e: e.clone(),
    "a factor": lambda e: e * FACTOR,
    "a factor in front": lambda e: FACTOR * e,
    "a divisor": lambda e: e / FACTOR,
    "masked_fill": lambda e: e.masked_fill(MASK, 0.0),
    "where": lambda e: torch.where(MASK, e, 0.0),
    "two of them": lambda e: (e * FACTOR).masked_fill(MASK, 0.0),
    "three": lambda e: ((e * FACTOR) / OTHER) * 2.0,
    "in place": lambda e: e.clone().mul_(FACTOR),
    "in place, twice": lambda e: e.clone().mul_(FACTOR).masked_fill_(MASK, 0.0),
    "as it was": lambda e: e.clone().nan_to_num_(0.0),
}
NO_EXPONENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "a sum": lambda e: e + 1.0,
    "a square": lambda e: e * e,
    "below": lambda e: 1.0 / e,
    "by itself": lambda e: e / e.sum(),
    "others in place of some": lambda e: torch.where(MASK, e, OTHER),
    "ones in place of some": lambda e: e.masked_fill(MASK, 1.0),
    "turned": lambda e: e.t(),
    "larger": lambda e: e * drawn(2, 3, 4),
    "a number in place": lambda e: e.clone().add_(1.0),
    "a power in place": lambda e: e.clone().pow_(2),
    "into a constant": lambda e: FACTOR.clone().mul_(e),
    "two": lambda e: torch.cat([e, e]),
}


@pytest.mark.parametrize("name", EXPONENTS)
def test_exponentials_times_a_constant_are_known(name: str) -> None:
    (leaf,) = leaves(1)
    scores = leaf * 1
    with following():
        found = exponent_of(EXPONENTS[name](scores.exp()))
    assert found is not None
    assert found.scores is scores
    base = torch.ones(3, 4, dtype=torch.float64) if found.base is None else found.base
    torch.testing.assert_close(base, EXPONENTS[name](torch.ones(3, 4, dtype=torch.float64)))
    assert not base.requires_grad


@pytest.mark.parametrize("name", NO_EXPONENTS)
def test_exponentials_that_are_something_else_are_not(name: str) -> None:
    (leaf,) = leaves(1)
    scores = leaf * 1
    with following():
        assert exponent_of(NO_EXPONENTS[name](scores.exp())) is None


def test_what_is_written_into_does_not_change_what_is_known_of_another() -> None:
    (leaf,) = leaves(1)
    scores = leaf * 1
    with following():
        first = scores.exp() * FACTOR
        first.clone().mul_(OTHER)
        found = exponent_of(first)
    assert found is not None
    assert found.base is not None
    assert found.base.tolist() == FACTOR.tolist()


def test_weights_times_one_over_their_sum_are_a_softmax_once_more() -> None:
    (leaf,) = leaves(1)
    scores = leaf * 1
    with following():
        weights = scores.softmax(-1).masked_fill(OPEN, 0.0)
        divided, times = weights / weights.sum(-1, keepdim=True), weights * (1 / weights.sum(-1, keepdim=True))
    one, other = known(divided), known(times)
    assert one is not None
    assert other is not None
    torch.testing.assert_close(one.weights, other.weights)
    torch.testing.assert_close(one.line, other.line)


def test_only_where_scores_take_part() -> None:
    (leaf,) = leaves(1)
    scores = leaf * 1
    with following("query"):
        weights = scores.softmax(-1)
        assert lineage(weights).kind is Kind.WEIGHTS
        assert known(weights) is None
        assert exponent_of(scores.exp()) is not None
    with following("constant"):
        assert exponent_of(scores.exp()) is None


# The query takes part


class Attending(nn.Module):
    """Attention over three inputs of which some are constants, and a weight for each number that comes out."""

    def __init__(self, taking: str, attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.taking, self.attend = taking, attend
        self.register_buffer("constants", drawn(3, 1, 2, 4, 5, seed=11))

    def forward(self, x: Tensor) -> Tensor:
        parts = [x[:, i] if name in self.taking else self.constants[i] for i, name in enumerate("qkv")]
        return (self.attend(*parts) * drawn(2, 4, 5, seed=12)).sum((1, 2, 3))[:, None]


SPELLED: dict[str, tuple[Callable[[Tensor, Tensor, Tensor], Tensor], dict[str, Any]]] = {
    "plain": (F.scaled_dot_product_attention, {}),
    "by name": (lambda q, k, v: F.scaled_dot_product_attention(value=v, key=k, query=q), {}),
    "a mask": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, torch.ones(4, 4).tril().bool()),
        {"mask": torch.ones(4, 4).tril().bool()},
    ),
    "a mask by name": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=torch.ones(4, 4).tril().bool()),
        {"mask": torch.ones(4, 4).tril().bool()},
    ),
    "causal": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, None, 0.0, True),
        {"mask": torch.ones(4, 4).tril().bool()},
    ),
    "a scale": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3), {"scale": 0.3}),
    "a mask and a scale": (
        lambda q, k, v: F.scaled_dot_product_attention(q, key=k, value=v, is_causal=True, scale=0.7),
        {"mask": torch.ones(4, 4).tril().bool(), "scale": 0.7},
    ),
}


def by_hand(taking: str, x: Tensor, constants: Tensor, mask: Tensor | None = None, scale: float | None = None) -> Any:
    """Relevance of each input, and the offset: the query alone asks, else the keys do."""
    parts = [(x[:, i] if name in taking else constants[i]).clone().requires_grad_() for i, name in enumerate("qkv")]
    scores = parts[0] @ parts[1].mT * (1 / math.sqrt(5) if scale is None else scale)
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    result = scores.softmax(-1) @ parts[2]
    upstream = drawn(2, 4, 5, seed=12)
    slopes = torch.autograd.grad((result * upstream).sum(), parts)
    products = [(part * slope).detach() for part, slope in zip(parts, slopes, strict=True)]
    asker = 0 if "q" in taking else 1 if "k" in taking else None
    share = QUERY_SHARE if "v" in taking else 1.0
    found = torch.zeros_like(x)
    if asker is not None:
        found[:, asker] = share * products[asker]
        if "v" in taking:
            found[:, 2] = (1 - QUERY_SHARE) * products[2]
        offset = share * (float((result * upstream).sum().detach()) - float(products[asker].sum()))
    else:
        found[:, 2], offset = products[2], 0.0
    return found, offset


@pytest.mark.parametrize("taking", ["qkv", "q", "k", "qk", "qv", "kv", "v"])
@pytest.mark.parametrize("name", SPELLED)
def test_a_fused_attention_whose_query_takes_part_is_what_the_sums_say(name: str, taking: str) -> None:
    """Element by element, whoever is a signal; and nothing for the keys while a query asks."""
    assert QUERY_SHARE == 0.6  # docs/studies/earlier-language-default.md says how it was chosen
    attend, options = SPELLED[name]
    model = Attending(taking, attend).eval()
    x = drawn(1, 3, 2, 4, 5, seed=13)
    (e,) = hw.explain(model, x, method="lrp(ah=query)", target=0)
    found, offset = by_hand(taking, x, model.constants, **options)
    torch.testing.assert_close(e.relevance.reshape(found.shape), found, rtol=1e-9, atol=1e-12)
    told = {line: amount for line, amount in e.ledger.constants.items() if OFFSET in line}
    assert sum(told.values()) == pytest.approx(offset, abs=1e-12)
    assert list(told) == ([OFFSET] if taking != "v" else [])
    assert e.ledger.error < 1e-12


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("dead", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_softmax_that_is_written_out_has_its_own_gradient_and_an_offset(
    axis: int, dead: bool, dtype: torch.dtype
) -> None:
    """Along any axis; a query that may look at nothing passes nothing on; a softmax may be in another type."""
    hidden = torch.zeros(3, 4, dtype=torch.bool)
    hidden[0, 2] = True
    if dead:
        hidden[1, :] = True
        hidden[:, 3] = True
    x, upstream, scope = drawn(3, 4, seed=15), drawn(3, 4, seed=14), following("query")
    leaf = x.clone().requires_grad_()
    scores = (leaf * 1.5).masked_fill(hidden, -torch.inf)
    with scope:
        weights = torch.softmax(scores, axis, dtype=dtype)
    assert (lineage(weights).kind, weights.dtype) == (Kind.WEIGHTS, dtype)
    score = (weights.masked_fill(weights.isnan(), 0.0).double() * upstream).sum()
    (slope,) = torch.autograd.grad(score, leaf)
    other = x.clone().requires_grad_()
    plain = (other * 1.5).masked_fill(hidden, -1e30).softmax(axis).masked_fill(hidden, 0.0)
    plain = plain.masked_fill(hidden.all(axis, keepdim=True), 0.0)
    expected = (plain * upstream).sum()
    (theirs,) = torch.autograd.grad(expected, other)
    exact = {"rtol": 1e-9, "atol": 1e-12} if dtype is torch.float64 else {"rtol": 1e-4, "atol": 1e-6}
    torch.testing.assert_close(score, expected, **exact)
    torch.testing.assert_close(slope, theirs, **exact)
    (site,) = scope.books.sites
    assert site.name == OFFSET
    offset = float(expected.detach() - (x * theirs).sum())
    assert float(scope.books.amounts[0]) == pytest.approx(offset, abs=1e-12 if dtype is torch.float64 else 1e-6)


def test_the_gradient_of_a_softmax_by_its_weights() -> None:
    """J g, and zero where there are no weights."""
    scores, gradient = drawn(3, 4).requires_grad_(), drawn(3, 4, seed=8)
    weights = scores.softmax(0)
    (expected,) = torch.autograd.grad(weights, scores, gradient)
    kept = weights.detach().clone()
    torch.testing.assert_close(Tangent(kept, 0).back(gradient), expected)
    assert kept.tolist() == weights.tolist()
    dead = torch.tensor([[torch.nan, torch.nan], [0.25, 0.75]])
    assert Tangent(dead, -1).back(torch.tensor([[3.0, 5.0], [1.0, 1.0]])).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_the_offset_is_named_by_its_module() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Attending("qkv", F.scaled_dot_product_attention)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x)

    (e,) = hw.explain(Outer().eval(), drawn(1, 3, 2, 4, 5, seed=13), method="lrp(ah=query)", target=0)
    assert [line for line in e.ledger.constants if OFFSET in line] == [f"inner: {OFFSET}"]


@pytest.mark.parametrize("write", [lambda w: w.zero_(), lambda w: w.mul_(2.0), lambda w: w[0].fill_(0.5)])
def test_weights_that_the_model_writes_over_are_spared(write: Callable[[Tensor], Any]) -> None:
    """What waits for the way back is what they were."""
    slopes = []
    for writes in (False, True):
        leaf, scope = drawn(3, 4, seed=15).requires_grad_(), following("query")
        scores = leaf * 1.5
        with scope:
            weights = torch.softmax(scores, -1)
            result = weights.clone()
            if writes:
                write(weights)
        slopes.append(torch.autograd.grad((result * drawn(3, 4, seed=14)).sum(), leaf)[0].tolist())
    assert slopes[0] == slopes[1]


def test_a_mark_is_not_shared_by_what_is_only_like_it() -> None:
    x = leaves(1)[0] * 1
    mark(x, Kind.WEIGHTS)
    assert known(x) is None
