"""Places where something that was cut off enters a signal: every operation that adds, chooses, joins or writes."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .cases import SIZE, TOKENS, Model, add, attended, data, gelu, head, linear, normed

FAMILY = "cut enters"
EVEN = torch.arange(SIZE) % 2 == 0
FIRST = torch.arange(TOKENS).reshape(-1, 1) < 2


class Joined(Model):
    """`join(signal, cut)` between linear layers; the reference joins the signal with what was not cut."""

    def __init__(
        self, join: Callable[[Tensor, Tensor], Tensor], linear_join: Callable[[Tensor, Tensor], Tensor]
    ) -> None:
        super().__init__()
        self.alive, self.backbone, self.head = linear(), linear(), head()
        self.join, self.linear_join = join, linear_join

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.join(self.alive(x), self.backbone(x).detach())).mean(1)

    def reference(self, x: Tensor) -> Tensor:
        return self.head(self.linear_join(self.alive(x), self.backbone(x))).mean(1)


def written(h: Tensor, c: Tensor) -> Tensor:
    h = h.clone()
    h[:, 1] = c[:, 1]
    return h


def written_into_cut(h: Tensor, c: Tensor) -> Tensor:
    c = c.clone()
    c[:, :2] = h[:, :2]
    return c


def scattered(h: Tensor, c: Tensor) -> Tensor:
    index = torch.zeros(1, 1, SIZE, dtype=torch.long)
    return h.scatter(1, index, c[:, :1])


def numbers_written(h: Tensor, c: Tensor) -> Tensor:
    h = h.clone()
    for i in range(SIZE):
        h[0, 0, i] = float(c[0, 0, i])
    return h


def numbers_added(h: Tensor, c: Tensor) -> Tensor:
    columns = [h[..., i] + c[0, 0, i].item() for i in range(SIZE)]
    return torch.stack(columns, -1)


def padded(h: Tensor, c: Tensor) -> Tensor:
    return F.pad(h, (0, 0, 1, 0), value=c.mean().item())


def identity(size: int = TOKENS) -> Tensor:
    return torch.eye(size, dtype=torch.float64)[None]


JOINS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
    "add": (lambda h, c: h + c, lambda h, c: h + c),
    "radd": (lambda h, c: torch.add(c, h, alpha=2), lambda h, c: 2 * h + c),
    "add_": (lambda h, c: h.add_(c), lambda h, c: h + c),
    "sub": (lambda h, c: h - c, lambda h, c: h - c),
    "rsub": (lambda h, c: torch.rsub(h, c), lambda h, c: c - h),
    "sum": (lambda h, c: sum([h, c]), lambda h, c: h + c),
    "stack and sum": (lambda h, c: torch.stack([h, c]).sum(0), lambda h, c: h + c),
    "cat": (lambda h, c: torch.cat([h, c], 1), lambda h, c: torch.cat([h, c], 1)),
    "hstack": (lambda h, c: torch.hstack([h, c]), lambda h, c: torch.cat([h, c], 1)),
    "where": (lambda h, c: torch.where(EVEN, h, c), lambda h, c: torch.where(EVEN, h, c)),
    "where method": (lambda h, c: h.where(EVEN, c), lambda h, c: torch.where(EVEN, h, c)),
    "masked_fill": (
        lambda h, c: h.masked_fill(EVEN, c.sum()),
        lambda h, c: torch.where(EVEN, c.sum(), h),
    ),
    "masked_scatter": (
        lambda h, c: h.masked_scatter(FIRST.expand_as(h), c),
        lambda h, c: torch.where(FIRST, c, h),
    ),
    "index assignment": (written, lambda h, c: torch.cat([h[:, :1], c[:, 1:2], h[:, 2:]], 1)),
    "signal into cut": (written_into_cut, lambda h, c: torch.cat([h[:, :2], c[:, 2:]], 1)),
    "scatter": (scattered, lambda h, c: torch.cat([c[:, :1], h[:, 1:]], 1)),
    "scatter_add": (
        lambda h, c: h.scatter_add(1, torch.zeros(1, TOKENS, SIZE, dtype=torch.long), c),
        lambda h, c: torch.cat([h[:, :1] + c.sum(1, keepdim=True), h[:, 1:]], 1),
    ),
    "index_add": (
        lambda h, c: h.index_add(1, torch.tensor([0]), c[:, :1]),
        lambda h, c: torch.cat([h[:, :1] + c[:, :1], h[:, 1:]], 1),
    ),
    "index_copy": (
        lambda h, c: h.index_copy(1, torch.tensor([2]), c[:, :1]),
        lambda h, c: torch.cat([h[:, :2], c[:, :1], h[:, 3:]], 1),
    ),
    "slice_scatter": (
        lambda h, c: h.slice_scatter(c[:, :1], 1, 3, 4),
        lambda h, c: torch.cat([h[:, :3], c[:, :1]], 1),
    ),
    "numbers written": (numbers_written, lambda h, c: torch.cat([c[:, :1], h[:, 1:]], 1)),
    "numbers added": (numbers_added, lambda h, c: h + c[:, :1]),
    "padding": (padded, lambda h, c: torch.cat([c.mean().expand(1, 1, SIZE), h], 1)),
    "addcmul": (
        lambda h, c: torch.addcmul(c, h, torch.full_like(h, 0.3)),
        lambda h, c: c + 0.3 * h,
    ),
    "addcdiv": (
        lambda h, c: torch.addcdiv(h, c, torch.full_like(h, 2.0)),
        lambda h, c: h + c / 2,
    ),
    "lerp": (lambda h, c: torch.lerp(h, c, 0.3), lambda h, c: 0.7 * h + 0.3 * c),
    "lerp from cut": (lambda h, c: torch.lerp(c, h, 0.3), lambda h, c: 0.7 * c + 0.3 * h),
    "baddbmm": (lambda h, c: torch.baddbmm(c, identity(), h), lambda h, c: c + h),
    "addmm": (
        lambda h, c: torch.addmm(c[0], h[0], identity(SIZE)[0])[None],
        lambda h, c: c + h,
    ),
    "bias of F.linear": (
        lambda h, c: F.linear(h, identity(SIZE)[0], c[0, 0]),
        lambda h, c: h + c[:, :1],
    ),
    "bias of a convolution": (
        lambda h, c: F.conv1d(h, identity().transpose(0, 2), c[0, :, 0]),
        lambda h, c: h + c[..., :1],
    ),
    "larger of a signal and a cut": (
        lambda h, c: torch.maximum(h, c),
        lambda h, c: torch.where(h > c, h, c),
    ),
    "smaller by clamp": (
        lambda h, c: torch.clamp(h, max=c),
        lambda h, c: torch.where(h < c, h, c),
    ),
    "einsum with ones": (
        lambda h, c: torch.einsum("btd,s->btd", c, torch.ones(1, dtype=c.dtype)) + h,
        lambda h, c: c + h,
    ),
}

for name, (join, linear_join) in JOINS.items():
    add(FAMILY, name, lambda join=join, linear_join=linear_join: Joined(join, linear_join))


class NormBias(Model):
    """The shift of a layer normalisation is made from the input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.shift, self.head = nn.LayerNorm(SIZE), linear(), head()

    def forward(self, x: Tensor) -> Tensor:
        bias = self.shift(x).detach().mean((0, 1))
        return self.head(F.layer_norm(x, (SIZE,), self.norm.weight, bias)).mean(1)

    def reference(self, x: Tensor) -> Tensor:
        return self.head(normed(self.norm, x) - self.norm.bias + self.shift(x).mean((0, 1))).mean(1)


