"""A picture: a bar for every token, as SVG. It is a function of a result, and knows nothing else."""

from html import escape

from headwater.results.explanation import Explanation
from headwater.viz.colour import largest

ROW = 18


def bars(e: Explanation) -> str:
    """Relevance as bars, the largest 100 wide."""
    scale = largest(e.relevance.tolist()) or 1.0
    rows = []
    for number, (token, value) in enumerate(zip(e.tokens, e.relevance.tolist(), strict=True)):
        colour = "#c43" if value > 0 else "#36c"
        rows.append(
            f'<text x="0" y="{(number + 1) * ROW - 5}">{escape(token)}</text>'
            f'<rect x="120" y="{number * ROW + 3}" width="{abs(value) / scale * 100:.1f}" height="12" fill="{colour}"/>'
        )
    size = f'width="240" height="{len(e.tokens) * ROW}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">{"".join(rows)}</svg>'
    )
