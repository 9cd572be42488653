"""The result of explaining generated text: a value, with no model behind it and nothing left to compute.

Relevance is additive, so that sums of rows, of columns and of ledgers are exact: words, sentences, roles and the whole
answer are sums of what is here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import UsageError, check_integer
from .display import Plotted, Shown
from .explanation import Explanation, Provenance
from .files import Saved, name_dtype, read_tensor
from .ledger import SINK, SPECIAL, Ledger, Lines
from .readable import name_piece
from .verdict import Phrase, Unit, VerdictSentence, judge, percent

if TYPE_CHECKING:
    from torch import Tensor

OUTPUT_OF = {
    "logprob": "log-probability",
    "advantage": "advantage",
}  # scores that are no logit, nor a difference of two
ENDS = (".", "!", "?", "…", "。", "！", "？")
JOINING = "'’-_"
CLOSING = "\"'”’)]»"


@dataclass(frozen=True)
class Contribution:
    """What one token gave to a score; `position` counts from the first token of the prompt."""

    text: str
    relevance: float
    position: int
    role: str


@dataclass(frozen=True)
class Alternative:
    """A token that could have stood in the place of an output token, and the model's probability of it there."""

    text: str
    probability: float


@dataclass(frozen=True, eq=False)
class Generation(Shown, Plotted, Saved):
    """How much each token of the prompt, and each earlier token of the output, contributed to every output token.

    `relevance` is [outputs, tokens], the prompt's tokens first, then the output's own; it has the unit of `scores`. A
    row has zeros from its own token on: a token comes from what stands before it. `ledgers` has one for every row, and
    the row's sum is its `inputs`. `pieces` are the tokens as text, with the space before them, so that they join to the
    text. `aside` marks tokens whose relevance was moved to a line of the ledger. `role` is "prompt", or a chat's role
    or "template", or an encoder's "source" and the "start" of its decoder; and "output". `alternatives` has for every
    output token the likeliest tokens in its place; for a word, those in the place of its first token.
    """

    kind: ClassVar[str] = "generation"

    tokens: tuple[str, ...]  # of the prompt, then of the output
    pieces: tuple[str, ...]  # the tokens as text
    prompt: int  # how many tokens the prompt has
    relevance: Tensor  # [outputs, tokens]
    ledgers: tuple[Ledger, ...]  # one for each output token
    targets: tuple[str, ...]  # what each row is of
    probabilities: tuple[float, ...]  # the model's, of each output token
    score: str  # which score was explained
    method: str  # that was used, by the name that gives the same numbers again
    provenance: Provenance  # what is needed to repeat it
    roles: tuple[str, ...] = ()  # whose each token is
    special: tuple[bool, ...] = ()  # whether a token is special ([CLS], <s>)
    aside: tuple[bool, ...] = ()  # whether relevance of a token was moved to the ledger
    at: str = "embeddings"  # where relevance was read
    unit: str = "token"  # "token", "word" or "sentence"
    rules_met: tuple[tuple[str, int], ...] = ()  # how often each rule acted
    alternatives: tuple[tuple[Alternative, ...], ...] = ()  # the likeliest tokens in the place of each

    def __len__(self) -> int:
        """How many output tokens (or words, or sentences) there are."""
        return len(self.ledgers)

    @property
    def scores(self) -> tuple[float, ...]:
        """The score of every output token."""
        return tuple(ledger.score for ledger in self.ledgers)

    @property
    def output(self) -> tuple[str, ...]:
        """The generated tokens, as text."""
        return self.pieces[self.prompt :]

    @property
    def text(self) -> str:
        """What was generated, in one piece."""
        return "".join(self.output)

    def row(self, output: int | str) -> int:
        """The number of the token `output`, which is given by number (negative from the end) or by its text."""
        if isinstance(output, str):
            found = [i for i, piece in enumerate(self.output) if piece.strip() == output.strip()]
            if not found:
                raise UsageError(f"{output!r} is no {self.unit} of the output: {', '.join(map(repr, self.output))}.")
            return found[0]
        output = check_integer(f"the number of an output {self.unit}", output)
        if not -len(self) <= output < len(self):
            raise UsageError(f"no output {self.unit} {output}: there are {len(self)}.")
        return output % len(self)

    def top(self, output: int | str = 0, count: int | None = 5) -> list[Contribution]:
        """What contributed most to the token `output`, by size, whatever its sign; `count` None gives everything."""
        row = self.relevance[self.row(output)].tolist()
        shown = [i for i in range(self._visible_columns(self.row(output))) if not self.aside[i]]
        order = sorted(shown, key=lambda i: -abs(row[i]))[:count]
        return [Contribution(self.pieces[i], row[i], i, self.roles[i]) for i in order]

    def by_role(self, output: int | str = 0) -> dict[str, float]:
        """The relevance for the token `output` of all tokens of a role; they add up to the ledger's `inputs`."""
        sums: dict[str, float] = {}
        for role, amount in zip(self.roles, self.relevance[self.row(output)].double().tolist(), strict=True):
            sums[role] = sums.get(role, 0.0) + amount
        return sums

    def explanation(self, output: int | str = 0) -> Explanation:
        """The token `output` on its own: what stands before it, its score, its ledger."""
        row = self.row(output)
        made = self._as_explanation(
            self._visible_columns(row), self.relevance[row], self.ledgers[row], self.targets[row]
        )
        said = self.output[row].strip(" ") or self.output[row]
        named = self.targets[row] if self.score != "contrast" else said
        return replace(made, probabilities={named: self.probabilities[row]})

    def verdict(self, output: int | str = 0) -> VerdictSentence:
        """What the token `output` came from, in one sentence."""
        number = self.row(output)
        row = self.relevance[number].tolist()[: self._visible_columns(number)]
        units = [
            Unit(name_piece(self.pieces[i]), value, self.special[i] or self.aside[i]) for i, value in enumerate(row)
        ]
        said = name_piece(self.output[number])
        head = (Phrase(said, True), Phrase(f" ({percent(self.probabilities[number])})"))
        return judge(head, units, self.ledgers[number], self.method, self.unit)

    def _visible_columns(self, row: int) -> int:
        """How many columns can have relevance: what stands before, and of a word or sentence its own beginning."""
        return self.prompt + row + (self.unit != "token")

    def whole(self) -> Explanation:
        """The whole answer as one score, the sum of its tokens' scores; of "logprob" that is its log-probability."""
        made = self._as_explanation(len(self.tokens), self.relevance.sum(0), sum_ledgers(self.ledgers), self.text)
        return replace(made, probabilities={self.text: math.prod(self.probabilities)})

    def _as_explanation(self, length: int, relevance: Tensor, ledger: Ledger, target: str) -> Explanation:
        roles = self.roles[:length]
        return Explanation(
            tokens=self.tokens[:length],
            relevance=relevance[:length],
            score=ledger.score,
            target=target,
            ledger=ledger,
            method=self.method,
            provenance=self.provenance,
            text="".join(self.pieces[:length]),
            output=OUTPUT_OF.get(self.score, "logit"),
            at=self.at,
            special=self.special[:length],
            segments=roles if len({*roles}) > 1 else (),
            rules_met=self.rules_met,
        )

    def words(self) -> Generation:
        """Tokens summed to words, those of the output too: a word's score is the sum of its tokens' scores."""
        return self.grouped(self.word_spans(), "word")

    def word_spans(self) -> list[list[int]]:
        """The numbers of the tokens of each word, in order."""
        return self._groups(begins_word)

    def sentences(self) -> Generation:
        """Tokens summed to sentences, those of the output too."""
        return self.grouped(self._groups(lambda piece, before: ends_sentence(before)), "sentence")

    def _groups(self, begins: Callable[[str, str], bool]) -> list[list[int]]:
        """Runs of tokens; a special token, another role and the output's beginning start a new one.

        Tokens without text stay with the one that ends their character.
        """
        groups: list[list[int]] = []
        ends = list(self.pieces)  # of every token, the text of the one that ends its character
        for i in reversed(range(len(ends) - 1)):
            ends[i] = ends[i] or ends[i + 1]
        for i in range(len(self.pieces)):
            alone = i == 0 or self.special[i] or self.special[i - 1] or self.aside[i] or self.aside[i - 1]
            before = self.pieces[i - 1]
            first = bool(before) and begins(ends[i], before)
            if alone or i == self.prompt or self.roles[i] != self.roles[i - 1] or first:
                groups.append([])
            groups[-1].append(i)
        return groups

    def grouped(self, groups: Sequence[Sequence[int]], unit: str = "span") -> Generation:
        """Tokens summed to `groups`, runs of tokens that must cover all, in order; `unit` is what each is called."""
        if [i for group in groups for i in group] != list(range(len(self.tokens))):
            raise UsageError("spans must cover every token once, in order.")
        rows = [[i - self.prompt for i in group] for group in groups if group[0] >= self.prompt]
        if sum(map(len, rows)) != len(self):
            raise UsageError("a span holds tokens of the prompt or of the output, not of both.")
        columns = [self.relevance[:, list(group)].sum(1) for group in groups]
        by_column = columns[0].new_zeros(len(self), len(groups))
        for k, column in enumerate(columns):
            by_column[:, k] = column
        relevance = by_column.new_zeros(len(rows), len(groups))
        for k, row in enumerate(rows):
            relevance[k] = by_column[row].sum(0)
        first = [group[0] for group in groups]
        joined = tuple("".join(self.pieces[i] for i in group) for group in groups)
        return replace(
            self,
            tokens=joined,
            pieces=joined,
            prompt=len(groups) - len(rows),
            relevance=relevance,
            ledgers=tuple(sum_ledgers([self.ledgers[i] for i in row]) for row in rows),
            targets=tuple(self.targets[row[0]] if len(row) == 1 else self._join_output(row) for row in rows),
            probabilities=tuple(math.prod(self.probabilities[i] for i in row) for row in rows),
            alternatives=tuple(self.alternatives[row[0]] for row in rows) if self.alternatives else (),
            roles=tuple(self.roles[i] for i in first),
            special=tuple(self.special[i] for i in first),
            aside=tuple(self.aside[i] for i in first),
            unit=unit,
        )

    def _join_output(self, row: Sequence[int]) -> str:
        return "".join(self.output[i] for i in row).strip()

    def set_aside(self, *, sinks: bool = False, special: bool = False) -> Generation:
        """The same, with the relevance of some tokens moved from them to lines of the ledger, which still adds up.

        `sinks`: the first token that the model reads, on which attention that has nowhere to go comes to rest
        whatever word it is (in an encoder-decoder, the decoder's start). `special`: special tokens.
        """
        lines = lines_aside(self.aside, [self._sink()] if sinks else [], self.special if special else ())
        moved = [i for places in lines.values() for i in places]
        if not moved:
            return self
        relevance = self.relevance.clone()
        relevance[:, moved] = 0
        ledgers = tuple(
            ledger.with_aside({name: float(row[at].double().sum()) for name, at in lines.items() if at})
            for ledger, row in zip(self.ledgers, self.relevance, strict=True)
        )
        aside = tuple(was or i in moved for i, was in enumerate(self.aside))
        return replace(self, relevance=relevance, ledgers=ledgers, aside=aside)

    def _sink(self) -> int:
        return self.roles.index("start") if "start" in self.roles else 0

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON; `from_dict` gives the generation back."""
        return {
            **self._stamp(),
            "text": self.text,
            "tokens": list(self.tokens),
            "pieces": list(self.pieces),
            "prompt": self.prompt,
            "roles": list(self.roles),
            "special": list(self.special),
            "aside": list(self.aside),
            "relevance": self.relevance.tolist(),
            "relevance_dtype": name_dtype(self.relevance),
            "targets": list(self.targets),
            "probabilities": list(self.probabilities),
            "alternatives": [[[one.text, one.probability] for one in some] for some in self.alternatives],
            "ledgers": [ledger.to_dict() for ledger in self.ledgers],
            "score": self.score,
            "method": self.method,
            "at": self.at,
            "unit": self.unit,
            "rules_met": dict(self.rules_met),
            "provenance": self.provenance.to_dict(),
        }

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> Generation:
        cls._check_stamp(found)
        names = ("tokens", "pieces", "roles", "special", "aside", "targets", "probabilities")
        plain: dict[str, Any] = {name: found[name] for name in ("prompt", "score", "method", "at", "unit")}
        plain |= {name: tuple(found[name]) for name in names}
        return cls(
            **plain,
            relevance=read_tensor(found["relevance"], found.get("relevance_dtype", "float64")),
            ledgers=tuple(map(Ledger.from_dict, found["ledgers"])),
            rules_met=tuple(found["rules_met"].items()),
            alternatives=tuple(tuple(Alternative(*one) for one in some) for some in found.get("alternatives", [])),
            provenance=Provenance(**found["provenance"]),
        )


def begins_word(piece: str, before: str) -> bool:
    """Whether a word begins with this token: after a space, and where letters and other signs meet."""
    return piece[:1].isspace() or before[-1:].isspace() or in_word(piece[:1]) != in_word(before[-1:])


def in_word(letter: str) -> bool:
    return letter.isalnum() or letter in JOINING


def ends_sentence(piece: str) -> bool:
    """Whether a sentence ends with this token. An abbreviation's full stop counts: only a grammar would know."""
    return "\n" in piece or piece.strip().rstrip(CLOSING).endswith(ENDS)


