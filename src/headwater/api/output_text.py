"""A prompt and what follows it: generated or given, as ids and as text, and how they go into the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
from torch import Tensor, nn

from ..engine.model import where_it_is
from ..errors import InputError, ModelError, UsageError, check_integer
from ..inputs.batch import Batch, Item
from ..inputs.prompt import Prompt
from ..inputs.restoring import seed_torch
from ..inputs.text import check_characters, encoder_decoder, takes

CONTEXT, WINDOW = 4, 32  # tokens that are decoded before one, at least and at most


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
    def ids(self) -> list[int]:
        """Of the prompt, then of the output."""
        return [*self.said.ids, *self.start, *self.output]

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


def check_prompt_length(model: nn.Module, said: Prompt, limit: int | None) -> None:
    """A prompt without room for one output token is refused before anything is generated."""
    if limit is not None and len(said.ids) + (0 if encoder_decoder(model) else 1) > limit:
        raise InputError(
            f"the prompt has {len(said.ids)} tokens, the model takes at most {limit}, its output among them."
        )


def continue_text(
    model: nn.Module, tokenizer: Any, said: Prompt, count: int, options: Mapping[str, Any], seed: int
) -> list[int]:
    """What the model says next, by its own `generate`. `seed`: of what it draws, where it samples."""
    count = check_integer("max_new_tokens", count, 1)
    device = where_it_is(model)[0]
    ids = torch.tensor([said.ids], device=device)
    greedy = {} if "generation_config" in options else {"do_sample": False, "num_beams": 1}
    settings = {**greedy, **padding(model), **options}
    if stops_at_strings(model, options):
        settings["tokenizer"] = tokenizer
    with torch.no_grad(), seed_torch(seed, device) if samples(model, settings) else nullcontext():
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


def samples(model: nn.Module, options: Mapping[str, Any]) -> bool:
    """Whether `generate` draws random numbers. Where it does not, torch's generators are left alone."""
    return bool(setting(model, options, "do_sample"))


def stops_at_strings(model: nn.Module, options: Mapping[str, Any]) -> bool:
    """Whether `generate` ends at certain texts, for which it needs the tokenizer."""
    return bool(setting(model, options, "stop_strings"))


def setting(model: nn.Module, options: Mapping[str, Any], name: str) -> Any:
    """One of `generate`'s settings: by name, else of the caller's configuration, else of the model's."""
    config = options.get("generation_config", getattr(model, "generation_config", None))
    return options.get(name, getattr(config, name, None))


def padding(model: nn.Module) -> dict[str, Any]:
    """A model without a padding token is given its end token, as it would choose with a warning."""
    config = getattr(model, "generation_config", None)
    end = getattr(config, "eos_token_id", None)
    end = end[0] if isinstance(end, list) else end
    return {"pad_token_id": end} if getattr(config, "pad_token_id", None) is None and end is not None else {}


def check_not_generated(answer: object, options: Mapping[str, Any]) -> None:
    """Refuses arguments for `generate` where nothing is generated: one may be another's name, misspelt."""
    if answer is not None and options:
        names = ", ".join(f"{name}=" for name in options)
        raise UsageError(f"with answer= nothing is generated, and {names} is neither an option of this nor used.")


def tokenise_answer(model: nn.Module, tokenizer: Any, said: Prompt, answer: str | Sequence[int]) -> list[int]:
    """Token ids of a given answer: as it is tokenised after the prompt, where that leaves the prompt's tokens alone."""
    if isinstance(answer, str):
        check_characters(answer, "the answer")
    if not isinstance(answer, str):
        found = read_ids(model, answer)
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


def read_ids(model: nn.Module, answer: Sequence[int], what: str = "answer=") -> list[int]:
    """Token ids that the model knows."""
    if isinstance(answer, bytes) or not isinstance(answer, Iterable):
        raise InputError(f"answer= is a text or a list of token ids, not {type(answer).__name__}.")
    found = [token.item() if isinstance(token, Tensor) and not token.dim() else token for token in answer]
    rows = getattr(model.get_input_embeddings(), "num_embeddings", None)  # type: ignore[operator]
    for token in found:
        if not isinstance(token, Integral):
            raise InputError(
                f"{what} is a text or a list of token ids, in which a {type(token).__name__} has no place."
            )
        if token < 0 or (rows is not None and token >= rows):
            raise InputError(f"{what} has the token id {token}, and the model knows 0 to {(rows or 0) - 1}.")
    return [int(token) for token in found]


def pieces_of(tokenizer: Any, before: list[int], output: list[int], fresh: bool) -> list[str]:
    """Every output token as the text that it adds; of a character in several tokens, the last adds it.

    A decoder may drop the first space, so a few tokens before come along: of the prompt, later of the output itself.
    """
    window = [] if fresh else before[-CONTEXT:]
    begin = shown = decode(tokenizer, window)
    pieces = []
    for token in output:
        window = [*window, token]
        found = decode(tokenizer, window)
        whole = found.rstrip("\ufffd")
        longer = len(whole) > max(len(shown), len(begin))
        pieces.append(whole[len(shown) :] if longer else "")
        shown = whole if longer else shown
        if len(window) > WINDOW and longer and whole == found:  # no character is left open
            window = window[-CONTEXT:]
            begin = shown = decode(tokenizer, window)
    return pieces


def decode(tokenizer: Any, ids: list[int]) -> str:
    return str(tokenizer.decode(ids, clean_up_tokenization_spaces=False))


def namer(tokenizer: Any) -> Callable[[int], str]:
    """A token by its text, without the space before it."""

    def name(token: int) -> str:
        text = decode(tokenizer, [token])
        return text.strip(" ") or "␣" * len(text)

    return name


def decoder_start(model: nn.Module) -> int:
    for config in (getattr(model, "generation_config", None), getattr(model, "config", None)):
        token = getattr(config, "decoder_start_token_id", None)
        if isinstance(token, int):
            return token
    raise ModelError("the encoder-decoder's config names no decoder_start_token_id, so its output cannot begin.")
