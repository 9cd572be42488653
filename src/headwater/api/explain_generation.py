"""`explain_generation`: what every token that a language model generates came from, for one prompt or for many."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar, cast, overload

import torch
from typing_extensions import Unpack

from ..deprecations import OLD_ORDER
from ..errors import InputError, UsageError
from ..inputs.prompt import Turn, check_chat
from ..inputs.restoring import restores
from ..memory.recompute import Count
from ..methods import Method
from ..plurals import say_count
from ..results.generation import Generation
from .generate import GenerationSettings, explain_prompt
from .requests import Model, take_model
from .token_scores import Contrast

Function = TypeVar("Function", bound=Callable[..., Any])
Chat = Sequence[Turn]
Answer = str | Sequence[int]


class GenerationOptions(TypedDict, total=False):
    """All that `explain_generation` takes by name, but what it hands on to the model's `generate`."""

    tokenizer: Any
    max_new_tokens: int
    answer: Answer | Sequence[Answer] | None
    method: str | Method | None
    score: str | None
    contrast: Contrast
    sinks: str
    special: str
    at: str
    tokens_at_once: int | None
    keep: str
    recompute: Count
    memory_limit: int | str | None
    device: str | torch.device | None
    dtype: str | torch.dtype | None
    seed: int


def takes_old_order(function: Function) -> Function:
    """(model, tokenizer, prompt), the order of earlier versions, still works, and says what to write instead."""

    @functools.wraps(function)
    def call(model: Any, *given: Any, **options: Any) -> Any:
        if given and is_tokenizer(given[0]):
            OLD_ORDER.warn()
            return function(model, *given[1:], **{**options, "tokenizer": given[0]})
        return function(model, *given, **options)

    return cast(Function, call)


def is_tokenizer(value: Any) -> bool:
    return not isinstance(value, (str, bytes)) and hasattr(value, "convert_ids_to_tokens")


@overload
def explain_generation(  # type: ignore[overload-overlap]  # a text is a sequence of texts, for a type checker
    model: Model, prompt: str, **options: Unpack[GenerationOptions]
) -> Generation: ...


@overload
def explain_generation(
    model: Model, prompt: Sequence[str], **options: Unpack[GenerationOptions]
) -> list[Generation]: ...


@overload
def explain_generation(
    model: Model, prompt: None = None, *, chat: Sequence[Chat], **options: Unpack[GenerationOptions]
) -> list[Generation]: ...


@overload
def explain_generation(
    model: Model, prompt: None = None, *, chat: Chat, **options: Unpack[GenerationOptions]
) -> Generation: ...


@overload
def explain_generation(model: Model, prompt: Any = None, **options: Any) -> Any: ...


