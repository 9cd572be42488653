"""An evaluation as it shows itself in a notebook, with its curves, and as it is printed: scores with intervals."""

from __future__ import annotations

from html import escape

from ..results.display import NOTEBOOK, TEXT, shows
from ..viz.notebook import show_tables
from ..viz.plain import tables_as_text
from .charts import chart_legend
from .report import curve_chart
from .results import Evaluation
from .summary import evaluation_headline
from .summary import evaluation_tables as tables_of

# Between light and dark, so that both grounds show them.
COLOURS = ("#3b7fc4", "#d2622a", "#2f9455", "#a457c4", "#d04848", "#1394a8", "#a87a1c", "#808080")


@shows(NOTEBOOK, Evaluation)
def show_evaluation(evaluation: Evaluation) -> str:
    titled = [(table.title, table.columns, table.rows) for table in tables_of(evaluation)]
    return show_tables(evaluation_headline(evaluation), titled, curve_figures(evaluation))


@shows(TEXT, Evaluation)
def write_evaluation(evaluation: Evaluation) -> str:
    return tables_as_text([evaluation_headline(evaluation)], tables_of(evaluation))


def curve_figures(evaluation: Evaluation) -> str:
    drawn = []
    for measure in evaluation.curves:
        drawn.append(
            f"<figure><figcaption>{escape(measure.name)}</figcaption>{curve_chart(evaluation, measure)}</figure>"
        )
    if not drawn:
        return ""
    return f'<style>{STYLE}</style>{chart_legend(evaluation.methods)}<div class="curves">{"".join(drawn)}</div>'


STYLE = f"""
.hw .curves {{ display: flex; flex-wrap: wrap; gap: 1em; }} .hw figure {{ margin: 0; flex: 1 1 20em; max-width: 34em; }}
.hw .chart {{ width: 100%; height: auto; font: 11px system-ui, sans-serif; }} .hw .chart text {{ fill: currentColor; }}
.hw .grid, .hw .tick {{ stroke: currentColor; stroke-opacity: .25; stroke-width: .7; }}
.hw .s {{ stroke: currentColor; stroke-width: 1.6; fill: currentColor; }} .hw .s polyline, .hw .s path {{ fill: none; }}
{" ".join(f".hw .s{i}, .hw .s{i} * {{ color: {colour}; }}" for i, colour in enumerate(COLOURS))}
.hw .legend {{ list-style: none; display: flex; flex-wrap: wrap; gap: .25em 1.25em; padding: 0; margin: .5em 0; }}
.hw .legend li {{ display: flex; align-items: center; gap: .4em; }} .hw .legend svg {{ width: 40px; height: 14px; }}
"""
