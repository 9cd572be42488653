"""The result of explaining one prediction: a value, with no model behind it and nothing left to compute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import InputError
from .display import Plotted, Shown
from .files import Saved, as_tuple, name_dtype, read_tensor
from .inside import Inside
from .ledger import Ledger
from .picture import Grid, ImageFrame, Picture
from .verdict import VerdictSentence, explanation_verdict
from .words import Word, words_of

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Explanation", "Provenance"]


@dataclass(frozen=True)
class Provenance:
    """What is needed to repeat the explanation. `way` is how it was computed, which changes no number.

    "plain", or "plan" where earlier runs of the model had been written down (docs/speed.md).

    Example:
        >>> made = hw.explain("headwater/sentiment", "a fine film").provenance
        >>> made.model, made.dtype, made.seed
        ('headwater/sentiment', 'float32', 0)
    """

    headwater: str  # version
    torch: str  # version
    transformers: str | None  # version, None without it
    model: str  # its name or class
    device: str  # where it was computed
    dtype: str  # of the computation
    seed: int | None = None  # of what was drawn
    way: str = field(default="plain", compare=False)  # "plain", "plan" or "graph"

    def to_dict(self) -> dict[str, Any]:
        """For files: without the way, so that an explanation is written alike however it was computed."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "way"}


@dataclass(frozen=True, eq=False)
class Explanation(Shown, Plotted, Saved):
    """How much each input contributed to one score of one prediction. `relevance` has the unit of `score`.

    For text, `relevance` has one number per token; for a graph, one per node; for an image, one per patch, line by
    line. For a bare tensor it has the shape of the tensor. `relevance.sum()` is `ledger.inputs`. `edges` are a graph's,
    each as two nodes and a relevance, where the method reaches them; together they are a line of the ledger. Of an
    image, `patches` and `pixels` are the relevance as it lies in the picture, and `image` says where in the
    original that is.

    `probabilities` has the model's probability of every class by name; of a language model those of the likeliest
    tokens and of the explained one. It is empty where the score is a function of your own.

    `inside` has relevance at heads, neurons, layers and modules, where `explain(…, inside=…)` asked for it.
    """

    kind: ClassVar[str] = "explanation"

    tokens: tuple[str, ...]  # names of the inputs, in order
    relevance: Tensor  # one number per input, in the unit of the score
    score: float  # the number that is explained
    target: str  # what the score is of, by name
    ledger: Ledger  # the lines that add up to the score
    method: str  # that was used, by the name that gives the same numbers again
    provenance: Provenance  # what is needed to repeat it
    text: str | tuple[str, str] | None = None  # what was explained, two texts of a pair
    prediction: str | None = None  # the model's own class
    output: str = "logit"  # which number of the prediction: logit, probability, …
    at: str = "embeddings"  # where relevance was read
    special: tuple[bool, ...] = ()  # whether a token is special ([CLS], <s>)
    offsets: tuple[tuple[int, int], ...] | None = None  # where each token stands in the text, by character
    word_ids: tuple[int | None, ...] | None = None  # the word of each token
    sequence_ids: tuple[int | None, ...] | None = None  # which text of a pair each token is of
    segments: tuple[str, ...] = ()  # "source" or "target" of each token, of encoder-decoders
    rules_met: tuple[tuple[str, int], ...] = ()  # how often each rule acted
    windows: int = 1  # parts in which a long text was read
    edges: tuple[tuple[int, int, float], ...] | None = None  # of a graph: two nodes and a relevance
    image: Picture | None = None  # of an image: its grid and pixels
    probabilities: Mapping[str, float] = field(default_factory=dict)  # of the classes, by name
    inside: Inside | None = None  # relevance of heads, neurons and layers, if asked for

    @property
    def probability(self) -> float | None:
        """The model's probability of the explained class or token; None where the target is none of them ("a - b")."""
        return self.probabilities.get(self.target)

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

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON; `from_dict` gives the explanation back. docs/guide.md names the entries."""
        return {
            **self._stamp(),
            "text": list(self.text) if isinstance(self.text, tuple) else self.text,
            "tokens": list(self.tokens),
            "relevance": self.relevance.tolist(),
            "relevance_dtype": name_dtype(self.relevance),
            "special": list(self.special),
            "segments": list(self.segments),
            **{name: _as_list(getattr(self, name)) for name in PLACES},
            "score": self.score,
            "target": self.target,
            "prediction": self.prediction,
            "probabilities": dict(self.probabilities),
            "output": self.output,
            "method": self.method,
            "at": self.at,
            "ledger": self.ledger.to_dict(),
            "rules_met": dict(self.rules_met),
            "windows": self.windows,
            **({} if self.edges is None else {"edges": [list(edge) for edge in self.edges]}),
            **({} if self.image is None else {"image": self._image_dict(self.image)}),
            **({} if self.inside is None else {"inside": self.inside.to_dict()}),
            "provenance": self.provenance.to_dict(),
        }

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Explanation:
        """The explanation again: `found` is what `to_dict` gave, also where it went through JSON."""
        cls._check_stamp(found)
        same = ("score", "target", "prediction", "output", "method", "at", "windows")
        tuples = ("text", "tokens", "special", "segments", "edges", *PLACES)
        plain: dict[str, Any] = {name: found[name] for name in same}
        return cls(
            **plain,
            **{name: as_tuple(found.get(name)) for name in tuples},
            relevance=read_tensor(found["relevance"], found["relevance_dtype"]),
            probabilities=dict(found["probabilities"]),
            ledger=Ledger.from_dict(found["ledger"]),
            rules_met=tuple(found["rules_met"].items()),
            image=None if "image" not in found else _read_image(found["image"]),
            inside=None if "inside" not in found else Inside.from_dict(found["inside"]),
            provenance=Provenance(**found["provenance"]),
        )

    def _image_dict(self, image: Picture) -> dict[str, object]:
        grid, frame, pixels = image.grid, image.frame, image.pixels
        return {
            "source": frame.source,
            "size": list(frame.size),
            "seen": None if frame.box is None else list(frame.box),
            "taken_as": [grid.width, grid.height],
            "patch": [grid.cell[1], grid.cell[0]],
            "patches": self.patches.tolist(),
            "pixels": None if pixels is None else self.pixels.tolist(),
            **({} if pixels is None else {"channels": pixels.tolist(), "pixels_dtype": name_dtype(pixels)}),
        }


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


PLACES = ("offsets", "word_ids", "sequence_ids")  # where the tokens stand in the text


def _as_list(places: tuple[Any, ...] | None) -> list[Any] | None:
    return None if places is None else [list(one) if isinstance(one, tuple) else one for one in places]


def _read_image(found: dict[str, Any]) -> Picture:
    width, height = found["taken_as"]
    grid = Grid(height, width, (found["patch"][1], found["patch"][0]))
    frame = ImageFrame(as_tuple(found["size"]), as_tuple(found["seen"]), found["source"])
    numbers = found.get("channels")
    return Picture(grid, frame, None if numbers is None else read_tensor(numbers, found["pixels_dtype"]))
