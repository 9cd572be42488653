"""What a span of a model's answer came from: values, with no model behind them and nothing left to compute."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from ..errors import UsageError
from .display import Shown
from .explanation import Explanation, Provenance
from .files import Saved, name_dtype, read_tensor
from .generation import OUTPUT_OF, Generation, lines_aside, sum_ledgers
from .ledger import Ledger, Lines

if TYPE_CHECKING:
    from torch import Tensor

OUTPUT, START = "output", "start"
Tracer = Callable[["SpanExplanation", "int | None"], "SpanExplanation"]


@dataclass(frozen=True)
class TextSentence:
    """A sentence that tokens stand in. `document` and `turn` are the numbers of the document and of the chat's turn
    that it is from, counted from 0.
    """

    text: str
    role: str
    document: int | None = None
    turn: int | None = None


@dataclass(frozen=True)
class SourceSentence:
    """What one sentence gave to a span; `number` is that of its place among all sentences of prompt and answer."""

    text: str
    relevance: float
    role: str
    document: int | None
    number: int


@dataclass(frozen=True, eq=False)
class SpanExplanation(Shown, Saved):
    """How much each token of the prompt, and of the answer so far, contributed to one span of the answer.

    The score is the sum of the scores of the span's tokens. `relevance` has one number per token, the prompt's first,
    then the answer's; it has the unit of `score`, and its sum is `ledger.inputs`. `first` and `last` are the span's own
    tokens among `tokens`; from `last` on, relevance is zero. `passages` are the sentences of prompt and answer, `place`
    has the number of its sentence for every token. `log_probability` is the model's of the whole span, given what
    stands before it. `aside` marks tokens whose relevance was moved to a line of the ledger.
    """

    kind: ClassVar[str] = "span"

    text: str  # the span
    tokens: tuple[str, ...]  # of the prompt, then of the answer
    pieces: tuple[str, ...]  # the tokens as text
    relevance: Tensor  # one number per token
    ledger: Ledger  # the lines that add up to the score
    first: int  # the span's first token
    last: int  # the token behind its last
    passages: tuple[TextSentence, ...]  # sentences of prompt and answer
    place: tuple[int, ...]  # the sentence of each token, by number
    documents: tuple[str, ...]  # names of the documents
    log_probability: float  # of the whole span
    score_name: str  # which score was explained
    method: str  # that was used, by the name that gives the same numbers again
    provenance: Provenance  # what is needed to repeat it
    special: tuple[bool, ...] = ()  # whether a token is special ([CLS], <s>)
    aside: tuple[bool, ...] = ()  # whether relevance of a token was moved to the ledger
    at: str = "embeddings"  # where relevance was read
    rules_met: tuple[tuple[str, int], ...] = ()  # how often each rule acted
    traced: bool = False  # whether relevance of the model's own words was passed on
    hops: tuple[Ledger, ...] = ()  # of each time that it was: what was passed on, as a score with its lines
    tracer: Tracer | None = field(default=None, compare=False, repr=False)  # asks the model; no part of the value

    @property
    def score(self) -> float:
        """The sum of the scores of the span's tokens."""
        return self.ledger.score

    @property
    def roles(self) -> tuple[str, ...]:
        """Of every token: "document", "question", a chat's role, "prompt" or "template" for other words, "output"."""
        return tuple(self.passages[number].role for number in self.place)

    def by_role(self) -> dict[str, float]:
        """The relevance of all tokens of a role together. They add up to the ledger's `inputs`."""
        return self._sum([place.role for place in self.passages])

    def by_document(self) -> dict[str, float]:
        """The relevance of every document by its name, one without tokens too. They add up to the role "document"."""
        names: list[str | None] = [
            None if place.document is None else self.documents[place.document] for place in self.passages
        ]
        found = self._sum(names)
        return {name: found.get(name, 0.0) for name in self.documents}

    def by_sentence(self) -> list[SourceSentence]:
        """The relevance of every sentence of the prompt and of the answer, in order. They add up to `inputs`."""
        sums = self._sum(list(range(len(self.passages))))
        return [
            SourceSentence(place.text, sums.get(number, 0.0), place.role, place.document, number)
            for number, place in enumerate(self.passages)
        ]

    def _sum(self, keys: list[Any]) -> dict[Any, float]:
        sums: dict[Any, float] = {}
        for number, amount in zip(self.place, self.relevance.double().tolist(), strict=True):
            sums[keys[number]] = sums.get(keys[number], 0.0) + amount
        return sums

    def set_aside(self, *, sinks: bool = False, special: bool = False) -> SpanExplanation:
        """The same, with the relevance of the attention sink (`sinks`) or of `special` tokens moved to lines of the
        ledger.
        """
        roles = self.roles
        sink = roles.index(START) if START in roles else 0
        lines = lines_aside(self.aside, [sink] if sinks else [], self.special if special else ())
        moved = [i for places in lines.values() for i in places]
        if not moved:
            return self
        relevance = self.relevance.clone()
        relevance[moved] = 0
        amounts = {name: float(self.relevance[at].double().sum()) for name, at in lines.items() if at}
        aside = tuple(was or i in moved for i, was in enumerate(self.aside))
        return replace(self, relevance=relevance, ledger=self.ledger.with_aside(amounts), aside=aside)

    def through(self, tokens: Generation | None = None, *, hops: int | None = None) -> SpanExplanation:
        """The same, with what ended on the model's own earlier words passed on to what these came from.

        Hop by hop: with r_j the relevance of output token j and s_j its score, the next backward pass explains the sum
        of s_j r_j / s_j, with 1 / s_j held fixed, which is all that these tokens have. `hops` are at most so many; by
        default they end where the model's own words have less than a thousandth of the relevance. Each is a ledger in
        `hops`. It asks the model, so a span that was read from a file needs `tokens`.

        `tokens` is the same answer, explained token by token. With R the relevance of its rows, s their scores and A =
        R / s on the output's own columns, the weights of the rows are w = r (I - A)^-1, a triangular system. A token
        whose score is a small difference of large parts would pass on many times what it got: it keeps its share.
        """
        if tokens is not None:
            if hops is not None:
                raise UsageError("with tokens= all is passed on at once: hops= has no place beside it.")
            return pass_on(self, tokens)
        if self.tracer is None:
            raise UsageError("this span has no model behind it: give the answer's tokens, a.tokens().")
        return self.tracer(self, hops)

    def __getstate__(self) -> dict[str, Any]:
        """A copy, or what goes to another process, is the value without the model."""
        return {**self.__dict__, "tracer": None}

    def as_explanation(self) -> Explanation:
        """The same as an `Explanation`, which can be drawn: what stands before the span's last token."""
        count = max(1, self.last)
        return Explanation(
            tokens=self.tokens[:count],
            relevance=self.relevance[:count],
            score=self.score,
            target=self.text,
            ledger=self.ledger,
            method=self.method,
            provenance=self.provenance,
            text="".join(self.pieces[:count]),
            output=OUTPUT_OF.get(self.score_name, "logit"),
            at=self.at,
            special=self.special[:count],
            segments=self.roles[:count],
            rules_met=self.rules_met,
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain types, ready for JSON; `from_dict` gives the span back."""
        same = ("text", "first", "last", "log_probability", "score_name", "method", "at", "traced")
        lists = ("tokens", "pieces", "place", "documents", "special", "aside")
        return {
            **self._stamp(),
            **{name: getattr(self, name) for name in same},
            **{name: list(getattr(self, name)) for name in lists},
            "score": self.score,
            "by_document": self.by_document(),
            "by_role": self.by_role(),
            "relevance": self.relevance.tolist(),
            "relevance_dtype": name_dtype(self.relevance),
            "passages": [asdict(place) for place in self.passages],
            "ledger": self.ledger.to_dict(),
            "hops": [one.to_dict() for one in self.hops],
            "rules_met": dict(self.rules_met),
            "provenance": self.provenance.to_dict(),
        }

    @classmethod
    def from_dict(cls, found: dict[str, Any]) -> SpanExplanation:
        """The result again: `found` is what `to_dict` gave, also where it went through JSON."""
        cls._check_stamp(found)
        same = ("text", "first", "last", "log_probability", "score_name", "method", "at", "traced")
        lists = ("tokens", "pieces", "place", "documents", "special", "aside")
        plain: dict[str, Any] = {name: found[name] for name in same} | {name: tuple(found[name]) for name in lists}
        return cls(
            **plain,
            relevance=read_tensor(found["relevance"], found["relevance_dtype"]),
            passages=tuple(TextSentence(**place) for place in found["passages"]),
            ledger=Ledger.from_dict(found["ledger"]),
            hops=tuple(map(Ledger.from_dict, found.get("hops", ()))),
            rules_met=tuple(found["rules_met"].items()),
            provenance=Provenance(**found["provenance"]),
        )


LEAST = 0.05  # of the absolute sum of a token's relevance: a smaller score is too small to divide by


def pass_on(span: SpanExplanation, tokens: Generation) -> SpanExplanation:
    """A span with the relevance of generated tokens traced on; its ledger has the lines of the tokens on the way."""
    if tokens.tokens != span.tokens or tokens.unit != "token":
        raise UsageError("what is passed on needs the same prompt and answer, explained token by token.")
    relevance, ledgers = span.relevance.double().clone(), [span.ledger]
    for row in reversed(range(span.last - tokens.prompt)):  # the last written first: it has its share from later ones
        ledger, place = tokens.ledgers[row], tokens.prompt + row
        amount, given = float(relevance[place]), tokens.relevance[row].double()
        if amount == 0 or abs(ledger.score) < LEAST * float(given.abs().sum()):
            continue
        weight = amount / ledger.score
        relevance[place] = 0
        relevance += weight * given
        ledgers.append(scale_ledger(ledger, weight))
    summed = sum_ledgers(ledgers)
    spread, inputs = float(relevance.abs().sum()), float(relevance.sum())
    return replace(
        span, relevance=relevance, ledger=replace(summed, score=span.score, inputs=inputs, spread=spread), traced=True
    )


def add_hop(span: SpanExplanation, hop: SpanExplanation, passed: Sequence[int]) -> SpanExplanation:
    """A span with the relevance of these tokens replaced by a hop: the explanation of that amount as a score."""
    kept = span.relevance.double().clone()
    kept[list(passed)] = 0
    relevance = kept + hop.relevance.double()
    summed = sum_ledgers([span.ledger, hop.ledger])
    spread, inputs = float(relevance.abs().sum()), float(relevance.sum())
    ledger = replace(summed, score=span.score, inputs=inputs, spread=spread)
    return replace(span, relevance=relevance, ledger=ledger, traced=True, hops=(*span.hops, hop.ledger))


def scale_ledger(ledger: Ledger, weight: float) -> Ledger:
    """The ledger of a score that is multiplied by a number; what measures sizes stays positive."""
    lines = {
        name: Lines({line: weight * amount for line, amount in getattr(ledger, name).items()})
        for name in ("biases", "constants", "cut_off", "held")
    }
    numbers = {name: weight * getattr(ledger, name) for name in ("score", "inputs", "readout")}
    sizes = {name: abs(weight) * getattr(ledger, name) for name in ("magnitude", "spread", "cut_size")}
    return replace(ledger, **lines, **numbers, **sizes)  # type: ignore[arg-type]
