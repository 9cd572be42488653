"""Operations that no rule may know yet. Where the ledger closes, the books balance and the explanation is right."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .cases import CLASSES, SIZE, TOKENS, Model, add, gelu, head, held, linear

FAMILY = "honest"


class Applied(Model):
    """Linear, the operation over the first three tokens, linear: the last token has no part in it."""

    def __init__(self, operation: Callable[[Tensor], Tensor], size: int = SIZE) -> None:
        super().__init__()
        self.before, self.head = linear(), nn.Linear(size, CLASSES)
        self.operation = operation

    def forward(self, x: Tensor) -> Tensor:
        out = self.head(self.operation(self.before(x[:, : TOKENS - 1])))
        return out if out.dim() == 2 else out.mean(1)


POINTS = torch.randn(1, 5, SIZE, generator=torch.Generator().manual_seed(4), dtype=torch.float64)


def gem(h: Tensor) -> Tensor:
    return h.clamp(min=1e-6).pow(3).mean(1).pow(1 / 3)


def fourier(h: Tensor) -> Tensor:
    return torch.fft.irfft(torch.fft.rfft(h, dim=1) * torch.tensor([1.0, 0.5]).reshape(1, 2, 1), n=TOKENS - 1, dim=1)


def sampled(h: Tensor) -> Tensor:
    grid = h[..., :2].tanh().reshape(1, 1, TOKENS - 1, 2)
    return F.grid_sample(h.reshape(1, 1, TOKENS - 1, SIZE), grid, align_corners=False)[0, 0]


OPERATIONS: dict[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "weights from the input": (lambda h: F.linear(h, h[0].T @ h[0]), SIZE),
    "log": (lambda h: torch.log(h.square() + 0.5), SIZE),
    "log of a softplus": (lambda h: F.softplus(h).log(), SIZE),
    "log2": (lambda h: torch.log2(h.exp() + 1), SIZE),
    "prod": (lambda h: h.prod(1), SIZE),
    "prod of the features": (lambda h: h.prod(-1, keepdim=True).expand_as(h), SIZE),
    "cumprod": (lambda h: h.cumprod(1), SIZE),
    "logsumexp": (lambda h: h.logsumexp(1), SIZE),
    "logcumsumexp": (lambda h: h.logcumsumexp(1), SIZE),
    "logaddexp": (lambda h: torch.logaddexp(h, h.roll(1, 1)), SIZE),
    "GeM": (gem, SIZE),
    "lp_pool": (lambda h: F.lp_pool1d(h.abs() + 0.1, 2.0, 2), SIZE // 2),
    "cosine to points": (lambda h: F.cosine_similarity(h.unsqueeze(-2), POINTS, dim=-1), 5),
    "cosine of two": (lambda h: F.cosine_similarity(h, h.roll(1, 1), dim=1), SIZE),
    "cdist": (lambda h: torch.cdist(h, POINTS), 5),
    "cdist of two": (lambda h: torch.cdist(h, h.roll(1, 1) + 1), TOKENS - 1),
    "pairwise_distance": (lambda h: F.pairwise_distance(h.mT, h.mT.roll(1, 1)), SIZE),
    "norm": (lambda h: h.norm(dim=1), SIZE),
    "std": (lambda h: h.std(1), SIZE),
    "var": (lambda h: h.var(1), SIZE),
    "normalize": (lambda h: F.normalize(h, dim=-1), SIZE),
    "log_softmax": (lambda h: h.log_softmax(-1), SIZE),
    "softmax over a sum": (lambda h: h.softmax(-1) / h.sum(), SIZE),
    "sinc": (torch.sinc, SIZE),
    "tan": (torch.tan, SIZE),
    "lgamma": (lambda h: torch.lgamma(h.abs() + 0.5), SIZE),
    "hypot": (lambda h: torch.hypot(h, h.roll(1, 1)), SIZE),
    "atan2": (lambda h: torch.atan2(h, h.roll(1, 1) + 2), SIZE),
    "power of a signal": (lambda h: (h.abs() + 0.5) ** h.roll(1, 1), SIZE),
    "remainder": (lambda h: torch.remainder(h, 0.3), SIZE),
    "frac": (torch.frac, SIZE),
    "cross": (lambda h: torch.cross(h[..., :3], h[..., 3:], dim=-1), 3),
    "determinant": (lambda h: torch.linalg.det(h[..., :3]).reshape(1, 1).expand(1, SIZE), SIZE),
    "matrix_exp": (lambda h: torch.matrix_exp(h[..., :3]), 3),
    "svd": (lambda h: torch.linalg.svdvals(h), TOKENS - 1),
    "fourier": (fourier, SIZE),
    "grid_sample": (sampled, TOKENS - 1),
    "local response": (lambda h: F.local_response_norm(h, 3), SIZE),
    "median": (lambda h: h.median(1).values, SIZE),
    "kthvalue": (lambda h: h.kthvalue(2, 1).values, SIZE),
    "cummax": (lambda h: h.cummax(1).values, SIZE),
    "renorm": (lambda h: h.renorm(2, 1, 0.5), SIZE),
    "bilinear": (lambda h: F.bilinear(h, h.roll(1, 1), POINTS.expand(SIZE, 5, SIZE)[:, :1].expand(6, 6, 6)), SIZE),
    "product of three": (lambda h: h * h.roll(1, 1) * h.roll(2, 1), SIZE),
    "einsum of three": (lambda h: torch.einsum("btd,btd,bte->bte", h, h.roll(1, 1), h), SIZE),
    "polynomial": (lambda h: 1 + h + 0.5 * h**2 + 0.3 * h**3, SIZE),
    "half power": (lambda h: (h.abs() + 0.2) ** 0.5, SIZE),
    "negative power of an activation": (lambda h: (1 + h.exp()) ** -1, SIZE),
    "square of a mean": (lambda h: h.mean(1) ** 2, SIZE),
    "erfinv": (lambda h: torch.erfinv(0.5 * h.tanh()), SIZE),
    "threshold": (lambda h: F.threshold(h, 0.1, -0.7), SIZE),
    "hardshrink": (lambda h: F.hardshrink(h, 0.2), SIZE),
    "float_power": (lambda h: torch.float_power(h.abs() + 0.3, 1.5), SIZE),
    "xlogy": (lambda h: torch.xlogy(h, h.abs() + 0.3), SIZE),
    "entropy": (lambda h: torch.special.entr(h.sigmoid()), SIZE),
    "logit of a sigmoid": (lambda h: torch.logit(0.8 * h.sigmoid()), SIZE),
    "size times sign": (lambda h: h.abs() * h.sign(), SIZE),
    "vmap": (lambda h: torch.vmap(torch.tanh)(h), SIZE),
}
for name, (operation, size) in OPERATIONS.items():
    add(FAMILY, name, lambda o=operation, s=size: Applied(o, s), conserves_only=True)


class Lerp(Model):
    """A gate that goes from one signal to another."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.gate, self.head = linear(), linear(), linear(), head()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.lerp(self.one(x), self.two(x), torch.sigmoid(self.gate(x)))).mean(1)

    def reference(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate(x)).detach()
        return self.head((1 - gate) * self.one(x) + gate * self.two(x)).mean(1)


