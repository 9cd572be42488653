"""Matrices in four bits: what is unpacked is near what was packed, and packs into the same again."""

from __future__ import annotations

import pytest
import torch

from headwater_experiments.models.packing import CODES, GROUP, LEVELS, STEPS, is_packed, pack, unpack


@pytest.fixture
def weights() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    rows = torch.randn(7, 5 * GROUP) * torch.logspace(-3, 1, 7)[:, None]
    return {
        "matrix": rows,
        "narrow": torch.randn(4, GROUP - 1),
        "bias": torch.randn(9),
        "nothing": torch.zeros(2, GROUP),
    }


def test_every_number_is_within_its_step(weights: dict[str, torch.Tensor]) -> None:
    packed = pack(weights)
    found = unpack(packed)
    steps = packed["matrix" + STEPS].float().repeat_interleave(GROUP, 1)
    codes = (found["matrix"] / steps).round()
    assert codes.min() >= -LEVELS
    assert codes.max() <= LEVELS - 1
    assert torch.allclose(codes * steps, found["matrix"])
    inside = (weights["matrix"] / steps).abs() <= LEVELS - 1
    error = (found["matrix"] - weights["matrix"]).abs()
    assert bool((error[inside] <= 0.5001 * steps[inside]).all())
    assert inside.float().mean() > 0.95
    assert float(error.norm() / weights["matrix"].norm()) < 0.1


def test_other_shapes_stay_in_half_precision_and_zeros_are_zeros(weights: dict[str, torch.Tensor]) -> None:
    found = unpack(pack(weights))
    assert set(found) == set(weights)
    for name in ("narrow", "bias"):
        assert torch.equal(found[name], weights[name].half().float())
    assert not found["nothing"].any()
    assert all(value.dtype is torch.float32 for value in found.values())


def test_what_was_unpacked_packs_into_the_same(weights: dict[str, torch.Tensor]) -> None:
    once = unpack(pack(weights))
    assert all(torch.equal(value, unpack(pack(once))[name]) for name, value in once.items())


def test_a_matrix_takes_four_and_a_half_bits_a_number(weights: dict[str, torch.Tensor]) -> None:
    packed = pack({"matrix": weights["matrix"]})
    size = sum(value.numel() * value.element_size() for value in packed.values())
    assert size * 8 == 4.5 * weights["matrix"].numel()
    assert is_packed(packed)
    assert not is_packed(weights)
    assert packed["matrix" + CODES].dtype is torch.uint8
