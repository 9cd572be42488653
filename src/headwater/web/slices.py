"""The API of results, counted: texts with their colours, a confusion matrix, slices by a column."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel

from ..results.explanation import Explanation
from ..viz.colour import largest
from ..viz.reading import token_cells
from .datasets import LARGEST, Other, RowsWanted
from .jobs import RESPONSES, AnyCaller
from .schemas import TokenAnswer
from .state import AppState
from .stores.slicing import Confusion, Slice, confusion, label_columns, make_slices
from .texts import cells_of, unit_for

router: APIRouter = APIRouter(prefix="/api/datasets", tags=["datasets"], responses=RESPONSES)
Name = Annotated[str, Path(min_length=1, max_length=80, description="A name that /api/datasets gives.")]
Label = Annotated[str | None, Query(max_length=200, description="The column of the labels; found without it.")]
Column = Annotated[str, Query(min_length=1, max_length=200, description="The column whose values make groups.")]


class ColouredRow(BaseModel):
    """A row's text: its words, and the relevance of each; `scale` is the one that gets full colour."""

    row: int
    target: str
    score: float
    cells: list[TokenAnswer]
    relevance: list[float]
    scale: float


class ConfusionAnswer(BaseModel):
    """`counts[i][j]`: rows with label i and prediction j. `same[i]` is the prediction that is label i, or -1.

    `right` is the share of rows whose prediction is their label; None where labels are not the model's classes.
    """

    label: str
    choices: list[str]
    prediction: str
    labels: list[str]
    predictions: list[str]
    counts: list[list[int]]
    same: list[int]
    right: float | None


class SliceShown(BaseModel):
    """`where` is the condition that finds these rows, as `rows` takes it."""

    name: str
    where: list[str | float]
    rows: int
    right: float | None
    means: dict[str, float | None]


class SlicesAnswer(BaseModel):
    column: str
    slices: list[SliceShown]


@router.get("/{name}/coloured")
async def get_coloured(
    caller: AnyCaller,
    name: Name,
    row: Annotated[
        list[Annotated[int, Query(ge=0, le=LARGEST)]],
        Query(min_length=1, max_length=200, description="`row_id` of each."),
    ],
) -> list[ColouredRow]:
    """Texts of some rows of a run with the relevance of every word. A row that is not there is left out."""
    store = caller.state.store(name)

    def work() -> list[ColouredRow]:
        found = store.colours(row)
        return [colour_row(number, found[number]) for number in dict.fromkeys(row) if number in found]

    return await caller.submit(work)


def colour_row(number: int, e: Explanation) -> ColouredRow:
    unit = unit_for(e, "word")
    relevance = [cell.relevance for cell in token_cells(e, unit == "word")]
    return ColouredRow(
        row=number,
        target=e.target,
        score=e.score,
        cells=cells_of(e, unit),
        relevance=relevance,
        scale=largest(relevance),
    )


@router.get("/{name}/confusion")
async def get_confusion(caller: AnyCaller, name: Name, query: RowsWanted, label: Label = None) -> ConfusionAnswer:
    """How often each label met each prediction, in the rows that the query finds."""

    def work() -> ConfusionAnswer:
        sheet = caller.state.sheet(name)
        return confusion_answer(confusion(sheet, query, label, list_classes(caller.state)), label_columns(sheet))

    return await caller.submit(work)


def list_classes(state: AppState) -> list[str]:
    """The classes of the text model that is being served, in its order: what a number among labels stands for."""
    found = state.models.text.found
    return [] if found is None else found.classes


def confusion_answer(found: Confusion, choices: list[str]) -> ConfusionAnswer:
    return ConfusionAnswer(
        label=found.label,
        choices=choices,
        prediction=found.prediction,
        labels=list(found.labels),
        predictions=list(found.predictions),
        counts=found.counts,
        same=found.same,
        right=found.right,
    )


@router.get("/{name}/slices")
async def get_slices(
    caller: AnyCaller, name: Name, query: RowsWanted, by: Column, beside: Other = None
) -> SlicesAnswer:
    """The rows that the query finds, counted by the values of a column; many numbers in four equal parts."""

    def work() -> SlicesAnswer:
        found = make_slices(caller.state.sheet(name, beside), query, by, list_classes(caller.state))
        return SlicesAnswer(column=by, slices=[show_slice(one) for one in found])

    return await caller.submit(work)


def show_slice(one: Slice) -> SliceShown:
    c = one.condition
    where: list[str | float] = [c.column, c.low, c.high] if c.value is None else [c.column, c.value]
    return SliceShown(name=one.name, where=where, rows=one.rows, right=one.right, means=one.means)
