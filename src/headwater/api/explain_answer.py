"""`explain_answer`: what a model's whole answer rests on: documents, sentences, the question, its own words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast, overload

import torch

from ..engine.options import check_handling
from ..engine.session import Session, keep_run
from ..errors import InputError, UsageError
from ..inputs.documents import ANSWER, Documents, Material
from ..inputs.prompt import Prompt, Turn
from ..inputs.restoring import restores
from ..inputs.text import encoder_decoder, length_limit
from ..memory.recompute import Count
from ..methods import Method
from ..plurals import say_count
from .answers import AnswerExplainer
from .explain_generation import answers_for
from .generate import GenerationSettings, check_generates, fit_memory, one_score_at_once
from .output_text import Text, check_not_generated, continue_text, tokenise_answer
from .requests import Model, take_model
from .token_scores import Contrast, Scoring


@overload
def explain_answer(model: Model, question: str | None = None, **options: Any) -> AnswerExplainer: ...


@overload
def explain_answer(model: Model, question: Sequence[str], **options: Any) -> list[AnswerExplainer]: ...


@restores
def explain_answer(
    model: Model,
    question: str | Sequence[str] | None = None,
    *,
    tokenizer: Any = None,
    documents: Documents | Sequence[Documents] | None = None,
    answer: str | Sequence[int] | Sequence[str | Sequence[int] | None] | None = None,
    prompt: str | None = None,
    chat: Sequence[Turn] | None = None,
    max_new_tokens: int = 100,
    method: str | Method | None = None,
    score: str | None = None,
    contrast: Contrast = None,
    sinks: str = "aside",
    special: str = "show",
    at: str = "embeddings",
    keep: str = "device",
    recompute: Count = None,
    memory_limit: int | str | None = None,
    device: str | torch.device | None = None,
    dtype: str | torch.dtype | None = None,
    seed: int = 0,
    **generate: Any,
) -> AnswerExplainer | list[AnswerExplainer]:
    """A model's answer to a question about documents, ready to be asked what it rests on.

    The documents are put into a prompt, each under its name, the question after them: as the user's turn where the
    tokenizer has a chat template, else followed by "Answer:". The model writes the answer greedily, or `answer` is
    explained as if the model had written it. Nothing is explained until it is asked: `.sentence(2)`, `.span("in
    1889")`, `.whole()` give a `SpanExplanation`, in one backward pass each, however long the span.

    Args:
        model: as for `explain_generation`.
        question: a text; a list of questions gives a list of answers.
        tokenizer: as for `explain`.
        documents: texts, or {name: text}; for a list of questions those of all, or a list with the documents of each.
        answer: what is explained in place of the model's own words: a text or token ids; for a list of questions, a
            list.
        prompt: a prompt of your own, in which the documents and the question are found word for word.
        chat: the same, as a list of {"role", "content"}.
        max_new_tokens: the model writes at most so many.
        method: as for `explain`.
        score: as for `explain_generation`; the score of a span is the sum over its tokens.
        contrast: as for `explain_generation`.
        sinks: as for `explain_generation`.
        special: as for `explain_generation`.
        at: as for `explain`.
        keep: as for `explain_generation`.
        recompute: as for `explain_generation`.
        memory_limit: as for `explain_generation`.
        device: as for `explain`.
        dtype: as for `explain`.
        seed: as for `explain_generation`.
        generate: further arguments are handed on to the model's `generate`.

    Returns:
        An `AnswerExplainer`, or a list of them.

    Raises:
        UsageError: an option is wrong.
        InputError: there is no question, a document is not found in the prompt, or the prompt is too long.
        ModelError: the model does not generate text, or cannot be explained.

    Example:
        >>> documents = {"fruit": "Bananas are yellow.", "tower": "The tower was finished in 1889."}
        >>> question = "What colour are bananas?"
        >>> answer = hw.explain_answer("smollm2", question, documents=documents, answer="They are yellow.")
        >>> shares = answer.span("yellow").by_document()
        >>> max(shares, key=shares.get)
        'fruit'
    """
    ready, asked = take_model(model, {"tokenizer": tokenizer, "device": device})
    settings = GenerationSettings(
        max_new_tokens=max_new_tokens,
        method=method,
        score=score,
        contrast=contrast,
        sinks=sinks,
        special=special,
        at=at,
        tokens_at_once=None,
        keep=keep,
        recompute=recompute,
        memory_limit=memory_limit,
        device=device,
        dtype=dtype,
        seed=seed,
        generate=generate,
    )
    if question is None or isinstance(question, (str, bytes)) or not isinstance(question, Iterable):
        material = Material.of(question, cast(Any, documents), prompt, chat)
        return answer_one(ready, asked["tokenizer"], material, cast(Any, answer), settings)
    if prompt is not None or chat is not None:
        raise UsageError("several questions are put into prompts here: prompt= and chat= are for one.")
    asked_all = list(question)
    count = len(asked_all)
    each = zip(asked_all, documents_for(count, documents), answers_for(count, answer), strict=True)
    return [
        answer_one(ready, asked["tokenizer"], Material.of(one, given, None, None), said, settings)
        for one, given, said in each
    ]


def documents_for(count: int, documents: Any) -> list[Documents | None]:
    """The documents of each of several questions: the same for all, or a list with those of each."""
    documents = list(documents) if isinstance(documents, Iterator) else documents
    many = isinstance(documents, Iterable) and not isinstance(documents, Mapping)
    plain = not many or all(isinstance(one, str) for one in documents)
    if plain:
        return [documents] * count
    if len(documents) != count:
        raise UsageError(
            f"documents= has {say_count(len(documents), 'list')} for {say_count(count, 'question')}; give one for each."
        )
    return list(documents)


def answer_one(
    ready: Any,
    tokenizer: Any,
    material: Material,
    answer: str | Sequence[int] | None,
    asked: GenerationSettings,
) -> AnswerExplainer:
    """One question, or one prompt or chat."""
    check_generates(ready, tokenizer)
    check_handling(sinks=asked.sinks, special=asked.special)
    check_not_generated(answer, asked.generate)
    scoring = Scoring.of(asked.score, asked.contrast)
    options = asked.options_for(tokenizer, asked.method)
    session = Session.open(ready, options)
    said, parts = material.render(tokenizer)
    limit = length_limit(session.model, tokenizer)
    check_room(said, material, limit)
    if answer is None:
        most = most_tokens(session.model, said, asked.max_new_tokens, limit)
        ids = continue_text(session.model, tokenizer, said, most, asked.generate, asked.seed)
    else:
        ids = tokenise_answer(session.model, tokenizer, said, after_prompt(answer, said, material))
    text = Text.of(session.model, tokenizer, said, without_end(tokenizer, ids))
    text.check_length(limit)
    if asked.memory_limit is not None:
        options = fit_memory(ready, session, options, text, len(text.output), asked.memory_limit)
    change = keep_run if asked.memory_limit is None else one_score_at_once  # the estimate is that of one score
    aside = (asked.sinks == "aside", asked.special == "aside")
    return AnswerExplainer(session, options, scoring, material, text, parts, aside, change)


def check_room(said: Prompt, material: Material, limit: int | None) -> None:
    """A prompt that fills the model has no room for an answer. What to leave out is the user's to say."""
    if limit is None or len(said.ids) < limit:
        return
    longest = max(range(len(material.texts)), key=lambda n: len(material.texts[n]), default=None)
    which = "" if longest is None else f" The longest document is {material.names[longest]!r}."
    raise InputError(
        f"question and documents have {len(said.ids)} tokens, the model takes at most {limit}.{which} Give fewer or "
        "shorter documents."
    )


def most_tokens(model: Any, said: Prompt, asked: int, limit: int | None) -> int:
    """How many tokens may be written: what was asked for, or what the model has room for."""
    return min(asked, limit - len(said.ids)) if limit is not None and not encoder_decoder(model) else asked


def after_prompt(answer: str | Sequence[int], said: Prompt, material: Material) -> str | Sequence[int]:
    """A given answer as it follows the prompt: after our own "Answer:", with a space before it."""
    ours = not said.chat and material.prompt is None and said.text.endswith(ANSWER)
    return f" {answer}" if ours and isinstance(answer, str) and answer and not answer[0].isspace() else answer


def without_end(tokenizer: Any, ids: list[int]) -> list[int]:
    """The answer without the special tokens that end it: they say nothing."""
    ends = {*tokenizer.all_special_ids} - {getattr(tokenizer, "unk_token_id", None)}
    end = len(ids)
    while end and ids[end - 1] in ends:
        end -= 1
    if not end:
        raise InputError("the answer is empty: the model ended it at once. Give answer=, or ask otherwise.")
    return ids[:end]
