"""What each method is called and how it looks, the same in every figure.

Colours are those of Okabe and Ito, which colour-blind readers can tell apart. Every method also has a dash and a
marker of its own, so that nothing is lost in black and white.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.errors import UnknownName, UsageError

if TYPE_CHECKING:
    from headwater.evaluation.results import Evaluation, Scores

BLACK, GREY = "#000000", "#7f7f7f"
ORANGE, SKY, GREEN, BLUE, VERMILLION, PURPLE = "#e69f00", "#56b4e9", "#009e73", "#0072b2", "#d55e00", "#cc79a7"

SOLID: tuple[float, ...] = ()
LONG, DASHED, SHORT, DOTTED, DASH_DOT, DASH_DOTS = (
    (7, 2),
    (4, 1.6),
    (2.2, 1.2),
    (1, 1.4),
    (5, 1.4, 1, 1.4),
    (4, 1, 1, 1, 1, 1),
)


@dataclass(frozen=True)
class Mark:
    """A method in figures: its name, and its line's colour, dash, marker and width."""

    label: str
    colour: str
    dash: tuple[float, ...]
    marker: str
    filled: bool = True
    width: float = 1.1

    @property
    def line(self) -> dict[str, Any]:
        """As matplotlib's options of a line."""
        return {
            "color": self.colour,
            "linestyle": (0, self.dash) if self.dash else "-",
            "linewidth": self.width,
            "marker": self.marker,
            "markerfacecolor": self.colour if self.filled else "white",
            "markeredgecolor": self.colour,
            "markeredgewidth": 0.8,
        }


MARKS: dict[str, Mark] = {
    "random": Mark("Random", GREY, DOTTED, "x"),
    "a-last": Mark("A-Last", SKY, DASHED, "^"),
    "rollout": Mark("Rollout", ORANGE, DASHED, "s"),
    "a-flow": Mark("A-Flow", PURPLE, DASH_DOT, "D", filled=False),
    "gae": Mark("GAE", GREEN, DASH_DOT, "v"),
    "gi": Mark("GI", VERMILLION, LONG, "o", filled=False),
    "lrp(ah)": Mark("LRP (AH)", BLUE, SHORT, "<", filled=False),
    "lrp(ln)": Mark("LRP (LN)", BLUE, DASH_DOTS, ">", filled=False),
    "lrp(ah+ln)": Mark("LRP (AH+LN)", BLUE, SOLID, "o", width=1.4),
    "lrp": Mark("LRP (all rules)", BLACK, SOLID, "D", width=1.4),
    "lrp-gamma(0.05)": Mark("LRP-γ", BLACK, DASHED, "s", filled=False),
    "attnlrp": Mark("AttnLRP", PURPLE, SOLID, "P"),
}
SPARE = (
    ("#a6761d", SOLID, "h"),
    (GREEN, DOTTED, "p"),
    (SKY, SOLID, "d"),
    (ORANGE, DASH_DOT, "8"),
    (PURPLE, DASHED, "X"),
)


def marks(methods: Iterable[str]) -> dict[str, Mark]:
    """The mark of every method; those that the paper does not know get what is left, in their order."""
    found: dict[str, Mark] = {}
    for name in methods:
        colour, dash, marker = SPARE[sum(other not in MARKS for other in found) % len(SPARE)]
        found[name] = MARKS.get(name) or Mark(name, colour, dash, marker)
    return found


def label(method: str) -> str:
    """The method's name as the paper writes it."""
    return MARKS[method].label if method in MARKS else method


def canonical(evaluations: Mapping[str, Evaluation], methods: Sequence[str]) -> list[str]:
    """The methods by the names that results carry; one that no evaluation holds is an error."""
    if not evaluations or not methods:
        raise UsageError("a figure needs at least one evaluation and one method.")
    known = dict.fromkeys(name for e in evaluations.values() for name in e.methods)
    found = []
    for method in methods:
        held = [scores.method for e in evaluations.values() if (scores := scores_of(e, method)) is not None]
        if not held:
            raise UnknownName("method in these evaluations", method, known)
        found.append(held[0])
    return found


def scores_of(evaluation: Evaluation, method: str) -> Scores | None:
    """A method's scores; None where it was not measured on this dataset."""
    try:
        return evaluation[method]
    except UnknownName:
        return None
