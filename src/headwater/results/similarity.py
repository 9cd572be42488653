"""Why two texts are similar: a number for every pair of their tokens. A value, with no model behind it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from .display import Shown
from .explanation import Provenance
from .files import Saved, as_tuple, name_dtype, read_tensor
from .ledger import Ledger
from .words import Word, words_of

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ComparedText:
    """One of the two texts, with its prompt in front: its tokens, and where they stand in it.

    `prompt` is the number of characters that the prompt takes. Of an image, `tokens` are its patches, line by line, and
    `grid` says how many rows and columns of them there are.
    """

    text: str
    tokens: tuple[str, ...]
    special: tuple[bool, ...]
    offsets: tuple[tuple[int, int], ...] | None = None
    word_ids: tuple[int | None, ...] | None = None
    prompt: int = 0
    grid: tuple[int, int] | None = None

    def words(self, relevance: Tensor) -> list[Word]:
        """Numbers per token summed to words; a patch of an image is one."""
        if self.grid is not None:
            pairs = zip(self.tokens, relevance.tolist(), strict=True)
            return [Word(patch, amount, 0, 0) for patch, amount in pairs]
        return words_of(TokenAmounts(self.tokens, relevance, self.text, self.special, self.offsets, self.word_ids))

    def group_words(self) -> tuple[list[str], Tensor]:
        """The words, and [words, tokens]: 1 where a token belongs to a word."""
        import torch

        each = torch.eye(len(self.tokens), dtype=torch.float64)
        columns = [[word.relevance for word in self.words(row)] for row in each]
        return [word.text for word in self.words(each[0])], torch.tensor(columns, dtype=torch.float64).T

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> ComparedText:
        """What `asdict` gave, also where it went through JSON."""
        return cls(**{name: as_tuple(value) if isinstance(value, list) else value for name, value in found.items()})


@dataclass(frozen=True)
class TokenAmounts:
    """A number per token, as `words_of` reads it."""

    tokens: tuple[str, ...]
    relevance: Tensor
    text: str
    special: tuple[bool, ...]
    offsets: tuple[tuple[int, int], ...] | None
    word_ids: tuple[int | None, ...] | None
    sequence_ids: None = None


@dataclass(frozen=True)
class WordMatrix:
    """A number for every pair of words, one of each text."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    matrix: Tensor

    def strongest(self, count: int = 10) -> list[tuple[str, str, float]]:
        """The pairs with the largest absolute numbers, the largest first."""
        flat = self.matrix.flatten()
        order = flat.abs().argsort(descending=True, stable=True)[:count].tolist()
        width = len(self.columns)
        return [(self.rows[i // width], self.columns[i % width], float(flat[i])) for i in order]


@dataclass(frozen=True, eq=False)
class Similarity(Shown, Saved):
    """How much each pair of tokens, one of each text, contributed to the similarity of the two texts.

    `matrix` [tokens of a, tokens of b] has the unit of `score`; its sum is `ledger.inputs`. The ledger's other lines
    are what words of one text make with biases and constants of the other, and these with each other. `row_rest` and
    `column_rest` have the first of these per token, so that `row_relevance` is what a token of a does in all.

    `measure` is "cosine" or "dot product"; of a vector per token, "maxsim", and `matches` has for each token of a the
    number of its token of b; of a model that reads both texts at once, the logit, which has no dimensions.

    `rank` is the number of directions along which the vectors were explained, of `dimensions`. With all of them every
    number is exact (`exact`). With fewer, from two on, the score, the ledger's sum, `row_relevance` and
    `column_relevance` still are: no remainder is left of them. What a token makes with each single token of the other
    text is then cut to those directions: the norm of what the matrix misses is at most about `remainder`, an estimate
    from one of the directions, which is random (None below rank 3, where none is).
    """

    kind: ClassVar[str] = "similarity"

    a: ComparedText  # the first text
    b: ComparedText  # the second
    matrix: Tensor  # [tokens of a, tokens of b]
    row_rest: Tensor  # what tokens of a make with biases of the other text
    column_rest: Tensor  # what tokens of b do
    ledger: Ledger  # the lines that add up to the similarity
    measure: str  # cosine, dot product, maxsim or logit
    rank: int  # directions that were explained
    dimensions: int  # of the vectors
    method: str  # that was used, by the name that gives the same numbers again
    provenance: Provenance  # what is needed to repeat it
    matches: tuple[int, ...] | None = None  # with maxsim: the token of b for each token of a
    remainder: float | None = 0.0  # about the norm of what the matrix misses

    @property
    def score(self) -> float:
        """The similarity."""
        return self.ledger.score

    @property
    def exact(self) -> bool:
        """Whether the vectors were explained along all their dimensions."""
        return self.rank == self.dimensions

    @property
    def rows(self) -> tuple[str, ...]:
        """The tokens of a."""
        return self.a.tokens

    @property
    def columns(self) -> tuple[str, ...]:
        """The tokens of b."""
        return self.b.tokens

    @property
    def row_relevance(self) -> Tensor:
        """[tokens of a]: with all that stands in b, its biases and constants too."""
        return self.matrix.sum(1) + self.row_rest

    @property
    def column_relevance(self) -> Tensor:
        """[tokens of b]: with all that stands in a."""
        return self.matrix.sum(0) + self.column_rest

    def tokens(self) -> WordMatrix:
        """Token by token: the matrix with its rows and columns."""
        return WordMatrix(self.rows, self.columns, self.matrix)

    def words(self) -> WordMatrix:
        """Word by word: sub-words are summed, a special token is a word of its own."""
        rows, down = self.a.group_words()
        columns, across = self.b.group_words()
        return WordMatrix(tuple(rows), tuple(columns), down @ self.matrix.double() @ across.T)

    def row_words(self) -> list[Word]:
        """The words of a with what each does in all."""
        return self.a.words(self.row_relevance)

    def column_words(self) -> list[Word]:
        """The words of b with what each does in all."""
        return self.b.words(self.column_relevance)

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON; `from_dict` gives the result back."""
        return {
            **self._stamp(),
            "score": self.score,
            **{name: getattr(self, name) for name in PLAIN},
            "a": asdict(self.a),
            "b": asdict(self.b),
            **{name: getattr(self, name).tolist() for name in TENSORS},
            "remainder": self.remainder,
            **({} if self.matches is None else {"matches": list(self.matches)}),
            "relevance_dtype": name_dtype(self.matrix),
            "ledger": self.ledger.to_dict(),
            "provenance": self.provenance.to_dict(),
        }

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Similarity:
        """The result again: `found` is what `to_dict` gave, also where it went through JSON."""
        cls._check_stamp(found)
        plain: dict[str, Any] = {name: found[name] for name in PLAIN}
        plain |= {name: read_tensor(found[name], found["relevance_dtype"]) for name in TENSORS}
        return cls(
            **plain,
            a=ComparedText.from_dict(found["a"]),
            b=ComparedText.from_dict(found["b"]),
            ledger=Ledger.from_dict(found["ledger"]),
            provenance=Provenance(**found["provenance"]),
            matches=tuple(found["matches"]) if "matches" in found else None,
            remainder=found.get("remainder", 0.0 if found["rank"] == found["dimensions"] else None),
        )


PLAIN = ("measure", "rank", "dimensions", "method")
TENSORS = ("matrix", "row_rest", "column_rest")
