"""What masking some words showed, as a part of a report: the score without them, beside what each method gave them."""

from __future__ import annotations

from html import escape

from ..results.comparison import Comparison
from ..viz.html import amounts
from ..viz.reading import decimals, visible, with_sign
from .models import Loaded
from .schemas import PredictAnswer, PredictAsked, TextAsked
from .texts import predict_with_masks


def predict_for_report(loaded: Loaded, ask: TextAsked, found: Comparison) -> PredictAnswer:
    """What the model says of the text as it is, and with the words masked."""
    if not ask.masked:
        return predict_with_masks(loaded, PredictAsked(text=ask.text))
    target = ask.target if ask.target is not None else found.explanations[0].target
    return predict_with_masks(loaded, PredictAsked(text=ask.text, masked=ask.masked, target=target, output=ask.output))


def put_to_the_test(said: PredictAnswer, ask: TextAsked, found: Comparison) -> str:
    first = found.explanations[0]
    words = [visible(first.words()[number].text) for number in sorted(set(ask.masked))]
    rows = [(e.method, sum(e.words()[number].relevance for number in set(ask.masked))) for e in found.explanations]
    change = said.score_after - said.score_before
    places = decimals([change, *(amount for _, amount in rows)], digits=4)
    return (
        f"<h3>Put to the test</h3><p>Without <b>{escape(', '.join(words))}</b> the score of {escape(said.target)} goes "
        f"from {with_sign(said.score_before).strip()} to {with_sign(said.score_after).strip()}.</p>"
        f"{amounts(('what each method gave these words', 'relevance'), rows, ('change of the score', change), places)}"
    )
