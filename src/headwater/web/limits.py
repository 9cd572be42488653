"""How much one request may ask, and how many may wait: a server that is asked too much says so and lives."""

from __future__ import annotations

from dataclasses import dataclass

KIB, MIB = 1024, 1024 * 1024
FILES = ("/api/image", "/api/answer/document")  # what is sent there has a file in it


@dataclass(frozen=True)
class Limits:
    """Bounds of one server. `seconds` is the time that one request may compute, `waiting` how many may stand in line.

    Schemas have the bounds of their own fields (characters, methods, masked words). Here are those that depend on the
    machine, or on the data.
    """

    workers: int = 2
    waiting: int = 32
    seconds: float = 60.0
    body: int = 12 * MIB  # of a request with an image or a document's file
    text_body: int = 512 * KIB  # of any other: 20,000 characters, each escaped as twelve bytes, and names
    bodies: int = 128 * MIB  # of all requests together that are being read, wait or are being answered
    arriving: float = 60.0  # seconds that a body may take to arrive
    connections: int = 512
    image_pixels: int = 24_000_000
    image_side: int = 16_384
    image_ratio: int = 50  # of the longer to the shorter side: a processor may enlarge the shorter one
    atoms: int = 150
    kept: int = 64  # answers that are kept, so that a report does not compute again what is on the screen

    def body_of(self, path: str) -> int:
        """How many bytes a request to this address may have."""
        return self.body if path.startswith(FILES) else min(self.body, self.text_body)
