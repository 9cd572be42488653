"""One generated text explained. One forward pass and few backward passes serve all its tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..defaults import DEFAULT_OUTPUT, LANGUAGE_OUTPUT
from ..engine.forward import Run
from ..engine.kind import choose_method
from ..engine.model import where_it_is
from ..engine.options import SHOWN, Options, Request, check_handling, read_options
from ..engine.session import Change, Session, keep_run
from ..engine.steps import Step
from ..errors import InputError, ModelError, TargetError, UnknownName, UsageError
from ..inputs.batch import Batch, Item
from ..inputs.places import find_places
from ..inputs.prompt import Prompt, Turn, tokenise_prompt
from ..inputs.targets import Reader, ScoreReading, logits_of, mean_logit
from ..inputs.text import can_generate, check_characters, length_limit
from ..memory.estimate import MemoryTrial, parse_bytes
from ..memory.recompute import Count
from ..methods import Method
from ..results.explanation import Explanation
from ..results.generation import OUTPUT_OF, Alternative, Generation

SCORES = ("logit", "advantage", "logprob", "contrast")
SPACE_MARKS = ("Ġ", "▁")
ALTERNATIVES = 5  # likeliest tokens that are kept of every place
Contrast = str | Mapping[int, int | str] | None


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
    if asked.tokens_at_once is not None and asked.tokens_at_once < 1:
        raise UsageError(f"tokens_at_once must be at least 1, not {asked.tokens_at_once}.")
    check_generates(model, tokenizer)
    chosen = choose_method(asked.method, model)
    options = read_options(
        tokenizer=tokenizer,
        method=chosen,
        sinks=SHOWN,  # they are put aside in the whole
        output=scoring.output,
        at=asked.at,
        seed=asked.seed,
        device=asked.device,
        dtype=asked.dtype,
        keep=asked.keep,
        recompute=asked.recompute,
    )
    session = Session.open(model, options)
    ready = session.model
    said = tokenise_prompt(tokenizer, prompt, chat)
    ids = (
        tokenise_answer(ready, tokenizer, said, answer)
        if answer is not None
        else continue_text(ready, said, asked.max_new_tokens, asked.generate)
    )
    text = Text.of(ready, tokenizer, said, ids)
    text.check_length(length_limit(ready, tokenizer))
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


@dataclass(frozen=True)
class Scoring:
    """Which number of an output token is explained. `amounts`: what each token is to count for, where that is given."""

    score: str
    contrast: Contrast
    amounts: tuple[float, ...] | None = None

    @classmethod
    def of(cls, score: str | None, contrast: Contrast) -> Scoring:
        chosen = score or (LANGUAGE_OUTPUT if contrast is None else "contrast")
        if chosen not in SCORES:
            raise UnknownName("score", chosen, SCORES)
        if contrast is not None and chosen != "contrast":
            raise UsageError(f"contrast= has no place beside score={chosen!r}.")
        return cls(chosen, contrast)

    @property
    def output(self) -> str:
        return OUTPUT_OF.get(self.score, "logit")

    def others(self, text: Text) -> dict[int, int]:
        """The token that each output token is set against, where one was named."""
        if isinstance(self.contrast, str):
            return first_difference(text, self.contrast)
        named = self.contrast or {}
        for number in named:
            if not 0 <= number < len(text.output):
                raise TargetError(f"contrast= names output token {number}; there are {len(text.output)}.")
        return {n: token if isinstance(token, int) else first_token(text, n, token) for n, token in named.items()}


def first_difference(text: Text, words: str) -> dict[int, int]:
    """Another answer, set against this one at the first token where they part."""
    other = like(text, 0, words)
    for number, (ours, theirs) in enumerate(zip(text.output, other, strict=False)):
        if ours != theirs:
            return {number: theirs}
    raise TargetError(
        f"{words!r} does not differ from the output {text.said_output!r}: there is nothing to set against."
    )


def like(text: Text, number: int, words: str) -> list[int]:
    """Token ids of a text that could stand where output token `number` does: with a space before it if that has one."""
    mark = text.tokenizer.convert_ids_to_tokens(text.output[number]).startswith(SPACE_MARKS)
    written = f" {words.strip()}" if mark else words
    found: list[int] = text.tokenizer(written, add_special_tokens=False)["input_ids"]
    if not found:
        raise TargetError(f"{words!r} has no tokens.")
    return found


def first_token(text: Text, number: int, words: str) -> int:
    """The first token of a text; the others would come after it."""
    return like(text, number, words)[0]


@dataclass(frozen=True)
class At:
    """Reads the score of one output token for every sample; `behind` counts its row from the end of the logits."""

    behind: int
    token: int
    other: int | None
    score: str
    name: Callable[[int], str]

    def __call__(self, out: Any, batch: Batch) -> ScoreReading:
        rows = logits_of(out)[:, -self.behind]
        named, count = self.name(self.token), len(rows)
        best: list[str | None] = [self.name(int(index)) for index in rows.detach().argmax(-1)]
        others = [self._other(row) for row in rows.detach()] if self.score == "contrast" else None
        score, sizes = score_tokens(self.score, rows, [self.token] * count, others)
        targets = [named] * count if others is None else [f"{named} - {self.name(other)}" for other in others]
        return ScoreReading(score, targets, best, None if self.score == "logit" else sizes.tolist())

    def _other(self, row: Tensor) -> int:
        return runner_up(row, self.token) if self.other is None else self.other

    def with_fixed_target(self, out: Any, batch: Batch) -> At:
        """The same reader, set against the runner-up of one sample: changed inputs are read alike."""
        if self.score != "contrast" or self.other is not None:
            return self
        return replace(self, other=runner_up(logits_of(out)[0, -self.behind].detach(), self.token))

    def count_sources(self, positions: int) -> int:
        """How many of the input's first `positions` stand before the output token: later ones have no part in it."""
        return positions + 1 - self.behind


