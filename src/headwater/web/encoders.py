"""Sentence encoders: how a model of this server makes one vector of a text, and whether that was its purpose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ..errors import HeadwaterError, ModelError
from ..inputs.pooling import states_of
from ..inputs.text import encode
from ..models.pretrained import locate
from ..models.sentence_parts import read_sentence_files

SAID = {
    "mean": "the mean of its tokens' states",
    "cls": "the state of its first token",
    "max": "the largest state of its tokens in each dimension",
    "last": "the state of its last token",
    "mean-sqrt": "the sum of its tokens' states over the root of their number",
    "weighted-mean": "the mean of its tokens' states, later ones weighed more",
}


@dataclass(frozen=True)
class VectorParts:
    """How texts are given to an encoder, and how its states become a vector.

    `guessed` is the class of a checkpoint whose files do not say the latter; the mean is taken then.
    """

    pooling: tuple[str, ...] = ("mean",)
    prompt: str = ""
    limit: int | None = None
    lower: bool = False
    guessed: str = ""

    def write(self, text: str) -> str:
        """The text as the tokenizer gets it."""
        return text.strip().lower() if self.lower else text

    def check(self, texts: list[str], tokenizer: Any) -> None:
        """Refuses a text that is longer than the encoder was made for, which may be less than it has positions."""
        if self.limit is not None:
            encode([self.prompt + text for text in texts], tokenizer, self.limit, False)

    def describe(self) -> str:
        """How a text's vector is made, in plain words; what was guessed is said."""
        made = " and ".join(SAID.get(name, name) for name in self.pooling)
        if not self.guessed:
            return f"A text's vector is {made}."
        return (
            f"Its files do not say how a text becomes one vector. Here it is {made}. The checkpoint is a "
            f"{self.guessed}, which may never have been trained to compare texts."
        )


def gives_states(model: Any, tokenizer: Any) -> bool:
    """Whether a model gives a state per token: it is asked, whatever it is called."""
    try:
        with torch.no_grad():
            return states_of(model(**tokenizer("a first text", return_tensors="pt").to(model.device))) is not None
    except (HeadwaterError, TypeError, ValueError):  # one that wants more than a text, such as a decoder's input
        return False


def read_vector_parts(name: str, model: Any) -> VectorParts:
    """What its files say; where they say nothing, the mean is taken."""
    found = read_sentence_files(locate(name))
    if found is None:
        return VectorParts(guessed=type(model).__name__)
    prompt = found.prompts.get(found.prompt_name, "") if found.prompt_name is not None else ""
    if prompt and not found.pools_prompt:
        raise ModelError(f"{name} leaves its prompt out of the vector. The explorer cannot: use hw.explain_similarity.")
    return VectorParts(found.pooling, prompt, found.limit, found.lower)
