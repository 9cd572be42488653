"""A language model that is asked about prompts with tokens taken out, and explained by methods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ... import plugins
from ...api.explain_answer import explain_answer
from ...api.explain_generation import explain_generation
from ...api.output_text import decoder_start, tokenise_answer
from ...defaults import DEFAULT_OUTPUT, LANGUAGE_OUTPUT, is_language_method
from ...engine.model import prepare_model, where_it_is
from ...errors import InputError, NotApplicable, NotFinite
from ...inputs.batch import group_by_length
from ...inputs.hooks import hook_modules
from ...inputs.places import word_modules
from ...inputs.prompt import call_tokenizer, tokenise_prompt
from ...inputs.text import encoder_decoder, length_limit, takes
from ...methods import resolve_method
from ..bounds import budget
from ..ranking import Counts, Flags, Floats
from .flashtrace import FLASHTRACE, trace_answer

SCORE_MARK = "@"  # between a method and the score that it explains
OWN_DTYPE = "own"  # of the model, as it was given
LATER = "later-words"  # no explanation: the later a token, the more it counts


@dataclass(frozen=True)
class PosedPrompt:
    """A prompt as the model reads it. `answer`: the tokens that are explained, often one; `other`: one to set against.

    `words` are the positions that may be taken out: all tokens but the first, which attention uses as a sink, and but
    those that the tokenizer adds. `offsets`: where each token stands in the text.
    """

    text: str
    ids: tuple[int, ...]
    offsets: tuple[tuple[int, int], ...]
    words: Counts
    answer: tuple[int, ...]
    other: int | None = None

    def tokens_in(self, start: int, end: int) -> Counts:
        """The words of which at least one character that is no space lies in this range of the text."""
        return np.array([i for i in self.words if self.holds(int(i), start, end)], dtype=np.intp)

    def holds(self, position: int, start: int, end: int) -> bool:
        first, last = self.offsets[position]
        return bool(self.text[max(first, start) : min(last, end)].strip())


@torch.inference_mode()
def log_probabilities(
    model: nn.Module, rows: Sequence[Sequence[int]], tokens: Sequence[int] | None = None, emptied: Flags | None = None
) -> Floats:
    """Of the next token after each row of ids, [rows, tokens] or [rows, vocabulary], in double precision.

    `emptied` [rows, positions]: where embeddings are zeros. Rows of one length share a batch.
    """
    found: list[Floats] = [np.empty(0)] * len(rows)
    for group, answers in read_batches(model, rows, (), emptied):
        chosen = answers[:, 0] if tokens is None else answers[:, 0, list(tokens)]
        for i, row in zip(group, chosen.cpu().numpy(), strict=True):
            found[i] = row
    return np.stack(found)


@torch.inference_mode()
def score_answers(
    model: nn.Module, rows: Sequence[Sequence[int]], answer: Sequence[int], emptied: Flags | None = None
) -> Floats:
    """[rows]: the log-probability of a whole answer after each row of ids, the sum over its tokens."""
    found = np.empty(len(rows))
    for group, answers in read_batches(model, rows, answer[:-1], emptied):
        picked = answers[:, range(len(answer)), list(answer)]
        found[group] = picked.sum(1).cpu().numpy()
    return found


def read_batches(
    model: nn.Module, rows: Sequence[Sequence[int]], after: Sequence[int], emptied: Flags | None
) -> Iterator[tuple[list[int], Tensor]]:
    """Batches of rows of one length: their numbers, and what `run_batch` gives."""
    device = where_it_is(model)[0]
    for group in group_by_length([len(row) for row in rows], budget=budget(model, None), mixes=False):
        ids = torch.tensor([list(rows[i]) for i in group], device=device)
        flags = None if emptied is None else torch.from_numpy(emptied[group]).to(device)
        yield list(group), run_batch(model, ids, flags, after)


def run_batch(model: nn.Module, ids: Tensor, emptied: Tensor | None, after: Sequence[int]) -> Tensor:
    """Log-probabilities of the tokens after the ids, [rows, after + 1, vocabulary], where `after` is said first."""
    options: dict[str, Any] = {}
    said = ids.new_tensor([list(after)]).expand(len(ids), -1)
    if encoder_decoder(model):
        options["decoder_input_ids"] = torch.cat([torch.full_like(ids[:, :1], decoder_start(model)), said], 1)
    else:
        ids = torch.cat([ids, said], 1)
        if takes(model, "logits_to_keep"):
            options["logits_to_keep"] = len(after) + 1
    gone = None if emptied is None else nn.functional.pad(emptied, (0, ids.shape[1] - emptied.shape[1]))

    def empty(module: nn.Module, args: Any, kwargs: Any, output: Tensor) -> Tensor | None:
        if gone is None or output.shape[:2] != gone.shape:  # the decoder's own tokens stay
            return None
        return output.masked_fill(gone[..., None], 0)

    with hook_modules([] if emptied is None else word_modules(model), after=empty):
        out = model(input_ids=ids, use_cache=False, **options)
    logits: Tensor = out.logits[:, -len(after) - 1 :].double()
    if not bool(logits.isfinite().all()):
        raise NotFinite("the model's logits are not finite for a prompt with tokens taken out.")
    return logits.log_softmax(-1)


class AnsweringModel:
    """A model with its tokenizer: probabilities of answers, and relevance. Decoders and encoder-decoders alike."""

    def __init__(self, model: nn.Module, tokenizer: Any) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.limit: int | None = length_limit(model, tokenizer)
        self.special: set[Any] = set(tokenizer.all_special_ids)
        self.padding: int = pick_first(tokenizer.pad_token_id, tokenizer.eos_token_id)
        self.copies: dict[str, nn.Module] = {}  # of the model, in other dtypes

    def pose(self, text: str, answer: str | None, other: str | None = None, whole: bool = False) -> PosedPrompt:
        """The prompt with the first token of its answer, or with the whole of it; without one, the likeliest token."""
        said = tokenise_prompt(self.tokenizer, text, None)
        ids, offsets = call_tokenizer(self.tokenizer, text, add_special_tokens=True)
        if offsets is None:
            raise InputError("the protocols need to know where tokens stand, which only a fast tokenizer says.")
        words = np.array([i for i, token in enumerate(ids) if i and token not in self.special], dtype=np.intp)
        first, second = (
            None if one is None else tokenise_answer(self.model, self.tokenizer, said, one) for one in (answer, other)
        )
        if first is None:
            first = [int(self.log_probabilities([ids])[0].argmax())]
        wanted = tuple(first if whole else first[:1])
        return PosedPrompt(text, tuple(ids), tuple(offsets), words, wanted, None if second is None else second[0])

    def fits(self, prompt: PosedPrompt) -> bool:
        return self.limit is None or len(prompt.ids) + len(prompt.answer) <= self.limit

    def log_probabilities(
        self, rows: Sequence[Sequence[int]], tokens: Sequence[int] | None = None, emptied: Flags | None = None
    ) -> Floats:
        return log_probabilities(self.model, rows, tokens, emptied)

    def score_answers(
        self, rows: Sequence[Sequence[int]], answer: Sequence[int], emptied: Flags | None = None, dtype: str = OWN_DTYPE
    ) -> Floats:
        """[rows]: the log-probability of the whole answer after each row, read in the model's dtype or in another."""
        return score_answers(self.in_dtype(dtype), rows, answer, emptied)

    def in_dtype(self, dtype: str) -> nn.Module:
        """The model, or a copy of it, which is kept."""
        if dtype == OWN_DTYPE:
            return self.model
        if dtype not in self.copies:
            self.copies[dtype] = prepare_model(self.model, None, dtype)
        return self.copies[dtype]

    def relevance(self, prompt: PosedPrompt, method: str, seed: int, dtype: str = OWN_DTYPE) -> Floats:
        """Of every token of the prompt, for a score of the answer, or for its contrast with the other token.

        `method` may name the score, as in "attnlrp@advantage". Otherwise the default method explains its own score,
        and every other the logit, as their authors do. The score of a whole answer is the sum over its tokens. `dtype`:
        in which a method that takes tokens out reads what is left.
        """
        if method == LATER:
            return np.arange(len(prompt.ids), dtype=np.float64)
        if method == FLASHTRACE:
            said = tokenise_prompt(self.tokenizer, prompt.text, None)
            return check_numbers(trace_answer(self.model, self.tokenizer, said, prompt.answer), method)
        if method in (peers := plugins.load_all(plugins.PEERS)):
            if len(prompt.answer) > 1:
                raise NotApplicable(f"{method!r} explains one token, not a whole answer.")
            return check_numbers(peers[method](self.model, prompt.ids, prompt.answer[0], prompt.other), method)
        method, score = split_score(method)
        asked: dict[str, Any] = {"score": score} if prompt.other is None else {"contrast": {0: prompt.other}}
        asked |= {"answer": list(prompt.answer), "method": method, "sinks": "show", "seed": seed}
        model = self.in_dtype(dtype) if resolve_method(method).group == "perturbation" else self.model
        if len(prompt.answer) == 1:
            made = explain_generation(model, prompt.text, tokenizer=self.tokenizer, **asked)
            return check_numbers(made.relevance[0, : len(prompt.ids)], method)
        whole = explain_answer(model, prompt=prompt.text, tokenizer=self.tokenizer, **asked).whole()
        return check_numbers(whole.relevance[: len(prompt.ids)], method)


