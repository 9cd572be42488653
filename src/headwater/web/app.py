"""The server's application: routes, pages and guards around one `AppState`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles

from ..version import __version__
from .answer_routes import router as answers
from .datasets import router as results
from .help import router as documents
from .inside_routes import router as inside
from .jobs import explain_refusals
from .mask_routes import router as masks
from .routes import router
from .security import LOOPBACK, Guard
from .similar_routes import router as similar
from .slices import router as slices
from .state import AppState

STATIC = Path(__file__).parent / "static"
ABOUT = (
    "Explanations of transformer predictions that add up. Every route answers with JSON; where several requests "
    "wait, a name in the header X-Headwater-Job lets one ask for its place, and cancel."
)


def create_app(state: AppState, *, hosts: Iterable[str] | None = LOOPBACK, token: str | None = None) -> FastAPI:
    """The application. `hosts` are the names it may be addressed by, `token` what every request must then show."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        state.close()

    app = FastAPI(
        title="Headwater",
        version=__version__,
        description=ABOUT,
        docs_url=None,  # they are made of scripts from another host; ours stands below
        redoc_url=None,
        openapi_url="/api/openapi.json",
        lifespan=lifespan,
    )
    app.state.headwater = state
    app.include_router(router)
    app.include_router(results)
    app.include_router(slices)
    app.include_router(masks)
    app.include_router(answers)
    app.include_router(similar)
    app.include_router(inside)
    app.include_router(documents)
    explain_refusals(app)
    app.add_middleware(Guard, hosts=hosts, token=token, limits=state.limits)

    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(STATIC / "index.html")

    @app.get("/docs", include_in_schema=False)
    async def api_page() -> FileResponse:
        return FileResponse(STATIC / "docs.html")

    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    return app
