"""Information flow routes against slow versions, written from the paper's equations and the models' weights."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from tiny import arguments, tiny, tokenizer
from torch import Tensor, nn

import headwater as hw
from headwater.errors import NotApplicable
from headwater.methods import ifr

TEXTS = ["a gripping, beautifully acted film", "the movie is not good"]


@dataclass
class Layer:
    """x [tokens, width], its sum y; weights [heads, tokens, tokens], values [heads, tokens, size]; outward by head."""

    x: Tensor
    y: Tensor
    weights: Tensor
    values: Tensor
    outward: list[Tensor]  # [size, width]
    others: tuple[Tensor, ...] = ()


def proximity(term: Tensor, whole: Tensor) -> float:
    return max(0.0, float(whole.abs().sum() - (whole - term).abs().sum()))


def slow_flow(layers: list[Layer], start: Tensor) -> Tensor:
    """e(a, y) = proximity(a, y) / sum of all; edges from a source token are summed over heads."""
    relevance = start.clone()
    for layer in reversed(layers):
        tokens, below = len(layer.x), torch.zeros_like(relevance)
        for i in range(tokens):
            edges = torch.zeros(tokens, dtype=torch.float64)
            for term in (layer.x, *layer.others):
                edges[i] += proximity(term[i], layer.y[i])
            for j in range(tokens):
                for head, outward in enumerate(layer.outward):
                    term = layer.weights[head, i, j] * (layer.values[head, j] @ outward)
                    edges[j] += proximity(term, layer.y[i])
            below += relevance[i] * edges / edges.sum()
        relevance = below
    return relevance


def run_eager(name: str, text: str) -> tuple[Any, Any]:
    model = copy.deepcopy(tiny(name))
    model.set_attn_implementation("eager")
    with torch.no_grad():
        out = model(**tokenizer()(text, return_tensors="pt"), output_attentions=True, output_hidden_states=True)
    return model, out


def by_heads(values: Tensor, heads: int) -> Tensor:
    return values.reshape(len(values), heads, -1).transpose(0, 1)


def llama(model: Any, k: int, x: Tensor, weights: Tensor) -> Layer:
    block = model.model.layers[k]
    values = by_heads(block.self_attn.v_proj(block.input_layernorm(x)), 2).repeat_interleave(2, 0)
    outward = list(block.self_attn.o_proj.weight.T.split(8))
    y = x + sum(weights[h] @ values[h] @ outward[h] for h in range(4))
    return Layer(x, y, weights, values, outward)


def gemma2(model: Any, k: int, x: Tensor, weights: Tensor) -> Layer:
    """What attention brings is normalised before the sum: the divisor is that of the whole."""
    block = model.model.layers[k]
    values = by_heads(block.self_attn.v_proj(block.input_layernorm(x)), 2).repeat_interleave(2, 0)
    plain = list(block.self_attn.o_proj.weight.T.split(8))
    norm = block.post_attention_layernorm
    whole = sum(weights[h] @ values[h] @ plain[h] for h in range(4))
    assert isinstance(whole, Tensor)
    divisor = (whole.square().mean(-1, keepdim=True) + norm.eps).sqrt()
    outward = [one * (1 + norm.weight) for one in plain]
    return Layer(x, x + norm(whole), weights / divisor, values, outward)


def gpt2(model: Any, k: int, x: Tensor, weights: Tensor) -> Layer:
    block = model.transformer.h[k]
    values = by_heads(block.attn.c_attn(block.ln_1(x)).split(32, -1)[2], 4)
    outward = list(block.attn.c_proj.weight.split(8))
    y = x + sum(weights[h] @ values[h] @ outward[h] for h in range(4)) + block.attn.c_proj.bias
    return Layer(x, y, weights, values, outward)


def bert(model: Any, k: int, x: Tensor, weights: Tensor) -> Layer:
    """The sum comes before the normalisation."""
    block = model.bert.encoder.layer[k].attention
    values = by_heads(block.self.value(x), 4)
    outward = list(block.output.dense.weight.T.split(8))
    y = x + sum(weights[h] @ values[h] @ outward[h] for h in range(4)) + block.output.dense.bias
    return Layer(x, y, weights, values, outward)


def neox(model: Any, k: int, x: Tensor, weights: Tensor) -> Layer:
    """Attention and feed-forward are added at once: a sum of three."""
    block = model.gpt_neox.layers[k]
    joined = block.attention.query_key_value(block.input_layernorm(x))
    values = joined.reshape(len(x), 4, 24)[..., 16:].transpose(0, 1)
    outward = list(block.attention.dense.weight.T.split(8))
    forward = block.mlp(block.post_attention_layernorm(x))
    mixed = sum(weights[h] @ values[h] @ outward[h] for h in range(4)) + block.attention.dense.bias
    return Layer(x, x + mixed + forward, weights, values, outward, (forward,))


SLOW: dict[
    str, tuple[Callable[..., Layer], int, float]
] = {  # position read; bound: eager attention and RMSNorm of some are float32
    "llama": (llama, -1, 1e-6),
    "gemma2": (gemma2, -1, 1e-5),
    "gpt2": (gpt2, -1, 1e-10),
    "gpt-neox": (neox, -1, 1e-6),
    "bert": (bert, 0, 1e-10),
}


@pytest.mark.parametrize("name", SLOW)
@pytest.mark.parametrize("text", TEXTS)
def test_the_flow_is_that_of_the_papers_equations(name: str, text: str) -> None:
    layer, place, near = SLOW[name]
    model, out = run_eager(name, text)
    with torch.no_grad():
        layers = [layer(model, k, out.hidden_states[k][0], a[0]) for k, a in enumerate(out.attentions)]
        start = torch.zeros(len(layers[0].x), dtype=torch.float64)
        start[place] = 1
        expected = slow_flow(layers, start)
    e = hw.explain(tiny(name), text, tokenizer=tokenizer(), method="ifr")
    assert e.relevance == pytest.approx(expected, abs=near)
    assert float(expected.max() - expected.min()) > 0.05  # else a wrong answer would be as near
    assert e.relevance.min() >= 0
    assert float(e.relevance.sum()) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    "name",
    "bert distilbert albert deberta-v2 xlnet modernbert gpt2 gpt-neox opt bloom qwen3 gemma3 phi3 mixtral "
    "torch-encoder-sequence-first".split(),
)
def test_it_works_on_blocks_of_many_builds(name: str) -> None:
    found = hw.explain(tiny(name), TEXTS, tokenizer=tokenizer(), method="ifr")
    for e in found:
        assert len(e.relevance) == len(e.tokens)
        assert e.relevance.min() >= 0
        assert float(e.relevance.sum()) == pytest.approx(1, abs=1e-6)


def test_positions_of_an_image_that_are_no_patches_have_lines_of_their_own() -> None:
    from test_images import photo, processor
    from test_images import tiny as tiny_vision

    e = hw.explain(tiny_vision("vit"), photo(), processor=processor(), method="ifr")
    assert e.ledger.inputs + sum(e.ledger.constants.values()) == pytest.approx(1, abs=1e-6)
    assert e.ledger.constants["position 0, no patch"] > 0


def test_blocks_of_queries_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = hw.explain(tiny("gpt2"), TEXTS[0], tokenizer=tokenizer(), method="ifr").relevance
    monkeypatch.setattr(ifr, "NUMBERS", 1)
    assert hw.explain(tiny("gpt2"), TEXTS[0], tokenizer=tokenizer(), method="ifr").relevance == pytest.approx(whole)


def test_blocks_of_queries_are_larger_on_a_card() -> None:
    """4,000 queries one by one would launch a million kernels."""
    assert ifr.queries_at_once(4000, 576, torch.device("cpu")) == 1
    on_card = ifr.queries_at_once(4000, 576, torch.device("cuda"))
    assert on_card > 16
    assert on_card * 4000 * 576 <= ifr.NUMBERS_ON_CARD


def test_half_precision_is_near() -> None:
    whole = hw.explain(tiny("gpt2"), TEXTS[0], tokenizer=tokenizer(), method="ifr").relevance
    half = hw.explain(tiny("gpt2"), TEXTS[0], tokenizer=tokenizer(), method="ifr", dtype="bfloat16").relevance
    assert half == pytest.approx(whole.float(), abs=0.02)


# Where the flow begins


def test_it_begins_at_the_position_that_is_read() -> None:
    """Of a language model's fourth prediction, nothing flows from later words; the first one is its own."""
    model = tiny("gpt2")
    for place in (0, 3):
        e = hw.explain(model, TEXTS[0], tokenizer=tokenizer(), method="ifr", target=hw.Token(place, 7))
        assert float(e.relevance[: place + 1].sum()) == pytest.approx(1, abs=1e-10)
        assert not e.relevance[place + 1 :].any()


