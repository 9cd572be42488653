"""A result in one sentence of plain words: what was predicted, and what it is mostly because of.

"99.7 % positive, mostly because of *wonderful*; *thin* speaks against it". A verdict says no more than the ledger
does: where a method leaves most of the score unaccounted for, or biases give most of it, that is the verdict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from .ledger import BASELINE_SCORE, SINK, SPECIAL, Ledger
from .meanings import kind_of_line
from .picture import Picture
from .readable import readable, visible
from .words import HasTokens, words_of

Cause = Literal["inputs", "spread", "against", "fixed", "unaccounted", "nothing"]
MOST = 3  # inputs that a sentence names
MOSTLY = 0.5  # of all that adds: what the named ones must have together, to be why
OPPOSED = 1 / 3  # of what adds: from there on, what takes away is named as well
LOUD = 0.25  # of the largest that adds: less is not worth a name
ASIDE = (SINK, SPECIAL, "attention offset")  # lines of constants that depend on the input
OPEN = 0.5  # of the score: past that, what is unaccounted for is the verdict
THIRDS = (("upper left", "top", "upper right"), ("left", "middle", "right"), ("lower left", "bottom", "lower right"))


@dataclass(frozen=True)
class Phrase:
    """A part of the sentence. `named`: it is a word, a patch or an atom of the input, or a method, and stands out."""

    text: str
    named: bool = False


def write_phrases(phrases: Sequence[Phrase]) -> str:
    """The sentence, with stars around what stands out."""
    return "".join(f"*{part.text}*" if part.named else part.text for part in phrases)


@dataclass(frozen=True)
class VerdictSentence:
    """The sentence in parts. `adds` and `against` are the inputs that it names, `cause` is what it says is why.

    "inputs": some of them add most. "spread": no few of them do. "against": none adds. "fixed": what does not depend on
    the input does (biases, constants, special tokens). "unaccounted": the method cannot say. "nothing": no input has
    relevance.
    """

    phrases: tuple[Phrase, ...]
    cause: Cause
    adds: tuple[str, ...] = ()
    against: tuple[str, ...] = ()

    def __str__(self) -> str:
        return write_phrases(self.phrases)


@dataclass(frozen=True)
class Unit:
    """An input by the name that a sentence can use; `special` ones are never named."""

    name: str
    relevance: float
    special: bool = False


class HasScore(HasTokens, Protocol):
    """What is read of an explanation."""

    @property
    def ledger(self) -> Ledger: ...
    @property
    def method(self) -> str: ...
    @property
    def score(self) -> float: ...
    @property
    def target(self) -> str: ...
    @property
    def prediction(self) -> str | None: ...
    @property
    def output(self) -> str: ...
    @property
    def segments(self) -> tuple[str, ...]: ...
    @property
    def image(self) -> Picture | None: ...


def explanation_verdict(e: HasScore, probability: float | None = None) -> VerdictSentence:
    """What an explanation says. `probability` is that of the prediction, where the explanation does not know it."""
    units, kind = units_of(e)
    return judge(head_of(e, probability), units, e.ledger, e.method, kind, names_another_class(e))


def units_of(e: HasScore) -> tuple[list[Unit], str]:
    """The inputs by name, and what one of them is called: words where the tokenizer tells them, regions of an image."""
    if e.image is not None:
        return regions_of(e.relevance.reshape(e.image.grid.rows, e.image.grid.columns).tolist()), "part of the image"
    if not e.tokens or len(e.tokens) != len(e.relevance):
        return entries_of(e), "entry"
    if e.offsets is not None and not e.segments and len(e.offsets) == len(e.tokens):
        return [Unit(visible(w.text), w.relevance, w.start == w.end) for w in words_of(e)], "word"
    values = e.relevance.tolist() if e.relevance.ndim == 1 else e.relevance.flatten(1).sum(1).tolist()
    if not e.special:
        return [Unit(f"{visible(token)} {i}", v) for i, (token, v) in enumerate(zip(e.tokens, values, strict=True))], (
            "atom" if isinstance(e.text, str) else "node"
        )
    special = [*e.special, *[False] * len(e.tokens)]
    return [Unit(readable(t), v, s) for t, v, s in zip(e.tokens, values, special, strict=False)], "token"


def regions_of(rows: Sequence[Sequence[float]]) -> list[Unit]:
    """The patches of an image summed to nine parts of it. A grid too small for that is named by rows and columns."""
    height, width = len(rows), len(rows[0])
    if height < 3 or width < 3:
        return [
            Unit(f"row {r + 1}, column {c + 1}", value) for r, row in enumerate(rows) for c, value in enumerate(row)
        ]
    sums = {name: 0.0 for line in THIRDS for name in line}
    for r, row in enumerate(rows):
        for c, value in enumerate(row):
            sums[THIRDS[r * 3 // height][c * 3 // width]] += value
    return [Unit(f"the {name}", value) for name, value in sums.items()]


def entries_of(e: HasScore) -> list[Unit]:
    """The numbers of a bare tensor, each by its place."""
    shape, found = tuple(e.relevance.shape), []
    for flat, value in enumerate(e.relevance.flatten().tolist()):
        place = []
        left = flat
        for size in reversed(shape):
            left, at = divmod(left, size)
            place.append(at)
        found.append(Unit(f"[{', '.join(map(str, reversed(place)))}]", value))
    return found


def head_of(e: HasScore, probability: float | None) -> tuple[Phrase, ...]:
    """What was predicted; with its probability where that is known."""
    given = probability if probability is not None else probability_in(e)
    first, _, second = e.target.partition(" - ")
    if e.prediction is None:
        return (Phrase(f"{readable(e.target)} {amount(e.score)}"),)
    said = readable(e.prediction) if given is None else f"{percent(given)} {readable(e.prediction)}"
    if second and e.prediction != e.target:
        start = f"{said}, " if first == e.prediction else f"{said}. {readable(first)} "
        return (Phrase(f"{start}rather than {readable(second)} ({amount(e.score)})"),)
    if names_another_class(e):
        return (Phrase(f"{said}. {readable(e.target)} ({amount(e.score)})"),)
    return (Phrase(said if given is not None else f"{said} ({amount(e.score)})"),)


def names_another_class(e: HasScore) -> bool:
    """Whether something else than the prediction is explained: then "it" is what is explained."""
    return e.prediction is not None and e.prediction != e.target


def probability_in(e: HasScore) -> float | None:
    """The probability of the prediction, where the explanation has it."""
    known = getattr(e, "probabilities", None)
    if known and e.prediction in known:
        return float(known[e.prediction])
    if names_another_class(e):
        return None
    if e.output == "probability":
        return e.score
    return math.exp(e.score) if e.output == "log-probability" and e.score <= 0 else None


@dataclass(frozen=True)
class Balance:
    """What adds to the score and what takes away, each by size, and what does not depend on the input."""

    gains: tuple[Unit, ...]
    losses: tuple[Unit, ...]
    fixed: float

    @classmethod
    def of(cls, units: Sequence[Unit], ledger: Ledger) -> Balance:
        """The readout is left out: it says how a score is read off the model, not where it comes from. So is
        what was set aside, and the score of the baseline, from which the inputs' own parts are counted."""
        plain = [u for u in units if not u.special]
        special = sum(u.relevance for u in units if u.special)
        fixed = sum(lines.total for lines in ledger.groups.values()) - set_aside(ledger) - start_of(ledger) + special
        return cls(
            tuple(sorted((u for u in plain if u.relevance > 0), key=lambda u: -u.relevance)),
            tuple(sorted((u for u in plain if u.relevance < 0), key=lambda u: u.relevance)),
            fixed,
        )

    def turned(self) -> Balance:
        """The same for a score that is explained by what holds it down."""
        return Balance(self.losses, self.gains, -self.fixed)

    @property
    def plus(self) -> float:
        return sum(abs(u.relevance) for u in self.gains)

    @property
    def minus(self) -> float:
        return sum(abs(u.relevance) for u in self.losses)

    @property
    def opposed(self) -> bool:
        """Whether what takes away is worth a name."""
        enough = self.minus >= OPPOSED * self.plus
        return enough and abs(self.losses[0].relevance) >= LOUD * abs(self.gains[0].relevance)


