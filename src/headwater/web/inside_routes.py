"""The API of a model's parts: heads, layers and neurons of a text, a head between words, parts switched off, runs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response

from .inside import head_answer, inside_answer, inside_report, inside_runs, patch_nodes, trace_circuit, units_answer
from .inside_schemas import (
    CircuitAnswer,
    CircuitAsked,
    HeadAnswer,
    HeadAsked,
    InsideAnswer,
    InsideAsked,
    InsideRun,
    PartKind,
    PatchAnswer,
    PatchAsked,
    ReportAsked,
    UnitsAnswer,
)
from .jobs import RESPONSES, JobName, app_state, submit
from .reports import PageFormat
from .routes import FILE, file
from .schemas import NAME, PaletteName

router: APIRouter = APIRouter(prefix="/api/inside", responses=RESPONSES, tags=["inside"])
RunName = Annotated[str, Path(max_length=NAME, description="A name that /api/inside/runs gives.")]


@router.post("")
async def post_inside(request: Request, ask: InsideAsked, job: JobName = None) -> InsideAnswer:
    """The relevance of every head, of every layer by token, and of the largest neurons, with the ledger of each cut."""
    state = app_state(request)
    return await submit(request, lambda: inside_answer(state.inside_model(ask), ask, state.inside(ask)), job)


@router.post("/head")
async def post_head(request: Request, ask: HeadAsked, job: JobName = None) -> HeadAnswer:
    """One head between words: its attention, and its relevance between the same words."""
    state = app_state(request)
    return await submit(request, lambda: head_answer(state.head_pairs(ask), ask), job)


@router.post("/patch")
async def post_patch(request: Request, ask: PatchAsked, job: JobName = None) -> PatchAnswer:
    """Heads or neurons switched off, and what the model then says."""
    state = app_state(request)
    return await submit(request, lambda: patch_nodes(state.inside_model(ask), ask), job)


@router.post("/circuit")
async def post_circuit(request: Request, ask: CircuitAsked, job: JobName = None) -> CircuitAnswer:
    """The parts that carry most of the score, and what flows between them."""
    state = app_state(request)
    return await submit(request, lambda: trace_circuit(state.inside_model(ask), ask), job)


@router.get("/runs")
async def get_runs(request: Request, job: JobName = None) -> list[InsideRun]:
    """Stored runs that have parts of a model in their columns."""
    state = app_state(request)
    return await submit(request, lambda: inside_runs(state.stores), job)


@router.get("/runs/{run}/{kind}")
async def get_units(request: Request, run: RunName, kind: PartKind, job: JobName = None) -> UnitsAnswer:
    """The heads or neurons of a run with most relevance, and the tokens at which they have it."""
    state = app_state(request)
    return await submit(request, lambda: units_answer(state.store(run), kind), job)


@router.post("/report", response_class=Response, responses=FILE)
async def post_inside_report(
    request: Request,
    ask: ReportAsked,
    form: PageFormat = "html",
    palette: PaletteName = "red-blue",
    job: JobName = None,
) -> Response:
    """The parts of the model as one file: a page, or JSON."""
    state = app_state(request)

    def work() -> str:
        own = InsideAsked(**ask.model_dump(exclude={"nodes", "replaced_by"}))
        patched = patch_nodes(state.inside_model(ask), ask) if ask.nodes else None
        return inside_report(state.inside(own)[0], patched, ask.replaced_by, form, palette)

    return file(await submit(request, work, job), form, "inside")
