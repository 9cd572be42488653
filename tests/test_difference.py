"""Differences from a reference: they add up to the score's rise, on every architecture and operation by operation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import tiny
import torch
import torch.nn.functional as F
import transformers as tf
from torch import Tensor, nn

import headwater as hw
from headwater.errors import HiddenOperation, UsageError
from headwater.memory.meter import peak_of
from headwater.results.ledger import BASELINE_SCORE
from headwater.rules import difference, secants
from headwater.rules.attention import difference as blocked

TEXT = "a gripping film , not bad"


def explain_tiny(name: str, method: str = "lrp-difference", **options: Any) -> list[hw.Explanation]:
    found = hw.explain(tiny.tiny(name), tiny.arguments(name), method=method, tokenizer=tiny.tokenizer(), **options)
    return found if isinstance(found, list) else [found]


@pytest.mark.crossed
@pytest.mark.parametrize("name", tiny.BUILD)
@pytest.mark.parametrize("method", ["lrp-difference", "lrp-difference(0.05)"])
def test_the_ledger_closes(name: str, method: str) -> None:
    room = 1e-6 if name in (*tiny.CASTS, "modernbert", "bloom") else 1e-12
    for e in explain_tiny(name, method):
        assert e.ledger.error < room
        assert [name for name, amount in e.ledger.constants.items() if amount] == [BASELINE_SCORE]
        assert not e.ledger.biases


@pytest.mark.parametrize("name", ["bert", "gpt2", "deberta-v2", "xlnet"])
def test_the_baseline_is_the_score_of_unknown_words(name: str) -> None:
    model, given = tiny.tiny(name), tiny.arguments(name)
    unknown = {**given, "input_ids": torch.full_like(given["input_ids"], tiny.tokenizer().unk_token_id)}
    explained = explain_tiny(name, target=1, output="logit")
    with torch.no_grad():
        logits = model(**unknown).logits
    logits = logits[:, -1] if logits.dim() == 3 else logits
    for e, row in zip(explained, logits, strict=True):
        assert e.ledger.constants[BASELINE_SCORE] == pytest.approx(float(row[1]), abs=1e-12)


class Parts(nn.Module):
    """A function of a vector of numbers, which is explained at its input."""

    def __init__(self, function: Callable[[Tensor], Tensor], width: int = 6) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(width, width).double(), nn.Linear(width, 2).double()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.function(self.first(x)))


def explain_parts(function: Callable[[Tensor], Tensor], method: str = "lrp-difference") -> hw.Explanation:
    torch.manual_seed(1)
    model, x = Parts(function).eval(), torch.randn(1, 5, 6, dtype=torch.float64)
    found = hw.explain(model, x, method=method, score=lambda out: out[:, 0, 1] + out[:, 3, 0])
    return found[0] if isinstance(found, list) else found


def in_place(x: Tensor) -> Tensor:
    y = x.clone()
    y += x.tanh()
    y.mul_(x)
    F.relu_(y)
    y[:, 0] = x[:, 1] * 2
    y[:, 1].copy_(x[:, 2].exp())
    y[..., 2:4].mul_(x[..., :2])
    return y


def into_a_constant(x: Tensor) -> Tensor:
    made = torch.ones_like(x.detach())
    made[:, 1:] = x[:, 1:].sigmoid()
    other = torch.zeros_like(x.detach())
    other[:, 2:].copy_(x[:, 2:] ** 3)
    return made * other + made


def solve_systems(x: Tensor) -> Tensor:
    """Matrices far enough from singular, of the input and constant."""
    square = 2 * torch.eye(5, dtype=x.dtype) + x @ x.mT / 8
    triangle, constant = x @ x.mT / 4, torch.eye(5, dtype=x.dtype) + 0.1
    solve = torch.linalg.solve_triangular
    solved = solve(triangle, x, upper=False, unitriangular=True) + solve(square.triu(), x, upper=True)
    solved = solved + solve(square.tril(), x.mT, upper=False, left=False).mT + solve(constant.tril(), x, upper=False)
    solved = solved + torch.linalg.solve(square, x) + torch.linalg.solve(constant, x)
    return solved + torch.linalg.solve(square, x[..., 0])[..., None] + (torch.linalg.inv(square) + square.inverse()) @ x


OPERATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "products": lambda x: x * x.tanh() + x @ x.transpose(1, 2) @ torch.ones(5, 6, dtype=x.dtype),
    "division": lambda x: x / (2 + x.square()) + 1 / (3 + x.exp()),
    "softmax": lambda x: x.softmax(-1) * x + x.log_softmax(1) + x.logsumexp(-1, keepdim=True),
    "masked softmax": lambda x: (x @ x.mT).masked_fill(torch.ones(5, 5).triu(1) > 0, -math.inf).softmax(-1) @ x,
    "attention": lambda x: F.scaled_dot_product_attention(x[:, None], x[:, None].flip(2), x[:, None] ** 2)[:, 0],
    "norms": lambda x: F.layer_norm(x, (6,)) + F.rms_norm(x, (6,)) + F.group_norm(x.mT, 3).mT + F.normalize(x, dim=-1),
    "norms by hand": lambda x: (
        (x - x.mean(-1, True)) / (x.std(-1, keepdim=True) + 1e-6) + x * x.var(-1, keepdim=True).rsqrt()
    ),
    "activations": lambda x: F.gelu(x) + F.silu(x) + F.elu(x) + F.softplus(x) + x.abs().sqrt() + x.clamp(-0.3, 0.4),
    "powers": lambda x: x**3 + x.abs() ** 1.5 + (1 + x**2).pow(-0.5) + x.square().log1p() + (x.abs() + 0.1).log(),
    "the larger": lambda x: torch.maximum(x, x.flip(-1)) + torch.minimum(x, x.flip(1)) + x.max(-1, keepdim=True).values,
    "an order": lambda x: x.sort(-1).values * x + x.topk(2, -1).values.sum(-1, keepdim=True) + x.amax((1, 2), True),
    "a gate": lambda x: F.glu(torch.cat([x, x.flip(-1)], -1)) + torch.einsum("bij,bkj->bik", x, x) @ x,
    "in place": in_place,
    "into a constant": into_a_constant,
    "linear systems": solve_systems,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_are_exact(name: str) -> None:
    assert explain_parts(OPERATIONS[name]).ledger.error < 1e-12


def attend(x: Tensor, causal: bool, mask: bool) -> Tensor:
    """Two heads of queries that share keys and values, with who may look where."""
    heads = x.unflatten(-1, (2, 3)).transpose(1, 2)
    allowed = torch.ones(5, 5, dtype=torch.bool).tril(2) if mask else None
    options = {"is_causal": causal, "attn_mask": allowed, "enable_gqa": True, "scale": 0.7}
    found = F.scaled_dot_product_attention(heads.tanh(), heads[:, :1].flip(2), heads[:, :1] ** 2, **options)
    return found.transpose(1, 2).flatten(2)


@pytest.mark.parametrize("numbers", [1, 25, 1 << 24])
@pytest.mark.parametrize(("causal", "mask"), [(False, False), (True, False), (False, True)])
def test_attention_in_blocks_is_attention_written_out(
    causal: bool, mask: bool, numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocked, "NUMBERS", numbers)
    in_blocks = explain_parts(lambda x: attend(x, causal, mask))
    monkeypatch.setattr(difference, "pass_attention_on", lambda *given: None)
    written = explain_parts(lambda x: attend(x, causal, mask))
    assert in_blocks.relevance == pytest.approx(written.relevance, abs=1e-13)
    assert in_blocks.ledger.error < 1e-12


def test_memory_does_not_grow_with_the_square_of_the_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked, "NUMBERS", 1 << 12)
    config = tf.BertConfig(**{**tiny.SMALL, "max_position_embeddings": 512})
    model = tiny.randomised(tf.BertForSequenceClassification(config)).eval()

    def peak(length: int) -> int:
        ids = {"input_ids": torch.full((1, length), 7)}
        hw.explain(model, ids, method="lrp-difference")  # the first of a model also looks closely at it
        return peak_of(lambda: hw.explain(model, ids, method="lrp-difference", plans=False), torch.device("cpu"))

    assert peak(256) < 2.2 * peak(128)
    monkeypatch.setattr(difference, "pass_attention_on", lambda *given: None)
    assert peak(256) > 3 * peak(128)


def test_a_model_that_writes_into_its_input() -> None:
    """As CTRL scales the embeddings that it looked up."""

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.words = nn.Embedding(20, 4).double()

        def get_input_embeddings(self) -> nn.Module:
            return self.words

        def forward(self, input_ids: Tensor) -> Tensor:
            x = self.words(input_ids)
            x *= 3.0
            return x.tanh().sum((1, 2))[:, None] * x.sum((1, 2))[:, None]

    model, ids = Scaled().eval(), torch.tensor([[3, 4, 5]])
    (e,) = hw.explain(model, {"input_ids": ids}, method="lrp-difference", target=0)
    assert e.ledger.error < 1e-12
    with torch.no_grad():
        rise = model(ids) - model(torch.zeros_like(ids))
    assert float(e.relevance.sum()) == pytest.approx(float(rise))


@pytest.mark.parametrize("name", ["softmax", "activations", "norms by hand", "division", "linear systems"])
def test_the_gradient_of_the_input_is_not_exact(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without slopes between the two points, all else alike, the ledger stays open."""
    monkeypatch.setattr(difference, "SURROGATES", {})
    monkeypatch.setattr(difference, "WRITTEN_OUT", {})
    monkeypatch.setattr(difference, "SOLUTIONS", {})
    monkeypatch.setattr(difference, "ELEMENTWISE", frozenset())
    assert explain_parts(OPERATIONS[name]).ledger.error > 1e-5


