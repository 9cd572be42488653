"""Products of many rows with a matrix by oneDNN: the same but for rounding, and only where they are asked for."""

from __future__ import annotations

import pytest
import torch

from headwater.kernels import row_products
from headwater.kernels.row_products import MANY, SOME, FasterLinear, multiply_rows

needs_onednn = pytest.mark.skipif(row_products.find_product() is None, reason="torch was built without oneDNN")


def numbers(rows: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    drawn = torch.Generator().manual_seed(0)
    return (
        torch.randn(rows, 24, generator=drawn, dtype=torch.float64).to(dtype),
        torch.randn(24, 40, generator=drawn, dtype=torch.float64).to(dtype),
    )


@needs_onednn
def test_they_are_exact_but_for_rounding(monkeypatch):
    rows, matrix = numbers(MANY)
    asked = count_calls(monkeypatch)
    found = multiply_rows(rows, matrix)
    assert asked == [MANY]
    assert torch.allclose(found.double(), rows.double() @ matrix.double(), rtol=0, atol=24 * 1e-6)


@needs_onednn
@pytest.mark.parametrize(("rows", "dtype"), [(MANY - 1, torch.float32), (MANY, torch.float64)])
def test_few_rows_and_other_types_stay_with_torch(monkeypatch, rows, dtype):
    asked = count_calls(monkeypatch)
    given = numbers(rows, dtype)
    assert torch.equal(multiply_rows(*given), given[0] @ given[1])
    assert asked == []


def test_it_can_be_switched_off(monkeypatch):
    rows, matrix = numbers(MANY)
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", False)
    assert row_products.find_product() is None
    assert torch.equal(multiply_rows(rows, matrix), rows @ matrix)


def test_a_weight_that_lies_the_other_way_round():
    rows, matrix = numbers(MANY)
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
