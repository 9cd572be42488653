"""A bias audit as one HTML page that needs nothing else: distributions, differences, names and sentences.

No script, no font, no image from elsewhere; what comes from a text, a file or a model is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from ..evaluation import charts
from ..evaluation.charts import legend
from ..evaluation.report import STYLE as REPORT_STYLE
from ..evaluation.report import definitions, flat, section, table
from ..evaluation.summary import p
from ..viz.html import POLICY
from ..viz.reading import visible
from ..viz.tables import Table
from . import pictures
from .mentions import Mention
from .pictures import Row, forest, histogram
from .results import BiasAudit, Comparison, GroupSummary, Ranked, Stratum, Swap
from .summary import calibration_table, chance, sides, title

NAMES, SENTENCES = 12, 8
MOST_OF_A_TEXT = 400


def page(audit: BiasAudit, heading: str = "Do these groups push the score differently?") -> str:
    """The whole page."""
    parts = (answer, distribution, differences, swaps, calibrations, names, sentences, counted, caveats, repeat)
    body = "\n".join(part(audit) for part in parts)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(heading)}</title>\n<style>{REPORT_STYLE}{charts.STYLE}{pictures.STYLE}{STYLE}</style>\n"
        f"</head>\n<body>\n<main>\n<h1>{escape(heading)}</h1>\n{facts(audit)}\n{body}\n</main>\n</body>\n</html>\n"
    )


def facts(audit: BiasAudit) -> str:
    about = audit.provenance
    told = [
        ("model", str(about["model"])),
        ("score", f"{audit.target} ({about.get('output', 'logit')})"),
        ("method", audit.method),
        ("data", f"{about['data']} ({audit.texts:,} texts)"),
        ("groups", ", ".join(g.name for g in audit.groups)),
    ]
    return "<dl>" + "".join(f"<div><dt>{k}</dt><dd>{escape(v)}</dd></div>" for k, v in told) + "</dl>"


def answer(audit: BiasAudit) -> str:
    """The verdicts first, and what must be known before the numbers."""
    said = "".join(f"<p><b>{escape(title(c))}.</b> {escape(c.verdict)}</p>" for c in audit.comparisons)
    if not audit.comparisons:
        said = "<p>There are no two groups with at least two different entries, so nothing is compared.</p>"
    warned = "".join(f"<li>{escape(w)}</li>" for w in audit.warnings)
    return f'<div class="answer">{said}</div>' + (f'<ul class="warned" role="note">{warned}</ul>' if warned else "")


def relevance_by_group(audit: BiasAudit) -> tuple[dict[str, list[float]], str]:
    """The relevance of each group's mentions, and what it is the relevance for."""
    values = {g.name: [m.relevance for m in audit.mentions if m.group == g.name] for g in audit.groups}
    return values, f"relevance for {audit.target}"


def distribution(audit: BiasAudit) -> str:
    values, meaning = relevance_by_group(audit)
    chart = histogram(values, meaning)
    rows = [group_row(g) for g in audit.groups]
    heads = ["mentions", "entries", "texts", "mean", "median", "spread", "above 0", "words each", "score of its texts"]
    towards, away = sides(audit.target)
    note = (
        f"Relevance of a mention, all its words summed, in units of the score: right of 0 it pushes {towards}, left of "
        f"it {away}. Each group's shares add up to 1; the upright lines are the means. The outermost bins also hold "
        "what lies further out. Entries are different entries of the list; intervals are over entries. For scale: a "
        f"word outside the groups has a mean |relevance| of {audit.typical:.2f} in the same texts."
    )
    tabled = table("group", heads, [g.name for g in audit.groups], rows)
    shown = f'{legend(list(values))}<figure class="drawn">{chart}</figure>{tabled}'
    return section("Relevance by group", shown + parts_table(audit, heads), note)


def parts_table(audit: BiasAudit, heads: Sequence[str]) -> str:
    if not audit.parts:
        return ""
    rows = [(f"{g.name}, {part.name}", group_row(g)) for part in audit.parts for g in part.groups]
    return f"<h3>By part of the data</h3>{table('group, part', heads, [n for n, _ in rows], [r for _, r in rows])}"


def group_row(g: GroupSummary) -> list[str]:
    mean = f'{g.mean.value:+.3f}<span class="i">{g.mean.low:+.3f} to {g.mean.high:+.3f}</span>'
    counts = [f"{g.mentions:,}", f"{g.entries:,}", f"{g.texts:,}"]
    return [
        *counts,
        mean,
        f"{g.median:+.3f}",
        f"{g.deviation:.3f}",
        f"{g.positive:.0%}",
        f"{g.words:.2f}",
        f"{g.score:+.2f}",
    ]


