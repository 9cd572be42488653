"""`gi` and the paper's three LRP variants are what the paper's sums give, number by number."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from reference import difference, lines_difference
from reference.paper import METHODS, WIDTH, AttentionNetwork, Relevance, Shape, propagate, token_vectors
from torch import Tensor, nn
from torch.nn import functional as F

import headwater as hw

EXACT = 1e-9  # float64 leaves 1e-16; the sums divide by outputs that may be near zero
TARGET = 3
SHAPES = {
    "relu, mean": Shape(),
    "gelu, first token": Shape(activation="gelu", pool="first"),
    "no feed-forward": Shape(activation=None, pool="first"),
    "no biases": Shape(bias=False),
    "no biases, gelu": Shape(bias=False, activation="gelu", pool="first"),
    "fused attention": Shape(attention="sdpa", activation="gelu"),
    "LayerNorm by hand": Shape(norm="written", activation="gelu"),
    "fused, by hand, no biases": Shape(attention="sdpa", norm="written", bias=False, eps=1e-5),
}


def shapes(argument: str = "shape") -> pytest.MarkDecorator:
    return pytest.mark.parametrize(argument, SHAPES.values(), ids=SHAPES.keys())


def explain(model: nn.Module, x: Tensor, method: str, target: int = TARGET) -> list[hw.Explanation]:
    found: list[hw.Explanation] = hw.explain(model, x, score=lambda out: out[:, target], method=method)
    return found


def both(shape: Shape, method: str) -> list[tuple[hw.Explanation, Relevance]]:
    network, x = AttentionNetwork(shape), token_vectors()
    return list(zip(explain(network, x, method), [propagate(network, s, TARGET, method) for s in x], strict=True))


@shapes()
@pytest.mark.parametrize("method", METHODS)
def test_relevance_is_what_the_sums_give(shape: Shape, method: str) -> None:
    for found, expected in both(shape, method):
        assert found.score == pytest.approx(expected.score, rel=EXACT)
        assert difference(found.relevance, expected.inputs) < EXACT
        torch.testing.assert_close(found.relevance.sum(-1), expected.inputs.sum(-1), rtol=EXACT, atol=0)
        assert float(found.relevance.sum()) == pytest.approx(float(expected.inputs.sum()), rel=EXACT)
        assert found.ledger.inputs == pytest.approx(float(expected.inputs.sum()), rel=EXACT)


@pytest.mark.parametrize("shape", [s for s in SHAPES.values() if s.bias], ids=[n for n, s in SHAPES.items() if s.bias])
@pytest.mark.parametrize("method", METHODS)
def test_biases_take_what_the_sums_give(shape: Shape, method: str) -> None:
    """Biases by name; constants only where the network itself adds eps and the gradient goes through the root."""
    for found, expected in both(shape, method):
        assert lines_difference(found.ledger.biases, expected.biases) < EXACT
        size = max(map(abs, expected.biases.values()))
        constants = list(expected.constants.values())
        remainder = expected.score - float(expected.inputs.sum()) - sum(expected.biases.values()) - sum(constants)
        assert found.ledger.unaccounted == pytest.approx(remainder, rel=EXACT, abs=EXACT * size)
        assert sorted(found.ledger.constants.values()) == pytest.approx(sorted(constants), rel=EXACT, abs=EXACT * size)
        assert found.ledger.readout == 0


@pytest.mark.parametrize("method", METHODS)
def test_relevance_at_a_module_is_one_number_a_token(method: str) -> None:
    """The same network behind an embedding: its output is the input of the sums."""
    network = AttentionNetwork(Shape(activation="gelu"))
    embedding = nn.Embedding(10, WIDTH, dtype=torch.float64)
    embedding.weight.data.copy_(token_vectors(1, 10)[0])
    model = nn.Sequential(embedding, network).eval()
    ids = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]])
    for inputs in (embedding, "0"):
        found = hw.explain(model, ids, inputs=inputs, score=lambda out: out[:, TARGET], method=method)
        for explanation, sample in zip(found, embedding.weight.detach()[ids], strict=True):
            expected = propagate(network, sample, TARGET, method)
            assert difference(explanation.relevance, expected.inputs.sum(-1)) < EXACT
            biases = {f"1.{name}": amount for name, amount in expected.biases.items()}
            assert lines_difference(explanation.ledger.biases, biases) < EXACT


# The sums themselves: do they stand without the library, and would a forgotten rule be seen?


@shapes()
def test_sums_predict_what_the_network_predicts(shape: Shape) -> None:
    network, x = AttentionNetwork(shape), token_vectors()
    scores = torch.tensor([propagate(network, s, TARGET, "gi").score for s in x], dtype=torch.float64)
    assert difference(scores, network(x)[:, TARGET].detach()) < 1e-13


@shapes()
def test_sums_for_gi_are_gradient_times_input(shape: Shape) -> None:
    """Equation 4 through the whole network is the gradient of the whole network, also for biases."""
    network, x = AttentionNetwork(shape), token_vectors(1)
    expected = propagate(network, x[0], TARGET, "gi")
    sources = {"x": x.requires_grad_(), **{n: p for n, p in network.named_parameters() if n.endswith("bias")}}
    gradients = torch.autograd.grad(network(x)[0, TARGET], list(sources.values()))
    products = {n: g * s.detach() for (n, s), g in zip(sources.items(), gradients, strict=True)}
    assert difference(expected.inputs, products.pop("x")[0]) < 1e-11
    if shape.bias:
        assert lines_difference(expected.biases, {n: float(p.sum()) for n, p in products.items()}) < 1e-11


def held_softmax(softmax: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda *args, **kwargs: softmax(*args, **kwargs).detach()


def held_root(x: Tensor, shape: tuple[int, ...], weight: Tensor, bias: Tensor | None, eps: float) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    y = centred / torch.sqrt(eps + centred.pow(2).mean(-1, keepdim=True)).detach() * weight
    return y if bias is None else y + bias


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("bias", [True, False])
def test_sums_equal_the_papers_implementation_trick(method: str, bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Section 4: holding p and the root constant and taking Gradient x Input gives the same as the rules' sums."""
    network, x = AttentionNetwork(Shape(activation="gelu", bias=bias)), token_vectors(1).requires_grad_()
    expected = propagate(network, x.detach()[0], TARGET, method)
    if "ah" in method:
        monkeypatch.setattr(torch, "softmax", held_softmax(torch.softmax))
    if "ln" in method:
        monkeypatch.setattr(F, "layer_norm", held_root)
    (gradient,) = torch.autograd.grad(network(x)[0, TARGET], x)
    assert difference(expected.inputs, (x.detach() * gradient)[0]) < 1e-11