def judge(
    head: tuple[Phrase, ...], units: Sequence[Unit], ledger: Ledger, method: str, kind: str, about_it: bool = False
) -> VerdictSentence:
    """The sentence: its head, and why."""
    found = Balance.of(units, ledger)
    if not ledger.closed and not abs(ledger.unaccounted) <= OPEN * abs(ledger.score):
        left = f": it leaves {amount(ledger.unaccounted, ledger.score)} of {amount(ledger.score)} unaccounted for"
        return VerdictSentence(
            (*head, Phrase("; "), Phrase(method, True), Phrase(f" cannot say why{left}")), "unaccounted"
        )
    say, start, aside = AFTER if about_it else DIRECT, start_of(ledger), set_aside(ledger)
    if about_it and ledger.score < 0:
        say, found, start, aside = HELD_DOWN, found.turned(), -start, -aside
    if start > found.plus:
        already = f"{amount(start_of(ledger), ledger.score)} of {amount(ledger.score)}"
        empty = "unknown words" if kind == "word" else "an empty input"
        head = (*head, Phrase(f", {already} already for {empty}"))
    if max(start, aside) > found.plus:  # the named ones are then not why, but why among their like
        say = replace(say, because=f"; among the {kind}s{say.because.lstrip(',:')}")
    return with_reasons(head, found, units, ledger, kind, say)


