r"""A small attention network, and the paper's relevance propagation on it as explicit sums.

Ali et al., "XAI for Transformers: Better Explanations through Conservative Propagation" (ICML 2022), sections 3 and 4,
appendices A and B. Relevance, not a gradient, goes down layer by layer:

- linear layers (also residual sums, the pooling, LayerNorm's affine part): R(x_i) = sum_j x_i w_ij / y_j R(y_j), where
  y_j = sum_i x_i w_ij + b_j, and the bias takes the share b_j / y_j R(y_j);
- AH-rule: R(x_i) = sum_j x_i p_ij / (sum_i' x_i' p_i'j) R(y_j), and nothing for queries and keys;
- LN-rule: R(x_i) = sum_j x_i (d_ij - 1/N) / (sum_i' x_i' (d_i'j - 1/N)) R(y_j), N the number of channels;
- every other layer: the rule that Gradient x Input amounts to, R(x_i) = sum_j dy_j/dx_i x_i / y_j R(y_j), equation 4,
  with the derivatives written out as in the appendices.

There is no automatic differentiation here and nothing is detached.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

METHODS = ("gi", "lrp(ah)", "lrp(ln)", "lrp(ah+ln)")
WIDTH, HEADS, HIDDEN, CLASSES = 8, 2, 12, 4

Down = Callable[[Tensor], Tensor]
"""Takes the relevance of a layer's output, gives the relevance of its input."""


@dataclass(frozen=True)
class Shape:
    """What a network is made of. `activation` is None for blocks without a feed-forward part, as in the paper."""

    bias: bool = True
    activation: str | None = "relu"
    pool: str = "mean"
    attention: str = "softmax"
    norm: str = "module"
    eps: float = 0.05


class Norm(nn.Module):
    """The paper's LayerNorm written out, without an affine part: (x - E[x]) / sqrt(eps + Var[x])."""

    weight: Tensor | None = None
    bias: Tensor | None = None

    def __init__(self, eps: float) -> None:
        super().__init__()
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return centred / torch.sqrt(self.eps + centred.pow(2).mean(-1, keepdim=True))


def norm(shape: Shape) -> Norm | nn.LayerNorm:
    return Norm(shape.eps) if shape.norm == "written" else nn.LayerNorm(WIDTH, eps=shape.eps, bias=shape.bias)


class Attention(nn.Module):
    """Multi-head attention with its own W_Q, W_K, W_V and an output layer."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.fused = shape.attention == "sdpa"
        self.query, self.key, self.value, self.dense = (nn.Linear(WIDTH, WIDTH, bias=shape.bias) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (self.by_head(layer(x)) for layer in (self.query, self.key, self.value))
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v)
        else:
            y = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), dim=-1) @ v
        out: Tensor = self.dense(y.transpose(1, 2).flatten(2))
        return out

    @staticmethod
    def by_head(x: Tensor) -> Tensor:
        return x.reshape(*x.shape[:2], HEADS, -1).transpose(1, 2)


class Block(nn.Module):
    """Attention, residual, LayerNorm; then, where there is an activation, feed-forward, residual, LayerNorm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention, self.norm = Attention(shape), norm(shape)
        self.activation = shape.activation
        if shape.activation:
            self.grow = nn.Linear(WIDTH, HIDDEN, bias=shape.bias)
            self.shrink = nn.Linear(HIDDEN, WIDTH, bias=shape.bias)
            self.norm_after = norm(shape)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x + self.attention(x))
        if self.activation:
            x = self.norm_after(x + self.shrink(getattr(F, self.activation)(self.grow(x))))
        return x


class AttentionNetwork(nn.Module):
    """Two blocks, a pooling (mean or first token) and a linear head, in float64, from token vectors to class scores."""

    def __init__(self, shape: Shape, seed: int = 0) -> None:
        super().__init__()
        self.shape = shape
        self.first, self.second = Block(shape), Block(shape)
        self.head = nn.Linear(WIDTH, CLASSES, bias=shape.bias)
        randomise(self, seed)

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(self.first(x))
        out: Tensor = self.head(x.mean(1) if self.shape.pool == "mean" else x[:, 0])
        return out


def randomise(module: nn.Module, seed: int) -> None:
    """Every parameter drawn at random, so that none is zero and no normaliser has the weight 1."""
    noise = torch.Generator().manual_seed(seed)
    module.double().eval()
    for name, value in module.named_parameters():
        centre = 1.0 if "norm" in name and name.endswith("weight") else 0.0
        drawn = torch.randn(value.shape, generator=noise, dtype=torch.float64)
        value.data.copy_(centre + 0.5 * drawn)


