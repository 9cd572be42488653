"""Where sentences begin and end in a text."""

from __future__ import annotations

import re

# A sentence ends at a line break, at a sign of the East, and at . ! ? … with closing signs where a space follows.
END = re.compile(r"[.!?…]+[\"'”’)\]»]*(?=\s|$)|[。！？]+[」』”’）]*|\n+")
INITIAL = re.compile(r"(?:^|[\s(.\-])[A-Z]\.$")  # "J. S. Bach"
SHORT = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|No|vs|cf|ca|al|approx|Fig|e\.g|i\.e)\.$", re.IGNORECASE)
PAUSE = re.compile(r"(?:\.\.\.|…)$")  # "well… perhaps"


def find_sentences(text: str) -> list[tuple[int, int]]:
    """Start and end of every sentence, without the space around it. All letters of the text are in one of them."""
    found, start = [], 0
    for match in END.finditer(text):
        if "\n" in match[0] or not goes_on(text, start, match.end()):
            found.append((start, match.end()))
            start = match.end()
    found.append((start, len(text)))
    return [trim(text, a, b) for a, b in found if text[a:b].strip()]


def goes_on(text: str, start: int, end: int) -> bool:
    """Whether a full stop ends no sentence: after an initial or a short form, or a pause before a small letter."""
    before, after = text[start:end], text[end : end + 40].lstrip()
    return bool(INITIAL.search(before) or SHORT.search(before) or (PAUSE.search(before) and after[:1].islower()))


def trim(text: str, start: int, end: int) -> tuple[int, int]:
    """The same stretch without the space around it."""
    inner = text[start:end]
    return start + len(inner) - len(inner.lstrip()), end - len(inner) + len(inner.rstrip())
