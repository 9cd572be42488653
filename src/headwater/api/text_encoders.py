"""A model that gives a vector per text, in any form: what is run, and how its vector is read."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..engine.model import in_copy, place_batch
from ..engine.options import Options, read_options
from ..engine.session import Session
from ..engine.texts import TextJob
from ..errors import TooLong, UsageError
from ..inputs.batch import Batch, Item
from ..inputs.images import batch_images, channels_of, in_groups, prepare_images
from ..inputs.places import find_place
from ..inputs.pooling import MAXSIM, Pooling, VectorRecipe, states_of
from ..inputs.protocol import sample_name
from ..inputs.text import Encoded, encode
from ..models.pretrained import locate
from ..models.sentence_parts import SentenceParts, is_sentence_model, read_sentence_files, take_apart
from ..results.similarity import ComparedText
from .encoder_modules import FunctionModule, TailEncoder
from .requests import take_model


@dataclass(frozen=True)
class VectorOptions:
    """What is asked of the vectors of two texts. A pair has one for each text."""

    tokenizer: Any = None
    processor: Any = None
    pooling: Pooling | None = None
    normalise: bool = True
    dimensions: int | None = None
    prompts: str | tuple[str | None, str | None] | None = None
    target: Any = None
    method: Any = None
    truncate: bool = False
    inputs: Any = None
    device: Any = None
    dtype: Any = None
    seed: int = 0
    batch_size: int = 32

    def for_side(self, side: int) -> VectorOptions:
        """Those of one of the two texts."""
        pair = {name: getattr(self, name) for name in ("tokenizer", "prompts", "inputs")}
        own = {name: value[side] for name, value in pair.items() if isinstance(value, tuple)}
        return replace(self, **own)


@dataclass(frozen=True)
class Encoder(ABC):
    """A model made ready, with how the vector of a sample is read off its output."""

    session: Session
    options: Options
    recipe: VectorRecipe

    def run(self, batch: Batch) -> tuple[Any, Batch]:
        """The model's output, plainly computed."""
        placed = place_batch(self.session.model, batch)
        with torch.no_grad():
            return self.session.model(*placed.args, **placed.kwargs), placed

    def embed(self, samples: Sequence[Any]) -> Tensor:
        """[samples, dimensions]: the vectors as the similarity takes them, in batches of like length."""
        found: list[Tensor | None] = [None] * len(samples)
        for group, batch in self.make_batches(samples):
            out, placed = self.run(batch)
            for index, vector in zip(group, self.recipe(out, placed).double().cpu(), strict=True):
                found[index] = vector
        return torch.stack([one for one in found if one is not None])

    def read_states(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """The vector of one text, and [tokens, dimensions]: the states that it was pooled from, where there are any."""
        out, placed = self.run(batch)
        vector, states = self.recipe(out, placed)[0].double().cpu(), states_of(out)
        if states is None or placed.real is None or states.shape[1] != placed.real.shape[1]:
            return vector, None
        return vector, states[0][placed.real[0]].double().cpu()[:, : len(vector)]

    @abstractmethod
    def make_batches(self, samples: Sequence[Any]) -> list[tuple[list[int], Batch]]:
        """Numbers of samples that are run together, and their batch."""

    def make_batch(self, sample: Any) -> Batch:
        """One sample alone."""
        return self.make_batches([sample])[0][1]

    @abstractmethod
    def describe(self, item: Item, batch: Batch | None) -> ComparedText:
        """A sample as results have it. `batch` has the patches of an image."""


@dataclass(frozen=True)
class TextEncoder(Encoder):
    """An encoder of texts, with how they are given to it."""

    job: TextJob
    prompt: str = ""
    lower: bool = False

    def make_batches(self, samples: Sequence[Any]) -> list[tuple[list[int], Batch]]:
        return self.job.batches(self.encode(samples))

    def describe(self, item: Item, batch: Batch | None) -> ComparedText:
        assert isinstance(item.text, str)
        return ComparedText(item.text, item.tokens, item.special, item.offsets, item.word_ids, len(self.prompt))

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """Tokenised, each with the prompt in front. A text that is empty or too long is refused."""
        for number, text in enumerate(texts):
            if isinstance(text, str) and not text.strip():
                encode([text], self.job.tokenizer, None, False)  # the prompt would hide that there is nothing
            elif not isinstance(text, str):
                raise UsageError(f"{sample_name('text', number, len(texts))} must be a string, not {text!r:.60}.")
        with without_windows():
            return encode([self.write(text) for text in texts], self.job.tokenizer, self.job.limit, self.job.truncate)

    def write(self, text: str) -> str:
        """The text as the tokenizer gets it."""
        whole = self.prompt + text
        return whole.strip().lower() if self.lower else whole


@contextmanager
def without_windows() -> Iterator[None]:
    """A text that is too long can only be cut here."""
    try:
        yield
    except TooLong as error:
        raise TooLong(error.length, error.limit, error.which, windows=False) from None


@dataclass(frozen=True)
class ImageEncoder(Encoder):
    """An encoder of images, which are explained at their pixels and shown by patches."""

    processor: Any
    batch_size: int

    def make_batches(self, samples: Sequence[Any]) -> list[tuple[list[int], Batch]]:
        model = self.session.model
        seen = prepare_images(samples, self.processor, channels_of(model))
        groups = in_groups(seen, self.batch_size)
        return [(group, batch_images(model, [seen[i] for i in group])) for group in groups]

    def describe(self, item: Item, batch: Batch | None) -> ComparedText:
        patches = batch.patches if batch is not None else None
        assert patches is not None
        name = (item.frame.source if item.frame is not None else None) or "an image"
        return ComparedText(
            name, item.tokens, (False,) * len(item.tokens), grid=(patches.cells.rows, patches.cells.columns)
        )


def count_prompt_tokens(tokenizer: Any, prompt: str) -> int:
    """Those of the prompt alone, without the special token that ends a text."""
    ids = tokenizer(prompt)["input_ids"] if prompt else []
    return len(ids) - bool(ids and ids[-1] in tokenizer.all_special_ids)


def open_encoders(
    model: Any, options: VectorOptions, images: tuple[bool, bool] = (False, False)
) -> tuple[Encoder, Encoder]:
    """The encoders of the two samples: one model, or two of them as a pair. `images`: which samples are images."""
    models = model if isinstance(model, tuple) else (model, model)
    if len(models) != 2 or any(hasattr(part, "convert_ids_to_tokens") for part in models):
        raise UsageError("a pair is two models, one for each text. Of what hw.load gives, the second is tokenizer=.")
    towers = [find_tower(one, is_image) for one, is_image in zip(models, images, strict=True)]
    first = open_side(towers[0], options.for_side(0), images[0])
    same = models[0] is models[1] and images[0] == images[1] and options.for_side(0) == options.for_side(1)
    return first, first if same else open_side(towers[1], options.for_side(1), images[1])


def find_tower(model: Any, of_images: bool) -> Any:
    """Of a model with a tower for texts and one for images, the method that gives the vector of this kind."""
    both = isinstance(model, nn.Module) and hasattr(model, "get_image_features") and hasattr(model, "get_text_features")
    return (model.get_image_features if of_images else model.get_text_features) if both else model


def open_side(tower: Any, options: VectorOptions, of_images: bool) -> Encoder:
    return open_image_encoder(tower, options) if of_images else open_encoder(read_parts(tower, options), options)


def open_image_encoder(tower: Any, options: VectorOptions) -> ImageEncoder:
    if options.inputs is not None:
        raise UsageError("an image is explained at its pixels, so inputs= has no place beside it.")
    if options.pooling == MAXSIM:
        raise UsageError("pooling='maxsim' compares tokens of two texts: an image has one vector here.")
    model = tower if isinstance(tower, nn.Module) else FunctionModule(tower)
    session, asked = open_session(model, options)
    recipe = VectorRecipe(options.pooling, dimensions=options.dimensions, normalise=options.normalise)
    return ImageEncoder(session, asked, recipe, options.processor, options.batch_size)


def read_parts(model: Any, options: VectorOptions) -> SentenceParts:
    """A model in any form as its parts. Where nothing says how it pools, the mean is taken of states."""
    if is_sentence_model(model):
        return take_apart(model)
    if isinstance(model, (str, os.PathLike)):
        return read_sentence_parts(model, options)
    if callable(model) and not isinstance(model, nn.Module) and not hasattr(model, "model"):
        return SentenceParts(FunctionModule(model), pooling=())
    found, readers = take_model(model, {"tokenizer": options.tokenizer})
    return SentenceParts(found, readers["tokenizer"], pooling=())


def read_sentence_parts(name: str | os.PathLike[str], options: VectorOptions) -> SentenceParts:
    """A directory or hub name: what its files say of pooling, prompts and lengths counts."""
    place = locate(name) if isinstance(name, str) else os.fspath(name)
    parts = read_sentence_files(place)
    if parts is None and options.pooling is None:
        raise UsageError(
            f"{place} does not say how its states become one vector (no modules.json): pass pooling='mean' or "
            "pooling='cls'."
        )
    model, readers = take_model(name, {"tokenizer": options.tokenizer, "device": options.device})
    return replace(parts or SentenceParts(None, pooling=()), model=model, tokenizer=readers["tokenizer"])


def open_encoder(parts: SentenceParts, options: VectorOptions) -> TextEncoder:
    tokenizer = options.tokenizer if options.tokenizer is not None else parts.tokenizer
    prompt = find_prompt(parts, options.prompts)
    skip = 0 if parts.pools_prompt or not prompt else count_prompt_tokens(tokenizer, prompt)
    dimensions = options.dimensions if options.dimensions is not None else parts.dimensions
    recipe = VectorRecipe(
        options.pooling if options.pooling is not None else parts.pooling or None,
        skip,
        parts.unit,
        dimensions,
        options.normalise,
    )
    assert parts.model is not None
    model = parts.model
    if parts.tail:
        model = TailEncoder(model, replace(recipe, normalise=False), parts.tail)
        recipe = replace(recipe, pooling=MAXSIM if recipe.pooling in (MAXSIM, (MAXSIM,)) else None)
    session, asked = open_session(model, replace(options, tokenizer=tokenizer))
    place = find_place(session.model, in_copy(model, session.model, options.inputs), "embeddings")
    job = TextJob(session.model, tokenizer, options.batch_size, options.truncate, place)
    job.limit = min((limit for limit in (job.limit, parts.limit) if limit is not None), default=None)
    return TextEncoder(session, asked, recipe, job, prompt, parts.lower)


def open_session(model: nn.Module, options: VectorOptions) -> tuple[Session, Options]:
    asked = read_options(
        tokenizer=options.tokenizer,
        method=options.method,
        device=options.device,
        dtype=options.dtype,
        seed=options.seed,
        sinks="show",
    )
    return Session.open(model, asked), asked


def find_prompt(parts: SentenceParts, asked: Any) -> str:
    """The prompt in front: a name among the model's, or the text itself; by default the model's default."""
    name = parts.prompt_name if asked is None else asked
    return parts.prompts.get(name, "" if asked is None else str(name)) if name is not None else ""