def score_tokens(
    score: str, rows: Tensor, tokens: Sequence[int], others: Sequence[int] | None
) -> tuple[Tensor, Tensor]:
    """[rows]: one token's score per row of logits, and the absolute sizes of what it is the difference of, summed."""
    at = torch.arange(len(rows), device=rows.device)
    chosen = rows[at, torch.tensor(tokens, device=rows.device)]
    if score == "logit":
        return chosen, chosen.detach().abs()
    if score == "logprob":
        found = rows.log_softmax(-1)[at, torch.tensor(tokens, device=rows.device)]
        return found, chosen.detach().abs() + (found - chosen).detach().abs()
    if score == "advantage":
        against = mean_logit(rows)
    elif score == "contrast" and others is not None:
        against = rows[at, torch.tensor(others, device=rows.device)]
    else:
        raise UnknownName("score", score, SCORES)
    return chosen - against, chosen.detach().abs() + against.detach().abs()


def runner_up(row: Tensor, token: int) -> int:
    """The likeliest token but this one."""
    best = row.topk(2).indices.tolist()
    return int(best[0] if best[0] != token else best[1])


@dataclass(frozen=True)
class Text:
    """Prompt and output, as ids and as text; how they go into the model."""

    model: nn.Module
    tokenizer: Any
    said: Prompt
    output: list[int]
    start: list[int]  # what an encoder-decoder's decoder begins with

    @classmethod
    def of(cls, model: nn.Module, tokenizer: Any, said: Prompt, output: list[int]) -> Text:
        return cls(model, tokenizer, said, output, [decoder_start(model)] if encoder_decoder(model) else [])

    @property
    def said_output(self) -> str:
        return str(self.tokenizer.decode(self.output))

    @property
    def prompt(self) -> int:
        return len(self.said.ids) + len(self.start)

    def check_length(self, limit: int | None) -> None:
        length = max(len(self.said.ids), len(self.output)) if self.start else self.prompt + len(self.output)
        if limit is not None and length > limit:
            raise InputError(f"prompt and output have {length} tokens, the model takes at most {limit}.")

    def batch(self, outputs: int, wanted: int, places: list[nn.Module]) -> Batch:
        """What predicts the first `outputs` output tokens, of which the last `wanted` are asked for."""
        ids, before = [*self.said.ids], self.output[: outputs - 1]
        kwargs: dict[str, Any] = {}
        if self.start:
            kwargs["decoder_input_ids"] = torch.tensor([[*self.start, *before]])
        else:
            ids += before
            if takes(self.model, "logits_to_keep"):
                kwargs["logits_to_keep"] = wanted  # nothing of the vocabulary's size is made for the other positions
        own = torch.tensor([ids])
        real = torch.ones_like(own)
        item = Item(tokens=tuple(self.tokenizer.convert_ids_to_tokens(ids)))
        kwargs = {"input_ids": own, "attention_mask": real, **kwargs}
        return Batch(samples=1, items=[item], kwargs=kwargs, ids=own, real=real.bool(), places=places)

    def pieces(self) -> list[str]:
        starts = [self.tokenizer.convert_ids_to_tokens(token) for token in self.start]
        return [*self.said.pieces, *starts, *pieces_of(self.tokenizer, self.said.ids, self.output, bool(self.start))]


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


@dataclass
class Noted:
    """A reader that also keeps the probability of its token, and the likeliest tokens in its place with theirs."""

    read: At
    probability: float = 0.0
    likeliest: tuple[Alternative, ...] = ()

    def __call__(self, out: Any, batch: Batch) -> ScoreReading:
        shares = logits_of(out).detach()[0, -self.read.behind].double().softmax(-1)
        self.probability = float(shares[self.read.token])
        best = shares.topk(min(ALTERNATIVES, len(shares)))
        found = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        self.likeliest = tuple(Alternative(self.read.name(token), share) for token, share in found)
        return self.read(out, batch)

    def with_fixed_target(self, out: Any, batch: Batch) -> At:
        """Reads changed inputs. The probability stays that of the unchanged one."""
        self(out, batch)
        return self.read.with_fixed_target(out, batch)

    def count_sources(self, positions: int) -> int:
        return self.read.count_sources(positions)