@shapes()
@pytest.mark.parametrize("pair", list(itertools.combinations(METHODS, 2)), ids=" and ".join)
def test_methods_differ(shape: Shape, pair: tuple[str, str]) -> None:
    """So a library that forgot a rule cannot pass: relevance moves by far more than the tolerance."""
    network, x = AttentionNetwork(shape), token_vectors()
    for sample in x:
        one, other = (propagate(network, sample, TARGET, method) for method in pair)
        assert difference(one.inputs, other.inputs) > 1e-3
        assert difference(one.inputs.sum(-1), other.inputs.sum(-1)) > 1e-3
        if shape.bias:
            assert lines_difference(one.biases, other.biases) > 1e-3


# Conservation, and its break as the propositions predict it.


@pytest.mark.parametrize("pool", ["mean", "first"])
@pytest.mark.parametrize("activation", ["relu", None])
def test_both_rules_conserve_without_biases(activation: str | None, pool: str) -> None:
    """Attention, LayerNorm, ReLU, no biases: the inputs alone carry the score. Without a rule they do not."""
    network, x = AttentionNetwork(Shape(bias=False, activation=activation, pool=pool)), token_vectors()
    for sample in x:
        expected = propagate(network, sample, TARGET, "lrp(ah+ln)")
        assert float(expected.inputs.sum()) == pytest.approx(expected.score, rel=EXACT)
    for found in explain(network, x, "lrp(ah+ln)"):
        assert float(found.relevance.sum()) == pytest.approx(found.score, rel=EXACT)
        assert found.ledger.closed
    for method in ("gi", "lrp(ah)", "lrp(ln)"):
        for found in explain(network, x, method):
            assert abs(float(found.relevance.sum()) - found.score) > 1e-3 * abs(found.score)
            assert not found.ledger.closed


def test_both_rules_conserve_with_biases_in_the_ledger() -> None:
    for found, expected in both(Shape(activation="relu"), "lrp(ah+ln)"):
        assert float(expected.inputs.sum()) + sum(expected.biases.values()) == pytest.approx(expected.score, rel=EXACT)
        assert found.ledger.closed
    for found, _ in both(Shape(activation="gelu"), "lrp(ah+ln)"):
        assert not found.ledger.closed


class OneNorm(nn.Module):
    """LayerNorm without its affine part and a readout without a bias: what arrives at its output is the score."""

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH, eps=eps, elementwise_affine=False)
        self.head = nn.Linear(WIDTH, 1, bias=False, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.norm(x))
        return out


@pytest.mark.parametrize("eps", [1e-5, 1e-2, 1.0])
def test_proposition_2(eps: float) -> None:
    """Of the relevance that reaches LayerNorm, the gradient passes on 1 - Var/(eps + Var); the LN-rule all of it."""
    torch.manual_seed(0)
    model, x = OneNorm(eps).eval(), 3 + 2 * token_vectors()[:, 0]
    variances = x.var(-1, unbiased=False).tolist()
    for found, variance in zip(explain(model, x, "gi", target=0), variances, strict=True):
        assert float(found.relevance.sum()) / found.score == pytest.approx(eps / (eps + variance), rel=1e-8)
    for found in explain(model, x, "lrp(ln)", target=0):
        assert float(found.relevance.sum()) == pytest.approx(found.score, rel=EXACT)


