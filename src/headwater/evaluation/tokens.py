"""Texts as subjects of perturbation: the items are tokens, and a replacement token stands where one is missing.

Attention mask and positions stay what they are, so an input never gets shorter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..engine.forward import without_cache
from ..engine.model import where_it_is
from ..engine.options import SHOWN, Options, Request
from ..engine.session import answer_all
from ..errors import (
    HeadwaterError,
    InputError,
    ModelError,
    NotApplicable,
    NotFinite,
    TargetError,
    UsageError,
    check_least,
)
from ..inputs.batch import group_by_length
from ..inputs.places import word_modules
from ..inputs.readouts import logits_of
from ..inputs.text import (
    Encoded,
    Text,
    encode,
    filler,
    keeps_places,
    length_limit,
    named_parameters,
    pad_values,
    padding_id,
    padding_side,
    takes_mask,
    to_batch,
)
from ..results.explanation import Explanation
from .bounds import Bounds
from .perturbation import Perturbed
from .protocols import Protocol
from .ranking import Counts, Flags, Floats
from .stored import Stored

SOME = 1024  # texts that are tokenised at once to find the longest


@dataclass(frozen=True)
class Replacement:
    """The token that stands for a missing one. `kind` says how it was found: unk, mask, pad or id."""

    kind: str
    token: str
    id: int


def find_replacement(model: nn.Module, tokenizer: Any, wanted: str | int) -> Replacement:
    """The tokenizer's unknown token, else its mask, else its padding token; or the one that was asked for.

    What the model takes for padding is not chosen unasked: some models number their positions by it, or read their
    answer at the last token before it, so that taking out a token would move others.
    """
    if isinstance(wanted, int):
        return Replacement("id", str(tokenizer.convert_ids_to_tokens(wanted)), wanted)
    chain = ("unk", "mask", "pad") if wanted == "unk" else (wanted,)
    found = [(kind, getattr(tokenizer, f"{kind}_token_id", None)) for kind in chain]
    kind, number = next(((k, n) for k, n in found if n is not None), (wanted, None))
    if number is None:
        raise UsageError(f"the tokenizer has no {' or '.join(chain)} token; pass a token id as the replacement.")
    if wanted != "pad" and number == getattr(getattr(model, "config", None), "pad_token_id", None):
        raise UsageError(
            f"the replacement would be {tokenizer.convert_ids_to_tokens(number)!r}, which is the model's padding: "
            'some models skip it. Pass another token\'s id as the replacement, or "pad" if this model only masks it.'
        )
    return Replacement(kind, str(tokenizer.convert_ids_to_tokens(number)), int(number))


class TokenSource:
    """Texts of one classifier; `model` is in evaluation mode and where it is to be computed."""

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        texts: Sequence[Text],
        protocol: Protocol,
        batch_size: int = 32,
        stored: Stored | None = None,
    ) -> None:
        check_takes_ids(model)
        if tokenizer is None:
            raise InputError("texts need a tokenizer: evaluate(model, data, tokenizer=tokenizer).")
        check_least("batch_size", batch_size)
        if protocol.replacement == "mean":
            raise UsageError("replacement=mean is a colour, for the patches of images; tokens are replaced by a token.")
        if protocol.removal is not None:
            raise UsageError(f"removal={protocol.removal} is about the nodes of a graph; tokens are replaced.")
        self.model = model
        self.tokenizer = tokenizer
        self.texts = texts
        self.stored = stored
        self.bounds: Bounds = Bounds()
        self.batch_size = batch_size
        self.keeps_special: bool = protocol.special_tokens == "kept"
        self.replacement: Replacement = find_replacement(model, tokenizer, protocol.replacement)
        limits = [n for n in (length_limit(model, tokenizer), protocol.max_length) if n is not None]
        self.limit: int | None = min(limits) if limits else None
        self.pad: int | None = padding_id(model, tokenizer)
        self.side: str = padding_side(model, tokenizer)
        self.arguments: list[str] | None = named_parameters(model)

    def __len__(self) -> int:
        return len(self.texts)

    def part(self, samples: Sequence[int]) -> TokenPart:
        return TokenPart(self, samples, encode([self.texts[i] for i in samples], self.tokenizer, self.limit, True))

    def largest(self) -> int:
        """The longest. Some at a time are tokenised, so that memory does not grow with their number."""
        longest = (0, 0)
        for start in range(0, len(self), SOME):
            part = self.part(range(start, min(start + SOME, len(self))))
            longest = max(longest, *((one.length, -(start + i)) for i, one in enumerate(part.encoded)))
        return -longest[1]

    @property
    def mixes(self) -> bool:
        """Whether texts of different length can share a batch: with a padding token on the right, told by a mask."""
        return self.pad is not None and keeps_places(self.side) and takes_mask(self.model)

    def passes(self, name: str) -> bool:
        """Whether the model is given this field: a module of one's own need not take all that a tokenizer gives."""
        return self.arguments is None or name in self.arguments

    def describe(self) -> dict[str, Any]:
        return {"items": "tokens", "replacement": vars(self.replacement), "tokens_at_most": self.limit}

    def classes(self) -> int:
        """How many classes the model has, asked of its answer to the first text."""
        part = self.part([0])
        everything = np.ones((1, len(part.items(0))), dtype=np.bool_)
        return int(part.logits(part.perturb(0, everything)).shape[1])


