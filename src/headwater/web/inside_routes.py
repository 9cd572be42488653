"""The API of a model's parts: heads, layers and neurons of a text, a head between words, parts switched off, runs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

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
from .jobs import RESPONSES, NamedCaller
from .reports import PageFormat
from .routes import FILE, send_file
from .schemas import NAME, PaletteName

router: APIRouter = APIRouter(prefix="/api/inside", responses=RESPONSES, tags=["inside"])
RunName = Annotated[str, Path(max_length=NAME, description="A name that /api/inside/runs gives.")]


@router.post("")
async def post_inside(caller: NamedCaller, ask: InsideAsked) -> InsideAnswer:
    """The relevance of every head, of every layer by token, and of the largest neurons, with the ledger of each cut."""
    return await caller.submit(lambda: inside_answer(caller.state.inside_model(ask), ask, caller.state.inside(ask)))


@router.post("/head")
async def post_head(caller: NamedCaller, ask: HeadAsked) -> HeadAnswer:
    """One head between words: its attention, and its relevance between the same words."""
    return await caller.submit(lambda: head_answer(caller.state.head_pairs(ask), ask))


@router.post("/patch")
async def post_patch(caller: NamedCaller, ask: PatchAsked) -> PatchAnswer:
    """Heads or neurons switched off, and what the model then says."""
    return await caller.submit(lambda: patch_nodes(caller.state.inside_model(ask), ask))


@router.post("/circuit")
async def post_circuit(caller: NamedCaller, ask: CircuitAsked) -> CircuitAnswer:
    """The parts that carry most of the score, and what flows between them."""
    return await caller.submit(lambda: trace_circuit(caller.state.inside_model(ask), ask))


@router.get("/runs")
async def get_runs(caller: NamedCaller) -> list[InsideRun]:
    """Stored runs that have parts of a model in their columns."""
    return await caller.submit(lambda: inside_runs(caller.state.stores))


@router.get("/runs/{run}/{kind}")
async def get_units(caller: NamedCaller, run: RunName, kind: PartKind) -> UnitsAnswer:
    """The heads or neurons of a run with most relevance, and the tokens at which they have it."""
    return await caller.submit(lambda: units_answer(caller.state.store(run), kind))


@router.post("/report", response_class=Response, responses=FILE)
async def post_inside_report(
    caller: NamedCaller, ask: ReportAsked, form: PageFormat = "html", palette: PaletteName = "red-blue"
) -> Response:
    """The parts of the model as one file: a page, or JSON."""

    def work() -> str:
        own = InsideAsked(**ask.model_dump(exclude={"nodes", "replaced_by"}))
        patched = patch_nodes(caller.state.inside_model(ask), ask) if ask.nodes else None
        return inside_report(caller.state.inside(own)[0], patched, ask.replaced_by, form, palette)

    return send_file(await caller.submit(work), form, "inside")
