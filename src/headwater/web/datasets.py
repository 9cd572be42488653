"""The API of results: rows to sort and search, words, curves, one row's explanation, the page."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel

from ..viz.reading import token_cells
from .jobs import RESPONSES, app_state, submit
from .schemas import TextAnswer
from .security import FRAMED
from .stores.drawings import draw_part
from .stores.interface import Query as RowQuery
from .stores.interface import Store
from .texts import cells_of, method_row, show_phrases, unit_for

router = APIRouter(prefix="/api/datasets", tags=["datasets"], responses=RESPONSES)
Name = Annotated[str, Path(min_length=1, max_length=80)]
LARGEST = 2**53 - 1


class StoreShown(BaseModel):
    id: str
    name: str
    kind: str


class Fact(BaseModel):
    name: str
    value: str


class StoreOpened(StoreShown):
    """A result, and what it holds."""

    facts: list[Fact]
    rows: int
    has: list[str]


class ColumnShown(BaseModel):
    name: str
    text: bool


class RowsAnswer(BaseModel):
    """Rows in the order asked for; `matched` of `total` hold what was searched for."""

    columns: list[ColumnShown]
    rows: list[list[str | float | int | bool | None]]
    matched: int
    total: int


class WordShown(BaseModel):
    text: str
    count: int
    mean: float
    total: float


class WordsAnswer(BaseModel):
    """Words over all rows, from those that add most to those that take away most."""

    words: list[WordShown]
    rows: int


class CurveShown(BaseModel):
    method: str
    mean: list[float]
    area: float


class CurvesShown(BaseModel):
    name: str
    better: str
    fractions: list[float]
    series: list[CurveShown]


HAS = {"evaluation": ["rows", "curves", "page"], "run": ["words", "rows", "page"], "bias": ["page", "words", "rows"]}


@router.get("")
async def datasets(request: Request) -> list[StoreShown]:
    """The results that the server was started with."""
    return [StoreShown(id=s.id, name=s.name, kind=s.kind) for s in app_state(request).stores]


@router.get("/{name}")
async def get_dataset(request: Request, name: Name) -> StoreOpened:
    """What one of them is."""
    store = app_state(request).store(name)

    def work() -> StoreOpened:
        facts = [Fact(name=k, value=v) for k, v in store.facts()]
        return StoreOpened(
            id=store.id, name=store.name, kind=store.kind, facts=facts, rows=len(store.sheet()), has=HAS[store.kind]
        )

    return await submit(request, work, None)


def row_query(
    sort: Annotated[str | None, Query(max_length=200)] = None,
    down: bool = False,
    find: Annotated[str, Query(max_length=200)] = "",
    start: Annotated[int, Query(ge=0, le=LARGEST)] = 0,
    count: Annotated[int, Query(ge=1, le=200)] = 50,
) -> RowQuery:
    """Which rows are wanted, as the address says."""
    return RowQuery(sort, down, find, start, count)


RowsWanted = Annotated[RowQuery, Depends(row_query)]


@router.get("/{name}/rows")
async def get_rows(request: Request, name: Name, query: RowsWanted) -> RowsAnswer:
    """Rows, sorted by a column, with a text in one of theirs."""
    store = app_state(request).store(name)

    def work() -> RowsAnswer:
        sheet = store.sheet()
        found = sheet.find(query)
        columns = [ColumnShown(name=one, text=sheet.is_text(one)) for one in sheet.columns]
        return RowsAnswer(columns=columns, rows=found.rows, matched=found.matched, total=len(sheet))

    return await submit(request, work, None)


@router.get("/{name}/rows/{row}")
async def get_row(request: Request, name: Name, row: Annotated[int, Path(ge=0, le=LARGEST)]) -> TextAnswer:
    """One row of a run, as it was explained."""
    store = app_state(request).store(name)
    return await submit(request, lambda: row_answer(store, row), None)


def row_answer(store: Store, number: int) -> TextAnswer:
    e = store.explanation(number)
    unit = unit_for(e, "word")
    return TextAnswer(
        target=e.target,
        output=e.output,
        score=e.score,
        prediction=e.prediction,
        verdict=show_phrases(e.verdict().phrases),
        classes=[],
        cells=cells_of(e, unit),
        rows=[method_row(e, [c.relevance for c in token_cells(e, unit == "word")])],
        refused=[],
        windows=e.windows,
        model=e.provenance.model,
    )


@router.get("/{name}/words")
async def get_words(request: Request, name: Name, count: Annotated[int, Query(ge=1, le=500)] = 30) -> WordsAnswer:
    """The words that matter most over all rows: `count` that add most, and as many that take away most."""
    store = app_state(request).store(name)

    def work() -> WordsAnswer:
        found = store.words()
        shown = [
            WordShown(text=w.text, count=w.count, mean=w.mean, total=w.total)
            for w in (found.words if len(found.words) <= 2 * count else [*found.words[:count], *found.words[-count:]])
        ]
        return WordsAnswer(words=shown, rows=found.rows)

    return await submit(request, work, None)


@router.get("/{name}/curves")
async def get_curves(request: Request, name: Name) -> list[CurvesShown]:
    """The mean curves of an evaluation."""
    store = app_state(request).store(name)

    def work() -> list[CurvesShown]:
        return [
            CurvesShown(
                name=c.name,
                better=c.better,
                fractions=c.fractions,
                series=[CurveShown(method=s.method, mean=s.mean, area=s.area) for s in c.series],
            )
            for c in store.curves()
        ]

    return await submit(request, work, None)


@router.get(
    "/{name}/drawing",
    response_class=Response,
    responses={200: {"content": {"image/svg+xml": {}}, "description": "The drawing."}},
)
async def drawing(
    request: Request, name: Name, part: Literal["rows", "words", "curves"], query: RowsWanted
) -> Response:
    """A part of the result as SVG."""
    store = app_state(request).store(name)
    made = await submit(request, lambda: draw_part(store, part, query), None)
    saved = {"Content-Disposition": f'attachment; filename="headwater-{part}.svg"'}
    return Response(made, media_type="image/svg+xml", headers=saved)


@router.get(
    "/{name}/page",
    response_class=Response,
    responses={200: {"content": {"text/html": {}}, "description": "The page."}},
)
async def get_page(request: Request, name: Name, save: bool = False) -> Response:
    """The result as one self-contained page: to be looked at, where nothing in it may run, or to be saved."""
    store = app_state(request).store(name)
    made = await submit(request, store.page, None)
    disposition = {"Content-Disposition": f'attachment; filename="headwater-{store.kind}.html"'} if save else {}
    headers = {"Content-Security-Policy": FRAMED, **disposition}
    return Response(made, media_type="text/html; charset=utf-8", headers=headers)
