"""Tests on real data skip where there is none, except in CI, which must have it. Others make up data of any size."""

from __future__ import annotations

import os

import pytest
from missing import skip_without

from headwater.inputs.table import DATA_DIRECTORY


def need_real_data(what: str = "SST-2") -> None:
    if not os.environ.get(DATA_DIRECTORY):
        skip_without("data", f"{DATA_DIRECTORY} is not set, and this test looks at {what}")


def any_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a test put a few made-up rows where a published dataset would lie."""
    monkeypatch.setattr("headwater_experiments.data.catalogue.check_counts", lambda table, *_: table)
