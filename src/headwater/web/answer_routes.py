"""The API of whole answers: the answer, its sources put to the test, and the same answer without some of them."""

from __future__ import annotations

from fastapi import APIRouter, Response

from ..errors import UsageError
from .answer_schemas import AnswerAsked, DocumentFileAsked, DocumentRead, SourcesAnswer, WholeAnswer, WithoutAnswer
from .answers import answer_report, leave_sources_out, read_document_file, sources_answer, whole_answer, without_answer
from .jobs import RESPONSES, NamedCaller
from .reports import PageFormat
from .routes import FILE, send_file
from .schemas import PaletteName

router: APIRouter = APIRouter(prefix="/api/answer", responses=RESPONSES, tags=["answers"])


@router.post("")
async def post_answer(caller: NamedCaller, ask: AnswerAsked) -> WholeAnswer:
    """Ask about documents: the answer, and what every sentence of them gave to each of its sentences."""
    return await caller.submit(lambda: whole_answer(caller.state.answer(ask)))


@router.post("/document")
async def post_document(caller: NamedCaller, ask: DocumentFileAsked) -> DocumentRead:
    """The text of a file: plain text, Markdown, what an HTML page shows, or the pages of a PDF."""
    return await caller.submit(lambda: read_document_file(ask))


@router.post("/sources")
async def post_sources(caller: NamedCaller, ask: AnswerAsked) -> SourcesAnswer:
    """The sources of every sentence, each left out once: what the sentence rests on, in plain words."""
    return await caller.submit(lambda: sources_answer(caller.state.answer(ask).report()))


@router.post("/without")
async def post_without(caller: NamedCaller, ask: AnswerAsked) -> WithoutAnswer:
    """The same answer, read again without `left_out`."""

    def work() -> WithoutAnswer:
        left_out = leave_sources_out(caller.state.answer(ask), ask)
        if left_out is None:
            raise UsageError("nothing is left out: left_out names no source.")
        return without_answer(left_out)

    return await caller.submit(work)


@router.post("/report", response_class=Response, responses=FILE)
async def post_report(
    caller: NamedCaller, ask: AnswerAsked, form: PageFormat = "html", palette: PaletteName = "red-blue"
) -> Response:
    """The answer as one file: a page that lights up the sources of what is pointed at, or JSON."""

    def work() -> str:
        found = caller.state.answer(ask)
        return answer_report(found.report(), leave_sources_out(found, ask), form, palette)

    return send_file(await caller.submit(work), form, "answer")
