"""`attnlrp` and `lrp` against the LXT package, whose values were recorded: it needs an older transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers as tf
from tiny import GROUPED
from torch import nn

import headwater as hw

RECORDED = json.loads((Path(__file__).parent / "recorded" / "lxt.json").read_text())
IDS = torch.tensor([[7, 19, 33, 101, 54, 88, 12]])
METHODS = {"attn": "attnlrp", "cp": "lrp"}  # LXT's names of its rule maps


def build(name: str) -> nn.Module:
    """The recorded models: weights drawn in the order of the parameters, float32."""
    model: nn.Module = {
        "llama": lambda: tf.LlamaForCausalLM(tf.LlamaConfig(**GROUPED)),
        "qwen3": lambda: tf.Qwen3ForCausalLM(tf.Qwen3Config(**GROUPED, head_dim=8)),
        "gpt2": lambda: tf.GPT2LMHeadModel(
            tf.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=120, n_positions=64)
        ),
    }[name]()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for p in model.parameters():
            noise = torch.randn(p.shape, generator=generator)
            p.copy_(0.2 * noise if p.dim() > 1 else p + 0.1 * noise)
    return model.eval()


@pytest.mark.parametrize("record", RECORDED["records"], ids=lambda r: f"{r['model']}-{r['rule']}")
def test_agrees_with_lxt(record: dict[str, Any]) -> None:
    e = hw.explain(build(record["model"]), {"input_ids": IDS}, method=METHODS[record["rule"]], output="logit")[0]
    assert e.score == pytest.approx(record["score"], rel=1e-6)
    scale = max(abs(r) for r in record["relevance"])
    assert e.relevance == pytest.approx(record["relevance"], abs=1e-5 * scale)


def test_the_two_rules_of_lxt_are_told_apart() -> None:
    record = RECORDED["records"][0]
    e = hw.explain(build("llama"), {"input_ids": IDS}, method="lrp", output="logit")[0]
    assert e.relevance != pytest.approx(record["relevance"], rel=0.1)