class TokenPart:
    """Some texts, tokenised. `numbers` are their places in the source."""

    tried = 1

    def __init__(self, source: TokenSource, numbers: Sequence[int], encoded: Sequence[Encoded]) -> None:
        self.source = source
        self.numbers = numbers
        self.encoded = encoded
        self._ids = [np.array(e.fields["input_ids"], dtype=np.int64) for e in encoded]
        self._ranked = [rank_places(e, source.keeps_special) for e in encoded]
        self._rest = [rest_of(e) for e in encoded]

    def __len__(self) -> int:
        return len(self.encoded)

    @property
    def mixes(self) -> bool:
        return self.source.mixes

    def items(self, sample: int) -> Counts:
        return self._ranked[sample]

    def explain(self, samples: Sequence[int], method: str, target: int, seed: int) -> list[Explanation]:
        """In batches of like length; of texts longer than the mean, fewer go together than `batch_size`."""
        found = self.read_stored(samples, method, target)
        left = [i for i in samples if i not in found]
        lengths = [self.encoded[i].length for i in left]
        mean = self.source.batch_size * sum(lengths) / max(1, len(lengths))
        room = self.source.bounds.length_of(method, mean)
        for group in group_by_length(lengths, most=self.source.batch_size, budget=room, mixes=self.mixes):
            chosen = [left[g] for g in group]
            found.update(zip(chosen, self.explain_together(chosen, method, target, seed), strict=True))
        return [found[i] for i in samples]

    def read_stored(self, samples: Sequence[int], method: str, target: int) -> dict[int, Explanation]:
        """What a run has explained already."""
        if self.source.stored is None:
            return {}
        look = self.source.stored.explanation
        found = {i: look(self.numbers[i], method, target, self.encoded[i].item.tokens) for i in samples}
        return {i: e for i, e in found.items() if e is not None}

    def explain_together(self, samples: Sequence[int], method: str, target: int, seed: int) -> list[Explanation]:
        """In one batch, whatever its size."""
        made = answer_all(self.request(samples, method, target, seed))
        for sample, explanation in zip(samples, made, strict=True):
            check_relevance(explanation, self.encoded[sample].length, self.numbers[sample])
        return made

    def request(self, samples: Sequence[int], method: str, target: int | None, seed: int) -> Request:
        source = self.source
        options = Options(source.tokenizer, method=method, target=target, seed=seed, output="logit", sinks=SHOWN)
        return Request(source.model, self.fields(samples), options.with_memory(source.bounds.room_of(method)))

    def fields(self, samples: Sequence[int]) -> dict[str, Tensor]:
        """The model's arguments for the whole texts."""
        batch = to_batch([self.encoded[i] for i in samples], self.source.pad, self.source.side, [])
        given = batch.to(where_it_is(self.source.model)[0], None).kwargs
        return {name: value for name, value in given.items() if self.source.passes(name)}

    def perturb(self, sample: int, kept: Flags) -> list[Perturbed]:
        ids = self._ids[sample]
        present = np.ones((len(kept), len(ids)), dtype=np.bool_)
        present[:, self._ranked[sample]] = kept
        rows = np.where(present, ids, self.source.replacement.id)
        return [Perturbed((row.tobytes(), self._rest[sample]), len(ids), (sample, row)) for row in rows]

    def logits(self, inputs: Sequence[Perturbed]) -> Floats:
        """One batch, padded to its longest."""
        longest = max(i.cost for i in inputs)
        device = where_it_is(self.source.model)[0]
        names = filter(self.source.passes, self.encoded[0].fields)
        arguments = {name: torch.tensor(self._rows(inputs, name, longest)).to(device) for name in names}
        return classify(self.source.model, arguments)

    def _rows(self, inputs: Sequence[Perturbed], name: str, longest: int) -> np.ndarray[Any, Any]:
        source, rows = self.source, []
        for entry in inputs:
            sample, ids = entry.value
            values = ids.tolist() if name == "input_ids" else self.encoded[sample].fields[name]
            rows.append(pad_values(values, longest, filler(name, source.pad), source.side))
        return np.array(rows, dtype=np.int64)


