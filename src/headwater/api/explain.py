"""Joins inputs, targets, rules and methods: `explain`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from .. import methods
from ..engine.attribution import Attributed, attribute
from ..engine.forward import Run
from ..engine.plan import Plan, Step, TextJob, in_windows
from ..engine.propagate import Outcome
from ..errors import HiddenOperation, InputError, ModelError, TrainingMode, UnknownName, UsageError
from ..inputs.batch import Batch
from ..inputs.custom import in_batches, takes_own
from ..inputs.images import channels_of, from_seen, in_groups, is_image, listed, made_ready
from ..inputs.places import find_places
from ..inputs.restoring import outside_inference, restores, restores_steps
from ..inputs.targets import Reader, Target
from ..inputs.tensors import from_tensors
from ..inputs.text import from_fields, with_decoder_start
from ..inputs.walking import named_modules, named_weights, walked_once
from ..memory.policy import PLENTY, Room
from ..memory.recompute import Count
from ..methods import Method
from ..results.explanation import Explanation, Provenance
from ..results.ledger import Ledger, Lines
from ..results.picture import Picture
from ..rules.sources import Sort
from ..version import __version__

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@restores
def explain(
    model: nn.Module,
    data: Any,
    *,
    tokenizer: Any = None,
    processor: Any = None,
    method: str | Method = "lrp",
    target: Target = None,
    output: str = "logit",
    score: Callable[[Any], Tensor] | None = None,
    inputs: Any = None,
    at: str = "embeddings",
    batch_size: int = 16,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    seed: int = 0,
    truncate: bool = False,
    window: bool = False,
    stride: int | None = None,
    patch: int | None = None,
    keep: str = "device",
    recompute: Count = None,
    memory_limit: int | str | None = None,
) -> Any:
    """How much each input contributed to a score of the model's prediction.

    `data` is a text, a pair of texts (a tuple), a list of those, what a tokenizer returned, or bare tensors (the
    model's arguments). For a model that says how its inputs are made (`inputs.protocol`), such as a Graphormer, it is
    a sample of the model's own kind, such as a graph, or a list of those. With a `processor` (transformers' image
    processor) it is an image: a Pillow image, a path, an array, or a list of those. One text, image or sample gives one
    `Explanation`, everything else a list of them.

    `target`: None for the predicted class (the predicted next token of a language model), a class by index or name,
    "a - b", `Token`, `Span`. `score=` takes any function of the model's output that gives one number a sample.
    `output`: "logit", "probability" or "log-probability".
    `at`: "embeddings" (the embeddings module's output, as in the paper) or "words". For bare tensors, `inputs=` names
    what is explained: one of the tensors, a module, or a module's dotted name.
    `dtype`: computed in the model's own, except that half precision is computed in float32 unless asked for here.
    `truncate` cuts a text that is too long for the model; `window` explains it in overlapping windows.
    An image is explained at its pixels; `patch` is the side, in pixels of the model's input, of the squares that they
    are summed over, by default the model's own patches.
    `keep`: where what the backward pass needs waits for it: on the "device", on the "host" (main memory, beside a
    graphics card) or on "disk". `recompute`: "blocks" computes it again block by block instead, a number does so for as
    many blocks. Neither changes numbers. `memory_limit` ("24GiB", or bytes; the model's weights count) picks the batch
    size, how much waits on the host and what is computed again, by an estimate from short pieces (`estimate`).
    """
    request = requested(
        model,
        data,
        tokenizer=tokenizer,
        processor=processor,
        method=method,
        target=target,
        output=output,
        score=score,
        inputs=inputs,
        at=at,
        batch_size=batch_size,
        device=device,
        dtype=dtype,
        seed=seed,
        truncate=truncate,
        window=window,
        stride=stride,
        patch=patch,
        keep=keep,
        recompute=recompute,
    )
    if memory_limit is not None:
        from .estimate import bytes_of, fitted

        request = fitted(request, bytes_of(memory_limit))
    return answer(request)


def requested(model: nn.Module, data: Any, *, keep: str = "device", recompute: Count = None, **asked: Any) -> Request:
    return Request(model, data, room=Room(keep, recompute), **asked)


@dataclass(frozen=True)
class Request:
    """What `explain` was asked, as one value; its docstring says what the fields mean."""

    model: nn.Module
    data: Any
    tokenizer: Any = None
    processor: Any = None
    method: str | Method = "lrp"
    target: Target = None
    output: str = "logit"
    score: Callable[[Any], Tensor] | None = None
    inputs: Any = None
    at: str = "embeddings"
    batch_size: int = 16
    device: str | torch.device | None = None
    dtype: str | torch.dtype | None = None
    seed: int = 0
    truncate: bool = False
    window: bool = False
    stride: int | None = None
    patch: int | None = None
    room: Room = PLENTY

    @property
    def of_images(self) -> bool:
        """Whether the data are images. Tensors by name are the model's arguments, whatever else is given."""
        return not isinstance(self.data, Mapping) and (self.processor is not None or is_image(self.data))


def answer(ask: Request, prepare: Callable[[Run], Run] = lambda run: run) -> Any:
    """Explanations for a request; `prepare` may add to each run what watches it."""
    method = methods.resolve(ask.method)
    with walked_once():
        work = Work.of(ask)
        return work.gather([work.explained(step, method, prepare) for step in work.plan.steps])


@dataclass(frozen=True)
class Work:
    """A request made ready for any method: the model as it is to be computed, and what is to be run."""

    ask: Request
    model: nn.Module
    plan: Plan
    provenance: Provenance

    @classmethod
    def of(cls, ask: Request) -> Work:
        model = prepared(ask.model, ask.device, ask.dtype)
        device, dtype = where_it_is(model)
        return cls(ask, model, planned(ask, model), describe(model, device, dtype, ask.seed))

    def explained(
        self, step: Step, method: Method, prepare: Callable[[Run], Run] = lambda run: run
    ) -> list[Explanation]:
        batch = ready(self.model, step.batch)
        run = prepare(Run(self.model, batch, step.read, self.ask.seed, nothing_token(self.ask.tokenizer)))
        with self.ask.room.opened(self.model) as kept:
            outcome = method.run(kept(run))
        parts = attribute(run.batch, outcome)
        lines = Totals.of(outcome)
        return [explanation(i, run.batch, outcome, lines, part, self, method) for i, part in enumerate(parts)]

    @restores_steps
    def each(
        self,
        batch: Batch,
        readers: Sequence[Any],
        method: Method,
        prepare: Callable[[Run], Run] = lambda run: run,
    ) -> Iterator[Explanation]:
        """Several scores of one sample's prediction, in one forward pass where the method can."""
        batch = ready(self.model, batch)
        run = prepare(Run(self.model, batch, readers[0], self.ask.seed, nothing_token(self.ask.tokenizer)))
        with self.ask.room.opened(self.model) as kept:
            run = kept(run)
            outcomes = (
                method.each(run, readers)
                if method.each is not None
                else (method.run(replace(run, read=reader)) for reader in readers)
            )
            for outcome in outcomes:
                (part,) = attribute(batch, outcome)
                yield explanation(0, batch, outcome, Totals.of(outcome), part, self, method)

    def gather(self, found: Sequence[list[Explanation]]) -> Any:
        """One text, image, or sample of the model's own kind, gives one explanation, everything else a list."""
        made, data = self.plan.gather(found), self.ask.data
        if self.ask.of_images:
            return made[0] if listed(data)[1] else made
        single = is_text(data) or (self.ask.inputs is None and takes_own(self.model, data))
        return made[0] if single and not isinstance(data, list) else made


def planned(ask: Request, model: nn.Module) -> Plan:
    """What a request asks to be run, batch by batch."""
    if ask.score is not None and (ask.target is not None or ask.output != "logit"):
        raise UsageError("score= says what is explained, so target= and output= have no place beside it.")
    reader = Reader(model, ask.tokenizer, ask.score if ask.score is not None else ask.target, ask.output)
    if ask.of_images:
        return images_planned(ask, model, reader)
    if ask.patch is not None:
        raise UsageError("patch= is about images: pass one, with processor=.")
    if ask.inputs is None and takes_own(model, ask.data):
        samples = ask.data if isinstance(ask.data, list) else [ask.data]
        batches = in_batches(model, samples, ask.batch_size, find_places(model, ask.at))
        return Plan([Step(batch, reader) for batch in batches], lambda found: [e for part in found for e in part])
    if is_text(ask.data):
        job = TextJob(model, ask.tokenizer, ask.batch_size, ask.truncate, find_places(model, ask.at))
        texts = ask.data if isinstance(ask.data, list) else [ask.data]
        if ask.window:
            return Plan.chained([in_windows(job, text, ask.stride, reader) for text in texts])
        return job.plan(texts, reader)
    return Plan([Step(bare(ask, model), reader)], lambda found: found[0])


def images_planned(ask: Request, model: nn.Module, reader: Reader) -> Plan:
    """Images of one shape go together; each is explained at its pixels."""
    if ask.inputs is not None or ask.at == "words":
        raise UsageError("an image is explained at its pixels, so inputs= and at= have no place beside it.")
    seen = made_ready(listed(ask.data)[0], ask.processor, channels_of(model))
    groups = in_groups(seen, ask.batch_size)

    def gather(found: Sequence[list[Explanation]]) -> list[Explanation]:
        made = dict(zip((i for group in groups for i in group), (e for part in found for e in part), strict=True))
        return [made[i] for i in range(len(seen))]

    return Plan([Step(from_seen(model, [seen[i] for i in g], ask.patch), reader) for g in groups], gather)


def bare(ask: Request, model: nn.Module) -> Batch:
    """What a tokenizer returned, or the model's arguments, as one batch."""
    place = in_copy(ask.model, model, ask.inputs)
    if isinstance(ask.data, Mapping) and "input_ids" in ask.data and place is None:
        return from_fields(dict(ask.data), ask.tokenizer, find_places(model, ask.at))
    usual = find_places(model, ask.at) if place is None and has_embeddings(model, ask.data) else None
    return from_tensors(model, ask.data, place, usual)


def in_copy(model: nn.Module, copied: nn.Module, inputs: Any) -> Any:
    """A module of the caller's model, found again where the model had to be copied."""
    if not isinstance(inputs, nn.Module) or copied is model:
        return inputs
    model = getattr(model, "_orig_mod", model)
    names = [name for name, module in named_modules(model) if module is inputs]
    if not names:
        raise InputError("inputs= is a module that is not part of the model.")
    return copied.get_submodule(names[0])


def nothing_token(tokenizer: Any) -> int | None:
    """The token that stands for a word taken away: unknown, else mask, else padding."""
    for name in ("unk_token_id", "mask_token_id", "pad_token_id"):
        found = getattr(tokenizer, name, None)
        if isinstance(found, int):
            return found
    return None


def is_text(data: Any) -> bool:
    """A string, a pair of strings, or a list of those. An empty list is an empty list of texts."""
    if isinstance(data, str):
        return True
    if isinstance(data, tuple):
        return len(data) > 0 and all(isinstance(part, str) for part in data)
    return isinstance(data, list) and all(is_text(part) or not isinstance(part, (Tensor, list)) for part in data)


def has_embeddings(model: nn.Module, data: Any) -> bool:
    """A transformers model given its usual arguments is explained at its embeddings, also for images."""
    return isinstance(data, Mapping) and hasattr(model, "get_input_embeddings") and "inputs_embeds" not in data


@dataclass(frozen=True)
class Totals:
    """The books of a batch, [samples] for every name."""

    biases: dict[str, list[float]]
    constants: dict[str, list[float]]
    cut_off: dict[str, list[float]]
    held: dict[str, list[float]]
    cut_size: list[float]

    @classmethod
    def of(cls, outcome: Outcome) -> Totals:
        biases, constants, cut_off, held = (
            {name: amounts.tolist() for name, amounts in outcome.books.totals(sort).items()}
            for sort in (Sort.BIAS, Sort.CONSTANT, Sort.CUT_OFF, Sort.HELD)
        )
        return cls(biases, {**constants, **outcome.constants}, cut_off, held, outcome.books.cut_size().tolist())


def explanation(
    index: int, batch: Batch, outcome: Outcome, lines: Totals, part: Attributed, work: Work, method: Method
) -> Explanation:
    item = batch.items[index]
    constants = {name: values[index] for name, values in lines.constants.items()}
    ledger = Ledger(
        score=float(outcome.score[index]),
        inputs=float(part.relevance.double().sum()),
        biases=Lines({name: values[index] for name, values in lines.biases.items()}),
        constants=Lines({**constants, **part.constants}),
        cut_off=Lines({**{name: values[index] for name, values in lines.cut_off.items()}, **part.untold}),
        cut_size=lines.cut_size[index] + sum(map(abs, part.untold.values())),
        held=Lines({name: values[index] for name, values in lines.held.items()}),
        readout=float(outcome.readout[index]),
        dtype=coarser(work.provenance.dtype, outcome.coarsest),
        spread=float(part.relevance.double().abs().sum()),
        magnitude=0.0 if outcome.reading.magnitudes is None else outcome.reading.magnitudes[index],
    )
    return Explanation(
        tokens=part.tokens,
        relevance=part.relevance,
        score=ledger.score,
        target=outcome.reading.targets[index],
        ledger=ledger,
        method=method.name,
        provenance=work.provenance,
        text=item.text,
        prediction=outcome.reading.predictions[index],
        output=work.ask.output,
        at=work.ask.at if batch.patches is None else "pixels",
        special=item.special,
        offsets=item.offsets,
        word_ids=item.word_ids,
        sequence_ids=item.sequence_ids,
        segments=part.segments,
        edges=part.links,
        image=None if batch.patches is None else picture(batch, index, part),
        rules_met=tuple(sorted(outcome.met.items())),
    )


def picture(batch: Batch, index: int, part: Attributed) -> Picture:
    """Where the relevance of one image lies."""
    frame = batch.items[index].frame
    assert batch.patches is not None
    assert frame is not None
    return Picture(batch.patches.cells, frame, part.pixels)


def coarser(dtype: str, inside: torch.dtype | None) -> str:
    """The precision that the books can have: the model's, or what it casts to inside if that is less."""
    if inside is None or torch.finfo(inside).eps <= torch.finfo(DTYPES[dtype]).eps:
        return dtype
    return str(inside).removeprefix("torch.")


def prepared(model: nn.Module, device: Any, dtype: Any) -> nn.Module:
    """The model as it is to be computed: the caller's own object, or a copy where device or dtype must differ."""
    if not isinstance(model, nn.Module):
        raise InputError(f"the model must be a torch.nn.Module, not {type(model).__name__}.")
    model = getattr(model, "_orig_mod", model)  # torch.compile keeps the module it compiled
    for name, module in named_modules(model):
        if module.training:
            raise TrainingMode(f"the module {name!r}" if name else "the model")
        if isinstance(module, torch.jit.ScriptModule):
            raise HiddenOperation(f"the module {name!r} is TorchScript, which hides its operations from the rules.")
    chosen = getattr(getattr(model, "config", None), "_attn_implementation", None)
    if isinstance(chosen, str) and ("flash" in chosen or "flex" in chosen):
        raise HiddenOperation(
            f"the model was loaded with attn_implementation={chosen!r}, which hides its attention from the rules. "
            "Call model.set_attn_implementation('sdpa') or load it so; where scores are capped or it has sinks, "
            "hw.fast_attention(model)."
        )
    have, (fixed, made_for_inference) = where_it_is(model), state_of(model)
    own = have[1] if fixed and dtype is None else wanted_dtype(dtype, have[1])
    want = (torch.device(device) if device is not None else have[0], own)
    if fixed and want != have:
        raise ModelError(
            f"the model cannot be copied to {want[0]}, {want[1]}, for {fixed}: load it as it is to be computed. It is "
            f"on {have[0]} in {have[1]}."
        )
    if not made_for_inference and (want == have or (want[1] is None and want[0] == have[0])):
        return model
    with outside_inference():
        copied = copy.deepcopy(model)
        return type(copied).to(copied, device=want[0], dtype=want[1])  # an instance's own `to` may lead to the original


def state_of(model: nn.Module) -> tuple[str, bool]:
    """Why weights cannot be copied into another type or place (empty if they can); whether inference mode made any."""
    fixed, inference = "", False
    for name, tensor in named_weights(model):
        inference |= tensor.is_inference()
        if tensor.is_meta:
            fixed = fixed or f"the weights {name!r} are offloaded"
        elif type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__:
            fixed = fixed or f"the weights {name!r} are packed ({type(tensor).__name__})"
    return fixed, inference


def wanted_dtype(dtype: str | torch.dtype | None, have: torch.dtype | None) -> torch.dtype | None:
    if dtype is None:
        return torch.float32 if have in (torch.float16, torch.bfloat16) else have
    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype not in DTYPES:
        raise UnknownName("dtype", dtype, DTYPES)
    return DTYPES[dtype]


def ready(model: nn.Module, batch: Batch) -> Batch:
    """A batch as the model takes it: on its device, in its dtype, a decoder's first token with it."""
    placed = replace(batch.to(*where_it_is(model)), starts=decoder_starts(model))
    return with_decoder_start(model, placed)


def decoder_starts(model: nn.Module) -> tuple[int, ...]:
    """The tokens that a decoder may start with when it is given the text itself."""
    config = getattr(model, "config", None)
    configs = (config, getattr(config, "decoder", None)) if getattr(config, "is_encoder_decoder", False) else ()
    found = [getattr(one, name, None) for one in configs for name in ("decoder_start_token_id", "bos_token_id")]
    return tuple(token for token in found if isinstance(token, int))


def where_it_is(model: nn.Module) -> tuple[torch.device, torch.dtype | None]:
    """Device and dtype of the first weights. Offloaded ones are nowhere; what holds them moves inputs by itself.

    Weights in float8 are kept, not computed in: of those the device alone counts.
    """
    away: torch.dtype | None = None
    device: torch.device | None = None
    for _, tensor in named_weights(model):
        if not tensor.is_floating_point():
            continue
        computes = tensor.dtype.itemsize > 1
        if computes and not tensor.is_meta:
            return tensor.device, tensor.dtype
        away = away or (tensor.dtype if computes else None)
        device = device or (None if tensor.is_meta else tensor.device)
    return device or torch.device("cpu"), away


def describe(model: nn.Module, device: torch.device, dtype: torch.dtype | None, seed: int) -> Provenance:
    import sys

    transformers = sys.modules.get("transformers")
    config = getattr(model, "config", None)
    name = getattr(config, "_name_or_path", "") or type(model).__name__
    return Provenance(
        headwater=__version__,
        torch=torch.__version__,
        transformers=getattr(transformers, "__version__", None),
        model=str(name),
        device=str(device),
        dtype=str(dtype or torch.get_default_dtype()).removeprefix("torch."),
        seed=seed,
    )
