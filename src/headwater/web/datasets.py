"""The API of results: rows to sort and search, words, curves, one row's explanation, the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query, Response
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from ..errors import UnknownName, UsageError
from ..store.words import WordTotal, WordTotals
from ..viz.reading import token_cells
from .jobs import RESPONSES, AnyCaller
from .security import FRAMED
from .stores.drawings import draw_part
from .stores.interface import Condition, Store
from .stores.interface import Query as RowQuery
from .text_schemas import TextAnswer
from .texts import cells_of, method_row, show_phrases, unit_for

WHERE = 'a JSON list of conditions, each ["column", "value"] or ["column", from, to].'
MIXED: TypeAdapter[list[tuple[str, str] | tuple[str, float, float]]] = TypeAdapter(
    Annotated[list[tuple[str, str] | tuple[str, float, float]], Field(max_length=12)]
)
router: APIRouter = APIRouter(prefix="/api/datasets", tags=["datasets"], responses=RESPONSES)
Name = Annotated[str, Path(min_length=1, max_length=80, description="A name that /api/datasets gives.")]
LARGEST = 2**53 - 1
RowNumber = Annotated[int, Path(ge=0, le=LARGEST, description="Its `row_id`.")]


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


class ClassRows(BaseModel):
    """A class whose score was explained, and in how many rows."""

    name: str
    rows: int


class WordsAnswer(BaseModel):
    """Whole words over the rows that explain one class, from those that add most to those that take away most."""

    target: str
    targets: list[ClassRows]
    words: list[WordShown]
    punctuation: list[WordShown]
    rows: int
    least: int


class CurveShown(BaseModel):
    method: str
    mean: list[float]
    area: float


class CurvesShown(BaseModel):
    name: str
    better: str
    fractions: list[float]
    series: list[CurveShown]


HAS = {
    "evaluation": ["rows", "slices", "curves", "page"],
    "run": ["words", "rows", "slices", "page"],
    "bias": ["page", "words", "rows"],
}


@router.get("")
async def datasets(caller: AnyCaller) -> list[StoreShown]:
    """The results that the server was started with."""
    return [StoreShown(id=s.id, name=s.name, kind=s.kind) for s in caller.state.stores]


@router.get("/{name}")
async def get_dataset(caller: AnyCaller, name: Name) -> StoreOpened:
    """What one of them is."""
    store = caller.state.store(name)

    def work() -> StoreOpened:
        facts = [Fact(name=k, value=v) for k, v in store.facts()]
        return StoreOpened(
            id=store.id, name=store.name, kind=store.kind, facts=facts, rows=len(store.sheet()), has=HAS[store.kind]
        )

    return await caller.submit(work)


def row_order(
    sort: Annotated[str | None, Query(max_length=200, description="A column; as in the files without it.")] = None,
    down: Annotated[bool, Query(description="Whether the highest comes first.")] = False,
    start: Annotated[int, Query(ge=0, le=LARGEST, description="The first of them, counted from 0.")] = 0,
    count: Annotated[int, Query(ge=1, le=200, description="How many at most.")] = 50,
) -> RowQuery:
    """In which order, and how many."""
    return RowQuery(sort, down, "", start, count)


def row_query(
    order: Annotated[RowQuery, Depends(row_order)],
    find: Annotated[str, Query(max_length=200, description="A text that they hold.")] = "",
    within: Annotated[
        str | None, Query(max_length=200, description="The column to search; any text without it.")
    ] = None,
    where: Annotated[str, Query(max_length=4000, description=WHERE)] = "",
) -> RowQuery:
    """Which rows are wanted, as the address says."""
    return replace(order, find=find, within=within, where=read_conditions(where))


def read_conditions(said: str) -> tuple[Condition, ...]:
    """Conditions as an address has them: a JSON list of [column, value] and [column, from, to]."""
    try:
        found = MIXED.validate_json(said or "[]")
    except ValidationError as error:
        raise UsageError(f"where= is {said[:80]!r}, not {WHERE}") from error
    return tuple(Condition(one[0], one[1]) if len(one) == 2 else Condition(one[0], None, *one[1:]) for one in found)


RowsWanted = Annotated[RowQuery, Depends(row_query)]


Other = Annotated[str | None, Query(max_length=80, description="Another run of the same rows, to stand beside it.")]


@router.get("/{name}/rows")
async def get_rows(caller: AnyCaller, name: Name, query: RowsWanted, beside: Other = None) -> RowsAnswer:
    """Rows, sorted by a column, with a text in one of theirs; of two runs, sorted by where they differ."""

    def work() -> RowsAnswer:
        sheet = caller.state.sheet(name, beside)
        found = sheet.find(query)
        columns = [ColumnShown(name=one, text=sheet.is_text(one)) for one in sheet.columns]
        return RowsAnswer(columns=columns, rows=found.rows, matched=found.matched, total=len(sheet))

    return await caller.submit(work)


@router.get("/{name}/rows/{row}")
async def get_row(caller: AnyCaller, name: Name, row: RowNumber) -> TextAnswer:
    """One row of a run, as it was explained."""
    store = caller.state.store(name)
    return await caller.submit(lambda: row_answer(store, row))


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
async def get_words(
    caller: AnyCaller,
    name: Name,
    target: Annotated[str | None, Query(max_length=200, description="The class; the first without it.")] = None,
    by: Annotated[Literal["total", "mean"], Query(description="What they are ordered by.")] = "total",
    count: Annotated[int, Query(ge=1, le=500, description="How many of each.")] = 30,
) -> WordsAnswer:
    """The words that matter most for a class: `count` that add most, and as many that take away most."""
    store = caller.state.store(name)
    return await caller.submit(lambda: words_answer(store.words(), target, by, count))


def words_answer(found: Sequence[WordTotals], target: str | None, by: str, count: int) -> WordsAnswer:
    known = [one.target for one in found]
    if not found or (target is not None and target not in known):
        raise UnknownName("class", target or "", known)
    chosen = found[0 if target is None else known.index(target)]
    return WordsAnswer(
        target=chosen.target,
        targets=[ClassRows(name=one.target, rows=one.rows) for one in found],
        words=pick_words(chosen.words, by, count),
        punctuation=pick_words(chosen.punctuation, by, count),
        rows=chosen.rows,
        least=chosen.least,
    )


def pick_words(words: Sequence[WordTotal], by: str, count: int) -> list[WordShown]:
    """Both ends of the list, in its order."""
    ordered = sorted(words, key=lambda word: -(word.mean if by == "mean" else word.total))
    ends = ordered if len(ordered) <= 2 * count else [*ordered[:count], *ordered[-count:]]
    return [WordShown(text=w.text, count=w.count, mean=w.mean, total=w.total) for w in ends]


@router.get("/{name}/curves")
async def get_curves(caller: AnyCaller, name: Name) -> list[CurvesShown]:
    """The mean curves of an evaluation."""
    store = caller.state.store(name)

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

    return await caller.submit(work)


Part = Annotated[Literal["rows", "words", "curves"], Query(description="What is drawn.")]


@router.get(
    "/{name}/drawing",
    response_class=Response,
    responses={200: {"content": {"image/svg+xml": {}}, "description": "The drawing."}},
)
async def drawing(caller: AnyCaller, name: Name, part: Part, query: RowsWanted) -> Response:
    """A part of the result as SVG."""
    store = caller.state.store(name)
    made = await caller.submit(lambda: draw_part(store, part, query))
    saved = {"Content-Disposition": f'attachment; filename="headwater-{part}.svg"'}
    return Response(made, media_type="image/svg+xml", headers=saved)


@router.get(
    "/{name}/page",
    response_class=Response,
    responses={200: {"content": {"text/html": {}}, "description": "The page."}},
)
async def get_page(
    caller: AnyCaller,
    name: Name,
    save: Annotated[bool, Query(description="Whether it is to be kept as a file.")] = False,
) -> Response:
    """The result as one self-contained page: to be looked at, where nothing in it may run, or to be saved."""
    store = caller.state.store(name)
    made = await caller.submit(store.page)
    disposition = {"Content-Disposition": f'attachment; filename="headwater-{store.kind}.html"'} if save else {}
    headers = {"Content-Security-Policy": FRAMED, **disposition}
    return Response(made, media_type="text/html; charset=utf-8", headers=headers)
