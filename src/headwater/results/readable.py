"""Tokens as people read them: without their tokenizer's marks, and with nothing that cannot be seen."""

from __future__ import annotations

SPACE_MARKS = ("Ġ", "▁")


def readable(token: str) -> str:
    """A token without its tokenizer's marks: `##ly` -> `ly`, `Ġfilm` and `▁film` -> `film`, a line break as ↵."""
    for mark in ("##", *SPACE_MARKS):
        if token.startswith(mark) and len(token) > len(mark):
            token = token[len(mark) :]
            break
    return visible(token.replace("Ċ", "\n").replace("Ġ", " ").replace("▁", " "))


def name_piece(piece: str) -> str:
    """A token's own text, read alone, without the space around it; … where a later token ends its character."""
    return visible(piece.strip(" ") or " ") if piece else "…"


def visible(text: str) -> str:
    """No character that a terminal would obey or a reader would not see."""
    shown = "".join({"\n": "↵", "\t": "⇥"}.get(c, c if c.isprintable() else f"\\x{ord(c):02x}") for c in text)
    return shown if shown.strip() else "␣" * max(1, len(shown))


def visible_lines(text: str) -> str:
    """The same of a text whose lines are its own; what is blank stays so."""
    return "\n".join(visible(line) if line.strip() else "" for line in text.split("\n"))
