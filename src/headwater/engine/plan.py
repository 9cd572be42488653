"""A request -> what is to be run for it: which batches, and what reads their scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from torch import Tensor, nn

from ..errors import UsageError
from ..inputs.batch import Batch
from ..inputs.custom import batch_samples, takes_own
from ..inputs.images import batch_images, channels_of, in_groups, list_images, prepare_images
from ..inputs.places import find_place, find_places
from ..inputs.targets import Reader
from ..inputs.tensors import from_tensors
from ..inputs.text import from_fields
from ..results.explanation import Explanation
from .kind import output_of
from .model import in_copy
from .options import Request
from .steps import Plan, Step
from .texts import TextJob, in_windows, read_last


def make_plan(ask: Request, model: nn.Module) -> Plan:
    """What a request asks to be run on the model as it is to be computed, batch by batch."""
    options, data = ask.options, ask.data
    if options.score is not None and (options.target is not None or options.output not in (None, "logit")):
        raise UsageError("score= says what is explained, so target= and output= have no place beside it.")
    if options.sinks == "aside" and not of_tokens(ask, model):
        raise UsageError("sinks='aside' is about the first token of a text: pass a text, or what a tokenizer returned.")
    target = options.score if options.score is not None else options.target
    reader = Reader(model, options.tokenizer, target, output_of(options, model))
    if ask.of_images:
        return plan_images(ask, model, reader)
    if options.patch is not None:
        raise UsageError("patch= is about images: pass one, with processor=.")
    if options.inputs is None and takes_own(model, data):
        samples = data if isinstance(data, list) else [data]
        batches = batch_samples(model, samples, options.batch_size, find_places(model, options.at))
        return Plan([Step(batch, reader) for batch in batches], flatten, not isinstance(data, list))
    if ask.of_texts:
        return plan_texts(ask, model, reader)
    return Plan([Step(read_last(model, make_batch(ask, model), reader), reader)], flatten)


def of_tokens(ask: Request, model: nn.Module) -> bool:
    """Whether what is explained are tokens: a text, or what a tokenizer returned."""
    if ask.of_images or takes_own(model, ask.data):
        return False
    return ask.of_texts or (of_ids(ask.data) and not names_argument(ask))


def of_ids(data: Any) -> bool:
    """Whether the data are what a tokenizer returned."""
    return isinstance(data, Mapping) and "input_ids" in data


def names_argument(ask: Request) -> bool:
    """Whether `inputs=` is one of the model's arguments, and no module."""
    inputs, data = ask.options.inputs, ask.data
    return isinstance(inputs, Tensor) or (isinstance(inputs, str) and isinstance(data, Mapping) and inputs in data)


def flatten(found: Sequence[list[Explanation]]) -> list[Explanation]:
    return list(chain.from_iterable(found))


def plan_texts(ask: Request, model: nn.Module, reader: Reader) -> Plan:
    """Texts of like length go together; with `window`, each is cut into overlapping windows."""
    options = ask.options
    place = find_place(model, in_copy(ask.model, model, options.inputs), options.at)
    job = TextJob(model, options.tokenizer, options.batch_size, options.truncate, place)
    texts = ask.data if isinstance(ask.data, list) else [ask.data]
    if options.window:
        plan = Plan.chain([in_windows(job, text, options.stride, reader) for text in texts])
    else:
        plan = job.plan(texts, reader)
    return replace(plan, single=not isinstance(ask.data, list))


def plan_images(ask: Request, model: nn.Module, reader: Reader) -> Plan:
    """Images of one shape go together; each is explained at its pixels."""
    options = ask.options
    if options.inputs is not None or options.at != "embeddings":
        raise UsageError("an image is explained at its pixels, so inputs= and at= have no place beside it.")
    images, single = list_images(ask.data)
    seen = prepare_images(images, options.processor, channels_of(model))
    groups = in_groups(seen, options.batch_size)

    def gather(found: Sequence[list[Explanation]]) -> list[Explanation]:
        made = dict(zip((i for group in groups for i in group), flatten(found), strict=True))
        return [made[i] for i in range(len(seen))]

    steps = [Step(batch_images(model, [seen[i] for i in group], options.patch), reader) for group in groups]
    return Plan(steps, gather, single)


def make_batch(ask: Request, model: nn.Module) -> Batch:
    """What a tokenizer returned, or the model's arguments, as one batch."""
    options, data = ask.options, ask.data
    place = in_copy(ask.model, model, options.inputs)
    if of_ids(data) and not names_argument(ask):
        return from_fields(dict(data), options.tokenizer, find_place(model, place, options.at))
    usual = find_places(model, options.at) if place is None and has_embeddings(model, data) else None
    return from_tensors(model, data, place, usual)


def has_embeddings(model: nn.Module, data: Any) -> bool:
    """A transformers model given its usual arguments is explained at its embeddings, also for images."""
    return isinstance(data, Mapping) and hasattr(model, "get_input_embeddings") and "inputs_embeds" not in data