def token_vectors(samples: int = 3, tokens: int = 5, seed: int = 1) -> Tensor:
    return torch.randn(samples, tokens, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@dataclass
class Relevance:
    """The slow answer for one sample: relevance of every number of the input, of each bias, of each eps it adds."""

    score: float = 0.0
    inputs: Tensor = field(default_factory=lambda: torch.zeros(0))
    biases: dict[str, float] = field(default_factory=dict)
    constants: dict[str, float] = field(default_factory=dict)

    def take(self, name: str, relevance: Tensor) -> None:
        self.biases[name] = self.biases.get(name, 0.0) + float(relevance.sum())


@dataclass
class Propagation:
    """One pass up and one pass down. Each layer gives its output and the way down for relevance."""

    ah: bool
    ln: bool
    result: Relevance = field(default_factory=Relevance)

    @torch.no_grad()
    def run(self, network: AttentionNetwork, x: Tensor, target: int) -> Relevance:
        """`x` is one sample, tokens x channels."""
        h, to_input = self.block(network.first, "first", x)
        z, to_h = self.block(network.second, "second", h)
        pooled, to_z = self.pool(z, network.shape.pool)
        out, to_pooled = self.linear(network.head, "head", pooled)
        relevance = torch.zeros_like(out)
        relevance[0, target] = out[0, target]
        self.result.inputs = to_input(to_h(to_z(to_pooled(relevance))))
        self.result.score = float(out[0, target])
        return self.result

    def block(self, block: Block, name: str, x: Tensor) -> tuple[Tensor, Down]:
        attended, to_attention = self.attention(block.attention, f"{name}.attention", x)
        total, to_parts = self.residual(x, attended)
        y, to_total = self.norm(block.norm, f"{name}.norm", total)

        def down(relevance: Tensor) -> Tensor:
            past, through = to_parts(to_total(relevance))
            return past + to_attention(through)

        if block.activation is None:
            return y, down
        z, down_again = self.feed_forward(block, block.activation, name, y)
        return z, lambda relevance: down(down_again(relevance))

    def feed_forward(self, block: Block, activation: str, name: str, x: Tensor) -> tuple[Tensor, Down]:
        grown, to_x = self.linear(block.grow, f"{name}.grow", x)
        active, to_grown = self.activation(activation, grown)
        shrunk, to_active = self.linear(block.shrink, f"{name}.shrink", active)
        total, to_parts = self.residual(x, shrunk)
        y, to_total = self.norm(block.norm_after, f"{name}.norm_after", total)

        def down(relevance: Tensor) -> Tensor:
            past, through = to_parts(to_total(relevance))
            return past + to_x(to_grown(to_active(through)))

        return y, down

    def linear(self, layer: nn.Linear, name: str, x: Tensor) -> tuple[Tensor, Down]:
        """y_j = sum_i x_i w_ij + b_j: everyone gets the share it has in the sum."""
        parts = torch.einsum("ti,ji->tij", x, layer.weight)
        bias = bias_of(layer)
        y = parts.sum(1) if bias is None else parts.sum(1) + bias

        def down(relevance: Tensor) -> Tensor:
            share = ratio(relevance, y)
            if bias is not None:
                self.result.take(f"{name}.bias", bias * share)
            return torch.einsum("tij,tj->ti", parts, share)

        return y, down

    def residual(self, x: Tensor, y: Tensor) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor]]]:
        return x + y, lambda relevance: (x * ratio(relevance, x + y), y * ratio(relevance, x + y))

    def pool(self, x: Tensor, how: str) -> tuple[Tensor, Down]:
        """A linear layer over tokens, with the weights 1/T each or 1 for the first."""
        weights = torch.full_like(x[:, :1], 1 / len(x)) if how == "mean" else torch.eye(len(x), dtype=x.dtype)[:, :1]
        y = (x * weights).sum(0, keepdim=True)
        return y, lambda relevance: x * weights * ratio(relevance, y)

    def activation(self, name: str, x: Tensor) -> tuple[Tensor, Down]:
        """Left to its gradient, equation 4: R(x_i) = f'(x_i) x_i / f(x_i) R(y_i)."""
        y, slope = ACTIVATIONS[name](x)
        return y, lambda relevance: slope * x * ratio(relevance, y)

    def attention(self, layer: Attention, name: str, x: Tensor) -> tuple[Tensor, Down]:
        q, to_x_by_q = self.linear(layer.query, f"{name}.query", x)
        k, to_x_by_k = self.linear(layer.key, f"{name}.key", x)
        v, to_x_by_v = self.linear(layer.value, f"{name}.value", x)
        heads = [self.head(*qkv) for qkv in zip(*(z.chunk(HEADS, -1) for z in (q, k, v)), strict=True)]
        mixed = torch.cat([y for y, _ in heads], -1)
        out, to_mixed = self.linear(layer.dense, f"{name}.dense", mixed)

        def down(relevance: Tensor) -> Tensor:
            pieces = zip(heads, to_mixed(relevance).chunk(HEADS, -1), strict=True)
            by_head = [way(piece) for (_, way), piece in pieces]
            of_q, of_k, of_v = (torch.cat(parts, -1) for parts in zip(*by_head, strict=True))
            return to_x_by_q(of_q) + to_x_by_k(of_k) + to_x_by_v(of_v)

        return out, down

    def head(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]]:
        """One head, y_j = sum_i v_i p_ij. Values and keys have tokens i, queries and outputs j, as in the paper."""
        scale = 1 / math.sqrt(q.shape[-1])
        exp = torch.exp(torch.einsum("ic,jc->ij", k, q) * scale)
        p = exp / exp.sum(0, keepdim=True)
        parts = torch.einsum("id,ij->ijd", v, p)
        y = parts.sum(0)

        def down(relevance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            share = ratio(relevance, y)
            of_v = torch.einsum("ijd,jd->id", parts, share)
            if self.ah:
                return torch.zeros_like(q), torch.zeros_like(k), of_v
            # Appendix A.1: dp_lj / dq_ij = p_lj (delta_il - p_ij)
            by_match = torch.einsum("lj,lij->lij", p, torch.eye(len(v), dtype=v.dtype)[:, :, None] - p[None])
            by_key = torch.einsum("ld,lij,jc->icjd", v, by_match, q) * scale
            by_query = torch.einsum("ld,lij,ic->jcd", v, by_match, k) * scale
            of_k = k * torch.einsum("icjd,jd->ic", by_key, share)
            of_q = q * torch.einsum("jcd,jd->jc", by_query, share)
            return of_q, of_k, of_v

        return y, down

    def norm(self, layer: Norm | nn.LayerNorm, name: str, x: Tensor) -> tuple[Tensor, Down]:
        """Centring, rescaling (appendix B), then the affine part as one more linear layer."""
        centring = torch.eye(x.shape[-1], dtype=x.dtype) - 1 / x.shape[-1]
        parts = torch.einsum("ti,ij->tij", x, centring)
        centred = parts.sum(1)
        root = torch.sqrt(layer.eps + centred.pow(2).mean(-1, keepdim=True))
        y = centred / root
        weighted = y if layer.weight is None else y * layer.weight
        bias = bias_of(layer)
        z = weighted if bias is None else weighted + bias

        def down(relevance: Tensor) -> Tensor:
            share = ratio(relevance, z)
            if bias is not None:
                self.result.take(f"{name}.bias", bias * share)
            relevance = weighted * share
            if not self.ln and isinstance(layer, Norm):  # the network itself adds eps: dy_j / deps = -y_j / (2 root^2)
                self.result.constants[name] = float((-layer.eps / (2 * root**2) * relevance).sum())
            if not self.ln:
                relevance = rescaling_by_gradient(centred, root, y, relevance)
            return torch.einsum("tij,tj->ti", parts, ratio(relevance, centred))

        return z, down


def bias_of(layer: nn.Linear | Norm | nn.LayerNorm) -> Tensor | None:
    return layer.bias


def rescaling_by_gradient(centred: Tensor, root: Tensor, y: Tensor, relevance: Tensor) -> Tensor:
    """Appendix B.2: dy_j / dx_i = delta_ij / root - x_i x_j / (N root^3), put into equation 4."""
    n = centred.shape[-1]
    jacobian = torch.eye(n, dtype=y.dtype) / root[:, :, None]
    jacobian = jacobian - torch.einsum("ti,tj->tij", centred, centred) / (n * root[:, :, None] ** 3)
    return centred * torch.einsum("tij,tj->ti", jacobian, ratio(relevance, y))


def relu(x: Tensor) -> tuple[Tensor, Tensor]:
    return x * (x > 0), (x > 0).to(x.dtype)


def gelu(x: Tensor) -> tuple[Tensor, Tensor]:
    """x Phi(x), and its derivative Phi(x) + x phi(x)."""
    below = 0.5 * (1 + torch.erf(x / math.sqrt(2)))
    return x * below, below + x * torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)


ACTIVATIONS = {"relu": relu, "gelu": gelu}


def ratio(a: Tensor, b: Tensor) -> Tensor:
    """a / b with the paper's convention 0/0 = 0."""
    return torch.where((a == 0) & (b == 0), torch.zeros_like(a), a / b)


def propagate(network: AttentionNetwork, x: Tensor, target: int, method: str) -> Relevance:
    """What the paper's `method` gives for one sample, tokens x channels, and one class."""
    return Propagation(ah="ah" in method, ln="ln" in method).run(network, x, target)
