"""`explain`: how much each input contributed to a score of the model's prediction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, overload

import torch
from torch import Tensor
from typing_extensions import Unpack

from ..engine.options import ExplainOptions
from ..engine.session import answer_request
from ..inputs.restoring import restores
from ..inputs.targets import Target
from ..memory.estimate import fit_to_limit
from ..memory.recompute import Count
from ..methods.registry import Method
from ..results.explanation import Explanation
from .requests import Model, QuestionAndContext, make_request


@overload
def explain(
    model: Model, data: str | tuple[str, str] | QuestionAndContext, **options: Unpack[ExplainOptions]
) -> Explanation: ...


@overload
def explain(
    model: Model, data: list[Any] | Iterator[Any] | Mapping[str, Any] | Tensor, **options: Unpack[ExplainOptions]
) -> list[Explanation]: ...


@overload
def explain(model: Model, data: Any, **options: Unpack[ExplainOptions]) -> Explanation | list[Explanation]: ...


@restores
def explain(
    model: Model,
    data: Any,
    *,
    tokenizer: Any = None,
    processor: Any = None,
    method: str | Method | None = None,
    target: Target = None,
    output: str | None = None,
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
    sinks: str | None = None,
    keep: str = "device",
    recompute: Count = None,
    memory_limit: int | str | None = None,
    plans: bool = True,
    inside: str | Sequence[str] | None = None,
) -> Explanation | list[Explanation]:
    """How much each input contributed to a score of the model's prediction.

    One text, image or sample gives one `Explanation`, everything else a list of them. Numbers of a result that closes
    add up: inputs, biases and constants sum to the score, see `Explanation.ledger`.

    Args:
        model: a module, a directory or hub name (`headwater.load`), or a pipeline of transformers.
        data: a text, a pair of texts (a tuple, or a dict with "question" and "context"), a list of those, a column of a
            table, an array or a generator of them, what a tokenizer returned, or bare tensors (the model's arguments).
            With `processor` an image: a Pillow image, a path, an array, or a list of those. For a model that says how
            its inputs are made (`headwater.inputs.protocol`), such as a Graphormer, a sample of its own kind, such as a
            graph, or a list of those.
        tokenizer: turns texts into the model's inputs; what a name or a pipeline brings along need not be given.
        processor: transformers' image processor, for images.
        method: a name of `headwater methods`, or a `Method`; None is the default for the kind of model
            (`headwater.defaults`).
        target: None for the predicted class (the predicted next token of a language model), a class by index or name,
            "a - b", a `Token` or a `Span`.
        output: "logit", "advantage" (the logit minus the mean of all logits, weighed by their probabilities at a
            temperature of 2), "probability" or "log-probability"; None is the advantage for language models, else the
            logit.
        score: any function of the model's output that gives one number per sample, in place of `target` and `output`.
        inputs: another place to explain: a module, its dotted name ("bert.encoder.layer.3"), a pattern ("*layer.3");
            for bare tensors, also one of them.
        at: "embeddings" (the embeddings module's output, as in the paper) or "words".
        batch_size: so many samples are computed at once.
        device: where it is computed; None is where the model lies.
        dtype: what it is computed in; None is the model's own, but float32 where that is half precision.
        seed: of methods that draw random numbers.
        truncate: cuts a text that is too long for the model.
        window: explains such a text in windows as long as the model allows.
        stride: windows overlap by so many tokens; None is a quarter.
        patch: the side, in pixels of the model's input, of the squares that an image's pixels are summed over; None is
            the model's own patches.
        sinks: "show" leaves the relevance of the first token there, "aside" moves it to the ledger's line "attention
            sink"; None does so for a language model explained by its default method.
        keep: where what the backward pass needs waits for it: on the "device", on the "host" (main memory, beside a
            graphics card) or on "disk". It changes no number.
        recompute: "blocks" computes that again block by block instead, a number does so for as many blocks. It changes
            no number.
        memory_limit: "24GiB", or bytes, the model's weights included. It picks the batch size, how much waits on the
            host and what is computed again, by an estimate from short pieces (`estimate`).
        plans: what earlier explanations of the model did is played again where that gives the same. False computes this
            one anew, and HEADWATER_PLANS=off all.
        inside: parts of the model whose relevance is noted on the way, as `e.inside`: "heads", "neurons", "layers", the
            "queries", "keys" and "values" of attention, and modules by their dotted names or patterns of them
            (docs/inside.md).

    Returns:
        An `Explanation`, or a list of them.

    Raises:
        UsageError: an option is wrong; `UnknownName` offers the nearest name.
        InputError: the data cannot be read; `EmptyInput` and `TooLong` are of this kind.
        TargetError: the score cannot be read from the model's output.
        ModelError: the model cannot be explained so; for instance `TrainingMode`, `NotApplicable`, `HiddenOperation`.
        MissingExtra: the method needs a package that is not installed.

    Example:
        >>> e = hw.explain("headwater/sentiment", "The plot is thin, but the cast is wonderful.")
        >>> e.target, round(e.score, 2), e.ledger.closed
        ('positive', 3.31, True)
    """
    ask = make_request(
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
        sinks=sinks,
        keep=keep,
        recompute=recompute,
        memory_limit=memory_limit,
        plans=plans,
        inside=inside,
    )
    return answer_request(ask if memory_limit is None else fit_to_limit(ask))
