"""Bars of a page: probabilities, and a ledger whose bars begin where the last one ended. HTML and style, no script."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from headwater.results.ledger import Ledger
from headwater.results.verdict import percent

from .reading import with_sign
from .sums import round_to_sum, sum_places

Share = tuple[str, float]


def share_bars(shares: Sequence[Share], chosen: str | None = None, after: Sequence[Share] = ()) -> str:
    """A bar for every name with its share, the chosen one in bold; `after`, where given, is what the share became."""
    became = dict(after)
    rows = "".join(_share(name, share, became.get(name), name == chosen) for name, share in shares)
    return f'<ul class="shares">{rows}</ul>'


def _share(name: str, share: float, became: float | None, chosen: bool) -> str:
    said = percent(share) if became is None else f"<s>{percent(share)}</s> → <strong>{percent(became)}</strong>"
    bars = "".join(
        f'<span class="{kind}" style="width:{100 * size:.2f}%"></span>'
        for kind, size in (("was" if became is not None else "is", share), ("is", became))
        if size is not None
    )
    shown = f"<strong>{escape(name)}</strong>" if chosen else escape(name)
    meter = f'<span class="meter" aria-hidden="true">{bars}</span>'
    return f'<li><span>{shown}</span><span class="n">{said}</span>{meter}</li>'


def ledger_bars(ledger: Ledger) -> str:
    """The lines of a ledger as bars that add up: each begins where the one above it ended, the last is the score."""
    lines = [("inputs", ledger.inputs), *((name, group.total) for name, group in ledger.groups.items() if group)]
    if ledger.readout:
        lines.append(("readout", ledger.readout))
    lines.append(("unaccounted", ledger.unaccounted))
    ends = [0.0]
    for _, amount in lines:
        ends.append(ends[-1] + amount)
    low, high = min(*ends, ledger.score), max(*ends, ledger.score)
    scale = (low, (high - low) or 1.0)
    places = sum_places(ledger.score)
    shown = [with_sign(amount, places) for amount in round_to_sum([a for _, a in lines], ledger.score, places)]
    rows = [_bar(name, at, scale, said) for (name, _), said, *at in zip(lines, shown, ends, ends[1:], strict=False)]
    total = _bar("score", [0.0, ledger.score], scale, with_sign(ledger.score, places), "total")
    return f'<div class="bars" aria-hidden="true">{"".join(rows)}{total}</div>'


def _bar(name: str, ends: Sequence[float], scale: tuple[float, float], said: str, kind: str = "") -> str:
    (start, end), (low, span) = ends, scale
    left, width = 100 * (min(start, end) - low) / span, 100 * abs(end - start) / span
    sign = kind or ("add" if end >= start else "take")
    zero = f'<span class="zero" style="left:{-100 * low / span:.2f}%"></span>'
    bar = f'<span class="bar {sign}" style="left:{left:.2f}%;width:{width:.2f}%"></span>'
    return f'<span>{escape(name)}</span><span class="track">{zero}{bar}</span><span class="n">{said.strip()}</span>'


BARS = """
.shares { list-style: none; margin: .5rem 0 1rem; padding: 0; display: grid; gap: .4rem; max-width: 30rem; }
.shares li { display: grid; grid-template-columns: 1fr auto; gap: 0 1rem; overflow-wrap: anywhere; }
.shares .meter { grid-column: 1 / -1; display: grid; gap: 2px; } .shares s { color: var(--soft); }
.shares .meter span { height: .4rem; border-radius: 9px; background: var(--ink); min-width: 2px; }
.shares .meter .was { background: var(--soft); height: .25rem; opacity: .5; }
.bars { display: grid; grid-template-columns: minmax(6rem, 11rem) 1fr 5rem; gap: .25rem 1rem; align-items: center;
  margin: .5rem 0; font-variant-numeric: tabular-nums; }
.bars .n { text-align: right; } .track { position: relative; height: 1rem; background: rgb(var(--pen) / .05); }
.track span { position: absolute; top: 0; bottom: 0; } .zero { width: 1px; background: rgb(var(--pen) / .4); }
.bar { min-width: 1.5px; } .bar.add { background: rgb(var(--add)); text-decoration: none; }
.bar.take { background: repeating-linear-gradient(-45deg, rgb(var(--pen) / .3) 0 2px, transparent 2px 6px),
  rgb(var(--take)); text-decoration: none; } .bar.total { background: var(--ink); }
"""