def test_a_mean_over_positions_begins_at_all_of_them() -> None:
    """Even shares: the mean of what each position alone would give."""
    model = tiny("gpt2")

    def score(place: int | None) -> Callable[[Any], Tensor]:
        return lambda out: (out.logits.mean(1) if place is None else out.logits[:, place])[:, 5]

    def flow(place: int | None) -> Tensor:
        found: Tensor = hw.explain(model, TEXTS[1], tokenizer=tokenizer(), method="ifr", score=score(place)).relevance
        return found

    together = flow(None)
    assert together == pytest.approx(torch.stack([flow(k) for k in range(len(together))]).mean(0), abs=1e-12)


def test_one_pass_serves_all_tokens_of_an_answer() -> None:
    model, passes = tiny("llama"), []
    handle = model.register_forward_hook(lambda *_: passes.append(1))
    try:
        made = hw.explain_generation(
            model, "the movie", tokenizer=tokenizer(), answer="good film", method="ifr", sinks="show"
        )
    finally:
        handle.remove()
    assert len(passes) == 1
    alone = hw.explain_generation(
        model, "the movie", tokenizer=tokenizer(), answer="good film", method="ifr", sinks="show", tokens_at_once=1
    )
    assert made.relevance == pytest.approx(alone.relevance, abs=1e-6)
    assert made.relevance.sum(1) == pytest.approx(torch.ones(len(made.targets)), abs=1e-6)
    assert made.probabilities == pytest.approx(alone.probabilities)


