"""Large lines that cancel: what is missing from the score is rounding beside them, and much beside the score."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .cases import Model, add, data, head, linear

FAMILY = "cancelling lines"
VISIBLE = 0.02


class Shifted(Model):
    """A large number goes in and out again; meanwhile an operation without a rule loses part of the score."""

    def __init__(self, loses: Callable[[Tensor], Tensor], large: float, as_bias: bool) -> None:
        super().__init__()
        self.layer, self.head, self.loses = linear(), head(), loses
        made = [nn.Parameter(torch.full((3,), sign * large)) for sign in (1.0, -1.0)]
        self.up, self.down = made if as_bias else [nn.Buffer(one.detach()) for one in made]

    def forward(self, x: Tensor) -> Tensor:
        score = self.head(self.loses(self.layer(x))).mean(1)
        return score + self.up + self.down


class Cut(Shifted):
    """The same with a cut instead of an operation without a rule."""

    def __init__(self, large: float) -> None:
        super().__init__(lambda h: h, large, as_bias=True)
        self.backbone = linear()

    def forward(self, x: Tensor) -> Tensor:
        score = self.head(self.layer(x) + 0.2 * self.backbone(x).detach()).mean(1)
        return score + self.up + self.down

    def reference(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x) + 0.2 * self.backbone(x)).mean(1)


class Memory(Shifted):
    """Nearly all of the score is weighed by what rules hold constant, and is little beside lines that cancel."""

    def __init__(self, large: float) -> None:
        super().__init__(lambda h: h, large, as_bias=True)
        self.points, self.values = nn.Parameter(torch.randn(5, 6)), nn.Parameter(2 + torch.randn(5, 3))

    def forward(self, x: Tensor) -> Tensor:
        mixed = (x @ self.points.T).softmax(-1) @ self.values + 0.01 * self.head(x)
        return mixed.mean(1) + self.up + self.down


class Doubled(Model):
    """Large signals that cancel: the input through a matrix and through its negative."""

    def __init__(self, large: float) -> None:
        super().__init__()
        self.layer, self.head, self.large = linear(), head(), large

    def forward(self, x: Tensor) -> Tensor:
        h = self.large * x[..., :1]
        return self.head(torch.sinc(self.layer(x)) + h - self.large * x[..., :1].clone()).mean(1)


class Masked(Model):
    """A mask of a large negative number that is added to scores and taken away again."""

    def __init__(self, large: float) -> None:
        super().__init__()
        self.layer, self.head, self.large = linear(), head(), large

    def forward(self, x: Tensor) -> Tensor:
        h = torch.erfc(self.layer(x)) - self.large
        return self.head(F.relu(h + 2 * self.large) - self.large).mean(1)


def single() -> Tensor:
    return data().float()


SINGLE = {"dtype": torch.float32, "tolerance": VISIBLE, "conserves_only": True}
LOSING: dict[str, Callable[[Tensor], Tensor]] = {
    "sinc": torch.sinc,
    "erfc": torch.erfc,
    "digamma": lambda h: torch.digamma(h.abs() + 1),
    "tan": torch.tan,
}
for large in (1e2, 1e3, 1e4, 1e5):
    for name, loses in LOSING.items():
        as_bias = name in ("sinc", "tan")
        add(
            FAMILY,
            f"{name} below {large:.0e}",
            lambda loses=loses, large=large, b=as_bias: Shifted(loses, large, b),
            single,
            **SINGLE,
        )
    add(FAMILY, f"cut below {large:.0e}", lambda n=large: Cut(n), single, dtype=torch.float32, tolerance=VISIBLE)
    add(FAMILY, f"signals below {large:.0e}", lambda n=large: Doubled(n), single, **SINGLE)
    add(FAMILY, f"masks below {large:.0e}", lambda n=large: Masked(n), single, **SINGLE)
add(FAMILY, "a learned memory below 1e+03", lambda: Memory(1e3))
for large in (1e8, 1e9):
    add(
        FAMILY,
        f"float64, sinc below {large:.0e}",
        lambda n=large: Shifted(torch.sinc, n, True),
        conserves_only=True,
        tolerance=1e-3,
    )
    add(FAMILY, f"float64, cut below {large:.0e}", lambda n=large: Cut(n), tolerance=1e-3)
