"""Kernels give what the plain rules give. `pytest tests/test_kernels.py --gpu` runs the same on an NVIDIA card."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import pytest
import tiny
import torch
import torch.nn.functional as F
from torch import Tensor

import headwater as hw
from headwater.kernels import attention, blocked, forward, sparse_rows
from headwater.kernels.scoring import ScoreForm
from headwater.rules import gamma, linear
from headwater.rules.attention import constant as plain
from headwater.rules.attention.call import scores_with_mask

TRITON = find_spec("triton") is not None  # it is made for Linux alone
if TRITON:
    from headwater.kernels import fused

GPU = "--gpu" in sys.argv
DEVICE = "cuda" if GPU else "cpu"
LOWEST = torch.finfo(torch.float32).min
SCALE = 0.2
ROOM = {torch.float64: 1e-12, torch.float32: 4e-6, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
# Triton's interpreter has no products of bfloat16
HALF = (torch.float16, torch.bfloat16) if GPU else (torch.float16,)


@pytest.fixture(autouse=True)
def _computed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan would play the kernel that it was written with, where a test puts another in its place."""
    monkeypatch.setenv("HEADWATER_PLANS", "off")


@dataclass(frozen=True)
class Shape:
    """Sizes of an attention: `groups` heads share their keys, values are `width` wide."""

    queries: int
    keys: int
    head: int
    width: int
    kv_heads: int = 2
    groups: int = 1
    batch: int = 2

    def __str__(self) -> str:
        return f"{self.queries}x{self.keys}-{self.kv_heads}x{self.groups}heads-{self.head}-{self.width}"


SQUARE = Shape(70, 70, 64, 64)
SHAPES = (
    Shape(1, 1, 32, 32),
    Shape(37, 37, 48, 48),
    Shape(128, 128, 32, 32, groups=2),
    Shape(129, 129, 80, 80, kv_heads=1, groups=4, batch=1),
    Shape(33, 90, 64, 64),
    Shape(90, 33, 128, 128, kv_heads=1),
    Shape(40, 40, 256, 256, kv_heads=1, batch=1),
    Shape(65, 65, 192, 128, kv_heads=1, groups=2, batch=1),
)