@takes_old_order
@restores
def explain_generation(
    model: Model,
    prompt: str | Iterable[str] | None = None,
    *,
    tokenizer: Any = None,
    chat: Chat | Sequence[Chat] | None = None,
    max_new_tokens: int = 20,
    answer: Answer | Sequence[Answer] | None = None,
    method: str | Method | None = None,
    score: str | None = None,
    contrast: Contrast = None,
    sinks: str = "aside",
    special: str = "show",
    at: str = "embeddings",
    tokens_at_once: int | None = None,
    keep: str = "device",
    recompute: Count = None,
    memory_limit: int | str | None = None,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    seed: int = 0,
    **generate: Any,
) -> Generation | list[Generation]:
    """How much each token of the prompt and of the output so far contributed to every token that a model generates.

    The model continues `prompt` or `chat` by its own `generate`, greedily, or `answer` is explained, whether the model
    would say it or not. Method, score and sink are by default what was found most faithful to a language model on
    prompts set apart for that question (docs/studies/language-default.md).

    Args:
        model: a module with its `tokenizer`, a directory or hub name, or a pipeline of transformers.
        prompt: a text, or a list of texts.
        tokenizer: as for `explain`.
        chat: in place of a prompt, a list of {"role", "content"}, through the tokenizer's template; or a list of such.
        max_new_tokens: the model writes at most so many.
        answer: a text, which follows the prompt as it is written, or token ids; for a list of prompts, a list with one
            answer for each.
        method: as for `explain`.
        score: "advantage", the logit minus the mean of all logits, weighed by their probabilities at a temperature of
            2: what sets the token apart from the others. "logit". "logprob", the log-probability, which sums to that of
            the whole answer (`Generation.whole()`). "contrast", the logit minus that of another token: "why Paris
            rather than London".
        contrast: names that token: a text for the first output token that differs from it, {number of the output token:
            text or id} for others; where none is named it is the runner-up, the likeliest other token.
        sinks: "show", or "aside" to move the relevance of the attention sink (the first token) to a line of each
            ledger.
        special: the same, of special tokens.
        at: as for `explain`.
        tokens_at_once: one forward pass serves at most so many output tokens, and reads no further than these need;
            None lets one serve all, and so does one backward pass if it is not too large for memory. Attention methods
            and captum's take passes of their own for each token.
        keep: where what the backward passes need waits for them, which grows with the text: on the "device", on the
            "host" (main memory) or on "disk", from where it comes for one token at a time.
        recompute: "blocks", or a number of blocks, computes it again instead, once for every output token.
        memory_limit: "24GiB", or bytes, the model's weights included. It picks `keep` and `recompute`, by an estimate
            from short pieces.
        device: as for `explain`.
        dtype: as for `explain`.
        seed: of methods that draw random numbers, and of the model's own `generate` where it samples.
        generate: further arguments are handed on to the model's `generate`: `do_sample=True`, `num_beams=4`, or a
            `generation_config`, which then says how tokens are chosen.

    Returns:
        A `Generation`; for a list of prompts or of chats, a list of them.

    Raises:
        UsageError: an option is wrong, or the token of `contrast` is not to be found.
        InputError: there is neither prompt nor chat, or both, or the text is too long.
        ModelError: the model does not generate text, or cannot be explained.

    Example:
        >>> g = hw.explain_generation("smollm2", "The capital of France is", max_new_tokens=1)
        >>> g.text, [one.text for one in g.top("Paris", 2)]
        (' Paris', [' is', ' France'])
    """
    if prompt is not None and chat is not None:
        raise UsageError("give either a prompt or chat=, not both.")
    ready, asked = take_model(model, {"tokenizer": tokenizer, "device": device})
    settings = GenerationSettings(
        max_new_tokens=max_new_tokens,
        method=method,
        score=score,
        contrast=contrast,
        sinks=sinks,
        special=special,
        at=at,
        tokens_at_once=tokens_at_once,
        keep=keep,
        recompute=recompute,
        memory_limit=memory_limit,
        device=device,
        dtype=dtype,
        seed=seed,
        generate=generate,
    )
    if is_single(prompt, chat):
        return explain_prompt(
            ready, asked["tokenizer"], cast(Any, prompt), cast(Any, chat), cast(Any, answer), settings
        )
    given: list[tuple[Any, Any]] = [(one, None) for one in prompt] if prompt is not None else []
    given += [(None, one) for one in chat or ()]
    return [
        explain_prompt(ready, asked["tokenizer"], one, turns, said, settings)
        for (one, turns), said in zip(given, answers_for(len(given), answer), strict=True)
    ]


def is_single(prompt: Any, chat: Any) -> bool:
    """Whether one prompt or one chat was given, not several. A chat is a list of turns, several a list of lists."""
    if prompt is not None:
        if not isinstance(prompt, (str, Iterable)) or isinstance(prompt, (bytes, Mapping)):
            raise InputError(f"a prompt is a text, or several texts in a list, not {type(prompt).__name__}.")
        return isinstance(prompt, str)
    if chat is not None:
        check_chat(chat)
    return chat is None or not len(chat) or isinstance(chat[0], Mapping)


def answers_for(count: int, answer: Any) -> list[Any]:
    """One answer for each of several prompts: the same for all, or a list with one for each."""
    each = answer is not None and not isinstance(answer, str) and any(not isinstance(one, int) for one in answer)
    if not each:
        return [answer] * count
    if len(answer) != count:
        raise UsageError(
            f"answer= has {say_count(len(answer), 'answer')} for {say_count(count, 'prompt')}; give one for each."
        )
    return list(answer)