def check_takes_ids(model: nn.Module) -> None:
    """A classifier of texts is called with what a tokenizer gives, by its names."""
    arguments = named_parameters(model)
    if arguments is not None and "input_ids" not in arguments:
        raise NotApplicable(
            f"{type(model).__name__}.forward({', '.join(arguments)}) takes no input_ids: evaluate measures classifiers "
            "of texts, which take what a tokenizer gives, by its names; of images (processor=); and Graphormers. A "
            "module of your own needs forward(input_ids, attention_mask) and get_input_embeddings()."
        )


def check_says_embeddings(model: nn.Module) -> None:
    """The words that are ranked are those of the embeddings that the model itself names."""
    try:
        word_modules(model)
    except ModelError:
        raise NotApplicable(
            f"{type(model).__name__} does not say which module embeds its words, and evaluate has no inputs=: give it "
            "a method get_input_embeddings() that returns this module."
        ) from None


def rank_places(encoded: Encoded, keeps_special: bool) -> Counts:
    special = np.array(encoded.item.special, dtype=np.bool_)
    return np.flatnonzero(~special if keeps_special else np.ones_like(special))


def rest_of(encoded: Encoded) -> bytes:
    """What an input consists of beside its ids: two texts of equal ids may differ in it (pairs)."""
    return b"".join(np.array(v, dtype=np.int64).tobytes() for n, v in encoded.fields.items() if n != "input_ids")


def check_relevance(explanation: Explanation, items: int, number: int, item: str = "token") -> None:
    relevance = explanation.relevance
    if relevance.dim() != 1 or len(relevance) != items:
        raise ModelError(
            f"{explanation.method!r} gave relevance of shape {tuple(relevance.shape)} for the {items} {item}s of "
            f"sample {number}; a ranking needs one number a {item}."
        )
    if not bool(relevance.isfinite().all()):
        raise NotFinite(f"{explanation.method!r} gave relevance that is not finite for sample {number}.")


REPLACED = "replaced tokens"
HINT = " If it reads its answer at a special token (</s>), keep those: protocol='ali2022(special_tokens=kept)'."


def classify(model: nn.Module, arguments: dict[str, Tensor], changed: str = REPLACED) -> Floats:
    """The class logits [samples, classes], in double precision; `changed` says what was done to the inputs."""
    try:
        with torch.inference_mode():
            logits = logits_of(model(**{**without_cache(model), **arguments}))
    except HeadwaterError:
        raise
    except (ValueError, IndexError, RuntimeError) as error:
        hint = HINT if changed == REPLACED else ""
        raise ModelError(f"the model failed on an input with {changed}: {error}.{hint}") from error
    if logits.dim() != 2 or logits.shape[1] < 2:
        raise TargetError(
            f"the model's answer has shape {tuple(logits.shape)}; needed is a classifier of at least 2 classes."
        )
    found: Floats = logits.double().cpu().numpy()
    if not np.isfinite(found).all():
        raise NotFinite(f"the model's logits are not finite for an input with {changed}.")
    return found
