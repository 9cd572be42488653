"""Names given in one option, separated by commas."""

from __future__ import annotations


def split_names(names: str) -> list[str]:
    """Names between commas; a comma inside brackets belongs to its name."""
    found, depth = [""], 0
    for character in names:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            found.append("")
        else:
            found[-1] += character
    return [name.strip() for name in found if name.strip()]
