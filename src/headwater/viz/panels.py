"""Pictures side by side on one SVG sheet, each under the name of its method, with one legend of the signs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from headwater.errors import check_least
from headwater.results.explanation import Explanation
from headwater.results.ledger import Ledger
from headwater.results.readable import readable

from .colour import NEGATIVE, POSITIVE, Rgb
from .sums import abs_zero, ledger_parts, round_to_sum, sum_places

FONT = "font-family='system-ui, sans-serif'"
MARGIN, HEAD, LEGEND, CAPTION = 16, 30, 34, 60
LONGEST = len("unaccounted")  # name of a line that stands below a panel
WIDE = 560  # the least width that heading and legend need
INK, SOFT = "#111", "#595959"


@dataclass(frozen=True)
class Panel:
    """One picture: SVG of the given size, a name above it, and lines that say what it shows."""

    name: str
    note: str
    body: str


def picture_of(explanation: Explanation, scale: float, body: str) -> Panel:
    return Panel(explanation.method, describe_panel(explanation, scale), body)


def describe_panel(explanation: Explanation, scale: float) -> str:
    """Two lines: what full colour means, and how the panel's sum becomes the score."""
    return f"full colour ±{scale:.3g}\n{panel_sum(explanation.ledger)}"


def panel_sum(ledger: Ledger) -> str:
    """`sum 1.56 + biases -0.46 = 1.10`. Several other lines, or one with a long name, are `others`."""
    (_, own), *rest = ledger_parts(ledger)
    lines = [(name, amount) for name, amount in rest if round(amount, sum_places(ledger.score))]
    name = lines[0][0] if len(lines) == 1 and len(lines[0][0]) <= LONGEST else "others"
    places = sum_places(ledger.score)
    shown = round_to_sum([own, sum(amount for _, amount in rest)], ledger.score, places)
    other = f" + {name} {shown[1]:.{places}f}" if shown[1] else ""
    return f"sum {abs_zero(shown[0]):.{places}f}{other} = {abs_zero(round(ledger.score, places)):.{places}f}"


def panel_sheet(
    panels: Sequence[Panel], size: tuple[int, int], columns: int, explanation: Explanation, negative: str, cue: str
) -> str:
    """All panels in rows of `columns`. `negative` is a swatch of what takes away, `cue` says how else it is seen."""
    check_least("columns", columns)
    columns = min(columns, len(panels))
    width, height = size
    rows = -(-len(panels) // columns)
    full = max(WIDE, columns * (width + MARGIN) + MARGIN)
    tall = MARGIN + HEAD + rows * (height + CAPTION + MARGIN) + LEGEND
    parts = [f"<rect width='{full}' height='{tall}' fill='#fff'/>", heading(explanation)]
    for number, panel in enumerate(panels):
        x = MARGIN + number % columns * (width + MARGIN)
        y = MARGIN + HEAD + number // columns * (height + CAPTION + MARGIN)
        parts.append(
            f"<g transform='translate({x},{y})'>{draw_text(0, 14, panel.name, 15)}"
            f"{''.join(draw_text(0, 32 + 16 * i, line, 12, SOFT) for i, line in enumerate(panel.note.splitlines()))}"
            f"<g transform='translate(0,{CAPTION})'>{panel.body}</g></g>"
        )
    parts.append(panel_legend(tall - LEGEND, negative, cue))
    title = f"<title>{escape(describe_result(explanation))}</title>"
    view = f"viewBox='0 0 {full} {tall}' width='{full}' height='{tall}'"
    return f"<svg xmlns='http://www.w3.org/2000/svg' {view} role='img' {FONT}>{title}{''.join(parts)}</svg>\n"


def describe_result(explanation: Explanation) -> str:
    facts = f"{readable(explanation.target)}: {explanation.score:+.4f} ({explanation.output})"
    predicted = explanation.prediction
    return facts if predicted in (None, explanation.target) else f"{facts}, predicted: {predicted}"


def heading(explanation: Explanation) -> str:
    return draw_text(MARGIN, MARGIN + 12, describe_result(explanation), 15)


def panel_legend(y: int, negative: str, cue: str) -> str:
    adds = f"<rect x='{MARGIN}' y='{y + 2}' width='18' height='18' fill='{css(POSITIVE['light'])}'/>"
    takes = f"<g transform='translate({MARGIN + 86},{y + 2})'>{negative}</g>"
    names = draw_text(MARGIN + 26, y + 16, "adds", 13) + draw_text(MARGIN + 112, y + 16, f"takes away ({cue})", 13)
    return adds + takes + names


def swatch() -> str:
    return f"<rect width='18' height='18' fill='{css(NEGATIVE['light'])}'/>"


def draw_text(x: float, y: float, content: str, size: int, colour: str = INK) -> str:
    return f"<text x='{x}' y='{y}' font-size='{size}' fill='{colour}'>{escape(content)}</text>"


def css(colour: Rgb) -> str:
    return "#{:02x}{:02x}{:02x}".format(*colour)
