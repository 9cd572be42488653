"""Datasets by name for `audit_bias`: the parts that are reported one by one."""

from __future__ import annotations

from headwater.inputs.table import LabelledTexts

from .catalogue import load

PARTS = (("train sentences", "sentences"), ("dev", "dev"))


def sst2() -> tuple[str, list[tuple[str, LabelledTexts]]]:
    """What SST-2 is called in results; its parts by name."""
    source = "SST-2: whole sentences of the training part, and the dev part"
    return source, [(part, load("sst2", split)) for part, split in PARTS]
