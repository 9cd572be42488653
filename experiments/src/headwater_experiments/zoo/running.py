"""The zoo as one run: what is known already is taken over, the rest is judged, everything is kept as it comes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.errors import UsageError
from headwater.evaluation.progress import show_progress

from .entries import Entry
from .pool import findings
from .results import Finding, append, load_findings, versions


@dataclass(frozen=True)
class Zoo:
    """What a run found, in the order of the maps."""

    findings: tuple[Finding, ...]

    def to_dict(self) -> dict[str, Any]:
        return {"findings": [one.to_dict() for one in self.findings]}


def run(
    entries: Sequence[Entry],
    *,
    out: Path | None = None,
    jobs: int = 2,
    timeout: float = 120.0,
    memory: float = 6.0,
    progress: bool | None = None,
) -> Zoo:
    """The finding of every entry. With `out`, those that stand there in these versions are not made again."""
    if not entries:
        raise UsageError("no architecture is asked for: these maps and names have none in common.")
    usable = {(entry.label, entry.method, versions()) for entry in entries}
    before = [] if out is None else load_findings(out)
    known = {one.label: one for one in before if (one.label, one.method, one.versions) in usable}
    missing = [entry for entry in entries if entry.label not in known]
    found = dict(known)
    with show_progress(len(entries), len(entries) - len(missing), progress, "judging", "architectures") as advance:
        for one in findings(missing, jobs, timeout, memory):
            found[one.label] = one
            if out is not None:
                append(out, one)
            advance(1)
    return Zoo(tuple(found[entry.label] for entry in entries))