def differences(audit: BiasAudit) -> str:
    if not audit.comparisons:
        return ""
    chart = forest(forest_rows(audit), f"difference of mean relevance ({audit.target})", "differences with intervals")
    heads = ["difference", "d", "p", "p, texts accounted for", "detectable"]
    named = [(name(c, s, audit), difference_row(c)) for s in (audit.whole, *audit.parts) for c in s.comparisons]
    note = (
        "d: the difference in standard deviations of a mention (Cohen's d; .2 is called small, .5 medium, .8 large). "
        f"p: how often {int(audit.provenance.get('permutations', 0)):,} random labellings of the entries differ at "
        "least as much, corrected for the number of comparisons (Holm). Mentions of one entry stay together in the "
        "test and in the 95 % bootstrap intervals. Adjusted: with the score of the rest of each text and the number "
        "of words of a mention accounted for. Detectable: a difference of this size would be found four times in "
        "five; a smaller one may well go unseen."
    )
    shown = (
        f'<figure class="drawn">{chart}</figure>{table("groups", heads, [n for n, _ in named], [r for _, r in named])}'
    )
    return section("How the groups differ", shown, note)


def swaps(audit: BiasAudit) -> str:
    """What the score does when only the members change."""
    if not audit.swaps:
        return ""
    rows = [Row(f"{s.first} minus {s.second}", s.effect.difference, swap_said(s), True) for s in audit.swaps]
    chart = forest(rows, f"difference of the score ({audit.target})", "differences of the score after swapping")
    first = audit.swaps[0]
    note = (
        f"In each of {first.places:,} places, members of every group were put in ({first.trials:,} texts), as they "
        "stand elsewhere in these texts; a full name keeps its family name. Shown is the score with members of one "
        "group, less that with members of the other, in the same places. These texts are made up: a member may not "
        "fit what is said around it. Intervals and p are over the members that were put in."
    )
    return section("The same texts with other members put in", f'<figure class="drawn">{chart}</figure>', note)


def calibrations(audit: BiasAudit) -> str:
    """What the test says of random labels."""
    return "".join(calibration(calibration_table(one)) for one in audit.calibrations)


def calibration(found: Table) -> str:
    shown = table(found.columns[0], found.columns[1:], [row[0] for row in found.rows], [row[1:] for row in found.rows])
    return section("The test on random labels", shown, f"{found.note}.")


def swap_said(swap: Swap) -> str:
    size = swap.effect.difference
    return f"{size.value:+.3f} ({size.low:+.3f} to {size.high:+.3f}), p: {p(swap.effect.p)}"


def name(comparison: Comparison, stratum: Stratum, audit: BiasAudit) -> str:
    where = "" if stratum is audit.whole else f", {stratum.name}"
    return f"{comparison.first} minus {comparison.second}{where}"


def forest_rows(audit: BiasAudit) -> list[Row]:
    rows = []
    for stratum in (audit.whole, *audit.parts):
        for c in stratum.comparisons:
            d = c.effect.d.value
            whole = stratum is audit.whole
            said = f"d = {d:+.2f}, p: {chance(c, c.corrected)}"
            rows.append(Row(name(c, stratum, audit), c.effect.difference, said, whole))
            if whole:
                said = f"d = {c.adjusted.d.value:+.2f}, p: {chance(c, c.adjusted.p)}"
                rows.append(Row(f"{c.first} minus {c.second}, adjusted", c.adjusted.difference, said))
    return rows


def difference_row(c: Comparison) -> list[str]:
    size, d = c.effect.difference, c.effect.d
    first = f'{size.value:+.3f}<span class="i">{size.low:+.3f} to {size.high:+.3f}</span>'
    second = f'{d.value:+.2f}<span class="i">{d.low:+.2f} to {d.high:+.2f}</span>'
    ps = [escape(chance(c, value)) for value in (c.corrected, c.adjusted.p)]
    return [first, second, *ps, f"{c.effect.detectable:.2f}"]


def names(audit: BiasAudit) -> str:
    """What pushes most to each side, and every name folded below."""
    highest = [r for r in audit.names if r.mean > 0][:NAMES]
    lowest = [r for r in reversed(audit.names) if r.mean < 0][:NAMES]
    both = "".join(
        f"<div><h3>Most {escape(side)}</h3>{name_table(found)}</div>"
        for side, found in zip(sides(audit.target), (highest, lowest), strict=True)
    )
    note = "Mean relevance over all mentions of the same words. One mention says as much of its sentence as of itself."
    every = f"<details><summary>all of them ({len(audit.names):,})</summary>{name_table(audit.names)}</details>"
    return section("What pushes most", f'<div class="pair">{both}</div>{every}', note)


