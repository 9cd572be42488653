"""Tests on the real SST-2 skip where there is none, except in CI, which must have it."""

from __future__ import annotations

import os

import pytest

from headwater.data import DIRECTORY


def need_real_data() -> None:
    if os.environ.get(DIRECTORY):
        return
    reason = f"{DIRECTORY} is not set: no SST-2 to look at"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
