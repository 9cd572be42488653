"""Attention by one operation, in blocks, or written out: the same rule, the same relevance, whatever its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from weighing import drawn, seeded

import headwater as hw
from headwater.kernels.capped import capped_attention
from headwater.rules.attention import constant as attention
from headwater.rules.attention.call import scores_with_mask

HEADS, LENGTH, SIZE = 4, 7, 5
ALLOWED = (drawn(LENGTH, LENGTH, seed=4) > -0.3) | torch.eye(LENGTH, dtype=torch.bool)
MASKS: dict[str, dict[str, Any]] = {
    "none": {},
    "scaled": {"scale": 0.7},
    "causal": {"is_causal": True},
    "allowed": {"attn_mask": ALLOWED.expand(2, 1, LENGTH, LENGTH)},
    "added": {"attn_mask": 2 * drawn(2, 1, LENGTH, LENGTH, seed=4)},
    "added, one row for all": {"attn_mask": 2 * drawn(2, 1, 1, LENGTH, seed=4)},
    "added, for each head": {"attn_mask": 2 * drawn(1, HEADS, LENGTH, LENGTH, seed=4)},
    "two axes": {"attn_mask": torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril(2).triu(-2)},
}


@pytest.mark.parametrize("rows", [1, 3, LENGTH, 100])
@pytest.mark.parametrize("heads", [4, 2, 1])
@pytest.mark.parametrize("name", MASKS)
def test_attention_in_blocks_is_attention(name: str, heads: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block of queries has its own rows of the mask; the gradient at the values is torch's own."""
    query, key = drawn(2, HEADS, LENGTH, SIZE, seed=1), drawn(2, heads, LENGTH, SIZE, seed=2)
    value, upstream = drawn(2, heads, LENGTH, 6).requires_grad_(), drawn(2, HEADS, LENGTH, 6, seed=6)
    options = dict(MASKS[name])
    result = F.scaled_dot_product_attention(query, key, value, **options, enable_gqa=heads < HEADS)
    (theirs,) = torch.autograd.grad(result, value, upstream)
    monkeypatch.setattr(attention, "_BLOCK", rows * 2 * HEADS * LENGTH)
    ours = attention.values_gradient_torch(upstream, query, key, options.get("attn_mask"), options, heads)
    torch.testing.assert_close(ours, theirs)


def test_two_queries_in_blocks_of_one_have_a_row_of_the_mask_each(monkeypatch: pytest.MonkeyPatch) -> None:
    query, key, upstream, mask = (drawn(1, 1, 2, n, seed=n) for n in (SIZE, SIZE, 6, 2))
    value = drawn(1, 1, 2, 6).requires_grad_()
    result = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    (theirs,) = torch.autograd.grad(result, value, upstream)
    monkeypatch.setattr(attention, "_BLOCK", 2)
    torch.testing.assert_close(attention.values_gradient_torch(upstream, query, key, mask, {}, 1), theirs)


