"""A model around one operation in which every element of what comes out counts differently, and its explanations."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tiny import randomised
from torch import Tensor, nn

import headwater as hw
from headwater.results.explanation import Explanation

SAMPLES, LENGTH, WIDTH = 3, 4, 8
Operation = Callable[[Tensor], Tensor]


def drawn(*shape: int, seed: int = 3) -> Tensor:
    """Random numbers, always the same."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def constant(x: Tensor, *shape: int, seed: int = 5) -> Tensor:
    """The same for every sample, and another number everywhere."""
    return drawn(1, *shape, seed=seed).expand(len(x), *shape)


def seeded(make: Callable[[], nn.Module]) -> nn.Module:
    """A model whose weights and biases are random, and the same each time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return randomised(make().double())


class Weighed(nn.Module):
    """A linear layer, the operation, and a weight of its own for each element of what comes out.

    Behind a mean over positions the same gradient would reach all of them, and no fault of place could show.
    """

    def __init__(self, operation: Operation) -> None:
        super().__init__()
        self.before, self.operation = nn.Linear(6, WIDTH), operation
        with torch.no_grad():
            self.after = nn.Linear(operation(drawn(1, LENGTH, WIDTH)).numel(), 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.operation(self.before(x)).flatten(1))


def explained(operation: Operation, method: str = "lrp", samples: int = SAMPLES) -> list[Explanation]:
    """Explanations whose score is the model's own, bit for bit, and whose lines are the same for each sample alone."""
    model, x = seeded(lambda: Weighed(operation)), drawn(samples, LENGTH, 6)
    with torch.no_grad():
        plain = model(x.clone())[:, 1].tolist()
    together = hw.explain(model, x, method=method, score=lambda out: out[:, 1])
    assert [e.score for e in together] == plain
    for i, e in enumerate(together):
        alone = hw.explain(model, x[i : i + 1], method=method, score=lambda out: out[:, 1])[0]
        assert e.relevance == pytest.approx(alone.relevance, abs=1e-12)
        assert dict(e.ledger.biases) == pytest.approx(dict(alone.ledger.biases), abs=1e-12)
        assert dict(e.ledger.constants) == pytest.approx(dict(alone.ledger.constants), abs=1e-12)
    return list(together)


def error(operation: Operation, method: str = "lrp") -> float:
    """The largest relative remainder."""
    return max(e.ledger.error for e in explained(operation, method))
