"""Products of float32 by parts of bfloat16 have all digits of float32.

`pytest tests/test_split_products.py --gpu` runs them on an NVIDIA card; elsewhere Triton's interpreter serves.
"""

from __future__ import annotations

import sys

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification

import headwater as hw
from headwater.kernels import row_products

parts = pytest.importorskip("headwater.kernels.split_products")

GPU = "--gpu" in sys.argv
DEVICE = "cuda" if GPU else "cpu"
ROOM = 2e-6  # sums of some hundred numbers in float32


def numbers(rows: int, inner: int, columns: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """A factor whose numbers have sizes far apart, and a matrix."""
    drawn = torch.Generator().manual_seed(seed)
    left = torch.randn(rows, inner, generator=drawn) * 10 ** torch.randint(-3, 4, (rows, inner), generator=drawn)
    return left.to(DEVICE), torch.randn(inner, columns, generator=drawn).to(DEVICE)


def error(found: Tensor, left: Tensor, right: Tensor) -> float:
    expected = left.double() @ right.double()
    return float((found.double() - expected).norm() / expected.norm())


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("size", [(70, 48, 80), (5, 3, 7), (1, 130, 1)])
def test_they_have_all_digits(size, turned):
    left, right = numbers(*size)
    right = right.T.contiguous().T if turned else right
    assert error(parts.multiply_by_parts(left, right), left, right) < ROOM


def test_two_parts_are_too_few(monkeypatch):
    left, right = numbers(70, 48, 80)
    monkeypatch.setattr(parts, "LEFT", (1, 1, 0, 1, 0, 0))
    monkeypatch.setattr(parts, "RIGHT", (1, 1, 1, 0, 1, 0))
    assert error(parts.multiply_by_parts(left, right), left, right) > ROOM


@pytest.mark.parametrize("short", [16, 50, 256])
def test_long_sums_are_not_cut_off(monkeypatch, short):
    """Of numbers of one sign nothing cancels: sums that are cut off, step by step, would all be too small."""
    monkeypatch.setattr(parts, "SHORT", short)
    left, right = (one.abs() for one in numbers(70, 3072 if GPU else 100, 80))
    found, expected = parts.multiply_by_parts(left, right).double(), left.double() @ right.double()
    assert abs(float((found / expected - 1).mean())) < (1e-6 if GPU else 1e-7)


def test_rows_are_taken_apart_some_at_a_time(monkeypatch):
    left, right = numbers(70, 48, 80)
    whole = parts.multiply_by_parts(left, right)
    monkeypatch.setattr(parts, "AT_ONCE", 20 * 48)
    assert error(parts.multiply_by_parts(left, right), left, right) < ROOM
    assert torch.allclose(parts.multiply_by_parts(left, right), whole, rtol=1e-5, atol=1e-3)


def test_they_are_float32_whatever_torchs_default():
    left, right = numbers(5, 48, 7)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float16)
    try:
        found = parts.multiply_by_parts(left, right)
    finally:
        torch.set_default_dtype(before)
    assert found.dtype is torch.float32
    assert error(found, left, right) < ROOM


def test_rows_that_do_not_lie_side_by_side():
    left, right = numbers(48, 70, 80)
    right = numbers(48, 80, 1)[0]
    assert error(parts.multiply_by_parts(left.T, right), left.T, right) < ROOM


@pytest.mark.parametrize("change", ["rows", "size", "dtype", "gradient", "tf32", "card", None])
def test_when_they_are_taken(monkeypatch, change):
    """Of large matrices of float32 on a card, where torch would take no TF32 and nobody asks for a gradient."""
    monkeypatch.setattr(row_products, "is_served_card", lambda tensor: change != "card")
    monkeypatch.setattr(row_products, "tf32_is_allowed", lambda: change == "tf32")
    rows = torch.ones(row_products.MANY - (change == "rows"), 512, dtype=torch.float64 if change == "dtype" else None)
    rows.requires_grad_(change == "gradient")
    matrix = torch.ones(512, row_products.WIDE // 512 - (change == "size"), dtype=rows.dtype)
    assert row_products.is_for_parts(rows, matrix) is (change is None)


def test_tf32_is_what_torch_says():
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision
    try:
        for precision in ("tf32", "ieee"):
            matmul.fp32_precision = precision
            assert row_products.tf32_is_allowed() is (precision == "tf32")
    finally:
        matmul.fp32_precision = before


@pytest.mark.parametrize("method", ["lrp", "lrp-gamma", "attnlrp"])
def test_explanations_are_the_same_but_for_rounding(monkeypatch, method):
    model, ids = make_model(), torch.arange(5, 17).reshape(2, 6).to(DEVICE)

    def explain() -> list[hw.Explanation]:
        return hw.explain(model, {"input_ids": ids}, method=method, plans=False)

    monkeypatch.setattr(row_products, "MANY", 10**9)
    plain = explain()
    taken = []
    monkeypatch.setattr(row_products, "is_served_card", lambda tensor: True)
    monkeypatch.setattr(row_products, "MANY", 1)
    monkeypatch.setattr(row_products, "WIDE", 1)
    product = parts.multiply_by_parts
    monkeypatch.setattr(parts, "multiply_by_parts", lambda a, b: taken.append(len(a)) or product(a, b))
    found = explain()
    assert taken
    assert [one.score for one in found] == [one.score for one in plain]
    for one, other in zip(found, plain, strict=True):
        assert not torch.equal(one.relevance, other.relevance)
        assert (one.relevance - other.relevance).abs().max() <= 1e-5 * other.relevance.abs().sum()


def make_model() -> nn.Module:
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 40}
    model: nn.Module = BertForSequenceClassification(BertConfig(vocab_size=30, **sizes))
    return model.eval().to(DEVICE)
