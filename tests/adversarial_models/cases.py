"""What an adversarial case is: a model, an input, and what an explanation of it may say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SIZE, TOKENS, CLASSES = 6, 4, 3
SEED = 3


class Model(nn.Module):
    """A model with, where there is one, the right linear map beside it.

    `forward` is what the model's author wrote. `reference` computes the same numbers with nothing cut off and with the
    rules' constants held by hand, so that input times its plain gradient is the right relevance. Without `reference`
    no explanation can be right. A list of functions means that each of them is a right one.
    """

    reference: Any = None


@dataclass(frozen=True)
class Case:
    """One model that tries to get a closed ledger for a wrong explanation; or must be given one (`closes`)."""

    family: str
    name: str
    make: Callable[[], nn.Module]
    data: Callable[[], Any]
    closes: bool = False
    conserves_only: bool = False  # which linear map is right is a matter of the rule: the books must balance
    dtype: torch.dtype = torch.float64
    tolerance: float = 1e-7  # relative to the largest relevance, or to the score

    @property
    def label(self) -> str:
        return f"{self.family}: {self.name}"

    def model(self) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(SEED)
            return self.make().to(self.dtype).eval()


CASES: list[Case] = []


def data() -> Tensor:
    generator = torch.Generator().manual_seed(2)
    return torch.randn(1, TOKENS, SIZE, generator=generator, dtype=torch.float64)


def add(family: str, name: str, make: Callable[[], nn.Module], given: Callable[[], Any] = data, **options: Any) -> None:
    CASES.append(Case(family, name, make, given, **options))


def relevance(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Input times gradient of the score, the model's second output, for one sample."""
    leaf = x.detach().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(function(leaf)[0, 1], leaf)
    return (leaf * gradient)[0].detach()


def linear(inside: int = SIZE, outside: int = SIZE) -> nn.Linear:
    return nn.Linear(inside, outside)


def head() -> nn.Linear:
    return nn.Linear(SIZE, CLASSES)


def held(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """f(0) + x [(f(x) - f(0)) / x], the bracket constant; f'(0) where x is 0, or so near it that all is rounding."""
    with torch.enable_grad():
        origin = torch.zeros((), dtype=x.dtype, requires_grad=True)
        zero = function(origin)
        (slope,) = torch.autograd.grad(zero, origin)
    near = x.detach().abs() < 1e-8
    quotient = (function(x) - zero) / x.masked_fill(near, 1.0)
    return zero.detach() + x * torch.where(near, slope, quotient).detach()


def gelu(x: Tensor) -> Tensor:
    return held(F.gelu, x)


def normed(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    """Layer normalisation with its divisor constant."""
    centred = x - x.mean(-1, keepdim=True)
    scale = (centred.square().mean(-1, keepdim=True) + norm.eps).rsqrt().detach()
    return centred * scale * norm.weight + norm.bias


def attended(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Attention with its weights constant."""
    scores = query @ key.transpose(-2, -1) / query.shape[-1] ** 0.5
    return scores.softmax(-1).detach() @ value