class OneHead(nn.Module):
    """The paper's attention head, y_j = sum_i x_i p_ij, and the readout f = sum_j u_j^T y_j."""

    def __init__(self, bias: bool, causal: bool, fused: bool) -> None:
        super().__init__()
        self.query, self.key = (nn.Linear(WIDTH, 5, bias=bias) for _ in range(2))
        self.readout = nn.Linear(5 * WIDTH, 1, bias=False)
        self.causal, self.fused = causal, fused
        self.double().eval()

    def match(self, x: Tensor) -> Tensor:
        """q_ij of the paper with i last: row j holds what token j asks of every token i."""
        q, k = self.query(x), self.key(x)
        return torch.einsum("bjc,bic->bji", q, k) / math.sqrt(5)

    def probabilities(self, x: Tensor) -> Tensor:
        unseen = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        match = self.match(x).masked_fill(unseen, -math.inf) if self.causal else self.match(x)
        return torch.softmax(match, dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        if self.fused:
            y = F.scaled_dot_product_attention(self.query(x), self.key(x), x, is_causal=self.causal)
        else:
            y = self.probabilities(x) @ x
        out: Tensor = self.readout(y.flatten(1))
        return out


def break_of(gates: Tensor, head: OneHead, x: Tensor) -> Tensor:
    """sum_j Cov_j(gates_j, x)^T df/dy_j, one number a sample; `gates` has the queries j in its rows."""
    p = head.probabilities(x)
    deviation = gates - (p * gates).sum(-1, keepdim=True)
    covariance = (p * deviation) @ x
    return (covariance.flatten(1) * head.readout.weight).sum(-1)


@torch.no_grad()
def predicted_breaks(head: OneHead, x: Tensor) -> tuple[Tensor, Tensor]:
    """The break with a_ij = x_i^T dq_ij/dx_i and b_ij = x_j^T dq_ij/dx_j, and in the appendix's form, 2 q_ij."""
    q, k = head.query(x), head.key(x)
    q_of_x, k_of_x = x @ head.query.weight.T, x @ head.key.weight.T
    a = q @ k_of_x.transpose(-1, -2) / math.sqrt(5)
    b = q_of_x @ k.transpose(-1, -2) / math.sqrt(5)
    return break_of(a + b, head, x), break_of(2 * head.match(x), head, x)


@pytest.mark.parametrize("fused", [False, True], ids=["softmax", "fused"])
@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("bias", [False, True], ids=["no biases", "biases"])
def test_proposition_1(bias: bool, causal: bool, fused: bool) -> None:
    """What the gradient adds at a head is a covariance of gates and values. The AH-rule adds nothing.

    Where queries and keys have biases, the paper's form (twice the covariance with q) is off.
    """
    torch.manual_seed(0)
    head, x = OneHead(bias, causal, fused), token_vectors()
    predicted, appendix = predicted_breaks(head, x)
    found = explain(head, x, "gi", target=0)
    measured = torch.tensor([float(e.relevance.sum()) - e.score for e in found], dtype=torch.float64)
    assert difference(measured, predicted) < EXACT
    assert (difference(measured, appendix) > 1e-2) if bias else (difference(measured, appendix) < EXACT)
    for explanation in explain(head, x, "lrp(ah)", target=0):
        assert float(explanation.relevance.sum()) == pytest.approx(explanation.score, rel=EXACT)
        assert not any(explanation.ledger.biases.values()), "biases of queries and keys get nothing"


@torch.no_grad()
def sides_of_the_appendix(head: OneHead, x: Tensor) -> tuple[Tensor, Tensor]:
    """What the appendix finds for keys, E_j[q (x - E_j[x])], and for queries, E_j[(q - E_j[q]) x], with df/dy_j."""
    p, q = head.probabilities(x), head.match(x)
    deviation = x[:, None] - (p @ x)[:, :, None]  # [sample, query j, key i, channel]
    keys = torch.einsum("bji,bji,bjic->bjc", p, q, deviation)
    queries = (p * (q - (p * q).sum(-1, keepdim=True))) @ x
    first, second = ((side.flatten(1) * head.readout.weight).sum(-1) for side in (keys, queries))
    return first, second


@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_proposition_1_needs_no_centring(shift: float) -> None:
    """The two sides are one covariance also where neither tokens nor scores have the mean 0."""
    torch.manual_seed(0)
    head, x = OneHead(bias=False, causal=False, fused=False), token_vectors() + shift
    p = head.probabilities(x)
    assert (p @ x).abs().mean() > (0.1 if shift == 0 else 2)
    assert (p * head.match(x)).sum(-1).abs().mean() > 0.1
    keys, queries = sides_of_the_appendix(head, x)
    covariance = break_of(head.match(x), head, x).detach()
    assert difference(keys, covariance) < EXACT
    assert difference(queries, covariance) < EXACT
    found = explain(head, x, "gi", target=0)
    measured = torch.tensor([float(e.relevance.sum()) - e.score for e in found], dtype=torch.float64)
    assert difference(measured, 2 * covariance) < EXACT
    assert difference(measured, covariance) > 1e-2
