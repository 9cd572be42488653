"""Shared by all tests: one thread for torch, no talk from transformers, kernels in Triton's interpreter."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
if "--gpu" not in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined, so before anything imports Triton
sys.path.insert(0, str(Path(__file__).parent))

import torch

torch.set_num_threads(1)  # the models are tiny: threads would wait for each other, and for what else runs here


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--gpu", action="store_true", help="run the tests of kernels on an NVIDIA card")


# files that take minutes: of several processes, none should begin with one of these when the others are done
LONG = ("test_run_ray", "test_memory", "test_run_processes", "test_bounds", "test_evaluation", "test_left_behind")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.stem not in LONG)


@pytest.fixture(scope="module", autouse=True)
def models_unseen() -> None:
    """No model was explained before, in whatever order the files of tests run: models are shared between them."""
    from headwater.engine.forward import KNOWN

    KNOWN.clear()