@dataclass(frozen=True)
class Wording:
    """How reasons are said: of a prediction, of another class, or of a score that is held down."""

    because: str
    adds: str
    against: str


DIRECT = Wording(", mostly because of ", "adds", "against it")
AFTER = Wording(": mostly because of ", "adds", "against it")
HELD_DOWN = Wording(": held down mostly by ", "takes away", "for it")


def with_reasons(
    head: tuple[Phrase, ...], found: Balance, units: Sequence[Unit], ledger: Ledger, kind: str, say: Wording
) -> VerdictSentence:
    if found.fixed > found.plus:
        said = f"{name_fixed_line(units, ledger, say)}, whatever the input is"
        most = tuple(unit.name for unit in found.gains[:1])
        more = [Phrase("; of the input, "), Phrase(most[0], True), Phrase(f" {say.adds} most")] if most else []
        return VerdictSentence((*head, Phrase(say.because + said), *more), "fixed", most)
    return with_gains(head, found, kind, say) if found.gains else without_gains(head, found, kind, say)


def without_gains(head: tuple[Phrase, ...], found: Balance, kind: str, say: Wording) -> VerdictSentence:
    if not found.losses:
        return VerdictSentence((*head, Phrase(f"; no {kind} makes a difference")), "nothing")
    name = found.losses[0].name
    said = (Phrase(f"; no {kind} {say.adds}, "), Phrase(name, True), Phrase(f" speaks most {say.against}"))
    return VerdictSentence((*head, *said), "against", against=(name,))


def with_gains(head: tuple[Phrase, ...], found: Balance, kind: str, say: Wording) -> VerdictSentence:
    carried = name_largest(found.gains, found.plus, MOST)
    cause: Cause = "inputs" if carried else "spread"
    carried = carried or (found.gains[0].name,)
    why = (
        (Phrase(say.because), *list_names(carried))
        if cause == "inputs"
        else (Phrase(f"; no {kind} stands out, "), Phrase(carried[0], True), Phrase(f" {say.adds} most"))
    )
    if not found.opposed:
        return VerdictSentence((*head, *why), cause, carried)
    against = name_largest(found.losses, found.minus, 2) or (found.losses[0].name,)
    speaks = f" speak{'s' if len(against) == 1 else ''} {say.against}"
    return VerdictSentence((*head, *why, Phrase("; "), *list_names(against), Phrase(speaks)), cause, carried, against)


def set_aside(ledger: Ledger) -> float:
    """What is among the constants and depends on the input all the same: no single input has it."""
    return sum(amount for name, amount in ledger.constants.items() if kind_of_line(name) in ASIDE)


def start_of(ledger: Ledger) -> float:
    """The score of the baseline, where the inputs have what they add to it."""
    return ledger.constants.get(BASELINE_SCORE, 0.0)


def name_fixed_line(units: Sequence[Unit], ledger: Ledger, say: Wording) -> str:
    """The largest part of the score that does not depend on the input, with its amount."""
    sign = -1 if say.adds == HELD_DOWN.adds else 1
    parts = {
        "the model's biases": ledger.biases.total,
        "the model's constants": ledger.constants.total - set_aside(ledger) - start_of(ledger),
        "what the model cuts off": ledger.cut_off.total,
        "what the rules hold constant": ledger.held.total,
        "special tokens": sum(u.relevance for u in units if u.special),
    }
    name = max(parts, key=lambda one: sign * parts[one])
    return f"{name} ({amount(parts[name], ledger.score)})"


def name_largest(ordered: Sequence[Unit], total: float, most: int) -> tuple[str, ...]:
    """The fewest of the largest that have most of the total together; none if that takes more than `most`."""
    found: list[Unit] = []
    for unit in ordered[:most]:
        found.append(unit)
        if abs(sum(u.relevance for u in found)) >= MOSTLY * total:
            return tuple(dict.fromkeys(u.name for u in found))
    return ()


def list_names(names: Sequence[str]) -> list[Phrase]:
    """Names with commas, the last one after "and"."""
    found: list[Phrase] = []
    for i, name in enumerate(names):
        found.append(Phrase("" if i == 0 else " and " if i == len(names) - 1 else ", "))
        found.append(Phrase(name, True))
    return found[1:]


def percent(share: float) -> str:
    """A probability; never 100 where it is less."""
    value = share * 100
    places = 1 if 0.05 <= value < 99.95 else 2
    shown = f"{value:.{places}f}"
    return f"over {99.99} %" if float(shown) == 100 and value < 100 else f"{shown} %"


def amount(value: float, beside: float | None = None) -> str:
    """A number with its sign and as many places as its size, or that of what it stands beside, deserves."""
    size = abs(value if beside is None else beside)
    places = 2 if not size or not math.isfinite(size) else min(6, max(2, 1 - math.floor(math.log10(size))))
    return f"{value:+.{places}f}"