@dataclass
class Attention:
    """Random queries, keys and gradients as models lay them out: heads inside positions."""

    gradient: Tensor
    query: Tensor
    key: Tensor
    mask: Tensor | None
    causal: bool

    @classmethod
    def drawn(cls, shape: Shape, masked: str = "none", dtype: torch.dtype = torch.float32, device: str = DEVICE):
        generator = torch.Generator().manual_seed(0)

        def draw(*size: int) -> Tensor:
            made = torch.randn(size, generator=generator, dtype=torch.float64)
            return made.to(device, dtype).transpose(1, 2)

        heads = shape.kv_heads * shape.groups
        return cls(
            draw(shape.batch, shape.queries, heads, shape.width),
            draw(shape.batch, shape.queries, heads, shape.head),
            draw(shape.batch, shape.keys, shape.kv_heads, shape.head),
            MASKS[masked](shape, generator, device),
            masked == "causal",
        )

    @property
    def options(self) -> dict[str, Any]:
        return {"scale": SCALE, "is_causal": self.causal, "enable_gqa": self.query.shape[1] > self.key.shape[1]}

    def expected(self) -> Tensor:
        """The plain rule in float64."""
        parts = (part.double() for part in (self.gradient, self.query, self.key))
        mask = self.mask.double() if self.mask is not None and self.mask.dtype is not torch.bool else self.mask
        return plain.values_gradient_torch(*parts, mask, self.options, self.key.shape[1])

    def sums(self) -> Tensor:
        key = self.key.repeat_interleave(self.query.shape[1] // self.key.shape[1], 1).double()
        mask = self.mask.double() if self.mask is not None and self.mask.dtype is not torch.bool else self.mask
        return scores_with_mask(self.query.double(), key, mask, self.options).logsumexp(-1).float()


def looks(shape: Shape, generator: torch.Generator, device: str) -> Tensor:
    """A random mask for each sample; one query may look at nothing."""
    mask = torch.rand(shape.batch, 1, shape.queries, shape.keys, generator=generator) > 0.4
    mask[0, 0, shape.queries // 2] = False
    return mask.to(device)


def padding(shape: Shape, generator: torch.Generator, device: str) -> Tensor:
    lengths = torch.linspace(shape.keys, 1 + shape.keys // 2, shape.batch).long()
    return (torch.arange(shape.keys) < lengths[:, None])[:, None, None].to(device)


def window(shape: Shape, generator: torch.Generator, device: str) -> Tensor:
    """Each query sees its last 16 keys: whole blocks are empty."""
    ago = torch.arange(shape.queries)[:, None] - torch.arange(shape.keys)
    return ((ago >= 0) & (ago < 16))[None, None].to(device)


def bias(shape: Shape, generator: torch.Generator, device: str) -> Tensor:
    """One for each head, added, as relative positions have it; -inf here and there."""
    made = 2 * torch.randn(1, shape.kv_heads * shape.groups, shape.queries, shape.keys, generator=generator)
    return made.masked_fill_(torch.rand(made.shape, generator=generator) > 0.8, -math.inf).to(device)


def slope(shape: Shape, generator: torch.Generator, device: str) -> Tensor:
    """ALiBi's: the same for every query."""
    heads = torch.arange(shape.kv_heads * shape.groups)[:, None, None]
    return (0.05 * heads * torch.arange(shape.keys))[None].to(device)


def lowest(shape: Shape, generator: torch.Generator, device: str) -> Tensor:
    """The lowest number there is instead of -inf, also for all keys of one query: it then looks at all alike."""
    mask = torch.where(looks(shape, generator, "cpu"), 0.0, LOWEST)
    return mask.to(device)


MASKS: dict[str, Any] = {
    "none": lambda *_: None,
    "causal": lambda *_: None,
    "looks": looks,
    "padding": padding,
    "window": window,
    "bias": bias,
    "slope": slope,
    "lowest": lowest,
}


def apart(found: Tensor, expected: Tensor) -> float:
    """Largest difference relative to the largest number."""
    assert found.shape == expected.shape
    return float((found.double() - expected).abs().max() / expected.abs().max())


def in_triton(case: Attention, sums: Tensor | None) -> Tensor:
    scoring = ScoreForm(SCALE, case.causal, mask=case.mask)
    return fused.values_gradient_triton(case.gradient, case.query, case.key, sums, scoring)


def on_processor(case: Attention) -> Tensor | None:
    return attention.values_gradient(case.gradient, case.query, case.key, case.sums(), case.mask, case.options)


@pytest.mark.skipif(not TRITON, reason="could not import 'triton'")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy, behind Triton's interpreter, speaks of infinities
class TestTriton:
    @pytest.mark.slow
    @pytest.mark.parametrize("masked", MASKS)
    def test_every_mask(self, masked: str) -> None:
        case = Attention.drawn(SQUARE, masked)
        assert apart(in_triton(case, case.sums()), case.expected()) < ROOM[torch.float32]

    @pytest.mark.parametrize("shape", SHAPES, ids=str)
    def test_every_shape(self, shape: Shape) -> None:
        case = Attention.drawn(shape, "causal" if shape.queries == shape.keys else "none")
        assert apart(in_triton(case, case.sums()), case.expected()) < ROOM[torch.float32]

    @pytest.mark.parametrize("masked", ["none", "causal", "looks", "bias"])
    @pytest.mark.parametrize("dtype", HALF, ids=str)
    def test_half_precision(self, dtype: torch.dtype, masked: str) -> None:
        case = Attention.drawn(Shape(70, 70, 64, 64, groups=2, batch=1), masked, dtype)
        assert apart(in_triton(case, case.sums()), case.expected()) < ROOM[dtype]

    @pytest.mark.slow
    @pytest.mark.parametrize("masked", MASKS)
    def test_it_finds_the_sums_itself(self, masked: str) -> None:
        case = Attention.drawn(Shape(40, 75, 32, 32, groups=2, batch=1), masked)
        assert apart(in_triton(case, None), case.expected()) < ROOM[torch.float32]

    def test_heads_of_a_group_together_and_one_by_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        case = Attention.drawn(Shape(70, 70, 32, 32, groups=4, batch=1), "causal")
        alone = in_triton(case, case.sums())
        monkeypatch.setattr(fused, "CROWD", 0)
        assert apart(in_triton(case, case.sums()), case.expected()) < ROOM[torch.float32]
        assert apart(alone, case.expected()) < ROOM[torch.float32]

    def test_scores_that_are_capped(self) -> None:
        case = Attention.drawn(SQUARE, "causal")
        scores = scores_with_mask(case.query.double(), case.key.double(), None, {"scale": SCALE})
        seen = torch.ones_like(scores, dtype=torch.bool).tril()
        weights = (3 * (scores / 3).tanh()).masked_fill(~seen, -math.inf).softmax(-1)
        scoring = ScoreForm(SCALE, causal=True, cap=3.0)
        found = fused.values_gradient_triton(case.gradient, case.query, case.key, None, scoring)
        assert apart(found, weights.transpose(-2, -1) @ case.gradient.double()) < ROOM[torch.float32]

    @pytest.mark.parametrize(("scale", "shift"), [(0.2002, 0.0), (0.2, 1e-3)])
    def test_a_wrong_constant_is_found(self, scale: float, shift: float) -> None:
        case = Attention.drawn(SQUARE, "causal")
        sums = case.sums() + shift
        found = fused.values_gradient_triton(case.gradient, case.query, case.key, sums, ScoreForm(scale, causal=True))
        assert apart(found, case.expected()) > 10 * ROOM[torch.float32]

    def test_what_it_does_not_know_it_refuses(self) -> None:
        case = Attention.drawn(Shape(4, 4, 32, 32), dtype=torch.float64)
        assert not fused.supports(case.query, case.key, case.gradient)
        wide = Attention.drawn(Shape(4, 4, 288, 32))
        assert not fused.supports(wide.query, wide.key, wide.gradient)


@pytest.fixture(params=[blocked.CACHED, 4096], ids=["at once", "by blocks"])
def cached(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked, "CACHED", request.param)


@pytest.mark.usefixtures("cached")
class TestOnTheProcessor:
    @pytest.mark.parametrize("masked", MASKS)
    @pytest.mark.parametrize("shape", [SQUARE, Shape(37, 90, 48, 32, groups=3), Shape(300, 300, 32, 32)], ids=str)
    def test_every_mask(self, shape: Shape, masked: str) -> None:
        case = Attention.drawn(shape, masked, device="cpu")
        found = on_processor(case)
        if masked == "lowest":  # the sum's digits are lost, so the plain rule must serve
            assert found is None
        else:
            assert found is not None
            assert apart(found, case.expected()) < ROOM[torch.float32]

    @pytest.mark.parametrize("shape", SHAPES, ids=str)
    def test_every_shape(self, shape: Shape) -> None:
        case = Attention.drawn(shape, "causal" if shape.queries == shape.keys else "none", device="cpu")
        found = on_processor(case)
        assert found is not None
        assert apart(found, case.expected()) < ROOM[torch.float32]

    @pytest.mark.parametrize("size", [64, 1000, 4096])
    def test_every_size_of_block(self, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(blocked, "CACHED", size)
        monkeypatch.setattr(blocked, "KEYS", 19)
        case = Attention.drawn(Shape(61, 61, 32, 32, groups=2), "causal", device="cpu")
        found = on_processor(case)
        assert found is not None
        assert apart(found, case.expected()) < ROOM[torch.float32]

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
    def test_half_precision(self, dtype: torch.dtype) -> None:
        case = Attention.drawn(SQUARE, "causal", dtype, device="cpu")
        found = on_processor(case)
        assert found is not None
        assert found.dtype is dtype
        assert apart(found, case.expected()) < ROOM[dtype]

    @pytest.mark.crossed
    @pytest.mark.parametrize("masked", MASKS)
    @pytest.mark.parametrize("shape", [Shape(300, 300, 32, 32, groups=2), Shape(90, 40, 48, 32)], ids=str)
    @pytest.mark.parametrize("stretch", [(0, 1), (-1, None), (20, 23), (17, 61), (0, 0)], ids=str)
    def test_queries_that_nothing_comes_back_to_are_left_out(
        self, stretch: tuple[int, int | None], shape: Shape, masked: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        case = Attention.drawn(shape, masked, device="cpu")
        reached = torch.zeros_like(case.gradient[..., :1])
        reached[-1, :, slice(*stretch)] = 1.0  # in one sample alone
        case.gradient = case.gradient * reached
        seen: list[int] = []
        scored = blocked.score_into
        monkeypatch.setattr(
            blocked, "score_into", lambda *args, **rest: (seen.append(args[1].numel()), scored(*args, **rest))[1]
        )
        found = on_processor(case)
        if masked == "lowest":
            assert found is None
            return
        assert found is not None
        assert float((found.double() - case.expected()).abs().max()) < 20 * ROOM[torch.float32]
        whole = case.query.numel() // case.query.shape[2]
        assert max(seen, default=0) <= whole * int(reached[-1, 0].sum())

    def test_a_block_left_out_is_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(blocked, "KEYS", 16)
        monkeypatch.setattr(blocked, "CACHED", 4096)
        case, every = Attention.drawn(SQUARE, "causal", device="cpu"), blocked.split_range
        monkeypatch.setattr(blocked, "split_range", lambda first, last, step: list(every(first, last, step))[:-1])
        found = on_processor(case)
        assert found is not None
        assert not apart(found, case.expected()) < ROOM[torch.float32]  # what was not written may be anything


def attended(case: Attention) -> tuple[Tensor, Tensor, Tensor | None]:
    value = torch.randn_like(case.key[..., : case.gradient.shape[-1]])
    func = F.scaled_dot_product_attention
    expected = func(case.query, case.key, value, attn_mask=case.mask, **case.options)
    return expected, *forward.attend_by_torch(func, case.query, case.key, value, case.mask, case.options)


@pytest.mark.parametrize("masked", MASKS)
@pytest.mark.parametrize("shape", [SQUARE, Shape(37, 90, 48, 48, groups=3)], ids=str)
def test_the_forward_pass_is_torchs_own_and_tells_its_sums(shape: Shape, masked: str) -> None:
    case = Attention.drawn(shape, masked, device="cpu")
    expected, found, sums = attended(case)
    assert torch.equal(found.nan_to_num(), expected.nan_to_num())
    assert sums is not None
    alive = case.sums() > LOWEST / 2
    torch.testing.assert_close(sums[alive], case.sums()[alive], rtol=1e-5, atol=1e-5)


def test_sums_that_are_something_else_are_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Attention.drawn(SQUARE, "causal", device="cpu")
    true = forward.flash_on_cpu

    def wrong(*args: Any) -> Any:
        result, sums = true(*args)
        return result, sums * math.log2(math.e)

    monkeypatch.setattr(forward, "flash_on_cpu", wrong)
    assert attended(case)[2] is None


class TestRowsReached:
    def test_they_are_those_that_are_not_zero(self) -> None:
        gradient = torch.randn(4, 30, 8, dtype=torch.float64)
        gradient[:, 20:] = 0.0
        gradient[1, :25] = -0.0
        gradient[2, 3] = 0.0
        gradient[2, 3, 7] = -1e-300  # tiny, below zero, and not where the quick look falls
        gradient[2, 4, 0] = 0.0
        expected = [i for i, row in enumerate(gradient.view(-1, 8).tolist()) if any(row)]
        assert sparse_rows.find_nonzero_rows(gradient).tolist() == expected

    def test_what_is_not_a_number_counts(self) -> None:
        gradient = torch.zeros(64, 8)
        gradient[5, 3] = torch.nan
        assert sparse_rows.find_nonzero_rows(gradient).tolist() == [5]

    @pytest.mark.parametrize("zeros", [0, 1, 15])
    def test_a_few_zeros_are_not_worth_it(self, zeros: int) -> None:
        gradient = torch.randn(64, 8)
        gradient[:zeros] = 0.0
        assert sparse_rows.find_nonzero_rows(gradient) is None

    def test_columns_of_zeros_are_no_rows(self) -> None:
        gradient = torch.randn(64, 8)
        gradient[:, 0] = 0.0
        assert sparse_rows.find_nonzero_rows(gradient) is None

    @pytest.mark.parametrize("shape", [(0, 8), (64, 0), (64,), ()])
    def test_odd_shapes(self, shape: tuple[int, ...]) -> None:
        assert sparse_rows.find_nonzero_rows(torch.zeros(shape)) is None


@pytest.mark.parametrize("method", ["gi", "lrp", "lrp-gamma"])
def test_an_expert_that_no_token_goes_to(method: str) -> None:
    class Experts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.busy, self.idle = torch.nn.Linear(6, 4), torch.nn.Linear(6, 4)

        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([self.busy(x), self.idle(x[:, :0])], 1).sum(1)

    model = tiny.randomised(Experts().double())
    (e,) = hw.explain(model, torch.randn(1, 5, 6, dtype=torch.float64), method=method, target=1)
    assert e.ledger.closed
    assert e.ledger.biases["idle.bias"] == 0.0


PADDED = {"input_ids": torch.randint(3, 119, (4, 40), generator=torch.Generator().manual_seed(1))}
PADDED["attention_mask"] = (torch.arange(40) < torch.tensor([40, 31, 12, 5])[:, None]).long()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["gi", "lrp", "lrp-gamma", "lrp-query", "lrp-secant", "attnlrp"])
@pytest.mark.parametrize("name", ["bert", "roberta", "llama", "gpt2"])
def test_positions_that_are_not_reached_change_nothing(name: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.tiny(name)
    few = hw.explain(model, PADDED, method=method)
    left_out: list[int] = []

    def counting(made: Tensor, rows: Tensor | None, shape: torch.Size) -> Tensor:
        left_out.append(shape.numel() - len(made))
        return sparse_rows.scatter_rows(made, rows, shape)

    for module in (linear, gamma):
        monkeypatch.setattr(module, "scatter_rows", counting)
    hw.explain(model, PADDED, method=method)
    assert sum(left_out) > 0
    for module in (linear, gamma):
        monkeypatch.setattr(module, "find_nonzero_rows", lambda _: None)
    for one, other in zip(few, hw.explain(model, PADDED, method=method), strict=True):
        torch.testing.assert_close(one.relevance, other.relevance, rtol=1e-10, atol=1e-13)
        torch.testing.assert_close(one.ledger.biases, other.ledger.biases, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "mistral", "qwen3", "modernbert"])
def test_models_are_explained_alike_with_and_without(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, ids = tiny.tiny(name, torch.float32), torch.tensor([[7, 19, 33, 101, 54, 88, 12]])
    (fast,) = hw.explain(model, {"input_ids": ids}, method="lrp")
    used: list[bool] = []
    monkeypatch.setattr(plain.kernels, "values_gradient", lambda *_: used.append(True))
    (slow,) = hw.explain(model, {"input_ids": ids}, method="lrp")
    assert used
    torch.testing.assert_close(fast.relevance, slow.relevance, rtol=1e-4, atol=1e-6)


if GPU:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    CARDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.CUDNN_ATTENTION]

    @pytest.mark.parametrize("backend", CARDS, ids=lambda backend: backend.name)
    @pytest.mark.parametrize("masked", ["none", "causal"])
    @pytest.mark.parametrize("groups", [1, 4])
    def test_every_forward_kernel_of_the_card(backend: SDPBackend, masked: str, groups: int) -> None:
        if groups > 1 and backend is SDPBackend.EFFICIENT_ATTENTION:
            return  # it has no groups
        case = Attention.drawn(Shape(200, 200, 128, 128, groups=groups), masked, torch.bfloat16)
        with sdpa_kernel(backend):
            expected, found, sums = attended(case)
        assert torch.equal(found, expected)
        assert sums is not None
        torch.testing.assert_close(sums, case.sums(), rtol=1e-2, atol=1e-2)

    @pytest.mark.parametrize("length", [1024, 2000, 4096])
    def test_tuned_for_long_texts(length: int) -> None:
        case = Attention.drawn(Shape(length, length, 128, 128, groups=4, batch=1), "causal", torch.bfloat16)
        assert apart(in_triton(case, case.sums()), case.expected()) < ROOM[torch.bfloat16]
