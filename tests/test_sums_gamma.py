"""The gamma rules for sums of signals conserve, keep the prediction, and are the sums they are written as."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers as tf
from scoped import passed, rules
from test_operations import Wrapped, data
from test_plans import both, ids, new
from test_scores_at_once import check_equal, made, one_by_one
from tiny import BUILD, CASTS, GROUPED, SMALL, arguments, randomised, tiny
from torch import Tensor, nn
from weighing import drawn

import headwater as hw
from headwater.engine import run_plans
from headwater.errors import UnknownName, UsageError
from headwater.methods.lrp import lrp_with
from headwater.rules import agreement
from headwater.rules.ratio import Pending
from headwater.rules.rule_set import RuleSet

BY_NAME = "lrp(ah+ln+act+gate=half+gamma=.03+residual=1)"
EVERY_SUM = lrp_with(gate="half", gamma=0.03, token=4.0, residual=1.0)
RESIDUAL = rules("residual", residual=1.5)
TOKEN = rules("token", token=1.5)


def slow(terms: list[Tensor], above: Tensor, boost: float) -> list[Tensor]:
    """The gradient of each term at each position, straight from the sum; features along the last axis."""
    back = [torch.zeros_like(term) for term in terms]
    for at in product(*(range(n) for n in above.shape[:-1])):
        parts = [float(above[at] @ term[at]) for term in terms]
        total = sum(parts)
        weights = [1 + boost if part * total > 0 else 1.0 for part in parts]
        scale = total / sum(weight * part for weight, part in zip(weights, parts, strict=True))
        for own, weight in zip(back, weights, strict=True):
            own[at] = above[at] * weight * scale
    return back


def signals(*shapes: tuple[int, ...]) -> list[Tensor]:
    return [drawn(torch.Size(shape).numel(), seed=seed).reshape(shape) for seed, shape in enumerate(shapes)]


def upstream(like: Tensor) -> Tensor:
    return drawn(like.numel(), seed=9).reshape(like.shape)


def in_place(a: Tensor, b: Tensor) -> Tensor:
    a = a * 1
    a += b
    return a


SUMS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], tuple[float, float]]] = {
    "add": (torch.add, (1.0, 1.0)),
    "sub": (torch.sub, (1.0, -1.0)),
    "rsub": (torch.rsub, (-1.0, 1.0)),
    "alpha": (lambda a, b: torch.add(a, b, alpha=0.3), (1.0, 0.3)),
    "in place": (in_place, (1.0, 1.0)),
    "in place, less": (lambda a, b: (a * 1).sub_(b, alpha=2), (1.0, -2.0)),
}


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("shape", [(2, 3, 5), (3, 5), (5,), (2, 2, 3, 4)])
def test_a_residual_sum_is_its_sum(name: str, shape: tuple[int, ...]) -> None:
    operation, signs = SUMS[name]
    a, b = signals(shape, shape)
    found = passed(operation, [a, b], RESIDUAL)
    above = upstream(a)
    expected = slow([signs[0] * a, signs[1] * b], above, 1.5)
    assert torch.equal(found.value, operation(a.clone(), b))
    assert found.met == {"residual": 1}
    for ours, theirs, sign in zip(found.gradients, expected, signs, strict=True):
        assert ours == pytest.approx(sign * theirs, abs=1e-12)
    together = (found.gradients[0] * a + found.gradients[1] * b).sum(-1)
    assert torch.allclose(together, (above * found.value).sum(-1), atol=1e-12)
    assert len(shape) == 1 or not torch.allclose(found.gradients[0], signs[0] * above, atol=1e-2)


def test_what_is_broadcast_is_a_term_at_every_position() -> None:
    a, b = signals((2, 3, 5), (2, 1, 5))
    found = passed(torch.add, [a, b], RESIDUAL)
    first, second = slow([a, b.expand(2, 3, 5)], upstream(a), 1.5)
    assert found.gradients[0] == pytest.approx(first, abs=1e-12)
    assert found.gradients[1] == pytest.approx(second.sum(1, keepdim=True), abs=1e-12)


def test_terms_that_agree_and_a_sum_of_nothing_pass_the_gradient_on() -> None:
    above = torch.ones(2, 4, dtype=torch.float64)
    a = torch.tensor([[1.0, 2, 3, 4], [1, 1, -1, 2]], dtype=torch.float64)
    b = torch.tensor([[4.0, 1, 1, 1], [-3, 0, 0, 0]], dtype=torch.float64)  # the second row sums to 0
    own = [part.requires_grad_() for part in (a, b)]
    terms = agreement.Terms(own, -1, 2.0, Pending())
    result = agreement.AgreeingSum.apply(*own, [(a + b).detach()], terms, (1.0, 1.0))
    for back in torch.autograd.grad(result, own, above):
        assert back == pytest.approx(above, abs=1e-15)


def rotary(q: Tensor, other: Tensor) -> Tensor:
    cos, sin = torch.linspace(0, 1, 4).double().cos(), torch.linspace(0, 1, 4).double().sin()
    return q * cos + torch.cat([-q[..., 2:], q[..., :2]], -1) * sin


def norm_by_hand(x: Tensor, other: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred - 0.1 * centred.square().mean(-1, keepdim=True)


def one_attention_less_another(x: Tensor, y: Tensor) -> Tensor:
    return (x @ y.transpose(1, 2)).softmax(-1) - 0.3 * (y @ x.transpose(1, 2)).softmax(-1)


def two_attentions_mixed(x: Tensor, y: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(x, y, x) - 0.3 * F.scaled_dot_product_attention(y, x, x)


def scores_by_content_and_position(x: Tensor, y: Tensor) -> Tensor:
    return x @ y.transpose(1, 2) + x @ torch.ones(2, 4, 3, dtype=torch.float64)


@pytest.mark.parametrize(
    "parts",
    [rotary, norm_by_hand, one_attention_less_another, two_attentions_mixed, scores_by_content_and_position],
)
def test_parts_of_one_signal_are_no_terms(parts: Callable[[Tensor, Tensor], Tensor]) -> None:
    given = signals((2, 3, 4), (2, 3, 4))
    plain, found = (passed(parts, given, active) for active in (rules(), RESIDUAL))
    assert found.met == {}
    for ours, theirs in zip(found.gradients, plain.gradients, strict=True):
        assert torch.equal(ours, theirs)


def test_the_skip_past_a_layer_is_a_term_also_behind_a_norm() -> None:
    weight = drawn(16, seed=3).reshape(4, 4)
    blocks: list[Callable[[Tensor], Tensor]] = [
        lambda x: x + F.linear(F.layer_norm(x, (4,)), weight),
        lambda x: F.layer_norm(x + torch.tanh(F.linear(x, weight)), (4,)),
        lambda x: x + F.scaled_dot_product_attention(x, x, x),
        lambda x: x + torch.fft.fft(x, dim=1).real,
    ]
    for block in blocks:
        assert passed(block, signals((2, 3, 4)), RESIDUAL).met.get("residual") == 1


def test_features_of_a_convolution_are_its_channels() -> None:
    kernel = drawn(9, seed=3).reshape(3, 3, 1, 1)
    x = signals((2, 3, 4, 5))[0]
    found = passed(lambda x: x + torch.relu(F.conv2d(x, kernel)), [x], rules("act", "residual", residual=1.5))
    f = torch.relu(F.conv2d(x, kernel))
    above = upstream(x)
    to_x, to_f = (one.movedim(-1, 1) for one in slow([x.movedim(1, -1), f.movedim(1, -1)], above.movedim(1, -1), 1.5))
    slope = torch.where(f > 0, 1.0, 0.0)
    expected = to_x + torch.einsum("bohw,oi->bihw", to_f * slope, kernel[:, :, 0, 0])
    assert found.gradients[0] == pytest.approx(expected, abs=1e-12)


# pooling


POOLS: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {
    "mean": (lambda x: x.mean(1), 1 / 6),
    "sum": (lambda x: torch.sum(x, dim=1), 1.0),
    "keepdim": (lambda x: x.mean(dim=-2, keepdim=True), 1 / 6),
    "masked": (lambda x: (x * mask()).sum(1) / mask().sum(), 1 / 4),
    "pooling layer": (lambda x: F.adaptive_avg_pool1d(x.transpose(1, 2), 1).squeeze(-1), 1 / 6),
}


def mask() -> Tensor:
    return torch.tensor([1.0, 1, 0, 1, 1, 0], dtype=torch.float64)[:, None]


@pytest.mark.parametrize("name", POOLS)
def test_pooling_over_tokens_is_its_sum(name: str) -> None:
    pool, scale = POOLS[name]
    x = signals((1, 6, 5))[0]
    found = passed(pool, [x], TOKEN)
    kept = mask() if name == "masked" else torch.ones(6, 1, dtype=torch.float64)
    above = scale * upstream(found.value).reshape(1, 5)
    expected = slow([kept[t] * x[:, t] for t in range(6) if kept[t]], above, 1.5)
    assert found.met == {"token": 1}
    assert found.value == pytest.approx(pool(x), abs=0)
    assert torch.cat([found.gradients[0][:, t] for t in range(6) if kept[t]]) == pytest.approx(
        torch.cat(expected), abs=1e-12
    )
    assert not bool(found.gradients[0][:, kept[:, 0] == 0].count_nonzero())


def test_pooling_over_pixels_is_over_both_axes() -> None:
    kernel, x = drawn(9, seed=3).reshape(3, 3, 1, 1), signals((1, 3, 2, 4))[0]
    pools = [lambda x: x.mean((2, 3)), lambda x: F.adaptive_avg_pool2d(x, 1).flatten(1)]
    found = [passed(lambda x, pool=pool: pool(F.conv2d(x, kernel)), [x], TOKEN) for pool in pools]
    z = F.conv2d(x, kernel).flatten(2)
    expected = torch.stack(slow(list(z.unbind(-1)), upstream(found[0].value) / 8, 1.5), -1).reshape(1, 3, 2, 4)
    for one in found:
        assert one.gradients[0] == pytest.approx(torch.einsum("bohw,oi->bihw", expected, kernel[:, :, 0, 0]), abs=1e-12)


def test_a_sum_over_features_or_over_experts_is_no_sum_over_tokens() -> None:
    x = signals((2, 3, 4))[0]
    assert passed(lambda x: x.mean(-1), [x], TOKEN).met == {}
    assert passed(lambda x: x.sum(0), [x], TOKEN).met == {}  # two experts first
    assert passed(lambda x: x.view(2, 3, 4).sum(1), [x], TOKEN).met == {}  # two tokens, of three experts each


# experts


@pytest.mark.parametrize("axis", [0, 1])
def test_a_sum_over_experts_is_its_sum(axis: int) -> None:
    x = signals((2, 3, 4))[0]
    found = passed(lambda x: x.sum(axis), [x], RESIDUAL)
    expected = torch.stack(slow(list(x.unbind(axis)), upstream(found.value), 1.5), axis)
    assert found.gradients[0] == pytest.approx(expected, abs=1e-12)


INDEX = torch.tensor([2, 0, 2, 3])


def added(base: Tensor, rows: Tensor) -> Tensor:
    return base.index_add(0, INDEX, rows)


def added_in_place(base: Tensor, rows: Tensor) -> Tensor:
    base = base * 1
    base.index_add_(0, INDEX, rows)
    return base


def scattered(base: Tensor, rows: Tensor) -> Tensor:
    return base.scatter_add(0, INDEX[:, None].expand(-1, rows.shape[-1]), rows)


@pytest.mark.parametrize("add", [added, added_in_place, scattered])
def test_rows_that_are_added_are_terms_of_the_row_they_are_added_to(add: Callable[[Tensor, Tensor], Tensor]) -> None:
    base, rows = signals((5, 3), (4, 3))
    found = passed(add, [base, rows], RESIDUAL)
    above = upstream(base)
    assert torch.equal(found.value, add(base.clone(), rows))
    for place in range(5):
        of_rows = [number for number, at in enumerate(INDEX.tolist()) if at == place]
        expected = slow([base[place], *(rows[number] for number in of_rows)], above[place], 1.5)
        assert found.gradients[0][place] == pytest.approx(expected[0], abs=1e-12)
        for number, one in zip(of_rows, expected[1:], strict=True):
            assert found.gradients[1][number] == pytest.approx(one, abs=1e-12)


def test_rows_that_are_added_to_zeros_are_terms_among_themselves() -> None:
    rows = signals((4, 3))[0]
    found = passed(lambda rows: torch.zeros(5, 3).double().index_add_(0, INDEX, rows), [rows], RESIDUAL)
    above = upstream(torch.zeros(5, 3))
    first, third = slow([rows[0], rows[2]], above[2], 1.5)
    assert found.gradients[0] == pytest.approx(torch.stack([first, above[0], third, above[3]]), abs=1e-12)


@pytest.mark.parametrize("way", ["eager", "batched_mm", "grouped_mm"])
def test_experts_are_told_apart_whatever_computes_them(way: str) -> None:
    torch.manual_seed(0)
    config = tf.MixtralConfig(**GROUPED, num_local_experts=4, num_experts_per_tok=3, experts_implementation=way)
    model = randomised(tf.MixtralForCausalLM(config))  # in float32, for torch groups no matrices of float64
    method = lrp_with(gate="half", residual={"*experts*": 2.0})
    found, plain = (hw.explain(model, arguments("mixtral"), method=m) for m in (method, lrp_with(gate="half")))
    for e, other in zip(found, plain, strict=True):
        assert e.ledger.error <= 1e-5
        assert not torch.allclose(e.relevance, other.relevance, atol=1e-4)
        assert "residual" in dict(e.rules_met)
    if way != "eager":
        eager = hw.explain(changed(model, "eager"), arguments("mixtral"), method=lrp_with(gate="half"))
        assert plain[0].relevance == pytest.approx(eager[0].relevance, rel=1e-4, abs=1e-6)


def changed(model: nn.Module, way: str) -> nn.Module:
    model.set_experts_implementation(way)
    return model


# whole models


@pytest.mark.parametrize("name", BUILD)
def test_ledger_closes_with_gamma_at_residual_sums(name: str) -> None:
    plain = hw.explain(tiny(name), arguments(name), method="lrp(ah+ln+act+gate=half+gamma=.03)")
    for e, other in zip(hw.explain(tiny(name), arguments(name), method=BY_NAME), plain, strict=True):
        assert e.ledger.error <= (1e-5 if name in CASTS else 1e-10)
        assert e.score == other.score
        assert not torch.allclose(e.relevance, other.relevance, atol=1e-4)


BLOCKS = {"t5": 10, "bart": 10, "mixtral": None}  # residual sums; two in each of two layers elsewhere


@pytest.mark.parametrize("name", BUILD)
def test_the_residual_sums_of_a_model_are_those_and_no_others(name: str) -> None:
    """Rotary embeddings, relative positions, norms in float32: none of them is one."""
    met = dict(hw.explain(tiny(name), arguments(name), method=BY_NAME)[0].rules_met)["residual"]
    expected = BLOCKS.get(name, 4)
    assert expected is None or met == expected


def test_parallel_blocks_have_two_sums_a_layer() -> None:
    config = {**SMALL, "num_attention_heads": 4}
    model = randomised(tf.FalconForCausalLM(tf.FalconConfig(**config, parallel_attn=True)).double())
    e = hw.explain(model, arguments("llama", 1), method=BY_NAME)[0]
    assert dict(e.rules_met)["residual"] == 4
    assert e.ledger.error <= 1e-10


class SentenceEncoder(nn.Module):
    """BERT with the mean over tokens that are there, as sentence encoders are made."""

    def __init__(self, pool: str) -> None:
        super().__init__()
        self.encoder = tf.BertModel(tf.BertConfig(**SMALL), add_pooling_layer=False)
        self.head, self.pool = nn.Linear(32, 3), pool

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.get_input_embeddings()

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        x = self.encoder(input_ids, attention_mask).last_hidden_state
        if self.pool == "mean" or attention_mask is None:
            return self.head(x.mean(1))
        there = attention_mask[..., None].to(x.dtype)
        return self.head((x * there).sum(1) / there.sum(1))


@pytest.mark.parametrize("pool", ["mean", "masked"])
def test_ledger_of_a_sentence_encoder_closes(pool: str) -> None:
    torch.manual_seed(0)
    model = randomised(SentenceEncoder(pool).double())
    given = {**arguments("bert"), "attention_mask": torch.tensor([[1] * 9, [1] * 6 + [0] * 3])}
    plain = hw.explain(model, given, method=lrp_with(gate="half"))
    for e, other in zip(hw.explain(model, given, method=lrp_with(gate="half", token=4.0)), plain, strict=True):
        assert e.ledger.error <= 1e-10
        assert e.score == other.score
        assert not torch.allclose(e.relevance, other.relevance, atol=1e-4)
        assert dict(e.rules_met)["token"] == 3  # pooling, and attention in two layers


@pytest.mark.parametrize("rule", ["token", "residual"])
def test_ledger_stays_open_without_the_rescaling(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, method = randomised(SentenceEncoder("mean").double()), lrp_with(**{rule: 1.0})
    assert hw.explain(model, arguments("bert", 1), method=method)[0].ledger.error <= 1e-10
    monkeypatch.setattr(agreement, "rescale_to", lambda total, boosted: torch.ones_like(total))
    assert hw.explain(model, arguments("bert", 1), method=method, plans=False)[0].ledger.error > 1e-3


@pytest.mark.parametrize("name", ["bert", "llama", "mixtral", "vit"])
def test_a_gamma_of_zero_is_no_rule_bit_for_bit(name: str) -> None:
    zero, plain = (
        hw.explain(tiny(name), arguments(name), method=f"lrp(ah+ln+act+gate{more})", plans=False)
        for more in ("+token=0+residual=0", "")
    )
    for a, b in zip(zero, plain, strict=True):
        assert torch.equal(a.relevance, b.relevance)
        assert a.ledger == b.ledger


def test_residual_by_depth() -> None:
    model, x = tiny("bert"), arguments("bert", 1)
    everywhere = hw.explain(model, x, method=lrp_with(residual={"*": 1.0}))[0]
    assert torch.equal(everywhere.relevance, hw.explain(model, x, method=lrp_with(residual=1.0))[0].relevance)
    some = hw.explain(model, x, method=lrp_with(residual={"*": 1.0, "*layer.1.*": 0.0}))[0]
    assert dict(some.rules_met)["residual"] == 2
    assert some.ledger.closed
    assert not torch.equal(some.relevance, everywhere.relevance)


class WritesInPlace(nn.Module):
    """A block that writes over the stream, over a part of it, and over a block's result once it was added."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = x * 1.0
        x += torch.tanh(self.first(x))
        f = torch.tanh(self.second(x))
        y = x + f
        f.mul_(0.5)
        y[:, 1:] += f[:, 1:]
        x.zero_()
        return y