def test_saving_memory_changes_nothing() -> None:
    plain = hw.explain(tiny("gpt2"), TEXTS[0], tokenizer=tokenizer(), method="ifr").relevance
    saved = hw.explain(tiny("gpt2"), TEXTS[0], tokenizer=tokenizer(), method="ifr", keep="disk").relevance
    assert saved == pytest.approx(plain, abs=1e-12)
    with pytest.raises(NotApplicable, match="computed again"):
        hw.explain(tiny("gpt2"), TEXTS[0], tokenizer=tokenizer(), method="ifr", recompute="blocks")


# What it refuses


class Block(nn.Module):
    """x + W(attention(x)), then x + feed_forward(x); `how` changes one thing."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.inward, self.outward = nn.Linear(8, 24), nn.Linear(8, 8)
        self.gate, self.forward_layer = nn.Linear(8, 8), nn.Linear(8, 8)
        self.along = nn.Conv1d(8, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.reshape(1, -1, 2, 4).transpose(1, 2) for part in self.inward(x).split(8, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        if self.how == "values, too":
            mixed = torch.cat([mixed[..., :4], v[:, 1]], -1)
        if self.how == "gated":
            mixed = mixed * self.gate(x).sigmoid()
        brought = self.outward(mixed)
        if self.how == "without residual":
            return brought.tanh()
        x = x + brought
        if self.how == "convolution":
            return x + self.along(x.transpose(1, 2)).transpose(1, 2)
        return x + self.forward_layer(x).relu()


class Blocks(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.words = nn.Embedding(120, 8)
        self.blocks = nn.ModuleList([Block(how), Block(how)])
        self.head = nn.Linear(8, 3)

    def get_input_embeddings(self) -> nn.Module:
        return self.words

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        first = x = self.words(input_ids)
        for block in self.blocks:
            x = block(x)
            if self.how == "around":
                x = x.relu() + first
        found: Tensor = self.head(x[:, -1])
        return found


def explain_blocks(how: str) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Blocks(how).double().eval()
    return hw.explain(model, TEXTS[0], tokenizer=tokenizer(), method="ifr")


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("gated", "another signal takes part"),
        ("values, too", "more than attention and a bias"),
        ("without residual", "were met there"),
        ("convolution", "in another way"),
        ("around", "goes around"),
    ],
)
def test_what_is_no_stack_of_residual_blocks_is_refused(how: str, says: str) -> None:
    assert float(explain_blocks("plain").relevance.sum()) == pytest.approx(1)
    with pytest.raises(NotApplicable, match=says):
        explain_blocks(how)


def test_encoder_decoders_are_refused() -> None:
    with pytest.raises(NotApplicable, match="one stack"):
        hw.explain(tiny("bart"), arguments("bart", 1), method="ifr")
