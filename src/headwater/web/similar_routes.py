"""The API of two texts: why they are similar, what leaving words out does, and passages by similarity to a query."""

from __future__ import annotations

from fastapi import APIRouter, Response

from .jobs import RESPONSES, NamedCaller
from .rankings import rank_answer, rank_report, why_answer
from .reports import Format, PageFormat
from .routes import FILE, send_file
from .schemas import PaletteName
from .similar import move_similarity, similar_answer, similar_report
from .similar_schemas import MovedAnswer, RankAnswer, RankAsked, SimilarAnswer, SimilarAsked, WhyAnswer

router: APIRouter = APIRouter(prefix="/api/similar", responses=RESPONSES, tags=["two texts"])


@router.post("")
async def post_similar(caller: NamedCaller, ask: SimilarAsked) -> SimilarAnswer:
    """Which pairs of words made two texts similar, and the sum that says so."""
    return await caller.submit(lambda: similar_answer(caller.state.similar(ask)))


@router.post("/without")
async def post_without_words(caller: NamedCaller, ask: SimilarAsked) -> MovedAnswer:
    """The similarity again, without `left_first` and `left_second`."""
    return await caller.submit(lambda: move_similarity(caller.state.encoder(ask.model), ask, caller.state.similar(ask)))


@router.post("/report", response_class=Response, responses=FILE)
async def post_similar_report(
    caller: NamedCaller, ask: SimilarAsked, form: Format = "html", palette: PaletteName = "red-blue"
) -> Response:
    """Two texts as one file: a page, the picture with lines between words, or JSON."""

    def work() -> str:
        found, left = caller.state.similar(ask), ask.left_first or ask.left_second
        moved = move_similarity(caller.state.encoder(ask.model), ask, found) if left else None
        return similar_report(found, moved, form, palette)

    return send_file(await caller.submit(work), form, "similar")


@router.post("/rank")
async def post_rank(caller: NamedCaller, ask: RankAsked) -> RankAnswer:
    """Passages by their similarity to a query; those at `places` with their words."""
    model = caller.state.models.of("sentence", ask.model).name
    return await caller.submit(lambda: rank_answer(caller.state.ranking(ask), ask, model))


@router.post("/rank/why")
async def post_why(caller: NamedCaller, ask: RankAsked) -> WhyAnswer:
    """Why the passage at `above` stands above that at `below`: the difference, which sums."""
    return await caller.submit(lambda: why_answer(caller.state.ranking(ask).ranking, ask))


@router.post("/rank/report", response_class=Response, responses=FILE)
async def post_rank_report(
    caller: NamedCaller, ask: RankAsked, form: PageFormat = "html", palette: PaletteName = "red-blue"
) -> Response:
    """The order as one file: a page, or JSON."""
    return send_file(
        await caller.submit(lambda: rank_report(caller.state.ranking(ask), ask, form, palette)), form, "rank"
    )
