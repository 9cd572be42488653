"""Results as `print` and `show` give them: the command line's text for a pipe, and its colours on a terminal.

Loaded when a result is first shown, with all else that gives results a form: notebooks, plots, tables.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headwater.results.answer import SpanExplanation
from headwater.results.answer_report import AnswerReport
from headwater.results.audit import Audit
from headwater.results.comparison import Comparison
from headwater.results.display import NOTEBOOK, SCREEN, TEXT, Shown, shows
from headwater.results.explanation import Explanation
from headwater.results.generation import Generation
from headwater.results.ledger import Ledger
from headwater.results.ranking import RankDifference, Ranking
from headwater.results.similarity import Similarity
from headwater.results.who_told import WhoTold

from . import answers, circuit_chart, comparison, frames, generation, notebook, plots, terminal, two_texts
from .html import ledger_section
from .plain import ledger_lines, plain, plain_audit
from .screen import draws_on_terminal
from .two_texts import draw_difference, draw_order

if TYPE_CHECKING:
    from rich.console import RenderableType

    from .colour import Theme

GIVE_FORMS = (notebook, frames, plots, circuit_chart)  # each enters what it draws where it is loaded

shows(TEXT, Explanation)(plain)
shows(TEXT, Comparison)(comparison.plain)
shows(TEXT, Generation)(generation.plain)
shows(TEXT, Audit)(plain_audit)
shows(TEXT, SpanExplanation)(answers.plain)
shows(TEXT, AnswerReport)(answers.plain_answer)
shows(TEXT, WhoTold)(answers.plain_tellers)
shows(TEXT, Similarity)(two_texts.plain_similarity)
shows(TEXT, Ranking)(two_texts.plain_ranking)
shows(TEXT, RankDifference)(two_texts.plain_difference)


@shows(TEXT, Ledger)
def write_ledger(ledger: Ledger) -> str:
    return "\n".join(ledger_lines(ledger))


@shows(NOTEBOOK, Ledger)
def show_ledger(ledger: Ledger) -> str:
    return notebook.fragment(ledger_section(ledger))


@shows(NOTEBOOK, Similarity)
def show_similarity(similarity: Similarity) -> str:
    return notebook.fragment(two_texts.draw_similarity(similarity))


@shows(NOTEBOOK, Ranking)
def show_ranking(ranking: Ranking) -> str:
    """The order. Words are coloured where a passage was explained already: showing asks no model."""
    known = [place for place, number in enumerate(ranking.order) if number in ranking.known]
    return notebook.fragment(draw_order(ranking, known))


@shows(NOTEBOOK, RankDifference)
def show_difference(difference: RankDifference) -> str:
    return notebook.fragment(draw_difference(difference))


@shows(SCREEN, Shown)
def show_result(result: Shown) -> None:
    """In a notebook as its output, on a terminal in colour, else as text."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if hasattr(shell, "kernel"):
        from IPython.display import display

        display(result)
        return
    draw = next((DRAWN[kind] for kind in type(result).__mro__ if kind in DRAWN), None)
    if draw is None or not draws_on_terminal(lambda ground: draw(result, ground)):
        print(result)  # noqa: T201


DRAWN: dict[type, Callable[[Any, Theme], RenderableType]] = {
    Explanation: lambda e, ground: terminal.render(e, theme=ground),
    Comparison: lambda c, ground: comparison.render(c, theme=ground),
    Generation: lambda g, ground: generation.render(g, theme=ground),
    Audit: lambda a, ground: terminal.render_audit(a),
    Ledger: lambda ledger, ground: terminal.ledger_table(ledger),
}
