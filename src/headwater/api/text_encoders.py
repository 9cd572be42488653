"""A model that gives a vector per text, in any form: what is run, and how its vector is read."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..engine.model import in_copy, place_batch
from ..engine.options import Options, read_options
from ..engine.session import Session
from ..engine.texts import TextJob
from ..errors import ModelError, UsageError
from ..inputs.batch import Batch
from ..inputs.places import find_place
from ..inputs.pooling import Pooling, VectorRecipe, check_pooling, states_of, take_tensor
from ..inputs.text import Encoded, encode
from ..models.pretrained import locate
from ..models.sentence_parts import SentenceParts, is_sentence_model, read_sentence_files, take_apart
from .requests import take_model


@dataclass(frozen=True)
class VectorOptions:
    """What is asked of the vectors of two texts. A pair has one for each text."""

    tokenizer: Any = None
    pooling: Pooling | None = None
    normalise: bool = True
    dimensions: int | None = None
    prompts: str | tuple[str | None, str | None] | None = None
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
class TextEncoder:
    """A model made ready, with how texts are given to it and how the vector is read off its output."""

    session: Session
    options: Options
    recipe: VectorRecipe
    job: TextJob
    prompt: str = ""
    lower: bool = False

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """Tokenised, each with the prompt in front. A text that is empty or too long is refused."""
        for number, text in enumerate(texts):
            if isinstance(text, str) and not text.strip():
                encode([text], self.job.tokenizer, None, False)  # the prompt would hide that there is nothing
            elif not isinstance(text, str):
                raise UsageError(f"text {number} must be a string, not {type(text).__name__}.")
        return encode([self.write(text) for text in texts], self.job.tokenizer, self.job.limit, self.job.truncate)

    def write(self, text: str) -> str:
        """The text as the tokenizer gets it."""
        whole = self.prompt + text
        return whole.strip().lower() if self.lower else whole

    def run(self, batch: Batch) -> tuple[Any, Batch]:
        """The model's output, plainly computed."""
        placed = place_batch(self.session.model, batch)
        with torch.no_grad():
            return self.session.model(*placed.args, **placed.kwargs), placed

    def embed(self, texts: Sequence[str]) -> Tensor:
        """[texts, dimensions]: the vectors as the similarity takes them, in batches of like length."""
        encoded = self.encode(texts)
        found: list[Tensor | None] = [None] * len(texts)
        for group, batch in self.job.batches(encoded):
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

    @property
    def prompt_tokens(self) -> int:
        """How many first tokens the prompt takes, the special ones before it included."""
        return count_prompt_tokens(self.job.tokenizer, self.prompt)


def count_prompt_tokens(tokenizer: Any, prompt: str) -> int:
    """Those of the prompt alone, without the special token that ends a text."""
    ids = tokenizer(prompt)["input_ids"] if prompt else []
    return len(ids) - bool(ids and ids[-1] in tokenizer.all_special_ids)


def open_encoders(model: Any, options: VectorOptions) -> tuple[TextEncoder, TextEncoder]:
    """The encoders of the two texts: one model, or two of them as a pair."""
    if not isinstance(model, tuple):
        return open_pair((model, model), options)
    if len(model) != 2 or any(hasattr(part, "convert_ids_to_tokens") for part in model):
        raise UsageError("a pair is two models, one for each text. Of what hw.load gives, the second is tokenizer=.")
    return open_pair(model, options)


def open_pair(models: tuple[Any, Any], options: VectorOptions) -> tuple[TextEncoder, TextEncoder]:
    check_pooling(options.pooling)
    parts = read_parts(models[0], options.for_side(0))
    others = parts if models[0] is models[1] else read_parts(models[1], options.for_side(1))
    first = open_encoder(parts, options.for_side(0))
    same = parts is others and options.for_side(0) == options.for_side(1)
    return first, first if same else open_encoder(others, options.for_side(1))


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
            f"{place} does not say how its states become one vector (no modules.json): pass pooling='mean' or 'cls'."
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
        recipe = replace(recipe, pooling=None)
    asked = read_options(
        tokenizer=tokenizer,
        method=options.method,
        device=options.device,
        dtype=options.dtype,
        seed=options.seed,
        sinks="show",
    )
    session = Session.open(model, asked)
    place = find_place(session.model, in_copy(model, session.model, options.inputs), "embeddings")
    job = TextJob(session.model, tokenizer, options.batch_size, options.truncate, place)
    job.limit = min((limit for limit in (job.limit, parts.limit) if limit is not None), default=None)
    return TextEncoder(session, asked, recipe, job, prompt, parts.lower)


def find_prompt(parts: SentenceParts, asked: Any) -> str:
    """The prompt in front: a name among the model's, or the text itself; by default the model's default."""
    name = parts.prompt_name if asked is None else asked
    return parts.prompts.get(name, "" if asked is None else str(name)) if name is not None else ""


class TailEncoder(nn.Module):
    """A transformer, its pooling, and the modules that follow: their vector is the output."""

    def __init__(self, body: nn.Module, recipe: VectorRecipe, tail: Sequence[nn.Module]) -> None:
        super().__init__()
        self.body, self.recipe, self.tail = body, recipe, nn.ModuleList(tail)
        self.config = getattr(body, "config", None)
        self.eval()

    def get_input_embeddings(self) -> nn.Module:
        return self.body.get_input_embeddings()  # type: ignore[operator, no-any-return]

    def forward(self, **fields: Any) -> Tensor:
        vector = self.recipe.pool(self.body(**fields), fields["attention_mask"].bool())
        for part in self.tail:
            vector = apply_tail(part, vector)
        return vector


def apply_tail(part: nn.Module, vector: Tensor) -> Tensor:
    """A Dense is a linear layer and its activation, a LayerNorm holds torch's."""
    if hasattr(part, "linear"):
        return part.activation_function(part.linear(vector))  # type: ignore[operator, no-any-return]
    return part.norm(vector)  # type: ignore[operator, no-any-return]


class FunctionModule(nn.Module):
    """A function of what the tokenizer gives, as a module. The model is the one whose method it is."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        owner = getattr(function, "__self__", None)
        self.function, self.inner = function, owner if isinstance(owner, nn.Module) else None
        if self.inner is None:
            raise ModelError(
                "a function gives vectors, but not which model it calls: pass a method of the model, such as "
                "model.get_text_features, or an nn.Module around it."
            )
        self.config = getattr(self.inner, "config", None)
        self.train(self.inner.training)

    def get_input_embeddings(self) -> nn.Module:
        return self.inner.get_input_embeddings()  # type: ignore[operator, union-attr, no-any-return]

    def forward(self, **fields: Any) -> Any:
        takes = inspect.signature(self.function).parameters
        everything = any(one.kind is one.VAR_KEYWORD for one in takes.values())
        out = self.function(**{name: value for name, value in fields.items() if everything or name in takes})
        return out if isinstance(out, Tensor) else take_tensor(out, "pooler_output")
