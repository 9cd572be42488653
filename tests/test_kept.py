"""What an explanation keeps between its way forward and its way back is what the rules need, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import tiny
import torch
from torch import Tensor, nn

from headwater.inputs.places import start
from headwater.methods.lrp import LANGUAGE, ORDER, QUERY, all_rules
from headwater.rules import Books, RuleSet, Scope
from headwater.rules.modules import watch_foreign_modules
from headwater.rules.saved import BorrowedTensor, SavedTensor

HIDDEN, HEADS, INNER = (tiny.SMALL[key] for key in ("hidden_size", "num_attention_heads", "intermediate_size"))
GROUPED = HIDDEN // 2  # tiny's decoders have one key for two heads

# numbers a token and layer: queries and keys, a sum for every head, a divisor for every norm, an activation's ratio
NEEDED = {
    "bert": 2 * HIDDEN + HEADS + 2 + INNER,
    "gpt2": 2 * HIDDEN + HEADS + 2 + 4 * HIDDEN,
    "llama": HIDDEN + GROUPED + HEADS + 2 + INNER,
    "mistral": HIDDEN + GROUPED + HEADS + 2 + INNER,
}

# the gamma rule needs what goes into and comes out of linear layers besides: of the values (queries and keys are
# constants), of the joined heads, of the way into the inner layer and of the way out; and once at the end of the model
GAMMA = {
    "bert": NEEDED["bert"] + 2 * HIDDEN + 2 * HIDDEN + (HIDDEN + INNER) + (INNER + HIDDEN),
    "llama": NEEDED["llama"] + (HIDDEN + GROUPED) + 2 * HIDDEN + (HIDDEN + INNER) + (INNER + HIDDEN),
}
AT_THE_END = {"bert": HIDDEN, "llama": HIDDEN + tiny.SMALL["vocab_size"]}
# lrp-language: what goes into a gate's activation and the other factor, of which the product is made again; queries,
# keys and values, of which attention is; what comes out of the inner layer.
SHARED = {
    "llama": 2 * INNER + HIDDEN + 2 * GROUPED + HEADS + 2 + HIDDEN,
    "bert": INNER + (INNER + HIDDEN) + 3 * HIDDEN + HEADS + 2,  # no gate: an activation's ratio and its value
}
BOOSTED = {
    "lrp-gamma": replace(all_rules(gamma=0.02), names=frozenset(ORDER)),
    "lrp-query": QUERY.rules,
    "lrp-language": LANGUAGE.rules,
    "residual": replace(all_rules(residual=1.0), names=frozenset(ORDER)),
}


def kept(model: nn.Module, length: int, rules: RuleSet) -> int:
    """Bytes that the graph behind the prediction holds, weights not counted."""
    vectors = model.get_input_embeddings()(torch.arange(length)[None]).detach().requires_grad_(True)
    scope = Scope(rules, Books(1), {id(p): n for n, p in model.named_parameters()}, {})
    with watch_foreign_modules(model, scope), scope:
        out = model(inputs_embeds=start(vectors))
    weights = {p.untyped_storage().data_ptr() for p in (*model.parameters(), *model.buffers())}
    found = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in held_by(out.logits.grad_fn)}
    return sum(size for place, size in found.items() if place not in weights)


def held_by(node: Any) -> Iterator[Tensor]:
    """Every tensor that a node of the graph, or one behind it, keeps for its backward pass."""
    seen, stack = set(), [node]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        stack += [parent for parent, _ in node.next_functions]
        saved = [*getattr(node, "saved_tensors", ())]
        saved += [getattr(node, name) for name in dir(node) if name.startswith("_saved_")]
        later = [getattr(node, name, None) for name in ("factor", "boost", "product", "held")]
        names = ("_x", "_value", "_made", "_z", "_factor", "_gate", "_other", "_sums", "_mask")
        saved += [getattr(one, name, None) for one in later for name in names]
        saved += getattr(getattr(node, "held", None), "_parts", ())
        saved += getattr(getattr(node, "terms", None), "_kept", ())
        saved = [value.tensor() if isinstance(value, SavedTensor | BorrowedTensor) else value for value in saved]
        yield from (value for value in saved if isinstance(value, Tensor))


def a_token_and_layer(name: str, rules: RuleSet) -> float:
    """Numbers kept for one more token in one layer, of a model with two: what does not grow with it drops out."""
    model = tiny.tiny(name, torch.float32)
    return (kept(model, 40, rules) - kept(model, 20, rules)) / 20 / 4 / 2


@pytest.mark.parametrize("name", NEEDED)
def test_what_is_kept(name: str) -> None:
    # the last norm, and what a head keeps of its input, stand once in the model: less than a number and a half a layer
    assert NEEDED[name] <= a_token_and_layer(name, all_rules()) <= NEEDED[name] + 1.5


@pytest.mark.parametrize("name", NEEDED)
def test_a_gradient_keeps_more(name: str) -> None:
    assert a_token_and_layer(name, RuleSet(frozenset())) > 1.3 * NEEDED[name]


@pytest.mark.parametrize("name", GAMMA)
def test_gamma_keeps_inputs_and_outputs_of_linear_layers_besides(name: str) -> None:
    needed = GAMMA[name] + AT_THE_END[name] / 2
    assert needed <= a_token_and_layer(name, BOOSTED["lrp-gamma"]) <= needed + 1.5


@pytest.mark.parametrize("name", SHARED)
def test_language_keeps_nothing_that_can_be_made_again_cheaply(name: str) -> None:
    found = a_token_and_layer(name, LANGUAGE.rules)
    assert SHARED[name] <= found <= SHARED[name] + tiny.tiny(name).config.hidden_size / HEADS + 1.5  # rotary tables


def llama_8b_proportions(layers: int) -> nn.Module:
    """Layers of Llama-8B's, an eighth as wide: the heads are as large, and there are an eighth as many."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 512, "intermediate_size": 1792, "num_attention_heads": 4, "num_key_value_heads": 1}
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**sizes, num_hidden_layers=layers, vocab_size=64)).eval().requires_grad_(False)


def test_language_keeps_at_most_twice_what_lrp_keeps_of_a_llama() -> None:
    """In each further layer: rotary tables, which take part once queries and keys do, stand once in the model."""
    one, two = llama_8b_proportions(1), llama_8b_proportions(2)
    lrp, language, query = (kept(two, 60, r) - kept(one, 60, r) for r in (all_rules(), LANGUAGE.rules, QUERY.rules))
    assert 1.9 * lrp < language <= 2 * lrp
    assert query > 2 * lrp  # it keeps the inputs and outputs of all linear layers


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_a_residual_sum_keeps_its_two_terms_besides(name: str) -> None:
    """Two sums a layer, two terms each."""
    needed = NEEDED[name] + 2 * 2 * HIDDEN
    assert needed <= a_token_and_layer(name, BOOSTED["residual"]) <= needed + 1.5


@pytest.mark.parametrize("method", BOOSTED)
@pytest.mark.parametrize("name", NEEDED)
def test_all_that_grows_goes_through_the_hooks_for_saved_tensors(name: str, method: str) -> None:
    """So that whoever keeps saved tensors elsewhere, or makes them again, has all of them."""
    model = tiny.tiny(name, torch.float32)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: None, lambda _: torch.empty(0)):
        assert kept(model, 40, BOOSTED[method]) == kept(model, 20, BOOSTED[method]) < 100
