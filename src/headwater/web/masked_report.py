"""What masking showed, as a part of a saved page: the sentence of the screen, and what each method had said."""

from __future__ import annotations

from ..results.verdict import Phrase
from ..viz.html import amounts, verdict_paragraph
from ..viz.reading import decimals
from .schemas import MaskAnswer


def mask_section(found: MaskAnswer) -> str:
    """The same for words, patches and atoms."""
    said = [Phrase(part.text, part.named) for part in found.said]
    rows = [(claim.method, claim.amount) for claim in found.claims]
    change = found.score_after - found.score_before
    places = decimals([change, *(amount for _, amount in rows)], digits=4)
    table = amounts(("what each method gave to it", "relevance"), rows, ("change of the score", change), places)
    return f"<h3>Put to the test</h3>{verdict_paragraph([*said, Phrase('.')])}{table}"