@pytest.mark.parametrize("axes", [2, 3])
def test_attention_in_blocks_of_fewer_axes(axes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = (HEADS,)[: axes - 2]
    query, key, upstream = (drawn(*shape, LENGTH, SIZE, seed=n) for n in (1, 2, 3))
    value = drawn(*shape, LENGTH, SIZE).requires_grad_()
    (theirs,) = torch.autograd.grad(F.scaled_dot_product_attention(query, key, value), value, upstream)
    monkeypatch.setattr(attention, "_BLOCK", 3 * LENGTH)
    heads = None if axes == 2 else HEADS
    torch.testing.assert_close(attention.values_gradient_torch(upstream, query, key, None, {}, heads), theirs)


def test_a_query_that_may_look_at_nothing_sees_nothing() -> None:
    query, key, upstream = (drawn(1, 1, LENGTH, SIZE, seed=n) for n in (1, 2, 3))
    mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
    mask[2] = False
    found = attention.values_gradient_torch(upstream, query, key, mask, {"attn_mask": mask}, 1)
    kept = torch.arange(LENGTH) != 2
    without = attention.values_gradient_torch(upstream[:, :, kept], query[:, :, kept], key, None, {}, 1)
    torch.testing.assert_close(found, without)


def test_a_mask_and_the_order_of_time_both_count() -> None:
    """-inf where one of them forbids it."""
    query, key = drawn(1, 1, LENGTH, SIZE, seed=1), drawn(1, 1, LENGTH, SIZE, seed=2)
    scores = scores_with_mask(query, key, ALLOWED, {"is_causal": True})
    assert torch.equal(scores[0, 0] == -torch.inf, ~(ALLOWED & torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()))


class Attention(nn.Module):
    """Queries, keys and values by layers of their own; attention by torch's operation, or written out as models do."""

    def __init__(self, fused: bool, options: dict[str, Any], groups: int = 1, how: str = "named") -> None:
        super().__init__()
        self.fused, self.options, self.groups, self.how = fused, options, groups, how
        width = HEADS * SIZE
        self.query, self.key = nn.Linear(6, width), nn.Linear(6, width // groups)
        self.value, self.after = nn.Linear(6, width // groups), nn.Linear(LENGTH * width, 3)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            part(x).unflatten(-1, (-1, SIZE)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        mixed = self.by_torch(query, key, value) if self.fused else self.written(query, key, value)
        return self.after(mixed.transpose(1, 2).flatten(1))

    def by_torch(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        options = {k: cut(v, len(query)) for k, v in self.options.items()}
        if self.how == "by position":
            mask, causal = options.pop("attn_mask", None), options.pop("is_causal", False)
            return F.scaled_dot_product_attention(
                query, key, value, mask, 0.0, causal, **options, enable_gqa=self.groups > 1
            )
        return F.scaled_dot_product_attention(query=query, key=key, value=value, **options, enable_gqa=self.groups > 1)

    def written(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        mask = cut(self.options.get("attn_mask"), len(query))
        if self.groups > 1:
            key, value = (part.repeat_interleave(self.groups, 1) for part in (key, value))
        scores = query @ key.transpose(-2, -1) * self.options.get("scale", SIZE**-0.5)
        if self.options.get("is_causal"):
            mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype is torch.bool else scores + mask
        return scores.softmax(-1) @ value


def cut(value: Any, samples: int) -> Any:
    """A mask for as many samples as there are."""
    return value[:samples] if isinstance(value, Tensor) and value.dim() == 4 and len(value) > 1 else value


METHODS = ("lrp", "lrp(ah)", "lrp-secant", "lrp-query", "attnlrp", "gi")


@pytest.mark.crossed
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("name", MASKS)
def test_fused_or_written_out_it_is_the_same(name: str, groups: int, method: str) -> None:
    """Relevance, and the lines of the biases. Only what a mask adds to the scores may have another name."""
    x = drawn(2, LENGTH, 6)
    found = []
    for fused, how in ((False, ""), (True, "named"), (True, "by position")):
        model = seeded(lambda fused=fused, how=how: Attention(fused, MASKS[name], groups, how))
        found.append(hw.explain(model, x, method=method, score=lambda out: out[:, 1]))
    for written, named, placed in zip(*found, strict=True):
        for one in (named, placed):
            assert one.score == pytest.approx(written.score, abs=1e-10)
            assert one.relevance.flatten().tolist() == pytest.approx(written.relevance.flatten().tolist(), abs=1e-9)
            assert dict(one.ledger.biases) == pytest.approx(dict(written.ledger.biases), abs=1e-9)
        if method not in ("attnlrp", "gi"):
            assert named.ledger.constants.total == pytest.approx(written.ledger.constants.total, abs=1e-9)
            assert named.ledger.error < 1e-10


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize(
    ("method", "taking"), [("lrp", "v"), ("lrp-secant", "qkv"), ("lrp-query", "qv"), ("gi", "qkv")]
)
def test_who_takes_part(method: str, taking: str, fused: bool) -> None:
    """Queries, keys and values see two features each, so that relevance tells who got it."""
    model = seeded(lambda: Attention(fused, {}))
    with torch.no_grad():
        for layer, seen in ((model.query, [0, 1]), (model.key, [2, 3]), (model.value, [4, 5])):
            layer.weight *= torch.tensor([float(i in seen) for i in range(6)])
    e = hw.explain(model, drawn(1, LENGTH, 6), method=method, score=lambda out: out[:, 1])[0]
    got = e.relevance.abs().reshape(LENGTH, 3, 2).sum((0, 2))
    assert "".join(name for name, amount in zip("qkv", got, strict=True) if amount > 1e-9) == taking


NOTHING = torch.zeros(1, dtype=torch.float64)
SPELLINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "matmul": lambda w, v: w @ v,
    "turned round": lambda w, v: (v.mT @ w.mT).mT,
    "bmm": lambda w, v: torch.bmm(w.flatten(0, 1), v.flatten(0, 1)).unflatten(0, w.shape[:2]),
    "bmm, turned round": lambda w, v: torch.bmm(v.mT.flatten(0, 1), w.mT.flatten(0, 1)).unflatten(0, w.shape[:2]).mT,
    "einsum": lambda w, v: torch.einsum("bhij,bhjd->bhid", w, v),
    "einsum, turned round": lambda w, v: torch.einsum("bhjd,bhij->bhid", [v, w]),
    "baddbmm": lambda w, v: torch.baddbmm(NOTHING, w.flatten(0, 1), v.flatten(0, 1)).unflatten(0, w.shape[:2]),
    "baddbmm, turned round": lambda w, v: (
        torch.baddbmm(NOTHING, v.mT.flatten(0, 1), w.mT.flatten(0, 1)).unflatten(0, w.shape[:2]).mT
    ),
    "head by head": lambda w, v: torch.stack([w[:, i] @ v[:, i] for i in range(w.shape[1])], 1),
}


class Spelled(Attention):
    def __init__(self, name: str) -> None:
        super().__init__(False, {})
        self.name = name

    def written(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return SPELLINGS[self.name]((query @ key.mT * SIZE**-0.5).softmax(-1), value)


@pytest.mark.crossed
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", SPELLINGS)
def test_weights_times_values_in_every_spelling(name: str, method: str) -> None:
    x = drawn(2, LENGTH, 6)
    models = (seeded(lambda: Attention(True, {})), seeded(lambda: Spelled(name)))
    fused, spelled = (hw.explain(model, x, method=method, score=lambda out: out[:, 1]) for model in models)
    for a, b in zip(fused, spelled, strict=True):
        assert a.relevance.flatten().tolist() == pytest.approx(b.relevance.flatten().tolist(), abs=1e-9)
        assert dict(a.ledger.biases) == pytest.approx(dict(b.ledger.biases), abs=1e-9)


class FewAxes(Attention):
    """A single sample whose attention has no axis for samples, or none for heads either."""

    def __init__(self, fused: bool, axes: int, options: dict[str, Any]) -> None:
        super().__init__(fused, options)
        self.axes = axes

    def forward(self, x: Tensor) -> Tensor:
        parts = [part(x).unflatten(-1, (-1, SIZE)).transpose(1, 2) for part in (self.query, self.key, self.value)]
        parts = [part[0] if self.axes == 3 else part[0].transpose(0, 1).flatten(1) for part in parts]
        mixed = self.by_torch(*parts) if self.fused else self.written(*parts)
        return self.after(mixed.reshape(1, -1))

    def written(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        scores = query @ key.mT * query.shape[-1] ** -0.5
        if self.options.get("is_causal"):
            scores = scores.masked_fill(~torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril(), -torch.inf)
        return scores.softmax(-1) @ value


@pytest.mark.parametrize("options", [{}, {"is_causal": True}], ids=["all", "causal"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("axes", [2, 3])
def test_fewer_axes(axes: int, method: str, options: dict[str, Any]) -> None:
    x = drawn(1, LENGTH, 6)
    models = [seeded(lambda fused=fused: FewAxes(fused, axes, options)) for fused in (True, False)]
    fused, written = (hw.explain(model, x, method=method, score=lambda out: out[:, 1])[0] for model in models)
    assert fused.relevance.flatten().tolist() == pytest.approx(written.relevance.flatten().tolist(), abs=1e-9)
    assert dict(fused.ledger.biases) == pytest.approx(dict(written.ledger.biases), abs=1e-9)


CAPPED: dict[str, dict[str, Any]] = {
    "plain": {},
    "scaled": {"scale": 0.8},
    "capped": {"cap": 0.7},
    "causal": {"is_causal": True, "cap": 0.7},
}


class Capped(Attention):
    """Attention with capped scores and sinks: one operation of ours, or each of its steps."""

    def __init__(self, one: bool, options: dict[str, Any], mask: str, groups: int) -> None:
        super().__init__(True, options, groups)
        self.one, self.mask = one, mask
        self.sinks = nn.Parameter(drawn(HEADS))

    def by_torch(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        mask = {"none": None, "added": MASKS["added, for each head"]["attn_mask"], "allowed": ALLOWED[None, None]}[
            self.mask
        ]
        if self.options.get("is_causal"):
            mask = None
        if self.one:
            return capped_attention(query, key, value, mask, self.sinks, **self.options)
        key, value = (part.repeat_interleave(self.groups, 1) for part in (key, value))
        scores = query @ key.mT * self.options.get("scale", SIZE**-0.5)
        if "cap" in self.options:
            scores = torch.tanh(scores / self.options["cap"]) * self.options["cap"]
        if self.options.get("is_causal"):
            mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
        if mask is not None:
            low = torch.finfo(scores.dtype).min
            added = (
                torch.zeros(mask.shape, dtype=scores.dtype).masked_fill(~mask, low)
                if mask.dtype is torch.bool
                else mask
            )
            scores = scores + added
        column = self.sinks.reshape(1, -1, 1, 1).expand(len(scores), -1, LENGTH, -1)
        return torch.cat([scores, column], -1).softmax(-1)[..., :-1] @ value


EVERY = ("lrp", "lrp-secant", "lrp-query", "attnlrp", "gi")
MIXED = (
    "lrp(ah=half+act+gate)",
    "lrp(act+gate=half)",
    "lrp(ah=query+act+gate)",
    "lrp(ah=secant+act+gate)",
    "lrp(ah=half+gate=half)",
    "lrp(ah=query+gate=half)",
)


@pytest.mark.crossed
@pytest.mark.parametrize(
    ("mask", "groups", "method"),
    [(mask, groups, method) for mask in ("none", "added", "allowed") for groups in (1, 2) for method in EVERY]
    + [("allowed", 1, method) for method in MIXED],
)
@pytest.mark.parametrize("name", CAPPED)
def test_capped_attention_is_its_steps(name: str, mask: str, groups: int, method: str) -> None:
    if "act" in method and "cap" not in CAPPED[name]:
        method = method.replace("act+", "")  # a rule that is asked for by name must meet something
    x = drawn(2, LENGTH, 6)
    models = [seeded(lambda one=one: Capped(one, CAPPED[name], mask, groups)) for one in (True, False)]
    ours, steps = (hw.explain(model, x, method=method, score=lambda out: out[:, 1]) for model in models)
    for a, b in zip(ours, steps, strict=True):
        assert a.score == pytest.approx(b.score, abs=1e-10)
        assert a.relevance.flatten().tolist() == pytest.approx(b.relevance.flatten().tolist(), abs=1e-9)
        for line in {*a.ledger.biases, *b.ledger.biases}:
            assert a.ledger.biases.get(line, 0.0) == pytest.approx(b.ledger.biases.get(line, 0.0), abs=1e-9)
        if method in ("lrp", "lrp-query"):
            assert a.ledger.error < 1e-10


class Softmax(nn.Module):
    """Attention in two axes whose softmax is called in many ways."""

    def __init__(self, how: str, mask: Tensor | None = None) -> None:
        super().__init__()
        self.query, self.value, self.after = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(LENGTH * 6, 3)
        self.how, self.mask = how, mask

    def forward(self, x: Tensor) -> Tensor:
        query = self.query(x)
        scores = query @ query.transpose(1, 2)
        if self.mask is not None:
            scores = scores.masked_fill(~self.mask, -torch.inf)
        if self.how == "turned":
            weights = torch.softmax(scores.transpose(1, 2), 1).transpose(1, 2)
        else:
            weights = {
                "function": lambda: F.softmax(scores, dim=-1),
                "torch": lambda: torch.softmax(scores, -1),
                "named": lambda: torch.softmax(input=scores, dim=2),
                "method": lambda: scores.softmax(-1),
                "method, named": lambda: scores.softmax(dim=-1),
                "typed": lambda: F.softmax(scores, -1, dtype=torch.float64),
            }[self.how]()
        if self.mask is not None:
            weights = weights.masked_fill(~self.mask, 0.0)  # where a query may look at nothing, NaN
        return self.after((weights @ self.value(x)).flatten(1))


@pytest.mark.crossed
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dead", [False, True])
@pytest.mark.parametrize("how", ["torch", "named", "method", "method, named", "typed", "turned"])
def test_a_softmax_is_the_same_however_it_is_called(how: str, dead: bool, method: str) -> None:
    """Also where a query may look at nothing: its weights are none, and nothing goes back through it."""
    mask = ALLOWED.clone()
    if dead:
        mask[3] = False
    found = [
        hw.explain(
            seeded(lambda one=one: Softmax(one, mask)), drawn(2, LENGTH, 6), method=method, score=lambda out: out[:, 1]
        )
        for one in ("function", how)
    ]
    for a, b in zip(*found, strict=True):
        assert bool(a.relevance.isfinite().all())
        assert a.relevance.flatten().tolist() == pytest.approx(b.relevance.flatten().tolist(), abs=1e-12)
        assert dict(a.ledger.biases) == pytest.approx(dict(b.ledger.biases), abs=1e-12)
        if method not in ("attnlrp", "gi"):
            assert a.ledger.error < 1e-10


class OwnMask(nn.Module):
    """Attention whose additive mask is made from the input, with constants in it: the AH-rule holds all of it."""

    def __init__(self, into: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.mix, self.bent, self.read = nn.Linear(6, 6), nn.Linear(6, 5), nn.Linear(6, 2)
        self.into = into

    def forward(self, inputs_embeds: Tensor) -> Tensor:
        mask = self.bent(inputs_embeds)  # [samples, tokens, tokens], a bias in it
        if self.into == "scattered":
            mask = torch.full_like(mask, -2.0).scatter(-1, torch.zeros_like(mask, dtype=torch.long), mask)
        elif self.into == "added":
            mask = mask + torch.linspace(0, 1, 5, dtype=mask.dtype)
        values = self.mix(inputs_embeds)
        attended = F.scaled_dot_product_attention(inputs_embeds, inputs_embeds, values, attn_mask=mask)
        return self.read(attended.mean(1))


@pytest.mark.parametrize("into", ["plain", "scattered", "added"])
@pytest.mark.parametrize("method", ["lrp", "lrp(ah)", "lrp-gamma"])
def test_constants_in_a_mask_that_is_held_have_no_relevance(into: str, method: str) -> None:
    model = OwnMask(into).double().eval()
    (found,) = hw.explain(model, torch.randn(1, 5, 6, dtype=torch.float64), target=1, method=method)
    assert found.ledger.closed
    assert not [name for name in found.ledger.biases if name.startswith("bent") and found.ledger.biases[name]]
