"""What every picture of an explanation shows: tokens that can be read, numbers that line up, the ledger's rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from headwater.results.explanation import Explanation
from headwater.results.ledger import Ledger
from headwater.results.meanings import OWN_NAMES, kind_of_line
from headwater.results.readable import SPACE_MARKS
from headwater.results.readable import name_piece as name_piece
from headwater.results.readable import readable as readable
from headwater.results.readable import visible as visible
from headwater.results.words import Word

SHOWN_ENTRIES = 20
USUAL_PLACES = ("embeddings", "words", "pixels", "tensor")  # of relevance; a layer that was named is said
SHOWN_LINES = 6


@dataclass(frozen=True)
class TokenCell:
    """A token as it is shown. `gap` says that a space comes before it, `part` names the text it belongs to."""

    text: str
    relevance: float
    special: bool = False
    gap: bool = True
    part: str = ""


@dataclass(frozen=True)
class LedgerRow:
    """A line of the ledger as it is shown; `depth` 1 is part of the row above it."""

    name: str
    amount: float
    depth: int = 0


def token_cells(explanation: Explanation, words: bool = False) -> list[TokenCell]:
    """The tokens (or whole words) with their relevance; for a bare tensor, its largest entries."""
    if words:
        return word_cells(explanation.words())
    values = explanation.relevance
    if not explanation.tokens or len(explanation.tokens) != len(values):
        return _largest_entries(values.tolist())
    per_token = values.tolist() if values.ndim == 1 else values.flatten(1).sum(1).tolist()
    return [_token_cell(explanation, i, value) for i, value in enumerate(per_token)]


def word_cells(words: Sequence[Word]) -> list[TokenCell]:
    """Special tokens have no place in the text, so a space stands on both sides of them."""
    before = [None, *words[:-1]]
    return [
        TokenCell(visible(word.text), word.relevance, special, special or _apart(last, word))
        for last, word in zip(before, words, strict=True)
        for special in [word.start == word.end]
    ]


def _apart(last: Word | None, word: Word) -> bool:
    return last is None or last.start == last.end or word.start != last.end


def _token_cell(explanation: Explanation, i: int, value: float) -> TokenCell:
    part = explanation.segments[i] if explanation.segments else ""
    special = _is_special(explanation, i)
    return TokenCell(readable(explanation.tokens[i]), value, special, special or _gap(explanation, i), part)


def _is_special(explanation: Explanation, i: int) -> bool:
    """Tokens of a decoder stand behind those of the text, and nothing is said of them."""
    return i < len(explanation.special) and explanation.special[i]


def _gap(explanation: Explanation, i: int) -> bool:
    """Whether a space stands before token `i`, by the tokenizer's offsets or, without them, by the token's own mark."""
    token, offsets = explanation.tokens[i], explanation.offsets
    if i == 0 or _is_special(explanation, i - 1) or token.startswith(SPACE_MARKS):
        return True
    if offsets is None or i >= len(offsets):
        return not token.startswith("##") and not any(t.startswith(SPACE_MARKS) for t in explanation.tokens)
    sides = explanation.sequence_ids
    if sides is not None and sides[i] != sides[i - 1]:
        return True
    return offsets[i][0] > offsets[i - 1][1]


def _largest_entries(values: object) -> list[TokenCell]:
    """The largest entries of a tensor, each named by its index, largest first."""
    entries = sorted(_entries(values, ()), key=lambda entry: -abs(entry[1]))
    return [TokenCell(f"[{', '.join(map(str, index))}]", value) for index, value in entries[:SHOWN_ENTRIES]]


def _entries(values: object, index: tuple[int, ...]) -> Iterable[tuple[tuple[int, ...], float]]:
    if not isinstance(values, list):
        yield index, float(values)  # type: ignore[arg-type]
        return
    for i, value in enumerate(values):
        yield from _entries(value, (*index, i))


def units_name(explanation: Explanation, words: bool = False) -> str:
    """What the inputs are called together."""
    if explanation.image is not None:
        return "patches"
    if not explanation.tokens or len(explanation.tokens) != len(explanation.relevance):
        return "inputs"
    if not explanation.special:
        return "atoms" if isinstance(explanation.text, str) else "inputs"
    return "words" if words else "tokens"


def decimals(values: Iterable[float], digits: int = 5) -> int:
    """Places after the point that show the largest of `values` with this many digits; the same for a whole column."""
    size = max((abs(v) for v in values if math.isfinite(v)), default=0.0)
    return digits - 1 if size == 0 else min(12, max(2, digits - 1 - math.floor(math.log10(size))))


def with_sign(value: float, places: int = 4) -> str:
    """A number with its sign; what rounds to zero has none."""
    shown = f"{value:+.{places}f}"
    return shown.replace("+", " ").replace("-", " ") if math.isfinite(value) and float(shown) == 0 else shown


def ledger_rows(ledger: Ledger, full: bool = False) -> list[LedgerRow]:
    """The lines that add up to the score, in the model's order; long groups are summed by layer unless `full`."""
    rows = [LedgerRow("inputs", ledger.inputs)]
    for name, lines in ledger.groups.items():
        rows.append(LedgerRow(name, lines.total))
        whole = full or len(lines) <= SHOWN_LINES
        shown = lines if whole else {kind: sum(inside.values()) for kind, inside in fold_lines(lines).items()}
        rows += [LedgerRow(line, amount, 1) for line, amount in shown.items()]
    if ledger.readout:
        rows.append(LedgerRow("readout", ledger.readout))
    return [*rows, LedgerRow("unaccounted", ledger.unaccounted)]


