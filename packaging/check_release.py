"""Says what stands in the way of a release, and fails if anything does: python packaging/check_release.py v1.2.3

`make release-check` asks for the version that the sources have.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACEHOLDER = re.compile(r"https?://[\w.-]*\.example\b")
WITH_ADDRESSES = ("pyproject.toml", "experiments/pyproject.toml", "CITATION.cff", "packaging/conda/recipe.yaml")


def find_obstacles(root: Path, tag: str) -> Iterator[str]:
    version = read_version(root)
    if tag != f"v{version}":
        yield f"the tag is {tag}, and the sources have version {version}"
    if f"\nversion: {version}\n" not in read(root, "CITATION.cff"):
        yield f"CITATION.cff has another version than {version}"
    if not re.search(rf"^## {re.escape(version)} \(\d{{4}}-\d\d-\d\d\)$", read(root, "CHANGELOG.md"), re.MULTILINE):
        yield f"CHANGELOG.md has no heading '## {version} (YYYY-MM-DD)'"
    for name in WITH_ADDRESSES:
        if found := PLACEHOLDER.search(read(root, name)):
            yield f"{name} has a placeholder for an address: {found[0]}"


def read_version(root: Path) -> str:
    found = re.search(r'__version__ = "(.+)"', read(root, "src/headwater/version.py"))
    return found[1] if found else ""


def read(root: Path, name: str) -> str:
    return (root / name).read_text(encoding="utf-8")


def main(tag: str) -> None:
    obstacles = list(find_obstacles(ROOT, tag))
    sys.stdout.writelines(f"{one}\n" for one in obstacles)
    raise SystemExit(1 if obstacles else 0)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else f"v{read_version(ROOT)}")