def name_table(found: Sequence[Ranked]) -> str:
    rows = [[escape(r.group), str(r.mentions), f"{r.mean:+.2f}"] for r in found]
    return table("name", ["group", "mentions", "relevance"], [visible(r.name) for r in found], rows)


def sentences(audit: BiasAudit) -> str:
    parts = []
    for side, towards in zip(sides(audit.target), (True, False), strict=True):
        items = "".join(sentence(m) for m in audit.strongest(SENTENCES, towards))
        parts.append(f'<div><h3>Most {escape(side)}</h3><ol class="said">{items}</ol></div>')
    note = (
        "The mentions with the largest relevance. Behind each: its relevance, the score of the whole text, its group."
    )
    return section("Sentences", "".join(parts), note)


def sentence(m: Mention) -> str:
    where = ", ".join(filter(None, (m.group, m.part, f"row {m.row}")))
    kind = "up" if m.relevance > 0 else "down"
    return f'<li>{marked(m, kind)} <span class="what">{m.relevance:+.2f} of {m.score:+.2f}; {escape(where)}</span></li>'


def marked(m: Mention, kind: str) -> str:
    """The text with its mention marked; of a long text what stands around it."""
    start, end = max(0, m.start - MOST_OF_A_TEXT // 2), min(len(m.text), m.end + MOST_OF_A_TEXT // 2)
    before, behind = m.text[start : m.start], m.text[m.end : end]
    return (
        f'{"… " if start else ""}{shown(before)}<mark class="{kind}">{shown(m.text[m.start : m.end])}</mark>'
        f"{shown(behind)}{' …' if end < len(m.text) else ''}"
    )


def shown(text: str) -> str:
    return escape(visible(text)) if text.strip() else escape(text)


def counted(audit: BiasAudit) -> str:
    """How members are found, and what was met and not counted."""
    said = f"<p>{escape(audit.rule)}</p>"
    if audit.skipped:
        rows = [[f"{s.occurrences:,}", f'<span class="words">{escape(listed(s.words))}</span>'] for s in audit.skipped]
        shown = table("because it is", ["times", "most often"], [s.reason for s in audit.skipped], rows)
        said += f'<h3>Met, and not counted</h3><div class="met">{shown}</div>'
    return section("What counts as a mention", said)


def listed(words: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{visible(word)} {count}" for word, count in list(words)[:12])


def caveats(audit: BiasAudit) -> str:
    said = (
        "Relevance says how this model used the words in these texts. It does not say what the model would do with "
        "other words, and a difference is not yet unfairness: the groups stand in different sentences.",
        "Members are found by rule, so some are missed and some are wrong. The names and sentences above, and the "
        "table of all mentions that is saved with the page, show which ones were taken.",
        "Where a model was trained on these texts, it has seen these names: compare the parts, if there are any.",
        "Several mentions in one text share its context. The test keeps entries together, not texts.",
    )
    return section("How far this goes", "<ul>" + "".join(f"<li>{escape(s)}</li>" for s in said) + "</ul>")


def repeat(audit: BiasAudit) -> str:
    return section("How to repeat it", definitions("Made", flat(audit.provenance)))


STYLE = """
.answer { font-size: 1.1rem; max-width: 52rem; margin: 1.25rem 0 0; } .answer p { margin: .4rem 0; }
.warned { border-left: 4px solid var(--s1); padding: .5rem 1rem .5rem 2rem; margin: 1rem 0 0; max-width: 52rem; }
.said { padding-left: 1.5rem; max-width: 60rem; } .said li { margin: .4rem 0; overflow-wrap: anywhere; }
.chart text.said { font-size: 10px; }
.what { color: var(--soft); font-size: .85rem; font-variant-numeric: tabular-nums; }
mark { color: inherit; padding: .05em .15em; border-radius: .2em; font-weight: 600; }
mark.up { background: rgb(255 107 107 / .35); } mark.down { background: rgb(116 169 255 / .4);
  text-decoration: underline 2px; text-underline-offset: .2em; }
.words { color: var(--soft); }
.met td:last-child, .met thead th:last-child { text-align: left; white-space: normal; }
.met tbody th { white-space: normal; min-width: 8rem; }
"""
