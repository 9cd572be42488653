"""What is chosen by a word is an error for any other word, also where callers checked it before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tiny import tiny

from headwater.errors import HeadwaterError
from headwater.inputs.places import find_places
from headwater.inputs.readouts import read_out
from headwater.inputs.text import pad_values
from headwater.jobs.running import open_engine
from headwater.memory.policy import MemoryPolicy
from headwater.memory.recompute import choose_blocks
from headwater.web.reports import check_form
from headwater.web.stores.drawings import PARTS, draw_part


def enter(context: Any) -> None:
    with context:
        pass


@pytest.mark.parametrize(
    "choose",
    [
        lambda: read_out(torch.zeros(1, 2), "odds", False),
        lambda: pad_values([1], 2, 0, "middle"),
        lambda: find_places(tiny("bert"), "nowhere"),
        lambda: enter(open_engine("spark", None)),
        lambda: MemoryPolicy(keep="tape"),
        lambda: choose_blocks("layers", tiny("bert"), []),  # type: ignore[arg-type]
        lambda: check_form("pdf"),
        lambda: draw_part(None, "pages", None),  # type: ignore[arg-type]
    ],
)
def test_an_unknown_word_is_refused(choose: Callable[[], Any]) -> None:
    with pytest.raises(HeadwaterError):
        choose()


def test_known_words_are_not() -> None:
    assert read_out(torch.zeros(1, 2), "probability", False).tolist() == [[0.5, 0.5]]
    assert (pad_values([1], 2, 0, "left"), pad_values([1], 2, 0, "right")) == ([0, 1], [1, 0])
    enter(open_engine("local", None))
    assert len(choose_blocks("blocks", tiny("bert"), [])) > 1
    assert "rows" in PARTS
