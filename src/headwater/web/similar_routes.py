"""The API of two texts: why they are similar, what leaving words out does, and passages by similarity to a query."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from .jobs import RESPONSES, JobName, app_state, submit
from .rankings import rank_answer, rank_report, why_answer
from .reports import Format, PageFormat
from .routes import FILE, file
from .schemas import PaletteName
from .similar import move_similarity, similar_answer, similar_report
from .similar_schemas import MovedAnswer, RankAnswer, RankAsked, SimilarAnswer, SimilarAsked, WhyAnswer

router: APIRouter = APIRouter(prefix="/api/similar", responses=RESPONSES, tags=["two texts"])


@router.post("")
async def post_similar(request: Request, ask: SimilarAsked, job: JobName = None) -> SimilarAnswer:
    """Which pairs of words made two texts similar, and the sum that says so."""
    state = app_state(request)
    return await submit(request, lambda: similar_answer(state.similar(ask)), job)


@router.post("/without")
async def post_without_words(request: Request, ask: SimilarAsked, job: JobName = None) -> MovedAnswer:
    """The similarity again, without `left_first` and `left_second`."""
    state = app_state(request)
    return await submit(request, lambda: move_similarity(state.encoder(ask.model), ask, state.similar(ask)), job)


@router.post("/report", response_class=Response, responses=FILE)
async def post_similar_report(
    request: Request, ask: SimilarAsked, form: Format = "html", palette: PaletteName = "red-blue", job: JobName = None
) -> Response:
    """Two texts as one file: a page, the picture with lines between words, or JSON."""
    state = app_state(request)

    def work() -> str:
        found, left = state.similar(ask), ask.left_first or ask.left_second
        moved = move_similarity(state.encoder(ask.model), ask, found) if left else None
        return similar_report(found, moved, form, palette)

    return file(await submit(request, work, job), form, "similar")


@router.post("/rank")
async def post_rank(request: Request, ask: RankAsked, job: JobName = None) -> RankAnswer:
    """Passages by their similarity to a query; those at `places` with their words."""
    state = app_state(request)
    model = state.models.of("sentence", ask.model).name
    return await submit(request, lambda: rank_answer(state.ranking(ask), ask, model), job)


@router.post("/rank/why")
async def post_why(request: Request, ask: RankAsked, job: JobName = None) -> WhyAnswer:
    """Why the passage at `above` stands above that at `below`: the difference, which sums."""
    state = app_state(request)
    return await submit(request, lambda: why_answer(state.ranking(ask).ranking, ask), job)


@router.post("/rank/report", response_class=Response, responses=FILE)
async def post_rank_report(
    request: Request, ask: RankAsked, form: PageFormat = "html", palette: PaletteName = "red-blue", job: JobName = None
) -> Response:
    """The order as one file: a page, or JSON."""
    state = app_state(request)
    return file(await submit(request, lambda: rank_report(state.ranking(ask), ask, form, palette), job), form, "rank")
