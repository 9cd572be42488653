"""A request's body, read whole before a route sees it: bounded in bytes, in time, and over all requests together.

A header may lie about a body's length, or say nothing of it. So what arrives is counted, and refused at the first byte
too many; nothing is parsed before all of it is there.
"""

from __future__ import annotations

import asyncio

from starlette.types import Message, Receive


class Refusal(Exception):
    """Why a body is not read: an HTTP status, and a sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Gone(Exception):
    """Whoever sent the body went away before its end."""


class Bodies:
    """Reads bodies: each within `seconds`, and at most `at_once` bytes held for all requests together."""

    def __init__(self, seconds: float, at_once: int) -> None:
        self.seconds = seconds
        self.at_once = at_once
        self.held: int = 0

    async def read(self, receive: Receive, most: int) -> bytes:
        """A body of at most so many bytes. They are held until they are let go of."""
        body = bytearray()
        try:
            await asyncio.wait_for(self._collect(receive, body, most), self.seconds)
        except BaseException as error:
            self.let_go(len(body))
            if isinstance(error, asyncio.TimeoutError):
                raise Refusal(408, f"the body of a request must arrive within {self.seconds:g} seconds.") from error
            raise
        return bytes(body)

    def let_go(self, size: int) -> None:
        self.held -= size

    async def _collect(self, receive: Receive, body: bytearray, most: int) -> None:
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise Gone
            part, more = message.get("body", b""), message.get("more_body", False)
            if len(body) + len(part) > most:
                raise Refusal(413, f"a request to this address may have {most:,} bytes, this one has more.")
            if self.held + len(part) > self.at_once:
                raise Refusal(429, "busy: other large requests are being read. Try again in a moment.")
            body += part
            self.held += len(part)


def replay_body(body: bytes, receive: Receive) -> Receive:
    """A body that was read, given to the application once; what comes after it is whether the client is still there."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again
