"""Models of token ids that look up other ids than those of the text, or the same ones in another order or table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .cases import SIZE, add, gelu, head

FAMILY = "token ids"
WORDS, START = 20, 1
IDS = torch.tensor([[4, 9, 14, 7, 11]])
PALINDROME = torch.tensor([[4, 9, 14, 9, 4]])
LENGTH = IDS.shape[1]
Origins = Sequence[int | None]


class Reordered(nn.Module):
    """Embeddings of `change(ids)`; position p has a weight of its own and came from token `origins[p]` of the text."""

    def __init__(self, change: Callable[[Tensor], Tensor], origins: Origins) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, SIZE), head()
        self.place = nn.Buffer(torch.linspace(0.5, 2, LENGTH).reshape(1, -1, 1))
        self.change, self.origins = change, origins

    def get_input_embeddings(self) -> nn.Module:
        return self.embed

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.after(self.embed(self.change(input_ids)), F.gelu)

    def after(self, embedded: Tensor, active: Callable[[Tensor], Tensor]) -> Tensor:
        return self.head(active(self.place[:, : embedded.shape[1]] * embedded)).sum(1)

    def tokens(self, ids: Tensor) -> Tensor:
        """What belongs to each token of the text."""
        return self.gathered(self.embed.weight[self.change(ids)], self.origins, lambda e: self.after(e, gelu))

    def gathered(self, embedded: Tensor, origins: Origins, function: Callable[[Tensor], Tensor]) -> Tensor:
        leaf = embedded.detach().clone().requires_grad_()
        (gradient,) = torch.autograd.grad(function(leaf)[0, 1], leaf)
        own = torch.zeros(LENGTH, dtype=leaf.dtype)
        for row, origin in zip((leaf * gradient).sum(-1)[0].detach(), origins, strict=True):
            if origin is not None:
                own[origin] += row
        return own


def shifted(ids: Tensor, start: Any) -> Tensor:
    first = torch.full_like(ids[:, :1], start) if isinstance(start, int) else start(ids)
    return torch.cat([first, ids[:, :-1]], 1)


ORDERS: dict[str, tuple[Callable[[Tensor], Tensor], Origins]] = {
    "rolled": (lambda ids: ids.roll(1, 1), [4, 0, 1, 2, 3]),
    "rolled back": (lambda ids: ids.roll(-1, 1), [1, 2, 3, 4, 0]),
    "rolled by two": (lambda ids: ids.roll(2, 1), [3, 4, 0, 1, 2]),
    "reversed": (lambda ids: ids.flip(1), [4, 3, 2, 1, 0]),
    "permuted": (lambda ids: ids[:, [2, 0, 4, 1, 3]], [2, 0, 4, 1, 3]),
    "sorted": (lambda ids: ids.sort(1).values, [0, 3, 1, 4, 2]),
    "shifted, the first one twice": (lambda ids: shifted(ids, lambda i: i[:, :1]), [0, 0, 1, 2, 3]),
    "shifted, the third one in front": (lambda ids: shifted(ids, lambda i: i[:, 2:3]), [2, 0, 1, 2, 3]),
    "the last one twice": (lambda ids: torch.cat([ids, ids[:, -1:]], 1)[:, 1:], [1, 2, 3, 4, 4]),
    "neighbours of the ids": (lambda ids: (ids + 1) % WORDS, [0, 1, 2, 3, 4]),
    "evens alone": (lambda ids: ids[:, ::2], [0, 2, 4]),
}
for name, (change, origins) in ORDERS.items():
    add(FAMILY, name, lambda c=change, o=origins: Reordered(c, o), lambda: {"input_ids": IDS})
add(
    FAMILY,
    "a palindrome reversed",
    lambda: Reordered(lambda ids: ids.flip(1), [4, 3, 2, 1, 0]),
    lambda: {"input_ids": PALINDROME},
)


class Twice(Reordered):
    """Two look-ups, the second one of `other(ids)`."""

    def __init__(self, other: Callable[[Tensor], Tensor], origins: Origins) -> None:
        super().__init__(lambda ids: ids, [0, 1, 2, 3, 4])
        self.other, self.other_origins = other, origins

    def second(self, ids: Tensor) -> Tensor:
        return self.embed(self.other(ids))

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.after(self.embed(input_ids), F.gelu) + self.after(3 * self.second(input_ids), F.gelu)

    def tokens(self, ids: Tensor) -> Tensor:
        two = self.gathered(self.second(ids), self.other_origins, lambda e: self.after(3 * e, gelu))
        return super().tokens(ids) + two


class OtherTable(Twice):
    """The second look-up is in a table that nobody named."""

    def __init__(self, other: Callable[[Tensor], Tensor]) -> None:
        super().__init__(other, [0, 1, 2, 3, 4])
        self.more = nn.Embedding(WORDS, SIZE)

    def second(self, ids: Tensor) -> Tensor:
        return self.more(self.other(ids))


class Unasked(Twice):
    """The second look-up is in the same table, past its module."""

    def __init__(self, look_up: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__(lambda ids: ids, [0, 1, 2, 3, 4])
        self.look_up = look_up

    def second(self, ids: Tensor) -> Tensor:
        return self.look_up(self.embed.weight, ids)


def one_hot(table: Tensor, ids: Tensor) -> Tensor:
    return F.one_hot(ids, WORDS).to(table.dtype) @ table


def given() -> dict[str, Tensor]:
    return {"input_ids": IDS}


add(FAMILY, "looked up again, rolled", lambda: Twice(lambda ids: ids.roll(1, 1), [4, 0, 1, 2, 3]), given)
add(FAMILY, "looked up again, reversed", lambda: Twice(lambda ids: ids.flip(1), [4, 3, 2, 1, 0]), given)
add(FAMILY, "another table", lambda: OtherTable(lambda ids: ids), given)
add(FAMILY, "another table by a hash", lambda: OtherTable(lambda ids: (7 * ids + 3) % WORDS), given)
add(FAMILY, "past the module, embedding", lambda: Unasked(lambda table, ids: F.embedding(ids, table)), given)
add(FAMILY, "past the module, index", lambda: Unasked(lambda table, ids: table[ids]), given)
add(FAMILY, "past the module, one-hot", lambda: Unasked(one_hot), given)


class Bigrams(Twice):
    """Every pair of neighbours has a row in a table: which token it belongs to, nobody can say."""

    def __init__(self) -> None:
        super().__init__(lambda ids: ids, [0, 1, 2, 3, 4])
        self.more = nn.Embedding(WORDS, SIZE)

    def second(self, ids: Tensor) -> Tensor:
        return self.more((ids + 3 * ids.roll(1, 1)) % WORDS)

    tokens = None


add(FAMILY, "pairs of neighbours", Bigrams, given)
add("legitimate", "looked up twice", lambda: Twice(lambda ids: ids, [0, 1, 2, 3, 4]), given, closes=True)
add(
    "legitimate",
    "a decoder's shift",
    lambda: Twice(lambda ids: shifted(ids, START), [None, 0, 1, 2, 3]),
    given,
    closes=True,
)


class Positions(Reordered):
    """Position embeddings, and types that are all zero: constants, whatever the text is."""

    def __init__(self) -> None:
        super().__init__(lambda ids: ids, [0, 1, 2, 3, 4])
        self.positions, self.types = nn.Embedding(9, SIZE), nn.Embedding(2, SIZE)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        embedded = self.embed(input_ids)
        return self.after(embedded + self.placed(input_ids), F.gelu)

    def placed(self, ids: Tensor) -> Tensor:
        return self.positions(torch.arange(ids.shape[1])) + self.types(torch.zeros_like(ids))

    def tokens(self, ids: Tensor) -> Tensor:
        return self.gathered(
            self.embed.weight[ids], self.origins, lambda e: self.after(e + self.placed(ids).detach(), gelu)
        )


class PositionsOfWords(Positions):
    """Positions counted past padding, as RoBERTa does: they depend on which ids are padding, and on nothing else."""

    def placed(self, ids: Tensor) -> Tensor:
        real = (ids != 0).int()
        return self.positions(torch.cumsum(real, 1) * real)


add("legitimate", "position and type embeddings", Positions, given, closes=True)
add("legitimate", "positions counted past padding", PositionsOfWords, given, closes=True)