def test_the_model_may_write_over_the_terms() -> None:
    model = randomised(Wrapped(WritesInPlace()).double())
    e = hw.explain(model, data(), method=lrp_with(residual=1.0), score=lambda out: out.flatten(1).sum(1))[0]
    assert e.ledger.error <= 1e-10
    assert dict(e.rules_met)["residual"] == 3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_it_works_in_less_precision(dtype: torch.dtype) -> None:
    e = hw.explain(tiny("llama", dtype), arguments("llama", 1), method=EVERY_SUM)[0]
    exact = hw.explain(tiny("llama"), arguments("llama", 1), method=EVERY_SUM)[0]
    assert e.ledger.closed
    assert float(F.cosine_similarity(e.relevance.double().flatten(), exact.relevance.flatten(), dim=0)) > 0.98


def test_a_second_backward_pass_gives_the_same() -> None:
    a, b = (part.requires_grad_() for part in signals((2, 3, 4), (2, 3, 4)))
    terms = agreement.Terms([a, b], -1, 1.0, Pending())
    y = agreement.AgreeingSum.apply(a, b, [(a + b).detach()], terms, (1.0, 1.0))
    first, second = (torch.autograd.grad(y, (a, b), upstream(a), retain_graph=True) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


@pytest.mark.parametrize("name", ["llama", "gpt2", "mixtral", "t5-lm", "gemma3"])
def test_several_scores_in_one_backward_pass(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_equal(made(name, EVERY_SUM), one_by_one(monkeypatch, name, EVERY_SUM))


@pytest.mark.parametrize("options", [{"keep": "host"}, {"recompute": "blocks"}])
@pytest.mark.parametrize("name", ["bert", "llama", "gpt-neox", "mixtral"])
def test_kept_elsewhere_or_computed_again_it_is_the_same(name: str, options: dict[str, Any]) -> None:
    found, plain = (
        hw.explain(tiny(name), arguments(name), method=EVERY_SUM, plans=False, **more) for more in (options, {})
    )
    for a, b in zip(found, plain, strict=True):
        assert torch.equal(a.relevance, b.relevance)


@pytest.mark.parametrize("name", ["bert", "llama", "gpt-neox", "t5", "modernbert"])
def test_played_by_a_plan_it_is_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(run_plans.SWITCH, "on")
    run_plans.PLANS.clear()
    model, ways = new(name), []
    for length in (9, 14, 11, 12, 20):
        found, same = both(model, ids(length, end=1 if name == "t5" else None), method=EVERY_SUM)
        assert same
        ways.append(found.provenance.way)
    assert "plan" in ways


def test_an_audit_finds_the_same_sums() -> None:
    report = hw.audit(tiny("llama"), arguments("llama", 1), method=EVERY_SUM)
    plain = hw.explain(tiny("llama"), arguments("llama", 1), method=EVERY_SUM)[0]
    assert not report.leaks
    assert report.explanation.relevance == pytest.approx(plain.relevance, abs=1e-12)


# shares of gates


def gated(a: Tensor, b: Tensor) -> Tensor:
    return torch.sigmoid(a) * b


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("swapped", [False, True])
def test_a_gate_takes_its_share(share: float, swapped: bool) -> None:
    a, b = signals((2, 3), (2, 3))
    active = rules("act", "gate", gate=f"shares(gate={share},value={1 - share})")
    operation = (lambda a, b: b * torch.sigmoid(a)) if swapped else gated
    found, above, gate = passed(operation, [a, b], active), upstream(a), torch.sigmoid(a)
    assert found.gradients[0] == pytest.approx(share * above * b * (gate - 0.5) / a, abs=1e-12)
    assert found.gradients[1] == pytest.approx((1 - share) * above * gate, abs=1e-12)
    assert found.lines.get("sigmoid(0)", 0.0) == pytest.approx(float((share * above * b * 0.5).sum()), abs=1e-12)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5])
