"""Experts of mixtures by number: what each gives, what the router gets, and cuts that close."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
import transformers as tf
from tiny import GROUPED, SPECIAL, arguments, randomised, tiny, tokenizer
from torch import nn

import headwater as hw
from headwater.errors import NotApplicable, UsageError
from headwater.results.inside import Inside

FEW = {"num_experts_per_tok": 2, "experts_implementation": "eager"}
LATENT = {"kv_lora_rank": 8, "q_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8}
BUILD: dict[str, Callable[[], nn.Module]] = {
    "mixtral": lambda: tf.MixtralForCausalLM(tf.MixtralConfig(**GROUPED, **FEW, num_local_experts=4)),
    "qwen2-moe": lambda: tf.Qwen2MoeForCausalLM(
        tf.Qwen2MoeConfig(**GROUPED, **FEW, num_experts=4, moe_intermediate_size=16, shared_expert_intermediate_size=16)
    ),
    "olmoe": lambda: tf.OlmoeForCausalLM(tf.OlmoeConfig(**GROUPED, **SPECIAL, **FEW, num_experts=4)),
    "deepseek-v3": lambda: tf.DeepseekV3ForCausalLM(
        tf.DeepseekV3Config(
            **{**GROUPED, "num_key_value_heads": 4},
            **SPECIAL,
            **FEW,
            **LATENT,
            n_routed_experts=4,
            n_group=2,
            topk_group=1,
            moe_intermediate_size=16,
            first_k_dense_replace=1,
        )
    ),
    "gpt-oss": lambda: tf.GptOssForCausalLM(
        tf.GptOssConfig(**GROUPED, **SPECIAL, **FEW, head_dim=8, num_local_experts=4)
    ),
}
QUICK = ("mixtral", "gpt-oss")
NAMES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in BUILD]


@cache
def mixture(name: str) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return randomised(BUILD[name]().to(torch.float64))


def look(model: nn.Module, method: str = "lrp", parts: Any = ("experts",)) -> Inside:
    options: dict[str, Any] = {"method": method, "output": "logit", "target": 7, "plans": False}
    (e,) = hw.explain(model, arguments("mixtral", 1), inside=list(parts), **options)
    assert e.inside is not None
    return e.inside


@pytest.mark.parametrize("name", NAMES)
def test_every_expert_is_a_cut_that_closes(name: str) -> None:
    """These models normalise in float32, whatever their dtype."""
    inside = look(mixture(name))
    layers = 1 if name == "deepseek-v3" else 2  # its first layer has no experts
    assert inside.experts.shape == (layers, 4)
    groups = inside.of_kind("experts")
    assert all(group.ledger is not None and group.ledger.error <= 1e-6 for group in groups)
    number = int(inside.experts[-1].abs().argmax())
    assert inside.ledger(f"layer 1 expert {number}").nodes == pytest.approx(float(inside.experts[-1, number]), rel=1e-5)
    assert inside.top(1, "experts")[0].name.startswith("layer ")
    assert Inside.from_dict(inside.to_dict()).experts.equal(inside.experts)


@pytest.mark.parametrize("name", ["mixtral", pytest.param("olmoe", marks=pytest.mark.slow)])
def test_experts_and_router_share_what_the_layer_gives(name: str) -> None:
    """Their matrices have no biases. A router's softmax is held constant, or has half, as in AttnLRP."""
    held = look(mixture(name), parts=("experts", "model.layers.*.mlp"))
    given = torch.stack([held[f"model.layers.{layer}.mlp"].sum() for layer in range(2)])
    assert torch.allclose(held.experts.sum(1), given.double(), rtol=1e-5)
    assert held.router.eq(0).all()
    halved = look(mixture(name), "attnlrp", ("experts", "model.layers.*.mlp"))
    given = torch.stack([halved[f"model.layers.{layer}.mlp"].sum() for layer in range(2)])
    assert torch.allclose(halved.experts.sum(1) + halved.router.sum(1), given.double(), rtol=1e-5)
    assert halved.router.abs().max() > 0


def test_numbers_are_those_of_the_model() -> None:
    """An expert of the last layer that is switched off has no relevance; the others of that layer do not change."""
    model = mixture("mixtral")
    before = look(model).experts[1]
    for number in range(4):
        changed = copy.deepcopy(model)
        with torch.no_grad():
            changed.model.layers[1].mlp.experts.down_proj[number].zero_()
        after = look(changed).experts[1]
        assert float(after[number]) == 0.0
    assert int((before != 0).sum()) > 1