def fold_lines(lines: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """Lines by what they are of, where that has a name (`layers.0.self_attn: attention offset`), else by layer."""
    found: dict[str, dict[str, float]] = {}
    for name, amount in lines.items():
        kind = kind_of_line(name)
        found.setdefault(kind if kind in OWN_NAMES else layer_of(name), {})[name] = amount
    return found


def sum_by_layer(lines: Mapping[str, float]) -> dict[str, float]:
    """Lines summed by layer: `bert.encoder.layer.0.attention.self.query` and its like become `bert.encoder.layer.0`."""
    sums: dict[str, float] = {}
    for name, amount in lines.items():
        sums[layer_of(name)] = sums.get(layer_of(name), 0.0) + amount
    return sums


def layer_of(name: str) -> str:
    """The module of a parameter, up to its first number; without a number, its two outermost parts."""
    parts = name.split(".")[:-1] or [name]
    numbered = next((i for i, part in enumerate(parts) if part.isdigit()), None)
    return ".".join(parts[: 2 if numbered is None else numbered + 1])


def closing_line(ledger: Ledger) -> str:
    """One line on whether the ledger closes."""
    state, times = "closed" if ledger.closed else "NOT closed", "times" if ledger.error >= 1 else "of"
    scale = "all other lines together" if ledger.magnitude < ledger.size else "what the score is the difference of"
    said = f"{state}: unaccounted is {ledger.error:.2g} {times} {scale} ({ledger.dtype})"
    if ledger.closed:
        return said if ledger.scale == "score" else f"{said}; beside the score it is more than rounding"
    return said if ledger.error > ledger.tolerance else f"{state}. {ledger.why}"


def by_part(shown: Sequence[TokenCell]) -> Iterable[tuple[str, list[TokenCell]]]:
    """Cells that belong to one text, with its name."""
    for part, group in groupby(shown, key=lambda cell: cell.part):
        yield part, list(group)


def source_facts(explanation: Explanation) -> list[tuple[str, str]]:
    """The text that was explained, and the second of a pair; of an image, its file."""
    text = explanation.text
    if explanation.image is not None:
        source = explanation.image.frame.source
        return [] if source is None else [("image", visible(source))]
    parts = () if text is None else (text,) if isinstance(text, str) else text
    return [("text" if i == 0 else "pair", visible(part)) for i, part in enumerate(parts)]


def headline(explanation: Explanation) -> list[tuple[str, str]]:
    """What was explained, and how."""
    facts = [("target", readable(explanation.target)), ("score", f"{explanation.score:+.4f} ({explanation.output})")]
    if explanation.prediction is not None and explanation.prediction != explanation.target:
        facts.append(("predicted", readable(explanation.prediction)))
    layer = [("at", explanation.at)] if explanation.at not in USUAL_PLACES else []
    return [*facts, ("method", explanation.method), *layer]
