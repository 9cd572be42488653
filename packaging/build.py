"""Builds what is released, twice, and refuses if the bytes differ: python packaging/build.py DIRECTORY

The library as wheel and sdist, the experiments as a wheel. Times in the files are that of the last commit, or
SOURCE_DATE_EPOCH, so that anybody who builds the same commit with the same tools gets the same hashes: SHA256SUMS.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILT = (("wheel", ROOT), ("sdist", ROOT), ("wheel", ROOT / "experiments"))


def build_into(folder: Path) -> dict[str, str]:
    """The hash of each file by its name."""
    for kind, source in BUILT:
        words = [sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", str(folder), str(source)]
        subprocess.run(words, check=True, env={**os.environ, "SOURCE_DATE_EPOCH": time_of_commit()})
    files = [*folder.glob("*.whl"), *folder.glob("*.tar.gz")]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(files)}


def time_of_commit() -> str:
    given = os.environ.get("SOURCE_DATE_EPOCH")
    words = ["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]
    return given or subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def main(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    first = build_into(out)
    with tempfile.TemporaryDirectory() as folder:
        second = build_into(Path(folder))
    if first != second:
        raise SystemExit(f"built twice, and not the same: {first} and {second}")
    lines = [f"{digest}  {name}\n" for name, digest in first.items()]
    (out / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")
    sys.stdout.writelines(lines)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
