r"""A BERT and a Llama as one explicit matrix from the embeddings to a score, computed from their weights alone.

With attention probabilities, normalisers, the ratios f(x)/x of activations and gates held at the values they have for
one input, every step of the model is an affine map. `Affine` holds such a map as a plain matrix and the vectors that
biases add. Composing the steps from the embeddings up gives the model as

    score = row @ embeddings + sum over biases of (what this bias adds),

and each term of it is the relevance of its source. No gradient, automatic or by hand, is taken anywhere; the model's
own forward pass is not used either.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

Weights = Mapping[str, Tensor]


@dataclass(frozen=True)
class Affine:
    """y = matrix @ x + the sum of sources, x and y flattened over tokens and channels. A source is a bias, by name."""

    matrix: Tensor
    sources: Mapping[str, Tensor] = field(default_factory=dict)

    def __call__(self, x: Tensor) -> Tensor:
        return torch.stack([self.matrix @ x, *self.sources.values()]).sum(0)

    def then(self, step: Affine) -> Affine:
        """This map, followed by `step`: what was added so far goes through its matrix."""
        passed = {name: step.matrix @ vector for name, vector in self.sources.items()}
        return Affine(step.matrix @ self.matrix, merged(passed, step.sources))

    def __add__(self, other: Affine) -> Affine:
        return Affine(self.matrix + other.matrix, merged(self.sources, other.sources))


def merged(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A bias that arrives on two ways, through a block and past it, brings the sum of both."""
    both = {name: one[name] + other[name] for name in one.keys() & other.keys()}
    return {**one, **other, **both}


def scaled(factors: Tensor) -> Affine:
    """Every number times a constant: a normaliser, a gate, the ratio of an activation's output and input."""
    return Affine(torch.diag(factors.flatten()))


def per_token(matrix: Tensor, tokens: int) -> Tensor:
    """The same matrix at every token: block diagonal."""
    return torch.kron(torch.eye(tokens, dtype=matrix.dtype), matrix)


