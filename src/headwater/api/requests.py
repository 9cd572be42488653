"""What a user hands over becomes a request: a model in any form, data in any form, options by name."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, Protocol, TypedDict

from torch import nn

from ..engine.options import Request, read_options
from ..errors import InputError
from ..inputs.given import read_data, read_samples
from ..inputs.images import is_image
from ..inputs.protocol import SupportsSamples
from ..models.sentence_parts import find_pair_model


class HasModel(Protocol):
    """A pipeline of transformers: a model and what makes its inputs."""

    @property
    def model(self) -> Any: ...

    @property
    def tokenizer(self) -> Any: ...


class QuestionAndContext(TypedDict):
    """A question, and the text that holds its answer: a pair."""

    question: str
    context: str


Model = nn.Module | str | os.PathLike[str] | HasModel


def make_request(model: Model, data: Any, **options: Any) -> Request:
    """A request with the module itself and data as they are run. An option that does not exist is refused first."""
    given = read_options(**options)
    ready, asked = take_model(model, options, data)
    if asked.keys() != options.keys() or any(asked[name] is not value for name, value in options.items()):
        given = read_options(**asked)
    read = read_samples if isinstance(ready, SupportsSamples) else read_data
    return Request(ready, read(data), given)


def take_model(model: Model, options: Mapping[str, Any], data: Any = None) -> tuple[nn.Module, dict[str, Any]]:
    """The module that is meant, and the options with its tokenizer or image processor where none was given.

    A directory or hub name is loaded (`headwater.load`); a pipeline of transformers holds a model.
    """
    held = find_pair_model(model)  # what a CrossEncoder holds
    if held is not model and isinstance(held, nn.Module):
        own = {"tokenizer": getattr(model, "tokenizer", None)} if options.get("tokenizer") is None else {}
        return held, {**options, **own}
    if isinstance(model, nn.Module):
        return model, dict(options)
    if isinstance(model, (str, os.PathLike)):
        found, readers = load_by_name(model, options, is_image(data) or options.get("processor") is not None)
    elif is_pipeline(model):
        found, readers = open_pipeline(model)
    elif isinstance(model, tuple) and len(model) == 2 and isinstance(model[0], nn.Module):
        raise InputError("the model is a pair, as hw.load gives it: write model, tokenizer = hw.load(…).")
    else:
        raise InputError(
            f"the model must be a torch.nn.Module, a directory or hub name, or a pipeline of transformers, not "
            f"{type(model).__name__}."
        )
    own = {name: reader for name, reader in readers.items() if options.get(name) is None}
    return found, {**options, **own}


def load_by_name(
    name: str | os.PathLike[str], options: Mapping[str, Any], of_images: bool
) -> tuple[nn.Module, dict[str, Any]]:
    from ..models.loading import load, load_image_model

    device = options.get("device")
    if of_images:
        model, processor = load_image_model(name, device=device)
        return model, {"processor": processor}
    model, tokenizer = load(name, device=device)
    return model, {"tokenizer": tokenizer}


def is_pipeline(model: Any) -> bool:
    base = sys.modules.get("transformers.pipelines.base")  # whoever has a pipeline has loaded this
    return base is not None and isinstance(model, base.Pipeline)


def open_pipeline(pipeline: Any) -> tuple[nn.Module, dict[str, Any]]:
    """The model of a pipeline with its tokenizer; of one for images, with its image processor."""
    model: nn.Module = pipeline.model
    processor = getattr(pipeline, "image_processor", None)
    if processor is not None and pipeline.tokenizer is None:
        return model, {"processor": processor}
    return model, {"tokenizer": pipeline.tokenizer}