class HighwayByHand(Lerp):
    """1 - gate is a gate, too."""

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate(x))
        return self.head((1 - gate) * self.one(x) + gate * self.two(x)).mean(1)


class Recurrent(Model):
    """A recurrent layer or cell of torch's over the tokens, its gates constant in the reference."""

    def __init__(self, kind: str, cell: bool) -> None:
        super().__init__()
        made = {"LSTM": nn.LSTMCell, "GRU": nn.GRUCell, "RNN": nn.RNNCell} if cell else {}
        layers = {"LSTM": nn.LSTM, "GRU": nn.GRU, "RNN": nn.RNN}
        self.layer = made[kind](SIZE, SIZE) if cell else layers[kind](SIZE, SIZE, batch_first=True)
        self.head, self.kind, self.is_cell = head(), kind, cell

    def forward(self, x: Tensor) -> Tensor:
        if not self.is_cell:
            return self.head(self.layer(x)[0][:, -1])
        state = None
        for token in x.unbind(1):
            state = self.layer(token, state)
        return self.head(state[0] if self.kind == "LSTM" else state)

    def weights(self) -> list[Tensor]:
        end = "" if self.is_cell else "_l0"
        return [getattr(self.layer, f"{name}{end}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]

    def reference(self, x: Tensor) -> Tensor:
        from_input, from_state, bias, state_bias = self.weights()
        h = cell = torch.zeros(1, SIZE, dtype=x.dtype)
        for token in x.unbind(1):
            mine, other = F.linear(token, from_input, bias), F.linear(h, from_state, state_bias)
            h, cell = getattr(self, f"step_{self.kind.lower()}")(mine, other, h, cell)
        return self.head(h)

    def step_lstm(self, mine: Tensor, other: Tensor, h: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        enter, forget, new, out = (mine + other).chunk(4, -1)
        cell = forget.sigmoid().detach() * cell + enter.sigmoid().detach() * held(torch.tanh, new)
        return out.sigmoid().detach() * held(torch.tanh, cell), cell

    def step_gru(self, mine: Tensor, other: Tensor, h: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        (reset, update, new), (other_reset, other_update, old) = mine.chunk(3, -1), other.chunk(3, -1)
        reset, update = (reset + other_reset).sigmoid().detach(), (update + other_update).sigmoid().detach()
        return (1 - update) * held(torch.tanh, new + reset * old) + update * h, cell

    def step_rnn(self, mine: Tensor, other: Tensor, h: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        return held(torch.tanh, mine + other), cell


class ByHand(Recurrent):
    """The same written out by the model's author."""

    def forward(self, x: Tensor) -> Tensor:
        from_input, from_state, bias, state_bias = self.weights()
        h, cell = torch.zeros(1, SIZE, dtype=x.dtype), torch.zeros(1, SIZE, dtype=x.dtype)
        for token in x.unbind(1):
            gates = F.linear(token, from_input, bias) + F.linear(h, from_state, state_bias)
            enter, forget, new, out = gates.chunk(4, -1)
            cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
            h = out.sigmoid() * cell.tanh()
        return self.head(h)


add(FAMILY, "lerp gate", Lerp)
add(FAMILY, "highway by hand", HighwayByHand)
for kind in ("LSTM", "GRU", "RNN"):
    add(FAMILY, f"{kind} cell", lambda kind=kind: Recurrent(kind, cell=True))
    add(FAMILY, f"{kind} layer", lambda kind=kind: Recurrent(kind, cell=False))
add(FAMILY, "LSTM by hand", lambda: ByHand("LSTM", cell=True))


class GeluBetween(Model):
    """Two operations, of which the first is the identity in value and halves the gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.head = linear(), head()

    def forward(self, x: Tensor) -> Tensor:
        h = self.before(x)
        return self.head(F.gelu(0.5 * h + 0.5 * h.detach())).mean(1)

    def reference(self, x: Tensor) -> Tensor:
        return self.head(gelu(self.before(x))).mean(1)


add("cut", "half of every number", GeluBetween)