def join_tokens(found: Iterator[tuple[Explanation, Noted]], text: Text, scoring: Scoring) -> Generation:
    """Rows of different lengths as one matrix."""
    made = list(found)
    first = made[0][0]
    count = text.prompt + len(text.output)
    relevance = first.relevance.new_zeros(len(made), count)
    for row, (explanation, _) in zip(relevance, made, strict=True):
        row[: len(explanation.relevance)] = explanation.relevance
    ids = [*text.said.ids, *text.start, *text.output]
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


def continue_text(model: nn.Module, said: Prompt, count: int, options: Mapping[str, Any]) -> list[int]:
    """What the model says next, by its own `generate`."""
    if count < 1:
        raise UsageError(f"max_new_tokens must be at least 1, not {count}.")
    device = where_it_is(model)[0]
    ids = torch.tensor([said.ids], device=device)
    settings = {"do_sample": False, "num_beams": 1, **padding(model), **options}
    with torch.no_grad():
        made = model.generate(  # type: ignore[operator]
            input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, **settings
        )
    rows = getattr(made, "sequences", made)
    if len(rows) != 1:
        raise UsageError(f"one continuation is explained, and generate gave {len(rows)}.")
    found: list[int] = rows[0].tolist()[1 if encoder_decoder(model) else len(said.ids) :]
    if not found:
        raise InputError("the model generated nothing after this prompt.")
    return found


def padding(model: nn.Module) -> dict[str, Any]:
    """A model without a padding token is given its end token, as it would choose with a warning."""
    config = getattr(model, "generation_config", None)
    end = getattr(config, "eos_token_id", None)
    end = end[0] if isinstance(end, list) else end
    return {"pad_token_id": end} if getattr(config, "pad_token_id", None) is None and end is not None else {}


def tokenise_answer(model: nn.Module, tokenizer: Any, said: Prompt, answer: str | Sequence[int]) -> list[int]:
    """Token ids of a given answer: as it is tokenised after the prompt, where that leaves the prompt's tokens alone."""
    if isinstance(answer, str):
        check_characters(answer, "the answer")
    if not isinstance(answer, str):
        found = [int(token) for token in answer]
    elif encoder_decoder(model):
        found = list(tokenizer(text_target=answer)["input_ids"])
    else:
        whole = list(tokenizer(said.text + answer, add_special_tokens=said.adds_special)["input_ids"])
        kept = len(said.ids)
        found = whole[kept:] if whole[:kept] == said.ids else []
        found = found or list(tokenizer(answer, add_special_tokens=False)["input_ids"])
    if not found:
        raise InputError("answer= has no tokens: there is nothing to explain.")
    return found


def pieces_of(tokenizer: Any, before: list[int], output: list[int], fresh: bool) -> list[str]:
    """Every output token as the text that it adds; of a character in several tokens, the last adds it."""
    context = [] if fresh else before[-4:]  # a decoder may drop the first space, so a little of the prompt comes along
    begin = shown = decode(tokenizer, context)
    pieces = []
    for k in range(1, len(output) + 1):
        whole = decode(tokenizer, [*context, *output[:k]]).rstrip("\ufffd")
        longer = len(whole) > max(len(shown), len(begin))
        pieces.append(whole[len(shown) :] if longer else "")
        shown = whole if longer else shown
    return pieces


def decode(tokenizer: Any, ids: list[int]) -> str:
    return str(tokenizer.decode(ids, clean_up_tokenization_spaces=False))


def namer(tokenizer: Any) -> Callable[[int], str]:
    """A token by its text, without the space before it."""

    def name(token: int) -> str:
        text = decode(tokenizer, [token])
        return text.strip(" ") or "␣" * len(text)

    return name


def takes(model: nn.Module, name: str) -> bool:
    import inspect

    return name in inspect.signature(model.forward).parameters


def encoder_decoder(model: nn.Module) -> bool:
    return bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False))


def decoder_start(model: nn.Module) -> int:
    for config in (getattr(model, "generation_config", None), getattr(model, "config", None)):
        token = getattr(config, "decoder_start_token_id", None)
        if isinstance(token, int):
            return token
    raise ModelError("the encoder-decoder's config names no decoder_start_token_id, so its output cannot begin.")


def check_generates(model: Any, tokenizer: Any) -> None:
    if tokenizer is None:
        raise InputError("generated text needs a tokenizer: explain_generation(model, prompt, tokenizer=tokenizer).")
    if not isinstance(model, nn.Module):
        raise InputError(f"the model must be a torch.nn.Module, not {type(model).__name__}.")
    if not can_generate(model):
        raise ModelError(f"{type(model).__name__} does not generate text. Load it for the task text-generation.")
