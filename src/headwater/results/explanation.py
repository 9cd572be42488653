"""The result of explaining one prediction: a value, with no model behind it and nothing left to compute."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from .display import Shown
from .ledger import Ledger
from .picture import Picture
from .verdict import VerdictSentence, explanation_verdict
from .words import Word, words_of

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Provenance:
    """What is needed to repeat the explanation. `way` is how it was computed, which changes no number.

    "plain", or "plan" where earlier runs of the model had been written down (docs/cost.md).
    """

    headwater: str
    torch: str
    transformers: str | None
    model: str
    device: str
    dtype: str
    seed: int | None = None
    way: str = field(default="plain", compare=False)

    def to_dict(self) -> dict[str, Any]:
        """For files: without the way, so that an explanation is written alike however it was computed."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "way"}


@dataclass(frozen=True)
class Explanation(Shown):
    """How much each input contributed to one score of one prediction. `relevance` has the unit of `score`.

    For text, `relevance` has one number per token; for a graph, one per node; for an image, one per patch, line by
    line. For a bare tensor it has the shape of the tensor. `relevance.sum()` is `ledger.inputs`. `edges` are a graph's,
    each as two nodes and a relevance, where the method reaches them; together they are a line of the ledger. Of an
    image, `patches` and `pixels` are the relevance as it lies in the picture, and `image` says where in the
    original that is.
    """

    tokens: tuple[str, ...]
    relevance: Tensor
    score: float
    target: str
    ledger: Ledger
    method: str
    provenance: Provenance
    text: str | tuple[str, str] | None = None
    prediction: str | None = None
    output: str = "logit"
    at: str = "embeddings"
    special: tuple[bool, ...] = ()
    offsets: tuple[tuple[int, int], ...] | None = None
    word_ids: tuple[int | None, ...] | None = None
    sequence_ids: tuple[int | None, ...] | None = None
    segments: tuple[str, ...] = ()
    rules_met: tuple[tuple[str, int], ...] = ()
    windows: int = 1
    edges: tuple[tuple[int, int, float], ...] | None = None
    image: Picture | None = None

    @property
    def patches(self) -> Tensor:
        """[rows, columns]: the relevance of an image's patches."""
        grid = self._image().grid
        return self.relevance.reshape(grid.rows, grid.columns)

    @property
    def pixels(self) -> Tensor:
        """[height, width]: the relevance of an image's pixels, summed over its channels."""
        found = self._image().pixels
        if found is None:
            raise InputError(f"{self.method!r} tells the patches of an image apart, not its pixels. Read `patches`.")
        return found.sum(0)

    def _image(self) -> Picture:
        if self.image is None:
            raise InputError("this is no explanation of an image, so it has no patches and no pixels.")
        return self.image

    def words(self) -> list[Word]:
        """Sub-words summed to words by the tokenizer's offsets. A special token is a word of its own."""
        return words_of(self)

    def verdict(self, probability: float | None = None) -> VerdictSentence:
        """The explanation in one sentence: "99.7 % positive, mostly because of *wonderful*".

        `probability` is that of the prediction, where the explanation does not know it.
        """
        return explanation_verdict(self, probability)

    def to_dict(self) -> dict[str, object]:
        """Plain types, ready for JSON."""
        return {
            "text": self.text,
            "tokens": list(self.tokens),
            "relevance": self.relevance.tolist(),
            "special": list(self.special),
            "segments": list(self.segments),
            "score": self.score,
            "target": self.target,
            "prediction": self.prediction,
            "output": self.output,
            "method": self.method,
            "at": self.at,
            "ledger": self.ledger.to_dict(),
            "rules_met": dict(self.rules_met),
            "windows": self.windows,
            **({} if self.edges is None else {"edges": [list(edge) for edge in self.edges]}),
            **({} if self.image is None else {"image": self._image_dict(self.image)}),
            "provenance": self.provenance.to_dict(),
        }

    def _image_dict(self, image: Picture) -> dict[str, object]:
        grid, frame = image.grid, image.frame
        return {
            "source": frame.source,
            "size": list(frame.size),
            "seen": None if frame.box is None else list(frame.box),
            "taken_as": [grid.width, grid.height],
            "patch": [grid.cell[1], grid.cell[0]],
            "patches": self.patches.tolist(),
            "pixels": None if image.pixels is None else self.pixels.tolist(),
        }
