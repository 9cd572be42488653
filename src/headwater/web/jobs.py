"""From a request to its answer: through the line, stopped when nobody waits any more; every refusal says why."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, cast

from fastapi import Depends, FastAPI, Header, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from ..errors import DataError, HeadwaterError, LoadError, MissingExtra
from .cancelling import Cancelled, OutOfTime
from .faults import fault_sentence
from .models import NotReady
from .pool import Busy, JobPool
from .schemas import Problem
from .security import HEADERS
from .state import AppState

Found = TypeVar("Found")
FAULTS, SHOWN = 8, 200  # of a request that is not as it should be: how many are said, and how long each
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


def app_state(request: Request) -> AppState:
    return cast(AppState, request.app.state.headwater)


@dataclass(frozen=True)
class Caller:
    """Who asks, the name of the request, and what the server has to answer it with."""

    request: Request
    state: AppState
    name: str | None = None

    async def submit(self, work: Callable[[], Found]) -> Found:
        """What the work gives, once its turn has come. If whoever asked goes away, it is cancelled."""
        pool = self.state.pool
        job = pool.submit(work, self.name)
        watch = asyncio.create_task(cancel_on_disconnect(self.request, pool, job.id))
        try:
            found: Found = await asyncio.wrap_future(job.done)
            return found
        except asyncio.CancelledError:  # the server itself is stopping
            pool.cancel(job.id)
            raise
        finally:
            watch.cancel()


async def find_caller(request: Request) -> Caller:
    return Caller(request, app_state(request))


async def find_named_caller(request: Request, job: JobName = None) -> Caller:
    return Caller(request, app_state(request), job)


AnyCaller = Annotated[Caller, Depends(find_caller)]
NamedCaller = Annotated[Caller, Depends(find_named_caller)]  # whose request can be cancelled by its name


async def cancel_on_disconnect(request: Request, pool: JobPool, name: str) -> None:
    while not await request.is_disconnected():
        await asyncio.sleep(LOOKS)
    pool.cancel(name)


def explain_refusals(app: FastAPI) -> None:
    """Errors of the library, and of a request's form, as answers that say what to do."""

    @app.exception_handler(HeadwaterError)
    async def refused(request: Request, error: Exception) -> JSONResponse:
        status, kind = next((s, k) for found, s, k in STATUS if isinstance(error, found))
        again = {"Retry-After": "1"} if status in AGAIN else None
        return problem(status, kind, str(error), headers=again)

    @app.exception_handler(RequestValidationError)
    async def malformed(request: Request, error: RequestValidationError) -> JSONResponse:
        found = [
            {"loc": clean_location(e["loc"]), "msg": shorten_message(e["msg"]), "type": e["type"]}
            for e in error.errors()[:FAULTS]
        ]
        said = " ".join(fault_sentence(e) for e in error.errors()[:FAULTS])
        return problem(422, "refused", said, detail=found)

    @app.exception_handler(HTTPException)
    async def unanswered(request: Request, error: HTTPException) -> JSONResponse:
        kind = "absent" if error.status_code == 404 else "refused"
        return problem(error.status_code, kind, f"{error.detail}.".replace("..", "."), headers=error.headers)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> JSONResponse:
        return problem(500, "server", "the server failed at this request; what it printed says why.", headers=HEADERS)


def problem(
    status: int, kind: str, message: str, headers: Mapping[str, str] | None = None, **more: object
) -> JSONResponse:
    """An answer that tells why there is none. Of a request nothing is repeated that cannot be written as JSON."""
    return JSONResponse({"error": kind, "message": clean(message), **more}, status_code=status, headers=headers)


def clean_location(where: Sequence[str | int]) -> list[str | int]:
    """Where in a request a fault is. A field's name is the sender's own, and may be anything."""
    return [part if isinstance(part, int) else shorten_message(part) for part in where]


def shorten_message(text: str) -> str:
    return clean(text if len(text) <= SHOWN else f"{text[:SHOWN]}…")


def clean(text: str) -> str:
    """Text that can be sent: half of a surrogate pair becomes a question mark."""
    return text.encode("utf-8", "replace").decode()
