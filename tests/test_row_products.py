"""Products of rows with a matrix by oneDNN: the same but for rounding, and only where it is the faster one."""

from __future__ import annotations

import pytest
import torch

import headwater as hw
from headwater.engine import run_plans
from headwater.kernels import row_products
from headwater.kernels.row_products import LARGE, SOME, FasterLinear, multiply_rows
from headwater.memory.meter import peak_of
from headwater_experiments.bench.shapes import ModelShape

needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")


@pytest.fixture(autouse=True)
def faster(monkeypatch):
    """oneDNN is taken, whatever the processor; no plan was made without it, and none of those made here stays."""
    monkeypatch.setattr(row_products, "is_faster_here", lambda: True)
    run_plans.PLANS.clear()
    yield
    run_plans.PLANS.clear()


def numbers(rows: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    drawn = torch.Generator().manual_seed(0)
    return (
        torch.randn(rows, 24, generator=drawn, dtype=torch.float64).to(dtype),
        torch.randn(24, 40, generator=drawn, dtype=torch.float64).to(dtype),
    )


@needs_onednn
def test_they_are_exact_but_for_rounding(monkeypatch):
    rows, matrix = numbers(SOME)
    asked = count_calls(monkeypatch)
    found = multiply_rows(rows, matrix)
    assert asked == [SOME]
    assert torch.allclose(found.double(), rows.double() @ matrix.double(), rtol=0, atol=24 * 1e-6)


@needs_onednn
@pytest.mark.parametrize(("rows", "dtype"), [(SOME - 1, torch.float32), (SOME, torch.float64)])
def test_few_rows_and_other_types_stay_with_torch(monkeypatch, rows, dtype):
    asked = count_calls(monkeypatch)
    given = numbers(rows, dtype)
    assert torch.equal(multiply_rows(*given), given[0] @ given[1])
    assert asked == []


@needs_onednn
def test_few_rows_of_a_large_matrix_and_few_that_are_left_of_many(monkeypatch):
    asked = count_calls(monkeypatch)
    multiply_rows(torch.ones(2, 512), torch.ones(512, LARGE // 512))
    multiply_rows(*numbers(3), count=SOME)
    assert asked == [2, 3]


@needs_onednn
def test_a_gradient_of_the_product_is_torchs(monkeypatch):
    asked = count_calls(monkeypatch)
    rows, matrix = numbers(SOME)
    (found,) = torch.autograd.grad(multiply_rows(rows.requires_grad_(), matrix).sum(), rows)
    assert torch.allclose(found, matrix.sum(1).expand_as(rows), atol=1e-5)
    assert asked == []


@needs_onednn
@pytest.mark.parametrize("method", ["lrp", "lrp-gamma", "lrp-difference"])
def test_explanations_are_the_same_but_for_rounding(monkeypatch, method):
    """And a plan that was made with it is not played without it."""
    model, tokenizer = hw.load("headwater/sentiment")
    texts = ["a gripping, beautifully acted film, and a very long one that never ends, " * n for n in (3, 2, 2, 2)]

    def relevance() -> list[torch.Tensor]:
        return [hw.explain(model, text, tokenizer=tokenizer, method=method).relevance for text in texts]

    asked = count_calls(monkeypatch)
    by_onednn = relevance()
    assert asked
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    monkeypatch.setattr(row_products, "find_product", lambda: None)
    for one, other in zip(by_onednn, relevance(), strict=True):
        assert not torch.equal(one, other)
        assert (one - other).abs().max() <= 1e-5 * other.abs().sum()


@needs_onednn
@pytest.mark.parametrize("method", ["lrp", "lrp-gamma", "lrp-difference"])
def test_played_it_is_what_a_plain_run_says(method):
    """In float32 and with more rows than SOME: to the last bit."""
    model, tokenizer = hw.load("headwater/sentiment")
    for times in (4, 3, 5, 4, 3):
        text = "a gripping, beautifully acted film and " * (2 * times)
        played = hw.explain(model, text, tokenizer=tokenizer, method=method)
        plain = hw.explain(model, text, tokenizer=tokenizer, method=method, plans=False)
        assert torch.equal(played.relevance, plain.relevance)
        assert played.ledger == plain.ledger
    assert played.provenance.way == "plan"


@needs_onednn
@pytest.mark.parametrize(("maker", "faster"), [("AuthenticAMD", True), ("GenuineIntel", False), ("", False)])
def test_it_is_taken_on_processors_of_amd_alone(monkeypatch, maker, faster):
    monkeypatch.undo()
    monkeypatch.setattr(row_products.platform, "processor", lambda: f"Family 25, {maker}")
    monkeypatch.setattr(row_products.Path, "read_text", lambda *_, **__: f"vendor_id : {maker}")
    row_products.is_faster_here.cache_clear()
    try:
        assert row_products.is_faster_here() is (faster and torch.backends.mkl.is_available())
        assert (row_products.find_product() is not None) is row_products.is_faster_here()
    finally:
        row_products.is_faster_here.cache_clear()


def test_it_can_be_switched_off(monkeypatch):
    rows, matrix = numbers(SOME)
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    assert row_products.find_product() is None
    assert torch.equal(multiply_rows(rows, matrix), rows @ matrix)


def test_a_weight_that_lies_the_other_way_round():
    rows, matrix = numbers(SOME)
    turned = torch.nn.Parameter(matrix.T.contiguous())
    assert torch.allclose(multiply_rows(rows, turned.T), rows @ matrix, rtol=0, atol=24 * 1e-6)


@needs_onednn
@pytest.mark.parametrize("bias", [False, True])
def test_a_model_that_is_only_read_has_the_same_outputs(monkeypatch, bias):
    model = torch.nn.Sequential(torch.nn.Linear(24, 40, bias=bias), torch.nn.GELU(), torch.nn.Linear(40, 8, bias=bias))
    x = torch.randn(2, SOME, 24, generator=torch.Generator().manual_seed(0))
    asked = count_calls(monkeypatch)
    plain = model(x)
    assert torch.equal(plain, run_faster(model, x))  # with gradients nothing is another
    assert asked == []
    with torch.no_grad():
        assert torch.allclose(run_faster(model, x), plain, rtol=0, atol=1e-5)
        assert asked == [2 * SOME] * 2
        assert torch.equal(run_faster(model.double(), x.double()), model(x.double()))
        model.float()
        run_faster(model, x[:1, : SOME - 1])
    assert asked == [2 * SOME] * 2


def run_faster(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    with FasterLinear():
        return model(x)


def count_calls(monkeypatch) -> list[int]:
    """The numbers of rows that oneDNN gets from here on."""
    asked, product = [], row_products.find_product()

    def note(rows, *rest):
        asked.append(len(rows))
        return product(rows, *rest)

    monkeypatch.setattr(row_products, "find_product", lambda: note)
    return asked


@needs_onednn
def test_the_gamma_rule_holds_no_more_than_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """oneDNN makes memory of its own for its results: what it cannot write into is given back before."""
    shape = ModelShape("llama", 64, 2, 2, 448, 100, 256, kv_heads=1, decoder=True)
    model, inputs = shape.build(), shape.inputs(1, 128)

    def explain_plainly() -> None:
        hw.explain(model, inputs, method="lrp-language", plans=False)

    explain_plainly()  # the first look at a model holds more
    with_it = peak_of(explain_plainly, torch.device("cpu"))
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    assert with_it <= peak_of(explain_plainly, torch.device("cpu")) * 1.01