def test_a_gated_linear_unit_is_its_product(share: float) -> None:
    x = signals((2, 3, 8))[0]
    active = rules("act", "gate", gate=f"shares(gate={share},value={1 - share})")
    whole = passed(lambda x: F.glu(x), [x], active)
    apart = passed(lambda x: x[..., :4] * torch.sigmoid(x[..., 4:]), [x], active)
    assert whole.gradients[0] == pytest.approx(apart.gradients[0], abs=1e-12)
    assert sum(whole.lines.values()) == pytest.approx(sum(apart.lines.values()), abs=1e-12)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5])
def test_a_gate_in_a_product_of_three_takes_its_share(share: float) -> None:
    a, b, c = signals((2, 3), (2, 3), (2, 3))
    active = rules("act", "gate", gate=f"shares(gate={share},value={1 - share})")
    found = passed(lambda a, b, c: torch.einsum("ij,ij,ij->ij", torch.sigmoid(a), b, c), [a, b, c], active)
    together = sum(float((g * x).sum()) for g, x in zip(found.gradients, (a, b, c), strict=True))
    assert together + sum(found.lines.values()) == pytest.approx(float((upstream(a) * found.value).sum()), abs=1e-12)
    assert found.gradients[1] == pytest.approx(
        (1 - share) / (2 - share) * upstream(a) * torch.sigmoid(a) * c, abs=1e-12
    )