def test_it_is_the_path_integral_of_what_is_quadratic() -> None:
    """Integrated gradients, worked out by hand for x A x + c x: (x - b) times the mean gradient of both ends."""
    torch.manual_seed(0)
    a, c, x = torch.randn(4, 4).double(), torch.randn(4).double(), torch.randn(1, 4).double()

    class Quadratic(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([((x @ a) * x).sum(-1) + x @ c, x.sum(-1)], -1)

    found = hw.explain(Quadratic().eval(), x, method="lrp-difference", target=0)
    e = found[0] if isinstance(found, list) else found
    gradient = ((a + a.T) @ x[0]) / 2 + c
    assert torch.allclose(e.relevance.double().flatten(), x[0] * gradient, atol=1e-12)


@pytest.mark.filterwarnings("ignore:.*gradients")
@pytest.mark.filterwarnings("ignore:.*hooks")
def test_of_a_feed_forward_network_it_is_deeplift() -> None:
    captum = pytest.importorskip("captum.attr")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3)).double().eval()
    x = torch.randn(1, 5, dtype=torch.float64)
    found = hw.explain(model, x, method="lrp-difference", target=1)
    e = found[0] if isinstance(found, list) else found
    theirs = captum.DeepLift(model).attribute(x, torch.zeros_like(x), target=1)
    assert torch.allclose(e.relevance.double().flatten(), theirs.flatten(), atol=1e-9)


