"""A bias audit on disk: a page to read, the results as JSON, every mention as a table, the histogram as a picture."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from ..errors import UsageError
from ..evaluation.files import to_json
from ..results.display import FILE, shows
from .page import page, relevance_by_group
from .pictures import histogram_file
from .results import BiasAudit

COLUMNS = ("part", "row", "group", "entry", "name", "relevance", "score", "prediction", "start", "end", "text")
NAMES = {".html": "page.html", ".json": "audit.json", ".csv": "mentions.csv"}


@shows(FILE, BiasAudit)
def save_audit(audit: BiasAudit, path: str | Path) -> list[Path]:
    """One file by its ending, or page, results and mentions into a directory; says what was written."""
    path = check_path(path)
    files = name_files(path)
    try:
        next(iter(files.values())).parent.mkdir(parents=True, exist_ok=True)
        for suffix, file in files.items():
            file.write_text(WRITERS[suffix](audit), encoding="utf-8", newline="")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from error
    return list(files.values())


def name_files(path: Path) -> dict[str, Path]:
    """What is written, by its ending: one file, or three into a directory."""
    if path.suffix and not path.is_dir():
        return {path.suffix.lower(): path}
    return {suffix: path / name for suffix, name in NAMES.items()}


def check_path(path: str | Path, read: Iterable[str | Path] = ()) -> Path:
    """A path whose ending says what to write, refused before any work where it does not.

    What is `read` is not written over.
    """
    if Path(path).suffix and Path(path).suffix.lower() not in WRITERS and not Path(path).is_dir():
        raise UsageError(f"{path} ends in none of {', '.join(WRITERS)}; without an ending it is a directory.")
    for file in name_files(Path(path)).values():
        if file.exists() and any(os.path.exists(one) and file.samefile(one) for one in read):
            raise UsageError(f"{file} is read, and would be written over: name another file.")
    return Path(path)


def audit_json(audit: BiasAudit) -> str:
    return json.dumps(to_json(audit.to_dict()), indent=1, ensure_ascii=False) + "\n"


def as_csv(audit: BiasAudit) -> str:
    """Every mention, in the order of the data."""
    written = io.StringIO()
    table = csv.writer(written)
    table.writerow(COLUMNS)
    for m in audit.mentions:
        table.writerow([getattr(m, name) for name in COLUMNS])
    return written.getvalue()


def as_svg(audit: BiasAudit) -> str:
    return histogram_file(*relevance_by_group(audit))


WRITERS: dict[str, Callable[[BiasAudit], str]] = {".html": page, ".json": audit_json, ".csv": as_csv, ".svg": as_svg}
