"""Numbers, indices and roundings made from the input: what they look up or spell has no gradient to begin with."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from .cases import SIZE, add
from .cut_ways import FAMILY, Adapted


class Rounded(Adapted):
    """The same where the cut changes the number, so that no linear map through it is right."""

    reference = None


CODES = torch.randn(5, SIZE, generator=torch.Generator().manual_seed(8), dtype=torch.float64)


def nearest(h: Tensor) -> Tensor:
    return torch.cdist(h.detach(), CODES[None]).argmin(-1)


def one_hot(h: Tensor) -> Tensor:
    """What F.gumbel_softmax(hard=True) does, without its noise."""
    soft = (h @ CODES.T).softmax(-1)
    hard = F.one_hot(soft.argmax(-1), len(CODES)).to(h.dtype)
    return (hard - soft.detach() + soft) @ CODES


def seeded(h: Tensor) -> Tensor:
    """Numbers that look like noise, and are a function of the input."""
    generator = torch.Generator().manual_seed(int(1000 * h.sum().abs()))
    return torch.randn(h.shape, generator=generator, dtype=h.dtype)


def bits(h: Tensor) -> Tensor:
    return h.detach().view(torch.int64).bitwise_and(~0xFFFFFFFF).view(torch.float64)


def sorted_codes(h: Tensor) -> Tensor:
    return CODES[h.argsort(-1)[..., 0] % len(CODES)]


def by_bisection(h: Tensor) -> Tensor:
    """A number that is asked for by yes and no alone."""
    low, high, mean = -8.0, 8.0, h.mean()
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if mean > middle else (low, middle)
    return torch.full_like(h, low)


def gated_code(h: Tensor) -> Tensor:
    """A code book whose winning score also gates the signal; the code itself has no weight."""
    score, index = (h @ CODES.T).max(-1, keepdim=True)
    return 0.1 * h * torch.sigmoid(score) + CODES[index[..., 0]]


def gated_code_by_number(h: Tensor) -> Tensor:
    score, index = (h @ CODES.T).max(-1, keepdim=True)
    return 0.1 * h * torch.sigmoid(score) + torch.stack([CODES[int(i)] for i in index.flatten()])[None]


def printed(h: Tensor) -> Tensor:
    return torch.zeros_like(h) + float(str(h.detach().mean()).split("(")[1].split(",")[0])


OTHER: dict[str, Callable[[Tensor], Tensor]] = {
    "one number": lambda h: torch.full_like(h, h.mean().item()),
    "float()": lambda h: torch.zeros_like(h) + float(h.sum()),
    "int()": lambda h: torch.zeros_like(h) + int(100 * h.sum()) / 100,
    "formatted": lambda h: torch.ones_like(h) * float(f"{h.max().item():.3f}"),
    "format of a tensor": lambda h: torch.ones_like(h) * float(f"{h.max():.3f}"),
    "printed": printed,
    "full_like of a tensor": lambda h: torch.full_like(h, h.detach().mean()),
    "new_full of a tensor": lambda h: h.new_full(h.shape, h.detach().mean()),
    "full of a tensor": lambda h: torch.full(h.shape, h.detach().mean(), dtype=h.dtype),
    "fill_ of a tensor": lambda h: torch.empty_like(h).fill_(h.detach().mean()),
    "shape of a selection": lambda h: torch.full_like(h, 0.1) * (h > 0).nonzero().shape[0],
    "size of a selection": lambda h: torch.full_like(h, 0.1) * h[h > 0].numel(),
    "counted by yes and no": lambda h: torch.full_like(h, 0.1) * sum(1 for v in h.flatten() if v > 0),
    "number by bisection": by_bisection,
    "code book with a gate beside it": gated_code,
    "code book by numbers with a gate beside it": gated_code_by_number,
    "long": lambda h: (10 * h).long().to(h.dtype) / 10,
    "int8": lambda h: (10 * h).round().to(torch.int8).to(h.dtype) / 10,
    "round": lambda h: (8 * h).round() / 8,
    "floor": lambda h: (8 * h).floor() / 8,
    "sign": torch.sign,
    "quantised": lambda h: torch.quantize_per_tensor(h.detach().float(), 0.1, 0, torch.qint8).dequantize().to(h.dtype),
    "fake quantised": lambda h: torch.fake_quantize_per_tensor_affine(h.float(), 0.1, 0, -128, 127).to(h.dtype),
    "half precision": lambda h: h.detach().to(torch.bfloat16).to(h.dtype),
    "rounded straight through": lambda h: h + ((8 * h).round() / 8 - h).detach(),
    "positive as a number": lambda h: (h > 0).to(h.dtype) - 0.5,
    "heaviside": lambda h: torch.heaviside(h, torch.zeros((), dtype=h.dtype)) - 0.5,
    "code book": lambda h: CODES[nearest(h)],
    "code book by index_select": lambda h: CODES.index_select(0, nearest(h).flatten()).reshape(h.shape),
    "code book by embedding": lambda h: F.embedding(nearest(h), CODES),
    "code book straight through": lambda h: h + (CODES[nearest(h)] - h).detach(),
    "code book by argmax": lambda h: CODES[(h @ CODES.T).argmax(-1)],
    "code book by topk": lambda h: CODES[(h @ CODES.T).topk(2, -1).indices].mean(-2),
    "code book by max": lambda h: CODES[(h @ CODES.T).max(-1).indices],
    "code book by argsort": sorted_codes,
    "code book by a Python index": lambda h: torch.stack([CODES[int(i)] for i in nearest(h)[0]])[None],
    "bucketize": lambda h: CODES[torch.bucketize(h[..., 0], torch.tensor([-0.5, 0.0, 0.5], dtype=h.dtype))],
    "searchsorted": lambda h: CODES[
        torch.searchsorted(torch.linspace(-1, 1, 4, dtype=h.dtype), h[..., 0].contiguous())
    ],
    "histogram": lambda h: h.detach().flatten().histc(6, -2, 2).expand_as(h) / 10,
    "counted": lambda h: torch.full_like(h, 0.1) * (h > 0).sum(),
    "one-hot straight through": one_hot,
    "bits": bits,
    "seeded noise": seeded,
}

for name, cut in OTHER.items():
    add(FAMILY, name, lambda cut=cut: Rounded(cut))
