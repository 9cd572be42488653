"""Attention as one operation, or a softmax by itself: what each operand gets, against the rule written out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from scoped import Operation, amount, check, expected, gradients_of, passed, rules
from torch import Tensor
from weighing import drawn

from headwater.kernels.capped import capped_attention
from headwater.rules.attention import capped
from headwater.rules.attention.call import attention_scores, attention_weights, scores_with_mask
from headwater.rules.attention.constant import own_memory
from headwater.rules.attention.secant import even_of, even_weights, secant

H, N, M, E = 2, 4, 5, 3  # heads, queries, keys, their size
Q, K, V = drawn(1, H, N, E, seed=1), drawn(1, H, M, E, seed=2), drawn(1, H, M, 6, seed=3)
ALLOWED = (drawn(N, M, seed=4) > -0.5) | (torch.arange(M) == 0)
BIAS = 2 * drawn(1, H, N, M, seed=5)
Attention = Callable[..., Tensor]


def d(x: Tensor) -> Tensor:
    return x.detach()


def share(x: Tensor, part: float) -> Tensor:
    return part * x + (1 - part) * d(x)


def seen(options: dict[str, Any], n: int, m: int) -> Tensor:
    """Where a query may look."""
    allowed = torch.ones(n, m, dtype=torch.bool)
    if options.get("is_causal"):
        allowed = allowed.tril()
    mask = options.get("attn_mask")
    return allowed & mask if isinstance(mask, Tensor) and mask.dtype is torch.bool else allowed


def scores(q: Tensor, k: Tensor, options: dict[str, Any]) -> Tensor:
    groups = q.shape[-3] // k.shape[-3] if q.dim() > 2 else 1
    k = k.repeat_interleave(groups, -3) if groups > 1 else k
    made = q @ k.mT * options.get("scale", q.shape[-1] ** -0.5)
    mask = options.get("attn_mask")
    return made + mask if isinstance(mask, Tensor) and mask.dtype is not torch.bool else made


def weights(s: Tensor, allowed: Tensor) -> Tensor:
    return s.masked_fill(~allowed, -math.inf).softmax(-1)


def line(s: Tensor, allowed: Tensor) -> tuple[Tensor, Tensor]:
    """p_j = u_j + l_j (s_j - sum_k w_k s_k) of even attention u over what is allowed, from its definition."""
    p, own = d(weights(s, allowed)), d(s)
    u = (allowed.to(s.dtype) / allowed.sum(-1, keepdim=True)).expand_as(p)
    c = (u * own.exp()).sum(-1, keepdim=True).log()
    low, high = (u * own).sum(-1, keepdim=True), (p * own).sum(-1, keepdim=True)
    part = torch.where(high == low, 0.0, (c - low) / (high - low))
    w = u + part * (p - u)
    slope = torch.where((own - c).abs() < 1e-9, u, (p - u) / (own - c))
    return u + slope * (s - (w * s).sum(-1, keepdim=True)), u


MASKS: dict[str, dict[str, Any]] = {
    "none": {},
    "scaled": {"scale": 0.9},
    "causal": {"is_causal": True},
    "allowed": {"attn_mask": ALLOWED},
    "added": {"attn_mask": BIAS},
    "added to all": {"attn_mask": BIAS[0, 0, :1]},
}


def repeated(v: Tensor) -> Tensor:
    return v.repeat_interleave(H // v.shape[-3], -3) if v.dim() > 2 else v


def reference(mode: str, options: dict[str, Any]) -> Attention:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        allowed = seen(options, q.shape[-2], k.shape[-2])
        if mode == "constant":
            return d(weights(scores(q, k, options), allowed)) @ repeated(v)
        if mode == "half":
            return weights(scores(share(q, 0.25), share(k, 0.25), options), allowed) @ repeated(share(v, 0.5))
        if mode == "query":
            return weights(scores(share(q, 0.6), d(k), options), allowed) @ repeated(share(v, 0.4))
        if mode == "gradient":
            return weights(scores(q, k, options), allowed) @ repeated(v)
        s = scores(share(q, 0.5), share(k, 0.5), options)
        made, even = line(s, allowed)
        return 0.5 * (d(weights(s, allowed)) + even) @ repeated(v) + 0.5 * (made - even) @ repeated(d(v))

    return attend


ACTIVE = {mode: rules("ah", attention=mode) for mode in ("constant", "half", "query", "secant")} | {
    "gradient": rules("gate")
}


def fused(options: dict[str, Any], how: str = "named") -> Attention:
    more = {"enable_gqa": True} if how == "groups" else {}

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if how == "by position":
            rest = {"scale": options["scale"]} if "scale" in options else {}
            mask, causal = options.get("attn_mask"), options.get("is_causal", False)
            return F.scaled_dot_product_attention(q, k, v, mask, 0.0, causal, **rest)
        if how == "operands named":
            return F.scaled_dot_product_attention(value=v, key=k, query=q, **options)
        return F.scaled_dot_product_attention(q, k, v, **options, **more)

    return attend


@pytest.mark.parametrize("how", ["named", "by position", "operands named"])
@pytest.mark.parametrize("mode", ACTIVE)
@pytest.mark.parametrize("name", MASKS)
def test_queries_keys_and_values(name: str, mode: str, how: str) -> None:
    options = MASKS[name]
    found = check(fused(options, how), reference(mode, options), [Q, K, V], ACTIVE[mode])
    assert found.met == ({} if mode == "gradient" else {"ah": 1})
    if mode == "secant" and "added" in name:
        assert found.lines["attention mask"] == pytest.approx(mask_amount(options["attn_mask"]), abs=1e-10)
    elif mode != "query":
        assert found.lines == {}
    relevance = sum(float((x * g).sum()) for x, g in zip((Q, K, V), found.gradients, strict=True))
    if mode not in ("gradient", "half"):
        total = amount(found.value, *found.value.shape)
        assert relevance + sum(found.lines.values()) == pytest.approx(total, abs=1e-10)


def mask_amount(mask: Tensor) -> float:
    """What a mask that is added gets if it is a signal."""
    leaf = mask.clone().requires_grad_()
    made, even = line(Q @ K.mT * E**-0.5 + leaf, torch.ones(N, M, dtype=torch.bool))
    return float((gradients_of(0.5 * (made - even) @ V, [leaf])[0] * mask).sum())


@pytest.mark.parametrize("mode", ACTIVE)
@pytest.mark.parametrize("axes", ["groups", "three axes", "two axes"])
def test_other_axes(axes: str, mode: str) -> None:
    leaves = {
        "groups": [Q, K[:, :1], V[:, :1]],
        "three axes": [Q[0], K[0], V[0]],
        "two axes": [Q[0, 0], K[0, 0], V[0, 0]],
    }
    how = "groups" if axes == "groups" else "named"
    check(fused({}, how), reference(mode, {}), leaves[axes], ACTIVE[mode])


@pytest.mark.parametrize("mode", ACTIVE)
@pytest.mark.parametrize("alive", ["q", "k", "v", "qk", "qv", "kv"])
def test_some_of_them_are_constants(mode: str, alive: str) -> None:
    """What is no signal gets nothing, and takes nothing from the others but in the two rules that say so."""
    own = dict(zip("qkv", (Q, K, V), strict=True))

    def of(attend: Attention) -> Operation:
        def operation(*leaves: Tensor) -> Tensor:
            given = {**own, **dict(zip(alive, leaves, strict=True))}
            return attend(given["q"], given["k"], given["v"])

        return operation

    leaves = [own[name] for name in alive]
    if mode == "query":
        asked = 0.6 if "v" in alive else 1.0
        asker = "q" if "q" in alive else "k"

        def by_query(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            pair = (share(q, asked), d(k)) if asker == "q" else (q, share(k, asked))
            only_values = asker not in alive
            return weights(scores(*pair, {}), seen({}, N, M)) @ (v if only_values else share(v, 0.4))

        check(of(fused({})), of(by_query), leaves, ACTIVE[mode])
        return
    check(of(fused({})), of(reference(mode, {})), leaves, ACTIVE[mode])


def test_a_mask_that_is_a_signal_is_no_line() -> None:
    """Its share of the scores is its own; held with them where weights are constants."""
    for mode in ("secant", "constant"):
        leaves = [Q, K, V, BIAS]
        operation: Operation = lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m)  # noqa: E731
        found = check(
            operation, lambda q, k, v, m, mode=mode: reference(mode, {"attn_mask": m})(q, k, v), leaves, ACTIVE[mode]
        )
        assert found.lines == {}


def test_a_query_that_may_look_at_nothing() -> None:
    mask = ALLOWED.clone()
    mask[1] = False
    for mode in ("constant", "secant"):
        found = passed(fused({"attn_mask": mask}), [Q, K, V], ACTIVE[mode])
        rest = torch.arange(N) != 1
        upstream = drawn(H * N * 6, seed=9).reshape(1, H, N, 6)
        leaves = [x.clone().requires_grad_() for x in (Q[:, :, rest], K, V)]
        made = reference(mode, {"attn_mask": mask[rest]})(*leaves)
        theirs = torch.autograd.grad(made, leaves, upstream[:, :, rest], allow_unused=True)
        for ours, other, which in zip(found.gradients, theirs, (rest, slice(None), slice(None)), strict=True):
            if other is not None:
                torch.testing.assert_close(ours[:, :, which], other)
        assert float(found.gradients[0][:, :, 1].abs().sum()) == 0


SPELLED: dict[str, tuple[Operation, int]] = {
    "torch": (lambda a: torch.softmax(a, -1), 1),
    "another axis": (lambda a: torch.softmax(a, 0), 0),
    "named": (lambda a: a.softmax(dim=0), 0),
    "function": (lambda a: F.softmax(a, dim=-1), 1),
    "from the end": (lambda a: a.softmax(-2), 0),
    "typed": (lambda a: torch.softmax(a, 1, dtype=torch.float64), 1),
}
A, B = drawn(3, 4, seed=1), drawn(3, 4, seed=2)


@pytest.mark.parametrize("name", SPELLED)
def test_a_softmax(name: str) -> None:
    """Held where two rules are on, by its gradient where one is; by its secant or its tangent, with what they leave."""
    operation, axis = SPELLED[name]
    held = passed(lambda a: operation(a) + 0 * a, [A], rules("ah", "gate"))
    assert float(held.gradients[0].abs().sum()) == 0
    assert held.met == {"ah": 1}
    assert held.lines == pytest.approx({"softmax": amount(A.softmax(axis), 3, 4)})
    assert held.sorts["softmax"].name == "HELD"
    for active in (rules("ah"), rules("gate"), rules("ah", "gate", attention="half")):
        assert check(operation, operation, [A], active, {}).met == {}

    def secants(a: Tensor) -> Tensor:
        turned = a.transpose(axis, -1)
        return line(turned, torch.ones_like(turned, dtype=torch.bool))[0].transpose(axis, -1)

    even = amount(torch.full_like(A, 1 / A.shape[axis]), 3, 4)
    check(operation, secants, [A], rules("ah", attention="secant"), {"even attention": even})
    p = A.softmax(axis)
    rest = p - p * (A - (p * A).sum(axis, keepdim=True))
    offset = {"attention offset": amount(rest, 3, 4)}
    check(operation, operation, [A], rules("ah", attention="query"), offset)


@pytest.mark.filterwarnings("ignore:Implicit dimension")
@pytest.mark.parametrize("shape", [(4,), (3, 4), (3, 4, 2), (2, 3, 2, 2)])
@pytest.mark.parametrize("mode", ["constant", "secant", "query"])
def test_a_softmax_that_is_asked_without_an_axis(mode: str, shape: tuple[int, ...]) -> None:
    """It takes one by itself, also where rows have no weights."""
    x = drawn(*shape, seed=5)
    dead = torch.zeros(shape, dtype=torch.bool)
    axis = 0 if len(shape) in (1, 3) else 1
    if len(shape) > 1:
        dead.select(1 - axis, 1).fill_(True)
    found, theirs = (
        passed(lambda a, f=f: f(a.masked_fill(dead, -math.inf)).nan_to_num(0.0), [x], rules("ah", attention=mode))
        for f in (F.softmax, lambda a: a.softmax(axis))
    )
    torch.testing.assert_close(found.gradients, theirs.gradients)
    assert found.lines == pytest.approx(theirs.lines)


@pytest.mark.parametrize("mode", ["constant", "half", "secant", "query"])
@pytest.mark.parametrize("dead", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_softmax_with_a_mask(axis: int, dead: bool, mode: str) -> None:
    """Nothing goes to what is masked, nor to rows that may look at nothing, whose weights models fill."""
    mask = drawn(3, 4, seed=7) > 0.8
    mask[2, 3] = True
    if dead:
        mask.select(1 - axis, 1).fill_(True)
    else:
        mask.select(axis, 0).fill_(False)

    def operation(a: Tensor) -> Tensor:
        return a.masked_fill(mask, -math.inf).softmax(axis).masked_fill(mask, 0.0)

    found = passed(operation, [A], rules("ah", attention=mode))
    lost = mask.all(axis, keepdim=True)
    filled = A.masked_fill(mask & ~lost, -math.inf)
    assert bool(found.gradients[0].isfinite().all())
    assert float(found.gradients[0][mask].abs().sum()) == 0
    if mode in ("constant", "half", "query"):
        leaf = A.clone().requires_grad_()
        made = leaf.masked_fill(mask & ~lost, -math.inf).softmax(axis).masked_fill(mask, 0.0)
        torch.testing.assert_close(found.gradients[0], gradients_of(made, [leaf])[0])
    else:
        even = even_of((~mask).double(), axis)
        assert sum(found.lines.values()) == found.lines["even attention"] == pytest.approx(amount(even, 3, 4))
        relevance = float((A * found.gradients[0]).sum()) + found.lines["even attention"]
        assert relevance == pytest.approx(amount(filled.softmax(axis).masked_fill(mask, 0.0), 3, 4), abs=1e-10)


def test_of_exponentials_only_those_of_a_logarithm_of_weights_are_weights() -> None:
    both = rules("ah", "gate")
    assert passed(lambda a: a.log_softmax(-1).exp() + 0 * a, [A], both).met == {"ah": 1}
    assert check(lambda a: a.exp(), lambda a: a.exp(), [A], both, {}).met == {}


def test_rows_without_weights_in_another_type() -> None:
    def operation(a: Tensor) -> Tensor:
        masked = a.masked_fill(torch.tensor([[True], [False], [False]]), -math.inf)
        return torch.softmax(masked, -1, dtype=torch.float32).nan_to_num(0.0).double()

    (found,) = passed(operation, [A], rules("ah")).gradients
    (theirs,) = expected(lambda a: a.softmax(-1) * torch.tensor([[0.0], [1.0], [1.0]]), [A])
    torch.testing.assert_close(found, theirs, rtol=1e-5, atol=1e-6)


def test_what_a_coarser_type_calls_nothing_is_nothing() -> None:
    """-1e300 is no number of float32: a row of it has no weights there."""

    def operation(a: Tensor) -> Tensor:
        masked = a + torch.tensor([[-1e300], [0.0], [0.0]], dtype=a.dtype)
        return torch.softmax(masked, -1, dtype=torch.float32).nan_to_num(0.0).double()

    (found,) = passed(operation, [A], rules("ah")).gradients
    assert bool(found.isfinite().all())
    assert float(found[1:].abs().sum()) > 0


def test_scores_that_hardly_differ() -> None:
    """What rounding leaves of weights less even ones says nothing: the slope lies between the two."""
    fine = 3e-5 * drawn(6, 8, seed=4)
    found, theirs = [], []
    for s in (fine.float(), fine):
        leaf = s.clone().requires_grad_()
        p = s.softmax(-1)
        found += gradients_of(secant(leaf, p, even_weights(p)), [leaf])
        other = s.clone().requires_grad_()
        theirs += gradients_of(other.softmax(-1), [other])
    torch.testing.assert_close(found[0].double(), theirs[1], rtol=1e-4, atol=1e-5)


def by_hand(a: Tensor, extra: float = 0.0) -> Tensor:
    made = a.exp()
    return made / (made.sum(-1, keepdim=True) + extra)


HANDS: dict[str, tuple[Operation, Operation]] = {
    "plain": (by_hand, lambda a: a.softmax(-1)),
    "of another axis": (lambda a: a.exp() / a.exp().sum(0, keepdim=True), lambda a: a.softmax(0)),
    "masked between": (
        lambda a: (lambda e: e / e.sum(-1, keepdim=True))(a.exp().masked_fill(B > 0.3, 0.0)),
        lambda a: a.masked_fill(B > 0.3, -math.inf).softmax(-1),
    ),
    "in place": (lambda a: a.exp().div_(a.exp().sum(-1, keepdim=True)), lambda a: a.softmax(-1)),
    "a softmax once more": (
        lambda a: (lambda p: p / p.sum(-1, keepdim=True))(a.softmax(-1)),
        lambda a: a.softmax(-1),
    ),
}


@pytest.mark.parametrize("mode", ["secant", "query"])
@pytest.mark.parametrize("name", HANDS)
def test_a_softmax_by_hand_is_a_softmax(name: str, mode: str) -> None:
    """Times values, and by itself."""
    written, plain = HANDS[name]
    active = rules("ah", "act", "gate", attention=mode)
    for use in (lambda p, b: p @ b.T, lambda p, b: p + 0 * b):
        ours = passed(lambda a, b, use=use: use(written(a), b), [A, B], active)
        theirs = passed(lambda a, b, use=use: use(plain(a), b), [A, B], active)
        if name == "masked between" and mode == "query":
            continue  # the mask of exponentials is no part of the scores
        torch.testing.assert_close(ours.gradients, theirs.gradients)
        assert sum(ours.lines.values()) == pytest.approx(sum(theirs.lines.values()), abs=1e-10)


def test_more_than_the_sum_below_is_a_constant() -> None:
    """A sink: weights add up to less than one, and all of them is accounted for."""
    active = rules("ah", "gate", attention="secant")
    for extra in (0.5, 3.0):
        found = passed(lambda a, b, extra=extra: by_hand(a, extra) @ b.T, [A, B], active)
        relevance = sum(float((x * g).sum()) for x, g in zip((A, B), found.gradients, strict=True))
        assert float(found.gradients[0].abs().sum()) > 0
        assert found.lines["softmax"] != 0
        total = amount(by_hand(A, extra) @ B.T, 3, 3)
        assert relevance + sum(found.lines.values()) == pytest.approx(total, abs=1e-10)


def test_a_small_number_below_is_no_line() -> None:
    found = passed(lambda a: by_hand(a, 1e-14), [A], rules("ah", "gate", attention="secant"))
    assert abs(found.lines.get("softmax", 0.0)) == 0


NO_SOFTMAX: dict[str, Operation] = {
    "over a part of the sum": lambda a: a.exp() / a.exp()[:, :2].sum(-1, keepdim=True),
    "over the sum of all": lambda a: a.exp() / a.exp().sum((0, 1), keepdim=True),
    "over fewer axes": lambda a: a[0].exp() / a[0].exp().sum(),
    "over another axis than it was": lambda a: a.softmax(-1) / a.softmax(-1).sum(0, keepdim=True),
}


@pytest.mark.parametrize("name", NO_SOFTMAX)
def test_what_is_no_softmax_is_left_to_the_rule_for_gates(name: str) -> None:
    """The divisor is held, and nothing is said of even attention over it."""
    operation = NO_SOFTMAX[name]
    found = passed(operation, [A], rules("ah", "gate", attention="secant"))
    assert found.met["gate"] == 1
    if "another axis" not in name:
        assert found.lines == {}
        (theirs,) = expected(lambda a: (lambda y: a.exp() * d(y / a.exp()))(operation(a)), [A])
        if "fewer" not in name:
            torch.testing.assert_close(found.gradients[0], theirs)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("dim", [-1, 0, 1])
def test_the_secant_of_any_axis(dim: int, masked: bool) -> None:
    s = 3 * drawn(3, 4, 5, seed=8)
    allowed = drawn(3, 4, 5, seed=6) > -1 if masked else torch.ones(3, 4, 5, dtype=torch.bool)
    leaf = s.clone().requires_grad_()
    p = s.masked_fill(~allowed, -math.inf).softmax(dim)
    even = even_weights(p, dim)
    torch.testing.assert_close(even, allowed / allowed.sum(dim, keepdim=True).double())
    made = secant(leaf.masked_fill(~allowed, -math.inf), p, even, dim)
    torch.testing.assert_close(d(made), p)
    other = s.clone().requires_grad_()
    theirs = line(other.transpose(dim, -1), allowed.transpose(dim, -1))[0].transpose(dim, -1)
    torch.testing.assert_close(gradients_of(made, [leaf])[0], gradients_of(theirs * allowed, [other])[0])


def test_even_weights_of_nothing_are_nothing() -> None:
    base = torch.tensor([[1.0, 3.0], [0.0, 0.0]])
    assert even_of(base, -1).tolist() == [[0.25, 0.75], [0.0, 0.0]]
    assert even_of(base, 0).tolist() == [[1.0, 1.0], [0.0, 0.0]]


def test_the_secant_of_scores_of_another_type() -> None:
    s = drawn(2, 4).float()
    p = s.double().softmax(-1)
    assert secant(s, p, even_weights(p)).dtype is torch.float64


def test_queries_and_keys_that_are_cut_out_are_kept_alone() -> None:
    """What waits for the way back keeps no memory beside itself alive; what is whole is not copied."""
    one = drawn(2, 3, 12)
    q, k, _ = one.chunk(3, -1)
    for part, kept in zip((q, k), own_memory(q, k), strict=True):
        assert torch.equal(part, kept)
        assert kept.untyped_storage().nbytes() == part.nbytes
    q, k = drawn(2, 3, 4), drawn(2, 3, 4, seed=2)
    assert own_memory(q, k)[0] is q
    assert own_memory(q, k)[1] is k
    both = drawn(2, 2, 3, 4)
    assert own_memory(both[0], both[1])[0].data_ptr() == both.data_ptr()  # together they are all of it
    q, k = drawn(3, 4)[:2], drawn(2, 4, seed=2)
    assert own_memory(q, k)[0].untyped_storage().nbytes() == q.nbytes


def test_scores_of_two_types_are_made_in_that_of_the_queries() -> None:
    found = attention_scores(Q.float(), K, 0.5)
    assert found.dtype is torch.float32
    torch.testing.assert_close(found.double(), 0.5 * Q @ K.mT, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("cap", [0.0, 0.8])
def test_scores_that_are_capped(cap: float) -> None:
    made = scores_with_mask(Q, K, BIAS, {"cap": cap, "scale": 2.0})
    plain = 2 * Q @ K.mT
    torch.testing.assert_close(made, (cap * (plain / cap).tanh() if cap else plain) + BIAS)


def test_sinks_take_weight_and_have_no_column() -> None:
    sinks = drawn(H, seed=7)
    for block in (slice(None), slice(1, 3)):
        made = attention_weights(Q, K, None, {"sinks": sinks}, block)
        whole = torch.cat([Q @ K.mT * E**-0.5, sinks.reshape(1, H, 1, 1).expand(1, H, N, 1)], -1).softmax(-1)
        torch.testing.assert_close(made, whole[:, :, block, :-1])


SINKS = drawn(H, seed=7)
CAPPED: dict[str, dict[str, Any]] = {
    "plain": {},
    "capped": {"cap": 0.8},
    "scaled": {"scale": 0.9, "cap": 0.8},
    "causal": {"is_causal": True, "cap": 0.8},
}


def steps(options: dict[str, Any], mask: Tensor | None, sinks: Tensor | None) -> Attention:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        groups = q.shape[1] // k.shape[1]
        if groups > 1:
            k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        s = q @ k.mT * options.get("scale", E**-0.5)
        cap = options.get("cap")
        if cap:
            s = torch.tanh(s / cap) * cap
        low = torch.finfo(s.dtype).min
        if options.get("is_causal"):
            s = s + torch.zeros(N, M, dtype=s.dtype).masked_fill(~torch.ones(N, M, dtype=torch.bool).tril(), low)
        if mask is not None:
            s = s + (
                torch.zeros(mask.shape, dtype=s.dtype).masked_fill(~mask, low) if mask.dtype is torch.bool else mask
            )
        if sinks is not None:
            s = torch.cat([s, sinks.reshape(1, H, 1, 1).expand(len(q), H, N, 1)], -1)
        p = s.softmax(-1)
        return (p if sinks is None else p[..., :-1]) @ v

    return attend


CAPS = {
    "constant": rules("ah"),
    "constant, all": rules("ah", "act", "gate"),
    "half": rules("ah", "act", "gate", gate="half", attention="half"),
    "query": rules("ah", "act", "gate", gate="half", attention="query"),
    "secant": rules("ah", "act", "gate", gate="half", attention="secant"),
    "half and a gate": rules("ah", "act", "gate", attention="half"),
    "activations": rules("act"),
    "gates": rules("gate"),
    "gradient": rules("ln"),
}


@pytest.mark.parametrize("mode", CAPS)
@pytest.mark.parametrize("sinks", [True, False])
@pytest.mark.parametrize("name", CAPPED)
def test_capped_attention_is_its_steps(name: str, sinks: bool, mode: str) -> None:
    options, active = CAPPED[name], CAPS[mode]
    cases = [(None, [Q, K, V]), (ALLOWED[None, None], [Q, K[:, :1], V[:, :1]]), (BIAS, [Q, K, V])]
    for mask, leaves in cases[:1] if options.get("is_causal") else cases:
        given = SINKS if sinks else None
        ours = passed(
            lambda q, k, v, m=mask, g=given: capped_attention(q, k, v, m, g, **options),
            leaves,
            active,
            {"sinks": SINKS},
        )
        theirs = passed(steps(options, mask, given), leaves, active, {"sinks": SINKS})
        torch.testing.assert_close(ours.gradients, theirs.gradients, rtol=1e-7, atol=1e-9)
        torch.testing.assert_close(ours.value, theirs.value)
        assert ours.lines.get("sinks", 0.0) == pytest.approx(theirs.lines.get("sinks", 0.0), abs=1e-9)
        if mode in ("constant", "constant, all", "half", "query"):
            assert ours.met == {"ah": 1}
        if sinks and mode not in ("constant", "constant, all"):
            assert ours.lines["sinks"] != 0
            assert ours.sorts["sinks"].name == "BIAS"
        if mode == "query":
            offset = "attention offset"
            assert ours.lines[offset] == pytest.approx(theirs.lines[offset] + masked(theirs), abs=1e-9)


def masked(found: Any) -> float:
    """What a mask that is added to the scores has; as one operation it is a part of the offset."""
    return sum(value for name, value in found.lines.items() if name == "add")


def test_keys_of_a_group_of_heads_stand_once_for_each() -> None:
    keys = drawn(3, 2, 4, 5)
    assert torch.equal(capped.repeat_heads(keys, 3), keys.repeat_interleave(3, 1))
    assert capped.repeat_heads(keys, 1) is keys


@pytest.mark.parametrize("mode", ["constant, all", "half", "query", "gradient"])
@pytest.mark.parametrize("alive", ["q", "k", "v", "qk", "qv", "kv"])
def test_capped_attention_of_constants(mode: str, alive: str) -> None:
    own = dict(zip("qkv", (Q, K, V), strict=True))

    def of(attend: Attention) -> Operation:
        return lambda *leaves: attend(*{**own, **dict(zip(alive, leaves, strict=True))}.values())

    leaves = [own[name] for name in alive]
    ours = passed(of(lambda q, k, v: capped_attention(q, k, v, None, SINKS, cap=0.8)), leaves, CAPS[mode])
    theirs = passed(of(steps({"cap": 0.8}, None, SINKS)), leaves, CAPS[mode])
    torch.testing.assert_close(ours.gradients, theirs.gradients, rtol=1e-7, atol=1e-9)
    torch.testing.assert_close(ours.value, theirs.value)
