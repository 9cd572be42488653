"""A bias audit as one HTML page that needs nothing else: distributions, differences, names and sentences.

No script, no font, no image from elsewhere; what comes from a text, a file or a model is escaped. The page itself is
`viz/templates/bias.html`; here its numbers are made ready.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from markupsafe import Markup

from ..evaluation import charts
from ..evaluation.charts import chart_legend
from ..evaluation.report import INTERVAL, Row, flatten_facts
from ..evaluation.statistics import MeanEstimate
from ..evaluation.summary import format_interval, format_p
from ..plurals import say_count
from ..viz.html import POLICY
from ..viz.pages import render_page
from ..viz.reading import visible
from . import pictures
from .mentions import Mention
from .pictures import ForestRow, forest, histogram
from .results import BiasAudit, GroupComparison, GroupSummary, Ranked, Stratum, Swap
from .summary import calibration_table, format_chance, sides, title

NAMES, SENTENCES = 12, 8
MOST_OF_A_TEXT = 400
WORDS = Markup('<span class="words">{}</span>')
GROUP_HEADS = "mentions, entries, texts, mean, median, spread, above 0, words each, score of its texts".split(", ")
Sentence = tuple[Mention, str, str, str, str]


def page(audit: BiasAudit, heading: str = "Do these groups push the score differently?") -> str:
    """The whole page."""
    values, meaning = relevance_by_group(audit)
    towards, away = sides(audit.target)
    named = [(name(c, s, audit), difference_row(c)) for s in (audit.whole, *audit.parts) for c in s.comparisons]
    return render_page(
        "bias.html",
        title=heading,
        policy=Markup(POLICY),
        style=Markup(charts.STYLE + pictures.STYLE),
        audit=audit,
        told=audit_facts(audit),
        title_of=title,
        towards=towards,
        away=away,
        legend=Markup(chart_legend(list(values))),
        histogram=Markup(histogram(values, meaning)),
        heads=GROUP_HEADS,
        groups=[(g.name, group_row(g)) for g in audit.groups],
        parts=[(f"{g.name}, {part.name}", group_row(g)) for part in audit.parts for g in part.groups],
        differences=named,
        permutations=f"{int(audit.provenance.get('permutations', 0)):,}",
        forest=Markup(difference_forest(audit)) if named else "",
        swaps=Markup(swap_forest(audit)) if audit.swaps else "",
        split_rows=lambda rows: [(row[0], row[1:]) for row in rows],
        calibrations=[calibration_table(one) for one in audit.calibrations],
        name_heads=["group", "mentions", "relevance"],
        sides=sides_of(audit),
        names=name_rows(audit.names),
        skipped=[(s.reason, [f"{s.occurrences:,}", WORDS.format(list_words(s.words))]) for s in audit.skipped],
        made=flatten_facts(audit.provenance),
    )


def relevance_by_group(audit: BiasAudit) -> tuple[dict[str, list[float]], str]:
    """The relevance of each group's mentions, and what it is the relevance for."""
    values = {visible(g.name): [m.relevance for m in audit.mentions if m.group == g.name] for g in audit.groups}
    return values, f"relevance for {audit.target}"


def audit_facts(audit: BiasAudit) -> list[tuple[str, str]]:
    about = audit.provenance
    return [
        ("model", str(about["model"])),
        ("score", f"{audit.target} ({about.get('output', 'logit')})"),
        ("method", audit.method),
        ("data", f"{about['data']} ({say_count(audit.texts, 'text')})"),
        ("groups", visible(", ".join(g.name for g in audit.groups))),
    ]


def group_row(g: GroupSummary) -> list[str]:
    counts = [f"{g.mentions:,}", f"{g.entries:,}", f"{g.texts:,}"]
    others = [f"{g.median:+.3f}", f"{g.deviation:.3f}", f"{g.positive:.0%}", f"{g.words:.2f}", f"{g.score:+.2f}"]
    return [*counts, estimate_cell(g.mean, "+.3f"), *others]


def estimate_cell(found: MeanEstimate, form: str) -> str:
    return INTERVAL.format(f"{found.value:{form}}", format_interval(found, form))


def difference_forest(audit: BiasAudit) -> str:
    return forest(forest_rows(audit), f"difference of mean relevance ({audit.target})", "differences with intervals")


def swap_forest(audit: BiasAudit) -> str:
    """What the score does when only the members change."""
    rows = [ForestRow(f"{s.first} minus {s.second}", s.effect.difference, describe_swap(s), True) for s in audit.swaps]
    return forest(rows, f"difference of the score ({audit.target})", "differences of the score after swapping")


def describe_swap(swap: Swap) -> str:
    size = swap.effect.difference
    return f"{size.value:+.3f} ({format_interval(size, '+.3f')}), p: {format_p(swap.effect.p)}"


def name(comparison: GroupComparison, stratum: Stratum, audit: BiasAudit) -> str:
    where = "" if stratum is audit.whole else f", {stratum.name}"
    return f"{comparison.first} minus {comparison.second}{where}"


def forest_rows(audit: BiasAudit) -> list[ForestRow]:
    rows = []
    for stratum in (audit.whole, *audit.parts):
        for c in stratum.comparisons:
            whole = stratum is audit.whole
            said = f"d = {c.effect.d.value:+.2f}, p: {format_chance(c, c.corrected)}"
            rows.append(ForestRow(name(c, stratum, audit), c.effect.difference, said, whole))
            if whole:
                said = f"d = {c.adjusted.d.value:+.2f}, p: {format_chance(c, c.adjusted.p)}"
                rows.append(ForestRow(f"{c.first} minus {c.second}, adjusted", c.adjusted.difference, said))
    return rows


def difference_row(c: GroupComparison) -> list[str]:
    cells = [estimate_cell(c.effect.difference, "+.3f"), estimate_cell(c.effect.d, "+.2f")]
    return [*cells, format_chance(c, c.corrected), format_chance(c, c.adjusted.p), f"{c.effect.detectable:.2f}"]


def sides_of(audit: BiasAudit) -> list[tuple[str, list[Row], list[Sentence]]]:
    """What pushes most to each side: names, and sentences."""
    highest = [r for r in audit.names if r.mean > 0][:NAMES]
    lowest = [r for r in reversed(audit.names) if r.mean < 0][:NAMES]
    towards, away = sides(audit.target)
    return [
        (side, name_rows(found), [sentence(m) for m in audit.strongest(SENTENCES, up)])
        for side, found, up in ((towards, highest, True), (away, lowest, False))
    ]


def name_rows(found: Sequence[Ranked]) -> list[Row]:
    return [(visible(r.name), [r.group, str(r.mentions), f"{r.mean:+.2f}"]) for r in found]


def sentence(m: Mention) -> Sentence:
    """A mention, what stands before it, itself, and what stands behind it; of a long text what stands around it."""
    start, end = max(0, m.start - MOST_OF_A_TEXT // 2), min(len(m.text), m.end + MOST_OF_A_TEXT // 2)
    before, behind = visible_text(m.text[start : m.start]), visible_text(m.text[m.end : end])
    where = ", ".join(filter(None, (m.group, m.part, f"row {m.row}")))
    long = ("… " if start else "", " …" if end < len(m.text) else "")
    return m, long[0] + before, visible_text(m.text[m.start : m.end]), behind + long[1], where


def visible_text(text: str) -> str:
    return visible(text) if text.strip() else text


def list_words(words: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{visible(word)} {count}" for word, count in list(words)[:12])
