"""One generated text explained. One forward pass and few backward passes serve all its tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from ..defaults import DEFAULT_OUTPUT
from ..engine.forward import Run
from ..engine.kind import choose_method
from ..engine.options import SHOWN, Options, Request, check_handling, read_options
from ..engine.session import Change, Session, keep_run
from ..engine.steps import Step
from ..errors import InputError, ModelError, check_integer
from ..inputs.places import find_places
from ..inputs.prompt import Turn, tokenise_prompt
from ..inputs.targets import Reader
from ..inputs.text import can_generate, length_limit
from ..memory.estimate import MemoryTrial, parse_bytes
from ..memory.recompute import Count
from ..methods import Method
from ..results.explanation import Explanation
from ..results.generation import Generation
from .output_text import Text, check_not_generated, check_prompt_length, continue_text, namer, tokenise_answer
from .token_scores import At, Contrast, Noted, Scoring


@dataclass(frozen=True)
class GenerationSettings:
    """What is asked of every prompt alike; `explain_generation` says what each means."""

    max_new_tokens: int
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
    generate: Mapping[str, Any]

    def options_for(self, tokenizer: Any, method: str | Method | None) -> Options:
        """As every explanation takes them. First and special tokens are set aside in the whole, not here."""
        return read_options(
            tokenizer=tokenizer,
            method=method,
            sinks=SHOWN,
            output=Scoring.of(self.score, self.contrast).output,
            at=self.at,
            seed=self.seed,
            device=self.device,
            dtype=self.dtype,
            keep=self.keep,
            recompute=self.recompute,
        )


def explain_prompt(
    model: nn.Module,
    tokenizer: Any,
    prompt: str | None,
    chat: Sequence[Turn] | None,
    answer: str | Sequence[int] | None,
    asked: GenerationSettings,
) -> Generation:
    """One prompt or one chat."""
    scoring = Scoring.of(asked.score, asked.contrast)
    check_handling(sinks=asked.sinks, special=asked.special)
    if asked.tokens_at_once is not None:
        check_integer("tokens_at_once", asked.tokens_at_once, 1)
    check_not_generated(answer, asked.generate)
    check_generates(model, tokenizer)
    options = asked.options_for(tokenizer, choose_method(asked.method, model))
    session = Session.open(model, options)
    ready = session.model
    said = tokenise_prompt(tokenizer, prompt, chat)
    limit = length_limit(ready, tokenizer)
    check_prompt_length(ready, said, limit)
    ids = (
        tokenise_answer(ready, tokenizer, said, answer)
        if answer is not None
        else continue_text(ready, tokenizer, said, asked.max_new_tokens, asked.generate, asked.seed)
    )
    text = Text.of(ready, tokenizer, said, ids)
    text.check_length(limit)
    if asked.memory_limit is not None:
        size = asked.tokens_at_once or len(ids)
        options = fit_memory(model, session, options, text, size, asked.memory_limit)
    change = keep_run if asked.memory_limit is None else one_score_at_once  # the estimate is that of one score
    found = explain_tokens(session, options, text, scoring, asked.tokens_at_once or len(ids), change)
    made = join_tokens(found, text, scoring)
    return made.set_aside(sinks=asked.sinks == "aside", special=asked.special == "aside")


def fit_memory(
    model: nn.Module, session: Session, options: Options, text: Text, size: int, limit: int | str
) -> Options:
    """The options with which `size` output tokens of one forward pass stay within a limit of memory."""
    batch = text.batch(len(text.output), size, find_places(session.model, options.at))
    step = Step(batch, Reader(session.model, text.tokenizer, None, options.output or DEFAULT_OUTPUT))
    method = choose_method(options.method, session.model)
    fits = MemoryTrial(Request(model, None, options), session, method, step).fit(parse_bytes(limit))
    return options.with_memory(fits.room)


def explain_tokens(
    session: Session, options: Options, text: Text, scoring: Scoring, size: int, change: Change = keep_run
) -> Iterator[tuple[Explanation, Noted]]:
    """An explanation of every output token, and what the model gave it and others; `size` tokens a forward pass."""
    others, places = scoring.others(text), find_places(session.model, options.at)
    method = choose_method(options.method, session.model)
    size = size if method.each is not None else 1

    for first in range(0, len(text.output), size):
        numbers = range(first, min(first + size, len(text.output)))
        batch = text.batch(numbers[-1] + 1, len(numbers), places)
        readers = [
            Noted(At(numbers[-1] + 1 - n, text.output[n], others.get(n), scoring.score, namer(text.tokenizer)))
            for n in numbers
        ]
        found = session.explain_scores(batch, readers, method, options, change)
        yield from zip(found, readers, strict=True)


def one_score_at_once(run: Run) -> Run:
    return replace(run, scores_at_once=1)


def join_tokens(found: Iterator[tuple[Explanation, Noted]], text: Text, scoring: Scoring) -> Generation:
    """Rows of different lengths as one matrix."""
    made = list(found)
    first = made[0][0]
    count = text.prompt + len(text.output)
    relevance = first.relevance.new_zeros(len(made), count)
    for row, (explanation, _) in zip(relevance, made, strict=True):
        row[: len(explanation.relevance)] = explanation.relevance
    ids = text.ids
    special = set(text.tokenizer.all_special_ids)
    source = ("source",) * len(text.said.ids) if text.start and not text.said.chat else text.said.roles
    return Generation(
        tokens=tuple(text.tokenizer.convert_ids_to_tokens(ids)),
        pieces=tuple(text.pieces()),
        prompt=text.prompt,
        relevance=relevance,
        ledgers=tuple(explanation.ledger for explanation, _ in made),
        targets=tuple(explanation.target for explanation, _ in made),
        probabilities=tuple(noted.probability for _, noted in made),
        alternatives=tuple(noted.likeliest for _, noted in made),
        score=scoring.score,
        method=first.method,
        provenance=first.provenance,
        roles=(*source, *("start",) * len(text.start), *("output",) * len(text.output)),
        special=tuple(token in special for token in ids),
        aside=(False,) * count,
        at=first.at,
        rules_met=first.rules_met,
    )


def check_generates(model: Any, tokenizer: Any) -> None:
    if tokenizer is None:
        raise InputError("generated text needs a tokenizer: explain_generation(model, prompt, tokenizer=tokenizer).")
    if not isinstance(model, nn.Module):
        raise InputError(f"the model must be a torch.nn.Module, not {type(model).__name__}.")
    if not can_generate(model):
        raise ModelError(f"{type(model).__name__} does not generate text. Load it for the task text-generation.")
