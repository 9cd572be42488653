"""What a model's outputs are called: classes by index and by name, tokens of a vocabulary, their probabilities."""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torch import Tensor

from ..errors import TargetError, UnknownName
from ..results.readable import SPACE_MARKS
from .text import can_generate

MOST_CLASSES, LIKELIEST = 1000, 10  # past so many classes (a vocabulary), so many probabilities are kept


def no_token(text: str) -> None:
    """Classes that are no tokens have no space before them."""


@dataclass(frozen=True)
class Names:
    """Classes by index and by name."""

    size: int
    name: Callable[[int], str]
    find: Callable[[str], int]
    find_spaced: Callable[[str], int | None] = no_token  # of a vocabulary, a word with the space before it

    def __call__(self, index: int) -> str:
        return self.name(index)

    def knows(self, label: str) -> bool:
        try:
            self.find(label)
        except (TargetError, UnknownName):
            return False
        return True

    def index(self, label: int | str) -> int:
        if isinstance(label, str):
            return self.find(label)
        number = read_number(label)
        if not -self.size <= number < self.size:
            raise TargetError(f"no class {number}: the model has {self.size}, 0 to {self.size - 1}.")
        return number % self.size

    def choose(self, label: int | str, rows: Tensor) -> list[int]:
        """The class that is meant, of each sample.

        A word can be two tokens, with the space before it and without: it is the likelier one for each sample.
        """
        plain = self.index(label)
        spaced = self.find_spaced(label) if isinstance(label, str) else None
        if spaced is None or spaced == plain:
            return [plain] * len(rows)
        likelier = rows.detach()[:, spaced] > rows.detach()[:, plain]
        return [spaced if one else plain for one in likelier.tolist()]


def read_number(label: Any) -> int:
    """An index, also as a number of numpy or torch, as `argmax` gives it."""
    several = " One target is for all samples; for others, explain the samples one by one."
    try:
        if not isinstance(label, bool):
            return operator.index(label)
    except TypeError:
        pass
    raise TargetError(
        f"a class is an index or a name, not {type(label).__name__}.{several if isinstance(label, list) else ''}"
    )


def class_names(config: Any, size: int) -> Names:
    table = getattr(config, "id2label", None) or {}
    given = [str(table.get(i, f"LABEL_{i}")) for i in range(size)]
    counts = Counter(given)
    names = [f"{name} ({i})" if counts[name] > 1 else name for i, name in enumerate(given)]  # each is one class
    lower = {name.lower(): i for i, name in reversed(list(enumerate(names)))}

    def find(text: str) -> int:
        if text in names:
            return names.index(text)
        if text.strip().lower() in lower:
            return lower[text.strip().lower()]
        if re.fullmatch(r"\d+", text) and int(text) < size:
            return int(text)
        one, _, other = text.partition("-")
        both = [lower.get(side.strip().lower()) for side in (one, other)]
        hint = "" if None in both else f" The one set against the other is {f'{one.strip()} - {other.strip()}'!r}."
        raise UnknownName("class", text, names, hint)

    return Names(size, names.__getitem__, find)


def token_names(tokenizer: Any, size: int) -> Names:
    """The tokens of a vocabulary, each by itself."""

    def name(index: int) -> str:
        found = None if tokenizer is None else tokenizer.convert_ids_to_tokens(index)
        return str(index) if found is None else str(found)  # many models have more rows than their tokenizer tokens

    def find(text: str) -> int:
        if tokenizer is None:
            raise TargetError(f"the token {text!r} can only be found with a tokenizer; pass it or give the index.")
        if not text:
            raise TargetError("the target is an empty text: name a token.")
        known = tokenizer.get_vocab()
        if text in known:
            return int(known[text])
        pieces = tokenizer(text, add_special_tokens=False)["input_ids"]
        if len(pieces) != 1:  # many tokenizers have most words only with the space before them
            spaced = tokenizer(f" {text}", add_special_tokens=False)["input_ids"]
            pieces = spaced if len(spaced) == 1 else pieces
        if getattr(tokenizer, "unk_token_id", None) in pieces:
            raise TargetError(f"{text!r} is not in the tokenizer's vocabulary.")
        if len(pieces) != 1:
            first = tokenizer.decode(pieces[:1])
            raise TargetError(
                f"{text!r} is {len(pieces)} tokens for this tokenizer; a target is one, such as its first, {first!r}."
            )
        return int(pieces[0])

    def find_spaced(text: str) -> int | None:
        """None for what has a space before it already, and for what is no single token with one."""
        if tokenizer is None or text.startswith((" ", *SPACE_MARKS)):
            return None
        pieces = tokenizer(f" {text}", add_special_tokens=False)["input_ids"]
        unknown = getattr(tokenizer, "unk_token_id", None)
        return int(pieces[0]) if len(pieces) == 1 and pieces[0] != unknown else None

    return Names(size, name, find, find_spaced)


def split_difference(label: str) -> tuple[str, str | None]:
    """ "positive - negative" -> its two classes."""
    parts = label.split(" - ")
    return (parts[0], parts[1]) if len(parts) == 2 else (label, None)


def name_predictions(rows: Tensor, best: list[int], names: Names, multi: bool) -> list[str | None]:
    """What the model says of each sample; `best` is the likeliest class of each."""
    if multi:
        return [", ".join(names(i) for i, logit in enumerate(row) if logit > 0) or "none" for row in rows.tolist()]
    return [None] * len(rows) if rows.shape[-1] == 1 else [names(one) for one in best]


def is_vocabulary(model: Any, size: int) -> bool:
    get = getattr(getattr(model, "config", None), "get_text_config", None)
    config = get() if get is not None else getattr(model, "config", None)
    return size == getattr(config, "vocab_size", None) or can_generate(model)


@dataclass(frozen=True)
class ClassLogits:
    """The logits of one sample and what its classes are called; `independent`: each class has a probability alone."""

    row: Tensor
    names: Names
    independent: bool = False
    shares: Sequence[float] | None = None  # every class's probability, where they are few

    @classmethod
    def of(cls, rows: Tensor, names: Names, independent: bool = False) -> list[ClassLogits]:
        """One for each sample, of rows in main memory that nobody writes into."""
        if rows.shape[-1] > MOST_CLASSES:
            return [cls(row, names, independent) for row in rows]
        shares = share_out(rows, independent).tolist()  # of all samples at once
        return [cls(row, names, independent, own) for row, own in zip(rows, shares, strict=True)]

    def probabilities(self, target: str | None = None) -> dict[str, float]:
        """Every class by name; of a vocabulary the likeliest, and `target` where it is one token of it."""
        chosen, numbers = self._shown(target)
        return dict(sorted(zip(map(self.names, chosen), numbers, strict=True), key=lambda named: -named[1]))

    @cached_property
    def all_shares(self) -> Tensor:
        """Every class's probability."""
        return share_out(self.row, self.independent)

    def _shown(self, target: str | None) -> tuple[Sequence[int], Sequence[float]]:
        if self.shares is not None:
            return range(len(self.shares)), self.shares
        found = self.all_shares
        if len(found) <= MOST_CLASSES:
            return list(range(len(found))), found.tolist()
        chosen = found.topk(LIKELIEST).indices.tolist()
        if target is not None and self.names.knows(target) and self.names.index(target) not in chosen:
            chosen.append(self.names.index(target))
        return chosen, found[chosen].tolist()


def share_out(logits: Tensor, independent: bool) -> Tensor:
    """Logits as probabilities, along the last dimension."""
    wide = logits.double()
    return wide.sigmoid() if independent else wide.softmax(-1)
