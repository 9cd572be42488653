"""What was found of each entry, kept line by line, so that a run that was stopped goes on where it was."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from headwater.errors import DataError

from .entries import METHOD, Entry

VERDICTS = ("closed", "open", "refused", "not built")


@dataclass(frozen=True)
class Finding:
    """The verdict on one entry.

    `error` is what the ledger misses of the plain model's score, relative to the sum of its absolute lines. `leaks` are
    operations with the class of module that they stand in, the largest first; `why` says what else is to be said.
    """

    map: str
    name: str
    verdict: str
    why: str = ""
    error: float | None = None
    tolerance: float | None = None
    exact: float | None = None  # the error with the model's casts to float32 and less lifted, where it has any
    leaks: tuple[str, ...] = ()
    score: float | None = None
    inputs: float | None = None  # sum of the absolute relevance of the inputs, relative to that of all lines
    dtype: str = ""
    seconds: float = 0.0
    versions: str = ""
    method: str = METHOD
    way: str = ""  # of a third explanation: "plain", "plan", or "another" if a plan said something else

    @property
    def label(self) -> str:
        return f"{self.map}/{self.name}"

    def to_dict(self) -> dict[str, object]:
        plain = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in asdict(self).items()}
        return {**plain, "leaks": list(self.leaks)}


def unfinished_finding(entry: Entry, verdict: str, why: str, seconds: float = 0.0) -> Finding:
    return Finding(
        entry.map, entry.name, verdict, why, seconds=round(seconds, 2), versions=versions(), method=entry.method
    )


def versions() -> str:
    """Of what the findings depend on: those of other versions are not taken over."""
    from importlib.metadata import version

    from headwater.version import __version__

    return f"headwater {__version__}, torch {version('torch')}, transformers {version('transformers')}"


def load_findings(file: Path) -> list[Finding]:
    """The findings in a file, the last one of every entry; none where there is no file."""
    if not file.exists():
        return []
    try:
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        found = [Finding(**{**row, "leaks": tuple(row["leaks"])}) for row in rows]
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(f"{file} holds no findings of the zoo: {error}. Give another --out, or remove it.") from error
    return list({one.label: one for one in found}.values())


def append(file: Path, finding: Finding) -> None:
    with file.open("a", encoding="utf-8") as out:
        out.write(json.dumps(finding.to_dict(), ensure_ascii=False) + "\n")


@dataclass(frozen=True)
class Count:
    """How many entries of a map ended how."""

    map: str
    entries: int
    verdicts: Counter[str]
    ways: Counter[str]

    @property
    def built(self) -> int:
        return self.entries - self.verdicts["not built"]

    @property
    def share(self) -> float:
        """Of those built, how many closed: 0 to 1, higher is better."""
        return self.verdicts["closed"] / self.built if self.built else math.nan


def counts(findings: Sequence[Finding]) -> list[Count]:
    maps = dict.fromkeys(one.map for one in findings)
    return [count(name, [one for one in findings if one.map == name]) for name in maps]


def count(name: str, findings: Iterable[Finding]) -> Count:
    found = list(findings)
    verdicts = Counter(one.verdict for one in found)
    return Count(name, len(found), verdicts, Counter(one.way for one in found))