class MeanHeld(Model):
    """A normalisation by hand whose mean is cut off, too: a divisor may be, a mean may not."""

    def __init__(self) -> None:
        super().__init__()
        self.head = head()

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            mean, deviation = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
        return self.head((x - mean) / deviation).mean(1)

    def reference(self, x: Tensor) -> Tensor:
        return self.head((x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True).detach()).mean(1)


class StatisticsGiven(MeanHeld):
    """The same by F.batch_norm, with statistics that are the input's own."""

    def forward(self, x: Tensor) -> Tensor:
        flat = x[0].detach()
        return self.head(F.batch_norm(x[0], flat.mean(0), flat.var(0), eps=0.0)[None])[:, 0]

    def reference(self, x: Tensor) -> Tensor:
        return self.head((x - x.mean(1, keepdim=True)) / x.var(1, keepdim=True).sqrt().detach())[:, 0]


class Memory(Model):
    """Attention to a memory that is cut off, beside the input itself."""

    def __init__(self, values: bool, keys: bool) -> None:
        super().__init__()
        self.query, self.key, self.value, self.head = linear(), linear(), linear(), head()
        self.cut_values, self.cut_keys = values, keys

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.query(x), self.key(x), self.value(x)
        key = key.detach() if self.cut_keys else key
        value = torch.cat([value[:, :2].detach(), value[:, 2:]], 1) if self.cut_values else value
        return self.head(F.scaled_dot_product_attention(query, key, value) + 0.1 * x).mean(1)

    def reference(self, x: Tensor) -> Tensor:
        return self.head(attended(self.query(x), self.key(x), self.value(x)) + 0.1 * x).mean(1)


class Residual(Model):
    """The stream past a block is cut off, the block is not."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.block, self.head = nn.LayerNorm(SIZE), linear(), head()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.gelu(self.block(self.norm(x))) + x.detach()).mean(1)

    def reference(self, x: Tensor) -> Tensor:
        return self.head(gelu(self.block(normed(self.norm, x))) + x).mean(1)


class Below(Model):
    """The first layer runs without gradients and the second takes half of its output; only a shortcut is alive."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = linear(), linear(), head()

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            h = F.gelu(self.first(x))
        h = F.gelu(self.second(h))  # a constant now, computed as any other
        return self.head(h + 1e-3 * x).mean(1)

    def reference(self, x: Tensor) -> Tensor:
        return self.head(gelu(self.second(gelu(self.first(x)))) + 1e-3 * x).mean(1)


class OtherSample(Model):
    """The batch's mean is cut off and added: every sample's score depends on every other sample."""

    def __init__(self) -> None:
        super().__init__()
        self.alive, self.backbone, self.head = linear(), linear(), head()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.alive(x) + self.backbone(x).detach().mean(0)).mean(1)


class OneSample(OtherSample):
    """Only the first sample is cut."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.backbone(x)
        first = (torch.arange(len(x)) == 0).reshape(-1, 1, 1)
        return self.head(self.alive(x) + torch.where(first, h.detach(), h)).mean(1)

    def reference(self, x: Tensor) -> Tensor:
        return self.head(self.alive(x) + self.backbone(x)).mean(1)


def two_samples() -> Tensor:
    return torch.cat([data(), data().flip(1)])


add(FAMILY, "bias of layer_norm", NormBias)
add(FAMILY, "mean without gradient", MeanHeld)
add(FAMILY, "statistics of batch_norm", StatisticsGiven)
add(FAMILY, "values of a memory", lambda: Memory(values=True, keys=False))
add(FAMILY, "residual", Residual)
add(FAMILY, "far below", Below)
add(FAMILY, "from another sample", OtherSample, two_samples)
add(FAMILY, "one sample alone", OneSample, two_samples)
add("legitimate", "cut keys weigh signals", lambda: Memory(values=False, keys=True), closes=True)
