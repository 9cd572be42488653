"""Text -> Batch: one tokenisation, checked against the model's length, padded on the right by ourselves."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, overload

import torch
from torch import Tensor, nn

from ..errors import EmptyInput, InputError, ModelError, TooLong, UnknownName
from .batch import Batch, Item
from .places import InputPlace
from .protocol import sample_name
from .walking import named_modules

Text = str | tuple[str, str]


@dataclass(frozen=True)
class Encoded:
    """One tokenised text: model inputs as lists, and the item its user sees."""

    fields: dict[str, list[int]]
    item: Item

    @property
    def length(self) -> int:
        return len(self.fields["input_ids"])


def encode(texts: Sequence[Text], tokenizer: Any, limit: int | None, truncate: bool) -> list[Encoded]:
    """Every text tokenised, or a clear refusal that names the one which cannot be."""
    names = [sample_name("text", i, len(texts)) for i in range(len(texts))]
    split = [split_pair(text, name) for text, name in zip(texts, names, strict=True)]
    found = tokenise(tokenizer, split, limit if truncate else None)
    return [check_encoded(*one, tokenizer, limit) for one in zip(texts, found, names, strict=True)]


def split_pair(text: Text, name: str) -> tuple[str, ...]:
    parts = text if isinstance(text, tuple) else (text,)
    if any(is_missing(part) for part in parts):
        raise InputError(f"{name} is missing ({text!r}): leave such rows out, data.dropna().")
    if not all(isinstance(part, str) for part in parts) or len(parts) > 2:
        raise InputError(f"{name} must be a string or a pair of strings, not {type(text).__name__}.")
    for part in parts:
        check_characters(part, name)
    if not any(part.strip() for part in parts):
        raise EmptyInput(f"{name} is empty: there is nothing to explain.")
    return parts


def is_missing(value: Any) -> bool:
    """What tables have where a value is not there: None, NaN, or the missing value of pandas."""
    return value is None or (isinstance(value, float) and value != value) or type(value).__name__ == "NAType"


def check_characters(text: str, name: str) -> None:
    """Refuses half of a surrogate pair, which is no character: what bytes that are no UTF-8 are read as."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{name} has {text[error.start]!r} at position {error.start}, half of a surrogate pair and no character: "
            "it comes from bytes that are no UTF-8, or from a broken escape. Convert the text to UTF-8."
        ) from error


def tokenise(tokenizer: Any, split: Sequence[tuple[str, ...]], limit: int | None) -> list[Any]:
    """What the tokenizer says of each text. A fast one is asked about all at once: it is the asking that takes time.

    It is asked about lists also where there is one text: of a lone pair it leaves out a second text that is empty.
    """
    if not split or not getattr(tokenizer, "is_fast", False):
        return [call(tokenizer, parts, limit) for parts in split]
    if len({len(parts) for parts in split}) > 1:
        return [said for parts in split for said in tokenise(tokenizer, [parts], limit)]
    every = call(tokenizer, tuple(list(column) for column in zip(*split, strict=True)), limit)
    if every.encodings is None or len(every.encodings) != len(split):
        return [call(tokenizer, parts, limit) for parts in split]
    return [OneOf(every, number) for number in range(len(split))]


@dataclass(frozen=True)
class OneOf:
    """One text of a tokenizer's answer about many, with the words of an answer about one."""

    every: Any
    number: int

    def __getitem__(self, name: str) -> Any:
        return self.every[name][self.number]

    def get(self, name: str) -> Any:
        return self[name] if name in self.every else None

    def items(self) -> list[tuple[str, Any]]:
        return [(name, values[self.number]) for name, values in self.every.items()]

    def word_ids(self) -> list[int | None]:
        return self.every.word_ids(self.number)  # type: ignore[no-any-return]

    def sequence_ids(self) -> list[int | None]:
        return self.every.sequence_ids(self.number)  # type: ignore[no-any-return]


def check_encoded(text: Text, encoding: Any, name: str, tokenizer: Any, limit: int | None) -> Encoded:
    encoded = Encoded(model_fields(encoding), item(text, encoding, tokenizer))
    if all(encoded.item.special):
        raise EmptyInput(f"{name} has no tokens but special ones: there is nothing to explain.")
    if limit is not None and encoded.length > limit:
        raise TooLong(encoded.length, limit, name)
    return encoded


def call(tokenizer: Any, parts: tuple[Any, ...], limit: int | None, **more: Any) -> Any:
    """The tokenizer, silent about lengths (we check them ourselves), with offsets where it has them."""
    options: dict[str, Any] = {"return_offsets_mapping": True} if getattr(tokenizer, "is_fast", False) else {}
    cut = {"truncation": True, "max_length": limit} if limit is not None else {"truncation": False}
    return tokenizer(*parts, return_special_tokens_mask=True, verbose=False, **cut, **options, **more)


def model_fields(encoding: Any) -> dict[str, list[int]]:
    """The tokenizer's fields that a model takes; never without a mask."""
    aside = ("special_tokens_mask", "offset_mapping", "overflow_to_sample_mapping")
    fields = {k: list(v) for k, v in encoding.items() if k not in aside}
    fields.setdefault("attention_mask", [1] * len(fields["input_ids"]))
    return fields


