"""What a token classifier finds in a text, each with its explanation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .explanation import Explanation


@dataclass(frozen=True, slots=True)
class Entity:
    """One name, or whatever the model labels: `label` without its B- or I-, the words, and why.

    `start` and `end` are characters of the text (None where the tokenizer does not say), `positions` the tokens whose
    scores are explained: the first of each word.
    """

    label: str  # without its B- or I-
    text: str  # the words
    start: int | None  # first character, None if not known
    end: int | None  # behind the last
    positions: tuple[int, ...]  # tokens whose scores are explained
    explanation: Explanation  # why it is labelled so

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON."""
        about = {"label": self.label, "text": self.text, "start": self.start, "end": self.end}
        return {**about, "positions": list(self.positions), "explanation": self.explanation.to_dict()}
