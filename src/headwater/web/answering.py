"""From a request to its answer: through the line, stopped when nobody waits any more; every refusal says why."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, TypeVar, cast

from fastapi import FastAPI, Header, Request
from fastapi.responses import JSONResponse

from ..errors import DataError, HeadwaterError, LoadError, MissingExtra
from .cancelling import Cancelled, OutOfTime
from .models import NotReady
from .pool import Busy, Pool
from .schemas import Problem
from .studio import Studio

Found = TypeVar("Found")
LOOKS = 0.1  # seconds between two looks at whether anybody still waits
JobName = Annotated[
    str | None,
    Header(
        alias="X-Headwater-Job",
        pattern="^[A-Za-z0-9_-]{8,64}$",
        description="A name for this request, to ask for its place in the line and to cancel it by.",
    ),
]
STATUS: tuple[tuple[type[HeadwaterError], int, str], ...] = (
    (Busy, 429, "busy"),
    (NotReady, 503, "loading"),
    (Cancelled, 409, "cancelled"),
    (OutOfTime, 408, "time"),
    (LoadError, 404, "absent"),
    (DataError, 404, "absent"),
    (MissingExtra, 404, "absent"),
    (HeadwaterError, 400, "refused"),
)
AGAIN = (429, 503)
SAID = {
    400: "It cannot be done as it was asked.",
    403: "It came from another server's page, or under another name.",
    404: "There is no such model, result or request here.",
    408: "It took longer than a request may.",
    409: "It was cancelled, or its name is in use.",
    413: "It is too large.",
    429: "As many requests wait as may: try again.",
    503: "The model is being read: try again.",
}
RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": said} for status, said in SAID.items()
}


def studio_of(request: Request) -> Studio:
    return cast(Studio, request.app.state.studio)


async def answered(request: Request, work: Callable[[], Found], name: str | None) -> Found:
    """What the work gives, once its turn has come. If whoever asked goes away, it is cancelled."""
    pool = studio_of(request).pool
    job = pool.submit(work, name)
    watch = asyncio.create_task(cancel_if_gone(request, pool, job.id))
    try:
        found: Found = await asyncio.wrap_future(job.done)
        return found
    except asyncio.CancelledError:  # the server itself is stopping
        pool.cancel(job.id)
        raise
    finally:
        watch.cancel()


async def cancel_if_gone(request: Request, pool: Pool, name: str) -> None:
    while not await request.is_disconnected():
        await asyncio.sleep(LOOKS)
    pool.cancel(name)


def explain_refusals(app: FastAPI) -> None:
    """Errors of the library as answers that say what to do."""

    @app.exception_handler(HeadwaterError)
    async def refused(request: Request, error: Exception) -> JSONResponse:
        status, kind = next((s, k) for found, s, k in STATUS if isinstance(error, found))
        again = {"Retry-After": "1"} if status in AGAIN else None
        return JSONResponse({"error": kind, "message": str(error)}, status_code=status, headers=again)