@pytest.mark.parametrize("name", ["llama", "modernbert", "mixtral"])
@pytest.mark.parametrize(("shares", "preset"), [("gate=0.5,value=0.5", "half"), ("value=1", "constant")])
def test_presets_are_shares_bit_for_bit(name: str, shares: str, preset: str) -> None:
    by_share, by_name = (
        hw.explain(tiny(name), arguments(name), method=f"lrp(ah+ln+act+gate={value})", plans=False)
        for value in (f"shares({shares})", preset)
    )
    for a, b in zip(by_share, by_name, strict=True):
        assert torch.equal(a.relevance, b.relevance)
        assert a.ledger == b.ledger


@pytest.mark.parametrize("name", ["llama", "modernbert", "gemma2", "mixtral"])
def test_ledger_closes_with_shares_by_depth(name: str) -> None:
    table = {"*": "shares(gate=0.2,value=0.8)", "*layers.0*": "half"}
    by_depth, same = (hw.explain(tiny(name), arguments(name), method=lrp_with(gate=gate)) for gate in (table, "half"))
    for e, other in zip(by_depth, same, strict=True):
        assert e.ledger.error <= (1e-5 if name in CASTS else 1e-10)
        assert not torch.allclose(e.relevance, other.relevance, atol=1e-4)