def split_score(row: str) -> tuple[str, str]:
    """A row of the table as method and score: "attnlrp@advantage"."""
    method, _, score = row.partition(SCORE_MARK)
    return method, score or (LANGUAGE_OUTPUT if is_language_method(method) else DEFAULT_OUTPUT)


def check_numbers(relevance: Tensor, method: str) -> Floats:
    found: Floats = relevance.detach().double().cpu().numpy()
    if not np.isfinite(found).all():
        raise NotFinite(f"{method!r} gave relevance that is not finite.")
    return found


def pick_first(*tokens: int | None) -> int:
    """The first token that there is; 0 where there is none."""
    return next((token for token in tokens if token is not None), 0)


def ask_once(known: dict[bytes, float], rows: Flags, ask: Callable[[list[Flags]], Floats]) -> Floats:
    """A number per row; what is known already is not asked again."""
    new = list({row.tobytes(): row for row in rows if row.tobytes() not in known}.values())
    if new:
        known.update(zip((row.tobytes() for row in new), ask(new).tolist(), strict=True))
    return np.array([known[row.tobytes()] for row in rows])


class PerturbedAnswers:
    """The log-probability of a prompt's answer with only some of its words, each asked once.

    `fill`: token ids that stand in for those taken out; without it, their embeddings are zeros.
    """

    def __init__(
        self,
        model: AnsweringModel,
        prompt: PosedPrompt,
        words: Counts,
        fill: Sequence[int] | None,
        dtype: str = OWN_DTYPE,
    ) -> None:
        self.model = model
        self.prompt = prompt
        self.words = words
        self.dtype = dtype
        self.ids: Counts = np.array(prompt.ids)
        self.fill: Counts | None = None if fill is None else np.array(fill)
        self.known: dict[bytes, float] = {}

    def of(self, kept: Flags) -> Floats:
        """For rows of kept words, [rows, words]: a log-probability each."""
        return ask_once(self.known, kept, self._ask)

    def _ask(self, kept: Sequence[Flags]) -> Floats:
        present = np.ones((len(kept), len(self.ids)), dtype=np.bool_)
        present[:, self.words] = np.stack(kept)
        rows = np.tile(self.ids, (len(kept), 1)) if self.fill is None else np.where(present, self.ids, self.fill)
        emptied = ~present if self.fill is None else None
        return self.model.score_answers(rows.tolist(), self.prompt.answer, emptied, self.dtype)

    @property
    def whole(self) -> float:
        """With every word in its place."""
        return float(self.of(np.ones((1, len(self.words)), dtype=np.bool_))[0])

    def drops(self) -> Floats:
        """What is lost when each word alone is taken out."""
        return self.whole - self.of(~np.eye(len(self.words), dtype=np.bool_))
