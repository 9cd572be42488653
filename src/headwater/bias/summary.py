"""A bias audit as tables of text: groups, differences, and the names that push most to each side."""

from __future__ import annotations

from collections.abc import Sequence

from ..evaluation.summary import format_interval, format_p
from ..plurals import say_count
from ..viz.reading import visible
from ..viz.tables import Table
from .calibration import Calibration
from .effects import Effect
from .results import BiasAudit, GroupComparison, Ranked, Stratum

SHOWN = 8


def audit_headline(audit: BiasAudit) -> str:
    found = say_count(sum(group.mentions for group in audit.groups), "mention")
    where = say_count(audit.texts, "text")
    return f"{audit.target} by {audit.method}: {found} in {where}, {audit.provenance['model']}"


def sides(target: str) -> tuple[str, str]:
    """What a score rises and falls towards: the classes of a difference, else the score itself."""
    first, _, second = target.partition(" - ")
    return (f"towards {first}", f"towards {second}") if second else (f"for {target}", f"against {target}")


def audit_tables(audit: BiasAudit) -> list[Table]:
    compared = [difference_table(audit)] if audit.comparisons else []
    asked = [*([swap_table(audit)] if audit.swaps else []), *map(calibration_table, audit.calibrations)]
    return [group_table(audit), *compared, *asked, *name_tables(audit)]


def group_table(audit: BiasAudit) -> Table:
    rows = []
    for stratum in (audit.whole, *audit.parts):
        for g in stratum.groups:
            where = visible(g.name if stratum is audit.whole else f"{g.name}, {stratum.name}")
            counts = (str(g.mentions), str(g.entries))
            sizes = (f"{g.mean.value:+.3f}", format_interval(g.mean, "+.3f"), f"{g.median:+.3f}")
            rows.append((where, *counts, *sizes, f"{g.positive:.0%}", f"{g.score:+.2f}"))
    columns = ("group", "mentions", "entries", "mean", "95 %", "median", "above 0", "score of its texts")
    note = f"a word outside the groups has a mean |relevance| of {audit.typical:.2f}"
    return Table("relevance by group", columns, rows, note, left=1)


def difference_table(audit: BiasAudit) -> Table:
    rows = []
    for stratum in (audit.whole, *audit.parts):
        for c in stratum.comparisons:
            where = "" if stratum is audit.whole else f", {stratum.name}"
            rows.append(effect_row(f"{c.first} - {c.second}{where}", c.effect, format_chance(c, c.corrected)))
            if stratum is audit.whole:
                rows.append(effect_row(f"{c.first} - {c.second}, adjusted", c.adjusted, format_chance(c, c.adjusted.p)))
    columns = ("groups", "difference", "95 %", "d", "95 %", "p", "detectable")
    note = (
        "adjusted: with the rest of each text's score and the number of words accounted for; d: in standard "
        "deviations; p: permutation test over entries; detectable: would be found four times in five"
    )
    return Table("difference of the groups", columns, rows, note, left=1)


def swap_table(audit: BiasAudit) -> Table:
    rows = [effect_row(f"{s.first} - {s.second}", s.effect, format_p(s.effect.p)) for s in audit.swaps]
    columns = ("groups", "difference", "95 %", "d", "95 %", "p", "detectable")
    note = f"of the score, not of relevance: {say_count(audit.swaps[0].trials, 'text')} asked"
    return Table("the same texts with members of either group put in", columns, rows, note, left=1)


def calibration_table(found: Calibration) -> Table:
    """What the test says where the truth is known."""
    quarters = " ".join(f"{q:.2f}" for q in found.quartiles)
    rows = [("0", f"{found.false:.1%}", quarters)]
    rows += [(f"{one.difference:.2f}", f"{one.found:.1%}", "") for one in found.planted]
    note = (
        f"{found.labellings:,} random labellings of the entries of {found.first} and {found.second}; found: p <= .05; "
        "quartiles of p: .25 .50 .75 if the test keeps its level; planted are a half, one and one and a half times the "
        "detectable difference"
    )
    return Table("the test on random labels", ("planted difference", "found", "quartiles of p"), rows, note, left=0)


def format_chance(comparison: GroupComparison, value: float) -> str:
    """A p-value, where the groups are large enough for one to mean something."""
    return format_p(value) if comparison.enough else "too few"


def effect_row(name: str, found: Effect, chance: str) -> tuple[str, ...]:
    size, d = found.difference, found.d
    return (
        visible(name),
        f"{size.value:+.3f}",
        format_interval(size, "+.3f"),
        f"{d.value:+.2f}",
        format_interval(d, "+.2f"),
        chance,
        f"{found.detectable:.2f}",
    )


def name_tables(audit: BiasAudit) -> list[Table]:
    towards, away = sides(audit.target)
    highest = [r for r in audit.names if r.mean > 0][:SHOWN]
    lowest = [r for r in reversed(audit.names) if r.mean < 0][:SHOWN]
    return [name_table(f"what pushes most {towards}", highest), name_table(f"what pushes most {away}", lowest)]


def name_table(title: str, names: Sequence[Ranked]) -> Table:
    rows = [(visible(r.name), visible(r.group), str(r.mentions), f"{r.mean:+.3f}") for r in names]
    return Table(title, ("name", "group", "mentions", "mean"), rows, left=2)


def list_verdicts(stratum: Stratum) -> list[str]:
    return [f"{title(c)}: {c.verdict}" for c in stratum.comparisons]


def title(comparison: GroupComparison) -> str:
    return visible(f"{comparison.first} and {comparison.second}")