def mixing(p: Tensor, size: int, groups: int) -> Affine:
    """Attention with fixed probabilities p (heads x queries j x keys i), heads of `size` channels.

    Output (j, head h, channel c) = sum over i of p[h, j, i] times value (i, the group of h, c).
    """
    heads, queries, keys = p.shape
    member = torch.zeros(heads, groups, dtype=p.dtype)
    member[torch.arange(heads), torch.arange(heads) // (heads // groups)] = 1
    matrix = torch.einsum("hji,hg,cd->jhcigd", p, member, torch.eye(size, dtype=p.dtype))
    return Affine(matrix.reshape(queries * heads * size, keys * groups * size))


@dataclass(frozen=True)
class Decomposition:
    """Relevance of each token, of each bias by its parameter's name, and the score that they must add up to."""

    tokens: Tensor
    biases: dict[str, float]
    score: float


@dataclass(frozen=True)
class Signal:
    """Numbers inside the model, tokens x channels, and how they come affinely from the embeddings."""

    weights: Weights
    value: Tensor
    path: Affine

    @classmethod
    def start(cls, weights: Weights, embeddings: Tensor) -> Signal:
        return cls(weights, embeddings, Affine(torch.eye(embeddings.numel(), dtype=embeddings.dtype)))

    @property
    def tokens(self) -> int:
        return len(self.value)

    def through(self, step: Affine, tokens: int | None = None) -> Signal:
        value = step(self.value.flatten()).reshape(tokens or self.tokens, -1)
        return replace(self, value=value, path=self.path.then(step))

    def __add__(self, other: Signal) -> Signal:
        return replace(self, value=self.value + other.value, path=self.path + other.path)

    def linear(self, name: str) -> Signal:
        bias = self.weights.get(f"{name}.bias")
        sources = {} if bias is None else {f"{name}.bias": bias.repeat(self.tokens)}
        return self.through(Affine(per_token(self.weights[f"{name}.weight"], self.tokens), sources))

    def active(self, function: Callable[[Tensor], Tensor]) -> Signal:
        """f(x) = x [f(x) / x]."""
        return self.through(scaled(function(self.value) / self.value))

    def layer_norm(self, name: str, eps: float) -> Signal:
        """weight (x - E[x]) [1 / sqrt(eps + Var[x])] + bias: the mean is part of the map, the root is a constant."""
        channels = self.value.shape[-1]
        centring = torch.eye(channels, dtype=self.value.dtype) - 1 / channels
        centred = self.through(Affine(per_token(centring, self.tokens)))
        scale = 1 / torch.sqrt(eps + centred.value.pow(2).mean(-1, keepdim=True))
        bias = {f"{name}.bias": self.weights[f"{name}.bias"].repeat(self.tokens)}
        return centred.through(Affine(scaled(scale * self.weights[f"{name}.weight"]).matrix, bias))

    def rms_norm(self, name: str, eps: float) -> Signal:
        scale = 1 / torch.sqrt(eps + self.value.pow(2).mean(-1, keepdim=True))
        return self.through(scaled(scale * self.weights[f"{name}.weight"]))

    def token(self, position: int) -> Signal:
        picked = torch.eye(self.tokens, dtype=self.value.dtype)[position : position + 1]
        return self.through(Affine(torch.kron(picked, torch.eye(self.value.shape[-1], dtype=picked.dtype))), tokens=1)

    def decomposed(self, target: int, embeddings: Tensor) -> Decomposition:
        """The row of the path that ends at this one number, times what it starts from."""
        tokens = self.path.matrix[target].reshape(embeddings.shape) * embeddings
        biases = {name: float(vector[target]) for name, vector in self.path.sources.items()}
        return Decomposition(tokens.sum(-1), biases, float(self.value.flatten()[target]))


def gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def by_head(x: Tensor, heads: int) -> Tensor:
    """Tokens x channels -> heads x tokens x channels of a head."""
    return x.reshape(len(x), heads, -1).transpose(0, 1)


def probabilities(q: Tensor, k: Tensor, causal: bool) -> Tensor:
    """Softmax over the keys of q k^T / sqrt(d), heads x queries x keys."""
    match = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    exp = torch.exp(match - match.amax(-1, keepdim=True))
    exp = exp.tril() if causal else exp
    return exp / exp.sum(-1, keepdim=True)


def bert(weights: Weights, ids: Tensor, target: int, *, layers: int, heads: int, eps: float) -> Decomposition:
    """A BertForSequenceClassification with GELU and tanh pooler, one text without padding, from its embeddings on."""
    embeddings = bert_embeddings(weights, ids, eps)
    h = Signal.start(weights, embeddings)
    for number in range(layers):
        at = f"bert.encoder.layer.{number}"
        q, k, v = (h.linear(f"{at}.attention.self.{part}") for part in ("query", "key", "value"))
        p = probabilities(by_head(q.value, heads), by_head(k.value, heads), causal=False)
        mixed = v.through(mixing(p, size=v.value.shape[-1] // heads, groups=heads))
        h = (h + mixed.linear(f"{at}.attention.output.dense")).layer_norm(f"{at}.attention.output.LayerNorm", eps)
        inner = h.linear(f"{at}.intermediate.dense").active(gelu)
        h = (h + inner.linear(f"{at}.output.dense")).layer_norm(f"{at}.output.LayerNorm", eps)
    pooled = h.token(0).linear("bert.pooler.dense").active(torch.tanh)
    return pooled.linear("classifier").decomposed(target, embeddings)


def bert_embeddings(weights: Weights, ids: Tensor, eps: float) -> Tensor:
    """What the embeddings module gives: words, positions and the first type, normalised."""
    at = "bert.embeddings"
    x = weights[f"{at}.word_embeddings.weight"][ids] + weights[f"{at}.position_embeddings.weight"][: len(ids)]
    return (
        Signal.start(weights, x + weights[f"{at}.token_type_embeddings.weight"][0])
        .layer_norm(f"{at}.LayerNorm", eps)
        .value
    )


def llama(
    weights: Weights,
    ids: Tensor,
    target: int,
    *,
    layers: int,
    heads: int,
    groups: int,
    eps: float,
    theta: float,
    gate: str = "constant",
) -> Decomposition:
    """A LlamaForCausalLM, the logit of the token `target` after the last of `ids`.

    All in the weights' precision: where the model itself goes through float32, it agrees to 1e-6 or so.
    """
    embeddings = weights["model.embed_tokens.weight"][ids]
    h = Signal.start(weights, embeddings)
    for number in range(layers):
        at = f"model.layers.{number}"
        x = h.rms_norm(f"{at}.input_layernorm", eps)
        q, k, v = (x.linear(f"{at}.self_attn.{part}_proj") for part in "qkv")
        turned_q, turned_k = rotated(by_head(q.value, heads), theta), rotated(by_head(k.value, groups), theta)
        p = probabilities(turned_q, turned_k.repeat_interleave(heads // groups, 0), causal=True)
        mixed = v.through(mixing(p, size=v.value.shape[-1] // groups, groups=groups))
        h = h + mixed.linear(f"{at}.self_attn.o_proj")
        h = h + swiglu(h.rms_norm(f"{at}.post_attention_layernorm", eps), f"{at}.mlp", gate)
    last = h.rms_norm("model.norm", eps).token(len(ids) - 1)
    return last.linear("lm_head").decomposed(target, embeddings)


def rotated(x: Tensor, theta: float) -> Tensor:
    """Rotary positions, heads x tokens x channels: channel c and c + d/2 turn together by position / theta^(2c/d)."""
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[1], dtype=x.dtype)[:, None] * theta ** (-torch.arange(half, dtype=x.dtype) / half)
    one, other = x[..., :half], x[..., half:]
    return torch.cat([one * angle.cos() - other * angle.sin(), other * angle.cos() + one * angle.sin()], -1)


def swiglu(x: Signal, at: str, gate: str) -> Signal:
    """down(silu(g) u). Gate constant: [silu(g)] u. Half each: [silu(g)] u / 2 + [u] g [sigmoid(g)] / 2."""
    g, u = x.linear(f"{at}.gate_proj"), x.linear(f"{at}.up_proj")
    sigmoid = 1 / (1 + torch.exp(-g.value))
    product = u.through(scaled(g.value * sigmoid))
    if gate == "half":
        product = u.through(scaled(g.value * sigmoid / 2)) + g.through(scaled(u.value * sigmoid / 2))
    return product.linear(f"{at}.down_proj")