def test_an_expert_that_no_token_goes_to_has_nothing() -> None:
    model = copy.deepcopy(mixture("mixtral"))
    seen: list[torch.Tensor] = []
    experts = model.model.layers[0].mlp.experts
    experts.register_forward_hook(lambda module, args, out: seen.append(args[1]))
    ids = arguments("mixtral", 1, 2)
    (e,) = hw.explain(model, ids, method="lrp", inside=["experts"], plans=False)
    assert e.inside is not None
    went = {*seen[-1].flatten().tolist()}
    assert {n for n in range(4) if float(e.inside.experts[0, n])} == went
    assert len(went) < 4


def test_experts_that_cannot_be_told_are_said() -> None:
    with pytest.raises(NotApplicable, match="no experts that can be told"):
        hw.explain(tiny("llama"), arguments("llama", 1), method="lrp", inside=["experts"])
    together = copy.deepcopy(mixture("mixtral"))
    together.set_experts_implementation("batched_mm")
    with pytest.raises(NotApplicable, match="experts_implementation='eager'"):
        hw.explain(together, arguments("mixtral", 1), method="lrp", inside=["experts"])


def test_samples_are_explained_one_by_one() -> None:
    """The rows of an expert do not tell which sample they are of."""
    model = mixture("mixtral")
    options: dict[str, Any] = {"method": "lrp", "inside": ["experts"], "output": "logit", "target": 7}
    both = hw.explain(model, arguments("mixtral", 2), **options)
    (first,) = hw.explain(model, {name: one[:1] for name, one in arguments("mixtral", 2).items()}, **options)
    assert first.inside is not None
    assert both[0].inside is not None
    assert torch.allclose(both[0].inside.experts, first.inside.experts, rtol=1e-5)


def test_an_expert_is_replaced_by_its_name_and_by_its_node() -> None:
    """As where the columns of its last matrix are zero. Its rows are no positions of a text."""
    model, ids = mixture("mixtral"), arguments("mixtral", 1)
    options: dict[str, Any] = {"output": "logit", "target": 7}
    nodes = look(model).top(8, "experts")
    assert len({node.unit for node in nodes}) > 1
    for node, effect in zip(nodes, hw.patch_each(model, ids, nodes, **options), strict=True):
        assert hw.patch(model, ids, node.name, **options).patched == effect.patched
        assert effect.patched == pytest.approx(score_without(node.layer, node.unit), rel=1e-10)
    assert all(one.estimated for one in hw.patch_each(model, ids, nodes, exact=0, **options))
    mean = hw.patch(model, ids, nodes[0], with_=[arguments("mixtral", 1, 12)], **options)
    assert mean.patched != mean.score
    other = {"input_ids": ids["input_ids"].flip(1)}
    for one in (nodes[0], look(model, parts=("neurons",)).top(1)[0]):
        with pytest.raises(UsageError, match="not every token goes to expert"):
            hw.patch(model, ids, one, with_=other, **options)


def score_without(layer: Any, expert: Any, unit: Any = slice(None), ids: Any = None, heads: bool = True) -> float:
    """The logit of a model in which columns of an expert's last matrix are zero, and all heads of the first layer."""
    changed = copy.deepcopy(mixture("mixtral"))
    with torch.no_grad():
        changed.model.layers[layer].mlp.experts.down_proj[expert][:, unit] = 0
        if not heads:
            changed.model.layers[0].self_attn.o_proj.weight.zero_()
        ids = arguments("mixtral", 1) if ids is None else ids
        return float(changed(**ids).logits[0, -1, 7])


def test_places_are_known_again_where_tokens_go_to_other_experts() -> None:
    """Without heads the first layer calls other experts, so that a place of the second has another number."""
    model, ids = mixture("mixtral"), arguments("mixtral", 1, 3)
    (e,) = hw.explain(model, ids, inside=["experts", "neurons"], method="lrp", output="logit", target=7, plans=False)
    assert e.inside is not None
    experts = [group.expert[0] for group in e.inside.of_kind("experts") if group.layer == 1 and group.expert]
    groups = [group for group in e.inside.of_kind("neurons") if group.layer == 1]
    for expert, group in zip(experts, groups, strict=True):
        nodes = ["layer 0 heads", f"{group.place} neuron 5"]
        found = hw.patch(model, ids, nodes, output="logit", target=7)
        assert found.patched == pytest.approx(score_without(1, expert, 5, ids, heads=False), rel=1e-6)


def test_two_inputs_that_meet_other_experts_have_no_difference() -> None:
    texts = ("the movie was very good", "dull")
    with pytest.raises(UsageError, match="other experts"):
        hw.difference(mixture("mixtral"), *texts, inside=["experts"], method="lrp", target=7, tokenizer=tokenizer())