def sum_ledgers(ledgers: Sequence[Ledger]) -> Ledger:
    """The ledger of the sum of several scores: line by line."""
    return Ledger(
        score=sum(one.score for one in ledgers),
        inputs=sum(one.inputs for one in ledgers),
        biases=_sum_lines(one.biases for one in ledgers),
        constants=_sum_lines(one.constants for one in ledgers),
        readout=sum(one.readout for one in ledgers),
        dtype=ledgers[0].dtype,
        magnitude=sum(one.magnitude for one in ledgers),
        cut_off=_sum_lines(one.cut_off for one in ledgers),
        held=_sum_lines(one.held for one in ledgers),
        spread=sum(one.spread for one in ledgers),
        cut_size=sum(one.cut_size for one in ledgers),
    )


def _sum_lines(lines: Iterable[Lines]) -> Lines:
    sums: dict[str, float] = {}
    for one in lines:
        for name, amount in one.items():
            sums[name] = sums.get(name, 0.0) + amount
    return Lines(sums)


def lines_aside(aside: Sequence[bool], sinks: Sequence[int], special: Sequence[bool]) -> dict[str, list[int]]:
    """The tokens that move to each line of the ledger: not those that were moved before, and each to one line."""
    own = [i for i in sinks if not aside[i]]
    return {SINK: own, SPECIAL: [i for i, yes in enumerate(special) if yes and not aside[i] and i not in own]}