def slow_attention(x: Tensor, b: Tensor, weights: tuple[Tensor, Tensor, Tensor], at: int, feature: int) -> Tensor:
    """Relevance of tokens for one number of attention's result, number by number from the sums."""
    n, width = x.shape
    (q, k, v), (q0, k0, v0) = ([one @ w for w in weights] for one in (x, b))
    s, s0 = (one @ two.T / math.sqrt(width) for one, two in ((q, k), (q0, k0)))
    p, p0 = s.softmax(-1), s0.softmax(-1)
    mean = [(p[at, j] - p0[at, j]) / torch.log(p[at, j] / p0[at, j]) for j in range(n)]
    to_scores = [mean[j] * (v[j, feature] + v0[j, feature]) / 2 for j in range(n)]
    centre = sum(to_scores) / sum(mean)
    found = torch.zeros(n, dtype=torch.float64)
    for j in range(n):
        step = mean[j] * ((v[j, feature] + v0[j, feature]) / 2 - centre) / math.sqrt(width)
        found[j] += (p[at, j] + p0[at, j]) / 2 * (v - v0)[j, feature] + step * (k - k0)[j] @ (q + q0)[at] / 2
        found[at] += step * (q - q0)[at] @ (k + k0)[j] / 2
    return found


def test_attention_equals_a_slow_version() -> None:
    torch.manual_seed(0)
    weights = tuple(torch.randn(4, 4, dtype=torch.float64) for _ in range(3))
    x = torch.randn(1, 3, 4, dtype=torch.float64)

    class Attention(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(*((x @ w)[:, None] for w in weights))[:, 0]

    found = hw.explain(Attention().eval(), x, method="lrp-difference", score=lambda out: out[:, 1, 2])
    e = found[0] if isinstance(found, list) else found
    expected = slow_attention(x[0], torch.zeros_like(x[0]), weights, 1, 2)
    assert torch.allclose(e.relevance.double().reshape(3, 4).sum(-1), expected, atol=1e-12)


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_padding_and_batches_change_nothing(name: str) -> None:
    model, tokenizer = tiny.tiny(name), tiny.tokenizer()
    texts = ["film", TEXT]
    alone = [hw.explain(model, text, tokenizer=tokenizer, method="lrp-difference") for text in texts]
    together = hw.explain(model, texts, tokenizer=tokenizer, method="lrp-difference", batch_size=2)
    for one, other in zip(alone, together, strict=True):
        assert torch.allclose(one.relevance, other.relevance, atol=1e-6)


def test_a_plan_says_the_same() -> None:
    model, tokenizer = tiny.tiny("distilbert"), tiny.tokenizer()
    ways = set()
    for text in ("film", TEXT, "a dull film", "not good", "a very good film"):
        for method in ("lrp-difference", "lrp-difference(0.05)", "lrp"):
            planned = hw.explain(model, text, tokenizer=tokenizer, method=method)
            plain = hw.explain(model, text, tokenizer=tokenizer, method=method, plans=False)
            assert torch.equal(planned.relevance, plain.relevance)
            assert planned.ledger.to_dict() == plain.ledger.to_dict()
            ways.add((method, planned.provenance.way))
    assert ("lrp-difference", "plan") in ways
    assert ("lrp-difference(0.05)", "plan") in ways


def test_what_is_cut_off_is_refused() -> None:
    class Detached(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sum(-1, keepdim=True) + x.detach().square().sum(-1, keepdim=True)

    model = Detached().eval()
    for _ in range(3):  # refused once, it is not taken the next time
        with pytest.raises(HiddenOperation, match="'lrp' has a line"):
            hw.explain(model, torch.randn(1, 4), method="lrp-difference", target=0)


def test_no_other_rule_goes_with_it() -> None:
    with pytest.raises(UsageError, match="no rule but gamma"):
        hw.explain(tiny.tiny("bert"), TEXT, tokenizer=tiny.tokenizer(), method="lrp(difference+ah)")
    named = hw.explain(tiny.tiny("bert"), TEXT, tokenizer=tiny.tokenizer(), method="lrp(difference+gamma=0.05)")
    short = hw.explain(tiny.tiny("bert"), TEXT, tokenizer=tiny.tokenizer(), method="lrp-difference(0.05)")
    assert torch.equal(named.relevance, short.relevance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("gap", [1.0, 1e-3, 1e-6, 1e-9, 0.0])
def test_slopes_lose_no_digits_where_points_are_close(dtype: torch.dtype, gap: float) -> None:
    torch.manual_seed(0)
    b = torch.rand(200, dtype=torch.float64) + 0.2
    x = b + gap * torch.randn(200, dtype=torch.float64).clamp(-0.5, 0.5) * 0.3
    near, far = x.to(dtype), b.to(dtype)
    for name, slope in secants.CLOSED.items():
        found = slope(near, far).double()
        exact = slope_by_series(getattr(torch, name), near.double(), far.double())
        assert torch.allclose(found, exact, rtol=200 * torch.finfo(dtype).eps), name
    smooth = secants.secant_slope(F.gelu, (near, far), (F.gelu(near), F.gelu(far)))
    exact = slope_by_series(F.gelu, near.double(), far.double())
    assert torch.allclose(smooth.double(), exact, atol=20 * torch.finfo(dtype).eps ** (2 / 3))


def slope_by_series(function: Callable[[Tensor], Tensor], x: Tensor, b: Tensor) -> Tensor:
    """The mean derivative between the two points, by Gauss's points: no difference is taken."""
    import numpy as np

    total = torch.zeros_like(x)
    for place, weight in zip(*np.polynomial.legendre.leggauss(12), strict=True):
        at = (b + (x - b) * (1 + place) / 2).requires_grad_(True)
        total += weight / 2 * torch.autograd.grad(function(at).sum(), at)[0]
    return total
