"""Numbers that add up as they are shown: each is rounded, and their shown sum is the shown total.

Rounding every number by itself leaves sums that are visibly wrong in the last place. Here the missing units of the
last place go to the numbers that rounding had moved furthest the other way (the method of largest remainders). So every
number that is shown is less than one unit of its last place off, and one that needs no rounding is shown as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from headwater.results.ledger import Ledger
from headwater.results.meanings import OWN_NAMES, kind_of_line, meaning_of

from .reading import LedgerRow

__all__ = ["ledger_parts", "ledger_sum", "round_to_sum"]

LARGE = 0.1  # of the score or of the inputs: a line that is larger is said in words


def round_to_sum(parts: Sequence[float], total: float, places: int) -> list[float]:
    """Parts rounded such that they add up to the rounded total.

    The parts' own sum must be the total, up to the rounding of floats. Where it is not, or something is not finite,
    they are rounded one by one: what does not add up is not made to.

    Args:
        parts: the parts.
        total: their sum.
        places: digits after the point.

    Returns:
        The rounded parts.

    Example:
        >>> from headwater.viz.sums import round_to_sum
        >>> round_to_sum([0.333, 0.333, 0.334], 1.0, places=2)
        [0.33, 0.33, 0.34]
    """
    unit = 10.0**-places
    if not all(map(math.isfinite, (*parts, total))) or abs(math.fsum(parts) - total) > max(unit, 1e-6 * abs(total)):
        return [round(part, places) for part in parts]
    whole = [round(part / unit) for part in parts]
    missing = round(total / unit) - sum(whole)
    step = 1 if missing > 0 else -1
    furthest = sorted(range(len(parts)), key=lambda i: step * (whole[i] - parts[i] / unit))
    for i in furthest[: abs(missing)]:
        whole[i] += step
    return [round(n * unit, places) for n in whole]


def sum_places(score: float) -> int:
    """Places that show a score with two digits or more."""
    size = abs(score)
    return 2 if size == 0 or not math.isfinite(size) else min(6, max(2, 1 - math.floor(math.log10(size))))


def ledger_parts(ledger: Ledger, unit: str = "words") -> list[tuple[str, float]]:
    """The lines of a ledger that are summed in a sentence, by name.

    Args:
        ledger: of any result.
        unit: what inputs are called.

    Returns:
        Pairs of a name and an amount.

    Example:
        >>> from headwater.viz.sums import ledger_parts
        >>> [name for name, _ in ledger_parts(hw.explain("headwater/sentiment", "a fine film").ledger)][:2]
        ['words', 'biases']
    """
    groups = {name: lines.total for name, lines in ledger.groups.items() if name != "constants"}
    others = {**groups, **constants_by_kind(ledger), "readout": ledger.readout, "unaccounted": ledger.unaccounted}
    return [(unit, ledger.inputs), *others.items()]


def constants_by_kind(ledger: Ledger) -> dict[str, float]:
    """The constants' sum, apart from lines that have a name of their own, such as the attention offset."""
    sums: dict[str, float] = {}
    for name, amount in ledger.constants.items():
        kind = kind_of_line(name)
        kind = kind if kind in OWN_NAMES else "constants"
        sums[kind] = sums.get(kind, 0.0) + amount
    return sums


def ledger_sum(ledger: Ledger, unit: str = "words") -> str:
    """The sum in a line: `words 4.31 + biases -1.18 = 3.13`. Lines that are shown as zero are left out.

    Args:
        ledger: of any result.
        unit: what inputs are called.

    Returns:
        The line.

    Example:
        >>> from headwater.viz.sums import ledger_sum
        >>> ledger_sum(hw.explain("headwater/sentiment", "The plot is thin, but the cast is wonderful.").ledger)
        'words 0.47 + score of the baseline 2.84 = 3.31'
    """
    names, parts = zip(*ledger_parts(ledger, unit), strict=True)
    places = sum_places(ledger.score)
    shown = round_to_sum(parts, ledger.score, places)
    terms = [f"{name} {part:.{places}f}" for name, part in zip(names, shown, strict=True) if part or name == unit]
    return f"{' + '.join(terms)} = {abs_zero(round(ledger.score, places)):.{places}f}"


def abs_zero(value: float) -> float:
    """No minus before a zero."""
    return value or 0.0


def round_amounts(rows: Sequence[LedgerRow], score: float, places: int) -> list[float]:
    """The rows of a ledger as they are shown: lines add up to the score, and what is inside a line to that line."""
    top = [i for i, row in enumerate(rows) if row.depth == 0]
    shown = [row.amount for row in rows]
    for i, amount in zip(top, round_to_sum([rows[i].amount for i in top], score, places), strict=True):
        shown[i] = amount
    for start, end in zip(top, [*top[1:], len(rows)], strict=True):
        inside = [row.amount for row in rows[start + 1 : end]]
        shown[start + 1 : end] = round_to_sum(inside, shown[start], places) if inside else []
    return shown


def large_lines(ledger: Ledger) -> list[tuple[str, str]]:
    """What the large parts of a ledger's sum are, in words."""
    least = LARGE * max(abs(ledger.score), abs(ledger.inputs))
    large = [name for name, amount in ledger_parts(ledger)[1:] if abs(amount) >= least and amount]
    return [(name, meaning_of(name)) for name in large if meaning_of(name)]