def decay(a: Tensor, v: Tensor) -> Tensor:
    """What Mamba-2 weighs its values by: exponentials of sums over stretches, -inf where none is to be seen."""
    later = torch.ones(4, 4, dtype=torch.bool).triu(1)
    sums = a[..., None].expand(2, 4, 4).masked_fill(later, 0).cumsum(1)
    return sums.masked_fill(later, -torch.inf).exp() * v[:, None]


def sink(a: Tensor, v: Tensor) -> Tensor:
    """A gate that is made of the log-sum-exp of scores, masked by the most negative number."""
    scores = a.masked_fill(torch.tensor([False, True, False, True]), torch.finfo(a.dtype).min)
    return torch.sigmoid(scores.logsumexp(-1, keepdim=True)) * v


@pytest.mark.parametrize("gate", [decay, sink])
def test_a_gate_behind_a_mask_passes_on_its_share(gate: Callable[[Tensor, Tensor], Tensor]) -> None:
    given = signals((2, 4), (2, 4))
    found = passed(gate, given, rules("act", "gate", gate="half"))
    reached = sum(float((g * x).sum()) for g, x in zip(found.gradients, given, strict=True))
    assert bool(found.gradients[0].count_nonzero())
    assert reached + sum(found.lines.values()) == pytest.approx(float((upstream(found.value) * found.value).sum()))


def test_a_gate_in_a_table_must_be_known() -> None:
    with pytest.raises(UnknownName, match="halve"):
        RuleSet(frozenset({"gate"}), gate=(("*", "half"), ("*layers.0*", "halve")))
    with pytest.raises(UsageError, match="add up to 1"):
        lrp_with(gate={"*": "shares(gate=0.5,value=0.6)"})


def test_a_method_of_tables_says_what_it_is() -> None:
    method = lrp_with(gate="half", gamma={"*": 0.03, "*head*": 0}, residual=1)
    assert method.name == "lrp(ah+ln+act+gate=half+gamma=*:0.03,*head*:0+residual=1)"
    assert method.rules == ("ah", "ln", "act", "gate", "gamma", "residual")
    assert lrp_with().name == "lrp(ah+ln+act+gate)"