def item(text: Text, encoding: Any, tokenizer: Any) -> Item:
    ids = encoding["input_ids"]
    offsets = encoding.get("offset_mapping")
    fast = offsets is not None
    return Item(
        tokens=tuple(tokenizer.convert_ids_to_tokens(ids)),
        text=text,
        special=tuple(map(bool, encoding["special_tokens_mask"])),
        offsets=tuple(map(tuple, offsets)) if fast else None,
        word_ids=tuple(encoding.word_ids()) if fast else None,
        sequence_ids=tuple(encoding.sequence_ids()) if fast else None,
    )


def length_limit(model: nn.Module, tokenizer: Any) -> int | None:
    """How many tokens the model takes: the smallest of what its tokenizer, config and position table say."""
    config = getattr(model, "config", None)
    names = ("max_position_embeddings", "n_positions", "max_sequence_length")
    stated = [getattr(config, name, None) for name in names]
    stated.append(getattr(tokenizer, "model_max_length", None))
    stated.extend(position_tables(model))
    found = [int(value) for value in stated if isinstance(value, (int, float)) and 0 < value < 10**7]
    return min(found) if found else None


def position_tables(model: nn.Module) -> list[int]:
    """Rows of learned position tables; where one row is padding, positions start after it (RoBERTa's way)."""
    tables = [m for n, m in named_modules(model) if isinstance(m, nn.Embedding) and "position" in n.rsplit(".", 1)[-1]]
    return [m.num_embeddings - (m.padding_idx + 1) for m in tables if m.padding_idx is not None]


def padding_id(model: nn.Module, tokenizer: Any) -> int | None:
    for source in (tokenizer, getattr(model, "config", None)):
        value = getattr(source, "pad_token_id", None)
        if isinstance(value, int) and value >= 0:
            return value
    return None


def can_generate(model: Any) -> bool:
    """Whether a model continues text: a language model, or an encoder-decoder with a head for it."""
    return bool(getattr(model, "can_generate", lambda: False)())


def encoder_decoder(model: Any) -> bool:
    """Whether a model reads with an encoder and writes with a decoder."""
    return bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))


def find_nothing_token(tokenizer: Any) -> int | None:
    """The token that stands for a word taken away: unknown, else mask, else padding."""
    return first_of(find_special_tokens(tokenizer))


def find_special_tokens(tokenizer: Any) -> dict[str, int]:
    """The tokens that can stand for a word taken away, the one that is taken first."""
    found = {name: getattr(tokenizer, f"{name}_token_id", None) for name in ("unk", "mask", "pad")}
    return {name: token for name, token in found.items() if isinstance(token, int)}


def first_of(special: Mapping[str, int]) -> int | None:
    return next(iter(special.values()), None)


def padding_side(model: nn.Module, tokenizer: Any) -> str:
    """Language models are padded on the right, where positions of real tokens stay what they are without padding."""
    return "right" if can_generate(model) else getattr(tokenizer, "padding_side", "right")


def keeps_places(side: str) -> bool:
    """Whether padding on this side leaves a text where it stands alone.

    On the left it moves the text: positions are others, and what a model reads off its first place is padding. Some
    models need it there, and many do not mind. So texts for which it stands there go with those of their own length.
    """
    return side == "right"


def to_batch(encoded: Sequence[Encoded], pad: int | None, side: str, places: list[nn.Module]) -> Batch:
    """Texts of one batch, padded to the longest."""
    longest = max(e.length for e in encoded)
    fields = {
        name: torch.tensor([pad_values(e.fields[name], longest, filler(name, pad), side) for e in encoded])
        for name in encoded[0].fields
    }
    return Batch(
        samples=len(encoded),
        items=[e.item for e in encoded],
        kwargs=fields,
        ids=fields["input_ids"],
        real=fields["attention_mask"].bool(),
        places=places,
    )


def fit_arguments(model: nn.Module, batch: Batch) -> Batch:
    """The batch with the arguments that the model takes, by their names there.

    A module of one's own need not know a tokenizer's names: the ids are then its first argument, and what it has no
    parameter for is left out.
    """
    takes = named_parameters(model)
    if takes is None or set(batch.kwargs) <= set(takes):
        return batch
    kept = {name: value for name, value in batch.kwargs.items() if name in takes}
    if "input_ids" in takes or not takes:
        return replace(batch, kwargs=kept)
    return replace(batch, kwargs={takes[0]: batch.ids, **kept})


def check_takes_texts(model: nn.Module) -> None:
    """A model for multiple choice reads all choices of a question at once, not a text."""
    name = type(model).__name__
    if name.endswith("ForMultipleChoice"):
        raise ModelError(
            f"a {name} reads all choices of a question at once, and what is explained is one text. In Python, a "
            "module around it can give it one choice (input_ids.unsqueeze(1)): hw.explain(module, pair, inputs=…)."
        )


def takes(model: nn.Module, name: str) -> bool:
    """Whether a model has an argument of this name."""
    method = vars(type(model)).get("forward")
    own = method is not None and getattr(model.forward, "__func__", None) is method
    return name in (names_of_parameters(method) if own else inspect.signature(model.forward).parameters)


