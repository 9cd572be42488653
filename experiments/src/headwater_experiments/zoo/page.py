"""What was found, as tables: for the terminal, and as the page `docs/architectures.md`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from headwater.viz.tables import Table, markdown

from .entries import MAPS
from .judging import CAST, EXACT
from .results import VERDICTS, Count, Finding, count, counts

FIRST = tuple(MAPS)[:3]
COLUMNS = ("map/name", "closed", "error", "operations that leaked")


def zoo_page(findings: Sequence[Finding]) -> str:
    """The whole page. Nothing in it depends on when or where it was made but the versions that it names."""
    found = in_order(findings)
    parts = [
        "# Architectures",
        INTRODUCTION.strip(),
        f"Made with {', '.join(sorted({one.versions for one in found if one.versions})) or 'nothing yet'}.",
        "## How many",
        "\n".join(markdown(totals(found))),
        "## What did not close",
        "\n".join(markdown(groups(found))),
        "## Every entry",
        "\n".join(markdown(table_of_all(found))),
    ]
    return "\n\n".join(parts) + "\n"


INTRODUCTION = f"""
Written by `headwater zoo --page docs/architectures.md`: change the command, not this page.

Every entry of eight of transformers' maps is built from a shrunken configuration (two layers or one of every kind, 32
wide) with random weights, biases, norms and running statistics, in float64 where its code allows it, and is explained
by `lrp`: one sample, 16 tokens, a small image or a short sound. Models for several kinds of input get a text, unless
the map asks for another; experts are run one by one, since the grouped products know no float64. Nothing is trained, so
the numbers say nothing of what models know: they say whether relevance is lost inside.

- **closed**: inputs + biases + constants equal the score that the plain model gives without Headwater, to {EXACT:g} of
  the sum of the absolute lines, or to {CAST:g} where the model's own code casts to float32 or less. Such a model must
  close to {EXACT:g} once more with its casts lifted, so that no leak hides in rounding. The inputs have relevance, and
  nothing that depends on them was cut off by the model's own code.
- **open**: they do not, or the rules broke down. The last column names what was cut off, or the operations that leaked,
  the largest first, each with the class of module that it stands in.
- **refused**: Headwater said that it cannot explain the model; the last column has what it said.
- **not built**: the harness could not make a small model; the last column says why.
- **later played by a plan**: so many were explained a third time [by a plan](speed.md#plans), as plainly to the last
  bit.
"""


def in_order(findings: Sequence[Finding]) -> list[Finding]:
    maps = list(MAPS)
    return sorted(findings, key=lambda one: (maps.index(one.map), one.name))


def totals(findings: Sequence[Finding]) -> Table:
    """A row a map, and one for the first three together, for which the aim is stated."""
    each = counts(findings)
    first = [one for one in findings if one.map in FIRST]
    if len({one.map for one in first}) > 1:
        each.append(count("the first three", first))
    if len(first) < len(findings) and len({one.map for one in findings}) > 1:
        each.append(count("all", findings))
    columns = ("map", "entries", "built", *VERDICTS[:3], "closed of built", "later played by a plan")
    return Table("how many", columns, [total_row(one) for one in each], left=1)


def total_row(one: Count) -> tuple[str, ...]:
    verdicts = (str(one.verdicts[verdict]) for verdict in VERDICTS[:3])
    share = f"{100 * one.share:.1f} %" if one.built else "–"
    wrong = f", {one.ways['another']} otherwise than plainly" if one.ways["another"] else ""
    return (one.map, str(one.entries), str(one.built), *verdicts, share, f"{one.ways['plan']}{wrong}")


def groups(findings: Sequence[Finding]) -> Table:
    """What did not close by what it is put down to, the most frequent first."""
    kinds: dict[tuple[str, str], list[str]] = {}
    for one in findings:
        if one.verdict in ("open", "refused"):
            kinds.setdefault((one.verdict, cause(one)), []).append(one.label)
    rows = sorted(kinds.items(), key=lambda item: (-len(item[1]), item[0]))
    return Table(
        "what did not close",
        ("how many", "closed", "cause", "where"),
        [(str(len(where)), verdict, escape_cell(why), ", ".join(where)) for (verdict, why), where in rows],
    )


def cause(one: Finding) -> str:
    """The largest leak, or what was said."""
    return one.why or (one.leaks[0] if one.leaks else "unknown")


def table_of_all(findings: Sequence[Finding]) -> Table:
    return Table("every entry", COLUMNS, [row(one) for one in findings], left=len(COLUMNS))


def row(one: Finding) -> tuple[str, ...]:
    error = "–" if one.error is None else f"{one.error:.0e}"
    said = "; ".join(part for part in (one.why, ", ".join(one.leaks)) if part)
    return (one.label, one.verdict, error, escape_cell(said))


def escape_cell(text: str) -> str:
    """Text that does not break a table."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def summarise_findings(findings: Sequence[Finding]) -> tuple[list[str], list[Table]]:
    """What the command prints: the totals, then all that is not closed."""
    found = in_order(findings)
    rest = [one for one in found if one.verdict != "closed"]
    verdicts = Counter(one.verdict for one in found)
    lines = [", ".join(f"{verdicts[verdict]} {verdict}" for verdict in VERDICTS)]
    tables = [totals(found)]
    if rest:
        tables.append(Table("what did not close", COLUMNS, [row(one) for one in rest], left=len(COLUMNS)))
    return lines, tables
