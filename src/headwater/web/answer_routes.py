"""The API of whole answers: the answer, its sources put to the test, and the same answer without some of them."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from ..errors import UsageError
from .answer_schemas import AnswerAsked, DocumentFileAsked, DocumentRead, SourcesAnswer, WholeAnswer, WithoutAnswer
from .answers import (
    answer_report,
    leave_sources_out,
    read_document_file,
    sources_answer,
    whole_answer,
    without_answer,
)
from .jobs import RESPONSES, JobName, app_state, submit
from .reports import PageFormat
from .routes import FILE, file
from .schemas import PaletteName

router: APIRouter = APIRouter(prefix="/api/answer", responses=RESPONSES, tags=["answers"])


@router.post("")
async def post_answer(request: Request, ask: AnswerAsked, job: JobName = None) -> WholeAnswer:
    """Ask about documents: the answer, and what every sentence of them gave to each of its sentences."""
    state = app_state(request)
    return await submit(request, lambda: whole_answer(state.answer(ask)), job)


@router.post("/document")
async def post_document(request: Request, ask: DocumentFileAsked, job: JobName = None) -> DocumentRead:
    """The text of a file: plain text, Markdown, what an HTML page shows, or the pages of a PDF."""
    return await submit(request, lambda: read_document_file(ask), job)


@router.post("/sources")
async def post_sources(request: Request, ask: AnswerAsked, job: JobName = None) -> SourcesAnswer:
    """The sources of every sentence, each left out once: what the sentence rests on, in plain words."""
    state = app_state(request)
    return await submit(request, lambda: sources_answer(state.answer(ask).report()), job)


@router.post("/without")
async def post_without(request: Request, ask: AnswerAsked, job: JobName = None) -> WithoutAnswer:
    """The same answer, read again without `left_out`."""
    state = app_state(request)

    def work() -> WithoutAnswer:
        left_out = leave_sources_out(state.answer(ask), ask)
        if left_out is None:
            raise UsageError("nothing is left out: left_out names no source.")
        return without_answer(left_out)

    return await submit(request, work, job)


@router.post("/report", response_class=Response, responses=FILE)
async def post_report(
    request: Request,
    ask: AnswerAsked,
    form: PageFormat = "html",
    palette: PaletteName = "red-blue",
    job: JobName = None,
) -> Response:
    """The answer as one file: a page that lights up the sources of what is pointed at, or JSON."""
    state = app_state(request)

    def work() -> str:
        found = state.answer(ask)
        return answer_report(found.report(), leave_sources_out(found, ask), form, palette)

    return file(await submit(request, work, job), form, "answer")