@lru_cache(maxsize=64)
def names_of_parameters(method: Any) -> frozenset[str]:
    """What a class's method takes; kept, for it takes long to find out."""
    return frozenset(inspect.signature(method).parameters)


def takes_mask(model: nn.Module) -> bool:
    """Whether the model can be told what is padding."""
    takes = named_parameters(model)
    return takes is None or "attention_mask" in takes


def named_parameters(model: nn.Module) -> list[str] | None:
    """What arguments a model takes by name; None where it takes any."""
    parameters = inspect.signature(model.forward).parameters.values()
    if any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in parameters):
        return None
    return [p.name for p in parameters if p.kind is not p.POSITIONAL_ONLY]


def with_decoder_start(model: nn.Module, batch: Batch) -> Batch:
    """An encoder-decoder that generates begins with its start token, unless a prefix is given."""
    config = getattr(model, "config", None)
    token = getattr(config, "decoder_start_token_id", None)
    if not (encoder_decoder(model) and can_generate(model) and isinstance(token, int)):
        return batch
    if batch.ids is None or "decoder_input_ids" in batch.kwargs:
        return batch
    return replace(batch, kwargs={**batch.kwargs, "decoder_input_ids": torch.full_like(batch.ids[:, :1], token)})


def filler(name: str, pad: int | None) -> int:
    return (pad or 0) if name == "input_ids" else 0


def pad_values(values: list[int], length: int, fill: int, side: str) -> list[int]:
    more = [fill] * (length - len(values))
    if side == "left":
        return more + values
    if side == "right":
        return values + more
    raise UnknownName("padding side", side, ("left", "right"))


def from_fields(fields: dict[str, Any], tokenizer: Any, place: InputPlace) -> Batch:
    """Tensors as a tokenizer gives them (`input_ids`, `attention_mask`, …), padded in whatever way they are."""
    fields = {name: as_tensor(name, value) for name, value in fields.items()}
    ids = fields["input_ids"]
    if ids.dim() == 1:
        fields = {k: v.unsqueeze(0) if isinstance(v, Tensor) and v.dim() == 1 else v for k, v in fields.items()}
        ids = fields["input_ids"]
    if ids.numel() == 0:
        raise EmptyInput("input_ids is empty: there is nothing to explain.")
    mask = fields.get("attention_mask")
    real = (
        mask.bool() if isinstance(mask, Tensor) and mask.shape == ids.shape else torch.ones_like(ids, dtype=torch.bool)
    )
    items = ItemsOfIds(ids.to("cpu", copy=True), real.cpu(), tokenizer)
    check_mask("attention_mask", items.real)
    decoder_mask = fields.get("decoder_attention_mask")
    if isinstance(decoder_mask, Tensor) and decoder_mask.dim() == 2:
        check_mask("decoder_attention_mask", decoder_mask.cpu().bool())
    drop = ("special_tokens_mask", "offset_mapping")
    kwargs = {k: v for k, v in fields.items() if k not in drop}
    return Batch(
        samples=len(ids),
        items=items,
        kwargs=kwargs,
        ids=ids,
        real=real,
        places=place.modules,
        at=place.name,
        lookups=place.lookups,
    )


def check_mask(name: str, real: Tensor) -> None:
    """Every row has a token: where one has none, no position is its last."""
    for number in (~real.any(1)).nonzero().flatten().tolist():
        raise EmptyInput(f"row {number} of {name} leaves no token: there is nothing to explain.")


@dataclass(frozen=True)
class ItemsOfIds(Sequence[Item]):
    """Texts by their ids, named when they are first asked for: a card can be at work by then."""

    ids: Tensor  # [samples, positions], in main memory
    real: Tensor  # the same, true where there is no padding
    tokenizer: Any

    @cached_property
    def all_items(self) -> list[Item]:
        return [_item_of_ids(row, self.tokenizer) for row in real_ids(self.ids, self.real)]

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, index: int) -> Item: ...

    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...

    def __getitem__(self, index: int | slice) -> Item | list[Item]:
        return self.all_items[index]


def real_ids(ids: Tensor, real: Tensor) -> list[list[int]]:
    """The tokens of each text, without padding."""
    return ids.tolist() if real.all() else [row[keep].tolist() for row, keep in zip(ids, real, strict=True)]


def as_tensor(name: str, value: Any) -> Any:
    """Lists and arrays as a tokenizer gives them, unless told to give tensors."""
    if isinstance(value, Tensor) or not (isinstance(value, list) or hasattr(value, "__array__")):
        return value
    try:
        return torch.as_tensor(value)
    except (ValueError, TypeError) as error:
        raise InputError(f"{name} has rows of different lengths; pad them, or pass the texts themselves.") from error


def _item_of_ids(ids: list[int], tokenizer: Any) -> Item:
    if tokenizer is None:
        return Item(tokens=tuple(map(str, ids)))
    special = set(tokenizer.all_special_ids)
    return Item(tokens=tuple(tokenizer.convert_ids_to_tokens(ids)), special=tuple(i in special for i in ids))
