"""Shared by all tests: one thread for torch, no talk from transformers, kernels in Triton's interpreter."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
if "--gpu" not in sys.argv:
    os.environ["TRITON_INTERPRET"] = "1"  # read when a kernel is defined, so before anything imports Triton
sys.path.insert(0, str(Path(__file__).parent))

import torch

torch.set_num_threads(1)  # the models are tiny: threads would wait for each other, and for what else runs here


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--gpu", action="store_true", help="run the tests of kernels on an NVIDIA card")


# the files that take longest: of several processes, none should begin with one of these when the others are done
LONG = """
    test_explorer_reading test_run_processes test_left_behind test_explorer test_extending test_explorer_states
    test_paper test_paper_graphs test_run_ray test_methods test_plans test_injection test_capped test_stores test_memory
    test_token_gamma test_run test_graph_explanations test_faithfulness
""".split()


@pytest.hookimpl(tryfirst=True)  # before the marks are asked for
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    from crossing import mark_slow_cases

    mark_slow_cases(items)
    items.sort(key=lambda item: LONG.index(item.path.stem) if item.path.stem in LONG else len(LONG))


@pytest.fixture(scope="module", autouse=True)
def models_unseen() -> None:
    """No model was explained before, in whatever order the files of tests run: models are shared between them."""
    from headwater.engine.forward import KNOWN

    KNOWN.clear()
    leave_out_of_garbage_collection()


def leave_out_of_garbage_collection() -> None:
    """What is here by now (torch, transformers, thousands of tests) is not searched for garbage again.

    Whatever counts memory or writes a plan down searches first; through all of that it takes half a second each time.
    """
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    from budget import Budget

    config.pluginmanager.register(Budget(complete=config.args_source is pytest.Config.ArgsSource.TESTPATHS))


def pytest_unconfigure() -> None:
    gc.unfreeze()  # libraries that count what is left at the end find it


@pytest.fixture(scope="module")
def chrome() -> Iterator[Any]:
    """A real Chromium for the tests of a file."""
    from browsing import browser

    with browser() as found:
        yield found


@pytest.fixture
def window(chrome: Any) -> Iterator[Any]:
    """Opens a window of any size for a page of the explorer, or of a file. What it complains of fails the test."""
    from browsing import Watched

    opened: list[Watched] = []

    def open_window(home: str = "file:", **options: Any) -> Watched:
        opened.append(Watched(chrome.new_context(**options), home))
        return opened[-1]

    yield open_window
    for one in opened:
        one.page.context.close()
    assert [trouble for one in opened for trouble in one.trouble] == []


@pytest.fixture
def watched(window: Any, home: str) -> Any:
    """A page of the explorer that the file serves as `home`."""
    return window(home, viewport={"width": 1280, "height": 900}, accept_downloads=True)
