"""Connections that do not get on are cut off: uvicorn itself waits for ever for the rest of a request's headers."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEADERS = 10.0  # seconds from a request's first byte, or from the connection, until its headers are there
STALLED = 30.0  # seconds that an answer may wait for a client that does not read it


class TimedConnection(H11Protocol):
    """Uvicorn's HTTP, with an end to waiting for headers and for clients that do not read.

    The time of the headers runs from their first byte and is not set back by the next ones, so that sending a byte now
    and then gains nothing. Between two requests uvicorn's own `timeout_keep_alive` counts, and for bodies `web.bodies`.
    """

    headers_seconds = HEADERS
    stalled_seconds = STALLED
    _for_headers: asyncio.TimerHandle | None = None
    _for_reader: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait_for_headers()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait_for_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._stop_stalling()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._for_reader is None:
            self._for_reader = self.loop.call_later(self.stalled_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_stalling()

    def _wait_for_headers(self) -> None:
        """Time runs while no request is being answered and a part of the next one is here."""
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering or self.transport.is_closing():
            self._stop_waiting()
        elif self._for_headers is None:
            self._for_headers = self.loop.call_later(self.headers_seconds, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._for_headers is not None:
            self._for_headers.cancel()
            self._for_headers = None

    def _stop_stalling(self) -> None:
        if self._for_reader is not None:
            self._for_reader.cancel()
            self._for_reader = None
